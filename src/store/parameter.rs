//! The section `[store]` of a pipeline: options of the store clients.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// How stores are reached, in addition to the environment variables of their clouds.
#[derive(Clone, Default, PartialEq, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Environment variables of the clouds in lower case, such as `aws_region`,
    /// `google_service_account` and `azure_storage_account_name`. They override the environment.
    /// `allow_http`, `timeout`, `connect_timeout` and `proxy_url` apply to all connections.
    #[serde(default)]
    #[schemars(example = &serde_json::json!({ "aws_region": "eu-central-1", "aws_endpoint_url": "https://minio.example.org" }))]
    pub options: BTreeMap<String, Parameter>,
}

/// Shows the keys only, because values may be secret.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.options.keys()).finish()
    }
}

/// A scalar value.
#[derive(Debug, Clone, PartialEq)]
pub enum Parameter {
    /// `true` or `false`.
    Boolean(bool),
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
    /// Text.
    String(String),
}

impl<'de> Deserialize<'de> for Parameter {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ParameterVisitor;
        impl Visitor<'_> for ParameterVisitor {
            type Value = Parameter;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a number or true or false")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Parameter, E> {
                Ok(Parameter::Boolean(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Parameter, E> {
                Ok(Parameter::Integer(value))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Parameter, E> {
                Ok(Parameter::Float(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Parameter, E> {
                Ok(Parameter::String(value.to_string()))
            }
        }
        // Text that had variables substituted stays text.
        deserializer.deserialize_string(ParameterVisitor)
    }
}

impl Serialize for Parameter {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Parameter::Boolean(value) => value.serialize(serializer),
            Parameter::Integer(value) => value.serialize(serializer),
            Parameter::Float(value) => value.serialize(serializer),
            Parameter::String(value) => value.serialize(serializer),
        }
    }
}

impl JsonSchema for Parameter {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Parameter".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer", "number", "boolean"] })
    }
}
