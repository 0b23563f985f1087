//! Sequences of symbols → log-likelihoods, predicted symbols and states.
//!
//! The state b starts at b₁/(b_∞ᵀb₁). The raw prediction of a symbol is b_∞ᵀB_x b. Raw predictions
//! are clipped at `floor`, divided by their sum S and mixed with the distribution of all symbols.
//! After the symbol, b ← B_x b/(b_∞ᵀB_x b). If this normaliser is at most `floor`, or the symbol is
//! unseen, the state is reset to the start. A step without a row has Σ_x B_x in place of B_x, and
//! no log-likelihood.
//!
//! *Only what matters is computed.* S is Σ_x b_∞ᵀB_x b and what clipping adds. With s the start and
//! d = ‖b − s‖, the raw prediction of a class is within R·s ± ‖R⊥‖d, where R = b_∞ᵀB_x and R⊥ is
//! its part orthogonal to b_∞ (as b_∞ᵀb = b_∞ᵀs = 1). Classes are sorted by the distance from which
//! on they may be clipped, in blocks. Only blocks within reach are evaluated, and for the most
//! likely symbol only blocks whose upper bound is above the best one so far. The results are those
//! of all classes.

use crate::evidence::symbols::Symbols;
use crate::math::matrix::dot;
use crate::methods::hmm::model::{HmmModel, UNSEEN};
use multiversion::multiversion;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::OnceLock;

/// Classes per block.
const LANES: usize = 16;

/// Relative slack of bounds for rounding.
const SLACK: f64 = 1e-9;

/// A model that is ready to filter sequences.
#[derive(Debug)]
pub struct Filter<'a> {
    model: &'a HmmModel,
    unigram: f64,
    floor: f64,
    /// Whether the most likely next symbol is computed.
    next: bool,
    /// Whether states are returned.
    states: bool,
    /// The start.
    start: FilterState,
    /// Whether b_∞ is the first unit vector.
    last_is_first: bool,
    /// Σ_x b_∞ᵀB_x.
    row_sum: Vec<f64>,
    /// Σ_x B_x, made at the first step without a row: k × k.
    operator_sum: OnceLock<Vec<f64>>,
    blocks: Blocks,
}

/// R of all classes, in blocks of [`LANES`].
#[derive(Debug, Default)]
struct Blocks {
    /// Blocks × k × lanes.
    rows: Vec<f64>,
    /// The class of each lane; `UNSEEN` for lanes without a class.
    class: Vec<u32>,
    /// The floor of each lane; 0 for lanes without a class, whose raw predictions are 0.
    floor: Vec<f64>,
    /// The most frequent symbol of each lane's class.
    symbol: Vec<u32>,
    /// Its share in the class.
    share: Vec<f64>,
    /// Its share among all symbols.
    unigram: Vec<f64>,
    /// The smallest distance from the start at which a class of the block may be clipped.
    margin: Vec<f64>,
    /// Upper bounds of R·s, of ‖R⊥‖ and of `unigram` in each block and all blocks before it.
    bound: Vec<[f64; 3]>,
}

/// The state of a sequence between two rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FilterState {
    /// b: k values.
    pub state: Vec<f64>,
    /// The sum S of the clipped predictions of the next symbol.
    sum: f64,
    /// The number of negative raw predictions.
    negatives: u64,
    /// The sum of their magnitudes.
    negative_mass: f64,
}

/// What a filter says about rows, one value per row.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Scores {
    /// ln Pr(x_t | x_1, …, x_{t−1}), in nats.
    pub log_likelihood: Vec<f64>,
    /// The most likely symbol after this row, if it is wanted. The smallest of equally likely ones.
    pub next: Vec<u32>,
    /// Its probability, if it is wanted.
    pub next_probability: Vec<f64>,
    /// Whether the state was reset by this row.
    pub was_reset: Vec<bool>,
    /// The states after the rows, rows × k, if they are wanted.
    pub states: Vec<f64>,
    /// The number of rows with an unseen symbol.
    pub unseen: u64,
    /// The number of negative raw predictions in the predicted distributions of all rows.
    pub negatives: u64,
    /// The sum of their magnitudes.
    pub negative_mass: f64,
}

/// The score of one sequence, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SequenceScore {
    /// The number of rows.
    pub rows: u64,
    /// Rows with an unseen symbol.
    pub unseen: u64,
    /// Σ ln Pr(x_t | x_1, …, x_{t−1}), in nats.
    pub log_likelihood: f64,
    /// Rows that reset the state.
    pub resets: u64,
    /// The number of negative raw predictions.
    pub negatives: u64,
    /// The sum of their magnitudes.
    pub negative_mass: f64,
}

