//! Keys of `[transitions]` + columns of the query → the columns to count, with checked types.

use crate::error::{Error, Result, nearest};
use crate::evidence::lag::{Lag, Step};
use crate::plan::pipeline::keys::{Duplicates, Validation, Window};
use crate::plan::pipeline::{Input, PairMeasure, TimeKeys};
use crate::read::rows::bins::{Binning, Precision};
use crate::read::rows::layout::{Grouping, Measure, RowRoles};
use crate::read::rows::states::{BinColumn, StateColumns};
use crate::read::rows::time::{is_time, is_whole};
use crate::read::rows::time_rules::{OpenPairs, Ties, TimeRules};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::row::{RowConverter, SortField};
use datafusion::dataframe::DataFrame;
use parquet::arrow::ArrowSchemaConverter;

/// The columns of the query.
pub(crate) struct Columns {
    fields: Vec<Field>,
    /// The section of the pipeline that names the columns.
    section: &'static str,
}

impl Columns {
    pub(crate) fn of(frame: &DataFrame, section: &'static str) -> Result<Columns> {
        let fields: Vec<Field> = frame
            .schema()
            .fields()
            .iter()
            .map(|f| f.as_ref().clone())
            .collect();
        for (at, field) in fields.iter().enumerate() {
            if fields[..at].iter().any(|f| f.name() == field.name()) {
                let name = field.name();
                return Err(Error::spec(format!(
                    "the SQL of [{section}] gives two columns called `{name}`; name one of them otherwise with AS"
                )));
            }
        }
        Ok(Columns { fields, section })
    }

