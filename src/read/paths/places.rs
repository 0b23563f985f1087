//! A path of a table → its store and its files.
//!
//! Files on disk are named by their canonical path, so that a file that is reached through links is
//! counted once.

use crate::error::Kind;
use crate::error::{Error, Result};
use crate::read::lake::errors::failed;
use crate::read::lake::frozen::ListedFiles;
use crate::read::paths::current::Current;
use crate::read::paths::glob;
use crate::read::paths::glob::{Pattern, special};
use crate::read::paths::lakehouse;
use crate::read::paths::lakehouse::{FolderMark, Marks};
use crate::store;
use crate::store::location::location;
use crate::store::{Stores, canonical};
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::SessionContext;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, path};
use url::{Position, Url};

/// A file or folder in a store, and a pattern below it.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    /// The URL of the store.
    pub root: ObjectStoreUrl,
    /// The file or folder, or the folder that contains every match of the pattern.
    pub path: Path,
    /// The pattern, relative to `path`.
    pub pattern: Option<Pattern>,
    /// Whether the place is a folder, if the text or the disk tells.
    pub is_folder: Option<bool>,
}

/// A file of a table.
pub(crate) struct FoundFile {
    /// The file as the store listed it.
    pub meta: ObjectMeta,
    /// The file as messages and records show it.
    pub shown: String,
    /// Hive folders between the path of the table and the file, as column and value; `None` is
    /// null.
    pub folders: Vec<(String, Option<String>)>,
}

/// The folder value that Spark and Hive write for null.
pub(crate) const HIVE_NULL: &str = "__HIVE_DEFAULT_PARTITION__";

/// The canonical spelling of a location.
pub(crate) fn canonical_location(location: &str) -> String {
    match literal(location) {
        Ok((root, path)) => shown_at(&root, &path),
        Err(_) => location.to_string(),
    }
}

fn shown_at(root: &ObjectStoreUrl, path: &Path) -> String {
    location(root.as_str(), path)
}

/// The path in a store of a listed file.
pub(crate) fn path_at(root: &ObjectStoreUrl, location: &str) -> Option<Path> {
    let below = location.strip_prefix(root.as_str().trim_end_matches('/'))?;
    Path::parse(below.strip_prefix('/')?).ok()
}

/// The store and the path of a location without a pattern.
///
/// # Errors
/// A location that is not a path or URL.
pub(crate) fn literal(location: &str) -> Result<(ObjectStoreUrl, Path)> {
    let wrong = |e: Box<dyn std::error::Error + Send + Sync>| {
        let message = format!("{location} is not a path or URL");
        Error::with_source(Kind::Input, message, e)
    };
    store::check(location).map_err(Error::input)?;
    let url = store::url(location).map_err(|e| wrong(e.into()))?;
    let file = match &url {
        None => PathBuf::from(location),
        Some(url) if url.scheme() == "file" => url
            .to_file_path()
            .map_err(|()| wrong("it does not name a file".into()))?,
        Some(url) => {
            let path = Path::from_url_path(url.path()).map_err(|e| wrong(e.into()))?;
            return Ok((root(url)?, path));
        }
    };
    let file = canonical(&file).map_err(|e| wrong(e.into()))?;
    let path = Path::from_absolute_path(&file).map_err(|e| wrong(e.into()))?;
    Ok((ObjectStoreUrl::local_filesystem(), path))
}

fn root(url: &Url) -> Result<ObjectStoreUrl> {
    ObjectStoreUrl::parse(&url[..Position::BeforePath])
        .map_err(|e| failed(&format!("{url} does not name a store"), e))
}

/// The name on disk of a location, unless it is a URL of a remote store.
fn on_disk(location: &str) -> Option<Cow<'_, path::Path>> {
    if !location.contains("://") {
        return Some(Cow::Borrowed(path::Path::new(location)));
    }
    let url = store::url(location).ok()??;
    let file = (url.scheme() == "file").then(|| url.to_file_path())?;
    file.ok().map(Cow::Owned)
}

