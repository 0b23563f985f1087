//! Shows results: tables in the terminal, and pictures of them on a page.
//!
//! Polars queries the tables, and Kuva draws. This room reads results through `output` alone.

pub(crate) mod answer;
pub(crate) mod assigned;
pub(crate) mod chart;
pub(crate) mod facts;
pub mod figure;
pub mod inspect;
pub(crate) mod labels;
pub mod meanings;
pub mod model;
pub(crate) mod overview;
pub(crate) mod page;
pub(crate) mod pictures;
pub(crate) mod states;
pub mod style;
pub mod tables;

use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::read::paths::current::Current;
use crate::report::facts::{certificates, fits, of_run, record, seconds};
use crate::report::figure::Figure;
use crate::report::model::{Model, assigned_models, models};
use crate::report::page::{Page, Section};
use crate::report::pictures::asked::Asked;
use crate::report::style::file_name;
use crate::report::tables::Tables;
use serde_json::Value;
use std::collections::HashSet;

/// A page has at most this number of partitions and lags.
pub(crate) const MOST_MODELS: usize = 24;

/// What a user chooses to see.
#[derive(Default)]
pub(crate) struct Choice<'a> {
    /// Values that the keys of the models have.
    pub partition: &'a [(String, String)],
    /// The key of the trajectory of estimates.
    pub trajectory: Option<&'a str>,
}

/// The pictures and tables of the result in place, or of the version of an earlier run.
///
/// # Errors
/// If there is no such result, or a table cannot be read.
pub(crate) async fn page(output: &Output, run: Option<&str>, choice: &Choice<'_>) -> Result<Page> {
    page_of(output, &Tables::open(output, run).await?, choice).await
}

/// The page of the tables of a version.
async fn page_of(output: &Output, tables: &Tables, choice: &Choice<'_>) -> Result<Page> {
    let mut earlier = tables.current.earlier.iter();
    let at = earlier.position(|run| *run == tables.current.run);
    let before = tables.current.earlier.get(at.map_or(0, |at| at + 1));
    let before = match before {
        Some(run) => match Tables::open(output, Some(run)).await {
            Err(e) if e.kind() == Kind::Input => {
                tracing::warn!("nothing is compared with the earlier result: {}", e.full());
                None
            }
            before => Some(before?),
        },
        None => None,
    };
    let record = record(output, &tables.current.run).await?;
    draw(tables, before.as_ref(), &record, choice)
}

/// The page of tables, which are compared with earlier ones.
///
/// # Errors
/// If a table cannot be read, or there is nothing that was chosen.
pub(crate) fn draw(
    tables: &Tables,
    before: Option<&Tables>,
    record: &Value,
    choice: &Choice<'_>,
) -> Result<Page> {
    let mut all = if tables.has("fits") {
        models(tables)?
    } else {
        assigned_models(tables, record)?
    };
    for (key, value) in choice.partition {
        all.retain(|model| {
            let mut keys = model.keys.iter();
            keys.any(|(k, v)| k == key && v.as_ref() == Some(value))
        });
        if all.is_empty() {
            return Err(Error::spec(format!(
                "{} has no partition or lag with {key}={value}",
                tables.shown
            )));
        }
    }
    let earlier = match before {
        Some(before) => models(before)?,
        None => Vec::new(),
    };
    let asked = Asked::new(choice.trajectory, record);
    let mut sections: Vec<Section> = Vec::new();
    for model in all.iter().take(MOST_MODELS) {
        let before = earlier.iter().find(|m| m.keys == model.keys);
        let mut next = section(model, before, &asked)?;
        // What does not depend on the lag is drawn for the first lag of a partition.
        let others = all.iter().zip(&sections);
        let others = others.filter(|(other, _)| other.partition() == model.partition());
        let drawn = others.flat_map(|(_, section)| &section.figures);
        let drawn = drawn.map(|figure| (figure.name.as_str(), figure.svg.as_str()));
        let drawn = drawn.collect::<HashSet<_>>();
        let n = next.figures.len();
        let is_new = |figure: &Figure| !drawn.contains(&(&*figure.name, &*figure.svg));
        next.figures.retain(is_new);
        next.repeated = n - next.figures.len();
        next.first = first(&next.figures, next.answer.fit.as_deref());
        sections.push(next);
    }
    if all.len() > MOST_MODELS {
        tracing::warn!(
            "the report has {MOST_MODELS} of {} partitions and lags; choose others with \
             --partition KEY=VALUE",
            all.len()
        );
    }
    let has_estimates =
        |one: &Section| one.figures.iter().any(|f| f.name.starts_with("estimates-"));
    if let Some(key) = choice
        .trajectory
        .filter(|_| !sections.iter().any(has_estimates))
    {
        return Err(Error::spec(format!(
            "{} has no estimates of a trajectory {key}",
            tables.shown
        )));
    }
    let text = |key: &str| record[key].as_str().unwrap_or_default().to_string();
    Ok(Page {
        title: text("pipeline"),
        subtitle: format!(
            "Run {} of {}",
            tables.current.run,
            seconds(&text("started"))
        ),
        answer: answer::of_run(record),
        sections,
        left_out: all.len().saturating_sub(MOST_MODELS),
        listings: of_run(record),
    })
}

