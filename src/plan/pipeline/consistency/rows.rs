//! Checks of `[transitions]` and `[points]`: which columns have which roles.

use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::methods::AnyMethod;
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::consistency::errors::{Errors, not_blank};
use crate::plan::pipeline::content::{Input, PairMeasure, RowKey, Transitions};
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{Empty, PointsText, TransitionsText, Window};
use crate::plan::pipeline::shape::InOrder;
use crate::read::lake::files::Query;
use crate::read::rows::bins::{BinText, Binning};
use crate::read::rows::coordinates::Scale;
use std::collections::BTreeMap;

/// Columns that gyre writes beside the state columns.
pub(super) const OUTPUT_COLUMNS: [&str; 6] = [
    "lag",
    "lag_seconds",
    "count",
    "probability",
    "fit",
    "latent",
];

/// Ends of the columns of a fit, which begin with its name.
const OF_FITS: [&str; 3] = ["_affiliation", "_embedding", "_membership"];

/// Whether a table of results can have a column of this name of its own, whatever the fits.
pub fn is_output_column(name: &str) -> bool {
    OUTPUT_COLUMNS.contains(&name) || OF_FITS.iter().any(|of| name.ends_with(of))
}

pub(super) fn transitions(
    text: TransitionsText,
    document: &Document<'_>,
    errors: &mut Errors<'_>,
) -> Option<Transitions> {
    let query = errors.note(query(
        "transitions",
        text.sql.as_ref(),
        text.file.as_ref(),
        document,
    ));
    parameter_names("transitions", &text.parameters, document, errors);
    let (parameters, partition_by) = (text.parameters.clone(), text.partition_by.clone());
    let (connected, empty) = (text.connected, text.empty);
    let input = errors.note(input(text, document))?;
    errors.note(distinct_columns(&partition_by, &input, document));
    Some(Transitions {
        query: query?,
        parameters,
        partition_by,
        connected,
        empty,
        input,
    })
}

pub(super) fn parameter_names(
    section: &str,
    parameters: &BTreeMap<String, Argument>,
    document: &Document<'_>,
    errors: &mut Errors<'_>,
) {
    for name in parameters.keys() {
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
            let message = format!(
                "the parameter `{name}` cannot be named as `${name}` in SQL; use letters, digits and `_`"
            );
            errors.add(document.error_at(&[section, "parameters", name], &message));
        }
    }
}

/// The section `[points]`.
pub(super) fn points(
    text: PointsText,
    document: &Document<'_>,
    errors: &mut Errors<'_>,
) -> Option<Transitions> {
    let query = errors.note(query(
        "points",
        text.sql.as_ref(),
        text.file.as_ref(),
        document,
    ));
    parameter_names("points", &text.parameters, document, errors);
    let scale = errors.note(scale("points", text.scale.0, &text.coordinates, document))?;
    let input = Input::Points {
        id: text.id,
        coordinates: text.coordinates,
        scale,
        weight: text.weight,
    };
    errors.note(distinct_columns(&text.partition_by, &input, document));
    Some(Transitions {
        query: query?,
        parameters: text.parameters,
        partition_by: text.partition_by,
        connected: false,
        empty: Empty::default(),
        input,
    })
}

/// Checks that the numbers of `scale` are positive and belong to coordinates.
pub(super) fn scale(
    section: &str,
    scale: Scale,
    coordinates: &[String],
    document: &Document<'_>,
) -> Result<Scale> {
    let Scale::By(divisors) = &scale else {
        return Ok(scale);
    };
    for (column, divisor) in divisors {
        let fault = if !coordinates.contains(column) {
            "is no column of `coordinates`".to_string()
        } else if *divisor > 0.0 && divisor.is_finite() {
            continue;
        } else {
            format!("must be positive and finite, not {divisor}")
        };
        let message = format!("`{section}.scale.{column}` {fault}");
        return Err(document.error_at(&[section, "scale", column], &message));
    }
    Ok(scale)
}

pub(super) fn query(
    section: &str,
    sql: Option<&String>,
    file: Option<&String>,
    document: &Document<'_>,
) -> Result<Query> {
    match (sql, file) {
        (Some(sql), None) => {
            not_blank(sql, &[section, "sql"], document)?;
            Ok(Query::Sql(sql.clone()))
        }
        (None, Some(file)) => {
            not_blank(file, &[section, "file"], document)?;
            Ok(Query::File(file.clone()))
        }
        (Some(_), Some(_)) => Err(document.error_at(
            &[section, "file"],
            &format!("`{section}.sql` and `{section}.file` exclude each other"),
        )),
        (None, None) => Err(document.error_at(
            &[section],
            &format!("the table `{section}` needs one of the keys `sql` and `file`"),
        )),
    }
}

