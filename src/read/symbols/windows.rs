//! Counts of windows → triples of words, one set per partition.

use crate::error::{Error, Result};
use crate::evidence::counts::csr::Csr;
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::resample::Resample;
use crate::evidence::symbols::triples::Triples;
use crate::math::scale::times_power;
use crate::read::counts::counted::Counted;
use crate::read::counts::words::{Places, distinct};
use crate::read::rows::states::{StateTable, WordList};
use rayon::prelude::*;
use std::ops::Range;

/// The triples of one partition.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    /// The symbols of the triples, ascending, by their number in [`symbols`]. Symbol s of the
    /// triples is `symbols[s]`.
    pub symbols: Vec<u32>,
    /// The triples.
    pub triples: Triples,
    /// The edge of each source of the counts.
    edge_of_source: Vec<u32>,
    /// The future word of each target of the counts.
    word_of_target: Vec<u32>,
}

/// Sources and targets of windows.
struct Sides<'a> {
    sources: WordList<'a>,
    targets: WordList<'a>,
}

fn sides(counted: &Counted) -> Result<Sides<'_>> {
    let no_words = || Error::bug("the counts are not those of windows");
    Ok(Sides {
        sources: counted.sources.word_list().ok_or_else(no_words)?,
        targets: counted.targets.word_list().ok_or_else(no_words)?,
    })
}

/// All symbols of a run.
///
/// # Errors
/// [`Kind::Bug`](crate::error::Kind::Bug) if the counts are not those of windows.
pub(crate) fn symbols(counted: &Counted) -> Result<&StateTable> {
    Ok(sides(counted)?.sources.symbols)
}

/// The triples of the windows of one partition.
///
/// # Errors
/// [`Kind::Bug`](crate::error::Kind::Bug) if the counts are not those of windows.
pub(crate) fn windows(counted: &Counted, matrix: &CountMatrix) -> Result<Windows> {
    let Sides { sources, targets } = sides(counted)?;
    let block = targets.length;
    let source = |id: u32| &sources.words[id as usize * (block + 1)..][..block + 1];
    let target = |id: u32| &targets.words[id as usize * block..][..block];
    let of_sources = matrix.source_states.iter().flat_map(|&id| source(id));
    let of_targets = matrix.target_states.iter().flat_map(|&id| target(id));
    let symbols = distinct(of_sources.chain(of_targets).copied());
    let numbers = Places::new(symbols);
    let past = |id: u32| &source(id)[..block];
    // Sources ascend by symbol, so equal past words are neighbours. Targets ascend, too.
    let mut past_words: Vec<u32> = Vec::new();
    let mut past_of_source: Vec<u32> = Vec::with_capacity(matrix.source_states.len());
    for (at, &id) in matrix.source_states.iter().enumerate() {
        if at == 0 || past(matrix.source_states[at - 1]) != past(id) {
            past_words.extend(past(id).iter().map(|&symbol| numbers.of(symbol)));
        }
        past_of_source.push((past_words.len() / block - 1) as u32);
    }
    let future_words = matrix.target_states.iter().flat_map(|&id| target(id));
    let future_words: Vec<u32> = future_words.map(|&symbol| numbers.of(symbol)).collect();
    let (words, word_of_past, word_of_target) = if block == 1 {
        let all = (0..numbers.ids().len() as u32).collect();
        (all, past_words, future_words)
    } else {
        union(&past_words, &future_words, block)
    };
    let edge = |(&id, &past): (&u32, &u32)| {
        let middle = numbers.of(source(id)[block]);
        (middle, word_of_past[past as usize])
    };
    let all = matrix.source_states.iter().zip(&past_of_source);
    let of_sources: Vec<(u32, u32)> = all.map(edge).collect();
    let mut order: Vec<u32> = (0..of_sources.len() as u32).collect();
    order.par_sort_unstable_by_key(|&at| of_sources[at as usize]);
    let mut edge_of_source = vec![0; order.len()];
    for (edge, &at) in (0..).zip(&order) {
        edge_of_source[at as usize] = edge;
    }
    let row = |&at: &u32| row_of(&matrix.by_source, at as usize);
    let of_rows = order.iter().map(row);
    let word = |target: u32| word_of_target[target as usize];
    let (offsets, last, counts) = entries(of_rows, word, matrix.exponent);
    let triples = Triples {
        block,
        n_symbols: numbers.ids().len(),
        words,
        edges: order.iter().map(|&at| of_sources[at as usize]).collect(),
        offsets,
        last,
        counts,
        effective: matrix.effective,
        exponent: matrix.exponent,
    };
    Ok(Windows {
        symbols: numbers.into_ids(),
        triples,
        edge_of_source,
        word_of_target,
    })
}

