//! Reads a result that a run has written, column by column. Nothing else in gyre reads an output.
//!
//! In: an [`Output`]. Out: the meaning of its columns (partition keys, lag, states, fits), the row
//! range of every model in a table, and any columns as Arrow arrays. A result with another schema
//! version is an error.

use crate::error::{Error, Kind, Result, escaped};
use crate::evidence::lag::Lag;
use crate::output::files::{damaged, incomplete};
use crate::output::layout::SCHEMA_VERSION;
use crate::output::marks::FileMarks;
use crate::output::place::Output;
use crate::output::tables::run_schema::LAG_SECONDS;
use crate::output::tables::table::Table;
use crate::read::paths::current::Current;
use crate::read::rows::states::key_text;
use crate::store::parquet::StoredFile;
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::compute::kernels::cmp::eq;
use arrow::compute::{and, cast, concat, partition};
use arrow::datatypes::{DataType, Field, Float64Type, Int32Type, SchemaRef};
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowPredicateFn, RowFilter};
use parquet::arrow::async_reader::ParquetRecordBatchStreamBuilder;
use parquet::errors::ParquetError;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// The result in place at an output, and the meaning of its columns.
pub(crate) struct Written<'a> {
    output: &'a Output,
    marks: FileMarks,
    /// The tables whose bytes have been compared with their hashes, and those of small ones.
    verified: Mutex<BTreeMap<&'static str, Option<Bytes>>>,
    /// The pointer to the result.
    pub current: Current,
    /// The kind of the evidence.
    pub kind: String,
    /// Key columns of the partition.
    pub partition: Vec<Field>,
    /// `lag`, if the pipeline has trajectories.
    pub lag: Option<Field>,
    /// Key columns of the source states, or of the symbols.
    pub sources: Vec<Field>,
    /// Key columns of the target states.
    pub targets: Vec<Field>,
    /// In the order of their columns.
    pub fits: Vec<WrittenFit>,
}

/// A fit, as described by the columns of the states.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WrittenFit {
    /// Name of the fit, with its rank.
    pub name: String,
    /// The largest rank that the fit of any model may have.
    pub rank: usize,
    /// Whether it has memberships.
    pub is_soft: bool,
}

impl WrittenFit {
    /// The name of the `[[fit]]`, which all of its ranks share.
    pub(crate) fn family(&self) -> &str {
        let rank = format!("_r{}", self.rank);
        self.name.strip_suffix(&rank).unwrap_or(&self.name)
    }
}

/// The kind of the evidence of results with counts, and with sets of states.
pub(crate) const COUNTS: &str = "counts";

/// The kind of the evidence of results that do not say it, by a table that only they have.
const KINDS_BY_TABLE: [(&str, &str); 4] = [
    ("features", "points"),
    ("symbols", "symbols"),
    ("factors", "observations"),
    ("latent", COUNTS),
];

/// The kind of the evidence of a result. None for the rows that an assignment wrote: they come
/// without models.
pub(crate) fn kind_of(result: &Current) -> Option<&str> {
    let has = |table: &str| result.tables.contains_key(table);
    if !has(Table::Fits.name()) {
        return None;
    }
    result.kind.as_deref().or_else(|| {
        let mut kinds = KINDS_BY_TABLE.iter();
        kinds.find(|(table, _)| has(table)).map(|(_, kind)| *kind)
    })
}

/// The rows of one partition and lag in a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ModelRows {
    /// Partition and lag.
    pub key: ModelKey,
    /// Range of rows in the table.
    pub rows: Range<usize>,
}

/// A partition and lag as text, ordered by the partition and the length of the lag.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ModelKey {
    /// In the order of the partition columns.
    pub partition: Vec<String>,
    /// The lag, if there is one.
    pub lag: Option<String>,
}

impl ModelKey {
    /// The key in row `at` of the partition and lag columns.
    pub(crate) fn at(partition: &[ArrayRef], lag: Option<&ArrayRef>, at: usize) -> ModelKey {
        let text = |column: &ArrayRef| key_text(std::slice::from_ref(column), at);
        ModelKey {
            partition: partition.iter().map(text).collect(),
            // Older results spell lags as the pipeline file did.
            lag: lag.map(|lag| Lag::canonical(&text(lag))),
        }
    }
}

impl Ord for ModelKey {
    fn cmp(&self, other: &ModelKey) -> Ordering {
        let by_lag = || match (&self.lag, &other.lag) {
            (Some(a), Some(b)) => Lag::texts_by_length(a, b),
            (a, b) => a.cmp(b),
        };
        self.partition.cmp(&other.partition).then_with(by_lag)
    }
}

