//! The first pass over points: how many there are, where they are, and a sample of them.
//!
//! Nothing here depends on the order of rows or on files: sums are exact, and a sample consists of
//! the rows whose keys have the smallest hashes.
//!
//! Rows of trajectories count only if they are in a pair: the others have no part in a fit, so they
//! choose neither the scale nor the sample.

use crate::error::{Error, Result};
use crate::math::exact::{ExactMoments, ExactSum};
use crate::math::scale;
use crate::read::lake::Lake;
use crate::read::points::layout::{PointLayout, PointRoles};
use crate::read::points::pairs::{BlockReceiver, Blocks, PairBlock};
use crate::read::points::sample::Sample;
use crate::read::points::{Found, PointBatch, Receiver, read};
use crate::read::rows::amounts::{LARGEST_SUM, WIDEST};
use crate::read::rows::coordinates::LargeValue;
use crate::read::rows::coordinates::Scale;
use crate::read::rows::stop::{Stop, bug};
use arrow::array::ArrayRef;
use arrow::compute::concat;
use arrow::row::{OwnedRow, RowConverter, SortField};
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most rows of a sample.
pub(crate) const SAMPLE_ROWS: usize = 20_000;

/// Most numbers in a sample, 32 MB.
const SAMPLE_NUMBERS: usize = 1 << 22;

/// Most trajectories that a survey lists.
const LISTED: usize = 4096;

/// What is known of the points of one partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Survey {
    /// The number of points.
    pub(crate) rows: u64,
    /// What is known of the weights, if rows have weights.
    pub(crate) weights: Option<Weights>,
    /// The rows that are in a pair; all points for rows without time.
    pub(crate) used: u64,
    /// The number of pairs by lag; empty for rows without time.
    pub(crate) pairs: Vec<u64>,
    /// The ranges of the used rows.
    pub(crate) ends: Ends,
    /// The ranges of all rows, if some may be in no pair: they choose nothing, but a far one is
    /// named.
    pub(crate) of_all: Ends,
    /// The number of trajectories; that of runs of rows for rows without time.
    pub(crate) trajectories: u64,
    /// The hashes of the trajectories; some of them if there are more than [`LISTED`].
    hashes: BTreeSet<u64>,
    /// A sample of rows, ordered by the hashes of their keys.
    pub(crate) sample: Sample,
    /// The moments of each coordinate; empty unless deviations are needed.
    moments: Vec<ExactMoments>,
}

impl Survey {
    /// Adds other points of the partition.
    fn merge(&mut self, other: &Survey) {
        self.rows += other.rows;
        match (&mut self.weights, &other.weights) {
            (Some(own), Some(more)) => own.merge(more),
            (own, more) => *own = own.take().or_else(|| more.clone()),
        }
        self.trajectories += other.trajectories;
        self.used += other.used;
        self.add_pairs(other.pairs.iter().copied());
        self.ends.merge(&other.ends);
        self.of_all.merge(&other.of_all);
        let n = other.moments.len().max(self.moments.len());
        self.moments.resize_with(n, ExactMoments::default);
        for (moments, more) in self.moments.iter_mut().zip(&other.moments) {
            moments.merge(more.clone());
        }
        self.sample.merge(&other.sample);
        for &hash in &other.hashes {
            // One more than the limit shows that the list is not complete.
            if self.hashes.len() <= LISTED {
                self.hashes.insert(hash);
            }
        }
    }

    fn new(dimension: usize) -> Survey {
        Survey {
            rows: 0,
            weights: None,
            used: 0,
            pairs: Vec::new(),
            ends: Ends::new(dimension),
            of_all: Ends::new(dimension),
            trajectories: 0,
            hashes: BTreeSet::new(),
            sample: Sample::new(dimension, SAMPLE_ROWS, SAMPLE_NUMBERS),
            moments: Vec::new(),
        }
    }

