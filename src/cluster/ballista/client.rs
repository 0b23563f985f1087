//! Asks a cluster for tasks until it has all answers.
//!
//! What is answered already is not asked for. The rest goes to the scheduler as a job. Whatever ends that job without an answer to every
//! task, a failure, a scheduler that started again, or a minute in which nothing was heard of any task, what is missing goes there once
//! more. Three jobs in a row that bring nothing while nobody does anything are an error, and so is a scheduler that is away for a minute.

use crate::cluster::address::Address;
use crate::cluster::ballista::dispatch::{Dispatch, State};
use crate::cluster::ballista::operator::{plan, unwrapped};
use crate::cluster::ballista::probe::{Look, Looked};
use crate::cluster::ballista::worker::BEAT;
use crate::cluster::ballista::{MESSAGE_BYTES, PATIENCE, Site};
use crate::cluster::nodes::{Nodes, Task};
use crate::error::{Error, Kind, Result};
use crate::output::place::Output;
use crate::output::task_answers::{Answers, Attempt};
use crate::store::Stores;
use ballista_core::ids::new_instance_id;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// So many jobs in a row may bring no answer.
const TRIES: usize = 3;

/// A task that was begun so often and never came to an end takes its executor with it each time.
const ATTEMPTS: usize = 5;

/// How long to wait for a first executor.
const NO_EXECUTORS: Duration = Duration::from_secs(20);

/// How long to wait until all executors have said who they are: one that has no time says nothing.
const LOOK: Duration = Duration::from_secs(3);

/// The state of a job is asked for so often, and less often the longer nothing changes.
const POLL: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];

/// Answers are listed no more often than this.
const LIST: Duration = Duration::from_secs(1);

/// At most so many answers are read at once.
const READS: usize = 16;

/// The tasks of a job, their names beside them, leave room for them in a message.
const JOB_BYTES: usize = MESSAGE_BYTES / 2;
const JOB_TASKS: usize = 10_000;

/// A cluster that has been seen to work on an output.
pub struct Cluster {
    dispatch: Dispatch,
    site: Site,
    answers: Answers,
    executors: Vec<Looked>,
    /// The jobs that the scheduler may be working on.
    jobs: Mutex<BTreeSet<String>>,
}

impl Cluster {
    /// Connects to a cluster, for the tasks of a plan whose answers go below an output, and looks whether its executors see that.
    ///
    /// # Errors
    /// If nobody is there, no executor comes, or one of them has another version or does not see the output.
    pub async fn connect(
        address: &Address,
        output: &str,
        plan: &str,
        stores: &Stores,
    ) -> Result<Cluster> {
        let dispatch = Dispatch::connect(address).await?;
        let place = stores.open(output)?;
        let answers = Output::open(output, stores)?.answers(plan);
        let mark = new_instance_id();
        answers.put_mark(&mark).await?;
        let mut cluster = Cluster {
            site: Site {
                output: match place.folder {
                    Some(folder) => folder.display().to_string(),
                    None => output.to_string(),
                },
                plan: plan.to_string(),
                options: stores.shared(),
                mark,
            },
            dispatch,
            answers,
            executors: Vec::new(),
            jobs: Mutex::default(),
        };
        match cluster.look().await {
            Ok(executors) => cluster.executors = executors,
            Err(e) => {
                cluster.leave().await;
                return Err(e);
            }
        }
        let executors = cluster.executors.len();
        tracing::info!(executors, slots = cluster.slots(), "cluster at {address}");
        Ok(cluster)
    }

    /// Who does tasks.
    pub fn executors(&self) -> &[Looked] {
        &self.executors
    }

    /// Lets everything be done again that was done for earlier runs of the plan.
    ///
    /// # Errors
    /// If the store does not.
    pub async fn forget(&self) -> Result<()> {
        self.answers.forget().await
    }

