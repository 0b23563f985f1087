//! The worst trajectories of sequences and filters.

use crate::error::Result;
use crate::report::chart::{Bar, bars};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows, column};
use crate::report::style::{listed, number, set_colour, short};
use polars::prelude::SortMultipleOptions;

/// At most this number of trajectories in a chart.
const TRAJECTORIES: u32 = 15;

const WORST: &str = "The trajectories that the model explains least. A bar is the mean of −ln of \
    the probability of a row, in nats: high bars surprise the model most. They are unusual, or the model lacks what they need. The picture misleads about \
    short trajectories, whose means vary most.";

const ERRORS: &str = "The trajectories with the largest mean squared error of the estimates. The \
    picture misleads when trajectories have few rows with a known state.";

/// The pictures of all fits.
///
/// # Errors
/// If `trajectories` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let trajectories = model.columns("trajectories")?;
    for fit in fits {
        for (suffix, caption, is_worst_low) in
            [("mean_log_likelihood", WORST, true), ("mse", ERRORS, false)]
        {
            let value = format!("{fit}_{suffix}");
            if trajectories.contains(&value) {
                let what = [fit.as_str(), suffix];
                figures.extend(worst(model, &trajectories, what, is_worst_low, caption)?);
            }
        }
    }
    Ok(figures)
}

fn worst(
    model: &Model<'_>,
    columns: &[String],
    [fit, suffix]: [&str; 2],
    is_worst_low: bool,
    caption: &'static str,
) -> Result<Option<Figure>> {
    let value = format!("{fit}_{suffix}");
    let keys = columns.iter().skip(model.keys.len());
    // Numbers begin after the keys: rows, or transitions of assigned trajectories.
    let ends = ["rows", "split", "transitions"];
    let keys = keys.take_while(|name| !ends.contains(&name.as_str()));
    let keys = keys.cloned().collect::<Vec<_>>();
    let order = SortMultipleOptions::default().with_order_descending(!is_worst_low);
    let wanted = keys.iter().chain([&value]).map(|name| column(name));
    let query = model.scan("trajectories")?;
    let query = query.select(wanted.collect::<Vec<_>>());
    let query = query.filter(column(&value).is_not_null());
    let query = query.sort([value.as_str()], order);
    let rows = model.collect("trajectories", query.limit(TRAJECTORIES))?;
    let names = names(&rows, &keys);
    let shown = suffix.replace('_', " ");
    let bar = |(name, value): (&String, f64)| Bar {
        name: name.clone(),
        // Bars begin at 0, and log-likelihoods are negative.
        value: if is_worst_low { -value } else { value },
        colour: set_colour(0),
        tip: format!("{name}: {shown} {}", number(value)),
    };
    let all = names.iter().zip(rows.floats(&value)).map(bar);
    let all = all.collect::<Vec<_>>();
    let sign = if is_worst_low { "−" } else { "" };
    let label = format!("{sign}{shown}");
    if all.len() < 2 {
        return Ok(None);
    }
    let Some(svg) = bars(&all, ["trajectory", &label]) else {
        return Ok(None);
    };
    let tips = listed(all.iter().take(3).map(|bar| short(&bar.tip, 80)));
    let alt = format!("The worst trajectories of {fit}: {tips}.");
    let title = format!("{fit}: worst trajectories");
    let name = format!("{fit}-{suffix}");
    let name = ["trajectories", &name];
    Ok(Some(Figure::new(name, &title, &alt, caption, svg)))
}

/// The keys of rows as one text each.
fn names(rows: &ResultRows, keys: &[String]) -> Vec<String> {
    let columns = keys.iter().map(|key| rows.texts(key)).collect::<Vec<_>>();
    let name = |at: usize| listed(columns.iter().map(|c| c[at].as_deref().unwrap_or("null")));
    (0..rows.len()).map(name).collect()
}
