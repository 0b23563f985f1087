//! Record batches in memory → a run without a pipeline file → the tables of its result.
//!
//! # Counts
//!
//! Sets of the states of a walk. The table `sources` has a row per state.
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! use gyre::arrow::array::{ArrayRef, Int64Array, RecordBatch};
//! use gyre::{Dbmr, Rows};
//! use std::sync::Arc;
//!
//! let state = |t: i64| t / 7 % 2 * 2 + t * t % 3 % 2;
//! let t: ArrayRef = Arc::new(Int64Array::from_iter_values(0..60));
//! let s: ArrayRef = Arc::new(Int64Array::from_iter_values((0..60).map(state)));
//! let walk = RecordBatch::try_from_iter([("t", t), ("s", s)])?;
//! let rows = Rows::of(vec![walk]).set("transitions.time", "t");
//! let rows = rows.set("transitions.state", "s").set("transitions.lag", 1);
//! let fitted = rows.fit("dbmr", Dbmr::new(2)).run().await?;
//! let sources = fitted.table("sources").await?;
//! assert_eq!(sources.num_rows(), 4);
//! assert!(sources.column_by_name("dbmr_affiliation").is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Points
//!
//! Points on a circle, without time. The table `points` has a row per point.
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! use gyre::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
//! use gyre::{DiffusionMap, Rows};
//! use std::sync::Arc;
//!
//! let of_angle = |of: fn(f64) -> f64| -> ArrayRef {
//!     Arc::new(Float64Array::from_iter_values((0..60).map(|id| of(f64::from(id) / 9.55))))
//! };
//! let id: ArrayRef = Arc::new(Int64Array::from_iter_values(0..60));
//! let columns = [("id", id), ("x", of_angle(f64::cos)), ("y", of_angle(f64::sin))];
//! let rows = Rows::of(vec![RecordBatch::try_from_iter(columns)?]).set("points.id", "id");
//! let rows = rows.set("points.coordinates", vec!["x", "y"]);
//! let fitted = rows.fit("map", DiffusionMap::new(2)).run().await?;
//! let points = fitted.table("points").await?;
//! assert_eq!(points.num_rows(), 60);
//! assert!(points.column_by_name("map_embedding").is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Symbols
//!
//! A hidden Markov model of a sequence. The table `symbols` has a row per symbol.
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! use gyre::arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
//! use gyre::{Rows, SpectralHmm};
//! use std::sync::Arc;
//!
//! let letter = |t: i64| ["a", "b", "c", "d"][(t / 7 % 2 * 2 + t * t % 3 % 2) as usize];
//! let t: ArrayRef = Arc::new(Int64Array::from_iter_values(0..60));
//! let s: ArrayRef = Arc::new(StringArray::from_iter_values((0..60).map(letter)));
//! let letters = RecordBatch::try_from_iter([("t", t), ("s", s)])?;
//! let rows = Rows::of(vec![letters]).set("sequences.time", "t");
//! let rows = rows.set("sequences.symbol", "s").set("job.seed", 1);
//! let fitted = rows.fit("hmm", SpectralHmm::new(2)).run().await?;
//! let symbols = fitted.table("symbols").await?;
//! assert_eq!(symbols.num_rows(), 4);
//! assert!(symbols.column_by_name("hmm_likelihood").is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # Observations
//!
//! A filter that estimates the state y of every row from the observations x up to this row. Rows
//! with both give its matrices.
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! use gyre::arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
//! use gyre::{Kalman, Rows};
//! use std::sync::Arc;
//!
//! let floats = |of: fn(f64) -> f64| -> ArrayRef {
//!     Arc::new(Float64Array::from_iter_values((0..60).map(|t| of(f64::from(t)))))
//! };
//! let t: ArrayRef = Arc::new(Int64Array::from_iter_values(0..60));
//! let (y, x) = (floats(|t| (t / 5.0).sin()), floats(|t| (t / 5.0).sin() + (t * t).cos()));
//! let rows = Rows::of(vec![RecordBatch::try_from_iter([("t", t), ("y", y), ("x", x)])?]);
//! let rows = rows.set("sequences.time", "t").set("sequences.state", "y");
//! let rows = rows.set("sequences.observation", "x").fit("kf", Kalman::default());
//! let estimates = rows.run().await?.table("estimates").await?;
//! assert_eq!(estimates.num_rows(), 60);
//! assert!(estimates.column_by_name("kf_mean").is_some());
//! # Ok(())
//! # }
//! ```
//!
//! # A result that is written, and read back
//!
//! ```
//! # #[tokio::main]
//! # async fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! use gyre::arrow::array::{ArrayRef, Int64Array, RecordBatch};
//! use gyre::{Fitted, Rows, Svd};
//! use std::sync::Arc;
//!
//! let out = folder.path().join("pairs").display().to_string();
//! let column = |of: fn(i64) -> i64| -> ArrayRef {
//!     Arc::new(Int64Array::from_iter_values((0..60).map(of)))
//! };
//! let next: fn(i64) -> i64 = |n| (n % 4 / 2 * 2 + n / 4 % 2 + n % 9 / 8 * 2) % 4;
//! let columns = [("a", column(|n| n % 4)), ("b", column(next))];
//! let rows = Rows::of(vec![RecordBatch::try_from_iter(columns)?]).set("job.output", &*out);
//! let rows = rows.set("transitions.source", "a").set("transitions.target", "b");
//! rows.fit("svd", Svd::new(2)).run().await?;
//! let fits = Fitted::open(&out).await?.table("fits").await?;
//! assert_eq!(fits.num_rows(), 1);
//! # Ok(())
//! # }
//! ```

