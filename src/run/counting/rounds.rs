//! Counts the rows of a plan on other machines: transitions of states, or windows of symbols.
//!
//! ```text
//! files ─ deal ─▶ lots of whole trajectories ─ sum ─▶ sums by partition (or by source) ─ add ─▶
//!       ─ count ─▶ matrices
//! ```

use crate::error::{Error, Result};
use crate::evidence::pass::packed::unpack;
use crate::output::parts::Piece;
use crate::output::place::Output;
use crate::plan::counts::CountingPlan;
use crate::plan::increments::Increments;
use crate::read::counts::counted::{Counted, pairs_by_lag};
use crate::read::counts::renumber::{NewNumbers, merge_partitions};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::stop::Dropped;
use crate::read::rows::time_rules::TimeCounts;
use crate::run::counting::tasks::{
    CountingWork, CountsGroup, Matrices, Matrix, RowSource, Summed, read_counts,
};
use crate::run::kind::Running;
use crate::run::record::IncrementRecord;
use crate::run::workers::nodes::Nodes;
use crate::run::workers::reading::Slice;
use crate::run::workers::requests::Requests;
use crate::run::workers::slices::{Width, by_lot, lots, slices};
use crate::run::workers::task::Tasks;
use crate::run::workers::work::PlanSite;
use datafusion::dataframe::DataFrame;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// Rows, those that were dropped, and what the keys of time changed.
type Totals = (u64, Dropped, TimeCounts);

/// Requests the tasks that count rows.
pub(crate) struct CountRounds<'a, K: Tasks> {
    plan: Arc<CountingPlan>,
    output: &'a Output,
    requests: Requests<'a, K>,
    as_work: fn(CountingWork) -> K::Work,
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
    pub(crate) heads: Vec<(Piece, NewNumbers)>,
}

impl RemoteCounts {
    /// The number of pairs or windows by lag, see [`pairs_by_lag`].
    pub(crate) fn pairs(&self, layout: &Layout) -> Option<Vec<u64>> {
        let matrices = self.units.iter().map(|unit| &unit.matrix);
        pairs_by_lag(layout, matrices.map(|own| (own.lag as usize, own.accepted)))
    }
}

/// The counts of one partition and lag.
pub struct StoredCounts {
    /// Number of the partition in the whole run.
    pub partition: usize,
    /// Index into `RemoteCounts::heads`.
    pub(crate) head: usize,
    /// The matrix, with numbers of its task.
    pub matrix: Matrix,
}

