//! Assigns new states to a written model: sets, embeddings and log-likelihoods of states and
//! trajectories.
//!
//! Trajectories are read twice: first to count, then to score each of them, when every new state
//! has its set.

use crate::error::{Error, Result, counted};
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::matrix::CountMatrix;
use crate::memory;
use crate::methods::low_rank::assign::{Assigned, assign as assign_states, unseen};
use crate::methods::low_rank::model::SideStates;
use crate::output::number::{grouped, log_likelihood};
use crate::output::result::{ModelKey, Written};
use crate::output::staging::Staging;
use crate::output::tables::assigned::{
    AssignedModel, AssignedSchema, TrajectoryRows, TrajectorySchema,
};
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::table::Table;
use crate::plan::counts::NewStates;
use crate::plan::evidence::sides;
use crate::plan::job::check_names;
use crate::plan::rows::lag_column;
use crate::read::counts;
use crate::read::counts::counted::Counted;
use crate::read::counts::follow::{Follower, follow};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::states::StateTable;
use crate::run::assign::kind::{
    AssignedRows, Assigning, Assigns, Model, check_alike, check_kind, check_lags,
};
use crate::run::counts::kind::CountsKind;
use crate::run::counts::known::{KnownModel, Numbers, read};
use crate::run::counts::model::{at_place, check_sum, partition_key, place};
use crate::run::counts::score::{self, Lookup, Scorer};
use crate::run::record::ModelEntry;
use crate::run::workers::executor::blocking_as;
use hashbrown::HashMap;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};
use std::sync::Arc;

/// The new rows of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AssignedStates {
    /// The number of sources in the new rows.
    pub sources: usize,
    /// Sources that the model does not have.
    pub new_sources: usize,
    /// The number of targets in the new rows.
    pub targets: usize,
    /// Targets that the model does not have.
    pub unseen_targets: usize,
    /// Transitions to targets that the model does not have.
    pub unseen_transitions: f64,
    /// The sum of the counts.
    pub transitions: f64,
    /// The number of trajectories. None for pairs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trajectories: Option<usize>,
    /// One entry per fit of the model.
    pub fits: Vec<AssignedFit>,
}

/// What one fit says of the new rows.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AssignedFit {
    /// The name of the fit.
    pub name: String,
    /// Sources without a set.
    pub without_set: usize,
    /// The log-likelihood of the scored transitions, in nats.
    pub log_likelihood: f64,
    /// Scored transitions: those from a source with a set to a target that this set can reach.
    pub scored: f64,
    /// Transitions with probability 0 in the model.
    pub impossible: f64,
}

impl Assigns for CountsKind {
    type NewRows = NewStates;
    type Assigned = AssignedStates;

    const TABLES: &'static [&'static str] = &[];

    async fn check_columns(rows: &NewStates, model: &Model<'_>) -> Result<()> {
        let Model { written, at } = model;
        if !written.has(Table::Latent) {
            return Err(Error::input(format!("the result at {at} holds no models")));
        }
        if written.fits.is_empty() {
            let what = format!("the fits of the result at {at} have no sets to assign");
            return Err(Error::input(what));
        }
        check_columns(rows, written, at)?;
        check_lags(&rows.lags, written, at).await?;
        check_names(&names(rows, written).schemas())
    }

    async fn assign(run: &mut Assigning<'_, Self>) -> Result<AssignedRows<AssignedStates>> {
        let (planned, progress) = (run.planned, run.progress);
        let (rows, lake) = (&planned.assignment.rows, &planned.lake);
        let Model { written, at } = run.model;
        progress.stage("read model", None);
        let evidence = &rows.layout.evidence;
        let mut numbers = Numbers::new(evidence)?;
        let known = read(written, evidence, &mut numbers, run.options.smoothing)
            .await
            .map_err(|e| e.at(format!("model {at}")))?;
        run.head.done("read model", 0, 0);

        progress.stage("count", None);
        let counting = Arc::clone(progress);
        let advance = Arc::new(move |rows: usize| counting.advance(rows as u64));
        let mut counted = counts::count(lake, planned.frame.clone(), &rows.layout, advance).await?;
        let (n_rows, pairs) = (counted.rows, counted.pairs(&rows.layout));
        if n_rows == 0 {
            return Err(run.no_rows());
        }
        memory::give_back();
        run.head.done("count", n_rows, run.head.input_bytes);

        progress.stage("assign", None);
        let dropped = std::mem::take(&mut counted.dropped.0);
        let mut names = names(rows, written);
        names.names.partitions = std::mem::take(&mut counted.partitions);
        names.names.sources = counted.sources.clone();
        names.names.targets = counted.targets.clone();
        let layout = Arc::clone(&rows.layout);
        let assign = move || assign_all(&layout, names, known, numbers, counted);
        let mut all = blocking_as("assigning", assign).await?;
        run.head.done("assign", 0, 0);

        score_trajectories(run, &mut all).await?;
        progress.stage("write", None);
        run.output.claim_version(run.begun).await?;
        let staging = Staging::new(run.output, run.begun, &all.names.names);
        let staged = staging.write_all(all.names.tables(), &all.models).await?;
        Ok(AssignedRows {
            rows: n_rows,
            dropped,
            pairs,
            tables: staged.iter().map(|(&name, own)| (name, own.rows)).collect(),
            warnings: Vec::new(),
            models: all.records,
            lacking: all.lacking,
        })
    }
}

