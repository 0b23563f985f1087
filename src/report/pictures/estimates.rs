//! Estimates of filters with their bands, beside known states.

use crate::error::{Result, counted};
use crate::report::chart::{Mark, Series, lines};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows, column};
use crate::report::pictures::asked::Asked;
use crate::report::style::{listed, number, short};
use polars::prelude::{DataType, lit};
use std::collections::BTreeMap;

/// At most this number of rows in a chart.
const ROWS: u32 = 100;

/// At most this number of coordinates of the state.
const COORDINATES: usize = 2;

const OVER_TIME: &str = "The estimated mean of a coordinate of the state with a band of two \
    standard deviations, and the known states, over the first rows of one trajectory. \
    About 19 of 20 known states should be in the band. The band says how certain the filter is, and not how \
    right: compare the test error of the fit.";

const WITHOUT_STATES: &str = "The estimated mean of a number of the state with a band of two \
    standard deviations, over the first rows of one trajectory. No row has a known state, so \
    nothing says how right the filter is: compare the log scores of the fits.";

const WITHOUT_WIDTH: &str = "The estimated mean of a coordinate of the state with a band of two \
    standard deviations, and the known states, over the first rows of one trajectory. The band \
    has no width at the marked rows: their weights, of which some are negative, give no variance \
    above 0. That does not say that the filter is certain there. The band says how certain the filter \
    is, and not how right: compare the test error of the fit.";

const ROWS_WITHOUT_WIDTH: &str = "The estimated mean of a coordinate of the state with two standard \
    deviations, against the known state of the row. A good filter is near the diagonal. Marked rows \
    have no bar: their weights, of which some are negative, give no variance above 0. That does not \
    say that the filter is certain there. Rows without a known state are not drawn.";

const ROW_BY_ROW: &str = "The estimated mean of a coordinate of the state with two standard \
    deviations, against the known state of the row. A good filter is near the diagonal. The \
    picture misleads about rows without a known state, which are not drawn.";

/// The estimates of all fits.
///
/// # Errors
/// If `estimates` or `trajectories` cannot be read, or the key of the trajectory has another number
/// of values than trajectories have columns.
pub(crate) fn figures(
    model: &Model<'_>,
    fits: &[String],
    asked: &Asked<'_>,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let columns = model.columns("estimates")?;
    let means = fits.iter().map(|fit| format!("{fit}_mean"));
    let means = means.collect::<Vec<_>>();
    let keys = columns.iter().skip(model.keys.len());
    let keys = keys.take_while(|name| *name != KNOWN && !means.contains(name));
    let keys = keys.map(String::as_str).collect::<Vec<_>>();
    if columns.iter().all(|name| !means.contains(name)) {
        return Ok(figures);
    }
    let n = of_trajectories(model)?;
    let trajectory = &keys[..n.unwrap_or(0).min(keys.len())];
    let chart = Chart {
        trajectory,
        asked: asked.values(trajectory)?,
        observation: listed(&asked.observation),
        time: n.and_then(|n| keys.get(n).copied()),
    };
    let is_known = columns.iter().any(|name| name == KNOWN);
    if chart.time.is_none() && !is_known {
        return Ok(figures);
    }
    let names = state_names(model)?;
    for fit in fits {
        if columns.contains(&format!("{fit}_mean")) {
            let of = OfFit {
                name: fit,
                state: names.get(fit).unwrap_or(&asked.state),
                has_weights: columns.contains(&format!("{fit}_weight_sum")),
                is_known,
            };
            figures.extend(chart.figures(model, of)?);
        }
    }
    Ok(figures)
}

/// The names of the numbers of states, by fit; nothing if rows have a state.
fn state_names(model: &Model<'_>) -> Result<BTreeMap<String, Vec<String>>> {
    let is_there = model.has("fits") && model.columns("fits")?.iter().any(|name| name == "state");
    if !is_there {
        return Ok(BTreeMap::new());
    }
    let rows = model.rows("fits", &["fit", "state"])?;
    let fits = rows.texts("fit").into_iter().flatten();
    Ok(fits.zip(rows.text_lists("state")).collect())
}

