//! Runs on other machines: tasks, rounds of tasks, and Ballista.

pub mod address;
#[cfg(feature = "cluster")]
pub mod ballista;
pub mod nodes;
pub mod quote;
pub mod rounds;
pub mod site;
pub mod task;
