//! The sets of an earlier result, and the fits that are compared with them.

use crate::assess::changes::{Comparison, Labelled};
use crate::assess::set_tracking::Ids;
use crate::output::result::ModelKey;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use std::collections::BTreeMap;

/// An earlier result, compared with the fits of a run.
#[derive(Debug, Default)]
pub(crate) struct EarlierSets {
    /// By model and fit of this run. None for a fit that the earlier result does not have.
    pub comparisons: Vec<Vec<Option<Comparison>>>,
    /// The ids of all sets of the earlier result, by model and fit.
    pub ids: BTreeMap<(ModelKey, String), Ids>,
}

/// The key of a model of this run, as [`Written`](crate::output::result::Written) has it.
pub(crate) fn key(names: &RunSchema, model: &FittedModel) -> ModelKey {
    ModelKey {
        lag: names.lag.text(model.counts.lag),
        ..ModelKey::at(&names.partitions, None, model.counts.partition)
    }
}

/// The sets of fit `fit` of a model, to be compared.
pub(crate) fn labelled(model: &FittedModel, fit: usize) -> Labelled<'_> {
    let fit = &model.fits[fit].model;
    Labelled {
        rank: fit.rank,
        affiliation: &fit.sources.affiliation,
        amount: &model.source_total,
        unit: model.counts.exponent,
        embedding: &fit.sources.embedding,
    }
}
