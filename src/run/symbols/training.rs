//! Reads the rows that are fitted as sequences of symbols, for the Baum–Welch algorithm.
//!
//! A sequence has the weight of its trajectory, which is the weight of all of its training rows. A
//! trajectory of weight 0 is left out, as its windows are.

use crate::error::{Error, Result};
use crate::evidence::symbols::Symbols;
use crate::read::rows::amounts::weights;
use crate::read::rows::layout::Layout;
use crate::read::rows::split::Split;
use crate::read::rows::states::describe;
use crate::read::rows::stop::Dropped;
use crate::read::symbols::{SymbolBatch, SymbolInput, read};
use crate::run::symbols::scoring::SymbolMap;
use std::sync::Arc;

/// The training rows of one partition.
#[derive(Default)]
pub(crate) struct Training {
    pub(crate) sequences: Symbols,
    /// The hash of the group of each sequence; empty if rows have no groups.
    groups: Vec<u32>,
}

impl Training {
    /// The sequences of the groups that are kept, given by their hashes.
    pub(crate) fn of_groups(&self, is_kept: impl Fn(u32) -> bool) -> Symbols {
        let mut kept = Symbols::new(self.sequences.n_symbols);
        kept.exponent = self.sequences.exponent;
        for (at, group) in self.groups.iter().enumerate() {
            if is_kept(*group) {
                let weight = self.sequences.weights.get(at).copied();
                kept.push_weighted(self.sequences.get(at), weight);
            }
        }
        kept
    }
}

/// The sequence that the next rows may continue.
struct Open {
    symbols: Vec<u32>,
    partition: u32,
    group: Option<u32>,
    weight: Option<f64>,
}

struct Collector<'a> {
    layout: Arc<Layout>,
    partitions: &'a [Option<SymbolMap>],
    open: Option<Open>,
    /// The weight of the training rows of the trajectory, if there were some.
    weight: Option<f64>,
    all: Vec<Training>,
}

impl Collector<'_> {
    fn push(&mut self, batch: &SymbolBatch) -> Result<()> {
        let all = self.weights(batch)?;
        for (at, part) in batch.trajectories.iter().enumerate() {
            if !part.continues {
                self.weight = None;
            }
            let own = self.partitions.get(part.partition as usize);
            let Some(own) = own.and_then(Option::as_ref) else {
                continue;
            };
            for piece in &batch.pieces[part.pieces.clone()] {
                if piece.split != Split::Train {
                    continue;
                }
                if piece.begins {
                    self.close();
                }
                if let Some(all) = &all {
                    for row in piece.rows.clone() {
                        let weight = *self.weight.get_or_insert(all[row]);
                        if weight != all[row] {
                            return Err(self.varies(batch, row, [weight, all[row]]));
                        }
                    }
                }
                let open = self.open.get_or_insert_with(|| Open {
                    symbols: Vec::new(),
                    partition: part.partition,
                    group: batch.groups.get(at).copied(),
                    weight: self.weight,
                });
                let numbers = batch.numbers[piece.rows.clone()].iter();
                let symbols = numbers.map(|&number| own.symbol(number));
                open.symbols.extend(symbols);
            }
        }
        Ok(())
    }

    /// The weights of the rows of a batch; 0 for rows that do not count.
    fn weights(&self, batch: &SymbolBatch) -> Result<Option<Vec<f64>>> {
        let column = self.layout.evidence.weight().zip(batch.weights.as_ref());
        let read = column.map(|(field, column)| {
            let place = |row: usize| describe(&batch.symbols, row);
            weights(column, field.name(), place, &mut Dropped::default())
        });
        let read = read.transpose();
        read.map_err(|stop| stop.into_error("reading weights"))
    }

    /// The error of a trajectory whose rows have different weights.
    fn varies(&self, batch: &SymbolBatch, row: usize, [first, other]: [f64; 2]) -> Error {
        let evidence = &self.layout.evidence;
        let weight = evidence.weight().map_or("", |field| field.name());
        let time = evidence.trajectories().map_or("", |rows| rows.time.name());
        let (trajectory, at) = batch.key.split_at(batch.key.len() - 1);
        let at = describe(at, row);
        let of = match trajectory {
            [] => String::new(),
            key => format!(" {}", describe(key, row)),
        };
        Error::input(format!(
            "`{weight}` is {first} in the first row of trajectory{of} and {other} at {time} = {at}; \
             with `refine = \"em\"`, `sequences.weight` must be the same in all training rows of a \
             trajectory"
        ))
    }

    /// Ends the open sequence.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if open.weight == Some(0.0) {
            return;
        }
        if let Some(own) = self.all.get_mut(open.partition as usize) {
            own.sequences.push_weighted(&open.symbols, open.weight);
            own.groups.extend(open.group);
        }
    }
}

/// Reads the training rows. `partitions` has the symbols of each partition with a model.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn training(
    input: SymbolInput<'_>,
    partitions: &[Option<SymbolMap>],
) -> Result<Vec<Training>> {
    let start = || {
        let all = partitions.iter().map(|own| Training {
            sequences: Symbols::new(own.as_ref().map_or(0, SymbolMap::n_symbols)),
            groups: Vec::new(),
        });
        Ok(Collector {
            layout: Arc::clone(input.layout),
            partitions,
            open: None,
            weight: None,
            all: all.collect(),
        })
    };
    let push = |collector: &mut Collector<'_>, batch: SymbolBatch| collector.push(&batch);
    let (mut collector, _) = read(input, start, push).await?;
    collector.close();
    for own in &mut collector.all {
        own.sequences = std::mem::take(&mut own.sequences).in_own_unit();
    }
    Ok(collector.all)
}
