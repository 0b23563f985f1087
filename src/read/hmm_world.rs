//! The table function `hmm_world`: sequences of a hidden Markov model with known matrices, computed
//! while they are read.
//!
//! ```sql
//! -- 100 sequences of 300 rows: 6 hidden states, 30 symbols.
//! SELECT trajectory, time, symbol FROM hmm_world()
//! -- 3 hidden states, 6 symbols, 1,000 sequences of 50 rows, seed 7.
//! SELECT trajectory, time, symbol FROM hmm_world(3, 6, 1000, 50, 7)
//! -- Sessions on a site of 2,000 pages. The last 10 sessions have no order.
//! SELECT trajectory, time, symbol FROM hmm_world(6, 2000, 1000, 100, 0, 10)
//! ```
//!
//! `hmm_world(states, symbols, sequences, length, seed, anomalies)` takes constants. Trailing
//! arguments may be omitted.
//!
//! | argument | default | meaning |
//! |---|---|---|
//! | `states` | 6 | hidden states m |
//! | `symbols` | 30 | symbols n; at least one per state |
//! | `sequences` | 100 | independent sequences |
//! | `length` | 300 | rows per sequence |
//! | `seed` | 0 | seed of the random numbers; equal arguments give equal rows on every machine |
//! | `anomalies` | 0 | the number of sequences at the end whose rows have independent states |
//!
//! The matrices are, for states i, j from 0 to m − 1 and symbols x from 0 to n − 1:
//!
//! - T_ij = Pr(state i follows state j) = 3/4 \[i = j\] + 1/5 \[i = j + 1 mod m\] + 1/(20 m).
//!   Every sequence begins in the stationary distribution, which is uniform.
//! - O_xj = Pr(state j shows symbol x) = 9/10 a_xj + 1/10 c_x. Here a_xj is proportional to
//!   (1 + ⌊x/m⌋)^(−3/2) if x mod m = j, and else 0; c_x is proportional to (1 + x)^(−3/2). Both
//!   add up to 1 over x, so high symbols are rare.
//!
//! An anomalous sequence draws the state of every row from the uniform distribution. Its symbols
//! are as frequent as those of other sequences, and only their order differs.
//!
//! The result is ordered by (trajectory, time): `trajectory`, `time`, `symbol` and the hidden
//! `state` are BIGINT from 0; `is_anomalous` is BOOLEAN.

use crate::read::arguments::Arguments;
use crate::read::generated::{World, all, integers, random};
use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;
use datafusion::common::{Result, plan_err};
use rand::RngExt;
use rand_pcg::Pcg64;
use std::ops::Range;
use std::sync::Arc;

/// Most entries of the emission matrix.
const MAX_ENTRIES: usize = 100_000_000;

/// One call of the function with checked arguments.
#[derive(Debug, Clone)]
pub(crate) struct Model {
    states: usize,
    sequences: usize,
    length: usize,
    seed: u64,
    /// The first anomalous sequence.
    ordered: usize,
    /// Sums Pr(symbol ≤ x | state j) at j × symbols + x.
    emission: Arc<Vec<f64>>,
    /// Sums Pr(next state ≤ i | state j) at j × states + i.
    transition: Arc<Vec<f64>>,
}

/// Divides by the sum.
fn normalised(mut values: Vec<f64>) -> Vec<f64> {
    let sum: f64 = values.iter().sum();
    values.iter_mut().for_each(|value| *value /= sum);
    values
}

/// Sums of the first entries of a distribution. The last sum is 1 whatever the rounding.
fn cumulated(probabilities: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut sum = 0.0;
    let mut sums: Vec<f64> = probabilities
        .map(|p| {
            sum += p;
            sum
        })
        .collect();
    if let Some(last) = sums.last_mut() {
        *last = 1.0;
    }
    sums
}

/// The first index whose sum exceeds a random number below 1.
fn draw(sums: &[f64], random: &mut Pcg64) -> usize {
    let u: f64 = random.random();
    sums.partition_point(|&sum| sum <= u)
}

/// Entry (i, j) of the transition matrix.
fn transition(states: usize, i: usize, j: usize) -> f64 {
    let stays = if i == j { 0.75 } else { 0.0 };
    let advances = if i == (j + 1) % states { 0.2 } else { 0.0 };
    stays + advances + 0.05 / states as f64
}

/// (1 + x)^(−3/2), by operations that every machine rounds alike.
fn tail(x: usize) -> f64 {
    let y = (1 + x) as f64;
    1.0 / (y * y.sqrt())
}

/// Column j of the emission matrix.
fn emission(states: usize, symbols: usize, j: usize) -> Vec<f64> {
    let own = (0..symbols).map(|x| {
        if x % states == j {
            tail(x / states)
        } else {
            0.0
        }
    });
    let own = normalised(own.collect());
    let common = normalised((0..symbols).map(tail).collect());
    let mixed = own.iter().zip(&common).map(|(a, c)| 0.9 * a + 0.1 * c);
    mixed.collect()
}

impl World for Model {
    /// The random numbers and the hidden state of the next row.
    type Walk = (Pcg64, usize);

    const NAME: &'static str = "hmm_world";

