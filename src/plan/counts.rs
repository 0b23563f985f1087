//! Pipeline + tables → [`CountsPlan`]: all that a run over states will do, resolved and checked.

use crate::error::{Error, Result, counted};
use crate::evidence::lag::Lag;
use crate::methods::ChainMethod;
use crate::methods::estimator::{Ranked, States};
use crate::methods::heat_kernel::params::ChainKernel;
use crate::output::tables::run_schema::{EmbeddingColumns, FitColumns, RunSchema};
use crate::output::tables::{self, table};
use crate::plan::assignment::{Assignment, NewRows};
use crate::plan::evidence::{Columns, Roles, check_square, grouping, roles, sides};
use crate::plan::fits::{PlannedFit, PlannedValidation, Ranks, planned};
use crate::plan::increments::{Increments, increments};
use crate::plan::job::PlannedJob;
use crate::plan::kind::{KindPlan, PlanLines, Shown, with_job};
use crate::plan::left_out::{left_out, repeats};
use crate::plan::pipeline::keys::NamesFrom;
use crate::plan::pipeline::{Pipeline, TimeKeys};
use crate::plan::rows::{PlannedQuery, lag_column};
use crate::plan::show::{
    add_times, column, columns, fit_lines, fits_json, increments_json, increments_line, names,
    order_text, state_columns, state_text, times_text, weights_text,
};
use crate::read::lake::Lake;
use crate::read::rows::layout::{Layout, Measure, RowRoles};
use crate::read::rows::states::StateTable;
use crate::read::rows::time_rules::TimeSteps;
use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// What a run will do. The serialized part is what executors need to count and to fit.
#[derive(Serialize, Deserialize)]
pub struct CountsPlan {
    /// What the run reads and where it writes.
    pub job: PlannedJob,
    /// The roles of the columns of the query.
    pub layout: Arc<Layout>,
    /// The lags in the order of the matrices, by length.
    pub lags: Vec<Lag>,
    /// How the times are read, as written.
    #[serde(skip)]
    pub(crate) times: TimeKeys,
    /// The fits, one per rank unless a rule picks the rank.
    pub fits: Vec<PlannedFit>,
    /// The embeddings of states, which have no sets.
    pub embeddings: Vec<PlannedFit<ChainMethod>>,
    /// Resamples of the groups of `Layout::grouping`.
    pub validation: Option<PlannedValidation>,
    /// The result from which the sets take their names.
    #[serde(skip)]
    pub names: NamesFrom,
    /// Test whether the sets of the fits are Markov chains.
    pub markov: bool,
    /// Whether only new files are counted.
    #[serde(skip)]
    pub increments: Increments,
    /// The columns of the input in the table `rows`, except those of the partition. None if the
    /// run writes no such table.
    #[serde(skip)]
    pub rows: Option<Vec<Field>>,
}

/// New rows with states.
pub(crate) struct NewStates {
    /// The roles of the columns of the query.
    pub layout: Arc<Layout>,
    /// The lags in the order of the matrices, by length.
    pub lags: Vec<Lag>,
}

impl NewRows for NewStates {
    /// `connected` is ignored, because new rows need not form a connected chain. Each pair that
    /// `window` admits counts 1, because a common divisor of the counts changes neither sets nor
    /// coordinates nor means.
    async fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        lake: &Lake,
    ) -> Result<(Assignment<NewStates>, DataFrame)> {
        let Roles {
            mut evidence,
            lags,
            rules,
            ..
        } = roles(&pipeline.transitions.input, &query.columns)?;
        if let RowRoles::Trajectories { overlap, .. } = &mut evidence {
            overlap.clear();
        }
        let layout = Layout {
            partition: query.partition,
            evidence,
            given: Vec::new(),
            grouping: None,
            one_label_set: false,
            connected: false,
            rules,
        };
        let frame = lake.select(query.frame, &layout)?;
        let rows = NewStates {
            layout: Arc::new(layout),
            lags,
        };
        let assignment = Assignment::new(pipeline, &query.sql, lake, &(), rows)?;
        Ok((assignment, frame))
    }

    fn time_steps(&self) -> Option<TimeSteps<'_>> {
        self.layout.time_steps()
    }
}

