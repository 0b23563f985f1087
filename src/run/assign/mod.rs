//! Assigns new rows to a written model: sets, embeddings and log-likelihoods of states and
//! trajectories. Drives the stages: read model → count → assign → score → write → promote.
//!
//! The pipeline names the new rows and the roles of their columns
//! ([`Assignment`](crate::plan::assignment::Assignment)); the fits are those of the model.
//! Trajectories are read twice: first to count, then to score each of them, when every new state
//! has its set.

pub mod model;
pub mod record;
pub mod score;

use crate::error::{Error, Kind, Result};
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::lag::Lag;
use crate::memory;
use crate::methods::low_rank::assign::{Assigned, assign as assign_states, unseen};
use crate::methods::low_rank::model::Side;
use crate::output::place::Output;
use crate::output::pointer::{Begun, Promotion};
use crate::output::result::{COUNTS, ModelKey, Written};
use crate::output::staging::Staging;
use crate::output::tables::assigned::{
    AssignedModel, AssignedSchema, TrajectoryRows, TrajectorySchema,
};
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::plan::assignment::Assignment;
use crate::plan::job::check_names;
use crate::read::counts;
use crate::read::counts::counted::Counted;
use crate::read::counts::follow::{Follower, follow};
use crate::read::paths::current::Current;
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::states::StateTable;
use crate::run::assign::model::{KnownModel, Numbers, sides};
use crate::run::assign::record::{AssignRecord, AssignedFitRecord, AssignedRecord};
use crate::run::assign::score::{Lookup, Scorer};
use crate::run::counts::model::{at_place, check_sum, partition_key, place};
use crate::run::inputs::PlannedAssignment;
use crate::run::progress::Progress;
use crate::run::record::{Ended, Failure, Head};
use arrow::datatypes::Field;
use futures::future::LocalBoxFuture;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Options of an assignment.
#[derive(Debug, Clone, Copy)]
pub struct AssignOptions {
    /// Run even if the output is up to date.
    pub force: bool,
    /// Transitions added to every set, distributed over the targets like all transitions.
    pub smoothing: f64,
}

/// How an assignment ended.
pub enum AssignOutcome {
    /// The output already holds what this one would write.
    NothingToDo,
    /// The tables are in place; the model may lack some partitions.
    Done(Box<AssignRecord>),
}

impl PlannedAssignment {
    /// Assigns the rows to the model at an output. An assignment that fails leaves `output` as it
    /// was.
    ///
    /// # Errors
    /// If there is no such model, its columns are others, or a stage fails.
    pub fn assign<'a>(
        &'a self,
        model: &'a Output,
        output: &'a Output,
        options: &'a AssignOptions,
        progress: Arc<dyn Progress>,
    ) -> LocalBoxFuture<'a, Result<AssignOutcome>> {
        Box::pin(assign(self, model, output, options, progress))
    }
}

async fn assign(
    planned: &PlannedAssignment,
    model: &Output,
    output: &Output,
    options: &AssignOptions,
    progress: Arc<dyn Progress>,
) -> Result<AssignOutcome> {
    let plan = &planned.assignment;
    let at = model.shown();
    let Some(written) = Written::open(model).await? else {
        let what = format!("there is no finished result at {at}; run its pipeline first");
        return Err(Error::input(what));
    };
    check_kind(COUNTS, &written, at)?;
    if !written.has(Table::Latent) {
        return Err(Error::input(format!("the result at {at} holds no models")));
    }
    if written.fits.is_empty() {
        let what = format!("the fits of the result at {at} have no sets to assign");
        return Err(Error::input(what));
    }
    check_columns(plan, &written, at)?;
    check_lags(&plan.lags, &written, at).await?;
    let names = names(plan, &written);
    check_names(&names.schemas())?;
    let hash = hash(plan, &written, options);
    output.check(&[])?;
    if !options.force {
        output.check_job(&plan.name).await?;
    }
    let begun = output.begin(&hash).await?;
    let current = begun.earlier();
    if current.is_some_and(|c| c.tables.contains_key(Table::Fits.name())) {
        return Err(Error::spec(format!(
            "{} holds the models of a run, which the assigned states would replace; name another folder with --output",
            output.shown()
        )));
    }
    if !options.force && current.is_some_and(|c| c.plan == hash && c.complete) {
        return Ok(AssignOutcome::NothingToDo);
    }
    let mut head = Head::begin(
        &begun.run,
        &plan.name,
        &hash,
        planned.lake.threads,
        &plan.tables,
    );
    let stages = Stages {
        planned,
        location: at,
        written: &written,
        output,
        begun: &begun,
        options,
        progress: &progress,
    };
    let e = match drive(&stages, names, &mut head).await {
        Ok(record) => return Ok(AssignOutcome::Done(Box::new(record))),
        Err(e) => e,
    };
    output.abandon().await;
    head.failed(&e);
    let record = AssignRecord {
        model: at.to_string(),
        model_run: written.current.run.clone(),
        smoothing: options.smoothing,
        models: Vec::new(),
        head,
    };
    output.keep_failed(&begun.run, &record).await;
    Err(e)
}

