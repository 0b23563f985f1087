//! Runs the commands: parsed arguments → threads, lake, plan and the stage that does the work →
//! printed text.
//!
//! [`execute`] belongs to the library and is neither generic nor async. A future is compiled where
//! it is polled, with everything that it awaits, so polling one in the program would compile most
//! of the library again.

use crate::cli::args::{Command, PipelineArgs};
use crate::cli::openlineage::Planned;
use crate::cli::terminal::{Done, Terminal, start};
use crate::cli::watch::Watch;
#[cfg(feature = "cluster")]
use crate::cluster::ballista::client::Cluster;
#[cfg(feature = "cluster")]
use crate::cluster::preview::{preview, preview_points, preview_sequences};
#[cfg(feature = "cluster")]
use crate::cluster::rounds::points::RemotePoints;
#[cfg(feature = "cluster")]
use crate::cluster::rounds::sequences::RemoteSequences;
use crate::error::counted;
use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::output::result::RowKind;
use crate::output::retention::Cleaning;
use crate::plan::pipeline::Pipeline;
use crate::read::lake::Resources;
use crate::run::compare::{compare, row_kind};
use crate::run::inputs::{Inputs, PlannedRun};
use crate::run::local::Local;
use crate::run::points::assign::{PointAssignOutcome, PointAssignSummary};
use crate::run::points::compare::compare as compare_points;
use crate::run::points::record::PointsSummary;
use crate::run::points::{PlannedPoints, PointsOptions, PointsOutcome};
use crate::run::progress::Progress;
use crate::run::record::Failure;
use crate::run::sequences::assign::{SequenceAssignOutcome, SequenceAssignSummary};
use crate::run::sequences::compare::compare as compare_sequences;
use crate::run::sequences::record::SequencesSummary;
use crate::run::sequences::{PlannedSequences, SequencesOptions, SequencesOutcome};
#[cfg(feature = "cluster")]
use crate::run::site::Site;
use crate::run::summary::Summary;
use crate::run::{Options, Outcome};
use crate::store::Stores;
use serde::Serialize;
use serde_json::json;
use std::fmt::Display;
use std::sync::Arc;

#[cfg(feature = "cluster")]
use crate::cluster::site::{Remote, SPLIT};
#[cfg(feature = "cluster")]
use crate::read::paths::current::Current;

