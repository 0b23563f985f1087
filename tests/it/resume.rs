//! Killed runs: the files that they leave, and the work that the next run of the plan reuses.
//!
//! A run keeps work that took at least a second. To keep the tests fast, most of the killed runs
//! use this test program. It keeps all work immediately and otherwise acts like `gyre run`.

use crate::cli::{integers, small_lake};
use crate::lake::{Lake, ProgramRun, Swap, TABLES, files_below, texts, wait_for};
use gyre::plan::pipeline::Pipeline;
use gyre::run::Outcome;
use gyre::run::options::Options;
use gyre::run::progress::Silent;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::fs;
use std::io::BufReader;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PIPELINE: &str = r#"
job = { name = "long", output = "out" }
tables.rows.path = "rows.parquet"
[transitions]
sql = "SELECT *, substr(word, 1, 1) AS half FROM rows"
trajectory = "id"
time = "t"
state = "word"
lag = [1, 2]
partition_by = ["sea"]

[validation]
bootstrap = 4
folds = 3

[[fit]]
name = "dbmr"
method = "dbmr"
rank = [2, 3]

[[fit]]
name = "plain"
method = "dbmr"
rank = 3
init = "random"
polish = false
restarts = RESTARTS

[[fit]]
name = "both"
method = "cocluster"
rank = 2
restarts = 3

[[fit]]
name = "svd"
method = "svd"
rank = 2

[[fit]]
name = "halves"
method = "given"
affiliation = "half"
"#;

/// Numbers of fits per model, and of models.
const FITS: u64 = 6;
const MODELS: u64 = 6;

/// Walks in three seas on words in two halves, and the pipeline.
fn lake(restarts: usize) -> Lake {
    let mut random = Pcg64::seed_from_u64(11);
    let (mut seas, mut ids, mut times, mut words) = (vec![], vec![], vec![], vec![]);
    for id in 0..24 {
        let mut state = random.random_range(0..40);
        for t in 0..60 {
            seas.push(["black", "red", "white"][id as usize % 3]);
            ids.push(id);
            times.push(t);
            words.push(format!("{}{state}", if state < 20 { "a" } else { "b" }));
            let half = (state / 20 + i32::from(random.random::<f64>() < 0.1)) % 2;
            state = 20 * half + random.random_range(0..20);
        }
    }
    let lake = Lake::new();
    let words = texts(words);
    let columns = vec![
        ("sea", texts(seas)),
        ("id", integers(ids.into_iter())),
        ("t", integers(times.into_iter())),
        ("word", words),
    ];
    lake.table("rows.parquet", columns);
    lake.file("p.toml", &PIPELINE.swap("RESTARTS", &restarts.to_string()));
    lake
}

/// The tables of the current result, by their paths in its version.
fn tables(lake: &Lake) -> BTreeMap<PathBuf, Vec<u8>> {
    let root = fs::canonicalize(lake.path("out/current")).expect("a result");
    let files = files_below(&root).into_iter();
    let tables = files.filter(|path| path.extension().is_some_and(|e| e == "parquet"));
    let named = |path: PathBuf| {
        let inside = path.strip_prefix(&root).expect("a path inside");
        (inside.to_path_buf(), fs::read(&path).expect("a table"))
    };
    tables.map(named).collect()
}

/// The objects of kept work, including those that a dead process was writing.
fn work(lake: &Lake) -> Vec<PathBuf> {
    let plans = fs::read_dir(lake.path("out/work")).into_iter().flatten();
    let plans = plans.map(|plan| plan.expect("a plan").path());
    // Beside the folder of a plan is the record that gyre made it.
    let plans = plans.filter(|plan| plan.is_dir());
    let objects = plans.flat_map(|plan| fs::read_dir(plan).expect("a folder"));
    objects
        .map(|object| object.expect("an object").path())
        .collect()
}

const FOLDER: &str = "GYRE_TEST_FOLDER";

/// The program that the other tests start and kill.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "no test of its own"]
async fn a_run_with_checkpoints_gives_the_same_result() {
    let Some(folder) = std::env::var_os(FOLDER) else {
        return;
    };
    std::env::set_current_dir(folder).expect("the folder");
    let pipeline = Pipeline::from_file("p.toml").expect("a pipeline");
    let inputs = pipeline.open().await.expect("a lake");
    let planned = inputs.plan().await.expect("a plan");
    let output = planned.output().expect("an output");
    let options = Options {
        keep_every: Duration::ZERO,
        ..Options::default()
    };
    let ran = planned.run_with(&output, &options, Arc::new(Silent)).await;
    match ran {
        Ok(Outcome::Done(_) | Outcome::NothingToDo) => (),
        Err(e) => panic!("{}", e.full()),
    }
}

