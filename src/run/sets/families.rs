//! The fits of a run → sets whose names agree between the ranks and lags of a `[[fit]]`, and with
//! an earlier result.
//!
//! In: the models of a run, compared with an earlier result. Out: the same models with renumbered
//! sets and their [`TrackedSets`].
//!
//! All fits of one `[[fit]]` in a partition share their ids. Fits are named one after the other:
//! fits of the earlier result first, then by lag, then by rank. A fit takes its names from the
//! first of these that exists:
//!
//! 1. the fit of the same name and lag in the earlier result;
//! 2. the same fit at the nearest lag that has names, the shorter one of two;
//! 3. the next smaller rank at the same lag that has names, else the next larger one.
//!
//! The fit is compared with this one. A set that is not in it may be in another of the three, from
//! which it then takes its id. A set that is in none of them gets a new id, which no set of the
//! `[[fit]]` ever had. Without all three, sets are numbered by decreasing weight.

use crate::assess::changes::{Comparison, compare, overlap};
use crate::assess::match_sets::{heirs, numbers};
use crate::assess::set_tracking::{Ids, Reference, TrackedSets};
use crate::evidence::lag::Lag;
use crate::methods::estimator::Ranked;
use crate::output::result::ModelKey;
use crate::output::tables::fitted_model::FittedModel;
use crate::output::tables::run_schema::RunSchema;
use crate::plan::counts::CountsPlan;
use crate::plan::pipeline::keys::NamesFrom;
use crate::run::sets::earlier::{EarlierSets, key, labelled};
use rayon::prelude::*;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A model of a partition.
struct Member<'a> {
    model: &'a mut FittedModel,
    /// Per fit: the comparison with the earlier result, if that has the fit.
    comparisons: Vec<Option<Comparison>>,
}

/// The place of a fit in its family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Index of the lag among those of the partition, by length.
    lag: usize,
    /// Index of the rank among those of the family, by size.
    rank: usize,
}

/// Names the sets of all fits. Models are ordered by partition.
pub(crate) fn name(
    plan: &CountsPlan,
    names: &RunSchema,
    models: &mut [FittedModel],
    earlier: EarlierSets,
) {
    let EarlierSets { comparisons, ids } = earlier;
    let none = std::iter::repeat_with(|| vec![None; names.fits.len()]);
    let mut members: Vec<Member<'_>> = models
        .iter_mut()
        .zip(comparisons.into_iter().chain(none))
        .map(|(model, comparisons)| Member { model, comparisons })
        .collect();
    let families = families(plan);
    let same =
        |a: &Member<'_>, b: &Member<'_>| a.model.counts.partition == b.model.counts.partition;
    members.par_chunk_by_mut(same).for_each(|members| {
        let mut named: Vec<Vec<(usize, TrackedSets)>> = vec![Vec::new(); members.len()];
        for fits in &families {
            let family = Family::new(plan, names, &ids, members, fits);
            for (model, fit, lineage) in family.name(members) {
                named[model].push((fit, lineage));
            }
        }
        for (member, mut named) in members.iter_mut().zip(named) {
            named.sort_by_key(|(fit, _)| *fit);
            member.model.tracked_sets = named.into_iter().map(|(_, lineage)| lineage).collect();
        }
    });
}

/// For each `[[fit]]`, the indices of its fits in the plan, by rank.
fn families(plan: &CountsPlan) -> Vec<Vec<usize>> {
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
    plan: &'a CountsPlan,
    names: &'a RunSchema,
    ids: &'a BTreeMap<(ModelKey, String), Ids>,
    /// Indices of the models of the partition, by lag.
    lags: Vec<usize>,
    /// Indices of the fits in the plan, by rank.
    fits: &'a [usize],
    /// The id of the next new set.
    next_id: u32,
    /// The fits that have names so far.
    named: BTreeMap<Place, TrackedSets>,
}

impl<'a> Family<'a> {
    fn new(
        plan: &'a CountsPlan,
        names: &'a RunSchema,
        ids: &'a BTreeMap<(ModelKey, String), Ids>,
        members: &[Member<'_>],
        fits: &'a [usize],
    ) -> Family<'a> {
        let length = |model: &usize| -> f64 {
            let lag = plan.lags.get(members[*model].model.counts.lag);
            lag.map_or(0.0, Lag::number)
        };
        let mut lags: Vec<usize> = (0..members.len()).collect();
        lags.sort_by(|a, b| length(a).total_cmp(&length(b)));
        let family = plan.fits[fits[0]].family();
        let partition = key(names, members[0].model).partition;
        let from = ModelKey {
            partition: partition.clone(),
            lag: None,
        };
        // The family may have had other ranks and lags in the earlier result.
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
        lags.flat_map(|lag| (0..self.fits.len()).map(move |rank| Place { lag, rank }))
            .collect()
    }

    /// The index of the model in the partition and that of the fit in the plan.
    fn at(&self, place: Place) -> (usize, usize) {
        (self.lags[place.lag], self.fits[place.rank])
    }