/// Runs one command to its end.
///
/// # Errors
/// The error of the command; its kind determines the exit code.
pub fn execute(command: Command, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    let print = |text: &str| terminal.print(text).map(|()| Done::Well);
    if !matches!(
        command,
        Command::Schema | Command::Completions { .. } | Command::Man(_)
    ) {
        check_file_limit()?;
    }
    match command {
        Command::Schema => {
            let text = serde_json::to_string_pretty(&crate::plan::pipeline::json_schema());
            print(&text.map_err(|e| {
                Error::with_source(Kind::Bug, "the schema cannot be written as JSON", e)
            })?)
        }
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut crate::cli::args::command(), "gyre", &mut script);
            print(String::from_utf8_lossy(&script).trim_end())
        }
        Command::Man(args) => match &args.out {
            Some(folder) => {
                clap_mangen::generate_to(crate::cli::args::command(), folder).map_err(|e| {
                    let what = format!("manual pages cannot be written to {}", folder.display());
                    Error::with_source(Kind::Resources, what, e)
                })?;
                terminal.say(&format!("wrote the manual pages to {}", folder.display()));
                Ok(Done::Well)
            }
            None => print(manual(&args.command)?.trim_end()),
        },
        Command::Compare(args) => {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))?;
            let (a, b, lag) = (&args.a, &args.b, args.lag.as_ref());
            let text = runtime.block_on(async {
                let (fits, json) = (&args.fit, args.json);
                match row_kind(a, b).await? {
                    RowKind::States => report_text(&compare(a, b, fits, lag).await?, json),
                    RowKind::Points => report_text(&compare_points(a, b, fits, lag).await?, json),
                    RowKind::Sequences => {
                        report_text(&compare_sequences(a, b, fits, lag).await?, json)
                    }
                    RowKind::StateSpace => {
                        Err(Error::spec("results of filters cannot be compared yet"))
                    }
                }
            });
            print(&text?)
        }
        Command::Clean(args) => {
            let pipeline = Pipeline::from_file_with(&args.path, &args.set)?;
            let stores = Stores::from(&pipeline.store);
            let mut output = Output::open(&pipeline.job.output, &stores)?;
            output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
            let cleaning = Cleaning {
                keep: pipeline.job.keep as usize,
                older_than: args.older_than.0,
                dry_run: args.dry_run,
            };
            let runtime = tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))?;
            let mut cleaned = runtime.block_on(output.clean(&cleaning))?;
            cleaned.spilled = crate::read::lake::spill::sweep(&std::env::temp_dir(), args.dry_run);
            if args.dry_run {
                print(&cleaned.to_string())
            } else {
                terminal.say(&cleaned.to_string());
                Ok(Done::Well)
            }
        }
        #[cfg(feature = "cluster")]
        Command::Scheduler(args) => crate::cli::cluster::scheduler(&args, terminal.as_ref()),
        #[cfg(feature = "cluster")]
        Command::Executor(args) => crate::cli::cluster::executor(&args, terminal.as_ref()),
        #[cfg(feature = "cluster")]
        Command::Cluster(crate::cli::args::Cluster::Up(args)) => {
            crate::cli::cluster::up(&args, terminal.as_ref())
        }
        Command::Check(args) => match read(&args)? {
            Rows::Points(pipeline) => with_points(pipeline, &args, terminal, async |planned| {
                planned.check_places(&planned.output()?, false).await?;
                let plan = &planned.plan;
                let lengths = [plan.tables.len(), plan.fits.len(), plan.checks.len()];
                terminal.say(&valid(&args, lengths));
                Ok(Done::Well)
            }),
            Rows::Sequences(pipeline) => {
                with_sequences(pipeline, &args, terminal, async |planned| {
                    planned.check_places(&planned.output()?, false).await?;
                    let plan = &planned.plan;
                    let lengths = [plan.tables.len(), plan.fits.len(), plan.checks.len()];
                    terminal.say(&valid(&args, lengths));
                    Ok(Done::Well)
                })
            }
            Rows::States(pipeline) => with_plan(pipeline, &args, terminal, async |planned, _| {
                let plan = &planned.plan;
                crate::run::check_places(plan, &planned.output()?, false).await?;
                let fits = plan.fits.len() + plan.embeddings.len();
                let lengths = [plan.tables.len(), fits, plan.checks.len()];
                terminal.say(&valid(&args, lengths));
                Ok(Done::Well)
            }),
        },
        Command::Plan(args) => match read(&args.pipeline)? {
            Rows::Points(pipeline) => {
                with_points(pipeline, &args.pipeline, terminal, async |planned| {
                    planned.check_places(&planned.output()?, false).await?;
                    let PlannedPoints { plan, lake, frame } = &planned;
                    let rows = lake.most_rows(frame.clone()).await?;
                    let needs = plan.needs(rows, lake.threads);
                    #[cfg(feature = "cluster")]
                    let preview = match &args.cluster {
                        Some(address) => Some(preview_points(address, plan, frame).await?),
                        None => None,
                    };
                    if args.json {
                        let mut shown = plan.to_json();
                        shown["memory"] = json!(needs);
                        #[cfg(feature = "cluster")]
                        if let Some(preview) = &preview {
                            shown["cluster"] = json!(preview);
                        }
                        return print(&format!("{shown:#}"));
                    }
                    print(&plan.to_string())?;
                    print(&match needs {
                        Some(needs) => needs.to_string(),
                        None => "  memory grows with rows, and nothing says how many or how long \
                                 they are"
                            .into(),
                    })?;
                    #[cfg(feature = "cluster")]
                    if let Some(preview) = preview {
                        print(&preview.to_string())?;
                    }
                    Ok(Done::Well)
                })
            }
            Rows::Sequences(pipeline) => {
                with_sequences(pipeline, &args.pipeline, terminal, async |planned| {
                    planned.check_places(&planned.output()?, false).await?;
                    let PlannedSequences { plan, lake, frame } = &planned;
                    let bounds = lake.bounds(frame.clone(), &plan.layout).await?;
                    let needs = plan.needs(bounds, lake.threads);
                    #[cfg(feature = "cluster")]
                    let preview = match &args.cluster {
                        Some(address) => Some(preview_sequences(address, plan, frame).await?),
                        None => None,
                    };
                    if args.json {
                        let mut shown = plan.to_json();
                        shown["memory"] = json!(needs);
                        #[cfg(feature = "cluster")]
                        if let Some(preview) = &preview {
                            shown["cluster"] = json!(preview);
                        }
                        return print(&format!("{shown:#}"));
                    }
                    print(&plan.to_string())?;
                    print(&match needs {
                        Some(needs) => needs.to_string(),
                        None => {
                            "  memory grows with rows, and nothing says how many there are".into()
                        }
                    })?;
                    #[cfg(feature = "cluster")]
                    if let Some(preview) = preview {
                        print(&preview.to_string())?;
                    }
                    Ok(Done::Well)
                })
            }
            Rows::States(pipeline) => with_plan(
                pipeline,
                &args.pipeline,
                terminal,
                async |planned, threads| {
                    let PlannedRun { plan, lake, frame } = &planned;
                    crate::run::check_places(plan, &planned.output()?, false).await?;
                    let bounds = lake.bounds(frame.clone(), &plan.layout).await?;
                    let needs = plan.needs(bounds, threads);
                    #[cfg(feature = "cluster")]
                    let preview = match &args.cluster {
                        Some(address) => {
                            let split = args.split.unwrap_or(SPLIT);
                            let nonzeros = needs.map(|needs| needs.nonzeros);
                            Some(preview(address, plan, frame, nonzeros, split).await?)
                        }
                        None => None,
                    };
                    if args.json {
                        let mut shown = plan.to_json();
                        shown["memory"] = json!(needs);
                        #[cfg(feature = "cluster")]
                        if let Some(preview) = &preview {
                            shown["cluster"] = json!(preview);
                        }
                        return print(&format!("{shown:#}"));
                    }
                    print(&plan.to_string())?;
                    print(&match needs {
                        Some(needs) => needs.to_string(),
                        None => {
                            "  memory grows with rows, and nothing says how many there are".into()
                        }
                    })?;
                    #[cfg(feature = "cluster")]
                    if let Some(preview) = preview {
                        print(&preview.to_string())?;
                    }
                    Ok(Done::Well)
                },
            ),
        },
        Command::Explain(args) => match read(&args)? {
            Rows::Points(pipeline) => with_points(pipeline, &args, terminal, async |planned| {
                print(&format!("SQL\n{}\n", planned.plan.sql))?;
                for (name, value) in &planned.plan.parameters {
                    print(&format!("${name} = {value}"))?;
                }
                print(&planned.lake.explain(planned.frame).await?)
            }),
            Rows::Sequences(pipeline) => {
                with_sequences(pipeline, &args, terminal, async |planned| {
                    print(&format!("SQL\n{}\n", planned.plan.sql))?;
                    for (name, value) in &planned.plan.parameters {
                        print(&format!("${name} = {value}"))?;
                    }
                    print(&planned.lake.explain(planned.frame).await?)?;
                    print(&format!("\nRows\n{}", planned.plan.rows_text()))
                })
            }
            Rows::States(pipeline) => with_plan(pipeline, &args, terminal, async |planned, _| {
                print(&format!("SQL\n{}\n", planned.plan.sql))?;
                for (name, value) in &planned.plan.parameters {
                    print(&format!("${name} = {value}"))?;
                }
                print(&planned.lake.explain(planned.frame).await?)?;
                match planned.plan.rows_text() {
                    Some(text) => print(&format!("\nRows\n{text}")),
                    None => Ok(Done::Well),
                }
            }),
        },
        Command::Assign(args) => {
            let mut pipeline = Pipeline::from_file_with(&args.pipeline.path, &args.pipeline.set)?;
            if pipeline.transitions.input.is_points() {
                return assign_points(pipeline, &args, terminal);
            }
            if pipeline.transitions.input.is_sequences() {
                return assign_sequences(pipeline, &args, terminal);
            }
            if let Some(output) = &args.output {
                pipeline.job.output.clone_from(output);
            }
            with_inputs(pipeline, &args.pipeline, terminal, async |inputs, _| {
                let planning = inputs.plan_assignment();
                let planned = stoppable(planning, terminal.as_ref()).await?;
                let stores = &planned.lake.stores;
                let model = Output::open(&args.model, stores)?;
                let mut output = Output::open(&planned.assignment.output, stores)?;
                output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
                let options = crate::run::assign::AssignOptions {
                    force: args.force,
                    smoothing: args.smoothing,
                };
                let progress = Arc::clone(terminal) as Arc<dyn Progress>;
                let assigning = planned.assign(&model, &output, &options, progress);
                match until_stopped(assigning, terminal.as_ref(), &output).await? {
                    crate::run::assign::AssignOutcome::NothingToDo => {
                        terminal.say("Nothing to do.");
                        Ok(Done::Well)
                    }
                    crate::run::assign::AssignOutcome::Done(record) => {
                        let output = output.shown();
                        let summary = crate::run::assign::record::AssignSummary {
                            record: &record,
                            output,
                        };
                        terminal.say(&summary.to_string());
                        Ok(done(&record.head.failures))
                    }
                }
            })
        }
        Command::Run(args) => {
            let watch = Arc::new(Watch::new(&args, Arc::clone(terminal))?);
            watch.end(run_pipeline(&args, &watch))
        }
    }
}

