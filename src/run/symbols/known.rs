//! Reads the models of a written result over sequences, which then filter new rows.

use crate::error::{Error, Result};
use crate::methods::hmm::model::HmmModel;
use crate::output::result::{ModelKey, Written, finite};
use crate::output::slices::{ModelColumns, TableSlice, partitions};
use crate::output::tables::symbols::{
    OPERATORS, PREDICTIONS, SYMBOLS, SymbolColumns, TRAJECTORIES,
};
use crate::output::tables::table::Table;
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::states::StateColumns;
use crate::read::symbols::KnownSymbols;
use crate::run::counts::known::check_boxes;
use crate::run::symbols::rows::{RowFit, RowModel};
use arrow::array::{Array, AsArray};
use arrow::datatypes::DataType;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// No fit has a larger rank: its operators would not fit memory.
const LARGEST_RANK: usize = 1 << 15;

/// The models of a written result.
pub(crate) struct KnownModels {
    /// The symbols of all models, and the partitions with a model.
    pub(crate) symbols: KnownSymbols,
    /// One model per partition, in the order of `symbols.partitions`.
    pub(crate) models: Vec<RowModel<'static>>,
    /// The columns of the fits, in the order of those of the run.
    pub(crate) fits: Vec<SymbolColumns>,
}

/// Reads all models. `symbol` has the columns of the new rows. With `distributions`, rows get the
/// distribution of the next symbol.
///
/// # Errors
/// If a table cannot be read, lacks a part of a fit, or has other bins than the pipeline.
pub(crate) async fn read(
    written: &Written<'_>,
    symbol: &StateColumns,
    distributions: bool,
) -> Result<KnownModels> {
    let names = ["fit", "rank", "unigram", "floor"];
    let of_fits = ModelColumns::read(written, Table::Fits, &[], &names).await?;
    let names = ["fit", "vector", "value"];
    let vectors = ModelColumns::read(written, "vectors", &[], &names).await?;
    let keys: Vec<&str> = written.sources.iter().map(|f| f.name().as_str()).collect();
    let mut columns = written.table(SYMBOLS).await?.columns(&keys).await?;
    check_boxes(symbol, &columns)?;
    let types: Vec<DataType> = columns.iter().map(|c| c.data_type().clone()).collect();
    let mut known = Keys::new(&types)?;
    let mut ids = Vec::new();
    known.intern(&columns, &mut ids)?;
    columns = known.columns(&(0..known.len() as u32).collect::<Vec<_>>())?;
    let shares = written
        .table(SYMBOLS)
        .await?
        .columns(&["probability"])
        .await?;
    let shares = finite(&shares[0], "probability")?;
    let rows = written.models(SYMBOLS).await?.into_iter();
    let rows: BTreeMap<ModelKey, _> = rows.map(|model| (model.key, model.rows)).collect();
    let mut operators = Operators::read(written, &keys, &mut known).await?;
    let order = order(written).await?;

    let (mut models, mut widths) = (Vec::new(), BTreeMap::new());
    for key in of_fits.of_model.keys() {
        let within = |name: &str, e: Error| e.at(format!("fit `{name}`")).at(written.place(key));
        let own = rows.get(key).cloned().unwrap_or_default();
        let (numbers, shares) = (&ids[own.clone()], &shares[own]);
        let vectors = vectors.of(key).by_fit()?;
        let mut fits = Vec::new();
        for (name, row) in of_fits.of(key).by_fit()? {
            let parts = Parts {
                row: &row,
                vectors: vectors.get(&name),
                operators: operators.of.remove(&(key.clone(), name.clone())),
                numbers,
                shares,
            };
            let fit = parts.fit(&operators).map_err(|e| within(&name, e))?;
            let place = order.iter().position(|own| *own == name);
            let width = widths.entry((place, name.clone())).or_insert(0);
            *width = fit.model.rank.max(*width);
            fits.push((place, name, fit));
        }
        fits.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        models.push(RowModel {
            numbers: Cow::Owned(numbers.to_vec()),
            fits: fits.into_iter().map(|(.., fit)| fit).collect(),
        });
    }
    if models.iter().any(|model| model.fits.len() != widths.len()) {
        return Err(Error::input("a partition of `fits` lacks a fit"));
    }
    let fits = columns_of_fits(written, widths, distributions).await?;
    Ok(KnownModels {
        fits,
        models,
        symbols: KnownSymbols {
            columns,
            partitions: partitions(written).await?,
        },
    })
}

