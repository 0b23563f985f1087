//! Distinct points in the order of a kd-tree, and which of them are neighbours.
//!
//! In: points, with or without weights. Out: distinct points with the sums of their weights, and
//! sparse symmetric lists of neighbours. Every list is ascending and has the point itself.
//!
//! Everything depends on the set of points alone, not on the order of the rows or on threads.

use crate::evidence::points::Points;
use crate::methods::heat_kernel::tree::{self, LANES, Near, Tree, squared_distance};
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

/// Dimensions up to which a kd-tree finds neighbours. Above, all distances are computed.
pub(crate) const TREE_DIMENSIONS: usize = 8;

/// Points up to which all distances are computed for neighbours in high dimensions.
pub(crate) const BRUTE_FORCE_POINTS: usize = 200_000;

/// Rows and columns of a block of distances in high dimensions.
const TILE: [usize; 2] = [256, 2048];

/// Bytes of the distances from a block of points to `n` points, which a thread holds at a time.
pub(crate) fn tile_bytes(n: u64) -> u64 {
    let [rows, columns] = TILE.map(|length| length as u64);
    rows * n * size_of::<Candidate>() as u64 + rows * columns * 8
}

/// Distinct points with positive weights, in the order of a kd-tree.
#[derive(Debug, Clone)]
pub(crate) struct Distinct {
    /// Coordinates per point, d.
    pub dimension: usize,
    /// n × d, row-major.
    pub coordinates: Vec<f64>,
    /// The sum of the weights of the rows at each point.
    pub weights: Vec<f64>,
    /// The point of every input row; none for rows of weight zero.
    pub place: Vec<Option<u32>>,
}

impl Distinct {
    /// Collapses equal rows and orders the points.
    pub(crate) fn new(points: &Points) -> Distinct {
        let d = points.dimension;
        let mut rows: Vec<u32> = (0..points.n() as u32)
            .filter(|&i| points.weight(i as usize) > 0.0)
            .collect();
        // Adding zero makes −0 equal to 0.
        let compare = |a: &[f64], b: &[f64]| {
            let pairs = a
                .iter()
                .zip(b)
                .map(|(a, b)| (a + 0.0).total_cmp(&(b + 0.0)));
            pairs.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
        };
        rows.par_sort_by(|&a, &b| {
            let (a, b) = (a as usize, b as usize);
            let weights = || points.weight(a).total_cmp(&points.weight(b));
            compare(points.row(a), points.row(b)).then_with(weights)
        });
        let mut place = vec![None; points.n()];
        let (mut coordinates, mut weights): (Vec<f64>, Vec<f64>) = (Vec::new(), Vec::new());
        for (at, &i) in rows.iter().enumerate() {
            let row = points.row(i as usize);
            let last = at
                .checked_sub(1)
                .map(|last| points.row(rows[last] as usize));
            if last.is_none_or(|last| compare(last, row).is_ne()) {
                coordinates.extend(row.iter().map(|x| x + 0.0));
                weights.push(0.0);
            }
            let last = weights.len() - 1;
            weights[last] += points.weight(i as usize);
            place[i as usize] = Some(last as u32);
        }
        drop(rows);
        let order = tree::order(&coordinates, d);
        let mut position = vec![0; order.len()];
        for (to, &from) in (0..).zip(&order) {
            position[from as usize] = to;
        }
        let row = |&i: &u32| coordinates[i as usize * d..][..d].iter().copied();
        Distinct {
            dimension: d,
            coordinates: order.iter().flat_map(row).collect(),
            weights: order.iter().map(|&i| weights[i as usize]).collect(),
            place: place
                .iter()
                .map(|p| p.map(|p| position[p as usize]))
                .collect(),
        }
    }

    /// The number of distinct points.
    pub(crate) fn n(&self) -> usize {
        self.weights.len()
    }

    /// The coordinates of a point.
    pub(crate) fn row(&self, i: usize) -> &[f64] {
        &self.coordinates[i * self.dimension..][..self.dimension]
    }

