//! Runs over sequences of symbols, from the view of a user: triples against SQL, rows against the
//! written operators, and known worlds. Python with hmmlearn is used if `GYRE_PYTHON` names it.

use crate::cli::integers;
use crate::lake::{Lake, Rows, Swap, collect};
use crate::needs;
use arrow::array::{ArrayRef, AsArray, StringArray};
use arrow::datatypes::Float64Type;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::Arc;

pub const PIPELINE: &str = r#"
job = { name = "visits", output = "out" }
tables.visits.path = "visits/"
[sequences]
sql = "SELECT * FROM visits"
trajectory = "id"
time = "t"
interval = 1
symbol = "symbol"

[[fit]]
name = "hmm"
method = "spectral_hmm"
rank = [2, 3]

[output]
rows = "all"
"#;

/// A row: trajectory, time, symbol, split.
pub type Visit = (i64, i64, Option<&'static str>, Option<&'static str>);

const SYMBOLS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// Rows of a hidden chain with three states: each prefers two symbols, and mostly leads to the
/// next. Some rows are missing, and some have no symbol.
pub fn visits(trajectories: i64, steps: i64, seed: u64) -> Vec<Visit> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut visits = Vec::new();
    for id in 0..trajectories {
        let mut state: usize = random.random_range(0..3);
        for t in 0..steps {
            let other: f64 = random.random();
            let symbol = match other {
                x if x < 0.2 => random.random_range(0..5),
                x if x < 0.6 => state,
                _ => (state + 2) % 5,
            };
            let kind: f64 = random.random();
            let split = if id % 3 == 0 { "test" } else { "train" };
            if kind > 0.03 {
                let symbol = (kind > 0.05).then_some(SYMBOLS[symbol]);
                visits.push((id, t, symbol, Some(split)));
            }
            if random.random::<f64>() < 0.4 {
                state = (state + 1) % 3;
            }
        }
    }
    visits
}

pub fn table(lake: &Lake, name: &str, visits: &[Visit]) {
    let texts = |of: fn(&Visit) -> Option<&'static str>| -> ArrayRef {
        Arc::new(StringArray::from_iter(visits.iter().map(of)))
    };
    let columns = vec![
        ("id", integers(visits.iter().map(|v| v.0))),
        ("t", integers(visits.iter().map(|v| v.1))),
        ("symbol", texts(|v| v.2)),
        ("split", texts(|v| v.3)),
    ];
    lake.table(name, columns);
}

pub fn lake(visits: &[Visit]) -> Lake {
    let lake = Lake::new();
    table(&lake, "visits/0.parquet", visits);
    lake.file("p.toml", PIPELINE);
    lake
}

/// The rows of a query over the files of `visits`, by DataFusion.
fn query(lake: &Lake, sql: &str) -> Rows {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let context = SessionContext::new();
        let path = lake.path("visits").display().to_string();
        let options = ParquetReadOptions::default();
        let registered = context.register_parquet("visits", path, options).await;
        registered.expect("a table");
        collect(&context, sql).await
    })
}

/// Windows of `length` rows by a self-join: each row is at the next `n` of the one before.
fn joined(rows: &str, length: usize) -> String {
    let name = |at: usize| format!("r{at}");
    let columns: Vec<String> = (0..length)
        .map(|at| format!("{}.symbol", name(at)))
        .collect();
    let mut sql = format!("WITH numbered AS ({rows}) SELECT ");
    for (at, column) in columns.iter().enumerate() {
        sql += &format!("{column} AS s{at}, ");
    }
    sql += "count(*) AS count FROM numbered r0";
    for at in 1..length {
        let (own, before) = (name(at), name(at - 1));
        sql += &format!(" JOIN numbered {own} ON {own}.id = r0.id AND {own}.n = {before}.n + 1");
    }
    let known: Vec<String> = (0..length)
        .map(|at| format!("{0}.symbol IS NOT NULL AND {0}.kept", name(at)))
        .collect();
    sql += &format!(" WHERE {}", known.join(" AND "));
    let keys = columns.join(", ");
    sql += &format!(" GROUP BY {keys} ORDER BY {keys}");
    sql
}

