//! Workers of all streams → sums → counts: assigns common state numbers, counts pairs across
//! streams, adds up.

use crate::error::{Error, Result};
use crate::evidence::counts::groups::Groups;
use crate::evidence::counts::matrix::{CountMatrix, MatrixRows};
use crate::math::exact::ExactMoments;
use crate::math::scale;
use crate::read::counts::counted::Counted;
use crate::read::counts::lagged::Walker;
use crate::read::counts::ordered::{TrajectoryKey, disordered};
use crate::read::counts::resample_groups::{split_by_group, tag_weights};
use crate::read::counts::stream::{Labels, PairSource, Worker};
use crate::read::counts::tallies::Tallies;
use crate::read::counts::tally::{Tally, pack, sum_weights, unpack};
use crate::read::counts::unordered;
use crate::read::counts::weighted::Point;
use crate::read::counts::words::{WordMap, Words, distinct};
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::states::{StateTable, describe};
use crate::read::rows::stop::{Dropped, Mode, Order, Stop};
use crate::read::rows::tag::{Tag, too_many_states};
use crate::read::rows::time_rules::TimeCounts;
use arrow::array::ArrayRef;
use hashbrown::{HashMap, HashSet};
use rayon::prelude::*;

/// Numbers of one worker → ranks among all keys; `None` if the worker's numbers are the ranks.
struct Renumbering {
    partitions: Option<Vec<u32>>,
    sources: Option<Vec<u32>>,
    targets: Option<Vec<u32>>,
    tag: Tag,
}

fn renumber(numbers: &Option<Vec<u32>>, id: u32) -> u32 {
    match numbers {
        Some(numbers) if id != NONE => numbers[id as usize],
        _ => id,
    }
}

impl Renumbering {
    fn partition(&self, id: u32) -> u32 {
        renumber(&self.partitions, id)
    }

    fn source(&self, id: u32) -> u32 {
        renumber(&self.sources, id)
    }

    /// A source that carries its group.
    fn tagged(&self, id: u32) -> u32 {
        self.tag.renumbered(id, |id| self.source(id))
    }

    /// A target, which always carries its group in pairs.
    fn target(&self, id: u32) -> u32 {
        self.tag.renumbered(id, |id| renumber(&self.targets, id))
    }
}

/// New ids of the sources and targets in the tallies of one worker.
struct SlotRenumbering<'a> {
    map: &'a Renumbering,
    /// If sources and targets are words: the new ids of words.
    words: Option<WordMap>,
    block: usize,
}

impl SlotRenumbering<'_> {
    fn keeps_ids(&self) -> bool {
        let map = self.map;
        let are_words_kept = self.words.as_ref().is_none_or(WordMap::is_packed);
        map.sources.is_none() && map.targets.is_none() && are_words_kept
    }

    fn source(&self, id: u32) -> u32 {
        match &self.words {
            Some(words) => words.id(id, self.block + 1, |symbol| self.map.source(symbol)),
            None => self.map.source(id),
        }
    }

    fn target(&self, id: u32) -> u32 {
        match &self.words {
            Some(words) => self.map.tag.renumbered(id, |id| {
                words.id(id, self.block, |symbol| self.map.source(symbol))
            }),
            None => self.map.target(id),
        }
    }
}

/// All keys in ascending order, and the numbers of each worker.
struct Numbering {
    partitions: Vec<ArrayRef>,
    n_partitions: usize,
    sources: StateTable,
    targets: StateTable,
    /// Number of sources. None if ids are values.
    n_symbols: Option<u64>,
    maps: Vec<Renumbering>,
}

/// The counts of some streams under common numbers. Words of symbols have the ids of `Words`.
struct Slots {
    /// By `partition × n_lags + lag`.
    tallies: Vec<Vec<Tally>>,
    weighted: Vec<Vec<(u64, f64)>>,
    rows: u64,
    dropped: Dropped,
    time: TimeCounts,
    accepted: u128,
}

