//! Writes the table `points`: the key of every row with its embeddings and clusters.
//!
//! The models are known before the first row is written, so the input is read again. Memory holds
//! the models, a few batches and one encoded row group.

use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::output::pointer::Begun;
use crate::output::row_writer::RowWriter;
use crate::output::tables::points::{POINTS, PointFit, PointsModel};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::points::PointsPlan;
use crate::read::points::{PointBatch, Reader, sorted};
use crate::read::rows::stop::Stop;
use crate::run::points::{PlannedPoints, Surveyed};
use arrow::array::{
    ArrayRef, FixedSizeListArray, Float64Array, Int32Array, RecordBatch, UInt32Array,
};
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use rayon::prelude::*;
use std::sync::Arc;

/// Rows that are embedded at a time by one thread.
const PIECE: usize = 1024;

/// Reads the points again and writes the table. Returns the number of rows.
pub(super) async fn write(
    planned: &PlannedPoints,
    output: &Output,
    begun: &Begun,
    run: &RunSchema,
    surveyed: &Surveyed,
    models: &[PointsModel],
) -> Result<u64> {
    let PlannedPoints { plan, lake, frame } = planned;
    let schema = schema(plan, run, models);
    let mut is_sorted = surveyed.found.sorted;
    loop {
        let frame = if is_sorted {
            sorted(frame.clone(), &plan.layout)?
        } else {
            frame.clone()
        };
        let path = output.staged(&begun.run, POINTS);
        let mut writer = RowWriter::create(output, path, Arc::clone(&schema))?;
        let mut batches = lake.batches(frame).await?;
        let mut reader = Reader::new(&plan.layout, is_sorted)?;
        let copied = async {
            while let Some(rows) = batches.next().await? {
                let points = reader.read(&rows)?;
                for batch in embedded(&schema, run, surveyed, models, &points)? {
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

fn list(width: usize) -> DataType {
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    DataType::FixedSizeList(item, width as i32)
}

/// Partition, lag, key, and for each fit its embedding and cluster.
fn schema(plan: &PointsPlan, run: &RunSchema, models: &[PointsModel]) -> SchemaRef {
    let mut fields = run.leading();
    let key = plan.layout.key.iter();
    fields.extend(key.map(|f| Field::new(f.name(), f.data_type().clone(), false)));
    for fit in models.first().iter().flat_map(|model| &model.fits) {
        let named = |of: &str| format!("{}_{of}", fit.name());
        if fit.has_clusters() {
            fields.push(Field::new(named("affiliation"), DataType::Int32, false));
        }
        fields.push(Field::new(named("embedding"), list(fit.dimension()), false));
    }
    Arc::new(Schema::new(fields))
}

/// The rows of the table for some points, one batch per partition and lag.
fn embedded(
    schema: &SchemaRef,
    run: &RunSchema,
    surveyed: &Surveyed,
    models: &[PointsModel],
    points: &PointBatch,
) -> Result<Vec<RecordBatch>> {
    let d = points.dimension;
    let mut batches = Vec::new();
    for (rows, partition) in &points.partitions {
        let mut scaled = points.coordinates[rows.start * d..rows.end * d].to_vec();
        for row in scaled.chunks_exact_mut(d) {
            row.iter_mut()
                .zip(&surveyed.divisors)
                .for_each(|(x, s)| *x /= s);
        }
        let n = rows.len();
        for model in models.iter().filter(|m| m.partition == *partition as usize) {
            let at = UInt32Array::from(vec![*partition; n]);
            let leading = run.partitions.iter().map(|keys| take(keys, &at, None));
            let leading: Result<Vec<ArrayRef>, _> = leading.collect();
            let broken = |e| Error::with_source(Kind::Bug, "points do not fit their table", e);
            let mut columns = leading.map_err(broken)?;
            columns.extend(run.lag.columns(model.lag, n));
            columns.extend(points.key.iter().map(|key| key.slice(rows.start, n)));
            for fit in &model.fits {
                columns.extend(of_fit(fit, &scaled, d));
            }
            let batch = RecordBatch::try_new(Arc::clone(schema), columns).map_err(broken)?;
            batches.push(batch);
        }
    }
    Ok(batches)
}

/// The columns of a fit.
fn of_fit(fit: &PointFit, scaled: &[f64], d: usize) -> Vec<ArrayRef> {
    let pieces: Vec<(Vec<f64>, Option<Vec<u32>>)> = scaled
        .par_chunks(PIECE * d)
        .map(|rows| fit.embed(rows))
        .collect();
    let mut columns: Vec<ArrayRef> = Vec::new();
    if fit.has_clusters() {
        let clusters = pieces.iter().filter_map(|(_, clusters)| clusters.as_ref());
        let clusters = clusters.flatten().map(|&k| k as i32);
        columns.push(Arc::new(Int32Array::from_iter_values(clusters)));
    }
    let width = fit.dimension();
    let values = pieces.iter().flat_map(|(values, _)| values).copied();
    let values = Arc::new(Float64Array::from_iter_values(values));
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    let lists = FixedSizeListArray::new(item, width as i32, values, None);
    columns.push(Arc::new(lists));
    columns
}