impl Place {
    /// Parses a path, as far as its text and the disk tell. An existing file or folder takes
    /// precedence over a pattern of the same spelling.
    ///
    /// # Errors
    /// A path that does not exist on disk or cannot be parsed.
    pub(crate) fn of(path: &str) -> Result<Place> {
        store::check(path).map_err(Error::input)?;
        let disk = on_disk(path);
        let is_there = disk.as_ref().map(|disk| disk.try_exists());
        if let (Some(disk), Some(Err(e))) = (&disk, &is_there) {
            let shown = disk.display();
            return Err(Error::input(format!("{shown} cannot be read: {e}")));
        }
        let is_there = matches!(is_there, Some(Ok(true)));
        let at = special(path).filter(|_| !is_there);
        let Some(at) = at else {
            if disk.is_some() && !is_there {
                return Err(Error::input(format!("no file or folder at {path}")));
            }
            let (root, found) = literal(path)?;
            let is_folder = match &disk {
                Some(disk) => Some(disk.is_dir()),
                None => path.ends_with('/').then_some(true),
            };
            return Ok(Place {
                root,
                path: found,
                pattern: None,
                is_folder,
            });
        };
        let begin = path.find("://").map_or(0, |at| at + 3);
        let (folder, pattern) = match path[..at].rfind('/') {
            Some(slash) if slash >= begin => (&path[..=slash], &path[slash + 1..]),
            _ if begin > 0 => {
                return Err(Error::input(format!(
                    "{path} has a pattern in the name of the bucket"
                )));
            }
            _ => (".", path),
        };
        let (root, folder) = literal(folder)?;
        let pattern = Pattern::new(pattern)
            .map_err(|e| Error::input(format!("{path} is neither a file nor a pattern: {e}")))?;
        Ok(Place {
            root,
            path: folder,
            pattern: Some(pattern),
            is_folder: Some(true),
        })
    }

    /// Whether the place is on disk.
    pub(crate) fn is_local(&self) -> bool {
        self.root.as_str().starts_with("file:")
    }

    fn is_http(&self) -> bool {
        self.root.as_str().starts_with("http")
    }

    /// A path in the store, as a user would write it.
    fn show(&self, path: &Path) -> String {
        if self.is_local() {
            format!("/{path}")
        } else {
            location(self.root.as_str(), path)
        }
    }
}

/// The store of a place, which is registered with the session.
///
/// # Errors
/// A store that cannot be opened.
pub(crate) fn store(
    context: &SessionContext,
    stores: &Stores,
    listing: &ListedFiles,
    root: &ObjectStoreUrl,
) -> Result<Arc<dyn ObjectStore>> {
    let url: &Url = root.as_ref();
    if url.scheme() != "file" {
        let store = listing.of(root.as_str(), stores.store(url)?);
        context.register_object_store(url, store);
    }
    let store = context.runtime_env().object_store(root);
    store.map_err(|e| failed(&format!("the store {}", root.as_str()), e))
}

/// The files of a path. In a folder only files with the extension that `ending` derives from their
/// names count; a file or a pattern is explicit.
///
/// # Errors
/// No files, or files of a lakehouse table or of a whole output.
pub(crate) async fn files(
    mut place: Place,
    store: &Arc<dyn ObjectStore>,
    path: &str,
    ending: impl Fn(&mut dyn Iterator<Item = &str>) -> Result<String, String>,
) -> Result<Vec<FoundFile>> {
    let unlisted = |e: StoreError| failed(&format!("cannot list {path}"), e.into());
    // Also in remote stores, an object with the literal name takes precedence over the pattern.
    if !place.is_local()
        && place.pattern.is_some()
        && let Ok((_, name)) = literal(path)
        && let Ok(meta) = store.head(&name).await
    {
        return Ok(vec![place.found(meta, Vec::new())]);
    }
    if place.is_http() && (place.pattern.is_some() || place.is_folder == Some(true)) {
        return Err(Error::input(format!(
            "{path} is not a single file, and web servers do not list their files; name each file"
        )));
    }
    if let Some(meta) = place.head(store, path).await? {
        return Ok(vec![place.found(meta, Vec::new())]);
    }
    let marks = Marks::above(store, &place.path).await.map_err(unlisted)?;
    if let Some((root, kind)) = marks
        .of(&place.path)
        .find(|(_, kind)| *kind != FolderMark::Output)
    {
        let is_at = *root == place.path && place.pattern.is_none();
        return Err(lakehouse::refused(
            *kind,
            &place.show(root),
            path,
            Some(is_at),
        ));
    }
    if let Some((root, current)) = deepest_output(store, &marks, &place.path, path).await? {
        place.in_output(&root, &current, path)?;
        if let Some(meta) = place.head(store, path).await? {
            return Ok(vec![place.found(meta, Vec::new())]);
        }
    }
    let mut found = glob::list(store, &place.path, place.pattern.as_ref())
        .await
        .map_err(unlisted)?;
    let of_folder = place.pattern.as_ref().is_none_or(|p| p.is_of_folders);
    let extension = if of_folder {
        ending(&mut found.files.iter().map(|meta| meta.location.as_ref()))
            .map_err(|e| Error::input(format!("{path} {e}")))?
    } else {
        String::new()
    };
    let is_data = |meta: &ObjectMeta| meta.location.as_ref().ends_with(&extension);
    found.files.retain(is_data);
    refuse_tables_below(&place, store, path, &found).await?;
    if found.files.is_empty() {
        return Err(nothing_at(&place, path, &extension, found.folder.as_ref()));
    }
    let base = place.path.clone();
    let files = canonical_files(place.is_local(), found.files).await?;
    let named = files.into_iter().map(|(meta, listed)| {
        let folders = hive_folders(glob::below(&base, &listed).unwrap_or_default());
        place.found(meta, folders)
    });
    Ok(named.collect())
}

