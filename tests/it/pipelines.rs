//! The pipelines of the repository run unchanged on small tables of the expected form.

use crate::cli::integers;
use crate::lake::{Lake, ProgramRun, names_in, texts, texts_or_null};
use crate::pages;
use crate::sets::comparison_row;
use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use std::path::Path;
use std::process::Command;

/// Example 23 of the coherence paper: both cores, at r = 3 and 5, by both methods.
#[test]
fn polzin2024_example23_double_gyre() {
    let lake = Lake::new();
    lake.run_of_repository("double_gyre", &[])
        .succeeds()
        .says("204,800 transitions in 409,600 rows");
    let sources = lake.read("double-gyre/sources");
    assert_eq!(sources.len(), 2048);
    let (x, y) = (sources.floats("x"), sources.floats("y"));
    for fit in ["dbmr_r3", "dbmr_r5", "svd_r3", "svd_r5"] {
        let set = sources.integers(&format!("{fit}_affiliation"));
        // The set of most boxes within 0.2 of the centre of a gyre, and the fraction of these boxes
        // in that set.
        let core = |cx: f64| {
            let near: Vec<i64> = (0..2048)
                .filter(|&j| (x[j] - cx).hypot(y[j] - 0.5) < 0.2)
                .map(|j| set[j])
                .collect();
            let share =
                |k: i64| near.iter().filter(|&&s| s == k).count() as f64 / near.len() as f64;
            (0..5)
                .map(|k| (k, share(k)))
                .max_by(|a, b| a.1.total_cmp(&b.1))
                .expect("five sets")
        };
        let ((left, left_share), (right, right_share)) = (core(0.5), core(1.5));
        assert!(
            left_share > 0.6 && right_share > 0.6,
            "{fit}: {left_share} {right_share}"
        );
        assert_ne!(left, right, "{fit}");
        // A core is a separate set and not the whole half of the domain: the middle of the domain
        // is in neither core.
        let middle = (0..2048).filter(|&j| (x[j] - 1.0).abs() < 0.1);
        let strays = middle
            .filter(|&j| set[j] == left || set[j] == right)
            .count();
        assert!(
            strays < 30,
            "{fit}: {strays} boxes of the middle are in a core"
        );
    }
    let certificates = lake.read("double-gyre/certificates");
    // Every SVD fit has ten, and the others have one less because they have no residual.
    assert_eq!(certificates.len(), 2 * 10 + 2 * 9);
    let holds = certificates.texts("holds");
    assert!(holds.iter().all(|holds| holds == "true"));
    let second = lake.run_of_repository("double_gyre", &[]).succeeds();
    assert_eq!(second.out, "Nothing to do.\n");

    // Compares the finer partition with the coarser one.
    let output = lake.path("out/double-gyre").display().to_string();
    let ranks = ["compare", &output, &output, "--fit", "dbmr_r3=dbmr_r5"];
    let report = lake.gyre(&ranks).succeeds().out;
    assert!(report.contains("\n  dbmr_r3 → dbmr_r5: sets "), "{report}");
    pages::assert_output_shown(&report.replace(&output, "out/double-gyre"));
    check_sets_in_guide(&lake.read("double-gyre/sets"));

    // Assigns new particles by the earlier model, with the command of the guide.
    let sql = "transitions.sql=SELECT trajectory, time, x, y FROM double_gyre(64, 32, 5, 2)";
    pages::assert_shown(&[format!("--set '{sql}'")]);
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gyre"));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args([
            "assign",
            "pipelines/double_gyre.toml",
            "--set",
            sql,
            "--model",
        ])
        .arg(lake.path("out/double-gyre"))
        .arg("--output")
        .arg(lake.path("new-particles"));
    let ran = ProgramRun::of(command.output().expect("the program starts")).succeeds();
    ran.says("10,240 trajectories");
    pages::assert_output_shown(&ran.out.replace(&output, "out/double-gyre"));
}

