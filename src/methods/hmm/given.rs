//! Hidden Markov models that the input has: start, transition and emission probabilities.
//!
//! The model is a fit like that of a method: it filters rows, scores them and predicts symbols. Its
//! symbols are those of the counted windows. What it emits beside them has an operator of its own,
//! so that its predictions are those of the whole model.

use crate::methods::estimator::{Fault, Parameters, defaults};
use crate::methods::hmm::model::{Hidden, HmmModel};
use crate::methods::hmm::params::predictions;
use crate::methods::query::RowsOf;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A hidden Markov model whose probabilities the input has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GivenHmm {
    /// Start and transition probabilities: rows with the columns `state`, `next` and `probability`.
    /// A row with a null `state` has the probability that a sequence starts in the state `next`. A
    /// pair without a row has the probability 0.
    pub transition: RowsOf,
    /// Emission probabilities: rows with the column `state`, the columns of the symbol and the
    /// column `probability`. A pair without a row has the probability 0.
    pub emission: RowsOf,
    /// The share of the distribution of all symbols in every predicted distribution.
    #[serde(default = "GivenHmm::unigram")]
    #[schemars(range(min = 0, max = 1))]
    pub unigram: f64,
    /// The smallest predicted probability, and the probability of a symbol without an operator.
    #[serde(default = "GivenHmm::floor")]
    #[schemars(range(min = 0))]
    pub floor: f64,
    /// The largest length of the sequences whose probabilities by the other fits are compared with
    /// those of this model, in the table `distances`. 0 for no comparison.
    #[serde(default = "GivenHmm::length")]
    #[schemars(range(max = 100))]
    pub length: usize,
    /// Sequences that are drawn for the lengths of which there are more than a million sequences.
    #[serde(default = "GivenHmm::samples")]
    #[schemars(range(min = 2, max = 1_000_000))]
    pub samples: usize,
}

/// The largest length of compared sequences.
const LONGEST: usize = 100;

/// The largest number of drawn sequences, whose terms are in memory.
const MOST_SAMPLES: usize = 1_000_000;

defaults! { GivenHmm {
    unigram: f64 = 0.0,
    floor: f64 = 1e-12,
    length: usize = 4,
    samples: usize = 10_000,
} }

impl Parameters for GivenHmm {
    const NAME: &'static str = "given_hmm";

    fn describe(&self, _rank: &str) -> String {
        "given HMM, probabilities by SQL".into()
    }

    fn check(&self) -> Result<(), Fault> {
        for (key, rows) in [
            ("transition", &self.transition),
            ("emission", &self.emission),
        ] {
            if rows.sql.trim().is_empty() {
                return Err((key, "has an empty `sql`; write a SELECT statement".into()));
            }
        }
        if self.length > LONGEST {
            let message = format!("must be at most {LONGEST}, not {}", self.length);
            return Err(("length", message));
        }
        if !(2..=MOST_SAMPLES).contains(&self.samples) {
            let message = format!("must be 2 to {MOST_SAMPLES}, not {}", self.samples);
            return Err(("samples", message));
        }
        predictions(self.unigram, self.floor)
    }
}

/// The probabilities of a given model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct GivenProbabilities {
    /// Those of the symbols of a model, whose emission columns may add up to less than 1.
    pub hidden: Hidden,
    /// Emission probabilities of the other symbols: r × m, row-major.
    pub others: Vec<f64>,
}

impl GivenProbabilities {
    /// The probability of each state to show one of the other symbols: m values.
    pub(crate) fn rest(&self) -> Vec<f64> {
        let m = self.hidden.states();
        let mut rest = vec![0.0; m];
        for row in self.others.chunks_exact(m) {
            rest.iter_mut().zip(row).for_each(|(sum, o)| *sum += o);
        }
        rest
    }

    /// The model of all symbols, also of those that no row shows.
    pub(crate) fn whole(&self) -> GivenProbabilities {
        let mut hidden = self.hidden.clone();
        hidden.emission.extend(&self.others);
        GivenProbabilities {
            hidden,
            others: Vec::new(),
        }
    }

    /// The observable operators (1). All other symbols share the last operator.
    pub(crate) fn model(&self, unigram: Vec<f64>) -> HmmModel {
        let m = self.hidden.states();
        let mut model = self.hidden.model(unigram);
        let rest = self.rest();
        if rest.iter().any(|o| *o > 0.0) {
            for to in self.hidden.transition.chunks_exact(m) {
                let entries = to.iter().zip(&rest).map(|(t, o)| t * o);
                model.operators.extend(entries);
            }
            model.pool = Some(model.n_symbols as u32);
        }
        model
    }
}

