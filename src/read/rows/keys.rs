//! Keys ↔ ids: every distinct row of some columns, of any SQL type, gets a small number in order of
//! first appearance.

use crate::error::{Error, Kind, Result};
use crate::memory;
use crate::memory::{Touched, shown};
use crate::read::rows::pieces::{PIECE, joined, pieces};
use crate::read::sql::floats;
use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, SortField};
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::sync::Arc;

/// The id of a null key, which is not a key.
pub(crate) const NONE: u32 = u32::MAX;

/// Bytes of text that one column can hold.
const MOST_BYTES: usize = i32::MAX as usize;

/// Distinct keys in order of first appearance.
pub(crate) struct Keys {
    types: Vec<DataType>,
    stored: Stored,
    table: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// The keys by id.
enum Stored {
    /// One integer column, which is the most common case.
    Integers(Vec<i64>),
    /// Any columns in arrow's row format, which sorts like the columns.
    Rows(RowConverter, Bytes),
}

/// Concatenated byte strings; string `k` ends at `ends[k]`.
#[derive(Default)]
struct Bytes {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Bytes {
    fn get(&self, id: u32) -> &[u8] {
        let start = if id == 0 {
            0
        } else {
            self.ends[id as usize - 1]
        };
        &self.bytes[start..self.ends[id as usize]]
    }
}

/// The values of an integer column; `None` if the type is not an integer type within i64.
pub(crate) fn integers(column: &ArrayRef) -> Option<Int64Array> {
    if !is_integer(column.data_type()) {
        return None;
    }
    Some(cast(column, &DataType::Int64).ok()?.as_primitive().clone())
}

fn is_integer(data_type: &DataType) -> bool {
    data_type.is_integer() && *data_type != DataType::UInt64
}

impl Keys {
    /// No keys yet, for columns of these types.
    ///
    /// # Errors
    /// A type that cannot be compared.
    pub(crate) fn new(types: &[DataType]) -> Result<Keys> {
        let stored = match types {
            [one] if is_integer(one) => Stored::Integers(Vec::new()),
            _ => Stored::Rows(converter(types, "a key column")?, Bytes::default()),
        };
        Ok(Keys {
            types: types.to_vec(),
            stored,
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        })
    }

    /// Keys of these columns, which begin with those of `known`. None without columns.
    ///
    /// # Errors
    /// A type that cannot be compared.
    pub(crate) fn of_fields<'a>(
        fields: impl IntoIterator<Item = &'a Field>,
        known: &[ArrayRef],
    ) -> Result<Option<Keys>> {
        let types = fields.into_iter().map(|field| field.data_type().clone());
        let types: Vec<DataType> = types.collect();
        if types.is_empty() {
            return Ok(None);
        }
        let mut keys = Keys::new(&types)?;
        if !known.is_empty() {
            keys.intern(known, &mut Vec::new())?;
        }
        Ok(Some(keys))
    }

    /// Number of distinct keys.
    #[allow(clippy::len_without_is_empty, reason = "callers need the number alone")]
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// An empty set of keys of the same types.
    pub(crate) fn empty(&self) -> Result<Keys> {
        Keys::new(&self.types)
    }

    /// The rank of each id among all keys in ascending order.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        ranks(&self.order())
    }

    /// All ids in ascending order of their keys.
    fn order(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        let touched = Touched::default();
        match &self.stored {
            Stored::Integers(keys) => order.sort_unstable_by_key(|&id| keys[id as usize]),
            Stored::Rows(_, keys) => order.sort_unstable_by(|&a, &b| {
                let (a, b) = (keys.get(a), keys.get(b));
                touched.add(a.len().min(b.len()));
                a.cmp(b)
            }),
        }
        order
    }

