//! Keys and times of every type, in any order and split of the rows, compared with an independent
//! count. PROPTEST_CASES sets the number of cases.

use crate::hostile::{TRAJECTORIES, counts, parquet, proptest_cases, run_into};
use arrow::array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int32Array, Int64Array, ListArray,
    NullArray, StringArray, StructArray, UInt32Array, UInt64Array,
};
use arrow::compute::{cast, take};
use arrow::datatypes::{DataType, Int32Type, IntervalUnit, TimeUnit};
use gyre::error::Kind;
use gyre::read::rows::states::key_text;
use object_store::memory::InMemory;
use parquet::basic::Compression;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::sync::Arc;

/// Distinct values of a type in ascending order. gyre may refuse some of the types.
fn pool(data_type: &DataType) -> ArrayRef {
    let of =
        |array: ArrayRef| cast(&array, data_type).unwrap_or_else(|e| panic!("{data_type}: {e}"));
    match data_type {
        DataType::Null => Arc::new(NullArray::new(6)),
        DataType::Boolean => Arc::new(BooleanArray::from(vec![false, true])),
        DataType::UInt64 => {
            let values = vec![0, 1, 2, 1 << 32, i64::MAX as u64, u64::MAX];
            Arc::new(UInt64Array::from(values))
        }
        DataType::Int64 => {
            let values = vec![i64::MIN, -1, 0, 1, u32::MAX as i64, i64::MAX];
            Arc::new(Int64Array::from(values))
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let is_half = *data_type == DataType::Float16;
            let small = if is_half { 6e-8 } else { 1e-40 };
            let values = vec![f64::NEG_INFINITY, -1.5, 0.0, small, f64::INFINITY];
            of(Arc::new(Float64Array::from(values)))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let values = vec!["", " ", "\n,\"", "a", "null", "日本\u{202e}", "𝄞\0"];
            of(Arc::new(StringArray::from(values)))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let values = vec![&b""[..], b"\0", b"\0\0", b"a", b"\xff\xfe"];
            of(Arc::new(BinaryArray::from(values)))
        }
        DataType::FixedSizeBinary(2) => {
            let values = vec![&b"\0\0"[..], b"\0a", b"\xff\xff"];
            of(Arc::new(BinaryArray::from(values)))
        }
        DataType::Dictionary(_, values) => of(pool(values)),
        DataType::Decimal128(..) | DataType::Decimal256(..) => {
            of(Arc::new(Int64Array::from(vec![-99999, -1, 0, 1, 99999])))
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let seconds: ArrayRef = Arc::new(Int32Array::from(vec![0, 1, 86_399]));
            let seconds = cast(&seconds, &DataType::Time32(TimeUnit::Second)).expect("times");
            of(seconds)
        }
        DataType::List(_) => {
            let lists = [vec![], vec![None], vec![Some(1)], vec![Some(1), Some(2)]];
            let lists = lists.map(Some);
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists))
        }
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|f| pool(f.data_type()).slice(0, 2));
            Arc::new(StructArray::new(fields.clone(), columns.collect(), None))
        }
        _ => of(Arc::new(Int32Array::from(vec![0, 1, 2, 3, 127]))),
    }
}

const UNITS: [TimeUnit; 4] = [
    TimeUnit::Second,
    TimeUnit::Millisecond,
    TimeUnit::Microsecond,
    TimeUnit::Nanosecond,
];

fn key_types() -> Vec<DataType> {
    use DataType::*;
    let dictionary =
        |keys: DataType, values: DataType| Dictionary(Box::new(keys), Box::new(values));
    let mut types = vec![
        Boolean, Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64, Utf8,
        LargeUtf8, Utf8View, Binary, BinaryView, Date32, Date64,
    ];
    types.extend([
        LargeBinary,
        FixedSizeBinary(2),
        Decimal128(10, 0),
        Decimal128(38, 3),
        Decimal256(60, 2),
        dictionary(Int32, Utf8),
        dictionary(Int8, Utf8),
        dictionary(UInt16, Int64),
        dictionary(Int32, LargeUtf8),
        Time32(TimeUnit::Second),
        Time32(TimeUnit::Millisecond),
        Time64(TimeUnit::Microsecond),
        Time64(TimeUnit::Nanosecond),
    ]);
    types.extend(UNITS.map(|unit| Timestamp(unit, None)));
    types.extend(UNITS.map(|unit| Timestamp(unit, Some("+02:00".into()))));
    types
}

