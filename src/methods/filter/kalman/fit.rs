//! Given matrices and least squares → a model.
//!
//! F and Q are fitted to pairs of rows that follow each other, H and R to rows, x0 and P0 to the
//! states of all rows. Covariances of residuals are divided by the number of rows minus the number
//! of fitted coefficients per output.

use crate::error::{Error, Result, counted};
use crate::evidence::observations::Observations;
use crate::math::dense::symmetric_eigen;
use crate::methods::FilterMethod;
use crate::methods::filter::expression::Expression;
use crate::methods::filter::fit::{Claim, Dynamics, Estimates, FitInput, TunedFit};
use crate::methods::filter::kalman::least_squares::{
    Regression, moments, regress, residuals, variances,
};
use crate::methods::filter::kalman::model::{Affine, KalmanModel, Noise, Spread, System};
use crate::methods::filter::kalman::small;
use crate::methods::filter::params::{self, Kalman, MatrixRows};

/// Numbers per observation for which R is a whole matrix.
const WIDEST_FULL: usize = 1000;

/// Coordinates for which P is a whole matrix.
const WIDEST_STATE: usize = 1000;

/// Given covariances may be asymmetric or indefinite by this share of their largest element.
const TOLERANCE: f64 = 1e-9;

/// A fitted R has at least this share of the variance of the observations.
const FLOOR: f64 = 1e-9;

/// Rows of which a certificate checks the covariances, and operations for the check.
const CHECKED_ROWS: usize = 1000;
const CHECKED_OPERATIONS: usize = 100_000_000;

/// Fits the model.
///
/// # Errors
/// If a given matrix has another shape or is no covariance, or if there are too few rows to fit a
/// missing one.
pub(crate) fn fit(method: &FilterMethod, input: &FitInput<'_>) -> Result<TunedFit<KalmanModel>> {
    if input.is_static {
        let message = format!(
            "`{}` filters sequences; give `trajectory` and `time` in place of `id`",
            method.name()
        );
        return Err(Error::spec(message));
    }
    let fitter = Fitter {
        rows: input.rows,
        claims: Vec::new(),
        warnings: Vec::new(),
    };
    match method {
        FilterMethod::KernelBayes(_) => unreachable!("another family fits it"),
        FilterMethod::Kalman(own) => fitter.linear(own),
        FilterMethod::Ekf(own) => {
            let functions = dynamics(method, input)?;
            let system = System::Extended(functions.clone());
            fitter.nonlinear(own.system(), functions, system)
        }
        FilterMethod::Ukf(own) => {
            let functions = dynamics(method, input)?;
            if own.kappa <= -(functions.f.len() as f64) {
                return Err(Error::spec(format!(
                    "`kappa` must be above −{}, the number of coordinates, not {}",
                    functions.f.len(),
                    own.kappa
                )));
            }
            let system = System::Unscented(functions.clone(), Spread::of(own));
            fitter.nonlinear(own.system(), functions, system)
        }
    }
}

fn dynamics<'a>(method: &FilterMethod, input: &FitInput<'a>) -> Result<&'a Dynamics> {
    let missing = || Error::bug(format!("`{}` has no functions", method.name()));
    input.dynamics.ok_or_else(missing)
}

/// The numbers of a system.
#[derive(Clone, Copy)]
struct Sizes {
    /// Coordinates of the filter.
    n: usize,
    /// Numbers per observation.
    d: usize,
    /// Numbers per state in the rows.
    columns: usize,
}

/// A fit in progress.
struct Fitter<'a> {
    rows: &'a Observations,
    claims: Vec<Claim>,
    warnings: Vec<String>,
}

