//! Files and values that nobody meant: damaged bytes, Hive folders of any name, keys and times of every type. The answer is the right counts or
//! an error, never a panic. PROPTEST_CASES sets how often it is tried.

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BooleanArray, Float64Array, Int32Array, Int64Array,
    ListArray, NullArray, RecordBatch, StringArray, StructArray, UInt32Array, UInt64Array,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Float64Type, IntervalUnit, TimeUnit};
use futures::TryStreamExt;
use gyre::count::key_text;
use gyre::error::{Kind, Result};
use gyre::read::{self, Resources, TableSource};
use gyre::run::{KEEP_EVERY, Options, Outcome, Silent, run};
use gyre::spec::Spec;
use gyre::write::Output;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::{Arc, LazyLock};
use tempfile::TempDir;
use tokio::runtime::Runtime;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

const PIPELINE: &str = r#"
[job]
name = "hostile"
output = "out"
incremental = INCREMENTAL
[tables.rows]
path = "in/"
[transitions]
sql = "SELECT * FROM rows"
INPUT
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
"#;

/// Runs a pipeline on the files of a folder into a store. An error that means a bug in gyre is none of the answers.
fn run_into(
    store: &InMemory,
    input: &str,
    incremental: bool,
    folder: &TempDir,
    format: &str,
) -> Result<Outcome> {
    let text = PIPELINE.replace("INPUT", input);
    let text = text.replace("INCREMENTAL", &incremental.to_string());
    let ran = RUNTIME.block_on(async {
        let spec = Spec::parse(&text, "p.toml", &[], &|_| None)?;
        let paths = [format!("{}/", folder.path().display())];
        let sources = [TableSource {
            name: "rows",
            paths: &paths,
            format: Some(format),
        }];
        let resources = Resources {
            threads: 2,
            memory_bytes: Some(256 << 20),
        };
        let lake = read::open(&sources, &resources, &Default::default()).await?;
        let sql = read::query_text(&spec.transitions.query)?;
        let (plan, frame) = gyre::plan::plan(&spec, &sql, None, &lake).await?;
        let output = Output::in_store(Arc::new(store.clone()), Path::from("out"));
        let options = Options {
            threads: 2,
            force: false,
            full_refresh: false,
            keep_every: KEEP_EVERY,
        };
        let plan = Arc::new(plan);
        run(plan, &lake, frame, &output, &options, Arc::new(Silent)).await
    });
    if let Err(e) = &ran {
        let message = e.full();
        let is_bug = e.kind() == Kind::Bug || message.contains("panicked");
        assert!(!is_bug, "{message}");
    }
    ran
}

