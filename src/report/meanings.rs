//! What tables and columns mean, read from the guide page on columns.
//!
//! The page has a section per kind of rows, and in it a part per table with a table `| column |
//! unit | meaning |`. In the name of a column, `<fit>` stands for the name of a fit, and other
//! words in angle brackets for any text.

use crate::error::Result;
use crate::report::model::columns_of;
use crate::report::tables::Tables;
use std::collections::BTreeMap;

const PAGE: &str = include_str!("../guide/columns.md");

/// The section on the columns that begin every table.
const EVERY: &str = "Columns that begin every table";

/// The section on the rows that a result is made from.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn section_of(tables: &Tables) -> Result<&'static str> {
    // Each kind has a column that no other has; assignments have no fits.
    for (table, column, section) in [
        ("fits", "n_symbols", "Sequences"),
        ("fits", "rule", "Filters"),
        ("fits", "kernel_points", "Points"),
        ("fits", "n_sources", "Transitions"),
        ("trajectories", "unseen", "Sequences"),
        ("trajectories", "missing", "Filters"),
        ("points", "", "Points"),
        ("predictions", "", "Sequences"),
        ("estimates", "", "Filters"),
    ] {
        if !tables.has(table) {
            continue;
        }
        let columns = columns_of(tables, table)?;
        if column.is_empty() || columns.iter().any(|name| name == column) {
            return Ok(section);
        }
    }
    Ok("New rows of transitions")
}

/// What a column holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meaning {
    /// The column as the page writes it, such as `<fit>_embedding`.
    pub pattern: String,
    /// Its unit; empty if it has none.
    pub unit: String,
    /// What it means.
    pub text: String,
}

/// The meanings of the tables and columns of one kind of result.
pub struct Meanings {
    tables: BTreeMap<String, String>,
    columns: BTreeMap<String, Vec<Meaning>>,
    every: Vec<Meaning>,
}

impl Meanings {
    /// Reads a section of the page.
    pub fn new(of: &str) -> Meanings {
        let mut all = Meanings {
            tables: BTreeMap::new(),
            columns: BTreeMap::new(),
            every: Vec::new(),
        };
        let (mut section, mut tables) = ("", Vec::new());
        for line in PAGE.lines() {
            if let Some(title) = line.strip_prefix("## ") {
                (section, tables) = (title, Vec::new());
            } else if let Some(title) = line.strip_prefix("### ") {
                tables = names(title);
            } else if section == EVERY {
                all.every.extend(meanings(line));
            } else if section == of {
                if let Some(per) = line.strip_prefix("One row per ") {
                    let per = plain(per.trim_end_matches('.'));
                    let own = tables.iter().map(|table| (table.clone(), per.clone()));
                    all.tables.extend(own);
                }
                for table in &tables {
                    let own = all.columns.entry(table.clone()).or_default();
                    own.extend(meanings(line));
                }
            }
        }
        all
    }

    /// What a table has one row per.
    pub fn table(&self, name: &str) -> Option<&str> {
        self.tables.get(name).map(String::as_str)
    }

    /// What a column means. `fits` are the names that columns of fits begin with, and `partition`
    /// those of the partition columns.
    pub fn column(
        &self,
        table: &str,
        name: &str,
        fits: &[String],
        partition: &[String],
    ) -> Option<&Meaning> {
        let every = |pattern: &str| self.every.iter().find(|m| m.pattern == pattern);
        let is_key = partition.iter().any(|key| key == name);
        let key = || every("<partition>").filter(|_| is_key);
        if let Some(found) = every(name).or_else(key) {
            return Some(found);
        }
        let known = self.columns.get(table)?.iter();
        let matched = known.filter_map(|m| Some((matching(&m.pattern, name, fits)?, m)));
        // The pattern with most letters in common is the right one.
        let best = matched.max_by_key(|(letters, _)| *letters);
        best.map(|(_, meaning)| meaning)
    }
}

