//! The command line: arguments, commands, progress, metrics and lineage events.

pub mod args;
#[cfg(feature = "cluster")]
pub mod cluster;
pub mod commands;
mod init;
#[cfg(feature = "report")]
mod inspect;
pub mod openlineage;
pub mod prometheus;
#[cfg(feature = "report")]
mod report;
pub mod sink;
pub mod terminal;
pub mod watch;
