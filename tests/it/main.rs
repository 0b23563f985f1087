//! One binary for all tests that use gyre from outside.
//!
//! - `assign`: new rows and the model of an earlier run
//! - `buckets`: outputs in S3 and Google's store, as servers in the tests speak for them
//! - `checks`: limits and SQL that a result must keep
//! - `cli`: the program's help, messages and exit codes
//! - `clouds`: inputs and outputs in S3, Azure and the like, where servers of them are installed
//! - `cluster`: tasks on machines that die, stop and come back, with the feature of that name
//! - `cluster_runs`: whole runs there, against runs of one process; what a plan says of them
//! - `cut_off`: one of their executors loses its network
//! - `counting`: counts against independent SQL, in every order and split of the rows
//! - `faults`: what a run of every night meets: stores, files, clocks, disks and memory that fail it
//! - `faulty`: a store whose calls go wrong
//! - `leaving`: what leaves the process, without secrets, and whether or not it can be read
//! - `formats`: the same rows in every format, and text that is written wrongly
//! - `inputs`: files of every kind, layout and name
//! - `names`: sets that keep their names between runs, and `gyre compare`
//! - `fuzz`: whatever is written in a pipeline file or on the command line, the answer is a value or an error
//! - `markov`: connected chains, timescales and Chapman-Kolmogorov tests, effective counts
//! - `nightly`: what starts gyre every night
//! - `operations`: logs, metrics, lineage events and records, and values of data in all of them
//! - `outcomes`: how runs end that have nothing to fit, fail or could never write, and what they leave
//! - `passes`: models whose passes are spread over tasks, against runs of one process
//! - `pages`: the README, the guides and the other pages: their links, blocks, keys and the examples for a first run
//! - `paths`: which files a path means, and what a run may read and write at once
//! - `papers`: figures of the papers, each with its citation
//! - `peers`: soft sets as other programs find them, where they can be imported
//! - `pipeline_file`: what a pipeline file says, and the messages for what is wrong in it
//! - `pipelines`: the pipelines and commands that the README and the guides show
//! - `ranks`: how many sets: the table that compares ranks, and the rules that pick one
//! - `readers`: the tables as DuckDB, Polars and pandas read them
//! - `resume`: runs that are killed, and runs that go on where they were
//! - `sets`: every way to make sets, on the worlds of the papers
//! - `stops`: runs that are stopped by signals, locks of others and limits of the system
//! - `sql`: the SQL of a pipeline, its keys and its lags: what is refused, what is dropped, and what things are called
//! - `stores`: faults of the object store at every call, and two runs whose calls come in every order
//! - `validation`: resamples of trajectories, pairs and counts
//! - `house`: the order of the rooms of `src`, their purity, and the list of test files
//! - `hostile`: damaged files, Hive folders of any name
//! - `tasks`: runs in tasks as other machines do them, against runs of one process
//! - `types`: keys and times of every type, against a count by hand
//! - `increments`: runs that count new files alone, against runs that count everything
//! - `memory`: runs whose memory is bounded
//! - `versions`: runs at the same time, earlier results, what dead runs leave, and `gyre clean`
//! - `weights`: trajectories whose rows weigh something
//! - `machines`: starts and kills processes of a cluster
//! - `inside`: runs a pipeline in this process, and its tasks in any order
//! - `lake`: makes small lakes and runs the program on them
//! - `wire`: S3 and Google's store over HTTP, some of whose answers go wrong
//! - `worlds`: small Markov worlds with known answers

mod assign;
mod buckets;
mod checks;
mod cli;
mod clouds;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod cluster_runs;
mod counting;
#[cfg(feature = "cluster")]
mod cut_off;
mod faults;
mod faulty;
mod formats;
mod fuzz;
mod hostile;
mod house;
mod increments;
mod inputs;
mod inside;
mod lake;
mod leaving;
#[cfg(feature = "cluster")]
mod machines;
mod markov;
mod memory;
mod names;
mod nightly;
mod operations;
mod outcomes;
mod pages;
mod papers;
mod passes;
mod paths;
mod peers;
mod pipeline_file;
mod pipelines;
mod ranks;
mod readers;
mod resume;
mod sets;
mod sql;
mod stops;
mod stores;
mod tasks;
mod types;
mod validation;
mod versions;
mod weights;
mod wire;
mod worlds;
