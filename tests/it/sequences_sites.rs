//! Runs over sequences whose windows are counted and decomposed as tasks.

use crate::cli::integers;
use crate::cluster_runs::WatchedRun;
use crate::inside::{InProcess, RESOURCES, Schedule};
use crate::lake::Lake;
use crate::machines::Machines;
use arrow::array::StringArray;
use gyre::cluster::rounds::sequences::RemoteSequences;
use gyre::plan::pipeline::Pipeline;
use gyre::run::options::{Options, Sites};
use gyre::run::progress::Silent;
use gyre::run::sequences::SequencesOutcome;
use gyre::run::sequences::record::SequencesRecord;
use gyre::run::sequences::site::{LocalSequences, SequenceSite};
use gyre::store::Stores;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

/// Windows of three rows of a chain, with gaps, and with resamples and folds of trajectories.
const PIPELINE: &str = r#"
[job]
name = "sequences"
output = "FOLDER/out"

[tables.walks]
path = "FOLDER/walks/"

[sequences]
sql = "SELECT * FROM walks WHERE t % 50 <> 49"
trajectory = "id"
time = "t"
interval = 1
symbol = "s"
partition_by = ["part"]

[[fit]]
name = "auto"
method = "spectral_hmm"
rank = "auto"
ranks = [1, 2, 3]

[[fit]]
name = "plain"
method = "spectral_hmm"
rank = 2
scaling = "none"

[validation]
bootstrap = 3
folds = 2
"#;

/// Rows of walks in three parts, shuffled over five files.
fn walks(lake: &Lake, steps: i64) {
    let mut random = Pcg64::seed_from_u64(5);
    let mut rows: Vec<(i64, i64, i64, String)> = Vec::new();
    for id in 0..24 {
        let mut state = 0;
        for t in 0..steps {
            state = (state + random.random_range(1..4) / 2) % 6;
            rows.push((id % 3, id, t, format!("page {state}")));
        }
    }
    rows.shuffle(&mut random);
    for (file, rows) in rows.chunks(rows.len().div_ceil(5)).enumerate() {
        let symbols = rows.iter().map(|row| &row.3);
        let columns = vec![
            ("part", integers(rows.iter().map(|row| row.0))),
            ("id", integers(rows.iter().map(|row| row.1))),
            ("t", integers(rows.iter().map(|row| row.2))),
            ("s", Arc::new(StringArray::from_iter_values(symbols)) as _),
        ];
        lake.table(&format!("walks/{file}.parquet"), columns);
    }
}

type Tables = BTreeMap<String, Vec<u8>>;

/// The tables of the output, which is removed.
fn tables_of(lake: &Lake) -> Tables {
    let folders = fs::read_dir(lake.path("out")).expect("an output");
    let names = folders.map(|entry| entry.expect("an entry").file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let tables = names.filter_map(|name| {
        let table = fs::read(lake.path(&format!("out/{name}/part-0.parquet"))).ok()?;
        Some((name, table))
    });
    let tables = tables.collect();
    fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    tables
}

/// Runs a pipeline at a site. Returns its tables and its record.
async fn run_at(lake: &Lake, text: &str, site: Arc<dyn SequenceSite>) -> (Tables, SequencesRecord) {
    let text = text.replace("FOLDER", &lake.folder.path().display().to_string());
    let pipeline = Pipeline::parse(&text, "p.toml", &[], &|_| None).expect("a pipeline");
    let inputs = pipeline.open_with(&RESOURCES, &Stores::default()).await;
    let planned = inputs.expect("a lake").plan_sequences(None).await;
    let planned = planned.expect("a plan");
    let output = planned.output().expect("an output");
    let options = Options {
        sites: Sites {
            sequences: site,
            ..Sites::default()
        },
        ..Options::default()
    };
    let ended = planned.run(&output, &options, Arc::new(Silent)).await;
    let SequencesOutcome::Done(record) = ended.expect("a result") else {
        panic!("there was a result");
    };
    let work = fs::read_dir(lake.path("out/work")).map_or(0, |plans| plans.count());
    assert_eq!(work, 0, "the run left working files");
    let tables = tables_of(lake);
    assert!(tables.keys().eq(record.head.tables.keys()));
    (tables, *record)
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_counted_as_tasks_give_the_same_bytes() {
    let lake = Lake::new();
    walks(&lake, 120);
    let whole = PIPELINE.replace("partition_by = [\"part\"]", "");
    let long = whole.replace("rank = 2", "rank = 2\nblock = 2");
    let long = long.replace("ranks = [1, 2, 3]", "ranks = [1, 2, 3]\nblock = 2");
    let by_part = &["deal", "sum", "count", "project"][..];
    let of_all = &["deal", "sum", "add", "count", "project"];
    for (text, rounds) in [(PIPELINE, by_part), (&whole, of_all), (&long, of_all)] {
        let (expected, local) = run_at(&lake, text, Arc::new(LocalSequences)).await;
        assert!(!expected["triples"].is_empty());
        for schedule in [Schedule::InOrder, Schedule::Shuffled(3), Schedule::Lost] {
            let nodes = InProcess::new(schedule);
            let site = Arc::new(RemoteSequences::new(nodes.clone()));
            let (tables, record) = run_at(&lake, text, site).await;
            assert_eq!(nodes.rounds(), rounds);
            assert_eq!(record.head.rows_read, local.head.rows_read);
            for (name, bytes) in &expected {
                assert!(*bytes == tables[name], "{name} differs: {schedule:?}");
            }
        }
    }
}

#[test]
fn sequences_on_executors_survive_the_death_of_one() {
    let mut machines = Machines::start(2);
    walks(&machines.lake, 120);
    machines
        .lake
        .file("p.toml", &PIPELINE.replace("FOLDER/", ""));
    machines.lake.gyre(&["run", "p.toml"]).succeeds();
    let expected = tables_of(&machines.lake);
    let mut run = WatchedRun::start(&machines);
    let mut stages = Vec::new();
    while let Some(stage) = run.next() {
        if stage == "sum" || stage == "project" {
            drop(machines.executors.remove(0));
            machines.executors.push(machines.executor());
        }
        stages.push(stage);
    }
    run.end().succeeds();
    assert!(tables_of(&machines.lake) == expected, "{stages:?}");
    assert!(stages.contains(&"project".to_string()), "{stages:?}");
}
