//! Methods: evidence, parameters and a seed → a fit.
//!
//! One folder per family. Each method is a struct of its parameters that implements
//! [`estimator::Parameters`] and [`estimator::Estimator`], and one line of `methods!`.
//! - `dbmr`: direct Bayesian model reduction, a partition of the sources by likelihood.
//! - `spectral`: coherent pairs by truncated singular value decomposition, and sets from Schur
//!   vectors (G-PCCA).
//! - `cocluster`: a partition of either side by mutual information, or one partition of both.
//! - `given`: a partition that the input has.
//! - `heat_kernel`: diffusion maps and random sketches of heat kernels, of points or of states.
//! - `state_embedding`: pairs of points → an embedding of points by where they move, and its
//!   clusters.
//! - `filter`: states and observations → filters that estimate the states of other rows: kernel
//!   Bayes' rule and Kalman filters.
//! - `hmm`: counted triples of symbols → observable operators of a hidden Markov model, and hidden
//!   Markov models that the input has.
//! - `query`: rows that a fit reads by a query of its own.
//! - `low_rank`: what they share: any partition of the sources → the low-rank model Λ = λΓ, its
//!   metrics and bounds, and sets for new rows.
//!
//! Everything here is pure: no I/O, no clock, no environment. A fit depends on the evidence, the
//! parameters and the seed alone, not on threads or shards. Not converging is data, not an error.

pub mod cocluster;
pub(crate) mod columns;
pub mod dbmr;
pub mod estimator;
pub mod filter;
pub mod fit;
pub mod given;
pub mod heat_kernel;
pub mod hmm;
pub mod low_rank;
pub mod metric;
pub mod query;
pub mod spectral;
pub mod state_embedding;

pub use crate::methods::filter::params::{Ekf, Kalman, KernelBayes, Ukf};
pub use crate::methods::heat_kernel::params::{DiffusionMap, HeatSketch};
pub use crate::methods::hmm::given::GivenHmm;
pub use crate::methods::hmm::params::SpectralHmm;
pub use crate::methods::state_embedding::params::StateEmbedding;

use crate::error::Result;
use crate::evidence::counts::{Counts, Size};
use crate::evidence::pass::Passes;
use crate::evidence::pass::registry::Entry;
use crate::evidence::points::{PointSize, Points};
use crate::methods::columns::StateColumn;
use crate::methods::estimator::{Estimator, Fault, Needs, Parameters, Ranked};
use crate::methods::fit::Fit;
use crate::methods::heat_kernel::chain::{self, ChainEmbedding};
use crate::methods::heat_kernel::params::{ChainKernel, KernelParams};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize};

/// Writes an enum of methods, which delegates to the parameters in it.
macro_rules! registry {
    ($(#[$about:meta])* $Method:ident { $($name:ident: $params:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        pub enum $Method {
            $(#[doc = concat!("[`", stringify!($params), "`]")] $name($params),)*
        }

        impl $Method {
            /// The names of these methods, as pipeline files have them.
            pub const NAMES: &'static [&'static str] = &[$(<$params as Parameters>::NAME),*];

            /// [`Parameters::NAME`].
            pub fn name(&self) -> &'static str {
                match self { $($Method::$name(_) => <$params as Parameters>::NAME,)* }
            }

            /// [`Parameters::check`].
            ///
            /// # Errors
            /// The first key that is wrong.
            pub fn check(&self) -> std::result::Result<(), Fault> {
                match self { $($Method::$name(own) => own.check(),)* }
            }

            /// [`Parameters::describe`].
            pub fn describe(&self, rank: &str) -> String {
                match self { $($Method::$name(own) => own.describe(rank),)* }
            }
        }

        impl Ranked for $Method {
            fn rank(&self) -> Option<usize> {
                match self { $($Method::$name(own) => own.rank(),)* }
            }

            fn at(&self, rank: usize) -> $Method {
                match self { $($Method::$name(own) => $Method::$name(own.at(rank)),)* }
            }
        }
    };
}

