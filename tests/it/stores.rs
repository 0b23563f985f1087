//! Faults of the object store, at every call of a run, and two runs whose calls come in every order: at any moment the output is the old
//! result or the new one, whole.

use crate::cli::small_pipeline;
use crate::faulty::{Conditions, Fault, FaultyStore, Pauses};
use crate::lake::{Lake, TABLES};
use futures::future::BoxFuture;
use futures::task::noop_waker_ref;
use futures::{FutureExt, StreamExt};
use gyre::error::{Error, Kind, Result};
use gyre::output::place::Output;
use gyre::output::pointer::Promotion;
use gyre::output::retention::Cleaning;
use gyre::plan::pipeline::Pipeline;
use gyre::read::lake::Resources;
use gyre::read::paths::current::Current;
use gyre::run::Options;
use gyre::run::progress::Silent;
use jiff::SignedDuration;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// Runs the small pipeline of a lake with a seed into a store.
async fn run_into(lake: &Lake, store: Arc<dyn ObjectStore>, seed: u64) -> Result<()> {
    let pipeline = Pipeline::from_file(lake.path("p.toml"))?;
    let resources = Resources {
        threads: 1,
        memory_bytes: None,
    };
    let inputs = pipeline.open_with(&resources, &Default::default()).await?;
    let planned = inputs.plan_with(Some(seed)).await?;
    let output = Output::in_store(store, Path::from("out"));
    let options = Options::default();
    let ran = planned.run_with(&output, &options, Arc::new(Silent)).await;
    ran.map(|_| ())
}

/// The pointer of the output in a store.
async fn pointer(store: &InMemory) -> Option<Current> {
    let found = store.get(&Path::from("out/current.json")).await.ok()?;
    let bytes = found.bytes().await.expect("its bytes");
    Some(serde_json::from_slice(&bytes).expect("a pointer"))
}

/// The tables of the result in place.
async fn tables(store: &InMemory) -> Vec<Vec<u8>> {
    let folder = pointer(store).await.expect("a result").folder;
    let mut all = Vec::new();
    for table in TABLES {
        let path = Path::from(format!("out/{folder}/{table}/part-0.parquet"));
        let found = store.get(&path).await.expect("a table");
        all.push(found.bytes().await.expect("its bytes").to_vec());
    }
    all
}

/// The runs of which there are versions.
async fn versions(store: &InMemory) -> BTreeSet<String> {
    let folder = Path::from("out/versions");
    let found: Vec<_> = store.list(Some(&folder)).collect().await;
    let run = |meta: object_store::Result<ObjectMeta>| {
        let path = meta.expect("an object").location;
        let run = path.prefix_match(&folder).expect("below it").next();
        run.expect("a run").as_ref().to_string()
    };
    found.into_iter().map(run).collect()
}

/// Cleans, and checks that nothing is there that the pointer does not name.
async fn clean(store: &InMemory) {
    let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
    let asked = Cleaning {
        keep: 2,
        older_than: SignedDuration::ZERO,
        dry_run: false,
    };
    output.clean(&asked).await.expect("a store that works");
    let named = pointer(store).await.map(|p| {
        let runs = p.earlier.into_iter().chain([p.run]);
        runs.collect::<BTreeSet<_>>()
    });
    assert_eq!(versions(store).await, named.unwrap_or_default());
}

