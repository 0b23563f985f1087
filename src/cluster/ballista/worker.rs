//! The process that does tasks: finds the output, does what a task says, and writes the answer there.

use crate::cluster::ballista::Site;
use crate::cluster::ballista::probe::Look;
use crate::cluster::nodes::Task;
use crate::cluster::task::perform;
use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::output::task_answers::Answers;
use crate::read::lake::Resources;
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

/// A task that takes longer than this says every so often that it is being done.
pub(crate) const BEAT: Duration = Duration::from_secs(5);

/// Whose tasks have failed looks for so long whether the output is there, before it begins another.
const LOOK: Duration = Duration::from_secs(5);

/// How long a slot takes no task after one has failed for a reason of this machine, and at most after many in a row.
const REST: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(2)];

/// At most that long where the store does not answer: a round whose task finds that out again is late by [`LOOK`], and a model that is fitted
/// by passes has many rounds.
const AWAY: Duration = Duration::from_secs(20);

/// A process that does tasks.
pub struct Node {
    /// What errors call the process.
    name: String,
    /// What a task may use of the machine.
    resources: Resources,
    /// One for each task that may be done at once.
    slots: Arc<Semaphore>,
    /// How many tasks in a row have failed for reasons that other machines may not have: no way to the store, a full disk.
    failures: AtomicU32,
    stopped: Notify,
    /// The stores for each set of options: their connections are for all tasks.
    stores: Mutex<BTreeMap<SharedOptions, Stores>>,
    /// The sites that this process is known to see.
    seen: Mutex<BTreeSet<Site>>,
}