/// What the stages of an assignment read and write.
struct Stages<'a> {
    planned: &'a PlannedAssignment,
    /// The location of the model.
    location: &'a str,
    /// The model.
    written: &'a Written<'a>,
    output: &'a Output,
    begun: &'a Begun,
    options: &'a AssignOptions,
    progress: &'a Arc<dyn Progress>,
}

/// Runs the stages of an assignment.
async fn drive(
    stages: &Stages<'_>,
    mut names: AssignedSchema,
    head: &mut Head,
) -> Result<AssignRecord> {
    let &Stages {
        planned,
        location: at,
        written,
        output,
        begun,
        options,
        progress,
    } = stages;
    let (plan, lake) = (&planned.assignment, &planned.lake);
    progress.stage("read model", None);
    let evidence = &plan.layout.evidence;
    let mut numbers = Numbers::new(evidence)?;
    let known = model::read(written, evidence, &mut numbers, options.smoothing)
        .await
        .map_err(|e| e.at(format!("model {at}")))?;
    head.done("read model", 0, 0);

    progress.stage("count", None);
    let counting = Arc::clone(progress);
    let advance = Arc::new(move |rows: usize| counting.advance(rows as u64));
    let mut counted = counts::count(lake, planned.frame.clone(), &plan.layout, advance).await?;
    if counted.rows == 0 {
        return Err(Error::input("the SQL of [transitions] gives no rows"));
    }
    memory::give_back();
    head.done("count", counted.rows, head.input_bytes);

    progress.stage("assign", None);
    (head.rows_read, head.rows_dropped) = (counted.rows, std::mem::take(&mut counted.dropped.0));
    names.names.partitions = std::mem::take(&mut counted.partitions);
    names.names.sources = counted.sources.clone();
    names.names.targets = counted.targets.clone();
    let mut all = {
        let at = at.to_string();
        let plan = Arc::clone(plan);
        tokio::task::spawn_blocking(move || {
            assign_all(&at, &plan.layout, names, known, numbers, counted)
        })
        .await
        .map_err(|e| Error::with_source(Kind::Bug, "assigning panicked", e))??
    };
    head.done("assign", 0, 0);

    if let Some(schema) = &mut all.names.trajectories {
        progress.stage("score", None);
        let lookups = Arc::new(std::mem::take(&mut all.lookups));
        let (n_lags, n_fits) = (plan.layout.n_lags(), written.fits.len());
        let start = || {
            let scorer = Scorer::new(&lookups, n_lags, n_fits);
            // Look-ups are by these numbers.
            let numbers = all.numbers.states()?;
            Follower::new(&plan.layout, numbers, &all.names.names.partitions, scorer)
        };
        let followed = follow(lake, planned.frame.clone(), &plan.layout, start).await?;
        for (model, record) in all.models.iter_mut().zip(&mut all.records) {
            let (partition, lag) = (model.counts.partition, model.counts.lag);
            let overlap = plan.layout.evidence.overlap(lag);
            model.trajectories = score::rows(&followed, partition, lag, overlap);
            record.trajectories = Some(model.trajectories.ends.len());
        }
        (schema.keys, schema.states) = (followed.keys, followed.states);
        head.done("score", 0, 0);
    }

    progress.stage("write", None);
    output.claim_version(begun).await?;
    let staging = Staging {
        output,
        begun,
        schema: &all.names.names,
    };
    let tables = all.names.tables().into_iter();
    let tables = tables.map(|table| (table.name, (table.columns)(&all.names)));
    let staged = staging.write_all(tables.collect(), &all.models).await?;
    head.tables = staged.iter().map(|(&name, own)| (name, own.rows)).collect();
    let rows = head.tables.values().sum();
    head.done("write", rows, 0);

    head.failures = all.failures;
    head.outcome = Ended::Done;
    let record = AssignRecord {
        model: at.to_string(),
        model_run: written.current.run.clone(),
        smoothing: options.smoothing,
        models: all.records,
        head: head.clone(),
    };
    let promotion = Promotion {
        kind: COUNTS,
        plan: &head.plan,
        complete: record.head.failures.is_empty(),
        tables: &record.head.tables,
        keep: plan.keep,
        record: &record,
        begins: &|| progress.promoting(),
    };
    output.promote(begun, &promotion).await?;
    Ok(record)
}

