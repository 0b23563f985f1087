//! gyre turns the Parquet tables of a data lake into low-rank Markov models: coherent and
//! metastable sets (affiliations), state embeddings and reduced transition matrices, each with the
//! numbers that say whether to trust it.
//!
//! The `README.md` of the repository shows the program, and the [`guide`] has one page per task.
//! This page is the map of the library.
//!
//! # Run a pipeline
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("walk.toml");
//! # let state = |t: u32| t / 7 % 2 * 2 + t * t % 3 % 2;
//! # let rows: String = (0..60).map(|t| format!("{t},{}\n", state(t))).collect();
//! # std::fs::write(folder.path().join("walk.csv"), format!("t,s\n{rows}"))?;
//! # let out = folder.path().join("out");
//! # std::fs::write(&path, format!(r#"
//! # job = {{ name = "walk", output = {out:?} }}
//! # tables.walk.path = "walk.csv"
//! # transitions = {{ sql = "SELECT * FROM walk", time = "t", state = "s", lag = 1 }}
//! # fit = [{{ name = "dbmr", method = "dbmr", rank = 2 }}]
//! # "#))?;
//! use gyre::{Outcome, Pipeline};
//!
//! let planned = Pipeline::from_file(path)?.open().await?.plan().await?;
//! match planned.run().await? {
//!     Outcome::Done(record) => assert_eq!(record.facts.transitions, 59.0),
//!     Outcome::NothingToDo => println!("the output is up to date"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Fit rows that you have in memory
//!
//! [`Rows`] fits models of all kinds to Arrow record batches, without a pipeline file.
//! [`run::batches`] has an example for each kind.
//!
//! # Fit evidence that you have
//!
//! [`fit`] takes the parameters of a method and its evidence: [`Counts`] for sets,
//! [`Points`] for [`DiffusionMap`] and [`HeatSketch`],
//! [`Triples`] for [`SpectralHmm`].
//!
//! ```
//! use gyre::{Counts, Svd};
//!
//! // How often a walk goes from a source to a target. It stays among the states 0 and 1, or
//! // among the states 2 and 3, nine times of ten.
//! let counts = Counts::from_triples(4, 4, [
//!     (0, 0, 5), (0, 1, 4), (0, 2, 1), (1, 0, 4), (1, 1, 5), (1, 3, 1),
//!     (2, 2, 5), (2, 3, 4), (2, 0, 1), (3, 2, 4), (3, 3, 5), (3, 1, 1),
//! ])?;
//! let fit = gyre::fit(&Svd::new(2), &counts, 1)?;
//! let model = &fit.model;
//! assert_eq!(model.sources.affiliation, [0, 0, 1, 1]);
//! assert!((model.spectrum[1].value - 0.8).abs() < 1e-9);
//! # Ok::<(), gyre::Error>(())
//! ```
//!
//! # The rooms
//!
//! Rows become tables in this order:
//!
//! ```text
//! lake ─▶ SQL ─▶ rows ─▶ counts ─▶ shards ─▶ fits ─▶ tables ─▶ version in a store
//!        read            evidence  methods  assess   output
//! ```
//!
//! The rooms below are listed from the highest to the lowest. A file imports from its own room and
//! from lower ones, and no files import each other in a circle.
//!
//! | room | what it does |
//! |---|---|
//! | `cli` | runs the commands; shows progress; writes metrics and lineage events |
//! | `cluster` | counts and fits on other machines: tasks, rounds of tasks, Ballista |
//! | [`run`] | runs a plan: count, fit, check, write, promote; assigns new rows; compares outputs |
//! | `report` | beside `plan`: shows results in the terminal and as pictures (feature `report`) |
//! | [`plan`] | pipeline file and tables → a checked plan |
//! | [`output`] | fits → tables → versions in a store; reads results back |
//! | [`read`] | lake → SQL → rows → counts |
//! | [`assess`] | fits → certificates, bootstrap, ranks, Markov tests, changes of sets |
//! | [`methods`] | evidence, parameters and a seed → a fit; one folder per family |
//! | [`evidence`] | what methods are fitted to, and passes over it |
//! | [`math`] | dense and iterative linear algebra, matching, ordered sums |
//! | `store` | a location → an object store |
//! | `memory` | keeps the process within its memory bound |
//!
//! # Where to find it
//!
//! | question | place |
//! |---|---|
//! | Where does a pair of rows become a count? | `read/counts/lagged.rs`, then `tally.rs` |
//! | Where does DBMR decide on a label? | `methods/dbmr/nearest.rs`, then `local_search.rs` |
//! | Where does a table get a column? | `output/tables/`, one file per table |
//! | When does a commit become visible? | `output/commit.rs` puts `current.json` |
//! | How do I add a method? | copy `methods/given.rs`, add a line to `methods/mod.rs` |
//! | Where is a key of the pipeline file? | `plan/pipeline/keys.rs`, or the method's struct |
//!
//! # What always holds
//!
//! - `math`, `evidence`, `methods` and `assess` are pure: no I/O, no async code, no clock, no
//!   environment, no Arrow. A fit depends on evidence, parameters and seed alone.
//! - A stage takes a checked [`plan`], never the text of a pipeline file.
//! - Counts are integers and are conserved: their sum is the number of accepted pairs.
//! - No dense matrix of size targets × sources exists, and no loop allocates per row or non-zero.
//! - The bytes of tables do not depend on threads, shards, machines, the order of files or the
//!   clock.
//! - A result becomes visible as a whole, after its checks, or not at all.
//! - The library never touches the terminal.

#![warn(missing_docs, unreachable_pub)]
// With `--document-private-items`, public pages link to private items.
#![allow(rustdoc::private_intra_doc_links)]

pub mod assess;
#[doc(hidden)]
pub mod cli;
#[doc(hidden)]
pub mod cluster;
pub mod error;
pub mod evidence;
pub mod guide;
pub mod math;
#[doc(hidden)]
pub mod memory;
pub mod methods;
pub mod output;
pub mod plan;
pub mod read;
#[cfg(feature = "report")]
pub mod report;
pub mod run;
#[doc(hidden)]
pub mod store;

pub use error::{Error, Kind, Result};
pub use evidence::counts::Counts;
pub use evidence::points::Points;
pub use evidence::symbols::triples::Triples;
pub use methods::cocluster::Cocluster;
pub use methods::cocluster::metastable::Metastable;
pub use methods::dbmr::params::Dbmr;
pub use methods::estimator::Estimator;
pub use methods::fit::Fit;
pub use methods::given::Given;
pub use methods::low_rank::model::LowRank;
pub use methods::spectral::gpcca::Gpcca;
pub use methods::spectral::svd::Svd;
pub use methods::{
    DiffusionMap, Ekf, GivenHmm, HeatSketch, Kalman, KernelBayes, Method, SpectralHmm,
    StateEmbedding, Ukf,
};
pub use plan::counts::CountsPlan;
pub use plan::pipeline::Pipeline;
pub use run::Outcome;
pub use run::batches::{Fitted, Rows};

/// The version of Arrow whose record batches [`Rows`] takes.
pub use arrow;

use evidence::pass::Passes;

/// Fits a method to its evidence in this process. The same seed gives the same model.
///
/// # Errors
/// If a parameter is wrong, or the evidence has no such fit.
pub fn fit<M: Estimator>(method: &M, evidence: &M::Evidence<'_>, seed: u64) -> Result<M::Model> {
    method
        .check()
        .map_err(|(key, message)| Error::spec(format!("`{key}` {message}")))?;
    method.fit(&Passes::local(), evidence, seed)
}
