//! Memory needs of a run of filters: an upper bound before a row is read, and the need of each
//! partition once its training rows are read.

use crate::error::counted;
use crate::methods::FilterMethod;
use crate::methods::filter::params::{KernelBayes, Noise, Rule};
use crate::output::tables::observations::StepErrors;
use crate::plan::kind::Shown;
use crate::plan::memory::{Lack, own_bytes, shown};
use crate::plan::observations::{ObservationsPlan, width};
use serde::Serialize;
use serde_json::json;

/// Rows that are read, filtered and written at a time.
const STREAMING: u64 = 128 << 20;

/// Matrices of the size of the kernel matrix that an exact fit and its steps hold at a time.
const DENSE_MATRICES: u64 = 6;

/// The training rows of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct FilterSize {
    /// The number of training rows.
    pub rows: u64,
    /// Numbers per state.
    pub state: u64,
    /// Numbers per observation.
    pub observation: u64,
}

impl ObservationsPlan {
    /// The upper bound of a run over `rows` rows. None if the number of rows, or of the numbers in
    /// a row, is not known.
    pub(crate) fn needs(&self, rows: Option<u64>, threads: usize) -> Option<Shown> {
        let size = FilterSize {
            rows: rows?,
            state: self.state_width()? as u64,
            observation: width(&self.layout.observation)? as u64,
        };
        let workers = threads as u64;
        let fits = self.fits.iter();
        let mut each: Vec<u64> = fits
            .map(|fit| {
                // Fewer training rows may need more: their kernel matrices are held whole.
                let exact = match &fit.method {
                    FilterMethod::KernelBayes(own) => size.rows.min(own.exact as u64),
                    _ => size.rows,
                };
                let exact = FilterSize {
                    rows: exact,
                    ..size
                };
                let all = bytes(&fit.method, size, workers);
                all.max(bytes(&fit.method, exact, workers))
            })
            .collect();
        // Each thread makes a fit of its own, of any partition.
        each.sort_unstable_by(|a, b| b.cmp(a));
        let at_once = if self.layout.partition.is_empty() {
            let largest = each.iter().take(threads);
            largest.fold(0, |sum: u64, bytes| sum.saturating_add(*bytes))
        } else {
            each.first()
                .map_or(0, |largest| largest.saturating_mul(workers))
        };
        let held = size.rows.saturating_mul(numbers(size) * 8);
        let bytes = (own_bytes(threads) + STREAMING).saturating_add(held);
        let bytes = bytes.saturating_add(at_once);
        let errors = if self.errors {
            errors_bytes(self.fits.len(), size.rows)
        } else {
            0
        };
        let bytes = bytes.saturating_add(errors);
        let (of, rows) = (counted(numbers(size), "number"), counted(size.rows, "row"));
        let text = format!("  memory at most {} for {rows} of {of}", shown(bytes));
        let mut json = json!(size);
        json["bytes"] = json!(bytes);
        Some(Shown { text, json })
    }

    /// What a fit to the training rows of one partition lacks within a memory limit.
    pub(crate) fn lacking(
        &self,
        fit: &str,
        method: &FilterMethod,
        size: FilterSize,
        threads: usize,
        limit: Option<usize>,
    ) -> Option<Lack> {
        let held = size.rows.saturating_mul(numbers(size) * 8);
        let bytes = held.saturating_add(bytes(method, size, threads as u64));
        let less = match method {
            FilterMethod::KernelBayes(own) if size.rows <= own.exact as u64 => "or lower `exact`",
            FilterMethod::KernelBayes(_) => {
                "or lower `rank_state`, `rank_observation` or `landmarks`"
            }
            FilterMethod::Kalman(_) => "or write `noise = \"diagonal\"`",
            FilterMethod::Ekf(_) | FilterMethod::Ukf(_) => "or use fewer training rows",
        };
        let rows = counted(size.rows, "training row");
        let evidence = format!("for {rows} of {}", counted(numbers(size), "number"));
        Lack::of(fit, bytes, &evidence, less, threads, limit)
    }
}

/// An upper bound of the bytes of the errors of all steps of fits. There are as many steps as rows
/// of the longest trajectories, which are at most all rows. Errors are held twice: in trajectories
/// and in their sums, then in the sums and in the model.
fn errors_bytes(fits: usize, rows: u64) -> u64 {
    let step = 2 * size_of::<StepErrors>() as u64;
    rows.saturating_mul(step.saturating_mul(fits as u64))
}

/// Numbers per row.
fn numbers(size: FilterSize) -> u64 {
    size.state + size.observation
}

/// An upper bound of the bytes that a fit to one partition holds beside its training rows.
fn bytes(method: &FilterMethod, size: FilterSize, threads: u64) -> u64 {
    let (dy, dx) = (size.state, size.observation);
    let numbers = match method {
        FilterMethod::KernelBayes(own) => kernel_bayes(own, size),
        FilterMethod::Kalman(own) => {
            let noise = match own.noise {
                Noise::Full => dx.saturating_mul(dx).saturating_mul(3),
                Noise::Diagonal => dx,
            };
            noise + 4 * dx * dy + 8 * dy * dy
        }
        FilterMethod::Ekf(_) | FilterMethod::Ukf(_) => {
            let noise = dx.saturating_mul(dx).saturating_mul(3);
            noise.saturating_add(8 * (dy + 1) * (dx + dy))
        }
    };
    // Each thread filters a trajectory in memory of its own.
    let steps = threads.saturating_mul(step(method, size));
    numbers.saturating_add(steps).saturating_mul(8)
}

