//! Checks that the keys of a pipeline file agree: file → [`Pipeline`], or all errors.

mod errors;
mod filters;
mod points;
mod rows;
mod sequences;
mod tables;

pub use crate::plan::pipeline::consistency::rows::is_output_column;

use crate::assess::ranks::Rule;
use crate::error::{Error, Result};
use crate::methods::heat_kernel::params::ChainKernel;
use crate::methods::{AnyMethod, ChainMethod, FilterMethod, Method, PointMethod, SequenceMethod};
use crate::plan::pipeline::checks;
use crate::plan::pipeline::consistency::errors::{Errors, not_blank};
use crate::plan::pipeline::consistency::points::{
    densities, no_keys_of_states, output_rows, point_validation,
};
use crate::plan::pipeline::consistency::rows::{OUTPUT_COLUMNS, key_columns, points, transitions};
use crate::plan::pipeline::consistency::sequences::{
    distribution, held_out, no_keys_of_sets, one_window, prediction_rows, sequence_validation,
    sequences,
};
use crate::plan::pipeline::consistency::tables::{
    check_location, job, option, output_tables, tables,
};
use crate::plan::pipeline::content::{Input, Pipeline, Transitions};
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{NamesFrom, PipelineFile, Validation};
use std::collections::{BTreeMap, BTreeSet};

