//! Certificates of diffusion maps and heat sketches: facts about the numbers of a normalised
//! kernel, checked on the computed numbers.

use crate::assess::certificates::Certificate;
use crate::methods::heat_kernel::chain::ChainEmbedding;
use crate::methods::heat_kernel::diffusion_map::Level;
use crate::methods::heat_kernel::fit::HeatModel;
use crate::methods::heat_kernel::sketch::Energy;

/// The largest ‖Bu − λu‖ of a converged eigenvector.
const RESIDUAL: f64 = 1e-3;

/// The largest relative difference by rounding between a row of a fit and the same row as a new
/// row.
const REPRODUCTION: f64 = 1e-6;

/// The certificates of an embedding of states, ordered by name.
pub fn of_chain(embedding: &ChainEmbedding) -> Vec<Certificate> {
    let mut list = of_spectrum(&embedding.spectrum);
    list.extend(of_energies(&embedding.energies));
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

/// The certificates of a diffusion map or a sketch of points, ordered by name.
pub fn of_points(model: &HeatModel) -> Vec<Certificate> {
    let mut list = of_spectrum(&model.spectrum);
    list.extend(of_energies(&model.energies));
    let checked = &model.checked;
    // Scaling that stopped before `delta` is a warning.
    let row_sums = Certificate::at_most("row_sums", checked.row_error, checked.delta, 0.0);
    list.push(Certificate {
        holds: row_sums.holds.filter(|holds| *holds),
        ..row_sums
    });
    if let Some(square_sum) = checked.square_sum {
        let squares = model.spectrum.iter().map(|level| level.value.powi(2));
        list.push(Certificate::at_most(
            "frobenius",
            squares.sum(),
            square_sum,
            1e-9 * square_sum,
        ));
        let residuals = model.spectrum.iter().map(|level| level.residual);
        let largest = residuals.fold(0.0, f64::max);
        let residual = Certificate::at_most("residual", largest, RESIDUAL, 0.0);
        list.push(Certificate {
            holds: residual.holds.filter(|_| checked.converged),
            ..residual
        });
    }
    if let Some(difference) = checked.reproduction {
        // A bistochastic factor of a new row differs by the error of a row sum.
        let tolerance = REPRODUCTION + 4.0 * checked.row_error;
        let name = "training_rows";
        list.push(Certificate::at_most(name, difference, 0.0, tolerance));
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

/// The certificates of the eigenvalues of a diffusion map.
pub fn of_spectrum(spectrum: &[Level]) -> Vec<Certificate> {
    let mut list = Vec::new();
    if let Some(first) = spectrum.first() {
        // The leading vector is known in closed form.
        list.push(Certificate::equal(
            "first_eigenvalue",
            first.value,
            1.0,
            1e-6,
        ));
    }
    let rise = spectrum.windows(2).map(|w| w[1].value - w[0].value);
    if let Some(rise) = rise.max_by(f64::total_cmp) {
        list.push(Certificate::at_most("descending", rise, 0.0, 1e-12));
    }
    list
}

/// The certificate of the energies of a sketch.
pub fn of_energies(energies: &[Energy]) -> Option<Certificate> {
    let scores = energies.iter().filter_map(|energy| energy.z_score);
    let largest = scores.map(f64::abs).max_by(f64::total_cmp)?;
    Some(Certificate::at_most("energy", largest, 6.0, 0.0))
}
