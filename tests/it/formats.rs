//! The same rows in every format: columns in any order, with and without compression, and with
//! damaged values and bytes. A run gives the right counts or an error that names the file.

use crate::cli::integers;
use crate::hostile::{counts, proptest_cases, run_text_into};
use crate::lake::{Lake, Swap, cases, words};
use Cell::{Integer, Null, Number, Text};
use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::ipc::writer::{FileWriter, StreamWriter};
use object_store::memory::InMemory;
use parquet::arrow::ArrowWriter;
use proptest::prelude::*;
use proptest::sample::{Index, select, subsequence};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// One value of a file.
#[derive(Debug, Clone, PartialEq)]
enum Cell {
    Integer(i64),
    Number(f64),
    Text(String),
    Null,
}

/// Columns by name, in the order of the file.
type File = Vec<(&'static str, Vec<Cell>)>;

const ROWS: i64 = 30;

const FORMATS: &str = "csv tsv csv.gz csv.zst json ndjson json.gz jsonl.zst arrow ipc parquet";

/// The rows of file `n`. Each file has its own trajectory. The number `v` has a fraction in file 1.
/// The text `e` is missing in file 1 and null in file 2.
fn file(n: i64, order: &[usize], has_extra: bool) -> File {
    let rows = 0..ROWS;
    let v = |k: i64| match n {
        1 => Number(k as f64 % 3.0 + 0.5),
        _ => Integer(k % 4),
    };
    let mut columns = vec![
        ("id", rows.clone().map(|_| Integer(n)).collect::<Vec<_>>()),
        ("t", rows.clone().map(Integer).collect()),
        (
            "s",
            rows.clone()
                .map(|k| Text(format!("s{}", k * k % 7)))
                .collect(),
        ),
        ("v", rows.clone().map(v).collect()),
    ];
    match n {
        0 => columns.push((
            "e",
            rows.clone().map(|k| Text(format!("e{}", k % 2))).collect(),
        )),
        1 => (),
        _ => columns.push(("e", rows.clone().map(|_| Null).collect())),
    }
    let mut columns: File = order
        .iter()
        .filter_map(|at| columns.get(*at).cloned())
        .collect();
    if has_extra {
        let extra = rows.map(|k| Integer(k * 1000 + n)).collect();
        columns.insert(columns.len() / 2, ("more", extra));
    }
    columns
}

/// The state that the query of these tests gives for a row.
fn state(file: &File, k: usize) -> String {
    let cell = |name: &str| file.iter().find(|(n, _)| *n == name).map(|(_, c)| &c[k]);
    let text = |cell: Option<&Cell>| match cell {
        Some(Text(text)) => text.clone(),
        _ => "-".into(),
    };
    let twice = match cell("v") {
        Some(Integer(v)) => 2 * v,
        Some(Number(v)) => (2.0 * v) as i64,
        other => panic!("{other:?}"),
    };
    format!("{}{}{twice}", text(cell("s")), text(cell("e")))
}

const SQL: &str =
    "SELECT id, t, s || coalesce(e, '-') || CAST(CAST(v * 2 AS BIGINT) AS VARCHAR) AS s FROM rows";

/// The counts of transitions at lag 1, computed independently.
fn expected_counts(files: &[File]) -> BTreeMap<Vec<String>, u64> {
    let mut counts = BTreeMap::new();
    for file in files {
        for k in 1..ROWS as usize {
            let pair = vec![state(file, k - 1), state(file, k)];
            *counts.entry(pair).or_insert(0) += 1;
        }
    }
    counts
}

fn array(cells: &[Cell], width: &DataType) -> ArrayRef {
    let texts = cells.iter().map(|cell| match cell {
        Text(text) => Some(text.as_str()),
        _ => None,
    });
    let numbers = cells.iter().map(|cell| match cell {
        Number(x) => Some(*x),
        _ => None,
    });
    match cells[0] {
        Integer(_) => {
            let values = cells.iter().map(|cell| match cell {
                Integer(n) => *n,
                other => panic!("{other:?}"),
            });
            cast(&integers(values), width).expect("integers of that width")
        }
        Number(_) => Arc::new(Float64Array::from_iter(numbers)),
        _ => Arc::new(StringArray::from_iter(texts)),
    }
}

fn batch(file: &File, width: &DataType) -> RecordBatch {
    let columns = file.iter().map(|(n, c)| (*n, array(c, width), true));
    RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length")
}

fn csv(file: &File, delimiter: char) -> String {
    let line = |cells: Vec<String>| cells.join(&delimiter.to_string()) + "\n";
    let mut text = line(file.iter().map(|(name, _)| name.to_string()).collect());
    for k in 0..file[0].1.len() {
        let cell = |cell: &Cell| match cell {
            Integer(n) => n.to_string(),
            Number(x) => format!("{x:?}"),
            Text(text) => text.clone(),
            Null => String::new(),
        };
        text += &line(file.iter().map(|(_, cells)| cell(&cells[k])).collect());
    }
    text
}

fn lines_of_json(file: &File) -> String {
    let row = |k: usize| {
        let cell = |cell: &Cell| match cell {
            Integer(n) => json!(n),
            Number(x) => json!(x),
            Text(text) => json!(text),
            Null => Value::Null,
        };
        let cells = file
            .iter()
            .map(|(name, cells)| (name.to_string(), cell(&cells[k])));
        format!("{}\n", Value::Object(cells.collect::<Map<_, _>>()))
    };
    (0..file[0].1.len()).map(row).collect()
}

/// Compresses with an external program.
fn compressed(program: &str, bytes: &[u8]) -> Vec<u8> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("plain");
    fs::write(&path, bytes).expect("a file");
    let ran = Command::new(program).arg("-c").arg(&path).output();
    let ran = ran.unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(ran.status.success(), "{program}");
    ran.stdout
}