impl SequenceScore {
    /// Adds another score.
    pub(crate) fn add(&mut self, other: &SequenceScore) {
        self.rows += other.rows;
        self.unseen += other.unseen;
        self.log_likelihood += other.log_likelihood;
        self.resets += other.resets;
        self.negatives += other.negatives;
        self.negative_mass += other.negative_mass;
    }

    /// The share of negative entries among all raw predictions of a model with `n_classes`
    /// operators.
    #[cfg(test)]
    pub(crate) fn negative_share(&self, n_classes: usize) -> f64 {
        let all = self.rows as f64 * n_classes as f64;
        if all > 0.0 {
            self.negatives as f64 / all
        } else {
            0.0
        }
    }
}

impl<'a> Filter<'a> {
    /// Prepares a model. `unigram` is the share of the distribution of all symbols in predictions,
    /// and `floor` the smallest prediction.
    pub fn new(model: &'a HmmModel, unigram: f64, floor: f64) -> Filter<'a> {
        let k = model.rank;
        let one = dot(&model.last, &model.initial);
        // Without a positive normaliser the start cannot be normalised, and b₁ stands as it is.
        let scale = if one > floor { 1.0 / one } else { 1.0 };
        let state: Vec<f64> = model.initial.iter().map(|b| b * scale).collect();
        let unit = |at: usize| if at == 0 { 1.0 } else { 0.0 };
        let last_is_first = (0..k).all(|at| model.last[at] == unit(at));
        let rows = rows(model);
        let mut row_sum = vec![0.0; k];
        for row in rows.chunks_exact(k) {
            row_sum.iter_mut().zip(row).for_each(|(sum, r)| *sum += r);
        }
        let blocks = Blocks::new(model, &rows, &state, one > floor, floor);
        let mut filter = Filter {
            model,
            unigram,
            floor,
            next: false,
            states: false,
            start: FilterState {
                state,
                sum: 0.0,
                negatives: 0,
                negative_mass: 0.0,
            },
            last_is_first,
            row_sum,
            operator_sum: OnceLock::new(),
            blocks,
        };
        let mut start = filter.start.clone();
        filter.prepare(&mut start);
        filter.start = start;
        filter
    }

    /// The same with the most likely next symbol of every row.
    pub(crate) fn with_next(mut self) -> Self {
        self.next = true;
        self
    }

    /// The same with the state after every row.
    pub(crate) fn with_states(mut self) -> Self {
        self.states = true;
        self
    }

    /// The state before the first row of a sequence.
    pub(crate) fn start(&self) -> FilterState {
        self.start.clone()
    }

    /// Filters the next rows of a sequence and adds their scores to `out`.
    ///
    /// # Panics
    /// If a symbol is out of range and not [`UNSEEN`].
    pub(crate) fn push(&self, state: &mut FilterState, symbols: &[u32], out: &mut Scores) {
        let mut raw = vec![0.0; self.model.rank];
        for &symbol in symbols {
            out.negatives += state.negatives;
            out.negative_mass += state.negative_mass;
            let (log_likelihood, was_reset) = self.step(state, symbol, &mut raw);
            out.unseen += u64::from(symbol == UNSEEN);
            out.log_likelihood.push(log_likelihood);
            out.was_reset.push(was_reset);
            if self.states {
                out.states.extend_from_slice(&state.state);
            }
            if self.next {
                let (next, probability) = self.most_likely(state);
                out.next.push(next);
                out.next_probability.push(probability);
            }
        }
    }

    /// Goes on by a number of steps without a row: b ← Sb/(b_∞ᵀSb) with S = Σ_x B_x. If a
    /// normaliser is at most the floor, the state is the start. Returns whether it is.
    pub(crate) fn predict(&self, state: &mut FilterState, steps: u64) -> bool {
        if steps == 0 {
            return false;
        }
        let sum = self
            .operator_sum
            .get_or_init(|| self.model.sum_of_operators());
        let mut raw = vec![0.0; self.model.rank];
        for _ in 0..steps {
            multiply(sum, &state.state, &mut raw);
            if !self.normalise(state, &raw) {
                return true;
            }
        }
        self.prepare(state);
        false
    }

    /// The score of a whole sequence.
    pub(crate) fn score(&self, symbols: &[u32]) -> SequenceScore {
        let mut state = self.start();
        let mut raw = vec![0.0; self.model.rank];
        let mut score = SequenceScore::default();
        for &symbol in symbols {
            score.negatives += state.negatives;
            score.negative_mass += state.negative_mass;
            let (log_likelihood, was_reset) = self.step(&mut state, symbol, &mut raw);
            score.rows += 1;
            score.unseen += u64::from(symbol == UNSEEN);
            score.log_likelihood += log_likelihood;
            score.resets += u64::from(was_reset);
        }
        score
    }

    /// The scores of all sequences in their order, computed in parallel.
    pub(crate) fn scores(&self, sequences: &Symbols) -> Vec<SequenceScore> {
        let all = (0..sequences.len()).into_par_iter();
        all.map(|s| self.score(sequences.get(s))).collect()
    }

    /// The sum of the scores of all sequences.
    pub fn total(&self, sequences: &Symbols) -> SequenceScore {
        let mut total = SequenceScore::default();
        for score in self.scores(sequences) {
            total.add(&score);
        }
        total
    }

    /// The predicted distribution of the next symbol: n values that add up to 1.
    pub(crate) fn distribution(&self, state: &FilterState) -> Vec<f64> {
        let k = self.model.rank;
        let classes: Vec<f64> = (0..self.model.n_classes() as u32)
            .map(|class| {
                let operator = self.model.operator(class);
                let mut sum = 0.0;
                for (row, last) in operator.chunks_exact(k).zip(&self.model.last) {
                    sum += last * dot(row, &state.state);
                }
                sum.max(self.floor) / state.sum
            })
            .collect();
        let symbols = self.model.class_of.iter().enumerate();
        symbols
            .map(|(symbol, &class)| {
                let own = self.model.share[symbol] * classes[class as usize];
                (1.0 - self.unigram) * own + self.unigram * self.model.unigram[symbol]
            })
            .collect()
    }

    /// Takes one symbol. Returns its log-likelihood and whether the state was reset.
    fn step(&self, state: &mut FilterState, symbol: u32, raw: &mut [f64]) -> (f64, bool) {
        if symbol == UNSEEN {
            state.clone_from(&self.start);
            return (self.floor.ln(), true);
        }
        let at = symbol as usize;
        let class = self.model.class_of[at];
        multiply(self.model.operator(class), &state.state, raw);
        let normaliser = self.normaliser(raw);
        // NaN is clipped, too.
        let clipped = normaliser.max(self.floor);
        let own = self.model.share[at] * clipped / state.sum;
        let probability = (1.0 - self.unigram) * own + self.unigram * self.model.unigram[at];
        let is_lost = !self.normalise(state, raw);
        if !is_lost {
            self.prepare(state);
        }
        // A fold may lack the symbol, and so give it no share at all.
        (probability.max(self.floor).ln(), is_lost)
    }

    /// b_∞ᵀ of a state.
    fn normaliser(&self, raw: &[f64]) -> f64 {
        if self.last_is_first {
            raw[0]
        } else {
            dot(&self.model.last, raw)
        }
    }

    /// Sets the state to `raw`, normalised. If it cannot be normalised, the state is the start, and
    /// the result is false.
    fn normalise(&self, state: &mut FilterState, raw: &[f64]) -> bool {
        let normaliser = self.normaliser(raw);
        if !(normaliser > self.floor && normaliser.is_finite()) {
            state.clone_from(&self.start);
            return false;
        }
        let scale = 1.0 / normaliser;
        for (state, raw) in state.state.iter_mut().zip(raw) {
            *state = raw * scale;
        }
        true
    }

    /// Computes S and the negative predictions of a state.
    fn prepare(&self, state: &mut FilterState) {
        let distance = distance(&state.state, &self.start.state);
        let reach = distance * (1.0 + SLACK) + f64::MIN_POSITIVE;
        let k = self.model.rank;
        let blocks = &self.blocks;
        let within = blocks.margin.partition_point(|margin| *margin <= reach);
        let rows = &blocks.rows[..within * k * LANES];
        let clipped = clip(rows, &blocks.floor[..within * LANES], &state.state);
        state.negatives = clipped.negatives;
        state.negative_mass = clipped.negative_mass;
        let sum = dot(&self.row_sum, &state.state) + clipped.added;
        state.sum = sum.max(self.floor);
    }

    /// The most likely symbol after a state, and its probability.
    fn most_likely(&self, state: &FilterState) -> (u32, f64) {
        let k = self.model.rank;
        let distance = distance(&state.state, &self.start.state);
        let blocks = &self.blocks;
        let own = (1.0 - self.unigram) / state.sum;
        let mut best = (UNSEEN, f64::NEG_INFINITY);
        for block in (0..blocks.margin.len()).rev() {
            let [start, slope, unigram] = blocks.bound[block];
            let raw = (start + slope * distance).max(self.floor);
            let bound = own * raw + self.unigram * unigram;
            if bound * (1.0 + SLACK) < best.1 {
                break;
            }
            let raw = evaluate(&blocks.rows[block * k * LANES..][..k * LANES], &state.state);
            for (lane, raw) in raw.iter().enumerate() {
                let at = block * LANES + lane;
                if blocks.class[at] == UNSEEN {
                    continue;
                }
                let probability = own * blocks.share[at] * raw.max(self.floor)
                    + self.unigram * blocks.unigram[at];
                let symbol = blocks.symbol[at];
                if probability > best.1 || probability == best.1 && symbol < best.0 {
                    best = (symbol, probability);
                }
            }
        }
        best
    }
}

/// R = b_∞ᵀB_x of all classes: classes × k, row-major.
fn rows(model: &HmmModel) -> Vec<f64> {
    let k = model.rank;
    let mut rows = vec![0.0; model.n_classes() * k];
    rows.par_chunks_mut(k)
        .zip(model.operators.par_chunks(k * k))
        .for_each(|(out, operator)| {
            for (row, last) in operator.chunks_exact(k).zip(&model.last) {
                out.iter_mut()
                    .zip(row)
                    .for_each(|(out, b)| *out += last * b);
            }
        });
    rows
}

impl Blocks {
    /// Sorts the classes. Without a normalised start, every class is always evaluated.
    fn new(
        model: &HmmModel,
        rows: &[f64],
        start: &[f64],
        is_normalised: bool,
        floor: f64,
    ) -> Blocks {
        let (k, n) = (model.rank, model.n_classes());
        let square = dot(&model.last, &model.last);
        // R·s and ‖R⊥‖.
        let levels = rows.chunks_exact(k).map(|row| {
            let along = dot(row, &model.last) / square;
            let rest = row.iter().zip(&model.last).map(|(r, l)| r - along * l);
            let length = rest.map(|x| x * x).sum::<f64>().sqrt();
            let at_start = dot(row, start);
            // The bounds hold for what rounding makes of raw predictions.
            let error = SLACK * (at_start.abs() + length) + f64::MIN_POSITIVE;
            if is_normalised {
                (at_start, length, error)
            } else {
                (at_start, f64::MAX, error)
            }
        });
        let levels: Vec<(f64, f64, f64)> = levels.collect();
        let margin = |class: usize| {
            let (at_start, length, error) = levels[class];
            let room = at_start - error - floor;
            if room <= 0.0 || length == f64::MAX {
                0.0
            } else {
                room / length.max(f64::MIN_POSITIVE)
            }
        };
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| margin(a).total_cmp(&margin(b)).then(a.cmp(&b)));
        // The most frequent symbol of each class.
        let mut symbol_of = vec![UNSEEN; n];
        for (symbol, &class) in (0..).zip(&model.class_of) {
            let best = &mut symbol_of[class as usize];
            let share = |symbol: u32| model.share[symbol as usize];
            if *best == UNSEEN || share(symbol) > share(*best) {
                *best = symbol;
            }
        }
        let mut blocks = Blocks::default();
        let mut bound = [0.0; 3];
        for lanes in order.chunks(LANES) {
            let first = blocks.rows.len();
            blocks.rows.resize(first + k * LANES, 0.0);
            for (lane, &class) in lanes.iter().enumerate() {
                for (j, r) in rows[class * k..][..k].iter().enumerate() {
                    blocks.rows[first + j * LANES + lane] = *r;
                }
                let symbol = symbol_of[class];
                let of = |values: &[f64]| values.get(symbol as usize).copied().unwrap_or(0.0);
                let (at_start, length, error) = levels[class];
                let share = of(&model.share);
                let unigram = of(&model.unigram);
                blocks.class.push(class as u32);
                blocks.floor.push(floor);
                blocks.symbol.push(symbol);
                blocks.share.push(share);
                blocks.unigram.push(unigram);
                bound[0] = f64::max(bound[0], at_start + error);
                bound[1] = f64::max(bound[1], length);
                bound[2] = f64::max(bound[2], unigram);
            }
            let filled = blocks.class.len().next_multiple_of(LANES);
            for ids in [&mut blocks.class, &mut blocks.symbol] {
                ids.resize(filled, UNSEEN);
            }
            for numbers in [&mut blocks.floor, &mut blocks.share, &mut blocks.unigram] {
                numbers.resize(filled, 0.0);
            }
            blocks.margin.push(margin(lanes[0]));
            blocks.bound.push(bound);
        }
        blocks
    }
}

