//! Counts new files and adds their counts to the counts of earlier runs.
//!
//! A unit is a set of files that were counted together. Trajectories may go on from one unit to the
//! next, so the last rows of a unit are carried over to the next one. The counts of a unit are
//! those of its rows and the carried rows together, minus those of the carried rows alone: pairs
//! across the border are counted once. Counts are integers and their sum does not depend on the
//! order, so the sum over all units is equal to one count of all files, to the last byte of the
//! tables.

use crate::error::{Error, Kind, Result};
use crate::output::ledger::{Basis, CountedFile, Kept, Ledger, Unit};
use crate::output::number;
use crate::output::place::Output;
use crate::plan::increments::Increments;
use crate::plan::kind::KindPlan;
use crate::read::counts;
use crate::read::counts::carry::{Spans, Tails};
use crate::read::counts::counted::Counted;
use crate::read::counts::merge::CountSums;
use crate::read::counts::sums::restore;
use crate::read::lake::files::InputFile;
use crate::read::lake::nulled::Nulled;
use crate::read::lake::{Lake, subset};
use crate::read::rows::layout::{Layout, RowRoles};
use crate::read::rows::stop::{Stop, bug};
use crate::read::rows::time::show as show_time;
use crate::read::rows::time_rules::{OpenPairs, TimeCounts};
use crate::run::kind::{EvidenceKind, Running};
use crate::run::record::IncrementRecord;
use crate::run::workers::executor::blocking_as;
use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use datafusion::dataframe::DataFrame;
use std::sync::Arc;

/// The counts of a run, and the ledger for the next run.
pub(crate) struct Counting {
    /// The counts of all files.
    pub counted: Counted,
    /// The files of these counts. None if every run counts all files.
    pub ledger: Option<Ledger>,
    /// What this run counted. None if the plan does not ask for increments.
    pub record: Option<IncrementRecord>,
}

/// The counts of pairs that a later row may change, and what the keys of time changed in them.
type OpenPairCounts = (Vec<RecordBatch>, TimeCounts);

/// Receives the number of rows that were read since the last call.
type Advance = Arc<dyn Fn(usize) + Send + Sync>;

/// Counts the rows of a run: those of new files if the ledger of the earlier result allows it,
/// otherwise all rows.
///
/// # Errors
/// If the rows cannot be read or counted, or the ledger cannot be read or written.
pub(crate) async fn count<K: EvidenceKind>(
    run: &Running<'_, K>,
    layout: &Arc<Layout>,
    increments: &Increments,
) -> Result<Counting> {
    let (lake, frame, output) = (run.lake, run.frame.clone(), run.output);
    let tables = &run.plan.job().tables;
    let (table, basis) = match increments {
        Increments::Of { table, basis } => (table, basis),
        other => {
            let because = match other {
                Increments::No(why) => Some(format!("all files counted, because {why}")),
                _ => None,
            };
            let counted = counts::count(lake, frame, layout, run.advance()).await?;
            let record = because.map(|what| IncrementRecord::of_all(what, tables, counted.rows));
            return Ok(Counting {
                counted,
                ledger: None,
                record,
            });
        }
    };
    let tables = tables.iter().filter(|t| t.name == *table);
    let mut present: Vec<InputFile> = tables.flat_map(|t| t.files.clone()).collect();
    // A file that several paths name is read once.
    present.dedup();
    let earlier = match run.earlier() {
        Some(result) => output.ledger(result).await?,
        None => None,
    };
    let counting = IncrementalCount {
        layout,
        lake,
        output,
        table,
        basis,
        present,
    };
    counting.count(frame, earlier, run.advance()).await
}

struct IncrementalCount<'a> {
    layout: &'a Arc<Layout>,
    lake: &'a Lake,
    output: &'a Output,
    table: &'a str,
    basis: &'a Basis,
    /// The files of the table now.
    present: Vec<InputFile>,
}

/// The rows before a unit.
#[derive(Default)]
struct Carried {
    /// The last rows of earlier units. None for pairs.
    rows: Option<RecordBatch>,
    /// The first time of the unit, if it is known already.
    first: Option<i64>,
}

