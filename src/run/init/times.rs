//! The times of trajectories → how they differ, and which keys of time they need.

use crate::read::rows::keys::NONE;
use crate::run::init::columns::{SurveyColumn, ValueKind};
use crate::run::init::names::{Role, fit};
use crate::run::init::survey::Survey;
use crate::run::near_misses::LagFit;
use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Gaps differ by orders of magnitude if the largest is above this many times the median.
const WIDE: f64 = 100.0;

/// Microseconds of round times, the longest first.
const CLOCK_UNITS: [f64; 13] = [
    86_400e6, 21_600e6, 3_600e6, 1_800e6, 600e6, 300e6, 60e6, 30e6, 10e6, 5e6, 1e6, 1e5, 1e3,
];

/// Microseconds of the units of a tolerance, the longest first.
const TOLERANCE_UNITS: [f64; 5] = [86_400e6, 3_600e6, 60e6, 1e6, 1e3];

/// The least number of steps that show that a column is a function of the time.
const MONOTONE_STEPS: usize = 8;

/// The time from a row to the next one of its trajectory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Steps {
    /// The most frequent time, in units of the column or in microseconds.
    pub most_frequent: f64,
    /// The share of rows with that time.
    pub share: f64,
    /// Rows per trajectory, on average.
    pub rows: f64,
    /// The step that most times nearly fit, if they fit none exactly.
    pub jitter: Option<Jitter>,
    /// The gaps, if they differ by orders of magnitude.
    pub gaps: Option<Gaps>,
}

/// Times that nearly fit a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Jitter {
    /// The step, in units of the column or in microseconds.
    pub step: f64,
    /// How far nearly all rows are from the time that is one step later.
    pub one: f64,
    /// How far they are from the time that is ten steps later, if that is not much farther.
    pub ten: Option<f64>,
}

/// Times between rows, in units of the column or in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Gaps {
    pub median: f64,
    pub largest: f64,
}

/// Several rows of a trajectory at one time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ties {
    /// The column that orders them.
    pub order: String,
    /// Rows with the time of an earlier row.
    pub repeated: usize,
    /// Those of them that are equal to an earlier row in all columns.
    pub equal: usize,
}

/// The number of rows whose time is that of another row of the trajectory.
pub(crate) fn repeats(time: &SurveyColumn, trajectory: Option<&SurveyColumn>) -> usize {
    let mut seen = HashSet::new();
    let rows = time.ids.iter().enumerate();
    let rows = rows.filter(|(_, id)| **id != NONE);
    rows.filter(|(at, id)| !seen.insert((trajectory.map(|t| t.ids[*at]), **id)))
        .count()
}

/// Whether the numbers of a column only grow or only fall with the time, in the same way in all
/// trajectories. `is_strict`: no two rows that follow each other have the same number.
pub(crate) fn is_monotone(
    column: &SurveyColumn,
    time: &SurveyColumn,
    trajectory: Option<&SurveyColumn>,
    is_strict: bool,
) -> bool {
    let mut rows: BTreeMap<u32, Vec<[f64; 2]>> = BTreeMap::new();
    for (at, (t, x)) in time.numbers.iter().zip(&column.numbers).enumerate() {
        if t.is_finite() && x.is_finite() {
            let of = trajectory.map_or(0, |t| t.ids[at]);
            rows.entry(of).or_default().push([*t, *x]);
        }
    }
    let (mut rises, mut falls, mut equal) = (0, 0, 0);
    for rows in rows.values_mut() {
        rows.sort_by(|a, b| a[0].total_cmp(&b[0]));
        for pair in rows.windows(2).filter(|pair| pair[0][0] < pair[1][0]) {
            match pair[0][1].total_cmp(&pair[1][1]) {
                Ordering::Less => rises += 1,
                Ordering::Greater => falls += 1,
                Ordering::Equal => equal += 1,
            }
        }
    }
    let is_one_way = rises == 0 || falls == 0;
    is_one_way && rises + falls >= MONOTONE_STEPS && (!is_strict || equal == 0)
}

