//! A table as a list of columns, each named once.
//!
//! In: the rows of a table, as values of any type `T`. Out: its Arrow schema and record batches.
//! A column has a name and a function from a row to a value. The type of the value is the Arrow
//! type of the column, and an `Option` makes the column nullable.

use crate::assess::fit_of_model::FitOfModel;
use crate::error::{Error, Kind, Result};
use crate::output::parquet::{PIECE, ROW_GROUP};
use crate::output::tables::run_schema::{FitColumns, RunSchema, item, optional, required, vector};
use crate::read::rows::states::StateTable;
use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float64Array, Int32Array, ListArray, RecordBatch,
    StringArray, UInt32Array, UInt64Array,
};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::compute::take_arrays;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// A value that has an Arrow type.
pub(crate) trait Value: Sized {
    fn data_type() -> DataType;
    fn array(values: impl Iterator<Item = Self>) -> ArrayRef;
    fn nullable(values: impl Iterator<Item = Option<Self>>) -> ArrayRef;
}

macro_rules! values {
    ($($value:ty: $data_type:ident, $array:ty;)*) => {$(
        impl Value for $value {
            fn data_type() -> DataType {
                DataType::$data_type
            }

            fn array(values: impl Iterator<Item = Self>) -> ArrayRef {
                Arc::new(<$array>::from(values.collect::<Vec<_>>()))
            }

            fn nullable(values: impl Iterator<Item = Option<Self>>) -> ArrayRef {
                Arc::new(values.collect::<$array>())
            }
        }
    )*};
}

values! {
    bool: Boolean, BooleanArray;
    i32: Int32, Int32Array;
    u32: UInt32, UInt32Array;
    u64: UInt64, UInt64Array;
    f64: Float64, Float64Array;
    &str: Utf8, StringArray;
    String: Utf8, StringArray;
}

impl<V: Value> Value for Vec<V> {
    fn data_type() -> DataType {
        DataType::List(item(V::data_type()))
    }

    fn array(values: impl Iterator<Item = Self>) -> ArrayRef {
        Self::nullable(values.map(Some))
    }

    fn nullable(values: impl Iterator<Item = Option<Self>>) -> ArrayRef {
        let lists: Vec<Option<Vec<V>>> = values.collect();
        let lengths = lists.iter().map(|list| list.as_ref().map_or(0, Vec::len));
        let lengths = OffsetBuffer::from_lengths(lengths);
        let nulls = NullBuffer::from_iter(lists.iter().map(Option::is_some));
        let values = V::array(lists.into_iter().flatten().flatten());
        let item = item(V::data_type());
        Arc::new(ListArray::new(item, lengths, values, Some(nulls)))
    }
}

/// The content of a row in a column: a value, or an `Option` of one.
pub(crate) trait Cell: Sized {
    type Value: Value;
    const IS_NULLABLE: bool;
    /// The column of these rows, with values of another type.
    fn array<V: Value>(
        cells: impl Iterator<Item = Self>,
        value: impl Fn(Self::Value) -> V,
    ) -> ArrayRef;
}

impl<V: Value> Cell for V {
    type Value = V;
    const IS_NULLABLE: bool = false;

    fn array<U: Value>(cells: impl Iterator<Item = V>, value: impl Fn(V) -> U) -> ArrayRef {
        U::array(cells.map(value))
    }
}

impl<V: Value> Cell for Option<V> {
    type Value = V;
    const IS_NULLABLE: bool = true;

    fn array<U: Value>(cells: impl Iterator<Item = Option<V>>, value: impl Fn(V) -> U) -> ArrayRef {
        U::nullable(cells.map(|cell| cell.map(&value)))
    }
}

/// A model of one partition and lag.
pub(crate) trait Placed: Sync {
    /// The indices of its partition and of its lag.
    fn place(&self) -> (usize, usize);
}

/// Some of the rows that models add to a table, in its order.
type Pieces<'a, M> = [(&'a M, Range<usize>)];

