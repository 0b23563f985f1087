//! The table `certificates`: one row per certificate of a fit.

use crate::assess::certificates::Certificate;
use crate::assess::fit_of_model::FitOfModel;
use crate::assess::kernels;
use crate::output::tables::columns::{Columns, TableColumns, by_name};
use crate::output::tables::embeddings;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;

pub(crate) fn certificates<'a>(run: &'a RunSchema) -> TableColumns<'a, FittedModel> {
    let rows = |model: &'a FittedModel| {
        let fits = by_name(run, &model.certificates).into_iter();
        let of_fits = fits.flat_map(|(columns, list)| {
            list.iter().map(move |c| (columns.name.as_str(), c.clone()))
        });
        let of_embeddings = embeddings::by_name(run, model).into_iter();
        let of_embeddings = of_embeddings.flat_map(|(columns, own)| {
            let list = kernels::of_chain(own).into_iter();
            list.map(|certificate| (columns.name.as_str(), certificate))
        });
        let mut rows: Vec<_> = of_fits.chain(of_embeddings).collect();
        rows.sort_by_key(|(fit, _)| *fit);
        rows
    };
    of_claims(rows)
}

/// One row per certificate of each fit of a model.
pub(crate) fn of_fits<'a, M, T: 'a>(fits: fn(&'a M) -> &'a [FitOfModel<T>]) -> TableColumns<'a, M> {
    of_claims(move |model| {
        let fits = FitOfModel::by_name(fits(model)).into_iter();
        let claims = fits.flat_map(|fit| fit.certificates.iter().map(|c| (fit.name.as_str(), c)));
        claims.map(|(fit, claim)| (fit, claim.clone())).collect()
    })
}

/// One row per claim: the name of its fit, and the claim.
fn of_claims<'a, M>(
    rows: impl Fn(&'a M) -> Vec<(&'a str, Certificate)> + Copy + Send + Sync + 'a,
) -> TableColumns<'a, M> {
    Columns::of(rows)
        .key("fit", |(fit, _): &(&str, Certificate)| *fit)
        .key("certificate", |(_, c)| c.name.to_string())
        .column("left_side", |(_, c)| c.left)
        // `=` or `<=`.
        .column("relation", |(_, c)| c.relation.sign())
        .column("right_side", |(_, c)| c.right)
        // Right side minus left side.
        .column("slack", |(_, c)| c.slack())
        // The largest error by rounding and by an iteration that was stopped.
        .column("tolerance", |(_, c)| c.tolerance)
        // Null if an iteration ended before it reached the object of the claim, or a condition of
        // the claim is not met.
        .column("holds", |(_, c)| c.holds)
        .finish()
}
