//! Checks: limits and SQL queries that a result must pass before it becomes the current one.

use crate::cli::{small_pipeline, small_rows, write_changed};
use crate::lake::{Lake, cases};
use serde_json::Value;

#[test]
fn a_failed_check_keeps_the_earlier_result() {
    let lake = Lake::new();
    small_pipeline(&lake).runs(&[]);
    let before = (lake.tables(), lake.record());
    write_changed(
        &lake,
        &[],
        r#"
[checks]
min_rows = 1000
[[check]]
name = "pairs"
sql = "SELECT s.state, r.n FROM sources s JOIN (SELECT state, count(*) AS n FROM rows GROUP BY state) r USING (state) WHERE r.n > $most ORDER BY s.state"
parameters = { most = 20 }
[[check]]
name = "certain"
sql = "SELECT * FROM certificates WHERE NOT holds"
"#,
    );
    lake.call("check", &[])
        .succeeds()
        .prints("p.toml is valid: 1 table, 2 fits per model, 3 checks\n");
    let ran = lake.run(&[]);
    ran.fails(
        3,
        "error: 2 of 3 checks failed, and the output stays as it was
  min_rows: 600 rows were read, fewer than 1,000
  pairs: 6 rows where there should be none
    state=0, n=",
    );
    ran.logs("    … and 1 more\n");
    assert_eq!(ran.out, "");
    assert!((lake.tables(), lake.record()) == before);
    assert!(!lake.path("out/.staging").exists());
    // The failed run does not count as a result, so the next run repeats it.
    assert_eq!(lake.run(&[]).code, Some(3));

    // With `on = "warn"` the result is written, and the run prints the warnings.
    let warn = [
        "checks.min_rows={value=1000, on=\"warn\"}",
        "check.pairs.on=warn",
    ];
    let ran = lake.runs(&warn);
    let summary = "checks: 1 passed, 2 warned: min_rows, pairs\n";
    ran.says(summary);
    for once in [
        "min_rows: 600 rows were read, fewer than 1,000",
        "pairs: 6 rows",
    ] {
        assert_eq!(
            (ran.err.matches(once).count(), ran.out.matches(once).count()),
            (1, 0)
        );
    }
    let record = lake.record();
    assert_ne!(record, before.1);
    let of = |key: &str| -> Vec<Value> {
        let checks = record["checks"].as_array().expect("checks").iter();
        checks.map(|check| check[key].clone()).collect()
    };
    assert_eq!(of("name"), ["min_rows", "pairs", "certain"]);
    assert_eq!(of("kind"), ["min_rows", "sql", "sql"]);
    assert_eq!(of("on"), ["warn", "warn", "fail"]);
    assert_eq!(of("passed"), [false, false, true]);
    assert_eq!(of("value"), [600.0, 6.0, 0.0]);
    assert_eq!(of("limit"), [1000.0, 0.0, 0.0]);
    assert_eq!(of("rows")[1].as_array().map(Vec::len), Some(5));
    lake.runs(&warn).prints("Nothing to do.\n");
}

#[test]
fn drift_is_measured_against_the_current_result() {
    let lake = Lake::new();
    write_changed(&lake, &[], "[checks]\nmax_drift = 0.2\n");
    lake.runs(&[]).says("checks: 1 passed\n");
    assert_eq!(lake.record()["checks"][0]["value"], Value::Null);
    // A third of the trajectories is missing: 398 transitions instead of 597.
    small_rows(&lake, 400);
    let message = "max_drift: the number of transitions differs by 33.33 % from the result in place, more than 20 %";
    lake.run(&[]).fails(3, message);
    lake.runs(&["checks.max_drift=0.34"]);
    let drift = lake.record()["checks"][0]["value"]
        .as_f64()
        .expect("a drift");
    assert!((drift - 199.0 / 597.0).abs() < 1e-12, "{drift}");
    lake.runs(&[]);
}

#[test]
fn partitions_and_dropped_rows_are_checked() {
    let lake = Lake::new();
    write_changed(
        &lake,
        &[],
        "[checks]\nmax_dropped = 0.1\npartitions = [0, 1, 2]\n",
    );
    let text = lake.text("p.toml");
    let text = text
        .replace(
            "SELECT *",
            "SELECT id, t, CASE WHEN t % 8 > 0 THEN state END AS state, id AS part",
        )
        .replace("lag = 1", "lag = [1, 2]\npartition_by = \"part\"");
    lake.file("p.toml", &text);
    let ran = lake.run(&[]);
    ran.fails(3, "1 of 2 checks failed");
    let message = "max_dropped: 12.50 % of the rows were dropped, more than 10 %";
    ran.fails(3, message);
    let more = text.replace("[0, 1, 2]", "[1, 7, 8]");
    lake.file("p.toml", &more.replace("0.1", "0.125"));
    lake.run(&[]).fails(
        3,
        "partitions: 4 expected models are missing
    part=7, lag 1
    part=7, lag 2
    part=8, lag 1
    part=8, lag 2\n",
    );
    // The run leaves its record and no other file.
    assert!(!lake.path("out/current.json").exists() && !lake.path("out/versions").exists());
    lake.file("p.toml", &text.replace("[0, 1, 2]", "[\"A\"]"));
    let message = "p.toml: `checks.partitions` has \"A\" for the column `part`, which is Int64";
    lake.call("check", &[]).fails(2, message);
    lake.runs_text(&text.replace("0.1", "0.125"));
}

/// Errors in the SQL of a check are reported before the run reads any input.
#[test]
fn the_sql_of_checks_is_planned_before_the_run() {
    let lake = Lake::new();
    let check = |from: &str| {
        write_changed(&lake, &[], &format!("[[check]]\nname = \"mine\"\n{from}\n"));
    };
    let table = r#"
        SELECT * FROM ranks | p.toml: the SQL of check `mine` cannot be planned: there is no table `ranks`
        SELECT affiliation FROM sources | cannot be planned: there is no column `affiliation`
        SELECT * FROM sources WHERE count > $n | check `mine`
        DROP TABLE sources | the SQL of check `mine` cannot be planned
        INSERT INTO rows SELECT 1, 2, 3 | the SQL of check `mine` cannot be planned
    "#;
    for [sql, message] in cases(table) {
        check(&format!("sql = \"{sql}\""));
        for command in ["check", "plan", "run"] {
            lake.call(command, &[]).fails(2, &message);
        }
    }
    check("file = \"gone.sql\"");
    lake.call("check", &[])
        .fails(2, "SQL file gone.sql cannot be read");
    check("sql = \"SELECT 1 FROM counts WHERE false\"");
    let text = lake.text("p.toml");
    let renamed = text.replace("tables.rows]", "tables.counts]");
    lake.file("p.toml", &renamed.replace("FROM rows", "FROM counts"));
    let message = "the input table `counts` has the name of an output table";
    lake.call("check", &[]).fails(2, message);
    let plan = "  check  no rows of `mine` (warns)\n";
    lake.file("p.toml", &format!("{text}on = \"warn\"\n"));
    let shown = lake.call("plan", &[]).succeeds().out;
    assert!(shown.contains(plan), "{shown}");
    lake.file("mine.sql", "SELECT 1 / (count - count) FROM counts");
    check("file = \"mine.sql\"");
    lake.run(&[]).fails(1, "check `mine` cannot be made: ");
    assert!(!lake.path("out/.staging").exists());
}
