//! The tables of a run over points: `features`, `spectrum`, `centroids`, `fits`, and `points`, which
//! is written row by row.

use crate::assess::certificates::Certificate;
use crate::methods::state_embedding::clusters::{Centroid, Clusters};
use crate::methods::state_embedding::model::StateEmbeddingModel;
use crate::methods::state_embedding::params::Norm;
use crate::output::tables::columns::{Columns, TableColumns};
use crate::output::tables::run_schema::{LagColumn, RunSchema};
use crate::read::rows::states::{StateColumns, StateTable};
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{Field, SchemaRef};
use std::ops::Range;

use crate::error::Result;

/// The fits of one partition and lag.
pub struct PointsModel {
    /// The index of the partition.
    pub partition: usize,
    /// The index of the lag; 0 for rows without time.
    pub lag: usize,
    /// The points of the partition.
    pub rows: u64,
    /// What each coordinate was divided by.
    pub divisors: Vec<f64>,
    /// In the order of the plan.
    pub fits: Vec<PointFit>,
}

/// A fit to points.
pub enum PointFit {
    /// An embedding of points by where they move.
    StateEmbedding {
        /// The name of the fit.
        name: String,
        /// The model.
        model: Box<StateEmbeddingModel>,
        /// The clusters of the embedded points.
        clusters: Option<Clusters>,
        /// The coordinates of the row nearest to each centre, divided by the scale.
        nearest: Option<Vec<Vec<f64>>>,
        /// The bandwidths that were compared, with their held-out scores.
        scores: Vec<(f64, f64)>,
    },
}

impl PointFit {
    /// The name of the fit.
    pub fn name(&self) -> &str {
        match self {
            PointFit::StateEmbedding { name, .. } => name,
        }
    }

    /// The dimension of the embedding.
    pub fn dimension(&self) -> usize {
        match self {
            PointFit::StateEmbedding { model, .. } => model.rank,
        }
    }

    /// Whether points have clusters.
    pub fn has_clusters(&self) -> bool {
        match self {
            PointFit::StateEmbedding { clusters, .. } => clusters.is_some(),
        }
    }

    /// The embedding of rows (n × d, row-major, divided by the scale), and their clusters.
    pub fn embed(&self, rows: &[f64]) -> (Vec<f64>, Option<Vec<u32>>) {
        match self {
            PointFit::StateEmbedding {
                model, clusters, ..
            } => {
                let embedded = model.embed(rows);
                let affiliation = clusters.as_ref().map(|c| c.assign(&embedded));
                (embedded, affiliation)
            }
        }
    }

    /// Claims about the numbers of the fit.
    pub fn certificates(&self) -> Vec<Certificate> {
        match self {
            PointFit::StateEmbedding { model, .. } => embedding_certificates(model),
        }
    }
}

fn embedding_certificates(model: &StateEmbeddingModel) -> Vec<Certificate> {
    let values = &model.singular_values;
    let mut list = Vec::new();
    if model.norm == Norm::Density {
        // The constant is in both spans, and canonical correlations are at most 1.
        let first = values.first().copied().unwrap_or(f64::NAN);
        list.push(Certificate::equal("first_singular_value", first, 1.0, 1e-6));
    }
    let descending = values.windows(2).map(|w| w[1] - w[0]);
    let rise = descending.fold(f64::NEG_INFINITY, f64::max).max(-1.0);
    list.push(Certificate::at_most("descending", rise, 0.0, 0.0));
    list
}

/// The names of the tables of a run over points, in the order in which they are written. `points` is
/// the last.
pub const TABLES: [&str; 5] = ["features", "spectrum", "centroids", "fits", "certificates"];

/// The table with the embedding of every row.
pub const POINTS: &str = "points";

/// The schema that the tables of points share.
pub(crate) fn schema_of(
    partition: &[Field],
    partitions: Vec<ArrayRef>,
    lag: LagColumn,
) -> RunSchema {
    let none = StateTable::empty(&StateColumns {
        keys: Vec::new(),
        bins: Vec::new(),
    });
    RunSchema {
        partition: partition.to_vec(),
        partitions,
        lag,
        sources: none.clone(),
        targets: none,
        is_weighted: true,
        fits: Vec::new(),
        rows: Vec::new(),
        tables: Vec::new(),
    }
}

/// The columns of a table, and the names of those that order its rows.
pub(crate) fn schema(table: &str, run: &RunSchema) -> (SchemaRef, Vec<String>) {
    columns(table).schema(run)
}

