//! Which tables a run writes: all, unless `output.tables` or `output.without` leave some out.
//!
//! Later commands read some tables: `gyre assign`, `gyre compare`, the next run. These are always
//! written. The tables of rows follow `output.rows`.

use crate::error::{hint, nearest};
use crate::output::tables::table::Table;
use crate::plan::pipeline::keys::OutputTables;
use crate::read::rows::layout::{Measure, RowRoles};

/// The tables of a run over one kind of rows.
pub(crate) struct TableNames {
    /// All of them.
    pub(crate) all: Vec<&'static str>,
    /// Those that can be left out.
    pub(crate) optional: &'static [&'static str],
    /// Those that another key of the pipeline file asks for.
    pub(crate) asked: &'static [&'static str],
}

impl TableNames {
    /// Checks the name of a table in `output.tables`.
    ///
    /// # Errors
    /// The reason why it is wrong.
    pub(crate) fn check(&self, name: &str) -> Result<(), String> {
        if self.all.contains(&name) {
            return Ok(());
        }
        let hint = match nearest(name, &self.all) {
            Some(_) => hint(name, &self.all),
            None => format!("the tables of this run are {}", self.all.join(", ")),
        };
        Err(format!("there is no table `{name}`; {hint}"))
    }

    /// Checks the name of a table in `output.without`.
    ///
    /// # Errors
    /// The reason why it is wrong, or why the table cannot be left out.
    pub(crate) fn check_without(&self, name: &str) -> Result<(), String> {
        self.check(name)?;
        if self.optional.contains(&name) {
            return Ok(());
        }
        if self.asked.contains(&name) {
            let what = "is not written unless other keys ask for it: see `output.rows`";
            return Err(format!("the table `{name}` {what}"));
        }
        let optional = self.optional.join(", ");
        Err(format!(
            "later commands read the table `{name}`, so it is always written; these can be left out: {optional}"
        ))
    }
}

/// Whether the counts repeat the input, because it has a column of counts or weights.
pub(crate) fn repeats(evidence: &RowRoles) -> bool {
    matches!(evidence, RowRoles::Pairs { measure, .. } if !matches!(measure, Measure::One))
}

/// The tables of `optional` that a run does not write. By default it writes no counts if they
/// repeat the input.
pub(crate) fn left_out(
    output: &OutputTables,
    optional: &[&'static str],
    repeats: bool,
) -> Vec<&'static str> {
    let has = |names: &[String], table: &str| names.iter().any(|name| name == table);
    let is_left_out = |table: &&&str| {
        let is_wanted = match &output.tables {
            Some(names) => has(names, table),
            None => !(repeats && **table == Table::Counts.name()),
        };
        !is_wanted || has(&output.without, table)
    };
    optional.iter().filter(is_left_out).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::tables::{observations, points, symbols};

    fn of(tables: Option<&[&str]>, without: &[&str]) -> Vec<&'static str> {
        let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
        let output = OutputTables {
            tables: tables.map(owned),
            without: owned(without),
            ..OutputTables::default()
        };
        left_out(&output, &observations::OPTIONAL, false)
    }

    #[test]
    fn tables_are_written_unless_they_are_left_out() {
        assert!(of(None, &[]).is_empty());
        assert_eq!(of(None, &["tuning"]), ["tuning"]);
        assert_eq!(of(Some(&["tuning", "fits"]), &[]), ["certificates"]);
        assert_eq!(of(Some(&[]), &[]), ["tuning", "certificates"]);
        let both = of(Some(&["tuning"]), &["tuning"]);
        assert_eq!(both, ["tuning", "certificates"]);
    }

    #[test]
    fn optional_tables_are_tables() {
        let all = Table::ALL.map(Table::name);
        assert!(Table::OPTIONAL.iter().all(|name| all.contains(name)));
        let of = |all: &[&str], optional: &[&str]| optional.iter().all(|name| all.contains(name));
        assert!(of(&points::TABLES, &points::OPTIONAL));
        assert!(of(&symbols::TABLES, &symbols::OPTIONAL));
        assert!(of(&observations::TABLES, &observations::OPTIONAL));
    }
}
