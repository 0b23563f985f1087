//! Errors of filters by step, and how they are spread over rows.

use crate::error::Result;
use crate::report::chart::{Mark, Series, lines};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows, column};
use crate::report::pictures::estimates::{KNOWN, split_column};
use crate::report::style::{listed, number};
use polars::prelude::lit;

/// At most this number of points in a line.
const POINTS: usize = 200;

/// At most this number of rows in a histogram.
const ROWS: usize = 20_000;

/// Bins of a histogram.
const BINS: usize = 30;

const RUNNING: &str = "The mean squared error of each filter over the test rows up to a step, by \
    the number of a row in its trajectory. A line that falls and then stays level is a filter that \
    has forgotten its start. The axis begins at the power of ten below the least value after the \
    first tenth of the steps; smaller values are drawn at its edge. The picture misleads at the \
    first steps, which few rows decide, and at the last ones, to which later errors add little.";

const SPREAD: &str = "The share of test rows by the distance between the decoded and the known \
    state, as its logarithm to base 10. Two peaks are rows that the filter knows and rows that it \
    has lost. The picture misleads about the mean squared error, which a few large errors decide.";

/// The errors of all fits by step, and their histogram; nothing without the table `errors`.
///
/// # Errors
/// If `errors` or `estimates` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if !model.has("errors") {
        return Ok(figures);
    }
    for (name, what) in [
        ("running_mse", "means"),
        ("running_mse_decoded", "decoded states"),
    ] {
        let rows = model.rows("errors", &["fit", "step", name])?;
        figures.extend(running(&rows, fits, name, what));
    }
    figures.extend(spread(model, fits)?);
    Ok(figures)
}

fn running(rows: &ResultRows, fits: &[String], name: &str, what: &str) -> Option<Figure> {
    let (mut series, mut last) = (Vec::new(), Vec::new());
    let of_fit = |fit: &String| {
        let own = rows.having("fit", fit);
        (own.floats("step"), own.floats(name))
    };
    let all = fits.iter().map(of_fit).collect::<Vec<_>>();
    if all.iter().all(|(steps, _)| steps.len() < 2) {
        return None;
    }
    let least = edge(all.iter().map(|(_, errors)| errors.as_slice())).unwrap_or(0.0);
    for (fit, (steps, errors)) in fits.iter().zip(&all) {
        let every = steps.len().div_ceil(POINTS).max(1);
        let marks = (0..steps.len()).filter(|at| at % every == 0 || at + 1 == steps.len());
        let marks = marks.map(|at| {
            // A NaN stays one, while `max` would replace it.
            let shown = if errors[at] < least {
                least
            } else {
                errors[at]
            };
            Mark::new([steps[at], shown], String::new())
        });
        series.push(Series::line(fit, marks.collect()));
        if let Some(error) = errors.last() {
            last.push(format!("{fit} {}", number(*error)));
        }
    }
    let svg = lines(&series, ["step", "mean squared error so far"], true)?;
    let alt = format!(
        "Mean squared errors of {what} over the test rows so far, by step. At the last step: {}.",
        listed(last.into_iter().take(12))
    );
    let title = format!("Running mean squared error of {what}");
    Some(Figure::new(["errors", name], &title, &alt, RUNNING, svg))
}

/// The power of ten at or below all errors after the first tenth of the steps. A filter that knows
/// the first state has an error near 0 at the first steps, for which other lines had no space left.
fn edge<'a>(of_fits: impl Iterator<Item = &'a [f64]>) -> Option<f64> {
    let later = of_fits.flat_map(|errors| &errors[errors.len().div_ceil(10)..]);
    let later = later.filter(|error| error.is_finite() && **error > 0.0);
    let least = later.copied().reduce(f64::min)?;
    Some(10f64.powf(least.log10().floor()))
}

/// The histogram of the distances between decoded and known states.
fn spread(model: &Model<'_>, fits: &[String]) -> Result<Option<Figure>> {
    let columns = model.columns("estimates")?;
    let is_there = |name: &String| columns.contains(name);
    let decoded = fits.iter().map(|fit| (fit, format!("{fit}_decoded")));
    let decoded = decoded.filter(|(_, name)| is_there(name));
    let decoded = decoded.collect::<Vec<_>>();
    let Some(split) = split_column(model)?.filter(is_there) else {
        return Ok(None);
    };
    let query = model.scan("estimates")?;
    let query = query.filter(column(&split).eq(lit("test")));
    let query = query.filter(column(KNOWN).is_not_null());
    let wanted = decoded.iter().map(|(_, name)| column(name));
    let wanted = wanted.chain([column(KNOWN)]).collect::<Vec<_>>();
    let rows = model.sample("estimates", query.select(wanted), ROWS)?;
    let known = rows.lists(KNOWN);
    let of_fits = decoded.iter().map(|(fit, name)| {
        let pairs = rows.lists(name).into_iter().zip(&known);
        let logs = pairs.map(|(own, known)| distance(&own, known).log10());
        (fit.as_str(), logs.collect::<Vec<f64>>())
    });
    Ok(histogram(&of_fits.collect::<Vec<_>>()))
}

