//! Warns of times that nearly fit a lag or an interval: under half of the rows find a row that is
//! exactly so much later, but most find one that is near that time. Warns also if no row finds one,
//! and the lag is no multiple of the time between most rows.
//!
//! Few pairs are common, because trajectories may be short. So if there are few, the keys and times
//! of the first rows are read again, and only these rows are looked at. This process does it also
//! if other machines read the rows.

use crate::error::{self, Result};
use crate::evidence::lag::{Lag, Step};
use crate::output::number::grouped;
use crate::plan::checks::percent;
use crate::plan::evidence::length;
use crate::read::lake::Lake;
use crate::read::lake::errors::failed;
use crate::read::rows::doubles::typed_columns;
use crate::read::rows::keys::Keys;
use crate::read::rows::ranges::drop_null_rows;
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::rows::time;
use crate::read::rows::time_rules::{TimeRules, TimeSteps};
use arrow::array::RecordBatch;
use arrow::datatypes::Field;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::ident;
use std::collections::BTreeMap;

/// The rows that are looked at.
const SAMPLE: usize = 1 << 16;

/// A row is near the time that a lag asks for if it is away from it by at most this part of the
/// lag.
const NEAR: u64 = 20;

/// The smallest number of rows that tell anything.
const LEAST: usize = 20;

/// Warnings of the lags, or of the interval, that the times of the rows nearly fit. `rows` and
/// `pairs` are the numbers of all rows, and of their pairs by lag, if they are known.
///
/// # Errors
/// A query that cannot be planned.
pub(crate) async fn warnings(
    lake: &Lake,
    frame: &DataFrame,
    steps: Option<TimeSteps<'_>>,
    rows: u64,
    pairs: Option<&[u64]>,
) -> Result<Vec<String>> {
    let Some(steps) = steps.filter(|own| own.rules.tolerance.is_none()) else {
        return Ok(Vec::new());
    };
    let exact = steps.steps.iter().enumerate();
    let few = exact.filter_map(|(at, step)| match *step {
        Step::Ticks(ticks) if is_few(rows, pairs, at) => Some((at, ticks as u64)),
        Step::Ticks(_) | Step::Rows(_) => None,
    });
    let few: Vec<(usize, u64)> = few.collect();
    if few.is_empty() {
        return Ok(Vec::new());
    }
    let mut sample = Sample::new(&steps)?;
    sample.read(lake, frame, steps.rules).await?;
    let mut warnings = Vec::new();
    for (at, ticks) in few {
        let near = sample.fit(ticks, steps.only_next);
        let near = near.map(|fit| sample.text(&fit, ticks, &steps));
        // If the number of pairs is not known, the sample tells only if it has all rows.
        let known = pairs.and_then(|pairs| pairs.get(at));
        let is_none = known.map_or(sample.n < SAMPLE, |pairs| *pairs == 0);
        let apart = || sample.between(ticks, steps.only_next).filter(|_| is_none);
        let apart = || apart().map(|between| sample.multiple(between, ticks, &steps));
        if let Some(warning) = near.or_else(apart) {
            tracing::warn!("{warning}");
            warnings.push(warning);
        }
    }
    Ok(warnings)
}

/// Whether under half of the rows may be in a pair at a lag.
fn is_few(rows: u64, pairs: Option<&[u64]>, lag: usize) -> bool {
    let known = pairs.and_then(|pairs| pairs.get(lag));
    known.is_none_or(|pairs| pairs.saturating_mul(2) < rows)
}

/// The times of the first rows, by trajectory.
struct Sample {
    fields: Vec<Field>,
    /// (partition, trajectory) keys; `None` if all rows are one trajectory.
    keys: Option<Keys>,
    times: Vec<Vec<i64>>,
    n: usize,
}

/// How well times fit a lag.
pub(crate) struct LagFit {
    /// The rows whose trajectory goes on for the length of the lag.
    rows: usize,
    /// The rows that find a row exactly a lag later.
    exact: usize,
    /// Other rows that find one near that time.
    near: usize,
    /// How far that is for nearly all of them.
    pub(crate) distance: u64,
}

