//! Trajectories with weighted rows, through the program: counts, resamples, connected states and
//! assignments.

use crate::cli::integers;
use crate::counting::counts_by_gyre;
use crate::lake::{Lake, Rows, cases, floats, words};
use arrow::array::{Array, ArrayRef, Float64Array};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Group, trajectory, time, state and weight.
type Row = (i64, i64, i64, i64, Option<f64>);

/// Walks on two halves of eight states, with gaps in time. A step changes the half with probability
/// 0.1. `weight` is drawn for each row.
fn walks(trajectories: i64, steps: i64, weight: fn(&mut Pcg64) -> Option<f64>) -> Vec<Row> {
    let mut random = Pcg64::seed_from_u64(3);
    let mut rows = Vec::new();
    for id in 0..trajectories {
        let (mut state, mut t) = (random.random_range(0..8), id % 5);
        for _ in 0..steps {
            rows.push((id % 2, id, t, state, weight(&mut random)));
            t += 1 + i64::from(random.random::<f64>() < 0.1);
            let half = (state / 4 + i64::from(random.random::<f64>() < 0.1)) % 2;
            state = 4 * half + random.random_range(0..4);
        }
    }
    rows
}

/// Multiples of 1/8, whose sums are exact in any order, and occasional nulls.
fn eighths(random: &mut Pcg64) -> Option<f64> {
    match random.random_range(0..10) {
        0 => None,
        1 => Some(0.0),
        _ => Some(f64::from(random.random_range(1..80)) / 8.0),
    }
}

fn any_weight(random: &mut Pcg64) -> Option<f64> {
    Some(random.random::<f64>().powi(3))
}

fn columns(rows: &[Row]) -> Vec<(&'static str, ArrayRef)> {
    let weights: Float64Array = rows.iter().map(|r| r.4).collect();
    vec![
        ("g", integers(rows.iter().map(|r| r.0))),
        ("id", integers(rows.iter().map(|r| r.1))),
        ("t", integers(rows.iter().map(|r| r.2))),
        ("s", integers(rows.iter().map(|r| r.3))),
        ("w", Arc::new(weights)),
    ]
}

/// Writes the rows to `n` files.
fn files(lake: &Lake, rows: &[Row], n: usize) {
    let _ = std::fs::remove_dir_all(lake.path("rows"));
    for (at, piece) in rows.chunks(rows.len().div_ceil(n)).enumerate() {
        lake.table(&format!("rows/{at:03}.parquet"), columns(piece));
    }
}

const KEYS: &str = "partition_by = \"g\"\nlag = [2, \"3 steps\"]\nweight = \"w\"";

fn two_fits() -> String {
    let fit = |m| format!("[[fit]]\nname = \"{m}\"\nmethod = \"{m}\"\nrank = 2\n");
    ["dbmr", "svd"].map(fit).concat()
}

/// Writes a pipeline with keys for its trajectories and further tables.
fn pipeline(lake: &Lake, keys: &str, rest: &str) {
    let text = format!(
        r#"
job = {{ name = "weights", output = "out" }}
names.from = "none"
tables.rows.path = "rows/"
[transitions]
sql = "SELECT *, s / 4 AS half FROM rows"
trajectory = "id"
time = "t"
state = "s"
{keys}
{rest}
{}
[[fit]]
name = "halves"
method = "given"
affiliation = "half"
"#,
        two_fits()
    );
    lake.file("p.toml", &text);
}

/// Sorted rows (group, lag, source, target, weight), computed from all pairs of rows of a
/// trajectory with a distance of 2 in time or of 3 rows.
fn expected_weights(rows: &[Row]) -> Vec<String> {
    let mut sums: BTreeMap<(i64, &str, i64, i64), f64> = BTreeMap::new();
    for of_id in rows.chunk_by(|a, b| a.1 == b.1) {
        for (at, source) in of_id.iter().enumerate() {
            let by_time = of_id.iter().find(|row| row.2 == source.2 + 2);
            let ends = [("2", by_time), ("3 steps", of_id.get(at + 3))];
            for (lag, target) in ends {
                if let (Some(target), Some(w)) = (target, source.4.filter(|&w| w > 0.0)) {
                    *sums.entry((source.0, lag, source.3, target.3)).or_default() += w;
                }
            }
        }
    }
    sums.iter()
        .map(|((g, lag, s, t), w)| format!("({g}, {lag}, {s}, {t}, {w:?})"))
        .collect()
}

