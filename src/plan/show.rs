//! A plan as JSON for programs and as text for people.
//!
//! The plans of all kinds of evidence have one frame, which is here. What a kind counts and fits is
//! in the file of its plan.

use crate::error::{counted, escaped};
use crate::evidence::lag::Lag;
use crate::methods::estimator::Ranked;
use crate::plan::checks::{CheckRule, PlannedCheck};
use crate::plan::fits::{PlannedFit, Ranks};
use crate::plan::increments::Increments;
use crate::plan::kind::{KindPlan, Line, PlanLines, Shown};
use crate::plan::pipeline::TimeKeys;
use crate::plan::pipeline::keys::Duplicates;
use crate::read::lake::files::LakeTable;
use crate::read::rows::bins::Binning;
use crate::read::rows::states::StateColumns;
use arrow::datatypes::Field;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// A plan as `gyre plan` prints it.
pub(crate) fn shown<P: KindPlan>(plan: &P) -> Shown {
    Shown {
        text: text(plan),
        json: json_of(plan),
    }
}

fn text<P: KindPlan>(plan: &P) -> String {
    let job = plan.job();
    let PlanLines { evidence, fits } = plan.lines();
    let mut lines: Vec<Line> = Vec::new();
    lines.extend(job.tables.iter().map(|table| ("read", table_text(table))));
    lines.extend(evidence);
    if !job.partition.is_empty() {
        let columns = names(&job.partition);
        lines.push(("models", format!("one for each value of {columns}")));
    }
    lines.extend(fits);
    lines.extend(plan.rows_text().map(|text| ("rows", text)));
    lines.extend(job.checks.iter().map(|check| ("check", check.to_string())));
    let tables: Vec<&str> = plan.schemas().iter().map(|(name, _)| *name).collect();
    lines.push(("write", format!("{}: {}", job.output, tables.join(", "))));
    let mut text = format!("Plan of `{}` ({})", job.name, job.hash);
    for (label, line) in lines {
        text += &format!("\n  {label:<6} {}", escaped(&line));
    }
    text
}

fn json_of<P: KindPlan>(plan: &P) -> Value {
    let job = plan.job();
    let parameters = job.parameters.iter();
    let parameters = parameters.map(|(name, value)| (name.clone(), json!(value.to_string())));
    let tables: Vec<&str> = plan.schemas().iter().map(|(name, _)| *name).collect();
    let mut shown = json!({
        "name": job.name,
        "hash": job.hash,
        "seed": job.seed,
        "read": all(&job.tables, table),
        "sql": job.sql,
        "parameters": parameters.collect::<Map<_, _>>(),
        "partition_by": columns(&job.partition),
    });
    if let (Value::Object(shown), Value::Object(own)) = (&mut shown, plan.own_json()) {
        shown.extend(own);
    }
    shown["checks"] = json!(all(&job.checks, check));
    shown["write"] = json!({"output": job.output, "keep": job.keep, "tables": tables});
    shown
}

/// The rows that follow each other in a trajectory, as text.
pub(crate) fn order_text(trajectory: &[Field], time: &Field, times: &TimeKeys) -> String {
    let of = if trajectory.is_empty() {
        "one trajectory".to_string()
    } else {
        format!("trajectories by {}", names(trajectory))
    };
    let order = times.order.iter().map(|name| format!(", {name}"));
    let order: String = order.collect();
    format!("{of} in the order of {}{order}", time.name())
}

/// How the times of trajectories are read, as text behind the rest of a line.
pub(crate) fn times_text(times: &TimeKeys) -> String {
    let mut text = String::new();
    match times.duplicates {
        Duplicates::Error => {}
        Duplicates::First => text.push_str("; the first row of a time counts"),
        Duplicates::Last => text.push_str("; the last row of a time counts"),
    }
    if let Some(gap) = &times.max_gap {
        text += &format!("; a gap above {gap} ends a trajectory");
    }
    if let Some(tolerance) = &times.tolerance {
        text += &format!("; the nearest row within {tolerance}");
    }
    text
}

/// Adds the keys of times to the JSON of rows, if there are some.
pub(crate) fn add_times(rows: &mut Value, times: &TimeKeys) {
    if !times.is_default() {
        rows["times"] = json!(times);
    }
}