/// ‖a − b‖.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>().sqrt()
}

/// out = Bb, for a k × k row-major B.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn multiply(operator: &[f64], state: &[f64], out: &mut [f64]) {
    let k = state.len();
    let whole = k / 4 * 4;
    let (chunks, rest) = state.split_at(whole);
    let mut rows = operator.chunks_exact(4 * k);
    let mut outs = out.chunks_exact_mut(4);
    for (rows, out) in rows.by_ref().zip(outs.by_ref()) {
        let (r0, r) = rows.split_at(k);
        let (r1, r) = r.split_at(k);
        let (r2, r3) = r.split_at(k);
        let rows = [r0, r1, r2, r3];
        let mut sums = [[0.0; 4]; 4];
        for (at, b) in chunks.as_chunks::<4>().0.iter().enumerate() {
            for (sums, row) in sums.iter_mut().zip(rows) {
                let row = &row[at * 4..][..4];
                for l in 0..4 {
                    sums[l] = row[l].mul_add(b[l], sums[l]);
                }
            }
        }
        for ((out, sums), row) in out.iter_mut().zip(sums).zip(rows) {
            let mut sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
            for (r, b) in row[whole..].iter().zip(rest) {
                sum = r.mul_add(*b, sum);
            }
            *out = sum;
        }
    }
    let outs = outs.into_remainder();
    for (row, out) in rows.remainder().chunks_exact(k).zip(outs) {
        let mut sums = [0.0; 4];
        for (row, b) in row[..whole]
            .as_chunks::<4>()
            .0
            .iter()
            .zip(chunks.as_chunks::<4>().0)
        {
            for l in 0..4 {
                sums[l] = row[l].mul_add(b[l], sums[l]);
            }
        }
        let mut sum = (sums[0] + sums[2]) + (sums[1] + sums[3]);
        for (r, b) in row[whole..].iter().zip(rest) {
            sum = r.mul_add(*b, sum);
        }
        *out = sum;
    }
}

