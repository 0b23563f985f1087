//! A runner that takes the time of the steps of a fit, because a fit itself knows no clock.

use crate::evidence::counts::csr::Csr;
use crate::evidence::pass::Runner;
use crate::evidence::pass::kernel::Kernel;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Runs passes as `inner` does.
pub struct Timed<'a, R> {
    inner: &'a R,
    begun: Mutex<Vec<(&'static str, Instant)>>,
}

impl<'a, R: Runner> Timed<'a, R> {
    pub fn new(inner: &'a R) -> Self {
        Timed {
            inner,
            begun: Mutex::default(),
        }
    }

    /// Seconds of each step; the last ends now.
    pub fn seconds(self) -> BTreeMap<&'static str, f64> {
        let mut begun = self
            .begun
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        begun.push(("", Instant::now()));
        let mut seconds = BTreeMap::new();
        for pair in begun.windows(2) {
            let ((step, begin), (_, end)) = (pair[0], pair[1]);
            *seconds.entry(step).or_default() += (end - begin).as_secs_f64();
        }
        seconds
    }
}

impl<R: Runner> Runner for Timed<'_, R> {
    fn step(&self, name: &'static str) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        begun.push((name, Instant::now()));
    }

    fn rows<K: Kernel>(&self, shards: &[Csr], kernel: &K, out: &mut [K::Cell]) {
        self.inner.rows(shards, kernel, out);
    }

    fn side_by_side(&self) -> usize {
        self.inner.side_by_side()
    }

    fn times<T: Send>(&self, times: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        self.inner.times(times, work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::pass::local::Local;

    #[test]
    fn every_step_has_its_time() {
        let start = Instant::now();
        let timed = Timed::new(&Local);
        for step in ["decompose", "score", "decompose"] {
            timed.step(step);
        }
        let seconds = timed.seconds();
        assert_eq!(seconds.keys().collect::<Vec<_>>(), [&"decompose", &"score"]);
        assert!(seconds.values().sum::<f64>() <= start.elapsed().as_secs_f64());
    }
}
