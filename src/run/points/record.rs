//! The record of a run over points, and the summary that `gyre run` prints.

use crate::error::counted;
use crate::output::number::grouped;
use crate::output::tables::points::PointFit;
use crate::read::rows::states::escaped;
use crate::run::record::Head;
use crate::run::summary;
use crate::run::summary::SHOWN;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

/// `runs/<id>.json` of a run over points.
#[derive(Debug, Clone, Serialize)]
pub struct PointsRecord {
    /// What all records have.
    #[serde(flatten)]
    pub head: Head,
    /// One entry per partition and lag.
    pub models: Vec<PointsModelRecord>,
}

/// The fits of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub struct PointsModelRecord {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    /// The lag, unless rows have no time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    /// The number of points.
    pub points: u64,
    /// Coordinates per point.
    pub dimension: usize,
    /// One entry per fit.
    pub fits: Vec<PointFitRecord>,
}

/// One fit.
#[derive(Debug, Clone, Serialize)]
pub struct PointFitRecord {
    /// The name of the fit.
    pub name: String,
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
    /// The share of the points in each cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub weights: Vec<f64>,
    /// What makes the fit doubtful.
    pub warnings: Vec<String>,
}

impl PointFitRecord {
    /// The record of a fit.
    pub(crate) fn of(fit: &PointFit) -> PointFitRecord {
        let PointFit::StateEmbedding {
            name,
            model,
            clusters,
            scores,
            ..
        } = fit;
        let centroids = clusters.iter().flat_map(|c| &c.centroids);
        PointFitRecord {
            name: name.clone(),
            pairs: model.pairs,
            bandwidth: model.bandwidth,
            compared: scores.clone(),
            features: model.features.count(),
            kept: model.kept,
            singular_values: model.singular_values[..model.rank].to_vec(),
            noise: model.noise,
            weights: centroids.map(|c| c.weight).collect(),
            warnings: model.warnings.iter().map(ToString::to_string).collect(),
        }
    }
}

/// The summary of a run over points.
pub struct PointsSummary<'a> {
    /// The record of the run.
    pub record: &'a PointsRecord,
    /// The location of its tables.
    pub output: &'a str,
}

impl Display for PointsSummary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let PointsSummary { record, output } = self;
        let (head, models) = (&record.head, &record.models);
        let points = head.tables.get("points").copied().unwrap_or(0);
        writeln!(
            f,
            "{}: {} from {}",
            head.pipeline,
            counted(grouped(points as f64), "point"),
            counted(grouped(head.rows_read as f64), "row")
        )?;
        for (reason, rows) in &head.rows_dropped {
            writeln!(f, "  {} dropped: {reason}", grouped(*rows as f64))?;
        }
        for model in models.iter().take(SHOWN) {
            writeln!(f)?;
            self::model(f, model)?;
        }
        if models.len() > SHOWN {
            let more = models.len() - SHOWN;
            writeln!(f, "\n… and {more} more, see {output}/runs/{}.json", head.id)?;
        }
        summary::end(f, head, models.len(), &["survey", "fit", "write"], output)
    }
}

/// Writes the lines of one model.
fn model(f: &mut Formatter<'_>, model: &PointsModelRecord) -> Result {
    let partition = model.partition.iter();
    let mut parts: Vec<String> = partition
        .map(|(k, v)| format!("{k} {}", escaped(v)))
        .collect();
    parts.extend(model.lag.iter().map(|lag| format!("lag {lag}")));
    if !parts.is_empty() {
        write!(f, "{}: ", parts.join(", "))?;
    }
    writeln!(
        f,
        "{} of {}",
        counted(grouped(model.points as f64), "point"),
        counted(model.dimension, "coordinate")
    )?;
    for fit in &model.fits {
        let values: Vec<String> = fit
            .singular_values
            .iter()
            .map(|s| format!("{s:.4}"))
            .collect();
        writeln!(
            f,
            "  {}  {}, bandwidth {:.4}, {} of which {} independent",
            fit.name,
            counted(grouped(fit.pairs as f64), "pair"),
            fit.bandwidth,
            counted(fit.features, "feature"),
            fit.kept[0].min(fit.kept[1])
        )?;
        writeln!(
            f,
            "    singular values {}; noise {:.4}",
            values.join(" "),
            fit.noise
        )?;
        if fit.compared.len() > 1 {
            let scores = fit
                .compared
                .iter()
                .map(|(s, score)| format!("{s:.4}: {score:.3}"));
            let scores: Vec<String> = scores.collect();
            writeln!(f, "    held-out VAMP-2 by bandwidth {}", scores.join(", "))?;
        }
        if !fit.weights.is_empty() {
            let weights: Vec<String> = fit.weights.iter().map(|w| format!("{w:.3}")).collect();
            writeln!(f, "    clusters {}", weights.join(" "))?;
        }
        for warning in &fit.warnings {
            writeln!(f, "    warning: {warning}")?;
        }
    }
    Ok(())
}
