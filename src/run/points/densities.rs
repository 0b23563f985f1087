//! Writes the table `densities`: pairs of points with the densities of all fits.
//!
//! Pairs are read and written in the order of their coordinates, batch by batch, so memory does not
//! grow with their number.

use crate::error::{Error, Kind, Result};
use crate::methods::state_embedding::params::Norm;
use crate::output::row_writer::RowWriter;
use crate::output::staging::StagedTable;
use crate::output::tables::points::{
    DENSITIES, EmbeddedStates, PointModel, PointsModel, density_schema,
};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::points::{PlannedDensities, PointsPlan};
use crate::read::lake::errors::failed;
use crate::read::lake::rounding::rounding;
use crate::read::points::layout::PointLayout;
use crate::read::rows::coordinates::{Coordinates, coordinates};
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Stop, bug};
use crate::run::kind::Running;
use crate::run::points::first_pass::Known;
use crate::run::points::kind::PointsKind;
use arrow::array::{ArrayRef, Float64Array, RecordBatch, UInt32Array};
use arrow::compute::{cast, take_arrays};
use arrow::datatypes::{Field, SchemaRef};
use datafusion::logical_expr::{col, ident};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pairs that are scored at a time by one thread.
const PIECE: usize = 1024;

/// Reads the pairs and writes the table. None without `[densities]`.
pub(super) async fn write(
    run: &Running<'_, PointsKind>,
    known: &Known,
    shared: &RunSchema,
    models: &[PointsModel],
) -> Result<Option<StagedTable>> {
    let Some(planned) = &run.plan.densities else {
        return Ok(None);
    };
    let none = BTreeMap::new();
    let frame = run.lake.query_of("densities", &planned.sql, &none).await?;
    let columns = planned.fields().enumerate();
    let columns = columns.map(|(at, field)| ident(field.name()).alias(at.to_string()));
    let what = "the pairs of [densities] cannot be read";
    let frame = frame.select(columns.collect::<Vec<_>>());
    let frame = frame.map_err(|e| failed(what, e))?;
    let numbers = 0..planned.fields().count();
    let frame = rounding(frame, &numbers.collect::<Vec<_>>())?;
    // The order of rows does not depend on files.
    let order = (0..planned.fields().count()).map(|at| col(format!("\"{at}\"")).sort(true, true));
    let frame = frame.sort(order.collect());
    let frame = frame.map_err(|e| failed(what, e))?;
    let schema = schema(run.plan, shared, models);
    loop {
        let path = run.output.staged(&run.begun.run, DENSITIES);
        let mut writer = RowWriter::create(run.output, path, Arc::clone(&schema))?;
        let mut batches = run.lake.batches(frame.clone()).await?;
        let mut dimension = Some(known.divisors.len());
        let copied = async {
            while let Some(rows) = batches.next().await? {
                let pairs = Pairs::read(planned, &run.plan.layout, &rows, &mut dimension)?;
                for model in models {
                    writer
                        .write(scored(&schema, shared, known, model, &pairs)?)
                        .await?;
                }
            }
            Ok::<_, Stop>(())
        };
        match copied.await {
            Ok(()) => {
                let rows = writer.finish().await?;
                return Ok(Some(StagedTable { rows, schema }));
            }
            Err(_) if batches.must_read_again() => {}
            Err(stop) => return Err(stop.into_error("reading pairs")),
        }
        writer.abort().await?;
    }
}

/// The state embeddings of a model with their names.
fn states(model: &PointsModel) -> impl Iterator<Item = (&str, &EmbeddedStates)> {
    model.fits.iter().filter_map(|fit| match &fit.model {
        PointModel::StateEmbedding(own) => Some((fit.name.as_str(), own.as_ref())),
        PointModel::Heat(_) => None,
    })
}

/// Partition, lag, both points, and for each fit its densities.
fn schema(plan: &PointsPlan, run: &RunSchema, models: &[PointsModel]) -> SchemaRef {
    let points = plan.densities.iter().flat_map(PlannedDensities::fields);
    let fits = models.first().into_iter().flat_map(states);
    density_schema(run, points, fits.map(|(name, own)| (name, own.model.norm)))
}

