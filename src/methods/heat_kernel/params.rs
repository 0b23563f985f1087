//! The parameters of diffusion maps and heat sketches.

use crate::evidence::points::{PointSize, Points};
use crate::methods::estimator::{Fault, Parameters, at_least_one, tolerance};
use crate::methods::heat_kernel::kernel::{DENSE_POINTS, Reach};
use crate::methods::heat_kernel::neighbours::{self, Distinct, TREE_DIMENSIONS, tile_bytes};
use crate::methods::heat_kernel::normalise::Normalisation;
use crate::methods::heat_kernel::sketch::Distribution;
use crate::methods::heat_kernel::thinned::points_of_landmarks;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One value or several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OneOrMore<T> {
    /// One value.
    One(T),
    /// Several values.
    More(Vec<T>),
}

impl<T: Copy> OneOrMore<T> {
    /// All values, as they are written.
    pub(crate) fn all(&self) -> Vec<T> {
        match self {
            OneOrMore::One(value) => vec![*value],
            OneOrMore::More(values) => values.clone(),
        }
    }
}

/// The entries of the kernel that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Neighbours {
    /// Those of a point and this number of nearest points.
    Nearest(usize),
    /// All of them.
    All(All),
}

/// The word `all`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum All {
    /// All.
    All,
}

/// The bandwidth ε.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Epsilon {
    /// A number, in the squared unit of the coordinates.
    Given(f64),
    /// Chosen from the points.
    Auto(Auto),
}

impl Default for Epsilon {
    fn default() -> Self {
        Epsilon::Auto(Auto::Auto)
    }
}

/// The word `auto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Auto {
    /// Automatic.
    Auto,
}

/// The distances that those of an embedding are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReferenceDistance {
    /// Those of the points.
    Euclidean,
    /// Those of the rows of Aᵖ, for the time or power p: the diffusion distance (26).
    Diffusion,
}

impl ReferenceDistance {
    /// As it is written in pipelines.
    pub(crate) fn name(self) -> &'static str {
        match self {
            ReferenceDistance::Euclidean => "euclidean",
            ReferenceDistance::Diffusion => "diffusion",
        }
    }
}

/// How the distortion is measured over trials.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DistortionTrials {
    /// The distances that those of the embedding are compared with.
    #[serde(default = "both")]
    pub against: OneOrMore<ReferenceDistance>,
    /// The number of trials.
    #[serde(default = "ten")]
    #[schemars(range(min = 1))]
    pub trials: usize,
    /// The number of points of a trial.
    #[serde(default = "sample")]
    #[schemars(range(min = 3, max = 2000))]
    pub sample: usize,
    /// The numbers of leading coordinates that are compared; by default all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dimensions: Vec<usize>,
    /// The standard deviation of noise that is added to every scaled coordinate. The change of the
    /// sketch is measured. Only for `heat_sketch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<f64>,
}

/// The largest number of points of a trial. A trial takes their number cubed of operations.
const MOST_SAMPLED: usize = 2000;

/// The largest number of trials.
const MOST_TRIALS: usize = 10_000;

impl DistortionTrials {
    /// Checks the keys, for an embedding of this dimension.
    fn check(&self, dimension: usize) -> std::result::Result<(), Fault> {
        let wrong = |what: String| Err(("distortion", what));
        let against = self.against.all();
        if against.is_empty() || against.len() > 2 || against[1..].contains(&against[0]) {
            let what = "has `against` that is not \"euclidean\", \"diffusion\" or a list of both";
            return wrong(what.into());
        }
        if !(1..=MOST_TRIALS).contains(&self.trials) {
            let trials = self.trials;
            return wrong(format!(
                "has `trials` {trials}; it must be from 1 to {MOST_TRIALS}"
            ));
        }
        if !(3..=MOST_SAMPLED).contains(&self.sample) {
            let sample = self.sample;
            return wrong(format!(
                "has `sample` {sample}; it must be from 3 to {MOST_SAMPLED}"
            ));
        }
        if let Some(noise) = self
            .noise
            .filter(|noise| !(*noise > 0.0 && noise.is_finite()))
        {
            return wrong(format!(
                "has `noise` {noise}; it must be finite and positive"
            ));
        }
        let is_within = self.dimensions.iter().all(|k| (1..=dimension).contains(k));
        if !is_within || !self.dimensions.is_sorted_by(|a, b| a < b) {
            let what = format!(
                "has `dimensions` {:?}; they must ascend and be from 1 to `dimension`, {dimension}",
                self.dimensions
            );
            return wrong(what);
        }
        Ok(())
    }
}

