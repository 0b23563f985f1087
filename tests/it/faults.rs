//! Faults during runs: failing calls of the store, damaged and changed files, clocks that jump, a
//! full disk and too little memory. After each fault the output holds the complete old result or
//! the complete new one. The error is one clear line with the right exit code, and `gyre clean`
//! removes all unused files.

use crate::cli::small_lake;
use crate::faulty::{Fault, FaultyStore, Pauses};
use crate::inside::immediate_cleaning;
use crate::lake::{Lake, ProgramRun, Swap, files_below};
use crate::needs;
use crate::stops::{shell, signal};
use crate::wire::{PATIENCE, Protocol, Server, ServerFault};
use futures::{FutureExt, StreamExt};
use gyre::error::{Error, Kind, Result};
use gyre::output::checkpoint::KEEP_EVERY;
use gyre::output::place::Output;
use gyre::output::retention::{Cleaning, DAY};
use gyre::plan::pipeline::Pipeline;
use gyre::read::lake::Resources;
use gyre::run::Planned;
use gyre::run::counts::kind::CountsKind;
use gyre::run::options::Options;
use gyre::run::progress::Silent;
use gyre::store::Stores;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Runtime;

/// Input and output are in one store, so that their calls are counted together.
const PIPELINE: &str = r#"
job = { name = "nightly", output = "ROOT/out", incremental = INCREMENTAL }
names.from = "NAMES"
tables.rows.path = "ROOT/in/"
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
state = "state"
lag = 1

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
restarts = 2

[[fit]]
name = "svd"
method = "svd"
rank = 2
"#;

/// A pipeline and the state of its output before a run.
struct Case {
    name: &'static str,
    text: String,
    /// The contents of the store before the run with a fault.
    base: InMemory,
    keep_every: Duration,
}

fn runtime() -> Runtime {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build();
    runtime.expect("a runtime")
}

/// The bytes of a file with rows at times `t`.
fn rows(t: std::ops::Range<i64>) -> Vec<u8> {
    let lake = Lake::new();
    let state = |k: i64| 3 * (k / 23 % 2) + (k * k + k / 7) % 3;
    let all = (0..3).flat_map(|id| t.clone().map(move |t| [id, t, state(200 * id + t)]));
    lake.integers("rows.parquet", ["id", "t", "state"], all);
    lake.bytes("rows.parquet")
}

async fn put(store: &InMemory, path: &str, bytes: Vec<u8>) {
    let path = Path::from(path);
    let put = store.put(&path, bytes.into());
    put.await.expect("the object is put");
}

/// Stores with this one as `memory:///`.
fn stores(store: Arc<dyn ObjectStore>) -> Stores {
    let stores = Stores::default();
    stores.put(&"memory:///".parse().expect("a URL"), store);
    stores
}

async fn planned(text: &str, stores: &Stores, seed: u64) -> Result<Planned<CountsKind>> {
    let pipeline = Pipeline::parse(text, "p.toml", &[], &|_| None)?;
    let inputs = pipeline.open_with(&RESOURCES, stores).await?;
    inputs.plan_as(Some(seed)).await
}

async fn run_at(text: &str, stores: Stores, seed: u64, keep_every: Duration) -> Result<()> {
    let planned = planned(text, &stores, seed).await?;
    let output = Output::open(&planned.plan.job.output, &stores)?;
    let options = Options {
        keep_every,
        ..Options::default()
    };
    let ran = planned.run_with(&output, &options, Arc::new(Silent)).await;
    ran.map(|_| ())
}

const RESOURCES: Resources = Resources {
    threads: 1,
    memory_bytes: None,
};

impl Case {
    fn text(is_incremental: bool, names: &str) -> String {
        let text = PIPELINE.swap("INCREMENTAL", &is_incremental.to_string());
        text.replace("NAMES", names)
    }