    /// Some of the points, in the same order, and the rows at them.
    pub(crate) fn subset(&self, keep: &[bool]) -> Distinct {
        let mut next = 0;
        let position: Vec<Option<u32>> = keep
            .iter()
            .map(|&keep| {
                next += u32::from(keep);
                keep.then(|| next - 1)
            })
            .collect();
        let kept = || (0..self.n()).filter(|&i| keep[i]);
        Distinct {
            dimension: self.dimension,
            coordinates: kept().flat_map(|i| self.row(i)).copied().collect(),
            weights: kept().map(|i| self.weights[i]).collect(),
            place: (self.place.iter())
                .map(|p| p.and_then(|p| position[p as usize]))
                .collect(),
        }
    }
}

/// Lists of neighbours, which are symmetric and ascending.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Lists {
    /// The list of point i is `columns[offsets[i]..offsets[i + 1]]`.
    pub offsets: Vec<usize>,
    /// Neighbours, and the point itself.
    pub columns: Vec<u32>,
    /// For lists of the k nearest points, the farthest of them.
    pub farthest: Vec<Near>,
}

impl Lists {
    /// The squared distances of the farthest points.
    pub(crate) fn squares(&self) -> Vec<f64> {
        self.farthest.iter().map(|near| near.0).collect()
    }
}

/// Calls `take` with the points within a distance of every point of a leaf, leaf by leaf. Returns
/// what it makes of each.
fn of_leaves<T: Send>(
    points: &Distinct,
    bound: f64,
    take: impl Fn(&mut T, &[Near]) + Sync,
    start: impl Fn() -> T + Sync,
) -> Vec<T> {
    let tree = Tree::new(&points.coordinates, points.dimension);
    (0..tree.leaf_count())
        .into_par_iter()
        .map_init(Scratch::default, |scratch, leaf| {
            let own = leaf * LANES..((leaf + 1) * LANES).min(points.n());
            scratch.leaves_near(&tree, points, own.clone(), bound);
            let mut made = start();
            for i in own {
                tree.gather(&scratch.leaves, points.row(i), bound, &mut scratch.near);
                take(&mut made, &scratch.near);
            }
            made
        })
        .collect()
}

/// The number of pairs of points within a distance of each other, in both orders, and with each
/// point and itself.
pub(crate) fn count_within(points: &Distinct, radius: f64) -> u64 {
    let bound = square_of(radius);
    if points.dimension <= TREE_DIMENSIONS {
        let add = |pairs: &mut u64, near: &[Near]| *pairs += near.len() as u64;
        return of_leaves(points, bound, add, || 0).into_iter().sum();
    }
    let rows = tiles(points, |i, near, _, counts: &mut Vec<u64>| {
        let own = near.iter().filter(|near| {
            near.least <= bound
                && squared_distance(points.row(i), points.row(near.index as usize)) <= bound
        });
        counts.push(own.count() as u64);
    });
    rows.iter().flat_map(|(_, counts)| counts).sum()
}

/// The square of a distance. That of a very large one is the largest number, which no missing point
/// of a tree is within.
pub(crate) fn square_of(distance: f64) -> f64 {
    (distance * distance).min(f64::MAX)
}

/// All points within a distance of each other.
pub(crate) fn within(points: &Distinct, radius: f64) -> Lists {
    let bound = square_of(radius);
    let rows: Vec<(Vec<u32>, Vec<u32>)> = if points.dimension <= TREE_DIMENSIONS {
        let add = |(columns, lengths): &mut (Vec<u32>, Vec<u32>), near: &[Near]| {
            columns.extend(near.iter().map(|near| near.1));
            lengths.push(near.len() as u32);
        };
        of_leaves(points, bound, add, Default::default)
    } else {
        tiles(points, |i, near, columns, lengths| {
            let before = columns.len();
            near.retain(|near| near.least <= bound);
            let exact = |near: &Candidate| {
                squared_distance(points.row(i), points.row(near.index as usize)) <= bound
            };
            columns.extend(
                near.iter()
                    .filter(|near| exact(near))
                    .map(|near| near.index),
            );
            lengths.push((columns.len() - before) as u32);
        })
    };
    let mut offsets = vec![0];
    let mut end = 0;
    for length in rows.iter().flat_map(|(_, lengths)| lengths) {
        end += *length as usize;
        offsets.push(end);
    }
    let mut columns = Vec::with_capacity(end);
    for (own, _) in rows {
        columns.extend(own);
    }
    Lists {
        offsets,
        columns,
        farthest: Vec::new(),
    }
}

