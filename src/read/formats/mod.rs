//! Readers of CSV, JSON and Arrow, which DataFusion maps by position, and of Parquet.

pub mod arrow_ipc;
pub mod by_name;
pub mod csv;
pub mod fault;
pub mod format;
pub mod json;
pub mod parquet;
pub mod pieces;
pub mod text;
