//! The certificates of every method hold for random small inputs, and for inputs with repeated,
//! collinear, far and equal values.

use crate::assess::certificates::{self, Certificate};
use crate::assess::{embeddings, filters, hmm, kernels};
use crate::evidence::counts::Counts;
use crate::evidence::observations::Observations;
use crate::evidence::pass::Passes;
use crate::evidence::points::{Pairs, Points};
use crate::evidence::symbols::Symbols;
use crate::evidence::symbols::triples::Triples;
use crate::methods::cocluster::Cocluster;
use crate::methods::cocluster::metastable::Metastable;
use crate::methods::dbmr::params::Dbmr;
use crate::methods::filter::fit::FitInput;
use crate::methods::filter::params::{
    Bandwidth as BayesBandwidth, BandwidthRule as BayesRule, Kalman, KernelBayes, Regularisation,
    Rule,
};
use crate::methods::fit as fit_counts;
use crate::methods::heat_kernel::chain;
use crate::methods::heat_kernel::fit::{diffusion_map, heat_sketch};
use crate::methods::heat_kernel::normalise::Normalisation;
use crate::methods::heat_kernel::params::{
    All, ChainKernel, DiffusionMap, Epsilon, HeatSketch, Neighbours, OneOrMore,
};
use crate::methods::hmm::baum_welch::refine;
use crate::methods::hmm::params::{Scaling, SpectralHmm};
use crate::methods::hmm::project::project;
use crate::methods::low_rank::model::LowRank;
use crate::methods::spectral::gpcca::Gpcca;
use crate::methods::spectral::svd::Svd;
use crate::methods::state_embedding::candidates::candidates;
use crate::methods::state_embedding::grams::GramSums;
use crate::methods::state_embedding::model::fit_means;
use crate::methods::state_embedding::params::{Bandwidth, BandwidthRule, StateEmbedding};
use crate::methods::{FilterMethod, Method};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Inputs per method.
const INPUTS: u64 = 200;

/// Fails if a claim does not hold. A claim that was not made is no failure.
fn hold(list: &[Certificate], input: &str) {
    let broken = list.iter().find(|c| c.holds == Some(false));
    assert!(broken.is_none(), "{input}: {broken:?}");
}

/// Points of a kind that depends on the seed: random ones, a few places in turn, trajectories that
/// stay, a line, a grid, or random ones with a far point.
fn points(seed: u64) -> Points {
    let random = &mut Pcg64::seed_from_u64(seed);
    let n = random.random_range(12..40);
    let d = random.random_range(1..4);
    let places = random.random_range(2..6);
    let drawn: Vec<f64> = (0..n * d).map(|_| random.random_range(-1.0..1.0)).collect();
    let coordinate = |at: usize| {
        let (row, k) = (at / d, at % d);
        match seed % 6 {
            1 => drawn[row % places * d + k],
            2 => drawn[row * places / n * d + k],
            3 => row as f64 * (k + 1) as f64 + 1e6,
            4 => (row % (places + k)) as f64,
            5 if row == 3 => 1e9,
            _ => drawn[at],
        }
    };
    Points::new(d, (0..n * d).map(coordinate).collect())
}

#[test]
fn state_embeddings_of_random_points() {
    for seed in 0..INPUTS {
        let points = points(seed);
        let mut points = points;
        let mut largest = None;
        if seed % 4 == 3 {
            let own = (0..points.n()).map(|i| [1.0, 0.3, 7.0][i % 3]).collect();
            points = points.with_weights(own);
            largest = Some(7.0);
        }
        let params = StateEmbedding {
            features: 30,
            bandwidth: Bandwidth::Rule(BandwidthRule::Median),
            tolerance: [1e-4, 1e-8][seed as usize % 2],
            ..StateEmbedding::new(1)
        };
        let range = vec![[0.0, 1.0]; points.dimension];
        let basis = candidates(&points, &range, &params, seed).expect("two distinct points");
        let basis = &basis[0];
        let mut values = Vec::new();
        basis
            .features
            .evaluate_rounded(&points.coordinates, &mut values);
        let pairs = Pairs::lagged(points.clone(), 1).pairs;
        let mut sums = GramSums::new(basis.features.count(), 1, largest);
        sums.add(&values, points.weights.as_deref(), &[&pairs]);
        let means = sums.means(0).expect("there are pairs");
        let model = fit_means(&means, basis, &params).expect("the constant is a function");
        hold(
            &embeddings::of_embedding(&model),
            &format!("{seed}: {points:?}"),
        );
        let second = model.singular_values.get(1).copied().unwrap_or(0.0);
        assert!(second < 1.0 + 1e-6, "{second}");
    }
}

