//! The bootstrap over groups: how much would a fit vary if other trajectories had been observed?
//!
//! In: the counts of all groups, the fits to their sum, and the number of resamples B. Out, for
//! every fit: mean, standard error and percentile interval of every number of the fit (`interval`);
//! for every state the share of the resamples in which it keeps its set; how well the partitions of
//! the sources agree (adjusted Rand index); and, if asked for, intervals of the timescales of the
//! sets.
//!
//! A resample draws as many groups as there are, with replacement. Its states are those that have
//! counts. Every method is fitted to the resample ([`Method::refit`]). DBMR keeps the best of a
//! local search from the partition of the whole and of a few fresh restarts: the first alone would
//! understate the spread, and the second alone would add the randomness of the search. Sets of the
//! resample are matched to the sets of the whole with which they share the most transitions
//! (`matching`), so that their numbers do not matter.
//!
//! All fits of a resample share its counts.

use crate::assess::agreement::{Contingency, adjusted_rand};
use crate::assess::interval::Spread;
use crate::assess::markov::Chain;
use crate::assess::resampling::{Draws, each_resample};
use crate::evidence::counts::Counts;
use crate::evidence::counts::groups::{Groups, Resampled};
use crate::evidence::pass::Passes;
use crate::math::matching;
use crate::methods::Method;
use crate::methods::fit::Fit;
use crate::methods::low_rank::metrics::WEIGHT;
use crate::methods::low_rank::model::LowRank;
use crate::methods::metric::Metric;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The parameters of a bootstrap.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BootstrapParams<'a> {
    /// B.
    pub resamples: usize,
    /// The probability with which an interval should contain the true value.
    pub confidence: f64,
    /// If the timescales of the sets are resampled.
    pub chain: Option<Chain<'a>>,
    /// Non-zeros per shard.
    pub shard_nnz: usize,
}

/// The numbers of one fit with their spread over resamples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResampledNumbers {
    /// The resamples that could be fitted. The others are too small for the rank.
    pub resamples: usize,
    /// The number of groups from which the resamples are drawn.
    pub groups: usize,
    /// Ordered by metric and index.
    pub numbers: Vec<Number>,
}

/// The bootstrap of sets of states.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Bootstrap {
    /// The numbers of the fit.
    pub of: ResampledNumbers,
    /// If asked for, the ends of the interval of each timescale of the fit. A timescale of a
    /// resample that never decays is infinite. An end is none if it is infinite; both are none if
    /// fewer than two resamples have the timescale.
    pub timescales: Vec<[Option<f64>; 2]>,
    /// For every source, the share of the resamples with the state in which it keeps its set. None
    /// if no resample has the state, or if it has no set.
    pub source_stability: Vec<Option<f64>>,
    /// For every target, the share of the resamples with the state in which it keeps its set.
    pub target_stability: Vec<Option<f64>>,
}

impl Bootstrap {
    /// Set k becomes `numbers[k]`.
    pub(crate) fn renumber(&mut self, numbers: &[u32]) {
        let numbers_of_fit = &mut self.of.numbers;
        for number in numbers_of_fit.iter_mut().filter(|n| n.metric == WEIGHT) {
            number.index = number.index.map(|k| numbers[k] as usize);
        }
        numbers_of_fit.sort_by(|a, b| (&a.metric, a.index).cmp(&(&b.metric, b.index)));
    }
}

/// A number of a fit over the resamples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Number {
    /// The name of the number.
    pub metric: Cow<'static, str>,
    /// The index of a singular value or of a set.
    pub index: Option<usize>,
    /// The number of the fit to the whole. None if only resamples have it.
    pub value: Option<f64>,
    /// None for fewer than two resamples.
    pub spread: Option<Spread>,
}

