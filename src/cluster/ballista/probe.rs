//! A task that asks who does tasks, and nothing else.

use crate::cluster::ballista::VERSION;
use crate::cluster::nodes::Task;
use crate::error::Result;
use crate::evidence::pass::packed::{pack, unpack};
use serde::{Deserialize, Serialize};

/// What the bytes of such a task begin with: those of no other do.
const FORMAT: &[u8] = concat!("gyre look ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// The question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// No two have the same: an answer of an earlier day says nothing.
    pub nonce: String,
    pub number: u32,
    /// Whoever is asked waits so long before the answer, so that others take the rest of many questions.
    pub wait_millis: u32,
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    pub number: u32,
    /// What errors call the process.
    pub name: String,
    pub version: String,
    pub threads: usize,
}

impl Look {
    /// The task that asks.
    ///
    /// # Errors
    /// If it cannot be written as bytes.
    pub fn task(&self) -> Result<Task> {
        let bytes = [FORMAT, &pack(self)?].concat();
        Ok(Task { bytes })
    }

    /// The question of a task, if it is one.
    pub(crate) fn of(task: &Task) -> Option<Result<Look>> {
        task.bytes.strip_prefix(FORMAT).map(unpack)
    }

    /// What such a process answers.
    pub(crate) fn answer(&self, name: &str, threads: usize) -> Result<Vec<u8>> {
        pack(&Looked {
            number: self.number,
            name: name.into(),
            version: VERSION.into(),
            threads,
        })
    }
}

impl Looked {
    /// The answer in bytes.
    ///
    /// # Errors
    /// If they are something else.
    pub fn read(bytes: &[u8]) -> Result<Looked> {
        unpack(bytes)
    }
}
