//! Heat-kernel embeddings of the states of a chain, with its counts as the kernel.
//!
//! In: counts N (m targets × n sources). Out: eigenvectors or sketches of the states.
//!
//! - [`ChainKernel::Symmetrised`]: A = D^{-1/2} (N + Nᵀ) D^{-1/2}, where D has the row sums of
//!   N + Nᵀ. States are the sources, then the targets that are no sources.
//! - [`ChainKernel::TwoSteps`]: A = P̃ᵀP̃ of the sources, with P̃ = D_q^{-1/2} P D_p^{1/2}
//!   (coherence (5)): one step to the targets and one step back.
//!
//! The leading eigenvector is √(D/ΣD), or √p. Rows of an embedding are those of √(ΣD/D) u, so equal
//! states are equal points.

use crate::evidence::counts::shards::Shards;
use crate::evidence::counts::{Counts, Size};
use crate::evidence::pass::Passes;
use crate::methods::columns::Axis;
use crate::methods::heat_kernel::diffusion_map::{self, Level};
use crate::methods::heat_kernel::eigen;
use crate::methods::heat_kernel::fit::vanished;
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::heat_kernel::params::{ChainKernel, ChainMap, ChainSketch};
use crate::methods::heat_kernel::sketch::{self, Energy};
use crate::methods::heat_kernel::warning::Warning;
use crate::methods::spectral::truncated_svd::gather;
use serde::{Deserialize, Serialize};

/// An embedding of the states of a chain.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChainEmbedding {
    /// The number of states.
    pub states: usize,
    /// Coordinates per time or power.
    pub dimension: usize,
    /// The times of a diffusion map, or the powers of a sketch. A row has `dimension` coordinates
    /// for each of them, one after another.
    pub times: Vec<f64>,
    /// One row per source.
    pub sources: Vec<f64>,
    /// One row per target, if states are of one kind.
    pub targets: Option<Vec<f64>>,
    /// The eigenvalues of a diffusion map, the first of which is 1.
    pub spectrum: Vec<Level>,
    /// The energies of a sketch.
    pub energies: Vec<Energy>,
    /// Products of the kernel with one vector.
    pub products: usize,
    /// What a user should know.
    pub warnings: Vec<Warning>,
}

impl ChainEmbedding {
    /// The coordinates of a state at the time or power with index `part`.
    pub(crate) fn row(&self, axis: Axis, part: usize, state: usize) -> Option<&[f64]> {
        let rows = match axis {
            Axis::Sources => &self.sources,
            Axis::Targets => self.targets.as_ref()?,
        };
        let first = (state * self.times.len() + part) * self.dimension;
        Some(&rows[first..first + self.dimension])
    }
}

/// The counts of a chain as a symmetric operator on its states.
#[derive(Debug)]
pub(crate) struct Chain<'a> {
    passes: &'a Passes<'a>,
    shards: &'a Shards,
    /// The state of every target, if states are of one kind.
    state_of_target: Option<Vec<u32>>,
    /// D, or the totals of the sources.
    totals: Vec<f64>,
    /// ΣD.
    total: f64,
}

impl<'a> Chain<'a> {
    /// The operator of some counts.
    ///
    /// # Panics
    /// If the kernel is that of states of one kind, and the counts are not of such states.
    pub(crate) fn new(passes: &'a Passes<'a>, counts: &'a Counts<'_>, kernel: ChainKernel) -> Self {
        let shards: &Shards = &counts.shards;
        if kernel == ChainKernel::TwoSteps {
            return Chain {
                passes,
                shards,
                state_of_target: None,
                totals: shards.source_total.clone(),
                total: shards.total,
            };
        }
        let of_targets = counts.source_of_target.len();
        assert_eq!(of_targets, shards.n_targets, "states of one kind");
        let mut totals = shards.source_total.clone();
        let mut state_of_target = Vec::with_capacity(shards.n_targets);
        for (source, total) in counts.source_of_target.iter().zip(&shards.target_total) {
            let state = source.unwrap_or(totals.len() as u32);
            if source.is_none() {
                totals.push(0.0);
            }
            totals[state as usize] += total;
            state_of_target.push(state);
        }
        Chain {
            passes,
            shards,
            state_of_target: Some(state_of_target),
            totals,
            total: 2.0 * shards.total,
        }
    }

    /// The number of sources, which are the first states.
    pub(crate) fn sources(&self) -> usize {
        self.shards.n_sources
    }

    /// √(ΣD/D) times `rows` (states × columns): the rows of the sources, and those of the targets
    /// if states are of one kind.
    fn rows(&self, rows: &[f64], columns: usize) -> (Vec<f64>, Option<Vec<f64>>) {
        let row = |state: usize| {
            let scale = (self.total / self.totals[state]).sqrt();
            let own = &rows[state * columns..][..columns];
            own.iter().map(move |x| x * scale)
        };
        let targets = self.state_of_target.as_ref();
        let targets = targets.map(|states| states.iter().flat_map(|&s| row(s as usize)).collect());
        ((0..self.sources()).flat_map(row).collect(), targets)
    }
}

