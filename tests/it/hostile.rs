//! Damaged files and Hive folders with unusual names. A run gives the right counts or an error,
//! never a panic. PROPTEST_CASES sets the number of cases.

use crate::cli::integers;
use crate::lake::{Lake, ProgramRun, Swap, files_below};
use crate::versions::sealed;
use crate::written;
use arrow::array::{
    Array, ArrayRef, AsArray, FixedSizeListArray, Float64Array, Int64Array, ListArray, RecordBatch,
    StringArray, UInt32Array, new_null_array,
};
use arrow::compute::{cast, concat_batches, take_record_batch};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
use futures::TryStreamExt;
use gyre::error::{Kind, Result};
use gyre::output::place::Output;
use gyre::plan::pipeline::Pipeline;
use gyre::read::lake::Resources;
use gyre::read::rows::states::key_text;
use gyre::run::Outcome;
use gyre::run::counts::kind::CountsKind;
use gyre::run::options::Options;
use gyre::run::progress::Silent;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path as FilePath, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

const PIPELINE: &str = r#"
job = { name = "hostile", output = "out", incremental = INCREMENTAL }
tables.rows = { path = "in/" }
[transitions]
sql = "SELECT * FROM rows"
INPUT
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
"#;

/// Runs a pipeline on the files of a folder, with the output in a store. Panics on an error that
/// means a bug in gyre.
pub fn run_into(
    store: &InMemory,
    input: &str,
    incremental: bool,
    folder: &TempDir,
    format: &str,
) -> Result<Outcome<CountsKind>> {
    let path = folder.path().display();
    let table = format!("path = \"{path}/\", format = \"{format}\"");
    let text = PIPELINE
        .swap("path = \"in/\"", &table)
        .swap("INPUT", input)
        .swap("INCREMENTAL", &incremental.to_string());
    run_text_into(store, &text)
}

/// As `run_into`, for a whole pipeline file.
pub fn run_text_into(store: &InMemory, text: &str) -> Result<Outcome<CountsKind>> {
    let ran = RUNTIME.block_on(async {
        let spec = Pipeline::parse(text, "p.toml", &[], &|_| None)?;
        let resources = Resources {
            threads: 2,
            memory_bytes: Some(256 << 20),
        };
        let inputs = spec.open_with(&resources, &Default::default()).await?;
        let planned = inputs.plan().await?;
        let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
        let options = Options::default();
        planned.run_with(&output, &options, Arc::new(Silent)).await
    });
    if let Err(e) = &ran {
        let message = e.full();
        let is_bug = e.kind() == Kind::Bug || message.contains("panicked");
        assert!(!is_bug, "{message}");
    }
    ran
}

/// The current counts: keys without the lag → count.
pub fn counts(store: &InMemory) -> BTreeMap<Vec<String>, u64> {
    let bytes = RUNTIME.block_on(async {
        let pointer = store.get(&Path::from("out/current.json")).await;
        let pointer = pointer.expect("a result").bytes().await.expect("bytes");
        let current: gyre::read::paths::current::Current =
            serde_json::from_slice(&pointer).expect("a pointer");
        let path = format!("out/{}/counts/part-0.parquet", current.folder);
        let table = store.get(&Path::from(path)).await.expect("a table");
        table.bytes().await.expect("bytes")
    });
    let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a Parquet file");
    let mut all = BTreeMap::new();
    for batch in reader.build().expect("a reader") {
        let batch = batch.expect("rows");
        let schema = batch.schema();
        let columns = schema.fields().iter().zip(batch.columns());
        let of = |keep: &dyn Fn(&str) -> bool| -> Vec<ArrayRef> {
            let columns = columns.clone().filter(|(f, _)| keep(f.name()));
            columns.map(|(_, c)| Arc::clone(c)).collect()
        };
        let keys = of(&|name| !matches!(name, "count" | "lag" | "lag_seconds"));
        let count = cast(&of(&|name| name == "count")[0], &DataType::Float64).expect("numbers");
        let count = count.as_primitive::<Float64Type>();
        for at in 0..batch.num_rows() {
            let key = |c: &ArrayRef| key_text(std::slice::from_ref(c), at);
            let old = all.insert(keys.iter().map(key).collect(), count.value(at) as u64);
            assert_eq!(old, None, "duplicate pair");
        }
    }
    all
}

