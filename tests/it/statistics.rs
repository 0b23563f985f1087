//! Files whose statistics do not speak of NaN, and page indexes that are damaged: the rows of a
//! query are those of the file, whatever its statistics say. DuckDB answers the same queries over
//! the files of other writers if GYRE_PYTHON names a Python with duckdb, polars and pyarrow.

use crate::hostile::proptest_cases;
use crate::lake::{ProgramRun, cases};
use crate::needs;
use arrow::array::{
    ArrayRef, AsArray, Float32Array, Float64Array, Int64Array, ListArray, RecordBatch, StructArray,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type};
use arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use gyre::read::lake::files::TableSource;
use gyre::read::lake::{Lake, Resources};
use gyre::store::Stores;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// Queries over an integer `k` and a floating `x`. Each has one row for all orders of its input.
const QUERIES: [&str; 14] = [
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE x = 0.5",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE x <> 0.5",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE x > 0.5",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE x >= 0.5 AND k > 3",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE x < 0.5",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE NOT (x <= 0.5)",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE isnan(x)",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE x IS NULL",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE x = 0.0",
    "SELECT count(*) AS n, sum(k) AS k FROM t WHERE x IN (0.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.25)",
    "SELECT count(DISTINCT x) AS n, count(x) AS k FROM t",
    "SELECT count(*) AS n, sum(c) AS k FROM (SELECT x, count(*) AS c FROM t GROUP BY x)",
    "SELECT count(*) AS n, max(c) AS k FROM (SELECT count(*) OVER (PARTITION BY x) AS c FROM t)",
    "SELECT CASE WHEN isnan(max(x)) THEN 1 ELSE 0 END AS n, CASE WHEN min(x) < 0.5 THEN 1 ELSE 0 END AS k FROM t",
];

async fn lake(file: &Path) -> Lake {
    let paths = [file.display().to_string()];
    let sources = [TableSource::of_parquet("t", &paths)];
    let resources = Resources {
        threads: 2,
        memory_bytes: None,
    };
    gyre::read::lake::open(&sources, &resources, &Stores::default())
        .await
        .expect("the file is read")
}

async fn answer(lake: &Lake, sql: &str) -> gyre::error::Result<String> {
    let frame = lake.query(sql, &BTreeMap::new()).await?;
    Ok(shown(frame.collect().await.expect("rows")))
}

/// The number of rows, and a sum.
fn shown(batches: Vec<RecordBatch>) -> String {
    let rows = concat_batches(&batches[0].schema(), &batches).expect("one schema");
    let at = |column: usize| {
        let column = cast(rows.column(column), &DataType::Int64).expect("an integer");
        let column: &Int64Array = column.as_primitive::<Int64Type>();
        column.iter().next().flatten().unwrap_or(0)
    };
    assert_eq!(
        rows.num_rows(),
        1,
        "{}",
        pretty_format_batches(&batches).unwrap()
    );
    format!("{} {}", at(0), at(1))
}

/// NaNs of several forms, both zeros, a null, and values near them.
fn values() -> Vec<Option<f64>> {
    let nans = [
        0x7ff8_0000_0000_0000,
        0xfff8_0000_0000_0000,
        0x7ff8_0000_0000_0001,
    ];
    let numbers = [-0.0, 0.0, 0.5, 0.5, 0.5, -1.0, 0.25, 2.0, f64::INFINITY];
    let all = nans.map(f64::from_bits).into_iter().chain(numbers);
    all.map(Some).chain([None]).collect()
}

#[derive(Debug, Clone)]
struct Written {
    rows: Vec<Option<f64>>,
    rows_per_group: usize,
    rows_per_page: usize,
    data_type: DataType,
}

fn written() -> impl Strategy<Value = Written> {
    // Few distinct values per file, so that some row groups and pages look constant.
    let rows = proptest::collection::vec(select(values()), 1..4)
        .prop_flat_map(|few| proptest::collection::vec(select(few), 1..60));
    let types = vec![DataType::Float64, DataType::Float32, DataType::Float16];
    (rows, 1usize..40, 1usize..12, select(types)).prop_map(
        |(rows, rows_per_group, rows_per_page, data_type)| Written {
            rows,
            rows_per_group,
            rows_per_page,
            data_type,
        },
    )
}