/// The `k` nearest points of every point, and the points that have it among theirs. Of equally
/// distant points, those that come first are taken.
///
/// # Panics
/// Unless there are more than `k` points.
pub(crate) fn nearest(points: &Distinct, k: usize) -> Lists {
    let n = points.n();
    assert!(0 < k && k < n, "{n} points do not have {k} neighbours each");
    let (chosen, last) = if points.dimension <= TREE_DIMENSIONS {
        nearest_by_tree(points, k)
    } else {
        nearest_by_tiles(points, k)
    };
    union(points, k, &chosen, last)
}

/// The buffers of a thread.
#[derive(Default)]
struct Scratch {
    leaves: Vec<u32>,
    near: Vec<Near>,
    sorted: Vec<Near>,
    corners: Vec<f64>,
}

impl Scratch {
    /// The leaves near some points.
    fn leaves_near(
        &mut self,
        tree: &Tree,
        points: &Distinct,
        own: std::ops::Range<usize>,
        bound: f64,
    ) {
        let d = points.dimension;
        self.corners.clear();
        self.corners.resize(d, f64::INFINITY);
        self.corners.resize(2 * d, f64::NEG_INFINITY);
        let (low, high) = self.corners.split_at_mut(d);
        for i in own {
            for (c, x) in points.row(i).iter().enumerate() {
                low[c] = low[c].min(*x);
                high[c] = high[c].max(*x);
            }
        }
        tree.leaves_within([low, high], bound, &[], &mut self.leaves);
    }

    /// The last of the `count` smallest of `near`.
    fn last_of(&mut self, count: usize) -> Near {
        self.sorted.clear();
        self.sorted.extend_from_slice(&self.near);
        let by = |a: &Near, b: &Near| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        *self.sorted.select_nth_unstable_by(count - 1, by).1
    }
}

/// The nearest points (`n × (k + 1)`, ascending by position) and the last of each by distance.
///
/// If a point x has its k nearest within r, a point y has k + 1 points within r + ‖x − y‖. So one
/// search per leaf bounds the searches of its points.
fn nearest_by_tree(points: &Distinct, k: usize) -> (Vec<u32>, Vec<Near>) {
    let (n, count) = (points.n(), k + 1);
    let tree = Tree::new(&points.coordinates, points.dimension);
    let mut chosen = vec![0; n * count];
    let mut last = vec![(0.0, 0); n];
    chosen
        .par_chunks_mut(LANES * count)
        .zip(last.par_chunks_mut(LANES))
        .enumerate()
        .for_each_init(Scratch::default, |scratch, (leaf, (chosen, last))| {
            let start = leaf * LANES;
            let x = points.row(start);
            // Any k + 1 points around give a first bound.
            let around = count.div_ceil(LANES);
            let low = leaf.saturating_sub(around);
            let high = (leaf + around + 1).min(tree.leaf_count());
            scratch.leaves.clear();
            scratch.leaves.extend(low as u32..high as u32);
            tree.gather(&scratch.leaves, x, f64::MAX, &mut scratch.near);
            let mut bound = scratch.last_of(count).0;
            scratch.leaves_near(&tree, points, start..start + 1, bound);
            tree.gather(&scratch.leaves, x, bound, &mut scratch.near);
            bound = scratch.last_of(count).0.sqrt();
            let reach = |i: usize| {
                let moved = squared_distance(x, points.row(start + i)).sqrt();
                (bound + moved).powi(2) * (1.0 + 1e-12)
            };
            let largest = (0..last.len()).map(reach).fold(0.0, f64::max);
            scratch.leaves_near(&tree, points, start..start + last.len(), largest);
            for (i, (chosen, last)) in chosen.chunks_mut(count).zip(last).enumerate() {
                let leaves = std::mem::take(&mut scratch.leaves);
                tree.gather(&leaves, points.row(start + i), reach(i), &mut scratch.near);
                scratch.leaves = leaves;
                *last = scratch.last_of(count);
                fill(chosen, &scratch.near, *last);
            }
        });
    (chosen, last)
}

