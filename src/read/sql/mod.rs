//! The SQL of a pipeline: the statement, expressions, checked integers, floating values, times of
//! parameters, and messages.

pub mod checked_integers;
pub mod defaults;
pub mod expression;
pub mod extremes;
pub mod floats;
pub mod local_times;
pub mod messages;
pub mod moments;
pub mod moving_sums;
pub mod statement;
pub mod unbounded;
