//! Pipeline + listing + schemas → Plan: everything that a run (or an `Assignment`) will do, resolved and checked, before it does any of it.
//!
//! A plan can be printed, compared by its hash, and run. Nothing is computed here.

pub mod assignment;
pub mod checks;
pub mod evidence;
pub mod fits;
pub mod memory;
pub mod parameters;
pub mod pipeline;
pub mod relative;
pub mod rows;
pub mod show;
pub mod travel;

use crate::error::counted;
use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::methods::estimator::States;
use crate::output::ledger::Basis;
use crate::output::tables::run_schema::{FitColumns, LagColumn, RunSchema};
use crate::plan::checks::{CheckRule, PlannedCheck};
use crate::plan::evidence::{check_square, grouping};
use crate::plan::fits::{PlannedFit, Ranks, fits};
use crate::plan::pipeline::Pipeline;
use crate::plan::pipeline::keys::{Empty, NamesFrom};
use crate::plan::rows::{Rows, hash, inputs, lag_column, rows, unhashed};
use crate::read::lake::Lake;
use crate::read::lake::files::Table;
use crate::read::paths::places::canonical_location;
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::states::StateTable;
use crate::store::Stores;
use arrow::datatypes::SchemaRef;
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run will do. As bytes it is what other machines need of it to count and to fit, which nothing that is skipped does.
#[derive(Serialize, Deserialize)]
pub struct Plan {
    pub name: String,
    #[serde(skip)]
    pub output: String,
    /// How many earlier results the output keeps.
    #[serde(skip)]
    pub keep: usize,
    /// Where outputs are found, those that others have written too.
    #[serde(skip)]
    pub stores: Stores,
    pub seed: u64,
    pub tables: Vec<Table>,
    pub sql: String,
    #[serde(with = "crate::plan::travel::values")]
    pub parameters: BTreeMap<String, ScalarValue>,
    #[serde(with = "crate::plan::travel::shared")]
    pub layout: Arc<Layout>,
    /// The lags in the order of the matrices, which is that of their length.
    pub lags: Vec<Lag>,
    pub fits: Vec<PlannedFit>,
    /// Resamples of the groups of `Layout::grouping`.
    pub validation: Option<Validation>,
    #[serde(skip)]
    pub names: NamesFrom,
    /// What becomes of a model without a transition.
    #[serde(skip)]
    pub empty: Empty,
    /// Test whether the sets of the fits are Markov chains.
    pub markov: bool,
    #[serde(skip)]
    pub increments: Increments,
    /// What must hold before the tables are put in place.
    #[serde(skip)]
    pub checks: Vec<PlannedCheck>,
    /// Of what goes into the plan: `pipeline`, `sql` and `inputs`, so that two runs can be told apart.
    #[serde(skip)]
    pub hashes: BTreeMap<&'static str, String>,
    /// Changes with the pipeline, its SQL, the input files and the version of gyre, and with nothing else.
    pub hash: String,
}

/// Whether a run may count the files alone that the last one did not have.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Increments {
    /// It is not asked for.
    #[default]
    Off,
    /// It is asked for, and this is why the counts of files do not add up to those of all.
    No(String),
    /// The files of this table are counted by `basis`.
    Of { table: String, basis: Basis },
}

/// How the fits are tried on resamples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Validation {
    /// Bootstrap resamples; 0: none.
    pub bootstrap: usize,
    /// Folds of a cross-validation; 0: none.
    pub folds: usize,
    /// Of the intervals.
    pub confidence: f64,
}

/// Resolves a pipeline whose query text is `sql` against the tables of a lake. Also returns the query, ready to run.
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
    let asked = pipeline.validation.as_ref();
    let asked = asked.filter(|asked| asked.bootstrap > 0 || asked.folds > 0);
    let grouping = asked.map(|asked| grouping(asked, &evidence, &columns));
    let markov = pipeline.validation.as_ref().is_some_and(|v| v.markov);
    let connected = pipeline.transitions.connected;
    let fits = fits(pipeline);
    // Who takes sources and targets for states of one kind.
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
    if let Some(asker) = square.first() {
        check_square(&evidence, asker)?;
    }
    let layout = Layout {
        partition,
        evidence,
        given,
        grouping: grouping.transpose()?,
        one_label_set: !square.is_empty(),
        connected,
    };
    let validation = asked.map(|asked| Validation {
        bootstrap: asked.bootstrap,
        folds: asked.folds,
        confidence: asked.confidence,
    });
    let seed = seed.unwrap_or(pipeline.job.seed);
    let increments = match pipeline.job.incremental {
        true => increments(&frame, &layout, lake, &sql, &parameters),
        false => Increments::Off,
    };
    let frame = lake.select(frame, &layout)?;
    let mut plan = Plan {
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
        validation,
        names: pipeline.names.from.clone(),
        empty: pipeline.transitions.empty,
        markov,
        increments,
        checks: Vec::new(),
        hashes: BTreeMap::new(),
        hash: String::new(),
    };
    check_names(&plan)?;
    let tables = plan.schemas();
    plan.checks =
        crate::plan::checks::planned(pipeline, &plan.layout.partition, lake, &tables).await?;
    plan.hashes = hashes(pipeline, &plan)?;
    let mut asked = serde_json::to_value(pipeline).map_err(unhashed)?;
    // What is kept of earlier results does not change this one, nor does where it goes.
    if let Some(job) = asked["job"].as_object_mut() {
        job.retain(|key, _| key != "keep" && key != "output");
    }
    // Files and SQL are in the hash themselves, and may have been written in several ways.
    let tables = asked["tables"].as_object_mut().into_iter().flatten();
    for (_, table) in tables {
        table["path"] = Value::Null;
    }
    asked["transitions"]["query"] = Value::Null;
    let checks = asked.pointer_mut("/checks/check");
    for check in checks.and_then(Value::as_array_mut).into_iter().flatten() {
        check["query"] = Value::Null;
    }
    if let NamesFrom::Output(location) = &pipeline.names.from {
        asked["names"]["from"] = canonical_location(location).into();
    }
    plan.hash = hash(&(asked, seed), &all_sql(&plan), &lake.tables)?;
    Ok((plan, frame))
}

