//! Runs on other machines, in rounds of tasks. A round begins after the one before it has ended.
//!
//! ```text
//! rows ─ counting ─▶ matrices ─ fit ─▶ models
//! ```
//!
//! A model that is too large for one machine is fitted in this process, whose passes are rounds of
//! tasks (`passes`): cut ─▶ pass ─▶ pass ─▶ …
//!
//! Large data goes from task to task through the store of the output. This process only holds
//! names, totals and the labels of states. Sums are of integers, so they do not depend on how rows
//! are cut: all tables have the bytes of a run on one machine. The tasks depend on the input alone,
//! so a run that is started again requests the same tasks.

use crate::error::{Error, Kind, Result};
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::checkpoints::Checkpoints;
use crate::evidence::pass::packed::unpack;
use crate::output::parts::Piece;
use crate::output::place::Output;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::counts::CountsPlan;
use crate::plan::pipeline::keys::Empty;
use crate::read::counts::renumber::NewNumbers;
use crate::run::counting::rounds::{RemoteCounts, StoredCounts, groups};
use crate::run::counts::fitted::collect;
use crate::run::counts::kind::{CountsKind, Fetch};
use crate::run::counts::model::{ModelResult, check_not_empty, names, place_of};
use crate::run::counts::tasks::{CountsWork, StoredModel};
use crate::run::kind::{Fitted, Running};
use crate::run::workers::Workers;
use crate::run::workers::nodes::Nodes;
use crate::run::workers::requests::Requests;
use crate::run::workers::slices::packed;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;

/// Number of tasks that fits are packed into, unless a model has a larger share of the non-zeros.
const FITS: u64 = 128;

/// Upper limit of the non-zeros of all matrices that are read at once to be written.
const HELD_NONZEROS: u64 = 1 << 22;

/// Requests the tasks that fit models to counts.
pub(crate) struct Rounds<'a> {
    pub(super) plan: Arc<CountsPlan>,
    pub(super) output: &'a Output,
    pub(super) requests: Requests<'a, CountsKind>,
    /// The checkpoints of fits in this process.
    pub(super) checkpoints: Arc<dyn Checkpoints + Send>,
    /// A model with more non-zeros than this is fitted by passes on all machines.
    split: u64,
}

/// Matrices in the store of the output.
pub(crate) struct StoredMatrices {
    output: Output,
    plan: String,
    /// The matrix of each model, and the new numbers of its states.
    of_models: Vec<(Piece, Arc<NewNumbers>)>,
    concurrency: usize,
}

impl Fetch for StoredMatrices {
    fn counts(&self, model: usize) -> BoxFuture<'_, Result<CountMatrix>> {
        Box::pin(async move {
            let (piece, to) = &self.of_models[model];
            let bytes = self.output.piece(&self.plan, piece).await?;
            let mut counts: CountMatrix = unpack(&bytes)?;
            counts.renumber(to);
            Ok(counts)
        })
    }

    fn concurrency(&self) -> usize {
        self.concurrency
    }
}

/// Fits counts whose matrices are in the store of the output.
///
/// # Errors
/// If there are no counts, or those that are not about one model.
pub(super) async fn fit(
    run: &Running<'_, CountsKind>,
    mut remote: RemoteCounts,
) -> Result<Fitted<CountsKind>> {
    let Workers::Remote { nodes, split } = &run.options.workers else {
        return Err(Error::bug("the counts are on other machines"));
    };
    let plan = run.plan;
    let matrices = remote.units.iter().map(|unit| &unit.matrix);
    let matrices = matrices.map(|matrix| (matrix.nonzeros, matrix.left_out));
    check_not_empty(&remote.counted, &matrices.collect::<Vec<_>>(), &plan.times)?;
    let mut empty = Vec::new();
    if plan.job.empty == Empty::Skip {
        remote.units.retain(|unit| {
            let (partition, lag) = (unit.partition, unit.matrix.lag as usize);
            let is_empty = unit.matrix.nonzeros == 0;
            empty.extend(is_empty.then_some((partition, lag)));
            !is_empty
        });
    }
    let counted = &remote.counted;
    let labels: Vec<usize> = counted.labels.iter().map(|l| l.len()).collect();
    let names = names(plan, counted, &labels);
    let rounds = Rounds::begin(run, nodes, *split).await?;
    let results = rounds.fit(&remote, &names).await?;
    let labels = std::mem::take(&mut remote.counted.labels);
    let matrices = rounds.matrices(remote, &results);
    let mut fitted = collect(plan, names, &labels, results, empty)?;
    if plan.markov {
        // The sets of a model are tested on the counts of others.
        for (at, model) in fitted.models.iter_mut().enumerate() {
            model.counts.by_source = matrices.counts(at).await?.by_source;
        }
    }
    fitted.shared.matrices = Some(Box::new(matrices));
    Ok(fitted)
}

