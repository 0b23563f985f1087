//! Why counting stops, and which rows it dropped.

use crate::error::{Error, Kind, Result};
use arrow::error::ArrowError;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The reason of rows whose state, or symbol, is null.
pub(crate) const NULL_STATE: &str = "null state";

/// The reason of rows whose state, or symbol, is NaN.
pub(crate) const NAN_STATE: &str = "NaN state";

/// Number of rows that were dropped, by reason: they cannot be an end of a transition, or count 0.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped(pub BTreeMap<Cow<'static, str>, u64>);

impl Dropped {
    pub(crate) fn add(&mut self, reason: impl Into<Cow<'static, str>>, rows: u64) {
        if rows > 0 {
            *self.0.entry(reason.into()).or_default() += rows;
        }
    }

    /// Adds other rows.
    pub(crate) fn merge(&mut self, other: &Dropped) {
        for (reason, rows) in &other.0 {
            self.add(reason.clone(), *rows);
        }
    }

    /// Removes rows that were added for a reason.
    pub(crate) fn subtract(&mut self, reason: &str, rows: u64) {
        if let Some(all) = self.0.get_mut(reason) {
            *all -= rows;
        }
        self.0.retain(|_, rows| *rows > 0);
    }
}

/// Why counting stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Rows are not ordered by (partition, trajectory, time): gather or sort them and count again.
    Unsorted,
    /// There are more rows than may be gathered: sort them and count again.
    TooManyRows,
    /// Integer states are not small ids: intern them and count again.
    WideStates,
    /// Words of symbols do not fit the bits of an id: intern them and count again.
    WideWords,
    /// An error that counting again would not avoid.
    Failed(Error),
}

impl Stop {
    /// The error of a count that cannot be repeated in another way. `what` was stopped.
    pub(crate) fn into_error(self, what: &str) -> Error {
        match self {
            Stop::Failed(e) => e,
            stop => Error::bug(format!("{what} stopped: {stop:?}")),
        }
    }
}

impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Failed(e)
    }
}

/// How to read the streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    /// What is known of the order of rows.
    pub order: Order,
    /// Integer states are their own ids.
    pub direct: bool,
    /// Words of symbols are packed into ids.
    pub packed: bool,
}

impl Mode {
    /// How streams are read first.
    pub(crate) const FIRST: Mode = Mode {
        order: Order::Assumed,
        direct: true,
        packed: true,
    };

    /// The mode that avoids a stop for wide states or words.
    ///
    /// # Errors
    /// Any other stop.
    pub(crate) fn wider(self, stop: Stop) -> Result<Mode> {
        match stop {
            Stop::WideStates if self.direct => Ok(Mode {
                direct: false,
                ..self
            }),
            Stop::WideWords if self.packed => Ok(Mode {
                packed: false,
                ..self
            }),
            Stop::Failed(e) => Err(e),
            stop => Err(Error::bug(format!("counting stopped twice: {stop:?}"))),
        }
    }
}

/// What is known of the order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Each stream seems to be ordered by (partition, trajectory, time).
    Assumed,
    /// Rows may come in any order. Each stream holds at most `bytes` of them until its end.
    Any {
        /// Memory limit per stream, in bytes.
        bytes: usize,
    },
    /// The rows of all streams are sorted.
    Sorted,
}

pub(crate) fn bug(e: ArrowError) -> Error {
    Error::with_source(Kind::Bug, "a column cannot be read as its type", e)
}