/// Checks a file, and adds all errors to `errors`.
///
/// `faulty` names the sections (`transitions`) and parts (`job.name`, `fit.dbmr`) whose errors are
/// reported already. They are not checked.
pub(super) fn check(
    file: PipelineFile,
    document: &Document<'_>,
    faulty: &BTreeSet<String>,
    errors: &mut Vec<Error>,
) -> Option<Pipeline> {
    let is_sound = |section: &str| {
        let is_within = |of: &String| of.split('.').next() == Some(section);
        !faulty.iter().any(is_within)
    };
    let is_part_sound = |section: &str, part: &str| {
        !faulty.contains(section) && !faulty.contains(&format!("{section}.{part}"))
    };
    let mut errors = Errors(errors);
    job(
        &file.job,
        document,
        |key| is_part_sound("job", key),
        &mut errors,
    );
    for key in file.store.options.keys() {
        errors.note(option(key, document));
    }
    tables(&file.tables, document, &mut errors);
    let are_fits_sound = is_sound("fit");
    // Output column names so far, each with the fit it comes from.
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for (n, fit) in file.fit.iter().enumerate() {
        // Two fits may have the same name by mistake, so the index identifies a fit. It is wrong if
        // faulty fits are missing.
        let segment = if are_fits_sound {
            n.to_string()
        } else {
            fit.name.clone()
        };
        if is_part_sound("fit", &fit.name) {
            let earlier = &file.fit[..n];
            errors.note(self::fit(fit, earlier, &segment, &mut names, document));
        }
        let folds = file.validation.as_ref().map_or(0, |keys| keys.folds);
        let is_of_counts = matches!(fit.method, AnyMethod::OfCounts(_));
        let needs_folds = is_of_counts && fit.rule.is_some_and(Rule::needs_folds);
        if folds == 0 && is_sound("validation") && needs_folds {
            let message = format!(
                "`fit.{}.rule` scores ranks with what was held out, and so needs `folds` in `[validation]`, such as `folds = 5`",
                fit.name
            );
            errors.add(document.error_at(&["fit", &segment, "rule"], &message));
        }
    }
    let transitions = match (file.transitions, file.points, file.sequences) {
        (Some(text), None, None) if is_sound("transitions") => {
            transitions(text, document, &mut errors)
        }
        (None, Some(text), None) if is_sound("points") => points(text, document, &mut errors),
        (None, None, Some(text)) if is_sound("sequences") => sequences(text, document, &mut errors),
        (Some(_), Some(_), _) => {
            let message = "`[transitions]` and `[points]` exclude each other: rows have a time, or they have none";
            errors.add(document.error_at(&["points"], message));
            None
        }
        (Some(_), _, Some(_)) | (_, Some(_), Some(_)) => {
            let other = if document.root.get("points").is_some() {
                "points"
            } else {
                "transitions"
            };
            let message = format!(
                "`[{other}]` and `[sequences]` exclude each other; write one pipeline file for each"
            );
            errors.add(document.error_at(&["sequences"], &message));
            None
        }
        _ => None,
    };
    if let NamesFrom::Output(location) = &file.names.from {
        errors.note(check_location(location, &["names", "from"], document));
    }
    if let Some(transitions) = transitions.as_ref().filter(|_| are_fits_sound) {
        errors.note(key_columns(transitions, &file.fit, document));
    }
    if let Some(keys) = &file.validation
        && is_sound("validation")
    {
        errors.note(validation(keys, document));
    }
    let transitions = transitions?;
    let is_points = transitions.input.is_points();
    let has_counts = matches!(
        transitions.input,
        Input::Trajectories { .. } | Input::Pairs { .. }
    );
    if file.fit.is_empty() && are_fits_sound && !has_counts {
        let message = "the pipeline needs at least one `[[fit]]`: only the counts of `[transitions]` are a result without fits";
        errors.add(document.error_at(&["fit"], message));
    }
    if transitions.input.is_sequences() {
        let keys = file.validation.as_ref();
        errors.note(no_keys_of_sets(document));
        errors.note(prediction_rows(&file.output.rows, document));
        errors.note(sequence_validation(keys, &transitions.input, document));
        if are_fits_sound {
            let has_folds = keys.is_some_and(|keys| keys.folds > 0);
            errors.note(held_out(&file.fit, has_folds, &transitions.input, document));
            errors.note(one_window(&file.fit, document));
        }
    } else if transitions.input.is_state_space() {
        let keys = file.validation.as_ref();
        errors.note(filters::other_keys(&file.job, keys, document));
    } else {
        errors.note(output_rows(&file.output.rows, is_points, document));
    }
    if are_fits_sound {
        let (output, input) = (&file.output, &transitions.input);
        errors.note(filters::output(output, &file.fit, input, document));
    }
    errors.note(distribution(&file.output, &transitions.input, document));
    output_tables(&file.output, &transitions.input, document, &mut errors);
    if is_points {
        let keys = file.validation.as_ref();
        errors.note(no_keys_of_states(&file.job, document));
        errors.note(point_validation(keys, &transitions.input, document));
    }
    if let Some(keys) = &file.densities {
        errors.note(densities(keys, &transitions.input, document));
    }
    let mut fits = Vec::new();
    let mut embeddings = Vec::new();
    let mut point_fits = Vec::new();
    let mut sequence_fits = Vec::new();
    let mut filter_fits = Vec::new();
    for (n, fit) in file.fit.into_iter().enumerate() {
        errors.note(fits_input(&fit, n, &transitions.input, document));
        errors.note(filters::filter(&fit, n, &transitions.input, document));
        match fit.method {
            AnyMethod::OfCounts(_) => fits.extend(fit.narrow(Method::of)),
            AnyMethod::OfPoints(_) if transitions.input.is_points() => {
                point_fits.extend(fit.narrow(PointMethod::of));
            }
            AnyMethod::OfSequences(_) => sequence_fits.extend(fit.narrow(SequenceMethod::of)),
            AnyMethod::OfFilters(_) => filter_fits.extend(fit.narrow(FilterMethod::of)),
            AnyMethod::OfPoints(_)
                if transitions.input.is_sequences() || transitions.input.is_state_space() => {}
            AnyMethod::OfPoints(_) => {
                let method = errors.note(of_chain(&fit, n, &transitions, document));
                embeddings.extend(fit.narrow(|_| method?));
            }
        }
    }
    let has_sets = !has_counts || !are_fits_sound || !fits.is_empty();
    if !has_sets && document.root.get("validation").is_some() {
        let message = "`[validation]` resamples sets of states, and no fit of this pipeline has sets; leave it out";
        errors.add(document.error_at(&["validation"], message));
    }
    if !is_sound("checks") || !is_sound("check") {
        return None;
    }
    let checks = checks::checks(file.checks, file.check, &transitions.partition_by, document);
    Some(Pipeline {
        file: None,
        job: file.job,
        store: file.store,
        tables: file.tables,
        checks: errors.note(checks)?,
        transitions,
        names: file.names,
        fits,
        embeddings,
        point_fits,
        sequence_fits,
        filter_fits,
        validation: file.validation,
        output: file.output,
        densities: file.densities,
    })
}

