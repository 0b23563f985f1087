//! Values of SQL parameters.

use crate::plan::pipeline::deserializer::MOMENT;
use crate::plan::pipeline::shape::{inline_schema, visit_scalars};
use crate::store::parameter::Parameter;
use schemars::json_schema;
use serde::de::Visitor;
use serde::de::value::SeqAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;

/// The value of a `$name` in SQL.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Argument {
    /// A single value.
    One(Parameter),
    /// A date, a time or both, in the notation of TOML.
    Moment {
        /// The text of the date or time.
        moment: String,
    },
    /// Values of one type.
    List(Vec<Argument>),
}

impl<'de> Deserialize<'de> for Argument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ArgumentVisitor;
        impl<'de> Visitor<'de> for ArgumentVisitor {
            type Value = Argument;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number, true or false, a date or time, or a list of these")
            }
            visit_scalars!(Argument, value => Parameter::deserialize(value).map(Argument::One));
            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                moment: D,
            ) -> Result<Argument, D::Error> {
                let moment = String::deserialize(moment)?;
                Ok(Argument::Moment { moment })
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Argument, A::Error> {
                let all = Vec::deserialize(SeqAccessDeserializer::new(list))?;
                if all.is_empty() || all.iter().any(|a| matches!(a, Argument::List(_))) {
                    let message = "must be a list of at least one value, and of no other lists";
                    return Err(de::Error::custom(message));
                }
                Ok(Argument::List(all))
            }
        }
        deserializer.deserialize_newtype_struct(MOMENT, ArgumentVisitor)
    }
}

inline_schema!(Argument, |_| {
    let one = json_schema!({ "type": ["string", "integer", "number", "boolean"] });
    json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
});
