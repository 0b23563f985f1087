//! Split and merge: a local optimum → a better partition of the sources.
//!
//! In: a [`Search`] after its local search, with r states. Each state is split into [`PIECES`]
//! pieces, which grow from random columns. Then the two pieces whose merge decreases ℓ̂ the least
//! are merged, until r are left, and a local search follows. The result is kept if it is better.
//! This separates two sets that share one state, joins one set that has two states, and gives
//! sources to an empty state. Merging two states and splitting a third is the special case in which
//! all other pieces return to their states.

use crate::evidence::counts::csr::Csr;
use crate::evidence::pass::executor::each_shard;
use crate::methods::dbmr::entropy::Sum;
use crate::methods::dbmr::local_search::{Search, Sweeps};
use crate::methods::dbmr::matrix_columns::Columns;
use crate::methods::dbmr::moves::Clusters;
use crate::methods::dbmr::params::Dbmr;
use crate::methods::dbmr::seeding;
use rand_pcg::Pcg64;

/// Pieces per state.
const PIECES: usize = 3;

/// Improves the partition of a search over all columns until `patience` attempts in a row fail.
/// Each attempt draws other pieces. Adds ℓ̂ after every sweep of a successful attempt to `trace`,
/// up to `max_iterations` values. Returns whether the search converged.
pub(crate) fn split_and_merge(
    search: &mut Search,
    params: &Dbmr,
    patience: usize,
    rng: &mut Pcg64,
    trace: &mut Vec<f64>,
) -> bool {
    assert_eq!(search.members.len(), search.columns.shards.n_sources);
    let (rank, n) = (search.clusters.rank(), search.members.len());
    if rank < 2 || n <= rank {
        return true;
    }
    let mut log_likelihood = search.running_log_likelihood();
    let n_targets = search.columns.shards.n_targets;
    let mut small = Clusters::new(n_targets, PIECES, &search.columns.entropy);
    let mut failures = 0;
    while failures < patience {
        failures += 1;
        let pieces = split(search, &mut small, rng);
        let names = if search.columns.entropy.fits_f32 {
            merge::<u32>(search.columns, &pieces, PIECES * rank, rank)
        } else {
            merge::<f64>(search.columns, &pieces, PIECES * rank, rank)
        };
        search.scores += (n * rank) as u64;
        let states = pieces.iter().map(|&piece| names[piece as usize]);
        let states: Vec<u32> = states.collect();
        if is_same(&search.states, &states, rank) {
            continue;
        }
        let old = search.replace(states);
        let rest = params.max_iterations - trace.len();
        let mut after = Vec::new();
        let converged = search.run(rest, params.tolerance(), &mut after);
        let now = search.running_log_likelihood();
        if now - log_likelihood > 1e-12 * log_likelihood.abs() {
            log_likelihood = now;
            failures = 0;
            trace.append(&mut after);
            if !converged {
                return false;
            }
        } else {
            search.replace(old);
        }
    }
    true
}

/// The piece of every column. Those of state k are `PIECES` k and the following.
fn split(search: &mut Search, small: &mut Clusters, rng: &mut Pcg64) -> Vec<u32> {
    let rank = search.clusters.rank();
    let mut members = vec![Vec::new(); rank];
    for (j, &k) in search.states.iter().enumerate() {
        members[k as usize].push(j as u32);
    }
    let mut pieces = vec![0; search.states.len()];
    for (k, members) in members.iter().enumerate().filter(|(_, m)| !m.is_empty()) {
        let clusters = std::mem::replace(small, Clusters::new(0, 1, &search.columns.entropy));
        let mut part = Search::new(search.columns, members, clusters);
        part.grow(&seeding::uniform(members.len(), PIECES, rng));
        for (&j, &piece) in members.iter().zip(&part.states) {
            pieces[j as usize] = (k * PIECES) as u32 + piece;
        }
        search.scores += part.scores;
        *small = part.clusters;
        small.clear(members.iter().map(|&j| search.columns.get(j as usize)));
    }
    pieces
}

/// The non-zeros of the sums C of pieces, one row per target.
struct Rows<S> {
    offsets: Vec<usize>,
    /// Pieces and sums of a row. The sum of a piece that was merged into another is 0.
    entries: Vec<(u32, S)>,
    /// The rows in which each piece has entries, ascending.
    of_piece: Vec<Vec<u32>>,
}

