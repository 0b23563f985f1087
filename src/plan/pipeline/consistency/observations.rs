//! Checks of rows with states and observations, and of the fits to them.

use crate::error::{Result, counted};
use crate::methods::filter::params::{Kalman, KernelBayes, System};
use crate::methods::{AnyMethod, FilterMethod};
use crate::plan::pipeline::consistency::errors::lacks;
use crate::plan::pipeline::consistency::rows::TimeTexts;
use crate::plan::pipeline::content::{Input, RowKey};
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{Duplicates, SequencesText};

/// Rows with states and observations.
pub(super) fn of_observations(text: SequencesText, document: &Document<'_>) -> Result<Input> {
    if text.observation.is_empty() {
        let key = "`observation`: the columns that are measured in every row";
        return Err(lacks("sequences", key, document));
    }
    if text.weight.is_some() {
        let what = "is for symbols, which are counted: a filter gives all training rows the same weight; leave it out";
        return document.wrong(&["sequences", "weight"], what);
    }
    let key = if text.id.is_empty() {
        let (time, times) = TimeTexts {
            time: text.time,
            duplicates: text.duplicates,
            max_gap: text.max_gap,
            tolerance: text.tolerance,
            interval: text.interval.clone(),
            fitted: ("interval", text.interval.iter().cloned().collect()),
        }
        .checked("sequences", document)?;
        RowKey::Trajectories {
            trajectory: text.trajectory,
            time,
            times,
            interval: text.interval,
        }
    } else {
        let of_time = [
            ("trajectory", !text.trajectory.is_empty()),
            ("time", !text.time.is_empty()),
            ("duplicates", text.duplicates != Duplicates::Error),
            ("interval", text.interval.is_some()),
            ("max_gap", text.max_gap.is_some()),
            ("tolerance", text.tolerance.is_some()),
        ];
        if let Some((key, _)) = of_time.iter().find(|(_, is_there)| *is_there) {
            let what = "cannot be used with `sequences.id`: rows with an `id` have no time and no trajectory";
            return document.wrong(&["sequences", key], what);
        }
        RowKey::Rows { id: text.id }
    };
    Ok(Input::Observations {
        key,
        state: text.state,
        observation: text.observation,
        split: text.split,
    })
}

/// Whether a method gives weights of training rows.
pub(super) fn has_kernels(method: &AnyMethod) -> bool {
    matches!(
        method,
        AnyMethod::OfObservations(FilterMethod::KernelBayes(_))
    )
}

/// Checks a filter against the rows. `n` is the index of the fit.
pub(super) fn filter(
    fit: &FitEntry<AnyMethod>,
    n: usize,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let (
        AnyMethod::OfObservations(method),
        Input::Observations {
            key,
            state,
            observation,
            ..
        },
    ) = (&fit.method, input)
    else {
        return Ok(());
    };
    let (segment, name) = (n.to_string(), &fit.name);
    let fail = |key: &str, what: String| {
        let message = format!("`fit.{name}.{key}` {what}");
        Err(document.error_at(&["fit", &segment, key], &message))
    };
    let is_static = matches!(key, RowKey::Rows { .. });
    match method {
        FilterMethod::KernelBayes(own) => {
            predictions(own, state, &fail)?;
            kernel_bayes(own, name, &segment, is_static, document)
        }
        _ if is_static => {
            let name = method.name();
            fail(
                "method",
                format!(
                    "\"{name}\" follows a state in time, and rows with `sequences.id` have no time; use \"kernel_bayes\", or name `sequences.trajectory` and `sequences.time`"
                ),
            )
        }
        FilterMethod::Kalman(own) => linear(own, state, &fail),
        FilterMethod::Ekf(own) => nonlinear(own.system(), state, observation, &fail),
        FilterMethod::Ukf(own) => nonlinear(own.system(), state, observation, &fail),
    }
}

