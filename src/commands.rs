//! The commands of the program: what was typed → threads, lake, plan and the stage that does the work → what is printed.
//!
//! All of it is here and not in the program, and [`execute`] is neither generic nor async: a future is compiled where it is polled, with all
//! that it awaits, so a program that polled one would be compiled for as long as the library.

use crate::assign;
use crate::cli::{self, Command, Pipeline};
#[cfg(feature = "cluster")]
use crate::cluster::{Cluster, quote::quote};
use crate::compare::compare;
use crate::error::{Error, Kind, Result};
use crate::manifest::Failure;
use crate::memory;
#[cfg(feature = "cluster")]
use crate::nodes::Nodes;
use crate::plan::{Plan, assignment, plan};
use crate::read::{self, Lake, Resources};
use crate::run::{self, Options, Outcome, Progress};
use crate::spec::{self, Spec};
use crate::stores::Stores;
use crate::summary::Summary;
use crate::watch::Watch;
#[cfg(feature = "cluster")]
use crate::write::Current;
use crate::write::{Cleaning, Output};
use datafusion::dataframe::DataFrame;
use futures::future::BoxFuture;
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use tokio::runtime::Runtime;

/// Who has typed the command: reads its results, watches it and may stop it.
pub trait Terminal: Progress {
    /// Writes a result.
    fn print(&self, text: &str) -> Result<()>;
    /// Waits for the signal that stops a command, as long as it can be stopped.
    fn stopped(&self) -> BoxFuture<'_, ()>;
    /// No more progress comes: there may be text next.
    fn finish(&self);
}

/// How a command that did not fail ended.
pub enum Done {
    Well,
    /// Some partitions failed and the others were written.
    Partly,
    /// There was nothing to do, which ends with this exit code.
    Skipped(u8),
}

impl Done {
    pub fn exit_code(&self) -> u8 {
        match self {
            Done::Well => 0,
            Done::Partly => 1,
            Done::Skipped(code) => *code,
        }
    }
}

