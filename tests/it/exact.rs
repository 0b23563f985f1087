//! Numbers, codes and times of files that differ in type: each value is read exactly, rounded with
//! a warning where it is a coordinate or a weight, or refused by column, file and row.

use crate::lake::{Lake, Swap};
use arrow::array::{
    ArrayRef, DictionaryArray, Float32Array, Float64Array, Int32Array, Int64Array, StringArray,
    TimestampMicrosecondArray, TimestampNanosecondArray,
};
use arrow::datatypes::Int8Type;
use arrow::ipc::writer::FileWriter;
use arrow::record_batch::RecordBatch;
use std::fs::File;
use std::sync::Arc;

/// 2^53, and the number after it, which is no double.
const DOUBLE: i64 = 9_007_199_254_740_992;
const BETWEEN: i64 = DOUBLE + 1;

const PIPELINE: &str = r#"
job = { name = "exact", output = "out" }
tables.rows = { path = "in/", format = "FORMAT" }
[transitions]
INPUT
"#;

const BINS: &str = "bins.y = { step = 1e15 }\n[[fit]]\nname = \"f\"\nmethod = \"dbmr\"\nrank = 1\n";

/// Trajectories whose states are the values of `y`.
const STATES: &str =
    "sql = \"SELECT * FROM rows\"\ntrajectory = \"id\"\ntime = \"t\"\nstate = \"y\"\nlag = 1";

/// Trajectories with other states.
const OTHER: &str = "sql = \"SELECT *, 'a' AS s FROM rows\"\ntrajectory = \"id\"\ntime = \"t\"\nstate = \"s\"\nlag = 1";

fn pipeline<'a>(lake: &'a Lake, format: &str, input: &str) -> &'a Lake {
    std::fs::create_dir_all(lake.path("in")).expect("a folder");
    let text = PIPELINE.swap("FORMAT", format).swap("INPUT", input);
    lake.file("p.toml", &text)
}

/// Writes a column `y` beside a trajectory and times in the given format.
fn write(lake: &Lake, name: &str, format: &str, start: i64, y: &ArrayRef) {
    std::fs::create_dir_all(lake.path("in")).expect("a folder");
    let n = y.len() as i64;
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values((0..n).map(|_| 1)));
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values(start..start + n));
    let name = format!("in/{name}.{format}");
    let columns = vec![("id", ids), ("t", times), ("y", Arc::clone(y))];
    match format {
        "parquet" => {
            lake.table(&name, columns);
        }
        "arrow" => {
            let rows = RecordBatch::try_from_iter(columns).expect("columns of one length");
            let file = File::create(lake.path(&name)).expect("a file");
            let mut writer = FileWriter::try_new(file, &rows.schema()).expect("a writer");
            writer.write(&rows).expect("rows are written");
            writer.finish().expect("the file is closed");
        }
        _ => {
            let text =
                |row: usize| arrow::util::display::array_value_to_string(y, row).expect("a value");
            let times = (start..).take(y.len()).enumerate();
            let rows: String = match format {
                "csv" => times
                    .map(|(row, t)| format!("1,{t},{}\n", text(row)))
                    .collect(),
                _ => times
                    .map(|(row, t)| format!("{{\"id\": 1, \"t\": {t}, \"y\": {}}}\n", text(row)))
                    .collect(),
            };
            let header = if format == "csv" { "id,t,y\n" } else { "" };
            lake.file(&name, &format!("{header}{rows}"));
        }
    }
}

/// The states of the counted pairs, as text.
fn states(lake: &Lake) -> Vec<String> {
    let counts = lake.read("counts");
    let mut all: Vec<String> = ["source_y", "target_y"]
        .into_iter()
        .flat_map(|name| {
            let column = counts.column(name);
            (0..column.len())
                .map(|row| {
                    arrow::util::display::array_value_to_string(column, row).expect("a value")
                })
                .collect::<Vec<_>>()
        })
        .collect();
    all.sort();
    all.dedup();
    all
}

