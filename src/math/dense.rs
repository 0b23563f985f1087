//! Products of tall and narrow dense blocks for block Krylov methods, with a fixed order of
//! summation.
//!
//! In: a basis of `K = panels · width` columns over `n` rows, stored as *panels*, each an `n ×
//! width` row-major slice; small matrices are row-major slices. Out: the same. A width is 1, 2, 4,
//! 8 or 16, so that the compiler unrolls and vectorises the loops.
//!
//! Rows are cut into fixed blocks and block sums are added in order, so the results do not depend
//! on the number of threads.

use crate::math::matrix::{accumulate, identity, product, row_major};
use faer::dyn_stack::{MemBuffer, MemStack};
use faer::linalg::{evd, svd};
use faer::{Col, Mat, Par};
use multiversion::multiversion;
use rand::{Rng, RngExt};
use rayon::prelude::*;
use std::ops::Range;

/// Rows that are summed one after another. The number is fixed because it determines the rounding.
/// A block of a panel fits into the L2 cache.
const ROWS: usize = 1024;

/// For an operator of norm one, a shorter direction is a rounding error.
pub(crate) const NEGLIGIBLE: f64 = 1e-13;

/// Unit vectors with a product of at most this are treated as orthogonal: a subtraction would leave
/// no less than its own rounding error. Two thirds of the panels of a Krylov basis are orthogonal
/// and need to be read only once.
const ORTHOGONAL: f64 = 1e-14;

/// A Gram–Schmidt pass is the last one if it keeps at least this share of every squared length. A
/// much smaller share does not work: the part that one pass leaves along the basis grows with the
/// loss of length, and it would grow exponentially from panel to panel.
const ENOUGH: f64 = 0.5;

/// `VᵀW` (`K × width`), for a basis `panels` = V and one panel `w` = W.
pub(crate) fn project<P: AsRef<[f64]> + Sync>(panels: &[P], width: usize, w: &[f64]) -> Vec<f64> {
    let tile = width * width;
    let parts: Vec<Vec<f64>> = w
        .par_chunks(ROWS * width)
        .enumerate()
        .map(|(block, w)| {
            let start = block * ROWS * width;
            let rows = start..start + w.len();
            let mut out = vec![0.0; panels.len() * tile];
            for (v, out) in panels.chunks(2).zip(out.chunks_mut(2 * tile)) {
                match v {
                    [a, b] => inner_pair(
                        width,
                        &a.as_ref()[rows.clone()],
                        &b.as_ref()[rows.clone()],
                        w,
                        out,
                    ),
                    [a] => inner(width, &a.as_ref()[rows.clone()], w, out),
                    _ => unreachable!("chunks of two"),
                }
            }
            out
        })
        .collect();
    let mut sum = vec![0.0; panels.len() * tile];
    for part in parts {
        for (s, p) in sum.iter_mut().zip(part) {
            *s += p;
        }
    }
    sum
}

/// W ← W − VC for `coefficients` = C (`K × width`).
pub(crate) fn subtract<P: AsRef<[f64]> + Sync>(
    panels: &[P],
    width: usize,
    coefficients: &[f64],
    w: &mut [f64],
) {
    assert_eq!(coefficients.len(), panels.len() * width * width);
    let negative: Vec<f64> = coefficients.iter().map(|c| -c).collect();
    // From the last rows to the first: those that `project` read last are still in the cache.
    w.par_chunks_mut(ROWS * width)
        .enumerate()
        .rev()
        .for_each(|(block, w)| {
            let start = block * ROWS * width;
            let rows = start..start + w.len();
            let coefficients = negative.chunks(2 * width * width);
            for (v, c) in panels.chunks(2).zip(coefficients) {
                match v {
                    [a, b] => add_products(
                        width,
                        &a.as_ref()[rows.clone()],
                        &b.as_ref()[rows.clone()],
                        c,
                        w,
                    ),
                    [a] => add_product(width, &a.as_ref()[rows.clone()], c, w),
                    _ => unreachable!("chunks of two"),
                }
            }
        });
}

