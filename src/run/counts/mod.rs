//! Counts: transitions between states → models with sets, one per partition and lag.
//!
//! ```text
//! rows ─ count ─▶ matrices ─ fit ─▶ models ─ names of sets, Markov tests ─▶ tables
//! ```

pub(crate) mod assign;
pub(crate) mod compare;
pub(crate) mod fitted;
pub mod kind;
pub mod known;
pub mod local;
pub(crate) mod markov;
pub mod model;
pub(crate) mod passes;
pub(crate) mod ranks;
pub mod record;
pub(crate) mod rounds;
pub(crate) mod rows;
pub(crate) mod score;
pub(crate) mod tasks;
pub(crate) mod unit_pass;

use crate::assess::{certificates, kernels};
use crate::error::Result;
use crate::output::place::Output;
use crate::output::result::COUNTS;
use crate::output::staging::{StagedTables, Staging};
use crate::output::tables::columns::TableColumns;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::output::tables::{columns, schema};
use crate::plan::counts::CountsPlan;
use crate::plan::pipeline::keys::NamesFrom;
use crate::run::counting::rounds::{CountRounds, RemoteCounts};
use crate::run::counts::kind::{CountsKind, Shared};
use crate::run::counts::local::CountedHere;
use crate::run::counts::model::{at_place, partition_key};
use crate::run::counts::record::{Facts, ModelRecord};
use crate::run::counts::tasks::CountsWork;
use crate::run::kind::{EvidenceKind, Fitted, Found, Read, Running, Written};
use crate::run::record::{ModelEntry, TimeRecord};
use crate::run::sets;
use crate::run::workers::Workers;
use crate::run::workers::executor::blocking_as;
use futures::{StreamExt, TryStreamExt, stream};
use std::sync::Arc;

/// The counts of a run, in this process or in the store of its output.
pub enum Counted {
    /// In this process.
    Here(Box<CountedHere>),
    /// In the store of the output, with the largest number of non-zeros that one executor fits.
    Stored(Box<RemoteCounts>),
}

impl EvidenceKind for CountsKind {
    const NAME: &'static str = COUNTS;
    const READ: &'static str = "count";

    type Plan = CountsPlan;
    type Evidence = Counted;
    type Model = FittedModel;
    type Shared = Shared;
    type Rows = ();
    type Facts = Facts;
    type ModelRecord = ModelRecord;

    async fn check(plan: &CountsPlan) -> Result<()> {
        if let NamesFrom::Output(location) = &plan.names {
            let from = Output::open(location, &plan.job.stores)?;
            let found = from.current().await.map_err(|e| e.at("`names.from`"))?;
            sets::check_named(location, found.as_ref())?;
        }
        Ok(())
    }

    async fn read(run: &Running<'_, Self>) -> Result<Read<Self>> {
        match &run.options.workers {
            Workers::Local => {
                let (counted, found, ledger) = local::count(run).await?;
                Ok(Read {
                    evidence: Counted::Here(Box::new(counted)),
                    found,
                    ledger,
                })
            }
            Workers::Remote { nodes, .. } => {
                let counting = run.plan.counting();
                let counting = CountRounds::begin(run, counting, nodes, CountsWork::Counting);
                let mut remote = counting.await?.count(run.frame).await?;
                let found = Found {
                    rows: remote.counted.rows,
                    dropped: remote.counted.dropped.0.clone(),
                    pairs: remote.pairs(&run.plan.layout),
                    time: TimeRecord::new(&run.plan.layout.rules, remote.counted.time),
                    increment: remote.record.take(),
                    ..Found::default()
                };
                Ok(Read {
                    evidence: Counted::Stored(Box::new(remote)),
                    found,
                    ledger: None,
                })
            }
        }
    }

    async fn fit(run: &Running<'_, Self>, evidence: Counted) -> Result<Fitted<Self>> {
        let mut fitted = match evidence {
            Counted::Here(counted) => local::fit(run, *counted).await?,
            Counted::Stored(remote) => rounds::fit(run, *remote).await?,
        };
        fitted::keep_names(run, &mut fitted).await?;
        if run.plan.markov {
            let plan = Arc::clone(run.plan);
            let test = move || {
                markov::test(&mut fitted.models, &plan.lags);
                Ok(fitted)
            };
            fitted = blocking_as("the Markov tests", test).await?;
        }
        fitted.facts.transitions = fitted.models.iter().map(|m| m.total).sum();
        fitted.resumed = fitted::resumed(run.work, &fitted);
        Ok(fitted)
    }

    fn check_certificates(_: &Running<'_, Self>, fitted: &Fitted<Self>) -> Result<()> {
        check_certificates(&fitted.shared.names, &fitted.models)
    }

    async fn rows(run: &Running<'_, Self>, fitted: &mut Fitted<Self>) -> Result<Written<Self>> {
        let table = rows::write(run, &fitted.shared.names, &fitted.models).await?;
        Ok(Written {
            tables: StagedTables::from([(Table::Rows.name(), table)]),
            ..Written::default()
        })
    }

