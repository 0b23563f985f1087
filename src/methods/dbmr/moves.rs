//! Cluster sums C of the columns of a count matrix → the exact change of ℓ̂ by the move of one
//! column.
//!
//! With f(x) = x log x, ℓ̂ = Σ_ik f(C_ik) − Σ_k f(C_·k) (coherence (14) at its best λ). Adding
//! column j to state l changes ℓ̂ by g_jl = Σ_i [f(C_il + N_ij) − f(C_il)] − [f(C_·l + N_·j) −
//! f(C_·l)]. The best state of a column has the largest g_jl, where the column's own state is
//! scored without the column. This is Hartigan's move for k-means under Kullback–Leibler
//! divergence. It goes further than (16): ℓ̂ gains at least what (16) promises, because λ follows
//! at once, and a target that is new to a state has a finite cost. If no move increases ℓ̂, (16)
//! changes nothing either.
//!
//! In: columns of N, m targets × n sources. C is m × r, f64, exact for integer counts. Most counts
//! are 1, so f(c + 1) − f(c) is stored beside every sum c, and a score adds one row of numbers per
//! non-zero.

use crate::evidence::counts::csr::prefetch;
use crate::math::sum;
use crate::methods::columns::StateRows;
use crate::methods::dbmr::entropy::{Amount, Entropy};
use crate::methods::dbmr::matrix_columns::Column;
use multiversion::multiversion;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The state of a column without a state.
pub(crate) const NONE: u32 = u32::MAX;

/// States per [`Line`]. Rows are padded to a multiple of it.
const LANES: usize = 8;

/// Number of non-zeros between a prefetch and its use.
const AHEAD: usize = 16;

/// A target and [`LANES`] states: one cache line.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[repr(align(64))]
struct Line {
    /// f(C_ik + 1) − f(C_ik).
    ones: [f32; LANES],
    /// C_ik.
    sums: [u32; LANES],
}

impl Line {
    #[inline(always)]
    fn set(&mut self, entropy: &Entropy, k: usize, sum: u32) {
        self.ones[k] = entropy.step(sum) as f32;
        self.sums[k] = sum;
    }
}

/// Below this ratio of two totals, a series for log(1 + u) is exact enough, and faster.
const SMALL: f64 = 0.2;

/// The best state of a column.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct BestMove {
    /// The lowest state on ties, except that the present state stays unless another one gains more
    /// than rounding.
    pub state: u32,
    /// The decrease of ℓ̂ if the column moved from there to the next best state, nats; +∞ if there
    /// is no other state.
    pub margin: f64,
}

/// The cluster sums C of some columns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Clusters {
    rank: usize,
    /// r padded.
    stride: usize,
    /// One row per target. Empty if the sums are not integers that f32 represents exactly.
    narrow: Vec<Line>,
    /// C_ik, m × r padded, if `narrow` is empty.
    wide: Vec<f64>,
    /// C_·k and its logarithm, r values each.
    totals: Vec<f64>,
    log_totals: Vec<f64>,
    /// Columns in each state, r values.
    sizes: Vec<usize>,
    /// Σ_ik f(C_ik), updated by each column.
    value: f64,
}

/// Gains up to this may be rounding, nats per count.
pub(crate) const ROUNDING: f64 = 1e-9;

impl Clusters {
    /// r states without columns.
    pub(crate) fn new(n_targets: usize, rank: usize, entropy: &Entropy) -> Clusters {
        let stride = rank.next_multiple_of(LANES);
        let mut clusters = Clusters {
            rank,
            stride,
            narrow: Vec::new(),
            wide: Vec::new(),
            totals: vec![0.0; rank],
            log_totals: vec![0.0; rank],
            sizes: vec![0; rank],
            value: 0.0,
        };
        if entropy.fits_f32 {
            clusters.narrow = vec![Line::default(); n_targets * stride / LANES];
        } else {
            clusters.wide = vec![0.0; n_targets * stride];
        }
        clusters
    }

    /// C_ik.
    #[inline(always)]
    fn sum(&self, i: usize, k: usize) -> f64 {
        if self.narrow.is_empty() {
            self.wide[i * self.stride + k]
        } else {
            f64::from(self.narrow[self.line(i, k)].sums[k % LANES])
        }
    }

