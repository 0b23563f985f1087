//! Collects the fits of a run.

use crate::error::{Kind, Result};
use crate::methods::fit::Model;
use crate::output::place::Output;
use crate::output::result::{ModelKey, RowKind, Written};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::plan::counts::CountsPlan;
use crate::read::paths::current::Current;
use crate::read::rows::states::describe;
use crate::run::failures::Failures;
use crate::run::model::{ModelResult, place_of};
use crate::run::record::{BootstrapRecord, EmptyRecord, Failure, ModelRecord};
use crate::run::sets::Naming;
use arrow::array::ArrayRef;
use std::collections::{BTreeMap, BTreeSet};

/// The models of all partitions and lags.
pub(crate) struct Fitted {
    pub(crate) names: RunSchema,
    pub(crate) models: Vec<FittedModel>,
    pub(crate) records: Vec<ModelRecord>,
    pub(crate) failures: Vec<Failure>,
    /// The labels of each given partition, by the name of its column.
    pub(crate) labels: BTreeMap<String, Vec<String>>,
    /// Whether the tables of sets and changes of the current result hold for this run too.
    pub(crate) reuse_sets: bool,
    /// Models that only the earlier result has.
    pub(crate) gone: Vec<String>,
    /// Partitions and lags without a transition.
    pub(crate) empty: Vec<EmptyRecord>,
    /// Whether the counts come from the checkpoint of an earlier run.
    pub(crate) has_resumed_counts: bool,
}

impl Fitted {
    /// Gives the sets the names that they have in the earlier result.
    pub(crate) async fn keep_names(
        &mut self,
        plan: &CountsPlan,
        output: &Output,
        replaced: Option<&Current>,
    ) -> Result<()> {
        let is_whole = self.failures.is_empty();
        let (names, models) = (&self.names, &mut self.models);
        let Naming { reuse_sets, gone } =
            crate::run::sets::keep(plan, output, replaced, names, models, is_whole).await?;
        // Failed models and models without a transition have records of their own.
        let failed = self.failures.iter().map(|failure| &failure.partition);
        let reported: BTreeSet<&String> = failed
            .chain(self.empty.iter().map(|e| &e.partition))
            .collect();
        self.gone = gone
            .into_iter()
            .filter(|place| !reported.contains(place))
            .collect();
        self.reuse_sets = reuse_sets;
        let confidence = plan.validation.as_ref().map_or(0.0, |v| v.confidence);
        for (record, model) in self.records.iter_mut().zip(&self.models) {
            for (record, bootstrap) in record.fits.iter_mut().zip(&model.bootstraps) {
                record.bootstrap = Some(BootstrapRecord::new(bootstrap, confidence));
            }
            let fits = record.fits.iter_mut().zip(&model.fits);
            for ((record, fit), lineage) in fits.zip(&model.tracked_sets) {
                let Model::LowRank(model) = &fit.model;
                record.source_sizes.clone_from(&model.metrics.source_sizes);
                let is_new = lineage.changes.is_some() && !reuse_sets;
                record.lineage = is_new.then(|| lineage.clone());
            }
        }
        Ok(())
    }

    /// Warns of partitions and lags without a transition that have a model in the current result.
    pub(crate) async fn warn_of_empty(
        &mut self,
        output: &Output,
        replaced: Option<&Current>,
    ) -> Result<()> {
        let Some(current) = replaced.filter(|_| !self.empty.is_empty()) else {
            return Ok(());
        };
        let models = async {
            let written = Written::of_kind(RowKind::States, output, current.clone()).await?;
            match written {
                Some(written) => written.models(Table::Sources).await,
                None => Ok(Vec::new()),
            }
        };
        let models = match models.await {
            Ok(models) => models,
            // `keep_names` has already warned of a result that cannot be read.
            Err(e) if e.kind() == Kind::Input => return Ok(()),
            Err(e) => return Err(e),
        };
        let earlier: BTreeSet<ModelKey> = models.into_iter().map(|model| model.key).collect();
        for empty in self
            .empty
            .iter_mut()
            .filter(|empty| earlier.contains(&empty.key))
        {
            empty.had_model = true;
            tracing::warn!(
                partition = empty.partition,
                "there is no transition, but the current result has a model"
            );
        }
        Ok(())
    }

    /// Collects the results of all partitions and lags. `empty` has the partition and the lag of
    /// models without a transition. Models that failed are added to `failures`.
    ///
    /// # Errors
    /// If no model could be fitted: the error of the first one.
    pub(crate) fn new(
        plan: &CountsPlan,
        names: RunSchema,
        labels: &[ArrayRef],
        results: Vec<ModelResult>,
        empty: Vec<(usize, usize)>,
        failures: &mut Vec<Failure>,
    ) -> Result<Fitted> {
        let (mut models, mut records) = (Vec::new(), Vec::new());
        let mut failed = Failures::default();
        for result in results {
            let (place, fitted) = match result {
                Ok(fitted) => (String::new(), Ok(fitted)),
                Err((place, e)) => (place, Err(e)),
            };
            if let Some((model, record)) = failed.take(place, fitted)? {
                models.push(model);
                records.push(record);
            }
        }
        failed.finish(models.len(), empty.len(), failures)?;
        let empty = empty.into_iter().map(|(partition, lag)| EmptyRecord {
            partition: place_of(&names, partition, lag),
            had_model: false,
            key: ModelKey {
                lag: names.lag.text(lag),
                ..ModelKey::at(&names.partitions, None, partition)
            },
        });
        let labels = plan.layout.given.iter().zip(labels).map(|(field, labels)| {
            let labels = (0..labels.len())
                .map(|at| describe(std::slice::from_ref(labels), at))
                .collect();
            (field.name().clone(), labels)
        });
        Ok(Fitted {
            labels: labels.collect(),
            empty: empty.collect(),
            names,
            models,
            records,
            failures: failures.clone(),
            reuse_sets: false,
            gone: Vec::new(),
            has_resumed_counts: false,
        })
    }
}
