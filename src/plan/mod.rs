//! Spec + listing + schemas → Plan: everything that a run will do, resolved and checked, before it does any of it.
//!
//! A plan can be printed, compared by its hash, and run. Nothing is computed here.

mod show;

use crate::count::{Evidence, Grouping, Layout, Measure, StateColumns, StateTable, Step, is_time};
use crate::error::{Error, Result};
use crate::ranks;
use crate::read::{Lake, Table};
use crate::reduce::criteria::Rule;
use crate::reduce::{cocluster, dbmr, schur, svd};
use crate::spec::{self, Input, Lag, NamesFrom, Spec, Window, nearest};
use crate::write::{self, FitColumns, LagColumn, Names};
use arrow::datatypes::{DataType, Field, TimeUnit};
use arrow::row::{RowConverter, SortField};
use datafusion::common::ScalarValue;
use datafusion::dataframe::DataFrame;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run will do.
pub struct Plan {
    pub name: String,
    pub output: String,
    pub seed: u64,
    pub tables: Vec<Table>,
    pub sql: String,
    pub parameters: BTreeMap<String, ScalarValue>,
    pub layout: Arc<Layout>,
    /// The lags as written, in the order of the matrices.
    pub lags: Vec<Lag>,
    pub fits: Vec<PlannedFit>,
    /// Resamples of the groups of `Layout::grouping`.
    pub validation: Option<Validation>,
    pub names: NamesFrom,
    /// Test whether the sets of the fits are Markov chains.
    pub markov: bool,
    /// Changes with the pipeline, its SQL, the input files and the version of gyre, and with nothing else.
    pub hash: String,
}

/// How the fits are tried on resamples.
#[derive(Debug, Clone, PartialEq)]
pub struct Validation {
    /// Bootstrap resamples; 0: none.
    pub bootstrap: usize,
    /// Folds of a cross-validation; 0: none.
    pub folds: usize,
    /// Of the intervals.
    pub confidence: f64,
}

/// One fit of every partition and lag, ranks apart.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedFit {
    /// First part of its column names: `<name>_r<rank>` where the pipeline asks for several ranks.
    pub name: String,
    /// At the largest rank, where one is to be picked.
    pub method: PlannedMethod,
    pub ranks: Ranks,
}

/// How the rank of a fit came to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Ranks {
    /// It is the only one, or it has none.
    One,
    /// One of several of the pipeline's fit of this name, each a fit of its own.
    OneOf(String),
    /// A rule picks it among these, which ascend, for every partition and lag.
    Auto { rule: Rule, candidates: Vec<usize> },
}

#[derive(Debug, Clone, PartialEq)]
pub enum PlannedMethod {
    Dbmr(dbmr::Params),
    Svd(svd::Params),
    Cocluster(cocluster::Params),
    /// One set of states on both sides.
    Metastable(cocluster::Params),
    /// One set of states on both sides.
    Gpcca(schur::Params),
    /// Scores the partition in the column at this place of `Layout::given`.
    Given(usize),
}

impl PlannedFit {
    pub fn method_name(&self) -> &'static str {
        match self.method {
            PlannedMethod::Dbmr(_) => "dbmr",
            PlannedMethod::Svd(_) => "svd",
            PlannedMethod::Cocluster(_) => "cocluster",
            PlannedMethod::Metastable(_) => "metastable",
            PlannedMethod::Gpcca(_) => "gpcca",
            PlannedMethod::Given(_) => "given",
        }
    }

    /// Nothing for a given partition, whose sets are counted.
    pub fn rank(&self) -> Option<usize> {
        match &self.method {
            PlannedMethod::Dbmr(p) => Some(p.rank),
            PlannedMethod::Svd(p) => Some(p.rank),
            PlannedMethod::Cocluster(p) | PlannedMethod::Metastable(p) => Some(p.rank),
            PlannedMethod::Gpcca(p) => Some(p.rank),
            PlannedMethod::Given(_) => None,
        }
    }

    /// The name that the pipeline file has for it.
    pub fn family(&self) -> &str {
        match &self.ranks {
            Ranks::OneOf(name) => name,
            _ => &self.name,
        }
    }

    /// Whether sources and targets are states of one kind to it.
    fn is_square(&self) -> bool {
        matches!(
            self.method,
            PlannedMethod::Metastable(_) | PlannedMethod::Gpcca(_)
        )
    }

    /// Whether it gives memberships beside labels.
    fn is_soft(&self) -> bool {
        match &self.method {
            PlannedMethod::Svd(p) => p.clusters != svd::Clusters::KMeans,
            PlannedMethod::Gpcca(_) => true,
            _ => false,
        }
    }
}

