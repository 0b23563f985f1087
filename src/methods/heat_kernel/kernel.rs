//! The Gaussian kernel K_ij = exp(−‖x_i − x_j‖² / ε) of distinct points, dense or sparse.
//!
//! In: distinct points, which entries to keep, and ε or a rule for it. Out: the kernel, and what is
//! known of its quality: ε with the reason for it, effective neighbours Σ_j K_ij, the mass of the
//! entries that were cut, and the connected components.
//!
//! Sparse entries are stored in single precision, 8 bytes each. Products sum in double precision
//! and in the order of the row, so they do not depend on threads.

use crate::error::{Error, Result, counted};
use crate::math::components;
use crate::math::dense::with_width;
use crate::methods::heat_kernel::neighbours::{
    self, BRUTE_FORCE_POINTS, Distinct, Lists, TREE_DIMENSIONS,
};
use crate::methods::heat_kernel::tree::{Near, squared_distance};
use crate::methods::heat_kernel::warning::Warning;
use crate::methods::heat_kernel::{exponential, random};
use multiversion::multiversion;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

/// The largest number of points of a dense kernel, which takes 3.2 GB.
pub(crate) const DENSE_POINTS: usize = 20_000;

/// Entries below this do not connect: two parts that are linked by them have an eigenvalue of 1 to
/// rounding. Sparse kernels leave them out.
pub(crate) const SMALLEST: f64 = 1e-14;

/// Squared distances near the end of the range of f64 lose digits.
const SMALLEST_EPSILON: f64 = 1e-280;

/// The value of the kernel at the radius, if ε follows from the radius.
const AT_RADIUS: f64 = 1e-4;

/// Points whose whole row is computed to measure the mass that was cut.
const SAMPLED_ROWS: usize = 64;

/// Points from which the bandwidth of a dense kernel is chosen.
const BANDWIDTH_POINTS: usize = 1000;

/// Rows per unit of parallel work.
const ROWS: usize = 512;

/// Which entries of a kernel are kept.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum Reach {
    /// All of them.
    All,
    /// Those of points within a distance.
    Radius(f64),
    /// Those of a point and its k nearest points, made symmetric by the larger entry.
    Neighbours(usize),
}

/// A kernel of distinct points.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// The points.
    pub points: Distinct,
    /// ε.
    pub epsilon: f64,
    /// Which entries were kept.
    pub reach: Reach,
    /// For k nearest points, the farthest of each, by its position in `whole`.
    pub farthest: Vec<Near>,
    /// All points, if only those of the largest component are kept.
    pub whole: Option<Whole>,
    entries: Entries,
}

/// The points of a kernel of which only some are kept. New rows need them: the neighbours of a row
/// may be points that are not kept.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    /// N × d, row-major.
    pub coordinates: Vec<f64>,
    /// For k nearest points, the farthest of each.
    pub farthest: Vec<Near>,
    /// Whether each point is kept.
    pub keep: Vec<bool>,
}

#[derive(Debug, Clone)]
enum Entries {
    /// n × n.
    Dense(Vec<f64>),
    Sparse {
        offsets: Vec<usize>,
        columns: Vec<u32>,
        values: Vec<f32>,
    },
}

/// What is known of the quality of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// ε.
    pub epsilon: f64,
    /// Where ε comes from, in words.
    pub reason: String,
    /// Distinct points that are embedded.
    pub points: usize,
    /// Entries of the kernel.
    pub entries: usize,
    /// The mean of Σ_j K_ij over the distinct points, or over the landmarks.
    pub effective_neighbours: f64,
    /// The share of Σ_j K_ij that was cut, on a sample of rows.
    pub cut: f64,
    /// Connected components before the largest was taken.
    pub components: usize,
}

