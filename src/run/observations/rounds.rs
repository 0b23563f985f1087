//! Fits filters and filters rows on other machines, in rounds of tasks.
//!
//! ```text
//! this process: training rows ─ fit ─▶ filters
//! files ─ deal ─▶ lots of whole trajectories ─ rows ─▶ this process: tables in the order of keys
//! ```
//!
//! A fit depends on its training rows and the seed alone, and the estimates of a row on the filter
//! and the earlier rows of its trajectory, so all tables have the bytes of a run on one machine.

use crate::error::Result;
use crate::evidence::pass::packed::{pack, unpack_result};
use crate::methods::filter::model::FilterFit;
use crate::output::parts::Piece;
use crate::output::tables::observations::{ESTIMATES, POSTERIORS, TRAJECTORIES};
use crate::output::tables::run_schema::RunSchema;
use crate::read::rows::ordered::Found;
use crate::run::Planned;
use crate::run::kind::Running;
use crate::run::observations::fit::{FitTime, Fitting, TimedFit, Unit};
use crate::run::observations::input::Filters;
use crate::run::observations::kind::ObservationsKind;
use crate::run::observations::rows::{Ended, RowsWritten, Tally};
use crate::run::observations::tasks::{FilteredLot, FitAnswer, ObservationsWork};
use crate::run::trajectories::Target;
use crate::run::workers::merge::Merge;
use crate::run::workers::nodes::Nodes;
use crate::run::workers::requests::Requests;
use crate::run::workers::slices::Width;
use crate::run::workers::task::{TaskPlace, Tasks};
use std::collections::BTreeMap;
use std::sync::Arc;

impl Tasks for ObservationsKind {
    type Work = ObservationsWork;

    fn name(work: &ObservationsWork) -> &'static str {
        match work {
            ObservationsWork::Fit { .. } => "fit",
            ObservationsWork::Deal { .. } => "deal",
            ObservationsWork::Rows { .. } => "rows",
        }
    }

    async fn perform(place: TaskPlace, work: ObservationsWork) -> Result<Vec<u8>> {
        place.executor()?.filters(work).await
    }

    fn width(planned: &Planned<ObservationsKind>) -> Result<Width, String> {
        let rounds = vec!["fit", "deal", "rows"];
        Width::of(&planned.plan.job, &planned.frame, rounds)
    }
}

/// Fits filters, in the order of `units`.
///
/// # Errors
/// If the store of the output fails.
pub(super) async fn fit(
    run: &Running<'_, ObservationsKind>,
    nodes: &Arc<dyn Nodes>,
    fitting: &Fitting,
    units: &[Unit],
) -> Result<Vec<Result<TimedFit>>> {
    let (output, hash) = (run.output, &run.plan.job.hash);
    let mut work = Vec::with_capacity(units.len());
    for &unit in units {
        let input = vec![pack(&fitting.input(unit))?];
        let pieces = output.put_part(hash, input).await?.into_iter();
        work.extend(pieces.map(|input| ObservationsWork::Fit { input }));
    }
    let requests = Requests::of(run, nodes).await?;
    let answers: Vec<FitAnswer> = requests.all("fit", work).await?;
    let pieces = answers.iter().flat_map(|answer| answer.pieces.clone());
    let bytes = output.pieces(hash, &pieces.collect::<Vec<_>>()).await?;
    let fits = bytes.iter().zip(&answers).map(|(bytes, answer)| {
        let time = FitTime {
            seconds: answer.seconds,
            resumed: false,
        };
        let fit = unpack_result::<FilterFit>(bytes)?;
        Ok(fit.map(|fit| TimedFit { fit, time }))
    });
    fits.collect()
}

/// Filters the rows and writes their tables.
///
/// # Errors
/// If a task fails, or a table cannot be written.
pub(super) async fn rows(
    run: &Running<'_, ObservationsKind>,
    nodes: &Arc<dyn Nodes>,
    schema: &RunSchema,
    filters: &Filters<'_>,
) -> Result<RowsWritten> {
    let (plan, output, hash) = (run.plan, run.output, &run.plan.job.hash);
    let deal = |files, lots| ObservationsWork::Deal { files, lots };
    let sent = vec![pack(filters)?];
    let sent = output.put_part(hash, sent).await?;
    let work = |lot| ObservationsWork::Rows {
        lot,
        filters: sent[0].clone(),
    };
    let answers: Vec<FilteredLot> = run.of_lots(nodes, deal, "rows", work).await?;

    let tables = filters.tables(plan, schema);
    let target = Target {
        output,
        begun: run.begun,
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
    answers
        .iter()
        .for_each(|lot| tally.add_seconds(&lot.seconds));
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

/// Some pieces of every lot.
fn of(lots: &[FilteredLot], pieces: fn(&FilteredLot) -> &Vec<Piece>) -> Vec<Vec<Piece>> {
    lots.iter().map(|lot| pieces(lot).clone()).collect()
}