/// What becomes of kernels with several components.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Connected {
    /// The largest component is embedded. The rows of the others are null.
    #[default]
    Largest,
    /// Several components are an error.
    Required,
}

/// Which kernel, and how it is normalised.
#[derive(Debug, Clone, PartialEq)]
pub struct KernelParams {
    /// Which entries are kept.
    pub reach: Reach,
    /// ε, unless it is chosen from the points.
    pub epsilon: Option<f64>,
    /// The normalisation.
    pub normalisation: Normalisation,
    /// α.
    pub alpha: f64,
    /// The error of row sums at which bistochastic scaling stops.
    pub delta: f64,
    /// The number of landmarks, if the kernel is that of landmarks.
    pub landmarks: Option<usize>,
    /// Whether several components are an error.
    pub only_connected: bool,
}

impl KernelParams {
    /// The kernel in words.
    fn describe(&self) -> String {
        let reach = match (self.reach, self.landmarks) {
            (_, Some(landmarks)) => format!("{landmarks} landmarks"),
            (Reach::Radius(radius), _) => format!("all points within {radius}"),
            (Reach::Neighbours(k), _) => format!("{k} neighbours"),
            (Reach::All, _) => "a full kernel".into(),
        };
        let epsilon = self
            .epsilon
            .map_or("auto".into(), |epsilon| epsilon.to_string());
        let normalisation = self.normalisation.name();
        format!("{reach}, {normalisation}, epsilon {epsilon}")
    }
}

impl KernelParams {
    /// An upper bound of the bytes of the points, the kernel, `vectors` numbers per point of the
    /// kernel and `columns` numbers per point, on this number of threads. The entries of a kernel
    /// with a radius are not counted: see [`KernelParams::bytes_per_pair`].
    pub(crate) fn bytes(&self, size: PointSize, vectors: u64, columns: u64, threads: u64) -> u64 {
        let (n, held) = match self.landmarks {
            Some(count) => (
                size.points.min(count as u64),
                size.points.min(points_of_landmarks(count) as u64),
            ),
            None => (size.points, size.points),
        };
        let kernel = match self.reach {
            Reach::All => 3 * n * n * 8,
            // A kernel of nearest points has at most two entries per neighbour.
            Reach::Neighbours(k) => n * (k as u64).min(n) * 2 * BYTES_PER_ENTRY,
            Reach::Radius(_) => 0,
        };
        let tiles = if self.reach != Reach::All && size.dimension > TREE_DIMENSIONS as u64 {
            n * (size.dimension + 1) * 8 + threads * tile_bytes(n)
        } else {
            0
        };
        // A growing list of points has up to twice its bytes, and so has that of distinct points
        // while they are put into the order of a tree. Rows of coordinates are held for two powers,
        // for all rows and for their table.
        let per_point = size.dimension * 48 + 96 + columns * 32;
        kernel + tiles + held * per_point + n * vectors * 8
    }

    /// An upper bound of the bytes per pair of points within the radius of the kernel; 0 without a
    /// radius.
    pub(crate) fn bytes_per_pair(&self) -> u64 {
        match self.reach {
            Reach::Radius(_) => BYTES_PER_ENTRY,
            Reach::All | Reach::Neighbours(_) => 0,
        }
    }

    /// The pairs of points within the radius of the kernel, those of a point with itself included.
    /// None without a radius.
    pub(crate) fn pairs(&self, points: &Points) -> Option<u64> {
        match self.reach {
            Reach::Radius(radius) => Some(neighbours::count_within(&Distinct::new(points), radius)),
            Reach::All | Reach::Neighbours(_) => None,
        }
    }
}

/// Bytes per entry of a sparse kernel: an index in a list of neighbours, an index and a value, and
/// the same again in growing lists while entries are left out.
const BYTES_PER_ENTRY: u64 = 4 + 8 + 2 * 8;

/// The largest power of a sketch.
const LARGEST_POWER: usize = 1 << 16;

/// Nearest points of a sparse kernel, unless the pipeline has another number.
const NEIGHBOURS: usize = 64;

