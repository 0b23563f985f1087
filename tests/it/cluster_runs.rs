//! Whole runs on a real cluster of this machine, compared with runs of one process. The tables are
//! equal to the byte, also if processes die. Further tests cover what a plan prints about a cluster
//! and the size of tasks.

use crate::cli::small_pipeline;
use crate::lake::{Lake, ProgramRun, Swap, files_below, words};
use crate::machines::{Machines, Process};
use crate::needs::is_slow;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Walks with rows scattered over several files.
const WALKS: &str = r#"
job = { name = "walks", output = "out" }
tables.rows.path = "rows/"
[transitions]
sql = "SELECT * FROM rows"
trajectory = "walk"
time = "t"
state = "s"
lag = [1, 3]

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 3
restarts = 4

[[fit]]
name = "svd"
method = "svd"
rank = 3
"#;

/// Two million pairs, almost all different.
const PAIRS: &str = r#"
job = { name = "pairs", output = "out" }
tables.rows.path = "rows/"
[transitions]
sql = "SELECT value % 2003 AS a, (value * 7919 + value / 2003 * 31) % 1999 AS b, value % 3 + 1 AS n FROM range(0, 2000000)"
source = "a"
target = "b"
count = "n"

[output]
tables = ["certificates", "coarse", "counts", "restarts"]

[[fit]]
name = "svd"
method = "svd"
rank = 3

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 3
restarts = 2
"#;

/// Restarts that are fitted pass by pass, with a short run time.
const PLAIN: &str = "restarts = 4\ninit = \"random\"\npolish = false";

pub fn partitioned_pipeline() -> String {
    WALKS.swap("lag = [1, 3]", "lag = [1, 3]\npartition_by = \"part\"")
}

/// Two models that exceed the split limit, and the option that sets this limit.
pub fn small_passes_pipeline() -> (String, Vec<&'static str>) {
    (WALKS.swap("restarts = 4", PLAIN), vec!["--split", "100"])
}

/// Writes walks of `steps` steps in eight files.
pub fn walks(lake: &Lake, steps: i64) {
    let mut random = Pcg64::seed_from_u64(7);
    let mut rows: Vec<[i64; 4]> = Vec::new();
    for walk in 0..60 {
        let mut state = random.random_range(0..90);
        for t in 0..steps {
            rows.push([walk % 4, walk, t, state]);
            let block = if random.random_bool(0.03) {
                random.random_range(0..3)
            } else {
                state / 30
            };
            state = block * 30 + random.random_range(0..30);
        }
    }
    for at in (1..rows.len()).rev() {
        rows.swap(at, random.random_range(0..=at));
    }
    for (file, rows) in rows.chunks(rows.len().div_ceil(8)).enumerate() {
        let name = format!("rows/{file}.parquet");
        lake.integers(&name, ["part", "walk", "t", "s"], rows.iter().copied());
    }
}

pub type Tables = Vec<(String, Vec<u8>)>;

/// The tables of a run in one process. Removes the output.
pub fn tables_of_one_process(lake: &Lake, pipeline: &str) -> Tables {
    lake.runs_text(pipeline);
    let tables = lake.tables();
    fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    tables
}

/// Asserts that a run has removed its working files.
#[track_caller]
fn check_tidy(lake: &Lake) {
    let plans = lake.names("out/work").len();
    assert_eq!(plans, 0, "the run left working files");
}

#[test]
fn a_run_on_a_cluster_writes_the_same_bytes() {
    let machines = Machines::start(2);
    let lake = &machines.lake;
    walks(lake, 400);
    for pipeline in [WALKS.to_string(), partitioned_pipeline(), PAIRS.to_string()] {
        let expected = tables_of_one_process(lake, &pipeline);
        let run = |more: &[&str]| {
            let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
            lake.gyre(&[&to[..], more].concat()).succeeds()
        };
        run(&[]);
        assert!(lake.tables() == expected, "{pipeline}");
        check_tidy(lake);
        assert_eq!(run(&[]).out.trim(), "Nothing to do.");
        run(&["--force"]);
        assert!(lake.tables() == expected, "{pipeline}");
        fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    }
    // A finished result needs no cluster.
    lake.runs_text(WALKS);
    let address = machines.scheduler.line.clone();
    drop((machines.executors, machines.scheduler));
    lake.gyre(&["run", "p.toml", "--cluster", &address])
        .succeeds()
        .prints("Nothing to do.\n");
}

