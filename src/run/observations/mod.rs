//! Observations: rows with states and observations → filters of one partition each.
//!
//! ```text
//! training rows ─ fit ─▶ filters ─ filter rows ─▶ estimates and scores ─▶ tables
//! ```
//!
//! - `fit_rows` reads the rows of supervision and of priors.
//! - `fit` fits the filters of every partition.
//! - `scoring` filters batches of rows, `rows` writes their tables. `objectives`, `missing` and
//!   `seconds` add up what the rows have of these.
//! - `assign` filters new rows with a written model, which `known` reads.
//! - `compare` compares two results.

pub(crate) mod assign;
pub(crate) mod compare;
pub mod fit;
pub mod fit_rows;
pub mod input;
pub(crate) mod kind;
pub(crate) mod known;
pub(crate) mod missing;
pub(crate) mod objectives;
pub(crate) mod record;
pub(crate) mod rounds;
pub mod rows;
pub(crate) mod scoring;
pub(crate) mod seconds;
pub(crate) mod tasks;

use crate::error::{self, Error, Result};
use crate::output::result::ModelKey;
use crate::output::staging::{StagedTable, StagedTables, Staging};
use crate::output::tables::observations::{FilterScores, ObservationsModel, columns};
use crate::plan::observations::ObservationsPlan;
use crate::read::observations::training::{TrainingRows, training};
use crate::read::observations::{ObservationInput, Widths};
use crate::run::counts::model::{partition_key, partition_place};
use crate::run::failures::Failures;
use crate::run::kind::{EvidenceKind, Fitted, Found, Read, Running, Written};
use crate::run::observations::fit::{FitTime, FittedPartition, Fitting, TimedFit};
use crate::run::observations::input::Filters;
use crate::run::observations::kind::ObservationsKind;
use crate::run::observations::record::{Facts, ObservationsModelRecord};
use crate::run::observations::rows::RowsWritten;
use crate::run::record::{EmptyRecord, ModelEntry, Resumed, TimeRecord};
use crate::run::trajectories::Target;
use crate::run::workers::Workers;
use crate::run::workers::executor::blocking;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A share of an objective above its minimum that rounding does not explain.
const LARGEST_EXCESS: f64 = 1e-6;

/// What the models of a run share.
pub(crate) struct Shared {
    fitting: Arc<Fitting>,
    /// The filters, until the rows are filtered. The models then have them, with their scores.
    fitted: Vec<FittedPartition>,
    /// How long the fits took, by model and fit.
    times: Vec<Vec<FitTime>>,
    /// Set by the first pass that finds rows out of order; later passes then sort.
    sort: AtomicBool,
}

impl EvidenceKind for ObservationsKind {
    const NAME: &'static str = "observations";
    const READ: &'static str = "read";

    type Plan = ObservationsPlan;
    type Evidence = (Arc<Fitting>, AtomicBool);
    type Model = ObservationsModel;
    type Shared = Shared;
    type Rows = Option<RowsWritten>;
    type Facts = Facts;
    type ModelRecord = ObservationsModelRecord;

    async fn read(run: &Running<'_, Self>) -> Result<Read<Self>> {
        let (plan, sort) = (run.plan, AtomicBool::new(false));
        let input = ObservationInput {
            lake: run.lake,
            frame: run.frame,
            layout: &plan.layout,
            partitions: &[],
            widths: Widths::default(),
            sort: &sort,
        };
        let training = training(input).await?;
        if training.found.rows == 0 {
            return Err(Error::input("the SQL of [sequences] gives no rows"));
        }
        let partitions = training.found.partitions.clone();
        let mut points = Vec::with_capacity(plan.fits.len());
        for fit in &plan.fits {
            points.push(fit_rows::read(run.lake, fit, &partitions, training.widths).await?);
        }
        let found = Found {
            rows: training.found.rows,
            dropped: training.found.dropped.0.clone(),
            time: plan
                .layout
                .rules()
                .map(|rules| TimeRecord::of_gaps(rules, training.found.gaps))
                .unwrap_or_default(),
            facts: facts(plan, &training),
            pairs: Some(vec![training.found.followers]),
            ..Found::default()
        };
        let fitting = Fitting {
            plan: Arc::clone(plan),
            run: plan.run_schema(partitions),
            training,
            points,
        };
        Ok(Read {
            evidence: (Arc::new(fitting), sort),
            found,
            ledger: None,
        })
    }

