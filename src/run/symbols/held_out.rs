//! Held-out scores: the mean log-likelihood of rows that a model was not fitted to.
//!
//! One pass over the rows scores all ranks, fits and folds. The standard error is one over
//! trajectories. Two ranks are compared by the differences of their scores of each trajectory, so
//! what all ranks find hard to predict does not blur the comparison.

use crate::assess::crossval::Score;
use crate::error::Result;
use crate::output::tables::symbols::{HeldOutScore, RankScore};
use crate::read::rows::split::Split;
use crate::read::symbols::{SymbolBatch, SymbolInput, read};
use crate::run::symbols::scoring::{PartitionScorers, Scored, Scoring};

/// The unigram model of a partition: shares of symbols, by fold.
pub(crate) struct Unigrams<'a> {
    /// By fold. A symbol that is in no window of the fold has the share 0.
    pub(crate) shares: &'a [Vec<f64>],
    /// The smallest probability.
    pub(crate) floor: f64,
}

/// The scores of all models of a partition.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HeldOutSums {
    /// The number of models, S.
    n: usize,
    /// Σ vvᵀ over trajectories, with v the log-likelihoods of the models and the number of rows:
    /// (S + 1) × (S + 1), row-major.
    products: Vec<f64>,
    /// Σ v.
    sums: Vec<f64>,
    trajectories: u64,
    /// Rows with an unseen symbol.
    pub(crate) unseen: u64,
    /// The log-likelihoods of these rows, by model.
    pub(crate) of_unseen: Vec<f64>,
    /// The sum of the log-likelihoods by the shares of the symbols.
    pub(crate) unigram: f64,
}

impl HeldOutSums {
    pub(crate) fn new(n: usize) -> HeldOutSums {
        HeldOutSums {
            n,
            products: vec![0.0; (n + 1) * (n + 1)],
            sums: vec![0.0; n + 1],
            trajectories: 0,
            unseen: 0,
            of_unseen: vec![0.0; n],
            unigram: 0.0,
        }
    }

    /// Adds a trajectory: the log-likelihoods of the models, and the number of rows.
    pub(crate) fn add(&mut self, values: &[f64]) {
        self.trajectories += 1;
        let size = self.n + 1;
        for (i, a) in values.iter().enumerate() {
            self.sums[i] += a;
            for (sum, b) in self.products[i * size..][..size].iter_mut().zip(values) {
                *sum += a * b;
            }
        }
    }

    /// Rows that were scored.
    pub(crate) fn rows(&self) -> f64 {
        self.sums.last().copied().unwrap_or(0.0)
    }

    /// The mean per row of model `a`, or its difference to model `b`, and the standard error over
    /// trajectories: that of a ratio of two sums (Cochran, *Sampling Techniques*, 1977, ch. 6).
    pub(crate) fn mean(&self, a: usize, b: Option<usize>) -> Option<Score> {
        let rows = self.rows();
        if rows == 0.0 {
            return None;
        }
        let size = self.n + 1;
        // The residual of a trajectory is wᵀv, with the mean as the weight of its rows.
        let mut w = vec![0.0; size];
        w[a] += 1.0;
        if let Some(b) = b {
            w[b] -= 1.0;
        }
        let sum: f64 = w.iter().zip(&self.sums).map(|(w, s)| w * s).sum();
        let mean = sum / rows;
        w[self.n] -= mean;
        let of_row = |i: usize| {
            let row = self.products[i * size..][..size].iter();
            w[i] * row.zip(&w).map(|(p, w)| p * w).sum::<f64>()
        };
        let squares: f64 = (0..size).map(of_row).sum();
        let n = self.trajectories as f64;
        let error = if n > 1.0 {
            (squares.max(0.0) * n / (n - 1.0)).sqrt() / rows
        } else {
            0.0
        };
        Some(Score { mean, error })
    }

    /// The score of a model. None without rows.
    pub(crate) fn score(&self, model: usize) -> Option<HeldOutScore> {
        let score = self.mean(model, None)?;
        Some(HeldOutScore {
            score,
            rows: self.rows() as u64,
            unseen: self.unseen,
            unseen_cost: -self.of_unseen[model] / self.rows(),
            unigram: self.unigram / self.rows(),
        })
    }

