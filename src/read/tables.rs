//! The tables of a pipeline → their files, columns and Hive partitions, registered with DataFusion by name.
//!
//! DataFusion leaves out, without a word, files that do not lie in the Hive folders of the others. What is checked here is that
//! there are none of those, that the files go together, and that all of them lie in one store.

use super::caught::caught;
use super::csv::Dialect;
use super::failed;
use super::listed::Listed;
use super::named::Named;
use super::text::held_by;
use crate::error::{Error, Result};
use crate::files::location;
use crate::spec;
use crate::stores::{self, Stores};
use crate::words::Word;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::DataFusionError;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::logical_expr::type_coercion::binary::type_union_resolution;
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Files whose columns are looked at at a time: a request to a distant store takes much longer than it keeps anybody busy.
const LOOKED_AT: usize = 32;

/// One input file as it was listed: enough to see that it has changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    pub location: String,
    pub size_bytes: u64,
    pub modified: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e_tag: Option<String>,
}

/// A table as it was found.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(from = "super::again::Packed", into = "super::again::Packed")]
pub struct Table {
    pub name: String,
    pub format: Word,
    /// How its files are written, where they are text.
    pub dialect: Dialect,
    /// Where its files were looked for.
    pub paths: Vec<Listing>,
    pub files: Vec<InputFile>,
    pub schema: SchemaRef,
    /// Hive partition columns, also in `schema`.
    pub partition_columns: Vec<String>,
}

/// A file or folder as a URL, and the glob below it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Listing {
    pub(super) url: String,
    pub(super) glob: Option<String>,
}

impl Table {
    /// Where its files were looked for.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(|listing| listing.url.as_str())
    }
}

/// Where a table lies and how it is written, as the pipeline says.
pub struct TableSource<'a> {
    pub name: &'a str,
    pub paths: &'a [String],
    pub format: spec::Format,
    pub dialect: Dialect,
}

impl<'a> TableSource<'a> {
    pub fn new(name: &'a str, table: &'a spec::Table) -> Self {
        TableSource {
            name,
            paths: &table.path,
            format: table.kind(),
            dialect: Dialect::from(table),
        }
    }

    /// A table of Parquet files.
    pub fn of_parquet(name: &'a str, paths: &'a [String]) -> Self {
        TableSource {
            name,
            paths,
            format: spec::Format::Parquet,
            dialect: Dialect::default(),
        }
    }
}

/// How many remote stores some paths lie in.
pub fn remote_stores<'a>(paths: impl Iterator<Item = &'a str>) -> usize {
    let roots = paths.filter_map(|path| {
        let (scheme, rest) = path.split_once("://")?;
        (scheme != "file").then_some((scheme, rest.split('/').next()))
    });
    roots.collect::<BTreeSet<_>>().len()
}

/// A file of a table.
struct Found {
    meta: ObjectMeta,
    /// The file as messages and records show it.
    shown: String,
    /// Hive folders between the path of the table and the file, as (column, value).
    folders: Vec<(String, String)>,
}

/// Makes a table known to a session, and says what was found.
pub async fn register(
    context: &SessionContext,
    source: &TableSource<'_>,
    stores: &Stores,
    noted: &Listed,
) -> Result<Table> {
    let named = register_files(context, source, stores, noted).await;
    named.map_err(|e| e.at(format!("table `{}`", source.name)))
}