/// The bytes of a file in a format.
fn bytes(file: &File, format: &str, width: &DataType) -> Vec<u8> {
    let rows = || batch(file, width);
    match format.split_once('.') {
        Some((plain, "gz")) => return compressed("gzip", &bytes(file, plain, width)),
        Some((plain, "zst")) => return compressed("zstd", &bytes(file, plain, width)),
        _ => (),
    }
    match format {
        "csv" => csv(file, ',').into_bytes(),
        "tsv" => csv(file, '\t').into_bytes(),
        "json" | "ndjson" | "jsonl" => lines_of_json(file).into_bytes(),
        "arrow" => {
            let rows = rows();
            let mut writer = FileWriter::try_new(Vec::new(), &rows.schema()).expect("a writer");
            writer.write(&rows).expect("rows are written");
            writer.into_inner().expect("the file is closed")
        }
        "ipc" => {
            let rows = rows();
            let mut writer = StreamWriter::try_new(Vec::new(), &rows.schema()).expect("a writer");
            writer.write(&rows).expect("rows are written");
            writer.into_inner().expect("the stream is closed")
        }
        _ => {
            let rows = rows();
            let mut writer =
                ArrowWriter::try_new(Vec::new(), rows.schema(), None).expect("a writer");
            writer.write(&rows).expect("rows are written");
            writer.into_inner().expect("the file is closed")
        }
    }
}

