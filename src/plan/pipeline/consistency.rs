//! Checks that the keys of a pipeline file agree: file → [`Pipeline`], or all errors.

use crate::assess::ranks::Rule;
use crate::error::{Error, Result, counted, nearest};
use crate::evidence::lag::Lag;
use crate::methods::heat_kernel::params::ChainKernel;
use crate::methods::{AnyMethod, ChainMethod, Method, PointMethod};
use crate::plan::pipeline::argument::Argument;
use crate::plan::pipeline::checks;
use crate::plan::pipeline::content::{Input, PairMeasure, Pipeline, Transitions};
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::{
    Densities, Empty, InputTable, Job, NamesFrom, OutputRows, PipelineFile, PointsText,
    TransitionsText, Validation, Window,
};
use crate::read::formats::format::{Compression, Format};
use crate::read::lake::files::Query;
use crate::read::points::layout::Scale;
use crate::read::rows::bins::Binning;
use crate::store;
use std::collections::{BTreeMap, BTreeSet};

/// Columns that gyre writes beside the state columns.
const OUTPUT_COLUMNS: [&str; 6] = [
    "lag",
    "lag_seconds",
    "count",
    "probability",
    "fit",
    "latent",
];

/// The maximum of `validation.folds` for rows with coordinates.
const MAX_POINT_FOLDS: usize = 20;

/// The maximum of `job.keep`: the pointer to the current result lists all earlier ones.
const MAX_KEPT: u32 = 1000;

/// Collects errors.
struct Errors<'a>(&'a mut Vec<Error>);

impl Errors<'_> {
    fn add(&mut self, error: Error) {
        self.0.push(error);
    }

    /// The value; an error is added to the list.
    fn note<T>(&mut self, checked: Result<T>) -> Option<T> {
        checked.map_err(|e| self.0.push(e)).ok()
    }
}

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
    if file.fit.is_empty() && are_fits_sound {
        errors.add(document.error_at(&["fit"], "a pipeline needs at least one `[[fit]]`"));
    }
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
    let transitions = match (file.transitions, file.points) {
        (Some(text), None) if is_sound("transitions") => transitions(text, document, &mut errors),
        (None, Some(text)) if is_sound("points") => points(text, document, &mut errors),
        (Some(_), Some(_)) => {
            let message = "`[transitions]` and `[points]` exclude each other: rows have a time, or they have none";
            errors.add(document.error_at(&["points"], message));
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
    errors.note(output_rows(&file.output.rows, is_points, document));
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
    for (n, fit) in file.fit.into_iter().enumerate() {
        errors.note(fits_input(&fit, n, &transitions.input, document));
        match fit.method {
            AnyMethod::OfCounts(_) => fits.extend(fit.narrow(of_counts)),
            AnyMethod::OfPoints(_) if transitions.input.is_points() => {
                point_fits.extend(fit.narrow(of_points));
            }
            AnyMethod::OfPoints(_) => {
                let method = errors.note(of_chain(&fit, n, &transitions, document));
                embeddings.extend(fit.narrow(|_| method?));
            }
        }
    }
    if fits.is_empty() && !embeddings.is_empty() && document.root.get("validation").is_some() {
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
        validation: file.validation,
        output: file.output,
        densities: file.densities,
    })
}