/// The key or fit that needs sources and targets of one kind, if there is one.
fn needs_square(
    pipeline: &Pipeline,
    fits: &[PlannedFit],
    embeddings: &[PlannedFit<ChainMethod>],
) -> Option<String> {
    if pipeline.transitions.connected {
        return Some("`transitions.connected`".into());
    }
    if pipeline.validation.as_ref().is_some_and(|v| v.markov) {
        return Some("`validation.markov`".into());
    }
    let shown = |method: &str, name: &str| format!("method \"{method}\" of fit `{name}`");
    let mut fits = fits.iter();
    let fit = fits.find(|fit| fit.method.needs().states != States::Apart);
    let mut embeddings = embeddings.iter();
    let embedding = embeddings.find(|fit| fit.method.kernel() == ChainKernel::Symmetrised);
    let fit = fit.map(|fit| shown(fit.method.name(), &fit.name));
    fit.or_else(|| embedding.map(|fit| shown(fit.method.name(), &fit.name)))
}

/// The columns of the table `rows` after those of the partition. None without such a table.
fn shown_rows(pipeline: &Pipeline, columns: &Columns) -> Result<Option<Vec<Field>>> {
    let keys = &pipeline.transitions.partition_by;
    let asked = pipeline.output.rows.columns().unwrap_or_default();
    let shown = asked.iter().filter(|name| !keys.contains(name));
    let shown = shown.map(|name| columns.shown(name));
    let shown: Vec<Field> = shown.collect::<Result<_>>()?;
    Ok((!asked.is_empty()).then_some(shown))
}

/// What the tasks that count rows need of a plan.
#[derive(Serialize, Deserialize)]
pub(crate) struct CountingPlan {
    /// What the run reads and where it writes.
    pub job: PlannedJob,
    /// The roles of the columns of the query.
    pub layout: Arc<Layout>,
    /// Whether only new files are counted.
    #[serde(skip)]
    pub increments: Increments,
}

impl CountsPlan {
    /// What counts the transitions.
    pub(crate) fn counting(&self) -> CountingPlan {
        CountingPlan {
            job: self.job.clone(),
            layout: Arc::clone(&self.layout),
            increments: self.increments.clone(),
        }
    }

