//! Requests tasks from a cluster until it has all answers.
//!
//! Tasks that already have an answer are not requested. The others go to the scheduler as a job. If
//! a job ends without all answers, because of a failure, a restart of the scheduler, or a minute
//! without any sign of a task, the client submits the missing tasks as another job. Three jobs in a
//! row without an answer, while no executor works on a task, are an error. So is a scheduler that
//! does not answer for a minute.

use crate::cluster::address::Address;
use crate::cluster::ballista::operator::{plan, unwrapped};
use crate::cluster::ballista::probe::{Probe, ProbeAnswer};
use crate::cluster::ballista::scheduler_client::{JobState, SchedulerClient};
use crate::cluster::ballista::worker::BEAT;
use crate::cluster::ballista::{AnswerSite, MESSAGE_BYTES, PATIENCE};
use crate::error::{Error, Kind, Result, counted};
use crate::output::place::Output;
use crate::output::task_answers::{Answers, Attempt};
use crate::run::workers::nodes::{Nodes, Task};
use crate::store::Stores;
use ballista_core::ids::new_instance_id;
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// Number of jobs in a row without an answer that is an error.
const MAX_FRUITLESS: usize = 3;

/// Upper limit of attempts of one task that never end. Such a task may kill its executors.
const MAX_ATTEMPTS: usize = 5;

/// How long to wait for a first executor.
const NO_EXECUTORS: Duration = Duration::from_secs(20);

/// How long to wait for the answers of all executors to probes. Busy executors do not answer.
const PROBE: Duration = Duration::from_secs(3);

/// The shortest and the longest pause between checks of a job. A pause grows while nothing changes.
const POLL: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(500)];

/// The shortest pause between listings of the answers.
const LIST: Duration = Duration::from_secs(1);

/// Number of answers that are read at once.
const READS: usize = 16;

/// Upper limits of a job, which leave room for task IDs in a message.
const JOB_BYTES: usize = MESSAGE_BYTES / 2;
const JOB_TASKS: usize = 10_000;

/// A cluster whose executors see an output.
pub struct Cluster {
    scheduler: SchedulerClient,
    site: AnswerSite,
    answers: Answers,
    executors: Vec<ProbeAnswer>,
    /// IDs of jobs that may not have ended.
    jobs: Mutex<BTreeSet<String>>,
}

