//! The executor of a task, and the pieces that it reads and writes.

use crate::error::{Error, Kind, Result};
use crate::evidence::pass::packed::unpack;
use crate::output::parts::Piece;
use crate::output::place::Output;
use crate::read::lake::Resources;
use crate::store::Stores;
use bytes::Bytes;
use serde::de::DeserializeOwned;
use std::sync::Arc;

pub(crate) struct TaskExecutor<P> {
    pub(crate) plan: Arc<P>,
    /// The hash of the plan.
    pub(crate) hash: String,
    pub(crate) output: Output,
    pub(crate) stores: Stores,
    pub(crate) resources: Resources,
}

impl<P> TaskExecutor<P> {
    /// Reads pieces, in their order.
    pub(crate) async fn pieces(&self, pieces: &[Piece]) -> Result<Vec<Bytes>> {
        self.output.pieces(&self.hash, pieces).await
    }

    /// The value in a piece.
    pub(crate) async fn unpacked<T: DeserializeOwned>(&self, piece: &Piece) -> Result<T> {
        unpack(&self.output.piece(&self.hash, piece).await?)
    }

    /// Stores pieces.
    pub(crate) async fn put(&self, pieces: Vec<Vec<u8>>) -> Result<Vec<Piece>> {
        self.output.put_part(&self.hash, pieces).await
    }
}

/// Runs a long computation on a thread for blocking work.
///
/// # Errors
/// That of the computation, or [`Kind::Bug`] if it panics.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    blocking_as("a computation", work).await
}

/// As [`blocking`], with a name of the work for the message of a panic.
pub(crate) async fn blocking_as<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::with_source(Kind::Bug, format!("{name} panicked"), e))?
}
