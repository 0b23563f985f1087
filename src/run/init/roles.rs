//! Columns → the roles that they can have: by name, then by type, then by value.

use crate::error::{Error, Result};
use crate::run::init::columns::{SurveyColumn, ValueKind};
use crate::run::init::names::{Role, are_ends, fit, is_no_amount, without_role};
use crate::run::init::survey::Survey;
use crate::run::init::times::{Steps, Ties, is_monotone, repeats, steps, ties};
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
        "no column looks like {what}; the columns are {}. Name columns with options such as --time, choose another --kind, or write the pipeline by hand",
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

/// The columns of the source and the target, of one type. Of several pairs, those come first whose
/// names differ only in the word of the role, such as `start_station` and `end_station`.
pub(crate) fn ends(survey: &Survey) -> Option<(&SurveyColumn, &SurveyColumn)> {
    let with_role = |role: Role, given: &Option<String>| -> Vec<(usize, &SurveyColumn)> {
        if let Some(name) = given {
            return survey.column(name).into_iter().map(|c| (1, c)).collect();
        }
        let keys = survey.columns.iter().filter(|c| KEYS.contains(&c.kind));
        let scored = keys.map(|column| (fit(&column.name, role), column));
        scored.filter(|(score, _)| *score > 0).collect()
    };
    let sources = with_role(Role::Source, &survey.given.source);
    let targets = with_role(Role::Target, &survey.given.target);
    let is_given = survey.given.source.is_some() && survey.given.target.is_some();
    let mut best: Option<((bool, usize), [&SurveyColumn; 2])> = None;
    for (from, source) in sources {
        for (to, target) in &targets {
            let is_pair = source.name != target.name && source.kind == target.kind;
            if !is_given && (!is_pair || is_interval(source, target)) {
                continue;
            }
            let rest = without_role(&source.name, Role::Source);
            let is_alike = rest == without_role(&target.name, Role::Target);
            let score = (is_alike, from + to);
            if best.is_none_or(|(before, _)| score > before) {
                best = Some((score, [source, *target]));
            }
        }
    }
    let named = best.map(|(_, [source, target])| (source, target));
    named.or_else(|| numbered_ends(survey))
}

/// Two columns such as `node1` and `node2`, in a table without a time. A count is none.
fn numbered_ends(survey: &Survey) -> Option<(&SurveyColumn, &SurveyColumn)> {
    let given = &survey.given;
    let is_count = |column: &SurveyColumn| {
        column.kind == ValueKind::Integer && fit(&column.name, Role::Count) > 0
    };
    let has_time = time(survey).is_some_and(|column| !is_count(column));
    if given.source.is_some() || given.target.is_some() || has_time {
        return None;
    }
    let keys = || survey.columns.iter().filter(|c| KEYS.contains(&c.kind));
    let mut pairs = keys().flat_map(|source| keys().map(move |target| (source, target)));
    pairs.find(|(source, target)| {
        let are_texts = source.kind == ValueKind::Text;
        source.kind == target.kind && are_ends(&source.name, &target.name, are_texts)
    })
}

/// Whether two columns are the start and the end of an interval, such as one of a genome.
fn is_interval(source: &SurveyColumn, target: &SurveyColumn) -> bool {
    let of = |column: &SurveyColumn, word: &str| column.name.to_lowercase().starts_with(word);
    let rows = || source.numbers.iter().zip(&target.numbers);
    let is_named = of(source, "start") && of(target, "end");
    is_named && rows().all(|(from, to)| from <= to) && rows().any(|(from, to)| from < to)
}

/// The columns of numbers beside a source and a target that may say how much a pair counts.
pub(crate) fn amounts<'a>(survey: &'a Survey, ends: [&str; 2]) -> Vec<&'a SurveyColumn> {
    let is_amount = |column: &&SurveyColumn| {
        let sorted = column.sorted();
        let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else {
            return false;
        };
        let is_row_number = column.distinct() == survey.rows
            && survey.rows > 2
            && high - low + 1.0 == survey.rows as f64;
        let roles = [Role::Longitude, Role::Latitude, Role::Coordinate];
        let is_place = roles.iter().any(|role| fit(&column.name, *role) > 0);
        NUMBERS.contains(&column.kind)
            && !ends.contains(&column.name.as_str())
            && !survey.partitions.contains(&column.name)
            && !is_no_amount(&column.name)
            && !is_place
            && fit(&column.name, Role::Time) < 100
            && !is_row_number
            // A column of 0 and 1 is a mark.
            && *low >= 0.0
            && *high > 1.0
    };
    survey.columns.iter().filter(is_amount).collect()
}

