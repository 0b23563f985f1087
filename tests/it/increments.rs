//! Compares runs that count new files only with runs that count all files.

use crate::cli::integers;
use crate::lake::{Lake, Swap, cases};
use crate::tasks::{Row, columns};
use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

const TRAJECTORIES: &str = r#"
job = { name = "increments", output = "out", incremental = true }
names.from = "none"
tables.rows.path = "rows/"
[transitions]
sql = "SELECT * FROM rows WHERE id <> 3"
trajectory = "id"
time = "t"
partition_by = "g"
lag = [1, 3, "2 steps"]
WORLD
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
"#;

const PAIRS: &str = r#"
job = { name = "increments", output = "out", incremental = true }
names.from = "none"
tables.rows.path = "rows/"
[transitions]
sql = "SELECT * FROM rows"
source = ["name", "half"]
target = "to"
count = "n"
[output]
tables = ["counts"]
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
"#;

/// One pipeline per kind of counts.
fn pipeline(world: usize) -> String {
    let of = |text: &str| TRAJECTORIES.swap("WORLD", text);
    match world {
        0 => of("state = \"state\""),
        1 => of("state = \"name\"").replace("lag = [1, 3, \"2 steps\"]", "lag = 2"),
        2 => of("bins = { x = { step = 2.0 } }") + "[validation]\nbootstrap = 3\ngroups = 4\n",
        3 => {
            of("state = [\"name\", \"half\"]")
                + "[[fit]]\nname = \"own\"\nmethod = \"given\"\naffiliation = \"half\"\n"
        }
        4 => of(
            "bins = { x = { bounds = [1, 5], boxes = 4 } }\nwindow = \"effective\"\ninterval = 1",
        ),
        5 => of("state = \"name\"\nconnected = true").replace("trajectory = \"id\"\n", ""),
        6 => of("state = \"state\"\nmax_gap = 2"),
        // Two rows at most times: both count, or the last one.
        7 => ties(&of("state = \"state\"")).swap("lag = [1, 3, \"2 steps\"]", "lag = \"2 steps\""),
        8 => of("state = \"state\"\ntolerance = 1\nmax_gap = 4")
            .swap("lag = [1, 3, \"2 steps\"]", "lag = [3, 5, \"2 steps\"]"),
        9 => ties(&of("state = \"name\"\nduplicates = \"last\"\nmax_gap = 3")),
        _ => PAIRS.to_string(),
    }
}

/// The same rows, two of which have one time.
fn ties(text: &str) -> String {
    text.swap(
        "SELECT * FROM rows",
        "SELECT g, id, t / 2 AS t, t AS n, state, name FROM rows",
    )
    .swap("time = \"t\"", "time = [\"t\", \"n\"]")
}

/// Rows of one day. The trajectories have occasional gaps.
fn day(random: &mut Pcg64, day: i64, one_per_group: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for id in 0..5 {
        if random.random_range(0..4) == 0 || (one_per_group && id > 1) {
            continue;
        }
        for t in day * 10..day * 10 + random.random_range(1..10) {
            if random.random_range(0..6) > 0 {
                rows.push(Row {
                    g: id % 2,
                    id,
                    t: (random.random_range(0..25) > 0).then_some(t),
                    state: (random.random_range(0..10) > 0).then(|| random.random_range(0..6)),
                });
            }
        }
    }
    rows
}

/// The files of a table, with their rows.
type Files = BTreeMap<String, Vec<Row>>;

/// Distributes the rows of a day over several files.
fn distribute(random: &mut Pcg64, day: i64, rows: Vec<Row>, files: &mut Files) {
    let n = random.random_range(1..4);
    let stamp: u32 = random.random();
    for row in rows {
        let file = format!(
            "day={day}/{stamp:08x}-{}.parquet",
            random.random_range(0..n)
        );
        files.entry(file).or_default().push(row);
    }
}

/// Writes the files that changed and removes those that no longer exist.
fn store(lake: &Lake, before: &Files, files: &Files, random: &mut Pcg64) {
    for name in before.keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(lake.path("rows").join(name)).expect("the file was there");
    }
    for (name, rows) in files
        .iter()
        .filter(|(name, rows)| before.get(*name) != Some(rows))
    {
        let mut rows = rows.clone();
        if random.random() {
            rows.shuffle(random);
        }
        lake.table(&format!("rows/{name}"), columns(&rows));
    }
}

/// A file of the current result.
fn result_file(lake: &Lake, name: &str) -> PathBuf {
    let record = lake.record();
    let run = record["id"].as_str().expect("an id");
    lake.path("out/versions").join(run).join(name)
}

const FRESH: [&str; 2] = ["job.output=fresh", "job.incremental=false"];

