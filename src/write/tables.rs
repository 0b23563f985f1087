//! Models → record batches: the columns of every output table, a contract with readers (`gyre.schema = 1`).

use super::ranks::RankRow;
use super::{bootstrap, certificates, markov, ranks, sets};
use crate::count::{Counts, StateTable};
use crate::error::{Error, Kind, Result};
use crate::lineage::Lineage;
use crate::markov::Markov;
use crate::memory;
use crate::reduce::bootstrap::{Bootstrap, Metric};
use crate::reduce::certificates::{Certificate, certified};
use crate::reduce::{Fit, Side};
use crate::spec::Lag;
use arrow::array::{
    ArrayRef, BooleanArray, FixedSizeListArray, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringArray, StringBuilder, UInt32Array, UInt64Array, new_null_array,
};
use arrow::buffer::OffsetBuffer;
use arrow::compute::take;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// The lag column: integers as integers, anything else as its text, with seconds beside it where one is a time. Pairs have none.
#[derive(Debug, Clone, PartialEq)]
pub enum LagColumn {
    None,
    Integers(Vec<i64>),
    Texts(Vec<Lag>),
}

impl LagColumn {
    /// The lag at a place in words.
    pub fn text(&self, at: usize) -> Option<String> {
        match self {
            LagColumn::None => None,
            LagColumn::Integers(lags) => Some(lags[at].to_string()),
            LagColumn::Texts(lags) => Some(lags[at].to_string()),
        }
    }

    fn fields(&self) -> Vec<Field> {
        match self {
            LagColumn::None => Vec::new(),
            LagColumn::Integers(_) => vec![Field::new("lag", DataType::Int64, false)],
            LagColumn::Texts(lags) => {
                let mut fields = vec![Field::new("lag", DataType::Utf8, false)];
                if self.has_seconds() {
                    let is_any_none = lags.iter().any(|lag| lag.seconds().is_none());
                    fields.push(Field::new(LAG_SECONDS, DataType::Float64, is_any_none));
                }
                fields
            }
        }
    }

    fn has_seconds(&self) -> bool {
        matches!(self, LagColumn::Texts(lags) if lags.iter().any(|lag| lag.seconds().is_some()))
    }

    /// The columns of `n` rows that are all of the lag at a place.
    fn columns(&self, at: usize, n: usize) -> Vec<ArrayRef> {
        match self {
            LagColumn::None => Vec::new(),
            LagColumn::Integers(lags) => vec![Arc::new(Int64Array::from(vec![lags[at]; n]))],
            LagColumn::Texts(lags) => {
                let text = lags[at].to_string();
                let mut columns: Vec<ArrayRef> =
                    vec![Arc::new(StringArray::from(vec![text.as_str(); n]))];
                if self.has_seconds() {
                    columns.push(Arc::new(Float64Array::from(vec![lags[at].seconds(); n])));
                }
                columns
            }
        }
    }
}

/// The column beside `lag` where lags are times.
pub const LAG_SECONDS: &str = "lag_seconds";

/// What the columns of a fit are called and how long its embedding is.
#[derive(Debug, Clone, PartialEq)]
pub struct FitColumns {
    pub name: String,
    pub method: &'static str,
    /// The largest that the fit of a model may have; embeddings of a smaller rank are filled up with zeros, which change no distance.
    pub rank: usize,
    /// Whether it has memberships.
    pub is_soft: bool,
}

/// Everything the columns of a run's tables are made from.
pub struct Names {
    pub partition: Vec<Field>,
    /// The keys of every partition, one row each.
    pub partitions: Vec<ArrayRef>,
    pub lag: LagColumn,
    pub sources: StateTable,
    pub targets: StateTable,
    pub is_weighted: bool,
    /// In the order of the pipeline file.
    pub fits: Vec<FitColumns>,
    /// The tables that are written.
    pub tables: Vec<Table>,
}

