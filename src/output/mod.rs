//! Fits → lake: builds the output tables, stages them, checks them and promotes them. Only this
//! module writes below the output.
//!
//! Code map: `place` is the output itself, `commit` turns a version into the result, `folder` adds
//! what a file system needs for that, `clean` removes old versions, `checkpoint` keeps finished
//! work for the next run, `parts` passes data between tasks, `in_flight` tracks unfinished writes.

pub mod checkpoint;
pub mod clean;
pub mod commit;
pub mod earlier;
pub mod folder;
pub mod in_flight;
pub mod layout;
pub mod ledger;
pub mod number;
pub mod parquet;
pub mod parts;
pub mod place;
pub mod pointer;
pub mod result;
pub mod retention;
pub mod row_writer;
pub mod tables;
#[cfg(feature = "cluster")]
pub mod task_answers;

use crate::error::Result;
use crate::evidence::counts::matrix::CountMatrix;
use crate::output::parquet::ROW_GROUP;
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::tables::assigned::{AssignedModel, AssignedSchema};
use crate::output::tables::filters::{FilterTables, FiltersModel};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::points;
use crate::output::tables::points::PointsModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::sequences::{SequenceTables, SequencesModel};
use crate::output::tables::table::Table;
use crate::output::tables::{len, rows, schema};
#[cfg(feature = "cluster")]
pub use crate::output::task_answers::Answers;
#[cfg(feature = "cluster")]
pub use crate::output::task_answers::Attempt;
use arrow::array::RecordBatch;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::{Deref, Range};
use std::pin::pin;
use std::sync::Arc;

/// Fetches the matrices of models that do not hold theirs.
pub trait Fetch: Send + Sync {
    /// The counts, with their matrix, of model number `model`.
    fn counts(&self, model: usize) -> BoxFuture<'_, Result<CountMatrix>>;
    /// How many models to fetch concurrently.
    fn concurrency(&self) -> usize;
}

/// Writes every table of the models (ordered by partition and lag) to the version of a run and
/// returns their row counts. The table `rows` is not made of models. With `reuse_sets`, the tables
/// of sets and changes are copied from the earlier result, because they hold for these models too.
/// `remote` fetches the matrices of models that do not hold theirs.
pub async fn stage(
    output: &Output,
    begun: &Begun,
    names: &RunSchema,
    models: &[FittedModel],
    remote: Option<&dyn Fetch>,
    reuse_sets: bool,
) -> Result<BTreeMap<&'static str, u64>> {
    output.claim_version(begun).await?;
    let earlier = begun.earlier().filter(|_| reuse_sets);
    let mut written = BTreeMap::new();
    for &table in &names.tables {
        // The rows of the input are written later.
        if table == Table::Rows {
            continue;
        }
        let (schema, sorted_by) = schema(table, names);
        let path = output.staged(&begun.run, table.name());
        if let (Some(earlier), Table::Sets | Table::Changes) = (earlier, table) {
            crate::output::parquet::copy(output, &output.table(earlier, table.name()), &path)
                .await?;
            let rows = earlier.tables.get(table.name()).copied();
            written.insert(table.name(), rows.unwrap_or(0));
            continue;
        }
        let file = crate::output::parquet::File::create(output, path, schema, &sorted_by)?;
        let len = |model: &FittedModel| len(table, names, model);
        let rows = |model: &FittedModel, piece| rows(table, names, model, piece);
        let n = match remote.filter(|_| table == Table::Counts) {
            None => write_rows(file, local(models), len, rows).await?,
            Some(remote) => {
                let counts: Vec<_> = (0..models.len()).map(|at| remote.counts(at)).collect();
                let counts = stream::iter(counts).buffered(remote.concurrency());
                let bare = counts.map_ok(|counts| Arc::new(FittedModel::bare(counts)));
                write_rows(file, bare, len, rows).await?
            }
        };
        written.insert(table.name(), n);
    }
    Ok(written)
}

/// Writes the tables of an assignment to the version of a run and returns their row counts.
pub async fn stage_assigned(
    output: &Output,
    begun: &Begun,
    names: &AssignedSchema,
    models: &[AssignedModel],
) -> Result<BTreeMap<&'static str, u64>> {
    output.claim_version(begun).await?;
    let mut written = BTreeMap::new();
    for table in names.tables() {
        let (schema, sorted_by) = table.schema(names);
        let path = output.staged(&begun.run, table.name);
        let file = crate::output::parquet::File::create(output, path, schema, &sorted_by)?;
        let rows = |model: &AssignedModel, piece| table.rows(names, model, piece);
        let len = |model: &AssignedModel| table.len(names, model);
        let n = write_rows(file, local(models), len, rows).await?;
        written.insert(table.name, n);
    }
    Ok(written)
}

