//! The low-rank matrix Λ = λΓ of a partition γ of the sources.
//!
//! In: counts N (m targets × n sources) and one latent state per source. Out: λ (m × r, left
//! stochastic) that maximises the relaxed likelihood for this Γ, the target sets F, the coarse r ×
//! r matrix and the singular triplets of Λ̃. Polzin, Klebanov, Nüsken, Koltai, *Coherent set
//! identification via direct low rank maximum likelihood estimation*: (5), (11), (15), Theorem 10.

use crate::evidence::counts::set_sums::Gather;
use crate::evidence::counts::shards::Shards;
use crate::evidence::pass::Passes;
use crate::math::dense;
use crate::math::matrix::{first_largest, flip, row_major, signs};
use crate::methods::low_rank::model::Latent;
use faer::Mat;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Rows of the tall factor of Λ̃ per QR decomposition. It decides the rounding, so it is constant.
const BLOCK: usize = 4096;

/// Singular values of Λ̃ up to this are rounding, because σ₁ = 1. Their left vectors would be
/// noise.
const NEGLIGIBLE: f64 = 1e-13;

/// λ and Γ as sums of counts, which are exact for integer counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Factors {
    /// r, empty latent states included.
    pub rank: usize,
    /// γ(j) for every source.
    pub affiliation: Vec<u32>,
    /// C_ik = Σ_{γ(j)=k} N_ij, m × r row-major.
    pub counts: Vec<f64>,
    /// C_·k = Σ_i C_ik = S w_k, r values; 0 for an empty latent state.
    pub totals: Vec<f64>,
}

/// Singular triplets of Λ̃ in the coordinates of the states: e = D_p^{-1/2} V and f = D_q^{-1/2} U.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spectrum {
    /// r values, descending.
    pub values: Vec<f64>,
    /// n × r row-major.
    pub source_embedding: Vec<f64>,
    /// m × r row-major; zero if the singular value is zero.
    pub target_embedding: Vec<f64>,
}

/// One pass over the counts by target.
pub(crate) fn of_partition(
    passes: &Passes<'_>,
    shards: &Shards,
    affiliation: Vec<u32>,
    rank: usize,
) -> Factors {
    assert_eq!(
        affiliation.len(),
        shards.n_sources,
        "one latent state a source"
    );
    let mut totals = vec![0.0; rank];
    for (&k, &total) in affiliation.iter().zip(&shards.source_total) {
        totals[k as usize] += total;
    }
    let mut counts = vec![0.0; shards.n_targets * rank];
    let kernel = Gather {
        affiliation: Cow::from(&affiliation),
        rank,
    };
    passes.rows(shards.targets(), &kernel, &mut counts);
    Factors {
        rank,
        affiliation,
        counts,
        totals,
    }
}

impl Factors {
    /// λ_ik (15); 0 for an empty latent state.
    #[inline(always)]
    pub(crate) fn probability(&self, target: usize, latent: usize) -> f64 {
        let count = self.counts[target * self.rank + latent];
        if count > 0.0 {
            count / self.totals[latent]
        } else {
            0.0
        }
    }

    /// (11): the latent state with the largest probability of a target, the lowest one on ties.
    pub(crate) fn target_sets(&self) -> Vec<u32> {
        (0..self.counts.len() / self.rank)
            .into_par_iter()
            .map(|i| first_largest((0..self.rank).map(|k| self.probability(i, k))) as u32)
            .collect()
    }

    /// λ without its zeros.
    pub(crate) fn latent(&self) -> Latent {
        let of_state: Vec<(Vec<u32>, Vec<f64>)> = (0..self.rank)
            .into_par_iter()
            .map(|k| {
                (0..self.counts.len() / self.rank)
                    .map(|i| (i as u32, self.probability(i, k)))
                    .filter(|(_, probability)| *probability > 0.0)
                    .unzip()
            })
            .collect();
        let mut latent = Latent {
            offsets: vec![0],
            targets: Vec::new(),
            probability: Vec::new(),
        };
        for (targets, probability) in of_state {
            latent.targets.extend(targets);
            latent.probability.extend(probability);
            latent.offsets.push(latent.targets.len());
        }
        latent
    }

    /// Σ of N over sources in E_k and targets in F_l, r × r row-major (k, l). Targets without a set
    /// are left out.
    pub(crate) fn coarse_counts(&self, target_sets: &[i32]) -> Vec<f64> {
        let mut coarse = vec![0.0; self.rank * self.rank];
        for (row, &set) in self.counts.chunks_exact(self.rank).zip(target_sets) {
            if let Ok(l) = usize::try_from(set) {
                for (k, &count) in row.iter().enumerate() {
                    coarse[k * self.rank + l] += count;
                }
            }
        }
        coarse
    }

