//! Checkpoints: finished work that the next run of the same plan can reuse if this run dies.
//!
//! ```text
//! <output>/work/<plan>/<hash>      named pieces of finished work
//! ```
//!
//! Each object is written with one put. Its name is the hash of the plan and of its bytes, so an
//! object that is truncated, damaged, from another plan or in another format does not match its
//! name and is ignored. Concurrent runs of one plan write equivalent pieces. These objects only
//! save time: work that cannot be read is repeated, and work that cannot be written is not kept.

use crate::error::Result;
use crate::evidence::pass::checkpoints::Checkpoints;
use crate::memory;
use crate::output::made::WorkFolder;
use crate::output::place::Output;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// First bytes of an object: the format of the rest.
const FORMAT: &[u8] = b"gyre work 3\n";

/// How often finished work is checkpointed. A run that is stopped repeats at most about this much,
/// and a run that takes less time writes no checkpoint.
pub const KEEP_EVERY: Duration = Duration::from_secs(1);

/// The checkpoints of one plan, stored below its output.
pub struct Checkpoint {
    folder: WorkFolder,
    shown: String,
    plan: String,
    every: Duration,
    /// The threads that finish pieces block on the store through this handle.
    runtime: Handle,
    known: BTreeMap<String, PiecePlace>,
    taken: AtomicUsize,
    waiting: Mutex<Waiting>,
    is_refused: AtomicBool,
}

struct PiecePlace {
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
    /// Opens the checkpoints of a plan. Pieces of earlier runs are reused unless `afresh`. A piece
    /// whose work took at least `every` is written at once; smaller pieces wait until `every` has
    /// passed since the last write.
    pub(crate) async fn work(&self, plan: &str, afresh: bool, every: Duration) -> Checkpoint {
        let folder = self.work_folder(plan);
        let mut work = Checkpoint {
            shown: self.show(&folder.path),
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
        if !afresh && let Err(e) = work.probe(self).await {
            tracing::warn!("no checkpoint is reused: {}", e.full());
        }
        work
    }
}

impl Checkpoint {
    /// Number of pieces taken from earlier runs.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Lists the existing pieces. Every object is read once to check it, one at a time, and read
    /// again when a piece is wanted: all of them together may exceed memory.
    async fn probe(&mut self, output: &Output) -> Result<()> {
        for meta in output.list(&self.folder.path).await? {
            let object = meta.location;
            // Sub-folders hold the parts of tasks, which are found by name.
            if object.parts().count() != self.folder.path.parts().count() + 1 {
                continue;
            }
            // A piece that needs more memory cannot be used.
            if meta.size > (memory::limit_or_all() / 2) as u64 {
                tracing::info!("{} is too large and not used", output.show(&object));
                continue;
            }
            let read = async { self.folder.store.get(&object).await?.bytes().await };
            match read.await {
                Ok(bytes) => match self.pieces(&object, &bytes) {
                    Some(pieces) => self.known.extend(pieces),
                    None => tracing::info!("{} is damaged and not used", output.show(&object)),
                },
                Err(e) => tracing::info!("{} cannot be read: {e}", output.show(&object)),
            }
        }
        // The sub-pieces of a complete piece are not needed any more.
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
            tracing::info!(pieces, "resuming from the checkpoints in {}", self.shown);
        }
        Ok(())
    }

    /// The pieces in an object, or `None` if its name does not match its bytes.
    fn pieces(&self, object: &Path, bytes: &Bytes) -> Option<Vec<(String, PiecePlace)>> {
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
            let place = PiecePlace {
                object: object.clone(),
                bytes: start..start + len,
                checksum: blake3::hash(piece),
            };
            pieces.push((name, place));
        }
        Some(pieces)
    }

    /// The name of an object with these bytes.
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
        let object = self.folder.path.clone().join(self.name(&chunks));
        let payload = PutPayload::from_iter(chunks);
        let bytes = payload.content_length();
        self.runtime.block_on(self.folder.put(&object, payload))?;
        let seconds = start.elapsed().as_secs_f64();
        tracing::info!(pieces = n_pieces, bytes, seconds, "wrote a checkpoint");
        Ok(())
    }
}

