//! The SQL of a pipeline, its keys and its lags: refused SQL, dropped rows, and the names in
//! messages.

use crate::cli::{integers, small_lake, small_pipeline, write_changed};
use crate::lake::{Lake, Swap, TABLES, cases, floats};
use arrow::array::{ArrayRef, StringArray, TimestampSecondArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use std::sync::Arc;

/// Writes the small pipeline with another query.
fn with_sql(lake: &Lake, sql: &str) {
    write_changed(lake, &[("SELECT * FROM rows", sql)], "");
}

#[test]
fn clauses_that_would_be_ignored_are_refused() {
    let lake = Lake::new();
    let table = r#"
        SELECT * FROM rows TABLESAMPLE (10) | the SQL of [transitions] cannot be planned: `TABLESAMPLE (10)` is not supported; a sample of rows would break trajectories into pieces
        SELECT * FROM rows FINAL | `FINAL` is not supported
        SELECT * FROM rows WITH (NOLOCK) | `WITH (NOLOCK)` is not supported
        WITH a AS (SELECT * FROM rows PARTITION (p)) SELECT * FROM a | `PARTITION (p)` is not supported
    "#;
    for [sql, message] in cases(table) {
        with_sql(&lake, &sql);
        for command in ["check", "plan", "explain", "run"] {
            lake.gyre(&[command, "p.toml"]).fails(2, &message);
        }
    }
    // The alternative to a sample that the message proposes keeps whole trajectories.
    let table = r#"
        SELECT * FROM rows WHERE id % 3 = 0 | 199 transitions in 200 rows
        SELECT * FROM rows WHERE ascii(right(CAST(id AS VARCHAR), 1)) % 3 = 0 | 199 transitions in 200 rows
        FROM rows | 597 transitions in 600 rows
    "#;
    for [sql, rows] in cases(table) {
        with_sql(&lake, &sql);
        let ran = lake.runs(&[]);
        assert!(ran.out.contains(&rows), "{sql}: {}", ran.out);
    }
    small_pipeline(&lake);
    let text = lake.text("p.toml");
    let pipeline = format!(
        "{text}\n[[check]]\nname = \"mine\"\nsql = \"SELECT * FROM fits TABLESAMPLE (1)\"\n"
    );
    lake.file("p.toml", &pipeline);
    let expected = "the SQL of check `mine` cannot be planned: `TABLESAMPLE (1)`";
    lake.call("check", &[]).fails(2, expected);
}

#[test]
fn integers_that_do_not_fit_are_an_error() {
    let lake = Lake::new();
    let table = r#"
        SELECT id, t, CAST(state AS TINYINT) * CAST(100 AS TINYINT) AS state FROM rows | does not fit TINYINT; CAST
        SELECT id, t, state + 9223372036854775807 AS state FROM rows | does not fit BIGINT; CAST
        SELECT id, t, sum(9000000000000000000) AS state FROM rows, (VALUES (1), (2)) AS v GROUP BY id, t | a sum does not fit BIGINT
    "#;
    for [sql, message] in cases(table) {
        with_sql(&lake, &sql);
        let ran = lake.run(&[]);
        ran.fails(1, "an integer in the SQL is too large for its type: ");
        ran.fails(1, &message);
    }
    with_sql(&lake, "SELECT id, t, state * 1000 AS state FROM rows");
    lake.runs(&[]);
    let expected = [0, 1000, 2000, 3000, 4000, 5000];
    assert_eq!(lake.read("sources").integers("state"), expected);
}

#[test]
fn long_expressions_end_with_a_message() {
    let lake = Lake::new();
    let many = |one: &str, by: &str, n| vec![one; n].join(by);
    for sql in [
        format!(
            "SELECT * FROM rows WHERE {}",
            many("t >= 0", " AND ", 8_000)
        ),
        format!(
            "SELECT id, t, {} AS state FROM rows",
            many("state", " + ", 50_000)
        ),
        format!(
            "SELECT id, t, {}state{} AS state FROM rows",
            "(".repeat(5_000),
            ")".repeat(5_000)
        ),
    ] {
        with_sql(&lake, &sql);
        for command in ["check", "run"] {
            lake.gyre(&[command, "p.toml"])
                .fails(2, "the SQL of [transitions] cannot be planned: ");
        }
    }
    for sql in [
        format!("SELECT * FROM rows WHERE {}", many("t >= 0", " AND ", 900)),
        format!(
            "SELECT * FROM rows WHERE {}",
            many("t = 7", " OR ", 900) + " OR t >= 0"
        ),
        format!(
            "SELECT id, t, state + {} AS state FROM rows",
            many("0", " + ", 1_900)
        ),
    ] {
        with_sql(&lake, &sql);
        lake.line("run p.toml --threads 2")
            .succeeds()
            .says("597 transitions");
    }
}

#[test]
fn error_messages_use_sql_terms() {
    let lake = Lake::new();
    let mixed = [[1, 0, 0], [1, 1, 1], [2, 0, 0], [2, 1, 1]];
    lake.integers("mixed.parquet", ["Id", "t", "State"], mixed);
    let table = r#"
        SELECT State FROM mixed | there is no column `state`, but there is `State`: write "State" in double quotes
        SELECT nothing FROM rows | there is no column `nothing`; there are `id`, `t`, `state`
        SELECT * FROM row | there is no table `row`; did you mean `rows`?
        SELECT * FROM Mixd | there is no table `mixd`; did you mean `mixed`?
        SELECT list_excep(id) FROM rows | there is no function `list_excep`
        SELECT r.id, t FROM rows AS r JOIN rows AS q ON r.id = q.id | more than one table has a column `t`
        SELECT upper(state) || 1 - 'a' FROM rows | cannot be planned:\s
    "#;
    for [sql, message] in cases(table) {
        with_sql(&lake, &sql);
        let text = lake.text("p.toml");
        let pipeline = format!("{text}\n[tables.mixed]\npath = \"mixed.parquet\"\n");
        lake.file("p.toml", &pipeline);
        let ran = lake.call("check", &[]);
        ran.fails(2, &message);
        for engine in [
            "enable_ident_normalization",
            "datafusion",
            "Utf8",
            "Int64",
            "Schema error",
            "ParserError",
        ] {
            assert!(!ran.err.contains(engine), "{sql}: {}", ran.err);
        }
    }
}

#[test]
fn rows_with_equal_times_are_named_by_every_counting_method() {
    let lake = Lake::new();
    let columns = ["t", "state"];
    lake.integers("rows.parquet", columns, [[0, 0], [1, 1], [1, 0], [2, 1]]);
    lake.integers("later/a.parquet", columns, [[0, 0], [1, 1], [2, 0]]);
    for (path, incremental) in [("rows.parquet", false), ("rows.parquet", true)] {
        for sql in ["SELECT * FROM rows", "SELECT * FROM rows ORDER BY state, t"] {
            lake.file("p.toml", &format!("[job]\nname = \"a\"\noutput = \"out\"\nincremental = {incremental}\n[tables.rows]\npath = \"{path}\"\n[transitions]\nsql = \"{sql}\"\ntime = \"t\"\nstate = \"state\"\nlag = 1\n[[fit]]\nname = \"a\"\nmethod = \"dbmr\"\nrank = 2\n"));
            lake.run(&[]).fails(1, "two rows at t = 1");
        }
    }
    // A later file repeats a time.
    lake.runs_text("[job]\nname = \"a\"\noutput = \"out\"\nincremental = true\n[tables.rows]\npath = \"later/\"\n[transitions]\nsql = \"SELECT * FROM rows\"\ntime = \"t\"\nstate = \"state\"\nlag = 1\n[[fit]]\nname = \"a\"\nmethod = \"dbmr\"\nrank = 2\n");
    lake.integers("later/b.parquet", columns, [[2, 0], [3, 1]]);
    lake.run(&[]).fails(1, "two rows at t = 2");
}

const KEYS: &str = r#"
job = { name = "keys", output = "OUTPUT", incremental = INCREMENTAL }
tables.rows.path = "rows/"
[transitions]
sql = "SQL"
trajectory = "id"
time = "t"
state = "state"
lag = 1
partition_by = "p"
[[fit]]
name = "a"
method = "dbmr"
rank = 2
"#;

/// A NaN key is missing data, as in pandas: it is no trajectory and no partition, for every width
/// of floats and every counting method.
#[test]
fn nan_keys_are_dropped_and_counted() {
    let nan = f64::NAN;
    let ids = [1.0, 1.0, 1.0, nan, nan, nan, 0.0, 2.0, 2.0, 2.0];
    let ids = (0..10).map(|k| (k != 6).then_some(ids[k]));
    let partitions = [5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, nan, nan, 0.0];
    let partitions = (0..10).map(|k| (k != 9).then_some(partitions[k]));
    let times = [0, 1, 2, 0, 1, 2, 0, 0, 1, 2];
    let states = [0, 1, 0, 1, 0, 1, 0, 1, 0, 1];
    let wide = [floats(ids), floats(partitions)];
    for width in [DataType::Float16, DataType::Float32, DataType::Float64] {
        let [id, p] = wide
            .clone()
            .map(|column| cast(&column, &width).expect("floats"));
        assert_eq!(id.data_type(), &width);
        for (at, (sql, incremental, order)) in [
            ("SELECT * FROM rows", false, 1),
            ("SELECT * FROM rows", true, 1),
            // Unsorted rows are gathered.
            ("SELECT * FROM rows", false, -1),
            (
                "SELECT CAST(id AS DOUBLE) AS id, t, state, CAST(p AS REAL) AS p FROM rows",
                false,
                1,
            ),
        ]
        .into_iter()
        .enumerate()
        {
            let lake = Lake::new();
            let mut rows: Vec<usize> = (0..10).collect();
            if order < 0 {
                rows.reverse();
            }
            let take = |column: &ArrayRef| {
                let rows =
                    arrow::array::UInt32Array::from_iter_values(rows.iter().map(|&r| r as u32));
                arrow::compute::take(column, &rows, None).expect("rows")
            };
            let columns = vec![
                ("id", take(&id)),
                ("t", take(&integers(times))),
                ("state", take(&integers(states))),
                ("p", take(&p)),
            ];
            lake.table("rows/a.parquet", columns);
            let text = KEYS
                .swap("OUTPUT", "out")
                .swap("SQL", sql)
                .swap("INCREMENTAL", &incremental.to_string());
            lake.file("p.toml", &text);
            lake.runs(&[]).says("keys: 2 transitions in 10 rows");
            let dropped = &lake.last_record()["rows_dropped"];
            assert_eq!(dropped["NaN partition"], 2, "{width} {at}: {dropped}");
            assert_eq!(dropped["null partition"], 1, "{dropped}");
            assert_eq!(dropped["NaN trajectory"], 3, "{dropped}");
            assert_eq!(dropped["null trajectory"], 1, "{dropped}");
            assert_eq!(lake.read("sources").floats("p"), [5.0, 5.0]);
            lake.assign(&[]).succeeds().says("2 transitions");
            let trajectories = lake.read_at("new/trajectories");
            assert_eq!(trajectories.floats("id"), [1.0]);
        }
    }
}

const TIMED: &str = r#"
job = { name = "timed", output = "OUTPUT" }
tables.rows.path = "timed.parquet"
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
state = "state"
lag = LAGS
[[fit]]
name = "a"
method = "dbmr"
rank = 2
"#;

fn write_timed_pipeline(lake: &Lake, output: &str, lags: &str) {
    let hours = |k: i64| (k % 200) * 3600;
    let t = TimestampSecondArray::from_iter_values((0..600).map(hours));
    let state = |k: i64| 3 * (k / 23 % 2) + (k * k + k / 7) % 3;
    // A file that is written again counts as changed.
    if !lake.path("timed.parquet").exists() {
        lake.table(
            "timed.parquet",
            vec![
                ("id", integers((0..600).map(|k| k / 200))),
                ("t", Arc::new(t)),
                ("state", integers((0..600).map(state))),
            ],
        );
    }
    lake.file("p.toml", &TIMED.swap("OUTPUT", output).swap("LAGS", lags));
}

/// Every spelling of a lag has the same text, the same length in seconds and the same position.
#[test]
fn spellings_of_a_lag_are_equal_and_lags_are_sorted_by_length() {
    let lake = Lake::new();
    let mut outputs = Vec::new();
    for (n, lags) in [
        "['1d', '6h', '1h']",
        "['24h', 'PT1H', '360min']",
        "['3600s', '1 day', '6 hours']",
    ]
    .into_iter()
    .enumerate()
    {
        let output = format!("out{n}");
        write_timed_pipeline(&lake, &output, lags);
        let ran = lake.runs(&[]);
        let shown: Vec<&str> = ran
            .out
            .lines()
            .filter_map(|line| line.strip_prefix("lag ")?.split(':').next())
            .collect();
        assert_eq!(shown, ["1h", "6h", "1d"], "{}", ran.out);
        for table in TABLES {
            let rows = lake.read_at(&format!("{output}/{table}"));
            let (lags, seconds) = (rows.texts("lag"), rows.floats("lag_seconds"));
            let mut order: Vec<String> = lags.clone();
            order.dedup();
            assert_eq!(order, ["1h", "6h", "1d"], "{table}");
            for (lag, seconds) in lags.iter().zip(seconds) {
                let expected = match lag.as_str() {
                    "1h" => 3600.0,
                    "6h" => 21_600.0,
                    _ => 86_400.0,
                };
                assert_eq!(seconds, expected, "{table}");
            }
        }
        outputs.push(lake.bytes(&format!("{output}/counts/part-0.parquet")));
    }
    assert!(outputs.windows(2).all(|two| two[0] == two[1]));
    // Another spelling gives the same plan.
    let spelt = TIMED.swap("OUTPUT", "out0");
    lake.runs_text(&spelt.replace("LAGS", "['1440min', '6h', '60min']"))
        .says("Nothing to do");
    lake.line("compare out0 out1 --lag 60min=PT1H").succeeds();
    lake.line("assign p.toml --model out2 --output new")
        .succeeds();
    let rows = lake.read_at("new/sources");
    assert!(rows.floats("lag_seconds").contains(&86_400.0));
    // Steps have no length in seconds.
    write_timed_pipeline(&lake, "steps", "'2 steps'");
    lake.runs(&[]);
    let rows = lake.read_at("steps/fits");
    assert_eq!(rows.texts("lag"), ["2 steps"]);
    assert!(rows.0.column_by_name("lag_seconds").is_none());
}

/// Older versions kept the spelling of the pipeline file and had no column of seconds.
#[test]
fn results_with_another_spelling_of_a_lag_are_found() {
    let lake = Lake::new();
    write_timed_pipeline(&lake, "old", "'6h'");
    lake.runs(&[]);
    respell(&lake, "old", "360 min");
    write_timed_pipeline(&lake, "new", "'PT6H'");
    let text = lake.text("p.toml");
    lake.runs_text(&format!("{text}\n[names]\nfrom = \"old\"\n"));
    let rows = lake.read_at("new/changes");
    assert_eq!(rows.texts("compared_with"), ["earlier"]);
    assert_eq!(rows.floats("adjusted_rand"), [1.0]);
    lake.line("compare old new").succeeds().says("lag 6h");
    lake.line("compare old new --lag 6h=360min").succeeds();
    lake.line("assign p.toml --model old --output rows")
        .succeeds();
}

/// Rewrites the tables of an output with another text for the lag and without seconds.
fn respell(lake: &Lake, output: &str, lag: &str) {
    let folder = std::fs::canonicalize(lake.path(output)).expect("an output");
    // Nor had they a list of the files.
    std::fs::remove_file(folder.join("current/files.json")).expect("a list");
    for entry in std::fs::read_dir(folder).expect("tables") {
        let path = entry.expect("an entry").path().join("part-0.parquet");
        let Ok(file) = std::fs::File::open(&path) else {
            continue;
        };
        let builder = parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder::try_new(file)
            .expect("a table");
        let metadata = builder
            .metadata()
            .file_metadata()
            .key_value_metadata()
            .cloned();
        let schema = builder.schema().clone();
        let kept: Vec<usize> = (0..schema.fields().len())
            .filter(|&at| schema.field(at).name() != "lag_seconds")
            .collect();
        let own = Arc::new(schema.project(&kept).expect("columns"));
        let properties = parquet::file::properties::WriterProperties::builder()
            .set_key_value_metadata(metadata)
            .build();
        let batches: Vec<_> = builder
            .build()
            .expect("a reader")
            .collect::<Result<_, _>>()
            .expect("rows");
        let target = std::fs::canonicalize(&path).expect("a file");
        let mut writer = parquet::arrow::ArrowWriter::try_new(
            std::fs::File::create(target).expect("a file"),
            own.clone(),
            Some(properties),
        )
        .expect("a writer");
        for batch in batches {
            let batch = batch.project(&kept).expect("columns");
            let columns =
                batch
                    .columns()
                    .iter()
                    .zip(own.fields())
                    .map(|(column, field)| match field.name().as_str() {
                        "lag" => {
                            Arc::new(StringArray::from(vec![lag; batch.num_rows()])) as ArrayRef
                        }
                        _ => Arc::clone(column),
                    });
            let batch =
                arrow::array::RecordBatch::try_new(own.clone(), columns.collect()).expect("rows");
            writer.write(&batch).expect("rows");
        }
        writer.close().expect("a file");
    }
}

/// A list behind IN or = is an error that says how lists are used.
#[test]
fn lists_are_used_by_array_has() {
    let lake = Lake::new();
    write_timed_pipeline(&lake, "out", "'1h'");
    let base = lake.text("p.toml");
    for condition in [
        "id IN ($ids)",
        "id IN $ids",
        "id = $ids",
        "id NOT IN ($ids, 7)",
    ] {
        let sql = format!("SELECT * FROM rows WHERE {condition}");
        let text = base.replace("SELECT * FROM rows", &sql);
        lake.file(
            "p.toml",
            &(text + "\n[transitions.parameters]\nids = [0, 2]\n"),
        );
        let ran = lake.line("check p.toml");
        ran.fails(
            2,
            "a parameter that is a list is used as `array_has($list, x)`",
        );
    }
}

/// Rows are hourly, so no row is 90 minutes later.
#[test]
fn a_lag_between_the_times_of_rows_is_told() {
    let lake = Lake::new();
    write_timed_pipeline(&lake, "out", "'90min'");
    let ran = lake.line("run p.toml");
    ran.fails(1, "no transition was found in 600 rows");
    ran.logs("none of the first 600 rows finds a row exactly \"90min\" later: times mostly differ by \"1h\"; write a multiple of it, such as `lag = \"2h\"`");
}

#[test]
fn parameters_may_be_dates_times_and_lists() {
    let lake = Lake::new();
    write_timed_pipeline(&lake, "out", "'1h'");
    let base = lake.text("p.toml");
    // There are 3 × 200 rows, one per hour from the start of 1970.
    let table = r#"
        SELECT * FROM rows WHERE t >= $day | day = 1970-01-02 | 528
        SELECT * FROM rows WHERE t >= $moment | moment = 1970-01-02T12:00:00 | 492
        SELECT * FROM rows WHERE t >= $moment | moment = 1970-01-02T12:00:00Z | 492
        SELECT * FROM rows WHERE t >= $moment | moment = 1970-01-02T14:00:00+02:00 | 492
        SELECT * FROM rows WHERE CAST(t AS TIME) >= $time | time = 12:00:00 | 288
        SELECT * FROM rows WHERE array_has($ids, id) | ids = [0, 2] | 400
        SELECT * FROM rows WHERE id = ANY($ids) | ids = [1, 2] | 400
        SELECT * FROM rows WHERE array_has($words, CAST(id AS VARCHAR)) | words = ['0', 'x'] | 200
        SELECT * FROM rows WHERE t >= CAST($day AS TIMESTAMP) | day = '1970-01-02' | 528
        SELECT * FROM rows WHERE id < 4 * (SELECT min(v) FROM (VALUES (1 - $share), ($share)) AS w(v)) | share = 0.25 | 200
        SELECT * FROM rows WHERE id < (SELECT max(v) FROM (SELECT 1 AS v UNION ALL VALUES ($n), (0)) AS w) | n = 2 | 400
        SELECT * FROM rows JOIN (VALUES ('0', true), ($word, $flag)) AS w(i, b) ON i = CAST(id AS VARCHAR) AND b | word = '2'\nflag = false | 200
    "#;
    for [sql, parameters, rows] in cases(table) {
        let text = base.replace("SELECT * FROM rows", &sql)
            + &format!("\n[transitions.parameters]\n{parameters}\n");
        lake.file("p.toml", &text);
        lake.runs(&[]).says(&format!("in {rows} rows"));
    }
    let table = r#"
        ids = [] | `transitions.parameters.ids` must be a list of at least one value
        ids = [1, 'a'] | `transitions.parameters.ids` must be a list of values of one type
        ids = 9999-01-01T00:00:00 | `transitions.parameters.ids` is 9999-01-01T00:00:00
    "#;
    for [parameters, message] in cases(table) {
        lake.file(
            "p.toml",
            &(base.clone() + &format!("\n[transitions.parameters]\n{parameters}\n")),
        );
        lake.call("check", &[]).fails(2, &message);
    }
}

/// A date or a time without a zone is local time in the zone of the column that it is compared
/// with, however it is written.
#[test]
fn parameters_of_time_take_the_zone_of_what_they_are_compared_with() {
    let lake = Lake::new();
    // One row per hour from the start of 30 March 2024 in UTC. Berlin is an hour ahead.
    let hours = (0..48).map(|hour| 1_711_756_800 + 3600 * hour);
    let zoned = TimestampSecondArray::from_iter_values(hours).with_timezone("Europe/Berlin");
    let columns: Vec<(&str, ArrayRef)> =
        vec![("t", Arc::new(zoned)), ("a", integers((0..48).map(|_| 1)))];
    lake.table("rows/0.parquet", columns);
    let run = |condition: &str, since: &str| {
        let text = format!(
            "[job]\nname = \"zones\"\noutput = \"out\"\n[tables.rows]\npath = \"rows/\"\n\
             [transitions]\nsql = \"SELECT a AS source, a AS target FROM rows WHERE {condition}\"\n\
             source = \"source\"\ntarget = \"target\"\n[transitions.parameters]\nsince = {since}\n"
        );
        lake.file("p.toml", &text);
        lake.run(&[])
    };
    let rows = |condition: &str, since: &str| {
        run(condition, since).succeeds();
        lake.read("counts").integers("count").iter().sum::<i64>()
    };
    for since in [
        "2024-03-31",
        "'2024-03-31'",
        "2024-03-31T00:00:00",
        "'2024-03-31 00:00:00'",
        "2024-03-31T00:00:00+01:00",
        "2024-03-30T23:00:00Z",
        "'2024-03-30T23:00:00Z'",
    ] {
        assert_eq!(rows("t >= $since", since), 25, "{since}");
    }
    for (condition, expected) in [
        ("$since > t", 23),
        ("t IN ($since)", 1),
        ("t BETWEEN $since AND $since", 1),
        ("(CASE WHEN t >= $since THEN 1 ELSE 0 END) = 1", 25),
        ("a IN (SELECT a FROM rows WHERE t = $since)", 48),
    ] {
        assert_eq!(rows(condition, "2024-03-31"), expected, "{condition}");
    }
    // What is written in the SQL means the same, and so does a value of a larger expression.
    for (condition, expected) in [
        ("t >= '2024-03-31'", 25),
        ("t >= DATE '2024-03-31'", 25),
        ("t >= TIMESTAMP '2024-03-31 00:00:00'", 25),
        ("DATE '2024-03-31' > t", 23),
        ("t IN (DATE '2024-03-31')", 1),
        ("t BETWEEN DATE '2024-03-30' AND DATE '2024-03-31'", 24),
        ("t IS DISTINCT FROM DATE '2024-03-31'", 47),
        ("(CASE t WHEN DATE '2024-03-31' THEN 1 ELSE 0 END) = 1", 1),
        ("t >= (SELECT $since)", 25),
        ("t - $since >= INTERVAL '0 hours'", 25),
        ("t - DATE '2024-03-31' >= INTERVAL '0 hours'", 25),
        ("coalesce(NULL, DATE '2024-03-31', t) <= t", 25),
        ("greatest(t, DATE '2024-03-31') = t", 25),
        ("nullif(t, $since) IS NULL", 1),
        ("CASE WHEN a = 1 THEN DATE '2024-03-31' ELSE t END <= t", 25),
        (
            "EXISTS (SELECT 1 FROM rows b JOIN (SELECT DATE '2024-03-31' AS d) c ON b.t = c.d)",
            48,
        ),
        ("t >= CAST(t AS DATE)", 48),
        ("CAST(t AS DATE) <= t", 48),
        ("CAST(t AS DATE) = DATE '2024-03-31'", 23),
    ] {
        let condition = format!("({condition}) AND $since IS NOT NULL");
        assert_eq!(rows(&condition, "2024-03-31"), expected, "{condition}");
    }
    // A filter of which nothing is known may keep all rows.
    let of_day = "CAST(t AS DATE) = DATE '2024-03-31' AND $since IS NOT NULL";
    run(of_day, "2024-03-31").succeeds();
    lake.call("plan", &[]).succeeds().says("for 48 rows");
    // The default of a window function is a time of its column.
    for default in [
        "$since",
        "DATE '2024-03-01'",
        "TIMESTAMP '2024-03-01 00:00:00'",
        "'2024-03-01'",
        "CAST('2024-03-01' AS DATE)",
    ] {
        for call in ["lag(t, 1,", "lead(t, 47,"] {
            let window = format!("SELECT {call} {default}) OVER (ORDER BY t) AS p FROM rows");
            let condition = format!("(SELECT count(*) FROM ({window}) w WHERE p = $since) > 0");
            assert_eq!(rows(&condition, "2024-03-01"), 48, "{condition}");
        }
    }
    let skipped = "t IN (SELECT lag(t, 1, $since) OVER (ORDER BY t) FROM rows)";
    run(skipped, "2024-03-31T02:30:00").fails(2, "of lag is no time of type");
    let since = "t - $since >= INTERVAL '0 hours'";
    assert_eq!(rows(since, "2024-03-30T23:00:00Z"), 25);
    let midnight = "t IN (SELECT DATE '2024-03-31')";
    run(midnight, "2024-03-31").fails(2, "a subquery after IN holds dates beside times of type");
    let mixed = "t >= (SELECT max(x) FROM (SELECT t AS x FROM rows UNION ALL SELECT $since) u)";
    run(mixed, "2024-03-31").fails(2, "column `x` of a UNION holds dates beside times of type");
    let later = "t >= $since + INTERVAL '1 hour'";
    run(later, "2024-03-31").fails(2, "give the parameter `$since` a zone");
    assert_eq!(rows(later, "2024-03-30T23:00:00Z"), 24);
}

/// A local time that its zone does not have exactly once is an error that names its column.
#[test]
fn local_times_that_clocks_skip_or_show_twice_are_named() {
    let lake = Lake::new();
    // Hours from 00:30 of two days on which clocks in Berlin change.
    let hours = |day: i64| (0..5).map(move |hour| day + 1800 + 3600 * hour);
    let naive = |day| Arc::new(TimestampSecondArray::from_iter_values(hours(day))) as ArrayRef;
    let zoned = TimestampSecondArray::from_iter_values(hours(0)).with_timezone("Europe/Berlin");
    let texts = cast(&naive(1_711_843_200), &DataType::Utf8).expect("texts");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("spring", naive(1_711_843_200)),
        ("autumn", naive(1_729_987_200)),
        ("winter", naive(1_709_251_200)),
        ("text", texts),
        ("t", Arc::new(zoned)),
        ("a", integers((0..5).map(|_| 1))),
    ];
    lake.table("rows/0.parquet", columns);
    let run = |condition: &str| {
        let condition = condition.replace('"', r#"\""#);
        let text = format!(
            "[job]\nname = \"clocks\"\noutput = \"out\"\n[tables.rows]\npath = \"rows/\"\n\
             [transitions]\nsource = \"source\"\ntarget = \"target\"\n\
             sql = \"SELECT a AS source, a AS target FROM rows WHERE {condition}\"\n"
        );
        lake.file("p.toml", &text);
        lake.run(&[])
    };
    let zone = "'Timestamp(s, \"Europe/Berlin\")'";
    let spring = "has the local time 2024-03-31T02:30:00, which clocks in Europe/Berlin skip";
    let autumn = "has the local time 2024-10-27T02:30:00, which clocks in Europe/Berlin skip";
    let (in_spring, in_text) = (
        format!("arrow_cast(spring, {zone}) > t"),
        format!("arrow_cast(text, {zone}) > t"),
    );
    for (condition, what, why) in [
        ("spring > t", "column `spring`", spring),
        ("autumn IS DISTINCT FROM t", "column `autumn`", autumn),
        ("coalesce(autumn, t) > t", "column `autumn`", autumn),
        ("date_trunc('minute', spring) > t", "`date_trunc(", spring),
        (&in_spring, "column `spring`", spring),
        (&in_text, "column `text`", spring),
    ] {
        let ran = run(condition);
        ran.fails(1, why);
        assert!(ran.err.contains(what), "{condition}: {}", ran.err);
    }
    // Other local times are compared as such.
    for (condition, count) in [
        (
            format!("winter >= arrow_cast('2024-03-01 02:30:00', {zone})"),
            3,
        ),
        (
            format!("arrow_cast('2024-03-01 02:30:00', {zone}) > winter"),
            2,
        ),
        (
            format!("arrow_cast(winter, {zone}) = TIMESTAMP '2024-03-01 02:30:00'"),
            1,
        ),
        (
            format!("winter IN (arrow_cast('2024-03-01 02:30:00', {zone}))"),
            1,
        ),
    ] {
        run(&condition).succeeds();
        let counts = lake.read("counts").integers("count");
        assert_eq!(counts, [count], "{condition}");
    }
    for column in ["spring", "autumn", "text"] {
        run(&format!("arrow_try_cast({column}, {zone}) IS NULL")).succeeds();
        assert_eq!(lake.read("counts").integers("count"), [1], "{column}");
    }
}

/// The engine would cast the default to the type of the column.
#[test]
fn defaults_that_a_cast_would_change_are_refused() {
    let lake = small_lake();
    let with_call = |call: &str| {
        let sql = format!("SELECT id, {call} OVER (ORDER BY t) AS t, state FROM rows");
        with_sql(&lake, &sql);
    };
    for (call, message) in [
        (
            "lag(t, 1, 0.5)",
            "the default Float64(0.5) of lag is no Int64",
        ),
        ("lead(t, 1, 1e300)", "of lead is no Int64"),
        ("lag(t, 1, 'x')", "of lag is no Int64"),
    ] {
        with_call(call);
        lake.call("plan", &[]).fails(2, message);
    }
    for call in [
        "lag(t, 1, 7)",
        "lag(t, 1, NULL)",
        "lag(t, 1)",
        "CAST(lag(CAST(t AS DOUBLE), 1, 0.5) OVER (ORDER BY t) AS BIGINT) + lag(t, 1, 0)",
    ] {
        with_call(call);
        lake.call("plan", &[]).succeeds();
    }
}

/// A column has a type that holds the values of all branches, and not that of the first one.
#[test]
fn results_keep_the_values_of_all_branches() {
    let lake = Lake::new();
    let columns = vec![("k", integers(0..6)), ("a", integers([1; 6].into_iter()))];
    lake.table("rows.parquet", columns);
    let run = |columns: &str, keys: &str| {
        let text = format!(
            "[job]\nname = \"types\"\noutput = \"out\"\n[tables.rows]\npath = \"rows.parquet\"\n\
             [transitions]\nsql = \"SELECT {columns} FROM rows\"\n\
             source = \"source\"\ntarget = \"target\"\n{keys}"
        );
        lake.runs_text(&text);
        lake.read("counts")
    };
    let weighted = "a AS source, a AS target, CASE WHEN k < 3 THEN 1 ELSE 0.5 END AS w";
    let counts = run(weighted, "weight = \"w\"\n");
    assert_eq!(counts.floats("count"), [4.5]);
    for (state, expected) in [
        ("CASE WHEN k < 3 THEN 1 ELSE 0.5 END", ["0.5", "1.0"]),
        (
            "CASE WHEN k < 3 THEN a ELSE a + 3000000000 END",
            ["1", "3000000001"],
        ),
        (
            "CASE WHEN k < 3 THEN DATE '2020-01-01' ELSE TIMESTAMP '2020-01-01 12:00:00' END",
            ["2020-01-01T00:00:00", "2020-01-01T12:00:00"],
        ),
        ("CASE WHEN k < 5 THEN 1 ELSE 'x' END", ["1", "x"]),
    ] {
        let states = format!("{state} AS source, {state} AS target");
        let mut found = run(&states, "").texts("source");
        found.sort();
        assert_eq!(found, expected, "{state}");
    }
    let columns = "n AS source, n AS target FROM (SELECT 1 AS n UNION ALL SELECT 0.5) AS u WHERE 0 < n UNION ALL SELECT k, k AS l";
    let found = run(columns, "");
    assert!(found.texts("source").contains(&"0.5".to_string()));
}
