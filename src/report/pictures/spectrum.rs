//! Singular values and eigenvalues with their gaps.

use crate::error::Result;
use crate::report::chart::{Mark, Series, lines};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows};
use crate::report::style::{listed, number};

const CAPTION: &str = "Values near 1 belong to sets that hold well. A large gap after a value \
    suggests a number of sets. The picture misleads when values have noise: gaps smaller than \
    their errors mean nothing.";

const GAPS: &str = "The distance of each value to the next one, at the number of values up to it: \
    a peak at 3 suggests three sets. The picture misleads about small values, whose gaps are noise, \
    and about the last value of a fit, whose gap is not known.";

/// The spectrum of all fits in one picture, and its gaps in another.
///
/// # Errors
/// If `spectrum` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let columns = ["fit", "index", "singular_value", "value", "noise"];
    let rows = model.rows("spectrum", &columns)?;
    let value = if rows.has("singular_value") {
        "singular_value"
    } else {
        "value"
    };
    let (mut values, mut gaps) = (Vec::new(), Vec::new());
    for fit in fits {
        let own = rows.having("fit", fit);
        let [of_value, of_gap] = of_fit(&own, fit, value);
        values.push(Series::new(fit, of_value));
        gaps.push(Series::new(fit, of_gap));
    }
    values.retain(|one| !one.marks.is_empty());
    gaps.retain(|one| !one.marks.is_empty());
    let n = values.len();
    let largest = gaps.iter().filter_map(|one| {
        let marks = one.marks.iter();
        let best = marks.max_by(|a, b| a.at[1].total_cmp(&b.at[1]))?;
        Some(format!("{} after {}", one.name, number(best.at[0])))
    });
    let largest = listed(largest.take(12));
    values.extend(noise(&rows));
    let mut figures = Vec::new();
    if let Some(svg) = lines(&values, ["index", "value"], false) {
        let alt = format!("Singular values of {n} fits by index, in falling order.");
        let name = ["spectrum", "all"];
        figures.push(Figure::new(name, "Spectrum", &alt, CAPTION, svg));
    }
    // One gap per fit has no peak.
    let has_peaks = gaps.iter().any(|one| one.marks.len() > 1);
    if has_peaks && let Some(svg) = lines(&gaps, ["number of values", "gap"], false) {
        let alt = format!("Gaps of the spectrum. The largest gaps: {largest}.");
        let name = ["gaps", "all"];
        figures.push(Figure::new(name, "Gaps of the spectrum", &alt, GAPS, svg));
    }
    Ok(figures)
}

/// The values of a fit, and their gaps.
fn of_fit(rows: &ResultRows, fit: &str, value: &str) -> [Vec<Mark>; 2] {
    let (index, values) = (rows.floats("index"), rows.floats(value));
    let (mut marks, mut gaps) = (Vec::new(), Vec::new());
    for (at, y) in values.iter().enumerate() {
        let gap = values.get(at + 1).map(|next| y - next);
        let shown = gap.map(|gap| format!(", gap to the next {}", number(gap)));
        let tip = format!("{fit} σ{at} = {}{}", number(*y), shown.unwrap_or_default());
        if let Some(gap) = gap.filter(|gap| gap.is_finite()) {
            // Equal values differ by rounding.
            let gap = if gap.abs() < 1e-12 { 0.0 } else { gap };
            gaps.push(Mark::new([index[at] + 1.0, gap], tip.clone()));
        }
        marks.push(Mark::new([index[at], *y], tip));
    }
    [marks, gaps]
}

/// The level below which values are noise, if the table has it.
fn noise(rows: &ResultRows) -> Option<Series> {
    let (index, levels) = (rows.floats("index"), rows.floats("noise"));
    let level = levels.iter().copied().find(|x| x.is_finite())?;
    let last = index.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let tip = format!("noise {}", number(level));
    let mark = |x: f64| Mark::new([x, level], tip.clone());
    Some(Series::line("noise", vec![mark(0.0), mark(last)]))
}
