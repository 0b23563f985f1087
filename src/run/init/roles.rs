//! Columns → the roles that they can have: by name, then by type, then by value.

use crate::error::{Error, Result};
use crate::run::init::names::{Role, fit};
use crate::run::init::survey::{Survey, SurveyColumn, ValueKind};
use crate::run::init::times::{Steps, Ties, repeats, steps, ties};
use std::cmp::Reverse;

/// The order of rows in trajectories.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Order {
    /// The columns of the trajectory; maybe none.
    pub trajectory: Option<String>,
    /// The column of the time.
    pub time: String,
    /// Whether the time is a date or a timestamp.
    pub is_clock: bool,
    /// Several rows of a trajectory at one time, if there are some.
    pub ties: Option<Ties>,
    /// How the times of a trajectory differ; none if every trajectory has one row.
    pub steps: Option<Steps>,
}

impl Order {
    /// The columns of trajectory and time.
    pub(crate) fn columns(&self) -> impl Iterator<Item = &String> {
        let second = self.ties.iter().map(|ties| &ties.order);
        self.trajectory.iter().chain([&self.time]).chain(second)
    }
}

/// The error if no column looks like `what`.
pub(crate) fn missing(survey: &Survey, what: &str) -> Error {
    let columns = survey.columns.iter();
    let columns = columns.map(|column| format!("`{}` ({})", column.name, column.data_type));
    let columns: Vec<String> = columns.collect();
    Error::input(format!(
        "no column looks like {what}; the columns are {}. Choose another --kind, or write the pipeline by hand",
        columns.join(", ")
    ))
}

/// The column whose name fits a role best, among those of some kinds of values.
pub(crate) fn by_name<'a>(
    survey: &'a Survey,
    role: Role,
    kinds: &[ValueKind],
) -> Option<&'a SurveyColumn> {
    let columns = survey.columns.iter().enumerate();
    let columns = columns.filter(|(_, column)| kinds.contains(&column.kind));
    let scored = columns.map(|(at, column)| (fit(&column.name, role), at, column));
    let scored = scored.filter(|(score, ..)| *score > 0);
    let best = scored.max_by_key(|(score, at, _)| (*score, Reverse(*at)));
    best.map(|(.., column)| column)
}

/// Kinds of values that are names of things.
pub(crate) const KEYS: [ValueKind; 2] = [ValueKind::Text, ValueKind::Integer];
/// Kinds of values that are numbers.
pub(crate) const NUMBERS: [ValueKind; 2] = [ValueKind::Float, ValueKind::Integer];

/// The columns of the source and the target, of one type.
pub(crate) fn ends(survey: &Survey) -> Option<(&SurveyColumn, &SurveyColumn)> {
    let source = by_name(survey, Role::Source, &KEYS)?;
    let target = by_name(survey, Role::Target, &KEYS)?;
    (source.name != target.name && source.kind == target.kind).then_some((source, target))
}

/// The column of the time: by name among dates, timestamps and whole numbers, else the first column
/// of dates or timestamps.
pub(crate) fn time(survey: &Survey) -> Option<&SurveyColumn> {
    let kinds = [ValueKind::Time, ValueKind::Integer];
    let clocks = || survey.columns.iter().filter(|c| c.kind == ValueKind::Time);
    let named = by_name(survey, Role::Time, &[ValueKind::Time]);
    named
        .or_else(|| clocks().next())
        .or_else(|| by_name(survey, Role::Time, &kinds))
}

/// A column of other numbers that is called a time, if no column can be one.
pub(crate) fn float_time(survey: &Survey) -> Option<&SurveyColumn> {
    match time(survey) {
        Some(_) => None,
        None => by_name(survey, Role::Time, &[ValueKind::Float]),
    }
}