/// Asserts that the guide to names lists the sets of DBMR.
fn check_sets_in_guide(sets: &crate::lake::Rows) {
    let mut lines = pages::block("text", "fit      set_id  latent").lines();
    let header: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    let columns: Vec<Vec<String>> = header.iter().map(|name| sets.texts(name)).collect();
    let fits = sets.texts("fit");
    let of_dbmr = (0..sets.len()).filter(|&at| fits[at].starts_with("dbmr"));
    let found = of_dbmr.map(|at| {
        let cells: Vec<&str> = columns.iter().map(|column| column[at].as_str()).collect();
        cells.join(" ")
    });
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(
        lines.map(words).collect::<Vec<_>>(),
        found.collect::<Vec<_>>()
    );
}

/// The ranks of the double gyre, as compared in the guide.
#[test]
fn the_double_gyre_has_the_documented_number_of_sets() {
    let lake = Lake::new();
    let ran = lake.run_of_repository("how_many_sets", &[]).succeeds();
    pages::assert_output_shown(&ran.out);
    let ranks = lake.read("how-many-sets/ranks");
    check_ranks_in_guide(&ranks);
    let names = ranks.texts("fit");
    assert_eq!(names.iter().filter(|fit| *fit == "dbmr").count(), 7);
    assert_eq!(names.iter().filter(|fit| *fit == "svd").count(), 7);
    for reason in ranks.texts("reason").iter().filter(|r| *r != "null") {
        assert!(ran.out.contains(reason), "{reason} in\n{}", ran.out);
    }
    // The largest gap is after the two gyre cores and the remaining domain. The likelihood of new
    // trajectories has its maximum at a larger rank, inside the candidates.
    let (rank, is_chosen) = (ranks.integers("rank"), ranks.texts("is_chosen"));
    let chosen = |fit: &str| {
        let mut of_fit = (0..ranks.len()).filter(|&at| names[at] == fit && is_chosen[at] == "true");
        of_fit.next().expect("one is chosen")
    };
    assert_eq!(rank[chosen("svd")], 3);
    let held_out = ranks.floats("held_out");
    let (best, first) = (chosen("dbmr"), names.iter().position(|fit| fit == "dbmr"));
    let first = first.expect("a fit of that name");
    assert!(held_out[first] < held_out[best] && held_out[first + 6] < held_out[best]);
}

/// Asserts that the guide lists the ranks, rounded.
fn check_ranks_in_guide(ranks: &crate::lake::Rows) {
    let mut lines = pages::block("text", "fit   rank     gap").lines();
    let header: Vec<&str> = lines.next().expect("a header").split_whitespace().collect();
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), ranks.len());
    for (at, line) in lines.iter().enumerate() {
        for (name, cell) in header.iter().zip(line.split_whitespace()) {
            let Ok(shown) = cell.parse::<f64>() else {
                assert_eq!(cell, ranks.texts(name)[at], "{line}");
                continue;
            };
            let half = match *name {
                "bic" => 0.5,
                "vamp_2" | "coherence" => 0.0005,
                _ => 0.00005,
            };
            let found = ranks.floats(name)[at];
            assert!((found - shown).abs() < 1.01 * half, "{found} in {line}");
        }
    }
}