/// The kernel of some points, restricted to its largest component. `epsilon` is chosen from the
/// points if it is not given.
///
/// # Errors
/// If there are fewer than two distinct points, too many for the method, or if the kernel has
/// several components and `only_connected` does not allow that or none has two points.
pub(crate) fn of(
    points: Distinct,
    reach: Reach,
    epsilon: Option<f64>,
    only_connected: bool,
) -> Result<(Kernel, Quality, Vec<Warning>)> {
    let n = points.n();
    let reach = match reach {
        Reach::Neighbours(k) if k + 1 >= n => Reach::All,
        other => other,
    };
    check_size(&points, reach)?;
    let lists = match reach {
        Reach::All => None,
        Reach::Radius(radius) => Some(neighbours::within(&points, radius)),
        Reach::Neighbours(k) => Some(neighbours::nearest(&points, k)),
    };
    let (epsilon, reason) = match epsilon {
        Some(epsilon) => (epsilon, "given".to_string()),
        None => bandwidth(&points, reach, lists.as_ref()),
    };
    if epsilon < SMALLEST_EPSILON {
        return Err(Error::input(format!(
            "epsilon = {epsilon:e} is too small: squares of distances as short as this one are not \
             exact; write `scale = \"standard\"`, or multiply the coordinates"
        )));
    }
    let (entries, farthest) = match lists {
        None => (Entries::Dense(dense(&points, epsilon)), Vec::new()),
        Some(lists) => {
            let farthest = lists.farthest;
            (
                sparse(&points, epsilon, lists.offsets, lists.columns),
                farthest,
            )
        }
    };
    let kernel = Kernel {
        points,
        epsilon,
        reach,
        farthest,
        whole: None,
        entries,
    };
    let (kernel, components, warnings) = kernel.largest_component(only_connected)?;
    let sums = kernel.sums(&vec![1.0; kernel.n()]);
    // Copies of a point, and the points that a landmark stands for, connect to nothing else.
    let mut of_points = vec![0.0; kernel.n()];
    kernel.multiply(&vec![1.0; kernel.n()], 1, &mut of_points);
    let effective_neighbours = of_points.iter().sum::<f64>() / kernel.n() as f64;
    let quality = Quality {
        epsilon,
        reason,
        points: kernel.n(),
        entries: kernel.entry_count(),
        effective_neighbours,
        cut: kernel.cut(&sums),
        components,
    };
    Ok((kernel, quality, warnings))
}

/// Fails if there are too few or too many points.
fn check_size(points: &Distinct, reach: Reach) -> Result<()> {
    let n = points.n();
    if n < 2 {
        let found = counted(n, "distinct point");
        return Err(Error::input(format!(
            "a kernel needs 2 distinct points, found {found}"
        )));
    }
    if reach == Reach::All && n > DENSE_POINTS {
        return Err(Error::input(format!(
            "{n} distinct points are too many for `neighbours = \"all\"`, which takes up to \
             {DENSE_POINTS}; set a number of neighbours, or `landmarks`"
        )));
    }
    if reach != Reach::All && points.dimension > TREE_DIMENSIONS && n > BRUTE_FORCE_POINTS {
        return Err(Error::input(format!(
            "neighbours of {n} points in {} dimensions need all distances, which takes up to \
             {BRUTE_FORCE_POINTS} points; set `landmarks`",
            points.dimension
        )));
    }
    Ok(())
}

/// ε by the points and their lists of neighbours, and where it comes from, in words.
fn bandwidth(points: &Distinct, reach: Reach, lists: Option<&Lists>) -> (f64, String) {
    match reach {
        Reach::Neighbours(k) => {
            let mut squares = lists.map_or(Vec::new(), Lists::squares);
            let middle = squares.len() / 2;
            let median = *squares.select_nth_unstable_by(middle, f64::total_cmp).1;
            let reason = format!("a quarter of the median squared distance of neighbour {k}");
            (median / 4.0, reason)
        }
        Reach::Radius(radius) => {
            let reason = format!("the kernel is {AT_RADIUS:e} at the radius");
            (neighbours::square_of(radius) / -AT_RADIUS.ln(), reason)
        }
        Reach::All => {
            let (epsilon, dimension) = steepest(points);
            let reason = format!(
                "the sum of the kernel grows fastest there, as in {dimension:.1} dimensions"
            );
            (epsilon, reason)
        }
    }
}

