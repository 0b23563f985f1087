//! Training rows → the filters of every partition.

use crate::assess::certificates;
use crate::assess::filters::of_claims;
use crate::error::{self, Error, Result};
use crate::evidence::observations::{Observations, Prior, Supervision};
use crate::evidence::pass::checkpoints;
use crate::memory;
use crate::methods::FilterMethod;
use crate::methods::filter::model::{FilterFit, FilterModel, FitInput};
use crate::methods::filter::params::{Bandwidth, Kalman, Kernel, KernelBayes, System};
use crate::output::checkpoint::Checkpoint;
use crate::output::tables::observations::{FilterOfModel, FilterScores, FittedFilter};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::memory::Lack;
use crate::plan::observations::{ObservationsPlan, PlannedFilter};
use crate::plan::observations_memory::FilterSize;
use crate::plan::pipeline::keys::Empty;
use crate::read::observations::training::TrainingRows;
use crate::run::counts::model::{partition_place, seed};
use crate::run::failures::{Failures, no_evidence, reasons};
use crate::run::observations::fit_rows::FitRows;
use crate::run::progress::Progress;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

/// The filters of one partition.
pub(crate) struct FittedPartition {
    /// The number of the partition.
    pub(crate) partition: usize,
    /// In the order of the plan.
    pub(crate) fits: Vec<TimedFit>,
}

/// A filter, and how long its fit took.
pub(crate) struct TimedFit {
    pub(crate) fit: FilterFit,
    pub(crate) time: FitTime,
}

/// How long a fit took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FitTime {
    pub(crate) seconds: f64,
    /// Whether an earlier run had finished the fit. `seconds` is then the time to read it.
    pub(crate) resumed: bool,
}

/// Whether a method cannot be fitted without training rows.
fn needs_rows(method: &FilterMethod) -> bool {
    let is_given = |own: System<'_>| {
        own.q.is_some() && own.r.is_some() && own.x0.is_some() && own.p0.is_some()
    };
    match method {
        FilterMethod::KernelBayes(_) => true,
        FilterMethod::Kalman(Kalman {
            f, h, q, r, x0, p0, ..
        }) => {
            let given = [f, h, q, r, p0].into_iter().all(Option::is_some);
            !given || x0.is_none()
        }
        FilterMethod::Ekf(own) => !is_given(own.system()),
        FilterMethod::Ukf(own) => !is_given(own.system()),
    }
}

/// The evidence of all filters.
pub(crate) struct Fitting {
    pub(crate) plan: Arc<ObservationsPlan>,
    pub(crate) training: TrainingRows,
    /// Supervision and priors, by fit.
    pub(crate) points: Vec<FitRows>,
    /// The partitions.
    pub(crate) run: RunSchema,
}

/// Training rows that another one follows; all training rows of a static problem.
pub(crate) fn usable(plan: &ObservationsPlan, rows: &Observations) -> u64 {
    let rows = if plan.layout.is_static() {
        rows.len()
    } else {
        rows.n_transitions()
    };
    rows as u64
}

/// A filter to fit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unit {
    /// The number of the partition.
    pub(crate) partition: usize,
    /// The place of the fit in the plan.
    pub(crate) fit: usize,
}

