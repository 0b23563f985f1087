//! A task that only asks an executor for its name, version and number of threads.

use crate::cluster::ballista::VERSION;
use crate::error::Result;
use crate::evidence::pass::packed::{pack, unpack};
use crate::run::workers::nodes::Task;
use serde::{Deserialize, Serialize};

/// The first bytes of a probe, which no other task has.
const FORMAT: &[u8] = concat!("gyre probe ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// The question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Unique, so that no answer to an earlier probe is taken for one to this probe.
    pub nonce: String,
    /// The number of the probe among those with this nonce.
    pub number: u32,
    /// Milliseconds to wait before the answer, so that idle executors get a share of the probes.
    pub wait_millis: u32,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeAnswer {
    /// The number of the probe.
    pub number: u32,
    /// The name of the process in errors.
    pub name: String,
    /// The version of gyre.
    pub version: String,
    /// Tasks that the process does at once.
    pub threads: usize,
}

impl Probe {
    /// The probe as a task.
    ///
    /// # Errors
    /// If it cannot be packed, which is a bug.
    pub fn task(&self) -> Result<Task> {
        let bytes = [FORMAT, &pack(self)?].concat();
        Ok(Task { bytes })
    }

    /// The probe in a task, if the task is one.
    pub(crate) fn of(task: &Task) -> Option<Result<Probe>> {
        task.bytes.strip_prefix(FORMAT).map(unpack)
    }

    /// The answer of a process.
    pub(crate) fn answer(&self, name: &str, threads: usize) -> Result<Vec<u8>> {
        pack(&ProbeAnswer {
            number: self.number,
            name: name.into(),
            version: VERSION.into(),
            threads,
        })
    }
}

impl ProbeAnswer {
    /// Unpacks an answer.
    ///
    /// # Errors
    /// If the bytes are no answer, which is a bug.
    pub fn read(bytes: &[u8]) -> Result<ProbeAnswer> {
        unpack(bytes)
    }
}
