//! Hidden Markov models that the input has: rows against the forward algorithm, and the errors of
//! matrices.

use crate::cli::integers;
use crate::lake::{Lake, Swap, cases, floats, texts, texts_or_null};

/// Rows of `hmm_world`, whose documentation has the matrices, and a fit with these matrices.
const WORLD: &str = r#"
job = { name = "world", output = "out", seed = 3 }
tables.moves.path = "moves.parquet"
tables.shown.path = "shown.parquet"

[sequences]
sql = """
SELECT trajectory, time, symbol, CASE WHEN trajectory < 20 THEN 'train' ELSE 'test' END AS split
FROM hmm_world(2, 3, 30, 40, 3)
"""
trajectory = "trajectory"
time = "time"
symbol = "symbol"
split = "split"

[[fit]]
name = "truth"
method = "given_hmm"
transition = { sql = "SELECT * FROM moves" }
emission = { sql = "SELECT * FROM shown" }

[[fit]]
name = "hmm"
method = "spectral_hmm"
rank = 2

[output]
rows = "all"
"#;

/// The states, in another order than that of their names.
const STATES: [&str; 2] = ["wet", "dry"];

/// Pr(i follows j).
fn transition(i: usize, j: usize) -> f64 {
    if i == j { 0.775 } else { 0.225 }
}

/// Pr(state j shows symbol x).
fn emission(x: usize, j: usize) -> f64 {
    let tail = |x: usize| ((1 + x) as f64).powf(-1.5);
    let own = |x: usize| if x % 2 == j { tail(x / 2) } else { 0.0 };
    let all = |of: &dyn Fn(usize) -> f64| (0..3).map(of).sum::<f64>();
    0.9 * own(x) / all(&own) + 0.1 * tail(x) / all(&tail)
}

fn lake() -> Lake {
    let lake = Lake::new();
    let pairs = || (0..2).flat_map(|j| (0..2).map(move |i| (i, j)));
    let from = [None, None]
        .into_iter()
        .chain(pairs().map(|(_, j)| Some(STATES[j])));
    let next = STATES.into_iter().chain(pairs().map(|(i, _)| STATES[i]));
    let moves = [0.5, 0.5]
        .into_iter()
        .chain(pairs().map(|(i, j)| transition(i, j)));
    let columns = vec![
        ("state", texts_or_null(from)),
        ("next", texts(next)),
        ("probability", floats(moves)),
    ];
    lake.table("moves.parquet", columns);
    let pairs = || (0..2).flat_map(|j| (0..3).map(move |x| (x, j)));
    let columns = vec![
        ("state", texts(pairs().map(|(_, j)| STATES[j]))),
        ("symbol", integers(pairs().map(|(x, _)| x as i64))),
        ("probability", floats(pairs().map(|(x, j)| emission(x, j)))),
    ];
    lake.table("shown.parquet", columns);
    lake.file("p.toml", WORLD);
    lake
}

/// ln Pr(x_t | x_1, …, x_{t−1}) of each symbol, and the probabilities of the states of the next row
/// given x_1, …, x_t, by the forward algorithm.
fn forward(symbols: &[usize]) -> Vec<(f64, [f64; 2])> {
    let mut state = [0.5, 0.5];
    let mut scores = Vec::new();
    for &x in symbols {
        let joint = [0, 1].map(|j| state[j] * emission(x, j));
        let p = joint[0] + joint[1];
        state = [0, 1].map(|i| (transition(i, 0) * joint[0] + transition(i, 1) * joint[1]) / p);
        scores.push((p.ln(), state));
    }
    scores
}

#[track_caller]
fn assert_near(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-11, "{a} {b}");
}

