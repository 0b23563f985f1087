//! Models that cannot be fitted.
//!
//! One rule for all kinds of rows: a model that cannot be fitted is recorded with its place, the
//! others go on, and the exit code is 1.

use crate::error::{Error, Kind, Result};
use crate::plan::pipeline::keys::Empty;
use crate::run::record::Failure;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The error of a partition or lag without evidence. `what` says which evidence.
pub(crate) fn no_evidence(empty: Empty, what: &str) -> Error {
    Error::input(match empty {
        Empty::Fail => format!("{what}; `empty = \"skip\"` leaves such partitions out"),
        Empty::Skip => what.to_string(),
    })
}

/// The rows that were dropped, by reason, as the end of a message about the number of rows.
pub(crate) fn reasons(dropped: &BTreeMap<Cow<'static, str>, u64>) -> String {
    let reasons = dropped.iter();
    let reasons = reasons.map(|(reason, rows)| format!(", {rows} dropped for {reason}"));
    reasons.collect()
}

/// The models of a run that could not be fitted: their places and errors.
#[derive(Default)]
pub(crate) struct Failures(Vec<(String, Error)>);

impl Failures {
    /// The model of a place. None if it could not be fitted.
    ///
    /// # Errors
    /// Those that are not about one model: a certificate that does not hold, a stop, or a store
    /// that fails.
    pub(crate) fn take<T>(&mut self, place: String, model: Result<T>) -> Result<Option<T>> {
        let e = match model {
            Ok(model) => return Ok(Some(model)),
            Err(e) => e,
        };
        match e.kind() {
            Kind::Check | Kind::Cancelled | Kind::Store | Kind::Conflict if place.is_empty() => {
                Err(e)
            }
            Kind::Check | Kind::Cancelled | Kind::Store | Kind::Conflict => Err(e.at(place)),
            Kind::Spec | Kind::Input | Kind::Resources | Kind::Bug => {
                self.0.push((place, e));
                Ok(None)
            }
        }
    }

    /// The places of the models that have failed.
    pub(crate) fn places(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(place, _)| place.as_str())
    }

    /// Whether no model has failed.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records and logs the failures of a run with this number of models. `empty` is the number of
    /// models that are left out because they have no evidence.
    ///
    /// # Errors
    /// If there is no model: the error of the first failure.
    pub(crate) fn finish(
        self,
        models: usize,
        empty: usize,
        record: &mut Vec<Failure>,
    ) -> Result<()> {
        let is_one_of_several = models + empty + self.0.len() > 1;
        for (at, (partition, e)) in self.0.iter().enumerate() {
            let message = e.full();
            // The first failure of a run without models is the error of the run.
            if models > 0 || at > 0 {
                tracing::error!(partition, "{message}");
            }
            record.push(Failure {
                partition: partition.clone(),
                message,
            });
        }
        if models > 0 {
            return Ok(());
        }
        let first = self.0.into_iter().next();
        let (place, e) = first.ok_or_else(|| Error::bug("there was nothing to fit"))?;
        Err(if is_one_of_several { e.at(place) } else { e })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_one_model_are_failures_and_others_end_the_run() {
        let of_one = [Kind::Spec, Kind::Input, Kind::Resources, Kind::Bug];
        for kind in of_one {
            let mut failures = Failures::default();
            let failed = failures.take("k=a".into(), Err::<(), _>(Error::new(kind, "no")));
            assert!(matches!(failed, Ok(None)), "{kind:?}");
            let fitted = failures.take("k=b".into(), Ok(7));
            assert!(matches!(fitted, Ok(Some(7))));
            let mut record = Vec::new();
            assert!(failures.finish(1, 0, &mut record).is_ok());
            assert_eq!(record.len(), 1);
            assert_eq!((&*record[0].partition, &*record[0].message), ("k=a", "no"));
        }
        for kind in [Kind::Check, Kind::Cancelled, Kind::Store, Kind::Conflict] {
            let ended =
                Failures::default().take("k=a".into(), Err::<(), _>(Error::new(kind, "no")));
            let e = ended.expect_err("the run ends");
            assert_eq!((e.kind(), e.full().as_str()), (kind, "k=a: no"));
        }
    }

    #[test]
    fn a_run_without_models_has_the_first_error_with_its_place() {
        for (empty, message) in [(0, "one"), (1, "k=a: one")] {
            let mut failures = Failures::default();
            let failed = failures.take("k=a".into(), Err::<(), _>(Error::input("one")));
            failed.expect("a failure");
            let mut record = Vec::new();
            let ended = failures.finish(0, empty, &mut record);
            assert_eq!(ended.expect_err("no model").full(), message);
            assert_eq!(record.len(), 1);
        }
    }
}
