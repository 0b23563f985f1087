//! Symbols: sequences of rows that show one symbol each → hidden Markov models per partition.
//!
//! ```text
//! rows ─ count ─▶ windows ─ decompose, choose ranks, refine ─▶ models ─ filter rows ─▶ tables
//! ```
//!
//! Windows are counted as pairs are, with increments. The rows are read again to filter them, and
//! for fits that choose a rank, hold rows out or run the Baum–Welch algorithm.

pub(crate) mod assign;
pub(crate) mod compare;
mod distances;
pub mod fit;
mod given;
mod held_out;
pub(crate) mod kind;
pub(crate) mod known;
pub(crate) mod record;
pub(crate) mod rounds;
pub mod rows;
pub(crate) mod scoring;
pub(crate) mod tasks;
mod training;

use crate::error::{Error, Result};
use crate::evidence::pass::checkpoints;
use crate::methods::hmm::project::Projection;
use crate::output::result::ModelKey;
use crate::output::staging::{StagedTable, StagedTables, Staging};
use crate::output::tables::symbols::{PREDICTIONS, SymbolTables, SymbolsModel, TRAJECTORIES};
use crate::plan::symbols::{HeldOut, SymbolsPlan};
use crate::read::counts::counted::Counted;
use crate::read::symbols::{KnownSymbols, SymbolInput};
use crate::run::counting::increment::{self, Counting};
use crate::run::counts::local::{COUNTED, COUNTING, counts_of_checkpoint};
use crate::run::counts::model::partition_key;
use crate::run::kind::{DroppedRows, EvidenceKind, Fitted, Found, Read, Running, Written};
use crate::run::record::{EmptyRecord, ModelEntry, Resumed, TimeRecord};
use crate::run::symbols::fit::{Evidence, evidence};
use crate::run::symbols::given::GivenModels;
use crate::run::symbols::kind::SymbolsKind;
use crate::run::symbols::record::{Facts, SymbolsModelRecord};
use crate::run::symbols::rows::{RowFit, RowModel, RowTables, RowsWritten};
use crate::run::trajectories::Target;
use crate::run::workers::Workers;
use crate::run::workers::executor::blocking;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Decompositions by partition, or why there is none.
type Projections = BTreeMap<usize, Result<Vec<Projection>>>;

/// The windows of a run.
pub(crate) struct CountedWindows {
    counted: Counted,
    /// The decompositions that other machines have made.
    projections: Projections,
    /// Whether the counts come from the checkpoint of an earlier run.
    is_resumed: bool,
}

/// What the models of a run share.
pub(crate) struct Shared {
    /// The windows and the symbols.
    found: Evidence,
    /// Set by the first pass that finds rows out of order; later passes then sort.
    sort: AtomicBool,
}

impl EvidenceKind for SymbolsKind {
    const NAME: &'static str = "symbols";
    const READ: &'static str = "count";

    type Plan = SymbolsPlan;
    type Evidence = CountedWindows;
    type Model = SymbolsModel;
    type Shared = Shared;
    type Rows = Option<RowsWritten>;
    type Facts = Facts;
    type ModelRecord = SymbolsModelRecord;

    async fn read(run: &Running<'_, Self>) -> Result<Read<Self>> {
        let plan = run.plan;
        let start = Instant::now();
        let kept = counts_of_checkpoint(&plan.increments, run.work).await?;
        let is_resumed = kept.is_some();
        let mut projections = Projections::new();
        let Counting {
            counted,
            ledger,
            record: increment,
        } = match (kept, &run.options.workers) {
            (Some(counting), _) => counting,
            (None, Workers::Local) => increment::count(run, &plan.layout, &plan.increments).await?,
            (None, Workers::Remote { nodes, .. }) => {
                let (counting, made) = rounds::count(run, nodes).await?;
                projections = made;
                counting
            }
        };
        let found = Found {
            rows: counted.rows,
            dropped: fit::dropped(&counted.dropped),
            time: TimeRecord::of_gaps(&plan.layout.rules, counted.time.gaps),
            increment,
            pairs: counted.pairs(&plan.layout),
            ..Found::default()
        };
        let took = start.elapsed();
        let mut counted = counted;
        if !is_resumed && ledger.is_none() && took >= COUNTING * run.options.keep_every {
            let work = Arc::clone(run.work);
            counted = blocking(move || {
                checkpoints::keep(work.as_ref(), COUNTED, took, &counted);
                Ok(counted)
            })
            .await?;
        }
        Ok(Read {
            evidence: CountedWindows {
                counted,
                projections,
                is_resumed,
            },
            found,
            ledger,
        })
    }

