//! Methods other than DBMR and k-means on the worlds of the coherence paper: co-clustering of both
//! sides, one partition for both sides, and SEBA and PCCA+ on singular and Schur vectors.

use crate::lake::{Lake, Rows, texts};
use crate::worlds;
use crate::worlds::{World, assert_close};
use gyre::evidence::counts::Counts;
use gyre::evidence::pass::Passes;
use gyre::methods;
use gyre::methods::Method;
use gyre::methods::cocluster;
use gyre::methods::cocluster::metastable::Metastable;
use gyre::methods::dbmr::params;
use gyre::methods::fit::Fit;
use gyre::methods::given::Given;
use gyre::methods::spectral::gpcca;
use gyre::methods::spectral::svd;
use std::collections::BTreeMap;

fn try_fit(world: &World, method: &Method) -> gyre::error::Result<Fit> {
    let shards = world.shards(2_000);
    methods::fit(&Passes::local(), method, &world.counts(&shards), 1)
}

fn fit(world: &World, method: &Method) -> Fit {
    try_fit(world, method).expect("a rank that fits the world")
}

fn soft(rank: usize, clusters: svd::Clusters) -> Method {
    Method::Svd(svd::Svd {
        clusters,
        ..svd::Svd::new(rank)
    })
}

/// One partition for both sides of a world in which source j is target j.
fn metastable(rank: usize) -> Method {
    Method::Metastable(Metastable::new(rank))
}

fn gpcca(rank: usize) -> Method {
    Method::Gpcca(gpcca::Gpcca::new(rank))
}

/// Whether two partitions are equal up to the names of their sets.
fn are_equal_partitions(a: &[i32], b: &[u32]) -> bool {
    let mut names = BTreeMap::new();
    let mut taken = BTreeMap::new();
    a.iter()
        .zip(b)
        .all(|(a, b)| names.entry(*a).or_insert(*b) == b && taken.entry(*b).or_insert(*a) == a)
}

/// If the model is exact, all methods find E₁, E₂, E₃ on both sides, and I(E; F) = I(X; Y).
#[test]
fn polzin2024_example20_eps0_with_every_method() {
    let world = worlds::example20(0, 0);
    // Half of the pairs are inside E₃ (50 × 50 states), 2/5 inside E₁ and E₂, and 1/10 between
    // these two.
    let expected_information = 0.5 * 2f64.ln() + 0.4 * 3.2f64.ln() + 0.1 * 0.8f64.ln();
    for method in [
        Method::Cocluster(cocluster::Cocluster::new(3)),
        metastable(3),
        gpcca(3),
        soft(3, svd::Clusters::Seba),
        soft(3, svd::Clusters::Pcca),
    ] {
        let fit = fit(&world, &method);
        let (sets, metrics) = (&fit.model.sources.affiliation, &fit.model.metrics);
        assert!(fit.how.converged, "{method:?}");
        assert!(are_equal_partitions(sets, &world.partition), "{method:?}");
        assert_eq!(fit.model.targets.affiliation, *sets);
        for found in [metrics.mutual_information, metrics.reference_information] {
            assert_close(found, expected_information, 1e-12);
        }
        assert_close(metrics.objective, 2.6, 1e-12);
        // The soft sets are crisp for these worlds.
        for side in [&fit.model.sources, &fit.model.targets] {
            let memberships = side.membership.iter().flatten();
            assert!(memberships.copied().all(|x| x.min(1.0 - x).abs() < 1e-7));
        }
        if let Some(crispness) = fit.model.metrics.crispness {
            assert_close(crispness, 1.0, 1e-9);
        }
    }
}

