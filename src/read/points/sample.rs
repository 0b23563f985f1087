//! Samples of rows that depend neither on the order of rows nor on files.

use serde::{Deserialize, Serialize};
use std::collections::BinaryHeap;

/// The rows with the smallest hashes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    /// Hashes with the places of rows in `numbers`, the largest hash first.
    heap: BinaryHeap<(u64, usize)>,
    /// Numbers per row.
    width: usize,
    /// The largest number of rows.
    most: usize,
    /// n × width, row-major, by place.
    numbers: Vec<f64>,
    weights: Vec<f64>,
}

impl Sample {
    /// A sample of at most `rows` rows of `width` numbers each, and of about `numbers` numbers.
    pub(crate) fn new(width: usize, rows: usize, numbers: usize) -> Sample {
        Sample {
            heap: BinaryHeap::new(),
            width,
            most: rows.min(numbers / width.max(1)).max(1),
            numbers: Vec::new(),
            weights: Vec::new(),
        }
    }

    /// Takes a row, which consists of parts, if its hash is small enough.
    pub(crate) fn push(&mut self, hash: u64, parts: &[&[f64]], weight: f64) {
        let place = if self.heap.len() < self.most {
            self.numbers.resize(self.numbers.len() + self.width, 0.0);
            self.weights.push(0.0);
            self.weights.len() - 1
        } else {
            match self.heap.peek() {
                Some(&(largest, place)) if hash < largest => {
                    self.heap.pop();
                    place
                }
                _ => return,
            }
        };
        let mut at = place * self.width;
        for part in parts {
            self.numbers[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        self.weights[place] = weight;
        self.heap.push((hash, place));
    }

    /// Takes the rows of a sample of other rows.
    pub(crate) fn merge(&mut self, other: &Sample) {
        for &(hash, place) in &other.heap {
            let row = &other.numbers[place * other.width..][..other.width];
            self.push(hash, &[row], other.weights[place]);
        }
    }

    /// The rows (row-major) and their weights, in the order of their hashes.
    pub(crate) fn rows(&self) -> (Vec<f64>, Vec<f64>) {
        let mut places: Vec<(u64, usize)> = self.heap.iter().copied().collect();
        let row = |place: usize| &self.numbers[place * self.width..][..self.width];
        let bits = |place: usize| row(place).iter().map(|x| x.to_bits());
        // Rows of one key differ in their content.
        places.sort_by(|&(a, x), &(b, y)| a.cmp(&b).then_with(|| bits(x).cmp(bits(y))));
        let rows = places.iter().flat_map(|&(_, place)| row(place)).copied();
        let weights = places.iter().map(|&(_, place)| self.weights[place]);
        (rows.collect(), weights.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_has_the_rows_with_the_smallest_hashes_in_any_order() {
        let rows: Vec<(u64, [f64; 2])> = [7, 3, 9, 1, 3, 8]
            .iter()
            .enumerate()
            .map(|(at, &hash)| (hash, [hash as f64, at as f64]))
            .collect();
        let of = |order: &[usize]| {
            let mut sample = Sample::new(2, 100, 8);
            for &at in order {
                let (hash, row) = &rows[at];
                sample.push(*hash, &[&row[..1], &row[1..]], *hash as f64 / 2.0);
            }
            sample.rows()
        };
        let (numbers, weights) = of(&[0, 1, 2, 3, 4, 5]);
        assert_eq!(numbers, [1.0, 3.0, 3.0, 1.0, 3.0, 4.0, 7.0, 0.0]);
        assert_eq!(weights, [0.5, 1.5, 1.5, 3.5]);
        assert_eq!(of(&[5, 4, 3, 2, 1, 0]), (numbers.clone(), weights.clone()));
        let mut parts = [Sample::new(2, 100, 8), Sample::new(2, 100, 8)];
        for (at, (hash, row)) in rows.iter().enumerate() {
            parts[at % 2].push(*hash, &[row], *hash as f64 / 2.0);
        }
        let [mut all, more] = parts;
        all.merge(&more);
        assert_eq!(all.rows(), (numbers, weights));
    }
}