/// The hash of an assignment. It depends on the plan (which has the version of gyre), the run that
/// made the model and the smoothing.
fn hash(plan: &Assignment, written: &Written<'_>, options: &AssignOptions) -> String {
    let mut hasher = blake3::Hasher::new();
    // Runs of one plan may name sets differently, so the run is hashed too.
    let Current { run, plan: of, .. } = &written.current;
    for part in ["assign", &plan.hash, of, run] {
        hasher.update(part.as_bytes());
    }
    hasher.update(&[u8::from(written.current.complete)]);
    hasher.update(&options.smoothing.to_le_bytes());
    hasher.finalize().to_hex()[..32].to_string()
}

/// The schema of the tables, without states and partitions, which are not read yet.
fn names(plan: &Assignment, written: &Written<'_>) -> AssignedSchema {
    let (sources, targets) = sides(&plan.layout.evidence);
    let trajectories = match &plan.layout.evidence {
        RowRoles::Trajectories {
            trajectory, time, ..
        } => Some(TrajectorySchema {
            fields: trajectory.clone(),
            time: time.clone(),
            keys: Vec::new(),
            states: StateTable::empty(sources),
        }),
        RowRoles::Windows { .. } | RowRoles::Pairs { .. } => None,
    };
    AssignedSchema {
        names: RunSchema {
            partition: plan.layout.partition.clone(),
            partitions: Vec::new(),
            lag: plan.lag_column(),
            sources: StateTable::empty(sources),
            targets: StateTable::empty(targets),
            is_weighted: plan.layout.is_weighted(),
            fits: Vec::new(),
            embeddings: Vec::new(),
            has_stability: false,
            tables: Vec::new(),
            rows: Vec::new(),
        },
        fits: written.fits.clone(),
        trajectories,
    }
}

/// An error unless the new rows have the same key columns as the model. States and partitions are
/// looked up by these columns.
fn check_columns(plan: &Assignment, written: &Written<'_>, at: &str) -> Result<()> {
    if written.lag.is_some() == plan.lags.is_empty() {
        let (ours, theirs) = if plan.lags.is_empty() {
            ("pairs", "trajectories")
        } else {
            ("trajectories", "pairs")
        };
        return Err(Error::spec(format!(
            "the pipeline has {ours}, but the model at {at} was made from {theirs}"
        )));
    }
    let (sources, targets) = sides(&plan.layout.evidence);
    let (sources, targets) = (sources.output_fields(), targets.output_fields());
    for (what, ours, theirs) in [
        ("partition_by", &plan.layout.partition, &written.partition),
        ("source states", &sources, &written.sources),
        ("target states", &targets, &written.targets),
    ] {
        check_alike(what, ours, theirs, at)?;
    }
    Ok(())
}