/// Writes a method of heat kernels: the keys of its own, then those of all of them.
macro_rules! method {
    (
        $(#[$head:meta])*
        $name:ident($dimension:ident) {
            $($(#[$own:meta])* $key:ident: $type:ty = $default:expr,)*
        }
    ) => {
        $(#[$head])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($(#[$own])* pub $key: $type,)*
            /// How the kernel is normalised.
            #[serde(default)]
            pub normalisation: Normalisation,
            /// The exponent by which the density of the points is divided out: 1 leaves the
            /// geometry alone, 0 keeps the density. Not with `normalisation = "bistochastic"`.
            #[serde(default = "one")]
            #[schemars(range(min = 0, max = 1))]
            pub alpha: f64,
            /// The largest error of a row sum. Only with `normalisation = "bistochastic"`.
            #[serde(default = "delta")]
            #[schemars(range(min = 0))]
            pub delta: f64,
            /// The number of nearest points of every point that the kernel keeps, or `"all"` for a
            /// full kernel of up to 20,000 points. 64 unless there is a `radius` or `landmarks`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub neighbours: Option<Neighbours>,
            /// The distance up to which the kernel keeps pairs of points, in place of `neighbours`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub radius: Option<f64>,
            /// The bandwidth ε of the kernel exp(−d²/ε), or `"auto"`.
            #[serde(default)]
            pub epsilon: Epsilon,
            /// The number of landmarks: points that are far from each other, whose full kernel
            /// stands for that of all points. The rows of all points follow from them.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            #[schemars(range(min = 2))]
            pub landmarks: Option<usize>,
            /// What becomes of kernels with several components.
            #[serde(default)]
            pub connected: Connected,
            /// Measures the distortion over trials, in the table `distortion_trials`. A trial is a
            /// fit of its own to `sample` random points (500, at most 2,000) with its own random
            /// numbers; all fits of the file have the same ones. `trials` is their number (10),
            /// `against` is `"euclidean"`, `"diffusion"` or a list of both, which is the default,
            /// and `dimensions` lists numbers of leading coordinates. `noise` is the standard
            /// deviation of noise of the coordinates that changes a `heat_sketch`. Not with
            /// `landmarks`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub distortion: Option<DistortionTrials>,
        }

        impl $name {
            /// The defaults.
            pub fn new($dimension: usize) -> Self {
                $name {
                    $($key: $default,)*
                    normalisation: Normalisation::default(),
                    alpha: one(),
                    delta: delta(),
                    neighbours: None,
                    radius: None,
                    epsilon: Epsilon::default(),
                    landmarks: None,
                    connected: Connected::default(),
                    distortion: None,
                }
            }

            /// The parameters of the kernel.
            pub fn kernel(&self) -> KernelParams {
                let reach = match (self.neighbours, self.radius, self.landmarks) {
                    (_, Some(radius), _) => Reach::Radius(radius),
                    (Some(Neighbours::Nearest(k)), ..) => Reach::Neighbours(k),
                    (Some(Neighbours::All(_)), ..) | (None, _, Some(_)) => Reach::All,
                    (None, None, None) => Reach::Neighbours(NEIGHBOURS),
                };
                KernelParams {
                    reach,
                    epsilon: match self.epsilon {
                        Epsilon::Given(epsilon) => Some(epsilon),
                        Epsilon::Auto(_) => None,
                    },
                    normalisation: self.normalisation,
                    alpha: self.alpha,
                    delta: self.delta,
                    landmarks: self.landmarks,
                    only_connected: self.connected == Connected::Required,
                }
            }

            /// Checks that no key is about the kernel of points.
            fn check_of_chain(&self) -> std::result::Result<(), Fault> {
                let keys = [
                    ("normalisation", self.normalisation != Normalisation::default()),
                    ("alpha", self.alpha != one()),
                    ("delta", self.delta != delta()),
                    ("neighbours", self.neighbours.is_some()),
                    ("radius", self.radius.is_some()),
                    ("epsilon", self.epsilon != Epsilon::default()),
                    ("landmarks", self.landmarks.is_some()),
                    ("connected", self.connected != Connected::default()),
                    ("distortion", self.distortion.is_some()),
                ];
                match keys.into_iter().find(|(_, is_set)| *is_set) {
                    Some((key, _)) => {
                        let what = "is about points with coordinates, and the kernel of states is \
                                    made of their counts; leave it out";
                        Err((key, what.into()))
                    }
                    None => Ok(()),
                }
            }

            /// Checks the keys of the kernel.
            fn check_kernel(&self) -> std::result::Result<(), Fault> {
                let positive = |key, value: f64| {
                    if value > 0.0 && value.is_finite() {
                        return Ok(());
                    }
                    Err((key, format!("must be finite and positive, not {value}")))
                };
                if !(0.0..=1.0).contains(&self.alpha) {
                    return Err(("alpha", format!("must be from 0 to 1, not {}", self.alpha)));
                }
                let is_bistochastic = self.normalisation == Normalisation::Bistochastic;
                if is_bistochastic && self.alpha != one() {
                    let what = "has no meaning with `normalisation = \"bistochastic\"`";
                    return Err(("alpha", what.into()));
                }
                positive("delta", self.delta)?;
                if let Epsilon::Given(epsilon) = self.epsilon {
                    positive("epsilon", epsilon)?;
                }
                if let Some(radius) = self.radius {
                    positive("radius", radius)?;
                    if self.neighbours.is_some() {
                        return Err(("radius", "and `neighbours` cannot both be given".into()));
                    }
                }
                if let Some(trials) = &self.distortion {
                    trials.check(self.dimension)?;
                    if self.landmarks.is_some() {
                        let what = "is about kernels of all points; leave out `landmarks`";
                        return Err(("distortion", what.into()));
                    }
                }
                if self.neighbours == Some(Neighbours::Nearest(0)) {
                    return Err(("neighbours", "must be at least 1, not 0".into()));
                }
                match self.landmarks {
                    Some(landmarks) if !(2..=DENSE_POINTS).contains(&landmarks) => {
                        let what = format!("must be from 2 to {DENSE_POINTS}, not {landmarks}");
                        Err(("landmarks", what))
                    }
                    Some(_) if self.kernel().reach != Reach::All => {
                        let what = "have a full kernel; leave out `neighbours` and `radius`";
                        Err(("landmarks", what.into()))
                    }
                    _ => Ok(()),
                }
            }
        }
    };
}

method! {
    /// Diffusion maps of points, or of the states of a chain.
    DiffusionMap(dimension) {
        /// The number of coordinates, without the constant one.
        #[schemars(range(min = 1))]
        dimension: usize = dimension,
        /// The time t of the coordinates λᵗφ, or a list of times.
        #[serde(default = "one_time")]
        time: OneOrMore<f64> = one_time(),
        /// The relative residual of the eigenvectors of the filtered kernel.
        #[serde(default = "residual")]
        #[schemars(range(min = 0))]
        tolerance: f64 = residual(),
    }
}

method! {
    /// Random sketches of the powers of a heat kernel: Gaussian-process embeddings of points, or of
    /// the states of a chain.
    HeatSketch(dimension) {
        /// The number of coordinates.
        #[schemars(range(min = 1))]
        dimension: usize = dimension,
        /// The power of the kernel, or a list of powers.
        #[serde(default = "first_power")]
        power: OneOrMore<usize> = first_power(),
        /// The distribution of the random numbers.
        #[serde(default)]
        distribution: Distribution = Distribution::default(),
    }
}

/// How the counts of a chain become a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ChainKernel {
    /// D^{-1/2} (N + Nᵀ) D^{-1/2}, for states of one kind.
    Symmetrised,
    /// P̃ᵀP̃, for any counts.
    TwoSteps,
}

impl ChainKernel {
    /// The kernel in words.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            ChainKernel::Symmetrised => "of the symmetrised counts",
            ChainKernel::TwoSteps => "of steps from source to target and back",
        }
    }
}

