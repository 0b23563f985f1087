//! Fits diffusion maps and heat sketches to the points of a query.

use crate::error::{Error, Kind, Result};
use crate::evidence::pass::checkpoints;
use crate::evidence::points::{PointSize, Points};
use crate::methods::PointMethod;
use crate::methods::heat_kernel::fit::{diffusion_map, heat_sketch};
use crate::output::tables::points::{PointFit, PointModel, PointsModel};
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::points::layout::PointLayout;
use crate::read::points::{PointBatch, Receiver, read};
use crate::read::rows::stop::Stop;
use crate::run::points::site::PointJob;
use crate::run::points::surveyed::{Known, Surveyed};
use datafusion::dataframe::DataFrame;
use std::sync::Arc;
use std::time::Instant;

/// Keeps the points of some partitions.
struct Loaded {
    divisors: Arc<Vec<f64>>,
    wanted: Arc<Vec<bool>>,
    partitions: Vec<Points>,
}

impl Receiver for Loaded {
    fn push(&mut self, _: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let d = batch.dimension;
        for (rows, partition) in &batch.partitions {
            let at = *partition as usize;
            if !self.wanted[at] {
                continue;
            }
            let points = &mut self.partitions[at];
            points.dimension = d;
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
pub(super) async fn fit(job: &PointJob<'_>, surveyed: &Surveyed) -> Result<Vec<PointsModel>> {
    let PointJob {
        plan, lake, frame, ..
    } = job;
    let name = |partition: usize| format!("kernels/{partition}");
    let n = surveyed.partitions.len();
    let checkpoint = Arc::clone(job.checkpoint);
    let found = tokio::task::spawn_blocking(move || {
        let find = |at| checkpoints::find(checkpoint.as_ref(), &name(at));
        (0..n).map(find).collect::<Vec<Option<PointsModel>>>()
    });
    let panicked = |e| Error::with_source(Kind::Bug, "reading the fits panicked", e);
    let mut models = found.await.map_err(panicked)?;
    let wanted: Vec<bool> = models.iter().map(Option::is_none).collect();
    if wanted.contains(&true) {
        let known = &surveyed.known;
        let points = load(lake, (*frame).clone(), &plan.layout, known, wanted).await?;
        for (at, points) in points.into_iter().enumerate() {
            if models[at].is_some() {
                continue;
            }
            let start = Instant::now();
            let model = fit_partition(plan, known, at, points).await?;
            let (took, checkpoint) = (start.elapsed(), Arc::clone(job.checkpoint));
            let kept = tokio::task::spawn_blocking(move || {
                checkpoints::keep(checkpoint.as_ref(), &name(at), took, &model);
                model
            });
            let panicked = |e| Error::with_source(Kind::Bug, "keeping a fit panicked", e);
            models[at] = Some(kept.await.map_err(panicked)?);
        }
    }
    Ok(models.into_iter().flatten().collect())
}

/// Reads the points of the wanted partitions, by partition.
pub(crate) async fn load(
    lake: &Lake,
    frame: DataFrame,
    layout: &Arc<PointLayout>,
    known: &Known,
    wanted: Vec<bool>,
) -> Result<Vec<Points>> {
    let divisors = Arc::new(known.divisors.clone());
    let wanted = Arc::new(wanted);
    let start = || {
        Ok(Loaded {
            divisors: Arc::clone(&divisors),
            wanted: Arc::clone(&wanted),
            partitions: vec![Points::default(); wanted.len()],
        })
    };
    let known = Some(&known.partitions[..]);
    let (loaded, _) = read(lake, frame, layout, known, start).await?;
    Ok(loaded.partitions)
}

/// Fits all diffusion maps and sketches of a plan to the points of one partition.
pub(crate) async fn fit_partition(
    plan: &Arc<PointsPlan>,
    known: &Known,
    partition: usize,
    points: Points,
) -> Result<PointsModel> {
    let (own, place) = (Arc::clone(plan), known.place(plan, partition, 0));
    let rows = points.n() as u64;
    let size = PointSize {
        points: rows,
        dimension: points.dimension as u64,
        lags: 1,
    };
    for fit in &plan.fits {
        let threads = rayon::current_num_threads();
        let limit = crate::memory::limit();
        plan.check_memory(&fit.name, &fit.method, size, threads, limit)
            .map_err(|e| e.at(&place))?;
    }
    let fitted = tokio::task::spawn_blocking(move || fit_points(&own, &points)).await;
    let panicked = |e| Error::with_source(Kind::Bug, "fitting points panicked", e);
    let fits = fitted.map_err(panicked)?.map_err(|e| e.at(&place))?;
    for fit in &fits {
        for warning in fit.warnings() {
            tracing::warn!(fit = fit.name, place, "{warning}");
        }
    }
    Ok(PointsModel {
        partition,
        lag: 0,
        rows,
        coordinates: plan.layout.coordinate_names(),
        divisors: known.divisors.clone(),
        fits,
    })
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
            method: fit.method.name().to_string(),
            model: PointModel::Heat(Box::new(
                embedded.map_err(|e| e.at(format!("fit `{}`", fit.name)))?,
            )),
        });
    }
    Ok(fits)
}