/// What a chart needs to know of a fit.
#[derive(Clone, Copy)]
struct OfFit<'a> {
    name: &'a str,
    /// The names of the numbers of the state; empty if they are not known.
    state: &'a [String],
    /// Whether estimates are by weights of training rows.
    has_weights: bool,
    /// Whether rows may have a known state.
    is_known: bool,
}

/// The column of known states.
pub(crate) const KNOWN: &str = "known_state";

/// The number of columns that identify a trajectory; nothing if rows have no time.
fn of_trajectories(model: &Model<'_>) -> Result<Option<usize>> {
    if !model.has("trajectories") {
        return Ok(None);
    }
    let columns = model.columns("trajectories")?;
    let keys = columns.iter().skip(model.keys.len());
    let keys = keys.take_while(|name| *name != "rows").count();
    // With a split, its column is between the trajectory and the number of rows.
    let estimates = model.columns("estimates")?;
    let last = columns.get(model.keys.len() + keys.saturating_sub(1));
    let at = model.keys.len() + keys.saturating_sub(1);
    let is_split = keys > 0 && estimates.get(at) != last;
    Ok(Some(keys - usize::from(is_split)))
}

/// The column of the split, if rows have one and a time.
///
/// # Errors
/// If `estimates` or `trajectories` cannot be read.
pub(crate) fn split_column(model: &Model<'_>) -> Result<Option<String>> {
    let Some(n) = of_trajectories(model)? else {
        return Ok(None);
    };
    let after = model
        .columns("trajectories")?
        .into_iter()
        .nth(model.keys.len() + n);
    Ok(after.filter(|name| name != "rows"))
}

/// The columns that a chart needs beside those of the fit.
struct Chart<'a> {
    trajectory: &'a [&'a str],
    /// The values of the columns of the trajectory to draw; nothing for the first one.
    asked: Option<Vec<&'a str>>,
    /// The columns of the observation; empty if they are not known.
    observation: String,
    /// Nothing if rows are independent.
    time: Option<&'a str>,
}

