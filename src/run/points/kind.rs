//! The name of the kind of evidence in types.

/// Rows with coordinates.
#[derive(Clone, Default)]
pub(crate) struct PointsKind;
