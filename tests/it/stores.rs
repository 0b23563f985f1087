//! Faults of the object store, at every call of a run: the output is the old result, the new one, or visibly none.

use crate::cli::small_pipeline;
use crate::lake::{Lake, TABLES};
use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use gyre::error::{Kind, Result};
use gyre::read::{self, Resources, TableSource};
use gyre::run::{Options, Silent, run};
use gyre::spec::Spec;
use gyre::write::Output;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A store whose call number `fails` goes wrong, and no other.
#[derive(Debug)]
struct FlakyStore {
    inner: InMemory,
    calls: Arc<AtomicUsize>,
    fails: usize,
}

impl std::fmt::Display for FlakyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FlakyStore({})", self.inner)
    }
}

fn broken() -> object_store::Error {
    object_store::Error::Generic {
        store: "flaky",
        source: "the network is down".into(),
    }
}

impl FlakyStore {
    fn call(&self) -> object_store::Result<()> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        if number == self.fails {
            Err(broken())
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl ObjectStore for FlakyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.call()?;
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.call()?;
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(
        &self,
        location: &Path,
        options: GetOptions,
    ) -> object_store::Result<GetResult> {
        self.call()?;
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, object_store::Result<Path>>,
    ) -> BoxStream<'static, object_store::Result<Path>> {
        match self.call() {
            Ok(()) => self.inner.delete_stream(locations),
            Err(e) => stream::once(async { Err(e) }).boxed(),
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        match self.call() {
            Ok(()) => self.inner.list(prefix),
            Err(e) => stream::once(async { Err(e) }).boxed(),
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> object_store::Result<ListResult> {
        self.call()?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(
        &self,
        from: &Path,
        to: &Path,
        options: CopyOptions,
    ) -> object_store::Result<()> {
        self.call()?;
        self.inner.copy_opts(from, to, options).await
    }
}

/// Runs the small pipeline of a lake with a seed into a store.
async fn run_into(lake: &Lake, store: Arc<dyn ObjectStore>, seed: u64) -> Result<()> {
    let text = std::fs::read_to_string(lake.path("p.toml")).expect("the pipeline");
    let spec = Spec::parse(&text, "p.toml", &[], &|_| None)?;
    let paths = [lake.path("rows.parquet").display().to_string()];
    let sources = [TableSource {
        name: "rows",
        paths: &paths,
        format: None,
    }];
    let resources = Resources {
        threads: 1,
        memory_bytes: None,
    };
    let opened = read::open(&sources, &resources).await?;
    let sql = read::query_text(&spec.transitions.query)?;
    let (plan, frame) = gyre::plan::plan(&spec, &sql, Some(seed), &opened).await?;
    let output = Output::in_store(store, Path::from("out"));
    let options = Options {
        threads: 1,
        force: false,
        full_refresh: false,
    };
    run(
        Arc::new(plan),
        &opened,
        frame,
        &output,
        &options,
        Arc::new(Silent),
    )
    .await
    .map(|_| ())
}

async fn tables(store: &InMemory) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for table in TABLES {
        let path = Path::from(format!("out/{table}/part-0.parquet"));
        let bytes = store
            .get(&path)
            .await
            .expect("a table")
            .bytes()
            .await
            .expect("its bytes");
        all.push(bytes.to_vec());
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_at_any_call_leaves_one_whole_result_or_none() {
    let lake = Lake::new();
    small_pipeline(&lake);
    let old = InMemory::new();
    run_into(&lake, Arc::new(old.fork()), 1)
        .await
        .expect("an empty store takes a run");
    let old = {
        let store = Arc::new(old);
        run_into(&lake, store.clone(), 1)
            .await
            .expect("the old result");
        store
    };
    let new = Arc::new(old.fork());
    run_into(&lake, new.clone(), 2)
        .await
        .expect("the new result");
    let (before, after) = (tables(&old).await, tables(&new).await);
    assert_ne!(before, after);

    let mut faults = 0;
    for fails in 0.. {
        let inner = old.fork();
        let calls = Arc::new(AtomicUsize::new(0));
        let flaky = Arc::new(FlakyStore {
            inner,
            calls: calls.clone(),
            fails,
        });
        let ended = run_into(&lake, flaky.clone(), 2).await;
        if calls.load(Ordering::SeqCst) <= fails {
            ended.expect("no call failed");
            break;
        }
        faults += 1;
        let left = tables(&flaky.inner).await;
        let output = Output::in_store(Arc::new(flaky.inner.fork()), Path::from("out"));
        let current = output.current().await.expect("a store that works again");
        match &ended {
            Ok(()) => assert_eq!(left, after, "call {fails}"),
            Err(e) => assert!(
                matches!(e.kind(), Kind::Store | Kind::Check),
                "call {fails}: {}",
                e.full()
            ),
        }
        if current.is_some() {
            assert!(
                left == before || left == after,
                "call {fails} left a mixture"
            );
        }
        // The next run puts everything right and leaves nothing behind.
        let store = Arc::new(flaky.inner.fork());
        run_into(&lake, store.clone(), 2)
            .await
            .expect("the next run");
        assert_eq!(tables(&store).await, after, "after call {fails}");
        let staged = store.list(Some(&Path::from("out/.staging"))).count().await;
        assert_eq!(staged, 0, "after call {fails}");
    }
    assert!(faults > 40, "only {faults} calls were made");
}
