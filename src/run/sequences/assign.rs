//! Filters new rows with a written model. Drives the stages: read model → write → promote.
//!
//! The pipeline names the new rows and the roles of their columns; the fits are those of the model.
//! Rows are read once. Memory holds the model, a few batches and one encoded row group per table.

use crate::error::{Error, Result, counted, escaped};
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::result::{ModelKey, Written};
use crate::output::tables::sequences::{
    PREDICTIONS, TRAJECTORIES, predictions_schema, schema_of, trajectories_schema,
};
use crate::output::tables::table::Table;
use crate::plan::assignment::SequenceAssignment;
use crate::plan::job::check_names;
use crate::plan::sequences::{WindowRows, check_distribution};
use crate::read::paths::current::Current;
use crate::read::rows::states::StateTable;
use crate::read::sequences::SequenceInput;
use crate::run::assign::{check_alike, check_kind};
use crate::run::inputs::PlannedSequenceAssignment;
use crate::run::progress::Progress;
use crate::run::record::{Ended, Head};
use crate::run::sequences::fit::dropped;
use crate::run::sequences::known;
use crate::run::sequences::rows;
use crate::run::sequences::rows::{
    FitRows, LeastLikely, PartitionRows, RowFit, RowModel, RowTables,
};
use crate::run::summary;
use crate::run::summary::SHOWN;
use futures::future::LocalBoxFuture;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fmt::{Display, Formatter};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// How an assignment ended.
pub enum SequenceAssignOutcome {
    /// The output already holds what this one would write.
    NothingToDo,
    /// The tables are in place; the model may lack some partitions.
    Done(Box<SequenceAssignRecord>),
}

/// `runs/<id>.json` of an assignment of sequences.
#[derive(Debug, Clone, Serialize)]
pub struct SequenceAssignRecord {
    /// What all records have.
    #[serde(flatten)]
    pub head: Head,
    /// The output with the models.
    pub model: String,
    /// The run that made the models.
    pub model_run: String,
    /// One entry per partition of the model that has new rows.
    pub models: Vec<FilteredRecord>,
}

/// The new rows of one partition.
#[derive(Debug, Clone, Serialize)]
pub struct FilteredRecord {
    /// The value of each partition column, by its name.
    pub partition: BTreeMap<String, String>,
    /// Rows that were filtered.
    pub rows: u64,
    /// Rows whose symbol the models do not have.
    pub unseen: u64,
    /// Trajectories that were filtered.
    pub trajectories: u64,
    /// One entry per fit.
    pub fits: Vec<FilteredFitRecord>,
}

/// The new rows of one fit.
#[derive(Debug, Clone, Serialize)]
pub struct FilteredFitRecord {
    /// The name of the fit.
    pub name: String,
    /// The mean log-likelihood of a symbol, in nats.
    pub mean_log_likelihood: f64,
    /// Rows at which the filter began anew.
    pub resets: u64,
    /// The trajectories with the least mean log-likelihood, ascending.
    pub least_likely: Vec<LeastLikely>,
}

impl PlannedSequenceAssignment {
    /// Filters the rows with the model at an output. An assignment that fails leaves `output` as it
    /// was. With `force`, it runs even if the output is up to date.
    ///
    /// # Errors
    /// If there is no such model, its columns are others, or a stage fails.
    pub fn assign<'a>(
        &'a self,
        model: &'a Output,
        output: &'a Output,
        force: bool,
        progress: Arc<dyn Progress>,
    ) -> LocalBoxFuture<'a, Result<SequenceAssignOutcome>> {
        Box::pin(assign(self, model, output, force, progress))
    }
}