/// The bandwidth at which log Σ_ij K_ij grows fastest with log ε, and twice that slope, which
/// estimates the dimension of the points (Coifman, Shkolnisky, Sigworth & Singer, IEEE Trans. Image
/// Process. 17, 2008; Berry & Harlim, Appl. Comput. Harmon. Anal. 40, 2016).
pub(crate) fn steepest(points: &Distinct) -> (f64, f64) {
    let n = points.n();
    let step = n.div_ceil(BANDWIDTH_POINTS);
    let some: Vec<usize> = (0..n).step_by(step).collect();
    let squares: Vec<Vec<f64>> = (some.par_iter())
        .map(|&i| {
            let square = |&j: &usize| squared_distance(points.row(i), points.row(j));
            some.iter().filter(|&&j| j != i).map(square).collect()
        })
        .collect();
    let near = |row: &Vec<f64>| row.iter().copied().fold(f64::INFINITY, f64::min);
    let least = squares.iter().map(near).fold(f64::INFINITY, f64::min);
    let most = squares.iter().flatten().copied().fold(0.0, f64::max);
    // A quarter of a power of two per step, from a half of the least to the largest square.
    let factor = 2f64.powf(0.25);
    let steps = ((2.0 * most / least).ln() / factor.ln()).ceil().min(400.0) as usize + 2;
    let grid: Vec<f64> = (0..steps)
        .map(|t| least / 2.0 * factor.powi(t as i32))
        .collect();
    let sums: Vec<f64> = grid
        .par_iter()
        .map(|epsilon| {
            let mut copy = Vec::new();
            let row = |row: &Vec<f64>| {
                copy.clone_from(row);
                exponential::scaled(&mut copy, -1.0 / epsilon);
                1.0 + copy.iter().sum::<f64>()
            };
            squares.iter().map(row).sum::<f64>()
        })
        .collect();
    let slope = |t: usize| (sums[t + 1] / sums[t]).ln() / factor.ln();
    let best = (0..steps - 1).fold(0, |a, t| if slope(t) > slope(a) { t } else { a });
    ((grid[best] * grid[best + 1]).sqrt(), 2.0 * slope(best))
}

fn dense(points: &Distinct, epsilon: f64) -> Vec<f64> {
    let n = points.n();
    let mut entries = vec![0.0; n * n];
    entries.par_chunks_mut(n).enumerate().for_each(|(i, row)| {
        let others = points.coordinates.chunks_exact(points.dimension);
        for (entry, other) in row.iter_mut().zip(others) {
            *entry = squared_distance(points.row(i), other);
        }
        exponential::scaled(row, -1.0 / epsilon);
    });
    entries
}

/// The values of lists of neighbours, without those below [`SMALLEST`].
fn sparse(points: &Distinct, epsilon: f64, offsets: Vec<usize>, columns: Vec<u32>) -> Entries {
    let mut values = vec![0f32; columns.len()];
    let n = points.n();
    let mut rest = &mut values[..];
    let mut work = Vec::with_capacity(n.div_ceil(ROWS));
    for first in (0..n).step_by(ROWS) {
        let end = (first + ROWS).min(n);
        let (own, later) = rest.split_at_mut(offsets[end] - offsets[first]);
        work.push((first..end, own));
        rest = later;
    }
    let smallest: Vec<f64> = work
        .into_par_iter()
        .map_init(Vec::new, |row, (own, mut out)| {
            let mut smallest = 1.0f64;
            for i in own {
                let neighbours = &columns[offsets[i]..offsets[i + 1]];
                let square = |&j: &u32| squared_distance(points.row(i), points.row(j as usize));
                row.clear();
                row.extend(neighbours.iter().map(square));
                exponential::scaled(row, -1.0 / epsilon);
                let (values, later) = out.split_at_mut(row.len());
                for (value, entry) in values.iter_mut().zip(&*row) {
                    smallest = smallest.min(*entry);
                    *value = if *entry < SMALLEST {
                        0.0
                    } else {
                        *entry as f32
                    };
                }
                out = later;
            }
            smallest
        })
        .collect();
    let all = Entries::Sparse {
        offsets,
        columns,
        values,
    };
    if smallest.iter().all(|s| *s >= SMALLEST) {
        return all;
    }
    all.kept(&vec![true; n])
}