/// Whole numbers beside fractions: as keys and times they are exact or refused by place, as
/// coordinates and weights they are rounded with one warning.
#[test]
fn integers_beside_fractions_are_exact_or_refused_unless_they_are_coordinates() {
    let whole: ArrayRef = Arc::new(Int64Array::from(vec![DOUBLE, BETWEEN]));
    let exact: ArrayRef = Arc::new(Int64Array::from(vec![DOUBLE, 5]));
    let fractions: ArrayRef = Arc::new(Float64Array::from(vec![1.5, 2.5]));
    for format in ["parquet", "arrow", "csv", "json"] {
        let place = match format {
            "csv" => "a.csv, line 3",
            "json" => "a.json, line 2",
            "arrow" => "a.arrow, row 2",
            _ => "a.parquet, row 2",
        };
        let lake = Lake::new();
        write(&lake, "b", format, 2, &fractions);
        write(&lake, "a", format, 0, &exact);
        pipeline(&lake, format, STATES);
        lake.runs(&[]);
        let expected = ["1.5", "2.5", "5.0", "9007199254740992.0"];
        assert_eq!(states(&lake), expected, "{format}");
        write(&lake, "a", format, 0, &whole);
        let uses = [
            STATES.to_string(),
            OTHER.replace("trajectory = \"id\"", "trajectory = \"y\""),
            OTHER
                .replace("time = \"t\"", "time = \"y\"")
                .replace("lag = 1", "lag = \"1 step\""),
            // The state depends on the number.
            STATES.replace("SELECT *", "SELECT id, t, CAST(y * 2 AS VARCHAR) AS y"),
            // Whether a row is read depends on the number.
            OTHER
                .replace("lag = 1", "lag = 1\nweight = \"y\"")
                .replace("FROM rows", "FROM rows WHERE y > 2"),
        ];
        for input in uses {
            pipeline(&lake, format, &input);
            let ran = lake.line("run p.toml --force");
            ran.fails(1, "column `y` holds 9007199254740993");
            assert!(ran.err.contains(place), "{format}: {}", ran.err);
        }
        let trajectories = "sql = \"SELECT * FROM rows\"\ntrajectory = \"id\"\ntime = \"t\"\n";
        let numbers = [
            format!("{trajectories}lag = 1\n{BINS}"),
            OTHER.replace("lag = 1", "lag = 1\nweight = \"y\""),
            format!("{trajectories}lag = 1\n{BINS}[output]\nrows = [\"t\"]\n"),
        ];
        for input in numbers {
            pipeline(&lake, format, &input);
            let ran = lake.line("run p.toml --force").succeeds();
            let warned = ran.err.matches("become the nearest double").count();
            assert_eq!(warned, 1, "{format}: {}", ran.err);
        }
    }
}

/// A number of one file that has no fractions is exact in SQL and keys, and a coordinate of it is
/// the nearest double.
#[test]
fn coordinates_above_the_doubles_are_rounded_with_one_warning() {
    let lake = Lake::new();
    let y: ArrayRef = Arc::new(Int64Array::from(vec![BETWEEN, BETWEEN + 2, BETWEEN]));
    write(&lake, "a", "parquet", 0, &y);
    pipeline(&lake, "parquet", STATES);
    let ran = lake.runs(&[]);
    assert!(!ran.err.contains("nearest double"), "{}", ran.err);
    assert_eq!(states(&lake), ["9007199254740993", "9007199254740995"]);
    // 2^53 + 1 is on a border, and the box of the nearest double is above it.
    let boxes = "sql = \"SELECT * FROM rows\"\ntrajectory = \"id\"\ntime = \"t\"\nlag = 1\nbins.y = { step = 1 }";
    pipeline(&lake, "parquet", boxes);
    let ran = lake.line("run p.toml --force").succeeds();
    let warned = ran.err.matches("become the nearest double").count();
    assert_eq!(warned, 1, "{}", ran.err);
    let points = r#"
job = { name = "exact", output = "out" }
tables.rows.path = "in/a.parquet"
[points]
sql = "SELECT * FROM rows"
id = "t"
coordinates = "y"
[[fit]]
name = "m"
method = "diffusion_map"
dimension = 1
epsilon = 4.0
neighbours = "all"
"#;
    lake.file("p.toml", points);
    let ran = lake.line("run p.toml --force").succeeds();
    let warned = ran.err.matches("become the nearest double").count();
    assert_eq!(warned, 1, "{}", ran.err);
}

