//! The Baum–Welch algorithm with scaling (Rabiner, *A tutorial on hidden Markov models*, Proc. IEEE
//! 77, 1989), from a spectral seed.
//!
//! Rows of emission and transition probabilities are padded to a fixed width, so that the compiler
//! unrolls and vectorises the loops. Expected counts of transitions are summed up without T_ij,
//! which is the same factor in all terms. Sequences are cut into a fixed number of parts, whose
//! sums are added in order, so no bytes depend on threads. Long sequences are processed in blocks:
//! the forward pass keeps the first state of every block and repeats the block before the backward
//! pass.
//!
//! A sequence of weight w counts as w equal sequences: its expected counts and its log-likelihood
//! are multiplied by w.

use crate::error::{Error, Result};
use crate::evidence::symbols::Symbols;
use crate::math::scale::times_power;
use crate::math::seed::restart_seed;
use crate::methods::hmm::model::{Hidden, HmmModel, UNSEEN, Warning};
use crate::methods::hmm::params::SpectralHmm;
use crate::methods::hmm::project::Projection;
use crate::methods::hmm::recover::recover;
use multiversion::multiversion;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rayon::prelude::*;

/// The largest number of hidden states.
pub(crate) const LARGEST: usize = 128;

/// Parts of the sequences that are summed up alone. The number is fixed because it determines the
/// rounding.
const PARTS: usize = 16;

/// Symbols of a block of a long sequence.
const BLOCK: usize = 4096;

/// The share of the distribution of all symbols in the emission probabilities of a seed, and of the
/// uniform distribution in its transition probabilities.
const BLEND: f64 = 0.1;

/// Products of normalisers are turned into logarithms before they are smaller.
const SMALL: f64 = 1e-140;

/// A normaliser below this is lost: the observation says nothing.
const LOST: f64 = 1e-280;

/// A result of the Baum–Welch algorithm.
#[derive(Debug, Clone, PartialEq)]
pub struct Climb {
    /// The parameters of the largest log-likelihood.
    pub hidden: Hidden,
    /// The log-likelihood of the training sequences before every iteration and after the last one,
    /// in nats and in the unit of the weights.
    pub trace: Vec<f64>,
    /// Whether the last gain was below the tolerance.
    pub converged: bool,
}

/// A hidden Markov model that the Baum–Welch algorithm found from a spectral seed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Refined {
    /// The model: A_x = T diag(O_x), b₁ = π, b_∞ = 1.
    pub model: HmmModel,
    /// The log-likelihood of the training sequences before every iteration and after the last one,
    /// in nats.
    pub trace: Vec<f64>,
    /// Whether the last gain was below `tol`.
    pub converged: bool,
    /// What makes the fit doubtful.
    pub warnings: Vec<Warning>,
}

/// Refines the model of a rank by the Baum–Welch algorithm.
///
/// # Errors
/// If the rank is above the numerical rank or above [`LARGEST`].
pub(crate) fn refine(
    params: &SpectralHmm,
    projection: &Projection,
    rank: usize,
    sequences: &Symbols,
    seed: u64,
) -> Result<Refined> {
    let model = projection.model(rank)?;
    if model.rank > LARGEST {
        return Err(Error::input(format!(
            "the Baum–Welch algorithm has at most {LARGEST} hidden states, not {}; decrease `rank`",
            model.rank
        )));
    }
    let mut warnings = projection.warnings(rank);
    let start = recovered_hidden(&model, seed).unwrap_or_else(|| {
        warnings.push(Warning::NotRecovered);
        random_start(model.rank, &model.unigram, seed)
    });
    let start = blend(start, &model.unigram);
    let climb = climb(start, sequences, params.n_iter, params.tol);
    if !climb.converged {
        let gain = match climb.trace.as_slice() {
            [.., before, after] => (after - before) / sequences.weighted_symbols(),
            _ => 0.0,
        };
        let iterations = climb.trace.len().saturating_sub(1);
        warnings.push(Warning::Iterations { iterations, gain });
    }
    let in_nats = |l: &f64| times_power(*l, sequences.exponent);
    Ok(Refined {
        model: climb.hidden.model(model.unigram),
        trace: climb.trace.iter().map(in_nats).collect(),
        converged: climb.converged,
        warnings,
    })
}

