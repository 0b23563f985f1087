//! `[checks]` and `[[check]]`: conditions that a result must meet before it is put in place.
//! The doc comments are the descriptions in the JSON Schema.

use crate::error::Result;
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::deserializer::{KeyError, read};
use crate::plan::pipeline::document::{Content, Document, Node};
use crate::plan::pipeline::shape::{inline_schema, visit_scalars};
use crate::read::lake::files::Query;
use crate::store::parameter::Parameter;
use schemars::{JsonSchema, json_schema};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

/// All checks of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Checks {
    /// The section `[checks]`.
    #[serde(flatten)]
    pub limits: Limits,
    /// In the order of the file.
    #[serde(rename = "check", skip_serializing_if = "Vec::is_empty")]
    pub queries: Vec<QueryCheck>,
}

impl Checks {
    /// Whether there are no checks.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Checks::default()
    }
}

/// What happens if a check fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(inline)]
pub enum On {
    /// The run ends with exit code 3, and the earlier result stays in place.
    #[default]
    Fail,
    /// The result is put in place. The summary, the log and the run record report the failed check.
    Warn,
}

/// Limits that a result must meet before it is put in place. Each is a value, which fails the run
/// if it is not met, or a table such as `{ value = 0.05, on = "warn" }`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Checks")]
pub struct Limits {
    /// The minimum number of rows that the SQL of `[transitions]` returns.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Limit<std::num::NonZeroU64>>")]
    pub min_rows: Option<Limit<u64>>,
    /// The maximum share of the rows, from 0 to below 1, that are dropped because they cannot be
    /// part of a transition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_dropped: Option<Limit<f64>>,
    /// The partitions that the result must have at every lag: values of `partition_by`, or tables
    /// of values if `partition_by` names several columns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partitions: Option<Limit<Vec<PartitionKey>>>,
    /// The maximum change of the total number of transitions, relative to the result in place. With
    /// 0.2, it may grow or shrink by a fifth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_drift: Option<Limit<f64>>,
}

/// A limit, and what happens if it is not met.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Limit<T> {
    /// The limit.
    pub value: T,
    /// What happens if the limit is not met.
    pub on: On,
}

/// A partition: the value of the only partition column, or values by column.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum PartitionKey {
    /// The value of the only partition column.
    One(Parameter),
    /// The values by column.
    Columns(BTreeMap<String, Parameter>),
}

/// A query that must return no rows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueryCheck {
    /// The name of the check.
    pub name: String,
    /// The SQL, or the file that contains it.
    pub query: Query,
    /// The values of the `$name`s in the SQL.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, Argument>,
    /// What happens if the query returns rows.
    pub on: On,
}

/// SQL that must return no rows: each row is a violation.
#[derive(Debug, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "Check", extend("oneOf" = [{ "required": ["sql"] }, { "required": ["file"] }]))]
pub(crate) struct CheckText {
    /// Letters, digits, `_` and `-`.
    #[schemars(regex(pattern = "^[A-Za-z0-9_-]+$"), example = &"small_sets")]
    pub name: String,
    /// A SELECT statement over the input tables and the tables that the run will put in place.
    #[schemars(example = &"SELECT fit, iterations FROM fits WHERE NOT converged")]
    pub sql: Option<String>,
    /// A file with one SELECT statement, instead of `sql`.
    #[schemars(example = &"sql/checks/small_sets.sql")]
    pub file: Option<String>,
    /// Values to which the SQL refers as `$name`.
    #[serde(default)]
    pub parameters: BTreeMap<String, Argument>,
    /// What happens if the query returns rows.
    #[serde(default)]
    pub on: On,
}

const NAMES: [&str; 4] = ["min_rows", "max_dropped", "partitions", "max_drift"];

/// Reads every `[[check]]`.
pub(crate) fn queries(root: &Node) -> Result<Vec<CheckText>, KeyError> {
    let Some(node) = root.get("check") else {
        return Ok(Vec::new());
    };
    let Content::Array(items) = &node.content else {
        let message = "must be a list of tables, each under the header `[[check]]`";
        return Err(KeyError::wrong(message).at(node));
    };
    items.iter().map(read).collect()
}

