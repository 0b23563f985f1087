//! The tables of a pipeline → their files, columns and Hive partitions, registered with DataFusion
//! by name.
//!
//! Also checks that the files of a table fit together: they are in one store, in the same Hive
//! folders, and have columns of compatible types.

use crate::error::{Error, Result};
use crate::read::formats::by_name::Named;
use crate::read::formats::column_type::ColumnType;
use crate::read::formats::dialect::Dialect;
use crate::read::formats::format::{Compression, Format};
use crate::read::formats::parquet::Parquet;
use crate::read::lake::declared::{by_file, in_types_of_key, rules};
use crate::read::lake::errors::failed;
use crate::read::lake::exact::{FileColumns, Rounded, settle};
use crate::read::lake::files::{InputFile, LakeTable, TableSource, ident_reference};
use crate::read::lake::frozen::ListedFiles;
use crate::read::lake::merge::merge;
use crate::read::lake::panics::catch_panic;
use crate::read::lake::precision::{Widened, widened};
use crate::read::lake::provider::TableOfFiles;
use crate::read::paths::places;
use crate::read::paths::places::{FoundFile, Place};
use crate::store::Stores;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::TableProvider;
use datafusion::common::DataFusionError;
use datafusion::datasource::file_format::FileFormat;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::SessionContext;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::ObjectStore;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Files whose schemas are read concurrently. A request to a remote store is mostly waiting.
const CONCURRENT_SCHEMAS: usize = 32;

/// Number of distinct remote stores among some paths.
pub(crate) fn remote_stores<'a>(paths: impl Iterator<Item = &'a str>) -> usize {
    let roots = paths.filter_map(|path| {
        let (scheme, rest) = path.split_once("://")?;
        (scheme != "file").then_some((scheme, rest.split('/').next()))
    });
    roots.collect::<BTreeSet<_>>().len()
}

/// Registers a table with a session and returns its files and columns.
///
/// # Errors
/// Files that cannot be read or do not fit together.
pub(crate) async fn register(
    context: &SessionContext,
    source: &TableSource<'_>,
    stores: &Stores,
    listing: &ListedFiles,
) -> Result<LakeTable> {
    let (root, mut files) = list(context, source, stores, listing).await?;
    let partition_columns = one_per_file(source, &root, &mut files)?;
    for file in &files {
        listing.note(root.as_str(), &file.meta);
    }
    let format = format(source.format, &source.dialect, listing);
    let columns = columns(
        context,
        source,
        (&root, &files[..]),
        &format,
        &partition_columns,
    )
    .await?;
    let rules = rules(
        &source.dialect,
        &columns.schema,
        &partition_columns,
        source.format,
        &columns.by_file,
    )?;
    let folders: Vec<Vec<Option<String>>> = files
        .iter_mut()
        .map(|file| std::mem::take(&mut file.folders))
        .map(|folders| folders.into_iter().map(|(_, value)| value).collect())
        .collect();
    let of_table = files
        .iter()
        .zip(&folders)
        .map(|(file, values)| (file.meta.clone(), values.as_slice()));
    let of_table = TableOfFiles::new(
        source.name,
        root.clone(),
        format,
        columns.schema,
        &partition_columns,
        of_table.collect(),
    );
    let of_table = of_table.map(|table| {
        let table = table
            .with_rounded(columns.rounded)
            .with_widened(columns.widened);
        table.with_own_types(&columns.by_file).with_rules(rules)
    });
    let stored = of_table
        .as_ref()
        .ok()
        .and_then(TableOfFiles::stored_files)
        .cloned();
    let schema = name_files(context, source.name, of_table)?;
    let listed = files.into_iter().map(|file| InputFile {
        location: file.shown,
        size_bytes: file.meta.size,
        modified: file.meta.last_modified.to_rfc3339(),
        e_tag: file.meta.e_tag,
        content: None,
    });
    Ok(LakeTable {
        name: source.name.to_string(),
        format: source.format.name().into(),
        dialect: source.dialect.clone(),
        root: root.as_str().to_string(),
        files: listed.collect(),
        folders,
        schema,
        partition_columns: partition_columns
            .into_iter()
            .map(|(name, _)| name)
            .collect(),
        stored,
        by_file: columns.by_file,
    })
}

