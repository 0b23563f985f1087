//! Counts of windows → hidden Markov models of every partition.
//!
//! Fits that differ in their ranks alone share one projection, whose leading parts are the models
//! of all ranks. Where a rank is chosen, or rows are held out in folds, one pass over the rows
//! scores the models of all ranks and folds.

use crate::assess::bootstrap::{Number, ResampledNumbers};
use crate::assess::certificates::check;
use crate::assess::hmm::{certificates, of_trace};
use crate::assess::interval::Spread;
use crate::assess::resampling::{Draws, each_resample};
use crate::error::{Error, Result, counted as number_of};
use crate::evidence::counts::matrix::CountMatrix;
use crate::evidence::pass::Passes;
use crate::evidence::pass::executor::Local;
use crate::evidence::resample::Resample;
use crate::evidence::symbols::Symbols;
use crate::evidence::symbols::triples::Triples;
use crate::math::scale::times_power;
use crate::memory;
use crate::methods::hmm::baum_welch::{recovered_hidden, refine};
use crate::methods::hmm::filtering::Filter;
use crate::methods::hmm::given::{GivenProbabilities, normalisation_gap};
use crate::methods::hmm::model::{HmmModel, Warning};
use crate::methods::hmm::moments::unigram;
use crate::methods::hmm::params::{Refine, SpectralHmm};
use crate::methods::hmm::project::{Projection, drift, project};
use crate::output::checkpoint::Checkpoint;
use crate::output::tables::run_schema::RunSchema;
use crate::output::tables::symbols::{
    Diagnostics, FittedHmm, HeldOutScore, RankScore, Refinement, SymbolFit, SymbolsModel,
};
use crate::plan::fits::Ranks;
use crate::plan::memory::Lack;
use crate::plan::pipeline::keys::Empty;
use crate::plan::symbols::{HeldOut, SymbolsPlan, check_distribution};
use crate::read::counts::counted::Counted;
use crate::read::rows::split::Split;
use crate::read::rows::stop::{Dropped, NAN_STATE, NULL_STATE};
use crate::read::symbols::windows::{Windows, resampled, symbols, windows};
use crate::read::symbols::{KnownSymbols, SymbolInput};
use crate::run::counts::model::{check_counts, partition_place, seed};
use crate::run::failures::{Failures, no_evidence, reasons};
use crate::run::symbols::distances;
use crate::run::symbols::given::GivenModels;
use crate::run::symbols::held_out::{HeldOutSums, Unigrams, score};
use crate::run::symbols::scoring::{PartitionScorers, SymbolMap};
use crate::run::symbols::training::{Training, training};
use crate::run::workers::executor::blocking_as;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The counts of a partition, and the decompositions of its fits.
pub(crate) struct Partition {
    /// The index of the partition.
    pub(crate) index: usize,
    matrix: CountMatrix,
    windows: Windows,
    /// By key of [`Keys`].
    projections: Vec<Projection>,
}

/// The counts of all partitions.
pub(crate) struct Evidence {
    /// The partitions with windows.
    pub(crate) partitions: Vec<Partition>,
    /// The number of partitions.
    pub(crate) n_partitions: usize,
    /// The names of what the tables share.
    pub(crate) run: RunSchema,
    /// The symbols of all models, by number.
    pub(crate) symbols: KnownSymbols,
    /// The ids of these symbols in the table of all symbols, ascending.
    ids: Vec<u32>,
    /// Partitions without windows.
    pub(crate) empty: Vec<usize>,
    /// The models that the input has.
    pub(crate) given: GivenModels,
}

impl Evidence {
    /// The numbers of the symbols of a model.
    pub(crate) fn numbers(&self, symbols: &[u32]) -> Vec<u32> {
        let number = |id: &u32| self.ids.partition_point(|own| own < id) as u32;
        symbols.iter().map(number).collect()
    }

    /// The place of a partition, for messages.
    pub(crate) fn place(&self, partition: usize) -> String {
        partition_place(&self.run, partition)
    }
}

/// The parameters on which a projection depends, and the largest rank that is asked for.
struct Keys {
    keys: Vec<(SpectralHmm, usize)>,
    /// The key of each fit. None for a model that the input has.
    of_fit: Vec<Option<usize>>,
}