    async fn fit(run: &Running<'_, Self>, evidence: CountedWindows) -> Result<Fitted<Self>> {
        let (counted, projections) = (evidence.counted, evidence.projections);
        let rows = counted.rows;
        let (of, work) = (Arc::clone(run.plan), Arc::clone(run.work));
        let mut found = blocking(move || self::evidence(&of, counted)).await?;
        found.given = GivenModels::read(run.lake, run.plan, &found.symbols).await?;
        let of = Arc::clone(run.plan);
        let (found, mut failures) = blocking(move || {
            let failures = fit::project_all(&of, &mut found, rows, projections, &work)?;
            Ok((found, failures))
        })
        .await?;
        let empty = found.empty.iter().map(|&at| EmptyRecord {
            partition: found.place(at),
            had_model: false,
            key: ModelKey::at(&found.run.partitions, None, at),
        });
        let empty: Vec<EmptyRecord> = empty.collect();
        let sort = AtomicBool::new(false);
        let found = Arc::new(found);
        let mut chosen = None;
        if !found.partitions.is_empty() {
            let symbols = found.symbols.clone();
            let input = input(run, &symbols, &sort);
            let training = fit::read_training(run.plan, &found, input).await?;
            let training = training.map(Arc::new);
            let (own, of) = (Arc::clone(&found), training.clone());
            let choices = fit::choose(run.plan, own, of, input, run.work).await?;
            chosen = Some((training, choices));
        }
        let (of, work) = (Arc::clone(run.plan), Arc::clone(run.work));
        let (found, models, failures) = blocking(move || {
            let Ok(mut found) = Arc::try_unwrap(found) else {
                return Err(Error::bug("the counts are in use"));
            };
            let mut models = Vec::new();
            if let Some((training, choices)) = chosen {
                let training = training.as_ref().map(|all| &all[..]);
                let fail = &mut failures;
                models = fit::finish(&of, &mut found, training, choices, &work, fail)?;
            }
            Ok((found, models, failures))
        })
        .await?;
        let windows = models.iter().map(SymbolsModel::n_windows).sum();
        Ok(Fitted {
            empty,
            failures,
            resumed: Resumed::pieces(run.work, evidence.is_resumed),
            ..Fitted::new(models, Shared { found, sort }, Facts { windows })
        })
    }

    async fn rows(run: &Running<'_, Self>, fitted: &mut Fitted<Self>) -> Result<Written<Self>> {
        let Shared { found, sort } = &fitted.shared;
        let input = input(run, &found.symbols, sort);
        let rows = filter(run, found, &fitted.models, input).await?;
        score(run.plan, &mut fitted.models, &rows);
        let short: u64 = rows.rows.values().map(|rows| rows.short).sum();
        let mut dropped = DroppedRows::new();
        if short > 0 {
            let window = 2 * run.plan.rows().block + 1;
            let reason = format!("sequence of fewer than {window} rows");
            dropped.insert(reason.into(), short);
        }
        let tables = rows.tables.iter().map(|(&name, &n)| {
            let schema = run.plan.schema(name, &found.run, &found.given.states());
            (name, StagedTable { rows: n, schema })
        });
        Ok(Written {
            tables: tables.collect(),
            dropped,
            rows: Some(rows),
        })
    }

