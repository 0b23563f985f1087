//! What a run would take on a cluster, before it does anything, and what its tasks weigh.

use crate::cli::{integers, small_pipeline};
use crate::lake::Lake;
use crate::machines::Machines;
use crate::passes::{PAIRS, blocks, pipeline};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// A text whose numbers may change.
fn shape(text: &str) -> String {
    let mut shape = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let number = &rest[start..];
        let is_other = |c: char| !c.is_ascii_digit() && !".,".contains(c);
        let end = number.find(is_other).unwrap_or(number.len());
        let end = number[..end].trim_end_matches(['.', ',']).len();
        shape += &rest[..start];
        shape.push('#');
        rest = &number[end..];
    }
    shape + rest
}

fn quoted(lake: &Lake, cluster: &str, more: &[&str]) -> (String, Value) {
    let plan = ["plan", "p.toml", "--cluster", cluster, "--threads", "2"];
    let plan = [&plan[..], more].concat();
    let text = lake.gyre(&plan).well().out;
    let json = lake.gyre(&[&plan[..], &["--json"]].concat()).well().out;
    let json: Value = serde_json::from_str(&json).expect("JSON");
    let start = text.find("  cluster ").expect("a quote");
    (text[start..].to_string(), json["cluster"].clone())
}

#[test]
fn a_plan_says_what_a_cluster_would_take() {
    let machines = Machines::start(2);
    let (lake, address) = (&machines.lake, &machines.scheduler.line);
    small_pipeline(lake);
    let (text, json) = quoted(lake, address, &[]);
    let text = text.replace(address.as_str(), "df://HOST:PORT");
    insta::assert_snapshot!("quote", shape(&text));
    assert!(text.contains(": 2 executors, 4 tasks at once\n"), "{text}");
    assert!(text.contains("local is faster"), "{text}");
    assert_eq!((&json["executors"], &json["slots"]), (&2.into(), &4.into()));
    assert_eq!(json["job"]["rows"], 600);
    // Six states, 36 pairs of them.
    assert_eq!(json["job"]["nonzeros"], 36);
    assert!(json["memory_bytes"].as_u64() > Some(1 << 28), "{json}");
    for side in ["here", "there"] {
        let steps = json[side].as_array().expect("steps").iter();
        let seconds: f64 = steps.filter_map(|step| step["seconds"].as_f64()).sum();
        let total = json[format!("{side}_seconds")].as_f64().expect("seconds");
        assert!((total - seconds).abs() < 1e-9, "{json}");
    }
    // Nothing is left where the output would be, nor comes later.
    std::thread::sleep(Duration::from_millis(500));
    let left = walk(&lake.path("out"));
    assert!(left.is_empty(), "{left:?}");

    let text = std::fs::read_to_string(lake.path("p.toml")).expect("a pipeline");
    let with = |keys: &str, column: &str| {
        let text = text.replace("lag = 1", keys);
        lake.file(
            "p.toml",
            &text.replace("SELECT *", &format!("SELECT *, {column}")),
        );
    };
    with("lag = 1\nweight = \"w\"", "0.5 * id AS w");
    let (told, _) = quoted(lake, address, &[]);
    let alone = "one task counts all rows, because weights are no integers";
    assert!(told.contains(alone), "{told}");
    with("lag = [1, 2]\npartition_by = \"part\"", "id AS part");
    let (_, json) = quoted(lake, address, &[]);
    // Three parts, each a model of its own at both lags.
    assert_eq!(json["job"]["models"], 6);
    assert_eq!(json["job"]["pairs"], 1200);

    let incremental = text.replace("[job]", "[job]\nincremental = true");
    lake.file("p.toml", &incremental);
    let refused = lake.gyre(&["plan", "p.toml", "--cluster", address]);
    refused.fails(2, "`job.incremental` counts new files on one machine");
    // Nothing says how many rows a text file has.
    lake.file("rows.csv", "id,t,state\n1,1,1\n1,2,2\n");
    lake.file("p.toml", &text.replace("rows.parquet", "rows.csv"));
    let (told, json) = quoted(lake, address, &[]);
    assert!(told.ends_with("how many there are\n"), "{told}");
    assert_eq!(json["here"], Value::Null);
    let nobody = lake.gyre(&["plan", "p.toml", "--cluster", "df://127.0.0.1:1"]);
    nobody.fails(75, "no scheduler answers at df://127.0.0.1:1");
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths
        .flat_map(|path| match path.is_dir() {
            true => walk(&path),
            false => vec![path],
        })
        .collect()
}

