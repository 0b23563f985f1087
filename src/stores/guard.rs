//! What stands before every remote store: errors that show no secrets, answers that are as long as they should be, copies over what is
//! there only where that is meant, and stores that are only read.
//!
//! Here is no retry and no time limit, because the clients have both: they alone know which requests may be sent twice.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use futures::{FutureExt, TryFutureExt};
use object_store::path::Path;
use object_store::{
    CopyMode, CopyOptions, Error, GetOptions, GetRange, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};
use std::sync::Arc;

/// Values that no message may show.
#[derive(Clone)]
pub struct Veil(Arc<Vec<String>>);

impl Veil {
    /// Nothing of less than eight bytes is a secret, and hiding it would hide words.
    pub fn new(mut secrets: Vec<String>) -> Veil {
        secrets.retain(|secret| secret.len() >= 8);
        Veil(Arc::new(secrets))
    }

    /// The same error without the values. Servers may send them back, as S3 does a session token that has expired.
    pub fn over(&self, e: Error) -> Error {
        use Error::*;
        let mut causes = vec![e.to_string()];
        let mut cause = std::error::Error::source(&e);
        while let Some(e) = cause {
            causes.push(e.to_string());
            cause = e.source();
        }
        let shows = |secret: &&String| causes.iter().any(|text| text.contains(*secret));
        let shown: Vec<&String> = self.0.iter().filter(shows).collect();
        if shown.is_empty() {
            return e;
        }
        // The message of an error has that of its cause in it.
        let mut text = causes.swap_remove(if causes.len() > 1 { 1 } else { 0 });
        for secret in shown {
            text = text.replace(secret, "***");
        }
        let source = text.into();
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
}

/// A remote store behind a veil.
pub struct Guard {
    inner: Arc<dyn ObjectStore>,
    veil: Veil,
    scheme: Box<str>,
}

impl Guard {
    /// `scheme` is that of its URLs.
    pub fn new(inner: Arc<dyn ObjectStore>, veil: Veil, scheme: &str) -> Guard {
        let scheme = scheme.into();
        Guard {
            inner,
            veil,
            scheme,
        }
    }

    fn may_write(&self) -> Result<()> {
        if !super::is_http(&self.scheme) {
            return Ok(());
        }
        let source = "http:// and https:// locations can be read and not written".into();
        Err(Error::NotSupported { source })
    }

    fn veiled<T: Send + 'static>(
        &self,
        stream: BoxStream<'static, Result<T>>,
    ) -> BoxStream<'static, Result<T>> {
        let veil = self.veil.clone();
        stream
            .map(move |item| item.map_err(|e| veil.over(e)))
            .boxed()
    }
}

/// The name of the store: how it is configured is nobody's business.
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
        let put = self.inner.put_opts(location, payload, options);
        put.await.map_err(|e| self.veil.over(e))
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.may_write()?;
        let upload = self.inner.put_multipart_opts(location, options).await;
        let inner = upload.map_err(|e| self.veil.over(e))?;
        let veil = self.veil.clone();
        Ok(Box::new(GuardedUpload { inner, veil }))
    }

    /// Ranges come by this as well.
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let wanted = match &options.range {
            Some(GetRange::Bounded(range)) => Some(range.clone()),
            _ => None,
        };
        let (is_head, got) = (options.head, self.inner.get_opts(location, options).await);
        let mut got = got.map_err(|e| self.veil.over(e))?;
        if wanted.is_some_and(|wanted| got.range != wanted) {
            return Err(cut_short(location));
        }
        let len = got.range.end - got.range.start;
        got.payload = match got.payload {
            GetResultPayload::Stream(bytes) if !is_head => {
                let bytes = whole(location.clone(), bytes, len);
                GetResultPayload::Stream(self.veiled(bytes))
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
            Ok(()) => self.veiled(self.inner.delete_stream(locations)),
            Err(e) => stream::once(async { Err(e) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.veiled(self.inner.list(prefix))
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.veiled(self.inner.list_with_offset(prefix, offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let listed = self.inner.list_with_delimiter(prefix).await;
        listed.map_err(|e| self.veil.over(e))
    }

    async fn copy_opts(&self, from: &Path, to: &Path, mut options: CopyOptions) -> Result<()> {
        self.may_write()?;
        if &*self.scheme == "gs" {
            // This client takes each of the two for the other, as a test of copies tells.
            options.mode = match options.mode {
                CopyMode::Overwrite => CopyMode::Create,
                CopyMode::Create => CopyMode::Overwrite,
            };
        }
        let copied = self.inner.copy_opts(from, to, options).await;
        copied.map_err(|e| self.veil.over(e))
    }
}

/// The same bytes, and an error where there are not `len` of them: a part is never taken for the whole.
fn whole(
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
                    None => Err(cut_short(&location)),
                },
                None if left > 0 => Err(cut_short(&location)),
                None => Ok(None),
            }
        }
    });
    counted.boxed()
}

fn cut_short(location: &Path) -> Error {
    Error::Generic {
        store: "remote",
        source: format!("the answer for {location} is not as long as what was asked for").into(),
    }
}

#[derive(Debug)]
struct GuardedUpload {
    inner: Box<dyn MultipartUpload>,
    veil: Veil,
}

impl std::fmt::Debug for Veil {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Veil({})", self.0.len())
    }
}

#[async_trait]
impl MultipartUpload for GuardedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let veil = self.veil.clone();
        let part = self.inner.put_part(data);
        part.map_err(move |e| veil.over(e)).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let done = self.inner.complete().await;
        done.map_err(|e| self.veil.over(e))
    }

    async fn abort(&mut self) -> Result<()> {
        let done = self.inner.abort().await;
        done.map_err(|e| self.veil.over(e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_veil_hides_what_servers_send_back_and_keeps_what_an_error_is() {
        let veil = Veil::new(vec!["token-of-a-session".into(), "short".into()]);
        let precondition = |body: &str| Error::Precondition {
            path: "current.json".into(),
            source: body.into(),
        };
        let hidden = veil.over(precondition("<Token-0>token-of-a-session</Token-0>, short"));
        assert!(matches!(&hidden, Error::Precondition { path, .. } if path == "current.json"));
        let text = hidden.to_string();
        assert!(text.contains("<Token-0>***</Token-0>, short"), "{text}");
        // A secret that only the cause of a cause shows is cut off.
        let deep = Error::Generic {
            store: "S3",
            source: Box::new(crate::error::Error::with_source(
                crate::error::Kind::Store,
                "the request failed",
                "token-of-a-session",
            )),
        };
        let text =
            crate::error::Error::with_source(crate::error::Kind::Store, "x", veil.over(deep));
        assert_eq!(text.full(), "x (Generic S3 error: the request failed)");
        let open = veil.over(precondition("the ETag does not match"));
        assert!(open.to_string().ends_with("the ETag does not match"));
    }
}
