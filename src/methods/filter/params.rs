//! The parameters of filters.

use crate::methods::estimator::{Fault, Parameters, at_least_one, defaults};
pub use crate::methods::query::RowsOf;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The form of kernel Bayes' rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Squared regularisation of all prior weights.
    Kbr,
    /// Negative prior weights are replaced by 0.
    #[default]
    Pkbr,
    /// As `pkbr`, with supervision: observations whose posterior is known.
    Kregbayes,
}

impl Rule {
    /// The rule as pipeline files have it.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Kbr => "kbr",
            Rule::Pkbr => "pkbr",
            Rule::Kregbayes => "kregbayes",
        }
    }
}

/// The kernel of states and of observations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Kernel {
    /// exp(−d²/(2 h²)) with the bandwidth h.
    #[default]
    Rbf,
    /// 1 for equal rows, else 0. For discrete numbers.
    Delta,
}

/// How the bandwidths are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "must be \"held-out\", \"median\" or a table such as { state = 0.5, observation = 1.0 }"
)]
pub enum Bandwidth {
    /// A rule.
    Rule(BandwidthRule),
    /// The bandwidths.
    Values(Bandwidths),
}

/// A rule for the bandwidths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BandwidthRule {
    /// The best of 1/4, 1/2 and 1 times the median distances, by training rows that are held out.
    HeldOut,
    /// The median of the distances between two rows.
    Median,
}

/// Bandwidths in the units of the columns.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bandwidths {
    /// The bandwidth of the states.
    pub state: f64,
    /// The bandwidth of the observations.
    pub observation: f64,
}

/// How a constant of regularisation is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "must be \"held-out\" or a number above 0")]
pub enum Regularisation {
    /// A rule.
    Rule(RegularisationRule),
    /// The constant.
    Value(f64),
}

/// A rule for a constant of regularisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RegularisationRule {
    /// The best of 0.01, 0.001 and 0.0001 by training rows that are held out.
    HeldOut,
}

/// Candidates of [`BandwidthRule::HeldOut`], as factors of the median distances.
pub(crate) const BANDWIDTH_FACTORS: [f64; 3] = [0.25, 0.5, 1.0];

/// Candidates of [`RegularisationRule::HeldOut`].
pub(crate) const LAMBDAS: [f64; 3] = [1e-2, 1e-3, 1e-4];

/// The columns of [`KernelBayes::objective`].
pub(crate) const OBJECTIVES: [&str; 3] = ["objective", "objective_excess", "supervision_distance"];

/// Rows of supervision, by a query of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SupervisionRows {
    /// The SQL of the rows, over the tables of the pipeline.
    pub sql: String,
    /// Whether the rows are states alone. In every row that is filtered, the state that is nearest
    /// to the predicted one then stands beside the observation of that row.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nearest: bool,
    /// The predicted state, as SQL expressions of the columns of the state: one per column, of the
    /// decoded estimate of the row before. By default the filter predicts. Only with `nearest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f: Option<Vec<String>>,
}

/// The estimate of the state in the column `<fit>_decoded`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decode {
    /// The state whose feature vector is nearest to that of the posterior.
    #[default]
    Preimage,
    /// The weighted mean of the training states.
    Mean,
}

