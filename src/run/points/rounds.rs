//! Reads the points of a run on other machines, in rounds of tasks.
//!
//! ```text
//! files ─ deal ─▶ lots of whole trajectories ─ survey ─▶ this process: features
//!                                            ─ sum ────▶ this process: models
//!                                            ─ rows ───▶ this process: the table `points`
//! ```
//!
//! Sums are of integers and samples are of the smallest hashes, so they do not depend on how rows
//! are dealt: all tables have the bytes of a run on one machine.

use crate::error::Result;
use crate::evidence::pass::packed::{pack, unpack, unpack_result};
use crate::output::parts::Piece;
use crate::output::row_writer::RowWriter;
use crate::output::staging::StagedTable;
use crate::output::tables::points::{POINTS, PointFit, PointsModel};
use crate::read::points::Found;
use crate::read::points::layout::PointRoles;
use crate::read::points::survey::{Surveyor, merged};
use crate::run::Planned;
use crate::run::kind::Running;
use crate::run::points::first_pass::{FirstPass, Known};
use crate::run::points::grams::{PartitionSums, SumRequest};
use crate::run::points::kernels::landmarks;
use crate::run::points::kind::PointsKind;
use crate::run::points::rows::{self, PointsTable};
use crate::run::points::tasks::PointsWork;
use crate::run::workers::merge::Merge;
use crate::run::workers::nodes::Nodes;
use crate::run::workers::reading::Slice;
use crate::run::workers::requests::Requests;
use crate::run::workers::slices::{Dealt, Width};
use crate::run::workers::task::{TaskPlace, Tasks};
use std::sync::Arc;

/// Most tasks that fit the maps of all partitions. Each of them reads all rows.
const FITS: usize = 16;

impl Tasks for PointsKind {
    type Work = PointsWork;

    fn name(work: &PointsWork) -> &'static str {
        match work {
            PointsWork::Deal { .. } => "deal",
            PointsWork::Survey { .. } => "survey",
            PointsWork::Sum { .. } => "sum",
            PointsWork::FitKernels { .. } => "fit",
            PointsWork::Rows { .. } => "rows",
        }
    }

    async fn perform(place: TaskPlace, work: PointsWork) -> Result<Vec<u8>> {
        place.executor()?.points(work).await
    }

    fn width(planned: &Planned<PointsKind>) -> Result<Width, String> {
        let plan = &planned.plan;
        let by_landmarks = || plan.fits.iter().all(|fit| landmarks(&fit.method).is_some());
        let rounds = match plan.layout.roles {
            PointRoles::Pairs { .. } => vec!["deal", "survey", "sum", "rows"],
            PointRoles::Rows if by_landmarks() => vec!["deal", "survey", "fit", "rows"],
            PointRoles::Rows => vec!["deal", "survey", "fit"],
        };
        Width::of(&plan.job, &planned.frame, rounds)
    }
}

/// The work of a task that deals some files, or all of them.
fn deal(files: Option<Slice>, lots: usize) -> PointsWork {
    PointsWork::Deal { files, lots }
}

/// Finds out how many points there are and where they are.
///
/// # Errors
/// If a task fails.
pub(super) async fn survey(
    run: &Running<'_, PointsKind>,
    nodes: &Arc<dyn Nodes>,
) -> Result<(Surveyor, Found)> {
    let work = |lot| PointsWork::Survey { lot };
    let answers: Vec<Vec<Piece>> = run.of_lots(nodes, deal, "survey", work).await?;
    let pieces = answers.concat();
    let bytes = run.output.pieces(&run.plan.job.hash, &pieces).await?;
    let parts = bytes.iter().map(|bytes| unpack(bytes));
    merged(&run.plan.layout, &parts.collect::<Result<Vec<_>>>()?)
}