/// Fits `params.resamples` resamples with each method. `fits` are the fits to the whole; `done` is
/// called after each resample.
pub(crate) fn bootstrap(
    passes: &Passes<'_>,
    groups: &Groups,
    whole: &Counts<'_>,
    fits: &[(&Method, &Fit)],
    params: &BootstrapParams,
    seed: u64,
    done: &(dyn Fn() + Sync),
) -> Vec<Bootstrap> {
    let draws = Draws {
        resamples: params.resamples,
        entries: params.shard_nnz,
        seed,
    };
    let refit_all = |passes: &Passes<'_>, resampled: Resampled, seed| {
        let one = |(at, &(method, fit)): (usize, &(&Method, &Fit))| {
            passes.piece(&format!("fit-{at}"), |passes| {
                refit(passes, &resampled, whole, method, fit, params, seed)
            })
        };
        let fits = fits.iter().enumerate().map(one).collect();
        Refitted {
            sources: resampled.sources,
            targets: resampled.targets,
            fits,
        }
    };
    let mut sums: Vec<Sums> = fits.iter().map(|(_, fit)| Sums::new(fit)).collect();
    let mut last: Option<Refitted> = None;
    let mut add = |next: Refitted| {
        for (at, (sums, (_, fit))) in sums.iter_mut().zip(fits).enumerate() {
            sums.add(fit, &next, last.as_ref(), at);
        }
        last = Some(next);
    };
    each_resample(passes, groups, draws, &refit_all, done, &mut add);
    let with = sums.into_iter().zip(fits);
    with.map(|(sums, (_, fit))| sums.finish(fit, groups.n_groups, params))
        .collect()
}

/// All fits of one resample.
#[derive(Serialize, Deserialize)]
struct Refitted {
    /// The states of the resample, by their indices in the whole.
    sources: Vec<u32>,
    targets: Vec<u32>,
    /// None for a fit whose rank is larger than the number of states.
    fits: Vec<Option<RefittedModel>>,
}

/// A fit of a resample. Its sets have the numbers of the sets of the whole.
#[derive(Serialize, Deserialize)]
struct RefittedModel {
    sources: Vec<i32>,
    targets: Vec<i32>,
    /// In the order of `metrics`.
    values: Vec<f64>,
    /// The timescales of the sets on the counts of the resample, the longest first.
    timescales: Vec<f64>,
    /// The adjusted Rand index of the partition of the sources and that of the whole.
    agreement: f64,
}

/// Fits a method to a resample and matches the sets.
fn refit(
    passes: &Passes<'_>,
    resampled: &Resampled,
    whole: &Counts<'_>,
    method: &Method,
    of_whole: &Fit,
    params: &BootstrapParams,
    seed: u64,
) -> Option<RefittedModel> {
    let pick = |labels: &[i32], states: &[u32]| -> Vec<i32> {
        states.iter().map(|&j| labels[j as usize]).collect()
    };
    let of_whole = &of_whole.model;
    let before = pick(&of_whole.sources.affiliation, &resampled.sources);
    let counts = whole.of_resample(resampled);
    let fit = method.refit(passes, &counts, &before, seed).ok()?;
    let model = &fit.model;
    let rank = model.rank.max(of_whole.rank);

    let places = resampled.sources.iter();
    let weights: Vec<f64> = places
        .map(|&j| whole.shards.source_total[j as usize])
        .collect();
    let overlap = Contingency::new(&before, &model.sources.affiliation, &weights, rank, rank);
    let mut name = vec![0; rank];
    for (old, new) in matching::maximise(&overlap.weight, rank)
        .into_iter()
        .enumerate()
    {
        name[new] = old;
    }
    let named = |labels: &[i32]| -> Vec<i32> {
        let named = |&k| usize::try_from(k).map_or(k, |k| name[k] as i32);
        labels.iter().map(named).collect()
    };
    Some(RefittedModel {
        agreement: agreement(&before, &model.sources.affiliation, rank),
        sources: named(&model.sources.affiliation),
        targets: named(&model.targets.affiliation),
        values: metrics(&fit.model, &name).map(|m| m.value).collect(),
        timescales: params.chain.map_or_else(Vec::new, |chain| {
            chain.timescales(passes, resampled, &model.sources.affiliation, model.rank)
        }),
    })
}

