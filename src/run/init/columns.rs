//! The columns of a table: their types and first values, with those of objects and with times that
//! are texts or numbers.

use crate::error::{Error, Kind, Result};
use crate::read::formats::column_type::ColumnType;
use crate::read::rows::keys::NONE;
use crate::run::init::clocks::{self, FoundTimes, TimeReading};
use crate::run::init::literals::sql;
use crate::run::init::names::is_time;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, TimeUnit};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// How deep objects in objects become columns.
const DEPTH: usize = 4;

/// The largest number of columns of a survey.
pub(crate) const COLUMNS: usize = 500;

/// What the values of a column are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ValueKind {
    /// Whole numbers.
    Integer,
    /// Other numbers.
    Float,
    /// Dates or timestamps.
    Time,
    /// True or false.
    Boolean,
    Text,
    /// Anything else.
    Other,
}

/// A column and its first values.
#[derive(Debug, Clone)]
pub(crate) struct SurveyColumn {
    /// The name in the table.
    pub name: String,
    /// The type as SQL shows it.
    pub data_type: String,
    /// What its values are.
    pub kind: ValueKind,
    /// For every row the number of its value, or `NONE` for null. Empty for `Other`.
    pub ids: Vec<u32>,
    /// The values as texts, by their numbers.
    pub values: Vec<String>,
    /// For every row the value as a number, microseconds for times. Empty without numbers.
    pub numbers: Vec<f64>,
    /// The column in SQL, if it is none of the table but a part of one.
    pub expression: Option<String>,
    /// How the times are read, if the values are texts or numbers.
    pub times: Option<TimeReading>,
    /// What the values are, if they are times.
    pub note: Option<&'static str>,
}

impl SurveyColumn {
    /// The number of rows with null.
    pub(crate) fn nulls(&self) -> usize {
        self.ids.iter().filter(|id| **id == NONE).count()
    }

    /// The number of different values.
    pub(crate) fn distinct(&self) -> usize {
        self.values.len()
    }

    /// The column as SQL names or makes it.
    pub(crate) fn sql(&self) -> String {
        let column = self.expression.clone().unwrap_or_else(|| sql(&self.name));
        match &self.times {
            Some(TimeReading::Function(function)) => function.replace("{}", &column),
            Some(TimeReading::Type(_)) | None => column,
        }
    }

    /// The type that the pipeline gives the column, if it needs one.
    pub(crate) fn column_type(&self) -> Option<&ColumnType> {
        match &self.times {
            Some(TimeReading::Type(of)) => Some(of),
            Some(TimeReading::Function(_)) | None => None,
        }
    }

    /// The finite values in ascending order.
    pub(crate) fn sorted(&self) -> Vec<f64> {
        let finite = self.numbers.iter().copied().filter(|x| x.is_finite());
        let mut sorted: Vec<f64> = finite.collect();
        sorted.sort_unstable_by(f64::total_cmp);
        sorted
    }
}

/// The names of the columns that a pipeline file cannot name, and the other columns. Values of
/// objects are columns, and times are recognised.
pub(crate) fn described(
    columns: Vec<(String, ArrayRef)>,
    partitions: &[String],
    given_time: Option<&str>,
) -> Result<(Vec<String>, Vec<SurveyColumn>)> {
    let is_unnamed = |name: &str| name.contains("${");
    let (unnamed, named): (Vec<_>, Vec<_>) =
        columns.into_iter().partition(|(name, _)| is_unnamed(name));
    let own: HashSet<&String> = named.iter().map(|(name, _)| name).collect();
    let mut all = Vec::new();
    for (name, values) in &named {
        let of_table = ColumnPart {
            name: name.clone(),
            expression: None,
            values: Arc::clone(values),
        };
        of_table.flatten(DEPTH, &mut all);
    }
    let is_free = |of: &ColumnPart| {
        of.expression.is_none() || !own.contains(&of.name) && !is_unnamed(&of.name)
    };
    let mut found = Vec::new();
    for of in all.iter().filter(|of| is_free(of)).take(COLUMNS) {
        let mut column = column(of.name.clone(), &of.values)?;
        column.expression = of.expression.clone();
        if !partitions.contains(&column.name) {
            recognise_times(&mut column);
            let is_given = given_time == Some(column.name.as_str());
            if column.kind == ValueKind::Float && (is_given || is_time(&column.name)) {
                recognise_float_times(&mut column);
            }
        }
        found.push(column);
    }
    let unnamed = unnamed.into_iter().map(|(name, _)| name);
    Ok((unnamed.collect(), found))
}

/// The values of a column, or of a part of its objects.
struct ColumnPart {
    name: String,
    /// The part in SQL.
    expression: Option<String>,
    values: ArrayRef,
}

impl ColumnPart {
    /// Adds the values, or those of the fields of objects, to `all`.
    fn flatten(self, depth: usize, all: &mut Vec<ColumnPart>) {
        let is_object = matches!(self.values.data_type(), DataType::Struct(_));
        if depth == 0 || !is_object {
            all.push(self);
            return;
        }
        let fields = self.values.as_struct();
        let object = self.expression.clone().unwrap_or_else(|| sql(&self.name));
        for (field, values) in fields.fields().iter().zip(fields.columns()) {
            let part = ColumnPart {
                name: format!("{}.{}", self.name, field.name()),
                expression: Some(format!("{object}['{}']", field.name().replace('\'', "''"))),
                values: Arc::clone(values),
            };
            part.flatten(depth - 1, all);
        }
    }
}

