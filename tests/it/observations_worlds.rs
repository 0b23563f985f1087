//! Filters of known worlds, from the view of a user: the exact filter of a linear system, Bayes'
//! rule by hand, and both experiments of the paper. Python with DuckDB is used if `GYRE_PYTHON`
//! names it.

use crate::cli::integers;
use crate::lake::{Lake, Rows, Swap, collect, floats, texts};
use crate::needs::is_slow;
use arrow::array::Array;
use datafusion::prelude::SessionContext;
use std::collections::BTreeMap;

/// A column of the table `fits`, by partition and fit: the mean over partitions of one fit.
fn mean_of(fits: &Rows, fit: &str, column: &str) -> f64 {
    let names = fits.texts("fit");
    let values = fits.floats(column);
    let own = names.iter().zip(&values).filter(|(name, _)| *name == fit);
    let own: Vec<f64> = own.map(|(_, value)| *value).collect();
    assert!(!own.is_empty(), "{fit} in {names:?}");
    own.iter().sum::<f64>() / own.len() as f64
}

/// The rows of a query over the table functions of gyre.
fn query(sql: &str) -> Rows {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let context = SessionContext::new();
        gyre::read::linear_gaussian::register(&context);
        gyre::read::kernel_toy::register(&context);
        collect(&context, sql).await
    })
}

#[track_caller]
fn assert_near(found: &[f64], expected: &[f64], tolerance: f64) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let gap = (found - expected).abs();
        assert!(gap <= tolerance, "row {at}: {found}, not {expected}");
    }
}

/// The toy of the paper with `worlds` worlds.
fn toy(lake: &Lake, train: usize, test: usize, worlds: usize) -> Rows {
    let call = format!("kernel_toy({train}, {test}, 0, {worlds})");
    let text = include_str!("../../pipelines/kernel_toy.toml");
    let text = text.replace("kernel_toy(1000, 200)", &call);
    lake.file("toy.toml", &text.replace("${OUT:-out}/kernel-toy", "out"));
    let ran = lake.line("run toy.toml").succeeds();
    eprintln!("{}", ran.out);
    let fits = lake.read("fits");
    assert_eq!(fits.len(), 5 * worlds);
    fits
}

// Supervision of a small weight changes little.
#[test]
fn the_rules_of_kernel_bayes_follow_the_toy() {
    let lake = Lake::new();
    let fits = toy(&lake, 300, 60, 2);
    let error = |fit: &str| mean_of(&fits, fit, "test_mse_decoded");
    let (kbr, pkbr, kreg) = (error("kbr"), error("pkbr"), error("kregbayes"));
    assert!((0.015..0.08).contains(&pkbr), "{pkbr}");
    assert!((0.015..0.08).contains(&kbr), "{kbr}");
    assert!((kreg / pkbr - 1.0).abs() < 0.05, "{kreg} {pkbr}");
    let (ekf, ukf) = (error("ekf"), error("ukf"));
    assert!(ekf > pkbr && ukf > pkbr, "{ekf} {ukf} {pkbr}");

    // The mean squared errors are those of the estimates, summed over the numbers of a state.
    let rows = lake.read("estimates");
    assert_eq!(rows.len(), 2 * 60);
    assert!(rows.texts("split").iter().all(|split| split == "test"));
    let sql = "SELECT theta FROM kernel_toy(300, 60, 0, 2) WHERE split = 'test' ORDER BY trajectory, time";
    let truth = query(sql);
    let theta = truth.floats("theta");
    for fit in ["pkbr", "kbr", "kregbayes", "ekf", "ukf"] {
        for (column, scored) in [("mean", "test_mse"), ("decoded", "test_mse_decoded")] {
            let lists = rows.lists(&format!("{fit}_{column}"));
            let errors = lists.iter().zip(&theta).map(|(found, theta)| {
                (found[0] - theta.cos()).powi(2) + (found[1] - theta.sin()).powi(2)
            });
            let mse = errors.sum::<f64>() / rows.len() as f64;
            assert!(
                (mse / mean_of(&fits, fit, scored) - 1.0).abs() < 1e-9,
                "{fit} {mse}"
            );
        }
        let variances = rows.lists(&format!("{fit}_variance"));
        assert!(variances.iter().flatten().all(|v| *v >= 0.0), "{fit}");
        assert!(
            rows.floats(&format!("{fit}_log_score"))
                .iter()
                .all(|s| s.is_finite())
        );
    }
}

