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
        let message = format!("`{}` must not be empty", path.join("."));
        return Err(document.error_at(path, &message));
    }
    Ok(())
}

/// The error of `[sequences]` whose rows are not ordered.
pub(super) fn needs_time(document: &Document<'_>) -> Error {
    let message = "the table `sequences` needs the key `time`";
    document.error_at(&["sequences"], message)
}