/// Assigns points to the embeddings and clusters of a model.
fn assign_points(
    mut pipeline: Pipeline,
    args: &crate::cli::args::Assign,
    terminal: &Arc<dyn Terminal>,
) -> Result<Done> {
    if args.smoothing > 0.0 {
        return Err(Error::spec(
            "--smoothing adds transitions between states, and points have none; leave it out",
        ));
    }
    if let Some(output) = &args.output {
        pipeline.job.output.clone_from(output);
    }
    with_inputs(pipeline, &args.pipeline, terminal, async |inputs, _| {
        let planning = inputs.plan_point_assignment();
        let planned = stoppable(planning, terminal.as_ref()).await?;
        let stores = &planned.lake.stores;
        let model = Output::open(&args.model, stores)?;
        let mut output = Output::open(&planned.assignment.output, stores)?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        let progress = Arc::clone(terminal) as Arc<dyn Progress>;
        let assigning = planned.assign(&model, &output, args.force, progress);
        match until_stopped(assigning, terminal.as_ref(), &output).await? {
            PointAssignOutcome::NothingToDo => {
                terminal.say("Nothing to do.");
                Ok(Done::Well)
            }
            PointAssignOutcome::Done(record) => {
                let output = output.shown();
                let record = &*record;
                terminal.say(&PointAssignSummary { record, output }.to_string());
                Ok(done(&record.head.failures))
            }
        }
    })
}

