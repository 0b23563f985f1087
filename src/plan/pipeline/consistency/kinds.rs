//! Which section describes the rows of a pipeline, which keys these rows cannot have, and which
//! methods fit them. Of the checks, this file alone knows all kinds of evidence.

use crate::error::Result;
use crate::evidence::lag::Lag;
use crate::methods::{AnyMethod, PointMethod};
use crate::output::tables::table::Table;
use crate::output::tables::{observations, points, symbols};
use crate::plan::left_out::TableNames;
use crate::plan::pipeline::consistency::errors::{Errors, lacks};
use crate::plan::pipeline::consistency::observations::{filter, has_kernels, of_observations};
use crate::plan::pipeline::consistency::points::{densities, point_pairs, points};
use crate::plan::pipeline::consistency::rows::{Frame, pairs, trajectories};
use crate::plan::pipeline::consistency::symbols::{held_out, one_window, symbols};
use crate::plan::pipeline::content::{COUNTS, Input, OBSERVATIONS, POINTS, SYMBOLS, Transitions};
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{
    Empty, FilteredRows, PipelineFile, SequencesText, TransitionsText, Validation,
};

/// What the rules look at.
pub(super) struct Facts<'a> {
    pub(super) file: &'a PipelineFile,
    pub(super) input: &'a Input,
    pub(super) document: &'a Document<'a>,
    pub(super) are_fits_sound: bool,
}

impl Facts<'_> {
    /// Whether the file has a section or key.
    fn has(&self, key: &str) -> bool {
        let mut segments = key.split('.');
        let found = segments.try_fold(&self.document.root, |node, segment| node.get(segment));
        found.is_some()
    }

    /// Whether `[validation]`, which is about these rows, says so.
    fn validates(&self, so: impl Fn(&Validation) -> bool) -> bool {
        !self.has("points") && self.file.validation.as_ref().is_some_and(so)
    }

    fn has_fit(&self, is_one: impl Fn(&AnyMethod) -> bool) -> bool {
        !self.are_fits_sound || self.file.fit.iter().any(|fit| is_one(&fit.method))
    }

    fn add(&self, key: &str, what: &str, errors: &mut Errors<'_>) {
        let path: Vec<&str> = key.split('.').collect();
        let name = if path.len() == 1 {
            format!("`[{key}]`")
        } else {
            format!("`{key}`")
        };
        errors.add(self.document.error_at(&path, &format!("{name} {what}")));
    }
}

/// A rule: the key, whether a file breaks it, the kinds of rows for which it holds, and what the
/// error says after the name of the key.
struct Rule(
    &'static str,
    fn(&Facts<'_>) -> bool,
    &'static [&'static str],
    &'static str,
);

