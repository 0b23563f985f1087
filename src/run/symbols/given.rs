//! Reads the models that the input has: start, transition and emission probabilities.
//!
//! Entries come by SQL, one per row, in any order. States are numbered in the ascending order of
//! their names. A column of probabilities adds up to 1 within [`TOLERANCE`] and is divided by its
//! sum.

use crate::assess::hmm_distances::drawn_bytes;
use crate::error::{Error, Result, counted};
use crate::memory;
use crate::methods::SymbolMethod;
use crate::methods::hmm::given::{GivenHmm, GivenProbabilities, bytes};
use crate::methods::hmm::model::Hidden;
use crate::plan::fits::PlannedFit;
use crate::plan::memory::{Lack, RESIDENT};
use crate::plan::symbols::{GivenStates, SymbolsPlan};
use crate::plan::symbols_given::PlannedEntries;
use crate::read::lake::Lake;
use crate::read::rows::doubles::{doubles, typed_columns};
use crate::read::rows::keys::{Keys, NONE};
use crate::read::rows::states::{StateColumns, States, describe};
use crate::read::rows::stop::{Dropped, Stop, bug};
use crate::read::symbols::KnownSymbols;
use arrow::array::{Array, ArrayRef, RecordBatch};
use hashbrown::{HashMap, HashSet};
use std::collections::{BTreeMap, BTreeSet};

/// How far a sum of probabilities may be from 1.
const TOLERANCE: f64 = 1e-6;

/// The given models of a run, by the index of the fit.
#[derive(Default)]
pub(crate) struct GivenModels(BTreeMap<usize, GivenRows>);

/// The rows of a given model.
struct GivenRows {
    /// The names of the states. Their order is that of the names.
    names: Vec<String>,
    /// The columns of the symbols of the emissions, and of the known symbols.
    shown: [Vec<ArrayRef>; 2],
    keys: GivenHmm,
    transitions: Entries,
    emissions: Entries,
}

/// The entries of a matrix.
struct Entries {
    /// The name of the fit.
    fit: String,
    /// The key of `[[fit]]`.
    key: &'static str,
    /// The entries of each partition. None if all entries are those of every partition.
    of_partition: Option<BTreeMap<u32, Vec<usize>>>,
    /// The state of each entry; [`NONE`] for the start.
    state: Vec<u32>,
    /// The next state or the symbol of each entry. A symbol that no window has is a number from the
    /// number of known symbols on.
    other: Vec<u32>,
    probability: Vec<f64>,
}

/// The rows of a query.
struct Rows {
    partition: Vec<ArrayRef>,
    state: ArrayRef,
    others: Vec<ArrayRef>,
    probability: Vec<f64>,
}

impl Rows {
    /// Reads the rows of a query.
    async fn read(lake: &Lake, planned: &PlannedEntries, section: &str) -> Result<Rows> {
        let fields = planned.fields();
        let last = fields.len() - 1..fields.len();
        let batch = lake.all_rows(section, &planned.sql, &fields, last).await?;
        Rows::of(planned, &batch)
    }

    fn of(planned: &PlannedEntries, batch: &RecordBatch) -> Result<Rows> {
        let mut columns = typed_columns(batch, &planned.fields()).map_err(bug)?;
        let partition: Vec<ArrayRef> = columns.drain(..planned.partition.len()).collect();
        let key = &columns[..planned.key.len()];
        for (column, field) in partition.iter().zip(&planned.partition) {
            if column.null_count() > 0 {
                let what = format!("column `{}` has a null", field.name());
                return Err(Error::input(what));
            }
        }
        for (column, field) in key.iter().zip(&planned.key).skip(1) {
            if let Some(row) = (0..column.len()).find(|&row| column.is_null(row)) {
                let state = describe(&key[..1], row);
                return Err(Error::input(format!(
                    "column `{}` is null in a row of the state {state}",
                    field.name()
                )));
            }
        }
        let name = planned.probability.name();
        let values = doubles(&columns[planned.key.len()], name).map_err(bug)?;
        for row in 0..values.len() {
            let value = values.value(row);
            let what = if values.is_null(row) {
                "null".to_string()
            } else if value >= 0.0 && value.is_finite() {
                continue;
            } else {
                value.to_string()
            };
            return Err(Error::input(format!(
                "the `{name}` of {} is {what}; write a number of 0 or more",
                describe(key, row)
            )));
        }
        Ok(Rows {
            partition,
            state: key[0].clone(),
            others: key[1..].to_vec(),
            probability: values.values().to_vec(),
        })
    }

