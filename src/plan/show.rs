//! A plan as JSON for programs and as text for people.

use crate::error::{counted, escaped};
use crate::evidence::lag::Lag;
use crate::methods::{PointMethod, SequenceMethod};
use crate::plan::checks::{CheckRule, PlannedCheck};
use crate::plan::filters::{FiltersPlan, PlannedFilter, PlannedRows};
use crate::plan::fits::{PlannedFit, Ranks};
use crate::plan::pipeline::keys::{FilteredRows, NamesFrom};
use crate::plan::points::PointsPlan;
use crate::plan::sequences::{HeldOut, SequencesPlan};
use crate::plan::{Increments, Plan};
use crate::read::lake::files::Table;
use crate::read::rows::bins::Binning;
use crate::read::rows::layout::{Measure, RowRoles};
use crate::read::rows::states::StateColumns;
use crate::read::state_space::layout::{StateSpaceKey, is_list};
use arrow::datatypes::Field;
use serde::Serialize;
use serde_json::{Value, json};
use std::fmt;

impl PointsPlan {
    /// The plan as `gyre plan --json` prints it.
    pub fn to_json(&self) -> Value {
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(name, value)| (name.clone(), json!(value.to_string())));
        let lags: Vec<String> = self.lags.iter().map(ToString::to_string).collect();
        let fit = |fit: &PlannedFit<PointMethod>| {
            json!({
                "name": fit.name,
                "method": fit.method.name(),
                "parameters": fit.method.describe(&fit.point_rank_text()),
            })
        };
        json!({
            "name": self.name,
            "hash": self.hash,
            "seed": self.seed,
            "read": all(&self.tables, table),
            "sql": self.sql,
            "parameters": parameters.collect::<serde_json::Map<_, _>>(),
            "key": columns(&self.layout.key),
            "coordinates": columns(&self.layout.coordinates),
            "weight": self.layout.weight.as_ref().map(|field| field.name()),
            "lags": lags,
            "partition_by": columns(&self.layout.partition),
            "fit": all(&self.fits, fit),
            "write": {
                "output": self.output,
                "keep": self.keep,
                "tables": self.table_names(),
            },
            "validation": json!(self.validation),
        })
    }
}

