//! Markov chains on connected states, implied timescales, Chapman-Kolmogorov tests and effective
//! counts of the program.

use crate::cli::integers;
use crate::lake::{Lake, cases, texts};
use arrow::array::{ArrayRef, TimestampSecondArray};
use std::sync::Arc;

#[track_caller]
fn assert_close(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (x, y) in found.iter().zip(expected) {
        assert!((x - y).abs() < 1e-12, "{found:?} is not {expected:?}");
    }
}

/// Writes trajectories of states at times 0, 1, 2 …, with the number of copies of each, and with
/// the set of every state.
fn trajectories(lake: &Lake, paths: &[(&[i64], usize)], sets: &[i64]) {
    let all = paths.iter().flat_map(|(path, n)| vec![*path; *n]);
    let rows = all.enumerate().flat_map(|(id, path)| {
        let times = path.iter().enumerate();
        times.map(move |(t, &state)| [id as i64, t as i64, state, sets[state as usize]])
    });
    lake.integers("rows.parquet", ["id", "t", "state", "set"], rows);
}

/// A pipeline over `rows.parquet` with additional keys of `[transitions]` and a given partition.
fn pipeline(lake: &Lake, transitions: &str, rest: &str) {
    let text = format!(
        r#"
job = {{ name = "chain", output = "out" }}
tables.rows.path = "rows.parquet"
[transitions]
sql = "SELECT * FROM rows"
{transitions}
[[fit]]
name = "given"
method = "given"
affiliation = "set"
{rest}
"#
    );
    lake.file("p.toml", &text);
}

const TESTED: &str = "[validation]\nmarkov = true";

const POINTS: &str = "trajectory = \"id\"\ntime = \"t\"\nstate = \"state\"\n";

// T = [ 0.9 0.1 ; 0.2 0.8 ] and π = (2/3, 1/3). Every path i → j → k occurs 300 π_i T_ij T_jk
// times.
// The pairs at lag 1 are those of T, and the pairs at lag 2 those of T² = [ 0.83 0.17 ; 0.34 0.66
// ].
// μ = 0.7, and the timescale is −1 / ln 0.7 at every lag.
#[test]
fn a_markov_chain_keeps_its_timescales_and_powers() {
    let lake = Lake::new();
    let paths: [(&[i64], usize); 8] = [
        (&[0, 0, 0], 162),
        (&[0, 0, 1], 18),
        (&[0, 1, 0], 4),
        (&[0, 1, 1], 16),
        (&[1, 0, 0], 18),
        (&[1, 0, 1], 2),
        (&[1, 1, 0], 16),
        (&[1, 1, 1], 64),
    ];
    trajectories(&lake, &paths, &[0, 1]);
    let svd = "[[fit]]\nname = \"svd\"\nmethod = \"svd\"\nrank = 2\n[validation]\nmarkov = true";
    pipeline(&lake, &format!("{POINTS}lag = [1, 2]"), svd);
    let ran = lake.runs(&[]);
    let tau = -1.0 / 0.7f64.ln();
    let timescales = lake.read("timescales");
    let fits = ["given", "given", "svd", "svd"].repeat(2);
    assert_eq!(timescales.texts("fit"), fits);
    assert_eq!(timescales.integers("index"), [0, 1].repeat(4));
    let mu = [1.0, 0.7, 1.0, 0.7, 1.0, 0.49, 1.0, 0.49];
    assert_close(&timescales.floats("eigenvalue_real"), &mu);
    assert_close(&timescales.floats("eigenvalue_imaginary"), &[0.0; 8]);
    let scales = timescales.texts("timescale");
    for pair in scales.chunks(2) {
        assert_eq!(pair[0], "null", "the stationary process has no timescale");
        assert_close(&[pair[1].parse().expect("a number")], &[tau]);
    }
    let test = lake.read("chapman_kolmogorov");
    assert_eq!(test.integers("lag"), [1; 8]);
    assert_eq!(test.integers("steps"), [2; 8]);
    assert_eq!(test.integers("from_set"), [0, 0, 1, 1].repeat(2));
    assert_eq!(test.integers("to_set"), [0, 1].repeat(4));
    let squared = [0.83, 0.17, 0.34, 0.66].repeat(2);
    assert_close(&test.floats("predicted"), &squared);
    assert_close(&test.floats("estimated"), &squared);
    let line = format!(
        "given: timescales {tau:.4}; off from Chapman-Kolmogorov by 0.0000 at most, at 2 steps"
    );
    ran.says(&line);

    // Tables of options that are switched off are removed.
    let off = ["validation.markov=false"];
    lake.runs(&off);
    assert!(!lake.path("out/timescales").exists() && !lake.path("out/chapman_kolmogorov").exists());
    lake.runs(&off).prints("Nothing to do.\n");
}