/// What clipping changes.
struct Clipped {
    /// Σ max(0, floor − raw).
    added: f64,
    /// The number of negative raw predictions.
    negatives: u64,
    /// The sum of their magnitudes.
    negative_mass: f64,
}

/// Clips the raw predictions of some blocks.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn clip(rows: &[f64], floors: &[f64], state: &[f64]) -> Clipped {
    let mut added = [0.0; LANES];
    let mut mass = [0.0; LANES];
    let mut negatives = [0_u64; LANES];
    let blocks = rows.chunks_exact(state.len() * LANES);
    for (rows, floors) in blocks.zip(floors.as_chunks::<LANES>().0) {
        let mut raw = [0.0; LANES];
        for (row, x) in rows.as_chunks::<LANES>().0.iter().zip(state) {
            for l in 0..LANES {
                raw[l] = row[l].mul_add(*x, raw[l]);
            }
        }
        for l in 0..LANES {
            let below = floors[l] - raw[l];
            added[l] += if below > 0.0 { below } else { 0.0 };
            let is_negative = raw[l] < 0.0;
            mass[l] -= if is_negative { raw[l] } else { 0.0 };
            negatives[l] += u64::from(is_negative);
        }
    }
    Clipped {
        added: added.iter().sum(),
        negatives: negatives.iter().sum(),
        negative_mass: mass.iter().sum(),
    }
}

/// The raw predictions of a block of classes.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn evaluate(rows: &[f64], state: &[f64]) -> [f64; LANES] {
    let mut even = [0.0; LANES];
    let mut odd = [0.0; LANES];
    let (pairs, last) = rows.as_chunks::<LANES>().0.as_chunks::<2>();
    let (states, last_state) = state.as_chunks::<2>();
    for ([a, b], [x, y]) in pairs.iter().zip(states) {
        for l in 0..LANES {
            even[l] = a[l].mul_add(*x, even[l]);
            odd[l] = b[l].mul_add(*y, odd[l]);
        }
    }
    for (a, x) in last.iter().zip(last_state) {
        for l in 0..LANES {
            even[l] = a[l].mul_add(*x, even[l]);
        }
    }
    for l in 0..LANES {
        even[l] += odd[l];
    }
    even
}
