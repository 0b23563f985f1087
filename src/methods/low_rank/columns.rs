//! The columns that low-rank models add to the tables of states.

use crate::methods::columns::{Axis, StateColumn, StateRows, Values};
use crate::methods::low_rank::model::{LowRank, SideStates};

/// The set, from 0.
const AFFILIATION: StateColumn = StateColumn {
    name: "affiliation",
    values: Values::Sets(|model, axis| Some(&side(model, axis).affiliation)),
};

/// r coordinates.
const EMBEDDING: StateColumn = StateColumn {
    name: "embedding",
    values: Values::Rows(|model, axis| Some(rows(model, &side(model, axis).embedding))),
};

/// r memberships from 0 to 1.
const MEMBERSHIP: StateColumn = StateColumn {
    name: "membership",
    values: Values::Rows(|model, axis| Some(rows(model, side(model, axis).membership.as_ref()?))),
};

/// The columns of a method that gives every state one set.
pub(crate) const SETS: &[StateColumn] = &[AFFILIATION, EMBEDDING];

/// The columns of a method that gives memberships as well.
pub(crate) const SOFT_SETS: &[StateColumn] = &[AFFILIATION, EMBEDDING, MEMBERSHIP];

fn side(model: &LowRank, axis: Axis) -> &SideStates {
    match axis {
        Axis::Sources => &model.sources,
        Axis::Targets => &model.targets,
    }
}

fn rows<'a>(model: &LowRank, values: &'a [f64]) -> StateRows<'a> {
    StateRows {
        values,
        width: model.rank,
    }
}