/// Compares the table `triples` with a query.
fn assert_windows(lake: &Lake, columns: &[&str], sql: &str) {
    let keyed = |rows: &Rows, columns: &[&str]| -> BTreeMap<Vec<String>, i64> {
        let texts: Vec<Vec<String>> = columns.iter().map(|name| rows.texts(name)).collect();
        let key = |at: usize| texts.iter().map(|column| column[at].clone()).collect();
        let counts = rows.integers("count").into_iter().enumerate();
        counts.map(|(at, count)| (key(at), count)).collect()
    };
    let names: Vec<String> = (0..columns.len()).map(|at| format!("s{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let expected = keyed(&query(lake, sql), &names);
    let triples = lake.read("triples");
    let found = keyed(&triples, columns);
    assert!(found.len() > 40 && found.len() == triples.len());
    assert_eq!(found, expected);
}

const WINDOW: [&str; 3] = ["first_symbol", "middle_symbol", "last_symbol"];

#[test]
fn triples_are_those_of_a_self_join() {
    let lake = lake(&visits(20, 80, 1));
    let timed = "SELECT id, t AS n, symbol, true AS kept FROM visits";
    lake.run(&[]).succeeds().says("null symbol");
    assert_windows(&lake, &WINDOW, &joined(timed, 3));

    // Without `interval` a row follows the one before, whatever the time between them.
    let numbered = "SELECT id, row_number() OVER (PARTITION BY id ORDER BY t) AS n, symbol, \
                    true AS kept FROM visits";
    let text = PIPELINE.swap("interval = 1\n", "");
    lake.file("p.toml", &text);
    lake.run(&[]).succeeds();
    assert_windows(&lake, &WINDOW, &joined(numbered, 3));
    lake.file("p.toml", PIPELINE);

    // Rows that are held out are in no window.
    let split = "SELECT id, t AS n, symbol, id % 3 <> 0 AS kept FROM visits";
    lake.run(&["sequences.split=split"]).succeeds();
    assert_windows(&lake, &WINDOW, &joined(split, 3));

    // Words of two symbols.
    let words = [
        "first_1_symbol",
        "first_2_symbol",
        "middle_symbol",
        "last_1_symbol",
        "last_2_symbol",
    ];
    lake.run(&["fit.hmm.block=2"]).succeeds();
    assert_windows(&lake, &words, &joined(timed, 5));

    // The first window of every trajectory alone.
    lake.run(&["fit.hmm.windows=first"]).succeeds();
    let total: i64 = lake.read("triples").integers("count").iter().sum();
    assert!(total <= 20, "{total}");
}

/// A written model: its symbols, and A_x by symbol.
struct Written {
    symbols: Vec<String>,
    operators: Vec<Vec<Vec<f64>>>,
    initial: Vec<f64>,
    last: Vec<f64>,
}

impl Written {
    /// Reads the model of a fit without pooled symbols. `is_own` selects the rows of a partition.
    fn read(lake: &Lake, out: &str, fit: &str, is_own: &dyn Fn(&Rows, usize) -> bool) -> Written {
        let open = |table: &str| lake.read_at(&format!("{out}/{table}"));
        let (symbols, operators, vectors) = (open("symbols"), open("operators"), open("vectors"));
        let texts = symbols.texts("symbol");
        let names = (0..symbols.len()).filter(|&at| is_own(&symbols, at));
        let names: Vec<String> = names.map(|at| texts[at].clone()).collect();
        let vector = |name: &str| -> Vec<f64> {
            let (fits, kinds) = (vectors.texts("fit"), vectors.texts("vector"));
            let values = vectors.floats("value");
            let own = (0..vectors.len())
                .filter(|&at| is_own(&vectors, at) && fits[at] == fit && kinds[at] == name);
            own.map(|at| values[at]).collect()
        };
        let initial = vector("initial");
        let k = initial.len();
        let mut written = Written {
            operators: vec![vec![vec![0.0; k]; k]; names.len()],
            symbols: names,
            last: vector("final"),
            initial,
        };
        let (fits, symbol) = (operators.texts("fit"), operators.texts("symbol"));
        let (i, j) = (operators.integers("i"), operators.integers("j"));
        let values = operators.floats("value");
        for at in (0..operators.len()).filter(|&at| is_own(&operators, at) && fits[at] == fit) {
            let x = written.symbols.iter().position(|own| *own == symbol[at]);
            let x = x.expect("a symbol");
            written.operators[x][i[at] as usize][j[at] as usize] = values[at];
        }
        written
    }

    fn of(lake: &Lake, fit: &str) -> Written {
        Written::read(lake, "out", fit, &|_, _| true)
    }

    fn apply(&self, x: usize, b: &[f64]) -> Vec<f64> {
        let row = |row: &Vec<f64>| row.iter().zip(b).map(|(a, b)| a * b).sum();
        self.operators[x].iter().map(row).collect()
    }

    fn total(&self, b: &[f64]) -> f64 {
        self.last.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    /// b_∞ᵀ B_{x_t} … B_{x_1} b_1 of all sequences of `t` symbols, the last symbol fastest.
    fn joint(&self, t: usize) -> Vec<f64> {
        let mut states = vec![self.initial.clone()];
        for _ in 0..t {
            states = states
                .iter()
                .flat_map(|b| (0..self.symbols.len()).map(|x| self.apply(x, b)))
                .collect();
        }
        states.iter().map(|b| self.total(b)).collect()
    }
}

/// The filter of the guide, from the written operators.
#[test]
fn predictions_follow_from_the_written_operators() {
    let visits = visits(9, 60, 5);
    let lake = lake(&visits);
    lake.run(&["sequences.split=split"]).succeeds();
    let (unigram, floor) = (0.01, 1e-12);
    let probability = lake.read("symbols").floats("probability");
    let rows = lake.read("predictions");
    // Rows without a symbol are left out.
    let known: Vec<&Visit> = visits.iter().filter(|v| v.2.is_some()).collect();
    assert!(rows.len() == known.len() && known.len() < visits.len());
    let (id, t, symbol) = (
        rows.integers("id"),
        rows.integers("t"),
        rows.texts("symbol"),
    );
    let trajectories = lake.read("trajectories");
    assert_eq!(trajectories.integers("id"), (0..9).collect::<Vec<_>>());
    for fit in ["hmm_r2", "hmm_r3"] {
        let model = Written::of(&lake, fit);
        let start_sum = model.total(&model.initial);
        let start: Vec<f64> = model.initial.iter().map(|b| b / start_sum).collect();
        let log_likelihood = rows.column(&format!("{fit}_log_likelihood"));
        let log_likelihood = log_likelihood.as_primitive::<Float64Type>();
        let next = rows.texts(&format!("{fit}_next_symbol"));
        let reset = rows.texts(&format!("{fit}_was_reset"));
        let next_probability = rows.floats(&format!("{fit}_next_probability"));
        let states = rows
            .column(&format!("{fit}_embedding"))
            .as_fixed_size_list();
        let mut sums = [0.0; 9];
        let mut b = start.clone();
        for at in 0..rows.len() {
            // A gap, or a row without a symbol, ends a sequence.
            if at == 0 || id[at] != id[at - 1] || t[at] != t[at - 1] + 1 {
                b.clone_from(&start);
            }
            let distribution = |b: &[f64]| -> Vec<f64> {
                let raw = |x: usize| model.total(&model.apply(x, b)).max(floor);
                let raw: Vec<f64> = (0..model.symbols.len()).map(raw).collect();
                let sum: f64 = raw.iter().sum();
                let mixed = raw.iter().zip(&probability);
                mixed
                    .map(|(r, p)| (1.0 - unigram) * r / sum + unigram * p)
                    .collect()
            };
            let x = model.symbols.iter().position(|own| *own == symbol[at]);
            let x = x.expect("a symbol of the model");
            let own = distribution(&b)[x].ln();
            assert!(
                (log_likelihood.value(at) - own).abs() < 1e-9,
                "{fit}, row {at}"
            );
            sums[id[at] as usize] += own;
            let after = model.apply(x, &b);
            let one = model.total(&after);
            assert_eq!(reset[at], (one <= floor).to_string());
            b = if one > floor {
                after.iter().map(|b| b / one).collect()
            } else {
                start.clone()
            };
            let state = states.value(at);
            let state = state.as_primitive::<Float64Type>().values();
            assert!(b.iter().zip(state).all(|(a, b)| (a - b).abs() < 1e-9));
            let following = distribution(&b);
            let largest = following.iter().copied().fold(0.0, f64::max);
            assert!((next_probability[at] - largest).abs() < 1e-9);
            let chosen = model.symbols.iter().position(|own| *own == next[at]);
            assert!(largest - following[chosen.expect("a symbol")] < 1e-9);
        }
        let written = trajectories.floats(&format!("{fit}_log_likelihood"));
        let means = trajectories.floats(&format!("{fit}_mean_log_likelihood"));
        let counts = trajectories.integers("rows");
        for id in 0..9 {
            assert!(
                (written[id] - sums[id]).abs() < 1e-8,
                "{fit}, trajectory {id}"
            );
            assert!((means[id] - sums[id] / counts[id] as f64).abs() < 1e-10);
        }
    }
}

/// Σ |predicted − exact| over all sequences of `t` symbols.
fn l1(model: &Written, exact: &dyn Fn(&[usize]) -> f64, t: usize) -> f64 {
    let n = model.symbols.len();
    let numbers: Vec<usize> = model
        .symbols
        .iter()
        .map(|s| s.parse::<usize>().expect("a number"))
        .collect();
    let predicted = model.joint(t);
    let sequence = |mut code: usize| -> Vec<usize> {
        let mut symbols = vec![0; t];
        for at in (0..t).rev() {
            symbols[at] = numbers[code % n];
            code /= n;
        }
        symbols
    };
    let all = predicted.iter().enumerate();
    all.map(|(code, p)| (p - exact(&sequence(code))).abs())
        .sum()
}

/// The probabilities of 1, 2, 1, … and 2, 1, 2, … are `one` and `two`; 3, 3, 3, … has the rest.
fn alternating(one: f64, two: f64) -> impl Fn(&[usize]) -> f64 {
    move |x| {
        let repeats = |first: usize, second: usize| {
            let mut rows = x.iter().enumerate();
            rows.all(|(at, &x)| x == if at % 2 == 0 { first } else { second })
        };
        let of = |is: bool, p: f64| if is { p } else { 0.0 };
        of(repeats(1, 2), one) + of(repeats(2, 1), two) + of(repeats(3, 3), 1.0 - one - two)
    }
}

/// Examples (7) to (10) of Kulesza, Rao and Singh 2014, by the pipeline of the repository.
#[test]
fn kulesza2014_examples_7_to_10() {
    let lake = Lake::new();
    let (epsilon, delta) = (1e-3, 1e-4);
    let sets = [
        format!("sequences.parameters.epsilon={epsilon}"),
        format!("sequences.parameters.delta={delta}"),
    ];
    let run = |fits: &[&str]| {
        let sets: Vec<&str> = sets
            .iter()
            .map(String::as_str)
            .chain(fits.iter().copied())
            .collect();
        lake.run_of_repository("low_rank", &sets).succeeds()
    };
    run(&[]);
    let model = |fit: &str, example: &'static str| {
        let own = move |rows: &Rows, at: usize| rows.texts("example")[at] == example;
        Written::read(&lake, "out/low-rank", fit, &own)
    };
    for t in [2, 3, 5] {
        // (7): rank 2 is exact.
        assert!(l1(&model("plain_r2", "7"), &alternating(0.5, 0.5), t) < 1e-12);
        // (8): rank 1 predicts nothing, although σ₂ = ε; rank 2 is exact.
        let exact = alternating(1.0 - epsilon, epsilon);
        assert!((l1(&model("plain_r1", "8"), &exact, t) - 1.0).abs() < 1e-12);
        assert!(l1(&model("plain_r2", "8"), &exact, t) < 1e-12);
        assert!(l1(&model("scaled_r2", "8"), &exact, t) < 1e-12);
        // (9): rank 2 loses the state with the smaller of ε and δ.
        let (one, two) = (1.0 - epsilon - delta, epsilon);
        let error = l1(&model("plain_r2", "9"), &alternating(one, two), t);
        assert!((error - delta).abs() < 1e-12, "{error}");
        let error = l1(&model("plain_r2", "9 masked"), &alternating(one, delta), t);
        assert!((error - (1.0 - epsilon)).abs() < 1e-9, "{error}");
    }
    // (10): the states show 1, then 2, then 2 or (with probability ε) 3.
    let cycle = |x: &[usize]| -> f64 {
        let from = |start: usize| -> f64 {
            let shows = |(at, &x): (usize, &usize)| match ((start + at) % 3, x) {
                (0, 1) | (1, 2) => 1.0,
                (2, 2) => 1.0 - epsilon,
                (2, 3) => epsilon,
                _ => 0.0,
            };
            x.iter().enumerate().map(shows).product()
        };
        (0..3).map(from).sum::<f64>() / 3.0
    };
    // Limits for ε → 0. The errors of rank 2 grow with t.
    for (t, limit) in [(4, 4.0 / 3.0), (5, 8.0 / 3.0), (6, 4.0), (8, 16.0 / 3.0)] {
        let error = l1(&model("plain_r2", "10"), &cycle, t);
        assert!((error - limit).abs() < 0.05, "{t}: {error}");
    }
    // Rank 3 is exact in (9) and (10).
    run(&[
        "sequences.parameters.states=3",
        "fit.plain.rank=3",
        "fit.scaled.rank=3",
    ]);
    for (fit, t) in [("plain", 5), ("scaled", 4), ("scaled", 5)] {
        assert!(l1(&model(fit, "10"), &cycle, t) < 1e-9, "{fit}");
        let exact = alternating(1.0 - epsilon - delta, delta);
        assert!(l1(&model(fit, "9 masked"), &exact, t) < 1e-9, "{fit}");
    }
}

const ALTERNATING: &str = r#"
job = { name = "alternating", output = "out" }
[sequences]
sql = """
WITH starts(id, weight) AS (VALUES (1, 0.989), (2, 0.001), (3, 0.01))
SELECT id, value AS t, weight,
       CASE WHEN id = 3 THEN '3' WHEN (id + value) % 2 = 0 THEN '1' ELSE '2' END AS symbol
FROM starts CROSS JOIN generate_series(1, 102)
"""
trajectory = "id"
time = "t"
symbol = "symbol"
weight = "weight"

[[fit]]
name = "hmm"
method = "spectral_hmm"
rank = 2
scaling = "none"
windows = "first"
"#;

/// Section 5 of Kulesza, Rao and Singh 2014: the dummy state of (9) masks the alternating ones in
/// the first windows. In the windows of all of 100 positions both starts are equally frequent.
#[test]
fn kulesza2014_section5_windows_of_all_rows_repair_a_rare_start() {
    let lake = Lake::new();
    lake.file("p.toml", ALTERNATING);
    let worlds = [
        ("first", "1 window in", alternating(0.989, 0.001), 0.99),
        ("all", "100 windows in", alternating(0.495, 0.495), 0.01),
    ];
    for (windows, total, exact, distance) in worlds {
        lake.runs(&[&format!("fit.hmm.windows={windows}")])
            .says(total);
        let model = Written::of(&lake, "hmm");
        for t in [2, 3, 5] {
            let error = l1(&model, &exact, t);
            assert!((error - distance).abs() < 1e-9, "{windows} {t}: {error}");
        }
        // The first and the third symbol of a window are the same.
        let gap = lake.read("fits").floats("stationarity_gap")[0];
        assert!(gap.abs() < 1e-12, "{gap}");
    }
}

const SENSORS: &str = r#"
job = { name = "sensors", output = "out" }
[sequences]
sql = """
WITH sequences(id, weight, a, b, c) AS (VALUES
  (1, 0.33, '1a', '2a', '2b'), (2, 0.33, '2a', '2b', '1a'), (3, 0.33, '2b', '1a', '2a'),
  (4, 0.01 / 3, '1a', '2a', '3b'), (5, 0.01 / 3, '2a', '3b', '1a'), (6, 0.01 / 3, '3b', '1a', '2a')
), steps AS (
  SELECT id, weight, 1 AS t, a AS both FROM sequences
  UNION ALL SELECT id, weight, 2, b FROM sequences
  UNION ALL SELECT id, weight, 3, c FROM sequences
)
SELECT id, weight, t, substr(both, 1, 1) AS shown, substr(both, 2, 1) AS sensor FROM steps
"""
trajectory = "id"
time = "t"
symbol = ["shown"]
weight = "weight"

[[fit]]
name = "hmm"
method = "spectral_hmm"
rank = 3
scaling = "none"
"#;

/// Section 5 of Kulesza, Rao and Singh 2014: a sensor that tells the second state of (10) from the
/// third. With it, the columns of O are orthogonal, and σ₃ is ⅓ √(.99² + .01²).
#[test]
fn kulesza2014_section5_a_second_sensor_tells_the_states_apart() {
    let lake = Lake::new();
    lake.file("p.toml", SENSORS);
    let columns = [
        ("shown", 3, 3.4e-5, 1e-6),
        ("shown\",\"sensor", 4, 0.330_016_8, 1e-7),
    ];
    for (names, symbols, expected, tolerance) in columns {
        lake.runs(&[&format!("sequences.symbol=[\"{names}\"]")]);
        assert_eq!(lake.read("symbols").len(), symbols);
        let value = lake.read("fits").floats("singular_value")[0];
        assert!((value - expected).abs() < tolerance, "{names}: {value}");
    }
}

/// The matrices of `hmm_world(6, 30, …)` come back, up to the order of the states.
#[test]
fn the_hidden_world_is_recovered() {
    let lake = Lake::new();
    let ran = lake.run_of_repository("hidden_world", &[]).succeeds();
    crate::pages::assert_output_shown(&ran.out);
    let fits = lake.read("hidden-world/fits");
    let names = fits.texts("fit");
    let of = |fit: &str, column: &str| {
        let at = names.iter().position(|name| name == fit).expect("a fit");
        fits.floats(column)[at]
    };
    assert_eq!(of("spectral", "rank"), 6.0);
    // Held out: the shares of the symbols, then the spectral model, then Baum–Welch.
    assert!(of("spectral", "held_out") > of("spectral", "held_out_unigram") + 0.6);
    assert!(of("em", "held_out") > of("spectral", "held_out") + 0.01);

    let emission = lake.read("hidden-world/symbols").lists("em_emission");
    let symbols = lake.read("hidden-world/symbols").integers("symbol");
    // The state that shows symbol j best is state j of the world.
    let row = |x: i64| &emission[symbols.iter().position(|&s| s == x).expect("a symbol")];
    let state: Vec<usize> = (0..6)
        .map(|x| {
            let shares = row(x).iter().enumerate();
            shares.max_by(|a, b| a.1.total_cmp(b.1)).expect("states").0
        })
        .collect();
    let mut sorted = state.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 2, 3, 4, 5]);
    let transitions = lake.read("hidden-world/hidden_transitions");
    let found = transitions.floats("probability");
    for j in 0..6 {
        for i in 0..6 {
            let exact = 0.75 * f64::from(i == j) + 0.2 * f64::from(i == (j + 1) % 6) + 0.05 / 6.0;
            let own = found[state[j] * 6 + state[i]];
            assert!((own - exact).abs() < 0.03, "{i} {j}: {own} {exact}");
        }
        let tail = |x: i64| (1.0 + x as f64).powf(-1.5);
        let own: f64 = (0..5).map(tail).sum();
        let all: f64 = (0..30).map(tail).sum();
        for &x in &symbols {
            let mut exact = 0.1 * tail(x) / all;
            if x % 6 == j as i64 {
                exact += 0.9 * tail(x / 6) / own;
            }
            let found = row(x)[state[j]];
            assert!((found - exact).abs() < 0.03, "{x} {j}: {found} {exact}");
        }
    }
}