    /// The rows of each known partition. None if the rows are for all partitions.
    fn partitions(&self, known: &[ArrayRef]) -> Result<Option<BTreeMap<u32, Vec<usize>>>> {
        if self.partition.is_empty() {
            return Ok(None);
        }
        let types: Vec<_> = known.iter().map(|c| c.data_type().clone()).collect();
        let mut keys = Keys::new(&types)?;
        let mut numbers = Vec::new();
        keys.intern(known, &mut numbers)?;
        let n_known = keys.len() as u32;
        numbers.clear();
        keys.intern(&self.partition, &mut numbers)?;
        let mut of: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (row, number) in numbers.into_iter().enumerate() {
            if number < n_known {
                of.entry(number).or_default().push(row);
            }
        }
        Ok(Some(of))
    }
}

impl GivenModels {
    /// Reads the given models of a plan.
    ///
    /// # Errors
    /// If a query fails, gives no rows, or has a probability that is null, negative or not finite.
    pub(crate) async fn read(
        lake: &Lake,
        plan: &SymbolsPlan,
        symbols: &KnownSymbols,
    ) -> Result<GivenModels> {
        let mut all = BTreeMap::new();
        for (&at, planned) in &plan.given {
            let fit = &plan.fits[at].name;
            let within = |key: &str, e: Error| e.at(format!("`fit.{fit}.{key}`"));
            let transitions = Rows::read(lake, &planned.transition, "transition").await;
            let transitions = transitions.map_err(|e| within("transition", e))?;
            let emissions = Rows::read(lake, &planned.emission, "emission").await;
            let emissions = emissions.map_err(|e| within("emission", e))?;
            if let Some(row) = (0..emissions.state.len()).find(|&row| emissions.state.is_null(row))
            {
                let symbol = describe(&emissions.others, row);
                let what = format!("column `state` is null in a row of the symbol {symbol}");
                return Err(within("emission", Error::input(what)));
            }
            let symbol = plan.rows().symbol;
            let rows = GivenRows::of(&plan.fits[at], [transitions, emissions], symbol, symbols);
            all.insert(at, rows.map_err(|e| e.at(format!("fit `{fit}`")))?);
        }
        Ok(GivenModels(all))
    }

    /// The largest number of states of each model.
    pub(crate) fn states(&self) -> GivenStates {
        let all = self.0.iter();
        all.map(|(&at, rows)| (at, rows.most_states())).collect()
    }

    /// The model of a fit in a partition, for some of the known symbols, given by their numbers.
    ///
    /// # Errors
    /// If a column does not add up to 1, an entry is there twice, a state has no row, or the model
    /// lacks a symbol.
    pub(crate) fn probabilities(
        &self,
        fit: usize,
        partition: usize,
        symbols: &[u32],
    ) -> Result<GivenProbabilities> {
        let rows = self.0.get(&fit);
        let rows = rows.ok_or_else(|| Error::bug("the rows of a given model were not read"))?;
        rows.probabilities(partition as u32, symbols)
    }
}

impl GivenRows {
    fn of(
        fit: &PlannedFit<SymbolMethod>,
        [transitions, emissions]: [Rows; 2],
        symbol: &StateColumns,
        known: &KnownSymbols,
    ) -> Result<GivenRows> {
        let keys = fit.method.given();
        let keys = keys.ok_or_else(|| Error::bug("the rows are of no given model"))?;
        // The names of the states, by rank.
        let mut states = Keys::new(&[transitions.state.data_type().clone()])?;
        let mut ids: [Vec<u32>; 3] = Default::default();
        let columns = [&transitions.state, &transitions.others[0], &emissions.state];
        for (column, ids) in columns.into_iter().zip(&mut ids) {
            states.intern(std::slice::from_ref(column), ids)?;
        }
        let (names, ranks) = states.sorted()?;
        let names = (0..names[0].len()).map(|at| describe(&names, at)).collect();
        let [from, next, showing] = ids.map(|ids| -> Vec<u32> {
            let rank = |id: &u32| ranks.get(*id as usize).copied().unwrap_or(NONE);
            ids.iter().map(rank).collect()
        });
        let numbers = numbers(symbol, known, &emissions.others)?;
        let entries = |key, rows: &Rows, state, other| {
            Ok::<_, Error>(Entries {
                fit: fit.name.clone(),
                key,
                of_partition: rows.partitions(&known.partitions)?,
                state,
                other,
                probability: rows.probability.clone(),
            })
        };
        Ok(GivenRows {
            names,
            keys: keys.clone(),
            transitions: entries("transition", &transitions, from, next)?,
            emissions: entries("emission", &emissions, showing, numbers)?,
            shown: [emissions.others, known.columns.clone()],
        })
    }

