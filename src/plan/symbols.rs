//! Pipeline + tables → [`SymbolsPlan`]: all that a run over sequences will do, resolved and
//! checked.

use crate::error::{Error, Result};
use crate::evidence::lag::Lag;
use crate::methods::SymbolMethod;
use crate::methods::hmm::params::{Refine, SpectralHmm, WindowKind};
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::symbols::{self, RowColumns, SymbolColumns, SymbolTables};
use crate::plan::assignment::{Assignment, NewRows};
use crate::plan::counts::CountingPlan;
use crate::plan::evidence::{Columns, sequence_rules};
use crate::plan::fits::{PlannedFit, PlannedValidation, planned};
use crate::plan::increments::{Increments, increments};
use crate::plan::job::PlannedJob;
use crate::plan::kind::{KindPlan, PlanLines, Shown, with_job};
use crate::plan::pipeline::{Input, Pipeline, TimeKeys};
use crate::plan::rows::PlannedQuery;
use crate::plan::show::{
    add_times, column, columns, fit_lines, fits_json, follow_text, increments_json,
    increments_line, order_text, state_columns, state_text, times_text, weights_text,
};
use crate::plan::symbols_given::{PlannedHmm, given};
use crate::read::lake::Lake;
use crate::read::rows::layout::{Grouping, Layout, RowRoles};
use crate::read::rows::states::{StateColumns, StateTable};
use crate::read::rows::time_rules::TimeSteps;
use crate::read::symbols::bridges;
use arrow::array::ArrayRef;
use arrow::datatypes::{Field, SchemaRef};
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a run over sequences will do. The serialized part is what executors need.
#[derive(Serialize, Deserialize)]
pub(crate) struct SymbolsPlan {
    /// What the run reads and where it writes.
    pub job: PlannedJob,
    /// The roles of the columns of the query. The evidence is [`RowRoles::Windows`]. There is a
    /// grouping if trajectories are resampled or held out in folds.
    pub layout: Arc<Layout>,
    /// The time between rows that follow each other. If None, each row follows the previous row of
    /// its trajectory, however much later it is.
    pub interval: Option<Lag>,
    /// How the times are read, as written.
    #[serde(skip)]
    pub(crate) times: TimeKeys,
    /// The fits, one per rank unless a rule picks the rank. All have the same block and windows.
    #[serde(with = "crate::plan::serialized::json")]
    pub fits: Vec<PlannedFit<SymbolMethod>>,
    /// The rows of the models that the input has, by the index of the fit.
    pub given: BTreeMap<usize, PlannedHmm>,
    /// Resamples of the trajectories.
    pub validation: PlannedValidation,
    /// Which rows score the models.
    pub held_out: HeldOut,
    /// Whether to write the table `predictions`, with every row.
    pub predictions: bool,
    /// Whether the table `predictions` has the distribution of the next symbol.
    pub distribution: bool,
    /// Whether only new files are counted.
    #[serde(skip)]
    pub increments: Increments,
}

/// The numbers of states of given models, by the index of the fit.
pub(crate) type GivenStates = BTreeMap<usize, usize>;

/// Which rows score the models. They are not part of the fit that they score.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum HeldOut {
    /// No rows.
    None,
    /// Rows whose split is `test`.
    Split,
    /// The trajectories of each of this number of folds, scored by a model of the other folds. The
    /// fold of a group of trajectories is its number modulo the number of folds.
    Folds(usize),
}

/// Folds of the held-out scores if a rank is chosen and the pipeline does not say how many.
const FOLDS: usize = 5;

/// The maximum number of symbols for the column `<fit>_next_distribution`.
pub(crate) const MAX_DISTRIBUTION: usize = 1000;

/// An error if the distribution of the next symbol has too many numbers for a row.
///
/// # Errors
/// If there are more than [`MAX_DISTRIBUTION`] symbols.
pub(crate) fn check_distribution(symbols: usize) -> Result<()> {
    if symbols <= MAX_DISTRIBUTION {
        return Ok(());
    }
    Err(Error::spec(format!(
        "`output.distribution` would write {symbols} probabilities per row and fit, and the limit is {MAX_DISTRIBUTION} symbols; leave it out"
    )))
}

