//! Values as bytes, for other machines and for later runs.

use crate::error::{Error, Kind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Serializes with postcard.
///
/// # Errors
/// If the value cannot be serialized, which is a bug.
pub(crate) fn pack(value: &impl Serialize) -> Result<Vec<u8>> {
    let bytes = postcard::to_stdvec(value);
    bytes.map_err(|e| Error::with_source(Kind::Bug, "a part of a task cannot be written", e))
}

/// Deserializes what [`pack`] has written.
///
/// # Errors
/// If the bytes are of another type, which is a bug.
pub(crate) fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let value = postcard::from_bytes(bytes);
    value.map_err(|e| Error::with_source(Kind::Bug, "a part of a task cannot be understood", e))
}

/// Serializes what was made for one part of a task, or the error of that part.
///
/// # Errors
/// An error that another attempt or another machine may not have: it is that of the whole task.
pub(crate) fn pack_result<T: Serialize>(result: Result<T>) -> Result<Vec<u8>> {
    match result {
        Err(e) if e.kind().is_retryable() => Err(e),
        result => pack(&result.map_err(|e| (e.kind(), e.full()))),
    }
}

/// Deserializes what [`pack_result`] has written.
///
/// # Errors
/// If the bytes are of another type, which is a bug.
pub(crate) fn unpack_result<T: DeserializeOwned>(bytes: &[u8]) -> Result<Result<T>> {
    let result: Result<T, (Kind, String)> = unpack(bytes)?;
    Ok(result.map_err(|(kind, message)| Error::restored(kind, message)))
}