/// The sessions without order have the lowest mean log-likelihood, and rank 1 cannot find them.
#[test]
fn sessions_without_order_are_the_least_likely() {
    let lake = Lake::new();
    let least = |sets: &[&str]| -> Vec<i64> {
        lake.run_of_repository("sessions", sets).succeeds();
        let sessions = lake.read("sessions/trajectories");
        let (id, mean) = (
            sessions.integers("session"),
            sessions.floats("hmm_mean_log_likelihood"),
        );
        let mut order: Vec<usize> = (0..sessions.len()).collect();
        order.sort_by(|&a, &b| mean[a].total_cmp(&mean[b]));
        let mut least: Vec<i64> = order[..10].iter().map(|&at| id[at]).collect();
        least.sort_unstable();
        least
    };
    let planted: Vec<i64> = (990..1000).collect();
    assert_eq!(least(&["fit.hmm.ranks=[1, 6]"]), planted);
    let fits = lake.read("sessions/fits");
    assert_eq!(fits.integers("rank"), [6]);
    assert!(fits.floats("held_out")[0] > fits.floats("held_out_unigram")[0] + 0.1);
    let symbols = lake.read("sessions/symbols");
    let pooled = symbols.texts("is_pooled");
    let pooled = pooled
        .iter()
        .filter(|is_pooled| *is_pooled == "true")
        .count();
    assert!(pooled > 200 && pooled < symbols.len() - 200, "{pooled}");
    let independent = least(&["fit.hmm.ranks=[1]"]);
    let found = independent.iter().filter(|id| planted.contains(id)).count();
    assert!(found <= 1, "{independent:?}");
}