impl Keys {
    fn of(plan: &SymbolsPlan) -> Keys {
        let mut keys: Vec<(SpectralHmm, usize)> = Vec::new();
        let mut of_fit = Vec::new();
        for fit in &plan.fits {
            let Some(own) = fit.method.spectral() else {
                of_fit.push(None);
                continue;
            };
            let key = SpectralHmm {
                scaling: own.scaling,
                windows: own.windows,
                block: own.block,
                min_count: own.min_count,
                ..SpectralHmm::new(1)
            };
            let at = keys.iter().position(|(other, _)| *other == key);
            let at = at.unwrap_or_else(|| {
                keys.push((key, 1));
                keys.len() - 1
            });
            let largest = candidates(plan, of_fit.len()).into_iter().max();
            keys[at].1 = keys[at].1.max(largest.unwrap_or(1));
            of_fit.push(Some(at));
        }
        Keys { keys, of_fit }
    }

    /// The parameters of a fit to windows, and its projection.
    fn spectral<'a>(
        &self,
        plan: &'a SymbolsPlan,
        fit: usize,
        projections: &'a [Projection],
    ) -> Option<(&'a SpectralHmm, &'a Projection)> {
        let own = plan.fits[fit].method.spectral()?;
        Some((own, &projections[self.of_fit[fit]?]))
    }
}

/// The rank of a fit in the plan. The rows of a given model say how many states it has.
fn planned_rank(plan: &SymbolsPlan, fit: usize) -> usize {
    plan.fits[fit].method.spectral().map_or(0, |own| own.rank)
}

/// The ranks of a fit: the candidates, or its only rank.
fn candidates(plan: &SymbolsPlan, fit: usize) -> Vec<usize> {
    match &plan.fits[fit].ranks {
        Ranks::Auto { candidates, .. } => candidates.clone(),
        _ => vec![planned_rank(plan, fit)],
    }
}

fn is_auto(plan: &SymbolsPlan, fit: usize) -> bool {
    matches!(plan.fits[fit].ranks, Ranks::Auto { .. })
}

/// Dropped rows by reason. What counting calls a state is a symbol of a sequence.
pub(crate) fn dropped(dropped: &Dropped) -> BTreeMap<Cow<'static, str>, u64> {
    let named = |reason: &Cow<'static, str>| match &**reason {
        NULL_STATE => "null symbol".into(),
        NAN_STATE => "NaN symbol".into(),
        _ => reason.clone(),
    };
    let all = dropped.0.iter();
    all.map(|(reason, &rows)| (named(reason), rows)).collect()
}

/// The windows of all partitions.
///
/// # Errors
/// If there is no window, or the memory does not suffice.
pub(crate) fn evidence(plan: &SymbolsPlan, counted: Counted) -> Result<Evidence> {
    let block = plan.rows().block;
    if counted.rows == 0 {
        return Err(Error::input("the SQL of [sequences] gives no rows"));
    }
    let names = symbols(&counted)?.clone();
    let run = plan.run_schema(counted.partitions.clone(), names.clone());
    let matrices: Vec<usize> = (0..counted.counts.len()).collect();
    let is_empty = |at: &usize| counted.counts[*at].nnz() == 0;
    let empty: Vec<usize> = matrices.iter().copied().filter(is_empty).collect();
    if empty.len() == counted.counts.len() {
        let reasons = reasons(&dropped(&counted.dropped));
        return Err(Error::input(format!(
            "gyre needs {} rows in a row with a symbol, and there are none in {}{reasons}; check `sequences.interval` against the times of a trajectory{}",
            2 * block + 1,
            number_of(counted.rows, "row"),
            plan.times.hint()
        )));
    }
    let full: Vec<usize> = matrices.into_iter().filter(|at| !is_empty(at)).collect();
    for &at in &full {
        let counts = &counted.counts[at];
        let place = || partition_place(&run, counts.partition);
        check_counts(&plan.layout, counts).map_err(|e| e.at(place()))?;
    }
    let all: Vec<Windows> = full
        .par_iter()
        .map(|&at| windows(&counted, &counted.counts[at]))
        .collect::<Result<_>>()?;
    if plan.distribution {
        let n = all.iter().map(|own| own.symbols.len()).max();
        check_distribution(n.unwrap_or(0))?;
    }
    let mut ids: Vec<u32> = all.iter().flat_map(|own| own.symbols.clone()).collect();
    ids.par_sort_unstable();
    ids.dedup();
    let known = KnownSymbols {
        columns: names.columns(&ids)?,
        partitions: counted.partitions.clone(),
    };
    let empty = empty.into_iter();
    let empty = empty.map(|at| counted.counts[at].partition).collect();
    let n_partitions = counted.n_partitions;
    let matrices = counted.counts.into_iter().filter(|counts| counts.nnz() > 0);
    let partitions = matrices.zip(all).map(|(matrix, windows)| Partition {
        index: matrix.partition,
        matrix,
        windows,
        projections: Vec::new(),
    });
    Ok(Evidence {
        partitions: partitions.collect(),
        n_partitions,
        run,
        symbols: known,
        ids,
        empty,
        given: GivenModels::default(),
    })
}