/// Example 23 with every method: the comparison of the guide, and memberships with the right sums.
#[test]
fn polzin2024_example23_with_every_method() {
    let lake = Lake::new();
    let ran = lake.run_of_repository("sets", &[]).succeeds();
    eprintln!("{}", ran.out);
    assert!(!ran.out.contains("not converged"), "{}", ran.out);
    let fits = lake.read("sets/fits");
    let names = fits.texts("fit");
    let of = |fit: &str, column: &str| {
        let at = names.iter().position(|name| name == fit).expect("a fit");
        fits.floats(column)[at]
    };
    let rows_of = [3, 5].map(|rank| {
        let [dbmr, both, one] = ["dbmr", "cocluster", "metastable"].map(|fit| {
            let fit = format!("{fit}_r{rank}");
            ["kullback_leibler", "mutual_information", "objective"].map(|metric| of(&fit, metric))
        });
        assert!(both[1] >= one[1] && both[1] >= dbmr[1]);
        let reference = of(&format!("dbmr_r{rank}"), "reference_information");
        comparison_row(&format!("23, r = {rank}"), reference, [dbmr, both, one])
    });
    pages::assert_shown(&rows_of);
    pages::assert_output_shown(&ran.out);
    for table in ["sources", "targets"] {
        let states = lake.read(&format!("sets/{table}"));
        for rank in [3, 5] {
            let sums = |fit: &str| -> Vec<f64> {
                let shares = states.lists(&format!("{fit}_r{rank}_membership"));
                shares.iter().map(|row| row.iter().sum()).collect()
            };
            for fit in ["pcca", "gpcca"] {
                assert!(sums(fit).iter().all(|sum| (sum - 1.0).abs() < 1e-12));
                let crispness = of(&format!("{fit}_r{rank}"), "crispness");
                assert!((1.0 / f64::from(rank)..1.0).contains(&crispness));
            }
            // SEBA leaves a part of the remaining domain without a set.
            let none = sums("seba").iter().filter(|sum| **sum == 0.0).count();
            assert!(none > 0 && none < states.len() / 4, "{none}");
        }
    }
    let spectrum = lake.read("sets/spectrum");
    let eigenvalues = spectrum.column("eigenvalue");
    assert_eq!(spectrum.len() - eigenvalues.null_count(), 8);
}

/// Writes a table of words: one sentence, 40 times.
pub fn words(lake: &Lake) {
    let words = crate::lake::words("to be or not to be that is the question");
    let n = words.len() as i64;
    let columns = vec![
        ("speech", integers((0..40 * n).map(|k| k / n))),
        ("position", integers((0..40 * n).map(|k| k % n))),
        ("word", texts((0..40 * n).map(|k| words[(k % n) as usize]))),
    ];
    lake.table("words.parquet", columns);
}

#[test]
fn routes_and_words_pipelines_run() {
    let lake = Lake::new();
    // Two airlines have two clusters of five airports each. A third is too small for the pipeline's
    // HAVING.
    let (mut airline, mut source, mut target) = (Vec::new(), Vec::new(), Vec::new());
    for carrier in ["AA", "BB"] {
        for (from, to) in (0..10)
            .flat_map(|s| (0..10).map(move |t| (s, t)))
            .filter(|(s, t)| s != t && s / 5 == t / 5)
        {
            airline.push(carrier.to_string());
            source.push(format!("{carrier}{from}"));
            target.push((from != 3 || to != 4).then(|| format!("{carrier}{to}")));
        }
    }
    airline.push("CC".to_string());
    source.push("X".to_string());
    target.push(Some("Y".to_string()));
    let columns = vec![
        ("airline", texts(airline)),
        ("source", texts(source)),
        ("target", texts_or_null(target.into_iter())),
    ];
    lake.table("routes.parquet", columns);
    let file = lake.path("routes.parquet");
    let path = format!("tables.routes.path={}", file.display());
    let few = "transitions.parameters.airports=5";
    lake.run_of_repository("routes", &[&path, few])
        .succeeds()
        .says("2 dropped: null state");
    let sources = lake.read("routes/sources");
    let airlines = sources.texts("airline");
    assert_eq!(airlines.iter().filter(|a| *a == "AA").count(), 10);
    assert_eq!(sources.len(), 20);

    words(&lake);
    let path = format!("tables.words.path={}", lake.path("words.parquet").display());
    let ranks = ["fit.dbmr.rank=[2, 3]", "fit.svd.rank=2"];
    lake.run_of_repository("words", &[&path, ranks[0], ranks[1]])
        .succeeds();
    let counts = lake.read("words/counts");
    let be = counts
        .texts("source_word")
        .iter()
        .zip(counts.texts("target_word"))
        .position(|(s, t)| s == "to" && t == "be");
    assert_eq!(counts.integers("count")[be.expect("to → be occurs")], 80);
}

