//! Checks that the keys of a pipeline file agree: file → [`Pipeline`], or all errors.

mod errors;
mod kinds;
mod observations;
mod points;
mod rows;
mod symbols;
mod tables;

pub(crate) use crate::plan::pipeline::consistency::kinds::table_names;
pub use crate::plan::pipeline::consistency::rows::is_output_column;

use crate::assess::ranks::Rule;
use crate::error::{Error, Result};
use crate::methods::heat_kernel::params::ChainKernel;
use crate::methods::{AnyMethod, ChainMethod};
use crate::plan::pipeline::checks::{Checks, checks};
use crate::plan::pipeline::consistency::errors::{Errors, not_blank};
use crate::plan::pipeline::consistency::kinds::Facts;
use crate::plan::pipeline::consistency::rows::{OUTPUT_COLUMNS, key_columns};
use crate::plan::pipeline::consistency::tables::{
    check_location, job, option, output_tables, tables,
};
use crate::plan::pipeline::content::{COUNTS, Input, POINTS, Pipeline, Transitions};
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{NamesFrom, PipelineFile, Validation};
use std::collections::{BTreeMap, BTreeSet};

/// The sections and parts of a file without errors so far, by those with errors.
struct Sound<'a>(&'a BTreeSet<String>);

impl Sound<'_> {
    fn section(&self, section: &str) -> bool {
        let mut faulty = self.0.iter();
        !faulty.any(|of| of.split('.').next() == Some(section))
    }

    fn part(&self, section: &str, part: &str) -> bool {
        !self.0.contains(section) && !self.0.contains(&format!("{section}.{part}"))
    }
}

/// Checks a file, and adds all errors to `errors`.
///
/// `faulty` names the sections (`transitions`) and parts (`job.name`, `fit.dbmr`) whose errors are
/// reported already. They are not checked.
pub(super) fn check(
    mut file: PipelineFile,
    document: &Document<'_>,
    faulty: &BTreeSet<String>,
    errors: &mut Vec<Error>,
) -> Option<Pipeline> {
    let (sound, mut errors) = (Sound(faulty), Errors(errors));
    let is_sound = |section: &str| sound.section(section);
    job(
        &file.job,
        document,
        |key| sound.part("job", key),
        &mut errors,
    );
    for key in file.store.options.keys() {
        errors.note(option(key, document));
    }
    tables(&file.tables, document, &mut errors);
    fits(&file, &sound, document, &mut errors);
    let transitions = kinds::rows(&mut file, document, is_sound, &mut errors);
    if let NamesFrom::Output(location) = &file.names.from {
        errors.note(check_location(location, &["names", "from"], document));
    }
    if let Some(transitions) = transitions.as_ref().filter(|_| is_sound("fit")) {
        errors.note(key_columns(transitions, &file.fit, document));
    }
    if let Some(keys) = &file.validation
        && is_sound("validation")
    {
        errors.note(validation(keys, document));
    }
    let transitions = transitions?;
    let facts = Facts {
        file: &file,
        input: &transitions.input,
        document,
        are_fits_sound: is_sound("fit"),
    };
    kinds::keys(&facts, &mut errors);
    output_tables(&file.output, &transitions.input, document, &mut errors);
    let mut pipeline = Pipeline {
        file: None,
        job: file.job,
        store: file.store,
        tables: file.tables,
        checks: Checks::default(),
        transitions,
        names: file.names,
        fits: Vec::new(),
        embeddings: Vec::new(),
        point_fits: Vec::new(),
        sequence_fits: Vec::new(),
        filter_fits: Vec::new(),
        validation: file.validation,
        output: file.output,
        densities: file.densities,
    };
    for (n, fit) in file.fit.iter().enumerate() {
        errors.note(kinds::fit(fit, n, &pipeline.transitions.input, document));
        errors.note(add(&mut pipeline, fit, n, document));
    }
    if !is_sound("checks") || !is_sound("check") {
        return None;
    }
    let partition_by = &pipeline.transitions.partition_by;
    let checks = checks(file.checks, file.check, partition_by, document);
    pipeline.checks = errors.note(checks)?;
    Some(pipeline)
}

/// Adds a fit to those of its kind. `n` is its index.
fn add(
    pipeline: &mut Pipeline,
    fit: &FitEntry<AnyMethod>,
    n: usize,
    document: &Document<'_>,
) -> Result<()> {
    match (&fit.method, pipeline.transitions.input.kind()) {
        (AnyMethod::OfCounts(own), _) => pipeline.fits.push(fit.with(own)),
        (AnyMethod::OfSymbols(own), _) => pipeline.sequence_fits.push(fit.with(own)),
        (AnyMethod::OfObservations(own), _) => pipeline.filter_fits.push(fit.with(own)),
        (AnyMethod::OfPoints(own), POINTS) => pipeline.point_fits.push(fit.with(own)),
        (AnyMethod::OfPoints(own), COUNTS) => {
            let kernel = kernel(&pipeline.transitions);
            let method = ChainMethod::of_points(own, kernel).map_err(|(key, what)| {
                let message = format!("`fit.{}.{key}` {what}", fit.name);
                document.error_at(&["fit", &n.to_string(), key], &message)
            })?;
            let embedding = method.map(|method| fit.with(&method));
            pipeline.embeddings.extend(embedding);
        }
        (AnyMethod::OfPoints(_), _) => {}
    }
    Ok(())
}

/// How the counts of a chain become a kernel. States of trajectories are of one kind, and so are
/// those of pairs with `connected = true`. The states of other pairs need not be.
fn kernel(transitions: &Transitions) -> ChainKernel {
    if transitions.connected || !matches!(transitions.input, Input::Pairs { .. }) {
        ChainKernel::Symmetrised
    } else {
        ChainKernel::TwoSteps
    }
}

/// Checks each fit by itself and against the earlier ones.
fn fits(file: &PipelineFile, sound: &Sound<'_>, document: &Document<'_>, errors: &mut Errors<'_>) {
    let folds = file.validation.as_ref().map_or(0, |keys| keys.folds);
    let lacks_folds = folds == 0 && sound.section("validation");
    // Output column names so far, each with the fit it comes from.
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for (n, fit) in file.fit.iter().enumerate() {
        // Two fits may have the same name by mistake, so the index identifies a fit. It is wrong if
        // faulty fits are missing.
        let segment = if sound.section("fit") {
            n.to_string()
        } else {
            fit.name.clone()
        };
        if sound.part("fit", &fit.name) {
            let earlier = &file.fit[..n];
            errors.note(self::fit(fit, earlier, &segment, &mut names, document));
        }
        let is_of_counts = matches!(fit.method, AnyMethod::OfCounts(_));
        if lacks_folds && is_of_counts && fit.rule.is_some_and(Rule::needs_folds) {
            let message = format!(
                "`fit.{}.rule` scores ranks with what was held out, and so needs `folds` in `[validation]`, such as `folds = 5`",
                fit.name
            );
            errors.add(document.error_at(&["fit", &segment, "rule"], &message));
        }
    }
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
    let fail = |key: &str, message: String| document.wrong(&["validation", key], message);
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
