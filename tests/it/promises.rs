//! What every kind of rows promises: one test per promise, and each kind is a case of it.

use crate::cli::integers;
use crate::inside::{InProcess, Schedule, run_with, stop_at};
use crate::lake::{Lake, ProgramRun, Rows, texts_or_null};
use arrow::array::Array;
use gyre::plan::pipeline::Pipeline;
use gyre::run::workers::Workers;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;

/// A pipeline of one kind of rows.
struct Case {
    /// As in `current.json`.
    kind: &'static str,
    section: &'static str,
    keys: &'static str,
    fit: &'static str,
    /// The first rows of each trajectory that give no evidence alone. 0 if all rows are evidence.
    alone: usize,
    /// A column that new rows need.
    column: &'static str,
    /// A table of an assignment.
    assigned: &'static str,
    /// An error of a run in which no row is evidence, with the key that makes it so.
    nothing: (&'static str, &'static str),
    /// The pieces of work that a run keeps: those of two fits and of resamples, if there are any.
    pieces: u64,
    resamples: &'static str,
    /// Metrics of a run, with their labels after the pipeline.
    metrics: &'static [(&'static str, &'static str, &'static str)],
}

const CASES: [Case; 5] = [
    Case {
        kind: "counts",
        section: "transitions",
        keys: "trajectory = \"id\"\ntime = \"t\"\nstate = \"s\"\nlag = 1",
        fit: "method = \"dbmr\"\nrank = 2",
        alone: 1,
        column: "s",
        assigned: "sources",
        nothing: ("transitions.lag=900", "no transition was found in 480 rows"),
        pieces: 6,
        resamples: "[validation]\nbootstrap = 3\n",
        metrics: &[
            ("transitions", "", "468"),
            ("model_transitions", ",lag=\"1\"", "468"),
            ("fit_rank", ",lag=\"1\",fit=\"one\"", "2"),
        ],
    },
    Case {
        kind: "points",
        section: "transitions",
        keys: "trajectory = \"id\"\ntime = \"t\"\ncoordinates = [\"x\", \"s\"]\nlag = 1",
        fit: "method = \"state_embedding\"\nrank = 2\nfeatures = 40",
        alone: 1,
        column: "x",
        assigned: "points",
        nothing: (
            "transitions.lag=900",
            "there are no pairs of points at this lag",
        ),
        pieces: 2,
        resamples: "[validation]\nbootstrap = 3\n",
        metrics: &[
            ("points", "", "480"),
            ("model_points", ",lag=\"1\"", "480"),
            ("fit_bandwidth", ",lag=\"1\",fit=\"one\"", ""),
        ],
    },
    Case {
        kind: "points",
        section: "points",
        keys: "id = \"key\"\ncoordinates = [\"t\", \"s\", \"x\"]",
        fit: "method = \"diffusion_map\"\ndimension = 2",
        alone: 0,
        column: "x",
        assigned: "points",
        nothing: (
            "points.sql=\"SELECT key, s, x, CAST(NULL AS BIGINT) AS t FROM rows\"",
            "no row of 480 rows has all its coordinates",
        ),
        pieces: 1,
        resamples: "",
        metrics: &[
            ("points", "", "480"),
            ("model_points", "", "480"),
            ("fit_epsilon", ",fit=\"one\"", ""),
        ],
    },
    Case {
        kind: "symbols",
        section: "sequences",
        keys: "trajectory = \"id\"\ntime = \"t\"\nsymbol = \"s\"",
        fit: "method = \"spectral_hmm\"\nrank = 2",
        alone: 2,
        column: "s",
        assigned: "trajectories",
        nothing: (
            "sequences.interval=1000",
            "gyre needs 3 rows in a row with a symbol, and there are none in 480 rows",
        ),
        pieces: 8,
        resamples: "[validation]\nbootstrap = 3\n",
        metrics: &[
            ("windows", "", "456"),
            ("model_symbols", "", "5"),
            ("model_rows", "", "480"),
            ("fit_rank", ",fit=\"one\"", "2"),
            ("fit_mean_log_likelihood", ",fit=\"one\"", "-"),
        ],
    },
    Case {
        kind: "observations",
        section: "sequences",
        keys: "trajectory = \"id\"\ntime = \"t\"\nstate = \"s\"\nobservation = \"x\"\nsplit = \"split\"",
        fit: "method = \"kalman\"",
        alone: 1,
        column: "x",
        assigned: "estimates",
        nothing: (
            "sequences.interval=1000",
            "no training row with a state and an observation is followed by another one",
        ),
        pieces: 2,
        resamples: "",
        metrics: &[
            ("model_rows", "", "80"),
            ("fit_mean_log_score", ",fit=\"one\"", "-"),
            ("fit_test_mse", ",fit=\"one\"", ""),
            ("fit_not_updated", ",fit=\"one\"", "0"),
            ("fit_seconds", ",fit=\"one\"", ""),
            ("fit_filter_seconds", ",fit=\"one\"", ""),
            ("fit_row_seconds", ",fit=\"one\"", ""),
        ],
    },
];

