//! The tables of a run over points. `points` itself is written row by row.

use crate::assess::crossval::Score;
use crate::assess::density_errors::DensityError;
use crate::assess::fit_of_model::FitOfModel;
use crate::methods::columns::parts;
use crate::methods::heat_kernel::diffusion_map::Level;
use crate::methods::heat_kernel::extension::Extension;
use crate::methods::heat_kernel::fit::{Embedded, HeatModel};
use crate::methods::heat_kernel::kernel::Reach;
use crate::methods::heat_kernel::trials::TrialDistortion;
use crate::methods::state_embedding::clusters::{Centroid, Clusters, Confusion};
use crate::methods::state_embedding::model::StateEmbeddingModel;
use crate::methods::state_embedding::params::Norm;
use crate::methods::state_embedding::reshape::JointDensity;
use crate::output::tables::columns::{Columns, Placed, TableColumns, of_fits};
use crate::output::tables::run_schema::{LagColumn, RunSchema, optional, required, vector};
use crate::output::tables::{bootstrap, certificates};
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The fits of one partition and lag.
#[derive(Serialize, Deserialize)]
pub(crate) struct PointsModel {
    /// The index of the partition.
    pub partition: usize,
    /// The index of the lag; 0 for rows without time.
    pub lag: usize,
    /// The points of the partition.
    pub rows: u64,
    /// The columns of the coordinates.
    pub coordinates: Vec<String>,
    /// What each coordinate was divided by.
    pub divisors: Vec<f64>,
    /// In the order of the plan.
    pub fits: Vec<PointFit>,
}

/// A fit to points.
pub(crate) type PointFit = FitOfModel<PointModel>;

/// What a method makes of points.
#[derive(Serialize, Deserialize)]
pub(crate) enum PointModel {
    /// An embedding of points by where they move.
    StateEmbedding(Box<EmbeddedStates>),
    /// A diffusion map or a heat sketch.
    Heat(Box<Embedded>),
}

/// A state embedding with its clusters.
#[derive(Serialize, Deserialize)]
pub(crate) struct EmbeddedStates {
    /// The embedding.
    pub model: StateEmbeddingModel,
    /// The clusters of the embedded points.
    pub clusters: Option<Clusters>,
    /// Whether rows get the distance to the centre of their cluster.
    pub has_distances: bool,
    /// The coordinates of the row nearest to each centre, divided by the scale.
    pub nearest: Option<Vec<Vec<f64>>>,
    /// The bandwidths that were compared, with their held-out scores over all lags.
    pub scores: Vec<(f64, f64)>,
    /// The held-out score of the bandwidth at the lag of the model, if bandwidths were compared.
    pub held_out: Option<f64>,
    /// The ranks that were compared, ascending; empty without `rank = "auto"`.
    pub ranks: Vec<RankScore>,
    /// The mean embedding of the pairs, if densities are asked for.
    pub joint_density: Option<JointDensity>,
    /// The errors of the densities, if they are asked for and two folds have pairs.
    pub density_error: Option<DensityError>,
    /// The clusters against known sets, if the fit names a column of them.
    pub confusion: Option<Confusion>,
}

/// The held-out VAMP-2 score of a rank.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct RankScore {
    /// The rank.
    pub rank: usize,
    /// The mean over folds, and its standard error.
    pub score: Score,
    /// The score of functions that tell nothing of each other.
    pub chance: f64,
    /// The number of folds with pairs.
    pub folds: usize,
    /// Why the rank was chosen. None for the other ranks.
    pub reason: Option<String>,
}

/// A column with a part of the coordinates of an embedding.
#[derive(Debug, Clone)]
pub(crate) struct EmbeddingColumn {
    /// The name of the column.
    pub name: String,
    /// The first of its coordinates among all of the fit.
    pub first: usize,
    /// The number of its coordinates.
    pub width: usize,
}