/// Scores each trajectory, if the rows have trajectories.
async fn score_trajectories(
    run: &mut Assigning<'_, CountsKind>,
    all: &mut AllAssigned,
) -> Result<()> {
    let planned = run.planned;
    let (rows, written) = (&planned.assignment.rows, &run.model.written);
    let Some(schema) = &mut all.names.trajectories else {
        return Ok(());
    };
    run.progress.stage("score", None);
    let lookups = Arc::new(std::mem::take(&mut all.lookups));
    let (n_lags, n_fits) = (rows.layout.n_lags(), written.fits.len());
    let start = || {
        let scorer = Scorer::new(&lookups, n_lags, n_fits);
        // Look-ups are by these numbers.
        let numbers = all.numbers.of_sources.duplicate()?;
        Follower::new(&rows.layout, numbers, &all.names.names.partitions, scorer)
    };
    let followed = follow(&planned.lake, planned.frame.clone(), &rows.layout, start).await?;
    for (model, record) in all.models.iter_mut().zip(&mut all.records) {
        let (partition, lag) = (model.counts.partition, model.counts.lag);
        let overlap = rows.layout.evidence.overlap(lag);
        model.trajectories = score::rows(&followed, partition, lag, overlap);
        record.model.trajectories = Some(model.trajectories.ends.len());
    }
    (schema.keys, schema.states) = (followed.keys, followed.states);
    run.head.done("score", 0, 0);
    Ok(())
}

/// The schema of the tables, without states and partitions, which are not read yet.
fn names(rows: &NewStates, written: &Written<'_>) -> AssignedSchema {
    let (sources, targets) = sides(&rows.layout.evidence);
    let partition = &rows.layout.partition;
    let trajectories = match &rows.layout.evidence {
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
            sources: StateTable::empty(sources),
            targets: StateTable::empty(targets),
            is_weighted: rows.layout.is_weighted(),
            ..RunSchema::of_models(partition, Vec::new(), lag_column(&rows.lags))
        },
        fits: written.fits.clone(),
        trajectories,
    }
}

/// An error unless the new rows have the same key columns as the model. States and partitions are
/// looked up by these columns.
fn check_columns(rows: &NewStates, written: &Written<'_>, at: &str) -> Result<()> {
    let kind = |has_lag| if has_lag { "trajectories" } else { "pairs" };
    let ours = kind(!rows.lags.is_empty());
    check_kind(ours, kind(written.lag.is_some()), at)?;
    let (sources, targets) = sides(&rows.layout.evidence);
    let (sources, targets) = (sources.output_fields(), targets.output_fields());
    for (what, ours, theirs) in [
        ("partition_by", &rows.layout.partition, &written.partition),
        ("source states", &sources, &written.sources),
        ("target states", &targets, &written.targets),
    ] {
        check_alike(what, ours, theirs, at)?;
    }
    Ok(())
}

