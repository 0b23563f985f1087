//! The parsing of pipeline files, and the messages for errors in them.

use crate::lake::{Swap, cases, words};
use gyre::assess::ranks::Rule;
use gyre::error::{Kind, Result};
use gyre::evidence::lag::Lag;
use gyre::methods::Method;
use gyre::methods::dbmr::params::Init;
use gyre::plan::pipeline::argument::Argument;
use gyre::plan::pipeline::fits::FitEntry;
use gyre::plan::pipeline::keys::Window;
use gyre::plan::pipeline::{Input, PairMeasure, Pipeline, json_schema};
use gyre::read::lake::files::Query;
use gyre::read::rows::bins::Binning;
use gyre::store::parameter::Parameter;

const OCEAN: &str = r#"[job]
name = "ocean"
output = "${OUT:-out}/ocean"

[tables.tracks]
path = "lake/tracks/"

[transitions]
sql = "SELECT * FROM tracks WHERE depth < $depth"
trajectory = "drifter"
time = "time"
lag = ["5d", "10d"]
partition_by = ["basin"]
[transitions.parameters]
depth = 10
[transitions.bins]
lon = { step = 0.5, periodic = [-180, 180] }
lat = { bounds = [-90, 90], boxes = 360, outside = "drop" }
depth = { step = 10 }

[[fit]]
name = "dbmr"
method = "dbmr"
rank = [3, 5]

[[fit]]
name = "regions"
method = "given"
affiliation = "region"
"#;

const PAIRS: &str = r#"[job]
name = "words"
output = "out"

[transitions]
file = "sql/pairs.sql"
source = "word"
target = ["next"]
count = "n"

[[fit]]
name = "svd"
method = "svd"
rank = 8
"#;

