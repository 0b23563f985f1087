//! Counts what is new and adds it to what earlier runs have counted.
//!
//! The counts of a unit are those of its rows and of the rows carried on to it together, less those of the carried rows alone: pairs
//! across the border are counted once. Counts are integers and add up in any order, so that the sum over units is what one count of all
//! files would give, to the last byte of the tables.

use crate::error::{Error, Kind, Result};
use crate::output::ledger::{Basis, CountedFile, Kept, Ledger, Unit};
use crate::output::number;
use crate::output::place::Output;
use crate::plan::{Increments, Plan};
use crate::read::counts;
use crate::read::counts::carry::{Spans, Tails};
use crate::read::counts::counted::Counted;
use crate::read::counts::merge::Sums;
use crate::read::counts::sums::restore;
use crate::read::lake::Lake;
use crate::read::lake::files::InputFile;
use crate::read::lake::subset;
use crate::read::paths::current::Current;
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::stop::Stop;
use crate::read::rows::time::show as show_time;
use crate::run::record::IncrementRecord;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::dataframe::DataFrame;
use std::sync::Arc;

/// The counts of a run, and what the next one needs to go on from them.
pub struct Counting {
    pub counted: Counted,
    /// To be put beside the result; none where every run counts everything.
    pub ledger: Option<Ledger>,
    pub record: Option<IncrementRecord>,
}

type Hears = Arc<dyn Fn(usize) + Send + Sync>;

/// Counts the rows of a plan's query, those of new files alone where the ledger of the earlier result allows that; all of them without one.
pub async fn count(
    plan: &Plan,
    lake: &Lake,
    frame: DataFrame,
    output: &Output,
    earlier: Option<&Current>,
    hears: Hears,
) -> Result<Counting> {
    let (table, basis) = match &plan.increments {
        Increments::Of { table, basis } => (table, basis),
        other => {
            let because = match other {
                Increments::No(why) => Some(format!("all files counted, because {why}")),
                _ => None,
            };
            let counted = counts::count(lake, frame, &plan.layout, hears).await?;
            let record = because.map(|what| IncrementRecord {
                what,
                files: plan.tables.iter().map(|table| table.files.len()).sum(),
                rows: counted.rows,
                units: 0,
            });
            return Ok(Counting {
                counted,
                ledger: None,
                record,
            });
        }
    };
    let tables = plan.tables.iter().filter(|t| t.name == *table);
    let mut present: Vec<InputFile> = tables.flat_map(|t| t.files.clone()).collect();
    // Paths may name a file twice, which is read once.
    present.dedup();
    let earlier = match earlier {
        Some(result) => output.ledger(result).await?,
        None => None,
    };
    let run = Run {
        layout: &plan.layout,
        lake,
        output,
        table,
        basis,
        present,
    };
    run.count(frame, earlier, hears).await
}

struct Run<'a> {
    layout: &'a Arc<Layout>,
    lake: &'a Lake,
    output: &'a Output,
    table: &'a str,
    basis: &'a Basis,
    present: Vec<InputFile>,
}

