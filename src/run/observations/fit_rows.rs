//! Reads the rows of supervision and of priors, by partition.
//!
//! Points are put in the order of their numbers, so the order of rows and of files changes no
//! result.

use crate::error::{Error, Result};
use crate::evidence::observations::{Prior, Supervision};
use crate::math::scale::{nearest_to_mean, times_power};
use crate::plan::observations::{PlannedFilter, PlannedRows};
use crate::read::lake::Lake;
use crate::read::observations::Widths;
use crate::read::rows::coordinates::{Coordinates, LARGEST, coordinates};
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::states::describe;
use crate::read::rows::stop::bug;
use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::Field;
use arrow::row::{OwnedRow, RowConverter, SortField};
use hashbrown::HashMap;
use std::collections::BTreeMap;

/// The rows of supervision and the prior of a fit.
#[derive(Default)]
pub(crate) struct FitRows {
    /// Supervision of every step.
    every: ByPartition<Supervision>,
    /// Supervision of single steps.
    pub(crate) steps: Option<Steps>,
    /// The prior of a static problem.
    prior: ByPartition<Prior>,
}

impl FitRows {
    /// The supervision of every step of a partition.
    pub(crate) fn every(&self, partition: usize) -> Option<&Supervision> {
        of_partition(&self.every, partition)
    }

    pub(crate) fn prior(&self, partition: usize) -> Option<&Prior> {
        of_partition(&self.prior, partition)
    }
}

/// Points by partition, or with the key None the points of all partitions.
type ByPartition<T> = HashMap<Option<usize>, T>;

fn of_partition<T>(points: &ByPartition<T>, partition: usize) -> Option<&T> {
    points.get(&None).or_else(|| points.get(&Some(partition)))
}

/// Supervision of single steps.
pub(crate) struct Steps {
    converter: RowConverter,
    /// Whether the key begins with the partition columns.
    has_partition: bool,
    of: HashMap<OwnedRow, Supervision>,
}

impl Steps {
    /// The points of rows with these partition and key columns.
    ///
    /// # Errors
    /// If the columns cannot be compared.
    pub(crate) fn of_rows(
        &self,
        partition: &[ArrayRef],
        key: &[ArrayRef],
    ) -> Result<Vec<Option<&Supervision>>> {
        let mut columns = Vec::new();
        if self.has_partition {
            columns.extend(partition.iter().cloned());
        }
        columns.extend(key.iter().cloned());
        let rows = self.converter.convert_columns(&columns).map_err(bug)?;
        Ok(rows.iter().map(|row| self.of.get(&row.owned())).collect())
    }
}

/// Reads the supervision and the prior of a fit. `partitions` are the partitions with known
/// numbers, one array per partition column; rows of other partitions are left out.
///
/// # Errors
/// If a query fails, gives no rows, or a number is null, NaN or infinite.
pub(crate) async fn read(
    lake: &Lake,
    fit: &PlannedFilter,
    partitions: &[ArrayRef],
    widths: Widths,
) -> Result<FitRows> {
    let mut points = FitRows::default();
    let place = |section: &str, e: Error| e.at(format!("`fit.{}.{section}`", fit.name));
    if let Some(planned) = &fit.supervision {
        let rows = Rows::read(lake, planned, "supervision", widths).await;
        let rows = rows.map_err(|e| place("supervision", e))?;
        if planned.step.is_empty() {
            points.every = rows.by_partition(partitions, Rows::supervision)?;
        } else {
            points.steps = Some(rows.steps(planned)?);
        }
    }
    if let Some(planned) = &fit.prior {
        let rows = Rows::read(lake, planned, "prior", widths).await;
        let rows = rows.map_err(|e| place("prior", e))?;
        points.prior = rows.by_partition(partitions, Rows::prior)?;
        let mut all = points.prior.values();
        if all.any(|own| own.weights.iter().all(|w| *w == 0.0)) {
            let what = "all weights of a prior are 0; a prior needs a state with a positive weight";
            return Err(place("prior", Error::input(what)));
        }
    }
    Ok(points)
}