    /// Whether there is such a column.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.fields.iter().any(|field| field.name() == name)
    }

    /// The column `name` of the table `rows`, with its own type if Parquet has it.
    pub(crate) fn shown(&self, name: &str) -> Result<Field> {
        let counted = self.get(name, "rows")?;
        let own = self.fields.iter().find(|f| f.name() == name);
        let own = own.map_or(counted.data_type(), Field::data_type);
        let data_type = match own {
            DataType::RunEndEncoded(..) => counted.data_type(),
            own => own,
        };
        let field = Field::new(name, data_type.clone(), true);
        let schema = Schema::new(vec![field.clone()]);
        if ArrowSchemaConverter::new().convert(&schema).is_err() {
            return Err(Error::spec(format!(
                "column `{name}` is {data_type}, which Parquet does not have; cast it in the SQL, or leave it out of `output.rows`"
            )));
        }
        Ok(field)
    }

    /// The column `name`, with the type in which it is counted.
    fn get(&self, name: &str, role: &str) -> Result<Field> {
        if let Some(field) = self.fields.iter().find(|f| f.name() == name) {
            // Text files with only a header, or with only nulls, give a column no type.
            if field.data_type().is_null() {
                return Err(Error::input(format!(
                    "column `{name}` is null in all sampled rows, so its type is unknown; CAST it in the SQL"
                )));
            }
            return Ok(Field::new(name, plain(field.data_type()), true));
        }
        let names: Vec<&str> = self.fields.iter().map(|f| f.name().as_str()).collect();
        let given = || {
            let names: Vec<String> = names.iter().map(|n| format!("`{n}`")).collect();
            format!("it gives {}", names.join(", "))
        };
        let hint = match nearest(name, &names) {
            Some(near) if role == "rows" => format!("did you mean `{near}`? {}", given()),
            Some(near) => format!("did you mean `{near}`?"),
            None => given(),
        };
        let key = match role {
            "affiliation" | "given" => role.to_string(),
            "group" => format!("validation.{role}"),
            "rows" => format!("output.{role}"),
            _ => format!("{}.{role}", self.section),
        };
        Err(Error::spec(format!(
            "`{key}` names the column `{name}`, which the SQL does not give; {hint}"
        )))
    }

    /// A column whose values can be keys.
    pub(crate) fn key(&self, name: &str, role: &str) -> Result<Field> {
        let field = self.get(name, role)?;
        let t = field.data_type();
        if t.is_null()
            || t.is_nested()
            || !RowConverter::supports_fields(&[SortField::new(t.clone())])
        {
            return Err(Error::spec(format!(
                "column `{name}` is {t}, which cannot be a key; cast it in the SQL, or select its parts"
            )));
        }
        Ok(field)
    }

    /// Columns whose values can be keys.
    pub(crate) fn keys(&self, names: &[String], role: &str) -> Result<Vec<Field>> {
        names.iter().map(|name| self.key(name, role)).collect()
    }

    /// The column of real weights, if there is one.
    pub(crate) fn weight(&self, name: Option<&String>) -> Result<Option<Field>> {
        let weight = name.map(|name| self.number(name, "weight", false));
        weight.transpose()
    }

    /// The column that divides the rows, if there is one.
    pub(crate) fn split(&self, name: Option<&String>) -> Result<Option<Field>> {
        name.map(|name| self.text(name, "split")).transpose()
    }

    /// A column that orders the rows of a trajectory.
    pub(crate) fn time(&self, name: &str) -> Result<Field> {
        let time = self.get(name, "time")?;
        if !is_time(time.data_type()) {
            let section = self.section;
            return Err(Error::spec(format!(
                "`{section}.time` names the column `{}`, which is {}; time is an integer, a date or a timestamp: cast it in the SQL",
                time.name(),
                time.data_type()
            )));
        }
        Ok(time)
    }

    /// The columns of coordinates: all numbers, or a single list of numbers.
    /// The columns of points under a key of the pipeline.
    pub(crate) fn points(&self, names: &[String], role: &str) -> Result<Vec<Field>> {
        let is_list = |t: &DataType| match t {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                item.data_type().is_numeric()
            }
            _ => false,
        };
        if let [one] = names {
            let field = self.get(one, role)?;
            if is_list(field.data_type()) {
                return Ok(vec![field]);
            }
        }
        let numbers = names.iter().map(|name| {
            let field = self.get(name, role)?;
            if is_list(field.data_type()) {
                return Err(Error::spec(format!(
                    "column `{name}` is a list of coordinates and must be the only one in `{}.{role}`",
                    self.section
                )));
            }
            self.number(name, role, false)
        });
        numbers.collect()
    }

    /// The columns of coordinates that are cut into boxes.
    pub(crate) fn bins(&self, bins: &[(String, Binning)]) -> Result<Vec<BinColumn>> {
        let bins = bins.iter().map(|(name, binning)| {
            let field = self.number(name, "bins", false)?;
            Ok(BinColumn {
                name: name.clone(),
                precision: Precision::of(field.data_type()),
                binning: binning.clone(),
            })
        });
        bins.collect()
    }

    /// A column of text.
    fn text(&self, name: &str, role: &str) -> Result<Field> {
        let (field, section) = (self.get(name, role)?, self.section);
        let data_type = field.data_type();
        if !matches!(data_type, DataType::Utf8 | DataType::LargeUtf8) {
            return Err(Error::spec(format!(
                "column `{name}` is {data_type}, but `{section}.{role}` wants text; cast it in the SQL"
            )));
        }
        Ok(field)
    }

    pub(crate) fn number(&self, name: &str, role: &str, integer: bool) -> Result<Field> {
        let (field, section) = (self.get(name, role)?, self.section);
        let t = field.data_type();
        if integer && !t.is_integer() {
            return Err(Error::spec(format!(
                "column `{name}` is {t}, but `{section}.{role}` wants integers; cast it in the SQL, or use `weight` for fractions"
            )));
        }
        if !t.is_numeric() {
            return Err(Error::spec(format!(
                "column `{name}` is {t}, but `{section}.{role}` wants numbers; cast it in the SQL"
            )));
        }
        Ok(field)
    }
}

/// The value type of a dictionary or a view.
fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => plain(value),
        DataType::RunEndEncoded(_, value) => plain(value.data_type()),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

