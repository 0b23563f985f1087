//! Runs the commands: parsed arguments → threads, lake, plan and the stage that does the work →
//! printed text.
//!
//! [`execute`] belongs to the library and is neither generic nor async. A future is compiled where
//! it is polled, with everything that it awaits, so polling one in the program would compile most
//! of the library again.

use crate::cli::args::{Command, PipelineArgs};
use crate::cli::openlineage::Planned;
use crate::cli::terminal::{Done, Terminal, leave, start};
use crate::cli::watch::Watch;
use crate::error::{Error, Kind, Result, counted, printable_json};
use crate::output::place::Output;
use crate::output::retention::Cleaning;
use crate::plan::pipeline::Pipeline;
use crate::read::lake::{Resources, STACK_BYTES};
use crate::run::assign::AssignOptions;
use crate::run::compare::{compare, row_kind};
use crate::run::filters::compare::compare as compare_filters;
use crate::run::inputs::Inputs;
use crate::run::options::Options;
use crate::run::planned::{AnyRun, Finished, without_transitions};
use crate::run::points::compare::compare as compare_points;
use crate::run::progress::Progress;
use crate::run::sequences::compare::compare as compare_sequences;
use crate::store::Stores;
use futures::future::{AbortHandle, Abortable};
use serde::Serialize;
use std::fmt::Display;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

#[cfg(feature = "cluster")]
use crate::cluster::ballista::client::Cluster;
#[cfg(feature = "cluster")]
use crate::cluster::preview::preview;
#[cfg(feature = "cluster")]
use crate::plan::job::PlannedJob;
#[cfg(feature = "cluster")]
use crate::read::paths::current::Current;
#[cfg(feature = "cluster")]
use crate::run::workers::{SPLIT, Workers};
#[cfg(feature = "cluster")]
use serde_json::json;

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
                match row_kind(a, b).await?.as_str() {
                    "points" => report_text(&compare_points(a, b, fits, lag).await?, json),
                    "symbols" => report_text(&compare_sequences(a, b, fits, lag).await?, json),
                    "observations" => report_text(&compare_filters(a, b, fits, lag).await?, json),
                    _ => report_text(&compare(a, b, fits, lag).await?, json),
                }
            });
            print(&text?)
        }
        Command::Init(args) => crate::cli::init::init(&args, terminal.as_ref()),
        Command::Restore(args) => restore(&args, terminal.as_ref()),
        #[cfg(feature = "report")]
        Command::Inspect(args) => crate::cli::inspect::inspect(&args, terminal.as_ref()),
        #[cfg(feature = "report")]
        Command::Report(args) => crate::cli::report::report(&args, terminal.as_ref()),
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
        Command::Check(args) => with_run(&args, terminal, async |run| {
            run.check_places(&run.output()?, false).await?;
            let job = run.job();
            let lengths = [job.tables.len(), run.n_fits(), job.checks.len()];
            terminal.say(&valid(&args, lengths));
            Ok(Done::Well)
        }),
        Command::Plan(mut args) => {
            args.pipeline.set.extend(args.tables.set());
            plan(&args, terminal)
        }
        Command::Explain(args) => with_run(&args, terminal, async |run| {
            let job = run.job();
            print(&format!("SQL\n{}\n", job.sql))?;
            for (name, value) in &job.parameters {
                print(&format!("${name} = {value}"))?;
            }
            print(&run.lake().explain(run.frame().clone()).await?)?;
            match run.rows_text() {
                Some(text) => print(&format!("\nRows\n{text}")),
                None => Ok(Done::Well),
            }
        }),
        Command::Assign(args) => assign(&args, terminal),
        Command::Run(mut args) => {
            args.pipeline.set.extend(args.tables.set());
            let watch = Arc::new(Watch::new(&args, Arc::clone(terminal))?);
            watch.end(run_pipeline(&args, &watch))
        }
    }
}

/// Prints what a run would read, compute and write.
fn plan(args: &crate::cli::args::Plan, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    let print = |text: &str| terminal.print(text).map(|()| Done::Well);
    with_run(&args.pipeline, terminal, async |run| {
        run.check_places(&run.output()?, false).await?;
        let needs = run.needs().await?;
        #[cfg(feature = "cluster")]
        let preview = match &args.cluster {
            Some(address) => {
                let split = args.split.unwrap_or(SPLIT);
                Some(preview(address, run.as_ref(), split).await?)
            }
            None => None,
        };
        let mut plan = run.plan();
        if args.json {
            plan.json["memory"] = needs.json;
            #[cfg(feature = "cluster")]
            if let Some(preview) = &preview {
                plan.json["cluster"] = json!(preview);
            }
            return print(&printable_json(&format!("{:#}", plan.json)));
        }
        print(&plan.text)?;
        print(&needs.text)?;
        #[cfg(feature = "cluster")]
        if let Some(preview) = preview {
            print(&preview.to_string())?;
        }
        Ok(Done::Well)
    })
}