/// Writes rows as a Parquet file of several row groups.
pub fn parquet(columns: Vec<(&str, ArrayRef)>, compression: Compression) -> Vec<u8> {
    let columns = columns.into_iter().map(|(n, c)| (n, c, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length");
    let properties = WriterProperties::builder()
        .set_compression(compression)
        .set_max_row_group_row_count(Some(20))
        .build();
    let writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties));
    let mut writer = writer.expect("a writer");
    writer.write(&batch).expect("rows are written");
    writer.into_inner().expect("the file is closed")
}

/// One kind of damage to a file.
#[derive(Debug, Clone)]
enum Damage {
    Flip(Index, u8),
    Set(Index, Vec<u8>),
    Cut(Index),
    Remove(Index, usize),
    Insert(Index, Vec<u8>),
    Repeat(Index, usize),
}

const WORDS: &[&[u8]] = &[
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x10",
    b"\0\0\0\0",
    b"PAR1",
    b"\n",
    b",",
    b"\"",
    b"{",
    b"1e999",
    b"9223372036854775808",
];

fn damage() -> impl Strategy<Value = Damage> {
    let bytes = || {
        let words = select(WORDS).prop_map(<[u8]>::to_vec);
        prop_oneof![prop::collection::vec(any::<u8>(), 1..9), words]
    };
    prop_oneof![
        4 => (any::<Index>(), any::<u8>()).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        4 => (any::<Index>(), bytes()).prop_map(|(at, new)| Damage::Set(at, new)),
        1 => any::<Index>().prop_map(Damage::Cut),
        1 => (any::<Index>(), 1..64_usize).prop_map(|(at, n)| Damage::Remove(at, n)),
        1 => (any::<Index>(), bytes()).prop_map(|(at, new)| Damage::Insert(at, new)),
        1 => (any::<Index>(), 1..64_usize).prop_map(|(at, n)| Damage::Repeat(at, n)),
    ]
}

fn apply_damage(mut bytes: Vec<u8>, all: &[Damage]) -> Vec<u8> {
    for damage in all {
        if bytes.is_empty() {
            break;
        }
        let end = |at: usize, n: usize, bytes: &[u8]| (at + n).min(bytes.len());
        match damage {
            Damage::Flip(at, bits) => *at.get_mut(&mut bytes) ^= bits,
            Damage::Set(at, new) => {
                let at = at.index(bytes.len());
                let to = end(at, new.len(), &bytes);
                bytes[at..to].copy_from_slice(&new[..to - at]);
            }
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Remove(at, n) => {
                let at = at.index(bytes.len());
                let to = end(at, *n, &bytes);
                bytes.drain(at..to);
            }
            Damage::Insert(at, new) => {
                let at = at.index(bytes.len());
                bytes.splice(at..at, new.iter().copied());
            }
            Damage::Repeat(at, n) => {
                let at = at.index(bytes.len());
                let piece = bytes[at..end(at, *n, &bytes)].to_vec();
                bytes.splice(at..at, piece);
            }
        }
    }
    bytes
}

const ROWS: i64 = 60;

/// The values of row k. Three trajectories of 20 rows have names as states, and `first` is the
/// first trajectory.
fn row(k: i64, first: i64) -> (i64, i64, String) {
    (first + k / 20, k % 20, format!("s{}", k * k % 7))
}

