//! Embeddings as clouds of points in the colours of their sets.

use crate::error::Result;
use crate::report::chart::cloud;
use crate::report::figure::Figure;
use crate::report::model::{Model, column};
use crate::report::pictures::FitRow;

/// At most this number of states are drawn.
const MOST: usize = 3000;

/// At most this number of pairs of dimensions per fit.
const MOST_PAIRS: usize = 2;

const CAPTION: &str = "Each point is a state at two coordinates of its embedding. At most 3,000 \
    states are drawn, at equal distances in the table. The picture misleads about weights: a \
    frequent state is one point, as a rare state is. Sets that overlap here can be apart in \
    another dimension.";

/// The clouds of all fits with an embedding.
///
/// # Errors
/// If the table of the embeddings cannot be read.
pub fn figures(model: &Model<'_>, fits: &[FitRow]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for table in ["sources", "points"] {
        let columns = model.columns(table)?;
        for fit in fits {
            let embedding = format!("{}_embedding", fit.name);
            if columns.contains(&embedding) {
                let affiliation = format!("{}_affiliation", fit.name);
                let affiliation = columns.contains(&affiliation).then_some(affiliation);
                let found = of_fit(model, table, &fit.name, &embedding, affiliation.as_deref())?;
                figures.extend(found);
            }
        }
    }
    Ok(figures)
}

fn of_fit(
    model: &Model<'_>,
    table: &str,
    fit: &str,
    embedding: &str,
    affiliation: Option<&str>,
) -> Result<Vec<Figure>> {
    let wanted = [Some(embedding), affiliation];
    let query = model
        .scan(table)?
        .select(wanted.into_iter().flatten().map(column).collect::<Vec<_>>());
    let rows = model.sample(table, query, MOST)?;
    let vectors = rows.lists(embedding);
    let sets = match affiliation {
        Some(affiliation) => rows.sets(affiliation),
        None => vec![0; rows.len()],
    };
    let width = vectors.iter().map(Vec::len).max().unwrap_or_default();
    let mut figures = Vec::new();
    for pair in pairs(width) {
        let at = |v: &Vec<f64>| pair.map(|k| v.get(k).copied().unwrap_or(f64::NAN));
        let points = vectors.iter().map(at).zip(sets.iter().copied());
        let points = points.collect::<Vec<_>>();
        let names = pair.map(|k| format!("coordinate {k}"));
        let Some(svg) = cloud(&points, [&names[0], &names[1]]) else {
            continue;
        };
        let title = format!("{fit}: embedding, {} and {}", names[0], names[1]);
        let alt = format!(
            "{} {} of {fit} at {} and {} of the embedding, coloured by set.",
            points.len(),
            if table == "points" {
                "points"
            } else {
                "states"
            },
            names[0],
            names[1]
        );
        let name = format!("{fit}-{}-{}", pair[0], pair[1]);
        figures.push(Figure::new(
            ["embedding", &name],
            &title,
            &alt,
            CAPTION,
            svg,
        ));
    }
    Ok(figures)
}

/// Coordinate 0 is often constant, so pairs begin with the next ones.
fn pairs(width: usize) -> Vec<[usize; 2]> {
    match width {
        0 | 1 => Vec::new(),
        2 => vec![[0, 1]],
        _ => (1..width - 1)
            .map(|k| [k, k + 1])
            .take(MOST_PAIRS)
            .collect(),
    }
}