/// The points that are not after `last`, in their order.
fn fill(chosen: &mut [u32], near: &[Near], last: Near) {
    let kept = near.iter().filter(|near| is_within(**near, last));
    for (chosen, near) in chosen.iter_mut().zip(kept) {
        *chosen = near.1;
    }
}

/// Whether a point is not after the last of a list of nearest points.
pub(crate) fn is_within(near: Near, last: Near) -> bool {
    near.0 < last.0 || (near.0 == last.0 && near.1 <= last.1)
}

/// A point with bounds of its squared distance.
struct Candidate {
    least: f64,
    most: f64,
    index: u32,
}

fn nearest_by_tiles(points: &Distinct, k: usize) -> (Vec<u32>, Vec<Near>) {
    let count = k + 1;
    let rows = tiles(points, |i, near, columns, lasts| {
        // At least k + 1 points are within this distance, so the nearest ones are.
        let by_most = |a: &Candidate, b: &Candidate| a.most.total_cmp(&b.most);
        let bound = near.select_nth_unstable_by(count - 1, by_most).1.most;
        near.retain(|near| near.least <= bound);
        let exact = near.iter().map(|near| {
            let other = points.row(near.index as usize);
            (squared_distance(points.row(i), other), near.index)
        });
        let mut near: Vec<Near> = exact.collect();
        near.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        lasts.push(near[count - 1]);
        near[..count].sort_unstable_by_key(|near| near.1);
        columns.extend(near[..count].iter().map(|near| near.1));
    });
    let (columns, lasts): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    (columns.concat(), lasts.concat())
}

/// Calls `take` for every point with all points and bounds of their squared distances; returns what
/// it pushes, in blocks of rows.
///
/// A squared distance is |x|² + |y|² − 2xᵀy, which is off by at most 2(d + 8)ε (|x| + |y|)².
fn tiles<T: Send>(
    points: &Distinct,
    take: impl Fn(usize, &mut Vec<Candidate>, &mut Vec<u32>, &mut Vec<T>) + Sync,
) -> Vec<(Vec<u32>, Vec<T>)> {
    let (n, d) = (points.n(), points.dimension);
    // The medians are removed: far points do not move them, as they would move the means.
    let median = |c: usize| {
        let mut values: Vec<f64> = points
            .coordinates
            .iter()
            .skip(c)
            .step_by(d)
            .copied()
            .collect();
        *values.select_nth_unstable_by(n / 2, f64::total_cmp).1
    };
    let medians: Vec<f64> = (0..d).into_par_iter().map(median).collect();
    let centred: Vec<f64> = (points.coordinates.chunks_exact(d))
        .flat_map(|row| row.iter().zip(&medians).map(|(x, m)| x - m))
        .collect();
    let squares: Vec<f64> = (centred.chunks_exact(d))
        .map(|row| row.iter().map(|x| x * x).sum())
        .collect();
    let unit = 2.0 * (d + 8) as f64 * f64::EPSILON;
    let row_tile = |at: usize, rows: usize| {
        let rows = rows.min(n - at);
        MatRef::from_row_major_slice(&centred[at * d..][..rows * d], rows, d)
    };
    (0..n.div_ceil(TILE[0]))
        .into_par_iter()
        .map(|tile| {
            let first = tile * TILE[0];
            let own = row_tile(first, TILE[0]);
            // `vec!` would clone a list without its room.
            let rows = 0..own.nrows();
            let mut all: Vec<Vec<Candidate>> = rows.map(|_| Vec::with_capacity(n)).collect();
            let mut products = vec![0.0; TILE[0] * TILE[1]];
            for at in (0..n).step_by(TILE[1]) {
                let others = row_tile(at, TILE[1]);
                let columns = others.nrows();
                let products = &mut products[..own.nrows() * columns];
                let out = MatMut::from_row_major_slice_mut(products, own.nrows(), columns);
                let (own, others) = (own, others.transpose());
                faer::linalg::matmul::matmul(out, Accum::Replace, own, others, 1.0, Par::Seq);
                for (i, (all, row)) in all.iter_mut().zip(products.chunks(columns)).enumerate() {
                    all.extend(row.iter().enumerate().map(|(j, product)| {
                        // (|x| + |y|)² is at most twice this sum.
                        let sum = squares[first + i] + squares[at + j];
                        let (square, error) = (sum - 2.0 * product, 2.0 * unit * sum);
                        Candidate {
                            least: square - error,
                            most: square + error,
                            index: (at + j) as u32,
                        }
                    }));
                }
            }
            let (mut columns, mut others) = (Vec::new(), Vec::new());
            for (i, near) in all.iter_mut().enumerate() {
                take(first + i, near, &mut columns, &mut others);
            }
            (columns, others)
        })
        .collect()
}