impl Entries {
    /// The rows and columns of some points, without zeros of sparse entries.
    fn kept(&self, keep: &[bool]) -> Entries {
        let n = keep.len();
        match self {
            Entries::Dense(entries) => {
                let rows = entries.chunks_exact(n).zip(keep).filter(|(_, keep)| **keep);
                let row = |row: &[f64]| -> Vec<f64> {
                    let kept = row.iter().zip(keep).filter(|(_, keep)| **keep);
                    kept.map(|(entry, _)| *entry).collect()
                };
                Entries::Dense(rows.flat_map(|(entries, _)| row(entries)).collect())
            }
            Entries::Sparse {
                offsets,
                columns,
                values,
            } => {
                let mut position = vec![0u32; n];
                let mut next = 0;
                for (position, keep) in position.iter_mut().zip(keep) {
                    *position = next;
                    next += u32::from(*keep);
                }
                let mut kept = (vec![0], Vec::new(), Vec::new());
                for i in (0..n).filter(|&i| keep[i]) {
                    for e in offsets[i]..offsets[i + 1] {
                        let j = columns[e] as usize;
                        if keep[j] && values[e] > 0.0 {
                            kept.1.push(position[j]);
                            kept.2.push(values[e]);
                        }
                    }
                    kept.0.push(kept.1.len());
                }
                Entries::Sparse {
                    offsets: kept.0,
                    columns: kept.1,
                    values: kept.2,
                }
            }
        }
    }

    /// The component of every point.
    fn components(&self, n: usize) -> Vec<u32> {
        match self {
            Entries::Sparse {
                offsets, columns, ..
            } => components::strong(n, |i| &columns[offsets[i]..offsets[i + 1]]),
            Entries::Dense(entries) => {
                let mut component = vec![u32::MAX; n];
                let mut components = 0;
                for root in 0..n {
                    if component[root] < u32::MAX {
                        continue;
                    }
                    let mut open = vec![root];
                    component[root] = components;
                    while let Some(i) = open.pop() {
                        for (j, entry) in entries[i * n..][..n].iter().enumerate() {
                            if component[j] == u32::MAX && *entry >= SMALLEST {
                                component[j] = components;
                                open.push(j);
                            }
                        }
                    }
                    components += 1;
                }
                component
            }
        }
    }
}

impl Kernel {
    /// The dense kernel of points with weights of their own.
    #[cfg(test)]
    pub(crate) fn dense(points: Distinct, epsilon: f64) -> Kernel {
        Kernel {
            entries: Entries::Dense(dense(&points, epsilon)),
            points,
            epsilon,
            reach: Reach::All,
            farthest: Vec::new(),
            whole: None,
        }
    }

    /// The number of points.
    pub(crate) fn n(&self) -> usize {
        self.points.n()
    }

    /// The number of entries.
    fn entry_count(&self) -> usize {
        match &self.entries {
            Entries::Dense(entries) => entries.len(),
            Entries::Sparse { columns, .. } => columns.len(),
        }
    }

    /// out = Kx, for `x` of `n × width`, row-major.
    pub(crate) fn multiply(&self, x: &[f64], width: usize, out: &mut [f64]) {
        let n = self.n();
        assert!(x.len() == n * width && out.len() == n * width);
        out.par_chunks_mut(ROWS * width)
            .enumerate()
            .for_each(|(block, out)| {
                let first = block * ROWS;
                match &self.entries {
                    Entries::Dense(entries) => {
                        let rows = &entries[first * n..][..out.len() / width * n];
                        with_width!(width, dense_rows(rows, x, out));
                    }
                    Entries::Sparse {
                        offsets,
                        columns,
                        values,
                    } => {
                        let offsets = &offsets[first..=first + out.len() / width];
                        with_width!(width, sparse_rows(offsets, columns, values, x, out));
                    }
                }
            });
    }

