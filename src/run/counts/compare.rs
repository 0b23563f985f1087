//! Compares the sets of two results: for every pair of fits, the numbers of `assess::changes` and
//! what became of each set.
//!
//! The number of a set is that of its own output, and its id is that of A. A set of B that A does
//! not have keeps its id if A and B are the same output, and gets a new id otherwise.

use crate::assess::changes::compare as compare_partitions;
use crate::assess::set_tracking::{Ids, TrackedSets};
use crate::error::{Error, Result, counted};
use crate::output::number::grouped;
use crate::output::result::{ModelKey, Written, WrittenFit, finite};
use crate::output::tables::table::Table;
use crate::run::compare::{CompareSide, Compares, Pair, fit_names, pairs};
use crate::run::counts::kind::CountsKind;
use crate::run::counts::record::change_lines;
use crate::run::sets::{ids, read, same_keys, shared};
use arrow::array::ArrayRef;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// The comparison of the sets of one partition and lag.
#[derive(Debug, Serialize)]
pub(crate) struct ComparedSets {
    /// Source states that both models have.
    pub states: usize,
    /// One entry per pair of fits.
    pub fits: Vec<FitReport>,
}

/// The comparison of two fits.
#[derive(Debug, Serialize)]
pub(crate) struct FitReport {
    /// The name of the fit of A.
    pub fit_a: String,
    /// The name of the fit of B.
    pub fit_b: String,
    /// What became of the sets of A in B.
    #[serde(flatten)]
    pub lineage: TrackedSets,
}

impl Compares for CountsKind {
    type Compared = ComparedSets;

    async fn compare(
        a: &CompareSide<'_>,
        b: &CompareSide<'_>,
        fits: &[Pair],
    ) -> Result<Vec<(ModelKey, ComparedSets)>> {
        let (written_a, written_b) = (&a.written, &b.written);
        let (own, others) = (&written_b.sources, &written_a.sources);
        same_keys("source states", a.at, own, others)?;
        for side in [a, b] {
            if fits.is_empty() && side.written.fits.is_empty() {
                let message = format!("{} has no fit with sets to compare", side.at);
                return Err(Error::spec(message));
            }
        }
        let names = |side: &CompareSide<'_>| -> Vec<String> {
            side.written.fits.iter().map(|f| f.name.clone()).collect()
        };
        let pairs = pairs((a.at, &names(a)), (b.at, &names(b)), fits)?;
        let (states_a, states_b) = (States::of(a).await?, States::of(b).await?);
        let mut models = Vec::new();
        for key in a.common(b) {
            let shared = shared(&states_a.of_model(key), &states_b.of_model(key))?;
            let compared = ComparedSets {
                states: shared.len(),
                fits: Vec::new(),
            };
            models.push((key.clone(), compared, shared));
        }
        let ids_of_a = ids(written_a).await?;
        let is_same_output = a.at == b.at;
        for (fit_a, fit_b) in pairs {
            let (fit_a, fit_b) = (fit(written_a, &fit_a)?, fit(written_b, &fit_b)?);
            let numbered = Ids::numbers(fit_a.rank);
            let labels_a = read(written_a, fit_a, true).await?;
            let labels_b = read(written_b, fit_b, true).await?;
            for (key, compared, shared) in &mut models {
                let comparison = compare_partitions(
                    labels_a.rows(&states_a.models[key], &states_a.count),
                    labels_b.rows(&states_b.models[key], &states_b.count),
                    shared,
                );
                let numbers_b: Vec<u32> = (0..fit_b.rank as u32).collect();
                let known = |side: &CompareSide<'_>, fit: &WrittenFit| {
                    ids_of_a.get(&(side.key(key), fit.name.clone()))
                };
                let ids = known(a, fit_a).unwrap_or(&numbered);
                let ids_b =
                    known(b, fit_b).filter(|_| is_same_output && fit_a.family() == fit_b.family());
                let taken: Vec<u32> = (0..fit_a.rank).map(|k| ids.of(k)).collect();
                let ids_of_new_sets: Vec<Option<u32>> = (0..fit_b.rank)
                    .map(|l| ids_b.map(|ids| ids.of(l)).filter(|id| !taken.contains(id)))
                    .collect();
                compared.fits.push(FitReport {
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
        let models = models.into_iter();
        Ok(models.map(|(key, compared, _)| (key, compared)).collect())
    }
}

fn fit<'w>(written: &'w Written<'_>, name: &str) -> Result<&'w WrittenFit> {
    let fit = written.fits.iter().find(|fit| fit.name == name);
    fit.ok_or_else(|| Error::bug("a fit is not there"))
}

/// The source states of one result.
struct States {
    models: BTreeMap<ModelKey, Range<usize>>,
    columns: Vec<ArrayRef>,
    count: Vec<f64>,
}

impl States {
    async fn of(side: &CompareSide<'_>) -> Result<States> {
        let written = &side.written;
        let models = written.models(Table::Sources).await?.into_iter();
        let models = models.filter_map(|own| {
            let Some(lag) = &side.lag else {
                return Some((own.key, own.rows));
            };
            let key = ModelKey {
                lag: None,
                ..own.key.clone()
            };
            (own.key.lag.as_ref() == Some(lag)).then_some((key, own.rows))
        });
        let names = written.sources.iter().map(|f| f.name().as_str());
        let names: Vec<&str> = names.chain(["count"]).collect();
        let table = written.table(Table::Sources).await?;
        let mut columns = table.columns(&names).await?;
        let count = columns.split_off(names.len() - 1);
        Ok(States {
            models: models.collect(),
            columns,
            count: finite(&count[0], "count")?,
        })
    }

    /// The key columns of the states of a model.
    fn of_model(&self, key: &ModelKey) -> Vec<ArrayRef> {
        let rows = self.models.get(key).cloned().unwrap_or_default();
        let columns = self.columns.iter();
        columns.map(|c| c.slice(rows.start, rows.len())).collect()
    }
}

impl Display for ComparedSets {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let states = counted(grouped(self.states as f64), "common state");
        write!(f, "{states}")?;
        for fit in &self.fits {
            let name = fit_names(&fit.fit_a, &fit.fit_b);
            for line in change_lines(&name, &fit.lineage) {
                write!(f, "\n  {line}")?;
            }
        }
        Ok(())
    }
}
