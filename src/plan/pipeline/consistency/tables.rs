//! Checks of `[job]`, `[tables]` and the names of tables in `[output]`.

use crate::error::{Result, nearest};
use crate::plan::pipeline::consistency::errors::{Errors, not_blank};
use crate::plan::pipeline::consistency::kinds::table_names;
use crate::plan::pipeline::content::Input;
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::keys::{InputTable, Job, OutputTables};
use crate::read::formats::format::{Compression, Format};
use crate::read::paths::current::MOST_EARLIER;
use crate::store;
use std::collections::BTreeMap;

pub(super) fn job(
    job: &Job,
    document: &Document<'_>,
    is_sound: impl Fn(&str) -> bool,
    errors: &mut Errors<'_>,
) {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let is_name = !job.name.is_empty() && job.name.bytes().all(fits);
    if is_sound("name") && !is_name {
        let what = format!(
            "must consist of letters, digits, `_` and `-`, not {:?}",
            job.name
        );
        errors.note(document.wrong::<()>(&["job", "name"], what));
    }
    if job.keep as usize > MOST_EARLIER {
        let what = format!("must be {MOST_EARLIER} at most, not {}", job.keep);
        errors.note(document.wrong::<()>(&["job", "keep"], what));
    }
    if !is_sound("output") {
        return;
    }
    errors.note(check_location(&job.output, &["job", "output"], document));
    if job.output.starts_with("http") && job.output.contains("://") {
        let what = "cannot be written: gyre can only read http:// and https:// locations";
        errors.note(document.wrong::<()>(&["job", "output"], what));
    }
}

pub(super) fn option(key: &str, document: &Document<'_>) -> Result<()> {
    if store::is_option(key) {
        return Ok(());
    }
    let known: Vec<&str> = store::OPTIONS.split_whitespace().collect();
    let hint = match nearest(key, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "options are the environment variables of the clouds in lower case, such as `aws_region`".into(),
    };
    let message = format!("unknown key `store.options.{key}`; {hint}");
    Err(document.error_at(&["store", "options", key], &message))
}

/// Checks a path or a URL. The message does not repeat the location, which may contain a secret.
pub(super) fn check_location(location: &str, path: &[&str], document: &Document<'_>) -> Result<()> {
    not_blank(location, path, document)?;
    store::check(location).map_err(|message| {
        let message = format!("`{}`: {message}", path.join("."));
        document.error_at(path, &message)
    })
}

/// Checks the names in `output.tables` and `output.without`.
pub(super) fn output_tables(
    output: &OutputTables,
    input: &Input,
    document: &Document<'_>,
    errors: &mut Errors<'_>,
) {
    let names = table_names(input);
    let mut note = |key: &str, checked: Result<(), String>| {
        if let Err(why) = checked {
            let message = format!("`output.{key}`: {why}");
            errors.add(document.error_at(&["output", key], &message));
        }
    };
    for name in output.tables.iter().flatten() {
        note("tables", names.check(name));
    }
    for name in &output.without {
        note("without", names.check_without(name));
    }
}

pub(super) fn tables(
    tables: &BTreeMap<String, InputTable>,
    document: &Document<'_>,
    errors: &mut Errors<'_>,
) {
    for (name, table) in tables {
        if name.trim().is_empty() {
            errors.add(document.error_at(&["tables", name], "a table needs a name"));
        }
        for path in &table.path {
            errors.note(check_location(path, &["tables", name, "path"], document));
        }
        if let Some(column) = &table.filename {
            errors.note(not_blank(column, &["tables", name, "filename"], document));
        }
        errors.note(text_options(name, table, document));
        for (column, of) in &table.types {
            if let Err((key, what)) = of.0.check() {
                let wrong = document.wrong::<()>(&["tables", name, "types", column, key], what);
                errors.note(wrong);
            }
        }
    }
}

/// Checks that the options of CSV are only given for CSV, and `compression` only for text formats.
pub(super) fn text_options(name: &str, table: &InputTable, document: &Document<'_>) -> Result<()> {
    let kind = table.kind();
    let wrong = |key: &str, what: &str| document.wrong(&["tables", name, key], what);
    let of_csv = [
        ("delimiter", table.delimiter.is_some()),
        ("header", table.header.is_some()),
        ("quote", table.quote.is_some()),
        ("decimal", table.decimal.is_some()),
    ];
    let has = |(key, is_there): (&'static str, bool)| is_there.then_some(key);
    if let Some(key) = of_csv.into_iter().find_map(has)
        && kind != Format::Csv
    {
        let what = format!(
            "goes with CSV files alone, and these are {}; leave it out",
            kind.name()
        );
        return wrong(key, &what);
    }
    let is_packed = |path: &String| Compression::of_name(path).1 != Compression::None;
    if matches!(kind, Format::Parquet | Format::Arrow) {
        let why = format!(
            "is for CSV and JSON files: {} files are compressed inside",
            kind.name()
        );
        if table.compression.is_some() {
            return wrong("compression", &why);
        }
        if table.path.iter().any(is_packed) {
            let what = "names files that are compressed as a whole, which";
            return wrong("path", &format!("{what} {why}; unpack them"));
        }
    }
    let is_unknown = |path: &String| path.ends_with(".bz2") || path.ends_with(".xz");
    if table.path.iter().any(is_unknown) {
        let what =
            "names files whose compression gyre does not read; unpack them, or use gzip or zstd";
        return wrong("path", what);
    }
    let quote = table.quote.unwrap_or('"');
    for (key, character) in [("delimiter", table.delimiter), ("quote", table.quote)] {
        let Some(character) = character else { continue };
        if !character.is_ascii() || matches!(character, '\n' | '\r' | '\0') {
            return wrong(key, "must be one ASCII character that ends no line");
        }
    }
    if let Some(decimal) = table.decimal {
        decimal_point(name, table, decimal, document)?;
    }
    if table.delimiter.unwrap_or(',') == quote {
        let key = if table.quote.is_some() {
            "quote"
        } else {
            "delimiter"
        };
        return wrong(key, "must not be both the delimiter and the quote");
    }
    Ok(())
}

/// Checks that a decimal point is one character that nothing else means.
fn decimal_point(
    name: &str,
    table: &InputTable,
    decimal: char,
    document: &Document<'_>,
) -> Result<()> {
    let wrong = |what: &str| document.wrong(&["tables", name, "decimal"], what);
    let is_point = decimal.is_ascii_punctuation() && !matches!(decimal, '+' | '-');
    if !is_point {
        return wrong("must be one ASCII character that no number has, such as \",\"");
    }
    if decimal == table.quote.unwrap_or('"') {
        return wrong("must not be the quote");
    }
    let is_tabs = |path: &String| Compression::of_name(path).0.ends_with(".tsv");
    let by_name = if table.path.iter().all(is_tabs) {
        '\t'
    } else {
        ','
    };
    if decimal == table.delimiter.unwrap_or(by_name) {
        return wrong(&format!(
            "is the character between two values, \"{decimal}\"; set `delimiter` to another one"
        ));
    }
    Ok(())
}
