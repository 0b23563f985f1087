//! Weighted states → the mean, the variance and the state with the nearest features.

use crate::methods::filter::fit::Estimates;
use crate::methods::filter::kernel_bayes::base::NO_WEIGHT;
use crate::methods::filter::kernel_bayes::kernel::Kernel;
use crate::methods::filter::params::{self, Decode};
use std::cmp::Ordering;

/// Iterations of a pre-image.
const ITERATIONS: usize = 100;

/// An iteration ends if no number changes by more than this share of the bandwidth.
const TOLERANCE: f64 = 1e-9;

/// States with their weights.
#[derive(Debug, Clone, Copy)]
pub(super) struct Weighted<'a> {
    pub(super) weights: &'a [f64],
    /// n × d.
    pub(super) states: &'a [f64],
}

impl<'a> Weighted<'a> {
    pub(super) fn new(weights: &'a [f64], states: &'a [f64]) -> Weighted<'a> {
        Weighted { weights, states }
    }
}

/// Adds the estimates of a row: mean, variance, decoded state and the sum of the weights.
pub(super) fn emit(parts: &[Weighted<'_>], kernel: &Kernel, decode: Decode, out: &mut Estimates) {
    let d = kernel.width;
    let (mut mean, mut square) = (vec![0.0; d], vec![0.0; d]);
    let origin = weightiest(parts, d);
    let mut sum = 0.0;
    for part in parts {
        for (y, w) in part.states.chunks_exact(d.max(1)).zip(part.weights) {
            sum += w;
            let sums = mean.iter_mut().zip(&mut square);
            for ((mean, square), (y, origin)) in sums.zip(y.iter().zip(origin)) {
                let y = y - origin;
                *mean += w * y;
                *square += w * y * y;
            }
        }
    }
    out.weight_sum.push(sum);
    push(&mut mean, &mut square, sum, origin, out);
    match decode {
        Decode::Mean => out.decoded.extend_from_slice(&mean),
        Decode::Preimage => out.decoded.extend(preimage(parts, kernel, mean)),
    }
}

/// The state with the largest weight, positive or negative. Sums about it keep their digits if all
/// states are far from zero.
fn weightiest<'a>(parts: &[Weighted<'a>], d: usize) -> &'a [f64] {
    let mut best: (&[f64], f64) = (&[], -1.0);
    for part in parts {
        for (y, w) in part.states.chunks_exact(d.max(1)).zip(part.weights) {
            if w.abs() > best.1 {
                best = (y, w.abs());
            }
        }
    }
    best.0
}

/// Adds mean and variance. The sums, which are about `origin`, become the mean and the variance.
pub(super) fn push(
    mean: &mut [f64],
    square: &mut [f64],
    sum: f64,
    origin: &[f64],
    out: &mut Estimates,
) {
    let divisor = if sum.abs() > NO_WEIGHT { sum } else { 1.0 };
    for ((mean, square), origin) in mean.iter_mut().zip(square.iter_mut()).zip(origin) {
        *mean /= divisor;
        *square = (*square / divisor - *mean * *mean).max(0.0);
        *mean += origin * (sum / divisor);
    }
    out.mean.extend_from_slice(mean);
    out.variance.extend_from_slice(square);
}

/// The fixed point y = Σ w_i k(y, y_i) y_i / Σ w_i k(y, y_i) that is reached from `start`. The
/// state with the largest weight if there is none.
pub(super) fn preimage(parts: &[Weighted<'_>], kernel: &Kernel, start: Vec<f64>) -> Vec<f64> {
    let d = kernel.width.max(1);
    if kernel.form == params::Kernel::Delta {
        return heaviest(parts, d);
    }
    let longest = parts.iter().map(|part| part.weights.len()).max();
    let mut values = vec![0.0; longest.unwrap_or(0)];
    let (mut y, mut next) = (start, vec![0.0; d]);
    for _ in 0..ITERATIONS {
        let mut sum = 0.0;
        next.fill(0.0);
        for part in parts {
            let values = &mut values[..part.weights.len()];
            kernel.column(part.states, &y, values);
            for ((k, w), state) in values
                .iter()
                .zip(part.weights)
                .zip(part.states.chunks_exact(d))
            {
                let share = k * w;
                sum += share;
                for (next, y) in next.iter_mut().zip(state) {
                    *next += share * y;
                }
            }
        }
        if !sum.is_finite() || sum.abs() < NO_WEIGHT {
            return heaviest(parts, d);
        }
        let mut change = 0.0f64;
        for (y, next) in y.iter_mut().zip(&next) {
            let next = next / sum;
            change = change.max((next - *y).abs());
            *y = next;
        }
        if change <= TOLERANCE * kernel.bandwidth {
            return y;
        }
    }
    if y.iter().all(|y| y.is_finite()) {
        y
    } else {
        heaviest(parts, d)
    }
}

/// The state with the largest sum of weights; of several, the smallest one.
fn heaviest(parts: &[Weighted<'_>], d: usize) -> Vec<f64> {
    let mut all: Vec<(&[f64], f64)> = parts
        .iter()
        .flat_map(|part| {
            part.states
                .chunks_exact(d)
                .zip(part.weights.iter().copied())
        })
        .collect();
    let order = |a: &[f64], b: &[f64]| {
        let pairs = a.iter().zip(b);
        let mut orders = pairs.map(|(a, b)| a.total_cmp(b));
        orders
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    };
    all.sort_by(|(a, _), (b, _)| order(a, b));
    let mut best: Option<(&[f64], f64)> = None;
    for equal in all.chunk_by(|(a, _), (b, _)| a == b) {
        let sum: f64 = equal.iter().map(|(_, w)| w).sum();
        if best.is_none_or(|(_, largest)| sum > largest) {
            best = Some((equal[0].0, sum));
        }
    }
    best.map_or_else(|| vec![0.0; d], |(y, _)| y.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    // ŷ = argmin ‖m − ψ(y)‖ of appendix A.1, and ‖m − ψ(y)‖² = ‖m‖² − 2 Σ w_i k(y, y_i) + 1. The
    // mean of the states is between their modes.
    #[test]
    fn a_decoded_state_is_nearest_to_the_embedding() {
        let kernel = Kernel {
            form: params::Kernel::Rbf,
            bandwidth: 0.8,
            width: 1,
        };
        let (states, weights) = ([0.0, 0.6, 5.0, 5.5], [0.4, 0.3, 0.2, 0.1]);
        let parts = [Weighted::new(&weights, &states)];
        let product = |y: f64| -> f64 {
            let mut values = [0.0; 4];
            kernel.column(&states, &[y], &mut values);
            values.iter().zip(weights).map(|(k, w)| k * w).sum()
        };
        let grid = (0..7000).map(|i| f64::from(i) * 1e-3);
        let best = grid.max_by(|a, b| product(*a).total_cmp(&product(*b)));
        let best = best.expect("a grid");
        let mean = 0.3 * 0.6 + 0.2 * 5.0 + 0.1 * 5.5;
        let found = preimage(&parts, &kernel, vec![mean])[0];
        assert!((found - best).abs() < 2e-3, "{found} {best}");
        assert!(product(found) >= product(best) && product(mean) < 0.5 * product(found));
    }
}
