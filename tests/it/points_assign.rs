//! `gyre assign` for points: the rows of a run come back, and new rows are beside old ones.

use crate::cli::integers;
use crate::lake::{Lake, ProgramRun, Rows};
use crate::points::{PIPELINE, lake, table, walks};
use arrow::array::{Array, ArrayRef, AsArray, Float64Array};
use arrow::datatypes::Float64Type;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::fs;
use std::sync::Arc;

fn assign(lake: &Lake, more: &[&str]) -> ProgramRun {
    let fixed = ["assign", "p.toml", "--model", "out", "--output", "new"];
    lake.gyre(&[&fixed[..], more].concat())
}

fn assigned(lake: &Lake) -> Rows {
    Rows::open(&lake.path("new/points/part-0.parquet"))
}

/// Checks that two tables of points have the same columns, keys and clusters, and embeddings that
/// differ by 1e-12 at most. Returns the rows with an embedding in each column.
fn assert_equal(expected: &Rows, found: &Rows) -> Vec<usize> {
    assert_eq!(expected.0.schema(), found.0.schema());
    assert_eq!(expected.len(), found.len());
    let mut embedded = Vec::new();
    for field in expected.0.schema().fields() {
        let name = field.name();
        let (a, b) = (expected.column(name), found.column(name));
        if !name.ends_with("_embedding") {
            assert_eq!(a, b, "{name}");
            continue;
        }
        assert_eq!(a.nulls(), b.nulls(), "{name}");
        embedded.push(a.len() - a.null_count());
        let [a, b] = [a, b].map(|lists| lists.as_fixed_size_list());
        for row in (0..a.len()).filter(|&row| a.is_valid(row)) {
            let [a, b] = [a, b].map(|lists| lists.value(row));
            let [a, b] = [&a, &b].map(|list| list.as_primitive::<Float64Type>().values());
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() <= 1e-12, "{name} {row}: {a} {b}");
            }
        }
    }
    embedded
}

#[test]
fn the_rows_of_a_state_embedding_come_back_at_every_lag() {
    let mut points = walks(10, 200);
    points[5].2 = f64::NAN;
    let lake = lake(&points);
    let standard = ["--set", "transitions.scale=\"standard\""];
    lake.gyre(&[&["run", "p.toml"][..], &standard].concat())
        .succeeds();
    // The rows may come in any order, and the scale is that of the model.
    points.reverse();
    table(&lake, "new.parquet", &points);
    let new = ["--set", "tables.walks.path=new.parquet"];
    let ran = assign(&lake, &new).succeeds();
    let head = "points: 3,998 points from 2,000 rows, assigned by the model ";
    assert!(ran.out.contains(head), "{}", ran.out);
    assert!(ran.out.contains("1 dropped: NaN coordinate"), "{}", ran.out);
    assert!(ran.out.contains("lag 3: 1,999 points"), "{}", ran.out);
    assert_equal(&lake.read("points"), &assigned(&lake));
    let again = assign(&lake, &new).succeeds();
    assert!(again.out.contains("Nothing to do"), "{}", again.out);
    let bytes = fs::read(lake.path("new/points/part-0.parquet")).expect("a table");
    let one = [&new[..], &["--force", "--threads", "1"]].concat();
    assign(&lake, &one).succeeds();
    assert!(fs::read(lake.path("new/points/part-0.parquet")).expect("a table") == bytes);

    let one_lag = [&new[..], &["--set", "transitions.lag=3"]].concat();
    assign(&lake, &one_lag).succeeds();
    assert_eq!(assigned(&lake).len(), 1999);
    assert_eq!(assigned(&lake).integers("lag"), vec![3; 1999]);
}

