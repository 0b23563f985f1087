//! Trajectories whose rows come in batches, and their rows in tables.

use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::row_writer::RowWriter;
use crate::read::rows::split::Split;
use crate::read::rows::stop::bug;
use arrow::array::{Array, ArrayRef, FixedSizeListArray, Float64Array, RecordBatch};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Field, SchemaRef};
use std::sync::Arc;

/// The values of a split in the order of the rows of a trajectory.
pub(crate) const SPLITS: [(Split, Option<&str>); 3] = [
    (Split::Train, Some("train")),
    (Split::Test, Some("test")),
    (Split::Neither, None),
];

/// The index of a split in [`SPLITS`].
pub(crate) fn place(split: Split) -> usize {
    match split {
        Split::Train => 0,
        Split::Test => 1,
        Split::Neither => 2,
    }
}

/// A trajectory, with sums over its rows.
pub(crate) struct Trajectory<S> {
    /// Its row in the keys.
    pub(crate) key: u32,
    /// Its partition.
    pub(crate) partition: u32,
    /// By split, in the order of [`SPLITS`].
    pub(crate) splits: [S; 3],
}

/// The trajectory that the next rows may continue.
#[derive(Default)]
pub(crate) struct Open<S> {
    /// The trajectory. None before the first row, and when it has ended.
    pub(crate) trajectory: Option<Trajectory<S>>,
    /// Its keys: one row per column.
    pending: Vec<ArrayRef>,
}

impl<S: Default> Open<S> {
    /// The keys of the open trajectory, if there is one, and those of a batch. The second value is
    /// the row of the first key of the batch.
    ///
    /// # Errors
    /// Keys of other types, which is a bug.
    pub(crate) fn keys(&self, of_batch: &[ArrayRef]) -> Result<(Vec<ArrayRef>, u32)> {
        if self.trajectory.is_none() {
            return Ok((of_batch.to_vec(), 0));
        }
        let columns = self.pending.iter().zip(of_batch);
        let columns = columns.map(|(a, b)| concat(&[a.as_ref(), b.as_ref()]));
        Ok((columns.collect::<Result<_, _>>().map_err(bug)?, 1))
    }

    /// Opens the trajectory with the keys in row `key`.
    pub(crate) fn begin(&mut self, key: u32, partition: u32) {
        self.trajectory = Some(Trajectory {
            key,
            partition,
            splits: Default::default(),
        });
    }

    /// Keeps the keys of the open trajectory for the next batch.
    pub(crate) fn keep(&mut self, keys: &[ArrayRef]) {
        if let Some(own) = &mut self.trajectory {
            let key = std::mem::take(&mut own.key) as usize;
            self.pending = keys.iter().map(|column| column.slice(key, 1)).collect();
        }
    }

    /// The keys of the last trajectory, after all batches.
    pub(crate) fn last_keys(&mut self) -> Vec<ArrayRef> {
        std::mem::take(&mut self.pending)
    }
}

/// The run whose tables are written.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    /// The output.
    pub(crate) output: &'a Output,
    /// The run.
    pub(crate) begun: &'a Begun,
}

impl<'a> Target<'a> {
    /// Starts to write a table.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) fn table(&self, name: &str, schema: &SchemaRef) -> Result<RowWriter<'a>> {
        let path = self.output.staged(&self.begun.run, name);
        RowWriter::create(self.output, path, Arc::clone(schema))
    }
}

/// A batch with the types of a schema.
///
/// # Errors
/// Columns that are not those of the schema, which is a bug.
pub(crate) fn typed(schema: &SchemaRef, columns: Vec<ArrayRef>) -> Result<RecordBatch> {
    let fields = schema.fields();
    if columns.len() != fields.len() {
        let what = format!("{} columns for {} fields", columns.len(), fields.len());
        return Err(Error::bug(what));
    }
    let typed = columns.into_iter().zip(fields).map(|(column, field)| {
        if column.data_type() == field.data_type() {
            return Ok(column);
        }
        cast(&column, field.data_type()).map_err(bug)
    });
    let columns = typed.collect::<Result<Vec<_>>>()?;
    RecordBatch::try_new(Arc::clone(schema), columns)
        .map_err(|e| Error::with_source(Kind::Bug, "rows do not fit the columns of their table", e))
}

/// A list of `width` numbers per row.
pub(crate) fn lists(values: Vec<f64>, width: usize, nulls: NullBuffer) -> ArrayRef {
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    let (width, values) = (width as i32, Arc::new(Float64Array::from(values)));
    Arc::new(FixedSizeListArray::new(item, width, values, Some(nulls)))
}
