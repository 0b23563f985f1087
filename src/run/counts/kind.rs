//! The name of the kind of evidence in types, and what the models of a run share.

use crate::error::Result;
use crate::evidence::counts::matrix::CountMatrix;
use crate::output::tables::run_schema::RunSchema;
use crate::run::counts::record::Timings;
use futures::future::BoxFuture;

/// Transitions between states.
#[derive(Clone, Default)]
pub struct CountsKind;

/// Fetches the matrices of models that do not hold theirs.
pub(crate) trait Fetch: Send + Sync {
    /// The counts, with their matrix, of model number `model`.
    fn counts(&self, model: usize) -> BoxFuture<'_, Result<CountMatrix>>;
    /// How many models to fetch concurrently.
    fn concurrency(&self) -> usize;
}

/// What the models of a run share.
pub struct Shared {
    /// The partitions, lags, states and fits.
    pub(crate) names: RunSchema,
    /// How each model was fitted.
    pub(crate) timings: Vec<Timings>,
    /// Whether the tables of sets and changes of the current result hold for this run too.
    pub(crate) reuse_sets: bool,
    /// Reads the matrices of the models, if they are not in this process.
    pub(crate) matrices: Option<Box<dyn Fetch>>,
}