impl Written {
    /// A file of other rows, with `rows` rows in each group and page.
    fn of(rows: usize, data_type: DataType) -> Written {
        Written {
            rows: Vec::new(),
            rows_per_group: rows,
            rows_per_page: rows,
            data_type,
        }
    }

    fn batch(&self, values: Vec<Option<f64>>) -> RecordBatch {
        let k = Int64Array::from_iter_values((0..values.len() as i64).map(|k| k / 4));
        let x = self.column(values);
        let nullable = [("k", Arc::new(k) as ArrayRef, true), ("x", x, true)];
        RecordBatch::try_from_iter_with_nullable(nullable).expect("columns of one length")
    }

    fn column(&self, values: Vec<Option<f64>>) -> ArrayRef {
        // A cast keeps the sign of NaN.
        let wide: ArrayRef = Arc::new(Float64Array::from(values));
        cast(&wide, &self.data_type).expect("a shorter float")
    }

    fn write(&self, file: &Path, batch: &RecordBatch) {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(self.rows_per_group))
            .set_data_page_row_count_limit(self.rows_per_page)
            .set_write_batch_size(self.rows_per_page)
            .set_statistics_enabled(EnabledStatistics::Page)
            .set_bloom_filter_enabled(true)
            .set_bloom_filter_max_ndv(40)
            .build();
        let file = File::create(file).expect("a file");
        let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
        writer.write(batch).expect("rows are written");
        writer.close().expect("the file is closed");
    }

    /// The same rows without statistics: in memory, with one zero and one NaN.
    fn in_memory(&self) -> SessionContext {
        let one = |v: f64| if v.is_nan() { f64::NAN } else { v + 0.0 };
        let rows = self.rows.iter().map(|v| v.map(one)).collect();
        let context = SessionContext::new();
        context.register_batch("t", self.batch(rows)).unwrap();
        context
    }
}

fn runtime() -> tokio::runtime::Runtime {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.thread_stack_size(gyre::read::lake::STACK_BYTES);
    runtime.enable_all().build().expect("a runtime")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(proptest_cases(40)))]

    #[test]
    fn statistics_decide_no_row(written in written()) {
        runtime().block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("t.parquet");
            written.write(&file, &written.batch(written.rows.clone()));
            let (lake, plain) = (lake(&file).await, written.in_memory());
            for sql in QUERIES {
                let expected = plain.sql(sql).await.unwrap().collect().await.unwrap();
                let got = answer(&lake, sql).await.unwrap();
                prop_assert_eq!(got, shown(expected), "{} of {:?}", sql, &written);
            }
            Ok(())
        })?;
    }
}

/// Lists and structs of floating values keep NaN, and have one zero.
#[test]
fn nested_columns_have_one_zero() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.parquet");
    let values: ArrayRef = Arc::new(Float64Array::from(vec![0.5, f64::NAN, 0.5, -0.0, 0.0, 0.5]));
    let singles: ArrayRef = Arc::new(Float32Array::from(vec![f32::NAN, -0.0, 0.0]));
    let item = Arc::new(Field::new_list_field(DataType::Float64, true));
    let lists = ListArray::new(item, OffsetBuffer::from_lengths([2, 2, 2]), values, None);
    let field = Arc::new(Field::new("y", DataType::Float32, true));
    let structs = StructArray::from(vec![(field, singles)]);
    let columns = [("v", Arc::new(lists) as ArrayRef), ("s", Arc::new(structs))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let written = Written::of(1, DataType::Float64);
    written.write(&file, &batch);
    runtime().block_on(async {
        let lake = lake(&file).await;
        for (sql, expected) in [
            ("SELECT count(*), 0 FROM t WHERE isnan(v[2])", "1 0"),
            ("SELECT count(*), 0 FROM t WHERE v[1] = 0.5", "2 0"),
            ("SELECT count(*), 0 FROM t WHERE v IS NOT NULL", "3 0"),
            ("SELECT count(*), 0 FROM t WHERE s.y > 1.0", "1 0"),
            ("SELECT count(DISTINCT s.y), count(s['y']) FROM t", "2 3"),
            ("SELECT count(*), max(c) FROM (SELECT count(*) OVER (PARTITION BY s.y) AS c FROM t)", "3 2"),
        ] {
            assert_eq!(answer(&lake, sql).await.unwrap(), expected, "{sql}");
        }
    });
}

