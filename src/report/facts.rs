//! What a run read, dropped and did, from its record; its certificates, from their table.

use crate::error::Result;
use crate::output::place::Output;
use crate::report::model::Model;
use crate::report::style::number;
use serde_json::Value;

/// A table of text.
pub(crate) struct Listing {
    /// What the rows are.
    pub title: &'static str,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells by row.
    pub rows: Vec<Vec<String>>,
}

impl Listing {
    fn new(title: &'static str, columns: &[&str], rows: Vec<Vec<String>>) -> Listing {
        let columns = columns.iter().map(ToString::to_string).collect();
        Listing {
            title,
            columns,
            rows,
        }
    }
}

/// The record of a run.
///
/// # Errors
/// If the store fails.
pub(crate) async fn record(output: &Output, run: &str) -> Result<Value> {
    let path = output.version_file(run, "run.json");
    Ok(output.get_json(&path).await?.unwrap_or_default())
}

/// At most this number of certificates and checks of a model are listed.
const MOST: usize = 200;

/// What the record says about the input, the time and the memory of a run.
pub(crate) fn of_run(record: &Value) -> Vec<Listing> {
    let seconds = pairs(&record["seconds"]);
    let seconds = Listing::new("Seconds by stage", &["stage", "seconds"], seconds);
    let mut lists = vec![run(record), input(record), seconds];
    let checks = record["checks"].as_array().into_iter().flatten();
    let checks = checks.take(MOST).map(check).collect();
    let columns = ["check", "kind", "value", "limit", "if it fails", ""];
    lists.push(Listing::new("Checks", &columns, checks));
    lists.retain(|list| !list.rows.is_empty());
    lists
}

fn check(check: &Value) -> Vec<String> {
    let text = |key: &str| check[key].as_str().unwrap_or_default().to_string();
    let x = |key: &str| number(check[key].as_f64().unwrap_or(f64::NAN));
    let passed = check["passed"] == true;
    let verdict = if passed { "passed" } else { "failed" };
    let (value, limit) = (x("value"), x("limit"));
    let (name, kind, on) = (text("name"), text("kind"), text("on"));
    vec![name, kind, value, limit, on, verdict.to_string()]
}

/// A time to the second.
pub(crate) fn seconds(time: &str) -> String {
    match time.split_once('.') {
        Some((whole, rest)) if rest.ends_with('Z') => format!("{whole}Z"),
        _ => time.to_string(),
    }
}

fn run(record: &Value) -> Listing {
    let text = |name: &str, key: &str| {
        let value = seconds(record[key].as_str()?);
        Some(vec![name.to_string(), value])
    };
    let threads = record["threads"].as_f64().map(number);
    let memory = record["peak_memory_bytes"].as_f64();
    let memory = memory.map(|bytes| format!("{:.0} MB", bytes / 1e6));
    let mut rows = vec![
        text("pipeline", "pipeline"),
        text("run", "id"),
        text("started", "started"),
        text("finished", "finished"),
        text("gyre", "gyre"),
        threads.map(|n| vec!["threads".to_string(), n]),
        memory.map(|size| vec!["peak memory".to_string(), size]),
    ];
    let versions = record["versions"].as_object().into_iter().flatten();
    let versions = versions.map(|(name, value)| {
        let version = value.as_str().unwrap_or_default();
        Some(vec![name.clone(), version.to_string()])
    });
    rows.extend(versions);
    let rows = rows.into_iter().flatten().collect();
    Listing::new("Run", &["", "value"], rows)
}

