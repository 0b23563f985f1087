//! Fits filters and filters rows on other machines, in rounds of tasks.
//!
//! ```text
//! this process: training rows ─ fit ─▶ filters
//! files ─ deal ─▶ lots of whole trajectories ─ rows ─▶ this process: tables in the order of keys
//! ```
//!
//! A fit depends on its training rows and the seed alone, and the estimates of a row on the filter
//! and the earlier rows of its trajectory, so all tables have the bytes of a run on one machine.

use crate::cluster::nodes::Nodes;
use crate::cluster::rounds::merge::Merge;
use crate::cluster::rounds::requests::Requests;
use crate::cluster::rounds::slices::{Width, by_lot, lots, slices};
use crate::cluster::task::filters::{FilteredLot, FiltersWork, SentFilters};
use crate::cluster::task::work::{PlanSite, Work};
use crate::error::{Error, Result};
use crate::evidence::pass::packed::{pack, unpack_result};
use crate::methods::filter::model::FilterFit;
use crate::output::parts::Piece;
use crate::output::tables::filters::{ESTIMATES, POSTERIORS, TRAJECTORIES};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::filters::FiltersPlan;
use crate::read::sequences::ordered::Found;
use crate::run::filters::fit::{Fitting, Unit};
use crate::run::filters::rows::{Ended, RowsWritten, Tally, Target};
use crate::run::filters::site::{FilterJob, FilterSite, Filters};
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The width of a plan.
///
/// # Errors
/// Why one task deals all rows.
pub fn width(plan: &FiltersPlan, frame: &DataFrame) -> Result<Width, String> {
    let slices = slices(&plan.job.tables, frame)?;
    Ok(Width {
        slices: slices.len() as u64,
        lots: lots(&plan.job.tables, &slices) as u64,
        rounds: vec!["fit", "deal", "rows"],
    })
}

/// Fits the filters and filters the rows of one run on other machines.
pub struct RemoteFilters {
    nodes: Arc<dyn Nodes>,
}

impl RemoteFilters {
    /// A site for one run.
    pub fn new(nodes: Arc<dyn Nodes>) -> RemoteFilters {
        RemoteFilters { nodes }
    }

    async fn requests<'a>(&self, job: &FilterJob<'a>) -> Result<Requests<'a>> {
        let plan = job.plan;
        let site = PlanSite::of(&plan.job.hash, &plan.job.stores, plan.as_ref(), job.output);
        Ok(Requests {
            site: site.await?,
            nodes: Arc::clone(&self.nodes),
            progress: job.progress.as_ref(),
        })
    }

    async fn fit(
        &self,
        job: &FilterJob<'_>,
        fitting: &Fitting,
        units: &[Unit],
    ) -> Result<Vec<Result<FilterFit>>> {
        let (output, hash) = (job.output, &job.plan.job.hash);
        let mut work = Vec::with_capacity(units.len());
        for &unit in units {
            let input = vec![pack(&fitting.input(unit))?];
            let pieces = output.put_part(hash, input).await?.into_iter();
            work.extend(pieces.map(|input| Work::Filters(FiltersWork::Fit { input })));
        }
        let requests = self.requests(job).await?;
        let answers: Vec<Vec<Piece>> = requests.all("fit", work).await?;
        let bytes = output.pieces(hash, &answers.concat()).await?;
        bytes.iter().map(|bytes| unpack_result(bytes)).collect()
    }

    async fn rows(
        &self,
        job: &FilterJob<'_>,
        run: &RunSchema,
        filters: &Filters<'_>,
    ) -> Result<RowsWritten> {
        let (plan, output, hash) = (job.plan, job.output, &job.plan.job.hash);
        let requests = self.requests(job).await?;
        let slices = slices(&plan.job.tables, job.frame).unwrap_or_else(|why| {
            tracing::info!("one task reads all rows, because {why}");
            Vec::new()
        });
        let n = lots(&plan.job.tables, &slices);
        let files = if slices.is_empty() {
            vec![None]
        } else {
            slices.into_iter().map(Some).collect()
        };
        let deal = |files| Work::Filters(FiltersWork::Deal { files, lots: n });
        let dealt = requests.all("deal", files.into_iter().map(deal).collect());
        let lots = by_lot(dealt.await?);
        let sent = vec![pack(&SentFilters::new(filters))?];
        let sent = output.put_part(hash, sent).await?;
        let sent = sent
            .first()
            .ok_or_else(|| Error::bug("the filters have no bytes"))?;
        let rows = |lot| {
            let filters = sent.clone();
            Work::Filters(FiltersWork::Rows { lot, filters })
        };
        let work = lots.into_iter().map(rows).collect();
        let answers: Vec<FilteredLot> = requests.all("rows", work).await?;

        let tables = filters.tables(plan, run);
        let target = Target {
            output,
            begun: job.begun,
        };
        let n_order = plan.layout.n_order();
        let mut written = BTreeMap::new();
        let posteriors = tables.posteriors.as_ref().map(|(schema, _)| schema);
        for (name, schema, lots) in [
            (
                ESTIMATES,
                tables.estimates.as_ref(),
                of(&answers, |lot| &lot.estimates),
            ),
            (POSTERIORS, posteriors, of(&answers, |lot| &lot.posteriors)),
        ] {
            let Some(schema) = schema else { continue };
            let keys: Vec<usize> = (0..n_order).collect();
            let mut writer = target.table(name, schema)?;
            let mut merge = Merge::new(schema, &keys, lots)?;
            while let Some(batch) = merge.next(output, hash).await? {
                writer.write(batch).await?;
            }
            written.insert(name, writer.finish().await?);
        }
        let schema = Ended::schema(&plan.layout);
        let keys: Vec<usize> = (0..schema.fields().len() - 1).collect();
        let mut tally = Tally::default();
        let mut writer = None;
        if let Some(schema) = &tables.trajectories {
            writer = Some((schema, target.table(TRAJECTORIES, schema)?));
        }
        let mut merge = Merge::new(&schema, &keys, of(&answers, |lot| &lot.ended))?;
        while let Some(batch) = merge.next(output, hash).await? {
            let ended = Ended::of_rows(&batch)?;
            tally.add(&ended.rows);
            if let Some((schema, writer)) = &mut writer {
                let has_split = plan.layout.split.is_some();
                let rows = ended.table(schema, has_split, tables.fits.len())?;
                writer.write(rows).await?;
            }
        }
        if let Some((_, writer)) = writer {
            written.insert(TRAJECTORIES, writer.finish().await?);
        }
        let found = Found {
            rows: answers.iter().map(|lot| lot.rows).sum(),
            ..Found::default()
        };
        Ok(tally.written(written, found))
    }
}

/// Some pieces of every lot.
fn of(lots: &[FilteredLot], pieces: fn(&FilteredLot) -> &Vec<Piece>) -> Vec<Vec<Piece>> {
    lots.iter().map(|lot| pieces(lot).clone()).collect()
}

impl FilterSite for RemoteFilters {
    fn fit<'a>(
        &'a self,
        job: &'a FilterJob<'_>,
        fitting: &'a Arc<Fitting>,
        units: &'a [Unit],
    ) -> BoxFuture<'a, Result<Vec<Result<FilterFit>>>> {
        Box::pin(self.fit(job, fitting, units))
    }

    fn rows<'a>(
        &'a self,
        job: &'a FilterJob<'_>,
        run: &'a RunSchema,
        filters: &'a Filters<'_>,
    ) -> BoxFuture<'a, Result<RowsWritten>> {
        Box::pin(self.rows(job, run, filters))
    }
}
