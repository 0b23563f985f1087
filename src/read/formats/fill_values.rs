//! Values that mean null, such as -9999 and "NA".
//!
//! A number is compared as a number, in the type of its column, and a text as a text. In: the
//! values of the key `null`, and columns. Out: which values of a column are null.

use crate::read::formats::text::value_kind;
use crate::read::sql::floats::one_form;
use arrow::array::{Array, ArrayRef, BooleanArray, StringArray};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{cast, nullif, or};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use datafusion::common::ScalarValue;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A value that means null.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum FillValue {
    Integer(i64),
    Number(f64),
    Text(String),
}

impl FillValue {
    fn text(&self) -> Option<&str> {
        match self {
            FillValue::Text(text) => Some(text),
            FillValue::Integer(_) | FillValue::Number(_) => None,
        }
    }

    /// Whether the text of a number is this one. `decimal` is its decimal point.
    fn is_number(&self, text: &str, decimal: char) -> bool {
        let text = text.trim_ascii();
        match self {
            FillValue::Text(_) => false,
            FillValue::Integer(n) => text.parse::<i128>().map_or_else(
                |_| number(text, decimal) == Some(*n as f64),
                |value| value == i128::from(*n),
            ),
            FillValue::Number(x) => {
                number(text, decimal).is_some_and(|y| y == *x || y.is_nan() && x.is_nan())
            }
        }
    }
}

/// Rules of columns are compared, and NaN is a value of `null`: numbers are compared by their bits.
impl PartialEq for FillValue {
    fn eq(&self, other: &FillValue) -> bool {
        match (self, other) {
            (FillValue::Integer(a), FillValue::Integer(b)) => a == b,
            (FillValue::Number(a), FillValue::Number(b)) => a.to_bits() == b.to_bits(),
            (FillValue::Text(a), FillValue::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl Eq for FillValue {}

impl Hash for FillValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            FillValue::Integer(n) => n.hash(state),
            FillValue::Number(x) => x.to_bits().hash(state),
            FillValue::Text(text) => text.hash(state),
        }
    }
}

impl fmt::Display for FillValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FillValue::Integer(n) => write!(f, "{n}"),
            FillValue::Number(x) => write!(f, "{x:?}"),
            FillValue::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// The values of a table that mean null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FillValues {
    /// Those of every column that can hold them.
    pub all: Vec<FillValue>,
    /// Those of single columns.
    pub by_column: BTreeMap<String, Vec<FillValue>>,
}

impl FillValues {
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty() && self.by_column.is_empty()
    }

    /// The values that a column has for itself.
    pub(crate) fn own(&self, column: &str) -> &[FillValue] {
        self.by_column.get(column).map_or(&[], Vec::as_slice)
    }

    /// The texts that mean null in a column.
    pub(crate) fn texts(&self, column: &str) -> Vec<&str> {
        let all = self.all.iter().chain(self.own(column));
        all.filter_map(FillValue::text).collect()
    }

    /// The texts that mean null in every column.
    pub(crate) fn shared_texts(&self) -> Vec<&str> {
        self.all.iter().filter_map(FillValue::text).collect()
    }

    /// The values that mean null in a column: those for all columns, and its own. Texts are left
    /// out if a reader of text files (`is_text`) makes null of them.
    pub(crate) fn of_column(&self, column: &str, is_text: bool) -> Vec<FillValue> {
        let all = self.all.iter().chain(self.own(column));
        let all = all.filter(|value| !is_text || value.text().is_none());
        all.cloned().collect()
    }

    /// Checks that a column can hold its own values. `types` are those of its files.
    ///
    /// # Errors
    /// A value that no type holds, with the reason.
    pub(crate) fn check_own(
        &self,
        column: &str,
        types: &[DataType],
        is_text: bool,
    ) -> Result<(), (FillValue, String)> {
        let types = || types.iter().filter(|of| **of != DataType::Null);
        let Some(first) = types().next() else {
            return Ok(());
        };
        for value in self.own(column) {
            if is_text && value.text().is_some() {
                continue;
            }
            if types().all(|of| scalar(value, of).is_none()) {
                return Err((value.clone(), reason(value, first, is_text)));
            }
        }
        Ok(())
    }

    /// Whether a text is a value that means null in a column of a type that CSV shows so. `decimal`
    /// is the decimal point of its numbers.
    pub(crate) fn is_shown(&self, column: &str, of: &DataType, text: &str, decimal: char) -> bool {
        let mut all = self.all.iter().chain(self.own(column));
        all.any(|value| match value.text() {
            Some(fill) => fill == text,
            None => of.is_numeric() && value.is_number(text, decimal),
        })
    }

    /// Whether a value of JSON, as it is written, means null in a column: a text is compared as a
    /// text, and a number as a number.
    pub(crate) fn is_json(&self, column: &str, written: &str) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut all = self.all.iter().chain(self.own(column));
        if !written.starts_with('"') {
            return all.any(|value| value.is_number(written, '.'));
        }
        let text: Cow<'_, str> = serde_json::from_str(written).unwrap_or_default();
        all.any(|value| value.text() == Some(&text))
    }
}

