//! Exact sums of products of features over pairs of points.
//!
//! In: rounded features h of a block of points, and pairs (x, y) of points in it. Out: Σ w
//! h(x)h(x)ᵀ, Σ w h(y)h(y)ᵀ and Σ w h(x)h(y)ᵀ for every lag, all M × M.
//!
//! Features are multiples of 2⁻²⁰ of a magnitude of at most 1, so a product is a multiple of 2⁻⁴⁰.
//! The sum over 8,192 pairs stays within 2⁵³ of those units: a matrix product in f64 has no
//! rounding. Sums of blocks are 128-bit integers. So order, blocks, files, threads and machines do
//! not change a bit, and the sums of a part can be subtracted again.
//!
//! A weight has 20 binary digits of its own, and pairs whose weights have the same power of two are
//! summed together. The product of a weight and a feature has 40 digits. Its upper and its lower
//! half are summed one after the other, so weighted sums have no rounding either.

use crate::error::{Error, Result};
use crate::math::matrix::add_triangle;
use crate::math::scale::{exponent, times_power};
use crate::methods::state_embedding::features::{QUANTUM, round_to_quantum};
use faer::linalg::matmul::matmul;
use faer::{Accum, Mat, MatRef, Par};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Pairs whose sum of products is exact in f64.
const EXACT: usize = 8192;

/// Pairs per matrix product. It divides [`EXACT`].
const CHUNK: usize = 1024;

/// One over the unit of the sums without weights.
const UNITS: f64 = (1u64 << 40) as f64;

/// One over the unit of sums of squares of weights.
const SQUARE_UNITS: f64 = (1u128 << 80) as f64;

/// Binary digits of a weight, and of a feature.
const DIGITS: u32 = 20;

/// Powers of two below that of the largest weight in which a weight keeps all of its digits.
const DEPTH: u32 = 33;

/// Most pairs with weights, so that sums of [`DIGITS`] + [`DEPTH`] more digits fit into 128 bits.
const WEIGHTED_PAIRS: u64 = 1 << 34;

/// Sums of products of M features over pairs of points, for one or several lags.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GramSums {
    features: usize,
    /// Weights are fractions of 2 to this power.
    power: Option<i32>,
    lags: Vec<LagSums>,
}

/// A weight as a fraction of 2 to a power: a multiple of 2⁻²⁰ of a magnitude of at most 1, times 2
/// to minus a shift. None for a weight of 0. A weight below 2⁻⁵³ of the largest one is too small to
/// matter.
fn digits(weight: f64, power: i32) -> Option<(u32, f64)> {
    if weight == 0.0 {
        return None;
    }
    let fraction = times_power(weight, -power);
    assert!(
        (0.0..1.0).contains(&fraction),
        "a weight above the largest one"
    );
    let below = (-1 - exponent(fraction.max(f64::MIN_POSITIVE))) as u32;
    let shift = below.min(DEPTH);
    let mut digits = [times_power(fraction, shift as i32)];
    round_to_quantum(&mut digits);
    Some(match digits[0] {
        // A power of two.
        0.5 if shift < DEPTH => (shift + 1, 1.0),
        digits => (shift, digits),
    })
}

/// The sums of one lag in units of 2⁻⁴⁰. With weights, of 2 to the power of the weights − 40 −
/// [`DIGITS`] − [`DEPTH`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct LagSums {
    /// The number of pairs of positive weight.
    pairs: u64,
    /// Σ w² of fractions of weights, in units of 2⁻⁸⁰.
    squares: i128,
    /// Lower triangle of Σ w h(x)h(x)ᵀ, row by row.
    starts: Vec<i128>,
    /// Lower triangle of Σ w h(y)h(y)ᵀ, row by row.
    ends: Vec<i128>,
    /// Σ w h(x)h(y)ᵀ, row-major.
    cross: Vec<i128>,
}