/// The columns of an embedding with `width` coordinates for each time or power. A fit with one of
/// them has one column.
pub(crate) fn embedding_columns(
    fit: &str,
    method: &str,
    width: usize,
    times: &[f64],
) -> Vec<EmbeddingColumn> {
    let letter = if method == "heat_sketch" { "p" } else { "t" };
    let parts = parts(letter, times).into_iter().enumerate();
    let columns = parts.map(|(at, part)| EmbeddingColumn {
        name: format!("{fit}{part}_embedding"),
        first: at * width,
        width,
    });
    columns.collect()
}

/// The schema of the table `densities`: partition, lag, the columns of both points, and for each
/// state embedding its densities.
pub(crate) fn density_schema<'a>(
    run: &RunSchema,
    points: impl Iterator<Item = &'a Field>,
    fits: impl Iterator<Item = (&'a str, Norm)>,
) -> SchemaRef {
    let mut fields = run.leading();
    fields.extend(points.map(|f| f.clone().with_nullable(true)));
    for (name, norm) in fits {
        let density = match norm {
            // p̂(y | x), per unit of the volume of y.
            Norm::Lebesgue => "density",
            // p̂(y | x) divided by the density of the ends of all pairs.
            Norm::Density => "ratio",
        };
        // E K(X, x) K(Y, y), plain and of the rank of the fit.
        let columns = [density, "kme", "kme_reshaped"];
        fields.extend(columns.map(|of| optional(format!("{name}_{of}"), DataType::Float64)));
    }
    Arc::new(Schema::new(fields))
}

/// The column with the distance of a row to the centre of its cluster.
pub(crate) fn distance_column(fit: &str) -> String {
    format!("{fit}_distance")
}

/// The columns of a fit in the table `points`.
pub(crate) struct PointColumns {
    /// The name of the fit.
    pub(crate) name: String,
    /// Whether rows have clusters.
    pub(crate) has_clusters: bool,
    /// Whether rows have the distances to the centres of their clusters.
    pub(crate) has_distances: bool,
    /// Names and widths. A model with fewer coordinates has zeros at the end.
    pub(crate) embeddings: Vec<(String, usize)>,
}

/// The schema of the table `points`: partition, lag, key, and for each fit its cluster, the
/// distance to its centre, and its embedding.
pub(crate) fn points_schema(run: &RunSchema, key: &[Field], fits: &[PointColumns]) -> SchemaRef {
    let mut fields = run.leading();
    fields.extend(key.iter().map(required));
    for fit in fits {
        if fit.has_clusters {
            let name = format!("{}_affiliation", fit.name);
            fields.push(optional(name, DataType::Int32));
        }
        if fit.has_distances {
            fields.push(optional(distance_column(&fit.name), DataType::Float64));
        }
        // A point that is not connected to most others has no embedding.
        let embeddings = fit.embeddings.iter();
        fields.extend(embeddings.map(|(name, width)| optional(name, vector(*width))));
    }
    Arc::new(Schema::new(fields))
}

impl PointFit {
    /// The columns of the embedding: one, or one per time or power.
    pub(crate) fn columns(&self) -> Vec<EmbeddingColumn> {
        let (width, times) = match &self.model {
            PointModel::StateEmbedding(own) => (own.model.rank, &[0.0][..]),
            PointModel::Heat(own) => (own.model.dimension, &own.model.times[..]),
        };
        embedding_columns(&self.name, &self.method, width, times)
    }

    /// Whether the model embeds any row by its coordinates, without its place among all rows.
    pub(crate) fn embeds_any_row(&self) -> bool {
        match &self.model {
            PointModel::StateEmbedding(_) => true,
            PointModel::Heat(own) => own.rows.is_none(),
        }
    }

    fn states(&self) -> Option<&EmbeddedStates> {
        match &self.model {
            PointModel::StateEmbedding(own) => Some(own),
            PointModel::Heat(_) => None,
        }
    }

