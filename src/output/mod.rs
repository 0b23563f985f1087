//! Fits → lake: builds the output tables, stages them, checks them and promotes them. Only this
//! module writes below the output.
//!
//! Code map: `place` is the output itself, `commit` turns a version into the result, `folder` adds
//! what a file system needs for that, `files` lists the files of a version, `clean` removes old
//! versions, `checkpoint` keeps finished work for the next run, `made` records the folders of work,
//! `parts` passes data between tasks, `in_flight` tracks unfinished writes.

pub mod checkpoint;
pub mod clean;
pub mod commit;
pub mod earlier;
pub mod files;
pub mod folder;
pub mod in_flight;
pub mod layout;
pub mod ledger;
pub(crate) mod made;
pub mod marks;
pub mod number;
pub(crate) mod pages;
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
use crate::output::marks::FileMarks;
use crate::output::parquet::ROW_GROUP;
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::tables::assigned::{AssignedModel, AssignedSchema};
use crate::output::tables::columns;
use crate::output::tables::columns::{Placed, TableColumns};
use crate::output::tables::filters;
use crate::output::tables::filters::FiltersModel;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::points;
use crate::output::tables::points::PointsModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::sequences::{SequenceTables, SequencesModel};
use crate::output::tables::table::Table;
#[cfg(feature = "cluster")]
pub use crate::output::task_answers::Answers;
#[cfg(feature = "cluster")]
pub use crate::output::task_answers::Attempt;
use arrow::array::RecordBatch;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use std::collections::BTreeMap;
use std::ops::Range;
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
    let marks = match earlier {
        Some(earlier) => output.file_marks(&earlier.run).await?,
        None => FileMarks::default(),
    };
    let mut written = BTreeMap::new();
    for &table in &names.tables {
        // The rows of the input are written later.
        if table == Table::Rows {
            continue;
        }
        if let (Some(earlier), Table::Sets | Table::Changes) = (earlier, table)
            && let Some(mark) = marks.table(table.name())
        {
            let path = output.staged(&begun.run, table.name());
            let from = output.table(earlier, table.name());
            crate::output::parquet::copy(output, &from, &path, mark).await?;
            let rows = earlier.tables.get(table.name()).copied();
            written.insert(table.name(), rows.unwrap_or(0));
            continue;
        }
        let staged = Staged {
            output,
            run: &begun.run,
            schema: names,
            table: table.name(),
        };
        let n = match remote.filter(|_| table == Table::Counts) {
            None => staged.write(&columns(table, names), models).await?,
            Some(remote) => {
                let counts: Vec<_> = (0..models.len()).map(|at| remote.counts(at)).collect();
                let counts = stream::iter(counts).buffered(remote.concurrency());
                let bare = counts.map_ok(|counts| Arc::new(FittedModel::bare(counts)));
                let file = staged.file(&columns(table, names))?;
                let len = |model: &Arc<FittedModel>| columns(table, names).len(model);
                let rows = |pieces: &[(Arc<FittedModel>, Range<usize>)]| {
                    let pieces = pieces.iter();
                    let pieces = pieces.map(|(model, piece)| (&**model, piece.clone()));
                    let pieces: Vec<_> = pieces.collect();
                    columns(table, names).batch(names, table.name(), &pieces)
                };
                let at_once = columns(table, names).at_once();
                write_rows(file, bare, at_once, len, rows).await?
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
    let tables = names.tables().into_iter();
    let tables = tables.map(|table| (table.name, (table.columns)(names)));
    stage_tables(output, begun, &names.names, tables.collect(), models).await
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
    let tables = wanted.iter().map(|&table| (table, points::columns(table)));
    stage_tables(output, begun, run, tables.collect(), models).await
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
    let run = tables.run;
    let tables = wanted.iter().map(|&table| (table, tables.columns(table)));
    stage_tables(output, begun, run, tables.collect(), models).await
}

/// Writes some of the tables of a run of filters, without the tables of rows, to the version of the
/// run and returns their row counts. The run has claimed the version before it wrote the rows.
pub async fn stage_filters(
    output: &Output,
    begun: &Begun,
    run: &RunSchema,
    wanted: &[&'static str],
    models: &[FiltersModel],
) -> Result<BTreeMap<&'static str, u64>> {
    let tables = wanted.iter().map(|&table| (table, filters::columns(table)));
    stage_tables(output, begun, run, tables.collect(), models).await
}

async fn stage_tables<'a, M: Placed>(
    output: &Output,
    begun: &Begun,
    schema: &RunSchema,
    tables: Vec<(&'static str, TableColumns<'a, M>)>,
    models: &'a [M],
) -> Result<BTreeMap<&'static str, u64>> {
    let run = &begun.run;
    let mut written = BTreeMap::new();
    for (table, columns) in tables {
        let staged = Staged {
            output,
            run,
            schema,
            table,
        };
        written.insert(table, staged.write(&columns, models).await?);
    }
    Ok(written)
}

/// A table of a run that is not promoted yet.
struct Staged<'a> {
    output: &'a Output,
    /// The id of the run.
    run: &'a str,
    schema: &'a RunSchema,
    table: &'static str,
}

impl<'o> Staged<'o> {
    fn file<M>(&self, columns: &TableColumns<'_, M>) -> Result<crate::output::parquet::File<'o>> {
        let (schema, sorted_by) = columns.schema(self.schema);
        let path = self.output.staged(self.run, self.table);
        crate::output::parquet::File::create(self.output, path, schema, &sorted_by)
    }

    /// Writes the rows of all models and returns their number.
    async fn write<'a, M: Placed>(
        &self,
        columns: &TableColumns<'a, M>,
        models: &'a [M],
    ) -> Result<u64> {
        let local: Vec<Result<&'a M>> = models.iter().map(Ok).collect();
        let len = |model: &&'a M| columns.len(*model);
        let rows =
            |pieces: &[(&'a M, Range<usize>)]| columns.batch(self.schema, self.table, pieces);
        let models = stream::iter(local);
        write_rows(self.file(columns)?, models, columns.at_once(), len, rows).await
    }
}

/// Writes `len(model)` rows for every model and closes the file. `rows` builds `at_once` rows at a
/// time, which divides [`ROW_GROUP`].
async fn write_rows<D: Clone + Send + Sync>(
    mut file: crate::output::parquet::File<'_>,
    models: impl Stream<Item = Result<D>>,
    at_once: usize,
    len: impl Fn(&D) -> usize,
    rows: impl Fn(&[(D, Range<usize>)]) -> Result<RecordBatch> + Sync,
) -> Result<u64> {
    let batch = |piece: Vec<(D, Range<usize>)>| rows(&piece);
    // Row groups are cut by rows alone. One row group per thread is built at a time.
    let (mut groups, mut group, mut piece) = (Vec::new(), Vec::new(), Vec::new());
    let mut room = at_once;
    let mut models = pin!(models);
    while let Some(model) = models.next().await {
        let model = model?;
        let (mut first, end) = (0, len(&model));
        while first < end {
            let n = (end - first).min(room);
            piece.push((model.clone(), first..first + n));
            (first, room) = (first + n, room - n);
            if room == 0 {
                group.push(std::mem::take(&mut piece));
                room = at_once;
            }
            if group.len() * at_once == ROW_GROUP {
                groups.push(std::mem::take(&mut group));
            }
            if groups.len() == rayon::current_num_threads() {
                file.write(std::mem::take(&mut groups), batch).await?;
            }
        }
    }
    if !piece.is_empty() {
        group.push(piece);
    }
    if !group.is_empty() {
        groups.push(group);
    }
    file.write(groups, batch).await?;
    file.finish().await
}
