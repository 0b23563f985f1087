//! Which files a query reads per table, after filters on Hive columns.

use crate::error::{counted, escaped};
use crate::read::lake::files::LakeTable;
use crate::read::paths::places::HIVE_NULL;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::FileScanConfig;
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Most partitions to list per table.
const MAX_NAMED_PARTITIONS: usize = 6;

/// What a plan reads from one table.
#[derive(Default)]
struct Scanned {
    /// Bytes by path.
    files: BTreeMap<String, u64>,
    partitions: BTreeSet<String>,
}

/// One line per table: files and bytes that the plan reads, of all.
pub(crate) fn show(tables: &[LakeTable], plan: &Arc<dyn ExecutionPlan>) -> String {
    let mut scanned: BTreeMap<String, Scanned> = BTreeMap::new();
    let walked = plan.apply(|node| {
        let scan = node.downcast_ref::<DataSourceExec>();
        let config = scan.and_then(|scan| scan.data_source().downcast_ref::<FileScanConfig>());
        let files = config.into_iter().flat_map(|config| &config.file_groups);
        for file in files.flat_map(|group| group.iter()) {
            let Some(reference) = &file.table_reference else {
                continue;
            };
            let name = reference.table();
            let table = tables.iter().find(|table| table.name == name);
            let columns = table.map_or(&[][..], |table| &table.partition_columns);
            let scanned = scanned.entry(name.to_string()).or_default();
            let meta = &file.object_meta;
            scanned.files.insert(meta.location.to_string(), meta.size);
            scanned
                .partitions
                .insert(partition(columns, &file.partition_values));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    debug_assert!(walked.is_ok());
    let none = Scanned::default();
    let line = |table: &LakeTable| line(table, scanned.get(&table.name).unwrap_or(&none));
    tables.iter().map(line).collect()
}

/// Values in the form of folder names, such as `year=2024/month=1`.
fn partition(columns: &[String], values: &[ScalarValue]) -> String {
    let folder = |(column, value): (&String, &ScalarValue)| {
        if value.is_null() {
            format!("{column}={HIVE_NULL}")
        } else {
            format!("{column}={value}")
        }
    };
    let folders = columns.iter().zip(values).map(folder);
    folders.collect::<Vec<_>>().join("/")
}

fn line(table: &LakeTable, scanned: &Scanned) -> String {
    let all: u64 = table.files.iter().map(|file| file.size_bytes).sum();
    let read: u64 = scanned.files.values().sum();
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let mut line = format!(
        "  {}: {} of {}, {:.1} of {:.1} MB",
        table.name,
        scanned.files.len(),
        counted(table.files.len(), "file"),
        megabytes(read),
        megabytes(all)
    );
    let pruned = (1..table.files.len()).contains(&scanned.files.len());
    if pruned && !table.partition_columns.is_empty() {
        let named = scanned
            .partitions
            .iter()
            .take(MAX_NAMED_PARTITIONS)
            .map(|name| escaped(name));
        line += &format!("; partitions {}", named.collect::<Vec<_>>().join(", "));
        match scanned
            .partitions
            .len()
            .saturating_sub(MAX_NAMED_PARTITIONS)
        {
            0 => line += " only",
            more => line += &format!(" and {more} more"),
        }
    }
    line + "\n"
}