impl SequencesPlan {
    /// The plan as `gyre plan --json` prints it.
    pub fn to_json(&self) -> Value {
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(name, value)| (name.clone(), json!(value.to_string())));
        let fit = |fit: &PlannedFit<SequenceMethod>| {
            let mut parameters = own(&fit.method);
            if let Ranks::Auto { rule, candidates } = &fit.ranks {
                parameters["rank"] = json!({"one_of": candidates, "rule": rule.name()});
            }
            json!({"name": fit.name, "method": fit.method.name(), "parameters": parameters})
        };
        let rows = self.rows();
        let resampled = self.layout.grouping.as_ref();
        json!({
            "name": self.name,
            "hash": self.hash,
            "seed": self.seed,
            "read": all(&self.tables, table),
            "sql": self.sql,
            "parameters": parameters.collect::<serde_json::Map<_, _>>(),
            "count": {
                "kind": "sequences",
                "trajectory": columns(rows.trajectory),
                "time": column(rows.time),
                "interval": self.interval,
                "symbol": state_columns(rows.symbol),
                "weight": rows.weight.map(column),
                "split": rows.split.map(column),
                "block": rows.block,
                "windows": if rows.first { "first" } else { "all" },
            },
            "partition_by": columns(&self.layout.partition),
            "fit": all(&self.fits, fit),
            "held_out": self.held_out,
            "increments": increments(&self.increments),
            "write": {
                "output": self.output,
                "keep": self.keep,
                "tables": self.table_names(),
            },
            "predictions": self.predictions,
            "distribution": self.distribution,
            "checks": all(&self.checks, check),
            "validation": resampled.map(|grouping| json!({
                "bootstrap": self.validation.bootstrap,
                "confidence": self.validation.confidence,
                "groups": grouping.most,
                "group": columns(&grouping.by),
            })),
        })
    }

    /// The lines of the text below its headline, each with its label.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        lines.extend(self.tables.iter().map(|table| ("read", table_text(table))));
        lines.push(("count", self.windows_text()));
        if !self.layout.partition.is_empty() {
            let columns = names(&self.layout.partition);
            lines.push(("models", format!("one for each value of {columns}")));
        }
        lines.extend(self.fits.iter().map(|fit| {
            let what = fit.method.describe(&fit.sequence_rank_text());
            ("fit", format!("{}: {what}", fit.name))
        }));
        match self.held_out {
            HeldOut::None => {}
            HeldOut::Split => {
                let split = self.rows().split.map_or("split", |field| field.name());
                lines.push(("score", format!("rows with {split} = 'test'")));
            }
            HeldOut::Folds(folds) => {
                lines.push(("score", format!("{folds} folds of trajectories")));
            }
        }
        let (bootstrap, groups) = (self.validation.bootstrap, self.validation.groups);
        if bootstrap > 0 {
            let percent = 100.0 * self.validation.confidence;
            lines.push((
                "trust",
                format!(
                    "{bootstrap} bootstrap resamples, intervals at {percent} %; trajectories in at most {groups} groups"
                ),
            ));
        }
        lines.extend(self.checks.iter().map(|check| ("check", check.to_string())));
        lines.extend(increments_line(&self.increments));
        lines.push(("rows", self.rows_text()));
        let tables = self.table_names().join(", ");
        lines.push(("write", format!("{}: {tables}", self.output)));
        lines
    }

    fn windows_text(&self) -> String {
        let rows = self.rows();
        let of = if rows.trajectory.is_empty() {
            "one trajectory".to_string()
        } else {
            format!("trajectories by {}", names(rows.trajectory))
        };
        let (time, symbol) = (rows.time.name(), state_text(rows.symbol));
        let follow = match &self.interval {
            None => "each row follows the one before".to_string(),
            Some(interval) => format!("rows {interval} apart follow each other"),
        };
        let length = 2 * rows.block + 1;
        let windows = if rows.first {
            format!("the first window of {length} rows of a trajectory")
        } else {
            format!("windows of {length} rows")
        };
        let weights = rows
            .weight
            .map(|field| format!("; weights in {}", field.name()));
        let split = rows
            .split
            .map(|field| format!("; only rows with {} = 'train'", field.name()));
        format!(
            "{of} in the order of {time}: symbols {symbol}; {follow}; {windows}{}{}",
            weights.unwrap_or_default(),
            split.unwrap_or_default()
        )
    }

    /// What the second pass over the input writes.
    pub fn rows_text(&self) -> String {
        let tables = if self.predictions {
            "the predictions of each row and the log-likelihood of each trajectory"
        } else {
            "the log-likelihood of each trajectory"
        };
        format!("a second pass over the input writes {tables}")
    }
}

/// The plan as `gyre plan` prints it.
impl fmt::Display for SequencesPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan of `{}` ({})", self.name, self.hash)?;
        for (label, text) in self.lines() {
            write!(f, "\n  {label:<6} {}", escaped(&text))?;
        }
        Ok(())
    }
}