impl PlannedMethod {
    fn with_rank(&self, rank: usize) -> PlannedMethod {
        let mut method = self.clone();
        match &mut method {
            PlannedMethod::Dbmr(p) => p.rank = rank,
            PlannedMethod::Svd(p) => p.rank = rank,
            PlannedMethod::Cocluster(p) | PlannedMethod::Metastable(p) => p.rank = rank,
            PlannedMethod::Gpcca(p) => p.rank = rank,
            PlannedMethod::Given(_) => (),
        }
        method
    }
}

/// Resolves a pipeline whose query text is `sql` against the tables of a lake. Also returns the query, ready to run.
pub async fn plan(
    spec: &Spec,
    sql: &str,
    seed: Option<u64>,
    lake: &Lake,
) -> Result<(Plan, DataFrame)> {
    let sql = sql.trim().trim_end_matches(';').to_string();
    let parameters: BTreeMap<String, ScalarValue> = spec
        .transitions
        .parameters
        .iter()
        .map(|(k, v)| (k.clone(), scalar(v)))
        .collect();
    let frame = lake.query(&sql, &parameters).await?;
    let columns = Columns::of(&frame)?;
    let (evidence, lags) = evidence(&spec.transitions.input, &columns)?;
    let given_columns: Vec<&String> = spec
        .fits
        .iter()
        .filter_map(|f| {
            if let spec::Method::Given(g) = &f.method {
                Some(&g.affiliation)
            } else {
                None
            }
        })
        .collect();
    let asked = spec.validation.as_ref();
    let asked = asked.filter(|asked| asked.bootstrap > 0 || asked.folds > 0);
    let grouping = asked.map(|asked| grouping(asked, &evidence, &columns));
    let markov = spec.validation.as_ref().is_some_and(|v| v.markov);
    let connected = spec.transitions.connected;
    let one_label_set = connected || markov;
    if one_label_set {
        let key = if connected {
            "`transitions.connected`"
        } else {
            "`validation.markov`"
        };
        check_square(&evidence, key)?;
    }
    let layout = Layout {
        partition: spec
            .transitions
            .partition_by
            .iter()
            .map(|n| columns.key(n, "partition_by"))
            .collect::<Result<_>>()?,
        evidence,
        given: given_columns
            .iter()
            .map(|n| columns.key(n, "affiliation"))
            .collect::<Result<_>>()?,
        grouping: grouping.transpose()?,
        one_label_set,
        connected,
    };
    let fits = fits(spec);
    let validation = asked.map(|asked| Validation {
        bootstrap: asked.bootstrap,
        folds: asked.folds,
        confidence: asked.confidence,
    });
    let seed = seed.unwrap_or(spec.job.seed);
    let hash = hash(spec, &sql, seed, &lake.tables)?;
    let frame = lake.select(frame, &layout)?;
    let plan = Plan {
        name: spec.job.name.clone(),
        output: spec.job.output.clone(),
        seed,
        tables: lake.tables.clone(),
        sql,
        parameters,
        layout: Arc::new(layout),
        lags,
        fits,
        validation,
        names: spec.names.from.clone(),
        markov,
        hash,
    };
    check_names(&plan)?;
    for fit in plan.fits.iter().filter(|fit| fit.is_square()) {
        let asker = format!("method \"{}\" of fit `{}`", fit.method_name(), fit.name);
        check_square(&plan.layout.evidence, &asker)?;
    }
    Ok((plan, frame))
}

