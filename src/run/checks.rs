//! Makes the checks of the pipeline before a result is committed: limits on the counts, and SQL
//! over the inputs and the staged tables.
//!
//! In: a plan, the record of a run, and its tables in staging. Out: a record of every check, and an
//! error if a check with `on = "fail"` failed.

use crate::error::{Error, Kind, Result, counted, escaped};
use crate::output::place::Output;
use crate::output::result::{COUNTS, Written, floats};
use crate::output::staging::StagedTables;
use crate::output::tables::table::Table;
use crate::plan::checks::{CheckRule, PlannedCheck, STAGED, add, bug, query};
use crate::plan::kind::KindPlan;
use crate::plan::pipeline::checks::On;
use crate::read::formats::parquet::Parquet;
use crate::read::lake::{Lake, errors};
use crate::read::rows::states::describe;
use crate::run::journal::Journal;
use crate::run::kind::{EvidenceKind, Facts, Running};
use crate::run::record::{CheckRecord, Head};
use crate::run::sets::column;
use crate::run::summary::check_message;
use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use datafusion::common::DataFusionError;
use datafusion::dataframe::DataFrame;
use datafusion::datasource::listing::{
    ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl,
};
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use object_store::path::Path;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use url::Url;

/// The largest number of rows or partitions in a message.
const SHOWN: usize = 5;

/// The largest number of characters of a row in a message.
const WIDTH: usize = 200;

