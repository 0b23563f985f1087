//! Pure numerics on slices: no I/O, no async, no clock, no environment. A shape mismatch is a bug
//! of the caller and panics.

pub(crate) mod angles;
pub mod arnoldi;
pub(crate) mod components;
pub mod dense;
pub(crate) mod exact;
mod krylov;
pub mod lanczos;
pub(crate) mod matching;
pub(crate) mod portable;
pub(crate) mod scale;
pub mod schur;
pub(crate) mod seed;
pub(crate) mod sum;