/// The columns of a row of trajectories and symbols.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WindowRows<'a> {
    /// The columns that identify a trajectory; empty if each partition is one.
    pub trajectory: &'a [Field],
    /// The time of a row.
    pub time: &'a Field,
    /// The symbol of a row.
    pub symbol: &'a StateColumns,
    /// The weight of the windows that a row starts.
    pub weight: Option<&'a Field>,
    /// The column with `train`, `test` or null.
    pub split: Option<&'a Field>,
    /// Symbols of the past and of the future of a window.
    pub block: usize,
    /// Whether only the first window of a trajectory is counted.
    pub first: bool,
}

impl<'a> WindowRows<'a> {
    /// The columns of a layout of windows.
    ///
    /// # Panics
    /// If the rows of the layout are no windows.
    pub(crate) fn of(layout: &'a Layout) -> WindowRows<'a> {
        let RowRoles::Windows {
            trajectory,
            time,
            symbol,
            weight,
            split,
            block,
            first,
            ..
        } = &layout.evidence
        else {
            unreachable!("the rows of sequences are windows");
        };
        WindowRows {
            trajectory,
            time,
            symbol,
            weight: weight.as_ref(),
            split: split.as_ref(),
            block: *block,
            first: *first,
        }
    }

    /// The columns in the tables of rows.
    pub(crate) fn columns(&self) -> RowColumns<'a> {
        RowColumns {
            trajectory: self.trajectory,
            time: self.time,
            symbol: self.symbol,
            split: self.split,
        }
    }
}

impl SymbolsPlan {
    /// The columns of the rows.
    pub(crate) fn rows(&self) -> WindowRows<'_> {
        WindowRows::of(&self.layout)
    }

    /// The columns of a table. `states` are those of [`fit_columns`](Self::fit_columns).
    pub(crate) fn schema(&self, table: &str, run: &RunSchema, states: &GivenStates) -> SchemaRef {
        let fits = &self.fit_columns(states);
        let (rows, block) = (self.rows().columns(), self.rows().block);
        match table {
            symbols::PREDICTIONS => symbols::predictions_schema(run, rows, fits),
            symbols::TRAJECTORIES => symbols::trajectories_schema(run, rows, fits),
            table => {
                let tables = SymbolTables { run, block, fits };
                tables.columns(table).schema(run).0
            }
        }
    }

    /// The names of the tables that are made of models.
    pub(crate) fn model_tables(&self) -> Vec<&'static str> {
        let mut given = self.fits.iter().filter_map(|fit| fit.method.given());
        let has_distances = given.any(|own| own.length > 0);
        let mut tables = self.job.kept(&symbols::TABLES);
        tables.retain(|table| has_distances || *table != symbols::DISTANCES);
        tables
    }

    /// The names of the tables in the order in which they are written.
    pub(crate) fn table_names(&self) -> Vec<&'static str> {
        let mut tables = self.model_tables();
        tables.push(symbols::TRAJECTORIES);
        if self.predictions {
            tables.push(symbols::PREDICTIONS);
        }
        tables
    }

    /// The columns that the fits add to tables of symbols and of rows. The rows of a given model
    /// say how many `states` it has; until they are read, it has one.
    pub(crate) fn fit_columns(&self, states: &GivenStates) -> Vec<SymbolColumns> {
        let fits = self.fits.iter().enumerate();
        fits.map(|(at, fit)| {
            let of_rows = || states.get(&at).copied().unwrap_or(1);
            SymbolColumns {
                name: fit.name.clone(),
                rank: fit.method.spectral().map_or_else(of_rows, |own| own.rank),
                has_distribution: self.distribution,
                has_hidden: fit.method.has_hidden(),
            }
        })
        .collect()
    }

    /// The fits to windows.
    pub(crate) fn spectral(&self) -> impl Iterator<Item = &SpectralHmm> {
        self.fits.iter().filter_map(|fit| fit.method.spectral())
    }

    /// What the tables of a run share. `partitions` has one array per partition column.
    pub(crate) fn run_schema(&self, partitions: Vec<ArrayRef>, symbols: StateTable) -> RunSchema {
        let is_weighted = self.layout.is_weighted();
        symbols::schema_of(&self.layout.partition, partitions, symbols, is_weighted)
    }

    /// What counts the windows.
    pub(crate) fn counting(&self) -> CountingPlan {
        CountingPlan {
            job: self.job.clone(),
            layout: Arc::clone(&self.layout),
            increments: self.increments.clone(),
        }
    }

    /// Whether a fit reads the training rows as sequences.
    pub(crate) fn refines(&self) -> bool {
        self.spectral().any(|own| own.refine == Refine::Em)
    }
}

