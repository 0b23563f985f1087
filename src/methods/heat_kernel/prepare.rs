//! The kernel of some points with its normalisation, from which all fits start.

use crate::error::{Error, Result};
use crate::evidence::points::Points;
use crate::methods::heat_kernel::kernel::{self, Kernel, Quality};
use crate::methods::heat_kernel::landmarks;
use crate::methods::heat_kernel::neighbours::Distinct;
use crate::methods::heat_kernel::normalise::{self, Factors};
use crate::methods::heat_kernel::params::KernelParams;
use crate::methods::heat_kernel::thinned::{points_of_landmarks, thin};
use crate::methods::heat_kernel::warning::Warning;
use std::borrow::Cow;

/// A kernel with its normalisation.
pub(crate) struct Prepared {
    /// The kernel.
    pub kernel: Kernel,
    /// The factors of its normalisation.
    pub factors: Factors,
    /// ε, and what is known of the kernel.
    pub quality: Quality,
    /// What a user should know.
    pub warnings: Vec<Warning>,
    /// The number of landmarks, if the kernel is theirs.
    pub landmarks: Option<usize>,
}

/// The points that a fit uses.
pub(crate) fn used<'a>(points: &'a Points, params: &KernelParams, seed: u64) -> Cow<'a, Points> {
    match params.landmarks {
        Some(count) => Cow::Owned(thin(points, points_of_landmarks(count), seed)),
        None => Cow::Borrowed(points),
    }
}

/// The kernel of some points.
///
/// # Errors
/// If the points have no such kernel ([`kernel::of`]), or a coordinate is constant.
pub(crate) fn prepare(points: &Points, params: &KernelParams, seed: u64) -> Result<Prepared> {
    check(points)?;
    let chosen = (params.landmarks).and_then(|count| landmarks::choose(points, count, seed));
    let count = chosen.as_ref().map(Distinct::n);
    let distinct = chosen.unwrap_or_else(|| Distinct::new(points));
    let (kernel, quality, mut warnings) = kernel::of(
        distinct,
        params.reach,
        params.epsilon,
        params.only_connected,
    )?;
    let factors = normalise::factors(&kernel, params.normalisation, params.alpha, params.delta);
    if factors.row_error > params.delta {
        let error = factors.row_error;
        warnings.push(Warning::NotBistochastic { error });
    }
    Ok(Prepared {
        kernel,
        factors,
        quality,
        warnings,
        landmarks: count,
    })
}

/// Checks that coordinates are finite and that points differ.
fn check(points: &Points) -> Result<()> {
    if points.n() == 0 {
        return Err(Error::input("there are no points"));
    }
    let finite = points.coordinates.iter().all(|x| x.is_finite());
    assert!(finite, "coordinates are finite");
    let first = points.row(0);
    let mut rows = points.coordinates.chunks_exact(points.dimension);
    if points.n() > 1 && rows.all(|row| row == first) {
        return Err(Error::input(format!("all {} points are equal", points.n())));
    }
    Ok(())
}
