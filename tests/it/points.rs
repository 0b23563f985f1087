//! Runs over points: state embeddings of trajectories with coordinates.

use crate::cli::integers;
use crate::lake::{Lake, Rows, Swap, floats, words};
use arrow::array::{Array, ArrayRef, ListArray};
use arrow::datatypes::Float64Type;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::fs;
use std::sync::Arc;

pub(crate) const PIPELINE: &str = r#"
job = { name = "points", output = "out" }
tables.walks.path = "walks/"
[transitions]
sql = "SELECT * FROM walks"
trajectory = "id"
time = "t"
lag = [1, 3]
coordinates = ["x", "y"]

[[fit]]
name = "states"
method = "state_embedding"
rank = [2, 3]
features = 60
bandwidth = 1.0
clusters = 2
"#;

const TABLES: &str = "points features spectrum centroids fits certificates";

/// ρ of the coordinates x and y.
const RHO: [f64; 2] = [0.9, 0.3];

/// A row: trajectory, time, x, y.
pub(crate) type Point = (i64, i64, f64, f64);

/// Stationary Ornstein–Uhlenbeck processes of unit variance at time steps of 1.
pub(crate) fn walks(trajectories: i64, steps: i64) -> Vec<Point> {
    let mut random = Pcg64::seed_from_u64(7);
    let mut normal = move || {
        let (u, v): (f64, f64) = (random.random(), random.random());
        (-2.0 * (1.0 - u).ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    };
    let mut points = Vec::new();
    for id in 0..trajectories {
        let mut at = [normal(), normal()];
        for t in 0..steps {
            points.push((id, t, at[0], at[1]));
            for (x, rho) in at.iter_mut().zip(RHO) {
                *x = rho * *x + (1.0 - rho * rho).sqrt() * normal();
            }
        }
    }
    points
}

pub(crate) fn table(lake: &Lake, name: &str, points: &[Point]) {
    let float = |of: fn(&Point) -> f64| floats(points.iter().map(of));
    let lists = points.iter().map(|p| Some(vec![Some(p.2), Some(p.3)]));
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", integers(points.iter().map(|p| p.0))),
        ("t", integers(points.iter().map(|p| p.1))),
        ("x", float(|p| p.2)),
        ("y", float(|p| p.3)),
        (
            "xy",
            Arc::new(ListArray::from_iter_primitive::<Float64Type, _, _>(lists)),
        ),
    ];
    lake.table(name, columns);
}

pub(crate) fn lake(points: &[Point]) -> Lake {
    let lake = Lake::new();
    table(&lake, "walks/0.parquet", points);
    lake.file("p.toml", PIPELINE);
    lake
}

fn bytes(lake: &Lake) -> Vec<Vec<u8>> {
    let path = |t: &str| lake.path(&format!("out/{t}/part-0.parquet"));
    words(TABLES)
        .into_iter()
        .map(|t| fs::read(path(t)).expect("a table"))
        .collect()
}

/// Values of a column in the rows of a fit and a lag.
fn of_fit(rows: &Rows, fit: &str, lag: i64, column: &str) -> Vec<f64> {
    let (fits, lags) = (rows.texts("fit"), rows.integers("lag"));
    let values = rows.floats(column).into_iter();
    let own = values.zip(fits).zip(lags);
    own.filter(|((_, f), l)| f == fit && *l == lag)
        .map(|((value, _), _)| value)
        .collect()
}