    /// Adds numbers of pairs by lag.
    fn add_pairs(&mut self, pairs: impl ExactSizeIterator<Item = u64>) {
        self.pairs.resize(pairs.len().max(self.pairs.len()), 0);
        self.pairs
            .iter_mut()
            .zip(pairs)
            .for_each(|(own, n)| *own += n);
    }

    /// Takes a row into account.
    fn add(&mut self, point: &[f64], hash: u64, weight: f64, is_standard: bool) {
        let d = point.len();
        if is_standard {
            self.moments.resize_with(d, ExactMoments::default);
        }
        self.used += 1;
        self.ends.add(point, hash);
        if is_standard {
            for (moments, &x) in self.moments.iter_mut().zip(point) {
                moments.add(x);
            }
        }
        if weight > 0.0 {
            self.sample.push(hash, &[point], weight);
        }
    }

    /// The coordinates that have one value in all rows, with the value. None for a single row.
    pub(crate) fn constants(&self) -> Vec<(usize, f64)> {
        let ends = self.ends.low.iter().zip(&self.ends.high).enumerate();
        let constants = ends.filter(|(_, (low, high))| self.used > 1 && low == high);
        constants.map(|(k, (low, _))| (k, *low)).collect()
    }

    /// The hashes of all trajectories, ascending. None if there are more than `most`.
    pub(crate) fn trajectory_hashes(&self, most: usize) -> Option<Vec<u64>> {
        let all = self.hashes.len() <= most.min(LISTED);
        all.then(|| self.hashes.iter().copied().collect())
    }
}

/// The smallest and the largest value of each coordinate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Ends {
    /// The smallest values; infinite without rows.
    pub(crate) low: Vec<f64>,
    /// The largest values.
    pub(crate) high: Vec<f64>,
    /// The hashes of the keys of the rows with the smallest and with the largest values.
    pub(crate) hashes: [Vec<u64>; 2],
}

impl Ends {
    fn new(dimension: usize) -> Ends {
        Ends {
            low: vec![f64::INFINITY; dimension],
            high: vec![f64::NEG_INFINITY; dimension],
            hashes: [vec![u64::MAX; dimension], vec![u64::MAX; dimension]],
        }
    }

    /// Takes a row into account.
    fn add(&mut self, point: &[f64], hash: u64) {
        for (k, &x) in point.iter().enumerate() {
            self.extend(k, x, hash);
        }
    }

    /// Takes other rows into account.
    fn merge(&mut self, other: &Ends) {
        // Without rows there are no ends.
        for k in (0..other.low.len()).filter(|&k| other.low[k] <= other.high[k]) {
            self.extend(k, other.low[k], other.hashes[0][k]);
            self.extend(k, other.high[k], other.hashes[1][k]);
        }
    }

    /// Takes a value of a coordinate into account. Of equal values, the row with the least hash is
    /// kept.
    fn extend(&mut self, k: usize, x: f64, hash: u64) {
        let [low, high] = &mut self.hashes;
        if x <= self.low[k] {
            low[k] = if x < self.low[k] {
                hash
            } else {
                hash.min(low[k])
            };
            self.low[k] = x;
        }
        if x >= self.high[k] {
            high[k] = if x > self.high[k] {
                hash
            } else {
                hash.min(high[k])
            };
            self.high[k] = x;
        }
    }
}

/// What is known of the weights of the points of one partition.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Weights {
    /// The number of positive weights.
    positive: u64,
    /// The largest weight.
    pub(crate) largest: f64,
    /// The smallest positive weight; infinite if there is none.
    smallest: f64,
    sum: ExactSum,
}

impl Default for Weights {
    fn default() -> Weights {
        Weights {
            positive: 0,
            largest: 0.0,
            smallest: f64::INFINITY,
            sum: ExactSum::default(),
        }
    }
}

impl Weights {
    fn add(&mut self, weight: f64) {
        if weight > 0.0 {
            self.positive += 1;
            self.largest = self.largest.max(weight);
            self.smallest = self.smallest.min(weight);
            self.sum.add(weight);
        }
    }

