//! `gyre init`: each proposed pipeline passes `gyre check` and runs as it is.

use crate::cli::integers;
use crate::lake::{Lake, ProgramRun, floats, integers_or_null, texts, texts_or_null};
use arrow::array::{ArrayRef, TimestampMicrosecondArray};
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::Arc;

/// Proposes a pipeline, checks it and runs it. Returns its text.
#[track_caller]
fn proposed(lake: &Lake, data: &str, more: &[&str]) -> String {
    let _ = std::fs::remove_file(lake.path("p.toml"));
    let arguments = [&["init", data, "-o", "p.toml"], more].concat();
    lake.gyre(&arguments).succeeds();
    let text = lake.text("p.toml");
    let printed = lake.gyre(&[&["init", data], more].concat()).succeeds();
    assert_eq!(printed.out.trim_end(), text.trim_end());
    lake.call("check", &[]).succeeds();
    let ran = lake.line("run p.toml --set job.output=out --force");
    assert_eq!(ran.code, Some(0), "{text}\n{}\n{}", ran.out, ran.err);
    text
}

/// The value of a key, without its comment.
#[track_caller]
fn value<'a>(text: &'a str, key: &str) -> &'a str {
    let begin = format!("{key} = ");
    let line = text.lines().find_map(|line| line.strip_prefix(&begin));
    let line = line.unwrap_or_else(|| panic!("no {key} in\n{text}"));
    line.split(" # ").next().unwrap_or(line).trim()
}

/// Thirty walks of 60 rows around a circle, a row every two hours.
fn walks(lake: &Lake) {
    let rows = || (0..30 * 60i64).map(|row| (row / 60, row % 60));
    let angle = |(id, t): (i64, i64)| 0.1 * t as f64 + id as f64 + 0.3 * ((id * t) as f64).sin();
    let hours = rows().map(|(_, t)| (100_000 + 2 * t) * 3_600_000_000);
    let time: ArrayRef = Arc::new(TimestampMicrosecondArray::from_iter_values(hours));
    let columns = vec![
        ("buoy", texts(rows().map(|row| format!("b{}", row.0)))),
        ("time", time),
        ("x", floats(rows().map(|row| angle(row).cos()))),
        ("y", floats(rows().map(|row| angle(row).sin()))),
        ("sst", floats(rows().map(|row| 20.0 + angle(row).sin()))),
    ];
    lake.table("Drifters 2024.parquet", columns);
}

#[test]
fn trajectories_with_coordinates_get_boxes_and_a_lag() {
    let lake = Lake::new();
    walks(&lake);
    let text = proposed(&lake, "Drifters 2024.parquet", &[]);
    assert_eq!(value(&text, "name"), "\"drifters_2024\"");
    assert_eq!(value(&text, "trajectory"), "\"buoy\"");
    assert_eq!(value(&text, "time"), "\"time\"");
    assert_eq!(value(&text, "lag"), "\"20h\"");
    let why = "10 steps: 100 % of the rows are 2h after the row before";
    assert!(text.contains(why), "{text}");
    let bins = value(&text, "\"x\"");
    assert!(bins.starts_with("{ bounds = [-1, 1]"), "{text}");
    let why = "# Left out, because two coordinates make the boxes: sst\n";
    assert!(text.contains(why), "{text}");
    assert!(!text.replace(why, "").contains("sst"), "{text}");
    // A file that is there stays as it is.
    let again = lake.gyre(&["init", "Drifters 2024.parquet", "-o", "p.toml"]);
    again.fails(2, "p.toml exists already");
    assert_eq!(lake.text("p.toml"), text);
    // A file in another folder finds the data, too.
    std::fs::create_dir(lake.path("jobs")).expect("a folder");
    let to = ["init", "Drifters 2024.parquet", "-o", "jobs/p.toml"];
    lake.gyre(&to).succeeds();
    lake.line("check jobs/p.toml").succeeds();
}

/// A column that differs in every row is no trajectory where another key repeats.
#[test]
fn keys_of_rows_are_no_trajectories() {
    let lake = Lake::new();
    let rows = || 0..600i64;
    // Five orders of a user, one a day; all users order at the same times.
    let status = |k: i64| ["new", "paid", "sent"][((k * k % 7 + k % 5) % 3) as usize];
    let columns = vec![
        ("id", integers(rows())),
        ("user_id", integers(rows().map(|k| 1000 + k / 5))),
        ("created_at", seconds(rows().map(|k| 86_400 * (k % 5)))),
        ("status", texts(rows().map(status))),
    ];
    lake.table("orders.parquet", columns);
    let text = proposed(&lake, "orders.parquet", &[]);
    assert_eq!(value(&text, "trajectory"), "\"user_id\"", "{text}");
    assert_eq!(value(&text, "state"), "\"status\"", "{text}");
    assert_eq!(value(&text, "lag"), "\"1d\"", "{text}");
    // It grows with the time of each user.
    let why = "# Left out, because they only follow the time: id\n";
    assert!(text.contains(why), "{text}");
}

