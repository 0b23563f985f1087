//! Columns → state ids, and back. Small integers and bounded boxes are their own ids, so most
//! states need no hash table.

use crate::error::{Error, Kind, Result, escaped};
use crate::read::rows::bins::{Binning, Grid, Outside, Precision};
use crate::read::rows::doubles::doubles;
use crate::read::rows::keys::{Keys, NONE, too_long, union};
use crate::read::rows::pieces::taken;
use crate::read::rows::stop::{Dropped, NAN_STATE, NULL_STATE, Stop};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array, UInt32Array};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::error::ArrowError;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// A coordinate that is cut into boxes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BinColumn {
    /// Name of the column.
    pub name: String,
    /// How exactly the input holds its values.
    pub precision: Precision,
    /// The boxes.
    pub binning: Binning,
}

/// The columns of a state: keys of any type first, then binned coordinates.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StateColumns {
    /// Key columns.
    #[serde(with = "crate::read::rows::ipc::fields")]
    pub keys: Vec<Field>,
    /// Binned coordinates.
    pub bins: Vec<BinColumn>,
}

impl StateColumns {
    /// Number of columns.
    pub(crate) fn len(&self) -> usize {
        self.keys.len() + self.bins.len()
    }

    /// The columns of the input that make up a state.
    pub(crate) fn input_fields(&self) -> Vec<Field> {
        let bins = self.bins.iter();
        let bins = bins.map(|bin| Field::new(&bin.name, bin.precision.data_type(), true));
        self.keys.iter().cloned().chain(bins).collect()
    }

    /// The columns that describe a state in the output: keys in their own types, binned coordinates
    /// as box centres.
    pub(crate) fn output_fields(&self) -> Vec<Field> {
        let of = |name: &str, of: &DataType| Field::new(name, of.clone(), false);
        let keys = self.keys.iter().map(|key| of(key.name(), key.data_type()));
        let bins = self
            .bins
            .iter()
            .map(|bin| of(&bin.name, &DataType::Float64));
        keys.chain(bins).collect()
    }

    /// The columns of the symbols at some positions of a window: `page_1`, `page_2`, …
    pub(crate) fn word(&self, positions: Range<usize>) -> StateColumns {
        let named = |name: &str, at: usize| format!("{name}_{}", at + 1);
        let keys = positions.clone().flat_map(|at| {
            let keys = self.keys.iter();
            keys.map(move |key| key.clone().with_name(named(key.name(), at)))
        });
        let bins = positions.flat_map(|at| {
            let bins = self.bins.iter();
            bins.map(move |bin| BinColumn {
                name: named(&bin.name, at),
                ..bin.clone()
            })
        });
        StateColumns {
            keys: keys.collect(),
            bins: bins.collect(),
        }
    }

    /// Number of boxes per coordinate, if all are bounded and the number of all boxes fits an id.
    fn box_numbers(&self) -> Option<Vec<u64>> {
        let boxes: Vec<u64> = self
            .bins
            .iter()
            .map(|bin| boxes(&bin.binning))
            .collect::<Option<_>>()?;
        let product = boxes.iter().try_fold(1u64, |p, &b| p.checked_mul(b))?;
        (self.keys.is_empty() && product < u64::from(NONE)).then_some(boxes)
    }
}

/// Number of boxes of a coordinate; `None` if unbounded.
fn boxes(binning: &Binning) -> Option<u64> {
    match binning {
        Binning::Open { .. } => None,
        Binning::Bounded { boxes, .. } | Binning::Periodic { boxes, .. } => Some(u64::from(*boxes)),
    }
}

/// How states map to ids.
enum Coding {
    /// One integer column; its values are the ids, if they are small and not negative.
    Direct,
    /// Bounded boxes, numbered with the last coordinate varying fastest.
    Boxes(Vec<u64>),
    /// Any columns, with ids by first appearance.
    Interned(Keys),
}

/// Assigns ids to the states of a stream.
pub(crate) struct States {
    columns: StateColumns,
    /// The boxes of each binned coordinate.
    grids: Vec<Grid>,
    coding: Coding,
}