/// Decides between trajectories and pairs by the keys of the table.
pub(super) fn input(text: TransitionsText, document: &Document<'_>) -> Result<Input> {
    let written = |keys: &[&'static str]| -> Vec<&'static str> {
        let table = document.root.get("transitions");
        keys.iter()
            .copied()
            .filter(|key| table.is_some_and(|t| t.get(key).is_some()))
            .collect()
    };
    let of_trajectories = written(&[
        "trajectory",
        "time",
        "state",
        "bins",
        "coordinates",
        "scale",
        "lag",
        "window",
        "interval",
    ]);
    let of_pairs = written(&["source", "target", "count"]);
    match (of_trajectories.is_empty(), of_pairs.is_empty()) {
        (false, true) => trajectories(text, document),
        (true, false) => pairs(text, document),
        (true, true) => Err(document.error_at(
            &["transitions"],
            "the table `transitions` needs either `time`, `lag` and one of `state`, `bins` and `coordinates` (trajectories), or `source` and `target` (pairs)",
        )),
        (false, false) => {
            let list = |keys: &[&str]| format!("`{}`", keys.join("`, `"));
            let message = format!(
                "`[transitions]` mixes keys of trajectories ({}) and of pairs ({}); keep one kind",
                list(&of_trajectories),
                list(&of_pairs)
            );
            Err(document.error_at(&["transitions", of_pairs[0]], &message))
        }
    }
}

pub(super) fn needs(key: &str, document: &Document<'_>) -> Error {
    document.error_at(
        &["transitions"],
        &format!("the table `transitions` needs the key {key}"),
    )
}

pub(super) fn trajectories(mut text: TransitionsText, document: &Document<'_>) -> Result<Input> {
    let time = text.time.take().ok_or_else(|| needs("`time`", document))?;
    if text.lag.is_empty() {
        return Err(needs("`lag`", document));
    }
    if !text.coordinates.is_empty() {
        return point_pairs(text, time, document);
    }
    if text.state.is_empty() && text.bins.0.is_empty() {
        return Err(needs("`state`, `bins` or `coordinates`", document));
    }
    if text.scale.0 != Scale::None {
        let message = "`transitions.scale` is for `coordinates` alone";
        return Err(document.error_at(&["transitions", "scale"], message));
    }
    lags(&text.lag, document)?;
    let bins = bins("transitions", text.bins, document)?;
    let window = text.window.unwrap_or_default();
    interval(window, &text.lag, text.interval.as_ref(), document)?;
    Ok(Input::Trajectories {
        trajectory: text.trajectory,
        time,
        state: text.state,
        bins,
        weight: text.weight,
        lags: text.lag,
        window,
        interval: text.interval,
    })
}

/// The boxes of the coordinates under `bins` of a section.
pub(super) fn bins(
    section: &str,
    texts: InOrder<BinText>,
    document: &Document<'_>,
) -> Result<Vec<(String, Binning)>> {
    let bins = texts.0.into_iter().map(|(column, bin)| {
        let binning = Binning::new(&bin).map_err(|(key, message)| {
            let mut path = vec![section, "bins", &column];
            if !key.is_empty() {
                path.push(key);
            }
            document.error_at(&path, &format!("`{}` {message}", path.join(".")))
        })?;
        Ok((column, binning))
    });
    bins.collect()
}

/// Rows of trajectories with coordinates.
pub(super) fn point_pairs(
    text: TransitionsText,
    time: String,
    document: &Document<'_>,
) -> Result<Input> {
    let fail = |key: &str, message: &str| Err(document.error_at(&["transitions", key], message));
    if !text.state.is_empty() || !text.bins.0.is_empty() {
        let key = if text.state.is_empty() {
            "bins"
        } else {
            "state"
        };
        return fail(
            key,
            "`transitions.coordinates` is in place of `state` and `bins`; keep one of them",
        );
    }
    if text.connected {
        return fail(
            "connected",
            "`transitions.connected` is about states, and points have none",
        );
    }
    lags(&text.lag, document)?;
    let window = text.window.unwrap_or_default();
    if window == Window::Effective {
        return fail(
            "window",
            "`window = \"effective\"` divides counts, and points are not counted; use \"sliding\" or \"strided\"",
        );
    }
    interval(window, &text.lag, text.interval.as_ref(), document)?;
    let scale = scale("transitions", text.scale.0, &text.coordinates, document)?;
    Ok(Input::PointPairs {
        trajectory: text.trajectory,
        time,
        coordinates: text.coordinates,
        scale,
        weight: text.weight,
        lags: text.lag,
        window,
    })
}

/// Checks that `window = "effective"` knows every lag in steps: as a number of rows, or as a whole
/// multiple of the time between rows.
pub(super) fn interval(
    window: Window,
    lags: &[Lag],
    interval: Option<&Lag>,
    document: &Document<'_>,
) -> Result<()> {
    let fail = |key: &str, message: String| Err(document.error_at(&["transitions", key], &message));
    if window != Window::Effective {
        let message = "`transitions.interval` is for `window = \"effective\"` alone";
        return interval.map_or(Ok(()), |_| fail("interval", message.into()));
    }
    if let Some(Lag::Steps(_)) = interval {
        let message = "`transitions.interval` is the time between two rows: a whole number or a duration, not steps";
        return fail("interval", message.into());
    }
    for lag in lags {
        let message = match (lag, interval) {
            (Lag::Steps(_), _) => continue,
            (_, None) => format!(
                "`window = \"effective\"` divides by the lag in steps, and {lag} is a time; say how far apart rows are with `transitions.interval`, or give the lag in steps"
            ),
            (lag, Some(interval)) if lag.in_steps_of(interval).is_none() => format!(
                "`window = \"effective\"` divides by the lag in steps, and {lag} is no whole multiple of `transitions.interval` = {interval}"
            ),
            _ => continue,
        };
        return fail("window", message);
    }
    Ok(())
}

pub(super) fn lags(lags: &[Lag], document: &Document<'_>) -> Result<()> {
    let fail = |n: usize, message: String| {
        Err(document.error_at(&["transitions", "lag", &n.to_string()], &message))
    };
    for (n, lag) in lags.iter().enumerate() {
        if lags[..n].contains(lag) {
            return fail(
                n,
                format!("`transitions.lag` has the same lag twice: {lag}"),
            );
        }
        let clashes = |l: &&Lag| {
            matches!(
                (*l, lag),
                (Lag::Ticks(_), Lag::Duration { .. }) | (Lag::Duration { .. }, Lag::Ticks(_))
            )
        };
        if let Some(earlier) = lags[..n].iter().find(clashes) {
            let message = format!(
                "`transitions.lag` has a whole number and a duration ({earlier} and {lag}), but time is either an integer or a date"
            );
            return fail(n, message);
        }
    }
    Ok(())
}

pub(super) fn pairs(text: TransitionsText, document: &Document<'_>) -> Result<Input> {
    if text.source.is_empty() {
        return Err(needs("`source`", document));
    }
    if text.target.is_empty() {
        return Err(needs("`target`", document));
    }
    if text.source == text.target {
        return Err(document.error_at(
            &["transitions", "target"],
            "`transitions.source` and `transitions.target` are the same columns, so that no state would ever change",
        ));
    }
    let measure = match (text.count, text.weight) {
        (None, None) => PairMeasure::Ones,
        (Some(column), None) => PairMeasure::Count(column),
        (None, Some(column)) => PairMeasure::Weight(column),
        (Some(_), Some(_)) => {
            return Err(document.error_at(
                &["transitions", "weight"],
                "`transitions.count` and `transitions.weight` exclude each other",
            ));
        }
    };
    Ok(Input::Pairs {
        source: text.source,
        target: text.target,
        measure,
    })
}

/// The columns with the keys that name them.
pub(super) fn roles<'a>(
    partition_by: &'a [String],
    input: &'a Input,
) -> Vec<(&'static str, &'a str)> {
    fn list<'a>(key: &'static str, columns: &'a [String]) -> Vec<(&'static str, &'a str)> {
        columns.iter().map(|c| (key, c.as_str())).collect()
    }
    let mut roles = list("partition_by", partition_by);
    match input {
        Input::Trajectories {
            trajectory,
            time,
            state,
            bins,
            weight,
            ..
        } => {
            roles.extend(list("trajectory", trajectory));
            roles.push(("time", time));
            roles.extend(list("state", state));
            roles.extend(bins.iter().map(|(c, _)| ("bins", c.as_str())));
            roles.extend(weight.iter().map(|c| ("weight", c.as_str())));
        }
        Input::PointPairs {
            trajectory,
            time,
            coordinates,
            weight,
            ..
        } => {
            roles.extend(list("trajectory", trajectory));
            roles.push(("time", time));
            roles.extend(list("coordinates", coordinates));
            roles.extend(weight.iter().map(|c| ("weight", c.as_str())));
        }
        Input::Points {
            id,
            coordinates,
            weight,
            ..
        } => {
            roles.extend(list("id", id));
            roles.extend(list("coordinates", coordinates));
            roles.extend(weight.iter().map(|c| ("weight", c.as_str())));
        }
        Input::Sequences {
            trajectory,
            time,
            symbol,
            bins,
            weight,
            split,
            ..
        } => {
            roles.extend(list("trajectory", trajectory));
            roles.push(("time", time));
            roles.extend(list("symbol", symbol));
            roles.extend(bins.iter().map(|(c, _)| ("bins", c.as_str())));
            roles.extend(weight.iter().map(|c| ("weight", c.as_str())));
            roles.extend(split.iter().map(|c| ("split", c.as_str())));
        }
        Input::StateSpace {
            key,
            state,
            observation,
            split,
        } => {
            match key {
                RowKey::Trajectories {
                    trajectory, time, ..
                } => {
                    roles.extend(list("trajectory", trajectory));
                    roles.push(("time", time));
                }
                RowKey::Rows { id } => roles.extend(list("id", id)),
            }
            roles.extend(list("state", state));
            roles.extend(list("observation", observation));
            roles.extend(split.iter().map(|c| ("split", c.as_str())));
        }
        Input::Pairs {
            source,
            target,
            measure,
        } => {
            roles.extend(list("source", source));
            roles.extend(list("target", target));
            match measure {
                PairMeasure::Ones => {}
                PairMeasure::Count(column) => roles.push(("count", column)),
                PairMeasure::Weight(column) => roles.push(("weight", column)),
            }
        }
    }
    roles
}

