//! Runs over points at other sites: as tasks, on executors, and after a run that did not end.

use crate::cli::integers;
use crate::cluster_runs::WatchedRun;
use crate::inside::{assert_tasks_agree, run_with, stop_at, take_tables};
use crate::lake::Lake;
use crate::machines::Machines;
use arrow::array::{ArrayRef, Float64Array};
use gyre::run::workers::Workers;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::Value;
use std::sync::Arc;

const PAIRS: &str = r#"
[job]
name = "points"
output = "FOLDER/out"

[tables.walks]
path = "FOLDER/walks/"

[transitions]
sql = "SELECT * FROM walks WHERE t % 50 <> 49"
trajectory = "id"
time = "t"
lag = [1, 3]
coordinates = ["x", "y"]
scale = "standard"
partition_by = ["part"]

[[fit]]
name = "states"
method = "state_embedding"
rank = 3
features = 60
bandwidth = "held-out"
clusters = 2

[[fit]]
name = "near"
method = "state_embedding"
rank = [2, 3]
features = 60
bandwidth = 1.0
"#;

const MAPS: &str = r#"
[job]
name = "points"
output = "FOLDER/out"

[tables.walks]
path = "FOLDER/walks/"

[points]
sql = "SELECT * FROM walks WHERE t < 40"
id = ["id", "t"]
coordinates = ["x", "y"]
partition_by = ["part"]

[[fit]]
name = "map"
method = "diffusion_map"
dimension = 2
neighbours = 16

[[fit]]
name = "sketch"
method = "heat_sketch"
dimension = 3
power = [2, 4]
landmarks = 60
"#;

/// Rows of walks in three parts, shuffled over five files.
fn walks(lake: &Lake, steps: i64) {
    let mut random = Pcg64::seed_from_u64(5);
    let mut rows: Vec<(i64, i64, i64, f64, f64)> = Vec::new();
    for id in 0..24 {
        let (mut x, mut y) = (0.0f64, 0.0f64);
        for t in 0..steps {
            rows.push((id % 3, id, t, x, y));
            x = 0.9 * x + random.random_range(-1.0..1.0);
            y = 0.5 * y + random.random_range(-1.0..1.0);
        }
    }
    rows.shuffle(&mut random);
    for (file, rows) in rows.chunks(rows.len().div_ceil(5)).enumerate() {
        let float = |of: fn(&(i64, i64, i64, f64, f64)) -> f64| -> ArrayRef {
            Arc::new(Float64Array::from_iter_values(rows.iter().map(of)))
        };
        let columns = vec![
            ("part", integers(rows.iter().map(|row| row.0))),
            ("id", integers(rows.iter().map(|row| row.1))),
            ("t", integers(rows.iter().map(|row| row.2))),
            ("x", float(|row| row.3)),
            ("y", float(|row| row.4)),
        ];
        lake.table(&format!("walks/{file}.parquet"), columns);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn points_as_tasks_give_the_same_bytes() {
    let lake = Lake::new();
    walks(&lake, 300);
    // Only one of both fits has all points.
    let landmarks = MAPS.replace("neighbours = 16", "landmarks = 40");
    for (text, rounds) in [
        (PAIRS, &["deal", "survey", "sum", "sum", "rows"][..]),
        (MAPS, &["deal", "survey", "fit"]),
        (&landmarks, &["deal", "survey", "fit", "rows"]),
    ] {
        let tables = assert_tasks_agree(&lake, text, rounds).await;
        assert!(!tables["points"].is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_continues_from_the_sums_and_fits_of_one_that_did_not_end() {
    let lake = Lake::new();
    walks(&lake, 300);
    // Sums for the bandwidths and for the fits; the maps of three partitions.
    for (text, pieces) in [(PAIRS, 2), (MAPS, 3)] {
        let (expected, record) = run_with(&lake, text, Workers::Local).await.expect("tables");
        assert_eq!(record["resumed"], Value::Null);
        stop_at(&lake, text, "rows").await;
        let (tables, record) = run_with(&lake, text, Workers::Local).await.expect("tables");
        assert_eq!(record["resumed"]["pieces"], pieces);
        assert!(tables == expected);
    }
}

// 3·n²·8 bytes of a full kernel of 6,000 points are 824 MB.
#[test]
fn a_kernel_that_does_not_fit_into_memory_is_refused_before_it_is_computed() {
    let lake = Lake::new();
    walks(&lake, 750);
    let text = MAPS
        .replace("FOLDER/", "")
        .replace("WHERE t < 40", "WHERE part = 0");
    lake.file("p.toml", &text);
    let bounded = ["run", "p.toml", "--threads", "2", "--memory", "300MB"];
    let full = ["--set", "fit.map.neighbours=\"all\""];
    let refused = lake.gyre(&[&bounded[..], &full].concat());
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    let what = "fit `map` needs 1036MB for 6000 points of 2 coordinates and 2 threads; --memory is \
                300MB: give at least 1036MB, or set `landmarks` or fewer `neighbours`";
    assert!(refused.err.contains(what), "{}", refused.err);
    lake.gyre(&bounded).succeeds();
    let plan = lake.gyre(&[&["plan", "p.toml", "--threads", "2"], &full[..]].concat());
    let out = plan.succeeds().out;
    assert!(out.contains("  memory at most "), "{out}");
    let json = lake.gyre(&["plan", "p.toml", "--json"]).succeeds().out;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["memory"]["rows"], 6000);
    assert_eq!(json["fit"][1]["method"], "heat_sketch");
}

#[test]
fn points_on_executors_survive_the_death_of_one() {
    let mut machines = Machines::start(2);
    walks(&machines.lake, 600);
    for text in [PAIRS, MAPS] {
        machines.lake.file("p.toml", &text.replace("FOLDER/", ""));
        machines.lake.gyre(&["run", "p.toml"]).succeeds();
        let expected = take_tables(&machines.lake);
        let mut run = WatchedRun::start(&machines);
        let mut stages = Vec::new();
        while let Some(stage) = run.next() {
            if stage == "sum" || stage == "fit" {
                drop(machines.executors.remove(0));
                machines.executors.push(machines.executor());
            }
            stages.push(stage);
        }
        run.end().succeeds();
        assert!(take_tables(&machines.lake) == expected, "{stages:?}");
        assert!(stages.contains(&"deal".to_string()), "{stages:?}");
    }
}
