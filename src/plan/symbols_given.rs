//! The SQL of given hidden Markov models, resolved: which columns its rows have.

use crate::error::{Error, Result};
use crate::methods::SymbolMethod;
use crate::methods::query::RowsOf;
use crate::plan::evidence::Columns;
use crate::plan::fits::PlannedFit;
use crate::read::lake::Lake;
use crate::read::rows::layout::Layout;
use crate::read::rows::states::StateColumns;
use arrow::datatypes::Field;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The hidden state of a row.
const STATE: &str = "state";

/// The hidden state that follows.
const NEXT: &str = "next";

const PROBABILITY: &str = "probability";

/// The rows of a given model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedHmm {
    pub transition: PlannedEntries,
    pub emission: PlannedEntries,
}

/// The entries of a matrix, one per row of a query.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PlannedEntries {
    /// The SQL of the rows, without parameters.
    pub sql: String,
    /// Partition keys. Empty: the rows are for all partitions.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub partition: Vec<Field>,
    /// The state, and the next state or the columns of the symbol.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub key: Vec<Field>,
    /// The entry.
    #[serde(with = "crate::read::rows::ipc::field")]
    pub probability: Field,
}

impl PlannedEntries {
    /// Every column, in the order of the fields of this struct.
    pub(crate) fn fields(&self) -> Vec<Field> {
        let keys = self.partition.iter().chain(&self.key);
        keys.chain([&self.probability]).cloned().collect()
    }
}

/// Resolves the given models among some fits, by the index of the fit.
///
/// # Errors
/// A query that cannot be planned, or lacks a column.
pub(super) async fn given(
    fits: &[PlannedFit<SymbolMethod>],
    layout: &Layout,
    symbol: &StateColumns,
    lake: &Lake,
) -> Result<BTreeMap<usize, PlannedHmm>> {
    let mut all = BTreeMap::new();
    for (at, fit) in fits.iter().enumerate() {
        let Some(own) = fit.method.given() else {
            continue;
        };
        let within = |key: &str, e: Error| e.at(format!("`fit.{}.{key}`", fit.name));
        let transition = entries(&own.transition, "transition", None, layout, lake).await;
        let transition = transition.map_err(|e| within("transition", e))?;
        let emission = entries(&own.emission, "emission", Some(symbol), layout, lake).await;
        let emission = emission.map_err(|e| within("emission", e))?;
        let states = transition.key.iter().map(|field| ("transition", field));
        let of = &emission.key[0];
        for (section, field) in states {
            if field.data_type() != of.data_type() {
                let what = alike(field, section, of, "emission");
                return Err(within("transition", what));
            }
        }
        all.insert(
            at,
            PlannedHmm {
                transition,
                emission,
            },
        );
    }
    Ok(all)
}

/// The rows of a query of a fit: transitions, or with `symbol` emissions.
async fn entries(
    rows: &RowsOf,
    section: &'static str,
    symbol: Option<&StateColumns>,
    layout: &Layout,
    lake: &Lake,
) -> Result<PlannedEntries> {
    let sql = rows.sql.trim().trim_end_matches(';').to_string();
    let frame = lake.query_of(section, &sql, &BTreeMap::new()).await?;
    let columns = Columns::of(&frame, section)?;
    let mut key = vec![columns.key(STATE, STATE)?];
    match symbol {
        None => key.push(columns.key(NEXT, NEXT)?),
        Some(symbol) => {
            for field in symbol.keys.iter() {
                key.push(as_in_rows(&columns, section, field, "symbol")?);
            }
            for bin in &symbol.bins {
                key.push(columns.number(&bin.name, "bins", false)?);
            }
        }
    }
    let planned = PlannedEntries {
        partition: partition(&columns, section, &layout.partition)?,
        key,
        probability: columns.number(PROBABILITY, PROBABILITY, false)?,
        sql,
    };
    let fields = planned.fields();
    for (at, field) in fields.iter().enumerate() {
        if fields[..at]
            .iter()
            .any(|other| other.name() == field.name())
        {
            return Err(Error::spec(format!(
                "the column `{}` of [sequences] has the name of another column of these rows; \
                 rename it with AS in both queries",
                field.name()
            )));
        }
    }
    Ok(planned)
}

/// The partition columns of a query, which has all of them or none.
fn partition(columns: &Columns, section: &'static str, fields: &[Field]) -> Result<Vec<Field>> {
    let has = |field: &&Field| columns.has(field.name());
    let (there, missing): (Vec<&Field>, Vec<&Field>) = fields.iter().partition(has);
    if let (Some(there), Some(missing)) = (there.first(), missing.first()) {
        return Err(Error::spec(format!(
            "the SQL of [{section}] gives the column `{}` but not `{}`; give all columns of the partition, or none of them",
            there.name(),
            missing.name()
        )));
    }
    let there = there.into_iter();
    there
        .map(|field| as_in_rows(columns, section, field, "partition_by"))
        .collect()
}

/// A column that the rows of [sequences] have, too.
fn as_in_rows(
    columns: &Columns,
    section: &'static str,
    field: &Field,
    role: &str,
) -> Result<Field> {
    let own = columns.key(field.name(), role)?;
    if own.data_type() != field.data_type() {
        return Err(alike(&own, section, field, "sequences"));
    }
    Ok(own)
}

/// The error of two columns of different types.
fn alike(own: &Field, section: &str, of: &Field, other: &str) -> Error {
    let (name, own, of_name) = (own.name(), own.data_type(), of.name());
    let of = of.data_type();
    Error::spec(format!(
        "column `{name}` is {own} in the SQL of [{section}], but `{of_name}` is {of} in the SQL of [{other}]; cast it in the SQL"
    ))
}
