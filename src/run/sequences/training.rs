//! Reads the rows that are fitted as sequences of symbols, for the Baum–Welch algorithm.

use crate::error::Result;
use crate::evidence::sequences::Sequences;
use crate::read::rows::split::Split;
use crate::read::sequences::{SequenceBatch, SequenceInput, read};
use crate::run::sequences::scoring::SymbolMap;

/// The training rows of one partition.
#[derive(Default)]
pub(crate) struct Training {
    /// The sequences.
    pub(crate) sequences: Sequences,
    /// The hash of the group of each sequence; empty if rows have no groups.
    groups: Vec<u32>,
}

impl Training {
    /// The sequences of the groups that are kept, given by their hashes.
    pub(crate) fn of_groups(&self, is_kept: impl Fn(u32) -> bool) -> Sequences {
        let mut kept = Sequences::new(self.sequences.n_symbols);
        for (symbols, group) in self.sequences.iter().zip(&self.groups) {
            if is_kept(*group) {
                kept.push(symbols);
            }
        }
        kept
    }
}

/// The symbols of the model of a partition.
pub(crate) struct PartitionSymbols {
    /// By number among the known symbols.
    pub(crate) symbols: SymbolMap,
    /// The number of symbols.
    pub(crate) n: u32,
}

/// The sequence that the next rows may continue.
struct Open {
    symbols: Vec<u32>,
    partition: u32,
    group: Option<u32>,
}

struct Collector<'a> {
    partitions: &'a [Option<PartitionSymbols>],
    open: Option<Open>,
    all: Vec<Training>,
}

impl Collector<'_> {
    fn push(&mut self, batch: &SequenceBatch) {
        for (at, part) in batch.trajectories.iter().enumerate() {
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
                let open = self.open.get_or_insert_with(|| Open {
                    symbols: Vec::new(),
                    partition: part.partition,
                    group: batch.groups.get(at).copied(),
                });
                let numbers = batch.numbers[piece.rows.clone()].iter();
                let symbols = numbers.map(|&number| own.symbols.symbol(number, own.n));
                open.symbols.extend(symbols);
            }
        }
    }

    /// Ends the open sequence.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        if let Some(own) = self.all.get_mut(open.partition as usize) {
            own.sequences.push(&open.symbols);
            own.groups.extend(open.group);
        }
    }
}

/// Reads the training rows. `partitions` has the symbols of each partition with a model.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn training(
    input: SequenceInput<'_>,
    partitions: &[Option<PartitionSymbols>],
) -> Result<Vec<Training>> {
    let start = || {
        let all = partitions.iter().map(|own| Training {
            sequences: Sequences::new(own.as_ref().map_or(0, |own| own.n as usize)),
            groups: Vec::new(),
        });
        Ok(Collector {
            partitions,
            open: None,
            all: all.collect(),
        })
    };
    let push = |collector: &mut Collector<'_>, batch: SequenceBatch| {
        collector.push(&batch);
        Ok(())
    };
    let (mut collector, _) = read(input, start, push).await?;
    collector.close();
    Ok(collector.all)
}
