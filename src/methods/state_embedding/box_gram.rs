//! The Gram matrix of random Fourier features over a box.

use crate::methods::state_embedding::features::{Features, cosine};

/// ∫ h hᵀ dy over a box with a lower and an upper bound per coordinate: M × M, row-major.
///
/// A product of two cosines is half the sum of the cosines of the difference and of the sum of the
/// phases. The integral of cos(aᵀy + b) is cos(aᵀm + b) Π L_k sinc(a_k L_k/2), for a box with
/// centre m and lengths L.
pub(crate) fn box_gram(features: &Features, bounds: &[[f64; 2]]) -> Vec<f64> {
    assert_eq!(bounds.len(), features.dimension(), "bounds per coordinate");
    let m = features.count();
    let frequencies: Vec<Vec<f64>> = (0..m).map(|l| features.frequency(l)).collect();
    let integral = |i: usize, j: usize, sign: f64| {
        let mut phase = features.phase(i) + sign * features.phase(j);
        let mut volume = 1.0;
        for ((a, b), [low, high]) in frequencies[i].iter().zip(&frequencies[j]).zip(bounds) {
            let (a, length) = (a + sign * b, high - low);
            let half = a * length / 2.0;
            phase += a * (low + high) / 2.0;
            // sin(z)/z
            let sinc = if half == 0.0 { 1.0 } else { half.sin() / half };
            volume *= length * sinc;
        }
        volume * cosine(phase)
    };
    let mut gram = vec![0.0; m * m];
    for i in 0..m {
        for j in 0..=i {
            let entry = (integral(i, j, -1.0) + integral(i, j, 1.0)) / 2.0;
            gram[i * m + j] = entry;
            gram[j * m + i] = entry;
        }
    }
    gram
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gram_matrix_of_a_box_is_its_integral() {
        let features = Features::random(5, 2, 0.6, 1);
        let bounds = [[-1.0, 2.0], [0.5, 1.5]];
        let gram = box_gram(&features, &bounds);
        assert!((gram[0] - 3.0).abs() < 1e-14);
        let steps = 400;
        let mut sum = vec![0.0; 36];
        for i in 0..steps * steps {
            let at = |k: usize, i: usize| {
                let [low, high] = bounds[k];
                low + (high - low) * (i as f64 + 0.5) / steps as f64
            };
            let h = features.evaluate(&[at(0, i / steps), at(1, i % steps)]);
            for (at, sum) in sum.iter_mut().enumerate() {
                *sum += 3.0 / (steps * steps) as f64 * h[at / 6] * h[at % 6];
            }
        }
        for (gram, sum) in gram.iter().zip(&sum) {
            assert!((gram - sum).abs() < 1e-3, "{gram} {sum}");
        }
    }
}