/// A row of the input: trajectory, time, state and a number.
type Row = (i64, i64, i64, i64);

/// Twelve walks of 40 steps among five states.
fn rows() -> Vec<Row> {
    let walks = (0..12).flat_map(|id| (0..40).map(move |t| (id, t)));
    let step = |(id, t): (i64, i64)| {
        let s = (id * 7 + t * t + t / 5) % 5;
        (id, t, s, s + t % 3)
    };
    walks.map(step).collect()
}

fn write(lake: &Lake, file: &str, rows: &[Row]) {
    let split = |row: &Row| Some(if row.0 > 9 { "test" } else { "train" });
    let splits = rows.iter().map(split);
    let columns = vec![
        ("id", integers(rows.iter().map(|row| row.0))),
        ("t", integers(rows.iter().map(|row| row.1))),
        ("s", integers(rows.iter().map(|row| row.2))),
        ("x", integers(rows.iter().map(|row| row.3))),
        ("key", integers(rows.iter().map(|row| row.0 * 100 + row.1))),
        ("split", texts_or_null(splits)),
    ];
    lake.table(&format!("rows/{file}.parquet"), columns);
}

impl Case {
    /// The pipeline with a query for the rows. `FOLDER` stands for the folder of the lake.
    fn pipeline(&self, sql: &str, more: &str) -> String {
        let Case {
            section, keys, fit, ..
        } = self;
        format!(
            "[job]\nname = \"walks\"\noutput = \"FOLDER/out\"\n[tables.rows]\npath = \"FOLDER/rows/\"\n\
             [{section}]\nsql = \"{sql}\"\n{keys}\n{more}\n[[fit]]\nname = \"one\"\n{fit}\n"
        )
    }

    /// A lake with the rows and the pipeline `p.toml`, followed by `more`.
    fn lake(&self, more: &str) -> Lake {
        let lake = Lake::new();
        write(&lake, "a", &rows());
        put(&lake, &(self.pipeline("SELECT * FROM rows", "") + more));
        lake
    }
}

/// Writes the pipeline `p.toml`.
fn put(lake: &Lake, text: &str) {
    let folder = lake.folder.path().display().to_string();
    lake.file("p.toml", &text.replace("FOLDER", &folder));
}

/// Runs a promise for every case. The case is printed beside a failure.
fn each(promise: impl Fn(&Case)) {
    for case in &CASES {
        println!("[{}], {}", case.section, case.fit);
        promise(case);
    }
}

fn run(lake: &Lake, more: &[&str]) -> ProgramRun {
    lake.gyre(&[&["run", "p.toml"][..], more].concat())
}

#[test]
fn a_second_run_has_nothing_to_do_and_a_forced_one_gives_the_same_bytes() {
    each(|case| {
        let lake = case.lake("");
        run(&lake, &[]).succeeds();
        let (first, n) = (lake.tables_of("out"), lake.records().len());
        run(&lake, &[]).succeeds().says("Nothing to do");
        assert_eq!(lake.records().len(), n);
        run(&lake, &["--force"]).succeeds();
        assert_eq!(lake.records().len(), n + 1);
        assert!(lake.tables_of("out") == first);
        let other = run(&lake, &["--seed", "9"]).succeeds();
        assert!(!other.out.contains("Nothing to do"), "{}", other.out);
    });
}