    /// Appends the ids of the rows of `columns`; `NONE` for rows in which any column is null.
    ///
    /// # Errors
    /// More than 2^32 − 2 distinct keys.
    pub(crate) fn intern(&mut self, columns: &[ArrayRef], ids: &mut Vec<u32>) -> Result<()> {
        let broken = |e| Error::with_source(Kind::Bug, "key columns changed their type", e);
        match &mut self.stored {
            Stored::Integers(keys) => {
                let values = cast(&columns[0], &DataType::Int64).map_err(broken)?;
                let values = values.as_primitive::<Int64Type>();
                ids.reserve(values.len());
                // Equal keys come in runs.
                let mut last = None;
                for value in values {
                    let id = match (value, last) {
                        (None, _) => NONE,
                        (Some(value), Some((before, id))) if value == before => id,
                        (Some(value), _) => {
                            let id = integer_id(&mut self.table, &self.hasher, keys, value)?;
                            last = Some((value, id));
                            id
                        }
                    };
                    ids.push(id);
                }
            }
            Stored::Rows(converter, keys) => {
                let columns = columns.iter().map(floats::one_form);
                let columns: Vec<_> = columns.collect::<Result<_, _>>().map_err(broken)?;
                ids.reserve(columns.first().map_or(0, |c| c.len()));
                for columns in pieces(columns) {
                    let rows = converter.convert_columns(&columns).map_err(broken)?;
                    let with_nulls: Vec<_> =
                        columns.iter().filter(|c| c.null_count() > 0).collect();
                    for (at, row) in rows.iter().enumerate() {
                        let null = with_nulls.iter().any(|c| c.is_null(at));
                        ids.push(if null {
                            NONE
                        } else {
                            row_id(&mut self.table, &self.hasher, keys, row.data())?
                        });
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the keys of `other`; returns the new id of each of its keys.
    pub(crate) fn absorb(&mut self, other: &Keys) -> Result<Vec<u32>> {
        let (table, hasher) = (&mut self.table, &self.hasher);
        match (&mut self.stored, &other.stored) {
            (Stored::Integers(keys), Stored::Integers(others)) => others
                .iter()
                .map(|&value| integer_id(table, hasher, keys, value))
                .collect(),
            (Stored::Rows(_, keys), Stored::Rows(_, others)) => (0..others.ends.len())
                .map(|id| row_id(table, hasher, keys, others.get(id as u32)))
                .collect(),
            _ => Err(Error::bug("keys of two types cannot be merged")),
        }
    }

    /// The keys as columns in ascending order, and the rank of each id.
    pub(crate) fn sorted(self) -> Result<(Vec<ArrayRef>, Vec<u32>)> {
        let order = self.order();
        Ok((self.columns(&order)?, ranks(&order)))
    }

    /// The keys `ids` as columns.
    pub(crate) fn columns(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        match &self.stored {
            // Without columns all rows are one key, which is not stored.
            Stored::Rows(..) if self.types.is_empty() => Ok(Vec::new()),
            Stored::Integers(keys) => {
                let values = ids.iter().map(|&id| keys[id as usize]);
                let values: ArrayRef = Arc::new(Int64Array::from_iter_values(values));
                cast(&values, &self.types[0]).map(|column| vec![column])
            }
            Stored::Rows(converter, keys) => {
                let bytes: usize = ids.iter().map(|&id| keys.get(id).len()).sum();
                if bytes > MOST_BYTES && !self.types.iter().all(DataType::is_primitive) {
                    return Err(too_long(bytes));
                }
                decoded(converter, keys, ids)
            }
        }
        .map_err(|e| Error::with_source(Kind::Bug, "keys cannot be decoded", e))
    }
}

/// A converter of columns of these types to bytes that sort like them. `what` is a column in
/// words.
///
/// # Errors
/// A type that cannot be compared.
pub(crate) fn converter<'a>(
    types: impl IntoIterator<Item = &'a DataType>,
    what: &str,
) -> Result<RowConverter> {
    let fields = types.into_iter().map(|of| SortField::new(of.clone()));
    RowConverter::new(fields.collect()).map_err(|e| {
        let what = format!("{what} has a type that cannot be a key");
        Error::with_source(Kind::Input, what, e)
    })
}

/// The columns of some keys, decoded piece by piece.
fn decoded(
    converter: &RowConverter,
    keys: &Bytes,
    ids: &[u32],
) -> std::result::Result<Vec<ArrayRef>, ArrowError> {
    let parser = converter.parser();
    let decode = |ids: &[u32]| {
        memory::wait_for_room();
        converter.convert_rows(ids.iter().map(|&id| parser.parse(keys.get(id))))
    };
    let mut decoded = Vec::new();
    let (mut start, mut bytes) = (0, 0);
    for (at, &id) in ids.iter().enumerate() {
        let of_key = keys.get(id).len();
        if bytes > 0 && bytes + of_key > PIECE {
            decoded.push(decode(&ids[start..at])?);
            (start, bytes) = (at, 0);
        }
        bytes += of_key;
    }
    decoded.push(decode(&ids[start..])?);
    joined(&decoded)
}

/// The rank of each id in `order`.
fn ranks(order: &[u32]) -> Vec<u32> {
    let mut rank = vec![0; order.len()];
    for (at, &id) in order.iter().enumerate() {
        rank[id as usize] = at as u32;
    }
    rank
}

#[inline]
fn integer_id(
    table: &mut HashTable<u32>,
    hasher: &DefaultHashBuilder,
    keys: &mut Vec<i64>,
    key: i64,
) -> Result<u32> {
    let hash = hasher.hash_one(key);
    if let Some(&id) = table.find(hash, |&id| keys[id as usize] == key) {
        return Ok(id);
    }
    let id = next_id(keys.len())?;
    keys.push(key);
    table.insert_unique(hash, id, |&id| hasher.hash_one(keys[id as usize]));
    Ok(id)
}

#[inline]
fn row_id(
    table: &mut HashTable<u32>,
    hasher: &DefaultHashBuilder,
    keys: &mut Bytes,
    key: &[u8],
) -> Result<u32> {
    let hash = hasher.hash_one(key);
    if let Some(&id) = table.find(hash, |&id| keys.get(id) == key) {
        return Ok(id);
    }
    let id = next_id(keys.ends.len())?;
    keys.bytes.extend_from_slice(key);
    keys.ends.push(keys.bytes.len());
    let touched = Touched::default();
    table.insert_unique(hash, id, |&id| {
        let key = keys.get(id);
        touched.add(key.len());
        hasher.hash_one(key)
    });
    Ok(id)
}

/// The error for keys that do not fit into one column.
pub(crate) fn too_long(bytes: usize) -> Error {
    Error::input(format!(
        "the texts of keys in one column have {}, and a column holds at most {}; use shorter keys, such as `md5(key)`, or fewer",
        shown(bytes),
        shown(MOST_BYTES)
    ))
}

fn next_id(len: usize) -> Result<u32> {
    u32::try_from(len)
        .ok()
        .filter(|&id| id < NONE)
        .ok_or_else(|| {
            Error::input("there are more than 4294967294 distinct keys; coarsen the states")
        })
}

/// The distinct rows of several lists of columns in ascending order, and the rank of each row of
/// each list.
pub(crate) fn union(lists: &[&[ArrayRef]]) -> Result<(Vec<ArrayRef>, Vec<Vec<u32>>)> {
    let types: Vec<_> = lists[0].iter().map(|c| c.data_type().clone()).collect();
    let mut keys = Keys::new(&types)?;
    let mut numbers = Vec::with_capacity(lists.len());
    for columns in lists {
        let mut ids = Vec::with_capacity(columns[0].len());
        keys.intern(columns, &mut ids)?;
        numbers.push(ids);
    }
    let (columns, rank) = keys.sorted()?;
    let ids = numbers.iter_mut().flatten();
    ids.for_each(|id| *id = rank[*id as usize]);
    Ok((columns, numbers))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringArray, StringViewArray};

    fn columns(a: &[Option<&str>], b: &[i32]) -> Vec<ArrayRef> {
        vec![
            Arc::new(StringArray::from(a.to_vec())),
            Arc::new(Int32Array::from(b.to_vec())),
        ]
    }

    #[test]
    fn ids_follow_first_appearance_and_ranks_follow_key_order() {
        let mut keys = Keys::new(&[DataType::Utf8, DataType::Int32]).unwrap();
        let mut ids = Vec::new();
        keys.intern(
            &columns(
                &[Some("b"), Some("a"), None, Some("b"), Some("a")],
                &[1, 2, 3, 1, -2],
            ),
            &mut ids,
        )
        .unwrap();
        assert_eq!(ids, [0, 1, NONE, 0, 2]);
        let (sorted, rank) = keys.sorted().unwrap();
        assert_eq!(rank, [2, 1, 0]);
        assert_eq!(
            sorted[0].as_ref(),
            &StringArray::from(vec!["a", "a", "b"]) as &dyn Array
        );
        assert_eq!(
            sorted[1].as_ref(),
            &Int32Array::from(vec![-2, 2, 1]) as &dyn Array
        );
    }

    #[test]
    fn keys_without_columns_have_no_columns() {
        let keys = Keys::new(&[]).unwrap();
        assert!(keys.columns(&[0]).unwrap().is_empty());
    }

    #[test]
    fn long_keys_are_encoded_in_pieces() {
        let texts: Vec<String> = (0..200).map(|k| "x".repeat(k * 1000)).collect();
        let views: ArrayRef = Arc::new(StringViewArray::from_iter_values(&texts));
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(&texts));
        for column in [texts, views] {
            let mut keys = Keys::new(&[column.data_type().clone()]).unwrap();
            let mut ids = Vec::new();
            keys.intern(&[Arc::clone(&column)], &mut ids).unwrap();
            assert_eq!(ids, (0..200).collect::<Vec<_>>());
            assert_eq!(&keys.columns(&ids).unwrap()[0], &column);
        }
    }

    #[test]
    fn absorbing_translates_ids() {
        let mut one = Keys::new(&[DataType::Utf8, DataType::Int32]).unwrap();
        let mut two = Keys::new(&[DataType::Utf8, DataType::Int32]).unwrap();
        one.intern(&columns(&[Some("x")], &[1]), &mut Vec::new())
            .unwrap();
        two.intern(&columns(&[Some("y"), Some("x")], &[1, 1]), &mut Vec::new())
            .unwrap();
        assert_eq!(one.absorb(&two).unwrap(), [1, 0]);
        assert_eq!(one.len(), 2);
    }

    #[test]
    fn integers_keep_their_type_and_order() {
        let mut keys = Keys::new(&[DataType::Int32]).unwrap();
        let column: ArrayRef = Arc::new(Int32Array::from(vec![Some(7), None, Some(-3), Some(7)]));
        let mut ids = Vec::new();
        keys.intern(&[column], &mut ids).unwrap();
        assert_eq!(ids, [0, NONE, 1, 0]);
        let mut other = Keys::new(&[DataType::Int32]).unwrap();
        let column: ArrayRef = Arc::new(Int32Array::from(vec![5, -3]));
        other.intern(&[column], &mut ids).unwrap();
        assert_eq!(keys.absorb(&other).unwrap(), [2, 1]);
        let (sorted, rank) = keys.sorted().unwrap();
        assert_eq!(
            sorted[0].as_ref(),
            &Int32Array::from(vec![-3, 5, 7]) as &dyn Array
        );
        assert_eq!(rank, [2, 0, 1]);
    }
}
