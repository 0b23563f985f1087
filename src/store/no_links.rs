//! A folder of the file system, without what is behind links in it. A folder in place of a file is
//! refused by name.
//!
//! gyre makes no links below `versions`, `runs`, `ledger` and `work` of an output. A link there was
//! not made by gyre, and what it leads to is not gyre's to read, write or remove. The folder
//! itself may be reached through links.

use crate::error::InTheWay;
use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{BoxStream, StreamExt};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

/// Refuses paths that lead through links, and lists nothing behind them.
#[derive(Debug)]
pub(crate) struct NoLinks {
    inner: Arc<dyn ObjectStore>,
    /// The path of the folder in the store.
    root: Path,
    paths: LocalFileSystem,
}

impl std::fmt::Display for NoLinks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

impl NoLinks {
    /// The folder `root` of a store of local files.
    pub(crate) fn new(inner: Arc<dyn ObjectStore>, root: Path) -> NoLinks {
        NoLinks {
            inner,
            root,
            paths: LocalFileSystem::new(),
        }
    }

    /// Fails if one of the folders between the root and a file, or the file itself, is a link, or
    /// if a file of the root is a folder. The folders below have names that only gyre gives.
    fn check(&self, path: &Path) -> Result<()> {
        let depth = self.depth(path);
        self.check_as(path, depth, |path| match depth {
            1 => InTheWay::of_file(path),
            _ => InTheWay::at(path),
        })
    }

    /// As [`NoLinks::check`], for a folder.
    fn check_folder(&self, path: &Path) -> Result<()> {
        self.check_as(path, self.depth(path), InTheWay::at)
    }

    /// Parts of a path below the root.
    fn depth(&self, path: &Path) -> usize {
        path.prefix_match(&self.root).map_or(0, Iterator::count)
    }

    fn check_as(
        &self,
        path: &Path,
        depth: usize,
        is_in_the_way: impl Fn(&std::path::Path) -> Option<InTheWay>,
    ) -> Result<()> {
        if depth == 0 {
            return Ok(());
        }
        let path = self.paths.path_to_filesystem(path)?;
        let mut folders = path.ancestors().take(depth).skip(1);
        match is_in_the_way(&path).or_else(|| folders.find_map(InTheWay::at)) {
            None => Ok(()),
            Some(found) => Err(Error::Generic {
                store: "LocalFileSystem",
                source: Box::new(found),
            }),
        }
    }

    /// The files below a path.
    fn files(&self, prefix: &Path) -> Result<Vec<ObjectMeta>> {
        // The path of a folder may end like that of a partial file, which has no path.
        let folder = self.paths.path_to_filesystem(&prefix.clone().join("x"))?;
        let mut found = Vec::new();
        let listed = match folder.parent() {
            Some(folder) => list(folder.to_path_buf(), prefix, &mut found),
            None => Ok(()),
        };
        listed.map_err(|e| Error::Generic {
            store: "LocalFileSystem",
            source: e.into(),
        })?;
        found.sort_by(|a: &ObjectMeta, b| a.location.cmp(&b.location));
        Ok(found)
    }
}

/// Appends the files below a folder. Files and folders that are removed meanwhile are left out.
fn list(folder: PathBuf, at: &Path, found: &mut Vec<ObjectMeta>) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(e)
            if matches!(
                e.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            return Ok(());
        }
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        // gyre writes no names that are not UTF-8.
        let (Some(name), Ok(kind)) = (name.to_str(), entry.file_type()) else {
            continue;
        };
        let location = at.clone().join(name);
        let number = name.rsplit_once('#').map_or("", |(_, number)| number);
        let is_partial = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        if kind.is_dir() {
            list(entry.path(), &location, found)?;
        } else if kind.is_file() && !is_partial {
            let changed = entry
                .metadata()
                .and_then(|meta| Ok((meta.len(), meta.modified()?)));
            found.extend(changed.ok().map(|(size, modified)| ObjectMeta {
                location,
                last_modified: modified.into(),
                size,
                e_tag: None,
                version: None,
            }));
        }
    }
    Ok(())
}

