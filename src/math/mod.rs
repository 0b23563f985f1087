//! Pure numerics on slices: no I/O, no async, no clock, no environment. Shape mismatches are panics: they are bugs of the caller.

pub mod csr;
pub mod sum;
