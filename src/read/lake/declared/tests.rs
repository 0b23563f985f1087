use super::*;
use crate::read::formats::fill_values::{FillValue, FillValues};
use crate::read::formats::format::Format;
use crate::read::lake;
use crate::read::lake::files::{LakeTable, TableSource};
use crate::read::lake::reopen::reopen;
use crate::read::lake::{Lake, Resources};
use crate::store::Stores;
use arrow::array::{
    Array, AsArray, BooleanArray, DictionaryArray, Float32Array, Float64Array, Int64Array,
    ListArray, RecordBatch, StringArray, TimestampNanosecondArray, TimestampSecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{Float64Type, Int32Type, Int64Type};
use arrow::ipc::writer::FileWriter;
use arrow::util::display::array_value_to_string;
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

mod random;

const RESOURCES: Resources = Resources {
    threads: 2,
    memory_bytes: None,
};

/// Writes the rows `k`, `x` as a file.
fn write(folder: &Path, format: Format, file: usize, rows: &RecordBatch) {
    let path = folder.join(format!("{file}.{}", format.name()));
    let cells: Vec<_> = rows.columns().iter().map(texts_of).collect();
    let cell = |column: usize, row: usize| cells[column][row].clone();
    let mut text = String::new();
    match format {
        Format::Parquet => {
            let groups = WriterProperties::builder().set_max_row_group_row_count(Some(4));
            let file = File::create(path).expect("a file");
            let writer = ArrowWriter::try_new(file, rows.schema(), Some(groups.build()));
            let mut writer = writer.expect("a writer");
            writer.write(rows).expect("rows");
            writer.close().expect("an end");
            return;
        }
        Format::Arrow => {
            let file = File::create(path).expect("a file");
            let mut writer = FileWriter::try_new(file, &rows.schema()).expect("a writer");
            writer.write(rows).expect("rows");
            writer.finish().expect("an end");
            return;
        }
        Format::Csv => {
            text += "k,x\n";
            for row in 0..rows.num_rows() {
                let [k, x] = [0, 1].map(|column| cell(column, row).unwrap_or_default());
                text += &format!("{k},{x}\n");
            }
        }
        Format::Json => {
            for row in 0..rows.num_rows() {
                let k = cell(0, row).expect("a key");
                let of = rows.column(1).data_type();
                let is_plain = of.is_numeric() || *of == DataType::Boolean;
                let x = match cell(1, row) {
                    None => "null".into(),
                    Some(x) if is_plain => x,
                    Some(x) => serde_json::Value::from(x).to_string(),
                };
                text += &format!("{{\"k\": {k}, \"x\": {x}}}\n");
            }
        }
    }
    std::fs::write(path, text).expect("a file");
}

/// The lake of a folder, and the same tables as another process opens them.
async fn lakes(folder: &Path, format: Format, dialect: Dialect) -> Result<[Lake; 2]> {
    let paths = [folder.display().to_string()];
    let source = TableSource {
        format,
        dialect,
        ..TableSource::of_parquet("t", &paths)
    };
    let sources = [source];
    let lake = lake::open(&sources, &RESOURCES, &Stores::default()).await?;
    let bytes = postcard::to_stdvec(&lake.tables).expect("tables");
    let found: Vec<LakeTable> = postcard::from_bytes(&bytes).expect("tables");
    Ok([lake, reopen(found, &RESOURCES, &Stores::default())?])
}

fn fills(all: Vec<FillValue>) -> Dialect {
    Dialect {
        null: FillValues {
            all,
            ..FillValues::default()
        },
        ..Dialect::default()
    }
}

async fn rows(lake: &Lake, sql: &str) -> Result<Vec<RecordBatch>> {
    let frame = lake.query(sql, &BTreeMap::new()).await?;
    Ok(frame.collect().await.expect("rows"))
}

/// The message of a query that fails.
async fn failure(lake: &Lake, sql: &str) -> String {
    let frame = lake.query(sql, &BTreeMap::new()).await.expect("a query");
    let read = lake.each_stream(frame, |_| Ok(((), |_: &RecordBatch, _: &mut ()| Ok(()))));
    let failed = read.await.expect_err("a wrong value");
    failed.into_error("reading").to_string()
}

/// The values of a query of one column as texts.
async fn shown(lake: &Lake, sql: &str) -> Vec<Option<String>> {
    let batches = rows(lake, sql).await.expect("rows");
    let shown = batches.iter().flat_map(|batch| texts_of(batch.column(0)));
    shown.collect()
}

fn texts_of(column: &ArrayRef) -> Vec<Option<String>> {
    let text = |row: usize| {
        let shown = array_value_to_string(column, row).expect("a text");
        column.is_valid(row).then_some(shown)
    };
    (0..column.len()).map(text).collect()
}

/// The first key of [`write_all`], which no value of `null` is.
const FIRST_KEY: i64 = 100;

/// Files with the values of a column `x` in their types, and keys `k`.
fn write_all(folder: &Path, format: Format, files: &[ArrayRef]) {
    let mut n = FIRST_KEY;
    for (at, x) in files.iter().enumerate() {
        let keys = n..n + x.len() as i64;
        n = keys.end;
        let k: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
        let columns = [("k", k, true), ("x", Arc::clone(x), true)];
        let rows = RecordBatch::try_from_iter_with_nullable(columns).expect("rows");
        write(folder, format, at, &rows);
    }
}

/// The keys of rows in order.
async fn keys(lake: &Lake, filter: &str) -> Vec<i64> {
    let sql = format!("SELECT k FROM t WHERE {filter} ORDER BY k");
    let batches = rows(lake, &sql).await.expect("rows");
    let keys = batches.iter().flat_map(|batch| {
        batch
            .column(0)
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    });
    keys.collect()
}

type Holds = fn(Option<f64>) -> bool;

const FILTERS: [(&str, Holds); 6] = [
    ("x = -9999", |x| x == Some(-9999.0)),
    ("x < 0", |x| x.is_some_and(|x| x < 0.0)),
    ("x IS NULL", |x| x.is_none()),
    ("x IS NOT NULL AND x <> 2", |x| x.is_some_and(|x| x != 2.0)),
    ("x >= 1 OR x IS NULL", |x| x.is_none_or(|x| x >= 1.0)),
    ("x BETWEEN -10000 AND 1", |x| x.is_some_and(|x| x <= 1.0)),
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Filters see the values after replacing, whatever the statistics of files say, and the
    /// values that became null are all that are equal to -9999.
    #[test]
    fn fill_values_are_null_in_every_format(
        files in prop::collection::vec(
            prop::collection::vec(
                select(vec![None, Some(-9999), Some(-9998), Some(1), Some(2)]),
                1..12,
            ),
            1..4,
        ),
        format in select(Format::ALL.to_vec()),
        of in select(vec![DataType::Int64, DataType::Int16, DataType::Float32, DataType::Float64]),
        filter in select(FILTERS.to_vec()),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut n = 0;
        let mut expected = Vec::new();
        let mut replaced = 0;
        for (at, values) in files.iter().enumerate() {
            let keys: Vec<i64> = (n..).take(values.len()).collect();
            n += values.len() as i64;
            for (k, x) in keys.iter().zip(values) {
                replaced += u64::from(*x == Some(-9999));
                let x = x.filter(|x| *x != -9999).map(|x| x as f64);
                expected.extend((filter.1)(x).then_some(*k));
            }
            let x: ArrayRef = Arc::new(Int64Array::from(values.clone()));
            let x = cast(&x, &of).expect("numbers");
            let k: ArrayRef = Arc::new(Int64Array::from(keys));
            let columns = [("k", k, true), ("x", x, true)];
            let rows = RecordBatch::try_from_iter_with_nullable(columns).expect("rows");
            write(folder.path(), format, at, &rows);
        }
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let dialect = fills(vec![FillValue::Integer(-9999)]);
            // A text column that has nulls alone holds no number.
            for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
                let is_number = lake.tables[0].schema.field(1).data_type().is_numeric();
                if !is_number {
                    continue;
                }
                assert_eq!(keys(&lake, filter.0).await, expected, "{} {of}", format.name());
                let sql = format!("SELECT k FROM t WHERE {}", filter.0);
                let frame = lake.query(&sql, &BTreeMap::new()).await.expect("a query");
                let nulled = lake.nulled(std::slice::from_ref(&frame), None).await.expect("counts");
                assert_eq!(nulled["t"]["x"], replaced, "{}", format.name());
            }
        });
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_for_null_do_not_make_a_column_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let json = [(0, "1"), (1, "\"NA\""), (2, "null"), (3, "-5")];
    let json = json.map(|(k, x)| format!("{{\"k\": {k}, \"x\": {x}}}\n"));
    let csv = "k,x\n0,1\n1,NA\n2,\n3,-5\n".to_string();
    for (format, text) in [(Format::Csv, csv), (Format::Json, json.concat())] {
        let file = format!("0.{}", format.name());
        std::fs::write(folder.path().join(file), text).expect("a file");
        let own = FillValues {
            by_column: BTreeMap::from([(
                "x".to_string(),
                vec![FillValue::Text("NA".into()), FillValue::Integer(-5)],
            )]),
            ..FillValues::default()
        };
        let dialect = Dialect {
            null: own,
            ..Dialect::default()
        };
        for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
            assert_eq!(lake.tables[0].schema.field(1).data_type(), &DataType::Int64);
            assert_eq!(keys(&lake, "x IS NULL").await, [1, 2, 3]);
            let frame = lake
                .query("SELECT x FROM t", &BTreeMap::new())
                .await
                .expect("a query");
            let nulled = lake
                .nulled(std::slice::from_ref(&frame), None)
                .await
                .expect("counts");
            assert_eq!(nulled["t"]["x"], 2, "{}", format.name());
        }
    }
}

