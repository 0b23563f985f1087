//! Files of every kind, layout and name: folders, Hive folders, globs, lists of paths, and columns
//! that differ between files.

use crate::cli::integers;
use crate::lake::Lake;
use arrow::array::{ArrayRef, Int32Array, StringArray};
use std::sync::Arc;

const PIPELINE: &str = r#"
[job]
name = "rows"
output = "out"

[tables.rows]
path = PATH

[transitions]
sql = "SELECT * FROM rows"
source = "a"
target = "b"
count = "n"

[output]
tables = ["counts"]

[[fit]]
name = "one"
method = "dbmr"
rank = 1
"#;

fn pipeline<'a>(lake: &'a Lake, path: &str, sql: &str) -> &'a Lake {
    lake.file(
        "p.toml",
        &PIPELINE
            .replace("PATH", path)
            .replace("SELECT * FROM rows", sql),
    )
}

/// The counts (a, b, n) for a path and a query.
fn counts(lake: &Lake, path: &str, sql: &str) -> Vec<(String, String, i64)> {
    pipeline(lake, path, sql)
        .gyre(&["run", "p.toml", "--force"])
        .succeeds();
    let rows = lake.read("counts");
    let (a, b, n) = (rows.texts("a"), rows.texts("b"), rows.integers("count"));
    a.into_iter()
        .zip(b)
        .zip(n)
        .map(|((a, b), n)| (a, b, n))
        .collect()
}

fn row(a: &str, b: &str, n: i64) -> (String, String, i64) {
    (a.to_string(), b.to_string(), n)
}

/// Writes a table with one row.
fn write_row(lake: &Lake, name: &str, a: i64, b: i64, n: i64) {
    lake.table(
        name,
        vec![
            ("a", integers([a])),
            ("b", integers([b])),
            ("n", integers([n])),
        ],
    );
}

#[test]
fn filters_on_hive_folders_leave_files_unread() {
    let lake = Lake::new();
    for (year, month) in [(2024, 11), (2024, 12), (2025, 1), (2025, 2)] {
        let name = format!("lake/year={year}/month={month}/a.parquet");
        // With two values per file, the footer does not contain the values.
        lake.table(
            &name,
            vec![
                ("a", integers([year, year + 1])),
                ("b", integers([month, month + 1])),
                ("n", integers([1, 2])),
            ],
        );
        // Damages the rows, between the magic bytes and the footer. A query that reads them fails.
        if year == 2024 {
            let mut bytes = lake.bytes(&name);
            bytes[4..60].fill(0xff);
            std::fs::write(lake.path(&name), bytes).expect("a broken file");
        }
    }
    let of_2025 = "SELECT a, b, n FROM rows WHERE year = 2025";
    let found = counts(&lake, "\"lake/\"", of_2025);
    let expected = [
        row("2025", "1", 1),
        row("2025", "2", 1),
        row("2026", "2", 2),
        row("2026", "3", 2),
    ];
    assert_eq!(found, expected);
    let explained = lake.call("explain", &[]).succeeds().out;
    let files = "Files\n  rows: 2 of 4 files, 0.0 of 0.0 MB; partitions year=2025/month=1, year=2025/month=2 only\n";
    assert!(explained.contains(files), "{explained}");
    let none = pipeline(
        &lake,
        "\"lake/\"",
        "SELECT a, b, n FROM rows WHERE year = 2026",
    );
    let explained = none.call("explain", &[]).succeeds().out;
    assert!(explained.contains("rows: 0 of 4 files"), "{explained}");
    // Without the filter the damaged rows are read.
    let all = pipeline(&lake, "\"lake/\"", "SELECT a, b, n FROM rows")
        .gyre(&["run", "p.toml", "--force"]);
    all.fails(1, "");
}

#[test]
fn globs_lists_and_unicode_names_are_read() {
    let lake = Lake::new();
    write_row(&lake, "in/a b.parquet", 1, 1, 1);
    write_row(&lake, "in/100%25.parquet", 2, 2, 2);
    write_row(&lake, "in/ü#&+.parquet", 3, 3, 3);
    write_row(&lake, "in/x=y é %41/z.parquet", 4, 4, 4);
    let all = "SELECT a, b, n FROM rows";
    let n = |path: &str| -> Vec<i64> {
        let found = counts(&lake, path, all);
        found.into_iter().map(|(_, _, n)| n).collect()
    };
    assert_eq!(n("\"in/a b.parquet\""), [1]);
    assert_eq!(n("\"in/100%25.parquet\""), [2]);
    assert_eq!(n("[\"in/ü#&+.parquet\", \"in/a b.parquet\"]"), [1, 3]);
    assert_eq!(n("\"in/[a1]*.parquet\""), [1, 2]);
    assert_eq!(n("[\"in/a*.parquet\", \"in/?#*.parquet\"]"), [1, 3]);
    // The part of a URL before a glob is percent-decoded, as in all URLs.
    let folder = lake.folder.path().display();
    assert_eq!(n(&format!("\"file://{folder}/in/a%20b.parquet\"")), [1]);
    assert_eq!(n(&format!("\"file://{folder}/in/100%2525.parquet\"")), [2]);
    assert_eq!(n(&format!("\"file://{folder}/in/[a1]*.parquet\"")), [1, 2]);
    // A file that is named twice is read once.
    assert_eq!(n("[\"in/a b.parquet\", \"in/a*\"]"), [1]);
    let hive = counts(&lake, "\"in/x=y é %41/\"", all);
    assert_eq!(hive, [row("4", "4", 4)]);
}