/// The fits of one partition and lag. As bytes they have no lineage and no test, which come of what other models say.
#[derive(Serialize, Deserialize)]
pub struct Model {
    /// Without its matrix, where that is to be fetched.
    pub counts: Counts,
    pub nonzeros: usize,
    /// Beside `Names::fits`.
    pub fits: Vec<Fit>,
    /// Of each fit, by name.
    pub certificates: Vec<Vec<Certificate>>,
    /// What resamples say of each, where that is asked for.
    pub bootstraps: Vec<Bootstrap>,
    /// By fit and rank.
    pub ranks: Vec<RankRow>,
    /// Beside `fits`.
    #[serde(skip)]
    pub lineage: Vec<Lineage>,
    /// Beside the fits, where that is asked for.
    #[serde(skip)]
    pub markov: Vec<Markov>,
    /// N_·j, N_i· and S (coherence §3.1).
    pub source_total: Vec<f64>,
    pub target_total: Vec<f64>,
    pub total: f64,
}

impl Model {
    /// Counts alone.
    pub(super) fn bare(counts: Counts) -> Model {
        Model {
            nonzeros: counts.nnz(),
            counts,
            fits: Vec::new(),
            certificates: Vec::new(),
            bootstraps: Vec::new(),
            ranks: Vec::new(),
            lineage: Vec::new(),
            markov: Vec::new(),
            source_total: Vec::new(),
            target_total: Vec::new(),
            total: 0.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    Sources,
    Targets,
    Latent,
    Coarse,
    Fits,
    Certificates,
    Restarts,
    Spectrum,
    Bootstrap,
    Ranks,
    Sets,
    Changes,
    Timescales,
    ChapmanKolmogorov,
    Counts,
}

impl Table {
    pub const ALL: [Table; 15] = [
        Table::Sources,
        Table::Targets,
        Table::Latent,
        Table::Coarse,
        Table::Fits,
        Table::Certificates,
        Table::Restarts,
        Table::Spectrum,
        Table::Bootstrap,
        Table::Ranks,
        Table::Sets,
        Table::Changes,
        Table::Timescales,
        Table::ChapmanKolmogorov,
        Table::Counts,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Table::Sources => "sources",
            Table::Targets => "targets",
            Table::Latent => "latent",
            Table::Coarse => "coarse",
            Table::Fits => "fits",
            Table::Certificates => "certificates",
            Table::Restarts => "restarts",
            Table::Spectrum => "spectrum",
            Table::Bootstrap => "bootstrap",
            Table::Ranks => "ranks",
            Table::Sets => "sets",
            Table::Changes => "changes",
            Table::Timescales => "timescales",
            Table::ChapmanKolmogorov => "chapman_kolmogorov",
            Table::Counts => "counts",
        }
    }
}

impl Names {
    pub(super) fn count_type(&self) -> DataType {
        if self.is_weighted {
            DataType::Float64
        } else {
            DataType::UInt64
        }
    }

    /// Partition keys and lag.
    pub(super) fn leading(&self) -> Vec<Field> {
        let partition = self
            .partition
            .iter()
            .map(|f| Field::new(f.name(), f.data_type().clone(), false));
        partition.chain(self.lag.fields()).collect()
    }

    /// Key columns of sources and targets where both stand in one table: told apart by a prefix if they share a name.
    fn pair_fields(&self) -> (Vec<Field>, Vec<Field>) {
        pair_fields(self.sources.fields(), self.targets.fields())
    }
}

/// Key columns of sources and targets side by side.
fn pair_fields(sources: Vec<Field>, targets: Vec<Field>) -> (Vec<Field>, Vec<Field>) {
    if sources
        .iter()
        .all(|s| targets.iter().all(|t| s.name() != t.name()))
    {
        return (sources, targets);
    }
    let prefixed = |fields: Vec<Field>, prefix: &str| {
        fields
            .into_iter()
            .map(|f| f.clone().with_name(format!("{prefix}_{}", f.name())))
            .collect()
    };
    (prefixed(sources, "source"), prefixed(targets, "target"))
}

/// Coordinates or memberships of a state.
pub(super) fn row_type(rank: usize) -> DataType {
    DataType::FixedSizeList(
        Arc::new(Field::new("item", DataType::Float64, false)),
        rank as i32,
    )
}

fn weights_type(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new("item", item, false)))
}

