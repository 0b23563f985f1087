//! Reopens a lake on another machine from the driver's file listing, and queries parts of it.

use crate::error::{Error, Result};
use crate::read::formats::format::Format;
use crate::read::lake::declared::rules;
use crate::read::lake::errors::failed;
use crate::read::lake::files::{InputFile, LakeTable, Packed};
use crate::read::lake::frozen::ListedFiles;
use crate::read::lake::provider::TableOfFiles;
use crate::read::lake::tables::{format, name_files};
use crate::read::lake::{Lake, Resources, empty};
use crate::read::paths::places;
use crate::store::Stores;
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::SessionContext;
use object_store::ObjectMeta;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Opens a session with tables as they were listed before. Lists nothing.
///
/// # Errors
/// A store that cannot be opened, or tables that do not fit together.
pub(crate) fn reopen(
    found: Vec<LakeTable>,
    resources: &Resources,
    stores: &Stores,
) -> Result<Lake> {
    let roots = found.iter().map(|table| table.root.as_str());
    let remote: BTreeSet<&str> = roots.filter(|root| !root.starts_with("file:")).collect();
    let mut lake = empty(resources, stores, remote.len())?;
    for table in &found {
        register(&lake.context, table, stores, &lake.listed)
            .map_err(|e| e.at(format!("table `{}`", table.name)))?;
    }
    lake.tables = found;
    Ok(lake)
}

impl Lake {
    /// A query over rows that were already read, in their order, in about `streams` streams.
    ///
    /// # Errors
    /// Rows whose columns differ from `schema`.
    pub(crate) fn rows(
        &self,
        schema: &SchemaRef,
        rows: Vec<RecordBatch>,
        streams: usize,
    ) -> Result<DataFrame> {
        let each = rows.len().div_ceil(streams).max(1);
        let mut rest = rows.into_iter();
        let mut parts = Vec::with_capacity(streams);
        loop {
            let part: Vec<RecordBatch> = rest.by_ref().take(each).collect();
            if part.is_empty() && !parts.is_empty() {
                break;
            }
            parts.push(part);
        }
        let table = MemTable::try_new(Arc::clone(schema), parts);
        table
            .and_then(|table| self.context.read_table(Arc::new(table)))
            .map_err(|e| failed("rows that were already read cannot be counted", e))
    }
}

/// Registers a table as it was listed before. Lists nothing.
fn register(
    context: &SessionContext,
    table: &LakeTable,
    stores: &Stores,
    listing: &ListedFiles,
) -> Result<()> {
    let wrong = |e: DataFusionError| failed("its store cannot be named", e);
    let root = ObjectStoreUrl::parse(&table.root).map_err(wrong)?;
    places::store(context, stores, listing, &root)?;
    if table.folders.len() != table.files.len() {
        return Err(Error::bug(
            "its files do not have the values of their folders",
        ));
    }
    let mut files = Vec::with_capacity(table.files.len());
    for (file, values) in table.files.iter().zip(&table.folders) {
        let meta = file.meta(&root)?;
        listing.note(root.as_str(), &meta);
        files.push((meta, values.as_slice()));
    }
    let of_name = |name: &str| Format::ALL.into_iter().find(|f| f.name() == name);
    let kind = of_name(&table.format).ok_or_else(|| Error::bug("it has no format"))?;
    let format = format(kind, &table.dialect, listing);
    let is_folder_column = |f: &Field| table.partition_columns.contains(f.name());
    let fields = table.schema.fields().iter();
    let (of_folders, of_files): (Vec<_>, Vec<_>) = fields.partition(|f| is_folder_column(f));
    let typed = |name: &String| {
        of_folders
            .iter()
            .find(|f| f.name() == name)
            .map(|f| (name.clone(), f.data_type().clone()))
    };
    let of_folders: Vec<_> = table.partition_columns.iter().filter_map(typed).collect();
    let schema = match &table.stored {
        Some(stored) => stored.as_ref().clone(),
        None => Schema::new(of_files.into_iter().cloned().collect::<Vec<_>>()),
    };
    let by_file = &table.by_file;
    let rules = rules(&table.dialect, &schema, &of_folders, kind, by_file)?;
    let files = TableOfFiles::new(&table.name, root, format, schema, &of_folders, files);
    name_files(
        context,
        &table.name,
        files.map(|files| files.with_own_types(by_file).with_rules(rules)),
    )?;
    Ok(())
}

impl InputFile {
    /// The metadata that the store at `root` listed.
    fn meta(&self, root: &ObjectStoreUrl) -> Result<ObjectMeta> {
        let broken =
            |what: &str| Error::bug(format!("{} has no {what} in its store", self.location));
        let path = places::path_at(root, &self.location);
        Ok(ObjectMeta {
            location: path.ok_or_else(|| broken("place"))?,
            last_modified: self.modified.parse().map_err(|_| broken("time"))?,
            size: self.size_bytes,
            e_tag: self.e_tag.clone(),
            version: None,
        })
    }
}

