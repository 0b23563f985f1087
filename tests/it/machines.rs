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

/// A process of the program and the first line that it printed. Dropping it kills the process.
pub struct Process {
    pub child: Child,
    pub line: String,
}

impl Process {
    pub fn start(lake: &Lake, arguments: &[&str]) -> Process {
        // The lake removes the temporary files of a killed process.
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

    /// The name of the process in answers.
    pub fn name(&self) -> String {
        let (name, _) = self.line.split_once(" asks ").expect("an executor");
        name.to_string()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.child.kill().expect("the process is killed");
        self.child.wait().expect("the process ends");
    }
}

/// The tasks that an executor was running at the end of its log, which must have the level of
/// `-vv`. An executor writes an answer after the end of its task.
pub fn running_tasks(log: &Path) -> BTreeSet<String> {
    let log_text = fs::read_to_string(log).expect("a log");
    let mut tasks = BTreeSet::new();
    for line in log_text.lines() {
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

/// A scheduler and its executors. Each executor runs two tasks at the same time.
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

    /// Starts a scheduler that listens on an address.
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

    /// Starts an executor that logs everything it does to a file.
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

    /// Kills the scheduler and starts one without state at the same address.
    pub fn restart_scheduler(&mut self) {
        let place = self.scheduler.line.trim_start_matches("df://").to_string();
        self.scheduler.child.kill().expect("the process is killed");
        self.scheduler.child.wait().expect("the process ends");
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
