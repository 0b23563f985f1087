//! The objectives whose minima the posteriors are.
//!
//! A posterior is a function μ(x) = Ψ C k_x of the observation x, with the features Ψ of the states
//! of the rows. For the rules `pkbr` and `kregbayes`, rows have the weights e_i² = β_i⁺, and rows
//! of supervision e_i² = μ. The objective (7) or (10) is
//!
//! ```text
//! L[μ] = Σ e_i² ‖ψ(y_i) − μ(x_i)‖² + δ‖μ‖².
//! ```
//!
//! At its minimum, C = W = (K + δ/e²)⁻¹ ((8), (11)) and ψ(y_i) − μ(x_i) = δ/e_i² Ψ W_i. So the
//! minimum is δ tr(G W), for the kernel matrix G of the states. L less its minimum is the squared
//! norm of the space of the kernel (k(x, x′) − k_xᵀ W k_x′)/δ, so a function with the value Ψ w at
//! x has at least
//!
//! ```text
//! δ tr(G W) + δ (w − W k_x)ᵀ G (w − W k_x) / (1 − k_xᵀ W k_x).
//! ```
//!
//! The rule `kbr` has the objective (5), Σ β_i ‖ψ(y_i) − μ(x_i)‖². It need not have a minimum,
//! because weights can be negative. With M = EKE and X + iY = (M + i√δ J)⁻¹, its posterior has
//! C = E X E and ψ(y_i) − μ(x_i) = −√δ J_i/e_i Ψ E Y_i, so (5) is δ tr(J Y E G E Y).

use crate::methods::filter::kernel_bayes::linear::{dot, products};
use crate::methods::filter::kernel_bayes::solve::{Small, System};
use faer::linalg::solvers::Solve;
use faer::{Mat, c64};

/// The objective of the weights of a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Objective {
    /// (5), or the smallest value of (7) or (10) among functions with these weights at the
    /// observation.
    pub(super) value: f64,
    /// The share of the value that is above the minimum among all functions; NaN for (5).
    pub(super) excess: f64,
    /// ‖μ(x) − Σ ψ(t_i)/s‖ for the s rows of supervision; NaN without them.
    pub(super) distance: f64,
}

/// The kernel matrix G of the states of n rows, of which the last s are supervision.
#[derive(Debug)]
pub(super) struct StateGram {
    /// Features by columns: n × r.
    pub(super) features: Vec<f64>,
    /// s.
    pub(super) supervised: usize,
    /// The kernel of the states of supervision, less that of their features: s × s. The features
    /// of training rows are exact.
    pub(super) rest: Vec<f64>,
}

impl StateGram {
    /// aᵀGa.
    fn square(&self, a: &[f64]) -> f64 {
        let mut along = vec![0.0; self.features.len() / a.len().max(1)];
        products(&self.features, a, &mut along);
        let last = &a[a.len() - self.supervised..];
        dot(&along, &along) + self.of_rest(|t, u| last[t] * last[u])
    }

    /// Σ `rest`(t, u) w(t, u).
    fn of_rest(&self, w: impl Fn(usize, usize) -> f64) -> f64 {
        let s = self.supervised;
        let terms = self.rest.iter().enumerate();
        terms.map(|(at, rest)| rest * w(at / s, at % s)).sum()
    }
}