fn section(model: &Model<'_>, before: Option<&Model<'_>>, asked: &Asked<'_>) -> Result<Section> {
    let mut answer = answer::of_model(model)?;
    let (sentence, scores) = assigned::summary(model)?.unzip();
    answer.sentences.extend(sentence);
    let figures = pictures::of_model(model, before, asked)?;
    let states = states::listings(model, answer.fit.as_deref())?;
    let (mut below, above): (Vec<_>, Vec<_>) = states.into_iter().partition(|one| one.is_folded);
    below.push(certificates(model)?);
    let above = [fits(model)?].into_iter().chain(scores).chain(above);
    if figures.is_empty() {
        let sentence = "These tables give no picture; gyre inspect prints them.";
        answer.sentences.push(sentence.to_string());
    }
    Ok(Section {
        name: model.name(),
        first: first(&figures, answer.fit.as_deref()),
        figures,
        repeated: 0,
        answer,
        above: above.collect(),
        below,
    })
}

/// Kinds of pictures from that which shows most of a fit. The first that a fit has is drawn large.
const TELLING: [&str; 6] = [
    "map",
    "estimates",
    "transitions",
    "embedding",
    "distortion",
    "ranks",
];

/// The picture that shows the answer: one of the fit to look at, or else the first.
fn first(figures: &[Figure], fit: Option<&str>) -> Option<usize> {
    let of_fit = fit.and_then(|fit| {
        let mut kinds = TELLING.iter();
        kinds.find_map(|kind| {
            let name = file_name(&format!("{kind}-{fit}"));
            let is_own = |figure: &Figure| {
                let rest = figure.name.strip_prefix(&name);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
            };
            figures.iter().position(is_own)
        })
    });
    of_fit.or((!figures.is_empty()).then_some(0))
}

/// The name of the page inside a version.
pub(crate) const REPORT: &str = "report.html";

/// Writes the page of a version that is about to become the result beside its tables.
///
/// # Errors
/// If a table cannot be read, or the page cannot be written.
pub(crate) async fn write_beside(
    output: &Output,
    staged: &Current,
    before: Option<&str>,
) -> Result<()> {
    let tables = Tables::staged(output, staged.clone()).await?;
    let before = match before {
        Some(run) => match output.intact().await? {
            Some(current) if current.run == run => Some(Tables::of(output, current).await?),
            _ => None,
        },
        None => None,
    };
    let record = record(output, &staged.run).await?;
    let page = draw(&tables, before.as_ref(), &record, &Choice::default())?;
    let path = output.version_file(&staged.run, REPORT);
    output.put(&path, page.html().into_bytes()).await
}

/// Draws the result in place into the file beside its tables, unless its run has drawn it. Returns
/// the file, if there is a result.
///
/// # Errors
/// If a table cannot be read, or the page cannot be written.
pub(crate) async fn draw_in_place(output: &Output) -> Result<Option<String>> {
    let Some(current) = output.intact().await? else {
        return Ok(None);
    };
    let path = output.version_file(&current.run, REPORT);
    let marks = output.file_marks(&current.run).await?;
    // A file that is listed belongs to the commit of the version, and stays as it is.
    if !marks.files.contains_key(REPORT) {
        let tables = Tables::of(output, current).await?;
        let page = page_of(output, &tables, &Choice::default()).await?;
        output.put(&path, page.html().into_bytes()).await?;
    }
    Ok(Some(output.show(&path)))
}
