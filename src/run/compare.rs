//! Compares two results, A and B, for `gyre compare`.
//!
//! In: two results of one kind of evidence with the same partition columns. Out: what the kind says
//! of every partition and lag that both results have, and the models that only one of them has.

use crate::error::{Error, Kind, Result};
use crate::evidence::lag::Lag;
use crate::output::place::Output;
use crate::output::result::{ModelKey, Written};
use crate::read::rows::keys::Keys;
use crate::run::kind::EvidenceKind;
use crate::run::sets::same_keys;
use crate::store::Stores;
use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};
use std::ops::Range;
use std::sync::Arc;

/// The names of two fits, or two lags, to compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The fit or lag of A.
    pub a: String,
    /// The fit or lag of B.
    pub b: String,
}

/// A kind of evidence whose results can be compared.
pub(crate) trait Compares: EvidenceKind {
    /// What is said of the models of one partition and lag.
    type Compared: Serialize + Display;

    /// Compares two results, model by model. `fits` are the fits to compare; if it is empty, fits
    /// of the same name are compared.
    ///
    /// # Errors
    /// If a fit does not exist, the columns differ, or nothing is common.
    fn compare(
        a: &CompareSide<'_>,
        b: &CompareSide<'_>,
        fits: &[Pair],
    ) -> impl Future<Output = Result<Vec<(ModelKey, Self::Compared)>>>;
}

/// One of two results.
pub(crate) struct CompareSide<'a> {
    /// The result.
    pub written: Written<'a>,
    /// Its location.
    pub at: &'a str,
    /// The only lag that is compared. Keys of models then have no lag.
    pub lag: Option<String>,
    /// The partition and the lag of each model.
    pub models: BTreeSet<ModelKey>,
}

/// The comparison of two results.
#[derive(Debug, Serialize)]
pub(crate) struct Report<C> {
    /// The location of A.
    pub a: String,
    /// The location of B.
    pub b: String,
    /// The lags that are compared, if one lag is compared with another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lags: Option<Pair>,
    /// The models that both results have.
    pub models: Vec<ModelReport<C>>,
    /// The places of models that only A has.
    pub only_a: Vec<String>,
    /// The places of models that only B has.
    pub only_b: Vec<String>,
}

/// The comparison of one partition and lag.
#[derive(Debug, Serialize)]
pub(crate) struct ModelReport<C> {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    /// The common lag. None without lags, or if one lag is compared with another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lag: Option<String>,
    #[serde(skip)]
    place: String,
    /// What the kind says of it.
    #[serde(flatten)]
    pub compared: C,
}

/// The kind of the evidence of the results at two outputs.
///
/// # Errors
/// If an output has no result, or they are of two kinds.
pub(crate) async fn kind_of_both(a: &str, b: &str) -> Result<String> {
    let mut kinds = Vec::new();
    for at in [a, b] {
        let output = Output::open(at, &Stores::default())?;
        kinds.push(opened(&output).await?.kind);
    }
    if kinds[0] == kinds[1] {
        return Ok(kinds.swap_remove(0));
    }
    Err(Error::input(format!(
        "{a} has {} and {b} has {}, which cannot be compared; give two outputs of one kind, such as those of one pipeline file with two values of a key",
        kinds[0], kinds[1]
    )))
}

async fn opened(output: &Output) -> Result<Written<'_>> {
    let written = Written::open(output).await?;
    written.ok_or_else(|| {
        let shown = output.shown();
        Error::input(format!(
            "there is no output of gyre at {shown}: give the output of a run"
        ))
    })
}