/// The coherent thirds form a cycle E₁ → E₂ → E₃ → E₁. σ₁ … σ₃₀ are all 1, so singular vectors
/// cannot identify the sets. The eigenvalues 1, e^{±2πi/3} can, and one partition for both sides
/// has the full information of three sets. Two sets would separate the complex pair.
#[test]
fn polzin2024_example21_eps0_needs_the_cycle() {
    let world = worlds::example21(0, 0);
    let cycle = fit(&world, &gpcca(3));
    assert!(are_equal_partitions(
        &cycle.model.sources.affiliation,
        &world.partition
    ));
    let crispness = cycle.model.metrics.crispness.expect("memberships");
    assert_close(crispness, 1.0, 1e-9);
    let eigenvalue = cycle.model.spectrum[1].eigenvalue.expect("an eigenvalue");
    assert_close(eigenvalue[0], -0.5, 1e-12);
    assert_close(eigenvalue[1], 0.75f64.sqrt(), 1e-12);
    let one = fit(&world, &metastable(3));
    assert_close(one.model.metrics.mutual_information, 3f64.ln(), 1e-12);
    assert_eq!(one.model.metrics.objective, 0.0);
    let best = &one.how.restarts[one.how.best_restart];
    assert_eq!(best.init.as_deref(), Some("gpcca"));
    let error = try_fit(&world, &gpcca(2)).expect_err("a parted pair");
    let expected =
        "rank 2 parts the complex pair of eigenvalues -0.500000 ± 0.866025i: take 1 or 3";
    assert_eq!(error.to_string(), expected);
}

/// Remark 22, on the same counts. Every three unions of the thirty coherent triples are perfectly
/// coherent, 84/3/3 as well as thirds. Their targets have the same sizes, so I(E; F) is the entropy
/// of the weights, which is largest for thirds.
#[test]
fn polzin2024_remark22_of_sets_that_objective_2_cannot_tell_apart() {
    let world = worlds::example21(0, 0);
    // The paper counts from 1. Its sources {61, 80, 81} are 60, 79 and 80 in this test.
    let triple = |j: usize| match j % 30 {
        down @ 10..20 => j / 30 * 10 + 19 - down,
        up => j / 30 * 10 + up % 10,
    };
    assert_eq!([60, 79, 80].map(triple), [20; 3]);
    for sizes in [[10, 10, 10], [11, 10, 9], [25, 4, 1], [28, 1, 1]] {
        // Triples are assigned in turn, so that no set is an interval of the state space.
        let set = |triple: usize| {
            let turn = triple * 7 % 30;
            u32::from(turn >= sizes[0]) + u32::from(turn >= sizes[0] + sizes[1])
        };
        let shards = world.shards(2_000);
        let given = (0..90).map(|j| set(triple(j))).collect();
        let counts = Counts::of(&shards).with_given("sets", given, 3);
        let method = Method::Given(Given::column("sets"));
        let fit = methods::fit(&Passes::local(), &method, &counts, 1);
        let fit = fit.expect("a partition");
        let metrics = &fit.model.metrics;
        assert_eq!(metrics.source_sizes, sizes.map(|n| 3 * n));
        assert_close(metrics.coherence, 3.0, 1e-12);
        assert_close(metrics.objective, 3.0, 1e-12);
        let weights = sizes.map(|n| n as f64 / 30.0);
        let entropy = -weights.iter().map(|w| w * w.ln()).sum::<f64>();
        assert_close(metrics.mutual_information, entropy, 1e-12);
        assert_close(metrics.kullback_leibler, 30f64.ln() - entropy, 1e-12);
    }
    for method in [
        Method::Dbmr(params::Dbmr::new(3)),
        Method::Cocluster(cocluster::Cocluster::new(3)),
    ] {
        let fit = fit(&world, &method);
        assert_close(fit.model.metrics.objective, 3.0, 1e-12);
        let sets = &fit.model.sources.affiliation;
        assert!((0..90).all(|j| sets[j] == sets[triple(j) / 10 * 30 + triple(j) % 10]));
    }
}

/// One partition for both sides is a special pair of partitions, and so is the result of DBMR.
/// Co-clustering has at least the mutual information of both.
#[test]
fn two_partitions_explain_no_less_than_one() {
    for seed in 0..5 {
        for world in [
            worlds::example20(2, seed),
            worlds::example20(10, seed),
            worlds::example21(1, seed),
            worlds::example21(4, seed),
        ] {
            let both = fit(&world, &Method::Cocluster(cocluster::Cocluster::new(3)));
            let one = fit(&world, &metastable(3));
            let dbmr = fit(&world, &Method::Dbmr(params::Dbmr::new(3)));
            let most = both.model.metrics.mutual_information;
            assert!(most <= both.model.metrics.reference_information);
            for other in [&one, &dbmr] {
                let information = other.model.metrics.mutual_information;
                assert!(most >= information - 1e-9, "{seed}");
            }
            assert_eq!(one.model.sources.affiliation, one.model.targets.affiliation);
            for fit in [both, one] {
                assert!(fit.how.restarts.iter().all(|r| r.converged));
            }
        }
    }
}

