//! An object store with failing calls.

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use futures::{FutureExt, stream};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The store does not execute the call.
    Fails,
    /// The store refuses the call, now and later.
    IsForbidden,
    /// The store executes the call, and its answer is lost.
    IsLost,
    /// The answer contains half of the bytes.
    CutShort,
    /// One bit of the answer is flipped.
    Flipped,
}

/// A store in memory with failing calls.
#[derive(Debug, Clone)]
pub struct FaultyStore {
    pub inner: InMemory,
    pub calls: Arc<AtomicUsize>,
    /// The numbers of the failing calls.
    pub fails: Range<usize>,
    pub fault: Fault,
    pub conditions: Conditions,
    /// The calls at which other tasks run first.
    pub pauses: Pauses,
    /// How far the clock of the store is behind the local one.
    pub behind: Duration,
}

/// How the store treats the conditions of a put.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Conditions {
    Heeded,
    Ignored,
    Unsupported,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pauses {
    Never,
    Always,
    /// At calls that affect other runs: those for the pointer, lists and removals. All other
    /// objects belong to one run.
    Shared,
}

impl std::fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyStore({})", self.inner)
    }
}

fn network_error() -> object_store::Error {
    object_store::Error::Generic {
        store: "faulty",
        source: "the network is down".into(),
    }
}

impl FaultyStore {
    pub fn around(inner: InMemory) -> FaultyStore {
        FaultyStore {
            inner,
            calls: Arc::default(),
            fails: 0..0,
            fault: Fault::Fails,
            conditions: Conditions::Heeded,
            pauses: Pauses::Never,
            behind: Duration::ZERO,
        }
    }

    /// Lets other tasks run first.
    async fn pause(&self) {
        let paused = AtomicBool::new(false);
        std::future::poll_fn(|_| {
            if paused.swap(true, Ordering::SeqCst) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
        .await;
    }

    /// Executes a call, or fails. `path` is the object of the call, and none for lists and
    /// removals.
    async fn call<T>(
        &self,
        path: Option<&Path>,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let is_shared = path.is_none_or(|path| path.filename() == Some("current.json"));
        if self.pauses == Pauses::Always || self.pauses == Pauses::Shared && is_shared {
            self.pause().await;
        }
        let done = self.call_with_fault(path, call).await;
        if self.pauses == Pauses::Always {
            self.pause().await;
        }
        done
    }

    async fn call_with_fault<T>(
        &self,
        path: Option<&Path>,
        call: impl Future<Output = object_store::Result<T>>,
    ) -> object_store::Result<T> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        match self.fails.contains(&number).then_some(self.fault) {
            Some(Fault::Fails) => Err(network_error()),
            Some(Fault::IsForbidden) => Err(object_store::Error::PermissionDenied {
                path: path.map_or("many", Path::as_ref).to_string(),
                source: "the key has been revoked".into(),
            }),
            Some(Fault::IsLost) => call.await.and(Err(network_error())),
            Some(Fault::CutShort | Fault::Flipped) | None => call.await,
        }
    }

    fn with_store_time(&self, mut meta: ObjectMeta) -> ObjectMeta {
        meta.last_modified -= self.behind;
        meta
    }

    /// Damages the bytes of an answer.
    async fn damage(&self, got: GetResult) -> object_store::Result<GetResult> {
        let (meta, range) = (got.meta.clone(), got.range.clone());
        let attributes = got.attributes.clone();
        let mut bytes = got.bytes().await?.to_vec();
        let half = bytes.len() / 2;
        match self.fault {
            Fault::CutShort => bytes.truncate(half),
            _ => bytes.iter_mut().skip(half).take(1).for_each(|b| *b ^= 1),
        }
        let bytes = stream::iter([Ok(Bytes::from(bytes))]).boxed();
        Ok(GetResult {
            payload: GetResultPayload::Stream(bytes),
            meta,
            range,
            attributes,
        })
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> object_store::Result<PutResult> {
        let is_conditional = options.mode != PutMode::Overwrite;
        match self.conditions {
            Conditions::Unsupported if is_conditional => {
                return Err(object_store::Error::NotImplemented {
                    operation: "a put on conditions".into(),
                    implementer: self.to_string(),
                });
            }
            Conditions::Ignored => options.mode = PutMode::Overwrite,
            _ => (),
        }
        let put = self.inner.put_opts(location, payload, options);
        self.call(Some(location), put).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        let put = self.inner.put_multipart_opts(location, options);
        self.call(Some(location), put).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        let is_head = options.head;
        let get = self.inner.get_opts(location, options);
        let number = self.calls.load(Ordering::SeqCst);
        let mut got = self.call(Some(location), get).await?;
        got.meta = self.with_store_time(got.meta);
        let is_damage = match self.fault {
            Fault::CutShort => true,
            // Flipped bits in rows of the input cannot be detected.
            Fault::Flipped => location.as_ref().starts_with("out/"),
            _ => false,
        };
        if is_damage && !is_head && self.fails.contains(&number) {
            self.damage(got).await
        } else {
            Ok(got)
        }
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        let store = self.clone();
        let delete = async move {
            let delete = async { Ok(store.inner.delete_stream(locations).collect().await) };
            match store.call(None, delete).await {
                Ok(deleted) => deleted,
                Err(e) => vec![Err(e)],
            }
        };
        delete.into_stream().flat_map(stream::iter).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        let (store, prefix) = (self.clone(), prefix.cloned());
        let list = async move {
            let list = async { Ok(store.inner.list(prefix.as_ref()).collect().await) };
            match store.call(None, list).await {
                Ok(listed) => listed,
                Err(e) => vec![Err(e)],
            }
        };
        let dated = self.clone();
        let list = list.into_stream().flat_map(stream::iter);
        let list = list.map(move |meta| meta.map(|meta| dated.with_store_time(meta)));
        list.boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        let list = self.inner.list_with_delimiter(prefix);
        self.call(None, list).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        let copy = self.inner.copy_opts(from, to, options);
        self.call(Some(to), copy).await
    }
}