/// Merges `n` pieces until `rank` are left, in each step the two whose merge decreases ℓ̂ the
/// least. Returns the final number of each piece.
fn merge<S: Sum>(columns: &Columns, pieces: &[u32], n: usize, rank: usize) -> Vec<u32> {
    let entropy = &columns.entropy;
    let mut totals = vec![0.0_f64; n];
    for (&piece, total) in pieces.iter().zip(&columns.shards.source_total) {
        totals[piece as usize] += total;
    }
    let mut rows: Rows<S> = rows(&columns.shards.by_target, pieces, n);
    // The gain of the merged rows, n × n and symmetric. The loss of the totals is added when costs
    // are compared.
    let mut gains = vec![0.0; n * n];
    for span in rows.offsets.windows(2) {
        let row = &rows.entries[span[0]..span[1]];
        for (x, &(a, p)) in row.iter().enumerate() {
            for &(b, q) in &row[..x] {
                let gain = p.joined(q, entropy);
                gains[a as usize * n + b as usize] += gain;
                gains[b as usize * n + a as usize] += gain;
            }
        }
    }
    let mut owner: Vec<u32> = (0..n as u32).collect();
    let mut alive: Vec<usize> = (0..n).collect();
    while alive.len() > rank {
        let (mut best, mut pair) = (f64::NEG_INFINITY, (0, 0));
        for (x, &b) in alive.iter().enumerate() {
            for &a in &alive[..x] {
                let loss = totals[a].joined(totals[b], entropy);
                let change = gains[a * n + b] - loss;
                if change > best {
                    (best, pair) = (change, (a, b));
                }
            }
        }
        let (a, b) = pair;
        alive.retain(|&k| k != b);
        totals[a] += std::mem::take(&mut totals[b]);
        for owner in owner.iter_mut().filter(|k| **k == b as u32) {
            *owner = a as u32;
        }
        if alive.len() > rank {
            for &k in &alive {
                (gains[a * n + k], gains[k * n + a]) = (0.0, 0.0);
            }
            rows.join(a as u32, b as u32, |p, k, q| {
                let gain = p.joined(q, entropy);
                gains[a * n + k as usize] += gain;
                gains[k as usize * n + a] += gain;
            });
        }
    }
    let place = |k: &u32| alive.iter().position(|&a| a == *k as usize);
    let found = owner.iter().map(|k| place(k).map(|k| k as u32));
    found.map(|k| k.expect("an owner is alive")).collect()
}

fn rows<S: Sum>(by_target: &[Csr], pieces: &[u32], n: usize) -> Rows<S> {
    let mut rows = Rows {
        offsets: vec![0],
        entries: Vec::new(),
        of_piece: vec![Vec::new(); n],
    };
    let mut sums = vec![S::default(); n];
    let mut seen = vec![0; n + 1];
    for csr in each_shard(by_target) {
        for l in 0..csr.n_rows() {
            let mut found = 0;
            let span = csr.span(l);
            crate::with_values!(csr, values => {
                for (&j, &v) in csr.columns[span.clone()].iter().zip(&values[span]) {
                    let piece = pieces[j as usize];
                    let sum = &mut sums[piece as usize];
                    // A branch would be predicted badly.
                    seen[found] = piece;
                    found += usize::from(*sum == S::default());
                    *sum += S::of(v);
                }
            });
            for &piece in &seen[..found] {
                let sum = std::mem::take(&mut sums[piece as usize]);
                rows.entries.push((piece, sum));
                rows.of_piece[piece as usize].push(rows.offsets.len() as u32 - 1);
            }
            rows.offsets.push(rows.entries.len());
        }
    }
    rows
}

impl<S: Sum> Rows<S> {
    /// Merges piece `b` into piece `a`, and calls `each_neighbour(sum of a, k, sum of k)` for each
    /// piece k in a row with `a`.
    fn join(&mut self, a: u32, b: u32, mut each_neighbour: impl FnMut(S, u32, S)) {
        let gone = std::mem::take(&mut self.of_piece[b as usize]);
        let both = &mut self.of_piece[a as usize];
        both.extend(gone);
        // Both parts are ascending, and a stable sort merges such parts.
        both.sort();
        both.dedup();
        for &i in both.iter() {
            let row = &mut self.entries[self.offsets[i as usize]..self.offsets[i as usize + 1]];
            let mut sum = S::default();
            for (piece, q) in row.iter_mut().filter(|(k, _)| *k == a || *k == b) {
                sum += std::mem::take(q);
                *piece = a;
            }
            let mut is_first = true;
            for (piece, q) in row.iter_mut() {
                if *piece == a {
                    if is_first {
                        *q = sum;
                    }
                    is_first = false;
                } else if *q != S::default() {
                    each_neighbour(sum, *piece, *q);
                }
            }
        }
    }
}

