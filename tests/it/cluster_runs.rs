//! Whole runs on a real cluster of this machine, against runs of one process: the same tables to the byte, whoever dies and whenever.

use crate::cli::integers;
use crate::lake::{Lake, Ran};
use crate::machines::{Machines, Process};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

/// Walks whose rows are scattered over files.
const WALKS: &str = r#"
[job]
name = "walks"
output = "out"

[tables.rows]
path = "rows/"

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

/// Two million pairs, nearly all of them different.
const PAIRS: &str = r#"
[job]
name = "pairs"
output = "out"

[tables.rows]
path = "rows/"

[transitions]
sql = "SELECT value % 2003 AS a, (value * 7919 + value / 2003 * 31) % 1999 AS b, value % 3 + 1 AS n FROM range(0, 2000000)"
source = "a"
target = "b"
count = "n"

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

fn partitioned() -> String {
    WALKS.replace("lag = [1, 3]", "lag = [1, 3]\npartition_by = \"part\"")
}

fn walks(lake: &Lake) {
    let mut random = Pcg64::seed_from_u64(7);
    let mut rows: Vec<[i64; 4]> = Vec::new();
    for walk in 0..60 {
        let mut state = random.random_range(0..90);
        for t in 0..400 {
            rows.push([walk % 4, walk, t, state]);
            let block = match random.random_bool(0.03) {
                true => random.random_range(0..3),
                false => state / 30,
            };
            state = block * 30 + random.random_range(0..30);
        }
    }
    for at in (1..rows.len()).rev() {
        rows.swap(at, random.random_range(0..=at));
    }
    for (file, rows) in rows.chunks(3000).enumerate() {
        let column = |at: usize| integers(rows.iter().map(|row| row[at]));
        let columns = vec![
            ("part", column(0)),
            ("walk", column(1)),
            ("t", column(2)),
            ("s", column(3)),
        ];
        lake.table(&format!("rows/{file}.parquet"), columns);
    }
}

type Tables = Vec<(String, Vec<u8>)>;

/// The tables that a run of one process writes. Nothing of it is left.
fn alone(lake: &Lake, pipeline: &str) -> Tables {
    lake.file("p.toml", pipeline);
    lake.gyre(&["run", "p.toml"]).well();
    let tables = lake.tables();
    fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    tables
}

/// Nothing but the result is left of a run.
#[track_caller]
fn check_tidy(lake: &Lake) {
    let plans = fs::read_dir(lake.path("out/work")).map_or(0, |plans| plans.count());
    assert_eq!(plans, 0, "work is left");
}

#[test]
fn a_run_on_a_cluster_writes_the_same_bytes() {
    let machines = Machines::start(2);
    let lake = &machines.lake;
    walks(lake);
    for pipeline in [WALKS.to_string(), partitioned(), PAIRS.to_string()] {
        let expected = alone(lake, &pipeline);
        let run = |more: &[&str]| {
            let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
            lake.gyre(&[&to[..], more].concat()).well()
        };
        run(&[]);
        assert!(lake.tables() == expected, "{pipeline}");
        check_tidy(lake);
        assert_eq!(run(&[]).out.trim(), "Nothing to do.");
        run(&["--force"]);
        assert!(lake.tables() == expected, "{pipeline}");
        fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    }
}

/// The same pairs, fitted by passes alone.
fn by_passes() -> String {
    let plain = "restarts = 2\ninit = \"random\"\npolish = false\nmax_iterations = 8";
    PAIRS.replace("restarts = 2", plain)
}

#[test]
fn passes_are_spread_over_executors_that_die() {
    let mut machines = Machines::start(3);
    walks(&machines.lake);
    let expected = alone(&machines.lake, &by_passes());
    let mut run = Watched::start_with(&machines, &["--split", "1000000"]);
    let (mut passes, mut killed) = (0, Vec::new());
    while let Some(stage) = run.next() {
        passes += usize::from(stage == "pass");
        if stage == "cut" || (stage == "pass" && [5, 20].contains(&passes)) {
            drop(machines.executors.remove(0));
            machines.executors.push(machines.executor());
            killed.push(stage);
        }
    }
    run.end().well();
    assert!(machines.lake.tables() == expected);
    check_tidy(&machines.lake);
    println!("{passes} passes, executors killed in {killed:?}");
    assert_eq!(killed, ["cut", "pass", "pass"]);
}

/// A run on a cluster that tells of each round of tasks when they are handed in.
struct Watched {
    process: std::process::Child,
    err: BufReader<std::process::ChildStderr>,
    told: String,
}

impl Watched {
    fn start(machines: &Machines) -> Watched {
        Watched::start_with(machines, &[])
    }

