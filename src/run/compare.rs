//! Compares the sets of two outputs, A and B, for `gyre compare`.
//!
//! In: two results with the same partition and state columns. Out: for every common partition and
//! lag and every pair of fits, the numbers of `assess::changes` and what became of each set. The
//! number of a set is that of its own output, and its id is that of A. A set of B that A does not
//! have keeps its id if A and B are the same output, and gets a new id otherwise.

use crate::assess::changes::compare as compare_partitions;
use crate::assess::set_tracking::{Ids, TrackedSets};
use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::output::place::Output;
use crate::output::result::{COUNTS, ModelKey, Written, WrittenFit, finite};
use crate::output::tables::table::Table;
use crate::run::counts::record::change_lines;
use crate::run::sets::{ids, read, same_keys, shared};
use crate::store::Stores;
use arrow::array::ArrayRef;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::ops::Range;

/// The names of two fits, or two lags, to compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The fit or lag of A.
    pub a: String,
    /// The fit or lag of B.
    pub b: String,
}

/// The comparison of two results.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The location of A.
    pub a: String,
    /// The location of B.
    pub b: String,
    /// The lags that are compared, if one lag is compared with another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lags: Option<Pair>,
    /// The models that both results have.
    pub models: Vec<ModelReport>,
    /// The places of models that only A has.
    pub only_a: Vec<String>,
    /// The places of models that only B has.
    pub only_b: Vec<String>,
}

/// The comparison of one partition and lag.
#[derive(Debug, Serialize)]
pub struct ModelReport {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    /// The common lag. None for pairs, or if one lag is compared with another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    #[serde(skip)]
    place: String,
    /// One entry per pair of fits.
    pub fits: Vec<FitReport>,
}

/// The comparison of two fits.
#[derive(Debug, Serialize)]
pub struct FitReport {
    /// The name of the fit of A.
    pub fit_a: String,
    /// The name of the fit of B.
    pub fit_b: String,
    /// What became of the sets of A in B.
    #[serde(flatten)]
    pub lineage: TrackedSets,
}

/// The source states of one result.
struct Side<'a> {
    written: Written<'a>,
    models: BTreeMap<ModelKey, Range<usize>>,
    states: Vec<ArrayRef>,
    count: Vec<f64>,
}

/// The kind of the evidence of the results at two outputs.
///
/// # Errors
/// If they are of two kinds.
pub async fn row_kind(a: &str, b: &str) -> Result<String> {
    let mut kinds = Vec::new();
    for at in [a, b] {
        let output = Output::open(at, &Stores::default())?;
        // The comparison has the error of an output without a result.
        if let Some(current) = output.current().await? {
            kinds.push((at, Written::of(&output, current).await?.kind));
        }
    }
    match &kinds[..] {
        [(a, of_a), (b, of_b)] if of_a != of_b => Err(Error::input(format!(
            "{a} has {of_a} and {b} has {of_b}, which cannot be compared"
        ))),
        [(_, kind), ..] => Ok(kind.clone()),
        [] => Ok(COUNTS.into()),
    }
}