/// Like `subtract`, but skips the panels to which w is orthogonal already and sets their
/// coefficients to zero. The columns of w must have at least length one.
fn subtract_large<P: AsRef<[f64]> + Sync>(
    panels: &[P],
    width: usize,
    coefficients: &mut [f64],
    w: &mut [f64],
) {
    let mut large: Vec<&[f64]> = Vec::with_capacity(panels.len());
    let mut tiles = Vec::with_capacity(coefficients.len());
    for (v, c) in panels
        .iter()
        .zip(coefficients.chunks_exact_mut(width * width))
    {
        if c.iter().any(|c| c.abs() > ORTHOGONAL) {
            large.push(v.as_ref());
            tiles.extend_from_slice(c);
        } else {
            c.fill(0.0);
        }
    }
    subtract(&large, width, &tiles, w);
}

/// V ← VS in place, for `s` = S (`K × kept`, row-major, `kept` a multiple of the width). The first
/// panels become the product; the others are unchanged.
pub(crate) fn rotate(panels: &mut [Vec<f64>], width: usize, s: &[f64], kept: usize) {
    let k = panels.len() * width;
    assert!(s.len() == k * kept && kept.is_multiple_of(width) && kept <= k);
    let tile = width * width;
    let tiles_out = kept / width;
    // The coefficients as width × width tiles, for each output panel and each input panel.
    let tiles: Vec<f64> = (0..tiles_out * panels.len() * tile)
        .map(|at| {
            let (out, rest) = (at / (panels.len() * tile), at % (panels.len() * tile));
            let (row, column) = (rest / width, rest % width);
            s[row * kept + out * width + column]
        })
        .collect();
    let n_panels = panels.len();
    let rows = panels[0].len();
    let mut blocks: Vec<Vec<&mut [f64]>> = (0..rows.div_ceil(ROWS * width))
        .map(|_| Vec::with_capacity(n_panels))
        .collect();
    for panel in panels.iter_mut() {
        for (block, rows) in blocks.iter_mut().zip(panel.chunks_mut(ROWS * width)) {
            block.push(rows);
        }
    }
    blocks.par_iter_mut().for_each_init(Vec::new, |out, block| {
        out.clear();
        out.resize(tiles_out * block[0].len(), 0.0);
        let n = block[0].len();
        for (out, tiles) in out
            .chunks_exact_mut(n)
            .zip(tiles.chunks_exact(n_panels * tile))
        {
            for (v, c) in block.iter().zip(tiles.chunks_exact(tile)) {
                add_product(width, v, c, out);
            }
        }
        for (v, out) in block.iter_mut().zip(out.chunks_exact(n)) {
            v.copy_from_slice(out);
        }
    });
}

/// The decomposition of a panel by [`orthonormalise`]: panel = `basis · along + new panel · rest`.
pub(crate) struct Split {
    /// `K × width`, row-major.
    pub along: Vec<f64>,
    /// `width × width`, row-major; a zero row for every direction that was replaced by a random
    /// one.
    pub rest: Vec<f64>,
}