/// Integers beyond 64 bits with a sign keep their digits; beyond those without one they are refused
/// by line.
#[test]
fn long_integers_of_json_keep_their_digits() {
    let lines = |ys: &[&str]| -> String {
        let line = |(t, y): (usize, &&str)| {
            format!("{{\"id\": 1, \"t\": {t}, \"y\": {y}, \"z\": \"a\"}}\n")
        };
        ys.iter().enumerate().map(line).collect()
    };
    let lake = Lake::new();
    pipeline(&lake, "json", STATES);
    let exact = [
        vec!["9223671840084328451", "9223671840084328454"],
        vec!["-1", "9223671840084328451"],
        vec!["18446744073709551615", "9223372036854775807"],
    ];
    for ys in exact {
        lake.file("in/a.json", &lines(&ys));
        lake.line("run p.toml --force").succeeds();
        let mut right = ys.clone();
        right.sort();
        assert_eq!(states(&lake), right);
    }
    // A file of small integers beside one of long ones.
    lake.file("in/a.json", &lines(&["-1", "2"]));
    let long = lines(&["9223671840084328451", "3"]).replace("\"id\": 1", "\"id\": 2");
    lake.file("in/b.json", &long);
    lake.line("run p.toml --force").succeeds();
    assert_eq!(states(&lake), ["-1", "2", "3", "9223671840084328451"]);
    std::fs::remove_file(lake.path("in/b.json")).expect("a file");
    for bad in [
        "18446744073709551617",
        "-9223372036854775809",
        "9007199254740993",
    ] {
        lake.file("in/a.json", &lines(&["1.5", "9007199254740992", bad]));
        let ran = lake.line("run p.toml --force");
        ran.fails(1, &format!("a.json, line 3: column `y` holds {bad}"));
    }
    // Doubles that are written without a fraction are no integers.
    let whole = lines(&["1.5", "1e20", "18446744073709551616"]);
    lake.file("in/a.json", &whole);
    lake.line("run p.toml --force").succeeds();
}

/// Zeros in front make a column of codes text, as in DuckDB.
#[test]
fn codes_of_csv_are_text() {
    let csv = |ys: &[&str]| -> String {
        let line = |(t, y): (usize, &&str)| format!("1,{t},{y}\n");
        "id,t,y\n".to_string() + &ys.iter().enumerate().map(line).collect::<String>()
    };
    let lake = Lake::new();
    pipeline(&lake, "csv", STATES);
    let cases: [(&[&str], &[&str]); 8] = [
        (&["01", "1", "001"], &["001", "01", "1"]),
        (&["\"01\"", "\"1\"", "\"001\""], &["001", "01", "1"]),
        (&["1", "00", "0"], &["0", "00", "1"]),
        (&["01.5", "1.5"], &["01.5", "1.5"]),
        (&["+1", "1"], &["+1", "1"]),
        (&["0", "1"], &["0", "1"]),
        (&["0.5", "-0.5", "0"], &["-0.5", "0.0", "0.5"]),
        (&["0e1", "10"], &["0.0", "10.0"]),
    ];
    for (ys, right) in cases {
        lake.file("in/a.csv", &csv(ys));
        lake.line("run p.toml --force").succeeds();
        assert_eq!(states(&lake), right, "{ys:?}");
    }
    // Without a header, and with a text for null.
    let other = "SELECT column_1 AS id, column_2 AS t, column_3 AS y";
    let text = STATES.replace("SELECT *", other);
    pipeline(&lake, "csv", &text);
    let options = "format = \"csv\", header = false, null = \"00\"";
    let toml = lake.text("p.toml");
    lake.file("p.toml", &toml.replace("format = \"csv\"", options));
    lake.file("in/a.csv", "1,0,1\n1,1,2\n1,2,00\n");
    lake.line("run p.toml --force").succeeds();
    assert_eq!(states(&lake), ["1", "2"]);
    lake.file("in/a.csv", "1,0,01\n1,1,2\n1,2,00\n");
    lake.line("run p.toml --force").succeeds();
    assert_eq!(states(&lake), ["01", "2"]);
    // The first code after the rows that decide the types is an error at its line.
    pipeline(&lake, "csv", STATES);
    for (usual, code) in [("7", "01"), ("7", "+1"), ("0.5", "01"), ("0.5", "01.5")] {
        let mut ys = vec![usual; 2000];
        ys[1500] = code;
        lake.file("in/a.csv", &csv(&ys));
        let ran = lake.line("run p.toml --force");
        ran.fails(1, "a.csv, line 1502: column `y` holds");
        ran.logs(&format!("`{code}`"));
    }
}

