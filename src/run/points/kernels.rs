//! Fits diffusion maps and heat sketches to the points of a query.

use crate::assess::kernels::of_points;
use crate::error::{Error, Result};
use crate::evidence::pass::checkpoints;
use crate::evidence::points::{PointSize, Points};
use crate::memory;
use crate::methods::PointMethod;
use crate::methods::heat_kernel::fit::{diffusion_map, heat_sketch};
use crate::methods::heat_kernel::thinned::{Thinned, points_of_landmarks};
use crate::output::tables::points::{PointFit, PointModel, PointsModel};
use crate::plan::fits::PlannedFit;
use crate::plan::memory::Lack;
use crate::plan::points::PointsPlan;
use crate::read::lake::Lake;
use crate::read::points::layout::PointLayout;
use crate::read::points::survey::WeightUnit;
use crate::read::points::{PointBatch, Receiver, read};
use crate::read::rows::stop::Stop;
use crate::run::kind::Running;
use crate::run::points::first_pass::{FirstPass, Known};
use crate::run::points::kind::PointsKind;
use crate::run::workers::executor::blocking_as;
use datafusion::dataframe::DataFrame;
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// The points of one partition that fits use.
#[derive(Clone)]
pub(crate) struct OwnPoints {
    /// The number of rows.
    rows: u64,
    /// All points, unless all fits have landmarks.
    all: Option<Points>,
    /// Points for fits with landmarks.
    thinned: Option<Thinned>,
}

impl OwnPoints {
    /// No points yet, for the fits of a plan.
    fn new(plan: &PointsPlan, dimension: usize) -> OwnPoints {
        let landmarks = || plan.fits.iter().map(|fit| landmarks(&fit.method));
        let most = landmarks().flatten().map(points_of_landmarks).max();
        OwnPoints {
            rows: 0,
            all: landmarks().any(|count| count.is_none()).then(|| Points {
                dimension,
                ..Points::default()
            }),
            thinned: most.map(|most| Thinned::new(dimension, most, plan.job.seed)),
        }
    }

    fn push(&mut self, row: &[f64], weight: Option<f64>) {
        self.rows += 1;
        if let Some(points) = &mut self.all {
            points.coordinates.extend_from_slice(row);
            if let Some(weight) = weight {
                points.weights.get_or_insert_default().push(weight);
            }
        }
        if let Some(thinned) = &mut self.thinned {
            thinned.push(row, weight.unwrap_or(1.0));
        }
    }

    fn of(&self, method: &PointMethod) -> Option<Cow<'_, Points>> {
        match landmarks(method) {
            Some(count) => {
                let thinned = self.thinned.as_ref();
                thinned.map(|own| Cow::Owned(own.points(points_of_landmarks(count))))
            }
            None => self.all.as_ref().map(Cow::Borrowed),
        }
    }
}

/// The number of landmarks of a method.
pub(crate) fn landmarks(method: &PointMethod) -> Option<usize> {
    match method {
        PointMethod::DiffusionMap(own) => own.landmarks,
        PointMethod::HeatSketch(own) => own.landmarks,
        PointMethod::StateEmbedding(_) => None,
    }
}

/// Keeps the points of some partitions.
struct Loaded {
    divisors: Vec<f64>,
    /// The units of the weights by partition, if rows have weights.
    weights: Option<Vec<WeightUnit>>,
    wanted: Arc<Vec<bool>>,
    partitions: Vec<OwnPoints>,
}

impl Receiver for Loaded {
    fn push(&mut self, _: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let d = batch.dimension;
        let mut scaled = vec![0.0; d];
        for (rows, partition) in &batch.partitions {
            let at = *partition as usize;
            if !self.wanted[at] {
                continue;
            }
            for row in rows.clone() {
                let point = &batch.coordinates[row * d..][..d];
                for ((scaled, x), s) in scaled.iter_mut().zip(point).zip(&self.divisors) {
                    *scaled = x / s;
                }
                let weight = batch.weights.as_ref().zip(self.weights.as_ref());
                let weight = weight.map(|(weights, units)| units[at].of(weights[row]));
                self.partitions[at].push(&scaled, weight);
            }
        }
        Ok(())
    }
}

