//! Partitions and lags without evidence, which have no model.

use crate::error::{Kind, Result};
use crate::output::result::{ModelKey, Written};
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
