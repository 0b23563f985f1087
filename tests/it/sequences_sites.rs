//! Runs over sequences whose windows are counted and decomposed as tasks.

use crate::cli::integers;
use crate::cluster_runs::WatchedRun;
use crate::inside::{assert_tasks_agree, take_tables};
use crate::lake::Lake;
use crate::machines::Machines;
use arrow::array::StringArray;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
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
        let tables = assert_tasks_agree(&lake, text, rounds).await;
        assert!(!tables["triples"].is_empty());
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
    let expected = take_tables(&machines.lake);
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
    assert!(take_tables(&machines.lake) == expected, "{stages:?}");
    assert!(stages.contains(&"project".to_string()), "{stages:?}");
}
