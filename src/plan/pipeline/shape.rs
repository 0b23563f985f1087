//! Shapes of values: one value or a list of values, and a table in the order of the file.

use crate::plan::pipeline::deserializer::ONE_OR_MANY;
use schemars::json_schema;
use serde::de::Visitor;
use serde::de::value::SeqAccessDeserializer;
use serde::{Deserialize, Deserializer, de};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// Implements `JsonSchema` for a type whose schema stands in the place of each use.
macro_rules! inline_schema {
    ($type:ident $(<$of:ident>)?, $schema:expr) => {
        impl $(<$of: schemars::JsonSchema>)? schemars::JsonSchema for $type $(<$of>)? {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                let name = stringify!($type);
                $(let name = format!("{name}_{}", $of::schema_name());)?
                name.into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                let schema: fn(&mut schemars::SchemaGenerator) -> schemars::Schema = $schema;
                schema(generator)
            }
        }
    };
}
pub(crate) use inline_schema;

/// The functions of a visitor of values that are neither lists nor tables: `$read` makes a value of
/// a deserializer of each, which it calls `$from`.
macro_rules! visit_scalars {
    ($value:ty, $from:ident => $read:expr) => {
        visit_scalars!($value, $from => $read, visit_bool bool);
        visit_scalars!($value, $from => $read, visit_i64 i64);
        visit_scalars!($value, $from => $read, visit_f64 f64);
        visit_scalars!($value, $from => $read, visit_str &str);
    };
    ($value:ty, $from:ident => $read:expr, $visit:ident $of:ty) => {
        fn $visit<E: serde::de::Error>(self, value: $of) -> Result<$value, E> {
            let $from = serde::de::IntoDeserializer::<E>::into_deserializer(value);
            $read
        }
    };
}
pub(crate) use visit_scalars;

/// A table in the order of the file.
#[derive(Debug)]
pub(crate) struct InOrder<T>(pub Vec<(String, T)>);

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        InOrder(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for InOrder<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Pairs<T> {
            type Value = InOrder<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a table")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<InOrder<T>, A::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(InOrder(pairs))
            }
        }
        deserializer.deserialize_map(Pairs(PhantomData))
    }
}

inline_schema!(InOrder<T>, |generator| BTreeMap::<String, T>::json_schema(
    generator
));

/// Reads one value, or a list of at least one.
pub(crate) fn one_or_many<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    one_or_many_of(deserializer, 1)
}

/// Reads one value, or a list.
pub(crate) fn none_or_more<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    one_or_many_of(deserializer, 0)
}

fn one_or_many_of<'de, T, D>(deserializer: D, least: usize) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    struct OneOrManyVisitor<T> {
        least: usize,
        of: PhantomData<T>,
    }
    impl<'de, T: Deserialize<'de>> Visitor<'de> for OneOrManyVisitor<T> {
        type Value = Vec<T>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("one value or a list of values")
        }
        fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Vec<T>, A::Error> {
            let many = Vec::deserialize(SeqAccessDeserializer::new(list))?;
            if many.len() < self.least {
                return Err(de::Error::custom("must not be an empty list"));
            }
            Ok(many)
        }
        fn visit_newtype_struct<D: Deserializer<'de>>(self, one: D) -> Result<Vec<T>, D::Error> {
            T::deserialize(one).map(|one| vec![one])
        }
    }
    let of = PhantomData;
    deserializer.deserialize_newtype_struct(ONE_OR_MANY, OneOrManyVisitor { least, of })
}

/// The schema of a `Vec<T>` that [`one_or_many`] reads.
pub(crate) struct OneOrMany<T>(PhantomData<T>);

inline_schema!(OneOrMany<T>, |generator| {
    let one = generator.subschema_for::<T>();
    json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
});
