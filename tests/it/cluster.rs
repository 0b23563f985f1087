//! Tasks on a real cluster of this machine. Every scheduler and executor is a process that the
//! tests kill, stop and restart.

use crate::cli::small_lake;
use crate::clouds::{Server, command};
use crate::inside::immediate_cleaning;
use crate::machines::{Machines, Process, running_tasks};
use crate::needs::is_slow;
use gyre::cluster::ballista::client::Cluster;
use gyre::cluster::ballista::probe::{Probe, ProbeAnswer};
use gyre::error::{Error, Kind};
use gyre::output::place::Output;
use gyre::run::workers::nodes::{Nodes, Task};
use gyre::store::Stores;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
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

/// The executor of each answer. Asserts that the answers are in the order of the tasks.
fn executors_of(answers: Vec<Result<Vec<u8>, Error>>) -> Vec<String> {
    let probed = answers.into_iter().map(|answer| {
        let bytes = answer.expect("an answer");
        ProbeAnswer::read(&bytes).expect("an answer to a probe")
    });
    let numbered = probed.enumerate().map(|(at, answer)| {
        assert_eq!(answer.number as usize, at);
        answer.name
    });
    numbered.collect()
}

async fn all(cluster: &Cluster, tasks: Vec<Task>) -> Vec<String> {
    let answers = cluster.run("test", tasks, &|_| ()).await;
    executors_of(answers.expect("the cluster answers"))
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_keep_the_order_of_tasks_and_each_task_runs_once() {
    let machines = Machines::start(2);
    let cluster = machines.connect().await.expect("a cluster");
    let known = cluster.executors().iter().map(|e| e.name.clone());
    assert_eq!(known.collect::<BTreeSet<_>>(), machines.names());
    assert_eq!(cluster.slots(), 4);

    let mut submitted = tasks(60, 20);
    let wrong = Task { bytes: vec![255] };
    submitted.insert(30, wrong.clone());
    submitted.push(submitted[3].clone());
    let answered = AtomicUsize::new(0);
    let note = |n| {
        answered.fetch_add(n, Ordering::Relaxed);
    };
    let answers = cluster.run("test", submitted, &note).await;
    let mut answers = answers.expect("the cluster answers");
    assert_eq!(answered.load(Ordering::Relaxed), 61);
    // The error of one task does not affect the others.
    let error = answers.remove(30).expect_err("no task");
    let message = "this is not a task of gyre";
    assert!(error.full().contains(message), "{error}");
    assert_eq!(error.kind(), Kind::Spec);
    let last = answers.pop().expect("an answer").expect("a finished task");
    assert_eq!(answers[3].as_ref().expect("a finished task"), &last);
    let executors: BTreeSet<_> = executors_of(answers).into_iter().collect();
    assert_eq!(executors, machines.names());

    // Finished tasks are not repeated, even without executors.
    drop(machines.executors);
    drop(machines.scheduler);
    let answers = cluster.run("test", tasks(60, 20), &note).await;
    executors_of(answers.expect("all answers are there"));
    assert_eq!(answered.load(Ordering::Relaxed), 121);
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
    let took = start.elapsed();
    println!("one task: {seconds:.3?} seconds, 200: {took:?}");
    seconds.sort_by(f64::total_cmp);
    assert!(seconds[2] < 1.0, "{seconds:?}");
    cluster.leave().await;
}

/// Waits until the log of an executor shows `n` of these tasks as running.
async fn wait_for_tasks(log: &Path, submitted: &[Task], n: usize) {
    let ids: BTreeSet<String> = submitted.iter().map(Task::id).collect();
    let start = Instant::now();
    while running_tasks(log).intersection(&ids).count() < n {
        assert!(start.elapsed().as_secs() < 60, "no task is running");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_tasks_of_a_killed_executor_are_repeated() {
    let machines = Machines::start(2);
    let (log, killed) = (machines.lake.path("log"), machines.logging("log"));
    let cluster = machines.connect().await.expect("a cluster");
    let (submitted, name) = (tasks(24, 1000), killed.name());
    let all_tasks = all(&cluster, submitted.clone());
    let kill = async {
        wait_for_tasks(&log, &submitted, 2).await;
        drop(killed);
    };
    let (executors, ()) = tokio::join!(all_tasks, kill);
    let lost = running_tasks(&log);
    assert!(!lost.is_empty());
    for (task, executor) in submitted.iter().zip(executors) {
        assert!(executor != name || !lost.contains(&task.id()));
    }
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_executor_is_dropped_and_readmitted() {
    let mut machines = Machines::start(1);
    machines.executors.push(machines.logging("log"));
    let (log, stalled) = (machines.lake.path("log"), &machines.executors[1]);
    let cluster = machines.connect().await.expect("a cluster");
    let submitted = tasks(12, 1500);
    let all_tasks = all(&cluster, submitted.clone());
    let stop = async {
        wait_for_tasks(&log, &submitted, 1).await;
        stalled.signal("-STOP");
    };
    tokio::join!(all_tasks, stop);
    assert!(!running_tasks(&log).is_empty());
    cluster.leave().await;

    // The stalled executor finishes its task after all others have left and the run has removed its
    // checkpoints.
    let output = machines.lake.path("out").display().to_string();
    let output = Output::open(&output, &Stores::default()).expect("an output");
    output.remove_checkpoints("plan").await;
    let work = machines.lake.path("out/work/plan");
    assert!(!work.exists());
    stalled.signal("-CONT");
    let start = Instant::now();
    while !work.join("done").exists() {
        assert!(start.elapsed().as_secs() < 20, "no task is running");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cleaning = immediate_cleaning(0);
    let cleaned = output.clean(&cleaning).await.expect("a folder");
    let removed: Vec<&str> = cleaned.work.iter().map(|(plan, _)| plan.as_str()).collect();
    assert_eq!(removed, ["plan"]);
    assert!(!work.exists());
    let start = Instant::now();
    loop {
        let second = machines.connect().await.expect("a cluster");
        let known = second.executors().iter().map(|e| e.name.clone());
        let known: BTreeSet<_> = known.collect();
        second.leave().await;
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
    let submitted = tasks(24, 400);
    let all_tasks = all(&cluster, submitted.clone());
    let (lake, scheduler) = (&machines.lake, &mut machines.scheduler);
    let restart = async {
        wait_for_tasks(&lake.path("log"), &submitted, 1).await;
        let place = scheduler.line.trim_start_matches("df://").to_string();
        scheduler.signal("-KILL");
        scheduler.child.wait().expect("the process ends");
        tokio::time::sleep(Duration::from_secs(2)).await;
        *scheduler = Process::start(lake, &["scheduler", "--listen", &place]);
        assert!(scheduler.line.ends_with(&place), "{}", scheduler.line);
    };
    tokio::join!(all_tasks, restart);
    cluster.leave().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_executor_finishes_its_tasks() {
    let mut machines = Machines::start(0);
    let mut first = machines.logging("log");
    let cluster = machines.connect().await.expect("a cluster");
    let (submitted, name) = (tasks(8, 3000), first.name());
    let all_tasks = all(&cluster, submitted.clone());
    let replace = async {
        wait_for_tasks(&machines.lake.path("log"), &submitted, 2).await;
        first.signal("-TERM");
        let start = Instant::now();
        let status = loop {
            match first.child.try_wait().expect("the process exists") {
                Some(status) => break status,
                None => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        };
        assert_eq!(status.code(), Some(0));
        assert!(start.elapsed() < Duration::from_secs(10));
        machines.executors.push(machines.executor());
    };
    let (executors, ()) = tokio::join!(all_tasks, replace);
    // The executor finished the two tasks that it was running when the signal came.
    let own = executors.iter().filter(|executor| **executor == name);
    assert_eq!(own.count(), 2);
    cluster.leave().await;
}

/// Tasks that have not started when a client leaves do not start. The next client reuses the
/// answers.
#[tokio::test(flavor = "multi_thread")]
async fn a_new_client_reuses_the_answers_of_one_that_left() {
    let machines = Machines::start(0);
    let _executors = ["one", "other"].map(|log| machines.logging(log));
    let logs = ["one", "other"].map(|log| machines.lake.path(log));
    let cluster = machines.connect().await.expect("a cluster");
    let submitted = tasks(24, 1000);
    let done = || {
        let folder = machines.lake.path("out/work/plan/done");
        let names = std::fs::read_dir(folder).expect("answers");
        let names = names.map(|entry| entry.expect("a file").file_name());
        let is_submitted = |name: &std::ffi::OsString| submitted.iter().any(|t| *t.id() == **name);
        names.filter(is_submitted).count()
    };
    let some = Notify::new();
    let note = |_| some.notify_one();
    let stop = async {
        tokio::select! {
            _ = cluster.run("test", submitted.clone(), &note) => panic!("too quick"),
            () = some.notified() => (),
        }
    };
    stop.await;
    cluster.leave().await;
    // Tasks that were running finish.
    let mut is_idle = false;
    while !is_idle {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        is_idle = logs.iter().all(|log| running_tasks(log).is_empty());
    }
    let before = done();
    assert!((1..24).contains(&before), "{before}");
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert_eq!(done(), before);

    let second = machines.connect().await.expect("a cluster");
    let first = std::sync::Mutex::new(None);
    let note = |n| {
        first.lock().unwrap().get_or_insert(n);
    };
    let answers = second.run("test", submitted.clone(), &note).await;
    assert_eq!(executors_of(answers.expect("all answers")).len(), 24);
    assert_eq!(*first.lock().unwrap(), Some(before));
    second.leave().await;
    let marks = std::fs::read_dir(machines.lake.path("out/work/plan/marks"));
    assert_eq!(marks.expect("a folder").count(), 0);
}

/// Executors use the credentials and the host of their own environment. The credentials and the
/// host of the client do not leave the client.
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
    let e = cluster
        .map(drop)
        .expect_err("the environment has no endpoint");
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
    // A missing bucket is an error of the client before the first task.
    let missing = Cluster::connect(&address, "s3://gone/out", "plan", &stores).await;
    let e = missing.map(drop).expect_err("no bucket");
    assert!(e.full().contains("s3://gone/out"), "{}", e.full());
}

/// The reason why one task has no answer is reported, and the other tasks are completed.
#[tokio::test(flavor = "multi_thread")]
async fn a_failing_store_is_an_error_after_several_attempts() {
    let machines = Machines::start(1);
    let cluster = machines.connect().await.expect("a cluster");
    let submitted = tasks(4, 0);
    // A folder in place of an answer.
    let folder = format!("out/work/plan/done/{}/in", submitted[2].id());
    std::fs::create_dir_all(machines.lake.path(&folder)).expect("a folder");
    let answered = AtomicUsize::new(0);
    let note = |n| {
        answered.fetch_add(n, Ordering::Relaxed);
    };
    let failed = cluster.run("test", submitted, &note).await.map(drop);
    let e = failed.expect_err("one answer cannot be written");
    assert_eq!(e.kind(), Kind::Store, "{}", e.full());
    for part in [
        ", with 1 executor, left 1 of 4 tasks of the stage test undone, in 3 tries: ",
        &machines.executors[0].name(),
        "out/work/plan",
    ] {
        assert!(e.full().contains(part), "{part:?} in {}", e.full());
    }
    assert_eq!(answered.load(Ordering::Relaxed), 3);
    cluster.leave().await;
}

/// A task that several executors started without an end is abandoned, so that it cannot crash every
/// executor.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_never_ends_is_abandoned() {
    let machines = Machines::start(1);
    let cluster = machines.connect().await.expect("a cluster");
    let submitted = tasks(2, 3000);
    let running = format!("out/work/plan/running/{}", submitted[1].id());
    std::fs::create_dir_all(machines.lake.path(&running)).expect("a folder");
    for attempt in 0..6 {
        // The mark of a dead executor.
        machines.lake.file(&format!("{running}/{attempt}"), "");
    }
    let failed = cluster.run("test", submitted.clone(), &|_| ()).await;
    let e = failed.map(drop).expect_err("the client gives up");
    assert_eq!(e.kind(), Kind::Resources);
    let message = "a task of the stage test was begun 6 times and never ended";
    assert!(e.full().contains(message), "{}", e.full());
    assert!(e.full().contains(&submitted[1].id()), "{}", e.full());
    cluster.leave().await;
}

async fn fails_after(cluster: &Cluster, n: u32, seconds: std::ops::Range<u64>) -> Error {
    let start = Instant::now();
    let failed = cluster.run("test", tasks(n, 300), &|_| ()).await.map(drop);
    let took = start.elapsed();
    let e = failed.expect_err("there is no executor");
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
    let kill = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        machines.executors.clear();
    };
    let (e, ()) = tokio::join!(failing, kill);
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
    let kill = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        drop(scheduler);
    };
    let (e, ()) = tokio::join!(failing, kill);
    assert_eq!(e.kind().exit_code(), 75);
    assert!(e.full().contains("cannot be reached"), "{}", e.full());
    cluster.leave().await;
}

/// Executors are killed at random times, and new ones join.
#[tokio::test(flavor = "multi_thread")]
async fn executors_that_join_and_leave_complete_all_tasks() {
    let kills = if is_slow() { 100 } else { 10 };
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = Pcg64::seed_from_u64(seed);
    let mut machines = Machines::start(3);
    let cluster = machines.connect().await.expect("a cluster");
    let n = 24 * kills;
    let answered = AtomicUsize::new(0);
    let note = |n| {
        answered.fetch_add(n, Ordering::Relaxed);
    };
    let all_tasks = cluster.run("test", tasks(n, 200), &note);
    let kill = async {
        for _ in 0..kills {
            let wait = random.random_range(100..1200);
            tokio::time::sleep(Duration::from_millis(wait)).await;
            let at = random.random_range(0..machines.executors.len());
            drop(machines.executors.remove(at));
            machines.executors.push(machines.executor());
        }
        answered.load(Ordering::Relaxed)
    };
    let (answers, before) = tokio::join!(all_tasks, kill);
    executors_of(answers.expect("the cluster answers"));
    println!("{kills} executors killed while {before} of {n} tasks were done");
    assert!(before > 0);
    assert_eq!(answered.load(Ordering::Relaxed), n as usize);
    cluster.leave().await;
}

#[test]
fn a_run_reports_an_unusable_cluster() {
    let lake = small_lake();
    let run = |cluster: &str, more: &[&str]| {
        let arguments = [&["run", "p.toml", "--cluster", cluster], more].concat();
        let start = Instant::now();
        let ran = lake.gyre(&arguments);
        (ran, start.elapsed())
    };
    let (ran, _) = run("host:50050", &[]);
    ran.fails(2, "such as df://host:50050");
    // No process listens at port 1.
    let (ran, took) = run("df://127.0.0.1:1", &[]);
    ran.fails(75, "no scheduler answers at df://127.0.0.1:1");
    assert!(took < Duration::from_secs(8), "{took:?}");
    let (ran, took) = {
        let start = Instant::now();
        let ran = lake.line("executor --scheduler df://127.0.0.1:1");
        (ran, start.elapsed())
    };
    ran.fails(75, "no scheduler answers at df://127.0.0.1:1");
    assert!(took < Duration::from_secs(8), "{took:?}");

    let mut machines = Machines::start(0);
    let address = machines.scheduler.line.clone();
    let (ran, took) = run(&address, &[]);
    ran.fails(75, "has no executors, and none came in 20 seconds");
    assert!(took < Duration::from_secs(30), "{took:?}");

    // The processes of a cluster cannot read tables in each other's memory.
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

/// Whether a process exists.
fn is_alive(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// The child processes of a process.
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
    let lake = small_lake();
    for signal in ["-INT", "-TERM", "-KILL"] {
        let up = ["cluster", "up", "--executors", "2", "--port", "0"];
        let mut up = Process::start(&lake, &up);
        let started = children(&up);
        assert_eq!(started.len(), 3, "{}", up.line);
        let ran = lake.gyre(&["run", "p.toml", "--force", "--cluster", &up.line]);
        ran.succeeds();
        up.signal(signal);
        let status = up.child.wait().expect("the process ends");
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
