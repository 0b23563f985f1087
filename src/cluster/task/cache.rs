//! What tasks of one process read again and again: units of a matrix in every pass, and what the tasks of one pass share.

use crate::error::{Error, Result};
use crate::memory;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::OnceCell;

/// The checksum of the bytes that something was read from, and what it was read as: equal bytes may mean several things.
pub type Name = (&'static str, [u8; 32]);

type Thing = Arc<dyn Any + Send + Sync>;

/// Bytes of kernels.
const KERNELS: u64 = 256 << 20;

/// Holds what was used last, up to so many bytes.
pub struct Cache {
    most: u64,
    held: Mutex<Held>,
}

struct Held {
    things: BTreeMap<Name, Entry>,
    bytes: u64,
    uses: u64,
}

struct Entry {
    thing: Arc<OnceCell<Thing>>,
    bytes: u64,
    last_used: u64,
}

/// Units, in half of the memory that there is: the other half is for what tasks do.
pub fn of_units() -> &'static Cache {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    CACHE.get_or_init(|| Cache::new(memory::limit_or_all() as u64 / 2))
}

/// Kernels: those of one round together, which are small or one. Those of earlier rounds are of no use any more.
pub fn of_kernels() -> &'static Cache {
    static CACHE: Cache = Cache::new(KERNELS);
    &CACHE
}

impl Cache {
    const fn new(most: u64) -> Cache {
        let held = Held {
            things: BTreeMap::new(),
            bytes: 0,
            uses: 0,
        };
        Cache {
            most,
            held: Mutex::new(held),
        }
    }

    /// What is held by a name, or what `read` makes of `bytes` bytes: once, however many ask for it at a time.
    ///
    /// # Errors
    /// That of `read`; the next one who asks reads again.
    pub async fn get<T: Any + Send + Sync>(
        &self,
        name: Name,
        bytes: u64,
        read: impl Future<Output = Result<T>>,
    ) -> Result<Arc<T>> {
        let thing = self.entry(name, bytes);
        let read = async { Ok(Arc::new(read.await?) as Thing) };
        let thing = thing.get_or_try_init(|| read).await?;
        let is_other = |_| Error::bug("two things have one name");
        Arc::clone(thing).downcast().map_err(is_other)
    }

    fn entry(&self, name: Name, bytes: u64) -> Arc<OnceCell<Thing>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.uses += 1;
        let now = held.uses;
        if let Some(entry) = held.things.get_mut(&name) {
            entry.last_used = now;
            return Arc::clone(&entry.thing);
        }
        // Who uses what is dropped here keeps it until he is done.
        while held.bytes + bytes > self.most {
            let oldest = held.things.iter().min_by_key(|(_, entry)| entry.last_used);
            let Some((&oldest, _)) = oldest else { break };
            let gone = held.things.remove(&oldest);
            held.bytes -= gone.map_or(0, |entry| entry.bytes);
        }
        let thing = Arc::new(OnceCell::new());
        let entry = Entry {
            thing: Arc::clone(&thing),
            bytes,
            last_used: now,
        };
        held.things.insert(name, entry);
        held.bytes += bytes;
        thing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_was_used_last_is_held() {
        let cache = Cache::new(10);
        let get = async |name: u8, bytes: u64| {
            let mut was_read = false;
            let read = async {
                was_read = true;
                Ok(name)
            };
            let got = cache.get(("number", [name; 32]), bytes, read).await;
            assert_eq!(*got.expect("a number"), name);
            was_read
        };
        assert!(get(1, 4).await && get(2, 4).await);
        assert!(!get(1, 4).await);
        // Of two that fill ten bytes the older one goes.
        assert!(get(3, 4).await);
        assert!(!get(1, 4).await && get(2, 4).await);
        // What is larger than all is held alone.
        assert!(get(4, 40).await && !get(4, 40).await && get(1, 4).await);
        let failed = cache.get(("number", [9; 32]), 1, async {
            Err::<u8, _>(Error::bug("no"))
        });
        failed.await.expect_err("no number");
        assert!(get(9, 1).await);
        let other = cache.get(("text", [9; 32]), 1, async { Ok(String::new()) });
        other.await.expect("another thing");
    }
}
