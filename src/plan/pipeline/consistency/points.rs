//! Checks of the keys that rows with coordinates have and of those that they cannot have.

use crate::error::{Result, counted};
use crate::plan::pipeline::consistency::errors::not_blank;
use crate::plan::pipeline::content::Input;
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::keys::{Densities, Job, OutputRows, Validation};

/// The maximum of `validation.folds` for rows with coordinates.
const MAX_POINT_FOLDS: usize = 20;

/// Checks that a pipeline of points has no keys that are about states or their counts.
pub(super) fn no_keys_of_states(job: &Job, document: &Document<'_>) -> Result<()> {
    if document.root.get("names").is_some() {
        let message = "`[names]` is about sets of states, and is not available for rows with `coordinates`; leave it out";
        return Err(document.error_at(&["names"], message));
    }
    if let Some(checks) = document.root.get("checks")
        && checks.get("max_drift").is_some()
    {
        let message = "`checks.max_drift` is about the number of transitions, and is not available for rows with `coordinates`; use `min_rows`, or a `[[check]]`";
        return Err(document.error_at(&["checks", "max_drift"], message));
    }
    if job.incremental {
        let message = "`job.incremental` adds up counts, and is not available for rows with `coordinates`; leave it out";
        return Err(document.error_at(&["job", "incremental"], message));
    }
    Ok(())
}

/// Checks that `output.rows` is about what the rows have: coordinates or states.
pub(super) fn output_rows(
    rows: &OutputRows,
    is_points: bool,
    document: &Document<'_>,
) -> Result<()> {
    let message = if is_points {
        let message = "`output.rows` is \"all\", a number of points or \"none\" for rows with `coordinates`: the table `points` has the key of a row and no other columns";
        rows.points().is_none().then_some(message)
    } else {
        let message = "`output.rows` is a list of columns for rows with states; a number is for rows with `coordinates`";
        rows.columns().is_none().then_some(message)
    };
    match message {
        Some(message) => Err(document.error_at(&["output", "rows"], message)),
        None => Ok(()),
    }
}

/// Checks the section `[validation]` of a pipeline of points.
pub(super) fn point_validation(
    keys: Option<&Validation>,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let Some(keys) = keys else { return Ok(()) };
    if matches!(input, Input::Points { .. }) {
        let message = "`[validation]` resamples trajectories, and points without time have none; leave it out";
        return Err(document.error_at(&["validation"], message));
    }
    let fail = |key: &str, what: &str| {
        let message = format!("`validation.{key}` {what}");
        Err(document.error_at(&["validation", key], &message))
    };
    if keys.markov {
        let what = "is about sets of states, and is not available for rows with `coordinates`; leave it out";
        return fail("markov", what);
    }
    if !keys.group.is_empty() {
        let what = "is not available for rows with `coordinates`, whose trajectories are resampled; name the unit in `transitions.trajectory`";
        return fail("group", what);
    }
    if keys.folds > MAX_POINT_FOLDS {
        let what = format!(
            "must be {MAX_POINT_FOLDS} at most for rows with `coordinates`, not {}: the sums of every fold are in memory",
            keys.folds
        );
        return fail("folds", &what);
    }
    Ok(())
}

/// Checks the section `[densities]`.
pub(super) fn densities(keys: &Densities, input: &Input, document: &Document<'_>) -> Result<()> {
    let Input::PointPairs { coordinates, .. } = input else {
        let message = "`[densities]` needs pairs of points, which rows have with `transitions.coordinates`; leave it out";
        return Err(document.error_at(&["densities"], message));
    };
    not_blank(&keys.sql, &["densities", "sql"], document)?;
    for (key, columns) in [("from", &keys.from), ("to", &keys.to)] {
        if columns.len() != coordinates.len() {
            let message = format!(
                "`densities.{key}` names {}, but `transitions.coordinates` names {}; keep one per coordinate, in the same order",
                counted(columns.len(), "column"),
                counted(coordinates.len(), "column")
            );
            return Err(document.error_at(&["densities", key], &message));
        }
    }
    let all: Vec<&String> = keys.from.iter().chain(&keys.to).collect();
    let is_repeated = |(at, name): &(usize, &&String)| all[..*at].contains(*name);
    if let Some((_, name)) = all.iter().enumerate().find(is_repeated) {
        let message = format!(
            "`[densities]` names the column `{name}` twice; select it twice in the SQL, with two names"
        );
        return Err(document.error_at(&["densities", "to"], &message));
    }
    Ok(())
}