impl PartialOrd for ModelKey {
    fn partial_cmp(&self, other: &ModelKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// One table of the result.
pub(crate) struct WrittenTable {
    builder: ParquetRecordBatchStreamBuilder<StoredFile>,
    shown: String,
}

impl<'a> Written<'a> {
    /// Opens the result at an output, or `None` if there is no complete result.
    pub(crate) async fn open(output: &'a Output) -> Result<Option<Written<'a>>> {
        match output.current().await? {
            Some(current) => Written::of(output, current).await.map(Some),
            None => Ok(None),
        }
    }

    /// Opens a current or earlier result of the output if its rows are of a kind. `None` if they
    /// are of another kind: nothing of such a result is of use to a run.
    pub(crate) async fn of_kind(
        kind: &str,
        output: &'a Output,
        current: Current,
    ) -> Result<Option<Written<'a>>> {
        if kind_of(&current) != Some(kind) {
            return Ok(None);
        }
        Written::of(output, current).await.map(Some)
    }

    /// Opens a current or earlier result of the output.
    ///
    /// # Errors
    /// If it has no models, or cannot be read.
    pub(crate) async fn of(output: &'a Output, current: Current) -> Result<Written<'a>> {
        let Some(kind) = kind_of(&current).map(String::from) else {
            return Err(Error::spec(format!(
                "the result at {} has assigned rows and no models; name the output of a run",
                output.shown()
            )));
        };
        let marks = output.file_marks(&current.run).await;
        let mut written = Written {
            output,
            marks: marks.map_err(|e| match e.kind() {
                Kind::Input => incomplete(&e.full()),
                _ => e,
            })?,
            verified: Mutex::default(),
            current,
            kind,
            partition: Vec::new(),
            lag: None,
            sources: Vec::new(),
            targets: Vec::new(),
            fits: Vec::new(),
        };
        let fields = async |table: &'static str| {
            let schema = written.table(table).await?.schema();
            let fields = schema.fields().iter();
            Ok::<_, Error>(fields.map(|f| f.as_ref().clone()).collect::<Vec<_>>())
        };
        // Key columns cannot have gyre's own column names.
        let before = |fields: &[Field], name: &str| {
            let end = fields.iter().position(|f| f.name() == name);
            fields[..end.unwrap_or(fields.len())].to_vec()
        };
        let mut leading = before(&fields(Table::Fits.name()).await?, "fit");
        // The tables with a row per state or symbol, if there are such tables.
        let mut keyed = [Vec::new(), Vec::new()];
        let names = [&["sources", "symbols"][..], &["targets"]];
        for (keyed, names) in keyed.iter_mut().zip(names) {
            let has = |name: &&&str| written.current.tables.contains_key(**name);
            if let Some(&name) = names.iter().find(has) {
                *keyed = fields(name).await?;
            }
        }
        let [sources, targets] = keyed;
        let n = leading.len();
        if let [.., lag, seconds] = &leading[..]
            && lag.name() == "lag"
            && seconds.name() == LAG_SECONDS
        {
            leading.pop();
        }
        let lag = leading.pop_if(|f| f.name() == "lag");
        let states = |fields: &[Field]| before(fields, "count").split_off(n.min(fields.len()));
        written.fits = sources.iter().filter_map(|f| fit(f, &sources)).collect();
        (written.sources, written.targets) = (states(&sources), states(&targets));
        (written.partition, written.lag) = (leading, lag);
        Ok(written)
    }

    /// Whether the result has a table: results of older versions may lack some.
    pub(crate) fn has(&self, table: Table) -> bool {
        self.current.tables.contains_key(table.name())
    }

    /// Opens a table of the result, given by its name.
    ///
    /// # Errors
    /// [`Kind::Input`] if its bytes are not those that were written, or it has other rows than the
    /// pointer says.
    pub(crate) async fn table(&self, name: impl Into<&'static str>) -> Result<WrittenTable> {
        let name = name.into();
        let path = self.output.table(&self.current, name);
        let held = self.verified(name, &path).await?;
        let file = StoredFile {
            held,
            ..StoredFile::new(Arc::clone(&self.output.store), path)
        };
        let table = WrittenTable::open(self.output, file).await?;
        match self.current.tables.get(name) {
            Some(&rows) if rows != table.rows() as u64 => Err(damaged(&table.shown)),
            _ => Ok(table),
        }
    }

    /// Whether a table has the bytes that were written.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn is_intact(&self, name: impl Into<&'static str>) -> Result<bool> {
        let name = name.into();
        let path = self.output.table(&self.current, name);
        match self.verified(name, &path).await {
            Err(e) if e.kind() == Kind::Input => Ok(false),
            verified => verified.map(|_| true),
        }
    }

    /// Compares the bytes of a table with its hash, once. Returns those of a small table.
    async fn verified(&self, name: &'static str, path: &Path) -> Result<Option<Bytes>> {
        let verified = || self.verified.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(held) = verified().get(name) {
            return Ok(held.clone());
        }
        let Some(mark) = self.marks.table(name) else {
            let what = format!("{} was not written by its run", self.output.show(path));
            return Err(incomplete(&what));
        };
        let (_, held) = self.output.verified(path, mark).await?;
        verified().insert(name, held.clone());
        Ok(held)
    }

    /// The partition and the lag of every model, in row order.
    ///
    /// # Errors
    /// If the table that has them cannot be read.
    pub(crate) async fn keys(&self) -> Result<Vec<ModelKey>> {
        // A result without fits has counts alone.
        let table = if self.has(Table::Sources) {
            Table::Sources
        } else {
            Table::Fits
        };
        let models = self.models(table).await?;
        Ok(models.into_iter().map(|model| model.key).collect())
    }

    /// The models of a table with their row ranges, in row order.
    pub(crate) async fn models(&self, table: impl Into<&'static str>) -> Result<Vec<ModelRows>> {
        let file = self.table(table).await?;
        let names = self.partition.iter().chain(&self.lag);
        let names: Vec<&str> = names.map(|f| f.name().as_str()).collect();
        if names.is_empty() {
            let (key, rows) = (ModelKey::default(), 0..file.rows());
            let all = (!rows.is_empty()).then_some(ModelRows { key, rows });
            return Ok(Vec::from_iter(all));
        }
        let columns = file.columns(&names).await?;
        let ranges = partition(&columns)
            .map_err(|e| Error::with_source(Kind::Bug, "rows cannot be partitioned", e))?
            .ranges();
        let (partition, lag) = columns.split_at(self.partition.len());
        let model = |rows: Range<usize>| ModelRows {
            key: ModelKey::at(partition, lag.first(), rows.start),
            rows,
        };
        Ok(ranges.into_iter().map(model).collect())
    }

    /// A model in words, such as `airline=FR, lag 5d`; empty if there is only one model.
    pub(crate) fn place(&self, key: &ModelKey) -> String {
        let partition = self.partition.iter().zip(&key.partition);
        let partition = partition.map(|(f, v)| escaped(&format!("{}={v}", f.name())));
        let lag = key.lag.iter().map(|lag| format!("lag {lag}"));
        partition.chain(lag).collect::<Vec<_>>().join(", ")
    }

    /// The partition of a model, by column.
    pub(crate) fn partition_of(&self, key: &ModelKey) -> BTreeMap<String, String> {
        let names = self.partition.iter().map(|f| f.name().clone());
        names.zip(key.partition.iter().cloned()).collect()
    }
}

/// The fit whose embedding is this column of `columns`, if it is one.
fn fit(embedding: &Field, columns: &[Field]) -> Option<WrittenFit> {
    let name = embedding.name().strip_suffix("_embedding")?;
    let membership = format!("{name}_membership");
    // An embedding without sets is no fit that can be assigned or compared.
    let affiliation = format!("{name}_affiliation");
    if columns.iter().all(|f| *f.name() != affiliation) {
        return None;
    }
    match embedding.data_type() {
        DataType::FixedSizeList(_, rank) => Some(WrittenFit {
            name: name.to_string(),
            rank: *rank as usize,
            is_soft: columns.iter().any(|f| *f.name() == membership),
        }),
        _ => None,
    }
}

impl WrittenTable {
    async fn open(output: &Output, file: StoredFile) -> Result<WrittenTable> {
        let shown = output.show(&file.path);
        let builder = ParquetRecordBatchStreamBuilder::new(file).await;
        let builder = builder.map_err(|e| unreadable(&shown, e))?;
        let pairs = builder.metadata().file_metadata().key_value_metadata();
        let mut pairs = pairs.into_iter().flatten();
        let version = pairs.find(|pair| pair.key == "gyre.schema");
        match version.and_then(|pair| pair.value.as_deref()) {
            Some(SCHEMA_VERSION) => Ok(WrittenTable { builder, shown }),
            Some(other) => Err(Error::input(format!(
                "{shown} has version {other} of the tables, and this gyre reads version {SCHEMA_VERSION}"
            ))),
            None => Err(Error::input(format!("{shown} was not written by gyre"))),
        }
    }