    /// Σ_j K_ij w_j f_j.
    pub(crate) fn sums(&self, f: &[f64]) -> Vec<f64> {
        let weighted: Vec<f64> = f
            .iter()
            .zip(&self.points.weights)
            .map(|(f, w)| f * w)
            .collect();
        let mut out = vec![0.0; f.len()];
        self.multiply(&weighted, 1, &mut out);
        out
    }

    /// The largest component, the number of components, and a warning if there are several.
    fn largest_component(self, only_connected: bool) -> Result<(Kernel, usize, Vec<Warning>)> {
        let n = self.n();
        let component = self.entries.components(n);
        let components = component.iter().max().map_or(0, |last| *last as usize + 1);
        if components == 1 {
            return Ok((self, 1, Vec::new()));
        }
        let mut sizes = vec![0usize; components];
        component.iter().for_each(|c| sizes[*c as usize] += 1);
        // The first in the order of the points, if several are equally large.
        let most = sizes.iter().copied().max().unwrap_or(0);
        let largest = component.iter().find(|c| sizes[**c as usize] == most);
        if only_connected || most < 2 {
            return Err(self.unconnected(components, most));
        }
        let keep: Vec<bool> = component.iter().map(|c| Some(c) == largest).collect();
        let farthest = self.farthest.iter().zip(&keep).filter(|(_, keep)| **keep);
        let kernel = Kernel {
            entries: self.entries.kept(&keep),
            points: self.points.subset(&keep),
            farthest: farthest.map(|(f, _)| *f).collect(),
            whole: Some(Whole {
                coordinates: self.points.coordinates,
                farthest: self.farthest,
                keep,
            }),
            ..self
        };
        let warning = Warning::Components {
            components,
            isolated: sizes.iter().filter(|size| **size == 1).count(),
            kept: most,
            dropped: n - most,
        };
        Ok((kernel, components, vec![warning]))
    }

    /// The error of a kernel with several components. The links are those of the stored pairs of
    /// points, which may have entries that are too small to connect, or else of all pairs.
    fn unconnected(&self, components: usize, largest: usize) -> Error {
        let (n, epsilon) = (self.n(), self.epsilon);
        let start = format!(
            "the kernel with epsilon = {epsilon} has {} and the largest has {largest} of {n} points",
            counted(components, "component")
        );
        let link = match self.reach {
            Reach::All => Some(neighbours::longest_link(&self.points)),
            Reach::Radius(radius) => {
                let lists = neighbours::within(&self.points, radius);
                neighbours::longest_link_of(&self.points, &lists)
            }
            Reach::Neighbours(k) => {
                let lists = neighbours::nearest(&self.points, k);
                neighbours::longest_link_of(&self.points, &lists)
            }
        };
        Error::input(match (self.reach, link) {
            (_, Some(link)) => {
                let least = link * link;
                format!("{start}; an epsilon of at least {least} connects it")
            }
            (Reach::Radius(_), None) if n <= DENSE_POINTS => {
                let link = neighbours::longest_link(&self.points);
                let least = link * link;
                format!(
                    "{start}; a radius of at least {link} and an epsilon near {least} connect it"
                )
            }
            (Reach::Neighbours(_), None) if n <= DENSE_POINTS => {
                let link = neighbours::longest_link(&self.points);
                let least = link * link;
                format!(
                    "{start}; `neighbours = \"all\"` and an epsilon of at least {least} connect it"
                )
            }
            (Reach::Radius(_), None) => format!("{start}; set a larger radius and epsilon"),
            _ => format!("{start}; set more neighbours"),
        })
    }