/// Orders files by location, each of them once. Returns the columns that have one value per file:
/// those of Hive folders, and the path.
fn one_per_file(
    source: &TableSource<'_>,
    root: &ObjectStoreUrl,
    files: &mut Vec<FoundFile>,
) -> Result<Vec<(String, DataType)>> {
    // Rows are read in the order of files, so this fixes the order of rows.
    files.sort_by(|a, b| a.meta.location.cmp(&b.meta.location));
    let mut columns = hive_columns(files, &source.dialect.types)?;
    keep_once(files)?;
    if let Some(name) = source.filename {
        add_filename(name, root, files, &mut columns)?;
    }
    Ok(columns)
}

/// The columns of the files of a table.
struct Columns {
    schema: Schema,
    /// The columns of doubles with a number that is no double.
    rounded: Vec<Rounded>,
    /// The columns that some files hold with less precision.
    widened: Vec<Widened>,
    /// The columns to which the keys apply in the type of each file.
    by_file: BTreeSet<String>,
}

/// The columns of the files at a store, without those of `one_per_file`.
async fn columns(
    context: &SessionContext,
    source: &TableSource<'_>,
    (root, files): (&ObjectStoreUrl, &[FoundFile]),
    format: &Arc<dyn FileFormat>,
    one_per_file: &[(String, DataType)],
) -> Result<Columns> {
    let store = context.runtime_env().object_store(root);
    let store = store.map_err(|e| failed("its store", e))?;
    let schemas = schemas_of(context, format, source.format.name(), &store, files).await?;
    let by_file = by_file(&source.dialect, source.format, &schemas)?;
    let schemas = in_types_of_key(&source.dialect, schemas, &by_file);
    let merged = merge(&schemas)?;
    if let Some(name) = source.filename
        && merged.column_with_name(name).is_some()
    {
        return Err(is_column_already(name, "of its files"));
    }
    // If a folder column also exists in the files, the folder wins.
    let is_folder = |f: &Field| one_per_file.iter().any(|(name, _)| name == f.name());
    let fields = merged.fields().iter().filter(|f| !is_folder(f)).cloned();
    let mut schema = Schema::new(fields.collect::<Vec<_>>());
    let of_files = FileColumns {
        format: source.format,
        store: &store,
        files,
        schemas: &schemas,
    };
    let rounded = settle(&of_files, &mut schema).await?;
    Ok(Columns {
        widened: widened(&schemas, &schema),
        schema,
        rounded,
        by_file,
    })
}

/// The store and the files of a table, without the empty ones.
async fn list(
    context: &SessionContext,
    source: &TableSource<'_>,
    stores: &Stores,
    listing: &ListedFiles,
) -> Result<(ObjectStoreUrl, Vec<FoundFile>)> {
    let mut root: Option<ObjectStoreUrl> = None;
    let mut files: Vec<FoundFile> = Vec::new();
    // In a folder only files of the format count; a path of a file or a glob is explicit.
    let ending =
        |names: &mut dyn Iterator<Item = &str>| extension_of(source.format, &source.dialect, names);
    for path in source.paths {
        let place = Place::of(path)?;
        let first = root.get_or_insert_with(|| place.root.clone());
        if *first != place.root {
            return Err(Error::input(format!(
                "its paths are in several stores ({} and {}); define one table per store and combine them in the SQL with UNION ALL",
                first.as_str(),
                place.root.as_str()
            )));
        }
        let store = places::store(context, stores, listing, &place.root)?;
        let found = places::files(place, &store, path, ending).await?;
        files.extend(without_empty(found, source.format.name())?);
    }
    let root = root.ok_or_else(|| Error::bug("it has no path"))?;
    Ok((root, files))
}

