//! Around the fits of points: `gyre assign`, samples of rows, checks, metrics, events and
//! `gyre compare`.

use crate::cli::integers;
use crate::lake::{Lake, ProgramRun, Rows, Swap, floats, words};
use crate::points::{PIPELINE, lake, table, walks};
use crate::symbols_around::assert_equal;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Float64Type;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

fn assign(lake: &Lake, more: &[&str]) -> ProgramRun {
    let fixed = words("assign p.toml --model out --output new");
    lake.gyre(&[&fixed[..], more].concat())
}

/// Checks that two tables of points are equal but for rounding. Returns the rows with an embedding
/// in each column.
fn assert_embedded(expected: &Rows, found: &Rows) -> Vec<usize> {
    assert_equal(expected, found);
    let schema = found.0.schema();
    let names = schema.fields().iter().map(|field| field.name());
    let columns = names.filter(|name| name.ends_with("_embedding"));
    let columns = columns.map(|name| found.column(name));
    columns
        .map(|column| column.len() - column.null_count())
        .collect()
}

#[test]
fn the_rows_of_a_state_embedding_come_back_at_every_lag() {
    let mut points = walks(10, 200);
    points[5].2 = f64::NAN;
    let lake = lake(&points);
    let standard = ["transitions.scale=\"standard\""];
    lake.runs(&standard);
    // The rows may come in any order, and the scale is that of the model.
    points.reverse();
    table(&lake, "new.parquet", &points);
    let new = ["--set", "tables.walks.path=new.parquet"];
    let ran = assign(&lake, &new).succeeds();
    let head = "points: 2,000 rows, assigned by the model ";
    ran.says(head);
    ran.says("1 dropped: NaN coordinate");
    ran.says("lag 3: 1,999 points");
    assert_equal(&lake.read("points"), &lake.read_at("new/points"));
    assign(&lake, &new).succeeds().says("Nothing to do");

    let one_lag = [&new[..], &["--set", "transitions.lag=3"]].concat();
    assign(&lake, &one_lag).succeeds();
    assert_eq!(lake.read_at("new/points").len(), 1999);
    assert_eq!(lake.read_at("new/points").integers("lag"), vec![3; 1999]);
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
    let float = |of: fn(&(i64, i64, f64, f64)) -> f64| floats(rows.iter().map(of));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("part", integers(rows.iter().map(|p| p.0))),
        ("id", integers(rows.iter().map(|p| p.1))),
        ("x", float(|p| p.2)),
        ("y", float(|p| p.3)),
    ];
    lake.table(name, columns);
}

const KERNELS: &str = r#"
job = { name = "kernels", output = "out" }
tables.circles.path = "circles.parquet"
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
    lake.runs_text(&kernels());
    let ran = assign(&lake, &[]).succeeds();
    let fit = "map_nearest_symmetric  20 points without embedding";
    ran.says(fit);
    let expected = lake.read("points");
    // The points far away are not connected, and those of landmarks are near some of them.
    let embedded = assert_embedded(&expected, &lake.read_at("new/points"));
    assert_eq!(embedded, vec![600; embedded.len()]);
    // New rows close to the old ones have embeddings close to theirs.
    circles(&lake, "new.parquet", 1e-7);
    assign(&lake, &["--set", "tables.circles.path=new.parquet"]).succeeds();
    let found = lake.read_at("new/points");
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
fn a_constant_coordinate_of_a_partition_is_named_in_its_own_unit() {
    let lake = Lake::new();
    circles(&lake, "circles.parquet", 0.0);
    let scaled = KERNELS.swap("{ x = 2.0, y = 2.0 }", "\"standard\"");
    let fit = "[[fit]]\nname = \"map\"\nmethod = \"diffusion_map\"\ndimension = 1\n";
    lake.file("p.toml", &format!("{scaled}{fit}"));
    let [x, y] = ["x", "y"].map(|c| format!("CASE part WHEN 1 THEN 0.7 ELSE {c} END"));
    let run = |columns: &str, names: &str| {
        let sql = format!("points.sql=\"SELECT part, id, {columns} FROM circles WHERE id < 320\"");
        let names = format!("points.coordinates={names}");
        lake.gyre(&["run", "p.toml", "--force", "--set", &sql, "--set", &names])
    };
    for (columns, names, said) in [
        (format!("{x} AS x, y"), "[\"x\", \"y\"]", "coordinate `x`"),
        (
            format!("[{x}, {y}] AS xy"),
            "\"xy\"",
            "number 0 of the lists in `xy`",
        ),
    ] {
        let ran = run(&columns, names);
        ran.says("1 of 2 models failed: part=1");
        ran.fails(1, &format!("{said} is 0.7 in all rows; leave it out"));
    }
    // Some numbers of lists may be the same in all rows.
    run(&format!("[{x}, y] AS xy"), "\"xy\"").succeeds();
}

