//! Compares counts of the program with those of an independent SQL self-join, for all orders, files
//! and partitions of the rows.

use crate::cli::integers;
use crate::lake::{Lake, Swap, floats, integers_or_null, texts_or_null};
use arrow::array::{ArrayRef, StringArray};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

/// Rows (group, id, t, state): several trajectories per group, with gaps in time and some null
/// states.
fn rows(seed: u64, n: usize, states: i64) -> Vec<(i64, i64, i64, Option<i64>)> {
    let mut random = Pcg64::seed_from_u64(seed);
    let (mut id, mut t) = (0, 0);
    (0..n)
        .map(|_| {
            if random.random_range(0..40) == 0 {
                (id, t) = (id + random.random_range(1..3), random.random_range(-5..5));
            }
            t += if random.random_range(0..10) == 0 {
                random.random_range(2..6)
            } else {
                1
            };
            let state = (random.random_range(0..15) > 0)
                .then(|| random.random_range(0..states).pow(2) / states);
            (id % 3, id, t, state)
        })
        .collect()
}

fn columns(rows: &[(i64, i64, i64, Option<i64>)], named: bool) -> Vec<(&'static str, ArrayRef)> {
    let state: ArrayRef = if named {
        texts_or_null(rows.iter().map(|r| r.3.map(|s| format!("s{s}"))))
    } else {
        integers_or_null(rows.iter().map(|r| {
            r.3.map(|s| s + if rows.len().is_multiple_of(2) { 0 } else { -3 })
        }))
    };
    vec![
        ("g", integers(rows.iter().map(|r| r.0))),
        ("id", integers(rows.iter().map(|r| r.1))),
        ("t", integers(rows.iter().map(|r| r.2))),
        ("state", state),
    ]
}

const PIPELINE: &str = r#"
job = { name = "counts", output = "out" }
tables.rows.path = "rows/"
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
state = "state"
lag = [1, 3]
partition_by = "g"
"#;

/// Sorted rows (group, lag, source, target, count), computed by a self-join.
fn counts_by_join(lake: &Lake) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let batches = runtime.block_on(async {
        let context = SessionContext::new();
        let path = lake.path("rows/").display().to_string() + "/";
        context
            .register_parquet("rows", &path, ParquetReadOptions::default())
            .await
            .expect("the table");
        let sql = "SELECT a.g, l.lag, a.state AS s, b.state AS t, count(*) AS n
                   FROM (VALUES (1), (3)) AS l(lag), rows a JOIN rows b ON a.id = b.id
                   WHERE b.t = a.t + l.lag AND a.state IS NOT NULL AND b.state IS NOT NULL
                   GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4";
        context
            .sql(sql)
            .await
            .expect("a plan")
            .collect()
            .await
            .expect("rows")
    });
    batches
        .iter()
        .flat_map(|b| {
            (0..b.num_rows())
                .map(|at| gyre::read::rows::states::describe(b.columns(), at))
                .collect::<Vec<_>>()
        })
        .collect()
}

pub fn counts_by_gyre(lake: &Lake) -> Vec<String> {
    let counts = lake.read("counts").0;
    (0..counts.num_rows())
        .map(|at| gyre::read::rows::states::describe(counts.columns(), at))
        .collect()
}

fn check_counts(rows: &[(i64, i64, i64, Option<i64>)], pieces: usize, named: bool, threads: &str) {
    let lake = Lake::new();
    for (at, piece) in rows.chunks(rows.len().div_ceil(pieces)).enumerate() {
        lake.table(&format!("rows/{at:03}.parquet"), columns(piece, named));
    }
    lake.file("p.toml", PIPELINE)
        .gyre(&["run", "p.toml", "--threads", threads])
        .succeeds();
    let expected = counts_by_join(&lake);
    assert!(expected.len() > 100);
    assert_eq!(counts_by_gyre(&lake), expected);
}