/// A noisy circle with some equal points, 20 points far away, and rows that are no points. The
/// points of part 1 are as many, on another circle.
fn circles(lake: &Lake, name: &str, shift: f64) {
    let mut random = Pcg64::seed_from_u64(11);
    let mut rows = Vec::new();
    for part in 0..2 {
        for id in 0..320 {
            let angle = std::f64::consts::TAU * random.random::<f64>();
            let radius = (1.0 + f64::from(part)) * (0.9 + 0.2 * random.random::<f64>());
            let far = if id >= 300 { 30.0 } else { 0.0 };
            let point = match id % 10 {
                7 => rows[rows.len() - 1],
                _ => (0, 0, far + radius * angle.cos(), radius * angle.sin()),
            };
            rows.push((i64::from(part), id, point.2 + shift, point.3));
        }
        rows.push((i64::from(part), 320, f64::NAN, 0.0));
    }
    let float = |of: fn(&(i64, i64, f64, f64)) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(rows.iter().map(of)))
    };
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("part", integers(rows.iter().map(|p| p.0))),
        ("id", integers(rows.iter().map(|p| p.1))),
        ("x", float(|p| p.2)),
        ("y", float(|p| p.3)),
    ];
    lake.table(name, columns);
}

const KERNELS: &str = r#"
[job]
name = "kernels"
output = "out"

[tables.circles]
path = "circles.parquet"

[points]
sql = "SELECT * FROM circles"
id = "id"
coordinates = ["x", "y"]
partition_by = "part"
scale = { x = 2.0, y = 2.0 }
"#;

/// Maps and sketches with every normalisation and every choice of neighbours.
fn kernels() -> String {
    let mut text = KERNELS.to_string();
    for normalisation in ["symmetric", "stochastic", "bistochastic"] {
        for (reach, key) in [
            ("nearest", "neighbours = 12"),
            ("near", "radius = 0.6"),
            ("full", "neighbours = \"all\""),
            ("few", "landmarks = 60"),
        ] {
            let common = format!("{key}\nepsilon = 0.1\nnormalisation = \"{normalisation}\"\n");
            text += &format!(
                "[[fit]]\nname = \"map_{reach}_{normalisation}\"\nmethod = \"diffusion_map\"\n\
                 dimension = 2\ntime = [1, 2.5]\n{common}"
            );
            text += &format!(
                "[[fit]]\nname = \"sketch_{reach}_{normalisation}\"\nmethod = \"heat_sketch\"\n\
                 dimension = 3\npower = [1, 4]\n{common}"
            );
        }
    }
    text
}

#[test]
fn the_rows_of_maps_and_sketches_come_back() {
    let lake = Lake::new();
    circles(&lake, "circles.parquet", 0.0);
    lake.file("p.toml", &kernels());
    lake.gyre(&["run", "p.toml"]).succeeds();
    let ran = assign(&lake, &[]).succeeds();
    let fit = "map_nearest_symmetric  20 points without embedding";
    assert!(ran.out.contains(fit), "{}", ran.out);
    let expected = lake.read("points");
    // The points far away are not connected, and those of landmarks are near some of them.
    let embedded = assert_equal(&expected, &assigned(&lake));
    assert_eq!(embedded, vec![600; embedded.len()]);
    // New rows close to the old ones have embeddings close to theirs.
    circles(&lake, "new.parquet", 1e-7);
    assign(&lake, &["--set", "tables.circles.path=new.parquet"]).succeeds();
    let found = assigned(&lake);
    for field in expected.0.schema().fields() {
        let name = field.name();
        if !name.ends_with("_embedding") || name.contains("nearest") || name.contains("near_") {
            continue;
        }
        let [a, b] = [&expected, &found].map(|rows| rows.column(name).as_fixed_size_list());
        assert_eq!(a.nulls(), b.nulls(), "{name}");
        for row in (0..a.len()).filter(|&row| a.is_valid(row)) {
            let [a, b] = [a, b].map(|lists| lists.value(row));
            let [a, b] = [&a, &b].map(|list| list.as_primitive::<Float64Type>().values());
            for (a, b) in a.iter().zip(b) {
                assert!((a - b).abs() <= 1e-5, "{name} {row}: {a} {b}");
            }
        }
    }
}

