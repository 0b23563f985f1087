//! Certificates of diffusion maps and heat sketches: facts about the numbers of a normalised kernel,
//! checked on the computed numbers.

use crate::assess::certificates::Certificate;
use crate::methods::heat_kernel::chain::ChainEmbedding;
use crate::methods::heat_kernel::diffusion_map::Level;
use crate::methods::heat_kernel::sketch::Energy;

/// The certificates of an embedding of states, ordered by name.
pub fn of_chain(embedding: &ChainEmbedding) -> Vec<Certificate> {
    let mut list = of_spectrum(&embedding.spectrum);
    list.extend(of_energies(&embedding.energies));
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