/// The union of the lists and of their transpose.
fn union(points: &Distinct, k: usize, chosen: &[u32], last: Vec<Near>) -> Lists {
    let (n, count) = (points.n(), k + 1);
    let rows = 4096;
    // Pairs (j, i) where j is in the list of i, but i is not in that of j.
    let missing: Vec<Vec<(u32, u32)>> = chosen
        .par_chunks(rows * count)
        .enumerate()
        .map(|(block, chosen)| {
            let mut missing = Vec::new();
            for (i, chosen) in (block * rows..).zip(chosen.chunks_exact(count)) {
                for &j in chosen {
                    let square = squared_distance(points.row(i), points.row(j as usize));
                    if !is_within((square, i as u32), last[j as usize]) {
                        missing.push((j, i as u32));
                    }
                }
            }
            missing
        })
        .collect();
    let mut ends = vec![0usize; n + 1];
    for (j, _) in missing.iter().flatten() {
        ends[*j as usize + 1] += 1;
    }
    let mut offsets: Vec<usize> = Vec::with_capacity(n + 1);
    for i in 0..n {
        offsets.push(i * count + ends[i]);
        ends[i + 1] += ends[i];
    }
    offsets.push(n * count + ends[n]);
    let mut next = ends.clone();
    let mut added = vec![0; ends[n]];
    for (j, i) in missing.iter().flatten() {
        added[next[*j as usize]] = *i;
        next[*j as usize] += 1;
    }
    drop(missing);
    let mut columns = vec![0; offsets[n]];
    let mut rest = &mut columns[..];
    let mut lists = Vec::with_capacity(n.div_ceil(rows));
    for first in (0..n).step_by(rows) {
        let end = (first + rows).min(n);
        let (own, later) = rest.split_at_mut(offsets[end] - offsets[first]);
        lists.push((first..end, own));
        rest = later;
    }
    lists.into_par_iter().for_each(|(own, mut out)| {
        for i in own {
            let (row, later) = out.split_at_mut(offsets[i + 1] - offsets[i]);
            merge(
                &chosen[i * count..][..count],
                &added[ends[i]..ends[i + 1]],
                row,
            );
            out = later;
        }
    });
    Lists {
        offsets,
        columns,
        farthest: last,
    }
}

/// Merges two ascending lists without common entries.
fn merge<'a>(mut a: &'a [u32], mut b: &'a [u32], out: &mut [u32]) {
    for out in out {
        let is_first = b.is_empty() || a.first().is_some_and(|a| *a < b[0]);
        let from = if is_first { &mut a } else { &mut b };
        *out = from[0];
        *from = &from[1..];
    }
}

