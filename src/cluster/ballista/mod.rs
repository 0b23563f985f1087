//! Other machines, by Apache DataFusion Ballista.
//!
//! ```text
//! client ──tasks──▶ scheduler ◀──requests for tasks── executors
//!    ▲                                                   │
//!    └──────────── answers below the output ◀────────────┘
//! ```
//!
//! Ballista only distributes tasks. A job is one stage whose partitions are tasks. An executor does
//! the task of a partition and writes the answer below the output, where the client reads it. No
//! table goes from executor to executor, so no stage needs data on a machine that may be gone. If
//! an executor, the scheduler or a client is lost, the tasks under way are lost too: Ballista or
//! the client requests them again. Tasks are idempotent and deterministic.
//!
//! Executors request tasks from the scheduler and listen on no port. Credentials are in no plan:
//! each process takes them from its own environment ([`SharedOptions`]).
//!
//! - [`client`] requests tasks, by [`scheduler_client`], until it has all answers
//!   ([`Answers`](crate::output::task_answers::Answers)).
//! - [`operator`] is a task as a plan that Ballista sends. [`worker`] is the process that does it.
//!   [`probe`] is a task that asks an executor for its name and version.
//! - [`scheduler`] and [`executor`] are the two kinds of processes of a cluster. [`up`] starts all
//!   of them on this machine.

pub mod client;
pub(crate) mod executor;
pub(crate) mod operator;
pub mod probe;
pub(crate) mod scheduler;
pub(crate) mod scheduler_client;
pub(crate) mod up;
pub mod worker;

use crate::store::shared_options::SharedOptions;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version that all machines of a cluster must have.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Upper limit in bytes of a message between two machines, the same in all processes.
const MESSAGE_BYTES: usize = 64 << 20;

/// An executor that sends nothing for this long is lost, and other executors get its tasks.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// A client that gets neither an answer nor a heartbeat for this long submits its tasks again.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where the answers to tasks are, as any machine finds it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct AnswerSite {
    /// The location of the output; a path is absolute.
    pub output: String,
    /// The hash of the plan.
    pub plan: String,
    /// The options of the stores.
    pub options: SharedOptions,
    /// The name of an object that the client has written there. An executor that does not find the
    /// object sees another folder of the same name.
    pub mark: String,
}