use crate::error::{Error, Kind, Result};
use crate::methods::AnyMethod;
use crate::output::place::Output;
use crate::output::result::Written;
use crate::plan::pipeline::Pipeline;
use crate::plan::pipeline::fits::FitEntry;
use crate::read::lake::Resources;
use crate::read::paths::current::Current;
use crate::run::options::Options;
use crate::run::progress::Silent;
use crate::store::Stores;
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema};
use futures::future::LocalBoxFuture;
use object_store::ObjectStoreExt;
use object_store::memory::InMemory;
use parquet::arrow::ArrowWriter;
use parquet::errors::ParquetError;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use url::Url;

/// Where the rows of a run are, in a store of its own.
const ROWS: &str = "memory:///rows.parquet";

/// Rows in memory and what is fitted to them, as a pipeline file says it.
///
/// [`set`](Rows::set) takes the keys of pipeline files, which the
/// [guide](crate::guide) describes. They say what the columns mean, and so what the rows are:
/// counts (`transitions`), points (`points`, or `transitions` with coordinates), symbols
/// (`sequences` with `symbol`) or observations (`sequences` with `observation`). Every combination
/// of the values of `partition_by` gets its own model.
#[derive(Debug, Clone)]
pub struct Rows {
    batches: Vec<RecordBatch>,
    keys: Vec<(String, Value)>,
    fits: Vec<FitEntry<AnyMethod>>,
}

impl Rows {
    /// Batches of one schema, in the order of the rows. In SQL, they are the table `rows`.
    pub fn of(batches: Vec<RecordBatch>) -> Rows {
        let defaults = [
            ("job.name", "rows"),
            ("job.output", "memory:///result"),
            ("job.fingerprint", "content"),
            ("tables.rows.path", ROWS),
        ];
        Rows {
            batches,
            keys: defaults
                .map(|(key, value)| (key.into(), value.into()))
                .into(),
            fits: Vec::new(),
        }
    }

    /// Sets a key of the pipeline, such as `transitions.time`, to text, a number, a list or a
    /// table. Lags are numbers in the unit of the column of times, or durations such as `"5d"`.
    ///
    /// Without `job.output`, the result is in memory, as long as there is a [`Fitted`].
    #[must_use]
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Rows {
        self.keys.push((key.into(), value.into()));
        self
    }

    /// Adds a fit. The columns of the result that it gives have names that begin with `name`.
    ///
    /// [`set`](Rows::set) takes a list under the key `fit` instead, for what one value of a method
    /// does not say, such as `rank = "auto"`.
    #[must_use]
    pub fn fit(mut self, name: &str, method: impl Into<AnyMethod>) -> Rows {
        self.fits.push(FitEntry::of(name, method.into()));
        self
    }

    /// Runs the pipeline on the tokio runtime of the caller, with all cores of this machine and
    /// without a bound on memory. A run of the same rows into the same output has nothing to do.
    ///
    /// # Errors
    /// [`Kind::Spec`] if a key or a parameter is wrong, [`Kind::Input`] if the rows cannot be used,
    /// and the errors of the stages of a run. The model of a partition that cannot be fitted is
    /// missing: see [`Fitted::is_complete`].
    pub fn run(self) -> LocalBoxFuture<'static, Result<Fitted>> {
        Box::pin(async move {
            let pipeline = Pipeline::of_values(&self.keys, "SELECT * FROM rows", self.fits)?;
            let stores = Stores::from(&pipeline.store);
            let root = Url::parse(ROWS).map_err(|e| Error::bug(e.to_string()))?;
            stores.put(&root, Arc::new(InMemory::new()));
            let (place, bytes) = (stores.open(ROWS)?, parquet(&self.batches)?);
            let put = place.store.put(&place.path, bytes.into()).await;
            put.map_err(|e| Error::store("the rows cannot be kept in memory", e))?;
            let inputs = pipeline.open_with(&Resources::default(), &stores).await?;
            let run = inputs.plan_any(None).await?;
            let output = run.output()?;
            let options = Options::default();
            run.run(&output, &options, Arc::new(Silent)).await?;
            Fitted::at(output).await
        })
    }
}