// Singular values of a product of two processes are ρ_x^i ρ_y^j: 1, ρ_x, ρ_x², ρ_x³, … at lag 1.
#[test]
fn ornstein_uhlenbeck_has_its_singular_values_at_every_lag() {
    let points = walks(40, 1000);
    let lake = lake(&points);
    lake.runs(&[]);
    let spectrum = lake.read("spectrum");
    for lag in [1, 3] {
        let values = of_fit(&spectrum, "states_r3", lag, "value");
        let rho = RHO[0].powi(lag as i32);
        assert!((values[0] - 1.0).abs() < 1e-9, "{values:?}");
        for (k, exact) in [(1, rho), (2, rho * rho), (3, rho.powi(3))] {
            assert!((values[k] - exact).abs() < 0.03, "lag {lag}: {values:?}");
        }
        let kept = of_fit(&spectrum, "states_r3", lag, "is_kept");
        assert_eq!(kept.iter().sum::<f64>(), 3.0);
    }
    let rows = lake.read("points");
    assert_eq!(rows.len(), 2 * points.len());
    // The second singular function is x itself, so clusters are its sides.
    let (id, t) = (rows.integers("id"), rows.integers("t"));
    let (lag, cluster) = (rows.integers("lag"), rows.integers("states_r2_affiliation"));
    let embedding = rows.lists("states_r2_embedding");
    let mut of_side = [0.0_f64; 2];
    for at in (0..rows.len()).filter(|&at| lag[at] == 1) {
        let point = points[(id[at] * 1000 + t[at]) as usize];
        of_side[usize::from((point.2 > 0.0) == (cluster[at] == 0))] += 1.0;
        // Ψ₂ = ρ x, up to its sign.
        let error = (embedding[at][1].abs() - RHO[0] * point.2.abs()).abs();
        assert!(
            point.2.abs() > 1.5 || point.3.abs() > 2.0 || error < 0.15,
            "{point:?} {:?}",
            embedding[at]
        );
    }
    let agreement = of_side[0].max(of_side[1]) / points.len() as f64;
    assert!(agreement > 0.95, "{agreement}");
    let centroids = lake.read("centroids");
    let weights = of_fit(&centroids, "states_r2", 1, "weight");
    assert!((weights[0] - 0.5).abs() < 0.05, "{weights:?}");
}

#[test]
fn a_list_of_coordinates_is_as_good_as_columns() {
    let lake = lake(&walks(8, 200));
    lake.runs(&[]);
    let expected = bytes(&lake);
    let set = ["transitions.coordinates=\"xy\""];
    lake.runs(&set);
    // The table `fits` has the names of the columns.
    for ((table, own), expected) in words(TABLES).iter().zip(bytes(&lake)).zip(expected) {
        assert_eq!(own == expected, *table != "fits", "{table}");
    }
}

// A scale of 2 and a bandwidth of ½ are a bandwidth of 1, up to rounding in the units.
#[test]
fn coordinates_are_divided_by_the_scale() {
    let lake = lake(&walks(8, 200));
    lake.runs(&[]);
    let values = of_fit(&lake.read("spectrum"), "states_r2", 1, "value");
    let scaled = [
        "transitions.scale={x=2.0,y=2.0}",
        "fit.states.bandwidth=0.5",
    ];
    lake.runs(&scaled);
    let of_scaled = of_fit(&lake.read("spectrum"), "states_r2", 1, "value");
    assert_eq!(values, of_scaled);
    // All numbers of a list are divided by the number of its column.
    let list = [
        "transitions.coordinates=\"xy\"",
        "transitions.scale={xy=2.0}",
        "fit.states.bandwidth=0.5",
    ];
    lake.runs(&list);
    let of_list = of_fit(&lake.read("spectrum"), "states_r2", 1, "value");
    assert_eq!(values, of_list);
    let standard = ["transitions.scale=\"standard\""];
    lake.runs(&standard);
    let scale = lake.read("fits");
    let scale = arrow::util::display::array_value_to_string(scale.column("scale"), 0);
    let scale = scale.expect("text");
    let first: f64 = scale[1..]
        .split(',')
        .next()
        .expect("a number")
        .parse()
        .expect("a number");
    assert!((first - 1.0).abs() < 0.3, "{scale}");
}

#[test]
fn rows_without_a_point_are_dropped_and_counted() {
    let mut points = walks(8, 200);
    points[5].2 = f64::NAN;
    points[600].3 = f64::INFINITY;
    let lake = lake(&points);
    lake.runs(&[])
        .says("1 dropped: NaN coordinate")
        .says("1 dropped: infinite coordinate");
    assert_eq!(lake.read("points").len(), 2 * (points.len() - 2));
}

