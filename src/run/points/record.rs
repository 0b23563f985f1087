//! The record of a run over points, and the summary that `gyre run` prints.

use crate::assess::density_errors::DensityError;
use crate::error::{counted, escaped};
use crate::methods::heat_kernel::trials::TrialDistortion;
use crate::methods::state_embedding::clusters::Confusion;
use crate::output::number::grouped;
use crate::output::tables::points::{PointFit, PointModel};
use crate::run::kind;
use crate::run::summary::{SHOWN, warnings};
use serde::Serialize;
use std::fmt::{Display, Formatter, Result};

/// What the record says of the points.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Facts {
    /// The number of points.
    pub points: u64,
}

impl kind::Facts for Facts {
    const COUNTED: &'static str = "point";
    const UNIT: &'static str = "pair of points";

    fn sum(&self) -> f64 {
        self.points as f64
    }
}

/// The fits of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct PointsModelRecord {
    /// The number of points.
    pub points: u64,
    /// Coordinates per point.
    pub dimension: usize,
    /// One entry per fit.
    pub fits: Vec<PointFitRecord>,
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct PointFitRecord {
    /// The name of the fit.
    pub name: String,
    /// What the method found.
    #[serde(flatten)]
    pub found: FoundRecord,
    /// What makes the fit doubtful.
    pub warnings: Vec<String>,
}

/// What a method found.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "method", rename_all = "snake_case")]
pub(crate) enum FoundRecord {
    StateEmbedding(Box<EmbeddingRecord>),
    /// A diffusion map or a sketch.
    Heat(HeatRecord),
}

/// What a state embedding found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct EmbeddingRecord {
    /// The number of pairs of points.
    pub pairs: u64,
    /// The bandwidth of the kernel.
    pub bandwidth: f64,
    /// The bandwidths that were compared, with their held-out VAMP-2 scores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub compared: Vec<(f64, f64)>,
    /// The features that span the others.
    pub features: usize,
    /// Orthonormal functions of the first and of the second point of a pair.
    pub kept: [usize; 2],
    /// The leading singular values.
    pub singular_values: Vec<f64>,
    /// √(J/n): singular values of this size are noise.
    pub noise: f64,
    /// Why the rank was chosen, with `rank = "auto"`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank_reason: Option<String>,
    /// The ranks that were compared, with the means and the standard errors of their held-out
    /// VAMP-2 scores.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<(usize, f64, f64)>,
    /// The standard errors of the leading singular values over resamples.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub standard_errors: Vec<f64>,
    /// The resamples that could be fitted, and the groups from which they are drawn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resamples: Option<(usize, usize)>,
    /// The errors of the densities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub density_error: Option<DensityError>,
    /// The share of the points in each cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
    /// The clusters against known sets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Confusion>,
}

/// What a diffusion map or a sketch found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HeatRecord {
    /// ε of the kernel exp(−d²/ε).
    pub epsilon: f64,
    /// Where ε comes from.
    pub epsilon_reason: String,
    /// The mean of Σ_j K_ij.
    pub effective_neighbours: f64,
    /// The share of Σ_j K_ij that was cut.
    pub cut: f64,
    /// The number of landmarks, if the kernel is theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub landmarks: Option<usize>,
    /// The leading eigenvalues.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub eigenvalues: Vec<f64>,
    /// The times or powers, with log L on a sample of pairs.
    pub log_distortion: Vec<(f64, Option<f64>)>,
    /// log L over trials.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trials: Vec<TrialsRecord>,
}

/// The distortion over trials against one distance, at one time or power.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct TrialsRecord {
    /// The time of a diffusion map, or the power of a sketch.
    pub time: f64,
    /// The distance.
    pub against: &'static str,
    /// The number of trials.
    pub trials: usize,
    /// The number of points of a trial.
    pub points: usize,
    /// Numbers of coordinates, with the mean and the standard deviation of log L.
    pub log_distortion: Vec<(usize, f64, Option<f64>)>,
}

