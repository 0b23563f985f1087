//! Columns in pieces of some megabytes. Code of libraries touches all bytes of a column at once,
//! and faster than memory beyond a bound can be released.

use crate::memory;
use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{concat, take_arrays};
use arrow::datatypes::DataType;
use arrow::error::ArrowError;
use std::ops::Range;

/// Bytes of columns that are encoded, decoded or copied at a time.
pub(crate) const PIECE: usize = 4 << 20;

/// Columns of equal length in ranges of rows of at most [`PIECE`] bytes, or of one row. Waits for
/// room in memory before each. Columns without rows are one piece.
pub(crate) fn pieces(columns: Vec<ArrayRef>) -> impl Iterator<Item = Vec<ArrayRef>> {
    let rows = columns.first().map_or(0, |column| column.len());
    let mut ranges = Vec::new();
    cut(&columns, 0..rows, &mut ranges);
    ranges.into_iter().map(move |rows| {
        memory::wait_for_room();
        let piece = columns.iter().map(|c| c.slice(rows.start, rows.len()));
        piece.collect()
    })
}

/// Halves a range of rows until it is small.
fn cut(columns: &[ArrayRef], rows: Range<usize>, ranges: &mut Vec<Range<usize>>) {
    let of_rows = |column: &ArrayRef| bytes(&column.slice(rows.start, rows.len()));
    if rows.len() < 2 || columns.iter().map(of_rows).sum::<usize>() <= PIECE {
        return ranges.push(rows);
    }
    let middle = rows.start + rows.len() / 2;
    cut(columns, rows.start..middle, ranges);
    cut(columns, middle..rows.end, ranges);
}

/// Bytes of the values of a column, without those of other rows that it shares buffers with.
fn bytes(column: &ArrayRef) -> usize {
    // The low half of a view is the length of its text.
    let of_views = |views: &[u128]| views.iter().map(|&view| view as u32 as usize).sum();
    match column.data_type() {
        DataType::List(_) => {
            let lists = column.as_list::<i32>();
            let (first, last) = (lists.offsets()[0], lists.offsets()[lists.len()]);
            bytes(&(lists.values()).slice(first as usize, (last - first) as usize))
        }
        DataType::Dictionary(..) => {
            bytes(&column.as_any_dictionary().keys().slice(0, column.len()))
        }
        DataType::Utf8View => of_views(column.as_string_view().views()),
        DataType::BinaryView => of_views(column.as_binary_view().views()),
        _ => column.to_data().get_slice_memory_size().unwrap_or(0),
    }
}

/// Rows `ids` of columns, taken piece by piece.
pub(crate) fn taken(columns: &[ArrayRef], ids: &[u32]) -> Result<Vec<ArrayRef>, ArrowError> {
    let all = columns.first().map_or(0, |column| column.len()).max(1);
    // Rows of views share their texts.
    let is_copied =
        |c: &&ArrayRef| !matches!(c.data_type(), DataType::Utf8View | DataType::BinaryView);
    let of_row = columns.iter().filter(is_copied).map(bytes).sum::<usize>() / all;
    let at_a_time = (PIECE / of_row.max(1)).max(1);
    if ids.len() <= at_a_time {
        let ids = UInt32Array::from(ids.to_vec());
        return take_arrays(columns, &ids, None);
    }
    let pieces = ids.chunks(at_a_time).map(|ids| {
        memory::wait_for_room();
        taken(columns, ids)
    });
    joined(&pieces.collect::<Result<Vec<_>, _>>()?)
}

/// The columns that pieces make up. There is at least one piece.
pub(crate) fn joined(pieces: &[Vec<ArrayRef>]) -> Result<Vec<ArrayRef>, ArrowError> {
    if let [one] = pieces {
        return Ok(one.clone());
    }
    let columns = 0..pieces[0].len();
    let column = |at: usize| {
        let parts: Vec<&dyn Array> = pieces.iter().map(|piece| piece[at].as_ref()).collect();
        concat(&parts)
    };
    columns.map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{
        BinaryArray, DictionaryArray, Int64Array, ListArray, StringArray, StringViewArray,
        new_empty_array,
    };
    use arrow::datatypes::{Int8Type, Int64Type};
    use std::sync::Arc;

    #[test]
    fn pieces_are_small_and_join_to_their_columns() {
        let texts: Vec<String> = (0..200).map(|k| "x".repeat(k * 1000)).collect();
        let lists = (0..200).map(|k| Some(vec![Some(k as i64); 100 * k]));
        let long: [ArrayRef; 4] = [
            Arc::new(StringArray::from_iter_values(&texts)),
            Arc::new(StringViewArray::from_iter_values(&texts)),
            Arc::new(BinaryArray::from_iter_values(&texts)),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)),
        ];
        for column in long {
            let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..200));
            let columns = vec![column.slice(0, 200), numbers];
            let cut: Vec<_> = pieces(columns.clone()).collect();
            assert!(cut.len() > 3, "{}", column.data_type());
            let of_piece = |piece: &Vec<ArrayRef>| piece.iter().map(bytes).sum::<usize>();
            assert!(cut.iter().all(|piece| of_piece(piece) <= PIECE));
            assert_eq!(joined(&cut).expect("columns"), columns);
            let ids: Vec<u32> = (0..200).rev().chain(0..200).collect();
            let some = taken(&columns, &ids).expect("rows");
            assert_eq!(some[0].slice(200, 200).as_ref(), columns[0].as_ref());
            assert_eq!(
                some[0].slice(0, 1).as_ref(),
                columns[0].slice(199, 1).as_ref()
            );
        }
        let few = "x".repeat(PIECE);
        let shared = DictionaryArray::<Int8Type>::from_iter([few.as_str(), "y", &few]);
        assert_eq!(pieces(vec![Arc::new(shared)]).count(), 1);
        let empty = vec![new_empty_array(&DataType::Utf8)];
        let cut: Vec<_> = pieces(empty.clone()).collect();
        assert_eq!(joined(&cut).expect("columns"), empty);
        assert_eq!(pieces(Vec::new()).count(), 1);
    }
}
