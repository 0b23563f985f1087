//! Cluster sums C of the columns of a count matrix → for each column the nearest cluster in
//! Kullback–Leibler divergence.
//!
//! N is m targets × n sources and λ = C_ik / C_·k is m × r (coherence (15)). Column j goes to the
//! latent state k with the largest score s_jk = Σ_i N_ij log λ_ik (coherence (16)), the lowest k on
//! ties. The scores that decide are sums of f64 in ascending order of i. They are expensive, so two
//! filters come first. The first filter rounds the logarithms to whole steps of 16 bits. Sums of
//! steps are exact, so a score has an error of at most half a step per count, and nearly every
//! column has a larger gap. The others get exact scores. The second filter keeps a margin per
//! column: how much its scores may change before another state can win, as in Hamerly's k-means.
//! The result is that of exact scores for all columns.

use crate::evidence::counts::csr::{Csr, Value, Values};
use crate::evidence::counts::totals::Totals;
use crate::evidence::pass::kernel::{Conserved, Kernel, each};
use crate::math::sum;
use multiversion::multiversion;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Latent states per vector step of the filter. Rows are padded to a multiple of it.
const LANES: usize = 8;

/// Non-zeros whose terms are added before they go into an f64 sum: 256 · 255 · 2¹⁵ fits into an
/// i32.
const RUN: usize = 256;

/// The share of a latent state without counts in a row: log 0. All other shares are larger.
const NEVER: i16 = i16::MIN;

/// Rows of λ per unit of parallel work.
const ROWS: usize = 4096;

/// A count with the terms of the filter's scores: count · share, summed without rounding if counts
/// are integers.
trait Weight: Value {
    type Sum: Copy + Default + std::ops::AddAssign + Into<f64>;

    fn times(self, share: i16) -> Self::Sum;
}

impl Weight for u8 {
    type Sum = i32;

    #[inline(always)]
    fn times(self, share: i16) -> i32 {
        i32::from(i16::from(self)) * i32::from(share)
    }
}

impl Weight for u32 {
    type Sum = f64;

    #[inline(always)]
    fn times(self, share: i16) -> f64 {
        f64::from(self) * f64::from(share)
    }
}

impl Weight for f64 {
    type Sum = f64;

    #[inline(always)]
    fn times(self, share: i16) -> f64 {
        self * f64::from(share)
    }
}

/// The logarithms that all λ of a count matrix share.
#[derive(Debug)]
pub(crate) struct Logarithm {
    /// log c of small integers c, with 0 for c = 0. Most cluster sums of counts are among them.
    table: Vec<f64>,
    /// log N_i·, m values.
    targets: Vec<f64>,
    /// Steps per nat. All shares fit into 15 bits.
    steps: f64,
}

impl Logarithm {
    /// `target_total` is N_i·, m values. No count is below `smallest`. `integral`: all counts are
    /// integers.
    pub(crate) fn new(target_total: &[f64], smallest: f64, integral: bool) -> Logarithm {
        let n = if integral { 4096 } else { 1 };
        let largest = target_total.iter().fold(smallest, |a, &b| a.max(b));
        Logarithm {
            table: (0..n).map(|c| f64::from(c.max(1)).ln()).collect(),
            targets: target_total.iter().map(|t| t.ln()).collect(),
            // Every share is between log (smallest / largest) and 0.
            steps: 32766.0 / (largest.ln() - smallest.ln()).max(1.0),
        }
    }

    /// log c, and 0 for c = 0.
    #[inline(always)]
    fn ln(&self, c: f64) -> f64 {
        let is_small = c < self.table.len() as f64;
        if is_small && (c == 0.0 || self.table.len() > 1) {
            self.table[c as usize]
        } else {
            c.ln()
        }
    }
}

