//! Cluster sums C of the columns of a count matrix → the column's nearest cluster in Kullback–Leibler divergence.
//!
//! N is m targets × n sources, λ = C_ik / C_·k is m × r (coherence (15)), and a column j goes to the latent state k with the largest
//! score s_jk = Σ_i N_ij log λ_ik (coherence (16)), the lowest such k on ties. The scores that decide are sums of f64 in ascending order of
//! i. They are costly, so two filters come first. One is the same scores in f32 with a bound on all rounding, which settles nearly every
//! column that it sees; what it leaves in doubt gets exact scores. The other is a reserve per column: how much its scores may still drift
//! before another state can win, as Hamerly does for k-means. The outcome is that of exact scores everywhere.

use super::csr::{Csr, Value, Values};
use super::sum;
use multiversion::multiversion;
use rayon::prelude::*;

/// Latent states that one step of the filter adds up side by side; rows are padded to a multiple of it.
const LANES: usize = 8;

/// Non-zeros whose f32 terms are added before they go into an f64 sum; it bounds the rounding of the filter.
const RUN: usize = 128;

/// Independent f32 sums, so that an addition need not wait for the one before.
const CHAINS: usize = 4;

/// Bound on the relative error of a filter sum: each term is rounded three times (count, logarithm, product), a chain has RUN / CHAINS
/// terms, three more at a ragged end, and two additions join the chains. All terms have the same sign, so the bound of a term is the bound
/// of the sum. Two units in hand cover the f64 operations around it.
const FILTER_ERROR: f64 = (RUN / CHAINS + 10) as f64 * (f32::EPSILON / 2.0) as f64;

/// One padded piece of a row of the filter's logarithms.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
struct Lanes([f32; LANES]);

/// Logarithms, from a table where the arguments are small integers: most cluster sums of counts are.
#[derive(Debug)]
pub struct Logarithm {
    table: Vec<f64>,
}

impl Logarithm {
    pub fn new(integral: bool) -> Logarithm {
        let n = if integral { 4096 } else { 0 };
        Logarithm {
            table: (0..n).map(|c| f64::from(c).ln()).collect(),
        }
    }

    #[inline(always)]
    fn ln(&self, x: f64) -> f64 {
        if x < self.table.len() as f64 {
            self.table[x as usize]
        } else {
            x.ln()
        }
    }
}

/// λ of one affiliation, kept as cluster sums.
#[derive(Debug)]
pub struct Lambda {
    rank: usize,
    /// C_ik, m × r.
    sums: Vec<f64>,
    /// C_·k, r values; 0 for an empty latent state.
    totals: Vec<f64>,
    /// log (C_ik / N_i·) ≤ 0, m × r padded. It differs from log λ_ik by terms that depend on i alone or on k alone: the former do not
    /// matter for the best k, the latter are one subtraction at the end, so a row changes only when its sums do.
    shares: Vec<Lanes>,
    /// log C_·k, padded; +∞ for an empty latent state, which so never wins.
    log_totals: Vec<f64>,
    /// Σ_k C_ik log C_ik, m values.
    terms: Vec<f64>,
    /// Rows whose sums changed since `shares` and `terms` were made.
    stale: Vec<bool>,
    /// By how much the share of one state can have risen and that of another fallen in a row at the last refresh, m values, ∞ where a share
    /// was zero before.
    drift: Vec<f64>,
}

/// What is known about one column.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Column {
    /// The present latent state.
    pub state: u32,
    /// How far the scores of other states may still gain on that of `state` before one of them can win, in nats; −∞: not known.
    pub reserve: f64,
}

/// The most that a reserve begins with, per count. It keeps the rounding of reserves far below the slack that they set aside.
const LARGEST_RESERVE: f64 = 1.0;

impl Lambda {
    pub fn new(n_targets: usize, rank: usize) -> Lambda {
        let pieces = rank.div_ceil(LANES);
        Lambda {
            rank,
            sums: vec![0.0; n_targets * rank],
            totals: vec![0.0; rank],
            shares: vec![Lanes([f32::NEG_INFINITY; LANES]); n_targets * pieces],
            log_totals: vec![f64::INFINITY; pieces * LANES],
            terms: vec![0.0; n_targets],
            stale: vec![true; n_targets],
            drift: vec![0.0; n_targets],
        }
    }

    /// Bytes that one λ takes.
    pub fn bytes(n_targets: usize, rank: usize) -> usize {
        n_targets * (8 * rank + 4 * LANES * rank.div_ceil(LANES) + 17)
    }

