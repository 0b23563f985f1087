//! Rows → shards, by a hash of some columns: rows that are equal in these columns are in one shard,
//! on every machine.
//!
//! Query rows are sharded by partition and trajectory, so that a shard holds whole trajectories.
//! Sums are sharded by partition, so that a shard holds whole matrices, or by source state if there
//! is only one matrix. The order of rows is kept.

use crate::error::{Error, Result};
use crate::read::counts::resample_groups::hash;
use crate::read::counts::sums;
use crate::read::lake::Lake;
use crate::read::rows::doubles::typed_columns;
use crate::read::rows::keys::converter;
use crate::read::rows::layout::{Layout, schema};
use crate::read::rows::ranges::{first_rows, ranges};
use crate::read::rows::stop::bug;
use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{concat_batches, take_arrays};
use arrow::datatypes::{Field, SchemaRef};
use arrow::row::RowConverter;
use datafusion::dataframe::DataFrame;
use std::ops::Range;
use std::sync::Arc;

/// Rows per batch of a shard.
const BATCH_ROWS: usize = 1 << 16;

/// Distributes rows over shards.
pub(crate) struct Dealer {
    schema: SchemaRef,
    by: Range<usize>,
    converter: RowConverter,
    shards: Vec<Shard>,
}

/// The rows of one shard: finished batches, and pieces of the next one.
#[derive(Default)]
struct Shard {
    full: Vec<RecordBatch>,
    open: Vec<RecordBatch>,
    open_rows: usize,
}

impl Shard {
    fn push(&mut self, batch: RecordBatch, schema: &SchemaRef) -> Result<()> {
        self.open_rows += batch.num_rows();
        self.open.push(batch);
        if self.open_rows >= BATCH_ROWS {
            self.fill(schema)
        } else {
            Ok(())
        }
    }

    fn fill(&mut self, schema: &SchemaRef) -> Result<()> {
        if self.open_rows > 0 {
            let batch = concat_batches(schema, &self.open).map_err(bug)?;
            self.full.push(batch);
        }
        self.open.clear();
        self.open_rows = 0;
        Ok(())
    }
}

impl Dealer {
    /// A dealer of rows with the columns of `layout`, by trajectory.
    ///
    /// # Errors
    /// A layout of pairs, or a key column of a type that cannot be compared.
    pub(crate) fn of_rows(layout: &Layout, shards: usize) -> Result<Dealer> {
        let Some(rows) = layout.evidence.trajectories() else {
            return Err(Error::bug("a table of pairs has no trajectories"));
        };
        let by = 0..layout.partition.len() + rows.trajectory.len();
        Dealer::new(&layout.fields(), by, shards)
    }

    /// A dealer of rows of the table of sums.
    ///
    /// # Errors
    /// A key column of a type that cannot be compared.
    pub(crate) fn of_sums(layout: &Layout, shards: usize) -> Result<Dealer> {
        Dealer::new(&sums::fields(layout), sums::keys(layout), shards)
    }

    /// A dealer of rows with these columns, by some of them.
    ///
    /// # Errors
    /// A key column of a type that cannot be compared.
    pub(crate) fn new(fields: &[Field], by: Range<usize>, shards: usize) -> Result<Dealer> {
        let types = fields[by.clone()].iter().map(Field::data_type);
        let converter = converter(types, "a trajectory or partition column")?;
        Ok(Dealer {
            schema: schema(fields),
            by,
            converter,
            shards: (0..shards.max(1)).map(|_| Shard::default()).collect(),
        })
    }

    /// Distributes the next rows.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        let n = batch.num_rows();
        let fields = self.schema.fields().iter().map(AsRef::as_ref);
        let columns = typed_columns(batch, fields).map_err(bug)?;
        let mut rows = vec![Vec::new(); self.shards.len()];
        let keys = &columns[self.by.clone()];
        if keys.is_empty() {
            rows[0] = (0..n as u32).collect();
        } else {
            let key_ranges = ranges(keys, n)?;
            let starts = first_rows(keys, &key_ranges)?;
            let keys = self.converter.convert_columns(&starts).map_err(bug)?;
            for (key_range, key) in key_ranges.into_iter().zip(keys.iter()) {
                let shard = (hash(key.data()) >> 32) as usize % rows.len();
                rows[shard].extend(key_range.start as u32..key_range.end as u32);
            }
        }
        for (shard, rows) in self.shards.iter_mut().zip(rows) {
            if rows.is_empty() {
                continue;
            }
            let rows = UInt32Array::from(rows);
            let own = take_arrays(&columns, &rows, None);
            let own = own.and_then(|own| RecordBatch::try_new(Arc::clone(&self.schema), own));
            shard.push(own.map_err(bug)?, &self.schema)?;
        }
        Ok(())
    }

    /// The rows of each shard.
    pub(crate) fn finish(mut self) -> Result<Vec<Vec<RecordBatch>>> {
        for shard in &mut self.shards {
            shard.fill(&self.schema)?;
        }
        Ok(self.shards.into_iter().map(|shard| shard.full).collect())
    }
}

