//! Training rows → the states and observations of each partition.
//!
//! A row without a whole state or a whole observation is left out and ends its sequence.

use crate::error::Result;
use crate::evidence::observations::Observations;
use crate::read::observations::layout::ObservationLayout;
use crate::read::observations::{ObservationBatch, ObservationInput, Widths, read};
use crate::read::rows::coordinates::{Fault, FaultKind, LARGEST, LargeValue, Middle};
use crate::read::rows::ordered::Found;
use crate::read::rows::split::Split;
use crate::read::rows::states::describe;
use crate::read::rows::stop::{Dropped, bug};
use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{concat, take_arrays};
use arrow::datatypes::Field;

/// The training rows of one partition.
pub(crate) struct Training {
    /// The rows.
    pub(crate) rows: Observations,
    /// The columns of the id, one row per training row. Empty for rows of trajectories.
    pub(crate) ids: Vec<ArrayRef>,
    /// Why no model can be fitted to them.
    pub(crate) fault: Option<String>,
}

/// The training rows of all partitions.
pub(crate) struct TrainingRows {
    /// By partition.
    pub(crate) partitions: Vec<Training>,
    /// What was found beside them. Training rows that were left out are counted among the dropped
    /// rows.
    pub(crate) found: Found,
    /// Numbers per state and per observation.
    pub(crate) widths: Widths,
    /// Rows with a number of the observation, if no row has a state.
    pub(crate) measured: Option<u64>,
}

/// The sequence that the next rows may continue.
#[derive(Default)]
struct Open {
    partition: usize,
    states: Vec<f64>,
    observations: Vec<f64>,
}

/// The training rows of a partition so far.
#[derive(Default)]
struct Collected {
    rows: Observations,
    /// One entry per batch.
    ids: Vec<Vec<ArrayRef>>,
    /// The smallest and the largest number of each column, with the keys of their rows.
    ends: Vec<[Option<(f64, String)>; 2]>,
    /// The first number that is too large for a fit.
    fault: Option<String>,
}

impl Collected {
    /// Takes the ends of some rows into account. `key` describes a row.
    fn extend(&mut self, ends: Vec<[Option<(f64, usize)>; 2]>, key: impl Fn(usize) -> String) {
        self.ends
            .resize(ends.len().max(self.ends.len()), [None, None]);
        for (own, ends) in self.ends.iter_mut().zip(ends) {
            for (side, (own, end)) in own.iter_mut().zip(ends).enumerate() {
                let Some((x, row)) = end else { continue };
                let is_new = own
                    .as_ref()
                    .is_none_or(|(known, _)| is_beyond(side, x, *known));
                if is_new {
                    *own = Some((x, key(row)));
                }
            }
        }
    }

    /// What is said of the numbers that are far from the others.
    fn far(&self, layout: &ObservationLayout) -> Vec<String> {
        let (states, observations) = (&self.rows.states, &self.rows.observations);
        let width = self.rows.state_width;
        let mut said = Vec::new();
        for (k, ends) in self.ends.iter().enumerate() {
            let (fields, values, k, d) = if k < width {
                (&layout.state, states, k, width)
            } else {
                let d = self.rows.observation_width;
                (&layout.observation, observations, k - width, d)
            };
            let own = values.iter().skip(k).step_by(d.max(1)).copied();
            let Some(middle) = Middle::of(own.collect()) else {
                continue;
            };
            for (x, key) in ends.iter().flatten().filter(|(x, _)| middle.is_far(*x)) {
                // Lists have one name.
                let field = fields.get(k).or(fields.first());
                said.push(middle.said_of(&LargeValue {
                    value: *x,
                    column: field.map(|f| f.name().clone()).unwrap_or_default(),
                    key: key.clone(),
                }));
            }
        }
        said
    }
}

/// Whether a number is below the smallest (side 0) or above the largest one so far (side 1).
fn is_beyond(side: usize, x: f64, known: f64) -> bool {
    if side == 0 { x < known } else { x > known }
}

struct Collector<'a> {
    layout: &'a ObservationLayout,
    open: Open,
    /// Numbers per state and per observation.
    widths: (usize, usize),
    all: Vec<Collected>,
    dropped: Dropped,
    /// Rows with a number of the observation, if no row has a state.
    measured: u64,
}