impl LagFit {
    /// How well the ascending times of trajectories fit a lag, or the time to the next row if only
    /// that one counts. None unless they fit nearly, but not exactly.
    pub(crate) fn of(all: &[Vec<i64>], ticks: u64, only_next: bool) -> Option<LagFit> {
        let most = ticks / NEAR;
        let all = all.iter().flat_map(|times| {
            if only_next {
                to_next(times, ticks)
            } else {
                to_nearest(times, ticks, most)
            }
        });
        let (mut rows, mut exact, mut distances) = (0, 0, Vec::new());
        for distance in all {
            rows += 1;
            match distance {
                0 => exact += 1,
                distance if distance <= most => distances.push(distance),
                _ => {}
            }
        }
        let near = distances.len();
        if rows < LEAST || 2 * exact >= rows || 2 * (exact + near) < rows {
            return None;
        }
        distances.sort_unstable();
        Some(LagFit {
            rows,
            exact,
            near,
            distance: distances[near - 1 - near / 50],
        })
    }
}

impl Sample {
    fn new(steps: &TimeSteps<'_>) -> Result<Sample> {
        let fields = &steps.fields;
        Ok(Sample {
            keys: Keys::of_fields(&fields[..fields.len() - 1], &[])?,
            fields: fields.clone(),
            times: Vec::new(),
            n: 0,
        })
    }

    /// Reads the first rows, in the order of the files.
    async fn read(&mut self, lake: &Lake, frame: &DataFrame, rules: &TimeRules) -> Result<()> {
        let columns = (0..self.fields.len()).map(|at| ident(at.to_string()));
        let frame = frame.clone().select(columns.collect::<Vec<_>>());
        let frame = frame.map_err(|e| failed("the columns of times cannot be selected", e))?;
        let mut batches = lake.batches(frame).await?;
        // The rows were read before. A file that cannot be read now is no reason to fail.
        while let Ok(Some(batch)) = batches.next().await {
            let batch = batch.slice(0, batch.num_rows().min(SAMPLE - self.n));
            let pushed = self.push(&batch);
            pushed.map_err(|stop| stop.into_error("reading times"))?;
            if self.n == SAMPLE {
                break;
            }
        }
        let trajectories = std::mem::take(&mut self.times);
        self.times = trajectories
            .into_iter()
            .flat_map(|own| parts(own, rules))
            .collect();
        Ok(())
    }

    fn push(&mut self, batch: &RecordBatch) -> Result<(), Stop> {
        self.n += batch.num_rows();
        let dropped = &mut Dropped::default();
        let mut columns = typed_columns(batch, &self.fields).map_err(bug)?;
        let n_key = self.fields.len() - 1;
        drop_null_rows(&mut columns, n_key + 1, |_| "key", dropped)?;
        let times = time::ticks(&columns[n_key], self.fields[n_key].name())?;
        let mut of_rows = vec![0; times.len()];
        if let Some(keys) = &mut self.keys {
            of_rows.clear();
            keys.intern(&columns[..n_key], &mut of_rows)?;
        }
        for (&of, &time) in of_rows.iter().zip(&times) {
            if of as usize >= self.times.len() {
                self.times.resize_with(of as usize + 1, Vec::new);
            }
            self.times[of as usize].push(time);
        }
        Ok(())
    }

    fn fit(&self, ticks: u64, only_next: bool) -> Option<LagFit> {
        LagFit::of(&self.times, ticks, only_next)
    }

