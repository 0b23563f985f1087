//! Errors of DataFusion and of stores as errors of gyre.

use crate::error::{Error, Kind, is_denied, is_full};
use datafusion::common::DataFusionError;
use object_store::Error as StoreError;

/// How errors begin that come while rows are read.
pub(crate) const READING: &str = "reading the input failed";

pub(crate) fn failed(what: &str, e: DataFusionError) -> Error {
    let (text, root) = (crate::read::sql::messages::brief(&e), e.find_root());
    if let DataFusionError::ResourcesExhausted(_) = root {
        let do_what = "give SQL more memory with `--memory`, or use fewer `--threads`";
        return Error::new(Kind::Resources, format!("{what}: {text}; {do_what}"));
    }
    if is_full(&e) {
        let folder = std::env::temp_dir();
        let do_what = format!(
            "{} is full, so SQL cannot sort rows on disk; set TMPDIR to a larger folder, or give SQL more memory with `--memory`",
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
        // Asking again later would not help.
        Some(
            StoreError::NotFound { .. }
            | StoreError::InvalidPath { .. }
            | StoreError::PermissionDenied { .. }
            | StoreError::Unauthenticated { .. },
        ) => Kind::Input,
        // A list of what is in no bucket fails without a kind of its own: only the code in the answer tells.
        Some(e @ StoreError::Generic { .. }) if is_no_bucket(e) => Kind::Input,
        // Of a local file it fails without a kind too.
        Some(e) if is_denied(e) => Kind::Input,
        Some(_) => Kind::Store,
        None => Kind::Input,
    };
    Error::new(kind, format!("{what}: {text}"))
}

pub(crate) fn is_no_bucket(e: &StoreError) -> bool {
    let text = e.to_string();
    ["NoSuchBucket", "ContainerNotFound"]
        .iter()
        .any(|code| text.contains(code))
}

/// The error of a store that an error of the engine comes from, through whatever read it.
pub(crate) fn store_error(e: &DataFusionError) -> Option<&StoreError> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(e);
    while let Some(e) = cause {
        let boxed = e.downcast_ref::<Box<StoreError>>().map(Box::as_ref);
        if let Some(found) = e.downcast_ref().or(boxed) {
            return Some(found);
        }
        cause = e.source();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    /// Asking again later helps where a disk failed, and not where a file may not be read.
    #[test]
    fn a_file_that_may_not_be_read_is_wrong_input() {
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
