//! Tasks of a run over counts: rows → counts, and counts of several partitions and lags → their
//! models.

use crate::error::{Error, Kind, Result};
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::checkpoints::NoCheckpoints;
use crate::evidence::pass::packed::pack;
use crate::memory;
use crate::output::number::grouped;
use crate::output::parts::Piece;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::counts::CountsPlan;
use crate::read::counts::counted::Counted;
use crate::run::Planned;
use crate::run::counting::rounds;
use crate::run::counting::tasks::{CountingWork, CountsGroup, read_counts};
use crate::run::counts::kind::CountsKind;
use crate::run::counts::model::{self, fit_model, names};
use crate::run::counts::record::Timings;
use crate::run::counts::unit_pass::UnitPass;
use crate::run::progress::Silent;
use crate::run::workers::executor::{TaskExecutor, blocking};
use crate::run::workers::slices::{Split, Width};
use crate::run::workers::task::{TaskPlace, Tasks};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The work of a task of a run over counts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum CountsWork {
    /// Work that counts rows.
    Counting(CountingWork),
    /// Counts → models, each a [`StoredModel`] or an error. `labels`: the number of sets of each
    /// given partition.
    Fit {
        groups: Vec<CountsGroup>,
        labels: Vec<usize>,
    },
    /// Counts → the same in units: [`Cut`](crate::run::counts::unit_pass::Cut).
    Cut {
        group: CountsGroup,
        /// Number of tasks that can run at once.
        slots: u64,
    },
    /// A unit of a pass → its output rows.
    Pass(UnitPass),
}

impl Tasks for CountsKind {
    type Work = CountsWork;

    fn name(work: &CountsWork) -> &'static str {
        match work {
            CountsWork::Counting(work) => work.name(),
            CountsWork::Fit { .. } => "fit",
            CountsWork::Cut { .. } => "cut",
            CountsWork::Pass(_) => "pass",
        }
    }

    async fn perform(place: TaskPlace, work: CountsWork) -> Result<Vec<u8>> {
        if let CountsWork::Counting(work) = work {
            return place.executor()?.counting(work).await;
        }
        let executor: TaskExecutor<CountsPlan> = place.executor()?;
        match work {
            CountsWork::Fit { groups, labels } => pack(&executor.fit(groups, labels).await?),
            CountsWork::Cut { group, slots } => pack(&executor.cut(group, slots).await?),
            CountsWork::Pass(pass) => executor.pass(pass).await,
            CountsWork::Counting(_) => Err(Error::bug("counting has a plan of its own")),
        }
    }

    fn width(planned: &Planned<CountsKind>) -> Result<Width, String> {
        rounds::width(&planned.plan.counting(), &planned.frame)
    }

    async fn split(planned: &Planned<CountsKind>, split: u64) -> Result<Option<Split>> {
        let (plan, lake, frame) = (&planned.plan, &planned.lake, &planned.frame);
        rounds::check(&plan.counting())?;
        let bounds = lake.bounds(frame.clone(), &plan.layout).await?;
        let none = || format!("none has more than {} non-zeros", grouped(split as f64));
        let not_split = match plan.most_nonzeros(bounds) {
            Some(nonzeros) if nonzeros <= split => Some(none()),
            _ => plan.by_passes().err(),
        };
        Ok(Some(Split { split, not_split }))
    }
}

/// A model in the store of the output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StoredModel {
    /// A `FittedModel` without its matrix, which the store already has.
    pub model: Piece,
    /// How the fits went.
    pub timings: Timings,
}

impl TaskExecutor<CountsPlan> {
    /// Fits a model to each matrix.
    ///
    /// # Errors
    /// If a store fails, or this machine has too little memory.
    pub(crate) async fn fit(
        &self,
        groups: Vec<CountsGroup>,
        labels: Vec<usize>,
    ) -> Result<Vec<Result<StoredModel, (Kind, String)>>> {
        let mut units: Vec<(Arc<RunSchema>, CountMatrix)> = Vec::new();
        for group in groups {
            let head: Counted = self.unpacked(&group.head).await?;
            let names = Arc::new(names(&self.plan, &head, &labels));
            for pieces in &group.counts {
                let pieces = self.pieces(pieces).await?;
                let mut counts = read_counts(&pieces[0], &pieces[1])?;
                counts.relabel(&group.labels);
                self.check_memory(&counts)?;
                units.push((Arc::clone(&names), counts));
            }
        }
        let plan = Arc::clone(&self.plan);
        let fitted = blocking(move || {
            let fit = |(names, counts): (Arc<RunSchema>, CountMatrix)| {
                let (mut model, timings) =
                    fit_model(&plan, &names, counts, &NoCheckpoints, &Silent)?;
                model.counts.by_source.clear();
                Ok::<_, Error>((pack(&model)?, timings))
            };
            Ok(units.into_par_iter().map(fit).collect::<Vec<_>>())
        });
        let (mut models, mut answers) = (Vec::new(), Vec::new());
        for one in fitted.await? {
            answers.push(match one {
                Ok((model, timings)) => {
                    models.push(model);
                    Ok(timings)
                }
                Err(e) => Err((e.kind(), e.full())),
            });
        }
        let mut models = self.put(models).await?.into_iter();
        let answers = answers.into_iter().map(|answer| match answer {
            Ok(timings) => {
                let model = models.next();
                let model = model.ok_or_else(|| Error::bug("a model is not there"))?;
                Ok(Ok(StoredModel { model, timings }))
            }
            Err(e) => Ok(Err(e)),
        });
        answers.collect()
    }

    /// Fails if this machine has too little memory. Another machine may have enough.
    fn check_memory(&self, counts: &CountMatrix) -> Result<()> {
        let (size, threads) = (model::size(counts), rayon::current_num_threads());
        let checked = self.plan.check_memory(size, threads, memory::limit());
        checked.map_err(|e| Error::new(Kind::Resources, e.full()))
    }
}
