//! Filters batches of sequences with all models at once.
//!
//! In: batches in the order of their rows. Out: the scores of each model. The trajectories of a
//! batch are filtered in parallel; the state of the last one is carried to the next batch. A row's
//! scores depend on the earlier rows of its sequence alone.

use crate::evidence::counts::groups::Groups;
use crate::methods::hmm::filtering::{Filter, FilterState, Scores};
use crate::methods::hmm::model::UNSEEN;
use crate::read::rows::keys::NONE;
use crate::read::rows::ordered::{Link, Piece, TrajectoryPart};
use crate::read::rows::split::Split;
use crate::read::symbols::SymbolBatch;
use crate::run::trajectories::{self, score_tasks, tasks};
use hashbrown::HashMap;
use std::ops::Range;

/// Rows that one task filters, unless a trajectory has more.
const TASK_ROWS: usize = 4096;

/// Maps the numbers of known symbols to the symbols of a model.
pub(crate) enum SymbolMap {
    /// The numbers below this one are the symbols.
    Same(u32),
    /// Symbol by number.
    Of(HashMap<u32, u32>),
}

impl SymbolMap {
    /// A map for a model whose symbol s has the number `numbers[s]`.
    pub(crate) fn new(numbers: &[u32]) -> SymbolMap {
        if numbers.iter().zip(0..).all(|(number, at)| *number == at) {
            return SymbolMap::Same(numbers.len() as u32);
        }
        SymbolMap::Of(numbers.iter().copied().zip(0..).collect())
    }

    /// The number of symbols.
    pub(crate) fn n_symbols(&self) -> usize {
        match self {
            SymbolMap::Same(n_symbols) => *n_symbols as usize,
            SymbolMap::Of(map) => map.len(),
        }
    }

    /// The symbol of a number, or [`UNSEEN`].
    #[inline]
    pub(crate) fn symbol(&self, number: u32) -> u32 {
        match self {
            _ if number == NONE => UNSEEN,
            SymbolMap::Same(n_symbols) if number < *n_symbols => number,
            SymbolMap::Same(_) => UNSEEN,
            SymbolMap::Of(map) => map.get(&number).copied().unwrap_or(UNSEEN),
        }
    }
}

/// The models of one partition.
pub(crate) struct PartitionScorers<'a> {
    /// The symbols of all of its models.
    pub(crate) symbols: SymbolMap,
    /// By model, one filter, or one for each fold.
    pub(crate) scorers: Vec<Vec<Filter<'a>>>,
    /// The groups of trajectories and the number of folds, if there are folds.
    pub(crate) folds: Option<(&'a Groups, usize)>,
}

impl PartitionScorers<'_> {
    /// The fold of the trajectories of a group, given its hash. A group without a window is in no
    /// fit.
    pub(crate) fn fold(&self, hash: Option<&u32>) -> usize {
        let Some((groups, folds)) = self.folds else {
            return 0;
        };
        let group = hash.and_then(|hash| groups.of_hash(*hash));
        group.map_or(0, |group| group % folds)
    }
}

/// Filters batches.
pub(crate) struct Scoring<'a> {
    /// By partition. None if a partition has no model.
    partitions: Vec<Option<PartitionScorers<'a>>>,
    /// Whether the distribution of the next symbol is computed for every row.
    distributions: bool,
    /// If only rows of one split are filtered.
    only: Option<Split>,
    /// The states at the end of the last trajectory, by model.
    carried: Vec<Option<FilterState>>,
}

/// The scores of some trajectories of a batch.
pub(crate) type Scored = trajectories::Scored<TaskScores>;

/// The scores of the rows of some trajectories by a model.
#[derive(Default)]
pub(crate) struct TaskScores {
    /// What the filter says.
    pub(crate) of_rows: Scores,
    /// The distributions of the next symbol, rows × symbols, if they are wanted.
    pub(crate) distributions: Vec<f64>,
}

/// The scores of some trajectories by a model, and the state after the last row.
type Filtered = (TaskScores, Option<FilterState>);

