//! Files → rows by trajectory → sums → counts of partitions. Each step is a separate task.

use crate::error::{Error, Result};
use crate::evidence::counts::groups::Groups;
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::packed::{pack, unpack};
use crate::output::parts::Piece;
use crate::plan::counts::CountingPlan;
use crate::read::counts;
use crate::read::counts::counted::Counted;
use crate::read::counts::merge::CountSums;
use crate::read::counts::sums::{restore, sums_schema};
use crate::read::lake::Lake;
use crate::read::rows::deal::{Dealer, deal};
use crate::read::rows::stop::Dropped;
use crate::read::rows::time_rules::TimeCounts;
use crate::run::workers::executor::{TaskExecutor, blocking};
use crate::run::workers::reading::{Slice, read_rows};
use bytes::Bytes;
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Rows to count.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum RowSource {
    /// The rows that the SQL makes of some files of its table.
    Files(Slice),
    /// The rows of one lot, in the order of the files.
    Dealt(Vec<Piece>),
}

/// The sums of some rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Summed {
    /// The table of sums, by lot.
    pub lots: Vec<Piece>,
    /// Number of rows that were read.
    pub rows: u64,
    /// Rows that were dropped, by reason.
    pub dropped: Dropped,
    /// What the keys of time changed.
    pub time: TimeCounts,
    /// Number of transitions that were accepted.
    pub accepted: u128,
    /// Whether integer states are their own ids.
    pub direct: bool,
}

/// The counts of some partitions.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Matrices {
    /// A `Counted` without matrices.
    pub head: Piece,
    /// The matrices by partition and lag.
    pub counts: Vec<Matrix>,
    /// Number of transitions that were accepted.
    pub accepted: u128,
}

/// The counts of one partition and lag.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Matrix {
    /// Number of the partition.
    pub partition: u32,
    /// Index of the lag.
    pub lag: u32,
    /// A `CountMatrix` without groups.
    pub counts: Piece,
    /// The counts per resample group, or no bytes.
    pub groups: Piece,
    /// Number of non-zeros.
    pub nonzeros: u64,
    /// Σ of the counts, also outside of the largest connected set; 0 for weights.
    pub accepted: u128,
    /// Transitions outside of the largest connected set, if only that is kept.
    pub left_out: f64,
}

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

/// The work of a task that counts rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum CountingWork {
    /// Rows of some files → lots of whole trajectories, one piece per lot.
    Deal {
        /// The files.
        files: Slice,
        /// The number of lots.
        lots: usize,
    },
    /// Rows → their sums, in lots of partitions, or of sources if there are no partitions:
    /// [`Summed`].
    Sum {
        /// The rows.
        rows: RowSource,
        /// The number of lots.
        lots: usize,
    },
    /// Sums → their sum, as a piece.
    Add {
        /// The sums.
        sums: Vec<Piece>,
        /// Whether integer states are their own IDs in all sums.
        direct: bool,
    },
    /// Sums → the counts of their partitions:
    /// [`Matrices`].
    Count {
        /// The sums.
        sums: Vec<Piece>,
        /// Whether integer states are their own IDs in all sums.
        direct: bool,
    },
    /// All rows → the counts of all partitions:
    /// [`Matrices`].
    CountAll,
}

impl CountingWork {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            CountingWork::Deal { .. } => "deal",
            CountingWork::Sum { .. } => "sum",
            CountingWork::Add { .. } => "add",
            CountingWork::Count { .. } | CountingWork::CountAll => "count",
        }
    }
}

impl TaskExecutor<CountingPlan> {
    /// Does the work. The answer is packed.
    ///
    /// # Errors
    /// If the rows cannot be read or counted, or the result cannot be stored.
    pub(crate) async fn counting(&self, work: CountingWork) -> Result<Vec<u8>> {
        match work {
            CountingWork::Deal { files, lots } => pack(&self.deal(files, lots).await?),
            CountingWork::Sum { rows, lots } => pack(&self.sum(rows, lots).await?),
            CountingWork::Add { sums, direct } => pack(&self.add(&sums, direct).await?),
            CountingWork::Count { sums, direct } => pack(&self.count(&sums, direct).await?),
            CountingWork::CountAll => pack(&self.count_all().await?),
        }
    }

    /// Deals the rows of some files into lots of whole trajectories.
    async fn deal(&self, files: Slice, lots: usize) -> Result<Vec<Piece>> {
        let layout = &self.plan.layout;
        let (lake, frame) = self.rows_of(Some(files)).await?;
        let of_streams = Arc::clone(layout);
        let dealer = move || Dealer::of_rows(&of_streams, lots);
        let rows = deal(&lake, frame, lots, dealer).await?;
        self.put_rows(layout.numbered(), rows).await
    }

