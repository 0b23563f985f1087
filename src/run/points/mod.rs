//! Points: rows with coordinates → state embeddings of pairs, diffusion maps and heat sketches.
//!
//! ```text
//! rows ─ survey ─▶ scales, ranges, samples ─ sums by method, or points ─▶ models ─ rows ─▶ tables
//! ```

pub(crate) mod assign;
pub(crate) mod bandwidths;
pub(crate) mod compare;
pub(crate) mod confusion;
pub(crate) mod densities;
pub(crate) mod embeddings;
pub(crate) mod first_pass;
pub(crate) mod grams;
pub(crate) mod kernels;
pub(crate) mod kind;
mod known;
pub(crate) mod record;
pub(crate) mod rounds;
pub(crate) mod rows;
pub(crate) mod sums;
pub(crate) mod tasks;

use crate::assess::certificates;
use crate::error::{Error, Kind, Result, counted};
use crate::output::staging::{StagedTables, Staging};
use crate::output::tables::points::{DENSITIES, POINTS, PointsModel, columns};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::pipeline::keys::PointRows;
use crate::plan::points::PointsPlan;
use crate::read::points::layout::PointRoles;
use crate::read::points::survey::survey as survey_rows;
use crate::read::rows::coordinates::{LargeValue, Scale};
use crate::read::rows::states::describe;
use crate::run::failures::Failures;
use crate::run::kind::{EvidenceKind, Fitted, Found, Read, Running, Written};
use crate::run::points::first_pass::{FirstPass, survey};
use crate::run::points::kind::PointsKind;
use crate::run::points::record::{Facts, PointFitRecord, PointsModelRecord};
use crate::run::record::{ModelEntry, Resumed, TimeRecord};
use crate::run::summary::SHOWN;
use crate::run::workers::Workers;
use arrow::array::ArrayRef;
use std::collections::BTreeSet;

/// The least distance of the quartiles of a coordinate that is divided by its standard deviation:
/// squares of smaller distances lose digits.
const SMALLEST_SPREAD: f64 = 1e-100;

/// What the models of a run share.
pub(crate) struct Shared {
    /// What the first pass found.
    pub(crate) first_pass: FirstPass,
    /// The partition and lag columns.
    pub(crate) run: RunSchema,
    /// A value that is far from the others: it may be why a fit fails.
    far: Option<String>,
}

impl EvidenceKind for PointsKind {
    const NAME: &'static str = "points";
    const READ: &'static str = "survey";

    type Plan = PointsPlan;
    type Evidence = (FirstPass, Option<String>);
    type Model = PointsModel;
    type Shared = Shared;
    type Rows = ();
    type Facts = Facts;
    type ModelRecord = PointsModelRecord;

    async fn read(run: &Running<'_, Self>) -> Result<Read<Self>> {
        let layout = &run.plan.layout;
        let (surveyor, found) = match &run.options.workers {
            Workers::Local => survey_rows(run.lake, run.frame.clone(), layout).await?,
            Workers::Remote { nodes, .. } => rounds::survey(run, nodes).await?,
        };
        let first_pass = survey(layout, surveyor, found)?;
        let mut warnings = far_values(run, &first_pass).await?;
        let far = warnings.first().cloned();
        if let Some(warning) = first_pass.constant_numbers(layout) {
            tracing::warn!("{warning}");
            warnings.push(warning);
        }
        let points = first_pass.partitions.iter().map(|survey| survey.rows);
        let found = Found {
            rows: first_pass.found.rows,
            dropped: first_pass.found.dropped.0.clone(),
            time: layout
                .rules()
                .map(|rules| TimeRecord::of_gaps(rules, first_pass.found.gaps))
                .unwrap_or_default(),
            facts: Facts {
                points: points.sum(),
            },
            pairs: Some(first_pass.pairs(layout.n_lags())),
            warnings,
            ..Found::default()
        };
        Ok(Read {
            evidence: (first_pass, far),
            found,
            ledger: None,
        })
    }

    async fn fit(
        run: &Running<'_, Self>,
        (first_pass, far): (FirstPass, Option<String>),
    ) -> Result<Fitted<Self>> {
        let plan = run.plan;
        let mut failures = Failures::default();
        let (models, empty) = match plan.layout.roles {
            PointRoles::Pairs { .. } => embeddings::fit(run, &first_pass, &mut failures)
                .await
                .map_err(|e| because(far.as_ref(), e))?,
            PointRoles::Rows => {
                let fitted = match &run.options.workers {
                    Workers::Local => kernels::fit(run, &first_pass).await,
                    Workers::Remote { nodes, .. } => {
                        rounds::fit_kernels(run, nodes, &first_pass.known).await
                    }
                };
                let fitted = fitted.map_err(|e| because(far.as_ref(), e))?;
                let mut models = Vec::new();
                for (partition, model) in fitted.into_iter().enumerate() {
                    let place = first_pass.known.place(plan, partition, 0);
                    let model = model.map_err(|e| because(far.as_ref(), e));
                    models.extend(failures.take(place, model)?);
                }
                (models, Vec::new())
            }
        };
        let points = first_pass.partitions.iter().map(|survey| survey.rows);
        let facts = Facts {
            points: points.sum(),
        };
        let shared = Shared {
            run: plan.run_schema(first_pass.found.partitions.clone()),
            first_pass,
            far,
        };
        Ok(Fitted {
            empty,
            failures,
            resumed: Resumed::pieces(run.work, false),
            ..Fitted::new(models, shared, facts)
        })
    }

