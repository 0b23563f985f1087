//! `gyre inspect`: tables of a result in the terminal.

use crate::cli::args::{Inspect, TableFormat};
use crate::cli::commands::unwritten;
use crate::cli::terminal::{Done, Terminal, runtime_of_one_thread};
use crate::error::{Error, Result, printable_json};
use crate::output::place::Output;
use crate::report::inspect::{Query, csv, json, parquet, rows, sql, text};
use crate::report::overview::overview;
use crate::report::tables::Tables;
use crate::store::Stores;

/// Rows of a table that people see without a limit of their own.
const ROWS: u32 = 20;

/// Prints a result or one of its tables.
///
/// # Errors
/// If there is no such result, table or column, or the query is not valid.
pub(super) fn inspect(args: &Inspect, terminal: &dyn Terminal) -> Result<Done> {
    // Polars blocks, which it may only in a runtime with threads.
    let runtime = runtime_of_one_thread()?;
    let output = Output::open(&args.output, &Stores::default())?;
    let tables = runtime.block_on(Tables::open(&output, args.version.as_deref()))?;
    let is_overview = args.table.is_none() && args.sql.is_none();
    if is_overview {
        let text = runtime.block_on(overview(&output, &tables))?;
        terminal.print(text.trim_end())?;
        return Ok(Done::Well);
    }
    let limit = match (args.limit, args.format) {
        (None, TableFormat::Table) => Some(ROWS),
        (limit, _) => limit.filter(|n| *n > 0),
    };
    let found = match (&args.sql, &args.table) {
        (Some(query), _) => sql(&tables, query, limit)?,
        (None, table) => {
            let query = Query {
                condition: args.condition.clone(),
                sort: args.sort.clone(),
                columns: args.columns.clone(),
                limit,
            };
            rows(&tables, table.as_deref().unwrap_or_default(), &query)?
        }
    };
    let bytes = match args.format {
        TableFormat::Table => text(&found).into_bytes(),
        TableFormat::Csv => csv(&found)?,
        TableFormat::Json => json(&found)?,
        TableFormat::Parquet => parquet(&found)?,
    };
    match &args.to {
        Some(to) => {
            std::fs::write(to, bytes).map_err(|e| unwritten(to, e))?;
            terminal.say(&format!("written: {}", to.display()));
        }
        None if args.format == TableFormat::Parquet => {
            let what = "a Parquet file is not text; name a file with -o";
            return Err(Error::spec(what));
        }
        None => {
            let text = String::from_utf8_lossy(&bytes);
            let text = text.trim_end();
            match args.format {
                TableFormat::Csv => terminal.print_rows(text)?,
                TableFormat::Json => terminal.print(&printable_json(text))?,
                TableFormat::Table | TableFormat::Parquet => terminal.print(text)?,
            }
        }
    }
    Ok(Done::Well)
}
