//! Pipeline + tables → [`ObservationsPlan`]: all that a run of filters will do, resolved and
//! checked.

use crate::error::{Error, Result, counted};
use crate::evidence::lag::Lag;
use crate::methods::FilterMethod;
use crate::methods::filter::model::Dynamics;
use crate::methods::filter::params::{KernelBayes, System};
use crate::output::tables::observations::{self, FilterColumns, FilterRowColumns, OwnColumns};
use crate::output::tables::run_schema::{LagColumn, RunSchema};
use crate::plan::assignment::{Assignment, NewRows};
use crate::plan::evidence::{Columns, sequence_rules};
use crate::plan::job::PlannedJob;
use crate::plan::kind::{KindPlan, Line, PlanLines, Shown, with_job};
use crate::plan::observations_given::{check_given, numbered, own_state};
use crate::plan::pipeline::content::RowKey;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::FilteredRows;
use crate::plan::pipeline::{Input, Pipeline, TimeKeys};
use crate::plan::rows::PlannedQuery;
use crate::plan::show::{
    add_times, all, column, columns, fit_json, follow_text, names, order_text, times_text,
};
use crate::read::lake::Lake;
use crate::read::observations::layout::{ObservationKey, ObservationLayout, is_list, select};
use crate::read::rows::time_rules::TimeSteps;
use crate::read::sql::expression::expression;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run of filters will do. The serialized part is what executors need.
#[derive(Serialize, Deserialize)]
pub(crate) struct ObservationsPlan {
    /// What the run reads and where it writes.
    pub job: PlannedJob,
    /// The roles of the columns of the query.
    pub layout: Arc<ObservationLayout>,
    /// The time between rows that follow each other. If None, each row follows the previous row of
    /// its trajectory, however much later it is.
    pub interval: Option<Lag>,
    /// How the times are read, as written.
    #[serde(skip)]
    pub(crate) times: TimeKeys,
    /// The fits, in the order of the file.
    #[serde(with = "crate::plan::serialized::json")]
    pub fits: Vec<PlannedFilter>,
    /// The rows of the table `estimates`.
    pub rows: FilteredRows,
    /// Whether to write the table `posteriors`.
    pub posteriors: bool,
    /// Whether to write the table `errors`.
    pub errors: bool,
}

/// A filter of every partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedFilter {
    /// The prefix of its column names.
    pub name: String,
    pub method: FilterMethod,
    /// The functions of a nonlinear system, or of a prediction whose nearest state is used.
    pub dynamics: Option<Dynamics>,
    /// The names of the numbers of the state, if no row has a state; else empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub state: Vec<String>,
    pub supervision: Option<PlannedRows>,
    /// The prior of a static problem.
    pub prior: Option<PlannedRows>,
}

impl PlannedFilter {
    /// Whether the state of supervision that is nearest to a prediction is used.
    pub(crate) fn takes_nearest(&self) -> bool {
        matches!(&self.method, FilterMethod::KernelBayes(own) if own.takes_nearest())
    }
}

/// Rows of a query of their own: supervision, or a prior.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedRows {
    /// The SQL of the rows, without parameters.
    pub sql: String,
    /// Partition keys. Empty: the rows are for all partitions.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub partition: Vec<Field>,
    /// The trajectory keys and the time of the only step for which the row is. Empty: the row is
    /// for every step.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub step: Vec<Field>,
    /// The state, as in the layout of the plan.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub state: Vec<Field>,
    /// The observation, as in the layout of the plan. Empty for a prior, and for states of which
    /// the nearest to a prediction supervises a row.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub observation: Vec<Field>,
    /// The column of weights of a prior.
    #[serde(with = "crate::read::rows::ipc::maybe_field")]
    pub weight: Option<Field>,
}

impl PlannedRows {
    /// Every column, in the order of the fields of this struct.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let leading = self.partition.iter().chain(&self.step);
        let points = self.state.iter().chain(&self.observation);
        leading.chain(points).chain(&self.weight).cloned().collect()
    }
}