/// Runs one command to its end.
pub fn execute(command: Command, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    let print = |text: &str| terminal.print(text).map(|()| Done::Well);
    match command {
        Command::Schema => {
            let text = serde_json::to_string_pretty(&spec::json_schema());
            print(&text.map_err(|e| Error::with_source(Kind::Bug, "the schema is no JSON", e))?)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut cli::command(), "gyre", &mut script);
            print(String::from_utf8_lossy(&script).trim_end())
        }
        Command::Man => {
            let mut page = Vec::new();
            let rendered = clap_mangen::Man::new(cli::command()).render(&mut page);
            rendered
                .map_err(|e| Error::with_source(Kind::Bug, "the manual page cannot be made", e))?;
            print(String::from_utf8_lossy(&page).trim_end())
        }
        Command::Compare(args) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            let runtime = runtime
                .map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))?;
            let report =
                runtime.block_on(compare(&args.a, &args.b, &args.fit, args.lag.as_ref()))?;
            if args.json {
                let text = serde_json::to_string_pretty(&report);
                print(&text.map_err(|e| Error::with_source(Kind::Bug, "a report is no JSON", e))?)
            } else {
                print(&report.to_string())
            }
        }
        Command::Clean(args) => {
            let spec = parse(&args.path, &args.set)?;
            let output = Output::open(&spec.job.output, &Stores::from(&spec.store))?;
            let asked = Cleaning {
                keep: spec.job.keep as usize,
                older_than: args.older_than.0,
                dry_run: args.dry_run,
            };
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build();
            let runtime = runtime
                .map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))?;
            print(&runtime.block_on(output.clean(&asked))?.to_string())
        }
        #[cfg(feature = "cluster")]
        Command::Scheduler(args) => crate::cluster::commands::scheduler(&args, terminal.as_ref()),
        #[cfg(feature = "cluster")]
        Command::Executor(args) => crate::cluster::commands::executor(&args, terminal.as_ref()),
        #[cfg(feature = "cluster")]
        Command::Cluster(cli::Cluster::Up(args)) => {
            crate::cluster::commands::up(&args, terminal.as_ref())
        }
        Command::Check(pipeline) => with_plan(&pipeline, async |_, plan, _, _| {
            let output = Output::open(&plan.output, &plan.stores)?;
            output.check_job(&plan.name).await?;
            let (tables, fits) = (plan.tables.len(), plan.fits.len());
            let checks = match plan.checks.len() {
                0 => String::new(),
                1 => ", 1 check".into(),
                n => format!(", {n} checks"),
            };
            print(&format!(
                "{} is valid: {tables} tables, {fits} fits a model{checks}",
                pipeline.path.display()
            ))
        }),
        Command::Plan(args) => with_plan(&args.pipeline, async |lake, plan, frame, threads| {
            let output = Output::open(&plan.output, &plan.stores)?;
            output.check_job(&plan.name).await?;
            let bounds = lake.bounds(frame.clone(), &plan.layout).await?;
            let needs = plan.needs(bounds, threads);
            #[cfg(feature = "cluster")]
            let quote = match &args.cluster {
                Some(address) => {
                    let split = args.split.unwrap_or(run::SPLIT);
                    Some(quote(address, &plan, &frame, bounds, threads, split).await?)
                }
                None => None,
            };
            if args.json {
                let mut shown = plan.to_json();
                shown["memory"] = json!(needs);
                #[cfg(feature = "cluster")]
                if let Some(quote) = &quote {
                    shown["cluster"] = json!(quote);
                }
                return print(&format!("{shown:#}"));
            }
            print(&plan.to_string())?;
            print(&match needs {
                Some(needs) => format!("  memory {needs}"),
                None => "  memory grows with rows, and nothing says how many there are".into(),
            })?;
            #[cfg(feature = "cluster")]
            if let Some(quote) = quote {
                print(&quote.to_string())?;
            }
            Ok(Done::Well)
        }),
        Command::Explain(pipeline) => with_plan(&pipeline, async |lake, plan, frame, _| {
            print(&format!("SQL\n{}\n", plan.sql))?;
            for (name, value) in &plan.parameters {
                print(&format!("${name} = {value}"))?;
            }
            print(&lake.explain(frame).await?)
        }),
        Command::Assign(args) => {
            let spec = parse(&args.pipeline.path, &args.pipeline.set)?;
            let given = args.output.as_deref();
            with_lake(
                spec,
                &args.pipeline,
                given,
                async |spec, sql, lake, threads| {
                    let at = |e: Error| e.at(args.pipeline.path.display());
                    let (plan, frame) = assignment(&spec, &sql, &lake).await.map_err(at)?;
                    let model = Output::open(&args.model, &lake.stores)?;
                    let output = args.output.as_ref().unwrap_or(&plan.output);
                    let output = Output::open(output, &lake.stores)?;
                    let options = assign::Options {
                        threads,
                        force: args.force,
                        smoothing: args.smoothing,
                    };
                    let plan = Arc::new(plan);
                    let progress = Arc::clone(terminal) as Arc<dyn Progress>;
                    let assigning =
                        assign::assign(plan, &lake, frame, &model, &output, &options, progress);
                    match until_stopped(assigning, terminal.as_ref(), &output).await? {
                        assign::Outcome::NothingToDo => print("Nothing to do."),
                        assign::Outcome::Done(record) => {
                            let output = output.shown();
                            let summary = assign::AssignSummary {
                                record: &record,
                                output,
                            };
                            print(&summary.to_string())?;
                            Ok(done(&record.head.failures))
                        }
                    }
                },
            )
        }
        Command::Run(args) => {
            let watch = Arc::new(Watch::new(&args, Arc::clone(terminal)));
            watch.check()?;
            watch.end(run_pipeline(&args, &watch))
        }
    }
}

fn run_pipeline(args: &cli::Run, watch: &Arc<Watch>) -> Result<Done> {
    let spec = parse(&args.pipeline.path, &args.pipeline.set)?;
    watch.named(&spec.job.name);
    with_plan_of(spec, &args.pipeline, async |lake, plan, frame, threads| {
        let plan = Arc::new(plan);
        watch.planned(&plan);
        let output = Output::open(&plan.output, &plan.stores)?;
        #[cfg(feature = "cluster")]
        let cluster = cluster(args, &plan, &output, watch.terminal.as_ref()).await?;
        #[cfg(feature = "cluster")]
        let nodes = cluster.clone().map(|cluster| cluster as Arc<dyn Nodes>);
        #[cfg(not(feature = "cluster"))]
        let nodes = None;
        let options = Options {
            threads,
            force: args.force,
            full_refresh: args.full_refresh,
            keep_every: run::KEEP_EVERY,
            nodes,
            split: args.split.unwrap_or(run::SPLIT),
        };
        let running = run::run(
            Arc::clone(&plan),
            &lake,
            frame,
            &output,
            &options,
            watch.clone(),
        );
        let ended = until_stopped(running, watch.terminal.as_ref(), &output).await;
        #[cfg(feature = "cluster")]
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        match ended? {
            Outcome::NothingToDo => {
                let in_place = match args.metrics {
                    Some(_) => output.last_record().await?,
                    None => None,
                };
                watch.nothing_to_do(in_place);
                watch.terminal.print("Nothing to do.")?;
                Ok(Done::Skipped(args.skip_code))
            }
            Outcome::Done(record) => {
                let output = &plan.output;
                let record = &record;
                let summary = Summary { record, output };
                watch.terminal.print(&summary.to_string())?;
                Ok(done(&record.head.failures))
            }
        }
    })
}

