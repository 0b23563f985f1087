//! Lineages → the tables `sets` and `changes`.

use crate::assess::changes::Changes;
use crate::assess::lineage::{Lineage, Set};
use crate::output::tables::columns::{amounts, beside, text};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use arrow::array::{
    ArrayRef, Float64Array, Int32Array, ListArray, StringArray, UInt32Array, UInt64Array,
};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field};
use std::sync::Arc;

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, false)))
}

/// The columns of `sets` after the keys `fit` and `set_id`.
pub fn set_fields(count: DataType) -> Vec<Field> {
    use DataType::{Float64, Int32, UInt32, UInt64, Utf8};
    vec![
        Field::new("latent", Int32, true),
        Field::new("n_sources", UInt64, false),
        Field::new("count", count.clone(), false),
        Field::new("probability", Float64, false),
        Field::new("compared_with", Utf8, true),
        Field::new("event", Utf8, true),
        Field::new("previous_latent", Int32, true),
        Field::new("previous_n_sources", UInt64, true),
        Field::new("previous_count", count, true),
        Field::new("overlap", Float64, true),
        Field::new("parents", list(UInt32), false),
    ]
}

/// The columns of `changes` after the key `fit`.
pub fn change_fields() -> Vec<Field> {
    use DataType::{Float64, UInt32, UInt64, Utf8};
    let mut fields = vec![
        Field::new("next_id", UInt32, false),
        Field::new("compared_with", Utf8, true),
    ];
    let states = STATES.iter();
    fields.extend(states.map(|(name, _)| Field::new(*name, UInt64, true)));
    let numbers = NUMBERS.iter();
    fields.extend(numbers.map(|(name, _)| Field::new(*name, Float64, true)));
    fields.push(Field::new("principal_angles", list(Float64), true));
    fields
}

type Column<T> = (&'static str, fn(&Changes) -> T);

const STATES: [Column<u64>; 4] = [
    ("shared_states", |c| c.shared_states),
    ("new_states", |c| c.new_states),
    ("gone_states", |c| c.gone_states),
    ("changed_states", |c| c.changed_states),
];

const NUMBERS: [Column<Option<f64>>; 5] = [
    ("new_share", |c| Some(c.new_share)),
    ("gone_share", |c| Some(c.gone_share)),
    ("changed_share", |c| Some(c.changed_share)),
    ("adjusted_rand", |c| c.adjusted_rand),
    ("variation_of_information", |c| c.variation_of_information),
];

pub fn sets(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = beside(names, &model.lineage);
    let rows: Vec<(&str, &Lineage, &Set)> = fits
        .iter()
        .flat_map(|(c, lineage)| {
            let sets = lineage.sets.iter();
            sets.map(|set| (c.name.as_str(), *lineage, set))
        })
        .collect();
    let sets = || rows.iter().map(|(.., set)| *set);
    let previous = || sets().map(|set| set.previous);
    let parents = UInt32Array::from_iter_values(sets().flat_map(|s| s.parents.iter().copied()));
    vec![
        text(rows.iter().map(|(fit, ..)| *fit)),
        Arc::new(UInt32Array::from_iter_values(sets().map(|s| s.id))),
        Arc::new(Int32Array::from_iter(
            sets().map(|s| s.number.map(|n| n as i32)),
        )),
        Arc::new(UInt64Array::from_iter_values(sets().map(|s| s.states))),
        amounts(names, sets().map(|s| Some(s.count))),
        Arc::new(Float64Array::from_iter_values(
            sets().map(|s| s.probability),
        )),
        compared_with(rows.iter().map(|(_, lineage, _)| *lineage)),
        Arc::new(StringArray::from_iter(
            sets().map(|s| s.event.map(|e| e.name())),
        )),
        Arc::new(Int32Array::from_iter(
            previous().map(|p| p.map(|p| p.number as i32)),
        )),
        Arc::new(UInt64Array::from_iter(
            previous().map(|p| p.map(|p| p.states)),
        )),
        amounts(names, previous().map(|p| p.map(|p| p.count))),
        Arc::new(Float64Array::from_iter(
            previous().map(|p| p.and_then(|p| p.overlap)),
        )),
        Arc::new(ListArray::new(
            Arc::new(Field::new("item", DataType::UInt32, false)),
            OffsetBuffer::from_lengths(sets().map(|s| s.parents.len())),
            Arc::new(parents),
            None,
        )),
    ]
}

fn compared_with<'a>(lineages: impl Iterator<Item = &'a Lineage>) -> ArrayRef {
    let shown = lineages.map(|l| l.compared_with.as_ref().map(ToString::to_string));
    Arc::new(StringArray::from_iter(shown))
}

pub fn changes(names: &RunSchema, model: &FittedModel) -> Vec<ArrayRef> {
    let fits = beside(names, &model.lineage);
    let changes = || fits.iter().map(|(_, lineage)| lineage.changes.as_ref());
    let next_id = |(_, lineage): &(_, &Lineage)| lineage.next_id;
    let mut columns: Vec<ArrayRef> = vec![
        text(fits.iter().map(|(c, _)| c.name.as_str())),
        Arc::new(UInt32Array::from_iter_values(fits.iter().map(next_id))),
        compared_with(fits.iter().map(|(_, lineage)| *lineage)),
    ];
    for (_, get) in STATES {
        columns.push(Arc::new(UInt64Array::from_iter(
            changes().map(|c| c.map(get)),
        )));
    }
    for (_, get) in NUMBERS {
        columns.push(Arc::new(Float64Array::from_iter(
            changes().map(|c| c.and_then(get)),
        )));
    }
    let angles = |c: Option<&Changes>| c.map_or(&[][..], |c| &c.principal_angles).to_vec();
    let lists: Vec<Vec<f64>> = changes().map(angles).collect();
    let known = changes().map(|c| c.is_some()).collect::<Vec<_>>();
    columns.push(Arc::new(ListArray::new(
        Arc::new(Field::new("item", DataType::Float64, false)),
        OffsetBuffer::from_lengths(lists.iter().map(Vec::len)),
        Arc::new(Float64Array::from(lists.concat())),
        Some(known.into()),
    )));
    columns
}