#[test]
fn values_of_hive_folders_keep_their_text() {
    let lake = Lake::new();
    write_row(&lake, "in/place=S%C3%A3o Paulo/x.parquet", 1, 1, 1);
    write_row(&lake, "in/place=Köln/x.parquet", 2, 2, 2);
    // The column of a Hive folder replaces a column of the same name in the files.
    lake.table(
        "in/place=7/x.parquet",
        vec![
            ("place", integers([8])),
            ("a", integers([3])),
            ("b", integers([3])),
            ("n", integers([3])),
        ],
    );
    let found = counts(&lake, "\"in/\"", "SELECT place AS a, b, n FROM rows");
    assert_eq!(
        found,
        [
            row("7", "3", 3),
            row("Köln", "2", 2),
            row("São Paulo", "1", 1)
        ]
    );
}

#[test]
fn later_files_may_add_and_widen_columns() {
    let narrow = || -> ArrayRef { Arc::new(Int32Array::from(vec![7])) };
    for names in [["1.parquet", "2.parquet"], ["2.parquet", "1.parquet"]] {
        let lake = Lake::new();
        let [old, new] = names.map(|name| format!("in/{name}"));
        lake.table(&old, vec![("a", narrow()), ("n", narrow())]);
        let wide = vec![
            ("n", integers([1])),
            ("b", integers([2])),
            ("a", integers([1 << 40])),
        ];
        lake.table(&new, wide);
        let sql = "SELECT a, coalesce(b, -1) AS b, n FROM rows";
        let found = counts(&lake, "\"in/\"", sql);
        assert_eq!(found, [row("7", "-1", 7), row("1099511627776", "2", 1)]);
    }
    let lake = Lake::new();
    write_row(&lake, "in/1.parquet", 1, 1, 1);
    let text = Arc::new(StringArray::from(vec!["x"])) as ArrayRef;
    lake.table(
        "in/2.parquet",
        vec![("a", text), ("b", integers([1])), ("n", integers([1]))],
    );
    let ran = pipeline(&lake, "\"in/\"", "SELECT * FROM rows").call("check", &[]);
    ran.fails(
        1,
        "table `rows`: its files do not agree on the columns: `a` holds whole numbers in ",
    );
    ran.fails(1, "in/1.parquet and text");
    ran.fails(1, "in/2.parquet");
}

#[test]
fn csv_json_and_arrow_are_read() {
    let lake = Lake::new();
    lake.file("rows.csv", "a,b,n\n1,2,3\n4,5,6\n");
    lake.file("rows.tsv", "a\tb\tn\n1\t2\t3\n4\t5\t6\n");
    let json = "{\"a\": 1, \"b\": 2, \"n\": 3}\n{\"a\": 4, \"b\": 5, \"n\": 6}\n";
    lake.file("rows.json", json).file("rows.ndjson", json);
    let rows = arrow::array::RecordBatch::try_from_iter([
        ("a", integers([1, 4])),
        ("b", integers([2, 5])),
        ("n", integers([3, 6])),
    ]);
    let rows = rows.expect("columns of one length");
    let file = std::fs::File::create(lake.path("rows.arrow")).expect("a file");
    let mut writer =
        arrow::ipc::writer::FileWriter::try_new(file, &rows.schema()).expect("a writer");
    writer
        .write(&rows)
        .and_then(|()| writer.finish())
        .expect("rows are written");
    for ending in ["csv", "tsv", "json", "ndjson", "arrow"] {
        let found = counts(&lake, &format!("\"rows.{ending}\""), "SELECT * FROM rows");
        assert_eq!(found, [row("1", "2", 3), row("4", "5", 6)], "{ending}");
    }
}

/// Input that would be incomplete or ambiguous is refused.
#[test]
fn incompatible_files_are_named() {
    let lake = Lake::new();
    write_row(&lake, "in/x=1/a.parquet", 1, 1, 1);
    write_row(&lake, "in/b.parquet", 1, 1, 1);
    write_row(&lake, "delta/a.parquet", 1, 1, 1);
    std::fs::create_dir_all(lake.path("delta/_delta_log")).expect("a folder");
    lake.file("delta/_delta_log/00000000000000000000.json", "{}");
    std::fs::create_dir_all(lake.path("empty")).expect("a folder");
    lake.file("empty/x.parquet", "");
    let cases = [
        (
            "\"in/\"",
            "table `rows`: its files are in different Hive folders: ",
        ),
        ("\"delta/\"", "delta/ is a Delta table"),
        (
            "\"empty/\"",
            "empty/x.parquet is empty, so it is not a parquet file",
        ),
        (
            "[\"in/b.parquet\", \"memory:///b.parquet\"]",
            "its paths are in several stores (file:/// and memory://",
        ),
        ("\"memory:///gone/\"", "no .parquet file at memory:///gone/"),
        (
            "\"memory:///gone.parquet\"",
            "no .parquet file at memory:///gone.parquet",
        ),
    ];
    for (path, message) in cases {
        let ran = pipeline(&lake, path, "SELECT * FROM rows").call("check", &[]);
        ran.fails(1, message);
    }
}