/// The columns of the fits. `widths` has the place of each fit, its name and its largest rank.
async fn columns_of_fits(
    written: &Written<'_>,
    widths: BTreeMap<(Option<usize>, String), usize>,
    distributions: bool,
) -> Result<Vec<SymbolColumns>> {
    let lists = lists(written).await?;
    for ((_, name), width) in &widths {
        if lists.get(name).is_some_and(|list| list < width) {
            return Err(lengths(PREDICTIONS));
        }
    }
    let fits = widths.into_iter().map(|((_, name), width)| SymbolColumns {
        // A rule may have chosen a smaller rank than the columns of the run have.
        rank: lists.get(&name).copied().unwrap_or(width),
        name,
        has_distribution: distributions,
        has_hidden: false,
    });
    Ok(fits.collect())
}

/// The names of the fits in the order of the columns of the run.
pub(crate) async fn order(written: &Written<'_>) -> Result<Vec<String>> {
    let schema = written.table(TRAJECTORIES).await?.schema();
    let names = schema.fields().iter().map(|f| f.name());
    let names = names.filter_map(|name| name.strip_suffix("_mean_log_likelihood"));
    Ok(names.map(String::from).collect())
}

/// The lengths of the states in the table `predictions`, by fit, if the result has that table.
async fn lists(written: &Written<'_>) -> Result<BTreeMap<String, usize>> {
    if !written.current.tables.contains_key(PREDICTIONS) {
        return Ok(BTreeMap::new());
    }
    let schema = written.table(PREDICTIONS).await?.schema();
    let lists = schema.fields().iter().filter_map(|field| {
        let name = field.name().strip_suffix("_embedding")?;
        match field.data_type() {
            DataType::FixedSizeList(_, width) => Some((name.to_string(), *width as usize)),
            _ => None,
        }
    });
    Ok(lists.collect())
}

/// The operators of all fits.
struct Operators {
    /// Entries of all operators, in the order of the table.
    values: Vec<f64>,
    /// The symbol of each operator; [`NONE`] for pooled symbols.
    symbols: Vec<u32>,
    /// By model and fit: the first operator, and the number of operators.
    of: BTreeMap<(ModelKey, String), OperatorRows>,
}

/// The operators of a fit.
struct OperatorRows {
    /// The first operator in the table.
    first: usize,
    /// The number of operators.
    n: usize,
    /// The first entry in the table.
    value: usize,
}