/// The counts in place: keys without the lag → count.
fn counts(store: &InMemory) -> BTreeMap<Vec<String>, u64> {
    let (bytes, has_lag) = RUNTIME.block_on(async {
        let pointer = store.get(&Path::from("out/current.json")).await;
        let pointer = pointer.expect("a result").bytes().await.expect("bytes");
        let current: gyre::write::Current = serde_json::from_slice(&pointer).expect("a pointer");
        let path = format!("out/{}/counts/part-0.parquet", current.folder);
        let table = store.get(&Path::from(path)).await.expect("a table");
        (table.bytes().await.expect("bytes"), true)
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
        let keys = of(&|name| name != "count" && (name != "lag" || !has_lag));
        let count = cast(&of(&|name| name == "count")[0], &DataType::Float64).expect("numbers");
        let count = count.as_primitive::<Float64Type>();
        for at in 0..batch.num_rows() {
            let key = |c: &ArrayRef| key_text(std::slice::from_ref(c), at);
            let old = all.insert(keys.iter().map(key).collect(), count.value(at) as u64);
            assert_eq!(old, None, "a pair stands twice");
        }
    }
    all
}

/// Writes rows as a file of a format.
fn encoded(format: &str, columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let columns = columns.into_iter().map(|(n, c)| (n, c, true));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length");
    match format {
        "parquet" | "zstd" => {
            let compression = match format {
                "zstd" => Compression::ZSTD(ZstdLevel::default()),
                _ => Compression::UNCOMPRESSED,
            };
            let properties = WriterProperties::builder()
                .set_compression(compression)
                .set_max_row_group_row_count(Some(20));
            let properties = Some(properties.build());
            let writer = ArrowWriter::try_new(Vec::new(), batch.schema(), properties);
            let mut writer = writer.expect("a writer");
            writer.write(&batch).expect("rows are written");
            writer.into_inner().expect("the file is closed")
        }
        _ => {
            let line = |at: usize| -> String {
                let cells = batch
                    .columns()
                    .iter()
                    .zip(batch.schema().fields().iter().cloned().collect::<Vec<_>>());
                let cell = |(c, f): (&ArrayRef, Arc<arrow::datatypes::Field>)| {
                    let text = key_text(std::slice::from_ref(c), at);
                    match format {
                        "csv" => text,
                        _ if c.data_type().is_numeric() => format!("{:?}: {text}", f.name()),
                        _ => format!("{:?}: {text:?}", f.name()),
                    }
                };
                let cells: Vec<String> = cells.map(cell).collect();
                match format {
                    "csv" => cells.join(",") + "\n",
                    _ => format!("{{{}}}\n", cells.join(", ")),
                }
            };
            let names: Vec<_> = batch
                .schema()
                .fields()
                .iter()
                .map(|f| f.name().clone())
                .collect();
            let head = match format {
                "csv" => names.join(",") + "\n",
                _ => String::new(),
            };
            (head + &(0..batch.num_rows()).map(line).collect::<String>()).into_bytes()
        }
    }
}

/// One damage to a file.
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

fn damaged(mut bytes: Vec<u8>, all: &[Damage]) -> Vec<u8> {
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

/// Three trajectories on names and numbers.
fn plain() -> Vec<(&'static str, ArrayRef)> {
    let ids = (0..ROWS).map(|k| k / 20);
    let names = (0..ROWS).map(|k| format!("s{}", k * k % 7));
    vec![
        (
            "id",
            Arc::new(Int64Array::from_iter_values(ids)) as ArrayRef,
        ),
        (
            "t",
            Arc::new(Int64Array::from_iter_values((0..ROWS).map(|k| k % 20))),
        ),
        ("s", Arc::new(StringArray::from_iter_values(names))),
    ]
}

const TRAJECTORIES: &str = "trajectory = \"id\"\ntime = \"t\"\nstate = \"s\"\nlag = 1";

/// The value of a Hive folder: its percent escapes are bytes of UTF-8, or it stays as it is written.
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

/// As Spark and Hive write a value into the name of a folder.
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

/// Distinct values of a type in ascending order, or of a type that gyre may refuse.
fn pool(data_type: &DataType) -> ArrayRef {
    let of =
        |array: ArrayRef| cast(&array, data_type).unwrap_or_else(|e| panic!("{data_type}: {e}"));
    match data_type {
        DataType::Null => Arc::new(NullArray::new(6)),
        DataType::Boolean => Arc::new(BooleanArray::from(vec![false, true])),
        DataType::UInt64 => Arc::new(UInt64Array::from(vec![
            0,
            1,
            2,
            1 << 32,
            i64::MAX as u64,
            u64::MAX,
        ])),
        DataType::Int64 => Arc::new(Int64Array::from(vec![
            i64::MIN,
            -1,
            0,
            1,
            u32::MAX as i64,
            i64::MAX,
        ])),
        DataType::Float16 => of(Arc::new(Float64Array::from(vec![
            f64::NEG_INFINITY,
            -1.5,
            0.0,
            6e-8,
            f64::INFINITY,
        ]))),
        DataType::Float32 | DataType::Float64 => of(Arc::new(Float64Array::from(vec![
            f64::NEG_INFINITY,
            -1.5,
            0.0,
            1e-40,
            f64::INFINITY,
        ]))),
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            of(Arc::new(StringArray::from(vec![
                "",
                " ",
                "\n,\"",
                "a",
                "null",
                "日本\u{202e}",
                "𝄞\0",
            ])))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            of(Arc::new(BinaryArray::from(vec![
                &b""[..],
                b"\0",
                b"\0\0",
                b"a",
                b"\xff\xfe",
            ])))
        }
        DataType::FixedSizeBinary(2) => of(Arc::new(BinaryArray::from(vec![
            &b"\0\0"[..],
            b"\0a",
            b"\xff\xff",
        ]))),
        DataType::Dictionary(_, values) => of(pool(values)),
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            of(Arc::new(Int64Array::from(vec![-99999, -1, 0, 1, 99999])))
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let seconds: ArrayRef = Arc::new(Int32Array::from(vec![0, 1, 86_399]));
            let seconds = cast(&seconds, &DataType::Time32(TimeUnit::Second)).expect("times");
            of(seconds)
        }
        DataType::List(_) => Arc::new(ListArray::from_iter_primitive::<
            arrow::datatypes::Int32Type,
            _,
            _,
        >([
            Some(vec![]),
            Some(vec![None]),
            Some(vec![Some(1)]),
            Some(vec![Some(1), Some(2)]),
        ])),
        DataType::Struct(fields) => Arc::new(StructArray::new(
            fields.clone(),
            fields
                .iter()
                .map(|f| pool(f.data_type()).slice(0, 2))
                .collect(),
            None,
        )),
        _ => of(Arc::new(Int32Array::from(vec![0, 1, 2, 3, 127]))),
    }
}

