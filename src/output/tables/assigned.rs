//! The tables of an assignment of new rows to a model (`gyre.schema = 1`).

use crate::evidence::counts::matrix::CountMatrix;
use crate::methods::low_rank::assign::Assigned;
use crate::methods::low_rank::model::SideStates;
use crate::output::result::WrittenFit;
use crate::output::tables::columns::{Columns, Placed, TableColumns, set, taken};
use crate::output::tables::run_schema::RunSchema;
use crate::read::counts::follow::{FollowedRow, times};
use crate::read::rows::states::StateTable;
use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};

/// Everything that the schemas of an assignment depend on.
pub(crate) struct AssignedSchema {
    /// The schema of the new rows, without fits.
    pub names: RunSchema,
    /// The fits of the model.
    pub fits: Vec<WrittenFit>,
    /// None if the rows are pairs.
    pub trajectories: Option<TrajectorySchema>,
}

/// The schema of new trajectories.
pub(crate) struct TrajectorySchema {
    /// The key columns of a trajectory.
    pub fields: Vec<Field>,
    /// The time column.
    pub time: Field,
    /// The key columns of the trajectories, ordered by partition and trajectory.
    pub keys: Vec<ArrayRef>,
    /// The states of the trajectories.
    pub states: StateTable,
}

/// The new rows of one partition and lag.
pub(crate) struct AssignedModel {
    /// The counts of the new rows.
    pub counts: CountMatrix,
    /// N_·j and N_i·.
    pub source_total: Vec<f64>,
    /// N_i·.
    pub target_total: Vec<f64>,
    /// The part of N_·j that goes to targets unknown to the model.
    pub unseen: Vec<f64>,
    /// Whether each state is unknown to the model.
    pub new_sources: Vec<bool>,
    /// Whether each target is unknown to the model.
    pub new_targets: Vec<bool>,
    /// One per entry of `AssignedSchema::fits`.
    pub fits: Vec<Assigned>,
    /// Per fit, the sets and memberships of the targets, without points.
    pub target_sides: Vec<SideStates>,
    /// The trajectories and their scores.
    pub trajectories: TrajectoryRows,
}

/// The trajectories of one partition in ascending order, and their scores at one lag.
#[derive(Default)]
pub(crate) struct TrajectoryRows {
    /// The end of each trajectory.
    pub ends: Vec<FollowedRow>,
    /// The transitions of each trajectory at the lag.
    pub transitions: Vec<f64>,
    /// Per entry of `AssignedSchema::fits`, one score per entry of `ends`.
    pub fits: Vec<Vec<TrajectoryFit>>,
}

/// The score of a trajectory by a fit. Numbers of transitions are sums of their weights.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct TrajectoryFit {
    /// The set of its last state, −1 for none.
    pub affiliation: i32,
    /// Σ log (λΓ)_yx over the scored transitions.
    pub log_likelihood: f64,
    /// Transitions that are neither left out nor impossible.
    pub scored: f64,
    /// Transitions from a state without a set or to a target unknown to the model.
    pub left_out: f64,
    /// Transitions with (λΓ)_yx = 0.
    pub impossible: f64,
}

impl Placed for AssignedModel {
    fn place(&self) -> (usize, usize) {
        (self.counts.partition, self.counts.lag)
    }
}

impl AssignedSchema {
    /// The tables with their columns. Pairs have no trajectories.
    pub(crate) fn tables(&self) -> Vec<(&'static str, TableColumns<'_, AssignedModel>)> {
        let mut tables = vec![("sources", sources(self)), ("targets", targets(self))];
        if self.trajectories.is_some() {
            tables.push(("trajectories", trajectories(self)));
        }
        tables
    }

    /// The columns of the tables.
    pub(crate) fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        let tables = self.tables().into_iter();
        tables
            .map(|(name, columns)| (name, columns.schema(&self.names).0))
            .collect()
    }
}

/// One row per source state of the new rows.
fn sources(schema: &AssignedSchema) -> TableColumns<'_, AssignedModel> {
    let run = &schema.names;
    let mut columns = states(|model| &model.counts.source_states)
        .state(&run.sources, &run.sources.fields(), |&(model, j)| {
            model.counts.source_states[j]
        })
        .into_keys()
        .amount(run, "count", |&(model, j)| model.source_total[j])
        // Transitions to targets unknown to the model.
        .amount(run, "unseen", |&(model, j)| model.unseen[j])
        .column("is_new", |&(model, j)| model.new_sources[j])
        .boxes(&run.sources, |&(model, j)| model.counts.source_states[j]);
    for (at, of) in schema.fits.iter().enumerate() {
        let named = |name: &str| format!("{}_{name}", of.name);
        let state = move |model: &AssignedModel, j: usize| model.fits[at].states[j];
        columns = columns
            .column(named("affiliation"), move |&(model, j)| {
                set(state(model, j).affiliation)
            })
            // r coordinates. Null without a point.
            .vector(named("embedding"), of.rank, move |&(model, j)| {
                point(&model.fits[at].embedding, &model.fits[at], j)
            });
        if of.is_soft {
            // r memberships from 0 to 1. Null without a point.
            columns = columns.vector(named("membership"), of.rank, move |&(model, j)| {
                let values = model.fits[at].membership.as_ref()?;
                point(values, &model.fits[at], j)
            });
        }
        columns = columns
            // Σ_i N_ij log λ_ik of the set k, nats.
            .column(named("log_likelihood"), move |&(model, j)| {
                state(model, j).log_likelihood
            })
            // Transitions to targets with λ_ik = 0.
            .amount(run, named("impossible"), move |&(model, j)| {
                state(model, j).impossible
            })
            // The score of its set minus the largest score of another set, nats.
            .column(named("lead"), move |&(model, j)| state(model, j).lead);
    }
    columns.finish()
}

