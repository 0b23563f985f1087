//! Fits diffusion maps and heat sketches to the points of a query.

use crate::error::{Error, Kind, Result};
use crate::evidence::points::Points;
use crate::methods::PointMethod;
use crate::methods::heat_kernel::fit::{diffusion_map, heat_sketch};
use crate::output::tables::points::{PointFit, PointModel, PointsModel};
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::points::layout::PointLayout;
use crate::read::points::{PointBatch, Receiver, read};
use crate::read::rows::stop::Stop;
use crate::run::points::Surveyed;
use datafusion::dataframe::DataFrame;
use std::sync::Arc;

/// Keeps all points, by partition.
struct Loaded {
    divisors: Arc<Vec<f64>>,
    partitions: Vec<Points>,
}

impl Receiver for Loaded {
    fn push(&mut self, _: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let d = batch.dimension;
        for (rows, partition) in &batch.partitions {
            let at = *partition as usize;
            while self.partitions.len() <= at {
                self.partitions.push(Points::new(d, Vec::new()));
            }
            let points = &mut self.partitions[at];
            for row in batch.coordinates[rows.start * d..rows.end * d].chunks_exact(d) {
                let scaled = row.iter().zip(self.divisors.iter()).map(|(x, s)| x / s);
                points.coordinates.extend(scaled);
            }
            if let Some(weights) = &batch.weights {
                let own = points.weights.get_or_insert_default();
                own.extend_from_slice(&weights[rows.clone()]);
            }
        }
        Ok(())
    }
}

/// Fits all diffusion maps and sketches of a plan to every partition.
pub(super) async fn fit(
    plan: &Arc<PointsPlan>,
    lake: &Lake,
    frame: &DataFrame,
    surveyed: &Surveyed,
) -> Result<Vec<PointsModel>> {
    let divisors = Arc::new(surveyed.divisors.clone());
    let start = || {
        Ok(Loaded {
            divisors: Arc::clone(&divisors),
            partitions: Vec::new(),
        })
    };
    let (loaded, _) = read(lake, frame.clone(), &plan.layout, start).await?;
    let mut models = Vec::new();
    for (partition, points) in loaded.partitions.into_iter().enumerate() {
        let (own, place) = (Arc::clone(plan), surveyed.place(plan, partition, 0));
        let rows = points.n() as u64;
        let fitted = tokio::task::spawn_blocking(move || fit_points(&own, &points)).await;
        let panicked = |e| Error::with_source(Kind::Bug, "fitting points panicked", e);
        let fits = fitted.map_err(panicked)?.map_err(|e| e.at(&place))?;
        for fit in &fits {
            for warning in fit.warnings() {
                tracing::warn!(fit = fit.name, place, "{warning}");
            }
        }
        models.push(PointsModel {
            partition,
            lag: 0,
            rows,
            divisors: surveyed.divisors.clone(),
            fits,
        });
    }
    Ok(models)
}

fn fit_points(plan: &PointsPlan, points: &Points) -> Result<Vec<PointFit>> {
    let mut fits = Vec::new();
    for fit in &plan.fits {
        let embedded = match &fit.method {
            PointMethod::DiffusionMap(params) => diffusion_map(points, params, plan.seed),
            PointMethod::HeatSketch(params) => heat_sketch(points, params, plan.seed),
            PointMethod::StateEmbedding(_) => Err(Error::bug("points without time have no pairs")),
        };
        fits.push(PointFit {
            name: fit.name.clone(),
            method: fit.method.name(),
            model: PointModel::Heat(Box::new(
                embedded.map_err(|e| e.at(format!("fit `{}`", fit.name)))?,
            )),
        });
    }
    Ok(fits)
}
