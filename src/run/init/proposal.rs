//! Columns → what the rows of a pipeline are.

use crate::error::{Error, Result};
use crate::run::init::boxes::{Boxes, boxes};
use crate::run::init::columns::{SurveyColumn, ValueKind};
use crate::run::init::given::RowKind;
use crate::run::init::names::{Role, axis_of_truth, fit, is_measure, words};
use crate::run::init::roles::{
    KEYS, NUMBERS, Order, amounts, by_name, coordinates, degrees, ends, missing, numbers_by_name,
    order, state, time,
};
use crate::run::init::survey::Survey;
use std::collections::HashSet;

/// How many transitions a pair stands for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Amount {
    /// One.
    One,
    /// The count in a column.
    Count(String),
    /// The weight in a column.
    Weight(String),
}

/// The state of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// One column, or several.
    Columns(Vec<String>),
    /// Boxes of coordinates.
    Boxes(Vec<Boxes>),
}

/// The coordinates of a point.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Coordinates {
    Columns(Vec<String>),
    /// A longitude and a latitude in degrees, which become three coordinates of a unit sphere.
    Sphere {
        /// The column of longitudes.
        longitude: String,
        /// The column of latitudes.
        latitude: String,
    },
}

/// What the rows of a table are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Proposal {
    Pairs {
        /// The column of the source.
        source: String,
        /// The column of the target.
        target: String,
        /// How much a row counts.
        amount: Amount,
        /// Other columns that may say how much a row counts.
        other_amounts: Vec<String>,
        /// Whether sources and targets are the same states.
        is_closed: bool,
        /// The number of different states.
        states: usize,
    },
    /// Rows of trajectories.
    Transitions { order: Order, state: State },
    /// Rows of trajectories that show symbols.
    Sequences {
        order: Order,
        /// The column of the symbol.
        symbol: String,
    },
    /// Rows of trajectories with a measurement of a known state.
    Measured {
        order: Order,
        /// The columns of the state.
        state: Vec<String>,
        /// The columns of the measurement.
        observation: Vec<String>,
    },
    Points {
        /// The column that identifies a row.
        id: Option<String>,
        coordinates: Coordinates,
    },
}

impl Proposal {
    /// The order of the rows, if they belong to trajectories.
    pub(crate) fn order(&self) -> Option<&Order> {
        match self {
            Proposal::Transitions { order, .. }
            | Proposal::Sequences { order, .. }
            | Proposal::Measured { order, .. } => Some(order),
            Proposal::Pairs { .. } | Proposal::Points { .. } => None,
        }
    }

    /// The columns that the proposal uses, or has in a comment.
    pub(crate) fn columns(&self) -> Vec<&str> {
        let mut columns: Vec<&String> = self.order().into_iter().flat_map(Order::columns).collect();
        match self {
            Proposal::Pairs {
                source,
                target,
                amount,
                other_amounts,
                ..
            } => {
                columns.extend([source, target].into_iter().chain(other_amounts));
                if let Amount::Count(column) | Amount::Weight(column) = amount {
                    columns.push(column);
                }
            }
            Proposal::Transitions { state, .. } => match state {
                State::Columns(names) => columns.extend(names),
                State::Boxes(boxes) => columns.extend(boxes.iter().map(|b| &b.column)),
            },
            Proposal::Sequences { symbol, .. } => columns.push(symbol),
            Proposal::Measured {
                state, observation, ..
            } => columns.extend(state.iter().chain(observation)),
            Proposal::Points { id, coordinates } => {
                columns.extend(id);
                match coordinates {
                    Coordinates::Columns(names) => columns.extend(names),
                    Coordinates::Sphere {
                        longitude,
                        latitude,
                    } => columns.extend([longitude, latitude]),
                }
            }
        }
        columns.into_iter().map(String::as_str).collect()
    }
}

/// Gives the columns of a table their roles.
///
/// # Errors
/// If a column that the rows need is missing, or an option has no meaning for the rows.
pub(crate) fn propose(survey: &Survey) -> Result<Proposal> {
    let kind = survey.given.row_kind().unwrap_or_else(|| natural(survey));
    survey.given.check_kind(kind)?;
    check_values(survey)?;
    match kind {
        RowKind::Pairs => pairs(survey),
        RowKind::Points => points(survey),
        RowKind::Sequences => sequences(survey),
        RowKind::Measured => filters(survey),
        RowKind::Transitions => transitions(survey),
    }
}