/// The length of the longest edge of the minimum spanning tree, by Prim's algorithm in n² steps.
pub(crate) fn longest_link(points: &Distinct) -> f64 {
    let n = points.n();
    let mut nearest = vec![f64::INFINITY; n];
    let mut open: Vec<usize> = (1..n).collect();
    let (mut at, mut longest) = (0, 0.0f64);
    while !open.is_empty() {
        let row = points.row(at);
        let mut best = 0;
        for (position, &i) in open.iter().enumerate() {
            nearest[i] = nearest[i].min(squared_distance(row, points.row(i)));
            if nearest[i] < nearest[open[best]] {
                best = position;
            }
        }
        at = open.swap_remove(best);
        longest = longest.max(nearest[at]);
    }
    longest.sqrt()
}

/// The length of the longest edge of the minimum spanning tree of some neighbours, by Borůvka's
/// algorithm. None if the neighbours do not connect all points.
pub(crate) fn longest_link_of(points: &Distinct, lists: &Lists) -> Option<f64> {
    let n = points.n();
    let mut component: Vec<u32> = (0..n as u32).collect();
    let (mut components, mut longest) = (n, 0.0f64);
    while components > 1 {
        // The shortest edge that leaves the component of each point.
        let leaving: Vec<Option<Link>> = (0..n)
            .into_par_iter()
            .map(|i| {
                let others = lists.columns[lists.offsets[i]..lists.offsets[i + 1]].iter();
                let others = others.filter(|j| component[**j as usize] != component[i]);
                let link = |&j: &u32| {
                    let square = squared_distance(points.row(i), points.row(j as usize));
                    (square, [j.min(i as u32), j.max(i as u32)])
                };
                others.map(link).min_by(by_length)
            })
            .collect();
        // The shortest edge that leaves each component.
        let mut shortest: Vec<Option<Link>> = vec![None; n];
        for (of_point, component) in leaving.into_iter().zip(&component) {
            let own = &mut shortest[*component as usize];
            *own = own.take().into_iter().chain(of_point).min_by(by_length);
        }
        let mut parent: Vec<u32> = (0..n as u32).collect();
        let before = components;
        for (square, ends) in shortest.into_iter().flatten() {
            let [a, b] = ends.map(|end| root(&mut parent, component[end as usize]));
            if a != b {
                parent[a.max(b) as usize] = a.min(b);
                components -= 1;
                longest = longest.max(square);
            }
        }
        if components == before {
            return None;
        }
        component
            .iter_mut()
            .for_each(|own| *own = root(&mut parent, *own));
    }
    Some(longest.sqrt())
}

/// A squared length, and the ends of an edge.
type Link = (f64, [u32; 2]);

fn by_length(a: &Link, b: &Link) -> std::cmp::Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