/// λ of one affiliation, as cluster sums. The serialized fields are those that assign columns.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Lambda {
    rank: usize,
    /// C_ik, m × r.
    sums: Vec<f64>,
    /// C_·k, r values; 0 for an empty latent state.
    totals: Vec<f64>,
    /// log (C_ik / N_i·) ≤ 0 in steps, m × r padded. It differs from log λ_ik by terms that depend
    /// on i alone or on k alone. The first do not change the best k, and the second are one
    /// subtraction at the end, so a row changes only with its sums.
    shares: Vec<i16>,
    /// The shares before the last refresh, of rows that are `drifted`.
    #[serde(skip)]
    before: Vec<i16>,
    /// Rows whose shares the last refresh changed, m values.
    #[serde(skip)]
    drifted: Vec<bool>,
    /// log C_·k in steps, padded; +∞ for an empty latent state, which therefore never wins.
    log_totals: Vec<f64>,
    /// Σ_k C_ik log C_ik, m values.
    #[serde(skip)]
    terms: Vec<f64>,
    /// Rows whose sums changed after `shares` and `terms` were computed.
    #[serde(skip)]
    stale: Vec<bool>,
    /// Steps per nat.
    steps: f64,
}

/// The state of one column and its bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Column {
    /// The present latent state.
    pub state: u32,
    /// Whether the last pass scored the column.
    pub is_scored: bool,
    /// How much the filter's scores of other states may gain on that of `state` before one of them
    /// can win, in steps; −∞ or NaN if unknown.
    pub margin: f64,
}

impl Lambda {
    /// λ without counts.
    pub(crate) fn new(n_targets: usize, rank: usize) -> Lambda {
        let width = rank.next_multiple_of(LANES);
        let never = vec![NEVER; n_targets * width];
        Lambda {
            rank,
            sums: vec![0.0; n_targets * rank],
            totals: vec![0.0; rank],
            shares: never.clone(),
            before: never,
            drifted: vec![false; n_targets],
            log_totals: vec![f64::INFINITY; width],
            terms: vec![0.0; n_targets],
            stale: vec![true; n_targets],
            steps: 1.0,
        }
    }

    /// Bytes of one λ.
    pub(crate) fn bytes(n_targets: usize, rank: usize) -> usize {
        n_targets * (8 * rank + 4 * rank.next_multiple_of(LANES) + 10)
    }

    /// C_·k, r values.
    pub(crate) fn totals(&self) -> &[f64] {
        &self.totals
    }

    /// The sums of all rows (m × r), to be computed by
    /// [`crate::evidence::counts::set_sums::Gather`].
    pub(crate) fn renew(&mut self) -> &mut [f64] {
        self.stale.fill(true);
        &mut self.sums
    }

    /// C_·k = Σ_{γ(j)=k} N_·j, in ascending order of j.
    pub(crate) fn renew_totals(&mut self, affiliation: &[u32], source_total: &[f64]) {
        self.totals.fill(0.0);
        for (&k, &total) in affiliation.iter().zip(source_total) {
            self.totals[k as usize] += total;
        }
    }

    /// Moves local row `l` of `csr`, a source, from one latent state to another. Exact for integer
    /// counts only.
    pub(crate) fn shift(&mut self, csr: &Csr, l: usize, from: u32, to: u32) {
        let (from, to) = (from as usize, to as usize);
        let (span, mut moved) = (csr.span(l), 0.0);
        crate::with_values!(csr, values => {
            for (&i, &v) in csr.columns[span.clone()].iter().zip(&values[span]) {
                let (i, v) = (i as usize, v.f64());
                let row = &mut self.sums[i * self.rank..][..self.rank];
                row[from] -= v;
                row[to] += v;
                self.stale[i] = true;
                moved += v;
            }
        });
        self.totals[from] -= moved;
        self.totals[to] += moved;
    }

