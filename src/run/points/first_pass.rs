//! What the first pass over points found.

use crate::error::{self, Error, Kind, Result, escaped};
use crate::evidence::points::Points;
use crate::output::result::ModelKey;
use crate::plan::points::PointsPlan;
use crate::read::points::Found;
use crate::read::points::layout::{PointLayout, PointRoles};
use crate::read::points::survey::{Survey, Surveyor, WeightUnit, Weights};
use crate::read::rows::coordinates::Middle;
use crate::read::rows::states::describe;
use crate::run::failures::reasons;
use arrow::array::ArrayRef;
use serde::{Deserialize, Serialize};

/// What the first pass found.
pub(crate) struct FirstPass {
    /// By partition.
    pub(crate) partitions: Vec<Survey>,
    /// What all later passes need.
    pub(crate) known: Known,
    /// What reading found beside the points.
    pub(crate) found: Found,
    /// Numbers of lists that have the same value in all rows.
    constants: usize,
}

/// What every pass after the first needs.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Known {
    /// What each coordinate is divided by.
    pub(crate) divisors: Vec<f64>,
    /// The partitions in their order: one array per partition column.
    #[serde(with = "crate::read::rows::ipc::arrays")]
    pub(crate) partitions: Vec<ArrayRef>,
    /// The units of the weights by partition, if rows have weights.
    pub(crate) weights: Option<Vec<WeightUnit>>,
    /// By partition: why no method can use its rows.
    pub(crate) faults: Vec<Option<String>>,
}

impl Known {
    /// Refuses a partition whose rows no method can use.
    ///
    /// # Errors
    /// Weights that are all 0, too large or too different, and of points without time, a coordinate
    /// that has one value in all rows, or lists that have. The message does not name the partition.
    pub(crate) fn check(&self, partition: usize) -> Result<()> {
        let fault = self.faults.get(partition).cloned().flatten();
        fault.map_or(Ok(()), |fault| Err(Error::input(fault)))
    }

    /// The number of partitions.
    pub(crate) fn len(&self) -> usize {
        self.partitions.first().map_or(1, |keys| keys.len())
    }

    /// The partition and the lag of a model, for messages.
    pub(crate) fn place(&self, plan: &PointsPlan, partition: usize, lag: usize) -> String {
        let mut parts = self.parts(&plan.layout, partition);
        parts.extend(plan.lags.get(lag).map(|lag| format!("lag {lag}")));
        if parts.is_empty() {
            return "the model".into();
        }
        parts.join(", ")
    }

    pub(crate) fn key(&self, plan: &PointsPlan, partition: usize, lag: usize) -> ModelKey {
        ModelKey {
            lag: plan.lags.get(lag).map(ToString::to_string),
            ..ModelKey::at(&self.partitions, None, partition)
        }
    }

    /// The partition columns with their values.
    fn parts(&self, layout: &PointLayout, partition: usize) -> Vec<String> {
        let columns = layout.partition.iter().zip(&self.partitions);
        let parts = columns.map(|(field, keys)| {
            let key = describe(std::slice::from_ref(keys), partition);
            format!("{}={}", field.name(), escaped(&key))
        });
        parts.collect()
    }
}

/// A value that is far from those of the other rows of its partition.
pub(crate) struct Far {
    /// The index of the coordinate.
    pub(crate) coordinate: usize,
    pub(crate) value: f64,
    /// The hash of the key of its row.
    pub(crate) hash: u64,
    /// Where most values of the coordinate are.
    pub(crate) middle: Middle,
}

impl FirstPass {
    /// The number of pairs by lag.
    pub(crate) fn pairs(&self, n_lags: usize) -> Vec<u64> {
        let of_lag = |lag: usize| {
            let pairs = self.partitions.iter().map(|survey| survey.pairs.get(lag));
            pairs.flatten().sum()
        };
        (0..n_lags).map(of_lag).collect()
    }

    /// The ends of the range of each coordinate that are far from the middle half of the rows. A
    /// coordinate of which half of the values are equal has none.
    pub(crate) fn far(&self) -> Vec<Far> {
        let mut far = Vec::new();
        for survey in self.partitions.iter().filter(|survey| survey.used > 0) {
            let (rows, _) = survey.sample.rows();
            let d = survey.ends.low.len();
            for k in 0..d {
                let values = rows.iter().skip(k).step_by(d).copied();
                let Some(middle) = Middle::of(values.collect()) else {
                    continue;
                };
                for ends in [&survey.ends, &survey.of_all] {
                    let values = [ends.low[k], ends.high[k]];
                    for (value, hash) in values.into_iter().zip(&ends.hashes) {
                        // Without rows the ends are infinite.
                        if value.is_finite() && middle.is_far(value) {
                            far.push(Far {
                                coordinate: k,
                                value,
                                hash: hash[k],
                                middle,
                            });
                        }
                    }
                }
            }
        }
        far
    }

