//! Words of symbols ↔ ids.
//!
//! A window of 2 L + 1 symbols is counted as a pair: its first L + 1 symbols are the source, its
//! last L symbols are the target. Few symbols are packed into the bits of an id. Many symbols are
//! interned: a word of n symbols is a word of n − 1 symbols and one more symbol.

use crate::error::{Error, Result};
use crate::read::counts::tally::{pack, unpack};
use crate::read::rows::keys::NONE;
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::tag::Tag;
use hashbrown::HashMap;
use rayon::prelude::*;

/// The words of one task.
#[derive(Debug, Clone)]
pub(crate) struct Words {
    block: usize,
    coding: Coding,
    /// A symbol did not fit its bits.
    pub(crate) is_full: bool,
}

#[derive(Debug, Clone)]
enum Coding {
    /// Each symbol takes this number of bits, the first symbol the highest ones.
    Packed(u32),
    /// Words of 2, 3, … symbols.
    Interned(Vec<Level>),
}

/// Words of one length.
#[derive(Debug, Clone, Default)]
struct Level {
    ids: HashMap<u64, u32>,
    /// The id of the word without its last symbol, and the last symbol.
    entries: Vec<u64>,
}

impl Level {
    fn intern(&mut self, prefix: u32, symbol: u32) -> u32 {
        let key = pack(prefix, symbol);
        let next = self.entries.len() as u32;
        let id = *self.ids.entry(key).or_insert(next);
        if id == next {
            self.entries.push(key);
        }
        id
    }
}

/// Each id once, ascending.
pub(crate) fn distinct(ids: impl Iterator<Item = u32> + Clone) -> Vec<u32> {
    let largest = ids.clone().max().unwrap_or(0) as usize;
    if largest > DENSE {
        let mut all: Vec<u32> = ids.collect();
        all.par_sort_unstable();
        all.dedup();
        return all;
    }
    let mut occurs = vec![false; largest + 1];
    ids.for_each(|id| occurs[id as usize] = true);
    let all = (0..).zip(occurs).filter(|(_, occurs)| *occurs);
    all.map(|(id, _)| id).collect()
}

/// Ids up to this have a table of their places.
const DENSE: usize = 1 << 22;

/// The places of ids in an ascending list.
pub(crate) struct Places {
    ids: Vec<u32>,
    /// By id, if ids are small.
    table: Vec<u32>,
}

impl Places {
    pub(crate) fn new(ids: Vec<u32>) -> Places {
        let mut table = Vec::new();
        let largest = ids.last().map_or(0, |&id| id as usize);
        if largest <= DENSE.max(8 * ids.len()) {
            table = vec![NONE; largest + 1];
            for (place, &id) in (0..).zip(&ids) {
                table[id as usize] = place;
            }
        }
        Places { ids, table }
    }

    /// The place of an id of the list.
    #[inline]
    pub(crate) fn of(&self, id: u32) -> u32 {
        match self.table.get(id as usize) {
            Some(&place) => place,
            None => self.ids.partition_point(|&own| own < id) as u32,
        }
    }

    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(crate) fn into_ids(self) -> Vec<u32> {
        self.ids
    }
}

/// The numbers of words among those that occur.
pub(crate) struct WordNumbers {
    places: Places,
    /// The number at each place. None if numbers ascend with ids.
    numbers: Option<Vec<u32>>,
}

impl WordNumbers {
    /// The number of a word that occurs.
    #[inline]
    pub(crate) fn of(&self, id: u32) -> u32 {
        let place = self.places.of(id);
        let numbers = self.numbers.as_ref();
        numbers.map_or(place, |numbers| numbers[place as usize])
    }

    /// Whether numbers ascend with ids.
    pub(crate) fn is_ascending(&self) -> bool {
        self.numbers.is_none()
    }

    /// The number of words.
    pub(crate) fn len(&self) -> usize {
        self.places.ids.len()
    }
}

/// New ids of the words of a task, by length.
pub(crate) enum WordMap {
    /// Bits per symbol.
    Packed(u32),
    /// The new id of each word of 2, 3, … symbols.
    Interned(Vec<Vec<u32>>),
}

impl Words {
    /// No words of the windows of a layout; `packed` if symbols may be packed. None for pairs.
    pub(crate) fn new(layout: &Layout, packed: bool) -> Option<Words> {
        let RowRoles::Windows { block, .. } = layout.evidence else {
            return None;
        };
        let bits = Words::bits(block, layout.tag());
        let coding = if packed && bits > 0 {
            Coding::Packed(bits)
        } else {
            Coding::Interned(vec![Level::default(); block])
        };
        Some(Words {
            block,
            coding,
            is_full: false,
        })
    }

    /// Bits per symbol, so that sources fit an id, and targets with their group are below `NONE`.
    fn bits(block: usize, tag: Tag) -> u32 {
        let block = block as u32;
        (32 / (block + 1)).min((31 - tag.bits) / block)
    }

    /// The id of a word. A word of one symbol has the id of the symbol.
    #[inline]
    pub(crate) fn id(&mut self, mut symbols: impl Iterator<Item = u32>) -> u32 {
        match &mut self.coding {
            Coding::Packed(bits) => {
                let (mut id, mut used_bits) = (0, 0);
                for symbol in symbols {
                    id = id << *bits | symbol;
                    used_bits |= symbol;
                }
                self.is_full |= used_bits >> *bits != 0;
                id
            }
            Coding::Interned(levels) => {
                let first = symbols.next().unwrap_or(NONE);
                let rest = levels.iter_mut().zip(symbols);
                rest.fold(first, |id, (level, symbol)| level.intern(id, symbol))
            }
        }
    }