/// The state columns of sources and targets.
pub(crate) fn sides(evidence: &RowRoles) -> (&StateColumns, &StateColumns) {
    match evidence {
        RowRoles::Trajectories { state, .. } | RowRoles::Windows { symbol: state, .. } => {
            (state, state)
        }
        RowRoles::Pairs { source, target, .. } => (source, target),
    }
}

/// What counting does with the rows of a query.
pub(crate) struct Roles {
    /// The columns that pairs are made of.
    pub(crate) evidence: RowRoles,
    /// The lags by length.
    pub(crate) lags: Vec<Lag>,
    /// How the times are read.
    pub(crate) rules: TimeRules,
    /// The keys of these rules.
    pub(crate) times: TimeKeys,
}

/// The roles of the columns of a query.
pub(crate) fn roles(input: &Input, columns: &Columns) -> Result<Roles> {
    let (evidence, lags) = evidence(input, columns)?;
    let (mut rules, mut keys) = (TimeRules::default(), TimeKeys::default());
    if let Input::Trajectories { times, .. } = input
        && let RowRoles::Trajectories { time, lags, .. } = &evidence
    {
        rules = time_rules(times, columns, time, lags)?;
        keys = times.clone();
    }
    Ok(Roles {
        evidence,
        lags,
        rules,
        times: keys,
    })
}

/// The rules of the times of a query, whose pairs or sequences have these steps.
pub(crate) fn time_rules(
    keys: &TimeKeys,
    columns: &Columns,
    time: &Field,
    steps: &[Step],
) -> Result<TimeRules> {
    let order = keys.order.as_ref();
    let order = order.map(|name| columns.key(name, "time")).transpose()?;
    let counts_rows = steps.iter().all(|step| matches!(step, Step::Rows(_)));
    let ties = match keys.duplicates {
        Duplicates::First => Ties::First,
        Duplicates::Last => Ties::Last,
        Duplicates::Error if order.is_some() && counts_rows => Ties::All,
        Duplicates::Error => Ties::Refused,
    };
    let (max_gap, tolerance) = (keys.max_gap.as_ref(), keys.tolerance.as_ref());
    Ok(TimeRules {
        open_pairs: OpenPairs::default(),
        tolerance: tolerance
            .map(|tolerance| units("tolerance", tolerance, time))
            .transpose()?,
        order: order.filter(|_| ties != Ties::Refused),
        ties,
        max_gap: max_gap.map(|gap| units("max_gap", gap, time)).transpose()?,
    })
}

fn evidence(input: &Input, columns: &Columns) -> Result<(RowRoles, Vec<Lag>)> {
    match input {
        Input::Trajectories {
            trajectory,
            time,
            state,
            bins,
            weight,
            lags,
            window,
            interval,
            ..
        } => {
            let time = columns.time(time)?;
            let state = StateColumns {
                bins: columns.bins(bins)?,
                keys: columns.keys(state, "state")?,
            };
            let weight = columns.weight(weight.as_ref())?;
            let (lags, steps) = steps(lags, &time)?;
            let trajectory = columns.keys(trajectory, "trajectory")?;
            let strided = *window == Window::Strided;
            let overlap = match window {
                Window::Sliding | Window::Strided => Vec::new(),
                Window::Effective => lags
                    .iter()
                    .map(|lag| overlap(lag, interval.as_ref()))
                    .collect::<Result<_>>()?,
            };
            Ok((
                RowRoles::Trajectories {
                    trajectory,
                    time,
                    state,
                    weight,
                    lags: steps,
                    strided,
                    overlap,
                },
                lags,
            ))
        }
        Input::Pairs {
            source,
            target,
            measure,
        } => {
            let states = |names: &[String], role: &str| {
                Ok::<_, Error>(StateColumns {
                    keys: columns.keys(names, role)?,
                    bins: Vec::new(),
                })
            };
            let measure = match measure {
                PairMeasure::Ones => Measure::One,
                PairMeasure::Count(name) => Measure::Count(columns.number(name, "count", true)?),
                PairMeasure::Weight(name) => {
                    Measure::Weight(columns.number(name, "weight", false)?)
                }
            };
            Ok((
                RowRoles::Pairs {
                    source: states(source, "source")?,
                    target: states(target, "target")?,
                    measure,
                },
                Vec::new(),
            ))
        }
        _ => Err(Error::bug("the rows have no states to count")),
    }
}

