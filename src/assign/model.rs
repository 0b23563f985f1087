//! A written result → what its fits say about states, ready to be looked up: one [`KnownModel`] a partition and lag.

use crate::count::{Evidence, StateColumns, StateNumbers};
use crate::error::{Error, Kind, Result};
use crate::reduce::Latent;
use crate::reduce::assign::{self, Known};
use crate::write::Table;
use crate::written::{ModelKey, Written, affiliation, embedding, floats};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::partition;
use arrow::datatypes::{Field, Int32Type};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// One partition and lag of a model. States go by their numbers.
pub struct KnownModel {
    /// State → its place among the sources.
    pub sources: HashMap<u32, u32>,
    /// State → its place among the targets.
    pub targets: HashMap<u32, u32>,
    /// Beside `Written::fits`.
    pub fits: Vec<Known>,
    /// The set of every target in each fit, −1 for none.
    pub target_sets: Vec<Vec<i32>>,
}

/// What numbers the states of the model and of the new rows.
pub struct Numbers {
    sources: StateNumbers,
    /// Of pairs; trajectories have one kind of states.
    targets: Option<StateNumbers>,
}

impl Numbers {
    pub fn new(evidence: &Evidence) -> Result<Numbers> {
        let (sources, targets) = sides(evidence);
        let is_pairs = matches!(evidence, Evidence::Pairs { .. });
        Ok(Numbers {
            sources: StateNumbers::new(sources)?,
            targets: is_pairs.then(|| StateNumbers::new(targets)).transpose()?,
        })
    }

    /// The numbers of source states by their columns.
    pub fn sources(&mut self, columns: &[ArrayRef]) -> Result<Vec<u32>> {
        states(self.sources.of(columns)?)
    }

    /// The numbers of target states by their columns.
    pub fn targets(&mut self, columns: &[ArrayRef]) -> Result<Vec<u32>> {
        let numbers = self.targets.as_mut().unwrap_or(&mut self.sources);
        states(numbers.of(columns)?)
    }

    /// The same numbers, for the states of trajectories.
    pub fn states(&self) -> Result<StateNumbers> {
        self.sources.again()
    }
}

fn states(numbers: Vec<Option<u32>>) -> Result<Vec<u32>> {
    let numbers: Option<Vec<u32>> = numbers.into_iter().collect();
    numbers.ok_or_else(|| Error::input("a written state has a null or NaN key"))
}

/// The columns of sources and of targets.
pub fn sides(evidence: &Evidence) -> (&StateColumns, &StateColumns) {
    match evidence {
        Evidence::Trajectories { state, .. } => (state, state),
        Evidence::Pairs { source, target, .. } => (source, target),
    }
}

/// Some columns of a written table and where the rows of each model are.
struct Rows {
    columns: Vec<ArrayRef>,
    of_model: BTreeMap<ModelKey, Range<usize>>,
}

impl Rows {
    async fn read(written: &Written<'_>, table: Table, names: &[&str]) -> Result<Rows> {
        let models = written.models(table).await?.into_iter();
        Ok(Rows {
            columns: written.table(table).await?.columns(names).await?,
            of_model: models.map(|model| (model.key, model.rows)).collect(),
        })
    }

    /// The rows of one model; none where the table has none.
    fn of(&self, key: &ModelKey) -> Vec<ArrayRef> {
        let rows = self.of_model.get(key).cloned().unwrap_or_default();
        let columns = self.columns.iter();
        columns.map(|c| c.slice(rows.start, rows.len())).collect()
    }
}