// A row in a trajectory of its own is in no pair.
#[test]
fn a_row_without_a_pair_changes_no_fit() {
    let points = walks(6, 60);
    let held_out = PIPELINE
        .swap("bandwidth = 1.0", "bandwidth = \"held-out\"")
        .swap("lag = [1, 3]", "lag = 1");
    let run = |points: &[Point], keys: &str| {
        let lake = lake(points);
        lake.file("p.toml", &held_out);
        let ran = lake.runs(&[keys]);
        let mut tables = bytes(&lake);
        // `points` has the row, and `fits` counts it.
        tables.remove(4);
        tables.remove(0);
        (tables, lake, ran)
    };
    for keys in [
        "transitions.scale=\"standard\"",
        "fit.states.norm=\"lebesgue\"",
    ] {
        let (expected, ..) = run(&points, keys);
        // Nothing is too large for the standard deviation, but squares of 1e154 are.
        let largest = if keys.contains("scale") { 1e154 } else { 1e18 };
        let lone = [&points[..], &[(99, 7, largest, 0.5)]].concat();
        let (found, lake, ran) = run(&lone, keys);
        assert!(found == expected, "{keys}: {}", ran.out);
        let named = format!(
            "warning: `x` of row (99, 7) is {largest:e}, which is large against the others"
        );
        assert!(ran.out.contains(&named), "{keys}: {}", ran.out);
        let rows = lake.read("points");
        assert_eq!(rows.len(), 361);
        for column in ["states_r2_embedding", "states_r2_affiliation"] {
            let column = rows.column(column);
            assert_eq!((column.null_count(), column.is_null(360)), (1, true));
        }
    }
    // Among the rows of a trajectory it has a part in the fit, and is named.
    let mut points = points;
    points[137].2 = 1e18;
    let (.., ran) = run(&points, "transitions.scale=\"none\"");
    let named = "warning: `x` of row (2, 17) is 1e18, which is large against the others";
    ran.says(named);
    let lake = lake(&points);
    lake.file("p.toml", &held_out);
    let boxed = [
        "fit.states.norm=\"lebesgue\"",
        "fit.states.box=[[-9,9],[-9,9]]",
    ];
    let message = "`box` is from -9 to 9 in `x`, but row (2, 17) has 1000000000000000000";
    lake.run(&[boxed[0], boxed[1]]).fails(1, message);
    let message = "`clusters` is 20001, but there are only 359 rows to cluster";
    lake.run(&["fit.states.clusters=20001"]).fails(1, message);
}

// Two times the median is better for linear processes: their first singular functions are linear.
#[test]
fn held_out_scores_find_bandwidths_beyond_the_median() {
    let lake = lake(&walks(20, 200));
    let keys = ["transitions.lag=1", "fit.states.rank=2"];
    let bandwidth = || lake.read("fits").floats("bandwidth")[0];
    let rule = |rule: &str| {
        [keys[0], keys[1], &format!("fit.states.bandwidth={rule:?}")].map(String::from)
    };
    let run = |rule_of: &str| lake.runs(&rule(rule_of).each_ref().map(String::as_str));
    run("median");
    let median = bandwidth();
    let ran = run("held-out");
    let scores = ran
        .out
        .lines()
        .find_map(|line| line.split_once("VAMP-2 by bandwidth "));
    let scores = scores.expect("scores in the summary").1.split(", ");
    let scores: Vec<(f64, f64)> = scores
        .filter_map(|own| own.split_once(": "))
        .map(|(s, score)| (s.parse().unwrap(), score.parse().unwrap()))
        .collect();
    assert!(scores.len() > 4, "{scores:?}");
    let factors: Vec<f64> = scores.iter().map(|(s, _)| s / median).collect();
    for (at, factor) in factors.iter().enumerate() {
        let expected = 2f64.powi(at as i32 - 3);
        assert!((factor / expected - 1.0).abs() < 1e-3, "{factors:?}");
    }
    assert!(bandwidth() >= 2.0 * median);
    let found = lake.read("fits").floats("held_out")[0];
    assert!(
        scores.iter().all(|(_, score)| *score < found + 6e-4),
        "{scores:?} {found}"
    );

    // With two lags, the row of each has its own score. The summary has the mean of both, by which
    // the bandwidth is chosen.
    let lags = "transitions.lag=[1,10]";
    let ran = lake.runs(&[lags, keys[1], "fit.states.bandwidth=\"held-out\""]);
    let fits = lake.read("fits");
    let (bandwidths, scores) = (fits.floats("bandwidth"), fits.floats("held_out"));
    assert_eq!((scores.len(), bandwidths[0]), (2, bandwidths[1]));
    assert!(scores[0] > scores[1] + 0.01, "{scores:?}");
    let best = format!("{:.4}: ", bandwidths[0]);
    let shown = ran.out.split_once(&best).expect("the score").1;
    let end = shown.find([',', '\n']).expect("an end");
    let shown: f64 = shown[..end].parse().expect("a number");
    let mean = scores.iter().sum::<f64>() / 2.0;
    assert!((shown - mean).abs() < 6e-4, "{shown} {scores:?}");
}