impl TrialsRecord {
    /// The records of a fit.
    fn all(of: &[TrialDistortion]) -> Vec<TrialsRecord> {
        let mut records: Vec<TrialsRecord> = Vec::new();
        for own in of.iter().filter(|own| !own.trials.is_empty()) {
            let against = own.against.name();
            let is_same = |r: &&mut TrialsRecord| r.time == own.time && r.against == against;
            let log = (own.dimension, own.mean(), own.standard_deviation());
            match records.iter_mut().find(is_same) {
                Some(record) => record.log_distortion.push(log),
                None => records.push(TrialsRecord {
                    time: own.time,
                    against,
                    trials: own.trials.len(),
                    points: own.points,
                    log_distortion: vec![log],
                }),
            }
        }
        records
    }
}

impl PointFitRecord {
    pub(crate) fn of(fit: &PointFit) -> PointFitRecord {
        let found = match &fit.model {
            PointModel::StateEmbedding(own) => {
                let model = &own.model;
                let centroids = own.clusters.iter().flat_map(|c| &c.centroids);
                FoundRecord::StateEmbedding(Box::new(EmbeddingRecord {
                    pairs: model.pairs,
                    bandwidth: model.bandwidth,
                    compared: own.scores.clone(),
                    features: model.features.count(),
                    kept: model.kept,
                    singular_values: model.singular_values[..model.rank].to_vec(),
                    noise: model.noise,
                    rank_reason: own.ranks.iter().find_map(|of| of.reason.clone()),
                    ranks: own
                        .ranks
                        .iter()
                        .map(|of| (of.rank, of.score.mean, of.score.error))
                        .collect(),
                    standard_errors: fit
                        .bootstrap
                        .iter()
                        .flat_map(|own| &own.numbers)
                        .filter(|number| number.index.is_some())
                        .filter_map(|number| Some(number.spread?.standard_error))
                        .collect(),
                    resamples: fit
                        .bootstrap
                        .as_ref()
                        .map(|own| (own.resamples, own.groups)),
                    confusion: own.confusion.clone(),
                    density_error: own.density_error,
                    weights: centroids.map(|c| c.weight).collect(),
                }))
            }
            PointModel::Heat(own) => {
                let (model, quality) = (&own.model, &own.model.quality);
                let distortion = model.distortion.iter();
                let log = distortion.map(|of| of.as_ref().map(|of| of.log));
                FoundRecord::Heat(HeatRecord {
                    epsilon: quality.epsilon,
                    epsilon_reason: quality.reason.clone(),
                    effective_neighbours: quality.effective_neighbours,
                    cut: quality.cut,
                    landmarks: model.landmarks,
                    eigenvalues: model.spectrum.iter().map(|level| level.value).collect(),
                    log_distortion: model.times.iter().copied().zip(log).collect(),
                    trials: TrialsRecord::all(&model.trials),
                })
            }
        };
        PointFitRecord {
            name: fit.name.clone(),
            found,
            warnings: fit.warnings.clone(),
        }
    }
}

impl Display for PointsModelRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        writeln!(
            f,
            "{} of {}",
            counted(grouped(self.points as f64), "point"),
            counted(self.dimension, "coordinate")
        )?;
        for fit in &self.fits {
            match &fit.found {
                FoundRecord::StateEmbedding(own) => embedding_lines(f, &fit.name, own)?,
                FoundRecord::Heat(own) => heat_lines(f, &fit.name, own)?,
            }
            warnings(f, &fit.warnings)?;
        }
        Ok(())
    }
}

fn numbers(values: &[f64], digits: usize) -> String {
    let values: Vec<String> = values.iter().map(|x| format!("{x:.digits$}")).collect();
    values.join(" ")
}

/// Writes the lines of a state embedding.
fn embedding_lines(f: &mut Formatter<'_>, name: &str, own: &EmbeddingRecord) -> Result {
    writeln!(
        f,
        "  {name}  {}, bandwidth {:.4}, {} of which {} independent",
        counted(grouped(own.pairs as f64), "pair"),
        own.bandwidth,
        counted(own.features, "feature"),
        own.kept[0].min(own.kept[1])
    )?;
    let (values, noise) = (numbers(&own.singular_values, 4), own.noise);
    writeln!(f, "    singular values {values}; noise {noise:.4}")?;
    if let Some((resamples, groups)) = own.resamples {
        let of = format!(
            "{} of {} of trajectories",
            counted(resamples, "resample"),
            counted(groups, "group")
        );
        if own.standard_errors.is_empty() {
            writeln!(f, "    no standard errors: {of}")?;
        } else {
            let errors = numbers(&own.standard_errors, 4);
            writeln!(f, "    standard errors {errors} from {of}")?;
        }
    }
    if let Some(reason) = &own.rank_reason {
        let all = own.ranks.iter().map(|(rank, ..)| rank.to_string());
        let (rank, all) = (
            own.singular_values.len(),
            all.collect::<Vec<_>>().join(", "),
        );
        writeln!(f, "    rank {rank} of {all}: {reason}")?;
    }
    if own.compared.len() > 1 {
        let scores = own.compared.iter();
        let scores = scores.map(|(s, score)| format!("{s:.4}: {score:.3}"));
        let scores: Vec<String> = scores.collect();
        writeln!(f, "    held-out VAMP-2 by bandwidth {}", scores.join(", "))?;
    }
    if let Some(error) = &own.density_error {
        density_lines(f, error)?;
    }
    if !own.weights.is_empty() {
        writeln!(f, "    clusters {}", numbers(&own.weights, 3))?;
    }
    match &own.confusion {
        Some(confusion) => confusion_line(f, confusion),
        None => Ok(()),
    }
}