impl Fitter<'_> {
    fn linear(mut self, params: &Kalman) -> Result<TunedFit<KalmanModel>> {
        let rows = self.rows;
        let is_diagonal = params.noise == params::Noise::Diagonal;
        let Sizes { n, d, .. } = self.sizes_of_linear(params)?;
        let used = n + usize::from(params.intercept);
        let steps = || transitions(rows);
        let pairs = || (0..rows.len()).map(|row| [rows.state(row), rows.observation(row)]);
        let (f, fitted, rounding) = match &params.f {
            Some(given) => (Affine::given("F", given, n, n)?, 0, 0.0),
            None => {
                self.enough("F", rows.n_transitions(), FOLLOWED, used + 1)?;
                let fitted = regress(steps, n, n, params.intercept);
                self.tell("F", &fitted);
                (fitted.affine, fitted.used, fitted.rounding)
            }
        };
        let q = match &params.q {
            Some(given) => covariance("Q", given, n)?,
            None => {
                self.enough("Q", rows.n_transitions(), FOLLOWED, fitted + 1)?;
                let all = residuals(steps, [n, n], false, fitted, |input, output, rest| {
                    f.residual(input, output, rest);
                });
                self.claim_fit("F", fitted, [all.correlation, rounding]);
                all.covariance
            }
        };
        let (h, fitted, rounding) = match &params.h {
            Some(given) => (Affine::given("H", given, d, n)?, 0, 0.0),
            None => {
                self.enough("H", rows.len(), "rows", used + 1)?;
                let fitted = regress(pairs, n, d, params.intercept);
                self.tell("H", &fitted);
                (fitted.affine, fitted.used, fitted.rounding)
            }
        };
        let r = match &params.r {
            Some(given) if is_diagonal => Noise::Diagonal(given_variances(given, d)?),
            Some(given) => Noise::Full(covariance("R", given, d)?),
            None => {
                self.enough("R", rows.len(), "rows", fitted + 1)?;
                let all = residuals(pairs, [n, d], is_diagonal, fitted, |input, output, rest| {
                    h.residual(input, output, rest);
                });
                self.claim_fit("H", fitted, [all.correlation, rounding]);
                self.noise(
                    all.covariance,
                    is_diagonal,
                    "; write `noise = \"diagonal\"`",
                )?
            }
        };
        let (x0, p0) = self.first(params.x0.as_deref(), params.p0.as_ref(), n)?;
        self.finish(KalmanModel {
            n,
            d,
            columns: n,
            transitions: rows.n_transitions(),
            system: System::Linear { f, h },
            q,
            r,
            x0,
            p0,
        })
    }

    fn nonlinear(
        mut self,
        params: params::System<'_>,
        functions: &Dynamics,
        system: System,
    ) -> Result<TunedFit<KalmanModel>> {
        self.check_dimensions(&params, functions)?;
        let rows = self.rows;
        let Sizes { n, d, columns } = self.sizes(&params, functions);
        // The rows have no values of own coordinates.
        let known = |key: &str| match params.state {
            Some(_) => Err(Error::spec(format!(
                "`{key}` is missing: coordinates of `state` are in no row, so nothing can be fitted \
                 to them"
            ))),
            None => Ok(()),
        };
        let steps = || transitions(rows);
        let pairs = || (0..rows.len()).map(|row| [rows.state(row), rows.observation(row)]);
        let q = match params.q {
            Some(given) => covariance("Q", given, n)?,
            None => {
                known("Q")?;
                self.enough("Q", rows.n_transitions(), FOLLOWED, 1)?;
                defined("f", &functions.f, steps())?;
                residuals(steps, [n, n], false, 0, |input, output, rest| {
                    residual(&functions.f, input, output, rest);
                })
                .covariance
            }
        };
        let r = match params.r {
            Some(given) => Noise::Full(covariance("R", given, d)?),
            None => {
                known("R")?;
                self.enough("R", rows.len(), "rows", 1)?;
                defined("h", &functions.h, pairs())?;
                let all = residuals(pairs, [n, d], false, 0, |input, output, rest| {
                    residual(&functions.h, input, output, rest);
                });
                self.noise(all.covariance, false, "")?
            }
        };
        if params.x0.is_none() {
            known("x0")?;
        }
        if params.p0.is_none() {
            known("P0")?;
        }
        let (x0, p0) = self.first(params.x0, params.p0, n)?;
        self.finish(KalmanModel {
            n,
            d,
            columns,
            transitions: rows.n_transitions(),
            system,
            q,
            r,
            x0,
            p0,
        })
    }

    /// The numbers of a linear system. Rows without a state do not say how many numbers it has, and
    /// rows without a list not how long it is: the matrices do.
    fn sizes_of_linear(&self, params: &Kalman) -> Result<Sizes> {
        let of_rows = |own: usize, rows: &Option<MatrixRows>| match own {
            0 => rows.as_ref().map_or(0, Vec::len),
            own => own,
        };
        let n = of_rows(self.rows.state_width, &params.f);
        let d = of_rows(self.rows.observation_width, &params.h);
        if n == 0 {
            return Err(Error::spec(
                "no row has a state, and there is no `F` that says how many numbers it has; give all \
                 matrices, or rows with states",
            ));
        }
        widest(n)?;
        if d > WIDEST_FULL && params.noise == params::Noise::Full {
            return Err(Error::spec(format!(
                "an observation has {d} numbers, but R is a whole matrix for at most {WIDEST_FULL}; \
                 write `noise = \"diagonal\"`"
            )));
        }
        Ok(Sizes { n, d, columns: n })
    }

    /// The numbers of a system of functions, as [`sizes_of_linear`](Fitter::sizes_of_linear).
    fn sizes(&self, params: &params::System<'_>, functions: &Dynamics) -> Sizes {
        let of_rows = |own: usize, functions: &[Expression]| match own {
            0 => functions.len(),
            own => own,
        };
        let columns = of_rows(self.rows.state_width, &functions.f);
        Sizes {
            n: params.state.map_or(columns, <[String]>::len),
            d: of_rows(self.rows.observation_width, &functions.h),
            columns,
        }
    }

    /// Checks that functions fit the numbers of a state, an observation and the columns.
    fn check_dimensions(&self, params: &params::System<'_>, functions: &Dynamics) -> Result<()> {
        let Sizes { n, d, columns } = self.sizes(params, functions);
        widest(n)?;
        for (key, functions, expected, each) in [
            ("f", &functions.f, n, "coordinate of the state"),
            ("h", &functions.h, d, "number of an observation"),
        ] {
            if functions.len() != expected {
                return Err(Error::spec(format!(
                    "`{key}` must have one expression per {each}: {expected}, not {}",
                    functions.len()
                )));
            }
        }
        let has_columns = self.rows.state_width > 0;
        if params.state.is_some() && has_columns && functions.estimate.len() != columns {
            return Err(Error::spec(format!(
                "`estimate` must have one expression per column of the state: {columns}, not {}",
                functions.estimate.len()
            )));
        }
        if d > WIDEST_FULL {
            return Err(Error::spec(format!(
                "an observation has {d} numbers, but a filter of a nonlinear system takes at most \
                 {WIDEST_FULL}"
            )));
        }
        Ok(())
    }

    /// Checks that there are enough training rows for a matrix.
    fn enough(&self, key: &str, there_are: usize, what: &str, needed: usize) -> Result<()> {
        if there_are >= needed {
            return Ok(());
        }
        Err(Error::input(format!(
            "there are too few training rows to fit `{key}`: {there_are} {what}, at least {needed} are \
             needed; give `{key}`, or more rows with state and observation"
        )))
    }

    fn tell(&mut self, key: &str, fitted: &Regression) {
        if fitted.is_undetermined {
            self.warnings.push(format!(
                "the columns of the state depend on each other or are constant, so `{key}` is the \
                 matrix of the least norm among those that fit best"
            ));
        }
    }

    /// Claims that residuals are orthogonal to the columns that they were fitted to.
    fn claim_fit(&mut self, key: &str, fitted: usize, [correlation, rounding]: [f64; 2]) {
        if fitted > 0 {
            let name = format!("least_squares_{}", key.to_lowercase());
            self.claims.push(Claim::new(name, correlation, rounding));
        }
    }

    /// The covariance of residuals of h, with a floor so that it is positive definite.
    fn noise(&mut self, covariance: Vec<f64>, is_diagonal: bool, remedy: &str) -> Result<Noise> {
        let d = self.rows.observation_width;
        let variances = variances(&self.rows.observations, d);
        let mean = variances.iter().sum::<f64>() / d as f64;
        if mean <= 0.0 {
            return Err(Error::input(
                "all observations are equal, so `R` cannot be fitted; check the columns of \
                 `observation`, or give `R`",
            ));
        }
        let floors = variances.iter().map(|own| FLOOR * own.max(mean));
        let mut covariance = covariance;
        if is_diagonal {
            for (variance, floor) in covariance.iter_mut().zip(floors) {
                *variance = variance.max(floor);
            }
            return Ok(Noise::Diagonal(covariance));
        }
        let diagonal = || (0..d).map(|i| i * (d + 1));
        let mut rest = covariance.clone();
        for (at, floor) in diagonal().zip(floors.clone()) {
            rest[at] -= floor;
        }
        if !small::cholesky(&mut rest, d) {
            for (at, floor) in diagonal().zip(floors) {
                covariance[at] += floor;
            }
            let rows = self.rows.len();
            self.warnings.push(format!(
                "`R` of {} is singular for {}: {FLOOR:e} of the variance of each number of an \
                 observation is added{remedy}",
                counted(rows, "training row"),
                counted(d, "number"),
            ));
        }
        Ok(Noise::Full(covariance))
    }

    /// x0 and P0.
    fn first(
        &self,
        x0: Option<&[f64]>,
        p0: Option<&MatrixRows>,
        n: usize,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        if let Some(given) = x0
            && (given.len() != n || !small::are_finite(given))
        {
            return Err(Error::spec(format!(
                "`x0` must have {}, one per coordinate of the state, not {}",
                counted(n, "finite number"),
                given.len()
            )));
        }
        let given_p0 = p0.map(|given| covariance("P0", given, n)).transpose()?;
        let rows = self.rows.len();
        match (x0, given_p0) {
            (Some(x0), Some(p0)) => Ok((x0.to_vec(), p0)),
            (x0, given) => {
                let (key, needed) = if given.is_some() {
                    ("x0", 1)
                } else {
                    ("P0", 2)
                };
                self.enough(key, rows, "rows", needed)?;
                let (mean, spread) = moments(&self.rows.states, n);
                let x0 = x0.map_or(mean, <[f64]>::to_vec);
                Ok((x0, given.unwrap_or(spread)))
            }
        }
    }

    fn finish(mut self, model: KalmanModel) -> Result<TunedFit<KalmanModel>> {
        self.claim_covariances(&model);
        Ok(TunedFit {
            model,
            tuning: Vec::new(),
            claims: self.claims,
            warnings: self.warnings,
        })
    }

    /// Claims that the covariances of the first training rows are symmetric and positive
    /// semidefinite, up to a share of their largest element: that is what sums of 10¹⁶ round by.
    fn claim_covariances(&mut self, model: &KalmanModel) {
        let n = model.n;
        let most = (CHECKED_OPERATIONS / (n * n * n)).clamp(1, CHECKED_ROWS);
        let (mut asymmetry, mut negative) = (0f64, 0f64);
        let mut scratch = model.scratch();
        let mut out = Estimates::new(model.columns);
        let mut checked = 0;
        for sequence in self.rows.offsets.windows(2) {
            let mut state = model.start();
            for row in sequence[0]..sequence[1].min(sequence[0] + most - checked) {
                model.push(
                    &mut state,
                    &mut scratch,
                    self.rows.observation(row),
                    &mut out,
                );
                let p = state.covariance();
                let largest = p.iter().fold(0f64, |largest, p| largest.max(p.abs()));
                checked += 1;
                if largest == 0.0 {
                    continue;
                }
                for at in 0..n * n {
                    let difference = p[at] - p[at % n * n + at / n];
                    asymmetry = asymmetry.max(difference.abs() / largest);
                }
                let (values, _) = symmetric_eigen(&p, n);
                negative = negative.max(-values.first().copied().unwrap_or(0.0) / largest);
            }
        }
        self.claims.extend([
            Claim::new("covariance_asymmetry", asymmetry, 1e-10),
            Claim::new("covariance_negative_part", negative, 1e-10),
        ]);
    }
}

