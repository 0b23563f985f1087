//! Runs that are stopped by signals at every stage, by locks of other processes, and by limits of
//! the system.

use crate::cli::{integers, small_lake};
use crate::lake::{Lake, ProgramRun, cases, files_below, floats, texts, wait_for, words};
use std::fs;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SIGNALS: [&str; 3] = ["-INT", "-TERM", "-HUP"];

pub fn signal(process: &Child, signal: &str) {
    let sent = Command::new("kill")
        .args([signal, &process.id().to_string()])
        .status();
    assert!(sent.is_ok_and(|status| status.success()), "{signal}");
}

/// Starts the program with a separate folder for temporary files.
fn start(lake: &Lake, arguments: &[&str]) -> (Child, BufReader<std::process::ChildStderr>) {
    fs::create_dir_all(lake.path("tmp")).expect("a folder");
    let mut command = lake.command(arguments);
    command
        .env("TMPDIR", lake.path("tmp"))
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let heed = || {
        for name in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: `signal` is safe between fork and exec.
            unsafe { libc::signal(name, libc::SIG_DFL) };
        }
        Ok(())
    };
    // Tests that run in the background may ignore signals, and so would the program.
    // SAFETY: the closure neither allocates nor locks.
    unsafe { command.pre_exec(heed) };
    let mut process = command.spawn().expect("the program starts");
    let log = BufReader::new(process.stderr.take().expect("a log"));
    (process, log)
}

fn end(mut process: Child, mut log: impl Read) -> (Option<i32>, String) {
    let mut rest = String::new();
    log.read_to_string(&mut rest).expect("the rest of the log");
    (process.wait().expect("the process ends").code(), rest)
}

/// Writes a pipeline whose stages each take longer than a signal.
fn write_slow_pipeline(lake: &Lake) {
    let n = 400_000;
    let rows = (0..n).map(|k| [k % 100_000, k * 7 % 99_991]);
    lake.integers("rows.parquet", ["a", "b"], rows);
    lake.file(
        "p.toml",
        "[job]\nname = \"large\"\noutput = \"out\"\n[tables.rows]\npath = \"rows.parquet\"\n[transitions]\nsql = \"SELECT * FROM rows\"\n\
         source = \"a\"\ntarget = \"b\"\n[[fit]]\nname = \"one\"\nmethod = \"dbmr\"\nrank = 1\n[checks]\nmin_rows = 10\n",
    );
}

/// Combines signals with stages. Either the earlier result stays or the new one is complete, as the
/// exit code says. No other files remain.
#[test]
fn a_signal_at_any_stage_leaves_one_result() {
    let lake = Lake::new();
    write_slow_pipeline(&lake);
    lake.runs(&[]);
    // The log line at the end of the previous stage, and the stage that receives the signal.
    let stages = [
        ("\"run begins\"", "count"),
        ("\"stage\":\"count\"", "fit"),
        ("\"stage\":\"fit\"", "write"),
        ("\"stage\":\"write\"", "check"),
        ("\"stage\":\"check\"", "promote"),
    ];
    let mut seed = 1;
    for (at, name) in SIGNALS.into_iter().enumerate() {
        let mut stopped = 0;
        for (text, stage) in stages {
            let (pointer, before) = (fs::read(lake.path("out/current.json")), lake.tables());
            let runs = lake.names("out/runs").len();
            seed += 1;
            let call = format!("run p.toml --seed {seed} --log-format json --memory 400MB");
            let (process, mut log) = start(&lake, &words(&call));
            wait_for(&mut log, text);
            if stage == "write" {
                // Some tables are written.
                std::thread::sleep(Duration::from_millis(20 * at as u64));
            }
            signal(&process, name);
            let (code, rest) = end(process, log);
            let place = format!("{name} at {stage}: {rest}");
            let is_new = fs::read(lake.path("out/current.json")).ok() != pointer.ok();
            match code {
                Some(130) => {
                    assert!(!is_new && lake.tables() == before, "{place}");
                    assert!(stage != "fit" || !rest.contains("\"write\""), "{place}");
                    let said = rest.contains("stopped; the output is as it was before");
                    assert!(said, "{place}");
                    stopped += 1;
                }
                Some(0) => assert!(
                    is_new && ["check", "promote", "write"].contains(&stage),
                    "{place}"
                ),
                other => panic!("{other:?}: {place}"),
            }
            assert_eq!(lake.names("tmp"), [].into(), "{place}");
            // Every run has a record.
            let has_record = lake.names("out/runs").len() == runs + 1;
            assert!(stage == "count" || has_record, "{place}");
            let kept = lake.text("out/current.json");
            let versions = lake.names("out/versions");
            let is_kept = |run: &String| kept.contains(run.as_str());
            assert!(versions.iter().all(is_kept), "{place}");
        }
        assert!(stopped >= 2, "{name}: {stopped}");
    }
    // Without an earlier result, a stopped run leaves no output.
    for name in SIGNALS {
        fs::remove_dir_all(lake.path("out")).ok();
        let (process, mut log) = start(&lake, &["run", "p.toml", "-v", "--log-format", "json"]);
        wait_for(&mut log, "\"stage\":\"count\"");
        signal(&process, name);
        assert_eq!(end(process, log).0, Some(130), "{name}");
        let remaining = lake.names("out");
        // The record of the run and its finished work.
        let is_known = |name: &String| ["runs", "work"].contains(&name.as_str());
        assert!(remaining.iter().all(is_known), "{remaining:?}");
        let outcomes = lake
            .records()
            .into_iter()
            .map(|record| record["outcome"].clone());
        assert_eq!(outcomes.collect::<Vec<_>>(), ["stopped"]);
    }
}

