//! The fits of a run, as they end.

use crate::error::{Error, Kind, Result};
use crate::methods::fit::Model;
use crate::output::place::Output;
use crate::output::result::{ModelKey, Written};
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::plan::Plan;
use crate::read::paths::current::Current;
use crate::read::rows::states::describe;
use crate::run::model::place_of;
use crate::run::record::{BootstrapRecord, EmptyRecord, Failure, ModelRecord};
use crate::run::sets::Kept;
use arrow::array::ArrayRef;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Fitted {
    pub(crate) names: RunSchema,
    pub(crate) models: Vec<FittedModel>,
    pub(crate) records: Vec<ModelRecord>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) labels: BTreeMap<String, Vec<String>>,
    /// The run that made the output is run again.
    pub(crate) again: bool,
    /// Models of the earlier result that are no more.
    pub(crate) gone: Vec<String>,
    /// Those without a transition.
    pub(crate) empty: Vec<EmptyRecord>,
    /// The counts were those that an earlier run has kept.
    pub(crate) is_counted: bool,
}

impl Fitted {
    /// Gives the sets the names that they have in the earlier result.
    pub(crate) async fn keep_names(
        &mut self,
        plan: &Plan,
        output: &Output,
        replaced: Option<&Current>,
    ) -> Result<()> {
        let is_whole = self.failures.is_empty();
        let (names, models) = (&self.names, &mut self.models);
        let Kept { again, gone } =
            crate::run::sets::keep(plan, output, replaced, names, models, is_whole).await?;
        // A model that failed, or has no transition, is told of by itself.
        let failed = self.failures.iter().map(|failure| &failure.partition);
        let told: BTreeSet<&String> = failed
            .chain(self.empty.iter().map(|e| &e.partition))
            .collect();
        self.gone = gone
            .into_iter()
            .filter(|place| !told.contains(place))
            .collect();
        self.again = again;
        let confidence = plan.validation.as_ref().map_or(0.0, |v| v.confidence);
        for (record, model) in self.records.iter_mut().zip(&self.models) {
            for (record, bootstrap) in record.fits.iter_mut().zip(&model.bootstraps) {
                record.bootstrap = Some(BootstrapRecord::new(bootstrap, confidence));
            }
            let fits = record.fits.iter_mut().zip(&model.fits);
            for ((record, fit), lineage) in fits.zip(&model.tracked_sets) {
                let Model::LowRank(model) = &fit.model;
                record.source_sizes.clone_from(&model.metrics.source_sizes);
                let is_news = lineage.changes.is_some() && !again;
                record.lineage = is_news.then(|| lineage.clone());
            }
        }
        Ok(())
    }
}

impl Fitted {
    /// Warns of partitions without a transition that have a model in the result in place.
    pub(crate) async fn tell_empty(
        &mut self,
        output: &Output,
        replaced: Option<&Current>,
    ) -> Result<()> {
        let Some(current) = replaced.filter(|_| !self.empty.is_empty()) else {
            return Ok(());
        };
        let models = async {
            let written = Written::of(output, current.clone()).await?;
            written.models(Table::Sources).await
        };
        let models = match models.await {
            Ok(models) => models,
            // Such as a result of a newer version, of which names have told already.
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
                "it has no transition, and has a model in the result in place"
            );
        }
        Ok(())
    }
}

impl Fitted {
    /// Of every partition and lag. One that failed is told by its key and the others go on; if all did, so does the run. `empty`: the
    /// partitions and lags without a transition.
    pub(crate) fn of(
        plan: &Plan,
        names: RunSchema,
        labels: &[ArrayRef],
        results: Vec<crate::run::model::Ended>,
        empty: Vec<(usize, usize)>,
        failures: &mut Vec<Failure>,
    ) -> Result<Fitted> {
        let several = results.len() + empty.len() > 1;
        let (mut models, mut records) = (Vec::new(), Vec::new());
        let mut first = None;
        for result in results {
            match result {
                Ok((model, record)) => {
                    models.push(model);
                    records.push(record);
                }
                Err((place, e)) => {
                    failures.push(Failure {
                        partition: place.clone(),
                        message: e.full(),
                    });
                    first.get_or_insert(if several { e.at(place) } else { e });
                }
            }
        }
        // Where no model is left, the error of the run is that of the first.
        let told = usize::from(models.is_empty());
        for failure in failures.iter().skip(told) {
            tracing::error!(partition = failure.partition, "{}", failure.message);
        }
        if models.is_empty() {
            return Err(first.unwrap_or_else(|| Error::bug("there was nothing to fit")));
        }
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
            again: false,
            gone: Vec::new(),
            is_counted: false,
        })
    }
}
