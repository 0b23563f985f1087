//! Tasks of a run over points: files → rows by trajectory → a survey, sums over pairs, fits of
//! kernels, rows of the table `points`.

use crate::error::{Error, Kind, Result};
use crate::evidence::pass::packed::{pack, pack_result};
use crate::output::parts::Piece;
use crate::output::tables::points::PointsModel;
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::points;
use crate::read::points::survey::survey;
use crate::read::rows::deal::{Dealer, deal};
use crate::run::points::first_pass::Known;
use crate::run::points::grams::{SumRequest, sum};
use crate::run::points::{kernels, rows};
use crate::run::workers::executor::{TaskExecutor, blocking};
use crate::run::workers::reading::Slice;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Rows per piece of the table `points`.
const PIECE_ROWS: usize = 1 << 14;

/// The work of a task of a run over points. Answers are pieces.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum PointsWork {
    /// Rows of some files, or of the whole query → lots of whole trajectories, one piece per lot.
    Deal { files: Option<Slice>, lots: usize },
    /// A lot → a survey of it and what reading found.
    Survey { lot: Vec<Piece> },
    /// A lot → the sums of each partition. `known` and `request` are pieces.
    Sum {
        lot: Vec<Piece>,
        known: Piece,
        request: Piece,
    },
    /// All rows → the models of some partitions, or their errors.
    FitKernels {
        rows: Vec<Piece>,
        known: Piece,
        partitions: Range<usize>,
    },
    /// A lot → rows of the table `points` in the order of their keys, in pieces.
    Rows {
        lot: Vec<Piece>,
        known: Piece,
        models: Piece,
        largest_hash: Option<u64>,
    },
}

impl TaskExecutor<PointsPlan> {
    /// Does the work. The answer is a packed list of pieces.
    ///
    /// # Errors
    /// If rows cannot be read, a fit fails, or a result cannot be stored.
    pub(crate) async fn points(&self, work: PointsWork) -> Result<Vec<u8>> {
        let pieces = match work {
            PointsWork::Deal { files, lots } => self.deal_points(files, lots).await?,
            PointsWork::Survey { lot } => self.survey(&lot).await?,
            PointsWork::Sum {
                lot,
                known,
                request,
            } => self.sum_pairs(&lot, &known, &request).await?,
            PointsWork::FitKernels {
                rows,
                known,
                partitions,
            } => self.fit_kernels(&rows, &known, partitions).await?,
            PointsWork::Rows {
                lot,
                known,
                models,
                largest_hash,
            } => {
                let rows = self.rows_of_points(&lot, &known, &models, largest_hash);
                rows.await?
            }
        };
        pack(&pieces)
    }

    async fn deal_points(&self, files: Option<Slice>, lots: usize) -> Result<Vec<Piece>> {
        let plan = &self.plan;
        let select = |_: &Lake, frame| points::select(frame, &plan.layout);
        let (lake, frame) = self.query(&plan.job, files, select).await?;
        let layout = Arc::clone(&plan.layout);
        let dealer = move || Dealer::new(&layout.fields(), layout.dealt_by(), lots);
        let dealt = deal(&lake, frame, lots, dealer).await?;
        self.put_rows(plan.layout.numbered(), dealt).await
    }

    /// The rows of a lot in one stream, because points are read in order.
    async fn lot(&self, pieces: &[Piece]) -> Result<(Lake, DataFrame)> {
        self.dealt(&self.plan.layout.numbered(), pieces, 1).await
    }

    async fn survey(&self, lot: &[Piece]) -> Result<Vec<Piece>> {
        let (lake, frame) = self.lot(lot).await?;
        let found = survey(&lake, frame, &self.plan.layout).await?;
        self.put(vec![pack(&found)?]).await
    }

    async fn sum_pairs(&self, lot: &[Piece], known: &Piece, request: &Piece) -> Result<Vec<Piece>> {
        let (lake, frame) = self.lot(lot).await?;
        let known: Known = self.unpacked(known).await?;
        let request: SumRequest = self.unpacked(request).await?;
        let (layout, partitions) = (&self.plan.layout, Some(&known.partitions[..]));
        let sums = sum(&lake, frame, layout, partitions, Arc::new(request)).await?;
        self.put(vec![pack(&sums)?]).await
    }

    async fn fit_kernels(
        &self,
        rows: &[Piece],
        known: &Piece,
        partitions: Range<usize>,
    ) -> Result<Vec<Piece>> {
        let (lake, frame) = self.lot(rows).await?;
        let known: Known = self.unpacked(known).await?;
        let wanted = (0..known.len()).map(|at| partitions.contains(&at));
        let wanted = wanted.collect();
        let points = kernels::load(&lake, frame, &self.plan, &known, wanted).await?;
        let mut models = Vec::new();
        for (at, points) in points.into_iter().enumerate() {
            if partitions.contains(&at) {
                let model = kernels::fit_partition(&self.plan, &known, at, points).await;
                models.push(pack_result(model)?);
            }
        }
        self.put(models).await
    }

    async fn rows_of_points(
        &self,
        lot: &[Piece],
        known: &Piece,
        models: &Piece,
        largest_hash: Option<u64>,
    ) -> Result<Vec<Piece>> {
        let (lake, frame) = self.lot(lot).await?;
        let known: Known = self.unpacked(known).await?;
        let models: Vec<PointsModel> = self.unpacked(models).await?;
        let rows = rows::collect(&lake, frame, &self.plan, &known, &models, largest_hash);
        let (schema, rows) = rows.await?;
        let of_pieces = Arc::clone(&schema);
        let pieces = blocking(move || {
            let all = concat_batches(&of_pieces, &rows)
                .map_err(|e| Error::with_source(Kind::Bug, "rows do not fit their table", e))?;
            let starts = (0..all.num_rows()).step_by(PIECE_ROWS);
            let piece = |at: usize| vec![all.slice(at, PIECE_ROWS.min(all.num_rows() - at))];
            Ok(starts.map(piece).collect::<Vec<Vec<RecordBatch>>>())
        });
        self.put_rows(schema, pieces.await?).await
    }
}