/// Means of products of features over pairs, each M × M, row-major. Feature 0 is the constant, so
/// the first rows are means of features.
#[derive(Debug, Clone, PartialEq)]
pub struct Grams {
    /// The number of features, M.
    pub features: usize,
    /// The number of pairs of positive weight.
    pub pairs: u64,
    /// The sum of the weights of the pairs.
    pub mass: f64,
    /// (Σ w)² / Σ w²: the number of pairs of equal weights with as much noise.
    pub effective: f64,
    /// E h(x)h(x)ᵀ.
    pub starts: Vec<f64>,
    /// E h(y)h(y)ᵀ.
    pub ends: Vec<f64>,
    /// E h(x)h(y)ᵀ.
    pub cross: Vec<f64>,
}

impl GramSums {
    /// Sums over no pair. `largest` is the largest weight of a point; without weights, it is none.
    ///
    /// # Panics
    /// If the largest weight is not positive and finite.
    pub(crate) fn new(features: usize, lags: usize, largest: Option<f64>) -> GramSums {
        let power = |largest: f64| {
            assert!(
                largest > 0.0 && largest.is_finite(),
                "the largest weight must be positive and finite, not {largest}"
            );
            // The least power of two above the largest weight.
            exponent(largest) + 1
        };
        let triangle = features * (features + 1) / 2;
        let lag = LagSums {
            pairs: 0,
            squares: 0,
            starts: vec![0; triangle],
            ends: vec![0; triangle],
            cross: vec![0; features * features],
        };
        GramSums {
            features,
            power: largest.map(power),
            lags: vec![lag; lags],
        }
    }

    /// The number of pairs of positive weight of a lag.
    pub(crate) fn pairs(&self, lag: usize) -> u64 {
        self.lags[lag].pairs
    }

    /// (Σ w)² / Σ w² over the pairs of a lag: the number of pairs if all weights are equal. 0 if no
    /// pair has a weight.
    pub(crate) fn effective(&self, lag: usize) -> f64 {
        let sums = &self.lags[lag];
        if sums.squares == 0 {
            return 0.0;
        }
        let mass = self.fraction(sums.cross[0]);
        mass / (sums.squares as f64 / SQUARE_UNITS) * mass
    }

    /// A sum of weights as a multiple of 2 to their power.
    fn fraction(&self, mass: i128) -> f64 {
        let depth = self.power.map_or(0, |_| (DIGITS + DEPTH) as i32);
        times_power(mass as f64 / UNITS, -depth)
    }

    /// Adds the pairs of a block of points. `values` are the rounded features of the points (n × M,
    /// row-major); `pairs` has a list of pairs for every lag, as positions in the block. The weight
    /// of a pair is that of its start. Runs of consecutive pairs are the fastest.
    ///
    /// # Panics
    /// If a position is outside the block, or a weight above the largest one.
    #[cfg(test)]
    pub(crate) fn add(&mut self, values: &[f64], weights: Option<&[f64]>, pairs: &[&[(u32, u32)]]) {
        assert_eq!(pairs.len(), self.lags.len(), "a list of pairs per lag");
        let weights = self.power.zip(weights);
        for (sums, pairs) in self.lags.iter_mut().zip(pairs) {
            sums.squares += squares(weights, pairs);
        }
        let mut products = Products::new(self.features);
        for (lag, pairs) in pairs.iter().enumerate() {
            for pairs in pairs.chunks(EXACT) {
                products.each(values, weights, pairs, |products| {
                    self.lags[lag].add(products);
                });
            }
        }
    }

    /// [`GramSums::add`] to sums that several threads add to. Only the addition of integers waits
    /// for other threads. `products` are buffers that the caller may use again.
    ///
    /// # Panics
    /// Those of [`GramSums::add`].
    pub(crate) fn add_shared(
        sums: &Mutex<GramSums>,
        products: &mut Products,
        values: &[f64],
        weights: Option<&[f64]>,
        pairs: &[Vec<(u32, u32)>],
    ) {
        let lock = || sums.lock().unwrap_or_else(PoisonError::into_inner);
        let weights = lock().power.zip(weights);
        for (lag, pairs) in pairs.iter().enumerate() {
            let squares = squares(weights, pairs);
            lock().lags[lag].squares += squares;
            for pairs in pairs.chunks(EXACT) {
                products.each(values, weights, pairs, |products| {
                    lock().lags[lag].add(products);
                });
            }
        }
    }

