//! The command line: arguments, commands, progress, metrics and lineage events.

pub mod args;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod commands;
pub mod openlineage;
pub mod prometheus;
pub mod sink;
pub mod terminal;
pub mod watch;