// One rule per line: a table.
#[rustfmt::skip]
const KEYS: [Rule; 33] = [
    Rule("names", |f| f.has("names"), &[POINTS], "is about sets of states, and is not available for rows with `coordinates`; leave it out"),
    Rule("names", |f| f.has("names"), &[SYMBOLS], "is about sets of states, which hidden Markov models do not have; leave it out"),
    Rule("names", |f| f.has("names"), &[OBSERVATIONS], "is about sets of states, which filters do not have; leave it out"),
    Rule("checks.max_drift", |f| f.has("checks.max_drift"), &[POINTS], "is about the number of transitions, and is not available for rows with `coordinates`; use `min_rows`, or a `[[check]]`"),
    Rule("checks.max_drift", |f| f.has("checks.max_drift"), &[SYMBOLS], "is about the number of transitions, and is not available for sequences; use `min_rows`, or a `[[check]]`"),
    Rule("checks.max_drift", |f| f.has("checks.max_drift"), &[OBSERVATIONS], "is about the number of transitions between sets of states, and is not available for filters; use `min_rows`, or a `[[check]]` of the table `fits`"),
    Rule("job.incremental", |f| f.file.job.incremental, &[POINTS], "adds up counts, and is not available for rows with `coordinates`; leave it out"),
    Rule("job.incremental", |f| f.file.job.incremental, &[OBSERVATIONS], "adds up counts, and filters are fitted to rows, not to counts; leave it out"),
    Rule("validation", |f| f.has("validation") && !f.has_fit(has_sets), &[COUNTS], "resamples sets of states, and no fit of this pipeline has sets; leave it out"),
    Rule("validation", |f| f.has("validation") && f.has("points"), &[POINTS], "resamples trajectories, and points without time have none; leave it out"),
    Rule("validation", |f| f.has("validation"), &[OBSERVATIONS], "is not available for filters: rows with `sequences.split` = 'test' score them, and `bandwidth` and `lambda` = \"held-out\" choose by training rows that are held out; leave it out"),
    Rule("validation.markov", |f| f.validates(|own| own.markov), &[POINTS], "is about sets of states, and is not available for rows with `coordinates`; leave it out"),
    Rule("validation.markov", |f| f.validates(|own| own.markov), &[SYMBOLS], "tests sets of states, which hidden Markov models do not have; leave it out"),
    Rule("validation.group", |f| f.validates(|own| !own.group.is_empty()), &[POINTS], "is not available for rows with `coordinates`, whose trajectories are resampled; name the unit in `transitions.trajectory`"),
    Rule("validation.group", |f| f.validates(|own| !own.group.is_empty()), &[SYMBOLS], "is not available for sequences, whose trajectories are resampled; name the unit in `sequences.trajectory`"),
    Rule("validation.bootstrap", |f| f.validates(|own| own.bootstrap > 0) && !f.has("sequences.trajectory"), &[SYMBOLS], "resamples trajectories, but every partition is one; name the column `sequences.trajectory`"),
    Rule("validation.folds", |f| f.validates(|own| own.folds > 0) && f.has("sequences.split"), &[SYMBOLS], "holds trajectories out in turn, but `sequences.split` says which rows are held out; keep one of them"),
    Rule("validation.folds", |f| f.validates(|own| own.folds > 0) && !f.has("sequences.split") && !f.has("sequences.trajectory"), &[SYMBOLS], "holds trajectories out in turn, but every partition is one; name the column `sequences.trajectory`, or mark rows to hold out with `sequences.split`"),
    Rule("output.rows", |f| f.file.output.rows.columns().is_none(), &[COUNTS], "is a list of columns for rows with states; a number is for rows with `coordinates`"),
    Rule("output.rows", |f| f.file.output.rows.points().is_none(), &[POINTS], "is \"all\", a number of points or \"none\" for rows with `coordinates`: the table `points` has the key of a row and no other columns"),
    Rule("output.rows", |f| f.file.output.rows.predictions().is_none(), &[SYMBOLS], "is \"all\" or \"none\" for sequences: the table `predictions` has the partition, trajectory, time and symbol of every row, and no other columns"),
    Rule("output.rows", |f| f.file.output.rows.filtered(true).is_none(), &[OBSERVATIONS], "is \"held-out\", \"all\" or \"none\" for filters: the table `estimates` has the partition and the key of a row, and no other columns"),
    Rule("output.rows", |f| f.file.output.rows.filtered(false) == Some(FilteredRows::HeldOut) && !f.has("sequences.split"), &[OBSERVATIONS], "= \"held-out\" leaves training rows out, but without `sequences.split` every row is one; name that column, or write \"all\""),
    Rule("output.distribution", |f| f.file.output.distribution, &[COUNTS, POINTS, OBSERVATIONS], "is about the next symbol of a sequence, which these rows do not have; leave it out"),
    Rule("output.distribution", |f| f.file.output.distribution && f.file.output.rows.predictions() == Some(false), &[SYMBOLS], "adds a column to the table `predictions`, which needs `rows = \"all\"`"),
    Rule("output.posteriors", |f| f.file.output.posteriors, &[COUNTS, POINTS, SYMBOLS], "is about the training rows of filters, which these rows do not have; leave it out"),
    Rule("output.posteriors", |f| f.file.output.posteriors && !f.has("sequences.id"), &[OBSERVATIONS], "is for rows without time, which have `sequences.id`: the weights of every step would be as many numbers as there are training rows times rows; leave it out"),
    Rule("output.posteriors", |f| f.file.output.posteriors && !f.has_fit(has_kernels), &[OBSERVATIONS], "has the weights of training rows, which only the method \"kernel_bayes\" gives; leave it out"),
    Rule("output.posteriors", |f| f.file.output.posteriors && !f.has("sequences.split"), &[OBSERVATIONS], "is about rows that are not training rows, but without `sequences.split` every row is one; name that column"),
    Rule("output.errors", |f| f.file.output.errors, &[COUNTS, POINTS, SYMBOLS], "is about the estimates of filters, which these rows do not have; leave it out"),
    Rule("output.errors", |f| f.file.output.errors && f.has("sequences.id"), &[OBSERVATIONS], "is about rows with time, and rows with `sequences.id` have none; the table `fits` has the mean squared error of all test rows"),
    Rule("output.errors", |f| f.file.output.errors && !f.has("sequences.split"), &[OBSERVATIONS], "is about rows with `split` = 'test', but without `sequences.split` every row is a training row; name that column"),
    Rule("densities", |f| f.has("densities") && !f.has("transitions.coordinates"), &[COUNTS, POINTS, SYMBOLS, OBSERVATIONS], "needs pairs of points, which rows have with `transitions.coordinates`; leave it out"),
];

