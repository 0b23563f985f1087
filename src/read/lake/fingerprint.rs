//! Content hashes of input files, for stores whose size, time and tag do not identify a version.

use crate::error::{Error, Result};
use crate::read::lake::Lake;
use crate::read::lake::errors::failed;
use crate::read::paths::places;
use datafusion::execution::object_store::ObjectStoreUrl;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStoreExt;
use std::collections::BTreeMap;

/// Files that are read concurrently.
const CONCURRENT_READS: usize = 4;

impl Lake {
    /// Reads every file of every table once and stores its blake3 hash in
    /// [`InputFile::content`](crate::read::lake::files::InputFile::content).
    ///
    /// # Errors
    /// A file that cannot be read.
    pub(crate) async fn fingerprint(&mut self) -> Result<()> {
        let mut places = BTreeMap::new();
        for table in &self.tables {
            for file in &table.files {
                places.insert(file.location.clone(), &table.root);
            }
        }
        let hash = async |(location, root): (String, &String)| {
            let unread = |e| failed(&format!("{location} cannot be read"), e);
            let root = ObjectStoreUrl::parse(root).map_err(unread)?;
            let store = self
                .context
                .runtime_env()
                .object_store(&root)
                .map_err(unread)?;
            let path = places::path_at(&root, &location);
            let path =
                path.ok_or_else(|| Error::bug(format!("{location} has no path in its store")))?;
            let got = store.get(&path).await.map_err(|e| unread(e.into()))?;
            let mut bytes = got.into_stream();
            let mut hasher = blake3::Hasher::new();
            while let Some(piece) = bytes.try_next().await.map_err(|e| unread(e.into()))? {
                hasher.update(&piece);
            }
            Ok::<_, Error>((location, hasher.finalize().to_hex().to_string()))
        };
        let hashed: BTreeMap<String, String> = stream::iter(places)
            .map(hash)
            .buffered(CONCURRENT_READS)
            .try_collect()
            .await?;
        for file in self.tables.iter_mut().flat_map(|table| &mut table.files) {
            file.content = hashed.get(&file.location).cloned();
        }
        Ok(())
    }
}
