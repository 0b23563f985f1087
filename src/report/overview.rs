//! A result at a glance: its tables, columns, fits and earlier versions.

use crate::error::{Result, escaped};
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::report::facts::{fits as fits_of, record};
use crate::report::meanings::{Meanings, section_of};
use crate::report::model::{Model, key_columns, models};
use crate::report::pictures::fits;
use crate::report::style::short;
use crate::report::tables::{Tables, failed};
use std::fmt::Write;

/// At most this number of models are listed with their fits.
const MOST_MODELS: usize = 12;

/// The overview as text.
///
/// # Errors
/// If a table cannot be read.
pub(crate) async fn overview(output: &Output, tables: &Tables) -> Result<String> {
    let record = record(output, &tables.current.run).await?;
    let text = |key: &str| escaped(record[key].as_str().unwrap_or("?"));
    let mut out = format!(
        "{}: run {} of {}, gyre {}\n",
        text("pipeline"),
        tables.current.run,
        text("started"),
        text("gyre")
    );
    let all = models(tables)?;
    list_fits(&mut out, &all)?;
    list_tables(&mut out, tables, &all)?;
    list_earlier(&mut out, output, tables).await?;
    Ok(out)
}

fn list_fits(out: &mut String, all: &[Model<'_>]) -> Result<()> {
    out.push_str("\nfits\n");
    for model in all.iter().take(MOST_MODELS) {
        let listing = fits_of(model)?;
        let name = short(&model.name(), 100);
        if !name.is_empty() {
            let _ = writeln!(out, "  {name}");
        }
        for row in &listing.rows {
            let cells = listing.columns.iter().zip(row).skip(1);
            let cells = cells.filter(|(_, cell)| *cell != "–");
            let cells = cells.map(|(name, cell)| format!("{name} {}", short(cell, 40)));
            let cells = cells.collect::<Vec<_>>().join(", ");
            let fit = short(row.first().map(String::as_str).unwrap_or_default(), 40);
            let _ = writeln!(out, "  {fit}: {cells}");
        }
    }
    if all.len() > MOST_MODELS {
        let more = all.len() - MOST_MODELS;
        let _ = writeln!(out, "  and {more} more partitions and lags");
    }
    Ok(())
}

fn list_tables(out: &mut String, tables: &Tables, all: &[Model<'_>]) -> Result<()> {
    let meanings = Meanings::new(section_of(tables)?);
    let partition = key_columns(tables)?;
    let mut names = Vec::new();
    if let Some(first) = all.first() {
        names = fits(first)?;
    }
    for table in tables.names() {
        let per = meanings.table(table);
        let per = per.map_or(String::new(), |per| format!(", one per {per}"));
        let rows = grouped(tables.rows(table) as f64);
        let _ = writeln!(out, "\n{table}: {rows} rows{per}");
        let schema = tables.scan(table)?.collect_schema();
        let schema = schema.map_err(|e| failed(&tables.shown, table, e))?;
        let width = schema.iter_names().map(|name| name.chars().count()).max();
        let width = width.unwrap_or_default().min(40);
        for (name, kind) in schema.iter() {
            let meaning = meanings.column(table, name, &names, &partition);
            let meaning = match meaning {
                Some(found) if found.unit.is_empty() => found.text.clone(),
                Some(found) => format!("{} ({})", found.text, found.unit),
                None => String::new(),
            };
            let name = short(name, 40);
            let kind = kind.to_string();
            let line = format!("  {name:width$}  {kind:12}  {meaning}");
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    Ok(())
}

async fn list_earlier(out: &mut String, output: &Output, tables: &Tables) -> Result<()> {
    if tables.current.earlier.is_empty() {
        return Ok(());
    }
    out.push_str("\nearlier versions (gyre restore puts one back)\n");
    drift(out, tables, "since then")?;
    for run in &tables.current.earlier {
        let own = record(output, run).await?;
        let started = escaped(own["started"].as_str().unwrap_or("?"));
        let _ = writeln!(out, "  {run}, started {started}");
        // A version that is damaged, or was removed meanwhile, has no drift to show.
        let Ok(mut kept) = output.kept(&tables.current, run).await else {
            continue;
        };
        // Tables of a store are copied: only the two that are needed.
        let is_needed = |table: &String| ["fits", "changes"].contains(&table.as_str());
        kept.tables.retain(|table, _| is_needed(table));
        let Ok(kept) = Tables::of(output, kept).await else {
            continue;
        };
        drift(out, &kept, "since the version before it")?;
    }
    Ok(())
}

/// How far the sets of a version are from those of the version before it.
fn drift(out: &mut String, tables: &Tables, since: &str) -> Result<()> {
    if !tables.has("changes") {
        return Ok(());
    }
    for model in models(tables)?.iter().take(MOST_MODELS) {
        let columns = ["fit", "compared_with", "adjusted_rand", "changed_share"];
        let rows = model.rows("changes", &columns)?;
        let rows = rows.having("compared_with", "earlier");
        let (fits, rand) = (rows.texts("fit"), rows.floats("adjusted_rand"));
        let changed = rows.floats("changed_share");
        for at in 0..rows.len() {
            let fit = short(fits[at].as_deref().unwrap_or("?"), 40);
            let name = match model.name() {
                name if name.is_empty() => fit,
                name => format!("{fit} of {}", short(&name, 60)),
            };
            let share = 100.0 * changed[at];
            let _ = writeln!(
                out,
                "    {name} {since}: adjusted Rand index {:.4}, {share:.2} % of the counts in \
                 states that changed set",
                rand[at]
            );
        }
    }
    Ok(())
}
