//! The name of the kind of evidence in types.

/// Rows with states and observations.
pub(crate) struct ObservationsKind;