/// Deals the rows of a query into `n` shards by the dealers that `dealer` makes. All rows of a
/// trajectory are in one shard, in the order of the files.
///
/// # Errors
/// Rows that cannot be read.
pub(crate) async fn deal(
    lake: &Lake,
    frame: DataFrame,
    n: usize,
    dealer: impl Fn() -> Result<Dealer> + Clone + Send + 'static,
) -> Result<Vec<Vec<RecordBatch>>> {
    let dealers = lake.each_stream(frame, move |_| {
        let push = |batch: &RecordBatch, dealer: &mut Dealer| Ok(dealer.push(batch)?);
        Ok((dealer()?, push))
    });
    let dealers = dealers.await;
    let mut shards = vec![Vec::new(); n];
    for dealer in dealers.map_err(|stop| stop.into_error("dealing rows"))? {
        for (shard, rows) in shards.iter_mut().zip(dealer.finish()?) {
            shard.extend(rows);
        }
    }
    Ok(shards)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::lag::Step;
    use crate::read::rows::layout::tests::trajectories;
    use crate::read::rows::states;
    use arrow::array::{ArrayRef, AsArray, Int64Array, StringArray};
    use arrow::datatypes::{DataType, Int64Type};
    use std::collections::BTreeMap;

    fn layout() -> Layout {
        trajectories(DataType::Utf8, DataType::Int64, &[Step::Ticks(1)])
    }

    /// Deals rows (g, id, t) in batches of `each`. Per shard: the times of each trajectory, in
    /// order.
    fn dealt(rows: &[(&str, Option<i64>, i64)], each: usize) -> Vec<BTreeMap<String, Vec<i64>>> {
        let mut dealer = Dealer::of_rows(&layout(), 3).unwrap();
        for rows in rows.chunks(each) {
            let times: ArrayRef = Arc::new(rows.iter().map(|r| r.2).collect::<Int64Array>());
            let columns: Vec<ArrayRef> = vec![
                Arc::new(StringArray::from_iter_values(rows.iter().map(|r| r.0))),
                Arc::new(rows.iter().map(|r| r.1).collect::<Int64Array>()),
                Arc::clone(&times),
                times,
            ];
            let batch = RecordBatch::try_new(layout().numbered(), columns).unwrap();
            dealer.push(&batch).unwrap();
        }
        dealer
            .finish()
            .unwrap()
            .into_iter()
            .map(|shard| {
                let mut times: BTreeMap<String, Vec<i64>> = BTreeMap::new();
                for batch in shard {
                    for at in 0..batch.num_rows() {
                        let name = states::key_text(&batch.columns()[..2], at);
                        let time = batch.column(2).as_primitive::<Int64Type>().value(at);
                        times.entry(name).or_default().push(time);
                    }
                }
                times
            })
            .collect()
    }

    #[test]
    fn a_trajectory_is_in_one_shard_and_keeps_its_order() {
        let rows: Vec<(&str, Option<i64>, i64)> = (0..60)
            .map(|at| {
                (
                    ["a", "b"][at as usize % 2],
                    (at % 7 > 0).then_some(at % 5),
                    at,
                )
            })
            .collect();
        let shards = dealt(&rows, 60);
        // The result does not depend on the batches.
        assert_eq!(shards, dealt(&rows, 7));
        let mut seen = BTreeMap::new();
        for (name, times) in shards.iter().flatten() {
            assert!(times.is_sorted(), "{name}: {times:?}");
            assert_eq!(seen.insert(name.clone(), times.len()), None, "{name}");
        }
        assert_eq!(seen.values().sum::<usize>(), 60);
        assert!(shards.iter().all(|shard| !shard.is_empty()), "{shards:?}");
    }

    #[test]
    fn shards_hold_many_rows_in_few_batches() {
        let mut dealer = Dealer::of_rows(&layout(), 1).unwrap();
        let column: ArrayRef = Arc::new(Int64Array::from(vec![1; 1000]));
        let group: ArrayRef = Arc::new(StringArray::from(vec!["a"; 1000]));
        let columns = vec![group, column.clone(), column.clone(), column];
        let batch = RecordBatch::try_new(layout().numbered(), columns).unwrap();
        for _ in 0..100 {
            dealer.push(&batch).unwrap();
        }
        let rows: Vec<usize> = dealer
            .finish()
            .unwrap()
            .remove(0)
            .iter()
            .map(RecordBatch::num_rows)
            .collect();
        assert_eq!(rows, [66_000, 34_000]);
    }
}