/// Added-up counts before the steps that need whole matrices, so that sums can be added to other
/// sums.
pub(crate) struct CountSums {
    pub(crate) partitions: Vec<ArrayRef>,
    pub(crate) n_partitions: usize,
    pub(crate) sources: StateTable,
    pub(crate) targets: StateTable,
    /// By `partition × n_lags + lag`.
    pub(crate) slots: Vec<Slot>,
    /// For each given partition: the label of each (partition, state), and the label names. A label
    /// is the rank of its name.
    pub(crate) given: Vec<(HashMap<u64, u32>, ArrayRef)>,
    /// Rows that were read.
    pub rows: u64,
    /// Rows that were dropped, by reason.
    pub dropped: Dropped,
    /// What the keys of time changed.
    pub time: TimeCounts,
    /// Number of counted transitions; 0 for weights.
    pub accepted: u128,
    /// Whether integer states are their own ids.
    pub direct: bool,
}

/// The pairs of one partition and lag, counted or with weights. Targets carry their groups.
pub(crate) struct Slot {
    pub pieces: Vec<MatrixRows>,
    weighted: Vec<(u64, f64)>,
}

impl Slot {
    /// The matrix. Weights also get their fitting unit: the power of two nearest to the mean weight
    /// of a transition.
    fn counted(
        self,
        layout: &Layout,
        is_weighted: bool,
        partition: usize,
        lag: usize,
    ) -> Result<CountMatrix> {
        let n = self.weighted.len() as u64;
        let is_of_windows = matches!(layout.evidence, RowRoles::Windows { .. });
        let effective = (is_weighted && is_of_windows).then(|| {
            let mut weights = ExactMoments::default();
            self.weighted
                .iter()
                .for_each(|&(_, weight)| weights.add(weight));
            weights.effective()
        });
        let mut counts = self.grouped(layout, is_weighted, partition, lag)?;
        counts.effective = effective.flatten();
        // Non-finite sums are refused later, where the matrix is fitted.
        if is_weighted && counts.values().all(f64::is_finite) {
            counts.exponent = scale::nearest_to_mean(counts.values(), n);
        }
        Ok(counts)
    }

    /// The matrix, split by group if the layout asks for groups.
    fn grouped(
        mut self,
        layout: &Layout,
        is_weighted: bool,
        partition: usize,
        lag: usize,
    ) -> Result<CountMatrix> {
        let Some(grouping) = &layout.grouping else {
            let rows = if is_weighted {
                sum_weights(self.weighted)
            } else {
                self.pieces
            };
            return Ok(CountMatrix::new(partition, lag, rows));
        };
        let mut tag = layout.tag();
        let mut whole = None;
        let pieces = if is_weighted {
            let plain = self.weighted.iter().map(|&(pair, weight)| {
                let (source, target) = unpack(pair);
                (pack(source, tag.state(target)), weight)
            });
            // Weights are also added up without groups, so that groups do not change the last
            // digits of sums.
            whole = Some(CountMatrix::new(
                partition,
                lag,
                sum_weights(plain.collect()),
            ));
            if grouping.by.is_empty() {
                tag = Tag::for_groups(grouping.most);
                tag_weights(&mut self.weighted, tag)?;
            }
            sum_weights(self.weighted)
        } else {
            self.pieces
        };
        if tag == Tag::NONE {
            let mut counts = CountMatrix::new(partition, lag, pieces);
            let n_targets = counts.target_states.len();
            let groups = Groups::scatter(n_targets, &counts.by_source, grouping.most as u16);
            counts.groups = Some(groups);
            return Ok(counts);
        }
        let (split, hashes) = split_by_group(pieces, tag, grouping.most);
        let (rows, splits): (Vec<_>, Vec<_>) = split.into_iter().unzip();
        let mut counts = CountMatrix::new(partition, lag, rows);
        let n_targets = counts.target_states.len();
        let parts = splits
            .into_iter()
            .zip(&counts.by_source)
            .map(|(split, rows)| split.part(rows))
            .collect();
        let groups = Groups::new(n_targets, parts).with_hashes(hashes);
        counts = whole.unwrap_or(counts);
        if !groups.add_up_to(&counts.by_source) {
            return Err(Error::bug("the counts of the groups do not add up to all"));
        }
        counts.groups = Some(groups);
        Ok(counts)
    }
}