/// Writes the lines of the errors of densities and of mean embeddings.
fn density_lines(f: &mut Formatter<'_>, own: &DensityError) -> Result {
    let features = match own.of_features {
        Some(part) => format!("{part:.4}"),
        None => "unknown".to_string(),
    };
    writeln!(
        f,
        "    relative error of densities {:.4} ± {:.4}: by pairs {:.4}, by rank {:.4}, by features {features}",
        own.error, own.standard_error, own.of_pairs, own.of_rank
    )?;
    writeln!(
        f,
        "    relative error of mean embeddings {:.4}, reshaped {:.4}",
        own.kme, own.kme_reshaped
    )
}

/// Writes the lines of a diffusion map or a sketch.
fn heat_lines(f: &mut Formatter<'_>, name: &str, own: &HeatRecord) -> Result {
    let of_landmarks = own
        .landmarks
        .map(|n| format!(", {}", counted(n, "landmark")));
    writeln!(
        f,
        "  {name}  epsilon {:.4} ({}), {:.1} effective neighbours, {:.2} % cut{}",
        own.epsilon,
        own.epsilon_reason,
        own.effective_neighbours,
        100.0 * own.cut,
        of_landmarks.unwrap_or_default()
    )?;
    if !own.eigenvalues.is_empty() {
        writeln!(f, "    eigenvalues {}", numbers(&own.eigenvalues, 4))?;
    }
    let logs = own.log_distortion.iter();
    let logs = logs.filter_map(|(t, log)| Some(format!("{t}: {:.3}", (*log)?)));
    let logs: Vec<String> = logs.collect();
    writeln!(f, "    log distortion by time or power {}", logs.join(", "))?;
    own.trials.iter().try_for_each(|own| trials_line(f, own))
}

/// Writes the line of a distortion over trials.
fn trials_line(f: &mut Formatter<'_>, own: &TrialsRecord) -> Result {
    let logs = own.log_distortion.iter().map(|(k, mean, deviation)| {
        let deviation = deviation.map(|deviation| format!(" ± {deviation:.3}"));
        format!("{k}: {mean:.3}{}", deviation.unwrap_or_default())
    });
    let logs: Vec<String> = logs.collect();
    writeln!(
        f,
        "    against {} distances at {} by coordinates {}; {} of {}",
        own.against,
        own.time,
        logs.join(", "),
        counted(own.trials, "trial"),
        counted(own.points, "point")
    )
}

/// Writes the line of clusters against known sets.
fn confusion_line(f: &mut Formatter<'_>, confusion: &Confusion) -> Result {
    let clusters = confusion.clusters();
    let matched = confusion.sets.iter().zip(&confusion.matched).enumerate();
    let parts = matched.take(SHOWN).map(|(set, (name, matched))| {
        let name = escaped(name);
        let Some(k) = matched else {
            return format!("{name} in none");
        };
        let row = &confusion.shared[set * clusters..][..clusters];
        let share = 100.0 * row[*k] / row.iter().sum::<f64>();
        format!("{share:.1} % of {name} in {k}")
    });
    let mut parts: Vec<String> = parts.collect();
    if confusion.sets.len() > SHOWN {
        parts.push(format!("and {} more", confusion.sets.len() - SHOWN));
    }
    let rate = confusion.rate;
    writeln!(f, "    misclassification {rate:.4}: {}", parts.join(", "))
}