#[test]
fn what_cannot_be_fitted_is_refused_by_name() {
    let points = walks(4, 50);
    let lake = lake(&points);
    let run = |sets: &[&str]| lake.run(sets);
    run(&["transitions.coordinates=[\"x\",\"z\"]"])
        .fails(2, "`transitions.coordinates` names the column `z`");
    run(&["transitions.state=\"id\""]).fails(2, "`transitions.coordinates` is in place of `state`");
    run(&["transitions.window=\"effective\""]).fails(2, "points are not counted");
    run(&["transitions.scale={z=2.0}"])
        .fails(2, "`transitions.scale.z` is no column of `coordinates`");
    run(&["transitions.coordinates=[\"x\",\"xy\"]"])
        .fails(2, "column `xy` is a list of coordinates");
    run(&["transitions.lag=60"]).fails(1, "no pairs of points");
    run(&["fit.states.rank=1000"]).fails(1, "1000");
    let constant = "transitions.sql=\"SELECT id, t, x, 1.0 AS y FROM walks\"";
    run(&[constant]).fails(1, "coordinate `y` has the same value in all rows");
    let twice = "transitions.sql=\"SELECT id, t / 2 AS t, x, y FROM walks\"";
    run(&[twice]).fails(1, "trajectory 0 has two rows at t = 0");
    let fit = "rank = [2, 3]\nfeatures = 60\nbandwidth = 1.0\nclusters = 2\n";
    let text = PIPELINE.swap("method = \"state_embedding\"", "method = \"svd\"");
    lake.file("q.toml", &text.swap(fit, "rank = 2\n"));
    lake.line("run q.toml")
        .fails(2, "counts transitions between states");
    run(&["job.incremental=true"]).fails(2, "`job.incremental` adds up counts");
    assert!(!lake.path("out/points").exists());
}

const MAP: &str = r#"
job = { name = "circle", output = "out" }
tables.circle.path = "circle/"
[points]
sql = "SELECT * FROM circle"
id = "id"
coordinates = ["x", "y"]

[[fit]]
name = "map"
method = "diffusion_map"
dimension = 2
neighbours = "all"
epsilon = 0.25
time = [1, 8]

[[fit]]
name = "sketch"
method = "heat_sketch"
dimension = 6
neighbours = "all"
epsilon = 0.25
power = [2, 4]
"#;

/// The corners of a regular polygon, in files of some of them.
fn polygon(lake: &Lake, n: i64, parts: &[(i64, i64)]) {
    for (at, &(first, end)) in parts.iter().enumerate() {
        let part = first..end;
        let angle = |id: i64| std::f64::consts::TAU * id as f64 / n as f64;
        let float = |of: fn(f64) -> f64| -> ArrayRef {
            let values = part.clone().map(|id| of(angle(id)));
            floats(values)
        };
        let columns = vec![
            ("id", integers(part.clone())),
            ("x", float(f64::cos)),
            ("y", float(f64::sin)),
        ];
        lake.table(&format!("circle/{at}.parquet"), columns);
    }
}

// The kernel of a regular n-gon is circulant: λ_m = Σ_j c_j cos(2πjm/n) / Σ_j c_j with
// c_j = exp(−4 sin²(πj/n)/ε), and all eigenvalues but the first are double.
#[test]
fn a_polygon_has_the_eigenvalues_of_its_circulant_kernel() {
    let n = 60;
    let lake = Lake::new();
    polygon(&lake, n, &[(0, n)]);
    lake.runs_text(MAP).says("60 points in 60 rows");
    let angle = |j: i64| std::f64::consts::PI * j as f64 / n as f64;
    let entry = |j: i64| (-4.0 * angle(j).sin().powi(2) / 0.25).exp();
    let all: f64 = (0..n).map(entry).sum();
    let first: f64 = (0..n)
        .map(|j| entry(j) * (2.0 * angle(j)).cos())
        .sum::<f64>()
        / all;
    let spectrum = lake.read("spectrum");
    let values = spectrum.floats("value");
    for (value, exact) in values.iter().zip([1.0, first, first]) {
        assert!((value - exact).abs() < 1e-6, "{values:?} {first}");
    }
    let rows = lake.read("points");
    assert_eq!(rows.integers("id"), (0..n).collect::<Vec<_>>());
    let (near, far) = (
        rows.lists("map_t1_embedding"),
        rows.lists("map_t8_embedding"),
    );
    let radius = |row: &[f64]| row.iter().map(|x| x * x).sum::<f64>().sqrt();
    for (near, far) in near.iter().zip(&far) {
        // The coordinates of a corner are those of the circle, times λᵗ.
        let ratio = radius(far) / radius(near);
        assert!((ratio - first.powi(7)).abs() < 1e-4, "{ratio}");
    }
    assert_eq!(rows.lists("sketch_p4_embedding")[0].len(), 6);
    let times = lake.read("distortion").floats("time");
    assert_eq!(times, [1.0, 8.0, 2.0, 4.0]);
}

