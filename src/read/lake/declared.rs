//! What the keys `null` and `types` of a table do to the columns of its files.
//!
//! In: the columns of the files, and the keys. Out: a rule per column that they change, which the
//! scan of the table applies to the column. A rule applies to values in the type of their file:
//! files that hold a column in several types keep them until then. The engine rewrites filters on
//! such a column into filters on the rule, so statistics of the files decide nothing about it. A
//! table without these keys has no rules, and its scan is as it was.

use crate::error::{Error, Result, hint};
use crate::read::formats::column_type::ColumnType;
use crate::read::formats::dialect::Dialect;
use crate::read::formats::fault::Fault;
use crate::read::formats::fill_values::{FillValue, held, without};
use crate::read::formats::format::Format;
use crate::read::lake::merge::values;
use arrow::array::ArrayRef;
use arrow::compute::{CastOptions, cast, cast_with_options};
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_adapter::{
    DefaultPhysicalExprAdapterFactory, PhysicalExprAdapter, PhysicalExprAdapterFactory,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What happens to the values of a column.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ColumnRule {
    column: String,
    /// The values that mean null.
    fills: Vec<FillValue>,
    /// The type that the values get then, unless they have it.
    to: Option<ColumnType>,
}

impl ColumnRule {
    /// Whether values may be of another type than the pipeline says.
    pub(crate) fn converts(&self) -> bool {
        self.to.is_some()
    }

    /// The values that mean null in a file that holds the column in a type, in this type.
    pub(crate) fn fills(&self, of: &DataType) -> Vec<ScalarValue> {
        held(&self.fills, of)
    }

    /// The column of the table, of that of the files.
    pub(crate) fn field(&self, of_files: &Field) -> Field {
        let is_nullable = of_files.is_nullable() || !self.fills.is_empty();
        let field = of_files.clone().with_nullable(is_nullable);
        match &self.to {
            Some(to) => field.with_data_type(to.of(of_files.data_type())),
            None => field,
        }
    }

    /// The values of the table, of those of a file.
    ///
    /// # Errors
    /// The index of the first value that does not have the type of the pipeline, and a message.
    pub(crate) fn apply(&self, column: &ArrayRef) -> Result<ArrayRef, (usize, String)> {
        let plain = values(column.data_type());
        let plain = if plain == *column.data_type() {
            Ok(Arc::clone(column))
        } else {
            // Codes become the values that they stand for.
            cast(column, &plain)
        };
        let kept = plain.and_then(|plain| without(&plain, &self.fills(plain.data_type())));
        let kept = kept.map_err(|e| (0, e.to_string()))?;
        match &self.to {
            None => Ok(kept),
            Some(to) => {
                let converted = to.converted(&kept);
                converted.map_err(|misfit| (misfit.row, misfit.message(&self.column)))
            }
        }
    }

    /// The rule as an expression over the column of the files.
    pub(crate) fn over(
        self: &Arc<Self>,
        column: Arc<dyn PhysicalExpr>,
        of_table: &FieldRef,
    ) -> Arc<dyn PhysicalExpr> {
        let function = ScalarUDF::new_from_impl(AsDeclared {
            rule: Arc::clone(self),
            to: of_table.data_type().clone(),
            signature: Signature::any(1, Volatility::Immutable),
        });
        Arc::new(ScalarFunctionExpr::new(
            NAME,
            Arc::new(function),
            vec![column],
            Arc::clone(of_table),
            Arc::new(ConfigOptions::default()),
        ))
    }
}

/// The columns that files hold in several types, and to which the keys apply in the type of each
/// file. `schemas` are those of the files, with file names. Readers of text give each column the
/// type of the key.
///
/// # Errors
/// A file whose values cannot be what `types` says.
pub(crate) fn by_file(
    dialect: &Dialect,
    format: Format,
    schemas: &[(SchemaRef, &str)],
) -> Result<BTreeSet<String>> {
    let mut several = BTreeSet::new();
    if !dialect.declares() || format.is_text() {
        return Ok(several);
    }
    let mut types: BTreeMap<&str, Vec<(DataType, &str)>> = BTreeMap::new();
    for (schema, file) in schemas {
        for field in schema.fields() {
            let of = values(field.data_type());
            let known = types.entry(field.name()).or_default();
            if of != DataType::Null && known.iter().all(|(other, _)| *other != of) {
                known.push((of, *file));
            }
        }
    }
    for (name, types) in types.into_iter().filter(|(_, types)| types.len() > 1) {
        let fills = dialect.null.of_column(name, false);
        let to = dialect.types.get(name);
        let is_refused = |(of, _): &&(DataType, &str)| to.is_some_and(|to| !to.takes(of));
        if let Some((of, file)) = types.iter().find(is_refused) {
            return Err(unfit(dialect, name, of, &format!(" in {file}")));
        }
        if to.is_some() || types.iter().any(|(of, _)| !held(&fills, of).is_empty()) {
            let types: Vec<DataType> = types.into_iter().map(|(of, _)| of).collect();
            check_fills(dialect, name, &types, false)?;
            several.insert(name.to_string());
        }
    }
    Ok(several)
}

/// The columns of files, where those in `columns` have the types of the key `types` if it has them.
pub(crate) fn in_types_of_key<'a>(
    dialect: &Dialect,
    schemas: Vec<(SchemaRef, &'a str)>,
    columns: &BTreeSet<String>,
) -> Vec<(SchemaRef, &'a str)> {
    if columns.is_empty() {
        return schemas;
    }
    let field = |field: &FieldRef| match dialect.types.get(field.name()) {
        Some(to) if columns.contains(field.name()) => {
            Arc::new(field.as_ref().clone().with_data_type(to.data_type()))
        }
        _ => Arc::clone(field),
    };
    let schemas = schemas.into_iter().map(|(schema, file)| {
        let fields: Vec<FieldRef> = schema.fields().iter().map(field).collect();
        (Arc::new(Schema::new(fields)), file)
    });
    schemas.collect()
}

/// The columns of a table, where those in `columns` have the types of a file.
pub(crate) fn in_own_types(
    of_table: &SchemaRef,
    of_file: &Schema,
    columns: &BTreeSet<String>,
) -> SchemaRef {
    let own = |field: &FieldRef| match of_file.field_with_name(field.name()) {
        Ok(own) if columns.contains(field.name()) => Arc::new(own.clone()),
        _ => Arc::clone(field),
    };
    let fields: Vec<FieldRef> = of_table.fields().iter().map(own).collect();
    Arc::new(Schema::new(fields))
}

/// Leaves columns in the types of each file, where the engine would convert them to those of the
/// table.
#[derive(Debug)]
pub(crate) struct OwnTypes(pub(crate) Arc<BTreeSet<String>>);

impl PhysicalExprAdapterFactory for OwnTypes {
    fn create(
        &self,
        of_table: SchemaRef,
        of_file: SchemaRef,
    ) -> Result<Arc<dyn PhysicalExprAdapter>, DataFusionError> {
        let of_table = in_own_types(&of_table, &of_file, &self.0);
        DefaultPhysicalExprAdapterFactory.create(of_table, of_file)
    }
}

/// The rules of the columns of files, by column; an empty list if no column has one. `by_file` are
/// the columns that files hold in several types.
///
/// # Errors
/// A column that the files lack, or whose values cannot be what the keys say.
pub(crate) fn rules(
    dialect: &Dialect,
    of_files: &Schema,
    of_folders: &[(String, DataType)],
    format: Format,
    by_file: &BTreeSet<String>,
) -> Result<Vec<Option<Arc<ColumnRule>>>> {
    if !dialect.declares() {
        return Ok(Vec::new());
    }
    check_names(dialect, of_files, of_folders)?;
    let rule = |field: &FieldRef| -> Result<_> {
        let name = field.name();
        let to = dialect.types.get(name);
        if format == Format::Json && to.is_some() {
            // Its reader knows the values as they are written.
            return Ok(None);
        }
        let fills = dialect.null.of_column(name, format.is_text());
        let (fills, to) = if by_file.contains(name) {
            (fills, to)
        } else {
            let of = field.data_type();
            check_fills(dialect, name, std::slice::from_ref(of), format.is_text())?;
            let to = to.filter(|to| to.of(of) != *of);
            if to.is_some_and(|to| *of != DataType::Null && !to.takes(of)) {
                return Err(unfit(dialect, name, of, ""));
            }
            let is_held = |value: &FillValue| !held(std::slice::from_ref(value), of).is_empty();
            (fills.into_iter().filter(is_held).collect(), to)
        };
        let column = name.clone();
        let to = to.cloned();
        let is_rule = !fills.is_empty() || to.is_some();
        Ok(is_rule.then(|| Arc::new(ColumnRule { column, fills, to })))
    };
    let rules: Vec<_> = of_files.fields().iter().map(rule).collect::<Result<_>>()?;
    Ok(if rules.iter().all(Option::is_none) {
        Vec::new()
    } else {
        rules
    })
}

/// Checks that a column of some types can hold its own values of `null`.
fn check_fills(dialect: &Dialect, name: &str, types: &[DataType], is_text: bool) -> Result<()> {
    let checked = dialect.null.check_own(name, types, is_text);
    checked.map_err(|(value, why)| Error::spec(format!("`null.{name}` cannot be {value}: {why}")))
}

/// The error of a column that holds values which `types` cannot convert. `place` is empty, or
/// begins with " in ".
fn unfit(dialect: &Dialect, name: &str, of: &DataType, place: &str) -> Error {
    let to = dialect.types.get(name);
    let refusal = to.map_or(String::new(), |to| to.refusal(of));
    Error::spec(format!(
        "`types.{name}` does not fit: the column holds{place} {refusal}"
    ))
}

/// Checks that the columns of the keys exist.
fn check_names(
    dialect: &Dialect,
    of_files: &Schema,
    of_folders: &[(String, DataType)],
) -> Result<()> {
    let names: Vec<&str> = of_files
        .fields()
        .iter()
        .map(|f| f.name().as_str())
        .collect();
    let is_of_folders = |name: &str| of_folders.iter().any(|(column, _)| column == name);
    let of_null = dialect.null.by_column.keys().map(|name| ("null", name));
    let of_types = dialect.types.keys().map(|name| ("types", name));
    for (key, name) in of_null.chain(of_types) {
        if is_of_folders(name) {
            if key == "null" {
                return Err(Error::spec(format!(
                    "`null.{name}` does not apply: the values of `{name}` are names of folders or files; leave such rows out in the SQL"
                )));
            }
        } else if !names.contains(&name.as_str()) {
            return Err(Error::spec(format!(
                "`{key}.{name}` names no column of the files{}",
                hint(name, &names)
            )));
        }
    }
    Ok(())
}

const NAME: &str = "as_declared";

/// A rule as a function of the engine.
#[derive(Debug, PartialEq, Eq, Hash)]
struct AsDeclared {
    rule: Arc<ColumnRule>,
    to: DataType,
    signature: Signature,
}

impl ScalarUDFImpl for AsDeclared {
    fn name(&self) -> &str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType, DataFusionError> {
        Ok(self.to.clone())
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
        let apply = |values: &ArrayRef| -> Result<ArrayRef, DataFusionError> {
            let applied = self.rule.apply(values);
            let applied = applied.map_err(|(_, what)| DataFusionError::from(Fault::new(what)))?;
            if *applied.data_type() == self.to {
                return Ok(applied);
            }
            // Values that only became null still have the type of their file.
            let options = CastOptions {
                safe: false,
                ..CastOptions::default()
            };
            Ok(cast_with_options(&applied, &self.to, &options)?)
        };
        match &args.args[..] {
            [ColumnarValue::Array(values)] => Ok(ColumnarValue::Array(apply(values)?)),
            // A column that the file lacks.
            [ColumnarValue::Scalar(value)] => {
                let applied = apply(&value.to_array()?)?;
                let value = ScalarValue::try_from_array(&applied, 0)?;
                Ok(ColumnarValue::Scalar(value))
            }
            _ => internal_err!("{NAME} has one argument"),
        }
    }
}

#[cfg(test)]
mod tests;