fn plain(format: &str, first: i64) -> Vec<u8> {
    let rows = (0..ROWS).map(|k| row(k, first));
    match format {
        "csv" => {
            let lines = rows.map(|(id, t, s)| format!("{id},{t},{s}\n"));
            format!("id,t,s\n{}", lines.collect::<String>()).into_bytes()
        }
        "json" => {
            let lines = rows.map(|(id, t, s)| format!("{}\n", json!({"id": id, "t": t, "s": s})));
            lines.collect::<String>().into_bytes()
        }
        _ => {
            let rows: Vec<_> = rows.collect();
            let columns = vec![
                ("id", integers(rows.iter().map(|r| r.0))),
                ("t", integers(rows.iter().map(|r| r.1))),
                (
                    "s",
                    Arc::new(StringArray::from_iter_values(rows.iter().map(|r| &r.2))) as ArrayRef,
                ),
            ];
            let compression = match format {
                "zstd" => Compression::ZSTD(ZstdLevel::default()),
                _ => Compression::UNCOMPRESSED,
            };
            parquet(columns, compression)
        }
    }
}

pub const TRAJECTORIES: &str = "trajectory = \"id\"\ntime = \"t\"\nstate = \"s\"\nlag = 1";

/// Decodes the value of a Hive folder. If its percent escapes are not valid UTF-8, it is kept as it
/// is.
fn unescaped(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = text
            .get(at + 1..at + 3)
            .filter(|h| h.bytes().all(|b| b.is_ascii_hexdigit()));
        match hex.filter(|_| bytes[at] == b'%') {
            Some(hex) => {
                out.push(u8::from_str_radix(hex, 16).expect("two digits"));
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(out).unwrap_or_else(|_| text.to_string())
}

/// Encodes a value as Spark and Hive do in the name of a folder.
fn hive_escaped(value: &str) -> String {
    let escape = |c: char| match c {
        '\0'..='\x1f'
        | '"'
        | '#'
        | '%'
        | '\''
        | '*'
        | '/'
        | ':'
        | '='
        | '?'
        | '\\'
        | '\x7f'
        | '{'
        | '['
        | ']'
        | '^' => format!("%{:02X}", c as u32),
        _ => c.to_string(),
    };
    value.chars().map(escape).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: proptest_cases(24), ..ProptestConfig::default() })]

    /// Random damage to the bytes of a file.
    #[test]
    fn a_damaged_file_is_readable_or_an_error(
        // Arrow files are left out: their reader allocates the size that damaged bytes contain, and
        // the process aborts.
        format in select(&["parquet", "zstd", "csv", "json"][..]),
        all in prop::collection::vec(damage(), 1..4),
        is_footer in any::<bool>(),
    ) {
        let bytes = plain(format, 0);
        // Half of the damage is where a file describes its own format.
        let head = if is_footer { bytes.len() - bytes.len() / 3 } else { 0 };
        let (head, tail) = bytes.split_at(head);
        let bytes = [head, &apply_damage(tail.to_vec(), &all)].concat();
        let ending = if format == "zstd" { "parquet" } else { format };
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(format!("rows.{ending}")), bytes).expect("a file");
        let store = InMemory::new();
        if run_into(&store, TRAJECTORIES, false, &folder, ending).is_ok() {
            let total: u64 = counts(&store).values().sum();
            // Damage cannot create thousands of rows.
            prop_assert!(total <= 100 * ROWS as u64, "{} transitions", total);
        }
    }

    /// The files of an earlier run have checksums. Damage costs time and changes no result.
    #[test]
    fn a_damaged_ledger_changes_no_count(
        which in any::<Index>(),
        all in prop::collection::vec(damage(), 1..4),
        is_gone in prop::bool::weighted(0.1),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("1.parquet"), plain("zstd", 0)).expect("a file");
        let store = InMemory::new();
        let run = |store: &InMemory| run_into(store, TRAJECTORIES, true, &folder, "parquet");
        run(&store).expect("an undamaged run");
        fs::write(folder.path().join("2.parquet"), plain("zstd", 3)).expect("a file");
        let undamaged = store.fork();
        run(&undamaged).expect("an undamaged run");
        let at = Path::from("out/ledger");
        let objects: Vec<ObjectMeta> = RUNTIME.block_on(store.list(Some(&at)).try_collect()).expect("a list");
        prop_assert!(!objects.is_empty());
        let object = &which.get(&objects).location;
        RUNTIME.block_on(async {
            let bytes = store.get(object).await.expect("an object").bytes().await.expect("bytes");
            if is_gone {
                store.delete(object).await.expect("a store")
            } else {
                store.put(object, apply_damage(bytes.to_vec(), &all).into()).await.map(|_| ()).expect("a store")
            }
        });
        run(&store).expect("the files can be recounted");
        prop_assert_eq!(counts(&store), counts(&undamaged));
    }

    /// Folders may have every name that a file system allows. Each value is a separate partition,
    /// and no row is lost.
    #[test]
    fn folders_are_partitions_or_an_error(
        names in prop::collection::btree_set(
            prop_oneof![
                "[a-z0-9%=. ~+&#?*\\[\\]{}'\"!:;|<>\\\\-]{0,12}",
                "(%[0-9A-Fa-f]{2}){1,4}",
                "(%2e|%2F|\\.|%5C|%00|%0A|%25|%ff){1,5}",
                "\\PC{1,8}",
                "[\n\t\r\u{1}\u{7f}]{1,3}",
                "-?[0-9]{1,20}",
                "a{100,240}",
                Just("__HIVE_DEFAULT_PARTITION__".to_string()),
            ].prop_filter("a name", |name| !name.contains(['/', '\0']) && name.len() < 250),
            1..5,
        ),
        is_escaped in any::<bool>(),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut expected: BTreeMap<String, u64> = BTreeMap::new();
        for name in &names {
            let (folder_name, value) = if is_escaped {
                (hive_escaped(name), name.clone())
            } else {
                (name.clone(), unescaped(name))
            };
            let inside = folder.path().join(format!("k={folder_name}"));
            if fs::create_dir(&inside).is_err() {
                return Ok(());
            }
            fs::write(inside.join("rows.parquet"), plain("zstd", 0)).expect("a file");
            // A row without a value has no partition.
            if !matches!(folder_name.as_str(), "" | "__HIVE_DEFAULT_PARTITION__") {
                *expected.entry(value).or_default() += ROWS as u64 - 3;
            }
        }
        let input = format!("{TRAJECTORIES}\npartition_by = \"k\"");
        let store = InMemory::new();
        let ran = run_into(&store, &input, false, &folder, "parquet");
        if let Err(e) = ran {
            // Stores refuse control characters in names.
            let is_refused = names.iter().any(|name| name.contains(|c: char| c.is_control()));
            prop_assert!((is_refused || expected.is_empty()) && e.kind() == Kind::Input, "{:?}: {}", names, e.full());
            return Ok(());
        }
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for (key, n) in counts(&store) {
            *found.entry(key[0].clone()).or_default() += n;
        }
        prop_assert_eq!(found, expected);
    }
}