/// The layout of a pipeline of sequences, without groups of trajectories.
fn layout(pipeline: &Pipeline, columns: &Columns, partition: Vec<Field>) -> Result<Layout> {
    let Input::Symbols {
        trajectory,
        time,
        times,
        interval,
        symbol,
        bins,
        weight,
        split,
    } = &pipeline.transitions.input
    else {
        return Err(Error::bug("the rows have no symbols"));
    };
    let bins = columns.bins(bins)?;
    let time = columns.time(time)?;
    let mut fits = pipeline.sequence_fits.iter();
    let first = fits.find_map(|fit| fit.method.spectral());
    let (block, kind) = first.map_or((1, WindowKind::All), |own| (own.block, own.windows));
    let (step, rules) = sequence_rules(times, columns, &time, interval.as_ref())?;
    let evidence = RowRoles::Windows {
        trajectory: columns.keys(trajectory, "trajectory")?,
        symbol: StateColumns {
            keys: columns.keys(symbol, "symbol")?,
            bins,
        },
        weight: columns.weight(weight.as_ref())?,
        split: columns.split(split.as_ref())?,
        step,
        time,
        block,
        first: kind == WindowKind::First,
    };
    Ok(Layout {
        partition,
        evidence,
        given: Vec::new(),
        grouping: None,
        one_label_set: true,
        connected: false,
        rules,
    })
}

/// New rows of sequences.
pub(crate) struct NewSymbols {
    /// The roles of the columns of the query, without weights.
    pub layout: Arc<Layout>,
    /// Whether the table `predictions` has the distribution of the next symbol.
    pub distribution: bool,
}

impl NewRows for NewSymbols {
    async fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        lake: &Lake,
    ) -> Result<(Assignment<NewSymbols>, DataFrame)> {
        let mut pipeline = pipeline.clone();
        if let Input::Symbols { weight, .. } = &mut pipeline.transitions.input {
            *weight = None;
        }
        let layout = layout(&pipeline, &query.columns, query.partition)?;
        let frame = lake.select(query.frame, &layout)?;
        let distribution = pipeline.output.distribution;
        let rows = NewSymbols {
            layout: Arc::new(layout),
            distribution,
        };
        let assignment = Assignment::new(&pipeline, &query.sql, lake, &distribution, rows)?;
        Ok((assignment, frame))
    }

    fn time_steps(&self) -> Option<TimeSteps<'_>> {
        self.layout.time_steps()
    }
}

fn held_out(pipeline: &Pipeline) -> HeldOut {
    let has_split = matches!(
        &pipeline.transitions.input,
        Input::Symbols { split: Some(_), .. }
    );
    let folds = pipeline.validation.as_ref().map_or(0, |keys| keys.folds);
    let is_chosen = pipeline.sequence_fits.iter().any(|fit| fit.rule.is_some());
    match (has_split, folds) {
        (true, _) => HeldOut::Split,
        (false, 0) if is_chosen => HeldOut::Folds(FOLDS),
        (false, 0) => HeldOut::None,
        (false, folds) => HeldOut::Folds(folds),
    }
}

impl KindPlan for SymbolsPlan {
    const UNKNOWN: &'static str = "how many there are";

