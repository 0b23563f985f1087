//! Rows → states and observations, in the order of partition, trajectory and time.

pub mod layout;