/// The columns of a table, and those that order its rows.
pub fn schema(table: Table, names: &Names) -> (SchemaRef, Vec<String>) {
    use DataType::{Boolean, Float64, Int32, UInt32, UInt64, Utf8};
    let mut fields = names.leading();
    let mut sorted: Vec<String> = fields.iter().map(|f| f.name().clone()).collect();
    let mut key = |fields: &mut Vec<Field>, name: &str, data_type: DataType| {
        sorted.push(name.to_string());
        fields.push(Field::new(name, data_type, false));
    };
    let mut keys = |fields: &mut Vec<Field>, more: Vec<Field>| {
        more.into_iter()
            .for_each(|f| key(fields, f.name(), f.data_type().clone()))
    };
    let value = |name: &str, data_type: DataType| Field::new(name, data_type, false);
    match table {
        Table::Sources | Table::Targets => {
            let states = if table == Table::Sources {
                &names.sources
            } else {
                &names.targets
            };
            keys(&mut fields, states.fields());
            fields.push(value("count", names.count_type()));
            fields.push(value("probability", Float64));
            for fit in &names.fits {
                fields.push(Field::new(format!("{}_affiliation", fit.name), Int32, true));
                fields.push(Field::new(
                    format!("{}_embedding", fit.name),
                    row_type(fit.rank),
                    true,
                ));
                if fit.is_soft {
                    fields.push(Field::new(
                        format!("{}_membership", fit.name),
                        row_type(fit.rank),
                        true,
                    ));
                }
                if names.tables.contains(&Table::Bootstrap) {
                    fields.push(Field::new(format!("{}_stability", fit.name), Float64, true));
                }
            }
        }
        Table::Latent => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("latent", Int32)],
            );
            keys(&mut fields, names.targets.fields());
            fields.push(value("probability", Float64));
        }
        Table::Coarse => {
            keys(
                &mut fields,
                vec![
                    value("fit", Utf8),
                    value("latent", Int32),
                    value("target_set", Int32),
                ],
            );
            fields.push(value("count", names.count_type()));
            fields.push(value("probability", Float64));
        }
        Table::Fits => {
            keys(&mut fields, vec![value("fit", Utf8)]);
            fields.extend([
                value("method", Utf8),
                value("rank", UInt32),
                value("n_sources", UInt64),
                value("n_targets", UInt64),
                value("nonzeros", UInt64),
                value("transitions", names.count_type()),
                Field::new("dropped_states", UInt64, true),
                Field::new("dropped_transitions", names.count_type(), true),
                value("seed", UInt64),
                value("restarts", UInt32),
                value("best_restart", UInt32),
                value("iterations", UInt64),
                value("converged", Boolean),
                value("certified", Boolean),
                value("empty_states", UInt32),
            ]);
            fields.extend(METRICS.iter().map(|(name, _)| value(name, Float64)));
            fields.push(Field::new("coherence_p", Float64, true));
            fields.push(Field::new("crispness", Float64, true));
            fields.push(value("source_sizes", weights_type(UInt64)));
            fields.push(value("target_sizes", weights_type(UInt64)));
            fields.push(value("weights", weights_type(Float64)));
        }
        Table::Certificates => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("certificate", Utf8)],
            );
            fields.extend(certificates::fields());
        }
        Table::Restarts => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("restart", UInt32)],
            );
            fields.extend([
                value("seed", UInt64),
                Field::new("init", Utf8, true),
                value("sources", UInt64),
                value("iterations", UInt64),
                Field::new("evaluations", UInt64, true),
                value("objective", Float64),
                value("empty_states", UInt32),
                value("converged", Boolean),
                value("is_best", Boolean),
            ]);
        }
        Table::Spectrum => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("index", UInt32)],
            );
            fields.push(value("singular_value", Float64));
            fields.extend(
                ["residual", "eigenvalue", "eigenvalue_imaginary"]
                    .map(|name| Field::new(name, Float64, true)),
            );
        }
        Table::Bootstrap => {
            keys(&mut fields, vec![value("fit", Utf8), value("metric", Utf8)]);
            fields.extend(bootstrap::fields());
        }
        Table::Ranks => {
            keys(&mut fields, vec![value("fit", Utf8), value("rank", UInt32)]);
            fields.extend(ranks::fields());
        }
        Table::Sets => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("set_id", UInt32)],
            );
            fields.extend(sets::set_fields(names.count_type()));
        }
        Table::Changes => {
            keys(&mut fields, vec![value("fit", Utf8)]);
            fields.extend(sets::change_fields());
        }
        Table::Timescales => {
            keys(
                &mut fields,
                vec![value("fit", Utf8), value("index", UInt32)],
            );
            fields.extend(markov::timescale_fields());
        }
        Table::ChapmanKolmogorov => {
            keys(
                &mut fields,
                vec![
                    value("fit", Utf8),
                    value("steps", UInt64),
                    value("from_set", Int32),
                    value("to_set", Int32),
                ],
            );
            fields.extend(markov::comparison_fields());
        }
        Table::Counts => {
            let (sources, targets) = names.pair_fields();
            keys(&mut fields, sources);
            keys(&mut fields, targets);
            fields.push(value("count", names.count_type()));
        }
    }
    (Arc::new(Schema::new(fields)), sorted)
}

