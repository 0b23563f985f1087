//! Criteria of the ranks that were compared, with errors and the choice.

use crate::error::Result;
use crate::report::chart::{Mark, Series, lines};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows};
use crate::report::style::{label, number};

const CAPTION: &str = "A criterion of each rank, with its standard error where it has one, and \
    the rank that was chosen. The picture misleads when errors are large: ranks \
    within one error of each other predict equally well.";

/// The columns of a criterion, its error and its name.
const CRITERIA: [[&str; 3]; 4] = [
    ["held_out", "held_out_error", "held-out log-likelihood"],
    ["vamp_2", "vamp_2_error", "held-out VAMP-2 score"],
    ["bic", "", "BIC"],
    ["gap", "", "gap of singular values"],
];

/// One picture per fit and criterion.
///
/// # Errors
/// If `ranks` cannot be read.
pub(crate) fn figures(model: &Model<'_>) -> Result<Vec<Figure>> {
    let names = CRITERIA.iter().flatten().copied();
    let names = names.filter(|n| !n.is_empty() && !n.contains(' '));
    let wanted = ["fit", "rank", "is_chosen", "reason"].into_iter();
    let wanted = wanted.chain(names);
    let rows = model.rows("ranks", &wanted.collect::<Vec<_>>())?;
    let mut fits = rows.texts("fit").into_iter().flatten().collect::<Vec<_>>();
    fits.dedup();
    let mut figures = Vec::new();
    for fit in fits {
        let own = rows.having("fit", &fit);
        figures.extend(CRITERIA.iter().filter_map(|c| figure(&own, &fit, c)));
    }
    Ok(figures)
}

fn figure(rows: &ResultRows, fit: &str, [value, error, name]: &[&str; 3]) -> Option<Figure> {
    let (ranks, values, errors) = (rows.floats("rank"), rows.floats(value), rows.floats(error));
    if values.iter().all(|x| x.is_nan()) {
        return None;
    }
    let marks = (0..rows.len()).map(|at| {
        let [rank, value, error] = [ranks[at], values[at], errors[at]].map(number);
        Mark {
            at: [ranks[at], values[at]],
            interval: [values[at] - errors[at], values[at] + errors[at]],
            tip: format!("rank {rank}: {name} {value} ± {error}"),
        }
    });
    let mut series = vec![Series::new(name, marks.collect())];
    let chosen = rows.texts("is_chosen");
    let reasons = rows.texts("reason");
    let chosen = chosen.iter().position(|c| c.as_deref() == Some("true"));
    if let Some(at) = chosen {
        let rank = number(ranks[at]);
        let tip = format!("rank {rank} was chosen");
        let mark = Mark::new([ranks[at], values[at]], tip);
        series.push(Series::points(&format!("rank {rank}, chosen"), vec![mark]));
    }
    let svg = lines(&series, ["rank", name], false)?;
    let choice = match chosen {
        Some(at) => {
            let reason = reasons[at].as_deref().map(label).unwrap_or_default();
            format!("Rank {} was chosen ({reason}).", number(ranks[at]))
        }
        None => "No rank was chosen.".to_string(),
    };
    let alt = format!("{name} of {fit} for {} ranks. {choice}", rows.len());
    let title = format!("{fit}: {name} by rank");
    let name = format!("{fit}-{value}");
    Some(Figure::new(["ranks", &name], &title, &alt, CAPTION, svg))
}