/// The column of the weights of a prior.
const WEIGHT: &str = "weight";

/// What the rows of a query may have.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Supervision,
    /// States of which the nearest to a prediction supervises a row.
    Nearest,
    Prior,
}

impl Kind {
    fn section(self) -> &'static str {
        match self {
            Kind::Supervision | Kind::Nearest => "supervision",
            Kind::Prior => "prior",
        }
    }
}

impl ObservationsPlan {
    /// The columns that the fits add to tables of rows.
    pub(crate) fn fit_columns(&self) -> Vec<FilterColumns> {
        let fits = self.fits.iter();
        fits.map(|fit| FilterColumns {
            name: fit.name.clone(),
            has_weights: matches!(fit.method, FilterMethod::KernelBayes(_)),
            objectives: fit.method.objectives(),
            state: fit.state.clone(),
        })
        .collect()
    }

    /// Whether rows have a state.
    pub(crate) fn has_state(&self) -> bool {
        !self.layout.state.is_empty()
    }

    /// Numbers per state: if no row has one, those of the widest fit. None for lists of unknown
    /// length.
    pub(crate) fn state_width(&self) -> Option<usize> {
        if self.has_state() {
            return width(&self.layout.state);
        }
        self.fits.iter().map(|fit| fit.state.len()).max()
    }

    /// Which columns the table `fits` has.
    pub(crate) fn own_columns(&self) -> OwnColumns {
        OwnColumns {
            objectives: self.has_objectives(),
            state: !self.has_state(),
        }
    }

    /// The rows that are filtered, also if none of them are written.
    pub(crate) fn filtered(&self) -> FilteredRows {
        match self.rows {
            FilteredRows::None if self.layout.split.is_some() => FilteredRows::HeldOut,
            FilteredRows::None => FilteredRows::All,
            rows => rows,
        }
    }

    /// The columns of a table. A state has `width` numbers.
    pub(crate) fn schema(&self, table: &str, run: &RunSchema, width: usize) -> SchemaRef {
        let (rows, fits) = (row_columns(&self.layout), self.fit_columns());
        match table {
            observations::ESTIMATES => observations::estimates_schema(run, rows, width, &fits),
            observations::TRAJECTORIES => observations::trajectories_schema(run, rows, &fits),
            observations::POSTERIORS => observations::posteriors_schema(run, rows),
            table => {
                observations::columns(table, self.own_columns())
                    .schema(run)
                    .0
            }
        }
    }

    /// Whether a fit has objectives of rows.
    fn has_objectives(&self) -> bool {
        let mut fits = self.fits.iter();
        fits.any(|fit| !fit.method.objectives().is_empty())
    }

    /// The names of the tables that are made of models.
    pub(crate) fn model_tables(&self) -> Vec<&'static str> {
        let mut tables = self.job.kept(&observations::TABLES);
        if self.errors {
            tables.push(observations::ERRORS);
        }
        tables
    }

    /// The names of the tables in the order in which they are written.
    pub(crate) fn table_names(&self) -> Vec<&'static str> {
        let mut tables = self.model_tables();
        if !self.layout.is_static() {
            tables.push(observations::TRAJECTORIES);
        }
        if self.rows != FilteredRows::None {
            tables.push(observations::ESTIMATES);
        }
        if self.posteriors {
            tables.push(observations::POSTERIORS);
        }
        tables
    }

    /// What the tables of a run share. `partitions` has one array per partition column.
    pub(crate) fn run_schema(&self, partitions: Vec<ArrayRef>) -> RunSchema {
        run_schema(&self.layout, partitions)
    }
}

/// What the tables of a run over rows of a layout share.
pub(crate) fn run_schema(layout: &ObservationLayout, partitions: Vec<ArrayRef>) -> RunSchema {
    RunSchema::of_models(&layout.partition, partitions, LagColumn::None)
}

