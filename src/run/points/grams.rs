//! Blocks of rows → sums of products of features.

use crate::assess::density_errors::PairSample;
use crate::error::Result;
use crate::math::seed::mixed;
use crate::methods::state_embedding::features::Features;
use crate::methods::state_embedding::grams::{GramSums, Products};
use crate::read::lake::Lake;
use crate::read::points::layout::PointLayout;
use crate::read::points::pairs::{BlockReceiver, Blocks, PairBlock};
use crate::read::points::read;
use crate::read::points::sample::Sample;
use crate::read::points::survey::Survey;
use crate::read::rows::stop::Stop;
use crate::run::workers::executor::blocking_as;
use arrow::array::ArrayRef;
use datafusion::dataframe::DataFrame;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Most pairs of a sample per partition and lag.
const SAMPLE_PAIRS: usize = 10_000;

/// Most numbers in a sample of pairs, 16 MB.
const SAMPLE_NUMBERS: usize = 1 << 21;

/// What is summed over the pairs of all partitions.
#[derive(Serialize, Deserialize)]
pub(crate) struct SumRequest {
    /// What each coordinate is divided by.
    pub(crate) divisors: Vec<f64>,
    /// By partition.
    pub(crate) partitions: Vec<Wanted>,
}

/// What is summed for one partition.
#[derive(Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// The features of each basis.
    pub(crate) bases: Vec<Features>,
    /// The largest weight, if rows have weights.
    pub(crate) largest: Option<f64>,
    /// The parts whose sums are kept apart.
    pub(crate) parts: Parts,
}

/// How pairs are dealt to parts. A part is a fold of the trajectories in a group.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Parts {
    groups: Groups,
    folds: usize,
    /// Whether a trajectory is in one fold. If there are too few of them, pieces of them are dealt.
    whole_trajectories: bool,
}

/// The groups that resamples draw from.
#[derive(Clone, Serialize, Deserialize)]
enum Groups {
    /// All trajectories are one group.
    One,
    /// Each trajectory is a group: their hashes, ascending.
    Each(Vec<u64>),
    /// This number of groups, by the hashes of trajectories.
    Hashed(usize),
}

impl Parts {
    /// At most about `groups` groups, and some number of folds.
    pub(super) fn new(groups: usize, folds: usize, survey: &Survey) -> Parts {
        let groups = if groups < 2 {
            Groups::One
        } else {
            // The fold of a trajectory then follows from its group.
            let hashed = || Groups::Hashed(groups.max(folds) / folds * folds);
            let each = survey.trajectory_hashes(groups);
            each.map_or_else(hashed, Groups::Each)
        };
        Parts {
            groups,
            folds,
            whole_trajectories: survey.trajectories >= folds as u64,
        }
    }

    /// Parts per group.
    fn per_group(&self) -> usize {
        match self.groups {
            Groups::Each(_) | Groups::Hashed(_) if self.whole_trajectories => 1,
            _ => self.folds,
        }
    }

    fn count(&self) -> usize {
        let groups = match &self.groups {
            Groups::One => 1,
            Groups::Each(hashes) => hashes.len(),
            Groups::Hashed(groups) => *groups,
        };
        groups * self.per_group()
    }

    /// The part of the pairs that a row starts, from the hashes of its trajectory and of the piece.
    fn part(&self, trajectory: u64, piece: u64) -> usize {
        let group = match &self.groups {
            Groups::One => 0,
            Groups::Each(hashes) => hashes.binary_search(&trajectory).unwrap_or(0),
            Groups::Hashed(groups) => (mixed(trajectory) % *groups as u64) as usize,
        };
        let unit = if self.whole_trajectories {
            trajectory
        } else {
            piece
        };
        let per_group = self.per_group();
        let fold = if per_group == 1 {
            0
        } else {
            (mixed(unit) % self.folds as u64) as usize
        };
        group * per_group + fold
    }

    fn group_of(&self, part: usize) -> usize {
        part / self.per_group()
    }