const RARE: &str = r#"
job = { name = "rare", output = "out" }
[sequences]
sql = """
SELECT trajectory, time, symbol, CASE WHEN trajectory < 100 THEN 'train' ELSE 'test' END AS split
FROM hmm_world(6, 2000, 200, 60)
"""
trajectory = "trajectory"
time = "time"
symbol = "symbol"
split = "split"

[[fit]]
name = "scaled"
method = "spectral_hmm"
rank = [2, 4, 6]
min_count = 5

[[fit]]
name = "plain"
method = "spectral_hmm"
rank = [2, 4, 6]
min_count = 5
scaling = "none"
"#;

// 6,000 training rows of 2,000 symbols, most of which occur less than five times.
#[test]
fn scaled_operators_predict_rare_symbols_better_than_plain_ones() {
    let lake = Lake::new();
    lake.runs_text(RARE);
    let fits = lake.read_at("out/fits");
    assert_eq!(fits.texts("fit")[..3], ["plain_r2", "plain_r4", "plain_r6"]);
    let (held_out, shares) = (fits.floats("held_out"), fits.floats("held_out_unigram"));
    for at in 0..3 {
        assert!(held_out[at + 3] > held_out[at], "{held_out:?}");
        assert!(held_out[at + 3] > shares[at + 3], "{held_out:?}");
    }
    // Symbols that occur once have singular values of 1 of their own.
    lake.runs_text(&RARE.swap("min_count = 5", ""))
        .says("and `min_count` pools rare symbols");
}

