//! Renumbers the sets of a model.

use crate::methods::low_rank::model::{Latent, LowRank, SideStates};

impl LowRank {
    /// Set k becomes `numbers[k]`, a permutation. Embeddings, spectrum and sums over all sets do
    /// not change.
    pub(crate) fn renumber(&mut self, numbers: &[u32]) {
        let rank = self.rank;
        let mut old = vec![rank; rank];
        for (k, &number) in numbers.iter().enumerate() {
            old[number as usize] = k;
        }
        assert!(
            numbers.len() == rank && old.iter().all(|&k| k < rank),
            "every latent state has a number of its own"
        );
        for SideStates { affiliation, .. } in [&mut self.sources, &mut self.targets] {
            for k in affiliation.iter_mut().filter(|k| **k >= 0) {
                *k = numbers[*k as usize] as i32;
            }
        }
        let mut own = vec![0.0; rank];
        for membership in [&mut self.sources.membership, &mut self.targets.membership] {
            for row in membership.iter_mut().flat_map(|m| m.chunks_exact_mut(rank)) {
                own.copy_from_slice(row);
                row.iter_mut().zip(&old).for_each(|(m, &k)| *m = own[k]);
            }
        }
        self.latent = self.latent.reordered(&old);
        for matrix in [&mut self.coarse, &mut self.coarse_counts] {
            let cells = (0..rank * rank).map(|at| matrix[old[at / rank] * rank + old[at % rank]]);
            *matrix = cells.collect();
        }
        let metrics = &mut self.metrics;
        for sizes in [&mut metrics.source_sizes, &mut metrics.target_sizes] {
            *sizes = old.iter().map(|&k| sizes[k]).collect();
        }
        metrics.weights = old.iter().map(|&k| metrics.weights[k]).collect();
    }
}

impl Latent {
    /// λ with the latent states in another order: first `order[0]`, then `order[1]`, …
    fn reordered(&self, order: &[usize]) -> Latent {
        let mut latent = Latent {
            offsets: vec![0],
            targets: Vec::with_capacity(self.targets.len()),
            probability: Vec::with_capacity(self.probability.len()),
        };
        for &k in order {
            let own = self.offsets[k]..self.offsets[k + 1];
            latent.targets.extend_from_slice(&self.targets[own.clone()]);
            latent.probability.extend_from_slice(&self.probability[own]);
            latent.offsets.push(latent.targets.len());
        }
        latent
    }
}

#[cfg(test)]
mod tests {
    use crate::evidence::counts::shards::of_entries;
    use crate::methods::given::fit_of;

    /// A given partition with other labels is the same fit with other numbers.
    #[test]
    fn numbers_are_names() {
        let entries = (0..12u32).flat_map(|j| {
            let targets = (0..12).filter(move |i| (j * j + 3 * i) % 5 < 3);
            targets.map(move |i| (j, i, 1 + (j + 2 * i) % 7))
        });
        let shards = of_entries(12, 12, entries, 9);
        let numbers = [2, 3, 0, 1];
        let given = |name: &dyn Fn(u32) -> u32| {
            let affiliation = (0..12).map(|j| name(j * j % 3)).collect();
            fit_of(&shards, affiliation, 4).model
        };
        let (mut own, other) = (given(&|k| k), given(&|k| numbers[k as usize]));
        own.renumber(&numbers);
        assert_eq!(own.sources.affiliation, other.sources.affiliation);
        assert_eq!(own.targets.affiliation, other.targets.affiliation);
        assert_eq!(own.latent, other.latent);
        assert_eq!(own.coarse_counts, other.coarse_counts);
        assert_eq!(own.coarse, other.coarse);
        let (a, b) = (&own.metrics, &other.metrics);
        assert_eq!(a.source_sizes, b.source_sizes);
        assert_eq!(a.target_sizes, b.target_sizes);
        assert_eq!(a.weights, b.weights);
    }
}
