//! Pure numerics on slices: no I/O, no async, no clock, no environment. A shape mismatch is a bug
//! of the caller and panics.

pub mod angles;
pub mod arnoldi;
pub mod components;
pub mod dense;
pub mod exact;
mod krylov;
pub mod lanczos;
pub mod matching;
pub(crate) mod portable;
pub mod scale;
pub mod schur;
pub mod seed;
pub mod sum;