fn key_types() -> Vec<DataType> {
    use DataType::*;
    let dictionary =
        |keys: DataType, values: DataType| Dictionary(Box::new(keys), Box::new(values));
    let units = [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ];
    let mut types = vec![
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Float32,
        Float64,
        Utf8,
        LargeUtf8,
        Utf8View,
        Binary,
        LargeBinary,
        BinaryView,
        FixedSizeBinary(2),
        Date32,
        Date64,
        Decimal128(10, 0),
        Decimal128(38, 3),
        Decimal256(60, 2),
        dictionary(Int32, Utf8),
        dictionary(Int8, Utf8),
        dictionary(UInt16, Int64),
        dictionary(Int32, LargeUtf8),
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
    ];
    types.extend(units.map(|unit| Timestamp(unit, None)));
    types.extend(units.map(|unit| Timestamp(unit, Some("+02:00".into()))));
    types
}

/// Types that may be refused, in words.
fn odd_types() -> Vec<DataType> {
    use DataType::*;
    let field = |name: &str, t: DataType| Arc::new(arrow::datatypes::Field::new(name, t, true));
    vec![
        Null,
        Float16,
        Duration(TimeUnit::Second),
        Interval(IntervalUnit::YearMonth),
        List(field("item", Int32)),
        Struct(vec![field("x", Int32), field("y", Utf8)].into()),
    ]
}