type Len<'a, M> = Box<dyn Fn(&'a M) -> usize + Send + Sync + 'a>;
type Rows<'a, M, T> = Box<dyn Fn(&'a M, Range<usize>) -> Vec<T> + Send + Sync + 'a>;
type Arrays<'a, T> = Box<dyn Fn(&[T]) -> Result<Vec<ArrayRef>> + Send + Sync + 'a>;
type ArraysOf<'a, M> = Box<dyn Fn(&Pieces<'a, M>) -> Result<Vec<ArrayRef>> + Send + Sync + 'a>;

/// The list of columns of a table. A model `M` adds rows `T` to it.
pub(crate) struct Columns<'a, M, T> {
    at_once: usize,
    len: Len<'a, M>,
    rows: Rows<'a, M, T>,
    fields: Vec<Field>,
    /// How many fields are keys. Keys come first.
    n_keys: usize,
    arrays: Vec<Arrays<'a, T>>,
}

impl<'a, M, T: Sync + 'a> Columns<'a, M, T> {
    /// A table that is small enough to make all rows of a model at once.
    pub(crate) fn of(rows: impl Fn(&'a M) -> Vec<T> + Copy + Send + Sync + 'a) -> Self {
        let piece = move |model: &'a M, piece: Range<usize>| {
            let rows = rows(model).into_iter();
            rows.skip(piece.start).take(piece.len()).collect()
        };
        Columns {
            at_once: ROW_GROUP,
            ..Columns::in_pieces(move |model| rows(model).len(), piece)
        }
    }

    /// A table whose rows are made in pieces, which fit the cache. `len` is the number of rows of a
    /// model.
    pub(crate) fn in_pieces(
        len: impl Fn(&'a M) -> usize + Send + Sync + 'a,
        rows: impl Fn(&'a M, Range<usize>) -> Vec<T> + Send + Sync + 'a,
    ) -> Self {
        Columns {
            at_once: PIECE,
            len: Box::new(len),
            rows: Box::new(rows),
            fields: Vec::new(),
            n_keys: 0,
            arrays: Vec::new(),
        }
    }

    fn with(
        mut self,
        fields: impl IntoIterator<Item = Field>,
        arrays: impl Fn(&[T]) -> Result<Vec<ArrayRef>> + Send + Sync + 'a,
    ) -> Self {
        self.fields.extend(fields);
        self.arrays.push(Box::new(arrays));
        self
    }

    /// Makes all columns so far keys, which order the rows.
    pub(crate) fn into_keys(mut self) -> Self {
        self.n_keys = self.fields.len();
        self
    }

    pub(crate) fn column<C: Cell>(
        self,
        name: impl Into<String>,
        cell: impl Fn(&T) -> C + Send + Sync + 'a,
    ) -> Self {
        let field = Field::new(name, C::Value::data_type(), C::IS_NULLABLE);
        self.with([field], move |rows| {
            Ok(vec![C::array(rows.iter().map(&cell), |value| value)])
        })
    }

    /// A column about a part of a row. Null for rows without the part.
    pub(crate) fn part<P, V: Value>(
        self,
        name: &str,
        part: impl Fn(&T) -> Option<P> + Send + Sync + 'a,
        value: impl Fn(P) -> V + Send + Sync + 'a,
    ) -> Self {
        self.column(name, move |row| part(row).map(&value))
    }

    /// A column that orders the rows.
    pub(crate) fn key<C: Cell>(
        self,
        name: &str,
        cell: impl Fn(&T) -> C + Send + Sync + 'a,
    ) -> Self {
        self.column(name, cell).into_keys()
    }

    /// One column per entry of a list of names and functions.
    pub(crate) fn each<F: Copy + Send + Sync + 'a, C: Cell>(
        self,
        list: impl IntoIterator<Item = (&'static str, F)>,
        cell: impl Fn(F, &T) -> C + Copy + Send + Sync + 'a,
    ) -> Self {
        list.into_iter().fold(self, |columns, (name, f)| {
            columns.column(name, move |row| cell(f, row))
        })
    }

    /// Counts as integers, or weights as floats.
    pub(crate) fn amount<C: Cell<Value = f64>>(
        self,
        run: &RunSchema,
        name: impl Into<String>,
        cell: impl Fn(&T) -> C + Send + Sync + 'a,
    ) -> Self {
        if run.is_weighted {
            return self.column(name, cell);
        }
        // Sums of counts are exact in f64 below 2⁵³. A model with more is refused before its fit.
        let field = Field::new(name, run.count_type(), C::IS_NULLABLE);
        self.with([field], move |rows| {
            Ok(vec![C::array(rows.iter().map(&cell), |n| n as u64)])
        })
    }

    /// A list of `width` numbers per row. Shorter lists end with zeros.
    pub(crate) fn vector<'v>(
        self,
        name: String,
        width: usize,
        cell: impl Fn(&T) -> Option<&'v [f64]> + Send + Sync + 'a,
    ) -> Self {
        self.with([optional(name, vector(width))], move |rows| {
            let mut values = Vec::with_capacity(rows.len() * width);
            let nulls = NullBuffer::from_iter(rows.iter().map(|row| {
                let end = values.len() + width;
                let numbers = cell(row);
                values.extend_from_slice(numbers.unwrap_or_default());
                values.resize(end, 0.0);
                numbers.is_some()
            }));
            let (item, values) = (item(DataType::Float64), Float64Array::from(values));
            let lists = FixedSizeListArray::new(item, width as i32, Arc::new(values), Some(nulls));
            Ok(vec![Arc::new(lists)])
        })
    }

    /// Columns of the types of `fields` that are made together and have no nulls.
    pub(crate) fn group(
        self,
        fields: &[Field],
        arrays: impl Fn(&[T]) -> Result<Vec<ArrayRef>> + Send + Sync + 'a,
    ) -> Self {
        self.with(fields.iter().map(required), arrays)
    }

    /// Columns of the types of `fields` that are made together and may have nulls where `fields`
    /// do.
    pub(crate) fn given(
        self,
        fields: &[Field],
        arrays: impl Fn(&[T]) -> Result<Vec<ArrayRef>> + Send + Sync + 'a,
    ) -> Self {
        self.with(fields.iter().cloned(), arrays)
    }

    /// The columns of a state, under the names of `fields`. `state` is its id in `states`.
    pub(crate) fn state(
        self,
        states: &'a StateTable,
        fields: &[Field],
        state: impl Fn(&T) -> u32 + Send + Sync + 'a,
    ) -> Self {
        self.group(fields, move |rows| {
            states.columns(&rows.iter().map(&state).collect::<Vec<_>>())
        })
    }

    /// The number and the borders of the box of each binned coordinate of a state. `state` is its
    /// id in `states`.
    pub(crate) fn boxes(
        self,
        states: &'a StateTable,
        state: impl Fn(&T) -> u32 + Send + Sync + 'a,
    ) -> Self {
        self.group(&states.box_fields(), move |rows| {
            states.box_columns(&rows.iter().map(&state).collect::<Vec<_>>())
        })
    }

    pub(crate) fn finish(self) -> TableColumns<'a, M> {
        let (rows, arrays) = (self.rows, self.arrays);
        TableColumns {
            fields: self.fields,
            n_keys: self.n_keys,
            at_once: self.at_once,
            len: self.len,
            arrays: Box::new(move |pieces| {
                let mut all = Vec::new();
                for (model, piece) in pieces {
                    let rows = rows(model, piece.clone());
                    // The rows of one model need no copy.
                    if all.is_empty() {
                        all = rows;
                    } else {
                        all.extend(rows);
                    }
                }
                let arrays = arrays.par_iter().map(|arrays| arrays(&all));
                Ok(arrays.collect::<Result<Vec<_>>>()?.concat())
            }),
        }
    }
}