const HMMLEARN: &str = r#"
import sys, warnings
warnings.filterwarnings("ignore")
import numpy as np, pandas
from hmmlearn.hmm import CategoricalHMM
out = sys.argv[1]
read = lambda table: pandas.read_parquet(f"{out}/{table}/part-0.parquet")
symbols, vectors, rows = read("symbols"), read("vectors"), read("predictions")
O = np.stack(symbols["hmm_emission"])
n, m = O.shape
model = CategoricalHMM(m)
model.n_features = n
model.emissionprob_ = O.T
model.startprob_ = vectors[vectors["vector"] == "initial"]["value"].to_numpy()
# The rows of the table are those of `transmat_`, one after the other.
T = read("hidden_transitions")
assert (T["from_state"] * m + T["to_state"] == range(m * m)).all()
model.transmat_ = T["probability"].to_numpy().reshape(m, m)
code = {symbol: x for x, symbol in enumerate(symbols["symbol"])}
sums = {}
for (id, piece), part in rows.groupby(["id", "piece"]) if "piece" in rows else rows.groupby(["id", rows["id"] * 0]):
    x = np.array([[code[symbol]] for symbol in part["symbol"]])
    sums[id] = sums.get(id, 0) + model.score(x)
own = read("trajectories").set_index("id")["hmm_log_likelihood"]
print("score", max(abs(own[id] - total) for id, total in sums.items()))
# hmmlearn's own search from the same model changes nothing that matters.
x = np.array([[code[symbol]] for symbol in rows["symbol"]])
lengths = rows.groupby("id").size().to_numpy()
before = model.score(x, lengths)
model.init_params, model.n_iter = "", 5
model.fit(x, lengths)
print("gain", (model.score(x, lengths) - before) / len(x))
"#;