/// Writes what the methods of some evidence have that [`Estimator`] says alone.
macro_rules! estimators {
    ($Method:ident [] $($list:tt)*) => {};
    ($Method:ident [$Size:ty] $($name:ident: $params:ty,)*) => {
        impl $Method {
            /// [`Estimator::bytes`].
            pub fn bytes(&self, size: $Size, threads: u64) -> u64 {
                match self { $($Method::$name(own) => own.bytes(size, threads),)* }
            }
        }
    };
    ($Method:ident [$Evidence:ty, $Size:ty => $Fit:ty] $($name:ident: $params:ty,)*) => {
        estimators! { $Method [$Size] $($name: $params,)* }

        impl $Method {
            /// [`Estimator::OBJECTIVE_SCALES`].
            pub fn objective_scales(&self) -> bool {
                match self { $($Method::$name(_) => <$params as Estimator>::OBJECTIVE_SCALES,)* }
            }

            /// [`Estimator::needs`].
            pub fn needs(&self) -> Needs<'_> {
                match self { $($Method::$name(own) => own.needs(),)* }
            }

            /// [`Estimator::columns`].
            pub fn columns(&self) -> &'static [StateColumn] {
                match self { $($Method::$name(own) => own.columns(),)* }
            }

            /// [`Estimator::refit`].
            ///
            /// # Errors
            /// If the evidence has no such fit.
            pub fn refit(
                &self,
                passes: &Passes<'_>,
                evidence: &$Evidence,
                before: &[i32],
                seed: u64,
            ) -> Result<$Fit> {
                match self { $($Method::$name(own) => own.refit(passes, evidence, before, seed),)* }
            }
        }

        /// Fits a method to the evidence.
        ///
        /// Latent states are numbered by decreasing weight w_k = Σ_{γ(j)=k} p_j, ties by their
        /// first source, empty ones last; a given partition keeps its numbers.
        ///
        /// # Errors
        /// If the evidence has no such fit.
        pub fn fit(
            passes: &Passes<'_>,
            method: &$Method,
            evidence: &$Evidence,
            seed: u64,
        ) -> Result<$Fit> {
            match method { $($Method::$name(own) => own.fit(passes, evidence, seed),)* }
        }

        /// The kernels of all methods, for machines that receive them as bytes.
        pub fn kernels() -> Vec<Entry> {
            let mut all = low_rank::kernels();
            $(all.extend(<$params as Estimator>::kernels());)*
            all
        }
    };
}