/// The row of the guide's comparison for a world: I(X; Y), and then Σ p_j KL(P_j‖Λ_j), I(E; F) and
/// objective (2) for DBMR, co-clustering and one partition.
pub fn comparison_row(world: &str, reference: f64, of_methods: [[f64; 3]; 3]) -> String {
    let cell = |[kl, information, objective]: [f64; 3]| {
        format!("{kl:.3}, **{information:.3}**, {objective:.2}")
    };
    let cells = of_methods.map(cell).join(" | ");
    format!("| {world} | {reference:.3} | {cells} |")
}

#[test]
fn polzin2024_examples_20_and_21_in_one_run() {
    let rows = [
        ("20, ε = 0", worlds::example20(0, 0)),
        ("20, ε = 2", worlds::example20(2, 0)),
        ("20, ε = 10", worlds::example20(10, 0)),
        ("21, ε = 0", worlds::example21(0, 0)),
        ("21, ε = 1", worlds::example21(1, 0)),
        ("21, ε = 4", worlds::example21(4, 0)),
    ]
    .map(|(name, world)| {
        let fits = [
            Method::Dbmr(params::Dbmr::new(3)),
            Method::Cocluster(cocluster::Cocluster::new(3)),
            metastable(3),
        ]
        .map(|method| fit(&world, &method));
        let reference = fits[0].model.metrics.reference_information;
        let metrics = fits.each_ref().map(|fit| &fit.model.metrics);
        let numbers = metrics.map(|m| [m.kullback_leibler, m.mutual_information, m.objective]);
        comparison_row(name, reference, numbers)
    });
    crate::pages::assert_shown(&rows);
}

const PAIRS: &str = r#"
job = { name = "pairs", output = "out" }
tables.pairs.path = "pairs.parquet"
[transitions]
sql = "SELECT * FROM pairs WHERE b <> $without"
source = "a"
target = "b"

[transitions.parameters]
without = ""

[[fit]]
name = "one"
method = "metastable"
rank = 2
"#;

/// States a1 to a3 and b1 to b3 have transitions inside their group only. Transitions lead from x
/// to one group, and from the other group to z.
#[test]
fn sets_of_sources_and_targets_are_matched() {
    let lake = Lake::new();
    let mut pairs: Vec<(String, String)> = Vec::new();
    for side in ["a", "b"] {
        for (from, to) in (1..4).flat_map(|from| (1..4).map(move |to| (from, to))) {
            pairs.push((format!("{side}{from}"), format!("{side}{to}")));
        }
    }
    pairs.push(("x".into(), "a2".into()));
    pairs.push(("b3".into(), "z".into()));
    pairs.push(("b1".into(), "a1".into()));
    let text = |of: fn(&(String, String)) -> &String| texts(pairs.iter().map(of));
    lake.table(
        "pairs.parquet",
        vec![("a", text(|p| &p.0)), ("b", text(|p| &p.1))],
    );
    lake.runs_text(PAIRS);
    let (sources, targets) = (lake.read("sources"), lake.read("targets"));
    let sets = |rows: &Rows, key: &str| -> BTreeMap<String, i64> {
        let sets = rows.integers("one_affiliation");
        rows.texts(key).into_iter().zip(sets).collect()
    };
    let (from, to) = (sets(&sources, "a"), sets(&targets, "b"));
    let (a, b) = (from["a1"], from["b1"]);
    assert_ne!(a, b);
    for (state, set) in from.iter().chain(&to) {
        let side = if state.starts_with('a') || state == "x" {
            a
        } else {
            b
        };
        assert_eq!(*set, side, "{state}");
    }

    let gpcca = ["run", "p.toml", "--set", "fit.one.method=gpcca"];
    let ran = lake.gyre(&gpcca);
    ran.fails(1, "no transition starts in state z");
    let without = [&gpcca[..], &["--set", "transitions.parameters.without=z"]].concat();
    lake.gyre(&without).succeeds();
    let fits = lake.read("fits");
    assert!(fits.floats("crispness")[0] > 0.8);

    let mixed = "transitions.sql=SELECT a, length(b) AS b FROM pairs WHERE b <> $without";
    let ran = lake.run(&[mixed]);
    let message =
        "method \"metastable\" of fit `one` takes sources and targets for states of one kind";
    ran.fails(2, message);
}