    /// The index of the line of target i and state k.
    #[inline(always)]
    fn line(&self, i: usize, k: usize) -> usize {
        i * (self.stride / LANES) + k / LANES
    }

    #[inline(always)]
    fn set(&mut self, entropy: &Entropy, i: usize, k: usize, sum: f64) {
        if self.narrow.is_empty() {
            self.wide[i * self.stride + k] = sum;
        } else {
            let line = self.line(i, k);
            self.narrow[line].set(entropy, k % LANES, sum as u32);
        }
    }

    /// r.
    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    /// The number of states without columns.
    pub(crate) fn empty(&self) -> usize {
        self.sizes.iter().filter(|&&n| n == 0).count()
    }

    /// Removes all columns, which are `touched`.
    pub(crate) fn clear<'a>(&mut self, touched: impl Iterator<Item = Column<'a>> + Clone) {
        let entries: usize = touched.clone().map(|c| c.span().len()).sum();
        if entries * self.stride >= self.narrow.len() * LANES + self.wide.len() {
            self.narrow.fill(Line::default());
            self.wide.fill(0.0);
        } else {
            for column in touched {
                for &i in column.targets() {
                    let i = i as usize;
                    if self.narrow.is_empty() {
                        self.wide[i * self.stride..][..self.stride].fill(0.0);
                    } else {
                        let first = self.line(i, 0);
                        self.narrow[first..][..self.stride / LANES].fill(Line::default());
                    }
                }
            }
        }
        self.totals.fill(0.0);
        self.log_totals.fill(0.0);
        self.sizes.fill(0);
        self.value = 0.0;
    }

    /// Adds columns, each with its state.
    pub(crate) fn fill<'a>(
        &mut self,
        entropy: &Entropy,
        columns: impl Iterator<Item = (Column<'a>, u32)>,
    ) {
        for (column, k) in columns {
            self.value += self.change(entropy, column, k as usize, 1.0);
            self.totals[k as usize] += column.total;
            self.sizes[k as usize] += 1;
        }
        self.log_totals = self.totals.iter().map(|t| t.max(1e-300).ln()).collect();
    }

    /// The sums of all sources that have a state. `sums` is C_ik, one row per target, of which the
    /// first r values are used; `source_total` is N_·j.
    pub(crate) fn of_sums(
        entropy: &Entropy,
        rank: usize,
        sums: StateRows<'_>,
        states: &[u32],
        source_total: &[f64],
    ) -> Clusters {
        let mut clusters = Clusters::new(sums.values.len() / sums.width, rank, entropy);
        let stride = clusters.stride;
        let sums = sums.values.par_chunks_exact(sums.width);
        let sums = sums.map(|row| &row[..rank]);
        if entropy.fits_f32 {
            let rows = clusters.narrow.par_chunks_exact_mut(stride / LANES);
            rows.zip(sums).for_each(|(row, sums)| {
                for (k, &sum) in sums.iter().enumerate() {
                    row[k / LANES].set(entropy, k % LANES, sum as u32);
                }
            });
        } else {
            let rows = clusters.wide.par_chunks_exact_mut(stride);
            rows.zip(sums)
                .for_each(|(row, sums)| row[..rank].copy_from_slice(sums));
        }
        for (&k, total) in states.iter().zip(source_total).filter(|(k, _)| **k != NONE) {
            clusters.totals[k as usize] += total;
            clusters.sizes[k as usize] += 1;
        }
        clusters.log_totals = clusters.totals.iter().map(|t| t.max(1e-300).ln()).collect();
        clusters.value = clusters.entropies(entropy);
        clusters
    }

    /// Adds one column.
    pub(crate) fn add(&mut self, entropy: &Entropy, column: Column, k: u32) {
        self.alter(entropy, column, k as usize, 1.0);
        self.sizes[k as usize] += 1;
    }

    /// Moves a column. Exact for integer counts only.
    pub(crate) fn shift(&mut self, entropy: &Entropy, column: Column, from: u32, to: u32) {
        self.alter(entropy, column, from as usize, -1.0);
        self.alter(entropy, column, to as usize, 1.0);
        self.sizes[from as usize] -= 1;
        self.sizes[to as usize] += 1;
        // In an empty state, remaining weights are rounding.
        if self.sizes[from as usize] == 0 {
            for &i in column.targets() {
                self.set(entropy, i as usize, from as usize, 0.0);
            }
            self.totals[from as usize] = 0.0;
        }
    }

    fn alter(&mut self, entropy: &Entropy, column: Column, k: usize, sign: f64) {
        self.value += self.change(entropy, column, k, sign);
        self.totals[k] = (self.totals[k] + sign * column.total).max(0.0);
        self.log_totals[k] = self.totals[k].max(1e-300).ln();
    }

    /// Adds `sign` · N_ij to C_ik, and returns the change of Σ_i f(C_ik).
    fn change(&mut self, entropy: &Entropy, column: Column, k: usize, sign: f64) -> f64 {
        let mut change = 0.0;
        if self.narrow.is_empty() {
            for (i, v) in column.entries() {
                let old = self.wide[i * self.stride + k];
                let new = (old + sign * v).max(0.0);
                change += sign * entropy.rise(old.min(new), v);
                self.wide[i * self.stride + k] = new;
            }
            return change;
        }
        let (lines, strip) = (self.stride / LANES, k / LANES);
        crate::with_values!(column.csr, values => {
            for (&i, &v) in column.targets().iter().zip(&values[column.span()]) {
                let line = &mut self.narrow[i as usize * lines + strip];
                let (old, v) = (line.sums[k % LANES], v.integer());
                let new = if sign > 0.0 { old + v } else { old - v };
                change += entropy.between(old.min(new), old.max(new));
                line.set(entropy, k % LANES, new);
            }
        });
        sign * change
    }

    /// ℓ̂, updated by each move at no cost. Its error is some units in the last place per move.
    pub(crate) fn running_log_likelihood(&self, entropy: &Entropy) -> f64 {
        self.value - self.totals.iter().map(|&c| entropy.of(c)).sum::<f64>()
    }

    /// Σ_ik f(C_ik) − Σ_k f(C_·k).
    pub(crate) fn log_likelihood(&self, entropy: &Entropy) -> f64 {
        self.entropies(entropy) - self.totals.iter().map(|&c| entropy.of(c)).sum::<f64>()
    }

    /// Σ_ik f(C_ik).
    fn entropies(&self, entropy: &Entropy) -> f64 {
        let n_targets = (self.narrow.len() * LANES + self.wide.len()) / self.stride;
        sum::terms(n_targets, |i| {
            (0..self.rank).map(|k| entropy.of(self.sum(i, k))).sum()
        })
    }

    /// The increase of ℓ̂ if a column moves from one state to another.
    pub(crate) fn gain(&self, entropy: &Entropy, column: Column, from: u32, to: u32) -> f64 {
        let (from, to) = (from as usize, to as usize);
        let mut gain = 0.0;
        for (i, v) in column.entries() {
            let rest = (self.sum(i, from) - v).max(0.0);
            gain += entropy.rise(self.sum(i, to), v) - entropy.rise(rest, v);
        }
        gain + self.total_fall(from, column.total) - self.total_rise(to, column.total)
    }

    /// Compares all states for a column whose state is `own`, or none. `scores` is scratch memory.
    pub(crate) fn best(
        &self,
        entropy: &Entropy,
        column: Column,
        own: Option<u32>,
        scores: &mut Vec<f64>,
    ) -> BestMove {
        scores.clear();
        scores.resize(self.stride, 0.0);
        let at = own.map_or(usize::MAX, |k| k as usize);
        let (span, targets) = (column.span(), column.targets());
        let own_score = crate::with_values!(column.csr, values => {
            add_up(self, entropy, targets, &values[span], own, scores)
        });
        scores.truncate(self.rank);
        // Every rise is positive, and has an error of half a unit in the last place of f32.
        let largest = scores.iter().fold(0.0, |a: f64, &b| a.max(b));
        let error = f64::from(f32::EPSILON) * largest;
        for (k, score) in scores.iter_mut().enumerate() {
            *score -= self.total_rise(k, column.total);
        }
        if own.is_some() {
            scores[at] = own_score - self.total_fall(at, column.total);
        }
        let (mut state, mut next) = first_two(scores);
        if !self.narrow.is_empty() && scores[state] - next <= error {
            let limit = scores[state] - error;
            for (k, score) in scores.iter_mut().enumerate() {
                if k != at && *score >= limit {
                    *score = self.exact(entropy, column, k);
                }
            }
            (state, next) = first_two(scores);
        }
        if own.is_some() && scores[state] - scores[at] <= ROUNDING * column.total {
            let margin = scores[at] - if state == at { next } else { scores[state] };
            return BestMove {
                state: at as u32,
                margin: margin.max(0.0),
            };
        }
        BestMove {
            state: state as u32,
            margin: scores[state] - next,
        }
    }

    /// The score of a state without the column.
    #[cold]
    fn exact(&self, entropy: &Entropy, column: Column, k: usize) -> f64 {
        let rises = column
            .entries()
            .map(|(i, v)| entropy.rise(self.sum(i, k), v));
        rises.sum::<f64>() - self.total_rise(k, column.total)
    }

    /// f(C_·k) − f(C_·k − v).
    fn total_fall(&self, k: usize, v: f64) -> f64 {
        let t = self.totals[k];
        if v < SMALL * t {
            v * self.log_totals[k] - (t - v) * log_1p(-v / t)
        } else {
            let rest = (t - v).max(0.0);
            if rest > 0.0 {
                v * self.log_totals[k] - rest * (-v / t).ln_1p()
            } else {
                v * v.ln()
            }
        }
    }

    /// f(C_·k + v) − f(C_·k).
    #[inline(always)]
    fn total_rise(&self, k: usize, v: f64) -> f64 {
        let t = self.totals[k];
        if v < SMALL * t {
            (t + v) * log_1p(v / t) + v * self.log_totals[k]
        } else if t > 0.0 {
            (t + v) * (v / t).ln_1p() + v * self.log_totals[k]
        } else {
            v * v.ln()
        }
    }
}

