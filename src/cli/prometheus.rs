//! The record of a run → Prometheus' text format, for the textfile collector of the node exporter.
//!
//! In: how the program ended, and the record of the run as JSON, as far as the run has come; if
//! there was nothing to do, the record of the result in place. Out: gauges, each with the pipeline
//! as a label.

use crate::store::secrets::hide;
use serde_json::{Value, json};
use std::fmt::Write;

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ended<'a> {
    /// Name of the pipeline.
    pub pipeline: &'a str,
    /// Exit code of the program.
    pub exit_code: u8,
    /// Whether the result was up to date.
    pub had_nothing_to_do: bool,
    /// Seconds since 1970.
    pub finished_seconds: f64,
    /// Duration of the run in seconds.
    pub duration_seconds: f64,
}

/// The labels of a sample besides `pipeline`.
type Labels = Vec<(&'static str, String)>;

/// The labels of a sample besides `pipeline`, and its value.
type Sample = (Labels, f64);

/// The key of a number in the record, and its help. The key with a prefix is the gauge's name.
type Number = (&'static str, &'static str);

/// How a run ended.
#[rustfmt::skip]
const END: [Number; 5] = [
    ("success", "1 if the last run ended with exit code 0."),
    ("exit_code", "Exit code of the last run."),
    ("nothing_to_do", "1 if the result was up to date; the other numbers are then those of the run that made it."),
    ("finished_timestamp_seconds", "When the last run ended."),
    ("duration_seconds", "How long the last run took."),
];

/// Numbers of a run.
const RUN: [Number; 7] = [
    ("rows_read", "Rows that the SQL returned."),
    ("input_bytes", "Bytes of the input files."),
    ("transitions", "Transitions in all models."),
    ("points", "Points in all partitions."),
    ("windows", "Windows of symbols in all models."),
    ("peak_memory_bytes", "Largest resident set."),
    ("threads", "Threads of the run."),
];

/// Gauges of the lengths of lists: name, help and key.
#[rustfmt::skip]
const LENGTHS: [(&str, &str, &str); 2] = [
    ("models", "Models that were fitted.", "models"),
    ("models_failed", "Models (partitions and lags) that could not be fitted.", "failures"),
];

/// Gauges of numbers by name: the gauge's name, its help, the key, and the label of the name.
#[rustfmt::skip]
const TABLES: [(&str, &str, &str, &str); 4] = [
    ("stage_seconds", "Seconds that a stage took.", "seconds", "stage"),
    ("rows_dropped", "Rows that could not be an end of a transition.", "rows_dropped", "reason"),
    ("table_rows", "Rows of an output table.", "tables", "table"),
    ("table_bytes", "Bytes of an output table.", "table_bytes", "table"),
];

/// Numbers of a check.
#[rustfmt::skip]
const CHECK: [Number; 3] = [
    ("passed", "1 if the check passed."),
    ("value", "The value that a check measured: rows, a share, a change or missing partitions."),
    ("limit", "The limit of the check."),
];

/// Numbers of a model.
const MODEL: [Number; 11] = [
    ("transitions", "Transitions of a model."),
    ("sources", "Source states of a model."),
    ("points", "Points of a model."),
    ("symbols", "Symbols of a model."),
    ("windows", "Windows of symbols of a model."),
    ("rows", "Rows that a model filtered."),
    ("training_rows", "Rows that a model was fitted to."),
    ("missing", "Filtered rows without an observation."),
    ("unseen", "Rows whose symbol a model does not have."),
    ("targets", "Target states of a model."),
    ("nonzeros", "Pairs of states with a transition."),
];

/// Numbers of a fit.
#[rustfmt::skip]
const FIT: [Number; 25] = [
    ("rank", "Latent states of a fit."),
    ("pairs", "Pairs of points of a fit."),
    ("bandwidth", "Bandwidth of the kernel of a fit."),
    ("noise", "Size of singular values that are noise."),
    ("epsilon", "Epsilon of the kernel of a fit."),
    ("effective_neighbours", "Mean row sum of the kernel of a fit."),
    ("cut", "Share of the kernel that was cut."),
    ("log_likelihood", "Log-likelihood of a fit, in nats."),
    ("mean_log_likelihood", "Mean log-likelihood of a symbol of the fitted rows, in nats."),
    ("held_out", "Mean log-likelihood of a held-out symbol, in nats."),
    ("test_mse", "Mean squared error of the states of test rows."),
    ("mean_log_score", "Mean log score of an observation, in nats."),
    ("not_updated", "Rows whose observation did not change the estimate."),
    ("resets", "Rows at which the filter was reset."),
    ("negative_share", "Share of the raw predictions that are negative."),
    ("reference_log_likelihood", "Upper bound of the log-likelihood, in nats."),
    ("coherence", "Sum of the singular values of a fit."),
    ("objective", "Sum over the sets of the probability of staying in the set."),
    ("empty_states", "Latent states without a source."),
    ("converged", "1 if the fit converged."),
    ("certified", "1 if all certificates of the fit hold."),
    ("iterations", "Iterations of the fit."),
    ("seconds", "Seconds that the fit took."),
    ("filter_seconds", "Seconds that filtering rows with the fit took, the sum over threads."),
    ("row_seconds", "Seconds per row that was filtered with the fit."),
];

/// The whole page: every family once, with its help and type.
pub(crate) fn text(ended: &Ended<'_>, record: Option<&Value>) -> String {
    let mut page = Page {
        pipeline: ended.pipeline,
        text: String::new(),
    };
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_string())];
    page.family("info", "The version of gyre that ran.", [(version, 1.0)]);
    let end = json!({
        "success": ended.exit_code == 0,
        "exit_code": ended.exit_code,
        "nothing_to_do": ended.had_nothing_to_do,
        "finished_timestamp_seconds": ended.finished_seconds,
        "duration_seconds": ended.duration_seconds,
    });
    page.numbers("run_", &END, &[(Vec::new(), &end)]);
    if let Some(record) = record {
        page.record(record);
    }
    page.text
}