impl Run<'_> {
    async fn count(
        &self,
        frame: DataFrame,
        earlier: Option<Ledger>,
        hears: Hears,
    ) -> Result<Counting> {
        let is_first = earlier.is_none();
        let mut ledger = earlier.unwrap_or_else(|| Ledger::new(self.basis));
        let mut kept = ledger.kept(self.basis, &self.present);
        let mut tables = self.tables(&ledger, &mut kept).await?;
        let (carried, first) = self.carried(&ledger, &mut kept, &frame).await?;
        tables.truncate(kept.units);
        let what = self.what(&ledger, &kept, is_first);
        tracing::info!("{what}");
        let unread = ledger.unread(kept.units, &self.present);
        let unread: Vec<InputFile> = unread.into_iter().cloned().collect();
        ledger.units.truncate(kept.units);
        (ledger.basis, ledger.schema) = (self.basis.clone(), Ledger::new(self.basis).schema);

        let mut record = IncrementRecord {
            what: what.clone(),
            files: unread.len(),
            rows: 0,
            units: 0,
        };
        let mut alone = None;
        if !unread.is_empty() {
            let carried = (carried, first);
            let (sums, unit, table) = self.unit(frame, unread, carried, what, hears).await?;
            record.rows = unit.rows;
            ledger.units.push(unit);
            alone = (kept.units == 0).then_some(sums);
            tables.push(table);
        }
        let sums = match alone {
            Some(sums) => sums,
            None => self.restored(&ledger, &tables).await?,
        };
        let layout = Arc::clone(self.layout);
        let counted = blocking(move || sums.counted(&layout)).await?;
        let overdue = ledger.overdue();
        if overdue > 0 {
            let sums = self.restored(&ledger, &tables[..overdue]).await?;
            let layout = Arc::clone(self.layout);
            let table = blocking(move || sums.table(&layout)).await?;
            let counts = self.output.put_object("counts", table[0].schema(), table);
            ledger.merge(overdue, counts.await?);
        }
        record.units = ledger.units.len();
        Ok(Counting {
            counted,
            ledger: Some(ledger),
            record: Some(record),
        })
    }

    /// The counts of the units that are kept, up to one that cannot be read.
    async fn tables(&self, ledger: &Ledger, kept: &mut Kept) -> Result<Vec<Vec<RecordBatch>>> {
        let mut tables = Vec::new();
        for (at, unit) in ledger.units[..kept.units].iter().enumerate() {
            match self.output.object(&unit.counts).await? {
                Some(table) => tables.push(table),
                None => {
                    kept.at_most(at, || damaged(&unit.counts.name));
                    break;
                }
            }
        }
        Ok(tables)
    }

    /// The rows that trajectories end in before those of files that are not kept, where all of these are later, and the first time of
    /// these. Fewer units are kept where they are not.
    async fn carried(
        &self,
        ledger: &Ledger,
        kept: &mut Kept,
        frame: &DataFrame,
    ) -> Result<(Option<RecordBatch>, Option<i64>)> {
        if let RowRoles::Pairs { .. } = self.layout.evidence {
            return Ok((None, None));
        }
        let spans = async |files: Vec<&InputFile>| {
            let locations = files.iter().map(|file| file.location.clone());
            let rows = subset::over(frame.clone(), locations.collect())?;
            Spans::read(self.lake, rows, self.layout).await
        };
        let unread = ledger.unread(kept.units, &self.present);
        if kept.units > 0 && !unread.is_empty() {
            let spans_of_unread = spans(unread).await?;
            let mut first = spans_of_unread.whole().map(|(first, _)| first);
            while kept.units > 0 {
                let last = kept.units - 1;
                let Some(object) = &ledger.units[last].carry else {
                    kept.at_most(last, || "it has no last rows".into());
                    continue;
                };
                let Some(rows) = self.output.object(object).await? else {
                    kept.at_most(last, || damaged(&object.name));
                    continue;
                };
                let mut earlier = Spans::new(self.layout)?;
                for rows in &rows {
                    earlier.push(rows).map_err(stopped)?;
                }
                if spans_of_unread.are_after(&earlier)? {
                    let schema = self.layout.numbered();
                    let rows = concat_batches(&schema, &rows);
                    let rows = rows.map_err(|e| {
                        Error::with_source(Kind::Bug, "carried rows are of several types", e)
                    });
                    return Ok((Some(rows?), first));
                }
                let late = ledger.units[last].files.iter().map(|file| &file.file);
                let late = spans(late.collect()).await?.whole();
                first = first.into_iter().chain(late.map(|(first, _)| first)).min();
                kept.at_most(last, || "rows came late".into());
            }
        }
        Ok((Some(RecordBatch::new_empty(self.layout.numbered())), None))
    }

    /// Counts files as one unit, after the rows carried on to them; without any, the first time is found here.
    async fn unit(
        &self,
        frame: DataFrame,
        unread: Vec<InputFile>,
        (carried, first): (Option<RecordBatch>, Option<i64>),
        why: String,
        hears: Hears,
    ) -> Result<(Sums, Unit, Vec<RecordBatch>)> {
        let locations: Vec<String> = unread.iter().map(|file| file.location.clone()).collect();
        // Only what was listed is counted: a file that comes now is new to the next run.
        let frame = subset::over(frame, locations.iter().cloned().collect())?;
        let carried = carried.as_ref();
        let (sums, tails) = counts::sums(self.lake, frame, self.layout, carried, hears).await?;
        let layout = Arc::clone(self.layout);
        let tabled = blocking(move || {
            let table = sums.table(&layout)?;
            let tails = tails.map(Tails::finish).transpose()?;
            Ok((sums, table, tails))
        });
        let (sums, table, tails) = tabled.await?;
        let counts = self
            .output
            .put_object("counts", table[0].schema(), table.clone());
        let counts = counts.await?;
        let (mut carry, mut span) = (None, None);
        if let Some((rows, spans)) = tails {
            span = spans.whole();
            carry = Some(
                self.output
                    .put_object("carry", rows.schema(), vec![rows])
                    .await?,
            );
        }
        let time = |tick: i64| match &self.layout.evidence {
            RowRoles::Trajectories { time, .. } => Some(show_time(tick, time.data_type())),
            RowRoles::Pairs { .. } => None,
        };
        let rows = self.lake.rows_of(self.table, &locations).await;
        let files = unread.into_iter().zip(rows);
        let dropped = sums.dropped.0.iter();
        let unit = Unit {
            files: files
                .map(|(file, rows)| CountedFile { file, rows })
                .collect(),
            rows: sums.rows,
            dropped: dropped
                .map(|(reason, rows)| (reason.to_string(), *rows))
                .collect(),
            first: first.or(span.map(|(first, _)| first)).and_then(time),
            last: span.and_then(|(_, last)| time(last)),
            why,
            counts,
            carry,
        };
        Ok((sums, unit, table))
    }

    /// The sum of the first units of a ledger, whose tables these are.
    async fn restored(&self, ledger: &Ledger, tables: &[Vec<RecordBatch>]) -> Result<Sums> {
        let (rows, dropped) = ledger.rows(tables.len());
        let (layout, tables) = (Arc::clone(self.layout), tables.to_vec());
        blocking(move || restore(&layout, &tables, true, rows, dropped)).await
    }

    /// What is counted and why, in words.
    fn what(&self, ledger: &Ledger, kept: &Kept, is_first: bool) -> String {
        let all = number::files(self.present.len(), "");
        if is_first {
            return format!("all of {all} counted");
        }
        let news = match ledger.new_files(&self.present) {
            0 => "no new files".to_string(),
            n => number::files(n, " new"),
        };
        let Some(why) = &kept.why else {
            return news;
        };
        let from = match ledger.units.get(kept.units).map(|unit| &unit.first) {
            Some(Some(first)) if kept.units > 0 => format!("from {first}"),
            Some(None) if kept.units > 0 => "a part".to_string(),
            _ => format!("all of {all}"),
        };
        format!("{news}; recounting {from}: {why}")
    }
}

fn damaged(name: &str) -> String {
    format!("ledger/{name} is gone or damaged")
}

fn stopped(stop: Stop) -> Error {
    stop.into_error("reading carried rows")
}

/// Does what takes a processor for a while.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|e| Error::with_source(Kind::Bug, "adding up the counts died", e))?
}
