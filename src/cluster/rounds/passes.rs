//! One model on several machines: the fit runs here, on the outline of its matrix, and each of its passes is a round of tasks.
//!
//! ```text
//! fit (a thread) ─ kernel ─▶ here ─ a task a unit ─▶ rows of the units ─▶ fit
//! ```
//!
//! Restarts have threads of their own, and the passes of all of them go as one round. What a pass has left in the store is removed when
//! it is used: a run that is started again goes on from the pieces of the fit that were kept.

use crate::cluster::rounds::{Gathered, Rounds, groups};
use crate::cluster::task::fitting::Group;
use crate::cluster::task::passing::{Cut, Pass, Unit, outline};
use crate::cluster::task::work::Work;
use crate::error::{Error, Kind, Result};
use crate::evidence::counts::Size;
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::executor::{Executor, Pass as PassOver};
use crate::output::tables::fitted_model::FittedModel;
use crate::run::model::{fit_shards, names};
use crate::run::progress::Silent;
use crate::run::record::Told;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Who waits for others of a fit looks so often whether they have ended.
const LOOK: Duration = Duration::from_millis(10);

/// A pass that is not conserved is made once more: a machine may compute wrongly, seldom.
const TRIES: usize = 2;

/// A pass that the fit waits for.
struct Ask {
    name: &'static str,
    kernel: Vec<u8>,
    side: Side,
    /// The rows of each unit, where they are changed in place.
    rows: Vec<Vec<u8>>,
    answer: oneshot::Sender<Vec<Vec<u8>>>,
}

#[derive(Debug, Clone, Copy)]
enum Side {
    Sources,
    Targets,
}

/// Unwinds a fit whose passes cannot go on. The error is told elsewhere, and no panic hook hears of it.
struct Stopped;

/// Runs passes on other machines.
struct RemotePasses<'a> {
    shards: &'a Shards,
    cut: &'a Cut,
    asks: mpsc::UnboundedSender<Ask>,
    /// The threads of the fit that may ask for a pass.
    working: &'a AtomicUsize,
    /// Why the fit was stopped here.
    error: Mutex<Option<Error>>,
}

impl Cut {
    fn units(&self, side: Side) -> &[Unit] {
        match side {
            Side::Sources => &self.by_source,
            Side::Targets => &self.by_target,
        }
    }
}

impl RemotePasses<'_> {
    fn stop(&self, e: Option<Error>) -> ! {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        *error = error.take().or(e);
        drop(error);
        resume_unwind(Box::new(Stopped))
    }

    /// The results of a pass, computed on other machines: each unit's rows.
    fn ask(&self, side: Side, pass: &dyn PassOver) -> Result<Vec<(Range<usize>, Vec<u8>)>> {
        let spans = self.cut.units(side).iter().map(|unit| {
            let own = &self.side(side)[unit.shards.clone()];
            let first = own.first().map_or(0, |shard| shard.first_row);
            first..own.last().map_or(first, |shard| shard.rows().end)
        });
        let rows = spans.clone().map(|span| pass.given(span));
        let (answer, answered) = oneshot::channel();
        let ask = Ask {
            name: pass.name(),
            kernel: pass.kernel()?,
            side,
            rows: rows.collect::<Result<_>>()?,
            answer,
        };
        // If nobody listens any more, the error is known there.
        let rows = match self.asks.send(ask) {
            Ok(()) => answered.blocking_recv().ok(),
            Err(_) => None,
        };
        let rows = rows.unwrap_or_else(|| self.stop(None));
        Ok(spans.zip(rows).collect())
    }

    fn side(&self, side: Side) -> &[Csr] {
        match side {
            Side::Sources => &self.shards.by_source,
            Side::Targets => &self.shards.by_target,
        }
    }

    fn conserved(&self, side: Side, pass: &mut dyn PassOver) -> Result<()> {
        let mut tries = 0;
        loop {
            let rows = self.ask(side, pass)?;
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
            tracing::warn!(pass = name, "is made again, because {what}");
        }
    }
}