/// A column that follows the time is no coordinate. Angles have a period.
#[test]
fn angles_get_periods_and_times_no_boxes() {
    let lake = Lake::new();
    let rows = || (0..4 * 100i64).map(|row| (row / 100, row % 100));
    let angle = |(run, t): (i64, i64), by: f64| {
        (by * t as f64 + run as f64 + (0.9 * t as f64).sin()).rem_euclid(std::f64::consts::TAU)
            - std::f64::consts::PI
    };
    let columns = |factor: f64| {
        vec![
            ("run", integers(rows().map(|row| row.0))),
            ("frame", integers(rows().map(|row| row.1))),
            ("time_ps", floats(rows().map(|row| 2.0 * row.1 as f64))),
            ("energy", floats(rows().map(|row| angle(row, 0.3).sin()))),
            ("phi", floats(rows().map(|row| factor * angle(row, 0.31)))),
            ("psi", floats(rows().map(|row| factor * angle(row, 0.17)))),
        ]
    };
    lake.table("radians.parquet", columns(1.0));
    let text = proposed(&lake, "radians.parquet", &[]);
    for name in ["\"phi\"", "\"psi\""] {
        let bins = value(&text, name);
        let range = "{ periodic = [-3.141592653589793, 3.141592653589793], boxes = ";
        assert!(bins.starts_with(range), "{text}");
    }
    let left = "# Left out, because they only follow the time: time_ps\n\
                # Left out, because two coordinates make the boxes: energy\n";
    assert!(text.contains(left), "{text}");
    lake.table("degrees.parquet", columns(180.0 / std::f64::consts::PI));
    let text = proposed(&lake, "degrees.parquet", &[]);
    let bins = value(&text, "\"phi\"");
    assert!(
        bins.starts_with("{ periodic = [-180, 180], boxes = "),
        "{text}"
    );
    let text = proposed(&lake, "degrees.parquet", &["--kind", "points"]);
    let sine = "# phi is an angle: select cos(radians(\"phi\")) and sin(radians(\"phi\"))";
    assert!(text.contains(sine), "{text}");
}

/// The only number beside a source and a target is the count. Of several, comments name each.
#[test]
fn numbers_beside_pairs_are_counts() {
    let lake = Lake::new();
    let rows = || 0..300i64;
    let country = |k: i64| format!("C{}", k % 17);
    let columns = |with_riders: bool| {
        let mut columns = vec![
            ("from_country", texts(rows().map(country))),
            ("to_country", texts(rows().map(|k| country(k * k + k / 17)))),
            ("year", integers(rows().map(|k| 2000 + k % 3))),
            ("moved", integers(rows().map(|k| 3 + k * 7 % 11))),
        ];
        if with_riders {
            columns.push(("registered", integers(rows().map(|k| 3 + k * 5 % 11))));
        }
        columns
    };
    lake.table("one.parquet", columns(false));
    let text = proposed(&lake, "one.parquet", &[]);
    assert_eq!(value(&text, "count"), "\"moved\"", "{text}");
    let why = "# Left out, because a pair needs a source, a target and one count: year\n";
    assert!(text.contains(why), "{text}");
    lake.table("two.parquet", columns(true));
    let text = proposed(&lake, "two.parquet", &[]);
    assert_eq!(value(&text, "# count"), "\"moved\"", "{text}");
    assert!(text.contains("# count = \"registered\""), "{text}");
    let counted = text.replacen("# count", "count", 1);
    lake.file("p.toml", &counted).runs(&["job.output=counted"]);
    let edges = |k: i64| format!("{},{},{}\n", k % 7, k * k % 7, k % 3 + 1);
    let edges: String = rows().map(edges).collect();
    lake.file("edges.csv", &("u,v,w\n".to_string() + &edges));
    let text = proposed(&lake, "edges.csv", &[]);
    assert_eq!(value(&text, "source"), "\"u\"", "{text}");
    assert_eq!(value(&text, "target"), "\"v\"", "{text}");
    assert_eq!(value(&text, "weight"), "\"w\"", "{text}");
    // A row with a fare is one trip, so that no other number counts trips.
    let trip = |k: i64| format!("Z{},Z{},{}.5,{}\n", k % 7, k * k % 7, 4 + k % 9, 2 + k % 3);
    let trips: String = rows().map(trip).collect();
    lake.file("trips.csv", &("start,end,fare,tip\n".to_string() + &trips));
    let text = proposed(&lake, "trips.csv", &[]);
    assert_eq!(value(&text, "# count"), "\"tip\"", "{text}");
}

/// Ends whose names differ in their last sign, or by other words.
#[test]
fn pairs_have_many_names() {
    let lake = Lake::new();
    for (at, (source, target, value_of)) in [
        ("node1", "node2", "weight"),
        ("i", "j", "n_ij"),
        ("sender", "recipient", "messages"),
        ("follower", "followee", "n"),
        ("caller", "callee", "calls"),
        ("state_from", "state_to", "probability"),
    ]
    .into_iter()
    .enumerate()
    {
        let row = |k: i64| format!("{},{},{}\n", k % 7, k * k % 7, 1 + k % 3);
        let rows: String = (0..100).map(row).collect();
        let file = format!("{at}.csv");
        lake.file(&file, &(format!("{source},{target},{value_of}\n") + &rows));
        let text = proposed(&lake, &file, &[]);
        assert_eq!(value(&text, "source"), format!("\"{source}\""), "{text}");
        assert_eq!(value(&text, "target"), format!("\"{target}\""), "{text}");
        assert!(text.contains(&format!(" = \"{value_of}\" ")), "{text}");
    }
}

/// The letter of a row, which follows no simple rule.
fn letter(row: i64) -> char {
    ['a', 'b', 'c'][(row * row % 11 % 3) as usize]
}