impl States {
    /// States with these columns. `direct = false` after a stream contained integers that are not
    /// small ids.
    ///
    /// # Errors
    /// A key column of a type that cannot be compared.
    pub(crate) fn new(columns: &StateColumns, direct: bool) -> Result<States> {
        let coding = match (columns.keys.as_slice(), columns.box_numbers()) {
            ([key], _) if direct && columns.bins.is_empty() && key.data_type().is_integer() => {
                Coding::Direct
            }
            ([], Some(boxes)) => Coding::Boxes(boxes),
            _ => {
                let bins = columns.bins.iter().map(|_| DataType::Int64);
                let types: Vec<_> = columns
                    .keys
                    .iter()
                    .map(|f| f.data_type().clone())
                    .chain(bins)
                    .collect();
                Coding::Interned(Keys::new(&types)?)
            }
        };
        let grids = columns.bins.iter().map(|bin| bin.binning.grid());
        Ok(States {
            columns: columns.clone(),
            grids: grids.collect(),
            coding,
        })
    }

    /// The columns of a state.
    pub(crate) fn columns(&self) -> &StateColumns {
        &self.columns
    }

    /// Replaces `ids` by the ids of the rows of `arrays`, in the order of `StateColumns`. Rows
    /// without a state get `NONE`, and `dropped` counts them by reason.
    ///
    /// # Errors
    /// [`Stop::WideStates`] if direct integers are not small ids; a coordinate outside bounds that
    /// forbid it.
    pub(crate) fn ids(
        &mut self,
        arrays: &[ArrayRef],
        dropped: &mut Dropped,
        ids: &mut Vec<u32>,
    ) -> Result<(), Stop> {
        let (keys, coordinates) = arrays.split_at(self.columns.keys.len());
        let binned = self.columns.bins.iter().zip(&self.grids);
        let binned = coordinates.iter().zip(binned);
        ids.clear();
        match &mut self.coding {
            Coding::Direct => {
                if !small_integers(&keys[0], ids) {
                    return Err(Stop::WideStates);
                }
                dropped.add(NULL_STATE, keys[0].null_count() as u64);
            }
            Coding::Boxes(boxes) => {
                ids.resize(arrays[0].len(), 0);
                for ((array, (bin, grid)), &n) in binned.zip(boxes.iter()) {
                    each_box(array, bin, grid, dropped, |at, index| {
                        ids[at] = match index {
                            Some(index) if ids[at] != NONE => ids[at] * n as u32 + index as u32,
                            _ => NONE,
                        }
                    })?;
                }
            }
            Coding::Interned(interned) => {
                let mut arrays: Vec<ArrayRef> = Vec::with_capacity(self.columns.len());
                let mut bad =
                    vec![false; keys.first().or(coordinates.first()).map_or(0, |a| a.len())];
                for key in keys {
                    let nulls = key.null_count();
                    if nulls > 0 {
                        dropped.add(NULL_STATE, nulls as u64);
                    }
                    if key.data_type().is_floating() {
                        let nan = nan_rows(key)?;
                        bad.iter_mut()
                            .enumerate()
                            .for_each(|(at, bad)| *bad |= nan.value(at));
                        dropped.add(NAN_STATE, nan.true_count() as u64);
                    }
                    arrays.push(Arc::clone(key));
                }
                for (array, (bin, grid)) in binned {
                    let mut indices = vec![0i64; array.len()];
                    each_box(array, bin, grid, dropped, |at, index| match index {
                        Some(index) => indices[at] = index,
                        None => bad[at] = true,
                    })?;
                    arrays.push(Arc::new(Int64Array::from(indices)));
                }
                if bad.contains(&true) {
                    // Rows without a state are interned as null, so that they leave no keys behind.
                    let keep = BooleanArray::from(bad);
                    arrays[0] = arrow::compute::nullif(&arrays[0], &keep).map_err(bug)?;
                }
                interned.intern(&arrays, ids)?;
            }
        }
        Ok(())
    }

    /// Adds the states of `other`; returns the new id of each of its ids, or `None` if ids are
    /// values.
    pub(crate) fn absorb(&mut self, other: &States) -> Result<Option<Vec<u32>>> {
        match (&mut self.coding, &other.coding) {
            (Coding::Interned(own), Coding::Interned(others)) => own.absorb(others).map(Some),
            _ => Ok(None),
        }
    }