    /// The Arrow schema of the table.
    pub(crate) fn schema(&self) -> SchemaRef {
        Arc::clone(self.builder.schema())
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.builder.metadata().file_metadata().num_rows() as usize
    }

    /// The rows of some columns in which all of the integers `zeros` are 0.
    pub(crate) async fn columns_where_zero(
        mut self,
        names: &[&str],
        zeros: &[&str],
    ) -> Result<Vec<ArrayRef>> {
        let schema = self.builder.parquet_schema();
        let mask = ProjectionMask::columns(schema, zeros.iter().copied());
        let is_kept = |batch: RecordBatch| {
            let mut kept = BooleanArray::from(vec![true; batch.num_rows()]);
            for column in batch.columns() {
                let own = eq(&cast(column, &DataType::Int64)?, &Int64Array::new_scalar(0))?;
                kept = and(&kept, &own)?;
            }
            Ok(kept)
        };
        let filter = RowFilter::new(vec![Box::new(ArrowPredicateFn::new(mask, is_kept))]);
        self.builder = self.builder.with_row_filter(filter);
        self.columns(names).await
    }

    /// The whole table.
    pub(crate) async fn batch(self) -> Result<RecordBatch> {
        let (schema, shown) = (self.schema(), self.shown.clone());
        let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
        let columns = self.columns(&names).await?;
        RecordBatch::try_new(Arc::clone(&schema), columns).map_err(|e| unreadable(&shown, e))
    }

