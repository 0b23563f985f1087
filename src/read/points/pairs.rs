//! Points of trajectories → blocks of rows with the pairs at each lag.

use crate::evidence::lag::Step;
use crate::math::seed::mixed;
use crate::read::counts::lagged::Walker;
use crate::read::points::layout::{PointLayout, PointRoles};
use crate::read::points::{PointBatch, Receiver};
use crate::read::rows::stop::Stop;

/// Rows after which a block is given away.
const BLOCK_ROWS: usize = 8192;

/// Rows per piece of a trajectory.
const PIECE_ROWS: u64 = 1024;

/// Rows of one partition, and the pairs among them.
#[derive(Debug, Default)]
pub(crate) struct PairBlock {
    /// The number of the partition.
    pub(crate) partition: u32,
    /// n × d, row-major, divided by the scale.
    pub(crate) rows: Vec<f64>,
    /// n weights, if rows have weights.
    pub(crate) weights: Option<Vec<f64>>,
    /// n hashes of the keys of the rows.
    pub(crate) hashes: Vec<u64>,
    /// n hashes of the trajectories of the rows.
    pub(crate) trajectories: Vec<u64>,
    /// n hashes of the pieces of trajectories: rows that follow each other.
    pub(crate) pieces: Vec<u64>,
    /// For each lag, the first and the second row of each pair. A row may be in several blocks, a
    /// pair is in one.
    pub(crate) pairs: Vec<Vec<(u32, u32)>>,
}

/// Takes blocks.
pub(crate) trait BlockReceiver: Send + 'static {
    /// Takes the next block, which may have no pairs.
    fn push(&mut self, block: PairBlock) -> Result<(), Stop>;
}

/// Makes blocks of the points of trajectories.
pub(crate) struct Blocks<R> {
    divisors: Vec<f64>,
    walker: Walker<u32>,
    block: PairBlock,
    has_block: bool,
    /// The row of its trajectory that comes next.
    position: u64,
    /// Takes the blocks.
    pub(crate) receiver: R,
}

impl<R: BlockReceiver> Blocks<R> {
    /// Blocks of points whose coordinates are divided by `divisors`.
    pub(crate) fn new(layout: &PointLayout, divisors: &[f64], receiver: R) -> Blocks<R> {
        let (lags, strided): (&[Step], bool) = match &layout.roles {
            PointRoles::Pairs { lags, strided } => (lags, *strided),
            PointRoles::Rows => (&[], false),
        };
        Blocks {
            divisors: divisors.to_vec(),
            walker: Walker::new(lags, strided),
            block: PairBlock {
                pairs: vec![Vec::new(); lags.len()],
                ..PairBlock::default()
            },
            has_block: false,
            position: 0,
            receiver,
        }
    }

    /// Gives the block away, and begins one with the rows that may still start a pair.
    fn flush(&mut self, keep: bool) -> Result<(), Stop> {
        if !self.has_block {
            return Ok(());
        }
        let n = self.block.hashes.len();
        let first = if keep {
            self.walker
                .points()
                .iter()
                .min()
                .map_or(n, |&row| row as usize)
        } else {
            n
        };
        let d = self.divisors.len();
        let next = PairBlock {
            partition: self.block.partition,
            rows: self.block.rows[first * d..].to_vec(),
            weights: self.block.weights.as_ref().map(|w| w[first..].to_vec()),
            hashes: self.block.hashes[first..].to_vec(),
            trajectories: self.block.trajectories[first..].to_vec(),
            pieces: self.block.pieces[first..].to_vec(),
            pairs: vec![Vec::new(); self.block.pairs.len()],
        };
        let shifted = self
            .walker
            .clone()
            .map(|row| row.wrapping_sub(first as u32));
        self.walker = shifted;
        self.has_block = first < n;
        self.receiver.push(std::mem::replace(&mut self.block, next))
    }

    /// Gives the last block away.
    pub(crate) fn finish(mut self) -> Result<R, Stop> {
        self.flush(false)?;
        Ok(self.receiver)
    }
}

impl<R: BlockReceiver> Receiver for Blocks<R> {
    fn push(&mut self, _: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let d = batch.dimension;
        for (at, run) in batch.trajectories.iter().enumerate() {
            let continues = at == 0 && batch.continues;
            if !continues {
                self.walker.restart();
                self.position = 0;
            }
            let of = batch
                .partitions
                .iter()
                .find(|(rows, _)| rows.contains(&run.start));
            let partition = of.map_or(0, |(_, partition)| *partition);
            if self.has_block && self.block.partition != partition {
                self.flush(false)?;
            }
            // A long trajectory is cut into blocks too.
            let mut start = run.start;
            while start < run.end {
                let end = run.end.min(start + BLOCK_ROWS);
                let first = self.block.hashes.len() as u32;
                self.block.partition = partition;
                self.has_block = true;
                for row in start..end {
                    let point = &batch.coordinates[row * d..][..d];
                    let scaled = point.iter().zip(&self.divisors).map(|(x, s)| x / s);
                    self.block.rows.extend(scaled);
                }
                if let Some(weights) = &batch.weights {
                    let own = self.block.weights.get_or_insert_default();
                    own.extend_from_slice(&weights[start..end]);
                }
                self.block
                    .hashes
                    .extend_from_slice(&batch.hashes[start..end]);
                let trajectories = &batch.trajectory_hashes[start..end];
                self.block.trajectories.extend_from_slice(trajectories);
                for hash in trajectories {
                    self.block
                        .pieces
                        .push(mixed(hash ^ (self.position / PIECE_ROWS)));
                    self.position += 1;
                }
                let places: Vec<u32> = (first..first + (end - start) as u32).collect();
                let pairs = &mut self.block.pairs;
                let walked =
                    self.walker
                        .push(&batch.times[start..end], &places, true, |lag, x, y| {
                            pairs[lag].push((x, y));
                        });
                // The reader has checked the order.
                walked.map_err(|_| Stop::Unsorted)?;
                start = end;
                if self.block.hashes.len() >= BLOCK_ROWS {
                    self.flush(true)?;
                }
            }
        }
        Ok(())
    }
}
