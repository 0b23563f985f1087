//! The process that does tasks: it opens the output, does a task and writes the answer there.

use crate::cluster::ballista::AnswerSite;
use crate::cluster::ballista::probe::Probe;
use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::output::task_answers::Answers;
use crate::read::lake::Resources;
use crate::run::planned::{kinds, perform_task};
use crate::run::workers::nodes::Task;
use crate::store::Stores;
use crate::store::shared_options::SharedOptions;
use ballista_core::ids::new_instance_id;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fmt::{Debug, Formatter};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{sleep, timeout};

/// The pause between heartbeats of a task. A shorter task has none.
pub(crate) const BEAT: Duration = Duration::from_secs(5);

/// After a failed task, the store of the output must answer within this time before the next one.
const STORE_ANSWERS: Duration = Duration::from_secs(5);

/// How long a slot takes no task after a failure that may be due to this machine: after the first
/// failure, and at most after many in a row.
const REST: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// The same limit if the store does not answer. Each attempt delays its round by [`STORE_ANSWERS`],
/// and a model that is fitted by passes has many rounds.
const AWAY: Duration = Duration::from_secs(20);

/// A process that does tasks.
pub(crate) struct Node {
    /// The name of the process in errors.
    name: String,
    /// What one task may use of the machine.
    resources: Resources,
    /// One permit per task that may be done at once.
    slots: Arc<Semaphore>,
    /// Number of tasks in a row that have failed for a reason that other machines may not have,
    /// such as a store out of reach or a full disk.
    failures: AtomicU32,
    stopped: Notify,
    /// The stores per set of options, whose connections all tasks share.
    stores: Mutex<BTreeMap<SharedOptions, Stores>>,
    /// Sites whose mark this process has found.
    seen: Mutex<BTreeSet<AnswerSite>>,
}

/// The name only, because options of stores may hold secrets.
impl Debug for Node {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Node {
    /// A process that does `resources.threads` tasks at once.
    pub(crate) fn new(name: String, resources: Resources) -> Node {
        Node {
            name,
            slots: Arc::new(Semaphore::new(resources.threads)),
            resources,
            failures: AtomicU32::new(0),
            stopped: Notify::new(),
            stores: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// The name of the process in errors.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Does a task and writes the answer, unless the answer exists. An error of the task is its
    /// answer.
    ///
    /// # Errors
    /// Those that another attempt may not meet.
    pub(crate) async fn answer(self: &Arc<Self>, site: &AnswerSite, task: Task) -> Result<()> {
        let (answered, longest) = match self.check_store(site).await {
            Ok(()) => (self.try_answer(site, task).await, REST[1]),
            Err(e) => (Err(e), AWAY),
        };
        match &answered {
            Ok(()) => self.failures.store(0, Ordering::Relaxed),
            Err(e) if matches!(e.kind(), Kind::Store | Kind::Resources) => self.rest(longest),
            Err(_) => (),
        }
        answered.map_err(|e| e.at(&self.name))
    }

    /// One permit per task that may be done at once.
    pub(crate) fn slots(&self) -> &Arc<Semaphore> {
        &self.slots
    }

    /// Lets no task begin any more, and waits until all tasks have ended.
    pub(crate) async fn end(&self) {
        self.stopped.notify_waiters();
        // No task can begin without a permit.
        if let Ok(all) = self.slots.acquire_many(self.resources.threads as u32).await {
            all.forget();
        }
    }

    /// Blocks one slot after a failed task, longer after each failure. Otherwise a machine that
    /// fails every task at once would get most tasks.
    fn rest(self: &Arc<Self>, longest: Duration) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        let rest = longest.min(REST[0].saturating_mul(1 << before.min(16)));
        let node = Arc::clone(self);
        tokio::spawn(async move {
            // This request for a permit comes before that of the next poll.
            let slot = node.slots.acquire().await;
            let stopped = node.stopped.notified();
            timeout(rest, stopped).await.unwrap_or_default();
            drop(slot);
        });
    }

    /// After a failed task, checks that the store of the output answers. Otherwise the next task
    /// would wait for the store, while other executors could do it.
    async fn check_store(&self, site: &AnswerSite) -> Result<()> {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let answers = self.answers(site)?;
        let unreached = |_| Error::new(Kind::Store, format!("does not reach {}", site.output));
        let answered = timeout(STORE_ANSWERS, answers.has_mark(&site.mark)).await;
        answered.map(drop).map_err(unreached)
    }

    fn answers(&self, site: &AnswerSite) -> Result<Answers> {
        Ok(Output::open(&site.output, &self.stores(site)?)?.answers(&site.plan))
    }

    async fn try_answer(&self, site: &AnswerSite, task: Task) -> Result<()> {
        let answers = self.answers(site)?;
        self.check_sees(site, &answers).await?;
        let id = task.id();
        if answers.read(&id).await?.is_some() {
            return Ok(());
        }
        tracing::debug!(task = id, "begins");
        let answer = match Probe::of(&task) {
            Some(probe) => {
                let probe = probe?;
                let wait = Duration::from_millis(probe.wait_millis.into());
                with_beats(sleep(wait), &answers, &id, BEAT).await;
                probe.answer(&self.name, self.resources.threads)
            }
            None => {
                let resources = self.resources;
                // On a separate thread: a task may compute for hours, and heartbeats must not wait.
                let doing = tokio::task::spawn_blocking(move || {
                    Handle::current().block_on(perform_task(&kinds(), &task.bytes, &resources))
                });
                let done = with_beats(doing, &answers, &id, BEAT).await;
                done.unwrap_or_else(|e| Err(Error::bug(format!("a task died: {e}"))))
            }
        };
        tracing::debug!(task = id, is_error = answer.is_err(), "ends");
        match answer {
            Err(e) if e.kind().is_retryable() => Err(e),
            answer => answers.write(&id, answer).await,
        }
    }

    fn stores(&self, site: &AnswerSite) -> Result<Stores> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = stores.get(&site.options) {
            return Ok(made.clone());
        }
        let made = site.options.stores()?;
        stores.insert(site.options.clone(), made.clone());
        Ok(made)
    }