    /// Bytes of sums in memory.
    pub(crate) fn bytes(features: usize, lags: usize) -> u64 {
        // Two triangles and a square of 16-byte integers.
        (lags * features * (2 * features + 1) * 16) as u64
    }

    /// Adds the sums over other pairs.
    ///
    /// # Panics
    /// If they are of other features, lags or weights.
    pub(crate) fn merge(&mut self, other: &GramSums) {
        self.combine(other, 1);
    }

    /// Adds the sums over other pairs, each pair `times` times.
    ///
    /// # Panics
    /// If they are of other features, lags or weights.
    pub(crate) fn merge_times(&mut self, other: &GramSums, times: u32) {
        self.combine(other, i128::from(times));
    }

    /// Sums over no pair of the same features, lags and weights.
    pub(crate) fn like(&self) -> GramSums {
        let mut like = self.clone();
        like.combine(self, -1);
        like
    }

    /// Removes the sums over a part of the pairs.
    ///
    /// # Panics
    /// If they are of other features, lags or weights.
    pub(crate) fn subtract(&mut self, part: &GramSums) {
        self.combine(part, -1);
    }

    fn combine(&mut self, other: &GramSums, times: i128) {
        assert_eq!(
            (self.features, self.power, self.lags.len()),
            (other.features, other.power, other.lags.len()),
            "sums of other features, weights or lags"
        );
        for (sums, other) in self.lags.iter_mut().zip(&other.lags) {
            sums.pairs = sums
                .pairs
                .wrapping_add_signed(times as i64 * other.pairs as i64);
            sums.squares += times * other.squares;
            for (sums, other) in [
                (&mut sums.starts, &other.starts),
                (&mut sums.ends, &other.ends),
                (&mut sums.cross, &other.cross),
            ] {
                for (sum, other) in sums.iter_mut().zip(other) {
                    *sum += times * other;
                }
            }
        }
    }

    /// The means over the pairs of a lag.
    ///
    /// # Errors
    /// If there is no pair with a weight, all weights of pairs are tiny against the largest one, or
    /// there are too many pairs with weights for exact sums.
    pub(crate) fn means(&self, lag: usize) -> Result<Grams> {
        let (sums, m) = (&self.lags[lag], self.features);
        // The product of the constant with itself is the weight.
        let mass = sums.cross[0];
        if sums.pairs == 0 {
            return Err(Error::input(
                "there are no pairs of points with a weight; the trajectories may be shorter than \
                 the lag",
            ));
        }
        if self.power.is_some() && mass < UNITS as i128 * (1 << DIGITS) {
            return Err(Error::input(format!(
                "the weights of all pairs of points are less than 2^-{DEPTH} of the largest weight, \
                 whose row starts no pair; leave that row out, or decrease its weight"
            )));
        }
        if self.power.is_some() && sums.pairs > WEIGHTED_PAIRS {
            return Err(Error::input(format!(
                "there are {} pairs of points with weights, but sums of at most {WEIGHTED_PAIRS} are \
                 exact; split the points into partitions, or leave `weight` out",
                sums.pairs
            )));
        }
        let mean = |sum: &i128| *sum as f64 / mass as f64;
        let full = |triangle: &[i128]| {
            let mut square = vec![0.0; m * m];
            let mut entries = triangle.iter().map(mean);
            for i in 0..m {
                for j in 0..=i {
                    let entry = entries.next().unwrap_or_default();
                    square[i * m + j] = entry;
                    square[j * m + i] = entry;
                }
            }
            square
        };
        Ok(Grams {
            features: m,
            pairs: sums.pairs,
            mass: times_power(self.fraction(mass), self.power.unwrap_or(0)),
            effective: self.effective(lag),
            starts: full(&sums.starts),
            ends: full(&sums.ends),
            cross: sums.cross.iter().map(mean).collect(),
        })
    }
}

