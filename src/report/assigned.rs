//! What `gyre assign` found out about new rows: how many states are new, and how the fits score.

use crate::error::{Result, counted};
use crate::report::facts::Listing;
use crate::report::model::{Model, column};
use crate::report::style::number;
use polars::prelude::{DataType, Expr, len, lit};

/// The endings of columns that name a fit, in the order in which tables are asked.
const ENDINGS: [(&str, &str); 5] = [
    ("sources", "_affiliation"),
    ("points", "_affiliation"),
    ("points", "_embedding"),
    ("trajectories", "_mean_log_likelihood"),
    ("estimates", "_mean"),
];

/// The names of the fits of tables without `fits`, from the names of their columns.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn fits(model: &Model<'_>) -> Result<Vec<String>> {
    let mut found: Vec<String> = Vec::new();
    for (table, ending) in ENDINGS {
        for name in model.columns(table)? {
            let fit = name.strip_suffix(ending).map(str::to_string);
            found.extend(fit.filter(|fit| !found.contains(fit)));
        }
    }
    Ok(found)
}

/// What all fits have in common.
const SHARED: [(&str, &str); 2] = [("unseen", "unseen"), ("is_new", "new")];

/// The numbers of new rows: a sentence, and a table with a row per fit. Nothing for other results.
///
/// # Errors
/// If `sources` cannot be read.
pub(crate) fn summary(model: &Model<'_>) -> Result<Option<(String, Listing)>> {
    let columns = model.columns("sources")?;
    let is_known = |name: &str| columns.iter().any(|known| known == name);
    if model.has("fits") || !is_known("count") {
        return Ok(None);
    }
    let sum = |name: &str| column(name).cast(DataType::Float64).sum();
    let mut wanted: Vec<Expr> = vec![len().alias("states"), sum("count").alias("transitions")];
    for (name, alias) in SHARED {
        if is_known(name) {
            wanted.push(sum(name).alias(alias));
        }
    }
    let fits = fits(model)?;
    for fit in &fits {
        let [likelihood, impossible, lead] =
            ["log_likelihood", "impossible", "lead"].map(|what| format!("{fit}_{what}"));
        for name in [&likelihood, &impossible]
            .into_iter()
            .filter(|name| is_known(name))
        {
            wanted.push(sum(name).alias(name.as_str()));
        }
        if is_known(&lead) {
            let is_other = column(&lead).lt(lit(0.0)).cast(DataType::Float64);
            wanted.push(is_other.sum().alias(lead.as_str()));
        }
    }
    let rows = model.collect("sources", model.scan("sources")?.select(wanted))?;
    let one = |name: &str| rows.floats(name).first().copied().unwrap_or(f64::NAN);
    let row = |fit: &String| {
        let of = |what: &str| number(one(&format!("{fit}_{what}")));
        vec![
            fit.clone(),
            of("log_likelihood"),
            of("impossible"),
            of("lead"),
        ]
    };
    let columns = [
        "fit",
        "log likelihood",
        "impossible transitions",
        "states that the new rows would put in another set",
    ];
    let listing = Listing::new(
        "Scores of the new rows",
        &columns,
        fits.iter().map(row).collect(),
    );
    let count = |name: &str, what: &str| counted(number(one(name)), what);
    let mut sentence = format!(
        "The new rows have {} of {}",
        count("transitions", "transition"),
        count("states", "state")
    );
    let unseen = "transitions to targets that the model has not seen";
    for (name, what) in [("new", "states that are new"), ("unseen", unseen)] {
        let n = one(name);
        if n.is_finite() {
            sentence += &format!("; {what}: {}", number(n));
        }
    }
    Ok(Some((sentence + ".", listing)))
}
