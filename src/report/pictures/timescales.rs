//! Timescales against lag, and the Chapman–Kolmogorov test.

use crate::error::Result;
use crate::report::chart::{MOST_SERIES, Mark, Series, lines};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows};
use crate::report::style::number;

const TIMESCALES: &str = "Timescales of each lag with their intervals. They should not depend on \
    the lag: a flat line is a Markov process. The picture misleads at short lags, where \
    timescales are too short, and at lags longer than a timescale, which are noise.";

const TEST: &str = "Points are the probabilities to stay that the model predicts for several \
    steps. A bar goes from each point to the probability that is estimated from the data, so \
    short bars are good. Agreement of a few probabilities does not prove that the process is \
    Markov.";

/// Timescales of all lags (with the first lag) and the test of this model.
///
/// # Errors
/// If `timescales` or `chapman_kolmogorov` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if let Some(lags) = model.with_all_lags()? {
        let keys = ["lag", "lag_seconds", "fit", "index"];
        let columns = [&keys[..], &["timescale", "low", "high"]].concat();
        let rows = lags.rows("timescales", &columns)?;
        let of = |fit: &String| timescales(&rows.having("fit", fit), fit);
        figures.extend(fits.iter().filter_map(of));
    }
    let keys = ["fit", "steps", "from_set", "to_set"];
    let columns = [&keys[..], &["predicted", "estimated"]].concat();
    let rows = model.rows("chapman_kolmogorov", &columns)?;
    for fit in fits {
        figures.extend(test(&rows.having("fit", fit), fit));
    }
    Ok(figures)
}

fn timescales(rows: &ResultRows, fit: &str) -> Option<Figure> {
    let seconds = rows.floats("lag_seconds");
    let is_time = seconds.iter().any(|x| x.is_finite());
    let lags = if is_time { seconds } else { rows.floats("lag") };
    let [index, value, low, high] =
        ["index", "timescale", "low", "high"].map(|name| rows.floats(name));
    let mut series: Vec<Series> = Vec::new();
    for at in 0..rows.len() {
        let k = index[at] as usize;
        while series.len() <= k.min(MOST_SERIES) {
            let name = format!("timescale {}", series.len());
            series.push(Series::new(&name, Vec::new()));
        }
        let Some(own) = series.get_mut(k) else {
            continue;
        };
        let [lag, x, l, h] = [lags[at], value[at], low[at], high[at]].map(number);
        own.marks.push(Mark {
            at: [lags[at], value[at]],
            interval: [low[at], high[at]],
            tip: format!("timescale {k} at lag {lag}: {x}, from {l} to {h}"),
        });
    }
    series.retain(|s| s.marks.iter().any(|m| m.at[1].is_finite()));
    let n = series.len();
    let unit = if is_time { "lag (s)" } else { "lag" };
    let svg = lines(&series, [unit, "timescale"], true)?;
    let alt = format!("{n} timescales of {fit} against the lag, on a logarithmic axis.");
    let title = format!("{fit}: timescales by lag");
    Some(Figure::new(
        ["timescales", fit],
        &title,
        &alt,
        TIMESCALES,
        svg,
    ))
}

fn test(rows: &ResultRows, fit: &str) -> Option<Figure> {
    let (from, to) = (rows.sets("from_set"), rows.sets("to_set"));
    let [steps, predicted, estimated] =
        ["steps", "predicted", "estimated"].map(|name| rows.floats(name));
    let n = from.iter().max()? + 1;
    let series = (0..n.min(MOST_SERIES as i64)).map(|set| {
        let own = (0..rows.len()).filter(|at| from[*at] == set && to[*at] == set);
        let marks = own.map(|at| {
            let (here, there) = (predicted[at], estimated[at]);
            let [k, p, e] = [steps[at], here, there].map(number);
            Mark {
                at: [steps[at], here],
                // From the prediction to the estimate.
                interval: [here.min(there), here.max(there)],
                tip: format!("set {set}, {k} steps: predicted {p}, estimated {e}"),
            }
        });
        Series::new(&format!("set {set}"), marks.collect())
    });
    let series = series.collect::<Vec<_>>();
    let svg = lines(&series, ["steps", "probability to stay"], false)?;
    let off = (0..rows.len()).map(|at| (predicted[at] - estimated[at]).abs());
    let off = off.filter(|x| x.is_finite()).fold(0.0, f64::max);
    let alt = format!(
        "Chapman–Kolmogorov test of {fit}: predicted and estimated probabilities to stay in a \
         set differ by at most {}.",
        number(off)
    );
    let title = format!("{fit}: Chapman–Kolmogorov test");
    let name = ["chapman-kolmogorov", fit];
    Some(Figure::new(name, &title, &alt, TEST, svg))
}