    /// All rows of some columns, in the order of `names`.
    pub(crate) async fn columns(self, names: &[&str]) -> Result<Vec<ArrayRef>> {
        let WrittenTable { builder, shown } = self;
        let schema = Arc::clone(builder.schema());
        let root = |name: &&str| {
            let missing = |_| Error::input(format!("{shown} has no column `{name}`"));
            schema.index_of(name).map_err(missing)
        };
        let roots: Vec<usize> = names.iter().map(root).collect::<Result<_>>()?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
        let stream = builder
            .with_projection(mask)
            .with_batch_size(1 << 16)
            .build()
            .map_err(|e| unreadable(&shown, e))?;
        let batches: Result<Vec<RecordBatch>, _> = stream.try_collect().await;
        let batches = batches.map_err(|e| unreadable(&shown, e))?;
        let column = |name: &&str| {
            let pieces = batches.iter().filter_map(|own| own.column_by_name(name));
            let pieces: Vec<&dyn Array> = pieces.map(|column| column.as_ref()).collect();
            if pieces.is_empty() {
                let field = schema.field_with_name(name);
                return field.map(|f| arrow::array::new_empty_array(f.data_type()));
            }
            concat(&pieces)
        };
        let columns = names.iter().map(column).collect::<Result<_, _>>();
        columns.map_err(|e| unreadable(&shown, e))
    }
}

/// Numbers of any type as f64.
pub(crate) fn floats(column: &ArrayRef) -> Result<Vec<f64>> {
    let strange = "a column of the result does not hold numbers";
    let column = cast(column, &DataType::Float64);
    let column = column.map_err(|e| Error::with_source(Kind::Input, strange, e))?;
    Ok(column.as_primitive::<Float64Type>().values().to_vec())
}

/// Numbers of any type, all of them finite and none null: gyre writes no others for a fit.
pub(crate) fn finite(column: &ArrayRef, name: &str) -> Result<Vec<f64>> {
    let strange = |what: &str| Error::input(format!("the written column `{name}` holds {what}"));
    if column.null_count() > 0 {
        return Err(strange("a null"));
    }
    let values = floats(column)?;
    match values.iter().find(|x| !x.is_finite()) {
        Some(x) => Err(strange(&x.to_string())),
        None => Ok(values),
    }
}

/// Set numbers, with −1 for no set.
pub(crate) fn affiliation(column: &ArrayRef) -> Result<Vec<i32>> {
    let strange = "an affiliation of the result is not an integer";
    let column = cast(column, &DataType::Int32);
    let column = column.map_err(|e| Error::with_source(Kind::Input, strange, e))?;
    let column = column.as_primitive::<Int32Type>();
    Ok(column.iter().map(|set| set.unwrap_or(-1)).collect())
}

/// An embedding, row-major, or `None` if a row is null.
pub(crate) fn embedding(column: &ArrayRef) -> Result<Option<Vec<f64>>> {
    let Some(lists) = column.as_fixed_size_list_opt() else {
        let what = "an embedding of the result is not a list of fixed size";
        return Err(Error::input(what));
    };
    if lists.null_count() > 0 {
        return Ok(None);
    }
    let width = lists.value_length() as usize;
    let (first, len) = (lists.offset() * width, lists.len() * width);
    let values = lists.values().slice(first, len);
    if values.null_count() > 0 {
        return Err(Error::input("a number of a written embedding is null"));
    }
    floats(&values).map(Some)
}

/// The error for a file that cannot be read: `Store` if the store failed, else `Input`.
fn unreadable(shown: &str, e: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    let e = e.into();
    let of_store = |e: &(dyn std::error::Error + 'static)| match e.downcast_ref::<ParquetError>() {
        Some(ParquetError::External(inner)) => inner.is::<object_store::Error>(),
        _ => e.is::<object_store::Error>(),
    };
    let what = format!("{shown} cannot be read");
    if of_store(e.as_ref()) {
        Error::store(what, e)
    } else {
        Error::with_source(Kind::Input, what, e)
    }
}
