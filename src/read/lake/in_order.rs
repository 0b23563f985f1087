//! The rows of a query in an order that depends on nothing but the rows and their files.
//!
//! In: a query and some of its columns. Out: batches, read ahead by a task of their own. Memory
//! holds a few batches, never all rows.

use crate::error::{Error, Kind, Result};
use crate::read::lake::errors::failed;
use crate::read::lake::panics::Reading;
use crate::read::lake::rounding::{numbered, rounding};
use crate::read::lake::subset::one_table;
use crate::read::lake::{Lake, next};
use crate::read::rows::stop::Stop;
use arrow::array::RecordBatch;
use arrow::row::{RowConverter, SortField};
use datafusion::common::tree_node::TreeNode;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::{LogicalPlan, col};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Batches that are read ahead of the caller.
const AHEAD: usize = 2;

/// The batches of a query, in order.
pub(crate) struct Batches<'a> {
    lake: &'a Lake,
    /// Number of files that are read in one part, when the query began.
    n_whole: usize,
    batches: mpsc::Receiver<Result<RecordBatch>>,
    task: JoinSet<()>,
    _reading: Reading,
}

impl Lake {
    /// Selects columns of a query, which may repeat. Column `i` is named `i`. Those at `numbers`
    /// are coordinates, which are rounded to doubles.
    ///
    /// If the query maps the rows of one table one by one, its rows keep the order of the files.
    /// Other rows are sorted by these columns, the first one first, because their order would
    /// depend on the threads.
    ///
    /// # Errors
    /// If the query lacks a column.
    pub(crate) fn in_order(
        &self,
        frame: DataFrame,
        columns: &[&str],
        numbers: &[usize],
    ) -> Result<DataFrame> {
        let sorts = |node: &LogicalPlan| Ok(matches!(node, LogicalPlan::Sort(_)));
        let has_sort = frame.logical_plan().exists(sorts).unwrap_or(true);
        let keeps_order = one_table(&frame).is_ok() && !has_sort;
        let frame = numbered(frame, columns.iter().copied(), "the rows")?;
        let frame = rounding(frame, numbers)?;
        if keeps_order {
            return Ok(frame);
        }
        let fields = frame.schema().fields().clone();
        let sortable = fields
            .iter()
            .filter(|f| RowConverter::supports_fields(&[SortField::new(f.data_type().clone())]));
        let order = sortable.map(|f| col(format!("\"{}\"", f.name())).sort(true, true));
        let order = order.collect();
        frame
            .sort(order)
            .map_err(|e| failed("rows cannot be sorted", e))
    }

    /// Starts a query whose streams have the order of its rows.
    ///
    /// # Errors
    /// If the query cannot start.
    pub(crate) async fn batches(&self, frame: DataFrame) -> Result<Batches<'_>> {
        let n_whole = self.listed.n_whole();
        let reading = Reading::new();
        let streams = self.streams(frame).await?;
        let (sender, batches) = mpsc::channel(AHEAD);
        let mut task = JoinSet::new();
        task.spawn(async move {
            for mut stream in streams {
                while let Some(batch) = next(&mut stream).await.transpose() {
                    let is_last = batch.is_err();
                    if sender.send(batch).await.is_err() || is_last {
                        return;
                    }
                }
            }
        });
        Ok(Batches {
            lake: self,
            n_whole,
            batches,
            task,
            _reading: reading,
        })
    }
}

impl Batches<'_> {
    /// The next batch. None after the last one.
    ///
    /// # Errors
    /// If the rows cannot be read. If [`must_read_again`](Self::must_read_again) then, the caller
    /// starts the query again.
    pub(crate) async fn next(&mut self) -> Result<Option<RecordBatch>> {
        match self.batches.recv().await {
            Some(Ok(batch)) => Ok(Some(batch)),
            Some(Err(e)) => {
                let stop = self.lake.with_file_name(Stop::Failed(e)).await;
                Err(stop.into_error("reading rows"))
            }
            None => match self.task.join_next().await {
                Some(Err(e)) => Err(Error::with_source(Kind::Bug, "a reading task died", e)),
                Some(Ok(())) | None => Ok(None),
            },
        }
    }

    /// Whether reading failed because a row continues past the end of a part of its file. The next
    /// query reads that file in one part.
    pub(crate) fn must_read_again(&self) -> bool {
        self.lake.reads_another_whole_file(self.n_whole)
    }
}
