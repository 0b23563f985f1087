//! Data that tasks leave for other tasks of the same plan.
//!
//! ```text
//! <output>/work/<plan>/parts/<hash>      pieces, one after another
//! ```
//!
//! A part is written with one put, named by the hash of its bytes and never changed. A reference to
//! a piece holds its checksum, so a truncated, damaged or missing part is never mistaken for
//! another. Parts are removed with the checkpoints of the plan.

use crate::error::{Error, Kind, Result};
use crate::output::layout::WORK;
use crate::output::place::Output;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::PutPayload;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use std::ops::Range;

const PARTS: &str = "parts";

/// Parts that are read concurrently.
const CONCURRENT_READS: usize = 16;

/// A range of bytes of a part. An empty piece has no part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// The hash that names the part.
    part: [u8; 32],
    bytes: Range<u64>,
    checksum: [u8; 32],
}

impl Piece {
    /// Whether the piece has no bytes.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Number of bytes.
    pub(crate) fn len(&self) -> u64 {
        self.bytes.end - self.bytes.start
    }

    /// The blake3 hash of the bytes.
    pub(crate) fn checksum(&self) -> [u8; 32] {
        self.checksum
    }
}

impl Output {
    /// Writes pieces as one part of the checkpoints of a plan.
    pub(crate) async fn put_part(&self, plan: &str, pieces: Vec<Vec<u8>>) -> Result<Vec<Piece>> {
        let mut hasher = blake3::Hasher::new();
        for piece in &pieces {
            hasher.update(piece);
        }
        let part = hasher.finalize().into();
        let mut end = 0;
        let named = pieces.iter().map(|piece| {
            let start = end;
            end += piece.len() as u64;
            Piece {
                part,
                bytes: start..end,
                checksum: blake3::hash(piece).into(),
            }
        });
        let named: Vec<Piece> = named.collect();
        if end > 0 {
            let path = self.part(plan, part);
            let payload = PutPayload::from_iter(pieces.into_iter().map(Bytes::from));
            let put = self.work_folder(plan).put(&path, payload).await;
            put.map_err(|e| self.failed(&path, "written", e))?;
        }
        Ok(named)
    }

    /// The bytes of a piece.
    ///
    /// # Errors
    /// [`Kind::Store`] if they are not the bytes that were written.
    pub(crate) async fn piece(&self, plan: &str, piece: &Piece) -> Result<Bytes> {
        let bytes = self.read_part(plan, std::slice::from_ref(piece)).await;
        bytes.map(|all| all.into_iter().next().unwrap_or_default())
    }

    /// The bytes of several pieces. Neighbours in a part are read together.
    pub(crate) async fn pieces(&self, plan: &str, pieces: &[Piece]) -> Result<Vec<Bytes>> {
        let parts = pieces.chunk_by(|a, b| a.part == b.part);
        let read: Vec<_> = parts.map(|own| self.read_part(plan, own)).collect();
        let read = stream::iter(read).buffered(CONCURRENT_READS);
        read.try_concat().await
    }

    async fn read_part(&self, plan: &str, pieces: &[Piece]) -> Result<Vec<Bytes>> {
        let path = self.part(plan, pieces[0].part);
        let ranges = pieces.iter().filter(|piece| !piece.is_empty());
        let ranges: Vec<Range<u64>> = ranges.map(|piece| piece.bytes.clone()).collect();
        let mut found = Vec::new().into_iter();
        if !ranges.is_empty() {
            let read = self.store.get_ranges(&path, &ranges).await;
            found = read.map_err(|e| self.failed(&path, "read", e))?.into_iter();
        }
        let bytes = pieces.iter().map(|piece| {
            let bytes = if piece.is_empty() {
                Bytes::new()
            } else {
                found.next().unwrap_or_default()
            };
            if blake3::hash(&bytes) == piece.checksum {
                return Ok(bytes);
            }
            let what = format!("{} is damaged; run again with `--force`", self.show(&path));
            Err(Error::new(Kind::Store, what))
        });
        bytes.collect()
    }

    /// Removes the part of a piece that is not needed any more.
    pub(crate) async fn remove_part(&self, plan: &str, piece: &Piece) -> Result<()> {
        let part = self.part(plan, piece.part);
        self.delete(&part, "cleaned").await
    }

    fn part(&self, plan: &str, part: [u8; 32]) -> Path {
        let name = blake3::Hash::from(part).to_hex();
        self.at(&[WORK, plan, PARTS, &name])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use std::sync::Arc;

    #[tokio::test]
    async fn damaged_pieces_are_errors() {
        let store = Arc::new(InMemory::new());
        let output = Output::in_store(store.clone(), "out".into());
        let pieces = vec![b"one".to_vec(), Vec::new(), b"three".to_vec()];
        let named = output.put_part("plan", pieces.clone()).await.unwrap();
        assert_eq!(named, output.put_part("plan", pieces).await.unwrap());
        assert!(named[1].is_empty());
        for (piece, bytes) in named.iter().zip(["one", "", "three"]) {
            assert_eq!(output.piece("plan", piece).await.unwrap(), bytes);
        }
        let other = output.put_part("plan", vec![b"four".to_vec()]).await;
        let other = other.unwrap();
        let mixed = [&named[2], &named[0], &other[0], &named[1], &named[0]];
        let mixed = mixed.map(Clone::clone);
        let read = output.pieces("plan", &mixed).await.unwrap();
        assert_eq!(read, ["three", "one", "four", "", "one"]);
        let none = output.put_part("plan", vec![Vec::new()]).await.unwrap();
        assert_eq!(output.piece("plan", &none[0]).await.unwrap(), "");

        let path = output.part("plan", named[0].part);
        store.put(&path, "onethrEE".into()).await.unwrap();
        assert_eq!(output.piece("plan", &named[0]).await.unwrap(), "one");
        let damaged = output.piece("plan", &named[2]).await.unwrap_err();
        assert_eq!(damaged.kind(), Kind::Store);
        assert!(damaged.to_string().contains("is damaged"), "{damaged}");
        let other_plan = output.piece("other", &named[0]).await.unwrap_err();
        assert_eq!(other_plan.kind(), Kind::Store);
        // Parts go with the checkpoints of the plan.
        output.remove_checkpoints("plan").await;
        output.piece("plan", &named[0]).await.unwrap_err();
    }
}
