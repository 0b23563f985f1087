//! Runs with a memory limit.

use crate::lake::Lake;
use serde_json::Value;
use std::fs;

/// Seven million pairs, almost all different, so that counts and shards need most of the memory.
/// Resamples need several times as much.
const PIPELINE: &str = r#"
[job]
name = "large"
output = "out"

[tables.rows]
path = "rows.csv"

[transitions]
sql = "SELECT value % 5003 AS a, (value * 7919 + value / 5003 * 31) % 4999 AS b, value % 3 + 1 AS n FROM range(0, 7000000)"
source = "a"
target = "b"
count = "n"

[[fit]]
name = "svd"
method = "svd"
rank = 3
restarts = 1

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 3
restarts = 2

[validation]
bootstrap = 2
"#;

fn record(lake: &Lake) -> Value {
    let folder = fs::read_dir(lake.path("out/runs")).expect("records");
    let path = folder.last().expect("a record").expect("an entry").path();
    serde_json::from_slice(&fs::read(path).expect("a record")).expect("JSON")
}

#[test]
fn rows_that_exceed_memory_spill_to_disk_without_changing_the_result() {
    let lake = Lake::new();
    lake.file("rows.csv", "unused\n1\n")
        .file("p.toml", PIPELINE);
    let mut seen = Vec::new();
    for options in [
        &["--threads", "2"][..],
        &["--threads", "2", "--memory", "210MB"],
    ] {
        lake.gyre(&[&["run", "p.toml", "--force"], options].concat())
            .succeeds();
        let record = record(&lake);
        let bytes = |key: &str| record[key].as_u64();
        let peak = bytes("peak_memory_bytes").expect("a peak");
        seen.push((peak, bytes("scratch_bytes"), lake.tables()));
        fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    }
    let [(plain, None, expected), (bounded, Some(scratch), tables)] = &seen[..] else {
        panic!("a run spills to disk exactly if its memory is limited");
    };
    assert_eq!(tables, expected, "the bytes of all tables");
    if cfg!(target_os = "linux") {
        assert!(
            *plain > 300_000_000 && *bounded <= 210_000_000,
            "{plain} {bounded}"
        );
        assert!(*scratch > 64 << 20, "{scratch}");
    }
}

#[test]
fn a_memory_limit_that_is_too_small_is_refused_with_the_smallest_that_works() {
    let lake = Lake::new();
    lake.file("rows.csv", "unused\n1\n")
        .file("p.toml", PIPELINE);
    let run =
        |options: &[&str]| lake.gyre(&[&["run", "p.toml", "--threads", "2"], options].concat());
    run(&["--memory", "100MB"]).fails(
        2,
        "--memory 100MB is too small: the program and 2 threads need 168MB",
    );
    let many = ["--memory", "280MB", "--set", "fit.dbmr.rank=2000"];
    run(&many).fails(2, "fit `dbmr` needs 328MB that cannot be on disk, for 5003 sources, 4999 targets, rank 2000 and 2 threads; --memory is 280MB: give at least 328MB");
    assert!(!lake.path("out/current.json").exists());
}

/// Very many small models. The data of each model is too small to be spilled to disk.
const MANY: &str = r#"
[job]
name = "many"
output = "out"

[tables.rows]
path = "rows.csv"

[transitions]
sql = "SELECT value % MODELS AS p, value / MODELS % 61 AS a, value * 7919 / MODELS % 59 AS b, 1 AS n FROM range(0, 3000 * MODELS)"
source = "a"
target = "b"
count = "n"
partition_by = ["p"]

[[fit]]
name = "svd"
method = "svd"
rank = 1
"#;

#[test]
#[cfg(target_os = "linux")]
fn a_run_that_cannot_spill_stops_and_keeps_the_earlier_result() {
    let lake = Lake::new();
    lake.file("rows.csv", "unused\n1\n")
        .file("p.toml", &MANY.replace("MODELS", "2"));
    lake.gyre(&["run", "p.toml"]).succeeds();
    let before = lake.tables();
    lake.file("p.toml", &MANY.replace("MODELS", "5000"));
    let stopped = lake.gyre(&["run", "p.toml", "--threads", "2", "--memory", "175MB"]);
    stopped.fails(75, "");
    let megabytes = |text: Option<&str>| text.and_then(|text| text.parse::<usize>().ok());
    let error = stopped.err.strip_prefix("error: --memory is too small: ");
    let error =
        error.and_then(|rest| rest.split_once("MB are in use that cannot be moved to disk; "));
    let (in_use, rest) = error.unwrap_or_else(|| panic!("{}", stopped.err));
    let enough = rest.strip_prefix("give at least ");
    let enough = enough.and_then(|rest| rest.strip_suffix("MB\n"));
    let numbers = (megabytes(Some(in_use)), megabytes(enough));
    let (Some(in_use), Some(enough)) = numbers else {
        panic!("{}", stopped.err);
    };
    // The run stops above its limit and proposes at least a quarter more.
    assert!(in_use >= 175 && enough > in_use, "{}", stopped.err);
    assert!(lake.tables() == before);
    lake.gyre(&["clean", "p.toml", "--older-than", "0s"])
        .succeeds();
    let entries = |folder: &str| fs::read_dir(lake.path(folder)).expect("a folder").count();
    // The stopped run leaves only its record.
    assert_eq!((entries("out/versions"), entries("out/runs")), (1, 2));
    assert!(!lake.path("out/work").exists());
}

#[test]
fn a_plan_estimates_the_memory_of_a_run() {
    let lake = Lake::new();
    lake.file("rows.csv", "unused\n1\n")
        .file("p.toml", PIPELINE);
    let shown = lake
        .gyre(&["plan", "p.toml", "--threads", "2"])
        .succeeds()
        .out;
    let last = shown.lines().last();
    assert_eq!(
        last,
        Some("  memory grows with rows, and nothing says how many there are"),
        "{shown}"
    );
}
