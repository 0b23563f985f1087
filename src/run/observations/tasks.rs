//! Tasks of a run of filters: training rows → a filter; files → rows by trajectory → estimates.

use crate::error::Result;
use crate::evidence::pass::packed::{pack, pack_result, unpack};
use crate::methods::filter::model::FilterModel;
use crate::output::parts::Piece;
use crate::output::tables::observations::{ESTIMATES, POSTERIORS};
use crate::plan::observations::ObservationsPlan;
use crate::read::lake::Lake;
use crate::read::lake::reopen::reopen;
use crate::read::observations::Widths;
use crate::read::observations::layout::select;
use crate::read::rows::deal::{Dealer, deal};
use crate::run::observations::fit::UnitInput;
use crate::run::observations::fit_rows;
use crate::run::observations::input::{Filters, Ids};
use crate::run::observations::rows::{Ended, collect};
use crate::run::observations::seconds::FilterSeconds;
use crate::run::workers::executor::{TaskExecutor, blocking};
use crate::run::workers::reading::Slice;
use arrow::array::{ArrayRef, RecordBatch};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// The work of a task of a run of filters.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum ObservationsWork {
    /// Training rows of a partition → a filter, or its error: [`FitAnswer`]. `input` is a piece.
    Fit { input: Piece },
    /// Rows of some files, or of the whole query → lots of whole trajectories, one piece per lot.
    Deal { files: Option<Slice>, lots: usize },
    /// A lot → its filtered rows: [`FilteredLot`]. `filters` is a piece.
    Rows { lot: Vec<Piece>, filters: Piece },
}

/// The filtered rows of a lot, in the order of their keys: pieces of one batch each.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct FilteredLot {
    /// Rows of the table `estimates`.
    pub(crate) estimates: Vec<Piece>,
    /// Rows of the table `posteriors`.
    pub(crate) posteriors: Vec<Piece>,
    /// Trajectories, as [`Ended`].
    pub(crate) ended: Vec<Piece>,
    /// Rows of the lot.
    pub(crate) rows: u64,
    /// The time of the filters.
    pub(crate) seconds: FilterSeconds,
}

/// A fit of a task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FitAnswer {
    /// The filter, or its error: one piece.
    pub(crate) pieces: Vec<Piece>,
    /// The time of the fit.
    pub(crate) seconds: f64,
}

/// [`Filters`] on another machine.
#[derive(Deserialize)]
struct ReceivedFilters {
    #[serde(with = "crate::read::rows::ipc::arrays")]
    partitions: Vec<ArrayRef>,
    widths: (usize, usize),
    models: Vec<Option<Vec<FilterModel>>>,
    ids: Vec<ReceivedIds>,
}

#[derive(Deserialize)]
struct ReceivedIds(#[serde(with = "crate::read::rows::ipc::arrays")] Vec<ArrayRef>);

impl TaskExecutor<ObservationsPlan> {
    /// Does the work.
    ///
    /// # Errors
    /// If rows cannot be read, a filter cannot be fitted, or a result cannot be stored.
    pub(crate) async fn filters(&self, work: ObservationsWork) -> Result<Vec<u8>> {
        match work {
            ObservationsWork::Fit { input } => pack(&self.fit_filter(&input).await?),
            ObservationsWork::Deal { files, lots } => {
                pack(&self.deal_state_space(files, lots).await?)
            }
            ObservationsWork::Rows { lot, filters } => {
                pack(&self.filter_rows(&lot, &filters).await?)
            }
        }
    }

    async fn fit_filter(&self, input: &Piece) -> Result<FitAnswer> {
        let bytes = self.output.piece(&self.hash, input).await?;
        let plan = Arc::clone(&self.plan);
        let fitted = blocking(move || {
            let input: UnitInput<'_> = unpack(&bytes)?;
            let start = Instant::now();
            let fit = input.fit(&plan);
            Ok((start.elapsed().as_secs_f64(), pack_result(fit)?))
        });
        let (seconds, fit) = fitted.await?;
        let pieces = self.put(vec![fit]).await?;
        Ok(FitAnswer { pieces, seconds })
    }

    async fn deal_state_space(&self, files: Option<Slice>, lots: usize) -> Result<Vec<Piece>> {
        let plan = &self.plan;
        let of_layout = |_: &Lake, frame| select(frame, &plan.layout);
        let (lake, frame) = self.query(&plan.job, files, of_layout).await?;
        let layout = Arc::clone(&plan.layout);
        let dealer = move || Dealer::new(&layout.fields(), layout.dealt_by(), lots);
        let dealt = deal(&lake, frame, lots, dealer).await?;
        self.put_rows(plan.layout.numbered(), dealt).await
    }

    async fn filter_rows(&self, lot: &[Piece], filters: &Piece) -> Result<FilteredLot> {
        let plan = &self.plan;
        let received: ReceivedFilters = self.unpacked(filters).await?;
        let (state, observation) = received.widths;
        let widths = Widths {
            state: Some(state),
            observation: Some(observation),
        };
        let tables = reopen(plan.job.tables.clone(), &self.resources, &self.stores)?;
        let mut supervision = Vec::with_capacity(plan.fits.len());
        for fit in &plan.fits {
            supervision.push(fit_rows::read(&tables, fit, &received.partitions, widths).await?);
        }
        let models = received.models.iter();
        let filters = Filters {
            partitions: &received.partitions,
            widths: received.widths,
            models: models
                .map(|own| own.as_ref().map(|own| own.iter().collect()))
                .collect(),
            ids: received.ids.iter().map(|ids| Ids(&ids.0)).collect(),
            points: &supervision,
        };
        // Rows of a lot are read in one stream, because they are filtered in order.
        let (lake, frame) = self.dealt(&plan.layout.numbered(), lot, 1).await?;
        let sort = AtomicBool::new(false);
        let input = filters.input(plan, &lake, &frame, &sort);
        let run = plan.run_schema(received.partitions.clone());
        let mut found = collect(input, &filters.tables(plan, &run)).await?;
        let schema = Ended::schema(&plan.layout);
        let ended = found.ended.iter().map(|ended| ended.to_rows(&schema));
        let ended: Vec<RecordBatch> = ended.collect::<Result<_>>()?;
        let mut of_table = |name| found.tables.remove(name).unwrap_or_default();
        Ok(FilteredLot {
            estimates: self.put_batches(of_table(ESTIMATES)).await?,
            posteriors: self.put_batches(of_table(POSTERIORS)).await?,
            ended: self.put_batches(ended).await?,
            rows: found.found.rows,
            seconds: found.seconds,
        })
    }

    /// Stores batches of one table, one piece per batch.
    async fn put_batches(&self, batches: Vec<RecordBatch>) -> Result<Vec<Piece>> {
        let Some(first) = batches.first() else {
            return Ok(Vec::new());
        };
        let schema = first.schema();
        let batches = batches.into_iter().map(|batch| vec![batch]).collect();
        self.put_rows(schema, batches).await
    }
}
