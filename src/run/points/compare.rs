//! Compares two results of runs over points, A and B, for `gyre compare`.
//!
//! In: two results whose points have the same partition and key columns. Out: for every partition
//! and lag and every pair of fits, how the clusters and the embeddings of the rows with the same
//! key agree. Memory holds the keys of all rows, and the columns of one pair of fits.

use crate::assess::agreement::{Contingency, adjusted_rand};
use crate::assess::subspaces::correlations;
use crate::error::{Error, Kind, Result, counted};
use crate::math::matching;
use crate::output::number::grouped;
use crate::output::result::{ModelKey, Written, affiliation, floats};
use crate::output::tables::points::POINTS;
use crate::output::tables::run_schema::LAG_SECONDS;
use crate::output::tables::table::Table;
use crate::read::rows::keys::Keys;
use crate::run::compare::{CompareSide, Compares, Pair, fit_names, pairs};
use crate::run::points::kind::PointsKind;
use crate::run::sets::{in_both, same_keys};
use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::take_arrays;
use arrow::datatypes::{DataType, Field};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

/// The comparison of the points of one partition and lag.
#[derive(Debug, Serialize)]
pub(crate) struct ComparedPoints {
    /// Rows with the same key.
    pub rows: usize,
    /// One entry per pair of fits.
    pub fits: Vec<EmbeddingComparison>,
}

/// A model of both results, its comparison, and the places of its rows in A and in B.
type SharedRows = (ModelKey, ComparedPoints, Vec<(u32, u32)>);

/// The comparison of two embeddings.
#[derive(Debug, Serialize)]
pub(crate) struct EmbeddingComparison {
    /// The name of the fit of A, with its time or power if it has several.
    pub fit_a: String,
    /// The name of the fit of B, with its time or power if it has several.
    pub fit_b: String,
    /// Rows with an embedding in both.
    pub rows: usize,
    /// The adjusted Rand index of the clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub adjusted_rand: Option<f64>,
    /// The share of the rows in matched clusters, for the matching where that is largest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched: Option<f64>,
    /// The canonical correlations of the coordinates, descending: cosines of the principal angles.
    pub correlations: Vec<f64>,
}

impl Compares for PointsKind {
    type Compared = ComparedPoints;

    async fn compare(
        a: &CompareSide<'_>,
        b: &CompareSide<'_>,
        fits: &[Pair],
    ) -> Result<Vec<(ModelKey, ComparedPoints)>> {
        let (of_a, of_b) = (Points::of(a).await?, Points::of(b).await?);
        same_keys("points", a.at, &of_b.key, &of_a.key)?;
        let pairs = pairs((a.at, &of_a.embeddings), (b.at, &of_b.embeddings), fits)?;
        let twice = || {
            Error::input(format!(
                "several points of {} have the same key, so rows cannot be compared; name columns that identify a row as `points.id`",
                a.at
            ))
        };
        let shared = in_both(&of_a.columns, &of_b.columns, twice)?;
        if shared.is_empty() {
            let (a, b) = (a.at, b.at);
            return Err(Error::input(format!("{a} and {b} have no row in common")));
        }
        let mut models = of_a.by_model(&shared)?;
        for (base_a, base_b) in pairs {
            let (read_a, read_b) = (of_a.read(&base_a).await?, of_b.read(&base_b).await?);
            for (_, model, rows) in &mut models {
                let found = embeddings([&base_a, &base_b], [&read_a, &read_b], rows);
                model.fits.push(found);
            }
        }
        let models = models.into_iter();
        Ok(models.map(|(key, model, _)| (key, model)).collect())
    }
}

/// The rows of one result.
struct Points<'a> {
    written: &'a Written<'a>,
    /// The key columns of a point.
    key: Vec<Field>,
    /// The names of the embeddings, without `_embedding`.
    embeddings: Vec<String>,
    /// The names of the clusters, without `_affiliation`.
    clusters: Vec<String>,
    /// The rows of the table that are compared.
    rows: UInt32Array,
    /// Partition, lag and key of these rows. With one lag, there is no lag.
    columns: Vec<ArrayRef>,
    /// The number of leading columns that tell models apart.
    n_model: usize,
}