/// Filters sequences with a model.
fn assign_sequences(
    mut pipeline: Pipeline,
    args: &crate::cli::args::Assign,
    terminal: &Arc<dyn Terminal>,
) -> Result<Done> {
    if args.smoothing > 0.0 {
        return Err(Error::spec(
            "--smoothing adds transitions between states, and sequences have none; leave it out",
        ));
    }
    if let Some(output) = &args.output {
        pipeline.job.output.clone_from(output);
    }
    with_inputs(pipeline, &args.pipeline, terminal, async |inputs, _| {
        let planning = inputs.plan_sequence_assignment();
        let planned = stoppable(planning, terminal.as_ref()).await?;
        let stores = &planned.lake.stores;
        let model = Output::open(&args.model, stores)?;
        let mut output = Output::open(&planned.assignment.output, stores)?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        let progress = Arc::clone(terminal) as Arc<dyn Progress>;
        let assigning = planned.assign(&model, &output, args.force, progress);
        match until_stopped(assigning, terminal.as_ref(), &output).await? {
            SequenceAssignOutcome::NothingToDo => {
                terminal.say("Nothing to do.");
                Ok(Done::Well)
            }
            SequenceAssignOutcome::Done(record) => {
                let output = output.shown();
                let record = &*record;
                terminal.say(&SequenceAssignSummary { record, output }.to_string());
                Ok(done(&record.head.failures))
            }
        }
    })
}

