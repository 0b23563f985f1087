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

use crate::cluster::nodes::Nodes;
use crate::cluster::rounds::merge::Merge;
use crate::cluster::rounds::requests::Requests;
use crate::cluster::rounds::slices::{Width, by_lot, lots, slices};
use crate::cluster::task::points::PointsWork;
use crate::cluster::task::work::{PlanSite, Work};
use crate::error::{Error, Result};
use crate::evidence::pass::packed::{pack, unpack, unpack_result};
use crate::output::parts::Piece;
use crate::output::row_writer::RowWriter;
use crate::output::tables::points::{POINTS, PointFit, PointsModel};
use crate::plan::points::PointsPlan;
use crate::read::points::Found;
use crate::read::points::layout::PointRoles;
use crate::read::points::survey::{Surveyor, merged};
use crate::run::points::grams::{PartitionSums, SumRequest};
use crate::run::points::kernels::landmarks;
use crate::run::points::rows::{self, RowTable};
use crate::run::points::site::{PointJob, PointSite, PointsTable};
use crate::run::points::surveyed::{Known, Surveyed};
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Most tasks that fit the maps of all partitions. Each of them reads all rows.
const FITS: usize = 16;

/// The width of a plan.
///
/// # Errors
/// Why one task deals all rows.
pub fn width(plan: &PointsPlan, frame: &DataFrame) -> Result<Width, String> {
    let slices = slices(&plan.job.tables, frame)?;
    let by_landmarks = || plan.fits.iter().all(|fit| landmarks(&fit.method).is_some());
    let rounds = match plan.layout.roles {
        PointRoles::Pairs { .. } => vec!["deal", "survey", "sum", "rows"],
        PointRoles::Rows if by_landmarks() => vec!["deal", "survey", "fit", "rows"],
        PointRoles::Rows => vec!["deal", "survey", "fit"],
    };
    Ok(Width {
        slices: slices.len() as u64,
        lots: lots(&plan.job.tables, &slices) as u64,
        rounds,
    })
}

/// Reads the points of one run on other machines.
pub struct RemotePoints {
    nodes: Arc<dyn Nodes>,
    dealt: OnceCell<Dealt>,
}

/// The plan and the rows of a run in the store of its output.
struct Dealt {
    site: PlanSite,
    lots: Vec<Vec<Piece>>,
}

impl RemotePoints {
    /// A site for one run.
    pub fn new(nodes: Arc<dyn Nodes>) -> RemotePoints {
        RemotePoints {
            nodes,
            dealt: OnceCell::new(),
        }
    }

