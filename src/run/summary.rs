//! A run record → the summary that `gyre run` prints.

use crate::assess::match_sets::Event;
use crate::assess::set_tracking::{Reference, Set, TrackedSets};
use crate::error::{counted, escaped};
use crate::output::number::grouped;
use crate::plan::checks::percent;
use crate::run::record::{BootstrapRecord, CheckRecord, FitRecord, Head, ModelRecord, RunRecord};
use std::fmt::{Display, Formatter, Result};

/// The largest number of models in a summary. It refers to the `fits` table for the others.
pub(crate) const SHOWN: usize = 12;

/// The summary of a run.
pub struct Summary<'a> {
    /// The record of the run.
    pub record: &'a RunRecord,
    /// The location of its tables.
    pub output: &'a str,
}

impl Display for Summary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> Result {
        let Summary { record, output } = self;
        let models = &record.models;
        begin(f, &record.head, record.transitions, "")?;
        if let Some(increment) = &record.increment {
            writeln!(f, "  {}", increment.what)?;
        }
        for model in models.iter().take(SHOWN) {
            writeln!(f)?;
            crate::run::summary::model(f, model)?;
        }
        if models.len() > SHOWN {
            let more = models.len() - SHOWN;
            writeln!(f, "\n… and {more} more models, see {output}/fits")?;
        }
        if !record.gone.is_empty() {
            let shown = &record.gone[..record.gone.len().min(SHOWN)];
            write!(
                f,
                "\nin the earlier result and not in this one: {}",
                shown.join("; ")
            )?;
            if record.gone.len() > SHOWN {
                write!(f, "; and {} more", record.gone.len() - SHOWN)?;
            }
            writeln!(f)?;
        }
        if !record.empty.is_empty() {
            let (n, shown) = (record.empty.len(), record.empty.iter().take(SHOWN));
            let places: Vec<&str> = shown.map(|empty| empty.partition.as_str()).collect();
            let noun = if n == 1 { "model" } else { "models" };
            write!(
                f,
                "\n{n} {noun} without a transition left out: {}",
                places.join("; ")
            )?;
            if n > SHOWN {
                write!(f, "; and {} more", n - SHOWN)?;
            }
            writeln!(f)?;
        }
        if let Some(resumed) = &record.resumed {
            let counts = if resumed.counted { "the counts, " } else { "" };
            writeln!(
                f,
                "\ntaken from a run that did not end: {counts}{} of {}; {} of work in all",
                resumed.fits,
                counted(resumed.of, "fit"),
                counted(resumed.pieces, "piece")
            )?;
        }
        checks(f, &record.checks)?;
        let stages = ["count", "fit", "write", "rows", "check"];
        end(f, &record.head, models.len(), &stages, output)
    }
}