#[test]
fn rows_are_scored_by_the_forward_algorithm() {
    let lake = lake();
    lake.runs(&[]).says("  truth  rank 2, ");
    let rows = lake.read("predictions");
    let (trajectory, symbol) = (rows.integers("trajectory"), rows.integers("symbol"));
    let scores = rows.floats("truth_log_likelihood");
    let states = rows.lists("truth_embedding");
    assert_eq!(scores.len(), 30 * 40);
    let mut held_out = 0.0;
    for (at, symbols) in symbol.chunks(40).enumerate() {
        let symbols: Vec<usize> = symbols.iter().map(|x| *x as usize).collect();
        let expected = forward(&symbols);
        assert_eq!(trajectory[at * 40], at as i64);
        let own = scores[at * 40..].iter().zip(&states[at * 40..]);
        for ((score, state), (expected, next)) in own.zip(&expected) {
            assert_near(*score, *expected);
            // States are in the order of their names: dry, wet.
            assert_near(state[0], next[1]);
            assert_near(state[1], next[0]);
        }
        if at >= 20 {
            held_out += expected.iter().map(|(score, _)| score).sum::<f64>();
        }
    }
    let fits = lake.read("fits");
    assert_eq!(fits.texts("fit"), ["hmm", "truth"]);
    assert_eq!(fits.texts("method"), ["spectral_hmm", "given_hmm"]);
    assert_eq!(fits.integers("rank"), [2, 2]);
    assert_near(fits.floats("held_out")[1], held_out / 400.0);
    assert_eq!(fits.integers("resets")[1], 0);
    // States are in the order of their names: dry, wet.
    let hidden = lake.read("hidden_transitions");
    assert_eq!(hidden.texts("fit"), ["truth"; 4]);
    assert_eq!(hidden.integers("from_state"), [0, 0, 1, 1]);
    assert_eq!(hidden.integers("to_state"), [0, 1, 0, 1]);
    for (p, expected) in hidden
        .floats("probability")
        .iter()
        .zip([0.775, 0.225, 0.225, 0.775])
    {
        assert_near(*p, expected);
    }
    let shown = lake.read("symbols").lists("truth_emission");
    for (x, of_states) in shown.iter().enumerate() {
        assert_near(of_states[0], emission(x, 1));
        assert_near(of_states[1], emission(x, 0));
    }
    // A written model filters as the run does.
    lake.assign(&[]).succeeds();
    let new = lake
        .read_at("new/trajectories")
        .floats("truth_log_likelihood");
    assert_eq!(
        new,
        lake.read("trajectories").floats("truth_log_likelihood")
    );
}

#[test]
fn folds_and_partitions_have_the_same_model() {
    let text = WORLD
        .swap("split = \"split\"\n", "partition_by = \"half\"\n")
        .swap("AS split\n", "AS split, trajectory % 2 AS half\n")
        .swap(
            "SELECT * FROM shown",
            "SELECT *, h AS half FROM shown CROSS JOIN (VALUES (0), (1)) AS halves(h)",
        );
    let text = format!("{text}[validation]\nfolds = 2\n");
    let lake = lake();
    lake.runs_text(&text);
    let fits = lake.read("fits");
    assert_eq!(fits.integers("half"), [0, 0, 1, 1]);
    let rows = lake.read("predictions");
    let scores = rows.floats("truth_log_likelihood");
    let symbols: Vec<usize> = rows
        .integers("symbol")
        .iter()
        .map(|x| *x as usize)
        .collect();
    let expected = symbols.chunks(40).flat_map(forward);
    let expected: Vec<f64> = expected.map(|(score, _)| score).collect();
    for (score, expected) in scores.iter().zip(&expected) {
        assert_near(*score, *expected);
    }
    // Every row is in the other fold of some model, and all of these are the given one.
    for (half, held_out) in [0, 1]
        .iter()
        .zip([1, 3].map(|at| fits.floats("held_out")[at]))
    {
        let own = &expected[half * 600..][..600];
        assert_near(held_out, own.iter().sum::<f64>() / 600.0);
    }
}