    /// Lets the cluster begin nothing more for this client, and takes away what was put there for it. What is being done now goes on to its
    /// end, and the next run finds it done.
    pub async fn leave(&self) {
        let leave = async {
            let jobs = std::mem::take(&mut *self.jobs());
            for job in jobs {
                self.dispatch.cancel(&job).await?;
            }
            self.dispatch.close().await?;
            self.answers.remove_mark(&self.site.mark).await
        };
        match timeout(LOOK, leave).await {
            Ok(Ok(())) => (),
            Ok(Err(e)) => tracing::warn!("{}; its executors may go on for a while", e.full()),
            Err(_) => tracing::warn!("{} does not answer", self.dispatch.address),
        }
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn submit(&self, name: &str, tasks: &[Task]) -> Result<String> {
        let job = self.dispatch.submit(name, plan(&self.site, tasks)?).await?;
        tracing::info!(job, stage = name, tasks = tasks.len(), "tasks handed in");
        self.jobs().insert(job.clone());
        Ok(job)
    }

    /// Waits for a first executor and asks all that are there who they are. Who answers waits a moment before, so that those who are free
    /// take their part of the questions too.
    async fn look(&self) -> Result<Vec<Looked>> {
        let start = Instant::now();
        let expected = loop {
            match self.dispatch.executors().await? {
                0 if start.elapsed() < NO_EXECUTORS => sleep(POLL[1]).await,
                0 => {
                    let address = &self.dispatch.address;
                    let message = format!(
                        "the cluster at {address} has no executors, and none came in {} seconds; `gyre executor --scheduler {address}` is one",
                        NO_EXECUTORS.as_secs()
                    );
                    return Err(Error::new(Kind::Resources, message));
                }
                n => break n,
            }
        };
        let nonce = new_instance_id();
        let look = |number: usize| Look {
            nonce: nonce.clone(),
            number: number as u32,
            wait_millis: 200,
        };
        let tasks: Result<Vec<Task>> = (0..64 * expected).map(|n| look(n).task()).collect();
        let tasks = tasks?;
        let ids: BTreeSet<String> = tasks.iter().map(Task::id).collect();
        let job = self.submit("look", &tasks).await?;
        let mut seen = BTreeMap::new();
        let mut known = BTreeSet::new();
        let start = Instant::now();
        let last = PATIENCE.min(NO_EXECUTORS);
        while seen.len() < expected && (seen.is_empty() || start.elapsed() < LOOK) {
            sleep(POLL[1] / 5).await;
            let state = self.dispatch.state(&job).await?;
            let done = self.answers.done().await?;
            for id in done.into_iter().filter(|id| ids.contains(id)) {
                if !known.contains(&id)
                    && let Some(answer) = self.answers.read(&id).await?
                {
                    let looked = Looked::read(&answer?)?;
                    seen.insert(looked.name.clone(), looked);
                    known.insert(id);
                }
            }
            match state {
                State::Queued | State::Running if start.elapsed() < last => (),
                State::Queued | State::Running => {
                    let message = format!(
                        "no executor of the cluster at {} had time in {} seconds",
                        self.dispatch.address,
                        last.as_secs()
                    );
                    return Err(Error::new(Kind::Resources, message));
                }
                State::Failed(message) => return Err(self.told(&message)),
                State::Done => break,
                State::Unknown => {
                    let message = format!("{} started anew meanwhile", self.dispatch.address);
                    return Err(Error::new(Kind::Store, message));
                }
            }
        }
        self.end(&job).await;
        Ok(seen.into_values().collect())
    }

    /// The error that a job failed with.
    fn told(&self, message: &str) -> Error {
        unwrapped(message).unwrap_or_else(|| {
            let text = format!("a job failed on the cluster at {}", self.dispatch.address);
            Error::with_source(Kind::Resources, text, message.to_string())
        })
    }

    /// Lets nothing more of a job begin.
    async fn end(&self, job: &str) {
        if self.jobs().remove(job)
            && let Err(e) = self.dispatch.cancel(job).await
        {
            tracing::warn!("{}", e.full());
        }
    }
}

impl Nodes for Cluster {
    fn slots(&self) -> usize {
        self.executors.iter().map(|looked| looked.threads).sum()
    }

    fn run<'a>(
        &'a self,
        stage: &'static str,
        tasks: Vec<Task>,
        heard: &'a (dyn Fn(usize) + Sync),
    ) -> BoxFuture<'a, Result<Vec<Result<Vec<u8>>>>> {
        let round = Round::new(self, stage, tasks);
        Box::pin(round.run(heard))
    }

    fn forget<'a>(&'a self, tasks: &'a [Task]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.answers.remove_all(tasks.iter().map(Task::id)))
    }
}

/// Tasks that are asked for until all are answered.
struct Round<'a> {
    cluster: &'a Cluster,
    stage: &'static str,
    /// Each task once, by its name.
    tasks: BTreeMap<String, Task>,
    order: Vec<String>,
    answers: BTreeMap<String, Result<Vec<u8>>>,
    job: Option<Job>,
    /// What was said of each attempt that takes long, and when that was heard.
    running: BTreeMap<Attempt, (Timestamp, Instant)>,
    /// When something was last heard of any task.
    heard: Instant,
    /// When the scheduler last answered.
    reached: Instant,
    listed: Option<Instant>,
    /// How many jobs in a row have brought nothing.
    fruitless: usize,
}

struct Job {
    id: String,
    tasks: Vec<String>,
    state: State,
    has_brought: bool,
}