/// A filter by kernel Bayes' rule, whose model are weighted training rows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KernelBayes {
    /// The form of the rule: `"pkbr"`, `"kbr"`, or `"kregbayes"` with `supervision`.
    #[serde(default)]
    pub rule: Rule,
    /// The kernel of states and of observations: `"rbf"`, or `"delta"` for discrete numbers.
    #[serde(default)]
    pub kernel: Kernel,
    /// The bandwidths: `"held-out"`, `"median"`, or numbers in the units of the columns.
    #[serde(default = "KernelBayes::bandwidth")]
    pub bandwidth: Bandwidth,
    /// The regularisation λ of the prior: a number above 0 or `"held-out"`. It is multiplied by
    /// the number of training rows.
    #[serde(default = "KernelBayes::lambda")]
    pub lambda: Regularisation,
    /// The regularisation δ of the posterior, above 0. By default 2 λ, and (2 λ)² for the rule
    /// `"kbr"`, whose δ is that of squared eigenvalues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delta: Option<f64>,
    /// The weight μ of a row of supervision, above 0. Only with the rule `"kregbayes"`.
    #[serde(default = "KernelBayes::mu")]
    pub mu: f64,
    /// Rows whose states are known, with the columns of state and observation. With the columns of
    /// trajectory and time, a row is used at that step only. With `nearest = true`, the rows have
    /// the columns of the state alone. Only with the rule `"kregbayes"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supervision: Option<SupervisionRows>,
    /// The prior of all rows: states, and perhaps a column `weight` of numbers of 0 or more, whose
    /// sum does not matter. Only for rows without time; by
    /// default the training rows with equal weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior: Option<RowsOf>,
    /// The maximum number of training rows whose kernel matrices are held whole. For more rows, the
    /// matrices are approximated by incomplete Cholesky decompositions.
    #[serde(default = "KernelBayes::exact")]
    #[schemars(range(min = 1))]
    pub exact: usize,
    /// The maximum rank of the approximated kernel matrix of states.
    #[serde(default = "KernelBayes::rank_state")]
    #[schemars(range(min = 1))]
    pub rank_state: usize,
    /// The maximum rank of the approximated kernel matrix of observations.
    #[serde(default = "KernelBayes::rank_observation")]
    #[schemars(range(min = 1))]
    pub rank_observation: usize,
    /// The decompositions stop if the trace of the error is at most this share of the trace.
    #[serde(default = "KernelBayes::tolerance")]
    #[schemars(range(min = 0, max = 1))]
    pub tolerance: f64,
    /// The maximum number of training rows whose weights are computed beyond `exact` rows. The
    /// rule `"kbr"` needs no weights of single rows.
    #[serde(default = "KernelBayes::landmarks")]
    #[schemars(range(min = 1))]
    pub landmarks: usize,
    /// Whether the weights of the posterior are divided by their sum before the next prediction.
    #[serde(default = "KernelBayes::normalise")]
    pub normalise: bool,
    /// The estimate in the column `<fit>_decoded`: `"preimage"` or `"mean"`.
    #[serde(default)]
    pub decode: Decode,
    /// Whether the objective that the weights of a row minimise is computed, as the column
    /// `<fit>_objective`. A row then costs a factorisation of the kernel matrix of the training
    /// rows. The rule `"kbr"` has it up to `exact` training rows.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub objective: bool,
}

impl KernelBayes {
    /// The δ for a λ, unless the parameters have one.
    pub(crate) fn delta_of(&self, lambda: f64) -> f64 {
        self.delta.unwrap_or(match self.rule {
            Rule::Kbr => 4.0 * lambda * lambda,
            Rule::Pkbr | Rule::Kregbayes => 2.0 * lambda,
        })
    }

    /// Whether the rows of supervision are states, of which the nearest to a prediction is used.
    pub(crate) fn takes_nearest(&self) -> bool {
        self.supervision.as_ref().is_some_and(|own| own.nearest)
    }

    /// The columns of objectives.
    pub(crate) fn objectives(&self) -> &'static [&'static str] {
        match self.rule {
            _ if !self.objective => &[],
            Rule::Kbr => &OBJECTIVES[..1],
            Rule::Pkbr => &OBJECTIVES[..2],
            Rule::Kregbayes => &OBJECTIVES,
        }
    }
}

defaults! { pub KernelBayes(rule: Rule) {
    bandwidth: Bandwidth = Bandwidth::Rule(BandwidthRule::HeldOut),
    lambda: Regularisation = Regularisation::Rule(RegularisationRule::HeldOut),
    mu: f64 = 1e-5,
    exact: usize = 2000,
    rank_state: usize = 50,
    rank_observation: usize = 200,
    tolerance: f64 = 1e-6,
    landmarks: usize = 2000,
    normalise: bool = true,
} kernel delta supervision prior decode objective }

/// Checks that a number is above 0.
fn above_zero(key: &'static str, value: f64) -> Result<(), Fault> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err((key, format!("must be finite and above 0, not {value}")))
}

impl Parameters for KernelBayes {
    const NAME: &'static str = "kernel_bayes";