    fn fold_of(&self, part: usize) -> usize {
        match &self.groups {
            Groups::Each(hashes) if self.whole_trajectories => {
                (mixed(hashes[part]) % self.folds as u64) as usize
            }
            _ => part % self.folds,
        }
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) struct PartitionSums {
    parts: Parts,
    /// By basis, then by part. None for a part without pairs.
    sums: Vec<Vec<Option<GramSums>>>,
    /// By lag: both ends of a pair, one after the other, and its fold.
    samples: Vec<Sample>,
}

impl PartitionSums {
    /// Adds the sums over other pairs of the partition.
    pub(crate) fn merge(&mut self, other: &PartitionSums) {
        let more = other.sums.iter().flatten();
        for (sums, more) in self.sums.iter_mut().flatten().zip(more) {
            match (sums, more) {
                (_, None) => {}
                (Some(sums), Some(more)) => sums.merge(more),
                (sums, Some(more)) => *sums = Some(more.clone()),
            }
        }
        for (sample, more) in self.samples.iter_mut().zip(&other.samples) {
            sample.merge(more);
        }
    }

    /// The number of pairs at a lag.
    pub(crate) fn pairs(&self, lag: usize) -> u64 {
        let parts = self.sums.first().into_iter().flatten();
        parts.flatten().map(|sums| sums.pairs(lag)).sum()
    }

    /// The sums of a basis over all pairs. None if there is no pair at any lag.
    pub(crate) fn total(&self, basis: usize) -> Option<Cow<'_, GramSums>> {
        self.merged(basis, |_| 0).pop()
    }

    /// The sums of a basis by fold, without folds that have no pairs.
    pub(crate) fn folds(&self, basis: usize) -> Vec<Cow<'_, GramSums>> {
        self.merged(basis, |part| self.parts.fold_of(part))
    }

    /// The sums of a basis by group, without groups that have no pairs at the lag.
    pub(crate) fn groups(&self, basis: usize, lag: usize) -> Vec<Cow<'_, GramSums>> {
        let mut groups = self.merged(basis, |part| self.parts.group_of(part));
        groups.retain(|sums| sums.pairs(lag) > 0);
        groups
    }

    /// A sample of the pairs at a lag.
    pub(crate) fn sample(&self, lag: usize) -> PairSample {
        let (rows, weights) = self.samples[lag].rows();
        let width = rows.len() / weights.len().max(1);
        let d = width / 2;
        let mut sample = PairSample {
            weights,
            ..PairSample::default()
        };
        for row in rows.chunks_exact(width.max(1)) {
            sample.starts.extend_from_slice(&row[..d]);
            sample.ends.extend_from_slice(&row[d..2 * d]);
            let fold = row.get(2 * d).copied().unwrap_or_default();
            sample.folds.push(fold as u32);
        }
        sample
    }

    fn merged(&self, basis: usize, key: impl Fn(usize) -> usize) -> Vec<Cow<'_, GramSums>> {
        let mut merged: BTreeMap<usize, Cow<'_, GramSums>> = BTreeMap::new();
        for (part, sums) in self.sums.get(basis).into_iter().flatten().enumerate() {
            let Some(sums) = sums else { continue };
            match merged.entry(key(part)) {
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(Cow::Borrowed(sums));
                }
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    entry.get_mut().to_mut().merge(sums);
                }
            }
        }
        merged.into_values().collect()
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
    blocking_as("summing pairs", move || Ok(summing.finish())).await
}

/// Sums of parts, made when a thread first needs them.
type SharedSums = Vec<OnceLock<Mutex<GramSums>>>;

/// Sums blocks, several at a time.
struct Summing {
    request: Arc<SumRequest>,
    lags: usize,
    threads: usize,
    waiting: Vec<PairBlock>,
    /// By partition, basis and part. Sums are integers, so the order of additions does not matter.
    sums: Vec<Vec<SharedSums>>,
    /// By partition and lag.
    samples: Vec<Vec<Sample>>,
}