/// What the SQL computes has one zero and one NaN wherever the engine compares values.
#[test]
fn computed_values_have_one_zero() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.parquet");
    let x: ArrayRef = Arc::new(Float64Array::from(vec![-0.25, 0.25, 0.0]));
    Written::of(9, DataType::Float64)
        .write(&file, &RecordBatch::try_from_iter([("x", x)]).unwrap());
    runtime().block_on(async {
        let lake = lake(&file).await;
        let sql = "SELECT a.z AS z, b.n AS n, min(-x) OVER () + 0.25 AS w FROM (SELECT round(x) AS z, x FROM t) AS a JOIN (SELECT x AS y, (x - x) / (x - x) AS n FROM t) AS b ON a.x = b.y";
        let frame = lake.query(sql, &BTreeMap::new()).await.unwrap();
        let batches = frame.collect().await.unwrap();
        for batch in &batches {
            for (column, bits) in [("z", 0), ("n", f64::NAN.to_bits()), ("w", 0)] {
                let values = batch.column_by_name(column).unwrap();
                let values = values.as_primitive::<Float64Type>().values();
                assert!(values.iter().all(|v| v.to_bits() == bits), "{column}: {values:?}");
            }
        }
        assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>(), 3);
        for (sql, expected) in [
            ("SELECT count(*), 0 FROM t WHERE round(x) IN (0.0, 2, 3, 4, 5, 6, 7, 8, 9)", "3 0"),
            ("SELECT count(*), 0 FROM t WHERE x IN (-0.0, 2, 3, 4, 5, 6, 7, 8, 9)", "1 0"),
            ("SELECT count(*), max(c) FROM (SELECT count(*) OVER (PARTITION BY round(x)) AS c FROM t)", "3 3"),
            ("SELECT count(DISTINCT round(x)), count(DISTINCT x / 0 * 0) FROM t", "1 1"),
            ("SELECT count(*), 0 FROM t WHERE x / x > 1", "1 0"),
            ("SELECT sum(CASE x WHEN -0.0 THEN 1 ELSE 0 END), sum(CASE -x WHEN 0.0 THEN 1 ELSE 0 END) FROM t", "1 1"),
            ("SELECT count(*), 0 FROM t WHERE -round(x) IN (SELECT x FROM t)", "3 0"),
            ("SELECT count(*), sum(y) FROM (SELECT DISTINCT x * 4 AS y FROM t ORDER BY y DESC LIMIT 2)", "2 1"),
            ("SELECT count(*), 0 FROM t WHERE x / x BETWEEN 0 AND 2", "2 0"),
            ("SELECT count(*), 0 FROM t AS a JOIN t AS b ON a.x - a.x = -b.x", "3 0"),
            ("SELECT sum(r), 0 FROM (SELECT x, row_number() OVER (ORDER BY x / x) AS r FROM t) WHERE x = 0", "3 0"),
            ("SELECT r, 0 FROM (SELECT CAST(x * 4 AS BIGINT) AS r FROM t ORDER BY x / x DESC LIMIT 1)", "0 0"),
            ("SELECT count(*), 0 FROM (SELECT max(x / x) AS m FROM t) WHERE isnan(m)", "1 0"),
            ("SELECT count(*), 0 FROM t WHERE isnan(greatest(x / x, 2))", "1 0"),
            ("SELECT count(b), count(c) FROM (SELECT y IN (1) AND y IN (2) AS b, y NOT IN (1) OR y NOT IN (2) AS c FROM (SELECT nullif(x, 0) AS y FROM t))", "2 2"),
            ("SELECT count(b), 0 FROM (SELECT NOT (y IN (1) AND y NOT IN (1)) AS b FROM (SELECT CAST(nullif(x, 0) AS BIGINT) AS y FROM t))", "2 0"),
            ("SELECT count(*), sum(c) FROM (SELECT round(x), count(*) AS c FROM t GROUP BY round(x))", "1 3"),
            ("SELECT count(*), sum(c) FROM (SELECT count(*) AS c FROM t GROUP BY CASE WHEN x < 0 THEN x / 0 * 0 ELSE 'NaN'::DOUBLE END)", "1 3"),
        ] {
            assert_eq!(answer(&lake, sql).await.unwrap(), expected, "{sql}");
        }
    });
}