/// Pairs of points.
struct Pairs {
    /// The columns of the SQL.
    columns: Vec<ArrayRef>,
    /// x and y, each n × d, row-major.
    points: [Vec<f64>; 2],
    /// Whether both points have all their coordinates.
    is_sound: Vec<bool>,
}

impl Pairs {
    /// `dimension` is that of the points of the fit.
    fn read(
        planned: &PlannedDensities,
        layout: &PointLayout,
        rows: &RecordBatch,
        dimension: &mut Option<usize>,
    ) -> Result<Pairs, Stop> {
        let cast_all = rows.columns().iter().zip(planned.fields());
        let columns = cast_all.map(|(column, field)| cast(column, field.data_type()));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>().map_err(bug)?;
        let n_from = planned.from.len();
        let mut is_sound = vec![true; rows.num_rows()];
        let mut end = |fields: &[Field], own: &[ArrayRef]| {
            let place = |at: usize| format!("the pair {}", describe(own, at));
            let Coordinates { values, faults } =
                coordinates(fields, own, dimension, |k| layout.limit(k), place)?;
            let faults = is_sound.iter_mut().zip(faults);
            faults.for_each(|(sound, fault)| *sound &= fault.is_none());
            Ok::<_, Stop>(values)
        };
        Ok(Pairs {
            points: [
                end(&planned.from, &columns[..n_from])?,
                end(&planned.to, &columns[n_from..])?,
            ],
            columns,
            is_sound,
        })
    }
}

/// The rows of a model.
fn scored(
    schema: &SchemaRef,
    run: &RunSchema,
    known: &Known,
    model: &PointsModel,
    pairs: &Pairs,
) -> Result<RecordBatch> {
    let (n, d) = (pairs.is_sound.len(), known.divisors.len());
    let broken = |e| Error::with_source(Kind::Bug, "densities do not fit their table", e);
    let at = UInt32Array::from(vec![model.partition as u32; n]);
    let mut columns = take_arrays(&run.partitions, &at, None).map_err(broken)?;
    columns.extend(run.lag.columns(model.lag, n).map_err(broken)?);
    columns.extend(pairs.columns.iter().cloned());
    let points = pairs.points.each_ref().map(|points| {
        let divisors = known.divisors.iter().cycle();
        points
            .iter()
            .zip(divisors)
            .map(|(x, s)| x / s)
            .collect::<Vec<f64>>()
    });
    // A density is per unit of the volume in the units of the input.
    let volume: f64 = known.divisors.iter().product();
    for (_, own) in states(model) {
        let pieces = points[0]
            .par_chunks(PIECE * d)
            .zip(points[1].par_chunks(PIECE * d));
        let values: Vec<[Vec<f64>; 3]> =
            pieces.map(|(x, y)| densities(own, volume, x, y)).collect();
        for column in 0..3 {
            let values = values.iter().flat_map(|piece| &piece[column]);
            let values = values.zip(&pairs.is_sound);
            // A point that is too far for the features has no density either.
            let values = values
                .map(|(value, is_sound)| Some(*value).filter(|value| *is_sound && !value.is_nan()));
            columns.push(Arc::new(values.collect::<Float64Array>()));
        }
    }
    RecordBatch::try_new(Arc::clone(schema), columns).map_err(broken)
}

/// The densities of some pairs by one fit.
fn densities(own: &EmbeddedStates, volume: f64, x: &[f64], y: &[f64]) -> [Vec<f64>; 3] {
    let unit = match own.model.norm {
        Norm::Lebesgue => volume,
        Norm::Density => 1.0,
    };
    let density = own
        .model
        .densities(x, y)
        .into_iter()
        .map(|p| p / unit)
        .collect();
    let features = &own.model.features;
    let joint = own
        .joint_density
        .as_ref()
        .map(|joint| joint.values(&features.evaluate(x), &features.evaluate(y)));
    let [plain, reshaped] = joint.unwrap_or_default();
    [density, plain, reshaped]
}
