//! CountMatrix and fits a run on other machines: in rounds of tasks, each of which waits for the one before it.
//!
//! ```text
//! files ─ deal ─▶ lots of whole trajectories ─ sum ─▶ sums by partition (or by source) ─ add ─▶ ─ count ─▶ matrices ─ fit ─▶ models
//! ```
//!
//! A model that is too large for one machine is fitted here, pass by pass (`passes`): cut ─▶ pass ─▶ pass ─▶ …
//!
//! What is large goes from task to task through the store of the output. Here are its names, totals, and the labels of the states. Sums are of
//! integers, so that it does not matter how the rows were cut: the tables are those of a run on one machine, to the last byte. How many
//! tasks there are depends on the input alone, so that a run that is started again asks for the same ones.

pub mod passes;

use crate::cluster::nodes::Nodes;
use crate::cluster::task::counting::{Matrices, Matrix, Rows, Slice, Summed};
use crate::cluster::task::fitting::{Fitted, Group};
use crate::cluster::task::work::{Site, Work};
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
use crate::read::lake::subset;
use crate::read::lake::subset::Part;
use crate::read::rows::layout::RowRoles;
use crate::read::rows::stop::Dropped;
use crate::run::model;
use crate::run::model::{ModelResult, place_of};
use crate::run::progress::Progress;
use crate::run::record::IncrementRecord;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::{Range, RangeInclusive};
use std::sync::Arc;
use std::time::Instant;

/// Slices of the input, unless one would be larger than [`SLICE_BYTES`].
const SLICES: u64 = 64;
const SLICE_BYTES: u64 = 128 << 20;

/// A file is cut in parts of so many bytes at least: row groups are seldom smaller.
const PART_BYTES: u64 = 32 << 20;

/// Lots that rows and sums are dealt in: one for so many bytes of input, but some for every input and not too many for any.
const LOT_BYTES: u64 = 128 << 20;
const LOTS: RangeInclusive<u64> = 16..=1024;

/// Tasks that fits are packed into, unless a model has a larger share of all non-zeros.
const FITS: u64 = 128;

/// Non-zeros of the matrices that are held here to be written.
const HELD: u64 = 1 << 22;

/// Asks for the tasks of a run.
pub struct Rounds<'a> {
    plan: Arc<Plan>,
    output: &'a Output,
    nodes: Arc<dyn Nodes>,
    progress: &'a dyn Progress,
    site: Site,
    /// What was kept of fits that run here.
    memory: Arc<dyn Checkpoints + Send>,
    /// Models with more non-zeros than that are fitted pass by pass.
    split: u64,
}

/// What was counted, where its matrices are elsewhere.
pub struct Gathered {
    /// Without counts.
    pub counted: Counted,
    /// By partition and lag.
    pub units: Vec<Unit>,
    /// Why one task has counted everything, if it has.
    pub record: Option<IncrementRecord>,
    /// What is beside the matrices where they are, and its numbers here.
    heads: Vec<(Piece, NewNumbers)>,
}

/// The counts of one partition and lag.
pub struct Unit {
    pub partition: usize,
    /// Its place among `Gathered::heads`.
    head: usize,
    pub matrix: Matrix,
}

/// Matrices in the store of the output.
pub struct Stored<'a> {
    output: &'a Output,
    plan: String,
    /// Of each model.
    of: Vec<(Piece, Arc<NewNumbers>)>,
    concurrency: usize,
}