/// The number of rows that a model adds to a table.
pub(crate) fn len(table: &str, model: &PointsModel) -> usize {
    columns(table).len(model)
}

/// Some of the rows that a model adds to a table.
pub(crate) fn rows(
    table: &str,
    run: &RunSchema,
    model: &PointsModel,
    rows: Range<usize>,
) -> Result<RecordBatch> {
    columns(table).batch(run, table, (model.partition, model.lag), model, rows)
}

fn columns<'a>(table: &str) -> TableColumns<'a, PointsModel> {
    match table {
        "features" => features(),
        "spectrum" => spectrum(),
        "centroids" => centroids(),
        "fits" => fits(),
        _ => certificates(),
    }
}

type Embedded<'a> = (&'a str, &'a StateEmbeddingModel);

/// The state embeddings of a model, by name.
fn embeddings(model: &PointsModel) -> Vec<Embedded<'_>> {
    let mut all: Vec<Embedded<'_>> = model
        .fits
        .iter()
        .map(|fit| match fit {
            PointFit::StateEmbedding { name, model, .. } => (name.as_str(), &**model),
        })
        .collect();
    all.sort_by_key(|(name, _)| *name);
    all
}

/// One row per kept feature of a state embedding. A new point x has the embedding Σ_l left_l
/// cos(frequency_lᵀ x + phase_l), where x is divided by `scale` of the table `fits`.
fn features<'a>() -> TableColumns<'a, PointsModel> {
    let rows = |model: &'a PointsModel| {
        let all = embeddings(model).into_iter();
        all.flat_map(|(name, model)| (0..model.features.count()).map(move |l| (name, model, l)))
            .collect()
    };
    let of = |values: &[f64], rank: usize, l: usize| values[l * rank..][..rank].to_vec();
    Columns::of(rows)
        .key("fit", |(name, ..)| *name)
        // 0 is the constant.
        .key("index", |&(.., l)| l as u32)
        .column("frequency", |&(_, model, l)| model.features.frequency(l))
        .column("phase", |&(_, model, l)| model.features.phase(l))
        .column("left", move |&(_, model, l)| of(&model.left, model.rank, l))
        .column("right", move |&(_, model, l)| {
            of(&model.right, model.rank, l)
        })
        .finish()
}

/// One row per singular value.
fn spectrum<'a>() -> TableColumns<'a, PointsModel> {
    let rows = |model: &'a PointsModel| {
        let all = embeddings(model).into_iter();
        all.flat_map(|(name, model)| {
            let values = model.singular_values.iter().enumerate();
            values.map(move |(at, value)| (name, model, at, *value))
        })
        .collect()
    };
    Columns::of(rows)
        .key("fit", |(name, ..)| *name)
        .key("index", |&(_, _, at, _)| at as u32)
        .column("value", |&(.., value)| value)
        // The difference to the next one.
        .column("gap", |&(_, model, at, value)| {
            let next = model.singular_values.get(at + 1);
            next.map(|next| value - next)
        })
        // √(J/n): values of this size are noise.
        .column("noise", |&(_, model, ..)| model.noise)
        .column("is_kept", |&(_, model, at, _)| at < model.rank)
        .finish()
}

/// One row per cluster.
fn centroids<'a>() -> TableColumns<'a, PointsModel> {
    type Row<'a> = (&'a str, usize, &'a Centroid, Option<Vec<f64>>);
    let rows = |model: &'a PointsModel| {
        let mut all: Vec<Row<'a>> = Vec::new();
        for fit in &model.fits {
            let PointFit::StateEmbedding {
                name,
                clusters,
                nearest,
                ..
            } = fit;
            let centroids = clusters.iter().flat_map(|c| &c.centroids).enumerate();
            all.extend(centroids.map(|(k, centroid)| {
                let nearest = nearest.as_ref().map(|nearest| {
                    let scaled = nearest[k].iter().zip(&model.divisors);
                    scaled.map(|(x, s)| x * s).collect()
                });
                (name.as_str(), k, centroid, nearest)
            }));
        }
        all.sort_by_key(|(name, k, ..)| (*name, *k));
        all
    };
    Columns::of(rows)
        .key("fit", |(name, ..)| *name)
        .key("cluster", |&(_, k, ..)| k as u32)
        .column("center", |(_, _, centroid, _)| centroid.center.clone())
        // The share of the weights of all points.
        .column("weight", |(_, _, centroid, _)| centroid.weight)
        // The coordinates of the sampled row that is nearest to the centre.
        .column("nearest", |(.., nearest)| nearest.clone())
        // The share of the pairs from the cluster that end outside it.
        .column("exit_probability", |(_, _, centroid, _)| centroid.exit)
        .finish()
}

