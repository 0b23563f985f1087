//! A proposal → the columns that it does not use, and why.

use crate::run::init::columns::{SurveyColumn, ValueKind};
use crate::run::init::proposal::{Proposal, State};
use crate::run::init::roles::{KEYS, NUMBERS, Order, follows_time};
use crate::run::init::survey::Survey;

/// Columns that a proposal does not use for one reason.
#[derive(Debug, PartialEq)]
pub(crate) struct LeftOut<'a> {
    /// The reason.
    pub why: &'static str,
    /// The names of the columns.
    pub columns: Vec<&'a str>,
}

/// The columns that a proposal does not use, by the reason.
pub(crate) fn left_out<'a>(survey: &'a Survey, proposal: &Proposal) -> Vec<LeftOut<'a>> {
    let used = proposal.columns();
    let mut all: Vec<LeftOut> = Vec::new();
    for column in &survey.columns {
        let name = column.name.as_str();
        // The columns of folders are in a comment of their own.
        if used.contains(&name) || survey.partitions.contains(&column.name) {
            continue;
        }
        let why = reason(survey, proposal, column);
        match all.iter_mut().find(|left| left.why == why) {
            Some(left) => left.columns.push(name),
            None => all.push(LeftOut {
                why,
                columns: vec![name],
            }),
        }
    }
    all
}

fn reason(survey: &Survey, proposal: &Proposal, column: &SurveyColumn) -> &'static str {
    let is_number = NUMBERS.contains(&column.kind);
    let is_key = KEYS.contains(&column.kind) && column.distinct() == survey.rows;
    let follows = |order: &Order| is_number && follows_time(survey, order, column, false);
    if column.kind == ValueKind::Other {
        return "they are no numbers, texts or times";
    }
    if column.distinct() <= 1 {
        return "they have one value";
    }
    if proposal.order().is_some_and(follows) {
        return "they only follow the time";
    }
    if is_key && survey.rows > 1 {
        return "they differ in every row";
    }
    if column.kind == ValueKind::Time {
        return "a row needs one time";
    }
    match proposal {
        Proposal::Pairs { .. } => "a pair needs a source, a target and one count",
        Proposal::Transitions {
            state: State::Boxes(_),
            ..
        } if is_number => "two coordinates make the boxes",
        Proposal::Transitions {
            state: State::Boxes(_),
            ..
        } => "boxes of coordinates are the states",
        Proposal::Transitions { .. } => "another column is the state",
        Proposal::Sequences { .. } => "another column is the symbol",
        Proposal::Measured { .. } => "other columns are the state and the measurement",
        Proposal::Points { .. } if !is_number => "coordinates are numbers",
        Proposal::Points { .. } if 5 * column.nulls() > survey.rows => "many rows have no value",
        Proposal::Points { .. } => "other columns are the coordinates",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::init::proposal::propose;
    use crate::run::init::survey::tests::{column, survey};

    #[test]
    fn each_column_is_used_or_has_a_reason() {
        let rows = |of: fn(i32) -> f64| -> Vec<f64> { (0..12).map(of).collect() };
        let of = |name: &str, kind, values: fn(i32) -> f64| column(name, kind, &rows(values));
        let table = survey(vec![
            of("row", ValueKind::Integer, |k| f64::from(k * k)),
            of("who", ValueKind::Integer, |k| f64::from(k / 6)),
            of("time", ValueKind::Integer, |k| f64::from(k % 6)),
            of("elapsed", ValueKind::Float, |k| 0.5 * f64::from(k % 6)),
            of("unit", ValueKind::Text, |_| 1.0),
            of("a", ValueKind::Float, |k| f64::from(k * 7 % 5)),
            of("b", ValueKind::Float, |k| f64::from(k * 5 % 7)),
            of("c", ValueKind::Float, |k| f64::from(k * 4 % 9)),
        ]);
        let proposal = propose(&table).expect("a proposal");
        let found = left_out(&table, &proposal);
        let found = found
            .iter()
            .flat_map(|left| left.columns.iter().map(move |name| (left.why, *name)));
        let expected = [
            ("they only follow the time", "row"),
            ("they only follow the time", "elapsed"),
            ("they have one value", "unit"),
            ("two coordinates make the boxes", "c"),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