/// Delimiter, quote, decimal comma and header of a CSV file become keys, and texts become times.
#[test]
fn forms_of_csv_files_are_found() {
    let lake = Lake::new();
    let row = |k: i64| {
        let (station, hour) = (k / 100, k % 100);
        let (day, temp) = (1 + hour / 24, (7 * k * k % 97) as f64 / 10.0);
        let temp = format!("{temp:.1}").replace('.', ",");
        let hour = hour % 24;
        format!("'s{station};';{day:02}.09.2026 {hour:02}:00;{temp}\n")
    };
    let rows: String = (0..300).map(row).collect();
    lake.file("casts.csv", &("station;zeit;temp\n".to_string() + &rows));
    let text = proposed(&lake, "casts.csv", &[]);
    assert_eq!(value(&text, "delimiter"), "\";\"", "{text}");
    assert_eq!(value(&text, "quote"), "\"'\"", "{text}");
    assert_eq!(value(&text, "decimal"), "\",\"", "{text}");
    let types = "{ \"zeit\" = { timestamp = \"%d.%m.%Y %H:%M\" } }";
    assert_eq!(value(&text, "types"), types, "{text}");
    assert_eq!(value(&text, "trajectory"), "\"station\"", "{text}");
    assert_eq!(value(&text, "lag"), "\"10h\"", "{text}");
    assert!(
        value(&text, "\"temp\"").starts_with("{ bounds = [0, 10]"),
        "{text}"
    );
    // Without names and without an ending.
    let rows = (0..200).map(|k| format!("{}\t{}\t{}\n", k / 50, k % 50, letter(k)));
    lake.file("log", &rows.collect::<String>());
    let roles = ["--trajectory", "column_1", "--time", "column_2"];
    let text = proposed(&lake, "log", &roles);
    assert_eq!(value(&text, "format"), "\"csv\"", "{text}");
    assert_eq!(value(&text, "delimiter"), "\"\\t\"", "{text}");
    assert_eq!(value(&text, "header"), "false", "{text}");
    assert_eq!(value(&text, "state"), "\"column_3\"", "{text}");
}

/// Times as texts and as whole numbers, of rows that are one minute apart.
#[test]
fn times_are_recognised() {
    let lake = Lake::new();
    // 1 September 2026, 10:00 UTC.
    let begin = 1_788_256_800;
    let clock = |k: i64| format!("{:02}:{:02}", 10 + k % 50 / 60, k % 50);
    type TimeOf<'a> = &'a dyn Fn(i64) -> String;
    let forms: [(&str, TimeOf, &str); 9] = [
        (
            "at",
            &|k| format!("\"01/Sep/2026:{}:00 +0000\"", clock(k)),
            "types",
        ),
        (
            "when",
            &|k| format!("\"2026-09-01T{}:00Z\"", clock(k)),
            "types",
        ),
        ("when", &|k| format!("\"01.09.2026 {}\"", clock(k)), "types"),
        (
            "when",
            &|k| format!("\"09/21/2026 {}:00 AM\"", clock(k)),
            "types",
        ),
        ("epoch", &|k| (begin + 60 * (k % 50)).to_string(), "types"),
        (
            "unix_time",
            &|k| (begin + 60 * (k % 50)).to_string(),
            "types",
        ),
        ("stamp", &|k| (begin + 60 * (k % 50)).to_string(), "types"),
        (
            "timestamp_ms",
            &|k| (1000 * (begin + 60 * (k % 50))).to_string(),
            "millis",
        ),
        (
            "time",
            &|k| (1_000_000 * (begin + 60 * (k % 50))).to_string(),
            "micros",
        ),
    ];
    for (at, (name, time, how)) in forms.into_iter().enumerate() {
        let row = |k: i64| {
            let (user, page) = (k / 50, letter(k));
            format!(
                "{{\"user\": {user}, \"{name}\": {}, \"page\": \"{page}\"}}\n",
                time(k)
            )
        };
        let file = format!("clicks{at}.jsonl");
        lake.file(&file, &(0..200).map(row).collect::<String>());
        let pipeline = format!("{at}.toml");
        lake.gyre(&["init", &file, "-o", &pipeline, "--run"])
            .succeeds();
        let text = lake.text(&pipeline);
        assert_eq!(value(&text, "lag"), "\"1min\"", "{text}");
        match how {
            "types" => assert!(value(&text, "types").contains("{ timestamp = "), "{text}"),
            unit => {
                let function = format!("to_timestamp_{unit}({name}) AS {name}");
                let function = function.replace("(time) AS time", "(\\\"time\\\") AS \\\"time\\\"");
                assert!(value(&text, "sql").contains(&function), "{text}");
            }
        }
    }
}

/// Times that are not whole become whole numbers, years are times, and months are counted.
#[test]
fn numbers_and_months_are_times() {
    let lake = Lake::new();
    type TimeOf<'a> = &'a dyn Fn(i64) -> String;
    let forms: [(&str, TimeOf, &str, &str); 6] = [
        (
            "t",
            &|k| format!("{:.2}", 0.02 * k as f64),
            "2",
            "CAST(round(100 * t) AS BIGINT)",
        ),
        ("time (s)", &|k| format!("{k}.0"), "1", "AS BIGINT)"),
        (
            "timestamp",
            &|k| format!("{}.5", 1_788_256_800 + 60 * k),
            "\"1min\"",
            "to_timestamp_micros(CAST(round(1000000 * ",
        ),
        ("year", &|k| (1950 + k).to_string(), "1", "\\\"year\\\""),
        ("move_number", &|k| k.to_string(), "1", "move_number"),
        (
            "month",
            &|k| format!("{}-{:02}", 2020 + k / 12, k % 12 + 1),
            "1",
            "CAST(left(\\\"month\\\", 4) AS BIGINT) * 12",
        ),
    ];
    for (at, (name, time, lag, sql)) in forms.into_iter().enumerate() {
        let row = |k: i64| format!("{},{},{}\n", k / 50, time(k % 50), letter(k));
        let rows: String = (0..200).map(row).collect();
        let file = format!("{at}.csv");
        lake.file(&file, &(format!("robot,{name},mode\n") + &rows));
        let text = proposed(&lake, &file, &[]);
        assert_eq!(value(&text, "trajectory"), "\"robot\"", "{text}");
        assert_eq!(value(&text, "lag"), lag, "{text}");
        assert!(value(&text, "sql").contains(sql), "{text}");
    }
}

