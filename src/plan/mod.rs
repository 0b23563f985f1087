//! Pipeline + file listings + schemas → [`Plan`]: all that a run will do, resolved and checked.
//!
//! A plan can be printed, compared by its hash, and run. An [`assignment::Assignment`] is the same
//! for `gyre assign`. Nothing is computed here.

pub mod assignment;
pub mod checks;
pub mod evidence;
pub mod filters;
pub mod filters_memory;
pub mod fits;
pub mod job;
pub mod memory;
pub mod parameters;
pub mod pipeline;
pub mod points;
pub mod points_memory;
pub mod relative;
pub mod rows;
pub mod sequences;
pub mod sequences_memory;
pub mod show;
pub(crate) mod travel;
pub(crate) mod written;

use crate::error::counted;
use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::methods::ChainMethod;
use crate::methods::estimator::States;
use crate::methods::heat_kernel::params::ChainKernel;
use crate::output::ledger::Basis;
use crate::output::tables::run_schema::{EmbeddingColumns, FitColumns, LagColumn, RunSchema};
use crate::output::tables::{self, table};
use crate::plan::checks::PlannedCheck;
use crate::plan::evidence::{check_square, grouping};
use crate::plan::fits::{PlannedFit, Ranks, embeddings, fits};
use crate::plan::job::{all_sql, checks_and_hash};
use crate::plan::pipeline::Pipeline;
use crate::plan::pipeline::keys::{Empty, NamesFrom};
use crate::plan::rows::{Rows, inputs, lag_column, rows, unhashed};
use crate::plan::written::left_out;
use crate::read::lake::Lake;
use crate::read::lake::files::Table;
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::states::StateTable;
use crate::store::Stores;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run will do. The serialized part is what executors need to count and to fit.
#[derive(Serialize, Deserialize)]
pub struct Plan {
    /// The name of the job.
    pub name: String,
    /// The folder or URL of the output.
    #[serde(skip)]
    pub output: String,
    /// The number of earlier results that the output keeps.
    #[serde(skip)]
    pub keep: usize,
    /// The stores of this output and of earlier outputs.
    #[serde(skip)]
    pub stores: Stores,
    /// The seed of all random starts.
    pub seed: u64,
    /// The input tables and their files.
    pub tables: Vec<Table>,
    /// The SQL of `[transitions]`.
    pub sql: String,
    /// The values of the `$name`s in the SQL.
    #[serde(with = "crate::plan::travel::values")]
    pub parameters: BTreeMap<String, ScalarValue>,
    /// The roles of the columns of the query.
    #[serde(with = "crate::plan::travel::shared")]
    pub layout: Arc<Layout>,
    /// The lags in the order of the matrices, by length.
    pub lags: Vec<Lag>,
    /// The fits, one per rank unless a rule picks the rank.
    pub fits: Vec<PlannedFit>,
    /// The embeddings of states, which have no sets.
    pub embeddings: Vec<PlannedFit<ChainMethod>>,
    /// Resamples of the groups of `Layout::grouping`.
    pub validation: Option<PlannedValidation>,
    /// The result from which the sets take their names.
    #[serde(skip)]
    pub names: NamesFrom,
    /// What happens to a model without transitions.
    #[serde(skip)]
    pub empty: Empty,
    /// Test whether the sets of the fits are Markov chains.
    pub markov: bool,
    /// Whether only new files are counted.
    #[serde(skip)]
    pub increments: Increments,
    /// The columns of the input in the table `rows`, except those of the partition. None if the
    /// run writes no such table.
    #[serde(skip)]
    pub rows: Option<Vec<Field>>,
    /// The tables that the run does not write, although it could.
    #[serde(skip)]
    pub left_out: Vec<&'static str>,
    /// Conditions that must hold before the tables are put in place.
    #[serde(skip)]
    pub checks: Vec<PlannedCheck>,
    /// Hashes of `pipeline`, `sql` and `inputs`, which show how two runs differ.
    #[serde(skip)]
    pub hashes: BTreeMap<&'static str, String>,
    /// Depends only on the pipeline, its SQL, the input files and the version of gyre.
    pub hash: String,
}

/// Whether a run may count only the files that are new since the last run.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Increments {
    /// The pipeline does not ask for it.
    #[default]
    Off,
    /// The reason why counts of single files do not add up to the counts of all files.
    No(String),
    /// The counts of single files add up.
    Of {
        /// The only table that the SQL reads.
        table: String,
        /// What the counts depend on beside the files.
        basis: Basis,
    },
}

