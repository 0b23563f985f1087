//! Faults of the object store at every call of a run, and two runs whose calls interleave in every
//! order. At any time the output holds the complete old result or the complete new one.

use crate::cli::small_lake;
use crate::faulty::{Conditions, Fault, FaultyStore, Pauses};
use crate::inside::immediate_cleaning;
use crate::lake::{Lake, TABLES};
use futures::future::BoxFuture;
use futures::task::noop_waker_ref;
use futures::{FutureExt, StreamExt};
use gyre::error::{Kind, Result};
use gyre::output::place::Output;
use gyre::output::pointer::Promotion;
use gyre::plan::pipeline::Pipeline;
use gyre::read::lake::Resources;
use gyre::read::paths::current::Current;
use gyre::run::counts::kind::CountsKind;
use gyre::run::options::Options;
use gyre::run::progress::Silent;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

/// Runs the small pipeline of a lake with a seed, with the output in a store.
async fn run_into(lake: &Lake, store: Arc<dyn ObjectStore>, seed: u64) -> Result<()> {
    let pipeline = Pipeline::from_file(lake.path("p.toml"))?;
    let resources = Resources {
        threads: 1,
        memory_bytes: None,
    };
    let inputs = pipeline.open_with(&resources, &Default::default()).await?;
    let planned = inputs.plan_as::<CountsKind>(Some(seed)).await?;
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

/// The tables of the current result.
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

/// The runs with a version in the store.
async fn versions(store: &InMemory) -> BTreeSet<String> {
    let folder = Path::from("out/versions");
    let found: Vec<_> = store.list(Some(&folder)).collect().await;
    let run = |meta: object_store::Result<ObjectMeta>| {
        let path = meta.expect("an object").location;
        let run = path
            .prefix_match(&folder)
            .expect("a path in the folder")
            .next();
        run.expect("a run").as_ref().to_string()
    };
    found.into_iter().map(run).collect()
}

/// Runs the cleaning, and asserts that the pointer names all remaining versions.
async fn clean(store: &InMemory) {
    let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
    let cleaning = immediate_cleaning(2);
    output.clean(&cleaning).await.expect("a store that works");
    let named = pointer(store).await.map(|p| {
        let runs = p.earlier.into_iter().chain([p.run]);
        runs.collect::<BTreeSet<_>>()
    });
    assert_eq!(versions(store).await, named.unwrap_or_default());
}

/// Kinds of failing calls.
const FAULTS: [(&str, usize, Fault); 3] = [
    ("a call fails", 1, Fault::Fails),
    ("the answer to a call is lost", 1, Fault::IsLost),
    ("the run dies", usize::MAX, Fault::Fails),
];

/// A restoration replaces the pointer as a run does. Both results stay, so it can be repeated and
/// undone.
#[tokio::test(flavor = "multi_thread")]
async fn a_fault_at_any_call_of_a_restoration_leaves_one_whole_result() {
    let lake = small_lake();
    let both = InMemory::new();
    let (mut runs, mut results) = (Vec::new(), Vec::new());
    for seed in [1, 2] {
        let ran = run_into(&lake, Arc::new(both.clone()), seed).await;
        ran.expect("a store that works");
        runs.push(pointer(&both).await.expect("a result").run);
        results.push(tables(&both).await);
    }
    let ([first, second], [earlier, latest]) = (&runs[..], &results[..]) else {
        panic!("there are two results");
    };
    assert_ne!(earlier, latest);

    for (what, many, fault) in FAULTS {
        let mut faults = 0;
        for at in 0.. {
            let faulty = FaultyStore {
                fails: at..at.saturating_add(many),
                fault,
                ..FaultyStore::around(both.fork())
            };
            let output = Output::in_store(Arc::new(faulty.clone()), Path::from("out"));
            let ended = output.restore(first).await;
            if faulty.calls.load(Ordering::SeqCst) <= at {
                assert!(ended.expect("no call failed"));
                break;
            }
            faults += 1;
            let place = format!("{what} at {at}");
            let store = faulty.inner;
            match &ended {
                Ok(is_changed) => {
                    assert!(*is_changed, "{place}");
                    assert_eq!(tables(&store).await, *earlier, "{place}");
                }
                Err(e) => {
                    let kind = e.kind();
                    let is_expected = matches!(kind, Kind::Store | Kind::Conflict);
                    assert!(is_expected, "{place}: {}", e.full());
                    assert_eq!(tables(&store).await, *latest, "{place}");
                }
            }
            clean(&store).await;

            let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
            let again = output.restore(first).await.expect("a second restoration");
            assert_eq!(again, ended.is_err(), "{place}");
            assert_eq!(tables(&store).await, *earlier, "{place}");
            let now = pointer(&store).await.expect("a result");
            assert_eq!((&now.run, &now.earlier[..]), (first, &runs[1..]), "{place}");

            let undone = output.restore(second).await.expect("the way back");
            assert!(undone, "{place}");
            assert_eq!(tables(&store).await, *latest, "{place}");
            clean(&store).await;
            assert_eq!(versions(&store).await.len(), 2, "{place}");
        }
        // The pointer, the record, the record of the version, its files, and the pointer again.
        assert!(faults >= 5, "only {faults} calls were made");
    }
}

/// The smallest run on an output. Its only table contains its id.
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
    output.put(&table, bytes.into_bytes()).await?;
    let promotion = Promotion {
        kind: "counts",
        plan,
        complete: true,
        tables: &BTreeMap::from([("sources", 1)]),
        keep: 2,
        record: &plan,
        begins: &|| Ok(()),
    };
    output.promote(&begun, &promotion).await
}