#[test]
fn rows_of_other_columns_are_refused_by_name() {
    let lake = lake(&walks(6, 100));
    lake.runs(&[]);
    let refused = |sets: &[&str], code: i32, message: &str| {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        assign(&lake, &sets.collect::<Vec<_>>()).fails(code, message);
    };
    let swapped = "transitions.coordinates=[\"y\",\"x\"]";
    let expected = "the coordinates are `y`, `x` in the pipeline";
    refused(&[swapped], 2, expected);
    let fewer = "transitions.coordinates=[\"x\"]";
    refused(&[fewer], 2, "but `x`, `y` in the model");
    refused(&["transitions.lag=2"], 2, "asks for lag 2, but the model");
    let by = "transitions.partition_by=\"id\"";
    let keys = ["transitions.trajectory=\"t\"", "transitions.time=\"id\""];
    refused(&[by, keys[0], keys[1]], 2, "partition_by");
    // Lists of another length, which no schema shows.
    let xy = "transitions.coordinates=\"xy\"";
    lake.runs(&[xy]);
    let longer = "transitions.sql=\"SELECT id, t, array_append(xy, 0.0) AS xy FROM walks\"";
    let expected = "the lists have 3 numbers, but the points of the model have 2 coordinates";
    refused(&[xy, longer], 1, expected);
}

#[test]
fn a_sample_of_the_rows_does_not_depend_on_their_order() {
    let points = walks(10, 100);
    let lake = lake(&points);
    lake.runs(&[]);
    let all = lake.read("points");
    let keys = |rows: &Rows| -> Vec<(i64, i64, i64)> {
        let columns = ["id", "t", "lag"].map(|name| rows.integers(name));
        let keys = columns[0].iter().zip(&columns[1]).zip(&columns[2]);
        keys.map(|((id, t), lag)| (*id, *t, *lag)).collect()
    };
    let sample = ["output.rows=40"];
    lake.runs(&sample).says("1,000 points in");
    let sampled = lake.read("points");
    assert_eq!(sampled.len(), 2 * 40);
    let of_sample = keys(&sampled);
    let of_all = keys(&all);
    let embedding = "states_r2_embedding";
    let (all, found) = (all.lists(embedding), sampled.lists(embedding));
    for (key, found) in of_sample.iter().zip(found) {
        let at = of_all.iter().position(|own| own == key).expect("a row");
        assert_eq!(all[at], found);
    }
    let bytes = lake.bytes("out/points/part-0.parquet");
    let shuffled = Lake::new();
    shuffled.file("p.toml", PIPELINE);
    let mut reversed = points;
    reversed.reverse();
    table(&shuffled, "walks/a.parquet", &reversed[..300]);
    table(&shuffled, "walks/b.parquet", &reversed[300..]);
    shuffled.runs(&sample);
    let other = shuffled.bytes("out/points/part-0.parquet");
    assert!(other == bytes);

    let ran = lake.run(&["output.rows=\"none\""]);
    ran.succeeds().says("1,000 points in");
    assert!(!lake.path("out/points").exists());
    // New rows need no rows of the model.
    assign(&lake, &[]).succeeds();
    assert_eq!(lake.read_at("new/points").len(), 2000);
    let all = lake.run(&["output.rows=\"all\""]);
    all.succeeds();
    assert_equal(&lake.read("points"), &lake.read_at("new/points"));
    let message = "`output.rows` is \"all\", a number of points or \"none\"";
    lake.run(&["output.rows=[\"x\"]"]).fails(2, message);
    let message = "must be a list of columns, a number of points";
    lake.run(&["output.rows=0"]).fails(2, message);
}