    fn requests<'a>(&self, job: &PointJob<'a>, site: PlanSite) -> Requests<'a> {
        Requests {
            site,
            nodes: Arc::clone(&self.nodes),
            progress: job.progress.as_ref(),
        }
    }

    async fn dealt(&self, job: &PointJob<'_>) -> Result<&Dealt> {
        let deal = async {
            let plan = job.plan;
            let site =
                PlanSite::of(&plan.job.hash, &plan.job.stores, plan.as_ref(), job.output).await?;
            let slices = slices(&plan.job.tables, job.frame).unwrap_or_else(|why| {
                tracing::info!("one task reads all rows, because {why}");
                Vec::new()
            });
            let n = lots(&plan.job.tables, &slices);
            let work = if slices.is_empty() {
                vec![None]
            } else {
                slices.into_iter().map(Some).collect()
            };
            let deal = |files| Work::Points(PointsWork::Deal { files, lots: n });
            let requests = self.requests(job, site.clone());
            let dealt = requests.all("deal", work.into_iter().map(deal).collect());
            Ok::<_, Error>(Dealt {
                site,
                lots: by_lot(dealt.await?),
            })
        };
        self.dealt.get_or_try_init(|| deal).await
    }

    /// The pieces that one task per lot answers with.
    async fn of_lots(
        &self,
        job: &PointJob<'_>,
        stage: &'static str,
        work: impl Fn(Vec<Piece>) -> PointsWork,
    ) -> Result<Vec<Vec<Piece>>> {
        let Dealt { site, lots } = self.dealt(job).await?;
        let work = lots.iter().map(|lot| Work::Points(work(lot.clone())));
        let requests = self.requests(job, site.clone());
        requests.all(stage, work.collect()).await
    }

    async fn survey(&self, job: &PointJob<'_>) -> Result<(Surveyor, Found)> {
        let answers = self.of_lots(job, "survey", |lot| PointsWork::Survey { lot });
        let pieces = answers.await?.concat();
        let bytes = job.output.pieces(&job.plan.job.hash, &pieces).await?;
        let parts = bytes.iter().map(|bytes| unpack(bytes));
        merged(&job.plan.layout, &parts.collect::<Result<Vec<_>>>()?)
    }

    async fn sum(
        &self,
        job: &PointJob<'_>,
        known: &Known,
        request: &SumRequest,
    ) -> Result<Vec<PartitionSums>> {
        let (output, hash) = (job.output, &job.plan.job.hash);
        let given = vec![pack(known)?, pack(request)?];
        let given = output.put_part(hash, given).await?;
        let work = |lot| PointsWork::Sum {
            lot,
            known: given[0].clone(),
            request: given[1].clone(),
        };
        let answers = self.of_lots(job, "sum", work).await?;
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

    async fn fit_kernels(
        &self,
        job: &PointJob<'_>,
        known: &Known,
    ) -> Result<Vec<Result<PointsModel>>> {
        let (output, hash) = (job.output, &job.plan.job.hash);
        let Dealt { site, lots } = self.dealt(job).await?;
        let rows = lots.concat();
        let given = output.put_part(hash, vec![pack(known)?]).await?;
        let n = known.len();
        let each = n.div_ceil(FITS);
        let work = (0..n).step_by(each.max(1)).map(|first| {
            Work::Points(PointsWork::FitKernels {
                rows: rows.clone(),
                known: given[0].clone(),
                partitions: first..n.min(first + each),
            })
        });
        let requests = self.requests(job, site.clone());
        let answers: Vec<Vec<Piece>> = requests.all("fit", work.collect()).await?;
        let bytes = output.pieces(hash, &answers.concat()).await?;
        bytes.iter().map(|bytes| unpack_result(bytes)).collect()
    }

    async fn write_rows(
        &self,
        job: &PointJob<'_>,
        surveyed: &Surveyed,
        table: PointsTable<'_>,
    ) -> Result<u64> {
        // Maps without landmarks have already embedded their rows.
        let fits = table.models.iter().flat_map(|model| &model.fits);
        if !fits.into_iter().all(PointFit::embeds_any_row) {
            return rows::write(job, surveyed, table).await;
        }
        let (output, hash) = (job.output, &job.plan.job.hash);
        let given = vec![pack(&surveyed.known)?, pack(&table.models)?];
        let given = output.put_part(hash, given).await?;
        let work = |lot| PointsWork::Rows {
            lot,
            known: given[0].clone(),
            models: given[1].clone(),
            largest_hash: table.largest_hash,
        };
        let lots = self.of_lots(job, "rows", work).await?;
        let schema = RowTable::new(table.run, &job.plan.layout, table.models, None).schema;
        let path = output.staged(&table.begun.run, POINTS);
        let mut writer = RowWriter::create(output, path, Arc::clone(&schema))?;
        // The columns of the lag are between those of the partition and the key.
        let layout = &job.plan.layout;
        let (n_partition, n_lag) = (layout.partition.len(), table.run.lag.fields().len());
        let of_key = (n_partition..layout.n_order()).map(|at| at + n_lag);
        let keys: Vec<usize> = (0..n_partition).chain(of_key).collect();
        let mut merge = Merge::new(&schema, &keys, lots)?;
        while let Some(batch) = merge.next(output, hash).await? {
            writer.write(batch).await?;
        }
        writer.finish().await
    }
}

impl PointSite for RemotePoints {
    fn survey<'a>(&'a self, job: &'a PointJob<'_>) -> BoxFuture<'a, Result<(Surveyor, Found)>> {
        Box::pin(self.survey(job))
    }

    fn sum<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        surveyed: &'a Surveyed,
        request: SumRequest,
    ) -> BoxFuture<'a, Result<Vec<PartitionSums>>> {
        Box::pin(async move { self.sum(job, &surveyed.known, &request).await })
    }

    fn fit_kernels<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        surveyed: &'a Surveyed,
    ) -> BoxFuture<'a, Result<Vec<Result<PointsModel>>>> {
        Box::pin(self.fit_kernels(job, &surveyed.known))
    }

    fn write_rows<'a>(
        &'a self,
        job: &'a PointJob<'_>,
        surveyed: &'a Surveyed,
        table: PointsTable<'a>,
    ) -> BoxFuture<'a, Result<u64>> {
        Box::pin(self.write_rows(job, surveyed, table))
    }
}
