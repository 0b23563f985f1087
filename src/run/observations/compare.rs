//! Compares two results of runs of filters, A and B, for `gyre compare`.
//!
//! In: two results with the same partition columns. Out: for every common partition and every pair
//! of fits, the errors and scores of both, and the differences of their estimates of the same rows,
//! if both results have the table `estimates` with the same key. Memory holds the keys and the
//! means of all rows.

use crate::error::{Error, Kind, Result, counted};
use crate::output::number::grouped;
use crate::output::result::{ModelKey, Written, floats};
use crate::output::slices::{ModelColumns, TableSlice};
use crate::output::tables::observations::{ESTIMATES, KNOWN_STATE};
use crate::output::tables::table::Table;
use crate::run::compare::{CompareSide, Compares, Keyed, Pair, fit_names, interned, of_fit, pairs};
use crate::run::observations::kind::ObservationsKind;
use crate::run::sets::{are_alike, column};
use arrow::array::{Array, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Float64Type};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// The comparison of the filters of one partition.
#[derive(Debug, Serialize)]
pub(crate) struct ComparedObservations {
    /// Rows of `estimates` with the same key.
    pub rows: usize,
    /// One entry per pair of fits.
    pub fits: Vec<FilterComparison>,
}

/// The comparison of two fits.
#[derive(Debug, Serialize)]
pub(crate) struct FilterComparison {
    /// The name of the fit of A.
    pub fit_a: String,
    /// The name of the fit of B.
    pub fit_b: String,
    /// What A says of its fit.
    pub scores_a: Scores,
    /// What B says of its fit.
    pub scores_b: Scores,
    /// How the means of the states differ. None without common rows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub means: Option<Differences>,
}

/// The scores of a fit.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Scores {
    /// The mean squared error of the means of test rows.
    pub test_mse: Option<f64>,
    /// The mean squared error of the decoded states of test rows.
    pub test_mse_decoded: Option<f64>,
    /// The mean log score of a row with an observation, in nats.
    pub mean_log_score: Option<f64>,
    /// Rows with an observation that did not change the estimate.
    pub not_updated: f64,
}

/// Differences of two estimates of the same rows, over all numbers of the states.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Differences {
    /// The root of the mean squared difference.
    pub rms: f64,
    /// The largest magnitude.
    pub largest: f64,
}

impl Compares for ObservationsKind {
    type Compared = ComparedObservations;

    async fn compare(
        a: &CompareSide<'_>,
        b: &CompareSide<'_>,
        fits: &[Pair],
    ) -> Result<Vec<(ModelKey, ComparedObservations)>> {
        let (of_a, of_b) = (Filters::of(a).await?, Filters::of(b).await?);
        let pairs = pairs((a.at, &of_a.names), (b.at, &of_b.names), fits)?;
        let rows = of_a.rows.as_ref().zip(of_b.rows.as_ref());
        let rows = rows.filter(|(a, b)| are_alike(&a.fields, &b.fields));
        let numbers = rows.map(|(a, b)| interned(&a.columns, &b.columns));
        let rows = rows.zip(numbers.transpose()?);
        let mut models = Vec::new();
        for key in a.common(b) {
            let same = rows
                .as_ref()
                .map(|((a, b), numbers)| a.common(b, key, numbers));
            let same = same.unwrap_or_default();
            let mut model = ComparedObservations {
                rows: same.len(),
                fits: Vec::new(),
            };
            for (fit_a, fit_b) in &pairs {
                let means = if same.is_empty() {
                    None
                } else {
                    let (a, b) = (of_a.means(fit_a).await?, of_b.means(fit_b).await?);
                    differences(&a, &b, &same)
                };
                model.fits.push(FilterComparison {
                    fit_a: fit_a.clone(),
                    fit_b: fit_b.clone(),
                    scores_a: *of_fit(&of_a.models, key, fit_a)?,
                    scores_b: *of_fit(&of_b.models, key, fit_b)?,
                    means,
                });
            }
            models.push((key.clone(), model));
        }
        Ok(models)
    }
}

/// The filters and estimates of one result.
struct Filters<'a> {
    written: &'a Written<'a>,
    models: BTreeMap<ModelKey, BTreeMap<String, Scores>>,
    /// The names of the fits.
    names: Vec<String>,
    /// None without the table `estimates`.
    rows: Option<Keyed>,
}