/// Adds up the counts of all streams, in stream order, and subtracts the counts of the streams of
/// `minus`, which count a subset of the same rows.
///
/// # Errors
/// [`Stop`] if the streams must be read again in another mode, or if counting failed.
pub(crate) fn add_up<P: Point>(
    layout: &Layout,
    mode: Mode,
    workers: Vec<Worker<P>>,
    minus: Vec<Worker<P>>,
) -> Result<CountSums, Stop> {
    let numbering = number(layout, mode, workers.iter().chain(&minus))?;
    let given = labels(layout, &numbering, &workers)?;
    let (maps, maps_of_minus) = numbering.maps.split_at(workers.len());
    let mut words = Words::new(layout, mode.packed);
    let all = gather_slots(layout, mode, workers, maps, &numbering, &mut words)?;
    let minus = gather_slots(layout, mode, minus, maps_of_minus, &numbering, &mut words)?;
    let mut dropped = all.dropped;
    for (reason, rows) in &minus.dropped.0 {
        dropped.subtract(reason, *rows);
    }
    let mut time = all.time;
    time.subtract(minus.time);
    let slots = all
        .tallies
        .into_par_iter()
        .zip(minus.tallies)
        .zip(all.weighted)
        .map(|((all, minus), weighted)| {
            let mut pieces = Tally::finish(all);
            let minus = Tally::finish(minus);
            if !minus.is_empty() {
                pieces = subtract(pieces, &minus)?;
            }
            Ok(Slot { pieces, weighted })
        });
    let mut slots: Vec<Slot> = slots.collect::<Result<_>>()?;
    let (mut sources, mut targets) = (numbering.sources, numbering.targets);
    if let Some(words) = &words {
        (sources, targets) = number_words(layout, words, &sources, &mut slots)?;
    }
    Ok(CountSums {
        slots,
        given,
        rows: all.rows - minus.rows,
        dropped,
        time,
        accepted: all.accepted - minus.accepted,
        direct: mode.direct,
        partitions: numbering.partitions,
        n_partitions: numbering.n_partitions,
        sources,
        targets,
    })
}

/// Numbers the words of symbols that occur, in the order of their symbols. Returns the sources and
/// the targets.
fn number_words(
    layout: &Layout,
    words: &Words,
    symbols: &StateTable,
    slots: &mut [Slot],
) -> Result<(StateTable, StateTable)> {
    let tag = layout.tag();
    let (of_sources, of_targets) = layout.evidence.states();
    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    for slot in slots.iter() {
        let pairs = slot.weighted.iter().map(|(pair, _)| unpack(*pair));
        sources.extend(pairs.clone().map(|(source, _)| source));
        targets.extend(pairs.map(|(_, target)| tag.state(target)));
        sources.extend(slot.pieces.iter().flat_map(|rows| &rows.sources));
        // Each piece repeats its targets many times.
        let of_pieces = slot
            .pieces
            .par_iter()
            .map(|rows| distinct(rows.columns.iter().map(|&id| tag.state(id))));
        targets.extend(of_pieces.collect::<Vec<_>>().concat());
    }
    let (list, source) = words.numbers(sources, words.block() + 1);
    let sources = StateTable::words(symbols, &of_sources, list, words.block() + 1);
    let (list, target) = words.numbers(targets, words.block());
    let targets = StateTable::words(symbols, &of_targets, list, words.block());
    if target.len() > tag.room() as usize {
        return Err(too_many_states(tag));
    }
    let of_target = |id| tag.renumbered(id, |id| target.of(id));
    for slot in slots {
        let is_ordered = source.is_ascending() && target.is_ascending();
        let mut pieces = std::mem::take(&mut slot.pieces);
        if is_ordered {
            pieces.par_iter_mut().for_each(|rows| {
                rows.sources.iter_mut().for_each(|id| *id = source.of(*id));
                rows.columns.iter_mut().for_each(|id| *id = of_target(*id));
            });
        } else {
            let mut tally = Tally::default();
            for (s, t, count) in pieces.iter().flat_map(MatrixRows::entries) {
                tally.add_all(pack(source.of(s), of_target(t)), count);
            }
            pieces = Tally::finish(vec![tally]);
        }
        slot.pieces = pieces;
        slot.weighted.par_iter_mut().for_each(|(pair, _)| {
            let (s, t) = unpack(*pair);
            *pair = pack(source.of(s), of_target(t));
        });
    }
    Ok((sources, targets))
}

