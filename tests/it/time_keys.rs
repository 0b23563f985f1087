//! The keys of time: gaps that end a trajectory or are predicted through, and several rows at one
//! time. Counts are compared with window functions and sorts in SQL, filters with rows that have no
//! observation and with sums over all symbols.

use crate::cli::integers;
use crate::counting::counts_by_gyre;
use crate::inside::{InProcess, Schedule, run_with};
use crate::lake::{Lake, Rows, Swap, cases, floats, integers_or_null, texts_or_null};
use crate::symbols;
use arrow::array::ArrayRef;
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use gyre::run::workers::{SPLIT, Workers};
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;

/// A row: trajectory, time, second column of time, state.
type Row = (i64, Option<i64>, i64, Option<i64>);

/// Trajectories with gaps, several rows at many times, and equal rows.
fn rows(seed: u64, n: usize) -> Vec<Row> {
    let mut random = Pcg64::seed_from_u64(seed);
    let (mut id, mut t) = (0, 0);
    let mut all = Vec::new();
    while all.len() < n {
        if random.random_range(0..60) == 0 {
            (id, t) = (id + 1, random.random_range(-5..5));
        }
        t += [1, 1, 1, 2, 3, 7][random.random_range(0..6)];
        let mut orders = [0, 1, 2, 3];
        orders.shuffle(&mut random);
        for &order in &orders[..random.random_range(1..4)] {
            let state = (random.random_range(0..12) > 0).then(|| random.random_range(0..7));
            let time = (random.random_range(0..50) > 0).then_some(t);
            let times = if random.random_range(0..9) == 0 { 2 } else { 1 };
            all.extend(std::iter::repeat_n((id, time, order, state), times));
        }
    }
    all
}

fn columns(rows: &[Row]) -> Vec<(&'static str, ArrayRef)> {
    vec![
        ("g", integers(rows.iter().map(|r| r.0 % 3))),
        ("id", integers(rows.iter().map(|r| r.0))),
        ("t", integers_or_null(rows.iter().map(|r| r.1))),
        ("n", integers(rows.iter().map(|r| r.2))),
        ("state", integers_or_null(rows.iter().map(|r| r.3))),
    ]
}

const PIPELINE: &str = r#"
job = { name = "times", output = "out" }
tables.rows.path = "rows/"
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = ["t", "n"]
duplicates = "first"
max_gap = 3
state = "state"
lag = [1, 3]
partition_by = "g"
"#;

/// The rows that count, each with the number of its part of the trajectory.
const PARTS: &str = "
WITH own AS (SELECT DISTINCT g, id, t, n, state FROM rows WHERE t IS NOT NULL),
     ranked AS (SELECT *, row_number() OVER (PARTITION BY id, t ORDER BY n ORDER) AS r FROM own),
     steps AS (SELECT *, t - lag(t) OVER (PARTITION BY id ORDER BY t) AS gap
               FROM ranked WHERE r = 1),
     parts AS (SELECT *, sum(CASE WHEN gap > 3 THEN 1 ELSE 0 END)
                         OVER (PARTITION BY id ORDER BY t) AS part FROM steps)
";

/// The rows of a query over the files in `rows/`, as text.
fn query(lake: &Lake, sql: &str) -> Vec<String> {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let batches = runtime.block_on(async {
        let context = SessionContext::new();
        let path = lake.path("rows/").display().to_string() + "/";
        let options = ParquetReadOptions::default();
        let registered = context.register_parquet("rows", &path, options).await;
        registered.expect("the table");
        let frame = context.sql(sql).await.expect("a plan");
        frame.collect().await.expect("rows")
    });
    let rows = batches.iter().flat_map(|batch| {
        let row = |at| gyre::read::rows::states::describe(batch.columns(), at);
        (0..batch.num_rows()).map(row)
    });
    rows.collect()
}

/// Writes rows to `n` files.
fn files(lake: &Lake, rows: &[Row], n: usize) {
    std::fs::remove_dir_all(lake.path("rows")).ok();
    for (at, piece) in rows.chunks(rows.len().div_ceil(n)).enumerate() {
        lake.table(&format!("rows/{at:03}.parquet"), columns(piece));
    }
}

/// The rows that a run has read and those that it has left out, by reason.
fn left_out(lake: &Lake) -> (u64, BTreeMap<String, u64>) {
    let record = lake.record();
    let reasons = record["rows_dropped"].as_object().expect("an object");
    let reasons = reasons.iter().filter(|(reason, _)| *reason != "null state");
    let reasons = reasons.map(|(reason, n)| (reason.clone(), n.as_u64().expect("a number")));
    let rows = record["rows_read"].as_u64().expect("a number");
    (rows, reasons.collect())
}