impl Fitting {
    /// The filters of all partitions with training rows, and the partitions without that are left
    /// out. Partitions without that may not be left out are failures.
    ///
    /// # Errors
    /// If no partition has training rows, or the memory does not suffice.
    pub(crate) fn units(&self, failures: &mut Failures) -> Result<(Vec<Unit>, Vec<usize>)> {
        let (plan, training, run) = (&self.plan, &self.training, &self.run);
        let needed = plan.fits.iter().any(|fit| needs_rows(&fit.method));
        let (mut full, mut empty) = (Vec::new(), Vec::new());
        for (partition, own) in training.partitions.iter().enumerate() {
            if let Some(fault) = &own.fault {
                let fault = Error::input(fault.clone());
                failures.take::<()>(partition_place(run, partition), Err(fault))?;
            } else if needed && usable(plan, &own.rows) == 0 {
                empty.push(partition);
            } else {
                full.push(partition);
            }
        }
        let what = if !plan.has_state() {
            "there is no row with a trajectory and a time"
        } else if plan.layout.is_static() {
            "there is no training row with a state and an observation"
        } else {
            "no training row with a state and an observation is followed by another one"
        };
        if full.is_empty() && failures.is_empty() {
            let reasons = reasons(&training.found.dropped.0);
            let hint = if !plan.has_state() {
                "check the SQL"
            } else if plan.layout.is_static() {
                "check the split"
            } else {
                "check the split, and `sequences.interval` against the times of a trajectory"
            };
            return Err(Error::input(format!(
                "{what} in {}{reasons}; {hint}{}",
                error::counted(training.found.rows, "row"),
                plan.times.hint()
            )));
        }
        if plan.job.empty == Empty::Fail {
            for partition in std::mem::take(&mut empty) {
                let lacking = Err(no_evidence(Empty::Fail, what));
                failures.take::<()>(partition_place(run, partition), lacking)?;
            }
        }
        let (threads, limit) = (rayon::current_num_threads(), memory::limit());
        Lack::none(full.iter().flat_map(|&partition| {
            let rows = &training.partitions[partition].rows;
            let size = FilterSize {
                rows: rows.len() as u64,
                state: match rows.state_width {
                    0 => plan.state_width().unwrap_or(0) as u64,
                    own => own as u64,
                },
                observation: rows.observation_width as u64,
            };
            plan.fits.iter().filter_map(move |fit| {
                let lack = plan.lacking(&fit.name, &fit.method, size, threads, limit)?;
                Some(lack.at(partition_place(run, partition)))
            })
        }))?;
        let of = |&partition: &usize| {
            let fits = 0..plan.fits.len();
            fits.map(move |fit| Unit { partition, fit })
        };
        Ok((full.iter().flat_map(of).collect(), empty))
    }

    /// What a unit is fitted to.
    pub(crate) fn input(&self, unit: Unit) -> UnitInput<'_> {
        let points = &self.points[unit.fit];
        UnitInput {
            fit: unit.fit,
            place: partition_place(&self.run, unit.partition),
            rows: Cow::Borrowed(&self.training.partitions[unit.partition].rows),
            prior: points.prior(unit.partition).map(Cow::Borrowed),
            supervision: points.every(unit.partition).map(Cow::Borrowed),
        }
    }

    /// Fits filters in this process, or takes those of a run that did not end.
    pub(crate) fn fit(
        &self,
        units: &[Unit],
        work: &Checkpoint,
        progress: &dyn Progress,
    ) -> Vec<Result<TimedFit>> {
        progress.stage("fit", Some(units.len() as u64));
        let fitted = units.par_iter().map(|&unit| {
            memory::wait_for_room();
            let name = format!("filters-{}-{}", unit.partition, unit.fit);
            let start = Instant::now();
            let found = checkpoints::find::<FilterFit>(work, &name);
            let resumed = found.is_some();
            let fit = match found {
                Some(fit) => fit,
                None => self.input(unit).fit(&self.plan)?,
            };
            let took = start.elapsed();
            if !resumed {
                checkpoints::keep(work, &name, took, &fit);
            }
            progress.advance(1);
            let seconds = took.as_secs_f64();
            let time = FitTime { seconds, resumed };
            Ok(TimedFit { fit, time })
        });
        fitted.collect()
    }
}

/// The fits of each partition whose filters were all fitted. `fits` has one fit per unit.
///
/// # Errors
/// See [`Failures::take`].
pub(crate) fn by_partition(
    run: &RunSchema,
    units: &[Unit],
    fits: Vec<Result<TimedFit>>,
    failures: &mut Failures,
) -> Result<Vec<FittedPartition>> {
    let mut all: Vec<(usize, Result<Vec<TimedFit>>)> = Vec::new();
    for (unit, fit) in units.iter().zip(fits) {
        match all.last_mut() {
            Some((last, fits)) if *last == unit.partition => match (&mut *fits, fit) {
                (Ok(fits), Ok(fit)) => fits.push(fit),
                (Ok(_), Err(e)) => *fits = Err(e),
                // The first error is that of the partition.
                (Err(_), _) => {}
            },
            _ => all.push((unit.partition, fit.map(|fit| vec![fit]))),
        }
    }
    let mut fitted = Vec::new();
    for (partition, fits) in all {
        let fits = failures.take(partition_place(run, partition), fits)?;
        fitted.extend(fits.map(|fits| FittedPartition { partition, fits }));
    }
    Ok(fitted)
}