impl Fetch for Stored<'_> {
    fn counts(&self, model: usize) -> BoxFuture<'_, Result<CountMatrix>> {
        Box::pin(async move {
            let (piece, to) = &self.of[model];
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
    pub async fn begin(
        plan: &Arc<Plan>,
        output: &'a Output,
        (nodes, split): (Arc<dyn Nodes>, u64),
        memory: Arc<dyn Checkpoints + Send>,
        progress: &'a dyn Progress,
    ) -> Result<Rounds<'a>> {
        Ok(Rounds {
            site: Site::of(plan, output).await?,
            plan: Arc::clone(plan),
            output,
            nodes,
            progress,
            memory,
            split,
        })
    }

    /// CountMatrix the rows of the plan's query, which is `frame`.
    pub async fn count(&self, frame: &DataFrame) -> Result<Gathered> {
        let (found, totals, record) = match slices(&self.plan, frame) {
            Ok(slices) => {
                let (found, totals) = self.count_slices(slices).await?;
                (found, Some(totals), None)
            }
            Err(why) => {
                let what = format!("all files counted by one task, because {why}");
                tracing::info!("{what}");
                let found = self.all("count", vec![Work::CountAll]).await?;
                (found, None, Some(what))
            }
        };
        let mut gathered = self.gather(found).await?;
        let counted = &mut gathered.counted;
        if let Some((rows, dropped)) = totals {
            (counted.rows, counted.dropped) = (rows, dropped);
        }
        gathered.record = record.map(|what| IncrementRecord {
            what,
            files: self.plan.tables.iter().map(|table| table.files.len()).sum(),
            rows: counted.rows,
            units: 0,
        });
        Ok(gathered)
    }

    /// CountMatrix slices by themselves; returns what they come to together, and the rows of all and those that were dropped.
    async fn count_slices(&self, slices: Vec<Slice>) -> Result<(Vec<Matrices>, (u64, Dropped))> {
        let layout = &self.plan.layout;
        let lots = lots(&self.plan, &slices);
        let rows: Vec<Rows> = match &layout.evidence {
            RowRoles::Pairs { .. } => slices.into_iter().map(Rows::Files).collect(),
            RowRoles::Trajectories { .. } => {
                let deal = |files| Work::Deal { files, lots };
                let dealt = self.all("deal", slices.into_iter().map(deal).collect());
                by_lot(dealt.await?).into_iter().map(Rows::Dealt).collect()
            }
        };
        let sum = |rows| Work::Sum { rows, lots };
        let summed: Vec<Summed> = self.all("sum", rows.into_iter().map(sum).collect()).await?;
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
            // They are of one matrix: lots have its sources apart.
            if sums.iter().any(|lot| lot.len() > 1) {
                let add = |sums| Work::Add { sums, direct };
                let added = self.all("add", sums.into_iter().map(add).collect());
                sums = vec![added.await?];
            } else {
                sums = vec![sums.concat()];
            }
        }
        let count = |sums| Work::Count { sums, direct };
        let found: Vec<Matrices> = self
            .all("count", sums.into_iter().map(count).collect())
            .await?;
        let counted: u128 = found.iter().map(|found| found.accepted).sum();
        if accepted != counted {
            let what = format!("tasks accepted {accepted} transitions and counted {counted}");
            return Err(Error::bug(what));
        }
        Ok((found, (rows, dropped)))
    }

    /// Brings together what is beside the matrices.
    async fn gather(&self, found: Vec<Matrices>) -> Result<Gathered> {
        let pieces: Vec<Piece> = found.iter().map(|found| found.head.clone()).collect();
        let bytes = self.output.pieces(&self.plan.hash, &pieces).await?;
        let heads = bytes.iter().map(|bytes| unpack(bytes));
        let heads = heads.collect::<Result<Vec<Counted>>>()?;
        let (counted, new_numbers) = merge_partitions(&heads)?;
        let mut units = Vec::new();
        let mut named = Vec::with_capacity(found.len());
        for (head, (matrices, new_numbers)) in found.into_iter().zip(new_numbers).enumerate() {
            units.extend(matrices.counts.into_iter().map(|matrix| Unit {
                partition: new_numbers.partitions[matrix.partition as usize] as usize,
                head,
                matrix,
            }));
            named.push((matrices.head, new_numbers));
        }
        units.sort_by_key(|unit| (unit.partition, unit.matrix.lag));
        Ok(Gathered {
            counted,
            units,
            record: None,
            heads: named,
        })
    }

    /// Fits all counts: a model of each unit, or what went wrong there.
    pub async fn fit(&self, gathered: &Gathered, names: &RunSchema) -> Result<Vec<ModelResult>> {
        let labels: Vec<usize> = gathered.counted.labels.iter().map(|l| l.len()).collect();
        let mut models: Vec<Option<ModelResult>> = Vec::new();
        models.resize_with(gathered.units.len(), || None);
        let large = self.large(gathered);
        let cuts = match large.is_empty() {
            true => Vec::new(),
            false => self.cut(gathered, &large).await?,
        };
        for (&at, cut) in large.iter().zip(cuts) {
            let (unit, start) = (&gathered.units[at], Instant::now());
            let fitted = match cut {
                Ok(cut) => self.fit_by_passes(gathered, at, &labels, cut).await,
                Err(e) => Err(e),
            };
            models[at] = Some(match fitted {
                Ok((model, told)) => {
                    let seconds = start.elapsed().as_secs_f64();
                    let nonzeros = model.nonzeros;
                    tracing::info!(nonzeros, seconds, "a model fitted by passes");
                    let record = model::record(&self.plan, names, &model, told);
                    Ok((model, record))
                }
                Err(e) if e.kind().is_retryable() || e.kind() == Kind::Check => return Err(e),
                Err(e) => Err((self.place(names, unit), e)),
            });
        }
        let mut order: Vec<usize> = (0..gathered.units.len()).collect();
        order.retain(|at| !large.contains(at));
        // Those of one numbering side by side.
        order.sort_by_key(|&at| gathered.units[at].head);
        let sizes = order.iter().map(|&at| gathered.units[at].matrix.nonzeros);
        let total: u64 = sizes.clone().sum();
        let bins = packed(sizes, total.div_ceil(FITS));
        let work = bins.iter().map(|bin| Work::Fit {
            groups: groups(gathered, &order[bin.clone()]),
            labels: labels.clone(),
        });
        let answers = match bins.is_empty() {
            true => Vec::new(),
            false => self.round("fit", work.collect()).await?,
        };
        for (bin, answer) in bins.into_iter().zip(answers) {
            let own = &order[bin];
            let answer: Vec<Result<Fitted, (Kind, String)>> = match answer {
                Ok(answer) => answer,
                // What may go well later stops the run; what would not is told of each model.
                Err(e) if e.kind().is_retryable() => return Err(e),
                Err(e) => own.iter().map(|_| Err((e.kind(), e.full()))).collect(),
            };
            if answer.len() != own.len() {
                return Err(Error::bug(
                    "a task has fitted other models than it was asked for",
                ));
            }
            let pieces = answer.iter().flatten().map(|fitted| fitted.model.clone());
            let pieces: Vec<Piece> = pieces.collect();
            let mut bytes = self
                .output
                .pieces(&self.plan.hash, &pieces)
                .await?
                .into_iter();
            for (&at, fitted) in own.iter().zip(answer) {
                let unit = &gathered.units[at];
                models[at] = Some(match fitted {
                    Ok(Fitted { told, .. }) => {
                        let mut model: FittedModel = unpack(&bytes.next().unwrap_or_default())?;
                        model.counts.renumber(&gathered.heads[unit.head].1);
                        let record = model::record(&self.plan, names, &model, told);
                        Ok((model, record))
                    }
                    Err((kind, message)) => {
                        Err((self.place(names, unit), Error::new(kind, message)))
                    }
                });
            }
        }
        Ok(models.into_iter().flatten().collect())
    }

    /// The units whose models are fitted pass by pass.
    fn large(&self, gathered: &Gathered) -> Vec<usize> {
        let units = gathered.units.iter().enumerate();
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

    fn place(&self, names: &RunSchema, unit: &Unit) -> String {
        place_of(names, unit.partition, unit.matrix.lag as usize)
    }

    /// Where the matrices of the models are.
    pub fn matrices(&self, gathered: Gathered, models: &[ModelResult]) -> Stored<'a> {
        let Gathered { units, heads, .. } = gathered;
        let new_numbers: Vec<_> = heads.into_iter().map(|(_, to)| Arc::new(to)).collect();
        let units = units.into_iter().zip(models);
        let units = units.filter_map(|(unit, model)| model.is_ok().then_some(unit));
        let units: Vec<Unit> = units.collect();
        let largest = units.iter().map(|unit| unit.matrix.nonzeros).max();
        let of = units.into_iter().map(|unit| {
            let new_numbers = Arc::clone(&new_numbers[unit.head]);
            (unit.matrix.counts, new_numbers)
        });
        Stored {
            output: self.output,
            plan: self.plan.hash.clone(),
            of: of.collect(),
            concurrency: (HELD / largest.unwrap_or(0).max(1)).clamp(1, 16) as usize,
        }
    }

    /// What the tasks of a round come to, if all went well.
    async fn all<T: DeserializeOwned>(
        &self,
        stage: &'static str,
        work: Vec<Work>,
    ) -> Result<Vec<T>> {
        self.round(stage, work).await?.into_iter().collect()
    }

    async fn round<T: DeserializeOwned>(
        &self,
        stage: &'static str,
        work: Vec<Work>,
    ) -> Result<Vec<Result<T>>> {
        let tasks = work.iter().map(|work| self.site.task(work));
        let tasks = tasks.collect::<Result<Vec<_>>>()?;
        let n = tasks.len();
        // They name what they work on and carry none of it, so that the largest is small however large a model is.
        let task_bytes = tasks.iter().map(|task| task.bytes.len()).max();
        tracing::info!(stage, tasks = n, task_bytes, "a round begins");
        self.progress.stage(stage, Some(n as u64));
        let heard = |n: usize| self.progress.advance(n as u64);
        let start = Instant::now();
        let answers = self.nodes.run(stage, tasks, &heard).await?;
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(stage, tasks = n, seconds, "a round ends");
        if answers.len() != n {
            let what = format!("{n} tasks have {} answers", answers.len());
            return Err(Error::bug(what));
        }
        let answers = answers.into_iter();
        Ok(answers.map(|answer| unpack(&answer?)).collect())
    }
}

