//! Compares two results of runs over sequences, A and B, for `gyre compare`.
//!
//! In: two results with the same partition, symbol and trajectory columns. Out: for every common
//! partition, how many symbols both have, and for every pair of fits the singular values and the
//! log-likelihoods of the same trajectories. Operators are not compared: two models whose operators
//! differ by a change of basis are the same model. Memory holds the keys and the log-likelihoods of
//! all trajectories.

use crate::error::{Error, Kind, Result, counted};
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::output::result::{ModelKey, ModelRows, Written, floats};
use crate::output::slices::ModelColumns;
use crate::output::tables::sequences::{SYMBOLS, TRAJECTORIES};
use crate::output::tables::table::Table;
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::states::describe;
use crate::run::compare::Pair;
use crate::run::points::compare::pairs;
use crate::run::sequences::held_out::HeldOutSums;
use crate::run::sequences::known::order;
use crate::run::sets::same_keys;
use crate::store::Stores;
use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::ops::Range;
use std::sync::Arc;

/// The comparison of two results.
#[derive(Debug, Serialize)]
pub struct SequencesReport {
    /// The location of A.
    pub a: String,
    /// The location of B.
    pub b: String,
    /// The models that both results have.
    pub models: Vec<SequencesComparison>,
    /// The places of models that only A has.
    pub only_a: Vec<String>,
    /// The places of models that only B has.
    pub only_b: Vec<String>,
}

/// The comparison of one partition.
#[derive(Debug, Serialize)]
pub struct SequencesComparison {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    #[serde(skip)]
    place: String,
    /// Symbols that both models have.
    pub symbols: usize,
    /// Symbols that only A has.
    pub symbols_only_a: usize,
    /// Symbols that only B has.
    pub symbols_only_b: usize,
    /// The total variation distance of the shares of the symbols, from 0 to 1.
    pub total_variation: f64,
    /// Trajectories with the same key and number of rows.
    pub trajectories: usize,
    /// Trajectories with the same key and another number of rows, which are not compared.
    pub other_rows: usize,
    /// One entry per pair of fits.
    pub fits: Vec<HmmComparison>,
}

/// The comparison of two fits.
#[derive(Debug, Serialize)]
pub struct HmmComparison {
    /// The name of the fit of A.
    pub fit_a: String,
    /// The name of the fit of B.
    pub fit_b: String,
    /// The rank of the fit of A.
    pub rank_a: usize,
    /// The rank of the fit of B.
    pub rank_b: usize,
    /// The singular values of A, up to the first that is left out.
    pub singular_values_a: Vec<f64>,
    /// The singular values of B, up to the first that is left out.
    pub singular_values_b: Vec<f64>,
    /// The mean log-likelihood of a symbol of the common trajectories. None without such ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub likelihoods: Option<Likelihoods>,
}

/// Mean log-likelihoods of a symbol of the common trajectories, in nats.
#[derive(Debug, Serialize)]
pub struct Likelihoods {
    /// By the model of A.
    pub a: f64,
    /// By the model of B.
    pub b: f64,
    /// B − A.
    pub difference: f64,
    /// The standard error of the difference over trajectories.
    pub error: f64,
    /// The trajectory whose means differ most, as text.
    pub furthest: String,
    /// B − A of this trajectory, in nats per symbol.
    pub furthest_difference: f64,
}

