//! Processes of a cluster on this machine.

use crate::lake::Lake;
use gyre::cluster::address::Address;
use gyre::cluster::ballista::client::Cluster;
use gyre::error::Error;
use gyre::store::Stores;
use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process of the program, which is killed when it is not needed any more, and the first line that it has printed.
pub struct Process {
    pub child: Child,
    pub line: String,
}

impl Process {
    pub fn start(lake: &Lake, arguments: &[&str]) -> Process {
        // What a killed process leaves goes with the lake.
        Process::of(lake.command(arguments).env("TMPDIR", lake.folder.path()))
    }

    pub fn of(command: &mut Command) -> Process {
        let command = command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("the program starts");
        let out = child.stdout.take().expect("its output");
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        let line = line.trim().to_string();
        Process { child, line }
    }

    pub fn signal(&self, signal: &str) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status();
        assert!(sent.expect("kill").success());
    }

    /// What the process is called in answers.
    pub fn name(&self) -> String {
        let (name, _) = self.line.split_once(" asks ").expect("an executor");
        name.to_string()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().expect("it is there or was");
        self.child.wait().expect("it has ended");
    }
}

/// The tasks that an executor has at hand, as its log says, where it tells all (`-vv`). An answer is written after the task has ended.
pub fn at_hand(log: &Path) -> BTreeSet<String> {
    let told = fs::read_to_string(log).expect("a log");
    let mut tasks = BTreeSet::new();
    for line in told.lines() {
        let id = line.split("task=\"").nth(1);
        let Some(id) = id.and_then(|rest| rest.split('"').next()) else {
            continue;
        };
        if line.contains(" begins ") {
            tasks.insert(id.to_string());
        } else if line.contains(" ends ") {
            tasks.remove(id);
        }
    }
    tasks
}

/// A scheduler and its executors, each with two tasks at once.
pub struct Machines {
    pub lake: Lake,
    pub scheduler: Process,
    pub executors: Vec<Process>,
}

impl Machines {
    pub fn start(executors: usize) -> Machines {
        let mut machines = Machines::at("127.0.0.1:0");
        for _ in 0..executors {
            machines.executors.push(machines.executor());
        }
        machines
    }

    /// A scheduler that listens there.
    pub fn at(listen: &str) -> Machines {
        let lake = Lake::new();
        let scheduler = Process::start(&lake, &["scheduler", "--listen", listen]);
        Machines {
            lake,
            scheduler,
            executors: Vec::new(),
        }
    }

    pub fn executor(&self) -> Process {
        let to = &self.scheduler.line;
        Process::start(
            &self.lake,
            &["executor", "--scheduler", to, "--vcores", "2"],
        )
    }

    /// An executor whose log, of all it does, is such a file.
    pub fn logging(&self, log: &str) -> Process {
        let to = &self.scheduler.line;
        let arguments = ["executor", "--scheduler", to, "--vcores", "2", "-vv"];
        let mut command = self.lake.command(&arguments);
        command.env("TMPDIR", self.lake.folder.path());
        Process::of(command.stderr(File::create(self.lake.path(log)).expect("a log")))
    }

    /// Sends a signal to every executor.
    pub fn signal(&self, signal: &str) {
        for executor in &self.executors {
            executor.signal(signal);
        }
    }

    /// Kills the scheduler; another takes its place and knows nothing.
    pub fn restart_scheduler(&mut self) {
        let place = self.scheduler.line.trim_start_matches("df://").to_string();
        self.scheduler.child.kill().expect("it is there");
        self.scheduler.child.wait().expect("it has ended");
        self.scheduler = Process::start(&self.lake, &["scheduler", "--listen", &place]);
    }

    pub fn address(&self) -> Address {
        self.scheduler.line.parse().expect("an address")
    }

    pub async fn connect(&self) -> Result<Cluster, Error> {
        let output = self.lake.path("out").display().to_string();
        Cluster::connect(&self.address(), &output, "plan", &Stores::default()).await
    }

    pub fn names(&self) -> BTreeSet<String> {
        self.executors.iter().map(Process::name).collect()
    }
}