/// Writes the first lines: the rows that were read and dropped. `suffix` ends the first line.
pub(crate) fn begin(f: &mut Formatter<'_>, head: &Head, transitions: f64, suffix: &str) -> Result {
    let name = &head.pipeline;
    let rows = counted(grouped(head.rows_read as f64), "row");
    let transitions = counted(grouped(transitions), "transition");
    writeln!(f, "{name}: {transitions} in {rows}{suffix}")?;
    for (reason, rows) in &head.rows_dropped {
        writeln!(f, "  {} dropped: {reason}", grouped(*rows as f64))?;
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
        let failed = head
            .failures
            .iter()
            .map(|failure| failure.partition.as_str());
        let failed: Vec<&str> = failed.take(SHOWN).collect();
        write!(
            f,
            "\n{n} of {} failed: {}",
            counted(n + models, "model"),
            failed.join("; ")
        )?;
        if n > SHOWN {
            write!(f, "; and {} more", n - SHOWN)?;
        }
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

/// Writes the lines of one model.
fn model(f: &mut Formatter<'_>, model: &ModelRecord) -> Result {
    let mut parts: Vec<String> = model
        .partition
        .iter()
        .map(|(name, value)| escaped(&format!("{name} {value}")))
        .collect();
    parts.extend(model.lag.iter().map(|lag| format!("lag {lag}")));
    if !parts.is_empty() {
        write!(f, "{}: ", parts.join(", "))?;
    }
    let (n, m, nnz) = (
        model.sources as f64,
        model.targets as f64,
        model.nonzeros as f64,
    );
    writeln!(
        f,
        "{}, {}, {}, {}",
        counted(grouped(model.transitions), "transition"),
        counted(grouped(n), "source"),
        counted(grouped(m), "target"),
        counted(grouped(nnz), "non-zero")
    )?;
    if let Some(dropped) = &model.dropped
        && dropped.states > 0
    {
        writeln!(
            f,
            "  dropped: {} with {}, beside the largest of {}",
            counted(grouped(dropped.states as f64), "state"),
            counted(grouped(dropped.transitions), "transition"),
            counted(grouped(dropped.components as f64), "strongly connected set")
        )?;
    }
    if !model.fits.is_empty() {
        table(f, model)?;
    }
    for own in &model.embeddings {
        write!(f, "  {}  ", own.name)?;
        if !own.eigenvalues.is_empty() {
            let values: Vec<String> = own.eigenvalues.iter().map(|x| format!("{x:.4}")).collect();
            write!(f, "eigenvalues {}, ", values.join(" "))?;
        }
        let products = counted(grouped(own.products as f64), "product");
        writeln!(f, "{products}, {:.2} seconds", own.seconds)?;
        for warning in &own.warnings {
            writeln!(f, "    warning: {}", escaped(warning))?;
        }
    }
    notes(f, model)
}

/// Writes one line per fit, in columns.
fn table(f: &mut Formatter<'_>, model: &ModelRecord) -> Result {
    let header = [
        "fit",
        "log-likelihood",
        "of reference",
        "coherence",
        "objective",
        "singular values",
        "set sizes",
        "seconds",
    ];
    let mut table = vec![header.map(str::to_string)];
    table.extend(model.fits.iter().map(|fit| row(model, fit)));
    let width: Vec<usize> = (0..header.len())
        .map(|c| {
            table
                .iter()
                .map(|r| r[c].chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    for row in table {
        // Names and lists are aligned left, numbers right.
        let cells = row.iter().zip(&width).enumerate().map(|(c, (cell, &w))| {
            if [0, 5, 6].contains(&c) {
                format!("{cell:<w$}")
            } else {
                format!("{cell:>w$}")
            }
        });
        writeln!(f, "  {}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// Writes the lines below the fits of a model.
fn notes(f: &mut Formatter<'_>, model: &ModelRecord) -> Result {
    for fit in &model.fits {
        if let Some(bootstrap) = &fit.bootstrap {
            crate::run::summary::bootstrap(f, fit, bootstrap)?;
        }
    }
    for (fit, choice) in model
        .fits
        .iter()
        .filter_map(|fit| Some((fit, fit.choice.as_ref()?)))
    {
        let ranks: Vec<_> = choice.ranks.iter().map(usize::to_string).collect();
        writeln!(
            f,
            "  {}: rank {} of {} by {}: {}",
            fit.name,
            fit.rank,
            ranks.join(", "),
            choice.rule,
            choice.reason
        )?;
    }
    let unconverged: Vec<&str> = model
        .fits
        .iter()
        .filter(|fit| !fit.converged)
        .map(|fit| fit.name.as_str())
        .collect();
    if !unconverged.is_empty() {
        writeln!(f, "  not converged: {}", unconverged.join(", "))?;
    }
    for fit in &model.fits {
        markov(f, fit)?;
    }
    let empty = model.fits.iter().filter(|fit| fit.empty_states > 0);
    for fit in empty {
        writeln!(
            f,
            "  {}: {} of {} latent states are empty",
            fit.name, fit.empty_states, fit.rank
        )?;
    }
    let compared = model.fits.iter().filter_map(|fit| {
        let lineage = fit.lineage.as_ref()?;
        Some((&fit.name, lineage, lineage.compared_with.as_ref()?))
    });
    let (earlier, related): (Vec<_>, Vec<_>) =
        compared.partition(|(.., with)| **with == Reference::Earlier);
    // Sets that follow those of another rank or lag get one line. The table `sets` has the details.
    for (fit, lineage, with) in related {
        let lines = change_lines(&format!("{fit} after {with}"), lineage);
        writeln!(f, "  {}", lines[0])?;
    }
    if !earlier.is_empty() {
        writeln!(f, "  after the earlier result:")?;
    }
    let mut changes = earlier
        .iter()
        .flat_map(|(fit, lineage, _)| change_lines(fit, lineage));
    changes.try_for_each(|line| writeln!(f, "    {line}"))
}

/// What became of the sets of a fit: one line for all sets, then one line per set that was not just
/// kept with its number.
pub fn change_lines(fit: &str, lineage: &TrackedSets) -> Vec<String> {
    let Some(changes) = &lineage.changes else {
        return vec![format!("{fit}: there is nothing to compare with")];
    };
    let events = [
        Event::Kept,
        Event::Split,
        Event::Merged,
        Event::Born,
        Event::Died,
    ];
    let numbers_of_events: Vec<String> = events
        .iter()
        .filter(|&&event| lineage.met(event) > 0)
        .map(|&event| format!("{} {}", lineage.met(event), event.name()))
        .collect();
    let percent = |share: f64| format!("{:.2} % of the counts", 100.0 * share);
    let mut line = format!(
        "{fit}: sets {}; {} of {} changed set ({})",
        numbers_of_events.join(", "),
        grouped(changes.changed_states as f64),
        states(changes.shared_states),
        percent(changes.changed_share),
    );
    let new_and_gone = [
        (changes.new_states, changes.new_share, "new"),
        (changes.gone_states, changes.gone_share, "gone"),
    ];
    for (n, share, what) in new_and_gone.into_iter().filter(|(n, ..)| *n > 0) {
        line += &format!(", {} {what} ({})", grouped(n as f64), percent(share));
    }
    let pair = (changes.adjusted_rand, changes.variation_of_information);
    if let (Some(rand), Some(information)) = pair {
        line += &format!("; ARI {rand:.4}, VI {information:.4} nats");
    }
    if let Some(angle) = changes.principal_angles.last() {
        line += &format!(", largest angle {angle:.3}");
    }
    let mut lines = vec![line];
    let sets: Vec<String> = lineage.sets.iter().filter_map(set_change).collect();
    lines.extend(sets.iter().take(SHOWN).map(|set| format!("  {set}")));
    if sets.len() > SHOWN {
        lines.push(format!("  … and {} more", sets.len() - SHOWN));
    }
    lines
}

/// What became of a set. None if it was kept with its number.
fn set_change(set: &Set) -> Option<String> {
    let parents = || {
        let numbers: Vec<String> = set.parents.iter().map(u32::to_string).collect();
        let plural = if numbers.len() == 1 { "" } else { "s" };
        format!("earlier set{plural} {}", numbers.join(", "))
    };
    let (event, previous) = (set.event?, set.previous);
    let Some(number) = set.number else {
        let previous = previous?;
        let what = match event {
            Event::Died => "died",
            Event::Split => "was split up",
            _ => "went into a merged set",
        };
        let size = states(previous.states);
        return Some(format!("earlier set {} ({size}) {what}", previous.number));
    };
    let what = match (event, previous) {
        (Event::Kept, Some(previous)) if previous.number != number => {
            format!("was set {}", previous.number)
        }
        (Event::Split, _) => format!("is a piece of {}", parents()),
        (Event::Merged, _) => format!("was merged from {}", parents()),
        (Event::Born, _) => "was born".to_string(),
        _ => return None,
    };
    Some(format!("set {number} ({}) {what}", states(set.states)))
}

fn states(n: u64) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{} state{plural}", grouped(n as f64))
}

/// Writes the line of the bootstrap of a fit.
fn bootstrap(f: &mut Formatter<'_>, record: &FitRecord, bootstrap: &BootstrapRecord) -> Result {
    let (fit, resamples, groups) = (&record.name, bootstrap.resamples, bootstrap.groups);
    let Some(agreement) = bootstrap.adjusted_rand else {
        return writeln!(
            f,
            "  {fit}: too few resamples for intervals ({resamples} of {groups} groups)"
        );
    };
    let shown = [
        ("coherence", "coherence", Some(record.coherence)),
        ("objective", "objective", Some(record.objective)),
        (
            "singular_value 1",
            "second singular value",
            record.singular_values.get(1).copied(),
        ),
    ];
    let intervals = shown.iter().filter_map(|(metric, name, value)| {
        let [low, high] = bootstrap.intervals.get(*metric)?;
        let why = match value {
            Some(value) if value < low => format!(
                " (the fit has {value:.4}, which is less: a resample has some trajectories more than once, and repeated ones look more coherent)"
            ),
            Some(value) if value > high => format!(
                " (the fit has {value:.4}, which is more: a resample lacks some trajectories, or its search ended at other sets)"
            ),
            _ => String::new(),
        };
        Some(format!("{name} {low:.4} to {high:.4}{why}"))
    });
    writeln!(
        f,
        "  {fit}: {resamples} resamples of {groups} groups, adjusted Rand index {agreement:.3}; {} % intervals: {}",
        100.0 * bootstrap.confidence,
        intervals.collect::<Vec<_>>().join(", ")
    )
}

/// Writes the line of the Markov tests of a fit.
fn markov(f: &mut Formatter<'_>, fit: &FitRecord) -> Result {
    let Some(timescales) = &fit.timescales else {
        return Ok(());
    };
    let intervals = fit.timescale_intervals.iter().flatten();
    let mut intervals = intervals.map(|ends| match ends {
        [Some(low), Some(high)] => format!(" ({low:.4} to {high:.4})"),
        [Some(low), None] => format!(" ({low:.4} to ∞)"),
        [None, _] => String::new(),
    });
    let shown = timescales
        .iter()
        .map(|t| format!("{t:.4}") + &intervals.next().unwrap_or_default());
    let shown = list(shown);
    write!(f, "  {}: timescales {shown}", fit.name)?;
    if let Some(deviation) = &fit.chapman_kolmogorov {
        let (largest, steps) = (deviation.largest, deviation.steps);
        write!(
            f,
            "; off from Chapman-Kolmogorov by {largest:.4} at most, at {steps} steps"
        )?;
    }
    writeln!(f)
}

/// The cells of a fit, in the order of the header.
fn row(model: &ModelRecord, fit: &FitRecord) -> [String; 8] {
    [
        fit.name.clone(),
        format!("{:.1}", fit.log_likelihood),
        format!(
            "{:.4} nats",
            (fit.log_likelihood - fit.reference_log_likelihood) / model.transitions
        ),
        format!("{:.4}", fit.coherence),
        format!("{:.4}", fit.objective),
        list(fit.singular_values.iter().map(|s| format!("{s:.4}"))),
        list(fit.source_sizes.iter().map(|&s| grouped(s as f64))),
        format!("{:.2}", fit.seconds),
    ]
}

/// The first eight items of a list.
fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    let more = items.len() > 8;
    let mut shown: Vec<String> = items.take(8).collect();
    if more {
        shown.push("…".into());
    }
    shown.join(" ")
}

/// The message of a failed check: one line, then one line per row that is shown.
pub fn check_message(check: &CheckRecord) -> String {
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
        let expected = [
            "0",
            "999",
            "1,000",
            "1,234,567",
            "1,234.50",
            "1.0000e155",
            "2.0000e-160",
        ];
        assert_eq!(shown, expected);
    }
}
