//! Checks of `[sequences]`, and of the keys that go with it or cannot.

use crate::error::Result;
use crate::evidence::lag::Lag;
use crate::methods::{AnyMethod, SequenceMethod};
use crate::plan::pipeline::consistency::errors::{Errors, needs_time};
use crate::plan::pipeline::consistency::filters::state_space;
use crate::plan::pipeline::consistency::rows::{bins, distinct_columns, parameter_names, query};
use crate::plan::pipeline::content::{Input, Transitions};
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{OutputRows, OutputTables, SequencesText, Validation};

/// The maximum of `validation.folds` for sequences: the models of all folds are in memory.
const MAX_FOLDS: usize = 20;

/// The section `[sequences]`.
pub(super) fn sequences(
    text: SequencesText,
    document: &Document<'_>,
    errors: &mut Errors<'_>,
) -> Option<Transitions> {
    let (sql, file) = (text.sql.as_ref(), text.file.as_ref());
    let query = errors.note(query("sequences", sql, file, document));
    parameter_names("sequences", &text.parameters, document, errors);
    let (parameters, partition_by) = (text.parameters.clone(), text.partition_by.clone());
    let empty = text.empty;
    let input = errors.note(input(text, document))?;
    errors.note(distinct_columns(&partition_by, &input, document));
    Some(Transitions {
        query: query?,
        parameters,
        partition_by,
        connected: false,
        empty,
        input,
    })
}

/// Decides between symbols and states with observations by the keys of the table.
fn input(text: SequencesText, document: &Document<'_>) -> Result<Input> {
    let fail = |key: &str, what: &str| {
        let message = format!("`sequences.{key}` {what}");
        Err(document.error_at(&["sequences", key], &message))
    };
    if let Some(Lag::Steps(_)) = text.interval {
        return fail(
            "interval",
            "is the time between two rows: a whole number or a duration, not steps; leave it out to follow the rows in time order",
        );
    }
    let has_symbol = !text.symbol.is_empty() || !text.bins.0.is_empty();
    if !has_symbol && !(text.state.is_empty() && text.observation.is_empty()) {
        return state_space(text, document);
    }
    for (key, names) in [("state", &text.state), ("observation", &text.observation)] {
        if !names.is_empty() {
            return fail(
                key,
                "is out of place: what a row shows is a `symbol`, whose states are hidden; for filters, give `state` and `observation` in place of `symbol` and `bins`",
            );
        }
    }
    if !has_symbol {
        let message = "the table `sequences` needs the key `symbol` or `bins` (hidden Markov models), or the keys `state` and `observation` (filters)";
        return Err(document.error_at(&["sequences"], message));
    }
    if !text.id.is_empty() {
        return fail(
            "id",
            "is out of place: rows with symbols follow each other in time; the column of a trajectory is `trajectory`",
        );
    }
    Ok(Input::Sequences {
        trajectory: text.trajectory,
        time: text.time.ok_or_else(|| needs_time(document))?,
        interval: text.interval,
        symbol: text.symbol,
        bins: bins("sequences", text.bins, document)?,
        weight: text.weight,
        split: text.split,
    })
}

/// Checks that a pipeline of sequences has no keys that are about sets of states.
pub(super) fn no_keys_of_sets(document: &Document<'_>) -> Result<()> {
    if document.root.get("names").is_some() {
        let message = "`[names]` is about sets of states, which hidden Markov models do not have; leave it out";
        return Err(document.error_at(&["names"], message));
    }
    if let Some(checks) = document.root.get("checks")
        && checks.get("max_drift").is_some()
    {
        let message = "`checks.max_drift` is about the number of transitions, and is not available for sequences; use `min_rows`, or a `[[check]]`";
        return Err(document.error_at(&["checks", "max_drift"], message));
    }
    Ok(())
}