/// The cluster that a run asks for, unless there is nothing to do.
#[cfg(feature = "cluster")]
async fn cluster(
    args: &cli::Run,
    plan: &Plan,
    output: &Output,
    terminal: &dyn Terminal,
) -> Result<Option<Arc<Cluster>>> {
    let Some(address) = &args.cluster else {
        return Ok(None);
    };
    let is_done = |c: Current| c.plan == plan.hash && c.complete;
    let again = args.force || args.full_refresh;
    if !again && output.current().await?.is_some_and(is_done) {
        return Ok(None);
    }
    let connecting = Cluster::connect(address, &plan.output, &plan.hash, &plan.stores);
    let cluster = until_stopped(connecting, terminal, output).await?;
    if again {
        cluster.forget().await?;
    }
    Ok(Some(Arc::new(cluster)))
}

/// Waits for what writes to an output, or for the signal that stops it.
async fn until_stopped<T>(
    running: impl Future<Output = Result<T>>,
    terminal: &dyn Terminal,
    output: &Output,
) -> Result<T> {
    let outcome = tokio::select! {
        outcome = running => outcome,
        () = terminal.stopped() => {
            terminal.finish();
            output.abandon().await;
            return Err(Error::new(Kind::Cancelled, "stopped; the output is as it was before"));
        }
        e = memory::exceeded() => {
            terminal.finish();
            output.abandon().await;
            return Err(e);
        }
    };
    terminal.finish();
    outcome
}

fn done(failures: &[Failure]) -> Done {
    match failures {
        [] => Done::Well,
        _ => Done::Partly,
    }
}

/// Plans a run and hands it to `then` with the lake, the query and the number of threads.
fn with_plan(
    pipeline: &Pipeline,
    then: impl AsyncFnOnce(Lake, Plan, DataFrame, usize) -> Result<Done>,
) -> Result<Done> {
    with_plan_of(parse(&pipeline.path, &pipeline.set)?, pipeline, then)
}

fn with_plan_of(
    spec: Spec,
    pipeline: &Pipeline,
    then: impl AsyncFnOnce(Lake, Plan, DataFrame, usize) -> Result<Done>,
) -> Result<Done> {
    with_lake(spec, pipeline, None, async |spec, sql, lake, threads| {
        let at = |e: Error| e.at(pipeline.path.display());
        let (plan, frame) = plan(&spec, &sql, pipeline.seed, &lake).await.map_err(at)?;
        then(lake, plan, frame, threads).await
    })
}

/// Opens the lake of a pipeline and hands it to `then` with what the pipeline says, its SQL and the number of threads. `output` is where
/// results go, if not where the pipeline says.
fn with_lake(
    mut spec: Spec,
    pipeline: &Pipeline,
    output: Option<&str>,
    then: impl AsyncFnOnce(Spec, String, Lake, usize) -> Result<Done>,
) -> Result<Done> {
    let threads = match pipeline.threads {
        Some(n) => n.get(),
        None => std::thread::available_parallelism().map_or(1, |n| n.get()),
    };
    let bound = pipeline.memory.map(|m| m.0 as usize);
    let runtime = start(threads, bound, &std::env::temp_dir())?;
    let done = runtime.block_on(async {
        read::beside(&mut spec, &pipeline.path).await?;
        let sources: Vec<read::TableSource> = spec
            .tables
            .iter()
            .map(|(name, table)| read::TableSource::new(name, table))
            .collect();
        let resources = Resources {
            threads,
            // The rest of the bound is the program's.
            memory_bytes: bound.map(|bytes| bytes - memory::least(threads)),
        };
        let output = output.unwrap_or(&spec.job.output);
        read::apart(&sources, output)?;
        let mut lake = read::open(&sources, &resources, &Stores::from(&spec.store)).await?;
        lake.apart(output)?;
        if spec.job.fingerprint == spec::Fingerprint::Content {
            lake.fingerprint().await?;
        }
        let sql = read::query_text(&spec.transitions.query)?;
        then(spec, sql, lake, threads).await
    });
    // A stopped run leaves its threads behind; they end with the process.
    runtime.shutdown_background();
    done
}

/// Starts the threads of a process that computes, and keeps it within its bound.
pub(crate) fn start(threads: usize, bound: Option<usize>, folder: &Path) -> Result<Runtime> {
    if let Some(bytes) = bound {
        memory::bound(bytes, threads, folder)?;
    }
    let no_threads = |e: &dyn std::error::Error| {
        Error::new(
            Kind::Resources,
            format!("cannot start {threads} threads: {e}"),
        )
    };
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build_global()
        .map_err(|e| no_threads(&e))?;
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .map_err(|e| no_threads(&e))
}

fn parse(path: &Path, set: &[String]) -> Result<Spec> {
    let text = read::pipeline_text(path)?;
    let environment = |name: &str| std::env::var(name).ok();
    Spec::parse(&text, &path.display().to_string(), set, &environment)
}