fn input(record: &Value) -> Listing {
    let mut rows = Vec::new();
    for (table, files) in record["inputs"].as_object().into_iter().flatten() {
        let n = files.as_array().map_or(0, Vec::len);
        rows.push(vec![format!("files of {table}"), number(n as f64)]);
    }
    for (name, key) in [("bytes", "input_bytes"), ("rows read", "rows_read")] {
        if let Some(n) = record[key].as_f64() {
            rows.push(vec![name.to_string(), number(n)]);
        }
    }
    for row in pairs(&record["rows_dropped"]) {
        rows.push(vec![format!("rows dropped: {}", row[0]), row[1].clone()]);
    }
    for (name, key) in [
        ("gaps longer than max_gap", "gaps"),
        (
            "transitions to a row near the time of the lag",
            "near_pairs",
        ),
    ] {
        if let Some(n) = record[key].as_f64() {
            rows.push(vec![name.to_string(), number(n)]);
        }
    }
    for (table, columns) in record["values_nulled"].as_object().into_iter().flatten() {
        for (column, values) in columns.as_object().into_iter().flatten() {
            let values = number(values.as_f64().unwrap_or(0.0));
            rows.push(vec![
                format!("values of {table}.{column} that became null"),
                values,
            ]);
        }
    }
    Listing::new("Input", &["", "number"], rows)
}

fn pairs(object: &Value) -> Vec<Vec<String>> {
    let pairs = object.as_object().into_iter().flatten();
    let pairs = pairs.filter_map(|(name, value)| Some((name, value.as_f64()?)));
    pairs
        .map(|(name, x)| vec![name.replace('_', " "), number(x)])
        .collect()
}

/// The certificates of a model.
///
/// # Errors
/// If `certificates` cannot be read.
pub(crate) fn certificates(model: &Model<'_>) -> Result<Listing> {
    let (texts, numbers) = (
        ["fit", "certificate", "relation", "holds"],
        ["left_side", "right_side"],
    );
    let rows = model.rows("certificates", &[&texts[..], &numbers].concat())?;
    let texts = texts.map(|name| rows.texts(name));
    let numbers = numbers.map(|name| rows.floats(name));
    let row = |at: usize| {
        let text = |of: &Vec<Option<String>>| of[at].clone().unwrap_or_default();
        let [fit, name, relation, holds] = texts.each_ref().map(text);
        let [left, right] = numbers.each_ref().map(|of| number(of[at]));
        let claim = format!("{left} {} {right}", relation.replace("<=", "≤"));
        let holds = match holds.as_str() {
            "true" => "holds",
            _ => "does not hold",
        };
        vec![fit, name, claim, holds.to_string()]
    };
    let rows = (0..rows.len().min(MOST)).map(row).collect();
    let columns = ["fit", "certificate", "claim", ""];
    Ok(Listing::new("Certificates", &columns, rows))
}

/// The fits of a model with their scalar numbers.
///
/// # Errors
/// If `fits` cannot be read.
pub(crate) fn fits(model: &Model<'_>) -> Result<Listing> {
    let wanted = [
        "method",
        "rank",
        "log_likelihood",
        "coherence",
        "objective",
        "held_out",
        "test_mse",
        "mean_log_score",
        "misclassification_bound",
        "converged",
        "certified",
    ];
    let known = model.columns("fits")?;
    let is_known = |name: &&str| known.iter().any(|k| k == name);
    let columns = ["fit"]
        .into_iter()
        .chain(wanted.into_iter().filter(is_known));
    let columns = columns.collect::<Vec<_>>();
    let rows = model.rows("fits", &columns)?;
    let cells = columns.iter().map(|name| {
        let (texts, floats) = (rows.texts(name), rows.floats(name));
        let is_text = matches!(*name, "fit" | "method" | "converged" | "certified");
        let cell = |(text, x): (Option<String>, f64)| match text {
            Some(text) if is_text => text,
            _ => number(x),
        };
        texts.into_iter().zip(floats).map(cell).collect::<Vec<_>>()
    });
    let cells = cells.collect::<Vec<_>>();
    let kept = columns.iter().zip(&cells);
    // Columns of other methods are empty.
    let kept = kept.filter(|(_, column)| column.iter().any(|cell| cell != "–"));
    let kept = kept.collect::<Vec<_>>();
    let row = |at: usize| kept.iter().map(|(_, column)| column[at].clone()).collect();
    let columns = kept.iter().map(|(name, _)| name.replace('_', " "));
    Ok(Listing {
        title: "Fits",
        columns: columns.collect(),
        rows: (0..rows.len()).map(row).collect(),
    })
}