/// Fails if listed files are those of a lakehouse table or of a whole output.
async fn refuse_tables_below(
    place: &Place,
    store: &Arc<dyn ObjectStore>,
    path: &str,
    found: &glob::Found,
) -> Result<()> {
    for meta in &found.files {
        for (root, kind) in found.marks.of(&meta.location) {
            if *kind != FolderMark::Output {
                let is_at = (*root == place.path && place.pattern.is_none()).then_some(true);
                return Err(lakehouse::refused(*kind, &place.show(root), path, is_at));
            }
        }
    }
    let of_files = found.files.iter();
    let outputs: BTreeSet<_> = of_files
        .flat_map(|meta| found.marks.of(&meta.location))
        .filter(|(root, _)| !place.path.prefix_matches(root))
        .collect();
    for (root, _) in outputs {
        let current = lakehouse::output(store, root).await;
        let current = current.map_err(|e| failed(&format!("cannot list {path}"), e.into()))?;
        if let Some(current) = current {
            let shown = place.show(root);
            return Err(lakehouse::whole_output(path, &shown, false, &current));
        }
    }
    Ok(())
}

/// The innermost output that contains a place.
async fn deepest_output(
    store: &Arc<dyn ObjectStore>,
    marks: &Marks,
    place: &Path,
    path: &str,
) -> Result<Option<(Path, Current)>> {
    let mut outputs: Vec<&Path> = marks
        .of(place)
        .filter(|(_, kind)| *kind == FolderMark::Output)
        .map(|(root, _)| root)
        .collect();
    outputs.sort_by_key(|root| std::cmp::Reverse(root.as_ref().len()));
    for root in outputs {
        let current = lakehouse::output(store, root)
            .await
            .map_err(|e| failed(&format!("cannot list {path}"), e.into()))?;
        if let Some(current) = current {
            return Ok(Some((root.clone(), current)));
        }
    }
    Ok(None)
}

/// The files under their canonical names, each with the name under which it was listed.
async fn canonical_files(
    is_local: bool,
    files: Vec<ObjectMeta>,
) -> Result<Vec<(ObjectMeta, Path)>> {
    let named = move || {
        let name = |mut meta: ObjectMeta| {
            let listed = meta.location.clone();
            if is_local
                && let Ok(real) = fs::canonicalize(format!("/{listed}"))
                && let Ok(real) = Path::from_absolute_path(real)
            {
                meta.location = real;
            }
            (meta, listed)
        };
        files.into_iter().map(name).collect()
    };
    tokio::task::spawn_blocking(named)
        .await
        .map_err(|e| Error::with_source(Kind::Bug, "resolving links of the files panicked", e))
}

impl Place {
    /// The metadata of the place, if it is a file.
    async fn head(&self, store: &Arc<dyn ObjectStore>, path: &str) -> Result<Option<ObjectMeta>> {
        if self.is_folder == Some(true) {
            return Ok(None);
        }
        match store.head(&self.path).await {
            Ok(meta) => Ok(Some(meta)),
            Err(StoreError::NotFound { .. }) if self.is_http() => {
                Err(Error::input(format!("no file at {path}")))
            }
            // If it is not a file, it is a folder.
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(failed(&format!("cannot find {path}"), e.into())),
        }
    }

