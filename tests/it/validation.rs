//! Fits to resamples, for each kind of input: from the rows to the output tables.

use crate::lake::{Lake, Swap, floats, integer_columns};
use arrow::array::Array;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Rows (trajectory, time, state) of walks on two halves of eight states. A step changes the half
/// with probability 0.1.
fn walks(trajectories: i64, steps: i64) -> Vec<[i64; 3]> {
    let mut random = Pcg64::seed_from_u64(3);
    let mut rows = Vec::new();
    for id in 0..trajectories {
        let mut state = random.random_range(0..8);
        for t in 0..steps {
            rows.push([id, t, state]);
            let half = (state / 4 + i64::from(random.random::<f64>() < 0.1)) % 2;
            state = 4 * half + random.random_range(0..4);
        }
    }
    rows
}

const TRAJECTORIES: &str = r#"
sql = "SELECT *, s / 4 AS half FROM rows"
trajectory = "id"
time = "t"
state = "s"
lag = [1, 2]
"#;

const PAIRS: &str = r#"
sql = "SELECT *, a / 4 AS half FROM rows"
source = "a"
target = "b"
"#;

/// A pipeline over the table `rows` with three fits and options of validation.
fn pipeline(transitions: &str, validation: &str) -> String {
    let fits =
        ["dbmr", "svd"].map(|m| format!("[[fit]]\nname = \"{m}\"\nmethod = \"{m}\"\nrank = 2\n"));
    let given = "[[fit]]\nname = \"halves\"\nmethod = \"given\"\naffiliation = \"half\"\n";
    format!(
        "[job]\nname = \"trust\"\noutput = \"out\"\n[tables.rows]\npath = \"rows/\"\n[names]\nfrom = \"none\"\n[transitions]{transitions}{validation}\n{}{given}",
        fits.concat()
    )
}

/// The rows of the table for one metric: value, low and high.
fn rows_of(lake: &Lake, fit: &str, metric: &str, index: Option<u32>) -> Vec<[f64; 3]> {
    let table = lake.read("bootstrap");
    let [values, lows, highs, at] = ["value", "low", "high", "index"].map(|c| table.floats(c));
    let (fits, metrics) = (table.texts("fit"), table.texts("metric"));
    let indices = table.column("index");
    (0..table.len())
        .filter(|&row| fits[row] == fit && metrics[row] == metric)
        .filter(|&row| match index {
            Some(index) => indices.is_valid(row) && at[row] == f64::from(index),
            None => indices.is_null(row),
        })
        .map(|row| [values[row], lows[row], highs[row]])
        .collect()
}

#[test]
fn trajectories_are_resampled_without_reading_them_twice() {
    let rows = walks(60, 50);
    let lake = Lake::new();
    lake.integers("rows/0.parquet", ["id", "t", "s"], rows);
    let validation = "[validation]\nbootstrap = 20\nconfidence = 0.9\n";
    let text = pipeline(TRAJECTORIES, validation);
    lake.runs_text(&text)
        .says("dbmr: 20 resamples of ")
        .says("; 90 % intervals: coherence 1.");

    let record = lake.last_record();
    assert_eq!(record["rows_read"], 3000);
    let of_dbmr = &record["models"][0]["fits"][0]["bootstrap"];
    assert_eq!(of_dbmr["resamples"], 20);
    // 60 trajectories have 2048 possible hashes, so very few share one.
    assert!((56..=60).contains(&of_dbmr["groups"].as_u64().expect("a number")));

    // The second singular value is 1 − 2·0.1 at lag 1, and the square of that at lag 2.
    for fit in ["dbmr", "svd", "halves"] {
        let found = rows_of(&lake, fit, "singular_value", Some(1));
        for ([value, low, high], truth) in found.iter().zip([0.8, 0.64]) {
            assert!(low < value && value < high, "{fit}: {found:?}");
            let is_near = low - 0.03 < truth && truth < high + 0.03;
            assert!(is_near, "{fit}: {found:?}");
        }
        assert_eq!(found.len(), 2);
    }
    let values = rows_of(&lake, "dbmr", "log_likelihood", None).into_iter();
    let fits = lake.read("fits");
    let all = fits.texts("fit").into_iter();
    let all = all.zip(fits.floats("log_likelihood"));
    let of_dbmr = all.filter(|(fit, _)| fit == "dbmr");
    assert!(values.map(|row| row[0]).eq(of_dbmr.map(|(_, l)| l)));
    for (table, column) in [
        ("sources", "dbmr_stability"),
        ("targets", "halves_stability"),
    ] {
        assert_eq!(lake.read(table).floats(column), [1.0; 16], "{table}");
    }

    let table = lake.read("bootstrap");
    let fields = table.0.schema();
    let fields = fields.fields().iter();
    let fields: Vec<String> = fields
        .map(|f| {
            let null = if f.is_nullable() { "?" } else { "" };
            format!("{} {}{null}", f.name(), f.data_type())
        })
        .collect();
    let expected = "lag Int64, fit Utf8, metric Utf8, index UInt32?, value Float64?, mean Float64?, standard_error Float64?, low Float64?, high Float64?, resamples UInt32";
    assert_eq!(fields.join(", "), expected);

    // Without resamples, the fits are the same and the old table is removed.
    let plain = lake.read("spectrum").floats("singular_value");
    lake.runs_text(&pipeline(TRAJECTORIES, ""));
    assert_eq!(lake.read("spectrum").floats("singular_value"), plain);
    let sources = lake.read("sources").0;
    assert!(sources.column_by_name("dbmr_stability").is_none());
    assert!(lake.names("out/bootstrap").is_empty());
}