fn scalar(parameter: &spec::Parameter) -> ScalarValue {
    match parameter {
        spec::Parameter::Boolean(v) => ScalarValue::from(*v),
        spec::Parameter::Integer(v) => ScalarValue::from(*v),
        spec::Parameter::Float(v) => ScalarValue::from(*v),
        spec::Parameter::String(v) => ScalarValue::from(v.as_str()),
    }
}

/// The columns of the query.
struct Columns(Vec<Field>);

impl Columns {
    fn of(frame: &DataFrame) -> Result<Columns> {
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
                    "the SQL of [transitions] gives two columns called `{name}`; name one of them otherwise with AS"
                )));
            }
        }
        Ok(Columns(fields))
    }

    /// The column called `name`, with the type that counting reads it as.
    fn get(&self, name: &str, role: &str) -> Result<Field> {
        if let Some(field) = self.0.iter().find(|f| f.name() == name) {
            return Ok(Field::new(name, plain(field.data_type()), true));
        }
        let names: Vec<&str> = self.0.iter().map(|f| f.name().as_str()).collect();
        let hint = match nearest(name, &names) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!(
                "it gives {}",
                names
                    .iter()
                    .map(|n| format!("`{n}`"))
                    .collect::<Vec<_>>()
                    .join(", ")
            ),
        };
        let key = match role {
            "affiliation" => role.to_string(),
            "group" => format!("validation.{role}"),
            _ => format!("transitions.{role}"),
        };
        Err(Error::spec(format!(
            "`{key}` names the column `{name}`, which the SQL does not give; {hint}"
        )))
    }

    /// A column whose values can tell things apart.
    fn key(&self, name: &str, role: &str) -> Result<Field> {
        let field = self.get(name, role)?;
        if !RowConverter::supports_fields(&[SortField::new(field.data_type().clone())]) {
            return Err(Error::spec(format!(
                "column `{name}` is {}, which cannot be a key; cast it in the SQL",
                field.data_type()
            )));
        }
        Ok(field)
    }

    fn number(&self, name: &str, role: &str, integer: bool) -> Result<Field> {
        let field = self.get(name, role)?;
        let t = field.data_type();
        if integer && !t.is_integer() {
            return Err(Error::spec(format!(
                "column `{name}` is {t}, but `transitions.{role}` wants integers; cast it in the SQL, or use `weight` for fractions"
            )));
        }
        if !t.is_numeric() {
            return Err(Error::spec(format!(
                "column `{name}` is {t}, but `transitions.{role}` wants numbers; cast it in the SQL"
            )));
        }
        Ok(field)
    }
}

/// The type behind a dictionary or a view.
fn plain(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Dictionary(_, value) => plain(value),
        DataType::RunEndEncoded(_, value) => plain(value.data_type()),
        DataType::Utf8View => DataType::Utf8,
        DataType::BinaryView => DataType::Binary,
        other => other.clone(),
    }
}

fn evidence(input: &Input, columns: &Columns) -> Result<(Evidence, Vec<Lag>)> {
    let keys = |names: &[String], role: &str| {
        names
            .iter()
            .map(|n| columns.key(n, role))
            .collect::<Result<Vec<_>>>()
    };
    match input {
        Input::Trajectories {
            trajectory,
            time,
            state,
            bins,
            lags,
            window,
            interval,
        } => {
            let time = columns.get(time, "time")?;
            if !is_time(time.data_type()) {
                return Err(Error::spec(format!(
                    "`transitions.time` names the column `{}`, which is {}; time is an integer, a date or a timestamp: cast it in the SQL",
                    time.name(),
                    time.data_type()
                )));
            }
            for (name, _) in bins {
                columns.number(name, "bins", false)?;
            }
            let state = StateColumns {
                keys: keys(state, "state")?,
                bins: bins.clone(),
            };
            let mut lags = lags.clone();
            sort_lags(&mut lags);
            let steps = lags
                .iter()
                .map(|lag| step(lag, &time))
                .collect::<Result<Vec<_>>>()?;
            let trajectory = keys(trajectory, "trajectory")?;
            let strided = *window == Window::Strided;
            let overlap = match window {
                Window::Sliding | Window::Strided => Vec::new(),
                Window::Effective => lags
                    .iter()
                    .map(|lag| overlap(lag, interval.as_ref()))
                    .collect::<Result<_>>()?,
            };
            Ok((
                Evidence::Trajectories {
                    trajectory,
                    time,
                    state,
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
                    keys: keys(names, role)?,
                    bins: Vec::new(),
                })
            };
            let measure = match measure {
                spec::Measure::Ones => Measure::One,
                spec::Measure::Count(name) => Measure::Count(columns.number(name, "count", true)?),
                spec::Measure::Weight(name) => {
                    Measure::Weight(columns.number(name, "weight", false)?)
                }
            };
            Ok((
                Evidence::Pairs {
                    source: states(source, "source")?,
                    target: states(target, "target")?,
                    measure,
                },
                Vec::new(),
            ))
        }
    }
}