/// Transition and emission probabilities of a spectral model: recovered, clipped at 0 and
/// normalised. None if they cannot be recovered.
pub(crate) fn recovered_hidden(model: &HmmModel, seed: u64) -> Option<Hidden> {
    let m = model.rank;
    let Hidden {
        initial,
        transition,
        emission,
    } = recover(model, seed)?.raw;
    Some(Hidden {
        initial: normalised_columns(initial, 1),
        transition: normalised_columns(transition, m),
        emission: normalised_columns(emission, m),
    })
}

/// Clips at 0 and divides every column by its sum. A column of zeros becomes uniform.
fn normalised_columns(mut rows: Vec<f64>, columns: usize) -> Vec<f64> {
    let mut sums = vec![0.0; columns];
    for row in rows.chunks_exact_mut(columns) {
        for (x, sum) in row.iter_mut().zip(&mut sums) {
            *x = x.max(0.0);
            *sum += *x;
        }
    }
    let n = rows.len() / columns.max(1);
    for row in rows.chunks_exact_mut(columns) {
        for (x, sum) in row.iter_mut().zip(&sums) {
            *x = if *sum > 0.0 { *x / sum } else { 1.0 / n as f64 };
        }
    }
    rows
}

/// Random probabilities.
pub fn random_start(m: usize, unigram: &[f64], seed: u64) -> Hidden {
    let mut random = Pcg64::seed_from_u64(restart_seed(seed, 1));
    let mut draw = |n: usize| -> Vec<f64> { (0..n).map(|_| random.random::<f64>()).collect() };
    Hidden {
        initial: normalised_columns(draw(m), 1),
        transition: normalised_columns(draw(m * m), m),
        emission: normalised_columns(draw(unigram.len() * m), m),
    }
}

/// Mixes emission probabilities with the distribution of all symbols, and transition and initial
/// probabilities with the uniform distribution, so that none is zero.
fn blend(mut hidden: Hidden, unigram: &[f64]) -> Hidden {
    let m = hidden.states();
    let uniform = 1.0 / m as f64;
    let mix = |x: &mut f64, other: f64| *x = (1.0 - BLEND) * *x + BLEND * other;
    hidden.initial.iter_mut().for_each(|x| mix(x, uniform));
    hidden.transition.iter_mut().for_each(|x| mix(x, uniform));
    for (row, share) in hidden.emission.chunks_exact_mut(m).zip(unigram) {
        row.iter_mut().for_each(|x| mix(x, *share));
    }
    hidden
}

/// The Baum–Welch algorithm: at most `n_iter` iterations, until one gains less than `tol` nats per
/// symbol. So neither repeated sequences nor the scale of weights change the number of iterations.
pub fn climb(start: Hidden, sequences: &Symbols, n_iter: usize, tol: f64) -> Climb {
    let tol = tol * sequences.weighted_symbols();
    let mut hidden = start;
    let mut trace: Vec<f64> = Vec::new();
    let mut converged = false;
    for _ in 0..n_iter {
        let sums = expectation(&hidden, sequences);
        let gain = trace.last().map(|before| sums.log_likelihood - before);
        trace.push(sums.log_likelihood);
        if gain.is_some_and(|gain| gain < tol) {
            converged = true;
            break;
        }
        hidden = maximisation(&hidden, &sums);
    }
    if !converged {
        let last = hidden.log_likelihood(sequences);
        converged = trace.last().is_some_and(|before| last - before < tol);
        trace.push(last);
    }
    Climb {
        hidden,
        trace,
        converged,
    }
}

/// Expected counts.
#[derive(Debug, Clone, Default)]
struct Sums {
    log_likelihood: f64,
    /// Of the states of the first symbols of sequences: padded m.
    initial: Vec<f64>,
    /// Of transitions from a state to another without the factor T: from × to, padded m × m.
    pairs: Vec<f64>,
    /// Of symbols in states: (n + 1) × padded m. The last row is of unseen symbols.
    emission: Vec<f64>,
    /// Columns of the padded rows.
    width: usize,
}

impl Sums {
    fn add(&mut self, other: &Sums) {
        if self.width == 0 {
            self.clone_from(other);
            return;
        }
        self.log_likelihood += other.log_likelihood;
        let lists = [
            (&mut self.initial, &other.initial),
            (&mut self.pairs, &other.pairs),
            (&mut self.emission, &other.emission),
        ];
        for (sums, others) in lists {
            sums.iter_mut().zip(others).for_each(|(sum, x)| *sum += x);
        }
    }
}