/// The rows of a query in place of those of `moves` or `shown`, and the error.
const WRONG: &str = r#"
    transition | SELECT state, next, probability / 2 AS probability FROM moves WHERE state = 'wet' UNION ALL SELECT * FROM moves WHERE state = 'dry' OR state IS NULL | `transition` has probabilities of the state wet that add up to 0.5, not to 1 within 1e-6
    transition | SELECT * FROM moves WHERE state IS NOT NULL | `transition` has no row with a null `state`
    transition | SELECT * FROM moves WHERE state IS NULL OR state = 'dry' | `transition` has no row that leaves the state wet
    transition | SELECT * FROM moves UNION ALL SELECT * FROM moves WHERE state = 'wet' | `transition` has two rows from the state wet to the state
    transition | SELECT state, CASE WHEN state = 'wet' THEN NULL ELSE next END AS next, probability FROM moves | column `next` is null in a row of the state wet
    transition | SELECT state, next, CASE WHEN state = 'wet' THEN probability END AS probability FROM moves | is null; write a number of 0 or more
    transition | SELECT state, next, -probability AS probability FROM moves | write a number of 0 or more
    transition | SELECT * FROM moves UNION ALL SELECT * FROM moves WHERE state IS NULL | `transition` has two rows from the start to the state
    transition | SELECT state, next, CASE WHEN state IS NULL THEN 1.0 ELSE probability END AS probability FROM moves | `transition` has probabilities of the start that add up to 2, not to 1 within 1e-6
    transition | SELECT state, next, CAST('Infinity' AS DOUBLE) AS probability FROM moves | is inf; write a number of 0 or more
    transition | SELECT * FROM moves WHERE probability > 5 | `fit.truth.transition`: the SQL gives no rows
    emission | SELECT CASE WHEN symbol = 1 THEN NULL ELSE state END AS state, symbol, probability FROM shown | column `state` is null in a row of the symbol 1
    emission | SELECT state, CASE WHEN symbol < 2 THEN symbol END AS symbol, probability FROM shown | column `symbol` is null in a row of the state
    emission | SELECT state, symbol, probability * 0.999998 AS probability FROM shown | `emission` has probabilities of the state dry that add up to 0.99999
    emission | SELECT state, symbol, CAST('NaN' AS DOUBLE) AS probability FROM shown | is NaN; write a number of 0 or more
    emission | SELECT * FROM shown WHERE symbol < 2 | `emission` lacks the symbol 2, which the rows show
    emission | SELECT * FROM shown WHERE state = 'wet' | `emission` has no row of the state dry
    emission | SELECT state, symbol, probability / 2 AS probability FROM shown | `emission` has probabilities of the state dry that add up to 0.
    emission | SELECT * FROM shown UNION ALL SELECT 'hot', 0, 1.0 | `emission` has the state hot, which `transition` lacks
    emission | SELECT * FROM shown UNION ALL SELECT * FROM shown | `emission` has two rows of the state
    emission | SELECT * FROM shown WHERE symbol > 5 | the SQL gives no rows
"#;

#[test]
fn matrices_that_are_none_are_refused() {
    let lake = lake();
    for [key, sql, message] in cases(WRONG) {
        let set = format!("fit.truth.{key}={{ sql = \"{sql}\" }}");
        lake.run(&[&set]).fails(1, &message);
    }
    assert!(!lake.path("out/current.json").exists());
}

#[test]
fn queries_of_given_models_are_checked_before_a_run() {
    let lake = lake();
    let table = r#"
        transition | SELECT state, probability FROM moves | `fit.truth.transition`: `transition.next` names the column `next`, which the SQL does not give
        transition | SELECT state, next, 'a' AS probability FROM moves | column `probability` is Utf8, but `transition.probability` wants numbers
        emission | SELECT state, CAST(symbol AS INT) AS symbol, probability FROM shown | column `symbol` is Int32 in the SQL of [emission], but `symbol` is Int64 in the SQL of [sequences]; cast it in the SQL
        emission | SELECT 1 AS state, symbol, probability FROM shown | column `state` is Utf8 in the SQL of [transition], but `state` is Int64 in the SQL of [emission]; cast it in the SQL
        emission | SELECT 1 AS a FROM nowhere | the SQL of [emission] cannot be planned
        emission |  | `fit.truth.emission` has an empty `sql`
    "#;
    for [key, sql, message] in cases(table) {
        let set = format!("fit.truth.{key}={{ sql = \"{sql}\" }}");
        lake.call("check", &[&set]).fails(2, &message);
    }
    let message = "`fit.truth.transmat` is no key of method \"given_hmm\": write `transition`";
    lake.call("check", &["fit.truth.transmat=1"])
        .fails(2, message);
    lake.call("check", &[]).succeeds();
    let plan = lake.call("plan", &[]).succeeds().out;
    assert!(
        plan.contains("truth: given HMM, probabilities by SQL"),
        "{plan}"
    );
}

/// Coordinates in four boxes, of which no row has the last one.
const BOXES: &str = r#"
job = { name = "boxes", output = "out" }
[sequences]
sql = "SELECT value / 9 AS id, value % 9 AS t, value * 2 % 3 * 0.25 + 0.1 AS x FROM generate_series(0, 89)"
trajectory = "id"
time = "t"
bins = { x = { boxes = 4, bounds = [0.0, 1.0] } }