async fn register_files(
    context: &SessionContext,
    source: &TableSource<'_>,
    stores: &Stores,
    noted: &Listed,
) -> Result<Table> {
    let named = source.format.name();
    let format = format(source.format, &source.dialect, noted);
    // Caches are kept by this name and a path: one of the store alone could be that of another table in another store.
    let reference = super::ident_reference(source.name);
    let state = context.state();
    let mut urls: Vec<ListingTableUrl> = Vec::new();
    let mut files: Vec<Found> = Vec::new();
    // In a folder only files of the format count; a file or a glob says itself what it means.
    let mut extension = String::new();
    for path in source.paths {
        let (url, store) = locate(context, stores, noted, path).await?;
        let url = url.with_table_ref(reference.clone());
        if let Some(first) = urls.first().map(ListingTableUrl::object_store)
            && first != url.object_store()
        {
            return Err(Error::input(format!(
                "its paths lie in several stores ({} and {}); make tables of them and join these in the SQL by UNION ALL",
                first.as_str(),
                url.object_store().as_str()
            )));
        }
        let unlisted = |e| failed(&format!("cannot list {path}"), e);
        let listed = url.list_all_files(&state, store.as_ref(), "").await;
        let listed = listed.map_err(unlisted)?.try_collect::<Vec<_>>().await;
        let mut listed = listed.map_err(unlisted)?;
        if listed
            .iter()
            .any(|meta| is_in(&meta.location, "_delta_log"))
        {
            return Err(Error::input(format!(
                "{path} is a Delta table, some of whose files may hold rows that are no longer in it; write it out as Parquet, or name the files"
            )));
        }
        let is_binary = matches!(named, "parquet" | "arrow");
        let is_cut = |meta: &&ObjectMeta| {
            let ending = format!(".{named}");
            is_binary && meta.size == 0 && meta.location.as_ref().ends_with(&ending)
        };
        if let Some(meta) = listed.iter().find(is_cut) {
            let shown = location(url.object_store().as_str(), &meta.location);
            return Err(Error::input(format!(
                "{shown} is empty, which no {named} file is: whoever wrote it did not get to its end; restore it or remove it"
            )));
        }
        if is_folder(&url) {
            let names = listed.iter().map(|meta| meta.location.as_ref());
            extension = extension_of(source.format, &source.dialect, names)
                .map_err(|e| Error::input(format!("{path} {e}")))?;
        }
        listed.retain(|meta| meta.location.as_ref().ends_with(&extension));
        if !listed.is_empty() && listed.iter().all(|meta| meta.size == 0) {
            let shown = location(url.object_store().as_str(), &listed[0].location);
            return Err(Error::input(format!(
                "{shown} is empty: it has no columns, and no row; remove it, or write a header"
            )));
        }
        listed.retain(|meta| meta.size > 0);
        if listed.is_empty() {
            return Err(nothing_at(path, &url, &extension));
        }
        let root = url.object_store();
        for meta in listed {
            noted.note(root.as_str(), &meta);
            let shown = location(root.as_str(), &meta.location);
            let folders = hive_folders(&url, &meta.location)
                .map_err(|message| Error::input(format!("{shown}: {message}")))?;
            files.push(Found {
                meta,
                shown,
                folders,
            });
        }
        urls.push(url);
    }
    // The order of the columns is that of the files.
    files.sort_by(|a, b| a.meta.location.cmp(&b.meta.location));
    let partition_columns = hive_columns(&files)?;
    files.dedup_by(|a, b| a.meta.location == b.meta.location);

    let Some(first) = urls.first() else {
        return Err(Error::bug("it has no path"));
    };
    let store = context
        .runtime_env()
        .object_store(first)
        .map_err(|e| failed("its store", e))?;
    // File by file, so that a file that cannot be read is named.
    let schemas = stream::iter(&files).map(|file| {
        let objects = std::slice::from_ref(&file.meta);
        let schema = format.infer_schema(&state, &store, objects);
        async move {
            let what = || format!("{} is no readable {named} file", file.shown);
            // A footer may say that it is longer than its file, and not every reader asks.
            let schema = caught(schema).await;
            let schema =
                schema.ok_or_else(|| Error::input(format!("{}: its end is damaged", what())))?;
            let schema = schema.map_err(|e| failed(&what(), e))?;
            Ok::<_, Error>((schema, file.shown.as_str()))
        }
    });
    let schemas: Vec<_> = schemas.buffered(LOOKED_AT).try_collect().await?;
    let mut schema = merge(&schemas)?;
    // A column that is in the files as well is that of the folders.
    let is_folder = |f: &Field| partition_columns.iter().any(|(name, _)| name == f.name());
    let fields = schema.fields().iter().filter(|f| !is_folder(f)).cloned();
    schema = Schema::new(fields.collect::<Vec<_>>());

    let listing = |url: &ListingTableUrl| Listing {
        url: url.get_url().to_string(),
        glob: url.get_glob().as_ref().map(|glob| glob.to_string()),
    };
    let paths = urls.iter().map(listing).collect();
    let options = ListingOptions::new(format)
        .with_file_extension(extension)
        .with_table_partition_cols(partition_columns.clone());
    let schema = name_files(context, source.name, urls, options, schema)?;
    let listed = files.into_iter().map(|file| InputFile {
        location: file.shown,
        size_bytes: file.meta.size,
        modified: file.meta.last_modified.to_rfc3339(),
        e_tag: file.meta.e_tag,
    });
    Ok(Table {
        name: source.name.to_string(),
        format: named,
        dialect: source.dialect.clone(),
        paths,
        files: listed.collect(),
        schema,
        partition_columns: partition_columns
            .into_iter()
            .map(|(name, _)| name)
            .collect(),
    })
}

