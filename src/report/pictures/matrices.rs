//! Transition matrices between sets.

use crate::error::Result;
use crate::report::chart::matrix;
use crate::report::figure::Figure;
use crate::report::model::{Model, Rows};
use crate::report::pictures::FitRow;
use crate::report::style::{number, set_name};

/// At most this number of sets on each side.
const MOST: usize = 40;

const CAPTION: &str = "Each row is a set of sources. Its squares are the probabilities to end in \
    the sets of targets, and add up to 1. A bright diagonal means that sets hold. The picture \
    misleads about sizes: a row of a small set is as high as that of a large one.";

/// The transition matrix of each fit with sets.
///
/// # Errors
/// If `coarse` or `hidden_transitions` cannot be read.
pub fn figures(model: &Model<'_>, fits: &[FitRow]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (table, [from, to]) in [
        ("coarse", ["latent", "target_set"]),
        ("hidden_transitions", ["j", "i"]),
    ] {
        let rows = model.rows(table, &["fit", from, to, "probability"])?;
        for fit in fits {
            let own = rows.having("fit", &fit.name);
            figures.extend(figure(&own, &fit.name, [from, to]));
        }
    }
    Ok(figures)
}

fn figure(rows: &Rows, fit: &str, [from, to]: [&str; 2]) -> Option<Figure> {
    let (from, to) = (rows.sets(from), rows.sets(to));
    let n = usize::try_from(*from.iter().max()? + 1).ok()?;
    let m = usize::try_from(*to.iter().max()? + 1).ok()?;
    if n > MOST || m > MOST {
        return None;
    }
    let mut shares = vec![vec![0.0; m]; n];
    for ((from, to), share) in from.iter().zip(&to).zip(rows.floats("probability")) {
        if let (Ok(from), Ok(to)) = (usize::try_from(*from), usize::try_from(*to)) {
            shares[from][to] = if share.is_nan() { 0.0 } else { share };
        }
    }
    let names = |n: usize| (0..n as i64).map(set_name).collect::<Vec<_>>();
    let svg = matrix(&shares, [&names(n), &names(m)], ["to", "from"])?;
    let kept = (0..n.min(m)).map(|k| format!("set {k} {}", number(shares[k][k])));
    let kept = kept.take(12).collect::<Vec<_>>().join(", ");
    let alt = format!("Transition matrix of {fit}. Probability to stay: {kept}.");
    let title = format!("{fit}: transitions between sets");
    Some(Figure::new(
        ["transitions", fit],
        &title,
        &alt,
        CAPTION,
        svg,
    ))
}
