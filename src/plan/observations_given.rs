//! Filters of rows without known states: the names of their numbers, and what must be given.

use crate::error::{Error, Result};
use crate::methods::FilterMethod;
use crate::methods::filter::params::System;
use crate::plan::pipeline::fits::FitEntry;

/// The names of the numbers of a state that has no others.
pub(crate) fn numbered(n: usize) -> Vec<String> {
    (0..n).map(|at| format!("x{at}")).collect()
}

/// The names of the numbers of a state that no row has. Empty if nothing says how many there are:
/// a written model may know.
pub(crate) fn own_state(method: &FilterMethod) -> Vec<String> {
    let of_system = |own: System<'_>| match (own.estimate, own.state) {
        // The columns of the state, which have no names here.
        (Some(_), _) => Vec::new(),
        (None, Some(names)) => names.to_vec(),
        (None, None) => numbered(own.f.len()),
    };
    match method {
        FilterMethod::KernelBayes(_) => Vec::new(),
        FilterMethod::Kalman(own) => match (&own.state, &own.f) {
            (Some(names), _) => names.clone(),
            (None, f) => numbered(f.as_ref().map_or(0, Vec::len)),
        },
        FilterMethod::Ekf(own) => of_system(own.system()),
        FilterMethod::Ukf(own) => of_system(own.system()),
    }
}

/// Checks that a fit needs no rows with a state.
///
/// # Errors
/// If something would be fitted to them, or estimates their columns.
pub(crate) fn check_given(fit: &FitEntry<FilterMethod>) -> Result<()> {
    let name = &fit.name;
    let of_system = |own: System<'_>| {
        if own.estimate.is_some() {
            return Err(Error::spec(format!(
                "`fit.{name}.estimate` gives the columns of `sequences.state`, which this pipeline does not have; leave it out: the estimates are the coordinates"
            )));
        }
        Ok([
            ("Q", own.q.is_some()),
            ("R", own.r.is_some()),
            ("x0", own.x0.is_some()),
            ("P0", own.p0.is_some()),
        ]
        .to_vec())
    };
    let given = match &fit.method {
        FilterMethod::KernelBayes(_) => {
            return Err(Error::spec(format!(
                "the table `sequences` needs the key `state`: filters are fitted to rows whose states are known, and `{name}` has no other form; only `gyre assign`, and `kalman`, `ekf` and `ukf` with all matrices given, can do without"
            )));
        }
        FilterMethod::Kalman(own) => [
            ("F", own.f.is_some()),
            ("H", own.h.is_some()),
            ("Q", own.q.is_some()),
            ("R", own.r.is_some()),
            ("x0", own.x0.is_some()),
            ("P0", own.p0.is_some()),
        ]
        .to_vec(),
        FilterMethod::Ekf(own) => of_system(own.system())?,
        FilterMethod::Ukf(own) => of_system(own.system())?,
    };
    match given.iter().find(|(_, is_given)| !is_given) {
        None => Ok(()),
        Some((key, _)) => Err(Error::spec(format!(
            "`fit.{name}.{key}` is missing: without `sequences.state` no row has a state that it could be fitted to; give it, or name the columns of known states in `sequences.state`"
        ))),
    }
}
