//! Fits and an earlier result → sets that keep their names, and what became of them.
//!
//! In: the models of a run and the current result, or another output that the pipeline names. Out:
//! the same models, whose sets have the numbers that they had before, and their
//! [`TrackedSets`](crate::assess::set_tracking::TrackedSets): ids, events and the size of the
//! change. Fits are matched by partition, lag and name. `assess::match_sets` matches sets, and
//! `families` names the sets of all ranks and lags of one run.
//!
//! A number is less than the rank. `<fit>_affiliation` and `latent` hold numbers. When a set ends,
//! its number is free for another set. An id belongs to one set for ever: the set keeps it even if
//! the rank falls below its number, and no other set gets it. An id means the same set in all ranks
//! and lags of a `[[fit]]` in a partition.

pub(crate) mod earlier;
pub(crate) mod families;

use crate::assess::changes::{Labelled, compare};
use crate::assess::set_tracking::Ids;
use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::output::result::{self, COUNTS, ModelKey, ModelRows, Written, WrittenFit, kind_of};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::plan::counts::CountsPlan;
use crate::plan::pipeline::keys::NamesFrom;
use crate::read::paths::current::Current;
use crate::read::rows::keys::Keys;
use crate::read::rows::states::describe;
use crate::run::sets::earlier::{EarlierSets, key, labelled};
use crate::run::sets::families::name;
use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use std::collections::BTreeMap;
use std::ops::Range;

/// The result of naming the sets of a run.
#[derive(Debug, Default)]
pub(crate) struct Naming {
    /// Whether the current result has the tables of sets and changes of this run already, because
    /// it was made by the same plan.
    pub reuse_sets: bool,
    /// Models that only the earlier result has.
    pub gone: Vec<String>,
}

/// Names the sets of all models. `replaced` is the result that the run will replace. `is_whole`
/// says that no model of the run failed.
///
/// # Errors
/// If `names.from` is not an output of gyre or has other states, or a store fails.
pub(crate) async fn keep(
    plan: &CountsPlan,
    output: &Output,
    replaced: Option<&Current>,
    names: &RunSchema,
    models: &mut [FittedModel],
    is_whole: bool,
) -> Result<Naming> {
    let named_output;
    let earlier = match &plan.names {
        NamesFrom::None => None,
        NamesFrom::Previous => match open(output, replaced.cloned(), names).await {
            // The pipeline does not name this result, so its errors do not stop the run.
            Err(e) if e.kind() == Kind::Input => {
                tracing::warn!("sets get new names: {}", e.full());
                None
            }
            found => found?,
        },
        NamesFrom::Output(location) => {
            named_output = Output::open(location, &plan.job.stores)?;
            let current = named_output.current().await?;
            let found = open(&named_output, current, names)
                .await
                .map_err(|e| e.at("`names.from`"))?;
            Some(found.ok_or_else(|| no_output(location))?)
        }
    };
    let Some(earlier) = earlier else {
        name(plan, names, models, EarlierSets::default());
        return Ok(Naming::default());
    };
    let reuse_sets = plan.names == NamesFrom::Previous
        && is_whole
        && earlier.current.plan == plan.job.hash
        && earlier.current.complete
        && earlier.has(Table::Sets)
        && earlier.has(Table::Changes)
        && earlier.is_intact(Table::Sets).await?
        && earlier.is_intact(Table::Changes).await?;
    // Reused tables need no distances between embeddings.
    let compared = compare_with(&earlier, names, models, !reuse_sets).await;
    let (sets, gone) = match compared {
        // As above.
        Err(e) if e.kind() == Kind::Input && plan.names == NamesFrom::Previous => {
            tracing::warn!("sets get new names: {}", e.full());
            name(plan, names, models, EarlierSets::default());
            return Ok(Naming::default());
        }
        compared => compared?,
    };
    name(plan, names, models, sets);
    Ok(Naming { reuse_sets, gone })
}

