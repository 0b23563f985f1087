//! Identities of sets between runs: the sets of a fit, and the earlier sets that they continue.

use crate::assess::changes::{Changes, Comparison, Labelled, sizes};
use crate::assess::succession::Event;
use crate::error::Result;
use serde::{Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt::{Display, Formatter};

/// The sets of one fit and where they come from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lineage {
    /// What stands for the earlier fit, where a run says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared_with: Option<Reference>,
    /// By id; sets that ended are among them.
    pub sets: Vec<Set>,
    /// The id of the next set that is new.
    pub next_id: u32,
    /// Nothing where there is no earlier fit.
    pub changes: Option<Changes>,
}

/// The earlier fit: the one that a fit has its names from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// That of the earlier result.
    Earlier,
    /// That of another lag of the same run.
    Lag(String),
    /// That of another rank of the same run.
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

/// A set of a fit, or one of the earlier fit that is no more.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Set {
    pub id: u32,
    /// Its number; nothing for a set that ended.
    pub number: Option<u32>,
    pub states: u64,
    pub count: f64,
    /// Share of all counts.
    pub probability: f64,
    /// Nothing where there is no earlier fit.
    pub event: Option<Event>,
    /// The set of that id in the earlier fit.
    pub previous: Option<Previous>,
    /// Numbers in the earlier fit of the sets that it came from.
    pub parents: Vec<u32>,
}

/// A set of the earlier fit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Previous {
    pub number: u32,
    pub states: u64,
    pub count: f64,
    /// Amount that both sets share beside that of both together; nothing for a set that ended.
    pub overlap: Option<f64>,
}

impl Lineage {
    /// Of a fit without an earlier one: ids are numbers from the next id on.
    pub fn first(fit: Labelled<'_>, next_id: &mut u32) -> Lineage {
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
        Lineage {
            compared_with: None,
            sets: sets.collect(),
            next_id: *next_id,
            changes: None,
        }
    }

    /// Of a fit after an earlier one, whose sets have the ids `ids`: set l gets the number `numbers[l]`. A set that is no heir has the
    /// id that it has elsewhere, or the next one.
    pub fn following(
        comparison: &Comparison,
        numbers: &[u32],
        ids: &Ids,
        elsewhere: &[Option<u32>],
        next_id: &mut u32,
    ) -> Lineage {
        let Comparison {
            changes,
            succession,
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
            elsewhere.get(l).copied().flatten().unwrap_or_else(|| {
                *next_id += 1;
                *next_id - 1
            })
        };
        let mut order: Vec<usize> = (0..later.len()).filter(|&l| later[l].states > 0).collect();
        order.sort_by_key(|&l| numbers[l]);
        let mut sets = Vec::new();
        for l in order {
            let heir_of = succession.heir_of[l];
            sets.push(Set {
                id: heir_of.map_or_else(|| new_id(l), |k| ids.of(k)),
                number: Some(numbers[l]),
                states: later[l].states,
                count: later[l].amount,
                probability: later[l].amount / total,
                event: Some(succession.events[l]),
                previous: heir_of.map(|k| previous(k, overlap[l])),
                parents: succession.parents[l].iter().map(|&k| k as u32).collect(),
            });
        }
        let ended = succession.ended.iter().enumerate();
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
        Lineage {
            compared_with: None,
            sets,
            next_id: *next_id,
            changes: Some(changes.clone()),
        }
    }

    /// How many sets met an event; of those that ended, only the dead count.
    pub fn met(&self, event: Event) -> usize {
        let met =
            |set: &&Set| set.event == Some(event) && (set.number.is_some() || event == Event::Died);
        self.sets.iter().filter(met).count()
    }
}

/// The ids of the sets of an earlier fit.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ids {
    pub(crate) by_number: BTreeMap<u32, u32>,
    /// That of the next set that is new.
    pub next: u32,
}

impl Ids {
    /// Of a fit that has none: its numbers.
    pub fn numbers(rank: usize) -> Ids {
        Ids {
            by_number: BTreeMap::new(),
            next: rank as u32,
        }
    }

    /// Those of the sets that a fit has.
    pub fn of_sets(lineage: &Lineage) -> Ids {
        let sets = lineage.sets.iter();
        Ids {
            by_number: sets.filter_map(|set| Some((set.number?, set.id))).collect(),
            next: lineage.next_id,
        }
    }

    pub fn of(&self, number: usize) -> u32 {
        let number = number as u32;
        self.by_number.get(&number).copied().unwrap_or(number)
    }
}
