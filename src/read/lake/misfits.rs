//! Finds the file and the row of a value that does not have the type of the key `types`.
//!
//! Scans convert batches of many files, and know neither. Readers of text name the line themselves.

use crate::read::formats::column_type::AS_TYPES;
use crate::read::lake::Lake;
use crate::read::lake::declared::ColumnRule;
use crate::read::lake::files::{LakeTable, ident_reference};
use crate::read::lake::rounding::{files, numbered};
use crate::read::lake::subset::over;
use datafusion::dataframe::DataFrame;
use datafusion::physical_plan::execute_stream_partitioned;
use futures::TryStreamExt;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

impl Lake {
    /// Describes the first value that does not have the type of its column, in the order of the
    /// tables and files. `None` if there is none, or if reading fails.
    pub(crate) async fn first_misfit(&self) -> Option<String> {
        for table in self
            .tables
            .iter()
            .filter(|table| !table.dialect.types.is_empty())
        {
            if let Some(found) = self.misfit_in(table).await {
                return Some(found);
            }
        }
        None
    }

    async fn misfit_in(&self, table: &LakeTable) -> Option<String> {
        let provider = self
            .context
            .table_provider(ident_reference(&table.name))
            .await
            .ok()?;
        let mut parts = Vec::new();
        let session = self.context.state();
        let by_types = files(provider.as_ref())?.by_types(&session).await;
        for part in by_types.ok()? {
            let fields = part.stored().fields().iter().enumerate();
            let rules = fields.filter_map(|(at, field)| Some((field.name(), part.rule(at)?)));
            let rules = rules.filter(|(_, rule)| rule.converts());
            let rules = rules.map(|(name, rule)| (name.clone(), Arc::clone(rule)));
            let (names, rules): (Vec<String>, Vec<Arc<ColumnRule>>) = rules.unzip();
            if names.is_empty() {
                return None;
            }
            let stored = Arc::new(part.without_rules(&BTreeSet::new()));
            let frame = self.context.read_table(stored).ok()?;
            let names = names.iter().map(String::as_str);
            parts.push((numbered(frame, names, &table.name).ok()?, rules));
        }
        for file in &table.files {
            for (frame, rules) in &parts {
                let (mut state, plan) = frame.clone().into_parts();
                // One stream has the rows of a file in their order.
                state.config_mut().options_mut().execution.target_partitions = 1;
                let frame = DataFrame::new(state, plan);
                let frame = over(frame, HashSet::from([file.location.clone()])).ok()?;
                if let Some((row, what)) = self.first_in(frame, rules).await {
                    return Some(format!("{}, row {row}: {what}", file.location));
                }
            }
        }
        None
    }

    /// The row, counted from 1, and the message of the first value of a query that breaks the rule
    /// of its column.
    async fn first_in(
        &self,
        frame: DataFrame,
        rules: &[Arc<ColumnRule>],
    ) -> Option<(usize, String)> {
        let plan = self.physical(frame).await.ok()?;
        let streams = execute_stream_partitioned(plan, self.context.task_ctx()).ok()?;
        let mut before = 0;
        for mut stream in streams {
            while let Some(batch) = stream.try_next().await.ok()? {
                let columns = batch.columns().iter().zip(rules);
                let broken = columns.filter_map(|(column, rule)| rule.apply(column).err());
                if let Some((row, what)) = broken.min_by_key(|(row, _)| *row) {
                    return Some((before + row + 1, what));
                }
                before += batch.num_rows();
            }
        }
        None
    }
}

/// Whether an error is about a value of another type, and names no file.
pub(crate) fn is_unplaced(message: &str) -> bool {
    message.contains(AS_TYPES) && !message.contains(", line ")
}