/// Aggregates of groups, of all rows and of windows compare alike: NaN is the largest.
#[test]
fn groups_have_the_extremes_of_all_rows() {
    let (nan, inf) = (f64::NAN, f64::INFINITY);
    let folder = tempfile::tempdir().unwrap();
    for (values, [max, min]) in [
        (vec![3.0, nan, 1.0], [nan, 1.0]),
        (vec![5.0, -7.0, nan], [nan, -7.0]),
        (vec![nan, 5.0, -7.0], [nan, -7.0]),
        (vec![-inf, -inf], [-inf, -inf]),
        (vec![inf, inf], [inf, inf]),
        (vec![nan, nan], [nan, nan]),
        (vec![-0.0, 0.0], [0.0, 0.0]),
    ] {
        for of in [DataType::Float64, DataType::Float32] {
            let file = folder.path().join("t.parquet");
            let x: ArrayRef = Arc::new(Float64Array::from(values.clone()));
            let x = cast(&x, &of).unwrap();
            let g: ArrayRef = Arc::new(Int64Array::from(vec![7; values.len()]));
            let batch = RecordBatch::try_from_iter([("g", g), ("x", x)]).unwrap();
            let written = Written::of(9, of);
            written.write(&file, &batch);
            runtime().block_on(async {
                let lake = lake(&file).await;
                for rest in [
                    "FROM t GROUP BY g",
                    "FROM t GROUP BY ROLLUP (g)",
                    "FROM t",
                    "FILTER (WHERE g > 0) FROM t GROUP BY g",
                    "OVER () FROM t",
                    "OVER (ORDER BY g ROWS BETWEEN 9 PRECEDING AND 9 FOLLOWING) FROM t",
                ] {
                    for (name, expected) in [("max", max), ("min", min)] {
                        let sql = format!("SELECT {name}(x) {rest}");
                        let frame = lake.query(&sql, &BTreeMap::new()).await.unwrap();
                        for batch in frame.collect().await.unwrap() {
                            let got = cast(batch.column(0), &DataType::Float64).unwrap();
                            let got = got.as_primitive::<Float64Type>().values().to_vec();
                            let is_right = |v: &f64| v.to_bits() == expected.to_bits();
                            assert!(got.iter().all(is_right), "{values:?} {sql}: {got:?}");
                        }
                    }
                }
            });
        }
    }
}

/// Bytes of page indexes and Bloom filters may be wrong: no row is lost.
#[test]
fn damaged_indexes_lose_no_row() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.parquet");
    let written = Written {
        rows: (0..400).map(|k| Some(f64::from(k))).collect(),
        rows_per_group: 200,
        rows_per_page: 50,
        data_type: DataType::Float64,
    };
    written.write(&file, &written.batch(written.rows.clone()));
    let bytes = std::fs::read(&file).unwrap();
    let opened = File::open(&file).unwrap();
    let footer = ArrowReaderMetadata::load(&opened, ArrowReaderOptions::new()).unwrap();
    let columns = footer
        .metadata()
        .row_groups()
        .iter()
        .flat_map(|g| g.columns());
    let ranges = columns.flat_map(|c| {
        let of_values = c.column_index_offset().zip(c.column_index_length());
        let of_pages = c.offset_index_offset().zip(c.offset_index_length());
        let of_sets = c.bloom_filter_offset().zip(c.bloom_filter_length());
        [of_values, of_pages, of_sets]
    });
    let ranges = ranges.flatten();
    let places: Vec<i64> = ranges.flat_map(|(at, n)| at..at + i64::from(n)).collect();
    assert!(places.len() > 100, "{}", places.len());
    runtime().block_on(async {
        for place in places.into_iter().step_by(7) {
            let mut damaged = bytes.clone();
            damaged[place as usize] ^= 1 << (place % 8);
            std::fs::write(&file, damaged).unwrap();
            let lake = lake(&file).await;
            let table = r#"
                SELECT count(*) AS n, sum(k) AS k FROM t WHERE k >= 40 AND x < 200 | 40 1780
                SELECT count(*) AS n, sum(k) AS k FROM t WHERE k = 7 | 4 28
                SELECT count(x) AS n, count(k) AS k FROM t WHERE k + x >= 0 | 400 400
            "#;
            for [sql, expected] in cases(table) {
                assert_eq!(answer(&lake, &sql).await.unwrap(), expected, "byte {place}");
            }
        }
    });
}