/// The parameters that have the expected counts of a model as their frequencies.
fn maximisation(hidden: &Hidden, sums: &Sums) -> Hidden {
    let (m, n, width) = (hidden.states(), hidden.symbols(), sums.width);
    let share = |part: f64, whole: f64, old: f64| if whole > 0.0 { part / whole } else { old };
    let all: f64 = sums.initial[..m].iter().sum();
    let initial = (0..m).map(|i| share(sums.initial[i], all, hidden.initial[i]));
    let mut transition = vec![0.0; m * m];
    for from in 0..m {
        let expected = |to: usize| hidden.transition[to * m + from] * sums.pairs[from * width + to];
        let all: f64 = (0..m).map(expected).sum();
        for to in 0..m {
            let at = to * m + from;
            transition[at] = share(expected(to), all, hidden.transition[at]);
        }
    }
    let mut all = vec![0.0; m];
    let rows = || sums.emission.chunks_exact(width).take(n);
    for row in rows() {
        all.iter_mut().zip(row).for_each(|(all, x)| *all += x);
    }
    let mut emission = Vec::with_capacity(n * m);
    for (row, old) in rows().zip(hidden.emission.chunks_exact(m)) {
        let states = row.iter().zip(&all).zip(old);
        emission.extend(states.map(|((x, all), old)| share(*x, *all, *old)));
    }
    Hidden {
        initial: initial.collect(),
        transition,
        emission,
    }
}

/// The padded width of a number of states.
fn padded(states: usize) -> usize {
    *WIDTHS
        .iter()
        .find(|width| states <= **width)
        .expect("a number of states that was checked")
}

const WIDTHS: [usize; 7] = [4, 8, 16, 24, 32, 64, LARGEST];

/// Calls a function with the padded width as its constant parameter.
macro_rules! with_width {
    ($states:expr, $f:ident($($argument:expr),*)) => {
        match padded($states) {
            4 => $f::<4>($($argument),*),
            8 => $f::<8>($($argument),*),
            16 => $f::<16>($($argument),*),
            24 => $f::<24>($($argument),*),
            32 => $f::<32>($($argument),*),
            64 => $f::<64>($($argument),*),
            _ => $f::<LARGEST>($($argument),*),
        }
    };
}

/// Expected counts of all sequences.
fn expectation(hidden: &Hidden, sequences: &Symbols) -> Sums {
    with_width!(hidden.states(), expectation_of(hidden, sequences))
}

impl Hidden {
    /// Σ w ln Pr(x₁, …, x_T) over all sequences, in nats and in the unit of the weights, by the
    /// forward algorithm. Unseen symbols are missing observations.
    pub(crate) fn log_likelihood(&self, sequences: &Symbols) -> f64 {
        with_width!(self.states(), log_likelihood_of(self, sequences))
    }
}

fn expectation_of<const W: usize>(hidden: &Hidden, sequences: &Symbols) -> Sums {
    let padded = Padded::<W>::new(hidden);
    let mut total = Sums::default();
    let parts = sequences.parts(PARTS);
    // No more sums than threads are in memory.
    for parts in parts.chunks(rayon::current_num_threads()) {
        let sums: Vec<Sums> = parts
            .par_iter()
            .map(|part| {
                let mut sums = Sums {
                    log_likelihood: 0.0,
                    initial: vec![0.0; W],
                    pairs: vec![0.0; W * W],
                    emission: vec![0.0; padded.emission.len()],
                    width: W,
                };
                let mut buffers = Buffers::default();
                for s in part.clone() {
                    let (symbols, weight) = (sequences.get(s), sequences.weight(s));
                    padded.add(symbols, weight, &mut buffers, &mut sums);
                }
                sums
            })
            .collect();
        sums.iter().for_each(|sums| total.add(sums));
    }
    total
}

fn log_likelihood_of<const W: usize>(hidden: &Hidden, sequences: &Symbols) -> f64 {
    let padded = Padded::<W>::new(hidden);
    let parts = sequences.parts(PARTS).into_par_iter().map(|part| {
        let mut buffers = Buffers::default();
        let mut sum = 0.0;
        for s in part {
            let mut state = padded.initial;
            for symbols in sequences.get(s).chunks(BLOCK) {
                let own = forward(&padded, symbols, &mut state, &mut buffers);
                sum += sequences.weight(s) * own;
            }
        }
        sum
    });
    parts.collect::<Vec<f64>>().iter().sum()
}

