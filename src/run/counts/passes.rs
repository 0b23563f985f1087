//! One model on several machines: the fit runs in this process, on the outline of its evidence, and
//! each of its passes is a round of tasks.
//!
//! ```text
//! fit (thread) ─ kernel ─▶ this process ─ one task per unit ─▶ rows of the units ─▶ fit
//! ```
//!
//! Every restart has a thread, and the passes of all threads go as one round. The pieces of a pass
//! in the store are removed after their use: a run that is started again resumes from the
//! checkpoints of the fit.

use crate::error::{Error, Kind, Result};
use crate::evidence::counts::Size;
use crate::evidence::counts::shards::Shards;
use crate::evidence::kind::{EvidenceKind, Side};
use crate::evidence::pass::executor::{Executor, Pass};
use crate::memory;
use crate::output::tables::fitted_model::FittedModel;
use crate::run::counting::rounds::{RemoteCounts, groups};
use crate::run::counting::tasks::CountsGroup;
use crate::run::counts::model::{fit_shards, names};
use crate::run::counts::record::Timings;
use crate::run::counts::rounds::Rounds;
use crate::run::counts::tasks::CountsWork;
use crate::run::counts::unit_pass::{Cut, UnitPass, outline};
use crate::run::progress::Silent;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How often the driver checks whether other threads of a fit have ended.
const CHECK: Duration = Duration::from_millis(10);

/// How often a pass whose rows are not conserved is made: a machine may compute wrongly, seldom.
const TRIES: usize = 2;

/// A pass that a thread of a fit waits for.
struct Request {
    name: &'static str,
    kernel: Vec<u8>,
    /// The place of the side among those of the evidence.
    side: usize,
    /// The rows of each unit, or no bytes if the kernel does not read them.
    rows: Vec<Vec<u8>>,
    answer: oneshot::Sender<Vec<Vec<u8>>>,
}

/// Unwinds a fit whose passes cannot continue, without a call of the panic hook.
struct Stopped;

/// Runs passes on other machines.
struct RemotePasses<'a> {
    /// Those of the outline.
    sides: Vec<&'a dyn Side>,
    cut: &'a Cut,
    requests: mpsc::UnboundedSender<Request>,
    /// Number of threads of the fit that may request a pass.
    working: &'a AtomicUsize,
    /// Why this process stopped the fit.
    error: Mutex<Option<Error>>,
}

impl RemotePasses<'_> {
    fn stop(&self, e: Option<Error>) -> ! {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        *error = error.take().or(e);
        drop(error);
        resume_unwind(Box::new(Stopped))
    }

    /// The rows of each unit, computed on other machines.
    fn request(&self, side: usize, pass: &dyn Pass) -> Result<Vec<(Range<usize>, Vec<u8>)>> {
        let units = self.cut.sides[side].iter();
        let spans = units.map(|unit| self.sides[side].rows(unit.shards.clone()));
        let rows = spans.clone().map(|span| pass.given(span));
        let (answer, answered) = oneshot::channel();
        let request = Request {
            name: pass.name(),
            kernel: pass.kernel()?,
            side,
            rows: rows.collect::<Result<_>>()?,
            answer,
        };
        // If the receiver is closed, the error is known there.
        let rows = match self.requests.send(request) {
            Ok(()) => answered.blocking_recv().ok(),
            Err(_) => None,
        };
        let rows = rows.unwrap_or_else(|| self.stop(None));
        Ok(spans.zip(rows).collect())
    }

    /// Runs a pass until its rows are conserved, at most [`TRIES`] times.
    fn run_conserved(&self, side: usize, pass: &mut dyn Pass) -> Result<()> {
        let mut tries = 0;
        loop {
            let rows = self.request(side, pass)?;
            let Err(what) = pass.accept(rows)? else {
                return Ok(());
            };
            tries += 1;
            let name = pass.name();
            if tries == TRIES {
                let what = format!(
                    "the pass `{name}` came back wrong {TRIES} times ({what}): a machine of the cluster computes wrongly; nothing was written"
                );
                return Err(Error::new(Kind::Check, what));
            }
            tracing::warn!(pass = name, "a pass is made again: {what}");
        }
    }
}