/// Values of objects are columns. True and false are states where no text or number is one.
#[test]
fn objects_and_marks_have_roles() {
    let lake = Lake::new();
    let row = |k: i64| {
        let (device, minute, on) = (k / 50, k % 50, k * k % 7 < 3);
        format!(
            "{{\"device\": {{\"id\": \"d{device}\", \"at\": \"2026-09-01T10:{minute:02}:00Z\"}}, \"on\": {on}}}\n"
        )
    };
    lake.file("devices.jsonl", &(0..200).map(row).collect::<String>());
    let text = proposed(&lake, "devices.jsonl", &[]);
    assert_eq!(value(&text, "trajectory"), "\"device.id\"", "{text}");
    assert_eq!(value(&text, "time"), "\"device.at\"", "{text}");
    assert_eq!(value(&text, "state"), "\"on\"", "{text}");
    let sql = value(&text, "sql");
    assert!(
        sql.contains("\\\"device\\\"['id'] AS \\\"device.id\\\""),
        "{text}"
    );
    assert!(
        sql.contains("to_timestamp_micros(\\\"device\\\"['at'])"),
        "{text}"
    );
}

/// Options come before what the columns say.
#[test]
fn options_overrule_columns() {
    let lake = Lake::new();
    let rows = || 0..400i64;
    let columns = vec![
        ("user", integers(rows().map(|k| k / 100))),
        ("group", integers(rows().map(|k| k / 200))),
        ("time", integers(rows().map(|k| k % 100))),
        ("minute", integers(rows().map(|k| 2 * (k % 200)))),
        ("state", texts(rows().map(|k| letter(k).to_string()))),
        ("mood", texts(rows().map(|k| letter(k * 3 + 1).to_string()))),
        ("a", floats(rows().map(|k| (0.3 * k as f64).sin()))),
        ("b", floats(rows().map(|k| (0.7 * k as f64).cos()))),
    ];
    lake.table("rows.parquet", columns);
    let text = proposed(
        &lake,
        "rows.parquet",
        &["--state", "mood,state", "--lag", "2 steps"],
    );
    assert_eq!(value(&text, "trajectory"), "\"user\"", "{text}");
    assert_eq!(value(&text, "state"), "[\"mood\", \"state\"]", "{text}");
    assert_eq!(value(&text, "lag"), "\"2 steps\"", "{text}");
    let options = [
        "--trajectory",
        "group",
        "--time",
        "minute",
        "--coordinates",
        "b",
    ];
    let text = proposed(&lake, "rows.parquet", &options);
    assert_eq!(value(&text, "trajectory"), "\"group\"", "{text}");
    assert_eq!(value(&text, "time"), "\"minute\"", "{text}");
    assert!(!text.contains("state ="), "{text}");
    assert!(
        value(&text, "\"b\"").starts_with("{ bounds = [-1, 1]"),
        "{text}"
    );
    let text = proposed(&lake, "rows.parquet", &["--symbol", "mood"]);
    assert_eq!(value(&text, "symbol"), "\"mood\"", "{text}");
    let text = proposed(
        &lake,
        "rows.parquet",
        &["--observation", "b", "--state", "a"],
    );
    assert_eq!(value(&text, "observation"), "[\"b\"]", "{text}");
    let pair = ["--source", "mood", "--target", "state", "--count", "minute"];
    let text = proposed(&lake, "rows.parquet", &pair);
    assert_eq!(value(&text, "source"), "\"mood\"", "{text}");
    assert_eq!(value(&text, "count"), "\"minute\"", "{text}");
    for (options, why) in [
        (
            "--time tim",
            "--time: the table has no column `tim`; did you mean `time`?",
        ),
        (
            "--symbol mood --state state",
            "--state has no meaning for rows of the kind `sequences`",
        ),
        (
            "--coordinates a,mood",
            "--coordinates takes columns of numbers, and `mood` is Utf8",
        ),
        ("--lag soon", "the pipeline with these options is wrong"),
        ("--delimiter ab", "must be one ASCII character, or tab"),
        ("--format xls", "must be parquet, csv, json or arrow"),
        ("--run", "--to <FILE>"),
    ] {
        lake.line(&format!("init rows.parquet {options}"))
            .fails(2, why);
    }
}

