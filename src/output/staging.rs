//! Models → tables in the version of a run, where readers do not see them.

use crate::error::Result;
use crate::output::parquet::{File, ROW_GROUP, copy};
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::tables::columns::{Placed, TableColumns};
use crate::output::tables::run_schema::RunSchema;
use crate::read::paths::current::Current;
use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use futures::{Stream, StreamExt, stream};
use std::collections::BTreeMap;
use std::ops::Range;
use std::pin::pin;
use std::sync::Arc;

/// A table that a run has written and not promoted yet.
#[derive(Debug, Clone)]
pub struct StagedTable {
    /// The number of its rows.
    pub rows: u64,
    /// Its columns.
    pub schema: SchemaRef,
}

/// The tables that a run has written, by their names.
pub(crate) type StagedTables = BTreeMap<&'static str, StagedTable>;

/// Writes tables of models to the version of a run, which the run has claimed.
pub(crate) struct Staging<'a> {
    /// The output of the run.
    pub(crate) output: &'a Output,
    /// The run.
    pub(crate) begun: &'a Begun,
    /// What the tables share.
    pub(crate) schema: &'a RunSchema,
}

impl<'o> Staging<'o> {
    /// Tables of the models of a run, which share `schema`.
    pub(crate) fn new(output: &'o Output, begun: &'o Begun, schema: &'o RunSchema) -> Staging<'o> {
        Staging {
            output,
            begun,
            schema,
        }
    }

    fn file<M>(&self, table: &str, columns: &TableColumns<'_, M>) -> Result<(File<'o>, SchemaRef)> {
        let (schema, sorted_by) = columns.schema(self.schema);
        let path = self.output.staged(&self.begun.run, table);
        let file = File::create(self.output, path, Arc::clone(&schema), &sorted_by)?;
        Ok((file, schema))
    }

    /// Writes the rows of all models to some tables.
    ///
    /// # Errors
    /// If a table cannot be written.
    pub(crate) async fn write_all<'a, M: Placed>(
        &self,
        tables: Vec<(&'static str, TableColumns<'a, M>)>,
        models: &'a [M],
    ) -> Result<StagedTables> {
        let mut written = StagedTables::new();
        for (table, columns) in tables {
            written.insert(table, self.write(table, &columns, models).await?);
        }
        Ok(written)
    }

    /// Writes the rows of all models to a table.
    ///
    /// # Errors
    /// If the table cannot be written.
    pub(crate) async fn write<'a, M: Placed>(
        &self,
        table: &'static str,
        columns: &TableColumns<'a, M>,
        models: &'a [M],
    ) -> Result<StagedTable> {
        let local: Vec<Result<&'a M>> = models.iter().map(Ok).collect();
        let len = |model: &&'a M| columns.len(*model);
        let rows = |pieces: &[(&'a M, Range<usize>)]| columns.batch(self.schema, table, pieces);
        let (file, schema) = self.file(table, columns)?;
        let models = stream::iter(local);
        let rows = write_rows(file, models, columns.at_once(), len, rows).await?;
        Ok(StagedTable { rows, schema })
    }

    /// Writes the rows of models that are fetched one after another. `columns` makes the columns
    /// of the table for models that live as long as one piece.
    ///
    /// # Errors
    /// If a model cannot be fetched, or the table cannot be written.
    pub(crate) async fn write_fetched<M: Placed + Send>(
        &self,
        table: &'static str,
        columns: fn(&RunSchema) -> TableColumns<'_, M>,
        models: impl Stream<Item = Result<Arc<M>>>,
    ) -> Result<StagedTable> {
        let (file, schema) = self.file(table, &columns(self.schema))?;
        let len = |model: &Arc<M>| columns(self.schema).len(model);
        let rows = |pieces: &[(Arc<M>, Range<usize>)]| {
            let pieces = pieces.iter();
            let pieces = pieces.map(|(model, piece)| (&**model, piece.clone()));
            let pieces: Vec<_> = pieces.collect();
            columns(self.schema).batch(self.schema, table, &pieces)
        };
        let at_once = columns(self.schema).at_once();
        let rows = write_rows(file, models, at_once, len, rows).await?;
        Ok(StagedTable { rows, schema })
    }

    /// Copies a table of an earlier result. None if this process cannot tell that the file is
    /// the one that was written.
    ///
    /// # Errors
    /// If the table cannot be read or written.
    pub(crate) async fn copy(
        &self,
        table: &'static str,
        schema: SchemaRef,
        earlier: &Current,
    ) -> Result<Option<StagedTable>> {
        let marks = self.output.file_marks(&earlier.run).await?;
        let Some(mark) = marks.table(table) else {
            return Ok(None);
        };
        let path = self.output.staged(&self.begun.run, table);
        let from = self.output.table(earlier, table);
        copy(self.output, &from, &path, mark).await?;
        let rows = earlier.tables.get(table).copied().unwrap_or(0);
        Ok(Some(StagedTable { rows, schema }))
    }
}

/// Writes `len(model)` rows for every model and closes the file. `rows` builds `at_once` rows at a
/// time, which divides [`ROW_GROUP`].
async fn write_rows<D: Clone + Send + Sync>(
    mut file: File<'_>,
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