/// One row per fit.
fn fits<'a>() -> TableColumns<'a, PointsModel> {
    type Row<'a> = (&'a PointsModel, &'a PointFit, Embedded<'a>);
    let rows = |model: &'a PointsModel| {
        let mut all: Vec<Row<'a>> = model
            .fits
            .iter()
            .map(|fit| {
                let PointFit::StateEmbedding {
                    name, model: own, ..
                } = fit;
                (model, fit, (name.as_str(), &**own))
            })
            .collect();
        all.sort_by_key(|(.., (name, _))| *name);
        all
    };
    let clusters = |fit: &'a PointFit| {
        let PointFit::StateEmbedding { clusters, .. } = fit;
        clusters.as_ref()
    };
    Columns::of(rows)
        .key("fit", |(.., (name, _))| *name)
        .column("method", |_| "state_embedding")
        .column("rank", |(.., (_, m))| m.rank as u32)
        .column("dimension", |(.., (_, m))| m.features.dimension() as u32)
        .column("points", |(model, ..)| model.rows)
        .column("pairs", |(.., (_, m))| m.pairs)
        // The features that span the others, with the constant.
        .column("features", |(.., (_, m))| m.features.count() as u32)
        // J and J₁: orthonormal functions of the first and of the second point.
        .column("kept_left", |(.., (_, m))| m.kept[0] as u32)
        .column("kept_right", |(.., (_, m))| m.kept[1] as u32)
        .column("bandwidth", |(.., (_, m))| m.bandwidth)
        .column("norm", |(.., (_, m))| match m.norm {
            Norm::Density => "density",
            Norm::Lebesgue => "lebesgue",
        })
        // Σ σ², the VAMP-2 score on the pairs of the fit.
        .column("vamp_2", |(.., (_, m))| {
            let leading = m.singular_values[..m.rank].iter();
            leading.map(|s| s * s).sum::<f64>()
        })
        .column("noise", |(.., (_, m))| m.noise)
        // The mean held-out VAMP-2 score of the bandwidth, if bandwidths were compared.
        .column("held_out", |(_, fit, (_, m))| {
            let PointFit::StateEmbedding { scores, .. } = fit;
            let own = scores.iter().find(|(s, _)| *s == m.bandwidth);
            own.map(|(_, score)| *score)
        })
        // What each coordinate was divided by.
        .column("scale", |(model, ..)| model.divisors.clone())
        // The mean squared distance of the embedded points to their centres.
        .column("objective", move |(_, fit, _)| {
            clusters(fit).map(|c| c.objective)
        })
        // 16 Δ₂²/Δ₁²: a bound of the misclassification if it is below 1.
        .column("misclassification_bound", move |(_, fit, _)| {
            Some(clusters(fit)?.separation()?.bound)
        })
        .column("is_separated", move |(_, fit, _)| {
            Some(clusters(fit)?.separation()?.is_separated)
        })
        .column("warnings", |(.., (_, m))| {
            let warnings = m.warnings.iter();
            warnings.map(ToString::to_string).collect::<Vec<String>>()
        })
        .finish()
}

/// One row per certificate.
fn certificates<'a>() -> TableColumns<'a, PointsModel> {
    let rows = |model: &'a PointsModel| {
        let mut fits: Vec<&PointFit> = model.fits.iter().collect();
        fits.sort_by_key(|fit| fit.name());
        fits.into_iter()
            .flat_map(|fit| fit.certificates().into_iter().map(move |c| (fit.name(), c)))
            .collect()
    };
    Columns::of(rows)
        .key("fit", |(name, _): &(&str, Certificate)| *name)
        .key("certificate", |(_, c)| c.name.to_string())
        .column("left_side", |(_, c)| c.left)
        .column("relation", |(_, c)| c.relation.sign())
        .column("right_side", |(_, c)| c.right)
        .column("slack", |(_, c)| c.slack())
        .column("tolerance", |(_, c)| c.tolerance)
        .column("holds", |(_, c)| c.holds)
        .finish()
}
