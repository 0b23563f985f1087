//! One binary for all tests that use gyre from outside.
//!
//! - `assign`: new rows and the model of an earlier run
//! - `cli`: the program's help, messages and exit codes
//! - `counting`: counts against independent SQL, in every order and split of the rows
//! - `names`: sets that keep their names between runs, and `gyre compare`
//! - `markov`: connected chains, timescales and Chapman-Kolmogorov tests, effective counts
//! - `papers`: figures of the papers, each with its citation
//! - `peers`: soft sets as other programs find them, where they can be imported
//! - `pipelines`: the pipelines and commands that the README shows
//! - `ranks`: how many sets: the table that compares ranks, and the rules that pick one
//! - `readers`: the tables as DuckDB, Polars and pandas read them
//! - `resume`: runs that are killed, and runs that go on where they were
//! - `sets`: every way to make sets, on the worlds of the papers
//! - `stores`: faults of the object store at every call, and two runs whose calls come in every order
//! - `validation`: resamples of trajectories, pairs and counts
//! - `versions`: runs at the same time, earlier results, what dead runs leave, and `gyre clean`
//! - `lake`: makes small lakes and runs the program on them
//! - `worlds`: small Markov worlds with known answers

mod assign;
mod cli;
mod counting;
mod lake;
mod markov;
mod names;
mod papers;
mod peers;
mod pipelines;
mod ranks;
mod readers;
mod resume;
mod sets;
mod stores;
mod validation;
mod versions;
mod worlds;
