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

use crate::math::dense;
use crate::math::dense::NEGLIGIBLE;
use rand::RngExt;
use rand_pcg::Pcg64;

/// Parameters of [`leading`].
pub struct Options {
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
pub struct Ritz {
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
pub fn leading(
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

    let mut first = random_panel(n, width, random);
    for (row, start) in first.chunks_exact_mut(width).zip(start) {
        row[0] = *start;
    }
    dense::orthonormalise::<Vec<f64>>(&[], 0..0, width, &mut first, random);
    let mut basis = vec![first];
    let (mut multiplied, mut coupled) = (0, 0);
    // Column j of T, down to its last non-zero entry.
    let mut columns: Vec<Vec<f64>> = Vec::new();
    let mut spare: Vec<Vec<f64>> = Vec::new();
    let (mut products, mut rounds, mut restarts, mut next_check) = (0, 1, 0, 0);
    // The logarithm of the largest residual by its bound at the last check, and its k. At first no
    // residual is known, and that of a random vector is about 1.
    let begin = (-options.residual.ln(), 0);
    let mut last_check = begin;
    loop {
        let mut next = spare.pop().unwrap_or_else(|| vec![0.0; n * width]);
        apply(&basis[multiplied], &mut next);
        products += width;
        // G couples a panel to itself and to the previous one, but the first panel after a restart
        // to all that were kept.
        let near = if multiplied == coupled {
            0
        } else {
            multiplied - 1
        };
        let near = near..basis.len();
        let split = dense::orthonormalise(&basis, near, width, &mut next, random);
        for j in 0..width {
            let along = split.along.iter().skip(j).step_by(width);
            let rest = split.rest.iter().skip(j).step_by(width);
            columns.push(along.chain(rest).copied().collect());
        }
        basis.push(next);
        multiplied += 1;

        let k = multiplied * width;
        let is_full = k >= largest;
        let is_last = products >= options.max_products;
        if k < wanted + 4 * width || !(is_full || is_last || k >= next_check) {
            continue;
        }

        let checked = kept.min(k);
        let (values, vectors) = ritz(&columns, k, checked);
        let coupling = coupling(&columns, k, width, &vectors, checked);
        let residual = |i: usize| {
            let squares = coupling.iter().skip(i).step_by(checked).map(|c| c * c);
            squares.sum::<f64>().sqrt()
        };
        // In later rounds the vectors after the wanted ones show whether the new Krylov space has
        // revealed its best directions.
        let guarded = if rounds > 1 {
            wanted + 2 * width
        } else {
            wanted
        };
        // Residuals by their bounds.
        let excess = |i: usize| {
            let bound = if i < wanted { options.residual } else { 1e-4 };
            residual(i) / (bound * values[i]).max(NEGLIGIBLE)
        };
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

        dense::rotate(&mut basis[..multiplied], width, &vectors, checked);
        spare.extend(basis.drain(checked / width..multiplied));
        multiplied = checked / width;
        let is_complete = converged && !is_saturated(&values[..wanted], rounds * width);
        if is_complete || is_last {
            basis.truncate(wanted.div_ceil(width));
            return Ritz {
                panels: basis,
                restarts,
                converged: is_complete,
            };
        }
        restarts += 1;
        (next_check, last_check) = (0, (worst.ln(), checked));
        if converged {
            // The remaining components along F are below the tolerance and may be dropped.
            rounds += 1;
            last_check = begin;
            multiplied = wanted.div_ceil(width);
            basis.truncate(multiplied);
            let mut fresh = random_panel(n, width, random);
            dense::orthonormalise(&basis, 0..multiplied, width, &mut fresh, random);
            basis.push(fresh);
        }
        coupled = multiplied;
        let is_coupled = !converged;
        columns = (0..multiplied * width)
            .map(|i| {
                let mut column = vec![0.0; multiplied * width];
                column[i] = values[i];
                if is_coupled {
                    column.extend(coupling.iter().skip(i).step_by(checked));
                }
                column
            })
            .collect();
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
pub fn largest_dimension(wanted: usize, width: usize, room: usize) -> usize {
    dimensions(wanted, width, room).1.next_multiple_of(width) + width
}

/// The smallest n for which `leading` has room for its largest basis. Below it, and generally below
/// a few hundred, a dense method is better.
pub fn smallest_dimension(wanted: usize, width: usize) -> usize {
    2 * wanted + 24 * width
}

fn random_panel(n: usize, width: usize, random: &mut Pcg64) -> Vec<f64> {
    (0..n * width)
        .map(|_| random.random_range(-1.0..1.0))
        .collect()
}

/// The leading eigenpairs of VᵀGV (`k × k`): `count` values, descending, and vectors (`k × count`,
/// row-major).
fn ritz(columns: &[Vec<f64>], k: usize, count: usize) -> (Vec<f64>, Vec<f64>) {
    // The upper part was computed against the basis; the lower part follows by symmetry.
    let upper = |i: usize, j: usize| columns[j][i];
    let t: Vec<f64> = (0..k * k)
        .map(|at| upper((at / k).min(at % k), (at / k).max(at % k)))
        .collect();
    dense::leading_eigen(&t, k, count)
}

/// FᵀGVS (`width × count`, row-major) for the Ritz vectors VS.
fn coupling(columns: &[Vec<f64>], k: usize, width: usize, s: &[f64], count: usize) -> Vec<f64> {
    let mut out = vec![0.0; width * count];
    for (column, s) in columns.iter().zip(s.chunks_exact(count)) {
        for (out, t) in out.chunks_exact_mut(count).zip(column.iter().skip(k)) {
            for (out, s) in out.iter_mut().zip(s) {
                *out += t * s;
            }
        }
    }
    out
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

    fn assert_close(found: &[f64], expected: &[f64]) {
        for (f, e) in found.iter().zip(expected) {
            assert!((f - e).abs() <= 1e-12, "{found:?} for {expected:?}");
        }
    }

    #[test]
    fn a_geometric_spectrum_converges_with_restarts() {
        let values: Vec<f64> = (0..3000).map(|i| 0.998f64.powi(i)).collect();
        for width in [1, 2, 4, 8] {
            let (found, ritz) = diagonal(&values, 7, width, 100_000, usize::MAX);
            assert_close(&found, &values[..7]);
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
            assert_close(&found, &values[..7]);
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
            assert_close(&found, &values[..22]);
            assert!(ritz.converged);
        }
    }

    #[test]
    fn operators_of_low_rank_converge() {
        for (rank, width) in [(0, 2), (1, 2), (5, 2), (0, 4), (1, 4), (2, 4), (5, 4)] {
            let values: Vec<f64> = (0..400).map(|i| if i < rank { 0.5 } else { 0.0 }).collect();
            let (found, ritz) = diagonal(&values, 8, width, 100_000, usize::MAX);
            assert_close(&found, &values[..8]);
            assert!(ritz.converged);
        }
        let (found, _) = diagonal(&[1.0; 400], 10, 4, 100_000, usize::MAX);
        assert_close(&found, &[1.0; 10]);
    }

    #[test]
    fn the_product_limit_stops_it_unconverged() {
        let values: Vec<f64> = (0..3000).map(|i| 0.9999f64.powi(i)).collect();
        let (_, ritz) = diagonal(&values, 7, 4, 40, usize::MAX);
        assert!(!ritz.converged);
        assert_eq!(ritz.panels.len(), 2);
    }
}