/// What rows with a successor are called in messages.
const FOLLOWED: &str = "rows that another row follows";

/// A row and the one that follows it, in all sequences.
fn transitions(rows: &Observations) -> impl Iterator<Item = [&[f64]; 2]> {
    rows.offsets.windows(2).flat_map(|sequence| {
        (sequence[0] + 1..sequence[1]).map(|row| [rows.state(row - 1), rows.state(row)])
    })
}

/// output − function(input).
fn residual(functions: &[Expression], input: &[f64], output: &[f64], rest: &mut [f64]) {
    for ((rest, function), output) in rest.iter_mut().zip(functions).zip(output) {
        *rest = output - function.eval(input);
    }
}

/// Checks that functions have a value at all training states.
fn defined<'a>(
    key: &str,
    functions: &[Expression],
    pairs: impl Iterator<Item = [&'a [f64]; 2]>,
) -> Result<()> {
    for [input, _] in pairs {
        let wrong = functions
            .iter()
            .position(|function| !function.eval(input).is_finite());
        if let Some(index) = wrong {
            return Err(Error::input(format!(
                "expression {} of `{key}` is not a finite number at the training state {input:?}",
                index + 1
            )));
        }
    }
    Ok(())
}

impl Affine {
    fn given(key: &str, rows: &MatrixRows, height: usize, width: usize) -> Result<Affine> {
        Ok(Affine {
            matrix: matrix(key, rows, height, width)?,
            intercept: vec![0.0; height],
        })
    }