/// The error if `names.from` has no result.
fn no_output(location: &str) -> Error {
    Error::spec(format!(
        "`names.from`: there is no output of gyre at {location}; name the output of a run"
    ))
}

/// Checks that the result of `names.from` has sets of states.
///
/// # Errors
/// If there is no result, or a result of other rows.
pub(crate) fn check_named(location: &str, found: Option<&Current>) -> Result<()> {
    match found.and_then(kind_of) {
        Some(COUNTS) => Ok(()),
        None => Err(no_output(location)),
        Some(other) => Err(Error::spec(format!(
            "`names.from`: the result at {location} was made from {other} and has no sets of states; name the output of a run with `[transitions]`"
        ))),
    }
}

/// Opens a result with sets of states. None if there is none.
///
/// # Errors
/// If its partitions or states have other columns than this run.
async fn open<'a>(
    output: &'a Output,
    result: Option<Current>,
    names: &RunSchema,
) -> Result<Option<Written<'a>>> {
    let Some(result) = result else {
        return Ok(None);
    };
    let kind = kind_of(&result).map(String::from);
    let Some(written) = Written::of_kind(COUNTS, output, result).await? else {
        if let Some(other) = kind {
            let at = output.shown();
            tracing::warn!("sets get new names: the result at {at} was made from {other}");
        }
        return Ok(None);
    };
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

/// Whether columns have the same names and types.
pub(crate) fn are_alike(own: &[Field], others: &[Field]) -> bool {
    let alike = |(a, b): (&Field, &Field)| a.name() == b.name() && a.data_type() == b.data_type();
    own.len() == others.len() && own.iter().zip(others).all(alike)
}

/// A column of a table.
///
/// # Errors
/// If there is no such table or column.
pub(crate) async fn column(
    written: &Written<'_>,
    table: impl Into<&'static str>,
    name: &str,
) -> Result<ArrayRef> {
    let mut columns = written.table(table).await?.columns(&[name]).await?;
    Ok(columns.remove(0))
}

/// An error unless two results have the same key columns. `what` names the columns, and `other` is
/// the location of the result with the columns `others`.
pub(crate) fn same_keys(what: &str, other: &str, own: &[Field], others: &[Field]) -> Result<()> {
    let show = |fields: &[Field]| {
        let fields = fields.iter();
        let shown: Vec<String> = fields
            .map(|f| format!("`{}` ({})", f.name(), f.data_type()))
            .collect();
        if shown.is_empty() {
            "no column".to_string()
        } else {
            shown.join(", ")
        }
    };
    if are_alike(own, others) {
        return Ok(());
    }
    Err(Error::input(format!(
        "the result at {other} has {what} by {}, not by {}",
        show(others),
        show(own)
    )))
}

/// Compares every fit with the same fit of the earlier result. Also returns the models that only
/// the earlier result has.
async fn compare_with(
    earlier: &Written<'_>,
    names: &RunSchema,
    models: &[FittedModel],
    embedding: bool,
) -> Result<(EarlierSets, Vec<String>)> {
    let written = earlier.models(Table::Sources).await?;
    let mut rows: BTreeMap<&ModelKey, &Range<usize>> =
        written.iter().map(|m| (&m.key, &m.rows)).collect();
    let keys: Vec<&str> = earlier.sources.iter().map(|f| f.name().as_str()).collect();
    let states = earlier.table(Table::Sources).await?.columns(&keys).await?;
    let states = names.sources.recentered(states);
    let count = column(earlier, Table::Sources, "count").await?;
    let count = result::finite(&count, "count")?;
    // Per model: the rows of the earlier model, and the states that both have.
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
            Some(fit) => Some(read(earlier, fit, embedding).await?),
        };
        let compared = models.iter().zip(&pairs).map(|(model, pairs)| {
            let (rows, shared) = pairs.as_ref()?;
            let before = labels.as_ref()?.rows(rows, &count);
            Some(compare(before, labelled(model, f), shared))
        });
        let of_models = comparisons.iter_mut().zip(compared);
        of_models.for_each(|(of_model, compared)| of_model.push(compared));
    }
    let sets = EarlierSets {
        comparisons,
        ids: ids(earlier).await?,
    };
    Ok((sets, rows.keys().map(|key| earlier.place(key)).collect()))
}