/// A table with one row per item of each fit, ordered by the name of the fit.
pub(crate) fn of_fits<'a, M, F, I>(
    fits: fn(&'a M) -> &'a [FitOfModel<F>],
    items: impl Fn(&'a FitOfModel<F>) -> I + Copy + Send + Sync + 'a,
) -> Columns<'a, M, (&'a FitOfModel<F>, I::Item)>
where
    F: Sync + 'a,
    I: IntoIterator<Item: Sync + 'a>,
{
    let rows = move |model: &'a M| {
        let fits = FitOfModel::by_name(fits(model)).into_iter();
        let rows = fits.flat_map(|fit| items(fit).into_iter().map(move |item| (fit, item)));
        rows.collect()
    };
    Columns::of(rows).key("fit", |(fit, _)| fit.name.as_str())
}

/// A table with one row per item of each fit of a run, ordered by the name of the fit.
pub(crate) fn of_run_fits<'a, M, F: 'a, I>(
    run: &'a RunSchema,
    fits: fn(&'a M) -> &'a [F],
    items: impl Fn(&'a F) -> I + Copy + Send + Sync + 'a,
) -> Columns<'a, M, (&'a str, I::Item)>
where
    I: IntoIterator<Item: Sync + 'a>,
{
    let rows = move |model: &'a M| {
        let fits = by_name(run, fits(model)).into_iter();
        let named = fits.map(|(columns, fit)| (columns.name.as_str(), items(fit)));
        let rows = named.flat_map(|(fit, items)| items.into_iter().map(move |item| (fit, item)));
        rows.collect()
    };
    Columns::of(rows).key("fit", |&(fit, _)| fit)
}