/// The triples of a resample: every group g of the counts is taken `weights[g]` times. Symbols and
/// words keep their numbers.
///
/// # Errors
/// [`Kind::Bug`](crate::error::Kind::Bug) if the counts have no groups.
pub(crate) fn resampled(
    matrix: &CountMatrix,
    windows: &Windows,
    weights: &[u32],
) -> Result<Triples> {
    let groups = matrix.groups.as_ref();
    let groups = groups.ok_or_else(|| Error::bug("the counts have no groups"))?;
    let sample = groups.resample(weights, usize::MAX);
    let all = &windows.triples;
    let mut order: Vec<(u32, u32)> = (0..)
        .zip(&sample.sources)
        .map(|(at, &source)| (windows.edge_of_source[source as usize], at))
        .collect();
    order.sort_unstable();
    let row = |&(_, at): &(u32, u32)| row_of(&sample.shards.by_source, at as usize);
    let of_rows = order.iter().map(row);
    let word = |target: u32| windows.word_of_target[sample.targets[target as usize] as usize];
    let (offsets, last, counts) = entries(of_rows, word, all.exponent);
    Ok(Triples {
        block: all.block,
        n_symbols: all.n_symbols,
        words: all.words.clone(),
        edges: order
            .iter()
            .map(|&(edge, _)| all.edges[edge as usize])
            .collect(),
        offsets,
        last,
        counts,
        effective: None,
        exponent: all.exponent,
    })
}

/// The offsets, the future words and the counts of the triples of some rows, in the unit of an
/// exponent.
fn entries<'a>(
    rows: impl Iterator<Item = (&'a Csr, Range<usize>)> + Clone,
    word: impl Fn(u32) -> u32,
    exponent: i32,
) -> (Vec<usize>, Vec<u32>, Vec<f64>) {
    let n = rows.clone().map(|(_, span)| span.len()).sum();
    let mut offsets = vec![0];
    let (mut last, mut counts) = (Vec::with_capacity(n), Vec::with_capacity(n));
    for (shard, span) in rows {
        last.extend(
            shard.columns[span.clone()]
                .iter()
                .map(|&target| word(target)),
        );
        counts.extend(span.map(|at| times_power(shard.values.get(at), -exponent)));
        offsets.push(last.len());
    }
    (offsets, last, counts)
}

/// The union of two ascending lists of words of `length` symbols, and the number in it of each word
/// of the first and of the second list.
fn union(a: &[u32], b: &[u32], length: usize) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
    let mut all = Vec::new();
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    let (mut a, mut b) = (a.chunks(length).peekable(), b.chunks(length).peekable());
    loop {
        let next = match (a.peek(), b.peek()) {
            (Some(x), Some(y)) => *x.min(y),
            (Some(word), None) | (None, Some(word)) => *word,
            (None, None) => return (all, of_a, of_b),
        };
        let number = (all.len() / length) as u32;
        all.extend_from_slice(next);
        of_a.extend(a.next_if(|word| *word == next).map(|_| number));
        of_b.extend(b.next_if(|word| *word == next).map(|_| number));
    }
}