/// The row of a source in `values`, if the source has a point.
fn point<'a>(values: &'a [f64], fit: &Assigned, j: usize) -> Option<&'a [f64]> {
    fit.has_point[j].then(|| &values[j * fit.rank..][..fit.rank])
}

type StateRow<'a> = (&'a AssignedModel, usize);

/// Rows that are indices of states in a model.
fn states<'a>(states: fn(&AssignedModel) -> &[u32]) -> Columns<'a, AssignedModel, StateRow<'a>> {
    Columns::in_pieces(
        move |model| states(model).len(),
        |model, rows| rows.map(|j| (model, j)).collect(),
    )
}

/// One row per target state of the new rows.
fn targets(schema: &AssignedSchema) -> TableColumns<'_, AssignedModel> {
    let run = &schema.names;
    let mut columns = states(|model| &model.counts.target_states)
        .state(&run.targets, &run.targets.fields(), |&(model, i)| {
            model.counts.target_states[i]
        })
        .into_keys()
        .amount(run, "count", |&(model, i)| model.target_total[i])
        .column("is_new", |&(model, i)| model.new_targets[i])
        .boxes(&run.targets, |&(model, i)| model.counts.target_states[i]);
    for (at, of) in schema.fits.iter().enumerate() {
        columns = columns.column(format!("{}_affiliation", of.name), move |&(model, i)| {
            set(model.target_sides[at].affiliation[i])
        });
        if of.is_soft {
            // r memberships from 0 to 1. Null if the model does not know the target.
            let name = format!("{}_membership", of.name);
            columns = columns.vector(name, of.rank, move |&(model, i)| {
                let values = model.target_sides[at].membership.as_ref()?;
                let rank = model.fits[at].rank;
                (!model.new_targets[i]).then(|| &values[i * rank..][..rank])
            });
        }
    }
    columns.finish()
}

/// One row per trajectory, about its end and its transitions.
fn trajectories(schema: &AssignedSchema) -> TableColumns<'_, AssignedModel> {
    let run = &schema.names;
    let columns = Columns::in_pieces(
        |model: &AssignedModel| model.trajectories.ends.len(),
        |model, rows| rows.map(|at| (&model.trajectories, at)).collect(),
    );
    let Some(of) = &schema.trajectories else {
        return columns.finish();
    };
    let mut columns = columns
        .group(&of.fields, |rows: &[(&TrajectoryRows, usize)]| {
            taken(&of.keys, rows.iter().map(|&(t, at)| t.ends[at].key))
        })
        .into_keys()
        // The time of its last row that has a state.
        .group(std::slice::from_ref(&of.time), |rows| {
            let ticks: Vec<i64> = rows.iter().map(|&(t, at)| t.ends[at].time).collect();
            Ok(vec![times(&ticks, &of.time)?])
        })
        .state(&of.states, &of.states.fields(), |&(t, at)| t.ends[at].state)
        .amount(run, "transitions", |&(t, at)| t.transitions[at]);
    for (fit, of) in schema.fits.iter().enumerate() {
        let named = |name: &str| format!("{}_{name}", of.name);
        let scored = move |t: &TrajectoryRows, at: usize| {
            let score = t.fits[fit][at];
            (score.scored > 0.0).then_some(score)
        };
        columns = columns
            // The set of its last state.
            .column(named("affiliation"), move |&(t, at)| {
                set(t.fits[fit][at].affiliation)
            })
            // Nats, and nats per scored transition. Null if no transition is scored.
            .column(named("log_likelihood"), move |&(t, at)| {
                scored(t, at).map(|f| f.log_likelihood)
            })
            .column(named("mean_log_likelihood"), move |&(t, at)| {
                scored(t, at).map(|f| f.log_likelihood / f.scored)
            })
            // Transitions without a score, by reason.
            .amount(run, named("left_out"), move |&(t, at)| {
                t.fits[fit][at].left_out
            })
            .amount(run, named("impossible"), move |&(t, at)| {
                t.fits[fit][at].impossible
            });
    }
    columns.finish()
}