// A hidden layer has units that are never active: they change no distance. A column of coordinates
// and lists of nothing else are refused.
#[test]
fn numbers_of_lists_that_are_the_same_in_all_rows_change_nothing() {
    let lake = Lake::new();
    polygon(&lake, 60, &[(0, 60)]);
    let of_lists = |numbers: &str, scale: &str| {
        let sql = format!("SELECT id, make_array({numbers}) AS z FROM circle");
        let text = MAP.swap("SELECT * FROM circle", &sql);
        let coordinates = format!("coordinates = \"z\"\nscale = \"{scale}\"");
        let text = text.swap("coordinates = [\"x\", \"y\"]", &coordinates);
        lake.file("p.toml", &text).run(&[])
    };
    let embedded = || lake.read("points").lists("map_t8_embedding");
    for scale in ["standard", "none"] {
        let ran = of_lists("x, y", scale).succeeds();
        assert!(!ran.out.contains("same value"), "{}", ran.out);
        let without = embedded();
        of_lists("7.0, x, 0.0, y", scale).succeeds().says(
            "2 of the 4 numbers of the lists in `z` have the same value in all rows, and change no distance",
        );
        assert_eq!(embedded(), without);
        of_lists("7.0, 8.0", scale).fails(
            1,
            "number 0 of the lists in `z` has the same value in all rows",
        );
    }
}

/// Kernels of all kinds for points with nine coordinates.
const FAR: &str = r#"
job = { name = "far", output = "out" }
tables.cloud.path = "cloud.parquet"
[points]
sql = "SELECT * FROM cloud"
id = "id"
coordinates = "x"

[[fit]]
name = "near"
method = "diffusion_map"
dimension = 2
neighbours = 8

[[fit]]
name = "full"
method = "diffusion_map"
dimension = 2
neighbours = "all"
normalisation = "bistochastic"

[[fit]]
name = "within"
method = "heat_sketch"
dimension = 3
radius = 1e300
epsilon = 4.0

[[fit]]
name = "landmarks"
method = "diffusion_map"
dimension = 2
landmarks = 40
"#;

/// Points of a cloud with nine coordinates; `far` are the first of some of them.
fn cloud(lake: &Lake, name: &str, far: &[(i64, f64)]) {
    let mut random = Pcg64::seed_from_u64(5);
    let rows = (0..120).map(|id| {
        let mut row: Vec<f64> = (0..9).map(|_| random.random_range(-1.0..1.0)).collect();
        if let Some((_, x)) = far.iter().find(|(far, _)| *far == id) {
            row.fill(*x);
        }
        Some(row.into_iter().map(Some).collect::<Vec<_>>())
    });
    let lists = ListArray::from_iter_primitive::<Float64Type, _, _>(rows);
    let columns: Vec<(&str, ArrayRef)> = vec![("id", integers(0..120)), ("x", Arc::new(lists))];
    lake.table(name, columns);
}

