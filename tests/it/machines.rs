//! Processes of a cluster on this machine.

use crate::lake::Lake;
use gyre::cli::Address;
use gyre::cluster::Cluster;
use gyre::error::Error;
use gyre::stores::Stores;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
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
