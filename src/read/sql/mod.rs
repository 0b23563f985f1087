//! The SQL of a pipeline: the statement, expressions, checked integers, floating values, times of
//! parameters, and messages.

pub(crate) mod checked_integers;
pub(crate) mod defaults;
pub(crate) mod expression;
pub(crate) mod extremes;
pub(crate) mod floats;
pub(crate) mod local_times;
pub(crate) mod messages;
pub(crate) mod moments;
pub(crate) mod moving_sums;
pub(crate) mod statement;
pub(crate) mod unbounded;
pub(crate) mod values;