[[fit]]
name = "truth"
method = "given_hmm"
length = 2
transition = { sql = "SELECT * FROM (VALUES (NULL, 1, 1), (1, 1, 1)) AS t(state, next, probability)" }
emission = { sql = """
SELECT * FROM (VALUES (1, 0.9, 0.3), (1, 0.1, 0.4), (1, 0.3, 0.2), (1, 0.6, 0.1)) AS t(state, x, probability)""" }
"#;

#[test]
fn symbols_can_be_boxes() {
    let lake = Lake::new();
    lake.runs_text(BOXES);
    let shown = lake.read("symbols").lists("truth_emission");
    assert_eq!(shown, [[0.4], [0.2], [0.1]]);
    // Each trajectory has three rows in each of three boxes.
    let found = lake.read("trajectories").floats("truth_log_likelihood");
    let expected = 3.0 * (0.4f64 * 0.2 * 0.1).ln();
    assert_eq!(found.len(), 10);
    found.iter().for_each(|own| assert_near(*own, expected));
    for (x, message) in [
        (
            "0.35",
            "`emission` has two rows of the state 1 and the symbol 0.375",
        ),
        (
            "0.95",
            "`emission` has two rows of the state 1 and the symbol 0.9",
        ),
        (
            "1.5",
            "fit `truth`: the symbol 1.5 of `emission` is null, NaN or outside the bins",
        ),
    ] {
        lake.file(
            "p.toml",
            &BOXES.swap(
                "(VALUES (1, 0.9",
                &format!("(VALUES (1, {x}, 0.0), (1, 0.9"),
            ),
        );
        lake.run(&[]).fails(1, message);
    }
}

#[test]
fn the_order_of_entries_and_threads_change_no_byte() {
    let lake = lake();
    let run = |order: &str, threads: &str| {
        let set = |key: &str, of: &str| {
            format!(
                "fit.truth.{key}={{ sql = \"SELECT * FROM {of} ORDER BY probability {order}\" }}"
            )
        };
        let (moves, shown) = (set("transition", "moves"), set("emission", "shown"));
        let sets = ["run", "p.toml", "--set", &moves, "--set", &shown];
        let more = ["--threads", threads, "--force"];
        lake.gyre(&[&sets[..], &more].concat()).succeeds();
        lake.tables_of("out")
    };
    let expected = run("ASC", "1");
    assert!(!expected["distances"].is_empty());
    for (order, threads) in [("DESC", "1"), ("DESC", "3")] {
        assert!(run(order, threads) == expected, "{order} {threads}");
    }
}

/// A partition that a given model lacks has no result, and the others have theirs.
#[test]
fn each_partition_needs_entries() {
    let halves = "SELECT *, h AS half FROM shown CROSS JOIN (VALUES (0), (7)) AS halves(h)";
    let text = WORLD
        .swap("split = \"split\"\n", "partition_by = \"half\"\n")
        .swap("AS split\n", "AS split, trajectory % 2 AS half\n")
        .swap("SELECT * FROM shown", halves);
    let lake = lake();
    lake.file("p.toml", &text);
    let message = "fit `truth`: `emission` has no rows for this partition";
    lake.run(&[]).fails(1, message);
    assert_eq!(lake.read("fits").integers("half"), [0, 0]);
}

#[test]
fn drawn_sequences_are_part_of_the_memory() {
    let lake = lake();
    let sets = [
        "--set",
        "fit.truth.length=100",
        "--set",
        "fit.truth.samples=1000000",
    ];
    let plan = |sets: &[&str]| {
        // A table says how many rows it has.
        let sql = "sequences.sql=SELECT state AS trajectory, symbol AS time, symbol, 'train' AS split FROM shown";
        let plan = ["plan", "p.toml", "--json", "--set", sql];
        let shown = lake.gyre(&[&plan[..], sets].concat());
        let json = shown.succeeds().json();
        json["memory"]["resident_bytes"].as_u64().expect("a number")
    };
    // Six rows have at most six symbols, and 6⁷ sequences are summed up: 93 numbers per list.
    assert!(plan(&sets) > plan(&[]) + 700_000_000);
    let bounded = ["run", "p.toml", "--threads", "1", "--memory", "300MB"];
    let what = "2 states and 3 symbols and 1 thread; --memory is 300MB: give at least ";
    let ran = lake.gyre(&[&bounded[..], &sets].concat());
    ran.fails(2, what);
    assert!(ran.err.contains("or lower `samples`"), "{}", ran.err);
    assert!(!ran.err.contains("fit `truth`: fit"), "{}", ran.err);
}