/// Checks that no column has two roles. Source and target may share a column that never changes.
pub(super) fn distinct_columns(
    partition_by: &[String],
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let (roles, section) = (roles(partition_by, input), input.section());
    for (n, (key, column)) in roles.iter().enumerate() {
        not_blank(column, &[section, key], document)?;
        let clash = roles[..n]
            .iter()
            .find(|(other, c)| c == column && (*other, *key) != ("source", "target"));
        if let Some((other, _)) = clash {
            let message = if other == key {
                format!("`{section}.{key}` names the column `{column}` twice")
            } else {
                format!(
                    "the column `{column}` cannot be both `{section}.{other}` and `{section}.{key}`"
                )
            };
            return Err(document.error_at(&[section, key], &message));
        }
    }
    Ok(())
}

/// Checks that no partition or state column has the name of a column that gyre writes beside it.
/// The plan compares the columns of every table. This is for names that are read back from tables.
pub(super) fn key_columns(
    transitions: &Transitions,
    fits: &[FitEntry<AnyMethod>],
    document: &Document<'_>,
) -> Result<()> {
    let section = transitions.input.section();
    let is_points = transitions.input.is_points();
    let has_lags = !transitions.input.is_sequences() && !transitions.input.is_state_space();
    for (key, column) in roles(&transitions.partition_by, &transitions.input) {
        // A last partition column of this name would be read back as the lag.
        if !has_lags && (key, column) != ("partition_by", "lag") {
            continue;
        }
        let is_written = match key {
            "partition_by" | "state" | "bins" | "source" | "target" => true,
            "trajectory" | "time" | "id" => is_points,
            _ => false,
        };
        if !is_written {
            continue;
        }
        let of_fit = fits.iter().flat_map(FitEntry::expanded).any(|(_, fit)| {
            let of = column.strip_prefix(fit.as_str());
            of.is_some_and(|of| OF_FITS.contains(&of))
        });
        if OUTPUT_COLUMNS.contains(&column) || of_fit {
            let message = format!(
                "the output tables have a column `{column}` of their own; rename the column of `{section}.{key}` with AS in the SQL"
            );
            return Err(document.error_at(&[section, key], &message));
        }
    }
    Ok(())
}