/// An error unless the model at `at` was made from rows of the kind of the pipeline.
pub(crate) fn check_kind(ours: &str, written: &Written<'_>, at: &str) -> Result<()> {
    let theirs = &written.kind;
    if ours == theirs {
        return Ok(());
    }
    Err(Error::spec(format!(
        "the pipeline has {ours}, but the model at {at} was made from {theirs}"
    )))
}

/// An error unless columns of the pipeline are those of the model at `at`.
pub(crate) fn check_alike(what: &str, ours: &[Field], theirs: &[Field], at: &str) -> Result<()> {
    let alike = |(a, b): (&Field, &Field)| a.name() == b.name() && a.data_type() == b.data_type();
    if ours.len() == theirs.len() && ours.iter().zip(theirs).all(alike) {
        return Ok(());
    }
    Err(Error::spec(format!(
        "the columns of {what} are {} in the pipeline, but {} in the model at {at}; name and cast them alike",
        listed(ours),
        listed(theirs)
    )))
}

/// Columns as text: `word` Utf8, `year` Int64.
fn listed(fields: &[Field]) -> String {
    let shown = fields
        .iter()
        .map(|f| format!("`{}` {}", f.name(), f.data_type()));
    match shown.collect::<Vec<_>>().join(", ") {
        none if none.is_empty() => "none".to_string(),
        some => some,
    }
}

/// An error unless the model has all lags of the pipeline.
pub(crate) async fn check_lags(asked: &[Lag], written: &Written<'_>, at: &str) -> Result<()> {
    let models = written.models(Table::Fits).await?;
    let mut lags: Vec<String> = models.into_iter().filter_map(|m| m.key.lag).collect();
    lags.sort_by(|a, b| Lag::texts_by_length(a, b));
    lags.dedup();
    let mut asked = asked.iter().map(Lag::to_string);
    if let Some(missing) = asked.find(|lag| !lags.contains(lag)) {
        let lags = lags.join(", ");
        return Err(Error::spec(format!(
            "the pipeline asks for lag {missing}, but the model at {at} has lag {lags}"
        )));
    }
    Ok(())
}

/// The assigned rows of all partitions and lags.
struct AllAssigned {
    names: AssignedSchema,
    numbers: Numbers,
    models: Vec<AssignedModel>,
    records: Vec<AssignedRecord>,
    failures: Vec<Failure>,
    /// Index: partition × lags + lag.
    lookups: Vec<Option<Lookup>>,
}