/// An SQL session with the inputs and the tables that a run has staged.
async fn staged(
    lake: &Lake,
    output: &Output,
    run: &str,
    tables: &[(&'static str, SchemaRef)],
) -> Result<SessionContext> {
    let session = lake.fork().await?;
    let root = Url::parse(STAGED).map_err(|e| bug("the staging has no URL", e))?;
    session.register_object_store(&root, Arc::clone(&output.store));
    for (table, schema) in tables {
        let path = output.staged(run, table);
        let url = ListingTableUrl::try_new(url_of(&root, &path)?, None)
            .map_err(|e| bug("a staged table has no URL", e))?;
        let options = ListingOptions::new(Arc::new(Parquet::without_pruning()));
        let config = ListingTableConfig::new(url)
            .with_listing_options(options.with_file_extension(""))
            .with_schema(Arc::clone(schema));
        let table_provider = ListingTable::try_new(config)
            .map_err(|e| bug("a staged table cannot be queried", e))?;
        add(&session, table, Arc::new(table_provider))?;
    }
    Ok(session)
}

/// The URL whose path decodes to `path`, which may contain any characters.
fn url_of(root: &Url, path: &Path) -> Result<Url> {
    let mut url = root.clone();
    let mut segments =
        (url.path_segments_mut()).map_err(|()| Error::bug("the staging has no path"))?;
    segments
        .clear()
        .extend(path.parts().map(|part| part.as_ref().to_string()));
    drop(segments);
    Ok(url)
}

/// Makes the checks of the pipeline over the staged tables, and records them in the journal.
///
/// # Errors
/// If a check with `on = "fail"` fails or a check cannot be made.
pub(crate) async fn check<K: EvidenceKind>(
    run: &Running<'_, K>,
    tables: &StagedTables,
    journal: &mut Journal<'_, K>,
) -> Result<()> {
    let checks = &run.plan.job().checks;
    if checks.is_empty() {
        return Ok(());
    }
    journal.progress.stage("check", None);
    let mut outcomes = Vec::with_capacity(checks.len());
    let record = &journal.record;
    let models = record.models.iter();
    let tables = tables.iter();
    let candidate = Candidate {
        lake: run.lake,
        output: run.output,
        head: &record.head,
        lags: run.plan.lags().iter().map(ToString::to_string).collect(),
        models: models.map(|m| (&m.partition, m.lag.as_ref())).collect(),
        sum: record.facts.sum(),
        tables: tables
            .map(|(&name, table)| (name, Arc::clone(&table.schema)))
            .collect(),
    };
    let checked = candidate.check(checks, &mut outcomes).await;
    // The record of a failed run has the checks that were made.
    journal.record.checks = outcomes;
    checked?;
    journal.done("check", checks.len() as u64, 0);
    verdict(&journal.record.checks)
}

/// A result that is in staging.
struct Candidate<'a> {
    /// The input tables.
    lake: &'a Lake,
    output: &'a Output,
    /// The record of the run.
    head: &'a Head,
    /// The lags, as text.
    lags: Vec<String>,
    /// The partition and the lag of each model.
    models: Vec<ModelPlace<'a>>,
    /// The sum of the evidence.
    sum: f64,
    /// The staged tables.
    tables: Vec<(&'static str, SchemaRef)>,
}

/// The values of the partition columns by name, and the lag.
type ModelPlace<'a> = (&'a BTreeMap<String, String>, Option<&'a String>);

impl Candidate<'_> {
    /// Makes checks and adds the results to `outcomes`.
    ///
    /// # Errors
    /// If a check cannot be made.
    async fn check(&self, checks: &[PlannedCheck], outcomes: &mut Vec<CheckRecord>) -> Result<()> {
        let (output, head) = (self.output, self.head);
        let mut session = None;
        for check in checks {
            let limit = check.rule.limit();
            let (passed, value, rows) = match &check.rule {
                CheckRule::MinRows(min) => {
                    let rows = head.rows_read;
                    (rows >= *min, Some(rows as f64), Vec::new())
                }
                CheckRule::MaxDropped(max) => {
                    let dropped: u64 = head.rows_dropped.values().sum();
                    let share = dropped as f64 / head.rows_read as f64;
                    (share <= *max, Some(share), Vec::new())
                }
                CheckRule::Partitions(expected) => {
                    let missing = missing(expected, &self.lags, &self.models);
                    let rows = missing.iter().take(SHOWN).cloned().collect();
                    (missing.is_empty(), Some(missing.len() as f64), rows)
                }
                CheckRule::MaxDrift(max) => {
                    let drift = earlier_transitions(output).await?;
                    let drift = drift.map(|earlier| (self.sum - earlier).abs() / earlier);
                    (drift.is_none_or(|drift| drift <= *max), drift, Vec::new())
                }
                CheckRule::Sql { sql, parameters } => {
                    if session.is_none() {
                        session = Some(staged(self.lake, output, &head.id, &self.tables).await?);
                    }
                    let session = session.as_ref().ok_or_else(|| Error::bug("no session"))?;
                    let frame = query(session, &check.name, sql, parameters).await?;
                    let failed =
                        |e| errors::failed(&format!("check `{}` cannot be made", check.name), e);
                    let (n, rows) = first_rows(frame).await.map_err(failed)?;
                    (n == 0, Some(n as f64), rows)
                }
            };
            let outcome = CheckRecord {
                name: check.name.clone(),
                kind: check.rule.kind(),
                on: check.on,
                passed,
                value,
                limit,
                rows,
            };
            if !passed && check.on == On::Warn {
                tracing::warn!(check = outcome.name, "{}", check_message(&outcome));
            }
            outcomes.push(outcome);
        }
        Ok(())
    }
}

/// The expected partitions and lags that have no model.
fn missing(
    expected: &[BTreeMap<String, String>],
    lags: &[String],
    models: &[ModelPlace<'_>],
) -> Vec<String> {
    let found: BTreeSet<ModelPlace<'_>> = models.iter().copied().collect();
    let lags: Vec<Option<&String>> = match lags {
        [] => vec![None],
        lags => lags.iter().map(Some).collect(),
    };
    let all = expected
        .iter()
        .flat_map(|key| lags.iter().map(move |lag| (key, *lag)));
    let missing = all.filter(|model| !found.contains(model));
    let texts = missing.map(|(key, lag)| {
        let columns = key.iter().map(|(k, v)| escaped(&format!("{k}={v}")));
        let lag = lag.into_iter().map(|lag| format!("lag {lag}"));
        columns.chain(lag).collect::<Vec<_>>().join(", ")
    });
    texts.collect()
}

/// The sum of the counts of the current result. None if there is no result with counts, or a
/// damaged one, which the run replaces.
async fn earlier_transitions(output: &Output) -> Result<Option<f64>> {
    let Some(current) = output.intact().await? else {
        return Ok(None);
    };
    let total = async {
        let written = Written::of_kind(COUNTS, output, current).await?;
        let Some(written) = written else {
            return Ok(None);
        };
        let counts = column(&written, Table::Sources, "count").await?;
        Ok::<_, Error>(Some(floats(&counts)?.iter().sum()))
    };
    match total.await {
        Err(e) if e.kind() == Kind::Input => {
            tracing::warn!(
                "the transitions of the earlier result are not known: {}",
                e.full()
            );
            Ok(None)
        }
        total => total,
    }
}

/// The number of rows of a query, and the first rows as text.
async fn first_rows(frame: DataFrame) -> Result<(u64, Vec<String>), DataFusionError> {
    let (mut n, mut rows) = (0, Vec::new());
    let mut stream = frame.execute_stream().await?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        let more = batch.num_rows().min(SHOWN - rows.len());
        rows.extend((0..more).map(|at| row(&batch, at)));
        n += batch.num_rows() as u64;
    }
    Ok((n, rows))
}

/// A row as text of at most [`WIDTH`] characters.
fn row(batch: &RecordBatch, at: usize) -> String {
    let fields = batch.schema_ref().fields().iter().zip(batch.columns());
    let cells = fields.map(|(field, column)| {
        let name = field.name();
        if column.is_null(at) {
            format!("{name}=null")
        } else {
            format!("{name}={}", describe(std::slice::from_ref(column), at))
        }
    });
    let whole = cells.collect::<Vec<_>>().join(", ");
    match whole.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{} …", &whole[..end]),
        None => whole,
    }
}

