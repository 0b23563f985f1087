//! Rows of the tables `fits`, `restarts` and `spectrum`.

use crate::assess::bootstrap::Metric;
use crate::assess::certificates::certified;
use crate::methods::fit::Fit;
use crate::output::tables::columns::{amounts, beside, by_name, text};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use arrow::array::{
    ArrayRef, BooleanArray, Float64Array, ListArray, StringArray, UInt32Array, UInt64Array,
    new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;

/// Metrics that every fit has, in the order of the `fits` table (coherence §4-7).
pub const METRICS: [Metric; 16] = [
    ("log_likelihood", |f| f.metrics.log_likelihood),
    ("reference_log_likelihood", |f| {
        f.metrics.reference_log_likelihood
    }),
    ("kullback_leibler", |f| f.metrics.kullback_leibler),
    ("frobenius_p", |f| f.metrics.frobenius_p),
    ("frobenius_lambda", |f| f.metrics.frobenius_lambda),
    ("frobenius_error", |f| f.metrics.frobenius_error),
    ("kappa", |f| f.metrics.kappa),
    ("kappa_1", |f| f.metrics.kappa_1),
    ("kappa_2", |f| f.metrics.kappa_2),
    ("bound", |f| f.metrics.bound),
    ("coherence", |f| f.metrics.coherence),
    ("coherence_lower_bound", |f| f.metrics.coherence_lower_bound),
    ("objective", |f| f.metrics.objective),
    ("mutual_information", |f| f.metrics.mutual_information),
    ("reference_information", |f| f.metrics.reference_information),
    ("lambda_p_residual", |f| f.metrics.lambda_p_residual),
];

pub(crate) fn fits(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = by_name(names, model);
    let n = fits.len();
    let u32s = |get: &dyn Fn(&Fit) -> usize| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(
            fits.iter().map(|(_, f)| get(f) as u32),
        ))
    };
    let u64s = |get: &dyn Fn(&Fit) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(
            fits.iter().map(|(_, f)| get(f)),
        ))
    };
    let mut columns: Vec<ArrayRef> = vec![
        text(fits.iter().map(|(c, _)| c.name.as_str())),
        text(fits.iter().map(|(c, _)| c.method)),
        u32s(&|f| f.rank),
        u64s(&|f| f.sources.affiliation.len() as u64),
        u64s(&|f| f.targets.affiliation.len() as u64),
        Arc::new(UInt64Array::from(vec![model.nonzeros as u64; n])),
        amounts(names, std::iter::repeat_n(model.total, n)),
        match &model.counts.left_out {
            Some(left_out) => Arc::new(UInt64Array::from(vec![left_out.states as u64; n])),
            None => new_null_array(&DataType::UInt64, n),
        },
        match &model.counts.left_out {
            Some(left_out) => amounts(names, std::iter::repeat_n(left_out.transitions, n)),
            None => new_null_array(&names.count_type(), n),
        },
        u64s(&|f| f.seed),
        u32s(&|f| f.restarts.len()),
        u32s(&|f| f.best_restart),
        u64s(&|f| f.iterations as u64),
        Arc::new(BooleanArray::from_iter(
            fits.iter().map(|(_, f)| Some(f.converged)),
        )),
        Arc::new(BooleanArray::from_iter(
            beside(names, &model.certificates)
                .into_iter()
                .map(|(_, c)| Some(certified(c))),
        )),
        u32s(&|f| f.metrics.empty_states),
    ];
    for (_, metric) in METRICS {
        columns.push(Arc::new(Float64Array::from_iter_values(
            fits.iter().map(|(_, f)| metric(f)),
        )));
    }
    columns.push(Arc::new(
        fits.iter()
            .map(|(_, f)| f.metrics.coherence_p)
            .collect::<Float64Array>(),
    ));
    columns.push(Arc::new(
        fits.iter()
            .map(|(_, f)| f.metrics.crispness)
            .collect::<Float64Array>(),
    ));
    let sizes = |get: &dyn Fn(&Fit) -> Vec<u64>| -> ArrayRef {
        let lists: Vec<Vec<u64>> = fits.iter().map(|(_, f)| get(f)).collect();
        let item = Arc::new(Field::new("item", DataType::UInt64, false));
        let values = Arc::new(UInt64Array::from_iter_values(
            lists.iter().flatten().copied(),
        ));
        Arc::new(ListArray::new(
            item,
            OffsetBuffer::from_lengths(lists.iter().map(Vec::len)),
            values,
            None,
        ))
    };
    columns.push(sizes(&|f| {
        f.metrics.source_sizes.iter().map(|&s| s as u64).collect()
    }));
    columns.push(sizes(&|f| {
        f.metrics.target_sizes.iter().map(|&s| s as u64).collect()
    }));
    let weights = Arc::new(Float64Array::from_iter_values(
        fits.iter()
            .flat_map(|(_, f)| f.metrics.weights.iter().copied()),
    ));
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    let lengths = OffsetBuffer::from_lengths(fits.iter().map(|(_, f)| f.metrics.weights.len()));
    columns.push(Arc::new(ListArray::new(item, lengths, weights, None)));
    columns
}

pub(crate) fn restarts(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = by_name(names, model);
    let rows = || {
        fits.iter().flat_map(|(c, f)| {
            f.restarts
                .iter()
                .enumerate()
                .map(move |(at, r)| (*c, *f, at, r))
        })
    };
    vec![
        text(rows().map(|(c, ..)| c.name.as_str())),
        Arc::new(UInt32Array::from_iter_values(
            rows().map(|(_, _, at, _)| at as u32),
        )),
        Arc::new(UInt64Array::from_iter_values(rows().map(|(.., r)| r.seed))),
        Arc::new(
            rows()
                .map(|(.., r)| r.init.as_deref())
                .collect::<StringArray>(),
        ),
        Arc::new(UInt64Array::from_iter_values(
            rows().map(|(.., r)| r.sources as u64),
        )),
        Arc::new(UInt64Array::from_iter_values(
            rows().map(|(.., r)| r.iterations as u64),
        )),
        Arc::new(rows().map(|(.., r)| r.evaluations).collect::<UInt64Array>()),
        Arc::new(Float64Array::from_iter_values(
            rows().map(|(.., r)| r.objective),
        )),
        Arc::new(UInt32Array::from_iter_values(
            rows().map(|(.., r)| r.empty_states as u32),
        )),
        Arc::new(BooleanArray::from_iter(
            rows().map(|(.., r)| Some(r.converged)),
        )),
        Arc::new(BooleanArray::from_iter(
            rows().map(|(_, f, at, _)| Some(at == f.best_restart)),
        )),
    ]
}

pub(crate) fn spectrum(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = by_name(names, model);
    let rows = || {
        fits.iter().flat_map(|(c, f)| {
            f.spectrum
                .iter()
                .enumerate()
                .map(move |(at, s)| (*c, at, s))
        })
    };
    vec![
        text(rows().map(|(c, ..)| c.name.as_str())),
        Arc::new(UInt32Array::from_iter_values(
            rows().map(|(_, at, _)| at as u32),
        )),
        Arc::new(Float64Array::from_iter_values(
            rows().map(|(.., s)| s.value),
        )),
        Arc::new(rows().map(|(.., s)| s.residual).collect::<Float64Array>()),
        Arc::new(
            rows()
                .map(|(.., s)| s.eigenvalue.map(|[real, _]| real))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            rows()
                .map(|(.., s)| s.eigenvalue.map(|[_, imaginary]| imaginary))
                .collect::<Float64Array>(),
        ),
    ]
}