impl<'a> Round<'a> {
    fn new(cluster: &'a Cluster, stage: &'static str, tasks: Vec<Task>) -> Round<'a> {
        let order: Vec<String> = tasks.iter().map(Task::id).collect();
        let now = Instant::now();
        Round {
            cluster,
            stage,
            tasks: order.iter().cloned().zip(tasks).collect(),
            order,
            answers: BTreeMap::new(),
            job: None,
            running: BTreeMap::new(),
            heard: now,
            reached: now,
            listed: None,
            fruitless: 0,
        }
    }

    async fn run(mut self, heard: &(dyn Fn(usize) + Sync)) -> Result<Vec<Result<Vec<u8>>>> {
        let mut wait = POLL[0];
        loop {
            let is_first = self.listed.is_none();
            // What a job has answered is there before the job is done.
            let over = self.ask().await?;
            let new = self.collect(over.is_some()).await?;
            if new > 0 {
                heard(new);
                wait = POLL[0];
            }
            if self.answers.len() == self.tasks.len() {
                break;
            }
            if let Some(why) = over.or_else(|| self.silence()) {
                self.give_up(why).await?;
            }
            if is_first {
                // What is not answered is handed in at once.
                continue;
            }
            sleep(wait).await;
            wait = (wait * 5 / 4).min(POLL[1]);
        }
        if let Some(job) = self.job.take() {
            self.cluster.end(&job.id).await;
        }
        // Two tasks of the same bytes are one.
        let answer = |id: &String| match &self.answers[id] {
            Ok(bytes) => Ok(bytes.clone()),
            Err(e) => Err(Error::new(e.kind(), e.full())),
        };
        Ok(self.order.iter().map(answer).collect())
    }

    /// Hands in what is missing, or asks how that goes. Says why no more answers will come, if so.
    async fn ask(&mut self) -> Result<Option<Error>> {
        let cluster = self.cluster;
        let state = match &self.job {
            None if self.listed.is_none() => return Ok(None),
            None => self.hand_in().await.map(|()| State::Queued),
            Some(job) => cluster.dispatch.state(&job.id).await,
        };
        let now = Instant::now();
        match state {
            Ok(state) => {
                self.reached = now;
                if let Some(job) = self.job.as_mut().filter(|job| job.state != state) {
                    self.heard = now;
                    job.state = state.clone();
                }
                Ok(match state {
                    State::Queued | State::Running => None,
                    State::Done => {
                        let folder = cluster.answers.shown();
                        let message = format!("tasks are done whose answers are not in {folder}");
                        Some(Error::new(Kind::Store, message))
                    }
                    State::Failed(message) => Some(cluster.told(&message)),
                    State::Unknown => {
                        let address = &cluster.dispatch.address;
                        let message = format!("the scheduler at {address} started anew");
                        Some(Error::new(Kind::Store, message))
                    }
                })
            }
            Err(e) if e.kind() != Kind::Store => Err(e),
            Err(e) if self.reached.elapsed() > PATIENCE => {
                let message = format!("{}, for {} seconds", e.full(), PATIENCE.as_secs());
                Err(Error::new(e.kind(), message))
            }
            Err(e) => {
                tracing::warn!("{}", e.full());
                // Answers may come all the same: executors need no scheduler to end what they do.
                self.heard = now;
                Ok(None)
            }
        }
    }

    async fn hand_in(&mut self) -> Result<()> {
        let mut bytes = 0;
        let missing = self.tasks.iter().filter(|(id, _)| self.is_missing(id));
        let mut missing: Vec<_> = missing.collect();
        if self.fruitless % 2 == 1 {
            // One that fails whoever does it is not to keep all others from their turn.
            missing.reverse();
        }
        // What is being done, for whatever job, comes last.
        missing.sort_by_key(|(id, _)| self.is_done_now(id));
        let some = missing.into_iter().take(JOB_TASKS).take_while(|(_, task)| {
            // One alone goes however long it is.
            let is_first = bytes == 0;
            bytes += task.bytes.len() + 500;
            is_first || bytes <= JOB_BYTES
        });
        let (tasks, names): (Vec<Task>, _) =
            some.map(|(id, task)| (task.clone(), id.clone())).unzip();
        let id = self.cluster.submit(self.stage, &tasks).await?;
        self.heard = Instant::now();
        self.job = Some(Job {
            id,
            tasks: names,
            state: State::Queued,
            has_brought: false,
        });
        Ok(())
    }

    /// Reads the answers that are new; says how many. Looks for them now and then, or when a job is over.
    async fn collect(&mut self, is_over: bool) -> Result<usize> {
        if !is_over && self.listed.is_some_and(|listed| listed.elapsed() < LIST) {
            return Ok(0);
        }
        let answers = &self.cluster.answers;
        let done = answers.done().await?;
        let new = done
            .into_iter()
            .filter(|id| self.tasks.contains_key(id) && !self.answers.contains_key(id));
        let reads = stream::iter(new).map(async |id| {
            let answer = answers.read(&id).await?;
            Ok::<_, Error>((id, answer))
        });
        let read: Vec<_> = reads.buffer_unordered(READS).try_collect().await?;
        let mut n_new = 0;
        for (id, answer) in read {
            match answer {
                Some(answer) => {
                    self.answers.insert(id, answer);
                    n_new += 1;
                }
                None => tracing::warn!(
                    task = id,
                    "the answer is damaged and the task is done again"
                ),
            }
        }
        let running = answers.running().await?;
        let now = Instant::now();
        let before = std::mem::take(&mut self.running);
        let beats = running.into_iter().map(|(attempt, said)| {
            let same = before.get(&attempt).filter(|(before, _)| *before == said);
            let heard = same.map_or(now, |(_, heard)| *heard);
            (attempt, (said, heard))
        });
        self.running = beats.collect();
        if n_new > 0 || self.running != before {
            self.heard = now;
        }
        if let Some(job) = self.job.as_mut() {
            job.has_brought |= n_new > 0;
        }
        self.check_attempts()?;
        self.listed = Some(Instant::now());
        Ok(n_new)
    }

    /// A task that ends every process that does it must not end the whole cluster.
    fn check_attempts(&self) -> Result<()> {
        let mut attempts: BTreeMap<&str, usize> = BTreeMap::new();
        for (task, _) in self.running.keys() {
            if self.is_missing(task) {
                *attempts.entry(task).or_default() += 1;
            }
        }
        match attempts.into_iter().find(|(_, n)| *n > ATTEMPTS) {
            None => Ok(()),
            Some((task, n)) => {
                let message = format!(
                    "a task of the stage {} was begun {n} times and never came to an end: its executors died, of memory perhaps (task {task}, {})",
                    self.stage,
                    self.cluster.answers.shown()
                );
                Err(Error::new(Kind::Resources, message))
            }
        }
    }

    fn is_missing(&self, task: &str) -> bool {
        self.tasks.contains_key(task) && !self.answers.contains_key(task)
    }

    /// Whether somebody has said of late that a task goes on.
    fn is_done_now(&self, task: &str) -> bool {
        let first = (task.to_string(), String::new());
        let attempts = self.running.range(first..);
        let mut own = attempts.take_while(|((of, _), _)| of == task);
        own.any(|(_, (_, heard))| heard.elapsed() < 3 * BEAT)
    }

    /// Whether nothing was heard for too long.
    fn silence(&self) -> Option<Error> {
        (self.job.is_some() && self.heard.elapsed() > PATIENCE).then(|| {
            let message = format!(
                "nothing was heard of any task for {} seconds",
                PATIENCE.as_secs()
            );
            Error::new(Kind::Resources, message)
        })
    }

    /// Is done with a job that brings no more, for the reason `why`.
    async fn give_up(&mut self, why: Error) -> Result<()> {
        let Some(job) = self.job.take() else {
            return Ok(());
        };
        self.cluster.end(&job.id).await;
        let is_answered = |id: &String| self.answers.contains_key(id);
        if job.tasks.iter().all(is_answered) {
            return Ok(());
        }
        let is_gone = why.kind() == Kind::Spec
            && !self
                .cluster
                .answers
                .has_mark(&self.cluster.site.mark)
                .await?;
        if is_gone {
            let folder = self.cluster.answers.shown();
            let message = format!("{folder} was removed, by another run of the plan perhaps");
            return Err(Error::new(Kind::Conflict, message));
        }
        // Other executors may have done the rest, but some of them would always meet this.
        if matches!(why.kind(), Kind::Spec | Kind::Conflict | Kind::Bug) {
            return Err(why);
        }
        let missing = self.tasks.len() - self.answers.len();
        tracing::warn!(job = job.id, missing, "asks again, because {}", why.full());
        let mut left = self.tasks.keys().filter(|id| self.is_missing(id));
        let goes_on = left.any(|id| self.is_done_now(id));
        self.fruitless = match job.has_brought || goes_on {
            true => 0,
            false => self.fruitless + 1,
        };
        if self.fruitless < TRIES {
            sleep(Duration::from_secs(self.fruitless as u64)).await;
            return Ok(());
        }
        let executors = match self.cluster.dispatch.executors().await {
            Ok(1) => "1 executor".into(),
            Ok(n) => format!("{n} executors"),
            Err(_) => "a scheduler that does not answer".into(),
        };
        let message = format!(
            "the cluster at {}, with {executors}, left {missing} of {} tasks of the stage {} undone, in {TRIES} tries: {}",
            self.cluster.dispatch.address,
            self.tasks.len(),
            self.stage,
            why.full()
        );
        Err(Error::new(why.kind(), message))
    }
}
