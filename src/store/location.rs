//! URLs of stores and their schemes.

/// The location of a file as it is listed.
pub fn location(store: &str, path: &object_store::path::Path) -> String {
    format!("{}/{path}", store.trim_end_matches('/'))
}

/// What a URL may begin with.
pub const SCHEMES: [&str; 7] = ["file", "s3", "gs", "az", "http", "https", "memory"];

pub(crate) fn is_http(scheme: &str) -> bool {
    matches!(scheme, "http" | "https")
}