    /// All states in ascending order, and the rank of each id. The ranks are `None` if ids are
    /// values, which already ascend.
    pub(crate) fn finish(self) -> Result<(StateTable, Option<Vec<u32>>)> {
        let columns = self.columns;
        let (coded, rank) = match self.coding {
            Coding::Direct => (Coded::Direct, None),
            Coding::Boxes(boxes) => (Coded::Boxes(boxes), None),
            Coding::Interned(keys) => {
                let (arrays, rank) = keys.sorted()?;
                (Coded::Listed(arrays), Some(rank))
            }
        };
        Ok((StateTable { columns, coded }, rank))
    }
}

/// Integers as ids, `NONE` for nulls; returns false if one of them is negative or too large.
fn small_integers(column: &ArrayRef, ids: &mut Vec<u32>) -> bool {
    fn of<T: ArrowPrimitiveType>(column: &ArrayRef, ids: &mut Vec<u32>) -> bool
    where
        T::Native: TryInto<u32>,
    {
        let column = column.as_primitive::<T>();
        let id = |value: T::Native| value.try_into().unwrap_or(NONE);
        if column.null_count() == 0 {
            ids.extend(column.values().iter().map(|&value| id(value)));
            // Without an early exit the search is vectorised.
            !ids.iter().fold(false, |any, &id| any | (id == NONE))
        } else {
            ids.extend(column.iter().map(|value| value.map_or(NONE, id)));
            let none = ids.iter().filter(|&&id| id == NONE).count();
            none == column.null_count()
        }
    }
    match column.data_type() {
        DataType::Int8 => of::<Int8Type>(column, ids),
        DataType::Int16 => of::<Int16Type>(column, ids),
        DataType::Int32 => of::<Int32Type>(column, ids),
        DataType::Int64 => of::<Int64Type>(column, ids),
        DataType::UInt8 => of::<UInt8Type>(column, ids),
        DataType::UInt16 => of::<UInt16Type>(column, ids),
        DataType::UInt32 => of::<UInt32Type>(column, ids),
        DataType::UInt64 => of::<UInt64Type>(column, ids),
        _ => false,
    }
}

/// Calls `set(row, box)` for every row; the box is `None` if the coordinate is null, NaN, or
/// outside and dropped.
fn each_box(
    array: &ArrayRef,
    bin: &BinColumn,
    grid: &Grid,
    dropped: &mut Dropped,
    mut set: impl FnMut(usize, Option<i64>),
) -> Result<(), Stop> {
    // Rows have the precision of the column, and centres of boxes that of doubles.
    let boxes = grid.locator(Precision::of(array.data_type()));
    let values = doubles(array, &bin.name).map_err(bug)?;
    let (mut nulls, mut nans, mut outside) = (0, 0, 0);
    let has_nulls = values.null_count() > 0;
    for (at, &x) in values.values().iter().enumerate() {
        let is_null = has_nulls && values.is_null(at);
        let index = if is_null { None } else { boxes.index(x) };
        set(at, index);
        if index.is_some() {
            continue;
        }
        match &bin.binning {
            _ if is_null => nulls += 1,
            _ if x.is_nan() => nans += 1,
            Binning::Bounded {
                low,
                high,
                outside: Outside::Error,
                ..
            } => {
                let name = &bin.name;
                return Err(Stop::Failed(Error::input(format!(
                    "`{name}` = {x} lies outside its bounds [{low}, {high}]; widen them, or set `outside = \"drop\"` or `\"clip\"`"
                ))));
            }
            _ => outside += 1,
        }
    }
    dropped.add("null coordinate", nulls);
    dropped.add("NaN coordinate", nans);
    dropped.add("outside the bins", outside);
    Ok(())
}

/// The rows of a floating-point column that are NaN.
pub(crate) fn nan_rows(array: &ArrayRef) -> Result<BooleanArray, Stop> {
    let values = cast(array, &DataType::Float64).map_err(bug)?;
    Ok(values
        .as_primitive::<Float64Type>()
        .iter()
        .map(|x| Some(x.is_some_and(f64::is_nan)))
        .collect())
}

fn bug(e: arrow::error::ArrowError) -> Stop {
    Stop::Failed(Error::with_source(
        Kind::Bug,
        "a state column cannot be read as its type",
        e,
    ))
}