impl FiltersPlan {
    /// The plan as `gyre plan --json` prints it.
    pub fn to_json(&self) -> Value {
        let job = &self.job;
        let parameters = job.parameters.iter();
        let parameters = parameters.map(|(name, value)| (name.clone(), json!(value.to_string())));
        let rows_of = |rows: &Option<PlannedRows>| {
            let rows = rows.as_ref();
            rows.map(|rows| json!({"sql": rows.sql, "columns": columns(&rows.fields())}))
        };
        let fit = |fit: &PlannedFilter| {
            let mut shown = json!({
                "name": fit.name,
                "method": fit.method.name(),
                "parameters": own(&fit.method),
            });
            for (key, rows) in [("supervision", &fit.supervision), ("prior", &fit.prior)] {
                if let Some(rows) = rows_of(rows) {
                    shown[key] = rows;
                }
            }
            shown
        };
        let key = match &self.layout.key {
            StateSpaceKey::Trajectories {
                trajectory, time, ..
            } => json!({
                "trajectory": columns(trajectory),
                "time": column(time),
                "interval": self.interval,
            }),
            StateSpaceKey::Rows { id } => json!({"id": columns(id)}),
        };
        json!({
            "name": job.name,
            "hash": job.hash,
            "seed": job.seed,
            "read": all(&job.tables, table),
            "sql": job.sql,
            "parameters": parameters.collect::<serde_json::Map<_, _>>(),
            "rows": {
                "kind": "states and observations",
                "key": key,
                "state": columns(&self.layout.state),
                "observation": columns(&self.layout.observation),
                "split": self.layout.split.as_ref().map(column),
            },
            "partition_by": columns(&self.layout.partition),
            "fit": all(&self.fits, fit),
            "estimates": self.rows,
            "posteriors": self.posteriors,
            "write": {
                "output": job.output,
                "keep": job.keep,
                "tables": self.table_names(),
            },
            "checks": all(&job.checks, check),
        })
    }

    /// The lines of the text below its headline, each with its label.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let tables = self.job.tables.iter();
        lines.extend(tables.map(|table| ("read", table_text(table))));
        lines.push(("rows", self.evidence_text()));
        if !self.layout.partition.is_empty() {
            let columns = names(&self.layout.partition);
            lines.push(("models", format!("one for each value of {columns}")));
        }
        for fit in &self.fits {
            let what = fit.method.describe("");
            lines.push(("fit", format!("{}: {what}", fit.name)));
            for (label, rows) in [("supervision", &fit.supervision), ("prior", &fit.prior)] {
                if let Some(rows) = rows {
                    lines.push(("", format!("{label} by {}", names(&rows.fields()))));
                }
            }
        }
        if let Some(split) = &self.layout.split {
            lines.push(("score", format!("rows with {} = 'test'", split.name())));
        }
        let checks = self.job.checks.iter();
        lines.extend(checks.map(|check| ("check", check.to_string())));
        lines.push(("filter", self.rows_text()));
        let tables = self.table_names().join(", ");
        lines.push(("write", format!("{}: {tables}", self.job.output)));
        lines
    }

    fn evidence_text(&self) -> String {
        let numbers = |fields: &[Field]| {
            if is_list(fields) {
                format!("in the lists {}", names(fields))
            } else {
                names(fields)
            }
        };
        let (state, observation) = (
            numbers(&self.layout.state),
            numbers(&self.layout.observation),
        );
        let order = match &self.layout.key {
            StateSpaceKey::Rows { id } => format!("independent rows by {}", names(id)),
            StateSpaceKey::Trajectories {
                trajectory, time, ..
            } => {
                let of = if trajectory.is_empty() {
                    "one trajectory".to_string()
                } else {
                    format!("trajectories by {}", names(trajectory))
                };
                let follow = match &self.interval {
                    None => "each row follows the one before".to_string(),
                    Some(interval) => format!("rows {interval} apart follow each other"),
                };
                format!("{of} in the order of {}; {follow}", time.name())
            }
        };
        let split = self.layout.split.as_ref();
        let training =
            split.map(|field| format!("; training rows have {} = 'train'", field.name()));
        format!(
            "{order}; states {state}, observations {observation}{}",
            training.unwrap_or_default()
        )
    }

    /// What the second pass over the input does.
    pub fn rows_text(&self) -> String {
        let rows = match self.filtered() {
            FilteredRows::HeldOut => "the rows that are not training rows",
            FilteredRows::All | FilteredRows::None => "all rows",
        };
        let mut tables = Vec::new();
        if self.rows != FilteredRows::None {
            tables.push("the estimates of each row");
        }
        if !self.layout.is_static() {
            tables.push("the scores of each trajectory");
        }
        if self.posteriors {
            tables.push("the posterior weights of each row");
        }
        let written = match &tables[..] {
            [] => "scores the fits".to_string(),
            tables => format!("writes {}", tables.join(" and ")),
        };
        format!("a second pass over the input filters {rows} and {written}")
    }
}

