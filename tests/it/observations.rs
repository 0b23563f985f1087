//! Runs of filters: rows, training, tables, assignments and comparisons.

use crate::cli::integers;
use crate::lake::{Lake, Rows, Swap, floats, texts_or_null, words};
use arrow::array::{Array, ArrayRef, AsArray, LargeListArray};
use arrow::datatypes::Float64Type;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

const PIPELINE: &str = r#"
job = { name = "world", output = "out" }
tables.world.path = "world/"
[sequences]
sql = "SELECT * FROM world"
trajectory = "id"
time = "t"
interval = 1
state = ["y1", "y2"]
observation = ["x1", "x2", "x3"]
split = "split"

[[fit]]
name = "kf"
method = "kalman"

[[fit]]
name = "ekf"
method = "ekf"
f = ["0.9 * y1 + 0.2 * y2", "0.8 * y2 - 0.1 * sin(y1)"]
h = ["y1", "y1 + y2", "y2"]

[[fit]]
name = "diagonal"
method = "kalman"
noise = "diagonal"

[output]
rows = "all"
"#;

/// A row: trajectory, time, state, observation, split.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    id: i64,
    t: i64,
    y: [Option<f64>; 2],
    x: [Option<f64>; 3],
    split: Option<&'static str>,
}

/// Rows of a noisy system with two coordinates. Some rows are missing, some have no observation,
/// and a third of the trajectories are test rows.
fn world(trajectories: i64, steps: i64, seed: u64) -> Vec<Row> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut rows = Vec::new();
    for id in 0..trajectories {
        let (mut a, mut b) = (0.0f64, 0.0f64);
        for t in 0..steps {
            let mut noise = || random.random::<f64>() + random.random::<f64>() - 1.0;
            (a, b) = (
                0.9 * a + 0.2 * b + noise(),
                0.8 * b - 0.1 * a.sin() + noise(),
            );
            let x = [a + 0.3 * noise(), a + b + 0.3 * noise(), b + 0.3 * noise()];
            let kind = random.random::<f64>();
            if kind < 0.03 {
                continue;
            }
            let mut x = x.map(Some);
            if kind < 0.06 {
                x[1] = None;
            } else if kind < 0.08 {
                x[2] = Some(f64::NAN);
            }
            rows.push(Row {
                id,
                t,
                y: [Some(a), Some(b)],
                x,
                split: Some(if id % 3 == 0 { "test" } else { "train" }),
            });
        }
    }
    rows
}

fn table(lake: &Lake, name: &str, rows: &[Row]) {
    let column = |of: fn(&Row) -> Option<f64>| floats(rows.iter().map(of));
    let split = rows.iter().map(|row| row.split);
    let columns = vec![
        ("id", integers(rows.iter().map(|row| row.id))),
        ("t", integers(rows.iter().map(|row| row.t))),
        ("y1", column(|row| row.y[0])),
        ("y2", column(|row| row.y[1])),
        ("x1", column(|row| row.x[0])),
        ("x2", column(|row| row.x[1])),
        ("x3", column(|row| row.x[2])),
        ("split", texts_or_null(split)),
    ];
    lake.table(name, columns);
}

fn lake(rows: &[Row]) -> Lake {
    let lake = Lake::new();
    table(&lake, "world/0.parquet", rows);
    lake.file("p.toml", PIPELINE);
    lake
}

fn shuffled(rows: &[Row], seed: u64) -> Vec<Row> {
    let mut rows = rows.to_vec();
    let mut random = Pcg64::seed_from_u64(seed);
    for last in (1..rows.len()).rev() {
        rows.swap(last, random.random_range(0..=last));
    }
    rows
}

/// The pipeline `text` without the filter whose functions need names of coordinates.
fn without_ekf(text: &str) -> String {
    let start = text.find("[[fit]]\nname = \"ekf\"").expect("a fit");
    let end = text.find("[[fit]]\nname = \"diagonal\"").expect("a fit");
    format!("{}{}", &text[..start], &text[end..])
}

/// The pipeline until its first fit.
fn before_fits() -> &'static str {
    PIPELINE.split("[[fit]]").next().expect("a fit")
}

/// As `before_fits`, for rows without time.
fn rows_alone() -> String {
    let keys = "trajectory = \"id\"\ntime = \"t\"\ninterval = 1";
    before_fits().replace(keys, "id = [\"id\", \"t\"]")
}

fn maybe(rows: &Rows, name: &str) -> Vec<Option<f64>> {
    let column = rows.column(name).as_primitive::<Float64Type>();
    column.iter().collect()
}

const LINE: &str = r#"
job = { name = "line", output = "out" }
tables.world.path = "world/"
[sequences]
sql = "SELECT id, t, y1, x1, split FROM world"
trajectory = "id"
time = "t"
interval = 1
state = "y1"
observation = "x1"
split = "split"

[[fit]]
name = "kf"
method = "kalman"
F = [[0.9]]
H = [[1.0]]
Q = [[0.25]]
R = [[0.5]]
x0 = [0.0]
P0 = [[1.0]]