struct Page<'a> {
    pipeline: &'a str,
    text: String,
}

impl Page<'_> {
    /// Writes a family of gauges; one without samples is left out.
    fn family(&mut self, name: &str, help: &str, samples: impl IntoIterator<Item = Sample>) {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return;
        }
        // Writing to a string cannot fail.
        writeln!(self.text, "# HELP gyre_{name} {help}").ok();
        writeln!(self.text, "# TYPE gyre_{name} gauge").ok();
        let pipeline = label(self.pipeline);
        for (labels, value) in samples {
            write!(self.text, "gyre_{name}{{pipeline=\"{pipeline}\"").ok();
            for (key, value) in labels {
                write!(self.text, ",{key}=\"{}\"", label(&value)).ok();
            }
            writeln!(self.text, "}} {}", number(value)).ok();
        }
    }

    /// Writes a family for each of these numbers: its values in `entries`, with their labels.
    fn numbers(&mut self, prefix: &str, numbers: &[Number], entries: &[(Labels, &Value)]) {
        for (key, help) in numbers {
            let samples = entries.iter().filter_map(|(labels, entry)| {
                let (value, flag) = (entry[key].as_f64(), entry[key].as_bool());
                let value = value.or(flag.map(|flag| f64::from(u8::from(flag))));
                Some((labels.clone(), value?))
            });
            self.family(&format!("{prefix}{key}"), help, samples);
        }
    }

    fn record(&mut self, record: &Value) {
        self.numbers("", &RUN, &[(Vec::new(), record)]);
        for (name, help, key) in LENGTHS {
            let list = record[key].as_array();
            self.family(name, help, list.map(|l| (Vec::new(), l.len() as f64)));
        }
        for (name, help, key, by) in TABLES {
            let entries = record[key].as_object().into_iter().flatten();
            let sample = |(k, v): (&String, &Value)| Some((vec![(by, k.clone())], v.as_f64()?));
            self.family(name, help, entries.filter_map(sample));
        }
        let checks = list(&record["checks"]).iter().map(|check| {
            let of = |key: &str| check[key].as_str().unwrap_or_default().to_string();
            (vec![("check", of("name")), ("on", of("on"))], check)
        });
        self.numbers("check_", &CHECK, &checks.collect::<Vec<_>>());
        let models = list(&record["models"]).iter();
        let models: Vec<_> = models.map(|model| (place(model), model)).collect();
        self.numbers("model_", &MODEL, &models);
        let fits = models.iter().flat_map(|(place, model)| {
            list(&model["fits"]).iter().filter_map(move |fit| {
                let name = ("fit", fit["name"].as_str()?.to_string());
                let labels: Labels = place.iter().cloned().chain([name]).collect();
                Some((labels, fit))
            })
        });
        self.numbers("fit_", &FIT, &fits.collect::<Vec<_>>());
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The partition and lag of a model as labels. Commas in values are escaped, so that different
/// partitions have different labels.
fn place(model: &Value) -> Labels {
    let columns = model["partition"].as_object().into_iter().flatten();
    let columns = columns.map(|(name, value)| {
        let value = value.as_str().unwrap_or_default();
        format!("{name}={}", value.replace('\\', "\\\\").replace(',', "\\,"))
    });
    let partition = columns.collect::<Vec<_>>().join(",");
    let partition = (!partition.is_empty()).then_some(("partition", partition));
    let lag = model["lag"].as_str().map(|lag| ("lag", lag.to_string()));
    partition.into_iter().chain(lag).collect()
}

/// The text of a label, without secrets. Backslashes, quotes and newlines are escaped.
pub fn label(value: &str) -> String {
    hide(value)
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn number(value: f64) -> String {
    match value {
        v if v.is_nan() => "NaN".into(),
        f64::INFINITY => "+Inf".into(),
        f64::NEG_INFINITY => "-Inf".into(),
        v => v.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENDED: Ended<'_> = Ended {
        pipeline: "ocean",
        exit_code: 3,
        had_nothing_to_do: false,
        finished_seconds: 1.7e9,
        duration_seconds: 0.25,
    };

    #[test]
    fn a_run_without_a_record_has_its_end() {
        let page = text(&ENDED, None);
        let samples: Vec<&str> = page.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples[1..],
            [
                "gyre_run_success{pipeline=\"ocean\"} 0",
                "gyre_run_exit_code{pipeline=\"ocean\"} 3",
                "gyre_run_nothing_to_do{pipeline=\"ocean\"} 0",
                "gyre_run_finished_timestamp_seconds{pipeline=\"ocean\"} 1700000000",
                "gyre_run_duration_seconds{pipeline=\"ocean\"} 0.25",
            ]
        );
    }

    #[test]
    fn labels_are_escaped_and_distinct() {
        let model =
            |a: &str, b: &str| json!({"partition": {"a": a, "b": b}, "lag": "5d", "nonzeros": 7});
        let record =
            json!({"models": [model("1,b=2", "3"), model("1", "2,b=3"), model("x\"\n\\", "")]});
        let page = text(&ENDED, Some(&record));
        let is_wanted = |line: &&str| line.starts_with("gyre_model_nonzeros");
        let samples: Vec<&str> = page.lines().filter(is_wanted).collect();
        assert_eq!(
            samples,
            [
                r#"gyre_model_nonzeros{pipeline="ocean",partition="a=1\\,b=2,b=3",lag="5d"} 7"#,
                r#"gyre_model_nonzeros{pipeline="ocean",partition="a=1,b=2\\,b=3",lag="5d"} 7"#,
                r#"gyre_model_nonzeros{pipeline="ocean",partition="a=x\"\n\\\\,b=",lag="5d"} 7"#,
            ]
        );
    }
}