    /// The states of a partition, ascending.
    fn states(&self, partition: u32) -> Vec<u32> {
        let own = &self.transitions;
        let rows = own.rows(partition);
        let states = rows.flat_map(|row| [own.state[row], own.other[row]]);
        let states: BTreeSet<u32> = states.filter(|state| *state != NONE).collect();
        states.into_iter().collect()
    }

    fn most_states(&self) -> usize {
        let partitions: Vec<u32> = match &self.transitions.of_partition {
            Some(of) => of.keys().copied().collect(),
            None => vec![0],
        };
        let sizes = partitions.into_iter().map(|at| self.states(at).len());
        sizes.max().unwrap_or(0).max(1)
    }

    fn name(&self, state: u32) -> &str {
        &self.names[state as usize]
    }

    /// A symbol as messages show it.
    fn symbol(&self, number: u32) -> String {
        let [shown, known] = &self.shown;
        let n = known.first().map_or(0, |column| column.len());
        if (number as usize) < n {
            return describe(known, number as usize);
        }
        let row = self.emissions.other.iter().position(|own| *own == number);
        row.map_or_else(String::new, |row| describe(shown, row))
    }

    fn probabilities(&self, partition: u32, symbols: &[u32]) -> Result<GivenProbabilities> {
        let states = self.states(partition);
        let m = states.len();
        for own in [&self.transitions, &self.emissions] {
            if own.rows(partition).next().is_none() {
                return Err(own.fault("has no rows for this partition"));
            }
        }
        let shown: HashSet<u32> = self.shown_in(partition);
        if let Some(lacking) = symbols.iter().find(|symbol| !shown.contains(*symbol)) {
            let what = format!(
                "lacks the symbol {}, which the rows show; add it, with the probability 0 if no \
                 state shows it",
                self.symbol(*lacking)
            );
            return Err(self.emissions.fault(&what));
        }
        let own: HashSet<u32> = symbols.iter().copied().collect();
        let mut others: Vec<u32> = shown.difference(&own).copied().collect();
        others.sort_unstable();
        self.check_memory(m, symbols.len(), others.len())?;
        let place: HashMap<u32, usize> = states.iter().copied().zip(0..).collect();
        let (start, transition) = self.transitions(partition, &states, &place)?;
        let rows: HashMap<u32, usize> = symbols.iter().chain(&others).copied().zip(0..).collect();
        let all = self.emission(partition, &states, &place, &rows)?;
        let (emission, others) = all.split_at(symbols.len() * m);
        Ok(GivenProbabilities {
            hidden: Hidden {
                initial: start,
                transition,
                emission: emission.to_vec(),
            },
            others: others.to_vec(),
        })
    }

    /// The symbols of the emissions of a partition.
    fn shown_in(&self, partition: u32) -> HashSet<u32> {
        let own = &self.emissions;
        own.rows(partition).map(|row| own.other[row]).collect()
    }

    /// π and T.
    fn transitions(
        &self,
        partition: u32,
        states: &[u32],
        place: &HashMap<u32, usize>,
    ) -> Result<(Vec<f64>, Vec<f64>)> {
        let (own, m) = (&self.transitions, states.len());
        let mut start = vec![0.0; m];
        let mut transition = vec![0.0; m * m];
        let mut seen = HashSet::new();
        let (mut has_start, mut is_left) = (false, vec![false; m]);
        for row in own.rows(partition) {
            let (from, next, p) = (own.state[row], own.other[row], own.probability[row]);
            if !seen.insert((from, next)) {
                let next = self.name(next);
                let from = match from {
                    NONE => "the start".to_string(),
                    from => format!("the state {}", self.name(from)),
                };
                return Err(own.fault(&format!("has two rows from {from} to the state {next}")));
            }
            match place.get(&from) {
                Some(&from) => {
                    is_left[from] = true;
                    transition[place[&next] * m + from] = p;
                }
                None => {
                    has_start = true;
                    start[place[&next]] = p;
                }
            }
        }
        if !has_start {
            let what = "has no row with a null `state`; such rows have the probabilities of the \
                        first state of a sequence";
            return Err(own.fault(what));
        }
        for (at, &state) in states.iter().enumerate() {
            if !is_left[at] {
                let name = self.name(state);
                return Err(own.fault(&format!("has no row that leaves the state {name}")));
            }
            let name = || format!("the state {}", self.name(state));
            own.normalise(&mut transition, m, at, name)?;
        }
        own.normalise(&mut start, 1, 0, || "the start".to_string())?;
        Ok((start, transition))
    }