/// The files that are not empty. Binary files are never empty, and not all files may be.
fn without_empty(mut found: Vec<FoundFile>, named: &str) -> Result<Vec<FoundFile>> {
    let is_binary = matches!(named, "parquet" | "arrow");
    let ending = format!(".{named}");
    let is_cut = |file: &&FoundFile| {
        is_binary && file.meta.size == 0 && file.meta.location.as_ref().ends_with(&ending)
    };
    if let Some(file) = found.iter().find(is_cut) {
        let shown = &file.shown;
        return Err(Error::input(format!(
            "{shown} is empty, so it is not a {named} file: its writer did not finish; restore it or remove it"
        )));
    }
    if found.iter().all(|file| file.meta.size == 0) {
        let shown = &found[0].shown;
        return Err(Error::input(format!(
            "{shown} is empty: it has no columns and no rows; remove it, or write a header"
        )));
    }
    found.retain(|file| file.meta.size > 0);
    Ok(found)
}

/// Removes repeated files from files in order of their locations.
fn keep_once(files: &mut Vec<FoundFile>) -> Result<()> {
    let same = |a: &FoundFile, b: &FoundFile| a.meta.location == b.meta.location;
    let mut pairs = files.iter().zip(files.iter().skip(1));
    if let Some((one, _)) = pairs.find(|(a, b)| same(a, b) && a.folders != b.folders) {
        return Err(Error::input(format!(
            "{} is reached through two Hive folders with different values; keep one path to it",
            one.shown
        )));
    }
    files.dedup_by(|a, b| same(a, b));
    Ok(())
}

/// Adds a column with the path of each file, which has one value per file, as those of folders.
fn add_filename(
    name: &str,
    root: &ObjectStoreUrl,
    files: &mut [FoundFile],
    columns: &mut Vec<(String, DataType)>,
) -> Result<()> {
    if columns.iter().any(|(column, _)| column == name) {
        return Err(is_column_already(name, "of its Hive folders"));
    }
    for file in files {
        let path = filename(root, file);
        file.folders.push((name.to_string(), Some(path)));
    }
    columns.push((name.to_string(), DataType::Utf8));
    Ok(())
}

/// The path of a file on disk, or the URL of another file.
fn filename(root: &ObjectStoreUrl, file: &FoundFile) -> String {
    if root.as_str().starts_with("file:") {
        return format!("/{}", file.meta.location);
    }
    file.shown.clone()
}

fn is_column_already(name: &str, of: &str) -> Error {
    Error::spec(format!(
        "`filename` cannot be \"{name}\", because a column {of} has this name; give the column with the file another name"
    ))
}

/// The schemas of files, each with the name of its file.
///
/// Schemas are read file by file, so that an error names its file, and each by a task of its own,
/// so that all threads parse them.
async fn schemas_of<'a>(
    context: &SessionContext,
    format: &Arc<dyn FileFormat>,
    named: &str,
    store: &Arc<dyn ObjectStore>,
    files: &'a [FoundFile],
) -> Result<Vec<(SchemaRef, &'a str)>> {
    let state = Arc::new(context.state());
    let schemas = stream::iter(files).map(|file| {
        let (format, state) = (Arc::clone(format), Arc::clone(&state));
        let (store, meta) = (Arc::clone(store), file.meta.clone());
        async move {
            // A footer may claim to be longer than its file, and not every reader checks.
            let schema = tokio::spawn(async move {
                let objects = std::slice::from_ref(&meta);
                catch_panic(format.infer_schema(&*state, &store, objects)).await
            });
            let schema = schema.await.ok().flatten();
            let what = || format!("{} is not a readable {named} file", file.shown);
            let schema =
                schema.ok_or_else(|| Error::input(format!("{}: its end is damaged", what())))?;
            let schema = schema.map_err(|e| failed(&what(), e))?;
            Ok((schema, file.shown.as_str()))
        }
    });
    schemas.buffered(CONCURRENT_SCHEMAS).try_collect().await
}