/// The objective (7) or (10) of weights. `system` is the one that they solve, and `small` is
/// memory. None if the system is singular to rounding.
pub(super) fn regularised(
    system: System<'_>,
    states: &StateGram,
    weights: &[f64],
    small: &mut Small,
) -> Option<Objective> {
    let System { k, e, delta, v } = system;
    let chosen: Vec<usize> = (0..k.n).filter(|&at| e[at] > 0.0).collect();
    let (n, r, s) = (chosen.len(), states.features.len() / k.n, states.supervised);
    let is_definite = small.factorise(n, |i, j| {
        let ridge = if i == j { delta } else { 0.0 };
        let (i, j) = (chosen[i], chosen[j]);
        e[i] * k.at(i, j) * e[j] + ridge
    });
    if !is_definite {
        return None;
    }
    // EQ for the features Q, then E for the rows of supervision.
    let right = Mat::from_fn(n, r + s, |i, column| {
        let at = chosen[i];
        let own = match column.checked_sub(r) {
            None => states.features[column * k.n + at],
            Some(t) if at + s == k.n + t => 1.0,
            Some(_) => 0.0,
        };
        e[at] * own
    });
    let mut x = right.clone();
    small.solve_columns(&mut x);
    let trace: f64 = (0..r)
        .map(|c| (0..n).map(|i| right[(i, c)] * x[(i, c)]).sum::<f64>())
        .sum();
    // The weight μ of supervision is above 0, so its rows are the last chosen ones.
    let of_rest = states.of_rest(|t, u| e[k.n - s + t] * x[(n - s + t, r + u)]);
    let least = delta * (trace + of_rest);

    let best = solution(system, &chosen, small);
    let gaps: Vec<f64> = (0..k.n).map(|at| weights[at] - e[at] * best[at]).collect();
    let variance = (1.0 - dot(v, &best)).max(f64::EPSILON);
    let excess = delta * states.square(&gaps) / variance;
    let value = least + excess;
    Some(Objective {
        value,
        excess: if value > 0.0 { excess / value } else { 0.0 },
        distance: distance(states, weights),
    })
}

/// The solution of the system, which `small` has factorised for the chosen rows, after a step of
/// refinement.
fn solution(system: System<'_>, chosen: &[usize], small: &mut Small) -> Vec<f64> {
    let mut solve = |v: &[f64]| {
        let mut own: Vec<f64> = chosen.iter().map(|&at| v[at]).collect();
        small.solve(&mut own);
        let mut x = vec![0.0; v.len()];
        chosen.iter().zip(own).for_each(|(&at, own)| x[at] = own);
        x
    };
    let mut x = solve(system.v);
    let (mut t, mut rest) = (Vec::new(), vec![0.0; x.len()]);
    system.residual(&x, &mut t, &mut rest);
    let step = solve(&rest);
    x.iter_mut().zip(step).for_each(|(x, step)| *x += step);
    x
}

/// The distance of the posterior from the mean of the features of supervision.
fn distance(states: &StateGram, weights: &[f64]) -> f64 {
    let s = states.supervised;
    if s == 0 {
        return f64::NAN;
    }
    let mut gaps = weights.to_vec();
    let first = gaps.len() - s;
    gaps[first..].iter_mut().for_each(|w| *w -= 1.0 / s as f64);
    states.square(&gaps).max(0.0).sqrt()
}