impl IncrementalCount<'_> {
    async fn count(
        &self,
        frame: DataFrame,
        earlier: Option<Ledger>,
        advance: Advance,
    ) -> Result<Counting> {
        let is_first = earlier.is_none();
        let mut ledger = earlier.unwrap_or_else(|| Ledger::new(self.basis));
        let mut kept = ledger.kept(self.basis, &self.present);
        let mut tables = self.tables(&ledger, &mut kept).await?;
        let carried = self.carried(&ledger, &mut kept, &frame).await?;
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
            nulled: None,
        };
        let mut alone = None;
        let has_open_pairs = self.layout.has_open_pairs();
        if !unread.is_empty() {
            let (sums, unit, table) = self.unit(frame, unread, carried, what, advance).await?;
            record.rows = unit.rows;
            ledger.units.push(unit);
            alone = (kept.units == 0 && !has_open_pairs).then_some(sums);
            tables.push(table);
        }
        let sums = match alone {
            Some(sums) => sums,
            None => {
                let open = self.open_pairs(&ledger).await?;
                self.restored(&ledger, &tables, open).await?
            }
        };
        let layout = Arc::clone(self.layout);
        let counted = blocking(move || sums.counted(&layout)).await?;
        let overdue = ledger.overdue();
        if overdue > 0 {
            let sums = self.restored(&ledger, &tables[..overdue], None).await?;
            let layout = Arc::clone(self.layout);
            let table = blocking(move || sums.table(&layout)).await?;
            let counts = self.output.put_object("counts", table[0].schema(), table);
            ledger.merge(overdue, counts.await?);
        }
        record.units = ledger.units.len();
        if self.lake.makes_nulls() {
            let nulled = ledger.nulled(ledger.units.len());
            record.nulled = Some(Nulled::from([(self.table.to_string(), nulled)]));
        }
        Ok(Counting {
            counted,
            ledger: Some(ledger),
            record: Some(record),
        })
    }

    /// The counts of the kept units. A unit that cannot be read is not kept, nor are later ones.
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

    /// The last rows of the kept units, per trajectory. All unread rows must be later than these;
    /// units are dropped from `kept` until this holds.
    async fn carried(
        &self,
        ledger: &Ledger,
        kept: &mut Kept,
        frame: &DataFrame,
    ) -> Result<Carried> {
        if let RowRoles::Pairs { .. } = self.layout.evidence {
            return Ok(Carried::default());
        }
        let spans = async |files: Vec<&InputFile>| {
            let locations = files.iter().map(|file| file.location.clone());
            let rows = subset::over(frame.clone(), locations.collect())?;
            Spans::read(self.lake, rows, self.layout).await
        };
        while self.layout.has_open_pairs() && kept.units > 0 {
            let last = kept.units - 1;
            let carry = ledger.units[last].carry.as_ref();
            let object = carry.ok_or_else(|| Error::bug("a unit has no last rows"))?;
            if self.output.object(object).await?.is_some() {
                break;
            }
            kept.at_most(last, || damaged(&object.name));
        }
        let unread = ledger.unread(kept.units, &self.present);
        if kept.units > 0 && !unread.is_empty() {
            let spans_of_unread = spans(unread).await?;
            let mut first = spans_of_unread.whole().map(|(first, _)| first);
            while kept.units > 0 {
                let last = kept.units - 1;
                let Some(object) = &ledger.units[last].carry else {
                    kept.at_most(last, || {
                        "the ledger lacks the last rows of earlier files".into()
                    });
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
                    let rows = concat_batches(&schema, &rows).map_err(|e| {
                        Error::with_source(Kind::Bug, "carried rows are of several types", e)
                    })?;
                    return Ok(Carried {
                        rows: Some(rows),
                        first,
                    });
                }
                let late = ledger.units[last].files.iter().map(|file| &file.file);
                let late = spans(late.collect()).await?.whole();
                first = first.into_iter().chain(late.map(|(first, _)| first)).min();
                kept.at_most(last, || "rows came late".into());
            }
        }
        Ok(Carried {
            rows: Some(RecordBatch::new_empty(self.layout.numbered())),
            first: None,
        })
    }

    /// Counts files as one unit, after the rows carried over to it.
    async fn unit(
        &self,
        frame: DataFrame,
        unread: Vec<InputFile>,
        carried: Carried,
        why: String,
        advance: Advance,
    ) -> Result<(CountSums, Unit, Vec<RecordBatch>)> {
        let locations: Vec<String> = unread.iter().map(|file| file.location.clone()).collect();
        // Only listed files are counted. The next run counts files that arrive from now on.
        let of_query = std::slice::from_ref(&frame);
        let mut nulled = self.lake.nulled(of_query, Some(&locations)).await?;
        let frame = subset::over(frame, locations.iter().cloned().collect())?;
        let Carried { rows, first } = carried;
        // A unit counts the pairs that no later row can change.
        let mut known = Arc::clone(self.layout);
        if self.layout.has_open_pairs() {
            known = Arc::new(self.layout.with_open_pairs(OpenPairs::LeftOut));
        }
        let (sums, tails) = counts::sums(self.lake, frame, &known, rows.as_ref(), advance).await?;
        let layout = Arc::clone(self.layout);
        let (sums, table, tails) = blocking(move || {
            let table = sums.table(&layout)?;
            let tails = tails.map(Tails::finish).transpose()?;
            Ok((sums, table, tails))
        })
        .await?;
        let counts = self
            .output
            .put_object("counts", table[0].schema(), table.clone())
            .await?;
        let (mut carry, mut span) = (None, None);
        if let Some((rows, spans)) = tails {
            span = spans.whole();
            carry = Some(
                self.output
                    .put_object("carry", rows.schema(), vec![rows])
                    .await?,
            );
        }
        let time = |tick: i64| {
            let rows = self.layout.evidence.trajectories()?;
            Some(show_time(tick, rows.time.data_type()))
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
            time: sums.time,
            nulled: nulled.remove(self.table).unwrap_or_default(),
            first: first.or(span.map(|(first, _)| first)).and_then(time),
            last: span.and_then(|(_, last)| time(last)),
            why,
            counts,
            carry,
        };
        Ok((sums, unit, table))
    }

    /// The pairs that a later row may change, which no unit has counted: those of the last rows of
    /// all trajectories. None if there are no such pairs.
    async fn open_pairs(&self, ledger: &Ledger) -> Result<Option<OpenPairCounts>> {
        let carry = ledger.units.last().and_then(|unit| unit.carry.as_ref());
        let Some(object) = carry.filter(|_| self.layout.has_open_pairs()) else {
            return Ok(None);
        };
        let rows = self.output.object(object).await?;
        let rows = rows.ok_or_else(|| Error::input(damaged(&object.name)))?;
        let schema = self.layout.numbered();
        let rows = concat_batches(&schema, &rows).map_err(bug)?;
        let frame = self.lake.rows(&schema, vec![rows], 1)?;
        let layout = Arc::new(self.layout.with_open_pairs(OpenPairs::Alone));
        let (sums, _) = counts::sums(self.lake, frame, &layout, None, Arc::new(|_| ())).await?;
        Ok(Some((sums.table(self.layout)?, sums.time)))
    }

    /// The sum of the first units of a ledger, whose counts are `tables`, and of pairs that no unit
    /// has.
    async fn restored(
        &self,
        ledger: &Ledger,
        tables: &[Vec<RecordBatch>],
        open: Option<OpenPairCounts>,
    ) -> Result<CountSums> {
        let (rows, dropped, mut time) = ledger.rows(tables.len());
        let layout = Arc::clone(self.layout);
        let mut tables = tables.to_vec();
        if let Some((table, of_open)) = open {
            tables.push(table);
            time.merge(of_open);
        }
        blocking(move || restore(&layout, &tables, true, rows, (dropped, time))).await
    }

    /// What is counted and why, as text.
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

/// Runs work that uses a processor for long on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    blocking_as("adding up the counts", work).await
}