/// log(1 + u) for |u| up to [`SMALL`]: 2 artanh z, z = u / (2 + u). Its terms decrease by z² <
/// 0.0124.
#[inline(always)]
fn log_1p(u: f64) -> f64 {
    let z = u / (2.0 + u);
    let w = z * z;
    let tail = 1.0 / 9.0 + w * (1.0 / 11.0 + w * (1.0 / 13.0 + w * (1.0 / 15.0)));
    2.0 * z * (1.0 + w * (1.0 / 3.0 + w * (0.2 + w * (1.0 / 7.0 + w * tail))))
}

/// The lowest state with the largest score, and the largest score of another state.
fn first_two(scores: &[f64]) -> (usize, f64) {
    let (mut state, mut next) = (0, f64::NEG_INFINITY);
    for (k, &score) in scores.iter().enumerate().skip(1) {
        if score > scores[state] {
            (state, next) = (k, scores[state]);
        } else {
            next = next.max(score);
        }
    }
    (state, next)
}

/// scores[k] = Σ_i [f(C_ik + N_ij) − f(C_ik)], r padded. Returns Σ_i [f(C_ik) − f(C_ik − N_ij)] of
/// k = `own`.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2"))]
fn add_up<V: Amount>(
    clusters: &Clusters,
    entropy: &Entropy,
    targets: &[u32],
    values: &[V],
    own: Option<u32>,
    scores: &mut [f64],
) -> f64 {
    if clusters.narrow.is_empty() {
        for (&i, &v) in targets.iter().zip(values) {
            for (k, score) in scores[..clusters.rank].iter_mut().enumerate() {
                *score += entropy.rise(clusters.sum(i as usize, k), v.f64());
            }
        }
        let Some(own) = own else { return 0.0 };
        let mut score = 0.0;
        for (&i, &v) in targets.iter().zip(values) {
            let rest = clusters.sum(i as usize, own as usize) - v.f64();
            score += entropy.rise(rest.max(0.0), v.f64());
        }
        return score;
    }
    let mut score = 0.0;
    let at = own.map_or(usize::MAX, |k| k as usize);
    for (strip, scores) in scores.chunks_exact_mut(LANES).enumerate() {
        let (first, own) = (strip * LANES, at.wrapping_sub(strip * LANES));
        score += if clusters.rank - first > LANES / 2 {
            add_strip::<V, LANES>(clusters, entropy, targets, values, strip, own, scores)
        } else {
            add_strip::<V, { LANES / 2 }>(clusters, entropy, targets, values, strip, own, scores)
        };
    }
    score
}