    async fn stage(run: &Running<'_, Self>, fitted: &Fitted<Self>) -> Result<StagedTables> {
        let (shared, names) = (&fitted.shared, &fitted.shared.names);
        let staging = Staging::new(run.output, run.begun, names);
        let earlier = run.begun.earlier().filter(|_| shared.reuse_sets);
        let mut written = StagedTables::new();
        // The rows of the input are written already.
        for &table in names.tables.iter().filter(|table| **table != Table::Rows) {
            let name = table.name();
            if let (Some(earlier), Table::Sets | Table::Changes) = (earlier, table) {
                let schema = schema(table, names).0;
                if let Some(copied) = staging.copy(name, schema, earlier).await? {
                    written.insert(name, copied);
                    continue;
                }
            }
            let remote = shared.matrices.as_deref();
            let remote = remote.filter(|_| table == Table::Counts);
            let staged = match remote {
                None => {
                    let columns = columns(table, names);
                    staging.write(name, &columns, &fitted.models).await?
                }
                Some(remote) => {
                    let counts = (0..fitted.models.len()).map(|at| remote.counts(at));
                    let counts: Vec<_> = counts.collect();
                    let counts = stream::iter(counts).buffered(remote.concurrency());
                    let bare = counts.map_ok(|counts| Arc::new(FittedModel::bare(counts)));
                    staging.write_fetched(name, counts_columns, bare).await?
                }
            };
            written.insert(name, staged);
        }
        Ok(written)
    }

    fn record(
        run: &Running<'_, Self>,
        fitted: &Fitted<Self>,
        _: &Written<Self>,
        at: usize,
    ) -> ModelEntry<ModelRecord> {
        let (names, counts) = (&fitted.shared.names, &fitted.models[at].counts);
        ModelEntry {
            partition: partition_key(names, counts.partition),
            lag: names.lag.text(counts.lag),
            model: model::record(run.plan, fitted, at),
        }
    }
}

fn counts_columns(names: &RunSchema) -> TableColumns<'_, FittedModel> {
    columns(Table::Counts, names)
}

/// An error if a certificate does not hold, because then a number of the fit is wrong.
fn check_certificates(names: &RunSchema, models: &[FittedModel]) -> Result<()> {
    for model in models {
        let fits = names.fits.iter().zip(&model.certificates);
        let fits = fits.map(|(columns, list)| (&columns.name, list.clone()));
        let embeddings = names.embeddings.iter().zip(&model.embeddings);
        let embeddings = embeddings.map(|(columns, own)| (&columns.name, kernels::of_chain(own)));
        for (name, list) in fits.chain(embeddings) {
            certificates::check(name, &list).map_err(|e| at_place(e, names, &model.counts))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::output::checkpoint::KEEP_EVERY;
    use crate::plan::pipeline::Pipeline;
    use crate::read::counts;
    use crate::run::Planned;
    use crate::run::counts::local::fit_all;
    use crate::run::progress::Silent;

    const PIPELINE: &str = r#"
[job]
name = "small"
output = "unused"

[tables.rows]
path = "FOLDER/rows.csv"

[transitions]
sql = "SELECT * FROM rows"
time = "t"
state = "s"
lag = [1, 2]

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
"#;

    /// No pipeline gives a wrong fit, so the test changes a certificate after the fit.
    #[tokio::test]
    async fn a_certificate_that_does_not_hold_ends_the_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let rows: String = (0..60)
            .map(|t| format!("{t},{}\n", t / 7 % 2 * 2 + t * t % 3 % 2))
            .collect();
        std::fs::write(folder.path().join("rows.csv"), format!("t,s\n{rows}")).expect("rows");
        let text = PIPELINE.replace("FOLDER", &folder.path().display().to_string());
        let pipeline = Pipeline::parse(&text, "p.toml", &[], &|_| None).expect("a pipeline");
        let inputs = pipeline.open().await.expect("a lake");
        let Planned { plan, lake, frame } = inputs.plan().await.expect("a plan");
        let counted = counts::count(&lake, frame, &plan.layout, Arc::new(|_| ()));
        let store = Arc::new(object_store::memory::InMemory::new());
        let output = Output::in_store(store, "out".into());
        let work = output.work(&plan.job.hash, false, KEEP_EVERY).await;
        let counted = counted.await.expect("counts");
        let mut fitted = fit_all(&plan, counted, &work, &Silent).expect("fits");
        let names = &fitted.shared.names;
        check_certificates(names, &fitted.models).expect("every certificate holds");

        let broken = fitted.models[1].certificates[0].iter_mut();
        broken
            .filter(|c| c.name == "pythagoras")
            .for_each(|c| c.holds = Some(false));
        let error = check_certificates(names, &fitted.models).expect_err("one is broken");
        assert_eq!(error.kind(), Kind::Check);
        let message = error.to_string();
        let begin = "lag 2: fit `dbmr`: the certificate `pythagoras` does not hold: ";
        assert!(message.starts_with(begin), "{message}");
    }
}