/// A report as text, or as JSON.
fn report_text(report: &(impl Serialize + Display), json: bool) -> Result<String> {
    if !json {
        return Ok(report.to_string());
    }
    let text = serde_json::to_string_pretty(report);
    text.map_err(|e| Error::with_source(Kind::Bug, "the report cannot be written as JSON", e))
}

/// The message of `gyre check`, with the numbers of tables, fits and checks.
fn valid(args: &PipelineArgs, [tables, fits, checks]: [usize; 3]) -> String {
    let checks = match checks {
        0 => String::new(),
        n => format!(", {}", counted(n, "check")),
    };
    let (tables, fits) = (counted(tables, "table"), counted(fits, "fit"));
    let path = args.path.display();
    format!("{path} is valid: {tables}, {fits} per model{checks}")
}

/// A pipeline by what its rows are.
enum Rows {
    States(Pipeline),
    Points(Pipeline),
    Sequences(Pipeline),
}

/// Reads a pipeline file, once: it may be a pipe.
fn read(args: &PipelineArgs) -> Result<Rows> {
    let pipeline = Pipeline::from_file_with(&args.path, &args.set)?;
    if pipeline.transitions.input.is_points() {
        return Ok(Rows::Points(pipeline));
    }
    if pipeline.transitions.input.is_sequences() {
        return Ok(Rows::Sequences(pipeline));
    }
    Ok(Rows::States(pipeline))
}

/// Plans a run over points and calls `work`.
fn with_points(
    pipeline: Pipeline,
    args: &PipelineArgs,
    terminal: &Arc<dyn Terminal>,
    work: impl AsyncFnOnce(PlannedPoints) -> Result<Done>,
) -> Result<Done> {
    with_inputs(pipeline, args, terminal, async |inputs, _| {
        let planning = inputs.plan_points(args.seed);
        let planned = stoppable(planning, terminal.as_ref()).await?;
        work(planned).await
    })
}

/// Plans a run over sequences and calls `work`.
fn with_sequences(
    pipeline: Pipeline,
    args: &PipelineArgs,
    terminal: &Arc<dyn Terminal>,
    work: impl AsyncFnOnce(PlannedSequences) -> Result<Done>,
) -> Result<Done> {
    with_inputs(pipeline, args, terminal, async |inputs, _| {
        let planning = inputs.plan_sequences(args.seed);
        let planned = stoppable(planning, terminal.as_ref()).await?;
        work(planned).await
    })
}