impl<'a> Scoring<'a> {
    /// Filters with the models of each partition. With `only`, rows of other splits are left out.
    pub(crate) fn new(
        partitions: Vec<Option<PartitionScorers<'a>>>,
        distributions: bool,
        only: Option<Split>,
    ) -> Scoring<'a> {
        Scoring {
            partitions,
            distributions,
            only,
            carried: Vec::new(),
        }
    }

    /// The models of a partition.
    pub(crate) fn of(&self, partition: u32) -> Option<&PartitionScorers<'a>> {
        self.partitions.get(partition as usize)?.as_ref()
    }

    /// The symbol of each row in the model of its partition.
    pub(crate) fn symbols(&self, batch: &SymbolBatch) -> Vec<u32> {
        let mut symbols = vec![UNSEEN; batch.len()];
        for part in &batch.trajectories {
            let Some(own) = self.of(part.partition) else {
                continue;
            };
            for row in part.rows.clone() {
                symbols[row] = own.symbols.symbol(batch.numbers[row]);
            }
        }
        symbols
    }

    /// Filters the next rows. `symbols` are those of [`symbols`](Self::symbols). Trajectories of
    /// partitions without a model have no scores.
    pub(crate) fn score(&mut self, batch: &SymbolBatch, symbols: &[u32]) -> Vec<Scored> {
        let of = |task: &Range<usize>| self.of(batch.trajectories[task.start].partition);
        let (scored, carried) = score_tasks(
            tasks(&batch.trajectories, TASK_ROWS),
            |task| of(task).map_or(0, |own| own.scorers.len()),
            |task, scorer| self.filtered(batch, symbols, task, scorer),
        );
        // A trajectory whose rows are left out has no state, and keeps none for later rows.
        if let Some(states) = carried {
            self.carried = states;
        }
        scored
    }

    /// Filters some trajectories with one model.
    fn filtered(
        &self,
        batch: &SymbolBatch,
        symbols: &[u32],
        task: &Range<usize>,
        scorer: usize,
    ) -> Filtered {
        let mut scores = TaskScores::default();
        let mut state = None;
        let Some(own) = self.of(batch.trajectories[task.start].partition) else {
            return (scores, state);
        };
        for at in task.clone() {
            let part = &batch.trajectories[at];
            let filters = &own.scorers[scorer];
            let filter = match filters.len() {
                1 => &filters[0],
                _ => &filters[own.fold(batch.groups.get(at))],
            };
            state = None;
            if part.continues {
                state = self.carried.get(scorer).cloned().flatten();
            }
            for piece in self.pieces(batch, part) {
                let first = scores.of_rows.was_reset.len();
                let (mut current, is_lost) = match (piece.link, state.take()) {
                    (Link::After(steps), Some(mut state)) => {
                        let is_lost = filter.predict(&mut state, steps);
                        (state, is_lost)
                    }
                    _ => (filter.start(), false),
                };
                let own = &symbols[piece.rows.clone()];
                if self.distributions {
                    for symbol in own.chunks(1) {
                        filter.push(&mut current, symbol, &mut scores.of_rows);
                        scores.distributions.extend(filter.distribution(&current));
                    }
                } else {
                    filter.push(&mut current, own, &mut scores.of_rows);
                }
                // A reset within a gap is one of the row after it.
                if is_lost && let Some(was_reset) = scores.of_rows.was_reset.get_mut(first) {
                    *was_reset = true;
                }
                state = Some(current);
            }
        }
        (scores, state)
    }

    /// The pieces of a trajectory that are filtered.
    pub(crate) fn pieces<'b>(
        &self,
        batch: &'b SymbolBatch,
        part: &TrajectoryPart,
    ) -> impl Iterator<Item = &'b Piece> + use<'b> {
        let only = self.only;
        let pieces = batch.pieces[part.pieces.clone()].iter();
        pieces.filter(move |piece| only.is_none_or(|only| piece.split == only))
    }
}