/// Lags by length, and the same in units of the time column.
pub(crate) fn steps(lags: &[Lag], time: &Field) -> Result<(Vec<Lag>, Vec<Step>)> {
    let mut lags = lags.to_vec();
    lags.sort_by(Lag::by_length);
    let steps = lags.iter().map(|lag| step("lag", lag, time));
    let steps = steps.collect::<Result<_>>()?;
    Ok((lags, steps))
}

/// The unit of resampling: the columns of `validation.group`, else trajectories, else single
/// transitions.
pub(crate) fn grouping(
    validation: &Validation,
    evidence: &RowRoles,
    columns: &Columns,
) -> Result<Grouping> {
    let mut by = columns.keys(&validation.group, "group")?;
    if let RowRoles::Trajectories { trajectory, .. } = evidence
        && by.is_empty()
    {
        if trajectory.is_empty() {
            return Err(Error::spec(
                "`[validation]` resamples trajectories, but every partition is one; name the column `transitions.trajectory`, or `validation.group` for pieces of it such as years",
            ));
        }
        by.clone_from(trajectory);
    }
    let most = validation.groups;
    Ok(Grouping { most, by })
}

/// The number of steps per lag. A step is the time between rows.
fn overlap(lag: &Lag, interval: Option<&Lag>) -> Result<u64> {
    match (lag, interval) {
        (Lag::Steps(n), _) => Ok(*n),
        (_, Some(interval)) => lag.in_steps_of(interval).ok_or_else(|| {
            Error::spec(format!(
                "lag {lag} is no whole multiple of the interval {interval}"
            ))
        }),
        _ => Err(Error::spec(format!(
            "lag {lag} is a time, and no interval says how many steps it has"
        ))),
    }
}

/// Checks that sources and targets have the same types. The error names `reason`, the key or fit
/// that needs it.
pub(crate) fn check_square(evidence: &RowRoles, reason: &str) -> Result<()> {
    let RowRoles::Pairs { source, target, .. } = evidence else {
        return Ok(());
    };
    let types = |state: &StateColumns| -> Vec<DataType> {
        let keys = state.keys.iter();
        keys.map(|field| field.data_type().clone()).collect()
    };
    if types(source) == types(target) {
        return Ok(());
    }
    let list = |state: &StateColumns| {
        let shown = |field: &Field| format!("`{}` {}", field.name(), field.data_type());
        let keys: Vec<String> = state.keys.iter().map(shown).collect();
        keys.join(", ")
    };
    Err(Error::spec(format!(
        "{reason} takes sources and targets for states of one kind, but the source is {} and the target {}; give them the same types with CAST in the SQL",
        list(source),
        list(target)
    )))
}

/// The step from a row to the one that follows it. Without an interval it is one row.
fn row_step(interval: Option<&Lag>, time: &Field) -> Result<Step> {
    interval.map_or(Ok(Step::Rows(1)), |interval| {
        step("interval", interval, time)
    })
}

/// Steps of a gap, at most: a filter predicts each of them.
const GAP_STEPS: u64 = 1_000_000;

/// The step from a row to the one that follows it, and the rules of the times of sequences.
pub(crate) fn sequence_rules(
    keys: &TimeKeys,
    columns: &Columns,
    time: &Field,
    interval: Option<&Lag>,
) -> Result<(Step, TimeRules)> {
    let step = row_step(interval, time)?;
    let rules = time_rules(keys, columns, time, &[step])?;
    if let (Step::Ticks(ticks), Some(most)) = (step, rules.max_gap)
        && most / ticks as u64 > GAP_STEPS
    {
        let [gap, ticks] = [most, ticks as u64].map(|n| length(n, time));
        return Err(Error::spec(format!(
            "`sequences.max_gap` = {gap} is more than a million times `sequences.interval` = {ticks}, and a filter predicts every interval of a gap; write a smaller `max_gap`"
        )));
    }
    Ok((step, rules))
}

