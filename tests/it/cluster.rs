//! Tasks on a real cluster of this machine: every scheduler and executor is a process that may be killed, stopped and started again.

use crate::cli::small_pipeline;
use crate::clouds::{Server, command};
use crate::lake::Lake;
use crate::machines::{Machines, Process, running_tasks};
use gyre::cluster::ballista::client::Cluster;
use gyre::cluster::ballista::probe::{Probe, ProbeAnswer};
use gyre::cluster::nodes::{Nodes, Task};
use gyre::error::{Error, Kind};
use gyre::output::place::Output;
use gyre::output::retention::Cleaning;
use gyre::store::Stores;
use jiff::SignedDuration;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

fn tasks(n: u32, wait_millis: u32) -> Vec<Task> {
    let probe = |number| Probe {
        nonce: "test".into(),
        number,
        wait_millis,
    };
    (0..n)
        .map(|number| probe(number).task().expect("a task"))
        .collect()
}

/// The answers to such tasks: who did each. They must be in their order.
fn doers(answers: Vec<Result<Vec<u8>, Error>>) -> Vec<String> {
    let probed = answers.into_iter().map(|answer| {
        let bytes = answer.expect("an answer");
        ProbeAnswer::read(&bytes).expect("the answer to a probe")
    });
    let numbered = probed.enumerate().map(|(at, answer)| {
        assert_eq!(answer.number as usize, at);
        answer.name
    });
    numbered.collect()
}