/// The column of the time that comes first: see [`times`].
pub(crate) fn time(survey: &Survey) -> Option<&SurveyColumn> {
    times(survey).first().copied()
}

/// Columns that can be the time, the best first: dates and timestamps by name, the other ones, then
/// whole numbers that are called a time. A column with one value orders nothing.
fn times(survey: &Survey) -> Vec<&SurveyColumn> {
    if let Some(name) = &survey.given.time {
        return survey.column(name).into_iter().collect();
    }
    let kinds = [ValueKind::Time, ValueKind::Integer];
    let columns = survey.columns.iter().enumerate();
    let columns = columns.filter(|(_, column)| kinds.contains(&column.kind));
    let scored = columns.map(|(at, column)| (fit(&column.name, Role::Time), at, column));
    let is_clock = |column: &SurveyColumn| column.kind == ValueKind::Time;
    let can_be = scored.filter(|(score, _, column)| *score > 0 || is_clock(column));
    let mut all: Vec<(usize, usize, &SurveyColumn)> = can_be.collect();
    all.sort_by_key(|(score, at, column)| {
        let is_constant = column.distinct() <= 1 && survey.rows > 1;
        (is_constant, !is_clock(column), Reverse(*score), *at)
    });
    all.into_iter().map(|(.., column)| column).collect()
}

/// A column of other numbers that is called a time, if no column can be one.
pub(crate) fn float_time(survey: &Survey) -> Option<&SurveyColumn> {
    match time(survey) {
        Some(_) => None,
        None => by_name(survey, Role::Time, &[ValueKind::Float]),
    }
}

/// The order of the rows: a time, and the column that makes it differ from row to row. Of several
/// times, the first counts with which there is one.
pub(crate) fn order(survey: &Survey) -> Result<Order> {
    let times = times(survey);
    let Some(first) = times.first() else {
        return Err(no_time(survey));
    };
    if ![ValueKind::Time, ValueKind::Integer].contains(&first.kind) {
        return Err(wrong_time(first));
    }
    let found = times.iter().find_map(|time| {
        let (trajectory, ties) = trajectory(survey, time).ok()?;
        Some((*time, trajectory, ties))
    });
    let (time, trajectory, ties) = match found {
        Some(found) => found,
        None => {
            let (trajectory, ties) = trajectory(survey, first)?;
            (*first, trajectory, ties)
        }
    };
    Ok(Order {
        trajectory: trajectory.map(|column| column.name.clone()),
        time: time.name.clone(),
        is_clock: time.kind == ValueKind::Time,
        ties,
        steps: steps(time, trajectory),
    })
}

fn no_time(survey: &Survey) -> Error {
    match float_time(survey) {
        Some(column) => wrong_time(column),
        None => missing(
            survey,
            "a time: a date, a timestamp, or whole numbers with a name such as `time`",
        ),
    }
}

fn wrong_time(column: &SurveyColumn) -> Error {
    Error::input(format!(
        "times are dates, timestamps or whole numbers, and `{}` is {}; make whole numbers of it in SQL, such as CAST(round(1000 * t) AS BIGINT), and write the pipeline by hand",
        column.name, column.data_type
    ))
}

/// The trajectory that an option names.
fn given_trajectory<'a>(
    survey: &'a Survey,
    time: &SurveyColumn,
    name: &str,
) -> Result<(Option<&'a SurveyColumn>, Option<Ties>)> {
    let column = survey.column(name);
    if repeats(time, column) == 0 {
        return Ok((column, None));
    }
    match column.and_then(|column| ties(survey, time, column)) {
        Some(ties) => Ok((column, Some(ties))),
        None => Err(tied(time, name)),
    }
}

