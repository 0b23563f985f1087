//! Runs of a pipeline in this process, whose counts and fits may be tasks that are done in any order, more than once, or lost.

use crate::lake::Lake;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use gyre::cluster::nodes::{Nodes, Task};
use gyre::cluster::site::{Remote, SPLIT};
use gyre::cluster::task::perform;
use gyre::error::{Error, Result};
use gyre::plan::pipeline::Pipeline;
use gyre::read::lake::Resources;
use gyre::run::local::Local;
use gyre::run::progress::Silent;
use gyre::run::{Options, Outcome};
use gyre::store::Stores;
use object_store::ObjectStoreExt;
use object_store::path::Path;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, Mutex};

pub const RESOURCES: Resources = Resources {
    threads: 2,
    memory_bytes: None,
};

/// How tasks are done.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Way {
    InOrder,
    /// Several at once, in an order of this seed.
    Shuffled(u64),
    /// Each again, after all others.
    Twice,
    /// The first answers get lost, and so do those of a process that dies with half of its tasks.
    Lost,
}

/// Does tasks in this process.
pub struct Inside {
    way: Way,
    /// The names of all rounds, and of their tasks.
    pub asked: Mutex<Vec<(&'static str, Vec<String>)>>,
    /// Called before each round.
    before: Box<dyn Fn(&'static str) + Send + Sync>,
}

impl Inside {
    pub fn new(way: Way) -> Arc<Inside> {
        Inside::before(way, |_| ())
    }

    pub fn before(way: Way, before: impl Fn(&'static str) + Send + Sync + 'static) -> Arc<Inside> {
        Arc::new(Inside {
            way,
            asked: Mutex::default(),
            before: Box::new(before),
        })
    }

    pub fn rounds(&self) -> Vec<&'static str> {
        let asked = self.asked.lock().expect("a list");
        asked.iter().map(|(stage, _)| *stage).collect()
    }

    /// The tasks of the largest round of a name.
    pub fn most(&self, stage: &str) -> usize {
        let asked = self.asked.lock().expect("a list");
        let own = asked.iter().filter(|(name, _)| *name == stage);
        own.map(|(_, tasks)| tasks.len()).max().unwrap_or(0)
    }

    async fn each(&self, tasks: &[Task], at_once: usize) -> Vec<Result<Vec<u8>>> {
        let mut order: Vec<usize> = (0..tasks.len()).collect();
        if let Way::Shuffled(seed) = self.way {
            order.shuffle(&mut Pcg64::seed_from_u64(seed));
        }
        let one = |at: usize| {
            let done = tokio::spawn(perform(&tasks[at].bytes, &RESOURCES));
            async move { (at, done.await.expect("a task lives")) }
        };
        let done = stream::iter(order).map(one).buffer_unordered(at_once);
        let mut done: Vec<_> = done.collect().await;
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, answer)| answer).collect()
    }
}

impl Nodes for Inside {
    fn slots(&self) -> usize {
        4
    }

    fn run<'a>(
        &'a self,
        stage: &'static str,
        tasks: Vec<Task>,
        heard: &'a (dyn Fn(usize) + Sync),
    ) -> BoxFuture<'a, Result<Vec<Result<Vec<u8>>>>> {
        Box::pin(async move {
            (self.before)(stage);
            let names = tasks.iter().map(Task::id).collect();
            self.asked.lock().expect("a list").push((stage, names));
            let answers = match self.way {
                Way::InOrder => self.each(&tasks, 1).await,
                Way::Shuffled(_) => self.each(&tasks, 4).await,
                Way::Twice => {
                    let first = self.each(&tasks, 2).await;
                    let again = self.each(&tasks, 2).await;
                    // Models tell how long they took.
                    if stage != "fit" {
                        for (one, other) in first.iter().zip(&again) {
                            let (Ok(one), Ok(other)) = (one, other) else {
                                continue;
                            };
                            assert!(one == other, "{stage}");
                        }
                    }
                    again
                }
                Way::Lost => {
                    let half = &tasks[..tasks.len().div_ceil(2)];
                    drop(self.each(half, 2).await);
                    self.each(&tasks, 2).await
                }
            };
            heard(answers.len());
            Ok(answers)
        })
    }
}

/// What a run came to, but for its times.
#[derive(Debug, PartialEq)]
pub struct Ended {
    pub tables: BTreeMap<String, Vec<u8>>,
    pub record: Value,
    /// Why one task has counted all rows.
    pub alone: Option<String>,
}

pub async fn run_in(lake: &Lake, text: &str, nodes: Option<Arc<dyn Nodes>>) -> Result<Ended> {
    run_split(lake, text, nodes, SPLIT).await
}

/// The same where models of more than so many non-zeros are fitted pass by pass.
pub async fn run_split(
    lake: &Lake,
    text: &str,
    nodes: Option<Arc<dyn Nodes>>,
    split: u64,
) -> Result<Ended> {
    let text = text.replace("FOLDER", &lake.folder.path().display().to_string());
    let spec = Pipeline::parse(&text, "p.toml", &[], &|_| None)?;
    let inputs = spec.open_with(&RESOURCES, &Stores::default()).await?;
    let planned = inputs.plan().await?;
    let output = planned.output()?;
    let options = Options {
        site: match nodes {
            Some(nodes) => Arc::new(Remote { nodes, split }),
            None => Arc::new(Local),
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
    let left = place
        .store
        .list(Some(&place.path))
        .map_ok(|meta| meta.location);
    let left: Vec<Path> = left.try_collect().await.expect("a list");
    let work = left.iter().find(|path| path.as_ref().contains("/work/"));
    assert_eq!(work, None);
    match place.folder {
        Some(folder) => fs::remove_dir_all(folder).expect("an output"),
        None => {
            for path in &left {
                place.store.delete(path).await.expect("it is there");
            }
        }
    }
    let alone = record.increment.as_ref().map(|i| i.what.clone());
    let record = json!({
        "rows": record.head.rows_read,
        "dropped": record.head.rows_dropped,
        "failures": record.head.failures,
        "empty": record.empty,
        "tables": record.head.tables,
        "transitions": record.transitions,
        "labels": record.labels,
        "models": record.models,
    });
    Ok(Ended {
        tables,
        record: without_times(record),
        alone,
    })
}

fn without_times(value: Value) -> Value {
    match value {
        Value::Object(keys) => {
            let kept = keys.into_iter();
            let kept = kept.filter(|(key, _)| !key.ends_with("seconds") && key != "steps");
            Value::Object(
                kept.map(|(key, value)| (key, without_times(value)))
                    .collect(),
            )
        }
        Value::Array(values) => Value::Array(values.into_iter().map(without_times).collect()),
        other => other,
    }
}

#[track_caller]
pub fn same(one: &Ended, other: &Ended, what: &dyn std::fmt::Debug) {
    assert_eq!(one.record, other.record, "{what:?}");
    let names = |ended: &Ended| ended.tables.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(one), names(other), "{what:?}");
    for (name, bytes) in &one.tables {
        assert!(*bytes == other.tables[name], "{name} differs: {what:?}");
    }
}