/// The log-likelihoods of a refined model are those of hmmlearn's `score`.
#[test]
fn refined_models_agree_with_hmmlearn() {
    let Some(python) = needs::python(&["hmmlearn", "pandas", "pyarrow"]) else {
        return;
    };
    // Without gaps: hmmlearn has one sequence per trajectory.
    let mut visits: Vec<Visit> = visits(20, 100, 6);
    visits.retain(|v| v.2.is_some());
    let lake = lake(&visits);
    let text = PIPELINE.swap("interval = 1\n", "").swap(
        "rank = [2, 3]",
        "rank = 3\nrefine = \"em\"\nunigram = 0.0\nfloor = 1e-300",
    );
    lake.file("p.toml", &text);
    lake.run(&[]).succeeds();
    let ran = lake.script(&python, HMMLEARN, &["out"]);
    let number = |name: &str| -> f64 {
        let line = ran.out.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.trim().parse().ok())
            .expect("a number")
    };
    assert!(number("score") < 1e-9, "{}", ran.out);
    assert!(number("gain") < 1e-4, "{}", ran.out);
}

#[test]
fn what_cannot_be_fitted_is_refused_by_name() {
    let visits = visits(6, 40, 7);
    let lake = lake(&visits);
    let short = "sequences.sql=\"SELECT * FROM visits WHERE t < 2\"";
    lake.run(&[short])
        .fails(1, "gyre needs 3 rows in a row with a symbol");
    let twice = "sequences.sql=\"SELECT id, t / 2 AS t, symbol FROM visits\"";
    lake.run(&[twice]).fails(1, "has two rows at t = ");
    lake.run(&["fit.hmm.rank=9"])
        .fails(1, "rank 9 is above the numerical rank 5");
    let split = "sequences.sql=\"SELECT id, t, symbol, 'fit' AS split FROM visits\"";
    lake.run(&[split, "sequences.split=split"]).fails(1, "fit");
    let nulls = "sequences.sql=\"SELECT id, t, nullif(symbol, symbol) AS symbol FROM visits\"";
    lake.run(&[nulls]).fails(1, "dropped for null symbol");
    assert!(!lake.path("out/operators").exists());
    // One symbol is enough for rank 1 alone.
    let equal = "sequences.sql=\"SELECT id, t, 'a' AS symbol FROM visits\"";
    lake.run(&[equal, "fit.hmm.rank=2"])
        .succeeds()
        .logs("all rows show one symbol");
    assert_eq!(lake.read("fits").floats("rank"), [1.0]);
}