// Song, Zhu and Ren 2016, Figure 1, without the advantage of kRegBayes over pKBR.
#[test]
fn song2016_figure1_toy() {
    if !is_slow() {
        return;
    }
    let lake = Lake::new();
    let fits = toy(&lake, 1000, 200, 8);
    let error = |fit: &str| mean_of(&fits, fit, "test_mse_decoded");
    let pkbr = error("pkbr");
    assert!((0.03..0.045).contains(&pkbr), "{pkbr}");
    assert!(pkbr < error("ekf") && pkbr < error("ukf"));
    let ratio = error("kregbayes") / pkbr;
    assert!((ratio - 1.0).abs() < 0.05, "{ratio}");
}

#[test]
fn a_linear_system_has_its_exact_filter() {
    let lake = Lake::new();
    let ran = lake.run_of_repository("tracking", &[]).succeeds();
    crate::pages::assert_output_shown(&ran.out);
    let rows = lake.read("tracking/estimates");
    let exact = query(
        "SELECT state, observation, exact_mean, exact_variance \
         FROM linear_gaussian(40, 25, 0.9, 0.25, 0.5) WHERE trajectory >= 20 \
         ORDER BY trajectory, time",
    );
    let numbers = |fit: &str, column: &str| -> Vec<f64> {
        let lists = rows.lists(&format!("{fit}_{column}"));
        lists.into_iter().map(|list| list[0]).collect()
    };
    assert_near(&numbers("exact", "mean"), &exact.floats("exact_mean"), 1e-9);
    let variances = exact.floats("exact_variance");
    assert_near(&numbers("exact", "variance"), &variances, 1e-9);
    assert!((variances[24] - 0.233_886_241_186).abs() < 1e-9);
    let fits = lake.read("tracking/fits");
    let error = |fit: &str| mean_of(&fits, fit, "test_mse");
    let best = error("exact");
    assert!((0.2..0.27).contains(&best), "{best}");
    assert!(error("fitted") < 1.05 * best, "{}", error("fitted"));
    assert!(error("kernel") < 1.25 * best, "{}", error("kernel"));
    // The log score is that of the exact density of an observation.
    let (states, observations) = (exact.floats("exact_mean"), exact.floats("observation"));
    let expected: Vec<f64> = (0..rows.len())
        .map(|at| {
            let (mean, variance) = if at % 25 == 0 {
                (0.0, 0.25 / 0.19)
            } else {
                (0.9 * states[at - 1], 0.81 * variances[at - 1] + 0.25)
            };
            let spread = variance + 0.5;
            let gap = observations[at] - mean;
            -0.5 * ((2.0 * std::f64::consts::PI * spread).ln() + gap * gap / spread)
        })
        .collect();
    assert_near(&rows.floats("exact_log_score"), &expected, 1e-9);
    let sums = lake.read("tracking/trajectories").floats("exact_log_score");
    let expected: Vec<f64> = expected.chunks(25).map(|of| of.iter().sum()).collect();
    assert_near(&sums, &expected, 1e-9);
}

pub const TRACK: &str = r#"
job = { name = "track", output = "out" }
tables.track.path = "track/"
[sequences]
sql = "SELECT * FROM track"
trajectory = "id"
time = "t"
interval = 1
state = ["s"]
observation = ["o", "o2"]
split = "split"

[[fit]]
name = "kf"
method = "kalman"

[[fit]]
name = "kernel"
method = "kernel_bayes"
bandwidth = "median"
lambda = 1e-3

[[fit]]
name = "kbr"
method = "kernel_bayes"
rule = "kbr"
bandwidth = "median"
lambda = 1e-3
"#;

/// Writes trajectories 0 to `n` − 1 of a linear system in a file. The first `train` are
/// for training. Every seventh observation of the others is missing.
pub fn track(lake: &Lake, n: usize, train: usize, seed: u64) {
    let world = query(&format!(
        "SELECT trajectory, time, state, observation \
         FROM linear_gaussian({n}, 20, 0.9, 0.25, 0.5, {seed}) ORDER BY trajectory, time"
    ));
    let (ids, times) = (world.integers("trajectory"), world.integers("time"));
    let (states, observations) = (world.floats("state"), world.floats("observation"));
    let is_train = |row: usize| (ids[row] as usize) < train;
    let second = |row: usize| match row % 7 {
        3 if !is_train(row) => None,
        5 if !is_train(row) => Some(f64::NAN),
        _ => Some(observations[row].powi(2)),
    };
    let rows = 0..world.len();
    let split = |row: usize| if is_train(row) { "train" } else { "test" };
    let columns = vec![
        ("id", integers(ids.clone())),
        ("t", integers(times)),
        ("s", floats(states)),
        ("o", floats(observations.clone())),
        ("o2", floats(rows.clone().map(second))),
        ("split", texts(rows.map(split))),
    ];
    lake.table("track/0.parquet", columns);
}

