//! Embeddings as clouds of points in the colours of their sets, with the centres of clusters.

use crate::error::Result;
use crate::report::chart::{NamedPoint, cloud, constant};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows, column};
use crate::report::states::{state_columns, state_name};
use crate::report::style::{listed, number, set_name, short};
use polars::prelude::SortMultipleOptions;
use std::collections::BTreeMap;

/// At most this number of states are drawn.
const MOST: usize = 3000;

/// At most this number of points have tooltips.
const MOST_NAMED: usize = 200;

/// At most this number of columns are in the name of a point.
const MOST_KEYS: usize = 4;

/// At most this number of pairs of dimensions per embedding.
const MOST_PAIRS: usize = 2;

/// At most this number of embeddings per fit.
const MOST_TIMES: usize = 3;

const CAPTION: &str = "Each point is a state or a row at two coordinates of its embedding, and a \
    cross is the centre of a cluster. At most 3,000 points are drawn, at equal distances in the \
    table, and the 200 with most transitions say what they are. The picture misleads about weights: a frequent state is one point, as a rare state \
    is. Sets that overlap here can be apart in another dimension.";

/// The clouds of all fits with an embedding.
///
/// # Errors
/// If the table of the embeddings cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let columns = ["fit", "cluster", "center", "weight", "exit_probability"];
    let centroids = model.rows("centroids", &columns)?;
    for table in ["sources", "points"] {
        let columns = model.columns(table)?;
        for fit in fits {
            let affiliation = format!("{fit}_affiliation");
            let affiliation = columns.contains(&affiliation).then_some(affiliation);
            let names = names(model, table, fit)?;
            let centres = centroids.having("fit", fit);
            for embedding in embeddings(&columns, fit, fits) {
                let cloud = Cloud {
                    fit,
                    table,
                    embedding,
                    affiliation: affiliation.as_deref(),
                    names: &names,
                    centres: &centres,
                };
                figures.extend(cloud.figures(model)?);
            }
        }
    }
    Ok(figures)
}

/// A named point: its vector, set, tooltip and label.
type NamedVector = (Vec<f64>, i64, String, String);

/// The columns that name the points of a table: those before its numbers.
fn names(model: &Model<'_>, table: &str, fit: &str) -> Result<Vec<String>> {
    if table != "points" {
        return state_columns(model, table);
    }
    let columns = model.columns(table)?.into_iter();
    let keys = columns.skip(model.keys.len());
    let keys = keys.filter(|name| name != "lag_seconds");
    let own = format!("{fit}_");
    let keys = keys.take_while(|name| !name.starts_with(&own));
    Ok(keys.take(MOST_KEYS).collect())
}

/// The embeddings of a fit: one, or those of a few times and powers.
fn embeddings<'a>(columns: &'a [String], fit: &str, fits: &[String]) -> Vec<&'a str> {
    let of = |name: &str, fit: &str| {
        let rest = name.strip_prefix(fit)?.strip_prefix('_')?;
        let time = rest.strip_suffix("embedding")?;
        Some(time.is_empty() || time.starts_with(['t', 'p']))
    };
    let is_own = |name: &&String| {
        // The longest name of a fit is the right one: `svd_soft_embedding` is not of `svd`.
        let longer = fits.iter().filter(|f| f.len() > fit.len());
        of(name, fit) == Some(true) && longer.clone().all(|f| of(name, f).is_none())
    };
    let all = columns.iter().filter(is_own).map(String::as_str);
    let all = all.collect::<Vec<_>>();
    match all.len() {
        0..=MOST_TIMES => all,
        n => vec![all[0], all[n / 2], all[n - 1]],
    }
}

/// An embedding of a fit in a table.
struct Cloud<'a> {
    fit: &'a str,
    table: &'a str,
    embedding: &'a str,
    affiliation: Option<&'a str>,
    /// The columns that name a point.
    names: &'a [String],
    centres: &'a ResultRows,
}