async fn assign(
    planned: &PlannedSequenceAssignment,
    model: &Output,
    output: &Output,
    force: bool,
    progress: Arc<dyn Progress>,
) -> Result<SequenceAssignOutcome> {
    let plan = &planned.assignment;
    let at = model.shown();
    let Some(written) = Written::open(model).await? else {
        let what = format!("there is no finished result at {at}; run its pipeline first");
        return Err(Error::input(what));
    };
    check_kind("symbols", &written, at)?;
    let (ours, theirs) = (&plan.layout.partition, &written.partition);
    check_alike("partition_by", ours, theirs, at)?;
    let symbol = WindowRows::of(&plan.layout).symbol.output_fields();
    check_alike("the symbol", &symbol, &written.sources, at)?;
    let hash = hash(plan, &written);
    output.check(&[TRAJECTORIES, PREDICTIONS])?;
    if !force {
        output.check_job(&plan.name).await?;
    }
    let begun = output.begin(&hash).await?;
    let current = begun.earlier();
    if current.is_some_and(|c| c.tables.contains_key(Table::Fits.name())) {
        return Err(Error::spec(format!(
            "{} holds the models of a run, which the filtered rows would replace; name another folder with --output",
            output.shown()
        )));
    }
    if !force && current.is_some_and(|c| c.plan == hash && c.complete) {
        return Ok(SequenceAssignOutcome::NothingToDo);
    }
    let threads = planned.lake.threads;
    let mut record = SequenceAssignRecord {
        head: Head::begin(&begun.run, &plan.name, &hash, threads, &plan.tables),
        model: at.to_string(),
        model_run: written.current.run.clone(),
        models: Vec::new(),
    };
    match drive(planned, &written, output, &begun, &progress, &mut record).await {
        Ok(()) => Ok(SequenceAssignOutcome::Done(Box::new(record))),
        Err(e) => {
            output.abandon().await;
            record.head.failed(&e);
            output.keep_failed(&begun.run, &record).await;
            Err(e)
        }
    }
}

/// Runs the stages of an assignment.
async fn drive(
    planned: &PlannedSequenceAssignment,
    written: &Written<'_>,
    output: &Output,
    begun: &Begun,
    progress: &Arc<dyn Progress>,
    record: &mut SequenceAssignRecord,
) -> Result<()> {
    let PlannedSequenceAssignment {
        assignment: plan,
        lake,
        frame,
    } = planned;
    let at = record.model.clone();
    let columns = WindowRows::of(&plan.layout);
    progress.stage("read model", None);
    let known = known::read(written, columns.symbol, plan.distribution).await;
    let known = known.map_err(|e| e.at(format!("model {at}")))?;
    if plan.distribution {
        let n = known.models.iter().map(|own| own.numbers.len());
        check_distribution(n.max().unwrap_or(0))?;
    }
    record.head.done("read model", 0, 0);
    let symbols = StateTable::empty(columns.symbol);
    let run = schema_of(&plan.layout.partition, Vec::new(), symbols, false);
    let trajectories = trajectories_schema(&run, columns.columns(), &known.fits);
    let predictions = predictions_schema(&run, columns.columns(), &known.fits);
    check_names(&[
        (TRAJECTORIES, Arc::clone(&trajectories)),
        (PREDICTIONS, Arc::clone(&predictions)),
    ])?;

    progress.stage("write", None);
    output.claim_version(begun).await?;
    let input = SequenceInput {
        lake,
        frame,
        layout: &plan.layout,
        symbols: &known.symbols,
        sort: &AtomicBool::new(false),
    };
    let tables = RowTables {
        trajectories,
        predictions: Some(predictions),
        fits: &known.fits,
        models: known.models.iter().map(|own| Some(own.of_rows())).collect(),
        output,
        begun,
    };
    let found = rows::write(input, &tables, &|n| progress.advance(n)).await?;
    if found.found.rows == 0 {
        return Err(Error::input("the SQL of [sequences] gives no rows"));
    }
    record.head.rows_read = found.found.rows;
    record.head.rows_dropped = dropped(&found.found.dropped);
    let n: u64 = found.tables.values().sum();
    record.head.tables = found.tables;
    record.head.done("write", n, record.head.input_bytes);
    for (&partition, of_rows) in &found.rows {
        let key = ModelKey::at(&found.found.partitions, None, partition as usize);
        if partition as usize >= known.models.len() {
            record.head.lacks(written.place(&key), &at);
            continue;
        }
        let fits = known.fits.iter().enumerate().filter_map(|(fit, columns)| {
            let own = found.of_fits.get(&(partition, fit))?;
            Some(FilteredFitRecord::of(&columns.name, own))
        });
        let PartitionRows {
            rows,
            unseen,
            trajectories,
            ..
        } = *of_rows;
        record.models.push(FilteredRecord {
            partition: written.partition_of(&key),
            rows,
            unseen,
            trajectories,
            fits: fits.collect(),
        });
    }
    if record.models.is_empty() {
        return Err(Error::input(format!(
            "the model at {at} has none of the partitions of the {}",
            counted(found.found.rows, "row")
        )));
    }
    record.head.outcome = Ended::Done;
    let promotion = Promotion {
        kind: "symbols",
        plan: &record.head.plan,
        complete: record.head.failures.is_empty(),
        tables: &record.head.tables,
        keep: plan.keep,
        record: &*record,
        begins: &|| progress.promoting(),
    };
    output.promote(begun, &promotion).await
}

