//! Tracks the identity of sets between runs, lags and ranks: ids, and the earlier sets that they
//! continue.

use crate::assess::changes::{Changes, Comparison, Labelled, sizes};
use crate::assess::match_sets::Event;
use crate::error::Result;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// The sets of one fit with their ids and their earlier sets.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrackedSets {
    /// The earlier fit, if a run names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<Reference>,
    /// Ordered by id, with the sets of the earlier fit that ended.
    pub sets: Vec<Set>,
    /// The id of the next new set.
    pub next_id: u32,
    /// None without an earlier fit.
    pub changes: Option<Changes>,
}

/// The earlier fit from which a fit has its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// The fit of the earlier result.
    Earlier,
    /// The fit of another lag of the same run.
    Lag(String),
    /// The fit of another rank of the same run.
    Rank(usize),
}

impl Display for Reference {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Reference::Earlier => f.write_str("earlier"),
            Reference::Lag(lag) => write!(f, "lag {lag}"),
            Reference::Rank(rank) => write!(f, "rank {rank}"),
        }
    }
}

impl Serialize for Reference {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A set of a fit, or a set of the earlier fit that ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Set {
    /// The id, which no other set of the pipeline gets.
    pub id: u32,
    /// None for a set that ended.
    pub number: Option<u32>,
    /// The number of source states.
    pub states: u64,
    /// Transitions from its sources.
    pub count: f64,
    /// The share of all counts.
    pub probability: f64,
    /// None without an earlier fit.
    pub event: Option<Event>,
    /// The set of the same id in the earlier fit.
    pub previous: Option<Previous>,
    /// Numbers of the sets of the earlier fit from which the set came.
    pub parents: Vec<u32>,
}

/// A set of the earlier fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Previous {
    /// The number of the set in the earlier fit.
    pub number: u32,
    /// The number of source states.
    pub states: u64,
    /// Transitions from its sources.
    pub count: f64,
    /// The amount that both sets share divided by the amount that either has. None for a set that
    /// ended.
    pub overlap: Option<f64>,
}

impl TrackedSets {
    /// A fit without an earlier one: ids count from the next id.
    pub(crate) fn first(fit: Labelled<'_>, next_id: &mut u32) -> TrackedSets {
        let first = *next_id;
        *next_id += fit.rank as u32;
        let total: f64 = fit.amount.iter().sum();
        let sizes = sizes(fit).into_iter().enumerate();
        let sets = sizes.filter(|(_, size)| size.states > 0);
        let sets = sets.map(|(number, size)| Set {
            id: first + number as u32,
            number: Some(number as u32),
            states: size.states,
            count: size.amount,
            probability: size.amount / total,
            event: None,
            previous: None,
            parents: Vec::new(),
        });
        TrackedSets {
            compared_with: None,
            sets: sets.collect(),
            next_id: *next_id,
            changes: None,
        }
    }

    /// A fit after an earlier one, whose sets have the ids `ids`. Set l gets the number
    /// `numbers[l]`. A set that is no heir has its id from `known_ids`, or the next id.
    pub(crate) fn following(
        comparison: &Comparison,
        numbers: &[u32],
        ids: &Ids,
        known_ids: &[Option<u32>],
        next_id: &mut u32,
    ) -> TrackedSets {
        let Comparison {
            changes,
            matches,
            earlier,
            later,
            overlap,
        } = comparison;
        let total: f64 = later.iter().map(|size| size.amount).sum();
        let previous = |k: usize, overlap: Option<f64>| Previous {
            number: k as u32,
            states: earlier[k].states,
            count: earlier[k].amount,
            overlap,
        };
        let mut new_id = |l: usize| {
            known_ids.get(l).copied().flatten().unwrap_or_else(|| {
                *next_id += 1;
                *next_id - 1
            })
        };
        let mut order: Vec<usize> = (0..later.len()).filter(|&l| later[l].states > 0).collect();
        order.sort_by_key(|&l| numbers[l]);
        let mut sets = Vec::new();
        for l in order {
            let heir_of = matches.heir_of[l];
            sets.push(Set {
                id: heir_of.map_or_else(|| new_id(l), |k| ids.of(k)),
                number: Some(numbers[l]),
                states: later[l].states,
                count: later[l].amount,
                probability: later[l].amount / total,
                event: Some(matches.events[l]),
                previous: heir_of.map(|k| previous(k, overlap[l])),
                parents: matches.parents[l].iter().map(|&k| k as u32).collect(),
            });
        }
        let ended = matches.ended.iter().enumerate();
        for (k, event) in ended.filter(|(k, event)| event.is_some() && earlier[*k].states > 0) {
            sets.push(Set {
                id: ids.of(k),
                number: None,
                states: 0,
                count: 0.0,
                probability: 0.0,
                event: *event,
                previous: Some(previous(k, None)),
                parents: Vec::new(),
            });
        }
        sets.sort_by_key(|set| set.id);
        TrackedSets {
            compared_with: None,
            sets,
            next_id: *next_id,
            changes: Some(changes.clone()),
        }
    }

    /// The number of sets with an event. Of sets that ended, only those that died count.
    pub(crate) fn met(&self, event: Event) -> usize {
        let met =
            |set: &&Set| set.event == Some(event) && (set.number.is_some() || event == Event::Died);
        self.sets.iter().filter(met).count()
    }
}

/// The ids of the sets of an earlier fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Ids {
    pub(crate) by_number: BTreeMap<u32, u32>,
    /// The id of the next new set.
    pub next: u32,
}

impl Ids {
    /// The ids of a fit without ids: the numbers of its sets.
    pub(crate) fn numbers(rank: usize) -> Ids {
        Ids {
            by_number: BTreeMap::new(),
            next: rank as u32,
        }
    }

    /// The ids of the sets of a fit.
    pub(crate) fn of_sets(tracked: &TrackedSets) -> Ids {
        let sets = tracked.sets.iter();
        Ids {
            by_number: sets.filter_map(|set| Some((set.number?, set.id))).collect(),
            next: tracked.next_id,
        }
    }

    /// The id of the set with a number.
    pub(crate) fn of(&self, number: usize) -> u32 {
        let number = number as u32;
        self.by_number.get(&number).copied().unwrap_or(number)
    }
}
