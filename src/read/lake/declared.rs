//! What the keys `null` and `types` of a table do to the columns of its files.
//!
//! In: the columns of the files, and the keys. Out: a rule per column that they change, which the
//! scan of the table applies to the column. The engine rewrites filters on such a column into
//! filters on the rule, so statistics of the files decide nothing about it. A table without these
//! keys has no rules, and its scan is as it was.

use crate::error::{Error, Result, hint};
use crate::read::formats::column_type::ColumnType;
use crate::read::formats::csv::Dialect;
use crate::read::formats::fault::Fault;
use crate::read::formats::fill_values::without;
use crate::read::formats::text::value_kind;
use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field, FieldRef, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, ScalarValue, internal_err};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use std::sync::Arc;

/// What happens to the values of a column.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ColumnRule {
    column: String,
    /// The values that mean null, in the type of the files.
    pub(crate) fills: Vec<ScalarValue>,
    /// The type that the values get then, unless they have it.
    to: Option<ColumnType>,
}

impl ColumnRule {
    /// Whether values may be of another type than the pipeline says.
    pub(crate) fn converts(&self) -> bool {
        self.to.is_some()
    }

    /// The column of the table, of that of the files.
    pub(crate) fn field(&self, of_files: &Field) -> Field {
        let is_nullable = of_files.is_nullable() || !self.fills.is_empty();
        let field = of_files.clone().with_nullable(is_nullable);
        match &self.to {
            Some(to) => field.with_data_type(to.data_type()),
            None => field,
        }
    }