/// Metrics that every fit has, in the order of the `fits` table (coherence §4-7).
pub const METRICS: [Metric; 16] = [
    ("log_likelihood", |f| f.metrics.log_likelihood),
    ("reference_log_likelihood", |f| {
        f.metrics.reference_log_likelihood
    }),
    ("kullback_leibler", |f| f.metrics.kullback_leibler),
    ("frobenius_p", |f| f.metrics.frobenius_p),
    ("frobenius_lambda", |f| f.metrics.frobenius_lambda),
    ("frobenius_error", |f| f.metrics.frobenius_error),
    ("kappa", |f| f.metrics.kappa),
    ("kappa_1", |f| f.metrics.kappa_1),
    ("kappa_2", |f| f.metrics.kappa_2),
    ("bound", |f| f.metrics.bound),
    ("coherence", |f| f.metrics.coherence),
    ("coherence_lower_bound", |f| f.metrics.coherence_lower_bound),
    ("objective", |f| f.metrics.objective),
    ("mutual_information", |f| f.metrics.mutual_information),
    ("reference_information", |f| f.metrics.reference_information),
    ("lambda_p_residual", |f| f.metrics.lambda_p_residual),
];

/// How many rows one model adds to a table.
pub fn len(table: Table, model: &Model) -> usize {
    let over_fits = |rows: fn(&Fit) -> usize| model.fits.iter().map(rows).sum();
    match table {
        Table::Sources => model.counts.source_states.len(),
        Table::Targets => model.counts.target_states.len(),
        Table::Latent => over_fits(|f| f.latent.targets.len()),
        Table::Coarse => over_fits(|f| f.rank * f.rank),
        Table::Fits => over_fits(|_| 1),
        Table::Certificates => model.certificates.iter().map(Vec::len).sum(),
        Table::Restarts => over_fits(|f| f.restarts.len()),
        Table::Spectrum => over_fits(|f| f.spectrum.len()),
        Table::Bootstrap => model.bootstraps.iter().map(|b| b.numbers.len()).sum(),
        Table::Ranks => model.ranks.len(),
        Table::Sets => model.lineage.iter().map(|l| l.sets.len()).sum(),
        Table::Changes => model.lineage.len(),
        Table::Timescales => model.markov.iter().map(|m| m.timescales.len()).sum(),
        Table::ChapmanKolmogorov => {
            let comparisons = model.markov.iter().flat_map(|m| &m.comparisons);
            comparisons.map(|c| c.predicted.len()).sum()
        }
        Table::Counts => model.nonzeros,
    }
}

