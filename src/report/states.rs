//! The states of each set by name: the most frequent ones with their shares; and the most probable
//! symbols of hidden states.

use crate::error::Result;
use crate::report::facts::Listing;
use crate::report::model::{Model, column};
use crate::report::style::{number, set_name, short};
use polars::prelude::{DataType, Expr, SortMultipleOptions, len, lit};

/// At most this number of states per set.
const MOST_STATES: usize = 10;

/// At most this number of sets per fit.
const MOST_SETS: u32 = 40;

/// At most this number of fits.
const MOST_FITS: usize = 12;

/// The most frequent states of the sets of each fit. Those of the fit `first` are shown, unless the
/// states are boxes of a map; the others open.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn listings(model: &Model<'_>, first: Option<&str>) -> Result<Vec<Listing>> {
    let mut found = Vec::new();
    let names = [
        state_columns(model, "sources")?,
        state_columns(model, "targets")?,
    ];
    // Targets of trajectories are the same states once more.
    let is_other = names[0] != names[1];
    let tables = ["sources", "targets"].into_iter().zip(&names);
    for (table, names) in tables.filter(|(table, _)| *table == "sources" || is_other) {
        let columns = model.columns(table)?;
        let is_axis = |name: &&String| columns.contains(&format!("{name}_index"));
        let has_map = names.iter().filter(is_axis).count() == 2;
        let own = fits(model, table)?;
        let (of_first, others): (Vec<_>, Vec<_>) =
            own.into_iter().partition(|fit| Some(fit.as_str()) == first);
        for fit in of_first.iter().chain(&others).take(MOST_FITS) {
            let listing = of_fit(model, table, names, fit)?;
            found.push(Listing {
                is_folded: has_map || Some(fit.as_str()) != first,
                ..listing
            });
        }
    }
    found.extend(symbols(model, first)?);
    Ok(found)
}

/// The most probable symbols of the hidden states of each fit.
fn symbols(model: &Model<'_>, first: Option<&str>) -> Result<Vec<Listing>> {
    let columns = model.columns("symbols")?;
    let names = state_columns(model, "symbols")?;
    let mut found = Vec::new();
    let emissions = columns.iter().filter(|name| name.ends_with("_emission"));
    for emission in emissions.take(MOST_FITS) {
        let wanted = names.iter().chain([emission]).map(String::as_str);
        let rows = model.rows("symbols", &wanted.collect::<Vec<_>>())?;
        let texts = names.iter().map(|name| rows.texts(name));
        let texts = texts.collect::<Vec<_>>();
        let name = |at: usize| {
            let parts = texts.iter().zip(&names).map(|(values, name)| {
                let value = values[at].as_deref().unwrap_or("null");
                (name.as_str(), value)
            });
            state_name(&parts.collect::<Vec<_>>())
        };
        let fit = emission.trim_end_matches("_emission");
        let of_states = most_probable(&rows.lists(emission));
        let row = |(state, symbols): (usize, &Vec<(usize, f64)>)| {
            let shown = symbols
                .iter()
                .map(|(at, x)| format!("{} {}", name(*at), percent(*x)));
            vec![
                format!("state {state}"),
                shown.collect::<Vec<_>>().join(", "),
            ]
        };
        let all = of_states.iter().enumerate().map(row).collect();
        let title = format!("{fit}: most probable symbols of each hidden state");
        found.push(Listing {
            is_folded: Some(fit) != first,
            ..Listing::new(&title, &["hidden state", "most probable symbols"], all)
        });
    }
    Ok(found)
}

/// For each state, the places and the probabilities of its most probable symbols. Each symbol has
/// one probability per state.
fn most_probable(emissions: &[Vec<f64>]) -> Vec<Vec<(usize, f64)>> {
    let states = emissions.iter().map(Vec::len).max().unwrap_or_default();
    let of_state = |state: usize| {
        let all = emissions.iter().enumerate();
        let all = all.filter_map(|(at, row)| Some((at, *row.get(state)?)));
        let mut all = all.filter(|(_, x)| *x > 0.0).collect::<Vec<_>>();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(MOST_STATES);
        all
    };
    (0..states.min(MOST_SETS as usize)).map(of_state).collect()
}

/// The columns that name a state: those before its count.
///
/// # Errors
/// If the table cannot be read.
pub(crate) fn state_columns(model: &Model<'_>, table: &str) -> Result<Vec<String>> {
    let columns = model.columns(table)?;
    let named = columns.into_iter().skip(model.keys.len());
    let named = named.filter(|name| name != "lag_seconds");
    Ok(named.take_while(|name| name != "count").collect())
}