impl Cloud<'_> {
    fn figures(&self, model: &Model<'_>) -> Result<Vec<Figure>> {
        let wanted = [Some(self.embedding), self.affiliation];
        let wanted = wanted.into_iter().flatten().map(column);
        let query = model.scan(self.table)?.select(wanted.collect::<Vec<_>>());
        let rows = model.sample(self.table, query, MOST)?;
        let named = self.named(model)?;
        let vectors = rows.lists(self.embedding);
        let sets = match self.affiliation {
            Some(affiliation) => rows.sets(affiliation),
            None => vec![0; rows.len()],
        };
        if is_one_point_per_set(&vectors, &sets) {
            return Ok(Vec::new());
        }
        let width = vectors.iter().map(Vec::len).max().unwrap_or_default();
        // A vector that is shorter than others ends in zeros.
        let at = |v: &[f64], pair: [usize; 2]| pair.map(|k| v.get(k).copied().unwrap_or(f64::NAN));
        let of = |k: usize| vectors.iter().filter_map(move |v| v.get(k)).copied();
        let varies = |k: usize| constant(of(k)).is_none();
        let mut figures = Vec::new();
        for pair in pairs(width, varies) {
            let points = vectors.iter().map(|v| at(v, pair));
            let points = points.zip(sets.iter().copied()).collect::<Vec<_>>();
            let names = pair.map(|k| format!("coordinate {k}"));
            let labels = [names[0].as_str(), names[1].as_str()];
            let named = named.iter().map(|(vector, set, tip, label)| NamedPoint {
                at: at(vector, pair),
                set: *set,
                tip: tip.clone(),
                label: label.clone(),
            });
            let named = named.collect::<Vec<_>>();
            if let Some(svg) = cloud(&points, &named, &self.centres(pair), labels) {
                figures.push(self.figure(points.len(), pair, svg));
            }
        }
        Ok(figures)
    }

    /// The points with names: states with most transitions, which come first, or some rows.
    fn named(&self, model: &Model<'_>) -> Result<Vec<NamedVector>> {
        let has_counts = self.table != "points";
        let by = has_counts.then_some("count");
        let columns = self.names.iter().map(String::as_str);
        let wanted = [Some(self.embedding), self.affiliation, by];
        let wanted = wanted.into_iter().flatten().chain(columns.clone());
        let wanted = wanted.map(column).collect::<Vec<_>>();
        let query = model.scan(self.table)?.select(wanted);
        let rows = if has_counts {
            let by = ["count"].into_iter().chain(columns).map(column);
            let by = by.collect::<Vec<_>>();
            let falls = (0..by.len()).map(|at| at == 0);
            let order = SortMultipleOptions::default().with_order_descending_multi(falls);
            let query = query.sort_by_exprs(by, order).limit(MOST_NAMED as u32);
            model.collect(self.table, query)?
        } else {
            model.sample(self.table, query, MOST_NAMED)?
        };
        let texts = self.names.iter().map(|name| rows.texts(name));
        let texts = texts.collect::<Vec<_>>();
        let counts = rows.floats("count");
        let sets = self.affiliation.map(|affiliation| rows.sets(affiliation));
        let of_row = |(at, vector): (usize, Vec<f64>)| {
            let parts = self.names.iter().zip(&texts).map(|(name, column)| {
                let value = column[at].as_deref().unwrap_or("null");
                (name.as_str(), value)
            });
            let name = state_name(&parts.collect::<Vec<_>>());
            let set = sets.as_ref().map_or(0, |sets| sets[at]);
            let own = self.affiliation.map(|_| set_name(set));
            let n = has_counts.then(|| format!("{} transitions", number(counts[at])));
            let parts = [Some(name.clone()).filter(|name| !name.is_empty()), own, n];
            let tip = listed(parts.into_iter().flatten());
            // Several values are too long for a picture.
            let label = match self.names {
                [_] if has_counts => short(&name, 14),
                _ => String::new(),
            };
            (vector, set, tip, label)
        };
        let vectors = rows.lists(self.embedding).into_iter().enumerate();
        Ok(vectors.map(of_row).collect())
    }

    fn figure(&self, n: usize, [x, y]: [usize; 2], svg: String) -> Figure {
        let rows = match self.table {
            "points" => "points",
            _ => "states",
        };
        let shown = self.embedding.replace('_', " ");
        let title = format!("{shown}, coordinates {x} and {y}");
        let set = match self.affiliation {
            Some(_) => ", coloured by set",
            None => "",
        };
        let fit = self.fit;
        let alt =
            format!("{n} {rows} of {fit} at the coordinates {x} and {y} of the {shown}{set}.");
        let name = self.embedding.trim_end_matches("_embedding");
        let name = format!("{name}-{x}-{y}");
        Figure::new(["embedding", &name], &title, &alt, CAPTION, svg)
    }

    /// The centres of the clusters.
    fn centres(&self, pair: [usize; 2]) -> Vec<([f64; 2], String)> {
        let (clusters, centers) = (self.centres.sets("cluster"), self.centres.lists("center"));
        let weights = self.centres.floats("weight");
        let exits = self.centres.floats("exit_probability");
        let all = centers.iter().enumerate().map(|(row, center)| {
            let at = pair.map(|k| center.get(k).copied().unwrap_or(f64::NAN));
            let [weight, exit] = [weights[row], exits[row]].map(number);
            let set = clusters[row];
            let tip = format!("centre of set {set}: weight {weight}, exit probability {exit}");
            (at, tip)
        });
        all.collect()
    }
}

