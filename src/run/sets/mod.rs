//! Fits and an earlier result → sets that keep their names, and what became of them.
//!
//! In: the models of a run and the result that lasts until it is replaced (or another output that the pipeline names). Out: the same
//! models, in which a set that goes on has the number it had, and their [`TrackedSets`]: an id for every set that is never given to
//! another one, events, and how much changed. Fits are matched by partition, lag and name; how sets are matched is told in
//! `assess::match_sets`, and how the ranks and lags of one run share their names in `family`.
//!
//! A number lies below the rank and is what `<fit>_affiliation` and `latent` hold; when a set ends, its number is free for another.
//! An id outlives that: it goes with a set even where the rank shrinks below its number, and is never used again. It means the same set
//! in all ranks and lags of a `[[fit]]` in a partition.

pub mod earlier;
pub mod families;

use crate::assess::changes::{Labelled, compare};
use crate::assess::set_tracking::Ids;
use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::output::result::{ModelKey, ModelRows, Written, WrittenFit};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::plan::Plan;
use crate::plan::pipeline::keys::NamesFrom;
use crate::read::paths::current::Current;
use crate::read::rows::keys::Keys;
use crate::read::rows::states::describe;
use crate::run::sets::earlier::{Past, key, labelled};
use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use std::collections::BTreeMap;
use std::ops::Range;

/// How the names of a run were given.
#[derive(Debug, Default)]
pub struct Kept {
    /// The tables of sets and changes that are in place hold for this run too: it is the one that made them, run again.
    pub again: bool,
    /// Models of the earlier result that are not in this one.
    pub gone: Vec<String>,
}

/// Gives every set of the models its name. `replaced` is the result that the run will replace; `is_whole`: no model of the run failed.
pub async fn keep(
    plan: &Plan,
    output: &Output,
    replaced: Option<&Current>,
    names: &RunSchema,
    models: &mut [FittedModel],
    is_whole: bool,
) -> Result<Kept> {
    let elsewhere;
    let earlier = match &plan.names {
        NamesFrom::None => None,
        NamesFrom::Previous => match open(output, replaced.cloned(), names).await {
            // Nobody asked for this result to be looked at, so it cannot stop the run.
            Err(e) if e.kind() == Kind::Input => {
                tracing::warn!("sets get new names: {}", e.full());
                None
            }
            found => found?,
        },
        NamesFrom::Output(location) => {
            elsewhere = Output::open(location, &plan.stores)?;
            let there = elsewhere.current().await?;
            let found = open(&elsewhere, there, names)
                .await
                .map_err(|e| e.at("`names.from`"))?;
            Some(found.ok_or_else(|| no_output(location))?)
        }
    };
    let Some(earlier) = earlier else {
        crate::run::sets::families::name(plan, names, models, Past::default());
        return Ok(Kept::default());
    };
    let again = plan.names == NamesFrom::Previous
        && is_whole
        && earlier.current.plan == plan.hash
        && earlier.current.complete
        && earlier.has(Table::Sets)
        && earlier.has(Table::Changes);
    let (past, gone) = past(&earlier, names, models, again).await?;
    crate::run::sets::families::name(plan, names, models, past);
    Ok(Kept { again, gone })
}

/// The error of `names.from` where no run has put a result in place.
pub fn no_output(location: &str) -> Error {
    Error::spec(format!(
        "`names.from`: there is no output of gyre at {location}; name the output of a run"
    ))
}

/// A result of an output, if there is one and its partitions and states are of the kind of this run.
async fn open<'a>(
    output: &'a Output,
    result: Option<Current>,
    names: &RunSchema,
) -> Result<Option<Written<'a>>> {
    let Some(result) = result else {
        return Ok(None);
    };
    let written = Written::of(output, result).await?;
    // An assignment has no sets of its own.
    if !written.has(Table::Fits) {
        return Ok(None);
    }
    let shown = output.shown();
    same_keys("partitions", shown, &names.partition, &written.partition)?;
    same_keys(
        "source states",
        shown,
        &names.sources.fields(),
        &written.sources,
    )?;
    Ok(Some(written))
}

/// An error unless two results have the same key columns.
pub fn same_keys(what: &str, other: &str, own: &[Field], others: &[Field]) -> Result<()> {
    let show = |fields: &[Field]| {
        let fields = fields.iter();
        let shown: Vec<String> = fields
            .map(|f| format!("`{}` ({})", f.name(), f.data_type()))
            .collect();
        match shown.is_empty() {
            true => "no column".to_string(),
            false => shown.join(", "),
        }
    };
    let alike = |(a, b): (&Field, &Field)| a.name() == b.name() && a.data_type() == b.data_type();
    if own.len() == others.len() && own.iter().zip(others).all(alike) {
        return Ok(());
    }
    Err(Error::input(format!(
        "the result at {other} has {what} by {}, not by {}",
        show(others),
        show(own)
    )))
}