/// Registers the methods of all kinds of evidence.
macro_rules! methods {
    ($($(#[$about:meta])* $Of:ident: $Method:ident $fits:tt {
        $($name:ident: $params:ty,)*
    })*) => {
        $(registry! { $(#[$about])* $Method { $($name: $params,)* } })*
        $(estimators! { $Method $fits $($name: $params,)* })*

        /// A method with its parameters.
        #[derive(Debug, Clone, PartialEq)]
        pub enum AnyMethod {
            $($(#[$about])* $Of($Method),)*
        }

        $($(impl From<$params> for AnyMethod {
            fn from(own: $params) -> AnyMethod {
                AnyMethod::$Of($Method::$name(own))
            }
        })*)*

        $(impl $Method {
            /// The method, if it is one of these.
            pub fn of(method: AnyMethod) -> Option<$Method> {
                if let AnyMethod::$Of(own) = method { Some(own) } else { None }
            }
        })*

        impl AnyMethod {
            /// The names of all methods, as pipeline files have them.
            pub const NAMES: &'static [&'static str] =
                &[$($(<$params as Parameters>::NAME,)*)*];

            /// The method with a name, read from its keys. None if there is no such method.
            ///
            /// # Errors
            /// If the keys are wrong.
            pub fn read<'de, D: Deserializer<'de>>(
                name: &str,
                keys: D,
            ) -> std::result::Result<Option<AnyMethod>, D::Error> {
                $($(if name == <$params as Parameters>::NAME {
                    return <$params>::deserialize(keys).map(|own| Some(own.into()));
                })*)*
                Ok(None)
            }

            /// The JSON Schema of the keys of a method. None if there is no such method.
            pub fn schema(name: &str, generator: &mut SchemaGenerator) -> Option<Schema> {
                $($(if name == <$params as Parameters>::NAME {
                    return Some(<$params>::json_schema(generator));
                })*)*
                None
            }

            /// [`Parameters::check`].
            ///
            /// # Errors
            /// The first key that is wrong.
            pub fn check(&self) -> std::result::Result<(), Fault> {
                match self { $(AnyMethod::$Of(method) => method.check(),)* }
            }

            /// [`Parameters::NAME`].
            pub fn name(&self) -> &'static str {
                match self { $(AnyMethod::$Of(method) => method.name(),)* }
            }

            /// [`Parameters::rank`].
            pub fn rank(&self) -> Option<usize> {
                match self { $(AnyMethod::$Of(method) => method.rank(),)* }
            }
        }
    };
}

methods! {
    /// A method that is fitted to counts, with its parameters.
    OfCounts: Method [Counts<'_>, Size => Fit] {
        Dbmr: dbmr::params::Dbmr,
        Svd: spectral::svd::Svd,
        Cocluster: cocluster::Cocluster,
        Metastable: cocluster::metastable::Metastable,
        Gpcca: spectral::gpcca::Gpcca,
        Given: given::Given,
    }

    /// A method that is fitted to points or to pairs of points, with its parameters.
    OfPoints: PointMethod [PointSize] {
        StateEmbedding: state_embedding::params::StateEmbedding,
        DiffusionMap: heat_kernel::params::DiffusionMap,
        HeatSketch: heat_kernel::params::HeatSketch,
    }

    /// A method that is fitted to sequences of symbols, with its parameters.
    OfSymbols: SymbolMethod [] {
        SpectralHmm: hmm::params::SpectralHmm,
        GivenHmm: hmm::given::GivenHmm,
    }

    /// A filter: a method that is fitted to states and observations, with its parameters.
    OfObservations: FilterMethod [] {
        KernelBayes: filter::params::KernelBayes,
        Kalman: filter::params::Kalman,
        Ekf: filter::params::Ekf,
        Ukf: filter::params::Ukf,
    }
}

registry! {
    /// A method that embeds the states of a chain by their counts, with its parameters.
    ChainMethod {
        DiffusionMap: heat_kernel::params::ChainMap,
        HeatSketch: heat_kernel::params::ChainSketch,
    }
}

impl ChainMethod {
    /// The method of points as a method of counts. None if it has pairs of points as its evidence.
    ///
    /// # Errors
    /// A key that is about points.
    pub(crate) fn of_points(
        method: &PointMethod,
        kernel: ChainKernel,
    ) -> std::result::Result<Option<ChainMethod>, Fault> {
        Ok(match method {
            PointMethod::StateEmbedding(_) => None,
            PointMethod::DiffusionMap(own) => {
                Some(ChainMethod::DiffusionMap(own.of_chain(kernel)?))
            }
            PointMethod::HeatSketch(own) => Some(ChainMethod::HeatSketch(own.of_chain(kernel)?)),
        })
    }

    /// How the counts become a kernel.
    pub(crate) fn kernel(&self) -> ChainKernel {
        match self {
            ChainMethod::DiffusionMap(own) => own.kernel,
            ChainMethod::HeatSketch(own) => own.kernel,
        }
    }

    /// Coordinates per time or power.
    pub(crate) fn dimension(&self) -> usize {
        match self {
            ChainMethod::DiffusionMap(own) => own.dimension,
            ChainMethod::HeatSketch(own) => own.dimension,
        }
    }

    /// What the names of the columns of each time or power end with.
    pub(crate) fn parts(&self) -> Vec<String> {
        match self {
            ChainMethod::DiffusionMap(own) => columns::parts("t", &own.times),
            ChainMethod::HeatSketch(own) => columns::parts("p", &own.powers),
        }
    }

    /// Bytes of dense numbers that [`ChainMethod::embed`] accesses at random.
    pub(crate) fn bytes(&self, size: Size) -> u64 {
        match self {
            ChainMethod::DiffusionMap(own) => chain::map_bytes(own, size),
            ChainMethod::HeatSketch(own) => chain::sketch_bytes(own, size),
        }
    }

    /// Embeds the states.
    pub(crate) fn embed(
        &self,
        passes: &Passes<'_>,
        counts: &Counts<'_>,
        seed: u64,
    ) -> ChainEmbedding {
        match self {
            ChainMethod::DiffusionMap(own) => chain::diffusion_map(passes, counts, own, seed),
            ChainMethod::HeatSketch(own) => chain::heat_sketch(passes, counts, own, seed),
        }
    }
}

impl SymbolMethod {
    /// The parameters of a model that is fitted to windows.
    pub(crate) fn spectral(&self) -> Option<&hmm::params::SpectralHmm> {
        match self {
            SymbolMethod::SpectralHmm(own) => Some(own),
            SymbolMethod::GivenHmm(_) => None,
        }
    }

    /// The parameters of a model that the input has.
    pub(crate) fn given(&self) -> Option<&hmm::given::GivenHmm> {
        match self {
            SymbolMethod::SpectralHmm(_) => None,
            SymbolMethod::GivenHmm(own) => Some(own),
        }
    }

    /// The share of the distribution of all symbols in every prediction.
    pub(crate) fn unigram(&self) -> f64 {
        match self {
            SymbolMethod::SpectralHmm(own) => own.unigram,
            SymbolMethod::GivenHmm(own) => own.unigram,
        }
    }

    /// The smallest prediction.
    pub(crate) fn floor(&self) -> f64 {
        match self {
            SymbolMethod::SpectralHmm(own) => own.floor,
            SymbolMethod::GivenHmm(own) => own.floor,
        }
    }

    /// Whether the model has transition and emission probabilities of hidden states.
    pub(crate) fn has_hidden(&self) -> bool {
        let refine = self.spectral().map(|own| own.refine);
        refine != Some(hmm::params::Refine::None)
    }
}

impl PointMethod {
    /// The kernel of the points. None if pairs of points are the evidence.
    fn kernel(&self) -> Option<KernelParams> {
        match self {
            PointMethod::StateEmbedding(_) => None,
            PointMethod::DiffusionMap(own) => Some(own.kernel()),
            PointMethod::HeatSketch(own) => Some(own.kernel()),
        }
    }

    /// Whether the distortion is measured over trials.
    pub(crate) fn has_trials(&self) -> bool {
        match self {
            PointMethod::StateEmbedding(_) => false,
            PointMethod::DiffusionMap(own) => own.distortion.is_some(),
            PointMethod::HeatSketch(own) => own.distortion.is_some(),
        }
    }

    /// An upper bound of the bytes of a fit that is kept while others are made.
    pub(crate) fn kept_bytes(&self, size: PointSize) -> u64 {
        let columns = match self {
            // Its model does not grow with points.
            PointMethod::StateEmbedding(_) => return 0,
            PointMethod::DiffusionMap(own) => own.dimension * own.time.all().len(),
            PointMethod::HeatSketch(own) => own.dimension * own.power.all().len(),
        };
        size.points * (size.dimension + 3 * columns as u64) * 8
    }

    /// [`KernelParams::bytes_per_pair`].
    pub(crate) fn bytes_per_pair(&self) -> u64 {
        self.kernel().map_or(0, |kernel| kernel.bytes_per_pair())
    }

    /// [`KernelParams::pairs`].
    pub(crate) fn pairs(&self, points: &Points) -> Option<u64> {
        self.kernel()?.pairs(points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;
    use crate::evidence::counts::shards::{Shards, of_entries};
    use crate::math::seed::restart_seed;
    use crate::math::testing::on_threads;
    use crate::methods::cocluster::Cocluster;
    use crate::methods::cocluster::metastable::Metastable;
    use crate::methods::dbmr::params::Dbmr;
    use crate::methods::given::{Given, fit_of};
    use crate::methods::low_rank::canonical;
    use crate::methods::spectral::gpcca::Gpcca;
    use crate::methods::spectral::svd::{Clusters, Svd};

    /// `n` sources and `m` targets with counts on the diagonal and where a hash of (j, i) says so.
    fn world(n: u32, m: u32, shard_nnz: usize) -> Shards {
        let all = (0..n).flat_map(|j| (0..m).map(move |i| (j, i)));
        let entries = all.filter_map(|(j, i)| {
            let hash = restart_seed(7, (j * m + i) as usize) >> 32;
            let most = if j % 4 == i % 4 { 8 } else { 1 };
            let is_counted = j % m == i || i % n == j || hash % 16 < most;
            is_counted.then_some((j, i, 1 + (hash / 16 % 9) as u32))
        });
        of_entries(n as usize, m as usize, entries, shard_nnz)
    }

    /// The counts of the world. The first 70 sources are targets; source j is in the given set j
    /// mod 4.
    fn counts(shards: &Shards) -> Counts<'_> {
        let n = shards.n_sources as u32;
        Counts::of(shards)
            .with_targets((0..n).map(|j| (j < 70).then_some(j)).collect())
            .with_given("sets", (0..n).map(|j| j % 4).collect(), 4)
    }

    /// The methods that choose sets. The world has more sources than targets: 70 of 90 states are
    /// on both sides.
    fn methods(rank: usize) -> Vec<Method> {
        let svd = |clusters| {
            let svd = Svd::new(rank);
            Method::Svd(Svd { clusters, ..svd })
        };
        vec![
            Method::Dbmr(Dbmr::new(rank)),
            svd(Clusters::KMeans),
            svd(Clusters::Seba),
            svd(Clusters::Pcca),
            Method::Cocluster(Cocluster::new(rank)),
            Method::Metastable(Metastable::new(rank)),
            Method::Gpcca(Gpcca::new(rank)),
        ]
    }

    fn given() -> Method {
        Method::Given(Given::column("sets"))
    }

    #[test]
    fn too_many_latent_states() {
        let shards = world(3, 4, 100);
        for rank in [0, 4] {
            let method = Method::Svd(Svd::new(rank));
            let error = fit(&Passes::local(), &method, &Counts::of(&shards), 0).unwrap_err();
            assert_eq!(error.kind(), Kind::Input);
            let expected = match rank {
                0 => "rank 0 leaves no latent state",
                _ => "rank 4 is larger than the number of states (3 sources, 4 targets)",
            };
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn a_given_partition_may_have_more_sets_than_there_are_states() {
        let shards = world(3, 2, 100);
        let (all, own) = (
            fit_of(&shards, vec![1, 4, 4], 6),
            fit_of(&shards, vec![0, 1, 1], 2),
        );
        let (a, b) = (&all.model.metrics, &own.model.metrics);
        assert_eq!(a.empty_states, 4);
        assert_eq!(a.log_likelihood, b.log_likelihood);
        assert!((a.coherence - b.coherence).abs() < 1e-14);
        let sides = [&all.model.sources, &all.model.targets];
        let mut embedded = sides.iter().flat_map(|side| &side.embedding);
        assert!(embedded.all(|x| x.is_finite()));
    }

    // Weights 3, 3 and 5 of the sets {0}, {1} and {2, 3}, and an empty one.
    #[test]
    fn heavy_sets_come_first() {
        let shards = of_entries(4, 4, [(0, 0, 3), (1, 1, 3), (2, 2, 1), (3, 3, 4)], 9);
        assert_eq!(canonical(&[3, 2, 1, 1], 4, &shards), [1, 2, 0, 0]);
        assert_eq!(canonical(&[0, 3, 2, 2], 4, &shards), [1, 2, 0, 0]);
    }

    #[test]
    fn one_state_is_a_world() {
        let shards = of_entries(1, 1, [(0, 0, 2)], 1);
        for method in methods(1) {
            let fit = fit(&Passes::local(), &method, &counts(&shards), 0).expect("rank 1");
            assert_eq!(fit.model.coarse, [1.0]);
            assert_eq!(fit.model.metrics.kappa, 0.5);
            assert!((fit.model.spectrum[0].value - 1.0).abs() < 1e-15);
        }
    }

    #[test]
    fn neither_threads_nor_shards_change_a_bit() {
        for method in methods(4).into_iter().chain([given()]) {
            let run = |threads, shard_nnz| {
                let shards = world(90, 70, shard_nnz);
                on_threads(threads, || {
                    fit(&Passes::local(), &method, &counts(&shards), 3).expect("rank 4")
                })
            };
            let whole = run(1, usize::MAX);
            assert_eq!(whole, run(5, 200));
            assert_eq!(whole, run(5, usize::MAX));
            assert!(whole.model.metrics.frobenius_error <= whole.model.metrics.bound);
        }
    }

    #[test]
    fn fits_agree_on_what_they_claim() {
        let shards = world(90, 70, 500);
        for method in methods(4).into_iter().chain([given()]) {
            let fit = fit(&Passes::local(), &method, &counts(&shards), 3).expect("rank 4");
            assert_eq!(fit.model.coarse_counts.iter().sum::<f64>(), shards.total);
            let sums = fit
                .model
                .coarse
                .chunks(4)
                .map(|row| row.iter().sum::<f64>());
            sums.for_each(|sum| assert!((sum - 1.0).abs() < 1e-15));
            assert!((fit.model.latent.probability.iter().sum::<f64>() - 4.0).abs() < 1e-12);
            let metrics = &fit.model.metrics;
            if let Some(last) = fit.how.trace.last() {
                let best = &fit.how.restarts[fit.how.best_restart];
                let objective = match method {
                    Method::Dbmr(_) => metrics.log_likelihood,
                    _ => metrics.mutual_information,
                };
                assert!((best.objective - objective).abs() < 1e-8);
                assert_eq!(*last, best.objective);
            }
            assert!(metrics.mutual_information > 0.0);
            assert!(metrics.mutual_information < metrics.reference_information);
            for side in [&fit.model.sources, &fit.model.targets] {
                let rows = side.membership.iter().flat_map(|m| m.chunks(4));
                for (row, &set) in rows.zip(&side.affiliation) {
                    let sum: f64 = row.iter().sum();
                    assert!(row.iter().all(|x| *x >= 0.0 && *x <= row[set as usize]));
                    let whole = sum > 1.0 - 1e-12 || metrics.crispness.is_none();
                    assert!(sum < 1.0 + 1e-12 && whole, "{row:?}");
                }
            }
            if let Some(coherence_p) = fit.model.metrics.coherence_p {
                // Proposition 13, summed.
                assert!(fit.model.metrics.coherence <= coherence_p + 1e-10);
            }
            let weights = &fit.model.metrics.weights;
            let given = matches!(method, Method::Given(_));
            assert!(given || weights.windows(2).all(|w| w[0] >= w[1]));
        }
    }

    #[test]
    fn names_of_sources_do_not_matter() {
        // Source j becomes 89 − j: a given partition keeps every metric and its sets.
        let shards = world(90, 70, 500);
        let mut entries: Vec<(u32, u32, u32)> = Vec::new();
        for shard in &shards.by_source {
            for l in 0..shard.n_rows() {
                for e in shard.span(l) {
                    let j = 89 - (shard.first_row + l) as u32;
                    entries.push((j, shard.columns[e], shard.values.get(e) as u32));
                }
            }
        }
        let reversed = of_entries(90, 70, entries, 500);
        let fitted = |shards, flip: bool| {
            let sets = (0..90).map(|j| if flip { 89 - j } else { j } % 4).collect();
            fit_of(shards, sets, 4)
        };
        let (ordered, reversed_fit) = (fitted(&shards, false), fitted(&reversed, true));
        assert_eq!(ordered.model.latent, reversed_fit.model.latent);
        assert_eq!(ordered.model.coarse, reversed_fit.model.coarse);
        let (a, b) = (&ordered.model.metrics, &reversed_fit.model.metrics);
        assert_eq!((a.kappa_1, a.kappa_2), (b.kappa_1, b.kappa_2));
        assert!((a.log_likelihood - b.log_likelihood).abs() < 1e-9);
        assert!((a.frobenius_error - b.frobenius_error).abs() < 1e-12);
    }
}