/// The same pairs with a fit that uses passes only.
fn passes_pipeline() -> String {
    let plain = "restarts = 2\ninit = \"random\"\npolish = false\nmax_iterations = 8";
    PAIRS.swap("restarts = 2", plain)
}

#[test]
fn passes_survive_the_death_of_executors() {
    let mut machines = Machines::start(3);
    walks(&machines.lake, 400);
    let expected = tables_of_one_process(&machines.lake, &passes_pipeline());
    let mut run = WatchedRun::start_with(&machines, &["--split", "1000000"]);
    let (mut passes, mut killed) = (0, Vec::new());
    while let Some(stage) = run.next() {
        passes += usize::from(stage == "pass");
        if stage == "cut" || (stage == "pass" && [5, 20].contains(&passes)) {
            drop(machines.executors.remove(0));
            machines.executors.push(machines.executor());
            killed.push(stage);
        }
    }
    run.end().succeeds();
    assert!(machines.lake.tables() == expected);
    check_tidy(&machines.lake);
    println!("{passes} passes, executors killed in {killed:?}");
    assert_eq!(killed, ["cut", "pass", "pass"]);
}

/// A run on a cluster. It reports each round when its tasks are handed in, and the start of the
/// writing stage.
pub struct WatchedRun {
    process: std::process::Child,
    err: BufReader<std::process::ChildStderr>,
    log_text: String,
}

impl WatchedRun {
    pub fn start(machines: &Machines) -> WatchedRun {
        WatchedRun::start_with(machines, &[])
    }

    fn start_with(machines: &Machines, more: &[&str]) -> WatchedRun {
        let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
        let arguments = [&to[..], &["-v", "--log-format", "json"], more].concat();
        WatchedRun::of(&mut machines.lake.command(&arguments))
    }

    /// Starts a run with a JSON log.
    pub fn of(command: &mut Command) -> WatchedRun {
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the program starts");
        let err = BufReader::new(process.stderr.take().expect("its log"));
        let log_text = String::new();
        WatchedRun {
            process,
            err,
            log_text,
        }
    }

    /// The stage of the next round, after its tasks have been handed in, or `write`.
    pub fn next(&mut self) -> Option<String> {
        loop {
            let start = self.log_text.len();
            if self.err.read_line(&mut self.log_text).expect("a line") == 0 {
                return None;
            }
            let line = &self.log_text[start..];
            let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            if event["message"] == "tasks handed in" && event["stage"] != "probe" {
                return event["stage"].as_str().map(String::from);
            }
            if event["message"] == "stage done" && event["stage"] == "fit" {
                return Some("write".into());
            }
        }
    }

    /// Waits for a round of a stage.
    #[track_caller]
    pub fn until(&mut self, stage: &str) {
        while self.next().expect("the stage") != stage {}
    }