/// Fits all diffusion maps and sketches of a plan to every partition. The models are in the order
/// of the partitions.
pub(super) async fn fit(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
) -> Result<Vec<Result<PointsModel>>> {
    let (plan, lake, frame) = (run.plan, run.lake, run.frame);
    let name = |partition: usize| format!("kernels/{partition}");
    let n = first_pass.partitions.len();
    let checkpoint = Arc::clone(run.work);
    let found = blocking_as("reading the fits", move || {
        let find = |at| checkpoints::find(checkpoint.as_ref(), &name(at));
        Ok((0..n).map(find).collect::<Vec<Option<PointsModel>>>())
    });
    let found = found.await?;
    let mut models: Vec<Option<Result<PointsModel>>> =
        found.into_iter().map(|model| model.map(Ok)).collect();
    let wanted: Vec<bool> = models.iter().map(Option::is_none).collect();
    if wanted.contains(&true) {
        let known = &first_pass.known;
        let rows = first_pass.partitions.iter().map(|survey| survey.rows);
        let rows = rows.enumerate().filter(|(at, _)| wanted[*at]);
        Lack::none(rows.flat_map(|(at, rows)| {
            let place = known.place(plan, at, 0);
            lacks(plan, known, rows).map(move |lack| lack.at(&place))
        }))?;
        let points = load(lake, frame.clone(), plan, known, wanted).await?;
        for (at, points) in points.into_iter().enumerate() {
            if models[at].is_some() {
                continue;
            }
            let start = Instant::now();
            let model = match fit_partition(plan, known, at, points).await {
                Ok(model) => model,
                Err(e) => {
                    models[at] = Some(Err(e));
                    continue;
                }
            };
            let (took, checkpoint) = (start.elapsed(), Arc::clone(run.work));
            let kept = blocking_as("keeping a fit", move || {
                checkpoints::keep(checkpoint.as_ref(), &name(at), took, &model);
                Ok(model)
            });
            models[at] = Some(Ok(kept.await?));
        }
    }
    Ok(models.into_iter().flatten().collect())
}

/// What the fits to a partition with this number of points lack within the memory limit.
fn lacks(plan: &PointsPlan, known: &Known, points: u64) -> impl Iterator<Item = Lack> {
    let (threads, limit) = (rayon::current_num_threads(), memory::limit());
    let size = PointSize {
        points,
        dimension: known.divisors.len() as u64,
        lags: 1,
    };
    plan.fits
        .iter()
        .filter_map(move |fit| plan.lacking(&fit.name, &fit.method, size, 0, threads, limit))
}

/// Reads the points of the wanted partitions, by partition.
pub(crate) async fn load(
    lake: &Lake,
    frame: DataFrame,
    plan: &PointsPlan,
    known: &Known,
    wanted: Vec<bool>,
) -> Result<Vec<OwnPoints>> {
    let wanted = Arc::new(wanted);
    let start = || {
        Ok(Loaded {
            divisors: known.divisors.clone(),
            weights: known.weights.clone(),
            wanted: Arc::clone(&wanted),
            partitions: vec![OwnPoints::new(plan, known.divisors.len()); wanted.len()],
        })
    };
    let partitions = Some(&known.partitions[..]);
    let (loaded, _) = read(lake, frame, &plan.layout, partitions, start).await?;
    Ok(loaded.partitions)
}

/// Fits all diffusion maps and sketches of a plan to the points of one partition.
///
/// # Errors
/// If the memory does not suffice, or a fit fails. The message does not name the partition.
pub(crate) async fn fit_partition(
    plan: &Arc<PointsPlan>,
    known: &Known,
    partition: usize,
    points: OwnPoints,
) -> Result<PointsModel> {
    known.check(partition)?;
    let (own, place) = (Arc::clone(plan), known.place(plan, partition, 0));
    let rows = points.rows;
    Lack::none(lacks(plan, known, rows))?;
    let fits = blocking_as("fitting points", move || fit_points(&own, &points)).await?;
    for fit in &fits {
        for warning in &fit.warnings {
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

/// Checks that the pairs of points within the radius of a kernel stay within the memory limit. They
/// are counted before they are listed.
fn check_pairs(plan: &PointsPlan, fit: &PlannedFit<PointMethod>, points: &Points) -> Result<()> {
    let limit = memory::limit();
    let Some(pairs) = limit.and_then(|_| fit.method.pairs(points)) else {
        return Ok(());
    };
    let size = PointSize {
        points: points.n() as u64,
        dimension: points.dimension as u64,
        lags: 1,
    };
    let threads = rayon::current_num_threads();
    Lack::none(plan.lacking(&fit.name, &fit.method, size, pairs, threads, limit))
}

fn fit_points(plan: &PointsPlan, points: &OwnPoints) -> Result<Vec<PointFit>> {
    let mut fits = Vec::new();
    for fit in &plan.fits {
        let points = points.of(&fit.method);
        let points = &*points.ok_or_else(|| Error::bug("a fit has no points"))?;
        check_pairs(plan, fit, points)?;
        let embedded = match &fit.method {
            PointMethod::DiffusionMap(params) => diffusion_map(points, params, plan.job.seed),
            PointMethod::HeatSketch(params) => heat_sketch(points, params, plan.job.seed),
            PointMethod::StateEmbedding(_) => Err(Error::bug("points without time have no pairs")),
        };
        let embedded = embedded.map_err(|e| e.at(format!("fit `{}`", fit.name)))?;
        let warnings = embedded.model.warnings.iter();
        fits.push(PointFit {
            name: fit.name.clone(),
            method: fit.method.name().to_string(),
            certificates: of_points(&embedded.model),
            bootstrap: None,
            warnings: warnings.map(ToString::to_string).collect(),
            model: PointModel::Heat(Box::new(embedded)),
        });
    }
    Ok(fits)
}
