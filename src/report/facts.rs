//! What a run read, dropped and did, from its record; its certificates, from their table.

use crate::assess::thin_sets::{self, thin_sets};
use crate::error::Result;
use crate::output::place::Output;
use crate::report::model::Model;
use crate::report::style::{by_rank, number};
use serde_json::Value;

/// A table of text.
pub(crate) struct Listing {
    /// What the rows are.
    pub title: String,
    /// Names of the columns.
    pub columns: Vec<String>,
    /// Cells by row.
    pub rows: Vec<Vec<String>>,
    /// Whether the page shows the title alone, which opens the table.
    pub is_folded: bool,
}

impl Listing {
    pub(crate) fn new(title: &str, columns: &[&str], rows: Vec<Vec<String>>) -> Listing {
        let columns = columns.iter().map(ToString::to_string).collect();
        Listing {
            title: title.to_string(),
            columns,
            rows,
            is_folded: false,
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

/// The certificates of a model: one line that opens, unless one of them does not hold.
///
/// # Errors
/// If `certificates` cannot be read.
pub(crate) fn certificates(model: &Model<'_>) -> Result<Listing> {
    let (texts, numbers) = (
        ["fit", "certificate", "relation", "holds"],
        ["left_side", "right_side", "tolerance"],
    );
    let rows = model.rows("certificates", &[&texts[..], &numbers].concat())?;
    let texts = texts.map(|name| rows.texts(name));
    let numbers = numbers.map(|name| rows.floats(name));
    let verdicts = texts[3].iter().map(Option::as_deref).map(verdict);
    let verdicts = verdicts.collect::<Vec<_>>();
    let row = |at: usize| {
        let text = |of: &Vec<Option<String>>| of[at].clone().unwrap_or_default();
        let [fit, name, relation, _] = texts.each_ref().map(text);
        let [left, right, tolerance] = numbers.each_ref().map(|of| of[at]);
        let claim = claim([left, right], &relation, tolerance);
        vec![fit, name, claim, verdicts[at].to_string()]
    };
    // Those that do not hold come first.
    let mut order = (0..rows.len()).collect::<Vec<_>>();
    order.sort_by_key(|at| verdicts[*at] != BROKEN);
    let shown = order.into_iter().take(MOST).map(row).collect();
    let number_of = |what: &str| verdicts.iter().filter(|verdict| **verdict == what).count();
    let title = certificates_title([number_of(HOLDS), number_of(BROKEN), number_of(UNMET)]);
    let columns = ["fit", "certificate", "claim", ""];
    Ok(Listing {
        is_folded: number_of(BROKEN) == 0,
        ..Listing::new(&title, &columns, shown)
    })
}

const HOLDS: &str = "holds";
const BROKEN: &str = "does not hold";
const UNMET: &str = "a condition is not met";

fn verdict(holds: Option<&str>) -> &'static str {
    match holds {
        Some("true") => HOLDS,
        Some(_) => BROKEN,
        None => UNMET,
    }
}

/// How many certificates hold, do not hold, and have a condition that is not met.
fn certificates_title(numbers: [usize; 3]) -> String {
    let counts = match numbers {
        [1, 0, 0] => "the only one holds".to_string(),
        [n, 0, 0] => format!("all {n} hold"),
        [n, 0, _] => format!("{n} hold"),
        [n, broken, unmet] => format!("{broken} of {} do not hold", n + broken + unmet),
    };
    let unmet = match numbers[2] {
        0 => String::new(),
        n => format!("; of {n}, a condition is not met"),
    };
    format!("Certificates: {counts}{unmet}")
}

/// A claim with the rounding that it allows, without which an equality of doubles reads as false.
fn claim([left, right]: [f64; 2], relation: &str, tolerance: f64) -> String {
    let relation = relation.replace("<=", "≤");
    let text = format!("{} {relation} {}", number(left), number(right));
    match tolerance {
        t if t > 0.0 => format!("{text} ± {t:.0e}"),
        _ => text,
    }
}

/// The fits of a model with their scalar numbers.
///
/// # Errors
/// If `fits` cannot be read.
pub(crate) fn fits(model: &Model<'_>) -> Result<Listing> {
    let wanted = [
        "method",
        "rank",
        "transitions",
        "log_likelihood",
        "reference_log_likelihood",
        "coherence",
        "objective",
        "held_out",
        "test_mse",
        "mean_log_score",
        "misclassification_bound",
        "converged",
        "certified",
        "source_sizes",
    ];
    let known = model.columns("fits")?;
    let is_known = |name: &&str| known.iter().any(|k| k == name);
    let columns = ["fit"]
        .into_iter()
        .chain(wanted.into_iter().filter(is_known));
    let columns = columns.collect::<Vec<_>>();
    let rows = model.rows("fits", &columns)?;
    let warnings = warnings(model)?;
    let warnings = warnings.iter().map(|(_, own)| match own.as_slice() {
        [] => number(f64::NAN),
        own => own.join("; "),
    });
    let cells = columns.iter().map(|name| {
        if *name == "source_sizes" {
            let sizes = rows.lists(name);
            return sizes.iter().map(|sizes| sizes_of(sizes)).collect();
        }
        let (texts, floats) = (rows.texts(name), rows.floats(name));
        let is_text = matches!(*name, "fit" | "method" | "converged" | "certified");
        let cell = |(text, x): (Option<String>, f64)| match text {
            Some(text) if is_text => text,
            _ => number(x),
        };
        texts.into_iter().zip(floats).map(cell).collect::<Vec<_>>()
    });
    let cells = cells.chain([warnings.collect()]);
    let cells = cells.collect::<Vec<Vec<String>>>();
    let kept = columns.iter().chain(&["warning"]).zip(&cells);
    // Columns of other methods are empty.
    let kept = kept.filter(|(_, column)| column.iter().any(|cell| cell != "–"));
    let kept = kept.collect::<Vec<_>>();
    let row = |at: usize| kept.iter().map(|(_, column)| column[at].clone()).collect();
    let order = by_rank(&cells[0]);
    let heading = |name: &str| match name {
        "reference_log_likelihood" => "log likelihood of reference".to_string(),
        "source_sizes" => "set sizes".to_string(),
        name => name.replace('_', " "),
    };
    let columns = kept.iter().map(|(name, _)| heading(name));
    Ok(Listing {
        columns: columns.collect(),
        ..Listing::new("Fits", &[], order.into_iter().map(row).collect())
    })
}

/// What makes each fit of a model doubtful, in the order of `fits`.
///
/// # Errors
/// If `fits` cannot be read.
pub(crate) fn warnings(model: &Model<'_>) -> Result<Vec<(String, Vec<String>)>> {
    let columns = ["fit", "converged", "certified", "weights", "warnings"];
    let rows = model.rows("fits", &columns)?;
    let (fits, weights) = (rows.texts("fit"), rows.lists("weights"));
    let [converged, certified] = ["converged", "certified"].map(|name| rows.texts(name));
    let own = rows.text_lists("warnings");
    let of_fit = |at: usize| {
        let mut found = Vec::new();
        if converged[at].as_deref() == Some("false") {
            found.push("it did not converge".to_string());
        }
        if certified[at].as_deref() == Some("false") {
            found.push("a certificate does not hold".to_string());
        }
        found.extend(thin_sets::warning(&thin_sets(&weights[at])));
        found.extend(own[at].iter().cloned());
        (fits[at].clone().unwrap_or_default(), found)
    };
    Ok((0..rows.len()).map(of_fit).collect())
}

/// At most this number of sizes in a cell.
const SIZES: usize = 12;

/// The numbers of states in the sets of a fit, in the order of the sets.
fn sizes_of(sizes: &[f64]) -> String {
    if sizes.is_empty() {
        return number(f64::NAN);
    }
    let shown = sizes.iter().take(SIZES).map(|x| number(*x));
    let shown = shown.collect::<Vec<_>>().join(" ");
    match sizes.len() {
        n if n > SIZES => format!("{shown} and {} more", n - SIZES),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_show_their_tolerance() {
        assert_eq!(claim([1.7e-18, 0.0], "=", 1e-9), "1.7000e-18 = 0 ± 1e-9");
        assert_eq!(claim([0.5, 1.0], "<=", 0.0), "0.5 ≤ 1");
        assert_eq!(claim([0.5, 1.0], "<=", f64::NAN), "0.5 ≤ 1");
    }

    #[test]
    fn titles_count_certificates() {
        let shown = [[18, 0, 0], [1, 0, 0], [16, 2, 0], [16, 0, 2]].map(certificates_title);
        let expected = [
            "Certificates: all 18 hold",
            "Certificates: the only one holds",
            "Certificates: 2 of 18 do not hold",
            "Certificates: 16 hold; of 2, a condition is not met",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn sizes_of_many_sets_are_cut() {
        assert_eq!(sizes_of(&[1000.0, 2.0]), "1,000 2");
        let many = (0..14).map(f64::from).collect::<Vec<_>>();
        assert!(sizes_of(&many).ends_with(" 10 11 and 2 more"));
        assert_eq!(sizes_of(&[]), "–");
    }
}