async fn all(cluster: &Cluster, tasks: Vec<Task>) -> Vec<String> {
    let answers = cluster.run("test", tasks, &|_| ()).await;
    doers(answers.expect("the cluster answers"))
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_keep_the_order_of_tasks_and_each_task_runs_once() {
    let machines = Machines::start(2);
    let cluster = machines.connect().await.expect("a cluster");
    let known = cluster.executors().iter().map(|e| e.name.clone());
    assert_eq!(known.collect::<BTreeSet<_>>(), machines.names());
    assert_eq!(cluster.slots(), 4);

    let mut asked = tasks(60, 20);
    let wrong = Task { bytes: vec![255] };
    asked.insert(30, wrong.clone());
    asked.push(asked[3].clone());
    let heard = AtomicUsize::new(0);
    let hear = |n| {
        heard.fetch_add(n, Ordering::Relaxed);
    };
    let answers = cluster.run("test", asked, &hear).await;
    let mut answers = answers.expect("the cluster answers");
    assert_eq!(heard.load(Ordering::Relaxed), 61);
    // An error of a task is its own.
    let error = answers.remove(30).expect_err("no task");
    assert!(
        error.full().contains("a task is not one of gyre"),
        "{error}"
    );
    assert_eq!(error.kind(), Kind::Spec);
    let last = answers.pop().expect("an answer").expect("no error");
    assert_eq!(answers[3].as_ref().expect("no error"), &last);
    assert_eq!(
        doers(answers).into_iter().collect::<BTreeSet<_>>(),
        machines.names()
    );

    // With nobody there to do anything, what is done is done.
    drop(machines.executors);
    drop(machines.scheduler);
    let answers = cluster.run("test", tasks(60, 20), &hear).await;
    doers(answers.expect("all answers are there"));
    assert_eq!(heard.load(Ordering::Relaxed), 121);
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_job_is_fast() {
    let machines = Machines::start(2);
    let cluster = machines.connect().await.expect("a cluster");
    let mut seconds = Vec::new();
    for round in 0..5 {
        let start = Instant::now();
        let probe = Probe {
            nonce: format!("round {round}"),
            number: 0,
            wait_millis: 0,
        };
        all(&cluster, vec![probe.task().expect("a task")]).await;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let start = Instant::now();
    all(&cluster, tasks(200, 0)).await;
    println!(
        "one task: {seconds:.3?} seconds, 200: {:?}",
        start.elapsed()
    );
    seconds.sort_by(f64::total_cmp);
    assert!(seconds[2] < 1.0, "{seconds:?}");
    cluster.leave().await;
}

/// Waits until an executor has so many of these tasks at hand, as its log says.
async fn at_work(log: &Path, asked: &[Task], n: usize) {
    let ids: BTreeSet<String> = asked.iter().map(Task::id).collect();
    let start = Instant::now();
    while running_tasks(log).intersection(&ids).count() < n {
        assert!(start.elapsed() < Duration::from_secs(60), "it does nothing");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_tasks_of_a_killed_executor_are_repeated() {
    let machines = Machines::start(2);
    let (log, killed) = (machines.lake.path("log"), machines.logging("log"));
    let cluster = machines.connect().await.expect("a cluster");
    let (asked, name) = (tasks(24, 1000), killed.name());
    let doing = all(&cluster, asked.clone());
    let killing = async {
        at_work(&log, &asked, 2).await;
        drop(killed);
    };
    let (doers, ()) = tokio::join!(doing, killing);
    let lost = running_tasks(&log);
    assert!(!lost.is_empty());
    for (task, doer) in asked.iter().zip(doers) {
        assert!(doer != name || !lost.contains(&task.id()));
    }
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_executor_is_dropped_and_readmitted() {
    let mut machines = Machines::start(1);
    machines.executors.push(machines.logging("log"));
    let (log, still) = (machines.lake.path("log"), &machines.executors[1]);
    let cluster = machines.connect().await.expect("a cluster");
    let asked = tasks(12, 1500);
    let doing = all(&cluster, asked.clone());
    let stopping = async {
        at_work(&log, &asked, 1).await;
        still.signal("-STOP");
    };
    tokio::join!(doing, stopping);
    assert!(!running_tasks(&log).is_empty());
    cluster.leave().await;

    // What it has begun it ends, when nobody wants it any more and the run has taken everything away.
    let output = machines.lake.path("out").display().to_string();
    let output = Output::open(&output, &Stores::default()).expect("an output");
    output.remove_checkpoints("plan").await;
    let work = machines.lake.path("out/work/plan");
    assert!(!work.exists());
    still.signal("-CONT");
    let start = Instant::now();
    while !work.join("done").exists() {
        assert!(start.elapsed() < Duration::from_secs(20), "it does nothing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cleaning = Cleaning {
        keep: 0,
        older_than: SignedDuration::ZERO,
        dry_run: false,
    };
    let cleaned = output.clean(&cleaning).await.expect("a folder");
    let removed: Vec<&str> = cleaned.work.iter().map(|(plan, _)| plan.as_str()).collect();
    assert_eq!(removed, ["plan"]);
    assert!(!work.exists());
    let start = Instant::now();
    loop {
        let again = machines.connect().await.expect("a cluster");
        let known = again.executors().iter().map(|e| e.name.clone());
        let known: BTreeSet<_> = known.collect();
        again.leave().await;
        if known == machines.names() {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{known:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_resubmits_its_tasks_to_a_restarted_scheduler() {
    let mut machines = Machines::start(1);
    machines.executors.push(machines.logging("log"));
    let cluster = machines.connect().await.expect("a cluster");
    let asked = tasks(24, 400);
    let doing = all(&cluster, asked.clone());
    let (lake, scheduler) = (&machines.lake, &mut machines.scheduler);
    let restarting = async {
        at_work(&lake.path("log"), &asked, 1).await;
        let place = scheduler.line.trim_start_matches("df://").to_string();
        scheduler.signal("-KILL");
        scheduler.child.wait().expect("it has ended");
        tokio::time::sleep(Duration::from_secs(2)).await;
        *scheduler = Process::start(lake, &["scheduler", "--listen", &place]);
        assert!(scheduler.line.ends_with(&place), "{}", scheduler.line);
    };
    tokio::join!(doing, restarting);
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_executor_finishes_its_tasks() {
    let mut machines = Machines::start(0);
    let mut first = machines.logging("log");
    let cluster = machines.connect().await.expect("a cluster");
    let (asked, name) = (tasks(8, 3000), first.name());
    let doing = all(&cluster, asked.clone());
    let changing = async {
        at_work(&machines.lake.path("log"), &asked, 2).await;
        first.signal("-TERM");
        let start = Instant::now();
        let status = loop {
            match first.child.try_wait().expect("it is there or was") {
                Some(status) => break status,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        assert_eq!(status.code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(10));
        machines.executors.push(machines.executor());
    };
    let (doers, ()) = tokio::join!(doing, changing);
    // It did the two that it had begun when the signal came.
    assert_eq!(doers.iter().filter(|doer| **doer == name).count(), 2);
    cluster.leave().await;
}

/// What is not begun when a client leaves stays so; the next goes on from what is done.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_client_reuses_the_answers_of_one_that_left() {
    let machines = Machines::start(0);
    let _executors = ["one", "other"].map(|log| machines.logging(log));
    let logs = ["one", "other"].map(|log| machines.lake.path(log));
    let cluster = machines.connect().await.expect("a cluster");
    let asked = tasks(24, 1000);
    let done = || {
        let folder = machines.lake.path("out/work/plan/done");
        let names = std::fs::read_dir(folder).expect("answers");
        let names = names.map(|entry| entry.expect("a file").file_name());
        let is_asked = |name: &std::ffi::OsString| asked.iter().any(|t| *t.id() == **name);
        names.filter(is_asked).count()
    };
    let some = Notify::new();
    let hear = |_| some.notify_one();
    let stopped = async {
        tokio::select! {
            _ = cluster.run("test", asked.clone(), &hear) => panic!("too quick"),
            () = some.notified() => (),
        }
    };
    stopped.await;
    cluster.leave().await;
    // Those that were being done are.
    let mut is_idle = false;
    while !is_idle {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        is_idle = logs.iter().all(|log| running_tasks(log).is_empty());
    }
    let before = done();
    assert!((1..24).contains(&before), "{before}");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(done(), before);

    let again = machines.connect().await.expect("a cluster");
    let first = std::sync::Mutex::new(None);
    let hear = |n| {
        first.lock().unwrap().get_or_insert(n);
    };
    let answers = again.run("test", asked.clone(), &hear).await;
    assert_eq!(doers(answers.expect("all answers")).len(), 24);
    assert_eq!(*first.lock().unwrap(), Some(before));
    again.leave().await;
    let marks = std::fs::read_dir(machines.lake.path("out/work/plan/marks"));
    assert_eq!(marks.expect("a folder").count(), 0);
}

/// Executors sign in by their own environment, and ask whom that says: what the client signs in with stays with it, and so does the host that
/// it asks.
#[tokio::test(flavor = "multi_thread")]
async fn answers_pass_through_a_bucket() {
    let Some(server) = Server::moto(&["lake"]) else {
        return;
    };
    let mut machines = Machines::start(0);
    let start = |machines: &Machines, own: &[(&str, &str)]| {
        let to = &machines.scheduler.line;
        let arguments = ["executor", "--scheduler", to, "--vcores", "2"];
        let mut command = command(&machines.lake, &[], &arguments);
        command.env("TMPDIR", machines.lake.folder.path());
        Process::of(command.envs(own.iter().copied()))
    };
    let url = server.url();
    let signed = [
        ("AWS_ACCESS_KEY_ID", "THEIRS"),
        ("AWS_SECRET_ACCESS_KEY", "their-own"),
        ("AWS_ENDPOINT_URL", &url),
        ("AWS_ALLOW_HTTP", "true"),
    ];
    machines.executors.push(start(&machines, &signed[..2]));
    let options = BTreeMap::from_iter(server.s3());
    let stores = Stores::new(options);
    let (address, output) = (machines.address(), "s3://lake/some/out");
    let cluster = Cluster::connect(&address, output, "plan", &stores).await;
    let e = cluster.map(drop).expect_err("it knows no endpoint");
    assert_eq!(e.kind(), Kind::Spec, "{}", e.full());
    for part in [
        &machines.executors[0].name(),
        "`aws_endpoint_url` of `[store.options]` decides who receives credentials",
        "AWS_ENDPOINT_URL in its environment",
    ] {
        assert!(e.full().contains(part), "{part:?} in {}", e.full());
    }
    machines.executors.clear();
    for _ in 0..2 {
        machines.executors.push(start(&machines, &signed));
    }
    let cluster = Cluster::connect(&address, output, "plan", &stores).await;
    let cluster = cluster.expect("a cluster");
    assert_eq!(cluster.executors().len(), 2);
    all(&cluster, tasks(40, 10)).await;
    cluster.leave().await;
    // A bucket that is not there is an error of the client, before any task.
    let gone = Cluster::connect(&address, "s3://gone/out", "plan", &stores).await;
    let e = gone.map(drop).expect_err("no bucket");
    assert!(e.full().contains("s3://gone/out"), "{}", e.full());
}

/// What keeps one task from being answered is told, and the others are done.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_store_is_an_error_after_several_attempts() {
    let machines = Machines::start(1);
    let cluster = machines.connect().await.expect("a cluster");
    let asked = tasks(4, 0);
    // A folder in the place of an answer.
    let folder = format!("out/work/plan/done/{}/in", asked[2].id());
    std::fs::create_dir_all(machines.lake.path(&folder)).expect("a folder");
    let heard = AtomicUsize::new(0);
    let hear = |n| {
        heard.fetch_add(n, Ordering::Relaxed);
    };
    let failed = cluster.run("test", asked, &hear).await.map(drop);
    let e = failed.expect_err("one answer cannot be written");
    assert_eq!(e.kind(), Kind::Store, "{}", e.full());
    for part in [
        ", with 1 executor, left 1 of 4 tasks of the stage test undone, in 3 tries: ",
        &machines.executors[0].name(),
        "out/work/plan",
    ] {
        assert!(e.full().contains(part), "{part:?} in {}", e.full());
    }
    assert_eq!(heard.load(Ordering::Relaxed), 3);
    cluster.leave().await;
}

/// A task that was begun again and again is given up, so that it does not take every executor with it.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_never_ends_is_abandoned() {
    let machines = Machines::start(1);
    let cluster = machines.connect().await.expect("a cluster");
    let asked = tasks(2, 3000);
    let running = format!("out/work/plan/running/{}", asked[1].id());
    std::fs::create_dir_all(machines.lake.path(&running)).expect("a folder");
    for attempt in 0..6 {
        // What an executor leaves that died.
        machines.lake.file(&format!("{running}/{attempt}"), "");
    }
    let failed = cluster.run("test", asked.clone(), &|_| ()).await.map(drop);
    let e = failed.expect_err("it is given up");
    assert_eq!(e.kind(), Kind::Resources);
    let told = "a task of the stage test was begun 6 times and never ended";
    assert!(e.full().contains(told), "{}", e.full());
    assert!(e.full().contains(&asked[1].id()), "{}", e.full());
    cluster.leave().await;
}

/// Whether tests that wait for minutes are wanted.
pub fn is_slow() -> bool {
    let is_wanted = std::env::var_os("GYRE_SLOW_TESTS").is_some();
    if !is_wanted {
        eprintln!("left out: GYRE_SLOW_TESTS is not set");
    }
    is_wanted
}

async fn fails_after(cluster: &Cluster, n: u32, seconds: std::ops::Range<u64>) -> Error {
    let start = Instant::now();
    let failed = cluster.run("test", tasks(n, 300), &|_| ()).await.map(drop);
    let took = start.elapsed();
    let e = failed.expect_err("nobody does it");
    println!("{took:?}: {}", e.full());
    assert!(seconds.contains(&took.as_secs()), "{took:?}");
    e
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_executors_is_an_error_after_a_timeout() {
    if !is_slow() {
        return;
    }
    let mut machines = Machines::start(2);
    let cluster = machines.connect().await.expect("a cluster");
    let failing = fails_after(&cluster, 1000, 40..300);
    let killing = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        machines.executors.clear();
    };
    let (e, ()) = tokio::join!(failing, killing);
    assert_eq!(e.kind().exit_code(), 75);
    assert!(e.full().contains("with 0 executors, left "), "{}", e.full());
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_scheduler_is_an_error_after_a_minute() {
    if !is_slow() {
        return;
    }
    let machines = Machines::start(1);
    let cluster = machines.connect().await.expect("a cluster");
    let Machines {
        lake: _lake,
        scheduler,
        executors: _executors,
    } = machines;
    let failing = fails_after(&cluster, 1000, 60..90);
    let killing = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(scheduler);
    };
    let (e, ()) = tokio::join!(failing, killing);
    assert_eq!(e.kind().exit_code(), 75);
    assert!(e.full().contains("cannot be reached"), "{}", e.full());
    cluster.leave().await;
}

/// Executors are killed at random moments, and others come.
#[tokio::test(flavor = "multi_thread")]
async fn executors_that_join_and_leave_complete_all_tasks() {
    let kills = if is_slow() { 100 } else { 10 };
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let mut machines = Machines::start(3);
    let cluster = machines.connect().await.expect("a cluster");
    let n = 24 * kills;
    let heard = AtomicUsize::new(0);
    let hear = |n| {
        heard.fetch_add(n, Ordering::Relaxed);
    };
    let doing = cluster.run("test", tasks(n, 200), &hear);
    let killing = async {
        for _ in 0..kills {
            let wait = random.random_range(100..1200);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let at = random.random_range(0..machines.executors.len());
            drop(machines.executors.remove(at));
            machines.executors.push(machines.executor());
        }
        heard.load(Ordering::Relaxed)
    };
    let (answers, before) = tokio::join!(doing, killing);
    doers(answers.expect("the cluster answers"));
    println!("{kills} executors killed while {before} of {n} tasks were done");
    assert!(before > 0);
    assert_eq!(heard.load(Ordering::Relaxed), n as usize);
    cluster.leave().await;
}

#[test]
fn a_run_reports_an_unusable_cluster() {
    let lake = Lake::new();
    small_pipeline(&lake);
    let run = |cluster: &str, more: &[&str]| {
        let arguments = [&["run", "p.toml", "--cluster", cluster], more].concat();
        let start = Instant::now();
        let ran = lake.gyre(&arguments);
        (ran, start.elapsed())
    };
    let (ran, _) = run("host:50050", &[]);
    ran.fails(2, "such as df://host:50050");
    // Nobody is at port 1.
    let (ran, took) = run("df://127.0.0.1:1", &[]);
    ran.fails(75, "no scheduler answers at df://127.0.0.1:1");
    assert!(took < Duration::from_secs(8), "{took:?}");
    let (ran, took) = {
        let start = Instant::now();
        let ran = lake.gyre(&["executor", "--scheduler", "df://127.0.0.1:1"]);
        (ran, start.elapsed())
    };
    ran.fails(75, "no scheduler answers at df://127.0.0.1:1");
    assert!(took < Duration::from_secs(8), "{took:?}");

    let mut machines = Machines::start(0);
    let address = machines.scheduler.line.clone();
    let (ran, took) = run(&address, &[]);
    ran.fails(75, "has no executors, and none came in 20 seconds");
    assert!(took < Duration::from_secs(30), "{took:?}");

    // No process sees the memory of another.
    machines.executors.push(machines.executor());
    let (ran, took) = run(&address, &["--set", "job.output=memory:///out"]);
    ran.fails(2, &machines.executors[0].name());
    ran.fails(2, "does not see memory:///out as the client does");
    assert!(took < Duration::from_secs(8), "{took:?}");
    run(&address, &[]).0.succeeds();

    let place = address.trim_start_matches("df://");
    let second = lake.gyre(&["scheduler", "--listen", place]);
    second.fails(75, &format!("cannot listen at {place}"));
}

/// Runs of one pipeline here and there, while executors are killed at random moments.
#[test]
fn a_run_on_a_cluster_writes_the_same_bytes() {
    let lake = Lake::new();
    small_pipeline(&lake);
    lake.gyre(&["run", "p.toml"]).succeeds();
    let here = lake.tables();
    let mut machines = Machines::start(2);
    let address = machines.scheduler.line.clone();
    let run = ["run", "p.toml", "--force", "-v", "--cluster", &address];
    let start = Instant::now();
    let ran = lake.gyre(&run).succeeds();
    let whole = start.elapsed();
    assert!(ran.err.contains("tasks handed in"), "{}", ran.err);
    assert!(lake.tables() == here);
    let left = std::fs::read_dir(lake.path("out/work"));
    assert_eq!(left.map_or(0, |left| left.count()), 0);

    let seed = rand::random();
    println!("{whole:?} undisturbed, seed {seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    for _ in 0..if is_slow() { 20 } else { 2 } {
        let mut command = lake.command(&run);
        let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = quiet.spawn().expect("the program starts");
        std::thread::sleep(whole.mul_f64(random.random_range(0.0..1.0)));
        drop(machines.executors.remove(0));
        machines.executors.push(machines.executor());
        assert_eq!(child.wait().expect("it has ended").code(), Some(0));
        assert!(lake.tables() == here);
    }
    // What is done needs nobody.
    drop(machines);
    let again = lake
        .gyre(&["run", "p.toml", "--cluster", &address])
        .succeeds();
    assert_eq!(again.out, "Nothing to do.\n");
}

/// Whether a process is there.
fn is_alive(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// The processes that another has started.
fn children(process: &Process) -> Vec<String> {
    let id = process.child.id();
    let listed = std::fs::read_dir(format!("/proc/{id}/task")).expect("its threads");
    let of_thread = listed.map(|thread| {
        let path = thread.expect("a thread").path().join("children");
        std::fs::read_to_string(path).unwrap_or_default()
    });
    let all: String = of_thread.collect();
    all.split_whitespace().map(String::from).collect()
}

#[test]
fn processes_of_a_local_cluster_start_and_stop_together() {
    let lake = Lake::new();
    small_pipeline(&lake);
    for signal in ["-INT", "-TERM", "-KILL"] {
        let up = ["cluster", "up", "--executors", "2", "--port", "0"];
        let mut up = Process::start(&lake, &up);
        let started = children(&up);
        assert_eq!(started.len(), 3, "{}", up.line);
        let ran = lake.gyre(&["run", "p.toml", "--force", "--cluster", &up.line]);
        ran.succeeds();
        up.signal(signal);
        let status = up.child.wait().expect("it has ended");
        if signal != "-KILL" {
            assert_eq!(status.code(), Some(0), "{signal}");
        }
        let start = Instant::now();
        while started.iter().any(|id| is_alive(id)) {
            assert!(start.elapsed() < Duration::from_secs(10), "{signal}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
