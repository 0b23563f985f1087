//! What tables and columns mean, read from the guide page on tables.
//!
//! The page says what each table has one row per, in a table `| table | one row per |`. It explains
//! columns in paragraphs that begin with the name of a table in bold: a name in backticks is
//! followed by its meaning in parentheses, after a colon in a list, or in the next cell of a table.

use std::collections::BTreeMap;

const PAGE: &str = include_str!("../guide/tables.md");

/// The meanings of tables and columns.
pub struct Meanings {
    tables: BTreeMap<String, String>,
    columns: BTreeMap<(String, String), String>,
}

impl Meanings {
    /// Reads the page.
    pub fn new() -> Meanings {
        let mut tables = BTreeMap::new();
        let mut columns = BTreeMap::new();
        let mut table = String::new();
        let mut lists_tables = false;
        for line in PAGE.lines() {
            if line.starts_with("## ") {
                table = match line {
                    "## Metrics of `fits`" => "fits".to_string(),
                    _ => String::new(),
                };
            }
            let row = cells(line);
            if let Some([first, second]) = row {
                if first == "table" {
                    lists_tables = true;
                } else if lists_tables {
                    for name in names(first) {
                        tables.entry(name).or_insert_with(|| plain(second));
                    }
                } else if !second.starts_with('-') {
                    for name in names(first) {
                        columns
                            .entry((table.clone(), name))
                            .or_insert_with(|| plain(second));
                    }
                }
                continue;
            }
            lists_tables = false;
            if let Some(rest) = line.strip_prefix("**`")
                && let Some((name, _)) = rest.split_once('`')
            {
                table = name.to_string();
            }
            if let Some((name, meaning)) = bullet(line) {
                let key = (table.clone(), name);
                columns.entry(key).or_insert_with(|| plain(meaning));
                continue;
            }
            for (name, meaning) in in_parentheses(line) {
                let key = (table.clone(), name);
                columns.entry(key).or_insert_with(|| plain(&meaning));
            }
        }
        Meanings { tables, columns }
    }

    /// What a table has one row per.
    pub fn table(&self, name: &str) -> Option<&str> {
        self.tables.get(name).map(String::as_str)
    }

    /// What a column means; `fits` are the names that columns of fits begin with.
    pub fn column(&self, table: &str, name: &str, fits: &[String]) -> Option<&str> {
        let find = |name: &str| self.columns.get(&(table.to_string(), name.to_string()));
        let of_fit = || {
            // The longest name of a fit is the right one: `svd_soft_embedding` is not of `svd`.
            let fit = fits
                .iter()
                .filter(|fit| name.starts_with(&format!("{fit}_")))
                .max_by_key(|fit| fit.len())?;
            let pattern = format!("<fit>{}", &name[fit.len()..]);
            let of = |table: &str| self.columns.get(&(table.to_string(), pattern.clone()));
            // Targets have the columns of sources.
            of(table).or_else(|| of("sources"))
        };
        find(name).or_else(of_fit).map(String::as_str)
    }
}

impl Default for Meanings {
    fn default() -> Meanings {
        Meanings::new()
    }
}

/// The first two cells of a row of a table.
fn cells(line: &str) -> Option<[&str; 2]> {
    let mut cells = line.strip_prefix('|')?.split('|').map(str::trim);
    Some([cells.next()?, cells.next()?])
}

/// All names in backticks.
fn names(text: &str) -> Vec<String> {
    let parts = text.split('`').skip(1).step_by(2);
    parts.map(str::to_string).collect()
}

/// A name and its meaning in a list.
fn bullet(line: &str) -> Option<(String, &str)> {
    let (name, rest) = line.strip_prefix("- `")?.split_once('`')?;
    Some((name.to_string(), rest.strip_prefix(": ")?))
}

/// Names that are followed by their meaning in parentheses.
fn in_parentheses(line: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some((_, after)) = rest.split_once('`') {
        let Some((name, after)) = after.split_once('`') else {
            break;
        };
        rest = after;
        if let Some(inner) = after.strip_prefix(" (")
            && let Some(end) = closing(inner)
        {
            found.push((name.to_string(), inner[..end].to_string()));
        }
    }
    found
}

/// Where the parenthesis ends that is open.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    for (at, c) in text.char_indices() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The text of Markdown: its first sentence, without links and backticks.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        out.push_str(before);
        let Some((label, after)) = after.split_once(']') else {
            out.push('[');
            rest = after;
            continue;
        };
        out.push_str(label);
        rest = match after
            .strip_prefix('[')
            .and_then(|target| target.split_once(']'))
        {
            Some((_, after)) => after,
            None => after,
        };
    }
    out.push_str(rest);
    let out = out.replace('`', "");
    let first = out.split(". ").next().unwrap_or_default();
    first.trim_end_matches('.').to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meanings_stand_in_lists_parentheses_and_tables() {
        let all = Meanings::new();
        assert_eq!(all.table("sources"), Some("source state"));
        let fits = ["svd".to_string(), "svd_soft".to_string()];
        let of = |table: &str, name: &str| all.column(table, name, &fits).map(str::to_string);
        assert_eq!(
            of("sources", "svd_soft_embedding"),
            Some("r doubles".to_string())
        );
        assert_eq!(
            of("targets", "svd_embedding"),
            Some("r doubles".to_string())
        );
        assert_eq!(of("sets", "fit"), Some("the fit".to_string()));
        let restarts = of("restarts", "sources").expect("a meaning");
        assert_eq!(restarts, "all, or the sample that the restart used");
        assert!(of("fits", "objective").is_some());
        assert_eq!(of("sources", "unknown"), None);
    }
}