fn has_sets(method: &AnyMethod) -> bool {
    matches!(method, AnyMethod::OfCounts(_))
}

/// The maximum of `validation.folds` for points and symbols.
const MAX_FOLDS: usize = 20;

/// Checks the keys outside the section of the rows against the rows, and keys against each other.
pub(super) fn keys(facts: &Facts<'_>, errors: &mut Errors<'_>) {
    let (kind, file, document) = (facts.input.kind(), facts.file, facts.document);
    for Rule(key, is_broken, kinds, why) in KEYS {
        if kinds.contains(&kind) && is_broken(facts) {
            facts.add(key, why, errors);
        }
    }
    if file.fit.is_empty() && facts.are_fits_sound && kind != COUNTS {
        let message = "the pipeline needs at least one `[[fit]]`: only the counts of `[transitions]` are a result without fits";
        errors.add(document.error_at(&["fit"], message));
    }
    let folds = file.validation.as_ref().map_or(0, |keys| keys.folds);
    let limit = match kind {
        POINTS => Some(("rows with `coordinates`", "the sums of every fold")),
        SYMBOLS => Some(("sequences", "the models of all folds")),
        _ => None,
    };
    if let Some((rows, held)) = limit.filter(|_| folds > MAX_FOLDS) {
        let what =
            format!("must be {MAX_FOLDS} at most for {rows}, not {folds}: {held} are in memory");
        facts.add("validation.folds", &what, errors);
    }
    if let Some(keys) = &file.densities {
        errors.note(densities(keys, facts.input, document));
    }
    if kind == SYMBOLS && facts.are_fits_sound {
        errors.note(held_out(&file.fit, folds > 0, facts.input, document));
        errors.note(one_window(&file.fit, document));
    }
}

/// The rows that the sections of a file describe. `is_sound` is whether a section has no error yet.
pub(super) fn rows(
    file: &mut PipelineFile,
    document: &Document<'_>,
    is_sound: impl Fn(&str) -> bool,
    errors: &mut Errors<'_>,
) -> Option<Transitions> {
    macro_rules! frame {
        ($section:literal, $text:ident, $connected:expr, $empty:expr) => {
            Frame {
                section: $section,
                sql: $text.sql.take(),
                file: $text.file.take(),
                parameters: std::mem::take(&mut $text.parameters),
                partition_by: std::mem::take(&mut $text.partition_by),
                connected: $connected,
                empty: $empty,
            }
        };
    }
    let sections = (
        file.transitions.take(),
        file.points.take(),
        file.sequences.take(),
    );
    match sections {
        (Some(mut text), None, None) if is_sound("transitions") => {
            let frame = frame!("transitions", text, text.connected, text.empty);
            frame.with(transitions(text, document), document, errors)
        }
        (None, Some(mut text), None) if is_sound("points") => {
            let frame = frame!("points", text, false, Empty::default());
            frame.with(points(text, document), document, errors)
        }
        (None, None, Some(mut text)) if is_sound("sequences") => {
            let frame = frame!("sequences", text, false, text.empty);
            frame.with(sequences(text, document), document, errors)
        }
        (Some(_), Some(_), _) => {
            let message = "use either `[transitions]` (rows with a time) or `[points]` (rows without), not both";
            errors.add(document.error_at(&["points"], message));
            None
        }
        (first, Some(_), Some(_)) | (first @ Some(_), _, Some(_)) => {
            let other = first.map_or("points", |_| "transitions");
            let message = format!(
                "use either `[{other}]` or `[sequences]`, not both; write one pipeline file for each"
            );
            errors.add(document.error_at(&["sequences"], &message));
            None
        }
        _ => None,
    }
}