/// What one filter of one partition is fitted to.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct UnitInput<'a> {
    /// The place of the fit in the plan.
    fit: usize,
    /// The partition, for messages and seeds.
    place: String,
    rows: Cow<'a, Observations>,
    prior: Option<Cow<'a, Prior>>,
    supervision: Option<Cow<'a, Supervision>>,
}

/// Whether all points are equal. A point has `width` numbers.
fn all_equal(points: &[f64], width: usize) -> bool {
    let mut points = points.chunks_exact(width.max(1));
    let first = points.next();
    points.all(|point| Some(point) == first)
}

impl UnitInput<'_> {
    /// Checks that bandwidths can be chosen by distances of training rows.
    ///
    /// # Errors
    /// If all states or all observations are equal.
    fn check_distances(&self, plan: &ObservationsPlan, fit: &PlannedFilter) -> Result<()> {
        let FilterMethod::KernelBayes(KernelBayes {
            kernel: Kernel::Rbf,
            bandwidth: Bandwidth::Rule(_),
            ..
        }) = &fit.method
        else {
            return Ok(());
        };
        let (rows, layout) = (&*self.rows, &plan.layout);
        for (what, points, width, fields) in [
            ("state", &rows.states, rows.state_width, &layout.state),
            (
                "observation",
                &rows.observations,
                rows.observation_width,
                &layout.observation,
            ),
        ] {
            if rows.len() > 1 && all_equal(points, width) {
                let names: Vec<&str> = fields.iter().map(|f| f.name().as_str()).collect();
                return Err(Error::input(format!(
                    "all training rows have the same {what} (`{}`), so distances give no bandwidth; give `bandwidth` numbers, or leave the {what} out",
                    names.join("`, `")
                )));
            }
        }
        Ok(())
    }

    /// Fits the filter.
    ///
    /// # Errors
    /// If it cannot be fitted.
    pub(crate) fn fit(&self, plan: &ObservationsPlan) -> Result<FilterFit> {
        let fit = &plan.fits[self.fit];
        let fitted = self.fitted(plan, fit);
        fitted.map_err(|e| e.at(format!("fit `{}`", fit.name)))
    }

    fn fitted(&self, plan: &ObservationsPlan, fit: &PlannedFilter) -> Result<FilterFit> {
        self.check_distances(plan, fit)?;
        let input = FitInput {
            rows: &self.rows,
            is_static: plan.layout.is_static(),
            prior: self.prior.as_deref(),
            supervision: self.supervision.as_deref(),
            dynamics: fit.dynamics.as_ref(),
        };
        if fit.prior.is_some() && input.prior.is_none() {
            return Err(Error::input("`prior` has no rows of this partition"));
        }
        if fit.takes_nearest() && input.supervision.is_none() {
            let what = "`supervision` has no states of this partition, of which the nearest to a prediction is used";
            return Err(Error::input(what));
        }
        let seed = seed(plan.job.seed, &self.place, &fit.name);
        let found = fit.method.fit(&input, seed)?;
        // A certificate does not know the rows, but a warning may say what is wrong with them.
        let because = |e: Error| match found.warnings.first() {
            Some(warning) => e.at(warning),
            None => e,
        };
        certificates::check(&fit.name, &of_claims(&found.claims)).map_err(because)?;
        Ok(found)
    }
}

/// A filter as the tables have it.
pub(crate) fn written(
    planned: &PlannedFilter,
    fit: FilterFit,
    scores: FilterScores,
    warning: Option<String>,
) -> FilterOfModel {
    let mut warnings = fit.warnings;
    warnings.extend(warning);
    let rule = match &planned.method {
        FilterMethod::KernelBayes(own) => Some(own.rule.name().to_string()),
        FilterMethod::Kalman(_) | FilterMethod::Ekf(_) | FilterMethod::Ukf(_) => None,
    };
    FilterOfModel {
        name: planned.name.clone(),
        method: planned.method.name().to_string(),
        certificates: of_claims(&fit.claims),
        bootstrap: None,
        warnings,
        model: FittedFilter {
            rule,
            state: planned.state.clone(),
            numbers: fit.model.numbers(),
            factors: fit.model.factors(),
            tuning: fit.tuning,
            scores,
            errors: Vec::new(),
        },
    }
}

/// Numbers per state and per observation of the models.
pub(crate) fn widths(models: &[FittedPartition]) -> Option<(usize, usize)> {
    let first: Option<&FilterModel> = models.first()?.fits.first().map(|own| &own.fit.model);
    first.map(FilterModel::widths)
}