    async fn stage(run: &Running<'_, Self>, fitted: &Fitted<Self>) -> Result<StagedTables> {
        let fits = run.plan.fit_columns(&fitted.shared.found.given.states());
        let tables = SymbolTables {
            run: &fitted.shared.found.run,
            block: run.plan.rows().block,
            fits: &fits,
        };
        let staging = Staging::new(run.output, run.begun, tables.run);
        let wanted = run.plan.model_tables().into_iter();
        let wanted = wanted.map(|table| (table, tables.columns(table)));
        staging.write_all(wanted.collect(), &fitted.models).await
    }

    fn record(
        run: &Running<'_, Self>,
        fitted: &Fitted<Self>,
        written: &Written<Self>,
        at: usize,
    ) -> ModelEntry<SymbolsModelRecord> {
        let model = &fitted.models[at];
        ModelEntry {
            partition: partition_key(&fitted.shared.found.run, model.partition),
            lag: None,
            model: SymbolsModelRecord::of(model, &run.plan.layout, written.rows.as_ref()),
        }
    }
}

/// The rows of a run.
fn input<'a>(
    run: &'a Running<'_, SymbolsKind>,
    symbols: &'a KnownSymbols,
    sort: &'a AtomicBool,
) -> SymbolInput<'a> {
    SymbolInput {
        lake: run.lake,
        frame: run.frame,
        layout: &run.plan.layout,
        symbols,
        sort,
    }
}

/// Filters all rows and writes their tables.
async fn filter(
    run: &Running<'_, SymbolsKind>,
    found: &Evidence,
    models: &[SymbolsModel],
    input: SymbolInput<'_>,
) -> Result<RowsWritten> {
    let plan = run.plan;
    let numbers: Vec<Vec<u32>> = models
        .iter()
        .map(|model| found.numbers(&model.symbols))
        .collect();
    let mut of_rows: Vec<Option<RowModel<'_>>> = Vec::new();
    of_rows.resize_with(found.n_partitions, || None);
    for (model, numbers) in models.iter().zip(&numbers) {
        let fits = model.fits.iter().zip(&plan.fits).map(|(fit, planned)| {
            let own = &planned.method;
            RowFit {
                model: Cow::Borrowed(&fit.model.hmm),
                unigram: own.unigram(),
                floor: own.floor(),
            }
        });
        of_rows[model.partition] = Some(RowModel {
            numbers: Cow::Borrowed(numbers),
            fits: fits.collect(),
        });
    }
    let states = found.given.states();
    let fits = plan.fit_columns(&states);
    let schema = |table: &str| plan.schema(table, &found.run, &states);
    let tables = RowTables {
        trajectories: schema(TRAJECTORIES),
        predictions: plan.predictions.then(|| schema(PREDICTIONS)),
        fits: &fits,
        models: of_rows,
        target: Target {
            output: run.output,
            begun: run.begun,
        },
    };
    rows::write(input, &tables, &|n| run.progress.advance(n)).await
}

/// Adds to the fits what filtering all rows found.
fn score(plan: &SymbolsPlan, models: &mut [SymbolsModel], written: &RowsWritten) {
    for model in models {
        for (at, fit) in model.fits.iter_mut().enumerate() {
            let Some(of_rows) = written.of_fits.get(&(model.partition as u32, at)) else {
                continue;
            };
            let (fit, (sum, n)) = (&mut fit.model, of_rows.train);
            if n > 0 && fit.train.is_none() {
                fit.train = Some(sum / n as f64);
            }
            if plan.held_out == HeldOut::Split {
                fit.held_out = of_rows.test.score(0);
            }
            let rows = of_rows.rows as f64;
            let all = rows * fit.hmm.n_classes() as f64;
            if rows > 0.0 {
                fit.diagnostics.negative_share = Some(of_rows.negatives as f64 / all);
                fit.diagnostics.negative_mass = Some(of_rows.negative_mass / rows);
            }
            fit.diagnostics.resets = Some(of_rows.resets);
        }
    }
}