/// The folder of the checkpoints of a partition.
fn folder(partition: usize) -> String {
    format!("sequences-{partition}")
}

/// The place of a partition of some counts, for messages and seeds.
///
/// # Errors
/// [`Kind::Bug`](crate::error::Kind::Bug) if the counts are not those of windows.
pub(crate) fn place_in(plan: &SymbolsPlan, counted: &Counted, partition: usize) -> Result<String> {
    let names = symbols(counted)?.clone();
    let run = plan.run_schema(counted.partitions.clone(), names);
    Ok(partition_place(&run, partition))
}

/// Decomposes the pairs of one partition: one projection for each set of parameters on which
/// projections depend.
///
/// # Errors
/// If the memory does not suffice, or a rank is too large. The message does not name the partition.
pub(crate) fn project_partition(
    plan: &SymbolsPlan,
    place: &str,
    triples: &Triples,
    rows: u64,
    passes: &Passes<'_>,
) -> Result<Vec<Projection>> {
    let keys = Keys::of(plan);
    let (threads, limit) = (rayon::current_num_threads(), memory::limit());
    Lack::none(plan.lacking(triples.size(rows), threads, limit))?;
    let mut projections = Vec::with_capacity(keys.keys.len());
    for (at, (key, largest)) in keys.keys.iter().enumerate() {
        let seed = seed(plan.job.seed, place, &format!("projection-{at}"));
        let projection = passes.try_piece(&format!("projection-{at}"), |passes| {
            project(key, *largest, triples, passes, seed)
        });
        projections.push(projection?);
    }
    for (at, fit) in plan.fits.iter().enumerate() {
        let Some((_, projection)) = keys.spectral(plan, at, &projections) else {
            continue;
        };
        // A rank that is not possible is an error before the rows are read again.
        let ranks = candidates(plan, at);
        let least = ranks.iter().min().copied().unwrap_or(1);
        projection
            .checked_rank(least)
            .map_err(|e| e.at(format!("fit `{}`", fit.name)))?;
    }
    Ok(projections)
}

/// Decomposes the pairs of all partitions, except for those in `made`. Partitions that fail, and
/// those without windows that may not be left out, are no longer part of the evidence.
///
/// # Errors
/// If the memory does not suffice; see also [`Failures::take`].
pub(crate) fn project_all(
    plan: &SymbolsPlan,
    evidence: &mut Evidence,
    rows: u64,
    mut made: BTreeMap<usize, Result<Vec<Projection>>>,
    work: &Checkpoint,
) -> Result<Failures> {
    let mut failures = Failures::default();
    if plan.job.empty == Empty::Fail {
        for partition in std::mem::take(&mut evidence.empty) {
            let what = format!(
                "gyre needs {} rows in a row with a symbol, and there are none",
                2 * plan.rows().block + 1
            );
            let lacking = Err(no_evidence(Empty::Fail, &what));
            failures.take::<()>(evidence.place(partition), lacking)?;
        }
    }
    let partitions = std::mem::take(&mut evidence.partitions).into_iter();
    type Given = (Partition, String, Option<Result<Vec<Projection>>>);
    let given: Vec<Given> = partitions
        .map(|own| {
            let (place, given) = (evidence.place(own.index), made.remove(&own.index));
            (own, place, given)
        })
        .collect();
    let (threads, limit) = (rayon::current_num_threads(), memory::limit());
    let missing = given.iter().filter(|(.., given)| given.is_none());
    Lack::none(missing.filter_map(|(own, place, _)| {
        let size = own.windows.triples.size(rows);
        Some(plan.lacking(size, threads, limit)?.at(place))
    }))?;
    let projected = given.into_par_iter().map(|(own, place, given)| {
        let projections = given.unwrap_or_else(|| {
            let passes = Passes::at(&Local).resuming(work, folder(own.index));
            project_partition(plan, &place, &own.windows.triples, rows, &passes)
        });
        let projected = projections.map(|projections| Partition { projections, ..own });
        (place, projected)
    });
    let projected: Vec<(String, Result<Partition>)> = projected.collect();
    for (place, projected) in projected {
        evidence.partitions.extend(failures.take(place, projected)?);
    }
    Ok(failures)
}

/// A model of a rank.
#[derive(Clone, Serialize, Deserialize)]
struct Fitted {
    model: HmmModel,
    refined: Option<Refinement>,
    warnings: Vec<Warning>,
}

impl Fitted {
    /// A model that the input has, with the shares of the symbols.
    fn given(given: &GivenProbabilities, shares: &[f64]) -> Fitted {
        Fitted {
            model: given.model(shares.to_vec()),
            refined: None,
            warnings: Vec::new(),
        }
    }
}

