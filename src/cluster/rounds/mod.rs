//! Counts and fits a run on other machines, in rounds of tasks. A round begins after the one before
//! it has ended.
//!
//! ```text
//! files ─ deal ─▶ lots of whole trajectories ─ sum ─▶ sums by partition (or by source) ─ add ─▶
//!       ─ count ─▶ matrices ─ fit ─▶ models
//! ```
//!
//! A model that is too large for one machine is fitted in this process, whose passes are rounds of
//! tasks (`passes`): cut ─▶ pass ─▶ pass ─▶ …
//!
//! Large data goes from task to task through the store of the output. This process only holds
//! names, totals and the labels of states. Sums are of integers, so they do not depend on how rows
//! are cut: all tables have the bytes of a run on one machine. The tasks depend on the input alone,
//! so a run that is started again requests the same tasks.

pub mod filters;
mod merge;
pub mod passes;
pub mod points;
mod requests;
pub mod sequences;
pub mod slices;

use crate::cluster::nodes::Nodes;
use crate::cluster::rounds::requests::Requests;
use crate::cluster::rounds::slices::{Width, by_lot, lots, packed, slices};
use crate::cluster::task::counting::{Matrices, Matrix, RowSource, Summed, read_counts};
use crate::cluster::task::fitting::{CountsGroup, StoredModel};
use crate::cluster::task::reading::Slice;
use crate::cluster::task::work::{PlanSite, Work};
use crate::error::{Error, Kind, Result};
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::checkpoints::Checkpoints;
use crate::evidence::pass::packed::unpack;
use crate::output::Fetch;
use crate::output::parts::Piece;
use crate::output::place::Output;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::{Increments, Plan};
use crate::read::counts::counted::Counted;
use crate::read::counts::renumber::{NewNumbers, merge_partitions};
use crate::read::rows::layout::RowRoles;
use crate::read::rows::stop::Dropped;
use crate::run::model;
use crate::run::model::{ModelResult, place_of};
use crate::run::progress::Progress;
use crate::run::record::IncrementRecord;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::Instant;

/// Number of tasks that fits are packed into, unless a model has a larger share of the non-zeros.
const FITS: u64 = 128;

/// Upper limit of the non-zeros of all matrices that are read at once to be written.
const HELD_NONZEROS: u64 = 1 << 22;

/// Requests the tasks of a run.
pub struct Rounds<'a> {
    plan: Arc<Plan>,
    output: &'a Output,
    requests: Requests<'a>,
    /// The checkpoints of fits in this process.
    checkpoints: Arc<dyn Checkpoints + Send>,
    /// A model with more non-zeros than this is fitted by passes on all machines.
    split: u64,
}

/// Counts whose matrices are in the store of the output.
pub struct RemoteCounts {
    /// Everything except the matrices.
    pub counted: Counted,
    /// The matrices by partition and lag.
    pub units: Vec<StoredCounts>,
    /// Why one task has counted everything, if one has.
    pub record: Option<IncrementRecord>,
    /// The `Counted` without matrices of each task, and its new numbers in the whole run.
    heads: Vec<(Piece, NewNumbers)>,
}

/// The counts of one partition and lag.
pub struct StoredCounts {
    /// Number of the partition in the whole run.
    pub partition: usize,
    /// Index into `RemoteCounts::heads`.
    head: usize,
    /// The matrix, with numbers of its task.
    pub matrix: Matrix,
}

/// Matrices in the store of the output.
pub struct StoredMatrices<'a> {
    output: &'a Output,
    plan: String,
    /// The matrix of each model, and the new numbers of its states.
    of_models: Vec<(Piece, Arc<NewNumbers>)>,
    concurrency: usize,
}

impl Fetch for StoredMatrices<'_> {
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

