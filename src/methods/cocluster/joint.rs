//! The joint distribution of a set of sources and a set of targets, as a small table of counts, and
//! its mutual information.
//!
//! In: counts C, sets of rows × sets of columns, r × r row-major. Out: S I = Σ_kl C_kl log C_kl −
//! Σ_k C_k· log C_k· − Σ_l C_·l log C_·l + S log S, parts of it, and smaller tables made by merging
//! the sets that lose the least information (agglomerative information bottleneck, Slonim & Tishby
//! 1999).

/// A gain of S I below this share of S (1 + |log S|) is rounding.
const NO_GAIN: f64 = 1e-14;

/// x log x, and 0 for 0.
#[inline(always)]
pub(crate) fn x_log_x(x: f64) -> f64 {
    if x > 0.0 { x * x.ln() } else { 0.0 }
}

/// I of a table of counts, nats.
pub(crate) fn information(counts: &[f64], rank: usize) -> f64 {
    Table::of(counts.to_vec(), rank).information()
}

/// The coarse joint table, sets of rows × sets of columns, and its margins.
pub(crate) struct Table {
    /// r.
    pub rank: usize,
    /// r × r row-major.
    pub counts: Vec<f64>,
    /// C_k·, r values.
    pub row_totals: Vec<f64>,
    /// C_·l, r values.
    pub column_totals: Vec<f64>,
    /// S.
    pub total: f64,
}

impl Table {
    /// The table of rows (n × r sums over the sets of columns) with one set per row.
    pub(crate) fn new(rows: &[f64], labels: &[u32], rank: usize) -> Table {
        let mut counts = vec![0.0; rank * rank];
        for (row, &k) in rows.chunks_exact(rank).zip(labels) {
            let own = &mut counts[k as usize * rank..][..rank];
            own.iter_mut().zip(row).for_each(|(c, x)| *c += x);
        }
        Table::of(counts, rank)
    }

    /// The table with given counts.
    pub(crate) fn of(counts: Vec<f64>, rank: usize) -> Table {
        let row_totals: Vec<f64> = counts
            .chunks_exact(rank)
            .map(|row| row.iter().sum())
            .collect();
        let column = |l: usize| counts.iter().skip(l).step_by(rank).sum();
        Table {
            rank,
            column_totals: (0..rank).map(column).collect(),
            total: row_totals.iter().sum(),
            row_totals,
            counts,
        }
    }

    /// I, nats.
    pub(crate) fn information(&self) -> f64 {
        let sum = |x: &[f64]| x.iter().map(|&x| x_log_x(x)).sum::<f64>();
        let margins = sum(&self.row_totals) + sum(&self.column_totals);
        ((sum(&self.counts) - margins + x_log_x(self.total)) / self.total).max(0.0)
    }

    /// A gain of S I up to this is rounding.
    pub(crate) fn no_gain(&self) -> f64 {
        NO_GAIN * self.total * (1.0 + self.total.ln().abs())
    }

    /// Pr[column set | row set], r × r row-major; 0 for an empty set.
    pub(crate) fn conditional(&self) -> Vec<f64> {
        let rows = self.counts.chunks_exact(self.rank).zip(&self.row_totals);
        rows.flat_map(|(row, &total)| {
            row.iter()
                .map(move |&c| if total > 0.0 { c / total } else { 0.0 })
        })
        .collect()
    }

    /// The part of S I that depends on the sets of rows, for fixed sets of columns.
    pub(crate) fn score(&self) -> f64 {
        let sum = |x: &[f64]| x.iter().map(|&x| x_log_x(x)).sum::<f64>();
        sum(&self.counts) - sum(&self.row_totals)
    }
}

