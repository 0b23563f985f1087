//! Runs over points, symbols and observations at other sites: as tasks, and on executors.

use crate::cli::integers;
use crate::cluster_runs::WatchedRun;
use crate::inside::{assert_tasks_agree, take_tables};
use crate::lake::{Lake, Swap, floats, texts, texts_or_null};
use crate::machines::Machines;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Filters of trajectories with gaps and missing observations, with supervision of single steps.
const FILTERS: &str = r#"
[sequences]
sql = "SELECT * FROM walks WHERE t % 23 <> 22"
trajectory = "id"
time = "t"
interval = 1
state = ["x"]
observation = ["a", "b"]
split = "split"
partition_by = ["part"]

[[fit]]
name = "kf"
method = "kalman"

[[fit]]
name = "exact"
method = "kernel_bayes"
rule = "kregbayes"
supervision = { sql = "SELECT id, t, x, a, b FROM walks WHERE t % 10 = 3 AND a IS NOT NULL" }
bandwidth = "median"
lambda = 1e-3

[[fit]]
name = "tensor"
method = "kernel_bayes"
rule = "kbr"
bandwidth = { state = 1.0, observation = 1.0 }
lambda = 1e-3
exact = 20
rank_state = 8
rank_observation = 12
"#;

/// Given systems with states of different lengths, and no row with a state.
const MEASURED: &str = r#"
[sequences]
sql = "SELECT * FROM walks WHERE t % 23 <> 22"
trajectory = "id"
time = "t"
interval = 1
observation = ["a", "b"]
partition_by = ["part"]

[[fit]]
name = "one"
method = "kalman"
state = ["x"]
F = [[0.9]]
H = [[1], [0.5]]
Q = [[0.3]]
R = [[0.1, 0.02], [0.02, 0.5]]
x0 = [0]
P0 = [[1]]

[[fit]]
name = "two"
method = "ukf"
f = ["0.9 * x0 + 0.1 * sin(x1)", "0.8 * x1"]
h = ["x0", "power(x0, 2) + x1"]
Q = [[0.3, 0], [0, 0.1]]
R = [[0.1, 0], [0, 0.1]]
x0 = [0, 0]
P0 = [[1, 0], [0, 1]]
"#;

/// Posteriors of independent rows.
const STATIC: &str = r#"
[sequences]
sql = "SELECT * FROM walks WHERE t < 12"
id = ["id", "t"]
state = ["x"]
observation = ["a", "b"]
split = "split"

[output]
posteriors = true

[[fit]]
name = "bayes"
method = "kernel_bayes"
bandwidth = "median"
lambda = 1e-3
"#;

const PAIRS: &str = r#"
[transitions]
sql = "SELECT * FROM walks WHERE t % 50 <> 49"
trajectory = "id"
time = "t"
lag = [1, 3]
coordinates = ["x", "y"]
scale = "standard"
partition_by = ["part"]

[[fit]]
name = "states"
method = "state_embedding"
rank = 3
features = 60
bandwidth = "held-out"
clusters = 2

[[fit]]
name = "near"
method = "state_embedding"
rank = [2, 3]
features = 60
bandwidth = 1.0
"#;

const MAPS: &str = r#"
[points]
sql = "SELECT * FROM walks WHERE t < 40"
id = ["id", "t"]
coordinates = ["x", "y"]
partition_by = ["part"]

[[fit]]
name = "map"
method = "diffusion_map"
dimension = 2
neighbours = 16

[[fit]]
name = "sketch"
method = "heat_sketch"
dimension = 3
power = [2, 4]
landmarks = 60
"#;

/// Windows of three rows of a chain, with gaps, and with resamples and folds of trajectories. The
/// given model shows pages of another state, too.
const SYMBOLS: &str = r#"
[sequences]
sql = "SELECT * FROM walks WHERE t % 50 <> 49"
trajectory = "id"
time = "t"
interval = 1
symbol = "s"
partition_by = ["part"]

