//! The value of `scale`: a word, or numbers by column.

use crate::plan::pipeline::shape::inline_schema;
use crate::read::rows::coordinates::Scale;
use schemars::json_schema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::fmt;

/// What coordinates are divided by, as a file says it.
#[derive(Debug, Default)]
pub(crate) struct ScaleText(pub Scale);

impl<'de> Deserialize<'de> for ScaleText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ScaleVisitor;
        impl<'de> Visitor<'de> for ScaleVisitor {
            type Value = ScaleText;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"none\", \"standard\" or a table such as { x = 2.0 }")
            }
            fn visit_str<E: de::Error>(self, word: &str) -> Result<ScaleText, E> {
                match word {
                    "none" => Ok(ScaleText(Scale::None)),
                    "standard" => Ok(ScaleText(Scale::Standard)),
                    _ => Err(E::unknown_variant(word, &["none", "standard"])),
                }
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ScaleText, A::Error> {
                let by = BTreeMap::deserialize(MapAccessDeserializer::new(map))?;
                Ok(ScaleText(Scale::By(by)))
            }
        }
        deserializer.deserialize_any(ScaleVisitor)
    }
}

inline_schema!(ScaleText, |_| json_schema!({ "anyOf": [
    { "enum": ["none", "standard"] },
    { "type": "object", "additionalProperties": { "type": "number", "exclusiveMinimum": 0 } }
] }));