/// A check in a file is part of a plan by its text, not by the name of its file.
#[test]
fn an_edited_check_runs_again_and_gates_the_result() {
    each(|case| {
        let lake = case.lake("[[check]]\nname = \"few\"\nfile = \"c.sql\"\n");
        let passes = "SELECT fit FROM fits WHERE fit IS NULL";
        lake.file("c.sql", passes).file("d.sql", passes);
        run(&lake, &[]).succeeds().says("checks: 1 passed");
        let first = lake.tables_of("out");
        let text = lake.text("p.toml");
        lake.file("p.toml", &text.replace("c.sql", "d.sql"));
        run(&lake, &[]).succeeds().says("Nothing to do");
        lake.file("d.sql", "SELECT fit FROM fits");
        run(&lake, &[]).fails(3, "few: 1 row where there should be none");
        assert!(lake.tables_of("out") == first);
    });
}

#[test]
fn checks_pass_warn_or_fail() {
    each(|case| {
        let lake = case.lake(
            "[checks]\nmin_rows = 100\nmax_dropped = 0.5\n\
             [[check]]\nname = \"says\"\nsql = \"SELECT fit FROM fits\"\non = \"warn\"\n\
             [[check]]\nname = \"every_row\"\nsql = \"SELECT n FROM (SELECT count(*) AS n FROM rows) WHERE n <> 480\"\n",
        );
        let checked = lake.call("check", &[]).succeeds();
        let said = checked.out + &checked.err;
        assert!(said.contains("4 checks"), "{said}");
        let ran = run(&lake, &[]).succeeds();
        let said = "checks: 3 passed, 1 warned: says";
        ran.says(said);
        let (first, few) = (lake.tables_of("out"), "checks.min_rows=1000");
        run(&lake, &["--set", few]).fails(3, "min_rows: 480 rows were read, fewer than 1,000");
        let dropped = case.pipeline("SELECT * EXCLUDE (t), NULLIF(t, 3) AS t FROM rows", "");
        put(&lake, &(dropped + "[checks]\nmax_dropped = 0.02\n"));
        let lost = "max_dropped: 2.50 % of the rows were dropped, more than 2 %";
        run(&lake, &[]).fails(3, lost);
        assert!(lake.tables_of("out") == first);
        let warns = "checks.max_dropped={value=0.02, on=\"warn\"}";
        let ran = run(&lake, &["--set", warns]).succeeds();
        let said = "checks: 0 passed, 1 warned: max_dropped";
        ran.says(said);
        let drift = lake.call("check", &["checks.max_drift=0.1"]);
        if case.kind == "counts" {
            drift.succeeds();
        } else {
            drift.fails(2, "`checks.max_drift` is about the number of transitions");
        }
        // The SQL sees all tables that the run writes.
        let of = |table: &String| {
            format!(
                "[[check]]\nname = \"of_{table}\"\nsql = \"SELECT * FROM {table}\"\non = \"warn\"\n"
            )
        };
        let lake = case.lake(&first.keys().map(of).collect::<String>());
        run(&lake, &[]).succeeds().says("warned: of_");
        let record = lake.json("out/current/run.json");
        let checked = record["checks"].as_array().expect("checks");
        assert_eq!(checked.len(), first.len());
        for (check, table) in checked.iter().zip(first.keys()) {
            assert_eq!(check["value"], lake.read(table).len() as f64, "{check}");
        }
        let lake = case.lake("[[check]]\nname = \"a\"\nsql = \"SELECT nothing FROM fits\"\n");
        lake.call("check", &[]).fails(2, "nothing");
    });
}