    fn heat(&self) -> Option<&HeatModel> {
        match &self.model {
            PointModel::StateEmbedding(_) => None,
            PointModel::Heat(own) => Some(&own.model),
        }
    }
}

/// The names of the tables of a run over points, in the order in which they are written. `points`
/// follows them.
pub(crate) const TABLES: [&str; 11] = [
    "features",
    "landmarks",
    "spectrum",
    "ranks",
    "bootstrap",
    "centroids",
    "confusion",
    "distortion",
    DENSITY_ERRORS,
    "fits",
    "certificates",
];

/// The tables that no later command reads, so that a run may leave them out.
pub(crate) const OPTIONAL: [&str; 7] = [
    "spectrum",
    "ranks",
    "bootstrap",
    "confusion",
    "distortion",
    DENSITY_ERRORS,
    "certificates",
];

/// The table of transition densities.
pub(crate) const DENSITIES: &str = "densities";

/// The table with the errors of transition densities, which a run without `[densities]` does not
/// write.
pub(crate) const DENSITY_ERRORS: &str = "density_errors";

/// The table of distortions over trials, which is written if a fit has them.
pub(crate) const DISTORTION_TRIALS: &str = "distortion_trials";

/// The table with the embedding of every row.
pub(crate) const POINTS: &str = "points";

/// The schema that the tables of points share.
pub(crate) fn schema_of(
    partition: &[Field],
    partitions: Vec<ArrayRef>,
    lag: LagColumn,
) -> RunSchema {
    RunSchema {
        is_weighted: true,
        ..RunSchema::of_models(partition, partitions, lag)
    }
}

impl PointsModel {
    fn fits(&self) -> &[PointFit] {
        &self.fits
    }
}

impl Placed for PointsModel {
    fn place(&self) -> (usize, usize) {
        (self.partition, self.lag)
    }
}

/// The columns of a table.
pub(crate) fn columns<'a>(table: &str) -> TableColumns<'a, PointsModel> {
    match table {
        "features" => features(),
        "landmarks" => landmarks(),
        "spectrum" => spectrum(),
        "ranks" => ranks(),
        "bootstrap" => bootstrap::of_fits(PointsModel::fits),
        "centroids" => centroids(),
        "confusion" => confusion(),
        "distortion" => distortion(),
        DENSITY_ERRORS => density_errors(),
        DISTORTION_TRIALS => distortion_trials(),
        "fits" => fits(),
        _ => certificates::of_fits(PointsModel::fits),
    }
}

fn row(values: &[f64], width: usize, at: usize) -> Vec<f64> {
    values[at * width..][..width].to_vec()
}

/// One row per kept feature of a state embedding. A new point x has the embedding Σ_l left_l
/// cos(frequency_lᵀ x + phase_l), where x is divided by `scale` of the table `fits`.
fn features<'a>() -> TableColumns<'a, PointsModel> {
    let features = |fit: &'a PointFit| {
        let models = fit.states().into_iter().map(|own| &own.model);
        models.flat_map(|model| (0..model.features.count()).map(move |l| (model, l)))
    };
    of_fits(PointsModel::fits, features)
        // 0 is the constant.
        .key("index", |&(_, (_, l))| l as u32)
        .column("frequency", |&(_, (of, l))| of.features.frequency(l))
        .column("phase", |&(_, (of, l))| of.features.phase(l))
        .column("left", |&(_, (of, l))| row(&of.left, of.rank, l))
        .column("right", |&(_, (of, l))| row(&of.right, of.rank, l))
        .finish()
}

