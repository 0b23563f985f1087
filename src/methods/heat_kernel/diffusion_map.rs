//! Diffusion maps (*heat kernel*, Algorithm 3): y_i = (λ₁ᵗφ₁(i), …, λ_kᵗφ_k(i)).
//!
//! In: a normalised kernel B with eigenpairs (λ, u), 1 = λ₀ > λ₁ ≥ …. Out: the spectrum, and φ =
//! u / √w of the dimensions after the first. The eigenvector of λ₀ is dropped.

use crate::methods::heat_kernel::eigen;
use crate::methods::heat_kernel::operator::Operator;
use crate::methods::heat_kernel::warning::Warning;
use serde::{Deserialize, Serialize};

/// Eigenvalues that differ by less than this are equal.
const EQUAL: f64 = 1e-9;

/// The first eigenvalue below 1 of a kernel that is too wide.
const WIDE: f64 = 0.01;

/// An eigenvalue of a normalised kernel.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// λ.
    pub value: f64,
    /// ‖Bu − λu‖.
    pub residual: f64,
    /// λ minus the next eigenvalue, if that is known.
    pub gap: Option<f64>,
    /// 1 / Σ u⁴, the number of points that the vector is spread over.
    pub participation: f64,
    /// −4 ln λ / ε, which estimates an eigenvalue of the Laplace operator. None if there is no ε,
    /// or λ ≤ 0.
    pub laplace: Option<f64>,
}

/// The leading eigenpairs of a kernel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Map {
    /// The first `dimension + 1` eigenvalues, descending.
    pub spectrum: Vec<Level>,
    /// u of all but the first, n × dimension, row-major.
    pub vectors: Vec<f64>,
    /// Bu of the same vectors.
    pub images: Vec<f64>,
    /// Products of the kernel with one vector.
    pub products: usize,
    /// What a user should know.
    pub warnings: Vec<Warning>,
}

/// The spectrum of a kernel. There are `dimension` vectors, or fewer if there are too few points.
pub(crate) fn of(
    operator: &dyn Operator,
    dimension: usize,
    epsilon: Option<f64>,
    tolerance: f64,
    seed: u64,
) -> Map {
    let n = operator.n();
    let dimension = dimension.min(n - 1);
    let count = (dimension + 2).min(n);
    let pairs = eigen::leading(operator, count, tolerance, seed);
    let mut spectrum = Vec::with_capacity(dimension + 1);
    for k in 0..=dimension {
        let value = pairs.values[k];
        let column = pairs.vectors.iter().skip(k).step_by(count);
        let fourth: f64 = column.map(|u| u.powi(4)).sum();
        spectrum.push(Level {
            value,
            residual: pairs.residuals[k],
            gap: pairs.values.get(k + 1).map(|next| value - next),
            participation: 1.0 / fourth,
            laplace: epsilon
                .filter(|_| value > 0.0)
                .map(|epsilon| -4.0 * value.min(1.0).ln() / epsilon),
        });
    }
    let without_first = |rows: &[f64]| -> Vec<f64> {
        let rows = rows.chunks_exact(count);
        rows.flat_map(|row| &row[1..=dimension]).copied().collect()
    };
    Map {
        warnings: warnings(&spectrum, pairs.converged),
        vectors: without_first(&pairs.vectors),
        images: without_first(&pairs.images),
        spectrum,
        products: pairs.products,
    }
}

fn warnings(spectrum: &[Level], converged: bool) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let dimension = spectrum.len() - 1;
    let last = &spectrum[dimension];
    let size = last.value.abs();
    if let Some(gap) = last.gap.filter(|gap| *gap <= EQUAL * size.max(EQUAL)) {
        warnings.push(Warning::EqualAtCut { dimension, gap });
    }
    let ones = spectrum
        .iter()
        .filter(|level| level.value >= 1.0 - 1e-13)
        .count();
    if ones > 1 {
        warnings.push(Warning::SeveralOnes { ones });
    }
    if !converged {
        let residual = spectrum.iter().map(|l| l.residual).fold(0.0, f64::max);
        warnings.push(Warning::NotConverged { residual });
    }
    warnings
}

/// Whether the kernel hardly tells points apart.
pub(crate) fn is_wide(spectrum: &[Level]) -> bool {
    spectrum.get(1).is_some_and(|level| level.value < WIDE)
}

/// λᵗ. Eigenvalues that are not positive are zero for times that are not integers.
pub(crate) fn power(value: f64, time: f64) -> f64 {
    if value <= 0.0 && time.fract() != 0.0 {
        0.0
    } else if time.fract() == 0.0 && time.abs() < 1e6 {
        value.powi(time as i32)
    } else {
        value.powf(time)
    }
}
