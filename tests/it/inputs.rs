//! Files of every kind, layout and name: folders, Hive folders, globs, lists of paths, and columns
//! that differ between files.

use crate::cli::integers;
use crate::lake::{Lake, Swap, cases, texts};
use crate::paths::{ROWS, text, write_pair};

fn pipeline<'a>(lake: &'a Lake, path: &str, sql: &str) -> &'a Lake {
    lake.file("p.toml", &text(path, "out").swap(ROWS, sql))
}

/// The counts (a, b, n) for a path and a query.
fn counts(lake: &Lake, path: &str, sql: &str) -> Vec<(String, String, i64)> {
    pipeline(lake, path, sql)
        .line("run p.toml --force")
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

#[test]
fn filters_on_hive_folders_leave_files_unread() {
    let lake = Lake::new();
    for (year, month) in [(2024, 11), (2024, 12), (2025, 1), (2025, 2)] {
        let name = format!("lake/year={year}/month={month}/a.parquet");
        // With two values per file, the footer does not contain the values.
        let rows = [[year, month, 1], [year + 1, month + 1, 2]];
        lake.integers(&name, ["a", "b", "n"], rows);
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
    let all = pipeline(&lake, "\"lake/\"", "SELECT a, b, n FROM rows").line("run p.toml --force");
    all.fails(1, "");
}

#[test]
fn globs_lists_and_unicode_names_are_read() {
    let lake = Lake::new();
    write_pair(&lake, "in/a b.parquet", 1, 1, 1);
    write_pair(&lake, "in/100%25.parquet", 2, 2, 2);
    write_pair(&lake, "in/ü#&+.parquet", 3, 3, 3);
    write_pair(&lake, "in/x=y é %41/z.parquet", 4, 4, 4);
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
    write_pair(&lake, "in/place=S%C3%A3o Paulo/x.parquet", 1, 1, 1);
    write_pair(&lake, "in/place=Köln/x.parquet", 2, 2, 2);
    // The column of a Hive folder replaces a column of the same name in the files.
    let columns = ["place", "a", "b", "n"];
    lake.integers("in/place=7/x.parquet", columns, [[8, 3, 3, 3]]);
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
fn columns_of_texts_and_numbers_are_no_columns() {
    let lake = Lake::new();
    write_pair(&lake, "in/1.parquet", 1, 1, 1);
    let text = texts(vec!["x"]);
    lake.table(
        "in/2.parquet",
        vec![("a", text), ("b", integers([1])), ("n", integers([1]))],
    );
    let ran = pipeline(&lake, "\"in/\"", "SELECT * FROM rows").call("check", &[]);
    let message =
        "table `rows`: its files do not agree on the columns: `a` holds whole numbers in ";
    ran.fails(1, message);
    ran.fails(1, "in/1.parquet and text");
    ran.fails(1, "in/2.parquet");
}

/// Input that would be incomplete or ambiguous is refused.
#[test]
fn incompatible_files_are_named() {
    let lake = Lake::new();
    write_pair(&lake, "in/x=1/a.parquet", 1, 1, 1);
    write_pair(&lake, "in/b.parquet", 1, 1, 1);
    write_pair(&lake, "delta/a.parquet", 1, 1, 1);
    std::fs::create_dir_all(lake.path("delta/_delta_log")).expect("a folder");
    lake.file("delta/_delta_log/00000000000000000000.json", "{}");
    std::fs::create_dir_all(lake.path("empty")).expect("a folder");
    lake.file("empty/x.parquet", "");
    let table = r#"
        "in/" | table `rows`: its files are in different Hive folders:\s
        "empty/" | empty/x.parquet is empty, so it is not a parquet file
        ["in/b.parquet", "memory:///b.parquet"] | its paths are in several stores (file:/// and memory://
        "memory:///gone/" | no .parquet file at memory:///gone/
        "memory:///gone.parquet" | no .parquet file at memory:///gone.parquet
    "#;
    for [path, message] in cases(table) {
        let ran = pipeline(&lake, &path, "SELECT * FROM rows").call("check", &[]);
        ran.fails(1, &message);
    }
    // The pipeline file has to change, not the input.
    let ran = pipeline(&lake, "\"delta/\"", "SELECT * FROM rows").call("check", &[]);
    ran.fails(2, "delta/ is a Delta table");
}
