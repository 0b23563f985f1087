//! Heat-kernel embeddings of the states of a chain, with its counts as the kernel.
//!
//! In: counts N (m targets × n sources). Out: eigenvectors or sketches of the states.
//!
//! - States of one kind: A = D^{-1/2} (N + Nᵀ) D^{-1/2}, where D has the row sums of N + Nᵀ. States
//!   are the sources, then the targets that are no sources.
//! - Any counts: A = P̃ᵀP̃ of the sources, with P̃ = D_q^{-1/2} P D_p^{1/2} (coherence (5)).
//!
//! The leading eigenvector is √(D/ΣD), or √p. Rows of an embedding are those of √(ΣD/D) u, so equal
//! states are equal points.

use crate::evidence::counts::Counts;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::methods::heat_kernel::diffusion_map;
use crate::methods::heat_kernel::diffusion_map::Map;
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::heat_kernel::params::{DiffusionMap, HeatSketch};
use crate::methods::heat_kernel::sketch;
use crate::methods::heat_kernel::sketch::{Energy, Snapshot};
use crate::methods::spectral::truncated_svd::gather;

/// The counts of a chain as a symmetric operator on its states.
#[derive(Debug)]
pub struct Chain<'a> {
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
    /// The symmetrised counts if the states are of one kind, else P̃ᵀP̃.
    pub fn new(passes: &'a Passes<'a>, counts: &'a Counts<'_>) -> Self {
        let shards: &Shards = &counts.shards;
        if counts.source_of_target.is_empty() {
            return Chain {
                passes,
                shards,
                state_of_target: None,
                totals: shards.source_total.clone(),
                total: shards.total,
            };
        }
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
    pub fn sources(&self) -> usize {
        self.shards.n_sources
    }

    /// The rows of the sources, √(ΣD/D) times those of `rows` (n × columns).
    pub fn rows(&self, rows: &[f64], columns: usize) -> Vec<f64> {
        let own = rows.chunks_exact(columns.max(1)).zip(&self.totals);
        own.take(self.sources())
            .flat_map(|(row, total)| {
                let scale = (self.total / total).sqrt();
                row.iter().map(move |x| x * scale)
            })
            .collect()
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

/// A diffusion map of the sources, n × (dimension · times), row-major, and its spectrum.
pub fn diffusion_map(chain: &Chain<'_>, params: &DiffusionMap, seed: u64) -> (Vec<f64>, Map) {
    chain.passes.step("decompose");
    let map = diffusion_map::of(chain, params.dimension, None, params.tolerance, seed);
    let dimension = map.spectrum.len() - 1;
    let times = params.time.all();
    let mut rows = Vec::with_capacity(chain.n() * dimension * times.len());
    for row in map.vectors.chunks_exact(dimension.max(1)) {
        for t in &times {
            let scaled = row.iter().zip(&map.spectrum[1..]);
            rows.extend(scaled.map(|(u, level)| u * diffusion_map::power(level.value, *t)));
        }
    }
    (chain.rows(&rows, dimension * times.len()), map)
}

/// A sketch of the sources, one snapshot of n × dimension per power, and its energies. A state is
/// named by its number.
pub fn heat_sketch(
    chain: &Chain<'_>,
    params: &HeatSketch,
    seed: u64,
) -> (Vec<Snapshot>, Vec<Energy>) {
    chain.passes.step("sketch");
    let names: Vec<u64> = (0..chain.n() as u64).collect();
    let (columns, distribution) = (params.dimension, params.distribution);
    let powers = params.power.all();
    let mut snapshots = sketch::sweep(chain, &names, &powers, columns, distribution, seed);
    let borrowed: Vec<&Snapshot> = snapshots.iter().collect();
    let energies = sketch::energies(chain, &names, &borrowed, columns, distribution, seed);
    for snapshot in &mut snapshots {
        snapshot.rows = chain.rows(&snapshot.rows, columns);
    }
    (snapshots, energies)
}
