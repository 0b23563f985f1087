//! Reads the fits of a written result over points, which then embed new rows.

use crate::error::{Error, Result};
use crate::methods::heat_kernel::extension::Extension;
use crate::methods::heat_kernel::kernel::Reach;
use crate::methods::heat_kernel::normalise::Normalisation;
use crate::methods::state_embedding::features::Features;
use crate::output::result::{ModelKey, Written};
use crate::output::slices::{ModelColumns, TableSlice, size};
use crate::output::tables::points::{POINTS, distance_column, embedding_columns};
use crate::output::tables::run_schema::LagColumn;
use crate::output::tables::table::Table;
use crate::run::points::rows::{PointMap, RowFit, RowModel, RowModels};
use arrow::array::AsArray;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// No point has more coordinates than this, and no fit more columns.
const WIDEST: usize = 1 << 20;

/// An error unless numbers are positive.
fn positive<'x>(numbers: impl IntoIterator<Item = &'x f64>, name: &str) -> Result<()> {
    match numbers.into_iter().find(|x| !(x.is_finite() && **x > 0.0)) {
        Some(x) => Err(Error::input(format!(
            "the written column `{name}` holds {x}"
        ))),
        None => Ok(()),
    }
}

fn lacks(name: &str) -> Error {
    Error::input(format!(
        "the table `fits` of the model has no value `{name}`; it was written by another version"
    ))
}

/// The columns of the coordinates of a result.
///
/// # Errors
/// If the table `fits` cannot be read.
pub(crate) async fn coordinates(written: &Written<'_>) -> Result<Vec<String>> {
    let fits = ModelColumns::read(written, Table::Fits, &[], &["coordinates"]).await?;
    let Some(key) = fits.of_model.keys().next() else {
        return Ok(Vec::new());
    };
    let first = fits.of(key).rows(&(0..1));
    let names = first.list_values("coordinates")?;
    let names = names.as_string_opt::<i32>();
    let names = names.ok_or_else(|| lacks("coordinates"))?;
    Ok(names.iter().flatten().map(String::from).collect())
}

/// Reads all models. `lag` has the lags of the new rows.
///
/// # Errors
/// If a table cannot be read, or lacks a part of a fit.
pub(crate) async fn read(written: &Written<'_>, lag: LagColumn) -> Result<RowModels<'static>> {
    let of_fits = [
        "fit",
        "method",
        "rank",
        "dimension",
        "scale",
        "epsilon",
        "normalisation",
        "alpha",
        "neighbours",
        "radius",
        "times",
    ];
    let of_landmarks = [
        "fit",
        "coordinates",
        "weight",
        "q",
        "v",
        "farthest",
        "farthest_index",
        "vector",
    ];
    let of_features = ["fit", "frequency", "phase", "left"];
    let fits = ModelColumns::read(written, Table::Fits, &[], &of_fits).await?;
    let features = ModelColumns::read(written, "features", &[], &of_features).await?;
    let landmarks = ModelColumns::read(written, "landmarks", &[], &of_landmarks).await?;
    let centroids = ModelColumns::read(written, "centroids", &[], &["fit", "center"]).await?;
    // Columns have the order of those of the run.
    let order = if written.current.tables.contains_key(POINTS) {
        let schema = written.table(POINTS).await?.schema();
        let names = schema.fields().iter().map(|f| f.name().clone());
        names.collect::<Vec<String>>()
    } else {
        Vec::new()
    };
    let mut models = BTreeMap::new();
    for key in fits.of_model.keys() {
        let within = |name: &str, e: Error| e.at(format!("fit `{name}`")).at(written.place(key));
        let mut own = Vec::new();
        let mut divisors = Vec::new();
        let (features, landmarks) = (features.of(key).by_fit()?, landmarks.of(key).by_fit()?);
        let centroids = centroids.of(key).by_fit()?;
        for (name, row) in fits.of(key).by_fit()? {
            divisors = row.lists("scale").map_err(|e| within(&name, e))?;
            positive(&divisors, "scale").map_err(|e| within(&name, e))?;
            let parts = Parts {
                row: &row,
                features: features.get(&name),
                landmarks: landmarks.get(&name),
                centroids: centroids.get(&name),
                has_distances: order.contains(&distance_column(&name)),
            };
            own.push(parts.fit(&name).map_err(|e| within(&name, e))?);
        }
        let place = |fit: &RowFit<'_>| {
            let first = fit.columns.first().map(|column| &column.name);
            let place = order.iter().position(|name| Some(name) == first);
            (place.unwrap_or(usize::MAX), fit.name.clone())
        };
        own.sort_by_key(place);
        let model = RowModel {
            divisors,
            fits: own,
        };
        models.insert(key.clone(), model);
    }
    check_columns(&models)?;
    Ok(RowModels::Known(models, lag))
}

/// An error unless all models have the same columns.
fn check_columns(models: &BTreeMap<ModelKey, RowModel<'_>>) -> Result<()> {
    let columns = |model: &RowModel<'_>| -> Vec<(String, bool, Vec<String>)> {
        let names = |fit: &RowFit<'_>| fit.columns.iter().map(|c| c.name.clone()).collect();
        let fits = model.fits.iter();
        fits.map(|fit| (fit.name.clone(), fit.map.has_clusters(), names(fit)))
            .collect()
    };
    let mut all = models.values().map(columns);
    let first = all.next();
    if all.any(|own| Some(own) != first) {
        return Err(Error::input(
            "the fits of two partitions or lags are not the same",
        ));
    }
    Ok(())
}

