//! Filters: the state of a system from its observations.
//!
//! - `expression`: functions of a state, with derivatives.

pub mod expression;