/// Times that are one unit apart, and the lag of one and of two units, where the type has units.
fn times(data_type: &DataType) -> (ArrayRef, Option<[&'static str; 2]>) {
    let of =
        |array: ArrayRef| cast(&array, data_type).unwrap_or_else(|e| panic!("{data_type}: {e}"));
    let small: ArrayRef = Arc::new(Int64Array::from_iter_values(0..9));
    let integers = Some(["1", "2"]);
    match data_type {
        DataType::Int64 => (
            Arc::new(Int64Array::from_iter_values(i64::MAX - 8..=i64::MAX)),
            integers,
        ),
        DataType::UInt64 => (
            Arc::new(UInt64Array::from_iter_values(
                i64::MAX as u64 - 8..=i64::MAX as u64,
            )),
            integers,
        ),
        DataType::Int8 => (
            of(Arc::new(Int64Array::from_iter_values(-128..-119))),
            integers,
        ),
        DataType::Float32 | DataType::Float64 => {
            let tiny = [
                f64::NEG_INFINITY,
                -1e30,
                -1.0,
                -1e-30,
                0.0,
                1e-30,
                1.0,
                1e30,
                f64::INFINITY,
            ];
            (of(Arc::new(Float64Array::from(tiny.to_vec()))), None)
        }
        DataType::Date32 => (
            of(Arc::new(Int32Array::from_iter_values(-4..5))),
            Some(["\"1d\"", "\"2d\""]),
        ),
        DataType::Date64 => {
            let days: ArrayRef = Arc::new(Int32Array::from_iter_values(-4..5));
            (
                of(cast(&days, &DataType::Date32).expect("days")),
                Some(["\"1d\"", "\"2d\""]),
            )
        }
        DataType::Timestamp(unit, _) => {
            let (lags, start) = match unit {
                TimeUnit::Second => (["\"1s\"", "\"2s\""], i64::from(i32::MIN)),
                TimeUnit::Millisecond => (["\"1ms\"", "\"2ms\""], -4),
                TimeUnit::Microsecond => (["\"1us\"", "\"2us\""], 1 << 50),
                TimeUnit::Nanosecond => (["\"1ns\"", "\"2ns\""], i64::MIN + 10),
            };
            (
                of(Arc::new(Int64Array::from_iter_values(start..start + 9))),
                Some(lags),
            )
        }
        _ => (of(small), integers),
    }
}

fn time_types() -> Vec<DataType> {
    use DataType::*;
    let units = [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ];
    let mut types = vec![
        Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64, Date32, Date64,
    ];
    types.extend(units.map(|unit| Timestamp(unit, None)));
    types.extend(units.map(|unit| Timestamp(unit, Some("UTC".into()))));
    types
}

/// Values of a pool by number, null where there is none.
fn column(pool: &ArrayRef, at: impl Iterator<Item = Option<usize>>) -> ArrayRef {
    let n = pool.len();
    let at: UInt32Array = at.map(|at| at.map(|at| (at % n) as u32)).collect();
    take(pool, &at, None).expect("places in the pool")
}

/// How far apart the rows of a pair are.
#[derive(Debug, Clone, Copy)]
enum Apart {
    Units(usize),
    Rows(usize),
}

/// A row: trajectory, time and state by number.
type Row = (usize, usize, Option<usize>);

/// The pairs of states, by number, as a person would count them.
fn by_hand(rows: &[Row], apart: Apart) -> HashMap<(usize, usize), u64> {
    let mut sorted = rows.to_vec();
    sorted.sort();
    let mut pairs = HashMap::new();
    for (at, a) in sorted.iter().enumerate() {
        let own = sorted[at..].iter().filter(|b| b.0 == a.0);
        let b = match apart {
            Apart::Units(n) => own.clone().find(|b| b.1 == a.1 + n),
            Apart::Rows(n) => own.clone().nth(n),
        };
        if let (Some(from), Some((_, _, Some(to)))) = (a.2, b) {
            *pairs.entry((from, *to)).or_default() += 1;
        }
    }
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: proptest_cases(24), ..ProptestConfig::default() })]

    /// Whatever happens to the bytes of a file.
    #[test]
    fn a_damaged_file_is_read_or_is_an_error(
        // Not Arrow files: their reader asks for as much memory as damaged bytes say, and the program ends.
        format in select(&["parquet", "zstd", "csv", "json"][..]),
        all in prop::collection::vec(damage(), 1..4),
        is_footer in any::<bool>(),
    ) {
        let bytes = encoded(format, plain());
        // Half of the damage goes where a file says how to read the rest of it.
        let head = if is_footer { bytes.len() - bytes.len() / 3 } else { 0 };
        let (head, tail) = bytes.split_at(head);
        let bytes = [head, &damaged(tail.to_vec(), &all)].concat();
        let ending = if format == "zstd" { "parquet" } else { format };
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join(format!("rows.{ending}")), bytes).expect("a file");
        let store = InMemory::new();
        if run_into(&store, TRAJECTORIES, false, &folder, ending).is_ok() {
            let total: u64 = counts(&store).values().sum();
            // No damage here makes thousands of rows.
            prop_assert!(total <= 100 * ROWS as u64, "{} transitions", total);
        }
    }

    /// What an earlier run has kept has checksums: damage there costs time, and changes nothing.
    #[test]
    fn a_damaged_ledger_changes_no_count(
        which in any::<Index>(),
        all in prop::collection::vec(damage(), 1..4),
        is_gone in prop::bool::weighted(0.1),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("1.parquet"), encoded("zstd", plain())).expect("a file");
        let store = InMemory::new();
        let run = |store: &InMemory| run_into(store, TRAJECTORIES, true, &folder, "parquet");
        run(&store).expect("an undamaged run");
        let more = plain().into_iter().map(|(name, c)| match name {
            "id" => (name, Arc::new(Int64Array::from_iter_values((0..ROWS).map(|k| 3 + k / 20))) as ArrayRef),
            _ => (name, c),
        });
        fs::write(folder.path().join("2.parquet"), encoded("zstd", more.collect())).expect("a file");
        let undamaged = store.fork();
        run(&undamaged).expect("an undamaged run");
        let at = Path::from("out/ledger");
        let objects: Vec<ObjectMeta> = RUNTIME.block_on(store.list(Some(&at)).try_collect()).expect("a list");
        prop_assert!(!objects.is_empty());
        let object = &which.get(&objects).location;
        RUNTIME.block_on(async {
            let bytes = store.get(object).await.expect("an object").bytes().await.expect("bytes");
            match is_gone {
                true => store.delete(object).await.expect("a store"),
                false => store.put(object, damaged(bytes.to_vec(), &all).into()).await.map(|_| ()).expect("a store"),
            }
        });
        run(&store).expect("the files are there to be counted again");
        prop_assert_eq!(counts(&store), counts(&undamaged));
    }

    /// Folders of any name that a file system takes: each value is a partition of its own, and no row is lost.
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
            let (folder_name, value) = match is_escaped {
                true => (hive_escaped(name), name.clone()),
                false => (name.clone(), unescaped(name)),
            };
            let inside = folder.path().join(format!("k={folder_name}"));
            if fs::create_dir(&inside).is_err() {
                return Ok(());
            }
            fs::write(inside.join("rows.parquet"), encoded("zstd", plain())).expect("a file");
            *expected.entry(value).or_default() += ROWS as u64 - 3;
        }
        let input = format!("{TRAJECTORIES}\npartition_by = \"k\"");
        let store = InMemory::new();
        let ran = run_into(&store, &input, false, &folder, "parquet");
        if let Err(e) = ran {
            // Stores take no control characters in names.
            let is_refused = names.iter().any(|name| name.contains(|c: char| c.is_control()));
            prop_assert!(is_refused && e.kind() == Kind::Input, "{:?}: {}", names, e.full());
            return Ok(());
        }
        let mut found: BTreeMap<String, u64> = BTreeMap::new();
        for (key, n) in counts(&store) {
            *found.entry(key[0].clone()).or_default() += n;
        }
        prop_assert_eq!(found, expected);
    }

    /// Keys and times of every type, in any order and split, against a count by hand.
    #[test]
    fn columns_of_every_type_are_counted(
        (id, state) in (select(key_types()), prop_oneof![5 => select(key_types()), 1 => select(odd_types())]),
        time in select(time_types()),
        rows in prop::collection::btree_map((0..3_usize, 0..9_usize), prop::option::weighted(0.9, 0..7_usize), 2..24)
            .prop_map(|rows| rows.into_iter().map(|((id, t), s)| (id, t, s)).collect::<Vec<Row>>())
            .prop_shuffle(),
        lone in prop::collection::vec((any::<bool>(), any::<bool>()), 0..3),
        (files, is_ordered, rows_apart, n) in (1..4_usize, any::<bool>(), any::<bool>(), 1..3_usize),
    ) {
        let (ids, states) = (pool(&id), pool(&state));
        let (times, lags) = times(&time);
        // Pools differ in size: a number stands for the value at that place, round and round.
        let mut rows: Vec<Row> = rows.into_iter().map(|(id, t, s)| (id % ids.len(), t, s.map(|s| s % states.len()))).collect();
        rows.sort_by_key(|r| (r.0, r.1));
        rows.dedup_by_key(|r| (r.0, r.1));
        if !is_ordered {
            rows.reverse();
        }
        let apart = if rows_apart || lags.is_none() { Apart::Rows(n) } else { Apart::Units(n) };
        let lag = match (apart, lags) {
            (Apart::Units(n), Some(lags)) => lags[n - 1].to_string(),
            _ => format!("\"{n} steps\""),
        };
        // A row without trajectory or time is no row of any trajectory.
        let mut all: Vec<(Option<usize>, Option<usize>, Option<usize>)> = rows.iter().map(|r| (Some(r.0), Some(r.1), r.2)).collect();
        all.extend(lone.iter().map(|&(no_id, other)| if no_id { (None, Some(0), Some(0)) } else { (other.then_some(0), None, Some(0)) }));
        let folder = tempfile::tempdir().expect("a folder");
        for (at, rows) in all.chunks(all.len().div_ceil(files)).enumerate() {
            let columns = vec![
                ("id", column(&ids, rows.iter().map(|r| r.0))),
                ("t", column(&times, rows.iter().map(|r| r.1))),
                ("s", column(&states, rows.iter().map(|r| r.2))),
            ];
            fs::write(folder.path().join(format!("{at}.parquet")), encoded("parquet", columns)).expect("a file");
        }
        let expected: BTreeMap<Vec<String>, u64> = by_hand(&rows, apart)
            .into_iter()
            .map(|((a, b), n)| ([a, b].map(|at| key_text(&[Arc::clone(&states)], at)).to_vec(), n))
            .collect();
        let input = TRAJECTORIES.replace("lag = 1", &format!("lag = {lag}"));
        let store = InMemory::new();
        match run_into(&store, &input, false, &folder, "parquet") {
            Ok(_) => prop_assert_eq!(counts(&store), expected),
            Err(e) if odd_types().contains(&state) => prop_assert!(matches!(e.kind(), Kind::Spec | Kind::Input), "{}", e.full()),
            Err(e) => prop_assert!(expected.is_empty() && e.kind() == Kind::Input, "{} for {:?}", e.full(), expected),
        }
    }
}

/// So many cases, or as many as PROPTEST_CASES asks for.
fn proptest_cases(few: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok();
    asked.and_then(|cases| cases.parse().ok()).unwrap_or(few)
}