/// What is resampled: the columns named for it, else trajectories, else single transitions.
fn grouping(asked: &spec::Validation, evidence: &Evidence, columns: &Columns) -> Result<Grouping> {
    let named = asked.group.iter().map(|name| columns.key(name, "group"));
    let mut by: Vec<Field> = named.collect::<Result<_>>()?;
    if let Evidence::Trajectories { trajectory, .. } = evidence
        && by.is_empty()
    {
        if trajectory.is_empty() {
            return Err(Error::spec(
                "`[validation]` resamples trajectories, but every partition is one; name the column `transitions.trajectory`, or `validation.group` for pieces of it such as years",
            ));
        }
        by.clone_from(trajectory);
    }
    let most = asked.groups;
    Ok(Grouping { most, by })
}

/// How many steps a lag has, each as long as the time between rows.
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

/// Whether the states that a pair begins and ends with can be the same ones.
fn check_square(evidence: &Evidence, asker: &str) -> Result<()> {
    let Evidence::Pairs { source, target, .. } = evidence else {
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
        "{asker} takes sources and targets for states of one kind, but the source is {} and the target {}; give them the same types with CAST in the SQL",
        list(source),
        list(target)
    )))
}

fn all_integers(lags: &[Lag]) -> Option<Vec<i64>> {
    lags.iter()
        .map(|lag| {
            if let Lag::Ticks(n) = lag {
                Some(*n)
            } else {
                None
            }
        })
        .collect()
}

/// The order in which the lag column sorts, so that the tables are sorted by it.
fn sort_lags(lags: &mut [Lag]) {
    if all_integers(lags).is_some() {
        lags.sort_by_key(|lag| if let Lag::Ticks(n) = lag { *n } else { 0 });
    } else {
        lags.sort_by_key(Lag::to_string);
    }
}

/// A lag in units of the time column.
fn step(lag: &Lag, time: &Field) -> Result<Step> {
    let (name, t) = (time.name(), time.data_type());
    match (lag, t) {
        (Lag::Steps(n), _) => Ok(Step::Rows(*n as usize)),
        (_, DataType::Float32 | DataType::Float64) => Err(Error::spec(format!(
            "lag {lag} wants exact time differences, but `{name}` is {t}; cast it to an integer or a timestamp, or count rows with `lag = \"1 step\"`"
        ))),
        (Lag::Ticks(n), t) if t.is_integer() => Ok(Step::Ticks(*n)),
        (Lag::Ticks(n), _) => Err(Error::spec(format!(
            "lag {n} is a plain number, but `{name}` is {t}; write a duration such as \"{n}d\", or \"{n} steps\" for rows in time order"
        ))),
        (Lag::Duration { nanoseconds, .. }, _) => {
            let unit = match t {
                DataType::Timestamp(TimeUnit::Nanosecond, _) => 1,
                DataType::Timestamp(TimeUnit::Microsecond, _) => 1_000,
                DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => 1_000_000,
                DataType::Timestamp(TimeUnit::Second, _) => 1_000_000_000,
                DataType::Date32 => 86_400_000_000_000,
                _ => {
                    return Err(Error::spec(format!(
                        "lag {lag} is a duration, but `{name}` is {t}; write the lag as an integer, or cast the column to a timestamp"
                    )));
                }
            };
            if nanoseconds % unit != 0 {
                return Err(Error::spec(format!(
                    "lag {lag} is no whole number of units of `{name}`, which is {t}"
                )));
            }
            Ok(Step::Ticks(nanoseconds / unit))
        }
    }
}