/// Weights of points, as fractions of 2 to a power.
type Weights<'a> = (i32, &'a [f64]);

/// Σ w² over some pairs in units of 2⁻⁸⁰. A sum of integers does not depend on its order.
fn squares(weights: Option<Weights<'_>>, pairs: &[(u32, u32)]) -> i128 {
    let square = |p: &(u32, u32)| {
        let weight = weights.map_or(1.0, |(power, w)| times_power(w[p.0 as usize], -power));
        (weight * weight * SQUARE_UNITS) as i128
    };
    pairs.iter().map(square).sum()
}

impl LagSums {
    fn add(&mut self, products: &Products) {
        self.pairs += products.pairs;
        products.add_to(self);
    }
}

/// Pairs, and the digits of the weight of each.
type Weighted = (Vec<(u32, u32)>, Vec<f64>);

/// Half of the digits of the product of a weight and a feature.
#[derive(Clone, Copy, PartialEq)]
enum Half {
    Upper,
    Lower,
}

/// Products of the features of up to [`EXACT`] pairs, with buffers.
pub(crate) struct Products {
    features: usize,
    /// The number of pairs that no sums before had.
    pairs: u64,
    /// log₂ of the factor of the sums.
    shift: u32,
    starts: Mat<f64>,
    ends: Mat<f64>,
    cross: Mat<f64>,
    from: Vec<f64>,
    to: Vec<f64>,
    weighted: Vec<f64>,
}

impl Products {
    /// Buffers for some number of features.
    pub(crate) fn new(features: usize) -> Products {
        let zeros = || Mat::zeros(features, features);
        Products {
            features,
            pairs: 0,
            shift: 0,
            starts: zeros(),
            ends: zeros(),
            cross: zeros(),
            from: Vec::new(),
            to: Vec::new(),
            weighted: Vec::new(),
        }
    }

    /// Sums up to [`EXACT`] pairs, those of each power of two of their weights alone, and gives the
    /// sums away. `weights` has one weight per point.
    fn each(
        &mut self,
        values: &[f64],
        weights: Option<Weights<'_>>,
        pairs: &[(u32, u32)],
        mut give: impl FnMut(&Products),
    ) {
        let Some((power, weights)) = weights else {
            (self.pairs, self.shift) = (pairs.len() as u64, 0);
            self.sum(values, None, pairs);
            return give(self);
        };
        let mut by_shift = BTreeMap::<u32, Weighted>::new();
        for pair in pairs {
            if let Some((shift, digits)) = digits(weights[pair.0 as usize], power) {
                let own = by_shift.entry(shift).or_default();
                own.0.push(*pair);
                own.1.push(digits);
            }
        }
        for (shift, (pairs, digits)) in by_shift {
            (self.pairs, self.shift) = (pairs.len() as u64, DIGITS + DEPTH - shift);
            self.sum(values, Some((&digits, Half::Upper)), &pairs);
            give(self);
            // The product of a feature and a power of two has no lower half.
            if digits.iter().any(|digits| *digits != 1.0) {
                (self.pairs, self.shift) = (0, DEPTH - shift);
                self.sum(values, Some((&digits, Half::Lower)), &pairs);
                give(self);
            }
        }
    }

