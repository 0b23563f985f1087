//! Rows of a query, for every kind of evidence: keys, states, times, amounts.

pub(crate) mod amounts;
pub mod bins;
pub mod coordinates;
pub(crate) mod deal;
pub(crate) mod decimal;
pub(crate) mod doubles;
pub(crate) mod ipc;
pub(crate) mod keys;
pub mod layout;
pub(crate) mod numbered;
pub mod ordered;
pub(crate) mod pieces;
pub(crate) mod ranges;
pub mod split;
pub mod states;
pub mod stop;
pub mod tag;
pub(crate) mod ties;
pub(crate) mod time;
pub(crate) mod time_rules;