/// Some of the rows that one model adds to a table, in its order.
pub fn rows(table: Table, names: &Names, model: &Model, rows: Range<usize>) -> Result<RecordBatch> {
    let columns = match table {
        Table::Sources => sources(names, model, rows)?,
        Table::Targets => targets(names, model, rows)?,
        Table::Latent => latent(names, model, rows)?,
        Table::Counts => counts(names, model, rows)?,
        // These grow with the number of fits only.
        Table::Coarse => part(coarse(names, model), rows),
        Table::Fits => part(fits(names, model), rows),
        Table::Certificates => part(certificates::columns(names, model), rows),
        Table::Restarts => part(restarts(names, model), rows),
        Table::Spectrum => part(spectrum(names, model), rows),
        Table::Bootstrap => part(bootstrap::columns(names, model), rows),
        Table::Ranks => part(ranks::columns(model), rows),
        Table::Sets => part(sets::sets(names, model), rows),
        Table::Changes => part(sets::changes(names, model), rows),
        Table::Timescales => part(markov::timescales(names, model), rows),
        Table::ChapmanKolmogorov => part(markov::comparisons(names, model), rows),
    };
    with_leading(table, names, model, columns)
}

fn part(columns: Vec<ArrayRef>, rows: Range<usize>) -> Vec<ArrayRef> {
    let slice = |column: ArrayRef| column.slice(rows.start, rows.len());
    columns.into_iter().map(slice).collect()
}

/// Puts the columns of partition and lag before the others.
fn with_leading(
    table: Table,
    names: &Names,
    model: &Model,
    rows: Vec<ArrayRef>,
) -> Result<RecordBatch> {
    let place = (model.counts.partition, model.counts.lag);
    batch(names, place, table.name(), schema(table, names).0, rows)
}

/// Rows of a table that are all of one partition and lag.
pub(super) fn batch(
    names: &Names,
    (partition, lag): (usize, usize),
    table: &str,
    schema: SchemaRef,
    rows: Vec<ArrayRef>,
) -> Result<RecordBatch> {
    let n = rows.first().map_or(0, |c| c.len());
    let mut columns: Vec<ArrayRef> = Vec::new();
    let broken = |e| {
        let what = format!("the rows of `{table}` do not fit its columns");
        Error::with_source(Kind::Bug, what, e)
    };
    let at = UInt32Array::from(vec![partition as u32; n]);
    for keys in &names.partitions {
        columns.push(take(keys, &at, None).map_err(broken)?);
    }
    columns.extend(names.lag.columns(lag, n));
    columns.extend(rows);
    RecordBatch::try_new(schema, columns).map_err(broken)
}

/// Counts or weights as a column of the count type.
pub(super) fn amounts(
    names: &Names,
    values: impl Iterator<Item = impl Into<Option<f64>>>,
) -> ArrayRef {
    let values = values.map(Into::into);
    if names.is_weighted {
        Arc::new(Float64Array::from_iter(values))
    } else {
        // Sums of counts in f64 are exact below 2⁵³, and a model with more is refused before it is fitted.
        Arc::new(UInt64Array::from_iter(values.map(|v| v.map(|v| v as u64))))
    }
}

pub(super) fn text<'a>(values: impl Iterator<Item = &'a str>) -> ArrayRef {
    Arc::new(StringArray::from(values.collect::<Vec<_>>()))
}

fn sources(names: &Names, model: &Model, rows: Range<usize>) -> Result<Vec<ArrayRef>> {
    let keys = &model.counts.source_states[rows.clone()];
    let keys = names.sources.columns(keys)?;
    let totals = &model.source_total[rows.clone()];
    let stability = |b: &Bootstrap| b.source_stability[rows.clone()].iter().copied().collect();
    Ok(states(
        names,
        model,
        keys,
        totals,
        rows.clone(),
        |fit| &fit.sources,
        stability,
    ))
}

fn targets(names: &Names, model: &Model, rows: Range<usize>) -> Result<Vec<ArrayRef>> {
    let keys = &model.counts.target_states[rows.clone()];
    let keys = names.targets.columns(keys)?;
    let totals = &model.target_total[rows.clone()];
    let stability = |b: &Bootstrap| b.target_stability[rows.clone()].iter().copied().collect();
    Ok(states(
        names,
        model,
        keys,
        totals,
        rows.clone(),
        |fit| &fit.targets,
        stability,
    ))
}