impl From<Packed> for LakeTable {
    fn from(packed: Packed) -> LakeTable {
        let file = |(location, size_bytes, modified, e_tag)| InputFile {
            location,
            size_bytes,
            modified,
            e_tag,
            // Only the plan needs content hashes, and it is already made.
            content: None,
        };
        LakeTable {
            name: packed.name,
            format: packed.format.into(),
            dialect: packed.dialect,
            root: packed.root,
            folders: packed.folders,
            files: packed.files.into_iter().map(file).collect(),
            schema: Arc::new(Schema::new(packed.columns)),
            partition_columns: packed.partition_columns,
            stored: (!packed.stored.is_empty()).then(|| Arc::new(Schema::new(packed.stored))),
            by_file: packed.by_file,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::lake;
    use crate::read::lake::files::TableSource;
    use crate::read::lake::subset::{FilePart, over_part};
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::{DataType, Int64Type};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use std::collections::BTreeMap;

    /// The values of a table of the numbers below 1000 in ten row groups, part by part.
    async fn in_parts(lake: &Lake, of: u64) -> Vec<Vec<i64>> {
        let mut parts = Vec::new();
        for at in 0..of {
            let sql = "SELECT v FROM t WHERE v <> 7";
            let frame = lake.query(sql, &BTreeMap::new()).await.unwrap();
            let frame = over_part(frame, FilePart { at, of }).unwrap();
            let mut values = Vec::new();
            for batch in frame.collect().await.unwrap() {
                values.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
            }
            values.sort_unstable();
            parts.push(values);
        }
        parts
    }

    fn write(file: std::path::PathBuf, values: Vec<i64>, properties: Option<WriterProperties>) {
        let column: ArrayRef = Arc::new(Int64Array::from(values));
        let rows = RecordBatch::try_from_iter([("v", column)]).unwrap();
        let file = std::fs::File::create(file).unwrap();
        let mut writer = ArrowWriter::try_new(file, rows.schema(), properties).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();
    }

    /// The lake of the table `t` in a folder, and the same tables as another process opens them.
    async fn twice(folder: &std::path::Path) -> [Lake; 2] {
        let resources = Resources {
            threads: 2,
            memory_bytes: None,
        };
        let paths = [folder.display().to_string()];
        let sources = [TableSource::of_parquet("t", &paths)];
        let stores = Stores::default();
        let lake = lake::open(&sources, &resources, &stores).await.unwrap();
        let bytes = postcard::to_stdvec(&lake.tables).unwrap();
        let found: Vec<LakeTable> = postcard::from_bytes(&bytes).unwrap();
        [lake, reopen(found, &resources, &stores).unwrap()]
    }

    #[tokio::test]
    async fn a_reopened_table_is_read_whole_and_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100));
        let file = folder.path().join("a.parquet");
        write(file, (0..1000).collect(), Some(properties.build()));
        let [_, lake] = twice(folder.path()).await;
        let all: Vec<i64> = (0..1000).filter(|v| *v != 7).collect();
        for of in [1, 2, 3, 7, 40] {
            let parts = in_parts(&lake, of).await;
            // The end of the file may be a part of its own, without rows.
            let with_rows = parts.iter().filter(|part| !part.is_empty());
            assert!(with_rows.count() > 1 || of < 40, "{of}");
            let mut together = parts.concat();
            together.sort_unstable();
            assert_eq!(together, all, "{of}");
        }
    }

    #[tokio::test]
    async fn reopened_tables_have_the_values_of_folders() {
        let folder = tempfile::tempdir().unwrap();
        for (month, v) in [("1", 1), ("2", 2), ("__HIVE_DEFAULT_PARTITION__", 3)] {
            let folder = folder.path().join(format!("month={month}"));
            std::fs::create_dir_all(&folder).unwrap();
            write(folder.join("a.parquet"), vec![v], None);
        }
        for lake in twice(folder.path()).await {
            assert_eq!(lake.tables[0].schema.field(1).data_type(), &DataType::Int64);
            for (filter, expected) in [
                ("month IS NULL", vec![3]),
                ("month > 1", vec![2]),
                ("NOT (month > 1)", vec![1]),
                ("month IS DISTINCT FROM 1", vec![2, 3]),
            ] {
                let sql = format!("SELECT v FROM t WHERE {filter} ORDER BY v");
                let frame = lake.query(&sql, &BTreeMap::new()).await.unwrap();
                let batches = frame.collect().await.unwrap();
                let values = batches.iter().flat_map(|batch| {
                    batch
                        .column(0)
                        .as_primitive::<Int64Type>()
                        .values()
                        .to_vec()
                });
                assert_eq!(values.collect::<Vec<_>>(), expected, "{filter}");
            }
        }
    }
}