/// Symbols, and measurements beside a known state, are sequences.
#[test]
fn symbols_and_measurements_are_sequences() {
    let lake = Lake::new();
    let rows = || (0..4 * 60i64).map(|row| (row / 60, row % 60));
    let columns = vec![
        ("chain", integers(rows().map(|row| row.0))),
        ("position", integers(rows().map(|row| row.1))),
        (
            "base",
            texts(rows().map(|(c, t)| letter(c + t).to_string())),
        ),
    ];
    lake.table("chains.parquet", columns);
    let text = proposed(&lake, "chains.parquet", &[]);
    assert!(text.contains("[sequences]"), "{text}");
    assert_eq!(value(&text, "symbol"), "\"base\"", "{text}");
    let refined = text.replace("\n# [[fit]]\n# name", "\n[[fit]]\nname");
    let refined = refined
        .replace("\n# method", "\nmethod")
        .replace("\n# rank", "\nrank");
    let refined = refined.replace("\n# refine", "\nrefine");
    lake.file("p.toml", &refined).runs(&["job.output=refined"]);
    let rows = || (0..2 * 30i64).map(|row| (row / 30, row % 30));
    let noise = |(r, t): (i64, i64), by: i64| ((r * 31 + t * by) % 23) as f64 / 40.0;
    let x = |(r, t): (i64, i64)| (0.2 * t as f64 + r as f64).sin();
    let columns = vec![
        ("robot", integers(rows().map(|row| row.0))),
        ("step", integers(rows().map(|row| row.1))),
        ("true_x", floats(rows().map(|row| x(row) + noise(row, 3)))),
        (
            "measured_x",
            floats(rows().map(|row| x(row) + noise(row, 7))),
        ),
    ];
    lake.table("robots.parquet", columns);
    let text = proposed(&lake, "robots.parquet", &[]);
    assert_eq!(value(&text, "interval"), "1", "{text}");
    assert_eq!(value(&text, "state"), "[\"true_x\"]", "{text}");
    assert_eq!(value(&text, "observation"), "[\"measured_x\"]", "{text}");
    let both = text.replace("\n# [[fit]]\n# name", "\n[[fit]]\nname");
    let both = both.replace("\n# method", "\nmethod");
    lake.file("p.toml", &both).runs(&["job.output=kernel"]);
}

/// With `--run`, the pipeline is run, too, and the summary names the report.
#[test]
fn a_proposal_runs_at_once() {
    let lake = Lake::new();
    walks(&lake);
    let data = "Drifters 2024.parquet";
    let ran = lake
        .gyre(&["init", data, "-o", "p.toml", "--run"])
        .succeeds();
    let said = format!("{}{}", ran.out, ran.err);
    assert!(said.contains("written: p.toml"), "{said}");
    assert!(said.contains("transitions in 1,800 rows"), "{said}");
    if cfg!(feature = "report") {
        let report = "out/drifters_2024/current/report.html";
        assert!(said.contains(&format!("report: {report}")), "{said}");
        assert!(lake.path(report).exists());
    }
    lake.line("run p.toml").succeeds();
}

#[test]
fn rows_are_counted_if_steps_differ() {
    let lake = Lake::new();
    let rows = || (0..20 * 50i64).map(|row| (row / 50, row % 50));
    let state =
        |(id, t): (i64, i64)| ["home", "list", "item", "cart"][((id + t * t / 3) % 4) as usize];
    let columns = vec![
        ("session", integers(rows().map(|row| row.0))),
        ("t", integers(rows().map(|(id, t)| t * (t + id + 1)))),
        ("page", texts(rows().map(state))),
        ("ms", floats(rows().map(|row| row.1 as f64 / 7.0))),
    ];
    lake.table("clicks.parquet", columns);
    let text = proposed(&lake, "clicks.parquet", &[]);
    assert_eq!(value(&text, "state"), "\"page\"");
    assert_eq!(value(&text, "lag"), "\"1 step\"");
    let text = proposed(&lake, "clicks.parquet", &["--kind", "sequences"]);
    assert!(text.contains("[sequences]"), "{text}");
    assert_eq!(value(&text, "symbol"), "\"page\"", "{text}");
}

#[test]
fn columns_with_names_of_results_are_renamed() {
    let lake = Lake::new();
    let rows = || 0..400i64;
    let state = || texts(rows().map(|row| ["a", "b", "c"][(row * row % 7 % 3) as usize]));
    let columns = vec![
        ("count", state()),
        ("count_input", integers(rows().map(|row| row / 100))),
        ("time", integers(rows().map(|row| row % 100))),
    ];
    lake.table("rows.parquet", columns);
    let text = proposed(&lake, "rows.parquet", &[]);
    assert_eq!(value(&text, "state"), "\"count_input_input\"", "{text}");
    let renamed = r#"\"count\" AS count_input_input"#;
    assert!(value(&text, "sql").contains(renamed), "{text}");
    let text = proposed(&lake, "rows.parquet", &["--kind", "sequences"]);
    assert_eq!(value(&text, "symbol"), "\"count_input_input\"", "{text}");
    let coordinate = |factor: f64| floats(rows().map(|row| (row as f64 * factor) % 1.0));
    let columns = vec![
        ("probability", integers(rows())),
        ("map_embedding", coordinate(0.37)),
        ("y", coordinate(0.71)),
    ];
    lake.table("points.parquet", columns);
    let text = proposed(&lake, "points.parquet", &["--kind", "points"]);
    assert_eq!(value(&text, "id"), "\"probability_input\"", "{text}");
    let expected = "[\"map_embedding_input\", \"y\"]";
    assert_eq!(value(&text, "coordinates"), expected, "{text}");
    // The name of the count is not that of a column of states.
    let columns = vec![
        ("source", state()),
        (
            "target",
            texts(rows().map(|row| ["a", "b", "c"][(row % 3) as usize])),
        ),
        ("count", integers(rows())),
    ];
    lake.table("pairs.parquet", columns);
    let text = proposed(&lake, "pairs.parquet", &[]);
    assert_eq!(value(&text, "count"), "\"count\"", "{text}");
}