fn fits(spec: &Spec) -> Vec<PlannedFit> {
    let mut fits = Vec::new();
    let mut given = 0;
    for fit in &spec.fits {
        for (rank, name) in fit.expanded() {
            let method = match (&fit.method, rank) {
                (spec::Method::Dbmr(p), Some(rank)) => PlannedMethod::Dbmr(dbmr::Params {
                    rank,
                    init: match p.init {
                        spec::Init::Random => dbmr::Init::Random,
                        spec::Init::Kl => dbmr::Init::Kl,
                        spec::Init::Svd => dbmr::Init::Svd,
                    },
                    polish: p.polish,
                    restarts: p.restarts,
                    max_iterations: p.max_iterations,
                    tolerance: p.tolerance(),
                }),
                (spec::Method::Svd(p), Some(rank)) => {
                    let (restarts, max_iterations, tolerance) =
                        (p.restarts, p.max_iterations, p.tolerance);
                    PlannedMethod::Svd(svd::Params {
                        clusters: match p.clusters {
                            spec::Clusters::KMeans => svd::Clusters::KMeans,
                            spec::Clusters::Seba => svd::Clusters::Seba,
                            spec::Clusters::Pcca => svd::Clusters::Pcca,
                        },
                        restarts,
                        max_iterations,
                        tolerance,
                        ..svd::Params::new(rank)
                    })
                }
                (spec::Method::Cocluster(p), Some(rank)) => {
                    PlannedMethod::Cocluster(cocluster::Params {
                        rank,
                        restarts: p.restarts,
                        max_iterations: p.max_iterations,
                    })
                }
                (spec::Method::Metastable(p), Some(rank)) => {
                    PlannedMethod::Metastable(cocluster::Params {
                        rank,
                        restarts: p.restarts,
                        max_iterations: p.max_iterations,
                    })
                }
                (spec::Method::Gpcca(p), Some(rank)) => PlannedMethod::Gpcca(schur::Params {
                    tolerance: p.tolerance,
                    ..schur::Params::new(rank)
                }),
                _ => {
                    given += 1;
                    PlannedMethod::Given(given - 1)
                }
            };
            let ranks = match (fit.rule, fit.ranks()) {
                (Some(rule), candidates) => {
                    let mut candidates = candidates.to_vec();
                    candidates.sort_unstable();
                    Ranks::Auto {
                        rule: self::rule(rule),
                        candidates,
                    }
                }
                (None, [_, _, ..]) => Ranks::OneOf(fit.name.clone()),
                (None, _) => Ranks::One,
            };
            fits.push(PlannedFit {
                name,
                method,
                ranks,
            });
        }
    }
    fits
}

fn rule(rule: spec::Rule) -> Rule {
    match rule {
        spec::Rule::Gap => Rule::Gap,
        spec::Rule::Aic => Rule::Aic,
        spec::Rule::Bic => Rule::Bic,
        spec::Rule::HeldOut => Rule::HeldOut,
        spec::Rule::Vamp2 => Rule::Vamp2,
    }
}

/// Columns of the query stand beside gyre's own in the tables: no table may get two of one name.
fn check_names(plan: &Plan) -> Result<()> {
    let (sources, targets) = match &plan.layout.evidence {
        Evidence::Trajectories { state, .. } => (state, state),
        Evidence::Pairs { source, target, .. } => (source, target),
    };
    let names = Names {
        partition: plan.layout.partition.clone(),
        partitions: Vec::new(),
        lag: plan.lag_column(),
        sources: StateTable::empty(sources),
        targets: StateTable::empty(targets),
        is_weighted: plan.is_weighted(),
        fits: plan.fit_columns(&vec![1; plan.layout.given.len()]),
        tables: plan.tables(),
    };
    for &table in &names.tables {
        let (schema, _) = write::schema(table, &names);
        for (at, field) in schema.fields().iter().enumerate() {
            if schema.fields()[..at]
                .iter()
                .any(|f| f.name() == field.name())
            {
                return Err(Error::spec(format!(
                    "the column `{}` would stand twice in the table `{}`; rename the column of the SQL with AS",
                    field.name(),
                    table.name()
                )));
            }
        }
    }
    Ok(())
}