    /// What to say of numbers of lists that have the same value in all rows, as units of a network
    /// that are never active.
    pub(crate) fn constant_numbers(&self, layout: &PointLayout) -> Option<String> {
        (self.constants > 0).then(|| {
            format!(
                "{} of the {} numbers of the lists in `{}` have the same value in all rows, and change no distance between rows",
                self.constants,
                self.known.divisors.len(),
                layout.coordinates[0].name()
            )
        })
    }

    /// A sample of the points of each partition, divided by the scale.
    pub(crate) fn samples(&self) -> Vec<Points> {
        let d = self.known.divisors.len();
        let sample = |survey: &Survey| {
            let (mut rows, mut weights) = survey.sample.rows();
            if let Some(unit) = survey.weights.as_ref().and_then(Weights::unit) {
                weights.iter_mut().for_each(|w| *w = unit.of(*w));
            }
            for row in rows.chunks_exact_mut(d) {
                row.iter_mut()
                    .zip(&self.known.divisors)
                    .for_each(|(x, s)| *x /= s);
            }
            Points {
                dimension: d,
                coordinates: rows,
                weights: Some(weights),
            }
        };
        self.partitions.iter().map(sample).collect()
    }
}

/// The name of a coordinate for messages.
fn coordinate_name(layout: &PointLayout, k: usize) -> String {
    match &layout.coordinates[..] {
        [list] if layout.is_list() => format!("number {k} of the lists in `{}`", list.name()),
        columns => format!("coordinate `{}`", columns[k].name()),
    }
}

/// Why no method can use the rows of a partition.
fn fault(layout: &PointLayout, survey: &Survey) -> Option<String> {
    // A partition without pairs has no model.
    let weight = layout.weight.as_ref().filter(|_| survey.used > 0);
    let of_weights = weight.and_then(|weight| {
        let weights = survey.weights.clone().unwrap_or_default();
        weights.fault(weight.name())
    });
    of_weights.or_else(|| {
        let is_alone = matches!(layout.roles, PointRoles::Rows);
        let constants = survey.constants();
        // Lists may have numbers that are the same in all rows.
        let is_fault = is_alone && (!layout.is_list() || constants.len() == survey.ends.low.len());
        let (k, value) = *constants.first().filter(|_| is_fault)?;
        let name = coordinate_name(layout, k);
        Some(format!(
            "{name} is {value} in all rows; leave it out, or select other rows in the SQL"
        ))
    })
}

/// Checks that there are points and that they vary.
pub(crate) fn survey(layout: &PointLayout, surveyor: Surveyor, found: Found) -> Result<FirstPass> {
    let section = match layout.roles {
        PointRoles::Pairs { .. } => "transitions",
        PointRoles::Rows => "points",
    };
    if found.rows == 0 {
        return Err(Error::input(format!(
            "the SQL of [{section}] gives no rows"
        )));
    }
    let Some(dimension) = found.dimension.filter(|_| !surveyor.partitions.is_empty()) else {
        let reasons = reasons(&found.dropped.0);
        return Err(Error::input(format!(
            "no row of {} has all its coordinates{reasons}",
            error::counted(found.rows, "row")
        )));
    };
    if dimension == 0 {
        return Err(Error::input("the lists of coordinates are empty"));
    }
    let constant = |k: usize| {
        let name = coordinate_name(layout, k);
        Error::new(
            Kind::Input,
            format!(
                "{name} has the same value in all rows; leave it out of `{section}.coordinates`"
            ),
        )
    };
    let constants = surveyor.constants();
    if let Some(&k) = constants.first()
        && (!layout.is_list() || constants.len() == dimension)
    {
        return Err(constant(k));
    }
    // Without pairs there is no model, and nothing to scale.
    let divisors = match surveyor.used().next() {
        Some(_) => surveyor.divisors(layout, dimension).map_err(constant)?,
        None => vec![1.0; dimension],
    };
    let known = Known {
        divisors,
        partitions: found.partitions.clone(),
        weights: layout.weight.as_ref().map(|_| {
            let surveys = surveyor.partitions.iter();
            let units = surveys.map(|survey| survey.weights.as_ref().and_then(Weights::unit));
            units.map(Option::unwrap_or_default).collect()
        }),
        faults: surveyor
            .partitions
            .iter()
            .map(|survey| fault(layout, survey))
            .collect(),
    };
    Ok(FirstPass {
        partitions: surveyor.partitions,
        known,
        found,
        constants: constants.len(),
    })
}
