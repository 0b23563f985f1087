//! Shows results: tables in the terminal, and pictures of them on a page.
//!
//! Polars queries the tables, and Kuva draws. This room reads results through `output` alone.

pub mod tables;
