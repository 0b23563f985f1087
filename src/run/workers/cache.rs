//! Caches for data that tasks of one process share: units of the evidence, which every pass reads,
//! and kernels, which the tasks of one pass share.

use crate::error::{Error, Result};
use crate::memory;
use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::OnceCell;

/// The type of a value and the checksum of its bytes, because equal bytes may be of several types.
pub(crate) type Name = (&'static str, [u8; 32]);

type Value = Arc<dyn Any + Send + Sync>;

/// Upper limit in bytes of cached kernels.
const KERNEL_BYTES: u64 = 256 << 20;

/// Holds the most recently used values, up to a number of bytes.
pub(crate) struct Cache {
    max_bytes: u64,
    held: Mutex<Held>,
}

struct Held {
    values: BTreeMap<Name, CacheEntry>,
    bytes: u64,
    uses: u64,
}

struct CacheEntry {
    value: Arc<OnceCell<Value>>,
    bytes: u64,
    last_used: u64,
}

/// The cache of units, which gets half of the memory. The other half is for the tasks.
pub(crate) fn of_units() -> &'static Cache {
    static CACHE: OnceLock<Cache> = OnceLock::new();
    CACHE.get_or_init(|| Cache::new(memory::limit_or_all() as u64 / 2))
}

/// The cache of kernels. The kernels of one round are small or few, and those of earlier rounds are
/// not needed again.
pub(crate) fn of_kernels() -> &'static Cache {
    static CACHE: Cache = Cache::new(KERNEL_BYTES);
    &CACHE
}

impl Cache {
    const fn new(max_bytes: u64) -> Cache {
        let held = Held {
            values: BTreeMap::new(),
            bytes: 0,
            uses: 0,
        };
        Cache {
            max_bytes,
            held: Mutex::new(held),
        }
    }

    /// The value of a name, or the result of `read`, which takes about `bytes` bytes. Concurrent
    /// calls share one read.
    ///
    /// # Errors
    /// That of `read`; the next call reads again.
    pub(crate) async fn get<T: Any + Send + Sync>(
        &self,
        name: Name,
        bytes: u64,
        read: impl Future<Output = Result<T>>,
    ) -> Result<Arc<T>> {
        let value = self.entry(name, bytes);
        let read = async { Ok(Arc::new(read.await?) as Value) };
        let value = value.get_or_try_init(|| read).await?;
        let is_other = |_| Error::bug("two values have one name");
        Arc::clone(value).downcast().map_err(is_other)
    }

    fn entry(&self, name: Name, bytes: u64) -> Arc<OnceCell<Value>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.uses += 1;
        let now = held.uses;
        if let Some(entry) = held.values.get_mut(&name) {
            entry.last_used = now;
            return Arc::clone(&entry.value);
        }
        // A task that uses a dropped value keeps it alive.
        while held.bytes + bytes > self.max_bytes {
            let oldest = held.values.iter().min_by_key(|(_, entry)| entry.last_used);
            let Some((&oldest, _)) = oldest else { break };
            let gone = held.values.remove(&oldest);
            held.bytes -= gone.map_or(0, |entry| entry.bytes);
        }
        let value = Arc::new(OnceCell::new());
        let entry = CacheEntry {
            value: Arc::clone(&value),
            bytes,
            last_used: now,
        };
        held.values.insert(name, entry);
        held.bytes += bytes;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn recently_used_values_stay() {
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
        // The value that was used longest ago goes.
        assert!(get(3, 4).await);
        assert!(!get(1, 4).await && get(2, 4).await);
        // A value larger than the cache stays alone.
        assert!(get(4, 40).await && !get(4, 40).await && get(1, 4).await);
        let failed = cache.get(("number", [9; 32]), 1, async {
            Err::<u8, _>(Error::bug("no"))
        });
        failed.await.expect_err("no number");
        assert!(get(9, 1).await);
        let other = cache.get(("text", [9; 32]), 1, async { Ok(String::new()) });
        other.await.expect("another value");
    }
}
