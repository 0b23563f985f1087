//! What was found or read before, maybe elsewhere → a lake, and a query.

use super::csv::Dialect;
use super::listed::Listed;
use super::tables::{self, Listing, extension_of, format, is_folder, name_files};
use super::{InputFile, Lake, Resources, Stop, Table, empty, failed, ident_reference};
use crate::count::{Dealer, Layout, ipc};
use crate::error::{Error, Result};
use crate::spec;
use crate::stores::Stores;
use crate::words::word;
use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::DataFusionError;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::MemTable;
use datafusion::datasource::listing::{ListingOptions, ListingTableUrl};
use datafusion::prelude::SessionContext;
use object_store::ObjectMeta;
use object_store::path::Path;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use url::{Position, Url};

/// Opens a session with tables as they were found before: nothing is listed, and of each table its `files` are read.
pub fn reopen(found: Vec<Table>, resources: &Resources, stores: &Stores) -> Result<Lake> {
    let remote_stores = tables::remote_stores(found.iter().flat_map(Table::urls));
    let mut lake = empty(resources, stores, remote_stores)?;
    for table in &found {
        register(&lake.context, table, stores, &lake.listed)?;
    }
    lake.tables = found;
    Ok(lake)
}

impl Lake {
    /// A query of rows that were read before, in their order, in about so many streams.
    pub fn rows(
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
        let query = table.and_then(|table| self.context.read_table(Arc::new(table)));
        query.map_err(|e| failed("rows that were read cannot be counted", e))
    }

    /// Deals the rows of a query that has the columns of `layout` into `n` lots, so that a trajectory is in one of them, in the order of the
    /// files.
    pub async fn deal(
        &self,
        frame: DataFrame,
        layout: &Arc<Layout>,
        n: usize,
    ) -> Result<Vec<Vec<RecordBatch>>> {
        let of_streams = Arc::clone(layout);
        let dealers = self.each_stream(frame, move |_| {
            let push = |batch: &RecordBatch, dealer: &mut Dealer| Ok(dealer.push(batch)?);
            Ok((Dealer::of_rows(&of_streams, n)?, push))
        });
        let dealers = dealers.await.map_err(|stop| match stop {
            Stop::Failed(e) => e,
            stop => Error::bug(format!("dealing rows stopped: {stop:?}")),
        })?;
        let mut lots = vec![Vec::new(); n];
        for dealer in dealers {
            for (lot, rows) in lots.iter_mut().zip(dealer.finish()?) {
                lot.extend(rows);
            }
        }
        Ok(lots)
    }
}

/// Makes a table known to a session as it was found before, maybe elsewhere: nothing is listed, and its files are those that it names.
fn register(
    context: &SessionContext,
    table: &Table,
    stores: &Stores,
    noted: &Listed,
) -> Result<()> {
    let named = register_known(context, table, stores, noted);
    named.map_err(|e| e.at(format!("table `{}`", table.name)))
}

fn register_known(
    context: &SessionContext,
    table: &Table,
    stores: &Stores,
    noted: &Listed,
) -> Result<()> {
    let wrong = |e: DataFusionError| failed("a file of it cannot be named", e);
    let mut urls = Vec::with_capacity(table.paths.len());
    for Listing { url, glob } in &table.paths {
        let url = Url::parse(url).map_err(|e| wrong(DataFusionError::External(e.into())))?;
        if url.scheme() != "file" {
            let root = &url[..Position::BeforePath];
            let root = ListingTableUrl::parse(root).map_err(wrong)?.object_store();
            let store = noted.of(root.as_str(), stores.store(&url)?);
            context.register_object_store(&url, store);
        }
        let mut listing = ListingTableUrl::try_new(url, None).map_err(wrong)?;
        if let Some(glob) = glob {
            listing = listing.with_glob(glob).map_err(wrong)?;
        }
        urls.push(listing.with_table_ref(ident_reference(&table.name)));
    }
    let Some(root) = urls.first().map(ListingTableUrl::object_store) else {
        return Err(Error::bug("it has no path"));
    };
    let mut metas = Vec::with_capacity(table.files.len());
    for file in &table.files {
        metas.push(file.meta(root.as_str())?);
    }
    let is_named = |url: &ListingTableUrl| metas.iter().any(|meta| meta.location == *url.prefix());
    let of_name = |name: &str| spec::Format::ALL.into_iter().find(|f| f.name() == name);
    let kind = of_name(table.format).ok_or_else(|| Error::bug("it has no format"))?;
    let format = format(kind, &table.dialect, noted);
    let mut extension = String::new();
    if urls.iter().any(is_folder) {
        let names = metas.iter().map(|meta| meta.location.as_ref());
        extension = extension_of(kind, &table.dialect, names).map_err(Error::bug)?;
    }
    // A path that names one file is asked for by its name, not listed.
    urls.retain(|url| is_folder(url) || url.get_glob().is_some() || is_named(url));
    noted.list_only(root.as_str(), metas);
    let is_folder_column = |f: &Field| table.partition_columns.contains(f.name());
    let fields = table.schema.fields().iter();
    let (of_folders, of_files): (Vec<_>, Vec<_>) = fields.partition(|f| is_folder_column(f));
    let typed = |name: &String| {
        let field = of_folders.iter().find(|f| f.name() == name);
        field.map(|f| (name.clone(), f.data_type().clone()))
    };
    let of_folders = table.partition_columns.iter().filter_map(typed).collect();
    let options = ListingOptions::new(format)
        .with_file_extension(extension)
        .with_table_partition_cols(of_folders);
    let schema = Schema::new(of_files.into_iter().cloned().collect::<Vec<_>>());
    name_files(context, &table.name, urls, options, schema)?;
    Ok(())
}