/// The distance of two points.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f64>().sqrt()
}

/// The shares of the values of each fit in bins of equal width.
fn histogram(of_fits: &[(&str, Vec<f64>)]) -> Option<Figure> {
    let all = of_fits.iter().flat_map(|(_, logs)| logs);
    let all = all.copied().filter(|log| log.is_finite());
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
        (low.min(log), high.max(log))
    });
    let width = (high - low) / BINS as f64;
    if !width.is_finite() || width <= 0.0 {
        return None;
    }
    let mut medians = Vec::new();
    let series = of_fits.iter().map(|(fit, logs)| {
        let mut counts = [0u32; BINS];
        for log in logs.iter().filter(|log| log.is_finite()) {
            counts[(((log - low) / width) as usize).min(BINS - 1)] += 1;
        }
        let mut sorted = logs.clone();
        sorted.sort_by(f64::total_cmp);
        if let Some(median) = sorted.get(sorted.len() / 2) {
            medians.push(format!("{fit} {}", number(10f64.powf(*median))));
        }
        let mark = |(bin, count): (usize, &u32)| {
            let centre = low + (bin as f64 + 0.5) * width;
            let share = f64::from(*count) / logs.len() as f64;
            let [at, shown] = [10f64.powf(centre), share].map(number);
            let tip = format!("{fit}: {shown} of the rows have an error near {at}");
            Mark::new([centre, share], tip)
        };
        Series::new(fit, counts.iter().enumerate().map(mark).collect())
    });
    let series = series.collect::<Vec<_>>();
    let svg = lines(&series, ["log₁₀ of the error", "share of rows"], false)?;
    let alt = format!(
        "Histogram of the distances between decoded and known states of test rows. Medians: {}.",
        listed(medians.into_iter().take(12))
    );
    let name = ["errors", "histogram"];
    Some(Figure::new(name, "Errors of test rows", &alt, SPREAD, svg))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty steps, of which the first two may have any error. The least one of the others is .03
    /// of the first fit and .002 of the second fit, so the axis begins at .001.
    #[test]
    fn the_axis_of_errors_begins_after_the_first_steps() {
        let close = |found: Option<f64>, expected: f64| {
            let found = found.expect("an edge");
            assert!((found / expected - 1.0).abs() < 1e-12, "{found}");
        };
        let mut first = vec![1e-9, 1e-5];
        first.extend([0.03; 18]);
        let mut second = [0.5; 20];
        second[2] = 0.002;
        close(edge([first.as_slice()].into_iter()), 0.01);
        close(edge([&first[..], &second[..]].into_iter()), 0.001);
        // A power of ten is its own edge. Errors of 0 and of no row have no logarithm.
        close(edge([&[1e-9, 0.01, 0.0, f64::NAN][..]].into_iter()), 0.01);
        assert_eq!(edge([&[][..], &[0.3], &[0.3, 0.0]].into_iter()), None);
    }

    /// Errors .01, .01, .1 and 1, of which the first bin has two and the last bin one.
    #[test]
    fn a_histogram_has_the_shares_of_its_bins() {
        let logs = vec![-2.0, -2.0, -1.0, 0.0];
        let figure = histogram(&[("kf", logs.clone()), ("kb", vec![-1.0; 4])]);
        let figure = figure.expect("a picture");
        assert!(
            figure.alt.ends_with("Medians: kf 0.1, kb 0.1."),
            "{}",
            figure.alt
        );
        assert!(figure.svg.contains("kf: 0.5 of the rows"), "{}", figure.svg);
        assert!(figure.svg.contains("kb: 1 of the rows"), "{}", figure.svg);
        // Equal errors have no bins.
        assert!(histogram(&[("kf", vec![0.0; 3])]).is_none());
        assert!((distance(&[3.0, 0.0], &[0.0, 4.0]) - 5.0).abs() < 1e-15);
    }
}