// Sketches of other powers span nearly the same functions, and clusters of one fit are the same.
#[test]
fn two_results_of_points_are_compared_row_by_row() {
    let lake = lake(&walks(10, 100));
    lake.runs(&[]);
    let other = ["--set", "job.output=b", "--set", "fit.states.features=80"];
    let some = "transitions.sql=\"SELECT * FROM walks WHERE id < 8\"";
    lake.gyre(&[&["run", "p.toml", "--set", some][..], &other].concat())
        .succeeds();
    let same = lake.compare(&["out", "out"]);
    let model = &same["models"][1];
    assert_eq!((&model["lag"], &model["rows"]), (&"3".into(), &1000.into()));
    let fit = &model["fits"][1];
    assert_eq!(fit["fit_a"], "states_r3");
    assert_eq!(fit["adjusted_rand"].as_f64(), Some(1.0));
    assert_eq!(fit["matched"].as_f64(), Some(1.0));
    // The constant function spans nothing.
    let correlations = |fit: &serde_json::Value| -> Vec<f64> {
        let list = fit["correlations"].as_array().expect("numbers");
        list.iter().filter_map(serde_json::Value::as_f64).collect()
    };
    let own = correlations(fit);
    assert_eq!(own.len(), 2, "{own:?}");
    assert!(own.iter().all(|c| (c - 1.0).abs() < 1e-9), "{own:?}");

    let found = lake.compare(&["out", "b"]);
    let fit = &found["models"][0]["fits"][0];
    assert_eq!(fit["rows"], 800);
    assert_eq!(fit["fit_b"], "states_r2");
    let found = correlations(fit);
    assert!(found.len() == 1 && found[0] > 0.9, "{found:?}");
    let ranks = lake.compare(&["out", "out", "--fit", "states_r2=states_r3", "--lag", "1=3"]);
    let fit = &ranks["models"][0]["fits"][0];
    assert_eq!(correlations(fit).len(), 1);
    assert!(ranks["models"][0]["lag"].is_null());
    let text = lake.line("compare out b").succeeds().out;
    assert!(text.contains("lag 1: 800 common rows"), "{text}");
    assert!(text.contains("% in matched clusters"), "{text}");
}

#[test]
fn keys_of_other_programs_are_named() {
    let lake = lake(&walks(4, 50));
    for (key, meaning) in [
        ("n_components=2", "write `rank`"),
        ("dim=2", "write `rank`"),
        ("gamma=0.5", "gamma = 1/(2 s²)"),
        ("n_clusters=2", "write `clusters`"),
        ("random_state=1", "write `seed` in the section `[job]`"),
        ("lagtime=1", "write `lag` in the section `[transitions]`"),
    ] {
        let set = format!("fit.states.{key}");
        lake.call("check", &[&set]).fails(2, meaning);
    }
    lake.file("q.toml", &kernels());
    circles(&lake, "circles.parquet", 0.0);
    for (key, meaning) in [
        ("map_full_symmetric.n_components=2", "write `dimension`"),
        ("map_full_symmetric.n_evecs=2", "write `dimension`"),
        ("map_full_symmetric.t=2", "write `time`"),
        ("sketch_full_symmetric.t=2", "write `power`"),
        ("map_full_symmetric.gamma=2", "write `epsilon` = 1/gamma"),
        ("map_full_symmetric.n_neighbors=2", "write `neighbours`"),
        ("map_full_symmetric.random_state=2", "write `seed`"),
    ] {
        let set = format!("fit.{key}");
        lake.call_on("q.toml", "check", &[&set]).fails(2, meaning);
    }
}
