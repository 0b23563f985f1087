//! Writes the table `points`: the key of every row with its embeddings and clusters.
//!
//! The models are known before the first row is written, so a run reads its input again. Memory
//! holds the models, a few batches and one encoded row group.

use crate::error::{Error, Result, counted};
use crate::methods::heat_kernel::extension::Embedder;
use crate::methods::state_embedding::clusters::{nearest, nearest_distance};
use crate::methods::state_embedding::features::Features;
use crate::methods::state_embedding::model::combine;
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::result::ModelKey;
use crate::output::row_writer::RowWriter;
use crate::output::staging::StagedTable;
use crate::output::tables::points::{
    EmbeddingColumn, POINTS, PointColumns, PointFit, PointModel, PointsModel, points_schema,
};
use crate::output::tables::run_schema::{LagColumn, RunSchema};
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::points::layout::PointLayout;
use crate::read::points::{Found, PointBatch, Reader, sorted};
use crate::read::rows::coordinates::{LARGEST, LargeValue};
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Stop, bug};
use crate::run::kind::Running;
use crate::run::points::first_pass::{FirstPass, Known};
use crate::run::points::kind::PointsKind;
use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, Int32Array, RecordBatch, UInt32Array,
    new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat_batches, take_arrays, take_record_batch};
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion::dataframe::DataFrame;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

/// Rows that are embedded at a time by one thread.
const PIECE: usize = 1024;

/// How a fit embeds rows.
pub(crate) enum PointMap<'a> {
    /// By the features of a state embedding.
    Features {
        features: Cow<'a, Features>,
        /// Coefficients of the coordinates: features × rank, row-major.
        left: Cow<'a, [f64]>,
        rank: usize,
        /// Centres of clusters, row-major.
        centers: Option<Vec<f64>>,
        /// Whether rows get the distance to the nearest centre.
        has_distances: bool,
    },
    /// By the points of a kernel.
    Kernel(Box<Embedder<'a>>),
    /// The coordinates of the rows of the fit, row-major.
    Rows(&'a [f64]),
}

impl PointMap<'_> {
    /// Whether rows have clusters.
    pub(crate) fn has_clusters(&self) -> bool {
        matches!(self, PointMap::Features { centers, .. } if centers.is_some())
    }

    /// Whether rows have the distances to the centres of their clusters.
    fn has_distances(&self) -> bool {
        let is_asked = matches!(self, PointMap::Features { has_distances, .. } if *has_distances);
        is_asked && self.has_clusters()
    }

    /// The distance of an embedded row to the nearest centre, if it is asked for.
    fn distance(&self, row: &[f64]) -> Option<f64> {
        match self {
            PointMap::Features {
                rank,
                centers: Some(centers),
                has_distances: true,
                ..
            } => Some(nearest_distance(centers.chunks_exact(*rank), row)),
            _ => None,
        }
    }

    /// The coordinates of some rows (n × d, row-major, divided by the scale), and their clusters.
    /// Nothing if only the rows of the fit are embedded.
    fn embed(&self, rows: &[f64]) -> (Vec<f64>, Option<Vec<u32>>) {
        match self {
            PointMap::Features {
                features,
                left,
                rank,
                centers,
                ..
            } => {
                let embedded = combine(features, left, *rank, rows);
                let clusters = centers.as_ref().map(|centers| {
                    let points = embedded.chunks_exact(*rank);
                    let near = points.map(|point| nearest(centers.chunks_exact(*rank), point));
                    near.collect()
                });
                (embedded, clusters)
            }
            PointMap::Kernel(embedder) => (embedder.embed(rows), None),
            PointMap::Rows(_) => (Vec::new(), None),
        }
    }
}

/// A fit that embeds rows.
pub(crate) struct RowFit<'a> {
    /// The name of the fit.
    pub(crate) name: String,
    pub(crate) columns: Vec<EmbeddingColumn>,
    /// How it embeds rows.
    pub(crate) map: PointMap<'a>,
}