/// The numbers of some columns, row by row, and how many a row has: `width` if it is known. `key`
/// names the rows in errors.
fn numbers(
    fields: &[Field],
    columns: &[ArrayRef],
    key: &[ArrayRef],
    width: Option<usize>,
    limit: f64,
) -> Result<(usize, Vec<f64>)> {
    if fields.is_empty() {
        return Ok((0, Vec::new()));
    }
    let place = |row: usize| format!("row {}", row + 1);
    let mut found = width;
    let read = coordinates(fields, columns, &mut found, |_| limit, place);
    let Coordinates { values, faults } = read.map_err(|stop| stop.into_error("reading points"))?;
    let faulty = faults
        .iter()
        .enumerate()
        .find_map(|(row, f)| Some((row, (*f)?)));
    if let Some((row, fault)) = faulty {
        let name = fields[fault.column.min(fields.len() - 1)].name();
        let shown = describe(key, row);
        let at = if key.is_empty() {
            String::new()
        } else {
            format!(" at {shown}")
        };
        return Err(Error::input(format!(
            "column `{name}` has a value that is {}{at}; leave such rows out",
            fault.kind.name()
        )));
    }
    Ok((found.unwrap_or(0), values))
}

/// The rows of a query.
struct Rows {
    partition: Vec<ArrayRef>,
    /// Partition, trajectory and time columns.
    key: Vec<ArrayRef>,
    n: usize,
    state: (usize, Vec<f64>),
    observation: (usize, Vec<f64>),
    /// 1 without a column of weights.
    weights: Vec<f64>,
}

impl Rows {
    async fn read(
        lake: &Lake,
        planned: &PlannedRows,
        section: &str,
        widths: Widths,
    ) -> Result<Rows> {
        let fields = planned.fields();
        let numbers = planned.partition.len() + planned.step.len()..fields.len();
        let batch = lake
            .all_rows(section, &planned.sql, &fields, numbers)
            .await?;
        Rows::of(planned, &fields, &batch, widths)
    }

    fn of(
        planned: &PlannedRows,
        fields: &[Field],
        batch: &RecordBatch,
        widths: Widths,
    ) -> Result<Rows> {
        let typed = batch.columns().iter().zip(fields);
        let typed = typed.map(|(column, field)| cast(column, field.data_type()));
        let columns: Vec<ArrayRef> = typed.collect::<Result<_, _>>().map_err(bug)?;
        let n = batch.num_rows();
        let n_partition = planned.partition.len();
        let first = n_partition + planned.step.len();
        let after = first + planned.state.len();
        let last = after + planned.observation.len();
        for (column, field) in columns[..first].iter().zip(fields) {
            if column.null_count() > 0 {
                let what = format!("column `{}` has a null", field.name());
                return Err(Error::input(what));
            }
        }
        let key = &columns[..first];
        let numbers = |fields: &[Field], own: &[ArrayRef], width, limit| {
            numbers(fields, own, key, width, limit)
        };
        let weights = match &planned.weight {
            Some(field) => {
                let own = numbers(
                    std::slice::from_ref(field),
                    &columns[last..],
                    None,
                    f64::MAX,
                )?
                .1;
                if let Some(row) = own.iter().position(|w| *w < 0.0) {
                    let state = describe(&columns[first..after], row);
                    return Err(Error::input(format!(
                        "column `{}` has the weight {} for the state {state}; weights are 0 or more",
                        field.name(),
                        own[row]
                    )));
                }
                own
            }
            None => vec![1.0; n],
        };
        Ok(Rows {
            state: numbers(
                &planned.state,
                &columns[first..after],
                widths.state,
                LARGEST,
            )?,
            observation: numbers(
                &planned.observation,
                &columns[after..last],
                widths.observation,
                LARGEST,
            )?,
            partition: columns[..n_partition].to_vec(),
            key: columns[..first].to_vec(),
            n,
            weights,
        })
    }