    /// An output with an earlier result of another seed.
    async fn plain(names: &str) -> Case {
        let (text, base) = (Case::text(false, names), InMemory::new());
        put(&base, "in/a.parquet", rows(0..200)).await;
        let at = text.replace("ROOT", "memory://");
        let first = run_at(&at, stores(Arc::new(base.clone())), 1, KEEP_EVERY);
        first.await.expect("the first result");
        Case {
            name: "plain",
            text,
            base,
            keep_every: KEEP_EVERY,
        }
    }

    /// New rows for an output with a ledger.
    async fn increment(names: &str) -> Case {
        let (text, base) = (Case::text(true, names), InMemory::new());
        put(&base, "in/a.parquet", rows(0..200)).await;
        let at = text.replace("ROOT", "memory://");
        let first = run_at(&at, stores(Arc::new(base.clone())), 2, KEEP_EVERY);
        first.await.expect("the first result");
        put(&base, "in/b.parquet", rows(200..260)).await;
        Case {
            name: "increment",
            text,
            base,
            keep_every: KEEP_EVERY,
        }
    }

    /// An output with an earlier result and the work of a dead run.
    async fn resumed(names: &str) -> Case {
        let case = Case::plain(names).await;
        let keep_every = Duration::ZERO;
        let dead = FaultyStore::around(case.base.fork());
        let calls = Arc::clone(&dead.calls);
        let text = case.text.replace("ROOT", "memory://");
        let whole = run_at(&text, stores(Arc::new(dead)), 2, keep_every).await;
        whole.expect("a run");
        // The run died after a part of its calls.
        let dead = FaultyStore {
            fails: calls.load(Ordering::SeqCst) * 2 / 5..usize::MAX,
            ..FaultyStore::around(case.base.fork())
        };
        let died = run_at(&text, stores(Arc::new(dead.clone())), 2, keep_every).await;
        died.expect_err("a run that died");
        assert!(!objects(&dead.inner, "out/work").await.is_empty());
        Case {
            name: "resumed",
            base: dead.inner,
            keep_every,
            ..case
        }
    }
}

/// The objects below a path, by path.
async fn objects(store: &InMemory, below: &str) -> BTreeMap<String, Vec<u8>> {
    let listed: Vec<_> = store.list(Some(&Path::from(below))).collect().await;
    let mut all = BTreeMap::new();
    for meta in listed {
        let path = meta.expect("an object").location;
        let found = store.get(&path).await.expect("an object");
        let bytes = found.bytes().await.expect("bytes").to_vec();
        all.insert(path.to_string(), bytes);
    }
    all
}

async fn json(store: &InMemory, path: &str) -> Option<Value> {
    let found = store.get(&Path::from(path)).await.ok()?;
    let bytes = found.bytes().await.expect("bytes");
    Some(serde_json::from_slice(&bytes).expect("JSON"))
}

/// The runs that the pointer names, starting with the current result.
async fn runs_of_pointer(store: &InMemory) -> Vec<String> {
    let pointer = json(store, "out/current.json").await.expect("a pointer");
    let earlier = pointer["earlier"].as_array().expect("a list").iter();
    let all = std::iter::once(&pointer["run"]).chain(earlier);
    all.map(|run| run.as_str().expect("a run").to_string())
        .collect()
}

/// The tables of the current result. Asserts that each has a _SUCCESS file.
async fn tables(store: &InMemory) -> BTreeMap<String, Vec<u8>> {
    let folder = format!("out/versions/{}", runs_of_pointer(store).await[0]);
    let all = objects(store, &folder).await;
    let is_table = |path: &str| path.ends_with(".parquet");
    let tables = all.iter().filter(|(path, _)| is_table(path));
    let tables: BTreeMap<String, Vec<u8>> = tables
        .map(|(path, bytes)| (path[folder.len()..].to_string(), bytes.clone()))
        .collect();
    assert!(tables.len() >= 11, "{:?}", tables.keys());
    for table in tables.keys() {
        let success = table.replace("part-0.parquet", "_SUCCESS");
        assert!(all.contains_key(&format!("{folder}{success}")), "{success}");
    }
    tables
}