/// The run whose result a reader sees. Panics if the result is incomplete.
fn read_result(store: &InMemory) -> String {
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

/// Two runs alternate at an output with a result. `turn` selects the next one while both have calls
/// left. A reader checks the output after every step. Returns whether there was a conflict.
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
    let mut seen = BTreeSet::from([read_result(&store.inner)]);
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
        seen.insert(read_result(&store.inner));
    }
    let check = async {
        // Readers of every earlier pointer can still read the results that it named.
        for run in &seen {
            read_version(&store.inner, run).await;
        }
        let last = pointer(&store.inner).await.expect("a result");
        let named = last.earlier.iter().chain([&last.run]).cloned();
        assert_eq!(versions(&store.inner).await, named.collect());
        last
    };
    let last = check.now_or_never().expect("memory does not wait");
    match ends.map(|end| end.expect("both runs ended")) {
        [Ok(()), Ok(())] => {
            assert_eq!((seen.len(), last.earlier.len()), (3, 2));
            false
        }
        [Ok(()), Err(e)] | [Err(e), Ok(())] => {
            assert_eq!(e.kind(), Kind::Conflict, "{}", e.full());
            assert_eq!((seen.len(), last.earlier.len()), (2, 1));
            true
        }
        [Err(a), Err(b)] => panic!("both runs lost: {}; {}", a.full(), b.full()),
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
    // The turns so far, each with a flag whether the other choice is still to be tried.
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

/// A run is dropped before or after any of its calls, and abandoned. The current result is
/// complete, and the dropped run leaves no files unless it is the current result.
#[test]
fn a_run_dropped_at_any_call_leaves_one_whole_result() {
    for old in [InMemory::new(), one_result()] {
        let before = pointer(&old).now_or_never().expect("memory does not wait");
        let (mut is_done, mut removed, mut kept, mut replaced) = (false, 0, 0, 0);
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
                    if versions(&store.inner).await == named.collect() {
                        removed += 1
                    } else {
                        kept += 1
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
        // If the run is dropped while it puts the pointer, the outcome is unknown, and its version
        // remains for `clean`.
        assert!(
            removed > 10 && kept == 1 && replaced > 1,
            "{removed} {kept} {replaced}"
        );
    }
}

/// Without conditional puts, two runs could overwrite each other.
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
        let message = "the store of out does not support conditional puts";
        assert!(error.full().contains(message), "{}", error.full());
        assert_eq!(store.inner.list(None).count().await, 0);
    }
}