impl Operator for Chain<'_> {
    fn n(&self) -> usize {
        self.totals.len()
    }

    fn apply(&self, x: &[f64], width: usize, out: &mut [f64]) {
        let (n, m) = (self.shards.n_sources, self.shards.n_targets);
        let roots: Vec<f64> = self.totals.iter().map(|t| 1.0 / t.sqrt()).collect();
        let rows = x.chunks_exact(width).zip(&roots);
        let scaled: Vec<f64> = rows
            .flat_map(|(x, root)| x.iter().map(move |x| x * root))
            .collect();
        let (sources, targets) = (self.shards.sources(), self.shards.targets());
        let mut to_targets = vec![0.0; m * width];
        let of_sources = &scaled[..n * width];
        match &self.state_of_target {
            None => {
                let inverse: Vec<f64> = self.shards.target_total.iter().map(|t| 1.0 / t).collect();
                gather(
                    self.passes,
                    targets,
                    of_sources,
                    width,
                    &mut to_targets,
                    &inverse,
                );
                gather(self.passes, sources, &to_targets, width, out, &roots);
            }
            Some(state_of_target) => {
                gather(
                    self.passes,
                    targets,
                    of_sources,
                    width,
                    &mut to_targets,
                    &[],
                );
                let row = |&state: &u32| &scaled[state as usize * width..][..width];
                let of_targets: Vec<f64> = state_of_target.iter().flat_map(row).copied().collect();
                out[n * width..].fill(0.0);
                gather(
                    self.passes,
                    sources,
                    &of_targets,
                    width,
                    &mut out[..n * width],
                    &[],
                );
                for (state, row) in state_of_target.iter().zip(to_targets.chunks_exact(width)) {
                    let out = &mut out[*state as usize * width..][..width];
                    out.iter_mut().zip(row).for_each(|(out, x)| *out += x);
                }
                for (out, root) in out.chunks_exact_mut(width).zip(&roots) {
                    out.iter_mut().for_each(|out| *out *= root);
                }
            }
        }
    }

    fn leading(&self) -> Vec<f64> {
        self.totals
            .iter()
            .map(|t| (t / self.total).sqrt())
            .collect()
    }
}

/// Bytes of dense numbers that [`diffusion_map`] accesses at random.
pub(crate) fn map_bytes(params: &ChainMap, size: Size) -> u64 {
    let states = size.sources.saturating_add(size.targets);
    let rows = params.dimension * params.times.len();
    let numbers = eigen::vectors(states as usize, params.dimension + 2) + rows;
    states.saturating_mul(8 * numbers as u64)
}

/// Bytes of dense numbers that [`heat_sketch`] accesses at random.
pub(crate) fn sketch_bytes(params: &ChainSketch, size: Size) -> u64 {
    // Five blocks of a product, and the snapshots with those of the other draws.
    let numbers = 5 * sketch::WIDTH + (2 * params.dimension + 8) * params.powers.len();
    let states = size.sources.saturating_add(size.targets);
    states.saturating_mul(8 * numbers as u64)
}

/// A diffusion map. It depends on the counts, the parameters and the seed alone.
pub(crate) fn diffusion_map(
    passes: &Passes<'_>,
    counts: &Counts<'_>,
    params: &ChainMap,
    seed: u64,
) -> ChainEmbedding {
    passes.step("decompose");
    let chain = &Chain::new(passes, counts, params.kernel);
    let map = diffusion_map::of(chain, params.dimension, None, params.tolerance, seed);
    let dimension = map.spectrum.len() - 1;
    let times = &params.times;
    let mut rows = Vec::with_capacity(chain.n() * dimension * times.len());
    for row in map.vectors.chunks_exact(dimension.max(1)) {
        for t in times {
            let scaled = row.iter().zip(&map.spectrum[1..]);
            rows.extend(scaled.map(|(u, level)| u * diffusion_map::power(level.value, *t)));
        }
    }
    let mut warnings = map.warnings;
    warnings.extend(vanished(&rows, dimension, times));
    let (sources, targets) = chain.rows(&rows, dimension * times.len());
    ChainEmbedding {
        states: chain.n(),
        dimension,
        times: times.clone(),
        sources,
        targets,
        spectrum: map.spectrum,
        energies: Vec::new(),
        products: map.products,
        warnings,
    }
}

/// A sketch. It depends on the counts, the parameters and the seed alone: a state is named by its
/// number.
pub(crate) fn heat_sketch(
    passes: &Passes<'_>,
    counts: &Counts<'_>,
    params: &ChainSketch,
    seed: u64,
) -> ChainEmbedding {
    passes.step("sketch");
    let chain = &Chain::new(passes, counts, params.kernel);
    let names: Vec<u64> = (0..chain.n() as u64).collect();
    let (columns, distribution) = (params.dimension, params.distribution);
    let snapshots = sketch::sweep(chain, &names, &params.powers, columns, distribution, seed);
    let borrowed: Vec<&sketch::Snapshot> = snapshots.iter().collect();
    let energies = sketch::energies(chain, 1.0, &names, &borrowed, columns, distribution, seed);
    let rows = sketch::joined(&borrowed, columns);
    let times: Vec<f64> = params.powers.iter().map(|p| *p as f64).collect();
    let warnings = vanished(&rows, columns, &times);
    let (sources, targets) = chain.rows(&rows, columns * borrowed.len());
    ChainEmbedding {
        states: chain.n(),
        dimension: columns,
        times,
        sources,
        targets,
        spectrum: Vec::new(),
        energies,
        products: params.powers.last().map_or(0, |last| last * columns),
        warnings: warnings.into_iter().collect(),
    }
}