/// How the times of each trajectory differ. None if every trajectory has one time.
pub(crate) fn steps(time: &SurveyColumn, trajectory: Option<&SurveyColumn>) -> Option<Steps> {
    let mut times: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    let known = time.numbers.iter().enumerate();
    for (at, t) in known.filter(|(_, t)| t.is_finite()) {
        let of = trajectory.map_or(0, |t| t.ids[at]);
        times.entry(of).or_default().push(*t);
    }
    let rows: usize = times.values().map(Vec::len).sum();
    let mut frequency: HashMap<u64, usize> = HashMap::new();
    let mut gaps = Vec::new();
    for times in times.values_mut() {
        times.sort_unstable_by(f64::total_cmp);
        times.dedup();
        for pair in times.windows(2) {
            gaps.push(pair[1] - pair[0]);
            *frequency.entry((pair[1] - pair[0]).to_bits()).or_default() += 1;
        }
    }
    let most = frequency
        .into_iter()
        .max_by_key(|(step, n)| (*n, Reverse(*step)))?;
    gaps.sort_unstable_by(f64::total_cmp);
    let (median, largest) = (gaps[gaps.len() / 2], *gaps.last()?);
    let share = most.1 as f64 / gaps.len() as f64;
    let is_clock = time.kind == ValueKind::Time;
    let jitter = (share < 0.5).then(|| jitter(times.values(), median, is_clock));
    Some(Steps {
        most_frequent: f64::from_bits(most.0),
        share,
        rows: rows as f64 / times.len() as f64,
        jitter: jitter.flatten(),
        gaps: (WIDE * median < largest).then_some(Gaps { median, largest }),
    })
}

/// The step that most times nearly fit, if there is one near the median of the gaps.
fn jitter<'a>(
    times: impl Iterator<Item = &'a Vec<f64>>,
    median: f64,
    is_clock: bool,
) -> Option<Jitter> {
    let step = round(median, is_clock)?;
    let whole = times.map(|own| own.iter().map(|t| *t as i64).collect());
    let whole: Vec<Vec<i64>> = whole.collect();
    let distance = |steps: u64| {
        let fit = LagFit::of(&whole, steps * step as u64, false)?;
        let distance = rounded_up(fit.distance as f64, is_clock);
        // Many steps later, a row is near any time.
        (4.0 * distance <= step).then_some(distance)
    };
    Some(Jitter {
        step,
        one: distance(1)?,
        ten: distance(10),
    })
}

/// A round time within 2 % of another one. None if it has no length in whole milliseconds.
pub(crate) fn round(time: f64, is_clock: bool) -> Option<f64> {
    let powers: Vec<f64> = (0..=15).rev().map(|power| 10f64.powi(power)).collect();
    let units = if is_clock { &CLOCK_UNITS[..] } else { &powers };
    let near = units.iter().map(|unit| (time / unit).round() * unit);
    near.into_iter()
        .find(|near| *near > 0.0 && (near - time).abs() <= time / 50.0)
}

/// A whole number of the longest unit that is not longer than a time, so that it is no shorter.
fn rounded_up(time: f64, is_clock: bool) -> f64 {
    if !is_clock {
        return time;
    }
    let unit = TOLERANCE_UNITS.into_iter().find(|unit| *unit <= time);
    let unit = unit.unwrap_or(1e3);
    (time / unit).ceil() * unit
}

