//! Estimates of filters with their bands, beside known states.

use crate::error::Result;
use crate::report::chart::{Mark, Series, lines};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows, column};
use crate::report::style::number;
use polars::prelude::{DataType, lit};

/// At most this number of rows in a chart.
const ROWS: u32 = 100;

/// At most this number of coordinates of the state.
const COORDINATES: usize = 2;

const OVER_TIME: &str = "The estimated mean of a coordinate of the state with a band of two \
    standard deviations, and the known states, over the first rows of the first trajectory. \
    About 19 of 20 known states should be in the band. The band says how certain the filter is, and not how \
    right: compare the test error of the fit.";

const ROW_BY_ROW: &str = "The estimated mean of a coordinate of the state with two standard \
    deviations, against the known state of the row. A good filter is near the diagonal. The \
    picture misleads about rows without a known state, which are not drawn.";

/// The estimates of all fits.
///
/// # Errors
/// If `estimates` or `trajectories` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let columns = model.columns("estimates")?;
    let means = fits.iter().map(|fit| format!("{fit}_mean"));
    let means = means.collect::<Vec<_>>();
    let keys = columns.iter().skip(model.keys.len());
    let keys = keys.take_while(|name| *name != KNOWN && !means.contains(name));
    let keys = keys.map(String::as_str).collect::<Vec<_>>();
    if columns.iter().all(|name| !means.contains(name)) {
        return Ok(figures);
    }
    let n = of_trajectories(model)?;
    let chart = Chart {
        trajectory: &keys[..n.unwrap_or(0).min(keys.len())],
        time: n.and_then(|n| keys.get(n).copied()),
    };
    let is_known = columns.iter().any(|name| name == KNOWN);
    if chart.time.is_none() && !is_known {
        return Ok(figures);
    }
    for fit in fits {
        if columns.contains(&format!("{fit}_mean")) {
            figures.extend(chart.figures(model, fit, is_known)?);
        }
    }
    Ok(figures)
}

/// The column of known states.
pub(crate) const KNOWN: &str = "known_state";

/// The number of columns that identify a trajectory; nothing if rows have no time.
fn of_trajectories(model: &Model<'_>) -> Result<Option<usize>> {
    if !model.has("trajectories") {
        return Ok(None);
    }
    let columns = model.columns("trajectories")?;
    let keys = columns.iter().skip(model.keys.len());
    let keys = keys.take_while(|name| *name != "rows").count();
    // With a split, its column is between the trajectory and the number of rows.
    let estimates = model.columns("estimates")?;
    let last = columns.get(model.keys.len() + keys.saturating_sub(1));
    let at = model.keys.len() + keys.saturating_sub(1);
    let is_split = keys > 0 && estimates.get(at) != last;
    Ok(Some(keys - usize::from(is_split)))
}

/// The column of the split, if rows have one and a time.
///
/// # Errors
/// If `estimates` or `trajectories` cannot be read.
pub(crate) fn split_column(model: &Model<'_>) -> Result<Option<String>> {
    let Some(n) = of_trajectories(model)? else {
        return Ok(None);
    };
    let after = model
        .columns("trajectories")?
        .into_iter()
        .nth(model.keys.len() + n);
    Ok(after.filter(|name| name != "rows"))
}

/// The columns that a chart needs beside those of the fit.
struct Chart<'a> {
    trajectory: &'a [&'a str],
    /// Nothing if rows are independent.
    time: Option<&'a str>,
}