/// Fits a model of a rank to a projection, and refines it if the parameters say so.
fn fit_at(
    own: &SpectralHmm,
    projection: &Projection,
    rank: usize,
    sequences: Option<&Symbols>,
    seed: u64,
) -> Result<Fitted> {
    match (own.refine, sequences) {
        (Refine::Em, Some(sequences)) => {
            let refined = refine(own, projection, rank, sequences, seed)?;
            Ok(Fitted {
                model: refined.model,
                refined: Some(Refinement {
                    log_likelihood: refined.trace,
                    converged: refined.converged,
                }),
                warnings: refined.warnings,
            })
        }
        (Refine::Em, None) => Err(Error::bug("the training rows were not read")),
        (Refine::Recover, _) => {
            let mut model = projection.model(rank)?;
            model.hidden = recovered_hidden(&model, seed);
            let lost = model.hidden.is_none().then_some(Warning::NotRecovered);
            Ok(Fitted {
                model,
                refined: None,
                warnings: lost.into_iter().collect(),
            })
        }
        (Refine::None, _) => Ok(Fitted {
            model: projection.model(rank)?,
            refined: None,
            warnings: Vec::new(),
        }),
    }
}

/// Models of a fit at a rank: one for all training rows, or one for each fold.
struct Candidate {
    fit: usize,
    rank: usize,
    models: Vec<Fitted>,
}

/// The candidates of a partition.
#[derive(Default)]
struct Candidates {
    list: Vec<Candidate>,
    /// The number of folds; 0 without folds.
    folds: usize,
    /// The shares of the symbols, by fold.
    unigrams: Vec<Vec<f64>>,
}

/// The rank of a fit in a partition.
#[derive(Clone, Default)]
struct Choice {
    rank: usize,
    ranks: Vec<RankScore>,
    held_out: Option<HeldOutScore>,
    /// The model, if it was fitted already.
    fitted: Option<Fitted>,
}

/// Reads the rows that are fitted if a fit needs them.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn read_training(
    plan: &SymbolsPlan,
    evidence: &Evidence,
    input: SymbolInput<'_>,
) -> Result<Option<Vec<Training>>> {
    if !plan.refines() {
        return Ok(None);
    }
    let mut partitions: Vec<Option<SymbolMap>> = Vec::new();
    partitions.resize_with(evidence.n_partitions, || None);
    for own in &evidence.partitions {
        let numbers = evidence.numbers(&own.windows.symbols);
        partitions[own.index] = Some(SymbolMap::new(&numbers));
    }
    training(input, &partitions).await.map(Some)
}

/// What the fits of one partition have in common.
struct PartitionFits<'a> {
    plan: &'a SymbolsPlan,
    keys: &'a Keys,
    own: &'a Partition,
    /// The models that the input has.
    given: &'a GivenModels,
    /// The numbers of the symbols of the partition.
    numbers: &'a [u32],
    place: &'a str,
    training: Option<&'a Training>,
    work: &'a Checkpoint,
}

/// The decompositions of the windows of all folds but one, and their training rows.
struct Folds {
    /// By fold and by key of [`Keys`].
    projections: Vec<Vec<Projection>>,
    /// By fold. Empty unless fits need the rows.
    sequences: Vec<Symbols>,
    /// The shares of the symbols, by fold.
    shares: Vec<Vec<f64>>,
}