// Sun, Duan, Gong, Wang 2019, Figure 2: the clusters of the four wells are the quadrants. At τ = 1
// the exact eigenvalues are 1, .9444, .8863 and .8370.
#[test]
fn sun2019_figure2_four_wells() {
    let lake = Lake::new();
    lake.run_of_repository("wells", &[]).succeeds();
    let values = lake.read("wells/spectrum").floats("value");
    for (value, exact) in values.iter().zip([1.0, 0.9444, 0.8863, 0.8370]) {
        assert!((value - exact).abs() < 0.015, "{values:?}");
    }
    let points = lake.read("wells/points");
    assert_eq!(points.len(), 100 * 501);
    assert_eq!(points.integers("states_affiliation").iter().max(), Some(&3));
    // V has wells at (±1, ±1), and the weights of their sides are e^{∓.25} and e^{±.15}.
    let side = |tilt: f64| [tilt.exp(), (-tilt).exp()].map(|w| w / (tilt.exp() + (-tilt).exp()));
    let (x, y) = (side(0.25), side(-0.15));
    let centroids = lake.read("wells/centroids");
    let mut found = std::collections::BTreeSet::new();
    for (at, weight) in centroids.floats("weight").into_iter().enumerate() {
        let nearest = centroids.column("nearest").as_list::<i32>().value(at);
        let nearest = nearest.as_primitive::<Float64Type>().values().to_vec();
        let quadrant = [usize::from(nearest[0] > 0.0), usize::from(nearest[1] > 0.0)];
        // Three standard deviations of a well, whose curvature is about 40.
        assert!(
            nearest.iter().all(|x| (x.abs() - 1.0).abs() < 0.5),
            "{nearest:?}"
        );
        let exact = x[quadrant[0]] * y[quadrant[1]];
        assert!(
            (weight - exact).abs() < 0.04,
            "{quadrant:?} {weight} {exact}"
        );
        found.insert(quadrant);
    }
    assert_eq!(found.len(), 4);
    let exits = lake.read("wells/centroids").floats("exit_probability");
    assert!(exits.iter().all(|exit| *exit < 0.25), "{exits:?}");
}

/// Figure 6a of the heat kernel paper: 8 coordinates of S¹ × 3.5 S¹. The map uses its leading
/// eigenvectors at all scales. The sketch is close to white noise at small powers, better than the
/// map at 16 and 32, and nearly a multiple of one vector at large powers.
#[test]
fn gilbert2023_figure6a_torus() {
    let lake = Lake::new();
    lake.run_of_repository("torus", &[])
        .succeeds()
        .says("500 points in 500 rows");
    let distortion = lake.read("torus/distortion");
    let logs = distortion.floats("log_distortion");
    let (map, sketch) = logs.split_at(10);
    for at in [3, 4] {
        assert!(sketch[at] < map[at] - 0.5, "{sketch:?} {map:?}");
    }
    assert!(sketch[9] > sketch[4] + 2.0, "{sketch:?}");
    let points = lake.read("torus/points");
    assert_eq!(points.lists("sketch_p32_embedding").len(), 500);
    assert_eq!(points.lists("map_t32_embedding")[0].len(), 8);
}

/// The means of log L in `distortion_trials` by fit, time and number of coordinates.
struct MeanLogs(Vec<MeanLog>);

struct MeanLog {
    fit: String,
    time: f64,
    dimension: i64,
    log: f64,
}

impl MeanLogs {
    /// Runs a pipeline, and asserts that the rows of sketches are of this number of trials and
    /// points.
    fn of(lake: &Lake, pipeline: &str, trials_and_points: [i64; 2]) -> MeanLogs {
        lake.run_of_repository(pipeline, &[]).succeeds();
        let name = pipeline.replace('_', "-");
        let rows = lake.read(&format!("{name}/distortion_trials"));
        let fits = rows.texts("fit");
        let [trials, points] = ["trials", "points"].map(|column| rows.integers(column));
        for (at, fit) in fits.iter().enumerate() {
            let is_sketch = SKETCHES.contains(&fit.as_str());
            assert!(!is_sketch || [trials[at], points[at]] == trials_and_points);
        }
        let keys = fits.into_iter().zip(rows.floats("time"));
        let values = (rows.integers("dimension").into_iter()).zip(rows.floats("log_distortion"));
        let rows = keys.zip(values);
        let rows = rows.map(|((fit, time), (dimension, log))| MeanLog {
            fit,
            time,
            dimension,
            log,
        });
        MeanLogs(rows.collect())
    }