/// A diffusion map of the states of a chain, with its counts as the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainMap {
    /// The number of coordinates, without the constant one.
    pub dimension: usize,
    /// The times t of the coordinates λᵗφ.
    pub times: Vec<f64>,
    /// The relative residual of the eigenvectors of the filtered kernel.
    pub tolerance: f64,
    /// How the counts become a kernel.
    pub kernel: ChainKernel,
}

/// A random sketch of the states of a chain, with its counts as the kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChainSketch {
    /// The number of coordinates.
    pub dimension: usize,
    /// The powers of the kernel, ascending.
    pub powers: Vec<usize>,
    /// The distribution of the random numbers.
    pub distribution: Distribution,
    /// How the counts become a kernel.
    pub kernel: ChainKernel,
}

// The keys are those of `DiffusionMap`, which are checked.
impl Parameters for ChainMap {
    const NAME: &'static str = DiffusionMap::NAME;

    fn describe(&self, _: &str) -> String {
        let (dimension, kernel) = (self.dimension, self.kernel.describe());
        format!("diffusion map of dimension {dimension} {kernel}")
    }
}

// The keys are those of `HeatSketch`, which are checked.
impl Parameters for ChainSketch {
    const NAME: &'static str = HeatSketch::NAME;

    fn describe(&self, _: &str) -> String {
        let (dimension, kernel) = (self.dimension, self.kernel.describe());
        format!("heat sketch of dimension {dimension} {kernel}")
    }
}

