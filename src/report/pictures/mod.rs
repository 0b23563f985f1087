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
    Ok(by_rank(rows.texts("fit").into_iter().flatten().collect()))
}

/// Names in their order, but `dbmr_r3` before `dbmr_r12`.
pub(crate) fn by_rank(names: Vec<String>) -> Vec<String> {
    let parts = |name: &str| {
        let (first, rank) = name.rsplit_once("_r")?;
        Some((first.to_string(), rank.parse::<u64>().ok()?))
    };
    let place = |name: &String| match parts(name) {
        Some((first, rank)) => {
            let is_own = |other: &String| parts(other).is_some_and(|(f, _)| f == first);
            (names.iter().position(is_own), rank)
        }
        None => (names.iter().position(|other| other == name), 0),
    };
    let placed = names.iter().map(|name| (place(name), name.clone()));
    let mut placed = placed.collect::<Vec<_>>();
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, name)| name).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fits_of_several_ranks_are_ordered_by_rank() {
        let names = "svd dbmr_r12 dbmr_r24 dbmr_r3 map_rate gpcca dbmr_rest";
        let names = names.split(' ').map(str::to_string).collect();
        let expected = "svd dbmr_r3 dbmr_r12 dbmr_r24 map_rate gpcca dbmr_rest";
        assert_eq!(by_rank(names).join(" "), expected);
    }
}
