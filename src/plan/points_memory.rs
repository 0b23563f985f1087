//! Memory needs of a run over points: an upper bound before a row is read, and the need of each
//! partition once its points are counted.

use crate::error::counted;
use crate::evidence::points::PointSize;
use crate::methods::PointMethod;
use crate::methods::state_embedding::params::{
    BANDWIDTH_FACTORS, Bandwidth, BandwidthRule, COMPARED_FEATURES, StateEmbedding,
};
use crate::plan::fits::Ranks;
use crate::plan::kind::Shown;
use crate::plan::memory::{Lack, own_bytes, shown};
use crate::plan::points::PointsPlan;
use serde_json::json;

/// Rows that are decoded, embedded and encoded again while the table `points` is written, and
/// samples of points and of pairs.
const STREAMING: u64 = 128 << 20;

/// Sums of groups of trajectories, from which resamples are drawn, in all partitions.
pub(crate) const GROUP_BYTES: u64 = 512 << 20;

impl PointsPlan {
    /// The upper bound of a run over `rows` rows, beside pairs of points and more partitions. None
    /// if the number of rows, or of coordinates, is not known and matters.
    pub(crate) fn needs(&self, rows: Option<u64>, threads: usize) -> Option<Shown> {
        let dimension = (!self.layout.is_list()).then_some(self.layout.coordinates.len() as u64);
        let size = PointSize {
            points: rows?,
            dimension: dimension?,
            lags: self.layout.n_lags() as u64,
        };
        let fits = || self.fits.iter().map(|fit| &fit.method);
        let groups = GROUP_BYTES * u64::from(self.validation.bootstrap > 0);
        let largest = fits().map(|fit| fit.bytes(size, threads as u64)).max();
        let kept: u64 = fits().map(|fit| fit.kept_bytes(size)).sum();
        let sums = self.sum_bytes(size.lags);
        let fitted = largest.unwrap_or(0) + kept + sums;
        let bytes = own_bytes(threads) + STREAMING + groups + fitted;
        let per_pair = fits().map(PointMethod::bytes_per_pair).max();
        let per_pair = per_pair.filter(|bytes| *bytes > 0);
        let has_partitions = !self.layout.partition.is_empty();
        let per_partition = (sums > 0 && has_partitions).then_some(sums);
        let rows = counted(size.points, "row");
        let mut text = format!("  memory at most {} for {rows}", shown(bytes));
        if let Some(bytes) = per_pair {
            text += &format!(", and {bytes} bytes per pair of points within `radius`");
        }
        if let Some(bytes) = per_partition {
            text += &format!(", and {} per partition after the first", shown(bytes));
        }
        let json = json!({
            "rows": size.points,
            "dimension": dimension,
            "bytes": bytes,
            "bytes_per_pair": per_pair,
            "bytes_per_partition": per_partition,
        });
        Some(Shown { text, json })
    }

    /// An upper bound of the bytes of all sums of products of features of a partition. They are
    /// kept apart by fold while bandwidths or ranks are compared, and for the errors of densities.
    fn sum_bytes(&self, lags: u64) -> u64 {
        let of = |features: usize, parts: u64| StateEmbedding::sum_bytes(features, lags) * parts;
        // Beside the sums of the folds, those of all folds and of all but one.
        let folds = self.validation.folds as u64 + 2;
        let embeddings = self.fits.iter().filter_map(|fit| match &fit.method {
            PointMethod::StateEmbedding(own) => Some((own, &fit.ranks)),
            PointMethod::DiffusionMap(_) | PointMethod::HeatSketch(_) => None,
        });
        let bytes = embeddings.map(|(own, ranks)| {
            let is_held_out = self.densities.is_some() || matches!(ranks, Ranks::Auto { .. });
            let fitted = of(own.features, if is_held_out { folds } else { 1 });
            let candidates = BANDWIDTH_FACTORS.len() as u64;
            let compared = match own.bandwidth {
                Bandwidth::Rule(BandwidthRule::HeldOut) => {
                    of(own.features.min(COMPARED_FEATURES), candidates * folds)
                }
                _ => 0,
            };
            fitted.max(compared)
        });
        bytes.sum()
    }

    /// What a fit to the points of one partition lacks within a memory limit. `pairs` is the number
    /// of pairs of points within the radius of its kernel, as far as it is known.
    pub(crate) fn lacking(
        &self,
        fit: &str,
        method: &PointMethod,
        size: PointSize,
        pairs: u64,
        threads: usize,
        limit: Option<usize>,
    ) -> Option<Lack> {
        let of_pairs = pairs.saturating_mul(method.bytes_per_pair());
        let bytes = method.bytes(size, threads as u64).saturating_add(of_pairs);
        let less = match method {
            PointMethod::StateEmbedding(_) => "or lower `features`",
            PointMethod::DiffusionMap(_) | PointMethod::HeatSketch(_) if pairs > 0 => {
                "or set a smaller `radius`, or `landmarks`"
            }
            PointMethod::DiffusionMap(_) | PointMethod::HeatSketch(_) => {
                "or set `landmarks` or fewer `neighbours`"
            }
        };
        let mut evidence = format!(
            "for {} of {}",
            counted(size.points, "point"),
            counted(size.dimension, "coordinate")
        );
        if pairs > 0 {
            evidence += &format!(" with {} within `radius`", counted(pairs, "pair"));
        }
        Lack::of(fit, bytes, &evidence, less, threads, limit)
    }
}