#[test]
fn gaps_and_ties_agree_with_window_functions() {
    for (duplicates, order) in [("first", "ASC"), ("last", "DESC")] {
        let text = PIPELINE.swap("\"first\"", &format!("\"{duplicates}\""));
        let lake = Lake::new();
        lake.file("p.toml", &text);
        let own = rows(7, 5000);
        let mut shuffled = own.clone();
        shuffled.shuffle(&mut Pcg64::seed_from_u64(1));
        let mut sorted = own.clone();
        sorted.sort_by_key(|row| (row.0 % 3, row.0, row.1, row.2));
        let mut tables = Vec::new();
        for (rows, n, threads) in [
            (&own, 3, "2"),
            (&shuffled, 5, "3"),
            (&sorted, 1, "1"),
            (&sorted, 40, "4"),
        ] {
            files(&lake, rows, n);
            std::fs::remove_dir_all(lake.path("out")).ok();
            lake.gyre(&["run", "p.toml", "--threads", threads])
                .succeeds();
            tables.push((lake.tables_of("out"), left_out(&lake)));
        }
        assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
        let parts = PARTS.swap("ORDER) AS", &format!("{order}) AS"));
        let expected = query(
            &lake,
            &format!(
                "{parts} SELECT a.g, l.lag, a.state AS s, b.state AS e, count(*) AS n
                 FROM (VALUES (1), (3)) AS l(lag), parts a JOIN parts b
                   ON a.id = b.id AND a.part = b.part
                 WHERE b.t = a.t + l.lag AND a.state IS NOT NULL AND b.state IS NOT NULL
                 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
            ),
        );
        assert!(expected.len() > 100);
        assert_eq!(counts_by_gyre(&lake), expected);
        // Rows kept and rows left out are all rows.
        let kept = query(&lake, &format!("{parts} SELECT count(*) FROM parts"));
        let gaps = query(
            &lake,
            &format!("{parts} SELECT count(*) FROM parts WHERE gap > 3"),
        );
        assert_eq!(gaps, [lake.record()["gaps"].to_string()]);
        let (all, left_out) = left_out(&lake);
        assert_eq!(all, own.len() as u64);
        assert_eq!(kept, [(all - left_out.values().sum::<u64>()).to_string()]);
        let reasons: Vec<&str> = left_out.keys().map(String::as_str).collect();
        let expected = [
            "equal to another row",
            "null time",
            "same time as another row",
        ];
        assert_eq!(reasons, expected);
    }
}

#[test]
fn rows_of_one_time_follow_each_other_in_the_order_of_the_second_column() {
    let lake = Lake::new();
    let text = PIPELINE
        .swap("duplicates = \"first\"\nmax_gap = 3\n", "")
        .swap("lag = [1, 3]", "lag = \"2 steps\"");
    lake.file("p.toml", &text);
    let mut own = rows(8, 3000);
    own.sort();
    own.dedup_by_key(|row| (row.0, row.1, row.2));
    let mut tables = Vec::new();
    for (n, is_shuffled) in [(1, false), (9, false), (4, true)] {
        if is_shuffled {
            own.shuffle(&mut Pcg64::seed_from_u64(2));
        }
        files(&lake, &own, n);
        std::fs::remove_dir_all(lake.path("out")).ok();
        lake.runs(&[]);
        tables.push(lake.tables_of("out"));
    }
    assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
    let expected = query(
        &lake,
        "WITH pairs AS (SELECT g, state AS s,
                               lead(state, 2) OVER (PARTITION BY id ORDER BY t, n) AS e
                        FROM rows WHERE t IS NOT NULL)
         SELECT g, '2 steps' AS lag, s, e, count(*) AS n FROM pairs
         WHERE s IS NOT NULL AND e IS NOT NULL GROUP BY 1, 3, 4 ORDER BY 1, 3, 4",
    );
    assert!(expected.len() > 50);
    assert_eq!(counts_by_gyre(&lake), expected);
}

#[test]
fn a_gap_ends_a_sequence_as_an_interval_does() {
    let lake = Lake::new();
    symbols::table(&lake, "visits/a.parquet", &symbols::visits(12, 60, 4));
    lake.file("p.toml", symbols::PIPELINE).runs(&[]);
    let text = symbols::PIPELINE
        .swap("interval = 1", "max_gap = 1")
        .swap("output = \"out\"", "output = \"gaps\"");
    lake.runs_text(&text);
    assert!(lake.tables_of("out") == lake.tables_of("gaps"));
    // Gaps up to the largest one end no sequence.
    let without = symbols::PIPELINE.swap("interval = 1\n", "");
    lake.runs_text(&without.swap("output = \"out\"", "output = \"without\""));
    lake.runs_text(
        &text
            .swap("max_gap = 1", "max_gap = 60")
            .swap("\"gaps\"", "\"long\""),
    );
    assert!(lake.tables_of("without") == lake.tables_of("long"));
    assert!(lake.tables_of("without") != lake.tables_of("gaps"));
}

#[test]
fn rows_that_nothing_orders_are_an_error() {
    let lake = Lake::new();
    files(
        &lake,
        &[(1, Some(4), 2, Some(0)), (1, Some(4), 2, Some(1))],
        1,
    );
    lake.file("p.toml", PIPELINE);
    let said =
        "trajectory (1, 1) has two rows at t = 4 and n = 2, so that `time` does not order them";
    lake.run(&[]).fails(1, said);
    let without = ["transitions.time=t", "transitions.duplicates=error"];
    let said = "trajectory (1, 1) has two rows at t = 4; keep one row for each trajectory and time";
    lake.run(&without).fails(1, said);
    // A lag that is a time needs one row for each.
    lake.run(&["transitions.duplicates=error"]).fails(1, said);
    // No gap is short enough.
    files(
        &lake,
        &[(1, Some(4), 2, Some(0)), (1, Some(9), 2, Some(1))],
        1,
    );
    let said = "no transition was found in 2 rows; check the lag against the times of a trajectory, and `max_gap` = 3 against";
    lake.run(&[]).fails(1, said);
}