#[test]
fn pairs_are_counted_or_weighted() {
    let lake = Lake::new();
    let rows = || 0..600i64;
    let flights = rows().map(|k| format!("A{},A{},{}\n", k % 23, k * k % 23, k % 5 + 1));
    let head = "from_airport,to_airport,count\n".to_string();
    lake.file("flights.csv", &(head + &flights.collect::<String>()));
    let text = proposed(&lake, "flights.csv", &[]);
    assert_eq!(value(&text, "source"), "\"from_airport\"");
    assert_eq!(value(&text, "target"), "\"to_airport\"");
    assert_eq!(value(&text, "count"), "\"count\"");
    assert_eq!(value(&text, "connected"), "true");
    let columns = vec![
        ("source", texts(rows().map(|k| format!("user {}", k % 31)))),
        (
            "target",
            texts(rows().map(|k| format!("item {}", k * 7 % 29))),
        ),
        ("weight", floats(rows().map(|k| 0.5 + (k % 3) as f64))),
    ];
    lake.table("kinds.parquet", columns);
    let text = proposed(&lake, "kinds.parquet", &[]);
    assert_eq!(value(&text, "weight"), "\"weight\"");
    assert!(!text.contains("connected"), "users are no items: {text}");
}

#[test]
fn points_on_a_globe_get_three_coordinates() {
    let lake = Lake::new();
    let rows = || (0..400i64).map(|k| k as f64);
    let columns = vec![
        (
            "name",
            texts(rows().map(|k| format!("place {}", k as i64 / 2))),
        ),
        ("latitude", floats(rows().map(|k| 80.0 * (k * 0.7).sin()))),
        ("longitude", floats(rows().map(|k| 170.0 * (k * 1.3).sin()))),
    ];
    lake.table("places.parquet", columns);
    let text = proposed(&lake, "places.parquet", &[]);
    let z = "sin(radians(\\\"latitude\\\")) AS z";
    assert!(value(&text, "sql").contains(z), "{text}");
    assert_eq!(value(&text, "coordinates"), "[\"x\", \"y\", \"z\"]");
    assert!(text.contains("rows are numbered"), "{text}");
    let columns = vec![
        ("id", integers(0..300)),
        ("a", floats((0..300).map(|k| f64::from(k).sin()))),
        ("b", floats((0..300).map(|k| f64::from(k).cos()))),
    ];
    lake.table("shapes.parquet", columns);
    let text = proposed(&lake, "shapes.parquet", &[]);
    assert_eq!(value(&text, "id"), "\"id\"");
    assert_eq!(value(&text, "coordinates"), "[\"a\", \"b\"]");
}

/// Names with quotes, keywords, other alphabets and line breaks are quoted.
#[test]
fn hostile_names_are_quoted() {
    let lake = Lake::new();
    let rows = || (0..20 * 40i64).map(|row| (row / 40, row % 40));
    let columns = vec![
        ("Track \"id\"\n", integers(rows().map(|row| row.0))),
        ("order", integers(rows().map(|row| row.1))),
        (
            "состояние",
            texts(rows().map(|(id, t)| ((id + t * t / 5) % 3).to_string())),
        ),
        ("${HOME}", texts(rows().map(|_| "x"))),
    ];
    lake.table("a \"b\" 'c'.parquet", columns);
    let text = proposed(&lake, "a \"b\" 'c'.parquet", &[]);
    assert_eq!(value(&text, "trajectory"), "\"Track \\\"id\\\"\\n\"");
    assert_eq!(value(&text, "state"), "\"состояние\"");
    assert!(text.contains("# The column ${HOME} is left out"), "{text}");
}

#[test]
fn folders_of_all_formats_are_read() {
    let lake = Lake::new();
    for year in [2023, 2024] {
        let name = format!("lake/year={year}/a.parquet");
        let rows = (0..10 * 40).map(|row| (row / 40, row % 40));
        let rows = rows.map(|(id, t)| [id, t + 1000 * year, (id + t * t / 5) % 4]);
        lake.integers(&name, ["id", "t", "state"], rows);
    }
    let text = proposed(&lake, "lake/", &[]);
    assert!(text.contains("# partition_by = [\"year\"]"), "{text}");
    let text = text.replace("# partition_by", "partition_by");
    lake.file("p.toml", &text).runs(&["job.output=years"]);
    // The results of a folder go beside it, also if it is the current one.
    let inside = |arguments: &[&str]| {
        let mut command = lake.command(arguments);
        let ran = command.current_dir(lake.path("lake")).output();
        ProgramRun::of(ran.expect("the program starts")).succeeds();
    };
    inside(&["init", ".", "-o", "p.toml"]);
    inside(&["run", "p.toml"]);
    assert!(lake.path("out/rows/current").exists());
    std::fs::create_dir(lake.path("rows")).expect("a folder");
    let line = |k: i64| {
        let (id, step, state) = (k / 40, k % 40, k * k % 5);
        format!("{{\"id\": {id}, \"step\": {step}, \"state\": \"s{state}\"}}\n")
    };
    lake.file("rows/a.json", &(0..400).map(line).collect::<String>());
    let text = proposed(&lake, "rows", &[]);
    assert_eq!(value(&text, "format"), "\"json\"");
}

