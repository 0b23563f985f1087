//! New rows assigned to a model → record batches: the columns of the tables of an assignment (`gyre.schema = 1`).

use crate::error::{Error, Kind, Result};
use crate::evidence::counts::matrix::Counts;
use crate::methods::fit::Side;
use crate::methods::low_rank::assign::Assigned;
use crate::output::result::WrittenFit;
use crate::output::tables::columns::{amounts, batch, filled_up, row_type};
use crate::output::tables::run_schema::RunSchema;
use crate::read::counts::follow::{FollowedRow, times};
use crate::read::rows::states::StateTable;
use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float64Array, Int32Array, RecordBatch, UInt32Array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use std::ops::Range;
use std::sync::Arc;

/// Everything the columns of an assignment are made from.
pub struct AssignedSchema {
    /// Of the new rows, without fits.
    pub names: RunSchema,
    /// Those of the model.
    pub fits: Vec<WrittenFit>,
    /// Nothing where the rows are pairs.
    pub trajectories: Option<TrajectorySchema>,
}

pub struct TrajectorySchema {
    pub fields: Vec<Field>,
    pub time: Field,
    /// The key of every trajectory, ascending by partition and trajectory.
    pub keys: Vec<ArrayRef>,
    pub states: StateTable,
}

/// The new rows of one partition and lag.
pub struct AssignedModel {
    pub counts: Counts,
    /// N_·j and N_i·.
    pub source_total: Vec<f64>,
    pub target_total: Vec<f64>,
    /// Of N_·j, what goes to targets that the model has not.
    pub unseen: Vec<f64>,
    /// Which states the model has not.
    pub new_sources: Vec<bool>,
    pub new_targets: Vec<bool>,
    /// Beside `AssignedSchema::fits`.
    pub fits: Vec<Assigned>,
    /// What each fit says of the targets, without points.
    pub target_sides: Vec<Side>,
    pub trajectories: TrajectoryRows,
}

/// The trajectories of one partition, ascending, and what one lag says about them.
#[derive(Default)]
pub struct TrajectoryRows {
    pub ends: Vec<FollowedRow>,
    pub transitions: Vec<f64>,
    /// Beside `AssignedSchema::fits`, and beside `ends`.
    pub fits: Vec<Vec<TrajectoryFit>>,
}

/// What a fit says about a trajectory. Transitions are added up by their weights.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TrajectoryFit {
    /// The set of the state in which it is, −1 for none.
    pub affiliation: i32,
    /// Σ log (λΓ)_yx over the transitions that are neither left out nor impossible.
    pub log_likelihood: f64,
    /// How many these are.
    pub scored: f64,
    /// Transitions from a state without a set or to a target that the model has not.
    pub left_out: f64,
    /// Transitions with (λΓ)_yx = 0.
    pub impossible: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssignedTable {
    Sources,
    Targets,
    Trajectories,
}

impl AssignedTable {
    /// Those that there are: pairs have no trajectories.
    pub fn all(names: &AssignedSchema) -> impl Iterator<Item = AssignedTable> + use<> {
        let trajectories = names
            .trajectories
            .is_some()
            .then_some(AssignedTable::Trajectories);
        [AssignedTable::Sources, AssignedTable::Targets]
            .into_iter()
            .chain(trajectories)
    }

    pub fn name(self) -> &'static str {
        match self {
            AssignedTable::Sources => "sources",
            AssignedTable::Targets => "targets",
            AssignedTable::Trajectories => "trajectories",
        }
    }
}

impl AssignedSchema {
    /// A name that would stand twice in a table, and the table.
    pub fn repeated(&self) -> Option<(String, &'static str)> {
        AssignedTable::all(self).find_map(|table| {
            let (schema, _) = schema(table, self);
            let names: Vec<&String> = schema.fields().iter().map(|f| f.name()).collect();
            let at = (0..names.len()).find(|&at| names[..at].contains(&names[at]))?;
            Some((names[at].clone(), table.name()))
        })
    }
}