    /// The mean over the rows of a fit with this number of coordinates.
    #[track_caller]
    fn with(&self, fit: &str, dimension: i64) -> f64 {
        self.mean(&|own| own.fit == fit && own.dimension == dimension)
    }

    /// The mean over the rows of a fit at this time.
    #[track_caller]
    fn at(&self, fit: &str, time: f64) -> f64 {
        self.mean(&|own| own.fit == fit && own.time == time)
    }

    #[track_caller]
    fn mean(&self, is_wanted: &dyn Fn(&MeanLog) -> bool) -> f64 {
        let logs = self
            .0
            .iter()
            .filter(|own| is_wanted(own))
            .map(|own| own.log);
        let logs: Vec<f64> = logs.collect();
        assert!(!logs.is_empty(), "no such row");
        logs.iter().sum::<f64>() / logs.len() as f64
    }
}

const SKETCHES: [&str; 4] = ["gps", "gpb", "gpsbs", "gpsbb"];

/// Figures 1a and 6b: the map of a circle is far better than sketches, most of all in the plane and
/// at all scales; in higher dimensions L of sketches is about 3.
#[test]
fn gilbert2023_figure1a_circle() {
    let lake = Lake::new();
    let logs = MeanLogs::of(&lake, "circle", [10, 300]);
    for sketch in SKETCHES {
        for k in 2..=8 {
            assert!(
                logs.with("dms", k) < logs.with(sketch, k) - 0.3,
                "{sketch} {k}"
            );
        }
        assert!(logs.with(sketch, 2) > 1.2, "{sketch}");
        assert!((0.4..1.3).contains(&logs.with(sketch, 8)), "{sketch}");
    }
    assert!(logs.with("dms", 2) < 0.25);
    for power in 1..=8 {
        let power = f64::from(1 << power);
        let (map, sketch) = (logs.at("map", power), logs.at("sketch", power));
        assert!(map < sketch, "{power}: {map} {sketch}");
    }
    // Theorem 3.3 and Proposition 3.4.
    let rows = lake.read("circle/distortion_trials");
    let fits = rows.texts("fit");
    let of_rate: Vec<usize> = (0..fits.len()).filter(|at| fits[*at] == "rate").collect();
    let [errors, found, expected, bound] =
        ["largest_error", "change", "expected_change", "change_bound"].map(|column| {
            of_rate
                .iter()
                .map(|at| rows.floats(column)[*at])
                .collect::<Vec<f64>>()
        });
    let slope = (errors[2] / errors[0]).ln() / 16f64.ln();
    assert!((slope + 0.5).abs() < 0.2, "slope {slope}: {errors:?}");
    for at in 0..3 {
        let ratio = found[at] / expected[at];
        assert!((0.7..1.3).contains(&ratio), "{found:?} {expected:?}");
        assert!(expected[at] < bound[at], "{expected:?} {bound:?}");
    }
}

/// Figures 2a and 6a: from three coordinates on, sketches of the stretched torus are better than
/// maps, and the symmetric map is better than the bistochastic one. With eight coordinates sketches
/// are better at the powers 16 and 32, and worse again at larger ones.
#[test]
fn gilbert2023_figure2a_stretched_torus() {
    let lake = Lake::new();
    let logs = MeanLogs::of(&lake, "stretched_torus", [3, 500]);
    let dimensions = [4, 6, 8];
    for k in dimensions {
        for sketch in SKETCHES {
            let (sketch, map) = (logs.with(sketch, k), logs.with("dms", k));
            assert!(sketch < map - 0.1, "{k}: {sketch} {map}");
        }
    }
    let [symmetric, bistochastic] = ["dms", "dmb"].map(|map| {
        let logs = dimensions.map(|k| logs.with(map, k));
        logs.iter().sum::<f64>()
    });
    assert!(symmetric < bistochastic, "{symmetric} {bistochastic}");
    let difference = |power| logs.at("sketch", power) - logs.at("map", power);
    assert!(difference(16.0) + difference(32.0) < -0.2);
    assert!(logs.at("sketch", 128.0) > logs.at("sketch", 32.0) + 0.5);
}

