//! Whether the counts of single files add up, so that a run may count only new files.

use crate::output::ledger::Basis;
use crate::plan::pipeline::Pipeline;
use crate::plan::rows::PlannedQuery;
use crate::read::lake::Lake;
use crate::read::lake::subset::one_table;
use crate::read::rows::layout::{Layout, RowRoles};

/// Whether a run may count only the files that are new since the last run.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Increments {
    /// The pipeline does not ask for it.
    #[default]
    Off,
    /// The reason why counts of single files do not add up to the counts of all files.
    No(String),
    /// The counts of single files add up.
    Of {
        /// The only table that the SQL reads.
        table: String,
        /// What the counts depend on beside the files.
        basis: Basis,
    },
}

/// Decides whether a query can be counted file by file, if the pipeline asks for it.
pub(crate) fn increments(
    pipeline: &Pipeline,
    query: &PlannedQuery,
    layout: &Layout,
    lake: &Lake,
) -> Increments {
    if !pipeline.job.incremental {
        return Increments::Off;
    }
    if layout.evidence.weight().is_some() {
        return Increments::No("weights are no integers".into());
    }
    if let RowRoles::Trajectories { strided: true, .. } = &layout.evidence {
        let why = "strided pairs depend on the first row of a trajectory";
        return Increments::No(why.into());
    }
    if let RowRoles::Windows { first: true, .. } = &layout.evidence {
        let why = "the first window of a trajectory may begin in another file";
        return Increments::No(why.into());
    }
    let table = match one_table(&query.frame) {
        Ok(name) => lake.tables.iter().find(|table| table.name == name),
        Err(why) => return Increments::No(why),
    };
    let Some(table) = table else {
        return Increments::No("the SQL reads no table of the pipeline".into());
    };
    let fields = table.schema.fields().iter();
    let mut columns: Vec<_> = fields
        .map(|field| format!("{} {}", field.name(), field.data_type()))
        .collect();
    columns.sort();
    // Counts of earlier runs had the values that these keys gave them.
    if table.dialect.declares() {
        columns.push(format!(
            "{:?} {:?}",
            table.dialect.null, table.dialect.types
        ));
    }
    let hash = |text: String| blake3::hash(text.as_bytes()).to_hex()[..32].to_string();
    Increments::Of {
        table: table.name.clone(),
        basis: Basis {
            gyre: env!("CARGO_PKG_VERSION").into(),
            sql: hash(query.sql.clone()),
            parameters: hash(format!("{:?}", query.parameters)),
            columns: hash(format!("{} {columns:?}", table.format)),
            layout: hash(format!("{layout:?}")),
        },
    }
}