impl<'a> RowFit<'a> {
    fn of(fit: &'a PointFit) -> RowFit<'a> {
        let map = match &fit.model {
            PointModel::StateEmbedding(own) => PointMap::Features {
                features: Cow::Borrowed(&own.model.features),
                left: Cow::Borrowed(&own.model.left),
                rank: own.model.rank,
                centers: own.clusters.as_ref().map(|clusters| {
                    let centers = clusters.centroids.iter().map(|c| &c.center[..]);
                    centers.collect::<Vec<_>>().concat()
                }),
                has_distances: own.has_distances,
            },
            PointModel::Heat(own) => match &own.rows {
                Some(rows) => PointMap::Rows(rows),
                None => PointMap::Kernel(Box::new(own.model.extension.embedder())),
            },
        };
        RowFit {
            name: fit.name.clone(),
            columns: fit.columns(),
            map,
        }
    }
}

/// The fits of one partition and lag.
pub(crate) struct RowModel<'a> {
    /// What each coordinate is divided by.
    pub(crate) divisors: Vec<f64>,
    /// The fits, in the order of their columns.
    pub(crate) fits: Vec<RowFit<'a>>,
}

/// The fits of all partitions and lags.
pub(crate) enum RowModels<'a> {
    /// Of a run, by the numbers of partition and lag.
    Fitted(BTreeMap<(usize, usize), RowModel<'a>>),
    /// Of a written result, and the lags of the new rows.
    Known(BTreeMap<ModelKey, RowModel<'a>>, LagColumn),
}

impl<'a> RowModels<'a> {
    fn of(models: &'a [PointsModel]) -> RowModels<'a> {
        let models = models.iter().map(|model| {
            let own = RowModel {
                divisors: model.divisors.clone(),
                fits: model.fits.iter().map(RowFit::of).collect(),
            };
            ((model.partition, model.lag), own)
        });
        RowModels::Fitted(models.collect())
    }

    /// The model of a row of a batch at a lag, if there is one.
    fn find(&self, points: &PointBatch, row: usize, lag: usize) -> Option<&RowModel<'a>> {
        match self {
            RowModels::Fitted(models) => models.get(&(points.partition_of(row) as usize, lag)),
            RowModels::Known(models, lags) => models.get(&ModelKey {
                lag: lags.text(lag),
                ..ModelKey::at(&points.partition, None, row)
            }),
        }
    }

    /// The columns of the fits of all models.
    fn columns(&self) -> Vec<PointColumns> {
        let models: Vec<&RowModel<'a>> = match self {
            RowModels::Fitted(models) => models.values().collect(),
            RowModels::Known(models, _) => models.values().collect(),
        };
        let mut all: Vec<PointColumns> = Vec::new();
        for (at, fit) in models.iter().flat_map(|own| own.fits.iter().enumerate()) {
            let Some(own) = all.get_mut(at) else {
                let embeddings = fit.columns.iter().map(|c| (c.name.clone(), c.width));
                all.push(PointColumns {
                    name: fit.name.clone(),
                    has_clusters: fit.map.has_clusters(),
                    has_distances: fit.map.has_distances(),
                    embeddings: embeddings.collect(),
                });
                continue;
            };
            for ((_, width), column) in own.embeddings.iter_mut().zip(&fit.columns) {
                *width = column.width.max(*width);
            }
        }
        all
    }
}

/// The rows of one partition and lag.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowCounts {
    /// The rows of the partition.
    pub(crate) rows: u64,
    /// The rows with an embedding by fit. None if there is no model.
    pub(crate) embedded: Option<Vec<u64>>,
}

/// Points in the units of a model, and which of them were too far.
struct Scaled {
    points: Vec<f64>,
    is_far: Vec<bool>,
}

