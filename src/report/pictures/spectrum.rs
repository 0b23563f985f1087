//! Singular values and eigenvalues with their gaps.

use crate::error::Result;
use crate::report::chart::{Mark, Series, lines};
use crate::report::figure::Figure;
use crate::report::model::Model;
use crate::report::pictures::FitRow;
use crate::report::style::number;

const CAPTION: &str = "Values near 1 belong to sets that hold well. A large gap after a value \
    suggests a number of sets. The picture misleads when values have noise: gaps smaller than \
    their errors mean nothing.";

/// The spectrum of all fits in one picture.
///
/// # Errors
/// If `spectrum` cannot be read.
pub fn figures(model: &Model<'_>, fits: &[FitRow]) -> Result<Vec<Figure>> {
    let columns = ["fit", "index", "singular_value", "value", "residual"];
    let rows = model.rows("spectrum", &columns)?;
    let value = if rows.has("singular_value") {
        "singular_value"
    } else {
        "value"
    };
    let series = fits.iter().map(|fit| {
        let own = rows.having("fit", &fit.name);
        let (index, values) = (own.floats("index"), own.floats(value));
        let marks = index
            .iter()
            .zip(&values)
            .enumerate()
            .map(|(at, (x, y))| Mark {
                at: [*x, *y],
                interval: [f64::NAN; 2],
                tip: match values.get(at + 1) {
                    Some(next) => {
                        let [y, gap] = [*y, y - next].map(number);
                        format!("{} σ{at} = {y}, gap to the next {gap}", fit.name)
                    }
                    None => format!("{} σ{at} = {}", fit.name, number(*y)),
                },
            });
        Series {
            name: fit.name.clone(),
            marks: marks.collect(),
            is_band: false,
            has_points: true,
        }
    });
    let series = series.collect::<Vec<_>>();
    let Some(svg) = lines(&series, ["index", "value"], false) else {
        return Ok(Vec::new());
    };
    let n = series.iter().filter(|s| !s.marks.is_empty()).count();
    let alt = format!("Singular values of {n} fits by index, in falling order.");
    let figure = Figure::new(["spectrum", "all"], "Spectrum", &alt, CAPTION, svg);
    Ok(vec![figure])
}
