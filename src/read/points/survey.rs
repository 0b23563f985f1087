//! The first pass over points: how many there are, where they are, and a sample of them.
//!
//! Nothing here depends on the order of rows or on files: sums are exact, and a sample consists of
//! the rows whose keys have the smallest hashes.

use crate::math::exact::ExactSum;
use crate::read::points::layout::{PointLayout, Scale};
use crate::read::points::{PointBatch, Receiver};
use crate::read::rows::stop::Stop;
use std::collections::BinaryHeap;

/// Most rows of a sample.
const SAMPLE_ROWS: usize = 20_000;

/// Most numbers in a sample, 32 MB.
const SAMPLE_NUMBERS: usize = 1 << 22;

/// What is known of the points of one partition.
#[derive(Debug, Clone)]
pub struct Survey {
    /// The number of points.
    pub(crate) rows: u64,
    /// The largest weight; 1 without weights.
    pub(crate) largest_weight: f64,
    /// The smallest value of each coordinate.
    pub(crate) low: Vec<f64>,
    /// The largest value of each coordinate.
    pub(crate) high: Vec<f64>,
    /// The number of trajectories; that of runs of rows for rows without time.
    pub(crate) trajectories: u64,
    /// A sample of rows, ordered by the hashes of their keys.
    pub(crate) sample: Sample,
    sums: Vec<ExactSum>,
    squares: Vec<ExactSum>,
}

/// Rows with the smallest hashes.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Hashes with the places of rows in `coordinates`, the largest hash first.
    heap: BinaryHeap<(u64, usize)>,
    dimension: usize,
    /// n × d, row-major, by place.
    coordinates: Vec<f64>,
    weights: Vec<f64>,
}

impl Sample {
    fn push(&mut self, hash: u64, row: &[f64], weight: f64) {
        self.dimension = row.len();
        let most = SAMPLE_ROWS.min(SAMPLE_NUMBERS / row.len().max(1)).max(1);
        let place = if self.heap.len() < most {
            self.coordinates.extend_from_slice(row);
            self.weights.push(weight);
            self.weights.len() - 1
        } else {
            match self.heap.peek() {
                Some(&(largest, place)) if hash < largest => {
                    self.heap.pop();
                    self.coordinates[place * row.len()..][..row.len()].copy_from_slice(row);
                    self.weights[place] = weight;
                    place
                }
                _ => return,
            }
        };
        self.heap.push((hash, place));
    }

    /// The rows (row-major) and their weights, in the order of their hashes.
    pub(crate) fn rows(&self) -> (Vec<f64>, Vec<f64>) {
        let mut places: Vec<(u64, usize)> = self.heap.iter().copied().collect();
        let row = |place: usize| &self.coordinates[place * self.dimension..][..self.dimension];
        places.sort_by(|&(a, x), &(b, y)| {
            // Rows of one key differ in their content.
            let content = || {
                row(x)
                    .iter()
                    .map(|x| x.to_bits())
                    .cmp(row(y).iter().map(|y| y.to_bits()))
            };
            a.cmp(&b).then_with(content)
        });
        let rows = places.iter().flat_map(|&(_, place)| row(place)).copied();
        let weights = places.iter().map(|&(_, place)| self.weights[place]);
        (rows.collect(), weights.collect())
    }
}

impl Survey {
    fn new(dimension: usize) -> Survey {
        Survey {
            rows: 0,
            largest_weight: 0.0,
            low: vec![f64::INFINITY; dimension],
            high: vec![f64::NEG_INFINITY; dimension],
            trajectories: 0,
            sample: Sample::default(),
            sums: Vec::new(),
            squares: Vec::new(),
        }
    }
}

/// Makes a [`Survey`] of each partition.
#[derive(Debug, Default)]
pub struct Surveyor {
    /// By partition.
    pub(crate) partitions: Vec<Survey>,
}

impl Receiver for Surveyor {
    fn push(&mut self, layout: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let d = batch.dimension;
        for (rows, partition) in &batch.partitions {
            let at = *partition as usize;
            while self.partitions.len() <= at {
                self.partitions.push(Survey::new(d));
            }
            let survey = &mut self.partitions[at];
            survey.rows += rows.len() as u64;
            let before = |row: usize| batch.trajectories.partition_point(|run| run.start < row);
            let begins = before(rows.end) - before(rows.start);
            let continued = usize::from(rows.start == 0 && batch.continues);
            survey.trajectories += (begins - continued) as u64;
            let is_standard = layout.scale == Scale::Standard;
            if is_standard {
                survey.sums.resize_with(d, ExactSum::default);
                survey.squares.resize_with(d, ExactSum::default);
            }
            for row in rows.clone() {
                let point = &batch.coordinates[row * d..][..d];
                for (k, &x) in point.iter().enumerate() {
                    survey.low[k] = survey.low[k].min(x);
                    survey.high[k] = survey.high[k].max(x);
                    if is_standard {
                        survey.sums[k].add(x);
                        survey.squares[k].add(x * x);
                    }
                }
                let weight = batch.weights.as_ref().map_or(1.0, |w| w[row]);
                survey.largest_weight = survey.largest_weight.max(weight);
                if weight > 0.0 {
                    survey.sample.push(batch.hashes[row], point, weight);
                }
            }
        }
        Ok(())
    }
}

impl Surveyor {
    /// The number by which each coordinate is divided. `name` is the name of a coordinate.
    ///
    /// # Errors
    /// A coordinate that is the same in all rows, by its index.
    pub(crate) fn divisors(
        &self,
        layout: &PointLayout,
        dimension: usize,
    ) -> Result<Vec<f64>, usize> {
        match &layout.scale {
            Scale::None => Ok(vec![1.0; dimension]),
            Scale::By(divisors) => Ok((0..dimension)
                .map(|k| {
                    let name = layout.coordinates.get(k).map(|field| field.name());
                    let own = name.and_then(|name| divisors.get(name));
                    own.copied().unwrap_or(1.0)
                })
                .collect()),
            Scale::Standard => (0..dimension).map(|k| self.deviation(k).ok_or(k)).collect(),
        }
    }

    /// The standard deviation of a coordinate over all partitions; none if it is constant.
    fn deviation(&self, k: usize) -> Option<f64> {
        let (mut sum, mut squares, mut n) = (ExactSum::default(), ExactSum::default(), 0);
        for survey in self.partitions.iter().filter(|survey| survey.rows > 0) {
            sum.merge(survey.sums[k].clone());
            squares.merge(survey.squares[k].clone());
            n += survey.rows;
        }
        let n = n as f64;
        let mean = sum.value() / n;
        let variance = squares.value() / n - mean * mean;
        let is_constant = |survey: &Survey| {
            survey.low[k] == self.partitions[0].low[k]
                && survey.high[k] == self.partitions[0].low[k]
        };
        let constant = self.partitions.iter().all(is_constant);
        (!constant && variance > 0.0).then(|| variance.sqrt())
    }

    /// The index of a coordinate that has one value in all rows of a partition.
    pub(crate) fn constant(&self) -> Option<usize> {
        let survey = self.partitions.iter().find(|survey| survey.rows > 1)?;
        let equal = |k: &usize| {
            self.partitions
                .iter()
                .all(|s| s.low[*k] == survey.low[*k] && s.high[*k] == survey.low[*k])
        };
        (0..survey.low.len()).find(equal)
    }
}