impl<'a> Rounds<'a> {
    /// Stores the plan for the tasks of a run. `split` is the largest number of non-zeros that one
    /// executor fits alone.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn begin(
        plan: &Arc<Plan>,
        output: &'a Output,
        nodes: Arc<dyn Nodes>,
        split: u64,
        checkpoints: Arc<dyn Checkpoints + Send>,
        progress: &'a dyn Progress,
    ) -> Result<Rounds<'a>> {
        Ok(Rounds {
            requests: Requests {
                site: PlanSite::of(&plan.hash, &plan.stores, plan.as_ref(), output).await?,
                nodes,
                progress,
            },
            plan: Arc::clone(plan),
            output,
            checkpoints,
            split,
        })
    }

    /// Counts the rows of `frame`, the query of the plan.
    ///
    /// # Errors
    /// If a task fails.
    pub async fn count(&self, frame: &DataFrame) -> Result<RemoteCounts> {
        let (found, totals, record) = match slices_of(&self.plan, frame) {
            Ok(slices) => {
                let (found, totals) = self.count_slices(slices).await?;
                (found, Some(totals), None)
            }
            Err(why) => {
                let what = format!("all files counted by one task, because {why}");
                tracing::info!("{what}");
                let found = self.requests.all("count", vec![Work::CountAll]).await?;
                (found, None, Some(what))
            }
        };
        let mut remote = self.gather(found).await?;
        let counted = &mut remote.counted;
        if let Some((rows, dropped)) = totals {
            (counted.rows, counted.dropped) = (rows, dropped);
        }
        remote.record = record.map(|what| IncrementRecord {
            what,
            files: self.plan.tables.iter().map(|table| table.files.len()).sum(),
            rows: counted.rows,
            units: 0,
        });
        Ok(remote)
    }

    /// Counts slices of the input separately and adds up. Also returns the number of rows and of
    /// dropped rows.
    async fn count_slices(&self, slices: Vec<Slice>) -> Result<(Vec<Matrices>, (u64, Dropped))> {
        let layout = &self.plan.layout;
        let lots = lots(&self.plan.tables, &slices);
        let rows: Vec<RowSource> = match &layout.evidence {
            RowRoles::Pairs { .. } => slices.into_iter().map(RowSource::Files).collect(),
            RowRoles::Trajectories { .. } | RowRoles::Windows { .. } => {
                let deal = |files| Work::Deal { files, lots };
                let dealt = self
                    .requests
                    .all("deal", slices.into_iter().map(deal).collect());
                by_lot(dealt.await?)
                    .into_iter()
                    .map(RowSource::Dealt)
                    .collect()
            }
        };
        let sum = |rows| Work::Sum { rows, lots };
        let summed: Vec<Summed> = self
            .requests
            .all("sum", rows.into_iter().map(sum).collect())
            .await?;
        let direct = summed.iter().all(|sums| sums.direct);
        let accepted: u128 = summed.iter().map(|sums| sums.accepted).sum();
        let (mut rows, mut dropped) = (0, Dropped::default());
        for sums in &summed {
            rows += sums.rows;
            for (reason, rows) in &sums.dropped.0 {
                dropped.add(reason.clone(), *rows);
            }
        }
        let mut sums = by_lot(summed.into_iter().map(|sums| sums.lots).collect());
        if layout.partition.is_empty() {
            // There is only one matrix, and each lot has other sources of it.
            if sums.iter().any(|lot| lot.len() > 1) {
                let add = |sums| Work::Add { sums, direct };
                let added = self
                    .requests
                    .all("add", sums.into_iter().map(add).collect());
                sums = vec![added.await?];
            } else {
                sums = vec![sums.concat()];
            }
        }
        let count = |sums| Work::Count { sums, direct };
        let found: Vec<Matrices> = self
            .requests
            .all("count", sums.into_iter().map(count).collect())
            .await?;
        let counted: u128 = found.iter().map(|found| found.accepted).sum();
        if accepted != counted {
            let what = format!("tasks accepted {accepted} transitions and counted {counted}");
            return Err(Error::bug(what));
        }
        Ok((found, (rows, dropped)))
    }

    /// Merges everything except the matrices.
    async fn gather(&self, found: Vec<Matrices>) -> Result<RemoteCounts> {
        let pieces: Vec<Piece> = found.iter().map(|found| found.head.clone()).collect();
        let bytes = self.output.pieces(&self.plan.hash, &pieces).await?;
        let heads = bytes.iter().map(|bytes| unpack(bytes));
        let heads = heads.collect::<Result<Vec<Counted>>>()?;
        let (counted, new_numbers) = merge_partitions(&heads)?;
        let mut units = Vec::new();
        let mut named = Vec::with_capacity(found.len());
        for (head, (matrices, new_numbers)) in found.into_iter().zip(new_numbers).enumerate() {
            units.extend(matrices.counts.into_iter().map(|matrix| StoredCounts {
                partition: new_numbers.partitions[matrix.partition as usize] as usize,
                head,
                matrix,
            }));
            named.push((matrices.head, new_numbers));
        }
        units.sort_by_key(|unit| (unit.partition, unit.matrix.lag));
        Ok(RemoteCounts {
            counted,
            units,
            record: None,
            heads: named,
        })
    }

    /// Fits all counts. Returns the model of each unit, or its error.
    ///
    /// # Errors
    /// Those that stop the whole run, such as a failing store.
    pub async fn fit(&self, remote: &RemoteCounts, names: &RunSchema) -> Result<Vec<ModelResult>> {
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
                    let record = model::record(&self.plan, names, &model, timings);
                    Ok((model, record))
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
        let work = bins.iter().map(|bin| Work::Fit {
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
                .pieces(&self.plan.hash, &pieces)
                .await?
                .into_iter();
            for (&at, fitted) in own.iter().zip(answer) {
                let unit = &remote.units[at];
                models[at] = Some(match fitted {
                    Ok(StoredModel { timings, .. }) => {
                        let mut model: FittedModel = unpack(&bytes.next().unwrap_or_default())?;
                        model.counts.renumber(&remote.heads[unit.head].1);
                        let record = model::record(&self.plan, names, &model, timings);
                        Ok((model, record))
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

    /// The counts with all matrices, read from the store of the output.
    ///
    /// # Errors
    /// If the store fails.
    pub async fn whole(&self, remote: RemoteCounts) -> Result<Counted> {
        let RemoteCounts {
            mut counted,
            units,
            heads,
            ..
        } = remote;
        for unit in units {
            let pieces = [unit.matrix.counts, unit.matrix.groups];
            let bytes = self.output.pieces(&self.plan.hash, &pieces).await?;
            let mut counts = read_counts(&bytes[0], &bytes[1])?;
            counts.renumber(&heads[unit.head].1);
            counted.counts.push(counts);
        }
        Ok(counted)
    }

    /// The matrices of the models, to be read from the store of the output.
    pub fn matrices(&self, remote: RemoteCounts, models: &[ModelResult]) -> StoredMatrices<'a> {
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
            output: self.output,
            plan: self.plan.hash.clone(),
            of_models: of_models.collect(),
            concurrency: (HELD_NONZEROS / largest.unwrap_or(0).max(1)).clamp(1, 16) as usize,
        }
    }
}

/// Slices of the input whose counts add up.
///
/// # Errors
/// Why the counts of the slices would not add up.
fn slices_of(plan: &Plan, frame: &DataFrame) -> Result<Vec<Slice>, String> {
    if plan.layout.evidence.weight().is_some() {
        return Err("weights are no integers".into());
    }
    slices(&plan.tables, frame)
}

/// Checks that a plan can run on other machines.
///
/// # Errors
/// [`Kind::Spec`] if it cannot.
pub fn check(plan: &Plan) -> Result<()> {
    if let Increments::Of { .. } = plan.increments {
        let what = "`job.incremental` counts new files on one machine; set it to false to count all of them on several";
        return Err(Error::spec(what));
    }
    Ok(())
}

/// The width of a plan.
///
/// # Errors
/// Why one task reads all files.
pub fn width(plan: &Plan, frame: &DataFrame) -> Result<Width, String> {
    let slices = slices_of(plan, frame)?;
    let is_dealt = plan.layout.evidence.trajectories().is_some();
    let is_added = plan.layout.partition.is_empty() && (is_dealt || slices.len() > 1);
    let rounds = [
        ("deal", is_dealt),
        ("sum", true),
        ("add", is_added),
        ("count", true),
    ];
    let rounds = rounds.into_iter().filter(|(_, is_made)| *is_made);
    Ok(Width {
        slices: slices.len() as u64,
        lots: lots(&plan.tables, &slices) as u64,
        rounds: rounds.map(|(name, _)| name).collect(),
    })
}

/// Units, grouped by numbering.
fn groups(remote: &RemoteCounts, units: &[usize]) -> Vec<CountsGroup> {
    let units = units.iter().map(|&at| &remote.units[at]);
    let units: Vec<&StoredCounts> = units.collect();
    let groups = units.chunk_by(|a, b| a.head == b.head).map(|own| {
        let (head, new_numbers) = &remote.heads[own[0].head];
        let pieces =
            |unit: &&StoredCounts| [unit.matrix.counts.clone(), unit.matrix.groups.clone()];
        CountsGroup {
            head: head.clone(),
            labels: new_numbers.labels.clone(),
            counts: own.iter().map(pieces).collect(),
        }
    });
    groups.collect()
}
