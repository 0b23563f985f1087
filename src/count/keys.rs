//! Keys ↔ ids: gives every distinct row of some columns, of any SQL type, a small number in order of appearance.

use crate::error::{Error, Result};
use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use arrow::row::{RowConverter, Rows, SortField};
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// The id of a key that is null, and so no key at all.
pub const NONE: u32 = u32::MAX;

/// Distinct keys in order of appearance. Rows are compared in arrow's row format, which sorts as the columns do.
pub struct Keys {
    converter: RowConverter,
    /// Encoded keys one after another; key `k` ends at `ends[k]`.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    table: HashTable<u32>,
    hasher: hashbrown::DefaultHashBuilder,
}

impl Keys {
    pub fn new(types: &[DataType]) -> Result<Keys> {
        let fields = types.iter().map(|t| SortField::new(t.clone())).collect();
        let converter = RowConverter::new(fields).map_err(|e| {
            Error::with_source(
                crate::error::Kind::Input,
                "a key column has a type that cannot be a key",
                e,
            )
        })?;
        Ok(Keys {
            converter,
            bytes: Vec::new(),
            ends: Vec::new(),
            table: HashTable::new(),
            hasher: hashbrown::DefaultHashBuilder::default(),
        })
    }

    pub fn len(&self) -> usize {
        self.ends.len()
    }

    fn key(&self, id: u32) -> &[u8] {
        let start = if id == 0 {
            0
        } else {
            self.ends[id as usize - 1]
        };
        &self.bytes[start..self.ends[id as usize]]
    }

    /// Ids of the rows of `columns`; `NONE` where any column is null.
    pub fn intern(&mut self, columns: &[ArrayRef], ids: &mut Vec<u32>) -> Result<()> {
        let rows = self.rows(columns)?;
        ids.reserve(rows.num_rows());
        for (at, row) in rows.iter().enumerate() {
            let null = columns.iter().any(|c| c.is_null(at));
            ids.push(if null { NONE } else { self.id(row.data())? });
        }
        Ok(())
    }

    fn rows(&self, columns: &[ArrayRef]) -> Result<Rows> {
        self.converter.convert_columns(columns).map_err(|e| {
            Error::with_source(crate::error::Kind::Bug, "key columns changed their type", e)
        })
    }

    fn id(&mut self, key: &[u8]) -> Result<u32> {
        let hash = self.hasher.hash_one(key);
        let (bytes, ends) = (&self.bytes, &self.ends);
        let at = |id: u32| {
            let start = if id == 0 { 0 } else { ends[id as usize - 1] };
            &bytes[start..ends[id as usize]]
        };
        if let Some(&id) = self.table.find(hash, |&id| at(id) == key) {
            return Ok(id);
        }
        let id = u32::try_from(self.ends.len()).ok().filter(|&id| id < NONE);
        let id = id.ok_or_else(|| {
            Error::input("there are more than 4294967294 distinct keys; coarsen the states")
        })?;
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len());
        let (bytes, ends, hasher) = (&self.bytes, &self.ends, &self.hasher);
        self.table.insert_unique(hash, id, |&id| {
            let start = if id == 0 { 0 } else { ends[id as usize - 1] };
            hasher.hash_one(&bytes[start..ends[id as usize]])
        });
        Ok(id)
    }

    /// Adds the keys of `other`; returns the id here of each key there.
    pub fn absorb(&mut self, other: &Keys) -> Result<Vec<u32>> {
        (0..other.len())
            .map(|id| self.id(other.key(id as u32)))
            .collect()
    }

    /// The keys as columns in ascending order, and the rank of each id in that order.
    pub fn sorted(self) -> Result<(Vec<ArrayRef>, Vec<u32>)> {
        let mut order: Vec<u32> = (0..self.len() as u32).collect();
        order.sort_unstable_by(|&a, &b| self.key(a).cmp(self.key(b)));
        let mut rank = vec![0; order.len()];
        for (at, &id) in order.iter().enumerate() {
            rank[id as usize] = at as u32;
        }
        let parser = self.converter.parser();
        let columns = self
            .converter
            .convert_rows(order.iter().map(|&id| parser.parse(self.key(id))))
            .map_err(|e| {
                Error::with_source(crate::error::Kind::Bug, "keys cannot be decoded", e)
            })?;
        Ok((columns, rank))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int32Array, StringArray};
    use std::sync::Arc;

    fn columns(a: &[Option<&str>], b: &[i32]) -> Vec<ArrayRef> {
        vec![
            Arc::new(StringArray::from(a.to_vec())),
            Arc::new(Int32Array::from(b.to_vec())),
        ]
    }

    #[test]
    fn ids_follow_appearance_and_ranks_follow_order() {
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
}