    /// The fits of a model with these numbers of states, each with its index in `fits`.
    ///
    /// A fit whose rank a rule picks becomes one fit per candidate rank up to the number of states,
    /// named as in a list of ranks.
    ///
    /// # Errors
    /// If all candidates are above the number of states.
    pub(crate) fn candidates(
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
                    method: fit.method.at(rank),
                    ranks: Ranks::OneOf(fit.name.clone()),
                };
                all.push((at, candidate));
            }
            if all.len() == before {
                let message = format!(
                    "all of its `ranks` are larger than the number of states ({}, {})",
                    counted(n_sources, "source"),
                    counted(n_targets, "target")
                );
                return Err(Error::input(message).at(format!("fit `{}`", fit.name)));
            }
        }
        Ok(all)
    }

    /// Whether all fits read their matrix only in passes, so that executors may hold it.
    ///
    /// # Errors
    /// The reason why not.
    pub(crate) fn by_passes(&self) -> Result<(), String> {
        if self.validation.is_some() || self.markov {
            return Err("[validation] makes matrices of its own".into());
        }
        let whole = |fit: &PlannedFit| {
            let why = fit.method.needs().whole_matrix?;
            Some(format!("fit `{}` is no passes alone: {why}", fit.name))
        };
        self.fits.iter().find_map(whole).map_or(Ok(()), Err)
    }

    /// Whether there is a model to fit. Otherwise a run counts only.
    pub(crate) fn has_fits(&self) -> bool {
        !self.fits.is_empty() || !self.embeddings.is_empty()
    }

    /// The number of folds of a cross-validation; 0 for none.
    pub(crate) fn folds(&self) -> usize {
        self.validation.as_ref().map_or(0, |v| v.folds)
    }

    /// The tables that the run will write. Some are optional.
    fn tables(&self) -> Vec<table::Table> {
        let compared = self.fits.iter().any(|fit| is_compared(self, fit));
        let is_written = |table: &table::Table| match table {
            table::Table::Ranks => compared,
            table::Table::Embeddings => !self.embeddings.is_empty(),
            table::Table::Bootstrap => self.resamples() > 0,
            table::Table::Rows => self.rows.is_some(),
            table::Table::Timescales | table::Table::ChapmanKolmogorov => self.markov,
            table::Table::Coarse | table::Table::Certificates | table::Table::Restarts => {
                self.has_fits()
            }
            _ => true,
        };
        let is_wanted = |table: &table::Table| !self.job.left_out.contains(&table.name());
        let all = table::Table::ALL.into_iter();
        all.filter(is_written).filter(is_wanted).collect()
    }

    /// The number of bootstrap resamples; 0 for none.
    pub(crate) fn resamples(&self) -> usize {
        self.validation.as_ref().map_or(0, |v| v.bootstrap)
    }

    /// The index of the column of a given partition in `Layout::given`.
    pub(crate) fn given(&self, column: &str) -> Option<usize> {
        self.layout
            .given
            .iter()
            .position(|field| field.name() == column)
    }

    /// The schema of the tables of a run. `partitions` has one array per partition column, `labels`
    /// the number of labels of each given partition.
    pub(crate) fn run_schema(
        &self,
        partitions: Vec<ArrayRef>,
        [sources, targets]: [StateTable; 2],
        labels: &[usize],
    ) -> RunSchema {
        RunSchema {
            partition: self.layout.partition.clone(),
            partitions,
            lag: lag_column(&self.lags),
            sources,
            targets,
            is_weighted: self.layout.is_weighted(),
            fits: self.fit_columns(labels),
            embeddings: self.embedding_columns(),
            has_stability: self.resamples() > 0,
            tables: self.tables(),
            rows: self.rows.clone().unwrap_or_default(),
        }
    }

    /// The output columns of the fits. `label_counts` are the numbers of sets of the given
    /// partitions, which are known once the rows are counted.
    fn fit_columns(&self, label_counts: &[usize]) -> Vec<FitColumns> {
        let rank = |fit: &PlannedFit| match fit.method.needs().given {
            Some(column) => self.given(column).map_or(0, |at| label_counts[at]),
            None => fit.method.rank().unwrap_or(0),
        };
        self.fits
            .iter()
            .map(|f| FitColumns {
                name: f.name.clone(),
                method: f.method.name(),
                rank: rank(f),
                columns: f.method.columns(),
            })
            .collect()
    }

    /// The output columns of the embeddings of states.
    fn embedding_columns(&self) -> Vec<EmbeddingColumns> {
        let columns = |fit: &PlannedFit<ChainMethod>| EmbeddingColumns {
            name: fit.name.clone(),
            method: fit.method.name(),
            parts: fit.method.parts(),
            dimension: fit.method.dimension(),
        };
        self.embeddings.iter().map(columns).collect()
    }
}

/// Whether a fit has rows in the table `ranks`: there are other ranks to compare, or folds to score
/// it.
pub(crate) fn is_compared(plan: &CountsPlan, planned: &PlannedFit) -> bool {
    planned.ranks != Ranks::One || plan.folds() > 0
}