    pub fn end(mut self) -> ProgramRun {
        while self.next().is_some() {}
        let status = self.process.wait().expect("the process ends");
        ProgramRun {
            code: status.code(),
            out: String::new(),
            err: self.log_text,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Killed,
    /// For longer than the scheduler waits for a silent executor.
    Stopped,
}

/// Executors are killed or stopped while tasks of each stage are running and while the run writes.
#[test]
fn a_run_survives_the_death_of_executors_in_every_stage() {
    let pipelines = [
        (partitioned_pipeline(), Vec::new()),
        (WALKS.to_string(), Vec::new()),
        small_passes_pipeline(),
    ];
    // The number of executors per pipeline. A stopped executor costs half a minute.
    let (executor_count, stop_every) = if is_slow() {
        ([60, 60, 54], 6)
    } else {
        ([5, 6, 0], 11)
    };
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let mut machines = Machines::start(3);
    walks(&machines.lake, 400);
    let mut outcomes: BTreeMap<(String, Fate, &str), usize> = BTreeMap::new();
    let (mut runs, mut done, start) = (0, 0, Instant::now());
    for ((pipeline, more), executor_count) in pipelines.iter().zip(executor_count) {
        let until = done + executor_count;
        if done == until {
            continue;
        }
        let expected = tables_of_one_process(&machines.lake, pipeline);
        while done < until {
            let mut run = WatchedRun::start_with(&machines, more);
            let (mut hits, mut stalled) = (Vec::new(), Vec::new());
            while let Some(stage) = run.next() {
                let is_hit = match stage.as_str() {
                    // There are many passes.
                    "pass" => random.random_bool(0.1),
                    "cut" => true,
                    _ => more.is_empty(),
                };
                if !is_hit {
                    continue;
                }
                std::thread::sleep(Duration::from_millis(random.random_range(0..60)));
                let at = random.random_range(0..machines.executors.len());
                let executor = machines.executors.remove(at);
                let fate = if done % stop_every == stop_every / 2 {
                    Fate::Stopped
                } else {
                    Fate::Killed
                };
                if fate == Fate::Stopped {
                    executor.signal("-STOP");
                    stalled.push(executor);
                } else {
                    // Dropping a process kills it.
                    drop(executor);
                }
                machines.executors.push(machines.executor());
                hits.push((stage, fate));
                done += 1;
            }
            runs += 1;
            let ran = run.end();
            let outcome = match ran.code {
                Some(0) if machines.lake.tables() == expected => "equal tables",
                Some(0) => "different tables",
                Some(75) => "try again later",
                _ => "an error",
            };
            if outcome != "equal tables" {
                println!("{hits:?}: {outcome}\n{}", ran.err);
            }
            for (stage, fate) in hits {
                *outcomes.entry((stage, fate, outcome)).or_default() += 1;
            }
            check_tidy(&machines.lake);
            // A resumed executor finishes its task.
            let has_resumed = !stalled.is_empty();
            stalled.iter().for_each(|executor| executor.signal("-CONT"));
            std::thread::sleep(Duration::from_secs(has_resumed.into()));
            drop(stalled);
            if has_resumed {
                let clean = machines.lake.line("clean p.toml --older-than 0s");
                clean.succeeds();
                assert!(machines.lake.tables() == expected);
                check_tidy(&machines.lake);
            }
            fs::remove_dir_all(machines.lake.path("out")).expect("the output is removed");
        }
    }
    println!("{done} executors in {runs} runs, {:.0?}", start.elapsed());
    for ((stage, fate, outcome), n) in &outcomes {
        println!("{stage:>8} {fate:?}: {n} runs with {outcome}");
    }
    let mut all = outcomes.keys();
    assert!(all.all(|(_, _, outcome)| *outcome == "equal tables"));
    let mut stages = vec!["deal", "sum", "add", "count", "fit", "write"];
    stages.extend(is_slow().then_some(["cut", "pass"]).into_iter().flatten());
    for stage in stages {
        let mut hits = outcomes.keys().map(|(stage, ..)| stage);
        assert!(
            hits.any(|hits| hits == stage),
            "no executor died in {stage}"
        );
    }
}

/// A test kills a scheduler in a round, and then the run. The next run reuses the finished work.
#[test]
fn a_run_continues_after_it_and_its_scheduler_died() {
    let mut machines = Machines::start(2);
    walks(&machines.lake, 100);
    // Enough small models for their tasks to take seconds, so that the run is killed before they
    // end.
    let (dbmr, _) = WALKS.rsplit_once("[[fit]]").expect("two fits");
    let pipeline = dbmr
        .replace("trajectory = ", "partition_by = ")
        .replace("restarts = 4", PLAIN);
    let expected = tables_of_one_process(&machines.lake, &pipeline);
    let mut run = WatchedRun::start(&machines);
    run.until("fit");
    // The executors pause while the scheduler is away.
    machines.signal("-STOP");
    machines.restart_scheduler();
    machines.signal("-CONT");
    let next = run.next();
    assert_eq!(next.as_deref(), Some("fit"), "no task is handed in again");
    machines.signal("-STOP");
    run.process.kill().expect("the process exists");
    assert_eq!(run.end().code, None, "the run ended before it was killed");
    assert!(machines.lake.path("out/work").exists());
    assert!(!machines.lake.path("out/current.json").exists());
    machines.signal("-CONT");

    let mut run = WatchedRun::start(&machines);
    // The second run does not repeat work before the fits. Executors continue the fits and may have
    // finished them.
    let first = run.next().expect("a stage");
    println!("the next run begins with {first}");
    assert!(["fit", "write"].contains(&first.as_str()), "{first}");
    // No executor may work for the killed run and leave files after this run ends.
    machines.executors.clear();
    machines.restart_scheduler();
    for _ in 0..2 {
        machines.executors.push(machines.executor());
    }
    run.end().succeeds();
    assert!(machines.lake.tables() == expected);
    check_tidy(&machines.lake);
}

/// An executor with a full disk loses its current tasks. If all executors have full disks, the run
/// reports it, and the next run continues.
#[test]
fn full_disks_of_executors_are_reported() {
    let mut machines = Machines::start(0);
    walks(&machines.lake, 400);
    let expected = tables_of_one_process(&machines.lake, &partitioned_pipeline());
    let full = |machines: &Machines, vcores: usize| {
        let program = assert_cmd::cargo::cargo_bin!("gyre");
        let command = format!(
            "trap '' XFSZ; ulimit -f 2; exec {} executor --scheduler {} --vcores {vcores}",
            program.display(),
            machines.scheduler.line
        );
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &command])
            .current_dir(machines.lake.path(""));
        Process::of(&mut shell)
    };
    machines.executors.push(full(&machines, 1));
    let ran = {
        let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
        machines.lake.gyre(&to)
    };
    ran.fails(75, "out/work");
    ran.fails(75, &machines.executors[0].name());
    assert!(!machines.lake.path("out/current.json").exists());