/// Which of `n` rows of a model, from its row `first` on, are among `rows`. Counted from `first`.
pub(crate) fn own_rows(rows: &Range<usize>, first: usize, n: usize) -> Range<usize> {
    rows.start.clamp(first, first + n) - first..rows.end.clamp(first, first + n) - first
}

/// The columns of a table after those of the partition and the lag.
pub struct TableColumns<'a, M> {
    fields: Vec<Field>,
    n_keys: usize,
    at_once: usize,
    len: Len<'a, M>,
    arrays: ArraysOf<'a, M>,
}

impl<'a, M> TableColumns<'a, M> {
    /// All columns of the table, and the names of those that order its rows.
    pub(crate) fn schema(&self, run: &RunSchema) -> (SchemaRef, Vec<String>) {
        let mut fields = run.leading();
        let n_keys = fields.len() + self.n_keys;
        fields.extend(self.fields.iter().cloned());
        let keys = fields[..n_keys].iter().map(|f| f.name().clone()).collect();
        (Arc::new(Schema::new(fields)), keys)
    }

    /// The columns of a table that does not begin with those of a partition and a lag.
    pub(crate) fn own_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.fields.clone()))
    }

    /// All rows of `model` in a table with the columns of [`own_schema`](Self::own_schema).
    pub(crate) fn own_batch(&self, table: &str, model: &'a M) -> Result<RecordBatch> {
        let columns = (self.arrays)(&[(model, 0..self.len(model))])?;
        RecordBatch::try_new(self.own_schema(), columns).map_err(|e| broken(table, e))
    }

    /// The number of rows to make at once.
    pub(crate) fn at_once(&self) -> usize {
        self.at_once
    }

    /// The number of rows that a model adds.
    pub(crate) fn len(&self, model: &'a M) -> usize {
        (self.len)(model)
    }

    /// Some of the rows of the table.
    pub(crate) fn batch(
        &self,
        run: &RunSchema,
        table: &str,
        pieces: &Pieces<'a, M>,
    ) -> Result<RecordBatch>
    where
        M: Placed,
    {
        let spread = |of: fn((usize, usize)) -> usize| {
            let pieces = pieces.iter();
            pieces.flat_map(move |(model, piece)| {
                std::iter::repeat_n(of(model.place()) as u32, piece.len())
            })
        };
        let mut columns = taken(&run.partitions, spread(|(partition, _)| partition))?;
        columns.extend(taken(&run.lag.table(), spread(|(_, lag)| lag))?);
        columns.extend((self.arrays)(pieces)?);
        RecordBatch::try_new(self.schema(run).0, columns).map_err(|e| broken(table, e))
    }
}

fn broken(table: &str, e: ArrowError) -> Error {
    let what = format!("the rows of `{table}` do not fit its columns");
    Error::with_source(Kind::Bug, what, e)
}

