//! Reads the fits of a written result for look-up by state: one [`KnownModel`] per partition and
//! lag.

use crate::error::{Error, Result};
use crate::methods::low_rank::known::{FitTables, Known};
use crate::methods::low_rank::model::{Latent, SideStates, Singular};
use crate::output::result::{ModelKey, Written, WrittenFit, affiliation, embedding, floats};
use crate::output::slices::{ModelColumns, TableSlice, size};
use crate::output::tables::table::Table;
use crate::plan::evidence::sides;
use crate::read::counts::follow::StateNumbers;
use crate::read::rows::layout::RowRoles;
use crate::read::rows::states::StateColumns;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Int32Type;
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// The fits of one partition and lag.
pub(crate) struct KnownModel {
    /// State number → its index among the sources.
    pub sources: HashMap<u32, u32>,
    /// State number → its index among the targets.
    pub targets: HashMap<u32, u32>,
    /// One entry per entry of [`Written::fits`].
    pub fits: Vec<Known>,
    /// Per fit, the sets and memberships of the targets, without embedding.
    pub target_sides: Vec<SideStates>,
}

/// Numbers the states of the model and of the new rows.
pub struct Numbers {
    pub(crate) of_sources: StateNumbers,
    /// For pairs. The sources and targets of trajectories have common numbers.
    targets: Option<StateNumbers>,
}

impl Numbers {
    /// No states yet.
    ///
    /// # Errors
    /// If a key column has a type that cannot be a key.
    pub(crate) fn new(evidence: &RowRoles) -> Result<Numbers> {
        let (sources, targets) = sides(evidence);
        let is_pairs = matches!(evidence, RowRoles::Pairs { .. });
        Ok(Numbers {
            of_sources: StateNumbers::new(sources)?,
            targets: is_pairs.then(|| StateNumbers::new(targets)).transpose()?,
        })
    }

    /// The numbers of source states, given their key columns. New states get new numbers.
    ///
    /// # Errors
    /// If a key is null or NaN.
    pub(crate) fn sources(&mut self, columns: &[ArrayRef]) -> Result<Vec<u32>> {
        states(self.of_sources.of(columns)?)
    }

    /// The numbers of target states, given their key columns. New states get new numbers.
    ///
    /// # Errors
    /// If a key is null or NaN.
    pub(crate) fn targets(&mut self, columns: &[ArrayRef]) -> Result<Vec<u32>> {
        states(self.of_targets(columns)?)
    }

    /// The number of the target state of each row of some columns. `None` for rows without one.
    ///
    /// # Errors
    /// If a coordinate is outside bounds that forbid it.
    pub(crate) fn of_targets(&mut self, columns: &[ArrayRef]) -> Result<Vec<Option<u32>>> {
        let numbers = self.targets.as_mut().unwrap_or(&mut self.of_sources);
        numbers.of(columns)
    }
}

fn states(numbers: Vec<Option<u32>>) -> Result<Vec<u32>> {
    let numbers: Option<Vec<u32>> = numbers.into_iter().collect();
    numbers.ok_or_else(|| Error::input("a written state has a null or NaN key"))
}

/// The sets, embedding and memberships of these states in a fit of rank `rank`.
fn side(of: &TableSlice, fit: &WrittenFit, rank: usize) -> Result<SideStates> {
    let of_fit = |what: &str| of.column(&format!("{}_{what}", fit.name));
    let soft = fit.is_soft.then(|| points(of_fit("membership")?, rank));
    let affiliation = affiliation(of_fit("affiliation")?)?;
    if let Some(set) = affiliation
        .iter()
        .find(|set| !(-1..rank as i32).contains(set))
    {
        let what = format!(
            "a state is in set {set} of the fit `{}` of rank {rank}",
            fit.name
        );
        return Err(Error::input(what));
    }
    Ok(SideStates {
        affiliation,
        embedding: points(of_fit("embedding")?, rank)?,
        membership: soft.transpose()?,
    })
}

