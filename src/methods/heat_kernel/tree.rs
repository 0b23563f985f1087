//! A kd-tree of distinct points: leaves of [`LANES`] points, and the bounding box of every node.
//!
//! In: points (`n × d`, row-major). Out: the order of the points in the leaves, in which the
//! neighbours of a point are close to it in memory, and all points within a distance.
//!
//! Squared distances are sums over the coordinates in their order, so a pair of points has the same
//! bits from either side.

use multiversion::multiversion;

/// Points per leaf, whose distances are computed together.
pub(crate) const LANES: usize = 16;

/// A point and its squared distance.
pub(crate) type Near = (f64, u32);

/// A kd-tree.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    dimension: usize,
    n: usize,
    /// Coordinate c of the points of leaf l is at `(l d + c) · LANES`. Missing points of the last
    /// leaf are at infinity.
    leaves: Vec<f64>,
    /// Low and high corner of the box of every node, in preorder.
    boxes: Vec<f64>,
}

/// The order of points in a kd-tree: position → point.
pub(crate) fn order(points: &[f64], dimension: usize) -> Vec<u32> {
    let n = points.len() / dimension;
    let mut order: Vec<u32> = (0..n as u32).collect();
    arrange(points, dimension, &mut order);
    order
}

/// Splits along the longest side of the box, at a multiple of [`LANES`] points.
fn arrange(points: &[f64], dimension: usize, order: &mut [u32]) {
    let leaves = order.len().div_ceil(LANES);
    if leaves <= 1 {
        order.sort_unstable();
        return;
    }
    let mut corners = vec![f64::INFINITY; dimension];
    corners.resize(2 * dimension, f64::NEG_INFINITY);
    for &i in order.iter() {
        extend(&mut corners, &points[i as usize * dimension..][..dimension]);
    }
    let side = |c: usize| corners[dimension + c] - corners[c];
    let longest = (0..dimension).fold(0, |a, c| if side(c) > side(a) { c } else { a });
    let coordinate = |i: u32| points[i as usize * dimension + longest];
    let middle = leaves.div_ceil(2) * LANES;
    order.select_nth_unstable_by(middle, |&a, &b| {
        coordinate(a).total_cmp(&coordinate(b)).then(a.cmp(&b))
    });
    let (low, high) = order.split_at_mut(middle);
    rayon::join(
        || arrange(points, dimension, low),
        || arrange(points, dimension, high),
    );
}

fn extend(corners: &mut [f64], point: &[f64]) {
    let (low, high) = corners.split_at_mut(point.len());
    for ((low, high), x) in low.iter_mut().zip(high).zip(point) {
        *low = low.min(*x);
        *high = high.max(*x);
    }
}

impl Tree {
    /// The tree of points that are in its order ([`order`]).
    pub(crate) fn new(points: &[f64], dimension: usize) -> Tree {
        let n = points.len() / dimension;
        let leaf_count = n.div_ceil(LANES);
        let mut leaves = vec![f64::INFINITY; leaf_count * dimension * LANES];
        for (i, point) in points.chunks_exact(dimension).enumerate() {
            for (c, x) in point.iter().enumerate() {
                leaves[(i / LANES * dimension + c) * LANES + i % LANES] = *x;
            }
        }
        let nodes = (2 * leaf_count).saturating_sub(1);
        let mut boxes = vec![f64::INFINITY; 2 * dimension];
        boxes[dimension..].fill(f64::NEG_INFINITY);
        let mut tree = Tree {
            dimension,
            n,
            leaves,
            boxes: boxes.repeat(nodes),
        };
        if leaf_count > 0 {
            tree.bound(points, 0, 0, leaf_count);
        }
        tree
    }

    /// Sets the boxes of a node and of those below it.
    fn bound(&mut self, points: &[f64], node: usize, first: usize, end: usize) {
        let (d, width) = (self.dimension, 2 * self.dimension);
        if end - first == 1 {
            let own = &points[first * LANES * d..(end * LANES).min(self.n) * d];
            for point in own.chunks_exact(d) {
                extend(&mut self.boxes[node * width..][..width], point);
            }
            return;
        }
        let middle = first + (end - first).div_ceil(2);
        let right = node + 2 * (middle - first);
        self.bound(points, node + 1, first, middle);
        self.bound(points, right, middle, end);
        for child in [node + 1, right] {
            let corners = self.boxes[child * width..][..width].to_vec();
            let own = &mut self.boxes[node * width..][..width];
            extend(own, &corners[..d]);
            extend(own, &corners[d..]);
        }
    }