/// Assigns every partition and lag. A partition and lag that the model does not have is a failure
/// and does not stop the others.
///
/// # Errors
/// If the model has none of the partitions and lags.
fn assign_all(
    at: &str,
    layout: &Layout,
    names: AssignedSchema,
    mut known: BTreeMap<ModelKey, KnownModel>,
    mut numbers: Numbers,
    counted: Counted,
) -> Result<AllAssigned> {
    let (mut models, mut records, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let mut lookups = Vec::new();
    for counts in counted.counts {
        let partition = &names.names.partitions;
        let mut key = ModelKey::at(partition, None, counts.partition);
        key.lag = names.names.lag.text(counts.lag);
        let Some(known) = known.remove(&key) else {
            failures.push(Failure {
                partition: place(&names.names, &counts),
                message: format!("the model at {at} does not have it"),
            });
            lookups.push(None);
            continue;
        };
        let sources = numbers.sources(&counted.sources.columns(&counts.source_states)?)?;
        let targets = numbers.targets(&counted.targets.columns(&counts.target_states)?)?;
        check_sum(layout, &counts).map_err(|e| at_place(e, &names.names, &counts))?;
        let model = assign_model(&known, counts, &sources, &targets);
        records.push(record(&names, &model));
        lookups.push(Some(Lookup::new(known, &sources, &model.fits)));
        models.push(model);
    }
    if models.is_empty() {
        let first = failures.first().map_or("", |f| &f.partition);
        return Err(Error::input(format!(
            "the model at {at} has none of the partitions in the rows; the first of them is {first}"
        )));
    }
    for failure in &failures {
        tracing::error!(partition = failure.partition, "{}", failure.message);
    }
    Ok(AllAssigned {
        names,
        numbers,
        models,
        records,
        failures,
        lookups,
    })
}

/// Assigns the states of one partition and lag. `sources` and `targets` are the numbers of its
/// states.
fn assign_model(
    known: &KnownModel,
    counts: CountMatrix,
    sources: &[u32],
    targets: &[u32],
) -> AssignedModel {
    let places = |states: &[u32], of: &HashMap<u32, u32>| -> Vec<Option<u32>> {
        states.iter().map(|state| of.get(state).copied()).collect()
    };
    let sources = places(sources, &known.sources);
    let targets = places(targets, &known.targets);
    let fits: Vec<Assigned> = known
        .fits
        .iter()
        .map(|fit| assign_states(fit, &counts.by_source, &sources, &targets))
        .collect();
    let target_sides = known.fits.iter().zip(&known.target_sides);
    let target_sides = target_sides.map(|(fit, side)| of_targets(side, fit.rank, &targets));
    let (source_total, target_total) = totals(&counts.by_source, targets.len());
    AssignedModel {
        unseen: unseen(&counts.by_source, &targets),
        new_sources: sources.iter().map(Option::is_none).collect(),
        new_targets: targets.iter().map(Option::is_none).collect(),
        target_sides: target_sides.collect(),
        trajectories: TrajectoryRows::default(),
        counts,
        source_total,
        target_total,
        fits,
    }
}

/// The sets and memberships of the targets of the new rows in a fit. Unknown targets have no set,
/// and their memberships are 0.
fn of_targets(known: &Side, rank: usize, targets: &[Option<u32>]) -> Side {
    let places = || targets.iter().map(|place| place.map(|at| at as usize));
    let none = vec![0.0; rank];
    let of_target = |rows: &Vec<f64>| {
        let rows = places().flat_map(|at| at.map_or(&none[..], |at| &rows[at * rank..][..rank]));
        rows.copied().collect()
    };
    Side {
        affiliation: places()
            .map(|at| at.map_or(-1, |at| known.affiliation[at]))
            .collect(),
        embedding: Vec::new(),
        membership: known.membership.as_ref().map(of_target),
    }
}

/// The column sums N_·j and the row sums N_i·.
fn totals(counts: &[Csr], n_targets: usize) -> (Vec<f64>, Vec<f64>) {
    let mut of_targets = vec![0.0; n_targets];
    let mut of_sources = Vec::new();
    for shard in counts {
        for l in 0..shard.n_rows() {
            let mut total = 0.0;
            for e in shard.span(l) {
                let n = shard.values.get(e);
                total += n;
                of_targets[shard.columns[e] as usize] += n;
            }
            of_sources.push(total);
        }
    }
    (of_sources, of_targets)
}

/// The record of one partition and lag.
fn record(names: &AssignedSchema, model: &AssignedModel) -> AssignedRecord {
    let count = |flags: &[bool]| flags.iter().filter(|&&is| is).count();
    let fits = names.fits.iter().zip(&model.fits).map(|(columns, fit)| {
        let mut of_fit = AssignedFitRecord {
            name: columns.name.clone(),
            without_set: 0,
            log_likelihood: 0.0,
            scored: 0.0,
            impossible: 0.0,
        };
        for (j, state) in fit.states.iter().enumerate() {
            let Some(log_likelihood) = state.log_likelihood else {
                of_fit.without_set += 1;
                continue;
            };
            of_fit.log_likelihood += log_likelihood;
            of_fit.impossible += state.impossible;
            of_fit.scored += model.source_total[j] - model.unseen[j] - state.impossible;
        }
        of_fit
    });
    AssignedRecord {
        partition: partition_key(&names.names, model.counts.partition),
        lag: names.names.lag.text(model.counts.lag),
        sources: model.new_sources.len(),
        new_sources: count(&model.new_sources),
        targets: model.new_targets.len(),
        unseen_targets: count(&model.new_targets),
        unseen_transitions: model.unseen.iter().sum(),
        transitions: model.source_total.iter().sum(),
        trajectories: None,
        fits: fits.collect(),
    }
}