/// Example (8) of Kulesza, Rao and Singh, *Low-rank spectral learning*, as weighted sequences and
/// as a given model.
const EXAMPLE_8: &str = r#"
job = { name = "example", output = "out" }
[sequences]
sql = """
WITH sequences(id, weight, a, b, c) AS (VALUES (1, 0.9, 1, 2, 1), (2, 0.1, 2, 1, 2))
SELECT id, 1 AS t, a AS symbol, weight FROM sequences
UNION ALL SELECT id, 2, b, weight FROM sequences
UNION ALL SELECT id, 3, c, weight FROM sequences
"""
trajectory = "id"
time = "t"
symbol = "symbol"
weight = "weight"

[[fit]]
name = "plain"
method = "spectral_hmm"
rank = [1, 2]
scaling = "none"
windows = "first"

[[fit]]
name = "truth"
method = "given_hmm"
transition = { sql = """
SELECT * FROM (VALUES (NULL, 1, 0.9), (NULL, 2, 0.1), (1, 2, 1.0), (2, 1, 1.0))
  AS t(state, next, probability)""" }
emission = { sql = "SELECT * FROM (VALUES (1, 1, 1.0), (2, 2, 1.0)) AS t(state, symbol, probability)" }
"#;

/// The rows of the table `distances`: fit, rank, length and the numbers of some columns.
fn distances(lake: &Lake) -> Vec<(String, i64, i64, [f64; 3])> {
    distances_in(lake, "out")
}

fn distances_in(lake: &Lake, output: &str) -> Vec<(String, i64, i64, [f64; 3])> {
    let rows = lake.read_at(&format!("{output}/distances"));
    let (fits, references) = (rows.texts("fit"), rows.texts("reference"));
    let (ranks, lengths) = (rows.integers("rank"), rows.integers("length"));
    let columns = ["distance", "error", "samples"].map(|name| rows.floats(name));
    assert!(references.iter().all(|of| of == "truth"));
    (0..rows.len())
        .map(|at| {
            let numbers = [0, 1, 2].map(|column: usize| columns[column][at]);
            (fits[at].clone(), ranks[at], lengths[at], numbers)
        })
        .collect()
}

// Rank 1 predicts 0, so the distance is 1 at every length. Rank 2 is exact. The bound of Theorem 1
// is √2 √2^(t + 3) σ₂ with σ₂ = 0.1, which is no claim for two states that do not begin as they go
// on.
#[test]
fn example_8_has_the_distances_of_the_paper() {
    let lake = Lake::new();
    lake.runs_text(EXAMPLE_8);
    let rows = distances(&lake);
    assert_eq!(rows.len(), 4 * 4);
    for (at, (fit, rank, length, [distance, _, samples])) in rows.iter().enumerate() {
        let expected = ["plain_r1", "plain_r2", "truth", "truth"][at / 4];
        assert_eq!((fit.as_str(), *length), (expected, 1 + at as i64 % 4));
        assert_eq!(*rank, [1, 2, 1, 2][at / 4]);
        let exact = if *rank == 1 { 1.0 } else { 0.0 };
        assert!(
            (distance - exact).abs() < 1e-12,
            "{fit} {length}: {distance}"
        );
        assert_eq!(*samples, 0.0);
    }
    let bounds = lake.read("distances").floats("bound");
    for (at, bound) in bounds.iter().enumerate() {
        let omitted = if at / 4 % 2 == 0 { 0.1 } else { 0.0 };
        let expected = omitted * 2f64.powf(0.5 + (4 + at % 4) as f64 / 2.0);
        assert!((bound - expected).abs() < 1e-13, "{bound} {expected}");
    }
    let claims = lake.read("certificates");
    let (fits, names, holds) = (
        claims.texts("fit"),
        claims.texts("certificate"),
        claims.texts("holds"),
    );
    let own = (0..claims.len()).filter(|&at| fits[at] == "truth");
    let own: Vec<(&str, &str)> = own
        .map(|at| (names[at].as_str(), holds[at].as_str()))
        .collect();
    let expected = [
        ("positive_start", "true"),
        ("rank_of_emission", "true"),
        ("rank_of_transition", "true"),
        ("separated_states", "true"),
        ("stationary_start", "null"),
        ("theorem_1", "null"),
    ];
    assert_eq!(own, expected);
}

