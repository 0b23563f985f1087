//! Fits and an earlier result → sets that keep their names, and what became of them.
//!
//! In: the models of a run and the result that lasts until it is replaced (or another output that the pipeline names). Out: the same
//! models, in which a set that goes on has the number it had, and their [`Lineage`]: an id for every set that is never given to
//! another one, events, and how much changed. Fits are matched by partition, lag and name; how sets are matched is told in
//! `reduce::succession`, and how the ranks and lags of one run share their names in `family`.
//!
//! A number lies below the rank and is what `<fit>_affiliation` and `latent` hold; when a set ends, its number is free for another.
//! An id outlives that: it goes with a set even where the rank shrinks below its number, and is never used again. It means the same set
//! in all ranks and lags of a `[[fit]]` in a partition.

use crate::count::{Keys, describe, key_text};
use crate::error::{Error, Kind, Result};
use crate::family;
use crate::plan::Plan;
use crate::reduce::changes::{Changes, Comparison, Labelled, compare, sizes};
use crate::reduce::succession::Event;
use crate::spec::NamesFrom;
use crate::write::{Current, Model, Names, Output, Table};
use crate::written::{self, ModelKey, ModelRows, Written, WrittenFit};
use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::ops::Range;

/// The sets of one fit and where they come from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lineage {
    /// What stands for the earlier fit, where a run says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<Reference>,
    /// By id; sets that ended are among them.
    pub sets: Vec<Set>,
    /// The id of the next set that is new.
    pub next_id: u32,
    /// Nothing where there is no earlier fit.
    pub changes: Option<Changes>,
}

/// The earlier fit: the one that a fit has its names from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// That of the earlier result.
    Earlier,
    /// That of another lag of the same run.
    Lag(String),
    /// That of another rank of the same run.
    Rank(usize),
}

impl Display for Reference {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Reference::Earlier => f.write_str("earlier"),
            Reference::Lag(lag) => write!(f, "lag {lag}"),
            Reference::Rank(rank) => write!(f, "rank {rank}"),
        }
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A set of a fit, or one of the earlier fit that is no more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Set {
    pub id: u32,
    /// Its number; nothing for a set that ended.
    pub number: Option<u32>,
    pub states: u64,
    pub count: f64,
    /// Share of all counts.
    pub probability: f64,
    /// Nothing where there is no earlier fit.
    pub event: Option<Event>,
    /// The set of that id in the earlier fit.
    pub previous: Option<Previous>,
    /// Numbers in the earlier fit of the sets that it came from.
    pub parents: Vec<u32>,
}

/// A set of the earlier fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Previous {
    pub number: u32,
    pub states: u64,
    pub count: f64,
    /// Amount that both sets share beside that of both together; nothing for a set that ended.
    pub overlap: Option<f64>,
}

/// How the names of a run were given.
#[derive(Debug, Default)]
pub struct Kept {
    /// The tables of sets and changes that are in place hold for this run too: it is the one that made them, run again.
    pub again: bool,
    /// Models of the earlier result that are not in this one.
    pub gone: Vec<String>,
}

impl Lineage {
    /// Of a fit without an earlier one: ids are numbers from the next id on.
    pub fn first(fit: Labelled<'_>, next_id: &mut u32) -> Lineage {
        let first = *next_id;
        *next_id += fit.rank as u32;
        let total: f64 = fit.amount.iter().sum();
        let sizes = sizes(fit).into_iter().enumerate();
        let sets = sizes.filter(|(_, size)| size.states > 0);
        let sets = sets.map(|(number, size)| Set {
            id: first + number as u32,
            number: Some(number as u32),
            states: size.states,
            count: size.amount,
            probability: size.amount / total,
            event: None,
            previous: None,
            parents: Vec::new(),
        });
        Lineage {
            compared_with: None,
            sets: sets.collect(),
            next_id: *next_id,
            changes: None,
        }
    }

