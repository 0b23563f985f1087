//! Results of finished work, which a later run takes in place of doing the work again.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// Stores finished pieces of work. Names are paths: `a/b` is a piece of `a`.
pub(crate) trait Checkpoints: Sync {
    /// Whether an earlier run has stored this piece.
    fn has(&self, name: &str) -> bool;

    /// The piece as an earlier run has stored it.
    fn find(&self, name: &str) -> Option<Bytes>;

    /// Offers a finished piece that took `took`; the store decides whether to keep it. The pieces
    /// that it was made of are no longer needed.
    fn keep(&self, name: &str, took: Duration, piece: Vec<u8>);
}

/// Stores nothing.
pub(crate) struct NoCheckpoints;

impl Checkpoints for NoCheckpoints {
    fn has(&self, _: &str) -> bool {
        false
    }

    fn find(&self, _: &str) -> Option<Bytes> {
        None
    }

    fn keep(&self, _: &str, _: Duration, _: Vec<u8>) {}
}

/// Finds a piece. A piece that cannot be deserialized counts as missing.
pub(crate) fn find<T: DeserializeOwned>(checkpoints: &dyn Checkpoints, name: &str) -> Option<T> {
    let bytes = checkpoints.find(name)?;
    let piece = postcard::from_bytes(&bytes);
    let ignored = |e: &_| tracing::info!(name, "a checkpoint cannot be read: {e}");
    piece.inspect_err(ignored).ok()
}

/// Offers a piece to the store, if it can be serialized.
pub(crate) fn keep<T: Serialize>(
    checkpoints: &dyn Checkpoints,
    name: &str,
    took: Duration,
    piece: &T,
) {
    match postcard::to_stdvec(piece) {
        Ok(bytes) => checkpoints.keep(name, took, bytes),
        Err(e) => tracing::warn!(name, "a checkpoint cannot be written: {e}"),
    }
}
