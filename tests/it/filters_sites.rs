//! Runs of filters whose fits and rows are tasks.

use crate::cli::integers;
use crate::cluster_runs::WatchedRun;
use crate::inside::{assert_tasks_agree, take_tables};
use crate::lake::Lake;
use crate::machines::Machines;
use arrow::array::{ArrayRef, Float64Array, StringArray};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

/// Filters of trajectories with gaps and missing observations, with supervision of single steps.
const TRAJECTORIES: &str = r#"
[job]
name = "filters"
output = "FOLDER/out"

[tables.walks]
path = "FOLDER/walks/"

[sequences]
sql = "SELECT * FROM walks WHERE t % 23 <> 22"
trajectory = "id"
time = "t"
interval = 1
state = ["y"]
observation = ["a", "b"]
split = "split"
partition_by = ["part"]

[[fit]]
name = "kf"
method = "kalman"

[[fit]]
name = "exact"
method = "kernel_bayes"
rule = "kregbayes"
supervision = { sql = "SELECT id, t, y, a, b FROM walks WHERE t % 10 = 3 AND a IS NOT NULL" }
bandwidth = "median"
lambda = 1e-3

[[fit]]
name = "tensor"
method = "kernel_bayes"
rule = "kbr"
bandwidth = { state = 1.0, observation = 1.0 }
lambda = 1e-3
exact = 20
rank_state = 8
rank_observation = 12
"#;

/// Posteriors of independent rows.
const STATIC: &str = r#"
[job]
name = "filters"
output = "FOLDER/out"

[tables.walks]
path = "FOLDER/walks/"

[sequences]
sql = "SELECT * FROM walks WHERE t < 12"
id = ["id", "t"]
state = ["y"]
observation = ["a", "b"]
split = "split"

[output]
posteriors = true

[[fit]]
name = "bayes"
method = "kernel_bayes"
bandwidth = "median"
lambda = 1e-3
"#;

/// Rows of walks in three parts, shuffled over five files.
fn walks(lake: &Lake, steps: i64) {
    let mut random = Pcg64::seed_from_u64(5);
    let mut rows: Vec<(i64, i64, i64, f64, Option<f64>, f64)> = Vec::new();
    for id in 0..24 {
        let mut y = 0.0f64;
        for t in 0..steps {
            y = 0.9 * y + random.random_range(-1.0..1.0);
            let a = (t % 7 != 5).then(|| y + random.random_range(-0.5..0.5));
            let b = y * y + random.random_range(-0.5..0.5);
            rows.push((id % 3, id, t, y, a, b));
        }
    }
    rows.shuffle(&mut random);
    for (file, rows) in rows.chunks(rows.len().div_ceil(5)).enumerate() {
        let floats = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
        let splits = rows.iter().map(|row| match row.1 {
            0..18 => Some("train"),
            18..22 => Some("test"),
            _ => None,
        });
        let missing: Float64Array = rows.iter().map(|row| row.4).collect();
        let columns = vec![
            ("part", integers(rows.iter().map(|row| row.0))),
            ("id", integers(rows.iter().map(|row| row.1))),
            ("t", integers(rows.iter().map(|row| row.2))),
            ("y", floats(rows.iter().map(|row| row.3).collect())),
            ("a", Arc::new(missing) as _),
            ("b", floats(rows.iter().map(|row| row.5).collect())),
            ("split", Arc::new(splits.collect::<StringArray>()) as _),
        ];
        lake.table(&format!("walks/{file}.parquet"), columns);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_as_tasks_give_the_same_bytes() {
    let lake = Lake::new();
    walks(&lake, 60);
    let all = format!("{TRAJECTORIES}\n[output]\nrows = \"all\"\n");
    let whole = TRAJECTORIES.replace("partition_by = [\"part\"]", "");
    for text in [TRAJECTORIES, &all, &whole, STATIC] {
        let tables = assert_tasks_agree(&lake, text, &["fit", "deal", "rows"]).await;
        assert!(!tables["estimates"].is_empty());
    }
}

#[test]
fn filters_on_executors_survive_the_death_of_one() {
    let mut machines = Machines::start(2);
    walks(&machines.lake, 60);
    let text = TRAJECTORIES.replace("FOLDER/", "");
    machines.lake.file("p.toml", &text);
    machines.lake.gyre(&["run", "p.toml"]).succeeds();
    let expected = take_tables(&machines.lake);
    let mut run = WatchedRun::start(&machines);
    let mut stages = Vec::new();
    while let Some(stage) = run.next() {
        if stage == "fit" || stage == "rows" {
            drop(machines.executors.remove(0));
            machines.executors.push(machines.executor());
        }
        stages.push(stage);
    }
    run.end().succeeds();
    assert!(take_tables(&machines.lake) == expected, "{stages:?}");
    assert!(stages.contains(&"rows".to_string()), "{stages:?}");
}