/// One row per point of the kernel of a diffusion map or a sketch. A new point x has the embedding
/// Σ_j A(x, j) w_j `vector`_j. Points that have no embedding have weight zero.
fn landmarks<'a>() -> TableColumns<'a, PointsModel> {
    type Row<'a> = (&'a PointFit, (&'a Extension, usize));
    let landmarks = |fit: &'a PointFit| {
        let own = fit.heat().into_iter().map(|model| &model.extension);
        own.flat_map(|own| (0..own.weights.len()).map(move |at| (own, at)))
    };
    let embedded = |&(_, (own, at)): &Row<'a>| (own.weights[at] > 0.0).then_some((own, at));
    let farthest = |&(_, (own, at)): &Row<'a>| own.farthest.get(at);
    of_fits(PointsModel::fits, landmarks)
        .key("index", |&(_, (_, at))| at as u32)
        // Divided by `scale` of the table `fits`.
        .column("coordinates", |&(_, (own, at))| {
            row(&own.coordinates, own.dimension, at)
        })
        // The points that the row stands for.
        .column("weight", |&(_, (own, at))| own.weights[at])
        // Row sums q and v of the kernel, or the factor d of a bistochastic kernel.
        .part("q", embedded, |(own, at)| own.q[at])
        .part("v", embedded, |(own, at)| own.v[at])
        // The squared distance and the index of the last of the nearest points.
        .part("farthest", farthest, |of| of.0)
        .part("farthest_index", farthest, |of| of.1)
        .column("vector", |&(_, (own, at))| {
            row(&own.features, own.columns, at)
        })
        .finish()
}

/// A singular value of a state embedding or an eigenvalue of a diffusion map.
struct SpectrumRow<'a> {
    at: usize,
    value: f64,
    gap: Option<f64>,
    states: Option<&'a StateEmbeddingModel>,
    level: Option<&'a Level>,
}

/// One row per singular value or eigenvalue.
fn spectrum<'a>() -> TableColumns<'a, PointsModel> {
    let values = |fit: &'a PointFit| {
        let of_states = fit.states().into_iter().flat_map(|own| {
            let values = &own.model.singular_values;
            let row = move |(at, &value): (usize, &f64)| SpectrumRow {
                at,
                value,
                gap: values.get(at + 1).map(|next| value - next),
                states: Some(&own.model),
                level: None,
            };
            values.iter().enumerate().map(row)
        });
        let levels = fit.heat().into_iter().flat_map(|own| &own.spectrum);
        let of_heat = levels.enumerate().map(|(at, level)| SpectrumRow {
            at,
            value: level.value,
            gap: level.gap,
            states: None,
            level: Some(level),
        });
        of_states.chain(of_heat)
    };
    of_fits(PointsModel::fits, values)
        .key("index", |(_, r)| r.at as u32)
        .column("value", |(_, r)| r.value)
        // The difference to the next one.
        .column("gap", |(_, r)| r.gap)
        // √(J/n): singular values of this size are noise.
        .part("noise", |(_, r)| r.states, |own| own.noise)
        // Whether the embedding has a coordinate for it.
        .column("is_kept", |(_, r)| match r.states {
            Some(own) => r.at < own.rank,
            None => r.at > 0,
        })
        // ‖Bu − λu‖ of an eigenvector u.
        .part("residual", |(_, r)| r.level, |level| level.residual)
        // 1 / Σ u⁴, the number of points that an eigenvector is spread over.
        .part("participation", |(_, r)| r.level, |of| of.participation)
        // −4 ln λ / ε, an estimate of an eigenvalue of the Laplace operator.
        .column("laplace", |(_, r)| r.level.and_then(|level| level.laplace))
        .finish()
}

/// One row per rank of a fit with `rank = "auto"`.
fn ranks<'a>() -> TableColumns<'a, PointsModel> {
    let ranks = |fit: &'a PointFit| fit.states().into_iter().flat_map(|own| &own.ranks);
    of_fits(PointsModel::fits, ranks)
        .key("rank", |(_, of)| of.rank as u32)
        .column("folds", |(_, of)| of.folds as u32)
        // The mean over folds of the VAMP-2 score of held-out pairs, and its standard error.
        .column("vamp_2", |(_, of)| of.score.mean)
        .column("vamp_2_error", |(_, of)| of.score.error)
        // The mean score of functions that tell nothing of each other.
        .column("vamp_2_chance", |(_, of)| of.chance)
        .column("is_chosen", |(_, of)| of.reason.is_some())
        // Why the rank was chosen.
        .column("reason", |(_, of)| of.reason.as_deref())
        .finish()
}