impl PartitionFits<'_> {
    fn seed(&self, name: &str) -> u64 {
        seed(self.plan.job.seed, self.place, name)
    }

    /// The passes of a stage, whose checkpoints are in a folder of its name.
    fn passes(&self, stage: &str) -> Passes<'_> {
        Passes::at(&Local).resuming(self.work, format!("{}-{stage}", folder(self.own.index)))
    }

    /// Fits the models of all candidates.
    fn candidates(&self) -> Result<Candidates> {
        let HeldOut::Folds(folds) = self.plan.held_out else {
            return self.candidates_of_all_rows();
        };
        let groups = self.own.matrix.groups.as_ref();
        let n_groups = groups.map_or(0, |groups| groups.n_groups);
        let folds = folds.min(n_groups);
        if folds >= 2 {
            return self.candidates_of_folds(self.folds(folds, n_groups)?);
        }
        let fits = &self.plan.fits;
        if let Some(fit) = (0..fits.len()).find(|&fit| is_auto(self.plan, fit)) {
            return Err(Error::input(format!(
                "rank = \"auto\" holds trajectories out, and only {} has windows; name a column with 'train' and 'test' as `sequences.split`, or give a rank",
                number_of(n_groups, "trajectory")
            ))
            .at(format!("fit `{}`", fits[fit].name)));
        }
        Ok(Candidates::default())
    }

    /// Fits the candidates of the fits whose rank is chosen to all training rows.
    fn candidates_of_all_rows(&self) -> Result<Candidates> {
        let plan = self.plan;
        let mut found = Candidates::default();
        let sequences = self.training.map(|training| &training.sequences);
        for fit in (0..plan.fits.len()).filter(|&fit| is_auto(plan, fit)) {
            let own = self.keys.spectral(plan, fit, &self.own.projections);
            let Some((params, projection)) = own else {
                continue;
            };
            for rank in candidates(plan, fit) {
                if projection.checked_rank(rank).is_err() {
                    continue;
                }
                let seed = self.seed(&plan.fits[fit].name);
                let fitted = fit_at(params, projection, rank, sequences, seed)
                    .map_err(|e| e.at(format!("fit `{}`", plan.fits[fit].name)))?;
                found.list.push(Candidate {
                    fit,
                    rank,
                    models: vec![fitted],
                });
            }
        }
        let first = found.list.first();
        found
            .unigrams
            .extend(first.map(|first| first.models[0].model.unigram.clone()));
        Ok(found)
    }

    /// Projects the windows of all folds but one, for each of `folds`.
    fn folds(&self, folds: usize, n_groups: usize) -> Result<Folds> {
        let groups = self.own.matrix.groups.as_ref();
        let fold_of = |hash: u32| groups.and_then(|all| Some(all.of_hash(hash)? % folds));
        let passes = self.passes("candidates");
        let mut projections: Vec<Vec<Projection>> = Vec::new();
        let mut sequences = Vec::new();
        let mut shares = Vec::new();
        for fold in 0..folds {
            let weights: Vec<u32> = (0..n_groups)
                .map(|g| u32::from(g % folds != fold))
                .collect();
            let triples = resampled(&self.own.matrix, &self.own.windows, &weights)?;
            let mut of_keys = Vec::new();
            for (at, (key, largest)) in self.keys.keys.iter().enumerate() {
                let name = format!("fold-{fold}-{at}");
                let seed = self.seed(&name);
                of_keys.push(passes.try_piece(&name, |passes| {
                    project(key, *largest, &triples, passes, seed)
                })?);
            }
            projections.push(of_keys);
            shares.push(unigram(&triples));
            if let Some(training) = self.training {
                // A sequence without a window is in no fold, and in every fit.
                sequences.push(training.of_groups(|hash| fold_of(hash) != Some(fold)));
            }
        }
        Ok(Folds {
            projections,
            sequences,
            shares,
        })
    }

    /// Fits the candidates of all fits to the rows of all folds but one, for each fold.
    fn candidates_of_folds(&self, of: Folds) -> Result<Candidates> {
        let plan = self.plan;
        let folds = of.projections.len();
        let mut found = Candidates {
            folds,
            ..Candidates::default()
        };
        for (fit, planned) in plan.fits.iter().enumerate() {
            let within = |e: Error| e.at(format!("fit `{}`", planned.name));
            let Some((params, key)) = planned.method.spectral().zip(self.keys.of_fit[fit]) else {
                let given = self
                    .given
                    .probabilities(fit, self.own.index, self.numbers)?;
                let models = of.shares.iter();
                found.list.push(Candidate {
                    fit,
                    rank: planned_rank(plan, fit),
                    models: models.map(|shares| Fitted::given(&given, shares)).collect(),
                });
                continue;
            };
            for rank in candidates(plan, fit) {
                let has_model = |own: &Projection| own.checked_rank(rank).is_ok();
                if !of.projections.iter().all(|own| has_model(&own[key])) {
                    continue;
                }
                let models = (0..folds).into_par_iter().map(|fold| {
                    let seed = self.seed(&format!("{}-{rank}-{fold}", planned.name));
                    let projection = &of.projections[fold][key];
                    fit_at(params, projection, rank, of.sequences.get(fold), seed)
                });
                let models = models.collect::<Result<Vec<_>>>();
                found.list.push(Candidate {
                    fit,
                    rank,
                    models: models.map_err(within)?,
                });
            }
        }
        found.unigrams = of.shares;
        Ok(found)
    }

    /// The fits of the result, at the chosen ranks.
    fn fits(&self, choices: Vec<Choice>) -> Result<Vec<SymbolFit>> {
        let each = choices.into_iter().enumerate();
        let fits = each.map(|(at, choice)| self.fit(at, choice));
        let mut fits = fits.collect::<Result<Vec<_>>>()?;
        for (at, planned) in self.plan.fits.iter().enumerate() {
            if planned.method.given().is_some_and(|own| own.length > 0) {
                let given = self.given.probabilities(at, self.own.index, self.numbers)?;
                let seed = self.seed(&planned.name);
                distances::add(self.plan, at, &given, seed, &mut fits)?;
            }
        }
        fits.iter_mut().for_each(|fit| fit.model.sort_distances());
        Ok(fits)
    }

    /// A fit of the result. `at` is its index among the fits of the plan.
    fn fit(&self, at: usize, mut choice: Choice) -> Result<SymbolFit> {
        let (plan, planned) = (self.plan, &self.plan.fits[at]);
        let own = self.keys.spectral(plan, at, &self.own.projections);
        let Some((method, projection)) = own else {
            return self.given_fit(at, choice);
        };
        let (name, rank) = (&planned.name, choice.rank);
        let within = |e: Error| e.at(format!("fit `{name}`"));
        let sequences = self.training.map(|training| &training.sequences);
        let Fitted {
            model,
            refined,
            warnings,
        } = match choice.fitted.take() {
            Some(fitted) => fitted,
            None => {
                let fitted = self.fit_chosen(at, method, projection, rank);
                fitted.map_err(within)?
            }
        };
        let mut all = projection.warnings(rank);
        all.extend(warnings);
        for warning in &all {
            tracing::warn!(fit = name, place = self.place, "{warning}");
        }
        let model_rank = projection.checked_rank(rank).map_err(within)?;
        let found = projection.diagnostics(model_rank);
        let mut certificates = certificates(projection, model_rank);
        let trace = refined.as_ref().map(|own| &own.log_likelihood[..]);
        let symbols = sequences.map_or(0, |sequences| sequences.symbols.len());
        let climb = trace.and_then(|trace| of_trace(trace, symbols));
        certificates.splice(0..0, climb);
        check(name, &certificates)?;
        let resamples = plan.validation.bootstrap > 0;
        let bootstrap = resamples.then(|| self.bootstrap(at, method, projection, rank));
        let train = refined.as_ref().and_then(|own| {
            let sequences = sequences?;
            let rows = times_power(sequences.weighted_symbols(), sequences.exponent);
            Some(own.log_likelihood.last()? / rows)
        });
        Ok(SymbolFit {
            name: name.clone(),
            method: planned.method.name().to_string(),
            certificates,
            bootstrap,
            warnings: all.iter().map(ToString::to_string).collect(),
            model: FittedHmm {
                hmm: model,
                unigram: method.unigram,
                floor: method.floor,
                left: projection.left(model_rank),
                singular_values: projection.spectrum.clone(),
                noise: found.noise,
                diagnostics: Diagnostics {
                    stationarity_gap: projection.drift,
                    normalisation_gap: found.normalisation_gap,
                    negative_share: None,
                    negative_mass: None,
                    resets: None,
                },
                refined,
                held_out: choice.held_out,
                train,
                ranks: choice.ranks,
                distances: Vec::new(),
            },
        })
    }

    /// A fit whose probabilities the input has.
    fn given_fit(&self, at: usize, choice: Choice) -> Result<SymbolFit> {
        let planned = &self.plan.fits[at];
        let triples = &self.own.windows.triples;
        let given = self.given.probabilities(at, self.own.index, self.numbers)?;
        let hmm = given.model(unigram(triples));
        let total = triples.total();
        let effective = triples.effective.unwrap_or(total);
        Ok(SymbolFit {
            name: planned.name.clone(),
            method: planned.method.name().to_string(),
            certificates: Vec::new(),
            bootstrap: None,
            warnings: Vec::new(),
            model: FittedHmm {
                unigram: planned.method.unigram(),
                floor: planned.method.floor(),
                left: Vec::new(),
                singular_values: Vec::new(),
                noise: 1.0 / effective.sqrt(),
                diagnostics: Diagnostics {
                    stationarity_gap: drift(triples, total),
                    normalisation_gap: normalisation_gap(&hmm),
                    negative_share: None,
                    negative_mass: None,
                    resets: None,
                },
                hmm,
                refined: None,
                held_out: choice.held_out,
                train: None,
                ranks: Vec::new(),
                distances: Vec::new(),
            },
        })
    }

    /// Fits a model of the chosen rank to all training rows.
    fn fit_chosen(
        &self,
        at: usize,
        method: &SpectralHmm,
        projection: &Projection,
        rank: usize,
    ) -> Result<Fitted> {
        let sequences = self.training.map(|training| &training.sequences);
        let seed = self.seed(&self.plan.fits[at].name);
        if method.refine != Refine::Em {
            return fit_at(method, projection, rank, sequences, seed);
        }
        let passes = self.passes("models");
        passes.try_piece(&format!("em-{at}"), |_| {
            fit_at(method, projection, rank, sequences, seed)
        })
    }

    /// Resamples the singular values of a fit.
    fn bootstrap(
        &self,
        at: usize,
        method: &SpectralHmm,
        projection: &Projection,
        rank: usize,
    ) -> ResampledNumbers {
        let (groups, validation) = (WindowGroups(self.own), &self.plan.validation);
        let spectrum = &projection.spectrum;
        let draws = Draws {
            resamples: validation.bootstrap,
            entries: 0,
            seed: self.seed("bootstrap"),
        };
        let refit = |passes: &Passes<'_>, triples: Option<Triples>, seed: u64| {
            let projection = project(method, rank, &triples?, passes, seed).ok()?;
            (projection.spectrum.len() >= rank).then_some(projection.spectrum)
        };
        let mut resamples: Vec<Vec<f64>> = Vec::new();
        let mut add = |values: Option<Vec<f64>>| resamples.extend(values);
        let passes = self.passes(&format!("bootstrap-{at}"));
        each_resample(&passes, &groups, draws, &refit, &|| (), &mut add);
        let numbers = (0..spectrum.len().min(rank + 1)).map(|k| Number {
            metric: "singular_value".into(),
            index: Some(k),
            value: spectrum.get(k).copied(),
            spread: Spread::of(
                resamples.iter().filter_map(|values| values.get(k).copied()),
                validation.confidence,
            ),
        });
        ResampledNumbers {
            resamples: resamples.len(),
            groups: groups.n_groups(),
            numbers: numbers.collect(),
        }
    }
}

