//! Readers of the formats that DataFusion maps by position: CSV, JSON and Arrow.

pub mod arrow_ipc;
pub mod by_name;
pub mod csv;
pub mod fault;
pub mod format;
pub mod json;
pub mod pieces;
pub mod text;