/// The method of a fit to the states of a chain. States of trajectories are of one kind, and so are
/// those of pairs with `connected = true`. The states of other pairs need not be.
fn of_chain(
    fit: &FitEntry<AnyMethod>,
    n: usize,
    transitions: &Transitions,
    document: &Document<'_>,
) -> Result<Option<ChainMethod>> {
    let AnyMethod::OfPoints(method) = &fit.method else {
        return Ok(None);
    };
    let is_square = transitions.connected || !matches!(transitions.input, Input::Pairs { .. });
    let kernel = if is_square {
        ChainKernel::Symmetrised
    } else {
        ChainKernel::TwoSteps
    };
    ChainMethod::of_points(method, kernel).map_err(|(key, what)| {
        let message = format!("`fit.{}.{key}` {what}", fit.name);
        document.error_at(&["fit", &n.to_string(), key], &message)
    })
}

/// Checks that a method is for the evidence that the rows give. `n` is the index of the fit.
fn fits_input(
    fit: &FitEntry<AnyMethod>,
    n: usize,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let name = fit.method.name();
    let (needs, has) = match (&fit.method, input) {
        (AnyMethod::OfSequences(_), Input::Sequences { .. })
        | (AnyMethod::OfFilters(_), Input::StateSpace { .. }) => return Ok(()),
        (AnyMethod::OfFilters(_), Input::Sequences { .. }) => (
            "estimates states from observations; name their columns as `sequences.state` and `sequences.observation` in place of `symbol`",
            "sequences of symbols",
        ),
        (AnyMethod::OfFilters(_), Input::Points { .. }) => (
            "estimates states from observations; describe the rows in a section `[sequences]` with `id`, `state` and `observation` in place of `[points]`",
            "points without time",
        ),
        (AnyMethod::OfFilters(_), Input::Pairs { .. }) => (
            "estimates states from observations; describe the rows in a section `[sequences]` with `time`, `state` and `observation`",
            "pairs of states",
        ),
        (AnyMethod::OfFilters(_), _) => (
            "estimates states from observations; describe the rows in a section `[sequences]` with `state` and `observation` in place of `[transitions]`",
            "transitions",
        ),
        (AnyMethod::OfSequences(_), Input::StateSpace { .. }) => (
            "is fitted to sequences of symbols; name their columns as `sequences.symbol` in place of `state` and `observation`",
            "states and observations",
        ),
        (AnyMethod::OfCounts(_), Input::StateSpace { .. }) => (
            "counts transitions between states; describe the rows in a section `[transitions]` with `time`, `state` and `lag`",
            "states and observations",
        ),
        (AnyMethod::OfPoints(_), Input::StateSpace { .. }) => (
            "is fitted to coordinates or states; describe the rows in a section `[transitions]` or `[points]`",
            "states and observations",
        ),
        (AnyMethod::OfSequences(_), Input::Points { .. }) => (
            "is fitted to sequences of symbols; describe the rows in a section `[sequences]` with `time` and `symbol`",
            "points without time",
        ),
        (AnyMethod::OfSequences(_), Input::Pairs { .. }) => (
            "is fitted to windows of three rows and more; describe the rows in a section `[sequences]` with `time` and `symbol`",
            "pairs of states",
        ),
        (AnyMethod::OfSequences(_), _) => (
            "is fitted to sequences of symbols; describe the rows in a section `[sequences]` in place of `[transitions]`",
            "transitions",
        ),
        (AnyMethod::OfCounts(_), Input::Sequences { .. }) => (
            "counts transitions between states; describe the rows in a section `[transitions]` with `time`, `state` and `lag`",
            "sequences of symbols",
        ),
        (AnyMethod::OfPoints(_), Input::Sequences { .. }) => (
            "is fitted to coordinates or states; describe the rows in a section `[transitions]` or `[points]`",
            "sequences of symbols",
        ),
        (AnyMethod::OfCounts(_), Input::PointPairs { .. } | Input::Points { .. }) => (
            "counts transitions between states; cut the coordinates into boxes with `transitions.bins`",
            "coordinates",
        ),
        (AnyMethod::OfPoints(PointMethod::StateEmbedding(_)), Input::PointPairs { .. })
        | (
            AnyMethod::OfPoints(PointMethod::DiffusionMap(_) | PointMethod::HeatSketch(_)),
            Input::Points { .. } | Input::Trajectories { .. } | Input::Pairs { .. },
        )
        | (AnyMethod::OfCounts(_), _) => return Ok(()),
        (AnyMethod::OfPoints(PointMethod::StateEmbedding(_)), Input::Points { .. }) => (
            "is fitted to pairs of points: rows need `trajectory`, `time` and `lag` in `[transitions]`",
            "points without time",
        ),
        (AnyMethod::OfPoints(PointMethod::StateEmbedding(_)), _) => (
            "is fitted to pairs of points; name their columns as `transitions.coordinates` in place of `state` and `bins`",
            "states",
        ),
        (AnyMethod::OfPoints(_), Input::PointPairs { .. }) => (
            "is fitted to points without time, or to states; describe the rows in a section `[points]` with `id` and `coordinates`",
            "pairs of points",
        ),
    };
    let message = format!(
        "the method \"{name}\" of fit `{}` {needs} (this pipeline has {has})",
        fit.name
    );
    Err(document.error_at(&["fit", &n.to_string(), "method"], &message))
}

