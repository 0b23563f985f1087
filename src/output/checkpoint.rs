//! What a run has finished before its end, so that the next run of the plan can go on from there if it dies.
//!
//! ```text
//! <output>/work/<plan>/<hash>      some pieces of work, each with its name
//! ```
//!
//! An object is written with one put and called by the hash of the plan and its bytes: one that is short, damaged, from another plan or of
//! another format is not what its name says, and is left alone. Runs of one plan at once write pieces that mean the same. Nothing depends on
//! these objects but time: what cannot be read is done again, and what cannot be written is not kept.

use crate::error::{Error, Result};
use crate::evidence::pass::checkpoints::Checkpoints;
use crate::output::layout::WORK;
use crate::output::place::Output;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// What an object begins with: the format of all that follows.
const FORMAT: &[u8] = b"gyre work 1\n";

/// The work of one plan, kept below its output.
pub struct Work {
    store: Arc<dyn ObjectStore>,
    folder: Path,
    shown: String,
    plan: String,
    every: Duration,
    /// Pieces are kept by the threads that do them, which wait for the store.
    runtime: Handle,
    known: BTreeMap<String, Place>,
    taken: AtomicUsize,
    waiting: Mutex<Waiting>,
    is_refused: AtomicBool,
}

struct Place {
    object: Path,
    bytes: Range<u64>,
    checksum: blake3::Hash,
}

/// Pieces that are not written yet.
struct Waiting {
    pieces: BTreeMap<String, Bytes>,
    since: Instant,
}

impl Output {
    /// The work of a plan, with what earlier runs of it have kept unless the run is to start `afresh`. Pieces that took `every` are written
    /// at once; smaller ones wait until so long has passed since the last were written.
    pub async fn work(&self, plan: &str, afresh: bool, every: Duration) -> Work {
        let folder = self.at(&[WORK, plan]);
        let mut work = Work {
            store: Arc::clone(&self.store),
            shown: self.show(&folder),
            folder,
            plan: plan.to_string(),
            every,
            runtime: Handle::current(),
            known: BTreeMap::new(),
            taken: AtomicUsize::new(0),
            waiting: Mutex::new(Waiting {
                pieces: BTreeMap::new(),
                since: Instant::now(),
            }),
            is_refused: AtomicBool::new(false),
        };
        if !afresh && let Err(e) = work.look(self).await {
            tracing::warn!("all work is done anew, because {}", e.full());
        }
        work
    }

    /// Removes the work of a plan, which is done, and that of others which nobody went on with for a day.
    pub async fn forget_work(&self, plan: &str) {
        let forget = async {
            for (name, _) in self
                .stale_work(Some(plan), crate::output::retention::DAY)
                .await?
            {
                self.remove(WORK, &name).await?;
            }
            Ok::<_, Error>(())
        };
        if let Err(e) = forget.await {
            tracing::warn!("{}; `gyre clean` will find it", e.full());
        }
    }

    /// The plans whose work is as old as that, or is done, and its bytes.
    pub(crate) async fn stale_work(
        &self,
        done: Option<&str>,
        older_than: SignedDuration,
    ) -> Result<Vec<(String, u64)>> {
        let all = self.inside(WORK).await?;
        let now = match all.keys().all(|plan| done == Some(plan)) {
            true => Timestamp::MIN,
            false => self.now().await?,
        };
        let is_stale = |plan: &str, newest: Timestamp| {
            done == Some(plan) || now.duration_since(newest) >= older_than
        };
        let all = all.into_iter();
        let stale = all.filter(|(plan, found)| is_stale(plan, found.newest));
        Ok(stale.map(|(plan, found)| (plan, found.bytes)).collect())
    }
}

impl Work {
    /// How many pieces were taken from earlier runs.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Finds out what there is. Everything is read once, one object at a time, and read again where it is wanted: it may be more than memory
    /// holds.
    async fn look(&mut self, output: &Output) -> Result<()> {
        for meta in output.list(&self.folder).await? {
            let object = meta.location;
            // Below it are parts, which tasks know by their names.
            if object.parts().count() != self.folder.parts().count() + 1 {
                continue;
            }
            let read = async { self.store.get(&object).await?.bytes().await };
            match read.await {
                Ok(bytes) => match self.pieces(&object, &bytes) {
                    Some(pieces) => self.known.extend(pieces),
                    None => tracing::info!("{} is damaged and not used", output.show(&object)),
                },
                Err(e) => tracing::info!("{} cannot be read: {e}", output.show(&object)),
            }
        }
        // The pieces of a piece are not asked for any more.
        let mut whole: Option<String> = None;
        self.known.retain(|name, _| {
            let is_part = whole.as_ref().is_some_and(|whole| is_part(name, whole));
            if !is_part {
                whole = Some(name.clone());
            }
            !is_part
        });
        if !self.known.is_empty() {
            let pieces = self.known.len();
            tracing::info!(pieces, "going on with the work in {}", self.shown);
        }
        Ok(())
    }