/// Checks that the columns of options that need numbers have some, and that a trajectory has values
/// that can be compared.
fn check_values(survey: &Survey) -> Result<()> {
    let given = &survey.given;
    let trajectory = given.trajectory.as_ref();
    let trajectory = trajectory.and_then(|name| survey.column(name));
    if let Some(column) = trajectory.filter(|column| column.kind == ValueKind::Other) {
        return Err(Error::spec(format!(
            "--trajectory takes a column of texts, numbers or times, and `{}` is {}",
            column.name, column.data_type
        )));
    }
    let named = given.coordinates.iter().map(|name| ("--coordinates", name));
    let named = named.chain(given.observation.iter().map(|name| ("--observation", name)));
    let named = named.chain(given.count.iter().map(|name| ("--count", name)));
    for (option, name) in named {
        let column = survey.column(name);
        if let Some(column) = column.filter(|column| !NUMBERS.contains(&column.kind)) {
            return Err(Error::spec(format!(
                "{option} takes columns of numbers, and `{name}` is {}",
                column.data_type
            )));
        }
    }
    Ok(())
}

/// What the rows are by their columns.
fn natural(survey: &Survey) -> RowKind {
    let has_order = survey.given.has_order();
    if !has_order && ends(survey).is_some() {
        return RowKind::Pairs;
    }
    if time(survey).is_some() {
        let [known, observed] = known_and_observed(survey);
        if !known.is_empty() && !observed.is_empty() {
            return RowKind::Measured;
        }
        let is_plain = survey.given.coordinates.is_empty();
        return match symbol(survey) {
            Some(_) if is_plain => RowKind::Sequences,
            _ => RowKind::Transitions,
        };
    }
    if !has_order && coordinates(survey, None).len() >= 2 {
        return RowKind::Points;
    }
    RowKind::Transitions
}

/// The column that is called a symbol.
fn symbol(survey: &Survey) -> Option<&SurveyColumn> {
    let column = by_name(survey, Role::Symbol, &KEYS)?;
    let repeats = column.distinct() >= 2 && 2 * column.distinct() <= survey.rows;
    repeats.then_some(column)
}

fn sequences(survey: &Survey) -> Result<Proposal> {
    let order = order(survey)?;
    let given = survey.given.symbol.clone();
    let named = || symbol(survey).or_else(|| state(survey, &order));
    let what = "a column of symbols: texts or whole numbers that repeat";
    let symbol = given.or_else(|| named().map(|column| column.name.clone()));
    let symbol = symbol.ok_or_else(|| missing(survey, what))?;
    Ok(Proposal::Sequences { order, symbol })
}

fn transitions(survey: &Survey) -> Result<Proposal> {
    let order = order(survey)?;
    let given = &survey.given;
    if !given.state.is_empty() {
        let state = State::Columns(given.state.clone());
        return Ok(Proposal::Transitions { order, state });
    }
    let boxes = || Some(State::Boxes(boxes(survey, &order)));
    let has_boxes = |state: &State| !matches!(state, State::Boxes(boxes) if boxes.is_empty());
    let column = state(survey, &order).filter(|_| given.coordinates.is_empty());
    // A column that is called a state comes before coordinates, and these before others.
    let named = column.filter(|column| fit(&column.name, Role::State) > 0);
    let of = |column: &SurveyColumn| State::Columns(vec![column.name.clone()]);
    let state = named
        .map(of)
        .or_else(|| boxes().filter(has_boxes))
        .or_else(|| column.map(of));
    let what = "a state: a column of texts or whole numbers that repeat, or coordinates";
    let state = state.ok_or_else(|| missing(survey, what))?;
    Ok(Proposal::Transitions { order, state })
}

/// The columns of a known state and those of a measurement, by their names.
fn known_and_observed(survey: &Survey) -> [Vec<&SurveyColumn>; 2] {
    let observed = numbers_by_name(survey, Role::Measurement);
    let mut known = numbers_by_name(survey, Role::KnownState);
    // `observed_state` is an observation.
    known.retain(|column| observed.iter().all(|own| own.name != column.name));
    if observed.is_empty() {
        let beside = beside(survey, &known);
        return [known, beside];
    }
    [known, observed]
}

/// Numbers that end as those of a true state: `radar_x` beside `true_x`.
fn beside<'a>(survey: &'a Survey, known: &[&SurveyColumn]) -> Vec<&'a SurveyColumn> {
    let ends = known
        .iter()
        .filter_map(|column| axis_of_truth(&column.name));
    let ends: Vec<String> = ends.collect();
    let columns = survey.columns.iter();
    let floats = columns.filter(|column| column.kind == ValueKind::Float);
    let others = floats.filter(|column| known.iter().all(|own| own.name != column.name));
    others
        .filter(|column| {
            words(&column.name)
                .last()
                .is_some_and(|last| ends.contains(last))
        })
        .collect()
}