#[async_trait]
impl ObjectStore for NoLinks {
    async fn put_opts(
        &self,
        at: &Path,
        bytes: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.check(at)?;
        self.inner.put_opts(at, bytes, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.check(at)?;
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.check(at)?;
        self.inner.get_opts(at, options).await
    }

    async fn get_ranges(&self, at: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.check(at)?;
        self.inner.get_ranges(at, ranges).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let own = NoLinks::new(Arc::clone(&self.inner), self.root.clone());
        let checked = locations.map(move |at| {
            let at = at?;
            own.check(&at).map(|()| at)
        });
        self.inner.delete_stream(checked.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let prefix = prefix.unwrap_or(&self.root);
        let found = self.check_folder(prefix).and_then(|()| self.files(prefix));
        let found = match found {
            Ok(files) => files.into_iter().map(Ok).collect(),
            Err(e) => vec![Err(e)],
        };
        futures::stream::iter(found).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.check_folder(prefix.unwrap_or(&self.root))?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.check(from)?;
        self.check(to)?;
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use futures::TryStreamExt;
    use object_store::ObjectStoreExt;
    use std::os::unix::fs::symlink;

    /// Every call refuses a path that leads through a link, at every depth, and a list ends
    /// although links lead to folders above them.
    #[tokio::test]
    async fn nothing_behind_a_link_is_reached() {
        let place = tempfile::tempdir().expect("a folder");
        let (mine, real) = (place.path().join("mine"), place.path().join("real"));
        fs::create_dir_all(mine.join("deep")).expect("a folder");
        fs::create_dir_all(real.join("a")).expect("a folder");
        fs::write(mine.join("deep/x"), "mine").expect("a file");
        fs::write(real.join("a/x"), "own").expect("a file");
        // The folder itself may be reached through a link.
        let folder = place.path().join("out");
        symlink(&real, &folder).expect("a link");
        symlink(mine.join("deep"), real.join("link")).expect("a link");
        symlink(mine.join("deep/x"), real.join("a/file")).expect("a link");
        symlink(&mine, real.join("a/more")).expect("a link");
        symlink("..", real.join("a/loop")).expect("a link");
        symlink("nowhere", real.join("a/broken")).expect("a link");
        fs::write(real.join("a/y#1"), "partial").expect("a file");

        let root = Path::from_absolute_path(&folder).expect("a path");
        let store = NoLinks::new(Arc::new(LocalFileSystem::new()), root.clone());
        let at = |path: &str| path.split('/').fold(root.clone(), |at, part| at.join(part));
        for path in [
            "link/x",
            "a/file",
            "a/more/deep/x",
            "a/more/new",
            "a/loop/a/x",
            "a/broken",
        ] {
            let at = at(path);
            let refused = [
                store.get(&at).await.err(),
                store.head(&at).await.err(),
                store.get_range(&at, 0..1).await.err(),
                store.put(&at, "gyre".into()).await.err(),
                store.put_multipart(&at).await.err(),
                store.delete(&at).await.err(),
                store.copy(&at, &root.clone().join("copy")).await.err(),
                store
                    .copy(&root.clone().join("a").join("x"), &at)
                    .await
                    .err(),
            ];
            for (call, e) in refused.into_iter().enumerate() {
                let e = e.unwrap_or_else(|| panic!("{path}: call {call}"));
                let e = crate::error::Error::store("it failed", e);
                assert_eq!(e.kind(), crate::error::Kind::Spec, "{}", e.full());
                assert!(
                    e.full().contains("is a link, and no result"),
                    "{}",
                    e.full()
                );
            }
        }
        let listed = store
            .list(Some(&root))
            .try_collect::<Vec<_>>()
            .await
            .expect("a list");
        let listed: Vec<Path> = listed.into_iter().map(|meta| meta.location).collect();
        assert_eq!(listed, [at("a/x")]);
        assert_eq!(fs::read(mine.join("deep/x")).expect("a file"), b"mine");
        assert_eq!(fs::read_dir(&mine).expect("a folder").count(), 1);
        // Everything else goes to the files.
        store.put(&at("b/z"), "12".into()).await.expect("a file");
        store.copy(&at("b/z"), &at("b/w")).await.expect("a file");
        assert_eq!(store.head(&at("b/w")).await.expect("a file").size, 2);
        store.delete(&at("b/w")).await.expect("a file");
        assert!(!real.join("b/w").exists() && real.join("b/z").exists());
    }
}
