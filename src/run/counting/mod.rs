//! Rows → counts, in this process or on other machines: transitions of states, and windows of
//! symbols.

pub(crate) mod increment;
pub mod rounds;
pub mod tasks;