#[test]
fn tables_without_roles_are_errors() {
    let lake = Lake::new();
    lake.line("init none.parquet").fails(1, "none.parquet");
    lake.table("one.parquet", vec![("a", floats([0.5, 1.5]))]);
    let error = lake.line("init one.parquet");
    error.fails(1, "no column looks like a time");
    error.fails(1, "the columns are `a` (Float64)");
    lake.line("init one.parquet --kind pairs")
        .fails(1, "no column looks like a source and a target");
    lake.table("empty.parquet", vec![("t", integers([]))]);
    lake.line("init empty.parquet").fails(1, "has no rows");
    lake.table(
        "twice.parquet",
        vec![("t", integers([1, 1, 2])), ("x", floats([0.0, 1.0, 2.0]))],
    );
    lake.line("init twice.parquet")
        .fails(1, "several rows have the same `t`");
    lake.table(
        "words.parquet",
        vec![
            ("time", texts(["soon", "now", "late"].map(String::from))),
            ("state", integers([1, 2, 1])),
        ],
    );
    lake.line("init words.parquet --time time")
        .fails(1, "and `time` is Utf8View; make whole numbers of it in SQL");
    lake.line("init one.parquet --kind no")
        .fails(2, "possible values");
}

/// Names of columns: some say a role, some are words of SQL, some say nothing.
const NAMES: &str = "id,t,time,source,target,count,weight,lon,lat,x,state,select,Größe,a b,y,row,\
                     lag,map_embedding";

/// The values of a column: what they are, how many differ, and where nulls are.
fn values() -> impl Strategy<Value = (u8, i64, i64)> {
    (0..4u8, select(vec![1i64, 2, 5, 1000]), 0..9i64)
}

fn array((kind, distinct, null): (u8, i64, i64), rows: i64) -> ArrayRef {
    let value = |row: i64| (row * row * 7 + row) % distinct;
    let is_null = |row: i64| null > 6 && row % null == 0;
    let of = (0..rows).map(|row| (!is_null(row)).then(|| value(row)));
    match kind {
        0 => integers_or_null(of),
        1 => floats(of.map(|v| v.map(|v| v as f64 / 3.0))),
        2 => texts_or_null(of.map(|v| v.map(|v| format!("v{v}")))),
        _ => {
            let hours = of.map(|v| v.map(|v| v * 3_600_000_000));
            Arc::new(TimestampMicrosecondArray::from_iter(hours))
        }
    }
}

/// Files that repeat their times, without a column that tells them apart, are trajectories.
#[test]
fn files_without_an_id_are_trajectories() {
    let lake = Lake::new();
    for run in 0..3i64 {
        let rows = || 0..60i64;
        let columns = vec![
            ("frame", integers(rows())),
            (
                "x",
                floats(rows().map(|t| (0.3 * t as f64 + run as f64).sin())),
            ),
            (
                "y",
                floats(rows().map(|t| (0.3 * t as f64 + run as f64).cos())),
            ),
        ];
        lake.table(&format!("runs/{run}.parquet"), columns);
    }
    let text = proposed(&lake, "runs", &[]);
    assert_eq!(value(&text, "filename"), "\"filename\"", "{text}");
    assert_eq!(value(&text, "trajectory"), "\"filename\"", "{text}");
    // One file needs no such column.
    assert!(!proposed(&lake, "runs/0.parquet", &[]).contains("filename"));
}

/// Values for missing ones are null, and the boxes are those of the others.
#[test]
fn values_for_missing_ones_are_proposed() {
    let lake = Lake::new();
    let rows = || 0..400i64;
    let gap = |t: i64, x: f64, fill: f64| if t % 9 == 4 { fill } else { x };
    let columns = vec![
        ("time", integers(rows())),
        (
            "temp",
            floats(rows().map(|t| gap(t, 10.0 + (0.1 * t as f64).sin(), -9999.0))),
        ),
        (
            "salt",
            floats(rows().map(|t| gap(t, 30.0 + (0.2 * t as f64).cos(), 1e20))),
        ),
    ];
    lake.table("cast.parquet", columns);
    let text = proposed(&lake, "cast.parquet", &[]);
    let null = "{ \"salt\" = [1e20], \"temp\" = [-9999] }";
    assert_eq!(value(&text, "null"), null, "{text}");
    assert!(
        value(&text, "\"temp\"").starts_with("{ bounds = [9"),
        "{text}"
    );
    let csv = |t: i64| {
        format!(
            "{t},{}\n",
            if t % 5 == 2 {
                "NA".into()
            } else {
                (t % 7).to_string()
            }
        )
    };
    lake.file(
        "codes.csv",
        &("time,state\n".to_string() + &rows().map(csv).collect::<String>()),
    );
    let text = proposed(&lake, "codes.csv", &[]);
    assert_eq!(value(&text, "null"), "{ \"state\" = [\"NA\"] }", "{text}");
}

/// Microseconds as a column of timestamps.
fn seconds(rows: impl Iterator<Item = i64>) -> ArrayRef {
    let rows = rows.map(|second| second * 1_000_000);
    Arc::new(TimestampMicrosecondArray::from_iter_values(rows))
}