#[test]
fn diffusion_maps_and_sketches_of_random_points() {
    let normalisations = [
        Normalisation::Symmetric,
        Normalisation::Stochastic,
        Normalisation::Bistochastic,
    ];
    for seed in 0..INPUTS {
        let points = points(seed);
        let normalisation = normalisations[seed as usize % 3];
        let neighbours = match seed % 2 {
            0 => Neighbours::All(All::All),
            _ => Neighbours::Nearest(5),
        };
        let epsilon = match seed % 7 {
            0 => Epsilon::Given(1e12),
            1 => Epsilon::Given(1e20),
            _ => Epsilon::default(),
        };
        let map = DiffusionMap {
            normalisation,
            neighbours: Some(neighbours),
            epsilon,
            delta: [1e-8, 1e-2][seed as usize % 2],
            time: OneOrMore::More(vec![0.0, 1.0, 3.0, 1e9]),
            tolerance: [1e-6, 0.5][seed as usize % 2],
            ..DiffusionMap::new(3)
        };
        let sketch = HeatSketch {
            normalisation,
            neighbours: Some(neighbours),
            epsilon,
            power: OneOrMore::More(vec![1, 8]),
            ..HeatSketch::new(1 + seed as usize % 4)
        };
        let input = format!("{seed}: {points:?}");
        // A kernel of too small a width is an error of its own.
        if let Ok(found) = diffusion_map(&points, &map, seed) {
            hold(&kernels::of_points(&found.model), &input);
        }
        if let Ok(found) = heat_sketch(&points, &sketch, seed) {
            hold(&kernels::of_points(&found.model), &input);
        }
    }
}

/// Counts of a random chain, which is a cycle for some seeds.
fn chain_of(seed: u64) -> Counts<'static> {
    let random = &mut Pcg64::seed_from_u64(seed);
    let n: u32 = random.random_range(2..12);
    let most = [2, 1000][seed as usize % 2];
    let cycle = (0..n).flat_map(|j| [(j, (j + 1) % n, 1), (j, j, seed % 2)]);
    let mut entry = |j| (j, random.random_range(0..n), random.random_range(0..most));
    let entries: Vec<(u32, u32, u64)> = cycle.chain((0..n).map(&mut entry)).collect();
    let counts = Counts::from_triples(n as usize, n as usize, entries).expect("counts");
    counts.with_targets((0..n).map(Some).collect())
}

#[test]
fn sets_of_the_states_of_random_chains() {
    for seed in 0..INPUTS {
        let counts = chain_of(seed);
        let rank = 1 + seed as usize % 3;
        let dbmr = Dbmr {
            restarts: 2,
            ..Dbmr::new(rank)
        };
        let methods = [
            Method::Dbmr(dbmr),
            Method::Svd(Svd::new(rank)),
            Method::Cocluster(Cocluster::new(rank)),
            Method::Metastable(Metastable::new(rank)),
            Method::Gpcca(Gpcca::new(rank)),
        ];
        // Some chains have no such sets, which is an error of its own.
        let fits = methods
            .iter()
            .map(|method| fit_counts(&Passes::local(), method, &counts, seed));
        let models = fits.filter_map(|fit| Some(fit.ok()?.model));
        let models: Vec<LowRank> = models.collect();
        for list in certificates::of(&counts.shards, &models.iter().collect::<Vec<_>>()) {
            hold(&list, &format!("{seed}: {counts:?}"));
        }
    }
}

