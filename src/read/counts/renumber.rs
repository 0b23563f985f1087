//! Counts of several sets of partitions → one numbering of partitions, states and labels. The
//! counts stay where they are; each set gets its map of new numbers.

use crate::error::Result;
use crate::evidence::counts::matrix::CountMatrix;
use crate::read::counts::counted::Counted;
use crate::read::rows::keys::union;
use crate::read::rows::states::StateTable;
use arrow::array::ArrayRef;

/// New numbers for the partitions, states and labels of some counts, by old number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NewNumbers {
    /// New number of each partition.
    pub partitions: Vec<u32>,
    /// New number of each source state; `None` if the numbers do not change.
    pub sources: Option<Vec<u32>>,
    /// New number of each target state; `None` if the numbers do not change.
    pub targets: Option<Vec<u32>>,
    /// New number of each label, per given partition.
    pub labels: Vec<Vec<u32>>,
}

/// Merges what several sets of partitions have besides their counts, and returns the new numbers of
/// each set. No partition may occur in two sets.
pub(crate) fn merge_partitions(parts: &[Counted]) -> Result<(Counted, Vec<NewNumbers>)> {
    let sides = |of: fn(&Counted) -> &StateTable| {
        let tables: Vec<&StateTable> = parts.iter().map(of).collect();
        StateTable::merge(&tables)
    };
    let (sources, of_sources) = sides(|part| &part.sources)?;
    let (targets, of_targets) = sides(|part| &part.targets)?;
    let (partitions, of_partitions, n_partitions) = match &parts[0].partitions[..] {
        // Without partition columns everything is one partition.
        [] => (Vec::new(), vec![vec![0]; parts.len()], 1),
        _ => {
            let columns: Vec<&[ArrayRef]> = parts.iter().map(|part| &part.partitions[..]).collect();
            let (partitions, numbers) = union(&columns)?;
            let n = partitions[0].len();
            (partitions, numbers, n)
        }
    };
    let (mut labels, mut of_labels) = (Vec::new(), Vec::new());
    for at in 0..parts[0].labels.len() {
        let column = |part| std::slice::from_ref(&(part as &Counted).labels[at]);
        let columns: Vec<&[ArrayRef]> = parts.iter().map(column).collect();
        let (mut names, numbers) = union(&columns)?;
        labels.append(&mut names);
        of_labels.push(numbers);
    }
    let mut all = Counted {
        partitions,
        n_partitions,
        sources,
        targets,
        counts: Vec::new(),
        labels,
        rows: 0,
        dropped: Default::default(),
        time: Default::default(),
    };
    for part in parts {
        all.rows += part.rows;
        all.dropped.merge(&part.dropped);
        all.time.merge(part.time);
    }
    let new_numbers = of_partitions
        .into_iter()
        .enumerate()
        .map(|(at, partitions)| NewNumbers {
            partitions,
            sources: of_sources[at].clone(),
            targets: of_targets[at].clone(),
            labels: of_labels.iter().map(|labels| labels[at].clone()).collect(),
        });
    Ok((all, new_numbers.collect()))
}

impl CountMatrix {
    /// Applies the new numbers of the partition and the states, which ascend as the old ones do.
    pub(crate) fn renumber(&mut self, to: &NewNumbers) {
        self.partition = to.partitions[self.partition] as usize;
        let sides = [
            (&mut self.source_states, &to.sources),
            (&mut self.target_states, &to.targets),
        ];
        for (states, numbers) in sides {
            if let Some(numbers) = numbers {
                states.iter_mut().for_each(|id| *id = numbers[*id as usize]);
            }
        }
    }

    /// Applies the new numbers of the labels of each given partition.
    pub(crate) fn relabel(&mut self, to: &[Vec<u32>]) {
        for (labels, numbers) in self.given.iter_mut().zip(to) {
            let labels = labels.iter_mut().flatten();
            labels.for_each(|label| *label = numbers[*label as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::counts::tally::{Tally, pack};
    use crate::read::rows::states::{StateColumns, States};
    use crate::read::rows::stop::Dropped;
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::Field;
    use std::sync::Arc;

    fn texts(texts: &[&str]) -> ArrayRef {
        Arc::new(StringArray::from(texts.to_vec()))
    }

    fn part(groups: &[&str], states: ArrayRef, labels: &[&str]) -> Counted {
        let columns = StateColumns {
            keys: vec![Field::new("s", states.data_type().clone(), true)],
            bins: Vec::new(),
        };
        let mut seen = States::new(&columns, true).unwrap();
        let mut dropped = Dropped::default();
        seen.ids(&[states], &mut dropped, &mut Vec::new()).unwrap();
        let (table, _) = seen.finish().unwrap();
        dropped.add("null time", groups.len() as u64);
        Counted {
            partitions: vec![texts(groups)],
            n_partitions: groups.len(),
            sources: table.clone(),
            targets: table,
            counts: Vec::new(),
            labels: vec![texts(labels)],
            rows: 5,
            dropped,
            time: Default::default(),
        }
    }

    #[test]
    fn merged_partitions_states_and_labels_ascend() {
        let parts = [
            part(&["a", "c"], texts(&["z", "x"]), &["l"]),
            part(&["b"], texts(&["y", "z"]), &["k", "l"]),
        ];
        let (all, new_numbers) = merge_partitions(&parts).unwrap();
        assert_eq!(all.partitions, [texts(&["a", "b", "c"])]);
        assert_eq!((all.n_partitions, all.rows), (3, 10));
        assert_eq!(all.dropped.0["null time"], 3);
        assert_eq!(all.labels, [texts(&["k", "l"])]);
        let states = all.targets.columns(&[0, 1, 2]).unwrap();
        assert_eq!(states, [texts(&["x", "y", "z"])]);
        let to = |partitions: &[u32], states: &[u32], labels: &[u32]| NewNumbers {
            partitions: partitions.to_vec(),
            sources: Some(states.to_vec()),
            targets: Some(states.to_vec()),
            labels: vec![labels.to_vec()],
        };
        assert_eq!(
            new_numbers,
            [to(&[0, 2], &[0, 2], &[1]), to(&[1], &[1, 2], &[0, 1])]
        );

        let mut tally = Tally::default();
        tally.add_count(pack(0, 1), 4);
        let mut counts = CountMatrix::new(1, 0, Tally::finish(vec![tally]));
        counts.given = vec![Ok(vec![0])];
        counts.renumber(&new_numbers[0]);
        counts.relabel(&new_numbers[0].labels);
        assert_eq!(counts.partition, 2);
        assert_eq!(
            (counts.source_states, counts.target_states),
            (vec![0], vec![2])
        );
        assert_eq!(counts.given, [Ok(vec![1])]);
    }

    #[test]
    fn integer_states_keep_their_ids() {
        let integers = |n: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![n])) };
        let parts = [
            part(&["a"], integers(7), &[]),
            part(&["b"], integers(3), &[]),
        ];
        let (all, new_numbers) = merge_partitions(&parts).unwrap();
        assert_eq!(
            (&new_numbers[0].sources, &new_numbers[1].targets),
            (&None, &None)
        );
        assert_eq!(all.sources.columns(&[7]).unwrap(), [integers(7)]);
        let listed = part(&["c"], texts(&["x"]), &[]);
        assert!(merge_partitions(&[parts.into_iter().next().unwrap(), listed]).is_err());
    }
}