/// The root of a tree of a forest. Paths are halved.
fn root(parent: &mut [u32], mut at: u32) -> u32 {
    while parent[at as usize] != at {
        parent[at as usize] = parent[parent[at as usize] as usize];
        at = parent[at as usize];
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::methods::heat_kernel::random;

    fn points(n: usize, d: usize) -> Points {
        let x = |i| random::uniform(random::hash(3, i));
        Points::new(d, (0..(n * d) as u64).map(x).collect())
    }

    fn by_hand(points: &Distinct, k: usize) -> Vec<Vec<u32>> {
        let n = points.n();
        let (mut is_near, mut pairs) = (vec![vec![false; n]; n], Vec::new());
        for i in 0..n {
            let mut all: Vec<(f64, usize)> = (0..n)
                .map(|j| (squared_distance(points.row(i), points.row(j)), j))
                .collect();
            all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            for (_, j) in &all[..=k] {
                pairs.extend([(i, *j), (*j, i)]);
            }
        }
        for (i, j) in pairs {
            is_near[i][j] = true;
        }
        let row = |row: &Vec<bool>| (0..n as u32).filter(|&j| row[j as usize]).collect();
        is_near.iter().map(row).collect()
    }

    fn rows(lists: &Lists) -> Vec<Vec<u32>> {
        let row = |w: &[usize]| lists.columns[w[0]..w[1]].to_vec();
        lists.offsets.windows(2).map(row).collect()
    }

    #[test]
    fn neighbours_are_exact_in_every_dimension() {
        for (n, d, k) in [
            (300, 1, 7),
            (500, 2, 20),
            (400, 4, 33),
            (40, 3, 39),
            (300, 12, 9),
        ] {
            let distinct = Distinct::new(&points(n, d));
            assert_eq!(rows(&nearest(&distinct, k)), by_hand(&distinct, k));
            let radius = 0.3 * (d as f64).sqrt();
            for (i, row) in rows(&within(&distinct, radius)).iter().enumerate() {
                let near = |j: &u32| {
                    let square = squared_distance(distinct.row(i), distinct.row(*j as usize));
                    square <= radius * radius
                };
                let expected: Vec<u32> = (0..n as u32).filter(near).collect();
                assert_eq!(*row, expected);
            }
        }
    }

    #[test]
    fn far_points_do_not_hide_the_neighbours_of_others() {
        for d in [2, 12] {
            for far in [1e12, 1e36, 3e150] {
                let mut all = points(120, d);
                all.coordinates[7 * d..8 * d].fill(far);
                all.coordinates[50 * d] = -far;
                let distinct = Distinct::new(&all);
                assert_eq!(rows(&nearest(&distinct, 9)), by_hand(&distinct, 9));
                let radius = 0.3 * (d as f64).sqrt();
                let square = |i: usize, j: &u32| {
                    squared_distance(distinct.row(i), distinct.row(*j as usize))
                };
                for (i, row) in rows(&within(&distinct, radius)).iter().enumerate() {
                    let near = (0..120).filter(|j| square(i, j) <= radius * radius);
                    assert_eq!(*row, near.collect::<Vec<u32>>());
                }
                let whole = rows(&within(&distinct, 1e300));
                assert!(whole.iter().all(|row| row.len() == 120));
            }
        }
    }

    #[test]
    fn equal_distances_are_broken_by_position() {
        let grid = (0..400).flat_map(|i| [f64::from(i % 20), f64::from(i / 20)]);
        let distinct = Distinct::new(&Points::new(2, grid.collect()));
        assert_eq!(rows(&nearest(&distinct, 6)), by_hand(&distinct, 6));
    }

    #[test]
    fn equal_rows_collapse_in_any_order() {
        let base = points(50, 2);
        let twice = [&base.coordinates[..], &base.coordinates].concat();
        let weights: Vec<f64> = (0..100).map(|i| f64::from(i % 7)).collect();
        let all = Distinct::new(&Points::new(2, twice.clone()).with_weights(weights.clone()));
        assert!(all.n() <= 50 && all.place.len() == 100);
        let reversed = Points::new(2, twice.chunks(2).rev().flatten().copied().collect());
        let reversed = Distinct::new(&reversed.with_weights(weights.into_iter().rev().collect()));
        assert!(all.coordinates == reversed.coordinates && all.weights == reversed.weights);
        let place: Vec<_> = reversed.place.into_iter().rev().collect();
        assert_eq!(all.place, place);
        assert_eq!(all.place[0], None);
    }

    #[test]
    fn the_longest_link_of_a_line() {
        let line = Points::new(1, vec![0.0, 7.0, 1.0, 9.5, 2.0]);
        let line = Distinct::new(&line);
        assert_eq!(longest_link(&line), 5.0);
        assert_eq!(longest_link_of(&line, &nearest(&line, 2)), Some(5.0));
        assert_eq!(longest_link_of(&line, &nearest(&line, 1)), None);
        let random = Distinct::new(&points(700, 3));
        let (whole, lists) = (longest_link(&random), nearest(&random, 30));
        assert_eq!(longest_link_of(&random, &lists), Some(whole));
    }
}