/// Registers files under the name of a table; returns all columns.
pub(crate) fn name_files(
    context: &SessionContext,
    name: &str,
    table: Result<TableOfFiles, DataFusionError>,
) -> Result<SchemaRef> {
    let unregistered = |e: DataFusionError| failed("cannot be registered", e);
    let table = table.map_err(unregistered)?;
    let schema = table.schema();
    context
        .register_table(ident_reference(name), Arc::new(table))
        .map_err(unregistered)?;
    Ok(schema)
}

/// DataFusion's reader of a format.
pub(crate) fn format(
    format: Format,
    dialect: &Dialect,
    listing: &ListedFiles,
) -> Arc<dyn FileFormat> {
    match format {
        Format::Parquet => Arc::new(Parquet::default()),
        _ => Arc::new(Named::new(format, dialect.clone(), listing)),
    }
}

/// The extension of the table's files in a folder. Compressed files beside uncompressed ones may
/// hold the same rows, so a mixture is an error.
fn extension_of<'a>(
    format: Format,
    dialect: &Dialect,
    names: impl Iterator<Item = &'a str>,
) -> Result<String, String> {
    use Compression::{Gzip, None, Zstd};
    let ending = |packed: Compression| format!(".{}{}", format.name(), packed.ending());
    if let Some(asked) = dialect.compression {
        return Ok(ending(asked));
    }
    let endings = if format.is_text() {
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

/// Hive partition columns, which must be the same for all files. Unless `types` says otherwise, a
/// column is integer if every non-null value is an integer in canonical form, else text.
fn hive_columns(
    files: &[FoundFile],
    types: &BTreeMap<String, ColumnType>,
) -> Result<Vec<(String, DataType)>> {
    let names = |file: &FoundFile| -> Vec<String> {
        file.folders.iter().map(|(name, _)| name.clone()).collect()
    };
    let Some(first) = files.first() else {
        return Ok(Vec::new());
    };
    let columns = names(first);
    if let Some(other) = files.iter().find(|file| names(file) != columns) {
        return Err(Error::input(format!(
            "its files are in different Hive folders: {} and {}",
            first.shown, other.shown
        )));
    }
    let mut repeated = (1..columns.len()).filter(|at| columns[..*at].contains(&columns[*at]));
    if let Some(at) = repeated.next() {
        return Err(Error::input(format!(
            "{} is in two Hive folders of the column `{}`",
            first.shown, columns[at]
        )));
    }
    let is_integer = |at: usize| {
        let mut values = files.iter().filter_map(|file| file.folders[at].1.as_ref());
        // A column with only nulls is text, as in DuckDB.
        let is_known = values.clone().next().is_some();
        is_known && values.all(|v| v.parse::<i64>().is_ok_and(|n| n.to_string() == *v))
    };
    let typed = columns.into_iter().enumerate().map(|(at, name)| {
        let of = match types.get(&name) {
            None if is_integer(at) => DataType::Int64,
            None | Some(ColumnType::Text) => DataType::Utf8,
            Some(ColumnType::Integer) => whole_numbers(files, at)?,
            Some(_) => {
                return Err(Error::spec(format!(
                    "`types.{name}` does not fit: the values of `{name}` are names of folders, which are \"text\" or \"integer\""
                )));
            }
        };
        Ok((name, of))
    });
    typed.collect()
}

/// The type of the values of a folder column, which must all be whole numbers.
fn whole_numbers(files: &[FoundFile], at: usize) -> Result<DataType> {
    for file in files {
        let (name, value) = &file.folders[at];
        if let Some(value) = value
            && value.parse::<i64>().is_err()
        {
            return Err(Error::input(format!(
                "column `{name}` holds `{value}` in {}, which is no whole number of 64 bits, as `types` requires",
                file.shown
            )));
        }
    }
    Ok(DataType::Int64)
}