/// A pipeline over the files of a folder with a given ending.
fn pipeline(folder: &Path, ending: &str, table: &str, sql: &str) -> String {
    format!(
        r#"
[job]
name = "formats"
output = "out"
incremental = true
[tables.rows]
path = "{}/*.{ending}"
{table}
[transitions]
sql = """{sql}"""
trajectory = "id"
time = "t"
state = "s"
lag = 1
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
"#,
        folder.display()
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: proptest_cases(6), ..ProptestConfig::default() })]

    /// Columns may have any order in each file. Files may have additional or missing columns and
    /// integers of any width.
    #[test]
    fn columns_are_read_by_their_names_in_every_format(
        orders in prop::collection::vec(subsequence(vec![0, 1, 2, 3, 4], 5).prop_shuffle(), 3),
        extra in prop::collection::vec(any::<bool>(), 3),
        widths in prop::collection::vec(
            select(vec![DataType::Int16, DataType::Int32, DataType::Int64, DataType::UInt8]),
            3,
        ),
        // A file that is added after the others have been counted.
        later in 0..3_usize,
    ) {
        let files: Vec<File> = (0..3)
            .map(|n| file(n as i64, &orders[n], extra[n] && n != 1))
            .collect();
        for format in words(FORMATS) {
            let folder = tempfile::tempdir().expect("a folder");
            let path = |n: usize| folder.path().join(format!("{n}.{format}"));
            let write = |n: usize| {
                // Numbers above one thousand do not fit every type.
                let width = if extra[n] { &DataType::Int64 } else { &widths[n] };
                fs::write(path(n), bytes(&files[n], format, width)).expect("a file");
            };
            (0..3).for_each(write);
            let text = pipeline(folder.path(), format, "", SQL);
            let whole = InMemory::new();
            let ran = run_text_into(&whole, &text);
            prop_assert!(ran.is_ok(), "{}: {}", format, ran.err().map_or(String::new(), |e| e.full()));
            prop_assert_eq!(counts(&whole), expected_counts(&files), "{}", format);

            fs::remove_file(path(later)).expect("a file is removed");
            // Without this file, one column has no values.
            if later == 0 {
                continue;
            }
            let grown = InMemory::new();
            let ran = run_text_into(&grown, &text);
            prop_assert!(ran.is_ok(), "{}: {}", format, ran.err().map_or(String::new(), |e| e.full()));
            write(later);
            let ran = run_text_into(&grown, &text);
            prop_assert!(ran.is_ok(), "{}: {}", format, ran.err().map_or(String::new(), |e| e.full()));
            prop_assert_eq!(counts(&grown), expected_counts(&files), "{}", format);
        }
    }
}

const ROWS_OF_THREE: &str = r#"
job = { name = "rows", output = "out" }
[tables.rows]
path = "PATH"
TABLE
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
state = "state"
lag = 1
[[fit]]
name = "one"
method = "dbmr"
rank = 1
"#;

fn rows_at<'a>(lake: &'a Lake, path: &str, table: &str) -> &'a Lake {
    let text = ROWS_OF_THREE.swap("PATH", path).swap("TABLE", table);
    lake.file("p.toml", &text)
}

/// The number of transitions of a run.
#[track_caller]
fn transitions(lake: &Lake) -> f64 {
    lake.line("run p.toml --force").succeeds();
    lake.read("counts").floats("count").iter().sum()
}

#[test]
fn text_options_of_a_table_are_applied() {
    let lake = Lake::new();
    let table = r#"
        a.csv | id;t;state\n1;0;x\n1;1;y\n | delimiter = ";"
        b.csv | id\tt\tstate\n1\t0\tx\n1\t1\ty\n | delimiter = "\\t"
        c.txt | id,t,state\n1,0,'x,'\n1,1,y\n | format = "csv"\nquote = "'"
        d.csv | id,t,state\n1,0,x\n1,NA,z\n1,1,y\n1,\\N,y\n | null = ["NA", '\\N']
        e.tsv | id|t|state\n1|0|x\n1|1|y\n | delimiter = "|"
    "#;
    for [name, text, table] in cases(table) {
        lake.file(&name, &text);
        rows_at(&lake, &name, &table);
        assert_eq!(transitions(&lake), 1.0, "{name}");
    }
    let headless = "1,0,x\n1,1,y\n1,2,x\n";
    lake.file("f.csv", headless);
    rows_at(&lake, "f.csv", "header = false");
    let text = lake.text("p.toml");
    let sql = "SELECT column_1 AS id, column_2 AS t, column_3 AS state FROM rows";
    lake.file("p.toml", &text.replace("SELECT * FROM rows", sql));
    assert_eq!(transitions(&lake), 2.0);
    // Options of the table replace what the file name suggests.
    let text = "id,t,state\n1,0,x\n1,1,y\n1,2,x\n";
    fs::write(lake.path("g.csv"), compressed("gzip", text.as_bytes())).expect("a file");
    rows_at(&lake, "g.csv", "compression = \"gzip\"");
    assert_eq!(transitions(&lake), 2.0);
    lake.file("h.csv.gz", text);
    rows_at(&lake, "h.csv.gz", "compression = \"none\"");
    assert_eq!(transitions(&lake), 2.0);
    // All files of a folder have one format.
    fs::create_dir_all(lake.path("in")).expect("a folder");
    fs::write(
        lake.path("in/1.csv.gz"),
        compressed("gzip", text.as_bytes()),
    )
    .expect("a file");
    rows_at(&lake, "in/", "format = \"csv\"");
    assert_eq!(transitions(&lake), 2.0);
    lake.file("in/2.csv", text);
    let both = "in/ has .csv and .csv.gz files, which may hold the same rows";
    lake.run(&[]).fails(1, both);
    rows_at(&lake, "in/", "format = \"csv\"\ncompression = \"none\"");
    assert_eq!(transitions(&lake), 2.0);
}