fn filters(survey: &Survey) -> Result<Proposal> {
    let order = order(survey)?;
    let [known, observed] = known_and_observed(survey);
    let names = |columns: &[&SurveyColumn]| -> Vec<String> {
        columns.iter().map(|column| column.name.clone()).collect()
    };
    let or = |given: &[String], found: Vec<String>| match given {
        [] => found,
        given => given.to_vec(),
    };
    let observation = or(&survey.given.observation, names(&observed));
    if observation.is_empty() {
        let what =
            "a measurement: numbers with a name such as `measured`; --observation names them";
        return Err(missing(survey, what));
    }
    let mut state = or(&survey.given.state, names(&known));
    if state.is_empty() {
        state = names(&coordinates(survey, Some(&order)));
        state.retain(|name| !observation.contains(name));
    }
    if state.is_empty() {
        let what = "a known state beside the measurement: numbers; --state names them";
        return Err(missing(survey, what));
    }
    Ok(Proposal::Measured {
        order,
        state,
        observation,
    })
}

fn pairs(survey: &Survey) -> Result<Proposal> {
    let what = "a source and a target of one type, such as `source` and `target`";
    let (source, target) = ends(survey).ok_or_else(|| missing(survey, what))?;
    let is_amount = |column: &&SurveyColumn| {
        let is_end = column.name == source.name || column.name == target.name;
        !is_end && column.numbers.iter().all(|x| *x >= 0.0)
    };
    let count = by_name(survey, Role::Count, &[ValueKind::Integer]).filter(is_amount);
    let weight = by_name(survey, Role::Weight, &NUMBERS).filter(is_amount);
    let given = survey.given.count.as_ref();
    let given = given.and_then(|name| survey.column(name));
    let mut others = amounts(survey, [&source.name, &target.name]);
    let of = |column: &SurveyColumn| match column.kind {
        ValueKind::Integer => Amount::Count(column.name.clone()),
        _ => Amount::Weight(column.name.clone()),
    };
    // The only number is the count, unless rows are single events with a key or a measure.
    let is_event = |column: &&SurveyColumn| {
        let is_other = others.iter().all(|other| other.name != column.name);
        let is_key = KEYS.contains(&column.kind) && column.distinct() == survey.rows;
        (is_other && is_key) || (NUMBERS.contains(&column.kind) && is_measure(&column.name))
    };
    let has_events = survey.columns.iter().any(|column| is_event(&column));
    let amount = match (given, count, weight, others.as_slice()) {
        (Some(given), ..) => of(given),
        (None, Some(count), ..) => Amount::Count(count.name.clone()),
        (None, None, Some(weight), _) => Amount::Weight(weight.name.clone()),
        (None, None, None, [only]) if !has_events => of(only),
        (None, None, None, _) => Amount::One,
    };
    if amount != Amount::One {
        others.clear();
    }
    let sources: HashSet<&String> = source.values.iter().collect();
    let shared = target.values.iter().filter(|v| sources.contains(v)).count();
    Ok(Proposal::Pairs {
        source: source.name.clone(),
        target: target.name.clone(),
        amount,
        other_amounts: others.iter().map(|column| column.name.clone()).collect(),
        is_closed: 2 * shared > source.distinct(),
        states: source.distinct().min(target.distinct()),
    })
}