// Random trajectories of two states. The values lie inside the intervals, and the summary prints
// the interval ends.
#[test]
fn timescales_have_confidence_intervals() {
    let lake = Lake::new();
    let paths: [(&[i64], usize); 4] = [
        (&[0, 0, 0, 0, 1, 1, 1, 0, 0, 0], 40),
        (&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 20),
        (&[1, 1, 1, 1, 0, 0, 0, 0, 0, 0], 30),
        (&[0, 0, 0, 1, 1, 1, 1, 1, 1, 1], 10),
    ];
    trajectories(&lake, &paths, &[0, 1]);
    let svd = "[[fit]]\nname = \"svd\"\nmethod = \"svd\"\nrank = 2\n[validation]\nmarkov = true";
    pipeline(&lake, &format!("{POINTS}lag = [1, 2]"), svd);
    lake.runs(&[]);
    let timescales = lake.read("timescales");
    for end in ["low", "high"] {
        let expected = ["null"; 8];
        assert_eq!(timescales.texts(end), expected, "intervals need resamples");
    }

    let resampled = ["validation.bootstrap=40"];
    let ran = lake.runs(&resampled);
    let timescales = lake.read("timescales");
    let [low, value, high] = ["low", "timescale", "high"].map(|column| timescales.texts(column));
    for at in 0..8 {
        if at % 2 == 0 {
            // The stationary process has no timescale.
            assert_eq!([&low[at], &value[at], &high[at]], ["null"; 3]);
            continue;
        }
        let [low, value, high] =
            [&low[at], &value[at], &high[at]].map(|text| text.parse::<f64>().expect("a number"));
        assert!(low < value && value < high, "{low} {value} {high}");
        assert!(high < 2.0 * value, "{value} {high}");
        let line = format!("timescales {value:.4} ({low:.4} to {high:.4}); ");
        assert!(at > 3 || ran.out.contains(&line), "{line} in {}", ran.out);
    }
    // Both fits have the same two sets, so the same resamples give the same intervals.
    let ends = |at: usize| [&low[at], &high[at]].map(|end| end.parse::<f64>().expect("a number"));
    assert_close(&ends(1), &ends(3));

    // All resamples of a single trajectory are equal.
    trajectories(&lake, &[(&[0, 0, 1, 1, 0, 1, 0, 0], 1)], &[0, 1]);
    let ran = lake.runs(&resampled);
    assert_eq!(lake.read("timescales").texts("low"), ["null"; 8]);
    ran.says("too few resamples for intervals");
}