/// Writes files by pyarrow, Polars and DuckDB, and prints what DuckDB answers for the rows that it
/// has read into a table. The arguments are a folder and the queries.
const SCRIPT: &str = r#"
import random, sys
import duckdb, numpy as np, polars as pl, pyarrow as pa, pyarrow.parquet as pq
folder, queries = sys.argv[1], sys.argv[2:]
rng = random.Random(1)
bits = np.array([0x7ff8000000000000, 0xfff8000000000000, 0x7ff8000000000001], np.uint64).view(np.float64)
pool = list(bits) + [0.5, 0.5, 0.0, -0.0, -1.0, 2.0, None]
for n in range(24):
    few = rng.sample(pool, rng.randint(1, 3))
    x = [rng.choice(few) for _ in range(rng.randint(1, 80))]
    table = pa.table({"k": pa.array([i // 4 for i in range(len(x))], pa.int64()), "x": pa.array(x, pa.float64(), from_pandas=False)})
    if n % 2:
        table = table.set_column(1, "x", table["x"].cast(pa.float32()))
    rows_of_file = table
    file, rows = f"{folder}/{n}.parquet", rng.randint(1, 40)
    if n % 3 == 0:
        pq.write_table(table, file, row_group_size=rows, data_page_size=rng.choice([1, 64, 4096]), write_batch_size=rng.randint(1, 9), write_page_index=True)
    elif n % 3 == 1:
        pl.from_arrow(table).write_parquet(file, row_group_size=rows, data_page_size=rng.choice([64, 4096]), statistics="full")
    else:
        duckdb.sql(f"COPY (FROM rows_of_file) TO '{file}' (FORMAT parquet)")
    duckdb.sql(f"CREATE OR REPLACE TABLE t AS FROM '{file}'")
    for at, query in enumerate(queries):
        a, b = duckdb.sql(query).fetchall()[0]
        print(n, at, int(a or 0), int(b or 0))
"#;

#[test]
fn files_of_other_writers_give_the_answers_of_duckdb() {
    let Some(python) = needs::python(&["duckdb", "numpy", "polars", "pyarrow"]) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let mut script = Command::new(python);
    script.args(["-c", SCRIPT]).arg(folder.path()).args(QUERIES);
    let ran = ProgramRun::of(script.output().expect("Python starts")).succeeds();
    runtime().block_on(async {
        let mut lakes = BTreeMap::new();
        for line in ran.out.lines() {
            let mut words = line.splitn(3, ' ');
            let file: usize = words.next().unwrap().parse().unwrap();
            let query: usize = words.next().unwrap().parse().unwrap();
            let path = folder.path().join(format!("{file}.parquet"));
            let lake = match lakes.remove(&file) {
                Some(lake) => lake,
                None => lake(&path).await,
            };
            let got = answer(&lake, QUERIES[query]).await.unwrap();
            assert_eq!(got, words.next().unwrap(), "{file}: {}", QUERIES[query]);
            lakes.insert(file, lake);
        }
        assert_eq!(lakes.len(), 24);
    });
}

/// Rows of two trajectories `k`, of partitions `p`, with times, states and coordinates.
fn rows_with(zero: f64) -> Vec<(&'static str, ArrayRef)> {
    const ROWS: i64 = 40;
    let rows = (0..2).flat_map(|k| (0..ROWS).map(move |t| (k, t)));
    // Every other zero has the sign.
    let signed = |value: i64, t: i64| match (value, t % 2) {
        (0, 0) => zero,
        (value, _) => value as f64,
    };
    let floats = |of: &dyn Fn(i64, i64) -> f64| -> ArrayRef {
        Arc::new(Float64Array::from_iter_values(
            rows.clone().map(|(k, t)| of(k, t)),
        ))
    };
    let t: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(|(_, t)| t)));
    vec![
        ("k", floats(&signed)),
        ("p", floats(&|k, t| signed(k, t / 2))),
        ("t", t),
        ("s", floats(&|k, t| signed((t * t + k) % 3, t))),
        ("x", floats(&|k, t| ((t * 7 + k) as f64).sin())),
        ("z", floats(&|k, t| signed((t * t * t + k) % 5 - 2, t))),
    ]
}

/// Writes the rows in a format.
fn write_rows(lake: &crate::lake::Lake, format: &str, columns: Vec<(&str, ArrayRef)>) {
    let batch = RecordBatch::try_from_iter(columns.clone()).unwrap();
    let file = || File::create(lake.path(&format!("t.{format}"))).unwrap();
    match format {
        "parquet" => drop(lake.table("t.parquet", columns)),
        "csv" => {
            let mut writer = arrow::csv::Writer::new(file());
            writer.write(&batch).unwrap();
        }
        "json" => {
            let mut writer = arrow::json::LineDelimitedWriter::new(file());
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
        _ => {
            let schema = batch.schema();
            let mut writer = arrow::ipc::writer::FileWriter::try_new(file(), &schema).unwrap();
            writer.write(&batch).unwrap();
            writer.finish().unwrap();
        }
    }
}

/// A key, a coordinate or an observation of −0.0 gives the same bytes as 0.0, in every kind of
/// evidence and every format.
#[test]
fn both_zeros_give_the_same_result() {
    let kinds = [
        "[transitions]\nsql = 'SELECT * FROM t'\npartition_by = 'p'\ntrajectory = 'k'\ntime = 't'\nstate = 's'\nlag = 1\n[[fit]]\nname = 'f'\nmethod = 'dbmr'\nrank = 1\n[output]\nrows = ['k', 't', 's']\n",
        "[transitions]\nsql = 'SELECT * FROM t'\ntrajectory = 'k'\ntime = 't'\ncoordinates = ['x', 'z']\nlag = 1\n[[fit]]\nname = 'f'\nmethod = 'state_embedding'\nrank = 2\n",
        "[points]\nsql = 'SELECT * FROM t'\npartition_by = 'p'\nid = ['k', 't']\ncoordinates = ['x', 'z']\n[[fit]]\nname = 'f'\nmethod = 'diffusion_map'\ndimension = 1\nneighbours = 'all'\nepsilon = 0.5\n",
        "[sequences]\nsql = 'SELECT * FROM t'\npartition_by = 'p'\ntrajectory = 'k'\ntime = 't'\nsymbol = 's'\n[[fit]]\nname = 'f'\nmethod = 'spectral_hmm'\nrank = 1\n",
        "[sequences]\nsql = 'SELECT * FROM t'\ntrajectory = 'k'\ntime = 't'\nstate = ['x']\nobservation = ['z']\n[[fit]]\nname = 'f'\nmethod = 'kalman'\nF = [[1]]\nH = [[1]]\nQ = [[0.5]]\nR = [[1]]\nx0 = [0]\nP0 = [[1]]\n[output]\nrows = 'all'\n",
    ];
    for kind in kinds {
        let mut first: Option<BTreeMap<String, Vec<u8>>> = None;
        for format in ["parquet", "csv", "json", "arrow"] {
            for zero in [0.0, -0.0] {
                let lake = crate::lake::Lake::new();
                write_rows(&lake, format, rows_with(zero));
                let head = format!(
                    "[job]\nname = 'j'\noutput = 'out'\nseed = 1\n[tables.t]\npath = 't.{format}'\n"
                );
                lake.runs_text(&(head + kind));
                let result = lake.tables_of("out");
                assert!(result.len() > 3, "{kind}");
                match &first {
                    Some(first) => assert!(*first == result, "{zero:?} in {format}: {kind}"),
                    None => first = Some(result),
                }
            }
        }
    }
}