    fn found(&self, meta: ObjectMeta, folders: Vec<(String, Option<String>)>) -> FoundFile {
        FoundFile {
            shown: shown_at(&self.root, &meta.location),
            meta,
            folders,
        }
    }

    /// If the place is inside an output, redirects it to the current version of the table.
    ///
    /// # Errors
    /// If it is not a table, but the whole output or something that the output keeps beside its
    /// tables.
    fn in_output(&mut self, root: &Path, current: &Current, path: &str) -> Result<()> {
        let inside: Vec<String> = (self.path.prefix_match(root).into_iter().flatten())
            .map(|part| part.as_ref().to_string())
            .collect();
        let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
        match &inside[..] {
            // An explicitly named version of a table.
            ["versions", _, _, ..] => Ok(()),
            [table, ..] | ["current", table, ..] if current.tables.contains_key(*table) => {
                let from = usize::from(inside[0] == "current");
                let folder = current.folder.split('/').filter(|part| !part.is_empty());
                let inside = folder.chain(inside[from..].iter().copied());
                self.path = inside.fold(root.clone(), |path, part| path.join(part));
                Ok(())
            }
            [] | ["versions" | "current" | "runs" | "ledger" | "work", ..] => {
                let is_at = inside.is_empty() && self.pattern.is_none();
                let shown = if is_at { path } else { &self.show(root) };
                Err(lakehouse::whole_output(path, shown, is_at, current))
            }
            _ => Ok(()),
        }
    }
}

fn nothing_at(place: &Place, path: &str, extension: &str, folder: Option<&Path>) -> Error {
    let what = match extension {
        "" => "file".to_string(),
        extension => format!("{extension} file"),
    };
    let mut message = format!("no {what} at {path}");
    if let Some(folder) = folder {
        let (shown, path) = (place.show(folder), path.trim_end_matches('/'));
        message += &format!("; it matches the folder {shown}, whose files are {path}/*");
    }
    Error::input(message)
}

/// The Hive folders in the path of a file relative to its table.
fn hive_folders(below: &str) -> Vec<(String, Option<String>)> {
    below
        .rsplit_once('/')
        .map_or("", |(folders, _)| folders)
        .split('/')
        .filter_map(|folder| folder.split_once('='))
        .map(|(name, value)| (name.to_string(), hive_value(value)))
        .collect()
}