/// The order of the rows: a time, and the column that makes it differ from row to row.
pub(crate) fn order(survey: &Survey) -> Result<Order> {
    let time = time(survey).ok_or_else(|| match float_time(survey) {
        Some(column) => Error::input(format!(
            "times are dates, timestamps or whole numbers, and `{}` is {}; make whole numbers of it in SQL, such as CAST(round(1000 * t) AS BIGINT), and write the pipeline by hand",
            column.name, column.data_type
        )),
        None => missing(
            survey,
            "a time: a date, a timestamp, or whole numbers with a name such as `time`",
        ),
    })?;
    let is_candidate = |column: &&SurveyColumn| {
        KEYS.contains(&column.kind)
            && column.name != time.name
            && column.nulls() == 0
            && !survey.partitions.contains(&column.name)
    };
    let mut all: Vec<(usize, usize, &SurveyColumn)> = (survey.columns.iter().enumerate())
        .filter(|(_, column)| is_candidate(column))
        .map(|(at, column)| (fit(&column.name, Role::Trajectory), at, column))
        .collect();
    // A name that says so comes first, then few long trajectories before many short ones.
    all.sort_by_key(|(score, at, column)| (Reverse(*score), column.distinct(), *at));
    let (candidates, repeating): (Vec<_>, Vec<_>) = all
        .into_iter()
        .partition(|(.., column)| repeats(time, Some(column)) == 0);
    let is_alone = repeats(time, None) == 0;
    let is_named = |(score, _, column): &&(usize, usize, &SurveyColumn)| {
        *score > 0 && 2 * column.distinct() <= survey.rows
    };
    let named = candidates.first().filter(is_named);
    let is_order = |file: &&SurveyColumn| repeats(time, Some(file)) == 0;
    let file = survey.filename.as_ref().filter(is_order);
    let mut found = None;
    let tied = || {
        let mut tied = repeating.iter().filter(is_named);
        tied.find_map(|(.., column)| Some((*column, ties(survey, time, column)?)))
    };
    let trajectory = match named {
        Some((.., column)) => Some(*column),
        None if is_alone => None,
        // Each of several files is a trajectory.
        None if file.is_some() => file,
        None => match tied() {
            Some((column, ties)) => {
                found = Some(ties);
                Some(column)
            }
            None => Some(candidates.first().map(|(.., column)| *column).ok_or_else(|| {
                let message = format!(
                    "several rows have the same `{}`, and no other column tells their trajectories apart; make such a column in SQL and write the pipeline by hand",
                    time.name
                );
                Error::input(message)
            })?),
        },
    };
    Ok(Order {
        trajectory: trajectory.map(|column| column.name.clone()),
        time: time.name.clone(),
        is_clock: time.kind == ValueKind::Time,
        ties: found,
        steps: steps(time, trajectory),
    })
}

/// The column of the states: by name, else the column of texts or whole numbers with the fewest
/// values, of those whose values repeat.
pub(crate) fn state<'a>(survey: &'a Survey, order: &Order) -> Option<&'a SurveyColumn> {
    let is_taken = |name: &String| order.columns().any(|own| own == name);
    let mut columns: Vec<(usize, usize, &SurveyColumn)> = (survey.columns.iter().enumerate())
        .filter(|(_, column)| KEYS.contains(&column.kind) && !is_taken(&column.name))
        .filter(|(_, column)| column.distinct() >= 2 && 2 * column.distinct() <= survey.rows)
        .filter(|(_, column)| !survey.partitions.contains(&column.name))
        .map(|(at, column)| (fit(&column.name, Role::State), at, column))
        .collect();
    columns.sort_by_key(|(score, at, column)| (Reverse(*score), column.distinct(), *at));
    columns.first().map(|(.., column)| *column)
}

/// Columns of coordinates, the best first: longitude and latitude, then x, y and z, then other
/// numbers with few nulls.
pub(crate) fn coordinates<'a>(survey: &'a Survey, taken: &[&str]) -> Vec<&'a SurveyColumn> {
    if let Some(pair) = degrees(survey) {
        return pair.to_vec();
    }
    let is_coordinate = |column: &&SurveyColumn| {
        let is_named = fit(&column.name, Role::Coordinate) >= 100;
        let is_number =
            column.kind == ValueKind::Float || (is_named && column.kind == ValueKind::Integer);
        is_number
            && column.distinct() >= 3
            && 5 * column.nulls() <= survey.rows
            && !taken.contains(&column.name.as_str())
    };
    let all: Vec<&SurveyColumn> = survey.columns.iter().filter(is_coordinate).collect();
    let named = all.iter().filter(|c| fit(&c.name, Role::Coordinate) > 0);
    let named: Vec<&SurveyColumn> = named.copied().collect();
    if named.len() >= 2 { named } else { all }
}

/// The columns of longitude and latitude, if their values are degrees.
pub(crate) fn degrees(survey: &Survey) -> Option<[&SurveyColumn; 2]> {
    let longitude = by_name(survey, Role::Longitude, &NUMBERS)?;
    let latitude = by_name(survey, Role::Latitude, &NUMBERS)?;
    let is_within = |column: &SurveyColumn, low: f64, high: f64| {
        let mut values = column.numbers.iter().filter(|x| x.is_finite());
        values.all(|x| (low..=high).contains(x))
    };
    let fits = is_within(longitude, -180.0, 360.0) && is_within(latitude, -90.0, 90.0);
    fits.then_some([longitude, latitude])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::init::survey::tests::{survey, walks};

    #[test]
    fn the_trajectory_makes_times_unique() {
        let order = order(&survey(walks())).expect("an order");
        assert_eq!(order.trajectory.as_deref(), Some("who"));
        assert_eq!(order.time, "t");
        let steps = order.steps.expect("steps");
        assert_eq!((steps.most_frequent, steps.rows), (2.0, 4.0));
        assert!((steps.share - 5.0 / 6.0).abs() < 1e-12);
        let mut alone = walks();
        alone.remove(0);
        let error = super::order(&survey(alone)).expect_err("times repeat");
        assert!(error.to_string().contains("several rows have the same `t`"));
    }
}