/// What can be done without an interval.
const FOLLOW: &str = "leave the interval out to follow rows in time order";

/// A lag or an interval in units of the time column. `what` is its key.
fn step(what: &str, lag: &Lag, time: &Field) -> Result<Step> {
    let (name, t) = (time.name(), time.data_type());
    let rows = match what {
        "lag" => "count rows with `lag = \"1 step\"`",
        _ => FOLLOW,
    };
    match (lag, t) {
        (Lag::Steps(n), _) => Ok(Step::Rows(*n as usize)),
        (_, DataType::Float32 | DataType::Float64) => Err(Error::spec(format!(
            "{what} {lag} wants exact time differences, but `{name}` is {t}; cast it to an integer or a timestamp, or {rows}"
        ))),
        (Lag::Ticks(n), t) if is_whole(t) => Ok(Step::Ticks(*n)),
        (Lag::Ticks(n), _) => {
            let rows = match what {
                "lag" => format!("\"{n} steps\" for rows in time order"),
                _ => FOLLOW.to_string(),
            };
            Err(Error::spec(format!(
                "{what} {n} is a plain number, but `{name}` is {t}; write a duration such as \"{n}d\", or {rows}"
            )))
        }
        (Lag::Duration { nanoseconds }, _) => {
            let unit = nanoseconds_of(t).ok_or_else(|| no_duration(what, lag, time))?;
            if nanoseconds % unit != 0 {
                return Err(Error::spec(format!(
                    "{what} {lag} is no whole number of units of `{name}`, which is {t}"
                )));
            }
            Ok(Step::Ticks(nanoseconds / unit))
        }
    }
}

/// The length of a unit of a column of dates or timestamps in nanoseconds.
fn nanoseconds_of(data_type: &DataType) -> Option<i64> {
    Some(match data_type {
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => 1_000_000,
        DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
        DataType::Date32 => 86_400_000_000_000,
        _ => return None,
    })
}

fn no_duration(what: &str, lag: &Lag, time: &Field) -> Error {
    let (name, t) = (time.name(), time.data_type());
    Error::spec(format!(
        "{what} {lag} is a duration, but `{name}` is {t}; write the {what} as an integer, or cast the column to a timestamp"
    ))
}

/// The whole units of the time column in a length of time. `what` is its key.
fn units(what: &str, length: &Lag, time: &Field) -> Result<u64> {
    let (name, t) = (time.name(), time.data_type());
    match length {
        _ if t.is_floating() => Err(Error::spec(format!(
            "{what} {length} wants exact time differences, but `{name}` is {t}; cast it to an integer or a timestamp"
        ))),
        Lag::Steps(_) => Err(Error::bug(format!("{what} counts steps"))),
        Lag::Ticks(n) if is_whole(t) => Ok(*n as u64),
        Lag::Ticks(n) => Err(Error::spec(format!(
            "{what} {n} is a plain number, but `{name}` is {t}; write a duration such as \"{n}d\""
        ))),
        Lag::Duration { nanoseconds } => {
            let unit = nanoseconds_of(t).ok_or_else(|| no_duration(what, length, time))?;
            match nanoseconds / unit {
                0 => Err(Error::spec(format!(
                    "{what} {length} is less than one unit of `{name}`, which is {t}"
                ))),
                n => Ok(n as u64),
            }
        }
    }
}

/// A number of units of the time column as a length of time.
pub(crate) fn length(units: u64, time: &Field) -> Lag {
    let units = i64::try_from(units).unwrap_or(i64::MAX);
    match nanoseconds_of(time.data_type()) {
        Some(unit) => Lag::Duration {
            nanoseconds: units.saturating_mul(unit),
        },
        None => Lag::Ticks(units),
    }
}