impl<'a, K: Tasks> CountRounds<'a, K> {
    /// Stores the plan for the tasks.
    ///
    /// # Errors
    /// If the plan counts new files only, or the store fails.
    pub(crate) async fn begin(
        run: &Running<'a, K>,
        plan: CountingPlan,
        nodes: &Arc<dyn Nodes>,
        as_work: fn(CountingWork) -> K::Work,
    ) -> Result<CountRounds<'a, K>> {
        check(&plan)?;
        let job = &plan.job;
        let site = PlanSite::of(&job.hash, &job.stores, &plan, run.output).await?;
        Ok(CountRounds {
            plan: Arc::new(plan),
            output: run.output,
            requests: Requests::new(site, nodes, run.progress.as_ref()),
            as_work,
        })
    }

    /// The answers to the tasks of a round, or the first error.
    async fn all<T: DeserializeOwned>(
        &self,
        stage: &'static str,
        work: Vec<CountingWork>,
    ) -> Result<Vec<T>> {
        let work = work.into_iter().map(self.as_work);
        self.requests.all(stage, work.collect()).await
    }

    /// Counts the rows of `frame`, the query of the plan.
    ///
    /// # Errors
    /// If a task fails.
    pub(crate) async fn count(&self, frame: &DataFrame) -> Result<RemoteCounts> {
        let (found, totals, record) = match slices_of(&self.plan, frame) {
            Ok(slices) => {
                let (found, totals) = self.count_slices(slices).await?;
                (found, Some(totals), None)
            }
            Err(why) => {
                let what = format!("all files counted by one task, because {why}");
                tracing::info!("{what}");
                let found = self.all("count", vec![CountingWork::CountAll]).await?;
                (found, None, Some(what))
            }
        };
        let mut remote = self.gather(found).await?;
        let counted = &mut remote.counted;
        if let Some((rows, dropped, time)) = totals {
            (counted.rows, counted.dropped, counted.time) = (rows, dropped, time);
        }
        let (tables, rows) = (&self.plan.job.tables, counted.rows);
        remote.record = record.map(|what| IncrementRecord::of_all(what, tables, rows));
        Ok(remote)
    }

    /// Counts slices of the input separately and adds up. Also returns the number of rows, those
    /// that were dropped, and what the keys of time changed.
    async fn count_slices(&self, slices: Vec<Slice>) -> Result<(Vec<Matrices>, Totals)> {
        let layout = &self.plan.layout;
        let lots = lots(&self.plan.job.tables, &slices);
        let rows: Vec<RowSource> = match &layout.evidence {
            RowRoles::Pairs { .. } => slices.into_iter().map(RowSource::Files).collect(),
            RowRoles::Trajectories { .. } | RowRoles::Windows { .. } => {
                let deal = |files| CountingWork::Deal { files, lots };
                let dealt = self.all("deal", slices.into_iter().map(deal).collect());
                by_lot(dealt.await?)
                    .into_iter()
                    .map(RowSource::Dealt)
                    .collect()
            }
        };
        let sum = |rows| CountingWork::Sum { rows, lots };
        let summed: Vec<Summed> = self.all("sum", rows.into_iter().map(sum).collect()).await?;
        let direct = summed.iter().all(|sums| sums.direct);
        let accepted: u128 = summed.iter().map(|sums| sums.accepted).sum();
        let (mut rows, mut dropped) = (0, Dropped::default());
        let mut time = TimeCounts::default();
        for sums in &summed {
            rows += sums.rows;
            time.merge(sums.time);
            for (reason, rows) in &sums.dropped.0 {
                dropped.add(reason.clone(), *rows);
            }
        }
        let mut sums = by_lot(summed.into_iter().map(|sums| sums.lots).collect());
        if layout.partition.is_empty() {
            // There is only one matrix, and each lot has other sources of it.
            if sums.iter().any(|lot| lot.len() > 1) {
                let add = |sums| CountingWork::Add { sums, direct };
                let added = self.all("add", sums.into_iter().map(add).collect());
                sums = vec![added.await?];
            } else {
                sums = vec![sums.concat()];
            }
        }
        let count = |sums| CountingWork::Count { sums, direct };
        let found: Vec<Matrices> = self
            .all("count", sums.into_iter().map(count).collect())
            .await?;
        let counted: u128 = found.iter().map(|found| found.accepted).sum();
        if accepted != counted {
            let what = format!("tasks accepted {accepted} transitions and counted {counted}");
            return Err(Error::bug(what));
        }
        Ok((found, (rows, dropped, time)))
    }

    /// Merges everything except the matrices.
    async fn gather(&self, found: Vec<Matrices>) -> Result<RemoteCounts> {
        let pieces: Vec<Piece> = found.iter().map(|found| found.head.clone()).collect();
        let bytes = self.output.pieces(&self.plan.job.hash, &pieces).await?;
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

    /// The counts with all matrices, read from the store of the output.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn whole(&self, remote: RemoteCounts) -> Result<Counted> {
        let mut counted = remote.counted;
        for unit in remote.units {
            let pieces = [unit.matrix.counts, unit.matrix.groups];
            let bytes = self.output.pieces(&self.plan.job.hash, &pieces).await?;
            let mut counts = read_counts(&bytes[0], &bytes[1])?;
            counts.renumber(&remote.heads[unit.head].1);
            counted.counts.push(counts);
        }
        Ok(counted)
    }
}

/// Slices of the input whose counts add up.
///
/// # Errors
/// Why the counts of the slices would not add up.
fn slices_of(plan: &CountingPlan, frame: &DataFrame) -> Result<Vec<Slice>, String> {
    if plan.layout.evidence.weight().is_some() {
        return Err("weights are no integers".into());
    }
    slices(&plan.job.tables, frame)
}

/// Checks that a plan can run on other machines.
///
/// # Errors
/// [`Kind::Spec`] if it cannot.
pub(crate) fn check(plan: &CountingPlan) -> Result<()> {
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
pub(crate) fn width(plan: &CountingPlan, frame: &DataFrame) -> Result<Width, String> {
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
        lots: lots(&plan.job.tables, &slices) as u64,
        rounds: rounds.map(|(name, _)| name).collect(),
    })
}

/// Units, grouped by numbering.
pub(crate) fn groups(remote: &RemoteCounts, units: &[usize]) -> Vec<CountsGroup> {
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
