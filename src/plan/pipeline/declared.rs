//! The values of `null` and `types` of a table.

use crate::plan::pipeline::shape::{inline_schema, visit_scalars};
use crate::read::formats::column_type::ColumnType;
use crate::read::formats::fill_values::{FillValue, FillValues};
use schemars::json_schema;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::collections::BTreeMap;
use std::fmt;

/// One value of `null`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum FillText {
    Integer(i64),
    Number(f64),
    Text(String),
}

impl FillText {
    fn value(&self) -> FillValue {
        match self {
            FillText::Integer(n) => FillValue::Integer(*n),
            FillText::Number(x) => FillValue::Number(*x),
            FillText::Text(text) => FillValue::Text(text.clone()),
        }
    }
}

/// The form that is hashed. JSON has no NaN and no infinity, which must not have one hash.
impl Serialize for FillText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            FillText::Integer(n) => serializer.serialize_i64(*n),
            FillText::Number(x) if x.is_finite() => serializer.serialize_f64(*x),
            FillText::Number(x) => [format!("{x}")].serialize(serializer),
            FillText::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for FillText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FillVisitor;
        impl Visitor<'_> for FillVisitor {
            type Value = FillText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number or a text")
            }
            fn visit_i64<E>(self, n: i64) -> Result<FillText, E> {
                Ok(FillText::Integer(n))
            }
            fn visit_f64<E>(self, x: f64) -> Result<FillText, E> {
                Ok(FillText::Number(x))
            }
            fn visit_str<E>(self, text: &str) -> Result<FillText, E> {
                Ok(FillText::Text(text.to_string()))
            }
        }
        deserializer.deserialize_any(FillVisitor)
    }
}

/// One value, or a list of at least one.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct FillTexts(Vec<FillText>);

impl FillTexts {
    fn values(&self) -> Vec<FillValue> {
        self.0.iter().map(FillText::value).collect()
    }
}

impl<'de> Deserialize<'de> for FillTexts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FillsVisitor;
        impl<'de> Visitor<'de> for FillsVisitor {
            type Value = FillTexts;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, a text or a list of these")
            }
            visit_scalars!(FillTexts, one => FillText::deserialize(one).map(|one| FillTexts(vec![one])));
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<FillTexts, A::Error> {
                at_least_one(list)
            }
        }
        deserializer.deserialize_any(FillsVisitor)
    }
}

fn at_least_one<'de, A: SeqAccess<'de>>(list: A) -> Result<FillTexts, A::Error> {
    let values: Vec<FillText> = Vec::deserialize(SeqAccessDeserializer::new(list))?;
    if values.is_empty() {
        return Err(de::Error::custom("must not be an empty list"));
    }
    Ok(FillTexts(values))
}

/// The values of a table that mean null, as a file says it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub(crate) enum NullText {
    All(FillTexts),
    ByColumn(BTreeMap<String, FillTexts>),
}

impl Default for NullText {
    fn default() -> NullText {
        NullText::All(FillTexts::default())
    }
}

impl NullText {
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            NullText::All(values) => values.0.is_empty(),
            NullText::ByColumn(columns) => columns.is_empty(),
        }
    }

    /// What it means.
    pub(crate) fn values(&self) -> FillValues {
        match self {
            NullText::All(all) => FillValues {
                all: all.values(),
                ..FillValues::default()
            },
            NullText::ByColumn(columns) => {
                let columns = columns.iter();
                let columns = columns.map(|(name, values)| (name.clone(), values.values()));
                FillValues {
                    by_column: columns.collect(),
                    ..FillValues::default()
                }
            }
        }
    }
}

impl<'de> Deserialize<'de> for NullText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NullVisitor;
        impl<'de> Visitor<'de> for NullVisitor {
            type Value = NullText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a number, a text, a list of these, or a table such as { temp = [-9999] }",
                )
            }
            visit_scalars!(NullText, one => FillTexts::deserialize(one).map(NullText::All));
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<NullText, A::Error> {
                at_least_one(list).map(NullText::All)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NullText, A::Error> {
                let columns = BTreeMap::deserialize(MapAccessDeserializer::new(map))?;
                Ok(NullText::ByColumn(columns))
            }
        }
        deserializer.deserialize_any(NullVisitor)
    }
}

inline_schema!(NullText, |_| {
    let one = json_schema!({ "type": ["number", "string"] });
    let list = json_schema!({ "type": "array", "items": one, "minItems": 1 });
    let values = json_schema!({ "anyOf": [one, list] });
    json_schema!({ "anyOf": [
        one,
        list,
        { "type": "object", "additionalProperties": values }
    ] })
});

/// The type of a column, as a file says it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct TypeText(pub(crate) ColumnType);

impl<'de> Deserialize<'de> for TypeText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TypeVisitor;
        impl<'de> Visitor<'de> for TypeVisitor {
            type Value = TypeText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "\"text\", \"integer\", \"number\" or a table such as { timestamp = \"%d.%m.%Y %H:%M\" }",
                )
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<TypeText, E> {
                match word {
                    "text" => Ok(TypeText(ColumnType::Text)),
                    "integer" => Ok(TypeText(ColumnType::Integer)),
                    "number" => Ok(TypeText(ColumnType::Number)),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TypeText, A::Error> {
                let time = TimeText::deserialize(MapAccessDeserializer::new(map))?;
                Ok(TypeText(ColumnType::Time {
                    format: time.timestamp,
                    zone: time.zone,
                }))
            }
        }
        deserializer.deserialize_any(TypeVisitor)
    }
}

/// The format of times.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TimeText {
    timestamp: String,
    zone: Option<String>,
}

inline_schema!(TypeText, |_| json_schema!({ "anyOf": [
    { "enum": ["text", "integer", "number"] },
    {
        "type": "object",
        "properties": { "timestamp": { "type": "string" }, "zone": { "type": "string" } },
        "required": ["timestamp"],
        "additionalProperties": false
    }
] }));

#[cfg(test)]
mod tests {
    use super::*;

    /// Pipelines whose values differ have hashes that differ.
    #[test]
    fn each_value_of_null_has_its_own_form() {
        let values = [
            FillText::Integer(-9999),
            FillText::Text("-9999".into()),
            FillText::Number(f64::NAN),
            FillText::Number(f64::INFINITY),
            FillText::Text("NaN".into()),
        ];
        let forms = values.map(|value| serde_json::to_string(&value).expect("a form"));
        let expected = ["-9999", "\"-9999\"", "[\"NaN\"]", "[\"inf\"]", "\"NaN\""];
        assert_eq!(forms, expected);
    }
}
