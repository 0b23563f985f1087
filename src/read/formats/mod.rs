//! Readers of CSV, JSON and Arrow, which DataFusion maps by position, and of Parquet.

pub(crate) mod arrow_ipc;
pub(crate) mod by_name;
pub(crate) mod column_type;
pub(crate) mod csv;
pub mod dialect;
pub mod fault;
pub(crate) mod fill_values;
pub mod format;
pub(crate) mod json;
pub mod parquet;
pub mod pieces;
pub(crate) mod quotes;
pub(crate) mod text;
