//! Filters batches of rows with all filters at once.
//!
//! In: batches in the order of their rows. Out: the estimates of each filter. The trajectories of a
//! batch are filtered in parallel; the state of the last one is carried to the next batch. A row's
//! estimates depend on the earlier rows of its sequence alone.

use crate::error::Result;
use crate::evidence::observations::Supervision;
use crate::methods::filter::model::{Estimates, FilterModel, FilterState};
use crate::read::observations::ObservationBatch;
use crate::read::rows::ordered::{Link, Piece, TrajectoryPart};
use crate::read::rows::split::Split;
use crate::run::observations::fit_rows::Steps;
use crate::run::trajectories::{self, score_tasks, tasks};
use std::ops::Range;

/// Rows that one task filters with Kalman filters, unless a trajectory has more.
const TASK_ROWS: usize = 4096;

/// The same for filters whose steps take milliseconds.
const KERNEL_TASK_ROWS: usize = 32;

pub(crate) struct RowFilter<'a> {
    pub(crate) model: &'a FilterModel,
    /// Supervision of single steps.
    pub(crate) steps: Option<&'a Steps>,
}

/// Filters batches.
pub(crate) struct Scoring<'a> {
    /// The filters of each partition. None if a partition has no model.
    partitions: &'a [Option<Vec<RowFilter<'a>>>],
    /// Whether training rows are left out.
    held_out: bool,
    task_rows: usize,
    /// The states at the end of the last trajectory, by filter.
    carried: Vec<Option<FilterState>>,
}

/// The estimates of some trajectories of a batch.
pub(crate) type Scored = trajectories::Scored<Estimates>;

/// Supervision by filter and row of a batch; empty for a filter without single steps.
type BatchSupervision<'a> = Vec<Vec<Option<&'a Supervision>>>;

impl<'a> Scoring<'a> {
    /// Filters with the models of each partition.
    pub(crate) fn new(partitions: &'a [Option<Vec<RowFilter<'a>>>], held_out: bool) -> Scoring<'a> {
        let mut filters = partitions.iter().flatten().flatten();
        let is_kernel = filters.any(|own| matches!(own.model, FilterModel::KernelBayes(_)));
        Scoring {
            partitions,
            held_out,
            task_rows: if is_kernel {
                KERNEL_TASK_ROWS
            } else {
                TASK_ROWS
            },
            carried: Vec::new(),
        }
    }

    /// The pieces of a trajectory that are filtered.
    pub(crate) fn pieces<'b>(
        &self,
        batch: &'b ObservationBatch,
        part: &TrajectoryPart,
    ) -> impl Iterator<Item = &'b Piece> + use<'b> {
        let held_out = self.held_out;
        let pieces = batch.pieces[part.pieces.clone()].iter();
        pieces.filter(move |piece| !held_out || piece.split != Split::Train)
    }

    /// Which filters of a partition take the observation of a row.
    pub(crate) fn takes<'b>(
        &self,
        batch: &'b ObservationBatch,
        partition: u32,
        row: usize,
    ) -> impl Iterator<Item = bool> + use<'a, 'b> {
        let numbers = batch.observations.numbers(row);
        let filters = self.filters(partition as usize).iter();
        filters.map(|filter| filter.model.takes(numbers))
    }

    /// The filters of a partition; none if it has no model.
    fn filters(&self, partition: usize) -> &'a [RowFilter<'a>] {
        let own = self.partitions.get(partition).and_then(Option::as_ref);
        own.map_or(&[][..], Vec::as_slice)
    }

    /// Filters the next rows.
    ///
    /// # Errors
    /// If the keys of the rows cannot be compared with those of supervision.
    pub(crate) fn score(&mut self, batch: &ObservationBatch) -> Result<Vec<Scored>> {
        let filters =
            |task: &Range<usize>| self.filters(batch.trajectories[task.start].partition as usize);
        let supervision = self.supervision(batch)?;
        let (scored, carried) = score_tasks(
            tasks(&batch.trajectories, self.task_rows),
            |task| filters(task).len(),
            |task, at| self.filtered(batch, task, &filters(task)[at], at, &supervision),
        );
        if let Some(states) = carried {
            self.carried = states;
        }
        Ok(scored)
    }

    /// The supervision of the rows of a batch.
    fn supervision(&self, batch: &ObservationBatch) -> Result<BatchSupervision<'a>> {
        let Some(first) = self.partitions.iter().flatten().next() else {
            return Ok(Vec::new());
        };
        let of = first.iter().map(|filter| match filter.steps {
            Some(steps) => steps.of_rows(&batch.partition, &batch.key),
            None => Ok(Vec::new()),
        });
        of.collect()
    }

    /// Filters some trajectories. `at` is the number of the filter.
    fn filtered(
        &self,
        batch: &ObservationBatch,
        task: &Range<usize>,
        filter: &RowFilter<'_>,
        at: usize,
        supervision: &BatchSupervision<'_>,
    ) -> (Estimates, Option<FilterState>) {
        let model = filter.model;
        let (width, d) = (model.widths().0, batch.observations.width);
        let mut estimates = Estimates::new(width);
        let mut scratch = model.scratch();
        let mut state = None;
        let supervision = supervision.get(at).filter(|own| !own.is_empty());
        for part in &batch.trajectories[task.clone()] {
            state = None;
            if part.continues {
                state = self.carried.get(at).cloned().flatten();
            }
            for piece in self.pieces(batch, part) {
                let mut current = match (piece.link, state.take()) {
                    (Link::After(steps), Some(mut state)) => {
                        model.predict(&mut state, &mut scratch, steps);
                        state
                    }
                    _ => model.start(),
                };
                let rows = piece.rows.clone();
                let own = &batch.observations.values[rows.start * d..rows.end * d];
                let of_row = |row: usize| supervision.and_then(|own| own[rows.start + row]);
                model.push(&mut current, &mut scratch, own, &of_row, &mut estimates);
                state = Some(current);
            }
        }
        (estimates, state)
    }
}