    pub fn totals(&self) -> &[f64] {
        &self.totals
    }

    /// The sums of all rows (m × r), to be added up anew by [`gather`].
    pub fn renew(&mut self) -> &mut [f64] {
        self.stale.fill(true);
        &mut self.sums
    }

    /// C_·k = Σ_{γ(j)=k} N_·j, in ascending order of j.
    pub fn renew_totals(&mut self, affiliation: &[u32], source_total: &[f64]) {
        self.totals.fill(0.0);
        for (&k, &total) in affiliation.iter().zip(source_total) {
            self.totals[k as usize] += total;
        }
    }

    /// Moves local row `l` of `csr`, a source, from one latent state to another. Exact for integer counts only.
    pub fn shift(&mut self, csr: &Csr, l: usize, from: u32, to: u32) {
        let (from, to) = (from as usize, to as usize);
        let mut moved = 0.0;
        for e in csr.span(l) {
            let (i, v) = (csr.columns[e] as usize, csr.values.get(e));
            let row = &mut self.sums[i * self.rank..][..self.rank];
            row[from] -= v;
            row[to] += v;
            self.stale[i] = true;
            moved += v;
        }
        self.totals[from] -= moved;
        self.totals[to] += moved;
    }

    /// Brings everything that follows from the sums up to date. Returns ℓ̂ = Σ_ik C_ik log C_ik − Σ_k C_·k log C_·k and how far scores
    /// per count can have drifted apart by the change of log C_·k. `log_target_total` is log N_i·, m values.
    pub fn refresh(&mut self, log: &Logarithm, log_target_total: &[f64]) -> (f64, f64) {
        let pieces = self.rank.div_ceil(LANES);
        (
            self.sums.par_chunks_exact(self.rank),
            self.shares.par_chunks_exact_mut(pieces),
            &mut self.terms,
            &mut self.stale,
            &mut self.drift,
            log_target_total,
        )
            .into_par_iter()
            .with_min_len(8192)
            .for_each(|(sums, shares, term, stale, drift, log_target)| {
                *drift = 0.0;
                if !std::mem::take(stale) {
                    return;
                }
                *term = 0.0;
                let (mut rise, mut fall) = (0.0f64, 0.0f64);
                for (k, &c) in sums.iter().enumerate() {
                    let share = &mut shares[k / LANES].0[k % LANES];
                    if c > 0.0 {
                        let ln = log.ln(c);
                        *term += c * ln;
                        // A state that owns the whole row has the share 1 up to the last digit.
                        let (old, new) = (f64::from(*share), (ln - log_target).min(0.0));
                        // The old logarithm is known to the last digit of f32.
                        let unknown = f64::from(f32::EPSILON) * old.abs();
                        if old > f64::NEG_INFINITY {
                            rise = rise.max(new - old + unknown);
                            fall = fall.max(old - new + unknown);
                        } else {
                            rise = f64::INFINITY;
                        }
                        *share = new as f32;
                    } else {
                        // A share that vanishes is not the share of a column's own state.
                        *share = f32::NEG_INFINITY;
                    }
                }
                *drift = rise + fall;
            });
        let (mut of_totals, mut rise, mut fall) = (0.0, 0.0f64, 0.0f64);
        for (log_total, &c) in self.log_totals.iter_mut().zip(&self.totals) {
            let old = std::mem::replace(log_total, f64::INFINITY);
            if c > 0.0 {
                *log_total = c.ln();
                of_totals += c * *log_total;
                rise = rise.max(old - *log_total);
                fall = fall.max(*log_total - old);
            }
        }
        let log_likelihood = sum::terms(self.terms.len(), |i| self.terms[i]) - of_totals;
        (log_likelihood, rise + fall)
    }

    /// The latent state with the largest s_jk among those `open`, for a column whose non-zeros are at `columns` and `values`; `present`
    /// if all are ruled out, which the positive λ of its own state forbids.
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
            // Not so for NaN, the score of an empty state (0/0).
            if score > winner.1 {
                winner = (k as u32, score);
            }
        }
        winner.0
    }
}

/// Sums C_ik = Σ_{γ(j)=k} N_ij of the targets in `csr` (rows of targets), in ascending order of j; `sums` is its rows × rank.
pub fn gather(csr: &Csr, affiliation: &[u32], rank: usize, sums: &mut [f64]) {
    fn rows<V: Value>(csr: &Csr, values: &[V], affiliation: &[u32], rank: usize, sums: &mut [f64]) {
        for (l, row) in sums.chunks_exact_mut(rank).enumerate() {
            row.fill(0.0);
            let span = csr.span(l);
            for (&j, &v) in csr.columns[span.clone()].iter().zip(&values[span]) {
                row[affiliation[j as usize] as usize] += v.f64();
            }
        }
    }
    crate::with_values!(csr, values => rows(csr, values, affiliation, rank, sums));
}

