//! Heat-kernel embeddings of points and of states (*heat kernel*, Gilbert & O'Neill): diffusion
//! maps and random sketches of the powers of a normalised Gaussian kernel.
//!
//! In: points (`n × d`), or the counts of a chain; parameters and a seed. Out: an embedding of
//! every row, a spectrum or the energies of the sketch, and a model that embeds new rows.
//!
//! - `neighbours`: distinct points in the order of a kd-tree, and their neighbours.
//! - `kernel`: K_ij = exp(−‖x_i − x_j‖² / ε), dense or sparse, and its products.
//! - `normalise`: Algorithms 1 and 2. `operator`, `eigen`: leading eigenpairs.
//! - `diffusion_map`: Algorithm 3. `sketch`: Algorithms 4 and 5.
//! - `landmarks`, `extension`: a subset that stands for all rows, and the rows of new points.
//! - `thinned`: the points that a fit with landmarks uses.
//! - `chain`: the same for states, with the counts as the kernel.
//! - `prepare`: the kernel of some points. `fit`: the entry points for points.
//! - `distortion`, `trials`: how much an embedding distorts distances, and the same over trials.
//! - `noise`: how much a sketch changes with noise of the points.

pub mod chain;
pub mod diffusion_map;
pub(crate) mod distortion;
pub mod eigen;
pub(crate) mod exponential;
pub(crate) mod extension;
pub(crate) mod fit;
pub mod kernel;
pub(crate) mod landmarks;
pub mod neighbours;
pub(crate) mod noise;
pub(crate) mod normalise;
pub(crate) mod operator;
pub mod params;
pub(crate) mod prepare;
pub(crate) mod random;
pub mod sketch;
pub(crate) mod thinned;
pub mod tree;
pub(crate) mod trials;
pub mod warning;

#[cfg(test)]
mod tests;