/// Some rows of columns, by their indices.
pub(crate) fn taken(
    columns: &[ArrayRef],
    rows: impl Iterator<Item = u32>,
) -> Result<Vec<ArrayRef>> {
    let rows = UInt32Array::from_iter_values(rows);
    take_arrays(columns, &rows, None)
        .map_err(|e| Error::with_source(Kind::Bug, "rows cannot be selected", e))
}

/// Pairs each fit of a run with what a model has of it, ordered by the name of the fit.
pub(crate) fn by_name<T>(
    run: &RunSchema,
    of_fits: impl IntoIterator<Item = T>,
) -> Vec<(&FitColumns, T)> {
    let mut fits: Vec<_> = run.fits.iter().zip(of_fits).collect();
    fits.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    fits
}

/// Null for a state without a set, whose affiliation is −1.
pub(crate) fn set(affiliation: i32) -> Option<i32> {
    (affiliation >= 0).then_some(affiliation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tables::run_schema::LagColumn;
    use arrow::util::pretty::pretty_format_batches;

    fn run(is_weighted: bool) -> RunSchema {
        let year = Field::new("year", DataType::Int32, true);
        let years: ArrayRef = Arc::new(Int32Array::from(vec![2001, 2002]));
        RunSchema {
            is_weighted,
            ..RunSchema::of_models(&[year], vec![years], LagColumn::Integers(vec![5]))
        }
    }

    impl Placed for Vec<f64> {
        fn place(&self) -> (usize, usize) {
            (1, 0)
        }
    }

    fn table<'a>(run: &RunSchema) -> TableColumns<'a, Vec<f64>> {
        const POWERS: [(&str, fn(f64) -> f64); 2] = [("square", |x| x * x), ("half", |x| x / 2.0)];
        Columns::of(|model: &'a Vec<f64>| model.iter().enumerate().collect())
            .key("index", |&(at, _)| at as u32)
            .amount(run, "count", |&(_, &x)| x)
            .amount(run, "large", |&(_, &x)| (x > 2.0).then_some(x))
            .each(POWERS, |f, &(_, &x)| f(x))
            .column("name", |&(at, _)| (at > 0).then(|| at.to_string()))
            .column("list", |&(at, _)| vec![true; at])
            .vector("point".into(), 3, |&(at, x)| {
                (at > 0).then_some(std::slice::from_ref(x))
            })
            .finish()
    }

    #[test]
    fn rows_follow_partition_and_lag_and_short_vectors_end_with_zeros() {
        let (run, model) = (run(false), vec![2.0, 3.0, 4.0]);
        assert_eq!(table(&run).len(&model), 3);
        let table = table(&run);
        let batch = table.batch(&run, "t", &[(&model, 0..1), (&model, 1..2)]);
        let shown = pretty_format_batches(&[batch.expect("rows")]).expect("text");
        let expected = "\
+------+-----+-------+-------+-------+--------+------+------+--------+-----------------+
| year | lag | index | count | large | square | half | name | list   | point           |
+------+-----+-------+-------+-------+--------+------+------+--------+-----------------+
| 2002 | 5   | 0     | 2     |       | 4.0    | 1.0  |      | []     |                 |
| 2002 | 5   | 1     | 3     | 3     | 9.0    | 1.5  | 1    | [true] | [3.0, 0.0, 0.0] |
+------+-----+-------+-------+-------+--------+------+------+--------+-----------------+";
        assert_eq!(shown.to_string(), expected);
    }

    #[test]
    fn values_give_types_and_options_give_nulls() {
        for (is_weighted, count) in [(false, DataType::UInt64), (true, DataType::Float64)] {
            let run = run(is_weighted);
            let (schema, keys) = table(&run).schema(&run);
            assert_eq!(keys, ["year", "lag", "index"]);
            let nullable = schema.fields().iter().filter(|f| f.is_nullable());
            let nullable: Vec<&str> = nullable.map(|f| f.name().as_str()).collect();
            assert_eq!(nullable, ["large", "name", "point"]);
            let field = schema.field_with_name("count").expect("a column");
            assert_eq!(field.data_type(), &count);
        }
    }
}