/// Compares the results at two outputs. `fits` are the fits to compare; if it is empty, fits of the
/// same name are compared.
///
/// # Errors
/// If an output has no result, a fit does not exist, the columns differ, or nothing is common.
pub async fn compare(
    a: &str,
    b: &str,
    fits: &[Pair],
    lags: Option<&Pair>,
) -> Result<SequencesReport> {
    if lags.is_some() {
        return Err(Error::spec("--lag: sequences have no lag; leave it out"));
    }
    let stores = Stores::default();
    let (output_a, output_b) = (Output::open(a, &stores)?, Output::open(b, &stores)?);
    let (of_a, of_b) = (Side::open(&output_a).await?, Side::open(&output_b).await?);
    let (written_a, written_b) = (&of_a.written, &of_b.written);
    same_keys("partitions", a, &written_b.partition, &written_a.partition)?;
    same_keys("symbols", a, &written_b.sources, &written_a.sources)?;
    same_keys("trajectories", a, &of_b.key, &of_a.key)?;
    let pairs = pairs(&of_a.fits, &of_b.fits, fits)?;
    let (keys_a, keys_b) = interned(&of_a.symbols.columns, &of_b.symbols.columns)?;
    let (rows_a, rows_b) = interned(&of_a.trajectories.columns, &of_b.trajectories.columns)?;
    let mut models = Vec::new();
    for key in of_a
        .models
        .keys()
        .filter(|key| of_b.models.contains_key(key))
    {
        let mut model = symbols(
            (&keys_a, of_a.symbols.of(key)),
            (&keys_b, of_b.symbols.of(key)),
            [&of_a.shares, &of_b.shares],
        );
        model.partition = written_a.partition_of(key);
        model.place = written_a.place(key);
        let (same, other_rows) = of_a.common(&of_b, key, &rows_a, &rows_b);
        (model.trajectories, model.other_rows) = (same.len(), other_rows);
        for (fit_a, fit_b) in &pairs {
            let (spectrum_a, spectrum_b) = (of_a.fit(key, fit_a)?, of_b.fit(key, fit_b)?);
            model.fits.push(HmmComparison {
                fit_a: fit_a.clone(),
                fit_b: fit_b.clone(),
                rank_a: spectrum_a.0,
                rank_b: spectrum_b.0,
                singular_values_a: spectrum_a.1,
                singular_values_b: spectrum_b.1,
                likelihoods: of_a.likelihoods(&of_b, [fit_a, fit_b], &same).await?,
            });
        }
        models.push(model);
    }
    if models.is_empty() {
        return Err(Error::input(format!(
            "{a} and {b} have no partition in common"
        )));
    }
    let only = |own: &Side<'_>, other: &Side<'_>| {
        let keys = own.models.keys();
        let keys = keys.filter(|key| !other.models.contains_key(key));
        keys.map(|key| own.written.place(key)).collect()
    };
    Ok(SequencesReport {
        only_a: only(&of_a, &of_b),
        only_b: only(&of_b, &of_a),
        a: a.to_string(),
        b: b.to_string(),
        models,
    })
}

/// Key columns of a table, and the rows of each model.
struct Keyed {
    columns: Vec<ArrayRef>,
    of_model: BTreeMap<ModelKey, Range<usize>>,
}

impl Keyed {
    async fn read(written: &Written<'_>, table: &'static str, names: &[&str]) -> Result<Keyed> {
        let models = written.models(table).await?.into_iter();
        Ok(Keyed {
            columns: written.table(table).await?.columns(names).await?,
            of_model: models.map(|ModelRows { key, rows }| (key, rows)).collect(),
        })
    }

    fn of(&self, key: &ModelKey) -> Range<usize> {
        self.of_model.get(key).cloned().unwrap_or_default()
    }
}

/// One result.
struct Side<'a> {
    written: Written<'a>,
    /// By model and fit: the rank and the singular values up to the first that is left out.
    models: BTreeMap<ModelKey, BTreeMap<String, (usize, Vec<f64>)>>,
    /// The names of the fits, in the order of their columns.
    fits: Vec<String>,
    symbols: Keyed,
    /// The share of each symbol.
    shares: Vec<f64>,
    /// The key columns of a trajectory, with the split.
    key: Vec<Field>,
    trajectories: Keyed,
    /// The rows of each trajectory.
    rows: Vec<f64>,
}