#[test]
fn sums_of_weights_do_not_depend_on_order_and_files() {
    let rows = walks(40, 60, eighths);
    let expected = expected_weights(&rows);
    assert!(expected.len() > 200, "{}", expected.len());
    let mut ordered = rows.clone();
    ordered.sort_by_key(|row| (row.0, row.1, row.2));
    let mut shuffled = rows;
    shuffled.shuffle(&mut Pcg64::seed_from_u64(9));
    for (rows, n) in [(&ordered, 1), (&ordered, 7), (&shuffled, 3)] {
        let lake = Lake::new();
        files(&lake, rows, n);
        pipeline(&lake, KEYS, "");
        lake.line("run p.toml --threads 2")
            .succeeds()
            .says("null weight")
            .says("weight of zero");
        assert_eq!(counts_by_gyre(&lake), expected);
    }
}

/// Everything that uses weights is equal to the bit: connected states, resamples, folds, a given
/// partition and effective counts.
#[test]
fn bytes_do_not_depend_on_threads_files_or_order() {
    let rows = walks(40, 60, any_weight);
    let mut ordered = rows.clone();
    ordered.sort_by_key(|row| (row.0, row.1, row.2));
    let mut shuffled = rows;
    shuffled.shuffle(&mut Pcg64::seed_from_u64(9));
    let lake = Lake::new();
    let keys = "partition_by = \"g\"\nlag = [\"1 step\", \"3 steps\"]\nwindow = \"effective\"\nconnected = true\nweight = \"w\"";
    let validation = "[validation]\nbootstrap = 4\nfolds = 3\ngroups = 8";
    pipeline(&lake, keys, validation);
    let mut first = None;
    for (rows, n, threads) in [
        (&ordered, 1, "1"),
        (&ordered, 5, "2"),
        (&shuffled, 4, "1"),
        (&shuffled, 4, "2"),
    ] {
        files(&lake, rows, n);
        lake.gyre(&["run", "p.toml", "--force", "--threads", threads])
            .succeeds();
        let mut tables = lake.tables();
        for table in ["bootstrap", "ranks"] {
            let bytes = lake.bytes(&format!("out/{table}/part-0.parquet"));
            tables.push((table.to_string(), bytes));
        }
        let first = first.get_or_insert_with(|| tables.clone());
        for (found, expected) in tables.iter().zip(first.iter()) {
            let place = format!("{} with {threads} threads, {n} files", found.0);
            assert!(found == expected, "bytes differ: {place}");
        }
    }
}

/// Unsorted rows that exceed the memory limit are sorted on disk instead of gathered in memory.
#[test]
fn weighted_rows_that_exceed_memory_are_sorted() {
    let mut rows = walks(400, 1000, eighths);
    rows.shuffle(&mut Pcg64::seed_from_u64(9));
    let lake = Lake::new();
    files(&lake, &rows, 1);
    pipeline(&lake, KEYS, "");
    lake.runs(&[]);
    let gathered = counts_by_gyre(&lake);
    let memory = ["--threads", "1", "--memory", "165MB", "-v"];
    let ran = lake.gyre(&[&["run", "p.toml", "--force"][..], &memory].concat());
    ran.logs("sorting them");
    ran.succeeds();
    assert_eq!(counts_by_gyre(&lake), gathered);
}

/// The numeric columns of a table.
fn numbers(table: &Rows) -> Vec<(String, Vec<f64>)> {
    let schema = table.0.schema();
    let fields = schema.fields().iter();
    let numeric = fields.filter(|f| f.data_type().is_numeric());
    numeric
        .map(|f| (f.name().clone(), table.floats(f.name())))
        .collect()
}

#[track_caller]
fn assert_similar(found: &Rows, expected: &Rows) {
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!(found.len(), expected.len());
    for ((name, found), (_, expected)) in found.iter().zip(&expected) {
        assert_eq!(found.len(), expected.len(), "{name}");
        for (a, b) in found.iter().zip(expected) {
            let is_near = a == b || (a - b).abs() <= 1e-9 * b.abs().max(1.0);
            assert!(is_near || a.is_nan() && b.is_nan(), "{name}: {a} {b}");
        }
    }
}

