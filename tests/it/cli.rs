//! The command-line program: its output, its error messages and its exit codes.

use crate::lake::{Lake, TABLES, cases, floats, integers_or_null};
use arrow::array::{ArrayRef, Float64Array, Int64Array, StringArray, TimestampSecondArray};
use std::sync::Arc;

pub fn integers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    Arc::new(Int64Array::from_iter_values(values))
}

/// Writes the first `n` rows of three trajectories of 200 rows. States move inside {0, 1, 2} or
/// {3, 4, 5} and rarely change between the two.
pub fn small_rows(lake: &Lake, n: i64) -> &Lake {
    let state = |k: i64| 3 * (k / 23 % 2) + (k * k + k / 7) % 3;
    let rows = (0..n).map(|k| [k / 200, k % 200, state(k)]);
    lake.integers("rows.parquet", ["id", "t", "state"], rows)
}

/// A lake with the small pipeline and its rows.
pub fn small_lake() -> Lake {
    let lake = Lake::new();
    small_pipeline(&lake);
    lake
}

pub fn small_pipeline(lake: &Lake) -> &Lake {
    small_rows(lake, 600).file("p.toml", SMALL)
}

const SMALL: &str = r#"
[job]
name = "small"
output = "${OUT:-out}"

[tables.rows]
path = "rows.parquet"

