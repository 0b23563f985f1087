//! Writes the table `rows`: the rows of the input with the sets of their states.
//!
//! The fits are known before the first row is written, so the input is read a second time. Memory
//! holds the models, a few batches and one encoded row group.

use crate::error::{Error, Kind, Result};
use crate::output::row_writer::RowWriter;
use crate::output::staging::StagedTable;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::rows::{InputRows, Place, batch, schema};
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::plan::evidence::sides;
use crate::read::lake::in_order::Batches;
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::states::StateColumns;
use crate::run::counts::kind::CountsKind;
use crate::run::counts::known::{Numbers, places};
use crate::run::kind::Running;
use crate::run::progress::Progress;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::Field;
use hashbrown::HashMap;
use std::sync::Arc;

/// Reads the input of a plan again and writes the table `rows` to the version of a run.
///
/// # Errors
/// If the rows cannot be read, or the output cannot be written.
pub(crate) async fn write(
    run: &Running<'_, CountsKind>,
    names: &RunSchema,
    models: &[FittedModel],
) -> Result<StagedTable> {
    let (plan, lake, output) = (run.plan, run.lake, run.output);
    let numbers = numbers(&plan.layout, &names.rows);
    let columns = columns(&plan.layout, &names.rows);
    let columns: Vec<&str> = columns.iter().map(|f| f.name().as_str()).collect();
    let frame = lake.query(&plan.job.sql, &plan.job.parameters).await?;
    let frame = lake.in_order(frame, &columns, &numbers)?;
    let schema = schema(names);
    loop {
        let path = output.staged(&run.begun.run, Table::Rows.name());
        let mut writer = RowWriter::create(output, path, Arc::clone(&schema))?;
        let mut sets = SetsOfRows::new(&plan.layout, names, models)?;
        let mut batches = lake.batches(frame.clone()).await?;
        match copy(&mut batches, &mut sets, &mut writer, run.progress.as_ref()).await {
            Ok(()) => {
                let rows = writer.finish().await?;
                return Ok(StagedTable { rows, schema });
            }
            Err(_) if batches.must_read_again() => writer.abort().await?,
            Err(e) => return Err(e),
        }
    }
}

async fn copy(
    batches: &mut Batches<'_>,
    sets: &mut SetsOfRows<'_>,
    writer: &mut RowWriter<'_>,
    progress: &dyn Progress,
) -> Result<()> {
    while let Some(rows) = batches.next().await? {
        writer.write(sets.of(&rows)?).await?;
        progress.advance(rows.num_rows() as u64);
    }
    Ok(())
}

/// The columns that the second pass reads: those of the table, the partition, the states.
fn columns(layout: &Layout, rows: &[Field]) -> Vec<Field> {
    let mut columns = rows.to_vec();
    columns.extend(layout.partition.iter().cloned());
    columns.extend(states(layout));
    columns
}

/// The positions of coordinates among the columns that the second pass reads.
fn numbers(layout: &Layout, rows: &[Field]) -> Vec<usize> {
    let mut at = rows.len() + layout.partition.len();
    let mut numbers = Vec::new();
    for state in of_states(layout) {
        numbers.extend(at + state.keys.len()..at + state.len());
        at += state.len();
    }
    numbers
}

/// The columns of the state of a trajectory, or those of the source and the target.
fn states(layout: &Layout) -> Vec<Field> {
    let states = of_states(layout).into_iter();
    states.flat_map(StateColumns::input_fields).collect()
}

fn of_states(layout: &Layout) -> Vec<&StateColumns> {
    let (source, target) = sides(&layout.evidence);
    let is_pairs = matches!(layout.evidence, RowRoles::Pairs { .. });
    [source]
        .into_iter()
        .chain(is_pairs.then_some(target))
        .collect()
}

/// The places of the states of one model, by their numbers.
struct PlacesOfModel<'a> {
    model: &'a FittedModel,
    sources: HashMap<u32, u32>,
    targets: HashMap<u32, u32>,
}

/// Finds the sets of the states of rows.
struct SetsOfRows<'a> {
    names: &'a RunSchema,
    layout: &'a Layout,
    numbers: Numbers,
    /// The keys of the partitions. New ones have no model. None without partition columns.
    partitions: Option<Keys>,
    /// Index: partition × lags + lag.
    models: Vec<Option<PlacesOfModel<'a>>>,
}