    // If other executors have space, the one without does not get all tasks, although it asks for
    // more.
    machines.executors[0] = full(&machines, 6);
    for _ in 0..2 {
        machines.executors.push(machines.executor());
    }
    for more in [&[][..], &["--force"]] {
        let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
        let start = Instant::now();
        machines.lake.gyre(&[&to[..], more].concat()).succeeds();
        println!("one of three without room: {:.1?}", start.elapsed());
        assert!(machines.lake.tables() == expected);
        check_tidy(&machines.lake);
    }
}

/// The size of the largest unnamed file that a process has open, in bytes.
#[cfg(target_os = "linux")]
fn scratch_bytes(process: &Process) -> u64 {
    let open = fs::read_dir(format!("/proc/{}/fd", process.child.id())).expect("its files");
    let paths = open.filter_map(|entry| Some(entry.ok()?.path()));
    let unnamed = paths.filter(|path| {
        let to = fs::read_link(path).unwrap_or_default();
        to.to_string_lossy().ends_with(" (deleted)")
    });
    let sizes = unnamed.filter_map(|path| Some(fs::metadata(path).ok()?.len()));
    sizes.max().unwrap_or(0)
}

/// An executor spills data that exceeds its memory to its disk. Data that cannot spill is an error
/// that names the executor and its limit.
#[test]
#[cfg(target_os = "linux")]
fn an_executor_stays_within_its_memory_limit() {
    let mut machines = Machines::start(0);
    // The SQL generates the rows, but needs a table.
    walks(&machines.lake, 10);
    let pipeline = PAIRS.swap("2003", "5003").swap("1999", "4999");
    let pipeline = pipeline.replace("0, 2000000", "0, 3000000");
    let expected = tables_of_one_process(&machines.lake, &pipeline);
    let to = machines.scheduler.line.clone();
    let bounded = [
        "executor",
        "--scheduler",
        &to,
        "--vcores",
        "1",
        "--memory",
        "150MB",
    ];
    machines
        .executors
        .push(Process::start(&machines.lake, &bounded));
    let executor = &machines.executors[0];
    let run = |more: &[&str]| {
        let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
        machines.lake.gyre(&[&to[..], more].concat())
    };
    run(&[]).succeeds();
    assert!(machines.lake.tables() == expected);
    let status = fs::read_to_string(format!("/proc/{}/status", executor.child.id()));
    let status = status.expect("the process exists");
    let peak = status.lines().find(|line| line.starts_with("VmHWM"));
    println!("{} bytes on disk, {peak:?}", scratch_bytes(executor));
    assert!(scratch_bytes(executor) > 16 << 20);

    let failed = run(&["--force", "--set", "fit.dbmr.rank=2000"]);
    failed.fails(75, &executor.name());
    failed.fails(75, "fit `dbmr` needs ");
    failed.fails(75, "--memory is 150MB: give at least ");
}

