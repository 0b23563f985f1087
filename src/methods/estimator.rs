//! The interface of a method.
//!
//! # A method of one's own
//!
//! [`fit`](crate::fit) takes any method. One that pipeline files name has a line of `methods!` in
//! `methods/mod.rs` too, where its name, its keys and its JSON Schema are registered.
//!
//! ```
//! use gyre::evidence::counts::Size;
//! use gyre::evidence::pass::Passes;
//! use gyre::methods::estimator::{Fault, Parameters};
//! use gyre::{Counts, Estimator, Fit, Given};
//!
//! /// Sources in the order of their numbers, in `sets` sets of about one size.
//! #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
//! struct Ranges { sets: usize }
//!
//! impl Parameters for Ranges {
//!     const NAME: &'static str = "ranges";
//!     fn check(&self) -> Result<(), Fault> {
//!         if self.sets > 0 { Ok(()) } else { Err(("sets", "must be at least 1, not 0".into())) }
//!     }
//!     fn describe(&self, _: &str) -> String { format!("{} ranges", self.sets) }
//! }
//!
//! impl Estimator for Ranges {
//!     type Evidence<'a> = Counts<'a>;
//!     type Size = Size;
//!     type Model = Fit;
//!     fn bytes(&self, size: Size, _: u64) -> u64 { 4 * size.sources }
//!     fn fit(&self, passes: &Passes<'_>, counts: &Counts<'_>, seed: u64) -> gyre::Result<Fit> {
//!         let n = counts.shards.n_sources;
//!         let sets = (0..n).map(|j| (j * self.sets / n) as u32).collect();
//!         let counts = counts.clone().with_given("ranges", sets, self.sets);
//!         Given::column("ranges").fit(passes, &counts, seed)
//!     }
//! }
//!
//! let counts = Counts::from_triples(4, 2, [(0, 0, 3), (1, 0, 1), (2, 1, 2), (3, 1, 5)])?;
//! let fit = gyre::fit(&Ranges { sets: 2 }, &counts, 1)?;
//! assert_eq!(fit.model.sources.affiliation, [0, 0, 1, 1]);
//! assert!(gyre::fit(&Ranges { sets: 0 }, &counts, 1).is_err());
//! # Ok::<(), gyre::Error>(())
//! ```

use crate::error::Result;
use crate::evidence::pass::Passes;
use crate::evidence::pass::registry::Entry;
use crate::methods::columns::StateColumn;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;

/// The parameters of a method.
///
/// They are the keys of the method in a pipeline file: serde reads them and has their defaults, and
/// their comments are the descriptions in the JSON Schema.
pub trait Parameters:
    Clone + Debug + PartialEq + Serialize + DeserializeOwned + JsonSchema + Send + Sync
{
    /// `method = "…"` in a pipeline file.
    const NAME: &'static str;

    /// Checks the parameters, except for the rank, without any data.
    ///
    /// # Errors
    /// The first key that is wrong, and what it must be.
    fn check(&self) -> std::result::Result<(), Fault> {
        Ok(())
    }

    /// The rank, unless the data has it.
    fn rank(&self) -> Option<usize> {
        None
    }

    /// The same with another rank, and with defaults that depend on other keys filled in.
    fn at(&self, _rank: usize) -> Self {
        self.clone()
    }

    /// One line of `gyre plan`; `rank` is the rank in words.
    fn describe(&self, rank: &str) -> String;
}

/// How a method is fitted to its evidence.
pub trait Estimator: Parameters {
    /// Whether objectives of restarts are proportional to the counts, as log-likelihoods are.
    const OBJECTIVE_SCALES: bool = false;

    /// What the method is fitted to.
    type Evidence<'a>;

    /// How large the evidence is, for [`bytes`](Estimator::bytes).
    type Size;

    /// What the method makes of its evidence.
    type Model;

    /// The kernels of the passes of a fit.
    fn kernels() -> Vec<Entry> {
        Vec::new()
    }

