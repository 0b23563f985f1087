//! The parameters of a spectral hidden Markov model.

use crate::methods::estimator::{Fault, Parameters, at_least_one, defaults, ranked, tolerance};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the matrix of pairs is scaled before its decomposition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scaling {
    /// By the square roots of the probabilities of past and future, as in canonical correlation
    /// analysis. Predicted probabilities add up to 1 at every rank.
    #[default]
    Cca,
    /// Not at all, as in the paper [*Low-rank spectral
    /// learning*](https://proceedings.mlr.press/v33/kulesza14.html).
    None,
}

/// Which windows of a trajectory are counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WindowKind {
    /// All of them.
    #[default]
    All,
    /// The first one of every trajectory.
    First,
}

/// What becomes of the spectral model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Refine {
    /// It is the result.
    #[default]
    None,
    /// It is the result, and transition and emission probabilities of hidden states are recovered
    /// from it.
    Recover,
    /// It is the start of the Baum–Welch algorithm, whose result is a hidden Markov model.
    Em,
}

/// A hidden Markov model from counted triples of symbols.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SpectralHmm {
    /// The dimension of the state, or a list of dimensions to fit one by one.
    pub rank: usize,
    /// How pairs are scaled: `"cca"`, or `"none"` for the operators of the paper [*Low-rank
    /// spectral learning*](https://proceedings.mlr.press/v33/kulesza14.html).
    #[serde(default)]
    pub scaling: Scaling,
    /// Which windows are counted: `"all"`, or `"first"` for the first one of every trajectory. The
    /// same for all fits of a pipeline.
    #[serde(default)]
    pub windows: WindowKind,
    /// Symbols per past and per future. A window has 2 · block + 1 symbols. The same for all fits
    /// of a pipeline.
    #[serde(default = "SpectralHmm::block")]
    #[schemars(range(min = 1))]
    pub block: usize,
    /// Symbols that are counted less often share one operator.
    #[serde(default = "SpectralHmm::min_count")]
    #[schemars(range(min = 1))]
    pub min_count: usize,
    /// The share of the distribution of all symbols in every predicted distribution.
    #[serde(default = "SpectralHmm::unigram")]
    #[schemars(range(min = 0, max = 1))]
    pub unigram: f64,
    /// The smallest predicted probability, and the probability of a symbol without an operator.
    #[serde(default = "SpectralHmm::floor")]
    #[schemars(range(min = 0))]
    pub floor: f64,
    /// What becomes of the spectral model: `"none"`, `"recover"` for transition and emission
    /// probabilities besides, or `"em"` for the Baum–Welch algorithm.
    #[serde(default)]
    pub refine: Refine,
    /// The number of iterations after which the Baum–Welch algorithm is stopped. Only with `refine
    /// = "em"`.
    #[serde(default = "SpectralHmm::n_iter")]
    #[schemars(range(min = 1))]
    pub n_iter: usize,
    /// The gain of log-likelihood per symbol, in nats, below which the Baum–Welch algorithm stops.
    /// Only with `refine = "em"`.
    #[serde(default = "SpectralHmm::tol")]
    #[schemars(range(min = 0))]
    pub tol: f64,
}

defaults! { pub SpectralHmm(rank: usize) {
    block: usize = 1,
    min_count: usize = 1,
    unigram: f64 = 0.01,
    floor: f64 = 1e-12,
    n_iter: usize = 100,
    tol: f64 = 1e-7,
} scaling windows refine }

impl Parameters for SpectralHmm {
    const NAME: &'static str = "spectral_hmm";

    ranked!();

    fn describe(&self, rank: &str) -> String {
        let scaling = match self.scaling {
            Scaling::Cca => "scaled operators",
            Scaling::None => "plain operators",
        };
        let windows = match self.windows {
            WindowKind::All => "all windows",
            WindowKind::First => "the first window of every trajectory",
        };
        let length = 2 * self.block + 1;
        let refine = match self.refine {
            Refine::None => String::new(),
            Refine::Recover => ", hidden states recovered".into(),
            Refine::Em => format!(", Baum–Welch of at most {} iterations", self.n_iter),
        };
        format!("spectral HMM, {rank}, {scaling}, {windows} of {length} symbols{refine}")
    }

    fn check(&self) -> Result<(), Fault> {
        at_least_one(&[
            ("block", self.block),
            ("min_count", self.min_count),
            ("n_iter", self.n_iter),
        ])?;
        if self.block > LARGEST_BLOCK {
            let message = format!("must be at most {LARGEST_BLOCK}, not {}", self.block);
            return Err(("block", message));
        }
        predictions(self.unigram, self.floor)?;
        tolerance("tol", self.tol)?;
        if self.tol > LARGEST_TOL {
            let message = format!(
                "must be at most {LARGEST_TOL}, not {}; it is the gain per symbol, not that of all rows",
                self.tol
            );
            return Err(("tol", message));
        }
        Ok(())
    }
}

/// Checks the keys of predictions.
pub(crate) fn predictions(unigram: f64, floor: f64) -> Result<(), Fault> {
    if !(0.0..1.0).contains(&unigram) {
        let message = format!("must be at least 0 and below 1, not {unigram}");
        return Err(("unigram", message));
    }
    if !(floor > 0.0 && floor <= LARGEST_FLOOR) {
        let message = format!("must be above 0 and at most {LARGEST_FLOOR}, not {floor}");
        return Err(("floor", message));
    }
    Ok(())
}

/// Longer words hardly occur twice.
const LARGEST_BLOCK: usize = 16;

/// A larger gain per symbol would stop the Baum–Welch algorithm at its start.
const LARGEST_TOL: f64 = 1e-3;

/// A larger floor would move most predictions.
const LARGEST_FLOOR: f64 = 1e-3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_are_named() {
        let wrong = |change: fn(&mut SpectralHmm)| {
            let mut params = SpectralHmm::new(2);
            change(&mut params);
            params.check().map_err(|fault| fault.0)
        };
        assert_eq!(wrong(|_| ()), Ok(()));
        assert_eq!(wrong(|p| p.block = 0), Err("block"));
        assert_eq!(wrong(|p| p.block = 17), Err("block"));
        assert_eq!(wrong(|p| p.min_count = 0), Err("min_count"));
        assert_eq!(wrong(|p| p.n_iter = 0), Err("n_iter"));
        assert_eq!(wrong(|p| p.unigram = 1.0), Err("unigram"));
        assert_eq!(wrong(|p| p.floor = 0.0), Err("floor"));
        assert_eq!(wrong(|p| p.floor = f64::NAN), Err("floor"));
        assert_eq!(wrong(|p| p.tol = f64::INFINITY), Err("tol"));
        assert_eq!(wrong(|p| p.tol = 0.01), Err("tol"));
    }

    #[test]
    fn keys_have_defaults() {
        let read = |json: &str| serde_json::from_str::<SpectralHmm>(json).unwrap();
        assert_eq!(read(r#"{"rank": 3}"#), SpectralHmm::new(3));
        let keys = r#"{"rank": 2, "scaling": "none", "windows": "first", "refine": "em"}"#;
        let params = read(keys);
        assert_eq!(params.scaling, Scaling::None);
        assert_eq!(params.windows, WindowKind::First);
        assert_eq!(params.refine, Refine::Em);
        assert!(serde_json::from_str::<SpectralHmm>(r#"{"rank": 3, "states": 1}"#).is_err());
        let line = params.describe("rank 2");
        let expected = "spectral HMM, rank 2, plain operators, the first window of every \
                        trajectory of 3 symbols, Baum–Welch of at most 100 iterations";
        assert_eq!(line, expected);
    }
}
