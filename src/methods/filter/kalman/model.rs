//! The matrices and functions of a system, and their table.

use crate::error::{Error, Result};
use crate::methods::FilterMethod;
use crate::methods::filter::fit::{Dynamics, Factor, Numbers};
use crate::methods::filter::params::Ukf;
use serde::{Deserialize, Serialize};

/// A state-space model with Gaussian noise.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KalmanModel {
    /// Coordinates of the filter, n.
    pub(super) n: usize,
    /// Numbers per observation, d.
    pub(super) d: usize,
    /// Numbers per state in the rows.
    pub(super) columns: usize,
    /// Rows of the fit that the next row of their sequence follows.
    pub(super) transitions: usize,
    pub(super) system: System,
    /// Q: n × n.
    pub(super) q: Vec<f64>,
    pub(super) r: Noise,
    /// n values.
    pub(super) x0: Vec<f64>,
    /// n × n.
    pub(super) p0: Vec<f64>,
}

/// The functions f and h.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum System {
    Linear { f: Affine, h: Affine },
    Extended(Dynamics),
    Unscented(Dynamics, Spread),
}

/// A matrix and an intercept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Affine {
    /// Rows × n.
    pub(super) matrix: Vec<f64>,
    /// One value per row.
    pub(super) intercept: Vec<f64>,
}

/// The covariance of the noise of an observation, R.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) enum Noise {
    /// d × d.
    Full(Vec<f64>),
    /// d variances, above 0.
    Diagonal(Vec<f64>),
}

/// Where sigma points are: the parameters of Merwe's scaled sigma points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(super) struct Spread {
    pub(super) alpha: f64,
    pub(super) beta: f64,
    pub(super) kappa: f64,
}

impl Spread {
    pub(super) fn of(params: &Ukf) -> Spread {
        Spread {
            alpha: params.alpha,
            beta: params.beta,
            kappa: params.kappa,
        }
    }
}

/// The name of the factor with n, d, the numbers per state and the training rows.
const SIZES: &str = "sizes";

impl KalmanModel {
    /// What the table `fits` says.
    pub(crate) fn numbers(&self) -> Numbers {
        Numbers {
            transitions: self.transitions,
            ..Numbers::default()
        }
    }

    /// Numbers per state, and per observation.
    pub(crate) fn widths(&self) -> (usize, usize) {
        (self.columns, self.d)
    }

    /// The model whose observation has the numbers `present` of this one, ascending.
    pub(super) fn of_part(&self, present: &[usize]) -> KalmanModel {
        let (n, d) = (self.n, self.d);
        let of_dynamics = |all: &Dynamics| Dynamics {
            f: all.f.clone(),
            h: present.iter().map(|&at| all.h[at].clone()).collect(),
            estimate: all.estimate.clone(),
        };
        KalmanModel {
            n,
            d: present.len(),
            columns: self.columns,
            transitions: self.transitions,
            system: match &self.system {
                System::Linear { f, h } => System::Linear {
                    f: f.clone(),
                    h: Affine {
                        matrix: chosen(&h.matrix, n, present),
                        intercept: chosen(&h.intercept, 1, present),
                    },
                },
                System::Extended(all) => System::Extended(of_dynamics(all)),
                System::Unscented(all, spread) => System::Unscented(of_dynamics(all), *spread),
            },
            q: self.q.clone(),
            r: match &self.r {
                Noise::Diagonal(r) => Noise::Diagonal(chosen(r, 1, present)),
                Noise::Full(r) => {
                    let rows = chosen(r, d, present);
                    let rows = rows.chunks_exact(d);
                    Noise::Full(rows.flat_map(|row| chosen(row, 1, present)).collect())
                }
            },
            x0: self.x0.clone(),
            p0: self.p0.clone(),
        }
    }