/// Decides between trajectories and pairs by the keys of `[transitions]`.
fn transitions(text: TransitionsText, document: &Document<'_>) -> Result<Input> {
    let table = document.root.get("transitions");
    let written = |keys: &'static str| -> Vec<&'static str> {
        let is_written = |key: &&str| table.is_some_and(|table| table.get(key).is_some());
        keys.split(' ').filter(is_written).collect()
    };
    let of_trajectories = written(
        "trajectory time duplicates max_gap tolerance state bins coordinates scale lag window interval",
    );
    let of_pairs = written("source target count");
    match (of_trajectories.is_empty(), of_pairs.is_empty()) {
        (false, true) if text.coordinates.is_empty() => trajectories(text, document),
        (false, true) => point_pairs(text, document),
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

/// Decides between symbols and states with observations by the keys of `[sequences]`.
fn sequences(text: SequencesText, document: &Document<'_>) -> Result<Input> {
    if let Some(Lag::Steps(_)) = text.interval {
        let what = "is the time between two rows: a whole number or a duration, not steps; leave it out to follow the rows in time order";
        return document.wrong(&["sequences", "interval"], what);
    }
    let has_symbol = !text.symbol.is_empty() || !text.bins.0.is_empty();
    let has_state = !text.state.is_empty() || !text.observation.is_empty();
    match (has_symbol, has_state) {
        (true, _) => symbols(text, document),
        (false, true) => of_observations(text, document),
        (false, false) => Err(lacks(
            "sequences",
            "`symbol` or `bins` (hidden Markov models), or the keys `state` and `observation` (filters)",
            document,
        )),
    }
}

/// The tables of a run over such rows.
pub(crate) fn table_names(input: &Input) -> TableNames {
    const OF_FILTERS: [&str; 3] = [
        observations::TRAJECTORIES,
        observations::ESTIMATES,
        observations::POSTERIORS,
    ];
    const OF_SYMBOLS: [&str; 2] = [symbols::TRAJECTORIES, symbols::PREDICTIONS];
    const OF_POINTS: [&str; 3] = [points::POINTS, points::DENSITIES, points::DISTORTION_TRIALS];
    let names = |models: &[&'static str], optional, asked: &'static [&'static str]| TableNames {
        all: [models, asked].concat(),
        optional,
        asked,
    };
    match input.kind() {
        POINTS => names(&points::TABLES, &points::OPTIONAL, &OF_POINTS),
        SYMBOLS => names(&symbols::TABLES, &symbols::OPTIONAL, &OF_SYMBOLS),
        OBSERVATIONS => names(&observations::TABLES, &observations::OPTIONAL, &OF_FILTERS),
        _ => TableNames {
            all: Table::ALL.map(Table::name).to_vec(),
            optional: &Table::OPTIONAL,
            asked: &["rows"],
        },
    }
}

/// Checks that a method is for the evidence that the rows give, and a filter against its rows. `n`
/// is the index of the fit.
pub(super) fn fit(
    fit: &FitEntry<AnyMethod>,
    n: usize,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let Some(wanted) = wanted(&fit.method, input) else {
        return filter(fit, n, input, document);
    };
    let has = match (&fit.method, input) {
        (_, Input::Symbols { .. }) => "sequences of symbols",
        (_, Input::Observations { .. }) => "states and observations",
        (AnyMethod::OfCounts(_), _) => "coordinates",
        (_, Input::Points { .. }) => "points without time",
        (AnyMethod::OfPoints(PointMethod::StateEmbedding(_)), _) => "states",
        (AnyMethod::OfPoints(_), _) => "pairs of points",
        (_, Input::Pairs { .. }) => "pairs of states",
        _ => "transitions",
    };
    let (method, name) = (fit.method.name(), &fit.name);
    let message =
        format!("the method \"{method}\" of fit `{name}` {wanted} (this pipeline has {has})");
    Err(document.error_at(&["fit", &n.to_string(), "method"], &message))
}

/// The evidence that a method is for, if the rows give another one.
fn wanted(method: &AnyMethod, input: &Input) -> Option<&'static str> {
    Some(match (method, input) {
        (AnyMethod::OfSymbols(_), Input::Symbols { .. })
        | (AnyMethod::OfObservations(_), Input::Observations { .. })
        | (AnyMethod::OfCounts(_), Input::Trajectories { .. } | Input::Pairs { .. })
        | (AnyMethod::OfPoints(PointMethod::StateEmbedding(_)), Input::PointPairs { .. }) => {
            return None;
        }
        (AnyMethod::OfObservations(_), Input::Symbols { .. }) => {
            "estimates states from observations; name their columns as `sequences.state` and `sequences.observation` in place of `symbol`"
        }
        (AnyMethod::OfObservations(_), Input::Points { .. }) => {
            "estimates states from observations; describe the rows in a section `[sequences]` with `id`, `state` and `observation` in place of `[points]`"
        }
        (AnyMethod::OfObservations(_), Input::Pairs { .. }) => {
            "estimates states from observations; describe the rows in a section `[sequences]` with `time`, `state` and `observation`"
        }
        (AnyMethod::OfObservations(_), _) => {
            "estimates states from observations; describe the rows in a section `[sequences]` with `state` and `observation` in place of `[transitions]`"
        }
        (AnyMethod::OfSymbols(_), Input::Observations { .. }) => {
            "is fitted to sequences of symbols; name their columns as `sequences.symbol` in place of `state` and `observation`"
        }
        (AnyMethod::OfSymbols(_), Input::Points { .. }) => {
            "is fitted to sequences of symbols; describe the rows in a section `[sequences]` with `time` and `symbol`"
        }
        (AnyMethod::OfSymbols(_), Input::Pairs { .. }) => {
            "is fitted to windows of three rows and more; describe the rows in a section `[sequences]` with `time` and `symbol`"
        }
        (AnyMethod::OfSymbols(_), _) => {
            "is fitted to sequences of symbols; describe the rows in a section `[sequences]` in place of `[transitions]`"
        }
        (AnyMethod::OfCounts(_), Input::PointPairs { .. } | Input::Points { .. }) => {
            "counts transitions between states; cut the coordinates into boxes with `transitions.bins`"
        }
        (AnyMethod::OfCounts(_), _) => {
            "counts transitions between states; describe the rows in a section `[transitions]` with `time`, `state` and `lag`"
        }
        (AnyMethod::OfPoints(_), Input::Symbols { .. } | Input::Observations { .. }) => {
            "is fitted to coordinates or states; describe the rows in a section `[transitions]` or `[points]`"
        }
        (AnyMethod::OfPoints(PointMethod::StateEmbedding(_)), Input::Points { .. }) => {
            "is fitted to pairs of points: rows need `trajectory`, `time` and `lag` in `[transitions]`"
        }
        (AnyMethod::OfPoints(PointMethod::StateEmbedding(_)), _) => {
            "is fitted to pairs of points; name their columns as `transitions.coordinates` in place of `state` and `bins`"
        }
        (AnyMethod::OfPoints(_), Input::PointPairs { .. }) => {
            "is fitted to points without time, or to states; describe the rows in a section `[points]` with `id` and `coordinates`"
        }
        (AnyMethod::OfPoints(_), _) => return None,
    })
}