    /// Sums some rows and deals the sums into lots.
    async fn sum(&self, rows: RowSource, lots: usize) -> Result<Summed> {
        let layout = Arc::clone(&self.plan.layout);
        let (lake, frame) = match rows {
            RowSource::Files(files) => self.rows_of(Some(files)).await?,
            RowSource::Dealt(pieces) => {
                let streams = self.resources.threads;
                self.dealt(&layout.numbered(), &pieces, streams).await?
            }
        };
        let (sums, _) = counts::sums(&lake, frame, &layout, None, Arc::new(|_| ())).await?;
        let (rows, dropped, time) = (sums.rows, sums.dropped.clone(), sums.time);
        let (accepted, direct) = (sums.accepted, sums.direct);
        let of_table = Arc::clone(&layout);
        let dealt = blocking(move || {
            let mut dealer = Dealer::of_sums(&of_table, lots)?;
            for batch in sums.table(&of_table)? {
                dealer.push(&batch)?;
            }
            dealer.finish()
        });
        let lots = self.put_rows(sums_schema(&layout), dealt.await?).await?;
        Ok(Summed {
            lots,
            rows,
            dropped,
            time,
            accepted,
            direct,
        })
    }

    /// Adds up sums.
    async fn add(&self, sums: &[Piece], direct: bool) -> Result<Piece> {
        let layout = Arc::clone(&self.plan.layout);
        let schema = sums_schema(&layout);
        let sums = self.restored(sums, direct).await?;
        let table = blocking(move || sums.table(&layout)).await?;
        let mut pieces = self.put_rows(schema, vec![table]).await?;
        Ok(pieces.remove(0))
    }

    /// Makes matrices of sums.
    async fn count(&self, sums: &[Piece], direct: bool) -> Result<Matrices> {
        let layout = Arc::clone(&self.plan.layout);
        let sums = self.restored(sums, direct).await?;
        let accepted = sums.accepted;
        let counted = blocking(move || sums.counted(&layout)).await?;
        self.matrices(counted, accepted).await
    }

    /// Counts all rows of the plan.
    async fn count_all(&self) -> Result<Matrices> {
        let (lake, frame) = self.rows_of(None).await?;
        let counted = counts::count(&lake, frame, &self.plan.layout, Arc::new(|_| ()));
        self.matrices(counted.await?, 0).await
    }

    /// The query of the plan over all files, or over some files of its only table.
    async fn rows_of(&self, slice: Option<Slice>) -> Result<(Lake, DataFrame)> {
        let plan = &self.plan;
        let select = |lake: &Lake, frame| lake.select(frame, &plan.layout);
        self.query(&plan.job, slice, select).await
    }

    async fn restored(&self, sums: &[Piece], direct: bool) -> Result<CountSums> {
        let bytes = self.pieces(sums).await?;
        let layout = Arc::clone(&self.plan.layout);
        blocking(move || {
            let tables = read_rows(&bytes)?;
            restore(&layout, &tables, direct, 0, Default::default())
        })
        .await
    }

    async fn matrices(&self, mut counted: Counted, accepted: u128) -> Result<Matrices> {
        let (pieces, shapes) = blocking(move || {
            let mut counts = std::mem::take(&mut counted.counts);
            let mut pieces = vec![pack(&counted)?];
            let mut shapes = Vec::with_capacity(counts.len());
            for counts in &mut counts {
                let groups: Option<Groups> = counts.groups.take();
                let left_out = counts.left_out.as_ref();
                shapes.push((
                    counts.partition as u32,
                    counts.lag as u32,
                    counts.nnz() as u64,
                    counts.accepted(),
                    left_out.map_or(0.0, |left_out| left_out.transitions),
                ));
                pieces.push(pack(counts)?);
                pieces.push(groups.map_or(Ok(Vec::new()), |groups| pack(&groups))?);
            }
            Ok((pieces, shapes))
        })
        .await?;
        let mut pieces = self.put(pieces).await?.into_iter();
        let none = || Error::bug("a piece is not there");
        let mut next = || pieces.next().ok_or_else(none);
        let head = next()?;
        let mut counts = Vec::with_capacity(shapes.len());
        for (partition, lag, nonzeros, accepted, left_out) in shapes {
            counts.push(Matrix {
                partition,
                lag,
                counts: next()?,
                groups: next()?,
                nonzeros,
                accepted,
                left_out,
            });
        }
        Ok(Matrices {
            head,
            counts,
            accepted,
        })
    }
}

/// Unpacks a matrix with its groups.
///
/// # Errors
/// If the bytes are something else, which is a bug.
pub(crate) fn read_counts(counts: &Bytes, groups: &Bytes) -> Result<CountMatrix> {
    let mut counts: CountMatrix = unpack(counts)?;
    if !groups.is_empty() {
        counts.groups = Some(unpack(groups)?);
    }
    Ok(counts)
}