/// An error if a check with `on = "fail"` failed. It names all failed checks and shows their rows.
fn verdict(outcomes: &[CheckRecord]) -> Result<()> {
    let failed = |check: &&CheckRecord| !check.passed && check.on == On::Fail;
    let failed: Vec<&CheckRecord> = outcomes.iter().filter(failed).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{} of {} failed, and the output stays as it was",
        failed.len(),
        counted(outcomes.len(), "check")
    );
    let lines: Vec<String> = failed.into_iter().map(check_message).collect();
    Err(Error::with_lines(Kind::Check, &message, &lines))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};

    #[test]
    fn staged_tables_are_found_in_folders_with_any_name() {
        let root = Url::parse(STAGED).expect("a URL");
        for folder in [
            "plain",
            "with space",
            "a%2Fb",
            "50%",
            "#?[*]",
            "ü–名",
            "a+b",
        ] {
            let path = Path::from_iter(["tmp", folder, ".staging", "t.parquet"]);
            let url = url_of(&root, &path).expect("a URL");
            let found = ListingTableUrl::try_new(url, None).expect("a table's URL");
            assert_eq!(found.prefix(), &path, "{folder}");
        }
    }

    #[test]
    fn a_row_is_one_short_line() {
        let text: ArrayRef = Arc::new(StringArray::from(vec!["a\nb".to_string(), "x".repeat(999)]));
        let number: ArrayRef = Arc::new(Int64Array::from(vec![None, Some(1)]));
        let batch = RecordBatch::try_from_iter([("name", text), ("n", number)]).expect("a batch");
        assert_eq!(row(&batch, 0), "name=a\\nb, n=null");
        let long = row(&batch, 1);
        assert_eq!(long.chars().count(), WIDTH + 2);
        assert!(long.ends_with("x …"));
    }

    #[test]
    fn a_verdict_names_failed_checks_and_shows_rows() {
        let check = |name: &str, kind, on, passed, value, limit| CheckRecord {
            name: name.into(),
            kind,
            on,
            passed,
            value: Some(value),
            limit,
            rows: Vec::new(),
        };
        let mut outcomes = vec![
            check("min_rows", "min_rows", On::Fail, true, 2e6, 1e6),
            check("max_dropped", "max_dropped", On::Warn, false, 0.08333, 0.05),
        ];
        verdict(&outcomes).expect("no failed check");
        let warning = "max_dropped: 8.33 % of the rows were dropped, more than 5 %";
        assert_eq!(check_message(&outcomes[1]), warning);
        let drift = check("max_drift", "max_drift", On::Fail, false, 1.5, 0.2);
        let mut sql = check("small", "sql", On::Fail, false, 1200.0, 0.0);
        sql.rows = vec!["fit=a, latent=1".into(), "fit=a, latent=2".into()];
        outcomes.extend([drift, sql]);
        let error = verdict(&outcomes).expect_err("two failed checks");
        assert_eq!(error.kind(), Kind::Check);
        let expected = "2 of 4 checks failed, and the output stays as it was
  max_drift: the number of transitions differs by 150 % from the result in place, more than 20 %
  small: 1,200 rows where there should be none
    fit=a, latent=1
    fit=a, latent=2
    … and 1,198 more";
        assert_eq!(error.to_string(), expected);
    }
}
