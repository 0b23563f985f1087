//! gyre turns the Parquet trajectories and transition counts of a data lake into low-rank Markov models: coherent sets
//! (affiliations), state embeddings and reduced transition matrices, each with the numbers that say whether to trust it.
//!
//! A row's journey is the file list:
//!
//! ```text
//! lake ─ read ─▶ tables ─ SQL ─▶ rows ─ count ─▶ counts ─ shard ─▶ shards ─ reduce ─▶ fits ─ write ─▶ lake
//! ```
//!
//! - [`spec`] holds what a pipeline file says, [`plan`] what that means for the tables that are there; [`run`] drives a plan,
//!   and [`model`] fits the counts of one partition and lag.
//! - [`stores`] makes stores of locations. [`read`] opens inputs and asks DataFusion; [`local_files`] reads the bytes of those on disk;
//!   [`double_gyre`] is a table function. Nothing else reads the lake.
//! - [`ledger`] knows which files have been counted, [`increment`] counts the others alone, by [`files`].
//! - [`count`] pairs rows at a lag and counts exactly; [`shard`] cuts the counts into units of work, [`resample`] weighs them by
//!   groups of trajectories.
//! - [`reduce`] has one file a method, on top of [`math`]; a [`passes`] says where their passes run, and which work is done already.
//! - [`markov`] tests the sets of the fits of all lags, where that is asked for.
//! - [`lineage`] lets sets keep the names that an earlier result gave them, and says what changed; [`family`] lets those of several ranks and
//!   lags agree.
//! - [`write`] builds the output tables, stages, checks and promotes them. Nothing else writes under the output; [`written`] reads what
//!   an earlier run has put there.
//! - [`compare`] says how the sets of two outputs go together.
//! - [`assign`] gives new rows to the sets of a written model.
//! - [`checks`] asks the inputs and the staged tables what the pipeline wants to hold, before anything is promoted.
//! - [`journal`] follows a run, [`manifest`] is its record, [`summary`] the text of that; [`metrics`] and [`openlineage`] are what
//!   monitors and catalogues read of it.
//! - [`cli`] has the types of the command line, [`commands`] does what they say for a terminal that the program brings, and [`watch`] tells
//!   others how a run goes; [`error`] is the one error.
//!
//! [`nodes`] says what other machines can do for a run: a [`task`] is what one of them does, and [`rounds`] of tasks count and fit. With the
//! feature of that name, `cluster` is such machines.
//! [`secrets`] hides what must not leave the process; a [`sink`] is a file, a device or a pipe that is told of a run.
//! [`words`] lets names that the program has come back from bytes.
//!
//! [`memory`] keeps the whole process within a bound, and nothing else knows of that.
//!
//! What always holds:
//!
//! - `reduce` and `math` do no I/O and know no async, clock, environment, DataFusion or Arrow. In long sweeps they wait for memory, as allocations
//!   do: nothing depends on it. The library never touches the terminal.
//! - A stage takes a checked `Plan` (or `Assignment`), never a `Pipeline`.
//! - Nothing dense of size targets × sources, ever; nothing is allocated for each row or non-zero in a loop.
//! - The bytes of the tables do not depend on threads, shards, the order of files or the clock.
//! - Counts are conserved: their sum is the number of accepted pairs.

pub mod assess;
pub mod cli;
pub mod cluster;
pub mod error;
pub mod evidence;
pub mod guide;
pub mod math;
pub mod memory;
pub mod methods;
pub mod output;
pub mod plan;
pub mod read;
pub mod run;
pub mod store;