impl Chart<'_> {
    fn figures(&self, model: &Model<'_>, fit: OfFit<'_>) -> Result<Vec<Figure>> {
        let key = self.key(model)?;
        let rows = self.rows(model, fit, &key)?;
        let clock = self.time.and_then(|time| Clock::of(&rows, time));
        let from = clock.as_ref().map(|clock| format!(" from {}", clock.first));
        let drawn = Drawn {
            name: trajectory_name(&key) + &from.unwrap_or_default(),
            axis: self.axis(&rows, clock),
            rows,
        };
        let means = drawn.rows.lists(&format!("{}_mean", fit.name));
        let width = means.iter().map(Vec::len).max().unwrap_or_default();
        let all = (0..width.min(COORDINATES)).filter_map(|k| self.figure(&drawn, fit, k));
        Ok(all.collect())
    }

    /// The values of the columns of the trajectory that is drawn.
    fn key(&self, model: &Model<'_>) -> Result<Vec<Option<String>>> {
        if let Some(asked) = &self.asked {
            return Ok(asked.iter().map(|value| Some(value.to_string())).collect());
        }
        if self.trajectory.is_empty() {
            return Ok(Vec::new());
        }
        let keys = self.trajectory.iter();
        let keys = keys.map(|name| column(name).cast(DataType::String));
        let first = model.scan("estimates")?;
        let first = first.select(keys.collect::<Vec<_>>()).limit(1);
        let first = model.collect("estimates", first)?;
        let of = |name: &&str| first.texts(name).into_iter().next().flatten();
        Ok(self.trajectory.iter().map(of).collect())
    }

    /// The first rows of a trajectory, or of the table.
    fn rows(
        &self,
        model: &Model<'_>,
        fit: OfFit<'_>,
        key: &[Option<String>],
    ) -> Result<ResultRows> {
        let mut query = model.scan("estimates")?;
        for (name, value) in self.trajectory.iter().zip(key) {
            let own = column(name).cast(DataType::String);
            query = query.filter(match value {
                Some(value) => own.eq(lit(value.as_str())),
                None => own.is_null(),
            });
        }
        if self.time.is_none() {
            query = query.filter(column(KNOWN).is_not_null());
        }
        let [mean, variance] = ["mean", "variance"].map(|what| format!("{}_{what}", fit.name));
        let mut wanted = vec![mean.as_str(), variance.as_str()];
        wanted.extend(self.time);
        if fit.is_known {
            wanted.push(KNOWN);
        }
        let wanted = wanted.into_iter().map(column).collect::<Vec<_>>();
        model.collect("estimates", query.select(wanted).limit(ROWS))
    }

    fn figure(&self, drawn: &Drawn, of: OfFit<'_>, k: usize) -> Option<Figure> {
        let (
            fit,
            Marks {
                estimates,
                states,
                flat,
                inside,
            },
        ) = (of.name, self.marks(drawn, of, k));
        let coordinate = of.number_name(k);
        let (n_known, n_flat) = (states.len(), flat.len());
        let is_flat = n_flat > 0;
        let (mut series, caption) = match self.time {
            Some(_) => {
                let band = Series {
                    is_band: true,
                    ..Series::line("estimate", estimates)
                };
                let mut series = vec![band];
                if of.is_known {
                    series.push(Series::points("known state", states));
                }
                let caption = match (of.is_known, is_flat) {
                    (false, _) => WITHOUT_STATES,
                    (true, true) => WITHOUT_WIDTH,
                    (true, false) => OVER_TIME,
                };
                (series, caption)
            }
            None => {
                let equal = Series::line("equal to the known state", states);
                let caption = if is_flat {
                    ROWS_WITHOUT_WIDTH
                } else {
                    ROW_BY_ROW
                };
                (vec![Series::points("estimate", estimates), equal], caption)
            }
        };
        if is_flat {
            series.push(Series::points("no variance", flat));
        }
        let svg = lines(&series, [&drawn.axis.label, &coordinate], false)?;
        let from = match self.observation.as_str() {
            "" => String::new(),
            names => format!(" from {names}"),
        };
        let mut alt = format!(
            "Estimates of {coordinate} by {fit}{from}, with two standard deviations, over {} \
             rows{}.",
            drawn.rows.len(),
            drawn.name
        );
        if of.is_known {
            let known = "known states are within two standard deviations.";
            alt.push_str(&format!(" {inside} of {n_known} {known}"));
        }
        if is_flat {
            let flat = counted(n_flat, "row");
            alt.push_str(&format!(" The weights of {flat} give no variance."));
        }
        let title = format!("{fit}: estimates of {coordinate}{from}{}", drawn.name);
        let name = format!("{fit}-{k}");
        Some(Figure::new(
            ["estimates", &name],
            &title,
            &alt,
            caption,
            svg,
        ))
    }

    /// The first axis.
    fn axis(&self, rows: &ResultRows, clock: Option<Clock>) -> Axis {
        match (self.time, clock) {
            (None, _) => Axis {
                name: "known state".to_string(),
                label: "known state".to_string(),
                at: Vec::new(),
            },
            (Some(time), Some(clock)) => Axis {
                name: time.to_string(),
                label: format!("{time} ({})", clock.unit),
                at: clock.at,
            },
            (Some(time), None) if rows.is_number(time) => Axis {
                name: time.to_string(),
                label: time.to_string(),
                at: rows.floats(time),
            },
            (Some(_), None) => Axis {
                name: "row of the trajectory".to_string(),
                label: "row of the trajectory".to_string(),
                at: (0..rows.len()).map(|row| row as f64).collect(),
            },
        }
    }

    /// The rows in a chart of number `k` of the state.
    fn marks(&self, drawn: &Drawn, fit: OfFit<'_>, k: usize) -> Marks {
        let rows = &drawn.rows;
        let at_k = |list: Vec<f64>| list.get(k).copied().unwrap_or(f64::NAN);
        let of = |name: &str| rows.lists(name).into_iter().map(at_k).collect::<Vec<_>>();
        let [means, variances] =
            ["mean", "variance"].map(|what| of(&format!("{}_{what}", fit.name)));
        let known = of(KNOWN);
        let label = &drawn.axis.name;
        let x = match self.time {
            None => &known,
            Some(_) => &drawn.axis.at,
        };
        let mut marks = Marks::default();
        for row in 0..rows.len() {
            let deviation = variances[row].max(0.0).sqrt();
            let [low, high] = [means[row] - 2.0 * deviation, means[row] + 2.0 * deviation];
            let [at, m, d, s] = [x[row], means[row], 2.0 * deviation, known[row]].map(number);
            let beside = if fit.is_known {
                format!(", known state {s}")
            } else {
                String::new()
            };
            marks.estimates.push(Mark {
                at: [x[row], means[row]],
                interval: [low, high],
                tip: format!("{label} {at}: estimate {m} ± {d}{beside}"),
            });
            if fit.has_weights && variances[row] == 0.0 {
                let tip = format!("{label} {at}: estimate {m}, no variance{beside}");
                marks.flat.push(Mark::new([x[row], means[row]], tip));
            }
            if known[row].is_finite() {
                marks.inside += usize::from((low..=high).contains(&known[row]));
                let tip = format!("{label} {at}: known state {s}, estimate {m} ± {d}");
                marks.states.push(Mark::new([x[row], known[row]], tip));
            }
        }
        marks
    }
}

