//! Why counting stops: errors of rows, and rows that were dropped.

use crate::error::{Error, Kind};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Rows that could not be an end of a transition, or weigh nothing, by reason.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped(pub BTreeMap<Cow<'static, str>, u64>);

impl Dropped {
    pub(crate) fn add(&mut self, reason: impl Into<Cow<'static, str>>, rows: u64) {
        if rows > 0 {
            *self.0.entry(reason.into()).or_default() += rows;
        }
    }

    /// Takes back rows that were added for a reason.
    pub(crate) fn subtract(&mut self, reason: &str, rows: u64) {
        if let Some(all) = self.0.get_mut(reason) {
            *all -= rows;
        }
        self.0.retain(|_, rows| *rows > 0);
    }
}

/// Why a count stopped.
#[derive(Debug)]
pub enum Stop {
    /// Rows are not ordered by (partition, trajectory, time): gather or sort them and count again.
    Unsorted,
    /// There are more rows than may be gathered: sort them and count again.
    TooManyRows,
    /// Integer states are no small ids: look them up and count again.
    WideStates,
    Failed(Error),
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

/// How to read the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mode {
    pub order: Order,
    /// Integer states are taken as ids.
    pub direct: bool,
}

/// What is known of the order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// They seem to be ordered by (partition, trajectory, time), each stream for itself.
    Assumed,
    /// They may come in any order: each stream holds up to so many bytes of them until its end.
    Any { bytes: usize },
    /// The rows of all streams are ordered, by sorting.
    Sorted,
}

pub(crate) fn bug(e: arrow::error::ArrowError) -> Stop {
    Stop::Failed(Error::with_source(
        Kind::Bug,
        "a column cannot be read as its type",
        e,
    ))
}