/// The columns of the rows of a layout in the tables of rows.
pub(crate) fn row_columns(layout: &ObservationLayout) -> FilterRowColumns<'_> {
    let (key, time) = match &layout.key {
        ObservationKey::Trajectories {
            trajectory, time, ..
        } => (trajectory, Some(time)),
        ObservationKey::Rows { id } => (id, None),
    };
    FilterRowColumns {
        key,
        time,
        split: layout.split.as_ref(),
        has_state: !layout.state.is_empty(),
    }
}

/// Numbers per state or observation. None for a list of unknown length.
pub(crate) fn width(fields: &[Field]) -> Option<usize> {
    match fields {
        [field] if is_list(fields) => match field.data_type() {
            DataType::FixedSizeList(_, width) => Some(*width as usize),
            _ => None,
        },
        fields => Some(fields.len()),
    }
}

/// The layout of a pipeline with states and observations. There is no state if the pipeline names
/// none.
fn layout(
    pipeline: &Pipeline,
    columns: &Columns,
    partition: Vec<Field>,
) -> Result<ObservationLayout> {
    let Input::Observations {
        key,
        state,
        observation,
        split,
    } = &pipeline.transitions.input
    else {
        return Err(Error::bug("the rows have no observations"));
    };
    let key = match key {
        RowKey::Trajectories {
            trajectory,
            time,
            times,
            interval,
        } => {
            let trajectory = columns.keys(trajectory, "trajectory")?;
            let time = columns.time(time)?;
            let (step, rules) = sequence_rules(times, columns, &time, interval.as_ref())?;
            ObservationKey::Trajectories {
                trajectory,
                step,
                rules: Box::new(rules),
                time,
            }
        }
        RowKey::Rows { id } => ObservationKey::Rows {
            id: columns.keys(id, "id")?,
        },
    };
    Ok(ObservationLayout {
        partition,
        key,
        state: columns.points(state, "state")?,
        observation: columns.points(observation, "observation")?,
        split: columns.split(split.as_ref())?,
    })
}

/// The rows of a query of a fit, with the columns of the layout.
async fn rows_of(
    sql: &str,
    kind: Kind,
    pipeline: &Pipeline,
    layout: &ObservationLayout,
    lake: &Lake,
) -> Result<PlannedRows> {
    let Input::Observations {
        state, observation, ..
    } = &pipeline.transitions.input
    else {
        return Err(Error::bug("the rows have no observations"));
    };
    let section = kind.section();
    if state.is_empty() {
        return Err(Error::spec(
            "these rows have states, whose columns the key `state` of [sequences] names; name them there",
        ));
    }
    let sql = sql.trim().trim_end_matches(';').to_string();
    let frame = lake.query_of(section, &sql, &BTreeMap::new()).await?;
    let columns = Columns::of(&frame, section)?;
    let group = |fields: Vec<&Field>, what: &str| group(&columns, section, &fields, what);
    let (step, observation) = match kind {
        Kind::Supervision if layout.is_static() => {
            (Vec::new(), columns.points(observation, "observation")?)
        }
        Kind::Supervision => (
            group(layout.key_fields().collect(), "trajectory and time")?,
            columns.points(observation, "observation")?,
        ),
        Kind::Nearest => {
            if let Some(field) = layout.key_fields().find(|field| columns.has(field.name())) {
                return Err(Error::spec(format!(
                    "the SQL of [{section}] gives the column `{}`, but with `nearest = true` every state is for all rows; leave the columns of trajectory and time out",
                    field.name()
                )));
            }
            (Vec::new(), Vec::new())
        }
        Kind::Prior => (Vec::new(), Vec::new()),
    };
    let weight = match kind {
        Kind::Prior if columns.has(WEIGHT) => Some(columns.number(WEIGHT, WEIGHT, false)?),
        _ => None,
    };
    let planned = PlannedRows {
        partition: group(layout.partition.iter().collect(), "the partition")?,
        step,
        state: columns.points(state, "state")?,
        observation,
        weight,
        sql,
    };
    for (own, of) in [
        (&planned.state, &layout.state),
        (&planned.observation, &layout.observation),
    ] {
        let widths = (width(own), width(of));
        let is_other = matches!(widths, (Some(a), Some(b)) if a != b);
        if !own.is_empty() && !of.is_empty() && (is_list(own) != is_list(of) || is_other) {
            let what = "a point has the same numbers in both";
            return Err(other_type(section, &own[0], &of[0], what));
        }
    }
    Ok(planned)
}