/// Whether all states of a set have the same embedding: its points would say no more than the names
/// of the sets.
fn is_one_point_per_set(vectors: &[Vec<f64>], sets: &[i64]) -> bool {
    let mut first: BTreeMap<i64, &[f64]> = BTreeMap::new();
    vectors.iter().zip(sets).all(|(vector, set)| {
        let known = first.entry(*set).or_insert(vector);
        let is_near = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0);
        known.len() == vector.len() && known.iter().zip(vector).all(is_near)
    })
}

/// Neighbouring coordinates that vary. The first one of an embedding is often constant.
fn pairs(width: usize, varies: impl Fn(usize) -> bool) -> Vec<[usize; 2]> {
    let own = (0..width).filter(|k| varies(*k)).collect::<Vec<_>>();
    match (own.as_slice(), width) {
        (_, 0 | 1) | ([], _) => Vec::new(),
        // One coordinate is drawn against a constant one.
        (&[0], _) => vec![[0, 1]],
        (&[one], _) => vec![[one, 0]],
        (own, _) => {
            let pairs = own.windows(2).map(|pair| [pair[0], pair[1]]);
            pairs.take(MOST_PAIRS).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_one_point_have_no_cloud() {
        let vectors = [[1.0, 2.0], [3.0, 4.0], [1.0, 2.0 + 1e-15]].map(Vec::from);
        assert!(is_one_point_per_set(&vectors, &[0, 1, 0]));
        assert!(!is_one_point_per_set(&vectors, &[0, 0, 0]));
        // Without sets, different points are worth a picture.
        assert!(!is_one_point_per_set(&vectors[..2], &[0, 0]));
    }

    #[test]
    fn pairs_leave_out_constant_coordinates() {
        assert_eq!(pairs(4, |k| k > 0), [[1, 2], [2, 3]]);
        assert_eq!(pairs(3, |k| k != 1), [[0, 2]]);
        assert_eq!(pairs(2, |k| k == 1), [[1, 0]]);
        assert_eq!(pairs(1, |_| true), [[0; 2]; 0]);
    }

    #[test]
    fn embeddings_of_a_fit_are_not_those_of_a_longer_name() {
        let names = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<_>>();
        let fits = names(&["map", "map_t"]);
        let columns = names(&["map_embedding", "map_t_embedding", "map_t2_embedding"]);
        let own = |at: usize| embeddings(&columns, &fits[at], &fits).len();
        assert_eq!((own(0), own(1)), (2, 1));
        let times = (1..9).map(|t| format!("map_t{t}_embedding"));
        let times = times.collect::<Vec<_>>();
        let expected = ["map_t1_embedding", "map_t5_embedding", "map_t8_embedding"];
        assert_eq!(embeddings(&times, &fits[0], &fits), expected);
    }
}