/// Checks the section `[validation]` of a pipeline of sequences.
pub(super) fn sequence_validation(
    keys: Option<&Validation>,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let (
        Some(keys),
        Input::Sequences {
            trajectory, split, ..
        },
    ) = (keys, input)
    else {
        return Ok(());
    };
    let fail = |key: &str, what: &str| {
        let message = format!("`validation.{key}` {what}");
        Err(document.error_at(&["validation", key], &message))
    };
    if keys.markov {
        return fail(
            "markov",
            "tests sets of states, which hidden Markov models do not have; leave it out",
        );
    }
    if keys.folds > MAX_FOLDS {
        let what = format!(
            "must be {MAX_FOLDS} at most for sequences, not {}: the models of all folds are in memory",
            keys.folds
        );
        return fail("folds", &what);
    }
    if keys.folds > 0 && split.is_some() {
        return fail(
            "folds",
            "holds trajectories out in turn, but `sequences.split` says which rows are held out; keep one of them",
        );
    }
    if !keys.group.is_empty() {
        return fail(
            "group",
            "is not available for sequences, whose trajectories are resampled; name the unit in `sequences.trajectory`",
        );
    }
    if trajectory.is_empty() && keys.bootstrap > 0 {
        return fail(
            "bootstrap",
            "resamples trajectories, but every partition is one; name the column `sequences.trajectory`",
        );
    }
    if trajectory.is_empty() && keys.folds > 0 {
        return fail(
            "folds",
            "holds trajectories out in turn, but every partition is one; name the column `sequences.trajectory`, or mark rows to hold out with `sequences.split`",
        );
    }
    Ok(())
}

/// Checks that there are rows to hold out if a rank is chosen by them.
pub(super) fn held_out(
    fits: &[FitEntry<AnyMethod>],
    has_folds: bool,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let Input::Sequences {
        trajectory, split, ..
    } = input
    else {
        return Ok(());
    };
    // The folds have an error of their own.
    if split.is_some() || !trajectory.is_empty() || has_folds {
        return Ok(());
    }
    let is_auto = |fit: &FitEntry<AnyMethod>| {
        fit.rule.is_some() && matches!(fit.method, AnyMethod::OfSequences(_))
    };
    match fits.iter().position(is_auto) {
        Some(n) => {
            let message = format!(
                "`fit.{}.rank` = \"auto\" scores ranks by rows that are held out; mark rows with `sequences.split`, or name the column `sequences.trajectory` for folds of trajectories",
                fits[n].name
            );
            Err(document.error_at(&["fit", &n.to_string(), "rank"], &message))
        }
        None => Ok(()),
    }
}

/// Checks that all fits count the same windows.
pub(super) fn one_window(fits: &[FitEntry<AnyMethod>], document: &Document<'_>) -> Result<()> {
    let own = |fit: &FitEntry<AnyMethod>| match &fit.method {
        AnyMethod::OfSequences(SequenceMethod::SpectralHmm(own)) => Some((own.block, own.windows)),
        AnyMethod::OfCounts(_) | AnyMethod::OfPoints(_) | AnyMethod::OfFilters(_) => None,
    };
    let mut fits = fits.iter().enumerate();
    let first = fits.find_map(|(_, fit)| Some((fit, own(fit)?)));
    let Some((first, (block, windows))) = first else {
        return Ok(());
    };
    for (n, fit) in fits {
        let key = match own(fit) {
            Some(other) if other.0 != block => "block",
            Some(other) if other.1 != windows => "windows",
            _ => continue,
        };
        let message = format!(
            "the fits `{}` and `{}` have different `{key}`, but the windows of a pipeline are counted once; write two pipeline files, or give both fits the same `{key}`",
            first.name, fit.name
        );
        return Err(document.error_at(&["fit", &n.to_string(), key], &message));
    }
    Ok(())
}

/// Checks that `output.rows` says whether there is a table `predictions`.
pub(super) fn prediction_rows(rows: &OutputRows, document: &Document<'_>) -> Result<()> {
    if rows.predictions().is_some() {
        return Ok(());
    }
    let message = "`output.rows` is \"all\" or \"none\" for sequences: the table `predictions` has the partition, trajectory, time and symbol of every row, and no other columns";
    Err(document.error_at(&["output", "rows"], message))
}

/// Checks that `output.distribution` goes with the table `predictions`.
pub(super) fn distribution(
    output: &OutputTables,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    if !output.distribution {
        return Ok(());
    }
    let message = if !input.is_sequences() {
        "`output.distribution` is about the next symbol of a sequence, which these rows do not have; leave it out"
    } else if output.rows.predictions() == Some(false) {
        "`output.distribution` adds a column to the table `predictions`, which needs `rows = \"all\"`"
    } else {
        return Ok(());
    };
    Err(document.error_at(&["output", "distribution"], message))
}