#[test]
fn text_options_are_refused_for_other_formats() {
    let lake = Lake::new();
    let table = r#"
        a.parquet | delimiter = ";" | `tables.rows.delimiter` goes with CSV files alone, and these are parquet
        a.json | header = false | `tables.rows.header` goes with CSV files alone, and these are json
        a.arrow | quote = "'" | `tables.rows.quote` goes with CSV files alone, and these are arrow
        a/ | decimal = "," | `tables.rows.decimal` goes with CSV files alone, and these are parquet
        a.csv | decimal = "," | `tables.rows.decimal` is the character between two values, ","; set `delimiter`
        a.csv | decimal = "5" | `tables.rows.decimal` must be one ASCII character that no number has
        a.csv | null = [true] | `tables.rows.null` must be a number or a text, not true
        a.csv | null = { v = {} } | `tables.rows.null.v` must be a number, a text or a list of these
        a.csv | types = { v = "float" } | `tables.rows.types.v` must be "text", "integer", "number" or a table such as
        a.csv | types = { v = { timestamp = "%H:%M" } } | `tables.rows.types.v.timestamp` must be a format
        a.csv | types = { v = { timestamp = "%Y-%m-%d", zone = "Berlin" } } | `tables.rows.types.v.zone` must be a time zone
        a.parquet | compression = "gzip" | `tables.rows.compression` is for CSV and JSON files
        a.parquet.gz |  | `tables.rows.path` names files that are compressed as a whole, which is for CSV and JSON files
        a.csv | delimiter = "" | `tables.rows.delimiter`
        a.csv | delimiter = ";;" | `tables.rows.delimiter`
        a.csv | delimiter = "ä" | `tables.rows.delimiter` must be one ASCII character
        a.csv | quote = "\\n" | `tables.rows.quote` must be one ASCII character
        a.csv | quote = "," | `tables.rows.quote` must not be both the delimiter and the quote
        a.csv | compression = "rar" | `tables.rows.compression` cannot be "rar"; there are `none`, `gzip`, `zstd`
    "#;
    for [path, table, message] in cases(table) {
        rows_at(&lake, &path, &table);
        lake.call("check", &[]).fails(2, &message);
    }
}

/// A thousand valid rows, then the rest of a file.
fn after_thousand_rows(good: impl Fn(i64) -> String, rest: &str) -> String {
    (0..1000).map(good).collect::<String>() + rest
}

