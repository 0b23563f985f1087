//! State embeddings: the choice of the rank, resamples, and known sets.

use crate::lake::{Lake, Rows};
use crate::points::{Point, lake, table, walks};
use arrow::array::Array;

/// A pipeline over walks with one fit. `keys` are keys of the fit, `more` are sections.
fn pipeline(keys: &str, more: &str) -> String {
    format!(
        r#"
job = {{ name = "embeddings", output = "out" }}
tables.walks.path = "walks/"
[transitions]
sql = "SELECT *, CASE WHEN x > 0 THEN 'right' ELSE 'left' END AS side FROM walks"
trajectory = "id"
time = "t"
lag = 1
coordinates = ["x", "y"]

[[fit]]
name = "states"
method = "state_embedding"
features = 60
{keys}
{more}
"#
    )
}

const AUTO: &str = "rank = \"auto\"\nranks = [1, 2, 3]\nclusters = 2\ngiven = \"side\"\n";

const VALIDATION: &str = "[validation]\nbootstrap = 50\ngroups = 20\n";

// At lag 1 the singular values are 1, .9, .81, .73, …: each function is far above the noise, so the
// largest rank is chosen, and the reason says that no larger one was tried. The scores are the sums
// of the squares of the true values.
#[test]
fn the_rank_is_chosen_by_held_out_scores() {
    let points = walks(40, 1000);
    let lake = lake(&points);
    lake.file("p.toml", &pipeline(&format!("bandwidth = 1.0\n{AUTO}"), ""));
    let ran = lake.runs(&[]);
    let ranks = lake.read("ranks");
    assert_eq!(ranks.integers("rank"), [1, 2, 3]);
    assert_eq!(ranks.integers("folds"), [5; 3]);
    let (scores, errors) = (ranks.floats("vamp_2"), ranks.floats("vamp_2_error"));
    for (at, exact) in [1.0, 1.81, 1.81 + 0.6561].into_iter().enumerate() {
        assert!((scores[at] - exact).abs() < 0.03, "{scores:?}");
        assert!(errors[at] < 0.02, "{errors:?}");
    }
    let reason = ranks.texts("reason")[2].clone();
    assert!(reason.contains("no larger rank was tried"), "{reason}");
    ran.says("rank 3 of 1, 2, 3: ");
    let rows = lake.read("points");
    assert_eq!(rows.lists("states_embedding")[0].len(), 3);
    // White noise has no function but the constant: two more add no more than chance.
    let noise: Vec<Point> = points.iter().map(|p| (p.0, p.1, noise(p), 0.1)).collect();
    let sql = "SELECT id, t, x, x AS y, 'all' AS side FROM walks";
    let lake = crate::points::lake(&noise);
    lake.file("p.toml", &pipeline(AUTO, ""));
    let set = format!("transitions.sql=\"{sql}\"");
    let ranks = ["--set", "fit.states.ranks=[1, 3]"];
    lake.gyre(&[&["run", "p.toml", "--set", &set], &ranks[..]].concat())
        .succeeds()
        .says("rank 1 of 1, 3: ");
    assert_eq!(lake.read("points").lists("states_embedding")[7], [1.0]);
}