fn types(of: &[(&str, ColumnType)]) -> Dialect {
    let types = of.iter().map(|(name, of)| (name.to_string(), of.clone()));
    Dialect {
        types: types.collect(),
        ..Dialect::default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn types_are_those_of_the_pipeline_in_every_format() {
    for format in Format::ALL {
        let folder = tempfile::tempdir().expect("a folder");
        let of_file = |values: Vec<f64>| {
            let k: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
            let x: ArrayRef = Arc::new(Float64Array::from(values));
            RecordBatch::try_from_iter([("k", k), ("x", x)]).expect("rows")
        };
        write(folder.path(), format, 0, &of_file(vec![1.0, 2.0]));
        write(folder.path(), format, 1, &of_file(vec![3.0, 4.5]));
        let dialect = types(&[("k", ColumnType::Text), ("x", ColumnType::Number)]);
        for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
            let schema = &lake.tables[0].schema;
            assert!(schema.field(0).data_type().is_string(), "{}", format.name());
            let sql = "SELECT x FROM t WHERE k = '7' ORDER BY x";
            let batches = rows(&lake, sql).await.expect("rows");
            let x = batches.iter().flat_map(|batch| {
                batch
                    .column(0)
                    .as_primitive::<Float64Type>()
                    .values()
                    .to_vec()
            });
            assert_eq!(x.collect::<Vec<_>>(), [1.0, 3.0], "{}", format.name());
        }
        // 4.5 in the second row of the second file is no integer.
        let dialect = types(&[("x", ColumnType::Integer)]);
        let place = match format {
            Format::Csv => "1.csv, line 3: column `x` holds `4.5`, which is no whole number",
            Format::Json => "1.json, line 2: column `x` holds `4.5`, which is no whole number",
            Format::Parquet => "1.parquet, row 2: column `x` holds `4.5`, which is no whole",
            Format::Arrow => "1.arrow, row 2: column `x` holds `4.5`, which is no whole",
        };
        for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
            let message = failure(&lake, "SELECT x FROM t WHERE k > 0").await;
            assert!(message.contains(place), "{message}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_columns_name_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let k: ArrayRef = Arc::new(Int64Array::from(vec![0]));
    let x: ArrayRef = Arc::new(Int64Array::from(vec![1]));
    let rows = RecordBatch::try_from_iter([("k", k), ("x", x)]).expect("rows");
    write(folder.path(), Format::Parquet, 0, &rows);
    let own = |column: &str, value: FillValue| Dialect {
        null: FillValues {
            by_column: BTreeMap::from([(column.to_string(), vec![value])]),
            ..FillValues::default()
        },
        ..Dialect::default()
    };
    let time = ColumnType::Time {
        format: "%Y".into(),
        zone: None,
    };
    for (dialect, expected) in [
        (
            own("x", FillValue::Text("NA".into())),
            "`null.x` cannot be \"NA\": the column holds whole numbers",
        ),
        (
            own("y", FillValue::Integer(1)),
            "`null.y` names no column of the files",
        ),
        (
            types(&[("kk", time)]),
            "`types.kk` names no column of the files",
        ),
    ] {
        let found = lakes(folder.path(), Format::Parquet, dialect).await;
        let message = found.err().expect("a wrong key").to_string();
        assert!(message.contains(expected), "{message}");
    }
}

/// A dialect with a type and values of `null` for the column `x`.
fn of_x(to: Option<ColumnType>, null: Vec<FillValue>) -> Dialect {
    let x = "x".to_string();
    let mut dialect = Dialect::default();
    dialect.types.extend(to.map(|to| (x.clone(), to)));
    if !null.is_empty() {
        dialect.null.by_column.insert(x, null);
    }
    dialect
}

fn local_time(zone: Option<&str>) -> ColumnType {
    ColumnType::Time {
        format: "%d.%m.%Y %H:%M".into(),
        zone: zone.map(Into::into),
    }
}

fn integers(values: Vec<Option<i64>>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

fn texts(values: Vec<&str>) -> ArrayRef {
    Arc::new(StringArray::from(values))
}

/// The formats and the files of a table, its keys, and the values of the column.
type Case<'a> = (&'a [Format], Vec<ArrayRef>, Dialect, Vec<Option<&'a str>>);

const BINARY: [Format; 2] = [Format::Parquet, Format::Arrow];

/// Values of each file are compared with `null` in their own type, and converted from it.
#[tokio::test(flavor = "multi_thread")]
async fn keys_apply_to_the_type_of_each_file() {
    use FillValue::{Integer, Number, Text};
    // 1 July 2024, 14:00 on the clock, and 12:00 of UTC.
    let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1_719_842_400]));
    let utc = TimestampNanosecondArray::from(vec![1_719_835_200_000_000_000]);
    let utc: ArrayRef = Arc::new(utc.with_timezone("UTC"));
    let singles = |values: Vec<f32>| -> ArrayRef { Arc::new(Float32Array::from(values)) };
    let doubles = |values: Vec<f64>| -> ArrayRef { Arc::new(Float64Array::from(values)) };
    let codes: DictionaryArray<Int32Type> = ["a", "b"].into_iter().collect();
    let na = || Text("NA".into());
    let noon = "2024-07-01T14:00:00+02:00";
    let all = &Format::ALL[..];
    let cases: [Case<'_>; 8] = [
        (
            all,
            vec![integers(vec![Some(7), None]), texts(vec!["007", "x"])],
            of_x(Some(ColumnType::Text), vec![]),
            vec![Some("7"), None, Some("007"), Some("x")],
        ),
        (
            &[Format::Parquet, Format::Arrow, Format::Json],
            vec![
                integers(vec![Some(7), Some(-9999)]),
                texts(vec!["-9999", "NA"]),
            ],
            of_x(Some(ColumnType::Text), vec![Integer(-9999), na()]),
            vec![Some("7"), None, Some("-9999"), None],
        ),
        (
            all,
            vec![
                integers(vec![Some(1)]),
                doubles(vec![2.0]),
                texts(vec!["003"]),
            ],
            of_x(Some(ColumnType::Integer), vec![]),
            vec![Some("1"), Some("2"), Some("3")],
        ),
        (
            all,
            vec![
                singles(vec![0.5, 9.97e36]),
                doubles(vec![9.97e36, 1.5]),
                texts(vec!["2.5", "NA"]),
            ],
            of_x(Some(ColumnType::Number), vec![Number(9.97e36), na()]),
            vec![Some("0.5"), None, None, Some("1.5"), Some("2.5"), None],
        ),
        (
            &BINARY,
            vec![
                seconds.clone(),
                utc.clone(),
                texts(vec!["01.07.2024 14:00"]),
            ],
            of_x(Some(local_time(Some("Europe/Berlin"))), vec![]),
            vec![Some(noon); 3],
        ),
        (
            all,
            vec![
                Arc::new(BooleanArray::from(vec![true, false])),
                texts(vec!["yes"]),
            ],
            of_x(Some(ColumnType::Text), vec![]),
            vec![Some("true"), Some("false"), Some("yes")],
        ),
        // The single that is nearest to 9.97e36 is another double.
        (
            &BINARY,
            vec![singles(vec![9.97e36, 1.0]), doubles(vec![9.97e36, 2.0])],
            of_x(None, vec![Number(9.97e36)]),
            vec![None, Some("1.0"), None, Some("2.0")],
        ),
        (
            &BINARY,
            vec![Arc::new(codes), integers(vec![Some(3)])],
            of_x(Some(ColumnType::Text), vec![Text("b".into())]),
            vec![Some("a"), None, Some("3")],
        ),
    ];
    for (formats, files, dialect, expected) in cases {
        for format in formats {
            let folder = tempfile::tempdir().expect("a folder");
            write_all(folder.path(), *format, &files);
            let found = lakes(folder.path(), *format, dialect.clone()).await;
            for lake in found.expect("a lake") {
                let at = format!("{} {dialect:?}", format.name());
                let found = shown(&lake, "SELECT x FROM t ORDER BY k").await;
                let found: Vec<Option<&str>> = found.iter().map(Option::as_deref).collect();
                assert_eq!(found, expected, "{at}");
                let nulls = expected.iter().enumerate().filter(|(_, x)| x.is_none());
                let nulls: Vec<i64> = nulls.map(|(k, _)| FIRST_KEY + k as i64).collect();
                assert_eq!(keys(&lake, "x IS NULL").await, nulls, "{at}");
                if !dialect.null.is_empty() {
                    let frame = lake.query("SELECT x FROM t", &BTreeMap::new()).await;
                    let frame = [frame.expect("a query")];
                    let nulled = lake.nulled(&frame, None).await.expect("counts");
                    assert_eq!(nulled["t"]["x"], nulls.len() as u64, "{at}");
                }
            }
        }
    }
}

/// A value or a file that does not fit is named.
#[tokio::test(flavor = "multi_thread")]
async fn unfit_values_of_files_that_differ_are_named() {
    let numbers = || integers(vec![Some(1)]);
    for format in Format::ALL {
        let folder = tempfile::tempdir().expect("a folder");
        write_all(
            folder.path(),
            format,
            &[numbers(), texts(vec!["2", "x"]), numbers()],
        );
        let place = match format {
            Format::Csv => "1.csv, line 3",
            Format::Json => "1.json, line 2",
            Format::Parquet => "1.parquet, row 2",
            Format::Arrow => "1.arrow, row 2",
        };
        let expected =
            format!("{place}: column `x` holds `x`, which is no whole number of 64 bits");
        let dialect = of_x(Some(ColumnType::Integer), vec![]);
        for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
            let message = failure(&lake, "SELECT x FROM t WHERE x > 0").await;
            assert!(message.contains(&expected), "{message}");
        }
    }
    let lists = ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1)])]);
    let local: ArrayRef = Arc::new(TimestampSecondArray::from(vec![0]));
    let utc = TimestampSecondArray::from(vec![0]).with_timezone("UTC");
    let days = || texts(vec!["01.07.2024 14:00"]);
    for format in BINARY {
        for (files, dialect, expected) in [
            (
                [numbers(), Arc::new(lists.clone())],
                of_x(Some(ColumnType::Text), vec![]),
                "lists, which gyre does not convert",
            ),
            (
                [days(), Arc::new(utc.clone())],
                of_x(Some(local_time(None)), vec![]),
                "times with a time zone, and the key has none; add `zone` to the key",
            ),
            (
                [numbers(), Arc::clone(&local)],
                of_x(Some(ColumnType::Text), vec![FillValue::Text("NA".into())]),
                "`null.x` cannot be \"NA\": the column holds whole numbers",
            ),
            (
                [numbers(), days()],
                Dialect::default(),
                "do not agree on the columns: `x` holds whole numbers",
            ),
        ] {
            let folder = tempfile::tempdir().expect("a folder");
            write_all(folder.path(), format, &files);
            let found = lakes(folder.path(), format, dialect).await;
            let message = found.err().expect("a wrong key").to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}

/// Values under `text` are those that are written, and digits that no number holds stay.
#[tokio::test(flavor = "multi_thread")]
async fn texts_are_those_of_the_file() {
    let long = "-123456789012345678901234567890";
    let plain = [
        long,
        "18446744073709551616",
        "007",
        "1e3",
        "1.50",
        " x ",
        "true",
        "-0",
    ];
    // JSON has no number 007.
    let quoted = |x: &str| matches!(x, "007" | " x ");
    let csv: String = plain.iter().map(|x| format!("0,{x}\n")).collect();
    let json = plain.iter().map(|x| {
        if quoted(x) {
            format!("{{\"k\": 0, \"x\": \"{x}\"}}\n")
        } else {
            format!("{{\"x\": {x}, \"k\": 18446744073709551616}}\n")
        }
    });
    let mut json = json.collect::<String>();
    json += "{\"x\": \"\\u0041\\n\\\"\"}\n{\"x\": null}\n{}\n";
    for (format, text, more) in [
        (Format::Csv, format!("k,x\n{csv}"), vec![]),
        (
            Format::Json,
            json,
            vec![Some("A\n\"".to_string()), None, None],
        ),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(format!("0.{}", format.name()));
        std::fs::write(&file, &text).expect("a file");
        let mut expected: Vec<Option<String>> = plain.iter().map(|x| Some(x.to_string())).collect();
        expected.extend(more);
        let dialect = of_x(Some(ColumnType::Text), vec![]);
        for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
            assert_eq!(shown(&lake, "SELECT x FROM t").await, expected);
        }
        let dialect = of_x(Some(ColumnType::Integer), vec![]);
        let [lake, _] = lakes(folder.path(), format, dialect).await.expect("a lake");
        let message = failure(&lake, "SELECT x FROM t").await;
        assert!(
            message.contains(&format!(
                "column `x` holds `{long}`, which is no whole number of 64 bits"
            )),
            "{message}"
        );
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (nested, name) in [("[1]", "a list"), ("{\"a\": 1}", "an object")] {
        let text = format!("{{\"x\": 1}}\n{{\"x\": {nested}}}\n");
        std::fs::write(folder.path().join("0.json"), text).expect("a file");
        let dialect = of_x(Some(ColumnType::Text), vec![]);
        let found = lakes(folder.path(), Format::Json, dialect).await;
        let [lake, _] = found.expect("a lake");
        let message = failure(&lake, "SELECT x FROM t").await;
        let expected = format!(
            "0.json, line 2: column `x` holds {name}, which is no single value, as `types` requires"
        );
        assert!(message.contains(&expected), "{message}");
    }
}