#[test]
fn far_values_are_named_and_have_no_embedding() {
    let lake = Lake::new();
    let far = [(7, 9.969e36), (30, 1e12), (77, -1e160), (110, 1.7e308)];
    cloud(&lake, "cloud.parquet", &far);
    lake.file("p.toml", FAR);
    let ran = lake.runs(&[]);
    for expected in [
        "2 dropped: too large coordinate",
        "warning: `x` of row 110 is 1.7e308, which is too large",
        "warning: `x` of row 7 is 9.969e36, which is large against the others",
    ] {
        assert!(ran.out.contains(expected), "{expected}: {}", ran.out);
    }
    let rows = lake.read("points");
    assert_eq!(rows.len(), 118);
    for fit in ["near", "full", "within"] {
        let column = rows.column(&format!("{fit}_embedding"));
        assert_eq!(column.null_count(), 2, "{fit}");
        assert!(column.is_null(7) && column.is_null(30), "{fit}");
    }
    // A share of dropped rows is refused, if the pipeline says so.
    lake.line("run p.toml --force --set checks.max_dropped=0.001")
        .fails(3, "max_dropped");
    // They come back as new rows.
    let new = ["assign", "p.toml", "--model", "out", "--output", "new"];
    lake.gyre(&new)
        .succeeds()
        .says("warning: `x` of row 110 is 1.7e308");
    let rows = lake.read_at("new/points");
    for fit in ["near", "full", "within"] {
        let column = rows.column(&format!("{fit}_embedding"));
        let nulls = far.iter().filter(|(id, _)| column.is_null(*id as usize));
        assert_eq!((nulls.count(), column.null_count()), (4, 4), "{fit}");
    }
    // The standard deviation of a coordinate with such a value leaves nothing of the others.
    cloud(&lake, "cloud.parquet", &[(7, 1e140)]);
    lake.run(&["points.scale=\"standard\""]).fails(
        1,
        "`x` of row 7 is 1e140, which is large against the others",
    );
}

#[test]
fn far_rows_of_a_state_embedding_have_no_cluster() {
    let points = walks(6, 100);
    let lake = lake(&points);
    lake.runs(&[]);
    let far = [0.1, 1e6, 1e17, 1e20, 9.969e36, 1e160, -1.7e308];
    let rows = far.iter().zip(0..).map(|(x, t)| (0, t, *x, 0.5));
    table(&lake, "far.parquet", &rows.collect::<Vec<_>>());
    let new = ["tables.walks.path=far.parquet", "transitions.lag=1"];
    let ran = lake.assign(&new).succeeds();
    let named = "warning: `x` of row (0, 6) is -1.7e308, which is too large for the model";
    ran.says(named);
    let rows = lake.read_at("new/points");
    for fit in ["states_r2", "states_r3"] {
        for column in ["embedding", "affiliation"] {
            let column = rows.column(&format!("{fit}_{column}"));
            let nulls: Vec<bool> = (0..7).map(|at| column.is_null(at)).collect();
            assert_eq!(nulls, [false, false, true, true, true, true, true]);
        }
    }
}

/// A row without time is a point, so an id that comes twice would count its point twice.
#[test]
fn an_id_that_comes_twice_is_an_error() {
    let lake = Lake::new();
    polygon(&lake, 40, &[(0, 20), (20, 40)]);
    lake.file("p.toml", MAP);
    let twice = "points.sql=\"SELECT id / 2 AS id, id % 2 AS part, x, y FROM circle\"";
    let message = "two rows have id = 0; keep one row for each `id`";
    lake.run(&[twice]).fails(1, message);
    let descending = "points.sql=\"SELECT (39 - id) / 2 AS id, x, y FROM circle\"";
    lake.run(&[descending]).fails(1, "two rows have id = ");
    // In another partition it is another point.
    lake.runs(&[twice, "points.partition_by=part", "job.output=parts"]);
    lake.runs(&[]);
    lake.assign(&[twice]).fails(1, message);
}