impl Collector<'_> {
    fn push(&mut self, batch: &ObservationBatch) -> Result<()> {
        if self.layout.state.is_empty() {
            self.push_measured(batch);
            return Ok(());
        }
        let is_static = self.layout.is_static();
        self.widths = (batch.states.width, batch.observations.width);
        // The kept rows of each partition of the batch, for the columns of the id.
        let mut kept: Vec<(usize, Vec<u32>)> = Vec::new();
        for part in &batch.trajectories {
            let partition = part.partition as usize;
            if self.all.len() <= partition {
                self.all.resize_with(partition + 1, Collected::default);
            }
            let width = self.widths.0 + self.widths.1;
            let mut ends: Vec<[Option<(f64, usize)>; 2]> = vec![[None; 2]; width];
            for piece in &batch.pieces[part.pieces.clone()] {
                if piece.split != Split::Train {
                    continue;
                }
                if piece.begins {
                    self.close();
                }
                self.open.partition = partition;
                for row in piece.rows.clone() {
                    let state = batch.states.row(row);
                    let (Some(state), Some(observation)) = (state, batch.observations.row(row))
                    else {
                        self.close();
                        self.drop_row(batch, row, partition);
                        continue;
                    };
                    self.open.partition = partition;
                    self.open.states.extend_from_slice(state);
                    self.open.observations.extend_from_slice(observation);
                    for (ends, &x) in ends.iter_mut().zip(state.iter().chain(observation)) {
                        for (side, end) in ends.iter_mut().enumerate() {
                            if end.is_none_or(|(known, _)| is_beyond(side, x, known)) {
                                *end = Some((x, row));
                            }
                        }
                    }
                    if is_static {
                        match kept.last_mut() {
                            Some((of, rows)) if *of == partition => rows.push(row as u32),
                            _ => kept.push((partition, vec![row as u32])),
                        }
                    }
                }
            }
            self.all[partition].extend(ends, |row| describe(&batch.key, row));
        }
        for (partition, rows) in kept {
            let rows = UInt32Array::from(rows);
            let ids = take_arrays(&batch.key, &rows, None).map_err(bug)?;
            self.all[partition].ids.push(ids);
        }
        Ok(())
    }

    /// Adds rows of which none has a state: nothing is fitted to them, but their partitions have
    /// filters.
    fn push_measured(&mut self, batch: &ObservationBatch) {
        for part in &batch.trajectories {
            let partition = part.partition as usize;
            if self.all.len() <= partition {
                self.all.resize_with(partition + 1, Collected::default);
            }
            let rows = part.rows.clone();
            let measured = rows.filter(|&row| batch.observations.has_number(row));
            self.measured += measured.count() as u64;
        }
    }

    /// What is said of number `at` of a state or an observation of a training row.
    fn too_large(
        &self,
        batch: &ObservationBatch,
        row: usize,
        what: &str,
        at: usize,
        value: f64,
    ) -> String {
        let columns = match what {
            "state" => &self.layout.state,
            _ => &self.layout.observation,
        };
        let name = columns.get(at).or(columns.first()).map_or("", |f| f.name());
        format!(
            "the {what} `{name}` is {value:e} in the training row {}, and numbers above {LARGEST:.1e} are too large for a fit; leave the row out, or give it no split",
            describe(&batch.key, row)
        )
    }

    /// Ends the open sequence.
    fn close(&mut self) {
        let open = &mut self.open;
        if open.states.is_empty() {
            return;
        }
        let own = &mut self.all[open.partition].rows;
        if own.is_empty() {
            *own = Observations::new(self.widths.0, self.widths.1);
        }
        own.push(&open.states, &open.observations);
        open.states.clear();
        open.observations.clear();
    }

    /// Counts a training row that is left out.
    fn drop_row(&mut self, batch: &ObservationBatch, row: usize, partition: usize) {
        let faults = [
            ("state", batch.states.faults[row]),
            ("observation", batch.observations.faults[row]),
        ];
        for (what, fault) in faults {
            if let Some(fault) = fault.filter(|fault| fault.kind == FaultKind::Large) {
                let said = self.too_large(batch, row, what, fault.column, fault.value);
                self.all[partition].fault.get_or_insert(said);
            }
        }
        let of = |what: &str, fault: Option<Fault>, columns: &[Field]| {
            let fault = fault?;
            let column = columns.get(fault.column)?;
            let kind = match fault.kind {
                FaultKind::Infinite => "an infinite",
                FaultKind::Null => "a null",
                FaultKind::Nan => "a NaN",
                FaultKind::Large => "a too large",
            };
            Some(format!(
                "training row with {kind} {what} `{}`",
                column.name()
            ))
        };
        let state = of("state", batch.states.faults[row], &self.layout.state);
        let reason = state.or_else(|| {
            let fault = batch.observations.faults[row];
            of("observation", fault, &self.layout.observation)
        });
        let reason = reason.unwrap_or_else(|| "training row with an empty list".into());
        self.dropped.add(reason, 1);
    }
}

/// Reads the training rows. Partitions have the numbers of the order in which rows have them.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn training(input: ObservationInput<'_>) -> Result<TrainingRows> {
    let start = || {
        Ok(Collector {
            layout: input.layout,
            open: Open::default(),
            widths: (0, 0),
            all: Vec::new(),
            dropped: Dropped::default(),
            measured: 0,
        })
    };
    let push = |collector: &mut Collector<'_>, batch: ObservationBatch| collector.push(&batch);
    let (mut collector, mut found, widths) = read(input, start, push).await?;
    collector.close();
    let measured = input.layout.state.is_empty().then_some(collector.measured);
    found.dropped.merge(&collector.dropped);
    for said in collector.all.iter().flat_map(|own| own.far(input.layout)) {
        tracing::warn!("{said}; leave such rows out if they are no data");
    }
    let partitions = collector.all.into_iter().map(|own| {
        let mut rows = own.rows;
        rows.state_width = widths.state.unwrap_or(0);
        rows.observation_width = widths.observation.unwrap_or(0);
        if rows.offsets.is_empty() {
            rows.offsets.push(0);
        }
        Ok(Training {
            rows,
            ids: ids(&own.ids)?,
            fault: own.fault,
        })
    });
    Ok(TrainingRows {
        partitions: partitions.collect::<Result<_>>()?,
        found,
        widths,
        measured,
    })
}

/// The columns of the ids of all batches.
fn ids(batches: &[Vec<ArrayRef>]) -> Result<Vec<ArrayRef>> {
    let n = batches.first().map_or(0, Vec::len);
    let columns = (0..n).map(|at| {
        let parts: Vec<_> = batches.iter().map(|batch| batch[at].as_ref()).collect();
        concat(&parts)
    });
    columns.collect::<Result<_, _>>().map_err(bug)
}
