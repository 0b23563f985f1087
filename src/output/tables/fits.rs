//! The tables `fits`, `restarts` and `spectrum`.

use crate::assess::certificates::{Certificate, certified};
use crate::methods::fit::{Fit, How};
use crate::methods::heat_kernel::diffusion_map::Level;
use crate::methods::low_rank::metrics::METRICS;
use crate::methods::low_rank::model::{LowRank, Singular};
use crate::output::tables::columns::{Columns, TableColumns, by_name, of_run_fits};
use crate::output::tables::embeddings;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::{FitColumns, RunSchema};

struct FitRow<'a> {
    columns: &'a FitColumns,
    how: &'a How,
    low_rank: &'a LowRank,
    certificates: &'a [Certificate],
    model: &'a FittedModel,
}

/// One row per fit. [`crate::methods::low_rank::metrics::Metrics`] describes the metrics.
pub(crate) fn fits<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let rows = |model: &'a FittedModel| {
        let fits = by_name(run, model.fits.iter().zip(&model.certificates)).into_iter();
        let row = |(columns, (fit, certificates)): (_, (&'a Fit, &'a Vec<_>))| FitRow {
            columns,
            how: &fit.how,
            low_rank: &fit.model,
            certificates,
            model,
        };
        fits.map(row).collect()
    };
    let left_out = |r: &FitRow<'a>| r.model.counts.left_out.as_ref();
    let sizes = |sizes: &[usize]| sizes.iter().map(|&n| n as u64).collect::<Vec<_>>();
    Columns::of(rows)
        .key("fit", |r| r.columns.name.as_str())
        .column("method", |r| r.columns.method)
        // r, empty sets included.
        .column("rank", |r| r.low_rank.rank as u32)
        .column("n_sources", |r| r.low_rank.sources.affiliation.len() as u64)
        .column("n_targets", |r| r.low_rank.targets.affiliation.len() as u64)
        // Pairs of states with a transition.
        .column("nonzeros", |r| r.model.nonzeros as u64)
        .amount(run, "transitions", |r| r.model.total)
        // States and transitions that `connected = true` left out.
        .part("dropped_states", left_out, |own| own.states as u64)
        .amount(run, "dropped_transitions", move |r| {
            left_out(r).map(|own| own.transitions)
        })
        .column("seed", |r| r.how.seed)
        .column("restarts", |r| r.how.restarts.len() as u32)
        // The index of the restart that was kept.
        .column("best_restart", |r| r.how.best_restart as u32)
        // Iterations of the best restart, or products of the matrix with a vector.
        .column("iterations", |r| r.how.iterations as u64)
        .column("converged", |r| r.how.converged)
        // Whether all certificates hold.
        .column("certified", |r| certified(r.certificates))
        // Sets without a source.
        .column("empty_states", |r| r.low_rank.metrics.empty_states as u32)
        .each(METRICS, |metric, r| metric(&r.low_rank.metrics))
        .column("coherence_p", |r| r.low_rank.metrics.coherence_p)
        .column("crispness", |r| r.low_rank.metrics.crispness)
        // States per set.
        .column("source_sizes", move |r| {
            sizes(&r.low_rank.metrics.source_sizes)
        })
        .column("target_sizes", move |r| {
            sizes(&r.low_rank.metrics.target_sizes)
        })
        // Pr[X ∈ E_k] per set.
        .column("weights", |r| r.low_rank.metrics.weights.clone())
        .finish()
}

/// One row per restart of a fit.
pub(crate) fn restarts<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let restarts = |Fit { how, .. }: &'a Fit| {
        let restarts = how.restarts.iter().enumerate();
        restarts.map(move |(at, restart)| (at, restart, at == how.best_restart))
    };
    of_run_fits(run, |model: &FittedModel| &model.fits, restarts)
        .key("restart", |&(_, (at, ..))| at as u32)
        .column("seed", |(_, (_, r, _))| r.seed)
        // The beginning of the restart.
        .column("init", |(_, (_, r, _))| r.init.as_deref())
        // The number of all sources, or of the sources in the sample.
        .column("sources", |(_, (_, r, _))| r.sources as u64)
        .column("iterations", |(_, (_, r, _))| r.iterations as u64)
        // Columns of the matrix that DBMR scored.
        .column("evaluations", |(_, (_, r, _))| r.evaluations)
        // Log-likelihood, mutual information or inertia, by method.
        .column("objective", |(_, (_, r, _))| r.objective)
        .column("empty_states", |(_, (_, r, _))| r.empty_states as u32)
        .column("converged", |(_, (_, r, _))| r.converged)
        .column("is_best", |&(_, (.., is_best))| is_best)
        .finish()
}

/// One row per singular value of a fit.
pub(crate) fn spectrum<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let rows = |model: &'a FittedModel| {
        let fits = by_name(run, &model.fits).into_iter();
        let of_fits = fits.flat_map(|(columns, fit)| {
            let values = fit.model.spectrum.iter().enumerate();
            values.map(|(at, value)| (columns.name.as_str(), at, *value))
        });
        let of_embeddings = embeddings::by_name(run, model).into_iter();
        let of_embeddings = of_embeddings.flat_map(|(columns, own)| {
            let levels = own.spectrum.iter().enumerate();
            levels.map(|(at, level)| (columns.name.as_str(), at, singular(level)))
        });
        let mut rows: Vec<_> = of_fits.chain(of_embeddings).collect();
        rows.sort_by_key(|(fit, at, _)| (*fit, *at));
        rows
    };
    Columns::of(rows)
        .key("fit", |(fit, ..)| *fit)
        .key("index", |&(_, at, _)| at as u32)
        // σ(P̃) of an SVD fit, |λ| of a diffusion map, σ(Λ̃) of the others.
        .column("singular_value", |(.., s)| s.value)
        .column("residual", |(.., s)| s.residual)
        // Real and imaginary part of the eigenvalue of T, or λ of a diffusion map.
        .column("eigenvalue", |(.., s)| s.eigenvalue.map(|[real, _]| real))
        .column("eigenvalue_imaginary", |(.., s)| {
            s.eigenvalue.map(|[_, imaginary]| imaginary)
        })
        .finish()
}

/// An eigenvalue of a symmetric kernel as a singular value.
fn singular(level: &Level) -> Singular {
    Singular {
        value: level.value.abs(),
        residual: Some(level.residual),
        eigenvalue: Some([level.value, 0.0]),
    }
}
