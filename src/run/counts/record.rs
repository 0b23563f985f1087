//! What the record of a run says of counts and of the models that are fitted to them.

use crate::assess::bootstrap::ResampledNumbers;
use crate::assess::match_sets::Event;
use crate::assess::set_tracking::{Reference, Set, TrackedSets};
use crate::assess::thin_sets;
use crate::error::counted;
use crate::output::number::{grouped, log_likelihood};
use crate::run::kind;
use crate::run::summary::{SHOWN, warnings};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// What the record says of the counts.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Facts {
    /// The sum of all counts.
    pub transitions: f64,
    /// The labels of given partitions: label k is set k.
    pub labels: BTreeMap<String, Vec<String>>,
}

impl kind::Facts for Facts {
    const COUNTED: &'static str = "transition";

    fn sum(&self) -> f64 {
        self.transitions
    }
}

/// The models of one partition and lag.
#[derive(Debug, Clone, Serialize)]
pub struct ModelRecord {
    /// The number of sources.
    pub sources: usize,
    /// The number of targets.
    pub targets: usize,
    /// The number of pairs with a count.
    pub nonzeros: usize,
    /// The sum of the counts.
    pub transitions: f64,
    /// What was dropped, if only the largest strongly connected set was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<DroppedStates>,
    /// The time to cut the counts into shards.
    pub shard_seconds: f64,
    /// The time of the bootstrap of all fits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap_seconds: Option<f64>,
    /// The time to compare ranks, without the fits: singular values and folds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks_seconds: Option<f64>,
    /// Fits, in the order of the pipeline file.
    pub fits: Vec<FitRecord>,
    /// Embeddings of states, in the order of the pipeline file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub embeddings: Vec<EmbeddingRecord>,
}

/// An embedding of states.
#[derive(Debug, Clone, Serialize)]
pub struct EmbeddingRecord {
    /// The name of the fit.
    pub name: String,
    /// The method.
    pub method: &'static str,
    /// Whether all certificates hold.
    pub certified: bool,
    /// The leading eigenvalues of a diffusion map.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub eigenvalues: Vec<f64>,
    /// Products of the kernel with one vector.
    pub products: usize,
    /// What makes the embedding doubtful.
    pub warnings: Vec<String>,
    /// Whether an earlier run had finished it. `seconds` is then the time to read it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// The time of the embedding.
    pub seconds: f64,
    /// The time of each step: `decompose` or `sketch`.
    pub steps: BTreeMap<Cow<'static, str>, f64>,
}

/// How a model was fitted, as far as the model does not hold it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Timings {
    /// The time to cut the counts into shards.
    pub shard_seconds: f64,
    /// The time of the bootstrap of all fits.
    pub bootstrap_seconds: Option<f64>,
    /// The time to compare ranks, without the fits.
    pub ranks_seconds: Option<f64>,
    /// One entry per fit of the model.
    pub fits: Vec<FitTimings>,
    /// One entry per embedding of the model.
    pub embeddings: Vec<FitTimings>,
}

/// How one fit was made, as far as the fit does not hold it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct FitTimings {
    /// Whether an earlier run had finished the fit.
    pub resumed: bool,
    /// The time of the fit.
    pub seconds: f64,
    /// The time of each step of the fit.
    pub steps: BTreeMap<Cow<'static, str>, f64>,
    /// How its rank was chosen, if it was not given.
    pub choice: Option<ChoiceRecord>,
}

/// States outside the largest strongly connected set.
#[derive(Debug, Clone, Serialize)]
pub struct DroppedStates {
    /// Strongly connected sets, with the one that was kept.
    pub components: usize,
    /// States that were dropped.
    pub states: usize,
    /// Transitions that were dropped.
    pub transitions: f64,
}

/// The largest deviation in the Chapman–Kolmogorov test of a fit.
#[derive(Debug, Clone, Serialize)]
pub struct Deviation {
    /// The number of steps of the prediction.
    pub steps: u64,
    /// The largest difference of prediction and estimate.
    pub largest: f64,
}