[[fit]]
name = "auto"
method = "spectral_hmm"
rank = "auto"
ranks = [1, 2, 3]

[[fit]]
name = "plain"
method = "spectral_hmm"
rank = 2
scaling = "none"

[[fit]]
name = "truth"
method = "given_hmm"
length = 3
transition = { sql = """
WITH states AS (SELECT value AS state FROM generate_series(0, 5))
SELECT NULL AS state, state AS next, 1.0 / 6 AS probability FROM states
UNION ALL SELECT state, state AS next, 1.0 / 3 FROM states
UNION ALL SELECT state, (state + 1) % 6, 2.0 / 3 FROM states
""" }
emission = { sql = """
SELECT state, s, CASE WHEN s = concat('page ', state) THEN 0.9 ELSE 0.02 END AS probability
FROM (SELECT DISTINCT s FROM walks), (SELECT value AS state FROM generate_series(0, 5))
""" }

[validation]
bootstrap = 3
folds = 2
"#;

/// A pipeline with these sections, whose input and output are in `folder`.
fn pipeline(folder: &str, sections: &str) -> String {
    format!(
        "[job]\nname = \"walks\"\noutput = \"{folder}out\"\n[tables.walks]\npath = \"{folder}walks/\"\n{sections}"
    )
}

/// A row of a walk.
struct Row {
    id: i64,
    t: i64,
    x: f64,
    y: f64,
    a: Option<f64>,
    b: f64,
    state: i32,
}