fn number(text: &str, decimal: char) -> Option<f64> {
    if decimal == '.' {
        return text.parse().ok();
    }
    let has_point = text.contains('.');
    let number = || text.replace(decimal, ".").parse().ok();
    (!has_point).then(number).flatten()
}

/// Why a column of a type has no such value.
fn reason(value: &FillValue, of: &DataType, is_text: bool) -> String {
    let holds = format!("the column holds {}", value_kind(of));
    match value {
        FillValue::Text(_) if of.is_numeric() => {
            format!("{holds}, so write the value as a number, without quotes")
        }
        // Readers of text files compare texts before they parse values.
        FillValue::Integer(_) | FillValue::Number(_)
            if of.is_string() || is_text && !of.is_numeric() =>
        {
            format!("{holds}, so write the value as a text, in quotes")
        }
        _ if of.is_numeric() => format!("{holds}, and its type {of} has no such value"),
        _ => format!("{holds}, and values that mean null are numbers or texts"),
    }
}

/// Those of some values that a column of a type can hold, in this type.
pub(crate) fn held(values: &[FillValue], of: &DataType) -> Vec<ScalarValue> {
    let mut held: Vec<ScalarValue> = Vec::new();
    for value in values.iter().filter_map(|value| scalar(value, of)) {
        if !held.contains(&value) {
            held.push(value);
        }
    }
    held
}

/// A value in the type of a column; `None` if the column cannot hold it.
fn scalar(value: &FillValue, of: &DataType) -> Option<ScalarValue> {
    match (value, of) {
        (value, DataType::Dictionary(_, inner)) => scalar(value, inner),
        (FillValue::Text(text), of) if of.is_string() => {
            ScalarValue::from(text.as_str()).cast_to(of).ok()
        }
        (FillValue::Text(_), _) => None,
        (FillValue::Integer(n), of) if of.is_integer() => {
            let held = ScalarValue::from(*n).cast_to(of).ok()?;
            (!held.is_null()).then_some(held)
        }
        (FillValue::Integer(n), of) => scalar(&FillValue::Number(*n as f64), of),
        (FillValue::Number(x), of) if of.is_floating() => {
            let one = one_form(&ScalarValue::from(*x).to_array().ok()?).ok()?;
            let held = cast(&one, of).ok()?;
            ScalarValue::try_from_array(&held, 0).ok()
        }
        (FillValue::Number(x), of) if of.is_integer() => {
            let is_whole = x.trunc() == *x && x.abs() < 9_223_372_036_854_775_808.0;
            is_whole.then(|| scalar(&FillValue::Integer(*x as i64), of))?
        }
        (FillValue::Number(x), of) if of.is_decimal() => {
            let held = ScalarValue::from(*x).cast_to(of).ok()?;
            let back = held.cast_to(&DataType::Float64).ok()?;
            (back == ScalarValue::from(*x)).then_some(held)
        }
        (FillValue::Number(_), _) => None,
    }
}

/// Which values of a column are among `values`, which have its type.
///
/// # Errors
/// Values of another type.
pub(crate) fn is_fill(
    column: &ArrayRef,
    values: &[ScalarValue],
) -> Result<BooleanArray, ArrowError> {
    let column = one_form(column)?;
    let mut found: Option<BooleanArray> = None;
    for value in values {
        let value = value
            .to_scalar()
            .map_err(|e| ArrowError::ComputeError(e.to_string()))?;
        let own = eq(&column, &value)?;
        found = Some(match found {
            Some(found) => or(&found, &own)?,
            None => own,
        });
    }
    let none = || BooleanArray::new(arrow::buffer::BooleanBuffer::new_unset(column.len()), None);
    Ok(found.unwrap_or_else(none))
}

/// The column with null in the place of `values`, which have its type.
///
/// # Errors
/// Values of another type.
pub(crate) fn without(column: &ArrayRef, values: &[ScalarValue]) -> Result<ArrayRef, ArrowError> {
    if values.is_empty() {
        return Ok(Arc::clone(column));
    }
    let fills = is_fill(column, values)?;
    if fills.true_count() == 0 {
        return Ok(Arc::clone(column));
    }
    nullif(column, &fills)
}