impl Executor for RemotePasses<'_> {
    fn run(&self, pass: &mut dyn Pass) {
        let mut sides = self.sides.iter();
        let side = sides.position(|side| side.address() == pass.shards());
        let side = side.expect("remote passes are over the evidence that the executors have");
        if let Err(e) = self.run_conserved(side, pass) {
            self.stop(Some(e));
        }
    }

    /// No limit, because the threads only wait.
    fn concurrency(&self) -> usize {
        usize::MAX
    }

    fn times(&self, times: usize, work: &(dyn Fn(usize) + Sync)) {
        /// Counts a thread as ended, however it ends.
        struct Ends<'a>(&'a AtomicUsize);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let work = |at| {
            let _ends = Ends(self.working);
            work(at);
        };
        // The new threads work in place of this one.
        self.working.fetch_add(times - 1, Ordering::Relaxed);
        thread::scope(|scope| {
            let work = &work;
            let threads: Vec<_> = (0..times).map(|at| scope.spawn(move || work(at))).collect();
            for thread in threads {
                thread.join().unwrap_or_else(|panic| resume_unwind(panic));
            }
        });
        self.working.fetch_add(1, Ordering::Relaxed);
    }
}

impl Rounds<'_> {
    /// Cuts the counts of some models, which are too large for one machine.
    pub(crate) async fn cut(
        &self,
        remote: &RemoteCounts,
        units: &[usize],
    ) -> Result<Vec<Result<Cut>>> {
        let group = |&at: &usize| groups(remote, &[at]).into_iter().next();
        let groups: Option<Vec<CountsGroup>> = units.iter().map(group).collect();
        let groups = groups.ok_or_else(|| Error::bug("a unit has no counts"))?;
        let slots = self.requests.nodes.slots() as u64;
        let cut = |group| CountsWork::Cut { group, slots };
        self.requests
            .round("cut", groups.into_iter().map(cut).collect())
            .await
    }

    /// Fits one model by passes on other machines. Its states get their numbers of the whole run.
    /// `labels`: the number of sets of each given partition.
    pub(crate) async fn fit_by_passes(
        &self,
        remote: &RemoteCounts,
        at: usize,
        labels: &[usize],
        cut: Cut,
    ) -> Result<(FittedModel, Timings)> {
        let bytes = self.output.piece(&self.plan.job.hash, &cut.outline).await?;
        let (mut counts, shards) = outline(&bytes)?;
        counts.renumber(&remote.heads[remote.units[at].head].1);
        let names = names(&self.plan, &remote.counted, labels);
        let size = Size {
            sources: shards.n_sources as u64,
            targets: shards.n_targets as u64,
            nonzeros: 0,
        };
        let threads = rayon::current_num_threads();
        self.plan.check_memory(size, threads, memory::limit())?;
        let (plan, checkpoints) = (Arc::clone(&self.plan), self.checkpoints.clone());
        let fit = move |executor: &dyn Executor, shards: &Shards| {
            fit_shards(
                executor,
                &plan,
                &names,
                counts,
                shards,
                checkpoints.as_ref(),
                &Silent,
            )
        };
        let ((model, timings), shards) = self.run_with_remote_passes(cut, shards, fit).await?;
        let mut model = model.with(shards);
        model.counts.by_source.clear();
        Ok((model, timings))
    }

    /// Calls `fit` on a thread with the outline of some evidence, which is returned afterwards, and
    /// with an executor whose passes run on other machines.
    async fn run_with_remote_passes<E: EvidenceKind, T: Send + 'static>(
        &self,
        cut: Cut,
        outline: E,
        fit: impl FnOnce(&dyn Executor, &E) -> Result<T> + Send + 'static,
    ) -> Result<(T, E)> {
        let (requests, mut requested) = mpsc::unbounded_channel();
        let cut = Arc::new(cut);
        let working = Arc::new(AtomicUsize::new(1));
        let (cut_of_fit, working_of_fit) = (Arc::clone(&cut), Arc::clone(&working));
        let fitting = tokio::task::spawn_blocking(move || {
            let remote = RemotePasses {
                sides: outline.sides(),
                cut: &cut_of_fit,
                requests,
                working: &working_of_fit,
                error: Mutex::default(),
            };
            let fitted = match catch_unwind(AssertUnwindSafe(|| fit(&remote, &outline))) {
                Ok(fitted) => fitted?,
                Err(panic) if panic.is::<Stopped>() => {
                    let error = remote.error.into_inner();
                    let error = error.unwrap_or_else(PoisonError::into_inner);
                    return error.map_or(Ok(None), Err);
                }
                Err(panic) => resume_unwind(panic),
            };
            drop(remote);
            Ok(Some((fitted, outline)))
        });
        let passed = self.pass_all(&cut, &working, &mut requested).await;
        requested.close();
        drop(requested);
        let fitted = fitting.await;
        let fitted = fitted.map_err(|e| Error::with_source(Kind::Bug, "a fit died", e))?;
        passed?;
        fitted?.ok_or_else(|| Error::bug("a fit stopped without an error"))
    }

    /// Runs the passes that a fit requests until the fit ends.
    async fn pass_all(
        &self,
        cut: &Cut,
        working: &AtomicUsize,
        requested: &mut mpsc::UnboundedReceiver<Request>,
    ) -> Result<()> {
        while let Some(first) = requested.recv().await {
            let mut requests = vec![first];
            // Every working thread requests a pass in the end, or ends.
            while requests.len() < working.load(Ordering::Relaxed) {
                match timeout(CHECK, requested.recv()).await {
                    Ok(Some(more)) => requests.push(more),
                    Ok(None) => break,
                    Err(_) => (),
                }
            }
            self.pass(cut, requests).await?;
        }
        Ok(())
    }

    /// Runs some passes as one round of tasks.
    async fn pass(&self, cut: &Cut, mut requests: Vec<Request>) -> Result<()> {
        let start = Instant::now();
        let (mut work, mut stored) = (Vec::new(), Vec::new());
        for request in &mut requests {
            let mut pieces = vec![std::mem::take(&mut request.kernel)];
            pieces.append(&mut request.rows);
            let pieces = self.output.put_part(&self.plan.job.hash, pieces).await?;
            for (unit, rows) in cut.sides[request.side].iter().zip(&pieces[1..]) {
                work.push(CountsWork::Pass(UnitPass {
                    unit: unit.entries.clone(),
                    name: request.name.to_string(),
                    kernel: pieces[0].clone(),
                    rows: rows.clone(),
                }));
            }
            stored.push(pieces[0].clone());
        }
        let tasks = self.requests.tasks(&work)?;
        let task_bytes = tasks.iter().map(|task| task.bytes.len()).max();
        let answers = self
            .requests
            .nodes
            .run("pass", tasks.clone(), &|_| ())
            .await?;
        if answers.len() != tasks.len() {
            let what = format!("{} tasks have {} answers", tasks.len(), answers.len());
            return Err(Error::bug(what));
        }
        self.requests.nodes.forget(&tasks).await?;
        for piece in &stored {
            self.output.remove_part(&self.plan.job.hash, piece).await?;
        }
        let bytes: usize = answers.iter().flatten().map(Vec::len).sum();
        let names: Vec<&str> = requests.iter().map(|request| request.name).collect();
        tracing::info!(
            passes = names.join(" "),
            tasks = tasks.len(),
            task_bytes,
            bytes,
            seconds = start.elapsed().as_secs_f64(),
            "passes made"
        );
        let mut answers = answers.into_iter();
        for request in requests {
            let own = answers.by_ref().take(cut.sides[request.side].len());
            // A fit that was stopped does not wait for the answer.
            let _ = request.answer.send(own.collect::<Result<_>>()?);
        }
        Ok(())
    }
}
