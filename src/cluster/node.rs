//! The process that does tasks: finds the output, does what a task says, and writes the answer there.

use super::Site;
use super::look::Look;
use crate::error::{Error, Kind, Result};
use crate::nodes::Task;
use crate::read::Resources;
use crate::stores::Stores;
use crate::task::perform;
use crate::write::{Answers, Output};
use ballista_core::ids::new_instance_id;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Debug, Formatter};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;

/// A task that takes longer than this says every so often that it is being done.
const BEAT: Duration = Duration::from_secs(5);

/// A process that does tasks.
pub struct Node {
    /// What errors call the process.
    name: String,
    /// What a task may use of the machine.
    resources: Resources,
    /// The stores for each set of options: their connections are for all tasks.
    stores: Mutex<BTreeMap<BTreeMap<String, String>, Stores>>,
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
            resources,
            stores: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Does a task and writes the answer, unless it is there. An error that another attempt may not meet is returned; any other is the
    /// answer.
    pub async fn answer(&self, site: &Site, task: Task) -> Result<()> {
        let told = |e: Error| e.at(&self.name);
        self.try_answer(site, task).await.map_err(told)
    }

    async fn try_answer(&self, site: &Site, task: Task) -> Result<()> {
        let stores = self.stores(site);
        let answers = Output::open(&site.output, &stores)?.answers(&site.plan);
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
                with_beats(tokio::time::sleep(wait), &answers, &id, BEAT).await;
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

    fn stores(&self, site: &Site) -> Stores {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        let options = &site.options;
        let made = stores.entry(options.clone());
        made.or_insert_with(|| Stores::new(options.clone())).clone()
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
    let mut doing = std::pin::pin!(doing);
    let mut has_beaten = false;
    let done = loop {
        match tokio::time::timeout(every, &mut doing).await {
            Ok(done) => break done,
            Err(_) => has_beaten = true,
        }
        if let Err(e) = answers.beat(task, &attempt).await {
            tracing::warn!(task, "{}", e.full());
        }
    };
    if has_beaten && let Err(e) = answers.end(task, &attempt).await {
        tracing::warn!(task, "{}", e.full());
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::look::Looked;

    fn site(folder: &std::path::Path, mark: &str) -> Site {
        Site {
            output: folder.display().to_string(),
            plan: "plan".into(),
            options: BTreeMap::new(),
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
        let node = Node::new("here".into(), resources);
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
    async fn a_long_task_says_that_it_goes_on() {
        let store = std::sync::Arc::new(object_store::memory::InMemory::new());
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