/// The columns of a table, and those that order its rows.
pub fn schema(table: AssignedTable, names: &AssignedSchema) -> (SchemaRef, Vec<String>) {
    use DataType::{Boolean, Float64, Int32};
    let AssignedSchema {
        names,
        fits,
        trajectories,
    } = names;
    let mut fields = names.leading();
    fn value(name: &str, data_type: DataType) -> Field {
        Field::new(name, data_type, false)
    }
    let of_states = |states: &StateTable| {
        let fields = states.fields().into_iter();
        fields.map(|f| value(f.name(), f.data_type().clone()))
    };
    match (table, trajectories) {
        (AssignedTable::Sources, _) => fields.extend(of_states(&names.sources)),
        (AssignedTable::Targets, _) => fields.extend(of_states(&names.targets)),
        (AssignedTable::Trajectories, Some(t)) => {
            let keys = t.fields.iter();
            fields.extend(keys.map(|f| value(f.name(), f.data_type().clone())));
        }
        (AssignedTable::Trajectories, None) => (),
    }
    let sorted = fields.iter().map(|f| f.name().clone()).collect();
    match (table, trajectories) {
        (AssignedTable::Sources, _) => fields.extend([
            value("count", names.count_type()),
            value("unseen", names.count_type()),
            value("is_new", Boolean),
        ]),
        (AssignedTable::Targets, _) => {
            fields.extend([value("count", names.count_type()), value("is_new", Boolean)])
        }
        (AssignedTable::Trajectories, Some(t)) => {
            fields.push(value(t.time.name(), t.time.data_type().clone()));
            fields.extend(of_states(&t.states));
            fields.push(value("transitions", names.count_type()));
        }
        (AssignedTable::Trajectories, None) => (),
    }
    for fit in fits {
        let mut of_fit = |name: &str, data_type, nullable| {
            fields.push(Field::new(
                format!("{}_{name}", fit.name),
                data_type,
                nullable,
            ))
        };
        of_fit("affiliation", Int32, true);
        let membership = fit.is_soft.then(|| row_type(fit.rank));
        match table {
            AssignedTable::Sources => {
                of_fit("embedding", row_type(fit.rank), true);
                if let Some(membership) = membership {
                    of_fit("membership", membership, true);
                }
                of_fit("log_likelihood", Float64, true);
                of_fit("impossible", names.count_type(), false);
                of_fit("lead", Float64, true);
            }
            AssignedTable::Targets => {
                if let Some(membership) = membership {
                    of_fit("membership", membership, true);
                }
            }
            AssignedTable::Trajectories => {
                of_fit("log_likelihood", Float64, true);
                of_fit("mean_log_likelihood", Float64, true);
                of_fit("left_out", names.count_type(), false);
                of_fit("impossible", names.count_type(), false);
            }
        }
    }
    (Arc::new(Schema::new(fields)), sorted)
}

/// How many rows one model adds to a table.
pub fn len(table: AssignedTable, model: &AssignedModel) -> usize {
    match table {
        AssignedTable::Sources => model.counts.source_states.len(),
        AssignedTable::Targets => model.counts.target_states.len(),
        AssignedTable::Trajectories => model.trajectories.ends.len(),
    }
}

/// Some of the rows that one model adds to a table, in its order.
pub fn rows(
    table: AssignedTable,
    names: &AssignedSchema,
    model: &AssignedModel,
    rows: Range<usize>,
) -> Result<RecordBatch> {
    let columns = match (table, &names.trajectories) {
        (AssignedTable::Sources, _) => sources(names, model, rows)?,
        (AssignedTable::Targets, _) => targets(names, model, rows)?,
        (AssignedTable::Trajectories, Some(of)) => {
            trajectories(&names.names, of, &model.trajectories, rows)?
        }
        (AssignedTable::Trajectories, None) => Vec::new(),
    };
    let place = (model.counts.partition, model.counts.lag);
    batch(
        &names.names,
        place,
        table.name(),
        schema(table, names).0,
        columns,
    )
}

fn affiliations(sets: impl Iterator<Item = i32>) -> ArrayRef {
    Arc::new(sets.map(|k| (k >= 0).then_some(k)).collect::<Int32Array>())
}