fn agreement(a: &[i32], b: &[i32], rank: usize) -> f64 {
    adjusted_rand(&Contingency::new(a, b, &vec![1.0; a.len()], rank, rank))
}

/// The metrics of a model by name and index. Its set k becomes `name[k]`.
fn metrics(model: &LowRank, name: &[usize]) -> impl Iterator<Item = Metric> {
    let mut metrics = model.metrics();
    for weight in metrics.iter_mut().filter(|m| m.name == WEIGHT) {
        weight.index = weight.index.map(|k| name[k]);
    }
    metrics.sort_by_key(|m| (m.name, m.index));
    metrics.into_iter()
}

/// The results of one fit over the resamples.
struct Sums {
    /// RefittedModel per resample.
    values: Vec<Vec<f64>>,
    timescales: Vec<Vec<f64>>,
    agreements: Vec<f64>,
    /// The adjusted Rand index of each resample and the one before it.
    between: Vec<f64>,
    sources: Stability,
    targets: Stability,
}

/// For every state, the number of resamples that have it, and of those in which it keeps its set.
struct Stability {
    has: Vec<u32>,
    keeps: Vec<u32>,
}

impl Stability {
    fn new(n: usize) -> Stability {
        Stability {
            has: vec![0; n],
            keeps: vec![0; n],
        }
    }

    fn add(&mut self, states: &[u32], labels: &[i32], of_whole: &[i32]) {
        for (&state, label) in states.iter().zip(labels) {
            let state = state as usize;
            self.has[state] += 1;
            self.keeps[state] += u32::from(*label == of_whole[state]);
        }
    }

    fn shares(&self, of_whole: &[i32]) -> Vec<Option<f64>> {
        let states = self.has.iter().zip(&self.keeps).zip(of_whole);
        let share = |((&has, &keeps), &label): ((&u32, &u32), &i32)| {
            (has > 0 && label >= 0).then(|| f64::from(keeps) / f64::from(has))
        };
        states.map(share).collect()
    }
}

impl Sums {
    fn new(fit: &Fit) -> Sums {
        let model = &fit.model;
        Sums {
            values: Vec::new(),
            timescales: Vec::new(),
            agreements: Vec::new(),
            between: Vec::new(),
            sources: Stability::new(model.sources.affiliation.len()),
            targets: Stability::new(model.targets.affiliation.len()),
        }
    }

    fn add(&mut self, fit: &Fit, next: &Refitted, last: Option<&Refitted>, at: usize) {
        let Some(one) = &next.fits[at] else { return };
        let model = &fit.model;
        let (of_sources, of_targets) = (&model.sources.affiliation, &model.targets.affiliation);
        self.sources.add(&next.sources, &one.sources, of_sources);
        self.targets.add(&next.targets, &one.targets, of_targets);
        self.values.push(one.values.clone());
        self.timescales.push(one.timescales.clone());
        self.agreements.push(one.agreement);
        if let Some((last, before)) = last.and_then(|last| Some((last, last.fits[at].as_ref()?))) {
            let mut labels = vec![-1; of_sources.len()];
            for (&j, &label) in last.sources.iter().zip(&before.sources) {
                labels[j as usize] = label;
            }
            let before: Vec<i32> = next.sources.iter().map(|&j| labels[j as usize]).collect();
            self.between
                .push(agreement(&before, &one.sources, model.rank));
        }
    }

