//! The fits of a run → sets whose names agree between the ranks and the lags of a `[[fit]]`, and with an earlier result.
//!
//! In: the models of a run, and how their fits follow from those of an earlier result. Out: the same models with their sets renamed, and the
//! [`TrackedSets`] of each.
//!
//! All fits of one `[[fit]]` in a partition share their ids. They are named one after the other: those that the earlier result has before
//! the others, then by lag, then by rank. A fit has its names from the first of these that there is:
//!
//! 1. the fit of that name and lag in the earlier result;
//! 2. the same fit at the nearest lag that has names, of two the shorter one;
//! 3. the next smaller rank at the same lag that has names, or else the next larger one.
//!
//! With that one it is compared. A set that it does not have may be one that another of the three has: then it takes the id from there. An
//! id that no other set of the `[[fit]]` ever had is for sets that none of them has. Without all three, sets are numbered by decreasing weight.

use crate::assess::changes::{Comparison, compare, overlap};
use crate::assess::match_sets::{heirs, numbers};
use crate::assess::set_tracking::{Ids, Reference, TrackedSets};
use crate::evidence::lag::Lag;
use crate::methods::fit::Model;
use crate::output::result::ModelKey;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::Plan;
use crate::plan::pipeline::keys::NamesFrom;
use crate::run::sets::earlier::{Past, key, labelled};
use rayon::prelude::*;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A model, and what its fits were in the earlier result.
type Member<'a> = (&'a mut FittedModel, Vec<Option<Comparison>>);

/// The place of a fit: its lag among those of the partition and its rank among those of the family, both from the smallest.
type Place = (usize, usize);

/// Names the sets of all fits. Models are ordered by partition.
pub fn name(plan: &Plan, names: &RunSchema, models: &mut [FittedModel], past: Past) {
    let Past { comparisons, ids } = past;
    let nothing = std::iter::repeat_with(|| vec![None; names.fits.len()]);
    let members = models
        .iter_mut()
        .zip(comparisons.into_iter().chain(nothing));
    let mut members: Vec<Member<'_>> = members.collect();
    let families = families(plan);
    let same = |a: &Member<'_>, b: &Member<'_>| a.0.counts.partition == b.0.counts.partition;
    members.par_chunk_by_mut(same).for_each(|members| {
        let mut named: Vec<Vec<(usize, TrackedSets)>> = vec![Vec::new(); members.len()];
        for fits in &families {
            let family = Family::new(plan, names, &ids, members, fits);
            for (model, fit, lineage) in family.name(members) {
                named[model].push((fit, lineage));
            }
        }
        for ((model, _), mut named) in members.iter_mut().zip(named) {
            named.sort_by_key(|(fit, _)| *fit);
            model.tracked_sets = named.into_iter().map(|(_, lineage)| lineage).collect();
        }
    });
}

/// The fits of each `[[fit]]` by rank.
fn families(plan: &Plan) -> Vec<Vec<usize>> {
    let mut families: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, fit) in plan.fits.iter().enumerate() {
        families.entry(fit.family()).or_default().push(at);
    }
    let mut families: Vec<Vec<usize>> = families.into_values().collect();
    for family in &mut families {
        family.sort_by_key(|&at| plan.fits[at].method.rank());
    }
    families
}

/// The fits of one `[[fit]]` in a partition.
struct Family<'a> {
    plan: &'a Plan,
    names: &'a RunSchema,
    ids: &'a BTreeMap<(ModelKey, String), Ids>,
    /// Places of models among those of the partition, by lag.
    lags: Vec<usize>,
    /// Places of fits in the plan, by rank.
    fits: &'a [usize],
    /// The id of the next set that is new.
    next_id: u32,
    named: BTreeMap<Place, TrackedSets>,
}

