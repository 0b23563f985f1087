//! Workers of all streams → counts: sews trajectories together across streams, gives the states common numbers, adds up.

use super::keys::{Keys, NONE};
use super::matrix::{Counts, Values};
use super::states::States;
use super::tally::{Tally, pack, sum_counts, sum_weights, unpack};
use super::walk::Walker;
use super::worker::{Labels, Worker, disordered};
use super::{Counted, Dropped, Evidence, Layout, Measure, Mode, Stop, describe};
use crate::error::{Error, Result};
use arrow::array::ArrayRef;
use rayon::prelude::*;

/// Numbers in one worker → numbers in all.
struct Renumbering {
    partitions: Option<Vec<u32>>,
    sources: Option<Vec<u32>>,
    targets: Option<Vec<u32>>,
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

    fn target(&self, id: u32) -> u32 {
        renumber(&self.targets, id)
    }
}

/// Adds up the counts of all streams, which are given in their order.
pub fn finish(layout: &Layout, mode: Mode, mut workers: Vec<Worker>) -> Result<Counted, Stop> {
    let mut all = Worker::new(&std::sync::Arc::new(layout.clone()), mode, true)?;
    let mut maps = Vec::new();
    for worker in &workers {
        let sources = all.states.absorb(&worker.states)?;
        let targets = match (&mut all.targets, &worker.targets) {
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
        });
    }
    let n_lags = layout.n_lags();
    let n_partitions = all.partitions.as_ref().map_or(1, Keys::len);
    if n_partitions > 0 {
        all.tallies.reserve(n_partitions as u32 - 1, n_lags);
        all.measured.resize_with(n_partitions, Vec::new);
    }
    for (worker, map) in workers.iter_mut().zip(&maps) {
        for (slot, mut tally) in std::mem::take(&mut worker.tallies.by_slot)
            .into_iter()
            .enumerate()
        {
            let partition = map.partition((slot / n_lags) as u32) as usize;
            if map.sources.is_some() || map.targets.is_some() {
                tally.renumber(|s| map.source(s), |t| map.target(t));
            }
            all.tallies.by_slot[partition * n_lags + slot % n_lags].append(tally);
        }
        all.tallies.accepted += worker.tallies.accepted;
        for (partition, entries) in std::mem::take(&mut worker.measured).into_iter().enumerate() {
            let into = &mut all.measured[map.partition(partition as u32) as usize];
            into.extend(entries.into_iter().map(|(pair, w)| {
                let (s, t) = unpack(pair);
                (pack(map.source(s), map.target(t)), w)
            }));
        }
        all.rows += worker.rows;
        worker
            .dropped
            .0
            .iter()
            .for_each(|(reason, rows)| all.dropped.add(reason, *rows));
        for (all, own) in all.labels.iter_mut().zip(&worker.labels) {
            merge_labels(all, own, map)?;
        }
    }
    sew(&mut all, &workers, &maps, mode)?;
    number(layout, all, n_partitions).map_err(Stop::Failed)
}

/// Counts the pairs of trajectories that go on from one stream to the next.
fn sew(all: &mut Worker, workers: &[Worker], maps: &[Renumbering], mode: Mode) -> Result<(), Stop> {
    let Evidence::Trajectories {
        time,
        lags,
        strided,
        ..
    } = &all.layout.evidence
    else {
        return Ok(());
    };
    let n_lags = lags.len();
    // The trajectory that the streams so far ended in.
    let mut open: Option<(&[u8], Walker)> = None;
    for (worker, map) in workers.iter().zip(maps) {
        let Some(groups) = &worker.groups else {
            continue;
        };
        let Some(last) = groups.current.as_deref() else {
            continue;
        };
        let head = &groups.head;
        if !head.times.is_empty() {
            let walker = match open.take() {
                Some((group, walker)) if *group == *head.group => walker,
                Some((group, _)) if !mode.sorted && *group > *head.group => {
                    return Err(Stop::Unsorted);
                }
                _ => Walker::new(lags, *strided),
            };
            let states: Vec<u32> = head.states.iter().map(|&s| map.source(s)).collect();
            let (_, walker) = open.insert((&head.group, walker));
            all.tallies
                .walk(
                    walker,
                    map.partition(head.partition),
                    n_lags,
                    &head.times,
                    &states,
                )
                .map_err(|disorder| disordered(disorder, || groups.describe(&head.group), time))?;
        }
        if !groups.in_head {
            open = Some((last, groups.walker.clone().renumbered(|s| map.source(s))));
        }
    }
    Ok(())
}

fn merge_labels(all: &mut Labels, own: &Labels, map: &Renumbering) -> Result<()> {
    let names = all.keys.absorb(&own.keys)?;
    let place = |state: u64| {
        let (partition, state) = unpack(state);
        (map.partition(partition), map.source(state))
    };
    for (&state, &label) in &own.of {
        let (partition, state) = place(state);
        all.give(partition, state, names[label as usize]);
    }
    if let Some((state, labels)) = own.conflict {
        let (partition, state) = place(state);
        all.conflict
            .get_or_insert((pack(partition, state), labels.map(|l| names[l as usize])));
    }
    Ok(())
}

