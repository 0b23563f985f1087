//! Leading eigenvectors of a symmetric operator G with ‖G‖ ≈ 1, given by its products with blocks
//! of vectors.
//!
//! In: G as a function on *panels* (`n × width`, row-major, see `dense`), a first vector, the
//! number of vectors and the tolerance. Out: panels whose leading columns are orthonormal Ritz
//! vectors, in descending order of their Ritz values.
//!
//! Block Lanczos with full orthogonalisation and thick restarts (Wu & Simon, SIAM J. Matrix Anal.
//! Appl. 22, 2000). The basis consists of the `multiplied` panels V, to which G has been applied,
//! and one panel F, to which it has not. T = [V F]ᵀGV is all that is known of G: VᵀGV is the
//! Rayleigh–Ritz matrix, and ‖FᵀGVs‖ is the residual of the Ritz vector Vs. A restart replaces V by
//! its leading Ritz vectors and keeps F, so that both remain available.
//!
//! *Multiplicity.* From a block of b random vectors, a Krylov space finds min(b, multiplicity)
//! copies of an eigenvalue. If at least b copies stand above the last wanted value, there may be
//! more. The wanted vectors are then kept, and a new Krylov space, orthogonal to them, starts from
//! b new random vectors. This repeats until there are fewer copies than random vectors. If a block
//! loses rank, random vectors replace the missing directions.

use crate::math::dense::{self, NEGLIGIBLE};
use crate::math::krylov::{column_length, coupling, random_panel};
use rand_pcg::Pcg64;

/// Parameters of [`leading`].
pub(crate) struct Options {
    /// Wanted eigenvectors, at least one; see [`smallest_dimension`].
    pub wanted: usize,
    /// Vectors per panel. Wide panels make the product with one vector cheaper, but a Krylov space
    /// of the same dimension has a lower degree.
    pub width: usize,
    /// A pair has converged when ‖Gv − θv‖ ≤ `residual` · θ.
    pub residual: f64,
    /// The iteration stops after this many products of G with one vector, converged or not.
    pub max_products: usize,
    /// Numbers (f64) that the basis should fit into. If the method would like more, slowly decaying
    /// spectra take up to twice the products. The basis holds at least `wanted` and about 30 more
    /// vectors.
    pub room: usize,
}

/// The result of [`leading`].
pub(crate) struct Ritz {
    /// `⌈wanted / width⌉` panels.
    pub panels: Vec<Vec<f64>>,
    /// Number of restarts.
    pub restarts: usize,
    /// Whether every wanted pair has converged.
    pub converged: bool,
}

