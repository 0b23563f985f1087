//! Columns of a written table, cut by partition and lag and by fit.

use crate::error::{Error, Kind, Result};
use crate::output::result::{ModelKey, Written, finite};
use crate::output::tables::columns::taken;
use crate::output::tables::table::Table;
use arrow::array::{Array, ArrayRef, AsArray, StringArray};
use arrow::compute::{cast, partition};
use arrow::datatypes::{DataType, Field, Float64Type};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Some columns of a written table, and the range of rows of each model.
pub(crate) struct ModelColumns {
    pub(crate) all: TableSlice,
    pub(crate) of_model: BTreeMap<ModelKey, Range<usize>>,
}

/// Some rows of some columns.
pub(crate) struct TableSlice {
    names: Arc<Vec<String>>,
    pub(crate) columns: Vec<ArrayRef>,
}

impl ModelColumns {
    /// Reads the columns `keys` and `names` of a table.
    pub(crate) async fn read(
        written: &Written<'_>,
        table: impl Into<&'static str>,
        keys: &[Field],
        names: &[&str],
    ) -> Result<ModelColumns> {
        let table = table.into();
        let models = written.models(table).await?.into_iter();
        let keys = keys.iter().map(|f| f.name().as_str());
        let names: Vec<&str> = keys.chain(names.iter().copied()).collect();
        Ok(ModelColumns {
            all: TableSlice {
                columns: written.table(table).await?.columns(&names).await?,
                names: Arc::new(names.into_iter().map(String::from).collect()),
            },
            of_model: models.map(|model| (model.key, model.rows)).collect(),
        })
    }

    /// The rows of one model. Empty if the table has none.
    pub(crate) fn of(&self, key: &ModelKey) -> TableSlice {
        self.all
            .rows(&self.of_model.get(key).cloned().unwrap_or_default())
    }
}

impl TableSlice {
    pub(crate) fn rows(&self, rows: &Range<usize>) -> TableSlice {
        let columns = self.columns.iter();
        let columns = columns.map(|c| c.slice(rows.start, rows.len()));
        TableSlice {
            names: Arc::clone(&self.names),
            columns: columns.collect(),
        }
    }

    pub(crate) fn column(&self, name: &str) -> Result<&ArrayRef> {
        let at = self.names.iter().position(|own| own == name);
        let at = at.ok_or_else(|| Error::bug(format!("column `{name}` was not read")))?;
        Ok(&self.columns[at])
    }

    /// The rows of each fit. They are adjacent.
    pub(crate) fn by_fit(&self) -> Result<HashMap<String, TableSlice>> {
        let ranges = partition(std::slice::from_ref(self.column("fit")?))
            .map_err(|e| Error::with_source(Kind::Bug, "the rows of fits cannot be separated", e))?
            .ranges();
        let fits = self.texts("fit")?;
        let of_fit = |rows: Range<usize>| (fits.value(rows.start).to_string(), self.rows(&rows));
        Ok(ranges.into_iter().map(of_fit).collect())
    }

    /// Numbers of any type, with `None` for nulls.
    pub(crate) fn optional(&self, name: &str) -> Result<Vec<Option<f64>>> {
        let none = || Error::input(format!("the written column `{name}` holds no numbers"));
        let column = self.column(name)?;
        let column = column.data_type().is_numeric().then_some(column);
        let column = cast(column.ok_or_else(none)?, &DataType::Float64).map_err(|_| none())?;
        Ok(column.as_primitive::<Float64Type>().iter().collect())
    }

    /// Texts, none of which is null.
    pub(crate) fn texts(&self, name: &str) -> Result<&StringArray> {
        let texts = self.column(name)?.as_string_opt::<i32>();
        let texts = texts.filter(|texts| texts.null_count() == 0);
        texts.ok_or_else(|| Error::input(format!("the written column `{name}` is no text")))
    }

    /// The text in the first row. None if it is null.
    pub(crate) fn text(&self, name: &str) -> Result<Option<&str>> {
        let column = self.column(name)?.as_string_opt::<i32>();
        let column = column.filter(|column| !column.is_empty());
        let none = || Error::input(format!("the written column `{name}` holds no text"));
        let column = column.ok_or_else(none)?;
        Ok(column.is_valid(0).then(|| column.value(0)))
    }

    /// Numbers of any type, all of them finite and none null.
    pub(crate) fn finite(&self, name: &str) -> Result<Vec<f64>> {
        finite(self.column(name)?, name)
    }

    /// The values of the lists of all rows, one after another.
    pub(crate) fn list_values(&self, name: &str) -> Result<ArrayRef> {
        let column = self.column(name)?.as_list_opt::<i32>();
        let none = || Error::input(format!("the written column `{name}` holds no lists"));
        let column = column.ok_or_else(none)?;
        let offsets = column.value_offsets();
        let (first, end) = (offsets[0] as usize, offsets[column.len()] as usize);
        Ok(column.values().slice(first, end - first))
    }

    /// The numbers of the lists of all rows, one after another. All of them are finite.
    pub(crate) fn lists(&self, name: &str) -> Result<Vec<f64>> {
        finite(&self.list_values(name)?, name)
    }

    /// The number in the first row.
    pub(crate) fn first(&self, name: &str) -> Result<f64> {
        let first = self.finite(name)?.first().copied();
        first.ok_or_else(|| Error::input(format!("the written column `{name}` is empty")))
    }

    /// The whole number from 1 to `most` in the first row.
    pub(crate) fn size(&self, name: &str, most: usize) -> Result<usize> {
        size(self.first(name)?, name, most)
    }
}

/// A written number as a whole number from 1 to `most`.
pub(crate) fn size(x: f64, name: &str, most: usize) -> Result<usize> {
    if x.fract() == 0.0 && x >= 1.0 && x <= most as f64 {
        return Ok(x as usize);
    }
    Err(Error::input(format!(
        "the written number `{name}` is {x}, not a whole number from 1 to {most}"
    )))
}

/// The partition columns of all models, with one row per model.
///
/// # Errors
/// If the table `fits` cannot be read.
pub(crate) async fn partitions(written: &Written<'_>) -> Result<Vec<ArrayRef>> {
    let names = written.partition.iter().map(|f| f.name().as_str());
    let names: Vec<&str> = names.collect();
    let models = written.models(Table::Fits).await?.into_iter();
    // The order of the models is that of their keys.
    let models = models.map(|model| (model.key, model.rows.start as u32));
    let models: BTreeMap<ModelKey, u32> = models.collect();
    let columns = written.table(Table::Fits).await?.columns(&names).await?;
    taken(&columns, models.into_values())
}
