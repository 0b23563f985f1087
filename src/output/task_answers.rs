//! The objects below the output through which clients and executors exchange task results.
//!
//! ```text
//! <output>/work/<plan>/done/<task>                the result of a task
//! <output>/work/<plan>/running/<task>/<attempt>   rewritten regularly while a long task runs
//! <output>/work/<plan>/marks/<mark>               written by a client for executors to find
//! ```
//!
//! An answer is one put of bytes that contain their checksum; repeating a task writes the same
//! bytes. An attempt that ends, with or without an error, removes its object below `running`, so an
//! old object belongs to a dead process.

use crate::error::{Error, Kind, Result};
use crate::output::made::WorkFolder;
use crate::output::place::Output;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// First bytes of an answer. Answers of another version are ignored.
const FORMAT: &str = concat!("gyre ", env!("CARGO_PKG_VERSION"), " answer 1\n");

const DONE: &str = "done";
const RUNNING: &str = "running";
const MARKS: &str = "marks";

/// The answers to the tasks of one plan.
#[derive(Clone)]
pub struct Answers {
    folder: WorkFolder,
    shown: String,
}

/// A serialised error of a task.
#[derive(Serialize, Deserialize)]
struct Failed {
    kind: Kind,
    message: String,
}

/// A task and the name of one attempt at it.
pub type Attempt = (String, String);

/// Objects that are to be removed.
type Paths = BoxStream<'static, object_store::Result<Path>>;

/// The attempts of long tasks, with the time of their last heartbeat.
pub(crate) type Running = BTreeMap<Attempt, Timestamp>;

impl Output {
    /// The answers to the tasks of a plan.
    pub(crate) fn answers(&self, plan: &str) -> Answers {
        let folder = self.work_folder(plan);
        Answers {
            shown: self.show(&folder.path),
            folder,
        }
    }
}

impl Answers {
    /// The folder as the user would write it.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    fn at(&self, parts: &[&str]) -> Path {
        let folder = self.folder.path.clone();
        parts.iter().fold(folder, |path, part| path.join(*part))
    }

    fn failed(&self, what: &str, e: object_store::Error) -> Error {
        Error::store(format!("{}: cannot be {what}", self.shown), e)
    }

    /// The tasks that have an answer.
    pub(crate) async fn done(&self) -> Result<BTreeSet<String>> {
        let name = |meta: ObjectMeta| meta.location.filename().unwrap_or_default().to_string();
        let done = self.list(DONE).await?.into_iter();
        Ok(done.map(name).collect())
    }

    async fn list(&self, place: &str) -> Result<Vec<ObjectMeta>> {
        let place = self.at(&[place]);
        let listed = self.folder.store.list(Some(&place)).try_collect().await;
        listed.map_err(|e| self.failed("listed", e))
    }

    /// The attempts that have sent a heartbeat and have not ended.
    pub(crate) async fn running(&self) -> Result<Running> {
        let attempt = |meta: ObjectMeta| {
            let mut names = meta.location.as_ref().rsplit('/');
            let (attempt, task) = (names.next()?, names.next()?);
            let millis = meta.last_modified.timestamp_millis();
            let last_seen = Timestamp::from_millisecond(millis).ok()?;
            Some(((task.to_string(), attempt.to_string()), last_seen))
        };
        let running = self.list(RUNNING).await?.into_iter();
        Ok(running.filter_map(attempt).collect())
    }

    /// The result of a task, or `None` if it is missing or damaged.
    pub(crate) async fn read(&self, task: &str) -> Result<Option<Result<Vec<u8>>>> {
        let path = self.at(&[DONE, task]);
        let read = async { self.folder.store.get(&path).await?.bytes().await };
        match read.await {
            Ok(bytes) => Ok(unframed(&bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(e) => Err(self.failed("read", e)),
        }
    }

    /// Writes the result of a task.
    pub(crate) async fn write(&self, task: &str, answer: Result<Vec<u8>>) -> Result<()> {
        self.put(&[DONE, task], framed(answer)?).await
    }

    async fn put(&self, parts: &[&str], bytes: Vec<u8>) -> Result<()> {
        let put = self.folder.put(&self.at(parts), bytes.into()).await;
        put.map_err(|e| self.failed("written", e))
    }

    /// Removes the answers to some tasks.
    pub(crate) async fn remove_all(&self, tasks: impl Iterator<Item = String>) -> Result<()> {
        let paths: Vec<_> = tasks.map(|task| Ok(self.at(&[DONE, &task]))).collect();
        let gone = self.delete(stream::iter(paths).boxed());
        match gone.await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed("cleaned", e)),
        }
    }

    /// Removes all answers, so that every task is repeated.
    pub(crate) async fn forget(&self) -> Result<()> {
        let all = self.folder.store.list(Some(&self.at(&[DONE])));
        let gone = self.delete(all.map_ok(|meta| meta.location).boxed());
        gone.await.map_err(|e| self.failed("cleaned", e))
    }

    async fn delete(&self, paths: Paths) -> object_store::Result<()> {
        let gone = self.folder.store.delete_stream(paths);
        gone.try_for_each(async |_| Ok(())).await
    }

    /// Writes the heartbeat of an attempt.
    pub(crate) async fn beat(&self, task: &str, attempt: &str) -> Result<()> {
        self.put(&[RUNNING, task, attempt], attempt.into()).await
    }

    /// Removes the heartbeat of an attempt.
    pub(crate) async fn end(&self, task: &str, attempt: &str) -> Result<()> {
        self.remove(&self.at(&[RUNNING, task, attempt])).await
    }

    async fn remove(&self, path: &Path) -> Result<()> {
        match self.folder.store.delete(path).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(e) => Err(self.failed("cleaned", e)),
        }
    }

    /// Writes a mark.
    pub(crate) async fn put_mark(&self, mark: &str) -> Result<()> {
        self.put(&[MARKS, mark], mark.into()).await
    }

    /// Whether a mark exists.
    pub(crate) async fn has_mark(&self, mark: &str) -> Result<bool> {
        match self.folder.store.head(&self.at(&[MARKS, mark])).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(false),
            Err(e) => Err(self.failed("read", e)),
        }
    }

    /// Removes a mark.
    pub(crate) async fn remove_mark(&self, mark: &str) -> Result<()> {
        self.remove(&self.at(&[MARKS, mark])).await
    }
}