[output]
rows = "all"
"#;

/// Mean, variance and log score of each row by the Kalman filter of `LINE`.
fn by_hand(rows: &[Row]) -> Vec<(f64, f64, Option<f64>)> {
    let mut found = Vec::new();
    let (mut mean, mut variance) = (0.0, 1.0);
    for (at, row) in rows.iter().enumerate() {
        let follows = at > 0 && {
            let before = &rows[at - 1];
            before.id == row.id && before.t + 1 == row.t && before.split == row.split
        };
        (mean, variance) = if follows {
            (0.9 * mean, 0.81 * variance + 0.25)
        } else {
            (0.0, 1.0)
        };
        let mut score = None;
        if let Some(x) = row.x[0].filter(|x| x.is_finite()) {
            let (s, gap) = (variance + 0.5, x - mean);
            score = Some(-0.5 * ((2.0 * std::f64::consts::PI * s).ln() + gap * gap / s));
            mean += variance / s * gap;
            variance *= 0.5 / s;
        }
        found.push((mean, variance, score));
    }
    found
}

#[test]
fn gaps_splits_and_missing_observations_are_those_of_a_filter_by_hand() {
    let mut rows = world(4, 30, 3);
    for (at, row) in rows.iter_mut().enumerate() {
        row.split = match at % 17 {
            0..9 => Some("test"),
            9..14 => Some("train"),
            _ => None,
        };
        if at % 11 == 5 {
            row.x[0] = None;
        }
        if at % 13 == 7 {
            row.x[0] = Some(f64::INFINITY);
        }
        if at % 5 == 3 {
            row.y[0] = None;
        }
    }
    let lake = lake(&rows);
    lake.file("p.toml", LINE);
    let ran = lake.runs(&[]);
    ran.says("training row with a null state `y1`");
    let infinite = "training row with an infinite observation `x1`";
    ran.says(infinite);
    let (expected, found) = (by_hand(&rows), lake.read("estimates"));
    assert_eq!(found.len(), rows.len());
    let (means, variances) = (found.lists("kf_mean"), found.lists("kf_variance"));
    let scores = maybe(&found, "kf_log_score");
    let updated = found.column("kf_was_updated").as_boolean();
    for (at, (mean, variance, score)) in expected.iter().enumerate() {
        assert!((means[at][0] - mean).abs() < 1e-12, "row {at}");
        assert!((variances[at][0] - variance).abs() < 1e-12, "row {at}");
        assert_eq!(scores[at].is_some(), score.is_some(), "row {at}");
        let gap = scores[at].unwrap_or(0.0) - score.unwrap_or(0.0);
        assert!(gap.abs() < 1e-12, "row {at}");
        assert_eq!(updated.value(at), score.is_some());
    }

    // Rows of `trajectories` are sums over these rows.
    let sums = lake.read("trajectories");
    let (ids, splits) = (sums.integers("id"), sums.column("split").as_string::<i32>());
    let mut of_all = (0.0, 0);
    for (at, id) in ids.iter().enumerate() {
        let split = splits.is_valid(at).then(|| splits.value(at));
        let own = |row: &&Row| row.id == *id && row.split == split;
        let places: Vec<usize> = (0..rows.len()).filter(|&at| own(&&rows[at])).collect();
        assert_eq!(sums.integers("rows")[at], places.len() as i64);
        let missing = places.iter().filter(|&&at| scores[at].is_none()).count();
        assert_eq!(sums.integers("missing")[at], missing as i64);
        let score: f64 = places.iter().filter_map(|&at| scores[at]).sum();
        assert!((sums.floats("kf_log_score")[at] - score).abs() < 1e-10);
        let known = places.iter().filter_map(|&at| Some((at, rows[at].y[0]?)));
        let squares: Vec<f64> = known.map(|(at, y)| (means[at][0] - y).powi(2)).collect();
        let mse = squares.iter().sum::<f64>() / squares.len() as f64;
        assert!((sums.floats("kf_mse")[at] - mse).abs() < 1e-12);
        if split == Some("test") {
            of_all.0 += squares.iter().sum::<f64>();
            of_all.1 += squares.len();
        }
    }
    let fits = lake.read("fits");
    assert!((fits.floats("test_mse")[0] - of_all.0 / of_all.1 as f64).abs() < 1e-12);
    let test = rows.iter().filter(|row| row.split == Some("test")).count();
    assert_eq!(fits.integers("test_rows")[0], test as i64);

    // Without training rows, the rows of other splits have the same estimates.
    lake.run(&["output.rows=held-out"]).succeeds();
    let held_out = lake.read("estimates");
    let own: Vec<usize> = (0..rows.len())
        .filter(|&at| rows[at].split != Some("train"))
        .collect();
    let all = held_out.lists("kf_mean");
    assert_eq!(all.len(), own.len());
    assert!(own.iter().zip(&all).all(|(&at, mean)| means[at] == *mean));
    assert!(lake.read("fits").column("train_mse").is_null(0));
    lake.run(&["output.rows=none"]).succeeds();
    assert!(!lake.path("out/estimates").exists());
    let mse = lake.read("fits").floats("test_mse");
    assert_eq!(mse, fits.floats("test_mse"));
}