/// The error of rows of a trajectory at one time that nothing orders.
fn tied(time: &SurveyColumn, trajectory: &str) -> Error {
    Error::input(format!(
        "several rows have the same `{}`, also of one `{trajectory}`, and no column of whole numbers or times orders them; make such a column in SQL and write the pipeline by hand",
        time.name
    ))
}

/// The column of the trajectory, if the times need one, and the rows that it has at one time. A
/// column that differs in nearly every row makes no trajectories.
fn trajectory<'a>(
    survey: &'a Survey,
    time: &SurveyColumn,
) -> Result<(Option<&'a SurveyColumn>, Option<Ties>)> {
    if let Some(name) = &survey.given.trajectory {
        return given_trajectory(survey, time, name);
    }
    let is_candidate = |column: &&SurveyColumn| {
        KEYS.contains(&column.kind)
            && column.name != time.name
            && column.nulls() == 0
            && 10 * column.distinct() <= 9 * survey.rows
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
    let is_named = |(score, ..): &&(usize, usize, &SurveyColumn)| *score > 0;
    if let Some((.., column)) = candidates.iter().find(is_named) {
        return Ok((Some(*column), None));
    }
    if repeats(time, None) == 0 {
        return Ok((None, None));
    }
    // Each of several files is a trajectory.
    let is_order = |file: &&SurveyColumn| repeats(time, Some(file)) == 0;
    if let Some(file) = survey.filename.as_ref().filter(is_order) {
        return Ok((Some(file), None));
    }
    let named = || repeating.iter().filter(is_named);
    for (.., column) in named() {
        if let Some(ties) = ties(survey, time, column) {
            return Ok((Some(*column), Some(ties)));
        }
    }
    if let Some((.., column)) = named().next() {
        return Err(tied(time, &column.name));
    }
    // A state makes trajectories only where nothing else does.
    let is_no_state =
        |(.., column): &&(usize, usize, &SurveyColumn)| fit(&column.name, Role::State) == 0;
    let other = candidates.iter().find(is_no_state).or(candidates.first());
    let (.., column) = other.ok_or_else(|| {
        Error::input(format!(
            "several rows have the same `{}`, and no other column tells their trajectories apart; make such a column in SQL and write the pipeline by hand",
            time.name
        ))
    })?;
    Ok((Some(*column), None))
}

/// Whether a column is a function of the time: see [`is_monotone`].
pub(crate) fn follows_time(
    survey: &Survey,
    order: &Order,
    column: &SurveyColumn,
    is_strict: bool,
) -> bool {
    let Some(time) = survey.column(&order.time) else {
        return false;
    };
    let trajectory = order.trajectory.as_ref();
    let trajectory = trajectory.and_then(|name| survey.column(name));
    is_monotone(column, time, trajectory, is_strict)
}

/// The column of the states: by name, else the column of texts or whole numbers with the fewest
/// values, of those whose values repeat, else one of true and false.
pub(crate) fn state<'a>(survey: &'a Survey, order: &Order) -> Option<&'a SurveyColumn> {
    let is_taken = |name: &String| order.columns().any(|own| own == name);
    let is_mark = |column: &SurveyColumn| column.kind == ValueKind::Boolean;
    let mut columns: Vec<(usize, usize, &SurveyColumn)> = (survey.columns.iter().enumerate())
        .filter(|(_, column)| KEYS.contains(&column.kind) || is_mark(column))
        .filter(|(_, column)| !is_taken(&column.name))
        .filter(|(_, column)| column.distinct() >= 2 && 2 * column.distinct() <= survey.rows)
        .filter(|(_, column)| !survey.partitions.contains(&column.name))
        .map(|(at, column)| (fit(&column.name, Role::State), at, column))
        .filter(|(score, _, column)| *score > 0 || !follows_time(survey, order, column, true))
        .collect();
    columns.sort_by_key(|(score, at, column)| {
        let is_last = is_mark(column);
        (Reverse(*score), is_last, column.distinct(), *at)
    });
    columns.first().map(|(.., column)| *column)
}