/// The rows as a Parquet file. Any column may have nulls.
fn parquet(batches: &[RecordBatch]) -> Result<Vec<u8>> {
    let Some(first) = batches.first() else {
        let message = "there is no record batch; give one with the columns and without rows";
        return Err(Error::input(message));
    };
    let schemas: Vec<Schema> = batches.iter().map(nullable).collect();
    if let Some(n) = schemas
        .iter()
        .position(|schema| schema.fields != schemas[0].fields)
    {
        return Err(Error::input(format!(
            "record batch {n} has other columns than the first ({} and {}); give all of them one schema",
            columns(&batches[n]),
            columns(first)
        )));
    }
    let written = || -> Result<Vec<u8>, ParquetError> {
        let (mut bytes, schema) = (Vec::new(), Arc::new(nullable(first)));
        let mut writer = ArrowWriter::try_new(&mut bytes, schema, None)?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.close()?;
        Ok(bytes)
    };
    written().map_err(|e| {
        let message = "the record batches cannot be written as a Parquet file; give columns of types that Parquet has";
        Error::with_source(Kind::Input, message, e)
    })
}

fn nullable(batch: &RecordBatch) -> Schema {
    let fields = batch.schema_ref().fields().iter();
    let fields = fields.map(|field| Field::new(field.name(), field.data_type().clone(), true));
    Schema::new(fields.collect::<Vec<_>>())
}

fn columns(batch: &RecordBatch) -> String {
    let fields = batch.schema_ref().fields().iter();
    let fields = fields.map(|field| format!("{} {}", field.name(), field.data_type()));
    fields.collect::<Vec<_>>().join(", ")
}

/// The result of a run: its tables.
pub struct Fitted {
    output: Output,
    current: Current,
}

impl Fitted {
    /// Opens the result that a run has written to a folder or URL.
    ///
    /// # Errors
    /// If there is no result, or it cannot be read.
    pub async fn open(location: &str) -> Result<Fitted> {
        Fitted::at(Output::open(location, &Stores::default())?).await
    }

    async fn at(output: Output) -> Result<Fitted> {
        match output.current().await? {
            Some(current) => Ok(Fitted { output, current }),
            None => Err(Error::input(format!(
                "there is no result at {}; run its pipeline",
                output.shown()
            ))),
        }
    }

    /// Whether every partition has its model.
    pub fn is_complete(&self) -> bool {
        self.current.complete
    }

    /// The number of rows of every table.
    pub fn tables(&self) -> &BTreeMap<String, u64> {
        &self.current.tables
    }

    /// A table of the result, such as `fits`. Its columns have the names, types and units of the
    /// Parquet file.
    ///
    /// # Errors
    /// [`Kind::Spec`] if the result has no such table, [`Kind::Input`] if its bytes are not those
    /// that were written.
    pub async fn table(&self, name: &'static str) -> Result<RecordBatch> {
        if !self.current.tables.contains_key(name) {
            let known: Vec<&str> = self.current.tables.keys().map(String::as_str).collect();
            return Err(Error::spec(format!(
                "the result has no table `{name}`, only {}",
                known.join(", ")
            )));
        }
        let written = Written::of(&self.output, self.current.clone()).await?;
        written.table(name).await?.batch().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::spectral::svd::Svd;
    use arrow::array::{ArrayRef, Int64Array, StringArray};

    fn batch(values: ArrayRef) -> RecordBatch {
        let columns = [("n", Arc::clone(&values)), ("m", values)];
        RecordBatch::try_from_iter(columns).expect("a batch")
    }

    fn pairs(batches: Vec<RecordBatch>) -> Rows {
        let rows = Rows::of(batches).set("transitions.source", "n");
        rows.set("transitions.target", "m")
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_is_wrong_with_rows_is_named() {
        let numbers = || batch(Arc::new(Int64Array::from(vec![1, 2, 3])));
        let text = || batch(Arc::new(StringArray::from(vec!["a"])));
        let rows = || pairs(vec![numbers()]);
        for (rows, message) in [
            (pairs(Vec::new()), "there is no record batch"),
            (
                pairs(vec![numbers(), numbers(), text()]),
                "record batch 2 has other columns than the first (n Utf8, m Utf8 and n Int64, m Int64)",
            ),
            (
                rows().set("transitions.count", f64::NAN),
                "rows: `transitions.count` cannot be set: null and NaN",
            ),
            (
                rows().set("a b", 1),
                "rows: `a b` cannot be set: write a key",
            ),
            (
                rows().set("tables", 1).set("tables.x", 1),
                "rows: `tables.x` cannot be set",
            ),
            (
                rows().fit("svd", Svd::new(0)),
                "rows: `fit.svd.rank` must be at least 1",
            ),
            (
                rows().set("transitions.wait", 1),
                "rows: unknown key `transitions.wait`",
            ),
        ] {
            let error = rows.run().await.err().expect("an error").full();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn nulls_may_be_in_any_batch() {
        let part = |values: Vec<Option<i64>>| batch(Arc::new(Int64Array::from(values)));
        let rows = pairs(vec![
            part(vec![Some(1), Some(2)]),
            part(vec![None, Some(2)]),
        ]);
        let fitted = rows.run().await.expect("counts");
        assert!(fitted.is_complete());
        let counts = fitted.table("counts").await.expect("a table");
        assert_eq!(counts.num_rows() as u64, fitted.tables()["counts"]);
        assert_eq!(counts.num_rows(), 2);
        let error = fitted.table("fit").await.expect_err("no table").to_string();
        assert!(
            error.starts_with("the result has no table `fit`, only "),
            "{error}"
        );
    }
}