/// Compares the results at two outputs. `fits` are the fits to compare; if it is empty, fits of the
/// same name are compared. `lags` compares one lag with another; otherwise equal lags are compared.
///
/// # Errors
/// If an output has no result, a fit or lag does not exist, the columns differ, or nothing is
/// common.
pub async fn compare(a: &str, b: &str, fits: &[Pair], lags: Option<&Pair>) -> Result<Report> {
    let lags = lags.map(|lags| Pair {
        a: Lag::canonical(&lags.a),
        b: Lag::canonical(&lags.b),
    });
    let lags = lags.as_ref();
    let stores = Stores::default();
    let (output_a, output_b) = (Output::open(a, &stores)?, Output::open(b, &stores)?);
    let side_a = Side::open(&output_a, lags.map(|lags| lags.a.as_str())).await?;
    let side_b = Side::open(&output_b, lags.map(|lags| lags.b.as_str())).await?;
    let (written_a, written_b) = (&side_a.written, &side_b.written);
    same_keys("partitions", a, &written_b.partition, &written_a.partition)?;
    same_keys("source states", a, &written_b.sources, &written_a.sources)?;
    let pairs = pairs(a, written_a, b, written_b, fits)?;
    let mut models: BTreeMap<&ModelKey, Vec<FitReport>> = side_a
        .models
        .keys()
        .filter(|key| side_b.models.contains_key(key))
        .map(|key| (key, Vec::new()))
        .collect();
    if models.is_empty() {
        return Err(Error::input(format!(
            "{a} and {b} have no partition and lag in common; compare one lag with another with --lag A=B"
        )));
    }
    let mut shared_rows = Vec::with_capacity(models.len());
    for key in models.keys() {
        let rows = |side: &Side<'_>| -> Vec<ArrayRef> {
            let rows = &side.models[*key];
            let columns = side.states.iter();
            columns.map(|c| c.slice(rows.start, rows.len())).collect()
        };
        shared_rows.push(shared(&rows(&side_a), &rows(&side_b))?);
    }
    let ids_of_a = ids(written_a).await?;
    let is_same_output = output_a.shown() == output_b.shown();
    for (fit_a, fit_b) in pairs {
        let numbered = Ids::numbers(fit_a.rank);
        let labels_a = read(written_a, fit_a, true).await?;
        let labels_b = read(written_b, fit_b, true).await?;
        for ((key, reports), shared) in models.iter_mut().zip(&shared_rows) {
            let comparison = compare_partitions(
                labels_a.rows(&side_a.models[*key], &side_a.count),
                labels_b.rows(&side_b.models[*key], &side_b.count),
                shared,
            );
            let numbers_b: Vec<u32> = (0..fit_b.rank as u32).collect();
            let known = |lag: Option<&String>, fit: &WrittenFit| {
                let lag = lag.or(key.lag.as_ref()).cloned();
                let partition = key.partition.clone();
                ids_of_a.get(&(ModelKey { lag, partition }, fit.name.clone()))
            };
            let ids = known(lags.map(|lags| &lags.a), fit_a).unwrap_or(&numbered);
            let ids_b = known(lags.map(|lags| &lags.b), fit_b)
                .filter(|_| is_same_output && fit_a.family() == fit_b.family());
            let taken: Vec<u32> = (0..fit_a.rank).map(|k| ids.of(k)).collect();
            let ids_of_new_sets: Vec<Option<u32>> = (0..fit_b.rank)
                .map(|l| ids_b.map(|ids| ids.of(l)).filter(|id| !taken.contains(id)))
                .collect();
            reports.push(FitReport {
                fit_a: fit_a.name.clone(),
                fit_b: fit_b.name.clone(),
                lineage: TrackedSets::following(
                    &comparison,
                    &numbers_b,
                    ids,
                    &ids_of_new_sets,
                    &mut ids.next.clone(),
                ),
            });
        }
    }
    let only = |own: &Side<'_>, others: &Side<'_>| {
        let keys = own.models.keys();
        keys.filter(|key| !others.models.contains_key(key))
            .map(|key| own.written.place(key))
            .collect()
    };
    Ok(Report {
        models: models
            .into_iter()
            .map(|(key, fits)| ModelReport {
                partition: written_b.partition_of(key),
                lag: key.lag.clone(),
                place: written_b.place(key),
                fits,
            })
            .collect(),
        only_a: only(&side_a, &side_b),
        only_b: only(&side_b, &side_a),
        a: a.to_string(),
        b: b.to_string(),
        lags: lags.cloned(),
    })
}

