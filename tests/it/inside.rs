//! Runs of a pipeline in this process. Counts and fits can be tasks that run in any order, run
//! twice, or lose their answers.

use crate::lake::Lake;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use gyre::error::{Error, Result};
use gyre::output::retention::Cleaning;
use gyre::plan::pipeline::Pipeline;
use gyre::read::lake::Resources;
use gyre::run::Outcome;
use gyre::run::options::Options;
use gyre::run::planned::{kinds, perform_task};
use gyre::run::progress::{Progress, Silent};
use gyre::run::workers::nodes::{Nodes, Task};
use gyre::run::workers::{SPLIT, Workers};
use gyre::store::Stores;
use jiff::SignedDuration;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

pub const RESOURCES: Resources = Resources {
    threads: 2,
    memory_bytes: None,
};

/// A cleaning that keeps this number of earlier results and no young files.
pub fn immediate_cleaning(keep: usize) -> Cleaning {
    Cleaning {
        keep,
        older_than: SignedDuration::ZERO,
        dry_run: false,
    }
}

/// The order in which tasks run, and how often.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Schedule {
    InOrder,
    /// Several tasks at the same time, in an order from this seed.
    Shuffled(u64),
    /// All tasks run twice, one after the other.
    Twice,
    /// The first answers are lost, as from a process that dies after half of its tasks.
    Lost,
}

/// Executes tasks in this process.
pub struct InProcess {
    schedule: Schedule,
    /// The stage and the task names of every round.
    pub submitted: Mutex<Vec<(&'static str, Vec<String>)>>,
    /// Called before each round.
    before: Box<dyn Fn(&'static str) + Send + Sync>,
}

impl InProcess {
    pub fn new(schedule: Schedule) -> Arc<InProcess> {
        InProcess::before(schedule, |_| ())
    }

    pub fn before(
        schedule: Schedule,
        before: impl Fn(&'static str) + Send + Sync + 'static,
    ) -> Arc<InProcess> {
        Arc::new(InProcess {
            schedule,
            submitted: Mutex::default(),
            before: Box::new(before),
        })
    }

    pub fn rounds(&self) -> Vec<&'static str> {
        let submitted = self.submitted.lock().expect("a list");
        submitted.iter().map(|(stage, _)| *stage).collect()
    }

    /// The number of tasks in the largest round of a stage.
    pub fn largest_round(&self, stage: &str) -> usize {
        let submitted = self.submitted.lock().expect("a list");
        let own = submitted.iter().filter(|(name, _)| *name == stage);
        own.map(|(_, tasks)| tasks.len()).max().unwrap_or(0)
    }

    async fn perform_all(&self, tasks: &[Task], at_once: usize) -> Vec<Result<Vec<u8>>> {
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        if let Schedule::Shuffled(seed) = self.schedule {
            order.shuffle(&mut Pcg64::seed_from_u64(seed));
        }
        let one = |at: usize| {
            let done = tokio::spawn(perform_task(&kinds(), &tasks[at].bytes, &RESOURCES));
            async move { (at, done.await.expect("a task ends")) }
        };
        let done = stream::iter(order).map(one).buffer_unordered(at_once);
        let mut done: Vec<_> = done.collect().await;
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, answer)| answer).collect()
    }
}

impl Nodes for InProcess {
    fn slots(&self) -> usize {
        4
    }