/// The counts of some streams by partition and lag.
fn gather_slots<P: Point>(
    layout: &Layout,
    mode: Mode,
    mut workers: Vec<Worker<P>>,
    maps: &[Renumbering],
    numbering: &Numbering,
    words: &mut Option<Words>,
) -> Result<Slots, Stop> {
    let n_lags = layout.n_lags();
    let n = numbering.n_partitions * n_lags;
    let mut all = Slots {
        tallies: (0..n).map(|_| Vec::new()).collect(),
        weighted: vec![Vec::new(); n],
        rows: 0,
        dropped: Dropped::default(),
        time: TimeCounts::default(),
        accepted: 0,
    };
    let block = words.as_ref().map_or(0, Words::block);
    for (worker, map) in workers.iter_mut().zip(maps) {
        all.rows += worker.rows;
        all.dropped.merge(&worker.dropped);
        let map = SlotRenumbering {
            map,
            words: absorbed(words, &worker.tallies, map)?,
            block,
        };
        if let (Some(of_words), Some(n)) = (&map.words, numbering.n_symbols)
            && !of_words.fits(n)
        {
            return Err(Stop::WideWords);
        }
        all.add(&mut worker.tallies, &map, n_lags);
    }
    // Symbols have their common numbers already.
    let same = &Renumbering {
        partitions: None,
        sources: None,
        targets: None,
        tag: layout.tag(),
    };
    for mut more in across_streams(layout, mode, workers, maps, &numbering.partitions)? {
        more.check_words()?;
        let map = SlotRenumbering {
            map: same,
            words: absorbed(words, &more, same)?,
            block,
        };
        all.add(&mut more, &map, n_lags);
    }
    Ok(all)
}

/// Adds the words of some tallies to `words`. Returns their new ids, if there are words.
fn absorbed(
    words: &mut Option<Words>,
    tallies: &Tallies,
    map: &Renumbering,
) -> Result<Option<WordMap>, Stop> {
    Ok(match (words, &tallies.words) {
        (Some(all), Some(own)) => Some(all.absorb(own, |symbol| map.source(symbol))?),
        _ => None,
    })
}

impl Slots {
    /// Adds tallies under their new ids, and leaves them empty.
    fn add(&mut self, tallies: &mut Tallies, map: &SlotRenumbering<'_>, n_lags: usize) {
        self.accepted += tallies.accepted;
        self.time.merge(tallies.time);
        let slot_of =
            |at: usize| map.map.partition((at / n_lags) as u32) as usize * n_lags + at % n_lags;
        let renumbered: Vec<Tally> = std::mem::take(&mut tallies.by_slot)
            .into_par_iter()
            .map(|tally| {
                if map.keeps_ids() {
                    return tally;
                }
                tally.renumbered(|s| map.source(s), |t| map.target(t))
            })
            .collect();
        for (at, tally) in renumbered.into_iter().enumerate() {
            self.tallies[slot_of(at)].push(tally);
        }
        let weights = std::mem::take(&mut tallies.weights);
        for (at, entries) in weights.into_iter().enumerate() {
            let entries = entries.into_iter().map(|(pair, weight)| {
                let (s, t) = unpack(pair);
                (pack(map.source(s), map.target(t)), weight)
            });
            self.weighted[slot_of(at)].extend(entries);
        }
    }
}

