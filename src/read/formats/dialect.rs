//! What the pipeline says of the files of a table: how text files are written, and what the keys
//! `null` and `types` make of columns.

use crate::read::formats::column_type::ColumnType;
use crate::read::formats::fill_values::FillValues;
use crate::read::formats::format::Compression;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How the text files of a table are written, as far as the pipeline says so.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Dialect {
    /// The character between two values.
    pub delimiter: Option<char>,
    /// Whether the first line has the names of the columns.
    pub header: Option<bool>,
    /// The character around values that contain delimiters or line ends.
    pub quote: Option<char>,
    /// The decimal point of numbers in CSV.
    pub(crate) decimal: Option<char>,
    /// Values that mean null.
    pub(crate) null: FillValues,
    /// The types of columns.
    pub(crate) types: BTreeMap<String, ColumnType>,
    /// How the files are compressed.
    pub compression: Option<Compression>,
}

impl Dialect {
    /// The compression of a file, by its name unless the pipeline sets one.
    pub(crate) fn compression(&self, name: &str) -> Compression {
        self.compression
            .unwrap_or_else(|| Compression::of_name(name).1)
    }

    /// Whether values become null, or get types that the pipeline sets.
    pub(crate) fn declares(&self) -> bool {
        !self.null.is_empty() || !self.types.is_empty()
    }

    /// The decimal point, unless it is that of other programs.
    pub(crate) fn decimal_point(&self) -> Option<char> {
        self.decimal.filter(|decimal| *decimal != '.')
    }
}
