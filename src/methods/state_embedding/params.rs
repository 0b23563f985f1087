//! The parameters of a state embedding.

use crate::methods::estimator::{Fault, Parameters, at_least_one, defaults, ranked};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The measure in which the right functions of an embedding are orthonormal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Norm {
    /// The distribution of the ends of pairs: singular values are canonical correlations, at most
    /// 1.
    #[default]
    Density,
    /// The volume of a box: distances of the embedding are diffusion distances.
    Lebesgue,
}

/// How the bandwidth of the kernel is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Bandwidth {
    /// A rule.
    Rule(BandwidthRule),
    /// The bandwidth, in the unit of the coordinates.
    Value(f64),
}

/// A rule for the bandwidth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BandwidthRule {
    /// The best of 1/8, 1/4, 1/2 and 1 times the median distance, by held-out VAMP-2 scores. If the
    /// best is the first or the last, the search goes on beyond it by factors of 2.
    HeldOut,
    /// The median distance of two points.
    Median,
}

/// The first candidates of [`BandwidthRule::HeldOut`], as factors of the median distance.
pub(crate) const BANDWIDTH_FACTORS: [f64; 4] = [0.125, 0.25, 0.5, 1.0];

/// Most random features of the fits that compare bandwidths.
pub(crate) const COMPARED_FEATURES: usize = 256;

/// An embedding of points by where they move.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StateEmbedding {
    /// The dimension of the embedding, or a list of dimensions to fit one by one.
    pub rank: usize,
    /// The number of random Fourier features of the kernel.
    #[serde(default = "StateEmbedding::features")]
    #[schemars(range(min = 1))]
    pub features: usize,
    /// Directions of the features are dropped if their variance is at most this share of the
    /// largest one.
    #[serde(default = "StateEmbedding::tolerance")]
    #[schemars(range(min = 0, max = 1))]
    pub tolerance: f64,
    /// The bandwidth of the Gaussian kernel: `"held-out"`, `"median"` or a number in the unit of
    /// the coordinates.
    #[serde(default = "StateEmbedding::bandwidth")]
    pub bandwidth: Bandwidth,
    /// The measure of the right functions: `"density"`, or `"lebesgue"` with a box.
    #[serde(default)]
    pub norm: Norm,
    /// The lower and the upper bound of every coordinate. Only with `norm = "lebesgue"`; by default
    /// the range of the points and three bandwidths on each side.
    #[serde(default, rename = "box", skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Vec<[f64; 2]>>,
    /// The number of clusters of the embedded points. Without it there are no clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub clusters: Option<usize>,
    /// The column of the SQL result with the known set of the row, which the clusters are compared
    /// with. Only with `clusters`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given: Option<String>,
    /// Whether the table `points` has the distance of each row to the centre of its cluster, in the
    /// embedding. Only with `clusters`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub distances: bool,
    /// The number of independent starts of k-means, of which the best is kept. Only with
    /// `clusters`.
    #[serde(default = "StateEmbedding::restarts")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
}

defaults! { pub(crate) StateEmbedding(rank: usize) {
    features: usize = 1000,
    tolerance: f64 = 1e-4,
    bandwidth: Bandwidth = Bandwidth::Rule(BandwidthRule::HeldOut),
    restarts: usize = 20,
} norm bounds clusters given distances }

impl StateEmbedding {
    /// Bytes of the sums of products of features at this number of lags: two triangles and a square
    /// of 128-bit integers per lag.
    pub(crate) fn sum_bytes(features: usize, lags: u64) -> u64 {
        let m = features as u64 + 1;
        lags * 2 * m * m * 16
    }
}

impl Parameters for StateEmbedding {
    const NAME: &'static str = "state_embedding";

    ranked!();

    fn describe(&self, rank: &str) -> String {
        let bandwidth = match self.bandwidth {
            Bandwidth::Value(s) => format!("bandwidth {s}"),
            Bandwidth::Rule(BandwidthRule::Median) => "bandwidth by the median distance".into(),
            Bandwidth::Rule(BandwidthRule::HeldOut) => "bandwidth by held-out VAMP-2".into(),
        };
        let clusters = self.clusters.map(|k| format!(", {k} clusters"));
        format!(
            "state embedding, {rank}, {} random features, {bandwidth}{}",
            self.features,
            clusters.unwrap_or_default()
        )
    }

