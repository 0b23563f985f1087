//! Checks of the sections that describe rows: which columns have which roles.

use crate::error::Result;
use crate::evidence::lag::Lag;
use crate::methods::AnyMethod;
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::consistency::errors::{Errors, lacks, not_blank};
use crate::plan::pipeline::content::{COUNTS, Input, POINTS, PairMeasure, TimeKeys, Transitions};
use crate::plan::pipeline::document::{Content, Document, Node};
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{Duplicates, Empty, TransitionsText, Window};
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

/// The keys that all sections of rows have.
pub(super) struct Frame {
    pub(super) section: &'static str,
    pub(super) sql: Option<String>,
    pub(super) file: Option<String>,
    pub(super) parameters: BTreeMap<String, Argument>,
    pub(super) partition_by: Vec<String>,
    pub(super) connected: bool,
    pub(super) empty: Empty,
}

impl Frame {
    /// The section, with the meaning of a row.
    pub(super) fn with(
        self,
        input: Result<Input>,
        document: &Document<'_>,
        errors: &mut Errors<'_>,
    ) -> Option<Transitions> {
        let query = errors.note(query(self.section, self.sql, self.file, document));
        parameter_names(self.section, &self.parameters, document, errors);
        let input = errors.note(input)?;
        errors.note(distinct_columns(self.section, document));
        Some(Transitions {
            query: query?,
            parameters: self.parameters,
            partition_by: self.partition_by,
            connected: self.connected,
            empty: self.empty,
            input,
        })
    }
}