/// Subtracts the counts of a subset of the rows.
fn subtract(pieces: Vec<MatrixRows>, minus: &[MatrixRows]) -> Result<Vec<MatrixRows>> {
    let mut minus = minus.iter().flat_map(MatrixRows::entries).peekable();
    let mut left = Vec::with_capacity(pieces.len());
    let mut counts = Vec::new();
    for piece in &pieces {
        let mut rows = MatrixRows::default();
        counts.clear();
        for (source, target, count) in piece.entries() {
            let own = minus.next_if(|&(s, t, _)| (s, t) == (source, target));
            let count = count.checked_sub(own.map_or(0, |(_, _, count)| count));
            match count {
                Some(0) => (),
                Some(count) => rows.add(source, target, count, &mut counts),
                None => {
                    return Err(Error::bug(
                        "a subset of the rows has more pairs than all rows",
                    ));
                }
            }
        }
        left.push(rows.with_counts(&counts));
    }
    match minus.next() {
        None => Ok(left),
        Some(_) => Err(Error::bug(
            "a subset of the rows has a pair that all rows lack",
        )),
    }
}

impl CountSums {
    /// The matrices that the layout asks for.
    ///
    /// # Errors
    /// [`Kind::Bug`](crate::error::Kind::Bug) if the totals do not add up.
    pub(crate) fn counted(self, layout: &Layout) -> Result<Counted> {
        let n_lags = layout.n_lags();
        let is_weighted = layout.evidence.weight().is_some();
        let given = &self.given;
        let mut counts: Vec<CountMatrix> = self
            .slots
            .into_par_iter()
            .enumerate()
            .map(|(at, slot)| {
                let mut counts = slot.counted(layout, is_weighted, at / n_lags, at % n_lags)?;
                if layout.connected {
                    counts.keep_connected();
                }
                let partition = counts.partition as u32;
                let label = |of: &HashMap<u64, u32>| {
                    let label =
                        |&state: &u32| of.get(&pack(partition, state)).copied().ok_or(state);
                    counts.source_states.iter().map(label).collect()
                };
                counts.given = given.iter().map(|(of, _)| label(of)).collect();
                Ok(counts)
            })
            .collect::<Result<_>>()?;
        let left_out = |c: &CountMatrix| c.left_out.as_ref().map_or(0, |l| l.total);
        let counted: u128 = counts.iter().map(|c| c.total + left_out(c)).sum();
        let accepted = self.accepted;
        if counted != accepted {
            let what = format!("{accepted} transitions were accepted but {counted} counted");
            return Err(Error::bug(what));
        }
        if let RowRoles::Trajectories { overlap, .. } = &layout.evidence
            && !overlap.is_empty()
        {
            let counts = counts.par_iter_mut();
            counts.for_each(|counts| counts.divide(overlap[counts.lag]));
        }
        Ok(Counted {
            partitions: self.partitions,
            n_partitions: self.n_partitions,
            sources: self.sources,
            targets: self.targets,
            counts,
            labels: self.given.into_iter().map(|(_, names)| names).collect(),
            rows: self.rows,
            dropped: self.dropped,
            time: self.time,
        })
    }
}

