//! The tables of the guides that lead from each statement of a paper to the program: a place or a
//! key, columns of the result, and tests.

use crate::lake::files_below;
use crate::pages::PAGES;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The pages with such tables, and the number of tables on each.
const TABLES: [(&str, usize); 4] = [
    ("src/guide/filters.md", 1),
    ("src/guide/methods.md", 1),
    ("src/guide/points.md", 2),
    ("src/guide/sequences.md", 1),
];

const TITLE: &str = "\n## Paper and program";

const HEADER: &str = "| paper | in the program | result | tests |";

/// The fewest rows of a table. The shortest paper has more statements.
const ROWS: usize = 25;

/// What a page has under one of these titles, up to the next title.
fn sections(text: &str) -> Vec<&str> {
    let rest = text.split(TITLE).skip(1);
    rest.map(|rest| rest.split("\n## ").next().unwrap_or(rest))
        .collect()
}

/// The cells of the rows of a section, without the header.
fn rows(section: &str) -> Vec<Vec<&str>> {
    let lines = section.lines().filter(|line| line.starts_with("| "));
    let cells = lines.map(|line| {
        let line = line.trim_start_matches('|').trim_end_matches('|');
        line.split(" | ").map(str::trim).collect()
    });
    cells.skip(1).collect()
}

/// What a cell has between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

/// The names of all tests of `src` and `tests`.
fn tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["src", "tests/it"].map(|folder| files_below(&root.join(folder)));
    let mut found = BTreeSet::new();
    for path in folders.into_iter().flatten() {
        if path.extension().is_none_or(|ending| ending != "rs") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a source file");
        let parts = text.split("#[test]").skip(1);
        let asynchronous = text.split("#[tokio::test").skip(1);
        for part in parts.chain(asynchronous) {
            let (_, rest) = part.split_once("fn ").expect("a function");
            let name = rest.split(['(', '<']).next().expect("a name");
            found.insert(name.to_string());
        }
    }
    found
}

/// The columns of each table in the guide to columns, those of all kinds of rows together.
fn columns() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let mut pages = PAGES.iter();
    let page = pages.find(|page| page.path == "src/guide/columns.md");
    let sections = page.expect("the guide to columns").text;
    let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for section in sections.split("\n### ").skip(1) {
        let (title, rest) = section.split_once('\n').expect("a title");
        let lines = rest.lines().filter(|line| line.starts_with("| `"));
        let first = lines.filter_map(|line| line.split(" | ").next());
        let names: BTreeSet<&str> = first.flat_map(quoted).collect();
        for table in quoted(title) {
            found.entry(table).or_default().extend(&names);
        }
    }
    found
}

/// Each row names a place or says what is missing, and names tests or says why there are none.
#[test]
fn every_statement_of_a_paper_has_a_place_and_a_test_or_a_reason() {
    let tests = tests();
    assert!(tests.len() > 500, "{}", tests.len());
    let columns = columns();
    let mut wrong = Vec::new();
    for (path, n) in TABLES {
        let page = PAGES.iter().find(|page| page.path == path);
        let sections = sections(page.expect("a page").text);
        assert_eq!(sections.len(), n, "{path}");
        for section in sections {
            assert!(section.contains(HEADER), "{path}");
            let rows = rows(section);
            assert!(rows.len() >= ROWS, "{path}: {} rows", rows.len());
            for cells in rows {
                let [paper, place, result, proof] = cells[..] else {
                    wrong.push(format!("{path}: not four cells in {cells:?}"));
                    continue;
                };
                if [paper, place, result, proof].contains(&"") {
                    wrong.push(format!("{path}: an empty cell beside {paper}"));
                }
                for name in quoted(result) {
                    let (table, column) = name.split_once('.').unwrap_or((name, ""));
                    let known = columns.get(table);
                    let is_known =
                        |known: &BTreeSet<&str>| column.is_empty() || known.contains(column);
                    if !known.is_some_and(is_known) {
                        wrong.push(format!("{path}: {paper}: no column {name}"));
                    }
                }
                let names = quoted(proof);
                if names.is_empty() && !proof.starts_with("none: ") {
                    wrong.push(format!("{path}: {paper}: neither a test nor a reason"));
                }
                let missing = names.iter().filter(|name| !tests.contains(**name));
                wrong.extend(missing.map(|name| format!("{path}: {paper}: no test {name}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