/// Coordinates and clusters of all rows that are compared.
struct Read {
    width: usize,
    /// n × width, row-major.
    values: Vec<f64>,
    is_valid: Vec<bool>,
    clusters: Option<Vec<i32>>,
}

impl<'a> Points<'a> {
    async fn of(side: &'a CompareSide<'a>) -> Result<Points<'a>> {
        let (written, shown) = (&side.written, side.at);
        if !written.current.tables.contains_key(POINTS) {
            return Err(Error::input(format!(
                "the result at {shown} has no rows of points to compare; run it without `output.rows = \"none\"`"
            )));
        }
        let names = written.table(Table::Fits).await?.columns(&["fit"]).await?;
        let names = names[0].as_string::<i32>();
        let names: BTreeSet<String> = names.iter().flatten().map(String::from).collect();
        let schema = written.table(POINTS).await?.schema();
        let is_of_fit = |field: &Field| {
            let of = |name: &String| {
                let rest = field.name().strip_prefix(name.as_str());
                rest.is_some_and(|rest| rest == "_affiliation" || rest.ends_with("_embedding"))
            };
            names.iter().any(of)
        };
        let leading = written.partition.len() + usize::from(written.lag.is_some());
        let fields: Vec<Field> = schema.fields().iter().map(|f| f.as_ref().clone()).collect();
        let fields: Vec<Field> = fields
            .into_iter()
            .enumerate()
            .filter(|(at, f)| *at != leading || f.name() != LAG_SECONDS || written.lag.is_none())
            .map(|(_, f)| f)
            .collect();
        let n_key = fields.iter().position(is_of_fit).unwrap_or(fields.len());
        let base = |suffix: &str| -> Vec<String> {
            let own = fields[n_key..].iter();
            own.filter_map(|f| Some(f.name().strip_suffix(suffix)?.to_string()))
                .collect()
        };
        let all: Vec<&str> = fields[..n_key].iter().map(|f| f.name().as_str()).collect();
        let mut columns = written.table(POINTS).await?.columns(&all).await?;
        let n = columns.first().map_or(0, |column| column.len());
        let mut rows = UInt32Array::from_iter_values(0..n as u32);
        let mut n_model = leading;
        if let Some(lag) = &side.lag {
            let own = columns.remove(leading - 1);
            let is_own = |row: usize| {
                let text = ModelKey::at(&[], Some(&own), row).lag;
                text.as_ref() == Some(lag)
            };
            let kept = (0..n).filter(|&row| is_own(row)).map(|row| row as u32);
            rows = UInt32Array::from_iter_values(kept);
            columns = take_arrays(&columns, &rows, None).map_err(broken)?;
            n_model -= 1;
        }
        Ok(Points {
            key: fields[leading..n_key].to_vec(),
            embeddings: base("_embedding"),
            clusters: base("_affiliation"),
            written,
            rows,
            columns,
            n_model,
        })
    }

    /// Reads an embedding and its clusters.
    async fn read(&self, base: &str) -> Result<Read> {
        let has_clusters = self.clusters.iter().any(|name| name == base);
        let mut names = vec![format!("{base}_embedding")];
        names.extend(has_clusters.then(|| format!("{base}_affiliation")));
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let columns = self.written.table(POINTS).await?.columns(&names).await?;
        let columns = take_arrays(&columns, &self.rows, None).map_err(broken)?;
        let lists = columns[0].as_fixed_size_list_opt();
        let none = || Error::input(format!("the column `{base}_embedding` holds no lists"));
        let lists = lists.ok_or_else(none)?;
        let width = lists.value_length() as usize;
        let values = lists.values();
        let values = values.slice(lists.offset() * width, lists.len() * width);
        Ok(Read {
            width,
            values: floats(&values)?,
            is_valid: (0..lists.len()).map(|row| lists.is_valid(row)).collect(),
            clusters: columns.get(1).map(affiliation).transpose()?,
        })
    }

    /// The shared rows of each model, with an empty comparison, ordered by partition and lag.
    fn by_model(&self, shared: &[(u32, u32)]) -> Result<Vec<SharedRows>> {
        let own = &self.columns[..self.n_model];
        let types: Vec<DataType> = own.iter().map(|c| c.data_type().clone()).collect();
        let mut ids = vec![0; self.rows.len()];
        if !types.is_empty() {
            ids.clear();
            Keys::new(&types)?.intern(own, &mut ids)?;
        }
        let mut by_id: BTreeMap<u32, Vec<(u32, u32)>> = BTreeMap::new();
        for pair in shared {
            by_id.entry(ids[pair.0 as usize]).or_default().push(*pair);
        }
        let (partition, lag) = own.split_at(self.written.partition.len());
        let mut models: Vec<_> = by_id
            .into_values()
            .map(|rows| {
                let key = ModelKey::at(partition, lag.first(), rows[0].0 as usize);
                let model = ComparedPoints {
                    rows: rows.len(),
                    fits: Vec::new(),
                };
                (key, model, rows)
            })
            .collect();
        models.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(models)
    }
}

