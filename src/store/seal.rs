//! JSON with a checksum of itself.

use crate::error::{Error, Kind, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The key of the checksum in a JSON object.
pub(crate) const CHECKSUM: &str = "checksum";

/// An object as JSON with a checksum of its content, because removals and counts depend on it.
pub(crate) fn sealed(value: &impl Serialize) -> Result<Vec<u8>> {
    let bug = |e| Error::with_source(Kind::Bug, "a record cannot be written as JSON", e);
    let mut value = serde_json::to_value(value).map_err(bug)?;
    let checksum = checksum(&value);
    if let Some(keys) = value.as_object_mut() {
        keys.insert(CHECKSUM.into(), checksum.into());
    }
    json(&value)
}

/// Reads what [`sealed`] wrote. The checksum has no key: it shows damage, and not who wrote the
/// object.
///
/// # Errors
/// If the bytes are no such object, or its checksum is missing or does not match.
pub(crate) fn unsealed<T: DeserializeOwned>(bytes: &[u8]) -> serde_json::Result<T> {
    use serde::de::Error;
    let mut value: serde_json::Value = serde_json::from_slice(bytes)?;
    let found = value.as_object_mut().and_then(|keys| keys.remove(CHECKSUM));
    let damage = match found {
        None => "it has no `checksum`",
        Some(found) if found != checksum(&value) => {
            "it is damaged: `checksum` does not match the other keys"
        }
        Some(_) => return serde_json::from_value(value),
    };
    Err(serde_json::Error::custom(damage))
}

pub(crate) fn checksum(value: &serde_json::Value) -> String {
    blake3::hash(value.to_string().as_bytes())
        .to_hex()
        .to_string()
}

pub(crate) fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec_pretty(value)
        .map_err(|e| Error::with_source(Kind::Bug, "a record cannot be written as JSON", e))?;
    bytes.push(b'\n');
    Ok(bytes)
}