impl<'a> Side<'a> {
    async fn open(output: &'a Output) -> Result<Side<'a>> {
        let Some(written) = Written::open(output).await? else {
            return Err(Error::input(format!(
                "there is no output of gyre at {}: give the output of a run",
                output.shown()
            )));
        };
        let fits = ModelColumns::read(&written, Table::Fits, &[], &["fit", "rank"]).await?;
        let spectrum =
            ModelColumns::read(&written, Table::Spectrum, &[], &["fit", "value"]).await?;
        let mut models = BTreeMap::new();
        for key in fits.of_model.keys() {
            let spectrum = spectrum.of(key).by_fit()?;
            let mut own = BTreeMap::new();
            for (name, row) in fits.of(key).by_fit()? {
                let rank = floats(row.column("rank")?)?[0] as usize;
                let mut values = match spectrum.get(&name) {
                    Some(part) => floats(part.column("value")?)?,
                    None => Vec::new(),
                };
                values.truncate(rank + 1);
                own.insert(name, (rank, values));
            }
            models.insert(key.clone(), own);
        }
        let names: Vec<&str> = written.sources.iter().map(|f| f.name().as_str()).collect();
        let symbols = Keyed::read(&written, SYMBOLS, &names).await?;
        let shares = written
            .table(SYMBOLS)
            .await?
            .columns(&["probability"])
            .await?;
        let schema = written.table(TRAJECTORIES).await?.schema();
        let fields = schema.fields().iter().map(|f| f.as_ref().clone());
        let key: Vec<Field> = fields.take_while(|f| f.name() != "rows").collect();
        let names: Vec<&str> = key.iter().map(|f| f.name().as_str()).collect();
        let mut trajectories = Keyed::read(&written, TRAJECTORIES, &names).await?;
        for column in &mut trajectories.columns {
            *column = without_nulls(column)?;
        }
        let rows = written
            .table(TRAJECTORIES)
            .await?
            .columns(&["rows"])
            .await?;
        Ok(Side {
            fits: order(&written).await?,
            models,
            symbols,
            shares: floats(&shares[0])?,
            key,
            trajectories,
            rows: floats(&rows[0])?,
            written,
        })
    }

    /// The rank and the singular values of a fit.
    fn fit(&self, key: &ModelKey, name: &str) -> Result<(usize, Vec<f64>)> {
        let own = self.models.get(key).and_then(|fits| fits.get(name));
        let none = || Error::input(format!("`fits` lacks fit `{name}`"));
        own.cloned().ok_or_else(none)
    }

    /// Trajectories of a model with the same key and number of rows, and the number of those with
    /// another number of rows.
    fn common(
        &self,
        other: &Side<'_>,
        key: &ModelKey,
        own_ids: &[u32],
        other_ids: &[u32],
    ) -> (Vec<(usize, usize)>, usize) {
        let rows = other.trajectories.of(key);
        let places: BTreeMap<u32, usize> = rows.map(|at| (other_ids[at], at)).collect();
        let (mut same, mut other_rows) = (Vec::new(), 0);
        for at in self.trajectories.of(key) {
            let Some(&place) = places.get(&own_ids[at]) else {
                continue;
            };
            if self.rows[at] == other.rows[place] {
                same.push((at, place));
            } else {
                other_rows += 1;
            }
        }
        (same, other_rows)
    }

    /// The log-likelihoods of some trajectories.
    async fn likelihoods(
        &self,
        other: &Side<'_>,
        [fit_a, fit_b]: [&str; 2],
        same: &[(usize, usize)],
    ) -> Result<Option<Likelihoods>> {
        let read = async |side: &Side<'_>, fit: &str| {
            let name = format!("{fit}_log_likelihood");
            let table = side.written.table(TRAJECTORIES).await?;
            floats(&table.columns(&[&name]).await?[0])
        };
        let (a, b) = (read(self, fit_a).await?, read(other, fit_b).await?);
        let mut sums = HeldOutSums::new(2);
        let mut furthest = (0, 0.0);
        for &(i, j) in same {
            sums.add(&[a[i], b[j], self.rows[i]]);
            let difference: f64 = (b[j] - a[i]) / self.rows[i];
            if difference.abs() > f64::abs(furthest.1) || furthest == (0, 0.0) {
                furthest = (i, difference);
            }
        }
        let difference = sums.mean(1, Some(0));
        let means = sums.mean(0, None).zip(sums.mean(1, None));
        let n = self.written.partition.len();
        Ok(means
            .zip(difference)
            .map(|((a, b), difference)| Likelihoods {
                a: a.mean,
                b: b.mean,
                difference: difference.mean,
                error: difference.error,
                furthest: match &self.trajectories.columns[n..] {
                    [] => String::new(),
                    columns => describe(columns, furthest.0),
                },
                furthest_difference: furthest.1,
            }))
    }
}

