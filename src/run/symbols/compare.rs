//! Compares two results of runs over sequences, A and B, for `gyre compare`.
//!
//! In: two results with the same partition, symbol and trajectory columns. Out: for every common
//! partition, how many symbols both have, and for every pair of fits the singular values and the
//! log-likelihoods of the same trajectories. Operators are not compared: two models whose operators
//! differ by a change of basis are the same model. Memory holds the keys and the log-likelihoods of
//! all trajectories.

use crate::error::{Result, counted};
use crate::output::number::grouped;
use crate::output::result::{ModelKey, Written, floats};
use crate::output::slices::ModelColumns;
use crate::output::tables::symbols::{SYMBOLS, TRAJECTORIES};
use crate::output::tables::table::Table;
use crate::read::rows::keys::NONE;
use crate::read::rows::states::describe;
use crate::run::compare::{CompareSide, Compares, Keyed, Pair, fit_names, interned, of_fit, pairs};
use crate::run::sets::{column, same_keys};
use crate::run::symbols::held_out::HeldOutSums;
use crate::run::symbols::kind::SymbolsKind;
use crate::run::symbols::known::order;
use arrow::datatypes::Field;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::ops::Range;

/// The comparison of the models of one partition.
#[derive(Debug, Serialize)]
pub(crate) struct ComparedSymbols {
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
pub(crate) struct HmmComparison {
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
pub(crate) struct Likelihoods {
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

impl Compares for SymbolsKind {
    type Compared = ComparedSymbols;

    async fn compare(
        a: &CompareSide<'_>,
        b: &CompareSide<'_>,
        fits: &[Pair],
    ) -> Result<Vec<(ModelKey, ComparedSymbols)>> {
        let (of_a, of_b) = (Models::of(a).await?, Models::of(b).await?);
        same_keys("symbols", a.at, &b.written.sources, &a.written.sources)?;
        let (own, others) = (&of_b.trajectories.fields, &of_a.trajectories.fields);
        same_keys("trajectories", a.at, own, others)?;
        let pairs = pairs((a.at, &of_a.fits), (b.at, &of_b.fits), fits)?;
        let (keys_a, keys_b) = interned(&of_a.symbols.columns, &of_b.symbols.columns)?;
        let rows = interned(&of_a.trajectories.columns, &of_b.trajectories.columns)?;
        let mut models = Vec::new();
        for key in a.common(b) {
            let mut model = symbols(
                (&keys_a, of_a.symbols.of(key)),
                (&keys_b, of_b.symbols.of(key)),
                [&of_a.shares, &of_b.shares],
            );
            let common = of_a.trajectories.common(&of_b.trajectories, key, &rows);
            let has_same_rows = |&(i, j): &(usize, usize)| of_a.rows[i] == of_b.rows[j];
            let (same, others): (Vec<_>, Vec<_>) = common.into_iter().partition(has_same_rows);
            (model.trajectories, model.other_rows) = (same.len(), others.len());
            for (fit_a, fit_b) in &pairs {
                let spectrum_a = of_fit(&of_a.models, key, fit_a)?;
                let spectrum_b = of_fit(&of_b.models, key, fit_b)?;
                model.fits.push(HmmComparison {
                    fit_a: fit_a.clone(),
                    fit_b: fit_b.clone(),
                    rank_a: spectrum_a.0,
                    rank_b: spectrum_b.0,
                    singular_values_a: spectrum_a.1.clone(),
                    singular_values_b: spectrum_b.1.clone(),
                    likelihoods: of_a.likelihoods(&of_b, [fit_a, fit_b], &same).await?,
                });
            }
            models.push((key.clone(), model));
        }
        Ok(models)
    }
}

/// The models and trajectories of one result.
struct Models<'a> {
    written: &'a Written<'a>,
    /// By model and fit: the rank and the singular values up to the first that is left out.
    models: BTreeMap<ModelKey, BTreeMap<String, (usize, Vec<f64>)>>,
    /// The names of the fits, in the order of their columns.
    fits: Vec<String>,
    symbols: Keyed,
    /// The share of each symbol.
    shares: Vec<f64>,
    /// The key columns of a trajectory, with the split.
    trajectories: Keyed,
    /// The rows of each trajectory.
    rows: Vec<f64>,
}

impl<'a> Models<'a> {
    async fn of(side: &'a CompareSide<'a>) -> Result<Models<'a>> {
        let written = &side.written;
        let fits = ModelColumns::read(written, Table::Fits, &[], &["fit", "rank"]).await?;
        let spectrum = ModelColumns::read(written, Table::Spectrum, &[], &["fit", "value"]).await?;
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
        let is_key = |field: &Field| field.name() != "rows";
        Ok(Models {
            fits: order(written).await?,
            models,
            symbols: Keyed::read(written, SYMBOLS, written.sources.clone()).await?,
            shares: floats(&column(written, SYMBOLS, "probability").await?)?,
            trajectories: Keyed::leading(written, TRAJECTORIES, is_key).await?,
            rows: floats(&column(written, TRAJECTORIES, "rows").await?)?,
            written,
        })
    }

    /// The log-likelihoods of some trajectories.
    async fn likelihoods(
        &self,
        other: &Models<'_>,
        [fit_a, fit_b]: [&str; 2],
        same: &[(usize, usize)],
    ) -> Result<Option<Likelihoods>> {
        let read = async |side: &Models<'_>, fit: &str| {
            let name = format!("{fit}_log_likelihood");
            floats(&column(side.written, TRAJECTORIES, &name).await?)
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

/// Compares the symbols of a model. A side has the keys of all symbols and the rows of the model.
fn symbols(
    a: (&[u32], Range<usize>),
    b: (&[u32], Range<usize>),
    shares: [&[f64]; 2],
) -> ComparedSymbols {
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
    ComparedSymbols {
        symbols: count(|own| matches!(own, [Some(_), Some(_)])),
        symbols_only_a: count(|own| matches!(own, [Some(_), None])),
        symbols_only_b: count(|own| matches!(own, [None, Some(_)])),
        total_variation: distance.sum::<f64>() / 2.0,
        trajectories: 0,
        other_rows: 0,
        fits: Vec::new(),
    }
}

impl Display for ComparedSymbols {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let symbols = counted(grouped(self.symbols as f64), "common symbol");
        let same = counted(grouped(self.trajectories as f64), "common trajectory");
        write!(
            f,
            "{symbols}, {} only in A, {} only in B, shares differ by {:.4}; {same}",
            self.symbols_only_a, self.symbols_only_b, self.total_variation
        )?;
        if self.other_rows > 0 {
            write!(f, ", {} with another number of rows", self.other_rows)?;
        }
        self.fits.iter().try_for_each(|fit| fit.write(f))
    }
}

impl HmmComparison {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {}", fit_names(&self.fit_a, &self.fit_b))?;
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
                "\n    {:.4} → {:.4} nats per symbol, difference {:.4} ± {:.4}",
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