impl Operators {
    /// Reads the table `operators`. Of the columns of symbols, only one row per operator is kept.
    async fn read(written: &Written<'_>, keys: &[&str], known: &mut Keys) -> Result<Operators> {
        let values = written.table(OPERATORS).await?.columns(&["value"]).await?;
        let values = finite(&values[0], "value")?;
        let partition = written.partition.iter().map(|f| f.name().as_str());
        let names: Vec<&str> = partition
            .chain(["fit"])
            .chain(keys.iter().copied())
            .collect();
        let table = written.table(OPERATORS).await?;
        let columns = table.columns_where_zero(&names, &["i", "j"]).await?;
        let n_partition = written.partition.len();
        let mut symbols = Vec::new();
        known.intern(&columns[n_partition + 1..], &mut symbols)?;
        let fits = columns[n_partition].as_string_opt::<i32>();
        let fits = fits.filter(|fits| fits.null_count() == 0);
        let fits = fits.ok_or_else(|| Error::input("the column `fit` holds no text"))?;
        let ranks = ModelColumns::read(written, Table::Fits, &[], &["fit", "rank"]).await?;
        let mut of_rank = BTreeMap::new();
        for key in ranks.of_model.keys() {
            for (name, row) in ranks.of(key).by_fit()? {
                of_rank.insert((key.clone(), name), row.size("rank", LARGEST_RANK)?);
            }
        }
        let mut of: BTreeMap<(ModelKey, String), OperatorRows> = BTreeMap::new();
        let mut value = 0;
        for at in 0..symbols.len() {
            let key = ModelKey::at(&columns[..n_partition], None, at);
            let key = (key, fits.value(at).to_string());
            let Some(rank) = of_rank.get(&key) else {
                return Err(Error::input(format!("`fits` lacks fit `{}`", key.1)));
            };
            let rows = of.entry(key).or_insert(OperatorRows {
                first: at,
                n: 0,
                value,
            });
            if at != rows.first + rows.n {
                return Err(Error::input(
                    "the rows of a fit in `operators` are not adjacent",
                ));
            }
            rows.n += 1;
            value += rank * rank;
        }
        if value != values.len() {
            return Err(lengths(OPERATORS));
        }
        Ok(Operators {
            values,
            symbols,
            of,
        })
    }
}

fn lengths(table: &str) -> Error {
    Error::input(format!(
        "the rows of `{table}` do not have the lengths that `fits` says"
    ))
}

/// What the tables have of a fit.
struct Parts<'a> {
    /// Its row of `fits`.
    row: &'a TableSlice,
    vectors: Option<&'a TableSlice>,
    operators: Option<OperatorRows>,
    /// The symbols of the model.
    numbers: &'a [u32],
    /// The share of each symbol.
    shares: &'a [f64],
}

impl Parts<'_> {
    fn fit(self, all: &Operators) -> Result<RowFit<'static>> {
        let lacks = |table: &str| Error::input(format!("`{table}` lacks the fit"));
        let rank = self.row.size("rank", LARGEST_RANK)?;
        let vectors = self.vectors.ok_or_else(|| lacks("vectors"))?;
        let kinds = vectors.texts("vector")?;
        let values = vectors.finite("value")?;
        let vector = |kind: &str| -> Vec<f64> {
            let own = (0..values.len()).filter(|&at| kinds.value(at) == kind);
            own.map(|at| values[at]).collect()
        };
        let (initial, last) = (vector("initial"), vector("final"));
        if initial.len() != rank || last.len() != rank {
            return Err(lengths("vectors"));
        }
        let own = self.operators.ok_or_else(|| lacks(OPERATORS))?;
        let symbols = &all.symbols[own.first..own.first + own.n];
        // Operators are ordered by symbol, that of the pooled symbols last.
        let pool = symbols.iter().position(|&symbol| symbol == NONE);
        let pool = pool.map(|class| class as u32);
        let class: BTreeMap<u32, u32> = symbols.iter().copied().zip(0..).collect();
        let class_of = self.numbers.iter().map(|number| {
            let class = class.get(number).copied().or(pool);
            class.ok_or_else(|| Error::input("a symbol has no operator"))
        });
        let class_of: Vec<u32> = class_of.collect::<Result<_>>()?;
        let is_pooled = |class: &u32| pool == Some(*class);
        let pooled = class_of.iter().zip(self.shares);
        let mass: f64 = pooled
            .filter(|(class, _)| is_pooled(class))
            .map(|(_, share)| share)
            .sum();
        let share = class_of.iter().zip(self.shares);
        let share = share.map(|(class, share)| if is_pooled(class) { share / mass } else { 1.0 });
        let size = own.n * rank * rank;
        let model = HmmModel {
            rank,
            n_symbols: class_of.len(),
            operators: all.values[own.value..own.value + size].to_vec(),
            initial,
            last,
            unigram: self.shares.to_vec(),
            share: share.collect(),
            class_of,
            pool,
            hidden: None,
        };
        Ok(RowFit {
            model: Cow::Owned(model),
            unigram: self.row.first("unigram")?,
            floor: self.row.first("floor")?,
        })
    }
}
