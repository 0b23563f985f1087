//! The pictures of a model: one file per kind of table.

pub(crate) mod asked;
pub(crate) mod changes;
pub(crate) mod clouds;
pub(crate) mod distortion;
pub(crate) mod errors;
pub(crate) mod estimates;
pub(crate) mod intervals;
pub(crate) mod maps;
pub(crate) mod matrices;
pub(crate) mod ranks;
pub(crate) mod rows;
pub(crate) mod sizes;
pub(crate) mod spectrum;
pub(crate) mod timescales;

use crate::error::Result;
use crate::report::assigned;
use crate::report::figure::Figure;
use crate::report::model::Model;
use crate::report::pictures::asked::Asked;
use crate::report::style::by_rank;

/// The names of the fits of a model, in the order of their table, but those of several ranks by
/// their ranks. Assigned rows have no such table.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn fits(model: &Model<'_>) -> Result<Vec<String>> {
    if !model.has("fits") {
        return assigned::fits(model);
    }
    let rows = model.rows("fits", &["fit"])?;
    let names = rows.texts("fit").into_iter().flatten();
    let names = names.collect::<Vec<_>>();
    let order = by_rank(&names).into_iter();
    Ok(order.map(|at| names[at].clone()).collect())
}

/// All pictures of one model, in the order in which they are read.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn of_model(
    model: &Model<'_>,
    earlier: Option<&Model<'_>>,
    asked: &Asked<'_>,
) -> Result<Vec<Figure>> {
    let fits = fits(model)?;
    let mut figures = maps::figures(model, &fits)?;
    figures.extend(clouds::figures(model, &fits)?);
    figures.extend(spectrum::figures(model, &fits)?);
    figures.extend(matrices::figures(model, &fits)?);
    figures.extend(sizes::figures(model, &fits)?);
    figures.extend(ranks::figures(model)?);
    figures.extend(timescales::figures(model, &fits)?);
    figures.extend(intervals::figures(model, &fits)?);
    if let Some(earlier) = earlier {
        figures.extend(changes::figures(model, earlier, &fits)?);
    }
    figures.extend(estimates::figures(model, &fits, asked)?);
    figures.extend(errors::figures(model, &fits)?);
    figures.extend(rows::figures(model, &fits)?);
    figures.extend(distortion::figures(model, &fits)?);
    Ok(figures)
}
