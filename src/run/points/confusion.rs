//! Compares clusters with sets that the input gives.
//!
//! In: fits with clusters, and the rows with a column of known sets. Out: for each fit the weight
//! of the rows of each set in each cluster. Rows whose set is null are left out.

use crate::error::{Error, Result};
use crate::math::exact::ExactSum;
use crate::methods::PointMethod;
use crate::methods::state_embedding::clusters::{Clusters, Confusion};
use crate::methods::state_embedding::model::StateEmbeddingModel;
use crate::output::tables::points::{PointModel, PointsModel};
use crate::plan::points::PointsPlan;
use crate::read::points::layout::PointLayout;
use crate::read::points::{PointBatch, Receiver, read};
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::states::describe;
use crate::read::rows::stop::Stop;
use crate::run::kind::Running;
use crate::run::points::first_pass::FirstPass;
use crate::run::points::kind::PointsKind;
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rows that are embedded at a time by one thread.
const PIECE: usize = 1024;

/// Most sets of a given partition.
const MOST_SETS: usize = 1000;

/// The clusters of one fit.
struct Compared {
    /// The model and the fit in it.
    place: [usize; 2],
    partition: usize,
    /// The index of the column with the sets.
    column: usize,
    model: StateEmbeddingModel,
    clusters: Clusters,
}

/// Sums of weights by set, then by cluster.
type Shared = BTreeMap<String, Vec<ExactSum>>;

struct Comparing {
    compared: Arc<Vec<Compared>>,
    divisors: Vec<f64>,
    sums: Vec<Shared>,
}

/// Compares the clusters of all fits that ask for it with the sets of all rows.
pub(super) async fn compare(
    run: &Running<'_, PointsKind>,
    first_pass: &FirstPass,
    models: &mut [PointsModel],
) -> Result<()> {
    let compared = Arc::new(compared(run.plan, models));
    if compared.is_empty() {
        return Ok(());
    }
    let start = || {
        Ok(Comparing {
            compared: Arc::clone(&compared),
            divisors: first_pass.known.divisors.clone(),
            sums: vec![Shared::new(); compared.len()],
        })
    };
    let (layout, known) = (&run.plan.layout, Some(&first_pass.known.partitions[..]));
    let (done, _) = read(run.lake, run.frame.clone(), layout, known, start).await?;
    for (own, sums) in compared.iter().zip(done.sums) {
        let [model, fit] = own.place;
        if let PointModel::StateEmbedding(states) = &mut models[model].fits[fit].model {
            let (sets, sums): (Vec<String>, Vec<Vec<ExactSum>>) = sums.into_iter().unzip();
            let shared = sums.into_iter().flatten().map(|sum| sum.value());
            // Without a known set there is nothing to compare.
            states.confusion = (!sets.is_empty()).then(|| Confusion::new(sets, shared.collect()));
        }
    }
    Ok(())
}

fn compared(plan: &PointsPlan, models: &[PointsModel]) -> Vec<Compared> {
    let mut all = Vec::new();
    for (at, model) in models.iter().enumerate() {
        for planned in &plan.fits {
            let PointMethod::StateEmbedding(params) = &planned.method else {
                continue;
            };
            let given = &plan.layout.given;
            let column = given
                .iter()
                .position(|f| Some(f.name()) == params.given.as_ref());
            let own = model.fits.iter().position(|own| own.name == planned.name);
            let Some((column, own)) = column.zip(own) else {
                continue;
            };
            if let PointModel::StateEmbedding(states) = &model.fits[own].model
                && let Some(clusters) = &states.clusters
            {
                all.push(Compared {
                    place: [at, own],
                    partition: model.partition,
                    column,
                    model: states.model.clone(),
                    clusters: clusters.clone(),
                });
            }
        }
    }
    all
}

impl Receiver for Comparing {
    fn push(&mut self, layout: &PointLayout, batch: &PointBatch) -> Result<(), Stop> {
        let d = batch.dimension;
        let mut labels = Vec::new();
        for column in &batch.given {
            let mut keys = Keys::new(&[column.data_type().clone()])?;
            let mut ids = Vec::new();
            keys.intern(std::slice::from_ref(column), &mut ids)?;
            let all: Vec<u32> = (0..keys.len() as u32).collect();
            let values = keys.columns(&all)?;
            let names: Vec<String> = (0..all.len()).map(|at| describe(&values, at)).collect();
            labels.push((ids, names));
        }
        for (rows, partition) in &batch.partitions {
            let mut scaled = batch.coordinates[rows.start * d..rows.end * d].to_vec();
            for row in scaled.chunks_exact_mut(d) {
                let own = row.iter_mut().zip(&self.divisors);
                own.for_each(|(x, s)| *x /= s);
            }
            for (own, sums) in self.compared.iter().zip(&mut self.sums) {
                if own.partition != *partition as usize {
                    continue;
                }
                let pieces = scaled.par_chunks(PIECE * d);
                let clusters: Vec<Vec<Option<u32>>> = pieces
                    .map(|rows| own.clusters.assign_known(&own.model.embed(rows)))
                    .collect();
                let (ids, names) = &labels[own.column];
                for (row, cluster) in rows.clone().zip(clusters.into_iter().flatten()) {
                    let Some(cluster) = cluster.filter(|_| ids[row] != NONE) else {
                        continue;
                    };
                    let name = &names[ids[row] as usize];
                    if !sums.contains_key(name) {
                        let new = vec![ExactSum::default(); own.clusters.centroids.len()];
                        sums.insert(name.clone(), new);
                    }
                    let weight = batch.weights.as_ref().map_or(1.0, |w| w[row]);
                    if let Some(of_set) = sums.get_mut(name) {
                        of_set[cluster as usize].add(weight);
                    }
                }
                if sums.len() > MOST_SETS {
                    return Err(Stop::Failed(Error::input(format!(
                        "`given` names the column `{}`, which has more than {MOST_SETS} values; it should have one value per set",
                        layout.given[own.column].name()
                    ))));
                }
            }
        }
        Ok(())
    }
}
