//! Errors of DataFusion and of object stores → errors of gyre.

use crate::error::{Error, Kind, is_denied, is_full};
use crate::read::lake::pages::TooLarge;
use crate::read::sql::messages;
use datafusion::common::DataFusionError;
use object_store::Error as StoreError;

/// The start of every error that occurs while rows are read.
pub(crate) const READING: &str = "reading the input failed";

/// An engine error as an error of gyre: `what` failed because of `e`. The kind follows from the
/// root cause.
pub(crate) fn failed(what: &str, e: DataFusionError) -> Error {
    let (text, root) = (messages::brief(&e), e.find_root());
    if let DataFusionError::ResourcesExhausted(_) = root {
        let do_what = "give SQL more memory with `--memory`, or use fewer `--threads`";
        return Error::new(Kind::Resources, format!("{what}: {text}; {do_what}"));
    }
    if let Some(page) = cause_of::<TooLarge>(&e) {
        return Error::new(Kind::Spec, page.0.clone());
    }
    if is_full(&e) {
        let folder = std::env::temp_dir();
        let do_what = format!(
            "{} has no room for rows that SQL sorts on disk; set TMPDIR to a larger folder, or give SQL more memory with `--memory`",
            folder.display()
        );
        return Error::new(Kind::Resources, format!("{what}: {text}; {do_what}"));
    }
    let kind = match store_error(&e) {
        Some(StoreError::Precondition { path, source }) => {
            return Error::new(
                Kind::Conflict,
                format!("{what}: {path} {source}; run again"),
            );
        }
        // A retry would not help.
        Some(
            StoreError::NotFound { .. }
            | StoreError::InvalidPath { .. }
            | StoreError::PermissionDenied { .. }
            | StoreError::Unauthenticated { .. },
        ) => Kind::Input,
        // Listing a bucket that does not exist fails with a generic error; only the code in the
        // answer identifies it.
        Some(e @ StoreError::Generic { .. }) if is_no_bucket(e) => Kind::Input,
        // Listing a local folder without permission fails with a generic error too.
        Some(e) if is_denied(e) => Kind::Input,
        Some(_) => Kind::Store,
        None => Kind::Input,
    };
    Error::new(kind, format!("{what}: {text}"))
}

/// Whether a store says that the bucket or container does not exist.
pub(crate) fn is_no_bucket(e: &StoreError) -> bool {
    let text = e.to_string();
    ["NoSuchBucket", "ContainerNotFound"]
        .iter()
        .any(|code| text.contains(code))
}

/// The cause of a type behind an engine error.
fn cause_of<T: std::error::Error + 'static>(e: &DataFusionError) -> Option<&T> {
    causes(e).find_map(|e| e.downcast_ref())
}

/// An error and its causes, the outermost first.
fn causes(e: &DataFusionError) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first: &(dyn std::error::Error + 'static) = e;
    std::iter::successors(Some(first), |e| e.source())
}

/// The store error behind an engine error, through every layer around it.
pub(crate) fn store_error(e: &DataFusionError) -> Option<&StoreError> {
    causes(e).find_map(|e| {
        let boxed = e.downcast_ref::<Box<StoreError>>().map(Box::as_ref);
        e.downcast_ref().or(boxed)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// A retry helps if a disk failed, but not if a file may not be read.
    #[test]
    fn a_file_without_permission_is_an_input_error() {
        for (cause, expected) in [
            (ErrorKind::PermissionDenied, Kind::Input),
            (ErrorKind::TimedOut, Kind::Store),
        ] {
            let e = StoreError::Generic {
                store: "LocalFileSystem",
                source: Box::new(std::io::Error::from(cause)),
            };
            let e = failed("reading", DataFusionError::ObjectStore(Box::new(e)));
            assert_eq!(e.kind(), expected, "{cause}");
        }
    }
}