    /// The pieces in an object, if it is what its name says.
    fn pieces(&self, object: &Path, bytes: &Bytes) -> Option<Vec<(String, Place)>> {
        if object.filename() != Some(&self.name(std::slice::from_ref(bytes))) {
            return None;
        }
        let mut rest = bytes.strip_prefix(FORMAT)?;
        let mut pieces = Vec::new();
        while !rest.is_empty() {
            let ((name, len), piece) = postcard::take_from_bytes::<(String, u64)>(rest).ok()?;
            let start = (bytes.len() - piece.len()) as u64;
            let (piece, more) = piece.split_at_checked(usize::try_from(len).ok()?)?;
            rest = more;
            let place = Place {
                object: object.clone(),
                bytes: start..start + len,
                checksum: blake3::hash(piece),
            };
            pieces.push((name, place));
        }
        Some(pieces)
    }

    /// What an object of these bytes is called.
    fn name(&self, bytes: &[Bytes]) -> String {
        let mut hasher = blake3::Hasher::new();
        hasher.update(self.plan.as_bytes());
        for bytes in bytes {
            hasher.update(bytes);
        }
        hasher.finalize().to_hex().to_string()
    }

    fn write(&self, pieces: BTreeMap<String, Bytes>) -> object_store::Result<()> {
        let start = Instant::now();
        let n_pieces = pieces.len();
        let mut chunks = vec![Bytes::from_static(FORMAT)];
        for (name, piece) in pieces {
            let head = postcard::to_stdvec(&(name, piece.len() as u64));
            let head = head.map_err(|e| object_store::Error::Generic {
                store: "work",
                source: e.into(),
            })?;
            chunks.extend([Bytes::from(head), piece]);
        }
        let object = self.folder.clone().join(self.name(&chunks));
        let payload = PutPayload::from_iter(chunks);
        let bytes = payload.content_length();
        self.runtime.block_on(self.store.put(&object, payload))?;
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(pieces = n_pieces, bytes, seconds, "kept finished work");
        Ok(())
    }
}

