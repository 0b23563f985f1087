//! Bootstrap intervals of singular values and weights.

use crate::error::Result;
use crate::report::chart::{Mark, Series, lines};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows};
use crate::report::style::number;

const CAPTION: &str = "The value of the fit and the percentile interval of the resamples. An \
    interval that overlaps the next one says that the order of the two is not certain. The \
    picture misleads about bias: values of resamples are too high on average.";

/// The metrics with an index, and the name of the index.
const METRICS: [[&str; 2]; 2] = [["singular_value", "index"], ["weight", "set"]];

/// One picture per fit and metric.
///
/// # Errors
/// If `bootstrap` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let columns = ["fit", "metric", "index", "value", "low", "high"];
    let rows = model.rows("bootstrap", &columns)?;
    let mut figures = Vec::new();
    for fit in fits {
        let own = rows.having("fit", fit);
        for metric in METRICS {
            figures.extend(figure(&own.having("metric", metric[0]), fit, metric));
        }
    }
    Ok(figures)
}

fn figure(rows: &ResultRows, fit: &str, [metric, index]: [&str; 2]) -> Option<Figure> {
    let [at, value, low, high] = ["index", "value", "low", "high"].map(|name| rows.floats(name));
    let shown = metric.replace('_', " ");
    let marks = (0..rows.len()).map(|k| {
        let [i, x, l, h] = [at[k], value[k], low[k], high[k]].map(number);
        Mark {
            at: [at[k], value[k]],
            interval: [low[k], high[k]],
            tip: format!("{shown} {i}: {x}, from {l} to {h}"),
        }
    });
    let marks = marks.collect::<Vec<_>>();
    let tips = marks.iter().take(8).map(|m| m.tip.clone());
    let tips = tips.collect::<Vec<_>>().join("; ");
    let series = match metric {
        "weight" => Series::points(fit, marks),
        _ => Series::new(fit, marks),
    };
    let svg = lines(&[series], [index, &shown], false)?;
    let alt = format!("Bootstrap intervals of {fit}. {tips}.");
    let title = format!("{fit}: intervals of the {shown}");
    let name = format!("{fit}-{metric}");
    Some(Figure::new(
        ["bootstrap", &name],
        &title,
        &alt,
        CAPTION,
        svg,
    ))
}
