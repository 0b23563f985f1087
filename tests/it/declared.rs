//! The keys `filename`, `null`, `types` and `decimal` of a table, in every format, compared with
//! DuckDB if it is installed.

use crate::cli::integers;
use crate::lake::{Lake, Swap, floats, integers_or_null, texts};
use crate::needs;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::ipc::writer::FileWriter;
use arrow::util::display::array_value_to_string;
use serde_json::json;
use std::fs::{self, File};

const FORMATS: [&str; 4] = ["parquet", "csv", "json", "arrow"];

/// Writes a table in the format of its ending.
fn write(lake: &Lake, name: &str, columns: Vec<(&str, ArrayRef)>) {
    let path = lake.path(name);
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    let names: Vec<String> = columns.iter().map(|(name, _)| name.to_string()).collect();
    let ending = name.rsplit('.').next().expect("an ending");
    if ending == "parquet" {
        lake.table(name, columns);
        return;
    }
    let columns = columns
        .into_iter()
        .map(|(name, column)| (name, column, true));
    let rows = RecordBatch::try_from_iter_with_nullable(columns).expect("columns");
    if ending == "arrow" {
        let file = File::create(path).expect("a file");
        let mut writer = FileWriter::try_new(file, &rows.schema()).expect("a writer");
        writer.write(&rows).expect("rows");
        writer.finish().expect("an end");
        return;
    }
    let mut text = String::new();
    if ending == "csv" {
        text += &(names.join(",") + "\n");
    }
    for row in 0..rows.num_rows() {
        let cell = |column: &ArrayRef| {
            let shown = array_value_to_string(column, row).expect("a text");
            (
                column.is_valid(row).then_some(shown),
                column.data_type().is_numeric(),
            )
        };
        let cells: Vec<(Option<String>, bool)> = rows.columns().iter().map(cell).collect();
        if ending == "csv" {
            let cells: Vec<String> = cells.into_iter().map(|c| c.0.unwrap_or_default()).collect();
            text += &(cells.join(",") + "\n");
            continue;
        }
        let pairs = names
            .iter()
            .zip(cells)
            .map(|(name, (cell, is_number))| match cell {
                None => format!("\"{name}\": null"),
                Some(cell) if is_number => format!("\"{name}\": {cell}"),
                Some(cell) => format!("\"{name}\": {}", json!(cell)),
            });
        text += &format!("{{{}}}\n", pairs.collect::<Vec<_>>().join(", "));
    }
    fs::write(path, text).expect("a file");
}

const FILES: &str = r#"
job = { name = "files", output = "out", incremental = true }
names = { from = "none" }
[tables.runs]
path = "runs/*.FORMAT"
filename = "simulation"
[transitions]
sql = "SELECT simulation, t, s FROM runs"
trajectory = "simulation"
time = "t"
state = "s"
lag = 1
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
[output]
rows = ["simulation", "t"]
"#;

/// A simulation of `n` rows in a file of its own, without an id.
fn simulation(lake: &Lake, name: &str, n: i64) {
    let columns = vec![
        ("t", integers(0..n)),
        ("s", integers((0..n).map(|t| t * t % 5))),
    ];
    write(lake, name, columns);
}

/// Each file is a trajectory. A run that counts a new file only gives the bytes of a run that
/// counts all, and a filter on the file skips the others.
#[test]
fn a_file_can_be_a_trajectory_in_every_format() {
    for format in FORMATS {
        let lake = Lake::new();
        simulation(&lake, &format!("runs/a.{format}"), 20);
        simulation(&lake, &format!("runs/b.{format}"), 30);
        lake.runs_text(&FILES.swap("FORMAT", format))
            .says("48 transitions in 50 rows");
        // A file whose name comes first, and whose times are not later than those of the others.
        simulation(&lake, &format!("runs/A.{format}"), 10);
        lake.runs(&[]).says("57 transitions in 60 rows");
        let grown = lake.tables_of("out");
        lake.runs(&["job.output=whole"]);
        assert!(grown == lake.tables_of("whole"), "{format}");
        let path = |name: &str| {
            let path = lake.path(&format!("runs/{name}.{format}"));
            path.canonicalize().expect("a path").display().to_string()
        };
        let mut names = lake.read("rows").texts("simulation");
        names.dedup();
        assert_eq!(names, ["A", "a", "b"].map(path), "{format}");
        let one = "transitions.sql=\"SELECT * FROM runs WHERE simulation LIKE '%/b.%'\"";
        lake.call("explain", &[one])
            .succeeds()
            .says("runs: 1 of 3 files");
        let wrong = "tables.runs.filename=t";
        let message = "`filename` cannot be \"t\", because a column of its files has this name";
        lake.run(&[wrong]).fails(2, message);
    }
}