    const ARGUMENTS: &'static [&'static str] = &[
        "states",
        "symbols",
        "sequences",
        "length",
        "seed",
        "anomalies",
    ];

    fn columns() -> Vec<(&'static str, DataType)> {
        let integers = ["trajectory", "time", "symbol", "state"];
        let columns = integers.map(|name| (name, DataType::Int64)).into_iter();
        columns
            .chain([("is_anomalous", DataType::Boolean)])
            .collect()
    }

    fn new(arguments: &Arguments<'_>) -> Result<Self> {
        let states = arguments.whole(0, 6, 1)? as usize;
        let symbols = arguments.whole(1, 30, 1)? as usize;
        let sequences = arguments.whole(2, 100, 1)? as usize;
        let length = arguments.whole(3, 300, 1)? as usize;
        let seed = arguments.whole(4, 0, 0)? as u64;
        let anomalies = arguments.whole(5, 0, 0)? as usize;
        if symbols < states {
            return plan_err!("hmm_world: {symbols} symbols are fewer than {states} states");
        }
        if symbols.saturating_mul(states) > MAX_ENTRIES {
            return plan_err!("hmm_world: states times symbols must be at most {MAX_ENTRIES}");
        }
        if anomalies > sequences {
            return plan_err!("hmm_world: anomalies must be at most the {sequences} sequences");
        }
        let transitions =
            (0..states).flat_map(|j| cumulated((0..states).map(|i| transition(states, i, j))));
        let emissions =
            (0..states).flat_map(|j| cumulated(emission(states, symbols, j).into_iter()));
        Ok(Model {
            states,
            sequences,
            length,
            seed,
            ordered: sequences - anomalies,
            emission: Arc::new(emissions.collect()),
            transition: Arc::new(transitions.collect()),
        })
    }

    fn pieces(&self) -> usize {
        self.sequences
    }

    fn length(&self, _sequence: usize) -> usize {
        self.length
    }

    fn start(&self, sequence: usize) -> (Pcg64, usize) {
        let mut random = random(self.seed, sequence);
        let state = random.random_range(0..self.states);
        (random, state)
    }

    async fn rows(
        &self,
        (random, state): &mut (Pcg64, usize),
        sequence: usize,
        times: Range<usize>,
    ) -> Vec<ArrayRef> {
        let (states, symbols) = (self.states, self.emission.len() / self.states);
        let is_anomalous = sequence >= self.ordered;
        let rows = times.len();
        let mut shown = Vec::with_capacity(rows);
        let mut hidden = Vec::with_capacity(rows);
        for _ in times.clone() {
            let at = *state;
            let sums = &self.emission[at * symbols..][..symbols];
            shown.push(draw(sums, random));
            hidden.push(at);
            *state = if is_anomalous {
                random.random_range(0..states)
            } else {
                draw(&self.transition[at * states..][..states], random)
            };
        }
        vec![
            all(sequence, rows),
            integers(times),
            integers(shown),
            integers(hidden),
            Arc::new(BooleanArray::from(vec![is_anomalous; rows])),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::generated::tests::{floats, refuses};

    #[tokio::test]
    async fn partitions_change_no_row_and_seeds_change_many() {
        let sql = |seed: i32| {
            format!(
                "SELECT trajectory, time, symbol, state FROM hmm_world(6, 30, 7, 9000, {seed}) \
                 ORDER BY trajectory, time"
            )
        };
        let rows = floats::<Model>(&sql(0), 1).await;
        assert_eq!(rows[0].len(), 7 * 9000);
        assert_eq!(rows, floats::<Model>(&sql(0), 3).await);
        let other = floats::<Model>(&sql(1), 1).await;
        let equal = rows[2].iter().zip(&other[2]).filter(|(a, b)| a == b);
        assert!(equal.count() < 7 * 9000 / 5);
        // The same rows on every machine.
        assert_eq!(rows[2][..10], FIRST_SYMBOLS);
    }

    /// The first symbols of the world with seed 0.
    const FIRST_SYMBOLS: [f64; 10] = [13.0, 2.0, 2.0, 3.0, 0.0, 0.0, 10.0, 5.0, 20.0, 7.0];

    // Within four standard errors of the documented matrices.
    #[tokio::test]
    async fn rows_have_the_documented_frequencies() {
        let (m, n) = (3, 7);
        let sql = "SELECT trajectory, time, symbol, state FROM hmm_world(3, 7, 50, 2000, 1, 25) \
                   ORDER BY trajectory, time";
        let rows = floats::<Model>(sql, 2).await;
        let mut pairs = vec![0.0; 2 * m * m];
        let mut shown = vec![0.0; m * n];
        for at in 0..rows[0].len() {
            let (symbol, state) = (rows[2][at] as usize, rows[3][at] as usize);
            shown[state * n + symbol] += 1.0;
            if rows[1][at] > 0.0 {
                let kind = usize::from(rows[0][at] >= 25.0);
                pairs[(kind * m + rows[3][at - 1] as usize) * m + state] += 1.0;
            }
        }
        let check = |counts: &[f64], expected: &dyn Fn(usize) -> f64| {
            let total: f64 = counts.iter().sum();
            for (at, count) in counts.iter().enumerate() {
                let p = expected(at);
                let error = (p * (1.0 - p) / total).sqrt();
                assert!((count / total - p).abs() < 4.0 * error, "{count} {p}");
            }
        };
        for j in 0..m {
            let column = emission(m, n, j);
            assert!((column.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            check(&shown[j * n..][..n], &|x| column[x]);
            check(&pairs[j * m..][..m], &|i| transition(m, i, j));
            check(&pairs[(m + j) * m..][..m], &|_| 1.0 / 3.0);
        }
    }

    #[tokio::test]
    async fn wrong_arguments_are_named() {
        refuses::<Model>(
            "
            0 => states must be a positive integer, not 0
            4, 3 => 3 symbols are fewer than 4 states
            1000, 1000000 => states times symbols must be at most 100000000
            2, 4, 5, 6, 0, 6 => anomalies must be at most the 5 sequences
            ",
        )
        .await;
    }
}