/// A command that takes longer than this does not end.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs the program. It ends, with a code that it documents, and does not panic.
fn ends(lake: &Lake, arguments: &str) -> ProgramRun {
    let words: Vec<&str> = arguments.split(' ').collect();
    let mut command = lake.command(&words);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let begun = Instant::now();
    while child.try_wait().expect("a process").is_none() {
        if begun.elapsed() > LONGEST {
            child.kill().expect("a process");
            panic!("`gyre {arguments}` does not end");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    let ran = ProgramRun::of(child.wait_with_output().expect("a process"));
    let is_known = matches!(ran.code, Some(0..=3));
    assert!(
        is_known && !ran.err.contains("panicked"),
        "{arguments}: {:?}\n{}",
        ran.code,
        ran.err
    );
    ran
}

/// The regular files below a folder, without those behind links, and their bytes.
fn files(folder: &FilePath) -> BTreeMap<PathBuf, Vec<u8>> {
    let read = |path: PathBuf| (path.clone(), fs::read(path).expect("a file"));
    files_below(folder).into_iter().map(read).collect()
}

/// The version in place.
fn version(lake: &Lake) -> PathBuf {
    let run = fs::read_link(lake.path("out/current")).expect("a link");
    lake.path("out").join(run)
}

/// Writes rows in place of a table, with the right numbers of rows, sizes, hashes and checksums, as
/// a hostile writer would.
fn replace(lake: &Lake, table: &str, rows: &RecordBatch) {
    let (version, pointer) = (version(lake), lake.path("out/current.json"));
    let path = version.join(table).join("part-0.parquet");
    let schema = KeyValue::new("gyre.schema".to_string(), "1".to_string());
    let properties = WriterProperties::builder().set_key_value_metadata(Some(vec![schema]));
    let writer = ArrowWriter::try_new(Vec::new(), rows.schema(), Some(properties.build()));
    let mut writer = writer.expect("a writer");
    writer.write(rows).expect("rows are written");
    let bytes = writer.into_inner().expect("the file is closed");
    let json = |path: &FilePath| -> Value {
        serde_json::from_slice(&fs::read(path).expect("a file")).expect("JSON")
    };
    let mark = json!({"bytes": bytes.len(), "blake3": blake3::hash(&bytes).to_hex().as_str()});
    let write = |path: &FilePath, mut value: Value| {
        value.as_object_mut().expect("an object").remove("checksum");
        fs::write(path, sealed(value).to_string()).expect("a file");
    };
    let marks = version.join("files.json");
    let mut all = json(&marks);
    all["files"][format!("{table}/part-0.parquet")] = mark;
    write(&marks, all);
    let mut all = json(&pointer);
    all["tables"][table] = json!(rows.num_rows());
    write(&pointer, all);
    fs::write(path, bytes).expect("a file");
}

/// A change of a table.
#[derive(Debug, Clone)]
enum Change {
    /// One number of a column.
    Number(Index, Index, f64),
    /// A column of nulls.
    Nulls(Index),
    /// A column of another type.
    Texts(Index),
    /// A column that is missing.
    Missing(Index),
    /// Other rows: these, in this order.
    Rows(Vec<Index>),
    /// No rows.
    Empty,
}

fn change() -> impl Strategy<Value = Change> {
    let numbers = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -1.0,
        0.0,
        0.5,
        2.0,
        7.0,
        1e9,
        -1e18,
        1e300,
    ];
    let at = any::<Index>;
    prop_oneof![
        8 => (at(), at(), select(numbers.to_vec())).prop_map(|(c, r, x)| Change::Number(c, r, x)),
        1 => at().prop_map(Change::Nulls),
        1 => at().prop_map(Change::Texts),
        1 => at().prop_map(Change::Missing),
        2 => prop::collection::vec(at(), 1..60).prop_map(Change::Rows),
        1 => Just(Change::Empty),
    ]
}

/// The array with another number at one place, also inside lists.
fn with_number(array: &ArrayRef, at: &Index, x: f64) -> ArrayRef {
    if array.is_empty() {
        return Arc::clone(array);
    }
    match array.data_type() {
        DataType::List(field) => {
            let list = array.as_list::<i32>();
            let values = with_number(list.values(), at, x);
            let offsets = list.offsets().clone();
            Arc::new(ListArray::new(
                Arc::clone(field),
                offsets,
                values,
                list.nulls().cloned(),
            ))
        }
        DataType::FixedSizeList(field, width) => {
            let list = array.as_fixed_size_list();
            let values = with_number(list.values(), at, x);
            let nulls = list.nulls().cloned();
            Arc::new(FixedSizeListArray::new(
                Arc::clone(field),
                *width,
                values,
                nulls,
            ))
        }
        DataType::Float64 => {
            let mut values: Vec<Option<f64>> = array.as_primitive::<Float64Type>().iter().collect();
            *at.get_mut(&mut values) = Some(x);
            Arc::new(Float64Array::from(values))
        }
        other if other.is_integer() => {
            let wide = cast(array, &DataType::Int64).expect("integers");
            let mut values: Vec<Option<i64>> = wide.as_primitive::<Int64Type>().iter().collect();
            *at.get_mut(&mut values) = Some(x as i64);
            let values: ArrayRef = Arc::new(Int64Array::from(values));
            cast(&values, other).expect("integers")
        }
        DataType::Utf8 => {
            let texts = array.as_string::<i32>().iter();
            let mut texts: Vec<Option<String>> = texts.map(|t| t.map(String::from)).collect();
            *at.get_mut(&mut texts) = Some(x.to_string());
            Arc::new(StringArray::from(texts))
        }
        _ => Arc::clone(array),
    }
}

fn changed(rows: &RecordBatch, change: &Change) -> RecordBatch {
    let mut columns = rows.columns().to_vec();
    let mut names: Vec<String> = rows
        .schema()
        .fields()
        .iter()
        .map(|f| f.name().clone())
        .collect();
    let column = |index: &Index| index.index(rows.num_columns());
    match change {
        Change::Number(c, r, x) => columns[column(c)] = with_number(&columns[column(c)], r, *x),
        Change::Nulls(c) => {
            let kind = columns[column(c)].data_type().clone();
            columns[column(c)] = new_null_array(&kind, rows.num_rows());
        }
        Change::Texts(c) => {
            let texts = vec!["x"; rows.num_rows()];
            columns[column(c)] = Arc::new(StringArray::from(texts));
        }
        Change::Missing(c) => {
            columns.remove(column(c));
            names.remove(column(c));
        }
        Change::Rows(order) => {
            if rows.num_rows() > 0 {
                let order = order.iter().map(|at| at.index(rows.num_rows()) as u32);
                let order = UInt32Array::from_iter_values(order);
                return take_record_batch(rows, &order).expect("rows");
            }
        }
        Change::Empty => return rows.slice(0, 0),
    }
    let fields = names.iter().zip(&columns);
    let fields = fields.map(|(name, c)| Field::new(name, c.data_type().clone(), true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(schema, columns).expect("columns of one length")
}

/// Rows with coordinates and time, and their fit.
const EMBEDDING: &str = "transitions]\nsql = \"SELECT id, t, s, id + t AS x FROM rows\"\n\
    trajectory = \"id\"\ntime = \"t\"\nlag = 1\ncoordinates = [\"s\", \"x\"]\n\
    [[fit]]\nname = \"one\"\nmethod = \"state_embedding\"\nrank = 2\nclusters = 2";

/// The fits whose models are changed: a kind of rows, and the keys of a fit.
const MODELS: [(usize, &str); 8] = [
    (0, ""),
    (1, EMBEDDING),
    (1, ""),
    (
        1,
        "method = \"diffusion_map\"\ndimension = 2\nneighbours = 20",
    ),
    (1, "method = \"heat_sketch\"\ndimension = 3"),
    (2, ""),
    (3, ""),
    (3, "method = \"kernel_bayes\""),
];

fn model(which: usize) -> Lake {
    let (kind, fit) = MODELS[which];
    let lake = written::lake();
    written::pipeline(&lake, kind, "");
    if !fit.is_empty() {
        let text = lake.text("p.toml");
        let before = if fit == EMBEDDING {
            "points]"
        } else {
            "method ="
        };
        let head = text.split(before).next().expect("a fit");
        lake.file("p.toml", &format!("{head}{fit}\n"));
    }
    lake.runs(&[]);
    lake
}

const ASSIGN: &str = "assign p.toml --model out --output new --force";

proptest! {
    #![proptest_config(ProptestConfig {
        cases: proptest_cases(1), max_shrink_iters: 40, ..ProptestConfig::default()
    })]

    /// Tables of others, with right hashes: every command reads them or says what is wrong.
    #[test]
    fn a_model_of_others_is_read_or_an_error(
        all in prop::collection::vec((any::<Index>(), prop::collection::vec(change(), 1..3)), 2),
    ) {
        for which in 0..MODELS.len() {
            let lake = model(which);
            lake.file("mine", "not gyre's");
            let folders = fs::read_dir(version(&lake)).expect("a version");
            let paths = folders.map(|entry| entry.expect("an entry").path());
            let mut tables: Vec<PathBuf> = paths.filter(|path| path.is_dir()).collect();
            tables.sort();
            let pointer = lake.bytes("out/current.json");
            let before = files(&version(&lake));
            for (table, changes) in &all {
                let path = table.get(&tables);
                let table = path.file_name().and_then(|name| name.to_str()).expect("a name");
                let bytes = bytes::Bytes::from(before[&path.join("part-0.parquet")].clone());
                let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).expect("a file");
                let schema = Arc::clone(reader.schema());
                let rows = reader.build().expect("a file").map(|rows| rows.expect("rows"));
                let mut rows = concat_batches(&schema, &rows.collect::<Vec<_>>()).expect("rows");
                for change in changes {
                    if rows.num_columns() > 1 {
                        rows = changed(&rows, change);
                    }
                }
                replace(&lake, table, &rows);
                ends(&lake, ASSIGN);
                ends(&lake, "compare out out");
                let run = ends(&lake, "run p.toml");
                prop_assert_eq!(run.code, Some(0), "{}", run.err);
                for (path, bytes) in &before {
                    fs::write(path, bytes).expect("a file");
                }
                fs::write(lake.path("out/current.json"), &pointer).expect("a pointer");
                ends(&lake, ASSIGN);
            }
            prop_assert_eq!(lake.bytes("mine"), b"not gyre's");
        }
    }

    /// Damage to any file of an output, without right hashes: a reader that uses the file says so,
    /// and a run that succeeds leaves a result that is whole.
    #[test]
    fn a_damaged_output_is_made_anew_or_an_error(
        which in prop::collection::vec(any::<Index>(), 4),
        all in prop::collection::vec(damage(), 1..4),
    ) {
        let lake = model(0);
        lake.line("run p.toml --seed 2 --set job.incremental=true").succeeds();
        lake.gyre(&ASSIGN.split(' ').collect::<Vec<_>>()).succeeds();
        let assigned = lake.bytes("new/sources/part-0.parquet");
        let whole = files(&lake.path("out"));
        let paths: Vec<&PathBuf> = whole.keys().collect();
        let inputs = |lake: &Lake| {
            let mut all = files(lake.folder.path());
            all.retain(|path, _| !path.starts_with(lake.path("out")) && !path.starts_with(lake.path("new")));
            all
        };
        let before = inputs(&lake);
        let restore = || {
            fs::remove_dir_all(lake.path("out")).expect("a folder");
            for (path, bytes) in &whole {
                fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
                fs::write(path, bytes).expect("a file");
            }
        };
        for which in which {
            restore();
            let path = which.get(&paths);
            fs::write(path, apply_damage(whole[*path].clone(), &all)).expect("a file");
            let is_pointer = path.ends_with("current.json");
            let ran = ends(&lake, ASSIGN);
            if ran.code == Some(0) {
                let now = lake.bytes("new/sources/part-0.parquet");
                prop_assert!(now == assigned, "{path:?} changed the numbers");
            }
            ends(&lake, "compare out out");
            ends(&lake, "restore out");
            #[cfg(feature = "report")]
            ends(&lake, "inspect out");
            let ran = ends(&lake, "run p.toml --seed 2 --set job.incremental=true");
            prop_assert!(ran.code == Some(0) || is_pointer || path.ends_with(".lock"), "{path:?}: {}", ran.err);
            ends(&lake, "clean p.toml --older-than 0s");
            if ran.code == Some(0) {
                let again = ends(&lake, "run p.toml --seed 2 --force --set job.incremental=true");
                prop_assert_eq!(again.code, Some(0), "{}", again.err);
                let read = ends(&lake, ASSIGN);
                prop_assert_eq!(read.code, Some(0), "{}", read.err);
            }
        }
        prop_assert!(inputs(&lake) == before, "something outside of the output was written");
    }
}

/// The default number of cases, or PROPTEST_CASES.
pub fn proptest_cases(few: u32) -> u32 {
    let requested = std::env::var("PROPTEST_CASES").ok();
    requested
        .and_then(|cases| cases.parse().ok())
        .unwrap_or(few)
}