fn framed(answer: Result<Vec<u8>>) -> Result<Vec<u8>> {
    let answer = answer.map_err(|e| Failed {
        kind: e.kind(),
        message: e.full(),
    });
    let payload = postcard::to_stdvec(&answer)
        .map_err(|e| Error::bug(format!("an answer cannot be serialised: {e}")))?;
    let checksum = blake3::hash(&payload);
    Ok([FORMAT.as_bytes(), checksum.as_bytes(), &payload].concat())
}

/// The answer in a frame, or `None` if it is damaged or of another version.
fn unframed(bytes: &[u8]) -> Option<Result<Vec<u8>>> {
    let rest = bytes.strip_prefix(FORMAT.as_bytes())?;
    let (checksum, payload) = rest.split_first_chunk::<{ blake3::OUT_LEN }>()?;
    if blake3::hash(payload) != blake3::Hash::from_bytes(*checksum) {
        return None;
    }
    let answer: Result<Vec<u8>, Failed> = postcard::from_bytes(payload).ok()?;
    Some(answer.map_err(|failed| Error::restored(failed.kind, failed.message)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::memory::InMemory;
    use std::sync::Arc;

    fn answers() -> (InMemory, Answers) {
        let store = InMemory::new();
        let output = Output::in_store(Arc::new(store.clone()), "out".into());
        (store, output.answers("plan"))
    }

    #[tokio::test]
    async fn answers_come_back_as_they_were() {
        let (_, answers) = answers();
        for (task, answer) in [
            ("a", Ok(vec![1, 2, 3])),
            ("b", Err(Error::input("no rows"))),
        ] {
            answers.write(task, answer).await.expect("a store");
        }
        let done = answers.done().await.expect("a store");
        assert_eq!(done.into_iter().collect::<Vec<_>>(), ["a", "b"]);
        let read = async |task| answers.read(task).await.expect("a store");
        assert!(read("c").await.is_none());
        let a = read("a").await.expect("an answer").expect("no error");
        assert_eq!(a, [1, 2, 3]);
        let b = read("b").await.expect("an answer").expect_err("an error");
        assert_eq!((b.kind(), b.full().as_str()), (Kind::Input, "no rows"));
        answers.forget().await.expect("a store");
        assert!(read("a").await.is_none() && read("b").await.is_none());
    }

    #[tokio::test]
    async fn damaged_answers_are_ignored() {
        let (store, answers) = answers();
        let whole = framed(Ok(vec![7; 40])).expect("bytes");
        assert!(unframed(&whole).is_some());
        for at in 0..whole.len() {
            let mut flipped = whole.clone();
            flipped[at] ^= 1;
            assert!(unframed(&flipped).is_none(), "byte {at}");
            assert!(unframed(&whole[..at]).is_none(), "{at} bytes");
        }
        let path = answers.at(&[DONE, "a"]);
        let put = store.put(&path, whole[..9].to_vec().into()).await;
        put.expect("a store");
        assert!(answers.read("a").await.expect("a store").is_none());
    }

    #[tokio::test]
    async fn attempts_are_listed_until_they_end() {
        let (_, answers) = answers();
        for (task, attempt) in [("a", "1"), ("a", "2"), ("b", "3")] {
            answers.beat(task, attempt).await.expect("a store");
        }
        for _ in 0..2 {
            answers.end("a", "1").await.expect("a store");
        }
        let running = answers.running().await.expect("a store");
        let names: Vec<_> = running.into_keys().collect();
        let name = |task: &str, attempt: &str| (task.to_string(), attempt.to_string());
        assert_eq!(names, [name("a", "2"), name("b", "3")]);
    }
}
