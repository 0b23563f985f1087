//! Pairs of state ids → sorted counts.
//!
//! Pairs are distributed over parts by ranges of their source. A part is sorted and aggregated when
//! it is full, or at the end: it then fits the processor's cache, where a radix sort costs a few
//! nanoseconds per pair. If there are few states and many rows, the pairs are counted in a table
//! with one number per pair of states instead. Integer sums do not depend on order, so the result
//! depends neither on the order of rows nor on the number of tallies.

use crate::evidence::counts::matrix::MatrixRows;
use crate::memory;
use rayon::prelude::*;
use std::ops::RangeInclusive;

/// Number of parts of a tally, as a power of two: enough that a part of some ten million pairs fits
/// the cache, and few enough that the ends of all parts fit too.
const PART_BITS: u32 = 9;

/// Upper bound of the number of parts, as a power of two. Used only if that halves the memory.
const MAX_PART_BITS: u32 = 12;

/// Pairs of a part before it is aggregated for the first time.
const PART_PAIRS: usize = 16 << 10;

/// Upper bound of the pairs of states in a table, as a power of two. More than `PART_PAIRS` / 2
/// different pairs that are distributed over parts take more memory.
const TABLE_BITS: u32 = 20;

/// The bound for fewer different pairs, so that a table takes no more memory than one full part.
const SMALL_TABLE_BITS: u32 = 16;

/// Least number of non-zeros of a finished piece of the matrix: see `pieces`.
const MIN_PIECE_NONZEROS: usize = 16 << 10;

/// Bits of the target in a packed pair.
const LOW: u64 = 0xffff_ffff;

/// Packs a pair: the source in the high 32 bits, the target in the low 32 bits.
pub(crate) fn pack(source: u32, target: u32) -> u64 {
    u64::from(source) << 32 | u64::from(target)
}

/// The (source, target) of a packed pair.
pub(crate) fn unpack(pair: u64) -> (u32, u32) {
    ((pair >> 32) as u32, pair as u32)
}

/// A pair and its count, as a part stores it.
trait Entry: Copy + Send + Sync {
    /// `source` is relative to the first source of the part.
    fn new(source: u64, target: u64, count: u32, target_bits: u32) -> Self;
    /// A key that sorts like (source, target).
    fn key(self) -> u64;
    fn count(self) -> u32;
    fn with_count(self, count: u32) -> Self;
    /// (source, target) of a key.
    fn states(key: u64, target_bits: u32) -> (u64, u64) {
        (key >> target_bits, key & ((1 << target_bits) - 1))
    }
}

/// Key above count, if source and target together have at most 32 bits.
impl Entry for u64 {
    #[inline(always)]
    fn new(source: u64, target: u64, count: u32, target_bits: u32) -> u64 {
        (source << target_bits | target) << 32 | u64::from(count)
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self >> 32
    }
    #[inline(always)]
    fn count(self) -> u32 {
        self as u32
    }
    #[inline(always)]
    fn with_count(self, count: u32) -> u64 {
        self >> 32 << 32 | u64::from(count)
    }
}

/// Any pair and its count.
impl Entry for (u64, u32) {
    #[inline(always)]
    fn new(source: u64, target: u64, count: u32, target_bits: u32) -> (u64, u32) {
        (source << target_bits | target, count)
    }
    #[inline(always)]
    fn key(self) -> u64 {
        self.0
    }
    #[inline(always)]
    fn count(self) -> u32 {
        self.1
    }
    #[inline(always)]
    fn with_count(self, count: u32) -> (u64, u32) {
        (self.0, count)
    }
}

/// The sources and targets that parts can hold.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape {
    /// Part p holds the sources whose bits above these are p.
    source_bits: u32,
    /// Every target is below 2^`target_bits`.
    target_bits: u32,
    most_parts: usize,
}

impl Shape {
    /// One part for everything.
    const WHOLE: Shape = Shape {
        source_bits: 32,
        target_bits: 32,
        most_parts: 1,
    };