/// The checks of a file, if they agree with its other keys, such as the partition columns.
pub(crate) fn checks(
    limits: Limits,
    texts: Vec<CheckText>,
    partition_by: &[String],
    document: &Document<'_>,
) -> Result<Checks> {
    self::limits(&limits, partition_by, document)?;
    let mut queries: Vec<QueryCheck> = Vec::new();
    for (n, text) in texts.into_iter().enumerate() {
        // Two checks may have the same name by mistake, so the index identifies a check.
        let index = n.to_string();
        let fail =
            |key: &str, message: &str| Err(document.error_at(&["check", &index, key], message));
        let name = text.name;
        let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if name.is_empty() || !name.bytes().all(fits) {
            let message = format!(
                "a check's name must consist of letters, digits, `_` and `-`, not {name:?}"
            );
            return fail("name", &message);
        }
        if NAMES.contains(&name.as_str()) {
            let message =
                format!("a check cannot be named `{name}`: `[checks]` has one of that name");
            return fail("name", &message);
        }
        if queries.iter().any(|check| check.name == name) {
            return fail("name", &format!("two checks are named `{name}`"));
        }
        let query = match (text.sql, text.file) {
            (Some(sql), None) => Query::Sql(sql),
            (None, Some(file)) => Query::File(file),
            (Some(_), Some(_)) => {
                let message =
                    format!("use either `check.{name}.sql` or `check.{name}.file`, not both");
                return fail("file", &message);
            }
            (None, None) => {
                let message =
                    format!("the table `check.{name}` needs one of the keys `sql` and `file`");
                return fail("", &message);
            }
        };
        let (key, written) = match &query {
            Query::Sql(text) => ("sql", text),
            Query::File(text) => ("file", text),
        };
        if written.trim().is_empty() {
            return fail(key, &format!("`check.{name}.{key}` must not be empty"));
        }
        queries.push(QueryCheck {
            name,
            query,
            parameters: text.parameters,
            on: text.on,
        });
    }
    Ok(Checks { limits, queries })
}

fn limits(limits: &Limits, partition_by: &[String], document: &Document<'_>) -> Result<()> {
    let fail = |key: &str, message: String| {
        Err(document.error_at(&["checks", key], &format!("`checks.{key}` {message}")))
    };
    if limits
        .min_rows
        .as_ref()
        .is_some_and(|limit| limit.value == 0)
    {
        return fail("min_rows", "must be at least 1, not 0".into());
    }
    if let Some(Limit { value, .. }) = limits.max_dropped
        && !(0.0..1.0).contains(&value)
    {
        let message = format!("is a share of the rows, from 0 to below 1, not {value}");
        return fail("max_dropped", message);
    }
    if let Some(Limit { value, .. }) = limits.max_drift
        && !(value >= 0.0 && value.is_finite())
    {
        return fail(
            "max_drift",
            format!("must be finite and not negative, not {value}"),
        );
    }
    let Some(Limit { value: keys, .. }) = &limits.partitions else {
        return Ok(());
    };
    if partition_by.is_empty() {
        return fail(
            "partitions",
            "needs `transitions.partition_by`, which names their columns".into(),
        );
    }
    if keys.is_empty() {
        return fail("partitions", "must not be an empty list".into());
    }
    for (n, key) in keys.iter().enumerate() {
        if keys[..n].contains(key) {
            return fail("partitions", format!("has {} twice", shown(key)));
        }
        let fits = match key {
            PartitionKey::One(_) => partition_by.len() == 1,
            PartitionKey::Columns(columns) => {
                columns.len() == partition_by.len()
                    && partition_by.iter().all(|name| columns.contains_key(name))
            }
        };
        if !fits {
            let columns: Vec<String> = partition_by.iter().map(|c| format!("{c} = …")).collect();
            let message = format!(
                "has {}, but `partition_by` makes a partition {{ {} }}",
                shown(key),
                columns.join(", ")
            );
            return fail("partitions", message);
        }
    }
    Ok(())
}