    /// Of a fit after an earlier one, whose sets have the ids `ids`: set l gets the number `numbers[l]`. A set that is no heir has the
    /// id that it has elsewhere, or the next one.
    pub fn following(
        comparison: &Comparison,
        numbers: &[u32],
        ids: &Ids,
        elsewhere: &[Option<u32>],
        next_id: &mut u32,
    ) -> Lineage {
        let Comparison {
            changes,
            succession,
            earlier,
            later,
            overlap,
        } = comparison;
        let total: f64 = later.iter().map(|size| size.amount).sum();
        let previous = |k: usize, overlap: Option<f64>| Previous {
            number: k as u32,
            states: earlier[k].states,
            count: earlier[k].amount,
            overlap,
        };
        let mut new_id = |l: usize| {
            elsewhere.get(l).copied().flatten().unwrap_or_else(|| {
                *next_id += 1;
                *next_id - 1
            })
        };
        let mut order: Vec<usize> = (0..later.len()).filter(|&l| later[l].states > 0).collect();
        order.sort_by_key(|&l| numbers[l]);
        let mut sets = Vec::new();
        for l in order {
            let heir_of = succession.heir_of[l];
            sets.push(Set {
                id: heir_of.map_or_else(|| new_id(l), |k| ids.of(k)),
                number: Some(numbers[l]),
                states: later[l].states,
                count: later[l].amount,
                probability: later[l].amount / total,
                event: Some(succession.events[l]),
                previous: heir_of.map(|k| previous(k, overlap[l])),
                parents: succession.parents[l].iter().map(|&k| k as u32).collect(),
            });
        }
        let ended = succession.ended.iter().enumerate();
        for (k, event) in ended.filter(|(k, event)| event.is_some() && earlier[*k].states > 0) {
            sets.push(Set {
                id: ids.of(k),
                number: None,
                states: 0,
                count: 0.0,
                probability: 0.0,
                event: *event,
                previous: Some(previous(k, None)),
                parents: Vec::new(),
            });
        }
        sets.sort_by_key(|set| set.id);
        Lineage {
            compared_with: None,
            sets,
            next_id: *next_id,
            changes: Some(changes.clone()),
        }
    }

    /// How many sets met an event; of those that ended, only the dead count.
    pub fn met(&self, event: Event) -> usize {
        let met =
            |set: &&Set| set.event == Some(event) && (set.number.is_some() || event == Event::Died);
        self.sets.iter().filter(met).count()
    }
}

/// The ids of the sets of an earlier fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ids {
    by_number: BTreeMap<u32, u32>,
    /// That of the next set that is new.
    pub next: u32,
}

impl Ids {
    /// Of a fit that has none: its numbers.
    pub fn numbers(rank: usize) -> Ids {
        Ids {
            by_number: BTreeMap::new(),
            next: rank as u32,
        }
    }

    /// Those of the sets that a fit has.
    pub fn of_sets(lineage: &Lineage) -> Ids {
        let sets = lineage.sets.iter();
        Ids {
            by_number: sets.filter_map(|set| Some((set.number?, set.id))).collect(),
            next: lineage.next_id,
        }
    }

    pub fn of(&self, number: usize) -> u32 {
        let number = number as u32;
        self.by_number.get(&number).copied().unwrap_or(number)
    }
}

/// How the fits of a run follow from those of an earlier result.
#[derive(Debug, Default)]
pub struct Past {
    /// By model and fit; nothing for a fit that the earlier result does not have.
    pub comparisons: Vec<Vec<Option<Comparison>>>,
    /// What the earlier result calls its sets, those of other fits and models included.
    pub ids: BTreeMap<(ModelKey, String), Ids>,
}

/// Gives every set of the models its name. `replaced` is the result that the run will replace; `is_whole`: no model of the run failed.
pub async fn keep(
    plan: &Plan,
    output: &Output,
    replaced: Option<&Current>,
    names: &Names,
    models: &mut [Model],
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
        family::name(plan, names, models, Past::default());
        return Ok(Kept::default());
    };
    let again = plan.names == NamesFrom::Previous
        && is_whole
        && earlier.current.plan == plan.hash
        && earlier.current.complete
        && earlier.has(Table::Sets)
        && earlier.has(Table::Changes);
    let (past, gone) = past(&earlier, names, models, again).await?;
    family::name(plan, names, models, past);
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
    names: &Names,
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
    names: &Names,
    models: &[Model],
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
    let count = written::floats(&count[0])?;
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

/// The key of a model of this run, as `Written` has it.
pub fn key(names: &Names, model: &Model) -> ModelKey {
    let text = |column: &ArrayRef| key_text(std::slice::from_ref(column), model.counts.partition);
    ModelKey {
        partition: names.partitions.iter().map(text).collect(),
        lag: names.lag.text(model.counts.lag),
    }
}

/// What is compared of a fit.
pub fn labelled(model: &Model, fit: usize) -> Labelled<'_> {
    let fit = &model.fits[fit];
    Labelled {
        rank: fit.rank,
        affiliation: &fit.sources.affiliation,
        amount: &model.source_total,
        unit: model.counts.exponent,
        embedding: &fit.sources.embedding,
    }
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
    let affiliation = written::affiliation(&table.columns(&[&column]).await?[0])?;
    if affiliation.iter().any(|&k| k >= fit.rank as i32) {
        return Err(Error::input(format!(
            "`{column}` has a set that is not below the rank {}",
            fit.rank
        )));
    }
    let embedding = if embedding {
        let table = written.table(Table::Sources).await?;
        let column = format!("{}_embedding", fit.name);
        written::embedding(&table.columns(&[&column]).await?[0])?
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
            written::affiliation(&columns[1])?,
            written::affiliation(&columns[2])?,
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
