//! A run → OpenLineage events: its inputs, its outputs and how it ended, one JSON object per line
//! (RunEvent of spec 2-0-2).
//!
//! Datasets are named as the spec's naming page says: `file` and an absolute path, or `s3://bucket`
//! and a key. An input is the file of a table, or the folder that holds all its files. An output is
//! the folder of a table.

use crate::plan::job::PlannedJob;
use crate::read::lake::files::LakeTable;
use crate::run::record::Record;
use arrow::datatypes::SchemaRef;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

const PRODUCER: &str = concat!("urn:gyre:", env!("CARGO_PKG_VERSION"));
pub(crate) const SCHEMA: &str =
    "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";
const NAMESPACE: &str = "gyre";

/// How far a run has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum EventType {
    /// The run has begun.
    Start,
    /// The run has ended with a result.
    Complete,
    /// The run has failed.
    Fail,
    /// Stopped by a signal.
    Abort,
}

/// What events need of a plan.
pub struct Planned {
    /// The SQL of the rows, the input tables and the output.
    pub job: PlannedJob,
    /// The output tables.
    pub schemas: Vec<(&'static str, SchemaRef)>,
}

/// One event of a run.
pub(crate) struct Event<'a> {
    /// What the event reports.
    pub event: EventType,
    /// When the event happened.
    pub time: Timestamp,
    /// Name of the pipeline, which is the job.
    pub pipeline: &'a str,
    /// `None` if the run failed before it was planned.
    pub plan: Option<&'a Planned>,
    /// The record as far as the run has come.
    pub record: Option<&'a dyn Record>,
    /// Why the run failed.
    pub error: Option<&'a str>,
}

impl Event<'_> {
    /// The event as the JSON object that OpenLineage defines.
    pub(crate) fn to_json(&self) -> Value {
        let inputs = self.plan.iter().flat_map(|plan| &plan.job.tables);
        let inputs: Vec<Value> = inputs.map(input).collect();
        let outputs = self.plan.map_or_else(Vec::new, |plan| self.outputs(plan));
        let engine = json!({"name": "gyre", "version": env!("CARGO_PKG_VERSION")});
        let engine = facet("1-1-1/ProcessingEngineRunFacet", engine);
        let mut run_facets = json!({"processing_engine": engine});
        if let Some(message) = self.error {
            let error = json!({"message": message, "programmingLanguage": "Rust"});
            run_facets["errorMessage"] = facet("1-0-1/ErrorMessageRunFacet", error);
        }
        let kind = json!({"processingType": "BATCH", "integration": "GYRE", "jobType": "PIPELINE"});
        let mut job_facets = json!({"jobType": facet("2-0-3/JobTypeJobFacet", kind)});
        if let Some(plan) = self.plan {
            job_facets["sql"] = facet("1-0-1/SQLJobFacet", json!({"query": plan.job.sql}));
        }
        json!({
            "eventType": self.event,
            "eventTime": self.time.to_string(),
            "run": {"runId": self.run_id(), "facets": run_facets},
            "job": {"namespace": NAMESPACE, "name": self.pipeline, "facets": job_facets},
            "inputs": inputs,
            "outputs": outputs,
            "producer": PRODUCER,
            "schemaURL": SCHEMA,
        })
    }

    /// A UUID of version 8, whose bits are a hash of the run: all of its events have the same one.
    fn run_id(&self) -> String {
        let (id, output) = match (self.record, self.plan) {
            (Some(record), Some(plan)) => (record.head().id.clone(), plan.job.output.as_str()),
            _ => (self.time.to_string(), ""),
        };
        let mut hasher = blake3::Hasher::new();
        for part in [&id, output, self.pipeline] {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let mut b = [0; 16];
        hasher.finalize_xof().fill(&mut b);
        b[6] = b[6] & 0x0f | 0x80;
        b[8] = b[8] & 0x3f | 0x80;
        let hex: String = b.iter().map(|byte| format!("{byte:02x}")).collect();
        [0..8, 8..12, 12..16, 16..20, 20..32]
            .map(|part| &hex[part])
            .join("-")
    }

    /// The tables of the result, with their sizes if the run has promoted them.
    fn outputs(&self, plan: &Planned) -> Vec<Value> {
        let is_in_place = self.event == EventType::Complete;
        let record = self.record.filter(|_| is_in_place);
        let root = absolute(&plan.job.output);
        let output = |(table, schema): &(&'static str, SchemaRef)| {
            let mut output = dataset(&format!("{root}/{table}"), schema);
            let rows = record.and_then(|record| record.head().tables.get(table));
            if let Some(rows) = rows {
                let bytes = record.and_then(|record| record.table_bytes().get(table));
                let statistics = json!({"rowCount": rows, "size": bytes, "fileCount": 1});
                output["outputFacets"] = json!({
                    "outputStatistics": facet("1-0-2/OutputStatisticsOutputDatasetFacet", statistics),
                });
            }
            output
        };
        plan.schemas.iter().map(output).collect()
    }
}

