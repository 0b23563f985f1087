//! What a kind of evidence says at each stage of a run. The drive knows nothing else of a kind.

use crate::error::{Result, counted};
use crate::output::checkpoint::Checkpoint;
use crate::output::ledger::Ledger;
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::staging::StagedTables;
use crate::plan::kind::KindPlan;
use crate::read::lake::Lake;
use crate::read::paths::current::Current;
use crate::run::failures::Failures;
use crate::run::options::Options;
use crate::run::progress::Progress;
use crate::run::record::{EmptyRecord, IncrementRecord, ModelEntry, Resumed, TimeRecord};
use crate::run::workers::slices::Dealt;
use datafusion::dataframe::DataFrame;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Rows that were dropped, by reason.
pub(crate) type DroppedRows = BTreeMap<Cow<'static, str>, u64>;

/// One kind of evidence, from the rows of a query to the tables of a result.
pub trait EvidenceKind: Sized + Clone + Default + Send + Sync + 'static {
    /// The name of the kind in results and in tasks.
    const NAME: &'static str;
    /// The name of the stage that reads the rows.
    const READ: &'static str;

    /// What a run will do.
    type Plan: KindPlan;
    /// What reading the rows leaves for the fits.
    type Evidence: Send;
    /// The fits of one partition and lag.
    type Model: Send + Sync;
    /// What all models share.
    type Shared: Send + Sync;
    /// What the second pass over the rows found, beside the tables that it wrote.
    type Rows: Default + Send + Sync;
    /// What the record says of the evidence.
    type Facts: Facts;
    /// What the record says of a model, and how the summary prints it.
    type ModelRecord: Serialize + Display + Clone + Send + Sync;

    /// Checks what a run reads beside its tables, before it begins.
    ///
    /// # Errors
    /// If that is not there.
    fn check(_plan: &Self::Plan) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Reads the rows.
    ///
    /// # Errors
    /// If the rows cannot be read, or are none.
    fn read(run: &Running<'_, Self>) -> impl Future<Output = Result<Read<Self>>> + Send;

    /// Fits every partition and lag. A model that cannot be fitted is a failure, and no error.
    ///
    /// # Errors
    /// Those that are not about one model: a stop, a store that fails.
    fn fit(
        run: &Running<'_, Self>,
        evidence: Self::Evidence,
    ) -> impl Future<Output = Result<Fitted<Self>>> + Send;

    /// Checks the certificates of all models, unless each fit checks its own.
    ///
    /// # Errors
    /// If a certificate does not hold, because then a number of the fit is wrong.
    fn check_certificates(_run: &Running<'_, Self>, _fitted: &Fitted<Self>) -> Result<()> {
        Ok(())
    }

    /// Reads the rows again and writes the tables with rows of the input. What it finds may become
    /// a part of the models. Called if the plan has a text for it.
    ///
    /// # Errors
    /// If the rows cannot be read or written.
    fn rows(
        _run: &Running<'_, Self>,
        _fitted: &mut Fitted<Self>,
    ) -> impl Future<Output = Result<Written<Self>>> + Send {
        async { Ok(Written::default()) }
    }

    /// Writes the tables that are made of models.
    ///
    /// # Errors
    /// If a table cannot be written.
    fn stage(
        run: &Running<'_, Self>,
        fitted: &Fitted<Self>,
    ) -> impl Future<Output = Result<StagedTables>> + Send;

    /// What the record says of the model with this index.
    fn record(
        run: &Running<'_, Self>,
        fitted: &Fitted<Self>,
        written: &Written<Self>,
        at: usize,
    ) -> ModelEntry<Self::ModelRecord>;
}

/// What a record says of the evidence of a run.
pub trait Facts: Serialize + Default + Clone + Send + Sync {
    /// What is counted, in the singular.
    const COUNTED: &'static str;
    /// What a partition without evidence has none of.
    const UNIT: &'static str = Self::COUNTED;