    /// A shape for sources and targets whose set bits are among these.
    fn for_states((sources, targets): (u64, u64)) -> Shape {
        let (source_bits, target_bits) =
            (64 - sources.leading_zeros(), 64 - targets.leading_zeros());
        if source_bits + target_bits <= TABLE_BITS {
            return Shape {
                source_bits,
                target_bits,
                most_parts: 1,
            };
        }
        let within = source_bits
            .saturating_sub(PART_BITS)
            .min(32 - target_bits)
            .max(source_bits.saturating_sub(MAX_PART_BITS));
        let is_narrow = within + target_bits <= 32;
        let (source_bits, part_bits, target_bits) = if is_narrow {
            (within, source_bits - within, target_bits)
        } else {
            (source_bits.saturating_sub(PART_BITS), PART_BITS, 32)
        };
        Shape {
            source_bits,
            target_bits,
            most_parts: 1 << part_bits,
        }
    }

    /// Bits of the source in a part and of the target.
    fn bits(&self) -> u32 {
        self.source_bits + self.target_bits
    }

    fn is_table(&self) -> bool {
        self.most_parts == 1 && self.bits() <= TABLE_BITS
    }

    fn is_narrow(&self) -> bool {
        self.bits() <= 32
    }
}

/// One count per source and target.
#[derive(Debug, Clone)]
struct Table {
    shape: Shape,
    counts: Vec<u32>,
    /// Counts that their places in `counts` could not hold.
    more: Vec<(u64, u32)>,
}

impl Table {
    fn new(shape: Shape) -> Table {
        Table {
            shape,
            counts: vec![0; 1 << shape.bits()],
            more: Vec::new(),
        }
    }

    /// Adds a pair unless the table has no place for it; returns whether it did.
    #[inline(always)]
    fn add(&mut self, pair: u64, count: u32) -> bool {
        let (source, target) = (pair >> 32, pair & LOW);
        let shape = self.shape;
        if (source >> shape.source_bits) | (target >> shape.target_bits) != 0 {
            return false;
        }
        let sum = &mut self.counts[(source << shape.target_bits | target) as usize];
        match sum.checked_add(count) {
            Some(more) => *sum = more,
            None => self.more.push((pair, std::mem::replace(sum, count))),
        }
        true
    }

    /// Calls `each` with every pair and its count.
    fn each(&self, mut each: impl FnMut(u64, u32)) {
        let width = 1 << self.shape.target_bits;
        for (source, counts) in self.counts.chunks_exact(width).enumerate() {
            for (target, &count) in counts.iter().enumerate().filter(|(_, n)| **n > 0) {
                each((source as u64) << 32 | target as u64, count);
            }
        }
        for &(pair, count) in &self.more {
            each(pair, count);
        }
    }

    /// The bitwise OR of all sources and of all targets.
    fn used_bits(&self) -> (u64, u64) {
        let mut used_bits = (0, 0);
        self.each(|pair, _| used_bits = (used_bits.0 | pair >> 32, used_bits.1 | pair & LOW));
        used_bits
    }

    /// The same counts as entries.
    fn to_parts(&self) -> Parts<u64> {
        let n = self.counts.iter().filter(|n| **n > 0).count() + self.more.len();
        let mut entries = Vec::with_capacity(n);
        let bits = self.shape.target_bits;
        self.each(|pair, count| entries.push(Entry::new(pair >> 32, pair & LOW, count, bits)));
        let mut parts = Parts::new(self.shape);
        parts.parts.push(entries);
        parts
    }
}

#[derive(Debug, Clone)]
struct Parts<E> {
    shape: Shape,
    parts: Vec<Vec<E>>,
    /// Scratch memory of the sort.
    spare: Vec<E>,
}

