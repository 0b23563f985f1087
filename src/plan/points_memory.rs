//! Memory needs of a run over points: an upper bound before a row is read, and the need of each
//! partition once its points are counted.

use crate::error::{Error, counted};
use crate::evidence::points::PointSize;
use crate::methods::PointMethod;
use crate::methods::state_embedding::params::{
    BANDWIDTH_FACTORS, Bandwidth, BandwidthRule, COMPARED_FEATURES, StateEmbedding,
};
use crate::plan::fits::Ranks;
use crate::plan::memory::Lack;
use crate::plan::points::PointsPlan;
use serde::Serialize;

/// Rows that are decoded, embedded and encoded again while the table `points` is written, and
/// samples of points and of pairs.
const STREAMING: u64 = 128 << 20;

/// Sums of groups of trajectories, from which resamples are drawn, in all partitions.
pub const GROUP_BYTES: u64 = 512 << 20;

/// Upper bounds of a run over points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PointNeeds {
    /// The number of rows.
    pub rows: u64,
    /// Coordinates per row. None if they are a list.
    pub dimension: Option<u64>,
    /// Bytes that the run holds at most, beside those of pairs and of more partitions.
    pub bytes: u64,
    /// Bytes per pair of points within the radius of a kernel. None if no kernel has a radius.
    pub bytes_per_pair: Option<u64>,
    /// Bytes per partition after the first. None without partitions, or if it does not matter.
    pub bytes_per_partition: Option<u64>,
}

impl PointsPlan {
    /// The upper bound of a run over `rows` rows. None if the number of rows, or of coordinates, is
    /// not known and matters.
    pub fn needs(&self, rows: Option<u64>, threads: usize) -> Option<PointNeeds> {
        let dimension = (!self.layout.is_list()).then_some(self.layout.coordinates.len() as u64);
        let size = PointSize {
            points: rows?,
            dimension: dimension?,
            lags: self.layout.n_lags() as u64,
        };
        let fits = || self.fits.iter().map(|fit| &fit.method);
        let groups = if self.validation.bootstrap > 0 {
            GROUP_BYTES
        } else {
            0
        };
        let largest = fits().map(|fit| fit.bytes(size, threads as u64)).max();
        let kept: u64 = fits().map(|fit| fit.kept_bytes(size)).sum();
        let sums = self.sum_bytes(size.lags);
        let own = crate::memory::least(threads) as u64;
        let bytes_per_pair = fits().map(PointMethod::bytes_per_pair).max();
        Some(PointNeeds {
            rows: size.points,
            dimension,
            bytes: own + STREAMING + groups + largest.unwrap_or(0) + kept + sums,
            bytes_per_pair: bytes_per_pair.filter(|bytes| *bytes > 0),
            bytes_per_partition: (sums > 0 && !self.layout.partition.is_empty()).then_some(sums),
        })
    }

    /// An upper bound of the bytes of all sums of products of features of a partition. They are
    /// kept apart by fold while bandwidths or ranks are compared.
    fn sum_bytes(&self, lags: u64) -> u64 {
        let of = |features: usize, parts: u64| StateEmbedding::sum_bytes(features, lags) * parts;
        // Beside the sums of the folds, those of all folds and of all but one.
        let folds = self.validation.folds as u64 + 2;
        let embeddings = self.fits.iter().filter_map(|fit| match &fit.method {
            PointMethod::StateEmbedding(own) => Some((own, &fit.ranks)),
            PointMethod::DiffusionMap(_) | PointMethod::HeatSketch(_) => None,
        });
        let bytes = embeddings.map(|(own, ranks)| {
            let is_auto = matches!(ranks, Ranks::Auto { .. });
            let fitted = of(own.features, if is_auto { folds } else { 1 });
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
        let limit = limit?;
        let own = crate::memory::least(threads) as u64;
        let of_pairs = pairs.saturating_mul(method.bytes_per_pair());
        let wanted = own + method.bytes(size, threads as u64).saturating_add(of_pairs);
        if wanted <= limit as u64 {
            return None;
        }
        let less = match method {
            PointMethod::StateEmbedding(_) => "lower `features`",
            PointMethod::DiffusionMap(_) | PointMethod::HeatSketch(_) => {
                if pairs > 0 {
                    "set a smaller `radius`, or `landmarks`"
                } else {
                    "set `landmarks` or fewer `neighbours`"
                }
            }
        };
        let with_pairs = if pairs > 0 {
            format!(" with {} within `radius`", counted(pairs, "pair"))
        } else {
            String::new()
        };
        let error = Error::spec(format!(
            "fit `{fit}` needs {} for {} of {}{with_pairs} and {}; --memory is {}: give at least {}, or {less}",
            crate::memory::shown(wanted as usize),
            counted(size.points, "point"),
            counted(size.dimension, "coordinate"),
            counted(threads, "thread"),
            crate::memory::shown(limit),
            crate::memory::shown(wanted as usize),
        ));
        Some(Lack { wanted, error })
    }
}

impl std::fmt::Display for PointNeeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "  memory at most {} for {}",
            crate::memory::shown(self.bytes as usize),
            counted(self.rows, "row")
        )?;
        if let Some(bytes) = self.bytes_per_pair {
            write!(f, ", and {bytes} bytes per pair of points within `radius`")?;
        }
        match self.bytes_per_partition {
            Some(bytes) => {
                let bytes = crate::memory::shown(bytes as usize);
                write!(f, ", and {bytes} per partition after the first")
            }
            None => Ok(()),
        }
    }
}