    /// The time between most rows that follow each other, if no row finds one that is a lag later,
    /// and longer trajectories would not help: the lag is no multiple of it, or is another time
    /// where only the next row counts.
    fn between(&self, ticks: u64, only_next: bool) -> Option<u64> {
        let fits = |times: &Vec<i64>| {
            let distances = if only_next {
                to_next(times, ticks)
            } else {
                to_nearest(times, ticks, 0)
            };
            distances.contains(&0)
        };
        if self.times.iter().any(fits) {
            return None;
        }
        let mut frequency: BTreeMap<u64, usize> = BTreeMap::new();
        let pairs = self.times.iter().flat_map(|times| times.windows(2));
        for pair in pairs {
            *frequency
                .entry(pair[1].wrapping_sub(pair[0]) as u64)
                .or_default() += 1;
        }
        let all: usize = frequency.values().sum();
        let (between, n) = frequency.into_iter().max_by_key(|(_, n)| *n)?;
        let is_clear = all >= LEAST && 2 * n > all;
        let may_fit = if only_next {
            ticks == between
        } else {
            ticks.is_multiple_of(between)
        };
        (is_clear && !may_fit).then_some(between)
    }

    /// What is said of a lag that is no multiple of the time between most rows.
    fn multiple(&self, between: u64, ticks: u64, steps: &TimeSteps<'_>) -> String {
        let first = error::counted(grouped(self.n as f64), "row");
        let (lag, shown) = (self.shown(ticks), self.shown(between));
        if steps.only_next {
            return format!(
                "none of the first {first} is followed by a row exactly {lag} later: times mostly differ by {shown}; write {shown} in place of {lag}"
            );
        }
        let nearest = (ticks.saturating_add(between / 2) / between).max(1);
        let meant = self.shown(nearest.saturating_mul(between));
        format!(
            "none of the first {first} finds a row exactly {lag} later: times mostly differ by {shown}; write a multiple of it, such as `lag = {meant}`"
        )
    }

    /// A time as the value of a key.
    fn shown(&self, units: u64) -> String {
        match length(units, &self.fields[self.fields.len() - 1]) {
            lag @ Lag::Ticks(_) => lag.to_string(),
            lag => format!("\"{lag}\""),
        }
    }

    /// What is said of a lag that the times nearly fit.
    fn text(&self, fit: &LagFit, ticks: u64, steps: &TimeSteps<'_>) -> String {
        let (lag, tolerance) = (self.shown(ticks), self.shown(fit.distance));
        let share = |n: usize| percent(n as f64 / fit.rows as f64);
        let (exact, all) = (share(fit.exact), share(fit.exact + fit.near));
        let first = error::counted(grouped(self.n as f64), "row");
        let advice = match (steps.may_be_near, steps.only_next) {
            (true, true) => format!("`tolerance = {tolerance}` takes it"),
            (true, false) => format!("`tolerance = {tolerance}` takes the nearest row"),
            (false, _) => {
                format!(
                    "round the times in the SQL, or take the nearest row by `window = \"sliding\"` and `tolerance = {tolerance}`"
                )
            }
        };
        if steps.only_next {
            return format!(
                "{exact} of the first {first} are followed by a row exactly {lag} later, but {all} by one near that time; {advice}"
            );
        }
        format!(
            "{exact} of the first {first} find a row exactly {lag} later, but {all} find one near that time; {advice}"
        )
    }
}

/// The parts of a trajectory with these times that no gap divides, in order and without ties.
fn parts(mut times: Vec<i64>, rules: &TimeRules) -> Vec<Vec<i64>> {
    times.sort_unstable();
    times.dedup();
    let parts = times.chunk_by(|&before, &after| !rules.ends_between(before, after));
    parts.map(<[i64]>::to_vec).collect()
}

/// How far the next row of each row is from the time that is so much later.
fn to_next(times: &[i64], ticks: u64) -> Vec<u64> {
    let pairs = times.windows(2);
    let elapsed = pairs.map(|pair| pair[1].wrapping_sub(pair[0]) as u64);
    elapsed.map(|own| own.abs_diff(ticks)).collect()
}

