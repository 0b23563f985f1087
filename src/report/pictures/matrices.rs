//! Transition matrices between sets.

use crate::error::Result;
use crate::report::chart::matrix;
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows};
use crate::report::style::{listed, number, set_name};

/// At most this number of sets on each side.
const MOST: usize = 40;

const CAPTION: &str = "Each row is a set of sources. Its squares are the probabilities to end in \
    the sets of targets, and add up to 1. A bright diagonal means that sets hold. The picture \
    misleads about sizes: a row of a small set is as high as that of a large one.";

const CONFUSION: &str = "Each row is a class that the input names. Its squares are the shares of \
    its weight in the clusters, and add up to 1. The picture misleads about sizes: a rare class is \
    as high as a frequent one.";

/// The transition matrix of each fit with sets.
///
/// # Errors
/// If `coarse`, `hidden_transitions` or `confusion` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (table, [from, to]) in [
        ("coarse", ["latent", "target_set"]),
        ("hidden_transitions", hidden_columns(model)?),
    ] {
        let rows = model.rows(table, &["fit", from, to, "probability"])?;
        for fit in fits {
            let own = rows.having("fit", fit);
            figures.extend(figure(&own, fit, [from, to]));
        }
    }
    let rows = model.rows("confusion", &["fit", "given", "cluster", "weight"])?;
    for fit in fits {
        figures.extend(confusion(&rows.having("fit", fit), fit));
    }
    Ok(figures)
}

/// The columns of `hidden_transitions` with the two states. Earlier results have other names.
fn hidden_columns(model: &Model<'_>) -> Result<[&'static str; 2]> {
    let table = "hidden_transitions";
    let is_earlier = model.has(table) && model.columns(table)?.iter().any(|name| name == "j");
    Ok(if is_earlier {
        ["j", "i"]
    } else {
        ["from_state", "to_state"]
    })
}

/// Which clusters the rows of each given class are in.
fn confusion(rows: &ResultRows, fit: &str) -> Option<Figure> {
    let given = rows.texts("given").into_iter();
    let given = given.map(Option::unwrap_or_default).collect::<Vec<_>>();
    let mut classes = given.clone();
    classes.dedup();
    let (clusters, weights) = (rows.sets("cluster"), rows.floats("weight"));
    let n = usize::try_from(*clusters.iter().max()? + 1).ok()?;
    if n > MOST || classes.len() > MOST {
        return None;
    }
    let share = |class: &String| {
        let own = (0..rows.len()).filter(|at| given[*at] == *class);
        let mut shares = vec![0.0; n];
        for at in own {
            let cluster = usize::try_from(clusters[at]).ok();
            if let Some(share) = cluster.and_then(|k| shares.get_mut(k)) {
                *share += weights[at];
            }
        }
        let all = shares.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        shares.iter().map(|x| x / all).collect::<Vec<_>>()
    };
    let shares = classes.iter().map(share).collect::<Vec<_>>();
    let sets = (0..n as i64).map(set_name).collect::<Vec<_>>();
    let svg = matrix(&shares, [&classes, &sets], ["cluster", "given class"])?;
    let n = classes.len();
    let alt = format!("Shares of the clusters of {fit} in {n} given classes.");
    let title = format!("{fit}: given classes and clusters");
    Some(Figure::new(
        ["confusion", fit],
        &title,
        &alt,
        CONFUSION,
        svg,
    ))
}

fn figure(rows: &ResultRows, fit: &str, [from, to]: [&str; 2]) -> Option<Figure> {
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
    let kept = listed(kept.take(12));
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
