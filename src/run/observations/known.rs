//! Reads the filters of a written result, which then filter new rows.

use crate::error::{Error, Kind, Result, counted};
use crate::methods::FilterMethod;
use crate::methods::filter::model::{Factor, FilterModel};
use crate::output::result::Written;
use crate::output::slices::{ModelColumns, TableSlice, partitions};
use crate::output::tables::observations::{FACTORS, FilterColumns};
use crate::output::tables::table::Table;
use crate::plan::observations::PlannedFilter;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::partition;
use arrow::datatypes::Float64Type;
use std::collections::BTreeMap;

/// The filters of a written result.
pub(crate) struct KnownFilters {
    /// The partitions with a model, one array per partition column.
    pub(crate) partitions: Vec<ArrayRef>,
    /// By partition and fit.
    pub(crate) models: Vec<Vec<FilterModel>>,
    /// The places of the fits among those of the pipeline.
    pub(crate) fits: Vec<usize>,
    /// The columns of the fits.
    pub(crate) columns: Vec<FilterColumns>,
}

impl KnownFilters {
    /// Checks that the models have states of the length that the pipeline says: `width`, or that of
    /// the names of a fit. `at` is the place of the model.
    ///
    /// # Errors
    /// If one has another.
    pub(crate) fn check_states(&self, width: usize, at: &str) -> Result<()> {
        let fits = self.models.iter().flatten().zip(&self.columns);
        for (model, columns) in fits {
            let (own, named) = (model.widths().0, columns.width(width));
            if own != named {
                return Err(Error::spec(format!(
                    "the state of fit `{}` has {} in the pipeline, but {own} in the model at {at}; use the pipeline of the model",
                    columns.name,
                    counted(named, "number")
                )));
            }
        }
        Ok(())
    }
}

/// Reads all models. `planned` are the fits of the pipeline, which have the methods and functions
/// of the models.
///
/// # Errors
/// If a table cannot be read, or a model does not fit the pipeline.
pub(crate) async fn read(written: &Written<'_>, planned: &[PlannedFilter]) -> Result<KnownFilters> {
    let names = ["fit", "method", "rule"];
    let of_fits = ModelColumns::read(written, Table::Fits, &[], &names).await?;
    let factors = ModelColumns::read(written, FACTORS, &[], &["fit", "factor", "values"]).await?;
    let (mut models, mut places) = (Vec::new(), None);
    for key in of_fits.of_model.keys() {
        let factors = factors.of(key).by_fit()?;
        let mut own = BTreeMap::new();
        for (name, row) in of_fits.of(key).by_fit()? {
            let within = |e: Error| e.at(format!("fit `{name}`")).at(written.place(key));
            let (place, fit) = planned_fit(planned, &name, &row)?;
            let parts = factors.get(&name).map(matrices).transpose();
            let parts = parts.map_err(within)?.unwrap_or_default();
            let model = FilterModel::of_factors(&fit.method, parts, fit.dynamics.as_ref());
            own.insert(place, model.map_err(within)?);
        }
        let own_places: Vec<usize> = own.keys().copied().collect();
        if *places.get_or_insert_with(|| own_places.clone()) != own_places {
            return Err(Error::input("a partition of `fits` lacks a fit"));
        }
        models.push(own.into_values().collect());
    }
    let widths = |own: &Vec<FilterModel>| own.iter().map(FilterModel::widths).collect::<Vec<_>>();
    let mut all = models.iter().map(widths);
    let first = all.next();
    if all.any(|own| Some(own) != first) {
        return Err(Error::input(
            "the models of two partitions do not have the same widths",
        ));
    }
    let fits = places.unwrap_or_default();
    let columns = fits.iter().map(|&at| FilterColumns {
        name: planned[at].name.clone(),
        has_weights: matches!(planned[at].method, FilterMethod::KernelBayes(_)),
        objectives: planned[at].method.objectives(),
        state: planned[at].state.clone(),
    });
    Ok(KnownFilters {
        partitions: partitions(written).await?,
        models,
        columns: columns.collect(),
        fits,
    })
}

/// The fit of the pipeline with this name, and its place. `row` is the row of the written fit.
fn planned_fit<'p>(
    planned: &'p [PlannedFilter],
    name: &str,
    row: &TableSlice,
) -> Result<(usize, &'p PlannedFilter)> {
    let (method, rule) = (row.text("method")?.unwrap_or_default(), row.text("rule")?);
    let found = planned.iter().enumerate().find(|(_, fit)| fit.name == name);
    let Some((place, fit)) = found else {
        return Err(Error::spec(format!(
            "the model has the fit `{name}`, which the pipeline does not have; use the pipeline of the model, which says how its filters are used"
        )));
    };
    let own = match &fit.method {
        FilterMethod::KernelBayes(own) => Some(own.rule.name()),
        FilterMethod::Kalman(_) | FilterMethod::Ekf(_) | FilterMethod::Ukf(_) => None,
    };
    if fit.method.name() != method || own != rule {
        let shown = |method: &str, rule: Option<&str>| match rule {
            Some(rule) => format!("{method} with the rule {rule}"),
            None => method.to_string(),
        };
        return Err(Error::spec(format!(
            "fit `{name}` is {} in the model, but {} in the pipeline",
            shown(method, rule),
            shown(fit.method.name(), own)
        )));
    }
    Ok((place, fit))
}

/// The matrices of a fit.
fn matrices(part: &TableSlice) -> Result<Vec<Factor>> {
    let names = part.column("factor")?;
    let ranges = partition(std::slice::from_ref(names))
        .map_err(|e| Error::with_source(Kind::Bug, "the rows of matrices cannot be separated", e))?
        .ranges();
    let wrong = || Error::input("the columns of `factors` do not hold names and lists of numbers");
    let names = names.as_string_opt::<i32>().ok_or_else(wrong)?;
    let lists = part.column("values")?;
    let lists = lists.as_list_opt::<i32>().ok_or_else(wrong)?;
    let values = lists.values().as_primitive_opt::<Float64Type>();
    let is_whole = names.null_count() == 0 && lists.null_count() == 0;
    let values = values.filter(|values| is_whole && values.null_count() == 0);
    let values = values.ok_or_else(wrong)?.values();
    let offsets = lists.value_offsets();
    let all = ranges.into_iter().map(|rows| {
        let (start, end) = (offsets[rows.start] as usize, offsets[rows.end] as usize);
        let width = (end - start) / rows.len().max(1);
        let is_whole = rows
            .clone()
            .all(|at| lists.value_length(at) as usize == width);
        if !is_whole || width == 0 {
            return Err(Error::input(format!(
                "the rows of matrix `{}` in `factors` have different lengths",
                names.value(rows.start)
            )));
        }
        // The constants of a fit may be unknown.
        let is_finite = values[start..end].iter().all(|x| x.is_finite());
        if !is_finite && names.value(rows.start) != "constants" {
            return Err(Error::input(format!(
                "matrix `{}` in `factors` holds a number that is not finite",
                names.value(rows.start)
            )));
        }
        Ok(Factor {
            name: names.value(rows.start).to_string(),
            width,
            values: values[start..end].to_vec(),
        })
    });
    all.collect()
}
