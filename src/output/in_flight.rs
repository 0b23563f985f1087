//! Completes writes even after their caller has gone away.
//!
//! Dropping the future of a write does not end the write: a thread may still put the file on disk,
//! or a server the object in place, and so recreate something that was removed meanwhile. Each
//! write is therefore a task of its own, and a removal first waits until no write is in flight. A
//! thread that still computes when its run is stopped cannot write to the version of the run.

use crate::store::forward::forward;
use async_trait::async_trait;
use futures::FutureExt;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, MultipartUpload, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// The writes of a run. Each of them holds a shared lock on the folder that is closed to them, if
/// the run was stopped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Writes(Arc<RwLock<Option<Path>>>);

impl Writes {
    /// Wraps a store so that its writes belong to these.
    pub(crate) fn of(&self, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        let writes = self.clone();
        Arc::new(Tracked { inner, writes })
    }

    /// Waits until no write is in flight. No write begins while the guard lives.
    pub(crate) async fn none(&self) -> OwnedRwLockWriteGuard<Option<Path>> {
        Arc::clone(&self.0).write_owned().await
    }

    /// Waits until no write is in flight, and refuses all writes below a folder from then on.
    pub(crate) async fn close(&self, folder: Path) {
        *self.none().await = Some(folder);
    }

    /// Begins a write to a place, which ends with the guard.
    ///
    /// # Errors
    /// If the place is closed.
    pub(crate) async fn begin(&self, place: &Path) -> Result<OwnedRwLockReadGuard<Option<Path>>> {
        let in_flight = Arc::clone(&self.0).read_owned().await;
        match &*in_flight {
            Some(folder) if place.prefix_matches(folder) => {
                let (store, source) = ("output", "the run was stopped".into());
                Err(Error::Generic { store, source })
            }
            _ => Ok(in_flight),
        }
    }

    /// Runs a write to its end, whether or not the caller waits for it.
    async fn done<T: Send + 'static>(
        &self,
        place: &Path,
        write: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let in_flight = self.begin(place).await?;
        let task = tokio::spawn(async move {
            let done = write.await;
            drop(in_flight);
            done
        });
        Ok(task.await?)
    }
}

#[derive(Debug)]
struct Tracked {
    inner: Arc<dyn ObjectStore>,
    writes: Writes,
}

impl std::fmt::Display for Tracked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Tracked {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        let (inner, to) = (Arc::clone(&self.inner), location.clone());
        let put = async move { inner.put_opts(&to, payload, options).await };
        self.writes.done(location, put).await?
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let (inner, place) = (Arc::clone(&self.inner), location.clone());
        let writes = self.writes.clone();
        // If the caller is gone, the task drops the upload, which aborts it.
        let begin = async move {
            Ok::<_, Error>(Upload {
                inner: Some(inner.put_multipart_opts(&place, options).await?),
                place,
                writes,
            })
        };
        Ok(Box::new(self.writes.done(location, begin).await??))
    }

    forward!(inner: get_opts, get_ranges, delete_stream, list, list_with_offset, list_with_delimiter);

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (inner, from, place) = (Arc::clone(&self.inner), from.clone(), to.clone());
        let copy = async move { inner.copy_opts(&from, &place, options).await };
        self.writes.done(to, copy).await?
    }
}

/// A file that is uploaded in parts.
#[derive(Debug)]
struct Upload {
    /// `None` once the file is complete or aborted.
    inner: Option<Box<dyn MultipartUpload>>,
    place: Path,
    writes: Writes,
}

fn over() -> Error {
    let (store, source) = ("upload", "it has ended".into());
    Error::Generic { store, source }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let Some(inner) = &mut self.inner else {
            return std::future::ready(Err(over())).boxed();
        };
        let (part, writes) = (inner.put_part(data), self.writes.clone());
        let place = self.place.clone();
        async move { writes.done(&place, part).await? }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut inner = self.inner.take().ok_or_else(over)?;
        let complete = async move {
            let done = inner.complete().await;
            (inner, done)
        };
        let (inner, done) = self.writes.done(&self.place, complete).await?;
        self.inner = done.is_err().then_some(inner);
        done
    }

    async fn abort(&mut self) -> Result<()> {
        let mut inner = self.inner.take().ok_or_else(over)?;
        let abort = async move { inner.abort().await };
        // Nothing else removes the parts of a closed folder.
        let root = Path::default();
        self.writes.done(&root, abort).await?
    }
}

impl Drop for Upload {
    /// Aborts an unfinished upload: a store would keep its parts without showing them.
    fn drop(&mut self) {
        let Some(mut inner) = self.inner.take() else {
            return;
        };
        let in_flight = Arc::clone(&self.writes.0).try_read_owned();
        if let (Ok(in_flight), Ok(runtime)) = (in_flight, Handle::try_current()) {
            runtime.spawn(async move {
                if let Err(e) = inner.abort().await {
                    tracing::debug!("parts of a file are left: {e}");
                }
                drop(in_flight);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};
    use std::time::Duration;

    #[tokio::test]
    async fn dropped_writes_complete_before_a_removal() {
        let (memory, writes) = (InMemory::new(), Writes::default());
        let slow = ThrottleConfig {
            wait_put_per_call: Duration::from_millis(30),
            ..ThrottleConfig::default()
        };
        let store = writes.of(Arc::new(ThrottledStore::new(memory.clone(), slow)));
        let (first, second) = (Path::from("first"), Path::from("second"));
        let begun = store.put(&first, "1".into()).now_or_never();
        assert!(begun.is_none(), "it takes a while");
        memory.head(&first).await.expect_err("and is dropped");
        let none = writes.none().await;
        memory.head(&first).await.expect("it is done");
        // While the guard lives, no write begins.
        assert!(store.put(&second, "2".into()).now_or_never().is_none());
        drop(none);
        drop(writes.none().await);
        memory.head(&second).await.expect_err("it never began");
        store.put(&second, "2".into()).await.expect("memory");

        writes.close(Path::from("versions")).await;
        let late = Path::from("versions/run/file");
        let put = store.put(&late, "3".into()).await;
        put.expect_err("it is closed");
        store.copy(&second, &late).await.expect_err("it is closed");
        let upload = store.put_multipart(&late).await;
        upload.expect_err("it is closed");
        memory.head(&late).await.expect_err("nothing was written");
        store.put(&first, "3".into()).await.expect("another folder");
    }
}