/// A value that does not fit the type of the first rows is an error. It is never truncated, dropped
/// or converted.
#[test]
fn values_of_a_wrong_type_are_errors_with_line_numbers() {
    let lake = Lake::new();
    let csv = |rest: &str| {
        let good = |k| format!("1,{k},{},2024-01-01,2024-01-01 00:00:00,,true\n", k % 3);
        "id,t,state,day,at,none,is\n".to_string() + &after_thousand_rows(good, rest)
    };
    let json = |rest: &str| {
        let good = |k: i64| {
            let row = json!({"id": 1, "t": k, "state": k % 3, "x": 0.5, "text": "a", "is": true,
                "none": null, "list": [1], "of": {"a": 1}});
            format!("{row}\n")
        };
        after_thousand_rows(good, rest)
    };
    let table = r#"
        csv | 1,1000,x,2024-01-01,2024-01-01 00:00:00,,true\n | line 1002: column `state` holds whole numbers in the first 1000 rows of the files, and here `x`
        csv | 1,1000.5,1,2024-01-01,2024-01-01 00:00:00,,true\n | line 1002: column `t` holds whole numbers in the first 1000 rows of the files, and here `1000.5`
        csv | \n\n1,1000,1,2024-01-01 12:00:00,2024-01-01 00:00:00,,true\n | line 1004: column `day` holds dates in the first 1000 rows of the files, and here `2024-01-01 12:00:00`
        csv | 1,1000,1,2024-01-01,2024-01-01 00:00:00.5,,true\n | line 1002: column `at` holds times in whole seconds in the first 1000 rows of the files, and here `2024-01-01 00:00:00.5`
        csv | 1,1000,1,2024-01-01,2024-01-01 00:00:00,new,true\n | line 1002: column `none` holds no value in the first 1000 rows of the files, and here `new`
        csv | 1,1000,1,2024-01-01,2024-01-01 00:00:00,,1\n | line 1002: column `is` holds true or false in the first 1000 rows of the files, and here `1`
        csv | 1,1000,1,2024-01-01,2024-01-01 00:00:00,,true,9\n | line 1002: the row has more values than the 7 columns of the file
        csv | 1,1000\n | line 1002: the row has fewer values than the 7 columns of the file
        json | {"id": 1, "t": 1000, "state": 2.9}\n | line 1001: column `state` holds whole numbers in the first 1000 rows of the files, and here 2.9
        json | {"id": 1, "t": 1000, "state": "7"}\n | line 1001: column `state` holds whole numbers in the first 1000 rows of the files, and here "7"
        json | {"id": 1, "t": 1e3, "state": 7}\n | line 1001: column `t` holds whole numbers in the first 1000 rows of the files, and here 1000.0
        json | {"id": 1, "t": 9223372036854775808, "state": 7}\n | line 1001: column `t` holds whole numbers in the first 1000 rows of the files, and here 9223372036854775808
        json | \n{"id": 1, "t": true, "state": 7}\n | line 1002: column `t` holds whole numbers in the first 1000 rows of the files, and here true
        json | {"id": 1,\n "t": 1, "state": 1, "x": "0.5"}\n | line 1001: column `x` holds numbers in the first 1000 rows of the files, and here "0.5"
        json | {"id": 1, "t": 1, "state": 1, "text": 5}\n | line 1001: column `text` holds text in the first 1000 rows of the files, and here 5
        json | {"id": 1, "t": 1, "state": 1, "is": 1}\n | line 1001: column `is` holds true or false in the first 1000 rows of the files, and here 1
        json | {"id": 1, "t": 1, "state": 1, "none": 1}\n | line 1001: column `none` holds no value in the first 1000 rows of the files, and here 1
        json | {"id": 1, "t": 1, "state": 1, "list": 1}\n | line 1001: column `list` holds lists in the first 1000 rows of the files, and here 1
        json | {"id": 1, "t": 1, "state": 1, "of": [1]}\n | line 1001: column `of` holds objects in the first 1000 rows of the files, and here a list
        json | {"id": 1, "t": 1000, "state": 7, "t": 2}\n | line 1001: the object has the key `t` twice
        json | {"id": 1, "t": 1000, "state": 7\n | line 1001: the JSON object is not closed before the end of the file
        json | {"id": 1, "t": 1000, "state": }\n | line 1001: the row is not a JSON object
        json | 17\n | line 1001: a JSON object must begin here
    "#;
    for [format, rest, message] in cases(table) {
        let name = format!("rows.{format}");
        let text = if format == "csv" {
            csv(&rest)
        } else {
            json(&rest)
        };
        lake.file(&name, &text);
        rows_at(&lake, &name, "");
        // All columns are read, also those that the counts do not need.
        let pipeline = lake.text("p.toml");
        let all = match format.as_str() {
            "csv" => {
                "SELECT id, t, CAST(state AS VARCHAR) || coalesce(CAST(day AS VARCHAR), '') || coalesce(CAST(at AS VARCHAR), '') || CAST(none IS NULL AS VARCHAR) || CAST(is AS VARCHAR) AS state FROM rows"
            }
            _ => {
                "SELECT id, t, CAST(state AS VARCHAR) || CAST(x IS NULL AS VARCHAR) || CAST(text IS NULL AS VARCHAR) || CAST(is IS NULL AS VARCHAR) || CAST(none IS NULL AS VARCHAR) || CAST(list IS NULL AS VARCHAR) || CAST(of IS NULL AS VARCHAR) AS state FROM rows"
            }
        };
        let all = all
            .replace("is IS", "\\\"is\\\" IS")
            .replace("(is AS", "(\\\"is\\\" AS")
            .replace("of IS", "\\\"of\\\" IS");
        lake.file("p.toml", &pipeline.replace("SELECT * FROM rows", &all));
        let ran = lake.run(&[]);
        ran.fails(1, &message);
        ran.logs(&name);
    }
}

#[test]
fn unclosed_quotes_are_errors_with_line_numbers() {
    let lake = Lake::new();
    let rows = |state: &dyn Fn(i64) -> String, n: i64| -> String {
        let line = |k: i64| format!("1,{k},{}\n", state(k));
        "id,t,state\n".to_string() + &(0..n).map(line).collect::<String>()
    };
    let plain = |k: i64| format!("s{}", k % 3);
    let quoted = |k: i64| format!("\"s{}\"", k % 3);
    let open_at = |bad: i64, state: &dyn Fn(i64) -> String, n| {
        let state = |k: i64| {
            if k == bad {
                "\"s0".to_string()
            } else {
                state(k)
            }
        };
        rows(&state, n)
    };
    let not_closed = "the quote that opens a value here is not closed before the end of the file";
    let follows = "text follows the quote that closes a value";
    let cases = [
        // The rest of the file is one value: 20 of 3,000 rows would remain.
        (open_at(20, &plain, 3000), 22, not_closed),
        (open_at(2999, &plain, 3000), 3001, not_closed),
        (open_at(2000, &plain, 3000), 2002, not_closed),
        // The value ends at the next opening quote, so the rows in between would be lost.
        (open_at(20, &quoted, 3000), 23, follows),
        (open_at(2000, &quoted, 3000), 2003, follows),
    ];
    for (text, line, message) in cases {
        lake.file("rows.csv", &text);
        rows_at(&lake, "rows.csv", "");
        let ran = lake.run(&[]);
        ran.fails(1, &format!("line {line}: {message}"));
        ran.logs("rows.csv");
    }
    // Quoted values may contain line breaks, delimiters and quotes.
    let valid = |k: i64| match k % 3 {
        0 => "\"a\nb\"".to_string(),
        1 => "\"a,\"\"b\"\"\"".to_string(),
        _ => "5\" pipe".to_string(),
    };
    lake.file("rows.csv", &rows(&valid, 3000));
    rows_at(&lake, "rows.csv", "");
    assert_eq!(transitions(&lake), 2999.0);
    let mut states = lake.read("counts").texts("source_state");
    states.dedup();
    assert_eq!(states, ["5\" pipe", "a\nb", "a,\"b\""]);
}

#[test]
fn files_without_rows_are_empty_tables_or_errors() {
    let lake = Lake::new();
    fs::create_dir_all(lake.path("in")).expect("a folder");
    lake.file("in/1.csv", "id,t,state\n1,0,x\n1,1,y\n");
    // A file with only a header, in another order, has no rows.
    lake.file("in/2.csv", "state,t,id\n");
    lake.file("in/3.csv", "");
    rows_at(&lake, "in/*.csv", "");
    assert_eq!(transitions(&lake), 1.0);
    rows_at(&lake, "in/3.csv", "");
    lake.call("check", &[])
        .fails(1, "in/3.csv is empty: it has no columns and no rows");
    let table = r#"
        x.csv | a,b,a\n1,2,3\n | x.csv is not a readable csv file: line 1: two columns are named `a`
        x.csv | a,b\n1,2\n1,2,3\n | x.csv is not a readable csv file: line 3: the row has more values than the 2 columns of the file
        x.csv | a,b\n1,"2\n | x.csv is not a readable csv file: line 2: the quote that opens a value here is not closed
        x.json | [{"a": 1}]\n | x.json is not a readable json file: line 1: the file is one JSON array
        x.json | {"a": 1}\n{"a": {"b": 1}}\n | x.json is not a readable json file: a key has values
        x.arrow | no arrow | x.arrow is not a readable arrow file:\s
        x.csv.gz | plain | x.csv.gz is not a readable csv file: it cannot be read to its end
    "#;
    for [name, text, message] in cases(table) {
        lake.file(&name, &text);
        rows_at(&lake, &name, "");
        let ran = lake.call("check", &[]);
        ran.fails(1, &message);
        for engine in [
            "Arrow error",
            "External",
            "Csv error",
            "Json error",
            "Ipc error",
        ] {
            assert!(!ran.err.contains(engine), "{}", ran.err);
        }
    }
}

/// Three trajectories of 40 rows with names as states, written by pyarrow with
/// `write_page_checksum=True, row_group_size=60, data_page_size=256, write_statistics=False`.
const WITH_CHECKSUMS: [(&str, &[u8]); 3] = [
    ("plain", include_bytes!("checksums/plain.parquet")),
    ("dictionary", include_bytes!("checksums/dictionary.parquet")),
    ("snappy", include_bytes!("checksums/snappy.parquet")),
];

/// The transitions in these files.
fn checksum_counts() -> BTreeMap<Vec<String>, u64> {
    let state = |k: i64| format!("s{}", k * k % 7);
    let mut counts = BTreeMap::new();
    for k in (1..120).filter(|k| k % 40 != 0) {
        *counts.entry(vec![state(k - 1), state(k)]).or_insert(0) += 1;
    }
    counts
}

/// The counts or the error of a run on a Parquet file with these bytes.
fn count_file(bytes: &[u8]) -> Result<BTreeMap<Vec<String>, u64>, String> {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("rows.parquet"), bytes).expect("a file");
    let text = pipeline(folder.path(), "parquet", "", "SELECT id, t, s FROM rows");
    let store = InMemory::new();
    match run_text_into(&store, &text) {
        Ok(_) => Ok(counts(&store)),
        Err(e) => Err(e.full()),
    }
}