fn sources(
    AssignedSchema { names, fits, .. }: &AssignedSchema,
    model: &AssignedModel,
    rows: Range<usize>,
) -> Result<Vec<ArrayRef>> {
    let mut columns = names
        .sources
        .columns(&model.counts.source_states[rows.clone()])?;
    columns.push(amounts(
        names,
        model.source_total[rows.clone()].iter().copied(),
    ));
    columns.push(amounts(names, model.unseen[rows.clone()].iter().copied()));
    columns.push(Arc::new(BooleanArray::from(
        model.new_sources[rows.clone()].to_vec(),
    )));
    for (fit, of) in model.fits.iter().zip(fits) {
        let states = &fit.states[rows.clone()];
        columns.push(affiliations(states.iter().map(|s| s.affiliation)));
        for values in std::iter::once(&fit.embedding).chain(&fit.membership) {
            let values = &values[rows.start * fit.rank..rows.end * fit.rank];
            columns.push(lists(values, fit.rank, of, &fit.has_point[rows.clone()]));
        }
        let log_likelihood = states.iter().map(|s| s.log_likelihood);
        columns.push(Arc::new(log_likelihood.collect::<Float64Array>()));
        columns.push(amounts(names, states.iter().map(|s| s.impossible)));
        columns.push(Arc::new(
            states.iter().map(|s| s.lead).collect::<Float64Array>(),
        ));
    }
    Ok(columns)
}

/// Coordinates or memberships of states, where they have them.
fn lists(values: &[f64], rank: usize, fit: &WrittenFit, has: &[bool]) -> ArrayRef {
    let values = Float64Array::from(filled_up(values, rank, fit.rank));
    Arc::new(FixedSizeListArray::new(
        Arc::new(Field::new("item", DataType::Float64, false)),
        fit.rank as i32,
        Arc::new(values),
        Some(NullBuffer::from(has)),
    ))
}

fn targets(
    AssignedSchema { names, fits, .. }: &AssignedSchema,
    model: &AssignedModel,
    rows: Range<usize>,
) -> Result<Vec<ArrayRef>> {
    let mut columns = names
        .targets
        .columns(&model.counts.target_states[rows.clone()])?;
    columns.push(amounts(
        names,
        model.target_total[rows.clone()].iter().copied(),
    ));
    columns.push(Arc::new(BooleanArray::from(
        model.new_targets[rows.clone()].to_vec(),
    )));
    let is_known: Vec<bool> = model.new_targets[rows.clone()]
        .iter()
        .map(|new| !new)
        .collect();
    for ((side, fit), of) in model.target_sides.iter().zip(&model.fits).zip(fits) {
        columns.push(affiliations(side.affiliation[rows.clone()].iter().copied()));
        if let Some(values) = &side.membership {
            let values = &values[rows.start * fit.rank..rows.end * fit.rank];
            columns.push(lists(values, fit.rank, of, &is_known));
        }
    }
    Ok(columns)
}

fn trajectories(
    names: &RunSchema,
    of: &TrajectorySchema,
    trajectories: &TrajectoryRows,
    rows: Range<usize>,
) -> Result<Vec<ArrayRef>> {
    let ends = &trajectories.ends[rows.clone()];
    let at = UInt32Array::from_iter_values(ends.iter().map(|end| end.key));
    let mut columns: Vec<ArrayRef> = of
        .keys
        .iter()
        .map(|keys| take(keys, &at, None))
        .collect::<Result<_, _>>()
        .map_err(|e| Error::with_source(Kind::Bug, "trajectories cannot be decoded", e))?;
    let ticks: Vec<i64> = ends.iter().map(|end| end.time).collect();
    columns.push(times(&ticks, &of.time)?);
    let states: Vec<u32> = ends.iter().map(|end| end.state).collect();
    columns.extend(of.states.columns(&states)?);
    let transitions = &trajectories.transitions[rows.clone()];
    columns.push(amounts(names, transitions.iter().copied()));
    for fit in &trajectories.fits {
        let fit = &fit[rows.clone()];
        columns.push(affiliations(fit.iter().map(|f| f.affiliation)));
        let scored = || fit.iter().map(|f| (f.scored > 0.0).then_some(f));
        let sum = scored().map(|f| f.map(|f| f.log_likelihood));
        columns.push(Arc::new(sum.collect::<Float64Array>()));
        let mean = scored().map(|f| f.map(|f| f.log_likelihood / f.scored));
        columns.push(Arc::new(mean.collect::<Float64Array>()));
        columns.push(amounts(names, fit.iter().map(|f| f.left_out)));
        columns.push(amounts(names, fit.iter().map(|f| f.impossible)));
    }
    Ok(columns)
}