/// Ranks of the keys of all workers.
fn number<'a, P: Point>(
    layout: &Layout,
    mode: Mode,
    workers: impl Iterator<Item = &'a Worker<P>>,
) -> Result<Numbering> {
    let mut all = Worker::<P>::new(&std::sync::Arc::new(layout.clone()), mode, true)?;
    let mut maps = Vec::new();
    for worker in workers {
        let sources = all.states.absorb(&worker.states)?;
        let targets = match (&mut all.targets, &worker.targets) {
            (Some(_), Some(own)) if layout.one_label_set => all.states.absorb(own)?,
            (Some(all), Some(own)) => all.absorb(own)?,
            _ => sources.clone(),
        };
        let partitions = match (&mut all.partitions, &worker.partitions) {
            (Some(all), Some(own)) => Some(all.absorb(own)?),
            _ => None,
        };
        maps.push(Renumbering {
            partitions,
            sources,
            targets,
            tag: layout.tag(),
        });
    }
    let (sources, source_rank) = all.states.finish()?;
    let (targets, target_rank) = match (all.targets, &layout.evidence) {
        (Some(_), RowRoles::Pairs { target, .. }) if layout.one_label_set => {
            (sources.clone().named(target), source_rank.clone())
        }
        (Some(targets), _) => targets.finish()?,
        (None, _) => (sources.clone(), source_rank.clone()),
    };
    let room = layout.tag().room() as usize;
    if [&source_rank, &target_rank]
        .into_iter()
        .flatten()
        .any(|rank| rank.len() > room)
    {
        return Err(too_many_states(layout.tag()));
    }
    let (partitions, partition_rank) = match all.partitions {
        Some(keys) => {
            let (columns, rank) = keys.sorted()?;
            (columns, Some(rank))
        }
        None => (Vec::new(), None),
    };
    for map in &mut maps {
        for (numbers, rank) in [
            (&mut map.partitions, &partition_rank),
            (&mut map.sources, &source_rank),
            (&mut map.targets, &target_rank),
        ] {
            let numbers = numbers.iter_mut().flatten();
            numbers.for_each(|number| *number = renumber(rank, *number));
        }
    }
    Ok(Numbering {
        n_partitions: partition_rank.map_or(1, |rank| rank.len()),
        partitions,
        sources,
        targets,
        n_symbols: source_rank.map(|rank| rank.len() as u64),
        maps,
    })
}

/// The counts of pairs that no single stream can count.
fn across_streams<P: Point>(
    layout: &Layout,
    mode: Mode,
    workers: Vec<Worker<P>>,
    maps: &[Renumbering],
    partitions: &[ArrayRef],
) -> Result<Vec<Tallies>, Stop> {
    let roles = &layout.evidence;
    let Some((rows, walker)) = roles.trajectories().zip(Walker::of(layout)) else {
        return Ok(Vec::new());
    };
    if !matches!(
        workers.first().map(|w| &w.pair_source),
        Some(PairSource::Gathered(_))
    ) {
        return join_ordered_streams(layout, mode, &workers, maps, partitions)
            .map(|tallies| vec![tallies]);
    }
    let tallies = || Tallies::new(layout.tag(), Words::new(layout, mode.packed));
    let mut groups = unordered::Gathered::<P>::new(layout, rows.trajectory)?.groups;
    let mut partition: Vec<u32> = Vec::new();
    let mut streams = Vec::new();
    for (worker, map) in workers.into_iter().zip(maps) {
        let PairSource::Gathered(gathered) = worker.pair_source else {
            return Err(Error::bug("a stream beside gathered ones is ordered").into());
        };
        let ids = groups.absorb(&gathered.groups)?;
        for (own, &of) in gathered.partitions.iter().enumerate() {
            let group = ids.get(own).map_or(0, |&id| id as usize);
            partition.resize(partition.len().max(group + 1), 0);
            partition[group] = map.partition(of);
        }
        streams.push((gathered, ids, map));
    }
    let streams: Vec<_> = streams
        .into_par_iter()
        .map(|(gathered, ids, map)| gathered.sorted(partition.len(), &ids, |s| map.tagged(s)))
        .collect();
    unordered::walk(&streams, &walker, &partition, tallies).map_err(|(group, disorder)| {
        disordered(disorder, || unordered::name(&groups, group), rows.time)
    })
}