/// Columns that the SQL of a fit need not have: all of them, which `what` names, or none.
fn group(
    columns: &Columns,
    section: &'static str,
    fields: &[&Field],
    what: &str,
) -> Result<Vec<Field>> {
    let (there, missing): (Vec<&Field>, Vec<&Field>) =
        fields.iter().partition(|field| columns.has(field.name()));
    if let (Some(there), Some(missing)) = (there.first(), missing.first()) {
        return Err(Error::spec(format!(
            "the SQL of [{section}] gives the column `{}` but not `{}`; give all columns of {what}, or none of them",
            there.name(),
            missing.name()
        )));
    }
    let own = there.into_iter().map(|field| {
        let own = columns.key(field.name(), section)?;
        if own.data_type() != field.data_type() {
            return Err(other_type(section, &own, field, "cast it in the SQL"));
        }
        Ok(own)
    });
    own.collect()
}

/// The error of a column whose type is another one in the SQL of the rows.
fn other_type(section: &str, own: &Field, of: &Field, what: &str) -> Error {
    Error::spec(format!(
        "column `{}` is {} in the SQL of [{section}], but {} in the SQL of [sequences]; {what}",
        own.name(),
        own.data_type(),
        of.data_type()
    ))
}

/// The functions of a nonlinear system.
fn dynamics(fit: &str, system: System<'_>, layout: &ObservationLayout) -> Result<Dynamics> {
    let columns = layout.state.iter().map(|field| field.name().clone());
    let names: Vec<String> = match system.state {
        Some(names) => names.to_vec(),
        None if layout.state.is_empty() => numbered(system.f.len()),
        None => columns.collect(),
    };
    let all = |key: &str, texts: &[String]| {
        let all = texts.iter().enumerate().map(|(at, text)| {
            let read = expression(text, &names);
            read.map_err(|e| e.at(format!("`fit.{fit}.{key}.{at}`")))
        });
        all.collect::<Result<Vec<_>>>()
    };
    // Lists of unknown length are compared when rows are read.
    let fits = |key: &str, texts: &[String], fields: &[Field], role: &str| match width(fields) {
        Some(numbers) if numbers != texts.len() && !fields.is_empty() => Err(Error::spec(format!(
            "`fit.{fit}.{key}` has {} for {} in `sequences.{role}`; write one expression per number, in their order",
            counted(texts.len(), "expression"),
            counted(numbers, "number"),
        ))),
        _ => Ok(()),
    };
    if system.state.is_none() && !layout.state.is_empty() {
        fits("f", system.f, &layout.state, "state")?;
        if is_list(&layout.state) && system.f.len() > 1 {
            return Err(Error::spec(format!(
                "`fit.{fit}.f` has {} expressions of the list `{}`, whose numbers have no names; select them as columns of their own in the SQL, and name these columns in `sequences.state`",
                system.f.len(),
                names[0]
            )));
        }
    }
    fits("h", system.h, &layout.observation, "observation")?;
    if let Some(estimate) = system.estimate {
        fits("estimate", estimate, &layout.state, "state")?;
    }
    Ok(Dynamics {
        f: all("f", system.f)?,
        h: all("h", system.h)?,
        estimate: all("estimate", system.estimate.unwrap_or_default())?,
    })
}