#[test]
fn a_gap_ends_a_sequence_as_an_interval_does() {
    let lake = lake(&world(6, 40, 5));
    lake.runs(&[]);
    let text = PIPELINE.swap("interval = 1", "max_gap = 1");
    lake.runs_text(&text.swap("output = \"out\"", "output = \"gaps\""));
    assert!(lake.tables_of("out") == lake.tables_of("gaps"));
}

/// Each row twice, the first time with a wrong observation.
#[test]
fn the_last_row_of_a_time_counts() {
    let rows = world(6, 30, 6);
    let lake = lake(&rows);
    lake.runs(&[]);
    let expected = lake.tables_of("out");
    let twice = rows.iter().flat_map(|row| {
        let mut wrong = row.clone();
        wrong.x[0] = wrong.x[0].map(|x| x + 5.0);
        [wrong, row.clone()]
    });
    table(&lake, "world/0.parquet", &twice.collect::<Vec<_>>());
    let text = PIPELINE
        .swap("SELECT *", "SELECT *, abs(x1 - y1) AS far")
        .swap(
            "time = \"t\"",
            "time = [\"t\", \"far\"]\nduplicates = \"first\"",
        );
    lake.runs_text(&text);
    assert!(lake.tables_of("out") == expected);
    let dropped = &lake.record()["rows_dropped"];
    assert_eq!(dropped["same time as another row"], rows.len());
}

#[test]
fn lists_of_numbers_are_as_good_as_columns() {
    let rows = world(6, 30, 4);
    let lake = lake(&rows);
    lake.runs(&[]);
    let expected = lake.tables_of("out");
    let list = |row: &Row| row.x.map(|x| x.filter(|x| !x.is_nan())).to_vec();
    let lists = rows.iter().map(|row| Some(list(row)));
    let lists = LargeListArray::from_iter_primitive::<Float64Type, _, _>(lists);
    let states = rows.iter().map(|row| Some(row.y.to_vec()));
    let states = LargeListArray::from_iter_primitive::<Float64Type, _, _>(states);
    let split = rows.iter().map(|row| row.split);
    let write = |x: ArrayRef| {
        lake.table(
            "world/0.parquet",
            vec![
                ("id", integers(rows.iter().map(|row| row.id))),
                ("t", integers(rows.iter().map(|row| row.t))),
                ("y", Arc::new(states.clone()) as ArrayRef),
                ("x", x),
                ("split", texts_or_null(split.clone())),
            ],
        );
    };
    write(Arc::new(lists));
    // Functions need names of coordinates.
    let text = PIPELINE
        .swap("[\"y1\", \"y2\"]", "\"y\"")
        .swap("[\"x1\", \"x2\", \"x3\"]", "\"x\"");
    lake.runs_text(&without_ekf(&text));
    let (found, all) = (lake.read("estimates"), &expected["estimates"]);
    fs::write(lake.path("expected.parquet"), all).expect("a file");
    let expected = Rows::open(&lake.path("expected.parquet"));
    for name in ["kf_mean", "kf_log_score", "diagonal_decoded"] {
        assert_eq!(found.column(name), expected.column(name), "{name}");
    }
    let short = rows.iter().map(|row| {
        let n = if (row.id, row.t) == (2, 9) { 2 } else { 3 };
        Some(list(row)[..n].to_vec())
    });
    let short = LargeListArray::from_iter_primitive::<Float64Type, _, _>(short);
    write(Arc::new(short));
    lake.run(&[])
        .fails(1, "column `x` has lists of different lengths");
}

/// The table `estimates` has the known state of each row, and null for a state that is not whole.
#[test]
fn known_states_stand_beside_estimates() {
    let mut rows = world(6, 30, 7);
    rows[4].y[1] = None;
    rows[9].y[0] = Some(f64::NAN);
    let lake = lake(&rows);
    lake.run(&["output.rows=all"]).succeeds();
    let found = lake.read("estimates");
    let column = found.column("known_state").as_fixed_size_list();
    assert_eq!(column.len(), rows.len());
    let (ids, times) = (found.integers("id"), found.integers("t"));
    for at in 0..column.len() {
        let is_own = |row: &&Row| (row.id, row.t) == (ids[at], times[at]);
        let row = rows.iter().find(is_own).expect("a row of the input");
        let state = row.y.map(|y| y.filter(|y| y.is_finite()));
        match state {
            [Some(a), Some(b)] => {
                let list = column.value(at);
                assert_eq!(list.as_primitive::<Float64Type>().values(), &[a, b], "{at}");
            }
            _ => assert!(column.is_null(at), "{at}"),
        }
    }
    assert_eq!(column.null_count(), 2);
}