    /// The rank that the scores choose, and the scores. `candidates` are ranks, ascending, with the
    /// model of each rank; a rank without a model is never chosen. None without scores.
    ///
    /// The smallest rank is chosen whose score is at most one standard error of the difference
    /// below the best.
    pub(crate) fn choose(
        &self,
        candidates: &[(usize, Option<usize>)],
    ) -> Option<(usize, Vec<RankScore>)> {
        let scored: Vec<(usize, usize, Score)> = candidates
            .iter()
            .filter_map(|&(rank, model)| Some((rank, model?, self.mean(model?, None)?)))
            .collect();
        let (mut best, mut model, mut score) = *scored.first()?;
        for &(rank, other, found) in &scored {
            if found.mean > score.mean {
                (best, model, score) = (rank, other, found);
            }
        }
        let is_enough = |other: usize| {
            let below = self.mean(model, Some(other));
            below.is_some_and(|below| below.mean <= below.error)
        };
        let near = scored.iter().find(|of| of.1 == model || is_enough(of.1));
        let &(rank, chosen, found) = near?;
        let mut why = if rank == best {
            format!(
                "best held-out log-likelihood, {:.4} ± {:.4} nats per symbol",
                score.mean, score.error
            )
        } else {
            let below = self.mean(model, Some(chosen))?;
            format!(
                "held-out log-likelihood of {:.4} nats per symbol, {:.4} ± {:.4} below that of rank {best}",
                found.mean, below.mean, below.error
            )
        };
        if scored.len() > 1 && scored.last().is_some_and(|last| last.0 == rank) {
            why += "; no larger rank was tried";
        }
        let scores = candidates.iter().map(|&(of, model)| RankScore {
            rank: of,
            held_out: model.and_then(|model| self.score(model)),
            reason: (of == rank).then(|| why.clone()),
        });
        Some((rank, scores.collect()))
    }
}

/// The trajectory that the next rows may continue.
struct Open {
    partition: u32,
    /// The log-likelihoods of the models, and the number of rows.
    values: Vec<f64>,
}

/// Adds up the scores of trajectories.
struct Sums<'a> {
    scoring: Scoring<'a>,
    /// By partition.
    unigrams: &'a [Option<Unigrams<'a>>],
    open: Option<Open>,
    all: Vec<HeldOutSums>,
}

impl Sums<'_> {
    fn push(&mut self, batch: &SymbolBatch) {
        let symbols = self.scoring.symbols(batch);
        for task in self.scoring.score(batch, &symbols) {
            self.add(batch, &symbols, &task);
        }
    }

    fn add(&mut self, batch: &SymbolBatch, symbols: &[u32], task: &Scored) {
        let mut at = 0;
        for place in task.trajectories.clone() {
            let part = &batch.trajectories[place];
            if !part.continues || self.open.is_none() {
                self.close();
                self.open = Some(Open {
                    partition: part.partition,
                    values: vec![0.0; task.by_filter.len() + 1],
                });
            }
            let Some(open) = &mut self.open else { return };
            let group = batch.groups.get(place);
            let fold = self.scoring.of(part.partition).map(|own| own.fold(group));
            let unigrams = self.unigrams.get(part.partition as usize);
            let unigrams = unigrams.and_then(Option::as_ref);
            let sums = &mut self.all[part.partition as usize];
            for piece in self.scoring.pieces(batch, part) {
                let n = piece.rows.len();
                for (sum, scores) in open.values.iter_mut().zip(&task.by_filter) {
                    // One by one, so that the sum does not depend on the borders of batches.
                    for log_likelihood in &scores.of_rows.log_likelihood[at..at + n] {
                        *sum += log_likelihood;
                    }
                }
                if let Some(rows) = open.values.last_mut() {
                    *rows += n as f64;
                }
                for (row, &symbol) in (at..).zip(&symbols[piece.rows.clone()]) {
                    let Some((own, fold)) = unigrams.zip(fold) else {
                        continue;
                    };
                    let share = own.shares[fold].get(symbol as usize).copied();
                    let share = share.filter(|share| *share > 0.0);
                    sums.unigram += share.unwrap_or(0.0).max(own.floor).ln();
                    if share.is_none() {
                        sums.unseen += 1;
                        for (sum, scores) in sums.of_unseen.iter_mut().zip(&task.by_filter) {
                            *sum += scores.of_rows.log_likelihood[row];
                        }
                    }
                }
                at += n;
            }
        }
    }

    /// Ends the open trajectory.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let has_rows = open.values.last().is_some_and(|rows| *rows > 0.0);
        if let Some(sums) = self.all.get_mut(open.partition as usize)
            && has_rows
            && sums.n + 1 == open.values.len()
        {
            sums.add(&open.values);
        }
    }
}