/// Lets a session know files by the name of a table; returns all columns of them.
pub(super) fn name_files(
    context: &SessionContext,
    name: &str,
    urls: Vec<ListingTableUrl>,
    options: ListingOptions,
    schema: Schema,
) -> Result<SchemaRef> {
    let config = ListingTableConfig::new_with_multi_paths(urls)
        .with_listing_options(options)
        .with_schema(Arc::new(schema));
    let unregistered = |e: DataFusionError| failed("cannot be registered", e);
    let table = ListingTable::try_new(config).map_err(unregistered)?;
    let statistics = &context.runtime_env().cache_manager;
    let table = table.with_cache(statistics.get_file_statistic_cache());
    let schema = table.schema();
    context
        .register_table(super::ident_reference(name), Arc::new(table))
        .map_err(unregistered)?;
    Ok(schema)
}

/// Whether a path is that of a folder: only files of the format count in it.
pub(super) fn is_folder(url: &ListingTableUrl) -> bool {
    url.is_collection() && url.get_glob().is_none()
}

/// How DataFusion reads files of a format.
pub(super) fn format(
    format: spec::Format,
    dialect: &Dialect,
    noted: &Listed,
) -> Arc<dyn FileFormat> {
    match format {
        spec::Format::Parquet => Arc::new(ParquetFormat::default()),
        _ => Arc::new(Named::new(format, dialect.clone(), noted)),
    }
}

/// How the names of the files of a table end in a folder. Files that are packed beside others that are not may hold the same rows.
pub(super) fn extension_of<'a>(
    format: spec::Format,
    dialect: &Dialect,
    names: impl Iterator<Item = &'a str>,
) -> Result<String, String> {
    use spec::Compression::{Gzip, None, Zstd};
    let ending = |packed: spec::Compression| format!(".{}{}", format.name(), packed.ending());
    if let Some(asked) = dialect.asked_compression() {
        return Ok(ending(asked));
    }
    let is_text = matches!(format, spec::Format::Csv | spec::Format::Json);
    let endings = if is_text {
        &[None, Gzip, Zstd][..]
    } else {
        &[None][..]
    };
    let endings: Vec<String> = endings.iter().map(|packed| ending(*packed)).collect();
    let mut found = BTreeSet::new();
    for name in names {
        found.extend(endings.iter().filter(|ending| name.ends_with(*ending)));
    }
    match found.into_iter().collect::<Vec<_>>()[..] {
        [] => Ok(ending(None)),
        [one] => Ok(one.clone()),
        [one, another, ..] => Err(format!(
            "has {one} and {another} files, which may hold the same rows; say which ones by `compression`, or by a glob"
        )),
    }
}

/// What a path means, and the store that it is in, which the session knows from here on.
async fn locate(
    context: &SessionContext,
    stores: &Stores,
    noted: &Listed,
    path: &str,
) -> Result<(ListingTableUrl, Arc<dyn ObjectStore>)> {
    stores::check(path).map_err(Error::input)?;
    let wrong = |e: DataFusionError| failed(&format!("{path} is no path or URL"), e);
    let is_glob = path.contains(['*', '?', '[']);
    if !path.contains("://") {
        if !is_glob && !std::path::Path::new(path).exists() {
            return Err(Error::input(format!("no file or folder at {path}")));
        }
        let url = ListingTableUrl::parse(path).map_err(wrong)?;
        let store = context.runtime_env().object_store(&url).map_err(wrong)?;
        return Ok((url, store));
    }
    let (folder, glob) = split_glob(path)?;
    let no_url = |e: url::ParseError| wrong(DataFusionError::External(Box::new(e)));
    let url = stores::url(folder).map_err(no_url)?;
    let mut url = url.ok_or_else(|| Error::bug(format!("{path} is no URL")))?;
    if url.path().is_empty() {
        url.set_path("/");
    }
    let root = ListingTableUrl::try_new(url.clone(), None).map_err(wrong)?;
    if url.scheme() != "file" {
        let store = noted.of(root.object_store().as_str(), stores.store(&url)?);
        context.register_object_store(&url, store);
    }
    let store = context.runtime_env().object_store(&root).map_err(wrong)?;
    let is_http = url.scheme().starts_with("http");
    if is_http && (glob.is_some() || root.is_collection()) {
        return Err(Error::input(format!(
            "{path} is no single file, and web servers do not list what they have; name the files"
        )));
    }
    if glob.is_none() && !root.is_collection() {
        match store.head(root.prefix()).await {
            Ok(_) => (),
            Err(StoreError::NotFound { .. }) if is_http => {
                return Err(Error::input(format!("no file at {path}")));
            }
            // What is no file is a folder.
            Err(StoreError::NotFound { .. }) => url.set_path(&format!("{}/", url.path())),
            Err(e) => return Err(failed(&format!("cannot find {path}"), e.into())),
        }
    }
    let mut listing = ListingTableUrl::try_new(url, None).map_err(wrong)?;
    if let Some(glob) = glob {
        listing = listing.with_glob(glob).map_err(wrong)?;
    }
    Ok((listing, store))
}