/// The fits to compare: `asked`, or else all fits of the same name.
fn pairs<'a>(
    a: &str,
    written_a: &'a Written<'_>,
    b: &str,
    written_b: &'a Written<'_>,
    asked: &[Pair],
) -> Result<Vec<(&'a WrittenFit, &'a WrittenFit)>> {
    let names = |fits: &[WrittenFit]| {
        let names: Vec<String> = fits.iter().map(|f| format!("`{}`", f.name)).collect();
        names.join(", ")
    };
    if asked.is_empty() {
        let pair = |fit: &'a WrittenFit| Some((fit, find(&written_b.fits, &fit.name)?));
        let pairs: Vec<_> = written_a.fits.iter().filter_map(pair).collect();
        let sides = [(a, written_a), (b, written_b)];
        if let Some((place, _)) = sides.iter().find(|(_, side)| side.fits.is_empty()) {
            let message = format!("{place} has no fit with sets to compare");
            return Err(Error::spec(message));
        }
        if pairs.is_empty() {
            return Err(Error::spec(format!(
                "{a} has the fits {} and {b} has the fits {}, none of the same name; name two fits to compare with --fit A=B",
                names(&written_a.fits),
                names(&written_b.fits)
            )));
        }
        return Ok(pairs);
    }
    fn find<'a>(fits: &'a [WrittenFit], name: &str) -> Option<&'a WrittenFit> {
        fits.iter().find(|f| f.name == name)
    }
    let missing = |name: &str, place: &str, fits: &[WrittenFit]| {
        let known = names(fits);
        Error::spec(format!(
            "--fit: {place} has no fit `{name}`; it has {known}"
        ))
    };
    let pair = |pair: &Pair| {
        let fits = (&written_a.fits, &written_b.fits);
        let of_a = find(fits.0, &pair.a).ok_or_else(|| missing(&pair.a, a, fits.0))?;
        let of_b = find(fits.1, &pair.b).ok_or_else(|| missing(&pair.b, b, fits.1))?;
        Ok((of_a, of_b))
    };
    asked.iter().map(pair).collect()
}

impl Display for Report {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.lags {
            Some(lags) => write!(f, "{}, lag {} → {}, lag {}", self.a, lags.a, self.b, lags.b)?,
            None => write!(f, "{} → {}", self.a, self.b)?,
        }
        for model in &self.models {
            if !model.place.is_empty() {
                write!(f, "\n\n{}", model.place)?;
            }
            for fit in &model.fits {
                let name = if fit.fit_a == fit.fit_b {
                    fit.fit_a.clone()
                } else {
                    format!("{} → {}", fit.fit_a, fit.fit_b)
                };
                for line in change_lines(&name, &fit.lineage) {
                    write!(f, "\n  {line}")?;
                }
            }
        }
        for (place, models) in [(&self.a, &self.only_a), (&self.b, &self.only_b)] {
            if !models.is_empty() {
                write!(f, "\n\nonly in {place}: {}", models.join("; "))?;
            }
        }
        Ok(())
    }
}

impl<'a> Side<'a> {
    /// Reads the models of an output. With `lag`, only the models of this lag, whose keys then have
    /// no lag.
    async fn open(output: &'a Output, lag: Option<&str>) -> Result<Side<'a>> {
        let Some(written) = Written::open(output).await? else {
            let shown = output.shown();
            return Err(Error::input(format!(
                "there is no output of gyre at {shown}: give the output of a run"
            )));
        };
        let mut models = written.models(Table::Sources).await?;
        if let Some(lag) = lag {
            let mut known: Vec<_> = models.iter().filter_map(|m| m.key.lag.as_deref()).collect();
            known.sort_by(|a, b| Lag::texts_by_length(a, b));
            known.dedup();
            if !known.contains(&lag) {
                let known = known.iter().map(|lag| format!("`{lag}`"));
                let known = known.collect::<Vec<_>>().join(", ");
                let known = if known.is_empty() { "none" } else { &known };
                let shown = output.shown();
                return Err(Error::spec(format!(
                    "--lag: {shown} has no lag `{lag}`; it has {known}"
                )));
            }
            models.retain(|m| m.key.lag.as_deref() == Some(lag));
            models.iter_mut().for_each(|m| m.key.lag = None);
        }
        let table = written.table(Table::Sources).await?;
        let names = written.sources.iter().map(|f| f.name().as_str());
        let names: Vec<&str> = names.chain(["count"]).collect();
        let mut states = table.columns(&names).await?;
        let count = states.split_off(names.len() - 1);
        Ok(Side {
            models: models.into_iter().map(|m| (m.key, m.rows)).collect(),
            count: finite(&count[0], "count")?,
            states,
            written,
        })
    }
}