/// The first `W` scores of a strip of [`LANES`] states. If `own` is one of them, returns its score
/// with the column in it.
#[inline(always)]
fn add_strip<V: Amount, const W: usize>(
    clusters: &Clusters,
    entropy: &Entropy,
    targets: &[u32],
    values: &[V],
    strip: usize,
    own: usize,
    scores: &mut [f64],
) -> f64 {
    let (mut rises, mut score) = ([0.0; W], 0.0);
    let line = |i: u32| i as usize * (clusters.stride / LANES) + strip;
    for (e, (&i, &v)) in targets.iter().zip(values).enumerate() {
        if let Some(&next) = targets.get(e + AHEAD) {
            prefetch(clusters.narrow.as_ptr().wrapping_add(line(next)));
        }
        let Line { ones, sums } = &clusters.narrow[line(i)];
        if v.is_one() {
            for k in 0..W {
                rises[k] += f64::from(ones[k]);
            }
            if own < W {
                score += entropy.step(sums[own] - 1);
            }
            continue;
        }
        let v = v.integer();
        let (before, after) = entropy.shifted(v);
        let largest = sums[..W].iter().copied().fold(0, u32::max);
        if (largest as usize) < before.len() {
            for k in 0..W {
                let c = sums[k] as usize;
                rises[k] += after[c] - before[c];
            }
            if own < W {
                let c = (sums[own] - v) as usize;
                score += after[c] - before[c];
            }
        } else {
            let rise = |c: u32| entropy.rise(f64::from(c), f64::from(v));
            for k in 0..W {
                rises[k] += rise(sums[k]);
            }
            if own < W {
                score += rise(sums[own] - v);
            }
        }
    }
    scores[..W].copy_from_slice(&rises);
    score
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::set_sums::Gather;
    use crate::evidence::counts::shards::{Shards, dense};
    use crate::evidence::pass::Passes;
    use crate::methods::dbmr::matrix_columns::Columns;
    use std::borrow::Cow;

    /// n = m = 6, with counts by a hash, some of them 1. If `scale` is not an integer they are
    /// weights.
    fn shards(scale: f64) -> Shards {
        let count = |x: u32| {
            let hash = x.wrapping_mul(2_654_435_761) >> 24;
            let is_counted = !hash.is_multiple_of(3) || x.is_multiple_of(7);
            let count = if hash.is_multiple_of(2) { 1 } else { hash };
            scale * f64::from(if is_counted { count } else { 0 })
        };
        let column = |j: u32| (6 * j..6 * j + 6).map(count).collect();
        let columns: Vec<_> = (0..6).map(column).collect();
        dense(&columns, scale.fract() != 0.0, 5)
    }

    /// ℓ̂ of the columns with a state, by its definition.
    fn plain(shards: &Shards, states: &[u32], rank: usize) -> f64 {
        let columns = Columns::new(shards);
        let (mut c, mut totals) = (vec![0.0; 6 * rank], vec![0.0; rank]);
        for (j, &k) in states.iter().enumerate().filter(|(_, k)| **k != u32::MAX) {
            for (i, v) in columns.get(j).entries() {
                c[i * rank + k as usize] += v;
                totals[k as usize] += v;
            }
        }
        let f = |x: &f64| if *x > 0.0 { x * x.ln() } else { 0.0 };
        c.iter().map(f).sum::<f64>() - totals.iter().map(f).sum::<f64>()
    }

    #[test]
    fn moves_change_the_likelihood_by_what_they_promise() {
        // Ones and tabulated sums; sums beyond the table; sums beyond f32; weights.
        for scale in [1.0, 1000.0, 10_000_000.0, 0.37] {
            let shards = shards(scale);
            let columns = Columns::new(&shards);
            let entropy = &columns.entropy;
            for rank in [1, 2, 5, 11] {
                let mut states: Vec<u32> = (0..6).map(|j| j * j % rank as u32).collect();
                let mut clusters = Clusters::new(6, rank, entropy);
                let filled = states.iter().enumerate();
                clusters.fill(entropy, filled.map(|(j, &k)| (columns.get(j), k)));
                let one_by_one = clusters.running_log_likelihood(entropy);
                let mut sums = vec![0.0; 6 * (rank + 1)];
                let gather = Gather {
                    affiliation: Cow::from(&states),
                    rank: rank + 1,
                };
                Passes::local().rows(shards.targets(), &gather, &mut sums);
                let sums = StateRows {
                    values: &sums,
                    width: rank + 1,
                };
                let mut clusters =
                    Clusters::of_sums(entropy, rank, sums, &states, &shards.source_total);
                let at_once = clusters.running_log_likelihood(entropy);
                assert!((at_once - one_by_one).abs() < 1e-12 * shards.total * 20.0);
                for step in 0..20u32 {
                    let now = plain(&shards, &states, rank);
                    let unit = 1e-12 * shards.total * 20.0;
                    assert!((clusters.log_likelihood(entropy) - now).abs() < unit);
                    assert!((clusters.running_log_likelihood(entropy) - now).abs() < 20.0 * unit);
                    let (j, to) = ((step % 6) as usize, step / 2 % rank as u32);
                    let own = states[j];
                    let after = |k: u32| {
                        let mut states = states.clone();
                        states[j] = k;
                        plain(&shards, &states, rank)
                    };
                    let best = clusters.best(entropy, columns.get(j), Some(own), &mut Vec::new());
                    for k in (0..rank as u32).filter(|&k| k != best.state) {
                        assert!(after(best.state) - after(k) >= best.margin - 20.0 * unit);
                    }
                    if own != to {
                        let gain = clusters.gain(entropy, columns.get(j), own, to);
                        assert!((gain - (after(to) - now)).abs() < 20.0 * unit);
                        clusters.shift(entropy, columns.get(j), own, to);
                        states[j] = to;
                    }
                    let empty = (0..rank as u32).filter(|k| !states.contains(k)).count();
                    assert_eq!(clusters.empty(), empty);
                }
                clusters.clear((0..6).map(|j| columns.get(j)));
                assert_eq!(clusters.log_likelihood(entropy), 0.0);
                // One column has fewer entries than there are targets.
                let one = columns.get(1);
                assert!(one.span().len() < shards.n_targets);
                clusters.add(entropy, one, 0);
                clusters.clear([one].into_iter());
                assert_eq!(clusters.log_likelihood(entropy), 0.0);
            }
        }
    }

    #[test]
    fn the_series_is_as_good_as_the_logarithm() {
        for u in (-500..=500).map(|x| f64::from(x) * 4e-4) {
            assert!((log_1p(u) - u.ln_1p()).abs() <= 1e-15 * u.abs(), "{u}");
        }
    }

    #[test]
    fn a_target_that_is_new_to_a_state_has_a_price() {
        // Columns (2, 2, 0), (0, 2, 2), (0, 0, 4): (16) rules out both states for column 1, exact
        // moves compare them.
        let columns = [
            vec![2.0, 2.0, 0.0],
            vec![0.0, 2.0, 2.0],
            vec![0.0, 0.0, 4.0],
        ];
        let s = dense(&columns, false, 9);
        let columns = Columns::new(&s);
        let mut clusters = Clusters::new(3, 2, &columns.entropy);
        clusters.add(&columns.entropy, columns.get(0), 0);
        clusters.add(&columns.entropy, columns.get(2), 1);
        let best = clusters.best(&columns.entropy, columns.get(1), None, &mut Vec::new());
        // State 0: f(4) + f(2) − f(8) + 0 − f(2), because it had f(2). State 1: f(2) + f(6) − f(4)
        // − [f(8) − f(4)].
        let f = |x: f64| x * x.ln();
        let scores = [
            f(4.0) - f(2.0) + f(2.0) - (f(8.0) - f(4.0)),
            f(2.0) + f(6.0) - f(4.0) - (f(8.0) - f(4.0)),
        ];
        assert_eq!(best.state, u32::from(scores[1] > scores[0]));
        assert!((best.margin - (scores[0] - scores[1]).abs()).abs() < 1e-6);
    }
}