#[test]
fn the_rows_of_a_run_come_back() {
    let rows = world(9, 40, 5);
    let lake = lake(&rows);
    let by = "SELECT *, id % 2 AS part FROM world";
    let text = PIPELINE
        .swap("SELECT * FROM world", by)
        .swap("time = \"t\"", "time = \"t\"\npartition_by = [\"part\"]");
    lake.file("p.toml", &text);
    lake.runs(&[]);
    table(&lake, "new.parquet", &shuffled(&rows, 6));
    let new = ["tables.world.path=new.parquet"];
    lake.assign(&new)
        .succeeds()
        .says("rows, assigned by the model ");
    let (old, found) = (lake.tables_of("out"), lake.tables_of("new"));
    assert_eq!(found.len(), 2);
    for table in ["estimates", "trajectories"] {
        assert!(old[table] == found[table], "{table}");
    }
    lake.assign(&new).succeeds().says("Nothing to do");

    // Neither known states nor a split are needed.
    let bare = text
        .replace("SELECT *, id", "SELECT id, t, x1, x2, x3, id")
        .replace("split = \"split\"\n", "")
        .replace("state = [\"y1\", \"y2\"]\n", "");
    lake.runs_text(&without_ekf(&text));
    lake.file("p.toml", &without_ekf(&bare));
    lake.assign(&[]).succeeds();
    let found = lake.read_at("new/estimates");
    assert!(found.0.schema().field_with_name("known_state").is_err());
    let expected = lake.read("estimates");
    for name in words("kf_mean kf_variance diagonal_mean diagonal_log_score") {
        assert_eq!(found.column(name), expected.column(name), "{name}");
    }
    let sums = lake.read_at("new/trajectories");
    assert_eq!(sums.column("kf_mse").null_count(), sums.len());
}

#[test]
fn rows_that_do_not_fit_the_model_are_refused_by_name() {
    let rows = world(6, 30, 7);
    let lake = lake(&rows);
    lake.runs(&[]);
    let trained = "sequences.sql=\"SELECT * FROM world WHERE split = 'train'\"";
    let message = "rows have the split of training rows, which are not assigned";
    lake.assign(&["output.rows=held-out", trained])
        .fails(1, message);
    let by = "sequences.sql=\"SELECT *, 1 AS part FROM world\"";
    lake.assign(&[by, "sequences.partition_by=part"])
        .fails(2, "the columns of partition_by are `part`");
    let kernel = PIPELINE
        .find("[[fit]]\nname = \"diagonal\"")
        .expect("a fit");
    let output = PIPELINE.find("[output]").expect("a section");
    let fewer = format!("{}{}", &PIPELINE[..kernel], &PIPELINE[output..]);
    lake.file("fewer.toml", &fewer);
    let message = "the model has the fit `diagonal`, which the pipeline does not have";
    lake.line("assign fewer.toml --model out --output new")
        .fails(2, message);
    let text = PIPELINE.swap("[\"x1\", \"x2\", \"x3\"]", "[\"x1\", \"x2\"]");
    lake.runs_text(&without_ekf(PIPELINE));
    lake.file("p.toml", &without_ekf(&text));
    lake.assign(&[])
        .fails(2, "`sequences.observation` has 2 numbers, but the model");
}

#[test]
fn two_results_are_compared_row_by_row() {
    let rows = world(6, 30, 8);
    let lake = lake(&rows);
    lake.runs(&[]);
    let same = lake.compare(&["out", "out"]);
    let model = &same["models"][0];
    assert_eq!(model["rows"], rows.len());
    for fit in model["fits"].as_array().expect("fits") {
        assert_eq!(fit["means"]["rms"], 0.0);
        assert_eq!(fit["means"]["largest"], 0.0);
        assert_eq!(fit["scores_a"], fit["scores_b"]);
    }
    let other = lake.compare(&["out", "out", "--fit", "kf=ekf"]);
    let means = &other["models"][0]["fits"][0]["means"];
    let estimates = lake.read("estimates");
    let (a, b) = (estimates.lists("kf_mean"), estimates.lists("ekf_mean"));
    let gaps = a
        .iter()
        .flatten()
        .zip(b.iter().flatten())
        .map(|(a, b)| (a - b).abs());
    let gaps: Vec<f64> = gaps.collect();
    let largest = gaps.iter().copied().fold(0.0, f64::max);
    let rms = (gaps.iter().map(|gap| gap * gap).sum::<f64>() / gaps.len() as f64).sqrt();
    assert!((means["largest"].as_f64().expect("a number") - largest).abs() < 1e-15);
    assert!((means["rms"].as_f64().expect("a number") - rms).abs() < 1e-12);
    lake.line("compare out out --fit kf=ekf")
        .succeeds()
        .says("means differ by ")
        .says("test MSE ");
}

