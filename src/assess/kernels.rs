//! Certificates of diffusion maps and heat sketches: facts about the numbers of a normalised
//! kernel, checked on the computed numbers.

use crate::assess::certificates::Certificate;
use crate::methods::heat_kernel::chain::ChainEmbedding;
use crate::methods::heat_kernel::diffusion_map::Level;
use crate::methods::heat_kernel::eigen::LARGEST_RESIDUAL;
use crate::methods::heat_kernel::fit::HeatModel;
use crate::methods::heat_kernel::sketch::Energy;

/// The largest relative error of a sum over the points of a kernel, and of the decomposition of an
/// operator of norm 1: four times ε for each point, and 1,024 for the errors of the terms and of
/// the orthogonality of a basis.
fn rounding(points: usize) -> f64 {
    4.0 * (points + 1024) as f64 * f64::EPSILON
}

/// The certificates of an embedding of states, ordered by name.
pub(crate) fn of_chain(embedding: &ChainEmbedding) -> Vec<Certificate> {
    let mut list = of_spectrum(&embedding.spectrum, rounding(embedding.states), 0.0);
    list.extend(of_energies(&embedding.energies));
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

/// The certificates of a diffusion map or a sketch of points, ordered by name.
pub(crate) fn of_points(model: &HeatModel) -> Vec<Certificate> {
    let checked = &model.checked;
    let rounding = rounding(model.quality.points);
    let mut list = of_spectrum(&model.spectrum, rounding, checked.row_error);
    list.extend(of_energies(&model.energies));
    // Scaling that stopped before `delta` is a warning.
    let row_sums = Certificate::at_most("row_sums", checked.row_error, checked.delta, 0.0);
    list.push(Certificate {
        holds: row_sums.holds.filter(|holds| *holds),
        ..row_sums
    });
    if let Some(square_sum) = checked.square_sum {
        let values = model.spectrum.iter().map(|level| level.value);
        let squares: f64 = values.map(|value| value * value).sum();
        // An error of λ is doubled by its square.
        let doubled = 2.0 * model.spectrum.len() as f64 * (1.0 + checked.row_error);
        let tolerance = rounding * (square_sum + doubled);
        let name = "frobenius";
        list.push(Certificate::at_most(name, squares, square_sum, tolerance));
        let residuals = model.spectrum.iter().map(|level| level.residual);
        let largest = residuals.fold(0.0, f64::max);
        let residual = Certificate::at_most("residual", largest, LARGEST_RESIDUAL, 0.0);
        list.push(residual.if_made(checked.converged));
    }
    if let Some([difference, magnitude]) = checked.reproduction {
        // A bistochastic factor of a new row differs by the error of a row sum.
        let tolerance = (16.0 * rounding + 4.0 * checked.row_error) * magnitude;
        let name = "training_rows";
        list.push(Certificate::at_most(name, difference, 0.0, tolerance));
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

/// The certificates of the eigenvalues of a diffusion map. `row_error` is the largest error of a
/// row sum, by which the first eigenvalue may differ from 1.
fn of_spectrum(spectrum: &[Level], rounding: f64, row_error: f64) -> Vec<Certificate> {
    let mut list = Vec::new();
    if let Some(first) = spectrum.first() {
        // The leading vector is known in closed form.
        let (name, tolerance) = ("first_eigenvalue", rounding + row_error);
        list.push(Certificate::equal(name, first.value, 1.0, tolerance));
    }
    let rise = spectrum.windows(2).map(|w| w[1].value - w[0].value);
    if let Some(rise) = rise.max_by(f64::total_cmp) {
        list.push(Certificate::at_most("descending", rise, 0.0, rounding));
    }
    list
}

/// The certificate of the energies of a sketch, for the power with the least slack.
fn of_energies(energies: &[Energy]) -> Option<Certificate> {
    let claims = energies.iter().map(|energy| {
        let difference = (energy.sketch - energy.other).abs();
        Certificate::at_most("energy", difference, energy.spread, 0.0)
    });
    claims.min_by(|a, b| a.slack().total_cmp(&b.slack()))
}