fn kernel_bayes(
    own: &KernelBayes,
    name: &str,
    segment: &str,
    is_static: bool,
    document: &Document<'_>,
) -> Result<()> {
    if own.prior.is_some() && !is_static {
        let message = format!(
            "`fit.{name}.prior` is for rows without time, which have `sequences.id`: the prior of a step is predicted from the step before; leave it out"
        );
        return Err(document.error_at(&["fit", segment, "prior"], &message));
    }
    if own.takes_nearest() && is_static {
        let message = format!(
            "`fit.{name}.supervision.nearest` is for rows with time: without time, all rows have the same prediction and so the same nearest state; leave it out, and give supervision observations"
        );
        return Err(document.error_at(&["fit", segment, "supervision", "nearest"], &message));
    }
    let supervision = own.supervision.as_ref().map(|rows| &rows.sql);
    let prior = own.prior.as_ref().map(|rows| &rows.sql);
    for (key, sql) in [("supervision", supervision), ("prior", prior)] {
        if let Some(sql) = sql
            && sql.trim().is_empty()
        {
            let message = format!("`fit.{name}.{key}.sql` must not be empty");
            return Err(document.error_at(&["fit", segment, key, "sql"], &message));
        }
    }
    Ok(())
}

/// Checks the number of expressions of a prediction. A single column may be a list of any length.
fn predictions(
    own: &KernelBayes,
    state: &[String],
    fail: &dyn Fn(&str, String) -> Result<()>,
) -> Result<()> {
    let f = own.supervision.as_ref().and_then(|rows| rows.f.as_ref());
    match f {
        Some(f) if state.len() > 1 && f.len() != state.len() => fail(
            "supervision",
            format!(
                "has {} in `f` for {} columns of `sequences.state` ({}); write one per column, in their order",
                counted(f.len(), "expression"),
                state.len(),
                state.join(", ")
            ),
        ),
        _ => Ok(()),
    }
}

/// Checks the names of the numbers of a state.
fn linear(own: &Kalman, state: &[String], fail: &dyn Fn(&str, String) -> Result<()>) -> Result<()> {
    let Some(names) = &own.state else {
        return Ok(());
    };
    if !state.is_empty() {
        let what = "names the numbers of a state that no row has, but the columns of `sequences.state` have names; leave it out";
        return fail("state", what.into());
    }
    if let Some(twice) = twice(names) {
        return fail("state", format!("names `{twice}` twice"));
    }
    match &own.f {
        Some(f) if f.len() != names.len() => {
            let what = format!(
                "has {} for {} of `F`; write one per number of the state",
                counted(names.len(), "name"),
                counted(f.len(), "row")
            );
            fail("state", what)
        }
        _ => Ok(()),
    }
}

/// The first name that another one before it equals.
fn twice(names: &[String]) -> Option<&String> {
    let mut places = 1..names.len();
    let at = places.find(|&at| names[..at].contains(&names[at]))?;
    Some(&names[at])
}

/// Checks the numbers of expressions. A single column may be a list of any length.
fn nonlinear(
    own: System<'_>,
    state: &[String],
    observation: &[String],
    fail: &dyn Fn(&str, String) -> Result<()>,
) -> Result<()> {
    let shown = |n: usize| counted(n, "expression");
    let names = own.state.unwrap_or(state);
    if let Some(twice) = twice(names) {
        return fail("state", format!("names `{twice}` twice"));
    }
    if own.state.is_some() && own.estimate.is_none() && !state.is_empty() {
        let what =
            "is missing: with `state`, the columns of the state are expressions of the coordinates";
        return fail("estimate", what.into());
    }
    let is_known = own.state.is_some() || names.len() > 1;
    if is_known && own.f.len() != names.len() {
        let what = format!(
            "has {} for {} coordinates ({}); write one per coordinate, in their order",
            shown(own.f.len()),
            names.len(),
            names.join(", ")
        );
        return fail("f", what);
    }
    if observation.len() > 1 && own.h.len() != observation.len() {
        let what = format!(
            "has {} for {} columns of `sequences.observation` ({}); write one per column, in their order",
            shown(own.h.len()),
            observation.len(),
            observation.join(", ")
        );
        return fail("h", what);
    }
    match own.estimate {
        Some(estimate) if state.len() > 1 && estimate.len() != state.len() => {
            let what = format!(
                "has {} for {} columns of `sequences.state` ({}); write one per column, in their order",
                shown(estimate.len()),
                state.len(),
                state.join(", ")
            );
            fail("estimate", what)
        }
        _ => Ok(()),
    }
}