/// How far the nearest row is from the time that is a lag after each row. Without those rows whose
/// trajectory ends more than `most` before that time.
fn to_nearest(times: &[i64], ticks: u64, most: u64) -> Vec<u64> {
    let (mut distances, mut after) = (Vec::new(), 0);
    for (row, &time) in times.iter().enumerate() {
        let elapsed = |later: usize| times[later].wrapping_sub(time) as u64;
        while after < times.len() && (after <= row || elapsed(after) < ticks) {
            after += 1;
        }
        let to_before = ticks - elapsed(after - 1);
        let to_after = (after < times.len()).then(|| elapsed(after) - ticks);
        if to_after.is_none() && to_before > most {
            break;
        }
        distances.push(to_after.unwrap_or(to_before).min(to_before));
    }
    distances
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(times: Vec<Vec<i64>>) -> Sample {
        Sample {
            fields: Vec::new(),
            keys: None,
            n: times.iter().map(Vec::len).sum(),
            times,
        }
    }

    #[test]
    fn hourly_rows_that_jitter_nearly_fit_six_hours() {
        // In seconds: row k is at 3600 k + (7 k mod 41) − 20. Seven times six is 42, so the
        // remainders of two rows six hours apart differ by 1, or by −40 if they wrap.
        let times = (0..400).map(|k| 3600 * k + 7 * k % 41 - 20).collect();
        let hourly = sample(vec![times]);
        let fit = hourly.fit(6 * 3600, false).expect("a near fit");
        assert_eq!((fit.rows, fit.exact, fit.near), (394, 0, 394));
        assert_eq!(fit.distance, 40);
        // The next row is an hour later, not six. Remainders of two rows differ by 7, or by −34 if
        // they wrap.
        assert!(hourly.fit(6 * 3600, true).is_none());
        let fit = hourly.fit(3600, true).expect("a near fit");
        assert_eq!((fit.rows, fit.exact, fit.near), (399, 0, 399));
        assert_eq!(fit.distance, 34);
    }

    #[test]
    fn gaps_divide_the_times_of_a_trajectory() {
        let rules = TimeRules {
            max_gap: Some(5),
            ..TimeRules::default()
        };
        let times = vec![12, 1, 6, 6, 13, 20];
        assert_eq!(
            parts(times.clone(), &rules),
            [vec![1, 6], vec![12, 13], vec![20]]
        );
        let whole = parts(times, &TimeRules::default());
        assert_eq!(whole, [vec![1, 6, 12, 13, 20]]);
    }

    #[test]
    fn times_that_fit_or_are_far_are_not_near() {
        let hourly: Vec<i64> = (0..400).map(|k| 3600 * k).collect();
        let sampled = sample(vec![hourly]);
        assert!(sampled.fit(6 * 3600, false).is_none());
        assert!(sampled.fit(3600, true).is_none());
        // Half an hour from every row.
        assert!(sampled.fit(6 * 3600 + 1800, false).is_none());
        // A lag of one unit has no near time, and short trajectories no row that far.
        let times: Vec<i64> = (0..400).map(|k| 2 * k).collect();
        assert!(sample(vec![times]).fit(1, false).is_none());
        let short = vec![vec![0, 3], vec![5, 9]];
        assert!(sample(short).fit(100, false).is_none());
    }

    #[test]
    fn a_lag_between_the_times_of_rows_fits_none() {
        // Rows every six hours, in two trajectories that begin two hours apart.
        let rows = |first: i64| (0..30).map(move |k| first + 6 * k).collect();
        let sampled = sample(vec![rows(0), rows(2)]);
        assert_eq!(sampled.between(7, false), Some(6));
        assert_eq!(sampled.between(7, true), Some(6));
        // Multiples fit, also those beyond the last row.
        assert_eq!(sampled.between(12, false), None);
        assert_eq!(sampled.between(600, false), None);
        // The next row is 6 later, never 12.
        assert_eq!(sampled.between(12, true), Some(6));
        assert_eq!(sampled.between(6, true), None);
        // One row finds another one 7 later.
        let odd = sample(vec![rows(0), vec![0, 7]]);
        assert_eq!(odd.between(7, false), None);
        // Few rows, or rows at no common distance, tell nothing.
        assert_eq!(sample(vec![vec![0, 6, 12]]).between(7, false), None);
        let squares = (0..40).map(|k| 2 * k * k).collect();
        assert_eq!(sample(vec![squares]).between(7, false), None);
    }
}
