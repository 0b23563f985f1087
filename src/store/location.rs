//! URLs of stores and their schemes.

/// The location of a listed file: the URL of its store and its path.
pub(crate) fn location(store: &str, path: &object_store::path::Path) -> String {
    format!("{}/{path}", store.trim_end_matches('/'))
}

/// Schemes that a URL may have.
pub(crate) const SCHEMES: [&str; 7] = ["file", "s3", "gs", "az", "http", "https", "memory"];

pub(crate) fn is_http(scheme: &str) -> bool {
    matches!(scheme, "http" | "https")
}
