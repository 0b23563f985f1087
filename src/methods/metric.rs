//! Numbers of models.

/// A number of a model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    pub name: &'static str,
    /// If the model has several numbers of the name, the index of a set or of a value.
    pub index: Option<usize>,
    pub value: f64,
}