/// The ranks of all fits, by partition, or why the partition cannot be fitted.
pub(crate) struct Choices(Vec<Result<Vec<Choice>>>);

/// Chooses ranks and scores rows that are held out.
///
/// # Errors
/// If the rows cannot be read.
pub(crate) async fn choose(
    plan: &Arc<SymbolsPlan>,
    evidence: Arc<Evidence>,
    training: Option<Arc<Vec<Training>>>,
    input: SymbolInput<'_>,
    work: &Arc<Checkpoint>,
) -> Result<Choices> {
    let of_fit = |fit: usize| Choice {
        rank: planned_rank(plan, fit),
        ..Choice::default()
    };
    let fixed: Vec<Choice> = (0..plan.fits.len()).map(of_fit).collect();
    let only = match plan.held_out {
        HeldOut::Folds(_) => Split::Train,
        HeldOut::Split if (0..plan.fits.len()).any(|fit| is_auto(plan, fit)) => Split::Test,
        HeldOut::None | HeldOut::Split => {
            let all = evidence.partitions.iter().map(|_| Ok(fixed.clone()));
            return Ok(Choices(all.collect()));
        }
    };
    let (of, own, with) = (Arc::clone(plan), Arc::clone(&evidence), Arc::clone(work));
    let fitted = blocking_as("fitting", move || {
        let keys = Keys::of(&of);
        let each = own.partitions.par_iter().map(|partition| {
            let place = own.place(partition.index);
            let training = training.as_ref().and_then(|all| all.get(partition.index));
            let fits = PartitionFits {
                plan: &of,
                keys: &keys,
                own: partition,
                given: &own.given,
                numbers: &own.numbers(&partition.windows.symbols),
                place: &place,
                training,
                work: &with,
            };
            fits.candidates()
        });
        Ok(each.collect::<Vec<Result<Candidates>>>())
    });
    let fitted = fitted.await?;
    let sums = scored(plan, &evidence, &fitted, input, only).await?;
    let partitions = evidence.partitions.iter().zip(fitted);
    let choices = partitions.map(|(own, candidates)| {
        let mut candidates = candidates?;
        let mut choices = fixed.clone();
        for (fit, choice) in choices.iter_mut().enumerate() {
            chosen(plan, fit, choice, &mut candidates, &sums[own.index], only)?;
        }
        Ok(choices)
    });
    Ok(Choices(choices.collect()))
}