impl<'a> Filters<'a> {
    async fn of(side: &'a CompareSide<'a>) -> Result<Filters<'a>> {
        let written = &side.written;
        let columns = [
            "fit",
            "test_mse",
            "test_mse_decoded",
            "mean_log_score",
            "not_updated",
        ];
        let fits = ModelColumns::read(written, Table::Fits, &[], &columns).await?;
        let mut models = BTreeMap::new();
        for key in fits.of_model.keys() {
            let mut own = BTreeMap::new();
            for (name, row) in fits.of(key).by_fit()? {
                own.insert(name, Scores::of(&row)?);
            }
            models.insert(key.clone(), own);
        }
        let names = models.values().next().into_iter();
        let names: Vec<String> = names.flat_map(BTreeMap::keys).cloned().collect();
        let mut rows = None;
        if written.current.tables.contains_key(ESTIMATES) {
            let is_key = |f: &Field| {
                f.name() != KNOWN_STATE && names.iter().all(|n| *f.name() != format!("{n}_mean"))
            };
            rows = Some(Keyed::leading(written, ESTIMATES, is_key).await?);
        }
        Ok(Filters {
            written,
            models,
            names,
            rows,
        })
    }

    /// The means of the states of all rows: numbers per state, and the numbers.
    async fn means(&self, fit: &str) -> Result<(usize, Vec<f64>)> {
        let name = format!("{fit}_mean");
        let column = column(self.written, ESTIMATES, &name).await?;
        let Some(lists) = column.as_fixed_size_list_opt() else {
            let what = format!("the column `{name}` holds no lists of one length");
            return Err(Error::input(what));
        };
        Ok((lists.value_length() as usize, floats(lists.values())?))
    }
}

impl Scores {
    fn of(row: &TableSlice) -> Result<Scores> {
        let number = |name: &str| -> Result<Option<f64>> {
            let column = cast(row.column(name)?, &DataType::Float64);
            let column = column.map_err(|e| {
                Error::with_source(Kind::Input, "a score of `fits` is no number", e)
            })?;
            let column = column.as_primitive::<Float64Type>();
            Ok((!column.is_empty() && column.is_valid(0)).then(|| column.value(0)))
        };
        Ok(Scores {
            test_mse: number("test_mse")?,
            test_mse_decoded: number("test_mse_decoded")?,
            mean_log_score: number("mean_log_score")?,
            not_updated: number("not_updated")?.unwrap_or(0.0),
        })
    }
}

/// How the means of some rows differ. None if the states have different lengths.
fn differences(
    a: &(usize, Vec<f64>),
    b: &(usize, Vec<f64>),
    same: &[(usize, usize)],
) -> Option<Differences> {
    let width = a.0;
    if width != b.0 || width == 0 {
        return None;
    }
    let (mut squares, mut largest) = (0.0, 0.0f64);
    for &(i, j) in same {
        let own = a.1[i * width..][..width].iter();
        for (x, y) in own.zip(&b.1[j * width..][..width]) {
            squares += (x - y) * (x - y);
            largest = largest.max((x - y).abs());
        }
    }
    let n = (same.len() * width) as f64;
    Some(Differences {
        rms: (squares / n).sqrt(),
        largest,
    })
}

impl Display for ComparedObservations {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = counted(grouped(self.rows as f64), "common row");
        write!(f, "{rows} with estimates")?;
        self.fits.iter().try_for_each(|fit| fit.write(f))
    }
}

impl FilterComparison {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "\n  {}", fit_names(&self.fit_a, &self.fit_b))?;
        let (a, b) = (&self.scores_a, &self.scores_b);
        for (what, a, b) in [
            ("test MSE", a.test_mse, b.test_mse),
            ("decoded", a.test_mse_decoded, b.test_mse_decoded),
            ("log score", a.mean_log_score, b.mean_log_score),
        ] {
            if let (Some(a), Some(b)) = (a, b) {
                write!(f, "\n    {what} {a:.5} → {b:.5}, difference {:.5}", b - a)?;
            }
        }
        if let Some(means) = &self.means {
            write!(
                f,
                "\n    means differ by {:.3e} (root mean square), at most {:.3e}",
                means.rms, means.largest
            )?;
        }
        Ok(())
    }
}