/// The partition and the key of a trajectory that may continue, and its walker.
type OpenTrajectory<'a, P> = ((u32, &'a TrajectoryKey), Walker<P>);

/// Counts the pairs that are known only when a trajectory ends.
fn rest<P: Point>(ended: Option<&OpenTrajectory<'_, P>>, tallies: &mut Tallies, n_lags: usize) {
    if let Some(((partition, _), walker)) = ended.filter(|(_, walker)| walker.has_rest()) {
        walker.emit_rest(&mut P::counter(tallies, *partition, n_lags));
    }
}

/// Counts the pairs of trajectories that continue from one stream to the next.
fn join_ordered_streams<P: Point>(
    layout: &Layout,
    mode: Mode,
    workers: &[Worker<P>],
    maps: &[Renumbering],
    partitions: &[ArrayRef],
) -> Result<Tallies, Stop> {
    let mut tallies = Tallies::new(layout.tag(), Words::new(layout, mode.packed));
    let roles = &layout.evidence;
    let Some((rows, fresh)) = roles.trajectories().zip(Walker::of(layout)) else {
        return Ok(tallies);
    };
    let (time, n_lags) = (rows.time, layout.n_lags());
    // The partition and trajectory in which the streams so far ended.
    let mut open: Option<OpenTrajectory<'_, P>> = None;
    let mut seen = HashSet::new();
    for (worker, map) in workers.iter().zip(maps) {
        let PairSource::Ordered(groups) = &worker.pair_source else {
            return Err(Error::bug("a stream beside ordered ones is gathered").into());
        };
        let Some(last) = &groups.current else {
            continue;
        };
        let head = &groups.head;
        let partition = map.partition(head.partition);
        let is_sorted = worker.mode.order == Order::Sorted;
        let of_open = open.as_ref().map(|((partition, _), _)| *partition);
        for own in 0..worker.partitions.as_ref().map_or(0, Keys::len) {
            let own = map.partition(own as u32);
            // A partition may continue in the next stream, but must not occur again later.
            if !seen.insert(own) && !is_sorted && (own != partition || of_open != Some(own)) {
                return Err(Stop::Unsorted);
            }
        }
        if let Some(first) = head.group.as_ref().filter(|_| !head.times.is_empty()) {
            let mut walker = match open.take() {
                Some((group, walker)) if group == (partition, first) => walker,
                Some(((of, group), _)) if !is_sorted && of == partition && group > first => {
                    return Err(Stop::Unsorted);
                }
                other => {
                    rest(other.as_ref(), &mut tallies, n_lags);
                    fresh.clone()
                }
            };
            let points: Vec<P> = head
                .points
                .iter()
                .map(|p| p.renumbered(|s| map.tagged(s)))
                .collect();
            let count = P::counter(&mut tallies, partition, n_lags);
            if head.is_counted {
                walker.join(&head.times, &points, count)
            } else {
                walker.push(&head.times, &points, true, count)
            }
            .map_err(|disorder| {
                let name = || trajectory_name(partitions, partition, &groups.describe(first));
                disordered(disorder, name, time)
            })?;
            open = Some(((partition, first), walker));
        }
        if !groups.in_head {
            let walker = groups
                .walker
                .clone()
                .map(|p| p.renumbered(|s| map.tagged(s)));
            // The targets of rows before a counted head are in that head.
            rest(
                open.as_ref().filter(|_| !head.is_counted),
                &mut tallies,
                n_lags,
            );
            open = Some(((map.partition(groups.partition), last), walker));
        }
    }
    rest(open.as_ref(), &mut tallies, n_lags);
    Ok(tallies)
}