/// Fits to resamples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedValidation {
    /// The number of bootstrap resamples; 0 for none.
    pub bootstrap: usize,
    /// The number of folds of a cross-validation; 0 for none.
    pub folds: usize,
    /// The confidence level of the intervals.
    pub confidence: f64,
}

/// Resolves a pipeline with the query text `sql` against the tables of a lake.
///
/// Also returns the query as a data frame.
pub fn plan<'a>(
    pipeline: &'a Pipeline,
    sql: &'a str,
    seed: Option<u64>,
    lake: &'a Lake,
) -> BoxFuture<'a, Result<(Plan, DataFrame)>> {
    Box::pin(resolved(pipeline, sql, seed, lake))
}

async fn resolved(
    pipeline: &Pipeline,
    sql: &str,
    seed: Option<u64>,
    lake: &Lake,
) -> Result<(Plan, DataFrame)> {
    let Rows {
        sql,
        parameters,
        frame,
        columns,
        partition,
        evidence,
        lags,
    } = rows(pipeline, sql, lake).await?;
    let given = pipeline
        .fits
        .iter()
        .filter_map(|fit| fit.method.needs().given);
    let given = given.map(|column| columns.key(column, "affiliation"));
    let given = given.collect::<Result<_>>()?;
    let validation = pipeline.validation.as_ref();
    let markov = validation.is_some_and(|v| v.markov);
    let resampled = validation.filter(|v| v.bootstrap > 0 || v.folds > 0);
    let grouping = resampled.map(|v| grouping(v, &evidence, &columns));
    let connected = pipeline.transitions.connected;
    let (fits, embeddings) = (fits(pipeline), embeddings(pipeline));
    // Keys and fits that need sources and targets of one kind.
    let mut square = Vec::new();
    square.extend(connected.then(|| "`transitions.connected`".to_string()));
    square.extend(markov.then(|| "`validation.markov`".to_string()));
    square.extend(
        fits.iter()
            .filter(|fit| fit.method.needs().states != States::Apart)
            .map(|fit| {
                let (method, name) = (fit.method.name(), &fit.name);
                format!("method \"{method}\" of fit `{name}`")
            }),
    );
    square.extend(
        embeddings
            .iter()
            .filter(|fit| fit.method.kernel() == ChainKernel::Symmetrised)
            .map(|fit| {
                let (method, name) = (fit.method.name(), &fit.name);
                format!("method \"{method}\" of fit `{name}`")
            }),
    );
    if let Some(first) = square.first() {
        check_square(&evidence, first)?;
    }
    // The table begins with the columns of the partition in any case.
    let keys = &pipeline.transitions.partition_by;
    let asked = pipeline.output.rows.columns().unwrap_or_default();
    let shown = asked.iter().filter(|name| !keys.contains(name));
    let shown: Vec<Field> = shown
        .map(|name| columns.shown(name))
        .collect::<Result<_>>()?;
    let rows = (!asked.is_empty()).then_some(shown);
    let layout = Layout {
        partition,
        evidence,
        given,
        grouping: grouping.transpose()?,
        one_label_set: !square.is_empty(),
        connected,
    };
    let validation = resampled.map(|v| PlannedValidation {
        bootstrap: v.bootstrap,
        folds: v.folds,
        confidence: v.confidence,
    });
    let seed = seed.unwrap_or(pipeline.job.seed);
    let increments = if pipeline.job.incremental {
        increments(&frame, &layout, lake, &sql, &parameters)
    } else {
        Increments::Off
    };
    let frame = lake.select(frame, &layout)?;
    let optional = &table::Table::OPTIONAL;
    let has_fits = !fits.is_empty() || !embeddings.is_empty();
    let repeats = has_fits && written::repeats(&layout.evidence);
    let mut plan = Plan {
        left_out: left_out(&pipeline.output, optional, repeats),
        name: pipeline.job.name.clone(),
        output: pipeline.job.output.clone(),
        keep: pipeline.job.keep as usize,
        stores: lake.stores.clone(),
        seed,
        tables: lake.tables.clone(),
        sql,
        parameters,
        layout: Arc::new(layout),
        lags,
        fits,
        embeddings,
        validation,
        names: pipeline.names.from.clone(),
        empty: pipeline.transitions.empty,
        markov,
        increments,
        rows,
        checks: Vec::new(),
        hashes: BTreeMap::new(),
        hash: String::new(),
    };
    let (of, tables) = ((seed, plan.sql.as_str()), plan.schemas());
    let partition = &plan.layout.partition;
    (plan.checks, plan.hash) = checks_and_hash(pipeline, of, partition, lake, &tables).await?;
    plan.hashes = hashes(pipeline, &plan)?;
    Ok((plan, frame))
}