/// The folder of a URL that every match of its glob lies in, and the glob below it.
fn split_glob(url: &str) -> Result<(&str, Option<&str>)> {
    let Some(at) = url.find(['*', '?', '[']) else {
        return Ok((url, None));
    };
    let path = url.find("://").map_or(0, |at| at + 3);
    match url[..at].rfind('/') {
        Some(slash) if slash >= path => Ok((&url[..=slash], Some(&url[slash + 1..]))),
        _ => Err(Error::input(format!(
            "{url} has a glob in the name of the bucket"
        ))),
    }
}

fn is_in(location: &Path, folder: &str) -> bool {
    location.parts().any(|part| part.as_ref() == folder)
}

fn nothing_at(path: &str, url: &ListingTableUrl, extension: &str) -> Error {
    let mut message = format!("no file at {path}");
    if !extension.is_empty() {
        message = format!("no {extension} file at {path}");
    }
    let sees_folders = |glob: &str| glob.contains(['/', '=']);
    if url
        .get_glob()
        .as_ref()
        .is_some_and(|glob| sees_folders(glob.as_str()))
    {
        message += "; a glob does not see Hive folders such as year=2024/: leave them out of it, and filter by their columns in the SQL";
    }
    Error::input(message)
}

/// The Hive folders between the path of a table and a file in it. They come before all others: DataFusion drops the file if not.
fn hive_folders(url: &ListingTableUrl, file: &Path) -> Result<Vec<(String, String)>, String> {
    let mut segments: Vec<&str> = url.strip_prefix(file).into_iter().flatten().collect();
    segments.pop();
    let mut folders = Vec::new();
    for (at, segment) in segments.iter().enumerate() {
        let Some((name, value)) = segment.split_once('=') else {
            continue;
        };
        if folders.len() < at {
            return Err(format!(
                "the Hive folder {segment}/ lies below the folder {}/, which is none",
                segments[folders.len()]
            ));
        }
        folders.push((name.to_string(), value.to_string()));
    }
    Ok(folders)
}

/// Hive partition columns: the same for all files. Integers where every value is one as it would be written, else strings.
fn hive_columns(files: &[Found]) -> Result<Vec<(String, DataType)>> {
    let names = |file: &Found| -> Vec<String> {
        let folders = file.folders.iter();
        folders.map(|(name, _)| name.clone()).collect()
    };
    let Some(first) = files.first() else {
        return Ok(Vec::new());
    };
    let columns = names(first);
    if let Some(other) = files.iter().find(|file| names(file) != columns) {
        return Err(Error::input(format!(
            "its files lie in different Hive folders: {} and {}",
            first.shown, other.shown
        )));
    }
    let is_integer = |at: usize| {
        let mut values = files.iter().map(|file| &file.folders[at].1);
        values.all(|v| v.parse::<i64>().is_ok_and(|n| n.to_string() == *v))
    };
    let typed = columns.into_iter().enumerate().map(|(at, name)| {
        if is_integer(at) {
            (name, DataType::Int64)
        } else {
            (name, DataType::Utf8)
        }
    });
    Ok(typed.collect())
}