    fn describe(&self, _rank: &str) -> String {
        let rule = match self.rule {
            Rule::Kbr => "kernel Bayes' rule",
            Rule::Pkbr => "thresholded kernel Bayes' rule",
            Rule::Kregbayes if self.takes_nearest() => {
                "kernel Bayes' rule with the nearest state of supervision"
            }
            Rule::Kregbayes => "kernel Bayes' rule with supervision",
        };
        let bandwidth = match (self.kernel, self.bandwidth) {
            (Kernel::Delta, _) => "equal rows".into(),
            (_, Bandwidth::Rule(BandwidthRule::HeldOut)) => "bandwidths by held-out rows".into(),
            (_, Bandwidth::Rule(BandwidthRule::Median)) => "bandwidths by median distances".into(),
            (_, Bandwidth::Values(own)) => {
                format!("bandwidths {} and {}", own.state, own.observation)
            }
        };
        let lambda = match self.lambda {
            Regularisation::Rule(RegularisationRule::HeldOut) => "λ by held-out rows".into(),
            Regularisation::Value(lambda) => format!("λ {lambda}"),
        };
        format!(
            "{rule}, {bandwidth}, {lambda}, exact up to {} training rows",
            self.exact
        )
    }

    fn check(&self) -> Result<(), Fault> {
        at_least_one(&[
            ("exact", self.exact),
            ("rank_state", self.rank_state),
            ("rank_observation", self.rank_observation),
            ("landmarks", self.landmarks),
        ])?;
        if let Bandwidth::Values(own) = self.bandwidth {
            above_zero("bandwidth", own.state)?;
            above_zero("bandwidth", own.observation)?;
        }
        if let Regularisation::Value(lambda) = self.lambda {
            above_zero("lambda", lambda)?;
        }
        if let Some(delta) = self.delta {
            above_zero("delta", delta)?;
        }
        above_zero("mu", self.mu)?;
        if !(0.0..1.0).contains(&self.tolerance) {
            let message = format!("must be at least 0 and below 1, not {}", self.tolerance);
            return Err(("tolerance", message));
        }
        if let Some(SupervisionRows {
            nearest,
            f: Some(f),
            ..
        }) = &self.supervision
        {
            let fault = match (nearest, &f[..]) {
                (false, _) => {
                    "has `f`, which predicts the state whose nearest one is used; write `nearest = true` too"
                }
                (true, []) => {
                    "has no expression in `f`; write one per column of the state, or leave it out"
                }
                (true, _) => "",
            };
            if !fault.is_empty() {
                return Err(("supervision", fault.into()));
            }
        }
        let has_supervision = self.supervision.is_some();
        match (self.rule, has_supervision) {
            (Rule::Kregbayes, false) => Err((
                "supervision",
                "is missing: the rule \"kregbayes\" needs rows whose states are known".into(),
            )),
            (Rule::Kbr | Rule::Pkbr, true) => Err((
                "supervision",
                "goes with `rule = \"kregbayes\"` alone".into(),
            )),
            _ => Ok(()),
        }
    }
}

/// The covariance of the noise of observations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Noise {
    /// Any covariance.
    #[default]
    Full,
    /// No covariance between numbers of an observation. For long observations, such as images.
    Diagonal,
}

/// The Kalman filter of a linear system with Gaussian noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Kalman {
    /// The matrix from a state to the next one, by rows. By default it is fitted to the training
    /// rows by least squares.
    #[serde(default, rename = "F", skip_serializing_if = "Option::is_none")]
    pub f: Option<MatrixRows>,
    /// The matrix from a state to its observation, by rows. By default it is fitted.
    #[serde(default, rename = "H", skip_serializing_if = "Option::is_none")]
    pub h: Option<MatrixRows>,
    /// The covariance of the noise of a step, by rows. By default it is that of the residuals.
    #[serde(default, rename = "Q", skip_serializing_if = "Option::is_none")]
    pub q: Option<MatrixRows>,
    /// The covariance of the noise of an observation, by rows. By default it is that of the
    /// residuals.
    #[serde(default, rename = "R", skip_serializing_if = "Option::is_none")]
    pub r: Option<MatrixRows>,
    /// The mean of the state of the first row of a sequence, before its observation. By default
    /// that of the training states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x0: Option<Vec<f64>>,
    /// The covariance of the state of the first row of a sequence, by rows. By default that of the
    /// training states.
    #[serde(default, rename = "P0", skip_serializing_if = "Option::is_none")]
    pub p0: Option<MatrixRows>,
    /// The covariance of the noise of observations: `"full"`, or `"diagonal"` for long
    /// observations.
    #[serde(default)]
    pub noise: Noise,
    /// Whether fitted matrices F and H have intercepts.
    #[serde(default = "yes")]
    pub intercept: bool,
    /// The names of the numbers of the state, for rows without `sequences.state`. By default `x0`,
    /// `x1` and so on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Vec<String>>,
}

