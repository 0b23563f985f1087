//! A run record → the summary that `gyre run` prints.

use crate::error::{counted, escaped};
use crate::output::number::grouped;
use crate::plan::checks::percent;
use crate::run::kind::{EvidenceKind, Facts};
use crate::run::record::{CheckRecord, Head, ModelEntry, Resumed};
use crate::run::run_record::RunRecord;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter, Result};

/// The largest number of models in a summary. It refers to the record for the others.
pub(crate) const SHOWN: usize = 12;

/// Writes the lines of what makes a fit doubtful.
pub(crate) fn warnings(f: &mut Formatter<'_>, warnings: &[String]) -> Result {
    let mut warnings = warnings.iter();
    warnings.try_for_each(|warning| writeln!(f, "    warning: {}", escaped(warning)))
}

/// The summary of a run.
pub(crate) struct Summary<'a, K: EvidenceKind> {
    pub record: &'a RunRecord<K>,
    /// The location of its tables.
    pub output: &'a str,
}

impl<K: EvidenceKind> Display for Summary<'_, K> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Summary { record, output } = self;
        let (head, models) = (&record.head, &record.models);
        let rows = counted(grouped(head.rows_read as f64), "row");
        let evidence = record.facts.evidence();
        writeln!(f, "{}: {evidence} in {rows}", head.pipeline)?;
        dropped(f, head)?;
        if let Some(increment) = &record.increment {
            writeln!(f, "  {}", increment.what)?;
        }
        for warning in &record.warnings {
            writeln!(f, "  warning: {}", escaped(warning))?;
        }
        let at = format!("{output}/runs/{}.json", head.id);
        entries(f, models, "more models", &at)?;
        if !record.gone.is_empty() {
            writeln!(
                f,
                "\nin the earlier result and not in this one: {}",
                first(record.gone.iter().map(String::as_str))
            )?;
        }
        if !record.empty.is_empty() {
            let n = counted(record.empty.len(), "model");
            writeln!(
                f,
                "\n{n} without a {} left out: {}",
                K::Facts::UNIT,
                first(record.empty.iter().map(|empty| empty.partition.as_str()))
            )?;
        }
        if let Some(resumed) = &record.resumed {
            writeln!(f, "\ntaken from a run that did not end: {resumed}")?;
        }
        checks(f, &record.checks)?;
        let stages = [K::READ, "fit", "rows", "write", "check"];
        end(f, head, models.len(), &stages, output)
    }
}

impl Display for Resumed {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let mut parts = Vec::new();
        if self.counted {
            parts.push("the counts".to_string());
        }
        if let Some(own) = &self.fits {
            parts.push(format!("{} of {}", own.fits, counted(own.of, "fit")));
        }
        let pieces = counted(self.pieces, "piece");
        if parts.is_empty() {
            return write!(f, "{pieces} of work");
        }
        write!(f, "{}; {pieces} of work in all", parts.join(", "))
    }
}

/// Writes the first models. `more` names the others, which are in the record at `at`.
pub(crate) fn entries<M: Display>(
    f: &mut Formatter<'_>,
    models: &[ModelEntry<M>],
    more: &str,
    at: &str,
) -> Result {
    for entry in models.iter().take(SHOWN) {
        let place = place(&entry.partition, entry.lag.as_deref());
        write!(f, "\n{place}{}", entry.model)?;
    }
    if models.len() > SHOWN {
        writeln!(f, "\n… and {} {more}, see {at}", models.len() - SHOWN)?;
    }
    Ok(())
}

/// The first items of a list, and how many more there are.
fn first<'a>(items: impl ExactSizeIterator<Item = &'a str>) -> String {
    let n = items.len();
    let mut shown: Vec<String> = items.take(SHOWN).map(String::from).collect();
    if n > SHOWN {
        shown.push(format!("and {} more", n - SHOWN));
    }
    shown.join("; ")
}

/// The partition and the lag of a model, at the start of its lines.
fn place(partition: &BTreeMap<String, String>, lag: Option<&str>) -> String {
    let parts = partition.iter();
    let parts = parts.map(|(name, value)| escaped(&format!("{name} {value}")));
    let mut parts: Vec<String> = parts.collect();
    parts.extend(lag.map(|lag| format!("lag {lag}")));
    if parts.is_empty() {
        return String::new();
    }
    parts.join(", ") + ": "
}

