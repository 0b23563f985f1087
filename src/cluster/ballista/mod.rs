//! Other machines, by Apache DataFusion Ballista.
//!
//! ```text
//! client ──tasks──▶ scheduler ◀──asks for tasks── executors
//!    ▲                                               │
//!    └────────── answers below the output ◀──────────┘
//! ```
//!
//! Ballista hands out tasks and nothing else. A job is one stage whose partitions are tasks: an executor does what a partition says and
//! writes the answer below the output, where the client reads it. No table goes from executor to executor, so there is no stage that needs
//! what another has left on a machine that may be gone. Whatever gets lost, with an executor, the scheduler or a client, costs the tasks that
//! were under way: they are asked for again, by Ballista or by the client, and come to the same bytes.
//!
//! Executors ask the scheduler for tasks and listen nowhere. What they sign in with, and to whom they show it, is in no plan: each has
//! its own environment for that ([`SharedOptions`]).
//!
//! - [`client`] asks for tasks, by [`dispatch`], until it has all answers ([`crate::output::task_answers::Answers`]).
//! - [`quote`] says what a run would take there, and whether it is quicker on this machine.
//! - [`operator`] is a task as a plan that travels; [`node`] is the process that does it, and [`look`] asks who that is.
//! - [`scheduler`] and [`executor`] are the two kinds of processes of a cluster, [`up`] starts them all on this machine; [`commands`] are these
//!   three as they are typed.

pub mod client;
pub mod dispatch;
pub mod executor;
pub mod operator;
pub mod probe;
pub mod scheduler;
pub mod up;
pub mod worker;

use crate::store::shared_options::SharedOptions;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The version that all machines of a cluster must have.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The most that a message between two machines can hold: the same everywhere.
const MESSAGE_BYTES: usize = 64 << 20;

/// An executor that was not heard of for so long is lost, and what it was doing goes to others.
const LOST_AFTER: Duration = Duration::from_secs(20);

/// A cluster of which nothing was heard for so long, no answer and no sign of a task, is asked anew.
const PATIENCE: Duration = Duration::from_secs(60);

/// Where tasks and their answers are, as any machine can find it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Site {
    /// The output, not relative to any folder.
    pub output: String,
    pub plan: String,
    pub options: SharedOptions,
    /// What the client has put there: an executor that does not find it sees another place.
    pub mark: String,
}