fn yes() -> bool {
    true
}

impl Default for Kalman {
    fn default() -> Self {
        Kalman {
            f: None,
            h: None,
            q: None,
            r: None,
            x0: None,
            p0: None,
            noise: Noise::default(),
            intercept: true,
            state: None,
        }
    }
}

/// A matrix of a pipeline file, by rows.
pub type MatrixRows = Vec<Vec<f64>>;

/// The system of an extended or an unscented Kalman filter.
#[derive(Debug, Clone, Copy)]
pub struct System<'a> {
    /// The next state, as SQL expressions.
    pub f: &'a [String],
    /// The observation, as SQL expressions.
    pub h: &'a [String],
    /// The names of the coordinates, if they are not the columns of the state.
    pub state: Option<&'a [String]>,
    /// The columns of the state, as SQL expressions of the coordinates.
    pub estimate: Option<&'a [String]>,
    /// The covariance of the noise of a step.
    pub q: Option<&'a MatrixRows>,
    /// The covariance of the noise of an observation.
    pub r: Option<&'a MatrixRows>,
    /// The mean of the first state.
    pub x0: Option<&'a [f64]>,
    /// The covariance of the first state.
    pub p0: Option<&'a MatrixRows>,
}

impl System<'_> {
    fn check(&self) -> Result<(), Fault> {
        for (key, list) in [("f", self.f), ("h", self.h)] {
            if list.is_empty() {
                return Err((key, "must have at least one expression".into()));
            }
        }
        match (self.state, self.estimate) {
            (Some([]), _) => Err(("state", "must have at least one name".into())),
            (None, Some(_)) => Err((
                "estimate",
                "goes with `state`, the names of the coordinates".into(),
            )),
            (Some(names), _) => {
                // Training rows have no values of these coordinates.
                let needed = [
                    ("Q", self.q.is_none()),
                    ("R", self.r.is_none()),
                    ("x0", self.x0.is_none()),
                    ("P0", self.p0.is_none()),
                ];
                if let Some((key, _)) = needed.into_iter().find(|(_, missing)| *missing) {
                    let message = "is missing: coordinates of `state` are in no row, so nothing can be fitted to them";
                    return Err((key, message.into()));
                }
                if self.f.len() != names.len() {
                    let message = format!(
                        "must have one expression per coordinate: {}, not {}",
                        names.len(),
                        self.f.len()
                    );
                    return Err(("f", message));
                }
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }
}

/// Writes the parameters of a filter of a nonlinear system. serde cannot reject unknown keys of a
/// struct inside another, so the keys of the system stand in both.
macro_rules! nonlinear {
    ($(#[$about:meta])* $Method:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $Method {
            /// The next state: one SQL expression of the coordinates of the state per coordinate.
            pub f: Vec<String>,
            /// The observation: one SQL expression of the coordinates of the state per number.
            pub h: Vec<String>,
            /// The names of the coordinates in the expressions. By default the columns of the
            /// state; without `sequences.state`, `x0`, `x1` and so on.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub state: Option<Vec<String>>,
            /// The columns of the state as SQL expressions of the coordinates. Needed with `state`,
            /// if there is `sequences.state`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub estimate: Option<Vec<String>>,
            /// The covariance of the noise of a step, by rows. By default that of the residuals of
            /// `f`.
            #[serde(default, rename = "Q", skip_serializing_if = "Option::is_none")]
            pub q: Option<MatrixRows>,
            /// The covariance of the noise of an observation, by rows. By default that of the
            /// residuals of `h`.
            #[serde(default, rename = "R", skip_serializing_if = "Option::is_none")]
            pub r: Option<MatrixRows>,
            /// The mean of the state of the first row of a sequence, before its observation. By
            /// default that of the training states.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub x0: Option<Vec<f64>>,
            /// The covariance of the state of the first row of a sequence, by rows. By default
            /// that of the training states.
            #[serde(default, rename = "P0", skip_serializing_if = "Option::is_none")]
            pub p0: Option<MatrixRows>,
            $($own)*
        }

        impl $Method {
            /// The system.
            pub fn system(&self) -> System<'_> {
                System {
                    f: &self.f,
                    h: &self.h,
                    state: self.state.as_deref(),
                    estimate: self.estimate.as_deref(),
                    q: self.q.as_ref(),
                    r: self.r.as_ref(),
                    x0: self.x0.as_deref(),
                    p0: self.p0.as_ref(),
                }
            }
        }
    };
}

