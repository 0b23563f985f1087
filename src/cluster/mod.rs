//! Ballista: schedulers and executors that do the tasks of runs.

pub mod address;
#[cfg(feature = "cluster")]
pub mod ballista;
#[cfg(feature = "cluster")]
pub(crate) mod preview;
