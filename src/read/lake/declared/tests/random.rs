//! The keys `null` and `types` on random tables of all formats and types, against `nullif` and
//! `CAST` of the engine on the same tables without the keys.

use super::*;

/// A type of a column, and values that it may have.
type Pool = (DataType, Vec<&'static str>);

fn pools() -> Vec<Pool> {
    use DataType::{
        Boolean, Date32, Decimal128, Float32, Float64, Int16, Int64, UInt8, UInt64, Utf8,
    };
    let floats = || {
        vec![
            "NaN", "inf", "-inf", "-0.0", "0.0", "1.5", "-9999.0", "1e20", "9.97e36", "7.0",
        ]
    };
    vec![
        (Int64, vec!["-9999", "0", "1", "7", "9007199254740991"]),
        (Int16, vec!["-9999", "0", "1", "7"]),
        (UInt64, vec!["0", "1", "18446744073709551615"]),
        (UInt8, vec!["0", "7", "255"]),
        (Float64, floats()),
        (Float32, floats()),
        (
            Decimal128(12, 2),
            vec!["-9999.00", "1.50", "0.00", "7.00", "0.07"],
        ),
        (Boolean, vec!["true", "false"]),
        (Date32, vec!["2024-07-01", "1969-12-31"]),
        (
            Utf8,
            vec!["NA", "-9999", "-9999.0", "1", "007", " x", "nan", "true"],
        ),
    ]
}

/// Files of one type with some of its values, and nulls. A file of texts has one that is nothing
/// else.
fn arrays(of: &DataType, files: &[Vec<Option<&'static str>>], format: Format) -> Vec<ArrayRef> {
    let is_finite = |x: &&str| !x.ends_with("inf") && *x != "NaN";
    let files = files.iter().map(|values| {
        let values = values.iter().map(|x| match format {
            // JSON has no such numbers.
            Format::Json if of.is_floating() => x.filter(|x| is_finite(x)),
            // CSV has no type for such integers.
            Format::Csv if *of == DataType::UInt64 => x.filter(|x| x.len() < 19),
            _ => *x,
        });
        let word = (*of == DataType::Utf8).then_some(Some("word"));
        let values: StringArray = values.chain(word).collect();
        cast(&values, of).expect("values")
    });
    files.collect()
}

fn tables(pools: Vec<Pool>) -> impl Strategy<Value = (DataType, Vec<Vec<Option<&'static str>>>)> {
    let table = select(pools).prop_flat_map(|(of, values)| {
        let mut values: Vec<Option<&'static str>> = values.into_iter().map(Some).collect();
        values.push(None);
        let file = prop::collection::vec(select(values), 1..10);
        (Just(of), prop::collection::vec(file, 1..3))
    });
    table.boxed()
}

fn some_fills() -> impl Strategy<Value = Vec<FillValue>> {
    use FillValue::{Integer, Number, Text};
    let all = vec![
        Integer(-9999),
        Integer(0),
        Integer(7),
        Number(1.5),
        Number(1e20),
        Number(9.97e36),
        Number(f64::NAN),
        Number(f64::INFINITY),
        Number(-9999.0),
        Text("NA".into()),
        Text("007".into()),
        Text(" x".into()),
        Text("nan".into()),
    ];
    prop::sample::subsequence(all, 1..6)
}

/// A value of `null` as SQL in a type, if the type has it.
fn in_sql(value: &FillValue, of: &DataType) -> Option<String> {
    let (number, is_whole) = match value {
        FillValue::Text(text) => return of.is_string().then(|| format!("'{text}'")),
        FillValue::Integer(n) => (*n as f64, true),
        FillValue::Number(x) => (*x, x.fract() == 0.0),
    };
    let holds = match of {
        DataType::Float32 | DataType::Float64 => true,
        DataType::Int64 | DataType::Int16 => is_whole && number.abs() < 1e4,
        DataType::UInt64 | DataType::UInt8 => is_whole && (0.0..255.0).contains(&number),
        DataType::Decimal128(_, scale) => (is_whole || *scale > 0) && number.abs() < 1e4,
        _ => false,
    };
    holds.then(|| format!("arrow_cast(CAST('{number}' AS DOUBLE), '{of}')"))
}

/// Every value of a query of one column, in the order of the keys.
async fn column(lake: &Lake, x: &str) -> Vec<Option<String>> {
    shown(lake, &format!("SELECT {x} AS x FROM t ORDER BY k")).await
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn values_of_null_are_those_of_nullif(
        (of, files) in tables(pools()),
        null in some_fills(),
        format in select(Format::ALL.to_vec()),
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        write_all(folder.path(), format, &arrays(&of, &files, format));
        // Readers of text compare texts with what is written, which SQL does not see.
        let is_word = |value: &FillValue| {
            !format.is_text() || of == DataType::Utf8 || !matches!(value, FillValue::Text(_))
        };
        let null: Vec<FillValue> = null.into_iter().filter(is_word).collect();
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let plain = lakes(folder.path(), format, Dialect::default()).await;
            let [plain, _] = plain.expect("a lake");
            let in_lake = plain.tables[0].schema.field(1).data_type().clone();
            let values = null.iter().filter_map(|value| in_sql(value, &in_lake));
            let nullif = values.fold("x".to_string(), |x, value| format!("nullif({x}, {value})"));
            let expected = column(&plain, &nullif).await;
            let before = column(&plain, "x").await;
            let is_new = |(after, before): &(&Option<String>, &Option<String>)| after != before;
            let replaced = expected.iter().zip(&before).filter(is_new).count() as u64;
            for lake in lakes(folder.path(), format, fills(null.clone())).await.expect("a lake") {
                let at = format!("{} {in_lake} {null:?}", format.name());
                assert_eq!(lake.tables[0].schema.field(1).data_type(), &in_lake, "{at}");
                assert_eq!(column(&lake, "x").await, expected, "{at}");
                let frame = lake.query("SELECT x FROM t", &BTreeMap::new()).await;
                let frame = [frame.expect("a query")];
                let nulled = lake.nulled(&frame, None).await.expect("counts");
                let counted = nulled.get("t").and_then(|t| t.get("x")).copied();
                assert_eq!(counted.unwrap_or(0), replaced, "{at}");
            }
        });
    }

    #[test]
    fn types_are_those_of_a_cast(
        (of, files) in tables(pools()),
        to in select(vec![ColumnType::Text, ColumnType::Integer, ColumnType::Number]),
        format in select(Format::ALL.to_vec()),
    ) {
        // Values that the type has, one by one. A text keeps what is written, and SQL has one zero.
        let fits = |x: &&str| match to {
            ColumnType::Text => *x != "-0.0",
            _ if of == DataType::Utf8 => matches!(*x, "-9999" | "-9999.0" | "1" | "007"),
            ColumnType::Integer => {
                let x = x.parse::<f64>();
                x.is_ok_and(|x| x.fract() == 0.0 && x.abs() < 1e16)
            }
            _ => *x != "18446744073709551615",
        };
        let is_single = matches!(of, DataType::Boolean | DataType::Date32);
        prop_assume!(!is_single || to == ColumnType::Text);
        // A single is another double than the text of it.
        prop_assume!(of != DataType::Float32 || to != ColumnType::Number || !format.is_text());
        let files = files.iter().map(|values| values.iter().map(|x| x.filter(fits)).collect());
        let files: Vec<Vec<Option<&str>>> = files.collect();
        let mut files = arrays(&of, &files, format);
        if of == DataType::Utf8 && to != ColumnType::Text {
            // The word is no number. CSV files of codes and of numbers would not fit together.
            files.truncate(if format == Format::Csv { 1 } else { 2 });
            files = files.iter().map(|file| file.slice(0, file.len() - 1)).collect();
        }
        let folder = tempfile::tempdir().expect("a folder");
        write_all(folder.path(), format, &files);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        runtime.block_on(async {
            let plain = lakes(folder.path(), format, Dialect::default()).await;
            let [plain, _] = plain.expect("a lake");
            let expected = match to {
                ColumnType::Text if format.is_text() => files.iter().flat_map(texts_of).collect(),
                ColumnType::Text => column(&plain, "CAST(x AS VARCHAR)").await,
                ColumnType::Integer => column(&plain, "CAST(CAST(x AS DOUBLE) AS BIGINT)").await,
                _ => column(&plain, "CAST(x AS DOUBLE)").await,
            };
            let dialect = of_x(Some(to.clone()), Vec::new());
            for lake in lakes(folder.path(), format, dialect).await.expect("a lake") {
                let at = format!("{} {of} {to:?}", format.name());
                assert_eq!(column(&lake, "x").await, expected, "{at}");
                let found = lake.tables[0].schema.field(1).data_type();
                let is_right = found.is_string() && to == ColumnType::Text || *found == to.data_type();
                assert!(is_right, "{found}: {at}");
            }
        });
    }
}
