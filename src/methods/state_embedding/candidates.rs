//! Bases of features to sum over, from the parameters and a sample of points.

use crate::error::{Error, Result, counted};
use crate::evidence::points::Points;
use crate::methods::state_embedding::features::Features;
use crate::methods::state_embedding::model::Basis;
use crate::methods::state_embedding::params::{
    BANDWIDTH_FACTORS, Bandwidth, BandwidthRule, Norm, StateEmbedding,
};
use crate::methods::state_embedding::pilot::{median_distance, select};

/// The share of `tolerance` up to which a feature may be explained by the kept ones. Directions
/// near the cut then keep two digits.
const SELECTION: f64 = 0.01;

/// Bandwidths between the range of the points and the sides of the default box.
const MARGIN: f64 = 3.0;

/// The bases to choose from: one, or one per bandwidth for `bandwidth = "held-out"`.
///
/// The sample should have some 10,000 points from all parts of the data. The default box of the
/// Lebesgue norm is `range`, the least and the largest value of every coordinate, with a margin.
///
/// # Errors
/// If all points of the sample are equal, or the box has other coordinates than the points.
pub(crate) fn candidates(
    sample: &Points,
    range: &[[f64; 2]],
    params: &StateEmbedding,
    seed: u64,
) -> Result<Vec<Basis>> {
    let d = sample.dimension;
    if let Some(bounds) = &params.bounds
        && bounds.len() != d
    {
        return Err(Error::spec(format!(
            "`box` has bounds for {}, but the points have {d}",
            counted(bounds.len(), "coordinate")
        )));
    }
    let bandwidths = match params.bandwidth {
        Bandwidth::Value(s) => vec![s],
        Bandwidth::Rule(BandwidthRule::Median) => vec![median_distance(sample)?],
        Bandwidth::Rule(BandwidthRule::HeldOut) => {
            let median = median_distance(sample)?;
            BANDWIDTH_FACTORS.map(|factor| factor * median).to_vec()
        }
    };
    let basis = |bandwidth: f64| {
        let bounds = (params.norm == Norm::Lebesgue).then(|| {
            let margin = MARGIN * bandwidth;
            let widened = range
                .iter()
                .map(|[low, high]| [low - margin, high + margin]);
            params.bounds.clone().unwrap_or_else(|| widened.collect())
        });
        let all = Features::random(params.features, d, bandwidth, seed);
        let tolerance = SELECTION * params.tolerance;
        let selection = select(&all, &sample.coordinates, bounds.as_deref(), tolerance);
        Basis {
            features: all.select(&selection.kept),
            metric: Some(selection.metric),
            bandwidth,
            bounds,
        }
    };
    Ok(bandwidths.into_iter().map(basis).collect())
}