/// A number from −1 to 1 that depends on trajectory and time without any pattern.
fn noise(point: &Point) -> f64 {
    let mut x = (point.0 as u64) << 32 | point.1 as u64;
    for _ in 0..3 {
        x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
    (x >> 11) as f64 / (1u64 << 52) as f64 - 1.0
}

// The estimate of ρ from n pairs has the standard error √((1 − ρ²)/n), .0022 for ρ = .9.
#[test]
fn resamples_of_trajectories_give_standard_errors() {
    let lake = lake(&walks(40, 1000));
    let keys = "bandwidth = 1.0\nrank = 3\n";
    lake.file("p.toml", &pipeline(keys, "[validation]\nbootstrap = 200\n"));
    let ran = lake.runs(&[]);
    let found = lake.read("bootstrap");
    let metrics = "singular_value singular_value singular_value vamp_2";
    assert_eq!(found.texts("metric").join(" "), metrics);
    assert_eq!(found.integers("resamples"), [200; 4]);
    assert_eq!(found.integers("groups"), [40; 4]);
    let error = found.floats("standard_error");
    assert!(error[0] < 1e-9, "{error:?}");
    assert!((0.0012..0.0040).contains(&error[1]), "{error:?}");
    let (low, high) = (found.floats("low"), found.floats("high"));
    assert!(low[1] < 0.9 && 0.9 < high[1], "{low:?} {high:?}");
    let value = found.floats("value");
    assert!((value[3] - value[..3].iter().map(|s| s * s).sum::<f64>()).abs() < 1e-12);
    let line = "from 200 resamples of 40 groups of trajectories";
    ran.says(line);

    // Fewer groups than trajectories, and a single trajectory, which has nothing to draw from.
    let few = ["validation.groups=8", "validation.bootstrap=20"];
    lake.runs(&few);
    assert_eq!(lake.read("bootstrap").integers("groups"), [8; 4]);
    let one = "transitions.sql=\"SELECT *, 0 AS side FROM walks WHERE id = 3\"";
    let ran = lake.runs(&[one]);
    let line = "no standard errors: 0 resamples of 1 group of trajectories";
    ran.says(line);
}

#[test]
fn clusters_are_compared_with_known_sets() {
    let points = walks(40, 1000);
    let lake = lake(&points);
    let keys = "bandwidth = 1.0\nrank = 2\nclusters = 2\ngiven = \"side\"\n";
    lake.file("p.toml", &pipeline(keys, ""));
    let ran = lake.runs(&[]);
    let rows = lake.read("points");
    let (id, t) = (rows.integers("id"), rows.integers("t"));
    let cluster = rows.integers("states_affiliation");
    let mut counts = [[0.0; 2]; 2];
    for at in 0..rows.len() {
        let point = points[(id[at] * 1000 + t[at]) as usize];
        counts[usize::from(point.2 > 0.0)][cluster[at] as usize] += 1.0;
    }
    let confusion = lake.read("confusion");
    assert_eq!(confusion.texts("given"), ["left", "left", "right", "right"]);
    assert_eq!(confusion.floats("weight"), counts.as_flattened());
    let wrong =
        |set: usize, right: usize| 1.0 - counts[set][right] / counts[set].iter().sum::<f64>();
    let exact = [wrong(0, 0) + wrong(1, 1), wrong(0, 1) + wrong(1, 0)];
    let exact = exact[0].min(exact[1]);
    let found = lake.read("fits").floats("misclassification")[0];
    assert!((found - exact).abs() < 1e-12, "{found} {exact}");
    assert!(exact < 0.1, "{exact}");
    let line = format!("misclassification {exact:.4}: ");
    ran.says(&line);
}

#[test]
fn neither_threads_nor_files_change_a_rank_or_an_interval() {
    let points = walks(12, 300);
    let text = pipeline(AUTO, VALIDATION);
    let whole = lake(&points);
    whole.file("p.toml", &text);
    whole.line("run p.toml --threads 1").succeeds();
    let expected = whole.tables_of("out");
    assert!(expected.len() >= 9, "{}", expected.len());
    let parts = Lake::new();
    parts.file("p.toml", &text);
    table(&parts, "walks/1.parquet", &points[..777]);
    table(&parts, "walks/0.parquet", &points[777..]);
    parts.line("run p.toml --threads 3").succeeds();
    for (own, expected) in parts.tables_of("out").iter().zip(&expected) {
        assert!(own == expected, "{}", own.0);
    }
}

#[test]
fn keys_of_validation_that_points_cannot_have_are_refused() {
    let lake = lake(&walks(4, 300));
    lake.file("p.toml", &pipeline("rank = 2\n", ""));
    let run = |sets: &[&str]| lake.run(sets);
    run(&["validation.markov=true"]).fails(2, "`validation.markov` is about sets of states");
    run(&["validation.group=\"x\""]).fails(2, "`validation.group` is not available");
    run(&["validation.folds=50"]).fails(2, "`validation.folds` must be 20 at most");
    let aic = ["fit.states.rank=\"auto\"", "fit.states.rule=\"aic\""];
    let message = "must be \"vamp2\" for the method \"state_embedding\", not \"aic\"";
    run(&aic).fails(2, message);
    run(&["fit.states.given=\"side\""]).fails(2, "`fit.states.given` names the sets");
    let unknown = ["fit.states.clusters=2", "fit.states.given=\"well\""];
    let message = "`given` names the column `well`, which the SQL does not give";
    run(&unknown).fails(2, message);
    let many = ["fit.states.clusters=2", "fit.states.given=\"x\""];
    run(&many).fails(1, "the column `x`, which has more than 1000 values");
    let none = "transitions.sql=\"SELECT * FROM walks WHERE id = 0 AND t < 20\"";
    let auto = ["fit.states.rank=\"auto\"", "fit.states.bandwidth=1.0", none];
    run(&auto).fails(1, "at least two groups of trajectories");
    let large = ["fit.states.rank=\"auto\"", "fit.states.ranks=[400, 500]"];
    run(&large).fails(1, "all `ranks` are larger");
}

/// The lines of the column `warnings` of the table `fits`.
fn warnings(lake: &Lake) -> String {
    let fits: Rows = lake.read("fits");
    let column = fits.column("warnings");
    arrow::util::display::array_value_to_string(column, 0).expect("a list")
}

// What "What goes wrong" of the design says of state embeddings.
#[test]
fn doubtful_fits_are_warned_of() {
    let lake = lake(&walks(4, 100));
    lake.file("p.toml", &pipeline("bandwidth = 0.3\nrank = 2\n", ""));
    let ran = lake.runs(&[]);
    // More functions than a tenth of the pairs.
    ran.says("independent features are many for 396 pairs");
    assert!(warnings(&lake).contains("many for 396 pairs"));
    // The noise level is √(J/n) for J functions and n pairs.
    let fits = lake.read("fits");
    let kept = fits.integers("kept_left")[0].max(fits.integers("kept_right")[0]);
    let noise = fits.floats("noise")[0];
    assert!((noise - (kept as f64 / 396.0).sqrt()).abs() < 1e-12);
    // A singular value below it.
    lake.runs(&["fit.states.rank=30"])
        .says("is below the noise level");
    // A rank above the number of functions: both numbers.
    let ran = lake.run(&["fit.states.rank=500"]);
    ran.fails(1, "`rank` is 500, but the features of the points have only");
    // One distinct point, and trajectories no longer than the lag.
    let point = "transitions.sql=\"SELECT id, t, 1.0 AS x, 2.0 AS y FROM walks\"";
    let ran = lake.run(&[point]);
    ran.fails(1, "coordinate `x` has the same value in all rows");
    let one = "transitions.sql=\"SELECT id / 2 AS half, id, t, CASE WHEN id < 2 THEN x ELSE 1.0 END AS x, CASE WHEN id < 2 THEN y ELSE 2.0 END AS y FROM walks\"";
    let by = "transitions.partition_by=\"half\"";
    let rule = "fit.states.bandwidth=\"median\"";
    let ran = lake.run(&[one, by, rule]);
    let message = "there are no two distinct points, so there is no bandwidth partition=\"half=1\"";
    ran.fails(1, message);
    let ran = lake.run(&["transitions.lag=100"]);
    ran.fails(1, "no pairs of points");
}

const DENSITIES: &str = r#"
[densities]
sql = """
SELECT a.value / 2.0 AS from_x, 0.0 AS from_y, b.value / 2.0 AS to_x, 0.4 AS to_y
FROM generate_series(-2, 2) AS a CROSS JOIN generate_series(-2, 2) AS b
"""
from = ["from_x", "from_y"]
to = ["to_x", "to_y"]
"#;

// A bandwidth of 2 cannot express a density of the width √(1 − .9²) = .44 in x. The exact ‖p‖² of
// two processes is the product of 1/(2√(π(1 − ρ²))), which `of_features` depends on.
#[test]
fn errors_of_densities_are_written_beside_them() {
    let lake = lake(&walks(40, 300));
    let keys = "rank = 6\nbandwidth = 2.0\nnorm = \"lebesgue\"\n";
    lake.file("p.toml", &pipeline(keys, DENSITIES));
    let ran = lake.runs(&[]);
    let errors = lake.read("density_errors");
    let [error, pairs, rank, features] =
        ["error", "of_pairs", "of_rank", "of_features"].map(|column| errors.floats(column)[0]);
    let squares = pairs * pairs + rank * rank + features * features;
    assert!((squares.sqrt() - error).abs() < 1e-3, "{squares} {error}");
    assert!(
        features > 2.0 * rank.max(pairs),
        "{features} {rank} {pairs}"
    );
    let scored: f64 = lake.read("fits").floats("vamp_2")[0];
    let square = |rho: f64| 0.5 / (std::f64::consts::PI * (1.0 - rho * rho)).sqrt();
    let exact = (1.0 - scored / (square(0.9) * square(0.3))).sqrt();
    // Which also has what the rank and functions of x leave out.
    assert!((features - exact).abs() < 0.12, "{features} {exact}");
    let line = "most of it is what the features cannot express; decrease `bandwidth`";
    assert!(warnings(&lake).contains(line));
    ran.says("relative error of densities ").says(line);
    ran.says("relative error of mean embeddings ");
    let fit = &lake.record()["models"][0]["fits"][0];
    assert_eq!(fit["density_error"]["error"], error);
    // Without the section there are no errors, and the table can be left out.
    let has_errors = |output: &str| lake.tables_of(output).contains_key("density_errors");
    assert!(has_errors("out"));
    let fewer = ["output.without=[\"density_errors\"]", "job.output=fewer"];
    lake.runs(&fewer);
    assert!(!has_errors("fewer"));
    lake.file("p.toml", &pipeline(keys, ""));
    lake.runs(&["job.output=plain"]);
    assert!(!has_errors("plain"));
    lake.runs(&[]);
    assert!(!warnings(&lake).contains("densities"));
}

#[test]
fn distances_of_rows_are_those_to_the_centres_of_their_clusters() {
    let lake = lake(&walks(12, 300));
    let keys = "bandwidth = 1.0\nrank = 3\nclusters = 3\n";
    lake.file("p.toml", &pipeline(keys, ""));
    let distances = "fit.states.distances=true";
    lake.runs(&[distances]);
    let check = |rows: &Rows| {
        let centers = lake.read("centroids").lists("center");
        let (found, cluster) = (
            rows.floats("states_distance"),
            rows.integers("states_affiliation"),
        );
        for (at, row) in rows.lists("states_embedding").iter().enumerate() {
            let center = &centers[cluster[at] as usize];
            let squares = row.iter().zip(center).map(|(a, b)| (a - b) * (a - b));
            let exact = squares.sum::<f64>().sqrt();
            assert!((found[at] - exact).abs() < 1e-12, "{at}");
        }
        found
    };
    let found = check(&lake.read("points"));
    assert!(found.iter().any(|distance| *distance > 0.1));
    let new = ["assign", "p.toml", "--model", "out", "--output", "new"];
    lake.gyre(&new).succeeds();
    let assigned = check(&lake.read_at("new/points"));
    for (own, new) in found.iter().zip(&assigned) {
        assert!((own - new).abs() < 1e-12, "{own} {new}");
    }
    lake.runs(&[]);
    let rows = lake.read("points").0;
    assert!(rows.column_by_name("states_distance").is_none());
    lake.file("q.toml", &pipeline("rank = 3\ndistances = true\n", ""));
    let message = "`fit.states.distances` are those to the centres of `clusters`";
    lake.line("run q.toml").fails(2, message);
}

/// The density of a normal distribution of two correlated numbers of equal variance.
fn normal(x: f64, y: f64, variance: f64, covariance: f64) -> f64 {
    let determinant = variance * variance - covariance * covariance;
    let form = variance * (x * x + y * y) - 2.0 * covariance * x * y;
    (-form / determinant / 2.0).exp() / (std::f64::consts::TAU * determinant.sqrt())
}

// Ornstein–Uhlenbeck processes of unit variance: p(y | x) is normal with mean ρx and variance 1 −
// ρ², and E K(X, x) K(Y, y) is 2πs² times a normal density with s² added to the variances.
#[test]
fn densities_of_pairs_are_those_of_the_process() {
    let rho = [0.9, 0.3];
    let lake = lake(&walks(100, 1000));
    let keys = "rank = 12\nbandwidth = 1.0\nfeatures = 600\n";
    lake.runs_text(&pipeline(keys, DENSITIES).replace("features = 60\n", ""));
    let found = lake.read("densities");
    let (from, to) = (found.floats("from_x"), found.floats("to_x"));
    let expected = (0..25).map(|at| (at / 5) as f64 / 2.0 - 1.0);
    assert_eq!(from, expected.collect::<Vec<_>>());
    let exact = |at: usize| -> f64 {
        let ends = [(from[at], to[at]), (0.0, 0.4)];
        let joint = |((x, y), rho): (&(f64, f64), f64)| normal(*x, *y, 1.0, rho);
        let single = |x: f64| normal(x, 0.0, 1.0, 0.0) / normal(0.0, 0.0, 1.0, 0.0).sqrt();
        let joint: f64 = ends.iter().zip(rho).map(joint).product();
        let alone = ends.iter().map(|(x, y)| single(*x) * single(*y));
        joint / alone.product::<f64>()
    };
    let ratio = found.floats("states_ratio");
    let [kme, reshaped] = ["states_kme", "states_kme_reshaped"].map(|c| found.floats(c));
    for at in 0..25 {
        let error = (ratio[at] - exact(at)).abs();
        let exact = exact(at);
        assert!(error < 0.15 + 0.15 * exact, "{at}: {} {exact}", ratio[at]);
        let mean = std::f64::consts::TAU.powi(2)
            * normal(from[at], to[at], 2.0, rho[0])
            * normal(0.0, 0.4, 2.0, rho[1]);
        assert!((kme[at] - mean).abs() < 0.03, "{at}: {} {mean}", kme[at]);
        let found = reshaped[at];
        assert!((found - kme[at]).abs() < 0.01, "{at}: {found}");
    }
    // The Lebesgue norm gives densities of y, in the unit of the input.
    let norm = [
        "fit.states.norm=\"lebesgue\"",
        "transitions.scale={x=2.0,y=2.0}",
        "fit.states.bandwidth=0.25",
    ];
    lake.runs(&norm);
    let found = lake.read("densities");
    let [density, from, to] =
        ["states_density", "from_x", "to_x"].map(|column| found.floats(column));
    for at in 0..25 {
        let of = |x: f64, y: f64, rho: f64| {
            let variance = 1.0 - rho * rho;
            let square = (y - rho * x) * (y - rho * x);
            (-square / variance / 2.0).exp() / (std::f64::consts::TAU * variance).sqrt()
        };
        let exact = of(from[at], to[at], 0.9) * of(0.0, 0.4, 0.3);
        let found = density[at];
        assert!((found - exact).abs() < 0.06, "{at}: {found} {exact}");
    }
}

#[test]
fn pairs_without_a_point_have_no_density_and_wrong_pairs_are_refused() {
    let lake = lake(&walks(8, 200));
    let text = pipeline("rank = 2\nbandwidth = 1.0\n", DENSITIES);
    let sql = "densities.sql=\"SELECT NULLIF(x, x) AS from_x, y AS from_y, x AS to_x, y AS to_y FROM walks WHERE t < 2\"";
    lake.file("p.toml", &text);
    let run = |sets: &[&str]| lake.run(sets);
    run(&[sql]).succeeds();
    let found = lake.read("densities");
    assert_eq!(found.len(), 16);
    assert_eq!(found.column("states_ratio").null_count(), 16);
    let message = "`densities.from` names 1 column, but `transitions.coordinates` names 2 columns";
    run(&["densities.from=[\"from_x\"]"]).fails(2, message);
    run(&["densities.to=[\"from_x\", \"to_y\"]"]).fails(2, "names the column `from_x` twice");
    let message = "`densities.to` names the column `to_z`, which the SQL does not give";
    run(&["densities.to=[\"to_x\", \"to_z\"]"]).fails(2, message);
    run(&[
        "densities.sql=\"SELECT 1.0 AS lag, 1.0 AS b, 1.0 AS c, 1.0 AS d\"",
        "densities.from=[\"lag\", \"b\"]",
        "densities.to=[\"c\", \"d\"]",
    ])
    .fails(2, "the table `densities` would have two columns `lag`");
    let text = text.replace("to_y\n", "to_y, 'a' AS z\n");
    let text = text.replace("to = [\"to_x\", \"to_y\"]", "to = [\"to_x\", \"z\"]");
    lake.file("q.toml", &text);
    lake.line("run q.toml")
        .fails(2, "column `z` is Utf8, but `densities.to` wants numbers");
}
