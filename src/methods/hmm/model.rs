//! A fitted hidden Markov model: all that is needed to filter and score sequences.

use crate::math::matrix::dot;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The id of a symbol that the model has never seen.
pub(crate) const UNSEEN: u32 = u32::MAX;

/// Observable operators of a hidden Markov model (Kulesza, Rao, Singh, *Low-rank spectral
/// learning*, (5)).
///
/// P̂r(x₁, …, x_t) = b_∞ᵀ B_{x_t} … B_{x_1} b₁ (6).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HmmModel {
    /// The dimension of the state, k.
    pub rank: usize,
    /// The number of symbols, n.
    pub n_symbols: usize,
    /// One operator B per class of symbols: classes × k × k, row-major.
    pub operators: Vec<f64>,
    /// b₁: k values.
    pub initial: Vec<f64>,
    /// b_∞: k values.
    pub last: Vec<f64>,
    /// The share of each symbol among all positions of all windows: n values.
    pub unigram: Vec<f64>,
    /// The class of each symbol: n values. A symbol that is not pooled has a class of its own.
    pub class_of: Vec<u32>,
    /// The share of each symbol in its class: n values, 1 for a symbol with a class of its own.
    pub share: Vec<f64>,
    /// The class of the pooled symbols, if there are any.
    pub pool: Option<u32>,
    /// Transition and emission probabilities, if they are recovered or refined.
    pub hidden: Option<Hidden>,
}

impl HmmModel {
    /// The number of operators.
    pub(crate) fn n_classes(&self) -> usize {
        self.operators.len() / (self.rank * self.rank).max(1)
    }

    /// The operator of a class: k × k, row-major.
    pub(crate) fn operator(&self, class: u32) -> &[f64] {
        let size = self.rank * self.rank;
        &self.operators[class as usize * size..][..size]
    }

    /// The share of a symbol among all positions of all windows. None if it is in no window.
    pub(crate) fn share_of(&self, symbol: u32) -> Option<f64> {
        let share = self.unigram.get(symbol as usize).copied();
        share.filter(|share| *share > 0.0)
    }

    /// Whether a symbol shares its operator with other symbols.
    pub(crate) fn is_pooled(&self, symbol: u32) -> bool {
        self.pool == Some(self.class_of[symbol as usize])
    }

    /// Σ_x B_x: k × k, row-major.
    pub(crate) fn sum_of_operators(&self) -> Vec<f64> {
        let size = self.rank * self.rank;
        let mut sum = vec![0.0; size];
        for operator in self.operators.chunks_exact(size.max(1)) {
            sum.iter_mut().zip(operator).for_each(|(sum, b)| *sum += b);
        }
        sum
    }

    /// P̂r(x₁, …, x_t), which may be negative or above 1 (6).
    pub fn probability(&self, symbols: &[u32]) -> f64 {
        let k = self.rank;
        let mut state = self.initial.clone();
        for &symbol in symbols {
            let b = self.operator(self.class_of[symbol as usize]);
            let share = self.share[symbol as usize];
            let rows = b.chunks_exact(k);
            state = rows.map(|row| share * dot(row, &state)).collect();
        }
        dot(&self.last, &state)
    }
}

/// A hidden Markov model with transition and emission probabilities.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Hidden {
    /// Pr(y₁ = i): m values.
    pub initial: Vec<f64>,
    /// Pr(y_{t+1} = i | y_t = j): m × m, row-major, columns add up to 1.
    pub transition: Vec<f64>,
    /// Pr(x_t = x | y_t = j): n × m, row-major, columns add up to 1.
    pub emission: Vec<f64>,
}

impl Hidden {
    /// The number of hidden states, m.
    pub(crate) fn states(&self) -> usize {
        self.initial.len()
    }

    /// The number of symbols, n.
    pub(crate) fn symbols(&self) -> usize {
        self.emission.len() / self.states().max(1)
    }

    /// The observable operators A_x = T diag(O_x) with b₁ = π and b_∞ = 1 (1).
    pub fn model(&self, unigram: Vec<f64>) -> HmmModel {
        let (m, n) = (self.states(), self.symbols());
        let mut operators = Vec::with_capacity(n * m * m);
        for row in self.emission.chunks_exact(m) {
            for to in self.transition.chunks_exact(m) {
                operators.extend(to.iter().zip(row).map(|(t, o)| t * o));
            }
        }
        HmmModel {
            rank: m,
            n_symbols: n,
            operators,
            initial: self.initial.clone(),
            last: vec![1.0; m],
            unigram,
            class_of: (0..n as u32).collect(),
            share: vec![1.0; n],
            pool: None,
            hidden: Some(self.clone()),
        }
    }
}

/// What makes a fit doubtful.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) enum Warning {
    /// All rows show one symbol, so the rank is 1.
    OneSymbol {
        /// The rank that was asked for.
        rank: usize,
    },
    /// The rank cuts between two equal singular values, so the last direction is arbitrary.
    EqualValues {
        /// The rank.
        rank: usize,
        /// σ_k.
        last: f64,
        /// σ_{k+1}.
        next: f64,
    },
    /// The decomposition stopped before its residuals were small.
    NotConverged {
        /// The largest residual.
        residual: f64,
    },
    /// Transition and emission probabilities could not be recovered from the operators. The
    /// Baum–Welch algorithm starts from random ones.
    NotRecovered,
    /// The Baum–Welch algorithm was stopped by `n_iter`.
    Iterations {
        /// The number of iterations.
        iterations: usize,
        /// The gain of the last iteration, in nats per symbol.
        gain: f64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Warning::OneSymbol { rank } => write!(
                f,
                "all rows show one symbol: the rank is 1 in place of {rank}"
            ),
            Warning::EqualValues { rank, last, next } => {
                write!(
                    f,
                    "rank {rank} cuts between the equal singular values {last:.4} and {next:.4}; \
                     the last dimension is arbitrary"
                )?;
                if *last > 1.0 - 1e-6 {
                    let what = "; values of 1 come from symbols that occur only with each other, \
                                and `min_count` pools rare symbols";
                    f.write_str(what)?;
                }
                Ok(())
            }
            Warning::NotConverged { residual } => write!(
                f,
                "the singular value decomposition has not converged: its largest residual is \
                 {residual:.1e}"
            ),
            Warning::NotRecovered => write!(
                f,
                "transition and emission probabilities cannot be recovered from the operators; \
                 decrease `rank`"
            ),
            Warning::Iterations { iterations, gain } => write!(
                f,
                "the Baum–Welch algorithm was stopped after {iterations} iterations, of which the \
                 last one gained {gain:.1e} nats per symbol; increase `n_iter`"
            ),
        }
    }
}