/// How ids map to states.
#[derive(Debug, Clone, Serialize, Deserialize)]
enum Coded {
    Direct,
    Boxes(Vec<u64>),
    Listed(#[serde(with = "crate::read::rows::ipc::arrays")] Vec<ArrayRef>),
    /// Words of a number of symbols each, ascending by symbol.
    Words {
        symbols: Box<StateTable>,
        words: Vec<u32>,
        length: usize,
    },
}

/// States that are words of symbols.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WordList<'a> {
    /// All symbols.
    pub symbols: &'a StateTable,
    /// The symbols of all words, one word after another, ascending.
    pub words: &'a [u32],
    /// Symbols per word.
    pub length: usize,
}

/// All states of one side; ids ascend with the states.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StateTable {
    columns: StateColumns,
    coded: Coded,
}

impl StateTable {
    /// A table without states, with the columns of one.
    pub(crate) fn empty(columns: &StateColumns) -> StateTable {
        StateTable {
            columns: columns.clone(),
            coded: Coded::Listed(Vec::new()),
        }
    }

    /// A table of words with the columns of [`StateColumns::word`], ascending by symbol.
    pub(crate) fn words(
        symbols: &StateTable,
        columns: &StateColumns,
        words: Vec<u32>,
        length: usize,
    ) -> StateTable {
        StateTable {
            columns: columns.clone(),
            coded: Coded::Words {
                symbols: Box::new(symbols.clone()),
                words,
                length,
            },
        }
    }