[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
state = "state"
lag = 1

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
restarts = 20

[[fit]]
name = "svd"
method = "svd"
rank = 2
"#;

/// Writes the small pipeline after some replacements in its text, and with more at its end. Writes
/// its rows, unless there are some.
#[track_caller]
pub fn write_changed(lake: &Lake, changes: &[(&str, &str)], more: &str) {
    if !lake.path("rows.parquet").exists() {
        small_rows(lake, 600);
    }
    let mut text = SMALL.to_string();
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    lake.file("p.toml", &format!("{text}\n{more}"));
}

#[test]
fn help_and_schema_match_their_snapshots() {
    let lake = Lake::new();
    let mut text = String::new();
    // The features add commands, which the first snapshot includes.
    let of_features: &[&[&str]] = if cfg!(all(feature = "cluster", feature = "report")) {
        &[
            &["inspect", "--help"],
            &["report", "--help"],
            &["scheduler", "--help"],
            &["executor", "--help"],
            &["cluster", "up", "--help"],
        ]
    } else {
        &[]
    };
    let common: &[&[&str]] = &[
        &["--help"],
        &["run", "--help"],
        &["assign", "--help"],
        &["check", "--help"],
        &["plan", "--help"],
        &["explain", "--help"],
        &["compare", "--help"],
        &["restore", "--help"],
        &["clean", "--help"],
    ];
    for command in common.iter().chain(of_features) {
        text += &format!(
            "$ gyre {}\n{}\n",
            command.join(" "),
            lake.gyre(command).succeeds().out
        );
    }
    // Builds with one of two features have the texts of one of these two.
    if cfg!(all(feature = "cluster", feature = "report")) {
        insta::assert_snapshot!("help_with_features", text);
    } else if cfg!(not(any(feature = "cluster", feature = "report"))) {
        insta::assert_snapshot!("help", text);
    }
    insta::assert_snapshot!("schema", lake.line("schema").succeeds().out);
    lake.line("completions bash").succeeds().says("_gyre()");
    lake.line("man").succeeds().says(".TH gyre 1");
    assert_eq!(lake.line("rum").code, Some(2));
}

#[test]
fn a_run_writes_its_tables() {
    let lake = Lake::new();
    let ran = small_pipeline(&lake).runs(&[]);
    ran.says("small: 597 transitions in 600 rows");
    assert_eq!(ran.err, "");
    let mut columns = String::new();
    for table in TABLES {
        assert_eq!(lake.bytes(&format!("out/{table}/_SUCCESS")), b"");
        let rows = lake.read(table);
        columns += &format!("{table}\n");
        for field in rows.0.schema().fields() {
            columns += &format!(
                "  {} {}{}\n",
                field.name(),
                field.data_type(),
                if field.is_nullable() { " null" } else { "" }
            );
        }
    }
    insta::assert_snapshot!("tables", columns);
    let others = [".lock", "current", "current.json", "runs", "versions"];
    let expected = TABLES.into_iter().chain(others).map(String::from);
    assert_eq!(lake.names("out"), expected.collect());
    lake.gyre(&[
        "run",
        "p.toml",
        "--seed",
        "5",
        "--set",
        "fit.dbmr.rank=[2, 3]",
    ])
    .succeeds();
    let wanted = ["dbmr_r2", "dbmr_r3", "svd"];
    assert_eq!(lake.read("fits").texts("fit"), wanted);
}

#[test]
fn fits_are_right_on_a_small_chain() {
    let lake = Lake::new();
    small_pipeline(&lake).runs(&[]);
    let sources = lake.read("sources");
    for fit in ["dbmr", "svd"] {
        let sets = sources.integers(&format!("{fit}_affiliation"));
        let expected = [sets[1], sets[2], sets[4], sets[5]];
        assert_eq!([sets[0], sets[0], sets[3], sets[3]], expected, "{fit}");
        assert_ne!(sets[0], sets[3]);
    }
    let fits = lake.read("fits");
    for (ll, reference) in fits
        .floats("log_likelihood")
        .iter()
        .zip(fits.floats("reference_log_likelihood"))
    {
        assert!(*ll < reference);
    }
    let errors = fits.floats("frobenius_error").into_iter();
    assert!(errors.zip(fits.floats("bound")).all(|(e, b)| e <= b));
    let latent = lake.read("latent");
    let sum: f64 = latent.floats("probability").iter().sum();
    assert!(
        (sum - 4.0).abs() < 1e-12,
        "two fits of two latent states: {sum}"
    );
    let counts: i64 = lake.read("counts").integers("count").iter().sum();
    assert_eq!(counts, 597);
    let spectrum = lake.read("spectrum");
    assert!((spectrum.floats("singular_value")[0] - 1.0).abs() < 1e-12);
}

#[test]
fn check_plan_and_explain_run_nothing() {
    let lake = small_lake();
    lake.call("check", &[])
        .succeeds()
        .prints("p.toml is valid: 1 table, 2 fits per model\n");
    let plan = lake.call("plan", &[]).succeeds().out;
    let rows = "trajectories by id in the order of t: states state; lag 1 (sliding)";
    assert!(plan.contains(rows), "{plan}");
    let json = lake.line("plan p.toml --json").succeeds().json();
    assert_eq!(json["fit"][0]["parameters"]["restarts"], 20);
    assert_eq!(json["read"][0]["files"], 1);
    let explained = lake.call(
        "explain",
        &[
            "transitions.sql=SELECT * FROM rows WHERE id < $top",
            "transitions.parameters.top=2",
        ],
    );
    let explained = explained.succeeds().out;
    assert!(
        explained.contains("$top = 2")
            && explained.contains("DataSourceExec")
            && explained.contains("id < 2")
            || explained.contains("id@0 < 2"),
        "{explained}"
    );
    assert!(!lake.path("out").exists());
}

#[test]
fn a_missing_pipeline_is_one_json_line() {
    let lake = Lake::new();
    let ran = lake.line("run gone.toml --log-format json");
    let event: serde_json::Value = serde_json::from_str(&ran.err).expect("one JSON line");
    assert_eq!((ran.code, &event["kind"]), (Some(2), &"Spec".into()));
}

/// Each mistake in the pipeline or the data gives one sentence that names the culprit, the right
/// exit code and no output.
#[test]
fn error_messages_name_the_mistake() {
    let lake = small_lake();
    let nan = Float64Array::from(vec![0.5, f64::NAN, 1.5, 9.0]);
    lake.table(
        "points.parquet",
        vec![("t", integers(0..4)), ("x", Arc::new(nan))],
    );
    let columns = ["id", "t", "state"];
    let one = [[1, 0, 7], [1, 1, 7], [1, 2, 7]];
    lake.integers("one.parquet", columns, one);
    let twice = [[1, 0, 1], [1, 1, 2], [4, 5, 3], [4, 5, 4]];
    lake.integers("twice.parquet", columns, twice);
    lake.integers("empty.parquet", columns, []);
    lake.file("text.parquet", "this is no Parquet");
    let whole = lake.bytes("rows.parquet");
    std::fs::write(lake.path("truncated.parquet"), &whole[..whole.len() / 2])
        .expect("half a table");
    lake.file("folder", "a file where a folder should be");
    // Replacements in the small pipeline, the exit code and the message.
    let table = r#"
        lag = 1 => lagg = 1 | 2 | p.toml:14: unknown key `transitions.lagg`; did you mean `lag`?
        rows.parquet => gone.parquet | 1 | table `rows`: no file or folder at gone.parquet
        rows.parquet => truncated.parquet | 1 | truncated.parquet is not a readable parquet file
        rows.parquet => text.parquet | 1 | text.parquet is not a readable parquet file
        rows.parquet => empty.parquet | 1 | the SQL of [transitions] gives no rows
        FROM rows => FROM row | 2 | p.toml: the SQL of [transitions] cannot be planned
        SELECT * => DROP TABLE rows; SELECT * | 2 | p.toml: the SQL of [transitions] cannot be planned
        state = "state" => state = "stat" | 2 | `transitions.state` names the column `stat`, which the SQL does not give; did you mean `state`?
        SELECT * => SELECT id, state, CAST(t AS VARCHAR) AS t | 2 | `transitions.time` names the column `t`, which is Utf8
        SELECT * => SELECT id, state, CAST(t AS DOUBLE) AS t | 2 | lag 1 wants exact time differences, but `t` is Float64
        lag = 1 => lag = "1d" | 2 | lag 1d is a duration, but `t` is Int64
        lag = 1 => lag = 500 | 1 | no transition was found in 600 rows
        rank = 2 => rank = 7 | 1 | fit `dbmr`: rank 7 is larger than the number of states (6 sources, 6 targets)
        rows.parquet => one.parquet | 1 | rank 2 is larger than the number of states (1 source, 1 target)
        rows.parquet => twice.parquet | 1 | trajectory 4 has two rows at t = 5
        SELECT * => SELECT id, t, state AS count && "state" => "count" | 2 | count
        rows.parquet => points.parquet && trajectory = "id" => # && state = "state" => # && lag = 1 => lag = 1\n[transitions.bins]\nx = { bounds = [0, 2], boxes = 2, outside = "error" } | 1 | `x` = 9 lies outside its bounds [0, 2]
        SELECT * => SELECT *, id AS method && lag = 1 => lag = 1\npartition_by = "method" | 2 | the table `fits` would have two columns `method`
        ${OUT:-out} => folder/out | 2 | folder is not a folder
        [[fit]] => [[fit]]\nname = "given"\nmethod = "given"\naffiliation = "t"\n\n[[fit]] | 1 | the given partition `t` puts state
    "#;
    for [changes, code, message] in cases(table) {
        let changes = changes.split(" && ");
        let changes = changes.map(|change| change.split_once(" => ").expect("a change"));
        write_changed(&lake, &changes.collect::<Vec<_>>(), "");
        lake.run(&[]).fails(code.parse().expect("a code"), &message);
        let remaining =
            ["current.json", "versions"].map(|name| lake.path("out").join(name).exists());
        assert_eq!(remaining, [false; 2], "{message} left an output");
    }
    write_changed(&lake, &[], "");
    lake.line("run gone.toml").fails(2, "gone.toml");
    lake.run(&["fit.dbmr.rank=zero"])
        .fails(2, "--set fit.dbmr.rank");
}

#[test]
fn rows_without_a_state_are_counted_by_reason() {
    let lake = Lake::new();
    let x = [0.5, 1.5, f64::NAN, 0.5, 2.0, 9.0, 7.0, 1.0, 0.1];
    let x = (0..9).map(|k| (k != 5).then_some(x[k]));
    let t = integers_or_null((0..9).map(|k| (k != 7).then_some(k)));
    lake.table("points.parquet", vec![("t", t), ("x", floats(x))]);
    write_changed(
        &lake,
        &[
            ("rows.parquet", "points.parquet"),
            ("trajectory = \"id\"\n", ""),
            ("state = \"state\"\n", ""),
            (
                "lag = 1",
                "lag = 1\n[transitions.bins]\nx = { bounds = [0, 2], boxes = 2 }",
            ),
            ("rank = 2", "rank = 1"),
            ("rank = 2", "rank = 1"),
        ],
        "",
    );
    let ran = lake.runs(&[]);
    for reason in [
        "1 dropped: NaN coordinate",
        "1 dropped: null coordinate",
        "1 dropped: outside the bins",
        "1 dropped: null time",
    ] {
        ran.says(reason);
    }
    // The pairs at lag 1 with both ends in a box are 0.5 → 1.5 and 0.5 → 2.0. The last box includes
    // 2.0.
    let counts = lake.read("counts");
    assert_eq!(counts.floats("source_x"), [0.5]);
    assert_eq!(counts.floats("target_x"), [1.5]);
    assert_eq!(counts.integers("count"), [2]);
}

#[test]
fn lags_are_durations_on_timestamps_and_steps_on_rows() {
    let lake = small_lake();
    // Days 0 1 2 4: there are two pairs at each of the lags 1d, 2d and 2 steps.
    let days = TimestampSecondArray::from(vec![0, 86_400, 172_800, 345_600]);
    let state = StringArray::from(vec!["a", "b", "c", "d"]);
    lake.table(
        "rows.parquet",
        vec![
            ("id", integers([1; 4])),
            ("t", Arc::new(days)),
            ("state", Arc::new(state)),
        ],
    );
    write_changed(
        &lake,
        &[
            ("lag = 1", "lag = [\"2d\", \"1d\", \"2 steps\"]"),
            ("rank = 2", "rank = 1"),
            ("rank = 2", "rank = 1"),
        ],
        "",
    );
    lake.runs(&[]);
    let counts = lake.read("counts");
    let rows: Vec<String> = (0..counts.len())
        .map(|at| {
            format!(
                "{} {}{}",
                counts.texts("lag")[at],
                counts.texts("source_state")[at],
                counts.texts("target_state")[at]
            )
        })
        .collect();
    let expected = "2 steps ac, 2 steps bd, 1d ab, 1d bc, 2d ac, 2d cd";
    assert_eq!(rows.join(", "), expected);
}

#[test]
fn a_partition_given_by_the_user_is_scored() {
    let lake = Lake::new();
    write_changed(
        &lake,
        &[
            (
                "SELECT *",
                "SELECT *, CASE WHEN state < 3 THEN 'low' ELSE 'high' END AS side",
            ),
            (
                "[[fit]]",
                "[[fit]]\nname = \"side\"\nmethod = \"given\"\naffiliation = \"side\"\n\n[[fit]]",
            ),
        ],
        "",
    );
    lake.runs(&[]);
    // The sets are the labels in descending order of rows: high, low.
    let expected = [1, 1, 1, 0, 0, 0];
    assert_eq!(lake.read("sources").integers("side_affiliation"), expected);
    let fits = lake.read("fits");
    let ll = fits.floats("log_likelihood");
    assert_eq!(fits.texts("fit"), ["dbmr", "side", "svd"]);
    assert!(
        (ll[0] - ll[1]).abs() < 1e-9 * ll[0].abs(),
        "DBMR finds the sides: {ll:?}"
    );
}