    /// The sum of the evidence, which `max_drift` compares with the earlier result.
    fn sum(&self) -> f64;

    /// The evidence as text, such as "12 transitions".
    fn evidence(&self) -> String {
        counted(grouped(self.sum()), Self::COUNTED)
    }
}

/// A run that goes on: what its stages may use.
pub struct Running<'a, K: EvidenceKind> {
    /// The plan of the run.
    pub plan: &'a Arc<K::Plan>,
    /// The open tables of the pipeline.
    pub lake: &'a Lake,
    /// The query of the plan, with the columns of the layout.
    pub frame: &'a DataFrame,
    /// The output of the run.
    pub output: &'a Output,
    /// The run.
    pub begun: &'a Begun,
    /// The options of the run.
    pub options: &'a Options,
    /// Finished work of this run and of earlier runs of the same plan.
    pub work: &'a Arc<Checkpoint>,
    /// Receives the progress of the work.
    pub progress: &'a Arc<dyn Progress>,
    /// The rows in the store of the output, once tasks have dealt them.
    pub(crate) dealt: OnceCell<Dealt>,
}

impl<K: EvidenceKind> Running<'_, K> {
    /// The current result, unless all rows must be counted anew.
    pub(crate) fn earlier(&self) -> Option<&Current> {
        self.begun.earlier().filter(|_| !self.options.full_refresh)
    }

    /// Receives the number of rows that were read since the last call.
    pub(crate) fn advance(&self) -> Arc<dyn Fn(usize) + Send + Sync> {
        let progress = Arc::clone(self.progress);
        Arc::new(move |rows| progress.advance(rows as u64))
    }
}

/// What reading the rows found.
pub struct Read<K: EvidenceKind> {
    /// The evidence.
    pub evidence: K::Evidence,
    /// What the record says of it.
    pub found: Found<K>,
    /// The files that were counted, if the plan counts new files only.
    pub ledger: Option<Ledger>,
}

/// What the record says of the rows that were read.
#[derive(Default)]
pub struct Found<K: EvidenceKind> {
    /// The number of rows.
    pub rows: u64,
    /// Rows that were dropped, by reason.
    pub dropped: DroppedRows,
    /// What the keys of time changed.
    pub time: TimeRecord,
    /// What the record says of the evidence, as far as it is known.
    pub facts: K::Facts,
    /// By lag, the number of pairs or windows, or of rows that follow another one. None if the
    /// kind does not know it.
    pub pairs: Option<Vec<u64>>,
    /// What a user should know of the rows.
    pub warnings: Vec<String>,
    /// What this run counted, if the pipeline counts new files only.
    pub increment: Option<IncrementRecord>,
}

/// The fits of a run.
pub struct Fitted<K: EvidenceKind> {
    /// The models by partition and lag.
    pub models: Vec<K::Model>,
    /// What they share.
    pub shared: K::Shared,
    /// What the record says of the evidence.
    pub facts: K::Facts,
    /// Partitions and lags without evidence, which have no model.
    pub empty: Vec<EmptyRecord>,
    /// Models of the earlier result that this result does not have.
    pub gone: Vec<String>,
    /// The models that could not be fitted.
    pub(crate) failures: Failures,
    /// The finished work of earlier runs.
    pub resumed: Option<Resumed>,
}

impl<K: EvidenceKind> Fitted<K> {
    /// Models of all partitions and lags.
    pub(crate) fn new(models: Vec<K::Model>, shared: K::Shared, facts: K::Facts) -> Fitted<K> {
        Fitted {
            models,
            shared,
            facts,
            empty: Vec::new(),
            gone: Vec::new(),
            failures: Failures::default(),
            resumed: None,
        }
    }
}

/// What the second pass over the rows wrote and found.
#[derive(Default)]
pub struct Written<K: EvidenceKind> {
    /// The tables.
    pub tables: StagedTables,
    /// Rows that were dropped, by reason.
    pub dropped: DroppedRows,
    /// What else it found.
    pub rows: K::Rows,
}