/// The texts with null in the place of some texts.
pub(crate) fn without_texts(texts: &StringArray, fills: &[&str]) -> StringArray {
    let kept = |text: &&str| !fills.contains(text);
    texts.iter().map(|text| text.filter(kept)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        DictionaryArray, Float32Array, Float64Array, Int16Array, Int64Array, StringViewArray,
        UInt8Array,
    };
    use arrow::datatypes::Int32Type;

    fn fills(all: Vec<FillValue>) -> FillValues {
        FillValues {
            all,
            ..FillValues::default()
        }
    }

    fn nulls(column: ArrayRef, all: Vec<FillValue>) -> Vec<usize> {
        let values = held(&fills(all).of_column("x", false), column.data_type());
        let without = without(&column, &values).expect("a column");
        (0..without.len())
            .filter(|at| without.is_null(*at))
            .collect()
    }

    #[test]
    fn a_number_is_compared_in_the_type_of_its_column() {
        use FillValue::{Integer, Number};
        let doubles = || Arc::new(Float64Array::from(vec![-9999.0, 1e20, -0.0, f64::NAN, 9.5]));
        assert_eq!(nulls(doubles(), vec![Integer(-9999)]), [0]);
        assert_eq!(nulls(doubles(), vec![Number(1e20), Integer(-9999)]), [0, 1]);
        assert_eq!(nulls(doubles(), vec![Integer(0)]), [2]);
        assert_eq!(nulls(doubles(), vec![Number(-f64::NAN)]), [3]);
        // 9.97e36 is no single: the column holds the nearest one.
        let singles = Arc::new(Float32Array::from(vec![9.97e36, 9.969_21e36, 1.0]));
        assert_eq!(nulls(singles, vec![Number(9.97e36)]), [0]);
        let shorts = || Arc::new(Int16Array::from(vec![-9999, 7]));
        assert_eq!(nulls(shorts(), vec![Number(-9999.0)]), [0]);
        assert_eq!(nulls(shorts(), vec![Number(7.5), Number(1e20)]), [0; 0]);
        assert_eq!(
            nulls(Arc::new(UInt8Array::from(vec![1, 2])), vec![Integer(-9999)]),
            [0; 0]
        );
        let nullable = Arc::new(Int64Array::from(vec![None, Some(3), Some(4)]));
        assert_eq!(nulls(nullable, vec![Integer(4)]), [0, 2]);
    }

    #[test]
    fn a_text_is_compared_as_a_text() {
        use FillValue::{Integer, Text};
        let texts = || Arc::new(StringViewArray::from(vec!["NA", "-9999", "-9999.0"]));
        assert_eq!(nulls(texts(), vec![Text("NA".into())]), [0]);
        assert_eq!(nulls(texts(), vec![Text("-9999".into())]), [1]);
        assert_eq!(nulls(texts(), vec![Integer(-9999)]), [0; 0]);
        let codes: DictionaryArray<Int32Type> = ["a", "NA", "a"].into_iter().collect();
        assert_eq!(nulls(Arc::new(codes), vec![Text("NA".into())]), [1]);
    }

    #[test]
    fn a_column_refuses_its_own_values_of_another_type() {
        let own = |value: FillValue| FillValues {
            by_column: BTreeMap::from([("x".to_string(), vec![value])]),
            ..FillValues::default()
        };
        for (value, of, why) in [
            (
                FillValue::Text("NA".into()),
                DataType::Float64,
                "without quotes",
            ),
            (FillValue::Integer(-9999), DataType::Utf8View, "in quotes"),
            (
                FillValue::Integer(-9999),
                DataType::UInt8,
                "has no such value",
            ),
            (FillValue::Number(0.5), DataType::Int64, "has no such value"),
            (FillValue::Integer(1), DataType::Boolean, "numbers or texts"),
        ] {
            let checked = own(value).check_own("x", std::slice::from_ref(&of), false);
            let (_, found) = checked.expect_err("another type");
            assert!(found.contains(why), "{found}");
        }
        // One file of several holds it.
        let types = [DataType::Float64, DataType::Utf8];
        let na = own(FillValue::Text("NA".into()));
        assert_eq!(na.check_own("x", &types, false), Ok(()));
    }

    #[test]
    fn values_of_json_are_numbers_or_texts() {
        let all = fills(vec![
            FillValue::Integer(-9999),
            FillValue::Number(1e20),
            FillValue::Text("NA".into()),
            FillValue::Text("7".into()),
        ]);
        for (written, expected) in [
            ("-9999", true),
            ("-9999.0", true),
            ("\"-9999\"", false),
            ("1e20", true),
            ("100000000000000000000", true),
            ("\"NA\"", true),
            ("\"\\u004eA\"", true),
            ("7", false),
            ("\"7\"", true),
            ("true", false),
        ] {
            assert_eq!(all.is_json("x", written), expected, "{written}");
        }
    }

    #[test]
    fn numbers_of_text_files_have_a_decimal_point() {
        let all = fills(vec![
            FillValue::Integer(-9999),
            FillValue::Text("NA".into()),
        ]);
        for (text, of, decimal, expected) in [
            ("-9999.0", DataType::Float64, '.', true),
            ("-9999,0", DataType::Float64, ',', true),
            ("-9999.0", DataType::Float64, ',', false),
            ("-9999", DataType::Utf8, '.', false),
            ("NA", DataType::Float64, '.', true),
            ("-99990", DataType::Int64, '.', false),
        ] {
            assert_eq!(all.is_shown("x", &of, text, decimal), expected, "{text}");
        }
    }
}