impl<'a> Family<'a> {
    fn new(
        plan: &'a Plan,
        names: &'a RunSchema,
        ids: &'a BTreeMap<(ModelKey, String), Ids>,
        members: &[Member<'_>],
        fits: &'a [usize],
    ) -> Family<'a> {
        let length = |model: &usize| -> f64 {
            let lag = plan.lags.get(members[*model].0.counts.lag);
            lag.map_or(0.0, Lag::number)
        };
        let mut lags: Vec<usize> = (0..members.len()).collect();
        lags.sort_by(|a, b| length(a).total_cmp(&length(b)));
        let family = plan.fits[fits[0]].family();
        let partition = key(names, members[0].0).partition;
        let from = ModelKey {
            partition: partition.clone(),
            lag: None,
        };
        // The family may have had other ranks and lags.
        let used = ids.range((from, String::new())..);
        let used = used.take_while(|((key, _), _)| key.partition == partition);
        let used = used.filter(|((_, fit), _)| is_of(family, fit));
        let mut family = Family {
            plan,
            names,
            ids,
            lags,
            fits,
            next_id: used.map(|(_, ids)| ids.next).max().unwrap_or(0),
            named: BTreeMap::new(),
        };
        for place in family.places() {
            if let Some(comparison) = family.earlier(members, place) {
                let ids = family.ids_of_earlier(members, place, comparison);
                family.next_id = family.next_id.max(ids.next);
            }
        }
        family
    }

    fn places(&self) -> Vec<Place> {
        let lags = 0..self.lags.len();
        lags.flat_map(|lag| (0..self.fits.len()).map(move |rank| (lag, rank)))
            .collect()
    }

    /// The model and the fit at a place.
    fn at(&self, (lag, rank): Place) -> (usize, usize) {
        (self.lags[lag], self.fits[rank])
    }

