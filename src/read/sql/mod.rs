//! The SQL of a pipeline: the statement, expressions, checked integers, and messages.

pub mod checked_integers;
pub mod expression;
pub mod messages;
pub mod statement;