/// Reads all models. `evidence` has the roles of the columns of the new rows. Every set gets
/// `smoothing` additional transitions (see [`Known::new`]).
///
/// # Errors
/// If a table cannot be read, lacks a fit, or has other bins than the pipeline.
pub(crate) async fn read(
    written: &Written<'_>,
    evidence: &RowRoles,
    numbers: &mut Numbers,
    smoothing: f64,
) -> Result<BTreeMap<ModelKey, KnownModel>> {
    let of_fits = written.fits.iter().flat_map(|fit| {
        let soft = fit.is_soft.then_some("membership");
        let columns = ["affiliation", "embedding"].into_iter().chain(soft);
        columns.map(|what| format!("{}_{what}", fit.name))
    });
    let of_fits: Vec<String> = of_fits.collect();
    let of_states = std::iter::once("count").chain(of_fits.iter().map(String::as_str));
    let of_states: Vec<&str> = of_states.collect();
    let sources = ModelColumns::read(written, Table::Sources, &written.sources, &of_states).await?;
    let targets = ModelColumns::read(written, Table::Targets, &written.targets, &of_states).await?;
    let names = ["fit", "latent", "probability"];
    let latent = ModelColumns::read(written, Table::Latent, &written.targets, &names).await?;
    let names = ["fit", "transitions", "weights", "crispness"];
    let of_fits = ModelColumns::read(written, Table::Fits, &[], &names).await?;
    let names = ["fit", "singular_value", "residual", "eigenvalue"];
    let spectrum = ModelColumns::read(written, Table::Spectrum, &[], &names).await?;

    let (source_columns, target_columns) = sides(evidence);
    check_boxes(source_columns, &sources.all.columns)?;
    check_boxes(target_columns, &targets.all.columns)?;
    let (n_source, n_target) = (written.sources.len(), written.targets.len());
    let mut models = BTreeMap::new();
    for key in sources.of_model.keys() {
        let (sources, targets, latent) = (sources.of(key), targets.of(key), latent.of(key));
        let source_place = places(numbers.sources(&sources.columns[..n_source])?);
        let target_place = places(numbers.targets(&targets.columns[..n_target])?);
        let [source_total, target_total] = [&sources, &targets].map(|own| own.finite("count"));
        let (source_total, target_total) = (source_total?, target_total?);
        let of_fits = of_fits.of(key).by_fit()?;
        let (mut latent, spectrum) = (latent.by_fit()?, spectrum.of(key).by_fit()?);
        let (mut fits, mut target_sides) = (Vec::new(), Vec::new());
        let of_model = ModelSlices {
            place: written.place(key),
            sources: &sources,
            targets: &targets,
            source_total: &source_total,
            target_total: &target_total,
            target_place: &target_place,
        };
        for fit in &written.fits {
            let lacks = |table: Table| {
                let what = format!("`{}` lacks fit `{}`", table.name(), fit.name);
                Error::input(what).at(written.place(key))
            };
            let row = of_fits.get(&fit.name).ok_or_else(|| lacks(Table::Fits))?;
            let spectrum = spectrum
                .get(&fit.name)
                .ok_or_else(|| lacks(Table::Spectrum))?;
            let latent = latent
                .remove(&fit.name)
                .ok_or_else(|| lacks(Table::Latent))?;
            let states = || numbers.targets(&latent.columns[..n_target]);
            let of_fit = FitSlices {
                fit,
                row,
                spectrum,
                latent: &latent,
            };
            let (known, of_targets) = of_model.known(&of_fit, states, smoothing)?;
            fits.push(known);
            target_sides.push(of_targets);
        }
        let model = KnownModel {
            sources: source_place,
            targets: target_place,
            fits,
            target_sides,
        };
        models.insert(key.clone(), model);
    }
    Ok(models)
}

/// What the tables have of one model.
struct ModelSlices<'a> {
    place: String,
    sources: &'a TableSlice,
    targets: &'a TableSlice,
    source_total: &'a [f64],
    target_total: &'a [f64],
    /// State number → its index among the targets.
    target_place: &'a HashMap<u32, u32>,
}

/// What the tables have of one fit of a model.
struct FitSlices<'a> {
    fit: &'a WrittenFit,
    row: &'a TableSlice,
    spectrum: &'a TableSlice,
    latent: &'a TableSlice,
}