fn points(survey: &Survey) -> Result<Proposal> {
    let sphere = degrees(survey);
    let columns = coordinates(survey, None);
    let is_key = |column: &&SurveyColumn| {
        // The coordinates of a sphere are called x, y and z.
        let is_taken = sphere.is_some() && ["x", "y", "z"].contains(&column.name.as_str());
        KEYS.contains(&column.kind)
            && column.nulls() == 0
            && column.distinct() == survey.rows
            && !is_taken
            && !columns.iter().any(|c| c.name == column.name)
    };
    let mut keys: Vec<&SurveyColumn> = survey.columns.iter().filter(is_key).collect();
    keys.sort_by_key(|column| std::cmp::Reverse(fit(&column.name, Role::Trajectory)));
    // The first rows do not show whether a value comes again behind them.
    let id = keys
        .first()
        .filter(|_| survey.is_whole)
        .map(|column| column.name.clone());
    let id = survey.given.id.clone().or(id);
    if let Some([longitude, latitude]) = sphere {
        let coordinates = Coordinates::Sphere {
            longitude: longitude.name.clone(),
            latitude: latitude.name.clone(),
        };
        return Ok(Proposal::Points { id, coordinates });
    }
    if columns.len() < 2 {
        let what = "coordinates: at least two columns of numbers";
        return Err(missing(survey, what));
    }
    let columns = columns.iter().take(100).map(|column| column.name.clone());
    Ok(Proposal::Points {
        id,
        coordinates: Coordinates::Columns(columns.collect()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::init::survey::tests::{column, survey, walks};

    #[test]
    fn boxes_have_round_widths() {
        let found = propose(&survey(walks())).expect("a proposal");
        let Proposal::Transitions {
            state: State::Boxes(boxes),
            ..
        } = found
        else {
            panic!("{found:?}");
        };
        assert_eq!((boxes[0].bounds, boxes[0].boxes), ([0.0, 1.0], 5));
    }

    #[test]
    fn a_kind_needs_its_columns() {
        let of = |kind: RowKind| {
            let mut table = survey(walks());
            table.given.kind = Some(kind);
            propose(&table)
        };
        let error = of(RowKind::Pairs).expect_err("no source");
        let message = error.to_string();
        assert!(
            message.starts_with("no column looks like a source and a target"),
            "{message}"
        );
        assert!(
            message.contains("`who` (Integer), `t` (Integer), `v` (Float)"),
            "{message}"
        );
        assert!(of(RowKind::Points).is_err());
    }

    #[test]
    fn the_only_number_beside_a_pair_is_its_count() {
        let of = |name: &str, rows: &[f64]| column(name, ValueKind::Integer, rows);
        let pairs = || {
            vec![
                of("from_country", &[1., 1., 2.]),
                of("to_country", &[2., 1., 2.]),
            ]
        };
        let with = |more: Vec<SurveyColumn>| {
            let table = survey(pairs().into_iter().chain(more).collect());
            match propose(&table).expect("pairs") {
                Proposal::Pairs {
                    amount,
                    other_amounts,
                    ..
                } => (amount, other_amounts),
                other => panic!("{other:?}"),
            }
        };
        let year = of("year", &[2024., 2024., 2024.]);
        let moved = of("moved", &[30., 2., 7.]);
        let found = with(vec![year.clone(), moved.clone()]);
        assert_eq!(found, (Amount::Count("moved".into()), vec![]));
        let both = with(vec![year, moved, of("registered", &[20., 2., 6.])]);
        let names = ["moved", "registered"].map(String::from).to_vec();
        assert_eq!(both, (Amount::One, names));
        let share = column("share", ValueKind::Float, &[1.5, 0.5, 2.]);
        assert_eq!(with(vec![share]).0, Amount::Weight("share".into()));
    }

    #[test]
    fn symbols_and_measurements_are_proposed() {
        let rows = |of: fn(i32) -> f64| -> Vec<f64> { (0..30).map(of).collect() };
        let wave = rows(|k| (0.7 * f64::from(k)).sin());
        let table = |more: [SurveyColumn; 2]| {
            let time = column("time", ValueKind::Integer, &rows(f64::from));
            survey([time].into_iter().chain(more).collect())
        };
        let symbol = column(
            "symbol",
            ValueKind::Text,
            &rows(|k| f64::from(k * k % 7 % 3)),
        );
        let x = column("x", ValueKind::Float, &wave);
        let found = propose(&table([symbol, x])).expect("a proposal");
        assert!(matches!(found, Proposal::Sequences { symbol, .. } if symbol == "symbol"));
        let known = column("true_x", ValueKind::Float, &wave);
        let measured = column("x_measured", ValueKind::Float, &wave);
        match propose(&table([known, measured])).expect("a proposal") {
            Proposal::Measured {
                state, observation, ..
            } => assert_eq!([state, observation], [["true_x"], ["x_measured"]]),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_come_before_names() {
        let rows = |of: fn(i32) -> f64| -> Vec<f64> { (0..30).map(of).collect() };
        let of = |name: &str, of: fn(i32) -> f64| column(name, ValueKind::Integer, &rows(of));
        let mut table = survey(vec![
            of("time", f64::from),
            of("minute", |k| f64::from(2 * k)),
            of("state", |k| f64::from(k % 2)),
            of("mood", |k| f64::from(k * k % 7 % 3)),
        ]);
        table.given.time = Some("minute".into());
        table.given.state = vec!["mood".into(), "state".into()];
        let found = propose(&table).expect("a proposal");
        let Proposal::Transitions { order, state } = found else {
            panic!("{found:?}");
        };
        assert_eq!(order.time, "minute");
        assert_eq!(state, State::Columns(vec!["mood".into(), "state".into()]));
        table.given.symbol = Some("mood".into());
        let error = propose(&table).expect_err("a state and a symbol");
        assert!(
            error.to_string().contains("--state has no meaning"),
            "{error}"
        );
    }
}