impl Executor for RemotePasses<'_> {
    fn run(&self, pass: &mut dyn PassOver) {
        let is_side = |side: &Side| pass.shards() == self.side(*side).as_ptr().cast();
        let side = [Side::Sources, Side::Targets].into_iter().find(is_side);
        let side = side.expect("remote passes are over the matrix that the executors have");
        if let Err(e) = self.conserved(side, pass) {
            self.stop(Some(e));
        }
    }

    /// Every piece of work: each only waits.
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
        // They work in place of this thread.
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
    /// Cuts the matrices of some units, which are too large for one machine.
    pub(crate) async fn cut(
        &self,
        gathered: &Gathered,
        units: &[usize],
    ) -> Result<Vec<Result<Cut>>> {
        let group = |&at: &usize| groups(gathered, &[at]).into_iter().next();
        let groups: Option<Vec<Group>> = units.iter().map(group).collect();
        let groups = groups.ok_or_else(|| Error::bug("a unit has no counts"))?;
        let slots = self.nodes.slots() as u64;
        let cut = |group| Work::Cut { group, slots };
        self.round("cut", groups.into_iter().map(cut).collect())
            .await
    }

    /// Fits one model, under its own names in all of the run. `labels`: how many sets each given partition has.
    pub(crate) async fn fit_by_passes(
        &self,
        gathered: &Gathered,
        at: usize,
        labels: &[usize],
        cut: Cut,
    ) -> Result<(FittedModel, Told)> {
        let bytes = self.output.piece(&self.plan.hash, &cut.outline).await?;
        let (mut counts, shards) = outline(&bytes)?;
        counts.rename(&gathered.heads[gathered.units[at].head].1);
        let names = names(&self.plan, &gathered.counted, labels);
        let size = Size {
            sources: shards.n_sources as u64,
            targets: shards.n_targets as u64,
            nonzeros: 0,
        };
        let threads = rayon::current_num_threads();
        self.plan
            .check_memory(size, threads, crate::memory::limit())?;
        let (asks, mut asked) = mpsc::unbounded_channel();
        let (plan, memory, cut) = (Arc::clone(&self.plan), self.memory.clone(), Arc::new(cut));
        let of_thread = Arc::clone(&cut);
        let working = Arc::new(AtomicUsize::new(1));
        let working_there = Arc::clone(&working);
        let fitting = tokio::task::spawn_blocking(move || {
            let remote = RemotePasses {
                shards: &shards,
                cut: &of_thread,
                asks,
                working: &working_there,
                error: Mutex::default(),
            };
            let from = (counts, &shards);
            let fit = || fit_shards(&remote, &plan, &names, from, memory.as_ref(), &Silent);
            match catch_unwind(AssertUnwindSafe(fit)) {
                Ok(fitted) => {
                    let (model, told) = fitted?;
                    let mut model = model.with(shards);
                    model.counts.by_source.clear();
                    Ok(Some((model, told)))
                }
                Err(panic) if panic.is::<Stopped>() => {
                    let error = remote
                        .error
                        .into_inner()
                        .unwrap_or_else(PoisonError::into_inner);
                    error.map_or(Ok(None), Err)
                }
                Err(panic) => resume_unwind(panic),
            }
        });
        let passed = self.pass_all(&cut, &working, &mut asked).await;
        asked.close();
        drop(asked);
        let fitted = fitting.await;
        let fitted = fitted.map_err(|e| Error::with_source(Kind::Bug, "a fit died", e))?;
        passed?;
        fitted?.ok_or_else(|| Error::bug("a fit stopped and nobody knows why"))
    }

    /// Makes the passes that a fit asks for until it asks no more.
    async fn pass_all(
        &self,
        cut: &Cut,
        working: &AtomicUsize,
        asked: &mut mpsc::UnboundedReceiver<Ask>,
    ) -> Result<()> {
        while let Some(first) = asked.recv().await {
            let mut asks = vec![first];
            // All that work ask in the end, or are done.
            while asks.len() < working.load(Ordering::Relaxed) {
                match timeout(LOOK, asked.recv()).await {
                    Ok(Some(more)) => asks.push(more),
                    Ok(None) => break,
                    Err(_) => (),
                }
            }
            self.pass(cut, asks).await?;
        }
        Ok(())
    }

    async fn pass(&self, cut: &Cut, mut asks: Vec<Ask>) -> Result<()> {
        let start = Instant::now();
        let (mut work, mut sent) = (Vec::new(), Vec::new());
        for ask in &mut asks {
            let mut pieces = vec![std::mem::take(&mut ask.kernel)];
            pieces.append(&mut ask.rows);
            let pieces = self.output.put_part(&self.plan.hash, pieces).await?;
            for (unit, rows) in cut.units(ask.side).iter().zip(&pieces[1..]) {
                work.push(Work::Pass(Pass {
                    unit: unit.entries.clone(),
                    name: ask.name.to_string(),
                    kernel: pieces[0].clone(),
                    rows: rows.clone(),
                }));
            }
            sent.push(pieces[0].clone());
        }
        let tasks = work.iter().map(|work| self.site.task(work));
        let tasks = tasks.collect::<Result<Vec<_>>>()?;
        let task_bytes = tasks.iter().map(|task| task.bytes.len()).max();
        let answers = self.nodes.run("pass", tasks.clone(), &|_| ()).await?;
        if answers.len() != tasks.len() {
            let what = format!("{} tasks have {} answers", tasks.len(), answers.len());
            return Err(Error::bug(what));
        }
        self.nodes.forget(&tasks).await?;
        for piece in &sent {
            self.output.remove_part(&self.plan.hash, piece).await?;
        }
        let bytes: usize = answers.iter().flatten().map(Vec::len).sum();
        let names: Vec<&str> = asks.iter().map(|ask| ask.name).collect();
        tracing::info!(
            passes = names.join(" "),
            tasks = tasks.len(),
            task_bytes,
            bytes,
            seconds = start.elapsed().as_secs_f64(),
            "passes made"
        );
        let mut answers = answers.into_iter();
        for ask in asks {
            let own = answers.by_ref().take(cut.units(ask.side).len());
            // A fit that was stopped waits for nothing.
            let _ = ask.answer.send(own.collect::<Result<_>>()?);
        }
        Ok(())
    }
}
