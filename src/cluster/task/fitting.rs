//! Counts of several partitions and lags → their models.

use crate::cluster::task::counting::read_counts;
use crate::cluster::task::executor::{TaskExecutor, blocking};
use crate::error::{Error, Kind, Result};
use crate::evidence::counts::Size;
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::checkpoints::NoCheckpoints;
use crate::evidence::pass::packed::{pack, unpack};
use crate::memory;
use crate::output::parts::Piece;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::counts::CountsPlan;
use crate::read::counts::counted::Counted;
use crate::run::model::{fit_model, names};
use crate::run::progress::Silent;
use crate::run::record::Timings;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Counts whose states and labels have one numbering.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CountsGroup {
    /// A `Counted` without matrices.
    pub head: Piece,
    /// The number in the whole run of each label, per given partition.
    pub labels: Vec<Vec<u32>>,
    /// The matrices, and their counts per resample group.
    pub counts: Vec<[Piece; 2]>,
}

/// A model in the store of the output.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoredModel {
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
            let head = self.output.piece(&self.plan.job.hash, &group.head).await?;
            let head: Counted = unpack(&head)?;
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
        let size = Size {
            sources: counts.source_states.len() as u64,
            targets: counts.target_states.len() as u64,
            nonzeros: counts.nnz() as u64,
        };
        let threads = rayon::current_num_threads();
        let checked = self.plan.check_memory(size, threads, memory::limit());
        checked.map_err(|e| Error::new(Kind::Resources, e.full()))
    }
}