/// Chooses the rank of a fit in a partition by the scores of its candidates.
///
/// # Errors
/// If no rank can be chosen.
fn chosen(
    plan: &SymbolsPlan,
    fit: usize,
    choice: &mut Choice,
    candidates: &mut Candidates,
    sums: &HeldOutSums,
    only: Split,
) -> Result<()> {
    let place = |list: &[Candidate], rank: usize| {
        let is_own = |of: &Candidate| of.fit == fit && of.rank == rank;
        list.iter().position(is_own)
    };
    if is_auto(plan, fit) {
        let ranks = self::candidates(plan, fit).into_iter();
        let models: Vec<(usize, Option<usize>)> = ranks
            .map(|rank| (rank, place(&candidates.list, rank)))
            .collect();
        let chosen = sums.choose(&models).ok_or_else(|| {
            let what = match plan.held_out {
                HeldOut::Split => {
                    "rank = \"auto\" scores the rows whose split is 'test', and there are none with a symbol"
                }
                _ => "no rank has a model in every fold; decrease `ranks`",
            };
            Error::input(what).at(format!("fit `{}`", plan.fits[fit].name))
        })?;
        (choice.rank, choice.ranks) = chosen;
    }
    let at = place(&candidates.list, choice.rank);
    if let (HeldOut::Folds(_), Some(at)) = (plan.held_out, at) {
        choice.held_out = sums.score(at);
    }
    if let (Split::Test, Some(at)) = (only, at) {
        let models = std::mem::take(&mut candidates.list[at].models);
        choice.fitted = models.into_iter().next();
    }
    Ok(())
}