#[test]
fn files_have_the_names_that_duckdb_gives_them() {
    let Some(python) = needs::python(&["duckdb"]) else {
        return;
    };
    let lake = Lake::new();
    simulation(&lake, "runs/a b.parquet", 20);
    simulation(&lake, "runs/x=1%.parquet", 30);
    lake.runs_text(&FILES.swap("FORMAT", "parquet"));
    let script = "import duckdb, os\nfolder = os.path.realpath('runs')\n\
                  for name, n in duckdb.sql(f\"SELECT filename, count(*) FROM read_parquet('{folder}/*.parquet', filename = true) GROUP BY ALL ORDER BY ALL\").fetchall():\n    print(name, n)";
    let expected = lake.script(&python, script, &[]).out;
    let names = lake.read("rows").texts("simulation");
    let mut found = String::new();
    for run in names.chunk_by(|a, b| a == b) {
        found += &format!("{} {}\n", run[0], run.len());
    }
    assert_eq!(found, expected);
}

const FILLS: &str = r#"
job = { name = "fills", output = "out" }
names = { from = "none" }
[tables.rows]
path = "rows.FORMAT"
null = NULL
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
state = "n"
lag = 1
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
[output]
rows = ["id", "t", "x", "code"]
"#;

fn filled() -> Vec<(&'static str, ArrayRef)> {
    let rows = || (0..60i64).map(|row| (row / 20, row % 20));
    let n = |(id, t): (i64, i64)| if t % 7 == 3 { -9999 } else { (id + t) % 3 };
    let x = |(id, t): (i64, i64)| match t % 5 {
        0 => -9999.0,
        1 => 1e20,
        _ => id as f64 + 0.5 * t as f64,
    };
    let code = |(_, t): (i64, i64)| if t % 4 == 0 { "NA" } else { "ok" };
    vec![
        ("id", integers(rows().map(|row| row.0))),
        ("t", integers(rows().map(|row| row.1))),
        ("n", integers(rows().map(n))),
        ("x", floats(rows().map(x))),
        ("code", texts(rows().map(code))),
    ]
}

/// Values that mean null are null in the SQL, and the record has their numbers.
#[test]
fn values_of_null_are_counted_in_every_format() {
    for format in FORMATS {
        let lake = Lake::new();
        write(&lake, &format!("rows.{format}"), filled());
        let text = FILLS.swap("FORMAT", format);
        let all = "[-9999, 1e20, \"NA\"]";
        let own = "{ n = -9999.0, x = [-9999, 1e20], code = [\"NA\"] }";
        for null in [all, own] {
            let ran = lake.runs_text(&text.swap("NULL", null));
            // Times 3, 10 and 17 of three trajectories.
            ran.says("9 dropped: null state")
                .says("9 values of rows.n became null");
            ran.says("24 values of rows.x became null")
                .says("15 values of rows.code became null");
            let nulled = &lake.record()["values_nulled"];
            let expected = json!({"rows": {"n": 9, "x": 24, "code": 15}});
            // A column without such values is counted, too.
            let of = |name: &str| nulled["rows"][name].as_u64();
            for (name, n) in expected["rows"].as_object().expect("columns") {
                assert_eq!(of(name), n.as_u64(), "{format} {name}");
            }
            let rows = lake.read("rows");
            assert_eq!(rows.column("x").null_count(), 24, "{format}");
            assert_eq!(rows.column("code").null_count(), 15, "{format}");
            lake.line("run p.toml --force").succeeds();
        }
        // Statistics of the files say that such rows exist.
        let filter = "FROM rows WHERE (n < 0 OR x > 1e10 OR code = 'NA') IS NOT TRUE";
        lake.runs_text(&text.swap("NULL", all).swap("FROM rows", filter))
            .says("in 60 rows");
        if format == "parquet" {
            let wrong = text.swap("NULL", "{ x = [\"NA\"] }");
            lake.file("p.toml", &wrong)
                .run(&[])
                .fails(2, "`null.x` cannot be \"NA\"");
        }
    }
}

/// What gyre makes of the columns is what DuckDB makes of them with `nullif`.
#[test]
fn values_of_null_are_those_of_nullif() {
    let Some(python) = needs::python(&["duckdb"]) else {
        return;
    };
    let lake = Lake::new();
    write(&lake, "rows.parquet", filled());
    let text = FILLS.swap("FORMAT", "parquet");
    lake.runs_text(&text.swap("NULL", "[-9999, 1e20, \"NA\"]"));
    let script = "import duckdb\nq = \"SELECT count(x), sum(x), count(code) FROM \"\n\
                  a = duckdb.sql(q + \"(SELECT nullif(nullif(x, -9999), 1e20) AS x, nullif(code, 'NA') AS code FROM 'rows.parquet')\").fetchall()\n\
                  b = duckdb.sql(q + \"'out/rows/*.parquet'\").fetchall()\n\
                  assert a == b, (a, b)\nprint(\"same\")";
    lake.script(&python, script, &[]).says("same");
}