/// Its name alone: options of stores are for nobody to read.
impl Debug for Node {
    fn fmt(&self, f: &mut Formatter) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl Node {
    pub fn new(name: String, resources: Resources) -> Node {
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

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does a task and writes the answer, unless it is there. An error that another attempt may not meet is returned; any other is the
    /// answer.
    pub async fn answer(self: &Arc<Self>, site: &Site, task: Task) -> Result<()> {
        let (answered, longest) = match self.look(site).await {
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

    /// A permit for each task that may be done at once.
    pub fn slots(&self) -> &Arc<Semaphore> {
        &self.slots
    }

    /// Waits until all tasks have ended; none is begun any more.
    pub async fn end(&self) {
        self.stopped.notify_waiters();
        // Whoever holds all of them keeps new tasks away.
        if let Ok(all) = self.slots.acquire_many(self.resources.threads as u32).await {
            all.forget();
        }
    }

    /// Keeps the slot of a task that has failed, longer after each: a machine that fails every task at once would have them all.
    fn rest(self: &Arc<Self>, longest: Duration) {
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        let rest = longest.min(REST[0].saturating_mul(1 << before.min(16)));
        let node = Arc::clone(self);
        tokio::spawn(async move {
            // It waits before whoever asks for tasks does.
            let slot = node.slots.acquire().await;
            let stopped = node.stopped.notified();
            timeout(rest, stopped).await.unwrap_or_default();
            drop(slot);
        });
    }

    /// Looks whether the store of the output answers, if the last task has failed: what it costs to find out is the time of a task that others
    /// could do.
    async fn look(&self, site: &Site) -> Result<()> {
        if self.failures.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let answers = self.answers(site)?;
        let late = |_| Error::new(Kind::Store, format!("does not reach {}", site.output));
        let answered = timeout(LOOK, answers.has_mark(&site.mark)).await;
        answered.map(drop).map_err(late)
    }

    fn answers(&self, site: &Site) -> Result<Answers> {
        Ok(Output::open(&site.output, &self.stores(site)?)?.answers(&site.plan))
    }

    async fn try_answer(&self, site: &Site, task: Task) -> Result<()> {
        let answers = self.answers(site)?;
        self.check_sees(site, &answers).await?;
        let id = task.id();
        if answers.read(&id).await?.is_some() {
            return Ok(());
        }
        tracing::debug!(task = id, "begins");
        let answer = match Look::of(&task) {
            Some(look) => {
                let look = look?;
                let wait = Duration::from_millis(look.wait_millis.into());
                with_beats(sleep(wait), &answers, &id, BEAT).await;
                look.answer(&self.name, self.resources.threads)
            }
            None => {
                let resources = self.resources;
                // A thread of its own: a task may compute for hours without a pause, in which others must be able to say that they go on.
                let doing = tokio::task::spawn_blocking(move || {
                    Handle::current().block_on(perform(&task.bytes, &resources))
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

    fn stores(&self, site: &Site) -> Result<Stores> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(made) = stores.get(&site.options) {
            return Ok(made.clone());
        }
        let made = site.options.stores()?;
        stores.insert(site.options.clone(), made.clone());
        Ok(made)
    }

    async fn check_sees(&self, site: &Site, answers: &Answers) -> Result<()> {
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

/// Waits for a task, and says meanwhile that it goes on. Where that cannot be said, the task goes on all the same.
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
    // What is done waits for no beat: a store that does not answer takes a minute.
    let done = tokio::select! {
        done = doing => done,
        () = beats => unreachable!("beats do not end by themselves"),
    };
    if has_beaten && let Ok(Err(e)) = timeout(LOOK, answers.end(task, &attempt)).await {
        tracing::warn!(task, "{}", e.full());
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ballista::probe::Looked;
    use object_store::memory::InMemory;
    use object_store::throttle::{ThrottleConfig, ThrottledStore};

    fn site(folder: &std::path::Path, mark: &str) -> Site {
        Site {
            output: folder.display().to_string(),
            plan: "plan".into(),
            options: SharedOptions::default(),
            mark: mark.into(),
        }
    }

    fn look(wait_millis: u32) -> Task {
        let look = Look {
            nonce: "n".into(),
            number: 0,
            wait_millis,
        };
        look.task().expect("a task")
    }

    #[tokio::test]
    async fn a_task_is_answered_below_the_output_that_the_client_sees() {
        let folder = tempfile::tempdir().expect("a folder");
        let resources = Resources {
            threads: 2,
            memory_bytes: None,
        };
        let node = Arc::new(Node::new("here".into(), resources));
        let seen = site(folder.path(), "mark");
        let output = Output::open(&seen.output, &Stores::default()).expect("an output");
        let answers = output.answers("plan");
        let unseen = node.answer(&seen, look(0)).await.expect_err("no mark");
        let told = "here: does not see ";
        assert!(unseen.full().starts_with(told), "{}", unseen.full());
        assert_eq!(unseen.kind(), Kind::Spec);
        answers.put_mark("mark").await.expect("a store");
        node.answer(&seen, look(0)).await.expect("an answer");
        let answer = answers.read(&look(0).id()).await.expect("a store");
        let answer = answer.expect("an answer").expect("no error");
        let looked = Looked::read(&answer).expect("what a look comes to");
        assert_eq!((looked.name.as_str(), looked.threads), ("here", 2));
        assert!(answers.running().await.expect("a store").is_empty());
        // What no retry can mend is an answer.
        let wrong = Task { bytes: vec![255] };
        node.answer(&seen, wrong.clone()).await.expect("an answer");
        let answer = answers.read(&wrong.id()).await.expect("a store");
        answer.expect("an answer").expect_err("no task");
    }

    #[tokio::test]
    async fn who_does_not_reach_the_output_rests_for_longer() {
        let throttle = ThrottleConfig {
            wait_get_per_call: Duration::from_secs(3600),
            ..ThrottleConfig::default()
        };
        let far = ThrottledStore::new(InMemory::new(), throttle);
        let stores = Stores::default();
        let url = "memory:///".parse().expect("a URL");
        stores.put(&url, Arc::new(far));
        let node = Arc::new(Node::new(
            "here".into(),
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
        let e = node.answer(&site, look(0)).await.expect_err("far away");
        assert_eq!(e.full(), "here: does not reach memory:///out");
        sleep(2 * REST[1]).await;
        assert_eq!(node.slots().available_permits(), 0);
    }

    #[tokio::test]
    async fn a_long_task_says_that_it_goes_on() {
        let store = Arc::new(InMemory::new());
        let answers = Output::in_store(store, "out".into()).answers("plan");
        let doing = async {
            // It goes on until somebody has heard of it.
            while answers.running().await.expect("a store").is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        with_beats(doing, &answers, "task", Duration::from_millis(5)).await;
        assert!(answers.running().await.expect("a store").is_empty());
    }
}