#[test]
fn keys_that_do_not_fit_each_other_are_refused() {
    let lake = Lake::new();
    files(&lake, &rows(3, 50), 1);
    lake.file("p.toml", PIPELINE);
    for [set, message] in cases(
        r#"
transitions.time=["t", "n", "g"] | `transitions.time` names 3 columns
transitions.time=["t", "t"] | names the column `t` twice
transitions.time=["t", "id"] | the column `id` cannot be both
transitions.time=t | `transitions.duplicates` needs a second column of `time`
transitions.time=["t", "m"] | `transitions.time` names the column `m`
transitions.duplicates=any | any
transitions.max_gap=0 | must be above zero, not 0
transitions.max_gap=-3 | must be above zero, not -3
transitions.max_gap=3 steps | a whole number or a duration, not steps
transitions.max_gap=1h | max_gap 1h is a duration, but `t` is Int64
transitions.tolerance=1 | `transitions.tolerance` is 1, which is half of `transitions.lag` = 1 or more
transitions.tolerance=0 | must be above zero, not 0
transitions.tolerance=2 steps | a whole number or a duration, not steps
"#,
    ) {
        lake.call("plan", &[&set]).fails(2, &message);
    }
    let effective = ["transitions.window=effective", "transitions.interval=4"];
    let ran = lake.call("plan", &[&effective[..], &["transitions.lag=4"]].concat());
    ran.fails(2, "is 3, which is less than `transitions.interval` = 4");
    let lags = ["transitions.tolerance=1", "transitions.lag=3 steps"];
    let said = "is for times, and there is no `transitions.lag` that is a time";
    lake.call("plan", &lags).fails(2, said);
    for window in ["strided", "effective"] {
        let window = format!("transitions.window={window}");
        let ran = lake.call(
            "plan",
            &["transitions.tolerance=1", "transitions.lag=4", &window],
        );
        ran.fails(
            2,
            &window.swap("transitions.window=", "cannot be used with `window = \""),
        );
    }
    let plan = lake.call("plan", &[]).succeeds();
    plan.says("in the order of t, n: states state; lag 1, 3 (sliding)");
    plan.says("; the first row of a time counts; a gap above 3 ends a trajectory");
}

/// Rows of several trajectories about every ten units of time, some of which are missing.
fn jittered(seed: u64, trajectories: i64, steps: i64, most: i64) -> Vec<Row> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut all = Vec::new();
    for id in 0..trajectories {
        for step in 0..steps {
            let t = 10 * step + random.random_range(-most..=most);
            let state = (random.random_range(0..12) > 0).then(|| random.random_range(0..5));
            if random.random_range(0..15) > 0 {
                all.push((id, Some(t), 0, state));
            }
        }
    }
    all
}

/// The rows within 4 of the time of a lag, the nearest one of each row with r = 1.
const NEAREST: &str = "WITH near AS (
    SELECT a.g, l.lag, a.state AS s, b.state AS e, abs(b.t - a.t - l.lag) AS away,
           row_number() OVER (PARTITION BY l.lag, a.id, a.t
                              ORDER BY abs(b.t - a.t - l.lag), b.t) AS r
    FROM (VALUES (10), (27)) AS l(lag), rows a JOIN rows b ON a.id = b.id
    WHERE abs(b.t - a.t - l.lag) <= 4)";

#[test]
fn a_tolerance_finds_the_rows_of_an_as_of_join() {
    let lake = Lake::new();
    let text = PIPELINE
        .swap(
            "[\"t\", \"n\"]\nduplicates = \"first\"\nmax_gap = 3",
            "\"t\"\ntolerance = 4",
        )
        .swap("lag = [1, 3]", "lag = [10, 27]");
    lake.file("p.toml", &text);
    let mut own = jittered(5, 9, 300, 4);
    own.sort_by_key(|row| (row.0 % 3, row.0, row.1));
    let mut shuffled = own.clone();
    shuffled.shuffle(&mut Pcg64::seed_from_u64(1));
    let mut tables = Vec::new();
    for (rows, n, threads) in [
        (&own, 1, "1"),
        (&own, 7, "3"),
        (&own, 400, "4"),
        (&shuffled, 5, "2"),
    ] {
        files(&lake, rows, n);
        std::fs::remove_dir_all(lake.path("out")).ok();
        lake.gyre(&["run", "p.toml", "--threads", threads])
            .succeeds();
        tables.push(lake.tables_of("out"));
    }
    assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
    let expected = query(
        &lake,
        &format!(
            "{NEAREST} SELECT g, lag, s, e, count(*) AS n FROM near
             WHERE r = 1 AND s IS NOT NULL AND e IS NOT NULL
             GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4"
        ),
    );
    assert!(expected.len() > 100);
    assert_eq!(counts_by_gyre(&lake), expected);
    let near = query(
        &lake,
        &format!(
            "{NEAREST} SELECT count(*) FROM near WHERE r = 1 AND s IS NOT NULL AND e IS NOT NULL AND away > 0"
        ),
    );
    assert_eq!(near, [lake.record()["near_pairs"].to_string()]);
}

