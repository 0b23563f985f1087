//! Checks of `[sequences]` with states and observations, and of the keys that go with them or
//! cannot.

use crate::error::Result;
use crate::methods::filter::params::{KernelBayes, System};
use crate::methods::{AnyMethod, FilterMethod};
use crate::plan::pipeline::consistency::errors::needs_time;
use crate::plan::pipeline::content::{Input, RowKey};
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{FilteredRows, Job, OutputTables, SequencesText, Validation};

/// Rows with states and observations.
pub(super) fn state_space(text: SequencesText, document: &Document<'_>) -> Result<Input> {
    let fail = |key: &str, what: &str| {
        let message = format!("`sequences.{key}` {what}");
        Err(document.error_at(&["sequences", key], &message))
    };
    if text.observation.is_empty() {
        let message = "the table `sequences` needs the key `observation` beside `state`: what is known of the rows whose states are estimated";
        return Err(document.error_at(&["sequences"], message));
    }
    if text.weight.is_some() {
        return fail(
            "weight",
            "is for symbols, which are counted: a filter gives all training rows the same weight; leave it out",
        );
    }
    let key = if text.id.is_empty() {
        RowKey::Trajectories {
            trajectory: text.trajectory,
            time: text.time.ok_or_else(|| needs_time(document))?,
            interval: text.interval,
        }
    } else {
        let of_time = [
            ("trajectory", !text.trajectory.is_empty()),
            ("time", text.time.is_some()),
            ("interval", text.interval.is_some()),
        ];
        if let Some((key, _)) = of_time.iter().find(|(_, is_there)| *is_there) {
            return fail(
                key,
                "and `sequences.id` exclude each other: rows follow each other in time, or each row stands alone",
            );
        }
        RowKey::Rows { id: text.id }
    };
    Ok(Input::StateSpace {
        key,
        state: text.state,
        observation: text.observation,
        split: text.split,
    })
}

/// Checks the keys outside of `[sequences]` and `[[fit]]` of a pipeline of filters.
pub(super) fn other_keys(
    job: &Job,
    validation: Option<&Validation>,
    document: &Document<'_>,
) -> Result<()> {
    if document.root.get("names").is_some() {
        let message = "`[names]` is about sets of states, which filters do not have; leave it out";
        return Err(document.error_at(&["names"], message));
    }
    if let Some(checks) = document.root.get("checks")
        && checks.get("max_drift").is_some()
    {
        let message = "`checks.max_drift` is about the number of transitions between sets of states, and is not available for filters; use `min_rows`, or a `[[check]]` of the table `fits`";
        return Err(document.error_at(&["checks", "max_drift"], message));
    }
    if job.incremental {
        let message = "`job.incremental` adds up counts, and filters are fitted to rows, not to counts; leave it out";
        return Err(document.error_at(&["job", "incremental"], message));
    }
    if validation.is_some() {
        let message = "`[validation]` is not available for filters: rows with `sequences.split` = 'test' score them, and `bandwidth` and `lambda` = \"held-out\" choose by training rows that are held out; leave it out";
        return Err(document.error_at(&["validation"], message));
    }
    Ok(())
}

/// Checks the section `[output]`.
pub(super) fn output(
    output: &OutputTables,
    fits: &[FitEntry<AnyMethod>],
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let Input::StateSpace { key, split, .. } = input else {
        if output.posteriors {
            let message = "`output.posteriors` is about the training rows of filters, which these rows do not have; leave it out";
            return Err(document.error_at(&["output", "posteriors"], message));
        }
        return Ok(());
    };
    let fail = |key: &str, what: &str| {
        let message = format!("`output.{key}` {what}");
        Err(document.error_at(&["output", key], &message))
    };
    let rows = output.rows.filtered(split.is_some());
    match rows {
        None => {
            return fail(
                "rows",
                "is \"held-out\", \"all\" or \"none\" for filters: the table `estimates` has the partition and the key of a row, and no other columns",
            );
        }
        Some(FilteredRows::HeldOut) if split.is_none() => {
            return fail(
                "rows",
                "= \"held-out\" leaves training rows out, but without `sequences.split` every row is one; name that column, or write \"all\"",
            );
        }
        Some(_) => {}
    }
    if !output.posteriors {
        return Ok(());
    }
    if matches!(key, RowKey::Trajectories { .. }) {
        return fail(
            "posteriors",
            "is for rows without time, which have `sequences.id`: the weights of every step would be as many numbers as there are training rows times rows; leave it out",
        );
    }
    let is_kernel = |fit: &FitEntry<AnyMethod>| {
        matches!(
            fit.method,
            AnyMethod::OfFilters(FilterMethod::KernelBayes(_))
        )
    };
    if !fits.iter().any(is_kernel) {
        return fail(
            "posteriors",
            "has the weights of training rows, which only the method \"kernel_bayes\" gives; leave it out",
        );
    }
    if split.is_none() {
        return fail(
            "posteriors",
            "is about rows that are not training rows, but without `sequences.split` every row is one; name that column",
        );
    }
    Ok(())
}

/// Checks a filter against the rows. `n` is the index of the fit.
pub(super) fn filter(
    fit: &FitEntry<AnyMethod>,
    n: usize,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let (
        AnyMethod::OfFilters(method),
        Input::StateSpace {
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
        FilterMethod::KernelBayes(own) => kernel_bayes(own, name, &segment, is_static, document),
        _ if is_static => {
            let name = method.name();
            fail(
                "method",
                format!(
                    "\"{name}\" follows a state in time, and rows with `sequences.id` have no time; use \"kernel_bayes\", or name `sequences.trajectory` and `sequences.time`"
                ),
            )
        }
        FilterMethod::Kalman(_) => Ok(()),
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
    for (key, rows) in [("supervision", &own.supervision), ("prior", &own.prior)] {
        if let Some(rows) = rows
            && rows.sql.trim().is_empty()
        {
            let message = format!("`fit.{name}.{key}.sql` must not be empty");
            return Err(document.error_at(&["fit", segment, key, "sql"], &message));
        }
    }
    Ok(())
}

/// Checks the numbers of expressions. A single column may be a list of any length.
fn nonlinear(
    own: System<'_>,
    state: &[String],
    observation: &[String],
    fail: &dyn Fn(&str, String) -> Result<()>,
) -> Result<()> {
    let shown = |n: usize| match n {
        1 => "1 expression".to_string(),
        n => format!("{n} expressions"),
    };
    let names = own.state.unwrap_or(state);
    if let Some(twice) = (1..names.len()).find(|&at| names[..at].contains(&names[at])) {
        return fail("state", format!("names `{}` twice", names[twice]));
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
