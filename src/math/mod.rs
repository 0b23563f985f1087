//! Pure numerics on slices: no I/O, no async, no clock, no environment. Shape mismatches are panics: they are bugs of the caller.

pub mod angles;
pub mod arnoldi;
pub mod components;
pub mod dense;
pub mod lanczos;
pub mod matching;
pub mod scale;
pub mod schur;
pub mod seed;
pub mod sum;