#[test]
fn times_that_nearly_fit_are_a_warning() {
    let lake = Lake::new();
    let text = PIPELINE
        .swap(
            "[\"t\", \"n\"]\nduplicates = \"first\"\nmax_gap = 3",
            "\"t\"",
        )
        .swap("lag = [1, 3]", "lag = 60")
        .swap(
            "\"SELECT * FROM rows\"",
            "\"SELECT g, id, 10 * t AS t, n, state FROM rows\"",
        );
    lake.file("p.toml", &text);
    files(&lake, &jittered(6, 6, 200, 0), 2);
    // Every tenth time, exactly.
    let ran = lake.run(&["transitions.lag=600"]).succeeds();
    assert!(!ran.out.contains("warning"), "{}", ran.out);
    // Most times differ by up to two of ten.
    files(&lake, &jittered(6, 6, 200, 1), 2);
    let ran = lake.run(&["transitions.lag=600"]).succeeds();
    ran.says("  warning: ")
        .says("find one near that time; `tolerance = 20` takes the nearest row");
    let ran = lake
        .run(&["transitions.lag=600", "transitions.tolerance=20"])
        .succeeds();
    assert!(!ran.out.contains("warning"), "{}", ran.out);
}

/// Keys of the rows and of a fit, for every kind of rows with time.
const KINDS: &str = r#"
[transitions]\nlag = 1000\nstate = "state" | \s
[transitions]\nlag = 1000\nstate = "state"\nweight = "w" | \s
[transitions]\nlag = 1000\nstate = "state"\nwindow = "strided" | \s
[transitions]\nlag = 2000\nstate = "state"\nwindow = "effective"\ninterval = 1000 | \s
[transitions]\nlag = 1000\ncoordinates = ["x", "z"] | state_embedding"\nrank = 2\nfeatures = 20\nbandwidth = 1.0
[sequences]\ninterval = 1000\nsymbol = "symbol" | spectral_hmm"\nrank = 2
[sequences]\ninterval = 1000\nstate = ["x"]\nobservation = ["z"] | kalman"
"#;

