//! The name of the kind of evidence in types.

/// Rows with states and observations.
#[derive(Clone, Default)]
pub(crate) struct ObservationsKind;