/// What the tables have of a fit.
struct Parts<'a> {
    /// Its row of `fits`.
    row: &'a TableSlice,
    features: Option<&'a TableSlice>,
    landmarks: Option<&'a TableSlice>,
    centroids: Option<&'a TableSlice>,
    has_distances: bool,
}

impl Parts<'_> {
    fn fit(&self, name: &str) -> Result<RowFit<'static>> {
        let row = self.row;
        let method = row.text("method")?.ok_or_else(|| lacks("method"))?;
        let dimension = row.size("dimension", WIDEST)?;
        let width = row.size("rank", WIDEST)?;
        if dimension != row.lists("scale")?.len() {
            return Err(Error::input(
                "`dimension` and `scale` of `fits` do not fit each other",
            ));
        }
        let (times, map) = if let Some(features) = self.features {
            let frequencies = features.lists("frequency")?;
            let phases = features.finite("phase")?;
            let left = features.lists("left")?;
            if frequencies.len() != phases.len() * dimension || left.len() != phases.len() * width {
                return Err(Error::input(
                    "the rows of `features` do not have the lengths that `fits` says",
                ));
            }
            let is_constant = phases.first() == Some(&0.0)
                && frequencies[..dimension]
                    .iter()
                    .all(|frequency| *frequency == 0.0);
            if !is_constant {
                return Err(Error::input(
                    "the first row of `features` is not the constant",
                ));
            }
            let centers = self.centroids.map(|part| part.lists("center"));
            let centers = centers.transpose()?;
            let is_whole =
                |centers: &Vec<f64>| !centers.is_empty() && centers.len().is_multiple_of(width);
            if !centers.as_ref().is_none_or(is_whole) {
                return Err(Error::input(
                    "the rows of `centroids` do not have the lengths that `fits` says",
                ));
            }
            let map = PointMap::Features {
                features: Cow::Owned(Features::new(dimension, &frequencies, &phases)),
                left: Cow::Owned(left),
                rank: width,
                centers,
                has_distances: self.has_distances,
            };
            (vec![0.0], map)
        } else {
            let times = row.lists("times")?;
            if times.is_empty() || times.len() > WIDEST {
                return Err(lacks("times"));
            }
            let extension = self.extension(dimension, width * times.len())?;
            (times, PointMap::Kernel(Box::new(extension.into_embedder())))
        };
        Ok(RowFit {
            columns: embedding_columns(name, method, width, &times),
            name: name.to_string(),
            map,
        })
    }

    fn extension(&self, dimension: usize, columns: usize) -> Result<Extension> {
        let none = || Error::input("`landmarks` lacks the fit");
        let (row, points) = (self.row, self.landmarks.ok_or_else(none)?);
        let weights = points.finite("weight")?;
        let n = weights.len();
        let (epsilon, alpha) = (row.first("epsilon")?, row.first("alpha")?);
        positive([&epsilon], "epsilon")?;
        if !(0.0..=1.0).contains(&alpha) || weights.iter().any(|weight| *weight < 0.0) {
            return Err(Error::input(
                "`alpha` or `weight` of the fit is out of its range",
            ));
        }
        let number = |name: &str| -> Result<Option<f64>> {
            Ok(row.optional(name)?.first().copied().flatten())
        };
        let reach = match (number("neighbours")?, number("radius")?) {
            (Some(k), _) => Reach::Neighbours(size(k, "neighbours", n)?),
            (None, Some(radius)) => {
                positive([&radius], "radius")?;
                Reach::Radius(radius)
            }
            (None, None) => Reach::All,
        };
        let normalisation = row.text("normalisation")?;
        let normalisation = normalisation.and_then(Normalisation::of_name);
        let or_one = |name: &str| -> Result<Vec<f64>> {
            let values = points.optional(name)?.into_iter();
            let values: Vec<f64> = values.map(|value| value.unwrap_or(1.0)).collect();
            positive(&values, name)?;
            Ok(values)
        };
        let farthest = if let Reach::Neighbours(_) = reach {
            let places = points.finite("farthest_index")?;
            if places.iter().any(|place| !(0.0..n as f64).contains(place)) {
                return Err(Error::input("`farthest_index` is the place of no landmark"));
            }
            let farthest = points.finite("farthest")?.into_iter();
            farthest
                .zip(places.iter().map(|place| *place as u32))
                .collect()
        } else {
            Vec::new()
        };
        let extension = Extension {
            dimension,
            coordinates: points.lists("coordinates")?,
            weights,
            epsilon,
            reach,
            farthest,
            normalisation: normalisation.ok_or_else(|| lacks("normalisation"))?,
            alpha,
            q: or_one("q")?,
            v: or_one("v")?,
            columns,
            features: points.lists("vector")?,
        };
        if extension.coordinates.len() != n * dimension || extension.features.len() != n * columns {
            return Err(Error::input(
                "the rows of `landmarks` do not have the lengths that `fits` says",
            ));
        }
        Ok(extension)
    }
}