/// A fit.
#[derive(Debug, Clone, Serialize)]
pub struct FitRecord {
    /// The name of the fit.
    pub name: String,
    /// The method.
    pub method: &'static str,
    /// The rank r.
    pub rank: usize,
    /// The seed of the fit.
    pub seed: u64,
    /// Whether it met its tolerance.
    pub converged: bool,
    /// Whether all certificates hold. False if one could not be computed.
    pub certified: bool,
    /// Iterations of the best restart.
    pub iterations: usize,
    /// The number of restarts.
    pub restarts: usize,
    /// Latent states without a source.
    pub empty_states: usize,
    /// The log-likelihood of the model, in nats.
    pub log_likelihood: f64,
    /// The log-likelihood of the full transition matrix, in nats.
    pub reference_log_likelihood: f64,
    /// The sum of the singular values of the model.
    pub coherence: f64,
    /// The probability to stay in a set, summed over sets.
    pub objective: f64,
    /// Singular values of the model, r values in descending order.
    pub singular_values: Vec<f64>,
    /// The number of sources per set.
    pub source_sizes: Vec<usize>,
    /// Sets with transitions, but under a thousandth of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub thin_sets: Vec<usize>,
    /// Timescales of the sets, longest first, in the unit of the lag (seconds for durations), with
    /// `validation.markov`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timescales: Option<Vec<f64>>,
    /// The ends of their intervals, with a bootstrap. Null is infinity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timescale_intervals: Option<Vec<[Option<f64>; 2]>>,
    /// The Chapman–Kolmogorov test, with `validation.markov`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chapman_kolmogorov: Option<Deviation>,
    /// Whether an earlier run had finished it. `seconds` is then the time to read it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub resumed: bool,
    /// The time of the fit.
    pub seconds: f64,
    /// The time of each step: `partition` of DBMR and co-clustering, `decompose` and `cluster` of
    /// singular and Schur vectors, and `score` of all methods.
    pub steps: BTreeMap<Cow<'static, str>, f64>,
    /// Intervals, with a bootstrap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapRecord>,
    /// How the rank was chosen, if it was not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub choice: Option<ChoiceRecord>,
    /// How the sets continue those of the earlier result, or of another lag or rank, if this run
    /// compared them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lineage: Option<TrackedSets>,
}

/// The bootstrap of a fit.
#[derive(Debug, Clone, Serialize)]
pub struct BootstrapRecord {
    /// The number of resamples.
    pub resamples: usize,
    /// The number of groups that were drawn from.
    pub groups: usize,
    /// The confidence level of the intervals.
    pub confidence: f64,
    /// Mean adjusted Rand index against the fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjusted_rand: Option<f64>,
    /// The interval of each metric.
    pub intervals: BTreeMap<String, [f64; 2]>,
}

impl BootstrapRecord {
    pub(crate) fn new(bootstrap: &ResampledNumbers, confidence: f64) -> BootstrapRecord {
        let mut adjusted_rand = None;
        let mut intervals = BTreeMap::new();
        for number in &bootstrap.numbers {
            let Some(spread) = number.spread else {
                continue;
            };
            if number.metric == "adjusted_rand" {
                adjusted_rand = Some(spread.mean);
            }
            let index = number.index.map(|index| format!(" {index}"));
            let name = number.metric.to_string() + &index.unwrap_or_default();
            intervals.insert(name, [spread.low, spread.high]);
        }
        BootstrapRecord {
            resamples: bootstrap.resamples,
            groups: bootstrap.groups,
            confidence,
            adjusted_rand,
            intervals,
        }
    }
}

/// How the rank of a fit was chosen.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ChoiceRecord {
    /// The name of the rule.
    pub rule: Cow<'static, str>,
    /// The candidates that were fitted.
    pub ranks: Vec<usize>,
    /// Why the rule chose this rank, as text.
    pub reason: String,
}

impl Display for ModelRecord {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let (n, m, nnz) = (
            self.sources as f64,
            self.targets as f64,
            self.nonzeros as f64,
        );
        writeln!(
            f,
            "{}, {}, {}, {}",
            counted(grouped(self.transitions), "transition"),
            counted(grouped(n), "source"),
            counted(grouped(m), "target"),
            counted(grouped(nnz), "non-zero")
        )?;
        if let Some(dropped) = &self.dropped
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
        if !self.fits.is_empty() {
            table(f, self)?;
        }
        for own in &self.embeddings {
            write!(f, "  {}  ", own.name)?;
            if !own.eigenvalues.is_empty() {
                let values: Vec<String> =
                    own.eigenvalues.iter().map(|x| format!("{x:.4}")).collect();
                write!(f, "eigenvalues {}, ", values.join(" "))?;
            }
            let products = counted(grouped(own.products as f64), "product");
            writeln!(f, "{products}, {:.2} seconds", own.seconds)?;
            warnings(f, &own.warnings)?;
        }
        notes(f, self)
    }
}

/// Writes one line per fit, in columns.
fn table(f: &mut Formatter<'_>, model: &ModelRecord) -> std::fmt::Result {
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
fn notes(f: &mut Formatter<'_>, model: &ModelRecord) -> std::fmt::Result {
    for fit in &model.fits {
        if let Some(bootstrap) = &fit.bootstrap {
            bootstrap_line(f, fit, bootstrap)?;
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
    for fit in &model.fits {
        if let Some(thin) = thin_sets::warning(&fit.thin_sets) {
            writeln!(f, "  warning: {}: {thin}", fit.name)?;
        }
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
pub(crate) fn change_lines(fit: &str, lineage: &TrackedSets) -> Vec<String> {
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
    counted(grouped(n as f64), "state")
}

/// Writes the line of the bootstrap of a fit.
fn bootstrap_line(
    f: &mut Formatter<'_>,
    record: &FitRecord,
    bootstrap: &BootstrapRecord,
) -> std::fmt::Result {
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
fn markov(f: &mut Formatter<'_>, fit: &FitRecord) -> std::fmt::Result {
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
        log_likelihood(fit.log_likelihood, model.transitions),
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