impl ModelSlices<'_> {
    /// A fit, and the sets and memberships of its targets. `states` gives the numbers of the
    /// targets of its latent states.
    fn known(
        &self,
        of: &FitSlices<'_>,
        states: impl FnOnce() -> Result<Vec<u32>>,
        smoothing: f64,
    ) -> Result<(Known, SideStates)> {
        let (fit, row, latent) = (of.fit, of.row, of.latent);
        let total = row.first("transitions")?;
        let weights = row.lists("weights")?;
        // If a rule chose the rank, this model may have a smaller rank than the columns.
        let rank = size(weights.len() as f64, "weights", fit.rank)?;
        let states = states()?;
        let place = |state: &u32| self.target_place.get(state).copied();
        let values = singular_values(of.spectrum)?;
        if values.first().is_some_and(|first| first.residual.is_some()) && values.len() != rank {
            let what = format!("`spectrum` of fit `{}` does not have {rank} rows", fit.name);
            return Err(Error::input(what).at(&self.place));
        }
        let unknown = || {
            let what = "`latent` has a target that `targets` does not have";
            Error::input(what).at(&self.place)
        };
        let mut of_targets = side(self.targets, fit, rank)?;
        let tables = FitTables {
            sources: side(self.sources, fit, rank)?,
            targets: &of_targets,
            latent: Latent {
                offsets: offsets(latent.column("latent")?, rank)?,
                targets: states
                    .iter()
                    .map(place)
                    .collect::<Option<_>>()
                    .ok_or_else(unknown)?,
                probability: latent.finite("probability")?,
            },
            spectrum: &values,
            crispness: row.optional("crispness")?[0],
            weights: &weights,
            source_total: self.source_total,
            target_total: self.target_total,
            total,
        };
        let known = Known::new(tables, smoothing);
        of_targets.embedding = Vec::new();
        Ok((known, of_targets))
    }
}

fn singular_values(spectrum: &TableSlice) -> Result<Vec<Singular>> {
    let eigenvalues = spectrum.optional("eigenvalue")?.into_iter();
    let residuals = spectrum.optional("residual")?.into_iter();
    let values = spectrum.finite("singular_value")?.into_iter();
    let values = values.zip(residuals).zip(eigenvalues);
    // Known fits do not use the imaginary part.
    let singular = |((value, residual), real): ((f64, _), Option<f64>)| Singular {
        value,
        residual,
        eigenvalue: real.map(|real| [real, 0.0]),
    };
    Ok(values.map(singular).collect())
}

/// The first `rank` numbers of each row of coordinates or memberships. The others are zeros.
fn points(column: &ArrayRef, rank: usize) -> Result<Vec<f64>> {
    let none = || Error::input("a row of written coordinates or memberships is null");
    let whole = embedding(column)?.ok_or_else(none)?;
    let width = column.as_fixed_size_list().value_length() as usize;
    if rank > width {
        let what = format!("a fit of rank {rank} has rows of {width} coordinates or memberships");
        return Err(Error::input(what));
    }
    if whole.iter().any(|x| !x.is_finite()) {
        return Err(Error::input(
            "a written coordinate or membership is not finite",
        ));
    }
    let rows = whole.chunks_exact(width.max(1));
    Ok(rows.flat_map(|row| &row[..rank]).copied().collect())
}

/// State number → its index in `states`.
pub(crate) fn places(states: Vec<u32>) -> HashMap<u32, u32> {
    states.into_iter().zip(0..).collect()
}

/// The first row of each latent state, and the end of the last one.
///
/// # Errors
/// Unless the rows are ordered by it, and it is a number below the rank.
fn offsets(latent: &ArrayRef, rank: usize) -> Result<Vec<usize>> {
    let latent = latent.as_primitive_opt::<Int32Type>();
    let latent = latent.filter(|latent| latent.null_count() == 0);
    let latent = latent.map_or(&[][..], |latent| latent.values());
    let is_known = |k: &i32| (0..rank as i32).contains(k);
    if latent.is_empty() || !latent.is_sorted() || !latent.iter().all(is_known) {
        let what = format!(
            "the latent states of `latent` are not the numbers 0 to {}",
            rank - 1
        );
        return Err(Error::input(what));
    }
    let states = 0..=rank as i32;
    Ok(states
        .map(|k| latent.partition_point(|&own| own < k))
        .collect())
}

/// Checks that the binned coordinates of the model are centres of boxes of the pipeline. `columns`
/// begin with the key columns of `states`.
pub(crate) fn check_boxes(states: &StateColumns, columns: &[ArrayRef]) -> Result<()> {
    for (bin, column) in states.bins.iter().zip(&columns[states.keys.len()..]) {
        let (name, grid) = (&bin.name, bin.binning.grid());
        let width = (grid.center(1) - grid.center(0)).abs();
        for x in floats(column)? {
            let centre = grid.index(x).map(|index| grid.center(index));
            if !centre.is_some_and(|centre| (centre - x).abs() <= 1e-6 * width) {
                return Err(Error::spec(format!(
                    "a box of `{name}` lies around {x}, which is the middle of no box of the pipeline; use the same `bins` as the pipeline of the model"
                )));
            }
        }
    }
    Ok(())
}