impl<'a> SetsOfRows<'a> {
    fn new(
        layout: &'a Layout,
        names: &'a RunSchema,
        models: &'a [FittedModel],
    ) -> Result<SetsOfRows<'a>> {
        let is_of_pairs = names.is_of_pairs();
        let mut numbers = Numbers::new(&layout.evidence)?;
        let mut partitions = None;
        if !layout.partition.is_empty() {
            let types = layout.partition.iter().map(|f| f.data_type().clone());
            let mut keys = Keys::new(&types.collect::<Vec<_>>())?;
            keys.intern(&names.partitions, &mut Vec::new())?;
            partitions = Some(keys);
        }
        let mut by_place: Vec<Option<PlacesOfModel<'_>>> = Vec::new();
        for model in models {
            let counts = &model.counts;
            let sources = names.sources.columns(&counts.source_states)?;
            let sources = places(numbers.sources(&sources)?);
            let targets = if is_of_pairs {
                let targets = names.targets.columns(&counts.target_states)?;
                places(numbers.targets(&targets)?)
            } else {
                HashMap::new()
            };
            let at = counts.partition * names.lag.n_lags() + counts.lag;
            if by_place.len() <= at {
                by_place.resize_with(at + 1, || None);
            }
            by_place[at] = Some(PlacesOfModel {
                model,
                sources,
                targets,
            });
        }
        Ok(SetsOfRows {
            names,
            layout,
            numbers,
            partitions,
            models: by_place,
        })
    }

    /// Rows of the table `rows`, from rows with the columns of [`columns`].
    fn of(&mut self, rows: &RecordBatch) -> Result<RecordBatch> {
        let n_shown = self.names.rows.len();
        let (shown, keys) = rows.columns().split_at(n_shown);
        let fields = columns(self.layout, &self.names.rows);
        let (of_shown, of_keys) = fields.split_at(n_shown);
        let (shown, keys) = (cast_all(shown, of_shown)?, cast_all(keys, of_keys)?);
        let (partition, states) = keys.split_at(self.layout.partition.len());
        let places = self.places(partition, states, rows.num_rows())?;
        let input = InputRows {
            partition: partition.to_vec(),
            columns: shown,
            places,
        };
        batch(self.names, &input)
    }

    fn places(
        &mut self,
        partition: &[ArrayRef],
        states: &[ArrayRef],
        n: usize,
    ) -> Result<Vec<Place<'a>>> {
        let mut partitions = Vec::with_capacity(n);
        match &mut self.partitions {
            Some(keys) => keys.intern(partition, &mut partitions)?,
            None => partitions.resize(n, 0),
        }
        let (source, _) = sides(&self.layout.evidence);
        let (sources, targets) = states.split_at(source.len());
        let sources = self.numbers.of_sources.of(sources)?;
        let targets = if targets.is_empty() {
            vec![None; n]
        } else {
            self.numbers.of_targets(targets)?
        };
        let n_lags = self.names.lag.n_lags();
        let mut places = Vec::with_capacity(n * n_lags);
        for ((partition, source), target) in partitions.into_iter().zip(sources).zip(targets) {
            for lag in 0..n_lags {
                let of_partition = (partition != NONE).then_some(partition as usize);
                let model =
                    of_partition.and_then(|at| self.models.get(at * n_lags + lag)?.as_ref());
                let Some(found) = model else {
                    places.push(Place::default());
                    continue;
                };
                places.push(Place {
                    model: Some(found.model),
                    source: source.and_then(|number| found.sources.get(&number).copied()),
                    target: target.and_then(|number| found.targets.get(&number).copied()),
                });
            }
        }
        Ok(places)
    }
}

/// Columns as the types of their fields.
fn cast_all(columns: &[ArrayRef], fields: &[Field]) -> Result<Vec<ArrayRef>> {
    let columns = columns.iter().zip(fields);
    let columns = columns.map(|(column, field)| cast(column, field.data_type()));
    columns
        .collect::<Result<_, _>>()
        .map_err(|e| Error::with_source(Kind::Bug, "a column changed its type", e))
}