/// Several rows of a user at one time are ordered by a second column. Pauses between visits are
/// long.
#[test]
fn rows_at_one_time_get_a_second_column() {
    let lake = Lake::new();
    // User, row, second, number of the row at its time.
    let mut rows: Vec<(i64, i64, i64, i64)> = Vec::new();
    for user in 0..20 {
        let mut second = 0;
        for row in 0..60 {
            second += if row % 10 == 0 {
                86_400
            } else {
                5 + 3 * row * row % 17
            };
            rows.push((user, row, second, 0));
            if row % 6 == 0 {
                rows.push((user, row, second, 1));
            }
            if row % 10 == 3 {
                rows.push((user, row, second, 0));
            }
        }
    }
    let page = |(user, row, _, n): (i64, i64, i64, i64)| {
        ["home", "list", "item", "cart"][((user + row * row / 3 + n) % 4) as usize]
    };
    let columns = vec![
        ("user", integers(rows.iter().map(|row| row.0))),
        ("time", seconds(rows.iter().map(|row| row.2))),
        ("n", integers(rows.iter().map(|row| row.3))),
        ("page", texts(rows.iter().map(|row| page(*row)))),
    ];
    lake.table("clicks.parquet", columns);
    let text = proposed(&lake, "clicks.parquet", &[]);
    assert_eq!(value(&text, "trajectory"), "\"user\"", "{text}");
    assert_eq!(value(&text, "time"), "[\"time\", \"n\"]", "{text}");
    assert_eq!(value(&text, "duplicates"), "\"first\"", "{text}");
    // 20 users × (10 + 6) rows, 6 of which are equal to another one.
    let why = "320 rows repeat a time; 120 of them are equal to another row in all columns";
    assert!(text.contains(why), "{text}");
    assert_eq!(value(&text, "lag"), "\"1 step\"", "{text}");
    assert_eq!(value(&text, "# max_gap"), "\"30min\"", "{text}");
    let with_gap = text.replace("# max_gap", "max_gap");
    lake.file("p.toml", &with_gap).runs(&["job.output=gaps"]);
    let text = proposed(&lake, "clicks.parquet", &["--kind", "sequences"]);
    assert_eq!(value(&text, "duplicates"), "\"first\"", "{text}");
    // Without the number, nothing orders the rows.
    let columns = vec![
        ("user", integers(rows.iter().map(|row| row.0))),
        ("time", seconds(rows.iter().map(|row| row.2))),
        ("page", texts(rows.iter().map(|row| page(*row)))),
    ];
    lake.table("unordered.parquet", columns);
    lake.line("init unordered.parquet")
        .fails(1, "several rows have the same `time`");
}

/// Hourly rows whose times are up to 20 s early or late.
#[test]
fn times_that_jitter_get_a_tolerance() {
    let lake = Lake::new();
    let rows = || (0..4 * 200i64).map(|row| (row / 200, row % 200));
    let time = |(id, t): (i64, i64)| 3600 * t + (7 * t * t + 13 * id) % 41 - 20;
    let wave = |(id, t): (i64, i64), by: f64| (by * t as f64 + id as f64).sin();
    let columns = vec![
        ("station", texts(rows().map(|row| format!("s{}", row.0)))),
        ("time", seconds(rows().map(time))),
        ("temp", floats(rows().map(|row| 10.0 + wave(row, 0.1)))),
        ("salt", floats(rows().map(|row| 30.0 + wave(row, 0.17)))),
    ];
    lake.table("casts.parquet", columns);
    let text = proposed(&lake, "casts.parquet", &[]);
    assert_eq!(value(&text, "lag"), "\"10h\"", "{text}");
    // Ten rows later, 98 % of those that are not in time are at most 38 s away.
    assert_eq!(value(&text, "tolerance"), "\"38s\"", "{text}");
    let why = "10 steps: most rows are about 1h after the row before";
    assert!(text.contains(why), "{text}");
    assert!(!text.contains("max_gap"), "{text}");
    let ran = lake.runs(&["job.output=all", "transitions.tolerance=20min"]);
    // Each row but the last ten of each of four stations finds another.
    ran.says(": 760 transitions in 800 rows");
}

/// The names of many columns are not compared with each other.
#[test]
fn thousands_of_columns_get_a_pipeline() {
    let lake = Lake::new();
    let names: Vec<String> = (0..3000).map(|at| format!("c{at}")).collect();
    let columns = names.iter().enumerate().map(|(at, name)| {
        (
            name.as_str(),
            floats((0..40).map(move |t| ((at + 1) as f64 * f64::from(t)).sin())),
        )
    });
    let time = std::iter::once(("time", integers(0..40)));
    lake.table("wide.parquet", time.chain(columns).collect());
    let text = proposed(&lake, "wide.parquet", &[]);
    assert_eq!(value(&text, "time"), "\"time\"", "{text}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Any table gets a pipeline that passes its check, or an error that says what is missing.
    #[test]
    fn any_table_gets_a_pipeline_or_a_reason(
        columns in proptest::collection::btree_map(select(NAMES.split(',').collect::<Vec<_>>()), values(), 1..6),
        rows in 1..80i64,
        kind in select(vec!["", "transitions", "pairs", "points", "sequences"]),
    ) {
        let lake = Lake::new();
        let of = columns.iter().map(|(name, values)| (*name, array(*values, rows)));
        lake.table("rows.parquet", of.collect());
        let mut arguments = vec!["init", "rows.parquet", "-o", "p.toml"];
        if !kind.is_empty() {
            arguments.extend(["--kind", kind]);
        }
        let made = lake.gyre(&arguments);
        if made.code == Some(0) {
            let checked = lake.call("check", &[]);
            prop_assert_eq!(checked.code, Some(0), "{}", checked.err);
        } else {
            prop_assert_eq!(made.code, Some(1), "{}", made.err);
            prop_assert!(!made.err.contains("the proposed pipeline is wrong"), "{}", made.err);
            prop_assert!(!lake.path("p.toml").exists());
        }
    }
}