/// Reads all models. `evidence` is that of the new rows, whose key columns are those of the model. With `smoothing` every set gets so many
/// transitions more (see `reduce::assign`).
pub async fn read(
    written: &Written<'_>,
    evidence: &Evidence,
    numbers: &mut Numbers,
    smoothing: f64,
) -> Result<BTreeMap<ModelKey, KnownModel>> {
    let fits = written.fits.iter();
    let of_states: Vec<[String; 2]> = fits
        .map(|fit| ["affiliation", "embedding"].map(|what| format!("{}_{what}", fit.name)))
        .collect();
    let of_fits: Vec<&str> = of_states.iter().flatten().map(String::as_str).collect();
    fn names<'a>(before: &[&'a str], keys: &'a [Field], after: &[&'a str]) -> Vec<&'a str> {
        let keys = keys.iter().map(|f| f.name().as_str());
        let before = before.iter().copied();
        before.chain(keys).chain(after.iter().copied()).collect()
    }
    let sources = names(&[], &written.sources, &of_fits);
    let sources = Rows::read(written, Table::Sources, &sources).await?;
    let after: Vec<&str> = std::iter::once("probability").chain(of_fits).collect();
    let targets = names(&[], &written.targets, &after);
    let targets = Rows::read(written, Table::Targets, &targets).await?;
    let latent = names(&["fit", "latent"], &written.targets, &["probability"]);
    let latent = Rows::read(written, Table::Latent, &latent).await?;
    let of_fits = ["fit", "transitions", "weights"];
    let of_fits = Rows::read(written, Table::Fits, &of_fits).await?;
    let spectrum = ["fit", "singular_value", "residual"];
    let spectrum = Rows::read(written, Table::Spectrum, &spectrum).await?;

    let (source_columns, target_columns) = sides(evidence);
    check_boxes(source_columns, &sources.columns)?;
    check_boxes(target_columns, &targets.columns)?;
    let (n_source, n_target) = (written.sources.len(), written.targets.len());
    let mut models = BTreeMap::new();
    for key in sources.of_model.keys() {
        let (sources, targets) = (sources.of(key), targets.of(key));
        let (latent, of_fits, spectrum) = (latent.of(key), of_fits.of(key), spectrum.of(key));
        let source_place = places(numbers.sources(&sources[..n_source])?);
        let target_place = places(numbers.targets(&targets[..n_target])?);
        let latent_targets = numbers.targets(&latent[2..2 + n_target])?;
        let latent_targets: Option<Vec<u32>> = latent_targets
            .iter()
            .map(|target| target_place.get(target).copied())
            .collect();
        let latent_targets = latent_targets.ok_or_else(|| {
            let place = written.place(key);
            Error::input("`latent` has a target that `targets` has not").at(place)
        })?;
        let probability = floats(&targets[n_target])?;
        let [rows_of_fits, rows_of_latent, rows_of_spectrum] =
            [&of_fits, &latent, &spectrum].map(|table| by_fit(&table[0]));
        let (rows_of_fits, rows_of_latent) = (rows_of_fits?, rows_of_latent?);
        let rows_of_spectrum = rows_of_spectrum?;
        let (mut fits, mut target_sets) = (Vec::new(), Vec::new());
        for (at, fit) in written.fits.iter().enumerate() {
            let of_fit = |rows: &HashMap<String, Range<usize>>| {
                rows.get(&fit.name).cloned().unwrap_or_default()
            };
            let rows = of_fit(&rows_of_fits);
            let total = floats(&of_fits[1].slice(rows.start, rows.len()))?;
            let weights = of_fits[2].slice(rows.start, rows.len());
            let weights = weights.as_list_opt::<i32>();
            let (Some(&total), Some(weights)) = (total.first(), weights) else {
                let place = written.place(key);
                return Err(Error::input(format!("`fits` lacks fit `{}`", fit.name)).at(place));
            };
            let set_total: Vec<f64> = floats(&weights.value(0))?
                .iter()
                .map(|w| w * total)
                .collect();
            // Where the rank was picked, that of this model may be smaller than there are columns.
            let rank = set_total.len();
            let rows = of_fit(&rows_of_latent);
            let (states, values) = (&latent[1], &latent[2 + n_target]);
            let of_rank = Latent {
                offsets: offsets(&states.slice(rows.start, rows.len()), rank),
                targets: latent_targets[rows.clone()].to_vec(),
                probability: floats(&values.slice(rows.start, rows.len()))?,
            };
            let rows = of_fit(&rows_of_spectrum);
            let of_p = spectrum[2].slice(rows.start, rows.len()).null_count() < rows.len();
            let singular_values = floats(&spectrum[1].slice(rows.start, rows.len()))?;
            // Only the vectors of P̃ have residuals.
            let target_embedding = if of_p {
                Some(points(&targets[n_target + 2 + 2 * at], rank)?)
            } else {
                None
            };
            fits.push(Known {
                rank,
                affiliation: affiliation(&sources[n_source + 2 * at])?,
                embedding: points(&sources[n_source + 1 + 2 * at], rank)?,
                log_latent: assign::log_latent(&of_rank, &set_total, &probability, smoothing),
                projection: target_embedding.map(|f| assign::projection(f, &singular_values)),
            });
            target_sets.push(affiliation(&targets[n_target + 1 + 2 * at])?);
        }
        let model = KnownModel {
            sources: source_place,
            targets: target_place,
            fits,
            target_sets,
        };
        models.insert(key.clone(), model);
    }
    Ok(models)
}

/// The first `rank` columns of a written embedding; the others are zeros.
fn points(column: &ArrayRef, rank: usize) -> Result<Vec<f64>> {
    let none = || Error::input("a written embedding has a row that is null");
    let whole = embedding(column)?.ok_or_else(none)?;
    let width = column.as_fixed_size_list().value_length() as usize;
    if rank > width {
        let what = format!("a fit of rank {rank} has an embedding of {width} columns");
        return Err(Error::input(what));
    }
    let rows = whole.chunks_exact(width.max(1));
    Ok(rows.flat_map(|row| &row[..rank]).copied().collect())
}

fn places(states: Vec<u32>) -> HashMap<u32, u32> {
    let places = states.into_iter().zip(0..);
    places.collect()
}

/// The rows of each fit, which are next to each other.
fn by_fit(fits: &ArrayRef) -> Result<HashMap<String, Range<usize>>> {
    let ranges = partition(std::slice::from_ref(fits))
        .map_err(|e| Error::with_source(Kind::Bug, "fits cannot be told apart", e))?
        .ranges();
    let fits = fits.as_string::<i32>();
    let of_fit = |rows: Range<usize>| (fits.value(rows.start).to_string(), rows);
    Ok(ranges.into_iter().map(of_fit).collect())
}

/// Where each latent state begins among rows that are sorted by it.
fn offsets(latent: &ArrayRef, rank: usize) -> Vec<usize> {
    let latent = latent.as_primitive::<Int32Type>().values();
    let states = 0..=rank as i32;
    states
        .map(|k| latent.partition_point(|&own| own < k))
        .collect()
}

/// Checks that binned coordinates of the model are centres of boxes of the pipeline. `columns` begin with those of `StateColumns`.
fn check_boxes(states: &StateColumns, columns: &[ArrayRef]) -> Result<()> {
    for ((name, binning), column) in states.bins.iter().zip(&columns[states.keys.len()..]) {
        for x in floats(column)? {
            let centre = binning.index(x).map(|index| binning.center(index));
            let width = (binning.center(1) - binning.center(0)).abs();
            if !centre.is_some_and(|centre| (centre - x).abs() <= 1e-6 * width) {
                return Err(Error::spec(format!(
                    "a box of `{name}` lies around {x}, which is the middle of no box of the pipeline; give [transitions.bins] as for the model"
                )));
            }
        }
    }
    Ok(())
}
