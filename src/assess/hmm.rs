//! Certificates of spectral hidden Markov models: facts about moments and operators (Kulesza, Rao,
//! Singh, *Low-rank spectral learning*, (5) and Lemma 1), checked on the computed numbers.

use crate::assess::certificates::Certificate;
use crate::methods::hmm::params::Scaling;
use crate::methods::hmm::project::Projection;

/// The largest relative error by rounding of a sum over triples.
const ROUNDING: f64 = 1e-10;

/// The certificates of the model of a rank, ordered by name.
pub fn certificates(projection: &Projection, rank: usize) -> Vec<Certificate> {
    let checked = &projection.checked;
    let found = projection.diagnostics(rank);
    // A row of W is as large as 1/σ_k.
    let amplified = ROUNDING / found.last_kept.min(1.0);
    let [triples, pairs] = checked.totals;
    let rounded = if checked.is_integral {
        0.0
    } else {
        ROUNDING * triples
    };
    let gap = checked.last[..rank.min(checked.last.len())].iter();
    let gap = gap.map(|[a, b]| (a - b).abs()).fold(0.0, f64::max);
    let [sum, magnitude] = checked.sum;
    let mut list = vec![
        Certificate::equal("counts", triples, pairs, rounded),
        Certificate::at_most("final_vector", gap, 0.0, amplified),
        Certificate::at_most("sum_of_operators", sum, 0.0, ROUNDING * magnitude),
    ];
    if projection.scaling == Scaling::Cca {
        let normalisation = found.normalisation_gap;
        list.push(Certificate::at_most(
            "first_step",
            checked.first_step,
            0.0,
            ROUNDING,
        ));
        list.push(Certificate::at_most(
            "normalisation",
            normalisation,
            0.0,
            amplified,
        ));
    }
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::pass::Passes;
    use crate::evidence::triples::Triples;
    use crate::methods::hmm::params::SpectralHmm;
    use crate::methods::hmm::project::project;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// Windows of a chain of eight symbols that mostly goes on to the next symbol.
    fn triples() -> Triples {
        let mut random = Pcg64::seed_from_u64(3);
        let mut symbols = vec![0_u32];
        for _ in 0..10_000 {
            let next = match random.random::<f64>() {
                u if u < 0.6 => (symbols[symbols.len() - 1] + 1) % 8,
                _ => random.random_range(0..8),
            };
            symbols.push(next);
        }
        let windows = symbols.windows(3);
        let list = windows.map(|w| (w[0], w[1], w[2], 1.0)).collect();
        Triples::new(1, 8, Triples::symbols_as_words(8), list)
    }

    fn names(scaling: Scaling, change: fn(&mut Projection)) -> Vec<(String, Option<bool>)> {
        let params = SpectralHmm {
            scaling,
            ..SpectralHmm::new(8)
        };
        let projection = project(&params, 8, &triples(), &Passes::local(), 7);
        let mut projection = projection.expect("a projection");
        assert_eq!(projection.rank, 8);
        change(&mut projection);
        let lists = (1..=8).map(|rank| certificates(&projection, rank));
        let lists: Vec<Vec<_>> = lists
            .map(|list| {
                let named = list.into_iter().map(|c| (c.name.into_owned(), c.holds));
                named.collect()
            })
            .collect();
        assert!(lists.iter().all(|list| *list == lists[0]));
        lists[0].clone()
    }

    fn holding(all: &[&str]) -> Vec<(String, Option<bool>)> {
        all.iter()
            .map(|name| (name.to_string(), Some(true)))
            .collect()
    }

    // (5) and Lemma 1 of the paper at every rank, and the two identities of scaled operators.
    #[test]
    fn certificates_hold_at_every_rank() {
        let plain = ["counts", "final_vector", "sum_of_operators"];
        assert_eq!(names(Scaling::None, |_| ()), holding(&plain));
        let scaled = [
            "counts",
            "final_vector",
            "first_step",
            "normalisation",
            "sum_of_operators",
        ];
        assert_eq!(names(Scaling::Cca, |_| ()), holding(&scaled));
    }

    #[test]
    fn wrong_numbers_break_their_certificates() {
        let broken = names(Scaling::Cca, |projection| {
            projection.checked.totals[0] += 1.0;
            projection.checked.last[0][0] += 1e-3;
            projection.checked.first_step = 1e-3;
        });
        let fails = broken.iter().filter(|(_, holds)| *holds == Some(false));
        let fails: Vec<&str> = fails.map(|(name, _)| name.as_str()).collect();
        assert_eq!(fails, ["counts", "final_vector", "first_step"]);
    }
}