/// A thousand models, each of two halves with three states. One partition never moves, so it cannot
/// be fitted with two sets.
#[test]
fn one_of_a_thousand_models_fails_alone() {
    const UNMOVED: i64 = 577;
    let machines = Machines::start(3);
    let lake = &machines.lake;
    let mut random = Pcg64::seed_from_u64(1000);
    let parts: Vec<i64> = (0..1000).collect();
    for (file, parts) in parts.chunks(90).enumerate() {
        let mut rows: Vec<[i64; 3]> = Vec::new();
        for &part in parts {
            let mut state = 0;
            for t in 0..240 {
                rows.push([part, t, state]);
                let half = (state / 3 + i64::from(random.random_bool(0.05))) % 2;
                state = half * 3 + random.random_range(0..3);
                if part == UNMOVED {
                    state = 0;
                }
            }
        }
        lake.integers(&format!("rows/{file}.parquet"), ["part", "t", "s"], rows);
    }
    let pipeline = WALKS
        .swap("trajectory = \"walk\"", "partition_by = \"part\"")
        .swap("lag = [1, 3]", "lag = 1")
        .swap("rank = 3", "rank = 2");
    lake.file("p.toml", &pipeline);
    let log_text = format!("part={UNMOVED}, lag 1");
    let in_process = lake.run(&[]);
    in_process.fails(1, &log_text);
    let expected = lake.tables();
    fs::remove_dir_all(lake.path("out")).expect("the output is removed");

    let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
    let on_cluster = lake.gyre(&to);
    on_cluster.fails(1, &log_text);
    assert!(lake.tables() == expected);
    check_tidy(lake);
    // Both runs report the failure with the same words.
    let failed = |ran: &ProgramRun| -> Vec<String> {
        let lines = ran.err.lines().filter(|line| line.contains("ERROR"));
        let untimed = |line: &str| line.split_once("ERROR").map(|(_, text)| text.to_string());
        lines.filter_map(untimed).collect()
    };
    assert_eq!(failed(&on_cluster).len(), 1, "{}", on_cluster.err);
    assert_eq!(failed(&on_cluster), failed(&in_process));
    let failures = &lake.record()["failures"];
    assert_eq!(failures.as_array().map(Vec::len), Some(1));
    assert_eq!(failures[0]["partition"], log_text);

    // All other models find the two halves.
    let sources = lake.read("sources");
    let (parts, states) = (sources.integers("part"), sources.integers("s"));
    let sets = sources.integers("dbmr_affiliation");
    let mut of_halves: BTreeMap<(i64, i64), BTreeSet<i64>> = BTreeMap::new();
    for ((part, state), set) in parts.into_iter().zip(states).zip(sets) {
        of_halves.entry((part, state / 3)).or_default().insert(set);
    }
    assert_eq!(of_halves.len(), 2 * 999);
    for part in (0..1000).filter(|&part| part != UNMOVED) {
        let [one, other] = [0, 1].map(|half| of_halves[&(part, half)].clone());
        assert!(one.len() == 1 && other.len() == 1 && one != other, "{part}");
    }
}

/// The lines of a plan about a cluster, and the whole plan as JSON.
fn plan_of_cluster(lake: &Lake, cluster: &str, more: &[&str]) -> (String, Value) {
    let plan = ["plan", "p.toml", "--cluster", cluster, "--threads", "2"];
    let plan = [&plan[..], more].concat();
    let text = lake.gyre(&plan).succeeds().out;
    let json = lake.gyre(&[&plan[..], &["--json"]].concat()).succeeds().out;
    let start = text.find("  cluster ").expect("lines of a cluster");
    (
        text[start..].to_string(),
        serde_json::from_str(&json).expect("JSON"),
    )
}