    /// The words of a window of rows, as a pair whose target has the group of the last row. None if
    /// a row has no symbol.
    #[inline]
    pub(crate) fn pair<T>(
        &mut self,
        rows: &[T],
        tag: Tag,
        state: impl Fn(&T) -> u32,
    ) -> Option<u64> {
        if rows.iter().any(|row| state(row) == NONE) {
            return None;
        }
        let (source, target) = rows.split_at(self.block + 1);
        let group = target.last().map_or(0, |row| tag.group(state(row)));
        let source = self.id(source.iter().map(|row| tag.state(state(row))));
        let target = self.id(target.iter().map(|row| tag.state(state(row))));
        Some(pack(source, tag.with(target, group)))
    }

    /// Adds the words of another task, whose symbols have new numbers in this one.
    pub(crate) fn absorb(&mut self, other: &Words, symbol: impl Fn(u32) -> u32) -> Result<WordMap> {
        match (&mut self.coding, &other.coding) {
            (Coding::Packed(own), Coding::Packed(bits)) if *own == *bits => {
                self.is_full |= other.is_full;
                Ok(WordMap::Packed(*bits))
            }
            (Coding::Interned(levels), Coding::Interned(others)) => {
                let mut maps: Vec<Vec<u32>> = Vec::new();
                for (level, other) in levels.iter_mut().zip(others) {
                    let ids = other.entries.iter().map(|&entry| {
                        let (prefix, last) = unpack(entry);
                        let prefix = match maps.last() {
                            Some(before) => before[prefix as usize],
                            None => symbol(prefix),
                        };
                        level.intern(prefix, symbol(last))
                    });
                    let ids = ids.collect();
                    maps.push(ids);
                }
                Ok(WordMap::Interned(maps))
            }
            _ => Err(Error::bug("some words are packed and others are interned")),
        }
    }

    /// The word of `length` symbols with an id.
    fn symbols(&self, mut id: u32, length: usize, out: &mut Vec<u32>) {
        let begin = out.len();
        match &self.coding {
            Coding::Packed(bits) => {
                let mask = (1u64 << bits) - 1;
                for _ in 0..length {
                    out.push((u64::from(id) & mask) as u32);
                    id = (u64::from(id) >> bits) as u32;
                }
            }
            Coding::Interned(levels) => {
                for level in (0..length - 1).rev() {
                    let (prefix, symbol) = unpack(levels[level].entries[id as usize]);
                    out.push(symbol);
                    id = prefix;
                }
                out.push(id);
            }
        }
        out[begin..].reverse();
    }

    /// Numbers the words with some ids by the order of their symbols. Returns the symbols of all
    /// words in that order, too. Ids may repeat.
    pub(crate) fn numbers(&self, mut ids: Vec<u32>, length: usize) -> (Vec<u32>, WordNumbers) {
        ids.par_sort_unstable();
        ids.dedup();
        let mut symbols = Vec::with_capacity(ids.len() * length);
        for &id in &ids {
            self.symbols(id, length, &mut symbols);
        }
        let word = |at: u32| &symbols[at as usize * length..][..length];
        let mut order: Vec<u32> = (0..ids.len() as u32).collect();
        if order.is_sorted_by(|&a, &b| word(a) < word(b)) {
            let places = Places::new(ids);
            let numbers = None;
            return (symbols, WordNumbers { places, numbers });
        }
        order.par_sort_unstable_by(|&a, &b| word(a).cmp(word(b)));
        let sorted = order.iter().flat_map(|&at| word(at)).copied().collect();
        let mut rank = vec![0; order.len()];
        for (number, &at) in (0..).zip(&order) {
            rank[at as usize] = number;
        }
        let (places, numbers) = (Places::new(ids), Some(rank));
        (sorted, WordNumbers { places, numbers })
    }

    /// Symbols of the past and of the future.
    pub(crate) fn block(&self) -> usize {
        self.block
    }
}

impl WordMap {
    /// The new id of a word of `length` symbols. `symbol` gives the new number of a symbol.
    pub(crate) fn id(&self, id: u32, length: usize, symbol: impl Fn(u32) -> u32) -> u32 {
        match self {
            WordMap::Packed(bits) => {
                let mask = (1u64 << bits) - 1;
                let digits = (0..length as u32).rev().map(|at| {
                    let digit = u64::from(id) >> (at * bits) & mask;
                    symbol(digit as u32)
                });
                digits.fold(0, |id, digit| id << bits | digit)
            }
            WordMap::Interned(_) if length == 1 => symbol(id),
            WordMap::Interned(maps) => maps[length - 2][id as usize],
        }
    }

    /// Whether words are packed, so that only new numbers of symbols change ids.
    pub(crate) fn is_packed(&self) -> bool {
        matches!(self, WordMap::Packed(_))
    }

    /// Whether symbols below `n` fit their bits.
    pub(crate) fn fits(&self, n: u64) -> bool {
        match self {
            WordMap::Packed(bits) => n <= 1 << bits,
            WordMap::Interned(_) => n <= u64::from(NONE),
        }
    }
}