/// A key as JSON, which resembles the TOML of the file.
fn shown(key: &PartitionKey) -> String {
    serde_json::to_string(key).unwrap_or_default()
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Limit<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table<T> {
            value: T,
            #[serde(default)]
            on: On,
        }
        struct LimitVisitor<T>(PhantomData<T>);
        fn fails<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
            value: D,
        ) -> Result<Limit<T>, D::Error> {
            let value = T::deserialize(value)?;
            Ok(Limit {
                value,
                on: On::Fail,
            })
        }
        impl<'de, T: Deserialize<'de>> Visitor<'de> for LimitVisitor<T> {
            type Value = Limit<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value, or a table such as { value = …, on = \"warn\" }")
            }
            visit_scalars!(Limit<T>, value => fails(value));
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Limit<T>, A::Error> {
                fails(SeqAccessDeserializer::new(list))
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Limit<T>, A::Error> {
                let Table { value, on } = Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Limit { value, on })
            }
        }
        deserializer.deserialize_any(LimitVisitor(PhantomData))
    }
}

inline_schema!(Limit<T>, |generator| {
    let value = generator.subschema_for::<T>();
    let on = generator.subschema_for::<On>();
    json_schema!({ "anyOf": [value, {
        "type": "object",
        "properties": { "value": value, "on": on },
        "required": ["value"],
        "additionalProperties": false,
    }] })
});

impl<'de> Deserialize<'de> for PartitionKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = PartitionKey;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of values, or of tables of values by column")
            }
            visit_scalars!(PartitionKey, value => Parameter::deserialize(value).map(PartitionKey::One));
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<PartitionKey, A::Error> {
                let columns = BTreeMap::deserialize(MapAccessDeserializer::new(map))?;
                Ok(PartitionKey::Columns(columns))
            }
        }
        deserializer.deserialize_string(KeyVisitor)
    }
}

inline_schema!(PartitionKey, |generator| {
    let value = generator.subschema_for::<Parameter>();
    json_schema!({ "anyOf": [value, { "type": "object", "additionalProperties": value, "minProperties": 1 }] })
});

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::plan::pipeline::Pipeline;

    const PIPELINE: &str = r#"[job]