/// The number of letters that a pattern and a name have in common; nothing if they do not match.
fn matching(pattern: &str, name: &str, fits: &[String]) -> Option<usize> {
    if let Some(rest) = pattern.strip_prefix("<fit>")
        && !fits.is_empty()
    {
        let of = |fit: &String| {
            let name = name.strip_prefix(fit.as_str())?;
            Some(fit.len() + matching(rest, name, fits)?)
        };
        return fits.iter().filter_map(of).max();
    }
    if pattern.starts_with('<') {
        let (_, rest) = pattern.split_once('>')?;
        if rest.is_empty() {
            return (!name.is_empty()).then_some(0);
        }
        let ends = name.char_indices().skip(1);
        let found = ends.filter_map(|(at, _)| matching(rest, &name[at..], fits));
        return found.max();
    }
    let end = pattern.find('<').unwrap_or(pattern.len());
    let (letters, rest) = pattern.split_at(end);
    let name = name.strip_prefix(letters)?;
    if rest.is_empty() {
        return name.is_empty().then_some(letters.len());
    }
    Some(letters.len() + matching(rest, name, fits)?)
}

/// The columns that a row of a table explains.
fn meanings(line: &str) -> Vec<Meaning> {
    let cells = line.strip_prefix('|').unwrap_or_default().split('|');
    let cells = cells.map(str::trim).collect::<Vec<_>>();
    let &[columns, unit, text, ..] = cells.as_slice() else {
        return Vec::new();
    };
    let unit = if unit == "none" { "" } else { unit };
    let of = |pattern: String| Meaning {
        pattern,
        unit: plain(unit),
        text: plain(text),
    };
    names(columns).into_iter().map(of).collect()
}

/// All names in backticks.
fn names(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_string).collect()
}

/// The text of Markdown, without links and backticks.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let label = after
            .split_once("][")
            .and_then(|(label, rest)| Some((label, rest.split_once(']')?.1)));
        match label {
            Some((label, after)) if !label.contains([']', '`']) => {
                out.push_str(label);
                rest = after;
            }
            _ => {
                out.push('[');
                rest = after;
            }
        }
    }
    out.push_str(rest);
    out.replace('`', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(section: &str, table: &str, name: &str) -> Option<[String; 2]> {
        let fits = ["svd".to_string(), "svd_soft".to_string()];
        let all = Meanings::new(section);
        let found = all.column(table, name, &fits, &["year".to_string()])?;
        Some([found.pattern.clone(), found.unit.clone()])
    }

    #[test]
    fn columns_are_found_by_their_patterns() {
        let of = |table: &str, name: &str| {
            let [pattern, unit] = text("Transitions", table, name).expect("a meaning");
            format!("{pattern} ({unit})")
        };
        assert_eq!(of("sources", "svd_soft_embedding"), "<fit>_embedding ()");
        let time = "<fit>_t<time>_embedding ()";
        assert_eq!(of("targets", "svd_t16_embedding"), time);
        assert_eq!(of("sources", "lon_low"), "<column>_low (of the SQL)");
        assert_eq!(of("sources", "lon"), "<column> (of the SQL)");
        assert_eq!(of("sources", "year"), "<partition> (of the SQL)");
        assert_eq!(of("coarse", "lag_seconds"), "lag_seconds (s)");
        let pair = "source_<column> (of the SQL)";
        assert_eq!(of("counts", "source_state"), pair);
        assert_eq!(of("restarts", "sources"), "sources (states)");
        assert_eq!(text("Transitions", "fits", "unknown"), None);
        assert_eq!(text("Points", "sources", "count"), None);
    }

    #[test]
    fn one_table_means_different_things_for_different_rows() {
        let noise = |section| {
            Meanings::new(section)
                .table("trajectories")
                .map(str::to_string)
        };
        assert_eq!(noise("Transitions"), None);
        assert_ne!(noise("Filters"), noise("New rows of transitions"));
        let all = Meanings::new("Transitions");
        let per = "fit and rank; where ranks are compared, see Number of sets";
        assert_eq!(all.table("ranks"), Some(per));
    }
}
