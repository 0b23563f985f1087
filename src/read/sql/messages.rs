//! Query-engine errors → messages in terms of SQL and of the pipeline file.

use crate::error::{hint, nearest};
use crate::read::formats::fault::plain;
use datafusion::common::{DataFusionError, SchemaError};
use datafusion::execution::SessionState;

/// Arrow type names and their SQL names.
const TYPES: [(&str, &str); 20] = [
    ("Utf8View", "VARCHAR"),
    ("LargeUtf8", "VARCHAR"),
    ("Utf8", "VARCHAR"),
    ("BinaryView", "BYTEA"),
    ("LargeBinary", "BYTEA"),
    ("Int8", "TINYINT"),
    ("Int16", "SMALLINT"),
    ("Int32", "INTEGER"),
    ("Int64", "BIGINT"),
    ("UInt8", "TINYINT UNSIGNED"),
    ("UInt16", "SMALLINT UNSIGNED"),
    ("UInt32", "INTEGER UNSIGNED"),
    ("UInt64", "BIGINT UNSIGNED"),
    ("Float32", "REAL"),
    ("Float64", "DOUBLE"),
    ("Boolean", "BOOLEAN"),
    ("Date32", "DATE"),
    ("Date64", "DATE"),
    ("Timestamp(ns)", "TIMESTAMP"),
    ("Timestamp(Nanosecond, None)", "TIMESTAMP"),
];

/// The message of a planning error. `tables` are the names of the pipeline's tables, for
/// suggestions.
pub(crate) fn of_plan(e: &DataFusionError, state: &SessionState, tables: &[String]) -> String {
    let root = first(e);
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    if let DataFusionError::SchemaError(e, _) = root {
        return of_column(e);
    }
    let text = brief(root);
    if let Some(name) = within(&text, "table '", "' not found") {
        let name = name.rsplit('.').next().unwrap_or_default();
        let same = tables.iter().find(|t| t.eq_ignore_ascii_case(name));
        return match same {
            Some(same) => format!(
                "there is no table `{name}`, but there is `{same}`: {}",
                quoted(same)
            ),
            None => format!("there is no table `{name}`{}", hint(name, &tables)),
        };
    }
    if let Some(name) = within(&text, "Invalid function '", "'") {
        let all: Vec<&str> = state
            .scalar_functions()
            .keys()
            .chain(state.aggregate_functions().keys())
            .map(String::as_str)
            .collect();
        let near = nearest(name, &all).map(|near| format!("; did you mean `{near}`?"));
        return format!("there is no function `{name}`{}", near.unwrap_or_default());
    }
    let is_comparison = text.contains("types to compare") || text.contains("comparison operation");
    if is_comparison && text.contains("List(") {
        return text + OF_LISTS;
    }
    text
}

/// What to write in place of `x IN ($list)` and `x = $list`.
pub(super) const OF_LISTS: &str = "; a parameter that is a list is used as `array_has($list, x)` in place of `x IN ($list)` or `x = $list`, \
     and as `NOT array_has($list, x)` in place of `x NOT IN ($list)`";

fn of_column(e: &SchemaError) -> String {
    match e {
        SchemaError::FieldNotFound {
            field,
            valid_fields,
        } => {
            let name = field.name();
            let names: Vec<&str> = valid_fields.iter().map(|f| f.name()).collect();
            let mut same = names.iter().filter(|n| n.eq_ignore_ascii_case(name));
            match (same.next(), same.next()) {
                (Some(same), None) => {
                    format!(
                        "there is no column `{name}`, but there is `{same}`: {}",
                        quoted(same)
                    )
                }
                _ => format!("there is no column `{name}`{}", hint(name, &names)),
            }
        }
        SchemaError::AmbiguousReference { field } => {
            let name = field.name();
            format!(
                "more than one table has a column `{name}`; qualify it with its table, as in t.{name}"
            )
        }
        SchemaError::DuplicateQualifiedField { name, .. }
        | SchemaError::DuplicateUnqualifiedField { name } => {
            format!("the column `{name}` occurs twice in one result; rename one with AS")
        }
    }
}

fn quoted(name: &str) -> String {
    format!("write \"{name}\" in double quotes, because unquoted names are read in lower case")
}

/// The first of several errors, without the layers around it.
fn first(e: &DataFusionError) -> &DataFusionError {
    let mut e = e;
    loop {
        let root = e.find_root();
        match root {
            DataFusionError::Collection(all) if !all.is_empty() => e = &all[0],
            _ => return root,
        }
    }
}

fn within<'t>(text: &'t str, before: &str, after: &str) -> Option<&'t str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}

/// The engine's message without its layers, with SQL names for types.
pub(crate) fn brief(e: &DataFusionError) -> String {
    let text = first(e).strip_backtrace();
    let text = plain(&text);
    // The rest addresses the engine's developers, or lists every candidate function.
    let end = [
        "\nThis issue was likely",
        " You might need to add explicit",
        "\n\tCandidate functions",
    ]
    .iter()
    .filter_map(|what| text.find(what))
    .min()
    .unwrap_or(text.len());
    let mut text = text[..end].replace("datafusion.public.", "");
    for (own, sql) in TYPES {
        text = replace_word(&text, own, sql);
    }
    text.trim().trim_end_matches('.').to_string()
}

/// Replaces whole words only: occurrences inside identifiers and quoted names stay.
fn replace_word(text: &str, word: &str, by: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '`' || c == '"' || c == '\'';
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, after) = (&rest[..at], &rest[at + word.len()..]);
        let apart = !before.ends_with(is_word) && !after.starts_with(is_word);
        out.push_str(before);
        out.push_str(if apart { by } else { word });
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::prelude::SessionContext;

    #[test]
    fn types_have_the_names_of_sql() {
        let e = DataFusionError::Plan("Cannot coerce Utf8View + Int64 of `Int64`".into());
        assert_eq!(brief(&e), "Cannot coerce VARCHAR + BIGINT of `Int64`");
        let e = DataFusionError::Plan("table 'datafusion.public.y' is odd.".into());
        assert_eq!(brief(&e), "table 'y' is odd");
    }

    #[test]
    fn a_comparison_with_a_list_says_how_lists_are_used() {
        let state = SessionContext::new().state();
        for (text, is_explained) in [
            (
                "Can not find compatible types to compare Utf8 with [List(Utf8)]",
                true,
            ),
            (
                "Cannot infer common argument type for comparison operation Utf8 = List(Utf8)",
                true,
            ),
            (
                "Cannot infer common argument type for comparison operation Utf8 = Boolean",
                false,
            ),
            (
                "Cannot coerce arithmetic expression List(Int64) + Int64 to valid types",
                false,
            ),
        ] {
            let said = of_plan(&DataFusionError::Plan(text.into()), &state, &[]);
            assert_eq!(
                said.contains("`array_has($list, x)`"),
                is_explained,
                "{said}"
            );
        }
    }
}
