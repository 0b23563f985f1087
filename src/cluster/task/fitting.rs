//! CountMatrix of several partitions and lags → their models.

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
use crate::read::counts::counted::Counted;
use crate::run::model::{fit_model, names};
use crate::run::progress::Silent;
use crate::run::record::Timings;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// CountMatrix of one numbering.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Group {
    /// What is beside the counts.
    pub head: Piece,
    /// What the labels of each given partition are called in all of the run.
    pub labels: Vec<Vec<u32>>,
    /// CountMatrix and their groups.
    pub counts: Vec<[Piece; 2]>,
}

/// A model.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Fitted {
    /// A `FittedModel` whose counts have no matrix: that is where it was.
    pub model: Piece,
    pub told: Timings,
}

impl TaskExecutor {
    pub async fn fit(
        &self,
        groups: Vec<Group>,
        labels: Vec<usize>,
    ) -> Result<Vec<Result<Fitted, (Kind, String)>>> {
        let mut units: Vec<(Arc<RunSchema>, CountMatrix)> = Vec::new();
        for group in groups {
            let head = self.output.piece(&self.plan.hash, &group.head).await?;
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
                let (mut model, told) = fit_model(&plan, &names, counts, &NoCheckpoints, &Silent)?;
                model.counts.by_source.clear();
                Ok::<_, Error>((pack(&model)?, told))
            };
            Ok(units.into_par_iter().map(fit).collect::<Vec<_>>())
        });
        let (mut models, mut answers) = (Vec::new(), Vec::new());
        for one in fitted.await? {
            answers.push(match one {
                Ok((model, told)) => {
                    models.push(model);
                    Ok(told)
                }
                Err(e) => Err((e.kind(), e.full())),
            });
        }
        let mut models = self.put(models).await?.into_iter();
        let answers = answers.into_iter().map(|answer| match answer {
            Ok(told) => {
                let model = models.next();
                let model = model.ok_or_else(|| Error::bug("a model is not there"))?;
                Ok(Ok(Fitted { model, told }))
            }
            Err(e) => Ok(Err(e)),
        });
        answers.collect()
    }

    /// What this machine has no memory for, another may have.
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