/// One schema for all files, which come with their names: columns by name, null where a file lacks one, integers and floats widened
/// where files differ.
fn merge(schemas: &[(SchemaRef, &str)]) -> Result<Schema> {
    // Each column with the file that it has its type from, and in how many files it is.
    let mut columns: Vec<(Field, &str, usize)> = Vec::new();
    for (schema, file) in schemas {
        for new in schema.fields() {
            let Some((old, of, n)) = columns.iter_mut().find(|(f, ..)| f.name() == new.name())
            else {
                columns.push((new.as_ref().clone(), file, 1));
                continue;
            };
            *n += 1;
            let (a, b) = (old.data_type().clone(), new.data_type().clone());
            let nullable = old.is_nullable() || new.is_nullable();
            if a == DataType::Null {
                *old = old.clone().with_data_type(b);
                *of = file;
            } else if a != b && b != DataType::Null {
                let wide = type_union_resolution(&[a.clone(), b.clone()]);
                let wide = wide.filter(|_| a.is_numeric() == b.is_numeric());
                let wide = wide.ok_or_else(|| {
                    let (mut a, mut b) = (held_by(&a).to_string(), held_by(&b).to_string());
                    if a == b {
                        (a, b) = (old.data_type().to_string(), new.data_type().to_string());
                    }
                    Error::input(format!(
                        "its files do not agree on the columns: `{}` holds {a} in {of} and {b} in {file}",
                        new.name()
                    ))
                })?;
                if wide == b {
                    *of = file;
                }
                *old = old.clone().with_data_type(wide);
            }
            *old = old.clone().with_nullable(nullable);
        }
    }
    let fields = columns.into_iter().map(|(field, _, n)| {
        let nullable = field.is_nullable() || n < schemas.len();
        field.with_nullable(nullable)
    });
    Ok(Schema::new(fields.collect::<Vec<_>>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folders(table: &str, file: &str) -> Result<Vec<(String, String)>, String> {
        let url = ListingTableUrl::parse(table).expect("a URL");
        hive_folders(&url, &Path::from(file))
    }

    #[test]
    fn hive_folders_come_first() {
        let none = Vec::new();
        assert_eq!(folders("s3://b/t/", "t/a.parquet"), Ok(none.clone()));
        assert_eq!(
            folders("s3://b/t/x=1/a.parquet", "t/x=1/a.parquet"),
            Ok(none.clone())
        );
        assert_eq!(folders("s3://b/t/", "t/sub/x=1.parquet"), Ok(none));
        let found = folders("s3://b/t/", "t/year=2024/m=b=c/sub/a.parquet");
        let expected = [("year", "2024"), ("m", "b=c")];
        assert_eq!(
            found,
            Ok(expected.map(|(k, v)| (k.into(), v.into())).to_vec())
        );
        assert_eq!(
            folders("s3://b/t/", "t/sub/x=1/a.parquet"),
            Err("the Hive folder x=1/ lies below the folder sub/, which is none".into())
        );
    }

    #[test]
    fn schemas_are_merged_in_either_order() {
        let schema = |fields: &[(&str, DataType)]| {
            let fields = fields.iter().map(|(n, t)| Field::new(*n, t.clone(), false));
            Arc::new(Schema::new(fields.collect::<Vec<_>>()))
        };
        let old = (schema(&[("a", DataType::Int32)]), "old");
        let new = (
            schema(&[("a", DataType::Int64), ("b", DataType::Utf8)]),
            "new",
        );
        for files in [[old.clone(), new.clone()], [new, old.clone()]] {
            let merged = merge(&files).expect("one schema");
            assert_eq!(*merged.field(0), Field::new("a", DataType::Int64, false));
            assert_eq!(*merged.field(1), Field::new("b", DataType::Utf8, true));
        }
        let text = (schema(&[("a", DataType::Utf8)]), "text");
        // A column without a value is of any type.
        let null = (schema(&[("a", DataType::Null)]), "null");
        for files in [[old.clone(), null.clone()], [null, old.clone()]] {
            let merged = merge(&files).expect("one schema");
            assert_eq!(*merged.field(0).data_type(), DataType::Int32);
        }
        let clash = merge(&[old, text]).expect_err("no number is a text");
        assert_eq!(
            clash.to_string(),
            "its files do not agree on the columns: `a` holds whole numbers in old and text in text"
        );
    }

    #[test]
    fn globs_begin_after_the_bucket() {
        let split = |url| split_glob(url).map_err(|e| e.to_string());
        assert_eq!(
            split("s3://b/t/a.parquet"),
            Ok(("s3://b/t/a.parquet", None))
        );
        assert_eq!(
            split("s3://b/t/20*/a?.csv"),
            Ok(("s3://b/t/", Some("20*/a?.csv")))
        );
        assert_eq!(split("memory:///*"), Ok(("memory:///", Some("*"))));
        assert!(split("s3://b*/t").is_err());
    }
}