// The columns of the table of running times of Song, Zhu and Ren 2016, section 5.
#[test]
fn a_record_has_the_seconds_of_fits_and_of_rows() {
    let rows = world(6, 20, 16);
    let lake = lake(&rows);
    let ran = lake.runs(&[]);
    let record = lake.record();
    let model = &record["models"][0];
    let n = model["rows"].as_f64().expect("a number");
    assert_eq!(n, rows.len() as f64);
    let fits = model["fits"].as_array().expect("fits");
    assert_eq!(fits.len(), 3);
    for fit in fits {
        let seconds = |key: &str| fit[key].as_f64().expect("seconds");
        assert!(seconds("seconds") > 0.0, "{fit}");
        let (all, row) = (seconds("filter_seconds"), seconds("row_seconds"));
        assert!(row > 0.0 && (row * n / all - 1.0).abs() < 1e-12, "{fit}");
        ran.says(&format!("{row:.1e} per row"));
    }
    // Another run has other times and the same tables.
    let expected = lake.tables_of("out");
    fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    lake.runs(&[]);
    assert!(lake.tables_of("out") == expected);
}

// Song, Zhu and Ren 2016, (5), (7) and (10).
#[test]
fn objectives_of_rows_are_columns_if_a_fit_has_the_key() {
    let lake = lake(&world(6, 20, 16));
    let fit = |name: &str, keys: &str| {
        format!(
            "[[fit]]\nname = \"{name}\"\nmethod = \"kernel_bayes\"\nbandwidth = \"median\"\n\
             lambda = 0.001\n{keys}\n"
        )
    };
    let supervised = "rule = \"kregbayes\"\nmu = 0.01\nobjective = true\n\
                      supervision = { sql = \"SELECT y1, y2, x1, x2, x3 FROM world WHERE id = 1 AND t < 3 AND x2 IS NOT NULL AND NOT isnan(x3)\" }";
    let kernels = [
        fit("plain", ""),
        fit("pkbr", "objective = true"),
        fit("kbr", "rule = \"kbr\"\nobjective = true"),
        fit("kreg", supervised),
    ];
    lake.runs_text(&format!("{}{}", before_fits(), kernels.concat()))
        .says(" above its minimum");
    let (fits, rows) = (lake.read("fits"), lake.read("estimates"));
    let names = fits.texts("fit");
    let columns = ["objective", "objective_excess", "supervision_distance"];
    for (fit, known) in [("plain", 0), ("kbr", 1), ("pkbr", 2), ("kreg", 3)] {
        let at = names.iter().position(|name| name == fit).expect("a fit");
        let updated = rows.column(&format!("{fit}_was_updated")).as_boolean();
        for (place, column) in columns.iter().enumerate() {
            let mean = maybe(&fits, column)[at];
            let name = format!("{fit}_{column}");
            if place >= known {
                assert!(mean.is_none() && rows.0.schema().field_with_name(&name).is_err());
                continue;
            }
            // The first row of a sequence has no prior, and so none.
            let values = maybe(&rows, &name);
            let own: Vec<f64> = values.iter().flatten().copied().collect();
            assert!(
                own.len() > 20 && own.len() < rows.len(),
                "{name} {}",
                own.len()
            );
            let is_known = |at: usize| values[at].is_none() || updated.value(at);
            assert!((0..rows.len()).all(is_known), "{name}");
            let expected = match place {
                1 => own.iter().copied().fold(0.0, f64::max),
                _ => own.iter().sum::<f64>() / own.len() as f64,
            };
            let mean = mean.expect("a number");
            assert!(
                (mean - expected).abs() <= 1e-12 * expected,
                "{name} {mean} {expected}"
            );
            // The weights are those of the minimum.
            assert!(place != 1 || mean < 1e-9, "{name} {mean}");
        }
    }
    lake.assign(&[]).succeeds();
    let new = lake.read_at("new/estimates");
    for name in words("pkbr_objective kbr_objective kreg_objective kreg_supervision_distance") {
        assert_eq!(new.column(name), rows.column(name), "{name}");
    }
    // Without the key, the tables of the other fit are the same.
    let plain = rows.lists("plain_mean");
    lake.runs_text(&format!("{}{}", before_fits(), kernels[0]));
    assert_eq!(lake.read("estimates").lists("plain_mean"), plain);
    assert!(
        lake.read("fits")
            .0
            .schema()
            .field_with_name("objective")
            .is_err()
    );
}