fn hash(spec: &Spec, sql: &str, seed: u64, tables: &[Table]) -> Result<String> {
    let files: Vec<_> = tables.iter().map(|t| (&t.name, &t.files)).collect();
    let whole = serde_json::to_vec(&(env!("CARGO_PKG_VERSION"), spec, sql, seed, files))
        .map_err(|e| Error::with_source(crate::error::Kind::Bug, "a plan cannot be hashed", e))?;
    Ok(blake3::hash(&whole).to_hex()[..32].to_string())
}

impl Plan {
    pub fn lag_column(&self) -> LagColumn {
        if self.lags.is_empty() {
            return LagColumn::None;
        }
        match all_integers(&self.lags) {
            Some(integers) => LagColumn::Integers(integers),
            None => LagColumn::Texts(self.lags.iter().map(Lag::to_string).collect()),
        }
    }

    /// The fits of a model of so many states, each with its place in `fits`: where a rank is to be picked, one for every candidate
    /// that the states allow, under the name that it would have in a list of ranks.
    pub fn candidates(
        &self,
        n_sources: usize,
        n_targets: usize,
    ) -> Result<Vec<(usize, PlannedFit)>> {
        let mut all = Vec::with_capacity(self.fits.len());
        for (at, fit) in self.fits.iter().enumerate() {
            let Ranks::Auto { candidates, .. } = &fit.ranks else {
                all.push((at, fit.clone()));
                continue;
            };
            let before = all.len();
            let largest = n_sources.min(n_targets);
            for &rank in candidates.iter().filter(|rank| **rank <= largest) {
                let candidate = PlannedFit {
                    name: format!("{}_r{rank}", fit.name),
                    method: fit.method.with_rank(rank),
                    ranks: Ranks::OneOf(fit.name.clone()),
                };
                all.push((at, candidate));
            }
            if all.len() == before {
                let message = format!(
                    "all of its `ranks` are larger than the number of states ({n_sources} sources, {n_targets} targets)"
                );
                return Err(Error::input(message).at(format!("fit `{}`", fit.name)));
            }
        }
        Ok(all)
    }

    /// Folds of a cross-validation; 0: none.
    pub fn folds(&self) -> usize {
        self.validation.as_ref().map_or(0, |v| v.folds)
    }

    /// The tables that the run will write: some hold what only some pipelines ask for.
    pub fn tables(&self) -> Vec<write::Table> {
        let compared = self.fits.iter().any(|f| ranks::is_compared(self, f));
        let is_written = |table: &write::Table| match table {
            write::Table::Ranks => compared,
            write::Table::Bootstrap => self.resamples() > 0,
            write::Table::Timescales | write::Table::ChapmanKolmogorov => self.markov,
            _ => true,
        };
        let tables = write::Table::ALL.into_iter();
        tables.filter(is_written).collect()
    }

    /// Whether counts are real numbers.
    pub fn is_weighted(&self) -> bool {
        match &self.layout.evidence {
            Evidence::Pairs { measure, .. } => matches!(measure, Measure::Weight(_)),
            Evidence::Trajectories { overlap, .. } => !overlap.is_empty(),
        }
    }

    /// Bootstrap resamples; 0: none.
    pub fn resamples(&self) -> usize {
        self.validation.as_ref().map_or(0, |v| v.bootstrap)
    }

    /// What the columns of a fit will be; the rank of a given partition is known once its labels are counted.
    pub fn fit_columns(&self, label_counts: &[usize]) -> Vec<FitColumns> {
        let rank = |fit: &PlannedFit| match fit.method {
            PlannedMethod::Given(at) => label_counts[at],
            _ => fit.rank().unwrap_or(0),
        };
        self.fits
            .iter()
            .map(|f| FitColumns {
                name: f.name.clone(),
                method: f.method_name(),
                rank: rank(f),
                is_soft: f.is_soft(),
            })
            .collect()
    }
}