#[test]
fn a_partition_that_the_model_does_not_have_is_a_failure() {
    let lake = Lake::new();
    circles(&lake, "circles.parquet", 0.0);
    lake.file("p.toml", &kernels());
    let first = [
        "--set",
        "points.sql=\"SELECT * FROM circles WHERE part = 0\"",
    ];
    lake.gyre(&[&["run", "p.toml"][..], &first].concat())
        .succeeds();
    let ran = assign(&lake, &[]);
    assert!(
        ran.out.contains("1 of 2 models failed: part=1"),
        "{}",
        ran.out
    );
    ran.fails(1, "");
    let rows = assigned(&lake);
    let column = rows.column("sketch_full_symmetric_p4_embedding");
    assert_eq!((rows.len(), column.null_count()), (640, 340));
    let other = [
        "--set",
        "points.sql=\"SELECT * FROM circles WHERE part = 1\"",
    ];
    assign(&lake, &other).fails(1, "none of the partitions");
}

#[test]
fn rows_of_another_kind_are_refused_by_name() {
    let lake = lake(&walks(6, 100));
    lake.gyre(&["run", "p.toml"]).succeeds();
    let refused = |sets: &[&str], code: i32, message: &str| {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        assign(&lake, &sets.collect::<Vec<_>>()).fails(code, message);
    };
    let swapped = "transitions.coordinates=[\"y\",\"x\"]";
    refused(
        &[swapped],
        2,
        "the coordinates are `y`, `x` in the pipeline",
    );
    let fewer = "transitions.coordinates=[\"x\"]";
    refused(&[fewer], 2, "but `x`, `y` in the model");
    refused(&["transitions.lag=2"], 2, "asks for lag 2, but the model");
    let by = "transitions.partition_by=\"id\"";
    refused(
        &[
            by,
            "transitions.trajectory=\"t\"",
            "transitions.time=\"id\"",
        ],
        2,
        "partition_by",
    );
    let none = "transitions.sql=\"SELECT * FROM walks WHERE id > 99\"";
    refused(&[none], 1, "gives no rows");
    assign(&lake, &["--smoothing", "1"]).fails(2, "points have none");
    let onto = [
        "assign", "p.toml", "--model", "out", "--output", "out", "--force",
    ];
    lake.gyre(&onto).fails(2, "holds the models of a run");
    let missing = ["assign", "p.toml", "--model", "nowhere", "--output", "new"];
    lake.gyre(&missing).fails(1, "there is no finished result");
    let points = PIPELINE
        .replace("[transitions]", "[points]")
        .replace("trajectory = \"id\"\ntime = \"t\"\nlag = [1, 3]", "id = [\"id\", \"t\"]")
        .replace("method = \"state_embedding\"\nrank = [2, 3]\nfeatures = 60\nbandwidth = 1.0\nclusters = 2", "method = \"diffusion_map\"\ndimension = 2");
    lake.file("p.toml", &points);
    refused(&[], 2, "was made from trajectories");
    lake.file("p.toml", PIPELINE);

    // Lists of another length, which no schema shows.
    let xy = "transitions.coordinates=\"xy\"";
    lake.gyre(&["run", "p.toml", "--set", xy]).succeeds();
    let longer = "transitions.sql=\"SELECT id, t, array_append(xy, 0.0) AS xy FROM walks\"";
    refused(
        &[xy, longer],
        1,
        "the lists have 3 numbers, but the points of the model have 2 coordinates",
    );

    let states = PIPELINE
        .replace(
            "coordinates = [\"x\", \"y\"]",
            "bins = { x = { width = 0.5 } }",
        )
        .replace("method = \"state_embedding\"", "method = \"svd\"")
        .replace("features = 60\nbandwidth = 1.0\nclusters = 2\n", "");
    lake.file("p.toml", &states);
    refused(&[], 2, "the pipeline has states, but the model");
    let set = ["run", "p.toml", "--set", "job.output=states"];
    lake.gyre(&set).succeeds();
    lake.file("p.toml", PIPELINE);
    let other = ["assign", "p.toml", "--model", "states", "--output", "new"];
    lake.gyre(&other).fails(2, "was made from states");
}