impl KindPlan for CountsPlan {
    async fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        mut job: PlannedJob,
        lake: &Lake,
    ) -> Result<(CountsPlan, DataFrame)> {
        let Roles {
            evidence,
            lags,
            rules,
            times,
        } = roles(&pipeline.transitions.input, &query.columns)?;
        let given = pipeline.fits.iter();
        let given = given.filter_map(|fit| fit.method.needs().given);
        let given = given.map(|column| query.columns.key(column, "affiliation"));
        let given = given.collect::<Result<_>>()?;
        let (fits, embeddings) = (planned(&pipeline.fits), planned(&pipeline.embeddings));
        let square = needs_square(pipeline, &fits, &embeddings);
        if let Some(reason) = &square {
            check_square(&evidence, reason)?;
        }
        let rows = shown_rows(pipeline, &query.columns)?;
        let validation = pipeline.validation.as_ref();
        let resampled = validation.filter(|v| v.bootstrap > 0 || v.folds > 0);
        let grouping = resampled.map(|v| grouping(v, &evidence, &query.columns));
        let layout = Layout {
            partition: query.partition.clone(),
            evidence,
            given,
            grouping: grouping.transpose()?,
            one_label_set: square.is_some(),
            connected: pipeline.transitions.connected,
            rules,
        };
        let increments = increments(pipeline, &query, &layout, lake);
        let frame = lake.select(query.frame, &layout)?;
        let has_fits = !fits.is_empty() || !embeddings.is_empty();
        if has_fits && repeats(&layout.evidence) {
            job.left_out = left_out(&pipeline.output, &table::Table::OPTIONAL, true);
        }
        let plan = CountsPlan {
            job,
            layout: Arc::new(layout),
            lags,
            times,
            fits,
            embeddings,
            validation: resampled.map(|_| PlannedValidation::of(validation)),
            names: pipeline.names.from.clone(),
            markov: validation.is_some_and(|v| v.markov),
            increments,
            rows,
        };
        Ok((plan, frame))
    }

    with_job!();

    fn times(&self) -> TimeKeys {
        self.times.clone()
    }

    fn time_steps(&self) -> Option<TimeSteps<'_>> {
        self.layout.time_steps()
    }

    fn lags(&self) -> &[Lag] {
        &self.lags
    }

    fn n_fits(&self) -> usize {
        self.fits.len() + self.embeddings.len()
    }

    fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        let (sources, targets) = sides(&self.layout.evidence);
        let states = [sources, targets].map(StateTable::empty);
        let names = self.run_schema(Vec::new(), states, &vec![1; self.layout.given.len()]);
        let tables = names.tables.iter();
        tables
            .map(|&table| (table.name(), tables::schema(table, &names).0))
            .collect()
    }

    fn lines(&self) -> PlanLines {
        let mut evidence = vec![("count", self.evidence().text)];
        if self.layout.connected {
            let what = "the largest strongly connected set of states";
            evidence.push(("keep", what.into()));
        }
        let mut fits = fit_lines(&self.fits, |fit, rank| fit.method.describe(rank));
        let embeddings = &self.embeddings;
        fits.extend(fit_lines(embeddings, |fit, _| fit.method.describe("")));
        fits.extend(self.validation_text().map(|text| ("trust", text)));
        if self.markov {
            let what = "the sets of every fit for a Markov chain";
            fits.push(("test", what.into()));
        }
        match &self.names {
            NamesFrom::Previous => (),
            NamesFrom::None => fits.push(("names", "by decreasing weight".into())),
            NamesFrom::Output(location) => {
                fits.push(("names", format!("of the sets of {location}")));
            }
        }
        fits.extend(increments_line(&self.increments));
        PlanLines { evidence, fits }
    }

    fn own_json(&self) -> Value {
        let validation = self.validation.as_ref().zip(self.layout.grouping.as_ref());
        let mut fits = fits_json(&self.fits, |fit| fit.method.name());
        fits.extend(fits_json(&self.embeddings, |fit| fit.method.name()));
        json!({
            "count": self.evidence().json,
            "connected": self.layout.connected,
            "markov": self.markov,
            "fit": fits,
            "names": self.names,
            "increments": increments_json(&self.increments),
            "rows": self.rows.as_deref().map(columns),
            "validation": validation.map(|(v, grouping)| json!({
                "bootstrap": v.bootstrap,
                "folds": v.folds,
                "confidence": v.confidence,
                "groups": grouping.most,
                "group": columns(&grouping.by),
            })),
        })
    }

    fn copied(&self) -> &[Field] {
        self.rows.as_deref().unwrap_or_default()
    }

    fn rows_text(&self) -> Option<String> {
        let mut shown = self.layout.partition.clone();
        shown.extend(self.rows.clone()?);
        let per = if self.lags.len() > 1 {
            "row and lag"
        } else {
            "row"
        };
        let columns = names(&shown);
        Some(format!(
            "a second pass over the input writes {columns} and the sets of each {per}"
        ))
    }

    async fn memory(&self, lake: &Lake, frame: DataFrame) -> Result<Option<Shown>> {
        let bounds = lake.bounds(frame, &self.layout).await?;
        Ok(self.needs(bounds, lake.threads))
    }

    const UNKNOWN: &'static str = "how many there are";
}