    fn merge(&mut self, other: &Weights) {
        self.positive += other.positive;
        self.largest = self.largest.max(other.largest);
        self.smallest = self.smallest.min(other.smallest);
        self.sum.merge(other.sum.clone());
    }

    /// The unit in which the mean of the positive weights is 1. None if all weights are 0.
    pub(crate) fn unit(&self) -> Option<WeightUnit> {
        let sum = self.sum.value();
        (sum > 0.0).then(|| {
            let exponent = scale::exponent(sum);
            let mean = scale::times_power(sum, -exponent) / self.positive as f64;
            WeightUnit { exponent, mean }
        })
    }

    /// What makes the weights unfit for any method. `name` is their column.
    pub(crate) fn fault(&self, name: &str) -> Option<String> {
        let sum = self.sum.value();
        if self.positive == 0 {
            Some(format!(
                "all weights `{name}` are 0, null or NaN; a model needs rows with a positive weight"
            ))
        } else if sum >= scale::times_power(1.0, LARGEST_SUM) {
            Some(format!(
                "the weights `{name}` add up to more than 2^{LARGEST_SUM}; scale them down in the SQL, for example `{name} / 1e100`, which changes no result"
            ))
        } else if scale::exponent(sum) - scale::exponent(self.smallest) > WIDEST {
            Some(format!(
                "the smallest weight `{name}` is {:e}, and all weights add up to {sum:e}: the ratio is above 2^{WIDEST}; set tiny weights to 0 in the SQL",
                self.smallest
            ))
        } else {
            None
        }
    }
}

/// The unit in which the mean of the positive weights of a partition is 1, so that the scale of
/// weights does not matter. Scaling by a power of two changes no bit of a weight in this unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct WeightUnit {
    exponent: i32,
    /// The mean over 2^`exponent`, at most 2.
    mean: f64,
}

impl Default for WeightUnit {
    fn default() -> WeightUnit {
        WeightUnit {
            exponent: 0,
            mean: 1.0,
        }
    }
}

impl WeightUnit {
    /// A weight in this unit.
    pub(crate) fn of(self, weight: f64) -> f64 {
        scale::times_power(weight, -self.exponent) / self.mean
    }
}

/// The survey of all points, from surveys of parts of them. No key is in two parts.
///
/// # Errors
/// Points of different dimensions, or keys that cannot be compared.
pub(crate) fn merged(
    layout: &PointLayout,
    parts: &[(Surveyor, Found)],
) -> Result<(Surveyor, Found)> {
    let mut all = Found::default();
    for (_, found) in parts {
        all.rows += found.rows;
        all.dropped.merge(&found.dropped);
        all.gaps += found.gaps;
        if let Some(large) = &found.large {
            LargeValue::keep(&mut all.large, large.clone());
        }
        match (all.dimension, found.dimension) {
            (Some(a), Some(b)) if a != b => {
                let name = layout.coordinates[0].name();
                return Err(Error::input(format!(
                    "column `{name}` has lists of different lengths: {a} numbers in some rows and {b} in others; all points need the same number of coordinates"
                )));
            }
            (None, dimension) => all.dimension = dimension,
            _ => {}
        }
    }
    let Some(d) = all.dimension else {
        return Ok((Surveyor::default(), all));
    };
    // Partitions are numbered in the order of their keys.
    let with_points = parts
        .iter()
        .filter(|(surveyor, _)| !surveyor.partitions.is_empty());
    let columns = 0..layout.partition.len();
    let keys = columns.map(|k| {
        let arrays = with_points.clone().map(|(_, found)| &*found.partitions[k]);
        concat(&arrays.collect::<Vec<_>>()).map_err(bug)
    });
    let keys = keys.collect::<Result<Vec<ArrayRef>, _>>()?;
    let surveys = with_points.flat_map(|(surveyor, _)| &surveyor.partitions);
    let mut by_key: BTreeMap<OwnedRow, Survey> = BTreeMap::new();
    let fields = layout.partition.iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone()));
    let converter = RowConverter::new(fields.collect()).map_err(bug)?;
    let mut surveyor = Surveyor::default();
    if keys.is_empty() {
        let mut one = Survey::new(d);
        surveys.for_each(|survey| one.merge(survey));
        surveyor.partitions.push(one);
        return Ok((surveyor, all));
    }
    let rows = converter.convert_columns(&keys).map_err(bug)?;
    for (key, survey) in rows.iter().zip(surveys) {
        let of_key = by_key.entry(key.owned()).or_insert_with(|| Survey::new(d));
        of_key.merge(survey);
    }
    let ordered: Vec<&OwnedRow> = by_key.keys().collect();
    all.partitions = converter
        .convert_rows(ordered.iter().map(|key| key.row()))
        .map_err(bug)?;
    surveyor.partitions = by_key.into_values().collect();
    Ok((surveyor, all))
}