    fn check(&self) -> Result<(), Fault> {
        at_least_one(&[
            ("features", self.features),
            ("clusters", self.clusters.unwrap_or(1)),
            ("restarts", self.restarts),
        ])?;
        if !(self.tolerance > 0.0 && self.tolerance < 1.0) {
            let message = format!("must be above 0 and below 1, not {}", self.tolerance);
            return Err(("tolerance", message));
        }
        if let Bandwidth::Value(s) = self.bandwidth
            && !(s > 0.0 && s.is_finite())
        {
            let message = format!("must be positive and finite, not {s}");
            return Err(("bandwidth", message));
        }
        if let Some(column) = &self.given {
            if column.trim().is_empty() {
                return Err(("given", "must not be empty".into()));
            }
            if self.clusters.is_none() {
                let message =
                    "names the sets that `clusters` are compared with, and there is no such key";
                return Err(("given", message.into()));
            }
        }
        if self.distances && self.clusters.is_none() {
            let message = "are those to the centres of `clusters`, and there is no such key";
            return Err(("distances", message.into()));
        }
        let Some(bounds) = &self.bounds else {
            return Ok(());
        };
        if self.norm != Norm::Lebesgue {
            return Err(("box", "needs `norm = \"lebesgue\"`".into()));
        }
        let is_interval = |b: &[f64; 2]| b[0] < b[1] && b[0].is_finite() && b[1].is_finite();
        match bounds.iter().find(|b| !is_interval(b)) {
            Some([low, high]) => {
                let message = format!("must have finite, increasing bounds, not [{low}, {high}]");
                Err(("box", message))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_keys_are_named() {
        let wrong = |change: fn(&mut StateEmbedding)| {
            let mut params = StateEmbedding::new(2);
            change(&mut params);
            params.check().map_err(|fault| fault.0)
        };
        assert_eq!(wrong(|_| ()), Ok(()));
        assert_eq!(wrong(|p| p.features = 0), Err("features"));
        assert_eq!(wrong(|p| p.clusters = Some(0)), Err("clusters"));
        assert_eq!(wrong(|p| p.given = Some("well".into())), Err("given"));
        assert_eq!(wrong(|p| p.distances = true), Err("distances"));
        assert_eq!(wrong(|p| p.tolerance = 1.0), Err("tolerance"));
        assert_eq!(
            wrong(|p| p.bandwidth = Bandwidth::Value(0.0)),
            Err("bandwidth")
        );
        assert_eq!(wrong(|p| p.bounds = Some(vec![[0.0, 1.0]])), Err("box"));
        let box_of = |p: &mut StateEmbedding| {
            p.norm = Norm::Lebesgue;
            p.bounds = Some(vec![[0.0, 1.0], [2.0, 2.0]]);
        };
        assert_eq!(wrong(box_of), Err("box"));
    }

    #[test]
    fn a_bandwidth_is_a_rule_or_a_number() {
        let read = |json: &str| serde_json::from_str::<StateEmbedding>(json).unwrap();
        let params = read(r#"{"rank": 3}"#);
        assert_eq!(params, StateEmbedding::new(3));
        let params = read(r#"{"rank": 3, "bandwidth": "median", "norm": "lebesgue"}"#);
        assert_eq!(params.bandwidth, Bandwidth::Rule(BandwidthRule::Median));
        assert_eq!(params.norm, Norm::Lebesgue);
        let params = read(r#"{"rank": 3, "bandwidth": 0.5, "box": [[0, 1]]}"#);
        assert_eq!(params.bandwidth, Bandwidth::Value(0.5));
        assert_eq!(params.bounds, Some(vec![[0.0, 1.0]]));
        assert!(serde_json::from_str::<StateEmbedding>(r#"{"rank": 3, "s": 1}"#).is_err());
    }
}