/// Scores the held-out rows with all models. `only` is the split of these rows. `partitions` makes
/// the models of an attempt to read the rows. Returns the sums by partition.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn score<'a>(
    input: SymbolInput<'_>,
    only: Split,
    unigrams: &'a [Option<Unigrams<'a>>],
    partitions: impl Fn() -> Vec<Option<PartitionScorers<'a>>>,
) -> Result<Vec<HeldOutSums>> {
    let start = || {
        let partitions = partitions();
        let n =
            |own: &Option<PartitionScorers<'_>>| own.as_ref().map_or(0, |own| own.scorers.len());
        let all = partitions.iter().map(|own| HeldOutSums::new(n(own)));
        Ok(Sums {
            all: all.collect(),
            scoring: Scoring::new(partitions, false, Some(only)),
            unigrams,
            open: None,
        })
    };
    let push = |sums: &mut Sums<'a>, batch: SymbolBatch| {
        sums.push(&batch);
        Ok(())
    };
    let (mut sums, _) = read(input, start, push).await?;
    sums.close();
    Ok(sums.all)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Two trajectories of 2 and 4 rows. Model 0 scores −2 and −8, model 1 scores −4 and −6:
    // means of −10/6 for both.
    #[test]
    fn errors_are_those_of_ratios_over_trajectories() {
        let mut sums = HeldOutSums::new(2);
        sums.add(&[-2.0, -4.0, 2.0]);
        sums.add(&[-8.0, -6.0, 4.0]);
        let score = sums.mean(0, None).expect("rows");
        assert!((score.mean + 10.0 / 6.0).abs() < 1e-15);
        // Residuals −2 + 10/3 and −8 + 20/3: √(2 · 2 · 16/9) / 6.
        let error = (4.0f64 * 16.0 / 9.0).sqrt() / 6.0;
        assert!((score.error - error).abs() < 1e-14);
        let difference = sums.mean(0, Some(1)).expect("rows");
        // Differences 2 and −2 with mean 0.
        assert!(difference.mean.abs() < 1e-15);
        assert!((difference.error - 16.0f64.sqrt() / 6.0).abs() < 1e-14);
    }

    // Model 1 is better than model 0 by about 1 ± 0.1 a row, model 2 than model 1 by less than its
    // error.
    #[test]
    fn the_smallest_rank_within_one_error_of_the_best_is_chosen() {
        let mut sums = HeldOutSums::new(3);
        for (a, b) in [(0.9, 0.2), (1.1, -0.15), (1.0, 0.1), (1.0, -0.1)] {
            sums.add(&[-30.0, -30.0 + 10.0 * a, -30.0 + 10.0 * (a + b), 10.0]);
        }
        let candidates = [(1, Some(0)), (2, Some(1)), (3, Some(2)), (4, None)];
        let (rank, scores) = sums.choose(&candidates).expect("scores");
        assert_eq!(rank, 2);
        assert!(
            scores[1]
                .reason
                .as_ref()
                .is_some_and(|why| why.contains("below that of rank 3"))
        );
        assert_eq!(scores.iter().filter(|of| of.reason.is_some()).count(), 1);
        assert!(scores[3].held_out.is_none() && scores[0].held_out.is_some());
    }
}