impl Summing {
    fn new(request: &Arc<SumRequest>, lags: usize) -> Summing {
        let threads = rayon::current_num_threads();
        let wanted = &request.partitions;
        let shared = |wanted: &Wanted| {
            let parts = || (0..wanted.parts.count()).map(|_| OnceLock::new()).collect();
            wanted.bases.iter().map(|_| parts()).collect()
        };
        let ends = 2 * request.divisors.len();
        let pairs = SAMPLE_PAIRS.min(SAMPLE_NUMBERS / ends.max(1));
        let sample = Sample::new(ends + 1, pairs, usize::MAX);
        Summing {
            request: Arc::clone(request),
            lags,
            threads,
            waiting: Vec::with_capacity(threads),
            sums: wanted.iter().map(shared).collect(),
            samples: vec![vec![sample; lags]; wanted.len()],
        }
    }

    fn sum(&mut self) {
        let (wanted, lags, sums) = (&self.request.partitions, self.lags, &self.sums);
        self.waiting.par_drain(..).for_each(|block| {
            let partition = block.partition as usize;
            let wanted = &wanted[partition];
            let by_part = deal(&block, &wanted.parts);
            let mut values = Vec::new();
            for (basis, sums) in wanted.bases.iter().zip(&sums[partition]) {
                basis.evaluate_rounded(&block.rows, &mut values);
                let mut products = Products::new(basis.count());
                let new = || Mutex::new(GramSums::new(basis.count(), lags, wanted.largest));
                for (part, pairs) in &by_part {
                    let own = sums[*part].get_or_init(new);
                    let weights = block.weights.as_deref();
                    GramSums::add_shared(own, &mut products, &values, weights, pairs);
                }
            }
        });
    }

    /// The sums of all blocks, by partition.
    fn finish(mut self) -> Vec<PartitionSums> {
        self.sum();
        let own = |sums: OnceLock<Mutex<GramSums>>| {
            let sums = sums.into_inner()?;
            Some(sums.into_inner().unwrap_or_else(PoisonError::into_inner))
        };
        let partitions = self.request.partitions.iter();
        let all = partitions.zip(self.sums).zip(self.samples);
        all.map(|((wanted, sums), samples)| PartitionSums {
            parts: wanted.parts.clone(),
            sums: sums
                .into_iter()
                .map(|parts| parts.into_iter().map(own).collect())
                .collect(),
            samples,
        })
        .collect()
    }
}

/// The pairs of a block by part, then by lag. A pair is in the part of its first row.
fn deal(block: &PairBlock, parts: &Parts) -> BTreeMap<usize, Vec<Vec<(u32, u32)>>> {
    let lags = block.pairs.len();
    let mut dealt: BTreeMap<usize, Vec<Vec<(u32, u32)>>> = BTreeMap::new();
    let part = |row: usize| parts.part(block.trajectories[row], block.pieces[row]);
    for (lag, pairs) in block.pairs.iter().enumerate() {
        for &(x, y) in pairs {
            let own = dealt.entry(part(x as usize));
            own.or_insert_with(|| vec![Vec::new(); lags])[lag].push((x, y));
        }
    }
    dealt
}

impl BlockReceiver for Summing {
    fn push(&mut self, block: PairBlock) -> Result<(), Stop> {
        let d = block.rows.len() / block.hashes.len().max(1);
        let row = |at: u32| &block.rows[at as usize * d..][..d];
        let parts = &self.request.partitions[block.partition as usize].parts;
        let fold = |at: usize| {
            let part = parts.part(block.trajectories[at], block.pieces[at]);
            [parts.fold_of(part) as f64]
        };
        for (lag, pairs) in block.pairs.iter().enumerate() {
            let sample = &mut self.samples[block.partition as usize][lag];
            for &(x, y) in pairs {
                let weight = block.weights.as_ref().map_or(1.0, |w| w[x as usize]);
                if weight > 0.0 {
                    let parts = [row(x), row(y), &fold(x as usize)];
                    sample.push(block.hashes[x as usize], &parts, weight);
                }
            }
        }
        self.waiting.push(block);
        if self.waiting.len() == self.threads {
            self.sum();
        }
        Ok(())
    }
}
