//! Pipeline + tables → [`PointsPlan`]: all that a run over points will do, resolved and checked.

use crate::error::{Error, Result, counted, escaped};
use crate::evidence::lag::Lag;
use crate::methods::PointMethod;
use crate::output::tables::points;
use crate::output::tables::points::{PointColumns, schema_of};
use crate::output::tables::run_schema::{LagColumn, RunSchema};
use crate::plan::checks::PlannedCheck;
use crate::plan::evidence::{Columns, steps};
use crate::plan::fits::{PlannedFit, point_fits};
use crate::plan::job::checks_and_hash;
use crate::plan::pipeline::keys::{Empty, PointRows, Validation, Window};
use crate::plan::pipeline::{Input, Pipeline};
use crate::plan::rows::{PlannedQuery, lag_column, query};
use crate::plan::written::left_out;
use crate::read::lake::Lake;
use crate::read::lake::files::Table;
use crate::read::points::layout::{PointLayout, PointRoles};
use crate::store::Stores;
use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// What a run over points will do. The serialized part is what executors need.
#[derive(Serialize, Deserialize)]
pub struct PointsPlan {
    /// The name of the job.
    pub name: String,
    /// The folder or URL of the output.
    #[serde(skip)]
    pub output: String,
    /// The number of earlier results that the output keeps.
    #[serde(skip)]
    pub keep: usize,
    /// The stores of the output.
    #[serde(skip)]
    pub stores: Stores,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The input tables and their files.
    pub tables: Vec<Table>,
    /// The SQL of the rows.
    pub sql: String,
    /// The values of the `$name`s in the SQL.
    #[serde(with = "crate::plan::travel::values")]
    pub parameters: BTreeMap<String, ScalarValue>,
    /// The roles of the columns of the query.
    #[serde(with = "crate::plan::travel::shared")]
    pub layout: Arc<PointLayout>,
    /// The lags by length; empty for rows without time.
    pub lags: Vec<Lag>,
    /// What happens to a partition and lag without pairs.
    #[serde(skip)]
    pub empty: Empty,
    /// The fits, one per rank unless a rule picks the rank.
    #[serde(with = "crate::plan::travel::json")]
    pub fits: Vec<PlannedFit<PointMethod>>,
    /// Resamples and folds of the trajectories.
    pub validation: PointValidation,
    /// Pairs of points to score.
    #[serde(skip)]
    pub densities: Option<PlannedDensities>,
    /// Which points are rows of the table `points`.
    pub rows: PointRows,
    /// The tables that the run does not write, although it could.
    #[serde(skip)]
    pub left_out: Vec<&'static str>,
    /// The conditions that must hold before the result is put in place.
    #[serde(skip)]
    pub checks: Vec<PlannedCheck>,
    /// Depends only on the pipeline, its SQL, the input files and the version of gyre.
    pub hash: String,
}

/// Pairs of points (x, y) to score.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedDensities {
    /// The SQL of the pairs.
    pub sql: String,
    /// The columns of x.
    pub from: Vec<Field>,
    /// The columns of y.
    pub to: Vec<Field>,
}

impl PlannedDensities {
    /// The columns of x, then those of y.
    pub fn fields(&self) -> impl Iterator<Item = &Field> {
        self.from.iter().chain(&self.to)
    }
}

async fn densities(pipeline: &Pipeline, lake: &Lake) -> Result<Option<PlannedDensities>> {
    let Some(keys) = &pipeline.densities else {
        return Ok(None);
    };
    let sql = keys.sql.trim().trim_end_matches(';').to_string();
    let frame = lake.query_of("densities", &sql, &BTreeMap::new()).await?;
    let columns = Columns::of(&frame, "densities")?;
    Ok(Some(PlannedDensities {
        from: columns.points(&keys.from, "from")?,
        to: columns.points(&keys.to, "to")?,
        sql,
    }))
}

/// Resamples and folds of trajectories.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PointValidation {
    /// The number of bootstrap resamples; 0 for none.
    pub bootstrap: usize,
    /// The number of folds of the held-out scores, at least 2.
    pub folds: usize,
    /// The confidence level of the intervals.
    pub confidence: f64,
    /// The maximum number of groups of trajectories.
    pub groups: usize,
}

impl PointValidation {
    /// Folds of the held-out scores if the pipeline does not say.
    const FOLDS: usize = 5;