fn one() -> f64 {
    1.0
}

fn delta() -> f64 {
    1e-8
}

fn residual() -> f64 {
    1e-6
}

fn both() -> OneOrMore<ReferenceDistance> {
    OneOrMore::More(vec![
        ReferenceDistance::Euclidean,
        ReferenceDistance::Diffusion,
    ])
}

fn ten() -> usize {
    10
}

fn sample() -> usize {
    500
}

fn one_time() -> OneOrMore<f64> {
    OneOrMore::One(1.0)
}

fn first_power() -> OneOrMore<usize> {
    OneOrMore::One(8)
}

impl DiffusionMap {
    /// The same for the states of a chain.
    ///
    /// # Errors
    /// A key that is about points.
    pub(crate) fn of_chain(&self, kernel: ChainKernel) -> std::result::Result<ChainMap, Fault> {
        self.check_of_chain()?;
        Ok(ChainMap {
            dimension: self.dimension,
            times: self.time.all(),
            tolerance: self.tolerance,
            kernel,
        })
    }
}

impl Parameters for DiffusionMap {
    const NAME: &'static str = "diffusion_map";

    fn describe(&self, _: &str) -> String {
        format!(
            "diffusion map of dimension {}, {}",
            self.dimension,
            self.kernel().describe()
        )
    }

    fn check(&self) -> std::result::Result<(), Fault> {
        at_least_one(&[("dimension", self.dimension)])?;
        let times = self.time.all();
        if times.is_empty() || times.iter().any(|t| !t.is_finite() || t.is_sign_negative()) {
            let what = "must be a finite number that is not negative, or a list of such numbers";
            return Err(("time", what.into()));
        }
        // Each time names a column.
        let is_repeated = |at: &usize| times[..*at].contains(&times[*at]);
        if let Some(at) = (1..times.len()).find(is_repeated) {
            return Err(("time", format!("has {} twice", times[at])));
        }
        tolerance("tolerance", self.tolerance)?;
        if self
            .distortion
            .as_ref()
            .is_some_and(|own| own.noise.is_some())
        {
            let what = "has `noise`, which only `heat_sketch` has: it compares sketches with the same random numbers";
            return Err(("distortion", what.into()));
        }
        self.check_kernel()
    }
}

impl HeatSketch {
    /// The same for the states of a chain.
    ///
    /// # Errors
    /// A key that is about points.
    pub(crate) fn of_chain(&self, kernel: ChainKernel) -> std::result::Result<ChainSketch, Fault> {
        self.check_of_chain()?;
        Ok(ChainSketch {
            dimension: self.dimension,
            powers: self.power.all(),
            distribution: self.distribution,
            kernel,
        })
    }
}

impl Parameters for HeatSketch {
    const NAME: &'static str = "heat_sketch";

    fn describe(&self, _: &str) -> String {
        format!(
            "heat sketch of dimension {}, {}",
            self.dimension,
            self.kernel().describe()
        )
    }