#[test]
fn unit_weights_give_the_results_of_counts_also_in_resamples() {
    let rows = walks(40, 60, |_| Some(1.0));
    let lake = Lake::new();
    files(&lake, &rows, 2);
    let validation = "[validation]\nbootstrap = 10\nfolds = 4";
    let run = |weight: &str| {
        pipeline(&lake, &format!("lag = [1, 2]\n{weight}"), validation);
        lake.runs(&[]);
        ["counts", "fits", "sources", "bootstrap", "ranks"].map(|table| lake.read(table))
    };
    for (found, expected) in run("weight = \"w\"").iter().zip(&run("")) {
        assert_similar(found, expected);
    }
}

/// Trajectories of weight zero have no effect, in the result and in every resample.
#[test]
fn resamples_weight_whole_trajectories() {
    let lake = Lake::new();
    let all = walks(60, 50, |_| Some(0.5));
    let mut partial = all.clone();
    let unwanted = partial.iter_mut().filter(|row| row.1 % 3 == 0);
    unwanted.for_each(|row| row.4 = Some(0.0));
    let run = |rows: &[Row]| {
        files(&lake, rows, 1);
        let keys = "lag = 1\nweight = \"w\"";
        pipeline(&lake, keys, "[validation]\nbootstrap = 20");
        lake.runs(&[]);
        [lake.read("bootstrap"), lake.read("fits")]
    };
    let found = run(&partial);
    let kept: Vec<Row> = all.iter().filter(|row| row.1 % 3 > 0).copied().collect();
    for (found, expected) in found.iter().zip(&run(&kept)) {
        assert_similar(found, expected);
    }
    let [low, high] = ["low", "high"].map(|name| found[0].floats(name));
    assert!(low.iter().zip(&high).any(|(low, high)| low < high));
}

/// An assignment of the rows of a model returns its log-likelihood, as a sum over states and as a
/// sum over trajectories.
#[test]
fn memberships_of_trajectories_are_sums_over_their_states() {
    let lake = Lake::new();
    let mut rows = walks(30, 60, eighths);
    rows.shuffle(&mut Pcg64::seed_from_u64(9));
    files(&lake, &rows, 3);
    let table = |name: &str| lake.read_at(&format!("new/{name}"));
    let sum = |rows: &Rows, column: &str| rows.floats(column).iter().sum::<f64>();
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9 * b.abs(), "{a} {b}");
    // The counts of new rows are not divided: every pair has the same information about its states.
    for (window, pairs) in [("sliding", 1.0), ("effective", 2.0)] {
        let keys = format!("lag = \"2 steps\"\nwindow = \"{window}\"\nweight = \"w\"");
        pipeline(&lake, &keys, "");
        lake.runs(&[]);
        let assign = ["assign", "p.toml", "--model", "out", "--output", "new"];
        lake.gyre(&assign).succeeds();
        let (sources, trajectories) = (table("sources"), table("trajectories"));
        let total = pairs * lake.read("fits").floats("transitions")[0];
        close(sum(&sources, "count"), total);
        close(sum(&trajectories, "transitions"), total);
        let fits = lake.read("fits");
        let names = fits.texts("fit");
        for (fit, expected) in names.iter().zip(fits.floats("log_likelihood")) {
            let column = format!("{fit}_log_likelihood");
            close(sum(&sources, &column), pairs * expected);
            close(sum(&trajectories, &column), pairs * expected);
        }
        let before = lake.bytes("new/trajectories/part-0.parquet");
        lake.gyre(&[&assign[..], &["--force", "--threads", "1"]].concat())
            .succeeds();
        assert!(lake.bytes("new/trajectories/part-0.parquet") == before);
    }
}