nonlinear! {
    /// The extended Kalman filter, which linearises the system at the estimate.
    Ekf {}
}

nonlinear! {
    /// The unscented Kalman filter, which follows a few points around the estimate.
    Ukf {
        /// The spread of the points around the estimate, above 0.
        #[serde(default = "Ukf::alpha")]
        pub alpha: f64,
        /// What is known of the distribution: 2 for a Gaussian one.
        #[serde(default = "Ukf::beta")]
        pub beta: f64,
        /// The second scale of the points, above −d for d coordinates: usually 0 or 3 − d.
        #[serde(default)]
        pub kappa: f64,
    }
}

defaults! { Ukf {
    alpha: f64 = 1.0,
    beta: f64 = 2.0,
} }

impl Parameters for Kalman {
    const NAME: &'static str = "kalman";

    fn describe(&self, _rank: &str) -> String {
        let given = [
            ("F", self.f.is_some()),
            ("H", self.h.is_some()),
            ("Q", self.q.is_some()),
            ("R", self.r.is_some()),
            ("x0", self.x0.is_some()),
            ("P0", self.p0.is_some()),
        ];
        format!("Kalman filter, {}", fitted(&given))
    }

    fn check(&self) -> Result<(), Fault> {
        if self.state.as_ref().is_some_and(Vec::is_empty) {
            return Err(("state", "must have at least one name".into()));
        }
        if self.noise == Noise::Diagonal
            && let Some(r) = &self.r
        {
            let is_off = |(i, row): (usize, &Vec<f64>)| {
                row.iter().enumerate().any(|(j, x)| i != j && *x != 0.0)
            };
            if r.iter().enumerate().any(is_off) {
                let message = "must be diagonal with `noise = \"diagonal\"`";
                return Err(("R", message.into()));
            }
        }
        Ok(())
    }
}

/// Which matrices are fitted, in words.
fn fitted(given: &[(&str, bool)]) -> String {
    let missing = given.iter().filter(|(_, is_given)| !is_given);
    let missing: Vec<&str> = missing.map(|(name, _)| *name).collect();
    match missing.as_slice() {
        [] => "all matrices given".into(),
        names => format!("{} fitted by least squares", names.join(" ")),
    }
}

/// Which covariances of a system are fitted, in words.
fn fitted_of(system: System<'_>) -> String {
    fitted(&[
        ("Q", system.q.is_some()),
        ("R", system.r.is_some()),
        ("x0", system.x0.is_some()),
        ("P0", system.p0.is_some()),
    ])
}

impl Parameters for Ekf {
    const NAME: &'static str = "ekf";

    fn describe(&self, _rank: &str) -> String {
        format!("extended Kalman filter, {}", fitted_of(self.system()))
    }

    fn check(&self) -> Result<(), Fault> {
        self.system().check()
    }
}

impl Parameters for Ukf {
    const NAME: &'static str = "ukf";

    fn describe(&self, _rank: &str) -> String {
        format!("unscented Kalman filter, {}", fitted_of(self.system()))
    }

    fn check(&self) -> Result<(), Fault> {
        above_zero("alpha", self.alpha)?;
        for (key, value) in [("beta", self.beta), ("kappa", self.kappa)] {
            if !value.is_finite() {
                return Err((key, format!("must be finite, not {value}")));
            }
        }
        self.system().check()
    }
}