    fn finish(self, fit: &Fit, groups: usize, params: &BootstrapParams) -> Bootstrap {
        let model = &fit.model;
        let same: Vec<usize> = (0..model.rank).collect();
        let mut numbers: Vec<Number> = metrics(&fit.model, &same)
            .enumerate()
            .map(|(at, Metric { name, index, value })| Number {
                metric: name.into(),
                index,
                value: Some(value),
                spread: Spread::of(self.values.iter().map(|of| of[at]), params.confidence),
            })
            .collect();
        for (metric, values) in [
            ("adjusted_rand", self.agreements),
            ("adjusted_rand_between", self.between),
        ] {
            numbers.push(Number {
                metric: metric.into(),
                index: None,
                value: None,
                spread: Spread::of(values.into_iter(), params.confidence),
            });
        }
        numbers.sort_by(|a, b| (&a.metric, a.index).cmp(&(&b.metric, b.index)));
        let of_index = |at: usize| {
            let known = self.timescales.iter().filter_map(|t| t.get(at).copied());
            Spread::of(known, params.confidence).map_or([None; 2], |spread| spread.ends())
        };
        Bootstrap {
            of: ResampledNumbers {
                resamples: self.values.len(),
                groups,
                numbers,
            },
            timescales: params
                .chain
                .map_or_else(Vec::new, |_| (0..model.rank).map(of_index).collect()),
            source_stability: self.sources.shares(&model.sources.affiliation),
            target_stability: self.targets.shares(&model.targets.affiliation),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::groups::part;
    use crate::evidence::pass::packed::pack;
    use crate::evidence::resample::Resample;
    use crate::math::testing::on_threads;
    use crate::methods::dbmr::params::Dbmr;
    use crate::methods::fit as fit_whole;
    use crate::methods::given::Given;
    use crate::methods::spectral::svd::Svd;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;
    use std::collections::BTreeMap;

    fn params(resamples: usize) -> BootstrapParams<'static> {
        BootstrapParams {
            resamples,
            confidence: 0.9,
            chain: None,
            shard_nnz: 50,
        }
    }

    /// Trajectories of `steps` steps of a chain on 2 × `half` states. It changes the half with
    /// probability `leave` and is uniform inside.
    fn two_halves(trajectories: u16, steps: usize, half: u32, leave: f64, seed: u64) -> Groups {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut counts: BTreeMap<(u32, u32, u16), u32> = BTreeMap::new();
        for group in 0..trajectories {
            let mut state = random.random_range(0..2 * half);
            for _ in 0..steps {
                let stays = random.random::<f64>() >= leave;
                let side = if (state < half) == stays { 0 } else { half };
                let next = side + random.random_range(0..half);
                *counts.entry((state, next, group)).or_default() += 1;
                state = next;
            }
        }
        let n = 2 * half as usize;
        let mut offsets = vec![0; n + 1];
        for (source, ..) in counts.keys() {
            offsets[*source as usize + 1] += 1;
        }
        for j in 0..n {
            offsets[j + 1] += offsets[j];
        }
        let columns = counts.keys().map(|(_, target, _)| *target).collect();
        let groups = counts.keys().map(|(.., group)| *group).collect();
        let part = part(0, offsets, columns, counts.into_values().collect(), groups);
        Groups::new(n, vec![part])
    }

    fn run(groups: &Groups, methods: &[Method], params: &BootstrapParams) -> Vec<Bootstrap> {
        let whole = groups
            .resample(&vec![1; groups.n_groups], params.shard_nnz)
            .shards;
        let n = whole.n_sources as u32;
        let halves = (0..n).map(|j| u32::from(j >= n / 2)).collect();
        let whole = Counts::of(&whole).with_given("sets", halves, 2);
        let fits: Vec<Fit> = methods
            .iter()
            .map(|method| fit_whole(&Passes::local(), method, &whole, 1).expect("a fit"))
            .collect();
        let with: Vec<_> = methods.iter().zip(&fits).collect();
        bootstrap(&Passes::local(), groups, &whole, &with, params, 5, &|| ())
    }

    fn number(bootstrap: &Bootstrap, metric: &str, index: Option<usize>) -> (f64, Spread) {
        let mut numbers = bootstrap.of.numbers.iter();
        let number = numbers
            .find(|n| n.metric == metric && n.index == index)
            .expect("a number");
        (
            number.value.unwrap_or(f64::NAN),
            number.spread.expect("a spread"),
        )
    }

    fn methods() -> Vec<Method> {
        vec![
            Method::Dbmr(Dbmr::new(2)),
            Method::Svd(Svd::new(2)),
            Method::Given(Given::column("sets")),
        ]
    }

    #[test]
    fn clear_sets_are_stable_whatever_they_are_called() {
        let groups = two_halves(40, 100, 5, 0.05, 1);
        for found in run(&groups, &methods(), &params(20)) {
            assert_eq!((found.of.resamples, found.of.groups), (20, 40));
            assert_eq!(found.source_stability, vec![Some(1.0); 10]);
            assert_eq!(found.target_stability, vec![Some(1.0); 10]);
            for metric in ["adjusted_rand", "adjusted_rand_between"] {
                assert_eq!(number(&found, metric, None).1.mean, 1.0);
            }
            // The chain's second singular value is 1 − 2·0.05, and both halves weigh ½.
            let (value, spread) = number(&found, "singular_value", Some(1));
            assert!(
                spread.low < value && value < spread.high,
                "{value} {spread:?}"
            );
            assert!((value - 0.9).abs() < 4.0 * spread.standard_error);
            assert!((number(&found, "weight", Some(0)).1.mean - 0.5).abs() < 0.15);
        }
    }

    #[test]
    fn sets_of_noise_are_not_stable() {
        // There is truly one set, so the half of a state is random.
        let groups = two_halves(40, 30, 10, 0.5, 2);
        let found = &run(&groups, &methods()[..1], &params(20))[0];
        let stability: Vec<f64> = found.source_stability.iter().flatten().copied().collect();
        assert!(stability.iter().sum::<f64>() / 20.0 < 0.9, "{stability:?}");
        assert!(number(found, "adjusted_rand_between", None).1.mean < 0.5);
    }

    // Standard errors decrease with the square root of the number of trajectories, and about 90 %
    // of the intervals at 90 % contain the true value.
    #[test]
    fn intervals_narrow_with_more_trajectories_and_hold_the_truth() {
        let given = &methods()[2..];
        let width = |trajectories, seed| {
            let groups = two_halves(trajectories, 50, 3, 0.2, seed);
            let found = run(&groups, given, &params(100)).remove(0);
            number(&found, "singular_value", Some(1)).1
        };
        let (mut held, mut few, mut many) = (0, 0.0, 0.0);
        for seed in 0..40 {
            let (a, b) = (width(25, seed), width(400, 100 + seed));
            (few, many) = (few + a.standard_error, many + b.standard_error);
            held += u32::from(b.low <= 0.6 && 0.6 <= b.high);
        }
        assert!((few / many / 4.0 - 1.0).abs() < 0.15, "{}", few / many);
        // 36 ± 1.9.
        assert!((30..=40).contains(&held), "{held}");
    }

    #[test]
    fn neither_threads_nor_shards_change_a_bit() {
        let groups = two_halves(12, 60, 8, 0.3, 3);
        let run_with = |threads, shard_nnz| {
            let params = BootstrapParams {
                shard_nnz,
                ..params(7)
            };
            // Bytes, because the standard error of an infinite number is NaN.
            on_threads(threads, || {
                pack(&run(&groups, &methods(), &params)).expect("bytes")
            })
        };
        let one = run_with(1, 1000);
        assert_eq!(one, run_with(5, 1000));
        assert_eq!(one, run_with(3, 20));
    }

    #[test]
    fn resamples_with_too_few_states_are_left_out() {
        // Trajectory g stays in state g: a resample has as many states as different groups.
        let (diagonal, groups) = (vec![0, 1, 2], vec![0, 1, 2]);
        let part = part(0, vec![0, 1, 2, 3], diagonal, vec![4; 3], groups);
        let groups = Groups::new(3, vec![part]);
        let found = run(&groups, &[Method::Dbmr(Dbmr::new(3))], &params(40)).remove(0);
        // 3!/3³ = 2/9 of them hold all three.
        let resamples = found.of.resamples;
        assert!((2..20).contains(&resamples), "{resamples}");
        assert_eq!(found.source_stability, vec![Some(1.0); 3]);

        let alone = Groups::scatter(3, &groups.resample(&[1, 1, 1], 9).shards.by_source, 1);
        let found = run(&alone, &[Method::Dbmr(Dbmr::new(2))], &params(5)).remove(0);
        assert_eq!((found.of.resamples, found.of.groups), (0, 1));
        let mut numbers = found.of.numbers.iter();
        assert!(numbers.all(|number| number.spread.is_none()));
        assert_eq!(found.target_stability, vec![None; 3]);
    }

    /// Trajectory g has `counts[g]`, row-major, between two states that are one set each. Resamples
    /// have trajectory 0 alone, trajectory 1 alone, or both.
    fn intervals(counts: [[u32; 4]; 2]) -> Vec<[Option<f64>; 2]> {
        let entries = (0..4).flat_map(|at| (0..2u16).map(move |g| (at, g)));
        let entries: Vec<(usize, u16)> = entries
            .filter(|&(at, g)| counts[usize::from(g)][at] > 0)
            .collect();
        let of_first = entries.iter().filter(|(at, _)| *at < 2).count();
        let count = |&(at, g): &(usize, u16)| counts[usize::from(g)][at];
        let part = part(
            0,
            vec![0, of_first, entries.len()],
            entries.iter().map(|(at, _)| *at as u32 % 2).collect(),
            entries.iter().map(count).collect(),
            entries.iter().map(|(_, g)| *g).collect(),
        );
        let params = BootstrapParams {
            chain: Some(Chain {
                source_of_target: &[Some(0), Some(1)],
                lag: 3.0,
            }),
            ..params(100)
        };
        let given = Method::Given(Given::column("sets"));
        run(&Groups::new(2, vec![part]), &[given], &params)
            .remove(0)
            .timescales
    }

    // T = [ .9 .1 ; .1 .9 ] with μ = .8 for trajectory 0, [ .8 .2 ; .2 .8 ] with μ = .6 for
    // trajectory 1, and .7 for both. They are a quarter, a quarter and a half of the resamples, so
    // the ends at 90 % are .6 and .8.
    #[test]
    fn timescales_by_hand() {
        let found = intervals([[9, 1, 1, 9], [8, 2, 2, 8]]);
        assert_eq!(found[0], [None; 2], "what stays never decays");
        let [low, high] = found[1].map(|end| end.expect("an end"));
        assert!((low - -3.0 / 0.6f64.ln()).abs() < 1e-12, "{low}");
        assert!((high - -3.0 / 0.8f64.ln()).abs() < 1e-12, "{high}");
        // Trajectory 0 never changes sets: its timescale is infinite, and so is the upper end.
        let [low, high] = intervals([[10, 0, 0, 10], [8, 2, 2, 8]])[1];
        assert!((low.expect("an end") - -3.0 / 0.6f64.ln()).abs() < 1e-12);
        assert_eq!(high, None);
        // In trajectory 0 nothing starts in the second state: only trajectory 1 and both together
        // have a second timescale.
        let [low, high] = intervals([[9, 1, 0, 0], [8, 2, 2, 8]])[1];
        let both: f64 = 17.0 / 20.0 + 0.8 - 1.0;
        assert!((low.expect("an end") - -3.0 / 0.6f64.ln()).abs() < 1e-12);
        assert!((high.expect("an end") - -3.0 / both.ln()).abs() < 1e-12);
    }
}
