//! The SQL of a pipeline: the statement, checked integers, and messages.

pub mod checked_integers;
pub mod messages;
pub mod statement;