    /// What a fit needs of its evidence and of the process.
    fn needs(&self) -> Needs<'_> {
        Needs::default()
    }

    /// The columns that a fit adds to the tables of states.
    fn columns(&self) -> &'static [StateColumn] {
        &[]
    }

    /// An upper bound of the bytes of dense numbers that a fit accesses at random, so that they
    /// must stay in memory.
    fn bytes(&self, size: Self::Size, threads: u64) -> u64;

    /// Fits the method. The fit depends on the evidence, the parameters and the seed alone.
    ///
    /// # Errors
    /// If the evidence has no such fit.
    fn fit(
        &self,
        passes: &Passes<'_>,
        evidence: &Self::Evidence<'_>,
        seed: u64,
    ) -> Result<Self::Model>;

    /// Fits the method to a resample. `before` has the sets of its sources in the fit to all
    /// counts, −1 for none.
    ///
    /// # Errors
    /// If the evidence has no such fit.
    fn refit(
        &self,
        passes: &Passes<'_>,
        evidence: &Self::Evidence<'_>,
        _before: &[i32],
        seed: u64,
    ) -> Result<Self::Model> {
        self.fit(passes, evidence, seed)
    }
}

/// A method that may have a rank.
pub trait Ranked: Clone {
    /// [`Parameters::rank`].
    fn rank(&self) -> Option<usize>;

    /// [`Parameters::at`].
    #[must_use]
    fn at(&self, rank: usize) -> Self;
}

/// A key that is wrong, and what it must be.
pub type Fault = (&'static str, String);

/// What a fit needs of its evidence and of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs<'a> {
    /// How source and target states must be related.
    pub states: States,
    /// Why the matrix must be in the process of the fit, if passes alone do not suffice.
    pub whole_matrix: Option<&'static str>,
    /// The column that gives the set of every source.
    pub given: Option<&'a str>,
}

/// How source and target states are related.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum States {
    /// In no way.
    #[default]
    Apart,
    /// They are states of one kind.
    OneKind,
    /// They are states of one kind, and every target is a source.
    Closed,
}

/// Writes [`Parameters::rank`] and [`Parameters::at`] for parameters with a key `rank`.
macro_rules! ranked {
    () => {
        fn rank(&self) -> Option<usize> {
            Some(self.rank)
        }

        fn at(&self, rank: usize) -> Self {
            Self {
                rank,
                ..self.clone()
            }
        }
    };
}

/// Writes the functions of defaults that serde calls, and for `Method(first: type)` also `new`. The
/// keys after the list have the defaults of their types.
macro_rules! defaults {
    ($vis:vis $Method:ident($first:ident: $of:ty) {
        $($key:ident: $type:ty = $value:expr,)*
    } $($other:ident)*) => {
        impl $Method {
            /// The defaults.
            $vis fn new($first: $of) -> Self {
                $Method {
                    $first,
                    $($key: $Method::$key(),)*
                    $($other: Default::default(),)*
                }
            }
        }

        defaults! { $Method { $($key: $type = $value,)* } }
    };
    ($Method:ident { $($key:ident: $type:ty = $value:expr,)* }) => {
        impl $Method {
            $(fn $key() -> $type {
                $value
            })*
        }
    };
}

pub(crate) use {defaults, ranked};

/// Checks that numbers of restarts and iterations are at least 1.
pub(crate) fn at_least_one(numbers: &[(&'static str, usize)]) -> std::result::Result<(), Fault> {
    match numbers.iter().find(|(_, number)| *number == 0) {
        Some((key, _)) => Err((key, "must be at least 1, not 0".into())),
        None => Ok(()),
    }
}

/// Checks a tolerance.
pub(crate) fn tolerance(key: &'static str, tolerance: f64) -> std::result::Result<(), Fault> {
    if tolerance >= 0.0 && tolerance.is_finite() {
        return Ok(());
    }
    let message = format!("must be finite and not negative, not {tolerance}");
    Err((key, message))
}
