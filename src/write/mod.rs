//! Fits → lake: builds the output tables, stages them, checks what was staged, promotes it. Only this module writes under the output.

mod bootstrap;
mod commit;
mod parquet;
mod sets;
mod tables;

pub use commit::{Current, Output};
pub use parquet::SCHEMA_VERSION;
pub use tables::{FitColumns, LagColumn, METRICS, Model, Names, RankRow, Table, schema};

use crate::error::Result;
use parquet::ROW_GROUP;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::ops::Range;
use tables::{len, rows};

/// Writes every table of the models (ordered by partition and lag) to staging and returns their row counts. `again`: what the output
/// has of sets and changes holds for these models too, and stays.
pub async fn stage(
    output: &Output,
    run: &str,
    names: &Names,
    models: &[Model],
    again: bool,
) -> Result<BTreeMap<&'static str, u64>> {
    let mut written = BTreeMap::new();
    for &table in &names.tables {
        let (schema, sorted_by) = schema(table, names);
        let path = output.staged(run, table.name());
        if again && matches!(table, Table::Sets | Table::Changes) {
            let rows = parquet::copy(output, &output.table(table.name()), &path).await?;
            written.insert(table.name(), rows);
            continue;
        }
        let mut file = parquet::File::create(output, path, schema, &sorted_by)?;
        let batches = |group: Vec<(&Model, Range<usize>)>| {
            let pieces = group.into_par_iter();
            let batches = pieces.map(|(model, piece)| rows(table, names, model, piece));
            batches.collect::<Result<Vec<_>>>()
        };
        // Row groups are cut by rows alone; so many are made at once as there are threads.
        let (mut groups, mut group, mut room) = (Vec::new(), Vec::new(), ROW_GROUP);
        for model in models {
            let (mut first, end) = (0, len(table, model));
            while first < end {
                let n = (end - first).min(room);
                group.push((model, first..first + n));
                (first, room) = (first + n, room - n);
                if room == 0 {
                    groups.push(std::mem::take(&mut group));
                    room = ROW_GROUP;
                }
                if groups.len() == rayon::current_num_threads() {
                    file.write(std::mem::take(&mut groups), batches).await?;
                }
            }
        }
        if !group.is_empty() {
            groups.push(group);
        }
        file.write(groups, batches).await?;
        written.insert(table.name(), file.finish().await?);
    }
    Ok(written)
}
