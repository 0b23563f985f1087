//! Size and hash of a file, and those of all files of a version.

use crate::output::layout::PART;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What was written to a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileMark {
    /// Its size.
    pub bytes: u64,
    /// Its hash, in hexadecimal digits. None in a version of an older gyre, which has no list.
    #[serde(default)]
    pub blake3: Option<String>,
}

/// The files of a version: path in the version → mark.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileMarks {
    /// By the path in the version.
    pub files: BTreeMap<String, FileMark>,
}

impl FileMark {
    /// The mark of these bytes.
    pub(crate) fn of(bytes: &[u8]) -> FileMark {
        FileMark {
            bytes: bytes.len() as u64,
            blake3: Some(blake3::hash(bytes).to_hex().to_string()),
        }
    }

    /// The mark of `bytes` bytes with a hash.
    pub(crate) fn new(bytes: u64, hasher: &blake3::Hasher) -> FileMark {
        FileMark {
            bytes,
            blake3: Some(hasher.finalize().to_hex().to_string()),
        }
    }

    /// Whether this mark is that of the file of another mark.
    pub(crate) fn is(&self, found: &FileMark) -> bool {
        self.bytes == found.bytes && (self.blake3.is_none() || self.blake3 == found.blake3)
    }
}

impl FileMarks {
    /// The mark of a table, unless the version has none of this name.
    pub(crate) fn table(&self, table: &str) -> Option<&FileMark> {
        self.files.get(&format!("{table}/{PART}"))
    }
}