/// The shard of a row of a matrix, and its entries.
fn row_of(shards: &[Csr], row: usize) -> (&Csr, Range<usize>) {
    let after = shards.partition_point(|shard| shard.first_row <= row);
    let shard = &shards[after - 1];
    (shard, shard.span(row - shard.first_row))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::lag::Step;
    use crate::math::seed;
    use crate::read::counts::merge::add_up;
    use crate::read::counts::merge::tests::{cut, finish, workers};
    use crate::read::counts::sums::restore;
    use crate::read::counts::weighted::Weighed;
    use crate::read::rows::layout::tests::{bare, field, grouped, states};
    use crate::read::rows::layout::{Layout, RowRoles};
    use crate::read::rows::stop::{Mode, Order, Stop};
    use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
    use arrow::datatypes::DataType;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// Partition, trajectory, time, symbol, weight, split.
    type Row = (i64, i64, i64, Option<i64>, f64, Option<&'static str>);

    #[derive(Debug, Clone, Copy)]
    struct Kind {
        step: Step,
        block: usize,
        first: bool,
        is_named: bool,
        is_weighted: bool,
        is_grouped: bool,
    }

    const KIND: Kind = Kind {
        step: Step::Rows(1),
        block: 1,
        first: false,
        is_named: false,
        is_weighted: false,
        is_grouped: false,
    };

    fn layout(kind: Kind) -> Layout {
        let symbol = if kind.is_named {
            DataType::Utf8
        } else {
            DataType::Int64
        };
        let layout = Layout {
            partition: vec![field("p", DataType::Int64)],
            ..bare(RowRoles::Windows {
                trajectory: vec![field("id", DataType::Int64)],
                time: field("t", DataType::Int64),
                symbol: states("s", symbol),
                weight: kind.is_weighted.then(|| field("w", DataType::Float64)),
                split: Some(field("split", DataType::Utf8)),
                step: kind.step,
                block: kind.block,
                first: kind.first,
            })
        };
        if kind.is_grouped {
            grouped(layout, 4)
        } else {
            layout
        }
    }

    fn batch(layout: &Layout, rows: &[Row]) -> RecordBatch {
        let integers = |of: fn(&Row) -> Option<i64>| -> ArrayRef {
            Arc::new(rows.iter().map(of).collect::<Int64Array>())
        };
        let mut columns = vec![
            integers(|r| Some(r.0)),
            integers(|r| Some(r.1)),
            integers(|r| Some(r.2)),
        ];
        let symbols = &layout.fields()[3];
        columns.push(match symbols.data_type() {
            DataType::Utf8 => {
                let names = rows.iter().map(|r| r.3.map(|s| format!("s{s}")));
                Arc::new(names.collect::<StringArray>())
            }
            _ => integers(|r| r.3),
        });
        if layout.evidence.weight().is_some() {
            columns.push(Arc::new(Float64Array::from_iter_values(
                rows.iter().map(|r| r.4),
            )));
        }
        columns.push(Arc::new(rows.iter().map(|r| r.5).collect::<StringArray>()));
        if layout.grouping.is_some() {
            columns.push(integers(|r| Some(r.1)));
        }
        RecordBatch::try_new(layout.numbered(), columns).unwrap()
    }

    /// Partition and symbols of a window → its count or weight.
    type Counts = BTreeMap<(i64, Vec<String>), f64>;

    /// Every window, found row by row.
    fn expected(kind: Kind, rows: &[Row]) -> Counts {
        let mut rows = rows.to_vec();
        rows.sort_by_key(|row| (row.0, row.1, row.2));
        let mut counts = Counts::new();
        for start in 0..rows.len() {
            let Some(window) = rows.get(start..start + 2 * kind.block + 1) else {
                break;
            };
            let head = &window[0];
            let leads = |(a, b): (&Row, &Row)| match kind.step {
                Step::Ticks(ticks) => b.2 - a.2 == ticks,
                Step::Rows(_) => true,
            };
            let is_whole = window.iter().all(|row| (row.0, row.1) == (head.0, head.1))
                && window.iter().zip(&window[1..]).all(leads)
                && window
                    .iter()
                    .all(|row| row.3.is_some() && row.5 == Some("train"));
            let is_first = start == 0 || (rows[start - 1].0, rows[start - 1].1) != (head.0, head.1);
            let weight = if kind.is_weighted { head.4 } else { 1.0 };
            if is_whole && (is_first || !kind.first) && weight > 0.0 {
                let symbols = window.iter().filter_map(|row| Some(name(kind, row.3?)));
                *counts.entry((head.0, symbols.collect())).or_default() += weight;
            }
        }
        counts
    }

    fn name(kind: Kind, symbol: i64) -> String {
        if kind.is_named {
            format!("s{symbol}")
        } else {
            symbol.to_string()
        }
    }

    /// The windows of triples.
    fn listed(counted: &Counted) -> Counts {
        let mut counts = Counts::new();
        for matrix in &counted.counts {
            let partition = counted.partitions[0].clone();
            let partition = partition.as_any().downcast_ref::<Int64Array>().unwrap();
            let windows = windows(counted, matrix).unwrap();
            insert(counted, &windows, &windows.triples, |symbols, count| {
                let key = (partition.value(matrix.partition), symbols);
                assert!(counts.insert(key, count).is_none(), "a triple stands twice");
            });
        }
        counts
    }

    fn insert(
        counted: &Counted,
        windows: &Windows,
        triples: &Triples,
        mut each: impl FnMut(Vec<String>, f64),
    ) {
        let table = symbols(counted).unwrap();
        let word = |w: u32| &triples.words[w as usize * triples.block..][..triples.block];
        for (e, &(middle, first)) in triples.edges.iter().enumerate() {
            let span = triples.offsets[e]..triples.offsets[e + 1];
            assert!(triples.last[span.clone()].is_sorted_by(|a, b| a < b));
            for at in span {
                let last = word(triples.last[at]);
                let all = word(first).iter().chain([&middle]).chain(last);
                let names = all.map(|&s| table.describe(windows.symbols[s as usize]));
                let count = times_power(triples.counts[at], triples.exponent);
                each(names.collect(), count);
            }
        }
        assert!(triples.edges.is_sorted_by(|a, b| a < b));
    }

    fn count(
        layout: &Layout,
        mode: Mode,
        streams: &[&[Row]],
        batch_rows: usize,
    ) -> Result<Counted, Stop> {
        if layout.evidence.weight().is_some() {
            let workers = workers::<Weighed, _>(layout, mode, streams, batch_rows, batch)?;
            finish(layout, mode, workers)
        } else {
            let workers = workers::<u32, _>(layout, mode, streams, batch_rows, batch)?;
            finish(layout, mode, workers)
        }
    }

    /// Gap, symbol, and whether the row is for training.
    type Step3 = (i64, Option<i64>, bool);

    fn trajectories() -> impl Strategy<Value = Vec<(i64, Vec<Step3>)>> {
        let row = (
            prop::sample::select(vec![1i64, 1, 1, 2]),
            prop::option::weighted(0.95, 0i64..4),
            prop::bool::weighted(0.95),
        );
        prop::collection::vec((0i64..2, prop::collection::vec(row, 1..25)), 1..7)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]
        #[test]
        fn triples_are_the_windows_of_the_rows(
            trajectories in trajectories(),
            cuts: [usize; 3],
            batch_rows in 1usize..40,
            block in 1usize..4,
            flags: [bool; 6],
            seed: u64,
        ) {
            let [has_times, first, is_named, is_weighted, is_grouped, packed] = flags;
            let step = if has_times { Step::Ticks(1) } else { Step::Rows(1) };
            let kind = Kind { step, block, first, is_named, is_weighted, is_grouped };
            let mut rows = Vec::new();
            for (id, (partition, points)) in trajectories.iter().enumerate() {
                let mut time = 0;
                for (at, &(gap, symbol, is_train)) in points.iter().enumerate() {
                    time += gap;
                    let split = if is_train { Some("train") } else { None };
                    let weight = (at * 7 + id) % 4;
                    rows.push((*partition, id as i64, time, symbol, weight as f64, split));
                }
            }
            rows.sort_by_key(|row| (row.0, row.1, row.2));
            let layout = Arc::new(layout(kind));
            let expected = expected(kind, &rows);
            let streams = cut(&rows, &cuts);
            for order in [Order::Assumed, Order::Sorted] {
                let mode = Mode { order, direct: !is_named, packed };
                let counted = count(&layout, mode, &streams, batch_rows).unwrap();
                prop_assert_eq!(&listed(&counted), &expected, "{:?} {:?}", order, kind);
            }
            // Rows in any order.
            let mut shuffled = rows.clone();
            shuffled.sort_by_key(|row| {
                let key = (row.0 * 31 + row.1) * 1009 + row.2;
                seed::restart_seed(seed, key as usize)
            });
            let streams = cut(&shuffled, &cuts);
            let mode = Mode { order: Order::Any { bytes: 1 << 22 }, direct: !is_named, packed };
            let counted = count(&layout, mode, &streams, batch_rows).unwrap();
            prop_assert_eq!(&listed(&counted), &expected, "any order {:?}", kind);
            if is_grouped {
                for matrix in &counted.counts {
                    let windows = windows(&counted, matrix).unwrap();
                    let Some(groups) = &matrix.groups else { continue };
                    let all = vec![1; groups.n_groups];
                    let sample = resampled(matrix, &windows, &all).unwrap();
                    prop_assert_eq!(&sample.edges, &windows.triples.edges);
                    prop_assert_eq!(&sample.last, &windows.triples.last);
                    prop_assert_eq!(&sample.counts, &windows.triples.counts);
                }
            }
            if !is_weighted && !first {
                // Sums of rows before and after a time add up to the sums of all rows.
                let half = 5;
                let (early, late): (Vec<Row>, Vec<Row>) =
                    rows.iter().copied().partition(|row| row.2 <= half);
                let tails = |row: &&Row| {
                    let later = early.iter().filter(|r| (r.0, r.1) == (row.0, row.1) && r.2 > row.2);
                    later.count() < 2 * block
                };
                let carried: Vec<Row> = early.iter().filter(tails).copied().collect();
                let mut both = [carried.clone(), late].concat();
                both.sort_by_key(|row| (row.0, row.1, row.2));
                let of = |rows: &[Row], minus: &[Row]| {
                    let [all, minus] = [rows, minus].map(|rows| {
                        workers::<u32, _>(&layout, mode, &[rows], batch_rows, batch).unwrap()
                    });
                    add_up(&layout, mode, all, minus).unwrap()
                };
                let tables = [of(&early, &[]), of(&both, &carried)].map(|s| s.table(&layout).unwrap());
                let sums = restore(&layout, &tables, true, 0, Default::default()).unwrap();
                prop_assert_eq!(&listed(&sums.counted(&layout).unwrap()), &expected, "sums {:?}", kind);
            }
        }
    }

    #[test]
    fn symbols_that_do_not_fit_their_bits_are_interned() {
        let layout = layout(KIND);
        let row = |t: i64| (0, 1, t, Some(t * 30_000), 1.0, Some("train"));
        let rows: Vec<Row> = (0..9).map(row).collect();
        let packed = count(&layout, Mode::FIRST, &[&rows], 4);
        assert!(matches!(packed, Err(Stop::WideWords)));
        let mode = Mode {
            packed: false,
            ..Mode::FIRST
        };
        let counted = count(&layout, mode, &[&rows[..5], &rows[5..]], 4).unwrap();
        assert_eq!(listed(&counted), expected(KIND, &rows));
    }

    #[test]
    fn a_split_has_three_values() {
        let layout = layout(Kind {
            is_named: true,
            ..KIND
        });
        let rows: [Row; 1] = [(0, 1, 0, Some(1), 1.0, Some("holdout"))];
        let Err(Stop::Failed(e)) = count(&layout, Mode::FIRST, &[&rows], 4) else {
            panic!("'holdout' is no split");
        };
        assert!(e.to_string().starts_with("`split` = 'holdout' is no split"));
    }
}