/// Numbers that a fit of kernel Bayes' rule holds.
fn kernel_bayes(own: &KernelBayes, size: FilterSize) -> u64 {
    let n = size.rows;
    // The training rows of the model.
    let copies = n.saturating_mul(2 * numbers(size) + 1);
    if n <= own.exact as u64 {
        return copies.saturating_add(DENSE_MATRICES.saturating_mul(n).saturating_mul(n));
    }
    let (ry, rx) = ranks(own, n);
    let features = n.saturating_mul(2 * (ry + rx));
    let model = match own.rule {
        // Moment tensors, and their parts by block of rows.
        Rule::Kbr => 2 * ry * (rx * rx + ry * rx + 2 * size.state * rx + rx),
        Rule::Pkbr | Rule::Kregbayes => {
            let landmarks = (own.landmarks as u64).min(n);
            landmarks * (rx + 2 * ry + numbers(size)) + 4 * ry * ry
        }
    };
    copies.saturating_add(features).saturating_add(model)
}

/// Numbers that a step of a filter holds.
fn step(method: &FilterMethod, size: FilterSize) -> u64 {
    let (dy, dx) = (size.state, size.observation);
    match method {
        FilterMethod::KernelBayes(own) if size.rows <= own.exact as u64 => {
            2 * size.rows * size.rows + 8 * size.rows + objective(own, size.rows)
        }
        FilterMethod::KernelBayes(own) => {
            let (ry, rx) = ranks(own, size.rows);
            let landmarks = (own.landmarks as u64).min(size.rows);
            let objective = match own.rule {
                Rule::Kbr => 0,
                Rule::Pkbr | Rule::Kregbayes => objective(own, landmarks),
            };
            4 * rx * rx + 2 * ry * ry + landmarks * (rx + 4) + objective
        }
        // Twice: a filter of the numbers that are there stands beside that of all numbers.
        FilterMethod::Kalman(own) if own.noise == Noise::Diagonal => 8 * (dx + dy) * dy,
        _ => dx.saturating_mul(dx).saturating_mul(6) + 8 * (dx + dy) * dy,
    }
}

/// Numbers that the objective of a row holds, for weights of `rows` training rows.
fn objective(own: &KernelBayes, rows: u64) -> u64 {
    let matrices = match own.rule {
        _ if !own.objective => 0,
        // Complex: the matrix, its factor, and as many columns as rows on both sides of a system.
        Rule::Kbr => 9,
        Rule::Pkbr | Rule::Kregbayes => 4,
    };
    matrices * rows * rows
}

/// The largest ranks of the kernel matrices of states and observations.
fn ranks(own: &KernelBayes, rows: u64) -> (u64, u64) {
    let (ry, rx) = (own.rank_state as u64, own.rank_observation as u64);
    (ry.min(rows), rx.min(rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::filter::params::Kalman;

    fn needed(method: &FilterMethod, rows: u64, observation: u64) -> u64 {
        let state = 2;
        let size = FilterSize {
            rows,
            state,
            observation,
        };
        bytes(method, size, 1)
    }

    #[test]
    fn kernel_matrices_are_held_whole_up_to_exact_rows() {
        let method = |rule| FilterMethod::KernelBayes(KernelBayes::new(rule));
        let (kbr, pkbr) = (method(Rule::Kbr), method(Rule::Pkbr));
        // Six matrices of a fit and two of a step, each of 2,000² numbers.
        let dense = 8 * 8 * 2000 * 2000;
        assert!((dense..dense + 1_000_000).contains(&needed(&pkbr, 2000, 2)));
        assert!(needed(&pkbr, 2001, 2) < dense);
        // Beyond, a row adds two copies of its four numbers, a weight, and its features.
        let row = 8 * (2 * 4 + 1 + 2 * (50 + 200));
        for method in [kbr, pkbr] {
            let more = needed(&method, 1_000_001, 2) - needed(&method, 1_000_000, 2);
            assert_eq!(more, row);
        }
    }

    // A step has a number of rows and two sums.
    #[test]
    fn errors_of_steps_are_held_twice() {
        assert_eq!(errors_bytes(1, 1), 2 * 24);
        assert_eq!(errors_bytes(3, 1_000_000), 144_000_000);
        assert_eq!(errors_bytes(2, u64::MAX), u64::MAX);
    }

    #[test]
    fn noise_of_images_is_diagonal_or_large() {
        let kalman = |noise| {
            FilterMethod::Kalman(Kalman {
                noise,
                ..Kalman::default()
            })
        };
        let full = needed(&kalman(Noise::Full), 100, 10_000);
        let diagonal = needed(&kalman(Noise::Diagonal), 100, 10_000);
        assert!(full > 4_000_000_000 && diagonal < 10_000_000);
    }
}
