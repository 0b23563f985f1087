//! What a person says of a table, in place of what its columns say.

use crate::error::{Error, Result, escaped, hint};
use crate::read::formats::format::Format;

/// What a row of a table is.
// The comments are help texts of the option `--kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum RowKind {
    /// A row of a trajectory: at a time, with a state or coordinates
    Transitions,
    /// A source and a target
    Pairs,
    /// A point with coordinates
    Points,
    /// A row of a trajectory that shows a symbol
    Sequences,
    /// A row of a trajectory with a measurement of a state, which is known of these rows
    #[value(name = "filters")]
    Measured,
}

/// Roles of columns, a kind of rows and the form of the files, as far as options say them.
#[derive(Debug, Clone, Default)]
pub(crate) struct GivenRoles {
    pub kind: Option<RowKind>,
    pub time: Option<String>,
    pub trajectory: Option<String>,
    pub state: Vec<String>,
    pub coordinates: Vec<String>,
    pub symbol: Option<String>,
    pub observation: Vec<String>,
    pub source: Option<String>,
    pub target: Option<String>,
    pub count: Option<String>,
    pub id: Option<String>,
    /// The lag as the pipeline has it: a whole number, a duration or a number of steps.
    pub lag: Option<String>,
    pub delimiter: Option<char>,
    pub format: Option<Format>,
    pub header: Option<bool>,
}

impl GivenRoles {
    /// The options that name columns, with these.
    fn options(&self) -> [(&'static str, Vec<&String>); 10] {
        [
            ("--time", self.time.iter().collect()),
            ("--trajectory", self.trajectory.iter().collect()),
            ("--state", self.state.iter().collect()),
            ("--coordinates", self.coordinates.iter().collect()),
            ("--symbol", self.symbol.iter().collect()),
            ("--observation", self.observation.iter().collect()),
            ("--source", self.source.iter().collect()),
            ("--target", self.target.iter().collect()),
            ("--count", self.count.iter().collect()),
            ("--id", self.id.iter().collect()),
        ]
    }

    /// Whether an option decides what the pipeline says.
    pub(crate) fn is_any(&self) -> bool {
        self.lag.is_some() || self.options().iter().any(|(_, names)| !names.is_empty())
    }

    /// Checks that the columns exist.
    ///
    /// # Errors
    /// The option whose column the table does not have.
    pub(crate) fn check_columns(&self, columns: &[&str]) -> Result<()> {
        for (option, names) in self.options() {
            if let Some(name) = names
                .into_iter()
                .find(|name| !columns.contains(&name.as_str()))
            {
                let hint = hint(name, columns);
                let name = escaped(name);
                let what = format!("{option}: the table has no column `{name}`{hint}");
                return Err(Error::spec(what));
            }
        }
        Ok(())
    }

    /// The kind of rows that the options mean, if they mean one.
    pub(crate) fn row_kind(&self) -> Option<RowKind> {
        let is_pair = self.source.is_some() || self.target.is_some() || self.count.is_some();
        let is_filter = !self.observation.is_empty();
        let is_state = !self.state.is_empty() || self.lag.is_some();
        match self.kind {
            Some(kind) => Some(kind),
            None if is_pair => Some(RowKind::Pairs),
            None if self.symbol.is_some() => Some(RowKind::Sequences),
            None if is_filter => Some(RowKind::Measured),
            None if self.id.is_some() => Some(RowKind::Points),
            None if is_state => Some(RowKind::Transitions),
            None => None,
        }
    }

    /// Whether an option says that rows belong to trajectories.
    pub(crate) fn has_order(&self) -> bool {
        self.time.is_some() || self.trajectory.is_some()
    }

    /// Checks that each option has a meaning for rows of a kind.
    ///
    /// # Errors
    /// The first option without one.
    pub(crate) fn check_kind(&self, kind: RowKind) -> Result<()> {
        let (name, allowed): (&str, &[&str]) = match kind {
            RowKind::Transitions => (
                "transitions",
                &["--time", "--trajectory", "--state", "--coordinates"],
            ),
            RowKind::Pairs => ("pairs", &["--source", "--target", "--count"]),
            RowKind::Points => ("points", &["--id", "--coordinates"]),
            RowKind::Sequences => ("sequences", &["--time", "--trajectory", "--symbol"]),
            RowKind::Measured => (
                "filters",
                &["--time", "--trajectory", "--state", "--observation"],
            ),
        };
        let mut options = self.options().into_iter();
        let wrong = options.find(|(option, names)| !names.is_empty() && !allowed.contains(option));
        let lag = self.lag.as_ref().filter(|_| kind != RowKind::Transitions);
        let wrong = wrong.map(|(option, _)| option).or(lag.map(|_| "--lag"));
        match wrong {
            None => Ok(()),
            Some(option) => Err(Error::spec(format!(
                "{option} has no meaning for rows of the kind `{name}`, which take {}",
                allowed.join(", ")
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_mean_a_kind_of_rows() {
        let time = || GivenRoles {
            time: Some("t".into()),
            ..GivenRoles::default()
        };
        assert!(time().has_order() && time().row_kind().is_none());
        let symbols = GivenRoles {
            symbol: Some("s".into()),
            ..time()
        };
        assert_eq!(symbols.row_kind(), Some(RowKind::Sequences));
        assert!(symbols.check_kind(RowKind::Sequences).is_ok());
        let error = symbols.check_kind(RowKind::Pairs).expect_err("no time");
        assert!(
            error.to_string().contains("--time has no meaning"),
            "{error}"
        );
        let error = symbols.check_columns(&["t", "ss"]).expect_err("no `s`");
        assert!(
            error
                .to_string()
                .contains("--symbol: the table has no column `s`"),
            "{error}"
        );
        assert_eq!(GivenRoles::default().row_kind(), None);
    }
}