impl Scaled {
    /// The kept rows. Those that are too far are replaced by zeros; `far` gets the row and its
    /// first coordinate that is too far.
    fn of(
        points: &PointBatch,
        kept: &[usize],
        divisors: &[f64],
        far: &mut impl FnMut(usize, usize),
    ) -> Scaled {
        let d = points.dimension;
        let mut scaled = Vec::with_capacity(kept.len() * d);
        let mut is_far = vec![false; kept.len()];
        for (&row, is_far) in kept.iter().zip(&mut is_far) {
            let point = &points.coordinates[row * d..][..d];
            let own = scaled.len();
            scaled.extend(point.iter().zip(divisors).map(|(x, s)| x / s));
            if let Some(k) = scaled[own..].iter().position(|x: &f64| x.abs() > LARGEST) {
                *is_far = true;
                scaled[own..].fill(0.0);
                far(row, k);
            }
        }
        Scaled {
            points: scaled,
            is_far,
        }
    }
}

/// Makes the rows of the table.
pub(crate) struct RowTable<'a> {
    pub(crate) schema: SchemaRef,
    fits: Vec<PointColumns>,
    lag: &'a LagColumn,
    models: RowModels<'a>,
    /// Rows whose key has a larger hash are left out.
    largest_hash: Option<u64>,
    /// By partition and lag.
    pub(crate) counts: BTreeMap<(u32, usize), RowCounts>,
    /// The columns of the coordinates.
    coordinates: Vec<String>,
    /// The largest value of a row that is too far from the points of a fit.
    pub(crate) large: Option<LargeValue>,
}

impl<'a> RowTable<'a> {
    /// A table of rows with the columns of a layout. Rows whose key has a hash above
    /// `largest_hash` are left out.
    pub(crate) fn new(
        run: &'a RunSchema,
        layout: &PointLayout,
        models: RowModels<'a>,
        largest_hash: Option<u64>,
    ) -> RowTable<'a> {
        let fits = models.columns();
        RowTable {
            schema: points_schema(run, &layout.key, &fits),
            fits,
            lag: &run.lag,
            models,
            largest_hash,
            counts: BTreeMap::new(),
            coordinates: layout.coordinate_names(),
            large: None,
        }
    }

    /// The names of the fits, in the order of their columns.
    pub(crate) fn fit_names(&self) -> Vec<&str> {
        self.fits.iter().map(|fit| fit.name.as_str()).collect()
    }

    /// The rows of the table for some points, one batch per partition.
    fn batches(&mut self, points: &PointBatch) -> Result<Vec<RecordBatch>, Stop> {
        let mut batches = Vec::new();
        for (rows, partition) in &points.partitions {
            let is_kept = |row: &usize| self.largest_hash.is_none_or(|h| points.hashes[*row] <= h);
            let kept: Vec<usize> = rows.clone().filter(is_kept).collect();
            let mut of_lags = Vec::new();
            for lag in 0..self.lag.n_lags() {
                of_lags.push(self.rows(points, rows.start, rows.len(), *partition, lag, &kept)?);
            }
            if !kept.is_empty() {
                batches.push(by_row(&self.schema, of_lags, kept.len())?);
            }
        }
        Ok(batches)
    }

    /// The kept ones of `n` rows from `start`, at a lag.
    fn rows(
        &mut self,
        points: &PointBatch,
        start: usize,
        n: usize,
        partition: u32,
        lag: usize,
        kept: &[usize],
    ) -> Result<RecordBatch, Stop> {
        let model = self.models.find(points, start, lag);
        let counts = self.counts.entry((partition, lag)).or_insert(RowCounts {
            rows: 0,
            embedded: model.is_some().then(|| vec![0; self.fits.len()]),
        });
        let at = UInt32Array::from_iter_values(kept.iter().map(|&row| row as u32));
        let mut columns = take_arrays(&points.partition, &at, None).map_err(bug)?;
        columns.extend(self.lag.columns(lag, kept.len()).map_err(bug)?);
        columns.extend(take_arrays(&points.key, &at, None).map_err(bug)?);
        match model {
            Some(model) => {
                let d = points.dimension;
                if d != model.divisors.len() {
                    return Err(Stop::Failed(Error::input(format!(
                        "the lists have {}, but the points of the model have {}",
                        counted(d, "number"),
                        counted(model.divisors.len(), "coordinate")
                    ))));
                }
                let (names, found) = (&self.coordinates, &mut self.large);
                let mut keep = |row, k| LargeValue::keep(found, large(names, points, row, k));
                let scaled = Scaled::of(points, kept, &model.divisors, &mut keep);
                let (scaled, is_far) = (&scaled.points, &scaled.is_far);
                // Places count the rows of the partition.
                let first = counts.rows as usize;
                let places: Vec<usize> = kept.iter().map(|row| first + row - start).collect();
                for (at, (own, fit)) in self.fits.iter().zip(&model.fits).enumerate() {
                    let own = of_fit(own, fit, (scaled, is_far), d, &places);
                    let last = own
                        .last()
                        .map_or(0, |column| column.len() - column.null_count());
                    if let Some(embedded) = &mut counts.embedded {
                        embedded[at] += last as u64;
                    }
                    // Features embed all rows, but those that are too far.
                    let columns_of_fit = own
                        .last()
                        .filter(|_| matches!(fit.map, PointMap::Features { .. }));
                    let nulls = columns_of_fit.and_then(|column| column.nulls());
                    for (at, &row) in kept.iter().enumerate() {
                        if nulls.is_some_and(|nulls| nulls.is_null(at)) && !is_far[at] {
                            let own = scaled[at * d..][..d].iter().map(|x| x.abs());
                            let k = own.enumerate().max_by(|a, b| a.1.total_cmp(&b.1));
                            keep(row, k.map_or(0, |(k, _)| k));
                        }
                    }
                    columns.extend(own);
                }
            }
            // There are no pairs, and so no model.
            None => {
                let rest = self.schema.fields()[columns.len()..].iter();
                columns.extend(rest.map(|field| new_null_array(field.data_type(), kept.len())));
            }
        }
        counts.rows += n as u64;
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        Ok(batch.map_err(bug)?)
    }
}