/// Surveys the points of a query.
///
/// # Errors
/// Rows that cannot be read.
pub(crate) async fn survey(
    lake: &Lake,
    frame: DataFrame,
    layout: &Arc<PointLayout>,
) -> Result<(Surveyor, Found)> {
    let start = || Ok(Surveying::default());
    let (surveying, found) = read(lake, frame, layout, None, start).await?;
    let surveyor = match surveying.blocks {
        None => surveying.surveyor,
        Some(blocks) => {
            let done = blocks.finish();
            Surveyor {
                in_pair: Vec::new(),
                ..done.map_err(|stop| stop.into_error("surveying pairs"))?
            }
        }
    };
    Ok((surveyor, found))
}

/// A survey in progress.
#[derive(Default)]
struct Surveying {
    surveyor: Surveyor,
    /// Finds the pairs of rows of trajectories, and then has the surveyor.
    blocks: Option<Blocks<Surveyor>>,
}

impl Receiver for Surveying {
    fn push(&mut self, layout: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let d = batch.dimension;
        if matches!(layout.roles, PointRoles::Rows) {
            let surveyor = &mut self.surveyor;
            surveyor.count(layout, batch);
            for (rows, partition) in &batch.partitions {
                let survey = &mut surveyor.partitions[*partition as usize];
                for row in rows.clone() {
                    let point = &batch.coordinates[row * d..][..d];
                    let weight = batch.weights.as_ref().map_or(1.0, |w| w[row]);
                    survey.add(point, batch.hashes[row], weight, surveyor.is_standard);
                }
            }
            return Ok(());
        }
        let surveyor = &mut self.surveyor;
        let blocks = self.blocks.get_or_insert_with(|| {
            let divisors = vec![1.0; d];
            Blocks::new(layout, &divisors, std::mem::take(surveyor))
        });
        blocks.receiver.count(layout, batch);
        blocks.push(layout, batch)
    }
}

/// Makes a [`Survey`] of each partition.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Surveyor {
    /// By partition.
    pub(crate) partitions: Vec<Survey>,
    /// Whether the scale is the standard deviation.
    is_standard: bool,
    /// Whether each row of the last block was in a pair.
    in_pair: Vec<bool>,
}

impl BlockReceiver for Surveyor {
    fn push(&mut self, block: PairBlock) -> Result<(), Stop> {
        let n = block.hashes.len();
        let d = block.rows.len() / n.max(1);
        let known = self.in_pair.len() - block.repeated;
        let mut in_pair = self.in_pair.split_off(known);
        in_pair.resize(n, false);
        let before = in_pair.clone();
        for &(x, y) in block.pairs.iter().flatten() {
            in_pair[x as usize] = true;
            in_pair[y as usize] = true;
        }
        let survey = &mut self.partitions[block.partition as usize];
        survey.add_pairs(block.pairs.iter().map(|pairs| pairs.len() as u64));
        for row in block.repeated..n {
            let point = &block.rows[row * d..][..d];
            survey.of_all.add(point, block.hashes[row]);
        }
        for row in (0..n).filter(|&row| in_pair[row] && !before[row]) {
            let point = &block.rows[row * d..][..d];
            let weight = block.weights.as_ref().map_or(1.0, |w| w[row]);
            survey.add(point, block.hashes[row], weight, self.is_standard);
        }
        self.in_pair = in_pair;
        Ok(())
    }
}