/// Transitions between so many states, and a pipeline of fits over them.
fn pairs(lake: &Lake, states: i64, fits: &str) {
    for file in 0..2 {
        let pairs = || (0..20 * states).map(move |k| (k % states, (k * k / 7 + file) % states));
        let columns = vec![
            ("a", integers(pairs().map(|(a, _)| a))),
            ("b", integers(pairs().map(|(_, b)| b))),
        ];
        lake.table(&format!("pairs/{file}.parquet"), columns);
    }
    lake.file(
        "p.toml",
        &format!(
            "[job]\nname = \"weigh\"\noutput = \"out\"\n[tables.rows]\npath = \"pairs/\"\n[transitions]\n\
             sql = \"SELECT * FROM rows\"\nsource = \"a\"\ntarget = \"b\"\n{fits}"
        ),
    );
}

/// The events of a run on a cluster, which splits models of more non-zeros than that.
fn events(machines: &Machines, split: &str) -> Vec<Value> {
    let run = ["run", "p.toml", "--force", "-v", "--log-format", "json"];
    let there = ["--cluster", &machines.scheduler.line, "--split", split];
    let ran = machines.lake.gyre(&[&run[..], &there].concat());
    let lines = ran.well().err;
    let events = lines.lines().map(serde_json::from_str);
    events.filter_map(Result::ok).collect()
}

/// The largest task of each round of a run, in bytes, as its log says; of all passes together.
fn task_bytes(machines: &Machines, states: i64, rank: usize, split: &str) -> BTreeMap<String, u64> {
    let fits = format!(
        "[[fit]]\nname = \"dbmr\"\nmethod = \"dbmr\"\nrank = {rank}\nrestarts = 2\ninit = \"random\"\n\
         polish = false\nmax_iterations = 2\n"
    );
    pairs(&machines.lake, states, &fits);
    let mut largest = BTreeMap::new();
    for event in events(machines, split) {
        let stage = match event["message"].as_str() {
            Some("a round begins") => event["stage"].as_str().unwrap_or_default(),
            Some("passes made") => "pass",
            _ => continue,
        };
        let bytes = event["task_bytes"].as_u64().expect("what tasks weigh");
        let most: &mut u64 = largest.entry(stage.to_string()).or_default();
        *most = bytes.max(*most);
    }
    largest
}

/// A task names what it works on: it weighs the same for a factor of 60 numbers and for one of 40,000.
#[test]
fn tasks_do_not_grow_with_a_model() {
    let machines = Machines::start(2);
    for (split, expected) in [
        ("1000000", &["add", "count", "fit", "sum"][..]),
        ("100", &["add", "count", "cut", "pass", "sum"]),
    ] {
        let small = task_bytes(&machines, 30, 2, split);
        let large = task_bytes(&machines, 2000, 20, split);
        println!("30 states, rank 2: {small:?}; 2,000 states, rank 20: {large:?}");
        let stages: Vec<_> = small.keys().collect();
        assert_eq!(stages, expected);
        assert_eq!(stages, large.keys().collect::<Vec<_>>());
        for (stage, bytes) in &small {
            assert!((100..5_000).contains(bytes), "{stage}: {bytes}");
            // Lengths of what is named have some digits more, and lots that were empty are not.
            let more = large[stage].abs_diff(*bytes);
            assert!(more < 2_000, "{stage}: {bytes} and {more} more");
        }
    }
}

/// Fits of passes alone.
const PASSES: &str = "[[fit]]\nname = \"svd\"\nmethod = \"svd\"\nrank = 2\n\
     [[fit]]\nname = \"dbmr\"\nmethod = \"dbmr\"\nrank = 2\nrestarts = 3\ninit = \"random\"\npolish = false\n";

#[test]
fn a_plan_knows_how_many_rounds_of_passes_a_run_makes() {
    let machines = Machines::start(2);
    let (lake, address) = (&machines.lake, &machines.scheduler.line);
    blocks(lake, 80_000, 2000);
    let file = |fits: &str| lake.file("p.toml", &pipeline(PAIRS, fits).replace("FOLDER/", ""));
    file(PASSES);
    let (text, json) = quoted(lake, address, &["--split", "1000"]);
    let told = "split: 1 model of more than 1,000 non-zeros, about ";
    assert!(text.contains(told), "{text}");
    assert!(text.contains("local is faster: "), "{text}");
    let passes = json["job"]["passes"].as_array().expect("passes").iter();
    let planned: u64 = passes.filter_map(|some| some["rounds"].as_u64()).sum();
    let events = events(&machines, "1000");
    let made = events
        .iter()
        .filter(|event| event["message"] == "passes made");
    let made = made.count() as u64;
    println!("{planned} rounds planned, {made} made\n{text}");
    assert!(
        made <= 2 * planned && planned <= 2 * made,
        "{planned}, {made}"
    );

    // No model has more than 2²⁸ non-zeros.
    let (text, _) = quoted(lake, address, &[]);
    assert!(!text.contains("split: "), "{text}");
    file(&PASSES.replace("\"random\"", "\"kl\""));
    let (text, _) = quoted(lake, address, &["--split", "1000"]);
    let why =
        "not split: 1 model of more than 1,000 non-zeros, because fit `dbmr` is no passes alone";
    assert!(text.contains(why), "{text}");
}