/// The rows of a query, and the staging to which they are written.
pub(crate) struct RowInput<'a> {
    /// The tables of the query.
    pub(crate) lake: &'a Lake,
    /// The query, with the columns of the layout.
    pub(crate) frame: &'a DataFrame,
    /// The columns of the query.
    pub(crate) layout: &'a Arc<PointLayout>,
    /// The partitions, if an earlier pass has found them.
    pub(crate) partitions: Option<&'a [ArrayRef]>,
    /// Whether the rows must be sorted, as far as that is known.
    pub(crate) sorted: bool,
    pub(crate) output: &'a Output,
    /// The run.
    pub(crate) begun: &'a Begun,
}

/// Reads points and writes their rows. Returns the number of rows in the table, and what was found
/// beside the points.
pub(crate) async fn copy(input: &RowInput<'_>, table: &mut RowTable<'_>) -> Result<(u64, Found)> {
    let mut is_sorted = input.sorted;
    loop {
        let frame = if is_sorted {
            sorted(input.frame.clone(), input.layout)?
        } else {
            input.frame.clone()
        };
        let path = input.output.staged(&input.begun.run, POINTS);
        let mut writer = RowWriter::create(input.output, path, Arc::clone(&table.schema))?;
        let mut batches = input.lake.batches(frame).await?;
        let mut reader = Reader::new(input.layout, is_sorted, input.partitions)?;
        table.counts.clear();
        let copied = async {
            while let Some(rows) = batches.next().await? {
                for points in reader.read(&rows)? {
                    for batch in table.batches(&points)? {
                        writer.write(batch).await?;
                    }
                }
            }
            if let Some(points) = reader.rest()? {
                for batch in table.batches(&points)? {
                    writer.write(batch).await?;
                }
            }
            Ok::<_, Stop>(())
        };
        match copied.await {
            Ok(()) => return Ok((writer.finish().await?, reader.finish()?)),
            // The rows are not in order, or no longer.
            Err(Stop::Unsorted) if !is_sorted => is_sorted = true,
            Err(_) if batches.must_read_again() => {}
            Err(stop) => return Err(stop.into_error("reading points")),
        }
        writer.abort().await?;
    }
}