/// Puts an earlier result back in place, or prints which there are.
fn restore(args: &crate::cli::args::Restore, terminal: &dyn Terminal) -> Result<Done> {
    let mut output = Output::open(&args.output, &Stores::default())?;
    output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))?;
    runtime.block_on(async {
        let Some(run) = &args.run else {
            // Also if the current result is damaged.
            let seen = output.pointer().await?;
            let earlier = seen.map(|seen| seen.current.earlier).unwrap_or_default();
            return terminal.print(&earlier.join("\n")).map(|()| Done::Well);
        };
        let text = if output.restore(run).await? {
            format!("{run} is the result of {} again", output.shown())
        } else {
            "Nothing to do.".to_string()
        };
        terminal.say(&text);
        Ok(Done::Well)
    })
}

/// Assigns the rows of a pipeline to a written model.
fn assign(args: &crate::cli::args::Assign, terminal: &Arc<dyn Terminal>) -> Result<Done> {
    let mut pipeline = Pipeline::from_file_with(&args.pipeline.path, &args.pipeline.set)?;
    if let Some(rows) = without_transitions(&pipeline).filter(|_| args.smoothing > 0.0) {
        return Err(Error::spec(format!(
            "--smoothing adds transitions between states, and {rows} have none; leave it out"
        )));
    }
    if let Some(output) = &args.output {
        pipeline.job.output.clone_from(output);
    }
    with_inputs(pipeline, &args.pipeline, terminal, async |inputs| {
        let planning = inputs.plan_any_assignment();
        let planned = stoppable(planning, terminal.as_ref()).await?;
        let (stores, place) = planned.place();
        let model = Output::open(&args.model, stores)?;
        let mut output = Output::open(place, stores)?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        let options = AssignOptions {
            force: args.force,
            smoothing: args.smoothing,
        };
        let progress = Arc::clone(terminal) as Arc<dyn Progress>;
        let output = Arc::new(output);
        let to = Arc::clone(&output);
        let assign = move || async move { planned.assign(&model, &to, &options, progress).await };
        match until_stopped(assign, terminal.as_ref(), &output).await? {
            None => {
                terminal.say("Nothing to do.");
                Ok(Done::Well)
            }
            Some(finished) => Ok(say(&finished, terminal.as_ref())),
        }
    })
}

/// Prints the summary of a run.
fn say(finished: &Finished, terminal: &dyn Terminal) -> Done {
    terminal.say(&finished.summary);
    if finished.has_failures {
        Done::Partly
    } else {
        Done::Well
    }
}