#[test]
fn a_plan_counts_executors_tasks_and_rounds() {
    let machines = Machines::start(2);
    let (lake, address) = (&machines.lake, &machines.scheduler.line);
    small_pipeline(lake);
    let (text, json) = plan_of_cluster(lake, address, &[]);
    assert_eq!(
        text.replace(address.as_str(), "df://HOST:PORT"),
        "  cluster df://HOST:PORT: 2 executors, 4 tasks at once
    files: 1MB, read by 1 task into 16 lots
    rounds of tasks that count: deal, sum, add, count
    no model is split into passes, because none has more than 268,435,456 non-zeros
"
    );
    let (cluster, memory) = (&json["cluster"], &json["memory"]);
    assert_eq!(cluster["executors"], 2);
    assert_eq!(cluster["slots"], 4);
    // There are 6 states and 36 pairs.
    assert_eq!(memory["rows"], 600);
    assert_eq!(memory["nonzeros"], 36);
    assert_eq!(memory["nonzero_bytes"], 12 * 36);
    // The plan leaves no files in the output, also not later.
    std::thread::sleep(Duration::from_millis(500));
    let remaining = files_below(&lake.path("out"));
    assert!(remaining.is_empty(), "{remaining:?}");

    let (text, _) = plan_of_cluster(lake, address, &["--split", "10"]);
    let split = "    models of more than 10 non-zeros are split into passes\n";
    assert!(text.ends_with(split), "{text}");
    let whole = words("--split 10 --set fit.dbmr.polish=false --set fit.dbmr.init=kl");
    let (text, _) = plan_of_cluster(lake, address, &whole);
    let why = "no model is split into passes, because fit `dbmr` is no passes alone: ";
    assert!(text.contains(why), "{text}");

    let text = lake.text("p.toml");
    let with = |keys: &str, column: &str| {
        let text = text.replace("lag = 1", keys);
        let text = text.replace("SELECT *", &format!("SELECT *, {column}"));
        lake.file("p.toml", &text);
    };
    with("lag = 1\nweight = \"w\"", "0.5 * id AS w");
    let (log_text, _) = plan_of_cluster(lake, address, &[]);
    let alone = "1 task counts all rows of 1MB of files, because weights are no integers";
    assert!(log_text.contains(alone), "{log_text}");
    with("lag = [1, 2]\npartition_by = \"part\"", "id AS part");
    let (_, json) = plan_of_cluster(lake, address, &[]);
    // Each of three partitions has one model per lag. A lot contains whole partitions.
    assert_eq!(json["memory"]["nonzeros"], 6 * 36);
    assert_eq!(json["cluster"]["rounds"], json!(["deal", "sum", "count"]));

    let incremental = text.replace("[job]", "[job]\nincremental = true");
    lake.file("p.toml", &incremental);
    let refused = lake.gyre(&["plan", "p.toml", "--cluster", address]);
    refused.fails(2, "`job.incremental` counts new files on one machine");
    // The number of rows in a text file is unknown.
    lake.file("rows.csv", "id,t,state\n1,1,1\n1,2,2\n");
    lake.file("p.toml", &text.replace("rows.parquet", "rows.csv"));
    let (log_text, json) = plan_of_cluster(lake, address, &[]);
    let split = "models of more than 268,435,456 non-zeros are split into passes\n";
    assert!(log_text.ends_with(split), "{log_text}");
    assert_eq!(json["memory"], Value::Null);
    let no_scheduler = lake.line("plan p.toml --cluster df://127.0.0.1:1");
    no_scheduler.fails(75, "no scheduler answers at df://127.0.0.1:1");

    // A run has the rounds of its plan, and then the fits.
    small_pipeline(lake);
    let (_, json) = plan_of_cluster(lake, address, &[]);
    let events = events(&machines, "1000000");
    let rounds = events
        .iter()
        .filter(|event| event["message"] == "a round begins");
    let mut made: Vec<Value> = rounds.map(|event| event["stage"].clone()).collect();
    assert_eq!(made.pop(), Some(json!("fit")));
    assert_eq!(json["cluster"]["rounds"], json!(made));
}

/// Writes transitions between `states` states and a pipeline with fits.
fn pairs(lake: &Lake, states: i64, fits: &str) {
    for file in 0..2 {
        let pairs = (0..20 * states).map(|k| [k % states, (k * k / 7 + file) % states]);
        lake.integers(&format!("pairs/{file}.parquet"), ["a", "b"], pairs);
    }
    let text = format!(
        "[job]\nname = \"weigh\"\noutput = \"out\"\n[tables.rows]\npath = \"pairs/\"\n[transitions]\n\
         sql = \"SELECT * FROM rows\"\nsource = \"a\"\ntarget = \"b\"\n{fits}"
    );
    lake.file("p.toml", &text);
}

/// The log events of a run on a cluster that splits models of more than `split` non-zeros.
fn events(machines: &Machines, split: &str) -> Vec<Value> {
    let run = ["run", "p.toml", "--force", "-v", "--log-format", "json"];
    let on_cluster = ["--cluster", &machines.scheduler.line, "--split", split];
    let ran = machines.lake.gyre(&[&run[..], &on_cluster].concat());
    let lines = ran.succeeds().err;
    let events = lines.lines().map(serde_json::from_str);
    events.filter_map(Result::ok).collect()
}

/// The bytes of the largest task per round of a run, from its log. All passes are one entry.
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
        let bytes = event["task_bytes"].as_u64().expect("the size of a task");
        let most: &mut u64 = largest.entry(stage.to_string()).or_default();
        *most = bytes.max(*most);
    }
    largest
}

/// A task names its inputs and does not contain them. Its size is the same for a factor of 60
/// numbers and for one of 40,000.
#[test]
fn the_size_of_a_task_does_not_depend_on_the_model() {
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
            // File names contain lengths with more digits, and some lots are no longer empty.
            let more = large[stage].abs_diff(*bytes);
            assert!(more < 2_000, "{stage}: {bytes} and {more} more");
        }
    }
}
