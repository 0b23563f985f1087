//! Rows of a query, for every kind of evidence: keys, states, times, amounts.

pub mod amounts;
pub mod bins;
pub mod coordinates;
pub mod deal;
pub mod decimal;
pub(crate) mod doubles;
pub mod ipc;
pub mod keys;
pub mod layout;
pub mod ordered;
pub(crate) mod pieces;
pub mod ranges;
pub(crate) mod split;
pub mod states;
pub mod stop;
pub mod tag;
pub mod time;