    /// Updates everything that depends on the sums. Returns ℓ̂ = Σ_ik C_ik log C_ik − Σ_k C_·k log
    /// C_·k and, for each state k, how much the scores of others gained on those of k by the change
    /// of log C_·k, in steps per count.
    pub(crate) fn refresh(&mut self, log: &Logarithm) -> (f64, Vec<f64>) {
        self.steps = log.steps;
        let (rank, width) = (self.rank, self.log_totals.len());
        (
            self.sums.par_chunks(ROWS * rank),
            self.shares.par_chunks_mut(ROWS * width),
            self.before.par_chunks_mut(ROWS * width),
            self.drifted.par_chunks_mut(ROWS),
            self.terms.par_chunks_mut(ROWS),
            self.stale.par_chunks_mut(ROWS),
            log.targets.par_chunks(ROWS),
        )
            .into_par_iter()
            .for_each(|(sums, shares, before, drifted, terms, stale, targets)| {
                for (l, drifted) in drifted.iter_mut().enumerate() {
                    *drifted = std::mem::take(&mut stale[l]);
                    if *drifted {
                        let sums = &sums[l * rank..][..rank];
                        let shares = &mut shares[l * width..][..width];
                        let before = &mut before[l * width..][..width];
                        (terms[l], *drifted) = renew_row(log, sums, targets[l], shares, before);
                    }
                }
            });
        let mut of_totals = 0.0;
        let mut rises = Vec::with_capacity(rank);
        for (log_total, &c) in self.log_totals.iter_mut().zip(&self.totals) {
            let old = std::mem::replace(log_total, f64::INFINITY);
            let mut rise = f64::NEG_INFINITY;
            if c > 0.0 {
                let ln = c.ln();
                of_totals += c * ln;
                *log_total = ln * log.steps;
                rise = old - *log_total;
            }
            rises.push(rise);
        }
        let log_likelihood = sum::terms(self.terms.len(), |i| self.terms[i]) - of_totals;
        gains(&mut rises);
        (log_likelihood, rises)
    }

    /// The latent state with the largest s_jk among those that are `open`, for a column with
    /// non-zeros at `columns` and `values`. It is `present` if all are ruled out, which cannot
    /// happen, because λ of its own state is positive.
    #[cold]
    #[inline(never)]
    fn exact<V: Value>(
        &self,
        columns: &[u32],
        values: &[V],
        present: u32,
        open: impl Fn(usize) -> bool,
    ) -> u32 {
        let mut winner = (present, f64::NEG_INFINITY);
        for k in (0..self.rank).filter(|&k| open(k)) {
            let mut score = 0.0;
            for (&i, &v) in columns.iter().zip(values) {
                let c = self.sums[i as usize * self.rank + k];
                score += v.f64() * (c / self.totals[k]).ln();
            }
            // False for NaN, the score of an empty state (0/0).
            if score > winner.1 {
                winner = (k as u32, score);
            }
        }
        winner.0
    }
}

/// Computes the shares of one row of sums and keeps the old ones in `before`. Returns Σ_k C_ik log
/// C_ik and whether a share changed.
#[inline(always)]
fn renew_row(
    log: &Logarithm,
    sums: &[f64],
    log_target: f64,
    shares: &mut [i16],
    before: &mut [i16],
) -> (f64, bool) {
    let (mut term, mut differs) = (0.0, false);
    for ((&c, share), before) in sums.iter().zip(shares).zip(before) {
        let ln = log.ln(c);
        term += c * ln;
        // A state that has the whole row has a share of 0 up to the last digit. The cast rounds
        // towards 0.
        let steps = (ln - log_target).min(0.0) * log.steps - 0.5;
        *before = *share;
        *share = if c > 0.0 { steps as i16 } else { NEVER };
        differs |= share != before;
    }
    (term, differs)
}

/// Replaces the rise of each state's score by an upper bound of how much another state gains on it:
/// the largest rise of another state minus its own.
fn gains(rises: &mut [f64]) {
    let (mut first, mut second) = (f64::NEG_INFINITY, f64::NEG_INFINITY);
    for &rise in rises.iter() {
        let lower = if rise < first { rise } else { first };
        second = if lower > second { lower } else { second };
        first = if rise > first { rise } else { first };
    }
    for rise in rises {
        *rise = if *rise == first { second } else { first } - *rise;
    }
}