#[test]
fn plans_show_weights_and_errors_name_the_state_and_the_column() {
    let lake = Lake::new();
    let mut rows = walks(4, 20, |_| Some(1.0));
    files(&lake, &rows, 1);
    pipeline(&lake, "lag = 1\nweight = \"w\"", "");
    let plan = lake.call("plan", &[]).succeeds().out;
    let what = "states s; lag 1 (sliding); weights in w";
    assert!(plan.contains(what), "{plan}");
    let plan = lake.line("plan p.toml --json").succeeds().json();
    assert_eq!(plan["count"]["measure"]["weight"], "w");
    lake.call("check", &[]).succeeds();
    let explained = lake.call("explain", &[]).succeeds().out;
    assert!(explained.contains("rows.w"), "{explained}");

    rows[3].4 = Some(-0.5);
    files(&lake, &rows, 1);
    let message = format!("`w` = -0.5 for state {} is not a weight", rows[3].3);
    lake.run(&[]).fails(1, &message);
    let table = r#"
        weight = "v" | `transitions.weight` names the column `v`, which the SQL does not give
        weight = "t" | the column `t` cannot be both `transitions.time` and `transitions.weight`
        count = "w" | mixes keys of trajectories
    "#;
    for [keys, message] in cases(table) {
        pipeline(&lake, &format!("lag = 1\n{keys}"), "");
        lake.call("check", &[]).fails(2, &message);
    }
}

/// Writes a pipeline with every method, resamples, folds, rank selection, Markov tests and
/// connected states.
fn write_all_options(lake: &Lake, window: &str) {
    let fit = |name: &str, keys: &str| format!("[[fit]]\nname = \"{name}\"\n{keys}\n");
    let fits = [
        fit(
            "dbmr",
            "method = \"dbmr\"\nrank = \"auto\"\nranks = [2, 3, 4]\nrule = \"bic\"",
        ),
        fit(
            "held",
            "method = \"dbmr\"\nrank = \"auto\"\nranks = [2, 3]\ninit = \"random\"\npolish = false",
        ),
        fit("kmeans", "method = \"svd\"\nrank = 2"),
        fit("seba", "method = \"svd\"\nclusters = \"seba\"\nrank = 2"),
        fit("pcca", "method = \"svd\"\nclusters = \"pcca\"\nrank = 2"),
        fit("cocluster", "method = \"cocluster\"\nrank = 2"),
        fit("metastable", "method = \"metastable\"\nrank = 2"),
        fit("gpcca", "method = \"gpcca\"\nrank = 2"),
    ];
    let keys = format!(
        "partition_by = \"g\"\nlag = [\"2 steps\", \"4 steps\"]\nwindow = \"{window}\"\nconnected = true\nweight = \"w\""
    );
    let validation = "[validation]\nbootstrap = 3\nfolds = 3\ngroups = 6\nmarkov = true";
    pipeline(lake, &keys, &format!("{validation}\n{}", fits.concat()));
    let text = lake.text("p.toml");
    // The fits of `pipeline` have the same names.
    lake.file("p.toml", &text.replace(&two_fits(), ""));
}

/// Every table of the output.
fn output_tables(lake: &Lake) -> BTreeMap<String, Rows> {
    let names = lake.tables_of("out/current").into_keys();
    names.map(|name| (name.clone(), lake.read(&name))).collect()
}

/// Whether a value is proportional to the weights, by its table, its column and the subject of its
/// row.
fn is_linear(table: &str, column: &str, about: &str) -> bool {
    match table {
        "fits" => matches!(
            column,
            "transitions" | "dropped_transitions" | "log_likelihood" | "reference_log_likelihood"
        ),
        "ranks" => column == "log_likelihood",
        "restarts" => column == "objective" && matches!(about, "dbmr" | "held"),
        "certificates" => {
            matches!(about, "likelihood" | "reference")
                && matches!(column, "left_side" | "right_side" | "slack" | "tolerance")
        }
        "bootstrap" => {
            about.ends_with("log_likelihood")
                && matches!(column, "value" | "mean" | "standard_error" | "low" | "high")
        }
        _ => matches!(column, "count" | "previous_count"),
    }
}