/// Figures 2b and 5a: sketches of the Klein bottle are far better than maps with any number of
/// coordinates, and signs are as good as normal numbers.
#[test]
fn gilbert2023_figures2b_and_5a_klein_bottle() {
    let lake = Lake::new();
    let logs = MeanLogs::of(&lake, "klein_bottle", [3, 500]);
    for k in [6, 8, 12, 16, 20] {
        for sketch in SKETCHES {
            assert!(
                logs.with(sketch, k) < logs.with("dms", k) - 1.0,
                "{sketch} {k}"
            );
        }
        assert!(
            (logs.with("gps", k) - logs.with("gpsbs", k)).abs() < 0.8,
            "{k}"
        );
    }
    assert!(logs.with("gpsbb", 20) < logs.with("gpb", 20) + 0.1);
}

/// Figure 3a: the check of the pipeline compares the means, of one trial per partition.
#[test]
fn gilbert2023_figure3a_outliers() {
    let lake = Lake::new();
    let logs = MeanLogs::of(&lake, "outliers", [1, 200]);
    for k in [2, 3] {
        assert!(logs.with("gps", k) < logs.with("dms", k) - 0.5, "{k}");
    }
    for k in [4, 5] {
        assert!(logs.with("gps", k) > logs.with("dms", k) + 0.5, "{k}");
    }
}

/// Figure 5b, with parameters of ours: both kinds of draws are alike, and the bistochastic kernel
/// is a little better with the same draws.
#[test]
fn gilbert2023_figure5b_point_clouds() {
    let lake = Lake::new();
    let logs = MeanLogs::of(&lake, "point_clouds", [10, 200]);
    for k in [8, 12] {
        let [symmetric, bistochastic, signs, bistochastic_signs] =
            SKETCHES.map(|sketch| logs.with(sketch, k));
        assert!((symmetric - signs).abs() < 1.0, "{k}: {symmetric} {signs}");
        assert!(
            bistochastic < symmetric && bistochastic_signs < signs,
            "{k}"
        );
    }
}

// The clusters are the quadrants at longer lags too: M < .02.
#[test]
fn sun2019_figure2_misclassification() {
    let lake = Lake::new();
    let lags = ["transitions.lag=[1, 5, 10]"];
    lake.run_of_repository("wells", &lags).succeeds();
    let rates = lake.read("wells/fits").floats("misclassification");
    assert_eq!(rates.len(), 3);
    assert!(rates.iter().all(|rate| *rate < 0.02), "{rates:?}");
    let confusion = lake.read("wells/confusion");
    assert_eq!(confusion.texts("given")[0], "north-east");
    let (weight, is_matched) = (confusion.floats("weight"), confusion.floats("is_matched"));
    let outside = weight.iter().zip(&is_matched).filter(|(_, is)| **is == 0.0);
    let outside: f64 = outside.map(|(w, _)| w).sum();
    assert!(outside < 0.01 * weight.iter().sum::<f64>(), "{weight:?}");
}

// Figure 2 (c) and (d): 4, 5, 9 and 15 clusters at τ = .1, 1, 5 and 10. More clusters have smaller
// objectives. The distances to the centres shrink with τ, because fast motion is forgotten.
#[test]
fn sun2019_figure2_lags_and_numbers_of_clusters() {
    let lake = Lake::new();
    lake.run_of_repository("wells_scales", &[]).succeeds();
    let fits = lake.read("wells-scales/fits");
    let (names, lags) = (fits.texts("fit"), fits.texts("lag"));
    let (objectives, rates) = (fits.floats("objective"), fits.texts("misclassification"));
    let at = |lag: &str, clusters: usize| {
        let name = format!("clusters_{clusters}");
        let mut all = (0..fits.len()).filter(|&at| names[at] == name && lags[at] == lag);
        all.next().expect("a fit")
    };
    let points = lake.read("wells-scales/points");
    let (of_row, distance) = (points.texts("lag"), points.floats("clusters_4_distance"));
    let mut last = f64::INFINITY;
    for lag in ["1", "10", "50", "100"] {
        let of_lag = [4, 5, 9, 15].map(|clusters| objectives[at(lag, clusters)]);
        assert!(of_lag.windows(2).all(|two| two[1] < two[0]), "{of_lag:?}");
        let rate: f64 = rates[at(lag, 4)].parse().expect("a rate");
        assert!(rate < 0.02, "{lag}: {rate}");
        let rows = (0..points.len()).filter(|&row| of_row[row] == lag);
        let squares: Vec<f64> = rows.map(|row| distance[row] * distance[row]).collect();
        let mean = squares.iter().sum::<f64>() / squares.len() as f64;
        // The objective is that of a sample of 20,000 rows.
        assert!((mean / of_lag[0] - 1.0).abs() < 0.1, "{mean} {of_lag:?}");
        assert!(mean < last, "{lag}: {mean} {last}");
        last = mean;
    }
}