/// Rows of walks in three parts, shuffled over five files.
fn walks(lake: &Lake, steps: i64) {
    let [mut random, mut noise] = [5, 6].map(Pcg64::seed_from_u64);
    let mut rows = Vec::new();
    for id in 0..24 {
        let (mut x, mut y, mut state) = (0.0f64, 0.0f64, 0);
        for t in 0..steps {
            let a = (t % 7 != 5).then(|| x + noise.random_range(-0.5..0.5));
            let b = x * x + noise.random_range(-0.5..0.5);
            state = (state + noise.random_range(1..4) / 2) % 6;
            rows.push(Row {
                id,
                t,
                x,
                y,
                a,
                b,
                state,
            });
            x = 0.9 * x + random.random_range(-1.0..1.0);
            y = 0.5 * y + random.random_range(-1.0..1.0);
        }
    }
    rows.shuffle(&mut random);
    for (file, rows) in rows.chunks(rows.len().div_ceil(5)).enumerate() {
        let splits = rows.iter().map(|row| match row.id {
            0..18 => Some("train"),
            18..22 => Some("test"),
            _ => None,
        });
        let columns = vec![
            ("part", integers(rows.iter().map(|row| row.id % 3))),
            ("id", integers(rows.iter().map(|row| row.id))),
            ("t", integers(rows.iter().map(|row| row.t))),
            ("x", floats(rows.iter().map(|row| row.x))),
            ("y", floats(rows.iter().map(|row| row.y))),
            ("a", floats(rows.iter().map(|row| row.a))),
            ("b", floats(rows.iter().map(|row| row.b))),
            (
                "s",
                texts(rows.iter().map(|row| format!("page {}", row.state))),
            ),
            ("split", texts_or_null(splits)),
        ];
        lake.table(&format!("walks/{file}.parquet"), columns);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_give_the_same_bytes() {
    let all = format!("{FILTERS}\n[output]\nrows = \"all\"\nerrors = true\n");
    let gaps = MEASURED.swap("interval = 1", "interval = 1\nmax_gap = 2");
    let filters = FILTERS.swap("partition_by = [\"part\"]", "");
    let filters = format!("{filters}\n[output]\nerrors = true\n");
    // Only one of both fits has all points.
    let landmarks = MAPS.swap("neighbours = 16", "landmarks = 40");
    let symbols = SYMBOLS.swap("partition_by = [\"part\"]", "");
    let long = symbols.replace("rank = 2", "rank = 2\nblock = 2");
    let long = long.replace("ranks = [1, 2, 3]", "ranks = [1, 2, 3]\nblock = 2");
    let of_filters = &["fit", "deal", "rows"][..];
    let of_symbols = &["deal", "sum", "add", "count", "project"];
    for (steps, table, cases) in [
        (
            60,
            "estimates",
            &[
                (FILTERS, of_filters),
                (&all, of_filters),
                (&filters, of_filters),
                (STATIC, of_filters),
                (MEASURED, of_filters),
                (&gaps, of_filters),
            ][..],
        ),
        (
            300,
            "points",
            &[
                (
                    PAIRS,
                    &[
                        "deal", "survey", "sum", "sum", "sum", "sum", "sum", "sum", "rows",
                    ],
                ),
                (MAPS, &["deal", "survey", "fit"]),
                (&landmarks, &["deal", "survey", "fit", "rows"]),
            ],
        ),
        (
            120,
            "triples",
            &[
                (SYMBOLS, &["deal", "sum", "count", "project"]),
                (&symbols, of_symbols),
                (&long, of_symbols),
            ],
        ),
    ] {
        let lake = Lake::new();
        walks(&lake, steps);
        for (sections, rounds) in cases {
            println!("{sections}");
            let text = pipeline("FOLDER/", sections);
            let tables = assert_tasks_agree(&lake, &text, rounds).await;
            assert!(!tables[table].is_empty());
            if sections.contains("given_hmm") {
                assert!(!tables["distances"].is_empty());
            }
        }
    }
}

/// The death of an executor at the begin of some stages changes no byte.
#[test]
fn runs_on_executors_survive_the_death_of_one() {
    for (steps, sections, deaths, seen) in [
        (60, FILTERS, ["fit", "rows"], "rows"),
        (600, PAIRS, ["sum", "fit"], "deal"),
        (600, MAPS, ["sum", "fit"], "deal"),
        (120, SYMBOLS, ["sum", "project"], "project"),
    ] {
        let mut machines = Machines::start(2);
        walks(&machines.lake, steps);
        machines.lake.runs_text(&pipeline("", sections));
        let expected = take_tables(&machines.lake);
        let mut run = WatchedRun::start(&machines);
        let mut stages = Vec::new();
        while let Some(stage) = run.next() {
            if deaths.contains(&stage.as_str()) {
                drop(machines.executors.remove(0));
                machines.executors.push(machines.executor());
            }
            stages.push(stage);
        }
        run.end().succeeds();
        assert!(take_tables(&machines.lake) == expected, "{stages:?}");
        assert!(stages.contains(&seen.to_string()), "{stages:?}");
    }
}

// 3·n²·8 bytes of a full kernel of 6,000 points are 824 MB.
#[test]
fn a_kernel_that_does_not_fit_into_memory_is_refused_before_it_is_computed() {
    let lake = Lake::new();
    walks(&lake, 750);
    let text = pipeline("", MAPS).replace("WHERE t < 40", "WHERE part = 0");
    lake.file("p.toml", &text);
    let bounded = ["run", "p.toml", "--threads", "2", "--memory", "300MB"];
    let full = ["--set", "fit.map.neighbours=\"all\""];
    let what = "fit `map` needs 1036MB for 6000 points of 2 coordinates and 2 threads; --memory is \
                300MB: give at least 1036MB, or set `landmarks` or fewer `neighbours`";
    lake.gyre(&[&bounded[..], &full].concat()).fails(2, what);
    lake.gyre(&bounded).succeeds();
    let plan = lake.gyre(&[&["plan", "p.toml", "--threads", "2"], &full[..]].concat());
    plan.succeeds().says("  memory at most ");
    let json = lake.line("plan p.toml --json").succeeds().json();
    assert_eq!(json["memory"]["rows"], 6000);
    assert_eq!(json["fit"][1]["method"], "heat_sketch");
}