/// What charts of one fit share.
struct Drawn {
    rows: ResultRows,
    /// The trajectory in words, after a comma; empty if rows have none.
    name: String,
    axis: Axis,
}

/// The first axis of a chart.
struct Axis {
    /// What it is, for tooltips.
    name: String,
    /// The same with its unit.
    label: String,
    /// Where the rows are; empty if that is their known state.
    at: Vec<f64>,
}

/// Times of rows since the first one.
struct Clock {
    unit: &'static str,
    /// The first time.
    first: String,
    at: Vec<f64>,
}

impl Clock {
    /// The times of a column of timestamps or dates; nothing for other columns.
    fn of(rows: &ResultRows, time: &str) -> Option<Clock> {
        let seconds = rows.seconds(time)?;
        let start = *seconds.first()?;
        let first = rows.texts(time).into_iter().next().flatten()?;
        let span = seconds.iter().map(|x| x - start).fold(0.0, f64::max);
        let (unit, length) = match span {
            s if s <= 300.0 => ("s", 1.0),
            s if s <= 3.0 * 3600.0 => ("min", 60.0),
            s if s <= 4.0 * 86_400.0 => ("h", 3600.0),
            _ => ("d", 86_400.0),
        };
        let at = seconds.iter().map(|x| (x - start) / length).collect();
        // Zeros after the second say nothing.
        let first = match first.split_once('.') {
            Some((whole, rest)) if rest.bytes().all(|b| b == b'0') => whole.to_string(),
            _ => first,
        };
        Some(Clock { unit, first, at })
    }
}

/// A trajectory in words.
fn trajectory_name(key: &[Option<String>]) -> String {
    if key.is_empty() {
        return String::new();
    }
    let values = key
        .iter()
        .map(|value| short(value.as_deref().unwrap_or("null"), 40));
    format!(", trajectory {}", listed(values))
}

impl OfFit<'_> {
    /// The name of number `k` of the state. A state in one column of lists has one name.
    fn number_name(&self, k: usize) -> String {
        match self.state {
            [list] if k > 0 => format!("{list}[{k}]"),
            names => match names.get(k) {
                Some(name) => name.clone(),
                None => format!("coordinate {k}"),
            },
        }
    }
}

/// The rows in a chart.
#[derive(Default)]
struct Marks {
    estimates: Vec<Mark>,
    /// Known states.
    states: Vec<Mark>,
    /// Estimates whose weights give no variance.
    flat: Vec<Mark>,
    /// Known states within two standard deviations.
    inside: usize,
}