    fn start_with(machines: &Machines, more: &[&str]) -> Watched {
        let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
        let arguments = [&to[..], &["-v", "--log-format", "json"], more].concat();
        let mut command = machines.lake.command(&arguments);
        let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the program starts");
        let err = BufReader::new(process.stderr.take().expect("its log"));
        let told = String::new();
        Watched { process, err, told }
    }

    /// The stage of the next round, once its tasks are handed in.
    fn next(&mut self) -> Option<String> {
        loop {
            let start = self.told.len();
            if self.err.read_line(&mut self.told).expect("a line") == 0 {
                return None;
            }
            let line = &self.told[start..];
            let event: serde_json::Value = serde_json::from_str(line).unwrap_or_default();
            if event["message"] == "tasks handed in" && event["stage"] != "look" {
                return event["stage"].as_str().map(String::from);
            }
        }
    }

    fn end(mut self) -> Ran {
        while self.next().is_some() {}
        let status = self.process.wait().expect("it has ended");
        Ran {
            code: status.code(),
            out: String::new(),
            err: self.told,
        }
    }
}

#[test]
fn executors_die_in_every_stage_of_a_run() {
    let wanted = match std::env::var_os("GYRE_SLOW_TESTS") {
        Some(_) => 100,
        None => 10,
    };
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let mut machines = Machines::start(3);
    walks(&machines.lake);
    let (mut killed, mut runs, mut kills) = (BTreeMap::new(), 0, 0);
    for pipeline in [partitioned(), WALKS.to_string()].iter().cycle() {
        if kills >= wanted {
            break;
        }
        let expected = alone(&machines.lake, pipeline);
        let mut run = Watched::start(&machines);
        runs += 1;
        while let Some(stage) = run.next() {
            if kills < wanted {
                std::thread::sleep(std::time::Duration::from_millis(random.random_range(0..60)));
                let at = random.random_range(0..machines.executors.len());
                // Dropping a process kills it.
                drop(machines.executors.remove(at));
                machines.executors.push(machines.executor());
                kills += 1;
                *killed.entry(stage).or_insert(0) += 1;
            }
        }
        run.end().well();
        assert!(machines.lake.tables() == expected, "{pipeline}");
        check_tidy(&machines.lake);
        fs::remove_dir_all(machines.lake.path("out")).expect("the output is removed");
    }
    println!(
        "{kills} executors killed in {runs} runs, all of which wrote the right bytes: {killed:?}"
    );
    for stage in ["deal", "sum", "add", "count", "fit"] {
        assert!(killed.contains_key(stage), "nobody died in {stage}");
    }
}

/// The run is killed in a round; the next one goes on with what is done. In another, the scheduler is.
#[test]
fn a_run_and_its_scheduler_die_and_come_back() {
    let mut machines = Machines::start(2);
    walks(&machines.lake);
    let expected = alone(&machines.lake, &partitioned());
    let mut run = Watched::start(&machines);
    while run.next().expect("a round of fits") != "fit" {}
    run.process.kill().expect("it is there");
    run.end();
    assert!(machines.lake.path("out/work").exists());
    assert!(!machines.lake.path("out/current.json").exists());

    let mut run = Watched::start(&machines);
    // What was done before the fits is not asked for again.
    if let Some(stage) = run.next() {
        assert_eq!(stage, "fit");
        let place = machines.scheduler.line.trim_start_matches("df://");
        let place = place.to_string();
        machines.scheduler.signal("-KILL");
        machines.scheduler.child.wait().expect("it has ended");
        machines.scheduler = Process::start(&machines.lake, &["scheduler", "--listen", &place]);
    }
    run.end().well();
    assert!(machines.lake.tables() == expected);
    check_tidy(&machines.lake);
}

/// A full disk of an executor costs what it was doing, and if all have one the run says so and the next goes on.
#[test]
fn executors_whose_disks_are_full() {
    let mut machines = Machines::start(0);
    walks(&machines.lake);
    let expected = alone(&machines.lake, &partitioned());
    let full = |machines: &Machines| {
        let program = assert_cmd::cargo::cargo_bin!("gyre");
        let command = format!(
            "trap '' XFSZ; ulimit -f 2; exec {} executor --scheduler {} --vcores 1",
            program.display(),
            machines.scheduler.line
        );
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &command])
            .current_dir(machines.lake.path(""));
        Process::of(&mut shell)
    };
    machines.executors.push(full(&machines));
    let ran = {
        let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
        machines.lake.gyre(&to)
    };
    ran.fails(75, "out/work");
    ran.fails(75, &machines.executors[0].name());
    assert!(!machines.lake.path("out/current.json").exists());

    machines.executors.push(machines.executor());
    let to = ["run", "p.toml", "--cluster", &machines.scheduler.line];
    machines.lake.gyre(&to).well();
    assert!(machines.lake.tables() == expected);
    check_tidy(&machines.lake);
}
