//! The record of a run over any kind of evidence.

use crate::plan::job::PlannedJob;
use crate::run::kind::EvidenceKind;
use crate::run::record::{
    CheckRecord, EmptyRecord, Head, IncrementRecord, ModelEntry, Record, Resumed,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// `runs/<id>.json` of a run.
#[derive(Clone, Serialize)]
#[serde(bound = "")]
pub struct RunRecord<K: EvidenceKind> {
    /// What records of runs and of assignments share.
    #[serde(flatten)]
    pub head: Head,
    /// The kind of the evidence.
    pub kind: &'static str,
    /// Hashes of the parts of the plan: `pipeline`, `sql` and `inputs`.
    pub hashes: BTreeMap<&'static str, String>,
    /// The seed of all random numbers.
    pub seed: u64,
    /// What this run counted, if the pipeline counts new files only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub increment: Option<IncrementRecord>,
    /// What the rows are evidence of.
    #[serde(flatten)]
    pub facts: K::Facts,
    /// What a user should know of the rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// One record per partition and lag.
    pub models: Vec<ModelEntry<K::ModelRecord>>,
    /// Models of the earlier result that this result does not have.
    pub gone: Vec<String>,
    /// Partitions and lags without evidence, which have no model.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub empty: Vec<EmptyRecord>,
    /// Checks, in the order of the pipeline file.
    pub checks: Vec<CheckRecord>,
    /// Bytes of each table.
    pub table_bytes: BTreeMap<&'static str, u64>,
    /// Work of earlier runs of the same plan that this run reused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resumed: Option<Resumed>,
}

impl<K: EvidenceKind> Record for RunRecord<K> {
    fn head(&self) -> &Head {
        &self.head
    }

    fn head_mut(&mut self) -> &mut Head {
        &mut self.head
    }

    fn table_bytes(&self) -> &BTreeMap<&'static str, u64> {
        &self.table_bytes
    }

    fn to_json(&self) -> serde_json::Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn boxed(&self) -> Box<dyn Record> {
        Box::new(self.clone())
    }
}

impl<K: EvidenceKind> RunRecord<K> {
    /// Begins the record of a run.
    pub(crate) fn new(job: &PlannedJob, id: &str, threads: usize) -> RunRecord<K> {
        RunRecord {
            head: Head::begin(id, &job.name, &job.hash, threads, &job.tables),
            kind: K::NAME,
            hashes: job.hashes.clone(),
            seed: job.seed,
            increment: None,
            facts: K::Facts::default(),
            warnings: Vec::new(),
            models: Vec::new(),
            gone: Vec::new(),
            empty: Vec::new(),
            checks: Vec::new(),
            table_bytes: BTreeMap::new(),
            resumed: None,
        }
    }

    /// Rows and bytes of all tables.
    pub(crate) fn written(&self) -> (u64, u64) {
        let (rows, bytes) = (self.head.tables.values(), self.table_bytes.values());
        (rows.sum(), bytes.sum())
    }
}