/// Whether `name` is a sub-piece of `whole`.
fn is_part(name: &str, whole: &str) -> bool {
    let rest = name.strip_prefix(whole);
    rest.is_some_and(|rest| rest.starts_with('/'))
}

impl Checkpoints for Checkpoint {
    fn has(&self, name: &str) -> bool {
        self.known.contains_key(name)
    }

    fn find(&self, name: &str) -> Option<Bytes> {
        let place = self.known.get(name)?;
        let range = place.bytes.clone();
        let read = self.folder.store.get_range(&place.object, range);
        match self.runtime.block_on(read) {
            Ok(bytes) if blake3::hash(&bytes) == place.checksum => {
                self.taken.fetch_add(1, Ordering::Relaxed);
                Some(bytes)
            }
            Ok(_) => {
                tracing::warn!(name, "a damaged checkpoint is ignored");
                None
            }
            Err(e) => {
                tracing::warn!(name, "a checkpoint is ignored: it cannot be read: {e}");
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
            tracing::warn!("cannot write checkpoints in {}: {e}", self.shown);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::clean::Cleaned;
    use crate::output::retention::Cleaning;
    use futures::StreamExt;
    use jiff::SignedDuration;
    use object_store::ObjectStore;
    use object_store::memory::InMemory;
    use std::sync::Arc;
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

        fn work(&self, plan: &str, afresh: bool, every: Duration) -> Checkpoint {
            let output = self.output();
            self.runtime.block_on(output.work(plan, afresh, every))
        }

        fn all(&self) -> Vec<Path> {
            let list = self.store.list(None).map(|meta| meta.expect("an object"));
            let list = list.map(|meta| meta.location).collect();
            self.runtime.block_on(list)
        }

        /// The objects in the work folders, without the records of the folders.
        fn objects(&self) -> Vec<Path> {
            let mut all = self.all();
            all.retain(|object| !object.as_ref().ends_with(".made"));
            all
        }

        fn bytes(&self, object: &Path) -> Vec<u8> {
            let get = async { self.store.get(object).await?.bytes().await };
            self.runtime.block_on(get).expect("an object").to_vec()
        }

        fn put(&self, object: &Path, bytes: Vec<u8>) {
            let put = self.store.put(object, bytes.into());
            self.runtime.block_on(put).expect("a store");
        }

        fn clean(&self, older_than: SignedDuration) -> Cleaned {
            let asked = Cleaning {
                keep: 2,
                older_than,
                dry_run: false,
            };
            let cleaned = self.runtime.block_on(self.output().clean(&asked));
            cleaned.expect("a store")
        }
    }

    fn keep(work: &Checkpoint, names: &[&str]) {
        for name in names {
            work.keep(name, Duration::ZERO, name.as_bytes().to_vec());
        }
    }

    fn known(work: &Checkpoint, names: &[&str]) -> Vec<bool> {
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
        // A run sees the pieces that existed when it began.
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
    fn small_pieces_are_written_together() {
        let lake = Lake::new();
        let work = lake.work(PLAN, false, HOUR);
        keep(&work, &["a/b", "a", "c/d"]);
        assert!(lake.objects().is_empty());
        work.keep("e", HOUR, b"e".to_vec());
        assert_eq!(lake.objects().len(), 1);
        let next = lake.work(PLAN, false, HOUR);
        let names = ["a", "c/d", "e", "a/b"];
        assert_eq!(known(&next, &names), [true, true, true, false]);
        // Sub-pieces of a finished piece are not written.
        let text = String::from_utf8_lossy(&lake.bytes(&lake.objects()[0])).to_string();
        assert!(text.contains("c/d") && !text.contains("a/b"), "{text:?}");
    }

    #[test]
    fn damaged_objects_are_ignored() {
        let lake = Lake::new();
        keep(&lake.work(PLAN, false, Duration::ZERO), &["a"]);
        let first = lake.objects().remove(0);
        keep(&lake.work(PLAN, false, Duration::ZERO), &["b"]);
        let whole = lake.bytes(&first);
        let mut flipped = whole.clone();
        *flipped.last_mut().expect("a byte") ^= 1;
        let longer = [&whole[..], b"x"].concat();
        let shorter = whole[..whole.len() - 1].to_vec();
        for damaged in [shorter, Vec::new(), flipped, longer] {
            lake.put(&first, damaged);
            let work = lake.work(PLAN, false, HOUR);
            assert_eq!(known(&work, &["a", "b"]), [false, true]);
        }
        lake.put(&first, whole.clone());
        // Under the name of another plan, and in a later format.
        let name = first.filename().expect("a name");
        let another = Path::from(format!("out/work/another/{name}"));
        lake.put(&another, whole.clone());
        assert_eq!(known(&lake.work("another", false, HOUR), &["a"]), [false]);
        let later = Bytes::from([b"gyre work 4\n", &whole[FORMAT.len()..]].concat());
        let work = lake.work("a-third", false, HOUR);
        let name = work.name(std::slice::from_ref(&later));
        lake.put(&work.folder.path.clone().join(name), later.to_vec());
        assert_eq!(known(&lake.work("a-third", false, HOUR), &["a"]), [false]);
        let known = known(&lake.work(PLAN, false, HOUR), &["a", "b"]);
        assert_eq!(known, [true, true]);
    }

    #[test]
    fn finished_and_old_checkpoints_are_removed() {
        let lake = Lake::new();
        for plan in ["done", "young"] {
            keep(&lake.work(plan, false, Duration::ZERO), &["a", "b"]);
        }
        let output = lake.output();
        lake.runtime.block_on(output.remove_checkpoints("done"));
        let is_young = |object: &Path| object.as_ref().contains("/young/");
        assert!(lake.objects().iter().all(is_young));
        assert_eq!(lake.objects().len(), 2);
        for (hours, left) in [(1, 2), (0, 0)] {
            let cleaned = lake.clean(SignedDuration::from_hours(hours));
            assert_eq!(cleaned.work.len(), usize::from(left == 0));
            assert_eq!(lake.objects().len(), left);
        }
        assert!(lake.all().is_empty());
    }

    /// A record comes before its folder, so what is left of a killed run is removed, and nothing
    /// that has no record is.
    #[test]
    fn only_work_that_gyre_has_recorded_is_removed() {
        let lake = Lake::new();
        let output = lake.output();
        let mine = [
            "out/work/mine/notes",
            "out/work/notes",
            "out/work/x.made",
            "out/work/.made",
            "out/work/.made/y",
            "out/work/z.made/y",
            "out/work/other/piece",
        ];
        for file in mine {
            lake.put(&Path::from(file), b"mine".to_vec());
        }
        let text = b"gyre made the folder work/x\n".to_vec();
        lake.put(&Path::from("out/work/other.made"), text);
        let before = lake.all();
        keep(&lake.work("killed", false, Duration::ZERO), &["a"]);
        keep(&lake.work("done", false, Duration::ZERO), &["a"]);
        // The run was killed between the two puts.
        let record = Path::from("out/work/early.made");
        lake.put(&record, b"gyre made the folder work/early\n".to_vec());
        lake.runtime.block_on(output.remove_checkpoints("done"));
        assert_eq!(lake.all().len(), before.len() + 3);
        for plan in ["mine", "x", "notes", "other"] {
            lake.runtime.block_on(output.remove_checkpoints(plan));
        }
        let cleaned = lake.clean(SignedDuration::ZERO);
        let plans: Vec<&String> = cleaned.work.iter().map(|(plan, _)| plan).collect();
        assert_eq!(plans, ["early", "killed"]);
        assert_eq!(lake.all(), before);
        let text = cleaned.to_string();
        let message = "left alone work/mine: not made by a run\n";
        assert!(text.contains(message), "{text}");
    }
}