/// Asserts that every number is the same to the bit, or multiplied by 2^k if it is proportional to
/// the weights.
fn assert_scaled(k: i32, found: &BTreeMap<String, Rows>, of: &BTreeMap<String, Rows>) {
    // The factor is applied in two steps, because 2^k may not be representable.
    let scaled = |x: f64| x * 2f64.powi(k / 2) * 2f64.powi(k - k / 2);
    assert!(found.keys().eq(of.keys()), "{:?}", found.keys());
    for (table, expected) in of {
        let found = &found[table];
        assert_eq!(found.0.schema(), expected.0.schema());
        let about = match table.as_str() {
            "restarts" => expected.texts("fit"),
            "certificates" => expected.texts("certificate"),
            "bootstrap" => expected.texts("metric"),
            _ => vec![String::new(); expected.len()],
        };
        for field in expected.0.schema().fields() {
            let name = field.name();
            let place = format!("{table}.{name} for 2^{k}");
            if field.data_type() != &arrow::datatypes::DataType::Float64 {
                assert!(found.column(name) == expected.column(name), "{place}");
                continue;
            }
            let [own, other] = [found, expected].map(|table| table.column(name).nulls());
            assert_eq!(own, other, "{place}");
            let slack = |at: usize| found.floats("right_side")[at] - found.floats("left_side")[at];
            let numbers = found.floats(name).into_iter().zip(expected.floats(name));
            let nulls = expected.column(name).clone();
            for (at, (found, expected)) in numbers.enumerate() {
                if nulls.is_null(at) {
                    continue;
                }
                let expected = match is_linear(table, name, &about[at]) {
                    true if name == "slack" => slack(at),
                    true => scaled(expected),
                    false => expected,
                };
                let place = format!("{place}, row {at} ({})", about[at]);
                let is_same = found.to_bits() == expected.to_bits();
                assert!(is_same, "{place}: {found:e} is not {expected:e}");
            }
        }
    }
}

/// A common factor 2^k of all weights changes no result, for normal and subnormal numbers.
#[test]
fn the_scale_of_weights_changes_no_result() {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let mut any_scale = || random.random_range(-960..=960);
    type Weight = fn(&mut Pcg64) -> Option<f64>;
    let cases: [(&str, Weight, Vec<i32>); 2] = [
        (
            "effective",
            any_weight,
            vec![-960, -1, 3, 960, any_scale(), any_scale()],
        ),
        // Multiples of 1/8 in units of the smallest positive number.
        ("sliding", eighths, vec![-1071, any_scale()]),
    ];
    for (window, weight, scales) in cases {
        let lake = Lake::new();
        let rows = walks(24, 60, weight);
        let run = |k: i32| {
            let mut rows = rows.clone();
            for weight in rows.iter_mut().filter_map(|row| row.4.as_mut()) {
                *weight = *weight * 2f64.powi(k / 2) * 2f64.powi(k - k / 2);
            }
            files(&lake, &rows, 1 + k.unsigned_abs() as usize % 3);
            write_all_options(&lake, window);
            lake.runs(&[]);
            output_tables(&lake)
        };
        let expected = run(0);
        let ranks = &expected["ranks"];
        assert_eq!(ranks.floats("held_out").len(), ranks.len());
        for k in scales {
            assert_scaled(k, &run(k), &expected);
        }
    }
}

/// Extreme weights once caused panics and failed certificates.
#[test]
fn extreme_weights_are_fitted_or_refused_by_name() {
    let lake = Lake::new();
    let run = |weight: &dyn Fn(usize) -> f64| {
        let mut rows = walks(8, 40, |_| Some(1.0));
        let all = rows.iter_mut().enumerate();
        all.for_each(|(at, row)| row.4 = Some(weight(at)));
        files(&lake, &rows, 1);
        pipeline(&lake, "lag = 1\nweight = \"w\"", "");
        lake.run(&[])
    };
    for size in [1e-320, 1e-200, 1e-160, 1e-30, 1e155, 1e200, 1e300] {
        run(&|_| size).succeeds();
        run(&|at| size * (1.0 + (at % 7) as f64)).succeeds();
    }
    for size in [1e308, f64::MAX] {
        run(&|_| size).fails(1, "the weights `w` add up to more than 2^1010");
    }
    // The weight of one trajectory is much smaller than the others.
    for small in [1e-20, 1e-60] {
        run(&|at| if at == 5 { small } else { 1.0 }).succeeds();
    }
    for small in [1e-310, 1e-200, 1e-100] {
        let ran = run(&|at| if at < 40 { small } else { 1.0 });
        if ran.code != Some(0) {
            ran.fails(1, "the weights `w` of one pair add up to ");
        }
    }
}

/// A kind of rows with weights: the pipeline without its SQL, the columns that are proportional to
/// the weights, and the tables that are compared.
struct Weighted {
    pipeline: &'static str,
    linear: &'static [(&'static str, &'static str)],
    tables: &'static str,
}

