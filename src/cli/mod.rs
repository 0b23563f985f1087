//! The command line: arguments, commands, progress, metrics and lineage events.

pub mod args;
pub mod commands;
pub mod openlineage;
pub mod prometheus;
pub(crate) mod sink;
pub mod terminal;
pub(crate) mod watch;