/// Makes the columns of `w` orthonormal to `panels` and to each other, up to rounding. Directions
/// shorter than [`NEGLIGIBLE`] are replaced by random ones.
///
/// Classical Gram–Schmidt against the basis, then the scaled Gram matrix of the block (Stathopoulos
/// & Wu, SIAM J. Sci. Comput. 23, 2002), repeated until a pass changes nothing beyond rounding.
/// `near` are the panels that w is known to have components in. The first pass uses only these,
/// which saves half of the memory traffic.
///
/// # Panics
/// Unless `K + width ≤ n`.
pub(crate) fn orthonormalise<P: AsRef<[f64]> + Sync>(
    panels: &[P],
    near: Range<usize>,
    width: usize,
    w: &mut [f64],
    random: &mut impl Rng,
) -> Split {
    let k = panels.len() * width;
    assert!(
        (k + width) * width <= w.len(),
        "the basis and the block do not fit into the dimension"
    );
    let mut along = vec![0.0; k * width];
    let mut rest = identity(width);
    let all = 0..panels.len();
    let mut pass = near;
    // Two passes are usual and four the largest number seen; the cap only guarantees termination.
    for turn in 0..10 {
        let some = &panels[pass.clone()];
        let mut c = project(some, width, w);
        if turn == 0 {
            subtract(some, width, &c, w);
        } else {
            // From the second pass on, the columns have at least length one.
            subtract_large(some, width, &mut c, w);
        }
        let along = &mut along[pass.start * width * width..][..c.len()];
        accumulate(along, &c, &rest, width);

        let gram = project(&[&*w], width, w);
        let squares: Vec<f64> = (0..width).map(|i| gram[i * width + i]).collect();
        let removed = |i: usize| c.iter().skip(i).step_by(width).map(|c| c * c).sum::<f64>();
        let is_long = (0..width).all(|i| squares[i] >= ENOUGH * (squares[i] + removed(i)));
        let whitening = Whitening::of(&gram, &squares);
        // W ← W T and rest ← T⁻¹ rest.
        multiply_right(width, w, &whitening.t);
        rest = product(&whitening.back, &rest, width);
        for &column in &whitening.drawn {
            for row in w.chunks_exact_mut(width) {
                row[column] = random.random_range(-1.0..1.0);
            }
        }
        if pass == all && whitening.drawn.is_empty() && is_long && whitening.least >= ENOUGH {
            break;
        }
        pass = all.clone();
    }
    Split { along, rest }
}

/// T = D⁻¹ Q Λ^{-1/2} for a Gram matrix D QΛQᵀ D of a block W. The columns of W T are orthonormal.
struct Whitening {
    /// T: `width × width`, row-major.
    t: Vec<f64>,
    /// T⁻¹ = Λ^{1/2} Qᵀ D.
    back: Vec<f64>,
    /// Columns whose directions are negligible. They are zero in both matrices.
    drawn: Vec<usize>,
    /// The smallest eigenvalue in Λ.
    least: f64,
}

impl Whitening {
    /// `squares` is the diagonal of `gram`.
    fn of(gram: &[f64], squares: &[f64]) -> Whitening {
        let width = squares.len();
        let length: Vec<f64> = squares.iter().map(|s| s.sqrt()).collect();
        let inverse: Vec<f64> = length
            .iter()
            .map(|&l| if l > NEGLIGIBLE { 1.0 / l } else { 0.0 })
            .collect();
        let scaled: Vec<f64> = (0..width * width)
            .map(|at| gram[at] * inverse[at / width] * inverse[at % width])
            .collect();
        let one = identity(width);
        let is_one = scaled
            .iter()
            .zip(&one)
            .all(|(a, b)| (a - b).abs() <= ORTHOGONAL);
        let (values, vectors) = if is_one {
            (vec![1.0; width], one)
        } else {
            symmetric_eigen(&scaled, width)
        };
        let mut whitening = Whitening {
            t: vec![0.0; width * width],
            back: vec![0.0; width * width],
            drawn: Vec::new(),
            least: values[0],
        };
        for (to, value) in values.iter().enumerate() {
            // Eigenvalues at the level of rounding are raised to it, and the next pass measures the
            // true length.
            let root = value.max(1e-16).sqrt();
            let longest = (0..width)
                .map(|from| (vectors[from * width + to] * length[from]).abs())
                .fold(0.0, f64::max);
            if root * longest <= NEGLIGIBLE {
                whitening.drawn.push(to);
                continue;
            }
            for from in 0..width {
                let q = vectors[from * width + to];
                whitening.t[from * width + to] = q * inverse[from] / root;
                whitening.back[to * width + from] = root * q * length[from];
            }
        }
        whitening
    }
}