const WEIGHTED: [Weighted; 3] = [
    Weighted {
        pipeline: "[sequences]\ntrajectory = \"id\"\ntime = \"t\"\nsymbol = \"s\"\n\
                   [[fit]]\nname = \"cca\"\nmethod = \"spectral_hmm\"\nrank = 2\n\
                   [[fit]]\nname = \"plain\"\nmethod = \"spectral_hmm\"\nrank = 2\nscaling = \"none\"\n\
                   [[fit]]\nname = \"em\"\nmethod = \"spectral_hmm\"\nrank = 2\nrefine = \"em\"\n",
        linear: &[
            ("symbols", "count"),
            ("triples", "count"),
            ("fits", "triples"),
        ],
        tables: "symbols triples operators vectors hidden_transitions spectrum fits trajectories",
    },
    Weighted {
        pipeline: "[points]\nid = [\"id\", \"t\"]\ncoordinates = [\"x\", \"y\"]\n\
                   [[fit]]\nname = \"map\"\nmethod = \"diffusion_map\"\ndimension = 2\nepsilon = 0.5\nneighbours = 30\n\
                   [[fit]]\nname = \"plain\"\nmethod = \"diffusion_map\"\ndimension = 2\nepsilon = 0.5\nalpha = 0.5\nneighbours = \"all\"\n\
                   [[fit]]\nname = \"sketch\"\nmethod = \"heat_sketch\"\ndimension = 4\nepsilon = 0.5\nneighbours = \"all\"\nnormalisation = \"bistochastic\"\npower = [2]\n\
                   [[fit]]\nname = \"few\"\nmethod = \"diffusion_map\"\ndimension = 2\nepsilon = 0.5\nlandmarks = 40\n",
        linear: &[],
        tables: "points landmarks spectrum distortion fits certificates",
    },
    Weighted {
        pipeline: "[transitions]\ntrajectory = \"id\"\ntime = \"t\"\nlag = 1\ncoordinates = [\"x\", \"y\"]\n\
                   [[fit]]\nname = \"states\"\nmethod = \"state_embedding\"\nrank = 2\nfeatures = 40\nbandwidth = 1.0\nclusters = 2\n",
        linear: &[],
        tables: "points features spectrum centroids fits certificates",
    },
];

/// Walks of a point, with a symbol and a weight that is the same in all rows of a trajectory.
fn weighted_walks(weight: &dyn Fn(i64) -> f64) -> Vec<(&'static str, ArrayRef)> {
    let mut random = Pcg64::seed_from_u64(17);
    let (mut ids, mut times, mut at) = (Vec::new(), Vec::new(), Vec::new());
    for id in 0..10 {
        let mut point = [0.0f64; 2];
        for t in 0..20 {
            ids.push(id);
            times.push(t);
            at.push(point);
            for x in &mut point {
                *x = 0.8 * *x + random.random::<f64>() - 0.5;
            }
        }
    }
    let float = |of: &dyn Fn(usize) -> f64| floats((0..ids.len()).map(of).map(Some));
    let symbol = |[x, y]: &[f64; 2]| i64::from(*x > 0.0) + 2 * i64::from(x + y > 0.3);
    vec![
        ("x", float(&|row| at[row][0])),
        ("y", float(&|row| at[row][1])),
        ("w", float(&|row| weight(ids[row]))),
        ("s", integers(at.iter().map(symbol))),
        ("t", integers(times.iter().copied())),
        ("id", integers(ids.iter().copied())),
    ]
}

fn write_weighted(lake: &Lake, kind: &Weighted, weight: &dyn Fn(i64) -> f64) {
    lake.table("rows/0.parquet", weighted_walks(weight));
    let (section, rest) = kind.pipeline.split_once('\n').expect("a section");
    let text = format!(
        "[job]\nname = \"weights\"\noutput = \"out\"\n[tables.rows]\npath = \"rows/\"\n\
         {section}\nsql = \"SELECT * FROM rows\"\nweight = \"w\"\n{rest}"
    );
    lake.file("p.toml", &text);
}

