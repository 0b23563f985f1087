//! One executor loses its network during a run. It is in its own network namespace. The tests close
//! and open the routes to the scheduler and to the store of the output. Packets are dropped without
//! an error, as if a cable were pulled.
//!
//! A namespace needs root, `ip` and `iptables`. `GYRE_CANNOT` names it `netns`.

use crate::clouds::{Server, command, download};
use crate::cluster_runs::{
    WatchedRun, partitioned_pipeline, small_passes_pipeline, tables_of_one_process, walks,
};
use crate::lake::{Lake, ProgramRun};
use crate::machines::{Machines, Process, running_tasks};
use crate::needs::{self, is_slow};
use gyre::store::Stores;
use std::fs;
use std::fs::File;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A network namespace. Dropping it removes the namespace.
struct Namespace {
    name: String,
    /// The address of this machine inside the namespace.
    host: String,
}

fn succeeds(program: &str, arguments: &str) -> bool {
    run(program, arguments).is_ok()
}

/// Runs a command. An error says what the command printed.
fn run(program: &str, arguments: &str) -> Result<(), String> {
    let ran = Command::new(program).args(arguments.split(' ')).output();
    let why = match ran {
        Ok(ran) if ran.status.success() => return Ok(()),
        Ok(ran) => String::from_utf8_lossy(&ran.stderr).trim().to_string(),
        Err(e) => e.to_string(),
    };
    Err(format!("`{program} {arguments}` fails: {why}"))
}

impl Namespace {
    fn new() -> Option<Namespace> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        Namespace::sweep();
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let name = format!("gyre-{process}-{number}");
        let net = format!("10.213.{}", (process + number * 61) % 256);
        let space = Namespace {
            host: format!("{net}.1"),
            name: name.clone(),
        };
        let (ours, theirs) = (format!("gy{process}-{number}"), "eth0");
        let steps = [
            format!("netns add {name}"),
            format!("netns exec {name} iptables -w -L -n"),
            format!("link add {ours} type veth peer name {theirs} netns {name}"),
            format!("addr add {net}.1/30 dev {ours}"),
            format!("link set {ours} up"),
            format!("-n {name} addr add {net}.2/30 dev {theirs}"),
            format!("-n {name} link set {theirs} up"),
        ];
        let made = steps.iter().try_for_each(|step| run("ip", step));
        needs::ability("netns", made).map(|()| space)
    }

    /// Removes namespaces that killed tests have left.
    fn sweep() {
        let listed = Command::new("ip").args(["netns", "list"]).output();
        let listed = listed.map_or(Vec::new(), |listed| listed.stdout);
        for line in String::from_utf8_lossy(&listed).lines() {
            let name = line.split(' ').next().unwrap_or_default();
            let process = name
                .strip_prefix("gyre-")
                .and_then(|rest| rest.split('-').next());
            if process.is_some_and(|id| !fs::exists(format!("/proc/{id}")).unwrap_or(true)) {
                succeeds("ip", &format!("netns del {name}"));
            }
        }
    }

    /// The same command inside the namespace.
    fn command(&self, command: &Command) -> Command {
        let mut in_namespace = Command::new("ip");
        in_namespace.args(["netns", "exec", &self.name]);
        in_namespace
            .arg(command.get_program())
            .args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => in_namespace.env(name, value),
                None => in_namespace.env_remove(name),
            };
        }
        in_namespace.current_dir(command.get_current_dir().expect("a folder"));
        in_namespace
    }

    /// Closes or opens the route to a port of this machine.
    fn set(&self, port: u16, is_open: bool) {
        let verb = if is_open { "-D" } else { "-I" };
        for rule in [
            format!("OUTPUT -p tcp --dport {port}"),
            format!("INPUT -p tcp --sport {port}"),
        ] {
            let rule = format!("netns exec {} iptables -w {verb} {rule} -j DROP", self.name);
            assert!(succeeds("ip", &rule), "{rule}");
        }
    }
}