/// Weights that are counts give the model of repeated trajectories.
#[test]
fn weights_count_as_repetitions() {
    let once = visits(8, 40, 8);
    let (weighted, em) = (lake(&once), "fit.hmm.refine=em");
    let sql = "sequences.sql=\"SELECT *, CAST(1 + id % 2 AS DOUBLE) AS w FROM visits\"";
    weighted.run(&[sql, "sequences.weight=w"]).succeeds();
    let mut twice = once.clone();
    twice.extend(
        once.iter()
            .filter(|v| v.0 % 2 == 1)
            .map(|v| (100 + v.0, v.1, v.2, v.3)),
    );
    let repeated = lake(&twice);
    repeated.run(&[]).succeeds();
    let values = |lake: &Lake| lake.read("operators").floats("value");
    let (a, b) = (values(&weighted), values(&repeated));
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-10));

    weighted
        .run(&[sql, "sequences.weight=w", em, "job.output=em"])
        .succeeds();
    repeated.run(&[em, "job.output=em"]).succeeds();
    let hidden = |lake: &Lake, output: &str| -> Vec<f64> {
        let of =
            |table: &str, column: &str| lake.read_at(&format!("{output}/{table}")).floats(column);
        let fits = of("fits", "log_likelihood")
            .into_iter()
            .chain(of("fits", "iterations"));
        fits.chain(of("hidden_transitions", "probability"))
            .collect()
    };
    let (a, b) = (hidden(&weighted, "em"), hidden(&repeated, "em"));
    assert_eq!(a.len(), b.len());
    assert!(
        a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-12),
        "{a:?} {b:?}"
    );
    let scaled = sql.replace("1 + id % 2", "2e-300 * (1 + id % 2)");
    let scaled = scaled.replace("2e-300", &format!("{:e}", 2f64.powi(-1000)));
    weighted
        .run(&[&scaled, "sequences.weight=w", em, "job.output=small"])
        .succeeds();
    assert_eq!(hidden(&weighted, "small"), a);

    let varies = sql.replace("1 + id % 2", "1 + t % 2");
    let varies = weighted.run(&[&varies, "sequences.weight=w", em]);
    varies.fails(1, " in the first row of trajectory 0 and ");
    let message = "with `refine = \"em\"`, `sequences.weight` must be the same";
    varies.fails(1, message);
}