/// A change of `null` changes all counts, so increments begin again.
#[test]
fn increments_begin_again_when_values_become_null() {
    let lake = Lake::new();
    for part in 0..3i64 {
        let n = (0..20).map(|t| Some(if t % 6 == 1 { -9999 } else { (t + part) % 3 }));
        let columns = vec![
            ("id", integers((0..20).map(|_| part))),
            ("t", integers(0..20)),
            ("n", integers_or_null(n)),
        ];
        write(&lake, &format!("rows/{part}.parquet"), columns);
    }
    let text = FILLS
        .swap("rows.FORMAT", "rows/")
        .swap("[output]\nrows = [\"id\", \"t\", \"x\", \"code\"]", "");
    let text = text.swap("output = \"out\"", "output = \"out\", incremental = true");
    lake.runs_text(&text.swap("null = NULL", ""));
    lake.runs_text(&text.swap("NULL", "[-9999]"))
        .says("12 values of rows.n became null");
    let grown = lake.tables_of("out");
    lake.runs(&["job.output=whole"]);
    assert!(grown == lake.tables_of("whole"));
    // A later run adds the values of the new file to those of the ledger.
    let columns = vec![
        ("id", integers((0..3).map(|_| 7))),
        ("t", integers(0..3)),
        ("n", integers([1, -9999, 2])),
    ];
    write(&lake, "rows/3.parquet", columns);
    lake.runs(&[]).says("13 values of rows.n became null");
    assert_eq!(lake.record()["values_nulled"]["rows"]["n"], 13);
    lake.runs(&["job.output=again"])
        .says("13 values of rows.n became null");
}

const TYPED: &str = r#"
job = { name = "typed", output = "out" }
[tables.rows]
path = "rows.csv"
delimiter = ";"
decimal = ","
types = { station = "text", t = { timestamp = "%d.%m.%Y %H:%M", zone = "Europe/Berlin" } }
[transitions]
sql = "SELECT station, t, CAST(x > 1.0 AS BIGINT) AS s, x FROM rows"
trajectory = "station"
time = "t"
state = "s"
lag = "1h"
[[fit]]
name = "one"
method = "dbmr"
rank = 1
restarts = 1
[output]
rows = ["station", "t", "x"]
"#;

/// Codes keep their zeros, numbers have a decimal comma, and local times are those of their zone:
/// on 31 March 2024, 3:00 comes one hour after 1:00.
#[test]
fn types_decide_and_not_the_first_rows() {
    let lake = Lake::new();
    let rows =
        "station;t;x\n007;31.03.2024 00:00;0,5\n007;31.03.2024 01:00;1,5\n007;31.03.2024 03:00;2\n";
    lake.file("rows.csv", rows);
    lake.runs_text(TYPED).says("2 transitions in 3 rows");
    let found = lake.read("rows");
    assert_eq!(found.texts("station"), ["007"; 3]);
    assert_eq!(found.floats("x"), [0.5, 1.5, 2.0]);
    for (row, message) in [
        (
            "007;31.02.2024 04:00;1",
            "rows.csv, line 5: column `t` holds `31.02.2024 04:00`, which is no time of the form",
        ),
        (
            "007;31.03.2024 02:30;1",
            "rows.csv, line 5: column `t` holds `31.03.2024 02:30`, which is a local time that clocks in Europe/Berlin skip or show twice",
        ),
    ] {
        lake.file("rows.csv", &format!("{rows}{row}\n"));
        lake.run(&[]).fails(1, message);
    }
    lake.file("rows.csv", &format!("{rows}007;31.03.2024 04:00;x\n"));
    let number = "tables.rows.types.x=number";
    lake.run(&[number]).fails(
        1,
        "rows.csv, line 5: column `x` holds `x`, which is no number",
    );
    lake.run(&["tables.rows.types.y=number"])
        .fails(2, "`types.y` names no column of the files");
}

/// A file of Parquet does not say where a value is, so gyre looks for it.
#[test]
fn wrong_values_of_parquet_are_found() {
    let lake = Lake::new();
    for (part, last) in [(0, "7"), (1, "x")] {
        let codes = (0..20).map(|t| {
            if t == 15 {
                last.to_string()
            } else {
                (t % 3).to_string()
            }
        });
        let columns = vec![
            ("id", integers((0..20).map(|_| part))),
            ("t", integers(0..20)),
            ("n", texts(codes)),
        ];
        write(&lake, &format!("rows/{part}.parquet"), columns);
    }
    let text = FILLS
        .swap("rows.FORMAT", "rows/")
        .swap("[\"id\", \"t\", \"x\", \"code\"]", "[\"n\"]");
    let text = text.swap("null = NULL", "types = { n = \"integer\" }");
    let message = "1.parquet, row 16: column `n` holds `x`, which is no whole number of 64 bits";
    lake.file("p.toml", &text).run(&[]).fails(1, message);
    lake.runs_text(
        &text
            .swap("rows/", "rows/0.parquet")
            .swap("FROM rows", "FROM rows WHERE n < 5"),
    );
    assert!(lake.read("rows").integers("n").iter().all(|n| *n < 5));
}