    async fn resolve(
        pipeline: &Pipeline,
        query: PlannedQuery,
        job: PlannedJob,
        lake: &Lake,
    ) -> Result<(SymbolsPlan, DataFrame)> {
        let mut layout = layout(pipeline, &query.columns, query.partition.clone())?;
        let validation = PlannedValidation::of(pipeline.validation.as_ref());
        let held_out = held_out(pipeline);
        if validation.bootstrap > 0 || matches!(held_out, HeldOut::Folds(_)) {
            layout.grouping = Some(Grouping {
                most: validation.groups,
                by: WindowRows::of(&layout).trajectory.to_vec(),
            });
        }
        let increments = increments(pipeline, &query, &layout, lake);
        let frame = lake.select(query.frame, &layout)?;
        let (interval, times) = match &pipeline.transitions.input {
            Input::Symbols {
                interval, times, ..
            } => (interval.clone(), times.clone()),
            _ => (None, TimeKeys::default()),
        };
        let fits = planned(&pipeline.sequence_fits);
        let symbol = WindowRows::of(&layout).symbol;
        let given = given(&fits, &layout, symbol, lake).await?;
        let plan = SymbolsPlan {
            job,
            layout: Arc::new(layout),
            interval,
            times,
            fits,
            given,
            validation,
            held_out,
            predictions: pipeline.output.rows.predictions().unwrap_or_default(),
            distribution: pipeline.output.distribution,
            increments,
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

    fn n_fits(&self) -> usize {
        self.fits.len()
    }

    fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        let run = self.run_schema(Vec::new(), StateTable::empty(self.rows().symbol));
        let tables = self.table_names().into_iter();
        tables
            .map(|table| (table, self.schema(table, &run, &GivenStates::new())))
            .collect()
    }

    fn lines(&self) -> PlanLines {
        let mut fits = fit_lines(&self.fits, |fit, rank| fit.method.describe(rank));
        match self.held_out {
            HeldOut::None => {}
            HeldOut::Split => {
                let split = self.rows().split.map_or("split", |field| field.name());
                fits.push(("score", format!("rows with {split} = 'test'")));
            }
            HeldOut::Folds(folds) => {
                fits.push(("score", format!("{folds} folds of trajectories")));
            }
        }
        let trust = self.validation.trust_text();
        fits.extend(trust.map(|text| ("trust", text)));
        fits.extend(increments_line(&self.increments));
        PlanLines {
            evidence: vec![("count", self.windows_text())],
            fits,
        }
    }

    fn own_json(&self) -> Value {
        let rows = self.rows();
        let resampled = self.layout.grouping.as_ref();
        let mut shown = json!({
            "count": {
                "kind": "sequences",
                "trajectory": columns(rows.trajectory),
                "time": column(rows.time),
                "interval": self.interval,
                "symbol": state_columns(rows.symbol),
                "weight": rows.weight.map(column),
                "split": rows.split.map(column),
                "block": rows.block,
                "windows": if rows.first { "first" } else { "all" },
            },
            "fit": fits_json(&self.fits, |fit| fit.method.name()),
            "held_out": self.held_out,
            "increments": increments_json(&self.increments),
            "predictions": self.predictions,
            "distribution": self.distribution,
            "validation": resampled.map(|grouping| json!({
                "bootstrap": self.validation.bootstrap,
                "confidence": self.validation.confidence,
                "groups": grouping.most,
                "group": columns(&grouping.by),
            })),
        });
        add_times(&mut shown["count"], &self.times);
        shown
    }

    fn rows_text(&self) -> Option<String> {
        let tables = if self.predictions {
            "the predictions of each row and the log-likelihood of each trajectory"
        } else {
            "the log-likelihood of each trajectory"
        };
        Some(format!("a second pass over the input writes {tables}"))
    }

    async fn memory(&self, lake: &Lake, frame: DataFrame) -> Result<Option<Shown>> {
        let bounds = lake.bounds(frame, &self.layout).await?;
        Ok(self.needs(bounds, lake.threads))
    }
}

impl SymbolsPlan {
    fn windows_text(&self) -> String {
        let rows = self.rows();
        let order = order_text(rows.trajectory, rows.time, &self.times);
        let symbol = state_text(rows.symbol);
        let follow = follow_text(self.interval.as_ref(), bridges(&self.layout));
        let length = 2 * rows.block + 1;
        let windows = if rows.first {
            format!("the first window of {length} rows of a trajectory")
        } else {
            format!("windows of {length} rows")
        };
        let weights = weights_text(rows.weight);
        let times = times_text(&self.times);
        let split = rows.split.map_or_else(String::new, |field| {
            format!("; only rows with {} = 'train'", field.name())
        });
        format!("{order}: symbols {symbol}; {follow}{times}; {windows}{weights}{split}")
    }
}