/// Runs the pipeline incrementally, and completely into another folder. Asserts equal exit codes
/// and tables. Returns what the first run counted.
fn check_increment(lake: &Lake, sets: &[&str]) -> String {
    let incremental = lake.run(sets);
    fs::remove_dir_all(lake.path("fresh")).ok();
    let all = lake.run(&[&FRESH, sets].concat());
    assert_eq!(
        incremental.code, all.code,
        "{}\n{}\n{}",
        incremental.err, all.err, incremental.out
    );
    if all.code == Some(1) && !lake.path("fresh/current.json").exists() {
        assert_eq!(incremental.err, all.err);
        return incremental.err;
    }
    if incremental.out == "Nothing to do.\n" {
        return incremental.out;
    }
    assert!(
        lake.tables_of("out") == lake.tables_of("fresh"),
        "different tables after {}",
        incremental.out
    );
    let what = lake.record()["increment"]["what"]
        .as_str()
        .expect("a sentence")
        .to_string();
    incremental.says(&what);
    let line = |text: &str| text.lines().next().map(str::to_string);
    assert_eq!(line(&incremental.out), line(&all.out));
    let (own, fresh) = (
        lake.record(),
        lake.records_of("fresh").pop().expect("a record"),
    );
    for key in ["rows_dropped", "gaps", "near_pairs"] {
        assert_eq!(own[key], fresh[key], "{key} after {}", incremental.out);
    }
    what
}

/// Days follow each other. Some rows arrive late, and some files are replaced or deleted.
fn check_days(seed: u64, world: usize) {
    let random = &mut Pcg64::seed_from_u64(seed);
    let lake = Lake::new();
    lake.file("p.toml", &pipeline(world));
    let (mut files, mut late) = (Files::new(), Vec::new());
    for step in 0..7 {
        let before = files.clone();
        let names: Vec<String> = files.keys().cloned().collect();
        let any_name = |random: &mut Pcg64| names[random.random_range(0..names.len())].clone();
        match random.random_range(0..8) {
            1 if !names.is_empty() => {
                let file = files.get_mut(&any_name(random)).unwrap();
                file.retain(|_| random.random_range(0..3) > 0);
                file.iter_mut()
                    .for_each(|row| row.state = row.state.map(|s| (s + 1) % 6));
            }
            2 if names.len() > 1 => {
                files.remove(&any_name(random));
            }
            3 if !late.is_empty() => {
                distribute(random, step, std::mem::take(&mut late), &mut files)
            }
            _ => {
                let mut rows = day(random, step, world == 5);
                let delayed = rows.len().min(random.random_range(0..3));
                if random.random_range(0..3) == 0 {
                    rows.shuffle(random);
                    late.extend(rows.drain(..delayed));
                }
                distribute(random, step, rows, &mut files);
            }
        }
        if files.is_empty() {
            continue;
        }
        store(&lake, &before, &files, random);
        check_increment(&lake, &[]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2, max_shrink_iters: 0, ..ProptestConfig::default() })]
    /// Each pipeline of [`pipeline`] has its own days.
    #[test]
    fn increments_equal_a_count_of_all_rows(seed: u64) {
        for world in 0..11 {
            println!("world {world}");
            check_days(seed.wrapping_add(world as u64), world);
        }
    }
}

/// Writes one trajectory with one file per day.
fn days(lake: &Lake, days: std::ops::Range<i64>) {
    for day in days {
        let row = |t: i64| Row {
            g: 0,
            id: 7,
            t: Some(t),
            state: Some((t * t + t / 3) % 5),
        };
        let rows: Vec<Row> = (day * 10..day * 10 + 10).map(row).collect();
        lake.table(&format!("rows/day={day}/a.parquet"), columns(&rows));
    }
}

fn world() -> Lake {
    let lake = Lake::new();
    lake.file("p.toml", &pipeline(0));
    days(&lake, 1..4);
    assert_eq!(check_increment(&lake, &[]), "all of 3 files counted");
    lake
}

/// Damages the rows of a file, but not its footer. Its size and its time of change stay the same.
fn damage_rows(lake: &Lake, name: &str) {
    let path = lake.path(name);
    let mut bytes = fs::read(&path).expect("a file");
    let modified = fs::metadata(&path)
        .and_then(|m| m.modified())
        .expect("a time");
    bytes[4..400].fill(0xff);
    fs::write(&path, bytes).expect("a file");
    let file = fs::File::options()
        .append(true)
        .open(&path)
        .expect("a file");
    file.set_modified(modified).expect("a time");
}