fn run_points(
    pipeline: Pipeline,
    args: &crate::cli::args::Run,
    watch: &Arc<Watch>,
) -> Result<Done> {
    let terminal = &watch.terminal;
    watch.set_pipeline(&pipeline.job.name);
    with_points(pipeline, &args.pipeline, terminal, async |planned| {
        let plan = &planned.plan;
        watch.set_plan(Planned {
            sql: plan.sql.clone(),
            output: plan.output.clone(),
            tables: plan.tables.clone(),
            schemas: plan.schemas(),
        });
        let mut output = planned.output()?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        #[cfg_attr(not(feature = "cluster"), allow(unused_mut))]
        let mut options = PointsOptions {
            force: args.force || args.full_refresh,
            ..PointsOptions::default()
        };
        #[cfg(feature = "cluster")]
        let of_run = RunOf {
            output: &planned.plan.output,
            hash: &planned.plan.hash,
            stores: &planned.plan.stores,
        };
        #[cfg(feature = "cluster")]
        let cluster = cluster(args, of_run, &output, terminal.as_ref()).await?;
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &cluster {
            options.site = Arc::new(RemotePoints::new(cluster.clone()));
        }
        let running = planned.run(&output, &options, watch.clone());
        let ended = until_stopped(running, terminal.as_ref(), &output).await;
        // A run that was stopped could not write its own record.
        if let (Err(e), Some(mut record)) = (&ended, watch.points_record()) {
            record.head.failed(e);
            output.keep_failed(&record.head.id, &record).await;
        }
        #[cfg(feature = "cluster")]
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        match ended? {
            PointsOutcome::NothingToDo => {
                let in_place = match args.metrics {
                    Some(_) => output.last_record().await?,
                    None => None,
                };
                watch.set_nothing_to_do(in_place);
                terminal.say("Nothing to do.");
                Ok(Done::Skipped(args.skip_code))
            }
            PointsOutcome::Done(record) => {
                let (record, output) = (&*record, &planned.plan.output);
                terminal.say(&PointsSummary { record, output }.to_string());
                Ok(done(&record.head.failures))
            }
        }
    })
}

fn run_sequences(
    pipeline: Pipeline,
    args: &crate::cli::args::Run,
    watch: &Arc<Watch>,
) -> Result<Done> {
    let terminal = &watch.terminal;
    watch.set_pipeline(&pipeline.job.name);
    with_sequences(pipeline, &args.pipeline, terminal, async |planned| {
        let plan = &planned.plan;
        watch.set_plan(Planned {
            sql: plan.sql.clone(),
            output: plan.output.clone(),
            tables: plan.tables.clone(),
            schemas: plan.schemas(),
        });
        let mut output = planned.output()?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        #[cfg_attr(not(feature = "cluster"), allow(unused_mut))]
        let mut options = SequencesOptions {
            force: args.force,
            full_refresh: args.full_refresh,
            ..SequencesOptions::default()
        };
        #[cfg(feature = "cluster")]
        let of_run = RunOf {
            output: &planned.plan.output,
            hash: &planned.plan.hash,
            stores: &planned.plan.stores,
        };
        #[cfg(feature = "cluster")]
        let cluster = cluster(args, of_run, &output, terminal.as_ref()).await?;
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &cluster {
            options.site = Arc::new(RemoteSequences::new(cluster.clone()));
        }
        let running = planned.run(&output, &options, watch.clone());
        let ended = until_stopped(running, terminal.as_ref(), &output).await;
        // A run that was stopped could not write its own record.
        if let (Err(e), Some(mut record)) = (&ended, watch.sequences_record()) {
            record.head.failed(e);
            output.keep_failed(&record.head.id, &record).await;
        }
        #[cfg(feature = "cluster")]
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        match ended? {
            SequencesOutcome::NothingToDo => {
                let in_place = match args.metrics {
                    Some(_) => output.last_record().await?,
                    None => None,
                };
                watch.set_nothing_to_do(in_place);
                terminal.say("Nothing to do.");
                Ok(Done::Skipped(args.skip_code))
            }
            SequencesOutcome::Done(record) => {
                let (record, output) = (&*record, &planned.plan.output);
                terminal.say(&SequencesSummary { record, output }.to_string());
                Ok(done(&record.head.failures))
            }
        }
    })
}