/// A pipeline whose rows are a thousand units of time apart. Of eight rows in turn, three are in
/// time, and the others are late by 3, 4 … 7 times `by`.
fn late(rows: &str, fit: &str, by: u32) -> String {
    let fit = match fit.trim() {
        "" => String::new(),
        fit => format!("[[fit]]\nname = \"own\"\nmethod = \"{fit}"),
    };
    format!(
        "job = {{ name = \"late\", output = \"FOLDER/out\" }}\ntables.rows.path = \"FOLDER/rows/\"\n{rows}
         trajectory = \"id\"\ntime = \"t\"\nsql = \"\"\"
         SELECT id, state, (t / 10 + id) % 3 AS symbol, 1.0 + id AS w,
                100 * t + CASE WHEN t / 10 % 8 < 3 THEN 0 ELSE {by} * (t / 10 % 8) END AS t,
                coalesce(state, 2) + 0.1 * (t / 10 % 7) AS x,
                coalesce(state, 2) - 0.2 * (t / 10 % 5) AS z FROM rows\"\"\"\n{fit}\n"
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_kinds_of_rows_warn_of_times_that_nearly_fit() {
    let lake = Lake::new();
    files(&lake, &jittered(6, 3, 150, 0), 2);
    for [rows, fit] in cases(KINDS) {
        let run = async |text: &str, workers| {
            let (_, record) = run_with(&lake, text, workers).await.expect("a result");
            record["warnings"].to_string()
        };
        let near = late(&rows, &fit, 5);
        let said = run(&near, Workers::Local).await;
        // The greatest distance is that of the last row of eight and the first row of the next.
        for part in ["near that time; ", "`tolerance = 35`"] {
            assert!(said.contains(part), "{rows}: {said}");
        }
        // On other machines, the same is said.
        let nodes = InProcess::new(Schedule::InOrder);
        let workers = Workers::Remote {
            nodes,
            split: SPLIT,
        };
        assert_eq!(run(&near, workers).await, said, "{rows}");
        // Times that fit, those that are far, and those that a tolerance takes.
        let mut others = vec![late(&rows, &fit, 0), late(&rows, &fit, 100)];
        if !rows.contains("window") {
            others.push(near.swap("time = \"t\"", "time = \"t\"\ntolerance = 35"));
        }
        for text in others {
            let said = run(&text, Workers::Local).await;
            assert!(!said.contains("near that time"), "{text}: {said}");
        }
    }
}

#[test]
fn assigned_rows_that_nearly_fit_are_a_warning() {
    let lake = Lake::new();
    files(&lake, &jittered(6, 3, 150, 0), 2);
    for [rows, fit] in cases(KINDS) {
        if !rows.contains("[sequences]") {
            continue;
        }
        let text = |by| late(&rows, &fit, by).swap("FOLDER/", "");
        lake.file("p.toml", &text(0)).runs(&[]);
        let ran = lake.assign(&[]).succeeds();
        assert!(!ran.out.contains("near that time"), "{}", ran.out);
        lake.file("p.toml", &text(5));
        let ran = lake.assign(&[]).succeeds();
        ran.says("followed by a row exactly 1000 later, but ")
            .says("by one near that time; `tolerance = 35` takes it");
        for folder in ["out", "new"] {
            std::fs::remove_dir_all(lake.path(folder)).expect("a folder");
        }
    }
}

#[test]
fn a_tolerance_lets_rows_follow_each_other() {
    let lake = Lake::new();
    let visits = symbols::visits(12, 60, 4);
    symbols::table(&lake, "visits/a.parquet", &visits);
    // Three times the time, so that rows are 3 apart; then moved by up to one.
    let text = symbols::PIPELINE.swap("SELECT *", "SELECT id, 3 * t AS t, symbol, split");
    lake.runs_text(&text.swap("interval = 1", "interval = 3"));
    let moved = text
        .swap("3 * t AS t", "3 * t + t % 2 AS t")
        .swap("interval = 1", "interval = 3\ntolerance = 1")
        .swap("output = \"out\"", "output = \"near\"");
    lake.runs_text(&moved);
    let read = |output: &str| lake.tables_of(output).remove("triples").expect("a table");
    assert!(read("out") == read("near"));
    assert!(lake.tables_of("out")["operators"] == lake.tables_of("near")["operators"]);
    let half = lake.run(&["sequences.tolerance=2"]);
    half.fails(
        2,
        "`sequences.tolerance` is 2, which is half of `sequences.interval` = 3 or more",
    );
    let without = moved.swap("interval = 3\n", "");
    lake.file("p.toml", &without);
    let said = "is for times, and there is no `sequences.interval` that is a time";
    lake.run(&[]).fails(2, said);
}

#[test]
fn a_gap_that_leaves_a_partition_without_pairs_is_a_warning() {
    let lake = Lake::new();
    let close = (0..20).map(|t| (0, Some(t), 0, Some(t % 2)));
    let far = (0..20).map(|t| (1, Some(10 * t), 0, Some(t % 2)));
    files(&lake, &close.chain(far).collect::<Vec<_>>(), 1);
    let ran = lake.file("p.toml", PIPELINE).runs(&["transitions.lag=1"]);
    assert!(!ran.out.contains("warning"), "{}", ran.out);
    let ran = lake.runs(&["transitions.lag=1 step"]);
    ran.says("  warning: 1 model without a transition: `max_gap` = 3 may be less than");
    let ran = lake.runs(&["transitions.lag=1 step", "transitions.max_gap=10"]);
    assert!(!ran.out.contains("without a transition"), "{}", ran.out);
}

#[test]
fn gaps_are_counted_for_all_kinds_of_rows() {
    let lake = Lake::new();
    // Gaps of 5 in the first trajectory and of 3 and 9 in the second one.
    let times = [vec![0, 1, 2, 7, 8, 9, 10], vec![0, 1, 4, 5, 14, 15, 16, 17]];
    let rows = times.iter().enumerate().flat_map(|(id, times)| {
        let row = move |t: &i64| (id as i64, *t, t % 2, 0.1 * (t % 5) as f64);
        times.iter().map(row).collect::<Vec<_>>()
    });
    let rows: Vec<(i64, i64, i64, f64)> = rows.collect();
    let numbers = floats(rows.iter().map(|row| row.3));
    let columns = vec![
        ("id", integers(rows.iter().map(|row| row.0))),
        ("t", integers(rows.iter().map(|row| row.1))),
        ("s", integers(rows.iter().map(|row| row.2))),
        ("x", numbers),
    ];
    lake.table("rows/a.parquet", columns);
    let head = "job = { name = \"kinds\", output = \"out\" }\ntables.rows.path = \"rows/\"\n";
    let keys = "sql = \"SELECT * FROM rows\"\ntrajectory = \"id\"\ntime = \"t\"\nmax_gap = 4\n";
    let filter =
        "method = \"kalman\"\nF = [[1]]\nH = [[1]]\nQ = [[1]]\nR = [[1]]\nx0 = [0]\nP0 = [[1]]";
    for (kind, evidence, fit) in [
        (
            "counts",
            "[transitions]\nstate = \"s\"\nlag = 1\n",
            "method = \"svd\"\nrank = 1",
        ),
        (
            "points",
            "[transitions]\ncoordinates = [\"x\"]\nlag = 1\n",
            "method = \"state_embedding\"\nbandwidth = 0.2\nrank = 1",
        ),
        (
            "symbols",
            "[sequences]\nsymbol = \"s\"\n",
            "method = \"spectral_hmm\"\nrank = 1",
        ),
        ("filters", "[sequences]\nobservation = [\"x\"]\n", filter),
    ] {
        let text = format!("{head}{evidence}{keys}[[fit]]\nname = \"one\"\n{fit}\n");
        let ran = lake.runs_text(&text);
        assert_eq!(lake.record()["gaps"], 2, "{kind}");
        ran.says("  2 gaps longer than `max_gap`");
    }
}

/// Filters of walks of which rows are missing. `KEPT` stands for the rows that are there.
const WALKS: &str = r#"
job = { name = "walks", output = "out" }
tables.walks.path = "walks.parquet"
[sequences]
sql = """
SELECT g, id, 2 * t + CASE WHEN t >= 20 THEN 1 ELSE 0 END AS t, y, x, split FROM walks
WHERE kept = 2"""
trajectory = "id"
time = "t"
interval = 2
max_gap = 8
state = "y"
observation = "x"
split = "split"
partition_by = "g"

[[fit]]
name = "kf"
method = "kalman"

[[fit]]
name = "ekf"
method = "ekf"
f = ["0.9 * y + 0.1 * sin(y)"]
h = ["y"]

[[fit]]
name = "kernel"
method = "kernel_bayes"
rule = "kbr"
bandwidth = { state = 1.0, observation = 1.0 }
lambda = 0.001

[output]
rows = "all"
"#;

/// Whether a step of a trajectory is there (2), missing in a gap that is bridged (1), or missing in
/// a longer one (0). Steps at which filters start again are there.
fn kept(id: i64, t: i64) -> i64 {
    match t {
        12..=15 if id % 2 == 0 => 0,
        0 | 16 | 20 => 2,
        _ if [3, 7, 8, 12, 13, 14].contains(&((t + 3 * id) % 17)) => 1,
        _ => 2,
    }
}

fn walks(lake: &Lake) {
    let mut random = Pcg64::seed_from_u64(4);
    let rows: Vec<(i64, i64)> = (0..6)
        .flat_map(|id| (0..32).map(move |t| (id, t)))
        .collect();
    let mut state = 0.0f64;
    let numbers: Vec<[f64; 2]> = rows
        .iter()
        .map(|(_, t)| {
            state = if *t == 0 { 0.0 } else { 0.9 * state } + random.random_range(-1.0..1.0);
            [state, state + random.random_range(-0.5..0.5)]
        })
        .collect();
    let split = |id: i64| Some(if id < 2 { "train" } else { "test" });
    let columns = vec![
        ("g", integers(rows.iter().map(|row| row.0 % 2))),
        ("id", integers(rows.iter().map(|row| row.0))),
        ("t", integers(rows.iter().map(|row| row.1))),
        ("y", floats(numbers.iter().map(|of| of[0]))),
        ("x", floats(numbers.iter().map(|of| of[1]))),
        ("kept", integers(rows.iter().map(|row| kept(row.0, row.1)))),
        ("split", texts_or_null(rows.iter().map(|row| split(row.0)))),
    ];
    lake.table("walks.parquet", columns);
}

/// The bits of the numbers of each row, by trajectory and time.
fn bits(rows: &Rows) -> BTreeMap<(i64, i64), Vec<u64>> {
    let (ids, times) = (rows.integers("id"), rows.integers("t"));
    let mut all: Vec<Vec<u64>> = vec![Vec::new(); rows.len()];
    for fit in ["kf", "ekf", "kernel"] {
        for column in ["mean", "variance", "decoded"] {
            let lists = rows.lists(&format!("{fit}_{column}"));
            for (own, list) in all.iter_mut().zip(lists) {
                own.extend(list.iter().map(|x| x.to_bits()));
            }
        }
        let scores = rows.floats(&format!("{fit}_log_score"));
        for (own, score) in all.iter_mut().zip(scores) {
            own.push(score.to_bits());
        }
    }
    ids.into_iter().zip(times).zip(all).collect()
}

/// The sums of a number of all models of a record.
fn sum_of(record: &serde_json::Value, name: &str) -> u64 {
    let models = record["models"].as_array().expect("a list");
    let numbers = models.iter().map(|model| model[name].as_u64());
    numbers.map(|n| n.expect("a number")).sum()
}

#[test]
fn filters_go_on_through_gaps_as_through_rows_without_an_observation() {
    let lake = Lake::new();
    walks(&lake);
    let ran = lake.file("p.toml", WALKS).runs(&[]);
    let found = bits(&lake.read("estimates"));
    let record = lake.record();

    let steps = (0..6).flat_map(|id| (0..32).map(move |t| (id, t)));
    let of = |kind: i64| steps.clone().filter(move |(id, t)| kept(*id, *t) == kind);
    assert_eq!(found.len(), of(2).count());
    // A gap that is too long, or no multiple of the interval, is not predicted.
    let is_predicted = |(id, t): &(i64, i64)| {
        let rest = (*t..32).find(|t| kept(*id, *t) == 2);
        let is_long = |end: i64| id % 2 == 0 && end == 16;
        rest.is_some_and(|end| end != 20 && !is_long(end))
    };
    let predicted = of(1).filter(is_predicted).count() as u64;
    assert!(predicted > 20 && predicted < of(1).count() as u64);
    assert_eq!(sum_of(&record, "predicted_rows"), predicted);
    assert_eq!(sum_of(&record, "restarts"), 6 + 3);
    ran.says("without a row; began again");

    // The same rows with others between them that have neither a state nor an observation.
    let nulls = WALKS
        .swap(
            "y, x, split",
            "CASE WHEN kept = 2 THEN y END AS y, CASE WHEN kept = 2 THEN x END AS x, split",
        )
        .swap("kept = 2\"\"\"", "kept > 0\"\"\"")
        .swap("max_gap = 8\n", "")
        .swap("output = \"out\"", "output = \"nulls\"");
    lake.file("nulls.toml", &nulls);
    let ran = lake.gyre(&["run", "nulls.toml"]).succeeds();
    assert!(!ran.out.contains("without a row;"), "{}", ran.out);
    let all = bits(&lake.read_at("nulls/estimates"));
    assert_eq!(all.len(), of(2).count() + of(1).count());
    for (key, own) in &found {
        assert!(all[key] == *own, "{key:?}");
    }
    for column in ["test_mse", "mean_log_score"] {
        let of = |output: &str| lake.read_at(&format!("{output}/fits")).floats(column);
        assert_eq!(of("out"), of("nulls"), "{column}");
    }
    for column in ["kf_log_score", "kernel_mse"] {
        let of = |output: &str| {
            lake.read_at(&format!("{output}/trajectories"))
                .floats(column)
        };
        assert_eq!(of("out"), of("nulls"), "{column}");
    }

    // New rows have the same estimates.
    let ran = lake.assign(&[]).succeeds();
    ran.says("without a row; began again");
    let tables = lake.tables_of("new");
    assert!(tables["estimates"] == lake.tables_of("out")["estimates"]);
    let assigned = lake.records_of("new").remove(0);
    assert_eq!(sum_of(&assigned, "predicted_rows"), predicted);
    assert_eq!(sum_of(&assigned, "restarts"), 9);
}

#[test]
fn a_largest_gap_below_two_intervals_changes_no_byte() {
    let lake = Lake::new();
    walks(&lake);
    lake.file("p.toml", &WALKS.swap("max_gap = 8\n", ""))
        .runs(&[]);
    let expected = lake.tables_of("out");
    for gap in ["2", "3"] {
        let text = WALKS.swap("max_gap = 8", &format!("max_gap = {gap}"));
        lake.runs_text(&text.swap("\"out\"", &format!("\"gap{gap}\"")));
        assert!(lake.tables_of(&format!("gap{gap}")) == expected, "{gap}");
        let record = lake.records_of(&format!("gap{gap}")).remove(0);
        assert!(record["models"][0].get("restarts").is_none(), "{record}");
    }
    let plan = lake.file("p.toml", WALKS).call("plan", &[]).succeeds();
    plan.says("rows 2 apart follow each other, and filters predict through gaps of whole intervals; a gap above 8");
    let said = "is more than a million times `sequences.interval` = 2";
    lake.call("plan", &["sequences.max_gap=2000002"])
        .fails(2, said);
    lake.call("plan", &["sequences.max_gap=2000000"]).succeeds();
}

/// A given model of two states and three symbols, for pages with missing rows and symbols.
const PAGES: &str = r#"
job = { name = "pages", output = "out" }
tables.pages.path = "pages.parquet"
[sequences]
sql = "SELECT * FROM pages"
trajectory = "id"
time = "t"
interval = 10
max_gap = 32
tolerance = 1
symbol = "s"
split = "split"

[[fit]]
name = "truth"
method = "given_hmm"
transition = { sql = """
SELECT * FROM (VALUES (NULL, 'r', 0.4), (NULL, 's', 0.6), ('r', 'r', 0.7), ('r', 's', 0.3),
  ('s', 'r', 0.2), ('s', 's', 0.8)) AS t(state, next, probability)""" }
emission = { sql = """
SELECT * FROM (VALUES ('r', 0, 0.5), ('r', 1, 0.3), ('r', 2, 0.2), ('s', 0, 0.1), ('s', 1, 0.2),
  ('s', 2, 0.7)) AS t(state, s, probability)""" }

[output]
rows = "all"
"#;

/// Pr of the symbols, summed over those that are missing and over all paths of the two states.
fn summed(shown: &[Option<i64>]) -> f64 {
    const START: [f64; 2] = [0.4, 0.6];
    const NEXT: [[f64; 2]; 2] = [[0.7, 0.3], [0.2, 0.8]];
    const SHOWS: [[f64; 3]; 2] = [[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]];
    if let Some(at) = shown.iter().position(Option::is_none) {
        let with = |symbol: i64| {
            let mut shown = shown.to_vec();
            shown[at] = Some(symbol);
            summed(&shown)
        };
        return (0..3).map(with).sum();
    }
    let symbols: Vec<usize> = shown.iter().flatten().map(|s| *s as usize).collect();
    let paths = 0..1usize << symbols.len();
    let of_path = |path: usize| {
        let state = |at: usize| (path >> at) & 1;
        let mut product = 1.0;
        for (at, &symbol) in symbols.iter().enumerate() {
            product *= match at {
                0 => START[state(0)],
                _ => NEXT[state(at - 1)][state(at)],
            };
            product *= SHOWS[state(at)][symbol];
        }
        product
    };
    paths.map(of_path).sum()
}

/// A row: trajectory, time, symbol.
type Page = (i64, i64, Option<i64>);

/// Trajectories of pages. Those of trajectory 9 are for training.
fn pages() -> Vec<Page> {
    let texts = [
        // Two steps without a row, then one; the times are near.
        (0, "0=0 10=2 39=1 49=1 70=0"),
        // Symbols that are null, alone and beside a missing row, first and last.
        (1, "0=? 10=2 20=? 30=0 40=? 61=1 70=?"),
        // A gap that is too long, and one that is no multiple.
        (2, "0=1 10=1 50=2 65=0 75=0"),
        // Null symbols over a time that is too long.
        (3, "0=1 10=? 20=? 30=? 40=2 50=2"),
        (
            9,
            "0=0 10=1 20=2 30=2 40=1 50=0 60=0 70=2 80=1 90=1 100=0 110=2",
        ),
    ];
    let of = |(id, text): (i64, &'static str)| {
        let rows = text.split(' ').map(move |row| {
            let (t, symbol) = row.split_once('=').expect("a row");
            (id, t.parse().expect("a time"), symbol.parse().ok())
        });
        rows.collect::<Vec<Page>>()
    };
    texts.into_iter().flat_map(of).collect()
}

/// The log-likelihood of each test row of `pages`, by trajectory and time. The sequences, with a
/// mark for each step without a row, are found by hand.
fn scores_by_hand() -> BTreeMap<(i64, i64), f64> {
    let sequences = [
        (0, &[0, 10, 39, 49, 70][..], "02??11?0"),
        (1, &[10, 30, 61], "2?0??1"),
        (2, &[0, 10], "11"),
        (2, &[50], "2"),
        (2, &[65, 75], "00"),
        (3, &[0], "1"),
        (3, &[40, 50], "22"),
    ];
    let mut scores = BTreeMap::new();
    for (id, times, shown) in sequences {
        let shown: Vec<Option<i64>> = shown
            .chars()
            .map(|c| c.to_digit(10).map(i64::from))
            .collect();
        let there = (0..shown.len()).filter(|&at| shown[at].is_some());
        for (time, at) in times.iter().zip(there) {
            let ratio = summed(&shown[..=at]) / summed(&shown[..at]);
            scores.insert((id, *time), ratio.ln());
        }
    }
    scores
}

#[test]
fn filters_of_symbols_sum_over_missing_ones() {
    let (mut rows, expected) = (pages(), scores_by_hand());
    let lake = Lake::new();
    let mut random = Pcg64::seed_from_u64(3);
    rows.shuffle(&mut random);
    let split = |id: i64| Some(if id == 9 { "train" } else { "test" });
    let columns = vec![
        ("id", integers(rows.iter().map(|row| row.0))),
        ("t", integers(rows.iter().map(|row| row.1))),
        ("s", integers_or_null(rows.iter().map(|row| row.2))),
        ("split", texts_or_null(rows.iter().map(|row| split(row.0)))),
    ];
    lake.table("pages.parquet", columns);
    let ran = lake.runs_text(PAGES);
    ran.says("predicted through 6 steps without a row; began again 3 times within trajectories");
    let found = lake.read("predictions");
    let keys = found.integers("id").into_iter().zip(found.integers("t"));
    let scores: BTreeMap<(i64, i64), f64> =
        keys.zip(found.floats("truth_log_likelihood")).collect();
    assert_eq!(
        scores.len(),
        rows.iter().filter(|row| row.2.is_some()).count()
    );
    for (key, expected) in &expected {
        assert!((scores[key] - expected).abs() < 1e-12, "{key:?}");
    }
    // Held-out scores are means over the rows that are there.
    let mean = expected.values().sum::<f64>() / expected.len() as f64;
    assert!((lake.read("fits").floats("held_out")[0] - mean).abs() < 1e-12);
    let record = lake.record();
    assert_eq!(sum_of(&record, "predicted_rows"), 6);
    assert_eq!(sum_of(&record, "restarts"), 3);

    lake.assign(&[]).succeeds();
    assert!(lake.tables_of("new")["predictions"] == lake.tables_of("out")["predictions"]);
    assert_eq!(
        sum_of(&lake.records_of("new").remove(0), "predicted_rows"),
        6
    );
    // Without the key, each gap and each null symbol begins a sequence.
    lake.runs_text(
        &PAGES
            .swap("max_gap = 32\n", "")
            .swap("\"out\"", "\"short\""),
    );
    let short = lake.read_at("short/predictions");
    let times = short.integers("t");
    let at = (0..short.len()).find(|&at| short.integers("id")[at] == 1 && times[at] == 30);
    let score = short.floats("truth_log_likelihood")[at.expect("a row")];
    assert!((score - summed(&[Some(0)]).ln()).abs() < 1e-12);
    let record = lake.records_of("short").remove(0);
    assert!(record["models"][0].get("predicted_rows").is_none());
}
