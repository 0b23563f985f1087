//! Fits → lake: builds the output tables, stages them, checks what was staged, promotes it. Only this module writes under the output.

mod commit;
mod parquet;
mod tables;

pub use commit::{Current, Output};
pub use tables::{FitColumns, LagColumn, Model, Names, Table, batch, schema};

use crate::error::Result;
use std::collections::BTreeMap;

/// Writes every table of the models (ordered by partition and lag) to staging and returns their row counts.
pub async fn stage(
    output: &Output,
    run: &str,
    names: &Names,
    models: &[Model],
) -> Result<BTreeMap<&'static str, u64>> {
    let mut rows = BTreeMap::new();
    for table in Table::ALL {
        let (schema, sorted_by) = schema(table, names);
        let path = output.staged(run, table.name());
        let mut file = parquet::File::create(output, path, schema, &sorted_by)?;
        for model in models {
            file.write(&batch(table, names, model)?).await?;
        }
        rows.insert(table.name(), file.finish().await?);
    }
    Ok(rows)
}