#[test]
fn missing_observations_are_predicted_through() {
    let lake = Lake::new();
    track(&lake, 20, 10, 0);
    let both =
        "SELECT id, t, s, CASE WHEN isnan(o2) THEN NULL ELSE o END AS o, o2, split FROM track";
    lake.runs_text(&TRACK.swap("SELECT * FROM track", both));
    let rows = lake.read("estimates");
    assert_eq!(rows.len(), 200);
    // A Kalman filter takes the number that is there, and a kernel needs both.
    let is_partial = |row: &usize| (200 + row) % 7 == 3;
    let is_empty = |row: &usize| (200 + row) % 7 == 5;
    let without_both = |row: &usize| is_partial(row) || is_empty(row);
    for fit in ["kf", "kernel", "kbr"] {
        let scores = rows.column(&format!("{fit}_log_score"));
        let variances = rows.lists(&format!("{fit}_variance"));
        let updated = rows.texts(&format!("{fit}_was_updated"));
        let missing = |row: &usize| match fit {
            "kf" => is_empty(row),
            _ => without_both(row),
        };
        for row in 0..200 {
            assert_eq!(scores.is_null(row), missing(&row), "{fit} {row}");
            assert!(updated[row] == "false" || !missing(&row), "{fit} {row}");
            assert!(variances[row][0] >= 0.0);
        }
        // A row without an observation is less certain than the row before.
        if fit == "kf" {
            let later = (1..200).filter(|row| row % 20 > 0 && missing(row));
            for row in later {
                assert!(variances[row][0] > variances[row - 1][0], "{row}");
            }
        }
    }
    let trajectories = lake.read("trajectories");
    let total: i64 = trajectories.integers("missing").iter().sum();
    assert_eq!(total as usize, (0..200).filter(without_both).count());
    let certificates = lake.read("certificates");
    let holds = certificates.texts("holds");
    assert!(holds.iter().all(|holds| holds == "true"));
}

#[test]
fn an_old_model_filters_new_rows() {
    let lake = Lake::new();
    track(&lake, 20, 10, 2);
    lake.runs_text(TRACK);
    let old = lake.read("estimates");
    // Rows whose state is unknown, of a trajectory that is new.
    lake.file("p.toml", &TRACK.swap("state = [\"s\"]\n", ""));
    let unknown = "SELECT id + 100 AS id, t, o, o2, split FROM track WHERE id = 12";
    lake.assign(&[&format!("sequences.sql=\"{unknown}\"")])
        .succeeds();
    let new = lake.read_at("new/estimates");
    let rows = old.integers("id").into_iter().enumerate();
    let of = rows.filter(|(_, id)| *id == 12).map(|(at, _)| at);
    let kept: Vec<Vec<f64>> = of.map(|at| old.lists("kernel_mean")[at].clone()).collect();
    assert_eq!(new.lists("kernel_mean"), kept);
    assert_eq!(new.integers("id"), [112; 20]);
}

const STATIC: &str = r#"
job = { name = "patients", output = "out" }
tables.patients.path = "patients.parquet"
tables.prevalence.path = "prevalence.parquet"
[sequences]
sql = "SELECT * FROM patients"
id = "id"
state = ["disease"]
observation = ["a", "b"]
split = "split"

[[fit]]
name = "pkbr"
method = "kernel_bayes"
kernel = "delta"
lambda = 1e-9
delta = 1e-9
prior = { sql = "SELECT disease, weight FROM prevalence" }

[[fit]]
name = "kbr"
method = "kernel_bayes"
rule = "kbr"
kernel = "delta"
lambda = 1e-9
delta = 1e-12
prior = { sql = "SELECT disease, weight FROM prevalence" }

[output]
posteriors = true
"#;

