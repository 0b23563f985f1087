//! Serialization of parts of a plan, for `serde(with)`.

use arrow::array::ArrayRef;
use datafusion::common::ScalarValue;
use serde::de::Error as _;
use serde::ser::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;

/// SQL parameters as Arrow columns with one row.
pub(crate) mod values {
    use super::*;

    #[derive(Serialize, Deserialize)]
    struct Values {
        names: Vec<String>,
        #[serde(with = "crate::read::rows::ipc::arrays")]
        columns: Vec<ArrayRef>,
    }

    pub(crate) fn serialize<S: Serializer>(
        values: &BTreeMap<String, ScalarValue>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let columns = values.values().map(ScalarValue::to_array);
        let columns = columns.collect::<Result<_, _>>();
        let values = Values {
            names: values.keys().cloned().collect(),
            columns: columns.map_err(S::Error::custom)?,
        };
        values.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, ScalarValue>, D::Error> {
        let Values { names, columns } = Values::deserialize(from)?;
        let values = names.into_iter().zip(&columns);
        let value = |(name, column): (String, &ArrayRef)| {
            let value = ScalarValue::try_from_array(column, 0);
            Ok((name, value.map_err(D::Error::custom)?))
        };
        values.map(value).collect()
    }
}

/// A value as JSON text, because formats without types cannot hold values of several types.
///
/// serde_json reads some numbers with an error in the last bit, so fractions are texts of their
/// bits.
pub(crate) mod json {
    use super::*;
    use serde::de::DeserializeOwned;
    use serde_json::{Number, Value};

    /// The beginning of a text of bits. No other text of a plan begins with it.
    const BITS: &str = "\0f64 ";

    /// A value with `leaf` of all numbers and texts in it.
    fn mapped(value: Value, leaf: fn(Value) -> Value) -> Value {
        let below = |value| mapped(value, leaf);
        match value {
            Value::Array(items) => items.into_iter().map(below).collect(),
            Value::Object(entries) => {
                let entries = entries.into_iter();
                entries.map(|(key, value)| (key, below(value))).collect()
            }
            value => leaf(value),
        }
    }

    fn with_bits(value: Value) -> Value {
        match value {
            Value::Number(number) if number.is_f64() => {
                let bits = number.as_f64().unwrap_or_default().to_bits();
                Value::String(format!("{BITS}{bits:x}"))
            }
            other => other,
        }
    }

    fn without_bits(value: Value) -> Value {
        match value {
            Value::String(text) => {
                let bits = text.strip_prefix(BITS);
                let bits = bits.and_then(|bits| u64::from_str_radix(bits, 16).ok());
                let number = bits.and_then(|bits| Number::from_f64(f64::from_bits(bits)));
                number.map_or(Value::String(text), Value::Number)
            }
            other => other,
        }
    }

    pub(crate) fn serialize<T: Serialize, S: Serializer>(
        value: &T,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        let value = serde_json::to_value(value).map_err(S::Error::custom)?;
        mapped(value, with_bits).to_string().serialize(to)
    }

    pub(crate) fn deserialize<'de, T: DeserializeOwned, D: Deserializer<'de>>(
        from: D,
    ) -> Result<T, D::Error> {
        let text = String::deserialize(from)?;
        let value: Value = serde_json::from_str(&text).map_err(D::Error::custom)?;
        serde_json::from_value(mapped(value, without_bits)).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Sent {
        #[serde(with = "crate::plan::serialized::json")]
        values: Vec<(String, f64, Option<u64>)>,
    }

    #[test]
    fn numbers_arrive_bit_by_bit() {
        let number = |k: u64| f64::from_bits(0x3f00_0000_0000_0000 + k * 0x0007_35a1_9c3b_4d27);
        let values = (0..1000).map(|k| (format!("n{k}"), number(k), Some(k)));
        let sent = Sent {
            values: values.collect(),
        };
        let text = serde_json::to_string(&sent).expect("JSON");
        let got: Sent = serde_json::from_str(&text).expect("a value");
        assert_eq!(got, sent);
    }
}