/// Probabilities in padded rows.
struct Padded<const W: usize> {
    /// The number of states, m ≤ W.
    states: usize,
    initial: [f64; W],
    /// Pr(to | from): from × to.
    from: Vec<[f64; W]>,
    /// Pr(to | from): to × from.
    to: Vec<[f64; W]>,
    /// Pr(symbol | state): n + 1 rows, the last one of ones for unseen symbols.
    emission: Vec<f64>,
    /// Ones for the states.
    ones: [f64; W],
}

/// States and inverse normalisers of a block.
#[derive(Default)]
struct Buffers {
    states: Vec<f64>,
    scales: Vec<f64>,
    /// The predicted states before every block.
    starts: Vec<f64>,
}

impl<const W: usize> Padded<W> {
    fn new(hidden: &Hidden) -> Padded<W> {
        let m = hidden.states();
        let row = |entry: &dyn Fn(usize) -> f64| -> [f64; W] {
            std::array::from_fn(|j| if j < m { entry(j) } else { 0.0 })
        };
        let t = &hidden.transition;
        let mut emission = Vec::with_capacity((hidden.symbols() + 1) * W);
        for probabilities in hidden.emission.chunks_exact(m) {
            emission.extend(row(&|j| probabilities[j]));
        }
        let ones = row(&|_| 1.0);
        emission.extend(ones);
        let zeros = [0.0; W];
        let line = |i: usize, entry: &dyn Fn(usize) -> f64| if i < m { row(entry) } else { zeros };
        Padded {
            states: m,
            initial: row(&|j| hidden.initial[j]),
            from: (0..W).map(|j| line(j, &|i| t[i * m + j])).collect(),
            to: (0..W).map(|i| line(i, &|j| t[i * m + j])).collect(),
            emission,
            ones,
        }
    }

    /// The first entry of the row of a symbol.
    #[inline(always)]
    fn row(&self, symbol: u32) -> usize {
        if symbol == UNSEEN {
            self.emission.len() - W
        } else {
            symbol as usize * W
        }
    }

    /// Adds the expected counts of a sequence, times its weight.
    fn add(&self, symbols: &[u32], weight: f64, buffers: &mut Buffers, sums: &mut Sums) {
        if symbols.is_empty() {
            return;
        }
        let mut state = self.initial;
        buffers.starts.clear();
        for block in symbols.chunks(BLOCK) {
            buffers.starts.extend_from_slice(&state);
            sums.log_likelihood += weight * forward(self, block, &mut state, buffers);
        }
        let n_blocks = symbols.len().div_ceil(BLOCK);
        let mut later = None;
        for (at, block) in symbols.chunks(BLOCK).enumerate().rev() {
            if at + 1 < n_blocks {
                let mut state = [0.0; W];
                state.copy_from_slice(&buffers.starts[at * W..][..W]);
                forward(self, block, &mut state, buffers);
            }
            let first = backward(self, block, weight, later, buffers, sums);
            later = Some(first);
            if at == 0 {
                // α₁ ∘ β₁ of the first symbol.
                for (sum, x) in sums.initial.iter_mut().zip(first.posterior) {
                    *sum += weight * x;
                }
            }
        }
    }
}

/// What the backward pass of a block leaves for the block before it.
#[derive(Clone, Copy)]
struct Later<const W: usize> {
    /// O_{x} ∘ β / c of the first symbol.
    message: [f64; W],
    /// The probabilities of the states of the first symbol, given the whole sequence.
    posterior: [f64; W],
}