#[test]
fn neither_threads_nor_files_nor_the_order_of_rows_change_a_byte() {
    each(|case| {
        let lake = case.lake(case.resamples);
        run(&lake, &["--threads", "1"]).succeeds();
        let expected = lake.tables_of("out");
        for (is_shuffled, threads) in [(false, "2"), (true, "3")] {
            let other = case.lake(case.resamples);
            let mut rows = rows();
            if is_shuffled {
                rows.shuffle(&mut Pcg64::seed_from_u64(3));
            }
            write(&other, "c", &rows[..200]);
            write(&other, "b", &rows[200..201]);
            write(&other, "a", &rows[201..]);
            run(&other, &["--threads", threads]).succeeds();
            let found = other.tables_of("out");
            assert!(found.keys().eq(expected.keys()), "{:?}", found.keys());
            for (table, bytes) in found {
                assert!(bytes == expected[&table], "{table}");
            }
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_give_the_bytes_of_one_process() {
    for case in &CASES {
        println!("[{}], {}", case.section, case.fit);
        let lake = case.lake("");
        let text = case.pipeline("SELECT * FROM rows", "");
        let (expected, local) = run_with(&lake, &text, Workers::Local).await.expect("a run");
        let nodes = InProcess::new(Schedule::Shuffled(3));
        let remote = Workers::Remote { nodes, split: 1 };
        let (found, record) = run_with(&lake, &text, remote).await.expect("a run");
        assert!(expected == found);
        for key in ["kind", "seed", "rows_read", "rows_dropped", "hashes"] {
            assert_eq!(record[key], local[key], "{key}");
        }
        for key in ["filter_seconds", "row_seconds"] {
            for record in [&record, &local] {
                let has = record["models"][0]["fits"][0][key].is_number();
                assert_eq!(has, case.kind == "observations", "{key}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_continues_from_the_work_of_one_that_was_stopped() {
    for case in &CASES {
        println!("[{}], {}", case.section, case.fit);
        let lake = case.lake("");
        let two = format!("[[fit]]\nname = \"two\"\n{}\n{}", case.fit, case.resamples);
        let text = case.pipeline("SELECT * FROM rows", "") + &two;
        let (expected, whole) = run_with(&lake, &text, Workers::Local).await.expect("a run");
        assert!(whole["resumed"].is_null(), "{whole}");
        stop_at(&lake, &text, "write").await;
        assert!(!lake.path("out/current.json").exists());
        let (found, record) = run_with(&lake, &text, Workers::Local).await.expect("a run");
        assert_eq!(record["resumed"]["pieces"], case.pieces, "{record}");
        assert!(expected == found);
    }
}

/// The tables of a plan with their columns are those of the files.
#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_what_a_run_writes() {
    for case in &CASES {
        println!("[{}], {}", case.section, case.fit);
        let lake = case.lake("");
        run(&lake, &[]).succeeds();
        let text = lake.text("p.toml");
        let pipeline = Pipeline::parse(&text, "p.toml", &[], &|_| None).expect("a pipeline");
        let inputs = pipeline.open().await.expect("a lake");
        let planned = inputs.plan_any(None).await.expect("a plan").schemas();
        let names: BTreeSet<String> = planned.iter().map(|(name, _)| name.to_string()).collect();
        assert!(names.iter().eq(lake.tables_of("out").keys()), "{names:?}");
        let shown = lake.call("plan", &[]).succeeds().out;
        for (table, schema) in planned {
            let written = lake.read_at(&format!("out/current/{table}"));
            assert_eq!(written.0.schema().fields(), schema.fields(), "{table}");
            assert!(shown.contains(table), "{table}: {shown}");
        }
    }
}

#[test]
fn records_and_pointers_name_the_kind_the_seed_and_the_hashes() {
    each(|case| {
        let lake = case.lake("");
        run(&lake, &["--seed", "5", "--log-format", "json"])
            .succeeds()
            .logs("\"run begins\"");
        let pointer = lake.json("out/current.json");
        assert_eq!(pointer["kind"], case.kind);
        let record = lake.records().into_iter().next().expect("a record");
        assert_eq!(record["kind"], case.kind);
        assert_eq!(record["seed"], 5);
        let hashes = record["hashes"].as_object().expect("hashes");
        assert!(!hashes.is_empty());
        assert_eq!(record["rows_read"], 480);
    });
}

/// Asserts that the rows of partition 1, and no others, have nulls in place of values of the fit.
#[track_caller]
fn assert_fitted(rows: &Rows) {
    let schema = rows.0.schema();
    let mut names = schema.fields().iter().map(|field| field.name());
    let first = names.find(|name| name.starts_with("one_"));
    let first = rows.column(first.expect("a column of the fit"));
    for (at, part) in rows.integers("part").into_iter().enumerate() {
        assert_eq!(first.is_null(at), part == 1, "{at}");
    }
}

/// A partition whose rows are too few for any evidence.
#[test]
fn partitions_without_evidence_are_left_out_unless_the_pipeline_says_fail() {
    each(|case| {
        if case.alone == 0 {
            return;
        }
        let lake = case.lake("");
        let by = |more: &str| {
            let sql = format!(
                "SELECT *, id % 2 AS part FROM rows WHERE id % 2 = 0 OR t < {}",
                case.alone
            );
            let more = format!("partition_by = \"part\"\n{more}");
            put(&lake, &case.pipeline(&sql, &more));
        };
        by("empty = \"fail\"");
        run(&lake, &[]).fails(1, "`empty = \"skip\"` leaves such partitions out");
        by("");
        run(&lake, &[])
            .succeeds()
            .says("1 model without ")
            .says("left out: part=1");
        let fits = lake.read("fits").integers("part");
        assert!(fits.iter().all(|part| *part == 0));
        assert_fitted(&lake.read(case.assigned));
        let mut done = lake
            .records()
            .into_iter()
            .filter(|record| record["failures"] == json!([]));
        let record = done.next().expect("a record");
        let empty = record["empty"].as_array().map(Vec::len);
        assert_eq!(empty, Some(1), "{record}");
    });
}

/// A run that fails leaves the result of the one before and a record of its own.
#[test]
fn metrics_and_events_say_how_runs_end() {
    each(|case| {
        let lake = case.lake("");
        let files = ["--metrics", "m.prom", "--lineage", "l.json"];
        run(&lake, &files).succeeds();
        let read = |name: &str| lake.text(name);
        let holds = |metric: &str, labels: &str, value: &str| {
            let page = read("m.prom");
            let line = format!("gyre_{metric}{{pipeline=\"walks\"{labels}}} {value}");
            assert!(page.contains(&line), "{line} in {page}");
        };
        let has = |metric: &str, value: &str| holds(metric, "", value);
        has("run_success", "1");
        has("models", "1");
        for (metric, labels, value) in case.metrics {
            holds(metric, labels, value);
        }
        let fits = lake.read("fits").len();
        let page = read("m.prom");
        let line = format!("gyre_table_rows{{pipeline=\"walks\",table=\"fits\"}} {fits}");
        assert!(page.contains(&line), "{line} in {page}");
        let events = || -> Vec<serde_json::Value> {
            let text = read("l.json");
            let lines = text.lines();
            lines
                .map(|line| serde_json::from_str(line).expect("JSON"))
                .collect()
        };
        let first = events();
        assert_eq!(first[0]["eventType"], "START");
        assert_eq!(first[1]["eventType"], "COMPLETE");
        assert_eq!(first[0]["run"]["runId"], first[1]["run"]["runId"]);
        let outputs = first[1]["outputs"].as_array().expect("outputs");
        let is_fits = |output: &&serde_json::Value| {
            output["name"]
                .as_str()
                .is_some_and(|name| name.ends_with("out/fits"))
        };
        let facets = &outputs.iter().find(is_fits).expect("a table")["outputFacets"];
        assert_eq!(facets["outputStatistics"]["rowCount"], fits);
        let size = fs::metadata(lake.path("out/fits/part-0.parquet")).expect("a table");
        assert_eq!(facets["outputStatistics"]["size"], size.len());

        // With nothing to do, the metrics are those of the result in place.
        run(&lake, &files).succeeds();
        has("run_nothing_to_do", "1");
        has("models", "1");

        let (result, n) = (lake.tables_of("out"), lake.records().len());
        let none = format!("{}.sql=SELECT * FROM rows WHERE id > 99", case.section);
        let failures = [(none.as_str(), "gives no rows"), case.nothing];
        for (at, (set, message)) in failures.into_iter().enumerate() {
            run(&lake, &[&files[..], &["--set", set]].concat()).fails(1, message);
            has("run_success", "0");
            assert_eq!(events().last().expect("an event")["eventType"], "FAIL");
            assert!(lake.tables_of("out") == result);
            assert_eq!(lake.records().len(), n + 1 + at);
        }
        for record in lake.records() {
            assert_eq!(record["kind"], case.kind, "{record}");
            assert!(record["seed"].is_u64(), "{record}");
            assert!(record["hashes"].is_object(), "{record}");
        }
    });
}

/// Assigns rows of a query with a pipeline of this case to the model in `out`.
fn assign(lake: &Lake, case: &Case, sql: &str) -> ProgramRun {
    put(lake, &case.pipeline(sql, ""));
    lake.assign(&[])
}

#[test]
fn new_rows_are_assigned_once() {
    each(|case| {
        let lake = case.lake("");
        run(&lake, &[]).succeeds();
        let some = "SELECT * FROM rows WHERE id >= 6";
        assign(&lake, case, some).succeeds();
        let first = lake.tables_of("new");
        assert!(first.contains_key(case.assigned), "{:?}", first.keys());
        assign(&lake, case, some).succeeds().says("Nothing to do");
        assert!(lake.tables_of("new") == first);
        let new = ["assign", "p.toml", "--model", "out", "--output", "new"];
        for threads in ["1", "3"] {
            let forced = ["--force", "--threads", threads];
            lake.gyre(&[&new[..], &forced].concat()).succeeds();
            assert!(lake.tables_of("new") == first, "{threads} threads");
        }

        assign(&lake, case, "SELECT * FROM rows WHERE id > 99").fails(1, "gives no rows");
        let records = lake.records_of("new").into_iter();
        let errors = records.filter(|record| record["outcome"] == "failed");
        let errors: Vec<_> = errors
            .map(|record| record["error"]["kind"].clone())
            .collect();
        assert_eq!(errors, ["input"]);
        assert!(lake.tables_of("new") == first);
        let column = case.column;
        let without = format!("SELECT * EXCLUDE ({column}) FROM rows");
        assign(&lake, case, &without).fails(2, &format!("`{column}`"));
        put(&lake, &case.pipeline(some, ""));
        lake.line("assign p.toml --model out --output out --force")
            .fails(2, "holds the models of a run");
        lake.line("assign p.toml --model nowhere --output other")
            .fails(1, "there is no finished result");
        if case.kind != "counts" {
            lake.gyre(&[&new[..], &["--smoothing", "1"]].concat())
                .fails(2, " have none");
        }
    });
}

#[test]
fn new_rows_of_a_partition_without_a_model_are_a_failure() {
    each(|case| {
        let lake = case.lake("");
        let part = |rows: &str| {
            let sql = format!("SELECT *, id % 2 AS part FROM rows WHERE {rows}");
            case.pipeline(&sql, "partition_by = \"part\"")
        };
        put(&lake, &part("id % 2 = 0"));
        run(&lake, &[]).succeeds();
        let assign = |text: &str| {
            put(&lake, text);
            lake.assign(&[])
        };
        for _ in 0..2 {
            // The result is incomplete, so that it is not up to date.
            let ran = assign(&part("true"));
            ran.fails(1, "part=1");
            let said = "\n1 of 2 models failed: part=1";
            ran.says(said);
        }
        assert_fitted(&lake.read_at(&format!("new/{}", case.assigned)));
        let none = "belongs to a partition that the model at out has";
        assign(&part("id % 2 = 1")).fails(1, none);
        let other = "the columns of partition_by are none in the pipeline";
        assign(&case.pipeline("SELECT * FROM rows", "")).fails(2, other);
    });
}

#[test]
fn a_model_of_another_kind_is_neither_applied_nor_compared() {
    for (a, model) in CASES.iter().enumerate() {
        let lake = model.lake("");
        run(&lake, &[]).succeeds();
        for (b, case) in CASES.iter().enumerate() {
            if a == b {
                continue;
            }
            println!("[{}] {} {}", model.section, model.fit, case.fit);
            let ran = assign(&lake, case, "SELECT * FROM rows");
            let kinds = [
                format!("the pipeline has {}", case.kind),
                format!("was made from {}", model.kind),
            ];
            if model.kind == case.kind {
                let theirs = match model.section {
                    "points" => "points without time",
                    _ => "trajectories",
                };
                ran.fails(2, &format!("was made from {theirs}"));
            } else {
                kinds.iter().for_each(|said| ran.fails(2, said));
            }
            assert!(!lake.path("new").join("current.json").exists());
            if model.kind == case.kind {
                continue;
            }
            let other = format!("job.output={}", lake.path("other").display());
            run(&lake, &["--set", &other, "--force"]).succeeds();
            let message = format!("out has {} and other has {}", model.kind, case.kind);
            lake.line("compare out other").fails(1, &message);
        }
    }
}

#[test]
fn a_result_is_equal_to_itself() {
    each(|case| {
        let lake = case.lake("");
        run(&lake, &[]).succeeds();
        let n = lake.records().len();
        let report = lake.compare(&["out", "out"]);
        let models = report["models"].as_array().map(Vec::len);
        assert_eq!(models, Some(1), "{report}");
        for only in ["only_a", "only_b"] {
            assert_eq!(report[only], json!([]), "{report}");
        }
        assert_eq!(lake.records().len(), n, "comparing writes nothing");
        lake.line("compare out out --fit one=two")
            .fails(2, "has no fit `two`");
        lake.line("compare out out --lag 1=2")
            .fails(2, "--lag: out has no lag `");
        lake.line("compare out nowhere")
            .fails(1, "no output of gyre");
    });
}