    fn check(&self) -> std::result::Result<(), Fault> {
        at_least_one(&[("dimension", self.dimension)])?;
        let powers = self.power.all();
        if powers.is_empty() || powers.contains(&0) || !powers.is_sorted_by(|a, b| a < b) {
            let what = "must be a number from 1, or an ascending list of such numbers";
            return Err(("power", what.into()));
        }
        if let Some(power) = powers.last().filter(|power| **power > LARGEST_POWER) {
            let what = format!(
                "must be at most {LARGEST_POWER}, not {power}: a power takes as many products of the \
                 kernel; a `diffusion_map` has no limit of its `time`"
            );
            return Err(("power", what));
        }
        self.check_kernel()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_with_their_defaults() {
        let map: DiffusionMap = toml::from_str("dimension = 2\ntime = [1, 8]").unwrap();
        assert_eq!(map.time.all(), [1.0, 8.0]);
        assert_eq!(map.kernel().reach, Reach::Neighbours(64));
        assert_eq!((map.kernel().epsilon, map.check()), (None, Ok(())));
        let text = "dimension = 8\nneighbours = \"all\"\nepsilon = 0.25\npower = 4";
        let sketch: HeatSketch = toml::from_str(text).unwrap();
        assert_eq!(sketch.kernel().reach, Reach::All);
        assert_eq!(
            (sketch.kernel().epsilon, sketch.check()),
            (Some(0.25), Ok(()))
        );
        let landmarks: HeatSketch = toml::from_str("dimension = 8\nlandmarks = 2000").unwrap();
        assert_eq!(landmarks.kernel().reach, Reach::All);
        assert!(toml::from_str::<HeatSketch>("dimension = 8\nk = 3").is_err());
        let text = "dimension = 8\ndistortion = { against = \"diffusion\", dimensions = [2, 4] }";
        let trials: HeatSketch = toml::from_str(text).unwrap();
        assert_eq!(trials.check(), Ok(()));
        let trials = trials.distortion.unwrap();
        assert_eq!(trials.against.all(), [ReferenceDistance::Diffusion]);
        assert_eq!((trials.trials, trials.sample), (10, 500));
        assert_eq!(trials.dimensions, [2, 4]);
    }

    #[test]
    fn wrong_keys_are_named() {
        let wrong = [
            ("dimension = 0", "dimension"),
            ("dimension = 1\nalpha = 2.0", "alpha"),
            (
                "dimension = 1\nalpha = 0.5\nnormalisation = \"bistochastic\"",
                "alpha",
            ),
            ("dimension = 1\nepsilon = 0.0", "epsilon"),
            ("dimension = 1\nradius = 1.0\nneighbours = 5", "radius"),
            ("dimension = 1\nneighbours = 0", "neighbours"),
            ("dimension = 1\nlandmarks = 1", "landmarks"),
            ("dimension = 1\nlandmarks = 10\nneighbours = 5", "landmarks"),
            ("dimension = 1\ntime = []", "time"),
            ("dimension = 1\ntime = -0.0", "time"),
            ("dimension = 1\ntime = [1, 8, 1.0]", "time"),
            ("dimension = 1\ntolerance = -1.0", "tolerance"),
            ("dimension = 1\ndistortion.against = []", "distortion"),
            (
                "dimension = 1\ndistortion.against = [\"diffusion\", \"diffusion\"]",
                "distortion",
            ),
            ("dimension = 1\ndistortion.trials = 0", "distortion"),
            ("dimension = 1\ndistortion.sample = 2", "distortion"),
            ("dimension = 1\ndistortion.sample = 2001", "distortion"),
            ("dimension = 1\ndistortion.dimensions = [2]", "distortion"),
            ("dimension = 1\ndistortion.noise = 0.1", "distortion"),
            (
                "dimension = 2\ndistortion.dimensions = [2, 1]",
                "distortion",
            ),
            (
                "dimension = 2\ndistortion = {}\nlandmarks = 9",
                "distortion",
            ),
        ];
        for (text, key) in wrong {
            let map: DiffusionMap = toml::from_str(text).unwrap();
            assert_eq!(map.check().unwrap_err().0, key, "{text}");
        }
        let sketch: HeatSketch = toml::from_str("dimension = 1\npower = [4, 2]").unwrap();
        assert_eq!(sketch.check().unwrap_err().0, "power");
        let sketch: HeatSketch = toml::from_str("dimension = 1\ndistortion.noise = 0.0").unwrap();
        assert_eq!(sketch.check().unwrap_err().0, "distortion");
        let sketch: HeatSketch = toml::from_str("dimension = 1\npower = 4294967297").unwrap();
        assert_eq!(sketch.check().unwrap_err().0, "power");
    }
}