#[test]
fn only_new_files_are_read() {
    let lake = world();
    days(&lake, 4..5);
    for day in 1..4 {
        damage_rows(&lake, &format!("rows/day={day}/a.parquet"));
    }
    lake.runs(&[]).says("\n  1 new file\n");
    let record = lake.record();
    let increment = &record["increment"];
    assert_eq!(increment["files"], 1);
    assert_eq!(increment["rows"], 10);
    assert_eq!(increment["units"], 2);
    assert_eq!(record["rows_read"], 40);
    // Another fit reads no rows.
    lake.runs(&["fit.one.rank=2"]).says("\n  no new files\n");
    // A full refresh reads the damaged rows.
    let ran = lake.line("run p.toml --full-refresh");
    ran.fails(1, "reading the input failed");
    days(&lake, 1..4);
    let expected = "no new files; recounting all of 4 files: day=1/a.parquet was replaced";
    assert_eq!(check_increment(&lake, &["fit.one.rank=2"]), expected);
}

#[test]
fn a_second_run_has_nothing_to_do() {
    let lake = world();
    let ran = lake.runs(&[]);
    assert_eq!(ran.out, "Nothing to do.\n");
    let ran = lake.line("run p.toml --skip-code 9");
    assert_eq!((ran.code, ran.out.as_str()), (Some(9), "Nothing to do.\n"));
    let before = lake.tables_of("out");
    lake.line("run p.toml --full-refresh")
        .succeeds()
        .says("\n  all of 3 files counted\n");
    assert!(lake.tables_of("out") == before);
}

#[test]
fn a_run_reports_the_time_from_which_it_recounts() {
    let lake = world();
    days(&lake, 4..6);
    assert_eq!(check_increment(&lake, &[]), "2 new files");
    days(&lake, 5..7);
    let expected = "1 new file; recounting from 40: day=5/a.parquet was replaced";
    assert_eq!(check_increment(&lake, &[]), expected);
    fs::remove_file(lake.path("rows/day=6/a.parquet")).expect("a file");
    let expected = "no new files; recounting from 40: day=6/a.parquet was deleted";
    assert_eq!(check_increment(&lake, &[]), expected);
    days(&lake, 7..8);
    assert_eq!(check_increment(&lake, &[]), "1 new file");
    days(&lake, 6..7);
    let expected = "1 new file; recounting from 70: rows came late";
    assert_eq!(check_increment(&lake, &[]), expected);
    let sql = "transitions.sql=SELECT * FROM rows WHERE state < 4";
    let expected = "no new files; recounting all of 7 files: the SQL changed";
    assert_eq!(check_increment(&lake, &[sql]), expected);
    let lag = "transitions.lag=2";
    let why = "trajectories, states, lags or groups changed";
    let expected = format!("no new files; recounting all of 7 files: {why}");
    assert_eq!(check_increment(&lake, &[sql, lag]), expected);
    let mut more = columns(&[Row {
        g: 0,
        id: 7,
        t: Some(99),
        state: Some(1),
    }]);
    more.push(("more", integers([1])));
    lake.table("rows/day=9/b.parquet", more);
    let why = "the columns of the table changed";
    let expected = format!("1 new file; recounting all of 8 files: {why}");
    assert_eq!(check_increment(&lake, &[sql, lag]), expected);
}

/// Missing and damaged files of the ledger.
#[test]
fn a_damaged_ledger_is_not_used() {
    let lake = world();
    days(&lake, 4..5);
    assert_eq!(check_increment(&lake, &[]), "1 new file");
    let ledger = || {
        serde_json::from_slice::<Value>(
            &fs::read(result_file(&lake, "ledger.json")).expect("a file"),
        )
        .expect("JSON")
    };
    let object = |unit: usize, what: &str| {
        let name = ledger()["units"][unit][what]["name"]
            .as_str()
            .expect("a name")
            .to_string();
        lake.path("out/ledger").join(name)
    };
    let path = object(1, "counts");
    let mut bytes = fs::read(&path).expect("an object");
    bytes[10] ^= 1;
    fs::write(&path, bytes).expect("an object");
    days(&lake, 5..6);
    let what = check_increment(&lake, &[]);
    let begin = "1 new file; recounting from 40: ledger/";
    assert!(what.starts_with(&format!("{begin}counts-")), "{what}");
    assert!(what.ends_with(" is gone or damaged"), "{what}");
    fs::remove_file(object(1, "carry")).expect("an object");
    days(&lake, 6..7);
    let what = check_increment(&lake, &[]);
    assert!(what.starts_with(&format!("{begin}carry-")), "{what}");
    assert_eq!(ledger()["units"].as_array().expect("units").len(), 2);
    assert_eq!(ledger()["units"][0]["files"][0]["rows"], 10);
    fs::write(result_file(&lake, "ledger.json"), "{").expect("a ledger");
    days(&lake, 7..8);
    assert_eq!(check_increment(&lake, &[]), "all of 7 files counted");
}