    /// output − A input − c.
    fn residual(&self, input: &[f64], output: &[f64], rest: &mut [f64]) {
        small::affine(&self.matrix, input, &self.intercept, rest);
        for (rest, output) in rest.iter_mut().zip(output) {
            *rest = output - *rest;
        }
    }
}

fn widest(n: usize) -> Result<()> {
    if n <= WIDEST_STATE {
        return Ok(());
    }
    Err(Error::spec(format!(
        "a state has {n} numbers, but a Kalman filter takes at most {WIDEST_STATE}, because its \
         covariance is a whole matrix"
    )))
}

/// A given matrix.
fn matrix(key: &str, rows: &MatrixRows, height: usize, width: usize) -> Result<Vec<f64>> {
    let expected = format!(
        "`{key}` must have {} of {}",
        counted(height, "row"),
        counted(width, "number")
    );
    if rows.len() != height {
        let message = format!("{expected}, but it has {}", counted(rows.len(), "row"));
        return Err(Error::spec(message));
    }
    for (at, row) in rows.iter().enumerate() {
        if row.len() != width {
            return Err(Error::spec(format!(
                "{expected}, but row {} has {}",
                at + 1,
                counted(row.len(), "number")
            )));
        }
        if let Some(wrong) = row.iter().find(|value| !value.is_finite()) {
            return Err(Error::spec(format!(
                "{expected}, but row {} has {wrong}, which is not finite",
                at + 1
            )));
        }
    }
    Ok(rows.concat())
}