fn states(
    names: &Names,
    model: &Model,
    keys: Vec<ArrayRef>,
    totals: &[f64],
    rows: Range<usize>,
    side: impl Fn(&Fit) -> &Side,
    stability: impl Fn(&Bootstrap) -> Float64Array,
) -> Vec<ArrayRef> {
    let mut columns = keys;
    columns.push(amounts(names, totals.iter().copied()));
    columns.push(Arc::new(Float64Array::from_iter_values(
        totals.iter().map(|t| t / model.total),
    )));
    for (at, (shape, fit)) in names.fits.iter().zip(&model.fits).enumerate() {
        let side = side(fit);
        columns.push(Arc::new(
            side.affiliation[rows.clone()]
                .iter()
                .map(|&a| (a >= 0).then_some(a))
                .collect::<Int32Array>(),
        ));
        for values in std::iter::once(&side.embedding).chain(&side.membership) {
            let values = &values[rows.start * fit.rank..rows.end * fit.rank];
            let values: ArrayRef =
                Arc::new(Float64Array::from(filled_up(values, fit.rank, shape.rank)));
            let item = Arc::new(Field::new("item", DataType::Float64, false));
            columns.push(Arc::new(FixedSizeListArray::new(
                item,
                shape.rank as i32,
                values,
                None,
            )));
        }
        if let Some(bootstrap) = model.bootstraps.get(at) {
            columns.push(Arc::new(stability(bootstrap)));
        }
    }
    columns
}

/// Rows of `width` numbers, each followed by zeros up to a length of `wanted`.
pub(super) fn filled_up(rows: &[f64], width: usize, wanted: usize) -> Vec<f64> {
    if width == wanted {
        return rows.to_vec();
    }
    let mut filled = vec![0.0; rows.len() / width * wanted];
    let pairs = filled
        .chunks_exact_mut(wanted)
        .zip(rows.chunks_exact(width));
    pairs.for_each(|(filled, row)| filled[..width].copy_from_slice(row));
    filled
}

/// The fits of a model in the order of their names.
fn by_name<'a>(names: &'a Names, model: &'a Model) -> Vec<(&'a FitColumns, &'a Fit)> {
    beside(names, &model.fits)
}

/// What stands beside the fits of a model, in the order of their names.
pub(super) fn beside<'a, T>(names: &'a Names, of_fits: &'a [T]) -> Vec<(&'a FitColumns, &'a T)> {
    let mut fits: Vec<_> = names.fits.iter().zip(of_fits).collect();
    fits.sort_by(|a, b| a.0.name.cmp(&b.0.name));
    fits
}

fn latent(names: &Names, model: &Model, rows: Range<usize>) -> Result<Vec<ArrayRef>> {
    let mut fit_names = StringBuilder::new();
    let (mut latents, mut states, mut probabilities) = (Vec::new(), Vec::new(), Vec::new());
    let mut first = 0;
    for (columns, fit) in by_name(names, model) {
        for (k, ends) in fit.latent.offsets.windows(2).enumerate() {
            let own = first + ends[0]..first + ends[1];
            let own = own.start.max(rows.start)..own.end.min(rows.end);
            if own.is_empty() {
                continue;
            }
            let own = own.start - first..own.end - first;
            fit_names.append_value_n(&columns.name, own.len());
            latents.extend(std::iter::repeat_n(k as i32, own.len()));
            let targets = fit.latent.targets[own.clone()].iter();
            states.extend(targets.map(|&i| model.counts.target_states[i as usize]));
            probabilities.extend_from_slice(&fit.latent.probability[own]);
        }
        first += fit.latent.targets.len();
    }
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(fit_names.finish()),
        Arc::new(Int32Array::from(latents)),
    ];
    columns.extend(names.targets.columns(&states)?);
    columns.push(Arc::new(Float64Array::from(probabilities)));
    Ok(columns)
}

