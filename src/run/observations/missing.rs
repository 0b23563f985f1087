//! Counts rows by the numbers of their observation that are missing.

use crate::read::observations::layout::is_list;
use arrow::datatypes::Field;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Numbers per observation up to which rows are counted by the numbers that are missing.
const NAMED: usize = 16;

/// Rows of which a number of the observation is missing: null, NaN, infinite or too large.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct MissingRows {
    /// Rows without any number.
    pub(crate) whole: u64,
    /// Rows with some numbers, by the bits of those that are missing. With more than [`NAMED`]
    /// numbers, all of these rows are at 0.
    partial: BTreeMap<u16, u64>,
}

impl MissingRows {
    /// Adds a row with these numbers, NaN where there is none.
    pub(crate) fn add_row(&mut self, numbers: &[f64]) {
        let missing = numbers.iter().filter(|x| !x.is_finite()).count();
        if missing == numbers.len() {
            self.whole += 1;
        } else if missing > 0 {
            let mut bits = 0;
            if numbers.len() <= NAMED {
                for (at, x) in numbers.iter().enumerate() {
                    bits |= u16::from(!x.is_finite()) << at;
                }
            }
            *self.partial.entry(bits).or_default() += 1;
        }
    }

    /// Adds other rows.
    pub(crate) fn add(&mut self, other: &MissingRows) {
        self.whole += other.whole;
        for (&bits, rows) in &other.partial {
            *self.partial.entry(bits).or_default() += rows;
        }
    }

    /// Rows with some numbers.
    pub(crate) fn n_partial(&self) -> u64 {
        self.partial.values().sum()
    }

    /// All rows.
    pub(crate) fn rows(&self) -> u64 {
        self.whole + self.n_partial()
    }

    /// Rows with some numbers, by the names of those that are missing. `fields` are the columns of
    /// the observation.
    pub(crate) fn by_name(&self, fields: &[Field]) -> BTreeMap<String, u64> {
        let name = |at: usize| match fields {
            // As SQL counts the numbers of a list.
            [field] if is_list(fields) => format!("{}[{}]", field.name(), at + 1),
            fields => fields
                .get(at)
                .map_or_else(String::new, |f| f.name().clone()),
        };
        let of = |bits: u16| {
            let names = (0..NAMED).filter(|at| bits & (1 << at) != 0).map(name);
            match bits {
                0 => "some numbers".to_string(),
                _ => names.collect::<Vec<_>>().join(", "),
            }
        };
        let rows = self.partial.iter();
        rows.map(|(&bits, &rows)| (of(bits), rows)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::datatypes::DataType;
    use std::sync::Arc;

    const NAN: f64 = f64::NAN;

    #[test]
    fn rows_are_counted_by_what_is_missing() {
        let mut rows = MissingRows::default();
        for row in [
            [1.0, 2.0, 3.0],
            [NAN, 2.0, 3.0],
            [1.0, NAN, NAN],
            [NAN, NAN, NAN],
            [NAN, 0.0, 3.0],
        ] {
            rows.add_row(&row);
        }
        let mut others = rows.clone();
        others.add(&rows);
        assert_eq!((rows.rows(), rows.whole, rows.n_partial()), (4, 1, 3));
        assert_eq!((others.rows(), others.whole), (8, 2));
        let fields = ["a", "b", "c"].map(|name| Field::new(name, DataType::Float64, true));
        let expected = [("a".to_string(), 2), ("b, c".to_string(), 1)];
        assert_eq!(rows.by_name(&fields), BTreeMap::from(expected));
        let item = Arc::new(Field::new("item", DataType::Float64, true));
        let list = [Field::new("x", DataType::List(item), true)];
        let expected = [("x[1]".to_string(), 2), ("x[2], x[3]".to_string(), 1)];
        assert_eq!(rows.by_name(&list), BTreeMap::from(expected));
        // Long observations have too many forms.
        let mut wide = MissingRows::default();
        let mut row = [0.0; 17];
        wide.add_row(&row);
        row[16] = NAN;
        wide.add_row(&row);
        row[0] = NAN;
        wide.add_row(&row);
        let expected = BTreeMap::from([("some numbers".to_string(), 2)]);
        assert_eq!((wide.rows(), wide.by_name(&list)), (2, expected));
    }
}