#[test]
fn what_a_kernel_cannot_do_is_said() {
    let lake = Lake::new();
    polygon(&lake, 40, &[(0, 40)]);
    lake.file("p.toml", MAP);
    let run = |sets: &[&str]| lake.run(sets);
    run(&["fit.map.alpha=2.0"]).fails(2, "`fit.map.alpha` must be from 0 to 1, not 2");
    run(&["fit.map.neighbours=0"]).fails(2, "`fit.map.neighbours` must be at least 1, not 0");
    run(&["fit.sketch.power=[4, 2]"]).fails(2, "`fit.sketch.power` must be");
    run(&["validation.bootstrap=10"]).fails(2, "`[validation]` resamples trajectories");
    run(&["points.id=\"who\""]).fails(2, "`points.id` names the column `who`");
    run(&["fit.map.epsilon=1e-6"]).fails(1, "epsilon");
    run(&["fit.sketch.power=4294967297"]).fails(2, "`fit.sketch.power` must be at most 65536");
    let late = run(&["fit.map.time=[1, 1e9]"]).succeeds();
    let warning = "warning: all coordinates are 0 at time or power 1000000000";
    late.says(warning);
    let narrow = run(&["fit.map.epsilon=0.02", "fit.sketch.epsilon=0.02"]).succeeds();
    let warning = "warning: epsilon = 0.02 is small: a point has ";
    narrow.says(warning);
    let lone = "points.sql=\"SELECT * FROM circle WHERE id = 3\"";
    run(&[lone]).fails(1, "fit `map`");
    let both = MAP.swap("[points]", "[transitions]\ntime = \"id\"\n[points]");
    lake.file("q.toml", &both);
    let message =
        "use either `[transitions]` (rows with a time) or `[points]` (rows without), not both";
    lake.line("run q.toml").fails(2, message);
}

// A pipe can be read once only.
#[test]
fn a_pipeline_may_come_from_a_pipe() {
    let lake = lake(&walks(4, 50));
    let absolute = format!("path = \"{}\"", lake.path("walks").display());
    let text = PIPELINE.swap("path = \"walks/\"", &absolute);
    let output = format!("output = \"{}\"", lake.path("out").display());
    let text = text.replace("output = \"out\"", &output);
    let mut command = lake.command(&["check", "/dev/stdin"]);
    let piped = std::process::Stdio::piped;
    let command = command.stdin(piped()).stdout(piped()).stderr(piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut stdin, text.as_bytes()).expect("a reader");
    drop(stdin);
    let output = child.wait_with_output().expect("the program ends");
    let ran = crate::lake::ProgramRun::of(output).succeeds();
    assert!(ran.out.contains("is valid") || ran.err.contains("is valid"));
}

#[test]
fn a_wrong_file_is_in_the_metrics_of_the_run() {
    let lake = Lake::new();
    lake.file("p.toml", "[job]\nname = 1\n");
    lake.line("run p.toml --metrics m.prom")
        .fails(2, "job.name");
    assert!(lake.path("m.prom").exists());
}

const CHAIN: &str = r#"
job = { name = "chain", output = "out" }
[transitions]
sql = "SELECT value AS t, value % 12 AS state FROM generate_series(0, 36)"
time = "t"
lag = 1
state = "state"

[[fit]]
name = "map"
method = "diffusion_map"
dimension = 4
time = [1, 3]

[[fit]]
name = "sketch"
method = "heat_sketch"
dimension = 5
power = [2, 4]
"#;

// A cycle 0 → 1 → … → n − 1 → 0 has symmetrised counts with eigenvalues cos(2πm/n). All states are
// equally likely, so rows of D^{-1/2}φ are √n φ: pairs of coordinates lie on circles of radius
// √2 λᵗ.
#[test]
fn a_cycle_of_states_is_a_circle() {
    let lake = Lake::new();
    lake.file("p.toml", CHAIN);
    let plan = lake.call("plan", &[]).succeeds();
    let line = "map: diffusion map of dimension 4 of the symmetrised counts";
    plan.says(line);
    lake.runs(&[]).says("eigenvalues 1.0000 0.8660");
    let cosine = |m: f64| (std::f64::consts::TAU * m / 12.0).cos();
    let spectrum = lake.read("spectrum").floats("eigenvalue");
    for (found, m) in spectrum.iter().zip([0.0, 1.0, 1.0, 2.0, 2.0]) {
        assert!((found - cosine(m)).abs() < 1e-12, "{spectrum:?}");
    }
    let sources = lake.read("sources");
    for (column, t) in [("map_t1_embedding", 1), ("map_t3_embedding", 3)] {
        for row in sources.lists(column) {
            for (pair, m) in row.chunks(2).zip([1.0, 2.0]) {
                let radius = (pair[0] * pair[0] + pair[1] * pair[1]).sqrt();
                let expected = 2f64.sqrt() * cosine(m).powi(t);
                assert!((radius - expected).abs() < 1e-9, "{row:?}");
            }
        }
    }
    let targets = lake.read("targets");
    let column = "sketch_p4_embedding";
    assert_eq!(targets.lists(column), sources.lists(column));
    let times = lake.read("embeddings").floats("time");
    assert_eq!(times, [1.0, 3.0, 2.0, 4.0]);
    assert_eq!(lake.read("fits").len(), 0);
    let holds = lake.read("certificates");
    let wanted = ["descending", "first_eigenvalue", "energy"];
    assert_eq!(holds.texts("certificate"), wanted);
    // The record has what the summary shows.
    let runs = fs::read_dir(lake.path("out/runs")).expect("records");
    let record = runs.map(|file| file.expect("a record").path()).next();
    let record = fs::read_to_string(record.expect("a record")).expect("text");
    assert!(record.contains("heat_sketch"), "{record}");
}