/// Compares the results at two outputs. `fits` are the fits to compare; if it is empty, fits of the
/// same name are compared. `lags` compares one lag with another; otherwise equal lags are compared.
///
/// # Errors
/// If an output has no result, a fit or lag does not exist, the columns differ, or nothing is
/// common.
pub(crate) async fn compare<K: Compares>(
    a: &str,
    b: &str,
    fits: &[Pair],
    lags: Option<&Pair>,
) -> Result<Report<K::Compared>> {
    let lags = lags.map(|lags| Pair {
        a: Lag::canonical(&lags.a),
        b: Lag::canonical(&lags.b),
    });
    let stores = Stores::default();
    let (output_a, output_b) = (Output::open(a, &stores)?, Output::open(b, &stores)?);
    let of_a = CompareSide::open(&output_a, lags.as_ref().map(|lags| &lags.a)).await?;
    let of_b = CompareSide::open(&output_b, lags.as_ref().map(|lags| &lags.b)).await?;
    let (written_a, written_b) = (&of_a.written, &of_b.written);
    same_keys("partitions", a, &written_b.partition, &written_a.partition)?;
    let compared = K::compare(&of_a, &of_b, fits).await?;
    if compared.is_empty() {
        let (what, hint) = match written_a.lag {
            Some(_) => (
                "partition and lag",
                "; compare one lag with another with --lag A=B",
            ),
            None => ("partition", ""),
        };
        return Err(Error::input(format!(
            "{a} and {b} have no {what} in common{hint}"
        )));
    }
    let models = compared.into_iter().map(|(key, compared)| ModelReport {
        partition: written_b.partition_of(&key),
        place: written_b.place(&key),
        lag: key.lag,
        compared,
    });
    let only = |own: &CompareSide<'_>, other: &CompareSide<'_>| {
        let keys = own.models.difference(&other.models);
        keys.map(|key| own.written.place(key)).collect()
    };
    Ok(Report {
        models: models.collect(),
        only_a: only(&of_a, &of_b),
        only_b: only(&of_b, &of_a),
        a: a.to_string(),
        b: b.to_string(),
        lags,
    })
}

impl<'a> CompareSide<'a> {
    /// Opens the result of an output. With `lag`, only the models of this lag.
    async fn open(output: &'a Output, lag: Option<&String>) -> Result<CompareSide<'a>> {
        let written = opened(output).await?;
        let mut models: BTreeSet<ModelKey> = written.keys().await?.into_iter().collect();
        if let Some(lag) = lag {
            let mut known: Vec<&str> = models.iter().filter_map(|key| key.lag.as_deref()).collect();
            known.sort_by(|a, b| Lag::texts_by_length(a, b));
            known.dedup();
            if !known.contains(&lag.as_str()) {
                let known: Vec<String> = known.iter().map(|lag| format!("`{lag}`")).collect();
                let known = if known.is_empty() {
                    "none".to_string()
                } else {
                    known.join(", ")
                };
                let shown = output.shown();
                return Err(Error::spec(format!(
                    "--lag: {shown} has no lag `{lag}`; it has {known}"
                )));
            }
            models.retain(|key| key.lag.as_ref() == Some(lag));
            let without = models.into_iter().map(|key| ModelKey { lag: None, ..key });
            models = without.collect();
        }
        Ok(CompareSide {
            at: output.shown(),
            written,
            lag: lag.cloned(),
            models,
        })
    }

    /// The key of a model in this result.
    pub(crate) fn key(&self, key: &ModelKey) -> ModelKey {
        ModelKey {
            lag: self.lag.clone().or_else(|| key.lag.clone()),
            ..key.clone()
        }
    }

    /// The models that another result has too.
    pub(crate) fn common<'s>(
        &'s self,
        other: &'s CompareSide<'_>,
    ) -> impl Iterator<Item = &'s ModelKey> {
        self.models.intersection(&other.models)
    }
}

impl<C: Display> Display for Report<C> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &self.lags {
            Some(lags) => write!(f, "{}, lag {} → {}, lag {}", self.a, lags.a, self.b, lags.b)?,
            None => write!(f, "{} → {}", self.a, self.b)?,
        }
        for model in &self.models {
            write!(f, "\n\n")?;
            if !model.place.is_empty() {
                write!(f, "{}: ", model.place)?;
            }
            write!(f, "{}", model.compared)?;
        }
        for (place, models) in [(&self.a, &self.only_a), (&self.b, &self.only_b)] {
            if !models.is_empty() {
                write!(f, "\n\nonly in {place}: {}", models.join("; "))?;
            }
        }
        Ok(())
    }
}

/// The names of two fits as one text.
pub(crate) fn fit_names(a: &str, b: &str) -> String {
    if a == b {
        return a.to_string();
    }
    format!("{a} → {b}")
}