/// All spellings of NaN and of infinity are numbers, as in DuckDB.
#[test]
fn every_spelling_of_nan_in_csv_is_a_number() {
    let lake = Lake::new();
    let typed = STATES.replace("SELECT *", "SELECT id, t, arrow_typeof(y) || y AS y");
    pipeline(&lake, "csv", &typed);
    let cases: [(&[&str], &[&str]); 6] = [
        (&["NaN", "nan", "NAN", "2"], &["Float642.0", "Float64NaN"]),
        (&["-nan", "0.5", "0.5"], &["Float640.5", "Float64NaN"]),
        (
            &["INF", "-Infinity", "infinity", "1"],
            &["Float64-inf", "Float641.0", "Float64inf"],
        ),
        (&["NAN", "01", "1"], &["Utf801", "Utf81", "Utf8NAN"]),
        (&["NAN", "n/a", "1"], &["Utf81", "Utf8NAN", "Utf8n/a"]),
        (&["7", "7", "8"], &["Int647", "Int648"]),
    ];
    for (ys, right) in cases {
        let line = |(t, y): (usize, &&str)| format!("1,{t},{y}\n");
        let rows: String = ys.iter().enumerate().map(line).collect();
        lake.file("in/a.csv", &format!("id,t,y\n{rows}"));
        lake.line("run p.toml --force").succeeds();
        assert_eq!(states(&lake), right, "{ys:?}");
    }
}

/// Times of CSV with a time zone are times in UTC. Beside times without one they are refused.
#[test]
fn times_of_csv_have_a_time_zone_in_all_rows_or_in_none() {
    const LOCAL: &str = "2020-01-01T00:00:00";
    const ZONED: &str = "2020-01-01T00:00:00+05:00";
    let lake = Lake::new();
    let typed = STATES.replace("SELECT *", "SELECT id, t, arrow_typeof(y) || ' ' || y AS y");
    let write = |name: &str, start: usize, ys: &[&str]| {
        let rows = (start..).zip(ys).map(|(t, y)| format!("1,{t},{y}\n"));
        let text = format!("id,t,y\n{}", rows.collect::<String>());
        lake.file(&format!("in/{name}.csv"), &text);
    };
    pipeline(&lake, "csv", &typed);
    for (ys, right) in [
        (
            [LOCAL, "2020-01-01 00:00:00"],
            "Timestamp(s) 2020-01-01T00:00:00",
        ),
        (
            [ZONED, "2019-12-31T19:00:00Z"],
            "Timestamp(s, \"UTC\") 2019-12-31T19:00:00Z",
        ),
        (
            [ZONED, "2019-12-31 14:00:00.000-05:00"],
            "Timestamp(ms, \"UTC\") 2019-12-31T19:00:00Z",
        ),
    ] {
        write("a", 0, &ys);
        lake.line("run p.toml --force").succeeds();
        assert_eq!(states(&lake), [right], "{ys:?}");
    }
    // In one file: among the rows that decide the types, and after them.
    for (usual, other, said) in [
        (
            ZONED,
            LOCAL,
            "holds times with a time zone in other rows, and here",
        ),
        (
            LOCAL,
            ZONED,
            "holds times without a time zone in other rows, and here",
        ),
        (
            ZONED,
            "2020-01-01",
            "holds times with a time zone in other rows, and here",
        ),
    ] {
        for (at, line) in [(1, 3), (1500, 1502)] {
            let mut ys = vec![usual; at + 1];
            ys[at] = other;
            write("a", 0, &ys);
            let ran = lake.line("run p.toml --force");
            ran.fails(1, &format!("line {line}: column `y` {said} `{other}`"));
        }
    }
    // In two files.
    for other in [LOCAL, "2020-01-01"] {
        write("a", 0, &[ZONED, ZONED]);
        write("b", 2, &[other, other]);
        let ran = lake.line("run p.toml --force");
        ran.fails(1, "`y` holds times in the time zone UTC in ");
        let wanted = [
            "in/a.csv",
            "in/b.csv",
            "write all times with a time zone, or all without",
        ];
        for what in wanted {
            ran.logs(what);
        }
    }
}