/// How calls fail from some call on.
const FAULTS: [(&str, usize, Fault); 3] = [
    ("a call fails", 1, Fault::Fails),
    ("the answer to a call is lost", 1, Fault::IsLost),
    ("the run dies", usize::MAX, Fault::Fails),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_fault_at_any_call_leaves_one_whole_result() {
    let lake = Lake::new();
    small_pipeline(&lake);
    let old = InMemory::new();
    run_into(&lake, Arc::new(old.clone()), 1)
        .await
        .expect("an empty store takes a run");
    let new = old.fork();
    run_into(&lake, Arc::new(new.clone()), 2)
        .await
        .expect("the new result");
    let (before, after) = (tables(&old).await, tables(&new).await);
    assert_ne!(before, after);

    for (what, many, fault) in FAULTS {
        let mut faults = 0;
        for first in 0.. {
            let faulty = FaultyStore {
                fails: first..first.saturating_add(many),
                fault,
                ..FaultyStore::around(old.fork())
            };
            let ended = run_into(&lake, Arc::new(faulty.clone()), 2).await;
            if faulty.calls.load(Ordering::SeqCst) <= first {
                ended.expect("no call failed");
                break;
            }
            faults += 1;
            let place = format!("{what} at {first}");
            let store = faulty.inner;
            // Never anything but a whole result, and after an error the old one, unless nobody could be asked which it is.
            let left = tables(&store).await;
            let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
            let current = output.current().await.expect("a store that works again");
            assert!(current.is_some(), "{place}");
            match &ended {
                Ok(()) => assert_eq!(left, after, "{place}"),
                Err(e) => {
                    let kind = e.kind();
                    assert!(
                        matches!(kind, Kind::Store | Kind::Conflict),
                        "{place}: {}",
                        e.full()
                    );
                    assert_eq!(left, before, "{place}");
                }
            }
            clean(&store).await;
            assert_eq!(tables(&store).await, left, "{place}");
            // The next run puts everything right and leaves nothing behind.
            run_into(&lake, Arc::new(store.clone()), 2)
                .await
                .expect("the next run");
            assert_eq!(tables(&store).await, after, "{place}");
            let current = pointer(&store).await.expect("a result");
            assert_eq!(versions(&store).await.len(), 2, "{place}");
            let record = Path::from(format!("out/runs/{}.json", current.run));
            store.head(&record).await.expect("a record");
        }
        assert!(faults > 40, "only {faults} calls were made");
    }
}

/// The least that a run does to an output: its one table holds its id.
async fn small_run(store: FaultyStore, plan: &str) -> Result<()> {
    let output = Output::in_store(Arc::new(store), Path::from("out"));
    let ended = small_run_at(&output, plan).await;
    if ended.is_err() {
        output.abandon().await;
    }
    ended
}

async fn small_run_at(output: &Output, plan: &str) -> Result<()> {
    let begun = output.begin(plan).await?;
    output.claim_version(&begun).await?;
    let (table, bytes) = (output.staged(&begun.run, "sources"), begun.run.clone());
    let put = output.store.put(&table, bytes.into()).await;
    put.map_err(|e| Error::with_source(Kind::Store, "the table cannot be written", e))?;
    let promotion = Promotion {
        plan,
        complete: true,
        tables: &BTreeMap::from([("sources", 1)]),
        keep: 2,
        record: &plan,
        begins: &|| (),
    };
    output.promote(&begun, &promotion).await
}

/// The run whose result a reader finds; panics unless it is whole.
fn reader_finds(store: &InMemory) -> String {
    let read = async {
        let current = pointer(store).await.expect("a result");
        read_version(store, &current.run).await;
        current.run
    };
    read.now_or_never().expect("memory does not wait")
}

async fn read_version(store: &InMemory, run: &str) {
    let table = Path::from(format!("out/versions/{run}/sources/part-0.parquet"));
    let found = store.get(&table).await.expect("the table of a result");
    assert_eq!(found.bytes().await.expect("its bytes"), run.as_bytes());
    let success = Path::from(format!("out/versions/{run}/sources/_SUCCESS"));
    store.head(&success).await.expect("its _SUCCESS");
}

/// Lets two runs take turns at an output that holds a result: `turn` says whose it is while both have something left to do. A reader
/// looks after every step. Returns whether there was a conflict.
fn two_runs(old: &InMemory, pauses: Pauses, mut turn: impl FnMut() -> usize) -> bool {
    let store = FaultyStore {
        pauses,
        ..FaultyStore::around(old.fork())
    };
    let plans = ["first-one", "the-other"];
    let mut runs: Vec<BoxFuture<'_, Result<()>>> = Vec::new();
    for plan in plans {
        runs.push(small_run(store.clone(), plan).boxed());
    }
    let mut ends = [None, None];
    let mut seen = BTreeSet::from([reader_finds(&store.inner)]);
    while ends.iter().any(Option::is_none) {
        let who = match &ends {
            [None, None] => turn(),
            [None, _] => 0,
            _ => 1,
        };
        let mut context = Context::from_waker(noop_waker_ref());
        if let Poll::Ready(end) = runs[who].poll_unpin(&mut context) {
            ends[who] = Some(end);
        }
        seen.insert(reader_finds(&store.inner));
    }
    let check = async {
        // Who has read the pointer at any moment can still read what it named.
        for run in &seen {
            read_version(&store.inner, run).await;
        }
        let last = pointer(&store.inner).await.expect("a result");
        let named = last.earlier.iter().chain([&last.run]).cloned();
        assert_eq!(versions(&store.inner).await, named.collect());
        last
    };
    let last = check.now_or_never().expect("memory does not wait");
    match ends.map(|end| end.expect("both have ended")) {
        [Ok(()), Ok(())] => {
            assert_eq!((seen.len(), last.earlier.len()), (3, 2));
            false
        }
        [Ok(()), Err(e)] | [Err(e), Ok(())] => {
            assert_eq!(e.kind(), Kind::Conflict, "{}", e.full());
            assert_eq!((seen.len(), last.earlier.len()), (2, 1));
            true
        }
        [Err(a), Err(b)] => panic!("both lost: {}; {}", a.full(), b.full()),
    }
}

fn one_result() -> InMemory {
    let store = InMemory::new();
    let run = small_run(FaultyStore::around(store.clone()), "the-first");
    let ended = run.now_or_never().expect("memory does not wait");
    ended.expect("the first result");
    store
}

#[test]
fn every_order_of_two_runs_leaves_one_winner() {
    let old = one_result();
    // The turns taken, each with whether the other choice is still to be tried.
    let mut turns: Vec<(usize, bool)> = Vec::new();
    let (mut orders, mut conflicts) = (0, 0);
    loop {
        let mut at = 0;
        let is_conflict = two_runs(&old, Pauses::Shared, || {
            if at == turns.len() {
                turns.push((0, true));
            }
            at += 1;
            turns[at - 1].0
        });
        orders += 1;
        conflicts += usize::from(is_conflict);
        while turns.pop_if(|(_, is_open)| !*is_open).is_some() {}
        match turns.last_mut() {
            Some(turn) => *turn = (1, false),
            None => break,
        }
    }
    println!("{orders} orders, {conflicts} conflicts");
    assert!(orders > 5_000, "{orders}");
    assert!(conflicts > 0 && conflicts < orders, "{conflicts}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn two_runs_may_alternate_at_any_call(turns in prop::collection::vec(0..2_usize, 100)) {
        thread_local!(static OLD: InMemory = one_result());
        let mut turns = turns.into_iter();
        OLD.with(|old| two_runs(old, Pauses::Always, || turns.next().unwrap_or(0)));
    }
}

/// A run that is dropped wherever it waits, before a call or after it, and abandoned: what is in place is whole, and of a run that was not
/// in place yet nothing is left.
#[test]
fn a_run_that_is_dropped_anywhere_leaves_one_whole_result() {
    for old in [InMemory::new(), one_result()] {
        let before = pointer(&old).now_or_never().expect("memory does not wait");
        let (mut is_done, mut alone, mut left, mut replaced) = (false, 0, 0, 0);
        for steps in 0.. {
            let store = FaultyStore {
                pauses: Pauses::Always,
                ..FaultyStore::around(old.fork())
            };
            let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
            let mut context = Context::from_waker(noop_waker_ref());
            let mut run = small_run_at(&output, "some-plan").boxed();
            let mut step = || run.poll_unpin(&mut context);
            is_done |= (0..=steps).any(|_| step().is_ready());
            drop(run);
            let mut abandon = output.abandon().boxed();
            while abandon.poll_unpin(&mut context).is_pending() {}
            let check = async {
                let now = pointer(&store.inner).await;
                for run in now
                    .iter()
                    .flat_map(|now| now.earlier.iter().chain([&now.run]))
                {
                    read_version(&store.inner, run).await;
                }
                if now == before {
                    let named = before.iter().map(|before| before.run.clone());
                    match versions(&store.inner).await == named.collect() {
                        true => alone += 1,
                        false => left += 1,
                    }
                } else {
                    replaced += 1;
                }
                clean(&store.inner).await;
            };
            check.now_or_never().expect("memory does not wait");
            if is_done {
                break;
            }
        }
        // Where the pointer is just being put, nobody knows what comes of it, and the version stays for `clean`.
        assert!(
            alone > 10 && left == 1 && replaced > 1,
            "{alone} {left} {replaced}"
        );
    }
}

/// Without conditions a store would let two runs overwrite each other.
#[tokio::test]
async fn a_store_without_conditional_puts_is_refused() {
    for conditions in [Conditions::Ignored, Conditions::Unsupported] {
        let store = FaultyStore {
            conditions,
            ..FaultyStore::around(InMemory::new())
        };
        let error = small_run(store.clone(), "some-plan").await;
        let error = error.expect_err("a store to refuse");
        assert_eq!(error.kind(), Kind::Spec, "{}", error.full());
        let said = "the store of out does not support conditional puts";
        assert!(error.full().contains(said), "{}", error.full());
        assert_eq!(store.inner.list(None).count().await, 0);
    }
}