#[test]
fn rows_that_cannot_be_filtered_are_refused_by_name() {
    let rows = world(6, 30, 10);
    let lake = lake(&rows);
    let sql = |text: &str| format!("sequences.sql=\"{text}\"");
    lake.run(&[&sql(
        "SELECT * FROM world UNION ALL SELECT * FROM world WHERE id = 4 AND t = 8",
    )])
    .fails(1, "has two rows at t = 8");
    lake.run(&[&sql("SELECT * EXCLUDE (split), 'tst' AS split FROM world")])
        .fails(1, "`split` = 'tst' is no split");
    let tested = sql("SELECT * EXCLUDE (split), 'test' AS split FROM world");
    let message = "no training row with a state and an observation is followed by another one";
    lake.run(&[&tested]).fails(1, message);
    lake.run(&[&sql(
        "SELECT * EXCLUDE (y1), CAST(NULL AS DOUBLE) AS y1 FROM world",
    )])
    .fails(1, "training row with a null state `y1`");
    lake.run(&["sequences.interval=7"])
        .fails(1, "check the split, and `sequences.interval`");

    // A partition without training rows.
    let by = sql("SELECT *, id % 2 AS part FROM world WHERE id % 2 = 0 OR split = 'test'");
    let part = "sequences.partition_by=part";
    let ran = lake.run(&[&by, part]);
    if ran.code == Some(0) {
        ran.says("1 model without a training row left out: part=1");
        let (parts, means) = {
            let found = lake.read("estimates");
            (found.integers("part"), found.column("kf_mean").clone())
        };
        assert!((0..parts.len()).all(|at| means.is_null(at) == (parts[at] == 1)));
    }
    lake.run(&[&by, part, "sequences.empty=fail"])
        .fails(1, "`empty = \"skip\"` leaves");
}

/// The mean of some numbers; None if there are none.
fn mean(numbers: &[f64]) -> Option<f64> {
    (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64)
}

#[test]
fn errors_of_steps_are_those_of_the_estimates() {
    let mut rows = world(8, 20, 21);
    // Trajectories of several lengths, and rows without a known state.
    rows.retain(|row| row.t < 20 - row.id);
    for row in &mut rows {
        if (row.t % 6 == 4 && row.id != 6) || row.t >= 18 {
            row.y[1] = None;
        }
    }
    let lake = lake(&rows);
    lake.runs(&[]);
    let without = lake.tables_of("out");
    assert!(!without.contains_key("errors"));
    let sets = "--set output.errors=true --set job.output=steps --threads 1";
    lake.line(&format!("run p.toml {sets}")).succeeds();
    let found = lake.tables_of("steps");
    for (table, bytes) in &without {
        assert!(*bytes == found[table], "{table}");
    }

    let (errors, estimates) = (lake.read_at("steps/errors"), lake.read("estimates"));
    let (fits, steps) = (errors.texts("fit"), errors.integers("step"));
    let n = errors.integers("rows");
    let mut at = 0;
    for fit in ["diagonal", "ekf", "kf"] {
        for (column, of) in [("mse", "mean"), ("mse_decoded", "decoded")] {
            let lists = estimates.lists(&format!("{fit}_{of}"));
            // Squared errors by step, trajectory by trajectory.
            let mut by_step: Vec<Vec<f64>> = Vec::new();
            let mut before = (-1, 0);
            for (row, found) in rows.iter().zip(&lists) {
                before = (row.id, if before.0 == row.id { before.1 + 1 } else { 0 });
                if row.split != Some("test") {
                    continue;
                }
                by_step.resize(by_step.len().max(before.1 + 1), Vec::new());
                if let [Some(a), Some(b)] = row.y {
                    let square = (found[0] - a).powi(2) + (found[1] - b).powi(2);
                    by_step[before.1].push(square);
                }
            }
            let running = |step: usize| mean(&by_step[..=step].concat());
            let places = at..at + by_step.len();
            for (step, place) in places.clone().enumerate() {
                assert_eq!((fits[place].as_str(), steps[place]), (fit, step as i64));
                assert_eq!(n[place], by_step[step].len() as i64);
                for (column, expected) in [
                    (column.to_string(), mean(&by_step[step])),
                    (format!("running_{column}"), running(step)),
                ] {
                    let found = maybe(&errors, &column)[place];
                    assert_eq!(found.is_some(), expected.is_some(), "{fit} {column} {step}");
                    let gap = found.unwrap_or(0.0) - expected.unwrap_or(0.0);
                    assert!(gap.abs() < 1e-12, "{fit} {column} {step}");
                }
            }
            let last = maybe(&errors, &format!("running_{column}"))[places.end - 1];
            let of_fits = lake.read("fits");
            let own = of_fits.texts("fit").iter().position(|name| name == fit);
            let all = of_fits.floats(&format!("test_{column}"))[own.expect("the fit")];
            assert!((last.expect("rows") - all).abs() < 1e-12);
            if of == "decoded" {
                at = places.end;
            }
        }
    }
    assert_eq!(at, errors.len());
    assert!(n.contains(&0) && n.contains(&3), "{n:?}");

    // Batches, files, the order of rows and threads change no byte.
    let other = Lake::new();
    other.file("p.toml", PIPELINE);
    for (file, rows) in shuffled(&rows, 22).chunks(37).enumerate() {
        table(&other, &format!("world/{file}.parquet"), rows);
    }
    other.runs(&["output.errors=true"]);
    assert!(other.tables_of("out")["errors"] == found["errors"]);
}

/// Filters by kernel Bayes' rule: all forms, whole and approximated.
const KERNELS: &str = r#"
[[fit]]
name = "pkbr"
method = "kernel_bayes"

[[fit]]
name = "kbr"
method = "kernel_bayes"
rule = "kbr"
bandwidth = "median"
lambda = 0.001

