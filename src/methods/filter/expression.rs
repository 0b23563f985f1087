//! Functions of the coordinates of a state.

use serde::{Deserialize, Serialize};

/// A function of the coordinates of a state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expression {}