pub(crate) fn increments(
    frame: &DataFrame,
    layout: &Layout,
    lake: &Lake,
    sql: &str,
    parameters: &BTreeMap<String, ScalarValue>,
) -> Increments {
    if layout.evidence.weight().is_some() {
        return Increments::No("weights are no integers".into());
    }
    if let RowRoles::Trajectories { strided: true, .. } = &layout.evidence {
        let why = "strided pairs depend on the first row of a trajectory";
        return Increments::No(why.into());
    }
    if let RowRoles::Windows { first: true, .. } = &layout.evidence {
        let why = "the first window of a trajectory may begin in another file";
        return Increments::No(why.into());
    }
    let table = match crate::read::lake::subset::one_table(frame) {
        Ok(name) => lake.tables.iter().find(|table| table.name == name),
        Err(why) => return Increments::No(why),
    };
    let Some(table) = table else {
        return Increments::No("the SQL reads no table of the pipeline".into());
    };
    let fields = table.schema.fields().iter();
    let mut columns: Vec<_> = fields
        .map(|field| format!("{} {}", field.name(), field.data_type()))
        .collect();
    columns.sort();
    let hash = |text: String| blake3::hash(text.as_bytes()).to_hex()[..32].to_string();
    Increments::Of {
        table: table.name.clone(),
        basis: Basis {
            gyre: env!("CARGO_PKG_VERSION").into(),
            sql: hash(sql.into()),
            parameters: hash(format!("{parameters:?}")),
            columns: hash(format!("{} {columns:?}", table.format)),
            layout: hash(format!("{layout:?}")),
        },
    }
}

/// Separate hashes of the parts of a plan.
fn hashes(pipeline: &Pipeline, plan: &Plan) -> Result<BTreeMap<&'static str, String>> {
    let files: Vec<_> = plan.tables.iter().map(inputs).collect();
    let json = |part: Result<Vec<u8>, serde_json::Error>| {
        let bytes = part.map_err(unhashed)?;
        Ok::<_, Error>(blake3::hash(&bytes).to_hex()[..32].to_string())
    };
    Ok(BTreeMap::from([
        ("pipeline", json(serde_json::to_vec(pipeline))?),
        (
            "sql",
            json(Ok(all_sql(&plan.sql, &plan.checks).into_bytes()))?,
        ),
        ("inputs", json(serde_json::to_vec(&files))?),
    ]))
}