// Three sets of two states each. Probabilities: 0.8 to stay in a set, 0.1 to each other set.
// Paths i → j → k are as frequent as T_ij T_jk. T(2) = T² has 0.8² + 2 · 0.1² = 0.66 on its
// diagonal and 2 · 0.08 + 0.01 = 0.17 off it. σ₃ = 0.7 and σ₄ = 0, so the rule selects rank
// three.
#[test]
fn the_selected_rank_is_tested() {
    let lake = Lake::new();
    let t = |from: i64, to: i64| if from / 2 == to / 2 { 8 } else { 1 };
    let all = (0..216i64).map(|at| [at / 36, at / 6 % 6, at % 6]);
    let paths: Vec<([i64; 3], usize)> = all
        .map(|path| (path, t(path[0], path[1]) * t(path[1], path[2])))
        .collect();
    let paths: Vec<(&[i64], usize)> = paths.iter().map(|(path, n)| (&path[..], *n)).collect();
    trajectories(&lake, &paths, &[0, 0, 0, 0, 0, 1]);
    let auto = "[[fit]]\nname = \"auto\"\nmethod = \"svd\"\nrank = \"auto\"\nranks = [2, 3, 4, 6]\nrule = \"gap\"\n[validation]\nmarkov = true";
    pipeline(&lake, &format!("{POINTS}lag = [1, 2]"), auto);
    lake.runs(&[]);
    let test = lake.read("chapman_kolmogorov");
    let fits = test.texts("fit");
    let of_auto: Vec<usize> = (0..fits.len()).filter(|&at| fits[at] == "auto").collect();
    let pick = |column: &str| -> Vec<f64> {
        let all = test.floats(column);
        of_auto.iter().map(|&at| all[at]).collect()
    };
    let squared = [0.66, 0.17, 0.17, 0.17, 0.66, 0.17, 0.17, 0.17, 0.66];
    assert_close(&pick("predicted"), &squared);
    assert_close(&pick("estimated"), &squared);
    let (from, to) = (test.integers("from_set"), test.integers("to_set"));
    let sets: Vec<(i64, i64)> = of_auto.iter().map(|&at| (from[at], to[at])).collect();
    let all: Vec<(i64, i64)> = (0..9).map(|at| (at / 3, at % 3)).collect();
    assert_eq!(sets, all);
    let timescales = lake.read("timescales");
    let rows = timescales.texts("fit").into_iter();
    let rows = rows.zip(timescales.texts("timescale"));
    let of_auto = rows.filter(|(fit, _)| fit == "auto");
    let of_auto: Vec<String> = of_auto.map(|(_, t)| t).collect();
    assert_eq!(of_auto.len(), 2 * 3, "three sets per lag");
    for scales in of_auto.chunks(3) {
        let found = [&scales[1], &scales[2]].map(|text| text.parse::<f64>().expect("a number"));
        assert_close(&found, &[-1.0 / 0.7f64.ln(); 2]);
    }
}

// 0 → 1 → 2 → 0 with 1 and 2 in one set, which remembers the time since it was entered.
// T(1) = [ 0 1 ; ½ ½ ], T(1)² = [ ½ ½ ; ¼ ¾ ], and T(2) = [ 0 1 ; ½ ½ ].
// μ = −½ at both lags, so the timescale doubles with the lag.
#[test]
fn a_lumped_chain_that_is_not_markov_fails_visibly() {
    let lake = Lake::new();
    let paths: [(&[i64], usize); 3] = [(&[0, 1, 2], 1), (&[1, 2, 0], 1), (&[2, 0, 1], 1)];
    trajectories(&lake, &paths, &[0, 1, 1]);
    pipeline(&lake, &format!("{POINTS}lag = [1, 2]"), TESTED);
    let ran = lake.runs(&[]);
    let test = lake.read("chapman_kolmogorov");
    assert_close(&test.floats("predicted"), &[0.5, 0.5, 0.25, 0.75]);
    assert_close(&test.floats("estimated"), &[0.0, 1.0, 0.5, 0.5]);
    ran.says("off from Chapman-Kolmogorov by 0.5000 at most, at 2 steps");
    let timescales = lake.read("timescales").floats("timescale");
    let expected = [1.0 / 2f64.ln(), 2.0 / 2f64.ln()];
    assert_close(&[timescales[1], timescales[3]], &expected);
}