[[fit]]
name = "supervised"
method = "kernel_bayes"
rule = "kregbayes"
bandwidth = { state = 1.0, observation = 1.5 }
lambda = 0.001
mu = 0.001
supervision = { sql = "SELECT y1, y2, x1, x2, x3, id, t FROM known" }

[[fit]]
name = "nearest"
method = "kernel_bayes"
rule = "kregbayes"
bandwidth = { state = 1.0, observation = 1.5 }
lambda = 0.001
mu = 0.01
supervision = { sql = "SELECT y1, y2 FROM known UNION ALL SELECT -y1, y2 FROM known", nearest = true }

[[fit]]
name = "by_function"
method = "kernel_bayes"
rule = "kregbayes"
bandwidth = { state = 1.0, observation = 1.5 }
lambda = 0.001
mu = 0.01

[fit.supervision]
sql = "SELECT y1, y2 FROM known UNION ALL SELECT -y1, y2 FROM known"
nearest = true
f = ["0.9 * y1 + 0.2 * y2", "0.8 * y2"]

[[fit]]
name = "tensor"
method = "kernel_bayes"
rule = "kbr"
bandwidth = "median"
lambda = 0.001
exact = 60
rank_state = 20
rank_observation = 30

[[fit]]
name = "landmarks"
method = "kernel_bayes"
bandwidth = "median"
lambda = 0.001
exact = 60
rank_state = 20
rank_observation = 30
landmarks = 50

[output]
rows = "all"
"#;

/// A pipeline of kernel Bayes filters, with supervision of one step.
fn kernels(rows: &[Row], step: (i64, i64)) -> (Lake, String) {
    let lake = lake(rows);
    let mut known = rows[3].clone();
    (known.id, known.t) = step;
    known.y = [Some(4.0), Some(4.0)];
    known.x = [Some(0.1), Some(0.2), Some(0.1)];
    table(&lake, "known.parquet", &[known]);
    let text = format!(
        "{}\n[tables.known]\npath = \"known.parquet\"\n{KERNELS}",
        before_fits()
    );
    lake.file("p.toml", &text);
    (lake, text)
}

#[test]
fn kernel_filters_come_back_and_do_not_depend_on_threads_or_order() {
    let rows = world(6, 30, 12);
    let (lake, text) = kernels(&rows, (0, 12));
    lake.line("run p.toml --threads 1").succeeds();
    let expected = lake.tables_of("out");
    let fits = lake.read("fits");
    let residuals = maybe(&fits, "state_trace_residual");
    assert!(residuals.iter().any(Option::is_some), "{residuals:?}");
    assert_eq!(lake.read("tuning").len(), 9);
    table(&lake, "new.parquet", &shuffled(&rows, 13));
    let new = "tables.world.path=new.parquet";
    lake.assign(&[new]).succeeds();
    let found = lake.tables_of("new");
    for table in ["estimates", "trajectories"] {
        assert!(expected[table] == found[table], "{table}");
    }
    let message = "fit `pkbr` is kernel_bayes with the rule pkbr in the model, but";
    lake.assign(&[new, "fit.pkbr.rule=kbr"]).fails(2, message);
    let other = Lake::new();
    other.file("p.toml", &text);
    table(&other, "world/0.parquet", &shuffled(&rows, 14));
    fs::copy(lake.path("known.parquet"), other.path("known.parquet")).expect("a copy");
    other.line("run p.toml --threads 3").succeeds();
    let found = other.tables_of("out");
    for (table, bytes) in &expected {
        assert!(*bytes == found[table], "{table}");
    }
}

#[test]
fn supervision_of_a_step_changes_the_sequence_from_there_on() {
    let rows = world(6, 30, 15);
    let sequence = |row: &Row| (row.id == 0 && row.t >= 12).then_some(row.t);
    let steps: Vec<i64> = rows.iter().filter_map(sequence).collect();
    let end = steps.windows(2).find(|pair| pair[1] > pair[0] + 1);
    let (first, last) = (steps[0], end.map_or(99, |pair| pair[0]));
    let of = |step: (i64, i64)| {
        let (lake, _) = kernels(&rows, step);
        lake.runs(&[]);
        lake.read("estimates").lists("supervised_mean")
    };
    let (plain, supervised) = (of((99, 0)), of((0, first)));
    for (at, row) in rows.iter().enumerate() {
        let may_differ = row.id == 0 && (first..=last).contains(&row.t);
        assert!(may_differ || plain[at] == supervised[at], "{row:?}");
        if (row.id, row.t) == (0, first) {
            assert_ne!(plain[at], supervised[at], "{row:?}");
        }
    }
}

