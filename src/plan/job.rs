//! The parts that plans share: the job, its inputs, its SQL, its checks and its hash.

use crate::error::{Error, Result};
use crate::plan::checks::{CheckRule, PlannedCheck, planned};
use crate::plan::left_out::left_out;
use crate::plan::pipeline::keys::Empty;
use crate::plan::pipeline::{Pipeline, table_names};
use crate::plan::rows::{PlannedQuery, hash, hashed_keys, inputs, unhashed};
use crate::read::lake::Lake;
use crate::read::lake::files::LakeTable;
use crate::store::Stores;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::common::ScalarValue;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a run reads and where it writes. The serialized part is what executors need.
#[derive(Clone, Serialize, Deserialize)]
pub struct PlannedJob {
    /// The name of the job.
    pub name: String,
    /// The folder or URL of the output.
    #[serde(skip)]
    pub output: String,
    /// The number of earlier results that the output keeps.
    #[serde(skip)]
    pub keep: usize,
    /// The stores of the output.
    #[serde(skip)]
    pub stores: Stores,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The input tables and their files.
    pub tables: Vec<LakeTable>,
    /// The SQL of the rows.
    pub sql: String,
    /// The values of the `$name`s in the SQL.
    #[serde(with = "crate::plan::serialized::values")]
    pub parameters: BTreeMap<String, ScalarValue>,
    /// The columns of the partition; empty if all rows have one model per lag.
    #[serde(skip)]
    pub partition: Vec<Field>,
    /// What happens to a partition without evidence.
    pub empty: Empty,
    /// The conditions that must hold before the result is put in place.
    #[serde(skip)]
    pub checks: Vec<PlannedCheck>,
    /// The tables that the run does not write, although it could.
    #[serde(skip)]
    pub left_out: Vec<&'static str>,
    /// Hashes of `pipeline`, `sql` and `inputs`, which show how two runs differ.
    #[serde(skip)]
    pub hashes: BTreeMap<&'static str, String>,
    /// Depends only on the pipeline, its SQL, the input files and the version of gyre.
    pub hash: String,
}

impl PlannedJob {
    /// A job without checks and hash, which [`finish`](PlannedJob::finish) adds.
    pub(crate) fn new(
        pipeline: &Pipeline,
        query: &PlannedQuery,
        seed: Option<u64>,
        lake: &Lake,
    ) -> PlannedJob {
        let optional = table_names(&pipeline.transitions.input).optional;
        PlannedJob {
            name: pipeline.job.name.clone(),
            output: pipeline.job.output.clone(),
            keep: pipeline.job.keep as usize,
            stores: lake.stores.clone(),
            seed: seed.unwrap_or(pipeline.job.seed),
            tables: lake.tables.clone(),
            sql: query.sql.clone(),
            parameters: query.parameters.clone(),
            partition: query.partition.clone(),
            empty: pipeline.transitions.empty,
            checks: Vec::new(),
            left_out: left_out(&pipeline.output, optional, false),
            hashes: BTreeMap::new(),
            hash: String::new(),
        }
    }

    /// The tables among `all` that the run writes.
    pub(crate) fn kept(&self, all: &[&'static str]) -> Vec<&'static str> {
        let is_kept = |table: &&&str| !self.left_out.contains(table);
        all.iter().filter(is_kept).copied().collect()
    }

    /// Plans the checks of a result with these tables, and hashes the job.
    ///
    /// # Errors
    /// If a table would have two columns of one name, or the SQL of a check cannot be planned.
    pub(crate) async fn finish(
        &mut self,
        pipeline: &Pipeline,
        lake: &Lake,
        tables: &[(&'static str, SchemaRef)],
    ) -> Result<()> {
        check_names(tables)?;
        self.checks = planned(pipeline, &self.partition, lake, tables).await?;
        let sql = all_sql(&self.sql, &self.checks);
        self.hash = hash(&(hashed_keys(pipeline)?, self.seed), &sql, &self.tables)?;
        let files: Vec<_> = self.tables.iter().map(inputs).collect();
        let keys = serde_json::to_vec(pipeline).map_err(unhashed)?;
        let files = serde_json::to_vec(&files).map_err(unhashed)?;
        let hash = |bytes: &[u8]| blake3::hash(bytes).to_hex()[..32].to_string();
        self.hashes = BTreeMap::from([
            ("pipeline", hash(&keys)),
            ("sql", hash(sql.as_bytes())),
            ("inputs", hash(&files)),
        ]);
        Ok(())
    }
}

/// The text of all statements: that of the rows, then those of the checks.
fn all_sql(sql: &str, checks: &[PlannedCheck]) -> String {
    let mut all = sql.to_string();
    for check in checks {
        if let CheckRule::Sql { sql, .. } = &check.rule {
            all += &format!("\0{sql}");
        }
    }
    all
}

/// Checks that no table has two columns of one name: columns of the query stand beside those of
/// gyre and of the fits. Runs and assignments of all kinds of rows call this before they write.
pub(crate) fn check_names(tables: &[(&'static str, SchemaRef)]) -> Result<()> {
    for (table, schema) in tables {
        for (at, field) in schema.fields().iter().enumerate() {
            let mut earlier = schema.fields()[..at].iter();
            if earlier.any(|other| other.name() == field.name()) {
                return Err(Error::spec(format!(
                    "the table `{table}` would have two columns `{}`; rename the column of the SQL with AS, or the fit that gives it",
                    field.name(),
                )));
            }
        }
    }
    Ok(())
}
