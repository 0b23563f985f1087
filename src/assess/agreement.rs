//! Agreement of two labelings of the same states.
//!
//! In: a label for every state in A and in B (−1: none), and a positive weight for it. Out: their
//! contingency table (sets of A × sets of B), the adjusted Rand index (Hubert and Arabie, J.
//! Classification 2, 1985) and the variation of information (Meilă, J. Multivariate Analysis 98,
//! 2007). `match_sets` matches the sets.

/// The contingency table of two labelings. States without a label in A or in B are left out.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contingency {
    /// The number of sets of A.
    pub rows: usize,
    /// The number of sets of B.
    pub columns: usize,
    /// Σ w over the states of a cell, rows × columns, row-major. Exact for integer weights.
    pub weight: Vec<f64>,
    /// Σ w² over the states of a cell.
    squares: Vec<f64>,
}

impl Contingency {
    /// Counts the states `0..a.len()`. Labels are below `rows` and `columns`.
    pub(crate) fn new(
        a: &[i32],
        b: &[i32],
        weights: &[f64],
        rows: usize,
        columns: usize,
    ) -> Contingency {
        assert!(
            a.len() == b.len() && a.len() == weights.len(),
            "every state has two labels and a weight"
        );
        let (mut weight, mut squares) = (vec![0.0; rows * columns], vec![0.0; rows * columns]);
        for ((&k, &l), &w) in a.iter().zip(b).zip(weights) {
            if k >= 0 && l >= 0 {
                assert!((l as usize) < columns, "a label lies below the rank");
                let cell = k as usize * columns + l as usize;
                weight[cell] += w;
                squares[cell] += w * w;
            }
        }
        Contingency {
            rows,
            columns,
            weight,
            squares,
        }
    }

    /// Σ w over the states of a cell.
    pub(crate) fn at(&self, row: usize, column: usize) -> f64 {
        self.weight[row * self.columns + column]
    }

    /// The weights of the sets of A.
    pub(crate) fn row_sums(&self) -> Vec<f64> {
        sums(&self.weight, self.rows, self.columns).0
    }

    /// The weights of the sets of B.
    pub(crate) fn column_sums(&self) -> Vec<f64> {
        sums(&self.weight, self.rows, self.columns).1
    }
}

fn sums(cells: &[f64], rows: usize, columns: usize) -> (Vec<f64>, Vec<f64>) {
    let row = |k| cells[k * columns..][..columns].iter().sum();
    let column = |l| (0..rows).map(|k| cells[k * columns + l]).sum();
    (
        (0..rows).map(row).collect(),
        (0..columns).map(column).collect(),
    )
}

/// The adjusted Rand index: 1 for equal partitions, about 0 for independent ones. The weight of a
/// pair of states is w_i w_j, so weights of one give the index over states. Two trivial partitions
/// agree.
pub(crate) fn adjusted_rand(table: &Contingency) -> f64 {
    // The weight of all pairs of different states in each group: ((Σ w)² − Σ w²) / 2.
    let pairs = |weights: &[f64], squares: &[f64]| -> f64 {
        let pair = |(w, s): (&f64, &f64)| (w * w - s) / 2.0;
        weights.iter().zip(squares).map(pair).sum()
    };
    let (of_a, of_b) = sums(&table.weight, table.rows, table.columns);
    let (squares_a, squares_b) = sums(&table.squares, table.rows, table.columns);
    let all = pairs(&[of_a.iter().sum()], &[squares_a.iter().sum()]);
    let both = pairs(&table.weight, &table.squares);
    let only_a = pairs(&of_a, &squares_a) - both;
    let only_b = pairs(&of_b, &squares_b) - both;
    let neither = all - both - only_a - only_b;
    let spread = (both + only_a) * (only_a + neither) + (both + only_b) * (only_b + neither);
    if (only_a == 0.0 && only_b == 0.0) || spread <= 0.0 {
        return 1.0;
    }
    2.0 * (both * neither - only_a * only_b) / spread
}