/// The level of noise depends on how different weights are, and not on their unit.
#[test]
fn noise_is_that_of_the_effective_number_of_windows() {
    let lake = lake(&visits(8, 40, 8));
    let noise = |weight: &str| {
        let sql = format!("sequences.sql=\"SELECT *, {weight} AS w FROM visits\"");
        lake.run(&[&sql, "sequences.weight=w"]).succeeds();
        let triples = lake.read("triples").floats("count");
        let noise = lake.read("fits").floats("noise");
        assert_eq!(noise[0], noise[1]);
        (noise[0], triples.iter().sum::<f64>())
    };
    lake.run(&[]).succeeds();
    let plain = lake.read("fits").floats("noise")[0];
    let (equal, _) = noise("CAST(0.001 AS DOUBLE)");
    assert!((equal / plain - 1.0).abs() < 1e-12, "{equal} {plain}");
    // n windows of weight 1 and m of weight 1/1000 have Σ w = n + m/1000 and Σ w² = n + m/10⁶.
    let (one, sum) = noise("CASE WHEN id = 0 THEN 1.0 ELSE 0.001 END");
    let windows = 1.0 / (plain * plain);
    let n = (sum - windows / 1000.0) / 0.999;
    let squares = n + (windows - n) / 1e6;
    assert!((one / (squares.sqrt() / sum) - 1.0).abs() < 1e-9, "{one}");
    let (other_unit, _) = noise("CASE WHEN id = 0 THEN 1024.0 ELSE 1.024 END");
    assert!((other_unit / one - 1.0).abs() < 1e-12);
}

/// Rows with a symbol that the model does not have can be most of a held-out score.
#[test]
fn the_cost_of_unseen_symbols_is_said() {
    let mut all = visits(9, 40, 8);
    let row = all.iter_mut().find(|v| v.0 == 3 && v.2.is_some());
    row.expect("a test row").2 = Some("f");
    let lake = lake(&all);
    let ran = lake.run(&["sequences.split=split"]).succeeds();
    let fits = lake.read("fits");
    let (rows, unseen) = (
        fits.floats("held_out_rows")[0],
        fits.floats("held_out_unseen")[0],
    );
    let cost = fits.floats("held_out_unseen_cost")[0];
    assert_eq!(unseen, 1.0);
    assert!((cost + 1e-12f64.ln() / rows).abs() < 1e-12, "{cost}");
    let said = format!("; 1 row with an unseen symbol cost {cost:.4} of it");
    ran.says(&said);
    // A fold lacks the symbol of its own rows.
    let ran = lake
        .run(&["fit.hmm.rank=auto", "fit.hmm.ranks=[1, 2]"])
        .succeeds();
    let fits = lake.read("fits");
    assert_eq!(fits.floats("held_out_unseen"), [1.0], "{}", ran.out);
    let (rows, cost) = (
        fits.floats("held_out_rows")[0],
        fits.floats("held_out_unseen_cost")[0],
    );
    assert!((cost + 1e-12f64.ln() / rows).abs() < 0.1 / rows, "{cost}");
}
