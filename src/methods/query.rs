//! Rows that a fit reads by a query of its own.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rows of a query of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RowsOf {
    /// The SQL of the rows, over the tables of the pipeline.
    pub sql: String,
}
