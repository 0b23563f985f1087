//! The table `ranks`: one row per rank of a fit, where ranks are compared.

use crate::assess::crossval::Validation;
use crate::output::tables::columns::{Columns, TableColumns};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;

/// What folds say of a rank.
const VALIDATION: [(&str, fn(&Validation) -> f64); 5] = [
    // Log-likelihood of held-out transitions, nats per transition.
    ("held_out", |v| v.log_likelihood.mean),
    ("held_out_error", |v| v.log_likelihood.error),
    // The share of held-out transitions that the likelihood leaves out.
    ("held_out_unseen", |v| v.unseen),
    ("vamp_2", |v| v.vamp_2.mean),
    ("vamp_2_error", |v| v.vamp_2.error),
];

pub(crate) fn ranks<'a>(_: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    Columns::of(|model: &'a FittedModel| model.ranks.iter().collect())
        .key("fit", |r| r.fit.as_str())
        .key("rank", |r| r.criteria.rank as u32)
        // σ_r(P̃) and σ_{r+1}(P̃), where they were computed.
        .column("singular_value", |r| r.criteria.singular_value)
        .column("next_singular_value", |r| r.criteria.next_singular_value)
        .column("gap", |r| r.criteria.gap())
        .column("gap_ratio", |r| r.criteria.ratio())
        .column("log_likelihood", |r| r.criteria.log_likelihood)
        .column("aic", |r| r.criteria.aic)
        .column("bic", |r| r.criteria.bic)
        .column("coherence", |r| r.criteria.coherence)
        .column("coherence_lower_bound", |r| {
            r.criteria.coherence_lower_bound
        })
        .column("objective", |r| r.criteria.objective)
        // Free parameters of the model.
        .column("parameters", |r| r.criteria.parameters as u64)
        .column("empty_states", |r| r.criteria.empty_states as u32)
        .column("crispness", |r| r.criteria.crispness)
        // The mean adjusted Rand index between resamples.
        .column("stability", |r| r.criteria.stability)
        // 0 without a cross-validation.
        .column("folds", |r| {
            r.criteria.validation.map_or(0, |v| v.folds as u32)
        })
        .each(VALIDATION, |score, r| {
            r.criteria.validation.as_ref().map(score)
        })
        .column("is_chosen", |r| r.reason.is_some())
        // Why the rank was chosen.
        .column("reason", |r| r.reason.as_deref())
        .finish()
}
