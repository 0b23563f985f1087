//! Partitions and lags without evidence, which have no model.

use crate::error::{Kind, Result, counted};
use crate::evidence::lag::Lag;
use crate::output::result::{ModelKey, Written};
use crate::plan::kind::KindPlan;
use crate::run::kind::{EvidenceKind, Facts, Running};
use crate::run::record::EmptyRecord;
use std::collections::BTreeSet;

/// Warns of partitions and lags without evidence that have a model in the current result.
///
/// # Errors
/// If a store fails.
pub(crate) async fn warn<K: EvidenceKind>(
    run: &Running<'_, K>,
    all: &mut [EmptyRecord],
) -> Result<()> {
    let Some(current) = run.begun.earlier().filter(|_| !all.is_empty()) else {
        return Ok(());
    };
    let keys = async {
        match Written::of_kind(K::NAME, run.output, current.clone()).await? {
            Some(written) => written.keys().await,
            None => Ok(Vec::new()),
        }
    };
    let earlier: BTreeSet<ModelKey> = match keys.await {
        Ok(keys) => keys.into_iter().collect(),
        // The run makes a result that cannot be read anew.
        Err(e) if e.kind() == Kind::Input => return Ok(()),
        Err(e) => return Err(e),
    };
    for empty in all.iter_mut().filter(|empty| earlier.contains(&empty.key)) {
        empty.had_model = true;
        tracing::warn!(
            partition = empty.partition,
            "there is no {}, but the current result has a model",
            K::Facts::UNIT
        );
    }
    Ok(())
}

/// Warns that a gap may have left partitions and lags without evidence. `n` is their number.
pub(crate) fn warn_of_gaps<K: EvidenceKind>(run: &Running<'_, K>, n: usize) -> Option<String> {
    let gap = run.plan.times().max_gap.filter(|_| n > 0)?;
    // Two rows that are a time apart are in one part of a trajectory if no gap is as long.
    let may_divide = |lag: &Lag| matches!(lag, Lag::Steps(_)) || gap.is_shorter_than(lag);
    let lags = run.plan.lags();
    if !lags.is_empty() && !lags.iter().any(may_divide) {
        return None;
    }
    let (models, unit) = (counted(n, "model"), K::Facts::UNIT);
    let warning = format!(
        "{models} without a {unit}: `max_gap` = {gap} may be less than the times between rows"
    );
    tracing::warn!("{warning}");
    Some(warning)
}
