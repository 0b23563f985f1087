//! Completes writes even after their caller has gone away.
//!
//! Dropping the future of a write does not end the write: a thread may still put the file on disk,
//! or a server the object in place, and so recreate something that was removed meanwhile. Each
//! write is therefore a task of its own, and a removal first waits until no write is in flight.

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
use tokio::sync::{OwnedRwLockWriteGuard, RwLock};

/// The writes of a run. Each of them holds a shared lock.
#[derive(Debug, Clone, Default)]
pub struct Writes(Arc<RwLock<()>>);

impl Writes {
    /// Wraps a store so that its writes belong to these.
    pub fn of(&self, inner: Arc<dyn ObjectStore>) -> Arc<dyn ObjectStore> {
        let writes = self.clone();
        Arc::new(Tracked { inner, writes })
    }

    /// Waits until no write is in flight. No write begins while the guard lives.
    pub async fn none(&self) -> OwnedRwLockWriteGuard<()> {
        Arc::clone(&self.0).write_owned().await
    }

    /// Runs a write to its end, whether or not the caller waits for it.
    async fn done<T: Send + 'static>(
        &self,
        write: impl Future<Output = T> + Send + 'static,
    ) -> Result<T> {
        let in_flight = Arc::clone(&self.0).read_owned().await;
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
        let (inner, location) = (Arc::clone(&self.inner), location.clone());
        let put = async move { inner.put_opts(&location, payload, options).await };
        self.writes.done(put).await?
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let (inner, location) = (Arc::clone(&self.inner), location.clone());
        let writes = self.writes.clone();
        // If the caller is gone, the task drops the upload, which aborts it.
        let begin = async move {
            let inner = inner.put_multipart_opts(&location, options).await?;
            let inner = Some(inner);
            Ok::<_, Error>(Upload { inner, writes })
        };
        Ok(Box::new(self.writes.done(begin).await??))
    }

    forward!(inner: get_opts, get_ranges, delete_stream, list, list_with_offset, list_with_delimiter);

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let (inner, from, to) = (Arc::clone(&self.inner), from.clone(), to.clone());
        let copy = async move { inner.copy_opts(&from, &to, options).await };
        self.writes.done(copy).await?
    }
}

/// A file that is uploaded in parts.
#[derive(Debug)]
struct Upload {
    /// `None` once the file is complete or aborted.
    inner: Option<Box<dyn MultipartUpload>>,
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
        async move { writes.done(part).await? }.boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let mut inner = self.inner.take().ok_or_else(over)?;
        let complete = async move {
            let done = inner.complete().await;
            (inner, done)
        };
        let (inner, done) = self.writes.done(complete).await?;
        self.inner = done.is_err().then_some(inner);
        done
    }

    async fn abort(&mut self) -> Result<()> {
        let mut inner = self.inner.take().ok_or_else(over)?;
        let abort = async move { inner.abort().await };
        self.writes.done(abort).await?
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
                inner
                    .abort()
                    .await
                    .unwrap_or_else(|e| tracing::debug!("parts of a file are left: {e}"));
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
    }
}
