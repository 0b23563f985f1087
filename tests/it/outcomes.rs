//! Runs without transitions, failed runs and runs that can never write a result: their exit codes
//! and the files that they leave.

use crate::cli::{integers, small_lake, small_pipeline, write_changed};
use crate::inside::{InProcess, Schedule, assert_equal_results, run_in, run_with};
use crate::lake::{Lake, cases, floats};
use gyre::run::workers::Workers;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Every path below a folder, with the targets of links.
fn all_paths(folder: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let link = fs::read_link(&path);
        all.insert(format!("{} {link:?}", path.display()));
        if path.is_dir() && link.is_err() {
            all.extend(all_paths(&path));
        }
    }
    all
}

/// The records of runs that are not in `known`, in the order of their names.
fn records(lake: &Lake, known: &[Value]) -> Vec<Value> {
    let mut paths: Vec<_> = fs::read_dir(lake.path("out/runs"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    paths.sort();
    let read = |path: &std::path::PathBuf| -> Value {
        let text = fs::read_to_string(path).expect("a record");
        let record: Value = serde_json::from_str(&text).expect("JSON");
        let name = path.file_stem().expect("a name").to_string_lossy();
        assert_eq!(record["id"].as_str(), Some(&*name));
        record
    };
    let all = paths.iter().map(read);
    all.filter(|record| known.iter().all(|known| known["id"] != record["id"]))
        .collect()
}

#[test]
fn a_run_that_fails_leaves_a_record_and_the_earlier_result() {
    // Assignments, the kind and the code of the error, and the outcomes of checks in the record.
    let failures: [(&[&str], &str, i32, &[bool]); 6] = [
        (&["checks.min_rows=1000"], "check", 3, &[false]),
        (
            &["checks.max_dropped={value=0.5}", "checks.min_rows=1000"],
            "check",
            3,
            &[false, true],
        ),
        (&["transitions.lag=5000"], "input", 1, &[]),
        (&["fit.dbmr.rank=100", "fit.svd.rank=100"], "input", 1, &[]),
        (
            &["transitions.sql=SELECT * FROM rows WHERE id > 9"],
            "input",
            1,
            &[],
        ),
        (
            &["transitions.sql=SELECT id, t, state, 1 / (state - 1) AS x FROM rows"],
            "input",
            1,
            &[],
        ),
    ];
    for (set, kind, code, checks) in failures {
        let lake = Lake::new();
        small_pipeline(&lake).runs(&[]);
        let before = (lake.tables(), lake.record());
        assert_eq!(before.1["outcome"], "done");
        let pointer = lake.bytes("out/current.json");
        let mut arguments = vec!["run", "p.toml", "--metrics", "m.prom"];
        set.iter().for_each(|set| arguments.extend(["--set", *set]));
        let ran = lake.gyre(&arguments);
        if ran.code == Some(0) {
            // The query does not need the last column of this SQL, so the run succeeds.
            assert!(set[0].contains("AS x"), "{set:?}");
            continue;
        }
        ran.fails(code, "error: ");

        let new = records(&lake, std::slice::from_ref(&before.1));
        let [failed] = &new[..] else {
            panic!("{} new records of {set:?}", new.len());
        };
        assert_eq!(failed["outcome"], "failed", "{set:?}");
        assert_eq!(failed["error"]["kind"], kind, "{set:?}");
        assert_eq!(failed["error"]["exit_code"], code, "{set:?}");
        let message = failed["error"]["message"].as_str().expect("a message");
        ran.logs(&format!("error: {message}\n"));
        let passed: Vec<&Value> = failed["checks"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|check| {
                assert!(check["value"].is_f64(), "{check}");
                &check["passed"]
            })
            .collect();
        assert_eq!(passed, checks, "{set:?}");

        // The current result is unchanged and up to date with its pipeline.
        assert!((lake.tables(), lake.record()) == before, "{set:?}");
        let now = lake.bytes("out/current.json");
        assert!(now == pointer, "{set:?}");
        lake.runs(&[]).prints("Nothing to do.\n");
        // The next result is compared with the one before the failure. Cleaning removes neither
        // records nor versions.
        lake.line("run p.toml --seed 1").succeeds();
        let events: BTreeSet<String> = lake.read("sets").texts("event").into_iter().collect();
        assert_eq!(events, ["kept".to_string()].into());
        lake.line("clean p.toml --older-than 0s").succeeds();
        assert_eq!(records(&lake, &[]).len(), 3, "{set:?}");
        let paths = all_paths(&lake.path("out/versions"));
        let finished = paths.iter().filter(|path| path.contains("_SUCCESS"));
        assert_eq!(finished.count(), 22);
    }
}

/// The rows of trajectory 2 are a separate partition, in which only one row has a time.
const SEPARATE_PARTITION: [(&str, &str); 2] = [
    (
        "SELECT *",
        "SELECT id, state, CASE WHEN id = 2 AND t > $last THEN NULL ELSE t END AS t, CASE WHEN id = 2 THEN 'small' ELSE 'large' END AS size",
    ),
    (
        "lag = 1",
        "lag = [1, 2]\npartition_by = \"size\"\nparameters = { last = 0 }",
    ),
];

#[test]
fn a_partition_without_transitions_is_skipped_or_fails() {
    let lake = Lake::new();
    write_changed(&lake, &SEPARATE_PARTITION, "");
    let ran = lake.runs(&[]);
    let message =
        "\n2 models without a transition left out: size=small, lag 1; size=small, lag 2\n";
    ran.says(message);
    assert_eq!(ran.err, "");
    assert_eq!(lake.read("fits").texts("size"), ["large"; 4]);
    let found = lake.record();
    let empty = |record: &Value| -> Vec<(String, bool)> {
        let all = record["empty"].as_array().into_iter().flatten();
        all.map(|e| {
            let had = e["had_model"].as_bool().expect("a flag");
            (e["partition"].as_str().expect("a place").to_string(), had)
        })
        .collect()
    };
    let at = |lag: usize, had: bool| (format!("size=small, lag {lag}"), had);
    assert_eq!(empty(&found), [at(1, false), at(2, false)]);
    assert_eq!(found["failures"], Value::Array(Vec::new()));
    lake.runs(&[]).prints("Nothing to do.\n");

    // At lag 1, one transition is enough for a model. The next run does not have it any more. Both
    // runs report this.
    let options = [
        "transitions.parameters.last=1",
        "fit.dbmr.rank=1",
        "fit.svd.rank=1",
    ];
    let ran = lake.runs(&options);
    ran.says("\n1 model without a transition left out: size=small, lag 2\n");
    assert_eq!(ran.err, "");
    let ran = lake.runs(&[]);
    assert_eq!(empty(&lake.record()), [at(1, true), at(2, false)]);
    let warning = "there is no transition, but the current result has a model partition=\"size=small, lag 1\"";
    ran.logs("WARN");
    ran.logs(warning);
    let gone = "in the earlier result and not in this one";
    assert!(!ran.out.contains(gone), "{}", ran.out);

    // As a failure, it is reported once, and the other models are written.
    let ran = lake.run(&["transitions.empty=fail"]);
    let none = "there is no transition at this lag";
    ran.fails(1, none);
    assert_eq!(ran.err.matches(none).count(), 2, "{}", ran.err);
    assert!(!ran.out.contains("there is no transition"), "{}", ran.out);
    ran.says("\n2 of 4 models failed: size=small, lag 1; size=small, lag 2; see out/runs/");
    assert_eq!(lake.run(&["transitions.empty=fail"]).code, Some(1));

    // Without any transition there is no result.
    for keep in ["skip", "fail"] {
        let set = format!("transitions.empty={keep}");
        let none = [&set, "transitions.lag=900"];
        let ran = lake.run(&none);
        ran.fails(1, "error: no transition was found in 600 rows");
    }
    lake.call("check", &["transitions.empty=ignore"])
        .fails(2, "`transitions.empty` cannot be \"ignore\"");
}

/// Several increments with new files: a partition gets a model as soon as it has a pair.
#[test]
fn an_increment_fills_an_empty_partition() {
    let lake = Lake::new();
    let night = |n: i64| {
        let rows = (0..40).filter(|k| k % 4 > 0 || k / 4 == n).map(|k| {
            let t = 100 * n * i64::from(k % 4 > 0) + k / 4;
            [i64::from(k % 4 == 0), k % 4, t, (k * k + k / 3 + n) % 3]
        });
        let columns = ["part", "id", "t", "state"];
        lake.integers(&format!("rows/{n}.parquet"), columns, rows);
    };
    night(0);
    let changes = [
        ("path = \"rows.parquet\"", "path = \"rows/\""),
        (
            "output = \"${OUT:-out}\"",
            "output = \"out\"\nincremental = true",
        ),
        ("lag = 1", "lag = 1\npartition_by = \"part\""),
        ("rank = 2", "rank = 1"),
        ("rank = 2", "rank = 1"),
    ];
    write_changed(&lake, &changes, "");
    lake.runs(&[])
        .says("1 model without a transition left out: part=1, lag 1");
    night(1);
    let ran = lake.runs(&[]);
    assert!(!ran.out.contains("left out"), "{}", ran.out);
    assert_eq!(lake.read("fits").integers("part"), [0, 0, 1, 1]);
    let increment = (lake.tables(), lake.record()["increment"]["files"].clone());
    assert_eq!(increment.1, 1);
    lake.line("run p.toml --full-refresh").succeeds();
    assert!(lake.tables() == increment.0);
}

#[tokio::test]
async fn tasks_skip_the_same_models() {
    let lake = Lake::new();
    write_changed(&lake, &SEPARATE_PARTITION, "");
    let text = lake.text("p.toml");
    let text = text.replace("${OUT:-out}", "FOLDER/out");
    let text = text.replace("path = \"rows.parquet\"", "path = \"FOLDER/rows.parquet\"");
    let in_process = run_in(&lake, &text, None).await.expect("a run");
    assert_eq!(in_process.record["empty"].as_array().map(Vec::len), Some(2));
    let nodes = InProcess::new(Schedule::InOrder);
    let tasks = run_in(&lake, &text, Some(nodes)).await.expect("a run");
    assert_equal_results(&tasks, &in_process, &"an empty partition");
    let fails = text.replace("lag = [1, 2]", "lag = [1, 2]\nempty = \"fail\"");
    let in_process = run_in(&lake, &fails, None).await.expect("a run");
    let failures = in_process.record["failures"].as_array();
    assert_eq!(failures.map(Vec::len), Some(2));
    let tasks = run_in(&lake, &fails, Some(InProcess::new(Schedule::InOrder))).await;
    let tasks = tasks.expect("a run");
    assert_equal_results(&tasks, &in_process, &"an empty partition that fails");
}

/// For outputs that can never be written, every command that checks the output fails first, and no
/// file is written.
#[cfg(target_os = "linux")]
#[test]
fn an_unwritable_output_is_found_before_any_work() {
    let lake = Lake::new();
    small_pipeline(&lake).file("plain", "text");
    for folder in ["sources", "link", "versions", "empty"] {
        fs::create_dir_all(lake.path(&format!("{folder}/out"))).expect("a folder");
    }
    fs::create_dir_all(lake.path("sources/out/sources/sub")).expect("a folder");
    fs::create_dir_all(lake.path("link/out/current/sub")).expect("a folder");
    fs::create_dir_all(lake.path("empty/out/current")).expect("a folder");
    lake.file("versions/out/versions", "text");
    std::os::unix::fs::symlink("nowhere", lake.path("dangling")).expect("a link");
    let table = r#"
        /proc/x | is a system file system, which holds no files
        /proc/x/y/z | /proc is a system file system
        /sys/x | is a system file system, which holds no files
        plain | plain is not a folder
        plain/out/deep | plain is not a folder
        dangling | is a link that leads nowhere
        dangling/out | is a link that leads nowhere
        sources/out | sources/out/sources is where gyre must create a link; move it away
        link/out | link/out/current is where gyre must create a link; move it away
        versions/out | versions/out/versions is not a folder
    "#;
    let before = all_paths(lake.folder.path());
    for [place, message] in cases(table) {
        let set = format!("job.output={place}");
        for command in ["check", "plan", "run"] {
            lake.gyre(&[command, "p.toml", "--set", &set])
                .fails(2, &message);
        }
    }
    assert_eq!(all_paths(lake.folder.path()), before);
    // An empty folder may become an output, and a missing one is created.
    for place in ["empty/out", "new/one/out"] {
        let set = format!("job.output={place}");
        for command in ["check", "plan", "run"] {
            lake.gyre(&[command, "p.toml", "--set", &set]).succeeds();
        }
    }
}

#[test]
fn a_missing_output_of_names_stops_the_run() {
    let lake = Lake::new();
    small_pipeline(&lake).file("plain", "text");
    fs::create_dir(lake.path("folder")).expect("a folder");
    let before = all_paths(lake.folder.path());
    for place in ["missing", "plain", "plain/below", "folder", "rows.parquet"] {
        let set = format!("names.from={place}");
        let message = format!("`names.from`: there is no output of gyre at {place}");
        for command in ["check", "plan", "run"] {
            lake.gyre(&[command, "p.toml", "--set", &set])
                .fails(2, &message);
        }
    }
    assert_eq!(all_paths(lake.folder.path()), before);
}

#[test]
fn comparing_writes_nothing() {
    let lake = Lake::new();
    small_pipeline(&lake).file("plain", "text");
    fs::create_dir(lake.path("folder")).expect("a folder");
    lake.runs(&[]);
    let before = all_paths(lake.folder.path());
    lake.line("compare out out").succeeds();
    for place in [
        "missing",
        "missing/deep",
        "plain",
        "plain/below",
        "folder",
        "/proc/x",
    ] {
        let message = format!("there is no output of gyre at {place}: give the output of a run");
        lake.gyre(&["compare", "out", place]).fails(1, &message);
        lake.gyre(&["compare", place, "out"]).fails(1, &message);
    }
    assert_eq!(all_paths(lake.folder.path()), before);
}

#[test]
fn all_errors_of_a_pipeline_file_are_reported_together() {
    let lake = small_lake();
    lake.file(
        "p.toml",
        r#"[job]
name = "a b"
output = "out"
sed = 3
[tables.rows]
path = "s4://x"
[tables.more]
paht = "rows.parquet"
[transitions]
sql = "SELECT * FROM rows"
time = "t"
state = "state"
lag = "one"
windw = "sliding"
[[fit]]
name = "dbmr"
method = "dbmr"
rank = 0
[[fit]]
name = "svd"
method = "svd"
rank = "auto"
rule = "heldout"
[[fit]]
name = "lag"
method = "given"
[validation]
folds = 1
[nmaes]
from = "none"
"#,
    );
    let ran = lake.call("check", &[]);
    ran.fails(2, "error: 11 errors\n");
    let lines: Vec<&str> = ran.err.lines().skip(1).map(str::trim).collect();
    let at = |line: usize| format!("p.toml:{line}: ");
    for line in [2, 4, 6, 8, 13, 14, 18, 23, 24, 28, 29] {
        let found = lines
            .iter()
            .filter(|text| text.starts_with(&at(line)))
            .count();
        assert_eq!(found, 1, "line {line}\n{}", ran.err);
    }
    ran.logs("the table `fit.lag` needs the key `affiliation`");
    let rules = "`fit.svd.rule` must be one of \"gap\", \"held-out\", \"vamp2\", \"bic\", \"aic\", not \"heldout\"";
    ran.logs(rules);
    // A single error keeps its format.
    write_changed(&lake, &[("rank = 2", "rank = 0")], "");
    let ran = lake.call("check", &[]);
    let expected = "error: p.toml:19: `fit.dbmr.rank` must be at least 1, not 0\n";
    assert_eq!(ran.err, expected);
}

#[test]
fn a_rank_is_selected_by_the_default_rule() {
    let lake = Lake::new();
    write_changed(
        &lake,
        &[
            ("rank = 2", "rank = \"auto\""),
            ("rank = 2", "rank = \"auto\"\nranks = [2, 3]"),
        ],
        "",
    );
    lake.runs(&[]).says(" of 2, 3, 4, 5, 6 by gap: ");
    write_changed(
        &lake,
        &[("rank = 2", "rank = \"auto\"\nranks = [2, 3]")],
        "[validation]\nfolds = 3",
    );
    lake.runs(&[]).says(" of 2, 3 by held-out: ");
}

/// Resamples of a few trajectories have a higher coherence than all trajectories together.
#[test]
fn an_interval_that_excludes_its_value_is_explained() {
    // Each pair occurs once, so a resample contains about two thirds of the pairs.
    let lake = Lake::new();
    let pairs = (0..200).map(|k| [k * 7 % 30, (k * k + k / 30) % 30]);
    lake.integers("pairs.parquet", ["a", "b"], pairs);
    let fit = "[[fit]]\nname = \"svd\"\nmethod = \"svd\"\nrank = 3";
    let text = format!(
        "[job]\nname = \"p\"\noutput = \"out\"\n[tables.pairs]\npath = \"pairs.parquet\"\n[transitions]\nsql = \"SELECT * FROM pairs\"\nsource = \"a\"\ntarget = \"b\"\n[validation]\nbootstrap = 20\nconfidence = 0.5\n{fit}\n"
    );
    lake.file("p.toml", &text);
    let ran = lake.runs(&[]);
    let bootstrap = lake.read("bootstrap");
    let column = |name: &str| bootstrap.floats(name);
    let (value, low, high) = (column("value"), column("low"), column("high"));
    let shown = ["coherence", "objective"];
    let names = bootstrap.texts("metric").into_iter().enumerate();
    let of: Vec<usize> = names
        .filter(|(_, m)| shown.contains(&m.as_str()))
        .map(|(at, _)| at)
        .collect();
    let below = of.iter().filter(|&&at| value[at] < low[at]).count();
    let above = of.iter().filter(|&&at| value[at] > high[at]).count();
    assert!(below + above > 0, "every interval contains its value");
    let second = |what: &str| ran.out.matches(what).count();
    let why_below = ", which is less: a resample has some trajectories more than once";
    let why_above = ", which is more: a resample lacks some trajectories";
    assert!(second(why_below) >= below, "{}", ran.out);
    assert!(second(why_above) >= above, "{}", ran.out);
}

/// Pipelines of every kind of rows with two partitions, of which the second cannot be fitted: the
/// rows, the fit and the error.
const TWO_PARTITIONS: &str = r#"
    [transitions]\nsql = "SELECT part, id, t, s * (1 - part) AS s FROM rows"\ntrajectory = "id"\ntime = "t"\nstate = "s"\nlag = 1 | method = "dbmr"\nrank = 2 | rank 2 is larger than the number of states
    [transitions]\nsql = "SELECT part, id, t, u * (1 - part) AS x, (s + u) * (1 - part) AS y FROM rows"\ntrajectory = "id"\ntime = "t"\ncoordinates = ["x", "y"]\nlag = 1 | method = "state_embedding"\nrank = 2\nfeatures = 40 | there are no two distinct points
    [points]\nsql = "SELECT part, id * 100 + t AS key, s, t FROM rows WHERE part = 0 OR (id = 0 AND t = 0)"\nid = "key"\ncoordinates = ["t", "s"] | method = "diffusion_map"\ndimension = 2 | a kernel needs 2 distinct points
    [sequences]\nsql = "SELECT part, id, t, CASE part WHEN 1 THEN s % 2 ELSE s END AS s FROM rows"\ntrajectory = "id"\ntime = "t"\nsymbol = "s" | method = "spectral_hmm"\nrank = 3 | rank 3 is above the numerical rank 2
    [sequences]\nsql = "SELECT part, id, t, s FROM rows WHERE part = 0 OR id = 0"\ntrajectory = "id"\ntime = "t"\nsymbol = "s" | method = "spectral_hmm"\nrank = "auto"\nranks = [1, 2] | holds trajectories out, and only 1 trajectory has windows
    [sequences]\nsql = "SELECT part, id, t, s * (1 - part) AS s, s + t % 3 AS x FROM rows"\ntrajectory = "id"\ntime = "t"\nstate = "s"\nobservation = "x" | method = "kernel_bayes"\nlambda = 0.01 | all training rows have the same state
    [sequences]\nsql = "SELECT part, id, t, u + CASE WHEN part = 1 AND t = 4 THEN 1e200 ELSE 0 END AS y, s + t % 3 AS x FROM rows"\ntrajectory = "id"\ntime = "t"\nstate = "y"\nobservation = "x" | method = "kalman" | the state `y` is 1e200 in the training row (0, 4)
"#;

/// A partition that cannot be fitted is recorded, and the other one is put in place.
#[tokio::test]
async fn a_partition_that_fails_stops_no_other() {
    for [rows, fit, message] in cases(TWO_PARTITIONS) {
        let lake = Lake::new();
        let all = || (0..2 * 8 * 30i64).map(|k| (k / 240, k / 30 % 8, k % 30));
        // The golden ratio times the square of a number has no pattern.
        let uniform = (0..2 * 8 * 30).map(|k| Some((f64::from(k * k) * 0.618_033_988_75).fract()));
        let columns = vec![
            ("part", integers(all().map(|(part, ..)| part))),
            ("id", integers(all().map(|(_, id, _)| id))),
            ("t", integers(all().map(|(.., t)| t))),
            (
                "s",
                integers(all().map(|(_, id, t)| (id * 7 + t * t + t / 5) % 5)),
            ),
            ("u", floats(uniform)),
        ];
        lake.table("rows.parquet", columns);
        let text = format!(
            "[job]\nname = \"two\"\noutput = \"FOLDER/out\"\n[tables.rows]\npath = \"FOLDER/rows.parquet\"\n{rows}\npartition_by = \"part\"\n[[fit]]\nname = \"one\"\n{fit}\n"
        );
        let folder = lake.folder.path().display().to_string();
        lake.file("p.toml", &text.replace("FOLDER", &folder));
        for _ in 0..2 {
            // The result is incomplete, so that the second run is not up to date.
            let ran = lake.run(&[]);
            ran.fails(1, &message);
            assert!(ran.err.contains("part=1"), "{fit}: {}", ran.err);
            ran.says("\n1 of 2 models failed: part=1");
        }
        assert_eq!(lake.read("fits").integers("part"), [0], "{fit}");
        // Alone, it is the error of the run.
        let alone = text.replace("FROM rows", "FROM (SELECT * FROM rows WHERE part = 1) AS r");
        lake.file("q.toml", &alone.replace("FOLDER", &folder));
        lake.line("run q.toml --set job.output=other")
            .fails(1, "error: ");
        assert!(!lake.path("other/current.json").exists());
        fs::remove_dir_all(lake.path("out")).expect("the output is removed");
        let (local, record) = run_with(&lake, &text, Workers::Local).await.expect("a run");
        let workers = Workers::Remote {
            nodes: InProcess::new(Schedule::InOrder),
            split: u64::MAX,
        };
        let (tasks, other) = run_with(&lake, &text, workers).await.expect("a run");
        assert!(tasks == local, "{fit}");
        assert_eq!(other["failures"], record["failures"], "{fit}");
        let failures = record["failures"].as_array().map(Vec::len);
        assert_eq!(failures, Some(1), "{fit}");
    }
}