impl CountsPlan {
    /// The rows as a line and as JSON.
    fn evidence(&self) -> Shown {
        match &self.layout.evidence {
            RowRoles::Trajectories {
                trajectory,
                time,
                state,
                weight,
                ..
            } => {
                let window = window(&self.layout.evidence);
                let mut json = json!({
                    "kind": "trajectories",
                    "trajectory": columns(trajectory),
                    "time": column(time),
                    "state": state_columns(state),
                    "lags": self.lags,
                    "window": window,
                });
                if let Some(field) = weight {
                    json["measure"] = json!({"weight": field.name()});
                }
                add_times(&mut json, &self.times);
                let (order, state) = (order_text(trajectory, time, &self.times), state_text(state));
                let lags: Vec<_> = self.lags.iter().map(Lag::to_string).collect();
                let (lags, weights) = (lags.join(", "), weights_text(weight.as_ref()));
                let times = times_text(&self.times);
                let text =
                    format!("{order}: states {state}; lag {lags} ({window}){times}{weights}");
                Shown { text, json }
            }
            RowRoles::Pairs {
                source,
                target,
                measure,
            } => {
                let (measured, measure) = match measure {
                    Measure::One => ("each row counts one".to_string(), json!("one a row")),
                    Measure::Count(field) => {
                        let name = field.name();
                        (format!("counts in {name}"), json!({"count": name}))
                    }
                    Measure::Weight(field) => {
                        let name = field.name();
                        (format!("weights in {name}"), json!({"weight": name}))
                    }
                };
                let json = json!({
                    "kind": "pairs",
                    "source": state_columns(source),
                    "target": state_columns(target),
                    "measure": measure,
                });
                let (source, target) = (state_text(source), state_text(target));
                let text = format!("pairs {source} → {target}; {measured}");
                Shown { text, json }
            }
            RowRoles::Windows { .. } => unreachable!("transitions are no windows"),
        }
    }

    fn validation_text(&self) -> Option<String> {
        let (validation, grouping) = (self.validation.as_ref()?, self.layout.grouping.as_ref()?);
        let mut parts: Vec<String> = validation.resamples_text().into_iter().collect();
        if validation.folds > 0 {
            parts.push(format!("{} folds", validation.folds));
        }
        let by = if grouping.by.is_empty() {
            "single transitions".to_string()
        } else {
            names(&grouping.by)
        };
        let (parts, most) = (parts.join("; "), grouping.most);
        Some(format!("{parts}; {by} in at most {most} groups"))
    }
}

fn window(evidence: &RowRoles) -> &'static str {
    match evidence {
        RowRoles::Trajectories { strided: true, .. } => "strided",
        RowRoles::Trajectories { overlap, .. } if !overlap.is_empty() => "effective",
        _ => "sliding",
    }
}