/// One row per cluster.
fn centroids<'a>() -> TableColumns<'a, PointsModel> {
    type Row<'a> = (&'a PointFit, usize, &'a Centroid, Option<Vec<f64>>);
    let rows = |model: &'a PointsModel| {
        let mut all: Vec<Row<'a>> = Vec::new();
        let fits = PointFit::by_name(&model.fits).into_iter();
        for (fit, own) in fits.filter_map(|fit| Some((fit, fit.states()?))) {
            let centroids = own.clusters.iter().flat_map(|c| &c.centroids).enumerate();
            all.extend(centroids.map(|(k, centroid)| {
                let nearest = own.nearest.as_ref().map(|nearest| {
                    let scaled = nearest[k].iter().zip(&model.divisors);
                    scaled.map(|(x, s)| x * s).collect()
                });
                (fit, k, centroid, nearest)
            }));
        }
        all
    };
    Columns::of(rows)
        .key("fit", |(fit, ..)| fit.name.as_str())
        .key("cluster", |&(_, k, ..)| k as u32)
        .column("center", |(_, _, centroid, _)| centroid.center.clone())
        // The share of the weights of the clustered rows.
        .column("weight", |(_, _, centroid, _)| centroid.weight)
        // The coordinates of the sampled row that is nearest to the centre.
        .column("nearest", |(.., nearest)| nearest.clone())
        // The share of the pairs from the cluster that end outside it.
        .column("exit_probability", |(_, _, centroid, _)| centroid.exit)
        // The sizes of the samples that `weight` and `exit_probability` are of.
        .column("sample_rows", |(_, _, centroid, _)| centroid.points)
        .column("sample_pairs", |(_, _, centroid, _)| centroid.pairs)
        .finish()
}

/// One row per known set and cluster of a fit with `given`.
fn confusion<'a>() -> TableColumns<'a, PointsModel> {
    let pairs = |fit: &'a PointFit| {
        let known = fit.states().and_then(|own| own.confusion.as_ref());
        known.into_iter().flat_map(|own| {
            let places = 0..own.shared.len();
            places.map(move |at| (own, at / own.clusters(), at % own.clusters()))
        })
    };
    of_fits(PointsModel::fits, pairs)
        .key("given", |&(_, (own, set, _))| own.sets[set].as_str())
        .key("cluster", |&(_, (.., k))| k as u32)
        // The weight of the rows of the set in the cluster.
        .column("weight", |&(_, (own, set, k))| {
            own.shared[set * own.clusters() + k]
        })
        // Whether the set is matched with the cluster.
        .column("is_matched", |&(_, (own, set, k))| {
            own.matched[set] == Some(k)
        })
        .finish()
}

/// One row per time or power of a diffusion map or a sketch.
fn distortion<'a>() -> TableColumns<'a, PointsModel> {
    let times = |fit: &'a PointFit| {
        let times = fit.heat().into_iter();
        let times = times.flat_map(|own| own.times.iter().zip(&own.distortion));
        times.filter_map(|(time, of)| Some((*time, of.as_ref()?)))
    };
    of_fits(PointsModel::fits, times)
        // The time of a diffusion map, or the power of a sketch.
        .key("time", |&(_, (time, _))| time)
        .column("pairs", |(_, (_, of))| of.pairs as u64)
        // log L, the largest ratio of embedded and Euclidean distance over the smallest.
        .column("log_distortion", |(_, (_, of))| of.log)
        // Quantiles of the ratio.
        .column("quantiles", |(_, (_, of))| of.quantiles.to_vec())
        .finish()
}