/// The table `points` of a run.
pub(crate) struct PointsTable<'a> {
    /// The partition and lag columns.
    pub(crate) run: &'a RunSchema,
    /// The fits, by partition and lag.
    pub(crate) models: &'a [PointsModel],
    /// Rows whose key has a larger hash are left out.
    pub(crate) largest_hash: Option<u64>,
}

impl PointsTable<'_> {
    /// The columns of the table.
    pub(super) fn schema(&self, layout: &PointLayout) -> SchemaRef {
        points_schema(self.run, &layout.key, &RowModels::of(self.models).columns())
    }
}

/// Reads the points of a run again and writes the table.
///
/// # Errors
/// If the rows cannot be read or written.
pub(super) async fn write(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
    table: PointsTable<'_>,
) -> Result<StagedTable> {
    let input = RowInput {
        lake: run.lake,
        frame: run.frame,
        layout: &run.plan.layout,
        partitions: Some(&first_pass.known.partitions),
        sorted: first_pass.found.sorted,
        output: run.output,
        begun: run.begun,
    };
    let (layout, largest_hash) = (&run.plan.layout, table.largest_hash);
    let mut rows = RowTable::new(table.run, layout, RowModels::of(table.models), largest_hash);
    let (n, _) = copy(&input, &mut rows).await?;
    Ok(StagedTable {
        rows: n,
        schema: rows.schema,
    })
}

/// The hash up to which the keys of `most` points have hashes. More points are below it only if
/// several rows have one key.
pub(super) async fn largest_hash(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
    most: u64,
) -> Result<Option<u64>> {
    let all: u64 = first_pass.partitions.iter().map(|survey| survey.rows).sum();
    if most >= all {
        return Ok(None);
    }
    let hashes = fold(run, |hashes: &mut BinaryHeap<u64>, points| {
        for hash in points.hashes {
            if (hashes.len() as u64) < most {
                hashes.push(hash);
            } else if hashes.peek().is_some_and(|largest| hash < *largest) {
                hashes.pop();
                hashes.push(hash);
            }
        }
    });
    Ok(hashes.await?.peek().copied())
}

/// The keys of the rows whose keys have some hashes.
pub(super) async fn keys_of(
    run: &Running<'_, PointsKind>,
    hashes: &BTreeSet<u64>,
) -> Result<BTreeMap<u64, String>> {
    let keys = fold(run, |keys: &mut BTreeMap<u64, String>, points| {
        for (row, hash) in points.hashes.iter().enumerate() {
            if hashes.contains(hash) {
                keys.insert(*hash, describe(&points.key, row));
            }
        }
    });
    keys.await
}

/// Reads the points of a run again, in any order, and adds each batch to a value.
async fn fold<T: Default>(
    run: &Running<'_, PointsKind>,
    add: impl Fn(&mut T, PointBatch),
) -> Result<T> {
    loop {
        let mut folded = T::default();
        let (layout, mut frame) = (&run.plan.layout, run.frame.clone());
        // Hashes do not depend on the order of the rows, unless rows are left out.
        if layout.rules().is_some_and(|rules| rules.order.is_some()) {
            frame = sorted(frame, layout)?;
        }
        let mut batches = run.lake.batches(frame).await?;
        let mut reader = Reader::new(&run.plan.layout, true, None)?;
        let read = async {
            while let Some(rows) = batches.next().await? {
                let points = reader.read(&rows)?.into_iter();
                points.for_each(|points| add(&mut folded, points));
            }
            if let Some(points) = reader.rest()? {
                add(&mut folded, points);
            }
            Ok::<_, Stop>(())
        };
        match read.await {
            Ok(()) => return Ok(folded),
            Err(_) if batches.must_read_again() => {}
            Err(stop) => return Err(stop.into_error("reading points")),
        }
    }
}