/// The plan as `gyre plan` prints it.
impl fmt::Display for FiltersPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan of `{}` ({})", self.job.name, self.job.hash)?;
        for (label, text) in self.lines() {
            write!(f, "\n  {label:<6} {}", escaped(&text))?;
        }
        Ok(())
    }
}

fn increments(increments: &Increments) -> Value {
    match increments {
        Increments::Off => Value::Null,
        Increments::No(why) => json!({"no": why}),
        Increments::Of { table, .. } => json!({"of": table}),
    }
}

fn increments_line(increments: &Increments) -> Option<(&'static str, String)> {
    match increments {
        Increments::Off => None,
        Increments::No(why) => Some(("increments:", format!("no, because {why}"))),
        Increments::Of { table, .. } => Some(("increments:", format!("new files of {table}"))),
    }
}

impl Plan {
    /// The plan as `gyre plan --json` prints it.
    pub fn to_json(&self) -> Value {
        let parameters = self.parameters.iter();
        let parameters = parameters.map(|(name, value)| (name.clone(), json!(value.to_string())));
        let validation = self.validation.as_ref().zip(self.layout.grouping.as_ref());
        let mut fits = all(&self.fits, fit);
        fits.extend(all(&self.embeddings, |fit| {
            json!({
                "name": fit.name,
                "method": fit.method.name(),
                "parameters": own(&fit.method),
            })
        }));
        json!({
            "name": self.name,
            "hash": self.hash,
            "seed": self.seed,
            "read": all(&self.tables, table),
            "sql": self.sql,
            "parameters": parameters.collect::<serde_json::Map<_, _>>(),
            "count": self.evidence(),
            "connected": self.layout.connected,
            "markov": self.markov,
            "partition_by": columns(&self.layout.partition),
            "fit": fits,
            "names": self.names,
            "increments": increments(&self.increments),
            "write": {
                "output": self.output,
                "keep": self.keep,
                "tables": self.table_names(),
            },
            "rows": self.rows.as_deref().map(columns),
            "checks": all(&self.checks, check),
            "validation": validation.map(|(v, grouping)| json!({
                "bootstrap": v.bootstrap,
                "folds": v.folds,
                "confidence": v.confidence,
                "groups": grouping.most,
                "group": columns(&grouping.by),
            })),
        })
    }

    fn evidence(&self) -> Value {
        match &self.layout.evidence {
            RowRoles::Trajectories {
                trajectory,
                time,
                state,
                weight,
                ..
            } => {
                let mut shown = json!({
                    "kind": "trajectories",
                    "trajectory": columns(trajectory),
                    "time": column(time),
                    "state": state_columns(state),
                    "lags": self.lags,
                    "window": window(&self.layout.evidence),
                });
                if let Some(field) = weight {
                    shown["measure"] = json!({"weight": field.name()});
                }
                shown
            }
            RowRoles::Windows {
                trajectory,
                time,
                symbol,
                block,
                first,
                ..
            } => json!({
                "kind": "windows",
                "trajectory": columns(trajectory),
                "time": column(time),
                "symbol": state_columns(symbol),
                "block": block,
                "windows": if *first { "first" } else { "all" },
            }),
            RowRoles::Pairs {
                source,
                target,
                measure,
            } => json!({
                "kind": "pairs",
                "source": state_columns(source),
                "target": state_columns(target),
                "measure": match measure {
                    Measure::One => json!("one a row"),
                    Measure::Count(field) => json!({"count": field.name()}),
                    Measure::Weight(field) => json!({"weight": field.name()}),
                },
            }),
        }
    }

