//! Pure numerics on slices: no I/O, no async, no clock, no environment. A shape mismatch is a bug
//! of the caller and panics.

pub(crate) mod angles;
pub mod arnoldi;
pub(crate) mod components;
pub mod dense;
pub(crate) mod exact;
pub(crate) mod krylov;
pub mod lanczos;
pub(crate) mod matching;
pub(crate) mod matrix;
pub(crate) mod portable;
pub(crate) mod scale;
pub mod schur;
pub(crate) mod seed;
pub(crate) mod sum;

/// What unit tests of several rooms need.
#[cfg(test)]
pub(crate) mod testing {
    /// Numbers are equal or differ by less than the tolerance.
    #[track_caller]
    pub(crate) fn close(found: &[f64], expected: &[f64], tolerance: f64) {
        assert_eq!(found.len(), expected.len());
        for (a, b) in found.iter().zip(expected) {
            let near = a == b || (a - b).abs() < tolerance;
            assert!(near, "{found:?} is not {expected:?}");
        }
    }

    /// A message has a part.
    #[track_caller]
    pub(crate) fn says(message: impl ToString, part: &str) {
        let message = message.to_string();
        assert!(message.contains(part), "{message}");
    }

    /// The cases of a text: one per line, as `query => what is expected`.
    pub(crate) fn cases(text: &str) -> impl Iterator<Item = (&str, &str)> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.map(|line| line.split_once(" => ").expect(line))
    }

    /// Runs on a pool of this number of threads.
    pub(crate) fn on_threads<T: Send>(threads: usize, run: impl FnOnce() -> T + Send) -> T {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.expect("a pool").install(run)
    }
}