/// The leading Ritz vectors of G, where `apply(x, out)` sets out = Gx on panels, from the unit
/// vector `start` and random vectors.
///
/// # Panics
/// If n is below [`smallest_dimension`].
pub(crate) fn leading(
    mut apply: impl FnMut(&[f64], &mut [f64]),
    start: &[f64],
    options: &Options,
    random: &mut Pcg64,
) -> Ritz {
    let n = start.len();
    let (wanted, width) = (options.wanted, options.width);
    let (kept, largest) = dimensions(wanted, width, options.room / n);
    assert!(
        1 <= wanted && smallest_dimension(wanted, width) <= n,
        "the Krylov space does not fit into {n} dimensions"
    );

    let mut space = Krylov::new(start, width, random);
    let (mut products, mut rounds, mut restarts, mut next_check) = (0, 1, 0, 0);
    // The logarithm of the largest residual by its bound at the last check, and its k. At first no
    // residual is known, and that of a random vector is about 1.
    let begin = (-options.residual.ln(), 0);
    let mut last_check = begin;
    loop {
        space.extend(&mut apply, random);
        products += width;
        let k = space.multiplied * width;
        let is_full = k >= largest;
        let is_last = products >= options.max_products;
        if k < wanted + 4 * width || !(is_full || is_last || k >= next_check) {
            continue;
        }

        let checked = kept.min(k);
        let pairs = space.ritz(checked);
        // In later rounds the vectors after the wanted ones show whether the new Krylov space has
        // revealed its best directions.
        let guarded = if rounds > 1 {
            wanted + 2 * width
        } else {
            wanted
        };
        let excess = |i: usize| pairs.excess(i, options);
        let converged = guarded <= checked && (0..guarded).all(|i| excess(i) <= 1.0);
        let worst = (0..guarded.min(checked)).map(excess).fold(1.0, f64::max);
        if !(converged || is_last || is_full) {
            // The residuals will have converged after `rest` vectors if they go on as since the
            // last check, but they often fall faster. The next check comes half way, or later by
            // the vectors that cost as much as a check: it takes about 20 k³ operations, and a
            // vector 4 n k.
            let (before, at) = std::mem::replace(&mut last_check, (worst.ln(), k));
            let rest = (k - at) as f64 * worst.ln() / (before - worst.ln()).max(0.0);
            let cost = 5.0 * (k * k) as f64 / n as f64;
            let vectors = (rest / 2.0 + cost).min(rest).min(k as f64);
            next_check = k + (k / 32).max(vectors as usize);
            continue;
        }

        space.keep(&pairs);
        let is_complete = converged && !is_saturated(&pairs.values[..wanted], rounds * width);
        if is_complete || is_last {
            space.basis.truncate(wanted.div_ceil(width));
            return Ritz {
                panels: space.basis,
                restarts,
                converged: is_complete,
            };
        }
        restarts += 1;
        (next_check, last_check) = (0, (worst.ln(), checked));
        if converged {
            rounds += 1;
            last_check = begin;
            space.begin_anew(wanted.div_ceil(width), random);
        }
        space.couple(&pairs, !converged);
    }
}

/// The basis, and what is known of G.
struct Krylov {
    width: usize,
    /// V, then F.
    basis: Vec<Vec<f64>>,
    /// The panels of V.
    multiplied: usize,
    /// The panels of V that the last restart kept.
    coupled: usize,
    /// Column j of T, down to its last non-zero entry.
    columns: Vec<Vec<f64>>,
    /// Panels of memory.
    spare: Vec<Vec<f64>>,
}

/// Ritz pairs in descending order of their values.
struct Pairs {
    values: Vec<f64>,
    /// The vectors in the basis V: `k × count`, row-major.
    vectors: Vec<f64>,
    /// FᵀG times the vectors: `width × count`, row-major.
    coupling: Vec<f64>,
}