/// Symbols, points and pairs of points: a common factor 2^k changes no bit but those of what is
/// proportional to the weights, and any other factor no digit that matters.
#[test]
fn the_scale_of_weights_changes_no_result_of_other_rows() {
    let weight = |id: i64| [0.3, 1.0, 2.5, 0.7][id as usize % 4];
    for kind in &WEIGHTED {
        let lake = Lake::new();
        let run = |factor: f64| {
            write_weighted(&lake, kind, &|id| weight(id) * factor);
            lake.runs(&[]);
            let read = |table: &&'static str| (*table, lake.read(table));
            words(kind.tables).iter().map(read).collect::<Vec<_>>()
        };
        let expected = run(1.0);
        for power in [-1000, -1, 990] {
            let factor = 2f64.powi(power);
            for ((table, found), (_, expected)) in run(factor).iter().zip(&expected) {
                for field in expected.0.schema().fields() {
                    let name = field.name().as_str();
                    let place = format!("{table}.{name} for 2^{power}");
                    if kind.linear.contains(&(*table, name)) {
                        let scaled = expected.floats(name).into_iter().map(|x| x * factor);
                        assert!(found.floats(name).into_iter().eq(scaled), "{place}");
                        continue;
                    }
                    let (own, other) = (found.column(name), expected.column(name));
                    let is_same = own.to_data() == other.to_data();
                    assert!(is_same, "{place}: {own:?} {other:?}");
                }
            }
        }
        let third = run(1.0 / 3.0);
        for ((table, found), (_, expected)) in third.iter().zip(&expected) {
            for field in expected.0.schema().fields() {
                let name = field.name().as_str();
                let is_linear = kind.linear.contains(&(*table, name));
                if is_linear || !name.contains("value") && !name.contains("embedding") {
                    continue;
                }
                let numbers = |rows: &Rows| match field.data_type() {
                    arrow::datatypes::DataType::Float64 => rows.floats(name),
                    _ => rows.lists(name).concat(),
                };
                for (a, b) in numbers(found).iter().zip(numbers(expected)) {
                    let is_near = (a - b).abs() < 1e-3 * (1.0 + b.abs());
                    assert!(is_near, "{table}.{name}: {a} {b}");
                }
            }
        }
    }
}

/// Weights that no method can use are refused by the name of their column.
#[test]
fn extreme_weights_of_other_rows_are_fitted_or_refused_by_name() {
    for (at, kind) in WEIGHTED.iter().enumerate() {
        let lake = Lake::new();
        let run = |weight: &dyn Fn(i64) -> f64| {
            write_weighted(&lake, kind, weight);
            lake.run(&[])
        };
        run(&|_| 5e-324).succeeds();
        let none = run(&|_| 0.0);
        if at == 0 {
            none.fails(1, "dropped for weight of zero");
        } else {
            none.fails(1, "all weights `w` are 0, null or NaN");
        }
        run(&|_| f64::MAX).fails(1, "the weights `w` add up to more than 2^1010");
        let tiny = run(&|id| if id == 1 { 5e-324 } else { 1.0 });
        // Windows of other trajectories are equal to those of the tiny weight.
        if at == 0 {
            tiny.succeeds();
        } else {
            tiny.fails(1, "the ratio is above 2^256");
        }
        run(&|id| if id == 1 { -1.0 } else { 1.0 }).fails(1, "`w` = -1");
        run(&|id| if id == 1 { f64::INFINITY } else { 1.0 }).fails(1, "`w` = inf");
    }

    // A partition whose weights are unfit is a failure of its own.
    for kind in &WEIGHTED[1..] {
        let lake = Lake::new();
        let weight = |id: i64| if id % 2 == 1 { 0.0 } else { 1.0 };
        write_weighted(&lake, kind, &weight);
        let text = lake.text("p.toml");
        let query = "sql = \"SELECT *, id % 2 AS part FROM rows\"\npartition_by = \"part\"";
        let parted = text.replace("sql = \"SELECT * FROM rows\"", query);
        assert_ne!(text, parted);
        lake.file("p.toml", &parted);
        let ran = lake.run(&[]);
        ran.fails(1, "part=1");
        ran.fails(1, "all weights `w` are 0, null or NaN");
        let fits = lake.read("fits");
        assert!(fits.integers("part").iter().all(|part| *part == 0));
        assert!(fits.len() > 0);
    }
}