/// Runs the cleaning, and asserts that only objects remain that the pointer or the ledgers of its
/// runs need.
async fn clean(store: &InMemory, place: &str) {
    let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
    let cleaning = immediate_cleaning(2);
    output.clean(&cleaning).await.expect("a store that works");
    let named = runs_of_pointer(store).await;
    let mut ledgers = String::new();
    for run in &named {
        let ledger = json(store, &format!("out/versions/{run}/ledger.json")).await;
        ledgers += &ledger.map(|ledger| ledger.to_string()).unwrap_or_default();
    }
    for path in objects(store, "out").await.into_keys() {
        let parts: Vec<&str> = path.split('/').collect();
        let is_needed = match &parts[1..] {
            ["current.json"] | ["runs", _] => true,
            ["versions", run, ..] => named.iter().any(|name| name == run),
            ["ledger", object] => ledgers.contains(object),
            _ => false,
        };
        assert!(is_needed, "{place}: {path} is left");
    }
}

/// The outcomes of runs with a fault.
#[derive(Default)]
struct Ends {
    new: usize,
    old: usize,
}

impl Case {
    /// Runs with a fault at call `n` or from there on, and checks the outcome.
    async fn check(
        &self,
        at: usize,
        fault: Fault,
        before: &BTreeMap<String, Vec<u8>>,
        after: &BTreeMap<String, Vec<u8>>,
    ) -> bool {
        let place = format!("{}: {fault:?} at {at}", self.name);
        let text = self.text.replace("ROOT", "memory://");
        let last = if fault == Fault::IsForbidden {
            usize::MAX
        } else {
            at + 1
        };
        let faulty = FaultyStore {
            fails: at..last,
            fault,
            ..FaultyStore::around(self.base.fork())
        };
        let store = faulty.inner.clone();
        let ended = run_at(&text, stores(Arc::new(faulty)), 2, self.keep_every).await;
        let found = tables(&store).await;
        match &ended {
            Ok(()) => assert!(found == *after, "{place}"),
            Err(e) => {
                check_error(e, fault, &place);
                assert!(found == *before, "{place}: {}", e.full());
            }
        }
        clean(&store, &place).await;
        assert!(tables(&store).await == found, "{place}");
        if ended.is_err() {
            let next = run_at(&text, stores(Arc::new(store.clone())), 2, KEEP_EVERY).await;
            next.expect("the next run");
            assert!(tables(&store).await == *after, "{place}");
            clean(&store, &place).await;
            let runs = runs_of_pointer(&store).await;
            assert_eq!(runs.len(), 2, "{place}");
            let record = json(&store, &format!("out/runs/{}.json", runs[0])).await;
            assert!(record.is_some(), "{place}");
        }
        ended.is_ok()
    }

    /// Repeats the run with a fault at every call.
    fn check_every_call(&self, fault: Fault) -> Ends {
        let (before, after, calls) = runtime().block_on(async {
            let whole = FaultyStore::around(self.base.fork());
            let text = self.text.replace("ROOT", "memory://");
            let run = run_at(&text, stores(Arc::new(whole.clone())), 2, self.keep_every);
            run.await.expect("an undisturbed run");
            let calls = whole.calls.load(Ordering::SeqCst);
            (tables(&self.base).await, tables(&whole.inner).await, calls)
        });
        assert!(before != after, "{}", self.name);
        let start = Instant::now();
        let (next, new) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let runtime = runtime();
                    loop {
                        let at = next.fetch_add(1, Ordering::SeqCst);
                        if at >= calls {
                            break;
                        }
                        let is_new = runtime.block_on(self.check(at, fault, &before, &after));
                        new.fetch_add(usize::from(is_new), Ordering::SeqCst);
                    }
                });
            }
        });
        let new = new.into_inner();
        println!(
            "{}, {fault:?}: {calls} calls, {new} new results, {:.0?}",
            self.name,
            start.elapsed()
        );
        Ends {
            new,
            old: calls - new,
        }
    }
}