/// Merges rows and columns of a square table in turn, each time the pair that loses the least
/// information, until `rank` of each are left. Returns the merged set of every row.
pub(crate) fn merge(mut counts: Vec<f64>, fine: usize, rank: usize) -> Vec<u32> {
    let mut place: Vec<usize> = (0..fine).collect();
    let (mut n_rows, mut n_columns) = (fine, fine);
    while n_rows > rank {
        let (a, b) = cheapest(&counts, n_columns);
        counts = merged_rows(&counts, n_columns, a, b);
        n_rows -= 1;
        for at in &mut place {
            *at = if *at == b {
                a
            } else {
                *at - usize::from(*at > b)
            };
        }
        let columns = transposed(&counts, n_columns);
        let (a, b) = cheapest(&columns, n_rows);
        counts = transposed(&merged_rows(&columns, n_rows, a, b), n_rows);
        n_columns -= 1;
    }
    place.into_iter().map(|at| at as u32).collect()
}

/// The rows a < b of a table whose union loses the least of Σ x log x over entries and row totals.
fn cheapest(counts: &[f64], n_columns: usize) -> (usize, usize) {
    let rows: Vec<&[f64]> = counts.chunks_exact(n_columns).collect();
    let mut best = (0, 1, f64::INFINITY);
    for b in 1..rows.len() {
        for a in 0..b {
            let (mut of_a, mut of_b, mut cost) = (0.0, 0.0, 0.0);
            for (x, y) in rows[a].iter().zip(rows[b]) {
                (of_a, of_b) = (of_a + x, of_b + y);
                cost += x_log_x(*x) + x_log_x(*y) - x_log_x(x + y);
            }
            cost -= x_log_x(of_a) + x_log_x(of_b) - x_log_x(of_a + of_b);
            if cost < best.2 {
                best = (a, b, cost);
            }
        }
    }
    (best.0, best.1)
}

fn merged_rows(counts: &[f64], n_columns: usize, a: usize, b: usize) -> Vec<f64> {
    let mut counts = counts.to_vec();
    let gone: Vec<f64> = counts.drain(b * n_columns..(b + 1) * n_columns).collect();
    let kept = &mut counts[a * n_columns..][..n_columns];
    kept.iter_mut().zip(gone).for_each(|(c, x)| *c += x);
    counts
}

fn transposed(counts: &[f64], n_columns: usize) -> Vec<f64> {
    let column = |l: usize| counts.iter().skip(l).step_by(n_columns);
    (0..n_columns).flat_map(column).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Rows 0 and 2 are proportional, as are rows 1 and 3 except for one count, and columns 0 and 1,
    // 2 and 3.
    #[test]
    fn merging_keeps_what_differs() {
        #[rustfmt::skip]
        let counts = vec![
            4.0, 8.0, 0.0, 0.0,
            0.0, 0.0, 3.0, 3.0,
            2.0, 4.0, 0.0, 0.0,
            0.0, 1.0, 5.0, 5.0,
        ];
        assert_eq!(cheapest(&counts, 4), (0, 2));
        assert_eq!(merge(counts.clone(), 4, 3), [0, 1, 0, 2]);
        assert_eq!(merge(counts, 4, 2), [0, 1, 0, 1]);
    }

    // C = [[1, 1], [0, 2]]: I = ¼ log (4/2) + ¼ log (4/6) + ½ log (8/6), in counts 1·4/(2·1),
    // 1·4/(2·3), 2·4/(2·3).
    #[test]
    fn information_by_hand() {
        let table = Table::of(vec![1.0, 1.0, 0.0, 2.0], 2);
        let by_hand = 0.25 * 2f64.ln() + 0.25 * (2.0 / 3.0f64).ln() + 0.5 * (4.0 / 3.0f64).ln();
        assert!((table.information() - by_hand).abs() < 1e-15);
        assert_eq!(table.conditional(), [0.5, 0.5, 0.0, 1.0]);
        // Without the terms of the columns and of S.
        let columns = x_log_x(1.0) + x_log_x(3.0) - x_log_x(4.0);
        assert!((table.score() - columns - 4.0 * by_hand).abs() < 1e-14);
    }
}