/// Non-zeros of `csr` (rows of targets) that [`spread`] has to visit.
pub(crate) fn reach(csr: &Csr, lambda: &Lambda) -> usize {
    let drifted = &lambda.drifted[csr.rows()];
    let spans = (0..csr.n_rows()).map(|l| csr.span(l).len());
    drifted
        .iter()
        .zip(spans)
        .map(|(&d, n)| if d { n } else { 0 })
        .sum()
}

impl Lambda {
    /// How much the scores of others gained on those of each state in the last refresh, per count
    /// of target `i`, r values. None if its shares did not change.
    fn drift<'a>(&self, i: usize, drift: &'a mut [f64]) -> Option<&'a [f64]> {
        if !self.drifted[i] {
            return None;
        }
        let width = self.log_totals.len();
        let old = &self.before[i * width..][..width];
        let new = &self.shares[i * width..][..width];
        for (rise, (&old, &new)) in drift.iter_mut().zip(old.iter().zip(new)) {
            *rise = match (old, new) {
                (_, NEVER) => f64::NEG_INFINITY,
                (NEVER, _) => f64::INFINITY,
                _ => f64::from(new) - f64::from(old),
            };
        }
        gains(drift);
        Some(drift)
    }
}

/// Subtracts the drift of λ in the last refresh from the margins of the columns that it reaches
/// through the targets in `csr` (rows of targets).
pub(crate) fn spread(csr: &Csr, lambda: &Lambda, columns: &mut [Column]) {
    fn rows<V: Value>(csr: &Csr, values: &[V], lambda: &Lambda, columns: &mut [Column]) {
        let mut drift = vec![0.0; lambda.rank];
        for (l, i) in csr.rows().enumerate() {
            let Some(drift) = lambda.drift(i, &mut drift) else {
                continue;
            };
            let span = csr.span(l);
            for (&j, &v) in csr.columns[span.clone()].iter().zip(&values[span]) {
                let column = &mut columns[j as usize];
                column.margin -= v.f64() * drift[column.state as usize];
            }
        }
    }
    crate::with_values!(csr, values => rows(csr, values, lambda, columns));
}

/// [`spread`] as a pass over the rows of sources. The terms of a column are the same, in the same
/// order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Spread {
    rank: usize,
    /// For every target its index among those that drifted, m values.
    places: Vec<u32>,
    /// Drifted targets × r.
    drift: Vec<f64>,
}

impl Spread {
    /// The drift of λ in its last refresh.
    pub(crate) fn new(lambda: &Lambda) -> Spread {
        let mut row = vec![0.0; lambda.rank];
        let mut places = Vec::with_capacity(lambda.drifted.len());
        let mut drift = Vec::new();
        for i in 0..lambda.drifted.len() {
            let found = lambda.drift(i, &mut row);
            places.push(found.map_or(u32::MAX, |_| (drift.len() / lambda.rank) as u32));
            drift.extend_from_slice(found.unwrap_or_default());
        }
        Spread {
            rank: lambda.rank,
            places,
            drift,
        }
    }
}

impl Kernel for Spread {
    type Shard = Csr;
    type Cell = Column;

    const NAME: &'static str = "spread";
    const IN_PLACE: bool = true;

    fn apply(&self, shard: &Csr, rows: &mut [Column]) {
        crate::with_values!(shard, values => {
            for (l, column) in rows.iter_mut().enumerate() {
                let span = shard.span(l);
                for (&i, &v) in shard.columns[span.clone()].iter().zip(&values[span]) {
                    let place = self.places[i as usize];
                    if place != u32::MAX {
                        let drift = self.drift[place as usize * self.rank + column.state as usize];
                        column.margin -= v.f64() * drift;
                    }
                }
            }
        });
    }

    fn conserved(&self, _: &Totals, rows: &[Column]) -> Conserved {
        each(rows, |column| (column.state as usize) < self.rank)
    }
}

/// The update of γ (16) of the columns without a margin.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assign<'a> {
    /// N_·j, n values.
    pub source_total: Cow<'a, [f64]>,
    /// λ.
    pub lambda: Cow<'a, Lambda>,
    /// The decrease of the margins of the columns of each state since all columns were scored, per
    /// count, by the change of log C_·k.
    pub drift: Cow<'a, [f64]>,
}