    /// O, with the row of each symbol of `rows`.
    fn emission(
        &self,
        partition: u32,
        states: &[u32],
        place: &HashMap<u32, usize>,
        rows: &HashMap<u32, usize>,
    ) -> Result<Vec<f64>> {
        let (own, m) = (&self.emissions, states.len());
        let mut emission = vec![0.0; rows.len() * m];
        let mut seen = HashSet::new();
        let mut showing = vec![false; m];
        for row in own.rows(partition) {
            let (state, symbol) = (own.state[row], own.other[row]);
            let name = self.name(state);
            let Some(&at) = place.get(&state) else {
                let what = format!("has the state {name}, which `transition` lacks");
                return Err(own.fault(&what));
            };
            if !seen.insert((state, symbol)) {
                let symbol = self.symbol(symbol);
                let what = format!("has two rows of the state {name} and the symbol {symbol}");
                return Err(own.fault(&what));
            }
            showing[at] = true;
            emission[rows[&symbol] * m + at] = own.probability[row];
        }
        if let Some(at) = showing.iter().position(|is_there| !is_there) {
            let name = self.name(states[at]);
            return Err(own.fault(&format!("has no row of the state {name}")));
        }
        for (at, &state) in states.iter().enumerate() {
            let name = || format!("the state {}", self.name(state));
            own.normalise(&mut emission, m, at, name)?;
        }
        Ok(emission)
    }

    /// An error if the model does not fit memory. No row shows the `others`.
    fn check_memory(&self, states: usize, shown: usize, others: usize) -> Result<()> {
        let symbols = shown + others;
        let evidence = format!(
            "{RESIDENT} for {} and {}",
            counted(states, "state"),
            counted(symbols, "symbol")
        );
        let bytes =
            bytes(states as u64, symbols as u64).saturating_add(drawn_bytes(&self.keys, shown));
        let (threads, limit) = (rayon::current_num_threads(), memory::limit());
        let less = "or give fewer states, or lower `samples`";
        let fit = &self.transitions.fit;
        Lack::none(Lack::of(fit, bytes, &evidence, less, threads, limit))
    }
}

impl Entries {
    /// The entries of a partition.
    fn rows(&self, partition: u32) -> impl Iterator<Item = usize> {
        let own = self.of_partition.as_ref();
        let own = own.map(|of| of.get(&partition).map_or(&[][..], |rows| rows));
        let n = own.map_or(self.state.len(), <[usize]>::len);
        (0..n).map(move |at| own.map_or(at, |rows| rows[at]))
    }

    fn fault(&self, what: &str) -> Error {
        Error::input(format!("`{}` {what}", self.key)).at(format!("fit `{}`", self.fit))
    }

    /// Divides a column of a matrix with `m` columns by its sum.
    fn normalise(
        &self,
        matrix: &mut [f64],
        m: usize,
        column: usize,
        name: impl Fn() -> String,
    ) -> Result<()> {
        let sum: f64 = matrix.iter().skip(column).step_by(m).sum();
        if (sum - 1.0).abs() > TOLERANCE {
            return Err(self.fault(&format!(
                "has probabilities of {} that add up to {sum}, not to 1 within {TOLERANCE:e}",
                name()
            )));
        }
        let column = matrix.iter_mut().skip(column).step_by(m);
        column.for_each(|p| *p /= sum);
        Ok(())
    }
}

/// The numbers of the symbols of some rows among the known symbols. An unknown symbol has a number
/// from the number of known symbols on, in ascending order.
fn numbers(columns: &StateColumns, known: &KnownSymbols, shown: &[ArrayRef]) -> Result<Vec<u32>> {
    let mut states = States::new(columns, false)?;
    let mut dropped = Dropped::default();
    let failed = |stop: Stop| stop.into_error("numbering symbols");
    let (mut of_known, mut ids) = (Vec::new(), Vec::new());
    let found = states.ids(&known.columns, &mut dropped, &mut of_known);
    found.map_err(failed)?;
    let found = states.ids(shown, &mut dropped, &mut ids);
    found.map_err(failed)?;
    if let Some(row) = ids.iter().position(|id| *id == NONE) {
        let symbol = describe(shown, row);
        let what = format!("the symbol {symbol} of `emission` is null, NaN or outside the bins");
        return Err(Error::input(what));
    }
    // Boxes are their own ranks.
    let (_, rank) = states.finish()?;
    let mut number: HashMap<u32, u32> = of_known.into_iter().zip(0..).collect();
    let unknown = ids.iter().filter(|id| !number.contains_key(*id));
    let unknown = unknown.map(|id| (rank.as_ref().map_or(*id, |rank| rank[*id as usize]), *id));
    let unknown: BTreeSet<(u32, u32)> = unknown.collect();
    let n = number.len() as u32;
    number.extend(unknown.into_iter().map(|(_, id)| id).zip(n..));
    Ok(ids.iter().map(|id| number[id]).collect())
}