/// Sums products of features over the pairs of each partition.
///
/// # Errors
/// If a task fails.
pub(super) async fn sum(
    run: &Running<'_, PointsKind>,
    nodes: &Arc<dyn Nodes>,
    known: &Known,
    request: &SumRequest,
) -> Result<Vec<PartitionSums>> {
    let (output, hash) = (run.output, &run.plan.job.hash);
    let given = vec![pack(known)?, pack(request)?];
    let given = output.put_part(hash, given).await?;
    let work = |lot| PointsWork::Sum {
        lot,
        known: given[0].clone(),
        request: given[1].clone(),
    };
    let answers: Vec<Vec<Piece>> = run.of_lots(nodes, deal, "sum", work).await?;
    let mut all: Vec<PartitionSums> = Vec::new();
    // One at a time: sums of many features are large.
    for piece in answers.iter().flatten() {
        let sums: Vec<PartitionSums> = unpack(&output.piece(hash, piece).await?)?;
        if all.is_empty() {
            all = sums;
        } else {
            all.iter_mut()
                .zip(&sums)
                .for_each(|(all, sums)| all.merge(sums));
        }
    }
    Ok(all)
}

/// Fits the diffusion maps and sketches of each partition, in their order.
///
/// # Errors
/// If a task fails.
pub(super) async fn fit_kernels(
    run: &Running<'_, PointsKind>,
    nodes: &Arc<dyn Nodes>,
    known: &Known,
) -> Result<Vec<Result<PointsModel>>> {
    let (output, hash) = (run.output, &run.plan.job.hash);
    let Dealt { site, lots } = run.deal(nodes, deal).await?;
    let rows = lots.concat();
    let given = output.put_part(hash, vec![pack(known)?]).await?;
    let n = known.len();
    let each = n.div_ceil(FITS);
    let work = (0..n)
        .step_by(each.max(1))
        .map(|first| PointsWork::FitKernels {
            rows: rows.clone(),
            known: given[0].clone(),
            partitions: first..n.min(first + each),
        });
    let requests: Requests<'_, PointsKind> =
        Requests::new(site.clone(), nodes, run.progress.as_ref());
    let answers: Vec<Vec<Piece>> = requests.all("fit", work.collect()).await?;
    let bytes = output.pieces(hash, &answers.concat()).await?;
    bytes.iter().map(|bytes| unpack_result(bytes)).collect()
}

/// Writes the table `points` to staging.
///
/// # Errors
/// If a task fails, or the table cannot be written.
pub(super) async fn write_rows(
    run: &Running<'_, PointsKind>,
    nodes: &Arc<dyn Nodes>,
    first_pass: &FirstPass,
    table: PointsTable<'_>,
) -> Result<StagedTable> {
    // Maps without landmarks have already embedded their rows.
    let fits = table.models.iter().flat_map(|model| &model.fits);
    if !fits.into_iter().all(PointFit::embeds_any_row) {
        return rows::write(run, first_pass, table).await;
    }
    let (output, hash) = (run.output, &run.plan.job.hash);
    let given = vec![pack(&first_pass.known)?, pack(&table.models)?];
    let given = output.put_part(hash, given).await?;
    let work = |lot| PointsWork::Rows {
        lot,
        known: given[0].clone(),
        models: given[1].clone(),
        largest_hash: table.largest_hash,
    };
    let lots = run.of_lots(nodes, deal, "rows", work).await?;
    let schema = table.schema(&run.plan.layout);
    let path = output.staged(&run.begun.run, POINTS);
    let mut writer = RowWriter::create(output, path, Arc::clone(&schema))?;
    // The columns of the lag are between those of the partition and the key.
    let layout = &run.plan.layout;
    let (n_partition, n_lag) = (layout.partition.len(), table.run.lag.fields().len());
    let of_key = (n_partition..layout.n_order()).map(|at| at + n_lag);
    let keys: Vec<usize> = (0..n_partition).chain(of_key).collect();
    let mut merge = Merge::new(&schema, &keys, lots)?;
    while let Some(batch) = merge.next(output, hash).await? {
        writer.write(batch).await?;
    }
    let rows = writer.finish().await?;
    Ok(StagedTable { rows, schema })
}