#[test]
fn posteriors_of_independent_rows_give_their_means() {
    let rows = world(6, 20, 16);
    let lake = lake(&rows);
    let text = rows_alone();
    let kernels = "[[fit]]\nname = \"kb\"\nmethod = \"kernel_bayes\"\nbandwidth = \"median\"\n\
                   lambda = 0.001\n[output]\nposteriors = true\n";
    lake.file("p.toml", &format!("{text}{kernels}"));
    lake.runs(&[]).says("test MSE");
    let (estimates, posteriors) = (lake.read("estimates"), lake.read("posteriors"));
    let state: BTreeMap<(i64, i64), [f64; 2]> = rows
        .iter()
        .map(|row| ((row.id, row.t), row.y.map(|y| y.expect("a state"))))
        .collect();
    let keys = |rows: &Rows, id: &str, t: &str| -> Vec<(i64, i64)> {
        rows.integers(id)
            .into_iter()
            .zip(rows.integers(t))
            .collect()
    };
    let mut sums: BTreeMap<(i64, i64), [f64; 3]> = BTreeMap::new();
    let training = keys(&posteriors, "training_id", "training_t");
    let weights = posteriors.floats("weight");
    for (at, key) in keys(&posteriors, "id", "t").into_iter().enumerate() {
        let (sum, y) = (sums.entry(key).or_default(), state[&training[at]]);
        assert!(training[at].0 % 3 != 0 && weights[at] != 0.0);
        *sum = [
            sum[0] + weights[at] * y[0],
            sum[1] + weights[at] * y[1],
            sum[2] + weights[at],
        ];
    }
    let (means, total) = (
        estimates.lists("kb_mean"),
        maybe(&estimates, "kb_weight_sum"),
    );
    let of_rows = keys(&estimates, "id", "t");
    let expected = rows.iter().filter(|row| row.id % 3 == 0).count();
    assert_eq!(of_rows.len(), expected);
    for (at, key) in of_rows.iter().enumerate() {
        let [a, b, sum] = sums[key];
        assert!((sum - total[at].expect("a sum")).abs() < 1e-9);
        for (mean, weighted) in means[at].iter().zip([a, b]) {
            assert!(
                (mean - weighted / sum).abs() < 1e-8,
                "{key:?}: {mean} {}",
                weighted / sum
            );
        }
    }
    assert!(!lake.path("out/trajectories").exists());
    lake.assign(&[]).succeeds();
    assert!(lake.tables_of("new")["estimates"] == lake.tables_of("out")["estimates"]);
    let twice = "sequences.sql=\"SELECT * FROM world UNION ALL SELECT * FROM world WHERE t = 8 AND id = 1\"";
    lake.run(&[twice])
        .fails(1, "two rows have the id (id, t) = ");
    let equal =
        "sequences.sql=\"SELECT * EXCLUDE (x1, x2, x3), 1 AS x1, 2 AS x2, 3 AS x3 FROM world\"";
    let message = "all training rows have the same observation (`x1`, `x2`, `x3`)";
    lake.run(&[equal]).fails(1, message);
}

/// Weights of a prior are shares: their sum and their scale do not matter.
#[test]
fn weights_of_a_prior_are_shares() {
    let lake = lake(&world(6, 12, 16));
    let text = rows_alone();
    let kernels = "[[fit]]\nname = \"kb\"\nmethod = \"kernel_bayes\"\nbandwidth = \"median\"\nlambda = 0.001\n";
    lake.file("p.toml", &format!("{text}{kernels}"));
    let prior = |weights: [f64; 2]| {
        let [a, b] = weights;
        format!(
            "fit.kb.prior={{ sql = \"SELECT 0.1 AS y1, 0.2 AS y2, CAST({a:e} AS DOUBLE) AS weight UNION ALL SELECT 1.3, 0.4, CAST({b:e} AS DOUBLE)\" }}"
        )
    };
    let means = |weights: [f64; 2]| {
        lake.run(&[&prior(weights)]).succeeds();
        lake.read("estimates").lists("kb_mean").concat()
    };
    let shares = means([0.2, 0.8]);
    for power in [-1000, -2, 10, 1000] {
        assert_eq!(means([0.2, 0.8].map(|w| w * 2f64.powi(power))), shares);
    }
    for (a, b) in means([20.0, 80.0]).iter().zip(&shares) {
        assert!((a - b).abs() < 1e-12, "{a} {b}");
    }
    lake.run(&[&prior([0.0, 0.0])])
        .fails(1, "all weights of a prior are 0");
    let negative = "column `weight` has the weight -1 for the state (0.1, 0.2)";
    lake.run(&[&prior([-1.0, 2.0])]).fails(1, negative);
}

/// Squares of such a number are infinite, and no matrix can be fitted to it.
#[test]
fn a_far_training_row_is_refused_by_its_key() {
    let lake = lake(&world(6, 12, 16));
    for (column, what) in [("x1", "observation"), ("y1", "state")] {
        let far = format!(
            "sequences.sql=\"SELECT * EXCLUDE ({column}), CASE WHEN id = 1 AND t BETWEEN 3 AND 8 THEN -1e160 ELSE {column} END AS {column} FROM world\""
        );
        let message = format!("the {what} `{column}` is -1e160 in the training row (1, ");
        lake.run(&[&far]).fails(1, &message);
    }
}
