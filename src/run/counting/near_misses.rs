//! Warns of times that nearly fit a lag: under half of the rows find a row that is exactly a lag
//! later, but most find one that is near that time.
//!
//! Few pairs are common, because trajectories may be short. So if there are few, the keys and times
//! of the first rows are read again, and only these rows are looked at.

use crate::error::{self, Result};
use crate::evidence::lag::{Lag, Step};
use crate::output::number::grouped;
use crate::plan::checks::percent;
use crate::plan::evidence::length;
use crate::read::counts::counted::Counted;
use crate::read::lake::Lake;
use crate::read::lake::errors::failed;
use crate::read::rows::doubles::typed_columns;
use crate::read::rows::keys::Keys;
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::ranges::drop_null_rows;
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::rows::time;
use arrow::array::RecordBatch;
use arrow::datatypes::Field;
use datafusion::dataframe::DataFrame;
use datafusion::logical_expr::ident;

/// The rows that are looked at.
const SAMPLE: usize = 1 << 16;

/// A row is near the time that a lag asks for if it is away from it by at most this part of the
/// lag.
const NEAR: u64 = 20;

/// The smallest number of rows that tell anything.
const LEAST: usize = 20;

/// Warnings of the lags, or of the time between rows, that the times of the rows nearly fit.
///
/// # Errors
/// A query that cannot be planned.
pub(crate) async fn warnings(
    lake: &Lake,
    frame: &DataFrame,
    layout: &Layout,
    lags: &[Lag],
    counted: &Counted,
) -> Result<Vec<String>> {
    let Some(rows) = layout.evidence.trajectories() else {
        return Ok(Vec::new());
    };
    let few: Vec<(usize, u64)> = exact_lags(layout)
        .into_iter()
        .filter(|(lag, _)| 2 * pairs(counted, *lag) < u128::from(counted.rows))
        .collect();
    if few.is_empty() {
        return Ok(Vec::new());
    }
    let mut sample = Sample::new(layout)?;
    sample.read(lake, frame).await?;
    let mut warnings = Vec::new();
    for (at, ticks) in few {
        let (Some(fit), Some(lag)) = (sample.fit(ticks), lags.get(at)) else {
            continue;
        };
        let tolerance = match length(fit.distance, rows.time) {
            lag @ Lag::Ticks(_) => lag.to_string(),
            lag => format!("\"{lag}\""),
        };
        let share = |n: usize| percent(n as f64 / fit.rows as f64);
        let warning = format!(
            "{} of the first {} find a row exactly {lag} later, but {} find one near that time; `tolerance = {tolerance}` takes the nearest row",
            share(fit.exact),
            error::counted(grouped(sample.n as f64), "row"),
            share(fit.exact + fit.near),
        );
        tracing::warn!("{warning}");
        warnings.push(warning);
    }
    Ok(warnings)
}

/// The lags that times must fit exactly, in units of the time column.
fn exact_lags(layout: &Layout) -> Vec<(usize, u64)> {
    let steps = match &layout.evidence {
        _ if layout.rules.tolerance.is_some() || layout.is_weighted() => return Vec::new(),
        RowRoles::Trajectories {
            lags,
            strided: false,
            ..
        } => lags.as_slice(),
        RowRoles::Windows { step, .. } => std::slice::from_ref(step),
        RowRoles::Trajectories { .. } | RowRoles::Pairs { .. } => return Vec::new(),
    };
    let steps = steps.iter().enumerate();
    let lags = steps.filter_map(|(at, step)| match *step {
        Step::Ticks(ticks) => Some((at, ticks as u64)),
        Step::Rows(_) => None,
    });
    lags.collect()
}

/// The number of pairs or windows at a lag.
fn pairs(counted: &Counted, lag: usize) -> u128 {
    let own = counted.counts.iter().filter(|counts| counts.lag == lag);
    let all = own.map(|counts| {
        let left_out = counts.left_out.as_ref();
        counts.total + left_out.map_or(0, |own| own.total)
    });
    all.sum()
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
struct LagFit {
    /// The rows whose trajectory goes on for the length of the lag.
    rows: usize,
    /// The rows that find a row exactly a lag later.
    exact: usize,
    /// Other rows that find one near that time.
    near: usize,
    /// How far that is for nearly all of them.
    distance: u64,
}

impl Sample {
    fn new(layout: &Layout) -> Result<Sample> {
        let mut fields = layout.fields();
        fields.truncate(layout.n_order());
        Ok(Sample {
            keys: Keys::of_fields(&fields[..fields.len() - 1], &[])?,
            fields,
            times: Vec::new(),
            n: 0,
        })
    }

    /// Reads the first rows, in the order of the files.
    async fn read(&mut self, lake: &Lake, frame: &DataFrame) -> Result<()> {
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
        for times in &mut self.times {
            times.sort_unstable();
            times.dedup();
        }
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

    /// How well the times fit a lag. None unless they fit nearly, but not exactly.
    fn fit(&self, ticks: u64) -> Option<LagFit> {
        let most = ticks / NEAR;
        let (mut rows, mut exact, mut distances) = (0, 0, Vec::new());
        for times in &self.times {
            let mut after = 0;
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
                rows += 1;
                match to_after.unwrap_or(to_before).min(to_before) {
                    0 => exact += 1,
                    distance if distance <= most => distances.push(distance),
                    _ => {}
                }
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
        let fit = sample(vec![times]).fit(6 * 3600).expect("a near fit");
        assert_eq!((fit.rows, fit.exact, fit.near), (394, 0, 394));
        assert_eq!(fit.distance, 40);
    }

    #[test]
    fn times_that_fit_or_are_far_are_not_near() {
        let hourly: Vec<i64> = (0..400).map(|k| 3600 * k).collect();
        assert!(sample(vec![hourly.clone()]).fit(6 * 3600).is_none());
        // Half an hour from every row.
        assert!(sample(vec![hourly]).fit(6 * 3600 + 1800).is_none());
        // A lag of one unit has no near time, and short trajectories no row that far.
        let times: Vec<i64> = (0..400).map(|k| 2 * k).collect();
        assert!(sample(vec![times]).fit(1).is_none());
        let short = vec![vec![0, 3], vec![5, 9]];
        assert!(sample(short).fit(100).is_none());
    }
}