    /// The words, if the states are words of symbols.
    pub(crate) fn word_list(&self) -> Option<WordList<'_>> {
        match &self.coded {
            Coded::Words {
                symbols,
                words,
                length,
            } => Some(WordList {
                symbols,
                words,
                length: *length,
            }),
            _ => None,
        }
    }

    /// Merges tables of words with these columns.
    fn merge_words(
        lists: &[WordList<'_>],
        columns: &StateColumns,
    ) -> Result<(StateTable, Vec<Option<Vec<u32>>>)> {
        let tables: Vec<&StateTable> = lists.iter().map(|list| list.symbols).collect();
        let (symbols, numbers) = StateTable::merge(&tables)?;
        let length = lists[0].length;
        // New symbol numbers ascend with the old ones, so that each list remains in order.
        let lists = lists.iter().zip(&numbers).map(|(list, numbers)| {
            let number = |&id: &u32| numbers.as_ref().map_or(id, |numbers| numbers[id as usize]);
            list.words.iter().map(number).collect::<Vec<u32>>()
        });
        let lists: Vec<Vec<u32>> = lists.collect();
        let mut all: Vec<&[u32]> = lists.iter().flat_map(|list| list.chunks(length)).collect();
        all.sort_unstable();
        all.dedup();
        let place = |word: &[u32]| all.partition_point(|other| *other < word) as u32;
        let maps = lists.iter().map(|list| {
            let places = list.chunks(length).map(place);
            Some(places.collect())
        });
        let maps = maps.collect();
        Ok((
            StateTable::words(&symbols, columns, all.concat(), length),
            maps,
        ))
    }

    /// Merges several tables; returns the new id of each id of each table, or `None` if ids do not
    /// change.
    pub(crate) fn merge(tables: &[&StateTable]) -> Result<(StateTable, Vec<Option<Vec<u32>>>)> {
        let listed = |table: &&StateTable| match &table.coded {
            Coded::Listed(arrays) => Some(arrays.clone()),
            Coded::Direct | Coded::Boxes(_) | Coded::Words { .. } => None,
        };
        let words: Option<Vec<WordList<'_>>> = tables.iter().map(|t| t.word_list()).collect();
        if let Some(words) = words.filter(|words| words.len() > 1) {
            return StateTable::merge_words(&words, &tables[0].columns);
        }
        let lists: Vec<Vec<ArrayRef>> = tables.iter().filter_map(listed).collect();
        if lists.is_empty() || tables.len() == 1 {
            return Ok((tables[0].clone(), vec![None; tables.len()]));
        }
        if lists.len() < tables.len() {
            let what = "some state tables are numeric and others are listed";
            return Err(Error::bug(what));
        }
        let lists: Vec<&[ArrayRef]> = lists.iter().map(|list| &list[..]).collect();
        let (arrays, numbers) = union(&lists)?;
        let all = StateTable {
            columns: tables[0].columns.clone(),
            coded: Coded::Listed(arrays),
        };
        Ok((all, numbers.into_iter().map(Some).collect()))
    }

    /// The same states under other column names of the same types.
    pub(crate) fn named(mut self, columns: &StateColumns) -> StateTable {
        self.columns = columns.clone();
        self
    }

    /// The output columns of a state.
    pub(crate) fn fields(&self) -> Vec<Field> {
        self.columns.output_fields()
    }

    /// The output columns of the states `ids`, as in `StateColumns::output_fields`.
    pub(crate) fn columns(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let mut out = self.decoded(ids)?;
        let coordinates = &mut out[self.columns.keys.len()..];
        for (bin, column) in self.columns.bins.iter().zip(coordinates) {
            let grid = bin.binning.grid();
            *column = numbers(column, |index| grid.center(index));
        }
        Ok(out)
    }

    /// The columns with the number and the borders of the box of each binned coordinate.
    pub(crate) fn box_fields(&self) -> Vec<Field> {
        let of = |name: &String| {
            [
                Field::new(format!("{name}_index"), DataType::Int64, false),
                Field::new(format!("{name}_low"), DataType::Float64, false),
                Field::new(format!("{name}_high"), DataType::Float64, false),
            ]
        };
        self.columns
            .bins
            .iter()
            .flat_map(|bin| of(&bin.name))
            .collect()
    }

    /// The columns of [`box_fields`](Self::box_fields) of the states `ids`.
    pub(crate) fn box_columns(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        if self.columns.bins.is_empty() {
            return Ok(Vec::new());
        }
        let coordinates = self.decoded(ids)?.split_off(self.columns.keys.len());
        let columns = self.columns.bins.iter().zip(coordinates);
        let columns = columns.flat_map(|(bin, index)| {
            let grid = bin.binning.grid();
            let low = numbers(&index, |index| grid.low(index));
            let high = numbers(&index, |index| grid.high(index));
            [index, low, high]
        });
        Ok(columns.collect())
    }

    /// State columns that an earlier version wrote, with the box centres of this version: older
    /// centres have the rounding of double arithmetic.
    pub(crate) fn recentered(&self, mut columns: Vec<ArrayRef>) -> Vec<ArrayRef> {
        let coordinates = columns.iter_mut().skip(self.columns.keys.len());
        for (bin, column) in self.columns.bins.iter().zip(coordinates) {
            let Some(values) = column.as_primitive_opt::<Float64Type>() else {
                continue;
            };
            let grid = bin.binning.grid();
            let center = |x: f64| {
                let center = grid.index(x).map(|index| (grid.center(index), index));
                // Boxes of another grid keep their centres.
                let is_same = |&(center, index): &(f64, i64)| {
                    (center - x).abs() <= 1e-6 * (grid.high(index) - grid.low(index))
                };
                center.filter(is_same).map_or(x, |(center, _)| center)
            };
            let centers: Float64Array = values.unary(center);
            *column = Arc::new(centers);
        }
        columns
    }

    /// The columns of the states `ids`, with box numbers instead of coordinates.
    fn decoded(&self, ids: &[u32]) -> Result<Vec<ArrayRef>> {
        let broken = |e| Error::with_source(Kind::Bug, "state ids cannot be decoded", e);
        match &self.coded {
            Coded::Direct => {
                let values: ArrayRef = Arc::new(UInt32Array::from(ids.to_vec()));
                Ok(vec![
                    cast(&values, self.columns.keys[0].data_type()).map_err(broken)?,
                ])
            }
            Coded::Boxes(boxes) => {
                let mut rest = ids.to_vec();
                let mut out: Vec<ArrayRef> = Vec::new();
                for &n in boxes.iter().rev() {
                    // A number of boxes is a u32, and 32 bits are divided faster than 64.
                    let n = n as u32;
                    let index = |id: &mut u32| {
                        let index = *id % n;
                        *id /= n;
                        i64::from(index)
                    };
                    out.push(Arc::new(Int64Array::from_iter_values(
                        rest.iter_mut().map(index),
                    )));
                }
                out.reverse();
                Ok(out)
            }
            Coded::Words {
                symbols,
                words,
                length,
            } => {
                let (mut keys, mut bins) = (Vec::new(), Vec::new());
                for at in 0..*length {
                    let symbol = |id: &u32| words[*id as usize * length + at];
                    let of_position: Vec<u32> = ids.iter().map(symbol).collect();
                    let mut columns = symbols.decoded(&of_position)?;
                    bins.extend(columns.split_off(symbols.columns.keys.len()));
                    keys.extend(columns);
                }
                keys.extend(bins);
                Ok(keys)
            }
            Coded::Listed(arrays) => taken(arrays, ids).map_err(|e| match e {
                ArrowError::OffsetOverflowError(bytes) => too_long(bytes),
                e => broken(e),
            }),
        }
    }

    /// One state as messages show it.
    pub(crate) fn describe(&self, id: u32) -> String {
        match self.columns(&[id]) {
            Ok(columns) => describe(&columns, 0),
            Err(e) => e.to_string(),
        }
    }
}

