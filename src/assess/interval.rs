//! Spread of a number over resamples: mean, standard error and percentile interval (Efron and
//! Tibshirani, *An Introduction to the Bootstrap*, 1993, §6 and §13.3).

use serde::{Deserialize, Serialize};

/// How a number varies over resamples.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The mean over the resamples.
    pub mean: f64,
    /// The standard deviation over the resamples.
    pub standard_error: f64,
    /// The ends of the percentile interval.
    pub low: f64,
    /// The upper end of the percentile interval.
    pub high: f64,
}

impl Spread {
    /// None for fewer than two values.
    pub(crate) fn of(values: impl Iterator<Item = f64>, confidence: f64) -> Option<Spread> {
        let mut values: Vec<f64> = values.collect();
        if values.len() < 2 {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let n = values.len() as f64;
        let mean = values.iter().sum::<f64>() / n;
        let squares: f64 = values.iter().map(|x| (x - mean).powi(2)).sum();
        let tail = (1.0 - confidence) / 2.0;
        Some(Spread {
            mean,
            standard_error: (squares / (n - 1.0)).sqrt(),
            low: quantile(&values, tail),
            high: quantile(&values, 1.0 - tail),
        })
    }

    /// The ends of the interval. None for an infinite end.
    pub(crate) fn ends(&self) -> [Option<f64>; 2] {
        [self.low, self.high].map(|end| end.is_finite().then_some(end))
    }
}

/// The quantile of ascending values, linear between neighbours.
fn quantile(values: &[f64], p: f64) -> f64 {
    let at = p * (values.len() - 1) as f64;
    let (below, above) = (values[at.floor() as usize], values[at.ceil() as usize]);
    // Equal infinities have no difference.
    if below == above {
        return below;
    }
    below + (above - below) * at.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_five() {
        let values = [1.0, 2.0, 4.0, 8.0, f64::INFINITY];
        assert_eq!(quantile(&values, 0.5), 4.0);
        assert_eq!(quantile(&values, 0.125), 1.5);
        assert_eq!(quantile(&values, 1.0), f64::INFINITY);
    }

    // 1, 2, 4, 8, ∞ at 50 %: from the first quartile, 2, to the third, 8. At 90 % the upper end is
    // above 8.
    #[test]
    fn an_interval_may_have_no_upper_end() {
        let ends = |confidence| {
            let values = [8.0, 1.0, f64::INFINITY, 4.0, 2.0].into_iter();
            Spread::of(values, confidence).map(|spread| spread.ends())
        };
        assert_eq!(ends(0.5), Some([Some(2.0), Some(8.0)]));
        let [low, high] = ends(0.9).expect("a spread");
        assert!((low.expect("an end") - 1.2).abs() < 1e-12 && high.is_none());
        assert_eq!(Spread::of([3.0].into_iter(), 0.9), None);
    }
}