/// Adds the members that every facet has. `of` is the version and name of its schema.
fn facet(of: &str, mut fields: Value) -> Value {
    let (_, name) = of.split_once('/').unwrap_or(("", of));
    let url = format!("https://openlineage.io/spec/facets/{of}.json#/$defs/{name}");
    fields["_producer"] = PRODUCER.into();
    fields["_schemaURL"] = url.into();
    fields
}

fn dataset(location: &str, schema: &SchemaRef) -> Value {
    let (namespace, name) = name(location);
    let fields = schema.fields().iter();
    let fields =
        fields.map(|field| json!({"name": field.name(), "type": field.data_type().to_string()}));
    let fields: Vec<Value> = fields.collect();
    json!({
        "namespace": namespace,
        "name": name,
        "facets": {"schema": facet("1-1-1/SchemaDatasetFacet", json!({"fields": fields}))},
    })
}

fn input(table: &LakeTable) -> Value {
    let locations = table.files.iter().map(|file| file.location.as_str());
    let locations: Vec<&str> = locations.collect();
    dataset(folder(&locations), &table.schema)
}

/// The only file, or the folder that holds all files.
fn folder<'a>(locations: &[&'a str]) -> &'a str {
    let [first, rest @ ..] = locations else {
        return "";
    };
    if rest.is_empty() {
        return first;
    }
    let common = rest.iter().fold(first.len(), |common, other| {
        let same = first.bytes().zip(other.bytes()).take_while(|(a, b)| a == b);
        same.count().min(common)
    });
    let common = first.as_bytes()[..common].iter().rposition(|b| *b == b'/');
    &first[..common.unwrap_or(0)]
}

/// Namespace and name of a location, without user and password.
fn name(location: &str) -> (String, String) {
    if let Some(path) = location.strip_prefix("file:") {
        return ("file".into(), format!("/{}", path.trim_start_matches('/')));
    }
    match location.split_once("://") {
        Some((scheme, rest)) => {
            let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
            let host = host.rsplit('@').next().unwrap_or_default();
            let path = path.trim_end_matches('/');
            (format!("{scheme}://{host}"), path.to_string())
        }
        None => ("file".into(), location.to_string()),
    }
}

/// A folder as an absolute path; a URL unchanged.
fn absolute(location: &str) -> String {
    let location = location.trim_end_matches('/');
    if location.contains("://") {
        return location.to_string();
    }
    let path = std::path::absolute(location);
    path.map_or_else(|_| location.to_string(), |path| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datasets_have_the_names_of_the_specification() {
        let check = |locations: &[&str], namespace: &str, expected: &str| {
            let found = name(folder(locations));
            assert_eq!(found, (namespace.to_string(), expected.to_string()));
        };
        check(&["file:/lake/a.parquet"], "file", "/lake/a.parquet");
        let pair = ["file:///lake/a/1.csv", "file:///lake/a/2.csv"];
        check(&pair, "file", "/lake/a");
        check(&["file:/lake/y=1/a", "file:/lake/y=10/a"], "file", "/lake");
        let pair = ["s3://lake/t/y=1/a", "s3://lake/t/y=2/a"];
        check(&pair, "s3://lake", "t");
        check(&["s3://key:secret@lake/t"], "s3://lake", "t");
        check(&["/out/ocean/counts"], "file", "/out/ocean/counts");
    }

    #[test]
    fn a_run_id_is_a_uuid_of_its_run() {
        let event = |time| Event {
            event: EventType::Fail,
            time,
            pipeline: "ocean",
            plan: None,
            record: None,
            error: Some("no file"),
        };
        let id = event(Timestamp::UNIX_EPOCH).run_id();
        assert_eq!(id, event(Timestamp::UNIX_EPOCH).run_id());
        assert_ne!(id, event(Timestamp::MAX).run_id());
        let parts: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!((parts, &id[14..15]), (vec![8, 4, 4, 4, 12], "8"));
        assert!(matches!(&id[19..20], "8" | "9" | "a" | "b"), "{id}");
        let json = event(Timestamp::UNIX_EPOCH).to_json();
        assert_eq!(json["eventTime"], "1970-01-01T00:00:00Z");
        assert_eq!(json["run"]["facets"]["errorMessage"]["message"], "no file");
    }
}