impl Kernel for Assign<'_> {
    type Shard = Csr;
    type Cell = Column;

    const NAME: &'static str = "assign";
    const IN_PLACE: bool = true;

    fn apply(&self, shard: &Csr, rows: &mut [Column]) {
        assign(shard, &self.source_total, &self.lambda, &self.drift, rows);
    }

    fn conserved(&self, _: &Totals, rows: &[Column]) -> Conserved {
        each(rows, |column| (column.state as usize) < self.lambda.rank)
    }
}

/// Finds the best latent states of the columns of `csr` (rows of sources) without a margin.
/// `columns` has the rows of the shard only. `source_total` is N_·j, n values. `drift` is the
/// decrease of the margins of the columns of each state since all columns were scored, per count,
/// by the change of log C_·k.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512bw+avx512dq", "x86_64+avx2"))]
fn assign(csr: &Csr, source_total: &[f64], lambda: &Lambda, drift: &[f64], columns: &mut [Column]) {
    match &csr.values {
        Values::Small(values) => rows(csr, values, source_total, lambda, drift, columns),
        Values::Count(values) => rows(csr, values, source_total, lambda, drift, columns),
        Values::Real(values) => rows(csr, values, source_total, lambda, drift, columns),
    }
}

#[inline(always)]
fn rows<V: Weight>(
    csr: &Csr,
    values: &[V],
    source_total: &[f64],
    lambda: &Lambda,
    drift: &[f64],
    columns: &mut [Column],
) {
    assert_eq!(columns.len(), csr.n_rows());
    let mut scores = vec![0.0; lambda.log_totals.len()];
    for (l, column) in columns.iter_mut().enumerate() {
        let (span, total) = (csr.span(l), source_total[csr.first_row + l]);
        if column.margin > drift[column.state as usize] * total {
            column.is_scored = false;
            continue;
        }
        let (targets, values) = (&csr.columns[span.clone()], &values[span]);
        *column = best(lambda, targets, values, total, column.state, &mut scores);
        column.margin += drift[column.state as usize] * total;
    }
}

/// The best latent state of one column, by the filter, or by exact scores if the filter cannot
/// decide. `total` is N_·j.
#[inline(always)]
fn best<V: Weight>(
    lambda: &Lambda,
    targets: &[u32],
    values: &[V],
    total: f64,
    present: u32,
    scores: &mut [f64],
) -> Column {
    let mut k = 0;
    while k < scores.len() {
        if scores.len() - k >= 2 * LANES {
            add_up::<V, { 2 * LANES }>(lambda, targets, values, total, k, scores);
            k += 2 * LANES;
        } else {
            add_up::<V, LANES>(lambda, targets, values, total, k, scores);
            k += LANES;
        }
    }
    // Two shares per count have errors of half a step each. One eighth covers the f64 operations on
    // them, up to the end of the margin. The rest covers the exact scores: one error per non-zero
    // and a few more, each at most 2⁻⁵² of |log| ≤ 745, the largest logarithm.
    let rounding = (targets.len() + 16) as f64 * (1024.0 * f64::EPSILON);
    let error = total * (1.125 + rounding * lambda.steps);

    // The present state nearly always stays.
    let gap = scores[present as usize] - rival(scores, present);
    if gap > error {
        return Column {
            state: present,
            is_scored: true,
            margin: gap - error,
        };
    }
    let mut winner = (0, f64::NEG_INFINITY);
    for (k, &score) in scores.iter().enumerate() {
        if score > winner.1 {
            winner = (k as u32, score);
        }
    }
    let gap = winner.1 - rival(scores, winner.0);
    if gap > error {
        Column {
            state: winner.0,
            is_scored: true,
            margin: gap - error,
        }
    } else {
        let is_open = |k: usize| scores[k] >= winner.1 - error;
        Column {
            state: lambda.exact(targets, values, present, is_open),
            is_scored: true,
            margin: f64::NEG_INFINITY,
        }
    }
}