/// Takes the drift of λ at the last refresh off the reserves of the columns that it reaches, through the targets in `csr` (rows of targets).
pub fn spread(csr: &Csr, lambda: &Lambda, columns: &mut [Column]) {
    fn rows<V: Value>(csr: &Csr, values: &[V], lambda: &Lambda, columns: &mut [Column]) {
        for (l, i) in csr.rows().enumerate() {
            let (span, drift) = (csr.span(l), lambda.drift[i]);
            if drift > 0.0 {
                for (&j, &v) in csr.columns[span.clone()].iter().zip(&values[span]) {
                    columns[j as usize].reserve -= v.f64() * drift;
                }
            }
        }
    }
    crate::with_values!(csr, values => rows(csr, values, lambda, columns));
}

/// Finds the best latent states of the columns of `csr` (rows of sources) whose reserve is used up; `columns` is its own rows. `source_total`
/// is N_·j, n values, and `drift` what all reserves have lost per count by the change of log C_·k since they were last all renewed.
#[multiversion(targets("x86_64+avx512f+avx512vl", "x86_64+avx2"))]
pub fn assign(
    csr: &Csr,
    source_total: &[f64],
    lambda: &Lambda,
    drift: f64,
    columns: &mut [Column],
) {
    match &csr.values {
        Values::Count(values) => rows(csr, values, source_total, lambda, drift, columns),
        Values::Real(values) => rows(csr, values, source_total, lambda, drift, columns),
    }
}

#[inline(always)]
fn rows<V: Value>(
    csr: &Csr,
    values: &[V],
    source_total: &[f64],
    lambda: &Lambda,
    drift: f64,
    columns: &mut [Column],
) {
    assert_eq!(columns.len(), csr.n_rows());
    let mut scores = vec![[0.0; LANES]; lambda.log_totals.len() / LANES];
    for (l, column) in columns.iter_mut().enumerate() {
        let (span, total) = (csr.span(l), source_total[csr.first_row + l]);
        if column.reserve > drift * total {
            continue;
        }
        let (targets, values) = (&csr.columns[span.clone()], &values[span]);
        *column = best(lambda, targets, values, total, column.state, &mut scores);
        column.reserve = (column.reserve + drift) * total;
    }
}

/// The best latent state of one column: by the filter, or exactly where that is in doubt. `total` is N_·j; scores and the reserve are
/// per count here.
#[inline(always)]
fn best<V: Value>(
    lambda: &Lambda,
    targets: &[u32],
    values: &[V],
    total: f64,
    present: u32,
    scores: &mut [[f64; LANES]],
) -> Column {
    let (pieces, scale) = (scores.len(), 1.0 / total);
    let mut p = 0;
    while p < pieces {
        if pieces - p >= 2 {
            add_up::<V, 2>(lambda, targets, values, scale, p, scores);
            p += 2;
        } else {
            add_up::<V, 1>(lambda, targets, values, scale, p, scores);
            p += 1;
        }
    }
    let (scores, log_totals) = (scores.as_flattened(), &lambda.log_totals);

    let mut winner = (0, f64::NEG_INFINITY);
    for (k, (score, log_total)) in scores.iter().zip(log_totals).enumerate() {
        let score = score - log_total;
        if score > winner.1 {
            winner = (k, score);
        }
    }
    // Rounding in f64, of the filter and of the exact scores it stands for: an error per non-zero and a few more, each at most 2⁻⁵² of
    // |log| ≤ 745, the largest logarithm there is.
    let slack = (targets.len() + 16) as f64 * (1024.0 * f64::EPSILON);
    let low = scores[winner.0] * (1.0 + FILTER_ERROR) - log_totals[winner.0] - slack;
    let high = |k: usize| scores[k] * (1.0 - FILTER_ERROR) - log_totals[k] + slack;
    // A NaN anywhere leaves the state open. Padded lanes are −∞ and closed, unless `low` is −∞ too.
    let is_open = |high: f64| !matches!(high.partial_cmp(&low), Some(std::cmp::Ordering::Less));
    let (mut n_open, mut second) = (0, f64::NEG_INFINITY);
    for k in 0..scores.len() {
        let high = high(k);
        n_open += u32::from(is_open(high));
        if k != winner.0 && high > second {
            second = high;
        }
    }
    if n_open == 1 {
        Column {
            state: winner.0 as u32,
            // Set aside: the slack of the exact scores when the reserve is used up, and the rounding of the reserve until then.
            reserve: (low - second).min(LARGEST_RESERVE) - 4.0 * slack,
        }
    } else {
        Column {
            state: lambda.exact(targets, values, present, |k| is_open(high(k))),
            reserve: f64::NEG_INFINITY,
        }
    }
}