    fn run<'a>(
        &'a self,
        stage: &'static str,
        tasks: Vec<Task>,
        on_answers: &'a (dyn Fn(usize) + Sync),
    ) -> BoxFuture<'a, Result<Vec<Result<Vec<u8>>>>> {
        Box::pin(async move {
            (self.before)(stage);
            let names = tasks.iter().map(Task::id).collect();
            self.submitted.lock().expect("a list").push((stage, names));
            let answers = match self.schedule {
                Schedule::InOrder => self.perform_all(&tasks, 1).await,
                Schedule::Shuffled(_) => self.perform_all(&tasks, 4).await,
                Schedule::Twice => {
                    let first = self.perform_all(&tasks, 2).await;
                    let second = self.perform_all(&tasks, 2).await;
                    // Models contain the time that they took.
                    if stage != "fit" {
                        for (one, other) in first.iter().zip(&second) {
                            let (Ok(one), Ok(other)) = (one, other) else {
                                continue;
                            };
                            assert!(one == other, "{stage}");
                        }
                    }
                    second
                }
                Schedule::Lost => {
                    let half = &tasks[..tasks.len().div_ceil(2)];
                    drop(self.perform_all(half, 2).await);
                    self.perform_all(&tasks, 2).await
                }
            };
            on_answers(answers.len());
            Ok(answers)
        })
    }
}

/// The result of a run without its times.
#[derive(Debug, PartialEq)]
pub struct RunResult {
    pub tables: BTreeMap<String, Vec<u8>>,
    pub record: Value,
    /// Why a single task has counted all rows.
    pub single_task_reason: Option<String>,
}

pub async fn run_in(lake: &Lake, text: &str, nodes: Option<Arc<dyn Nodes>>) -> Result<RunResult> {
    run_split(lake, text, nodes, SPLIT).await
}

/// As `run_in`. Models of more than `split` non-zeros are fitted pass by pass.
pub async fn run_split(
    lake: &Lake,
    text: &str,
    nodes: Option<Arc<dyn Nodes>>,
    split: u64,
) -> Result<RunResult> {
    let text = text.replace("FOLDER", &lake.folder.path().display().to_string());
    let spec = Pipeline::parse(&text, "p.toml", &[], &|_| None)?;
    let inputs = spec.open_with(&RESOURCES, &Stores::default()).await?;
    let planned = inputs.plan().await?;
    let output = planned.output()?;
    let options = Options {
        workers: match nodes {
            Some(nodes) => Workers::Remote { nodes, split },
            None => Workers::Local,
        },
        ..Options::default()
    };
    let run = planned.run_with(&output, &options, Arc::new(Silent));
    let record = match run.await? {
        Outcome::Done(record) => record,
        Outcome::NothingToDo => return Err(Error::bug("there was a result")),
    };
    let current = output.current().await?.expect("a result");
    let mut tables = BTreeMap::new();
    for name in record.head.tables.keys() {
        let table = output.store.get(&output.table(&current, name)).await;
        let bytes = table.expect("a table").bytes().await.expect("bytes");
        tables.insert(name.to_string(), bytes.to_vec());
    }
    let place = Stores::default().open(output.shown())?;
    let remaining = place.store.list(Some(&place.path));
    let remaining = remaining.map_ok(|meta| meta.location);
    let remaining: Vec<Path> = remaining.try_collect().await.expect("a list");
    let is_work = |path: &&Path| path.as_ref().contains("/work/");
    assert_eq!(remaining.iter().find(is_work), None);
    match place.folder {
        Some(folder) => fs::remove_dir_all(folder).expect("an output"),
        None => {
            for path in &remaining {
                let deleted = place.store.delete(path).await;
                deleted.expect("the object is deleted");
            }
        }
    }
    let single_task_reason = record.increment.as_ref().map(|i| i.what.clone());
    let record = json!({
        "rows": record.head.rows_read,
        "dropped": record.head.rows_dropped,
        "failures": record.head.failures,
        "empty": record.empty,
        "tables": record.head.tables,
        "transitions": record.facts.transitions,
        "labels": record.facts.labels,
        "models": record.models,
    });
    Ok(RunResult {
        tables,
        record: without_times(record),
        single_task_reason,
    })
}

fn without_times(value: Value) -> Value {
    match value {
        Value::Object(keys) => {
            let kept = keys.into_iter();
            let kept = kept.filter(|(key, _)| !key.ends_with("seconds") && key != "steps");
            let kept = kept.map(|(key, value)| (key, without_times(value)));
            Value::Object(kept.collect())
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_times).collect()),
        other => other,
    }
}

