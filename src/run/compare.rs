//! Two outputs → how their sets go together: what `gyre compare` prints.
//!
//! In: two results with the same partition and state columns. Out: for every partition and lag that both have and every pair of fits,
//! the numbers of `reduce::changes` and what became of each set. Numbers of sets are those of their own output; ids are those of A.
//! A set that A does not have is called as in its own output where that is A itself, and else gets a new id.

use crate::assess::changes::compare as compare_partitions;
use crate::assess::set_tracking::{Ids, TrackedSets};
use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::output::place::Output;
use crate::output::result;
use crate::output::result::{ModelKey, Written, WrittenFit};
use crate::output::tables::table::Table;
use crate::run::sets::{ids, read, same_keys, shared};
use crate::run::summary::changed;
use crate::store::Stores;
use arrow::array::ArrayRef;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::ops::Range;

/// What to compare: of A and of B.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    pub a: String,
    pub b: String,
}

/// How two results go together.
#[derive(Debug, Serialize)]
pub struct Report {
    pub a: String,
    pub b: String,
    /// The one lag of each that is compared, where that is asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lags: Option<Pair>,
    pub models: Vec<ModelReport>,
    /// Models that only one of them has, in words.
    pub only_a: Vec<String>,
    pub only_b: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct ModelReport {
    pub partition: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    #[serde(skip)]
    place: String,
    pub fits: Vec<FitReport>,
}

#[derive(Debug, Serialize)]
pub struct FitReport {
    pub fit_a: String,
    pub fit_b: String,
    #[serde(flatten)]
    pub lineage: TrackedSets,
}

/// The states of one result.
struct Side<'a> {
    written: Written<'a>,
    models: BTreeMap<ModelKey, Range<usize>>,
    states: Vec<ArrayRef>,
    count: Vec<f64>,
}

/// Compares the results at two outputs: the fits asked for, or all that both have by name; and one lag with another if `lags` says so,
/// or each with the same.
pub async fn compare(a: &str, b: &str, fits: &[Pair], lags: Option<&Pair>) -> Result<Report> {
    let lags = lags.map(|lags| Pair {
        a: Lag::canonical(&lags.a),
        b: Lag::canonical(&lags.b),
    });
    let lags = lags.as_ref();
    let stores = Stores::default();
    let (output_a, output_b) = (Output::open(a, &stores)?, Output::open(b, &stores)?);
    let one = Side::open(&output_a, lags.map(|lags| lags.a.as_str())).await?;
    let other = Side::open(&output_b, lags.map(|lags| lags.b.as_str())).await?;
    let (w, v) = (&one.written, &other.written);
    same_keys("partitions", a, &v.partition, &w.partition)?;
    same_keys("source states", a, &v.sources, &w.sources)?;
    let pairs = pairs((a, w), (b, v), fits)?;
    let mut models: BTreeMap<&ModelKey, Vec<FitReport>> = one
        .models
        .keys()
        .filter(|key| other.models.contains_key(key))
        .map(|key| (key, Vec::new()))
        .collect();
    if models.is_empty() {
        return Err(Error::input(format!(
            "{a} and {b} have no partition and lag in common; one lag is compared with another by --lag A=B"
        )));
    }
    let mut shared_rows = Vec::with_capacity(models.len());
    for key in models.keys() {
        let rows = |side: &Side<'_>| -> Vec<ArrayRef> {
            let rows = &side.models[*key];
            let columns = side.states.iter();
            columns.map(|c| c.slice(rows.start, rows.len())).collect()
        };
        shared_rows.push(shared(&rows(&one), &rows(&other))?);
    }
    let known = ids(w).await?;
    let is_one = output_a.shown() == output_b.shown();
    for (fit_a, fit_b) in pairs {
        let numbered = Ids::numbers(fit_a.rank);
        let (labels_a, labels_b) = (read(w, fit_a, true).await?, read(v, fit_b, true).await?);
        for ((key, reports), shared) in models.iter_mut().zip(&shared_rows) {
            let comparison = compare_partitions(
                labels_a.rows(&one.models[*key], &one.count),
                labels_b.rows(&other.models[*key], &other.count),
                shared,
            );
            let own: Vec<u32> = (0..fit_b.rank as u32).collect();
            let known = |lag: Option<&String>, fit: &WrittenFit| {
                let lag = lag.or(key.lag.as_ref()).cloned();
                let partition = key.partition.clone();
                known.get(&(ModelKey { lag, partition }, fit.name.clone()))
            };
            let ids = known(lags.map(|lags| &lags.a), fit_a).unwrap_or(&numbered);
            let own_ids = known(lags.map(|lags| &lags.b), fit_b);
            let own_ids = own_ids.filter(|_| is_one && fit_a.family() == fit_b.family());
            let of_a: Vec<u32> = (0..fit_a.rank).map(|k| ids.of(k)).collect();
            let named: Vec<Option<u32>> = own
                .iter()
                .map(|&l| {
                    own_ids
                        .map(|ids| ids.of(l as usize))
                        .filter(|id| !of_a.contains(id))
                })
                .collect();
            reports.push(FitReport {
                fit_a: fit_a.name.clone(),
                fit_b: fit_b.name.clone(),
                lineage: TrackedSets::following(
                    &comparison,
                    &own,
                    ids,
                    &named,
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
                partition: v.partition_of(key),
                lag: key.lag.clone(),
                place: v.place(key),
                fits,
            })
            .collect(),
        only_a: only(&one, &other),
        only_b: only(&other, &one),
        a: a.to_string(),
        b: b.to_string(),
        lags: lags.cloned(),
    })
}

/// The fits to compare, as both results have them.
fn pairs<'a>(
    (a, one): (&str, &'a Written<'_>),
    (b, other): (&str, &'a Written<'_>),
    asked: &[Pair],
) -> Result<Vec<(&'a WrittenFit, &'a WrittenFit)>> {
    let names = |fits: &[WrittenFit]| {
        let names: Vec<String> = fits.iter().map(|f| format!("`{}`", f.name)).collect();
        names.join(", ")
    };
    if asked.is_empty() {
        let pair =
            |fit: &'a WrittenFit| Some((fit, other.fits.iter().find(|f| f.name == fit.name)?));
        let pairs: Vec<_> = one.fits.iter().filter_map(pair).collect();
        if pairs.is_empty() {
            return Err(Error::spec(format!(
                "no fit of {a} ({}) has the name of one of {b} ({}); say which to compare with --fit A=B",
                names(&one.fits),
                names(&other.fits)
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
        let of_a = find(&one.fits, &pair.a).ok_or_else(|| missing(&pair.a, a, &one.fits))?;
        let of_b = find(&other.fits, &pair.b).ok_or_else(|| missing(&pair.b, b, &other.fits))?;
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
                let name = match fit.fit_a == fit.fit_b {
                    true => fit.fit_a.clone(),
                    false => format!("{} → {}", fit.fit_a, fit.fit_b),
                };
                for line in changed(&name, &fit.lineage) {
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
    /// The models of an output; those of one lag lose it from their keys.
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
            count: result::floats(&count[0])?,
            states,
            written,
        })
    }
}