/// scores[k] = Σ_i N_ij / N_·j log (C_ik / N_i·) for the lanes of `G` pieces from piece `first` on.
#[inline(always)]
fn add_up<V: Value, const G: usize>(
    lambda: &Lambda,
    columns: &[u32],
    values: &[V],
    scale: f64,
    first: usize,
    scores: &mut [[f64; LANES]],
) {
    let pieces = scores.len();
    let mut total = [[0.0f64; LANES]; G];
    let mut weights = [0.0f32; RUN];
    for (columns, values) in columns.chunks(RUN).zip(values.chunks(RUN)) {
        // N_ij / N_·j. The smallest weight keeps 0 · (−∞) out; what it adds is far below the slack.
        let weights = &mut weights[..values.len()];
        for (weight, v) in weights.iter_mut().zip(values) {
            *weight = ((v.f64() * scale) as f32).max(1e-30);
        }
        let mut chains = [[[0.0f32; LANES]; G]; CHAINS];
        let (fours, rest) = columns.as_chunks::<CHAINS>();
        let (four_weights, rest_weights) = weights.as_chunks::<CHAINS>();
        for (i, weight) in fours.iter().zip(four_weights) {
            for c in 0..CHAINS {
                add_term(
                    &mut chains[c],
                    row::<G>(lambda, i[c], first, pieces),
                    weight[c],
                );
            }
        }
        for (&i, &weight) in rest.iter().zip(rest_weights) {
            add_term(&mut chains[0], row::<G>(lambda, i, first, pieces), weight);
        }
        for g in 0..G {
            for k in 0..LANES {
                let (ab, cd) = (
                    chains[0][g][k] + chains[1][g][k],
                    chains[2][g][k] + chains[3][g][k],
                );
                total[g][k] += f64::from(ab + cd);
            }
        }
    }
    scores[first..first + G].copy_from_slice(&total);
}

/// `G` pieces of the shares of target `i`.
#[inline(always)]
fn row<const G: usize>(lambda: &Lambda, i: u32, first: usize, pieces: usize) -> &[Lanes] {
    &lambda.shares[i as usize * pieces + first..][..G]
}