/// The source columns of a written fit, for all models.
pub(crate) struct Labels {
    rank: usize,
    affiliation: Vec<i32>,
    /// Sources × dimensions, row-major. Empty if it was not asked for or has nulls.
    embedding: Vec<f64>,
}

/// Reads the source columns of a written fit, with its embedding if `embedding` is set.
///
/// # Errors
/// If the table cannot be read or a set is not below the rank.
pub(crate) async fn read(
    written: &Written<'_>,
    fit: &WrittenFit,
    embedding: bool,
) -> Result<Labels> {
    let name = format!("{}_affiliation", fit.name);
    let affiliation = result::affiliation(&column(written, Table::Sources, &name).await?)?;
    if affiliation
        .iter()
        .any(|k| !(-1..fit.rank as i32).contains(k))
    {
        return Err(Error::input(format!(
            "`{name}` has a set that is not from -1 to below the rank {}",
            fit.rank
        )));
    }
    let embedding = if embedding {
        let name = format!("{}_embedding", fit.name);
        result::embedding(&column(written, Table::Sources, &name).await?)?
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
    /// The rows of one model. `count` is the count column of all models.
    pub(crate) fn rows<'a>(&'a self, rows: &Range<usize>, count: &'a [f64]) -> Labelled<'a> {
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

/// Pairs of rows, one of each table, that have the same key.
///
/// # Errors
/// If a key occurs twice in `a`.
pub(crate) fn shared(a: &[ArrayRef], b: &[ArrayRef]) -> Result<Vec<(u32, u32)>> {
    in_both(a, b, || Error::input("a written model has a state twice"))
}

/// Pairs of rows, one of each table, that have the same key. `twice` is the error of a key that
/// occurs twice in `a`.
pub(crate) fn in_both(
    a: &[ArrayRef],
    b: &[ArrayRef],
    twice: impl FnOnce() -> Error,
) -> Result<Vec<(u32, u32)>> {
    let types: Vec<_> = a.iter().map(|column| column.data_type().clone()).collect();
    let mut keys = Keys::new(&types)?;
    let mut ids = Vec::new();
    keys.intern(a, &mut ids)?;
    let n = keys.len();
    if n != ids.len() {
        return Err(twice());
    }
    ids.clear();
    keys.intern(b, &mut ids)?;
    let rows = ids.into_iter().enumerate();
    let shared = rows.filter(|(_, id)| (*id as usize) < n);
    Ok(shared.map(|(row, id)| (id, row as u32)).collect())
}

/// The ids that a run gave to its sets, by model and fit. Empty if the result is older than ids.
///
/// # Errors
/// If a table cannot be read.
pub(crate) async fn ids(earlier: &Written<'_>) -> Result<BTreeMap<(ModelKey, String), Ids>> {
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
            result::affiliation(&columns[1])?,
            result::affiliation(&columns[2])?,
        );
        // Ids count sets, one after another.
        if let Some(id) = id.iter().find(|id| !(0..i32::MAX / 2).contains(*id)) {
            let what = format!("the table `{}` has a set with the id {id}", table.name());
            return Err(Error::input(what));
        }
        for ModelRows { key, rows } in models {
            for at in rows {
                let fit = describe(&columns[..1], at);
                let of_fit = ids.entry((key.clone(), fit)).or_default();
                match (table, u32::try_from(number[at])) {
                    (Table::Changes, _) => of_fit.next = id[at] as u32,
                    (_, Ok(number)) => {
                        of_fit.by_number.insert(number, id[at] as u32);
                    }
                    // Sets that ended in that run have no number.
                    (_, Err(_)) => (),
                }
            }
        }
    }
    Ok(ids)
}