/// The largest score of a state other than `present`.
#[inline(always)]
fn rival(scores: &[f64], present: u32) -> f64 {
    let mut largest = [f64::NEG_INFINITY; LANES];
    for (p, scores) in scores.as_chunks::<LANES>().0.iter().enumerate() {
        for k in 0..LANES {
            let is_rival = (p * LANES + k) as u32 != present;
            if is_rival && scores[k] > largest[k] {
                largest[k] = scores[k];
            }
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for k in 0..width {
            if largest[k + width] > largest[k] {
                largest[k] = largest[k + width];
            }
        }
        width /= 2;
    }
    largest[0]
}

/// scores[k] = Σ_i N_ij log (C_ik / N_i·) − N_·j log C_·k, in steps, for the `W` states from
/// `first` on; −∞ if a C_ik is 0.
#[inline(always)]
fn add_up<V: Weight, const W: usize>(
    lambda: &Lambda,
    columns: &[u32],
    values: &[V],
    total: f64,
    first: usize,
    scores: &mut [f64],
) {
    let width = scores.len();
    let mut sums = [0.0f64; W];
    let mut least = [0; W];
    for (columns, values) in columns.chunks(RUN).zip(values.chunks(RUN)) {
        let mut run = [V::Sum::default(); W];
        for (&i, &v) in columns.iter().zip(values) {
            let row = &lambda.shares[i as usize * width + first..][..W];
            for k in 0..W {
                run[k] += v.times(row[k]);
            }
            for k in 0..W {
                least[k] = least[k].min(row[k]);
            }
        }
        for k in 0..W {
            sums[k] += run[k].into();
        }
    }
    for k in 0..W {
        let score = sums[k] - total * lambda.log_totals[first + k];
        let is_ruled_out = least[k] == NEVER;
        scores[first + k] = if is_ruled_out {
            f64::NEG_INFINITY
        } else {
            score
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::set_sums::gather;
    use crate::evidence::counts::shards::{Shards, dense, of_entries};

    /// λ and ℓ̂ of an affiliation.
    fn lambda(shards: &Shards, affiliation: &[u32], rank: usize) -> (Lambda, f64) {
        let mut lambda = Lambda::new(shards.n_targets, rank);
        gather(&shards.by_target[0], affiliation, rank, lambda.renew());
        lambda.renew_totals(affiliation, &shards.source_total);
        let log_likelihood = refresh(&mut lambda, shards);
        (lambda, log_likelihood)
    }

    fn refresh(lambda: &mut Lambda, shards: &Shards) -> f64 {
        let log = Logarithm::new(&shards.target_total, 1.0, shards.is_integral());
        lambda.refresh(&log).0
    }

    fn scored(lambda: &Lambda, shards: &Shards) -> Vec<Column> {
        let unknown = Column {
            margin: f64::NEG_INFINITY,
            ..Column::default()
        };
        let mut columns = vec![unknown; shards.n_sources];
        let csr = &shards.by_source[0];
        let drift = vec![0.0; lambda.rank];
        assign(csr, &shards.source_total, lambda, &drift, &mut columns);
        columns
    }

    fn assigned(lambda: &Lambda, shards: &Shards) -> Vec<u32> {
        scored(lambda, shards).iter().map(|c| c.state).collect()
    }

    //            [ 2 0 0 ]
    // N (4 × 3) = [ 2 0 1 ]
    //            [ 0 3 1 ]
    //            [ 0 1 2 ]
    fn small() -> Shards {
        let columns = [[2, 2, 0, 0], [0, 0, 3, 1], [0, 1, 1, 2]];
        dense(
            &columns.map(|column| column.map(f64::from).to_vec()),
            false,
            100,
        )
    }

    #[test]
    fn one_iteration_by_hand() {
        // γ = (0, 0, 1): λ₀ = (2, 2, 3, 1)/8 and λ₁ = (0, 1, 1, 2)/4. Scores of the columns for k =
        // 0 and 1:
        //   j = 0: 4 log ¼                             −∞, as λ_01 = 0        → 0
        //   j = 1: 3 log ⅜ + log ⅛ = −5.022            3 log ¼ + log ½ = −4.852  → 1
        //   j = 2: log ¼ + log ⅜ + 2 log ⅛ = −6.526    2 log ¼ + 2 log ½ = −4.159 → 1
        let s = small();
        let (mut l, _) = lambda(&s, &[0, 0, 1], 2);
        assert_eq!(assigned(&l, &s), [0, 1, 1]);

        // Then C₀ = (2, 2, 0, 0), C₁ = (0, 1, 4, 3): ℓ̂ = 4 log 2 + 4 log 4 + 3 log 3 − 4 log 4 − 8
        // log 8.
        l.shift(&s.by_source[0], 1, 0, 1);
        let moved = refresh(&mut l, &s);
        let by_hand = 4.0 * 2f64.ln() + 3.0 * 3f64.ln() - 8.0 * 8f64.ln();
        assert!((moved - by_hand).abs() < 1e-12);
        let (summed, log_likelihood) = lambda(&s, &[0, 1, 1], 2);
        assert_eq!(log_likelihood.to_bits(), moved.to_bits());
        assert_eq!(
            (&summed.sums, &summed.totals, &summed.log_totals),
            (&l.sums, &l.totals, &l.log_totals)
        );
    }

    #[test]
    fn margins_by_hand() {
        // The gaps of the scores above: column 0 has no rival, and column 2 has 6.5260 − 4.1589.
        let s = small();
        let (mut l, _) = lambda(&s, &[0, 0, 1], 2);
        let mut columns = scored(&l, &s);
        let nats = |steps: f64| steps / l.steps;
        let is_near = |x: f64, y: f64| (nats(x) - y).abs() < 4e-4;
        assert_eq!(columns[0].margin, f64::INFINITY);
        let gap = 6.5260 - 4.1589;
        assert!(is_near(columns[2].margin, gap));

        // Column 0 moves to state 1, which is new to target 0: every column with that target must
        // be scored again. At target 1 the sum of state 1 grows from 1 to 3 and that of state 0
        // vanishes, which rules it out for column 2. Column 1 has neither target.
        let before = columns.clone();
        l.shift(&s.by_source[0], 0, 0, 1);
        refresh(&mut l, &s);
        let mut by_source = columns.clone();
        Spread::new(&l).apply(&s.by_source[0], &mut by_source);
        spread(&s.by_target[0], &l, &mut columns);
        for (one, other) in columns.iter().zip(&by_source) {
            assert_eq!(one.margin.to_bits(), other.margin.to_bits());
        }
        assert!(columns[0].margin.is_nan() || columns[0].margin == f64::NEG_INFINITY);
        assert_eq!(columns[1], before[1]);
        assert_eq!(columns[2].margin, f64::INFINITY);
    }

    #[test]
    fn an_empty_state_never_wins() {
        let s = small();
        let (l, _) = lambda(&s, &[1, 1, 2], 11);
        assert_eq!(assigned(&l, &s), [1, 2, 2]);
    }

    #[test]
    fn polzin_example_21_is_a_fixed_point() {
        // Three thirds of 30 states, mapped cyclically by a zigzag of slopes +3, −3, +3: {61, 80,
        // 81} → {1, 2, 3} (coherence §7).
        let entries = (0..90).flat_map(|j| {
            let (third, x) = (j / 30, j % 30);
            let first = 3 * if x / 10 == 1 { 19 - x } else { x % 10 };
            (0..3).map(move |i| (j, (third + 1) % 3 * 30 + first + i, 30))
        });
        let s = of_entries(90, 90, entries, 1000);
        let thirds: Vec<u32> = (0..90).map(|j| j / 30).collect();
        let (l, log_likelihood) = lambda(&s, &thirds, 3);
        assert!((log_likelihood - 8100.0 * (1f64 / 30.0).ln()).abs() < 1e-9);
        assert_eq!(assigned(&l, &s), thirds);
    }
}