    /// The matrices, with the names of filterpy. The functions of a nonlinear system are not in
    /// them.
    pub(crate) fn factors(&self) -> Vec<Factor> {
        let factor = Factor::new;
        let sizes = [self.n, self.d, self.columns, self.transitions].map(|size| size as f64);
        let mut all = vec![factor(SIZES, sizes.len(), &sizes)];
        if let System::Linear { f, h } = &self.system {
            all.push(factor("F", self.n, &f.matrix));
            all.push(factor("F_intercept", 1, &f.intercept));
            all.push(factor("H", self.n, &h.matrix));
            all.push(factor("H_intercept", 1, &h.intercept));
        }
        all.push(factor("Q", self.n, &self.q));
        all.push(match &self.r {
            Noise::Full(r) => factor("R", self.d, r),
            Noise::Diagonal(r) => factor("R_diagonal", 1, r),
        });
        all.push(factor("x0", 1, &self.x0));
        all.push(factor("P0", self.n, &self.p0));
        all
    }
}

/// Some rows of a matrix with `width` numbers per row.
fn chosen(matrix: &[f64], width: usize, rows: &[usize]) -> Vec<f64> {
    let rows = rows.iter().map(|row| &matrix[row * width..][..width]);
    rows.flatten().copied().collect()
}

/// The model with these factors.
///
/// # Errors
/// If a matrix or a function is missing or has another shape.
pub(crate) fn of_factors(
    method: &FilterMethod,
    factors: Vec<Factor>,
    dynamics: Option<&Dynamics>,
) -> Result<KalmanModel> {
    let mut factors = factors;
    let mut take = |name: &str| {
        let at = factors.iter().position(|factor| factor.name == name);
        at.map(|at| factors.swap_remove(at).values)
    };
    let broken = |name: &str| {
        let message = format!("the written model has no whole factor `{name}`; fit the model anew");
        Error::input(message)
    };
    let sizes = take(SIZES).ok_or_else(|| broken(SIZES))?;
    let &[n, d, columns, transitions] = sizes.as_slice() else {
        return Err(broken(SIZES));
    };
    let is_size = |size: f64| (0.0..1e6).contains(&size);
    if !is_size(n) || !is_size(d) || !is_size(columns) {
        return Err(broken(SIZES));
    }
    let [n, d, columns, transitions] = [n, d, columns, transitions].map(|size| size as usize);
    let diagonal = take("R_diagonal").filter(|values| values.len() == d);
    let mut of_size = |name: &str, size: usize| {
        let values = take(name).filter(|values| values.len() == size);
        values.ok_or_else(|| broken(name))
    };
    let functions = |method: &str| {
        let functions = dynamics.filter(|functions| {
            functions.f.len() == n
                && functions.h.len() == d
                && (functions.estimate.is_empty() && columns == n
                    || functions.estimate.len() == columns)
        });
        functions.cloned().ok_or_else(|| {
            Error::input(format!(
                "the written model of `{method}` has {n} coordinates and {d} numbers per \
                 observation, other than `f` and `h`; fit the model anew"
            ))
        })
    };
    let system = match method {
        FilterMethod::KernelBayes(_) | FilterMethod::Kalman(_) => System::Linear {
            f: Affine {
                matrix: of_size("F", n * n)?,
                intercept: of_size("F_intercept", n)?,
            },
            h: Affine {
                matrix: of_size("H", d * n)?,
                intercept: of_size("H_intercept", d)?,
            },
        },
        FilterMethod::Ekf(_) => System::Extended(functions("ekf")?),
        FilterMethod::Ukf(own) => System::Unscented(functions("ukf")?, Spread::of(own)),
    };
    Ok(KalmanModel {
        n,
        d,
        columns,
        transitions,
        system,
        q: of_size("Q", n * n)?,
        r: match diagonal {
            Some(diagonal) => Noise::Diagonal(diagonal),
            None => Noise::Full(of_size("R", d * d)?),
        },
        x0: of_size("x0", n)?,
        p0: of_size("P0", n * n)?,
    })
}