fn increments(
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

/// Columns of the query stand beside gyre's own in the tables: no table may get two of one name.
fn check_names(plan: &Plan) -> Result<()> {
    for (table, schema) in plan.schemas() {
        for (at, field) in schema.fields().iter().enumerate() {
            if schema.fields()[..at]
                .iter()
                .any(|f| f.name() == field.name())
            {
                return Err(Error::spec(format!(
                    "the column `{}` would stand twice in the table `{}`; rename the column of the SQL with AS",
                    field.name(),
                    table
                )));
            }
        }
    }
    Ok(())
}

/// The text of every statement of a plan; of a pipeline without checks it is that of `[transitions]`.
fn all_sql(plan: &Plan) -> String {
    let mut all = plan.sql.clone();
    for check in &plan.checks {
        if let CheckRule::Sql { sql, .. } = &check.rule {
            all += &format!("\0{sql}");
        }
    }
    all
}

/// What the hash of a plan is made of, one by one.
fn hashes(pipeline: &Pipeline, plan: &Plan) -> Result<BTreeMap<&'static str, String>> {
    let files: Vec<_> = plan.tables.iter().map(inputs).collect();
    let json = |part: Result<Vec<u8>, serde_json::Error>| {
        let bytes = part.map_err(unhashed)?;
        Ok::<_, Error>(blake3::hash(&bytes).to_hex()[..32].to_string())
    };
    Ok(BTreeMap::from([
        ("pipeline", json(serde_json::to_vec(pipeline))?),
        ("sql", json(Ok(all_sql(plan).into_bytes()))?),
        ("inputs", json(serde_json::to_vec(&files))?),
    ]))
}

impl Plan {
    /// The tables that the run will write and their columns, as far as they are known: the lists of a given partition have one entry
    /// here.
    pub fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        let (sources, targets) = match &self.layout.evidence {
            RowRoles::Trajectories { state, .. } => (state, state),
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
            tables: self.tables(),
        };
        let tables = names.tables.iter();
        tables
            .map(|&table| (table.name(), crate::output::tables::schema(table, &names).0))
            .collect()
    }

    pub fn lag_column(&self) -> LagColumn {
        lag_column(&self.lags)
    }

    /// The fits of a model of so many states, each with its place in `fits`: where a rank is to be picked, one for every candidate
    /// that the states allow, under the name that it would have in a list of ranks.
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

    /// Whether all fits go over their matrix in passes alone, so that it may be elsewhere.
    ///
    /// # Errors
    /// What does not.
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

    /// Folds of a cross-validation; 0: none.
    pub fn folds(&self) -> usize {
        self.validation.as_ref().map_or(0, |v| v.folds)
    }

    /// The tables that the run will write: some hold what only some pipelines ask for.
    pub fn tables(&self) -> Vec<crate::output::tables::table::Table> {
        let compared = self.fits.iter().any(|f| crate::plan::is_compared(self, f));
        let is_written = |table: &crate::output::tables::table::Table| match table {
            crate::output::tables::table::Table::Ranks => compared,
            crate::output::tables::table::Table::Bootstrap => self.resamples() > 0,
            crate::output::tables::table::Table::Timescales
            | crate::output::tables::table::Table::ChapmanKolmogorov => self.markov,
            _ => true,
        };
        let tables = crate::output::tables::table::Table::ALL.into_iter();
        tables.filter(is_written).collect()
    }

    /// Bootstrap resamples; 0: none.
    pub fn resamples(&self) -> usize {
        self.validation.as_ref().map_or(0, |v| v.bootstrap)
    }

    /// The place of the column of a given partition in `Layout::given`.
    pub(crate) fn given(&self, column: &str) -> Option<usize> {
        self.layout
            .given
            .iter()
            .position(|field| field.name() == column)
    }

    /// What the columns of a fit will be; the rank of a given partition is known once its labels are counted.
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

/// Whether a fit has rows in the `ranks` table: there is something to compare it with, or folds to score it.
pub fn is_compared(plan: &Plan, planned: &PlannedFit) -> bool {
    planned.ranks != Ranks::One || plan.folds() > 0
}