/// The assigned rows of all partitions and lags.
struct AllAssigned {
    names: AssignedSchema,
    numbers: Numbers,
    models: Vec<AssignedModel>,
    records: Vec<ModelEntry<AssignedStates>>,
    /// Partitions and lags that the model does not have.
    lacking: Vec<String>,
    /// Index: partition × lags + lag.
    lookups: Vec<Option<Lookup>>,
}

/// Assigns every partition and lag. A partition and lag that the model does not have does not stop
/// the others.
///
/// # Errors
/// If the weights of a model are too large.
fn assign_all(
    layout: &Layout,
    names: AssignedSchema,
    mut known: BTreeMap<ModelKey, KnownModel>,
    mut numbers: Numbers,
    counted: Counted,
) -> Result<AllAssigned> {
    let (mut models, mut records, mut lacking) = (Vec::new(), Vec::new(), Vec::new());
    let mut lookups = Vec::new();
    for counts in counted.counts {
        let partition = &names.names.partitions;
        let mut key = ModelKey::at(partition, None, counts.partition);
        key.lag = names.names.lag.text(counts.lag);
        let Some(known) = known.remove(&key) else {
            lacking.push(place(&names.names, &counts));
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
    Ok(AllAssigned {
        names,
        numbers,
        models,
        records,
        lacking,
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
fn of_targets(known: &SideStates, rank: usize, targets: &[Option<u32>]) -> SideStates {
    let places = || targets.iter().map(|place| place.map(|at| at as usize));
    let none = vec![0.0; rank];
    let of_target = |rows: &Vec<f64>| {
        let rows = places().flat_map(|at| at.map_or(&none[..], |at| &rows[at * rank..][..rank]));
        rows.copied().collect()
    };
    SideStates {
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
fn record(names: &AssignedSchema, model: &AssignedModel) -> ModelEntry<AssignedStates> {
    let count = |flags: &[bool]| flags.iter().filter(|&&is| is).count();
    let fits = names.fits.iter().zip(&model.fits).map(|(columns, fit)| {
        let mut of_fit = AssignedFit {
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
    let states = AssignedStates {
        sources: model.new_sources.len(),
        new_sources: count(&model.new_sources),
        targets: model.new_targets.len(),
        unseen_targets: count(&model.new_targets),
        unseen_transitions: model.unseen.iter().sum(),
        transitions: model.source_total.iter().sum(),
        trajectories: None,
        fits: fits.collect(),
    };
    ModelEntry {
        partition: partition_key(&names.names, model.counts.partition),
        lag: names.names.lag.text(model.counts.lag),
        model: states,
    }
}

impl Display for AssignedStates {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let number = |n: usize| grouped(n as f64);
        write!(
            f,
            "{}, {} ({} new), {} ({} unseen",
            counted(grouped(self.transitions), "transition"),
            counted(number(self.sources), "source"),
            number(self.new_sources),
            counted(number(self.targets), "target"),
            number(self.unseen_targets)
        )?;
        if self.unseen_targets > 0 {
            let share = 100.0 * self.unseen_transitions / self.transitions;
            let unseen = counted(grouped(self.unseen_transitions), "transition");
            write!(f, " with {unseen}, {share:.2} %")?;
        }
        write!(f, ")")?;
        if let Some(n) = self.trajectories {
            write!(f, ", {}", counted(number(n), "trajectory"))?;
        }
        let names = self.fits.iter().map(|fit| fit.name.chars().count());
        let width = names.max().unwrap_or(0).max(3);
        writeln!(
            f,
            "\n  {:width$}  {:>14}  {:>14}  {:>10}  {:>19}",
            "fit", "log-likelihood", "per transition", "impossible", "sources without set"
        )?;
        for fit in &self.fits {
            let mean = match fit.scored {
                0.0 => "none".to_string(),
                scored => format!("{:.4} nats", fit.log_likelihood / scored),
            };
            writeln!(
                f,
                "  {:width$}  {:>14}  {mean:>14}  {:>10}  {:>19}",
                fit.name,
                log_likelihood(fit.log_likelihood, fit.scored),
                grouped(fit.impossible),
                number(fit.without_set)
            )?;
        }
        Ok(())
    }
}