name = "routes"
output = "out"
[transitions]
sql = "SELECT * FROM routes"
source = "a"
target = "b"
partition_by = ["airline"]
[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
"#;

    fn parse(more: &str) -> Result<Pipeline> {
        Pipeline::parse(&format!("{PIPELINE}{more}"), "x.toml", &[], &|_| None)
    }

    #[test]
    fn a_limit_is_a_value_or_a_table() {
        let text = r#"[checks]
min_rows = 1000
max_dropped = { value = 0.05, on = "warn" }
partitions = ["AA", { airline = "UA" }]
max_drift = { value = 1 }
[[check]]
name = "small_sets"
file = "sql/small.sql"
on = "warn"
parameters = { share = 0.01 }
"#;
        let checks = parse(text).expect("checks").checks;
        fn limit<T>(value: T, on: On) -> Option<Limit<T>> {
            Some(Limit { value, on })
        }
        let airline = |name: &str| Parameter::String(name.into());
        let keys = vec![
            PartitionKey::One(airline("AA")),
            PartitionKey::Columns(BTreeMap::from([("airline".into(), airline("UA"))])),
        ];
        let limits = checks.limits;
        assert_eq!(limits.min_rows, limit(1000, On::Fail));
        assert_eq!(limits.max_dropped, limit(0.05, On::Warn));
        assert_eq!(limits.partitions, limit(keys, On::Fail));
        assert_eq!(limits.max_drift, limit(1.0, On::Fail));
        let [query] = &checks.queries[..] else {
            panic!("one query");
        };
        assert_eq!(
            (query.on, &query.query),
            (On::Warn, &Query::File("sql/small.sql".into()))
        );
        assert_eq!(
            query.parameters["share"],
            Argument::One(Parameter::Float(0.01))
        );
        assert!(parse("").expect("no checks").checks.is_empty());
    }

    /// What follows the pipeline, then the line and what is wrong with it.
    const MISTAKES: &[&str] = &[
        "[checks]\nmin_row = 1 => 14: unknown key `checks.min_row`; did you mean `min_rows`?",
        "[checks]\nmin_rows = 0 => 14: `checks.min_rows` must be at least 1, not 0",
        "[checks]\nmin_rows = -1 => 14: `checks.min_rows` must be a whole number that is not negative, not -1",
        "[checks]\nmin_rows = { on = \"warn\" } => 14: the table `checks.min_rows` needs the key `value`",
        "[checks]\nmin_rows = { value = 1, on = \"wran\" } => 14: `checks.min_rows.on` cannot be \"wran\"; did you mean `warn`?",
        "[checks]\nmax_dropped = 5 => 14: `checks.max_dropped` is a share of the rows, from 0 to below 1, not 5",
        "[checks]\nmax_dropped = \"5 %\" => 14: `checks.max_dropped` must be a number, not \"5 %\"",
        "[checks]\nmax_drift = -0.1 => 14: `checks.max_drift` must be finite and not negative, not -0.1",
        "[checks]\npartitions = [] => 14: `checks.partitions` must not be an empty list",
        "[checks]\npartitions = \"AA\" => 14: `checks.partitions` must be a list, not \"AA\"",
        "[checks]\npartitions = [\"AA\", \"AA\"] => 14: `checks.partitions` has \"AA\" twice",
        "[checks]\npartitions = [{ carrier = \"AA\" }] => 14: `checks.partitions` has {\"carrier\":\"AA\"}, but `partition_by` makes a partition { airline = … }",
        "[[check]]\nname = \"a b\"\nsql = \"SELECT 1\" => 14: a check's name must consist of letters, digits, `_` and `-`, not \"a b\"",
        "[[check]]\nname = \"max_drift\"\nsql = \"SELECT 1\" => 14: a check cannot be named `max_drift`: `[checks]` has one of that name",
        "[[check]]\nname = \"a\"\nsql = \"SELECT 1\"\n[[check]]\nname = \"a\"\nsql = \"SELECT 1\" => 17: two checks are named `a`",
        "[[check]]\nname = \"a\" => 13: the table `check.a` needs one of the keys `sql` and `file`",
        "[[check]]\nname = \"a\"\nsql = \"SELECT 1\"\nfile = \"b.sql\" => 16: use either `check.a.sql` or `check.a.file`, not both",
        "[[check]]\nname = \"a\"\nsql = \" \" => 15: `check.a.sql` must not be empty",
        "[[check]]\nname = \"a\"\nquery = \"SELECT 1\" => 15: unknown key `check.a.query`; there are `name`, `sql`, `file`, `parameters`, `on`",
        "[check]\nname = \"a\" => 13: `check` must be a list of tables, each under the header `[[check]]`",
        "[[check]]\nname = \"a\"\nsql = \"SELECT ${N}\" => 15: `check.a.sql`: `${N}` is not replaced in SQL; write a value into `check.a.parameters` and name it as `$name`",
    ];

    #[test]
    fn mistakes_are_named_with_their_lines() {
        for mistake in MISTAKES {
            let (more, message) = mistake.split_once(" => ").expect("a message");
            let error = parse(more).expect_err(more);
            assert_eq!(error.to_string(), format!("x.toml:{message}"));
            assert_eq!(error.kind(), Kind::Spec);
        }
        let unpartitioned = PIPELINE.replace("partition_by = [\"airline\"]\n", "");
        let text = format!("{unpartitioned}[checks]\npartitions = [1]");
        let error = Pipeline::parse(&text, "x.toml", &[], &|_| None).expect_err("no partitions");
        let message = "x.toml:13: `checks.partitions` needs `transitions.partition_by`, which names their columns";
        assert_eq!(error.to_string(), message);
    }
}