    fn check_certificates(run: &Running<'_, Self>, fitted: &Fitted<Self>) -> Result<()> {
        let Shared {
            first_pass, far, ..
        } = &fitted.shared;
        for model in &fitted.models {
            for fit in &model.fits {
                let place = || first_pass.known.place(run.plan, model.partition, model.lag);
                certificates::check(&fit.name, &fit.certificates)
                    .map_err(|e| match fit.warnings.first() {
                        Some(warning) => e.at(warning),
                        None => e,
                    })
                    .map_err(|e| because(far.as_ref(), e.at(place())))?;
            }
        }
        Ok(())
    }

    async fn rows(run: &Running<'_, Self>, fitted: &mut Fitted<Self>) -> Result<Written<Self>> {
        let (first_pass, schema) = (&fitted.shared.first_pass, &fitted.shared.run);
        let models = &fitted.models[..];
        let mut tables = StagedTables::new();
        if let Some(written) = densities::write(run, &first_pass.known, schema, models).await? {
            tables.insert(DENSITIES, written);
        }
        let largest_hash = match run.plan.rows {
            PointRows::Sample(most) => rows::largest_hash(run, first_pass, most).await?,
            PointRows::All | PointRows::None => None,
        };
        if run.plan.rows != PointRows::None {
            let table = rows::PointsTable {
                run: schema,
                models,
                largest_hash,
            };
            let written = match &run.options.workers {
                Workers::Local => rows::write(run, first_pass, table).await?,
                Workers::Remote { nodes, .. } => {
                    rounds::write_rows(run, nodes, first_pass, table).await?
                }
            };
            tables.insert(POINTS, written);
        }
        Ok(Written {
            tables,
            ..Written::default()
        })
    }

    async fn stage(run: &Running<'_, Self>, fitted: &Fitted<Self>) -> Result<StagedTables> {
        let staging = Staging::new(run.output, run.begun, &fitted.shared.run);
        let tables = run.plan.model_tables().into_iter();
        let tables = tables.map(|table| (table, columns(table)));
        staging.write_all(tables.collect(), &fitted.models).await
    }

    fn record(
        run: &Running<'_, Self>,
        fitted: &Fitted<Self>,
        _: &Written<Self>,
        at: usize,
    ) -> ModelEntry<PointsModelRecord> {
        let model = &fitted.models[at];
        let partitions = &fitted.shared.first_pass.found.partitions;
        let columns = run.plan.layout.partition.iter().zip(partitions);
        let value = |keys: &ArrayRef| describe(std::slice::from_ref(keys), model.partition);
        ModelEntry {
            partition: columns
                .map(|(field, keys)| (field.name().clone(), value(keys)))
                .collect(),
            lag: run.plan.lags.get(model.lag).map(ToString::to_string),
            model: PointsModelRecord {
                points: model.rows,
                dimension: model.divisors.len(),
                fits: model.fits.iter().map(PointFitRecord::of).collect(),
            },
        }
    }
}

/// The error of a fit, with the far value that may be its cause: a certificate does not know rows.
fn because(far: Option<&String>, e: Error) -> Error {
    match far {
        Some(far) if matches!(e.kind(), Kind::Input | Kind::Check) => e.at(far),
        _ => e,
    }
}

/// Names the values that are too large, or far from those of the other rows.
///
/// # Errors
/// If such a value makes the scale of a coordinate.
async fn far_values(run: &Running<'_, PointsKind>, first_pass: &FirstPass) -> Result<Vec<String>> {
    let layout = &run.plan.layout;
    let mut warnings = Vec::new();
    if let Some(large) = &first_pass.found.large {
        warnings.push(format!(
            "{large}, which is too large: its square exceeds the range of numbers; rows like it are left out"
        ));
    }
    let far = first_pass.far();
    if !far.is_empty() {
        let hashes = far.iter().map(|far| far.hash).collect();
        let keys = rows::keys_of(run, &hashes).await?;
        let mut named = BTreeSet::new();
        // One warning per row is enough.
        for far in far.into_iter().filter(|far| named.insert(far.hash)) {
            let names = &layout.coordinates;
            let column = names.get(far.coordinate).unwrap_or(&names[0]);
            let value = LargeValue {
                value: far.value,
                column: column.name().clone(),
                key: keys.get(&far.hash).cloned().unwrap_or_default(),
            };
            let what = far.middle.said_of(&value);
            let [low, high] = far.middle.quartiles;
            let divisor = first_pass.known.divisors[far.coordinate];
            if layout.scale == Scale::Standard && (high / divisor - low / divisor) < SMALLEST_SPREAD
            {
                return Err(Error::input(format!(
                    "{what}; with `scale = \"standard\"` nothing else would be left of the coordinate; leave such rows out"
                )));
            }
            warnings.push(format!("{what}; leave such rows out if they are no data"));
        }
    }
    if warnings.len() > SHOWN {
        let more = warnings.len() - SHOWN;
        warnings.truncate(SHOWN);
        warnings.push(format!("{} more are large", counted(more, "value")));
    }
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    Ok(warnings)
}