/// Scores the held-out rows with all candidates. Returns the sums by partition.
async fn scored(
    plan: &SymbolsPlan,
    evidence: &Evidence,
    fitted: &[Result<Candidates>],
    input: SymbolInput<'_>,
    only: Split,
) -> Result<Vec<HeldOutSums>> {
    let fitted = || {
        let partitions = evidence.partitions.iter().zip(fitted);
        partitions.filter_map(|(own, candidates)| Some((own, candidates.as_ref().ok()?)))
    };
    let mut unigrams: Vec<Option<Unigrams<'_>>> = Vec::new();
    unigrams.resize_with(evidence.n_partitions, || None);
    for (partition, candidates) in fitted() {
        let floor = plan.fits[0].method.floor();
        unigrams[partition.index] = Some(Unigrams {
            shares: &candidates.unigrams,
            floor,
        });
    }
    let partitions = || {
        let mut all: Vec<Option<PartitionScorers<'_>>> = Vec::new();
        all.resize_with(evidence.n_partitions, || None);
        for (partition, candidates) in fitted() {
            if candidates.list.is_empty() {
                continue;
            }
            let groups = partition.matrix.groups.as_ref();
            let groups = groups.map(|groups| (groups, candidates.folds));
            let numbers = evidence.numbers(&partition.windows.symbols);
            let scorers = candidates.list.par_iter().map(|candidate| {
                let own = &plan.fits[candidate.fit].method;
                let (unigram, floor) = (own.unigram(), own.floor());
                let models = candidate.models.iter();
                let filters = models.map(|of| Filter::new(&of.model, unigram, floor));
                filters.collect::<Vec<_>>()
            });
            all[partition.index] = Some(PartitionScorers {
                symbols: SymbolMap::new(&numbers),
                scorers: scorers.collect(),
                folds: groups.filter(|_| candidates.folds > 0),
            });
        }
        all
    };
    score(input, only, &unigrams, partitions).await
}

/// Fits the models of the result. Adds the partitions that cannot be fitted to `failures`.
///
/// # Errors
/// If a certificate does not hold.
pub(crate) fn finish(
    plan: &SymbolsPlan,
    evidence: &mut Evidence,
    training: Option<&[Training]>,
    choices: Choices,
    work: &Checkpoint,
    failures: &mut Failures,
) -> Result<Vec<SymbolsModel>> {
    let keys = Keys::of(plan);
    let partitions = std::mem::take(&mut evidence.partitions);
    let evidence = &*evidence;
    let each = partitions.into_par_iter().zip(choices.0);
    let models = each.map(|(own, choices)| {
        let place = evidence.place(own.index);
        let training = training.and_then(|all| all.get(own.index));
        let fits = PartitionFits {
            plan,
            keys: &keys,
            own: &own,
            given: &evidence.given,
            numbers: &evidence.numbers(&own.windows.symbols),
            place: &place,
            training,
            work,
        };
        let model = choices.and_then(|choices| fits.fits(choices));
        let model = model.map(|fits| SymbolsModel {
            partition: own.index,
            symbols: own.windows.symbols,
            triples: own.windows.triples,
            fits,
        });
        (place, model)
    });
    let models: Vec<(String, Result<SymbolsModel>)> = models.collect();
    let mut fitted = Vec::with_capacity(models.len());
    for (place, model) in models {
        fitted.extend(failures.take(place, model)?);
    }
    Ok(fitted)
}

/// The windows of groups of trajectories.
struct WindowGroups<'a>(&'a Partition);

impl Resample for WindowGroups<'_> {
    type Sample = Option<Triples>;

    fn n_groups(&self) -> usize {
        self.0
            .matrix
            .groups
            .as_ref()
            .map_or(0, |groups| groups.n_groups)
    }

    fn resample(&self, weights: &[u32], _: usize) -> Option<Triples> {
        resampled(&self.0.matrix, &self.0.windows, weights).ok()
    }
}