impl Chart<'_> {
    fn figures(&self, model: &Model<'_>, fit: &str, is_known: bool) -> Result<Vec<Figure>> {
        let rows = self.rows(model, fit, is_known)?;
        let means = rows.lists(&format!("{fit}_mean"));
        let width = means.iter().map(Vec::len).max().unwrap_or_default();
        let all = (0..width.min(COORDINATES)).filter_map(|k| self.figure(&rows, fit, k));
        Ok(all.collect())
    }

    /// The rows of the first trajectory, or the first rows.
    fn rows(&self, model: &Model<'_>, fit: &str, is_known: bool) -> Result<ResultRows> {
        let mut query = model.scan("estimates")?;
        if !self.trajectory.is_empty() {
            let keys = self.trajectory.iter();
            let keys = keys.map(|name| column(name).cast(DataType::String));
            let first = query.clone().select(keys.collect::<Vec<_>>()).limit(1);
            let first = model.collect("estimates", first)?;
            for name in self.trajectory {
                let value = first.texts(name).into_iter().next().flatten();
                let key = column(name).cast(DataType::String);
                query = query.filter(match value {
                    Some(value) => key.eq(lit(value)),
                    None => key.is_null(),
                });
            }
        }
        if self.time.is_none() {
            query = query.filter(column(KNOWN).is_not_null());
        }
        let [mean, variance] = ["mean", "variance"].map(|what| format!("{fit}_{what}"));
        let mut wanted = vec![mean.as_str(), variance.as_str()];
        wanted.extend(self.time);
        if is_known {
            wanted.push(KNOWN);
        }
        let wanted = wanted.into_iter().map(column).collect::<Vec<_>>();
        model.collect("estimates", query.select(wanted).limit(ROWS))
    }

    fn figure(&self, rows: &ResultRows, fit: &str, k: usize) -> Option<Figure> {
        let at_k = |list: Vec<f64>| list.get(k).copied().unwrap_or(f64::NAN);
        let of = |name: &str| rows.lists(name).into_iter().map(at_k).collect::<Vec<_>>();
        let (means, variances) = (of(&format!("{fit}_mean")), of(&format!("{fit}_variance")));
        let known = of(KNOWN);
        let time = self.time.filter(|time| rows.is_number(time));
        let (x, label) = match (self.time, time) {
            (None, _) => (known.clone(), "known state"),
            (_, Some(time)) => (rows.floats(time), time),
            (Some(_), None) => {
                let at = (0..rows.len()).map(|row| row as f64);
                (at.collect(), "row of the trajectory")
            }
        };
        let coordinate = format!("coordinate {k}");
        let (mut estimates, mut states) = (Vec::new(), Vec::new());
        let mut inside = 0;
        for row in 0..rows.len() {
            let deviation = variances[row].max(0.0).sqrt();
            let [low, high] = [means[row] - 2.0 * deviation, means[row] + 2.0 * deviation];
            let [at, m, d, s] = [x[row], means[row], 2.0 * deviation, known[row]].map(number);
            estimates.push(Mark {
                at: [x[row], means[row]],
                interval: [low, high],
                tip: format!("{label} {at}: estimate {m} ± {d}, known state {s}"),
            });
            if known[row].is_finite() {
                inside += usize::from((low..=high).contains(&known[row]));
                let tip = format!("{label} {at}: known state {s}, estimate {m} ± {d}");
                states.push(Mark::new([x[row], known[row]], tip));
            }
        }
        let n_known = states.len();
        let (series, caption) = match self.time {
            Some(_) => {
                let band = Series {
                    is_band: true,
                    ..Series::line("estimate", estimates)
                };
                ([band, Series::points("known state", states)], OVER_TIME)
            }
            None => {
                let equal = Series::line("equal to the known state", states);
                ([Series::points("estimate", estimates), equal], ROW_BY_ROW)
            }
        };
        let svg = lines(&series, [label, coordinate.as_str()], false)?;
        let alt = format!(
            "Estimates of {fit}, {coordinate} of the state, with two standard deviations, over {} \
             rows. {inside} of {n_known} known states are within two standard deviations.",
            rows.len()
        );
        let title = format!("{fit}: estimates, {coordinate}");
        let name = format!("{fit}-{k}");
        Some(Figure::new(
            ["estimates", &name],
            &title,
            &alt,
            caption,
            svg,
        ))
    }
}
