//! Rows → counts, in this process or on other machines: transitions of states, and windows of
//! symbols.

pub mod increment;
pub mod rounds;
pub(crate) mod tasks;