    fn earlier<'b>(&self, members: &'b [Member<'_>], place: Place) -> Option<&'b Comparison> {
        let (model, fit) = self.at(place);
        members[model].comparisons[fit].as_ref()
    }

    /// The ids of the earlier fit of the same name and lag. Its numbers if it is older than ids.
    fn ids_of_earlier(&self, members: &[Member<'_>], place: Place, with: &Comparison) -> Ids {
        let (model, fit) = self.at(place);
        let key = key(self.names, members[model].model);
        let ids = self.ids.get(&(key, self.names.fits[fit].name.clone()));
        let numbers = || Ids::numbers(with.earlier.len());
        ids.cloned().unwrap_or_else(numbers)
    }

    /// Names the sets of all fits. Returns the tracked sets of each with the indices of its model
    /// and fit.
    fn name(mut self, members: &mut [Member<'_>]) -> Vec<(usize, usize, TrackedSets)> {
        let mut places = self.places();
        places.sort_by_key(|&place| self.earlier(members, place).is_none());
        for place in places {
            let (lineage, numbers) = self.lineage(members, place);
            let (model, fit) = self.at(place);
            let model = &mut *members[model].model;
            let low_rank = &mut model.fits[fit].model;
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

    /// The tracked sets of a fit, and the new numbers of its sets.
    fn lineage(&mut self, members: &[Member<'_>], place: Place) -> (TrackedSets, Vec<u32>) {
        let (model, fit) = self.at(place);
        let own = labelled(members[model].model, fit);
        let same: Vec<u32> = (0..own.rank as u32).collect();
        let relatives = self.relatives(place);
        let (with, ids, reference, others) = match (self.earlier(members, place), &relatives[..]) {
            (Some(with), others) => {
                let ids = self.ids_of_earlier(members, place, with);
                (with.clone(), ids, Reference::Earlier, others)
            }
            (None, [first, others @ ..]) => {
                let (from, fit) = self.at(*first);
                let shared = shared(members[from].model, members[model].model);
                let with = compare(labelled(members[from].model, fit), own, &shared);
                let ids = Ids::of_sets(&self.named[first]);
                (with, ids, self.reference(members, place, *first), others)
            }
            (None, []) => return (TrackedSets::first(own, &mut self.next_id), same),
        };
        // All earlier sets use their ids: they go on, or the changes report their end.
        let existing = with.earlier.iter().enumerate();
        let existing = existing.filter(|(_, size)| size.states > 0);
        let mut taken: BTreeSet<u32> = existing.map(|(k, _)| ids.of(k)).collect();
        let mut ids_of_others = vec![None; own.rank];
        let heir_of = &with.matches.heir_of;
        for other in others {
            let is_new = |l: usize, ids_of_others: &[Option<u32>]| {
                with.later[l].states > 0 && heir_of[l].is_none() && ids_of_others[l].is_none()
            };
            if !(0..own.rank).any(|l| is_new(l, &ids_of_others)) {
                break;
            }
            let (from, fit) = self.at(*other);
            let shared = shared(members[from].model, members[model].model);
            let table = overlap(labelled(members[from].model, fit), own, &shared);
            let theirs = Ids::of_sets(&self.named[other]);
            let found = heirs(&table, |k, l| {
                is_new(l, &ids_of_others) && !taken.contains(&theirs.of(k))
            });
            for (l, heir) in found.into_iter().enumerate() {
                if let Some(k) = heir {
                    ids_of_others[l] = Some(theirs.of(k));
                    taken.insert(theirs.of(k));
                }
            }
        }
        // The sets of a given partition keep the numbers of its labels.
        let is_given = self.plan.fits[fit].method.needs().given.is_some();
        let numbers = if is_given || self.plan.names == NamesFrom::None {
            same
        } else {
            numbers(&with.matches.heir_of)
        };
        let lineage =
            TrackedSets::following(&with, &numbers, &ids, &ids_of_others, &mut self.next_id);
        let compared_with = Some(reference);
        (
            TrackedSets {
                compared_with,
                ..lineage
            },
            numbers,
        )
    }

    /// The named places from which a place can take names: the nearest lag, then the nearest rank.
    fn relatives(&self, Place { lag, rank }: Place) -> Vec<Place> {
        let named = self.named.keys().copied();
        let same_rank = named.clone().filter(|other| other.rank == rank);
        let nearest_lag = same_rank.min_by_key(|other| (other.lag.abs_diff(lag), other.lag));
        let same_lag = named.filter(|other| other.lag == lag);
        let nearest_rank =
            same_lag.min_by_key(|other| (other.rank > rank, other.rank.abs_diff(rank)));
        nearest_lag.into_iter().chain(nearest_rank).collect()
    }

    /// Where `place` takes its names from, if it takes them from `from`.
    fn reference(&self, members: &[Member<'_>], place: Place, from: Place) -> Reference {
        let (model, fit) = self.at(from);
        let model = &*members[model].model;
        if place.lag == from.lag {
            Reference::Rank(labelled(model, fit).rank)
        } else {
            Reference::Lag(self.plan.lags[model.counts.lag].to_string())
        }
    }
}

/// Whether a fit belongs to the `[[fit]]` `family`, by its name.
fn is_of(family: &str, fit: &str) -> bool {
    fit.strip_prefix(family).is_some_and(|rest| {
        let rank = rest.strip_prefix("_r");
        rest.is_empty() || rank.is_some_and(|rank| rank.bytes().all(|b| b.is_ascii_digit()))
    })
}

/// The source states that two models of a run have in common, as pairs of indices.
fn shared(a: &FittedModel, b: &FittedModel) -> Vec<(u32, u32)> {
    common(&a.counts.source_states, &b.counts.source_states)
}

/// The indices of the numbers that two ascending lists have in common.
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