impl Cluster {
    /// Connects to a cluster for the tasks of a plan, whose answers go below an output, and probes
    /// the executors.
    ///
    /// # Errors
    /// If no scheduler answers, no executor comes, or an executor has another version or does not
    /// see the output.
    pub async fn connect(
        address: &Address,
        output: &str,
        plan: &str,
        stores: &Stores,
    ) -> Result<Cluster> {
        let scheduler = SchedulerClient::connect(address).await?;
        let place = stores.open(output)?;
        let answers = Output::open(output, stores)?.answers(plan);
        let mark = new_instance_id();
        answers.put_mark(&mark).await?;
        let mut cluster = Cluster {
            site: AnswerSite {
                output: match place.folder {
                    Some(folder) => folder.display().to_string(),
                    None => output.to_string(),
                },
                plan: plan.to_string(),
                options: stores.shared(),
                mark,
            },
            scheduler,
            answers,
            executors: Vec::new(),
            jobs: Mutex::default(),
        };
        match cluster.probe().await {
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

    /// The executors that have answered a probe.
    pub fn executors(&self) -> &[ProbeAnswer] {
        &self.executors
    }

    /// Removes all answers of earlier runs of the plan.
    ///
    /// # Errors
    /// If the store fails.
    pub(crate) async fn forget(&self) -> Result<()> {
        self.answers.forget().await
    }

    /// Cancels all jobs of this client and removes its mark. Tasks under way run to their end, and
    /// the next run finds their answers.
    pub async fn leave(&self) {
        let leave = async {
            let jobs = std::mem::take(&mut *self.jobs());
            for job in jobs {
                self.scheduler.cancel(&job).await?;
            }
            self.scheduler.close().await?;
            self.answers.remove_mark(&self.site.mark).await
        };
        match timeout(PROBE, leave).await {
            Ok(Ok(())) => (),
            Ok(Err(e)) => tracing::warn!("{}; its executors may continue for a while", e.full()),
            Err(_) => tracing::warn!("{} does not answer", self.scheduler.address),
        }
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn submit(&self, name: &str, tasks: &[Task]) -> Result<String> {
        let plan = plan(&self.site, tasks)?;
        let job = self.scheduler.submit(name, plan).await?;
        tracing::info!(job, stage = name, tasks = tasks.len(), "tasks handed in");
        self.jobs().insert(job.clone());
        Ok(job)
    }

    /// Waits for a first executor and probes all executors. There are many probes, and each waits
    /// before its answer, so that every idle executor gets some.
    async fn probe(&self) -> Result<Vec<ProbeAnswer>> {
        let start = Instant::now();
        let expected = loop {
            match self.scheduler.executors().await? {
                0 if start.elapsed() < NO_EXECUTORS => sleep(POLL[1]).await,
                0 => {
                    let address = &self.scheduler.address;
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
        let probe = |number: usize| Probe {
            nonce: nonce.clone(),
            number: number as u32,
            wait_millis: 200,
        };
        let tasks: Result<Vec<Task>> = (0..64 * expected).map(|n| probe(n).task()).collect();
        let tasks = tasks?;
        let ids: BTreeSet<String> = tasks.iter().map(Task::id).collect();
        let job = self.submit("probe", &tasks).await?;
        let mut executors = BTreeMap::new();
        let mut read = BTreeSet::new();
        let start = Instant::now();
        let last = PATIENCE.min(NO_EXECUTORS);
        while executors.len() < expected && (executors.is_empty() || start.elapsed() < PROBE) {
            sleep(POLL[1] / 5).await;
            let state = self.scheduler.state(&job).await?;
            let done = self.answers.done().await?;
            for id in done.into_iter().filter(|id| ids.contains(id)) {
                if !read.contains(&id)
                    && let Some(answer) = self.answers.read(&id).await?
                {
                    let answer = ProbeAnswer::read(&answer?)?;
                    executors.insert(answer.name.clone(), answer);
                    read.insert(id);
                }
            }
            match state {
                JobState::Queued | JobState::Running if start.elapsed() < last => (),
                JobState::Queued | JobState::Running => {
                    let (address, last) = (&self.scheduler.address, last.as_secs());
                    let message = format!(
                        "no executor of the cluster at {address} answered within {last} seconds"
                    );
                    return Err(Error::new(Kind::Resources, message));
                }
                JobState::Failed(message) => return Err(self.failure(&message)),
                JobState::Done => break,
                JobState::Unknown => return Err(self.restarted()),
            }
        }
        self.end(&job).await;
        Ok(executors.into_values().collect())
    }

    /// The error of a failed job.
    fn failure(&self, message: &str) -> Error {
        unwrapped(message).unwrap_or_else(|| {
            let text = format!("a job failed on the cluster at {}", self.scheduler.address);
            Error::with_source(Kind::Resources, text, message.to_string())
        })
    }

    fn restarted(&self) -> Error {
        let message = format!("the scheduler at {} restarted", self.scheduler.address);
        Error::new(Kind::Store, message)
    }

    /// Cancels a job: no more of its tasks begin.
    async fn end(&self, job: &str) {
        if self.jobs().remove(job)
            && let Err(e) = self.scheduler.cancel(job).await
        {
            tracing::warn!("{}", e.full());
        }
    }
}

impl Nodes for Cluster {
    fn slots(&self) -> usize {
        self.executors.iter().map(|executor| executor.threads).sum()
    }

    fn run<'a>(
        &'a self,
        stage: &'static str,
        tasks: Vec<Task>,
        advance: &'a (dyn Fn(usize) + Sync),
    ) -> BoxFuture<'a, Result<Vec<Result<Vec<u8>>>>> {
        let round = Round::new(self, stage, tasks);
        Box::pin(round.run(advance))
    }

    fn forget<'a>(&'a self, tasks: &'a [Task]) -> BoxFuture<'a, Result<()>> {
        Box::pin(self.answers.remove_all(tasks.iter().map(Task::id)))
    }
}

/// Tasks that are requested until all are answered.
struct Round<'a> {
    cluster: &'a Cluster,
    stage: &'static str,
    /// Distinct tasks by ID.
    tasks: BTreeMap<String, Task>,
    /// The ID of each task as requested.
    order: Vec<String>,
    answers: BTreeMap<String, Result<Vec<u8>>>,
    job: Option<Job>,
    /// The last heartbeat of each long attempt, and when this client saw it.
    running: BTreeMap<Attempt, (Timestamp, Instant)>,
    /// When an answer or a heartbeat last came.
    last_sign: Instant,
    /// When the scheduler last answered.
    reached: Instant,
    listed: Option<Instant>,
    /// Number of jobs in a row without an answer.
    fruitless: usize,
}

struct Job {
    id: String,
    tasks: Vec<String>,
    state: JobState,
    has_answers: bool,
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
            last_sign: now,
            reached: now,
            listed: None,
            fruitless: 0,
        }
    }

    async fn run(mut self, advance: &(dyn Fn(usize) + Sync)) -> Result<Vec<Result<Vec<u8>>>> {
        let mut wait = POLL[0];
        loop {
            let is_first = self.listed.is_none();
            // All answers of a job exist before the job is done, so its state is read first.
            let over = self.poll().await?;
            let new = self.collect(over.is_some()).await?;
            if new > 0 {
                advance(new);
                wait = POLL[0];
            }
            if self.answers.len() == self.tasks.len() {
                break;
            }
            if let Some(why) = over.or_else(|| self.silence()) {
                self.give_up(why).await?;
            }
            if is_first {
                // Missing tasks are submitted at once.
                continue;
            }
            sleep(wait).await;
            wait = (wait * 5 / 4).min(POLL[1]);
        }
        if let Some(job) = self.job.take() {
            self.cluster.end(&job.id).await;
        }
        // Tasks of the same bytes share one answer.
        let answer = |id: &String| match &self.answers[id] {
            Ok(bytes) => Ok(bytes.clone()),
            Err(e) => Err(Error::restored(e.kind(), e.full())),
        };
        Ok(self.order.iter().map(answer).collect())
    }

    /// Submits the missing tasks, or reads the state of their job. Returns an error if the job
    /// brings no more answers.
    async fn poll(&mut self) -> Result<Option<Error>> {
        let cluster = self.cluster;
        let state = match &self.job {
            None if self.listed.is_none() => return Ok(None),
            None => self.submit_missing().await.map(|()| JobState::Queued),
            Some(job) => cluster.scheduler.state(&job.id).await,
        };
        let now = Instant::now();
        match state {
            Ok(state) => {
                self.reached = now;
                if let Some(job) = self.job.as_mut().filter(|job| job.state != state) {
                    self.last_sign = now;
                    job.state = state.clone();
                }
                Ok(match state {
                    JobState::Queued | JobState::Running => None,
                    JobState::Done => {
                        let folder = cluster.answers.shown();
                        let message = format!("the answers of done tasks are not in {folder}");
                        Some(Error::new(Kind::Store, message))
                    }
                    JobState::Failed(message) => Some(cluster.failure(&message)),
                    JobState::Unknown => Some(cluster.restarted()),
                })
            }
            Err(e) if e.kind() != Kind::Store => Err(e),
            Err(e) if self.reached.elapsed() > PATIENCE => {
                let message = format!("{}, for {} seconds", e.full(), PATIENCE.as_secs());
                Err(Error::new(e.kind(), message))
            }
            Err(e) => {
                tracing::warn!("{}", e.full());
                // Answers may still come: executors need no scheduler to finish their tasks.
                self.last_sign = now;
                Ok(None)
            }
        }
    }

    async fn submit_missing(&mut self) -> Result<()> {
        let mut bytes = 0;
        let missing = self.tasks.iter().filter(|(id, _)| self.is_missing(id));
        let mut missing: Vec<_> = missing.collect();
        if self.fruitless % 2 == 1 {
            // A task that fails on every executor must not keep the others from their turn.
            missing.reverse();
        }
        // Tasks under way, for any job, come last.
        missing.sort_by_key(|(id, _)| self.is_under_way(id));
        let some = missing.into_iter().take(JOB_TASKS).take_while(|(_, task)| {
            // The first task goes with any size.
            let is_first = bytes == 0;
            bytes += task.bytes.len() + 500;
            is_first || bytes <= JOB_BYTES
        });
        let (tasks, names): (Vec<Task>, _) =
            some.map(|(id, task)| (task.clone(), id.clone())).unzip();
        let id = self.cluster.submit(self.stage, &tasks).await?;
        self.last_sign = Instant::now();
        self.job = Some(Job {
            id,
            tasks: names,
            state: JobState::Queued,
            has_answers: false,
        });
        Ok(())
    }

    /// Reads new answers and returns their number. Lists them at most once per [`LIST`], or when a
    /// job is over.
    async fn collect(&mut self, is_over: bool) -> Result<usize> {
        if !is_over && self.listed.is_some_and(|listed| listed.elapsed() < LIST) {
            return Ok(0);
        }
        let answers = &self.cluster.answers;
        let done = answers.done().await?;
        let new = done.into_iter().filter(|id| self.is_missing(id));
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
                None => tracing::warn!(task = id, "the answer is damaged; the task is done again"),
            }
        }
        let running = answers.running().await?;
        let now = Instant::now();
        let before = std::mem::take(&mut self.running);
        let beats = running.into_iter().map(|(attempt, beat)| {
            let same = before.get(&attempt).filter(|(before, _)| *before == beat);
            let seen = same.map_or(now, |(_, seen)| *seen);
            (attempt, (beat, seen))
        });
        self.running = beats.collect();
        if n_new > 0 || self.running != before {
            self.last_sign = now;
        }
        if let Some(job) = self.job.as_mut() {
            job.has_answers |= n_new > 0;
        }
        self.check_attempts()?;
        self.listed = Some(Instant::now());
        Ok(n_new)
    }

    /// Fails if one task was begun too often: it may kill its executors, and must not kill all.
    fn check_attempts(&self) -> Result<()> {
        let mut attempts: BTreeMap<&str, usize> = BTreeMap::new();
        for (task, _) in self.running.keys() {
            if self.is_missing(task) {
                *attempts.entry(task).or_default() += 1;
            }
        }
        match attempts.into_iter().find(|(_, n)| *n > MAX_ATTEMPTS) {
            None => Ok(()),
            Some((task, n)) => {
                let message = format!(
                    "a task of the stage {} was begun {n} times and never ended: its executors died, maybe for lack of memory (task {task}, {})",
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

    /// Whether a recent heartbeat shows that an executor works on a task.
    fn is_under_way(&self, task: &str) -> bool {
        let first = (task.to_string(), String::new());
        let attempts = self.running.range(first..);
        let mut own = attempts.take_while(|((of, _), _)| of == task);
        own.any(|(_, (_, seen))| seen.elapsed() < 3 * BEAT)
    }

    /// An error if there was no answer and no heartbeat for too long.
    fn silence(&self) -> Option<Error> {
        (self.job.is_some() && self.last_sign.elapsed() > PATIENCE).then(|| {
            let patience = PATIENCE.as_secs();
            let message = format!("no task gave a sign of life for {patience} seconds");
            Error::new(Kind::Resources, message)
        })
    }

    /// Ends a job that brings no more answers, because of `why`. Another job may follow.
    ///
    /// # Errors
    /// If another job would not help.
    async fn give_up(&mut self, why: Error) -> Result<()> {
        let Some(job) = self.job.take() else {
            return Ok(());
        };
        self.cluster.end(&job.id).await;
        let is_answered = |id: &String| self.answers.contains_key(id);
        if job.tasks.iter().all(is_answered) {
            return Ok(());
        }
        let (answers, mark) = (&self.cluster.answers, &self.cluster.site.mark);
        if why.kind() == Kind::Spec && !answers.has_mark(mark).await? {
            let folder = answers.shown();
            let message = format!("{folder} was removed, maybe by another run of the plan");
            return Err(Error::new(Kind::Conflict, message));
        }
        // Other executors may succeed, but some would always fail so.
        if matches!(why.kind(), Kind::Spec | Kind::Conflict | Kind::Bug) {
            return Err(why);
        }
        let missing = self.tasks.len() - self.answers.len();
        tracing::warn!(
            job = job.id,
            missing,
            "submits the missing tasks again, because {}",
            why.full()
        );
        let mut left = self.tasks.keys().filter(|id| self.is_missing(id));
        let is_under_way = left.any(|id| self.is_under_way(id));
        self.fruitless = if job.has_answers || is_under_way {
            0
        } else {
            self.fruitless + 1
        };
        if self.fruitless < MAX_FRUITLESS {
            sleep(Duration::from_secs(self.fruitless as u64)).await;
            return Ok(());
        }
        let executors = match self.cluster.scheduler.executors().await {
            Ok(n) => counted(n, "executor"),
            Err(_) => "a scheduler that does not answer".into(),
        };
        let message = format!(
            "the cluster at {}, with {executors}, left {missing} of {} tasks of the stage {} undone, in {MAX_FRUITLESS} tries: {}",
            self.cluster.scheduler.address,
            self.tasks.len(),
            self.stage,
            why.full()
        );
        Err(Error::new(why.kind(), message))
    }
}
