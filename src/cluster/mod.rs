//! Runs on other machines: tasks, rounds of tasks, and Ballista.

pub mod address;
#[cfg(feature = "cluster")]
pub mod ballista;
pub mod nodes;
#[cfg(feature = "cluster")]
pub mod preview;
pub mod rounds;
pub mod site;
pub mod task;