/// The functions of a prediction whose nearest state supervises a row.
fn prediction(fit: &str, texts: &[String], layout: &ObservationLayout) -> Result<Dynamics> {
    if is_list(&layout.state) && texts.len() > 1 {
        return Err(Error::spec(format!(
            "`fit.{fit}.supervision.f` has {} expressions of the list `{}`, whose numbers have no names; select them as columns of their own in the SQL, and name these columns in `sequences.state`",
            texts.len(),
            layout.state[0].name()
        )));
    }
    let names = layout.state.iter().map(|field| field.name().clone());
    let names: Vec<String> = names.collect();
    let all = texts.iter().enumerate().map(|(at, text)| {
        let read = expression(text, &names);
        read.map_err(|e| e.at(format!("`fit.{fit}.supervision.f.{at}`")))
    });
    Ok(Dynamics {
        f: all.collect::<Result<_>>()?,
        ..Dynamics::default()
    })
}

/// A query, and what its rows may have.
type FitQuery<'a> = (Kind, &'a str);

/// The queries of supervision and of the prior.
fn queries(own: &KernelBayes) -> (Option<FitQuery<'_>>, Option<FitQuery<'_>>) {
    let supervision = own.supervision.as_ref().map(|rows| {
        let kind = if rows.nearest {
            Kind::Nearest
        } else {
            Kind::Supervision
        };
        (kind, rows.sql.as_str())
    });
    let prior = own.prior.as_ref();
    (
        supervision,
        prior.map(|rows| (Kind::Prior, rows.sql.as_str())),
    )
}

/// Resolves the fits of a pipeline, with the rows and the functions that they name.
async fn filters_of(
    pipeline: &Pipeline,
    layout: &ObservationLayout,
    lake: &Lake,
) -> Result<Vec<PlannedFilter>> {
    let mut fits = Vec::with_capacity(pipeline.filter_fits.len());
    for FitEntry { name, method, .. } in &pipeline.filter_fits {
        let mut fit = PlannedFilter {
            name: name.clone(),
            method: method.clone(),
            dynamics: None,
            state: if layout.state.is_empty() {
                own_state(method)
            } else {
                Vec::new()
            },
            supervision: None,
            prior: None,
        };
        match method {
            FilterMethod::Kalman(_) => {}
            FilterMethod::Ekf(own) => fit.dynamics = Some(dynamics(name, own.system(), layout)?),
            FilterMethod::Ukf(own) => fit.dynamics = Some(dynamics(name, own.system(), layout)?),
            FilterMethod::KernelBayes(own) => {
                if let Some(f) = own.supervision.as_ref().and_then(|rows| rows.f.as_ref()) {
                    fit.dynamics = Some(prediction(name, f, layout)?);
                }
                let (supervision, prior) = queries(own);
                for (query, planned) in
                    [(supervision, &mut fit.supervision), (prior, &mut fit.prior)]
                {
                    let Some((kind, sql)) = query else { continue };
                    let rows = rows_of(sql, kind, pipeline, layout, lake).await;
                    let place = || format!("`fit.{name}.{}`", kind.section());
                    *planned = Some(rows.map_err(|e| e.at(place()))?);
                }
            }
        }
        fits.push(fit);
    }
    Ok(fits)
}

/// New rows with observations.
pub(crate) struct NewObservations {
    /// The roles of the columns of the query. There may be no state.
    pub layout: Arc<ObservationLayout>,
    /// The fits with their methods and functions; those of the model have the same names.
    pub fits: Vec<PlannedFilter>,
    /// Whether training rows are left out.
    pub held_out: bool,
}

