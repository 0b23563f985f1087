//! Symmetric operators on vectors of one number per point.

/// A symmetric operator of norm one.
pub(crate) trait Operator: Sync {
    /// The dimension.
    fn n(&self) -> usize;

    /// Sets out = Bx, for blocks of `width` columns (`n × width`, row-major). A width is 1, 2, 4,
    /// 8 or 16.
    fn apply(&self, x: &[f64], width: usize, out: &mut [f64]);

    /// The leading eigenvector, of length one. Its eigenvalue is 1.
    fn leading(&self) -> Vec<f64>;
}