#[test]
fn pairs_and_counts_are_resampled_by_row_or_by_a_column() {
    let walks = walks(60, 50);
    let steps = walks.windows(2).filter(|w| w[0][0] == w[1][0]);
    let pairs: Vec<[i64; 3]> = steps.map(|w| [w[0][2], w[1][2], w[0][0]]).collect();
    let lake = Lake::new();
    let width = |transitions: &str, validation: &str| {
        let validation = format!("[validation]\nbootstrap = 40\n{validation}");
        let text = pipeline(transitions, &validation);
        lake.runs_text(&text);
        let found = rows_of(&lake, "halves", "singular_value", Some(1));
        let [value, low, high] = found[0];
        assert!(low < value && value < high, "{found:?}");
        assert_eq!(lake.read("sources").floats("svd_stability"), [1.0; 8]);
        high - low
    };
    let of_ships = integer_columns(["a", "b", "ship"], pairs.iter().copied());
    lake.table("rows/0.parquet", of_ships.clone());
    // There are few ships with hundreds of pairs each. Resampled by ship, the results vary about as
    // much as by pair, because pairs are independent here.
    let (by_pair, by_ship) = (width(PAIRS, ""), width(PAIRS, "group = \"ship\"\n"));
    let is_near = |other: f64| (0.5..2.0).contains(&(by_pair / other));
    assert!(is_near(by_ship), "{by_pair} {by_ship}");

    let mut counts = std::collections::BTreeMap::new();
    for [a, b, _] in &pairs {
        *counts.entry((*a, *b)).or_insert(0) += 1;
    }
    let counted: Vec<[i64; 3]> = counts.iter().map(|(&(a, b), &n)| [a, b, n]).collect();
    lake.integers("rows/0.parquet", ["a", "b", "n"], counted);
    let by_count = width(&format!("{PAIRS}count = \"n\"\n"), "");
    assert!(is_near(by_count), "{by_pair} {by_count}");

    let mut weighted = of_ships;
    let weights = (0..pairs.len()).map(|at| 0.5 + (at % 3) as f64);
    weighted.push(("w", floats(weights)));
    lake.table("rows/0.parquet", weighted);
    for group in ["", "group = \"ship\"\n"] {
        let by_weight = width(&format!("{PAIRS}weight = \"w\"\n"), group);
        assert!(is_near(by_weight), "{by_pair} {by_weight}");
    }
}

#[test]
fn one_trajectory_cannot_be_resampled() {
    let lake = Lake::new();
    lake.integers("rows/0.parquet", ["id", "t", "s"], walks(1, 500));
    let single = TRAJECTORIES.swap("trajectory = \"id\"\n", "");
    let run = |transitions: &str, validation: &str| {
        let validation = format!("[validation]\nbootstrap = 10\n{validation}");
        lake.file("p.toml", &pipeline(transitions, &validation))
            .run(&[])
    };
    let message = "`[validation]` resamples trajectories, but every partition is one";
    run(&single, "").fails(2, message);
    let message = "`validation.group` names the column `shop`, which the SQL does not give";
    run(&single, "group = \"shop\"\n").fails(2, message);
    // If a run finds this while it reads, the fit is written without intervals.
    run(TRAJECTORIES, "")
        .succeeds()
        .says("svd: too few resamples for intervals (0 of 1 groups)");
    let table = lake.read("bootstrap");
    assert_eq!(table.column("low").null_count(), table.len());
    let targets = lake.read("targets");
    assert_eq!(targets.column("svd_stability").null_count(), 16);
    // Parts of the trajectory can be resampled.
    let pieces = single.replace("SELECT *,", "SELECT *, t / 25 AS piece,");
    run(&pieces, "group = \"piece\"\n").succeeds();
    let [value, low, high] = rows_of(&lake, "dbmr", "coherence", None)[0];
    assert!(low < value && value < high);
}