/// What one partition and lag has gathered: pairs that each weigh one, or pairs with counts or the bits of weights.
struct Slot {
    /// Place among all matrices.
    at: usize,
    tally: Tally,
    entries: Vec<(u64, u64)>,
}

/// Replaces numbers by order of appearance with numbers by order of keys, and builds the matrices.
fn number(layout: &Layout, all: Worker, n_partitions: usize) -> Result<Counted> {
    let n_lags = layout.n_lags();
    let (sources, source_rank) = all.states.finish()?;
    let (targets, target_rank) = match all.targets.map(States::finish).transpose()? {
        Some((targets, rank)) => (targets, rank),
        None => (sources.clone(), source_rank.clone()),
    };
    let (partitions, partition_rank) = match all.partitions {
        Some(keys) => keys.sorted()?,
        None => (Vec::new(), vec![0]),
    };
    let mut labels: Vec<ArrayRef> = Vec::new();
    // For each given partition: the label of a (partition rank, state).
    let mut given = Vec::new();
    for (own, field) in all.labels.into_iter().zip(&layout.given) {
        let (mut columns, rank) = own.keys.sorted()?;
        let column = columns.swap_remove(0);
        if let Some((state, [one, two])) = own.conflict {
            let state = sources.describe(renumber(&source_rank, unpack(state).1));
            let label =
                |id: u32| describe(std::slice::from_ref(&column), rank[id as usize] as usize);
            return Err(Error::input(format!(
                "the given partition `{}` puts state {state} into two sets, {} and {}; give each state one",
                field.name(),
                label(one),
                label(two)
            )));
        }
        let of: hashbrown::HashMap<u64, u32> = own
            .of
            .into_iter()
            .map(|(key, label)| {
                let (partition, state) = unpack(key);
                (
                    pack(
                        partition_rank[partition as usize],
                        renumber(&source_rank, state),
                    ),
                    rank[label as usize],
                )
            })
            .collect();
        given.push(of);
        labels.push(column);
    }

    let measured = !matches!(
        layout.evidence,
        Evidence::Trajectories { .. }
            | Evidence::Pairs {
                measure: Measure::One,
                ..
            }
    );
    let weighted = matches!(
        layout.evidence,
        Evidence::Pairs {
            measure: Measure::Weight(_),
            ..
        }
    );
    let mut entries = all.measured.into_iter();
    let mut slots: Vec<Slot> = Vec::new();
    for (slot, tally) in all.tallies.by_slot.into_iter().enumerate() {
        let rank = partition_rank.get(slot / n_lags).map_or(0, |&r| r as usize);
        let at = rank * n_lags + slot % n_lags;
        let entries = if measured { entries.next() } else { None };
        slots.push(Slot {
            at,
            tally,
            entries: entries.unwrap_or_default(),
        });
    }
    slots.sort_unstable_by_key(|slot| slot.at);
    let source = |s: u32| renumber(&source_rank, s);
    let target = |t: u32| renumber(&target_rank, t);
    let counts: Vec<Counts> = slots
        .into_par_iter()
        .map(
            |Slot {
                 at: slot,
                 mut tally,
                 mut entries,
             }| {
                let (pairs, values) = if measured {
                    for entry in &mut entries {
                        let (s, t) = unpack(entry.0);
                        entry.0 = pack(source(s), target(t));
                    }
                    if weighted {
                        let (pairs, weights) = sum_weights(
                            entries
                                .into_iter()
                                .map(|(pair, bits)| (pair, f64::from_bits(bits)))
                                .collect(),
                        );
                        (pairs, Values::Weights(weights))
                    } else {
                        let (pairs, counts) = sum_counts(entries)?;
                        (pairs, Values::Counts(counts))
                    }
                } else {
                    if source_rank.is_some() || target_rank.is_some() {
                        tally.renumber(source, target);
                    }
                    let (pairs, counts) = tally.finish();
                    (pairs, Values::Counts(counts))
                };
                let mut counts = Counts::new(slot / n_lags, slot % n_lags, &pairs, values);
                let partition = counts.partition as u32;
                let label = |of: &hashbrown::HashMap<u64, u32>| {
                    let label =
                        |&state: &u32| of.get(&pack(partition, state)).copied().ok_or(state);
                    counts
                        .source_states
                        .iter()
                        .map(label)
                        .collect::<Result<Vec<u32>, u32>>()
                };
                counts.given = given.iter().map(label).collect();
                Ok(counts)
            },
        )
        .collect::<Result<_>>()?;

    if !measured {
        let sum = |c: &Counts| {
            if let Values::Counts(v) = &c.values {
                v.iter().sum::<u64>()
            } else {
                0
            }
        };
        let counted: u64 = counts.iter().map(sum).sum();
        if counted != all.tallies.accepted {
            return Err(Error::bug(format!(
                "{} pairs were accepted but {counted} counted",
                all.tallies.accepted
            )));
        }
    }
    Ok(Counted {
        partitions,
        n_partitions,
        sources,
        targets,
        counts,
        labels,
        rows: all.rows,
        dropped: Dropped(all.dropped.0),
    })
}