    /// Some rows, in the order of their numbers.
    fn ordered(&self, mut rows: Vec<usize>) -> Vec<usize> {
        let numbers = |row: usize| {
            let state = self.state_of(row).iter().chain(self.observation_of(row));
            state.chain(std::slice::from_ref(&self.weights[row]))
        };
        rows.sort_by(|&a, &b| {
            let pairs = numbers(a).zip(numbers(b));
            let mut different = pairs.map(|(a, b)| a.total_cmp(b)).filter(|o| o.is_ne());
            different.next().unwrap_or(std::cmp::Ordering::Equal)
        });
        rows
    }

    fn state_of(&self, row: usize) -> &[f64] {
        &self.state.1[row * self.state.0..][..self.state.0]
    }

    fn observation_of(&self, row: usize) -> &[f64] {
        &self.observation.1[row * self.observation.0..][..self.observation.0]
    }

    fn supervision(&self, rows: &[usize]) -> Supervision {
        let states = rows.iter().flat_map(|&row| self.state_of(row));
        let observations = rows.iter().flat_map(|&row| self.observation_of(row));
        Supervision {
            states: states.copied().collect(),
            observations: observations.copied().collect(),
        }
    }

    /// Weights become shares, so that their scale does not matter.
    fn prior(&self, rows: &[usize]) -> Prior {
        let states = rows.iter().flat_map(|&row| self.state_of(row));
        let own = rows.iter().map(|&row| self.weights[row]);
        let unit = nearest_to_mean(own.clone(), rows.len() as u64);
        let mut weights: Vec<f64> = own.map(|w| times_power(w, -unit)).collect();
        let sum: f64 = weights.iter().sum();
        if sum > 0.0 {
            weights.iter_mut().for_each(|w| *w /= sum);
        }
        Prior {
            states: states.copied().collect(),
            weights,
        }
    }

    /// The points of each partition.
    fn by_partition<T>(
        &self,
        known: &[ArrayRef],
        make: impl Fn(&Rows, &[usize]) -> T,
    ) -> Result<ByPartition<T>> {
        if self.partition.is_empty() {
            let all = self.ordered((0..self.n).collect());
            return Ok(HashMap::from([(None, make(self, &all))]));
        }
        let types: Vec<_> = known.iter().map(|c| c.data_type().clone()).collect();
        let mut keys = Keys::new(&types)?;
        let mut numbers = Vec::new();
        keys.intern(known, &mut numbers)?;
        let n_known = keys.len() as u32;
        numbers.clear();
        keys.intern(&self.partition, &mut numbers)?;
        let mut of: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (row, &partition) in numbers.iter().enumerate() {
            if partition != NONE && partition < n_known {
                of.entry(partition as usize).or_default().push(row);
            }
        }
        let of = of.into_iter();
        let of = of.map(|(partition, rows)| (Some(partition), make(self, &self.ordered(rows))));
        Ok(of.collect())
    }

    /// The points of each step.
    fn steps(&self, planned: &PlannedRows) -> Result<Steps> {
        let fields = self.key.iter();
        let fields = fields.map(|column| SortField::new(column.data_type().clone()));
        let converter = RowConverter::new(fields.collect()).map_err(bug)?;
        let keys = converter.convert_columns(&self.key).map_err(bug)?;
        let mut rows: HashMap<OwnedRow, Vec<usize>> = HashMap::new();
        for (at, key) in keys.iter().enumerate() {
            rows.entry(key.owned()).or_default().push(at);
        }
        let of = rows.into_iter();
        let of = of.map(|(key, rows)| (key, self.supervision(&self.ordered(rows))));
        Ok(Steps {
            converter,
            has_partition: !planned.partition.is_empty(),
            of: of.collect(),
        })
    }
}
