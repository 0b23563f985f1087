//! Reads local files into recycled buffers.
//!
//! Parquet is decoded one column chunk at a time, each from a fresh buffer of several megabytes
//! that lives for a moment. The system maps such memory page by page and unmaps it each time. Here
//! a buffer that has been decoded serves the next read.

use crate::store::forward::forward;
use async_trait::async_trait;
use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, Result};
use std::fs::File;
use std::io;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of free buffers that are kept; larger amounts go back to the system.
const KEPT: usize = 64 << 20;

/// The local file system. Ranges are read into recycled buffers; all other calls go to
/// [`LocalFileSystem`].
#[derive(Debug, Default)]
pub(crate) struct LocalFiles {
    files: LocalFileSystem,
    free: Arc<Free>,
}

impl std::fmt::Display for LocalFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.files.fmt(f)
    }
}

/// Buffers that are not in use.
#[derive(Debug, Default)]
struct Free(Mutex<Vec<Vec<u8>>>);

impl Free {
    /// An empty buffer with a capacity of at least `len` bytes: the smallest free one, or a new
    /// one.
    fn take(&self, len: usize) -> Vec<u8> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fitting = buffers
            .iter()
            .enumerate()
            .filter(|(_, b)| b.capacity() >= len);
        match fitting.min_by_key(|(_, b)| b.capacity()).map(|(at, _)| at) {
            Some(at) => buffers.swap_remove(at),
            None => Vec::with_capacity(len),
        }
    }

    fn give_back(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept: usize = buffers.iter().map(Vec::capacity).sum();
        if kept + buffer.capacity() <= KEPT {
            buffer.clear();
            buffers.push(buffer);
        }
    }
}

/// Bytes that were read. The buffer is recycled when the last slice of it is dropped.
struct Lent {
    buffer: Vec<u8>,
    free: Arc<Free>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.free.give_back(std::mem::take(&mut self.buffer));
    }
}

fn read(path: &std::path::Path, ranges: &[Range<u64>], free: &Arc<Free>) -> io::Result<Vec<Bytes>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let read = |range: &Range<u64>| {
        // A damaged footer may claim terabytes. No buffer is larger than the file.
        if range.end > size || range.start > range.end {
            return Err(short(range, size));
        }
        let len = range.end - range.start;
        let mut lent = Lent {
            buffer: free.take(len as usize),
            free: Arc::clone(free),
        };
        file.seek(SeekFrom::Start(range.start))?;
        if (&file).take(len).read_to_end(&mut lent.buffer)? < len as usize {
            return Err(short(range, size));
        }
        Ok(Bytes::from_owner(lent))
    };
    ranges.iter().map(read).collect()
}

/// The error of a range that ends behind the file.
fn short(range: &Range<u64>, size: u64) -> io::Error {
    let (start, end) = (range.start, range.end);
    let what = format!("bytes {start} to {end} of a file of {size} bytes do not exist");
    io::Error::new(io::ErrorKind::UnexpectedEof, what)
}

#[async_trait]
impl ObjectStore for LocalFiles {
    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let path = self.files.path_to_filesystem(location)?;
        let (wanted, free) = (ranges.to_vec(), Arc::clone(&self.free));
        let bytes = tokio::task::spawn_blocking(move || read(&path, &wanted, &free)).await;
        match bytes {
            Ok(Ok(bytes)) => Ok(bytes),
            // The file system would first allocate the range.
            Ok(Err(e)) if e.kind() == io::ErrorKind::UnexpectedEof => {
                Err(object_store::Error::Generic {
                    store: "LocalFileSystem",
                    source: format!("/{location}: {e}").into(),
                })
            }
            // Its errors name the file and the range.
            _ => self.files.get_ranges(location, ranges).await,
        }
    }

    forward!(files: get_opts, put_opts, put_multipart_opts, delete_stream, list, list_with_offset, list_with_delimiter, copy_opts);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_recycled_and_hold_the_requested_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("digits");
        std::fs::write(&path, "0123456789").unwrap();
        let free = Arc::new(Free::default());
        let first = read(&path, &[2..5, 0..10], &free).unwrap();
        assert_eq!(first, ["234", "0123456789"]);
        let slice = first[1].slice(4..6);
        drop(first);
        // A slice keeps its buffer, so only the other one is free.
        assert_eq!(free.0.lock().unwrap().len(), 1);
        let second = read(&path, &[7..9, 1..2], &free).unwrap();
        assert!(free.0.lock().unwrap().is_empty());
        assert_eq!(
            (second[0].as_ref(), slice.as_ref()),
            (&b"78"[..], &b"45"[..])
        );
        // A read beyond the end is an error that takes no buffer, and that of the other read is
        // free again.
        assert!(read(&path, &[0..1, 8..12], &free).is_err());
        assert_eq!(free.0.lock().unwrap().len(), 1);
        // So is a range that no memory could hold.
        assert!(read(&path, &[0..1, 4..1 << 45], &free).is_err());
    }

    #[tokio::test]
    async fn errors_are_those_of_the_file_system() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name| Path::from_absolute_path(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join("short"), "0123456789").unwrap();
        let files = LocalFiles::default();
        let missing = files.get_ranges(&at("missing"), &[0..1, 1..2]).await;
        assert!(matches!(missing, Err(object_store::Error::NotFound { .. })));
        assert!(
            files
                .get_ranges(&at("short"), &[0..1, 8..12])
                .await
                .is_err()
        );
        let huge = files.get_ranges(&at("short"), &[0..1, 4..1 << 45]).await;
        assert!(huge.is_err());
    }
}