/// A key column with text in place of nulls: a split may be null.
pub(crate) fn without_nulls(column: &ArrayRef) -> Result<ArrayRef> {
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

/// Numbers the keys of two results.
fn interned(a: &[ArrayRef], b: &[ArrayRef]) -> Result<(Vec<u32>, Vec<u32>)> {
    let types: Vec<DataType> = a.iter().map(|column| column.data_type().clone()).collect();
    let mut keys = Keys::new(&types)?;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    keys.intern(a, &mut of_a)?;
    keys.intern(b, &mut of_b)?;
    Ok((of_a, of_b))
}

/// Compares the symbols of a model. A side has the keys of all symbols and the rows of the model.
fn symbols(
    a: (&[u32], Range<usize>),
    b: (&[u32], Range<usize>),
    shares: [&[f64]; 2],
) -> SequencesComparison {
    let mut both: BTreeMap<u32, [Option<f64>; 2]> = BTreeMap::new();
    for (side, ((keys, rows), shares)) in [a, b].into_iter().zip(shares).enumerate() {
        for at in rows.filter(|&at| keys[at] != NONE) {
            both.entry(keys[at]).or_default()[side] = Some(shares[at]);
        }
    }
    let count = |is: fn(&[Option<f64>; 2]) -> bool| both.values().filter(|own| is(own)).count();
    let distance = both.values().map(|own| {
        let [a, b] = own.map(|share| share.unwrap_or(0.0));
        (a - b).abs()
    });
    SequencesComparison {
        partition: BTreeMap::new(),
        place: String::new(),
        symbols: count(|own| matches!(own, [Some(_), Some(_)])),
        symbols_only_a: count(|own| matches!(own, [Some(_), None])),
        symbols_only_b: count(|own| matches!(own, [None, Some(_)])),
        total_variation: distance.sum::<f64>() / 2.0,
        trajectories: 0,
        other_rows: 0,
        fits: Vec::new(),
    }
}

impl Display for SequencesReport {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} → {}", self.a, self.b)?;
        for model in &self.models {
            write!(f, "\n\n")?;
            if !model.place.is_empty() {
                write!(f, "{}: ", model.place)?;
            }
            let symbols = counted(grouped(model.symbols as f64), "common symbol");
            let same = counted(grouped(model.trajectories as f64), "common trajectory");
            write!(
                f,
                "{symbols}, {} only in A, {} only in B, shares differ by {:.4}; {same}",
                model.symbols_only_a, model.symbols_only_b, model.total_variation
            )?;
            if model.other_rows > 0 {
                write!(f, ", {} with another number of rows", model.other_rows)?;
            }
            for fit in &model.fits {
                fit.write(f)?;
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

impl HmmComparison {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.fit_a == self.fit_b {
            write!(f, "\n  {}", self.fit_a)?;
        } else {
            write!(f, "\n  {} → {}", self.fit_a, self.fit_b)?;
        }
        write!(f, "  rank {} → {}", self.rank_a, self.rank_b)?;
        for (side, values) in [
            ("A", &self.singular_values_a),
            ("B", &self.singular_values_b),
        ] {
            let values: Vec<String> = values.iter().map(|value| format!("{value:.4}")).collect();
            write!(f, "\n    singular values of {side} {}", values.join(" "))?;
        }
        if let Some(own) = &self.likelihoods {
            write!(
                f,
                "\n    {:.4} → {:.4} nats a symbol, difference {:.4} ± {:.4}",
                own.a, own.b, own.difference, own.error
            )?;
            if !own.furthest.is_empty() && own.furthest_difference != 0.0 {
                write!(
                    f,
                    "\n    largest difference {:.4} at trajectory {}",
                    own.furthest_difference, own.furthest
                )?;
            }
        }
        Ok(())
    }
}