    async fn check_sees(&self, site: &AnswerSite, answers: &Answers) -> Result<()> {
        let seen = || self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen().contains(site) {
            return Ok(());
        }
        if !answers.has_mark(&site.mark).await? {
            let message = format!(
                "does not see {} as the client does; a folder must be the same one on all machines",
                site.output
            );
            return Err(Error::new(Kind::Spec, message));
        }
        seen().insert(site.clone());
        Ok(())
    }
}

/// Waits for a task and writes heartbeats meanwhile. A heartbeat that cannot be written does not
/// stop the task.
async fn with_beats<T>(
    doing: impl Future<Output = T>,
    answers: &Answers,
    task: &str,
    every: Duration,
) -> T {
    let attempt = new_instance_id();
    let mut has_beaten = false;
    let beats = async {
        loop {
            sleep(every).await;
            has_beaten = true;
            if let Err(e) = answers.beat(task, &attempt).await {
                tracing::warn!(task, "{}", e.full());
            }
        }
    };
    // A finished task does not wait for a heartbeat: a store without an answer takes a minute.
    let done = tokio::select! {
        done = doing => done,
        () = beats => unreachable!("beats do not end by themselves"),
    };
    if has_beaten && let Ok(Err(e)) = timeout(STORE_ANSWERS, answers.end(task, &attempt)).await {
        tracing::warn!(task, "{}", e.full());
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ballista::probe::ProbeAnswer;
    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};

    fn site(folder: &std::path::Path, mark: &str) -> AnswerSite {
        AnswerSite {
            output: folder.display().to_string(),
            plan: "plan".into(),
            options: SharedOptions::default(),
            mark: mark.into(),
        }
    }

    fn probe(wait_millis: u32) -> Task {
        let probe = Probe {
            nonce: "n".into(),
            number: 0,
            wait_millis,
        };
        probe.task().expect("a task")
    }

    #[tokio::test]
    async fn a_task_is_answered_below_the_output_that_the_client_sees() {
        let folder = tempfile::tempdir().expect("a folder");
        let resources = Resources {
            threads: 2,
            memory_bytes: None,
        };
        let node = Arc::new(Node::new("host-7".into(), resources));
        let seen = site(folder.path(), "mark");
        let output = Output::open(&seen.output, &Stores::default()).expect("an output");
        let answers = output.answers("plan");
        let unseen = node.answer(&seen, probe(0)).await.expect_err("no mark");
        let expected = "host-7: does not see ";
        assert!(unseen.full().starts_with(expected), "{}", unseen.full());
        assert_eq!(unseen.kind(), Kind::Spec);
        answers.put_mark("mark").await.expect("a store");
        node.answer(&seen, probe(0)).await.expect("an answer");
        let answer = answers.read(&probe(0).id()).await.expect("a store");
        let answer = answer.expect("an answer").expect("no error");
        let answer = ProbeAnswer::read(&answer).expect("the answer to a probe");
        assert_eq!((answer.name.as_str(), answer.threads), ("host-7", 2));
        assert!(answers.running().await.expect("a store").is_empty());
        // An error that no retry can avoid is an answer.
        let wrong = Task { bytes: vec![255] };
        node.answer(&seen, wrong.clone()).await.expect("an answer");
        let answer = answers.read(&wrong.id()).await.expect("a store");
        answer.expect("an answer").expect_err("no task");
    }

    #[tokio::test]
    async fn a_process_that_cannot_reach_the_output_pauses_longer() {
        let throttle = ThrottleConfig {
            wait_get_per_call: Duration::from_secs(3600),
            ..ThrottleConfig::default()
        };
        let far = ThrottledStore::new(InMemory::new(), throttle);
        let stores = Stores::default();
        let url = "memory:///".parse().expect("a URL");
        stores.put(&url, Arc::new(far));
        let node = Arc::new(Node::new(
            "host-7".into(),
            Resources {
                threads: 1,
                memory_bytes: None,
            },
        ));
        node.stores
            .lock()
            .expect("a lock")
            .insert(SharedOptions::default(), stores);
        node.failures.store(9, Ordering::Relaxed);
        let site = site(std::path::Path::new("memory:///out"), "mark");
        let e = node.answer(&site, probe(0)).await.expect_err("far away");
        assert_eq!(e.full(), "host-7: does not reach memory:///out");
        sleep(2 * REST[1]).await;
        assert_eq!(node.slots().available_permits(), 0);
    }

    #[tokio::test]
    async fn a_long_task_writes_heartbeats() {
        let store = Arc::new(InMemory::new());
        let answers = Output::in_store(store, "out".into()).answers("plan");
        let doing = async {
            // The task runs until its first heartbeat.
            while answers.running().await.expect("a store").is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        with_beats(doing, &answers, "task", Duration::from_millis(5)).await;
        assert!(answers.running().await.expect("a store").is_empty());
    }
}