    fn of(keys: Option<&Validation>) -> PointValidation {
        let folds = keys.map_or(0, |keys| keys.folds);
        PointValidation {
            bootstrap: keys.map_or(0, |keys| keys.bootstrap),
            folds: if folds == 0 { Self::FOLDS } else { folds },
            confidence: keys.map_or(0.0, |keys| keys.confidence),
            groups: keys.map_or(0, |keys| keys.groups),
        }
    }
}

impl PointsPlan {
    /// The lags as the column `lag` of the output tables.
    pub fn lag_column(&self) -> LagColumn {
        lag_column(&self.lags)
    }

    /// The names of the tables that are made of models.
    pub fn model_tables(&self) -> Vec<&'static str> {
        let is_wanted = |table: &&str| !self.left_out.contains(table);
        points::TABLES.into_iter().filter(is_wanted).collect()
    }

    /// The names of the tables in the order in which they are written.
    pub fn table_names(&self) -> Vec<&'static str> {
        let mut tables = self.model_tables();
        if self.densities.is_some() {
            tables.push(points::DENSITIES);
        }
        if self.rows != PointRows::None {
            tables.push(points::POINTS);
        }
        tables
    }

    /// The tables of a result. An embedding may have fewer coordinates in a result.
    pub fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        let run = self.run_schema(Vec::new());
        let tables = self.model_tables().into_iter();
        let mut schemas: Vec<_> = tables
            .map(|table| (table, points::columns(table).schema(&run).0))
            .collect();
        if let Some(densities) = &self.densities {
            let norms = self.fits.iter().filter_map(|fit| match &fit.method {
                PointMethod::StateEmbedding(own) => Some((fit.name.as_str(), own.norm)),
                _ => None,
            });
            let schema = points::density_schema(&run, densities.fields(), norms);
            schemas.push((points::DENSITIES, schema));
        }
        if self.rows != PointRows::None {
            let fits: Vec<PointColumns> = self.fits.iter().map(point_columns).collect();
            let schema = points::points_schema(&run, &self.layout.key, &fits);
            schemas.push((points::POINTS, schema));
        }
        schemas
    }

    /// The columns that the tables of a run share. `partitions` has one array per partition column.
    pub fn run_schema(&self, partitions: Vec<ArrayRef>) -> RunSchema {
        schema_of(&self.layout.partition, partitions, self.lag_column())
    }
}

/// The columns of a fit in the table `points`.
fn point_columns(fit: &PlannedFit<PointMethod>) -> PointColumns {
    let (width, times, has_clusters) = match &fit.method {
        PointMethod::StateEmbedding(own) => (own.rank, vec![0.0], own.clusters.is_some()),
        PointMethod::DiffusionMap(own) => (own.dimension, own.time.all(), false),
        PointMethod::HeatSketch(own) => {
            let powers = own.power.all().into_iter();
            (
                own.dimension,
                powers.map(|power| power as f64).collect(),
                false,
            )
        }
    };
    let columns = points::embedding_columns(&fit.name, fit.method.name(), width, &times);
    PointColumns {
        name: fit.name.clone(),
        has_clusters,
        embeddings: columns.into_iter().map(|c| (c.name, c.width)).collect(),
    }
}

/// The columns with known sets, each once.
fn given(pipeline: &Pipeline, columns: &Columns) -> Result<Vec<Field>> {
    let mut fields: Vec<Field> = Vec::new();
    for fit in &pipeline.point_fits {
        if let PointMethod::StateEmbedding(params) = &fit.method
            && let Some(name) = &params.given
            && fields.iter().all(|field| field.name() != name)
        {
            fields.push(columns.key(name, "given")?);
        }
    }
    Ok(fields)
}

/// Resolves a pipeline with the query text `sql` against the tables of a lake.
///
/// Also returns the query as a data frame with the columns of the layout.
///
/// # Errors
/// If the SQL or the keys of the pipeline do not fit the tables.
pub(crate) async fn plan_points(
    pipeline: &Pipeline,
    sql: &str,
    seed: Option<u64>,
    lake: &Lake,
) -> Result<(PointsPlan, DataFrame)> {
    let PlannedQuery {
        sql,
        parameters,
        frame,
        columns,
        partition,
    } = query(pipeline, sql, lake).await?;
    let (mut layout, lags) = layout(pipeline, &columns, partition)?;
    layout.given = given(pipeline, &columns)?;
    let frame = crate::read::points::select(frame, &layout)?;
    let seed = seed.unwrap_or(pipeline.job.seed);
    let mut plan = PointsPlan {
        name: pipeline.job.name.clone(),
        output: pipeline.job.output.clone(),
        keep: pipeline.job.keep as usize,
        stores: lake.stores.clone(),
        seed,
        tables: lake.tables.clone(),
        hash: String::new(),
        sql,
        parameters,
        layout: Arc::new(layout),
        lags,
        empty: pipeline.transitions.empty,
        fits: point_fits(pipeline),
        rows: pipeline.output.rows.points().unwrap_or_default(),
        left_out: left_out(&pipeline.output, &points::OPTIONAL, false),
        checks: Vec::new(),
        validation: PointValidation::of(pipeline.validation.as_ref()),
        densities: densities(pipeline, lake).await?,
    };
    let (of, tables) = ((seed, plan.sql.as_str()), plan.schemas());
    let partition = &plan.layout.partition;
    (plan.checks, plan.hash) = checks_and_hash(pipeline, of, partition, lake, &tables).await?;
    Ok((plan, frame))
}