impl<'a> Rounds<'a> {
    /// Stores the plan for the tasks of a run. `split` is the largest number of non-zeros that one
    /// executor fits alone.
    ///
    /// # Errors
    /// If the store fails.
    async fn begin(
        run: &Running<'a, CountsKind>,
        nodes: &Arc<dyn Nodes>,
        split: u64,
    ) -> Result<Rounds<'a>> {
        Ok(Rounds {
            requests: Requests::of(run, nodes).await?,
            plan: Arc::clone(run.plan),
            output: run.output,
            checkpoints: Arc::clone(run.work) as Arc<dyn Checkpoints + Send>,
            split,
        })
    }

    /// Fits all counts. Returns the model of each unit, or its error.
    ///
    /// # Errors
    /// Those that stop the whole run, such as a failing store.
    pub(crate) async fn fit(
        &self,
        remote: &RemoteCounts,
        names: &RunSchema,
    ) -> Result<Vec<ModelResult>> {
        let labels: Vec<usize> = remote.counted.labels.iter().map(|l| l.len()).collect();
        let mut models: Vec<Option<ModelResult>> = Vec::new();
        models.resize_with(remote.units.len(), || None);
        let large = self.large(remote);
        let cuts = if large.is_empty() {
            Vec::new()
        } else {
            self.cut(remote, &large).await?
        };
        for (&at, cut) in large.iter().zip(cuts) {
            let (unit, start) = (&remote.units[at], Instant::now());
            let fitted = match cut {
                Ok(cut) => self.fit_by_passes(remote, at, &labels, cut).await,
                Err(e) => Err(e),
            };
            models[at] = Some(match fitted {
                Ok((model, timings)) => {
                    let seconds = start.elapsed().as_secs_f64();
                    let nonzeros = model.nonzeros;
                    tracing::info!(nonzeros, seconds, "a model fitted by passes");
                    Ok((model, timings))
                }
                Err(e) if e.kind().is_retryable() || e.kind() == Kind::Check => return Err(e),
                Err(e) => Err((self.place(names, unit), e)),
            });
        }
        let mut order: Vec<usize> = (0..remote.units.len()).collect();
        order.retain(|at| !large.contains(at));
        // Counts of one numbering together.
        order.sort_by_key(|&at| remote.units[at].head);
        let sizes = order.iter().map(|&at| remote.units[at].matrix.nonzeros);
        let total: u64 = sizes.clone().sum();
        let bins = packed(sizes, total.div_ceil(FITS));
        let work = bins.iter().map(|bin| CountsWork::Fit {
            groups: groups(remote, &order[bin.clone()]),
            labels: labels.clone(),
        });
        let answers = if bins.is_empty() {
            Vec::new()
        } else {
            self.requests.round("fit", work.collect()).await?
        };
        for (bin, answer) in bins.into_iter().zip(answers) {
            let own = &order[bin];
            let answer: Vec<Result<StoredModel, (Kind, String)>> = match answer {
                Ok(answer) => answer,
                // A retryable error stops the run; another one becomes the error of each model.
                Err(e) if e.kind().is_retryable() => return Err(e),
                Err(e) => own.iter().map(|_| Err((e.kind(), e.full()))).collect(),
            };
            if answer.len() != own.len() {
                return Err(Error::bug("a task has fitted other models than requested"));
            }
            let pieces = answer.iter().flatten().map(|fitted| fitted.model.clone());
            let pieces: Vec<Piece> = pieces.collect();
            let mut bytes = self
                .output
                .pieces(&self.plan.job.hash, &pieces)
                .await?
                .into_iter();
            for (&at, fitted) in own.iter().zip(answer) {
                let unit = &remote.units[at];
                models[at] = Some(match fitted {
                    Ok(StoredModel { timings, .. }) => {
                        let mut model: FittedModel = unpack(&bytes.next().unwrap_or_default())?;
                        model.counts.renumber(&remote.heads[unit.head].1);
                        Ok((model, timings))
                    }
                    Err((kind, message)) => {
                        Err((self.place(names, unit), Error::restored(kind, message)))
                    }
                });
            }
        }
        Ok(models.into_iter().flatten().collect())
    }

    /// Indices of the units whose models are fitted by passes on all machines.
    fn large(&self, remote: &RemoteCounts) -> Vec<usize> {
        let units = remote.units.iter().enumerate();
        let large = units.filter(|(_, unit)| unit.matrix.nonzeros > self.split);
        let large: Vec<usize> = large.map(|(at, _)| at).collect();
        match self.plan.by_passes() {
            Err(why) if !large.is_empty() => {
                let models = large.len();
                tracing::warn!(
                    models,
                    "{} non-zeros are passed, but one executor fits each model whole, because {why}",
                    self.split
                );
                Vec::new()
            }
            _ => large,
        }
    }

    fn place(&self, names: &RunSchema, unit: &StoredCounts) -> String {
        place_of(names, unit.partition, unit.matrix.lag as usize)
    }

    /// The matrices of the models, to be read from the store of the output.
    pub(crate) fn matrices(&self, remote: RemoteCounts, models: &[ModelResult]) -> StoredMatrices {
        let RemoteCounts { units, heads, .. } = remote;
        let new_numbers: Vec<_> = heads.into_iter().map(|(_, to)| Arc::new(to)).collect();
        let units = units.into_iter().zip(models);
        let units = units.filter_map(|(unit, model)| model.is_ok().then_some(unit));
        let units: Vec<StoredCounts> = units.collect();
        let largest = units.iter().map(|unit| unit.matrix.nonzeros).max();
        let of_models = units.into_iter().map(|unit| {
            let new_numbers = Arc::clone(&new_numbers[unit.head]);
            (unit.matrix.counts, new_numbers)
        });
        StoredMatrices {
            output: self.output.for_reading(),
            plan: self.plan.job.hash.clone(),
            of_models: of_models.collect(),
            concurrency: (HELD_NONZEROS / largest.unwrap_or(0).max(1)).clamp(1, 16) as usize,
        }
    }
}