/// The rows of a trajectory at one time. None without a column that orders them, or if they are
/// most rows.
pub(crate) fn ties(
    survey: &Survey,
    time: &SurveyColumn,
    trajectory: &SurveyColumn,
) -> Option<Ties> {
    let mut groups: HashMap<(u32, u32), Vec<usize>> = HashMap::new();
    let rows = time.ids.iter().enumerate();
    for (row, id) in rows.filter(|(_, id)| **id != NONE) {
        groups
            .entry((trajectory.ids[row], *id))
            .or_default()
            .push(row);
    }
    groups.retain(|_, rows| rows.len() > 1);
    let tied: usize = groups.values().map(Vec::len).sum();
    let repeated = tied - groups.len();
    if repeated == 0 || 2 * repeated > survey.rows {
        return None;
    }
    // Rows that are equal in all columns count as one. Columns of other types are not compared.
    if survey
        .columns
        .iter()
        .all(|own| own.kind != ValueKind::Other)
    {
        for rows in groups.values_mut() {
            let mut seen: HashSet<Vec<u32>> = HashSet::new();
            rows.retain(|row| seen.insert(survey.columns.iter().map(|c| c.ids[*row]).collect()));
        }
    }
    let different: usize = groups.values().map(Vec::len).sum();
    let orders = |column: &SurveyColumn| {
        groups.values().all(|rows| {
            let mut seen = HashSet::new();
            rows.iter().all(|row| seen.insert(column.ids[*row]))
        })
    };
    let is_free = |column: &&SurveyColumn| {
        matches!(column.kind, ValueKind::Integer | ValueKind::Time)
            && column.name != time.name
            && column.name != trajectory.name
            && column.nulls() == 0
            && !survey.partitions.contains(&column.name)
            && fit(&column.name, Role::State) == 0
            && fit(&column.name, Role::Coordinate) < 100
    };
    let mut columns: Vec<&SurveyColumn> = survey.columns.iter().filter(is_free).collect();
    // The sort is stable: columns with equally good names keep their order.
    columns.sort_by_key(|column| Reverse(fit(&column.name, Role::Time)));
    let order = columns.into_iter().find(|column| orders(column))?;
    Some(Ties {
        order: order.name.clone(),
        repeated,
        equal: tied - different,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::init::survey::tests::{column, survey};

    #[test]
    fn times_that_jitter_have_a_round_step() {
        // Hourly in microseconds, moved by up to 20 s: 7 k mod 41 − 20. One row later the
        // remainders differ by 7 or −34, ten rows later (70 mod 41 = 29) by 29 or −12.
        let second = 1e6;
        let times: Vec<f64> = (0..200)
            .map(|k| second * f64::from(3600 * k + 7 * k % 41 - 20))
            .collect();
        let steps = steps(&column("time", ValueKind::Time, &times), None).expect("steps");
        let expected = Jitter {
            step: 3600.0 * second,
            one: 34.0 * second,
            ten: Some(29.0 * second),
        };
        // Most gaps are equal, because the remainders mostly differ by 7.
        assert!(steps.share > 0.5 && steps.jitter.is_none(), "{steps:?}");
        let own = jitter([times].iter(), 3607.0 * second, true);
        assert_eq!(own, Some(expected));
        let irregular: Vec<f64> = (0..200).map(|k| f64::from(k * k)).collect();
        let steps = super::steps(&column("t", ValueKind::Integer, &irregular), None);
        let steps = steps.expect("steps");
        assert_eq!((steps.jitter, steps.gaps), (None, None));
    }

    #[test]
    fn functions_of_time_go_one_way_in_all_trajectories() {
        let rows = |of: fn(i32) -> f64| -> Vec<f64> { (0..12).map(of).collect() };
        let of = |name: &str, rows: &[f64]| column(name, ValueKind::Float, rows);
        // Two trajectories of six rows, so ten steps, of which the last comes first.
        let time = of("t", &rows(|k| f64::from(5 - k % 6)));
        let who = of("who", &rows(|k| f64::from(k / 6)));
        let is = |rows: &[f64], strict| is_monotone(&of("x", rows), &time, Some(&who), strict);
        assert!(is(&rows(|k| f64::from(-2 * (k % 6))), true));
        // The steps of a count are level sometimes.
        let level = rows(|k| f64::from(-(k % 6).min(4)));
        assert!(is(&level, false) && !is(&level, true));
        // It falls in one trajectory, and rises in the other.
        assert!(!is(&rows(|k| f64::from((k - 6).abs())), false));
        // Seven steps show nothing.
        let few = |rows: Vec<f64>| of("x", &rows[..8]);
        let t = few(rows(f64::from));
        assert!(!is_monotone(&t, &t, None, true));
    }

    #[test]
    fn round_times_are_near() {
        assert_eq!(round(3607e6, true), Some(3600e6));
        assert_eq!(round(91e6, true), Some(90e6));
        assert_eq!(round(12.0, true), None);
        assert_eq!(round(1003.0, false), Some(1000.0));
        assert_eq!(round(24.0, false), Some(24.0));
        assert_eq!(rounded_up(38.2e6, true), 39e6);
        assert_eq!(rounded_up(61e6, true), 120e6);
        assert_eq!(rounded_up(7.0, false), 7.0);
    }

    #[test]
    fn a_second_column_orders_rows_at_one_time() {
        let of = |name: &str, rows: &[f64]| column(name, ValueKind::Integer, rows);
        let user = of("user", &[1., 1., 1., 1., 2., 2.]);
        let time = of("time", &[0., 5., 5., 5., 5., 6.]);
        let columns =
            |k: [f64; 6], n: [f64; 6]| vec![user.clone(), time.clone(), of("k", &k), of("n", &n)];
        // Rows 1 and 2 are equal, rows 2 and 3 are not.
        let k = [3., 3., 3., 4., 3., 3.];
        let all = survey(columns(k, [1., 1., 1., 2., 1., 1.]));
        let expected = Ties {
            order: "n".into(),
            repeated: 2,
            equal: 1,
        };
        assert_eq!(ties(&all, &time, &user), Some(expected));
        // No column tells rows 1 and 2 apart, which differ in the other one from row 3.
        let apart = survey(columns([3., 3., 4., 4., 3., 3.], [1., 1., 1., 2., 1., 1.]));
        assert_eq!(ties(&apart, &time, &user), None);
    }
}