impl known::KnownModel {
    /// The model as the filter needs it.
    fn of_rows(&self) -> RowModel<'_> {
        let fits = self.fits.iter().map(|fit| RowFit {
            model: &fit.model,
            unigram: fit.unigram,
            floor: fit.floor,
        });
        RowModel {
            numbers: &self.numbers,
            fits: fits.collect(),
        }
    }
}

impl FilteredFitRecord {
    fn of(name: &str, rows: &FitRows) -> FilteredFitRecord {
        FilteredFitRecord {
            name: name.to_string(),
            mean_log_likelihood: rows.log_likelihood / rows.rows.max(1) as f64,
            resets: rows.resets,
            least_likely: rows.least.clone(),
        }
    }
}

/// The hash of an assignment. It depends on the plan (which has the version of gyre) and the run
/// that made the model.
fn hash(plan: &SequenceAssignment, written: &Written<'_>) -> String {
    let mut hasher = blake3::Hasher::new();
    let Current { run, plan: of, .. } = &written.current;
    for part in ["assign sequences", &plan.hash, of, run] {
        hasher.update(part.as_bytes());
    }
    hasher.finalize().to_hex()[..32].to_string()
}

/// The summary of an assignment of sequences.
pub struct SequenceAssignSummary<'a> {
    /// The record of the assignment.
    pub record: &'a SequenceAssignRecord,
    /// The location of its tables.
    pub output: &'a str,
}

impl Display for SequenceAssignSummary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let SequenceAssignSummary { record, output } = self;
        let (head, models) = (&record.head, &record.models);
        writeln!(
            f,
            "{}: {}, filtered by the model {}",
            head.pipeline,
            counted(grouped(head.rows_read as f64), "row"),
            record.model
        )?;
        for (reason, rows) in &head.rows_dropped {
            writeln!(f, "  {} dropped: {reason}", grouped(*rows as f64))?;
        }
        for model in models.iter().take(SHOWN) {
            writeln!(f)?;
            model.write(f)?;
        }
        if models.len() > SHOWN {
            let more = models.len() - SHOWN;
            writeln!(f, "\n… and {more} more, see {output}/runs/{}.json", head.id)?;
        }
        summary::end(f, head, models.len(), &["read model", "write"], output)
    }
}

impl FilteredRecord {
    fn write(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let partition = self.partition.iter();
        let parts: Vec<String> = partition
            .map(|(name, value)| escaped(&format!("{name} {value}")))
            .collect();
        if !parts.is_empty() {
            write!(f, "{}: ", parts.join(", "))?;
        }
        let rows = counted(grouped(self.rows as f64), "row");
        let trajectories = counted(grouped(self.trajectories as f64), "trajectory");
        write!(f, "{rows} of {trajectories}")?;
        if self.unseen > 0 {
            let unseen = counted(grouped(self.unseen as f64), "row");
            write!(f, "; {unseen} with an unseen symbol")?;
        }
        writeln!(f)?;
        for fit in &self.fits {
            writeln!(
                f,
                "  {}  {:.4} nats a symbol",
                fit.name, fit.mean_log_likelihood
            )?;
            if fit.resets > 0 {
                let resets = counted(grouped(fit.resets as f64), "row");
                writeln!(f, "    the filter began anew at {resets}")?;
            }
            LeastLikely::write(f, &fit.least_likely)?;
        }
        Ok(())
    }
}
