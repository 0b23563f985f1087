//! One model on several machines: the fit runs here, on the outline of its matrix, and each of its passes is a round of tasks.
//!
//! ```text
//! fit (a thread) ─ kernel ─▶ here ─ a task a unit ─▶ rows of the units ─▶ fit
//! ```
//!
//! Restarts have threads of their own, and the passes of all of them go as one round. What a pass has left in the store is removed when
//! it is used: a run that is started again goes on from the pieces of the fit that were kept.

use crate::cluster::rounds::{Gathered, Rounds, groups};
use crate::cluster::task::bench::{pack, unpack};
use crate::cluster::task::fitting::Group;
use crate::cluster::task::passing::{Cut, Pass, Unit, outline};
use crate::cluster::task::work::Work;
use crate::error::{Error, Kind, Result};
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Runner;
use crate::evidence::pass::kernel::{Kernel, Totals};
use crate::output::tables::model::Model;
use crate::read::lake::statistics::Size;
use crate::run::model::{fit_shards, names};
use crate::run::progress::Silent;
use crate::run::record::Told;
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
struct Afar<'a> {
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

impl Afar<'_> {
    fn stop(&self, e: Option<Error>) -> ! {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        *error = error.take().or(e);
        drop(error);
        resume_unwind(Box::new(Stopped))
    }

    fn ask<K: Kernel>(&self, side: Side, kernel: &K, given: &[K::Cell]) -> Result<Vec<K::Cell>> {
        let (shards, _) = self.side(side);
        let width = kernel.width();
        let spans = self.cut.units(side).iter().map(|unit| {
            let own = &shards[unit.shards.clone()];
            let first = own.first().map_or(0, |shard| shard.first_row);
            first * width..own.last().map_or(0, |shard| shard.rows().end) * width
        });
        let rows = spans.clone().map(|span| match K::IN_PLACE {
            true => pack(&&given[span]),
            false => Ok(Vec::new()),
        });
        let (answer, answered) = oneshot::channel();
        let ask = Ask {
            name: K::NAME,
            kernel: pack(kernel)?,
            side,
            rows: rows.collect::<Result<_>>()?,
            answer,
        };
        // Whoever does not listen any more knows why.
        let rows = match self.asks.send(ask) {
            Ok(()) => answered.blocking_recv().ok(),
            Err(_) => None,
        };
        let rows = rows.unwrap_or_else(|| self.stop(None));
        let mut all = Vec::with_capacity(given.len());
        for (span, bytes) in spans.zip(rows) {
            let own: Vec<K::Cell> = unpack(&bytes)?;
            if own.len() != span.len() {
                let (found, cells) = (own.len(), span.len());
                let what = format!("{found} cells came of a unit of {cells}");
                return Err(Error::bug(what));
            }
            all.extend(own);
        }
        Ok(all)
    }

    /// The shards of a side, and the totals of the matrix as it is seen from there.
    fn side(&self, side: Side) -> (&[Csr], Totals<'_>) {
        let shards = self.shards;
        let (own, rows, columns) = match side {
            Side::Sources => (
                &shards.by_source,
                &shards.source_total,
                &shards.target_total,
            ),
            Side::Targets => (
                &shards.by_target,
                &shards.target_total,
                &shards.source_total,
            ),
        };
        let totals = Totals {
            rows,
            columns,
            are_exact: shards.is_integral(),
        };
        (own, totals)
    }

    fn conserved<K: Kernel>(
        &self,
        side: Side,
        kernel: &K,
        given: &[K::Cell],
    ) -> Result<Vec<K::Cell>> {
        let mut tries = 0;
        loop {
            let rows = self.ask(side, kernel, given)?;
            let Err(what) = kernel.conserved(&self.side(side).1, &rows) else {
                return Ok(rows);
            };
            tries += 1;
            let name = K::NAME;
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

impl Runner for Afar<'_> {
    fn rows<K: Kernel>(&self, shards: &[Csr], kernel: &K, out: &mut [K::Cell]) {
        let side = match std::ptr::eq(shards, self.shards.by_source.as_slice()) {
            true => Side::Sources,
            false => Side::Targets,
        };
        assert!(
            std::ptr::eq(shards, self.side(side).0),
            "passes elsewhere are over the matrix that is there"
        );
        match self.conserved(side, kernel, out) {
            Ok(rows) => out.clone_from_slice(&rows),
            Err(e) => self.stop(Some(e)),
        }
    }

    /// As many as there are: each only waits.
    fn side_by_side(&self) -> usize {
        usize::MAX
    }

    fn times<T: Send>(&self, times: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        /// Works no more, however it ends.
        struct Ends<'a>(&'a AtomicUsize);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::Relaxed);
            }
        }
        let work = || {
            let _ends = Ends(self.working);
            work()
        };
        // They work in place of this thread.
        self.working.fetch_add(times - 1, Ordering::Relaxed);
        let done = thread::scope(|scope| {
            let threads: Vec<_> = (0..times).map(|_| scope.spawn(work)).collect();
            let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
            ended
                .map(|end| end.unwrap_or_else(|panic| resume_unwind(panic)))
                .collect()
        });
        self.working.fetch_add(1, Ordering::Relaxed);
        done
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
    ) -> Result<(Model, Told)> {
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
            let afar = Afar {
                shards: &shards,
                cut: &of_thread,
                asks,
                working: &working_there,
                error: Mutex::default(),
            };
            let from = (counts, &shards);
            let fit = || fit_shards(&afar, &plan, &names, from, memory.as_ref(), &Silent);
            match catch_unwind(AssertUnwindSafe(fit)) {
                Ok(fitted) => {
                    let (model, told) = fitted?;
                    let mut model = model.with(shards);
                    model.counts.by_source.clear();
                    Ok(Some((model, told)))
                }
                Err(panic) if panic.is::<Stopped>() => {
                    let error = afar
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