#[track_caller]
fn check_error(e: &Error, fault: Fault, place: &str) {
    let text = e.full();
    let is_right = match (fault, e.kind()) {
        // These faults persist.
        (Fault::IsForbidden | Fault::Flipped, Kind::Input) => true,
        (_, kind) => kind.exit_code() == 75,
    };
    assert!(is_right, "{place}: {:?}: {text}", e.kind());
    assert!(!text.contains('\n'), "{place}: {text}");
    let names = ["out", "`rows`", "reading the input", "memory:///in"];
    assert!(
        names.iter().any(|name| text.contains(name)),
        "{place}: {text}"
    );
}

const FAULTS: [Fault; 4] = [
    Fault::Fails,
    Fault::IsForbidden,
    Fault::IsLost,
    Fault::CutShort,
];

fn check_faults(case: &Case) {
    for fault in FAULTS {
        let ends = case.check_every_call(fault);
        assert!(ends.new > 0 && ends.old > 8, "{fault:?}: {}", ends.old);
    }
}

#[test]
fn a_plain_run_survives_every_fault() {
    let case = runtime().block_on(Case::plain("previous"));
    check_faults(&case);
}

#[test]
fn an_increment_survives_every_fault() {
    let case = runtime().block_on(Case::increment("previous"));
    check_faults(&case);
}

#[test]
fn a_resumed_run_survives_every_fault() {
    let case = runtime().block_on(Case::resumed("previous"));
    for fault in FAULTS {
        let ends = case.check_every_call(fault);
        // Unreadable work is repeated. After the permission is revoked, only the last calls of a
        // run can fail without an effect.
        let least = if fault == Fault::IsForbidden { 5 } else { 10 };
        assert!(ends.new > least, "{fault:?}: {}", ends.new);
    }
}

/// A byte of the output is flipped in transit. Checksums and lengths detect this.
#[test]
fn a_run_detects_flipped_bytes() {
    for case in [
        runtime().block_on(Case::plain("none")),
        runtime().block_on(Case::increment("none")),
        runtime().block_on(Case::resumed("none")),
    ] {
        let ends = case.check_every_call(Fault::Flipped);
        assert!(ends.old > 5, "{}: {}", case.name, ends.old);
    }
}

/// The same run over HTTP with a fault at one request. Temporary faults are retried, and other
/// faults give one error.
fn check_faults_over_http(protocol: Protocol) {
    let case = runtime().block_on(Case::plain("previous"));
    let run = |fault: Option<(usize, ServerFault)>| {
        let server = Server::start(case.base.fork(), protocol, fault);
        let root = format!("{}://lake", server.scheme());
        let text = case.text.replace("ROOT", &root);
        let mut options = server.options();
        options.insert("timeout".into(), PATIENCE.into());
        let runtime = runtime();
        let ended = runtime.block_on(run_at(&text, Stores::new(options), 2, KEEP_EVERY));
        (server, ended, runtime)
    };
    let (server, ended, runtime) = run(None);
    // Each run has its own slow server.
    let step = match std::env::var_os("GYRE_SLOW_TESTS") {
        Some(_) => 1,
        None => 3,
    };
    ended.expect("an undisturbed run");
    let requests = server.requests.load(Ordering::SeqCst);
    let before = runtime.block_on(tables(&case.base));
    let after = runtime.block_on(tables(&server.store));
    for fault in [
        ServerFault::Busy,
        ServerFault::Silence,
        ServerFault::CutOff,
        ServerFault::Lost,
    ] {
        let start = Instant::now();
        let (next, old) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(step, Ordering::SeqCst);
                        if at >= requests {
                            break;
                        }
                        let place = format!("{fault:?} at {at}");
                        let (server, ended, runtime) = run(Some((at, fault)));
                        let found = runtime.block_on(tables(&server.store));
                        match ended {
                            Ok(()) => assert!(found == after, "{place}"),
                            Err(e) => {
                                assert_eq!(e.kind(), Kind::Store, "{place}: {}", e.full());
                                assert!(e.full().contains("lake/"), "{place}: {}", e.full());
                                assert!(found == before, "{place}: {}", e.full());
                                old.fetch_add(1, Ordering::SeqCst);
                            }
                        }
                        runtime.block_on(clean(&server.store, &place));
                    }
                });
            }
        });
        let old = old.into_inner();
        println!(
            "{protocol:?}, {fault:?} at each {step}. of {requests} requests: {old} runs ended with an error, {:.0?}",
            start.elapsed()
        );
        match fault {
            ServerFault::Busy => assert_eq!(old, 0),
            // Lists and conditional puts are not retried.
            _ => assert!(old < requests / 2, "{fault:?}: {old} of {requests}"),
        }
    }
}

