//! Numbers of models.

/// A number of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Metric {
    /// The name, as in the table `fits`.
    pub name: &'static str,
    /// If the model has several numbers of the name, the index of a set or of a value.
    pub index: Option<usize>,
    /// The number.
    pub value: f64,
}