pub fn parse(text: &str, sets: &[&str]) -> Result<Pipeline> {
    let sets: Vec<String> = sets.iter().map(|s| s.to_string()).collect();
    let environment = |name: &str| match name {
        "BASE" => Some("s3://lake".to_string()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    Pipeline::parse(text, "x.toml", &sets, &environment)
}

/// Asserts that a pipeline with assignments is refused, and a part of the message.
#[track_caller]
pub fn refused(text: &str, sets: &[&str], expected: &str) {
    let error = parse(text, sets).expect_err("an error");
    assert_eq!(error.kind(), Kind::Spec);
    let shown = error.to_string();
    assert!(shown.contains(expected), "{expected:?} is not in:\n{shown}");
}

/// As `refused`. Each row contains assignments (`;` separates them) and the expected message.
#[track_caller]
pub fn refused_all(text: &str, rows: &str) {
    for row in rows.lines().filter(|row| !row.is_empty()) {
        let (sets, expected) = row.split_once(" | ").expect("two parts");
        let sets = sets.split(" ; ").filter(|set| !set.is_empty());
        refused(text, &sets.collect::<Vec<_>>(), expected);
    }
}

/// Each row contains the number of a line of a valid file, its replacement (`\n` starts a line),
/// and the expected message without the name of the file.
#[track_caller]
fn check(text: &str, rows: &str) {
    for row in rows.lines().filter(|r| !r.is_empty()) {
        let [line, replacement, expected] = row.splitn(3, " | ").collect::<Vec<_>>()[..] else {
            panic!("{row:?} has three parts");
        };
        let line: usize = line.parse().expect("a number");
        let replacement = replacement.replace("\\n", "\n");
        let mut lines: Vec<&str> = text.lines().collect();
        lines[line - 1] = &replacement;
        check_text(&lines.join("\n"), &format!("x.toml:{expected}"));
    }
}

#[track_caller]
fn check_text(text: &str, expected: &str) {
    let error = parse(text, &[]).expect_err("an error");
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.kind(), Kind::Spec);
}

/// Each row contains an assignment and the expected message.
#[track_caller]
fn check_sets(rows: &str) {
    for row in rows.lines().filter(|row| !row.is_empty()) {
        let (set, expected) = row.split_once(" | ").expect("two parts");
        let error = parse(OCEAN, &[set]).expect_err("an error");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn variables_stand_for_numbers_and_booleans() {
    let text = r#"
[job]
name = "${NAME:-7}"
output = "${OUT:-2024}"
seed = "${SEED:-3}"
incremental = "${INCREMENTAL:-true}"
keep = "1${KEEP}"

[tables.a]
path = "${PATHS:-5}"

[transitions]
sql = "SELECT * FROM a"
trajectory = "${ID:-1}"
time = "t"
state = "s"
lag = ["${LAG:-5}", "${LONGER:-10}"]
connected = "${CONNECTED}"
partition_by = []
parameters = { n = "${SEED:-3}", day = 2024-05-01, ids = [1, 2], words = ["a", "${NAME:-7}"] }

[transitions.bins]
x = { step = "${STEP:-0.5}", periodic = ["${LOW:--180}", 180] }

[[fit]]
name = "a"
method = "dbmr"
rank = "${RANK:-3}"

[[fit]]
name = "b"
method = "svd"
rank = ["${RANK:-3}", 5]

[checks]
max_dropped = "${SHARE:-0.1}"
"#;
    let environment = |name: &str| match name {
        "CONNECTED" => Some("false".to_string()),
        "KEEP" => Some("2".to_string()),
        _ => None,
    };
    let pipeline = Pipeline::parse(text, "p.toml", &[], &environment).expect("a pipeline");
    // What is a name or a path stays text.
    let job = &pipeline.job;
    assert_eq!((job.name.as_str(), job.output.as_str()), ("7", "2024"));
    assert_eq!((job.seed, job.incremental, job.keep), (3, true, 12));
    assert_eq!(pipeline.tables["a"].path, ["5"]);
    assert!(pipeline.transitions.partition_by.is_empty());
    let Input::Trajectories {
        trajectory, lags, ..
    } = &pipeline.transitions.input
    else {
        panic!("pairs");
    };
    assert_eq!(trajectory.as_slice(), ["1"]);
    assert_eq!(lags.as_slice(), [Lag::Ticks(5), Lag::Ticks(10)]);
    let one = |text: &str| Argument::One(Parameter::String(text.into()));
    let number = |n| Argument::One(Parameter::Integer(n));
    let parameters = &pipeline.transitions.parameters;
    assert_eq!(parameters["n"], one("3"));
    let moment = "2024-05-01".into();
    assert_eq!(parameters["day"], Argument::Moment { moment });
    let ids = Argument::List(vec![number(1), number(2)]);
    assert_eq!(parameters["ids"], ids);
    let words = Argument::List(vec![one("a"), one("7")]);
    assert_eq!(parameters["words"], words);
    let ranks: Vec<_> = pipeline
        .fits
        .iter()
        .map(|fit| serde_json::to_value(fit).expect("JSON"))
        .collect();
    assert!(ranks[0].to_string().contains("3"), "{}", ranks[0]);
}

#[test]
fn a_variable_that_is_no_number_is_named_and_not_shown() {
    let base = "[job]\nname = 'a'\noutput = 'o'\n{job}\n[tables.a]\npath = 'x'\n[transitions]\nsql = 'SELECT 1'\ntime = 't'\nstate = 's'\n{rows}\n[[fit]]\nname = 'a'\nmethod = 'dbmr'\n{fit}\n";
    let environment = |name: &str| match name {
        "SECRET" => Some("hunter2".to_string()),
        "NEGATIVE" => Some("-4".to_string()),
        _ => None,
    };
    let table = r#"
        seed = '${SECRET}' | lag = 1 | rank = 2 | p.toml:4: `job.seed` must be a whole number that is not negative, which the value of `${SECRET}` is not
        seed = '${NEGATIVE}' | lag = 1 | rank = 2 | p.toml:4: `job.seed` must be a whole number that is not negative, which the value of `${NEGATIVE}` is not
        incremental = '${SECRET:-true}' | lag = 1 | rank = 2 | p.toml:4: `job.incremental` must be a boolean, which the value of `${SECRET}` is not
         | lag = '${SECRET}' | rank = 2 | which the value of `${SECRET}` is not
         | lag = 1\nconnected = 'x${SECRET}' | rank = 2 | `transitions.connected` must be a boolean, which the value of `${SECRET}` is not
         | lag = 1 | rank = '${SECRET}' | `fit.a.rank` must be a whole number, a list of them, or "auto", which the value of `${SECRET}` is not
        seed = '3' | lag = 1 | rank = 2 | p.toml:4: `job.seed` must be a whole number that is not negative, not "3"
    "#;
    for [job, rows, fit, expected] in cases(table) {
        let text = base
            .replace("{job}", &job)
            .replace("{rows}", &rows)
            .replace("{fit}", &fit);
        let e = Pipeline::parse(&text, "p.toml", &[], &environment)
            .expect_err(&expected)
            .to_string();
        assert!(e.contains(&expected), "{e}\n{expected}");
        assert!(!e.contains("hunter2"), "{e}");
    }
}

#[test]
fn a_whole_file_is_read() {
    let pipeline = parse(OCEAN, &[]).expect("a valid file");
    assert_eq!(pipeline.job.output.as_str(), "out/ocean");
    assert_eq!(pipeline.job.seed, 0);
    assert_eq!(pipeline.tables["tracks"].path, ["lake/tracks/"]);
    let ten = Argument::One(Parameter::Integer(10));
    assert_eq!(pipeline.transitions.parameters["depth"], ten);
    assert_eq!(pipeline.transitions.partition_by, ["basin"]);
    let Input::Trajectories {
        trajectory,
        state,
        bins,
        lags,
        window,
        ..
    } = pipeline.transitions.input
    else {
        panic!("trajectories");
    };
    assert_eq!(trajectory, ["drifter"]);
    assert!(state.is_empty());
    assert_eq!(window, Window::Sliding);
    let shown: Vec<String> = lags.iter().map(Lag::to_string).collect();
    assert_eq!(shown, ["5d", "10d"]);
    let columns: Vec<&str> = bins.iter().map(|(c, _)| c.as_str()).collect();
    assert_eq!(columns, ["lon", "lat", "depth"], "in the order of the file");
    let (low, high, boxes) = (-180.0, 180.0, 720);
    assert_eq!(bins[0].1, Binning::Periodic { low, high, boxes });
    let names: Vec<_> = pipeline.fits.iter().flat_map(FitEntry::expanded).collect();
    let named = |rank, name: &str| (rank, name.to_string());
    assert_eq!(names[0], named(Some(3), "dbmr_r3"));
    assert_eq!(names[1], named(Some(5), "dbmr_r5"));
    assert_eq!(names[2..], [named(None, "regions")]);
    let Method::Dbmr(dbmr) = &pipeline.fits[0].method else {
        panic!("dbmr");
    };
    assert_eq!((dbmr.restarts, dbmr.init), (10, Init::Kl));
    assert!(dbmr.polish);
}

#[test]
fn pairs_are_read() {
    let pipeline = parse(PAIRS, &[]).expect("a valid file");
    let file = Query::File("sql/pairs.sql".into());
    assert_eq!(pipeline.transitions.query, file);
    let pairs = Input::Pairs {
        source: vec!["word".into()],
        target: vec!["next".into()],
        measure: PairMeasure::Count("n".into()),
    };
    assert_eq!(pipeline.transitions.input, pairs);
    assert_eq!(pipeline.fits[0].expanded(), [(Some(8), "svd".to_string())]);
}

#[test]
fn misspelt_keys_are_named_with_line_and_suggestion() {
    check(
        OCEAN,
        r#"
12 | lagg = 5 | 12: unknown key `transitions.lagg`; did you mean `lag`?
18 | lat = { boundz = [-90, 90], boxes = 360 } | 18: unknown key `transitions.bins.lat.boundz`; did you mean `bounds`?
5 | [tabels.tracks] | 5: unknown key `tabels`; did you mean `tables`?
6 | location = 'x' | 6: unknown key `tables.tracks.location`; there are `path`, `filename`, `format`, `delimiter`, `header`, `quote`, `decimal`, `null`, `types`, `compression`
"#,
    );
    check(
        PAIRS,
        r#"
14 | rank = 3\nrestart = 5 | 15: unknown key `fit.svd.restart`; did you mean `restarts`?
12 | nmae = 'svd' | 11: the table `fit.0` needs the key `name`; write `name` in place of `nmae`
13 | methd = 'svd' | 11: the table `fit.svd` needs the key `method`; write `method` in place of `methd`
"#,
    );
}

/// Locations and options may contain secrets, so no message shows them.
#[test]
fn stores_are_configured_without_being_shown() {
    let store = "\n[store.options]\naws_region = 'eu'\nallow_http = true\naws_secret_access_key = 'hidden'\n";
    let pipeline = parse(&format!("{OCEAN}{store}"), &[]).expect("a valid file");
    let allowed = Parameter::Boolean(true);
    assert_eq!(pipeline.store.options["allow_http"], allowed);
    let json = serde_json::to_string(&pipeline).expect("JSON");
    let shown = format!("{pipeline:?}{json}");
    assert!(!shown.contains("hidden"), "{shown}");
    check(
        OCEAN,
        r#"
29 | affiliation = 'region'\n[store.options]\naws_regio = 'hidden' | 31: unknown key `store.options.aws_regio`; did you mean `aws_region`?
29 | affiliation = 'region'\n[store.options]\nAWS_REGION = 'hidden' | 31: unknown key `store.options.AWS_REGION`; did you mean `aws_region`?
29 | affiliation = 'region'\n[store.options]\ns3_key = 'hidden' | 31: unknown key `store.options.s3_key`; options are the environment variables of the clouds in lower case, such as `aws_region`
29 | affiliation = 'region'\n[store.option]\naws_region = 'hidden' | 30: unknown key `store.option`; did you mean `options`?
29 | affiliation = 'region'\n[store.options]\naws_region = ['hidden'] | 31: `store.options.aws_region` must be a string, a number or true or false
6 | path = "s3://key:hidden@lake/tracks" | 6: `tables.tracks.path`: a s3:// URL must not hold credentials; give them by environment variables or `[store.options]`
3 | output = "https://example.org/out" | 3: `job.output` cannot be written: gyre can only read http:// and https:// locations
3 | output = "s4://hidden" | 3: `job.output`: `s4` locations are not supported; write a path, or a URL that begins with file://, s3://, gs://, az://, http://, https://, memory://
"#,
    );
    check_sets(
        r#"
store.options.aws_secret=hidden | --set store.options.aws_secret: unknown key `store.options.aws_secret`; options are the environment variables of the clouds in lower case, such as `aws_region`
store.options=hidden | --set store.options: `store.options` must be a table
names.from=s3://key:hidden@lake/out | --set names.from: `names.from`: a s3:// URL must not hold credentials; give them by environment variables or `[store.options]`
"#,
    );
}

#[test]
fn keys_of_another_method_are_no_misspelling() {
    check(
        OCEAN,
        r#"
29 | affiliation = 'region'\nrestarts = 5 | 30: `fit.regions.restarts` cannot be used here: method "given" takes no `restarts`
"#,
    );
}

#[test]
fn keys_of_kmeans_go_with_kmeans() {
    check(
        PAIRS,
        r#"
14 | rank = 3\nclusters = "seba"\nrestarts = 20 | 16: `fit.svd.restarts` goes with `clusters = "kmeans"` alone: "seba" takes no `restarts`
14 | rank = 3\nmax_iterations = 9\nclusters = "pcca" | 15: `fit.svd.max_iterations` goes with `clusters = "kmeans"` alone: "pcca" takes no `max_iterations`
"#,
    );
    for keys in [
        "clusters = \"seba\"\ntolerance = 1e-8",
        "clusters = \"kmeans\"\nrestarts = 5",
    ] {
        let text = PAIRS.swap("rank = 8", &format!("rank = 8\n{keys}"));
        parse(&text, &[]).unwrap_or_else(|e| panic!("{}", e.full()));
    }
    let sets = ["fit.svd.clusters=pcca", "fit.svd.restarts=3"];
    let error = parse(PAIRS, &sets).expect_err("an error").to_string();
    assert!(
        error.starts_with("--set fit.svd.restarts: `fit.svd.restarts` goes with"),
        "{error}"
    );
}

#[test]
fn syntax_errors_have_line_and_column() {
    let error = parse("[job]\nname = = 3", &[])
        .expect_err("an error")
        .to_string();
    assert!(error.starts_with("x.toml:2:8: "), "{error}");
    let error = parse("[job]\nname = 'a'\nname = 'b'", &[]).expect_err("an error");
    assert_eq!(error.to_string(), "x.toml:3:1: duplicate key");
}

/// A line that is no TOML says what to write, and shows no value.
#[test]
fn syntax_errors_say_what_to_write() {
    for (line, column, said) in [
        ("rank =", 7, "`rank` has no value; write one behind `=`"),
        (
            "rank = # two",
            8,
            "`rank` has no value; write one behind `=`",
        ),
        ("rank", 5, "`rank` has no value; write one behind `=`"),
        ("rank: 2", 7, "write `rank = …`, with `=` in place of `:`"),
        (
            "path = hidden.csv",
            8,
            "a text stands in double quotes: write `path = \"…\"`",
        ),
        (
            "path = true.csv",
            8,
            "a text stands in double quotes: write `path = \"…\"`",
        ),
        (
            "path = \"hidden",
            15,
            "the text of `path` has no double quotes at its end",
        ),
        ("list = [hidden]", 9, "string values must be quoted"),
    ] {
        let error = parse(&format!("[job]\n{line}\n"), &[])
            .expect_err(line)
            .to_string();
        let start = format!("x.toml:2:{column}: {said}");
        assert!(error.starts_with(&start), "{line}: {error}");
        assert!(!error.contains("hidden"), "{line}: {error}");
    }
}

#[test]
fn missing_keys_name_their_table() {
    check(
        OCEAN,
        r#"
2 |  | 1: the table `job` needs the key `name`
6 |  | 5: the table `tables.tracks` needs the key `path`
24 |  | 21: the table `fit.dbmr` needs the key `rank`
11 |  | 8: the table `transitions` needs the key `time`
12 |  | 8: the table `transitions` needs the key `lag`
9 |  | 8: the table `transitions` needs one of the keys `sql` and `file`
"#,
    );
    check(
        PAIRS,
        r#"
8 |  | 5: the table `transitions` needs the key `target`
"#,
    );
    let message = "2 errors\n  x.toml: the file needs the table `[job]`\n  x.toml: the file needs the table `[transitions]`";
    check_text("", message);
    check(
        PAIRS,
        r#"
11 | [fit] | 11: `fit` must be a list of tables, each under the header `[[fit]]`
"#,
    );
}

#[test]
fn wrong_types_are_named() {
    check(
        OCEAN,
        r#"
2 | name = 3 | 2: `job.name` must be a string, not 3
11 | time = ['a', 'b', 'c'] | 11: `transitions.time` names 3 columns; name the time, and after it at most one column that orders the rows at one time
13 | weight = ['a', 'b'] | 13: `transitions.weight` must be a string, not a list
12 | lag = [\n5.5] | 13: `transitions.lag` must be a duration such as "5d", "36h" or "15min", steps such as "3 steps", or a whole number, not 5.5
12 | lag = '5x' | 12: `transitions.lag` must be a duration such as "5d", "36h" or "15min", steps such as "3 steps", or a whole number, not "5x"
13 | state = [] | 13: `transitions.state` must not be an empty list
13 | window = 'slide' | 13: `transitions.window` cannot be "slide"; there are `sliding`, `strided`, `effective`
15 | depth = [[1]] | 15: `transitions.parameters.depth` must be a list of at least one value, and of no other lists
17 | lon = 0.5 | 17: `transitions.bins.lon` must be a table, not 0.5
18 | lat = { bounds = [1, 2, 3], boxes = 3 } | 18: `transitions.bins.lat.bounds` must be a list of 2, not of 3
18 | lat = { bounds = [1], boxes = 3 } | 18: `transitions.bins.lat.bounds` must be a list of two numbers, not a list of 1
23 | method = 'dbrm' | 23: `fit.dbmr.method` cannot be "dbrm"; did you mean `dbmr`?
24 | rank = 'x' | 24: `fit.dbmr.rank` must be a whole number, a list of them, or "auto", not "x"
24 | rank = -1 | 24: `fit.dbmr.rank` must be a whole number that is not negative, not -1
"#,
    );
    check(
        PAIRS,
        r#"
3 | output = 'o'\nseed = 99999999999999999999 | 4: the integer 99999999999999999999 does not fit 64 bits with a sign
"#,
    );
}

#[test]
fn the_two_kinds_of_input_do_not_mix() {
    check(
        OCEAN,
        r#"
13 | count = 'n' | 13: `[transitions]` mixes keys of trajectories (`trajectory`, `time`, `bins`, `lag`) and of pairs (`count`); keep one kind
13 | source = 'a' | 13: `[transitions]` mixes keys of trajectories (`trajectory`, `time`, `bins`, `lag`) and of pairs (`source`); keep one kind
"#,
    );
    check(
        PAIRS,
        r#"
9 | lag = 1 | 7: `[transitions]` mixes keys of trajectories (`lag`) and of pairs (`source`, `target`); keep one kind
9 | count = 'n'\nweight = 'w' | 10: use either `transitions.count` or `transitions.weight`, not both
8 | target = 'word' | 8: `transitions.source` and `transitions.target` are the same columns, so that no state would ever change
"#,
    );
    check_text(
        "[job]\nname = 'a'\noutput = 'b'\n[transitions]\nsql = 'x'\n[[fit]]\nname = 'a'\nmethod = 'svd'\nrank = 1",
        "x.toml:4: the table `transitions` needs either `time`, `lag` and one of `state`, `bins` and `coordinates` (trajectories), or `source` and `target` (pairs)",
    );
}

#[test]
fn columns_play_one_part() {
    check(
        OCEAN,
        r#"
13 | partition_by = ['drifter'] | 10: the column `drifter` cannot be both `transitions.partition_by` and `transitions.trajectory`
13 | state = ['a', 'a'] | 13: `transitions.state` names the column `a` twice
13 | weight = 'time' | 13: the column `time` cannot be both `transitions.time` and `transitions.weight`
13 | state = ['lat'] | 16: the column `lat` cannot be both `transitions.state` and `transitions.bins`
13 | state = '' | 13: `transitions.state` must not be empty
13 | state = 'probability' | 13: the output tables have a column `probability` of their own; rename the column of `transitions.state` with AS in the SQL
13 | state = 'dbmr_r3_embedding' | 13: the output tables have a column `dbmr_r3_embedding` of their own; rename the column of `transitions.state` with AS in the SQL
"#,
    );
}

#[test]
fn lags_are_all_different_and_of_one_kind() {
    check(
        OCEAN,
        r#"
12 | lag = ['1d', '2d', '24h'] | 12: `transitions.lag` has the same lag twice: 1d
12 | lag = ['1d', 5] | 12: `transitions.lag` has a whole number and a duration (1d and 5), but time is either an integer or a date
12 | lag = '1 month' | 12: `transitions.lag` must not count in months or years, whose length varies; write days instead of "1 month"
12 | lag = 0 | 12: `transitions.lag` must be above zero, not 0
"#,
    );
}

#[test]
fn bins_are_checked() {
    check(
        OCEAN,
        r#"
17 | lon = {} | 17: `transitions.bins.lon` needs exactly one of `step` and `boxes`
17 | lon = { step = 1, boxes = 2 } | 17: `transitions.bins.lon` needs exactly one of `step` and `boxes`
17 | lon = { boxes = 2 } | 17: `transitions.bins.lon.boxes` needs `bounds` or `periodic` beside it
17 | lon = { boxes = 0, bounds = [0, 1] } | 17: `transitions.bins.lon.boxes` must be at least 1, not 0
17 | lon = { step = 0 } | 17: `transitions.bins.lon.step` must be above zero and finite, not 0
17 | lon = { step = nan } | 17: `transitions.bins.lon.step` must be above zero and finite, not NaN
17 | lon = { step = 0.7, periodic = [-180, 180] } | 17: `transitions.bins.lon.step` must divide the range from -180 to 180 into whole boxes, not 0.7
17 | lon = { step = 1, bounds = [1, 1] } | 17: `transitions.bins.lon.bounds` must be [low, high] with low below high and both finite, not [1, 1]
17 | lon = { step = 1, bounds = [0, inf] } | 17: `transitions.bins.lon.bounds` must be [low, high] with low below high and both finite, not [0, inf]
17 | lon = { step = 1, bounds = [0, 1], periodic = [0, 1] } | 17: `transitions.bins.lon.bounds` does not go with `periodic`, which has no bounds
17 | lon = { step = 1, periodic = [0, 1], outside = 'clip' } | 17: `transitions.bins.lon.outside` only makes sense with `bounds`
17 | lon = { step = 1, bounds = [0, 1], origin = 0 } | 17: `transitions.bins.lon.origin` only makes sense with `step` and without `bounds` or `periodic`, which say where boxes start
17 | lon = { step = 1, outside = 'keep' } | 17: `transitions.bins.lon.outside` cannot be "keep"; there are `drop`, `clip`, `error`
"#,
    );
}

#[test]
fn fits_are_checked() {
    check(
        OCEAN,
        r#"
24 | rank = 0 | 24: `fit.dbmr.rank` must be at least 1, not 0
24 | rank = [3, 3] | 24: `fit.dbmr.rank` has 3 twice
25 | restarts = 0 | 25: `fit.dbmr.restarts` must be at least 1, not 0
25 | tolerance = -1e-9 | 25: `fit.dbmr.tolerance` must be finite and not negative, not -0.000000001
25 | tolerance = inf | 25: `fit.dbmr.tolerance` must be finite and not negative, not inf
27 | name = 'dbmr' | 27: two fits are named `dbmr`
27 | name = 'dbmr_r5' | 27: the fits `dbmr` and `dbmr_r5` both give columns named `dbmr_r5`
27 | name = 'count' | 27: a fit cannot be named `count`: the output tables have a column of that name
27 | name = '3d' | 27: a fit's name must be a letter followed by letters, digits and `_`, not "3d"
2 | name = 'a b' | 2: `job.name` must consist of letters, digits, `_` and `-`, not "a b"
2 | name = 'a'\nkeep = 1001 | 3: `job.keep` must be 1000 at most, not 1001
2 | name = 'a'\nkeep = -1 | 3: `job.keep` must be a whole number that is not negative, not -1
"#,
    );
}

#[test]
fn variables_are_replaced_in_strings_but_not_in_sql() {
    let output = |text: &str| {
        let line = format!("output = '{text}'");
        let pipeline = parse(&OCEAN.swap("output = \"${OUT:-out}/ocean\"", &line), &[]);
        pipeline.map(|s| s.job.output).map_err(|e| e.to_string())
    };
    let table = r#"
        ${BASE}/a/${BASE:-x} | s3://lake/a/s3://lake
        a${EMPTY}b${EMPTY:-c} | abc
        $BASE $${BASE} $$ ${NONE:-}x | $BASE ${BASE} $$ x
    "#;
    for [text, expected] in cases(table) {
        assert_eq!(output(&text), Ok(expected));
    }
    let table = r#"
        ${NONE} | x.toml:3: `job.output`: the environment variable `NONE` is not set; set it or write `${NONE:-default}`
        ${BASE | x.toml:3: `job.output`: `${` is not closed by `}`; write `$${` for the two characters themselves
        ${a b} | x.toml:3: `job.output`: `${a b}` is not of the form `${NAME}` or `${NAME:-default}`
    "#;
    for [text, expected] in cases(table) {
        assert_eq!(output(&text), Err(expected));
    }
    check(
        OCEAN,
        r#"
9 | sql = 'SELECT ${BASE}' | 9: `transitions.sql`: `${BASE}` is not replaced in SQL; write a value into `[transitions.parameters]` and name it as `$name`
"#,
    );
}

#[test]
fn a_rank_may_be_picked_by_a_rule() {
    let sets = ["fit.dbmr.rank=auto", "fit.dbmr.rule=bic"];
    let pipeline = parse(OCEAN, &sets).expect("a valid file");
    assert_eq!(pipeline.fits[0].ranks, [2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(pipeline.fits[0].rule, Some(Rule::Bic));
    // One fit, of one name, whose embeddings have room for the largest.
    assert_eq!(pipeline.fits[0].expanded(), [(Some(8), "dbmr".to_string())]);
    let sets = [
        "fit.dbmr.rank=auto",
        "fit.dbmr.ranks=[5, 2]",
        "fit.dbmr.rule=held-out",
        "validation.folds=5",
    ];
    let pipeline = parse(OCEAN, &sets).expect("a valid file");
    assert_eq!(pipeline.fits[0].ranks, [5, 2]);
    // Without a rule, what is held out decides where anything is.
    for (folds, rule) in [(0, Rule::Gap), (5, Rule::HeldOut)] {
        let folds = format!("validation.folds={folds}");
        let pipeline = parse(OCEAN, &["fit.dbmr.rank=auto", &folds]).expect("a valid file");
        assert_eq!(pipeline.fits[0].rule, Some(rule));
    }
    let pipeline = parse(OCEAN, &["fit.dbmr.rank=auto"]).expect("a valid file");
    assert_eq!(pipeline.fits[0].rule, Some(Rule::Gap));

    check(
        OCEAN,
        r#"
24 | rank = 'auto'\nrule = 'bik' | 25: `fit.dbmr.rule` must be one of "gap", "held-out", "vamp2", "bic", "aic", not "bik"
24 | rank = 'auto'\nrule = 'bic'\nranks = [2, 2] | 26: `fit.dbmr.ranks` has 2 twice
24 | rank = 'auto'\nrule = 'bic'\nranks = [2.5] | 26: `fit.dbmr.ranks` must be a whole number that is not negative, not 2.5
24 | rank = 'auto'\nrule = 'held-out' | 25: `fit.dbmr.rule` scores ranks with what was held out, and so needs `folds` in `[validation]`, such as `folds = 5`
24 | rank = [2, 3]\nrule = 'bic' | 25: `fit.dbmr.rule` goes with `rank = "auto"` alone
29 | affiliation = 'a'\nrank = 'auto' | 30: `fit.regions.rank` cannot be used here: method "given" takes no `rank`
"#,
    );
}

#[test]
fn assignments_change_and_make_values() {
    let pipeline = parse(
        OCEAN,
        &[
            "fit.dbmr.rank=4",
            "fit.1.affiliation=area",
            "tables.more.path=[\"a\", \"b\"]",
            "job.output=${BASE}/x=y",
            "transitions.lag=3 steps",
            "transitions.parameters.since=2024-01-01",
            "transitions.bins.\"lon\"={ step = 2 }",
        ],
    )
    .expect("valid assignments");
    assert_eq!(pipeline.fits[0].ranks, [4]);
    assert_eq!(pipeline.tables["more"].path, ["a", "b"]);
    assert_eq!(pipeline.job.output, "s3://lake/x=y");
    let since = &pipeline.transitions.parameters["since"];
    let day = Parameter::String("2024-01-01".into());
    assert_eq!(*since, Argument::One(day));
    let Input::Trajectories { bins, lags, .. } = &pipeline.transitions.input else {
        panic!("trajectories");
    };
    assert_eq!(lags, &[Lag::Steps(3)]);
    assert_eq!(bins[0].0, "lon", "keeps its place");
}

#[test]
fn wrong_assignments_are_named() {
    check_sets(
        r#"
fit.dbmr.rank | --set fit.dbmr.rank: an assignment has the form KEY=VALUE
=3 | --set : `` is not a key such as `fit.dbmr.rank`
fit..rank=3 | --set fit..rank: `fit..rank` is not a key such as `fit.dbmr.rank`
fit.dbrm.rank=3 | --set fit.dbrm.rank: `fit` has no entry `dbrm`; did you mean `dbmr`?
fit.2.rank=3 | --set fit.2.rank: `fit` has no entry `2`; there are `dbmr`, `regions`
job.name.x=3 | --set job.name.x: `job.name` is not a table
fit.dbmr.rank=0 | --set fit.dbmr.rank: `fit.dbmr.rank` must be at least 1, not 0
fit.dbmr.rnk=2 | --set fit.dbmr.rnk: unknown key `fit.dbmr.rnk`; did you mean `rank`?
job.name=42 | --set job.name: `job.name` must be a string, not 42
names.from=" " | --set names.from: `names.from` must not be empty
names.form=none | --set names.form: unknown key `names.form`; did you mean `from`?
tables.more.format=csv | --set tables.more.format: the table `tables.more` needs the key `path`
job.seed=99999999999999999999 | --set job.seed: the integer 99999999999999999999 does not fit 64 bits with a sign
"#,
    );
}

#[test]
fn the_schema_describes_every_key() {
    let schema = json_schema();
    let draft = "https://json-schema.org/draft/2020-12/schema";
    assert_eq!(schema["$schema"], draft);
    assert_eq!(schema["title"], "gyre pipeline");
    let methods = schema["$defs"]["Fit"]["oneOf"].as_array().expect("methods");
    let names: Vec<_> = methods
        .iter()
        .map(|m| &m["properties"]["method"]["const"])
        .collect();
    let expected = "dbmr svd cocluster metastable gpcca given state_embedding diffusion_map \
                    heat_sketch spectral_hmm given_hmm kernel_bayes kalman ekf ukf";
    assert_eq!(names, words(expected));
    let required = serde_json::json!(["name", "method", "rank"]);
    assert_eq!(methods[0]["required"], required);
    for table in ["Job", "Table", "Transitions", "Points", "Sequences", "Bin"] {
        let table = &schema["$defs"][table];
        assert_eq!(table["additionalProperties"], false);
        for (key, value) in table["properties"].as_object().expect("keys") {
            assert!(value["description"].is_string(), "{key} has no description");
        }
    }
}

#[test]
fn validation_says_what_is_resampled() {
    let with = |keys: &str| format!("{OCEAN}\n[validation]\n{keys}\n");
    let pipeline = parse(&with("bootstrap = 50\ngroup = \"year\""), &[]).expect("a valid file");
    let validation = pipeline.validation.expect("a table");
    assert_eq!((validation.bootstrap, validation.folds), (50, 0));
    assert_eq!((validation.groups, validation.confidence), (100, 0.95));
    assert_eq!(validation.group, ["year"]);
    assert_eq!(parse(OCEAN, &[]).expect("a valid file").validation, None);
    check(
        OCEAN,
        r#"
29 | affiliation = 'region'\n[validation]\nbootstrap = 1 | 31: `validation.bootstrap` must be 0 for none, or 2 to 10000 resamples, not 1
29 | affiliation = 'region'\n[validation]\nfolds = 1 | 31: `validation.folds` must be 0 for none, or 2 to 1000 folds, not 1
29 | affiliation = 'region'\n[validation]\ngroups = 5000 | 31: `validation.groups` must be 2 to 4096, not 5000
29 | affiliation = 'region'\n[validation]\nfolds = 200 | 31: `validation.folds` must be no more than the 100 `groups` they are made of, not 200
29 | affiliation = 'region'\n[validation]\nconfidence = 95 | 31: `validation.confidence` must be 0.5 to 0.9999, not 95
29 | affiliation = 'region'\n[validation]\ngroup = ["a", "a"] | 31: `validation.group` names the column `a` twice
29 | affiliation = 'region'\n[validation]\nbootstraps = 9 | 31: unknown key `validation.bootstraps`; did you mean `bootstrap`?
"#,
    );
}
