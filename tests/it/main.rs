//! One binary with all tests of the public interface of gyre.
//!
//! Tests:
//! - `answers`: what reports say first, the names of states, reports of earlier results and of
//!   assignments (feature `report`)
//! - `assign`: new rows and the model of an earlier run
//! - `browser`: reports in Chromium: marks, texts, tooltips, no requests (feature `report`)
//! - `buckets`: outputs in S3 and in Google's store, on servers of the tests
//! - `checks`: limits and SQL queries that a result must pass
//! - `cli`: the program's help, messages and exit codes
//! - `clouds`: inputs and outputs in S3, Azure and other stores, if servers for them are installed
//! - `cluster`: tasks on processes that die, stop and return (feature `cluster`)
//! - `cluster_runs`: whole runs on a cluster, compared with runs of one process (feature `cluster`)
//! - `counting`: counts compared with independent SQL, for all orders and splits of the rows
//! - `cut_off`: an executor that loses its network (feature `cluster`)
//! - `declared`: the keys of tables that name files, make values null and set types
//! - `earlier_results`: results of earlier programs, of all kinds of evidence
//! - `embeddings`: the ranks, resamples and known sets of state embeddings
//! - `examples`: pipelines, commands, scripts and queries that the pages print
//! - `exact`: numbers, codes, categories and times of files that differ in type
//! - `faults`: failing stores, damaged files, clocks that jump, full disks and too little memory
//! - `formats`: the same rows in every format, and text files with errors
//! - `fuzz`: any pipeline file or command line gives a value or an error
//! - `hmm_rates`: how the error of a hidden Markov model falls with the number of windows
//! - `hostile`: damaged files, and Hive folders with unusual names
//! - `house`: the layout of the source code
//! - `increments`: runs that count new files only, compared with runs that count all files
//! - `init`: pipelines that `gyre init` proposes
//! - `inputs`: files of every kind, layout and name
//! - `leaving`: output of the process: no secrets, and the exit code if the output is unwritable
//! - `markov`: connected states, timescales, Chapman-Kolmogorov tests and effective counts
//! - `memory`: runs with a memory limit
//! - `names`: sets that keep their names between runs, and `gyre compare`
//! - `nightly`: the deployment files that start gyre every night
//! - `observations`: runs of filters: order, gaps, lists, assignments, comparisons and resumed runs
//! - `observations_file`: the keys of states and observations, and the plans of filters
//! - `observations_measured`: filters without known states, and observations with missing numbers
//! - `observations_peers`: Kalman filters compared with filterpy and numpy
//! - `observations_worlds`: filters of known worlds, compared with exact answers
//! - `operations`: logs, metrics, lineage events and records, and data values in all of them
//! - `outcomes`: runs without transitions, failed runs and unwritable outputs
//! - `pages`: links, blocks, keys and first examples of the README, the guides and the other pages
//! - `paper_tables`: the tables of the guides that lead from the papers to keys, columns and tests
//! - `papers`: results of the papers, each with its citation
//! - `passes`: models whose passes are tasks, compared with models that one process fits
//! - `paths`: the files that a path selects, and the separation of input and output
//! - `peers`: soft sets compared with those of other programs, if these are installed
//! - `pictures`: pictures of the guide, and meanings of all columns (feature `report`)
//! - `pipeline_file`: the parsing of pipeline files, and the messages for errors in them
//! - `pipelines`: the pipelines and commands of the README and the guides
//! - `points`: rows with coordinates, embedded without boxes
//! - `points_around`: assignments, samples, checks, metrics and comparisons of points
//! - `promises`: what every kind of rows promises, one test per promise
//! - `ranks`: the table that compares ranks, and the rules that select one
//! - `readers`: DuckDB, Polars and pandas read the tables
//! - `resume`: killed runs, and runs that reuse finished work
//! - `rows`: the table with all input rows and the sets of their states
//! - `sets`: all methods on the worlds of the papers
//! - `sites`: runs over points, symbols and observations as tasks, on executors (feature `cluster`)
//! - `sql`: the SQL of a pipeline, its keys and its lags
//! - `statistics`: files whose statistics do not speak of NaN, and damaged page indexes
//! - `stops`: runs stopped by signals, by locks of other processes and by limits of the system
//! - `stores`: faults at every call of the object store, and two runs that interleave
//! - `symbols`: runs over sequences of symbols, compared with SQL, written operators and hmmlearn
//! - `symbols_around`: assignments, comparisons, continued runs, checks and metrics of sequences
//! - `symbols_file`: the keys of `[sequences]` and what is refused
//! - `symbols_given`: hidden Markov models that the input has, compared with the forward algorithm
//! - `tasks`: runs in tasks, compared with runs of one process
//! - `time_keys`: gaps, and several rows at one time, compared with SQL
//! - `types`: keys and times of every type, compared with an independent count
//! - `validation`: resamples of trajectories, pairs and counts
//! - `versions`: simultaneous runs, earlier results, files of dead runs, and `gyre clean`
//! - `weights`: trajectories with weighted rows
//! - `written`: the tables that a run writes
//!
//! Helpers:
//! - `faulty`: an object store with failing calls
//! - `inside`: runs a pipeline in this process, with its tasks in any order
//! - `lake`: writes small lakes and runs the program on them
//! - `machines`: starts and kills processes of a cluster
//! - `needs`: what tests need beside Rust, and what happens if it is missing
//! - `wire`: S3 and Google's store over HTTP, with faults
//! - `worlds`: small Markov worlds with known answers

#[cfg(feature = "report")]
mod answers;
mod assign;
#[cfg(feature = "report")]
mod browser;
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
mod declared;
mod earlier_results;
mod embeddings;
mod exact;
mod examples;
mod faults;
mod faulty;
mod formats;
mod fuzz;
#[cfg(feature = "cluster")]
mod hmm_rates;
mod hostile;
mod house;
mod increments;
mod init;
mod inputs;
mod inside;
mod lake;
mod leaving;
#[cfg(feature = "cluster")]
mod machines;
mod markov;
mod memory;
mod names;
mod needs;
mod nightly;
mod observations;
mod observations_file;
mod observations_measured;
mod observations_peers;
mod observations_worlds;
mod operations;
mod outcomes;
mod pages;
mod paper_tables;
mod papers;
mod passes;
mod paths;
mod peers;
#[cfg(feature = "report")]
mod pictures;
mod pipeline_file;
mod pipelines;
mod points;
mod points_around;
mod promises;
mod ranks;
mod readers;
mod resume;
mod rows;
mod sets;
#[cfg(feature = "cluster")]
mod sites;
mod sql;
mod statistics;
mod stops;
mod stores;
mod symbols;
mod symbols_around;
mod symbols_file;
mod symbols_given;
mod tasks;
mod time_keys;
mod types;
mod validation;
mod versions;
mod weights;
mod wire;
mod worlds;
mod written;