/// Whether one name is that of a piece of another.
fn is_part(name: &str, whole: &str) -> bool {
    let rest = name.strip_prefix(whole);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

impl Checkpoints for Work {
    fn has(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    fn find(&self, name: &str) -> Option<Bytes> {
        let place = self.known.get(name)?;
        let range = place.bytes.clone();
        let read = self.store.get_range(&place.object, range);
        match self.runtime.block_on(read) {
            Ok(bytes) if blake3::hash(&bytes) == place.checksum => {
                self.taken.fetch_add(1, Ordering::Relaxed);
                Some(bytes)
            }
            Ok(_) => {
                tracing::warn!(name, "is done again, because it is not what was kept");
                None
            }
            Err(e) => {
                tracing::warn!(name, "is done again, because it cannot be read: {e}");
                None
            }
        }
    }

    fn keep(&self, name: &str, took: Duration, piece: Vec<u8>) {
        if self.is_refused.load(Ordering::Relaxed) {
            return;
        }
        let pieces = {
            let waiting = self.waiting.lock();
            let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
            let parts = waiting.pieces.range(format!("{name}/")..);
            let parts = parts.map(|(part, _)| part);
            let parts: Vec<String> = parts.take_while(|p| is_part(p, name)).cloned().collect();
            for part in parts {
                waiting.pieces.remove(&part);
            }
            waiting.pieces.insert(name.to_string(), piece.into());
            if took < self.every && waiting.since.elapsed() < self.every {
                return;
            }
            waiting.since = Instant::now();
            std::mem::take(&mut waiting.pieces)
        };
        if let Err(e) = self.write(pieces) {
            self.is_refused.store(true, Ordering::Relaxed);
            tracing::warn!("finished work cannot be kept in {}: {e}", self.shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;
    use object_store::memory::InMemory;
    use tokio::runtime::Runtime;

    const PLAN: &str = "0123456789abcdef";
    const HOUR: Duration = Duration::from_secs(3600);

    struct Lake {
        store: InMemory,
        runtime: Runtime,
    }

    impl Lake {
        fn new() -> Lake {
            let runtime = tokio::runtime::Builder::new_current_thread().build();
            Lake {
                store: InMemory::new(),
                runtime: runtime.expect("a runtime"),
            }
        }

        fn output(&self) -> Output {
            Output::in_store(Arc::new(self.store.clone()), "out".into())
        }

        fn work(&self, plan: &str, afresh: bool, every: Duration) -> Work {
            let output = self.output();
            self.runtime.block_on(output.work(plan, afresh, every))
        }

        fn objects(&self) -> Vec<Path> {
            let list = self.store.list(None).map(|meta| meta.expect("an object"));
            let list = list.map(|meta| meta.location).collect();
            self.runtime.block_on(list)
        }

        fn bytes(&self, object: &Path) -> Vec<u8> {
            let get = async { self.store.get(object).await?.bytes().await };
            self.runtime.block_on(get).expect("an object").to_vec()
        }

        fn put(&self, object: &Path, bytes: Vec<u8>) {
            let put = self.store.put(object, bytes.into());
            self.runtime.block_on(put).expect("a store");
        }
    }

    fn keep(work: &Work, names: &[&str]) {
        for name in names {
            work.keep(name, Duration::ZERO, name.as_bytes().to_vec());
        }
    }

    fn known(work: &Work, names: &[&str]) -> Vec<bool> {
        let find = |name: &&str| {
            work.find(name)
                .map(|bytes| assert_eq!(bytes, name.as_bytes()))
        };
        names.iter().map(|name| find(name).is_some()).collect()
    }

    #[test]
    fn pieces_are_found_by_the_next_run_of_the_plan() {
        let lake = Lake::new();
        let work = lake.work(PLAN, false, Duration::ZERO);
        keep(&work, &["a/b", "a/c", "a", "ab", "d/e"]);
        // A run sees what was there when it began.
        assert_eq!((known(&work, &["a"]), work.taken()), (vec![false], 0));
        let next = lake.work(PLAN, false, Duration::ZERO);
        let names = ["a", "ab", "d/e", "a/b", "d"];
        assert_eq!(known(&next, &names), [true, true, true, false, false]);
        assert!(next.has("a") && !next.has("a/b"));
        assert_eq!(next.taken(), 3);
        assert_eq!(known(&lake.work(PLAN, true, HOUR), &["a"]), [false]);
        assert_eq!(known(&lake.work("another", false, HOUR), &["a"]), [false]);
    }

    #[test]
    fn small_pieces_wait_for_others() {
        let lake = Lake::new();
        let work = lake.work(PLAN, false, HOUR);
        keep(&work, &["a/b", "a", "c/d"]);
        assert!(lake.objects().is_empty());
        work.keep("e", HOUR, b"e".to_vec());
        assert_eq!(lake.objects().len(), 1);
        let next = lake.work(PLAN, false, HOUR);
        let names = ["a", "c/d", "e", "a/b"];
        assert_eq!(known(&next, &names), [true, true, true, false]);
        // The first of them is not written with its part, which was done with.
        let text = String::from_utf8_lossy(&lake.bytes(&lake.objects()[0])).to_string();
        assert!(text.contains("c/d") && !text.contains("a/b"), "{text:?}");
    }

    #[test]
    fn what_is_damaged_is_not_used() {
        let lake = Lake::new();
        keep(&lake.work(PLAN, false, Duration::ZERO), &["a"]);
        let first = lake.objects().remove(0);
        keep(&lake.work(PLAN, false, Duration::ZERO), &["b"]);
        let whole = lake.bytes(&first);
        let mut flipped = whole.clone();
        *flipped.last_mut().expect("a byte") ^= 1;
        let longer = [&whole[..], b"x"].concat();
        for damaged in [
            whole[..whole.len() - 1].to_vec(),
            Vec::new(),
            flipped,
            longer,
        ] {
            lake.put(&first, damaged);
            let work = lake.work(PLAN, false, HOUR);
            assert_eq!(known(&work, &["a", "b"]), [false, true]);
        }
        lake.put(&first, whole.clone());
        // Under the name of another plan, and in a format to come.
        let name = first.filename().expect("a name");
        lake.put(
            &Path::from(format!("out/work/another/{name}")),
            whole.clone(),
        );
        assert_eq!(known(&lake.work("another", false, HOUR), &["a"]), [false]);
        let later = Bytes::from([b"gyre work 2\n", &whole[FORMAT.len()..]].concat());
        let work = lake.work("a-third", false, HOUR);
        let name = work.name(std::slice::from_ref(&later));
        lake.put(&work.folder.clone().join(name), later.to_vec());
        assert_eq!(known(&lake.work("a-third", false, HOUR), &["a"]), [false]);
        assert_eq!(
            known(&lake.work(PLAN, false, HOUR), &["a", "b"]),
            [true, true]
        );
    }

    #[test]
    fn work_that_is_done_or_old_goes() {
        let lake = Lake::new();
        for plan in ["done", "young"] {
            keep(&lake.work(plan, false, Duration::ZERO), &["a", "b"]);
        }
        let output = lake.output();
        lake.runtime.block_on(output.forget_work("done"));
        assert!(
            lake.objects()
                .iter()
                .all(|o| o.as_ref().contains("/young/"))
        );
        assert_eq!(lake.objects().len(), 2);
        for (older_than, left) in [
            (SignedDuration::from_hours(1), 2),
            (SignedDuration::ZERO, 0),
        ] {
            let asked = crate::output::retention::Cleaning {
                keep: 2,
                older_than,
                dry_run: false,
            };
            let cleaned = lake.runtime.block_on(output.clean(&asked));
            let cleaned = cleaned.expect("a store");
            assert_eq!(cleaned.work.len(), usize::from(left == 0));
            assert_eq!(lake.objects().len(), left);
        }
    }
}