    /// The values of the table, of those of the files.
    ///
    /// # Errors
    /// The index of the first value that does not have the type of the pipeline, and a message.
    pub(crate) fn apply(&self, values: &ArrayRef) -> Result<ArrayRef, (usize, String)> {
        let values = without(values, &self.fills).map_err(|e| (0, e.to_string()))?;
        match &self.to {
            None => Ok(values),
            Some(to) => {
                let converted = to.converted(&values);
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

/// The rules of the columns of files, by column; an empty list if no column has one. `is_text`: the
/// files are texts, whose reader makes null of texts that mean it.
///
/// # Errors
/// A column that the files lack, or whose values cannot be what the keys say.
pub(crate) fn rules(
    dialect: &Dialect,
    of_files: &Schema,
    of_folders: &[(String, DataType)],
    is_text: bool,
) -> Result<Vec<Option<Arc<ColumnRule>>>> {
    if !dialect.declares() {
        return Ok(Vec::new());
    }
    check_names(dialect, of_files, of_folders)?;
    let fields = of_files.fields().iter();
    let rules: Vec<_> = fields
        .map(|field| rule(dialect, field, is_text))
        .collect::<Result<_>>()?;
    Ok(if rules.iter().all(Option::is_none) {
        Vec::new()
    } else {
        rules
    })
}

fn rule(dialect: &Dialect, field: &Field, is_text: bool) -> Result<Option<Arc<ColumnRule>>> {
    let (name, of) = (field.name(), field.data_type());
    let fills = dialect.null.of_column(name, of, is_text);
    let fills = fills
        .map_err(|(value, why)| Error::spec(format!("`null.{name}` cannot be {value}: {why}")))?;
    let to = dialect.types.get(name).filter(|to| to.of(of) != *of);
    if let Some(to) = to
        && *of != DataType::Null
        && !to.takes(of)
    {
        return Err(Error::spec(format!(
            "`types.{name}` does not fit: the column holds {}, which gyre does not convert; leave the key out, and convert the column in the SQL",
            value_kind(of)
        )));
    }
    if fills.is_empty() && to.is_none() {
        return Ok(None);
    }
    Ok(Some(Arc::new(ColumnRule {
        column: name.clone(),
        fills,
        to: to.cloned(),
    })))
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
        let apply = |values: &ArrayRef| {
            let applied = self.rule.apply(values);
            applied.map_err(|(_, what)| DataFusionError::from(Fault::new(what)))
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
mod tests {
    use super::*;
    use crate::read::formats::fill_values::{FillValue, FillValues};
    use crate::read::formats::format::Format;
    use crate::read::lake;
    use crate::read::lake::files::{LakeTable, TableSource};
    use crate::read::lake::reopen::reopen;
    use crate::read::lake::{Lake, Resources};
    use crate::store::Stores;
    use arrow::array::{Array, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
    use arrow::compute::cast;
    use arrow::datatypes::{Float64Type, Int64Type};
    use arrow::ipc::writer::FileWriter;
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use proptest::prelude::*;
    use proptest::sample::select;
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::path::Path;

    const RESOURCES: Resources = Resources {
        threads: 2,
        memory_bytes: None,
    };

    /// Writes the rows `k`, `x` as a file.
    fn write(folder: &Path, format: Format, file: usize, rows: &RecordBatch) {
        let path = folder.join(format!("{file}.{}", format.name()));
        let cell = |column: usize, row: usize| {
            let column = rows.column(column);
            let shown = arrow::util::display::array_value_to_string(column, row);
            column.is_valid(row).then(|| shown.expect("a text"))
        };
        let mut text = String::new();
        match format {
            Format::Parquet => {
                let groups = WriterProperties::builder().set_max_row_group_row_count(Some(4));
                let file = File::create(path).expect("a file");
                let writer = ArrowWriter::try_new(file, rows.schema(), Some(groups.build()));
                let mut writer = writer.expect("a writer");
                writer.write(rows).expect("rows");
                writer.close().expect("an end");
                return;
            }
            Format::Arrow => {
                let file = File::create(path).expect("a file");
                let mut writer = FileWriter::try_new(file, &rows.schema()).expect("a writer");
                writer.write(rows).expect("rows");
                writer.finish().expect("an end");
                return;
            }
            Format::Csv => {
                text += "k,x\n";
                for row in 0..rows.num_rows() {
                    let [k, x] = [0, 1].map(|column| cell(column, row).unwrap_or_default());
                    text += &format!("{k},{x}\n");
                }
            }
            Format::Json => {
                for row in 0..rows.num_rows() {
                    let k = cell(0, row).expect("a key");
                    let x = cell(1, row).map_or("null".into(), |x| match x.as_str() {
                        "NA" => "\"NA\"".to_string(),
                        _ => x,
                    });
                    text += &format!("{{\"k\": {k}, \"x\": {x}}}\n");
                }
            }
        }
        std::fs::write(path, text).expect("a file");
    }

    /// The lake of a folder, and the same tables as another process opens them.
    async fn lakes(folder: &Path, format: Format, dialect: Dialect) -> Result<[Lake; 2]> {
        let paths = [folder.display().to_string()];
        let source = TableSource {
            format,
            dialect,
            ..TableSource::of_parquet("t", &paths)
        };
        let sources = [source];
        let lake = lake::open(&sources, &RESOURCES, &Stores::default()).await?;
        let bytes = postcard::to_stdvec(&lake.tables).expect("tables");
        let found: Vec<LakeTable> = postcard::from_bytes(&bytes).expect("tables");
        Ok([lake, reopen(found, &RESOURCES, &Stores::default())?])
    }

    fn fills(all: Vec<FillValue>) -> Dialect {
        Dialect {
            null: FillValues {
                all,
                ..FillValues::default()
            },
            ..Dialect::default()
        }
    }

    async fn rows(lake: &Lake, sql: &str) -> Result<Vec<RecordBatch>> {
        let frame = lake.query(sql, &BTreeMap::new()).await?;
        Ok(frame.collect().await.expect("rows"))
    }

    /// The keys of rows in order.
    async fn keys(lake: &Lake, filter: &str) -> Vec<i64> {
        let sql = format!("SELECT k FROM t WHERE {filter} ORDER BY k");
        let batches = rows(lake, &sql).await.expect("rows");
        let keys = batches.iter().flat_map(|batch| {
            batch
                .column(0)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        });
        keys.collect()
    }

    type Holds = fn(Option<f64>) -> bool;

    const FILTERS: [(&str, Holds); 6] = [
        ("x = -9999", |x| x == Some(-9999.0)),
        ("x < 0", |x| x.is_some_and(|x| x < 0.0)),
        ("x IS NULL", |x| x.is_none()),
        ("x IS NOT NULL AND x <> 2", |x| x.is_some_and(|x| x != 2.0)),
        ("x >= 1 OR x IS NULL", |x| x.is_none_or(|x| x >= 1.0)),
        ("x BETWEEN -10000 AND 1", |x| x.is_some_and(|x| x <= 1.0)),
    ];

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

        /// Filters see the values after replacing, whatever the statistics of files say, and the
        /// values that became null are all that are equal to -9999.
        #[test]
        fn fill_values_are_null_in_every_format(
            files in prop::collection::vec(
                prop::collection::vec(
                    select(vec![None, Some(-9999), Some(-9998), Some(1), Some(2)]),
                    1..12,
                ),
                1..4,
            ),
            format in select(Format::ALL.to_vec()),
            of in select(vec![DataType::Int64, DataType::Int16, DataType::Float32, DataType::Float64]),
            filter in select(FILTERS.to_vec()),
        ) {
            let folder = tempfile::tempdir().expect("a folder");
            let mut n = 0;
            let mut expected = Vec::new();
            let mut replaced = 0;
            for (at, values) in files.iter().enumerate() {
                let keys: Vec<i64> = (n..).take(values.len()).collect();
                n += values.len() as i64;
                for (k, x) in keys.iter().zip(values) {
                    replaced += u64::from(*x == Some(-9999));
                    let x = x.filter(|x| *x != -9999).map(|x| x as f64);
                    expected.extend((filter.1)(x).then_some(*k));
                }
                let x: ArrayRef = Arc::new(Int64Array::from(values.clone()));
                let x = cast(&x, &of).expect("numbers");
                let k: ArrayRef = Arc::new(Int64Array::from(keys));
                let columns = [("k", k, true), ("x", x, true)];
                let rows = RecordBatch::try_from_iter_with_nullable(columns).expect("rows");
                write(folder.path(), format, at, &rows);
            }
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(async {
                let dialect = fills(vec![FillValue::Integer(-9999)]);
                // A text column that has nulls alone holds no number.
                for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
                    let is_number = lake.tables[0].schema.field(1).data_type().is_numeric();
                    if !is_number {
                        continue;
                    }
                    assert_eq!(keys(&lake, filter.0).await, expected, "{} {of}", format.name());
                    let sql = format!("SELECT k FROM t WHERE {}", filter.0);
                    let frame = lake.query(&sql, &BTreeMap::new()).await.expect("a query");
                    let nulled = lake.nulled(std::slice::from_ref(&frame), None).await.expect("counts");
                    assert_eq!(nulled["t"]["x"], replaced, "{}", format.name());
                }
            });
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn texts_for_null_do_not_make_a_column_text() {
        let folder = tempfile::tempdir().expect("a folder");
        for format in [Format::Csv, Format::Json] {
            let texts = StringArray::from(vec![Some("1"), Some("NA"), None, Some("-5")]);
            let k: ArrayRef = Arc::new(Int64Array::from(vec![0, 1, 2, 3]));
            let columns: [(_, ArrayRef, _); 2] = [("k", k, true), ("x", Arc::new(texts), true)];
            let rows = RecordBatch::try_from_iter_with_nullable(columns).expect("rows");
            write(folder.path(), format, 0, &rows);
            let own = FillValues {
                by_column: BTreeMap::from([(
                    "x".to_string(),
                    vec![FillValue::Text("NA".into()), FillValue::Integer(-5)],
                )]),
                ..FillValues::default()
            };
            let dialect = Dialect {
                null: own,
                ..Dialect::default()
            };
            for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
                assert_eq!(lake.tables[0].schema.field(1).data_type(), &DataType::Int64);
                assert_eq!(keys(&lake, "x IS NULL").await, [1, 2, 3]);
                let frame = lake
                    .query("SELECT x FROM t", &BTreeMap::new())
                    .await
                    .expect("a query");
                let nulled = lake
                    .nulled(std::slice::from_ref(&frame), None)
                    .await
                    .expect("counts");
                assert_eq!(nulled["t"]["x"], 2, "{}", format.name());
            }
        }
    }

    fn types(of: &[(&str, ColumnType)]) -> Dialect {
        let types = of.iter().map(|(name, of)| (name.to_string(), of.clone()));
        Dialect {
            types: types.collect(),
            ..Dialect::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn types_are_those_of_the_pipeline_in_every_format() {
        for format in Format::ALL {
            let folder = tempfile::tempdir().expect("a folder");
            let of_file = |values: Vec<f64>| {
                let k: ArrayRef = Arc::new(Int64Array::from(vec![7, 8]));
                let x: ArrayRef = Arc::new(Float64Array::from(values));
                RecordBatch::try_from_iter([("k", k), ("x", x)]).expect("rows")
            };
            write(folder.path(), format, 0, &of_file(vec![1.0, 2.0]));
            write(folder.path(), format, 1, &of_file(vec![3.0, 4.5]));
            let dialect = types(&[("k", ColumnType::Text), ("x", ColumnType::Number)]);
            for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
                let schema = &lake.tables[0].schema;
                assert!(schema.field(0).data_type().is_string(), "{}", format.name());
                let sql = "SELECT x FROM t WHERE k = '7' ORDER BY x";
                let batches = rows(&lake, sql).await.expect("rows");
                let x = batches.iter().flat_map(|batch| {
                    batch
                        .column(0)
                        .as_primitive::<Float64Type>()
                        .values()
                        .to_vec()
                });
                assert_eq!(x.collect::<Vec<_>>(), [1.0, 3.0], "{}", format.name());
            }
            // 4.5 in the second row of the second file is no integer.
            let dialect = types(&[("x", ColumnType::Integer)]);
            let place = match format {
                Format::Csv => "1.csv, line 3: column `x` holds `4.5`, which is no whole number",
                Format::Json => ".json, line 1: column `x` holds ",
                Format::Parquet => "1.parquet, row 2: column `x` holds `4.5`, which is no whole",
                Format::Arrow => "1.arrow, row 2: column `x` holds `4.5`, which is no whole",
            };
            for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
                let frame = lake
                    .query("SELECT x FROM t WHERE k > 0", &BTreeMap::new())
                    .await;
                let read = lake.each_stream(frame.expect("a query"), |_| {
                    Ok(((), |_: &RecordBatch, _: &mut ()| Ok(())))
                });
                let message = read
                    .await
                    .expect_err("no integer")
                    .into_error("reading")
                    .to_string();
                assert!(message.contains(place), "{message}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn keys_of_columns_name_what_is_wrong() {
        let folder = tempfile::tempdir().expect("a folder");
        let k: ArrayRef = Arc::new(Int64Array::from(vec![0]));
        let x: ArrayRef = Arc::new(Int64Array::from(vec![1]));
        let rows = RecordBatch::try_from_iter([("k", k), ("x", x)]).expect("rows");
        write(folder.path(), Format::Parquet, 0, &rows);
        let own = |column: &str, value: FillValue| Dialect {
            null: FillValues {
                by_column: BTreeMap::from([(column.to_string(), vec![value])]),
                ..FillValues::default()
            },
            ..Dialect::default()
        };
        let time = ColumnType::Time {
            format: "%Y".into(),
            zone: None,
        };
        for (dialect, expected) in [
            (
                own("x", FillValue::Text("NA".into())),
                "`null.x` cannot be \"NA\": the column holds whole numbers",
            ),
            (
                own("y", FillValue::Integer(1)),
                "`null.y` names no column of the files",
            ),
            (
                types(&[("kk", time)]),
                "`types.kk` names no column of the files",
            ),
        ] {
            let found = lakes(folder.path(), Format::Parquet, dialect).await;
            let message = found.err().expect("a wrong key").to_string();
            assert!(message.contains(expected), "{message}");
        }
    }
}