fn parameter_names(
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

fn query(
    section: &str,
    sql: Option<String>,
    file: Option<String>,
    document: &Document<'_>,
) -> Result<Query> {
    match (sql, file) {
        (Some(sql), None) => {
            not_blank(&sql, &[section, "sql"], document)?;
            Ok(Query::Sql(sql))
        }
        (None, Some(file)) => {
            not_blank(&file, &[section, "file"], document)?;
            Ok(Query::File(file))
        }
        (Some(_), Some(_)) => {
            let message = format!("use either `{section}.sql` or `{section}.file`, not both");
            Err(document.error_at(&[section, "file"], &message))
        }
        (None, None) => {
            let message = format!("the table `{section}` needs one of the keys `sql` and `file`");
            Err(document.error_at(&[section], &message))
        }
    }
}

/// The keys that say how the times of trajectories are read.
pub(super) struct TimeTexts {
    pub(super) time: Vec<String>,
    pub(super) duplicates: Duplicates,
    pub(super) max_gap: Option<Lag>,
    pub(super) tolerance: Option<Lag>,
    /// The time between rows that follow each other.
    pub(super) interval: Option<Lag>,
    /// What the tolerance is for: the key of these times, and its values.
    pub(super) fitted: (&'static str, Vec<Lag>),
}

impl TimeTexts {
    /// The column of the time, and the other keys.
    pub(super) fn checked(
        self,
        section: &str,
        document: &Document<'_>,
    ) -> Result<(String, TimeKeys)> {
        let wrong = |key: &str, what: String| document.wrong(&[section, key], what);
        let n = self.time.len();
        let mut columns = self.time.into_iter();
        let time = columns
            .next()
            .ok_or_else(|| lacks(section, "`time`", document))?;
        if n > 2 {
            return wrong(
                "time",
                format!(
                    "names {n} columns; name the time, and after it at most one column that orders the rows at one time"
                ),
            );
        }
        let order = columns.next();
        if order.is_none() && self.duplicates != Duplicates::Error {
            let what = "needs a second column of `time`, which orders the rows at one time: `time = [\"t\", \"n\"]`";
            return wrong("duplicates", what.into());
        }
        if let Some(gap) = &self.max_gap {
            if let Lag::Steps(_) = gap {
                let what = "is the time between two rows: a whole number or a duration, not steps";
                return wrong("max_gap", what.into());
            }
            let is_shorter = |interval: &&Lag| gap.is_shorter_than(interval);
            if let Some(interval) = self.interval.as_ref().filter(is_shorter) {
                return wrong(
                    "max_gap",
                    format!(
                        "is {gap}, which is less than `{section}.interval` = {interval}, so that each row would end its trajectory"
                    ),
                );
            }
        }
        if let Some(tolerance) = &self.tolerance {
            if let Lag::Steps(_) = tolerance {
                let what = "is a time: a whole number or a duration, not steps";
                return wrong("tolerance", what.into());
            }
            let (key, times) = &self.fitted;
            if times.iter().all(|time| matches!(time, Lag::Steps(_))) {
                let what =
                    format!("is for times, and there is no `{section}.{key}` that is a time");
                return wrong("tolerance", what);
            }
            if let Some(time) = times.iter().find(|time| tolerance.is_half_or_more_of(time)) {
                let what = format!(
                    "is {tolerance}, which is half of `{section}.{key}` = {time} or more, so that a row could be near to its own time; write less"
                );
                return wrong("tolerance", what);
            }
        }
        let keys = TimeKeys {
            tolerance: self.tolerance,
            order,
            duplicates: self.duplicates,
            max_gap: self.max_gap,
        };
        Ok((time, keys))
    }
}

/// The keys of the time of trajectories, which need `lag` too.
pub(super) fn time_and_lag(
    text: &mut TransitionsText,
    document: &Document<'_>,
) -> Result<(String, TimeKeys)> {
    let texts = TimeTexts {
        time: std::mem::take(&mut text.time),
        duplicates: text.duplicates,
        max_gap: text.max_gap.take(),
        tolerance: text.tolerance.take(),
        interval: text.interval.clone(),
        fitted: ("lag", text.lag.clone()),
    };
    let name = match text.window {
        Some(Window::Strided) => "strided",
        Some(Window::Effective) => "effective",
        Some(Window::Sliding) | None => "",
    };
    if texts.tolerance.is_some() && !name.is_empty() {
        let what = format!(
            "cannot be used with `window = \"{name}\"`, which wants rows at exact multiples of a time; leave one of them out"
        );
        return document.wrong(&["transitions", "tolerance"], what);
    }
    let keys = texts.checked("transitions", document)?;
    if text.lag.is_empty() {
        return Err(lacks("transitions", "`lag`", document));
    }
    Ok(keys)
}

pub(super) fn trajectories(mut text: TransitionsText, document: &Document<'_>) -> Result<Input> {
    let (time, times) = time_and_lag(&mut text, document)?;
    if text.state.is_empty() && text.bins.0.is_empty() {
        let keys = "`state`, `bins` or `coordinates`";
        return Err(lacks("transitions", keys, document));
    }
    if text.scale.0 != Scale::None {
        return document.wrong(&["transitions", "scale"], "is for `coordinates` alone");
    }
    lags(&text.lag, document)?;
    let bins = bins("transitions", text.bins, document)?;
    let window = text.window.unwrap_or_default();
    interval(window, &text.lag, text.interval.as_ref(), document)?;
    Ok(Input::Trajectories {
        trajectory: text.trajectory,
        time,
        times,
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

/// Checks that `window = "effective"` knows every lag in steps: as a number of rows, or as a whole
/// multiple of the time between rows.
pub(super) fn interval(
    window: Window,
    lags: &[Lag],
    interval: Option<&Lag>,
    document: &Document<'_>,
) -> Result<()> {
    let wrong = |what: &str| document.wrong(&["transitions", "interval"], what);
    if window != Window::Effective {
        let what = "is for `window = \"effective\"` alone";
        return interval.map_or(Ok(()), |_| wrong(what));
    }
    if let Some(Lag::Steps(_)) = interval {
        return wrong("is the time between two rows: a whole number or a duration, not steps");
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
        return Err(document.error_at(&["transitions", "window"], &message));
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
    for (key, columns) in [("`source`", &text.source), ("`target`", &text.target)] {
        if columns.is_empty() {
            return Err(lacks("transitions", key, document));
        }
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
                "use either `transitions.count` or `transitions.weight`, not both",
            ));
        }
    };
    Ok(Input::Pairs {
        source: text.source,
        target: text.target,
        measure,
    })
}

/// The keys of sections whose values are columns.
const ROLES: &str = "partition_by trajectory time id state symbol bins coordinates observation source target count weight split";

/// The columns that a section names, each with its key.
fn roles<'a>(section: &str, document: &'a Document<'_>) -> Vec<(&'static str, &'a str)> {
    let mut roles = Vec::new();
    for key in ROLES.split(' ') {
        let Some(node) = document.root.get(section).and_then(|node| node.get(key)) else {
            continue;
        };
        let columns: Vec<&str> = match &node.content {
            Content::Table(entries) => entries.iter().map(|entry| entry.key.as_str()).collect(),
            Content::Array(items) => items.iter().filter_map(Node::as_str).collect(),
            _ => node.as_str().into_iter().collect(),
        };
        roles.extend(columns.into_iter().map(|column| (key, column)));
    }
    roles
}

/// Checks that no column has two roles. Source and target may share a column that never changes.
fn distinct_columns(section: &str, document: &Document<'_>) -> Result<()> {
    let roles = roles(section, document);
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
    let input = &transitions.input;
    let section = input.section();
    let is_points = input.kind() == POINTS;
    let has_lags = is_points || input.kind() == COUNTS;
    for (key, column) in roles(section, document) {
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