#[test]
fn requests_that_fail_in_transit_are_retried() {
    check_faults_over_http(Protocol::S3);
}

#[test]
fn requests_to_google_that_fail_in_transit_are_retried() {
    check_faults_over_http(Protocol::Google);
}

/// The clock of the store is a year behind, or the local clock has jumped. The version of a running
/// run still counts as recent.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_does_not_age_a_version() {
    let case = Case::plain("previous").await;
    let store = FaultyStore {
        behind: Duration::from_secs(400 * 86_400),
        ..FaultyStore::around(case.base.fork())
    };
    let open = || Output::open("memory:///out", &stores(Arc::new(store.clone())));
    let alive = open().expect("an output");
    let begun = alive.begin("a-plan-of-its-own").await.expect("a store");
    alive.claim_version(&begun).await.expect("a new version");
    let table = alive.staged(&begun.run, "sources");
    alive.store.put(&table, "1".into()).await.expect("a store");
    let object = Path::from("out/ledger/counts-0123456789abcdef0123456789abcdef.parquet");
    alive.store.put(&object, "1".into()).await.expect("a store");
    let record = Path::from("out/work/0123456789abcdef.made");
    let made = "gyre made the folder work/0123456789abcdef\n";
    alive
        .store
        .put(&record, made.into())
        .await
        .expect("a store");
    let work = Path::from("out/work/0123456789abcdef/piece");
    alive.store.put(&work, "1".into()).await.expect("a store");
    // Another run that ends at the same time cleans, and so does the user.
    let text = case.text.replace("ROOT", "memory://");
    let other = run_at(&text, stores(Arc::new(store.clone())), 2, KEEP_EVERY);
    other.await.expect("the other run");
    let cleaning = Cleaning {
        keep: 2,
        older_than: DAY,
        dry_run: false,
    };
    let cleaned = open().expect("an output").clean(&cleaning).await;
    let cleaned = cleaned.expect("a store");
    assert_eq!(cleaned.left, std::slice::from_ref(&begun.run));
    assert!(
        cleaned.removed.is_empty() && cleaned.work.is_empty(),
        "{cleaned}"
    );
    for path in [table, object, work] {
        store.inner.head(&path).await.expect("the object is kept");
    }
    alive.abandon().await;
    clean(&store.inner, "after the jump").await;
}

/// In a folder, a lock marks a running run for all file times, and results are ordered by their
/// promotion.
#[tokio::test]
async fn locks_tell_live_files_from_dead_ones_of_any_age() {
    let lake = small_lake();
    lake.line("run p.toml --seed 1").succeeds();
    let shown = lake.path("out").display().to_string();
    let alive = Output::open(&shown, &Stores::default()).expect("an output");
    let begun = alive.begin("a-plan-of-its-own").await.expect("a folder");
    alive.claim_version(&begun).await.expect("a new version");
    let year = Duration::from_secs(365 * 86_400);
    let now = SystemTime::now();
    for at in [now - year, now + year] {
        let result = fs::canonicalize(lake.path("out/current")).expect("a result");
        for folder in [result, lake.path("out/versions").join(&begun.run)] {
            let folder = fs::File::open(folder).expect("a folder");
            folder.set_modified(at).expect("a time");
        }
        let cleaned = lake.line("clean p.toml --older-than 0s").succeeds();
        let message = format!("left alone {}", begun.run);
        cleaned.says(&message);
        assert!(!cleaned.out.contains("removed"), "{}", cleaned.out);
    }
    alive.abandon().await;
    lake.line("run p.toml --seed 2").succeeds();
}