/// Lags are in hours and timescales in seconds. Each of two sets of two states is left with
/// probability 1/10, so μ₂ = 0.8.
#[test]
fn timescales_of_durations_are_in_seconds() {
    let lake = Lake::new();
    // From each state of {0, 1}, five transitions lead to each of the two, except that one of ten
    // leads to the other set.
    let (mut time, mut state) = (Vec::new(), Vec::new());
    for from in 0..4i64 {
        for to in 0..4i64 {
            let n = if from / 2 == to / 2 { 9 } else { 1 };
            for _ in 0..n {
                time.extend([0, 7200]);
                state.extend([from, to]);
            }
        }
    }
    let set: Vec<i64> = state.iter().map(|s| s / 2).collect();
    lake.table(
        "rows.parquet",
        vec![
            ("id", integers((0..state.len() as i64).map(|row| row / 2))),
            ("t", Arc::new(TimestampSecondArray::from(time)) as ArrayRef),
            ("state", integers(state)),
            ("set", integers(set)),
        ],
    );
    pipeline(&lake, &format!("{POINTS}lag = \"2h\""), TESTED);
    lake.runs(&[]);
    let timescales = lake.read("timescales");
    assert_close(&timescales.floats("eigenvalue_real"), &[1.0, 0.8]);
    let seconds = timescales.floats("timescale")[1];
    assert_close(&[seconds / 7200.0], &[-1.0 / 0.8f64.ln()]);
    assert_eq!(lake.read("chapman_kolmogorov").len(), 0);
}

/// Writes one row per pair, and a set for every source.
fn pairs(lake: &Lake, pairs: &[(&str, &str)]) {
    let columns = vec![
        ("origin", texts(pairs.iter().map(|p| p.0))),
        ("destination", texts(pairs.iter().map(|p| p.1))),
        ("set", texts(pairs.iter().map(|p| p.0))),
        ("number", integers(0..pairs.len() as i64)),
    ];
    lake.table("rows.parquet", columns);
}

const PAIRS: &str = "source = \"origin\"\ntarget = \"destination\"\n";

/// Some airports lead to a closed pair of airports, and one flight leaves this pair for good.
#[test]
fn pairs_are_restricted_to_connected_states() {
    let lake = Lake::new();
    let flights = [
        ("N", "B"),
        ("B", "A"),
        ("A", "B"),
        ("B", "B"),
        ("A", "Z"),
        ("C", "D"),
        ("D", "C"),
    ];
    pairs(&lake, &flights);
    pipeline(&lake, &format!("{PAIRS}connected = true"), TESTED);
    let said =
        "dropped: 4 states with 4 transitions, beside the largest of 4 strongly connected sets";
    lake.runs(&[]).says(said);
    assert_eq!(lake.read("sources").texts("origin"), ["A", "B"]);
    assert_eq!(lake.read("targets").texts("destination"), ["A", "B"]);
    let fits = lake.read("fits");
    assert_eq!(fits.integers("dropped_states"), [4]);
    assert_eq!(fits.integers("dropped_transitions"), [4]);
    assert_eq!(fits.integers("transitions"), [3]);
    // A → B, B → A and B → B: T = [ 0 1 ; ½ ½ ] with μ = 1, −½, in units of one pair. Four labels
    // have no source any more.
    let timescales = lake.read("timescales");
    assert_close(&timescales.floats("eigenvalue_real"), &[1.0, -0.5]);
    assert_close(&timescales.floats("timescale")[1..], &[1.0 / 2f64.ln()]);

    // Without this option all states stay, and the program reports no dropped states.
    pipeline(&lake, PAIRS, "");
    lake.runs(&[]);
    assert_eq!(lake.read("fits").texts("dropped_states"), ["null"]);
    assert_eq!(lake.read("sources").len(), 5);

    pairs(&lake, &[("A", "B"), ("B", "C")]);
    pipeline(&lake, &format!("{PAIRS}connected = true"), "");
    let none = lake.run(&[]);
    none.fails(1, "`connected = true` leaves nothing");
    let uneven = "source = \"origin\"\ntarget = \"number\"\n";
    for (keys, rest, key) in [
        ("connected = true", "", "transitions.connected"),
        ("", TESTED, "validation.markov"),
    ] {
        pipeline(&lake, &format!("{uneven}{keys}"), rest);
        let message = format!(
            "`{key}` takes sources and targets for states of one kind, but the source is `origin` Utf8 and the target `number` Int64"
        );
        lake.run(&[]).fails(2, &message);
    }
}