/// Cuts the files of the plan's only table, or says why what they count would not add up.
fn slices(plan: &Plan, frame: &DataFrame) -> Result<Vec<Slice>, String> {
    if plan.layout.evidence.weight().is_some() {
        return Err("weights are no integers".into());
    }
    let name = subset::one_table(frame)?;
    let table = plan.tables.iter().position(|table| table.name == name);
    let table = table.ok_or("the SQL reads no table of the pipeline")?;
    let can_be_cut = plan.tables[table].format == "parquet";
    let sizes = plan.tables[table].files.iter().map(|file| file.size_bytes);
    let slices = cut(&sizes.collect::<Vec<_>>(), can_be_cut).into_iter();
    let slice = |(files, part)| Slice { table, files, part };
    Ok(slices.map(slice).collect())
}

/// In how many lots the rows and the sums of slices are dealt.
fn lots(plan: &Plan, slices: &[Slice]) -> usize {
    let table = slices.first().map(|slice| &plan.tables[slice.table]);
    let files = table.into_iter().flat_map(|table| &table.files);
    let bytes: u64 = files.map(|file| file.size_bytes).sum();
    bytes.div_ceil(LOT_BYTES).clamp(*LOTS.start(), *LOTS.end()) as usize
}

/// Refuses a plan that other machines cannot do.
pub fn check(plan: &Plan) -> Result<()> {
    if let Increments::Of { .. } = plan.increments {
        let what = "`job.incremental` counts new files on one machine; set it to false to count all of them on several";
        return Err(Error::spec(what));
    }
    Ok(())
}