fn broken(e: arrow::error::ArrowError) -> Error {
    Error::with_source(Kind::Bug, "rows cannot be selected", e)
}

/// Labels without gaps in the same order, and how many there are: a table of others may have any.
fn numbered(labels: &[i32]) -> (Vec<i32>, usize) {
    let known: BTreeSet<i32> = labels.iter().copied().filter(|k| *k >= 0).collect();
    let numbers: BTreeMap<i32, i32> = known.into_iter().zip(0..).collect();
    let number = |k: &i32| numbers.get(k).copied().unwrap_or(-1);
    (labels.iter().map(number).collect(), numbers.len())
}

/// Compares two embeddings on some pairs of rows.
fn embeddings(names: [&String; 2], [a, b]: [&Read; 2], rows: &[(u32, u32)]) -> EmbeddingComparison {
    let both: Vec<(usize, usize)> = rows
        .iter()
        .map(|&(i, j)| (i as usize, j as usize))
        .filter(|&(i, j)| a.is_valid[i] && b.is_valid[j])
        .collect();
    let of = |side: &Read, row: usize| side.values[row * side.width..][..side.width].to_vec();
    let of_a: Vec<f64> = both.iter().flat_map(|&(i, _)| of(a, i)).collect();
    let of_b: Vec<f64> = both.iter().flat_map(|&(_, j)| of(b, j)).collect();
    let table = a.clusters.as_ref().zip(b.clusters.as_ref());
    let table = table.filter(|_| !both.is_empty()).map(|(x, y)| {
        let x: Vec<i32> = both.iter().map(|&(i, _)| x[i]).collect();
        let y: Vec<i32> = both.iter().map(|&(_, j)| y[j]).collect();
        let ((x, of_x), (y, of_y)) = (numbered(&x), numbered(&y));
        let n = of_x.max(of_y);
        Contingency::new(&x, &y, &vec![1.0; both.len()], n, n)
    });
    let matched = |table: &Contingency| {
        let matching = matching::maximise(&table.weight, table.rows);
        let cells = matching.iter().enumerate();
        cells.map(|(k, &l)| table.at(k, l)).sum::<f64>() / both.len() as f64
    };
    EmbeddingComparison {
        fit_a: names[0].clone(),
        fit_b: names[1].clone(),
        rows: both.len(),
        adjusted_rand: table.as_ref().map(adjusted_rand),
        matched: table.as_ref().map(matched),
        correlations: correlations(&of_a, &of_b, [a.width, b.width]),
    }
}

impl Display for ComparedPoints {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rows = counted(grouped(self.rows as f64), "common row");
        write!(f, "{rows}")?;
        for fit in &self.fits {
            write!(f, "\n  {}", fit_names(&fit.fit_a, &fit.fit_b))?;
            if let (Some(matched), Some(rand)) = (fit.matched, fit.adjusted_rand) {
                let share = 100.0 * matched;
                write!(
                    f,
                    "  {share:.2} % in matched clusters, adjusted Rand {rand:.3};"
                )?;
            }
            let values = fit.correlations.iter();
            let values: Vec<String> = values.map(|value| format!("{value:.4}")).collect();
            write!(f, "  correlations {}", values.join(" "))?;
        }
        Ok(())
    }
}