/// Removing the namespace removes both ends of the virtual wire.
impl Drop for Namespace {
    fn drop(&mut self) {
        succeeds("ip", &format!("netns del {}", self.name));
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Cut {
    Scheduler,
    Store,
    /// Both routes are closed for this time.
    Both(Duration),
}

/// Runs on three executors. One is cut off in each of the given stages. Compares the result with
/// that of one process.
fn check(cut: Cut, stages: &[&str], at_most: Duration) {
    check_run(&partitioned_pipeline(), &[], cut, stages, at_most);
}

/// As `check`, for a given pipeline and options of its runs.
fn check_run(pipeline: &str, more: &[&str], cut: Cut, stages: &[&str], at_most: Duration) {
    let Some(space) = Namespace::new() else {
        return;
    };
    let Some(server) = Server::moto_at(&space.host, &["lake"]) else {
        return;
    };
    let mut machines = Machines::at(&format!("{}:0", space.host));
    walks(&machines.lake, 4000);
    let expected = tables_of_one_process(&machines.lake, pipeline);
    let (output, options) = ("s3://lake/out", server.s3());
    let to = machines.scheduler.line.clone();
    let executor = |lake: &Lake| {
        let arguments = ["executor", "--scheduler", &to, "--vcores", "2", "-vv"];
        let mut command = command(lake, &options, &arguments);
        command.env("TMPDIR", lake.folder.path());
        command
    };
    let log = |lake: &Lake, name: &str| File::create(lake.path(name)).expect("a log");
    for name in ["one.log", "other.log"] {
        let mut command = executor(&machines.lake);
        let command = command.stderr(log(&machines.lake, name));
        machines.executors.push(Process::of(command));
    }
    let mut in_namespace = space.command(&executor(&machines.lake));
    let own = Process::of(in_namespace.stderr(log(&machines.lake, "own.log")));
    let lake = &machines.lake;
    lake.file(
        "p.toml",
        &pipeline.replace("\"out\"", &format!("\"{output}\"")),
    );
    let run = |more_options: &[&str]| {
        let arguments = [&["run", "p.toml", "--cluster", &to], more, more_options].concat();
        command(lake, &options, &arguments)
    };
    let gyre = |more_options: &[&str]| {
        ProgramRun::of(run(more_options).output().expect("the program starts"))
    };
    let stores = Stores::new(options.iter().cloned().collect());
    let check_tables = |when: &str| {
        let tables = download(&stores, output);
        assert!(tables == expected, "{when}");
    };
    let (scheduler, store) = (machines.address().port, server.port());
    let ports = match cut {
        Cut::Scheduler => vec![scheduler],
        Cut::Store => vec![store],
        Cut::Both(_) => vec![scheduler, store],
    };
    for stage in stages {
        let (watched, held) = loop {
            let mut watched = WatchedRun::of(&mut run(&["--force", "-v", "--log-format", "json"]));
            watched.until(stage);
            // The other executors are stopped, so that this executor has a task when its network
            // fails.
            machines.signal("-STOP");
            let (start, mut held) = (Instant::now(), 0);
            while held == 0 && start.elapsed() < Duration::from_secs(5) {
                own.signal("-CONT");
                std::thread::sleep(Duration::from_millis(50));
                own.signal("-STOP");
                held = running_tasks(&lake.path("own.log")).len();
            }
            if held > 0 {
                break (watched, held);
            }
            // The stage ended before the executor got a task.
            own.signal("-CONT");
            machines.signal("-CONT");
            watched.end().succeeds();
        };
        ports.iter().for_each(|port| space.set(*port, false));
        own.signal("-CONT");
        machines.signal("-CONT");
        let start = Instant::now();
        if let Cut::Both(time) = cut {
            std::thread::sleep(time);
            ports.iter().for_each(|port| space.set(*port, true));
        }
        watched.end().succeeds();
        let took = start.elapsed();
        println!("{cut:?} in {stage}, with {held} tasks held: {took:.1?} to the end");
        assert!(took < at_most, "{took:?}");
        check_tables("after the run");
        if !matches!(cut, Cut::Both(_)) {
            ports.iter().for_each(|port| space.set(*port, true));
        }
        // Late answers of the executor have no effect, and it gets tasks again.
        gyre(&[]).succeeds().prints("Nothing to do.\n");
        gyre(&["--force"]).succeeds();
        check_tables("after another run");
        let clean = ["clean", "p.toml", "--older-than", "0s"];
        let mut clean = command(lake, &options, &clean);
        ProgramRun::of(clean.output().expect("the program starts")).succeeds();
        check_tables("after all is cleaned");
    }
    let log_text = lake.text("own.log");
    assert!(!log_text.contains("panicked"), "{log_text}");
    drop(own);
}

const COUNTING_AND_FITTING: [&str; 3] = ["deal", "sum", "fit"];

#[test]
fn an_executor_is_cut_off_from_the_scheduler() {
    let stages = if is_slow() {
        &COUNTING_AND_FITTING[..]
    } else {
        &["sum"]
    };
    check(Cut::Scheduler, stages, Duration::from_secs(60));
}

#[test]
fn an_executor_is_cut_off_from_the_store() {
    let stages = if is_slow() {
        &COUNTING_AND_FITTING[..]
    } else {
        &["fit"]
    };
    check(Cut::Store, stages, Duration::from_secs(150));
    if is_slow() {
        // The executor rarely gets a task of the many later rounds.
        let (pipeline, split) = small_passes_pipeline();
        let at_most = Duration::from_secs(400);
        check_run(&pipeline, &split, Cut::Store, &["pass"], at_most);
    }
}

#[test]
fn an_executor_is_cut_off_and_comes_back() {
    let stages = if is_slow() {
        &COUNTING_AND_FITTING[..]
    } else {
        &["deal"]
    };
    check(
        Cut::Both(Duration::from_secs(8)),
        stages,
        Duration::from_secs(90),
    );
    if is_slow() {
        // Longer than the scheduler waits for a silent executor.
        check(
            Cut::Both(Duration::from_secs(40)),
            stages,
            Duration::from_secs(150),
        );
    }
}
