//! The record of a run → Prometheus' text format, for the textfile collector of the node exporter.
//!
//! In: how the program ended, and the record of the run as JSON, as far as the run has come; if
//! there was nothing to do, the record of the result in place. Out: gauges, each with the pipeline
//! as a label.

use crate::store::secrets::hide;
use serde_json::Value;
use std::fmt::Write;

/// How a run ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended<'a> {
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

/// The labels of a sample besides `pipeline`, and its value.
type Sample = (Vec<(&'static str, String)>, f64);

/// The whole page: every family once, with its help and type.
pub fn text(ended: &Ended<'_>, record: Option<&Value>) -> String {
    let mut page = Page {
        pipeline: ended.pipeline,
        text: String::new(),
    };
    let version = vec![("version", env!("CARGO_PKG_VERSION").to_string())];
    page.family("info", "The version of gyre that ran.", [(version, 1.0)]);
    let success = f64::from(u8::from(ended.exit_code == 0));
    let skipped = f64::from(u8::from(ended.had_nothing_to_do));
    for (name, help, value) in [
        (
            "run_success",
            "1 if the last run ended with exit code 0.",
            success,
        ),
        (
            "run_exit_code",
            "Exit code of the last run.",
            f64::from(ended.exit_code),
        ),
        (
            "run_nothing_to_do",
            "1 if the result was up to date; the other numbers are then those of the run that made it.",
            skipped,
        ),
        (
            "run_finished_timestamp_seconds",
            "When the last run ended.",
            ended.finished_seconds,
        ),
        (
            "run_duration_seconds",
            "How long the last run took.",
            ended.duration_seconds,
        ),
    ] {
        page.family(name, help, [(Vec::new(), value)]);
    }
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
        writeln!(
            self.text,
            "# HELP gyre_{name} {help}\n# TYPE gyre_{name} gauge"
        )
        .ok();
        for (labels, value) in samples {
            write!(
                self.text,
                "gyre_{name}{{pipeline=\"{}\"",
                label(self.pipeline)
            )
            .ok();
            for (key, value) in labels {
                write!(self.text, ",{key}=\"{}\"", label(&value)).ok();
            }
            writeln!(self.text, "}} {}", number(value)).ok();
        }
    }

    fn record(&mut self, record: &Value) {
        for (name, help, key) in [
            ("rows_read", "Rows that the SQL returned.", "rows_read"),
            ("input_bytes", "Bytes of the input files.", "input_bytes"),
            ("transitions", "Transitions in all models.", "transitions"),
            ("points", "Points in all partitions.", "points"),
            ("windows", "Windows of symbols in all models.", "windows"),
            (
                "peak_memory_bytes",
                "Largest resident set.",
                "peak_memory_bytes",
            ),
            ("threads", "Threads of the run.", "threads"),
        ] {
            self.family(name, help, record[key].as_f64().map(|v| (Vec::new(), v)));
        }
        let length = |key: &str| {
            record[key]
                .as_array()
                .map(|list| (Vec::new(), list.len() as f64))
        };
        self.family("models", "Models that were fitted.", length("models"));
        self.family(
            "models_failed",
            "Models (partitions and lags) that could not be fitted.",
            length("failures"),
        );
        for (name, help, key, by) in [
            (
                "stage_seconds",
                "Seconds that a stage took.",
                "seconds",
                "stage",
            ),
            (
                "rows_dropped",
                "Rows that could not be an end of a transition.",
                "rows_dropped",
                "reason",
            ),
            ("table_rows", "Rows of an output table.", "tables", "table"),
            (
                "table_bytes",
                "Bytes of an output table.",
                "table_bytes",
                "table",
            ),
        ] {
            let entries = record[key].as_object().into_iter().flatten();
            let sample = |(k, v): (&String, &Value)| Some((vec![(by, k.clone())], v.as_f64()?));
            self.family(name, help, entries.filter_map(sample));
        }
        self.checks(list(&record["checks"]));
        let models = list(&record["models"]);
        for (name, help, key) in [
            (
                "model_transitions",
                "Transitions of a model.",
                "transitions",
            ),
            ("model_sources", "Source states of a model.", "sources"),
            ("model_points", "Points of a model.", "points"),
            ("model_symbols", "Symbols of a model.", "symbols"),
            ("model_windows", "Windows of symbols of a model.", "windows"),
            ("model_rows", "Rows that a model filtered.", "rows"),
            (
                "model_training_rows",
                "Rows that a model was fitted to.",
                "training_rows",
            ),
            (
                "model_missing",
                "Filtered rows without an observation.",
                "missing",
            ),
            (
                "model_unseen",
                "Rows whose symbol a model does not have.",
                "unseen",
            ),
            ("model_targets", "Target states of a model.", "targets"),
            (
                "model_nonzeros",
                "Pairs of states with a transition.",
                "nonzeros",
            ),
        ] {
            let samples = models
                .iter()
                .filter_map(|m| Some((place(m), m[key].as_f64()?)));
            self.family(name, help, samples);
        }
        for (name, help, key) in [
            ("fit_rank", "Latent states of a fit.", "rank"),
            ("fit_pairs", "Pairs of points of a fit.", "pairs"),
            (
                "fit_bandwidth",
                "Bandwidth of the kernel of a fit.",
                "bandwidth",
            ),
            (
                "fit_noise",
                "Size of singular values that are noise.",
                "noise",
            ),
            ("fit_epsilon", "Epsilon of the kernel of a fit.", "epsilon"),
            (
                "fit_effective_neighbours",
                "Mean row sum of the kernel of a fit.",
                "effective_neighbours",
            ),
            ("fit_cut", "Share of the kernel that was cut.", "cut"),
            (
                "fit_log_likelihood",
                "Log-likelihood of a fit, in nats.",
                "log_likelihood",
            ),
            (
                "fit_mean_log_likelihood",
                "Mean log-likelihood of a symbol of the fitted rows, in nats.",
                "mean_log_likelihood",
            ),
            (
                "fit_held_out",
                "Mean log-likelihood of a held-out symbol, in nats.",
                "held_out",
            ),
            (
                "fit_test_mse",
                "Mean squared error of the states of test rows.",
                "test_mse",
            ),
            (
                "fit_mean_log_score",
                "Mean log score of an observation, in nats.",
                "mean_log_score",
            ),
            (
                "fit_not_updated",
                "Rows whose observation did not change the estimate.",
                "not_updated",
            ),
            (
                "fit_resets",
                "Rows at which the filter began anew.",
                "resets",
            ),
            (
                "fit_negative_share",
                "Share of the raw predictions that are negative.",
                "negative_share",
            ),
            (
                "fit_reference_log_likelihood",
                "Upper bound of the log-likelihood, in nats.",
                "reference_log_likelihood",
            ),
            (
                "fit_coherence",
                "Sum of the singular values of a fit.",
                "coherence",
            ),
            (
                "fit_objective",
                "Sum over the sets of the probability of staying in the set.",
                "objective",
            ),
            (
                "fit_empty_states",
                "Latent states without a source.",
                "empty_states",
            ),
            ("fit_converged", "1 if the fit converged.", "converged"),
            (
                "fit_certified",
                "1 if all certificates of the fit hold.",
                "certified",
            ),
            ("fit_iterations", "Iterations of the fit.", "iterations"),
            ("fit_seconds", "Seconds that the fit took.", "seconds"),
        ] {
            let fits = models
                .iter()
                .flat_map(|m| list(&m["fits"]).iter().map(move |fit| (m, fit)));
            let samples = fits.filter_map(|(model, fit)| {
                let mut labels = place(model);
                labels.push(("fit", fit["name"].as_str()?.to_string()));
                let value = &fit[key];
                let value = value
                    .as_f64()
                    .or(value.as_bool().map(|b| f64::from(u8::from(b))));
                Some((labels, value?))
            });
            self.family(name, help, samples);
        }
    }

    fn checks(&mut self, checks: &[Value]) {
        let labels = |check: &Value| {
            let of = |key: &str| check[key].as_str().unwrap_or_default().to_string();
            vec![("check", of("name")), ("on", of("on"))]
        };
        let passed = |check: &Value| f64::from(u8::from(check["passed"] == true));
        let samples = checks.iter().map(|check| (labels(check), passed(check)));
        self.family("check_passed", "1 if the check passed.", samples);
        for (name, help, key) in [
            (
                "check_value",
                "The value that a check measured: rows, a share, a change or missing partitions.",
                "value",
            ),
            ("check_limit", "The limit of the check.", "limit"),
        ] {
            let samples = checks
                .iter()
                .filter_map(|c| Some((labels(c), c[key].as_f64()?)));
            self.family(name, help, samples);
        }
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The partition and lag of a model as labels. Commas in values are escaped, so that different
/// partitions have different labels.
fn place(model: &Value) -> Vec<(&'static str, String)> {
    let columns = model["partition"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| {
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
    use serde_json::json;

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
        let samples: Vec<&str> = page
            .lines()
            .filter(|line| line.starts_with("gyre_model_nonzeros"))
            .collect();
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