/// The fits with sets of a table.
fn fits(model: &Model<'_>, table: &str) -> Result<Vec<String>> {
    let columns = model.columns(table)?;
    if !columns.iter().any(|name| name == "count") {
        return Ok(Vec::new());
    }
    let fits = columns.iter();
    let fits = fits.filter_map(|name| name.strip_suffix("_affiliation"));
    Ok(fits.map(str::to_string).collect())
}

fn of_fit(model: &Model<'_>, table: &str, names: &[String], fit: &str) -> Result<Listing> {
    let set = column(&format!("{fit}_affiliation")).cast(DataType::Int64);
    let count = || column("count").cast(DataType::Float64);
    // States of equal counts come in the order of their names.
    let by = [count()]
        .into_iter()
        .chain(names.iter().map(|name| column(name)));
    let by = by.collect::<Vec<_>>();
    let falls = (0..by.len()).map(|at| at == 0).collect::<Vec<_>>();
    let order = SortMultipleOptions::default().with_order_descending_multi(falls);
    let top = |what: Expr| what.sort_by(&by, order.clone()).head(Some(MOST_STATES));
    let text = |name: &String| {
        let text = column(name).cast(DataType::String).fill_null(lit("null"));
        top(text).alias(format!("name {name}"))
    };
    let mut wanted = names.iter().map(text).collect::<Vec<_>>();
    wanted.push(top(count()).alias("top"));
    wanted.push(count().sum().alias("total"));
    wanted.push(len().alias("states"));
    let sets = model.scan(table)?.group_by([set.alias("set")]).agg(wanted);
    let sets = sets
        .sort(["set"], SortMultipleOptions::default())
        .limit(MOST_SETS);
    let rows = model.collect(table, sets)?;
    let texts = names
        .iter()
        .map(|name| rows.text_lists(&format!("name {name}")));
    let texts = texts.collect::<Vec<_>>();
    let (numbers, totals, tops) = (rows.sets("set"), rows.floats("total"), rows.lists("top"));
    let sizes = rows.floats("states");
    let all = totals.iter().sum::<f64>();
    let row = |at: usize| {
        let states = tops[at].iter().enumerate().map(|(k, n)| {
            let parts = texts.iter().zip(names).map(|(column, name)| {
                let value = column[at].get(k).map_or("null", String::as_str);
                (name.as_str(), value)
            });
            let name = state_name(&parts.collect::<Vec<_>>());
            format!("{name} {}", percent(n / totals[at]))
        });
        vec![
            set_name(numbers[at]),
            percent(totals[at] / all),
            number(sizes[at]),
            states.collect::<Vec<_>>().join(", "),
        ]
    };
    let title = format!("{fit}: most frequent {table} of each set, with their share of the set");
    let columns = ["set", "of all", "states", "most frequent"];
    Ok(Listing::new(
        &title,
        &columns,
        (0..rows.len()).map(row).collect(),
    ))
}

/// A share in per cent.
fn percent(share: f64) -> String {
    format!("{} %", number((1000.0 * share).round() / 10.0))
}

/// A state by the values of its columns: alone, or each with the name of its column.
pub(crate) fn state_name(parts: &[(&str, &str)]) -> String {
    let value = |value: &str| match value.parse::<f64>() {
        // A short text is shown as it is: it can be a version, such as 1.10.
        Ok(x) if value.len() > 7 && value.contains('.') => number(x),
        _ => short(value, 40),
    };
    match parts {
        [] => String::new(),
        [(_, one)] => value(one),
        parts => {
            let named = parts
                .iter()
                .map(|(name, x)| format!("{} {}", short(name, 20), value(x)));
            format!("({})", named.collect::<Vec<_>>().join(" "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_have_the_names_of_several_columns() {
        assert_eq!(state_name(&[("airport", "FRA")]), "FRA");
        assert_eq!(
            state_name(&[("x", "0.03125"), ("y", "2")]),
            "(x 0.03125 y 2)"
        );
        assert_eq!(state_name(&[("version", "1.10")]), "1.10");
        assert_eq!(state_name(&[("x", "0.333333333333333")]), "0.33333");
    }

    #[test]
    fn symbols_come_by_their_probability() {
        let emissions = [vec![0.2, 0.5], vec![0.7, 0.5], vec![0.1, 0.0]];
        let found = most_probable(&emissions);
        assert_eq!(found[0], [(1, 0.7), (0, 0.2), (2, 0.1)]);
        assert_eq!(found[1], [(0, 0.5), (1, 0.5)]);
        assert!(most_probable(&[]).is_empty());
    }

    #[test]
    fn shares_have_one_digit() {
        assert_eq!(percent(0.12345), "12.3 %");
        assert_eq!(percent(1.0), "100 %");
    }
}