    fn table_names(&self) -> Vec<&'static str> {
        self.tables().iter().map(|table| table.name()).collect()
    }

    /// The lines of the text below its headline, each with its label.
    fn lines(&self) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        lines.extend(self.tables.iter().map(|table| ("read", table_text(table))));
        lines.push(("count", self.evidence_text()));
        if self.layout.connected {
            let what = "the largest strongly connected set of states";
            lines.push(("keep", what.into()));
        }
        if !self.layout.partition.is_empty() {
            let columns = names(&self.layout.partition);
            lines.push(("models", format!("one for each value of {columns}")));
        }
        lines.extend(self.fits.iter().map(|fit| {
            let what = fit.method.describe(&fit.rank_text());
            ("fit", format!("{}: {what}", fit.name))
        }));
        lines.extend(self.embeddings.iter().map(|fit| {
            let what = fit.method.describe("");
            ("fit", format!("{}: {what}", fit.name))
        }));
        lines.extend(self.validation_text().map(|text| ("trust", text)));
        if self.markov {
            let what = "the sets of every fit for a Markov chain";
            lines.push(("test", what.into()));
        }
        lines.extend(self.checks.iter().map(|check| ("check", check.to_string())));
        match &self.names {
            NamesFrom::Previous => (),
            NamesFrom::None => lines.push(("names", "by decreasing weight".into())),
            NamesFrom::Output(location) => {
                lines.push(("names", format!("of the sets of {location}")));
            }
        }
        lines.extend(increments_line(&self.increments));
        lines.extend(self.rows_text().map(|text| ("rows", text)));
        let tables = self.table_names().join(", ");
        lines.push(("write", format!("{}: {tables}", self.output)));
        lines
    }

    fn evidence_text(&self) -> String {
        match &self.layout.evidence {
            RowRoles::Trajectories {
                trajectory,
                time,
                state,
                weight,
                ..
            } => {
                let of = if trajectory.is_empty() {
                    "one trajectory".to_string()
                } else {
                    format!("trajectories by {}", names(trajectory))
                };
                let (time, state) = (time.name(), state_text(state));
                let lags: Vec<_> = self.lags.iter().map(Lag::to_string).collect();
                let (lags, window) = (lags.join(", "), window(&self.layout.evidence));
                let weights = weight.as_ref();
                let weights = weights.map(|field| format!("; weights in {}", field.name()));
                let weights = weights.unwrap_or_default();
                format!(
                    "{of} in the order of {time}: states {state}; lag {lags} ({window}){weights}"
                )
            }
            RowRoles::Windows {
                trajectory,
                time,
                symbol,
                block,
                ..
            } => {
                let (of, symbol) = (names(trajectory), state_text(symbol));
                let (time, n) = (time.name(), 2 * block + 1);
                format!("windows of {n} symbols {symbol} in the order of {time}, by {of}")
            }
            RowRoles::Pairs {
                source,
                target,
                measure,
            } => {
                let measure = match measure {
                    Measure::One => "each row counts one".to_string(),
                    Measure::Count(field) => format!("counts in {}", field.name()),
                    Measure::Weight(field) => format!("weights in {}", field.name()),
                };
                let (source, target) = (state_text(source), state_text(target));
                format!("pairs {source} → {target}; {measure}")
            }
        }
    }

    /// What the second pass over the input writes, if there is one.
    pub fn rows_text(&self) -> Option<String> {
        let mut shown = self.layout.partition.clone();
        shown.extend(self.rows.clone()?);
        let per = if self.lags.len() > 1 {
            "row and lag"
        } else {
            "row"
        };
        let columns = names(&shown);
        Some(format!(
            "a second pass over the input writes {columns} and the sets of each {per}"
        ))
    }

    fn validation_text(&self) -> Option<String> {
        let (validation, grouping) = (self.validation.as_ref()?, self.layout.grouping.as_ref()?);
        let mut parts = Vec::new();
        if validation.bootstrap > 0 {
            let (n, percent) = (validation.bootstrap, 100.0 * validation.confidence);
            parts.push(format!("{n} bootstrap resamples, intervals at {percent} %"));
        }
        if validation.folds > 0 {
            parts.push(format!("{} folds", validation.folds));
        }
        let by = if grouping.by.is_empty() {
            "single transitions".to_string()
        } else {
            names(&grouping.by)
        };
        let (parts, most) = (parts.join("; "), grouping.most);
        Some(format!("{parts}; {by} in at most {most} groups"))
    }
}