/// A number per box index. The number of a box is computed once, because it is exact and therefore
/// slow, and rows have few boxes.
fn numbers(indices: &ArrayRef, number: impl Fn(i64) -> f64) -> ArrayRef {
    let indices = indices.as_primitive::<Int64Type>().values();
    let low = indices.iter().copied().min().unwrap_or(0);
    let high = indices.iter().copied().max().unwrap_or(0);
    let mut known: Vec<Option<f64>> = match usize::try_from(high.abs_diff(low)) {
        Ok(width) if width < indices.len() => vec![None; width + 1],
        _ => Vec::new(),
    };
    let numbers = indices.iter().map(|&index| {
        let of_box = known.get_mut(index.abs_diff(low) as usize);
        of_box.map_or_else(
            || number(index),
            |known| *known.get_or_insert_with(|| number(index)),
        )
    });
    Arc::new(Float64Array::from_iter_values(numbers))
}

/// Row `at` of some columns as messages show it: `AER`, or `(AER, 3)`. Control characters are
/// escaped.
pub fn describe(columns: &[ArrayRef], at: usize) -> String {
    escaped(&key_text(columns, at))
}

/// Row `at` of some columns as it identifies a model: like `describe`, but without escaping.
pub fn key_text(columns: &[ArrayRef], at: usize) -> String {
    let show = |c: &ArrayRef| {
        arrow::util::display::array_value_to_string(c, at).unwrap_or_else(|e| e.to_string())
    };
    match columns {
        [one] => show(one),
        many => format!("({})", many.iter().map(show).collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn centers_of_earlier_versions_become_those_of_this_one() {
        let binning = Binning::Periodic {
            low: -180.0,
            high: 180.0,
            boxes: 3600,
        };
        let states = StateTable::empty(&StateColumns {
            keys: vec![Field::new("sea", DataType::Int64, true)],
            bins: vec![BinColumn {
                name: "lon".to_string(),
                precision: Precision::Double,
                binning,
            }],
        });
        let sea: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
        // The last number is the centre of no box.
        let noisy = [1.5500000000000114, -179.95, 1.58];
        let lon: ArrayRef = Arc::new(Float64Array::from(noisy.to_vec()));
        let clean = states.recentered(vec![Arc::clone(&sea), lon]);
        assert_eq!(&clean[0], &sea);
        let lon = clean[1].as_primitive::<Float64Type>().values();
        assert_eq!(lon[..], [1.55, -179.95, 1.58]);
    }

    #[test]
    fn the_number_of_a_box_is_computed_once() {
        let calls = std::cell::Cell::new(0);
        let number = |index: i64| {
            calls.set(calls.get() + 1);
            index as f64 / 2.0
        };
        let of = |indices: Vec<i64>| {
            let indices: ArrayRef = Arc::new(Int64Array::from(indices));
            numbers(&indices, number)
                .as_primitive::<Float64Type>()
                .values()
                .to_vec()
        };
        assert_eq!(of(vec![-3, -1, -3, -3, -1]), [-1.5, -0.5, -1.5, -1.5, -0.5]);
        assert_eq!(calls.take(), 2);
        // Boxes that are far apart have no table.
        assert_eq!(
            of(vec![i64::MIN, 0, i64::MAX]),
            [i64::MIN as f64 / 2.0, 0.0, i64::MAX as f64 / 2.0]
        );
        assert_eq!(of(vec![]), [0.0; 0]);
    }
}