/// The rows of the table for all points of a query, in the order of their keys.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn collect(
    lake: &Lake,
    frame: DataFrame,
    plan: &PointsPlan,
    known: &Known,
    models: &[PointsModel],
    largest_hash: Option<u64>,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let run = plan.run_schema(known.partitions.clone());
    let mut table = RowTable::new(&run, &plan.layout, RowModels::of(models), largest_hash);
    let mut batches = lake.batches(sorted(frame, &plan.layout)?).await?;
    let mut reader = Reader::new(&plan.layout, true, Some(&known.partitions))?;
    let mut collected = Vec::new();
    let read = async {
        while let Some(rows) = batches.next().await? {
            for points in reader.read(&rows)? {
                collected.extend(table.batches(&points)?);
            }
        }
        if let Some(points) = reader.rest()? {
            collected.extend(table.batches(&points)?);
        }
        Ok::<_, Stop>(())
    };
    read.await
        .map_err(|stop| stop.into_error("reading points again"))?;
    Ok((table.schema, collected))
}

/// The rows of several lags, each row with all of its lags, so that the order does not depend on
/// the sizes of batches.
fn by_row(schema: &SchemaRef, of_lags: Vec<RecordBatch>, n: usize) -> Result<RecordBatch> {
    if let [only] = &of_lags[..] {
        return Ok(only.clone());
    }
    let all = concat_batches(schema, &of_lags).map_err(bug)?;
    let lags = of_lags.len();
    let order = (0..n).flat_map(|row| (0..lags).map(move |lag| (lag * n + row) as u32));
    let order = UInt32Array::from_iter_values(order);
    take_record_batch(&all, &order).map_err(bug)
}

/// A coordinate of a row.
fn large(names: &[String], points: &PointBatch, row: usize, k: usize) -> LargeValue {
    LargeValue {
        value: points.coordinates[row * points.dimension + k],
        // Lists have one name.
        column: names.get(k).or(names.first()).cloned().unwrap_or_default(),
        key: describe(&points.key, row),
    }
}

/// The columns of a fit for some rows (n × d, divided by the scale) at their places. Rows that are
/// far have neither embeddings nor clusters.
fn of_fit(
    own: &PointColumns,
    fit: &RowFit<'_>,
    (scaled, is_far): (&[f64], &[bool]),
    d: usize,
    places: &[usize],
) -> Vec<ArrayRef> {
    let pieces: Vec<(Vec<f64>, Option<Vec<u32>>)> = scaled
        .par_chunks(PIECE * d)
        .map(|rows| fit.map.embed(rows))
        .collect();
    let all: usize = fit.columns.iter().map(|part| part.width).sum();
    let rows: Vec<&[f64]> = match fit.map {
        PointMap::Rows(rows) => places.iter().map(|at| &rows[at * all..][..all]).collect(),
        _ => (pieces
            .iter()
            .flat_map(|(values, _)| values.chunks_exact(all)))
        .collect(),
    };
    let mut columns: Vec<ArrayRef> = Vec::new();
    if own.has_clusters {
        let clusters = pieces.iter().filter_map(|(_, clusters)| clusters.as_ref());
        let rows = clusters.flatten().zip(&rows).zip(is_far);
        // A row without an embedding is in no cluster.
        let clusters =
            rows.map(|((&k, row), is_far)| (!is_far && !row[0].is_nan()).then_some(k as i32));
        columns.push(Arc::new(clusters.collect::<Int32Array>()));
    }
    if own.has_distances {
        let rows = rows.iter().zip(is_far);
        let known = rows.map(|(row, far)| (!far && !row[0].is_nan()).then_some(row));
        let distances = known.map(|row| fit.map.distance(row?));
        columns.push(Arc::new(distances.collect::<Float64Array>()));
    }
    for (part, (_, width)) in fit.columns.iter().zip(&own.embeddings) {
        let rows = rows.iter().map(|row| &row[part.first..][..part.width]);
        let known = rows.clone().zip(is_far);
        let nulls = NullBuffer::from_iter(known.map(|(row, far)| !far && !row[0].is_nan()));
        let missing = std::iter::repeat_n(0.0, width - part.width);
        let values = rows.flat_map(|row| row.iter().copied().chain(missing.clone()));
        let values = Float64Array::from_iter_values(values);
        let item = Arc::new(Field::new("item", DataType::Float64, false));
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let lists = FixedSizeListArray::new(item, *width as i32, Arc::new(values), nulls);
        columns.push(Arc::new(lists));
    }
    columns
}