// Section 5.2 in small: 200 random features of lists, and an embedding in three dimensions. Two
// rows of one well differ more than the noise of their lists, and their embeddings do not.
#[test]
fn sun2019_section_5_2_layers() {
    let lake = Lake::new();
    let sql = "SELECT trajectory, time, x > 0 AS is_east, layer FROM layers(40, 8000, 64)";
    let fewer = format!("transitions.sql=\"{sql}\"");
    let ran = lake.run_of_repository("layers", &[&fewer]).succeeds();
    ran.says("8,000 points of 64 coordinates");
    // Units that are never active.
    ran.says("of the 64 numbers of the lists in `layer` have the same value in all rows");
    let rows = lake.read("layers/points");
    assert_eq!(rows.len(), 8000);
    assert_eq!(rows.lists("states_embedding")[0].len(), 3);
    // The wells are the slow part: x and y at a fifth of a time unit.
    let values = lake.read("layers/spectrum").floats("value");
    assert!(values[1] > 0.9 && values[2] > 0.9, "{:?}", &values[..4]);
    let rate = lake.read("layers/fits").floats("misclassification")[0];
    assert!(rate < 0.1, "{rate}");
}

// Theorems 1 and 3, and Figure 1: errors of 2,000 to 32,000 pairs have the slope −½ in n, those of
// reshaped embeddings are smaller, and the bias of the densities stays.
#[test]
fn sun2019_figure1_errors_by_the_number_of_pairs() {
    let lake = Lake::new();
    lake.run_of_repository("wells_errors", &[])
        .succeeds()
        .says("decrease `bandwidth` or `tolerance`");
    let errors = lake.read("wells-errors/density_errors");
    assert_eq!(errors.integers("n"), [8, 32, 128]);
    for column in ["kme_error", "kme_reshaped_error", "of_pairs"] {
        let found = errors.floats(column);
        let slope = (found[2] / found[0]).ln() / 16f64.ln();
        assert!((slope + 0.5).abs() < 0.12, "{column}: {slope} {found:?}");
    }
    let (plain, reshaped) = (
        errors.floats("kme_error"),
        errors.floats("kme_reshaped_error"),
    );
    for (plain, reshaped) in plain.iter().zip(&reshaped) {
        assert!(reshaped < plain, "{plain} {reshaped}");
    }
    // The gain is about √(rank · λ̄), and here there is hardly any.
    let largest = errors.floats("largest_eigenvalue");
    assert!(
        largest.iter().all(|value| (value - 0.28).abs() < 0.05),
        "{largest:?}"
    );
    // The exact error of 50,000 pairs is .668.
    let last = errors.floats("error")[2];
    assert!((last - 0.668).abs() < 0.06, "{last}");
    let features = errors.floats("of_features");
    assert!(
        features.iter().all(|part| (part - 0.668).abs() < 0.1),
        "{features:?}"
    );
}

// The fifth singular value is noise, so the held-out score stops at four.
#[test]
fn sun2019_the_rank_of_four_wells_is_four() {
    let lake = Lake::new();
    let auto = [
        "fit.states.rank=\"auto\"",
        "fit.states.ranks=[2, 3, 4, 5, 6]",
    ];
    lake.run_of_repository("wells", &auto)
        .succeeds()
        .says("rank 4 of 2, 3, 4, 5, 6: ");
}

