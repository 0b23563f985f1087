//! The name of the kind of evidence in types.

/// Rows with coordinates.
pub(crate) struct PointsKind;