/// A Float32 value is compared with borders that are rounded like it, so a coordinate that is
/// Float64 in another file has none.
#[test]
fn boxes_of_a_column_with_several_precisions_are_refused() {
    let single: ArrayRef = Arc::new(Float32Array::from(vec![0.7, 0.9]));
    let double: ArrayRef = Arc::new(Float64Array::from(vec![0.7, 0.9]));
    let whole: ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let bins = "trajectory = \"id\"\ntime = \"t\"\nlag = 1\nbins.y = { step = 0.1 }";
    for format in ["parquet", "arrow"] {
        let lake = Lake::new();
        write(&lake, "a", format, 0, &single);
        let run = |sql: &str| {
            let input = format!("sql = \"{sql}\"\n{bins}");
            pipeline(&lake, format, &input);
            lake.line("run p.toml --force")
        };
        let boxes = || {
            let tables = [lake.read("sources"), lake.read("targets")];
            let mut all: Vec<i64> = tables.iter().flat_map(|t| t.integers("y_index")).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        run("SELECT * FROM rows").succeeds();
        assert_eq!(boxes(), [7, 9], "{format}");
        for other in [&double, &whole] {
            write(&lake, "b", format, 2, other);
            for sql in [
                "SELECT * FROM rows",
                "SELECT id, t, max(y) AS y FROM rows GROUP BY id, t",
                "SELECT id, t, y FROM rows GROUP BY ROLLUP (id, t, y)",
                "WITH r AS (SELECT id, t, abs(y) AS z FROM rows) SELECT id, t, z AS y FROM r ORDER BY t",
                "SELECT id, t, lag(y, 0) OVER (PARTITION BY id ORDER BY t) AS y FROM rows",
                "SELECT id, t, y FROM rows UNION ALL SELECT 7, t, 0.5 FROM rows",
                "SELECT a.id, a.t, b.y FROM rows a JOIN rows b USING (id, t)",
            ] {
                let ran = run(sql);
                ran.fails(1, "`y` is cut into boxes, and its files have different precision: `y` holds Float32 in ");
                let wanted = [
                    format!("in/a.{format}"),
                    format!("in/b.{format}"),
                    "CAST(".into(),
                ];
                for what in &wanted {
                    ran.logs(what);
                }
            }
            for (sql, right) in [
                (
                    "SELECT id, t, CAST(y AS FLOAT) AS y FROM rows WHERE t < 2",
                    [7, 9],
                ),
                (
                    "SELECT id, t, CAST(y AS DOUBLE) AS y FROM rows WHERE t < 2",
                    [6, 8],
                ),
                (
                    "SELECT id, t, CASE WHEN y > 0.8 THEN 0.2 ELSE 0.1 END AS y FROM rows",
                    [1, 2],
                ),
            ] {
                run(sql).succeeds();
                assert_eq!(boxes(), right, "{sql}");
            }
        }
    }
}

/// Categories with short codes over several files and row groups are read as their values.
#[test]
fn categories_of_several_files_are_their_values() {
    let category = |file: usize| -> ArrayRef {
        let names = (0..100).map(|k| format!("f{file}-{:03}", k % 100));
        let names: Vec<String> = names.collect();
        let names: DictionaryArray<Int8Type> = names.iter().map(String::as_str).collect();
        Arc::new(names)
    };
    for format in ["parquet", "arrow"] {
        let lake = Lake::new();
        for file in 0..4 {
            let (name, start) = (file.to_string(), 100 * file as i64);
            write(&lake, &name, format, start, &category(file));
        }
        let sorted = STATES.replace("FROM rows", "FROM rows ORDER BY y");
        let grouped = "sql = \"SELECT y AS source_y, min(y) AS target_y, count(*) AS n FROM rows GROUP BY y\"\nsource = \"source_y\"\ntarget = \"target_y\"\ncount = \"n\"";
        for input in [STATES, &sorted, grouped] {
            pipeline(&lake, format, input);
            lake.line("run p.toml --force").succeeds();
            assert_eq!(states(&lake).len(), 400, "{format}: {input}");
        }
    }
}

/// Times of several units get the finest unit that holds all of them.
#[test]
fn times_of_several_units_get_one_that_holds_all() {
    let year_3000 = 32_503_680_000_000_000;
    let us = |times: Vec<i64>| -> ArrayRef { Arc::new(TimestampMicrosecondArray::from(times)) };
    let ns = |times: Vec<i64>| -> ArrayRef { Arc::new(TimestampNanosecondArray::from(times)) };
    for format in ["parquet", "arrow"] {
        let lake = Lake::new();
        pipeline(&lake, format, STATES);
        let cases = [
            (
                us(vec![1, 2]),
                ns(vec![1, 1000]),
                vec![
                    "1970-01-01T00:00:00.000000001",
                    "1970-01-01T00:00:00.000001",
                    "1970-01-01T00:00:00.000002",
                ],
            ),
            (
                us(vec![1, year_3000]),
                ns(vec![3000, 1000]),
                vec![
                    "1970-01-01T00:00:00.000001",
                    "1970-01-01T00:00:00.000003",
                    "3000-01-01T00:00:00",
                ],
            ),
        ];
        for (a, b, right) in cases {
            write(&lake, "a", format, 0, &a);
            write(&lake, "b", format, 2, &b);
            lake.line("run p.toml --force").succeeds();
            assert_eq!(states(&lake), right, "{format}");
        }
        write(&lake, "b", format, 2, &ns(vec![1001, 1000]));
        let ran = lake.line("run p.toml --force");
        ran.fails(1, "no unit holds all of them: 3000-01-01T00:00:00 in");
        ran.logs("row 2 does not fit nanoseconds");
        let zoned = TimestampNanosecondArray::from(vec![1000]).with_timezone("Europe/Berlin");
        let zoned: ArrayRef = Arc::new(zoned);
        write(&lake, "b", format, 2, &zoned);
        let ran = lake.line("run p.toml --force");
        ran.fails(1, "`y` holds times without a time zone in");
        ran.logs(&format!("b.{format}"));
    }
}

/// Texts with short and long offsets and dictionaries of them are one type.
#[test]
fn texts_of_several_types_are_one() {
    let texts = ["x", "y"];
    let plain: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
    let codes: DictionaryArray<Int8Type> = texts.into_iter().collect();
    let codes: ArrayRef = Arc::new(codes);
    let lake = Lake::new();
    pipeline(&lake, "parquet", STATES);
    for (a, b) in [(&plain, &codes), (&codes, &plain)] {
        write(&lake, "a", "parquet", 0, a);
        write(&lake, "b", "parquet", 2, b);
        lake.line("run p.toml --force").succeeds();
        assert_eq!(states(&lake), ["x", "y"]);
    }
}