impl Plan {
    /// The tables that the run will write, with their columns. Lists per set of a given partition
    /// have one entry here, because the number of sets is unknown.
    pub fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        let (sources, targets) = match &self.layout.evidence {
            RowRoles::Trajectories { state, .. } | RowRoles::Windows { symbol: state, .. } => {
                (state, state)
            }
            RowRoles::Pairs { source, target, .. } => (source, target),
        };
        let names = RunSchema {
            partition: self.layout.partition.clone(),
            partitions: Vec::new(),
            lag: self.lag_column(),
            sources: StateTable::empty(sources),
            targets: StateTable::empty(targets),
            is_weighted: self.layout.is_weighted(),
            fits: self.fit_columns(&vec![1; self.layout.given.len()]),
            embeddings: self.embedding_columns(),
            has_stability: self.resamples() > 0,
            tables: self.tables(),
            rows: self.rows.clone().unwrap_or_default(),
        };
        let tables = names.tables.iter();
        tables
            .map(|&table| (table.name(), tables::schema(table, &names).0))
            .collect()
    }

    /// The lags as the column `lag` of the output tables.
    pub fn lag_column(&self) -> LagColumn {
        lag_column(&self.lags)
    }

    /// The fits of a model with these numbers of states, each with its index in `fits`.
    ///
    /// A fit whose rank a rule picks becomes one fit per candidate rank up to the number of states,
    /// named as in a list of ranks.
    ///
    /// # Errors
    /// If all candidates are above the number of states.
    pub fn candidates(
        &self,
        n_sources: usize,
        n_targets: usize,
    ) -> Result<Vec<(usize, PlannedFit)>> {
        let mut all = Vec::with_capacity(self.fits.len());
        for (at, fit) in self.fits.iter().enumerate() {
            let Ranks::Auto { candidates, .. } = &fit.ranks else {
                all.push((at, fit.clone()));
                continue;
            };
            let before = all.len();
            let largest = n_sources.min(n_targets);
            for &rank in candidates.iter().filter(|rank| **rank <= largest) {
                let candidate = PlannedFit {
                    name: format!("{}_r{rank}", fit.name),
                    method: fit.method.at(rank),
                    ranks: Ranks::OneOf(fit.name.clone()),
                };
                all.push((at, candidate));
            }
            if all.len() == before {
                let message = format!(
                    "all of its `ranks` are larger than the number of states ({}, {})",
                    counted(n_sources, "source"),
                    counted(n_targets, "target")
                );
                return Err(Error::input(message).at(format!("fit `{}`", fit.name)));
            }
        }
        Ok(all)
    }

    /// Whether all fits read their matrix only in passes, so that executors may hold it.
    ///
    /// # Errors
    /// The reason why not.
    pub fn by_passes(&self) -> Result<(), String> {
        if self.validation.is_some() || self.markov {
            return Err("[validation] makes matrices of its own".into());
        }
        let whole = |fit: &PlannedFit| {
            let why = fit.method.needs().whole_matrix?;
            Some(format!("fit `{}` is no passes alone: {why}", fit.name))
        };
        self.fits.iter().find_map(whole).map_or(Ok(()), Err)
    }

    /// Whether there is a model to fit. Otherwise a run counts only.
    pub fn has_fits(&self) -> bool {
        !self.fits.is_empty() || !self.embeddings.is_empty()
    }

    /// The number of folds of a cross-validation; 0 for none.
    pub fn folds(&self) -> usize {
        self.validation.as_ref().map_or(0, |v| v.folds)
    }

    /// The tables that the run will write. Some are optional.
    pub fn tables(&self) -> Vec<table::Table> {
        let compared = self.fits.iter().any(|fit| is_compared(self, fit));
        let is_written = |table: &table::Table| match table {
            table::Table::Ranks => compared,
            table::Table::Embeddings => !self.embeddings.is_empty(),
            table::Table::Bootstrap => self.resamples() > 0,
            table::Table::Rows => self.rows.is_some(),
            table::Table::Timescales | table::Table::ChapmanKolmogorov => self.markov,
            table::Table::Coarse | table::Table::Certificates | table::Table::Restarts => {
                self.has_fits()
            }
            _ => true,
        };
        let is_wanted = |table: &table::Table| !self.left_out.contains(&table.name());
        let all = table::Table::ALL.into_iter();
        all.filter(is_written).filter(is_wanted).collect()
    }

    /// The number of bootstrap resamples; 0 for none.
    pub fn resamples(&self) -> usize {
        self.validation.as_ref().map_or(0, |v| v.bootstrap)
    }

    /// The index of the column of a given partition in `Layout::given`.
    pub(crate) fn given(&self, column: &str) -> Option<usize> {
        self.layout
            .given
            .iter()
            .position(|field| field.name() == column)
    }

    /// The output columns of the fits. `label_counts` are the numbers of sets of the given
    /// partitions, which are known once the rows are counted.
    pub fn fit_columns(&self, label_counts: &[usize]) -> Vec<FitColumns> {
        let rank = |fit: &PlannedFit| match fit.method.needs().given {
            Some(column) => self.given(column).map_or(0, |at| label_counts[at]),
            None => fit.method.rank().unwrap_or(0),
        };
        self.fits
            .iter()
            .map(|f| FitColumns {
                name: f.name.clone(),
                method: f.method.name(),
                rank: rank(f),
                columns: f.method.columns(),
            })
            .collect()
    }
}

impl Plan {
    /// The output columns of the embeddings of states.
    pub fn embedding_columns(&self) -> Vec<EmbeddingColumns> {
        let columns = |fit: &PlannedFit<ChainMethod>| EmbeddingColumns {
            name: fit.name.clone(),
            method: fit.method.name(),
            parts: fit.method.parts(),
            dimension: fit.method.dimension(),
        };
        self.embeddings.iter().map(columns).collect()
    }
}

/// Whether a fit has rows in the table `ranks`: there are other ranks to compare, or folds to score
/// it.
pub fn is_compared(plan: &Plan, planned: &PlannedFit) -> bool {
    planned.ranks != Ranks::One || plan.folds() > 0
}
