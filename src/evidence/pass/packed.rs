//! Values as bytes, for other machines and for later runs.

use crate::error::{Error, Kind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Serializes with postcard.
///
/// # Errors
/// If the value cannot be serialized, which is a bug.
pub fn pack(value: &impl Serialize) -> Result<Vec<u8>> {
    let bytes = postcard::to_stdvec(value);
    bytes.map_err(|e| Error::with_source(Kind::Bug, "a part of a task cannot be written", e))
}

/// Deserializes what [`pack`] has written.
///
/// # Errors
/// If the bytes are of another type, which is a bug.
pub fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let value = postcard::from_bytes(bytes);
    value.map_err(|e| Error::with_source(Kind::Bug, "a part of a task cannot be understood", e))
}