/// The value of a Hive folder; an empty one is null too.
fn hive_value(text: &str) -> Option<String> {
    if text.is_empty() || text == HIVE_NULL {
        return None;
    }
    let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
    Some(decoded.map_or_else(|_| text.to_string(), Cow::into_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hive_folders_become_columns_and_values() {
        let folders = |below: &str| -> Vec<String> {
            hive_folders(below)
                .into_iter()
                .map(|(name, value)| format!("{name} {}", value.unwrap_or("NULL".into())))
                .collect()
        };
        assert!(folders("a.parquet").is_empty());
        assert!(folders("sub/x=1.parquet").is_empty());
        assert_eq!(
            folders("year=2024/sub/m=b=c/a.parquet"),
            ["year 2024", "m b=c"]
        );
        assert_eq!(
            folders("a=__HIVE_DEFAULT_PARTITION__/b=/c=%20%C3%BC/d=%FF/x"),
            ["a NULL", "b NULL", "c  ü", "d %FF"]
        );
    }

    #[test]
    fn a_path_splits_into_a_folder_and_a_pattern() {
        let place = |path: &str| {
            let place = Place::of(path).map_err(|e| e.to_string())?;
            let is_folder = place.is_folder;
            Ok::<_, String>((
                place.root.as_str().to_string(),
                place.path.to_string(),
                is_folder,
            ))
        };
        let found = |root: &str, path: &str, is_folder| Ok((root.into(), path.into(), is_folder));
        let cases = [
            ("s3://b/t/a.parquet", "s3://b/", "t/a.parquet", None),
            ("s3://b/t/", "s3://b/", "t", Some(true)),
            ("s3://b/a%20b/20*/a?.csv", "s3://b/", "a b", Some(true)),
            ("s3://b/{x,y}", "s3://b/", "", Some(true)),
        ];
        for (path, root, below, is_folder) in cases {
            assert_eq!(place(path), found(root, below, is_folder), "{path}");
        }
        let wrong = place("s3://b*/t").expect_err("a pattern where none can be");
        assert!(wrong.contains("in the name of the bucket"), "{wrong}");
        let wrong = place("s3://b/[").expect_err("no pattern");
        assert!(wrong.contains("neither a file nor a pattern"), "{wrong}");
    }

    /// The files of a path in a store, or the error.
    async fn found(store: &Arc<dyn ObjectStore>, path: &str) -> Result<Vec<String>, String> {
        let place = Place::of(path).map_err(|e| e.full())?;
        let ending = |_: &mut dyn Iterator<Item = &str>| Ok(".parquet".to_string());
        let found = files(place, store, path, ending)
            .await
            .map_err(|e| e.full())?
            .into_iter();
        Ok(found.map(|file| file.meta.location.to_string()).collect())
    }

    #[tokio::test]
    async fn a_table_of_an_output_is_the_one_of_its_current_result() {
        use crate::output::place::Output;
        use crate::output::pointer::Promotion;
        use std::collections::BTreeMap;
        let store: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
        let output = Output::in_store(store.clone(), "b/out".into());
        let mut runs = Vec::new();
        for _ in 0..2 {
            let started = output.begin("a-plan-of-its-own").await.expect("a store");
            output.claim_version(&started).await.expect("room");
            let table = output.staged(&started.run, "sources");
            output.put(&table, b"1".to_vec()).await.expect("a file");
            let promotion = Promotion {
                kind: "counts",
                plan: "a-plan-of-its-own",
                complete: true,
                tables: &BTreeMap::from([("sources", 1)]),
                keep: 2,
                record: &started.run,
                begins: &|| Ok(()),
            };
            output
                .promote(&started, &promotion)
                .await
                .expect("a result");
            runs.push(started.run);
        }
        let folder = |run: &String| format!("b/out/versions/{run}/sources");
        let (earlier, now) = (folder(&runs[0]), folder(&runs[1]));
        for path in [
            "sources",
            "sources/",
            "current/sources",
            "sources/part-0.parquet",
            "sources/*",
        ] {
            let read = found(&store, &format!("memory:///b/out/{path}")).await;
            assert_eq!(read, Ok(vec![format!("{now}/part-0.parquet")]), "{path}");
        }
        let read = found(&store, &format!("memory:///{earlier}")).await;
        assert_eq!(read, Ok(vec![format!("{earlier}/part-0.parquet")]));
        for path in [
            "b/out",
            "b/out/",
            "b",
            "b/**",
            "b/out/*/*/*/*.parquet",
            "b/out/versions",
        ] {
            let refusal = found(&store, &format!("memory:///{path}"))
                .await
                .expect_err(path);
            assert!(
                refusal.contains("name one of its tables"),
                "{path}: {refusal}"
            );
            assert!(refusal.ends_with("b/out/sources"), "{path}: {refusal}");
        }
        // A `current.json` of another program is a file like any other.
        store
            .put(&"x/current.json".into(), "{}".into())
            .await
            .expect("a file");
        store
            .put(&"x/a.parquet".into(), "1".into())
            .await
            .expect("a file");
        let read = found(&store, "memory:///x").await;
        assert_eq!(read, Ok(vec!["x/a.parquet".to_string()]));
    }

    #[tokio::test]
    async fn tables_of_other_formats_are_refused_in_a_store() {
        for (mark, name) in [
            ("_delta_log/00000000000000000000.json", "a Delta table"),
            ("metadata/v12.metadata.json", "an Iceberg table"),
            (".hoodie/hoodie.properties", "a Hudi table"),
        ] {
            let store: Arc<dyn ObjectStore> = Arc::new(object_store::memory::InMemory::new());
            for file in [mark, "data/x=1/a.parquet"] {
                let file = Path::parse(format!("lake/t/{file}")).expect("a path");
                store.put(&file, "1".into()).await.expect("a file");
            }
            for path in [
                "lake/t",
                "lake",
                "lake/t/data",
                "lake/t/data/x=*/*",
                "lake/*/data/*/*",
                "**",
            ] {
                let refusal = found(&store, &format!("memory:///{path}"))
                    .await
                    .expect_err(path);
                assert!(refusal.contains(name), "{path}: {refusal}");
                assert!(refusal.contains("lake/t')"), "{path}: {refusal}");
            }
            let named = found(&store, "memory:///lake/t/data/x=1/a.parquet").await;
            assert_eq!(named, Ok(vec!["lake/t/data/x=1/a.parquet".to_string()]));
        }
    }
}