/// The columns of the points of a pipeline, and the lags by length.
pub(crate) fn layout(
    pipeline: &Pipeline,
    columns: &Columns,
    partition: Vec<Field>,
) -> Result<(PointLayout, Vec<Lag>)> {
    let weights = |name: &Option<String>| {
        let weight = name.as_ref();
        let weight = weight.map(|name| columns.number(name, "weight", false));
        weight.transpose()
    };
    let keys = |names: &[String], role: &str| {
        let keys = names.iter().map(|name| columns.key(name, role));
        keys.collect::<Result<Vec<_>>>()
    };
    match &pipeline.transitions.input {
        Input::PointPairs {
            trajectory,
            time,
            coordinates,
            scale,
            weight,
            lags,
            window,
        } => {
            let mut key = keys(trajectory, "trajectory")?;
            let time = columns.time(time)?;
            let (lags, steps) = steps(lags, &time)?;
            key.push(time);
            let layout = PointLayout {
                partition,
                key,
                roles: PointRoles::Pairs {
                    lags: steps,
                    strided: *window == Window::Strided,
                },
                coordinates: columns.coordinates(coordinates)?,
                scale: scale.clone(),
                weight: weights(weight)?,
                given: Vec::new(),
            };
            Ok((layout, lags))
        }
        Input::Points {
            id,
            coordinates,
            scale,
            weight,
        } => {
            let layout = PointLayout {
                partition,
                key: keys(id, "id")?,
                roles: PointRoles::Rows,
                coordinates: columns.coordinates(coordinates)?,
                scale: scale.clone(),
                weight: weights(weight)?,
                given: Vec::new(),
            };
            Ok((layout, Vec::new()))
        }
        Input::Trajectories { .. }
        | Input::Pairs { .. }
        | Input::Sequences { .. }
        | Input::StateSpace { .. } => Err(Error::bug("states have no coordinates")),
    }
}

impl Display for PointsPlan {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let names = |fields: &[Field]| {
            let names: Vec<String> = fields.iter().map(|field| escaped(field.name())).collect();
            names.join(", ")
        };
        writeln!(f, "{} (plan {})", self.name, self.hash)?;
        let (is_list, coordinates) = (self.layout.is_list(), names(&self.layout.coordinates));
        let kind = if is_list {
            "the lists in"
        } else {
            "coordinates"
        };
        writeln!(
            f,
            "  points {kind} {coordinates}, by {}",
            names(&self.layout.key)
        )?;
        if !self.layout.partition.is_empty() {
            writeln!(f, "  a model per {}", names(&self.layout.partition))?;
        }
        if !self.lags.is_empty() {
            let lags: Vec<String> = self.lags.iter().map(ToString::to_string).collect();
            writeln!(f, "  lag {}", lags.join(", "))?;
        }
        for fit in &self.fits {
            let what = fit.method.describe(&fit.point_rank_text());
            writeln!(f, "  fit {}: {what}", fit.name)?;
        }
        if let Some(densities) = &self.densities {
            let (from, to) = (names(&densities.from), names(&densities.to));
            writeln!(f, "  densities from {from} to {to}")?;
        }
        let PointValidation {
            bootstrap, groups, ..
        } = self.validation;
        if bootstrap > 0 {
            writeln!(
                f,
                "  bootstrap of {bootstrap} resamples of at most {groups} groups of trajectories"
            )?;
        }
        match self.rows {
            PointRows::All => {}
            PointRows::Sample(n) => writeln!(f, "  rows of {}", counted(n, "point"))?,
            PointRows::None => writeln!(f, "  no rows of points")?,
        }
        for check in &self.checks {
            writeln!(f, "  check {check}")?;
        }
        let tables = self.table_names().join(", ");
        write!(f, "  write {}: {tables}", self.output)
    }
}
