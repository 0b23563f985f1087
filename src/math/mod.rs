//! Pure numerics on slices: no I/O, no async, no clock, no environment. Shape mismatches are panics: they are bugs of the caller.

pub mod angles;
pub mod arnoldi;
pub mod components;
pub mod csr;
pub mod dense;
pub mod flow;
pub mod kl;
pub mod krylov;
pub mod lanczos;
pub mod look;
pub mod matching;
pub mod moves;
pub mod scale;
pub mod schur;
pub mod sum;