#[test]
fn files_with_checksums_are_read() {
    for (name, bytes) in WITH_CHECKSUMS {
        assert_eq!(count_file(bytes), Ok(checksum_counts()), "{name}");
    }
}

/// Only readers of views notice that a dictionary is shorter than its header says.
#[test]
fn a_dictionary_with_too_few_values_is_named() {
    let (_, bytes) = WITH_CHECKSUMS[1];
    let mut damaged = bytes.to_vec();
    // The number of values of the last dictionary: 22 in place of 4.
    damaged[1105] = 22 << 1;
    let error = count_file(&damaged).expect_err("a damaged dictionary");
    assert!(error.contains("column `s` of "), "{error}");
    assert!(error.contains("rows.parquet"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: proptest_cases(96), ..ProptestConfig::default() })]

    /// For every damaged byte of the pages, the run gives the right counts or an error that names
    /// the file.
    #[test]
    fn damage_in_pages_with_checksums_changes_no_count(
        (name, bytes) in select(&WITH_CHECKSUMS[..]),
        at in any::<Index>(),
        bits in 1..=255_u8,
    ) {
        // The footer follows the pages and has no checksum. The last eight bytes contain its
        // length.
        let length = u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().expect("four bytes"));
        let pages = bytes.len() - 8 - length as usize;
        let mut damaged = bytes.to_vec();
        damaged[4..pages][at.index(pages - 4)] ^= bits;
        match count_file(&damaged) {
            Ok(counts) => prop_assert_eq!(counts, checksum_counts(), "{}", name),
            Err(e) => prop_assert!(e.contains("rows.parquet"), "{}: {}", name, e),
        }
    }
}