/// The tasks that read the files of a plan, and the rounds that count them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Width {
    pub slices: u64,
    /// Lots that tasks deal rows and sums into.
    pub lots: u64,
    /// In their order; `add` is left out if one task has all sums.
    pub rounds: Vec<&'static str>,
}

/// The width of a plan, or why one task reads all files.
pub fn width(plan: &Plan, frame: &DataFrame) -> Result<Width, String> {
    let slices = slices(plan, frame)?;
    let is_dealt = matches!(plan.layout.evidence, RowRoles::Trajectories { .. });
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
        lots: lots(plan, &slices) as u64,
        rounds: rounds.map(|(name, _)| name).collect(),
    })
}

/// Units of several numberings, apart.
fn groups(gathered: &Gathered, units: &[usize]) -> Vec<Group> {
    let units = units.iter().map(|&at| &gathered.units[at]);
    let units: Vec<&Unit> = units.collect();
    let groups = units.chunk_by(|a, b| a.head == b.head).map(|own| {
        let (head, new_numbers) = &gathered.heads[own[0].head];
        let pieces = |unit: &&Unit| [unit.matrix.counts.clone(), unit.matrix.groups.clone()];
        Group {
            head: head.clone(),
            labels: new_numbers.labels.clone(),
            counts: own.iter().map(pieces).collect(),
        }
    });
    groups.collect()
}