/// Eigenvalues, ascending, and eigenvectors (columns of an `n × n` row-major matrix) of a symmetric
/// `n × n` matrix.
pub(crate) fn symmetric_eigen(a: &[f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    let a = Mat::from_fn(n, n, |i, j| a[i * n + j]);
    let mut values = Col::<f64>::zeros(n);
    let mut vectors = Mat::<f64>::zeros(n, n);
    let scratch = evd::self_adjoint_evd_scratch::<f64>(
        n,
        evd::ComputeEigenvectors::Yes,
        Par::Seq,
        Default::default(),
    );
    evd::self_adjoint_evd(
        a.as_ref(),
        values.as_mut().as_diagonal_mut(),
        Some(vectors.as_mut()),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .expect("the entries of a symmetric eigenproblem are finite");
    (
        values.iter().copied().collect(),
        row_major(vectors.as_ref()),
    )
}

/// The `count` leading eigenpairs of a symmetric `n × n` matrix: values, descending, and vectors
/// (`n × count`, row-major).
pub(crate) fn leading_eigen(a: &[f64], n: usize, count: usize) -> (Vec<f64>, Vec<f64>) {
    let (values, vectors) = symmetric_eigen(a, n);
    (
        values.iter().rev().take(count).copied().collect(),
        (0..n * count)
            .map(|at| vectors[at / count * n + n - 1 - at % count])
            .collect(),
    )
}

/// The `count` leading right singular vectors (columns, `n × count`, row-major) of a row-major
/// matrix with `n` columns and at least as many rows.
pub(crate) fn leading_right(a: &[f64], n: usize, count: usize) -> Vec<f64> {
    let (_, right) = right_svd(a, n);
    let rows = right.chunks_exact(n);
    rows.flat_map(|row| &row[..count]).copied().collect()
}

/// Singular values, descending, and the right vectors (columns of an `n × n` row-major matrix) of a
/// row-major matrix with `n` columns and at least as many rows.
pub(crate) fn right_svd(a: &[f64], n: usize) -> (Vec<f64>, Vec<f64>) {
    let m = a.len() / n;
    assert!(n <= m, "the shorter side is that of the right vectors");
    let a = Mat::from_fn(m, n, |i, j| a[i * n + j]);
    let mut right = Mat::<f64>::zeros(n, n);
    let (none, thin) = (svd::ComputeSvdVectors::No, svd::ComputeSvdVectors::Thin);
    let values = decomposed_svd(&a, [none, thin], None, &mut right);
    (values, row_major(right.as_ref()))
}

/// Singular values, descending, with left and right vectors (columns of `n × n` row-major matrices)
/// of an `n × n` matrix.
pub(crate) fn square_svd(a: &[f64], n: usize) -> (Vec<f64>, Vec<f64>, Vec<f64>) {
    let a = Mat::from_fn(n, n, |i, j| a[i * n + j]);
    let mut left = Mat::<f64>::zeros(n, n);
    let mut right = Mat::<f64>::zeros(n, n);
    let full = svd::ComputeSvdVectors::Full;
    let values = decomposed_svd(&a, [full, full], Some(&mut left), &mut right);
    (values, row_major(left.as_ref()), row_major(right.as_ref()))
}

/// Singular values, descending, of a matrix with at least as many rows as columns.
fn decomposed_svd(
    a: &Mat<f64>,
    [of_left, of_right]: [svd::ComputeSvdVectors; 2],
    left: Option<&mut Mat<f64>>,
    right: &mut Mat<f64>,
) -> Vec<f64> {
    let (m, n) = (a.nrows(), a.ncols());
    let mut values = Col::<f64>::zeros(n);
    let scratch = svd::svd_scratch::<f64>(m, n, of_left, of_right, Par::Seq, Default::default());
    svd::svd(
        a.as_ref(),
        values.as_mut().as_diagonal_mut(),
        left.map(|left| left.as_mut()),
        Some(right.as_mut()),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .expect("the entries of a singular value problem are finite");
    values.iter().copied().collect()
}

/// The eigenvalues (real and imaginary part) of an `n × n` matrix, in no particular order.
/// Conjugate pairs are exact.
pub(crate) fn eigenvalues(a: &[f64], n: usize) -> Vec<[f64; 2]> {
    decomposed(a, n, None)
}

/// The eigenvalues, and the right eigenvectors as columns. A conjugate pair has the real and the
/// imaginary part of its vector.
pub(crate) fn real_eigen(a: &[f64], n: usize) -> (Vec<[f64; 2]>, Mat<f64>) {
    let mut right = Mat::<f64>::zeros(n, n);
    (decomposed(a, n, Some(&mut right)), right)
}

fn decomposed(a: &[f64], n: usize, right: Option<&mut Mat<f64>>) -> Vec<[f64; 2]> {
    let a = Mat::from_fn(n, n, |i, j| a[i * n + j]);
    let (mut re, mut im) = (Col::<f64>::zeros(n), Col::<f64>::zeros(n));
    let no = evd::ComputeEigenvectors::No;
    let vectors = match right {
        Some(_) => evd::ComputeEigenvectors::Yes,
        None => no,
    };
    let scratch = evd::evd_scratch::<f64>(n, no, vectors, Par::Seq, Default::default());
    evd::evd_real(
        a.as_ref(),
        re.as_mut().as_diagonal_mut(),
        im.as_mut().as_diagonal_mut(),
        None,
        right.map(|right| right.as_mut()),
        Par::Seq,
        MemStack::new(&mut MemBuffer::new(scratch)),
        Default::default(),
    )
    .expect("the entries of an eigenvalue problem are finite");
    re.iter().zip(im.iter()).map(|(r, i)| [*r, *i]).collect()
}

fn multiply_right(width: usize, w: &mut [f64], t: &[f64]) {
    w.par_chunks_mut(ROWS * width)
        .for_each_init(Vec::new, |copy, w| {
            copy.clear();
            copy.extend_from_slice(w);
            w.fill(0.0);
            add_product(width, copy, t, w);
        });
}

/// Calls a kernel that is compiled for the width of a panel or a block.
macro_rules! with_width {
    ($width:expr, $kernel:ident($($argument:expr),*)) => {
        match $width {
            1 => $kernel::<1>($($argument),*),
            2 => $kernel::<2>($($argument),*),
            4 => $kernel::<4>($($argument),*),
            8 => $kernel::<8>($($argument),*),
            16 => $kernel::<16>($($argument),*),
            width => panic!("a block is 1, 2, 4, 8 or 16 columns wide, not {width}"),
        }
    };
}

pub(crate) use with_width;

/// out = VᵀW on some rows.
fn inner(width: usize, v: &[f64], w: &[f64], out: &mut [f64]) {
    with_width!(width, inner_of(v, w, out));
}

/// `inner` for two panels V, whose results are adjacent in `out`.
fn inner_pair(width: usize, a: &[f64], b: &[f64], w: &[f64], out: &mut [f64]) {
    match width {
        4 => inner_pair_of::<4>(a, b, w, out),
        _ => {
            let (first, second) = out.split_at_mut(width * width);
            inner(width, a, w, first);
            inner(width, b, w, second);
        }
    }
}

fn add_product(width: usize, v: &[f64], c: &[f64], w: &mut [f64]) {
    with_width!(width, add_product_of(v, c, w));
}

/// `add_product` for two panels V, whose coefficients are adjacent in `c`.
fn add_products(width: usize, a: &[f64], b: &[f64], c: &[f64], w: &mut [f64]) {
    match width {
        4 => add_products_of::<4>(a, b, c, w),
        _ => {
            let (first, second) = c.split_at(width * width);
            add_product(width, a, first, w);
            add_product(width, b, second, w);
        }
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn inner_of<const B: usize>(v: &[f64], w: &[f64], out: &mut [f64]) {
    let mut sums = [[0.0; B]; B];
    for (v, w) in v.as_chunks::<B>().0.iter().zip(w.as_chunks::<B>().0) {
        for (sums, v) in sums.iter_mut().zip(v) {
            for (sum, w) in sums.iter_mut().zip(w) {
                *sum += v * w;
            }
        }
    }
    out.copy_from_slice(sums.as_flattened());
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn inner_pair_of<const B: usize>(a: &[f64], b: &[f64], w: &[f64], out: &mut [f64]) {
    let mut sums = [[[0.0; B]; B]; 2];
    let panels = a.as_chunks::<B>().0.iter().zip(b.as_chunks::<B>().0);
    for ((a, b), w) in panels.zip(w.as_chunks::<B>().0) {
        for (sums, v) in sums.iter_mut().zip([a, b]) {
            for (sums, v) in sums.iter_mut().zip(v) {
                for (sum, w) in sums.iter_mut().zip(w) {
                    *sum += v * w;
                }
            }
        }
    }
    out.copy_from_slice(sums.as_flattened().as_flattened());
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn add_products_of<const B: usize>(a: &[f64], b: &[f64], c: &[f64], w: &mut [f64]) {
    let c: &[[f64; B]] = c.as_chunks::<B>().0;
    let first: [[f64; B]; B] = std::array::from_fn(|i| c[i]);
    let second: [[f64; B]; B] = std::array::from_fn(|i| c[B + i]);
    let panels = a.as_chunks::<B>().0.iter().zip(b.as_chunks::<B>().0);
    for ((a, b), w) in panels.zip(w.as_chunks_mut::<B>().0) {
        for (v, c) in [(a, &first), (b, &second)] {
            for (v, c) in v.iter().zip(c) {
                for (w, c) in w.iter_mut().zip(c) {
                    *w += v * c;
                }
            }
        }
    }
}

/// W ← W + VC on some rows, with C of `B × B`.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn add_product_of<const B: usize>(v: &[f64], c: &[f64], w: &mut [f64]) {
    let c: &[[f64; B]] = c.as_chunks::<B>().0;
    let c: [[f64; B]; B] = std::array::from_fn(|i| c[i]);
    for (v, w) in v.as_chunks::<B>().0.iter().zip(w.as_chunks_mut::<B>().0) {
        for (v, c) in v.iter().zip(&c) {
            for (w, c) in w.iter_mut().zip(c) {
                *w += v * c;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::{close, on_threads};
    use rand::SeedableRng;
    use rand_pcg::Pcg64;

    fn panel(n: usize, width: usize, seed: u64) -> Vec<f64> {
        let mut random = Pcg64::seed_from_u64(seed);
        (0..n * width)
            .map(|_| random.random_range(-1.0..1.0))
            .collect()
    }

    fn orthonormal(n: usize, width: usize, random: &mut Pcg64) -> Vec<f64> {
        let mut first = panel(n, width, 2);
        orthonormalise::<Vec<f64>>(&[], 0..0, width, &mut first, random);
        first
    }

    fn assert_orthonormal(panels: &[Vec<f64>], width: usize) {
        for (p, w) in panels.iter().enumerate() {
            let g = project(panels, width, w);
            for (at, g) in g.iter().enumerate() {
                let one = at / width == p * width + at % width;
                assert!((g - f64::from(u8::from(one))).abs() < 1e-13, "{at}: {g}");
            }
        }
    }

    // V = [ 1 2 ]   W = [ 1 4 ]
    //     [ 0 3 ]       [ 0 1 ]
    #[test]
    fn products_match_hand_calculations() {
        let v = vec![1.0, 2.0, 0.0, 3.0];
        let w = vec![1.0, 4.0, 0.0, 1.0];
        // VᵀW = [1·1 + 0·0, 1·4 + 0·1; 2·1 + 3·0, 2·4 + 3·1].
        assert_eq!(project(&[&v], 2, &w), [1.0, 4.0, 2.0, 11.0]);
        let mut rest = w.clone();
        // V · [1 0; 1 1] = [3 2; 3 3].
        subtract(&[&v], 2, &[1.0, 0.0, 1.0, 1.0], &mut rest);
        assert_eq!(rest, [-2.0, 2.0, -3.0, -2.0]);
        let mut panels = vec![v, w];
        // [V W] · (the third column, then the second) = [1 2; 0 3].
        let s = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0];
        rotate(&mut panels, 2, &s, 2);
        assert_eq!(panels[0], [1.0, 2.0, 0.0, 3.0]);
    }

    #[test]
    fn a_split_reproduces_the_panel() {
        for width in [1, 2, 4, 8, 16] {
            let n = 3000;
            let mut random = Pcg64::seed_from_u64(1);
            let first = orthonormal(n, width, &mut random);
            let original = panel(n, width, 3);
            let mut second = original.clone();
            let split = orthonormalise(&[&first], 0..1, width, &mut second, &mut random);
            let negative: Vec<f64> = split.rest.iter().map(|r| -r).collect();
            let mut sum = vec![0.0; n * width];
            subtract(&[&second], width, &negative, &mut sum);
            let negative: Vec<f64> = split.along.iter().map(|r| -r).collect();
            subtract(&[&first], width, &negative, &mut sum);
            for (a, b) in sum.iter().zip(&original) {
                assert!((a - b).abs() < 1e-13);
            }
            assert_orthonormal(&[first, second], width);
        }
    }

    #[test]
    fn lost_directions_are_replaced() {
        let (n, width) = (50, 4);
        let mut random = Pcg64::seed_from_u64(1);
        let first = orthonormal(n, width, &mut random);
        // Columns: zero, one of the basis, a new one, and the new one plus 1e-9 of another.
        let other = panel(n, width, 3);
        let mut w: Vec<f64> = (0..n)
            .flat_map(|i| {
                let (new, another) = (other[i * width], other[i * width + 1]);
                [0.0, first[i * width], new, new + 1e-9 * another]
            })
            .collect();
        let split = orthonormalise(&[&first], 0..1, width, &mut w, &mut random);
        let rows = split.rest.chunks_exact(width);
        let rows: f64 = rows.map(|r| r[0].abs() + r[1].abs()).sum();
        assert!(rows < 1e-12, "nothing is left of the first two columns");
        assert_orthonormal(&[first, w], width);
        let mut nothing = vec![0.0; n * width];
        orthonormalise::<Vec<f64>>(&[], 0..0, width, &mut nothing, &mut random);
        assert_orthonormal(&[nothing], width);
    }

    #[test]
    fn short_columns_become_orthogonal_too() {
        let (n, width) = (3000, 4);
        let mut random = Pcg64::seed_from_u64(1);
        let first = orthonormal(n, width, &mut random);
        for length in [1.0, 1e-6, 1e-10] {
            let mut w: Vec<f64> = panel(n, width, 3).iter().map(|x| x * length).collect();
            orthonormalise(&[&first], 0..1, width, &mut w, &mut random);
            assert_orthonormal(&[first.clone(), w], width);
        }
    }

    #[test]
    fn results_do_not_depend_on_threads() {
        let run = |threads| {
            on_threads(threads, || {
                let mut random = Pcg64::seed_from_u64(1);
                let first = panel(10_000, 4, 2);
                let mut second = panel(10_000, 4, 3);
                let split = orthonormalise(&[first], 0..1, 4, &mut second, &mut random);
                (second, split.along, split.rest)
            })
        };
        assert!(run(1) == run(5));
    }

    #[test]
    fn small_decompositions_are_ordered() {
        // [ 2 1 ] has eigenvalues 1 and 3, vectors (1, ∓1)/√2.
        // [ 1 2 ]
        let (values, vectors) = symmetric_eigen(&[2.0, 1.0, 1.0, 2.0], 2);
        assert!((values[0] - 1.0).abs() < 1e-15 && (values[1] - 3.0).abs() < 1e-15);
        assert!((vectors[1].abs() - 0.5f64.sqrt()).abs() < 1e-15);
        assert_eq!(leading_eigen(&[2.0, 1.0, 1.0, 2.0], 2, 1).0, values[1..]);
        let (values, left, right) = square_svd(&[0.0, 2.0, 1.0, 0.0], 2);
        assert!((values[0] - 2.0).abs() < 1e-15 && (values[1] - 1.0).abs() < 1e-15);
        assert!((left[0] * right[2] - 1.0).abs() < 1e-15);
        assert_eq!(square_svd(&[0.0; 9], 3).0, [0.0; 3]);
        // A permutation of three elements has the eigenvalues exp(±2πi/3) and 1.
        let mut turn = eigenvalues(&[0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 1.0, 0.0], 3);
        turn.sort_by(|a, b| a[0].total_cmp(&b[0]).then(a[1].total_cmp(&b[1])));
        let root = 0.75f64.sqrt();
        let expected = [-0.5, -root, -0.5, root, 1.0, 0.0];
        close(turn.as_flattened(), &expected, 1e-14);
    }
}