#[test]
fn counts_agree_with_a_self_join() {
    // The rows are sorted by trajectory, but not by (group, trajectory). The program notices this
    // and sorts them. States are negative integers, small integers or names.
    check_counts(&rows(1, 6000, 12), 1, false, "2");
    check_counts(&rows(2, 6001, 12), 1, false, "2");
    check_counts(&rows(3, 6000, 12), 5, true, "3");
    let mut shuffled = rows(4, 5000, 9);
    shuffled.shuffle(&mut Pcg64::seed_from_u64(9));
    check_counts(&shuffled, 3, false, "2");
}

/// Files end inside trajectories and several threads read them. Every pair across a border counts
/// once.
#[test]
fn trajectories_continue_across_files_and_threads() {
    let mut ordered = rows(5, 8000, 10);
    ordered.sort();
    for pieces in [1, 4, 63] {
        check_counts(&ordered, pieces, pieces == 4, "4");
    }
    // One trajectory spans many files.
    let one: Vec<_> = (0..3000)
        .map(|k| (0, 7, k + k / 100, Some((k * k + k / 11) % 17)))
        .collect();
    check_counts(&one, 20, false, "3");
}

/// A partition and its trajectory appear again in a second stream. Each stream is sorted.
#[test]
fn partitions_that_reappear_are_found() {
    let piece =
        |g: i64, times: std::ops::Range<i64>| times.map(move |t| (g, g, t, Some(t * t % 41)));
    let rows: Vec<_> = piece(0, 0..100)
        .chain(piece(1, 0..100))
        .chain(piece(0, 100..200))
        .collect();
    check_counts(&rows, 3, false, "3");
}

/// Unsorted rows that exceed the memory limit are sorted on disk instead of gathered in memory.
#[test]
fn rows_that_exceed_memory_are_sorted() {
    let mut shuffled = rows(8, 500_000, 30);
    shuffled.shuffle(&mut Pcg64::seed_from_u64(9));
    let lake = Lake::new();
    lake.table("rows/all.parquet", columns(&shuffled, false))
        .file("p.toml", PIPELINE);
    lake.runs(&[]);
    let gathered = counts_by_gyre(&lake);
    let ran = lake.line("run p.toml --force -v --threads 1 --memory 165MB");
    ran.logs("sorting them");
    ran.succeeds();
    assert_eq!(counts_by_gyre(&lake), gathered);
}

const PAIRS: &str = r#"
job = { name = "pairs", output = "out" }
tables.pairs.path = "pairs.parquet"
[transitions]
sql = "SELECT * FROM pairs"
source = ["a", "b"]
target = "c"
MEASURE
[output]
tables = ["counts"]
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
"#;

#[test]
fn pairs_count_rows_counts_or_weights() {
    let lake = Lake::new();
    let text = |v: Vec<Option<&str>>| Arc::new(StringArray::from(v)) as ArrayRef;
    let a = text(vec![
        Some("x"),
        Some("x"),
        Some("y"),
        None,
        Some("x"),
        Some("y"),
    ]);
    let b = integers([1, 1, 1, 1, 2, 1]);
    let c = text(vec![
        Some("u"),
        Some("u"),
        Some("v"),
        Some("v"),
        Some("u"),
        None,
    ]);
    let n = integers([3, 4, 0, 9, 5, 1]);
    let w = floats(vec![0.1, 0.2, 0.5, 1.0, f64::NAN, 1.0]);
    lake.table(
        "pairs.parquet",
        vec![("a", a), ("b", b), ("c", c), ("n", n), ("w", w)],
    );
    let count = |measure: &str| {
        lake.runs_text(&PAIRS.swap("MEASURE", measure));
        counts_by_gyre(&lake)
    };
    assert_eq!(count(""), ["(x, 1, u, 2)", "(x, 2, u, 1)", "(y, 1, v, 1)"]);
    assert_eq!(count("count = \"n\""), ["(x, 1, u, 7)", "(x, 2, u, 5)"]);
    let expected = ["(x, 1, u, 0.30000000000000004)", "(y, 1, v, 0.5)"];
    assert_eq!(count("weight = \"w\""), expected);
}