/// The columns of numbers with a role, by their names.
pub(crate) fn numbers_by_name(survey: &Survey, role: Role) -> Vec<&SurveyColumn> {
    let columns = survey.columns.iter();
    let floats = columns.filter(|column| column.kind == ValueKind::Float);
    floats
        .filter(|column| fit(&column.name, role) > 0)
        .collect()
}

/// Columns of coordinates, the best first: longitude and latitude, then x, y and z, then other
/// numbers with few nulls. A column that only follows the time of trajectories is none.
pub(crate) fn coordinates<'a>(survey: &'a Survey, order: Option<&Order>) -> Vec<&'a SurveyColumn> {
    let given = &survey.given.coordinates;
    if !given.is_empty() && degrees(survey).is_none() {
        return given
            .iter()
            .filter_map(|name| survey.column(name))
            .collect();
    }
    if let Some(pair) = degrees(survey) {
        return pair.to_vec();
    }
    let is_coordinate = |column: &&SurveyColumn| {
        let is_named = fit(&column.name, Role::Coordinate) >= 100;
        let is_number =
            column.kind == ValueKind::Float || (is_named && column.kind == ValueKind::Integer);
        let is_free = |order: &Order| {
            order.columns().all(|own| *own != column.name)
                && !follows_time(survey, order, column, false)
        };
        is_number
            && column.distinct() >= 3
            && 5 * column.nulls() <= survey.rows
            && order.is_none_or(is_free)
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
    let given = &survey.given.coordinates;
    let is_given = given.len() == 2
        && [longitude, latitude]
            .iter()
            .all(|column| given.contains(&column.name));
    (fits && (given.is_empty() || is_given)).then_some([longitude, latitude])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::init::survey::tests::{column, survey, walks};

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

    #[test]
    fn a_key_of_rows_is_no_trajectory() {
        // Six users, of whom each has two rows; the times repeat.
        let rows = |of: fn(i32) -> f64| -> Vec<f64> { (0..12).map(of).collect() };
        let of = |name: &str, of: fn(i32) -> f64| column(name, ValueKind::Integer, &rows(of));
        let id = of("id", f64::from);
        let time = of("time", |k| f64::from(k / 6));
        let status = of("status", |k| f64::from(k / 2));
        let user = of("user", |k| f64::from(k % 6));
        let table = |more: &[&SurveyColumn]| {
            let columns = [&id, &time, &status]
                .into_iter()
                .chain(more.iter().copied());
            survey(columns.cloned().collect())
        };
        let found = super::order(&table(&[&user])).expect("an order");
        assert_eq!(found.trajectory.as_deref(), Some("user"));
        // The shelf also differs where times are equal, and its name is none of a state.
        let other = of("shelf", |k| f64::from(k % 6));
        let found = super::order(&table(&[&other])).expect("an order");
        assert_eq!(found.trajectory.as_deref(), Some("shelf"));
        // Only the key differs at one time.
        let error = super::order(&table(&[])).expect_err("no trajectories");
        assert!(
            error.to_string().contains("no other column tells"),
            "{error}"
        );
    }

    #[test]
    fn intervals_are_no_pairs() {
        let of = |name: &str, rows: &[f64]| column(name, ValueKind::Integer, rows);
        let start = of("start", &[1., 5., 9.]);
        let end = of("end", &[4., 9., 9.]);
        assert!(ends(&survey(vec![start.clone(), end])).is_none());
        let back = of("end", &[4., 1., 9.]);
        assert!(ends(&survey(vec![start, back])).is_some());
        let names = ["u", "v", "w", "start_zone", "end_reason", "end_zone"];
        let columns = names.map(|name| of(name, &[1., 2., 3.]));
        let table = survey(columns[3..].to_vec());
        let found = ends(&table).map(|(from, to)| (from.name.as_str(), to.name.as_str()));
        assert_eq!(found, Some(("start_zone", "end_zone")));
        let table = survey(columns[..3].to_vec());
        let found = ends(&table).map(|(from, to)| (from.name.as_str(), to.name.as_str()));
        assert_eq!(found, Some(("u", "v")));
    }
}