/// One SQL call takes minutes, either when rows are counted or when the plan is made. The second
/// signal ends the process.
#[test]
fn a_second_signal_stops_a_call_that_does_not_return() {
    let lake = small_lake();
    lake.runs(&[]);
    let before = (fs::read(lake.path("out/current.json")).ok(), lake.tables());
    let call = |n: &str| format!("levenshtein(repeat('a', 900000{n}), repeat('b', 900000{n}))");
    for n in [" + id", ""] {
        let sql = format!(
            "transitions.sql=SELECT *, {} AS x FROM rows WHERE id < 1",
            call(n)
        );
        let sql = sql.replace("AS x FROM rows WHERE", "AS x FROM rows WHERE t >= 0 AND");
        let more = "transitions.partition_by=[\"x\"]";
        for threads in ["1", "2"] {
            for name in SIGNALS {
                let bounds = ["--threads", threads, "--memory", "300MB"];
                let sets = ["--set", &sql, "--set", more];
                let arguments = [&["run", "p.toml", "-v"], &bounds[..], &sets].concat();
                let (mut process, log) = start(&lake, &arguments);
                // The computation is running if it has used more processor time than the start.
                while cpu_ticks(process.id()) < 30 {
                    let status = process.try_wait().expect("a process");
                    assert!(status.is_none(), "{status:?}");
                    std::thread::sleep(Duration::from_millis(5));
                }
                signal(&process, name);
                for _ in 0..40 {
                    if process.try_wait().expect("a process").is_some() {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                if process.try_wait().expect("a process").is_none() {
                    signal(&process, name);
                }
                let (code, rest) = end(process, log);
                assert_eq!(code, Some(130), "{name}: {rest}");
                assert!(rest.contains("stopped"), "{rest}");
                assert!((fs::read(lake.path("out/current.json")).ok(), lake.tables()) == before);
                let lock = File::open(lake.path("out/.lock")).expect("a lock");
                lock.try_lock().expect("the lock is free");
            }
        }
    }
    lake.line("clean p.toml").succeeds();
}

/// Fits and rows that would take hours: the section of the rows, the fit, and the stage before.
const ENDLESS: &str = r#"
    [transitions]\nstate = "s"\nlag = 1 | method = "dbmr"\nrank = 30\nrestarts = 100000000\npolish = false | count
    [transitions]\nstate = "s"\nlag = 1 | method = "svd"\nrank = 30\nrestarts = 100000000 | count
    [transitions]\nstate = "s"\nlag = 1 | method = "cocluster"\nrank = 30\nrestarts = 100000000 | count
    [transitions]\nstate = "s"\nlag = 1 | method = "metastable"\nrank = 30\nrestarts = 100000000 | count
    [transitions]\nstate = "s"\nlag = 1 | method = "svd"\nrank = 30\nrestarts = 1000\n[validation]\nbootstrap = 10000 | count
    [transitions]\ncoordinates = ["x", "y"]\nlag = 1 | method = "state_embedding"\nrank = 2\nfeatures = 30\nbandwidth = 1.0\nclusters = 40\nrestarts = 100000000 | survey
    [transitions]\ncoordinates = ["x", "y"]\nlag = 1 | method = "state_embedding"\nrank = 2\nfeatures = 3000\ntolerance = 1e-12\nbandwidth = 0.01 | survey
    [points]\ncoordinates = ["x", "y"] | method = "heat_sketch"\ndimension = 8\npower = 65536\nneighbours = "all" | survey
    [points]\ncoordinates = ["x", "y"] | method = "diffusion_map"\ndimension = 300\ntolerance = 1e-300\nneighbours = "all" | survey
    [sequences]\nsymbol = "s"\ninterval = 1 | method = "spectral_hmm"\nrank = 40\nrefine = "em"\nn_iter = 100000000\ntol = 0.0 | count
    [sequences]\nstate = ["x"]\nobservation = ["y"]\nsplit = "split"\ninterval = 1 | method = "kernel_bayes"\nbandwidth = "median"\nlambda = 0.001\n[output]\nrows = "all" | fit
"#;

/// Methods compute for hours between two reads or writes, and end with the process all the same.
#[test]
fn every_method_stops_in_its_longest_loop() {
    let lake = Lake::new();
    // Four trajectories, one of which trains.
    let n = 10_400i64;
    let text = |of: fn(i64) -> String| texts((0..n).map(of));
    let float = |of: fn(f64) -> f64| floats((0..n).map(|k| of(k as f64)));
    let columns = vec![
        ("k", integers(0..n)),
        ("id", integers((0..n).map(|k| k / 2600))),
        ("t", integers((0..n).map(|k| k % 2600))),
        ("s", integers((0..n).map(|k| (k * k + k / 7) % 211))),
        ("x", float(|k| (1.7 * k).sin() + (0.3 * k * k).cos())),
        ("y", float(|k| (0.9 * k * k).sin())),
        (
            "split",
            text(|k| if k < 2600 { "train" } else { "test" }.into()),
        ),
    ];
    lake.table("rows.parquet", columns);
    for [section, fit, before] in cases(ENDLESS) {
        let keys = if section.starts_with("[points]") {
            "id = \"k\"\nsql = \"SELECT * FROM rows WHERE k < 3000\""
        } else {
            "trajectory = \"id\"\ntime = \"t\"\nsql = \"SELECT * FROM rows\""
        };
        let pipeline = format!(
            "[job]\nname = \"endless\"\noutput = \"out\"\n[tables.rows]\npath = \"rows.parquet\"\n{section}\n{keys}\n[[fit]]\nname = \"one\"\n{fit}\n"
        );
        lake.file("p.toml", &pipeline);
        let (mut process, mut log) = start(&lake, &["run", "p.toml", "--log-format", "json"]);
        wait_for(&mut log, &format!("\"stage\":\"{before}\""));
        // It computes.
        let begun = cpu_ticks(process.id());
        while cpu_ticks(process.id()) < begun + 30 {
            let status = process.try_wait().expect("a process");
            assert!(status.is_none(), "{fit}: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        signal(&process, "-INT");
        let (code, rest) = end(process, log);
        assert_eq!(code, Some(130), "{fit}: {rest}");
        assert!(rest.contains("stopped; the output is as it was before"));
        assert_eq!(lake.names("out/versions"), [].into(), "{fit}");
        assert_eq!(lake.names("tmp"), [].into(), "{fit}");
    }
}

/// Processor time of a process, in hundredths of a second.
fn cpu_ticks(process: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<u64> = fields.split(' ').map(|f| f.parse().unwrap_or(0)).collect();
    fields.get(12).copied().unwrap_or(0) + fields.get(13).copied().unwrap_or(0)
}

/// Another process holds the lock of the output. The run reports that it waits, stops on a signal,
/// and ends with the exit code for a retry after a time limit.
#[test]
fn waiting_for_a_lock_is_reported_stoppable_and_limited() {
    let lake = small_lake();
    lake.runs(&[]);
    lake.assign(&[]).succeeds();
    let before = lake.tables();
    let commands = [
        ("out", "run p.toml --force"),
        ("out", "clean p.toml"),
        ("new", "assign p.toml --model out --output new --force"),
    ];
    for (folder, command) in commands {
        let command = &words(command)[..];
        let lock = File::open(lake.path(&format!("{folder}/.lock"))).expect("a lock");
        lock.lock().expect("the lock is free");
        let ran = lake.gyre(&[command, &["--lock-timeout", "0s"]].concat());
        ran.fails(75, &format!("{folder}/.lock for 0ns; run again when it has ended, or wait longer with --lock-timeout"));
        assert_eq!(ran.err.trim().lines().count(), 1, "{}", ran.err);
        for name in SIGNALS {
            let (process, mut log) = start(&lake, command);
            wait_for(&mut log, "for at most 60s: another process holds its lock");
            signal(&process, name);
            let (code, rest) = end(process, log);
            assert_eq!(code, Some(130), "{command:?}: {rest}");
        }
        let versions = lake.names(&format!("{folder}/versions"));
        assert!(!versions.is_empty() && versions.len() <= 2, "{versions:?}");
        drop(lock);
        lake.gyre(command).succeeds();
    }
    assert!(lake.tables() == before);
}

/// Runs a shell script in a lake, after the words of another command. `$GYRE` is the program.
pub fn shell(lake: &Lake, before: &[&str], script: &str) -> ProgramRun {
    let shell = ["sh", "-c", script];
    let mut words = before.iter().chain(&shell);
    let mut command = Command::new(words.next().expect("a word"));
    let command = command.args(words).current_dir(lake.folder.path());
    let command = command.env("GYRE", lake.command(&[]).get_program());
    let output = command.env_remove("OUT").output().expect("a shell");
    assert_eq!(output.status.signal(), None, "{script}");
    ProgramRun::of(output)
}

/// Combines limits of the system with commands. Each gives one error and the exit code for a retry.
#[test]
fn a_refusal_by_the_system_is_one_error() {
    let lake = small_lake();
    lake.runs(&[]);
    let before = lake.tables();
    let run = "exec \"$GYRE\" run p.toml --force";
    let table = r#"
        ulimit -n 6 |  | the limit of open files is 6, and gyre needs 64
        ulimit -f 2 |  | cannot be written
        ulimit -v 700000 | --threads 300 | 300 threads
        ulimit -v 900000 | --threads 1 --set 'transitions.sql=SELECT id, t, length(repeat(CAST(state AS VARCHAR), 1900000000)) AS state FROM rows WHERE id = 0' | \smore memory
    "#;
    for [limit, more, text] in cases(table) {
        let ran = shell(&lake, &[], &format!("{limit}; {run} {more}"));
        ran.fails(75, &text);
        assert!(!ran.err.contains("aborted"), "{}", ran.err);
        let errors = ran.err.lines().filter(|line| line.starts_with("error:"));
        assert_eq!(errors.count(), 1, "{}", ran.err);
        assert!(lake.tables() == before, "{limit}");
    }
    let json = shell(
        &lake,
        &[],
        &format!(
            "ulimit -v 900000; {run} --threads 1 --log-format json --set 'transitions.sql=SELECT id, t, length(repeat(CAST(state AS VARCHAR), 1900000000)) AS state FROM rows WHERE id = 0'"
        ),
    );
    assert_eq!(json.code, Some(75));
    for line in json.err.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a JSON line");
    }
    lake.line("run p.toml --threads 100000")
        .fails(2, "write a whole number from 1 to 1024");
    lake.line("run p.toml --memory 200")
        .fails(2, "200 bytes is too small; add a unit, as in 200MB");
}

/// kill -9 while rows are sorted on disk. The next run or `gyre clean` removes them.
#[test]
fn the_next_run_removes_the_rows_of_a_killed_process() {
    let lake = small_lake();
    let sql = "transitions.sql=SELECT value % 100 AS id, value * 7919 % 20000000 AS t, value % 5 AS state FROM range(0, 20000000) ORDER BY id, t";
    let bound = ["--threads", "1", "--memory", "165MB"];
    let sorting = [&["run", "p.toml", "--set", sql][..], &bound].concat();
    for by_clean in [true, false] {
        let (mut process, _log) = start(&lake, &sorting);
        let rows = || {
            let files = files_below(&lake.path("tmp")).into_iter();
            let sizes = files.filter_map(|file| Some(fs::metadata(file).ok()?.len()));
            sizes.sum::<u64>()
        };
        while rows() == 0 {
            let status = process.try_wait().expect("a process");
            assert!(status.is_none(), "no rows were sorted on disk: {status:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let clean = |more: &[&str]| {
            let arguments = [&["clean", "p.toml"][..], more].concat();
            let mut command = lake.command(&arguments);
            let ran = command.env("TMPDIR", lake.path("tmp")).output();
            ProgramRun::of(ran.expect("the program starts"))
                .succeeds()
                .out
        };
        // The files of a running process are kept.
        assert!(!clean(&[]).contains("temporary folder"));
        process.kill().expect("the process exists");
        process.wait().expect("the process ends");
        assert_eq!(lake.names("tmp").len(), 1);
        if by_clean {
            assert!(clean(&["--dry-run"]).contains("would remove 1 temporary folder, "));
            assert!(clean(&[]).contains("sort files of a dead process"));
        } else {
            let mut next = lake.command(&[&["run", "p.toml"][..], &bound].concat());
            let ran = next.env("TMPDIR", lake.path("tmp")).output();
            ProgramRun::of(ran.expect("the program starts")).succeeds();
        }
        assert_eq!(lake.names("tmp"), [].into());
    }
}