/// Each fit has two timescales besides the stationary process, and three pairs of lags are
/// compared.
#[test]
fn timescales_of_the_double_gyre() {
    let lake = Lake::new();
    let ran = lake.run_of_repository("timescales", &[]).succeeds();
    let timescales = lake.read("timescales/timescales");
    let expected = [5, 5, 5, 10, 10, 10, 20, 20, 20];
    assert_eq!(timescales.integers("lag"), expected);
    // The sets hold water longer than a Markov chain on them, so the slowest timescale grows with
    // the lag.
    let scales = timescales.floats("timescale");
    assert!(scales.chunks(3).all(|t| t[1] > t[2] && t[2] > 0.0));
    assert!(scales[1] < scales[4] && scales[4] < scales[7]);
    let test = lake.read("timescales/chapman_kolmogorov");
    let pairs: Vec<(i64, i64)> = test
        .integers("lag")
        .into_iter()
        .zip(test.integers("steps"))
        .step_by(9)
        .collect();
    assert_eq!(pairs, [(5, 2), (5, 4), (10, 2)]);
    for column in ["predicted", "estimated"] {
        for row in test.floats(column).chunks(3) {
            assert!(
                (row.iter().sum::<f64>() - 1.0).abs() < 1e-12,
                "{column} {row:?}"
            );
        }
    }
    ran.says("off from Chapman-Kolmogorov by");
}

/// Every pipeline file passes `gyre check` up to its tables. A new file needs a test here.
#[test]
fn every_pipeline_is_tested() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines");
    let names: Vec<String> = names_in(&folder).into_iter().collect();
    let known = "README.md camera.toml circle.toml convergence.toml deploy double_gyre.toml \
                 hidden_world.toml how_many_sets.toml kernel_toy.toml klein_bottle.toml layers.toml low_rank.toml low_rank_dummy.toml nightly.toml \
                 outliers.toml point_clouds.toml routes.toml sessions.toml sets.toml \
                 stretched_torus.toml timescales.toml torus.toml tracking.toml wells.toml \
                 wells_errors.toml wells_scales.toml words.toml";
    assert_eq!(names.join(" "), known, "test a new pipeline, then name it");
}

/// The pipelines of all pages are valid, and so are their fragments after the missing sections are
/// added.
#[test]
fn every_example_of_the_guides_is_valid() {
    let examples = pages::blocks("toml");
    assert!(examples.len() > 12);
    for (page, example) in examples {
        let mut text = example.to_string();
        let (transitions, fit) = if page.ends_with("points.md") {
            (
                "\nsql = \"SELECT * FROM pairs\"\ntime = \"t\"\nlag = 1\ncoordinates = [\"x\"]",
                "\nname = \"states\"\nmethod = \"state_embedding\"\nrank = 2",
            )
        } else {
            (
                "\nsql = \"SELECT * FROM pairs\"\nsource = \"a\"\ntarget = \"b\"\npartition_by = \"c\"",
                "\nname = \"svd\"\nmethod = \"svd\"\nrank = 2",
            )
        };
        for (section, rest) in [
            ("[job]\n", "name = \"base\"\noutput = \"out\""),
            ("[tables.", "pairs]\npath = \"pairs.parquet\""),
            ("[transitions]", transitions),
            ("[[fit]]", fit),
        ] {
            let is_points = section == "[transitions]"
                && (example.contains("[points]") || example.contains("[sequences]"));
            if !example.contains(section) && !is_points {
                text += &format!("\n{section}{rest}\n");
            }
        }
        let spec = gyre::plan::pipeline::Pipeline::parse(&text, page, &[], &|_| None);
        spec.unwrap_or_else(|e| panic!("{}\n{text}", e.full()));
    }
}

/// With two versions, the types of columns and stores would differ.
#[test]
fn one_arrow_and_one_object_store() {
    let lock = include_str!("../../Cargo.lock");
    for name in ["arrow", "parquet", "object_store", "datafusion"] {
        let versions = lock.matches(&format!("name = \"{name}\"\n")).count();
        assert_eq!(versions, 1, "{name}");
    }
}