/// The objective (5) of the rule `kbr`. `signs` are those of the prior weights.
pub(super) fn signed(system: System<'_>, signs: &[f64], states: &StateGram) -> Objective {
    let System { k, e, delta, .. } = system;
    let (n, s) = (k.n, delta.sqrt());
    let matrix = Mat::from_fn(n, n, |i, j| {
        let own = if i == j { s * signs[i] } else { 0.0 };
        c64::new(e[i] * k.at(i, j) * e[j], own)
    });
    let right = Mat::from_fn(n, states.features.len() / n, |i, c| {
        c64::new(e[i] * states.features[c * n + i], 0.0)
    });
    let z = matrix.partial_piv_lu().solve(&right);
    let of_row = |i: usize| (0..z.ncols()).map(|c| z[(i, c)].im.powi(2)).sum::<f64>();
    let sum: f64 = (0..n).map(|i| signs[i] * of_row(i)).sum();
    Objective {
        value: delta * sum,
        excess: f64::NAN,
        distance: f64::NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::seed::mixed;
    use crate::math::testing::close;
    use crate::methods::filter::kernel_bayes::cholesky::Incomplete;
    use crate::methods::filter::kernel_bayes::linear::Lower;

    /// A problem with dense matrices by rows.
    struct Dense {
        n: usize,
        k: Vec<f64>,
        g: Vec<f64>,
        /// The weights of the rows, which can be negative.
        weights: Vec<f64>,
        delta: f64,
    }

    impl Dense {
        fn roots(&self) -> Vec<f64> {
            self.weights.iter().map(|b| b.abs().sqrt()).collect()
        }

        /// The features of G by columns.
        fn states(&self) -> StateGram {
            let n = self.n;
            let mut decomposition = Incomplete::default();
            let column = |at: usize, out: &mut [f64]| {
                out.copy_from_slice(&self.g[at * n..][..n]);
            };
            decomposition.decompose((0..n).map(|i| self.g[i * n + i]), column, 0.0, n);
            StateGram {
                features: decomposition.columns,
                supervised: 0,
                rest: Vec::new(),
            }
        }

        /// What `evaluate` finds at an observation with these values of the kernel.
        fn at<T>(&self, values: &[f64], evaluate: impl Fn(System<'_>) -> T) -> T {
            let e = self.roots();
            let v: Vec<f64> = values.iter().zip(&e).map(|(k, e)| k * e).collect();
            evaluate(System {
                k: Lower {
                    rows: &self.k,
                    stride: self.n,
                    n: self.n,
                },
                e: &e,
                delta: self.delta,
                v: &v,
            })
        }

        /// Σ b_i ‖ψ(y_i) − Ψ C k_i‖² and tr(Cᵀ G C K) for C by rows.
        fn by_definition(&self, c: &[f64]) -> [f64; 2] {
            let n = self.n;
            let product = |a: &[f64], b: &[f64], i: usize, j: usize| -> f64 {
                (0..n).map(|t| a[i * n + t] * b[t * n + j]).sum()
            };
            let dense = |a: &[f64], b: &[f64]| -> Vec<f64> {
                let all = (0..n * n).map(|at| product(a, b, at / n, at % n));
                all.collect()
            };
            let ck = dense(c, &self.k);
            let one = |at: usize| f64::from(u8::from(at / n == at % n));
            let rest: Vec<f64> = (0..n * n).map(|at| one(at) - ck[at]).collect();
            let errors = dense(&self.g, &rest);
            let error = |j: usize| {
                (0..n)
                    .map(|i| rest[i * n + j] * errors[i * n + j])
                    .sum::<f64>()
            };
            let loss = (0..n).map(|j| self.weights[j] * error(j)).sum();
            let gck = dense(&self.g, &ck);
            let norm = (0..n).map(|j| (0..n).map(|i| c[i * n + j] * gck[i * n + j]).sum::<f64>());
            [loss, norm.sum()]
        }

        /// (7) of C.
        fn regularised(&self, c: &[f64]) -> f64 {
            let [loss, norm] = self.by_definition(c);
            loss + self.delta * norm
        }

        /// (K + δΛ⁺)⁻¹ by rows.
        fn minimum(&self) -> Vec<f64> {
            let n = self.n;
            let matrix = Mat::from_fn(n, n, |i, j| {
                let own = if i == j {
                    self.delta / self.weights[i]
                } else {
                    0.0
                };
                self.k[i * n + j] + own
            });
            let inverse = matrix.partial_piv_lu().solve(Mat::<f64>::identity(n, n));
            (0..n * n).map(|at| inverse[(at / n, at % n)]).collect()
        }
    }

    /// Numbers between −1 and 1.
    fn numbers(n: usize, seed: u64) -> Vec<f64> {
        let number = |at| (mixed(seed ^ mixed(at)) >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        (0..n as u64).map(number).collect()
    }

    fn kernel(points: &[f64], h: f64) -> Vec<f64> {
        let value = |a: f64, b: f64| (-(a - b) * (a - b) / (2.0 * h * h)).exp();
        let all = points
            .iter()
            .flat_map(|a| points.iter().map(move |b| value(*a, *b)));
        all.collect()
    }

    fn identity(n: usize) -> Vec<f64> {
        (0..n * n)
            .map(|at| f64::from(u8::from(at / n == at % n)))
            .collect()
    }

    // K = I, so that W = diag(β/(β + δ)), with β = (1/2, 1/4), δ = 1/2 and G₁₂ = 1/2. The minimum
    // is ½(½ + ⅓). At k_x = (1, 0), the best weights are (½, 0). The weights (.6, .2) have
    // dᵀGd = .07 and 1 − k_xᵀWk_x = ½.
    #[test]
    fn song2016_7_of_two_rows_by_hand() {
        let dense = Dense {
            n: 2,
            k: identity(2),
            g: vec![1.0, 0.5, 0.5, 1.0],
            weights: vec![0.5, 0.25],
            delta: 0.5,
        };
        let least = 0.5 * (0.5 + 1.0 / 3.0);
        let states = dense.states();
        for (weights, excess) in [([0.5, 0.0], 0.0), ([0.6, 0.2], 0.07)] {
            let found = dense.at(&[1.0, 0.0], |system| {
                regularised(system, &states, &weights, &mut Small::default())
            });
            let found = found.expect("an objective");
            close(&[found.value], &[least + excess], 1e-14);
            close(&[found.excess], &[excess / (least + excess)], 1e-14);
            assert!(found.distance.is_nan());
        }
        let [loss, norm] = dense.by_definition(&[0.5, 0.0, 0.0, 1.0 / 3.0]);
        close(&[loss + 0.5 * norm], &[least], 1e-14);
    }

    // As above, with a third row of supervision of weight 1 whose state is not in the span of the
    // features of the others: G₁₃ = .3, G₂₃ = .2. It adds ½ · 1/(1 + ½) to the minimum.
    #[test]
    fn song2016_10_has_the_whole_state_of_supervision() {
        let dense = Dense {
            n: 3,
            k: identity(3),
            g: Vec::new(),
            weights: vec![0.5, 0.25, 1.0],
            delta: 0.5,
        };
        let root = 0.75f64.sqrt();
        let states = StateGram {
            features: vec![1.0, 0.5, 0.3, 0.0, root, 0.05 / root],
            supervised: 1,
            rest: vec![1.0 - 0.09 - 0.0025 / 0.75],
        };
        let weights = [0.6, 0.2, 0.0];
        let found = dense.at(&[1.0, 0.0, 0.0], |system| {
            regularised(system, &states, &weights, &mut Small::default())
        });
        let found = found.expect("an objective");
        close(&[found.value], &[0.75 + 0.07], 1e-14);
        // a = (.6, .2, −1): aᵀGa = .36 + .04 + 1 + 2(.06 − .18 − .04).
        close(&[found.distance], &[1.08f64.sqrt()], 1e-14);
    }

    // K = I: C = diag(β²/(β² + δ)), and (5) is Σ β_i (δ/(β_i² + δ))². The row with a negative
    // weight has no best C: the larger it is, the smaller is (5).
    #[test]
    fn song2016_5_of_two_rows_by_hand() {
        let dense = Dense {
            n: 2,
            k: identity(2),
            g: vec![1.0, 0.5, 0.5, 1.0],
            weights: vec![0.5, -0.25],
            delta: 0.04,
        };
        let expected = 0.5 * (0.04f64 / 0.29).powi(2) - 0.25 * (0.04f64 / 0.1025).powi(2);
        let states = dense.states();
        let found = dense.at(&[1.0, 0.0], |system| signed(system, &[1.0, -1.0], &states));
        close(&[found.value], &[expected], 1e-14);
        assert!(found.excess.is_nan() && found.distance.is_nan());
        let [at, far] = [10.0, 100.0].map(|c| dense.by_definition(&[1.0, 0.0, 0.0, c])[0]);
        assert!(far < at && at < found.value);
    }

    #[test]
    fn no_other_function_has_a_smaller_objective() {
        let n = 7;
        for seed in 0..20 {
            let dense = Dense {
                n,
                k: kernel(&numbers(n, seed), 0.4),
                g: kernel(&numbers(n, seed ^ 999), 0.5),
                weights: numbers(n, seed ^ 77).iter().map(|b| b.abs()).collect(),
                delta: 0.03,
            };
            let (best, states) = (dense.minimum(), dense.states());
            // The kernel at an observation of a training row, which is a column of K.
            let values = &dense.k[..n];
            let of = |c: &[f64]| {
                let row = |i: usize| (0..n).map(|j| c[i * n + j] * values[j]).sum();
                let weights: Vec<f64> = (0..n).map(row).collect();
                let found = dense.at(values, |system| {
                    regularised(system, &states, &weights, &mut Small::default())
                });
                found.expect("an objective")
            };
            let least = of(&best);
            assert!(least.excess < 1e-14, "{least:?}");
            let whole = dense.regularised(&best);
            close(&[least.value / whole], &[1.0], 1e-11);
            for at in 0..50 {
                let size = [1e-3, 1e-2, 1e-1, 1.0][at % 4];
                let noise = numbers(n * n, seed * 1000 + at as u64);
                let other: Vec<f64> = best.iter().zip(&noise).map(|(c, x)| c + size * x).collect();
                let (all, own) = (dense.regularised(&other), of(&other).value);
                assert!(all > least.value, "{all} {least:?}");
                // Of the functions with these weights, the best one has the objective.
                assert!(own > least.value && own < all, "{least:?} {own} {all}");
            }
        }
    }
}
