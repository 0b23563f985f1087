//! Rows with a known state and an observation, for methods that estimate the states of other rows.

use serde::{Deserialize, Serialize};

/// Training rows of a state-space model. A sequence is a run of rows of one trajectory in which
/// each row follows the one before. All numbers are finite.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Observations {
    /// Numbers per state, d_y.
    pub state_width: usize,
    /// Numbers per observation, d_x.
    pub observation_width: usize,
    /// n × d_y, row-major.
    pub states: Vec<f64>,
    /// n × d_x, row-major.
    pub observations: Vec<f64>,
    /// Sequence s is `offsets[s]..offsets[s + 1]`; the first offset is 0.
    pub offsets: Vec<usize>,
}

impl Observations {
    /// No row yet.
    pub fn new(state_width: usize, observation_width: usize) -> Observations {
        Observations {
            state_width,
            observation_width,
            states: Vec::new(),
            observations: Vec::new(),
            offsets: vec![0],
        }
    }

    /// The number of rows, n.
    pub(crate) fn len(&self) -> usize {
        self.offsets.last().copied().unwrap_or(0)
    }

    /// Whether there is no row.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of sequences.
    pub(crate) fn n_sequences(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// The number of rows that the next row of their sequence follows, T.
    pub(crate) fn n_transitions(&self) -> usize {
        let lengths = self.offsets.windows(2).map(|pair| pair[1] - pair[0]);
        lengths.map(|rows| rows.saturating_sub(1)).sum()
    }

    /// The state of a row.
    pub(crate) fn state(&self, row: usize) -> &[f64] {
        &self.states[row * self.state_width..][..self.state_width]
    }

    /// The observation of a row.
    pub(crate) fn observation(&self, row: usize) -> &[f64] {
        &self.observations[row * self.observation_width..][..self.observation_width]
    }

    /// Adds a sequence of rows.
    pub fn push(&mut self, states: &[f64], observations: &[f64]) {
        self.states.extend_from_slice(states);
        self.observations.extend_from_slice(observations);
        let rows = states.len() / self.state_width.max(1);
        self.offsets.push(self.len() + rows);
    }
}

/// Observations whose posterior is known: the posterior of `observations[i]` is near `states[i]`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Supervision {
    /// m × d_y, row-major.
    pub states: Vec<f64>,
    /// m × d_x, row-major.
    pub observations: Vec<f64>,
}

/// A distribution of states: weighted points.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Prior {
    /// l × d_y, row-major.
    pub states: Vec<f64>,
    /// l weights, 0 or more, which add up to 1.
    pub weights: Vec<f64>,
}
