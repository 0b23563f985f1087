//! Collects the errors of a file.

use crate::error::{Error, Result};
use crate::plan::pipeline::document::Document;

/// Collects errors.
pub(super) struct Errors<'a>(pub(super) &'a mut Vec<Error>);

impl Errors<'_> {
    pub(super) fn add(&mut self, error: Error) {
        self.0.push(error);
    }

    /// The value; an error is added to the list.
    pub(super) fn note<T>(&mut self, checked: Result<T>) -> Option<T> {
        checked.map_err(|e| self.0.push(e)).ok()
    }
}

pub(super) fn not_blank(text: &str, path: &[&str], document: &Document<'_>) -> Result<()> {
    if text.trim().is_empty() {
        return document.wrong(path, "must not be empty");
    }
    Ok(())
}

/// The error of a section without a key, which is in backticks.
pub(super) fn lacks(section: &str, key: &str, document: &Document<'_>) -> Error {
    let message = format!("the table `{section}` needs the key {key}");
    document.error_at(&[section], &message)
}
