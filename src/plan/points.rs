//! Pipeline + tables → [`PointsPlan`]: all that a run over points will do, resolved and checked.

use crate::error::{Error, Result, counted};
use crate::evidence::lag::Lag;
use crate::methods::PointMethod;
use crate::output::tables::points::{self, PointColumns, schema_of};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::assignment::{Assignment, NewRows};
use crate::plan::evidence::{Columns, steps, time_rules};
use crate::plan::fits::{PlannedFit, PlannedValidation, planned};
use crate::plan::job::PlannedJob;
use crate::plan::kind::{KindPlan, PlanLines, Shown, with_job};
use crate::plan::pipeline::keys::{PointRows, Window};
use crate::plan::pipeline::{Input, Pipeline, TimeKeys};
use crate::plan::rows::{PlannedQuery, lag_column};
use crate::plan::show::{
    add_times, columns, fit_lines, fits_json, names, times_text, weights_text,
};
use crate::read::lake::Lake;
use crate::read::points::layout::{PointLayout, PointRoles};
use crate::read::rows::coordinates::Scale;
use crate::read::rows::time_rules::{Ties, TimeRules, TimeSteps};
use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run over points will do. The serialized part is what executors need.
#[derive(Serialize, Deserialize)]
pub(crate) struct PointsPlan {
    /// What the run reads and where it writes.
    pub job: PlannedJob,
    /// The roles of the columns of the query.
    pub layout: Arc<PointLayout>,
    /// The lags by length; empty for rows without time.
    pub lags: Vec<Lag>,
    /// How the times are read, as written.
    #[serde(skip)]
    pub(crate) times: TimeKeys,
    /// The fits, one per rank unless a rule picks the rank.
    #[serde(with = "crate::plan::serialized::json")]
    pub fits: Vec<PlannedFit<PointMethod>>,
    /// Resamples and folds of the trajectories. There are at least 2 folds.
    pub validation: PlannedValidation,
    /// Pairs of points to score.
    #[serde(skip)]
    pub densities: Option<PlannedDensities>,
    /// Which points are rows of the table `points`.
    pub rows: PointRows,
}

/// Pairs of points (x, y) to score.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PlannedDensities {
    /// The SQL of the pairs.
    pub sql: String,
    /// The columns of x.
    pub from: Vec<Field>,
    /// The columns of y.
    pub to: Vec<Field>,
}

impl PlannedDensities {
    /// The columns of x, then those of y.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Field> {
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

/// Folds of the held-out scores if the pipeline does not say.
const FOLDS: usize = 5;

impl PointsPlan {
    /// The names of the tables that are made of models.
    pub(crate) fn model_tables(&self) -> Vec<&'static str> {
        let mut tables = self.job.kept(&points::TABLES);
        tables.retain(|table| self.densities.is_some() || *table != points::DENSITY_ERRORS);
        let has_trials = |fit: &PlannedFit<PointMethod>| fit.method.has_trials();
        if self.fits.iter().any(has_trials) {
            tables.push(points::DISTORTION_TRIALS);
        }
        tables
    }

    /// The columns that the tables of a run share. `partitions` has one array per partition column.
    pub(crate) fn run_schema(&self, partitions: Vec<ArrayRef>) -> RunSchema {
        schema_of(&self.layout.partition, partitions, lag_column(&self.lags))
    }
}