fn coarse(names: &Names, model: &Model) -> Vec<ArrayRef> {
    let fits = by_name(names, model);
    let cells = || {
        fits.iter()
            .flat_map(|(columns, fit)| (0..fit.rank * fit.rank).map(move |at| (*columns, *fit, at)))
    };
    vec![
        text(cells().map(|(c, _, _)| c.name.as_str())),
        Arc::new(Int32Array::from_iter_values(
            cells().map(|(_, f, at)| (at / f.rank) as i32),
        )),
        Arc::new(Int32Array::from_iter_values(
            cells().map(|(_, f, at)| (at % f.rank) as i32),
        )),
        amounts(names, cells().map(|(_, f, at)| f.coarse_counts[at])),
        Arc::new(Float64Array::from_iter_values(
            cells().map(|(_, f, at)| f.coarse[at]),
        )),
    ]
}

fn fits(names: &Names, model: &Model) -> Vec<ArrayRef> {
    let fits = by_name(names, model);
    let n = fits.len();
    let u32s = |get: &dyn Fn(&Fit) -> usize| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(
            fits.iter().map(|(_, f)| get(f) as u32),
        ))
    };
    let u64s = |get: &dyn Fn(&Fit) -> u64| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(
            fits.iter().map(|(_, f)| get(f)),
        ))
    };
    let mut columns: Vec<ArrayRef> = vec![
        text(fits.iter().map(|(c, _)| c.name.as_str())),
        text(fits.iter().map(|(c, _)| c.method)),
        u32s(&|f| f.rank),
        u64s(&|f| f.sources.affiliation.len() as u64),
        u64s(&|f| f.targets.affiliation.len() as u64),
        Arc::new(UInt64Array::from(vec![model.nonzeros as u64; n])),
        amounts(names, std::iter::repeat_n(model.total, n)),
        match &model.counts.left_out {
            Some(left_out) => Arc::new(UInt64Array::from(vec![left_out.states as u64; n])),
            None => new_null_array(&DataType::UInt64, n),
        },
        match &model.counts.left_out {
            Some(left_out) => amounts(names, std::iter::repeat_n(left_out.transitions, n)),
            None => new_null_array(&names.count_type(), n),
        },
        u64s(&|f| f.seed),
        u32s(&|f| f.restarts.len()),
        u32s(&|f| f.best_restart),
        u64s(&|f| f.iterations as u64),
        Arc::new(BooleanArray::from_iter(
            fits.iter().map(|(_, f)| Some(f.converged)),
        )),
        Arc::new(BooleanArray::from_iter(
            beside(names, &model.certificates)
                .into_iter()
                .map(|(_, c)| Some(certified(c))),
        )),
        u32s(&|f| f.metrics.empty_states),
    ];
    for (_, metric) in METRICS {
        columns.push(Arc::new(Float64Array::from_iter_values(
            fits.iter().map(|(_, f)| metric(f)),
        )));
    }
    columns.push(Arc::new(
        fits.iter()
            .map(|(_, f)| f.metrics.coherence_p)
            .collect::<Float64Array>(),
    ));
    columns.push(Arc::new(
        fits.iter()
            .map(|(_, f)| f.metrics.crispness)
            .collect::<Float64Array>(),
    ));
    let sizes = |get: &dyn Fn(&Fit) -> Vec<u64>| -> ArrayRef {
        let lists: Vec<Vec<u64>> = fits.iter().map(|(_, f)| get(f)).collect();
        let item = Arc::new(Field::new("item", DataType::UInt64, false));
        let values = Arc::new(UInt64Array::from_iter_values(
            lists.iter().flatten().copied(),
        ));
        Arc::new(ListArray::new(
            item,
            OffsetBuffer::from_lengths(lists.iter().map(Vec::len)),
            values,
            None,
        ))
    };
    columns.push(sizes(&|f| {
        f.metrics.source_sizes.iter().map(|&s| s as u64).collect()
    }));
    columns.push(sizes(&|f| {
        f.metrics.target_sizes.iter().map(|&s| s as u64).collect()
    }));
    let weights = Arc::new(Float64Array::from_iter_values(
        fits.iter()
            .flat_map(|(_, f)| f.metrics.weights.iter().copied()),
    ));
    let item = Arc::new(Field::new("item", DataType::Float64, false));
    let lengths = OffsetBuffer::from_lengths(fits.iter().map(|(_, f)| f.metrics.weights.len()));
    columns.push(Arc::new(ListArray::new(item, lengths, weights, None)));
    columns
}

