//! Blocks of rows → sums of products of features.

use crate::error::{Error, Kind, Result};
use crate::math::seed::mixed;
use crate::methods::state_embedding::features::Features;
use crate::methods::state_embedding::grams::GramSums;
use crate::read::lake::Lake;
use crate::read::points::layout::PointLayout;
use crate::read::points::pairs::{BlockReceiver, Blocks, PairBlock};
use crate::read::points::read;
use crate::read::rows::stop::Stop;
use arrow::array::ArrayRef;
use datafusion::dataframe::DataFrame;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Most pairs of a sample per partition and lag.
const SAMPLE_PAIRS: usize = 10_000;

/// Most numbers in a sample of pairs, 16 MB.
const SAMPLE_NUMBERS: usize = 1 << 21;

/// What is summed over the pairs of all partitions.
#[derive(Serialize, Deserialize)]
pub struct SumRequest {
    /// What each coordinate is divided by.
    pub(crate) divisors: Vec<f64>,
    /// The number of parts into which the trajectories of a partition are dealt.
    pub(crate) folds: usize,
    /// By partition.
    pub(crate) partitions: Vec<Wanted>,
}

/// What is summed for one partition.
#[derive(Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// The features of each basis.
    pub(crate) bases: Vec<Features>,
    /// The largest weight of a row.
    pub(crate) largest_weight: f64,
    /// Whether the trajectories are dealt to folds whole. If there are too few of them, pieces of
    /// them are.
    pub(crate) whole_trajectories: bool,
}

/// The sums of one partition.
#[derive(Serialize, Deserialize)]
pub struct PartitionSums {
    /// By basis, then by fold.
    pub(crate) sums: Vec<Vec<GramSums>>,
    /// By lag.
    pub(crate) samples: Vec<PairSample>,
}

/// The pairs whose first rows have the smallest hashes.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct PairSample {
    heap: BinaryHeap<(u64, usize)>,
    dimension: usize,
    /// Both ends of each pair by place: x, then y.
    ends: Vec<f64>,
    weights: Vec<f64>,
}

impl PartitionSums {
    /// Adds the sums over other pairs of the partition.
    pub(crate) fn merge(&mut self, other: &PartitionSums) {
        if self.sums.is_empty() {
            self.sums.clone_from(&other.sums);
        } else {
            for (sums, more) in self
                .sums
                .iter_mut()
                .flatten()
                .zip(other.sums.iter().flatten())
            {
                sums.merge(more);
            }
        }
        for (sample, more) in self.samples.iter_mut().zip(&other.samples) {
            sample.merge(more);
        }
    }
}

impl PairSample {
    fn merge(&mut self, other: &PairSample) {
        let d = other.dimension;
        for &(hash, at) in &other.heap {
            let end = |second: usize| &other.ends[(2 * at + second) * d..][..d];
            self.push(hash, end(0), end(1), other.weights[at]);
        }
    }

    fn push(&mut self, hash: u64, x: &[f64], y: &[f64], weight: f64) {
        let d = x.len();
        self.dimension = d;
        let most = SAMPLE_PAIRS.min(SAMPLE_NUMBERS / (2 * d).max(1)).max(1);
        let place = if self.heap.len() < most {
            self.ends.resize(self.ends.len() + 2 * d, 0.0);
            self.weights.push(0.0);
            self.weights.len() - 1
        } else {
            match self.heap.peek() {
                Some(&(largest, place)) if hash < largest => {
                    self.heap.pop();
                    place
                }
                _ => return,
            }
        };
        self.ends[2 * place * d..][..d].copy_from_slice(x);
        self.ends[(2 * place + 1) * d..][..d].copy_from_slice(y);
        self.weights[place] = weight;
        self.heap.push((hash, place));
    }

    /// The first ends, the second ends (row-major) and the weights, ordered by hash.
    pub(crate) fn pairs(&self) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
        let mut places: Vec<(u64, usize)> = self.heap.iter().copied().collect();
        places.sort_unstable();
        let d = self.dimension;
        let end = |second: usize| {
            let ends = places
                .iter()
                .flat_map(move |&(_, at)| &self.ends[(2 * at + second) * d..][..d]);
            ends.copied().collect()
        };
        let weights = places.iter().map(|&(_, at)| self.weights[at]).collect();
        (end(0), end(1), weights)
    }
}