/// The columns of a fit in the table `points`.
fn point_columns(fit: &PlannedFit<PointMethod>) -> PointColumns {
    let (width, times) = match &fit.method {
        PointMethod::StateEmbedding(own) => (own.rank, vec![0.0]),
        PointMethod::DiffusionMap(own) => (own.dimension, own.time.all()),
        PointMethod::HeatSketch(own) => {
            let powers = own.power.all().into_iter();
            (own.dimension, powers.map(|power| power as f64).collect())
        }
    };
    let (has_clusters, has_distances) = match &fit.method {
        PointMethod::StateEmbedding(own) => (own.clusters.is_some(), own.distances),
        _ => (false, false),
    };
    let columns = points::embedding_columns(&fit.name, fit.method.name(), width, &times);
    PointColumns {
        name: fit.name.clone(),
        has_clusters,
        has_distances,
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

pub(crate) struct NewPoints {
    /// The roles of the columns of the query. Weights and the scale are those of the model.
    pub layout: Arc<PointLayout>,
    /// The lags by length; empty for rows without time.
    pub lags: Vec<Lag>,
}

impl NewRows for NewPoints {
    async fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        lake: &Lake,
    ) -> Result<(Assignment<NewPoints>, DataFrame)> {
        let mut pipeline = pipeline.clone();
        if let Input::PointPairs { weight, scale, .. } | Input::Points { weight, scale, .. } =
            &mut pipeline.transitions.input
        {
            // The divisors are those of the model.
            (*weight, *scale) = (None, Scale::Standard);
        }
        let (layout, lags) = layout(&pipeline, &query.columns, query.partition)?;
        let frame = crate::read::points::select(query.frame, &layout)?;
        let rows = NewPoints {
            layout: Arc::new(layout),
            lags,
        };
        let assignment = Assignment::new(&pipeline, &query.sql, lake, &(), rows)?;
        Ok((assignment, frame))
    }
}

/// The columns of the points of a pipeline, and the lags by length.
fn layout(
    pipeline: &Pipeline,
    columns: &Columns,
    partition: Vec<Field>,
) -> Result<(PointLayout, Vec<Lag>)> {
    let (key, roles, lags, (coordinates, scale, weight)) = match &pipeline.transitions.input {
        Input::PointPairs {
            trajectory,
            time,
            times,
            coordinates,
            scale,
            weight,
            lags,
            window,
        } => {
            let mut key = columns.keys(trajectory, "trajectory")?;
            let time = columns.time(time)?;
            let (lags, steps) = steps(lags, &time)?;
            let mut rules = time_rules(times, columns, &time, &steps)?;
            if rules.keeps_ties() {
                // The key of a point is its trajectory and time.
                rules = TimeRules {
                    ties: Ties::Refused,
                    order: None,
                    ..rules
                };
            }
            key.push(time);
            let roles = PointRoles::Pairs {
                lags: steps,
                strided: *window == Window::Strided,
                rules,
            };
            (key, roles, lags, (coordinates, scale, weight))
        }
        Input::Points {
            id,
            coordinates,
            scale,
            weight,
        } => {
            let key = columns.keys(id, "id")?;
            let point = (coordinates, scale, weight);
            (key, PointRoles::Rows, Vec::new(), point)
        }
        _ => return Err(Error::bug("the rows have no coordinates")),
    };
    let layout = PointLayout {
        partition,
        key,
        roles,
        coordinates: columns.points(coordinates, "coordinates")?,
        scale: scale.clone(),
        weight: columns.weight(weight.as_ref())?,
        given: Vec::new(),
    };
    Ok((layout, lags))
}

impl KindPlan for PointsPlan {
    const UNKNOWN: &'static str = "how many or how long they are";

    async fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        job: PlannedJob,
        lake: &Lake,
    ) -> Result<(PointsPlan, DataFrame)> {
        let (mut layout, lags) = layout(pipeline, &query.columns, query.partition)?;
        layout.given = given(pipeline, &query.columns)?;
        let frame = crate::read::points::select(query.frame, &layout)?;
        let mut validation = PlannedValidation::of(pipeline.validation.as_ref());
        if validation.folds == 0 {
            validation.folds = FOLDS;
        }
        let plan = PointsPlan {
            job,
            layout: Arc::new(layout),
            lags,
            times: match &pipeline.transitions.input {
                Input::PointPairs { times, .. } => times.clone(),
                _ => TimeKeys::default(),
            },
            fits: planned(&pipeline.point_fits),
            rows: pipeline.output.rows.points().unwrap_or_default(),
            validation,
            densities: densities(pipeline, lake).await?,
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

    fn lags(&self) -> &[Lag] {
        &self.lags
    }

    fn n_fits(&self) -> usize {
        self.fits.len()
    }

    fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
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

    fn lines(&self) -> PlanLines {
        let coordinates = names(&self.layout.coordinates);
        let kind = if self.layout.is_list() {
            "the lists in"
        } else {
            "coordinates"
        };
        let key = names(&self.layout.key);
        let weights = weights_text(self.layout.weight.as_ref());
        let mut points = format!("points with {kind} {coordinates}, by {key}{weights}");
        if !self.lags.is_empty() {
            let lags: Vec<String> = self.lags.iter().map(ToString::to_string).collect();
            points += &format!("; lag {}{}", lags.join(", "), times_text(&self.times));
        }
        let mut fits = fit_lines(&self.fits, |fit, rank| fit.method.describe(rank));
        if let Some(densities) = &self.densities {
            let (from, to) = (names(&densities.from), names(&densities.to));
            fits.push(("score", format!("densities from {from} to {to}")));
        }
        let trust = self.validation.trust_text();
        fits.extend(trust.map(|text| ("trust", text)));
        PlanLines {
            evidence: vec![("points", points)],
            fits,
        }
    }

    fn own_json(&self) -> Value {
        let lags: Vec<String> = self.lags.iter().map(ToString::to_string).collect();
        let densities = self.densities.as_ref();
        let mut shown = json!({
            "key": columns(&self.layout.key),
            "coordinates": columns(&self.layout.coordinates),
            "weight": self.layout.weight.as_ref().map(|field| field.name()),
            "lags": lags,
            "fit": fits_json(&self.fits, |fit| fit.method.name()),
            "validation": self.validation,
            "rows": match self.rows {
                PointRows::All => json!("all"),
                PointRows::Sample(n) => json!({"sample": n}),
                PointRows::None => json!("none"),
            },
            "densities": densities.map(|own| json!({
                "sql": own.sql,
                "from": columns(&own.from),
                "to": columns(&own.to),
            })),
        });
        add_times(&mut shown, &self.times);
        shown
    }

    fn rows_text(&self) -> Option<String> {
        let rows = match self.rows {
            PointRows::All => Some("each point".to_string()),
            PointRows::Sample(n) => Some(counted(n, "sampled point")),
            PointRows::None => None,
        };
        let rows =
            rows.map(|of| format!("a second pass over the input writes the embeddings of {of}"));
        let densities = self.densities.as_ref();
        let densities = densities.map(|_| "the pairs of [densities] are scored".to_string());
        let parts: Vec<String> = rows.into_iter().chain(densities).collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }

    async fn memory(&self, lake: &Lake, frame: DataFrame) -> Result<Option<Shown>> {
        let rows = lake.most_rows(frame).await?;
        Ok(self.needs(rows, lake.threads))
    }
}