    async fn fit(
        run: &Running<'_, Self>,
        (fitting, sort): (Arc<Fitting>, AtomicBool),
    ) -> Result<Fitted<Self>> {
        let mut failures = Failures::default();
        let (units, empty) = fitting.units(&mut failures)?;
        let fits = match &run.options.workers {
            Workers::Local => {
                let (fitting, units) = (Arc::clone(&fitting), units.clone());
                let (work, progress) = (Arc::clone(run.work), Arc::clone(run.progress));
                blocking(move || Ok(fitting.fit(&units, &work, progress.as_ref()))).await?
            }
            Workers::Remote { nodes, .. } => rounds::fit(run, nodes, &fitting, &units).await?,
        };
        let fitted = fit::by_partition(&fitting.run, &units, fits, &mut failures)?;
        let empty = empty.iter().map(|&at| EmptyRecord {
            partition: partition_place(&fitting.run, at),
            had_model: false,
            key: ModelKey::at(&fitting.run.partitions, None, at),
        });
        let models = fitted.iter().map(|own| ObservationsModel {
            partition: own.partition,
            fits: Vec::new(),
        });
        let (models, empty) = (models.collect(), empty.collect());
        let times = |own: &FittedPartition| own.fits.iter().map(|own| own.time).collect();
        let facts = facts(run.plan, &fitting.training);
        let shared = Shared {
            fitting,
            times: fitted.iter().map(times).collect(),
            fitted,
            sort,
        };
        Ok(Fitted {
            empty,
            failures,
            resumed: Resumed::pieces(run.work, false),
            ..Fitted::new(models, shared, facts)
        })
    }

    async fn rows(run: &Running<'_, Self>, fitted: &mut Fitted<Self>) -> Result<Written<Self>> {
        let shared = &mut fitted.shared;
        let (plan, schema) = (run.plan, &shared.fitting.run);
        let of_rows = Filters::new(&shared.fitting, &shared.fitted)?;
        let width = of_rows.widths.0;
        let rows = match &run.options.workers {
            Workers::Local => {
                let tables = of_rows.tables(plan, schema);
                let input = of_rows.input(plan, run.lake, run.frame, &shared.sort);
                let target = Target {
                    output: run.output,
                    begun: run.begun,
                };
                rows::write(input, &tables, target, &|n| run.progress.advance(n)).await?
            }
            Workers::Remote { nodes, .. } => rounds::rows(run, nodes, schema, &of_rows).await?,
        };
        let filters = std::mem::take(&mut shared.fitted).into_iter();
        fitted.models = filters.map(|own| model(plan, own, &rows)).collect();
        let tables = rows.tables.iter().map(|(&name, &n)| {
            let schema = plan.schema(name, schema, width);
            (name, StagedTable { rows: n, schema })
        });
        Ok(Written {
            tables: tables.collect(),
            rows: Some(rows),
            ..Written::default()
        })
    }

    async fn stage(run: &Running<'_, Self>, fitted: &Fitted<Self>) -> Result<StagedTables> {
        let staging = Staging::new(run.output, run.begun, &fitted.shared.fitting.run);
        let tables = run.plan.model_tables().into_iter();
        let own = run.plan.own_columns();
        let tables = tables.map(|table| (table, columns(table, own)));
        staging.write_all(tables.collect(), &fitted.models).await
    }

    fn record(
        run: &Running<'_, Self>,
        fitted: &Fitted<Self>,
        written: &Written<Self>,
        at: usize,
    ) -> ModelEntry<ObservationsModelRecord> {
        let (model, fitting) = (&fitted.models[at], &fitted.shared.fitting);
        let training = fitting.training.partitions[model.partition].rows.len() as u64;
        let (rows, times) = (written.rows.as_ref(), &fitted.shared.times[at]);
        ModelEntry {
            partition: partition_key(&fitting.run, model.partition),
            lag: None,
            model: ObservationsModelRecord::of(model, run.plan, training, rows, times),
        }
    }
}

/// What the record says of the training rows.
fn facts(plan: &ObservationsPlan, training: &TrainingRows) -> Facts {
    let partitions = training.partitions.iter();
    let counts = partitions.map(|own| fit::usable(plan, &own.rows));
    Facts {
        transitions: counts.sum(),
        measured: training.measured,
    }
}

/// The filters of a partition with the scores of the rows that they filtered.
fn model(
    plan: &ObservationsPlan,
    own: FittedPartition,
    written: &RowsWritten,
) -> ObservationsModel {
    let partition = own.partition;
    let fits = plan.fits.iter().zip(own.fits).enumerate();
    let fits = fits.map(|(at, (planned, TimedFit { fit, .. }))| {
        let Some(sums) = written.of_fits.get(&(partition as u32, at)) else {
            return fit::written(planned, fit, FilterScores::default(), None);
        };
        let numbers = fit.model.numbers();
        let warning = sums.never_updated().map(|rows| {
            let rows = error::counted(rows, "filtered row");
            match (numbers.state_bandwidth, numbers.observation_bandwidth, numbers.lambda) {
                (Some(state), Some(observation), Some(lambda)) => format!(
                    "no observation of {rows} changed the estimate: the observations are far from all training rows, or no prior weight is positive; the bandwidths are {state} of the state and {observation} of the observation, and lambda is {lambda}"
                ),
                _ => format!("no observation of {rows} changed the estimate"),
            }
        });
        let above = sums.objective_excess().filter(|share| *share > LARGEST_EXCESS);
        let above = above.map(|share| {
            format!("the objective of a row is above its minimum by a share of {share:.1e}; raise `delta`")
        });
        let scores = sums.scores(plan.layout.split.is_some());
        let mut written = fit::written(planned, fit, scores, warning.or(above));
        written.model.errors = sums.errors().to_vec();
        written
    });
    ObservationsModel {
        partition,
        fits: fits.collect(),
    }
}