/// The plan as `gyre plan` prints it.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Plan of `{}` ({})", self.name, self.hash)?;
        for (label, text) in self.lines() {
            write!(f, "\n  {label:<6} {}", escaped(&text))?;
        }
        Ok(())
    }
}

fn all<T>(items: &[T], shown: impl Fn(&T) -> Value) -> Vec<Value> {
    items.iter().map(shown).collect()
}

fn column(field: &Field) -> Value {
    json!({"name": field.name(), "type": field.data_type().to_string()})
}

fn columns(fields: &[Field]) -> Vec<Value> {
    all(fields, column)
}

fn names(fields: &[Field]) -> String {
    let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
    names.join(", ")
}

fn state_columns(state: &StateColumns) -> Vec<Value> {
    let bins = state.bins.iter();
    let bins = bins.map(|bin| json!({"name": bin.name, "bins": bin.binning}));
    columns(&state.keys).into_iter().chain(bins).collect()
}

fn state_text(state: &StateColumns) -> String {
    let keys = state.keys.iter().map(|field| field.name().clone());
    let bins = state.bins.iter();
    let bins = bins.map(|bin| format!("{} in {}", bin.name, boxes(&bin.binning)));
    keys.chain(bins).collect::<Vec<_>>().join(", ")
}

fn bytes(table: &Table) -> u64 {
    table.files.iter().map(|file| file.size_bytes).sum()
}

fn table(table: &Table) -> Value {
    let fields = table.schema.fields().iter();
    json!({
        "name": table.name,
        "format": table.format,
        "files": table.files.len(),
        "bytes": bytes(table),
        "partition_columns": table.partition_columns,
        "columns": fields.map(|field| column(field)).collect::<Vec<_>>(),
    })
}

fn table_text(table: &Table) -> String {
    let files = counted(table.files.len(), "file");
    let megabytes = bytes(table) as f64 / 1e6;
    let (name, format) = (&table.name, &table.format);
    format!("{name}: {files} of {format}, {megabytes:.1} MB")
}

fn fit(fit: &PlannedFit) -> Value {
    let mut parameters = own(&fit.method);
    if let Ranks::Auto { rule, candidates } = &fit.ranks {
        parameters["rank"] = json!({"one_of": candidates, "rule": rule.name()});
    }
    json!({"name": fit.name, "method": fit.method.name(), "parameters": parameters})
}

/// The parameters of a method, without the tag of the method.
fn own(method: &impl Serialize) -> Value {
    match serde_json::to_value(method) {
        Ok(Value::Object(tagged)) => tagged
            .into_iter()
            .next()
            .map_or(Value::Null, |(_, own)| own),
        _ => Value::Null,
    }
}

fn check(check: &PlannedCheck) -> Value {
    let mut shown = json!({"name": check.name, "on": check.on});
    match &check.rule {
        CheckRule::Partitions(keys) => shown["partitions"] = json!(keys),
        CheckRule::Sql { sql, .. } => shown["sql"] = json!(sql),
        rule => shown["limit"] = json!(rule.limit()),
    }
    shown
}

fn window(evidence: &RowRoles) -> &'static str {
    match evidence {
        RowRoles::Trajectories { strided: true, .. } => "strided",
        RowRoles::Trajectories { overlap, .. } if !overlap.is_empty() => "effective",
        _ => "sliding",
    }
}

fn boxes(binning: &Binning) -> String {
    match binning {
        Binning::Open { step, .. } => format!("boxes of {step}"),
        Binning::Bounded {
            low, high, boxes, ..
        } => format!("{boxes} boxes on [{low}, {high}]"),
        Binning::Periodic { low, high, boxes } => {
            format!("{boxes} boxes on the circle [{low}, {high})")
        }
    }
}