/// The forward pass of a block. `state` is the predicted distribution of the state of its first
/// symbol, and becomes that of the first symbol after the block. Returns the log-likelihood.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn forward<const W: usize>(
    padded: &Padded<W>,
    symbols: &[u32],
    state: &mut [f64; W],
    buffers: &mut Buffers,
) -> f64 {
    buffers.states.resize(symbols.len() * W, 0.0);
    buffers.scales.resize(symbols.len(), 0.0);
    let m = padded.states;
    let mut predicted = *state;
    let (mut log_likelihood, mut product) = (0.0, 1.0_f64);
    let rows = buffers.states.as_chunks_mut::<W>().0.iter_mut();
    for ((&symbol, out), scale) in symbols.iter().zip(rows).zip(&mut buffers.scales) {
        let emission = &padded.emission[padded.row(symbol)..][..W];
        let mut joint = [0.0; W];
        for l in 0..W {
            joint[l] = predicted[l] * emission[l];
        }
        let mut normaliser = sum(&joint);
        if normaliser < LOST {
            joint = predicted;
            normaliser = sum(&joint);
            log_likelihood += LOST.ln();
        } else {
            product *= normaliser;
            if product < SMALL {
                log_likelihood += product.ln();
                product = 1.0;
            }
        }
        let inverse = 1.0 / normaliser;
        *scale = inverse;
        joint.iter_mut().for_each(|joint| *joint *= inverse);
        *out = joint;
        let mut even = [0.0; W];
        let mut odd = [0.0; W];
        let (pairs, last) = padded.from[..m].as_chunks::<2>();
        for (j, [a, b]) in pairs.iter().enumerate() {
            for l in 0..W {
                even[l] = a[l].mul_add(joint[2 * j], even[l]);
                odd[l] = b[l].mul_add(joint[2 * j + 1], odd[l]);
            }
        }
        for a in last {
            for l in 0..W {
                even[l] = a[l].mul_add(joint[m - 1], even[l]);
            }
        }
        for l in 0..W {
            predicted[l] = even[l] + odd[l];
        }
    }
    *state = predicted;
    log_likelihood + product.ln()
}

/// The backward pass of a block after its forward pass, with its expected counts times the weight
/// of its sequence.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq+avx2+fma", "x86_64+avx2+fma"))]
fn backward<const W: usize>(
    padded: &Padded<W>,
    symbols: &[u32],
    weight: f64,
    later: Option<Later<W>>,
    buffers: &Buffers,
    sums: &mut Sums,
) -> Later<W> {
    let m = padded.states;
    let mut pairs = [[0.0; W]; W];
    let mut message = later.map(|later| later.message);
    let mut posterior = [0.0; W];
    let states = buffers.states.as_chunks::<W>().0;
    for (t, &symbol) in symbols.iter().enumerate().rev() {
        let state = &states[t];
        let mut beta = padded.ones;
        if let Some(message) = message {
            let mut even = [0.0; W];
            let mut odd = [0.0; W];
            let (rows, last) = padded.to[..m].as_chunks::<2>();
            for (i, [a, b]) in rows.iter().enumerate() {
                for l in 0..W {
                    even[l] = a[l].mul_add(message[2 * i], even[l]);
                    odd[l] = b[l].mul_add(message[2 * i + 1], odd[l]);
                }
            }
            for a in last {
                for l in 0..W {
                    even[l] = a[l].mul_add(message[m - 1], even[l]);
                }
            }
            for l in 0..W {
                beta[l] = even[l] + odd[l];
            }
            for (pairs, alpha) in pairs.iter_mut().zip(&state[..m]) {
                for l in 0..W {
                    pairs[l] = message[l].mul_add(*alpha, pairs[l]);
                }
            }
        }
        let row = padded.row(symbol);
        let emission = &padded.emission[row..][..W];
        let counts = &mut sums.emission[row..][..W];
        let scale = buffers.scales[t];
        let mut next = [0.0; W];
        for l in 0..W {
            posterior[l] = state[l] * beta[l];
            counts[l] = weight.mul_add(posterior[l], counts[l]);
            next[l] = emission[l] * beta[l] * scale;
        }
        message = Some(next);
    }
    for (sums, pairs) in sums.pairs.chunks_exact_mut(W).zip(&pairs) {
        let all = sums.iter_mut().zip(pairs);
        all.for_each(|(sum, x)| *sum = weight.mul_add(*x, *sum));
    }
    Later {
        message: message.unwrap_or([0.0; W]),
        posterior,
    }
}

/// Σ of the entries, in a tree.
#[inline(always)]
fn sum<const W: usize>(x: &[f64; W]) -> f64 {
    let mut lanes = [0.0; 4];
    for chunk in x.as_chunks::<4>().0 {
        for l in 0..4 {
            lanes[l] += chunk[l];
        }
    }
    (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
}