/// One row per state embedding. Errors are relative to the norm of what is estimated.
fn density_errors<'a>() -> TableColumns<'a, PointsModel> {
    let errors = |fit: &'a PointFit| {
        let own = fit.states().into_iter();
        own.filter_map(|own| own.density_error.as_ref())
    };
    of_fits(PointsModel::fits, errors)
        // ‖p̂ − p‖ / ‖p‖ in L²(π) × L², and its standard error.
        .column("error", |(_, of)| of.error)
        .column("standard_error", |(_, of)| of.standard_error)
        // Parts whose squares add up to that of the error.
        .column("of_pairs", |(_, of)| of.of_pairs)
        .column("of_rank", |(_, of)| of.of_rank)
        .column("of_features", |(_, of)| of.of_features)
        // The width of the kernel that stands for a point in `of_features`.
        .column("resolution", |(_, of)| of.resolution)
        // ‖μ̂ − μ‖ / ‖μ‖ of mean embeddings, plain and of the rank.
        .column("kme_error", |(_, of)| of.kme)
        .column("kme_reshaped_error", |(_, of)| of.kme_reshaped)
        // λ̄ of Theorem 1, κ of Theorem 2, and the largest Φ(x)ᵀC⁻¹Φ(x) of a sample, at most L_max.
        .column("largest_eigenvalue", |(_, of)| of.largest_eigenvalue)
        .column("condition_number", |(_, of)| of.condition_number)
        .column("largest_leverage", |(_, of)| of.largest_leverage)
        .finish()
}

/// One row per time or power, number of coordinates and distance of a fit with trials.
fn distortion_trials<'a>() -> TableColumns<'a, PointsModel> {
    let trials = |fit: &'a PointFit| fit.heat().into_iter().flat_map(|own| &own.trials);
    let of_some = |of: &'a TrialDistortion| Some(of).filter(|of| !of.trials.is_empty());
    of_fits(PointsModel::fits, trials)
        // The time of a diffusion map, or the power of a sketch.
        .key("time", |(_, of)| of.time)
        // The number of leading coordinates.
        .key("dimension", |(_, of)| of.dimension as u32)
        .key("against", |(_, of)| of.against.name())
        .column("points", |(_, of)| of.points as u64)
        .column("trials", |(_, of)| of.trials.len() as u64)
        // The mean and the standard deviation of log L.
        .column("log_distortion", move |(_, of)| {
            of_some(of).map(TrialDistortion::mean)
        })
        .column("standard_deviation", |(_, of)| of.standard_deviation())
        // log L of every trial.
        .column("log_distortions", |(_, of)| {
            of.trials
                .iter()
                .map(|trial| trial.log)
                .collect::<Vec<f64>>()
        })
        // The mean of the largest error of a squared distance, as a share of the largest one.
        .column("largest_error", |(_, of)| of.error())
        // The change of a sketch by noise, its expected value and its bound.
        .column("change", |(_, of)| of.change(|own| own.found))
        .column("expected_change", |(_, of)| of.change(|own| own.expected))
        .column("change_bound", |(_, of)| of.change(|own| own.bound))
        .finish()
}

/// A fit of a model.
type FitRow<'a> = (&'a PointsModel, &'a PointFit);

/// One row per fit.
fn fits<'a>() -> TableColumns<'a, PointsModel> {
    let rows = |model: &'a PointsModel| -> Vec<FitRow<'a>> {
        PointFit::by_name(&model.fits)
            .into_iter()
            .map(|fit| (model, fit))
            .collect()
    };
    let of_all = Columns::of(rows)
        .key("fit", |(_, fit)| fit.name.as_str())
        .column("method", |(_, fit)| fit.method.as_str())
        // Coordinates of the embedding.
        .column("rank", |(_, fit)| {
            fit.columns()
                .first()
                .map_or(0, |column| column.width as u32)
        })
        .column("dimension", |(model, _)| model.divisors.len() as u32)
        .column("points", |(model, _)| model.rows)
        .column("coordinates", |(model, _)| model.coordinates.clone())
        // What each coordinate was divided by.
        .column("scale", |(model, _)| model.divisors.clone());
    of_kernels(of_states(of_all))
        .column("warnings", |(_, fit)| fit.warnings.clone())
        .finish()
}