/// A trajectory and its partition as messages show them.
fn trajectory_name(partitions: &[ArrayRef], partition: u32, trajectory: &str) -> String {
    let keys = partitions.iter().map(std::slice::from_ref);
    let keys: Vec<String> = keys.map(|key| describe(key, partition as usize)).collect();
    if keys.is_empty() {
        return trajectory.to_string();
    }
    format!("({}, {trajectory})", keys.join(", "))
}

/// For each given partition: the label of each (partition, state), and the label names. A label is
/// the rank of its name.
fn labels<P: Point>(
    layout: &Layout,
    numbering: &Numbering,
    workers: &[Worker<P>],
) -> Result<Vec<(HashMap<u64, u32>, ArrayRef)>> {
    let mut all = Vec::new();
    for (at, field) in layout.given.iter().enumerate() {
        let mut sum = Labels::new(field)?;
        for (worker, map) in workers.iter().zip(&numbering.maps) {
            let own = &worker.labels[at];
            let names = sum.keys.absorb(&own.keys)?;
            let place = |state: u64| {
                let (partition, state) = unpack(state);
                (map.partition(partition), map.source(state))
            };
            for (&state, &label) in &own.of {
                let (partition, state) = place(state);
                sum.assign(partition, state, names[label as usize]);
            }
            if let Some((state, labels)) = own.conflict {
                let (partition, state) = place(state);
                let labels = labels.map(|label| names[label as usize]);
                sum.conflict.get_or_insert((pack(partition, state), labels));
            }
        }
        let (mut columns, rank) = sum.keys.sorted()?;
        let column = columns.swap_remove(0);
        if let Some((state, [one, two])) = sum.conflict {
            let state = numbering.sources.describe(unpack(state).1);
            let label =
                |id: u32| describe(std::slice::from_ref(&column), rank[id as usize] as usize);
            return Err(Error::input(format!(
                "the given partition `{}` puts state {state} into two sets, {} and {}; give each state one",
                field.name(),
                label(one),
                label(two)
            )));
        }
        let of = sum
            .of
            .into_iter()
            .map(|(state, label)| (state, rank[label as usize]));
        all.push((of.collect(), column));
    }
    Ok(all)
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::read::counts::counted::Counted;
    use crate::read::counts::merge::add_up;
    use crate::read::counts::stream::Worker;
    use crate::read::counts::weighted::Point;
    use crate::read::rows::layout::Layout;
    use crate::read::rows::stop::{Mode, Stop};
    use arrow::array::RecordBatch;
    use std::sync::Arc;

    /// Four streams of rows that may end anywhere.
    pub(crate) fn cut<'a, T>(rows: &'a [T], cuts: &[usize; 3]) -> [&'a [T]; 4] {
        let mut cuts = cuts.map(|at| at % (rows.len() + 1));
        cuts.sort_unstable();
        let [a, b, c] = cuts;
        [&rows[..a], &rows[a..b], &rows[b..c], &rows[c..]]
    }

    /// The workers of streams that are read in batches of at most `batch_rows` rows.
    pub(crate) fn workers<P: Point, T>(
        layout: &Layout,
        mode: Mode,
        streams: &[&[T]],
        batch_rows: usize,
        batch: impl Fn(&Layout, &[T]) -> RecordBatch,
    ) -> Result<Vec<Worker<P>>, Stop> {
        let layout = Arc::new(layout.clone());
        let streams = streams.iter().enumerate().map(|(at, rows)| {
            let mut worker = Worker::new(&layout, mode, at == 0)?;
            for rows in rows.chunks(batch_rows) {
                worker.push(&batch(&layout, rows))?;
            }
            Ok(worker)
        });
        streams.collect()
    }

    /// The counts of all streams.
    pub(crate) fn finish<P: Point>(
        layout: &Layout,
        mode: Mode,
        workers: Vec<Worker<P>>,
    ) -> Result<Counted, Stop> {
        Ok(add_up(layout, mode, workers, Vec::new())?.counted(layout)?)
    }
}