/// Reads the pairs of a query and sums products of features, by partition. `known` are the
/// partitions of the whole run.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn sum(
    lake: &Lake,
    frame: DataFrame,
    layout: &Arc<PointLayout>,
    known: Option<&[ArrayRef]>,
    request: Arc<SumRequest>,
) -> Result<Vec<PartitionSums>> {
    let start = || {
        let summing = Summing::new(&request, layout.n_lags());
        Ok(Blocks::new(layout, &request.divisors, summing))
    };
    let (blocks, _) = read(lake, frame, layout, known, start).await?;
    let summing = blocks
        .finish()
        .map_err(|stop| stop.into_error("summing pairs"))?;
    let summed = tokio::task::spawn_blocking(move || summing.finish()).await;
    summed.map_err(|e| Error::with_source(Kind::Bug, "summing pairs panicked", e))
}

/// Sums blocks, several at a time.
struct Summing {
    request: Arc<SumRequest>,
    waiting: Vec<PairBlock>,
    /// Sums of each thread, by partition; made when a thread first needs them.
    by_thread: Vec<Vec<Option<Vec<Vec<GramSums>>>>>,
    samples: Vec<Vec<PairSample>>,
}

impl Summing {
    fn new(request: &Arc<SumRequest>, lags: usize) -> Summing {
        let threads = rayon::current_num_threads();
        let partitions = request.partitions.len();
        Summing {
            request: Arc::clone(request),
            waiting: Vec::with_capacity(threads),
            by_thread: (0..threads)
                .map(|_| (0..partitions).map(|_| None).collect())
                .collect(),
            samples: vec![vec![PairSample::default(); lags]; partitions],
        }
    }

    fn sum(&mut self) {
        let (wanted, folds) = (&self.request.partitions, self.request.folds);
        self.waiting
            .par_drain(..)
            .zip(&mut self.by_thread)
            .for_each(|(block, sums)| {
                let partition = block.partition as usize;
                let wanted = &wanted[partition];
                let lags = block.pairs.len();
                let own = sums[partition].get_or_insert_with(|| {
                    let new = |basis: &Features| {
                        vec![GramSums::new(basis.count(), lags, wanted.largest_weight); folds]
                    };
                    wanted.bases.iter().map(new).collect()
                });
                let by_fold = deal(&block, wanted, folds);
                let mut values = Vec::new();
                for (basis, sums) in wanted.bases.iter().zip(own) {
                    basis.evaluate_rounded(&block.rows, &mut values);
                    for (sums, pairs) in sums.iter_mut().zip(&by_fold) {
                        let pairs: Vec<&[(u32, u32)]> = pairs.iter().map(Vec::as_slice).collect();
                        sums.add(&values, block.weights.as_deref(), &pairs);
                    }
                }
            });
    }

    /// The sums of all blocks, by partition.
    fn finish(mut self) -> Vec<PartitionSums> {
        self.sum();
        let partitions = self.request.partitions.iter();
        let mut all: Vec<Option<Vec<Vec<GramSums>>>> = partitions.map(|_| None).collect();
        for of_thread in self.by_thread {
            for (all, more) in all.iter_mut().zip(of_thread) {
                match (all.as_mut(), more) {
                    (_, None) => {}
                    (None, more) => *all = more,
                    (Some(all), Some(more)) => {
                        for (sums, more) in all.iter_mut().flatten().zip(more.iter().flatten()) {
                            sums.merge(more);
                        }
                    }
                }
            }
        }
        let sums = all.into_iter().zip(self.samples);
        sums.map(|(sums, samples)| PartitionSums {
            sums: sums.unwrap_or_default(),
            samples,
        })
        .collect()
    }
}

/// The pairs of a block by fold, then by lag. A pair is in the fold of its first row.
fn deal(block: &PairBlock, wanted: &Wanted, folds: usize) -> Vec<Vec<Vec<(u32, u32)>>> {
    let lags = block.pairs.len();
    let mut dealt = vec![vec![Vec::new(); lags]; folds];
    for (lag, pairs) in block.pairs.iter().enumerate() {
        for &(x, y) in pairs {
            let unit = if wanted.whole_trajectories {
                block.trajectories[x as usize]
            } else {
                block.pieces[x as usize]
            };
            dealt[(mixed(unit) % folds as u64) as usize][lag].push((x, y));
        }
    }
    dealt
}

impl BlockReceiver for Summing {
    fn push(&mut self, block: PairBlock) -> Result<(), Stop> {
        let d = block.rows.len() / block.hashes.len().max(1);
        let row = |at: u32| &block.rows[at as usize * d..][..d];
        for (lag, pairs) in block.pairs.iter().enumerate() {
            let sample = &mut self.samples[block.partition as usize][lag];
            for &(x, y) in pairs {
                let weight = block.weights.as_ref().map_or(1.0, |w| w[x as usize]);
                if weight > 0.0 {
                    sample.push(block.hashes[x as usize], row(x), row(y), weight);
                }
            }
        }
        self.waiting.push(block);
        if self.waiting.len() == self.by_thread.len() {
            self.sum();
        }
        Ok(())
    }
}