/// A report as text, or as JSON.
fn report_text(report: &(impl Serialize + Display), json: bool) -> Result<String> {
    if !json {
        return Ok(report.to_string());
    }
    match serde_json::to_string_pretty(report) {
        Ok(text) => Ok(printable_json(&text).into_owned()),
        Err(e) => {
            let what = "the report cannot be written as JSON";
            Err(Error::with_source(Kind::Bug, what, e))
        }
    }
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

fn run_pipeline(args: &crate::cli::args::Run, watch: &Arc<Watch>) -> Result<Done> {
    let terminal = watch.terminal.as_ref();
    let pipeline = Pipeline::from_file_with(&args.pipeline.path, &args.pipeline.set)?;
    watch.set_pipeline(&pipeline.job.name);
    with_inputs(pipeline, &args.pipeline, &watch.terminal, async |inputs| {
        let run = stoppable(inputs.plan_any(args.pipeline.seed), terminal).await?;
        let job = run.job();
        watch.set_plan(Planned {
            sql: job.sql.clone(),
            output: job.output.clone(),
            tables: job.tables.clone(),
            schemas: run.schemas(),
        });
        let mut output = run.output()?;
        output.set_lock_timeout(args.lock_timeout.0.unsigned_abs());
        #[cfg(feature = "report")]
        if args.report {
            output.set_companion(Arc::new(crate::cli::report::Beside));
        }
        #[cfg_attr(not(feature = "cluster"), allow(unused_mut))]
        let mut options = Options {
            force: args.force,
            full_refresh: args.full_refresh,
            ..Options::default()
        };
        #[cfg(feature = "cluster")]
        let cluster = cluster(args, job, &output, terminal).await?;
        #[cfg(feature = "cluster")]
        if let Some(cluster) = &cluster {
            options.workers = Workers::Elsewhere {
                nodes: cluster.clone(),
                split: args.split.unwrap_or(SPLIT),
            };
        }
        let output = Arc::new(output);
        let (to, progress) = (Arc::clone(&output), Arc::clone(watch));
        let work = move || async move { run.run(&to, &options, progress).await };
        let ended = until_stopped(work, terminal, &output).await;
        // A run that was stopped could not write its own record.
        if let (Err(e), Some(mut record)) = (&ended, watch.record()) {
            record.head_mut().failed(e);
            output
                .keep_failed(&record.head().id, &record.to_json())
                .await;
        }
        #[cfg(feature = "cluster")]
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        match ended? {
            None => {
                let in_place = match args.metrics {
                    Some(_) => output.last_record().await?,
                    None => None,
                };
                watch.set_nothing_to_do(in_place);
                terminal.say("Nothing to do.");
                Ok(Done::Skipped(args.skip_code))
            }
            Some(finished) => Ok(say(&finished, terminal)),
        }
    })
}

/// Connects to the cluster of a run, unless there is nothing to do.
#[cfg(feature = "cluster")]
async fn cluster(
    args: &crate::cli::args::Run,
    job: &PlannedJob,
    output: &Output,
    terminal: &dyn Terminal,
) -> Result<Option<Arc<Cluster>>> {
    let Some(address) = &args.cluster else {
        return Ok(None);
    };
    let is_done = |c: Current| c.plan == job.hash && c.complete;
    let reuse_nothing = args.force || args.full_refresh;
    if !reuse_nothing && output.intact().await?.is_some_and(is_done) {
        return Ok(None);
    }
    let connecting = Cluster::connect(address, &job.output, &job.hash, &job.stores);
    let cluster = stoppable(connecting, terminal).await?;
    if reuse_nothing {
        cluster.forget().await?;
    }
    Ok(Some(Arc::new(cluster)))
}

/// Does work that writes to an output, until it ends or a signal stops it, after which the output
/// is abandoned.
///
/// The work is done on a thread of its own, because it computes for long between two waits. What a
/// stopped thread still computes ends with the process.
async fn until_stopped<T: Send + 'static, F: Future<Output = Result<T>>>(
    work: impl FnOnce() -> F + Send + 'static,
    terminal: &dyn Terminal,
    output: &Output,
) -> Result<T> {
    let (handle, registration) = AbortHandle::new_pair();
    let (sender, mut ended) = oneshot::channel();
    let runtime = Handle::current();
    let thread = std::thread::Builder::new()
        .name("run".into())
        .stack_size(STACK_BYTES);
    thread
        .spawn(move || {
            let done = runtime.block_on(Abortable::new(work(), registration));
            // Nothing waits for work that was stopped.
            sender.send(done).ok();
        })
        .map_err(|e| Error::with_source(Kind::Resources, "cannot start a thread", e))?;
    let ending = async {
        tokio::select! {
            biased;
            () = terminal.stopped() => {
                let what = "stopped; the output is as it was before";
                Err(Error::new(Kind::Cancelled, what))
            }
            e = crate::memory::exceeded() => Err(e),
            done = &mut ended => Ok(done),
        }
    };
    let done = match ending.await {
        Ok(done) => done,
        // The result is being promoted.
        Err(_) if !terminal.stop() => ended.await,
        Err(e) => {
            handle.abort();
            terminal.finish();
            output.stop().await;
            crate::read::lake::spill::remove_all();
            return Err(e);
        }
    };
    terminal.finish();
    if let Ok(Ok(outcome)) = done {
        return outcome;
    }
    // Only a panic ends the thread without an outcome.
    output.abandon().await;
    Err(Error::bug("the run panicked"))
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

/// Reads a pipeline file, plans its run and passes it to `then`.
fn with_run(
    args: &PipelineArgs,
    terminal: &Arc<dyn Terminal>,
    then: impl AsyncFnOnce(Box<dyn AnyRun>) -> Result<Done>,
) -> Result<Done> {
    let pipeline = Pipeline::from_file_with(&args.path, &args.set)?;
    with_inputs(pipeline, args, terminal, async |inputs| {
        then(stoppable(inputs.plan_any(args.seed), terminal.as_ref()).await?).await
    })
}

/// Starts the threads, opens the tables of a pipeline and passes them to `then`.
fn with_inputs(
    pipeline: Pipeline,
    args: &PipelineArgs,
    terminal: &Arc<dyn Terminal>,
    then: impl AsyncFnOnce(Inputs) -> Result<Done>,
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
        then(inputs).await
    });
    leave(runtime);
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