impl NewObservations {
    /// Checks the columns of the rows against the lengths of the states and observations of the
    /// model at `at`. The lengths of lists are checked when they are read.
    ///
    /// # Errors
    /// If the lengths differ.
    pub(crate) fn check_widths(&self, state: usize, observation: usize, at: &str) -> Result<()> {
        let of = [
            ("state", &self.layout.state, state),
            ("observation", &self.layout.observation, observation),
        ];
        for (role, fields, wanted) in of {
            let own = width(fields).filter(|_| !fields.is_empty());
            if let Some(own) = own.filter(|own| *own != wanted) {
                return Err(Error::spec(format!(
                    "`sequences.{role}` has {}, but the model at {at} was fitted to {wanted}",
                    counted(own, "number")
                )));
            }
        }
        Ok(())
    }
}

impl NewRows for NewObservations {
    async fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        lake: &Lake,
    ) -> Result<(Assignment<NewObservations>, DataFrame)> {
        let layout = layout(pipeline, &query.columns, query.partition)?;
        let frame = select(query.frame, &layout)?;
        let fits = filters_of(pipeline, &layout, lake).await?;
        let held_out = match pipeline.output.rows.filtered(layout.split.is_some()) {
            Some(FilteredRows::None) => layout.split.is_some(),
            rows => rows == Some(FilteredRows::HeldOut),
        };
        let rows = NewObservations {
            layout: Arc::new(layout),
            fits,
            held_out,
        };
        let used = (&pipeline.filter_fits, held_out);
        let assignment = Assignment::new(pipeline, &query.sql, lake, &used, rows)?;
        Ok((assignment, frame))
    }

    fn time_steps(&self) -> Option<TimeSteps<'_>> {
        self.layout.time_steps()
    }
}

impl KindPlan for ObservationsPlan {
    const UNKNOWN: &'static str = "how many or how long they are";

