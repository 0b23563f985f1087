//! What a fit has to say about its result.

use crate::error::counted;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that a user should know about a fit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Warning {
    /// The kernel has several components, and only the largest is embedded.
    Components {
        /// The number of components.
        components: usize,
        /// Components of one point.
        isolated: usize,
        /// Distinct points in the largest one.
        kept: usize,
        /// Distinct points in all others.
        dropped: usize,
    },
    /// The bandwidth is so large that the kernel hardly tells points apart.
    WideBandwidth {
        /// ε.
        epsilon: f64,
        /// The first eigenvalue below 1, if it is known.
        first: Option<f64>,
        /// Mean row sum of the kernel, in distinct points or landmarks.
        neighbours: f64,
        /// All of them.
        points: f64,
    },
    /// The bandwidth is so small that single points have coordinates of their own.
    NarrowBandwidth {
        /// ε.
        epsilon: f64,
        /// Mean row sum of the kernel, in distinct points or landmarks.
        neighbours: f64,
    },
    /// The dimension separates eigenvalues that are equal.
    EqualAtCut {
        /// The dimension.
        dimension: usize,
        /// The difference between the last eigenvalue and the next one.
        gap: f64,
    },
    /// The eigenvectors have not converged.
    NotConverged {
        /// The largest ‖Aφ − λφ‖.
        residual: f64,
    },
    /// All coordinates are 0.
    Vanished {
        /// The time of a diffusion map, or the power of a sketch.
        time: f64,
    },
    /// Several eigenvalues are 1: parts of the chain or of the points are not connected.
    SeveralOnes {
        /// The number of eigenvalues that are 1 to rounding.
        ones: usize,
    },
    /// The bistochastic scaling has not reached `delta`.
    NotBistochastic {
        /// The largest error of a row sum.
        error: f64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::Components {
                components,
                isolated,
                kept,
                dropped,
            } => {
                let isolated = match isolated {
                    0 => String::new(),
                    n => format!(" ({})", counted(n, "isolated point")),
                };
                write!(
                    f,
                    "the kernel has {}{isolated}; {} of the largest one are embedded, {} of the \
                     others are not",
                    counted(components, "component"),
                    counted(kept, "point"),
                    counted(dropped, "point"),
                )
            }
            Warning::WideBandwidth {
                epsilon,
                first,
                neighbours,
                points,
            } => {
                write!(
                    f,
                    "epsilon = {epsilon} is large: a point has {neighbours:.0} effective \
                     neighbours of {points:.0}"
                )?;
                match first {
                    Some(first) => write!(f, ", and the first eigenvalue below 1 is {first:.2e}"),
                    None => Ok(()),
                }
            }
            Warning::NarrowBandwidth {
                epsilon,
                neighbours,
            } => write!(
                f,
                "epsilon = {epsilon} is small: a point has {neighbours:.1} effective neighbours, so \
                 that eigenvalues are too small and coordinates may show single points; increase \
                 `epsilon`, and `neighbours` or `landmarks`"
            ),
            Warning::EqualAtCut { dimension, gap } => write!(
                f,
                "dimension = {dimension} separates eigenvalues that differ by {gap:.1e}, so the \
                 last coordinates are an arbitrary choice"
            ),
            Warning::NotConverged { residual } => {
                write!(f, "the eigenvectors have residuals up to {residual:.1e}")
            }
            Warning::Vanished { time } => write!(
                f,
                "all coordinates are 0 at time or power {time}: a power of the eigenvalues is below \
                 the range of numbers; decrease it"
            ),
            Warning::SeveralOnes { ones } => {
                write!(
                    f,
                    "{ones} eigenvalues are 1, so there are unconnected parts"
                )
            }
            Warning::NotBistochastic { error } => {
                write!(f, "the row sums differ from 1 by up to {error:.1e}")
            }
        }
    }
}
