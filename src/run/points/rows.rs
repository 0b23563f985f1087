//! Writes the table `points`: the key of every row with its embeddings and clusters.
//!
//! The models are known before the first row is written, so the input is read again. Memory holds
//! the models, a few batches and one encoded row group.

use crate::error::{Error, Kind, Result};
use crate::output::row_writer::RowWriter;
use crate::output::tables::points::{POINTS, PointFit, PointsModel};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::points::layout::PointLayout;
use crate::read::points::{PointBatch, Reader, Receiver, read, sorted};
use crate::read::rows::stop::Stop;
use crate::run::points::site::{PointJob, PointsTable};
use crate::run::points::surveyed::{Known, Surveyed};
use arrow::array::{
    ArrayRef, FixedSizeListArray, Float64Array, Int32Array, RecordBatch, UInt32Array,
    new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{concat_batches, take, take_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::dataframe::DataFrame;
use rayon::prelude::*;
use std::sync::Arc;

/// Rows that are embedded at a time by one thread.
const PIECE: usize = 1024;

/// Reads the points again and writes the table. Returns the number of rows.
pub(crate) async fn write(
    job: &PointJob<'_>,
    surveyed: &Surveyed,
    table: PointsTable<'_>,
) -> Result<u64> {
    let PointJob {
        plan,
        lake,
        frame,
        output,
        ..
    } = job;
    let PointsTable { begun, run, models } = table;
    let schema = schema(plan, run, models);
    let mut is_sorted = surveyed.found.sorted;
    loop {
        let frame = if is_sorted {
            sorted((*frame).clone(), &plan.layout)?
        } else {
            (*frame).clone()
        };
        let path = output.staged(&begun.run, POINTS);
        let mut writer = RowWriter::create(output, path, Arc::clone(&schema))?;
        let mut batches = lake.batches(frame).await?;
        let mut reader = Reader::new(&plan.layout, is_sorted, Some(&surveyed.known.partitions))?;
        let mut written = vec![0; surveyed.partitions.len()];
        let copied = async {
            while let Some(rows) = batches.next().await? {
                let points = reader.read(&rows)?;
                for batch in embedded(
                    &schema,
                    plan,
                    run,
                    &surveyed.known,
                    models,
                    &points,
                    &mut written,
                )? {
                    writer.write(batch).await?;
                }
            }
            Ok::<_, Stop>(())
        };
        match copied.await {
            Ok(()) => return writer.finish().await,
            // The files have changed their order since the first pass.
            Err(Stop::Unsorted) if !is_sorted => is_sorted = true,
            Err(_) if batches.must_read_again() => {}
            Err(stop) => return Err(stop.into_error("reading points again")),
        }
        writer.abort().await?;
    }
}

/// The rows of the table for all points of a query, in the order of their keys.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn collect(
    lake: &Lake,
    frame: DataFrame,
    plan: &Arc<PointsPlan>,
    known: &Arc<Known>,
    models: &Arc<Vec<PointsModel>>,
) -> Result<(SchemaRef, Vec<RecordBatch>)> {
    let run = plan.run_schema(known.partitions.clone());
    let schema = schema(plan, &run, models);
    let run = Arc::new(run);
    let start = || {
        Ok(Collected {
            schema: Arc::clone(&schema),
            plan: Arc::clone(plan),
            run: Arc::clone(&run),
            known: Arc::clone(known),
            models: Arc::clone(models),
            written: vec![0; known.len()],
            rows: Vec::new(),
        })
    };
    let partitions = Some(&known.partitions[..]);
    let (collected, _) = read(lake, frame, &plan.layout, partitions, start).await?;
    Ok((schema, collected.rows))
}

/// Keeps the rows of the table.
struct Collected {
    schema: SchemaRef,
    plan: Arc<PointsPlan>,
    run: Arc<RunSchema>,
    known: Arc<Known>,
    models: Arc<Vec<PointsModel>>,
    written: Vec<usize>,
    rows: Vec<RecordBatch>,
}

impl Receiver for Collected {
    fn push(&mut self, _: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let (schema, plan, run) = (&self.schema, &self.plan, &self.run);
        let (known, models) = (&self.known, &self.models);
        let rows = embedded(schema, plan, run, known, models, batch, &mut self.written)?;
        self.rows.extend(rows);
        Ok(())
    }
}

fn list(width: usize) -> DataType {
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    DataType::FixedSizeList(item, width as i32)
}

/// Partition, lag, key, and for each fit its cluster and its embedding.
pub(crate) fn schema(plan: &PointsPlan, run: &RunSchema, models: &[PointsModel]) -> SchemaRef {
    let mut fields = run.leading();
    let key = plan.layout.key.iter();
    fields.extend(key.map(|f| Field::new(f.name(), f.data_type().clone(), false)));
    for fit in models.first().iter().flat_map(|model| &model.fits) {
        if fit.has_clusters() {
            let name = format!("{}_affiliation", fit.name);
            fields.push(Field::new(name, DataType::Int32, true));
        }
        // A point that is not connected to most others has no embedding.
        let columns = fit.columns().into_iter();
        fields.extend(columns.map(|column| Field::new(column.name, list(column.width), true)));
    }
    Arc::new(Schema::new(fields))
}

/// The rows of the table for some points, one batch per partition. `written` has the number
/// of earlier rows of each partition.
fn embedded(
    schema: &SchemaRef,
    plan: &PointsPlan,
    run: &RunSchema,
    known: &Known,
    models: &[PointsModel],
    points: &PointBatch,
    written: &mut [usize],
) -> Result<Vec<RecordBatch>> {
    let d = points.dimension;
    let mut batches = Vec::new();
    for (rows, partition) in &points.partitions {
        let mut scaled = points.coordinates[rows.start * d..rows.end * d].to_vec();
        for row in scaled.chunks_exact_mut(d) {
            row.iter_mut()
                .zip(&known.divisors)
                .for_each(|(x, s)| *x /= s);
        }
        let (n, first) = (rows.len(), written[*partition as usize]);
        let mut of_lags = Vec::new();
        for lag in 0..plan.layout.n_lags() {
            let at = UInt32Array::from(vec![*partition; n]);
            let leading = run.partitions.iter().map(|keys| take(keys, &at, None));
            let leading: Result<Vec<ArrayRef>, _> = leading.collect();
            let broken = |e| Error::with_source(Kind::Bug, "points do not fit their table", e);
            let mut columns = leading.map_err(broken)?;
            columns.extend(run.lag.columns(lag, n));
            columns.extend(points.key.iter().map(|key| key.slice(rows.start, n)));
            let is_own = |m: &&PointsModel| m.partition == *partition as usize && m.lag == lag;
            match models.iter().find(is_own) {
                Some(model) => {
                    let fits = model.fits.iter();
                    columns.extend(fits.flat_map(|fit| of_fit(fit, &scaled, d, first)));
                }
                // There are no pairs, and so no model.
                None => {
                    let rest = schema.fields()[columns.len()..].iter();
                    columns.extend(rest.map(|field| new_null_array(field.data_type(), n)));
                }
            }
            let batch = RecordBatch::try_new(Arc::clone(schema), columns).map_err(broken)?;
            of_lags.push(batch);
        }
        batches.push(by_row(schema, of_lags, n)?);
        written[*partition as usize] += n;
    }
    Ok(batches)
}

/// The rows of several lags, each row with all of its lags, so that the order does not depend on
/// the sizes of batches.
fn by_row(schema: &SchemaRef, of_lags: Vec<RecordBatch>, n: usize) -> Result<RecordBatch> {
    if let [only] = &of_lags[..] {
        return Ok(only.clone());
    }
    let broken = |e| Error::with_source(Kind::Bug, "points do not fit their table", e);
    let all = concat_batches(schema, &of_lags).map_err(broken)?;
    let lags = of_lags.len();
    let order = (0..n).flat_map(|row| (0..lags).map(move |lag| (lag * n + row) as u32));
    let order = UInt32Array::from_iter_values(order);
    take_record_batch(&all, &order).map_err(broken)
}

/// The columns of a fit for the rows from `first`.
fn of_fit(fit: &PointFit, scaled: &[f64], d: usize, first: usize) -> Vec<ArrayRef> {
    let pieces: Vec<(Vec<f64>, Option<Vec<u32>>)> = scaled
        .par_chunks(PIECE * d)
        .enumerate()
        .map(|(at, rows)| fit.embed(rows, first + at * PIECE, rows.len() / d))
        .collect();
    let mut columns: Vec<ArrayRef> = Vec::new();
    if fit.has_clusters() {
        let clusters = pieces.iter().filter_map(|(_, clusters)| clusters.as_ref());
        let clusters = clusters.flatten().map(|&k| k as i32);
        columns.push(Arc::new(Int32Array::from_iter_values(clusters)));
    }
    let parts = fit.columns();
    let all: usize = parts.iter().map(|part| part.width).sum();
    for part in parts {
        let rows = pieces
            .iter()
            .flat_map(|(values, _)| values.chunks_exact(all));
        let rows = rows.map(|row| &row[part.first..][..part.width]);
        let nulls = NullBuffer::from_iter(rows.clone().map(|row| !row[0].is_nan()));
        let values = Float64Array::from_iter_values(rows.flatten().copied());
        let item = Arc::new(Field::new("item", DataType::Float64, false));
        let nulls = (nulls.null_count() > 0).then_some(nulls);
        let lists = FixedSizeListArray::new(item, part.width as i32, Arc::new(values), nulls);
        columns.push(Arc::new(lists));
    }
    columns
}