/// Compares every fit with that of the earlier result; also returns the models that this run lacks.
async fn past(
    earlier: &Written<'_>,
    names: &RunSchema,
    models: &[FittedModel],
    again: bool,
) -> Result<(Past, Vec<String>)> {
    let written = earlier.models(Table::Sources).await?;
    let mut rows: BTreeMap<&ModelKey, &Range<usize>> =
        written.iter().map(|m| (&m.key, &m.rows)).collect();
    let keys: Vec<&str> = earlier.sources.iter().map(|f| f.name().as_str()).collect();
    let states = earlier.table(Table::Sources).await?.columns(&keys).await?;
    let count = earlier
        .table(Table::Sources)
        .await?
        .columns(&["count"])
        .await?;
    let count = crate::output::result::floats(&count[0])?;
    // The states that each model shares with the earlier one, whose rows they are in.
    let mut pairs = Vec::with_capacity(models.len());
    for model in models {
        pairs.push(match rows.remove(&key(names, model)) {
            None => None,
            Some(rows) => {
                let own = names.sources.columns(&model.counts.source_states)?;
                let others: Vec<ArrayRef> = states
                    .iter()
                    .map(|c| c.slice(rows.start, rows.len()))
                    .collect();
                Some((rows, shared(&others, &own)?))
            }
        });
    }
    let mut comparisons = vec![Vec::with_capacity(names.fits.len()); models.len()];
    for (f, columns) in names.fits.iter().enumerate() {
        let known = earlier.fits.iter().find(|fit| fit.name == columns.name);
        let labels = match known {
            None => None,
            Some(fit) => Some(read(earlier, fit, !again).await?),
        };
        let compared = models.iter().zip(&pairs).map(|(model, pairs)| {
            let (rows, shared) = pairs.as_ref()?;
            let before = labels.as_ref()?.rows(rows, &count);
            Some(compare(before, labelled(model, f), shared))
        });
        let of_models = comparisons.iter_mut().zip(compared);
        of_models.for_each(|(of_model, compared)| of_model.push(compared));
    }
    let past = Past {
        comparisons,
        ids: ids(earlier).await?,
    };
    Ok((past, rows.keys().map(|key| earlier.place(key)).collect()))
}

/// The columns of a written fit, of all models.
pub struct Labels {
    rank: usize,
    affiliation: Vec<i32>,
    /// Empty where it is not asked for, or not whole.
    embedding: Vec<f64>,
}

/// Reads what a written fit says of its sources.
pub async fn read(written: &Written<'_>, fit: &WrittenFit, embedding: bool) -> Result<Labels> {
    let table = written.table(Table::Sources).await?;
    let column = format!("{}_affiliation", fit.name);
    let affiliation = crate::output::result::affiliation(&table.columns(&[&column]).await?[0])?;
    if affiliation.iter().any(|&k| k >= fit.rank as i32) {
        return Err(Error::input(format!(
            "`{column}` has a set that is not below the rank {}",
            fit.rank
        )));
    }
    let embedding = if embedding {
        let table = written.table(Table::Sources).await?;
        let column = format!("{}_embedding", fit.name);
        crate::output::result::embedding(&table.columns(&[&column]).await?[0])?
    } else {
        None
    };
    Ok(Labels {
        rank: fit.rank,
        affiliation,
        embedding: embedding.unwrap_or_default(),
    })
}

impl Labels {
    /// The rows of one model; `count` is the column of all.
    pub fn rows<'a>(&'a self, rows: &Range<usize>, count: &'a [f64]) -> Labelled<'a> {
        let width = self.embedding.len().checked_div(count.len()).unwrap_or(0);
        Labelled {
            rank: self.rank,
            affiliation: &self.affiliation[rows.clone()],
            amount: &count[rows.clone()],
            unit: 0,
            embedding: &self.embedding[rows.start * width..rows.end * width],
        }
    }
}

/// The rows of two tables of states that have the same key, of which each table has every one once.
pub fn shared(a: &[ArrayRef], b: &[ArrayRef]) -> Result<Vec<(u32, u32)>> {
    let types: Vec<_> = a.iter().map(|column| column.data_type().clone()).collect();
    let mut keys = Keys::new(&types)?;
    let mut ids = Vec::new();
    keys.intern(a, &mut ids)?;
    let n = keys.len();
    if n != ids.len() {
        return Err(Error::input("a written state stands twice in its model"));
    }
    ids.clear();
    keys.intern(b, &mut ids)?;
    let rows = ids.into_iter().enumerate();
    let shared = rows.filter(|(_, id)| (*id as usize) < n);
    Ok(shared.map(|(row, id)| (id, row as u32)).collect())
}

/// The ids that a run gave to its sets, by model and fit; none where it is older than ids.
pub async fn ids(earlier: &Written<'_>) -> Result<BTreeMap<(ModelKey, String), Ids>> {
    let mut ids: BTreeMap<(ModelKey, String), Ids> = BTreeMap::new();
    if !earlier.has(Table::Sets) || !earlier.has(Table::Changes) {
        return Ok(ids);
    }
    for (table, columns) in [
        (Table::Sets, ["fit", "set_id", "latent"]),
        (Table::Changes, ["fit", "next_id", "next_id"]),
    ] {
        let models = earlier.models(table).await?;
        let columns = earlier.table(table).await?.columns(&columns).await?;
        let (id, number) = (
            crate::output::result::affiliation(&columns[1])?,
            crate::output::result::affiliation(&columns[2])?,
        );
        for ModelRows { key, rows } in models {
            for at in rows {
                let fit = describe(&columns[..1], at);
                let of_fit = ids.entry((key.clone(), fit)).or_default();
                match (table, u32::try_from(number[at])) {
                    (Table::Changes, _) => of_fit.next = id[at] as u32,
                    (_, Ok(number)) => {
                        of_fit.by_number.insert(number, id[at] as u32);
                    }
                    // A set that ended in that run.
                    (_, Err(_)) => (),
                }
            }
        }
    }
    Ok(ids)
}