/// Makes times of texts and whole numbers that are some. The key `types` names columns of the table
/// alone; SQL reads texts of the common form in objects.
fn recognise_times(column: &mut SurveyColumn) {
    let found = match column.kind {
        ValueKind::Text => clocks::of_texts(&column.values),
        ValueKind::Integer => clocks::of_integers(&column.name, &column.values),
        _ => None,
    };
    let Some(FoundTimes {
        reading,
        note,
        is_clock,
        numbers,
    }) = found
    else {
        return;
    };
    let reading = match (reading, &column.expression) {
        (TimeReading::Type(ColumnType::Time { format, .. }), Some(_)) => {
            match clocks::function(&format) {
                Some(function) => TimeReading::Function(function),
                None => return,
            }
        }
        (reading, _) => reading,
    };
    let ids = column.ids.iter();
    let times = ids.map(|id| numbers.get(*id as usize).copied().unwrap_or(f64::NAN));
    column.numbers = times.collect();
    column.kind = if is_clock {
        ValueKind::Time
    } else {
        ValueKind::Integer
    };
    column.times = Some(reading);
    column.note = Some(note);
}

/// Makes timestamps or whole numbers of other numbers.
fn recognise_float_times(column: &mut SurveyColumn) {
    let Some(found) = clocks::of_floats(&column.numbers) else {
        return;
    };
    // Different numbers can be one time.
    let mut places: HashMap<u64, u32> = HashMap::new();
    column.values.clear();
    for (id, x) in column.ids.iter_mut().zip(&found.numbers) {
        if *id != NONE {
            *id = *places.entry(x.to_bits()).or_insert_with(|| {
                column.values.push(format!("{x}"));
                (column.values.len() - 1) as u32
            });
        }
    }
    column.numbers = found.numbers;
    (column.kind, column.note) = if found.is_clock {
        (ValueKind::Time, Some("seconds since 1970"))
    } else {
        (ValueKind::Integer, Some("in units of its last digit"))
    };
    column.times = Some(TimeReading::Function(found.function));
}

/// The values of a column.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn column(name: String, values: &ArrayRef) -> Result<SurveyColumn> {
    let bug = |e| Error::with_source(Kind::Bug, format!("column `{name}` cannot be read"), e);
    let value_type = match values.data_type() {
        DataType::Dictionary(_, value) => value.as_ref().clone(),
        other => other.clone(),
    };
    let kind = match &value_type {
        t if t.is_integer() => ValueKind::Integer,
        t if t.is_floating() => ValueKind::Float,
        DataType::Decimal128(..) | DataType::Decimal256(..) => ValueKind::Float,
        DataType::Date32 | DataType::Date64 | DataType::Timestamp(..) => ValueKind::Time,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => ValueKind::Text,
        DataType::Boolean => ValueKind::Boolean,
        _ => ValueKind::Other,
    };
    let mut column = SurveyColumn {
        data_type: value_type.to_string(),
        name: name.clone(),
        kind,
        ids: Vec::new(),
        values: Vec::new(),
        numbers: Vec::new(),
        expression: None,
        times: None,
        note: None,
    };
    if kind == ValueKind::Other {
        return Ok(column);
    }
    let texts = cast(values, &DataType::Utf8).map_err(bug)?;
    let mut seen: HashMap<&str, u32> = HashMap::new();
    for text in texts.as_string::<i32>() {
        let id = text.map_or(NONE, |text| {
            let next = seen.len() as u32;
            *seen.entry(text).or_insert(next)
        });
        column.ids.push(id);
    }
    column.values = vec![String::new(); seen.len()];
    for (text, id) in seen {
        column.values[id as usize] = text.to_string();
    }
    column.numbers = match kind {
        ValueKind::Time => {
            let zone = match &value_type {
                DataType::Timestamp(_, zone) => zone.clone(),
                _ => None,
            };
            let times = cast(values, &DataType::Timestamp(TimeUnit::Microsecond, zone));
            let times = cast(&times.map_err(bug)?, &DataType::Int64).map_err(bug)?;
            let times = times.as_primitive::<Int64Type>().iter();
            times.map(|t| t.map_or(f64::NAN, |t| t as f64)).collect()
        }
        ValueKind::Integer | ValueKind::Float => {
            let numbers = cast(values, &DataType::Float64).map_err(bug)?;
            let numbers = numbers.as_primitive::<Float64Type>().iter();
            numbers.map(|x| x.unwrap_or(f64::NAN)).collect()
        }
        ValueKind::Text | ValueKind::Boolean | ValueKind::Other => Vec::new(),
    };
    Ok(column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StructArray};
    use arrow::datatypes::Field;

    #[test]
    fn values_in_objects_are_columns() {
        let field = |name: &str, of: DataType| Arc::new(Field::new(name, of, true));
        let id: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
        let inner = StructArray::from(vec![(field("it's", DataType::Int64), Arc::clone(&id))]);
        let of_inner = inner.data_type().clone();
        let inner: ArrayRef = Arc::new(inner);
        let fields = vec![
            (field("id", DataType::Int64), id),
            (field("m", of_inner), inner),
        ];
        let device = ColumnPart {
            name: "device".into(),
            expression: None,
            values: Arc::new(StructArray::from(fields)),
        };
        let mut all = Vec::new();
        device.flatten(4, &mut all);
        let found: Vec<(&str, Option<&str>)> = all
            .iter()
            .map(|of| (of.name.as_str(), of.expression.as_deref()))
            .collect();
        let expected = [
            ("device.id", Some("\"device\"['id']")),
            ("device.m.it's", Some("\"device\"['m']['it''s']")),
        ];
        assert_eq!(found, expected);
    }
}