/// Nested and other types that gyre may refuse.
fn odd_types() -> Vec<DataType> {
    use DataType::*;
    let field = |name: &str, t: DataType| Arc::new(arrow::datatypes::Field::new(name, t, true));
    vec![
        Null,
        Float16,
        Duration(TimeUnit::Second),
        Interval(IntervalUnit::YearMonth),
        List(field("item", Int32)),
        Struct(vec![field("x", Int32), field("y", Utf8)].into()),
    ]
}

/// Times that are one unit apart. If the type has units, also the lags of one and of two units.
fn times(data_type: &DataType) -> (ArrayRef, Option<[&'static str; 2]>) {
    let of =
        |array: ArrayRef| cast(&array, data_type).unwrap_or_else(|e| panic!("{data_type}: {e}"));
    let small: ArrayRef = Arc::new(Int64Array::from_iter_values(0..9));
    let integers = Some(["1", "2"]);
    match data_type {
        DataType::Int64 | DataType::UInt64 => {
            let large = Int64Array::from_iter_values(i64::MAX - 8..=i64::MAX);
            (of(Arc::new(large)), integers)
        }
        DataType::Int8 => {
            let small = Int64Array::from_iter_values(-128..-119);
            (of(Arc::new(small)), integers)
        }
        DataType::Float32 | DataType::Float64 => {
            let end = f64::INFINITY;
            let tiny = vec![-end, -1e30, -1.0, -1e-30, 0.0, 1e-30, 1.0, 1e30, end];
            (of(Arc::new(Float64Array::from(tiny))), None)
        }
        DataType::Date32 | DataType::Date64 => {
            let days: ArrayRef = Arc::new(Int32Array::from_iter_values(-4..5));
            let days = cast(&days, &DataType::Date32).expect("days");
            (of(days), Some(["\"1d\"", "\"2d\""]))
        }
        DataType::Timestamp(unit, _) => {
            let (lags, start) = match unit {
                TimeUnit::Second => (["\"1s\"", "\"2s\""], i64::from(i32::MIN)),
                TimeUnit::Millisecond => (["\"1ms\"", "\"2ms\""], -4),
                TimeUnit::Microsecond => (["\"1us\"", "\"2us\""], 1 << 50),
                TimeUnit::Nanosecond => (["\"1ns\"", "\"2ns\""], i64::MIN + 10),
            };
            let times = Int64Array::from_iter_values(start..start + 9);
            (of(Arc::new(times)), Some(lags))
        }
        _ => (of(small), integers),
    }
}

fn time_types() -> Vec<DataType> {
    use DataType::*;
    let mut types = vec![
        Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64, Float32, Float64, Date32, Date64,
    ];
    types.extend(UNITS.map(|unit| Timestamp(unit, None)));
    types.extend(UNITS.map(|unit| Timestamp(unit, Some("UTC".into()))));
    types
}

/// Values of a pool by index, with nulls.
fn column(pool: &ArrayRef, at: impl Iterator<Item = Option<usize>>) -> ArrayRef {
    let n = pool.len();
    let at: UInt32Array = at.map(|at| at.map(|at| (at % n) as u32)).collect();
    take(pool, &at, None).expect("places in the pool")
}

/// The distance between the rows of a pair.
#[derive(Debug, Clone, Copy)]
enum Distance {
    Units(usize),
    Rows(usize),
}

/// Indices of trajectory, time and state.
type Row = (usize, usize, Option<usize>);

/// The pairs of states by index, computed independently.
fn expected_counts(rows: &[Row], distance: Distance) -> HashMap<(usize, usize), u64> {
    let mut sorted = rows.to_vec();
    sorted.sort();
    let mut pairs = HashMap::new();
    for (at, a) in sorted.iter().enumerate() {
        let own = sorted[at..].iter().filter(|b| b.0 == a.0);
        let b = match distance {
            Distance::Units(n) => own.clone().find(|b| b.1 == a.1 + n),
            Distance::Rows(n) => own.clone().nth(n),
        };
        if let (Some(from), Some((_, _, Some(to)))) = (a.2, b) {
            *pairs.entry((from, *to)).or_default() += 1;
        }
    }
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: proptest_cases(24), ..ProptestConfig::default() })]

    /// Columns of every type are counted in any order and split of the rows.
    #[test]
    fn columns_of_every_type_are_counted(
        (id, state) in (select(key_types()), prop_oneof![5 => select(key_types()), 1 => select(odd_types())]),
        time in select(time_types()),
        rows in prop::collection::btree_map((0..3_usize, 0..9_usize), prop::option::weighted(0.9, 0..7_usize), 2..24)
            .prop_map(|rows| rows.into_iter().map(|((id, t), s)| (id, t, s)).collect::<Vec<Row>>())
            .prop_shuffle(),
        lone in prop::collection::vec((any::<bool>(), any::<bool>()), 0..3),
        (files, is_ordered, rows_apart, n) in (1..4_usize, any::<bool>(), any::<bool>(), 1..3_usize),
    ) {
        let (ids, states) = (pool(&id), pool(&state));
        let (times, lags) = times(&time);
        // Pools differ in size, so indices wrap around.
        let mut rows: Vec<Row> = rows.into_iter().map(|(id, t, s)| (id % ids.len(), t, s.map(|s| s % states.len()))).collect();
        rows.sort_by_key(|r| (r.0, r.1));
        rows.dedup_by_key(|r| (r.0, r.1));
        if !is_ordered {
            rows.reverse();
        }
        let distance = if rows_apart || lags.is_none() { Distance::Rows(n) } else { Distance::Units(n) };
        let lag = match (distance, lags) {
            (Distance::Units(n), Some(lags)) => lags[n - 1].to_string(),
            _ => format!("\"{n} steps\""),
        };
        // A row without a trajectory or a time belongs to no trajectory.
        let mut all: Vec<(Option<usize>, Option<usize>, Option<usize>)> = rows.iter().map(|r| (Some(r.0), Some(r.1), r.2)).collect();
        all.extend(lone.iter().map(|&(no_id, other)| if no_id { (None, Some(0), Some(0)) } else { (other.then_some(0), None, Some(0)) }));
        let folder = tempfile::tempdir().expect("a folder");
        for (at, rows) in all.chunks(all.len().div_ceil(files)).enumerate() {
            let columns = vec![
                ("id", column(&ids, rows.iter().map(|r| r.0))),
                ("t", column(&times, rows.iter().map(|r| r.1))),
                ("s", column(&states, rows.iter().map(|r| r.2))),
            ];
            fs::write(folder.path().join(format!("{at}.parquet")), parquet(columns, Compression::UNCOMPRESSED)).expect("a file");
        }
        let expected: BTreeMap<Vec<String>, u64> = expected_counts(&rows, distance)
            .into_iter()
            .map(|((a, b), n)| ([a, b].map(|at| key_text(&[Arc::clone(&states)], at)).to_vec(), n))
            .collect();
        let input = TRAJECTORIES.replace("lag = 1", &format!("lag = {lag}"));
        let store = InMemory::new();
        match run_into(&store, &input, false, &folder, "parquet") {
            Ok(_) => prop_assert_eq!(counts(&store), expected),
            Err(e) if odd_types().contains(&state) => prop_assert!(matches!(e.kind(), Kind::Spec | Kind::Input), "{}", e.full()),
            Err(e) => prop_assert!(expected.is_empty() && e.kind() == Kind::Input, "{} for {:?}", e.full(), expected),
        }
    }
}