    /// Sums pairs, each with a weight that is a multiple of 2⁻²⁰ and at most 1.
    fn sum(&mut self, values: &[f64], weights: Option<(&[f64], Half)>, pairs: &[(u32, u32)]) {
        let m = self.features;
        let shift = shift(pairs).filter(|_| weights.is_none());
        let mut accumulate = Accum::Replace;
        for (at, pairs) in pairs.chunks(CHUNK).enumerate() {
            let from = rows(values, m, pairs.iter().map(|p| p.0), &mut self.from);
            let to = rows(values, m, pairs.iter().map(|p| p.1), &mut self.to);
            let weights = weights.map(|(w, half)| (&w[at * CHUNK..][..pairs.len()], half));
            let left = weighted(from, m, weights, &mut self.weighted);
            let (a, b) = (left.transpose(), matrix(to, m));
            matmul(self.cross.as_mut(), accumulate, a, b, 1.0, Par::Seq);
            add_triangle(&mut self.starts, accumulate, left, matrix(from, m), 1.0);
            if shift.is_none() {
                let left = weighted(to, m, weights, &mut self.weighted);
                add_triangle(&mut self.ends, accumulate, left, b, 1.0);
            }
            accumulate = Accum::Add;
        }
        if let Some(lag) = shift {
            let first = pairs[0].0 as usize;
            let rows = |i: usize| matrix(&values[i * m..(i + lag) * m], m);
            let (left, entered) = (rows(first), rows(first + pairs.len()));
            self.ends.copy_from(&self.starts);
            add_triangle(&mut self.ends, Accum::Add, left, left, -1.0);
            add_triangle(&mut self.ends, Accum::Add, entered, entered, 1.0);
        }
    }

    fn add_to(&self, sums: &mut LagSums) {
        let m = self.features;
        for (sums, products) in [
            (&mut sums.starts, &self.starts),
            (&mut sums.ends, &self.ends),
        ] {
            let mut sums = sums.iter_mut();
            for i in 0..m {
                for (j, sum) in (0..=i).zip(&mut sums) {
                    *sum += units(products[(i, j)]) << self.shift;
                }
            }
        }
        for (i, sums) in sums.cross.chunks_exact_mut(m).enumerate() {
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum += units(self.cross[(i, j)]) << self.shift;
            }
        }
    }
}

/// A sum of products in units of 2⁻⁴⁰.
fn units(product: f64) -> i128 {
    i128::from((product * UNITS) as i64)
}

/// The lag of a run of consecutive pairs, if it is short against the run: then ends are the starts
/// without the first rows and with as many new ones.
fn shift(pairs: &[(u32, u32)]) -> Option<usize> {
    let &(from, to) = pairs.first()?;
    let is_run = pairs.iter().zip(0..).all(|(p, i)| *p == (from + i, to + i));
    let lag = to.checked_sub(from)? as usize;
    (is_run && 2 * lag < pairs.len()).then_some(lag)
}

/// One half of the digits of rows times their weights, as multiples of 2⁻²⁰. Without weights, the
/// rows themselves.
fn weighted<'a>(
    rows: &'a [f64],
    m: usize,
    weights: Option<(&[f64], Half)>,
    buffer: &'a mut Vec<f64>,
) -> MatRef<'a, f64> {
    let Some((weights, half)) = weights else {
        return matrix(rows, m);
    };
    let products = rows.chunks_exact(m).zip(weights);
    let products = products.flat_map(|(row, w)| row.iter().map(move |h| w * h));
    buffer.clear();
    buffer.extend(products.clone());
    round_to_quantum(buffer);
    if half == Half::Lower {
        for (upper, product) in buffer.iter_mut().zip(products) {
            *upper = (product - *upper) / QUANTUM;
        }
    }
    matrix(buffer, m)
}

/// The rows of a matrix with m columns. Consecutive rows are not copied.
fn rows<'a>(
    values: &'a [f64],
    m: usize,
    positions: impl Iterator<Item = u32> + Clone,
    buffer: &'a mut Vec<f64>,
) -> &'a [f64] {
    let mut count = 0;
    let first = positions.clone().next().unwrap_or_default();
    let is_run = positions.clone().all(|i| {
        count += 1;
        i64::from(i) == i64::from(first) + count - 1
    });
    if is_run {
        return &values[first as usize * m..][..count as usize * m];
    }
    buffer.clear();
    for i in positions {
        buffer.extend_from_slice(&values[i as usize * m..][..m]);
    }
    buffer
}