/// Which row follows a row, as text. `bridges` says whether filters go on through gaps.
pub(crate) fn follow_text(interval: Option<&Lag>, bridges: bool) -> String {
    let Some(interval) = interval else {
        return "each row follows the one before".to_string();
    };
    let gaps = if bridges {
        ", and filters predict through gaps of whole intervals"
    } else {
        ""
    };
    format!("rows {interval} apart follow each other{gaps}")
}

/// Whether only new files are counted, as JSON.
pub(crate) fn increments_json(increments: &Increments) -> Value {
    match increments {
        Increments::Off => Value::Null,
        Increments::No(why) => json!({"no": why}),
        Increments::Of { table, .. } => json!({"of": table}),
    }
}

/// Whether only new files are counted, as text.
pub(crate) fn increments_line(increments: &Increments) -> Option<Line> {
    match increments {
        Increments::Off => None,
        Increments::No(why) => Some(("increments:", format!("no, because {why}"))),
        Increments::Of { table, .. } => Some(("increments:", format!("new files of {table}"))),
    }
}

pub(crate) fn all<T>(items: &[T], shown: impl Fn(&T) -> Value) -> Vec<Value> {
    items.iter().map(shown).collect()
}

pub(crate) fn column(field: &Field) -> Value {
    json!({"name": field.name(), "type": field.data_type().to_string()})
}

pub(crate) fn columns(fields: &[Field]) -> Vec<Value> {
    all(fields, column)
}

pub(crate) fn names(fields: &[Field]) -> String {
    let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
    names.join(", ")
}

pub(crate) fn state_columns(state: &StateColumns) -> Vec<Value> {
    let bins = state.bins.iter();
    let bins = bins.map(|bin| json!({"name": bin.name, "bins": bin.binning}));
    columns(&state.keys).into_iter().chain(bins).collect()
}

pub(crate) fn state_text(state: &StateColumns) -> String {
    let keys = state.keys.iter().map(|field| field.name().clone());
    let bins = state.bins.iter();
    let bins = bins.map(|bin| format!("{} in {}", bin.name, boxes(&bin.binning)));
    keys.chain(bins).collect::<Vec<_>>().join(", ")
}

fn bytes(table: &LakeTable) -> u64 {
    table.files.iter().map(|file| file.size_bytes).sum()
}

fn table(table: &LakeTable) -> Value {
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

fn table_text(table: &LakeTable) -> String {
    let files = counted(table.files.len(), "file");
    let megabytes = bytes(table) as f64 / 1e6;
    let (name, format) = (&table.name, &table.format);
    format!("{name}: {files} of {format}, {megabytes:.1} MB")
}

/// The lines of fits. `describe` says what the method of a fit with a rank, which is text, does.
pub(crate) fn fit_lines<M: Ranked>(
    fits: &[PlannedFit<M>],
    describe: impl Fn(&PlannedFit<M>, &str) -> String,
) -> Vec<Line> {
    let what = |fit| describe(fit, &fit.rank_text());
    let lines = fits.iter();
    lines
        .map(|fit| ("fit", format!("{}: {}", fit.name, what(fit))))
        .collect()
}

/// Fits with the parameters of their methods.
pub(crate) fn fits_json<M: Serialize>(
    fits: &[PlannedFit<M>],
    method: impl Fn(&PlannedFit<M>) -> &'static str,
) -> Vec<Value> {
    all(fits, |fit| {
        let mut shown = fit_json(&fit.name, method(fit), &fit.method);
        if let Ranks::Auto { rule, candidates } = &fit.ranks {
            shown["parameters"]["rank"] = json!({"one_of": candidates, "rule": rule.name()});
        }
        shown
    })
}

/// A fit with the parameters of its method.
pub(crate) fn fit_json(name: &str, method: &'static str, own: &impl Serialize) -> Value {
    json!({"name": name, "method": method, "parameters": parameters_json(own)})
}

/// The column of weights, if there is one, as the end of a text.
pub(crate) fn weights_text(weight: Option<&Field>) -> String {
    weight.map_or_else(String::new, |field| {
        format!("; weights in {}", field.name())
    })
}

/// The parameters of a method, without the tag of the method.
pub(crate) fn parameters_json(method: &impl Serialize) -> Value {
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