impl InputFile {
    /// As the store at `root` lists it.
    fn meta(&self, root: &str) -> Result<ObjectMeta> {
        let broken =
            |what: &str| Error::bug(format!("{} has no {what} in its store", self.location));
        let folder = format!("{}/", root.trim_end_matches('/'));
        let path = self.location.strip_prefix(&folder);
        let path = path.and_then(|path| Path::parse(path).ok());
        Ok(ObjectMeta {
            location: path.ok_or_else(|| broken("place"))?,
            last_modified: self.modified.parse().map_err(|_| broken("time"))?,
            size: self.size_bytes,
            e_tag: self.e_tag.clone(),
            version: None,
        })
    }
}

/// A table as bytes that do not say what they are.
#[derive(Serialize, Deserialize)]
pub(super) struct Packed {
    name: String,
    format: String,
    dialect: Dialect,
    paths: Vec<Listing>,
    files: Vec<(String, u64, String, Option<String>)>,
    #[serde(with = "ipc::fields")]
    columns: Vec<Field>,
    partition_columns: Vec<String>,
}

impl From<Table> for Packed {
    fn from(table: Table) -> Packed {
        let file = |f: InputFile| (f.location, f.size_bytes, f.modified, f.e_tag);
        let columns = table.schema.fields().iter();
        Packed {
            name: table.name,
            format: table.format.to_string(),
            dialect: table.dialect,
            paths: table.paths,
            files: table.files.into_iter().map(file).collect(),
            columns: columns.map(|field| field.as_ref().clone()).collect(),
            partition_columns: table.partition_columns,
        }
    }
}

impl From<Packed> for Table {
    fn from(packed: Packed) -> Table {
        let file = |(location, size_bytes, modified, e_tag)| InputFile {
            location,
            size_bytes,
            modified,
            e_tag,
        };
        Table {
            name: packed.name,
            format: word(&packed.format),
            dialect: packed.dialect,
            paths: packed.paths,
            files: packed.files.into_iter().map(file).collect(),
            schema: Arc::new(Schema::new(packed.columns)),
            partition_columns: packed.partition_columns,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::{Part, over_part};
    use crate::read::{self, TableSource};
    use arrow::array::{ArrayRef, AsArray, Int64Array};
    use arrow::datatypes::Int64Type;
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use std::collections::BTreeMap;

    /// The values of a table of the numbers below 1000 in ten row groups, in parts.
    async fn in_parts(lake: &Lake, of: u64) -> Vec<Vec<i64>> {
        let mut parts = Vec::new();
        for at in 0..of {
            let sql = "SELECT v FROM t WHERE v <> 7";
            let frame = lake.query(sql, &BTreeMap::new()).await.unwrap();
            let frame = over_part(frame, Part { at, of }).unwrap();
            let mut values = Vec::new();
            for batch in frame.collect().await.unwrap() {
                values.extend_from_slice(batch.column(0).as_primitive::<Int64Type>().values());
            }
            values.sort_unstable();
            parts.push(values);
        }
        parts
    }

    #[tokio::test]
    async fn a_table_that_is_opened_again_is_read_whole_and_in_parts() {
        let folder = tempfile::tempdir().unwrap();
        let column: ArrayRef = Arc::new((0..1000).collect::<Int64Array>());
        let rows = RecordBatch::try_from_iter([("v", column)]).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(100));
        let file = std::fs::File::create(folder.path().join("a.parquet")).unwrap();
        let properties = Some(properties.build());
        let mut writer = ArrowWriter::try_new(file, rows.schema(), properties).unwrap();
        writer.write(&rows).unwrap();
        writer.close().unwrap();

        let resources = Resources {
            threads: 2,
            memory_bytes: None,
        };
        let paths = [folder.path().display().to_string()];
        let sources = [TableSource::of_parquet("t", &paths)];
        let stores = Stores::default();
        let lake = read::open(&sources, &resources, &stores).await.unwrap();
        let found = lake.tables;
        let bytes = postcard::to_stdvec(&found).unwrap();
        let found: Vec<Table> = postcard::from_bytes(&bytes).unwrap();
        let lake = reopen(found, &resources, &stores).unwrap();
        let all: Vec<i64> = (0..1000).filter(|v| *v != 7).collect();
        for of in [1, 2, 3, 7, 40] {
            let parts = in_parts(&lake, of).await;
            // The end of the file, which has no rows, may be a part of its own.
            let with_rows = parts.iter().filter(|part| !part.is_empty());
            assert!(with_rows.count() > 1 || of < 40, "{of}");
            let mut together = parts.concat();
            together.sort_unstable();
            assert_eq!(together, all, "{of}");
        }
    }
}