fn matrix(rows: &[f64], m: usize) -> MatRef<'_, f64> {
    MatRef::from_row_major_slice(rows, rows.len() / m, m)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::state_embedding::features::Features;

    fn values(n: usize, m: usize) -> Vec<f64> {
        let rows: Vec<f64> = (0..n).map(|i| (i as f64 * 0.71).sin()).collect();
        let mut values = Vec::new();
        Features::random(m - 1, 1, 0.3, 2).evaluate_rounded(&rows, &mut values);
        values
    }

    /// Σ in integers.
    fn plain(values: &[f64], m: usize, pairs: &[(u32, u32)]) -> Vec<i128> {
        let h = |i: u32, l: usize| (values[i as usize * m + l] / QUANTUM) as i128;
        let entry = |at: usize| pairs.iter().map(|p| h(p.0, at / m) * h(p.1, at % m)).sum();
        (0..m * m).map(entry).collect()
    }

    #[test]
    fn sums_are_exact_in_any_order_and_any_blocks() {
        let (n, m) = (12_000, 11);
        let values = values(n, m);
        let run =
            |lag: u32| -> Vec<(u32, u32)> { (0..n as u32 - lag).map(|i| (i, i + lag)).collect() };
        let (one, three) = (run(1), run(3));
        let mut all = GramSums::new(m, 2, None);
        all.add(&values, None, &[&one, &three]);
        assert_eq!(all.lags[0].cross, plain(&values, m, &one));
        assert_eq!(all.lags[1].cross, plain(&values, m, &three));
        let ends: Vec<(u32, u32)> = three.iter().map(|p| (p.1, p.1)).collect();
        let square = plain(&values, m, &ends);
        let mut triangle = all.lags[1].ends.iter();
        for i in 0..m {
            assert!((0..=i).all(|j| triangle.next() == Some(&square[i * m + j])));
        }

        let mut still = GramSums::new(m, 1, None);
        still.add(&values, None, &[&run(0)]);
        assert_eq!(still.lags[0].starts, still.lags[0].ends);

        let mut shuffled = one.clone();
        for i in 0..shuffled.len() {
            shuffled.swap(i, i * 7919 % n % one.len());
        }
        let mut parts = GramSums::new(m, 2, None);
        parts.add(&values, None, &[&shuffled[5000..], &[]]);
        let mut rest = GramSums::new(m, 2, None);
        rest.add(&values, None, &[&shuffled[..10], &three[77..]]);
        rest.add(&values, None, &[&shuffled[10..5000], &three[..77]]);
        let bytes = postcard::to_stdvec(&rest).expect("bytes");
        parts.merge(&postcard::from_bytes(&bytes).expect("sums"));
        assert_eq!(parts, all);

        parts.subtract(&rest);
        let mut first = GramSums::new(m, 2, None);
        first.add(&values, None, &[&shuffled[5000..], &[]]);
        assert_eq!(parts, first);
        assert_eq!(first.pairs(0), one.len() as u64 - 5000);
        assert!(first.means(1).is_err());
    }

    #[test]
    fn a_weight_counts_as_often_as_its_pair_is_repeated() {
        let (n, m) = (500, 9);
        let values = values(n, m);
        let pairs: Vec<(u32, u32)> = (0..n as u32 - 1).map(|i| (i, i + 1)).collect();
        let weights: Vec<f64> = (0..n).map(|i| [1.0, 2.0, 3.0, 5.0, 0.0][i % 5]).collect();
        let mut weighted = GramSums::new(m, 1, Some(5.0));
        weighted.add(&values, Some(&weights), &[&pairs]);
        let mut reversed = GramSums::new(m, 1, Some(7.0));
        let back: Vec<_> = pairs.iter().rev().copied().collect();
        reversed.add(&values, Some(&weights), &[&back]);
        assert_eq!(weighted, reversed);
        let mut repeated = GramSums::new(m, 1, None);
        for (i, pair) in pairs.iter().enumerate() {
            repeated.add(&values, None, &[&vec![*pair; weights[i] as usize]]);
        }
        let (a, b) = (weighted.means(0).unwrap(), repeated.means(0).unwrap());
        assert_eq!(a.mass, b.mass);
        assert_eq!(a.mass, b.pairs as f64);
        assert_eq!(b.effective, b.pairs as f64);
        let squares: f64 = pairs.iter().map(|p| weights[p.0 as usize].powi(2)).sum();
        assert!((a.effective / (a.mass * a.mass / squares) - 1.0).abs() < 1e-12);
        for (a, b) in [
            (&a.starts, &b.starts),
            (&a.ends, &b.ends),
            (&a.cross, &b.cross),
        ] {
            assert_eq!(a, b);
        }
    }

    /// Sums of pairs with weights, as means.
    fn means_of(values: &[f64], m: usize, weights: &[f64]) -> Grams {
        let pairs: Vec<(u32, u32)> = (0..weights.len() as u32 - 1).map(|i| (i, i + 1)).collect();
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let mut sums = GramSums::new(m, 1, Some(largest));
        sums.add(values, Some(weights), &[&pairs]);
        sums.means(0).expect("pairs")
    }

    #[test]
    fn no_weight_hides_another_one() {
        let (n, m) = (500, 9);
        let values = values(n, m);
        let row = |i: usize| &values[i * m..][..m];
        for large in [1.0, 1e7, 3e12] {
            let weight = |i: usize| if i == 7 { large } else { 1.0 };
            let means = means_of(&values, m, &(0..n).map(weight).collect::<Vec<_>>());
            // Without the pair of the large weight, the others are left.
            let rest = |of: fn(&Grams) -> &[f64], x: usize, y: usize, at: usize| {
                let own = row(x)[at / m] * row(y)[at % m];
                (of(&means)[at] - own) * means.mass
            };
            let exact = |x: usize, y: usize, at: usize| -> f64 {
                let others = (0..n - 1).filter(|i| *i != 7);
                let own = row(7 + x)[at / m] * row(7 + y)[at % m];
                let terms = others.map(|i| row(i + x)[at / m] * row(i + y)[at % m] - own);
                terms.sum()
            };
            let tolerance = 1e-9 + 1e-15 * large;
            for at in 0..m * m {
                let cross = rest(|g| &g.cross, 7, 8, at) - exact(0, 1, at);
                let starts = rest(|g| &g.starts, 7, 7, at) - exact(0, 0, at);
                assert!(
                    cross.abs().max(starts.abs()) < tolerance,
                    "{large}: {cross} {starts}"
                );
            }
        }
    }

    #[test]
    fn the_scale_of_weights_changes_no_bit() {
        let (n, m) = (300, 5);
        let values = values(n, m);
        let weights: Vec<f64> = (0..n).map(|i| (i as f64 * 0.37).sin().powi(4)).collect();
        let own = means_of(&values, m, &weights);
        for power in [-900, -1, 5, 900] {
            let unit = 2f64.powi(power);
            let scaled: Vec<f64> = weights.iter().map(|w| w * unit).collect();
            let scaled = means_of(&values, m, &scaled);
            assert_eq!(scaled.mass, own.mass * unit);
            assert_eq!(scaled.cross, own.cross);
            assert_eq!((&scaled.starts, &scaled.ends), (&own.starts, &own.ends));
        }
        // Digits of weights that are far below the largest one are their own.
        let ones = means_of(&values, m, &vec![1.0; n]);
        let mut weights = vec![1e-9; n];
        weights[n - 1] = 1.0;
        let tiny = means_of(&values, m, &weights);
        for (a, b) in tiny.cross.iter().zip(&ones.cross) {
            assert!((a - b).abs() < 1e-12, "{a} {b}");
        }
        // The last row starts no pair.
        weights[n - 1] = 1e20;
        let mut sums = GramSums::new(m, 1, Some(1e20));
        sums.add(&values, Some(&weights), &[&[(0, 1), (1, 2)]]);
        assert_eq!(sums.pairs(0), 2);
        let error = sums.means(0).unwrap_err().to_string();
        assert!(error.contains("whose row starts no pair"), "{error}");
    }
}