#[track_caller]
pub fn assert_equal_results(one: &RunResult, other: &RunResult, what: &dyn std::fmt::Debug) {
    assert_eq!(one.record, other.record, "{what:?}");
    let names = |ended: &RunResult| ended.tables.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(one), names(other), "{what:?}");
    for (name, bytes) in &one.tables {
        assert!(*bytes == other.tables[name], "{name} differs: {what:?}");
    }
}

/// The bytes of each table.
pub type Tables = BTreeMap<String, Vec<u8>>;

/// The tables of the output `out`, which is removed.
pub fn take_tables(lake: &Lake) -> Tables {
    let tables = lake.tables_of("out");
    fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    tables
}

/// Notifies when a stage begins.
struct At(&'static str, Arc<Notify>);

impl Progress for At {
    fn stage(&self, name: &'static str, _: Option<u64>) {
        if name == self.0 {
            self.1.notify_one();
        }
    }
}

/// Runs a pipeline over any kind of rows, and stops the run when a stage begins.
pub async fn stop_at(lake: &Lake, text: &str, stage: &'static str) {
    let text = text.replace("FOLDER", &lake.folder.path().display().to_string());
    let pipeline = Pipeline::parse(&text, "p.toml", &[], &|_| None).expect("a pipeline");
    let inputs = pipeline.open_with(&RESOURCES, &Stores::default()).await;
    let planned = inputs.expect("a lake").plan_any(None).await;
    let planned = planned.expect("a plan");
    let output = planned.output().expect("an output");
    let options = Options {
        keep_every: Duration::ZERO,
        ..Options::default()
    };
    let stopped = Arc::new(Notify::new());
    let progress = Arc::new(At(stage, Arc::clone(&stopped)));
    tokio::select! {
        biased;
        () = stopped.notified() => output.abandon().await,
        _ = planned.run(&output, &options, progress) => panic!("the run was not stopped"),
    }
    assert!(!lake.path("out/fits").exists());
}

/// Runs a pipeline over any kind of rows with some workers. Returns its tables and its record.
pub async fn run_with(lake: &Lake, text: &str, workers: Workers) -> Result<(Tables, Value)> {
    let text = text.replace("FOLDER", &lake.folder.path().display().to_string());
    let pipeline = Pipeline::parse(&text, "p.toml", &[], &|_| None)?;
    let inputs = pipeline.open_with(&RESOURCES, &Stores::default()).await?;
    let run = inputs.plan_any(None).await?;
    let output = run.output()?;
    let options = Options {
        keep_every: Duration::ZERO,
        workers,
        ..Options::default()
    };
    let ended = run.run(&output, &options, Arc::new(Silent)).await?;
    assert!(ended.is_some(), "there was a result");
    let record = output.last_record().await?.expect("a record");
    let work = lake.names("out/work").len();
    assert_eq!(work, 0, "the run left working files");
    let tables = take_tables(lake);
    let recorded = record["tables"].as_object().expect("tables");
    let mut recorded: Vec<&String> = recorded.keys().collect();
    recorded.sort_unstable();
    assert!(tables.keys().eq(recorded));
    Ok((tables, record))
}

/// Asserts that a run whose work is tasks has these rounds, and the bytes of a run in one process.
/// Returns the tables.
#[cfg(feature = "cluster")]
pub async fn assert_tasks_agree(lake: &Lake, text: &str, rounds: &[&str]) -> Tables {
    let (expected, local) = run_with(lake, text, Workers::Local).await.expect("tables");
    for schedule in [Schedule::InOrder, Schedule::Shuffled(3), Schedule::Lost] {
        let nodes = InProcess::new(schedule);
        let workers = Workers::Remote {
            nodes: nodes.clone(),
            split: SPLIT,
        };
        let (tables, record) = run_with(lake, text, workers).await.expect("tables");
        assert_eq!(nodes.rounds(), rounds);
        assert_eq!(record["rows_read"], local["rows_read"]);
        for (name, bytes) in &expected {
            assert!(*bytes == tables[name], "{name} differs: {schedule:?}");
        }
    }
    expected
}