/// Writes some of the tables of a run over points, without the table of rows, to the version of the
/// run and returns their row counts.
pub async fn stage_points(
    output: &Output,
    begun: &Begun,
    run: &RunSchema,
    wanted: &[&'static str],
    models: &[PointsModel],
) -> Result<BTreeMap<&'static str, u64>> {
    output.claim_version(begun).await?;
    let mut written = BTreeMap::new();
    for &table in wanted {
        let (schema, sorted_by) = points::schema(table, run);
        let path = output.staged(&begun.run, table);
        let file = crate::output::parquet::File::create(output, path, schema, &sorted_by)?;
        let rows = |model: &PointsModel, piece| points::rows(table, run, model, piece);
        let len = |model: &PointsModel| points::len(table, model);
        let n = write_rows(file, local(models), len, rows).await?;
        written.insert(table, n);
    }
    Ok(written)
}

/// Writes some of the tables of a run over sequences, without the tables of rows, to the version of
/// the run and returns their row counts. The run has claimed the version before it wrote the rows.
pub async fn stage_sequences(
    output: &Output,
    begun: &Begun,
    tables: &SequenceTables<'_>,
    wanted: &[&'static str],
    models: &[SequencesModel],
) -> Result<BTreeMap<&'static str, u64>> {
    let mut written = BTreeMap::new();
    for &table in wanted {
        let (schema, sorted_by) = tables.schema(table);
        let path = output.staged(&begun.run, table);
        let file = crate::output::parquet::File::create(output, path, schema, &sorted_by)?;
        let rows = |model: &SequencesModel, piece| tables.rows(table, model, piece);
        let len = |model: &SequencesModel| tables.len(table, model);
        let n = write_rows(file, local(models), len, rows).await?;
        written.insert(table, n);
    }
    Ok(written)
}

/// Writes some of the tables of a run of filters, without the tables of rows, to the version of the
/// run and returns their row counts. The run has claimed the version before it wrote the rows.
pub async fn stage_filters(
    output: &Output,
    begun: &Begun,
    tables: &FilterTables<'_>,
    wanted: &[&'static str],
    models: &[FiltersModel],
) -> Result<BTreeMap<&'static str, u64>> {
    let mut written = BTreeMap::new();
    for &table in wanted {
        let (schema, sorted_by) = tables.schema(table);
        let path = output.staged(&begun.run, table);
        let file = crate::output::parquet::File::create(output, path, schema, &sorted_by)?;
        let rows = |model: &FiltersModel, piece| tables.rows(table, model, piece);
        let len = |model: &FiltersModel| tables.len(table, model);
        let n = write_rows(file, local(models), len, rows).await?;
        written.insert(table, n);
    }
    Ok(written)
}

/// Local models as a stream.
fn local<M>(models: &[M]) -> impl Stream<Item = Result<&M>> {
    let models: Vec<Result<&M>> = models.iter().map(Ok).collect();
    stream::iter(models)
}

/// Writes `len(model)` rows for every model, built by `rows`, and closes the file.
async fn write_rows<M: Sync, D: Deref<Target = M> + Clone + Send + Sync>(
    mut file: crate::output::parquet::File<'_>,
    models: impl Stream<Item = Result<D>>,
    len: impl Fn(&M) -> usize,
    rows: impl Fn(&M, Range<usize>) -> Result<RecordBatch> + Sync,
) -> Result<u64> {
    let batches = |group: Vec<(D, Range<usize>)>| {
        let batches = group
            .into_par_iter()
            .map(|(model, piece)| rows(&model, piece));
        batches.collect::<Result<Vec<_>>>()
    };
    // Row groups are cut by rows alone. One row group per thread is built at a time.
    let (mut groups, mut group, mut room) = (Vec::new(), Vec::new(), ROW_GROUP);
    let mut models = pin!(models);
    while let Some(model) = models.next().await {
        let model = model?;
        let (mut first, end) = (0, len(&model));
        while first < end {
            let n = (end - first).min(room);
            group.push((model.clone(), first..first + n));
            (first, room) = (first + n, room - n);
            if room == 0 {
                groups.push(std::mem::take(&mut group));
                room = ROW_GROUP;
            }
            if groups.len() == rayon::current_num_threads() {
                file.write(std::mem::take(&mut groups), batches).await?;
            }
        }
    }
    if !group.is_empty() {
        groups.push(group);
    }
    file.write(groups, batches).await?;
    file.finish().await
}