/// A given covariance.
fn covariance(key: &str, rows: &MatrixRows, n: usize) -> Result<Vec<f64>> {
    let mut values = matrix(key, rows, n, n)?;
    let largest = values
        .iter()
        .fold(0f64, |largest, value| largest.max(value.abs()));
    for i in 0..n {
        for j in 0..i {
            let (below, above) = (values[i * n + j], values[j * n + i]);
            if (below - above).abs() > TOLERANCE * largest {
                return Err(Error::spec(format!(
                    "`{key}` is a covariance and must be symmetric, but row {} has {above} in \
                     column {} and row {} has {below} in column {}",
                    j + 1,
                    i + 1,
                    i + 1,
                    j + 1
                )));
            }
            let mean = 0.5 * (below + above);
            values[i * n + j] = mean;
            values[j * n + i] = mean;
        }
    }
    let (eigenvalues, _) = symmetric_eigen(&values, n);
    let least = eigenvalues.first().copied().unwrap_or(0.0);
    if least < -TOLERANCE * largest {
        return Err(Error::spec(format!(
            "`{key}` is a covariance and must have no negative eigenvalue, but one is {least}"
        )));
    }
    Ok(values)
}

/// The variances of a given diagonal R: the diagonal of a matrix, or one number for all.
fn given_variances(rows: &MatrixRows, d: usize) -> Result<Vec<f64>> {
    let variances = match rows.as_slice() {
        [row] if row.len() == 1 => vec![row[0]; d],
        _ => {
            let values = matrix("R", rows, d, d)?;
            values.iter().step_by(d + 1).copied().collect()
        }
    };
    match variances
        .iter()
        .find(|value| !(**value > 0.0 && value.is_finite()))
    {
        None => Ok(variances),
        Some(wrong) => Err(Error::spec(format!(
            "with `noise = \"diagonal\"` the diagonal of `R` must be above 0, but it has {wrong}"
        ))),
    }
}