fn restarts(names: &Names, model: &Model) -> Vec<ArrayRef> {
    let fits = by_name(names, model);
    let rows = || {
        fits.iter().flat_map(|(c, f)| {
            f.restarts
                .iter()
                .enumerate()
                .map(move |(at, r)| (*c, *f, at, r))
        })
    };
    vec![
        text(rows().map(|(c, ..)| c.name.as_str())),
        Arc::new(UInt32Array::from_iter_values(
            rows().map(|(_, _, at, _)| at as u32),
        )),
        Arc::new(UInt64Array::from_iter_values(rows().map(|(.., r)| r.seed))),
        Arc::new(
            rows()
                .map(|(.., r)| r.init.as_deref())
                .collect::<StringArray>(),
        ),
        Arc::new(UInt64Array::from_iter_values(
            rows().map(|(.., r)| r.sources as u64),
        )),
        Arc::new(UInt64Array::from_iter_values(
            rows().map(|(.., r)| r.iterations as u64),
        )),
        Arc::new(rows().map(|(.., r)| r.evaluations).collect::<UInt64Array>()),
        Arc::new(Float64Array::from_iter_values(
            rows().map(|(.., r)| r.objective),
        )),
        Arc::new(UInt32Array::from_iter_values(
            rows().map(|(.., r)| r.empty_states as u32),
        )),
        Arc::new(BooleanArray::from_iter(
            rows().map(|(.., r)| Some(r.converged)),
        )),
        Arc::new(BooleanArray::from_iter(
            rows().map(|(_, f, at, _)| Some(at == f.best_restart)),
        )),
    ]
}

fn spectrum(names: &Names, model: &Model) -> Vec<ArrayRef> {
    let fits = by_name(names, model);
    let rows = || {
        fits.iter().flat_map(|(c, f)| {
            f.spectrum
                .iter()
                .enumerate()
                .map(move |(at, s)| (*c, at, s))
        })
    };
    vec![
        text(rows().map(|(c, ..)| c.name.as_str())),
        Arc::new(UInt32Array::from_iter_values(
            rows().map(|(_, at, _)| at as u32),
        )),
        Arc::new(Float64Array::from_iter_values(
            rows().map(|(.., s)| s.value),
        )),
        Arc::new(rows().map(|(.., s)| s.residual).collect::<Float64Array>()),
        Arc::new(
            rows()
                .map(|(.., s)| s.eigenvalue.map(|[real, _]| real))
                .collect::<Float64Array>(),
        ),
        Arc::new(
            rows()
                .map(|(.., s)| s.eigenvalue.map(|[_, imaginary]| imaginary))
                .collect::<Float64Array>(),
        ),
    ]
}

/// Rows `rows` of the counts of a model.
fn counts(names: &Names, model: &Model, rows: Range<usize>) -> Result<Vec<ArrayRef>> {
    let counts = &model.counts;
    let (mut sources, mut targets) = (
        Vec::with_capacity(rows.len()),
        Vec::with_capacity(rows.len()),
    );
    let mut values = Vec::with_capacity(rows.len());
    let mut first = 0;
    for shard in &counts.by_source {
        let own = rows.start.max(first) - first..rows.end.clamp(first, first + shard.nnz()) - first;
        first += shard.nnz();
        if own.is_empty() {
            continue;
        }
        memory::look();
        // The row of the first entry, and those after it.
        let row = shard.offsets.partition_point(|&end| end <= own.start) - 1;
        for l in row..shard.n_rows() {
            let span = shard.span(l);
            let (start, end) = (span.start.max(own.start), span.end.min(own.end));
            if start >= end {
                break;
            }
            let source = counts.source_states[shard.first_row + l];
            sources.extend(std::iter::repeat_n(source, end - start));
        }
        let columns = shard.columns[own.clone()].iter();
        targets.extend(columns.map(|&i| counts.target_states[i as usize]));
        values.extend(own.map(|e| shard.values.get(e)));
    }
    let mut columns = names.sources.columns(&sources)?;
    columns.extend(names.targets.columns(&targets)?);
    columns.push(amounts(names, values.into_iter()));
    Ok(columns)
}