/// Writes the rows that were dropped, by reason, what the keys of time changed, and the values that
/// became null.
pub(crate) fn dropped(f: &mut Formatter<'_>, head: &Head) -> Result {
    for (reason, rows) in &head.rows_dropped {
        writeln!(f, "  {} dropped: {reason}", grouped(*rows as f64))?;
    }
    let changes = [
        (head.time.gaps, "gap", "longer than `max_gap`"),
        (
            head.time.near_pairs,
            "transition",
            "to a row near the time of the lag",
        ),
    ];
    for (n, what, which) in changes {
        if let Some(n) = n.filter(|n| *n > 0) {
            writeln!(f, "  {} {which}", counted(grouped(n as f64), what))?;
        }
    }
    for (table, columns) in &head.values_nulled {
        for (column, values) in columns.iter().filter(|(_, values)| **values > 0) {
            let (values, of) = (*values as f64, escaped(&format!("{table}.{column}")));
            writeln!(
                f,
                "  {} of {of} became null",
                counted(grouped(values), "value")
            )?;
        }
    }
    Ok(())
}

/// Writes the last lines: failed models, the time of each stage and the tables. `models` is the
/// number of models that did not fail.
pub(crate) fn end(
    f: &mut Formatter<'_>,
    head: &Head,
    models: usize,
    stages: &[&str],
    output: &str,
) -> Result {
    let n = head.failures.len();
    if n > 0 {
        // The log has the errors.
        let failed = head.failures.iter().map(|one| one.partition.as_str());
        let all = counted(n + models, "model");
        write!(f, "\n{n} of {all} failed: {}", first(failed))?;
        writeln!(f, "; see {output}/runs/{}.json", head.id)?;
    }
    let stages = stages.iter().filter_map(|stage| {
        let seconds = head.seconds.get(stage)?;
        Some(format!("{stage} {seconds:.2}"))
    });
    write!(f, "\nseconds: {}", stages.collect::<Vec<_>>().join(", "))?;
    if let Some(bytes) = head.peak_memory_bytes {
        write!(f, "; peak memory {} MB", bytes / 1_000_000)?;
    }
    let tables: Vec<&str> = head.tables.keys().copied().collect();
    write!(f, "\nwritten: {output} ({})", tables.join(", "))
}

/// Writes how many checks passed, and which ones warned.
pub(crate) fn checks(f: &mut Formatter<'_>, checks: &[CheckRecord]) -> Result {
    if checks.is_empty() {
        return Ok(());
    }
    let passed = checks.iter().filter(|check| check.passed).count();
    write!(f, "\nchecks: {passed} passed")?;
    if passed < checks.len() {
        write!(f, ", {} warned", checks.len() - passed)?;
    }
    // The log has their messages.
    let warned = checks.iter().filter(|check| !check.passed);
    let warned: Vec<&str> = warned.map(|check| check.name.as_str()).collect();
    if warned.is_empty() {
        writeln!(f)
    } else {
        writeln!(f, ": {}", warned.join(", "))
    }
}

/// The message of a failed check: one line, then one line per row that is shown.
pub(crate) fn check_message(check: &CheckRecord) -> String {
    let (value, limit) = (check.value.unwrap_or(f64::NAN), check.limit);
    let n = grouped(value);
    let what = match check.kind {
        "min_rows" if value == 1.0 => format!("1 row was read, fewer than {}", grouped(limit)),
        "min_rows" => format!("{n} rows were read, fewer than {}", grouped(limit)),
        "max_dropped" => format!(
            "{} of the rows were dropped, more than {}",
            percent(value),
            percent(limit)
        ),
        "partitions" if value == 1.0 => "an expected model is missing".to_string(),
        "partitions" => format!("{n} expected models are missing"),
        "max_drift" => format!(
            "the number of transitions differs by {} from the result in place, more than {}",
            percent(value),
            percent(limit)
        ),
        _ if value == 1.0 => "1 row where there should be none".to_string(),
        _ => format!("{n} rows where there should be none"),
    };
    let mut text = format!("{}: {what}", check.name);
    for row in &check.rows {
        text += &format!("\n  {}", escaped(row));
    }
    if !check.rows.is_empty() && value > check.rows.len() as f64 {
        text += &format!(
            "\n  … and {} more",
            grouped(value - check.rows.len() as f64)
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        let shown = [0.0, 999.0, 1000.0, 1234567.0, 1234.5, 1e155, 2e-160].map(grouped);
        let expected = "0 999 1,000 1,234,567 1,234.50 1.0000e155 2.0000e-160";
        assert_eq!(shown.join(" "), expected);
    }
}