/// Checks a fit against the `earlier` ones. `segment` is its name or index in the path of keys.
fn fit<'a>(
    fit: &'a FitEntry<AnyMethod>,
    earlier: &[FitEntry<AnyMethod>],
    segment: &str,
    names: &mut BTreeMap<String, &'a str>,
    document: &Document<'_>,
) -> Result<()> {
    let fail =
        |key: &str, message: String| Err(document.error_at(&["fit", segment, key], &message));
    let name = &fit.name;
    if !name.starts_with(|c: char| c.is_ascii_alphabetic())
        || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    {
        let message = format!(
            "a fit's name must be a letter followed by letters, digits and `_`, not {name:?}"
        );
        return fail("name", message);
    }
    if OUTPUT_COLUMNS.contains(&name.as_str()) {
        let message =
            format!("a fit cannot be named `{name}`: the output tables have a column of that name");
        return fail("name", message);
    }
    if earlier.iter().any(|f| f.name == *name) {
        return fail("name", format!("two fits are named `{name}`"));
    }
    if let Some((key, message)) = parameters(fit) {
        let key = match key {
            "rank" if fit.rule.is_some() => "ranks",
            key => key,
        };
        return fail(key, format!("`fit.{name}.{key}` {message}"));
    }
    for (_, column) in fit.expanded() {
        if let Some(other) = names.insert(column.clone(), name) {
            let message =
                format!("the fits `{other}` and `{name}` both give columns named `{column}`");
            return fail("name", message);
        }
    }
    Ok(())
}

/// The first parameter that is out of range, and the rest of a sentence on it.
fn parameters(fit: &FitEntry<AnyMethod>) -> Option<(&'static str, String)> {
    for (n, r) in fit.ranks.iter().enumerate() {
        if *r == 0 {
            return Some(("rank", "must be at least 1, not 0".into()));
        }
        if fit.ranks[..n].contains(r) {
            return Some(("rank", format!("has {r} twice")));
        }
    }
    fit.method.check().err()
}

fn validation(keys: &Validation, document: &Document<'_>) -> Result<()> {
    let fail = |key: &str, message: String| {
        let message = format!("`validation.{key}` {message}");
        Err(document.error_at(&["validation", key], &message))
    };
    if keys.bootstrap == 1 || keys.bootstrap > 10_000 {
        let message = "must be 0 for none, or 2 to 10000 resamples, not";
        return fail("bootstrap", format!("{message} {}", keys.bootstrap));
    }
    if keys.folds == 1 || keys.folds > 1000 {
        let message = "must be 0 for none, or 2 to 1000 folds, not";
        return fail("folds", format!("{message} {}", keys.folds));
    }
    if !(2..=4096).contains(&keys.groups) {
        let message = format!("must be 2 to 4096, not {}", keys.groups);
        return fail("groups", message);
    }
    if keys.folds > keys.groups {
        let message = format!(
            "must be no more than the {} `groups` they are made of, not {}",
            keys.groups, keys.folds
        );
        return fail("folds", message);
    }
    if !(0.5..=0.9999).contains(&keys.confidence) {
        let message = format!("must be 0.5 to 0.9999, not {}", keys.confidence);
        return fail("confidence", message);
    }
    for (n, column) in keys.group.iter().enumerate() {
        not_blank(column, &["validation", "group"], document)?;
        if keys.group[..n].contains(column) {
            return fail("group", format!("names the column `{column}` twice"));
        }
    }
    Ok(())
}