    /// Pr[Y ∈ F_l | X ∈ E_k] (6), r × r row-major (k, l). The row of an empty latent state is 0.
    pub(crate) fn coarse(&self, coarse_counts: &[f64]) -> Vec<f64> {
        let mut coarse = coarse_counts.to_vec();
        for (row, &total) in coarse.chunks_exact_mut(self.rank).zip(&self.totals) {
            for x in row.iter_mut().filter(|x| **x > 0.0) {
                *x /= total;
            }
        }
        coarse
    }

    /// B_ik = C_ik / √(C_·k N_i·), m × r: the factor of Λ̃ = B A, where B = D_q^{-1/2} λ D_w^{1/2}
    /// and A = D_w^{-1/2} Γ D_p^{1/2} (r × n).
    fn factor(&self, shards: &Shards, i: usize, k: usize) -> f64 {
        match self.counts[i * self.rank + k] {
            0.0 => 0.0,
            count => count / (self.totals[k] * shards.target_total[i]).sqrt(),
        }
    }

    /// σ(Λ̃), r values, descending.
    pub(crate) fn singular_values(&self, shards: &Shards) -> Vec<f64> {
        let factor = |i: usize, k: usize| self.factor(shards, i, k);
        small_svd(shards.n_targets, self.rank, &factor).0
    }

    /// The singular triplets of Λ̃ = B A. The rows of A are orthonormal, so with B = U Σ Wᵀ the
    /// right vectors are V = Aᵀ W: sources of one latent state share a point.
    pub(crate) fn spectrum(&self, shards: &Shards) -> Spectrum {
        let rank = self.rank;
        let factor = |i: usize, k: usize| self.factor(shards, i, k);
        let (values, right) = small_svd(shards.n_targets, rank, &factor);

        let mut source_embedding = vec![0.0; shards.n_sources * rank];
        source_embedding
            .par_chunks_mut(rank)
            .zip(&self.affiliation)
            .for_each(|(row, &k)| {
                let scale = (shards.total / self.totals[k as usize]).sqrt();
                for (l, e) in row.iter_mut().enumerate() {
                    *e = right[k as usize * rank + l] * scale;
                }
            });
        // U = B W Σ⁻¹ and 1/√q_i = √(S / N_i·).
        let mut target_embedding = vec![0.0; shards.n_targets * rank];
        target_embedding
            .par_chunks_mut(rank)
            .enumerate()
            .for_each(|(i, row)| {
                for k in 0..rank {
                    let b = factor(i, k);
                    for (l, f) in row.iter_mut().enumerate() {
                        *f += b * right[k * rank + l];
                    }
                }
                let scale = (shards.total / shards.target_total[i]).sqrt();
                for (f, &value) in row.iter_mut().zip(&values) {
                    *f = if value > NEGLIGIBLE {
                        *f * scale / value
                    } else {
                        0.0
                    };
                }
            });
        let mut spectrum = Spectrum {
            values,
            source_embedding,
            target_embedding,
        };
        spectrum.fix_signs(shards);
        spectrum
    }
}

impl Spectrum {
    /// Fixes the signs of the singular vectors. Of the largest magnitudes in a right vector √p_j
    /// e_j (up to 10⁻⁶, so that rounding does not choose among equal ones), the first is made
    /// positive.
    fn fix_signs(&mut self, shards: &Shards) {
        let (n, rank) = (shards.n_sources, self.values.len());
        let signs = signs(n, rank, |j, l| {
            self.source_embedding[j * rank + l] * shards.source_total[j].sqrt()
        });
        flip(&mut self.source_embedding, &signs);
        flip(&mut self.target_embedding, &signs);
    }
}