#[inline(always)]
fn add_term<const G: usize>(chain: &mut [[f32; LANES]; G], row: &[Lanes], weight: f32) {
    for (chain, lanes) in chain.iter_mut().zip(row) {
        for (sum, share) in chain.iter_mut().zip(&lanes.0) {
            *sum += weight * share;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::Shards;

    /// λ and ℓ̂ of an affiliation.
    fn lambda(shards: &Shards, affiliation: &[u32], rank: usize) -> (Lambda, f64) {
        let mut lambda = Lambda::new(shards.n_targets, rank);
        gather(&shards.by_target[0], affiliation, rank, lambda.renew());
        lambda.renew_totals(affiliation, &shards.source_total);
        let log_likelihood = refresh(&mut lambda, shards);
        (lambda, log_likelihood)
    }

    fn refresh(lambda: &mut Lambda, shards: &Shards) -> f64 {
        let log_target_total: Vec<f64> = shards.target_total.iter().map(|t| t.ln()).collect();
        let log = Logarithm::new(shards.is_integral());
        lambda.refresh(&log, &log_target_total).0
    }

    fn looked_at(lambda: &Lambda, shards: &Shards) -> Vec<Column> {
        let unknown = Column {
            state: 9,
            reserve: f64::NEG_INFINITY,
        };
        let mut columns = vec![unknown; shards.n_sources];
        let csr = &shards.by_source[0];
        assign(csr, &shards.source_total, lambda, 0.0, &mut columns);
        columns
    }

    fn assigned(lambda: &Lambda, shards: &Shards) -> Vec<u32> {
        looked_at(lambda, shards).iter().map(|c| c.state).collect()
    }

    //            [ 2 0 0 ]
    // N (4 × 3) = [ 2 0 1 ]
    //            [ 0 3 1 ]
    //            [ 0 1 2 ]
    fn small() -> Shards {
        let counts = Values::Count(vec![2, 2, 3, 1, 1, 1, 2]);
        let sources = [0, 0, 1, 1, 2, 2, 2];
        Shards::new(3, 4, &sources, &[0, 1, 2, 3, 1, 2, 3], counts, 100)
    }

    #[test]
    fn one_iteration_by_hand() {
        // γ = (0, 0, 1): λ₀ = (2, 2, 3, 1)/8 and λ₁ = (0, 1, 1, 2)/4. Scores of the columns for k = 0 and 1:
        //   j = 0: 4 log ¼                             −∞, as λ_01 = 0        → 0
        //   j = 1: 3 log ⅜ + log ⅛ = −5.022            3 log ¼ + log ½ = −4.852  → 1
        //   j = 2: log ¼ + log ⅜ + 2 log ⅛ = −6.526    2 log ¼ + 2 log ½ = −4.159 → 1
        let s = small();
        let (mut l, _) = lambda(&s, &[0, 0, 1], 2);
        assert_eq!(assigned(&l, &s), [0, 1, 1]);

        // Then C₀ = (2, 2, 0, 0), C₁ = (0, 1, 4, 3): ℓ̂ = 4 log 2 + 4 log 4 + 3 log 3 − 4 log 4 − 8 log 8.
        l.shift(&s.by_source[0], 1, 0, 1);
        let moved = refresh(&mut l, &s);
        let by_hand = 4.0 * 2f64.ln() + 3.0 * 3f64.ln() - 8.0 * 8f64.ln();
        assert!((moved - by_hand).abs() < 1e-12);
        let (anew, log_likelihood) = lambda(&s, &[0, 1, 1], 2);
        assert_eq!(log_likelihood.to_bits(), moved.to_bits());
        assert_eq!(
            (&anew.sums, &anew.totals, &anew.log_totals),
            (&l.sums, &l.totals, &l.log_totals)
        );
    }

    #[test]
    fn reserves_by_hand() {
        // The gaps of the scores above: column 0 has no rival, so its reserve is the largest for 4 counts, and column 2 has 6.5260 − 4.1589.
        let s = small();
        let (mut l, _) = lambda(&s, &[0, 0, 1], 2);
        let mut columns = looked_at(&l, &s);
        let is_near = |x: f64, y: f64| (x - y).abs() < 2e-4;
        assert!(is_near(columns[0].reserve, 4.0));
        let gap = 6.5260 - 4.1589;
        assert!(is_near(columns[2].reserve, gap));

        // Column 0 goes to state 1, which is new to target 0: every column there must be looked at again. At target 1 the sum of state 1
        // grows from 1 to 3, which column 2 with its one count feels as log 3; column 1 has neither target.
        let before = columns.clone();
        l.shift(&s.by_source[0], 0, 0, 1);
        refresh(&mut l, &s);
        spread(&s.by_target[0], &l, &mut columns);
        assert_eq!(columns[0].reserve, f64::NEG_INFINITY);
        assert_eq!(columns[1], before[1]);
        assert!(is_near(columns[2].reserve, gap - 3f64.ln()));
    }

    #[test]
    fn an_empty_state_never_wins() {
        let s = small();
        let (l, _) = lambda(&s, &[1, 1, 2], 11);
        assert_eq!(assigned(&l, &s), [1, 2, 2]);
    }

    #[test]
    fn polzin_example_21_is_a_fixed_point() {
        // Three thirds of 30 states, mapped cyclically by a zigzag of slopes +3, −3, +3: {61, 80, 81} → {1, 2, 3} (coherence §7).
        let (mut sources, mut targets) = (Vec::new(), Vec::new());
        for j in 0..90u32 {
            let (third, x) = (j / 30, j % 30);
            let first = 3 * if x / 10 == 1 { 19 - x } else { x % 10 };
            for i in 0..3 {
                sources.push(j);
                targets.push((third + 1) % 3 * 30 + first + i);
            }
        }
        let values = Values::Count(vec![30; 270]);
        let s = Shards::new(90, 90, &sources, &targets, values, 1000);
        let thirds: Vec<u32> = (0..90).map(|j| j / 30).collect();
        let (l, log_likelihood) = lambda(&s, &thirds, 3);
        assert!((log_likelihood - 8100.0 * (1f64 / 30.0).ln()).abs() < 1e-9);
        assert_eq!(assigned(&l, &s), thirds);
    }
}