    /// The number of points.
    pub(crate) fn n(&self) -> usize {
        self.n
    }

    /// The number of leaves.
    pub(crate) fn leaf_count(&self) -> usize {
        self.n.div_ceil(LANES)
    }

    /// For every node the largest of the numbers of its points, in preorder.
    pub(crate) fn largest(&self, numbers: &[f64]) -> Vec<f64> {
        let mut out = vec![f64::NEG_INFINITY; self.boxes.len() / (2 * self.dimension)];
        if self.n > 0 {
            self.largest_below(numbers, 0, 0, self.leaf_count(), &mut out);
        }
        out
    }

    fn largest_below(
        &self,
        numbers: &[f64],
        node: usize,
        first: usize,
        end: usize,
        out: &mut [f64],
    ) -> f64 {
        out[node] = if end - first == 1 {
            let own = &numbers[first * LANES..(end * LANES).min(self.n)];
            own.iter().copied().fold(f64::NEG_INFINITY, f64::max)
        } else {
            let middle = first + (end - first).div_ceil(2);
            let left = self.largest_below(numbers, node + 1, first, middle, out);
            let right = node + 2 * (middle - first);
            left.max(self.largest_below(numbers, right, middle, end, out))
        };
        out[node]
    }

    /// The leaves, ascending, whose box may be within the squared distance `bound` of the box from
    /// `low` to `high`. `own` may give each node a larger bound ([`Tree::largest`]).
    pub(crate) fn leaves_within(
        &self,
        [low, high]: [&[f64]; 2],
        bound: f64,
        own: &[f64],
        out: &mut Vec<u32>,
    ) {
        out.clear();
        let d = self.dimension;
        let mut open = vec![(0, 0, self.leaf_count())];
        while let Some((node, first, end)) = open.pop() {
            let corners = &self.boxes[node * 2 * d..][..2 * d];
            let mut square = 0.0;
            for c in 0..d {
                let gap = (low[c] - corners[d + c]).max(corners[c] - high[c]).max(0.0);
                square += gap * gap;
            }
            // The rounding of a box distance must not lose a point on the bound.
            let bound = own.get(node).map_or(bound, |own| own.max(bound));
            if square * (1.0 - 1e-12) > bound {
                continue;
            }
            if end - first == 1 {
                out.push(first as u32);
                continue;
            }
            let middle = first + (end - first).div_ceil(2);
            open.push((node + 2 * (middle - first), middle, end));
            open.push((node + 1, first, middle));
        }
    }

    /// The points of some leaves within a squared distance of `x`, in the order of the leaves.
    pub(crate) fn gather(&self, leaves: &[u32], x: &[f64], bound: f64, out: &mut Vec<Near>) {
        gather(&self.leaves, leaves, x, bound, out);
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn gather(all: &[f64], leaves: &[u32], x: &[f64], bound: f64, out: &mut Vec<Near>) {
    out.resize(leaves.len() * LANES, (0.0, 0));
    let mut found = 0;
    for &leaf in leaves {
        let start = leaf as usize * x.len();
        let leaf_coordinates = &all.as_chunks::<LANES>().0[start..start + x.len()];
        let mut squares = [0.0; LANES];
        for (coordinates, x) in leaf_coordinates.iter().zip(x) {
            for (square, y) in squares.iter_mut().zip(coordinates) {
                *square += (y - x) * (y - x);
            }
        }
        if squares.iter().all(|s| *s > bound) {
            continue;
        }
        // Always written, but counted only if near: no branch that is hard to predict.
        for (lane, square) in (0..).zip(squares) {
            out[found] = (square, leaf * LANES as u32 + lane);
            found += usize::from(square <= bound);
        }
    }
    out.truncate(found);
}

/// ‖a − b‖², with the same bits as in [`Tree::gather`].
#[inline(always)]
pub(crate) fn squared_distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter()
        .zip(b)
        .fold(0.0, |sum, (a, b)| sum + (a - b) * (a - b))
}
