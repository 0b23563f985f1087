//! Training rows → the filters of every partition.

use crate::assess::certificates;
use crate::assess::certificates::Certificate;
use crate::error::{Error, Result};
use crate::evidence::pass::checkpoints;
use crate::evidence::state_space::StateSpace;
use crate::methods::FilterMethod;
use crate::methods::filter::model::{Claim, FilterFit, FilterModel, FitInput};
use crate::methods::filter::params::{Kalman, System};
use crate::output::checkpoint::Checkpoint;
use crate::output::tables::filters::{FilterScores, FiltersModel, FittedFilter};
use crate::output::tables::run_schema::RunSchema;
use crate::plan::filters::{FiltersPlan, PlannedFilter};
use crate::plan::filters_memory::FilterSize;
use crate::plan::pipeline::keys::Empty;
use crate::read::state_space::training::TrainingRows;
use crate::run::filters::points::FitPoints;
use crate::run::model::{place_of, seed};
use crate::run::progress::Progress;
use rayon::prelude::*;
use std::time::Instant;

/// The filters of one partition.
pub(crate) struct FittedPartition {
    /// The number of the partition.
    pub(crate) partition: usize,
    /// In the order of the plan.
    pub(crate) fits: Vec<FilterFit>,
}

/// The place of a partition, for messages and seeds.
pub(crate) fn place_in(run: &RunSchema, partition: usize) -> String {
    match place_of(run, partition, 0).as_str() {
        "" => "the model".into(),
        place => place.to_string(),
    }
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

/// Fits all filters of all partitions. Also returns the partitions without training rows.
///
/// # Errors
/// If a partition has no training rows and may not be left out, the memory does not suffice, or a
/// filter cannot be fitted.
pub(crate) fn fit_all(
    plan: &FiltersPlan,
    training: &TrainingRows,
    points: &[FitPoints],
    run: &RunSchema,
    work: &Checkpoint,
    progress: &dyn Progress,
) -> Result<(Vec<FittedPartition>, Vec<usize>)> {
    let needed = plan.fits.iter().any(|fit| needs_rows(&fit.method));
    let is_empty = |rows: &StateSpace| {
        if plan.layout.is_static() {
            rows.is_empty()
        } else {
            rows.n_transitions() == 0
        }
    };
    let (mut full, mut empty) = (Vec::new(), Vec::new());
    for (partition, own) in training.partitions.iter().enumerate() {
        if needed && is_empty(&own.rows) {
            empty.push(partition);
        } else {
            full.push(partition);
        }
    }
    let what = if plan.layout.is_static() {
        "there is no training row with a state and an observation"
    } else {
        "there are no two training rows in a row with a state and an observation"
    };
    if full.is_empty() {
        let reasons = training.found.dropped.0.iter();
        let reasons: String = reasons
            .map(|(reason, rows)| format!(", {rows} dropped for {reason}"))
            .collect();
        let hint = if plan.layout.is_static() {
            "check the split"
        } else {
            "check the split, and `sequences.interval` against the times of a trajectory"
        };
        return Err(Error::input(format!(
            "{what} in {}{reasons}; {hint}",
            crate::error::counted(training.found.rows, "row")
        )));
    }
    if let Some(&first) = empty.first()
        && plan.job.empty == Empty::Fail
    {
        let what = format!("{what}; `empty = \"skip\"` leaves such partitions out");
        return Err(Error::input(what).at(place_in(run, first)));
    }
    let (threads, limit) = (rayon::current_num_threads(), crate::memory::limit());
    for &partition in &full {
        let rows = &training.partitions[partition].rows;
        let size = FilterSize {
            rows: rows.len() as u64,
            state: rows.state_width as u64,
            observation: rows.observation_width as u64,
        };
        for fit in &plan.fits {
            plan.check_memory(&fit.name, &fit.method, size, threads, limit)
                .map_err(|e| e.at(place_in(run, partition)))?;
        }
    }
    let units: Vec<(usize, usize)> = full
        .iter()
        .flat_map(|&partition| (0..plan.fits.len()).map(move |fit| (partition, fit)))
        .collect();
    progress.stage("fit", Some(units.len() as u64));
    let fitted = units.into_par_iter().map(|(partition, at)| {
        crate::memory::wait_for_room();
        let name = format!("filters-{partition}-{at}");
        let kept = checkpoints::find::<FilterFit>(work, &name);
        let fit = match kept {
            Some(fit) => fit,
            None => {
                let start = Instant::now();
                let place = place_in(run, partition);
                let (fit, rows) = (&plan.fits[at], &training.partitions[partition].rows);
                let found = fit_one(plan, fit, rows, partition, &points[at], &place)
                    .map_err(|e| e.at(format!("fit `{}`", fit.name)).at(place))?;
                checkpoints::keep(work, &name, start.elapsed(), &found);
                found
            }
        };
        progress.advance(1);
        Ok(fit)
    });
    let mut fitted = fitted.collect::<Result<Vec<FilterFit>>>()?.into_iter();
    let all = full.into_iter().map(|partition| FittedPartition {
        partition,
        fits: fitted.by_ref().take(plan.fits.len()).collect(),
    });
    Ok((all.collect(), empty))
}

fn fit_one(
    plan: &FiltersPlan,
    fit: &PlannedFilter,
    rows: &StateSpace,
    partition: usize,
    points: &FitPoints,
    place: &str,
) -> Result<FilterFit> {
    let input = FitInput {
        rows,
        is_static: plan.layout.is_static(),
        prior: points.prior(partition),
        supervision: points.every(partition),
        dynamics: fit.dynamics.as_ref(),
    };
    if fit.prior.is_some() && input.prior.is_none() {
        return Err(Error::input("`prior` has no rows of this partition"));
    }
    let found = fit
        .method
        .fit(&input, seed(plan.job.seed, place, &fit.name))?;
    certificates::check(&fit.name, &of_claims(&found.claims))?;
    Ok(found)
}

/// Claims as certificates, ordered by name.
fn of_claims(claims: &[Claim]) -> Vec<Certificate> {
    let claims = claims.iter().map(|claim| Certificate {
        name: claim.name.clone().into(),
        ..Certificate::at_most("", claim.value, claim.bound, 0.0)
    });
    let mut all: Vec<Certificate> = claims.collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// A filter as the tables have it.
pub(crate) fn written(
    planned: &PlannedFilter,
    fit: FilterFit,
    scores: FilterScores,
    warning: Option<String>,
) -> FittedFilter {
    let mut warnings = fit.warnings;
    warnings.extend(warning);
    let rule = match &planned.method {
        FilterMethod::KernelBayes(own) => Some(own.rule.name().to_string()),
        FilterMethod::Kalman(_) | FilterMethod::Ekf(_) | FilterMethod::Ukf(_) => None,
    };
    FittedFilter {
        name: planned.name.clone(),
        method: planned.method.name().to_string(),
        rule,
        numbers: fit.model.numbers(),
        factors: fit.model.factors(),
        tuning: fit.tuning,
        scores,
        certificates: of_claims(&fit.claims),
        warnings,
    }
}

/// The filters of one partition with their scores, for the tables. `scores` has the scores and the
/// warning of each fit.
pub(crate) fn model(
    plan: &FiltersPlan,
    own: FittedPartition,
    scores: Vec<(FilterScores, Option<String>)>,
) -> FiltersModel {
    let fits = plan.fits.iter().zip(own.fits).zip(scores);
    FiltersModel {
        partition: own.partition,
        fits: fits
            .map(|((planned, fit), (scores, warning))| written(planned, fit, scores, warning))
            .collect(),
    }
}

/// Numbers per state and per observation of the models.
pub(crate) fn widths(models: &[FittedPartition]) -> Option<(usize, usize)> {
    let first: Option<&FilterModel> = models.first()?.fits.first().map(|fit| &fit.model);
    first.map(FilterModel::widths)
}