/// The names to compare: `asked`, or else all of the same name.
///
/// # Errors
/// If there is no such fit, or no name in common.
pub(crate) fn pairs(
    (a, of_a): (&str, &[String]),
    (b, of_b): (&str, &[String]),
    asked: &[Pair],
) -> Result<Vec<(String, String)>> {
    let listed = |names: &[String]| format!("`{}`", names.join("`, `"));
    if asked.is_empty() {
        let both = of_a.iter().filter(|name| of_b.contains(name));
        let pairs: Vec<_> = both.map(|name| (name.clone(), name.clone())).collect();
        if pairs.is_empty() {
            return Err(Error::spec(format!(
                "{a} has the fits {} and {b} has the fits {}, none of the same name; name two fits to compare with --fit A=B",
                listed(of_a),
                listed(of_b)
            )));
        }
        return Ok(pairs);
    }
    let known = |name: &String, at: &str, names: &[String]| {
        if names.contains(name) {
            return Ok(name.clone());
        }
        Err(Error::spec(format!(
            "--fit: {at} has no fit `{name}`; it has {}",
            listed(names)
        )))
    };
    let pair = |pair: &Pair| Ok((known(&pair.a, a, of_a)?, known(&pair.b, b, of_b)?));
    asked.iter().map(pair).collect()
}

/// What is known of a fit of a model.
pub(crate) fn of_fit<'m, T>(
    models: &'m BTreeMap<ModelKey, BTreeMap<String, T>>,
    key: &ModelKey,
    name: &str,
) -> Result<&'m T> {
    let own = models.get(key).and_then(|fits| fits.get(name));
    own.ok_or_else(|| Error::input(format!("`fits` lacks fit `{name}`")))
}

/// Key columns of a table, and the rows of each model.
pub(crate) struct Keyed {
    pub(crate) fields: Vec<Field>,
    pub(crate) columns: Vec<ArrayRef>,
    of_model: BTreeMap<ModelKey, Range<usize>>,
}

impl Keyed {
    pub(crate) async fn read(
        written: &Written<'_>,
        table: &'static str,
        fields: Vec<Field>,
    ) -> Result<Keyed> {
        let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
        let columns = written.table(table).await?.columns(&names).await?;
        let models = written.models(table).await?.into_iter();
        Ok(Keyed {
            fields,
            columns,
            of_model: models.map(|own| (own.key, own.rows)).collect(),
        })
    }

    /// The first columns, as long as they are keys.
    pub(crate) async fn leading(
        written: &Written<'_>,
        table: &'static str,
        is_key: impl Fn(&Field) -> bool,
    ) -> Result<Keyed> {
        let schema = written.table(table).await?.schema();
        let fields = schema.fields().iter().map(|f| f.as_ref().clone());
        let mut keyed = Keyed::read(written, table, fields.take_while(is_key).collect()).await?;
        for column in &mut keyed.columns {
            *column = without_nulls(column)?;
        }
        Ok(keyed)
    }

    pub(crate) fn of(&self, key: &ModelKey) -> Range<usize> {
        self.of_model.get(key).cloned().unwrap_or_default()
    }

    /// The rows of a model that have the same key in both results. `ids` number the keys.
    pub(crate) fn common(
        &self,
        other: &Keyed,
        key: &ModelKey,
        ids: &(Vec<u32>, Vec<u32>),
    ) -> Vec<(usize, usize)> {
        let places: BTreeMap<u32, usize> = other.of(key).map(|at| (ids.1[at], at)).collect();
        let pairs = self.of(key);
        pairs
            .filter_map(|at| Some((at, *places.get(&ids.0[at])?)))
            .collect()
    }
}

/// Numbers the keys of two results.
///
/// # Errors
/// If a column has a type that cannot be a key.
pub(crate) fn interned(a: &[ArrayRef], b: &[ArrayRef]) -> Result<(Vec<u32>, Vec<u32>)> {
    let types: Vec<DataType> = a.iter().map(|column| column.data_type().clone()).collect();
    let mut keys = Keys::new(&types)?;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    keys.intern(a, &mut of_a)?;
    keys.intern(b, &mut of_b)?;
    Ok((of_a, of_b))
}

/// A key column with text in place of nulls: a split may be null.
///
/// # Errors
/// If the column is no text.
fn without_nulls(column: &ArrayRef) -> Result<ArrayRef> {
    if column.null_count() == 0 {
        return Ok(Arc::clone(column));
    }
    let texts = cast(column, &DataType::Utf8);
    let broken = |e| Error::with_source(Kind::Input, "a key of a trajectory is null", e);
    let texts = texts.map_err(broken)?;
    let texts = texts.as_string::<i32>().iter();
    let texts: StringArray = texts.map(|text| Some(text.unwrap_or("null"))).collect();
    cast(&texts, column.data_type()).map_err(broken)
}