/// ‖Σ_x b_∞ᵀB_x − b_∞ᵀ‖₂ of a model.
pub(crate) fn normalisation_gap(model: &HmmModel) -> f64 {
    let k = model.rank;
    let sum = model.sum_of_operators();
    let gap = |j: usize| {
        let sums = (0..k).map(|i| model.last[i] * sum[i * k + j]);
        sums.sum::<f64>() - model.last[j]
    };
    (0..k).map(|j| gap(j).powi(2)).sum::<f64>().sqrt()
}

/// The bytes of a model with this number of states and symbols, and of what it is made from.
pub(crate) fn bytes(states: u64, symbols: u64) -> u64 {
    let operators = symbols
        .saturating_add(1)
        .saturating_mul(states.saturating_mul(states));
    let emission = symbols.saturating_mul(states);
    operators.saturating_add(2 * emission).saturating_mul(8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::hmm::filtering::Filter;

    /// Two states that show the symbols a, b and c.
    ///
    /// π = (¼, ¾), T = [½ 1; ½ 0], O = [½ 0; ½ ½; 0 ½].
    fn weather() -> Hidden {
        Hidden {
            initial: vec![0.25, 0.75],
            transition: vec![0.5, 1.0, 0.5, 0.0],
            emission: vec![0.5, 0.0, 0.5, 0.5, 0.0, 0.5],
        }
    }

    #[test]
    fn wrong_keys_are_named() {
        let read = |json: &str| serde_json::from_str::<GivenHmm>(json).expect("keys");
        let sound = r#"{"transition": {"sql": "a"}, "emission": {"sql": "b"}}"#;
        let own = read(sound);
        assert_eq!((own.check(), own.unigram, own.floor), (Ok(()), 0.0, 1e-12));
        let key = |own: GivenHmm| own.check().map_err(|fault| fault.0);
        let empty = read(&sound.replace("\"b\"", "\" \""));
        assert_eq!(key(empty), Err("emission"));
        let (mut whole, mut zero) = (own.clone(), own);
        whole.unigram = 1.0;
        zero.floor = 0.0;
        assert_eq!((key(whole), key(zero)), (Err("unigram"), Err("floor")));
        let (mut long, mut few) = (read(sound), read(sound));
        assert_eq!((long.length, few.samples), (4, 10_000));
        (long.length, few.samples) = (101, 1);
        assert_eq!((key(long), key(few)), (Err("length"), Err("samples")));
    }

    // Pr(b) = ½, Pr(b, a): the state after b is (½·¼·½ + ¾·½, ¼·½·½) = (7/16, 1/16), and a is shown
    // in the first state alone: 7/32.
    #[test]
    fn a_model_filters_by_its_probabilities() {
        let own = GivenProbabilities {
            hidden: weather(),
            others: Vec::new(),
        };
        let model = own.model(vec![1.0 / 3.0; 3]);
        assert_eq!((model.rank, model.n_classes(), model.pool), (2, 3, None));
        assert!((model.probability(&[1, 0]) - 7.0 / 32.0).abs() < 1e-15);
        assert_eq!(normalisation_gap(&model), 0.0);
        let score = Filter::new(&model, 0.0, 1e-12).score(&[1, 0]);
        assert!((score.log_likelihood - (7.0f64 / 32.0).ln()).abs() < 1e-14);
    }

    // Without the symbol c, the probabilities of a and b stay as they are.
    #[test]
    fn symbols_that_no_row_shows_keep_their_probability() {
        let whole = weather();
        let own = GivenProbabilities {
            hidden: Hidden {
                emission: whole.emission[..4].to_vec(),
                ..whole.clone()
            },
            others: whole.emission[4..].to_vec(),
        };
        let model = own.model(vec![0.5; 2]);
        assert_eq!((model.n_symbols, model.n_classes()), (2, 3));
        assert!((0..2).all(|symbol| !model.is_pooled(symbol)));
        assert_eq!(normalisation_gap(&model), 0.0);
        let filter = Filter::new(&model, 0.0, 1e-12);
        let start = filter.distribution(&filter.start());
        // Pr(a) = ¼ · ½, Pr(b) = ½.
        assert!((start[0] - 0.125).abs() < 1e-15 && (start[1] - 0.5).abs() < 1e-15);
        let scores = filter.score(&[1, 0]);
        assert!((scores.log_likelihood - (7.0f64 / 32.0).ln()).abs() < 1e-14);
        let next = Filter::new(&model, 0.0, 1e-12).with_next();
        let (mut state, mut out) = (next.start(), Default::default());
        next.push(&mut state, &[1], &mut out);
        // After b: Pr(a) = 7/16, Pr(b) = ½.
        assert_eq!(out.next, [1]);
    }
}