/// The columns of state embeddings in `fits`.
fn of_states<'a>(
    columns: Columns<'a, PointsModel, FitRow<'a>>,
) -> Columns<'a, PointsModel, FitRow<'a>> {
    let states = |r: &FitRow<'a>| r.1.states().map(|own| &own.model);
    let clusters = |r: &FitRow<'a>| r.1.states().and_then(|own| own.clusters.as_ref());
    let separation = move |r: &FitRow<'a>| clusters(r)?.separation();
    columns
        .part("pairs", states, |m| m.pairs)
        // The features that span the others, with the constant.
        .part("features", states, |m| m.features.count() as u32)
        // J and J₁: orthonormal functions of the first and of the second point.
        .part("kept_left", states, |m| m.kept[0] as u32)
        .part("kept_right", states, |m| m.kept[1] as u32)
        .part("bandwidth", states, |m| m.bandwidth)
        .part("norm", states, |m| match m.norm {
            Norm::Density => "density",
            Norm::Lebesgue => "lebesgue",
        })
        // Σ σ², the VAMP-2 score on the pairs of the fit.
        .part("vamp_2", states, |m| {
            let leading = m.singular_values[..m.rank].iter();
            leading.map(|s| s * s).sum::<f64>()
        })
        .part("noise", states, |m| m.noise)
        // The mean held-out VAMP-2 score at the lag, if bandwidths were compared.
        .column("held_out", |(_, fit)| fit.states()?.held_out)
        // The mean squared distance of the embedded points to their centres.
        .part("objective", clusters, |c| c.objective)
        // 16 Δ₂²/Δ₁²: a bound of the misclassification if it is below 1.
        .part("misclassification_bound", separation, |s| s.bound)
        // M against the sets of the column `given`: Σ of the share of a set outside its cluster.
        .column("misclassification", |(_, fit)| {
            Some(fit.states()?.confusion.as_ref()?.rate)
        })
        .part("is_separated", separation, |s| s.is_separated)
}

/// The columns of diffusion maps and sketches in `fits`.
fn of_kernels<'a>(
    columns: Columns<'a, PointsModel, FitRow<'a>>,
) -> Columns<'a, PointsModel, FitRow<'a>> {
    let heat = |r: &FitRow<'a>| r.1.heat();
    let quality = |r: &FitRow<'a>| r.1.heat().map(|model| &model.quality);
    columns
        // ε of the kernel exp(−d²/ε), and where it comes from.
        .part("epsilon", quality, |q| q.epsilon)
        .part("epsilon_reason", quality, |q| q.reason.as_str())
        .part("kernel_points", quality, |q| q.points as u64)
        .part("kernel_entries", quality, |q| q.entries as u64)
        // The mean of Σ_j K_ij.
        .part("effective_neighbours", quality, |q| q.effective_neighbours)
        // The share of Σ_j K_ij that was cut.
        .part("cut", quality, |q| q.cut)
        .part("components", quality, |q| q.components as u64)
        .part("normalisation", heat, |m| m.extension.normalisation.name())
        .part("alpha", heat, |m| m.extension.alpha)
        // Which entries of the kernel are kept: all without `neighbours` and `radius`.
        .column("neighbours", move |r| match heat(r)?.extension.reach {
            Reach::Neighbours(k) => Some(k as u64),
            _ => None,
        })
        .column("radius", move |r| match heat(r)?.extension.reach {
            Reach::Radius(radius) => Some(radius),
            _ => None,
        })
        // The times of a diffusion map, or the powers of a sketch.
        .part("times", heat, |m| m.times.clone())
}