/// The variation of information H(A|B) + H(B|A), nats: 0 for equal partitions, at most ln of the
/// number of states.
pub(crate) fn variation_of_information(table: &Contingency) -> f64 {
    let (of_a, of_b) = (table.row_sums(), table.column_sums());
    let total: f64 = of_a.iter().sum();
    let mut information = 0.0;
    for (k, a) in of_a.iter().enumerate() {
        for (l, b) in of_b.iter().enumerate() {
            let n = table.at(k, l);
            if n > 0.0 {
                information += n / total * ((a / n).ln() + (b / n).ln());
            }
        }
    }
    information
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn table(a: &[i32], b: &[i32]) -> Contingency {
        Contingency::new(a, b, &vec![1.0; a.len()], 3, 3)
    }

    //       b: 0 1 2
    // a = 0    2 1 0   Pairs in cells 1 + 1 + 1 = 3, in rows 3 + 3 + 1 = 7, in columns
    // a = 1    0 2 1   1 + 3 + 3 = 7, of 28 in all: the index is (3 − 49/28) / (7 − 49/28) = 5/21.
    // a = 2    0 0 2   scikit-learn 1.9.1: 0.23809523809523808.
    // Each cell adds terms of its row and its column: VI = ⅛ (2 (ln 3/2 + 0) + (ln 3 + ln 3)
    // + 2 (ln 3/2 + ln 3/2) + (ln 3 + ln 3) + 2 (0 + ln 3/2)) = ½ ln 3 + ln 3/2.
    #[test]
    fn a_table_of_eight_states() {
        let (a, b) = ([0, 0, 0, 1, 1, 1, 2, 2], [0, 0, 1, 1, 1, 2, 2, 2]);
        let table = table(&a, &b);
        assert_eq!(table.weight, [2.0, 1.0, 0.0, 0.0, 2.0, 1.0, 0.0, 0.0, 2.0]);
        assert!((adjusted_rand(&table) - 5.0 / 21.0).abs() < 1e-15);
        let vi = 0.5 * 3f64.ln() + 1.5f64.ln();
        assert!((variation_of_information(&table) - vi).abs() < 1e-15);
    }

    #[test]
    fn partitions_that_say_nothing_agree() {
        assert_eq!(adjusted_rand(&table(&[0, 0, 0], &[2, 2, 2])), 1.0);
        assert_eq!(adjusted_rand(&table(&[0, 1, 2], &[2, 0, 1])), 1.0);
        assert_eq!(adjusted_rand(&table(&[], &[])), 1.0);
        assert_eq!(variation_of_information(&table(&[], &[])), 0.0);
        // One set of all states, and one set per state.
        assert_eq!(adjusted_rand(&table(&[0, 0, 0], &[0, 1, 2])), 0.0);
    }

    #[test]
    fn a_state_without_a_label_is_left_out() {
        assert_eq!(
            table(&[0, -1, 1, 1], &[0, 1, -1, 1]),
            table(&[0, 1], &[0, 1])
        );
    }

    proptest! {
        /// Names of labels, the unit of the weights and the order of A and B do not matter.
        #[test]
        fn neither_names_nor_units_nor_sides_matter(
            states in prop::collection::vec((0i32..3, 0i32..3, 1u32..9), 1..40)
        ) {
            let a: Vec<i32> = states.iter().map(|s| s.0).collect();
            let b: Vec<i32> = states.iter().map(|s| s.1).collect();
            let w: Vec<f64> = states.iter().map(|s| f64::from(s.2)).collect();
            let one = Contingency::new(&a, &b, &w, 3, 3);
            let renamed: Vec<i32> = b.iter().map(|l| (l + 2) % 3).collect();
            let heavy: Vec<f64> = w.iter().map(|w| w * 0.3).collect();
            for other in [
                Contingency::new(&a, &renamed, &w, 3, 3),
                Contingency::new(&a, &b, &heavy, 3, 3),
                Contingency::new(&b, &a, &w, 3, 3),
            ] {
                prop_assert!((adjusted_rand(&one) - adjusted_rand(&other)).abs() < 1e-12);
                let (x, y) = (variation_of_information(&one), variation_of_information(&other));
                prop_assert!((x - y).abs() < 1e-12);
            }
            prop_assert!(adjusted_rand(&one) <= 1.0 + 1e-12);
            let same = Contingency::new(&a, &a, &w, 3, 3);
            prop_assert!((adjusted_rand(&same) - 1.0).abs() < 1e-12);
            prop_assert!(variation_of_information(&same).abs() < 1e-12);
        }
    }
}