fn of_counts(method: AnyMethod) -> Option<Method> {
    match method {
        AnyMethod::OfCounts(method) => Some(method),
        AnyMethod::OfPoints(_) => None,
    }
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

fn of_points(method: AnyMethod) -> Option<PointMethod> {
    match method {
        AnyMethod::OfPoints(method) => Some(method),
        AnyMethod::OfCounts(_) => None,
    }
}

/// Checks that a pipeline of points has no keys that are about states or their counts.
fn no_keys_of_states(job: &Job, document: &Document<'_>) -> Result<()> {
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
fn output_rows(rows: &OutputRows, is_points: bool, document: &Document<'_>) -> Result<()> {
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
fn point_validation(
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
fn densities(keys: &Densities, input: &Input, document: &Document<'_>) -> Result<()> {
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

/// Checks that a method is for the evidence that the rows give. `n` is the index of the fit.
fn fits_input(
    fit: &FitEntry<AnyMethod>,
    n: usize,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let name = fit.method.name();
    let (needs, has) = match (&fit.method, input) {
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

fn job(
    job: &Job,
    document: &Document<'_>,
    is_sound: impl Fn(&str) -> bool,
    errors: &mut Errors<'_>,
) {
    let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
    let is_name = !job.name.is_empty() && job.name.bytes().all(fits);
    if is_sound("name") && !is_name {
        let message = format!(
            "`job.name` must consist of letters, digits, `_` and `-`, not {:?}",
            job.name
        );
        errors.add(document.error_at(&["job", "name"], &message));
    }
    if job.keep > MAX_KEPT {
        let message = format!("`job.keep` must be {MAX_KEPT} at most, not {}", job.keep);
        errors.add(document.error_at(&["job", "keep"], &message));
    }
    if !is_sound("output") {
        return;
    }
    errors.note(check_location(&job.output, &["job", "output"], document));
    if job.output.starts_with("http") && job.output.contains("://") {
        let message =
            "`job.output` cannot be written: http:// and https:// locations are read alone";
        errors.add(document.error_at(&["job", "output"], message));
    }
}

fn option(key: &str, document: &Document<'_>) -> Result<()> {
    if store::is_option(key) {
        return Ok(());
    }
    let known: Vec<&str> = store::OPTIONS.split_whitespace().collect();
    let hint = match nearest(key, &known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "options are the environment variables of the clouds in lower case, such as `aws_region`".into(),
    };
    let message = format!("unknown key `store.options.{key}`; {hint}");
    Err(document.error_at(&["store", "options", key], &message))
}

/// Checks a path or a URL. The message does not repeat the location, which may contain a secret.
fn check_location(location: &str, path: &[&str], document: &Document<'_>) -> Result<()> {
    not_blank(location, path, document)?;
    store::check(location).map_err(|message| {
        let message = format!("`{}`: {message}", path.join("."));
        document.error_at(path, &message)
    })
}

fn tables(tables: &BTreeMap<String, InputTable>, document: &Document<'_>, errors: &mut Errors<'_>) {
    for (name, table) in tables {
        if name.trim().is_empty() {
            errors.add(document.error_at(&["tables", name], "a table needs a name"));
        }
        for path in &table.path {
            errors.note(check_location(path, &["tables", name, "path"], document));
        }
        errors.note(text_options(name, table, document));
    }
}

/// Checks that the options of CSV are only given for CSV, and `compression` only for text formats.
fn text_options(name: &str, table: &InputTable, document: &Document<'_>) -> Result<()> {
    let kind = table.kind();
    let wrong = |key: &str, what: &str| {
        let message = format!("`tables.{name}.{key}` {what}");
        Err(document.error_at(&["tables", name, key], &message))
    };
    let of_csv = [
        ("delimiter", table.delimiter.is_some()),
        ("header", table.header.is_some()),
        ("quote", table.quote.is_some()),
        ("null", !table.null.is_empty()),
    ];
    let has = |(key, is_there): (&'static str, bool)| is_there.then_some(key);
    if let Some(key) = of_csv.into_iter().find_map(has)
        && kind != Format::Csv
    {
        let what = format!("goes with CSV files alone, and these are {}", kind.name());
        return wrong(key, &what);
    }
    let is_packed = |path: &String| Compression::of_name(path).1 != Compression::None;
    if matches!(kind, Format::Parquet | Format::Arrow) {
        let why = format!(
            "is for CSV and JSON files: {} files are compressed inside",
            kind.name()
        );
        if table.compression.is_some() {
            return wrong("compression", &why);
        }
        if table.path.iter().any(is_packed) {
            let what = "names files that are compressed as a whole, which";
            return wrong("path", &format!("{what} {why}; unpack them"));
        }
    }
    let is_unknown = |path: &String| path.ends_with(".bz2") || path.ends_with(".xz");
    if table.path.iter().any(is_unknown) {
        let what =
            "names files whose compression gyre does not read; unpack them, or use gzip or zstd";
        return wrong("path", what);
    }
    let quote = table.quote.unwrap_or('"');
    for (key, character) in [("delimiter", table.delimiter), ("quote", table.quote)] {
        let Some(character) = character else { continue };
        if !character.is_ascii() || matches!(character, '\n' | '\r' | '\0') {
            return wrong(key, "must be one ASCII character that ends no line");
        }
    }
    if table.delimiter.unwrap_or(',') == quote {
        let key = if table.quote.is_some() {
            "quote"
        } else {
            "delimiter"
        };
        return wrong(key, "must not be both the delimiter and the quote");
    }
    Ok(())
}

fn not_blank(text: &str, path: &[&str], document: &Document<'_>) -> Result<()> {
    if text.trim().is_empty() {
        let message = format!("`{}` must not be empty", path.join("."));
        return Err(document.error_at(path, &message));
    }
    Ok(())
}

fn transitions(
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

/// The section `[points]`.
fn points(
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
fn scale(
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

fn query(
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
fn input(text: TransitionsText, document: &Document<'_>) -> Result<Input> {
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

fn needs(key: &str, document: &Document<'_>) -> Error {
    document.error_at(
        &["transitions"],
        &format!("the table `transitions` needs the key {key}"),
    )
}

fn trajectories(mut text: TransitionsText, document: &Document<'_>) -> Result<Input> {
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
    let mut bins = Vec::with_capacity(text.bins.0.len());
    for (column, bin) in text.bins.0 {
        let binning = Binning::new(&bin).map_err(|(key, message)| {
            let mut path = vec!["transitions", "bins", &column];
            if !key.is_empty() {
                path.push(key);
            }
            document.error_at(&path, &format!("`{}` {message}", path.join(".")))
        })?;
        bins.push((column, binning));
    }
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

/// Rows of trajectories with coordinates.
fn point_pairs(text: TransitionsText, time: String, document: &Document<'_>) -> Result<Input> {
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
fn interval(
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

fn lags(lags: &[Lag], document: &Document<'_>) -> Result<()> {
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

fn pairs(text: TransitionsText, document: &Document<'_>) -> Result<Input> {
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
fn roles<'a>(partition_by: &'a [String], input: &'a Input) -> Vec<(&'static str, &'a str)> {
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
fn distinct_columns(partition_by: &[String], input: &Input, document: &Document<'_>) -> Result<()> {
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

/// Checks that no partition or state column has the name of a column that gyre writes beside it.
fn key_columns(
    transitions: &Transitions,
    fits: &[FitEntry<AnyMethod>],
    document: &Document<'_>,
) -> Result<()> {
    let section = transitions.input.section();
    let is_points = transitions.input.is_points();
    for (key, column) in roles(&transitions.partition_by, &transitions.input) {
        let is_written = match key {
            "partition_by" | "state" | "bins" | "source" | "target" => true,
            "trajectory" | "time" | "id" => is_points,
            _ => false,
        };
        if !is_written {
            continue;
        }
        let of_fit = fits.iter().flat_map(FitEntry::expanded).any(|(_, fit)| {
            ["affiliation", "embedding", "membership"]
                .iter()
                .any(|of| column == format!("{fit}_{of}"))
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