impl Krylov {
    /// The space of `start` and random vectors.
    fn new(start: &[f64], width: usize, random: &mut Pcg64) -> Krylov {
        let mut first = random_panel(start.len(), width, random);
        for (row, start) in first.chunks_exact_mut(width).zip(start) {
            row[0] = *start;
        }
        dense::orthonormalise::<Vec<f64>>(&[], 0..0, width, &mut first, random);
        Krylov {
            width,
            basis: vec![first],
            multiplied: 0,
            coupled: 0,
            columns: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Applies G to F, which becomes the last panel of V.
    fn extend(&mut self, mut apply: impl FnMut(&[f64], &mut [f64]), random: &mut Pcg64) {
        let (width, length) = (self.width, self.basis[0].len());
        let mut next = self.spare.pop().unwrap_or_else(|| vec![0.0; length]);
        apply(&self.basis[self.multiplied], &mut next);
        // G couples a panel to itself and to the previous one, but the first panel after a restart
        // to all that were kept.
        let near = if self.multiplied == self.coupled {
            0
        } else {
            self.multiplied - 1
        };
        let near = near..self.basis.len();
        let split = dense::orthonormalise(&self.basis, near, width, &mut next, random);
        for j in 0..width {
            let along = split.along.iter().skip(j).step_by(width);
            let rest = split.rest.iter().skip(j).step_by(width);
            self.columns.push(along.chain(rest).copied().collect());
        }
        self.basis.push(next);
        self.multiplied += 1;
    }

    /// The leading `count` Ritz pairs.
    fn ritz(&self, count: usize) -> Pairs {
        let (values, vectors) = ritz(&self.columns, count);
        let coupling = coupling(&self.columns, self.width, &vectors, count);
        Pairs {
            values,
            vectors,
            coupling,
        }
    }

    /// Replaces V by its leading Ritz vectors.
    fn keep(&mut self, pairs: &Pairs) {
        let count = pairs.values.len();
        let multiplied = &mut self.basis[..self.multiplied];
        dense::rotate(multiplied, self.width, &pairs.vectors, count);
        let unused = count / self.width..self.multiplied;
        self.spare.extend(self.basis.drain(unused));
        self.multiplied = count / self.width;
    }

    /// Keeps the first panels of V, and replaces F by random vectors. The components of the Ritz
    /// vectors along F are below the tolerance and may be dropped.
    fn begin_anew(&mut self, panels: usize, random: &mut Pcg64) {
        self.multiplied = panels;
        let length = self.basis[0].len();
        self.basis.truncate(panels);
        let mut fresh = random_panel(length / self.width, self.width, random);
        dense::orthonormalise(&self.basis, 0..panels, self.width, &mut fresh, random);
        self.basis.push(fresh);
    }

    /// Sets T for a basis of Ritz vectors, which are coupled to F or not.
    fn couple(&mut self, pairs: &Pairs, is_coupled: bool) {
        let k = self.multiplied * self.width;
        let count = pairs.values.len();
        self.coupled = self.multiplied;
        self.columns = (0..k)
            .map(|i| {
                let mut column = vec![0.0; k];
                column[i] = pairs.values[i];
                if is_coupled {
                    column.extend(pairs.coupling.iter().skip(i).step_by(count));
                }
                column
            })
            .collect();
    }
}

impl Pairs {
    /// The residual of pair i by its bound.
    fn excess(&self, i: usize, options: &Options) -> f64 {
        let bound = if i < options.wanted {
            options.residual
        } else {
            1e-4
        };
        let residual = column_length(&self.coupling, self.values.len(), i);
        residual / (bound * self.values[i]).max(NEGLIGIBLE)
    }
}

/// The number of vectors that survive a restart, some more than wanted so that the relevant gap
/// lies behind them, and the basis size that triggers a restart.
fn dimensions(wanted: usize, width: usize, room: usize) -> (usize, usize) {
    let kept = (wanted + 18).next_multiple_of(width);
    let largest = kept + 12 * width + wanted / 2;
    if largest.next_multiple_of(width) + width <= room {
        return (kept, largest);
    }
    let kept = (wanted + 2 * width).next_multiple_of(width);
    let fitting = room.saturating_sub(width) / width * width;
    (kept, fitting.clamp(kept + 4 * width, largest))
}

/// The largest number of vectors of the basis of `leading`.
pub(crate) fn largest_dimension(wanted: usize, width: usize, room: usize) -> usize {
    dimensions(wanted, width, room).1.next_multiple_of(width) + width
}

/// The smallest n for which `leading` has room for its largest basis. Below it, and generally below
/// a few hundred, a dense method is better.
pub(crate) fn smallest_dimension(wanted: usize, width: usize) -> usize {
    2 * wanted + 24 * width
}

/// The leading eigenpairs of VᵀGV (`k × k`), given by the columns of T: `count` values, descending,
/// and vectors (`k × count`, row-major).
fn ritz(columns: &[Vec<f64>], count: usize) -> (Vec<f64>, Vec<f64>) {
    let k = columns.len();
    // The upper part was computed against the basis; the lower part follows by symmetry.
    let upper = |i: usize, j: usize| columns[j][i];
    let t: Vec<f64> = (0..k * k)
        .map(|at| upper((at / k).min(at % k), (at / k).max(at % k)))
        .collect();
    dense::leading_eigen(&t, k, count)
}

/// Whether at least `copies` equal values stand above the last one.
fn is_saturated(values: &[f64], copies: usize) -> bool {
    let last = values[values.len() - 1];
    let are_close = |a: f64, b: f64| a - b <= 1e-6 * a + NEGLIGIBLE;
    values
        .windows(copies)
        .any(|group| are_close(group[0], group[copies - 1]) && !are_close(group[0], last))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::close;
    use rand::SeedableRng;

    /// Ritz vectors of a diagonal operator; returns the Rayleigh quotients of the wanted ones.
    fn diagonal(
        values: &[f64],
        wanted: usize,
        width: usize,
        max_products: usize,
        room: usize,
    ) -> (Vec<f64>, Ritz) {
        let n = values.len();
        let apply = |x: &[f64], out: &mut [f64]| {
            for (at, (out, x)) in out.iter_mut().zip(x).enumerate() {
                *out = values[at / width] * x;
            }
        };
        let start = vec![1.0 / (n as f64).sqrt(); n];
        let options = Options {
            wanted,
            width,
            residual: 1e-8,
            max_products,
            room,
        };
        let ritz = leading(apply, &start, &options, &mut Pcg64::seed_from_u64(1));
        let quotients = (0..wanted)
            .map(|i| {
                let v = ritz.panels[i / width].iter().skip(i % width).step_by(width);
                v.zip(values).map(|(v, g)| v * v * g).sum()
            })
            .collect();
        (quotients, ritz)
    }

    #[test]
    fn a_geometric_spectrum_converges_with_restarts() {
        let values: Vec<f64> = (0..3000).map(|i| 0.998f64.powi(i)).collect();
        for width in [1, 2, 4, 8] {
            let (found, ritz) = diagonal(&values, 7, width, 100_000, usize::MAX);
            close(&found, &values[..7], 1e-12);
            assert!(ritz.converged && ritz.restarts > 0);
        }
    }

    #[test]
    fn a_small_room_keeps_the_accuracy() {
        assert_eq!(dimensions(10, 4, usize::MAX), (28, 81));
        assert_eq!(dimensions(10, 4, 41), (20, 36));
        assert_eq!(dimensions(10, 2, 42), (14, 40));
        assert_eq!(dimensions(10, 4, 0), (20, 36));
        let values: Vec<f64> = (0..3000).map(|i| 0.998f64.powi(i)).collect();
        for width in [2, 4] {
            let (found, ritz) = diagonal(&values, 7, width, 100_000, 0);
            close(&found, &values[..7], 1e-12);
            assert!(ritz.converged);
        }
    }

    #[test]
    fn more_copies_than_the_block_width_are_found() {
        // 1 (13 times), 0.9 (6 times), then a tail from 0.7 down.
        let mut values = vec![1.0; 13];
        values.extend([0.9; 6]);
        values.extend((0..500).map(|i| 0.7 - i as f64 / 1000.0));
        for (width, room) in [(4, usize::MAX), (4, 0), (2, usize::MAX), (2, 0)] {
            let (found, ritz) = diagonal(&values, 22, width, 100_000, room);
            close(&found, &values[..22], 1e-12);
            assert!(ritz.converged);
        }
    }

    #[test]
    fn operators_of_low_rank_converge() {
        for (rank, width) in [(0, 2), (1, 2), (5, 2), (0, 4), (1, 4), (2, 4), (5, 4)] {
            let values: Vec<f64> = (0..400).map(|i| if i < rank { 0.5 } else { 0.0 }).collect();
            let (found, ritz) = diagonal(&values, 8, width, 100_000, usize::MAX);
            close(&found, &values[..8], 1e-12);
            assert!(ritz.converged);
        }
        let (found, _) = diagonal(&[1.0; 400], 10, 4, 100_000, usize::MAX);
        close(&found, &[1.0; 10], 1e-12);
    }

    #[test]
    fn the_product_limit_stops_it_unconverged() {
        let values: Vec<f64> = (0..3000).map(|i| 0.9999f64.powi(i)).collect();
        let (_, ritz) = diagonal(&values, 7, 4, 40, usize::MAX);
        assert!(!ritz.converged);
        assert_eq!(ritz.panels.len(), 2);
    }
}