/// Whether two partitions are equal up to the numbers of their states.
pub(crate) fn is_same(one: &[u32], other: &[u32], rank: usize) -> bool {
    let mut names = [vec![u32::MAX; rank], vec![u32::MAX; rank]];
    one.iter().zip(other).all(|(&a, &b)| {
        let [forward, backward] = &mut names;
        let (forward, backward) = (&mut forward[a as usize], &mut backward[b as usize]);
        if *forward == u32::MAX && *backward == u32::MAX {
            (*forward, *backward) = (b, a);
        }
        *forward == b && *backward == a
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::counts::shards::{Shards, dense};
    use rand::SeedableRng;

    /// Four sets of ten sources. Those of set g have 5 counts to each of their own ten targets and
    /// 1 to each other target.
    fn four_sets() -> Shards {
        let count = |i, j| if i / 10 == j / 10 { 5.0 } else { 1.0 };
        let column = |j| (0..40).map(|i| count(i, j)).collect();
        dense(&(0..40).map(column).collect::<Vec<_>>(), false, 300)
    }

    #[test]
    fn two_sets_in_one_state_and_one_set_in_two() {
        // Sets 0 and 1 share state 0, and set 2 has states 1 and 2: no move of a single source
        // increases ℓ̂. The second start leaves state 2 empty.
        let shards = four_sets();
        let columns = Columns::new(&shards);
        let members: Vec<u32> = (0..40).collect();
        let truth: Vec<u32> = (0..40).map(|j| j / 10).collect();
        let bad = |j: u32| match j / 10 {
            0 | 1 => 0,
            2 => 1 + j % 2,
            _ => 3,
        };
        let params = Dbmr::new(4);
        for start in [bad, |j: u32| [0, 0, 1, 3][j as usize / 10]] {
            let clusters = Clusters::new(40, 4, &columns.entropy);
            let mut search = Search::new(&columns, &members, clusters);
            search.fill((0..40).map(start).collect());
            let mut rng = Pcg64::seed_from_u64(1);
            let mut trace = Vec::new();
            assert!(split_and_merge(
                &mut search,
                &params,
                3,
                &mut rng,
                &mut trace
            ));
            assert!(is_same(&search.states, &truth, 4), "{:?}", search.states);
            assert_eq!(search.clusters.empty(), 0);
            assert!(trace.windows(2).all(|pair| pair[1] >= pair[0] - 1e-6));
        }
        let clusters = Clusters::new(40, 4, &columns.entropy);
        let mut stuck = Search::new(&columns, &members, clusters);
        stuck.fill((0..40).map(bad).collect());
        stuck.run(10, 0.0, &mut Vec::new());
        assert!(!is_same(&stuck.states, &truth, 4));
    }

    #[test]
    fn the_cheapest_pieces_merge() {
        // Pieces 0 to 7, two per set. Those of one set have equal columns, so merging them costs
        // nothing.
        let shards = four_sets();
        let columns = Columns::new(&shards);
        let pieces: Vec<u32> = (0..40).map(|j| j / 10 + 4 * (j % 2)).collect();
        let names = merge::<u32>(&columns, &pieces, 9, 4);
        assert_eq!(names, merge::<f64>(&columns, &pieces, 9, 4));
        let states: Vec<u32> = pieces.iter().map(|&p| names[p as usize]).collect();
        assert!(is_same(
            &states,
            &pieces.iter().map(|p| p % 4).collect::<Vec<_>>(),
            4
        ));
    }

    #[test]
    fn names_do_not_matter() {
        assert!(is_same(&[0, 0, 1, 2], &[2, 2, 0, 1], 3));
        assert!(!is_same(&[0, 0, 1, 2], &[2, 2, 0, 0], 3));
        assert!(!is_same(&[0, 0, 1, 1], &[2, 1, 0, 0], 3));
    }
}