fn run_pipeline(args: &crate::cli::args::Run, watch: &Arc<Watch>) -> Result<Done> {
    let terminal = &watch.terminal;
    let pipeline = match read(&args.pipeline)? {
        Rows::States(pipeline) => pipeline,
        Rows::Points(pipeline) => return run_points(pipeline, args, watch),
        Rows::Sequences(pipeline) => return run_sequences(pipeline, args, watch),
    };
    watch.set_pipeline(&pipeline.job.name);
    with_inputs(pipeline, &args.pipeline, terminal, async |inputs, _| {
        let planning = inputs.plan_with(args.pipeline.seed);
        let planned = stoppable(planning, terminal.as_ref()).await?;
        let plan = &planned.plan;
        watch.set_plan(Planned {
            sql: plan.sql.clone(),
            output: plan.output.clone(),
            tables: plan.tables.clone(),
            schemas: plan.schemas(),
        });
        let mut output = planned.output()?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        #[cfg(feature = "cluster")]
        let of_run = RunOf {
            output: &plan.output,
            hash: &plan.hash,
            stores: &plan.stores,
        };
        #[cfg(feature = "cluster")]
        let cluster = cluster(args, of_run, &output, terminal.as_ref()).await?;
        #[cfg(feature = "cluster")]
        let site = match &cluster {
            Some(cluster) => Arc::new(Remote {
                nodes: cluster.clone(),
                split: args.split.unwrap_or(SPLIT),
            }) as Arc<dyn Site>,
            None => Arc::new(Local),
        };
        #[cfg(not(feature = "cluster"))]
        let site = Arc::new(Local);
        let options = Options {
            force: args.force,
            full_refresh: args.full_refresh,
            site,
            ..Options::default()
        };
        let running = planned.run_with(&output, &options, watch.clone());
        let ended = until_stopped(running, terminal.as_ref(), &output).await;
        // A run that was stopped could not write its own record.
        if let (Err(e), Some(mut record)) = (&ended, watch.record()) {
            record.head.failed(e);
            output.keep_failed(&record.head.id, &record).await;
        }
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
                watch.set_nothing_to_do(in_place);
                watch.terminal.say("Nothing to do.");
                Ok(Done::Skipped(args.skip_code))
            }
            Outcome::Done(record) => {
                let output = &plan.output;
                let record = &record;
                let summary = Summary { record, output };
                watch.terminal.say(&summary.to_string());
                Ok(done(&record.head.failures))
            }
        }
    })
}

/// The run for which a cluster is connected.
#[cfg(feature = "cluster")]
struct RunOf<'a> {
    output: &'a str,
    hash: &'a str,
    stores: &'a Stores,
}

/// Connects to the cluster of a run, unless there is nothing to do.
#[cfg(feature = "cluster")]
async fn cluster(
    args: &crate::cli::args::Run,
    run: RunOf<'_>,
    output: &Output,
    terminal: &dyn Terminal,
) -> Result<Option<Arc<Cluster>>> {
    let Some(address) = &args.cluster else {
        return Ok(None);
    };
    let is_done = |c: Current| c.plan == run.hash && c.complete;
    let reuse_nothing = args.force || args.full_refresh;
    if !reuse_nothing && output.current().await?.is_some_and(is_done) {
        return Ok(None);
    }
    let connecting = Cluster::connect(address, run.output, run.hash, run.stores);
    let cluster = until_stopped(connecting, terminal, output).await?;
    if reuse_nothing {
        cluster.forget().await?;
    }
    Ok(Some(Arc::new(cluster)))
}

/// Waits for a future that writes to an output, or for a stop signal, after which the output is
/// abandoned.
async fn until_stopped<T>(
    running: impl Future<Output = Result<T>>,
    terminal: &dyn Terminal,
    output: &Output,
) -> Result<T> {
    let outcome = tokio::select! {
        // Polled before the first step of the run, which may be a long one.
        biased;
        () = terminal.stopped() => {
            terminal.finish();
            output.abandon().await;
            return Err(Error::new(Kind::Cancelled, "stopped; the output is as it was before"));
        }
        e = crate::memory::exceeded() => {
            terminal.finish();
            output.abandon().await;
            return Err(e);
        }
        outcome = running => outcome,
    };
    terminal.finish();
    outcome
}