    fn earlier<'b>(&self, members: &'b [Member<'_>], place: Place) -> Option<&'b Comparison> {
        let (model, fit) = self.at(place);
        members[model].1[fit].as_ref()
    }

    /// The ids of the earlier fit of that name and lag; its numbers, if it is older than ids.
    fn ids_of_earlier(&self, members: &[Member<'_>], place: Place, with: &Comparison) -> Ids {
        let (model, fit) = self.at(place);
        let key = key(self.names, members[model].0);
        let ids = self.ids.get(&(key, self.names.fits[fit].name.clone()));
        let numbers = || Ids::numbers(with.earlier.len());
        ids.cloned().unwrap_or_else(numbers)
    }

    /// Names the sets of all fits, and returns the lineage of each with its model and fit.
    fn name(mut self, members: &mut [Member<'_>]) -> Vec<(usize, usize, TrackedSets)> {
        let mut places = self.places();
        places.sort_by_key(|&place| self.earlier(members, place).is_none());
        for place in places {
            let (lineage, numbers) = self.lineage(members, place);
            let (model, fit) = self.at(place);
            let model = &mut members[model].0;
            let Model::LowRank(low_rank) = &mut model.fits[fit].model;
            low_rank.renumber(&numbers);
            if let Some(bootstrap) = model.bootstraps.get_mut(fit) {
                bootstrap.renumber(&numbers);
            }
            self.named.insert(place, lineage);
        }
        let next_id = self.next_id;
        let named = std::mem::take(&mut self.named).into_iter();
        let named = named.map(|(place, lineage)| {
            let (model, fit) = self.at(place);
            (model, fit, TrackedSets { next_id, ..lineage })
        });
        named.collect()
    }

    /// Where the sets of a fit come from, and the numbers they get.
    fn lineage(&mut self, members: &[Member<'_>], place: Place) -> (TrackedSets, Vec<u32>) {
        let (model, fit) = self.at(place);
        let own = labelled(members[model].0, fit);
        let same: Vec<u32> = (0..own.rank as u32).collect();
        let relatives = self.relatives(place);
        let (with, ids, reference, others) = match (self.earlier(members, place), &relatives[..]) {
            (Some(with), others) => {
                let ids = self.ids_of_earlier(members, place, with);
                (with.clone(), ids, Reference::Earlier, others)
            }
            (None, [first, others @ ..]) => {
                let (from, fit) = self.at(*first);
                let shared = shared(members[from].0, members[model].0);
                let with = compare(labelled(members[from].0, fit), own, &shared);
                let ids = Ids::of_sets(&self.named[first]);
                (with, ids, self.reference(members, place, *first), others)
            }
            (None, []) => return (TrackedSets::first(own, &mut self.next_id), same),
        };
        // The names of all sets that went before are taken, by an heir or by what is told of their end.
        let before = with.earlier.iter().enumerate();
        let before = before.filter(|(_, size)| size.states > 0);
        let mut taken: BTreeSet<u32> = before.map(|(k, _)| ids.of(k)).collect();
        let mut elsewhere = vec![None; own.rank];
        let heir_of = &with.matches.heir_of;
        for other in others {
            let is_new = |l: usize, elsewhere: &[Option<u32>]| {
                with.later[l].states > 0 && heir_of[l].is_none() && elsewhere[l].is_none()
            };
            if !(0..own.rank).any(|l| is_new(l, &elsewhere)) {
                break;
            }
            let (from, fit) = self.at(*other);
            let shared = shared(members[from].0, members[model].0);
            let table = overlap(labelled(members[from].0, fit), own, &shared);
            let theirs = Ids::of_sets(&self.named[other]);
            let found = heirs(&table, |k, l| {
                is_new(l, &elsewhere) && !taken.contains(&theirs.of(k))
            });
            for (l, heir) in found.into_iter().enumerate() {
                if let Some(k) = heir {
                    elsewhere[l] = Some(theirs.of(k));
                    taken.insert(theirs.of(k));
                }
            }
        }
        // The numbers of a given partition are those of its labels.
        let is_given = self.plan.fits[fit].method.needs().given.is_some();
        let numbers = match is_given || self.plan.names == NamesFrom::None {
            true => same,
            false => numbers(&with.matches.heir_of),
        };
        let lineage = TrackedSets::following(&with, &numbers, &ids, &elsewhere, &mut self.next_id);
        let compared_with = Some(reference);
        (
            TrackedSets {
                compared_with,
                ..lineage
            },
            numbers,
        )
    }

    /// The places that have names and that a place can have its own from: the nearest lag, then the nearest rank.
    fn relatives(&self, (lag, rank): Place) -> Vec<Place> {
        let named = self.named.keys().copied();
        let same_rank = named.clone().filter(|other| other.1 == rank);
        let nearest_lag = same_rank.min_by_key(|other| (other.0.abs_diff(lag), other.0));
        let same_lag = named.filter(|other| other.0 == lag);
        let nearest_rank = same_lag.min_by_key(|other| (other.1 > rank, other.1.abs_diff(rank)));
        nearest_lag.into_iter().chain(nearest_rank).collect()
    }

    fn reference(&self, members: &[Member<'_>], place: Place, from: Place) -> Reference {
        let (model, fit) = self.at(from);
        let model = &members[model].0;
        match place.0 == from.0 {
            true => Reference::Rank(labelled(model, fit).rank),
            false => Reference::Lag(self.plan.lags[model.counts.lag].to_string()),
        }
    }
}

/// Whether a fit is one of a `[[fit]]`, by its name.
fn is_of(family: &str, fit: &str) -> bool {
    fit.strip_prefix(family).is_some_and(|rest| {
        let rank = rest.strip_prefix("_r");
        rest.is_empty() || rank.is_some_and(|rank| rank.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// The source states that two models of a run have in common, by their places in either.
fn shared(a: &FittedModel, b: &FittedModel) -> Vec<(u32, u32)> {
    common(&a.counts.source_states, &b.counts.source_states)
}

/// The places of the numbers that two ascending lists have in common.
fn common(a: &[u32], b: &[u32]) -> Vec<(u32, u32)> {
    let (mut i, mut j) = (0, 0);
    let mut common = Vec::with_capacity(a.len().min(b.len()));
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        if x == y {
            common.push((i as u32, j as u32));
        }
        match x.cmp(y) {
            Ordering::Less => i += 1,
            Ordering::Greater => j += 1,
            Ordering::Equal => (i, j) = (i + 1, j + 1),
        }
    }
    common
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_in_common() {
        let found = common(&[1, 4, 5, 9], &[0, 4, 6, 9, 12]);
        assert_eq!(found, [(1, 1), (3, 3)]);
        assert_eq!(common(&[2, 3], &[2, 3]), [(0, 0), (1, 1)]);
        assert_eq!(common(&[], &[2]), []);
    }

    #[test]
    fn a_rank_belongs_to_its_fit() {
        let of = [
            "dbmr",
            "dbmr_r3",
            "dbmr_r12",
            "dbmr_rare",
            "dbmr_x",
            "svd_r3",
            "db",
        ];
        let found = of.map(|fit| is_of("dbmr", fit));
        assert_eq!(found, [true, true, true, false, false, false, false]);
    }
}
