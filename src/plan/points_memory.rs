//! Memory needs of a run over points: an upper bound before a row is read, and the need of each
//! partition once its points are counted.

use crate::error::{Error, Result, counted};
use crate::evidence::points::PointSize;
use crate::methods::PointMethod;
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
    /// Bytes that the run holds at most.
    pub bytes: u64,
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
        let fits = self.fits.iter();
        let largest = fits.map(|fit| fit.method.bytes(size, threads as u64)).max();
        let groups = if self.validation.bootstrap > 0 {
            GROUP_BYTES
        } else {
            0
        };
        Some(PointNeeds {
            rows: size.points,
            dimension,
            bytes: crate::memory::least(threads) as u64 + STREAMING + groups + largest.unwrap_or(0),
        })
    }

    /// Checks that a fit to the points of one partition stays within a memory limit.
    ///
    /// # Errors
    /// If the limit is too small: the fit, its sizes and the smallest limit that works.
    pub fn check_memory(
        &self,
        fit: &str,
        method: &PointMethod,
        size: PointSize,
        threads: usize,
        limit: Option<usize>,
    ) -> Result<()> {
        let Some(limit) = limit else { return Ok(()) };
        let own = crate::memory::least(threads) as u64;
        let wanted = own + method.bytes(size, threads as u64);
        if wanted <= limit as u64 {
            return Ok(());
        }
        let less = match method {
            PointMethod::StateEmbedding(_) => "lower `features`",
            PointMethod::DiffusionMap(_) | PointMethod::HeatSketch(_) => {
                "set `landmarks` or fewer `neighbours`"
            }
        };
        Err(Error::spec(format!(
            "fit `{fit}` needs {} for {} of {} and {}; --memory is {}: give at least {}, or {less}",
            crate::memory::shown(wanted as usize),
            counted(size.points, "point"),
            counted(size.dimension, "coordinate"),
            counted(threads, "thread"),
            crate::memory::shown(limit),
            crate::memory::shown(wanted as usize),
        )))
    }
}

impl std::fmt::Display for PointNeeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "  memory at most {} for {}",
            crate::memory::shown(self.bytes as usize),
            counted(self.rows, "row")
        )
    }
}
