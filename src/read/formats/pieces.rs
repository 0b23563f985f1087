//! A text file, or the lines that start in a part of it → its decompressed bytes.

use crate::read::formats::format::Compression;
use async_compression::tokio::bufread::{GzipDecoder, ZstdDecoder};
use bytes::{Buf, Bytes};
use datafusion::common::DataFusionError;
use futures::stream;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use memchr::memchr;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore};
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use tokio_util::io::{ReaderStream, StreamReader};

/// Bytes to read from a local file, or to decompress, at once.
const PIECE_BYTES: usize = 256 << 10;

/// The bytes of a file, piece by piece.
pub(crate) type Pieces = BoxStream<'static, Result<Bytes, DataFusionError>>;

/// The bytes of a file, or of the lines that start in a range of it. A range requires an
/// uncompressed file.
pub(crate) async fn open(
    store: &dyn ObjectStore,
    file: &Path,
    range: Option<Range<u64>>,
    compression: Compression,
) -> Result<Pieces, DataFusionError> {
    let Some(range) = range else {
        return Ok(unpacked(pieces(store, file, 0).await?, compression));
    };
    // The byte before the range tells whether a line starts at the start of the range.
    let first = range.start.saturating_sub(1);
    Ok(lines(pieces(store, file, first).await?, first, range))
}

async fn pieces(
    store: &dyn ObjectStore,
    file: &Path,
    from: u64,
) -> Result<Pieces, DataFusionError> {
    let options = GetOptions {
        range: (from > 0).then_some(GetRange::Offset(from)),
        ..Default::default()
    };
    let got = store.get_opts(file, options).await?;
    let (begin, end) = (got.range.start, got.range.end);
    Ok(match got.payload {
        GetResultPayload::File(mut file, _) => {
            file.seek(SeekFrom::Start(begin))?;
            let file = file.take(end - begin);
            stream::try_unfold(file, |mut file| async move {
                let mut piece = Vec::with_capacity(PIECE_BYTES);
                (&mut file)
                    .take(PIECE_BYTES as u64)
                    .read_to_end(&mut piece)?;
                let more = (!piece.is_empty()).then(|| (Bytes::from(piece), file));
                Ok::<_, DataFusionError>(more)
            })
            .boxed()
        }
        GetResultPayload::Stream(pieces) => pieces.map_err(DataFusionError::from).boxed(),
    })
}

fn unpacked(pieces: Pieces, compression: Compression) -> Pieces {
    if compression == Compression::None {
        return pieces;
    }
    let packed = StreamReader::new(pieces.map_err(std::io::Error::other));
    let failed = |e: std::io::Error| match e.downcast::<DataFusionError>() {
        Ok(e) => e,
        Err(e) => DataFusionError::IoError(e),
    };
    // Concatenated compressed members are one file.
    if compression == Compression::Gzip {
        let mut reader = GzipDecoder::new(packed);
        reader.multiple_members(true);
        let pieces = ReaderStream::with_capacity(reader, PIECE_BYTES);
        return pieces.map_err(failed).boxed();
    }
    let mut reader = ZstdDecoder::new(packed);
    reader.multiple_members(true);
    ReaderStream::with_capacity(reader, PIECE_BYTES)
        .map_err(failed)
        .boxed()
}

/// The lines that start in a range of a file. The first piece starts at offset `at`.
fn lines(pieces: Pieces, at: u64, range: Range<u64>) -> Pieces {
    struct Cut {
        pieces: Pieces,
        at: u64,
        is_inside: bool,
        is_done: bool,
    }
    let cut = Cut {
        pieces,
        at,
        is_inside: range.start == 0,
        is_done: range.is_empty(),
    };
    stream::try_unfold(cut, move |mut cut| async move {
        while !cut.is_done {
            let Some(mut piece) = cut.pieces.try_next().await? else {
                break;
            };
            let mut begin = cut.at;
            cut.at += piece.len() as u64;
            if !cut.is_inside {
                let Some(line_end) = memchr(b'\n', &piece) else {
                    continue;
                };
                piece.advance(line_end + 1);
                begin += line_end as u64 + 1;
                cut.is_inside = true;
                cut.is_done = begin >= range.end;
                if cut.is_done {
                    break;
                }
            }
            // The last line ends at or after the byte before the end of the range.
            let last = (range.end - 1).saturating_sub(begin) as usize;
            if let Some(line_end) = piece.get(last..).and_then(|rest| memchr(b'\n', rest)) {
                piece.truncate(last + line_end + 1);
                cut.is_done = true;
            }
            if !piece.is_empty() {
                return Ok(Some((piece, cut)));
            }
        }
        Ok::<_, DataFusionError>(None)
    })
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use proptest::prelude::*;

    async fn all(pieces: Pieces) -> Result<Vec<u8>, DataFusionError> {
        let pieces: Vec<Bytes> = pieces.try_collect().await?;
        Ok(pieces.concat())
    }

    proptest! {
        /// Each line is in exactly one part and in order, wherever the file is split and whatever
        /// its pieces are.
        #[test]
        fn parts_add_up_to_the_file(text in "[ab\n]{0,40}", cuts in prop::collection::vec(0u64..41, 0..4), piece in 1usize..9) {
            let n = text.len() as u64;
            let mut ends: Vec<u64> = cuts.into_iter().map(|cut| cut.min(n)).collect();
            ends.extend([0, n]);
            ends.sort_unstable();
            let mut found = Vec::new();
            for at in ends.windows(2) {
                let range = at[0]..at[1];
                let first = range.start.saturating_sub(1);
                let rest = Bytes::from(text.clone().into_bytes()).slice(first as usize..);
                let pieces: Vec<Result<Bytes, DataFusionError>> =
                    rest.chunks(piece).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
                let part = lines(stream::iter(pieces).boxed(), first, range);
                let part = futures::executor::block_on(all(part)).unwrap();
                prop_assert!(part.is_empty() || part.ends_with(b"\n") || at[1] == n || found.len() + part.len() == text.len());
                found.extend(part);
            }
            prop_assert_eq!(found, text.into_bytes());
        }
    }

    #[tokio::test]
    async fn a_truncated_compressed_file_is_an_error() {
        use tokio::io::AsyncWriteExt;
        let text = "a line of text\n".repeat(10_000);
        let mut gzip = async_compression::tokio::write::GzipEncoder::new(Vec::new());
        gzip.write_all(text.as_bytes()).await.unwrap();
        gzip.shutdown().await.unwrap();
        let mut zstd = async_compression::tokio::write::ZstdEncoder::new(Vec::new());
        zstd.write_all(text.as_bytes()).await.unwrap();
        zstd.shutdown().await.unwrap();
        for (packed, how) in [
            (gzip.into_inner(), Compression::Gzip),
            (zstd.into_inner(), Compression::Zstd),
        ] {
            let store = InMemory::new();
            let path = Path::from("x");
            let twice = [&packed[..], &packed[..]].concat();
            store.put(&path, twice.into()).await.unwrap();
            let read = all(open(&store, &path, None, how).await.unwrap()).await;
            assert_eq!(read.unwrap(), text.repeat(2).into_bytes(), "{how:?}");
            for cut in [packed.len() - 1, packed.len() / 2, 3] {
                let cut = packed[..cut].to_vec();
                store.put(&path, cut.into()).await.unwrap();
                let read = all(open(&store, &path, None, how).await.unwrap()).await;
                assert!(read.is_err(), "{how:?}");
            }
        }
    }
}