// §3.2: a good model of rank 3 exists and is not found. Exact moments and weighted rows have the
// same models. P₂₁ has the singular values of (10), times 1 − δ, and δ.
#[test]
fn kulesza2014_example_10_with_a_dummy_state() {
    let lake = Lake::new();
    lake.run_of_repository("low_rank_dummy", &[]).succeeds();
    let rows = distances_in(&lake, "out/low-rank-dummy");
    assert_eq!(rows.len(), 10 * 6);
    let of = |fit: &str, rank: i64| -> Vec<f64> {
        let own = rows.iter().filter(|row| row.0 == fit && row.1 == rank);
        own.map(|row| row.3[0]).collect()
    };
    for (fit, three) in [("truth", 3), ("plain_r3", 3)] {
        let found = of(fit, three);
        assert!(found[..3].iter().all(|own| *own < 2e-3), "{fit} {found:?}");
        for (own, expected) in found[3..]
            .iter()
            .zip([1.267_931_12, 2.534_593_03, 3.800_617_49])
        {
            assert!((own - expected).abs() < 1e-6, "{fit} {own}");
        }
    }
    for (fit, rank, largest) in [
        ("truth", 4, 1e-9),
        ("plain_r4", 4, 1e-9),
        ("scaled_r4", 4, 1e-9),
    ] {
        assert!(of(fit, rank).iter().all(|own| *own < largest), "{fit}");
    }
    // Scaling does not find the good model either.
    assert!((of("scaled_r3", 3)[3] - 1.263).abs() < 1e-3);
    // σ_min(O)² is the smaller eigenvalue of [1, 1 − ε; 1 − ε, (1 − ε)² + ε²].
    let e = 1e-3f64;
    let (trace, determinant) = (2.0 - 2.0 * e + 2.0 * e * e, e * e);
    let smallest = determinant / (0.5 * (trace + (trace * trace - 4.0 * determinant).sqrt()));
    let bounds = lake.read("low-rank-dummy/distances").floats("bound");
    let omitted = lake.read("low-rank-dummy/spectrum").floats("value")[3];
    for (row, bound) in rows.iter().zip(&bounds) {
        if row.0 == "truth" && row.1 == 3 {
            let expected = 2.0 * (2.0 / smallest.sqrt()).powi(row.2 as i32 + 3) * omitted;
            assert!((bound / expected - 1.0).abs() < 1e-6, "{bound} {expected}");
        }
    }
    let claims = lake.read("low-rank-dummy/certificates");
    let (names, holds) = (claims.texts("certificate"), claims.texts("holds"));
    let unmet = (0..claims.len()).filter(|&at| holds[at] != "true");
    let unmet: Vec<&str> = unmet.map(|at| names[at].as_str()).collect();
    assert_eq!(unmet, ["separated_states"]);
    assert!(names.iter().any(|name| name == "theorem_1"));
}

// 2²⁰ sequences are more than a million, so longer ones are drawn.
#[test]
fn long_sequences_are_drawn() {
    let lake = Lake::new();
    let text = EXAMPLE_8.swap("rank = [1, 2]", "rank = 1");
    lake.file("p.toml", &text);
    lake.runs(&["fit.truth.length=21", "fit.truth.samples=500"]);
    let mut rows = distances(&lake);
    rows.retain(|row| row.0 == "plain");
    assert_eq!(rows.len(), 21);
    for (_, _, length, [distance, error, samples]) in &rows {
        if *length < 20 {
            assert!((distance - 1.0).abs() < 1e-12 && *samples == 0.0);
        } else {
            assert_eq!(*samples, 500.0);
            assert!(*error > 0.0 && *error < 0.1, "{error}");
            assert!((distance - 1.0).abs() < 4.0 * error, "{distance} {error}");
        }
    }
    // The same bytes again.
    let bytes = lake.tables_of("out");
    lake.runs(&[
        "fit.truth.length=21",
        "fit.truth.samples=500",
        "job.output=other",
    ]);
    assert!(lake.tables_of("other") == bytes && bytes.contains_key("distances"));
    // Without a length there is no table.
    lake.runs(&["fit.truth.length=0", "job.output=none"]);
    assert!(!lake.path("none/distances").exists());
    assert!(lake.path("none/certificates").exists());
}