/// The pieces of every lot, those of all tasks in their order; a lot that is empty is left out, unless all are.
fn by_lot(of_tasks: Vec<Vec<Piece>>) -> Vec<Vec<Piece>> {
    let n = of_tasks.iter().map(Vec::len).max().unwrap_or(0);
    let mut lots = vec![Vec::new(); n.max(1)];
    for pieces in of_tasks {
        for (lot, piece) in lots.iter_mut().zip(pieces) {
            lot.extend((!piece.is_empty()).then_some(piece));
        }
    }
    match lots.iter().all(Vec::is_empty) {
        true => lots.truncate(1),
        false => lots.retain(|lot| !lot.is_empty()),
    }
    lots
}

/// Files of these sizes, neighbours together; a large one by itself, in parts where it can be cut.
fn cut(sizes: &[u64], can_be_cut: bool) -> Vec<(Range<usize>, Part)> {
    let most = sizes.iter().sum::<u64>().div_ceil(SLICES).min(SLICE_BYTES);
    let slices = packed(sizes.iter().copied(), most).into_iter();
    let in_parts = |files: Range<usize>| {
        let is_cut = can_be_cut && files.len() == 1;
        let of = match is_cut {
            true => sizes[files.start].div_ceil(most.max(PART_BYTES)).max(1),
            false => 1,
        };
        (0..of).map(move |at| (files.clone(), Part { at, of }))
    };
    slices.flat_map(in_parts).collect()
}

/// Neighbours together until they are so large: what is larger is alone.
fn packed(sizes: impl Iterator<Item = u64>, most: u64) -> Vec<Range<usize>> {
    let mut bins: Vec<Range<usize>> = Vec::new();
    let mut room = 0;
    for (at, size) in sizes.enumerate() {
        match bins.last_mut().filter(|_| size <= room) {
            Some(bin) => bin.end = at + 1,
            None => {
                bins.push(at..at + 1);
                room = most;
            }
        }
        room = room.saturating_sub(size);
    }
    bins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(sizes: &[u64], most: u64, bins: &[Range<usize>]) {
        assert_eq!(packed(sizes.iter().copied(), most), bins);
    }

    #[test]
    fn neighbours_are_packed_up_to_a_size() {
        check(&[], 5, &[]);
        check(&[1, 2, 2, 1, 9, 1, 0, 0], 5, &[0..3, 3..4, 4..5, 5..8]);
        check(&[3, 3, 3], 1, &[0..1, 1..2, 2..3]);
        check(&[0, 0, 1], 0, &[0..2, 2..3]);
    }

    #[test]
    fn large_files_are_cut_where_that_can_be_done() {
        let whole = |files| (files, Part::WHOLE);
        let parts = |at: usize, of: u64| (0..of).map(move |k| (at..at + 1, Part { at: k, of }));
        assert_eq!(cut(&[3, 2], true), [whole(0..1), whole(1..2)]);
        let large = 200 << 20;
        let sizes = [large, 1, 1, 10 << 30];
        let cut_up = parts(0, 2).chain([whole(1..3)]).chain(parts(3, 80));
        assert_eq!(cut(&sizes, true), cut_up.collect::<Vec<_>>());
        let left = [whole(0..1), whole(1..3), whole(3..4)];
        assert_eq!(cut(&sizes, false), left);
        let several = parts(0, 7).collect::<Vec<_>>();
        assert_eq!(cut(&[large], true), several);
    }
}
