//! Fits of several ranks → the rows of the table `ranks`.

use crate::assess::crossval::Validation;
use crate::assess::ranks::{Criteria, RankRow};
use crate::output::tables::columns::text;
use crate::output::tables::fitted_model::FittedModel;
use arrow::array::{ArrayRef, BooleanArray, Float64Array, StringArray, UInt32Array, UInt64Array};
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;

type Spectral = (&'static str, fn(&Criteria) -> Option<f64>);

/// What the singular values of P̃ say of a rank, where they were computed.
const SPECTRAL: [Spectral; 4] = [
    ("singular_value", |c| c.singular_value),
    ("next_singular_value", |c| c.next_singular_value),
    ("gap", Criteria::gap),
    ("gap_ratio", Criteria::ratio),
];

type Criterion = (&'static str, fn(&Criteria) -> f64);

/// What compares ranks, in the order of the `ranks` table.
const CRITERIA: [Criterion; 6] = [
    ("log_likelihood", |c| c.log_likelihood),
    ("aic", |c| c.aic),
    ("bic", |c| c.bic),
    ("coherence", |c| c.coherence),
    ("coherence_lower_bound", |c| c.coherence_lower_bound),
    ("objective", |c| c.objective),
];

type Scored = (&'static str, fn(&Validation) -> f64);

/// What folds say of a rank, in the order of the `ranks` table.
const VALIDATION: [Scored; 5] = [
    ("held_out", |v| v.log_likelihood.mean),
    ("held_out_error", |v| v.log_likelihood.error),
    ("held_out_unseen", |v| v.unseen),
    ("vamp_2", |v| v.vamp_2.mean),
    ("vamp_2_error", |v| v.vamp_2.error),
];

/// The columns after the keys `fit` and `rank`.
pub(crate) fn fields() -> Vec<Field> {
    use DataType::{Boolean, Float64, UInt32, UInt64, Utf8};
    let mut fields = Vec::new();
    let spectral = SPECTRAL.iter();
    fields.extend(spectral.map(|(name, _)| Field::new(*name, Float64, true)));
    let criteria = CRITERIA.iter();
    fields.extend(criteria.map(|(name, _)| Field::new(*name, Float64, false)));
    fields.extend([
        Field::new("parameters", UInt64, false),
        Field::new("empty_states", UInt32, false),
        Field::new("crispness", Float64, true),
        Field::new("stability", Float64, true),
        Field::new("folds", UInt32, false),
    ]);
    let scored = VALIDATION.iter();
    fields.extend(scored.map(|(name, _)| Field::new(*name, Float64, true)));
    fields.extend([
        Field::new("is_chosen", Boolean, false),
        Field::new("reason", Utf8, true),
    ]);
    fields
}

pub(crate) fn columns(model: &FittedModel) -> Vec<ArrayRef> {
    let ranks = &model.ranks;
    let u32s = |get: fn(&RankRow) -> usize| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(
            ranks.iter().map(|r| get(r) as u32),
        ))
    };
    let mut columns: Vec<ArrayRef> = vec![
        text(ranks.iter().map(|r| r.fit.as_str())),
        u32s(|r| r.criteria.rank),
    ];
    for (_, spectral) in SPECTRAL {
        let values = ranks.iter();
        columns.push(Arc::new(
            values
                .map(|r| spectral(&r.criteria))
                .collect::<Float64Array>(),
        ));
    }
    for (_, criterion) in CRITERIA {
        columns.push(Arc::new(Float64Array::from_iter_values(
            ranks.iter().map(|r| criterion(&r.criteria)),
        )));
    }
    columns.push(Arc::new(UInt64Array::from_iter_values(
        ranks.iter().map(|r| r.criteria.parameters as u64),
    )));
    columns.push(u32s(|r| r.criteria.empty_states));
    let optional: [fn(&Criteria) -> Option<f64>; 2] = [|c| c.crispness, |c| c.stability];
    for number in optional {
        let numbers = ranks.iter().map(|r| number(&r.criteria));
        columns.push(Arc::new(numbers.collect::<Float64Array>()));
    }
    columns.push(u32s(|r| r.criteria.validation.map_or(0, |v| v.folds)));
    for (_, score) in VALIDATION {
        let scores = ranks.iter();
        columns.push(Arc::new(
            scores
                .map(|r| r.criteria.validation.as_ref().map(score))
                .collect::<Float64Array>(),
        ));
    }
    columns.push(Arc::new(BooleanArray::from_iter(
        ranks.iter().map(|r| Some(r.reason.is_some())),
    )));
    columns.push(Arc::new(
        ranks
            .iter()
            .map(|r| r.reason.as_deref())
            .collect::<StringArray>(),
    ));
    columns
}
