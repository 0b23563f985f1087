//! The files of a version, with their sizes and hashes, so that damage is noticed before a number
//! of it is used.
//!
//! ```text
//! <output>/versions/<run>/files.json    path in the version → bytes and blake3
//! ```
//!
//! A run hashes what it writes, while it writes it. Sizes are compared whenever a result is opened,
//! and hashes when a table is read. The hashes have no key: they show damage, and not who wrote a
//! file.

use crate::error::{Error, Kind, Result};
use crate::output::marks::{FileMark, FileMarks};
use crate::output::place::{LARGEST_RECORD, Output};
use crate::read::paths::current::Current;
use crate::store::seal::{sealed, unsealed};
use bytes::{Bytes, BytesMut};
use futures::TryStreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use std::collections::BTreeMap;

/// Name of the list inside a version.
const FILES: &str = "files.json";

/// A file of at most this many bytes is kept in memory when it has been hashed.
const HELD: u64 = 4 << 20;

impl Output {
    /// Notes what has been written to a file.
    pub(crate) fn mark(&self, path: &Path, mark: FileMark) {
        self.marks().insert(path.clone(), mark);
    }

    /// Writes the list of all files of a version that this process has written.
    pub(crate) async fn put_marks(&self, run: &str) -> Result<()> {
        let version = self.version(run);
        let mut files = BTreeMap::new();
        for (path, mark) in std::mem::take(&mut *self.marks()) {
            if let Some(inside) = inside(&path, &version) {
                files.insert(inside, mark);
            }
        }
        let bytes = sealed(&FileMarks { files })?;
        self.put(&self.version_file(run, FILES), bytes).await
    }

    /// The list of the files of a version. Older versions of gyre wrote no list: then it has the
    /// files that are there, without hashes.
    ///
    /// # Errors
    /// [`Kind::Input`] if it is damaged.
    pub(crate) async fn file_marks(&self, run: &str) -> Result<FileMarks> {
        let path = self.version_file(run, FILES);
        let Some(bytes) = self.bytes(&path, LARGEST_RECORD).await? else {
            return self.found_marks(run).await;
        };
        unsealed(&bytes).map_err(|e| {
            let what = format!("{} is damaged", self.show(&path));
            Error::with_source(Kind::Input, what, e)
        })
    }

    /// The files of a version that are there.
    async fn found_marks(&self, run: &str) -> Result<FileMarks> {
        let version = self.version(run);
        let found = self.list(&version).await?.into_iter();
        let files = found.filter_map(|meta| {
            let mark = FileMark {
                bytes: meta.size,
                blake3: None,
            };
            Some((inside(&meta.location, &version)?, mark))
        });
        Ok(FileMarks {
            files: files.collect(),
        })
    }

    /// What is wrong with the files of a result, if anything: the first that is missing or has
    /// another size than was written.
    pub(crate) async fn damage(&self, current: &Current) -> Result<Option<String>> {
        let marks = match self.file_marks(&current.run).await {
            Err(e) if e.kind() == Kind::Input => return Ok(Some(e.full())),
            marks => marks?,
        };
        let version = self.version(&current.run);
        let found = self.list(&version).await?.into_iter();
        let found: BTreeMap<Path, u64> = found.map(|meta| (meta.location, meta.size)).collect();
        for (file, mark) in &marks.files {
            let path = file
                .split('/')
                .fold(version.clone(), |path, part| path.join(part));
            let wrong = match found.get(&path) {
                None => "is missing".to_string(),
                Some(&bytes) if bytes != mark.bytes => {
                    format!("has {bytes} bytes, and {} were written", mark.bytes)
                }
                Some(_) => continue,
            };
            return Ok(Some(format!("{} {wrong}", self.show(&path))));
        }
        let missing = current
            .tables
            .keys()
            .find(|table| marks.table(table).is_none());
        Ok(missing.map(|table| {
            let path = self.show(&self.table(current, table));
            format!("{path} is missing, or its run did not write it")
        }))
    }

    /// Reads a whole file and compares it with its mark. Returns its own mark, and the bytes of a
    /// small file.
    ///
    /// # Errors
    /// [`Kind::Input`] if it has other bytes than were written.
    pub(crate) async fn verified(
        &self,
        path: &Path,
        mark: &FileMark,
    ) -> Result<(FileMark, Option<Bytes>)> {
        let failed = |e| match e {
            e @ object_store::Error::NotFound { .. } => {
                let what = format!("{} is missing", self.show(path));
                Error::with_source(Kind::Input, what, e)
            }
            e => self.failed(path, "read", e),
        };
        let found = self.store.get(path).await.map_err(failed)?;
        let (mut hasher, mut size) = (blake3::Hasher::new(), 0);
        let mut held = (found.meta.size <= HELD).then(BytesMut::new);
        let mut pieces = found.into_stream();
        while let Some(piece) = pieces.try_next().await.map_err(failed)? {
            size += piece.len() as u64;
            if size > mark.bytes {
                break;
            }
            hasher.update(&piece);
            if let Some(held) = &mut held {
                held.extend_from_slice(&piece);
            }
        }
        let found = FileMark::new(size, &hasher);
        if !mark.is(&found) {
            return Err(damaged(&self.show(path)));
        }
        Ok((found, held.map(BytesMut::freeze)))
    }
}

/// A path relative to a folder, if it leads there.
fn inside(path: &Path, folder: &Path) -> Option<String> {
    Some(Path::from_iter(path.prefix_match(folder)?).into())
}

/// The error for a file whose bytes are not those that were written.
pub(crate) fn damaged(shown: &str) -> Error {
    Error::input(format!(
        "{shown} is damaged: its bytes are not those that were written; run its pipeline with --force"
    ))
}

/// The error for a result that is damaged as `what` says.
pub(crate) fn incomplete(what: &str) -> Error {
    Error::input(format!(
        "{what}, so the result is damaged; run its pipeline again, or restore an earlier result"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use std::sync::Arc;

    #[tokio::test]
    async fn changed_files_do_not_match_their_marks() {
        let store = Arc::new(InMemory::new());
        let output = Output::in_store(store.clone(), "out".into());
        let path = Path::from("out/versions/run/a/part-0.parquet");
        for size in [0, 1, 1000, HELD as usize, HELD as usize + 1] {
            let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            let mark = FileMark::of(&bytes);
            let put = store.put(&path, bytes.clone().into()).await;
            put.expect("a store");
            let verified = output.verified(&path, &mark).await;
            let (found, held) = verified.expect("the same bytes");
            assert_eq!(found, mark);
            assert_eq!(held.is_some(), size as u64 <= HELD);
            assert!(held.is_none_or(|held| held == bytes));
            let mut longer = bytes.clone();
            longer.push(0);
            let mut changed = vec![longer];
            if size > 0 {
                changed.push(bytes[1..].to_vec());
                for at in [0, size / 2, size - 1] {
                    let mut flipped = bytes.clone();
                    flipped[at] ^= 4;
                    changed.push(flipped);
                }
            }
            for bytes in changed {
                store.put(&path, bytes.into()).await.expect("a store");
                let verified = output.verified(&path, &mark).await;
                let e = verified.expect_err("other bytes");
                assert_eq!(e.kind(), Kind::Input);
                let message = e.full();
                assert!(message.contains("part-0.parquet is damaged"), "{message}");
            }
        }
    }
}
