//! How many states and how much weight each set has.

use crate::error::Result;
use crate::report::chart::{Bar, bars};
use crate::report::figure::Figure;
use crate::report::model::Model;
use crate::report::style::{listed, number, set_colour, set_name};

/// At most this number of bars.
const MOST: usize = 40;

const STATES: &str = "The number of source states in each set. The picture misleads about \
    importance: many states can have few transitions, see the weights.";

const WEIGHTS: &str = "The probability that a source is in each set, or the weight of each \
    cluster. The picture misleads when the sample is not representative: weights are shares of \
    the rows that were read.";

/// Sizes and weights of the sets of each fit.
///
/// # Errors
/// If `fits` or `centroids` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let rows = model.rows("fits", &["fit", "source_sizes", "weights"])?;
    let centroids = model.rows("centroids", &["fit", "cluster", "weight"])?;
    for fit in fits {
        let own = rows.having("fit", fit);
        let first = |name: &str| own.lists(name).into_iter().next().unwrap_or_default();
        let clusters = centroids.having("fit", fit).floats("weight");
        for (kind, values, caption) in [
            (["sizes", "states"], first("source_sizes"), STATES),
            (["weights", "weight"], first("weights"), WEIGHTS),
            (["clusters", "weight"], clusters, WEIGHTS),
        ] {
            figures.extend(figure(fit, kind, &values, caption));
        }
    }
    Ok(figures)
}

fn figure(
    fit: &str,
    [kind, what]: [&str; 2],
    values: &[f64],
    caption: &'static str,
) -> Option<Figure> {
    let bar = |(set, value): (usize, &f64)| Bar {
        name: set.to_string(),
        value: *value,
        colour: set_colour(set as i64),
        tip: format!("{}: {what} {}", set_name(set as i64), number(*value)),
    };
    let all = values.iter().take(MOST).enumerate().map(bar);
    let all = all.collect::<Vec<_>>();
    let svg = bars(&all, ["set", what])?;
    let tips = listed(all.iter().take(12).map(|bar| &bar.tip));
    let alt = format!("Bars of the sets of {fit}. {tips}.");
    let title = match kind {
        "clusters" => format!("{fit}: weights of clusters"),
        kind => format!("{fit}: {kind} of sets"),
    };
    Some(Figure::new([kind, fit], &title, &alt, caption, svg))
}