    async fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        job: PlannedJob,
        lake: &Lake,
    ) -> Result<(ObservationsPlan, DataFrame)> {
        let Input::Observations { key, .. } = &pipeline.transitions.input else {
            return Err(Error::bug("the rows have no observations"));
        };
        let layout = layout(pipeline, &query.columns, query.partition)?;
        if layout.state.is_empty() {
            pipeline.filter_fits.iter().try_for_each(check_given)?;
            if pipeline.output.errors {
                return Err(Error::spec(
                    "`output.errors` is about the errors of estimates, and without `sequences.state` no row has a state to compare them with; leave it out",
                ));
            }
        }
        let frame = select(query.frame, &layout)?;
        let fits = filters_of(pipeline, &layout, lake).await?;
        let rows = pipeline.output.rows.filtered(layout.split.is_some());
        let (interval, times) = match key {
            RowKey::Trajectories {
                interval, times, ..
            } => (interval.clone(), times.clone()),
            RowKey::Rows { .. } => (None, TimeKeys::default()),
        };
        let plan = ObservationsPlan {
            job,
            layout: Arc::new(layout),
            interval,
            times,
            fits,
            rows: rows.unwrap_or(FilteredRows::All),
            posteriors: pipeline.output.posteriors,
            errors: pipeline.output.errors,
        };
        Ok((plan, frame))
    }

    with_job!();

    fn times(&self) -> TimeKeys {
        self.times.clone()
    }

    fn time_steps(&self) -> Option<TimeSteps<'_>> {
        self.layout.time_steps()
    }

    fn n_fits(&self) -> usize {
        self.fits.len()
    }

    fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        let run = self.run_schema(Vec::new());
        let width = self.state_width().unwrap_or(1);
        let tables = self.table_names().into_iter();
        tables
            .map(|table| (table, self.schema(table, &run, width)))
            .collect()
    }

    fn lines(&self) -> PlanLines {
        let mut fits: Vec<Line> = Vec::new();
        for fit in &self.fits {
            let mut what = fit.method.describe("");
            if !fit.state.is_empty() {
                what.push_str(&format!("; state {}", fit.state.join(", ")));
            }
            fits.push(("fit", format!("{}: {what}", fit.name)));
            for (label, rows) in [("supervision", &fit.supervision), ("prior", &fit.prior)] {
                if let Some(rows) = rows {
                    let mut text = format!("{label} by {}", names(&rows.fields()));
                    if label == "supervision" && fit.takes_nearest() {
                        text.push_str(", the state nearest to each prediction");
                    }
                    fits.push(("", text));
                }
            }
        }
        if let Some(split) = &self.layout.split {
            fits.push(("score", format!("rows with {} = 'test'", split.name())));
        }
        PlanLines {
            evidence: vec![(
                if self.has_state() { "train" } else { "filter" },
                self.evidence_text(),
            )],
            fits,
        }
    }

    fn own_json(&self) -> Value {
        let rows_of = |rows: &Option<PlannedRows>| {
            let rows = rows.as_ref();
            rows.map(|rows| json!({"sql": rows.sql, "columns": columns(&rows.fields())}))
        };
        let fit = |fit: &PlannedFilter| {
            let mut shown = fit_json(&fit.name, fit.method.name(), &fit.method);
            if !fit.state.is_empty() {
                shown["state"] = json!(fit.state);
            }
            for (key, rows) in [("supervision", &fit.supervision), ("prior", &fit.prior)] {
                if let Some(rows) = rows_of(rows) {
                    shown[key] = rows;
                }
            }
            shown
        };
        let mut key = match &self.layout.key {
            ObservationKey::Trajectories {
                trajectory, time, ..
            } => json!({
                "trajectory": columns(trajectory),
                "time": column(time),
                "interval": self.interval,
            }),
            ObservationKey::Rows { id } => json!({"id": columns(id)}),
        };
        add_times(&mut key, &self.times);
        json!({
            "rows": {
                "kind": "states and observations",
                "key": key,
                "state": columns(&self.layout.state),
                "observation": columns(&self.layout.observation),
                "split": self.layout.split.as_ref().map(column),
            },
            "fit": all(&self.fits, fit),
            "estimates": self.rows,
            "posteriors": self.posteriors,
            "errors": self.errors,
        })
    }

    fn rows_text(&self) -> Option<String> {
        let rows = match self.filtered() {
            FilteredRows::HeldOut => "the rows that are not training rows",
            FilteredRows::All | FilteredRows::None => "all rows",
        };
        let mut tables = Vec::new();
        if self.rows != FilteredRows::None {
            tables.push("the estimates of each row");
        }
        if !self.layout.is_static() {
            tables.push("the scores of each trajectory");
        }
        if self.posteriors {
            tables.push("the posterior weights of each row");
        }
        if self.errors {
            tables.push("the errors of each step");
        }
        let written = match &tables[..] {
            [] => "scores the fits".to_string(),
            tables => format!("writes {}", tables.join(" and ")),
        };
        Some(format!(
            "a second pass over the input filters {rows} and {written}"
        ))
    }

    async fn memory(&self, lake: &Lake, frame: DataFrame) -> Result<Option<Shown>> {
        let rows = lake.most_rows(frame).await?;
        Ok(self.needs(rows, lake.threads))
    }
}

impl ObservationsPlan {
    fn evidence_text(&self) -> String {
        let numbers = |fields: &[Field]| {
            if is_list(fields) {
                format!("in the lists {}", names(fields))
            } else {
                names(fields)
            }
        };
        let (state, observation) = (
            numbers(&self.layout.state),
            numbers(&self.layout.observation),
        );
        let order = match &self.layout.key {
            ObservationKey::Rows { id } => format!("independent rows by {}", names(id)),
            ObservationKey::Trajectories {
                trajectory, time, ..
            } => {
                let follow = follow_text(self.interval.as_ref(), self.layout.bridges());
                let order = order_text(trajectory, time, &self.times);
                format!("{order}; {follow}{}", times_text(&self.times))
            }
        };
        if !self.has_state() {
            return format!("{order}; observations {observation}, no known states");
        }
        let split = self.layout.split.as_ref();
        let training = split.map_or_else(String::new, |field| {
            format!("; training rows have {} = 'train'", field.name())
        });
        format!("{order}; states {state}, observations {observation}{training}")
    }
}