/// Objects that no ledger names are removed when they are old. Young ones may belong to a run that
/// has not written its ledger.
#[test]
fn objects_outside_every_ledger_are_removed() {
    let lake = world();
    let name = format!("out/ledger/counts-{}.parquet", "0".repeat(32));
    let stray = lake.path(&name);
    fs::write(&stray, "").expect("an object");
    lake.line("clean p.toml").succeeds();
    assert!(stray.exists());
    lake.line("clean p.toml --older-than 0s").succeeds();
    assert!(!stray.exists());
    days(&lake, 4..5);
    assert_eq!(check_increment(&lake, &[]), "1 new file");
}

/// The number of runs is much larger than the number of units in a ledger.
#[test]
fn old_units_are_merged() {
    let lake = world();
    for day in 4..40 {
        days(&lake, day..day + 1);
        lake.runs(&[]);
    }
    days(&lake, 40..41);
    assert_eq!(check_increment(&lake, &[]), "1 new file");
    let units = lake.record()["increment"]["units"]
        .as_u64()
        .expect("a number");
    assert_eq!(units, 38 - 16);
    days(&lake, 5..6);
    let expected = "no new files; recounting all of 40 files: day=5/a.parquet was replaced";
    assert_eq!(check_increment(&lake, &[]), expected);
}

#[test]
fn pipelines_without_increments_report_the_reason() {
    let lake = world();
    let why = |set: &str| {
        let plan = lake.call("plan", &[set]).succeeds();
        let line = plan
            .out
            .lines()
            .find_map(|line| line.trim().strip_prefix("increments: "));
        line.expect("a line").to_string()
    };
    let table = r#"
        SELECT g, id, t, state FROM rows WHERE g = 0 ORDER BY t | new files of rows
        SELECT * FROM (SELECT *, 1 AS a FROM rows) AS r | new files of rows
        SELECT a.* FROM rows a JOIN rows b ON a.t = b.t + 1 | no, because the SQL has a join
        SELECT g, id, t, max(state) AS state FROM rows GROUP BY g, id, t | no, because the SQL has an aggregate
        SELECT DISTINCT g, id, t, state FROM rows | no, because the SQL has DISTINCT
        SELECT * FROM rows LIMIT 9 | no, because the SQL has a limit
        SELECT * FROM rows ORDER BY t LIMIT 9 | no, because the SQL has a limit
        SELECT * FROM rows UNION ALL SELECT * FROM rows | no, because the SQL has a union
        SELECT * FROM rows WHERE random() < 0.5 | no, because the SQL calls random()
        SELECT * FROM rows WHERE t < (SELECT max(t) FROM rows) | no, because the SQL has a subquery
        SELECT *, lag(t) OVER (ORDER BY t) AS before FROM rows | no, because the SQL has a window function
    "#;
    for [sql, expected] in cases(table) {
        assert_eq!(why(&format!("transitions.sql={sql}")), expected);
    }
    let strided = why("transitions.window=strided");
    let wanted = "no, because strided pairs depend on the first row of a trajectory";
    assert_eq!(strided, wanted);
    assert!(why("job.incremental=true").starts_with("new files"));
    let plan = lake.call("plan", &["job.incremental=false"]).succeeds();
    assert!(!plan.out.contains("increments:"), "{}", plan.out);
    // A pipeline without increments counts all files.
    lake.runs(&["transitions.window=strided"])
        .says("all files counted, because strided pairs");
}

/// If unsorted rows exceed the memory limit, carried rows are sorted with the new ones.
#[test]
fn carried_rows_are_sorted_with_new_ones() {
    let lake = Lake::new();
    lake.file("p.toml", &pipeline(1));
    let random = &mut Pcg64::seed_from_u64(5);
    for day in 0..2 {
        let mut rows: Vec<Row> = (0..500_000)
            .map(|at| Row {
                g: at % 2,
                id: at % 50,
                t: Some(day * 10_000 + at / 50),
                state: Some((at * at / 7 + day) % 11),
            })
            .collect();
        rows.shuffle(random);
        lake.table(&format!("rows/day={day}/a.parquet"), columns(&rows));
        let memory = ["run", "p.toml", "-v", "--threads", "1", "--memory", "165MB"];
        let ran = lake.gyre(&memory);
        ran.logs("sorting them");
        ran.succeeds();
    }
    assert_eq!(lake.record()["increment"]["what"], "1 new file");
    lake.runs(&FRESH);
    assert!(lake.tables_of("out") == lake.tables_of("fresh"));
}