    /// ‖B‖_F² of B = S K S, where S has the factors `scale` on its diagonal.
    pub(crate) fn square_sum(&self, scale: &[f64]) -> f64 {
        let n = self.n();
        let squares: Vec<f64> = scale.iter().map(|s| s * s).collect();
        let row = |i: usize| -> f64 {
            let sum: f64 = match &self.entries {
                Entries::Dense(entries) => {
                    let row = entries[i * n..][..n].iter().zip(&squares);
                    row.map(|(entry, s)| entry * entry * s).sum()
                }
                Entries::Sparse {
                    offsets,
                    columns,
                    values,
                } => {
                    let own = offsets[i]..offsets[i + 1];
                    let row = columns[own.clone()].iter().zip(&values[own]);
                    row.map(|(j, entry)| f64::from(*entry).powi(2) * squares[*j as usize])
                        .sum()
                }
            };
            sum * squares[i]
        };
        let rows: Vec<f64> = (0..n).into_par_iter().map(row).collect();
        rows.iter().sum()
    }

    /// The share of the row sums that was cut, on some rows.
    fn cut(&self, sums: &[f64]) -> f64 {
        if matches!(self.entries, Entries::Dense(_)) {
            return 0.0;
        }
        let (n, points) = (self.n(), &self.points);
        let rows: Vec<usize> = (0..SAMPLED_ROWS.min(n) as u64)
            .map(|i| (random::uniform(random::hash(0, i)) * n as f64) as usize)
            .collect();
        let whole: Vec<f64> = rows
            .par_iter()
            .map(|&i| {
                let others = points.coordinates.chunks_exact(points.dimension);
                let mut row: Vec<f64> = others
                    .map(|other| squared_distance(points.row(i), other))
                    .collect();
                exponential::scaled(&mut row, -1.0 / self.epsilon);
                row.iter().zip(&points.weights).map(|(k, w)| k * w).sum()
            })
            .collect();
        let kept: f64 = rows.iter().map(|&i| sums[i]).sum();
        (1.0 - kept / whole.iter().sum::<f64>()).max(0.0)
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn dense_rows<const W: usize>(rows: &[f64], x: &[f64], out: &mut [f64]) {
    let x = x.as_chunks::<W>().0;
    for (row, out) in rows.chunks_exact(x.len()).zip(out.as_chunks_mut::<W>().0) {
        // Four partial sums hide the latency of an addition.
        let mut sums = [[0.0; W]; 4];
        let (entries, last) = row.as_chunks::<4>();
        let (blocks, last_x) = x.as_chunks::<4>();
        for (entries, x) in entries.iter().zip(blocks) {
            for ((sums, entry), x) in sums.iter_mut().zip(entries).zip(x) {
                for (sum, x) in sums.iter_mut().zip(x) {
                    *sum += entry * x;
                }
            }
        }
        for (entry, x) in last.iter().zip(last_x) {
            for (sum, x) in sums[0].iter_mut().zip(x) {
                *sum += entry * x;
            }
        }
        *out = std::array::from_fn(|c| (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]));
    }
}

#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn sparse_rows<const W: usize>(
    offsets: &[usize],
    columns: &[u32],
    values: &[f32],
    x: &[f64],
    out: &mut [f64],
) {
    let x = x.as_chunks::<W>().0;
    for (span, out) in offsets.windows(2).zip(out.as_chunks_mut::<W>().0) {
        let columns = &columns[span[0]..span[1]];
        let values = &values[span[0]..span[1]];
        let mut sums = [[0.0; W]; 4];
        let (groups, last) = columns.as_chunks::<4>();
        let (entries, last_entry) = values.as_chunks::<4>();
        for (columns, entries) in groups.iter().zip(entries) {
            for ((sums, j), entry) in sums.iter_mut().zip(columns).zip(entries) {
                let entry = f64::from(*entry);
                for (sum, x) in sums.iter_mut().zip(&x[*j as usize]) {
                    *sum += entry * x;
                }
            }
        }
        for (j, entry) in last.iter().zip(last_entry) {
            for (sum, x) in sums[0].iter_mut().zip(&x[*j as usize]) {
                *sum += f64::from(*entry) * x;
            }
        }
        *out = std::array::from_fn(|c| (sums[0][c] + sums[1][c]) + (sums[2][c] + sums[3][c]));
    }
}