// Two blocks of 6 states: a state goes to each state of its block 5 times, and to each other once.
// Pairs need not be of one kind, so the kernel is P̃ᵀP̃, whose second eigenvalue is (4/6)². With
// `connected` they are, and it is 4/6.
#[test]
fn pairs_of_states_go_to_the_target_and_back() {
    let sql = "SELECT a.value AS a, b.value AS b, CASE WHEN a.value / 6 = b.value / 6 THEN 5 ELSE 1 END AS n FROM generate_series(0, 11) a CROSS JOIN generate_series(0, 11) b";
    let lake = Lake::new();
    let rows = CHAIN.find("time = ").expect("the rows");
    let fits = CHAIN.find("[[fit]]").expect("the fits");
    let first = CHAIN.find("sql = ").expect("the SQL");
    let text = format!(
        "{}sql = \"{sql}\"\nsource = \"a\"\ntarget = \"b\"\ncount = \"n\"\n\n{}",
        &CHAIN[..first],
        &CHAIN[fits..]
    );
    assert!(first < rows);
    lake.file("p.toml", &text);
    for (connected, expected) in [("false", 4.0 / 9.0), ("true", 2.0 / 3.0)] {
        let set = format!("transitions.connected={connected}");
        lake.runs(&[&set]);
        let values = lake.read("spectrum").floats("eigenvalue");
        assert!((values[1] - expected).abs() < 1e-12, "{values:?}");
        // Time 1: ±λ on the two blocks.
        let sources = lake.read("sources");
        let (states, rows) = (sources.integers("a"), sources.lists("map_t1_embedding"));
        let side = rows[0][0].signum();
        for (state, row) in states.iter().zip(rows) {
            let sign = if state / 6 == states[0] / 6 {
                side
            } else {
                -side
            };
            assert!((row[0] - sign * expected).abs() < 1e-12, "{row:?}");
        }
        let targets = lake.read("targets");
        let nulls = targets.column("map_t1_embedding").null_count();
        assert_eq!(nulls, if connected == "true" { 0 } else { 12 });
    }
    // A fit with sets does not change the embeddings.
    let alone = lake.bytes("out/embeddings/part-0.parquet");
    let more =
        "\n[[fit]]\nname = \"sets\"\nmethod = \"dbmr\"\nrank = 2\n\n[validation]\nbootstrap = 3\n";
    lake.file("q.toml", &(text + more));
    let connected = ["--set", "transitions.connected=true"];
    let ran = lake.gyre(&[&["run", "q.toml"][..], &connected].concat());
    ran.succeeds().says("sets: 3 resamples");
    assert!(lake.bytes("out/embeddings/part-0.parquet") == alone);
    let sources = lake.read("sources");
    assert_eq!(sources.lists("map_t1_embedding").len(), 12);
    assert_eq!(sources.integers("sets_affiliation").len(), 12);
}

#[test]
fn what_a_chain_cannot_have_is_refused() {
    let lake = Lake::new();
    lake.file("p.toml", CHAIN);
    let run = |set: &str| lake.run(&[set]);
    run("fit.map.epsilon=0.5").fails(2, "`fit.map.epsilon` is about points with coordinates");
    run("fit.sketch.landmarks=9").fails(2, "`fit.sketch.landmarks` is about points");
    run("validation.bootstrap=10").fails(2, "no fit of this pipeline has sets");
    let assign = ["assign", "p.toml", "--model", "out", "--output", "new"];
    run("fit.map.dimension=3").succeeds();
    lake.gyre(&assign).fails(1, "have no sets to assign");
    let bounded = ["run", "p.toml", "--memory", "1MB"];
    lake.gyre(&bounded).fails(2, "--memory");
}