impl<E: Entry> Parts<E> {
    fn new(shape: Shape) -> Parts<E> {
        Parts {
            shape,
            parts: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Adds a pair if its part has free capacity; returns whether it did.
    #[inline(always)]
    fn add(&mut self, pair: u64, count: u32) -> bool {
        let (source, target) = (pair >> 32, pair & LOW);
        let part = source >> self.shape.source_bits;
        if target >> self.shape.target_bits != 0 {
            return false;
        }
        match self.parts.get_mut(part as usize) {
            Some(entries) if entries.len() < entries.capacity() => {
                let source = source & ((1 << self.shape.source_bits) - 1);
                entries.push(E::new(source, target, count, self.shape.target_bits));
                true
            }
            _ => false,
        }
    }

    /// Makes room for a pair; returns false if this shape cannot hold it.
    fn make_room(&mut self, pair: u64) -> bool {
        let (source, target) = (pair >> 32, pair & LOW);
        let part = (source >> self.shape.source_bits) as usize;
        if target >> self.shape.target_bits != 0 || part >= self.shape.most_parts {
            return false;
        }
        if part >= self.parts.len() {
            self.parts.resize_with(part + 1, Vec::new);
        }
        let is_whole = self.shape == Shape::WHOLE;
        if is_whole && self.parts[part].len() >= PART_PAIRS / 2 {
            let (sources, targets) = self.used_bits();
            let shape = Shape::for_states((sources | source, targets | target));
            if shape.is_table() && shape.bits() <= SMALL_TABLE_BITS {
                return false;
            }
        }
        let entries = &mut self.parts[part];
        if entries.len() >= PART_PAIRS {
            aggregate(entries, &mut self.spare);
            if is_whole && entries.len() > PART_PAIRS / 2 {
                return false;
            }
        }
        // If pairs seldom repeat, aggregating again and again would only cost time.
        let room = entries.capacity();
        if entries.len() > room / 2 || room == 0 {
            entries.reserve_exact(if entries.len() > room / 4 * 3 && room >= PART_PAIRS {
                3 * room
            } else {
                room.max(64)
            });
        }
        true
    }

    fn aggregate(&mut self) {
        for entries in &mut self.parts {
            memory::wait_for_room();
            aggregate(entries, &mut self.spare);
            entries.shrink_to_fit();
        }
        self.spare = Vec::new();
    }

    /// The bitwise OR of all sources and of all targets.
    fn used_bits(&self) -> (u64, u64) {
        let parts = self.parts.par_iter().enumerate();
        let used = parts.filter(|(_, e)| !e.is_empty()).map(|(part, entries)| {
            memory::wait_for_room();
            let first = (part as u64) << self.shape.source_bits;
            entries.iter().fold((first, 0), |used, entry| {
                let (source, target) = E::states(entry.key(), self.shape.target_bits);
                (used.0 | source, used.1 | target)
            })
        });
        used.reduce(|| (0, 0), |a, b| (a.0 | b.0, a.1 | b.1))
    }

    /// The same entries in a shape whose parts hold at least as many sources. Adjacent parts are
    /// put together, so sorted parts stay sorted.
    fn joined<F: Entry>(mut self, shape: Shape) -> Parts<F> {
        let (old, new) = (self.shape, shape);
        let width = 1 << (new.source_bits - old.source_bits);
        let join = |parts: &mut [Vec<E>]| {
            memory::wait_for_room();
            let mut joined = Vec::with_capacity(parts.iter().map(Vec::len).sum());
            for (at, entries) in parts.iter_mut().enumerate() {
                let first = (at as u64) << old.source_bits;
                joined.extend(std::mem::take(entries).into_iter().map(|entry| {
                    let (source, target) = E::states(entry.key(), old.target_bits);
                    F::new(first + source, target, entry.count(), new.target_bits)
                }));
            }
            joined
        };
        Parts {
            shape,
            parts: self.parts.par_chunks_mut(width).map(join).collect(),
            spare: Vec::new(),
        }
    }

    /// Calls `each` with every pair and its count.
    fn drain(self, mut each: impl FnMut(u64, u32)) {
        for (part, entries) in self.parts.into_iter().enumerate() {
            memory::wait_for_room();
            let first = (part as u64) << self.shape.source_bits;
            for entry in entries {
                let (source, target) = E::states(entry.key(), self.shape.target_bits);
                each((first + source) << 32 | target, entry.count());
            }
        }
    }
}

/// Counts pairs of state ids.
#[derive(Debug, Clone)]
pub(crate) struct Tally(Form);

#[derive(Debug, Clone)]
enum Form {
    Table(Table),
    Narrow(Parts<u64>),
    Wide(Parts<(u64, u32)>),
}

impl Default for Tally {
    fn default() -> Tally {
        Tally(Form::Wide(Parts::new(Shape::WHOLE)))
    }
}

impl Tally {
    fn with_shape(shape: Shape) -> Tally {
        Tally(if shape.is_table() {
            Form::Table(Table::new(shape))
        } else if shape.is_narrow() {
            Form::Narrow(Parts::new(shape))
        } else {
            Form::Wide(Parts::new(shape))
        })
    }

    fn shape(&self) -> Shape {
        match &self.0 {
            Form::Table(table) => table.shape,
            Form::Narrow(parts) => parts.shape,
            Form::Wide(parts) => parts.shape,
        }
    }

    /// Counts a pair once.
    #[inline(always)]
    pub(crate) fn add(&mut self, pair: u64) {
        self.add_count(pair, 1);
    }

    /// Counts a pair `count` times.
    #[inline(always)]
    pub(crate) fn add_count(&mut self, pair: u64, count: u32) {
        let added = match &mut self.0 {
            Form::Table(table) => table.add(pair, count),
            Form::Narrow(parts) => parts.add(pair, count),
            Form::Wide(parts) => parts.add(pair, count),
        };
        if !added {
            self.add_slowly(pair, count);
        }
    }

    /// Counts a pair `count` times, of which there may be more than a u32 holds.
    #[inline(always)]
    pub(crate) fn add_all(&mut self, pair: u64, mut count: u64) {
        while count > 0 {
            let part = count.min(u64::from(u32::MAX));
            self.add_count(pair, part as u32);
            count -= part;
        }
    }

    #[cold]
    #[inline(never)]
    fn add_slowly(&mut self, pair: u64, count: u32) {
        let has_room = match &mut self.0 {
            Form::Table(_) => false,
            Form::Narrow(parts) => parts.make_room(pair),
            Form::Wide(parts) => parts.make_room(pair),
        };
        if !has_room {
            let (sources, targets) = self.used_bits();
            let used_bits = (sources | pair >> 32, targets | pair & LOW);
            self.reshape(Shape::for_states(used_bits));
        }
        self.add_count(pair, count);
    }

    /// The bitwise OR of all sources and of all targets.
    fn used_bits(&self) -> (u64, u64) {
        match &self.0 {
            Form::Table(table) => table.used_bits(),
            Form::Narrow(parts) => parts.used_bits(),
            Form::Wide(parts) => parts.used_bits(),
        }
    }

    fn drain(self, each: impl FnMut(u64, u32)) {
        match self.0 {
            Form::Table(table) => table.each(each),
            Form::Narrow(parts) => parts.drain(each),
            Form::Wide(parts) => parts.drain(each),
        }
    }

    fn reshape(&mut self, shape: Shape) {
        /// The form of parts in another shape.
        fn joined<E: Entry>(parts: Parts<E>, shape: Shape) -> Form {
            if shape.is_narrow() {
                Form::Narrow(parts.joined(shape))
            } else {
                Form::Wide(parts.joined(shape))
            }
        }
        if self.shape() == shape {
            return;
        }
        let has_wider_parts = !shape.is_table() && self.shape().source_bits <= shape.source_bits;
        self.0 = match std::mem::take(self).0 {
            Form::Narrow(parts) if has_wider_parts => joined(parts, shape),
            Form::Wide(parts) if has_wider_parts => joined(parts, shape),
            other => {
                let mut new = Tally::with_shape(shape);
                Tally(other).drain(|pair, count| new.add_count(pair, count));
                new.0
            }
        };
    }

    /// The counts under other numbers for the states.
    pub(crate) fn renumbered(
        self,
        source: impl Fn(u32) -> u32,
        target: impl Fn(u32) -> u32,
    ) -> Tally {
        let mut new = Tally::default();
        self.drain(|pair, count| {
            let (s, t) = unpack(pair);
            new.add_count(pack(source(s), target(t)), count);
        });
        new
    }

    /// Aggregates the pairs so far. Frees memory if no more pairs are expected soon.
    pub(crate) fn aggregate(&mut self) {
        match &mut self.0 {
            Form::Table(table) => {
                memory::wait_for_room();
                self.0 = Form::Narrow(table.to_parts());
            }
            Form::Narrow(parts) => parts.aggregate(),
            Form::Wide(parts) => parts.aggregate(),
        }
    }

    /// All counts of several tallies, in pieces by ascending sources.
    pub(crate) fn finish(mut tallies: Vec<Tally>) -> Vec<MatrixRows> {
        let Some(mut shape) = tallies.first().map(Tally::shape) else {
            return Vec::new();
        };
        if tallies.iter().any(|tally| tally.shape() != shape) {
            let used_bits = tallies
                .iter()
                .map(Tally::used_bits)
                .fold((0, 0), |a, b| (a.0 | b.0, a.1 | b.1));
            shape = Shape::for_states(used_bits);
            tallies
                .par_iter_mut()
                .for_each(|tally| tally.reshape(shape));
        }
        let (mut narrow, mut wide) = (Vec::new(), Vec::new());
        for tally in tallies {
            match tally.0 {
                Form::Table(table) => narrow.push(table.to_parts()),
                Form::Narrow(parts) => narrow.push(parts),
                Form::Wide(parts) => wide.push(parts),
            }
        }
        if narrow.is_empty() {
            pieces(shape, wide)
        } else {
            pieces(shape, narrow)
        }
    }
}

/// Adds up the parts of tallies of one shape. Small adjacent parts become one piece.
fn pieces<E: Entry>(shape: Shape, tallies: Vec<Parts<E>>) -> Vec<MatrixRows> {
    let n_parts = tallies.iter().map(|t| t.parts.len()).max().unwrap_or(0);
    let mut parts: Vec<Vec<Vec<E>>> = (0..n_parts).map(|_| Vec::new()).collect();
    for tally in tallies {
        for (part, entries) in parts.iter_mut().zip(tally.parts) {
            part.push(entries);
        }
    }
    let entries = |part: &[Vec<E>]| part.iter().map(Vec::len).sum::<usize>();
    let total: usize = parts.iter().map(|part| entries(part)).sum();
    let enough = (total / 64).max(MIN_PIECE_NONZEROS);
    let mut pieces: Vec<(usize, Vec<Vec<Vec<E>>>)> = Vec::new();
    let mut size = usize::MAX;
    for (at, part) in parts.into_iter().enumerate() {
        if size >= enough {
            pieces.push((at, Vec::new()));
            size = 0;
        }
        size += entries(&part);
        if let Some((_, piece)) = pieces.last_mut() {
            piece.push(part);
        }
    }
    pieces
        .into_par_iter()
        .map_init(
            <(Vec<E>, Vec<u64>)>::default,
            |(spare, counts), (first, piece)| {
                let mut rows = MatrixRows::default();
                counts.clear();
                rows.columns
                    .reserve_exact(piece.iter().map(|part| entries(part)).sum());
                for (part, entries) in piece.into_iter().enumerate() {
                    memory::wait_for_room();
                    let mut entries = entries.into_iter();
                    let mut all = entries.next().unwrap_or_default();
                    entries.for_each(|more| all.extend_from_slice(&more));
                    aggregate(&mut all, spare);
                    let base = ((first + part) as u64) << shape.source_bits;
                    for entry in &all {
                        let (source, target) = E::states(entry.key(), shape.target_bits);
                        let (source, target) = ((base + source) as u32, target as u32);
                        rows.add(source, target, u64::from(entry.count()), counts);
                    }
                }
                rows.with_counts(counts)
            },
        )
        .collect()
}

/// Sorts entries and adds up the counts of equal pairs. A sum that does not fit u32 stays in
/// several entries.
fn aggregate<E: Entry>(entries: &mut Vec<E>, spare: &mut Vec<E>) {
    // Entries of a table, and of a part that nothing was added to since, are sorted.
    if !entries.is_sorted_by_key(|entry| entry.key()) {
        sort(entries, spare);
    }
    let mut kept = 1.min(entries.len());
    for at in 1..entries.len() {
        let (last, entry) = (entries[kept - 1], entries[at]);
        let sum = u64::from(last.count()) + u64::from(entry.count());
        // Chosen without a branch, because whether neighbours are equal cannot be predicted.
        let is_same = (last.key() == entry.key()) & (sum <= LOW);
        kept -= usize::from(is_same);
        entries[kept] = if is_same {
            last.with_count(sum as u32)
        } else {
            entry
        };
        kept += 1;
    }
    entries.truncate(kept);
}

/// Bits of the smallest and of the largest digit of the radix sort. A digit of 13 bits saves a pass
/// over the keys of most parts, if there are about as many entries as digits.
const DIGIT: RangeInclusive<u32> = 9..=13;

/// Radix sort by key from the lowest digit, skipping the bits in which no keys differ.
fn sort<E: Entry>(entries: &mut Vec<E>, spare: &mut Vec<E>) {
    let Some(&first) = entries.first() else {
        return;
    };
    if entries.len() < 1 << DIGIT.start() || u32::try_from(entries.len()).is_err() {
        entries.sort_unstable_by_key(|entry| entry.key());
        return;
    }
    let varying = entries
        .iter()
        .fold(0, |bits, entry| bits | (entry.key() ^ first.key()));
    spare.resize(entries.len(), first);
    if varying == 0 {
        return;
    }
    let bits = u64::BITS - varying.leading_zeros() - varying.trailing_zeros();
    let most = (entries.len().ilog2() - 1).clamp(*DIGIT.start(), *DIGIT.end());
    let width = bits.div_ceil(bits.div_ceil(most));
    let (mut low, mut next) = (0, Vec::<u32>::new());
    while low < 64 && varying >> low != 0 {
        low += (varying >> low).trailing_zeros();
        let digit = |entry: &E| (entry.key() >> low) as usize & ((1 << width) - 1);
        next.clear();
        next.resize(1 << width, 0);
        for entry in entries.iter() {
            next[digit(entry)] += 1;
        }
        let mut sum = 0;
        for next in &mut next {
            (*next, sum) = (sum, sum + *next);
        }
        for entry in entries.iter() {
            let next = &mut next[digit(entry)];
            spare[*next as usize] = *entry;
            *next += 1;
        }
        std::mem::swap(entries, spare);
        low += width;
    }
}

/// Sums the weights of equal pairs. Sorting the weights first makes the sum independent of the
/// order of rows, and Neumaier compensation keeps its error at the last digit.
pub(crate) fn sum_weights(mut entries: Vec<(u64, f64)>) -> Vec<MatrixRows> {
    entries.par_sort_unstable_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    let enough = (entries.len() / 64).max(MIN_PIECE_NONZEROS);
    let (mut pieces, mut rows, mut weights) = (Vec::new(), MatrixRows::default(), Vec::new());
    for same in entries.chunk_by(|a, b| a.0 == b.0) {
        let (source, target) = unpack(same[0].0);
        if weights.len() >= enough && rows.last_source() != Some(source) {
            let full = std::mem::take(&mut rows);
            pieces.push(full.with_weights(std::mem::take(&mut weights)));
        }
        rows.begin(source, target);
        weights.push(compensated(same.iter().map(|&(_, w)| w)));
    }
    pieces.push(rows.with_weights(weights));
    pieces
}

fn compensated(terms: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for x in terms {
        let next = sum + x;
        lost += if sum.abs() >= x.abs() {
            (sum - next) + x
        } else {
            (x - next) + sum
        };
        sum = next;
    }
    // If the sum overflows f64, the compensation is NaN.
    if sum.is_finite() { sum + lost } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::csr::Values;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn listed(pieces: &[MatrixRows]) -> Vec<(u64, u64)> {
        let mut all = Vec::new();
        for rows in pieces {
            for (at, &source) in rows.sources.iter().enumerate() {
                for e in rows.offsets[at]..rows.offsets[at + 1] {
                    all.push((pack(source, rows.columns[e]), rows.values.get(e) as u64));
                }
            }
        }
        all
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        /// Few and many states with small and large ids, so that every shape and every change of
        /// shape occurs.
        #[test]
        fn tallies_agree_with_a_map(
            seed: u64,
            // Bits of sources and targets in three phases.
            phases in prop::collection::vec((1u32..32, 1u32..32, 0usize..90_000), 1..4),
            n_tallies in 1usize..4,
        ) {
            let mut tallies = vec![Tally::default(); n_tallies];
            let mut expected: BTreeMap<u64, u64> = BTreeMap::new();
            let mut x = seed | 1;
            for (sources, targets, rows) in phases {
                for at in 0..rows {
                    x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let pair = pack((x >> 32) as u32 >> (32 - sources), (x >> 20) as u32 >> (32 - targets));
                    let count = if at % 100 == 0 { 1 << 31 } else { 1 };
                    tallies[at % n_tallies].add_count(pair, count);
                    *expected.entry(pair).or_default() += u64::from(count);
                }
                tallies[0].aggregate();
            }
            let rows = Tally::finish(tallies);
            prop_assert_eq!(rows.iter().map(|r| r.total).sum::<u128>(), expected.values().map(|&n| u128::from(n)).sum::<u128>());
            prop_assert_eq!(listed(&rows), expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn few_states_have_a_table() {
        let mut tally = Tally::default();
        for at in 0..40_000 {
            tally.add(pack(at % 3, at % 2));
        }
        assert!(matches!(&tally.0, Form::Table(table) if table.counts.len() == 8));
        tally.add_count(pack(2, 1), u32::MAX);
        tally.add(pack(200, 0));
        assert!(matches!(&tally.0, Form::Table(table) if table.counts.len() == 512));
        tally.aggregate();
        assert!(matches!(&tally.0, Form::Narrow(_)));
        tally.add(pack(0, 0));
        let expected = [
            (pack(0, 0), 6_668),
            (pack(0, 1), 6_667),
            (pack(1, 0), 6_666),
            (pack(1, 1), 6_667),
            (pack(2, 0), 6_667),
            (pack(2, 1), 6_666 + u64::from(u32::MAX)),
            (pack(200, 0), 1),
        ];
        assert_eq!(listed(&Tally::finish(vec![tally])), expected);
    }

    #[test]
    fn parts_are_joined_as_states_get_larger() {
        // Parts of 1, 2⁸, 2⁸, 2¹¹ and 2¹⁵ sources. The entries of the last are wide.
        let shapes = [(9, 12), (17, 12), (17, 15), (20, 20), (24, 32)].map(|(sources, targets)| {
            let shape = Shape::for_states((1 << (sources - 1), 1 << (targets - 1)));
            assert!(!shape.is_table());
            shape
        });
        let pairs = [(3, 0), (3, 7), (258, 1), (511, 4095)];
        let mut tally = Tally::with_shape(shapes[0]);
        pairs
            .iter()
            .for_each(|&(s, t)| tally.add_count(pack(s, t), s + t));
        for shape in shapes {
            tally.reshape(shape);
            assert_eq!(tally.shape(), shape);
            assert_eq!(matches!(&tally.0, Form::Narrow(_)), shape.is_narrow());
            let mut found = Vec::new();
            let copy = tally.clone();
            copy.drain(|pair, count| found.push((unpack(pair), count)));
            assert_eq!(found, pairs.map(|(s, t)| ((s, t), s + t)));
        }
        assert!(!shapes[4].is_narrow());
    }

    #[test]
    fn renumbering_keeps_the_counts() {
        let mut tally = Tally::default();
        [(0, 1), (1, 0), (0, 1), (2, 2)]
            .iter()
            .for_each(|&(s, t)| tally.add(pack(s, t)));
        let tally = tally.renumbered(|s| 2 - s, |t| t + 10);
        let counts = listed(&Tally::finish(vec![tally]));
        assert_eq!(
            counts,
            [(pack(0, 12), 1), (pack(1, 10), 1), (pack(2, 11), 2)]
        );
    }

    #[test]
    fn weights_do_not_depend_on_the_order_of_rows() {
        let rows = [(1, 1e16), (1, 1.0), (1, -0.0), (1, 1.0), (2, 0.1)];
        let mut turned = rows;
        turned.reverse();
        let sums = sum_weights(rows.to_vec());
        assert_eq!(sums[0].columns, [1, 2]);
        assert_eq!(sums[0].values, Values::Real(vec![1e16 + 2.0, 0.1]));
        assert_eq!(sum_weights(turned.to_vec()), sums);
    }
}