#[test]
fn embeddings_of_the_states_of_random_chains() {
    let passes = Passes::local();
    for seed in 0..INPUTS {
        let counts = chain_of(seed);
        for kernel in [ChainKernel::Symmetrised, ChainKernel::TwoSteps] {
            let map = DiffusionMap::new(2).of_chain(kernel).expect("a map");
            let sketch = HeatSketch::new(2).of_chain(kernel).expect("a sketch");
            for found in [
                chain::diffusion_map(&passes, &counts, &map, seed),
                chain::heat_sketch(&passes, &counts, &sketch, seed),
            ] {
                hold(&kernels::of_chain(&found), &format!("{seed}: {counts:?}"));
            }
        }
    }
}

#[test]
fn hidden_markov_models_of_random_symbols() {
    for seed in 0..INPUTS {
        let random = &mut Pcg64::seed_from_u64(seed);
        let n = random.random_range(2..6);
        let length = random.random_range(20..60);
        let symbols: Vec<u32> = (0..length)
            .map(|t| match seed % 3 {
                0 => random.random_range(0..n),
                1 => t % n,
                _ => (t / 7) % n,
            })
            .collect();
        let weight = [1.0, 0.37][seed as usize % 2];
        let list = symbols.windows(3).map(|w| (w[0], w[1], w[2], weight));
        let words = Triples::symbols_as_words(n as usize);
        let triples = Triples::new(1, n as usize, words, list.collect());
        let params = SpectralHmm {
            scaling: [Scaling::Cca, Scaling::None][seed as usize / 2 % 2],
            n_iter: 6,
            ..SpectralHmm::new(3)
        };
        let found = project(&params, 3, &triples, &Passes::local(), seed).expect("operators");
        let input = format!("{seed}: {symbols:?}");
        for rank in 1..=found.rank {
            hold(&hmm::certificates(&found, rank), &input);
        }
        if seed % 4 == 1 {
            let mut sequences = Symbols::new(n as usize);
            sequences.push(&symbols);
            let refined = refine(&params, &found, found.rank, &sequences, seed).expect("a model");
            let climb = hmm::of_trace(&refined.trace, symbols.len());
            hold(&climb.into_iter().collect::<Vec<_>>(), &input);
        }
    }
}

#[test]
fn filters_of_random_rows() {
    for seed in 0..INPUTS {
        let random = &mut Pcg64::seed_from_u64(seed);
        let n = random.random_range(15..40);
        let mut rows = Observations::new(2, 2);
        let (mut states, mut observations) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let [a, b, c, e]: [f64; 4] = std::array::from_fn(|_| random.random_range(-1.0..1.0));
            let (state, observation) = match seed % 5 {
                0 => ([a, b], [c, e]),
                // Far from 0, collinear, nearly collinear, with a constant column.
                1 => ([1.7e9 + 30.0 * a, b], [a, 5.4e6 + b]),
                2 => ([a, 2.0 * a], [b, a + b]),
                3 => ([a, a + 1e-8 * b], [b, c]),
                _ => ([a, 4.0], [1e-7 * c, 1e7 * b]),
            };
            states.extend(state);
            observations.extend(observation);
        }
        rows.push(&states, &observations);
        let kalman = Kalman {
            intercept: seed % 2 == 0,
            ..Kalman::default()
        };
        let rules = [Rule::Pkbr, Rule::Kbr];
        let bayes = KernelBayes {
            lambda: Regularisation::Value([1e-3, 1e-12][seed as usize / 2 % 2]),
            bandwidth: BayesBandwidth::Rule(BayesRule::Median),
            ..KernelBayes::new(rules[seed as usize % 2])
        };
        for method in [
            FilterMethod::Kalman(kalman),
            FilterMethod::KernelBayes(bayes),
        ] {
            let input = FitInput {
                rows: &rows,
                is_static: false,
                prior: None,
                supervision: None,
                dynamics: None,
            };
            // λ may be too small for a factorisation, which is an error of its own.
            if let Ok(found) = method.fit(&input, seed) {
                let list = filters::of_claims(&found.claims);
                hold(&list, &format!("{seed}, {}: {states:?}", method.name()));
            }
        }
    }
}