/// Waits for a future that writes nothing, or for a stop signal.
async fn stoppable<T>(
    reading: impl Future<Output = Result<T>>,
    terminal: &dyn Terminal,
) -> Result<T> {
    tokio::select! {
        // Polled before the first step of the run, which may be a long one.
        biased;
        () = terminal.stopped() => Err(Error::new(Kind::Cancelled, "stopped")),
        e = crate::memory::exceeded() => Err(e),
        outcome = reading => outcome,
    }
}

fn done(failures: &[Failure]) -> Done {
    match failures {
        [] => Done::Well,
        _ => Done::Partly,
    }
}

/// Plans a run and passes it to `then`, with the number of threads.
fn with_plan(
    pipeline: Pipeline,
    args: &PipelineArgs,
    terminal: &Arc<dyn Terminal>,
    then: impl AsyncFnOnce(PlannedRun, usize) -> Result<Done>,
) -> Result<Done> {
    with_inputs(pipeline, args, terminal, async |inputs, threads| {
        let planned = stoppable(inputs.plan_with(args.seed), terminal.as_ref()).await?;
        then(planned, threads).await
    })
}

/// Starts the threads, opens the tables of a pipeline and passes them to `then`, with the number of
/// threads.
fn with_inputs(
    pipeline: Pipeline,
    args: &PipelineArgs,
    terminal: &Arc<dyn Terminal>,
    then: impl AsyncFnOnce(Inputs, usize) -> Result<Done>,
) -> Result<Done> {
    let threads = match args.threads {
        Some(n) => n.get(),
        None => Resources::default().threads,
    };
    let bound = args.memory.map(|m| m.0 as usize);
    let runtime = start(threads, bound, &std::env::temp_dir())?;
    let done = runtime.block_on(async {
        let resources = Resources {
            threads,
            // The program takes the rest of the bound.
            memory_bytes: bound.map(|bytes| bytes - crate::memory::least(threads)),
        };
        let stores = Stores::from(&pipeline.store);
        let opening = pipeline.open_with(&resources, &stores);
        let inputs = stoppable(opening, terminal.as_ref()).await?;
        then(inputs, threads).await
    });
    // The threads of a stopped run end with the process.
    runtime.shutdown_background();
    done
}

/// The minimum number of files that a command needs to open.
const MIN_FILES: u64 = 64;

/// Fails if the limit of open files is so low that the runtime would panic.
fn check_file_limit() -> Result<()> {
    #[cfg(unix)]
    {
        let mut files = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the call fills the structure, which holds only numbers.
        let is_known = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut files) } == 0;
        if is_known && files.rlim_cur < MIN_FILES {
            let what = format!(
                "the limit of open files is {}, and gyre needs {MIN_FILES}; raise the limit (`ulimit -n {MIN_FILES}`)",
                files.rlim_cur
            );
            return Err(Error::new(Kind::Resources, what));
        }
    }
    Ok(())
}

/// The manual page of a command, given by its words.
fn manual(words: &[String]) -> Result<String> {
    let mut command = crate::cli::args::command().disable_help_subcommand(true);
    command.build();
    let mut of = &command;
    for word in words {
        let commands = || of.get_subcommands().filter(|c| !c.is_hide_set());
        let names: Vec<&str> = commands().map(|c| c.get_name()).collect();
        let known = names.join(", ");
        of = commands().find(|c| c.get_name() == word).ok_or_else(|| {
            let known = if known.is_empty() { "none" } else { &known };
            Error::spec(format!(
                "there is no manual page for `{word}`; there are pages for: {known}"
            ))
        })?;
    }
    let mut page = Vec::new();
    clap_mangen::Man::new(of.clone())
        .render(&mut page)
        .map_err(|e| Error::with_source(Kind::Bug, "the manual page cannot be made", e))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