/// Singular values (r, descending) and right vectors (r × r row-major) of a tall matrix given by
/// its entries. Blocks of rows are replaced by the R of their QR decompositions until one block is
/// left. Unlike the Gram matrix, this does not square the singular values.
fn small_svd(
    n_rows: usize,
    rank: usize,
    entry: &(dyn Fn(usize, usize) -> f64 + Sync),
) -> (Vec<f64>, Vec<f64>) {
    let block = BLOCK.max(4 * rank);
    if n_rows > block {
        let factors: Vec<Mat<f64>> = (0..n_rows.div_ceil(block))
            .into_par_iter()
            .map(|b| {
                let rows = block.min(n_rows - b * block);
                let part = Mat::from_fn(rows, rank, |i, k| entry(b * block + i, k));
                // A last block with fewer than r rows is its own factor.
                if rows > rank {
                    part.qr().thin_R().to_owned()
                } else {
                    part
                }
            })
            .collect();
        let n_stacked = (factors.len() - 1) * rank + factors[factors.len() - 1].nrows();
        let stacked = |i: usize, k: usize| {
            let b = (i / rank).min(factors.len() - 1);
            factors[b][(i - b * rank, k)]
        };
        return small_svd(n_stacked, rank, &stacked);
    }
    // Rows of zeros make the matrix square if it is not tall. They change neither values nor right
    // vectors.
    let last = Mat::from_fn(n_rows.max(rank), rank, |i, k| {
        if i < n_rows { entry(i, k) } else { 0.0 }
    });
    let qr = last.qr();
    let triangle = qr.thin_R();
    let (values, _, right) = dense::square_svd(&row_major(triangle), rank);
    (values, right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::of_rows;
    use crate::evidence::pass::Passes;

    // N (targets × sources) = [ 3 1 0 ]   γ = (0, 0, 1)   C = [ 4 0 ]   λ = [ 1/2 0 ]
    //                         [ 1 3 2 ]                       [ 4 2 ]       [ 1/2 1 ]
    fn world() -> (Shards, Factors) {
        let shards = of_rows(&[vec![3.0, 1.0, 0.0], vec![1.0, 3.0, 2.0]], false, 2);
        let factors = of_partition(&Passes::local(), &shards, vec![0, 0, 1], 2);
        (shards, factors)
    }

    #[test]
    fn a_model_by_hand() {
        let (_, factors) = world();
        assert_eq!(factors.counts, [4.0, 0.0, 4.0, 2.0]);
        assert_eq!(factors.totals, [8.0, 2.0]);
        assert_eq!(factors.target_sets(), [0, 1]);
        let latent = factors.latent();
        assert_eq!(latent.offsets, [0, 2, 3]);
        assert_eq!(latent.targets, [0, 1, 1]);
        assert_eq!(latent.probability, [0.5, 0.5, 1.0]);
        let coarse = factors.coarse_counts(&[0, 1]);
        assert_eq!(coarse, [4.0, 4.0, 0.0, 2.0]);
        assert_eq!(factors.coarse(&coarse), [0.5, 0.5, 0.0, 1.0]);
        assert_eq!(factors.coarse_counts(&[0, -1]), [4.0, 0.0, 0.0, 0.0]);
    }

    // B = C_ik / √(C_·k N_i·) = [ 4/√32  0     ]   ‖B‖² = 16/32 + 16/48 + 4/12 = 7/6,
    //                           [ 4/√48  2/√12 ]   so σ = 1 and 1/√6.
    #[test]
    fn the_singular_triplets_by_hand() {
        let (shards, factors) = world();
        let spectrum = factors.spectrum(&shards);
        assert!((spectrum.values[0] - 1.0).abs() < 1e-15);
        assert!((spectrum.values[1] - (1.0f64 / 6.0).sqrt()).abs() < 1e-15);
        // The leading pair is the constant function, and Λ' e_l = σ_l f_l, where Λ' = D_q⁻¹ Λ D_p
        // acts on functions of the sources.
        let (e, f) = (&spectrum.source_embedding, &spectrum.target_embedding);
        for l in 0..2 {
            for i in 0..2 {
                let image: f64 = (0..3)
                    .map(|j| {
                        let k = factors.affiliation[j] as usize;
                        factors.probability(i, k) * shards.source_total[j] * e[j * 2 + l]
                    })
                    .sum();
                let expected = spectrum.values[l] * f[i * 2 + l] * shards.target_total[i];
                assert!((image - expected).abs() < 1e-13);
            }
        }
        let mut first = e.iter().step_by(2).chain(f.iter().step_by(2));
        assert!(first.all(|x| (x - 1.0).abs() < 1e-14));
    }

    #[test]
    fn an_empty_latent_state_adds_a_zero() {
        let (shards, _) = world();
        let factors = of_partition(&Passes::local(), &shards, vec![0, 0, 0], 2);
        let spectrum = factors.spectrum(&shards);
        assert!(spectrum.values[1] < 1e-15);
        for row in spectrum
            .source_embedding
            .chunks(2)
            .chain(spectrum.target_embedding.chunks(2))
        {
            assert!((row[0] - 1.0).abs() < 1e-14 && row[1] == 0.0, "{row:?}");
        }
    }

    #[test]
    fn a_tall_matrix_is_cut_into_blocks() {
        // Column k holds cos(k i) / 2ᵏ; the Gram matrix of 20,000 rows is summed directly.
        let entry = |i: usize, k: usize| (k as f64 * i as f64).cos() / f64::from(1 << k);
        let (values, right) = small_svd(20_000, 5, &entry);
        for a in 0..5 {
            for b in 0..5 {
                let gram: f64 = (0..20_000).map(|i| entry(i, a) * entry(i, b)).sum();
                let rebuilt: f64 = (0..5)
                    .map(|l| right[a * 5 + l] * values[l] * values[l] * right[b * 5 + l])
                    .sum();
                assert!((gram - rebuilt).abs() < 1e-8 * 20_000.0, "{gram} {rebuilt}");
            }
        }
        assert!(values.windows(2).all(|v| v[0] >= v[1]));
    }
}