/// A folder of three files and its result.
fn folder() -> Lake {
    let lake = Lake::new();
    fs::create_dir(lake.path("in")).expect("a folder");
    for (at, name) in ["a", "b", "c"].iter().enumerate() {
        let t = 100 * at as i64..100 * (at as i64 + 1);
        fs::write(lake.path(&format!("in/{name}.parquet")), rows(t)).expect("a file");
    }
    let text = Case::text(false, "none").replace("ROOT/", "");
    lake.runs_text(&text);
    lake
}

#[test]
fn damaged_files_are_named_and_the_earlier_result_stays() {
    let lake = folder();
    let before = lake.tables();
    let good = lake.bytes("in/b.parquet");
    let half = good[..good.len() / 2].to_vec();
    let mut footer = good.clone();
    let end = good.len() - 8;
    let length = good[end..end + 4].try_into().map(u32::from_le_bytes);
    footer[end - length.expect("four bytes") as usize] ^= 0xff;
    // Everything before the footer.
    let mut page = good.clone();
    page[4..300].fill(0xff);
    let unreadable = "in/b.parquet is not a readable parquet file";
    for (bytes, message) in [
        (half, unreadable),
        (footer, unreadable),
        (good[4..].to_vec(), "in/b.parquet"),
        (b"PAR1".to_vec(), unreadable),
        (
            Vec::new(),
            "in/b.parquet is empty, so it is not a parquet file",
        ),
        (page, "in/b.parquet cannot be decoded"),
    ] {
        fs::write(lake.path("in/b.parquet"), bytes).expect("a file");
        let ran = lake.run(&[]);
        ran.fails(1, message);
        assert_eq!(ran.err.trim().lines().count(), 1, "{}", ran.err);
        assert!(lake.tables() == before);
        assert_eq!(lake.names("out/versions").len(), 1);
    }
    let ran = lake.run(&[]);
    ran.fails(1, "reading the input failed: column `");
    ran.fails(1, "restore the file, or leave it out");
    // A footer with a length larger than its file.
    let mut longer = good.clone();
    longer[end + 1] ^= 0xff;
    fs::write(lake.path("in/b.parquet"), longer).expect("a file");
    let ran = lake.run(&[]);
    let message = "in/b.parquet is not a readable parquet file: its end is damaged";
    ran.fails(1, message);
    assert_eq!(ran.err.trim().lines().count(), 1, "{}", ran.err);
    assert!(lake.tables() == before);
    // The reader panics. The verbose log shows the panic.
    let verbose = lake.line("run p.toml -v");
    verbose.logs("a reader panicked at");
    verbose.logs(message);
    // Temporary and hidden files of a writer are not read.
    for name in ["_temporary/0/x.parquet", ".hidden.parquet", "_d.parquet"] {
        let path = lake.path(&format!("in/{name}"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, rows(300..400)).expect("a file");
    }
    fs::write(lake.path("in/_SUCCESS"), "").expect("a file");
    fs::write(lake.path("in/b.parquet"), good).expect("a file");
    lake.line("run p.toml --force").succeeds();
    assert!(lake.tables() == before);
}

/// A run that is stopped while it writes the record of its own failure has a record all the same.
#[tokio::test]
async fn a_record_that_was_not_finished_is_written_again() {
    let store = FaultyStore {
        pauses: Pauses::Always,
        ..FaultyStore::around(InMemory::new())
    };
    let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
    let at = Path::from("out/runs/one.json");
    for (polls, has_record) in [(1, false), (9, true)] {
        let mut put = std::pin::pin!(output.keep_failed("one", &"stopped"));
        let ended = (0..polls).any(|_| put.as_mut().now_or_never().is_some());
        assert_eq!(ended, has_record);
        assert_eq!(store.inner.head(&at).await.is_ok(), has_record);
    }
    let calls = store.calls.load(Ordering::SeqCst);
    output.keep_failed("one", &"another error").await;
    assert_eq!(store.calls.load(Ordering::SeqCst), calls);
}

/// A file is replaced or deleted between the plan and the reading of its rows.
#[tokio::test(flavor = "multi_thread")]
async fn files_that_change_during_a_run_are_named() {
    for (is_local, is_csv) in [(true, false), (false, false), (true, true), (false, true)] {
        for is_deleted in [true, false] {
            let (lake, store) = (Lake::new(), InMemory::new());
            fs::create_dir(lake.path("in")).expect("a folder");
            let bytes = |sign: i64| {
                if is_csv {
                    let row = |k: i64| format!("{},{},{}\n", k % 3, k / 3, 5 + sign * (k % 4));
                    let rows: String = (0..300).map(row).collect();
                    ("id,t,state\n".to_string() + &rows).into_bytes()
                } else {
                    rows(if sign > 0 { 0..200 } else { 100..300 })
                }
            };
            let name = if is_csv { "in/a.csv" } else { "in/a.parquet" };
            let write = async |bytes: Vec<u8>| {
                if is_local {
                    fs::write(lake.path(name), bytes).expect("a file")
                } else {
                    put(&store, name, bytes).await
                }
            };
            write(bytes(1)).await;
            let root = if is_local {
                lake.folder.path().display().to_string()
            } else {
                "memory://".into()
            };
            let text = Case::text(false, "none").replace("ROOT/in/", &format!("ROOT/{name}"));
            let text = text.replace("ROOT", &root);
            let stores = stores(Arc::new(store.clone()));
            let planned = planned(&text, &stores, 1).await.expect("a plan");
            match (is_deleted, is_local) {
                (false, _) => {
                    // The resolution of file times.
                    std::thread::sleep(Duration::from_millis(10));
                    write(bytes(-1)).await;
                }
                (true, true) => fs::remove_file(lake.path(name)).expect("a file"),
                (true, false) => store.delete(&Path::from(name)).await.expect("an object"),
            }
            let output = Output::open(&planned.plan.job.output, &stores).expect("an output");
            let options = Options::default();
            let running = planned.run_with(&output, &options, Arc::new(Silent));
            let ended = running.await;
            let e = ended.err().expect("changed rows");
            let what = if is_deleted { "deleted" } else { "replaced" };
            let message = format!("{name} was {what} while the run was reading; run again");
            assert!(
                e.full().contains(&message),
                "{is_local} {is_csv}: {}",
                e.full()
            );
            assert_eq!(e.kind(), Kind::Conflict);
            assert!(output.current().await.expect("a store").is_none());
        }
    }
}

/// A file size limit acts like a full disk: a file may have one kilobyte, and further writes fail.
#[test]
fn a_full_disk_is_one_error() {
    let lake = small_lake();
    lake.line("run p.toml --seed 1").succeeds();
    let before = lake.tables();
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$GYRE\" run p.toml --seed 2";
    let ran = shell(&lake, &[], script);
    ran.fails(75, "error: out/versions/");
    ran.fails(75, "cannot be written (");
    ran.fails(75, "File too large");
    assert_eq!(ran.err.trim().lines().count(), 1, "{}", ran.err);
    assert!(lake.tables() == before);
    lake.line("clean p.toml --older-than 0s").succeeds();
    assert_eq!(lake.names("out/versions").len(), 1);
    lake.line("run p.toml --seed 2").succeeds();
}

/// The same on a small separate file system, if it can be mounted.
#[test]
fn a_full_file_system_is_one_error() {
    let lake = small_lake();
    fs::create_dir(lake.path("disk")).expect("a folder");
    let mount = "mount -t tmpfs -o size=400k none disk";
    let unshare = ["unshare", "-rm"];
    let mounted = needs::installed(&["unshare"]).and_then(|_| {
        let ran = shell(&lake, &unshare, mount);
        let why = || format!("`unshare -rm` and `{mount}` fail: {}", ran.err.trim());
        (ran.code == Some(0)).then_some(()).ok_or_else(why)
    });
    // `a_full_disk_is_one_error` goes the same way.
    let Some(()) = needs::ability("mount", mounted) else {
        return;
    };
    let script = format!(
        "set -e; {mount}; export OUT=disk/out
        \"$GYRE\" run p.toml --seed 1 > /dev/null
        head -c 1000000 /dev/zero > disk/filler 2> /dev/null || true
        (cd disk/out/current && cat */part-0.parquet) > before
        set +e; \"$GYRE\" run p.toml --seed 2; echo code $?; set -e
        (cd disk/out/current && cat */part-0.parquet) > after
        cmp before after
        ls disk/out/versions | wc -l
        rm disk/filler
        \"$GYRE\" clean p.toml --older-than 0s
        ls disk/out/versions | wc -l
        \"$GYRE\" run p.toml --seed 2 > /dev/null"
    );
    let ran = shell(&lake, &unshare, &script);
    ran.fails(0, "No space left on device");
    ran.fails(0, "error: disk/out");
    assert_eq!(ran.err.trim().lines().count(), 1, "{}", ran.err);
    assert_eq!(ran.out, "code 75\n1\nNothing to clean.\n1\n");
}

/// There are more rows than the memory for SQL. They are sorted on disk. If this is not possible
/// either, the error names the option to set.
#[test]
fn too_little_memory_is_one_error() {
    let lake = Lake::new();
    let n = 1_500_000;
    let rows = (0..n).map(|k| [(k * 7_919) % n / 300_000, (k * 7_919) % n, k % 5]);
    lake.integers("rows.parquet", ["id", "t", "state"], rows);
    let text = Case::text(false, "none").replace("ROOT/in/", "rows.parquet");
    lake.file("p.toml", &text.replace("ROOT/", ""));
    let sql = "transitions.sql=SELECT * FROM rows ORDER BY id, t";
    let few = format!("\"$GYRE\" run p.toml --threads 1 --set '{sql}' --memory");
    let none = shell(&lake, &[], &format!("exec {few} 135MB"));
    none.fails(75, "Resources exhausted");
    none.fails(75, "give SQL more memory with `--memory`");
    let script = format!("trap '' XFSZ; ulimit -f 16; exec {few} 165MB");
    let full = shell(&lake, &[], &script);
    let message = "has no room for rows that SQL sorts on disk; set TMPDIR to a larger folder";
    full.fails(75, message);
    for ran in [none, full] {
        assert_eq!(ran.err.trim().lines().count(), 1, "{}", ran.err);
    }
    assert!(!lake.path("out/current.json").exists());
    shell(&lake, &[], &format!("exec {few} 165MB")).succeeds();
}

/// Ctrl-C while rows are sorted on disk removes the rows.
#[test]
fn a_stopped_run_removes_its_rows_on_disk() {
    let lake = Lake::new();
    let sql = "SELECT value % 100 AS id, value * 7919 % 20000000 AS t, value % 5 AS state FROM range(0, 20000000) ORDER BY id, t";
    let text = Case::text(false, "none").replace("ROOT/in/", "rows.csv");
    lake.file("p.toml", &text.replace("ROOT/", ""))
        .file("rows.csv", "unused\n1\n");
    fs::create_dir(lake.path("tmp")).expect("a folder");
    let sql = format!("transitions.sql={sql}");
    let bound = ["--threads", "1", "--memory", "165MB", "--set", &sql];
    let mut command = lake.command(&[&["run", "p.toml"], &bound[..]].concat());
    let command = command.env("TMPDIR", lake.path("tmp"));
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut running = command.spawn().expect("the program starts");
    let has_rows = || {
        let files = files_below(&lake.path("tmp")).into_iter();
        let mut sizes = files.filter_map(|file| Some(fs::metadata(file).ok()?.len()));
        sizes.any(|size| size > 0)
    };
    while !has_rows() {
        let ended = running.try_wait().expect("a process");
        assert!(ended.is_none(), "no rows were sorted on disk: {ended:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&running, "-INT");
    let ran = ProgramRun::of(running.wait_with_output().expect("the process ends"));
    ran.fails(130, "error: stopped; the output is as it was before");
    assert!(lake.names("tmp").is_empty());
    // Only the record of the run remains.
    assert_eq!(lake.names("out"), ["runs".to_string()].into());
}
