//! Collects the fits of a run, and gives their sets the names that they had.

use crate::error::Result;
use crate::output::checkpoint::Checkpoint;
use crate::output::result::ModelKey;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::counts::CountsPlan;
use crate::read::rows::states::describe;
use crate::run::counts::kind::{CountsKind, Shared};
use crate::run::counts::model::{ModelResult, place_of};
use crate::run::counts::record::Facts;
use crate::run::failures::Failures;
use crate::run::kind::{Fitted, Running};
use crate::run::record::{EmptyRecord, Resumed, ResumedFits};
use crate::run::sets::{self, Naming};
use arrow::array::ArrayRef;
use std::collections::BTreeSet;

/// Collects the results of all partitions and lags. `empty` has the partition and the lag of
/// models without a transition.
///
/// # Errors
/// Those that are not about one model.
pub(crate) fn collect(
    plan: &CountsPlan,
    names: RunSchema,
    labels: &[ArrayRef],
    results: Vec<ModelResult>,
    empty: Vec<(usize, usize)>,
) -> Result<Fitted<CountsKind>> {
    let (mut models, mut timings) = (Vec::new(), Vec::new());
    let mut failures = Failures::default();
    for result in results {
        let (place, fitted) = match result {
            Ok(fitted) => (String::new(), Ok(fitted)),
            Err((place, e)) => (place, Err(e)),
        };
        if let Some((model, own)) = failures.take(place, fitted)? {
            models.push(model);
            timings.push(own);
        }
    }
    let empty = empty.into_iter().map(|(partition, lag)| EmptyRecord {
        partition: place_of(&names, partition, lag),
        had_model: false,
        key: ModelKey {
            lag: names.lag.text(lag),
            ..ModelKey::at(&names.partitions, None, partition)
        },
    });
    let labels = plan.layout.given.iter().zip(labels).map(|(field, labels)| {
        let labels = (0..labels.len())
            .map(|at| describe(std::slice::from_ref(labels), at))
            .collect();
        (field.name().clone(), labels)
    });
    let facts = Facts {
        transitions: 0.0,
        labels: labels.collect(),
    };
    let empty = empty.collect();
    let shared = Shared {
        names,
        timings,
        reuse_sets: false,
        matrices: None,
    };
    Ok(Fitted {
        empty,
        failures,
        ..Fitted::new(models, shared, facts)
    })
}

/// Gives the sets the names that they have in the earlier result.
///
/// # Errors
/// If the earlier result has other states, or a store fails.
pub(super) async fn keep_names(
    run: &Running<'_, CountsKind>,
    fitted: &mut Fitted<CountsKind>,
) -> Result<()> {
    if fitted.models.is_empty() {
        return Ok(());
    }
    let (plan, output, replaced) = (run.plan, run.output, run.begun.earlier());
    let is_whole = fitted.failures.is_empty();
    let (names, models) = (&fitted.shared.names, &mut fitted.models);
    let Naming { reuse_sets, gone } =
        sets::keep(plan, output, replaced, names, models, is_whole).await?;
    // Failed models and models without a transition have records of their own.
    let reported: BTreeSet<&str> = fitted
        .failures
        .places()
        .chain(fitted.empty.iter().map(|empty| empty.partition.as_str()))
        .collect();
    let gone = gone.into_iter();
    fitted.gone = gone
        .filter(|place| !reported.contains(place.as_str()))
        .collect();
    fitted.shared.reuse_sets = reuse_sets;
    Ok(())
}

/// The work of earlier runs that a run has reused.
pub(super) fn resumed(work: &Checkpoint, fitted: &Fitted<CountsKind>) -> Option<Resumed> {
    let fits = || {
        let models = fitted.shared.timings.iter();
        let fits = models.flat_map(|model| model.fits.iter().chain(&model.embeddings));
        fits.map(|fit| fit.resumed)
    };
    let counted = fitted.resumed.as_ref().is_some_and(|own| own.counted);
    let fits = ResumedFits {
        fits: fits().filter(|is_resumed| *is_resumed).count(),
        of: fits().count(),
    };
    let resumed = Resumed::pieces(work, counted)?;
    Some(Resumed {
        fits: Some(fits),
        ..resumed
    })
}