/// Connected sets are found separately for every partition and lag.
#[test]
fn trajectories_are_restricted_to_connected_states() {
    let lake = Lake::new();
    // 5 leads to {0, 1, 2}. At lag 2 the cycle of three is reversed, and the connected sets are the
    // same.
    let paths: [(&[i64], usize); 2] = [(&[5, 0, 1, 2, 0, 1, 2, 0, 1, 2], 2), (&[3, 4, 3, 4], 1)];
    trajectories(&lake, &paths, &[0, 0, 1, 1, 1, 1]);
    let kept = format!("{POINTS}lag = [1, 2]\nconnected = true");
    pipeline(&lake, &kept, TESTED);
    lake.runs(&[]);
    assert_eq!(lake.read("sources").integers("state"), [0, 1, 2, 0, 1, 2]);
    let fits = lake.read("fits");
    assert_eq!(fits.integers("dropped_states"), [3, 3]);
    // Lag 1: two pairs 5 → 0 and three pairs of {3, 4}. Lag 2: two pairs 5 → 1, one pair 3 → 3 and
    // one pair 4 → 4.
    assert_eq!(fits.integers("dropped_transitions"), [5, 4]);
    assert_eq!(fits.integers("transitions"), [16, 14]);
    let partitioned = "SELECT *, CASE WHEN state IN (3, 4) THEN 'b' ELSE 'a' END AS part FROM rows";
    let parts = [
        &format!("transitions.sql={partitioned}"),
        "transitions.partition_by=part",
        "transitions.lag=1",
    ];
    lake.runs(&parts);
    let fits = lake.read("fits");
    assert_eq!(fits.integers("dropped_states"), [1, 0]);
    assert_eq!(lake.read("sources").integers("state"), [0, 1, 2, 3, 4]);
}

#[test]
fn effective_counts_are_sliding_counts_divided_by_the_lag() {
    let lake = Lake::new();
    let path: Vec<i64> = (0..90).map(|k| k * k % 7 % 3).collect();
    trajectories(&lake, &[(&path, 1)], &[0, 1, 1]);
    let run = |keys: &str| {
        pipeline(&lake, &format!("{POINTS}{keys}"), "");
        lake.runs(&[]);
        (lake.read("counts").floats("count"), lake.read("fits"))
    };
    let (sliding, whole) = run("lag = \"3 steps\"");
    for keys in [
        "lag = \"3 steps\"\nwindow = \"effective\"",
        "lag = 3\ninterval = 1\nwindow = \"effective\"",
    ] {
        let (counts, fits) = run(keys);
        let thirds: Vec<f64> = sliding.iter().map(|n| n / 3.0).collect();
        assert_eq!(counts, thirds);
        // There are 87 pairs, of which 29 do not overlap.
        assert_close(&fits.floats("transitions"), &[29.0]);
        for (name, scale) in [("log_likelihood", 3.0), ("coherence", 1.0), ("kappa", 1.0)] {
            let (part, all) = (fits.floats(name)[0] * scale, whole.floats(name)[0]);
            let is_near = (part - all).abs() < 1e-10 * all.abs();
            assert!(is_near, "{name}: {part} {all}");
        }
        assert_eq!(fits.texts("certified"), ["true"]);
    }
    let table = r#"
        lag = 3\nwindow = "effective" | say how far apart rows are with `transitions.interval`
        lag = 3\ninterval = 2\nwindow = "effective" | 3 is no whole multiple of `transitions.interval` = 2
        lag = 3\ninterval = "1h"\nwindow = "effective" | 3 is no whole multiple of `transitions.interval` = 1h
        lag = 3\ninterval = "1 step"\nwindow = "effective" | is the time between two rows
        lag = 3\ninterval = 1 | `transitions.interval` is for `window = "effective"` alone
    "#;
    for [keys, message] in cases(table) {
        pipeline(&lake, &format!("{POINTS}{keys}"), "");
        lake.run(&[]).fails(2, &message);
    }
}