// 0: healthy, 1 and 2: diseases. Training counts of the results (a, b) of two tests by disease, and
// another prevalence than in the training rows.
#[test]
fn a_static_problem_is_bayes_rule() {
    const COUNTS: [[usize; 4]; 3] = [[40, 6, 3, 1], [4, 12, 3, 6], [2, 3, 10, 10]];
    const PREVALENCE: [f64; 3] = [0.9, 0.07, 0.03];
    let lake = Lake::new();
    let mut patients: Vec<(i64, f64, usize, &str)> = Vec::new();
    for (disease, counts) in COUNTS.iter().enumerate() {
        for (result, count) in counts.iter().enumerate() {
            for _ in 0..*count {
                patients.push((patients.len() as i64, disease as f64, result, "train"));
            }
        }
    }
    let n = patients.len();
    patients.extend((0..4).map(|result| ((n + result) as i64, 0.0, result, "test")));
    type Patient = (i64, f64, usize, &'static str);
    let float = |of: &dyn Fn(&Patient) -> f64| floats(patients.iter().map(of));
    let columns = vec![
        ("id", integers(patients.iter().map(|p| p.0))),
        ("disease", float(&|p| p.1)),
        ("a", float(&|p| (p.2 % 2) as f64)),
        ("b", float(&|p| (p.2 / 2) as f64)),
        ("split", texts(patients.iter().map(|p| p.3))),
    ];
    lake.table("patients.parquet", columns);
    let columns = vec![
        ("disease", floats(vec![0.0, 1.0, 2.0])),
        ("weight", floats(PREVALENCE.to_vec())),
    ];
    lake.table("prevalence.parquet", columns);
    lake.runs_text(STATIC);
    let posteriors = lake.read("posteriors");
    let (fits, ids) = (posteriors.texts("fit"), posteriors.integers("id"));
    let training = posteriors.integers("training_id");
    let weights = posteriors.floats("weight");
    for fit in ["pkbr", "kbr"] {
        for (result, _) in COUNTS[0].iter().enumerate() {
            let sizes = COUNTS.map(|counts| counts.iter().sum::<usize>() as f64);
            let likelihood = |y: usize| COUNTS[y][result] as f64 / sizes[y];
            let joint: Vec<f64> = (0..3).map(|y| PREVALENCE[y] * likelihood(y)).collect();
            let total: f64 = joint.iter().sum();
            let mut masses = [0.0; 3];
            for at in 0..posteriors.len() {
                if fits[at] == fit && ids[at] == (n + result) as i64 {
                    let (_, disease, shown, _) = patients[training[at] as usize];
                    assert_eq!(shown, result);
                    masses[disease as usize] += weights[at];
                }
            }
            let expected: Vec<f64> = joint.iter().map(|p| p / total).collect();
            let sum: f64 = masses.iter().sum();
            assert_near(&masses.map(|mass| mass / sum), &expected, 1e-6);
            assert!((sum - 1.0).abs() < 1e-4, "{sum}");
        }
    }
    let estimates = lake.read("estimates");
    assert_eq!(
        estimates.integers("id"),
        (n as i64..n as i64 + 4).collect::<Vec<_>>()
    );
}

/// The table of fits of the camera by scene.
fn camera(lake: &Lake, scene: usize, train: usize, test: usize, size: usize) -> Rows {
    let text = include_str!("../../pipelines/camera.toml");
    let call = format!("camera({scene}, {train}, {test}, {size})");
    let text = text.replace("camera(0, 300, 200, 100)", &call);
    // The images and the places of the circle do not depend on the other rows.
    let new = format!("camera({scene}, 1, 1, {size})");
    let text = text.swap("camera(0, 1, 1, 100)", &new);
    let new = format!("camera({scene}, 1, 1, 1, 2000)");
    let text = text.swap("camera(0, 1, 1, 1, 2000)", &new);
    lake.file("camera.toml", &text.replace("${OUT:-out}/camera", "out"));
    let ran = lake.line("run camera.toml").succeeds();
    eprintln!("{}", ran.out);
    lake.read("fits")
}

#[test]
fn images_are_observations() {
    let lake = Lake::new();
    let fits = camera(&lake, 0, 100, 20, 12);
    let error = |fit: &str| mean_of(&fits, fit, "test_mse_decoded");
    assert!(error("kregbayes") < 0.5 * error("kalman"));
    let rows = lake.read("estimates");
    assert_eq!(rows.len(), 20);
    assert!(rows.lists("pkbr_mean").iter().all(|place| place.len() == 2));
    let errors = lake.read("errors");
    assert_eq!(errors.len(), 5 * 20);
    let last = errors.texts("fit").iter().rposition(|fit| fit == "nearest");
    let last = errors.floats("running_mse_decoded")[last.expect("the fit")];
    assert!((last - error("nearest")).abs() < 1e-12);
    assert!(error("nearest") < 0.5 * error("kalman"));
}

/// The mean of the slopes of ln √MSE against ln n over worlds, and its standard error.
fn slope(fits: &Rows, fit: &str) -> [f64; 2] {
    let (names, worlds) = (fits.texts("fit"), fits.integers("world"));
    let (sizes, errors) = (fits.integers("n"), fits.floats("test_mse"));
    let mut of_world: BTreeMap<i64, Vec<[f64; 2]>> = BTreeMap::new();
    for at in (0..fits.len()).filter(|at| names[*at] == fit) {
        let point = [(sizes[at] as f64).ln(), 0.5 * errors[at].ln()];
        of_world.entry(worlds[at]).or_default().push(point);
    }
    let slope = |points: &Vec<[f64; 2]>| {
        let mean = |axis: usize| points.iter().map(|p| p[axis]).sum::<f64>() / points.len() as f64;
        let [x, y] = [0, 1].map(mean);
        let product = |p: &[f64; 2], axis: usize| (p[0] - x) * (p[axis] - [x, y][axis]);
        let of = |axis: usize| points.iter().map(|p| product(p, axis)).sum::<f64>();
        of(1) / of(0)
    };
    let slopes: Vec<f64> = of_world.values().map(slope).collect();
    let n = slopes.len() as f64;
    let mean = slopes.iter().sum::<f64>() / n;
    let squares: f64 = slopes.iter().map(|s| (s - mean).powi(2)).sum();
    [mean, (squares / (n - 1.0) / n).sqrt()]
}

// Song, Zhu and Ren 2016, Theorems 2 and 5, give no rate. The slope that is found is about −1/2.
#[test]
fn song2016_theorem5_errors_fall_with_training_rows() {
    let lake = Lake::new();
    let text = include_str!("../../pipelines/convergence.toml");
    let text = text.swap(", (400), (800)", "");
    let text = text.swap("linear_gaussian(8000,", "linear_gaussian(1200,");
    let text = text.swap("linear_gaussian(50,", "linear_gaussian(40,");
    let text = text.replace("trajectory / 800", "trajectory / 200");
    let text = text.replace("trajectory % 800", "trajectory % 200");
    let text = text.replace("trajectory + 800", "trajectory + 200");
    lake.file("p.toml", &text.swap("${OUT:-out}/convergence", "out"));
    lake.runs(&[]);
    let fits = lake.read("fits");
    assert_eq!(fits.len(), 2 * 6 * 3);
    for fit in ["pkbr", "kbr"] {
        let [mean, error] = slope(&fits, fit);
        let interval = [mean - 2.0 * error, mean + 2.0 * error];
        assert!(
            interval[0] < -0.5 && -0.5 < interval[1],
            "{fit} {interval:?}"
        );
        assert!(interval[1] < -0.2, "{fit} {interval:?}");
    }
}

// Song, Zhu and Ren 2016, section 5: images of the size of the paper, and few of them.
#[test]
fn song2016_camera_of_100_by_100_pixels() {
    let lake = Lake::new();
    let fits = camera(&lake, 0, 40, 10, 100);
    let names = ["kalman", "kbr", "kregbayes", "nearest", "pkbr"];
    assert_eq!(fits.texts("fit"), names);
    let error = |fit: &str| mean_of(&fits, fit, "test_mse_decoded");
    for fit in ["kbr", "pkbr", "kregbayes"] {
        assert!(error(fit) < error("kalman"), "{fit} {}", error(fit));
    }
    assert!(error("kregbayes") < 0.2 * error("pkbr"));
    let rows = lake.read("estimates");
    assert_eq!(rows.len(), 10);
    let scores = rows.floats("kregbayes_log_score");
    assert!(scores.iter().all(|score| score.is_finite()));
    let factors = lake.read("factors");
    let pixels = factors.lists("values").iter().map(Vec::len).max();
    assert_eq!(pixels, Some(10_000));
}

// Song, Zhu and Ren 2016, Figure 3, pooled over three scenes.
#[test]
fn song2016_figure3_camera() {
    if !is_slow() {
        return;
    }
    let mut gaps = Vec::new();
    for train in [100, 200, 300] {
        let mut errors = [0.0; 5];
        for scene in 0..3 {
            let lake = Lake::new();
            let fits = camera(&lake, scene, train, 200, 100);
            for (error, fit) in
                errors
                    .iter_mut()
                    .zip(["kbr", "pkbr", "kregbayes", "nearest", "kalman"])
            {
                *error += mean_of(&fits, fit, "test_mse_decoded") / 3.0;
            }
        }
        eprintln!("{train} rows: kbr, pkbr, kregbayes, nearest, kalman {errors:.3?}");
        let [kbr, pkbr, kreg, nearest, kalman] = errors;
        assert!(kreg <= pkbr, "{errors:?}");
        if train == 100 {
            assert!(nearest < 0.5 * pkbr, "{errors:?}");
        }
        if train >= 200 {
            assert!(kalman > 5.0 * pkbr.max(kbr), "{errors:?}");
        }
        gaps.push((pkbr - kbr).abs());
    }
    assert!(gaps[2] < gaps[0], "{gaps:?}");
}
