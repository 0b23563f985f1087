//! Wraps every remote store: hides secrets in errors, checks the length of answers, overwrites on
//! copy only on request, and enforces read-only stores.
//!
//! The guard has no retries and no time limits. The clients have both, because only they know which
//! requests may be sent twice.

use crate::store::location;
use crate::store::secrets::hide;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt, TryStreamExt};
use futures::{FutureExt, TryFutureExt, stream};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};
use std::borrow::Cow;
use std::sync::Arc;

/// The same error without secrets. Servers may echo them, as S3 does with an expired session token.
pub(crate) fn redacted(e: Error) -> Error {
    use Error::*;
    let first: &dyn std::error::Error = &e;
    let causes = std::iter::successors(Some(first), |e| e.source());
    let causes: Vec<String> = causes.map(ToString::to_string).collect();
    if causes
        .iter()
        .all(|text| matches!(hide(text), Cow::Borrowed(_)))
    {
        return e;
    }
    // The message of an error includes that of its cause.
    let text = &causes[if causes.len() > 1 { 1 } else { 0 }];
    let source = hide(text).into_owned().into();
    match e {
        NotFound { path, .. } => NotFound { path, source },
        AlreadyExists { path, .. } => AlreadyExists { path, source },
        Precondition { path, .. } => Precondition { path, source },
        NotModified { path, .. } => NotModified { path, source },
        PermissionDenied { path, .. } => PermissionDenied { path, source },
        Unauthenticated { path, .. } => Unauthenticated { path, source },
        Generic { store, .. } => Generic { store, source },
        _ => Generic {
            store: "remote",
            source,
        },
    }
}

/// A remote store whose errors show no secrets.
pub(crate) struct Guard {
    inner: Arc<dyn ObjectStore>,
    scheme: Box<str>,
}

impl Guard {
    /// `scheme` is that of the store's URLs.
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, scheme: &str) -> Guard {
        let scheme = scheme.into();
        Guard { inner, scheme }
    }

    fn may_write(&self) -> Result<()> {
        if !location::is_http(&self.scheme) {
            return Ok(());
        }
        let source = "http:// and https:// locations are read-only".into();
        Err(Error::NotSupported { source })
    }
}

fn redacted_stream<T: Send + 'static>(
    stream: BoxStream<'static, Result<T>>,
) -> BoxStream<'static, Result<T>> {
    stream.map(|item| item.map_err(redacted)).boxed()
}

/// The name of the store; its configuration may hold secrets.
impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.inner, f)
    }
}

impl std::fmt::Display for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.inner, f)
    }
}

#[async_trait]
impl ObjectStore for Guard {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.may_write()?;
        self.inner
            .put_opts(location, payload, options)
            .await
            .map_err(redacted)
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.may_write()?;
        let inner = self
            .inner
            .put_multipart_opts(location, options)
            .await
            .map_err(redacted)?;
        Ok(Box::new(GuardedUpload { inner }))
    }

    /// Ranged reads use this call as well.
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let wanted = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.clone()),
            _ => None,
        };
        let (is_head, got) = (options.head, self.inner.get_opts(location, options).await);
        let mut got = got.map_err(redacted)?;
        if wanted.is_some_and(|wanted| got.range != wanted) {
            return Err(wrong_length(location));
        }
        let len = got.range.end - got.range.start;
        got.payload = match got.payload {
            GetResultPayload::Stream(bytes) if !is_head => {
                let bytes = with_length_check(location.clone(), bytes, len);
                GetResultPayload::Stream(redacted_stream(bytes))
            }
            other => other,
        };
        Ok(got)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        match self.may_write() {
            Ok(()) => redacted_stream(self.inner.delete_stream(locations)),
            Err(e) => stream::once(async { Err(e) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        redacted_stream(self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        redacted_stream(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner
            .list_with_delimiter(prefix)
            .await
            .map_err(redacted)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, mut options: CopyOptions) -> Result<()> {
        self.may_write()?;
        if &*self.scheme == "gs" {
            // This client has the two modes swapped, as a test of copies shows.
            options.mode = match options.mode {
                CopyMode::Overwrite => CopyMode::Create,
                CopyMode::Create => CopyMode::Overwrite,
            };
        }
        self.inner
            .copy_opts(from, to, options)
            .await
            .map_err(redacted)
    }
}

/// The same bytes, with an error unless there are exactly `len`: a truncated answer is never
/// mistaken for a complete one.
fn with_length_check(
    location: Path,
    bytes: BoxStream<'static, Result<Bytes>>,
    len: u64,
) -> BoxStream<'static, Result<Bytes>> {
    let counted = stream::try_unfold((bytes, len), move |(mut bytes, left)| {
        let location = location.clone();
        async move {
            match bytes.try_next().await? {
                Some(some) => match left.checked_sub(some.len() as u64) {
                    Some(left) => Ok(Some((some, (bytes, left)))),
                    None => Err(wrong_length(&location)),
                },
                None if left > 0 => Err(wrong_length(&location)),
                None => Ok(None),
            }
        }
    });
    counted.boxed()
}

fn wrong_length(location: &Path) -> Error {
    Error::Generic {
        store: "remote",
        source: format!("the answer for {location} does not have the requested length").into(),
    }
}

#[derive(Debug)]
struct GuardedUpload {
    inner: Box<dyn MultipartUpload>,
}

#[async_trait]
impl MultipartUpload for GuardedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.inner.put_part(data).map_err(redacted).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.inner.complete().await.map_err(redacted)
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await.map_err(redacted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::store::secrets;

    #[test]
    fn echoed_secrets_are_hidden_and_error_kinds_stay() {
        secrets::learn("aws_session_token", "token-of-a-session");
        secrets::learn("aws_session_token", "short");
        let precondition = |body: &str| Error::Precondition {
            path: "current.json".into(),
            source: body.into(),
        };
        let hidden = redacted(precondition("<Token-0>token-of-a-session</Token-0>, short"));
        assert!(matches!(&hidden, Error::Precondition { path, .. } if path == "current.json"));
        let text = hidden.to_string();
        assert!(text.contains("<Token-0>***</Token-0>, short"), "{text}");
        // Only the cause of a cause shows the secret, so it is dropped.
        let deep = Error::Generic {
            store: "S3",
            source: Box::new(crate::error::Error::with_source(
                Kind::Store,
                "the request failed",
                "token-of-a-session",
            )),
        };
        let text = crate::error::Error::with_source(Kind::Store, "x", redacted(deep));
        assert_eq!(text.full(), "x (Generic S3 error: the request failed)");
        let open = redacted(precondition("the ETag does not match"));
        assert!(open.to_string().ends_with("the ETag does not match"));
    }
}
