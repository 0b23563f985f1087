//! Compressed sparse rows: one shard of a count matrix, seen from its rows, and its products with blocks of vectors.

use std::ops::Range;

/// The values of a shard: exact counts wherever they fit, weights otherwise.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    Count(Vec<u32>),
    Real(Vec<f64>),
}

/// A number that a count matrix can hold; the kernels are compiled once for each.
pub trait Value: Copy + Send + Sync + 'static {
    fn f64(self) -> f64;
}

impl Value for u32 {
    #[inline(always)]
    fn f64(self) -> f64 {
        f64::from(self)
    }
}

impl Value for f64 {
    #[inline(always)]
    fn f64(self) -> f64 {
        self
    }
}

impl Values {
    pub fn len(&self) -> usize {
        match self {
            Values::Count(v) => v.len(),
            Values::Real(v) => v.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn get(&self, at: usize) -> f64 {
        match self {
            Values::Count(v) => v[at].f64(),
            Values::Real(v) => v[at],
        }
    }
}

/// Calls `$body` with `$values` bound to the slice of values in its own type, so that a kernel's inner loop is free of branches.
#[macro_export]
macro_rules! with_values {
    ($csr:expr, $values:ident => $body:expr) => {
        match &$csr.values {
            $crate::math::csr::Values::Count($values) => $body,
            $crate::math::csr::Values::Real($values) => $body,
        }
    };
}

/// Rows `first_row ..` of a sparse matrix. Row `first_row + l` holds `columns[offsets[l]..offsets[l + 1]]`, ascending, with
/// the values beside them; `offsets[0] = 0`. Every stored value is positive.
#[derive(Debug, Clone, PartialEq)]
pub struct Csr {
    pub first_row: usize,
    pub offsets: Vec<usize>,
    pub columns: Vec<u32>,
    pub values: Values,
}

impl Csr {
    pub fn n_rows(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Rows of the whole matrix that this shard owns.
    pub fn rows(&self) -> Range<usize> {
        self.first_row..self.first_row + self.n_rows()
    }

    pub fn nnz(&self) -> usize {
        self.columns.len()
    }

    /// Positions of local row `l` in `columns` and `values`.
    #[inline(always)]
    pub fn span(&self, l: usize) -> Range<usize> {
        self.offsets[l]..self.offsets[l + 1]
    }
}