fn start(lake: &Lake) -> Child {
    let program = std::env::current_exe().expect("this program");
    let test = "resume::a_run_with_checkpoints_gives_the_same_result";
    let mut command = Command::new(program);
    command.args(["--ignored", "--exact", test]);
    command.env(FOLDER, lake.folder.path());
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts")
}

fn finish(child: Child) {
    let ended = ProgramRun::of(child.wait_with_output().expect("the process ends"));
    ended.succeeds().says("1 passed");
}

/// Asserts that there is one result with its record and nothing else.
fn check_tidy(lake: &Lake, moment: Duration) {
    lake.line("clean p.toml --older-than 0s").succeeds();
    assert_eq!(lake.names("out/versions").len(), 1, "killed at {moment:?}");
    assert_eq!(work(lake), Vec::<PathBuf>::new(), "killed at {moment:?}");
    assert!(!lake.names("out").contains("work"));
}

/// The number of runs to kill and a random generator. Prints the seed.
fn kill_count() -> (u32, Pcg64) {
    let kills = match std::env::var_os("GYRE_SLOW_TESTS") {
        Some(_) => 200,
        None => 20,
    };
    let seed = u64::from(std::process::id());
    println!("the moments come from the seed {seed}");
    (kills, Pcg64::seed_from_u64(seed))
}

fn remove_output(lake: &Lake) {
    fs::remove_dir_all(lake.path("out")).expect("a folder");
}

#[test]
fn a_run_killed_at_any_moment_is_resumed() {
    let lake = lake(8);
    lake.runs(&[]);
    let expected = tables(&lake);
    assert!(expected.len() > 12, "{:?}", expected.keys());
    remove_output(&lake);
    let begun = Instant::now();
    finish(start(&lake));
    let whole = begun.elapsed();
    assert!(tables(&lake) == expected);
    let (kills, mut random) = kill_count();
    let (mut resumed, mut pieces) = (0, 0);
    for _ in 0..kills {
        remove_output(&lake);
        let moment = whole.mul_f64(random.random_range(0.0..1.1));
        let mut child = start(&lake);
        std::thread::sleep(moment);
        child.kill().expect("the process is killed");
        child.wait().expect("the process ends");
        finish(start(&lake));
        assert!(tables(&lake) == expected, "killed at {moment:?}");
        let taken = &lake.record()["resumed"];
        resumed += u32::from(!taken.is_null());
        pieces += taken["pieces"].as_u64().unwrap_or(0);
        check_tidy(&lake, moment);
    }
    println!("{resumed} of {kills} runs in {whole:?} were gone on with, {pieces} pieces of work");
    assert!(resumed > kills / 5, "{resumed} of {kills}");
}

/// The program replaces an earlier result. Readers of plain paths see the old result or the new
/// one, `gyre clean` keeps only the files that these need, and the next run succeeds.
#[test]
fn a_program_killed_at_any_moment_leaves_one_result() {
    let lake = small_lake();
    let arguments = |seed| ["run", "p.toml", "--set", "names.from=none", "--seed", seed];
    let seeds = ["1", "2"];
    let mut whole = Duration::ZERO;
    let results = seeds.map(|seed| {
        let begun = Instant::now();
        lake.gyre(&arguments(seed)).succeeds();
        whole = whole.max(begun.elapsed());
        lake.tables()
    });
    assert!(results[0] != results[1]);
    let (kills, mut random) = kill_count();
    // The index of the current result, and the outcomes of the killed runs.
    let (mut now, mut ends) = (1, BTreeMap::from([("old", 0), ("new", 0)]));
    let mut left_over = 0;
    for _ in 0..kills {
        let next = 1 - now;
        // Half of the runs are killed near their end, when the result is written.
        let begin = if random.random() { 0.0 } else { 0.7 };
        let moment = whole.mul_f64(random.random_range(begin..1.1));
        let place = format!("killed at {moment:?} of {whole:?}");
        let mut command = lake.command(&arguments(seeds[next]));
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().expect("the program starts");
        std::thread::sleep(moment);
        child.kill().expect("the process is killed");
        child.wait().expect("the process ends");
        let found = lake.tables();
        let is_new = found == results[next];
        assert!(is_new || found == results[now], "{place}");
        *ends.entry(if is_new { "new" } else { "old" }).or_default() += 1;
        let cleaned = lake.line("clean p.toml --older-than 0s").succeeds().out;
        left_over += u32::from(cleaned.contains("left by a run"));
        check_needed(&lake, &place);
        // If the pointer names the new result, the links follow it.
        let mended = lake.tables();
        assert!(mended == found || mended == results[next], "{place}");
        lake.gyre(&arguments(seeds[next])).succeeds();
        assert!(lake.tables() == results[next], "{place}");
        check_needed(&lake, &place);
        now = next;
    }
    println!("{kills} runs killed: {ends:?} results, {left_over} left a version to clean");
    assert!(ends["old"] > 0, "{ends:?}");
}