impl Surveyor {
    /// Counts the rows and the trajectories of a batch.
    fn count(&mut self, layout: &PointLayout, batch: &PointBatch) {
        self.is_standard = layout.scale == Scale::Standard;
        for (rows, partition) in &batch.partitions {
            let at = *partition as usize;
            while self.partitions.len() <= at {
                self.partitions.push(Survey::new(batch.dimension));
            }
            let survey = &mut self.partitions[at];
            survey.rows += rows.len() as u64;
            for &weight in batch.weights.iter().flat_map(|w| &w[rows.clone()]) {
                survey.weights.get_or_insert_default().add(weight);
            }
            let before = |row: usize| batch.trajectories.partition_point(|run| run.start < row);
            let begins = before(rows.end) - before(rows.start);
            let continued = usize::from(rows.start == 0 && batch.continues);
            survey.trajectories += (begins - continued) as u64;
            if matches!(layout.roles, PointRoles::Pairs { .. }) {
                for run in &batch.trajectories[before(rows.start)..before(rows.end)] {
                    // One more than the limit shows that the list is not complete.
                    if survey.hashes.len() <= LISTED {
                        survey.hashes.insert(batch.trajectory_hashes[run.start]);
                    }
                }
            }
        }
    }
}

impl Surveyor {
    /// The number by which each coordinate is divided. With `scale = "standard"` it is 1 for a
    /// number of a list that is the same in all rows.
    ///
    /// # Errors
    /// A coordinate that is the same in all rows, by its index, and lists that are.
    pub(crate) fn divisors(
        &self,
        layout: &PointLayout,
        dimension: usize,
    ) -> Result<Vec<f64>, usize> {
        match &layout.scale {
            Scale::None => Ok(vec![1.0; dimension]),
            Scale::By(divisors) => Ok((0..dimension)
                .map(|k| {
                    // The numbers of a list have the divisor of its column.
                    let k = if layout.is_list() { 0 } else { k };
                    let name = layout.coordinates.get(k).map(|field| field.name());
                    let own = name.and_then(|name| divisors.get(name));
                    own.copied().unwrap_or(1.0)
                })
                .collect()),
            Scale::Standard => {
                let deviations: Vec<_> = (0..dimension).map(|k| self.deviation(k)).collect();
                let can_be_one = layout.is_list() && deviations.iter().any(Option::is_some);
                let deviations = deviations.into_iter().enumerate();
                deviations
                    .map(|(k, own)| own.or(can_be_one.then_some(1.0)).ok_or(k))
                    .collect()
            }
        }
    }

    /// The surveys of partitions with points that count.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Survey> {
        self.partitions.iter().filter(|survey| survey.used > 0)
    }

    /// The standard deviation of a coordinate over all partitions; none if it is constant.
    fn deviation(&self, k: usize) -> Option<f64> {
        let mut all = ExactMoments::default();
        for moments in self.used().filter_map(|own| own.moments.get(k)) {
            all.merge(moments.clone());
        }
        all.deviation()
    }

    /// The indices of the coordinates that have the same value in all rows of all partitions.
    pub(crate) fn constants(&self) -> Vec<usize> {
        let Some(survey) = self.used().find(|survey| survey.used > 1) else {
            return Vec::new();
        };
        let low = &survey.ends.low;
        let equal = |k: &usize| {
            self.used()
                .all(|s| s.ends.low[*k] == low[*k] && s.ends.high[*k] == low[*k])
        };
        (0..low.len()).filter(equal).collect()
    }
}
