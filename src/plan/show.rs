//! A plan as text for people and as JSON for programs.

use crate::error::counted;
use crate::evidence::lag::Lag;
use crate::methods::Method;
use crate::plan::checks::CheckRule;
use crate::plan::fits::{PlannedFit, Ranks};
use crate::plan::pipeline::keys::NamesFrom;
use crate::plan::{Increments, Plan};
use crate::read::lake::files::Table;
use crate::read::rows::bins;
use crate::read::rows::layout::{Evidence, Measure};
use crate::read::rows::states::StateColumns;
use arrow::datatypes::Field;
use serde_json::{Value, json};
use std::fmt;

impl Plan {
    pub fn to_json(&self) -> Value {
        let names = |fields: &[Field]| {
            fields
                .iter()
                .map(|f| json!({"name": f.name(), "type": f.data_type().to_string()}))
                .collect::<Vec<_>>()
        };
        let state = |s: &StateColumns| {
            let bins = s
                .bins
                .iter()
                .map(|(name, b)| json!({"name": name, "bins": b}));
            names(&s.keys).into_iter().chain(bins).collect::<Vec<_>>()
        };
        let count = match &self.layout.evidence {
            Evidence::Trajectories {
                trajectory,
                time,
                state: s,
                weight,
                strided,
                overlap,
                ..
            } => {
                let mut shown = json!({
                    "kind": "trajectories",
                    "trajectory": names(trajectory),
                    "time": names(std::slice::from_ref(time))[0],
                    "state": state(s),
                    "lags": self.lags,
                    "window": window(*strided, overlap),
                });
                if let Some(field) = weight {
                    shown["measure"] = json!({"weight": field.name()});
                }
                shown
            }
            Evidence::Pairs {
                source,
                target,
                measure,
            } => json!({
                "kind": "pairs",
                "source": state(source),
                "target": state(target),
                "measure": match measure {
                    Measure::One => json!("one a row"),
                    Measure::Count(f) => json!({"count": f.name()}),
                    Measure::Weight(f) => json!({"weight": f.name()}),
                },
            }),
        };
        let fit = |f: &PlannedFit| {
            let parameters = parameters(&f.method);
            let mut shown =
                json!({"name": f.name, "method": f.method.name(), "parameters": parameters});
            if let Ranks::Auto { rule, candidates } = &f.ranks {
                shown["parameters"]["rank"] = json!({"one_of": candidates, "rule": rule.name()});
            }
            shown
        };
        let table = |t: &Table| {
            json!({
                "name": t.name,
                "format": t.format,
                "files": t.files.len(),
                "bytes": t.files.iter().map(|f| f.size_bytes).sum::<u64>(),
                "partition_columns": t.partition_columns,
                "columns": t.schema.fields().iter().map(|f| json!({"name": f.name(), "type": f.data_type().to_string()})).collect::<Vec<_>>(),
            })
        };
        json!({
            "name": self.name,
            "hash": self.hash,
            "seed": self.seed,
            "read": self.tables.iter().map(table).collect::<Vec<_>>(),
            "sql": self.sql,
            "parameters": self.parameters.iter().map(|(k, v)| (k.clone(), json!(v.to_string()))).collect::<serde_json::Map<_, _>>(),
            "count": count,
            "connected": self.layout.connected,
            "markov": self.markov,
            "partition_by": names(&self.layout.partition),
            "fit": self.fits.iter().map(fit).collect::<Vec<_>>(),
            "names": self.names,
            "increments": match &self.increments {
                Increments::Off => Value::Null,
                Increments::No(why) => json!({"no": why}),
                Increments::Of { table, .. } => json!({"of": table}),
            },
            "write": {
                "output": self.output,
                "keep": self.keep,
                "tables": self.tables().iter().map(|t| t.name()).collect::<Vec<_>>(),
            },
            "checks": self.checks.iter().map(|check| {
                let mut shown = json!({"name": check.name, "on": check.on});
                match &check.rule {
                    CheckRule::Partitions(keys) => shown["partitions"] = json!(keys),
                    CheckRule::Sql { sql, .. } => shown["sql"] = json!(sql),
                    rule => shown["limit"] = json!(rule.limit()),
                }
                shown
            }).collect::<Vec<_>>(),
            "validation": self.validation.as_ref().zip(self.layout.grouping.as_ref()).map(|(v, g)| json!({
                "bootstrap": v.bootstrap,
                "folds": v.folds,
                "confidence": v.confidence,
                "groups": g.most,
                "group": names(&g.by),
            })),
        })
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |fields: &[Field]| {
            fields
                .iter()
                .map(|f| f.name().as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        let state = |s: &StateColumns| {
            let bins = s
                .bins
                .iter()
                .map(|(name, b)| format!("{name} in {}", boxes(b)));
            s.keys
                .iter()
                .map(|f| f.name().clone())
                .chain(bins)
                .collect::<Vec<_>>()
                .join(", ")
        };
        writeln!(f, "Plan of `{}` ({})", self.name, self.hash)?;
        for table in &self.tables {
            let bytes: u64 = table.files.iter().map(|f| f.size_bytes).sum();
            let files = counted(table.files.len(), "file");
            writeln!(
                f,
                "  read   {}: {files} of {}, {:.1} MB",
                table.name,
                table.format,
                bytes as f64 / 1e6
            )?;
        }
        match &self.layout.evidence {
            Evidence::Trajectories {
                trajectory,
                time,
                state: s,
                weight,
                strided,
                overlap,
                ..
            } => {
                let of = if trajectory.is_empty() {
                    "one trajectory".to_string()
                } else {
                    format!("trajectories by {}", list(trajectory))
                };
                let lags = self
                    .lags
                    .iter()
                    .map(Lag::to_string)
                    .collect::<Vec<_>>()
                    .join(", ");
                let window = window(*strided, overlap);
                write!(
                    f,
                    "  count  {of} in the order of {}: states {}; lag {lags} ({window})",
                    time.name(),
                    state(s)
                )?;
                match weight {
                    Some(field) => writeln!(f, "; weights in {}", field.name())?,
                    None => writeln!(f)?,
                }
            }
            Evidence::Pairs {
                source,
                target,
                measure,
            } => {
                let measure = match measure {
                    Measure::One => "each row counts one".to_string(),
                    Measure::Count(field) => format!("counts in {}", field.name()),
                    Measure::Weight(field) => format!("weights in {}", field.name()),
                };
                writeln!(
                    f,
                    "  count  pairs {} → {}; {measure}",
                    state(source),
                    state(target)
                )?;
            }
        }
        if self.layout.connected {
            writeln!(f, "  keep   the largest strongly connected set of states")?;
        }
        if !self.layout.partition.is_empty() {
            writeln!(
                f,
                "  models one for each value of {}",
                list(&self.layout.partition)
            )?;
        }
        for fit in &self.fits {
            let what = fit.method.describe(&fit.rank_text());
            writeln!(f, "  fit    {}: {what}", fit.name)?;
        }
        if let (Some(validation), Some(grouping)) = (&self.validation, &self.layout.grouping) {
            let mut parts = Vec::new();
            if validation.bootstrap > 0 {
                let percent = 100.0 * validation.confidence;
                parts.push(format!(
                    "{} bootstrap resamples, intervals at {percent} %",
                    validation.bootstrap
                ));
            }
            if validation.folds > 0 {
                parts.push(format!("{} folds", validation.folds));
            }
            let by = match grouping.by.is_empty() {
                true => "single transitions".to_string(),
                false => list(&grouping.by),
            };
            let (parts, most) = (parts.join("; "), grouping.most);
            writeln!(f, "  trust  {parts}; {by} in at most {most} groups")?;
        }
        if self.markov {
            writeln!(f, "  test   the sets of every fit for a Markov chain")?;
        }
        for check in &self.checks {
            writeln!(f, "  check  {check}")?;
        }
        match &self.names {
            NamesFrom::Previous => (),
            NamesFrom::None => writeln!(f, "  names  by decreasing weight")?,
            NamesFrom::Output(location) => writeln!(f, "  names  of the sets of {location}")?,
        }
        match &self.increments {
            Increments::Off => (),
            Increments::No(why) => writeln!(f, "  increments: no, because {why}")?,
            Increments::Of { table, .. } => writeln!(f, "  increments: new files of {table}")?,
        }
        let tables: Vec<_> = self.tables().iter().map(|t| t.name()).collect();
        let tables = tables.join(", ");
        write!(f, "  write  {}: {tables}", self.output)
    }
}

fn window(strided: bool, overlap: &[u64]) -> &'static str {
    match (strided, overlap) {
        (true, _) => "strided",
        (false, []) => "sliding",
        (false, _) => "effective",
    }
}

fn boxes(binning: &bins::Binning) -> String {
    match binning {
        bins::Binning::Open { step, .. } => format!("boxes of {step}"),
        bins::Binning::Bounded {
            low, high, boxes, ..
        } => format!("{boxes} boxes on [{low}, {high}]"),
        bins::Binning::Periodic { low, high, boxes } => {
            format!("{boxes} boxes on the circle [{low}, {high})")
        }
    }
}

/// The parameters of a method, without the tag of the method.
fn parameters(method: &Method) -> Value {
    match serde_json::to_value(method) {
        Ok(Value::Object(tagged)) => tagged
            .into_iter()
            .next()
            .map_or(Value::Null, |(_, own)| own),
        _ => Value::Null,
    }
}