/// Asserts that an output has exactly the versions that its pointer names.
fn check_needed(lake: &Lake, place: &str) {
    let pointer = lake.json("out/current.json");
    let earlier = pointer["earlier"].as_array().expect("a list").iter();
    let named = earlier.chain([&pointer["run"]]);
    let named = named.map(|run| run.as_str().expect("a run").to_string());
    assert_eq!(lake.names("out/versions"), named.collect(), "{place}");
    let mut all: Vec<&str> = TABLES.to_vec();
    all.extend([".lock", "current", "current.json", "runs", "versions"]);
    let all = all.into_iter().map(String::from).collect();
    assert_eq!(lake.names("out"), all, "{place}");
    for record in lake.names("out/runs") {
        assert!(record.ends_with(".json"), "{place}: {record}");
    }
}

/// Kills a run after it has kept `n` objects of work, and returns them.
fn kill_after_objects(lake: &Lake, n: usize) -> Vec<PathBuf> {
    let mut child = start(lake);
    while work(lake).len() < n {
        let status = child.try_wait().expect("a process");
        assert!(status.is_none(), "the run ended");
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().expect("the process is killed");
    child.wait().expect("the process ends");
    let mut objects = work(lake);
    // Without an object that was being written.
    objects.retain(|path| !path.to_string_lossy().contains('#'));
    objects.sort();
    objects
}

#[test]
fn finished_work_is_reused_and_damaged_work_is_not() {
    let lake = lake(8);
    kill_after_objects(&lake, 30);
    let forced = lake.line("run p.toml --force").succeeds();
    assert!(!forced.out.contains("taken from"), "{}", forced.out);
    assert!(lake.record()["resumed"].is_null());
    assert!(work(&lake).is_empty());
    let expected = tables(&lake);

    remove_output(&lake);
    let objects = kill_after_objects(&lake, 60);
    // One object is truncated, and one is a copy of another.
    let bytes = fs::read(&objects[0]).expect("an object");
    fs::write(&objects[0], &bytes[..bytes.len() / 2]).expect("an object");
    fs::copy(&objects[1], &objects[2]).expect("an object");
    // The program keeps less work, but reuses what exists.
    let ran = lake.line("run p.toml -v").succeeds();
    let ignored = ran.err.matches("is damaged and not used").count();
    assert_eq!(ignored, 2, "{}", ran.err);
    let record = lake.record();
    let resumed = &record["resumed"];
    let number = |key: &str| resumed[key].as_u64().expect("a number");
    assert_eq!(number("of"), MODELS * FITS);
    assert!((1..MODELS * FITS).contains(&number("fits")), "{resumed}");
    assert!(number("pieces") > number("fits"), "{resumed}");
    let text = format!("{} of {} fits", number("fits"), number("of"));
    ran.says(&text);
    let models = record["models"].as_array().expect("models").iter();
    let fits = models.flat_map(|model| model["fits"].as_array().expect("fits"));
    let marked = fits.filter(|fit| fit["resumed"] == true).count() as u64;
    assert_eq!(marked, number("fits"));
    assert!(tables(&lake) == expected);
}

/// Starts the program and kills it when its log contains a text.
fn kill_at_log_text(lake: &Lake, arguments: &[&str], text: &str) {
    let mut command = lake.command(arguments);
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the program starts");
    let mut log = BufReader::new(process.stderr.take().expect("a log"));
    wait_for(&mut log, text);
    process.kill().expect("the process is killed");
    process.wait().expect("the process ends");
}

/// Restarts that take several seconds.
#[test]
fn the_program_keeps_expensive_work() {
    let short = lake(8);
    short.runs(&[]);
    assert!(short.record()["resumed"].is_null());
    let long = lake(60_000);
    kill_at_log_text(&long, &["run", "p.toml", "-v"], "wrote a checkpoint");
    assert!(!work(&long).is_empty());
    let other_threads = ["run", "p.toml", "-v", "--threads", "1"];
    kill_at_log_text(&long, &other_threads, "resuming from the checkpoints");
    let cleaned = long.line("clean p.toml").succeeds().out;
    assert_eq!(cleaned, "Nothing to clean.\n");
    let cleaned = long.line("clean p.toml --older-than 0s").succeeds().out;
    assert!(cleaned.contains("removed 1 work folder, "), "{cleaned}");
    assert!(!long.path("out/work").exists());
}
