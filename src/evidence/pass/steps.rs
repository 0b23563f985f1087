//! Seconds of the steps of a fit. The fit itself reads no clock.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// The steps of a fit and when they began.
#[derive(Debug, Default)]
pub(crate) struct Steps(Mutex<Vec<(&'static str, Instant)>>);

impl Steps {
    /// Ends the step before, if there is one, and begins a step.
    pub(crate) fn begin(&self, name: &'static str) {
        let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        begun.push((name, Instant::now()));
    }

    /// Seconds per step; the last step ends now.
    pub(crate) fn seconds(self) -> BTreeMap<&'static str, f64> {
        let mut begun = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        begun.push(("", Instant::now()));
        let mut seconds = BTreeMap::new();
        for pair in begun.windows(2) {
            let ((step, begin), (_, end)) = (pair[0], pair[1]);
            *seconds.entry(step).or_default() += (end - begin).as_secs_f64();
        }
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_has_its_time() {
        let start = Instant::now();
        let steps = Steps::default();
        for step in ["decompose", "score", "decompose"] {
            steps.begin(step);
        }
        let seconds = steps.seconds();
        assert_eq!(seconds.keys().collect::<Vec<_>>(), [&"decompose", &"score"]);
        assert!(seconds.values().sum::<f64>() <= start.elapsed().as_secs_f64());
    }
}
