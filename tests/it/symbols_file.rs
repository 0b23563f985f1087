//! The section `[sequences]`: its keys, their errors, and plans.

use crate::cli::integers;
use crate::lake::{Lake, Swap, cases, texts};
use crate::pipeline_file::{parse, refused, refused_all};
use arrow::array::ArrayRef;
use gyre::assess::ranks::Rule;
use gyre::evidence::lag::Lag;
use gyre::methods::SymbolMethod;
use gyre::methods::hmm::params::{Refine, Scaling, SpectralHmm, WindowKind};
use gyre::plan::pipeline::{Input, json_schema};
use serde_json::json;

const CLICKS: &str = r#"job = { name = "clicks", output = "out" }
tables.clicks.path = "clicks.parquet"
[sequences]
sql = "SELECT * FROM clicks"
trajectory = "session"
time = "n"
symbol = "page"

[[fit]]
name = "hmm"
method = "spectral_hmm"
rank = 2
"#;

#[test]
fn a_file_with_sequences_is_read() {
    let text = r#"[job]
name = "weather"
output = "out"

[tables.weather]
path = "weather/"

[sequences]
sql = "SELECT * FROM weather"
trajectory = ["station", "year"]
time = "t"
interval = "1h"
symbol = ["sky"]
weight = "w"
partition_by = "basin"
split = "split"
empty = "fail"
[sequences.bins]
wind = { step = 5 }

[[fit]]
name = "auto"
method = "spectral_hmm"
rank = "auto"

[[fit]]
name = "few"
method = "spectral_hmm"
rank = [1, 3]
scaling = "none"
min_count = 5
refine = "em"
n_iter = 20

[output]
rows = "all"
distribution = true
"#;
    let pipeline = parse(text, &[]).expect("a pipeline");
    let Input::Symbols {
        trajectory,
        interval,
        symbol,
        bins,
        split,
        ..
    } = &pipeline.transitions.input
    else {
        panic!("no sequences");
    };
    assert_eq!((trajectory.len(), &symbol[..]), (2, &["sky".into()][..]));
    let hour = Lag::Duration {
        nanoseconds: 3_600_000_000_000,
    };
    assert_eq!(interval, &Some(hour));
    assert_eq!(
        (bins[0].0.as_str(), split.as_deref()),
        ("wind", Some("split"))
    );
    let [auto, few] = &pipeline.sequence_fits[..] else {
        panic!("two fits");
    };
    assert_eq!(auto.rule, Some(Rule::HeldOut));
    assert_eq!(auto.ranks, [1, 2, 3, 4, 6, 8, 12, 16]);
    let expected = SpectralHmm {
        scaling: Scaling::None,
        min_count: 5,
        refine: Refine::Em,
        n_iter: 20,
        ..SpectralHmm::new(1)
    };
    assert_eq!(few.method, SymbolMethod::SpectralHmm(expected));
    let names: Vec<String> = few.expanded().into_iter().map(|(_, name)| name).collect();
    assert_eq!(names, ["few_r1", "few_r3"]);
    assert_eq!(pipeline.output.rows.predictions(), Some(true));
    assert!(pipeline.fits.is_empty() && pipeline.output.distribution);
}

#[test]
fn sections_exclude_each_other() {
    refused_all(
        CLICKS,
        r#"
transitions={ sql = "SELECT 1", source = "a", target = "b" } | use either `[transitions]` or `[sequences]`, not both
points={ sql = "SELECT 1", id = "a", coordinates = "b" } | use either `[points]` or `[sequences]`, not both
"#,
    );
    let other = CLICKS.swap("[sequences]", "[transitions]");
    let other = other.replace("symbol = \"page\"", "state = \"page\"\nlag = 1");
    let message = "the method \"spectral_hmm\" of fit `hmm` is fitted to sequences of symbols; describe the rows in a section `[sequences]` in place of `[transitions]` (this pipeline has transitions)";
    refused(&other, &[], message);
}

#[test]
fn keys_that_do_not_apply_have_a_sentence_each() {
    refused_all(
        CLICKS,
        r#"
sequences.lag=1 | `sequences.lag` cannot be used here: sequences are of rows that follow each other; the time between them is `interval`
sequences.connected=true | `sequences.connected` cannot be used here: a hidden Markov model keeps all symbols
sequences.state="page" | `sequences.state` cannot be used with `symbol`
sequences.symbl="page" | unknown key `sequences.symbl`; did you mean `symbol`?
sequences.interval="1 step" | a whole number or a duration, not steps; leave it out
names.from=none | `[names]` is about sets of states
validation.markov=true | `validation.markov` tests sets of states
validation={ bootstrap = 10, group = "year" } | `validation.group` is not available for sequences
validation.folds=21 | must be 20 at most for sequences, not 21
sequences.split=split ; validation.folds=5 | `sequences.split` says which rows are held out; keep one of them
sequences.trajectory=[] | `sequences.trajectory` must not be an empty list
output.rows=["page"] ; output.distribution=true | `output.rows` is "all" or "none" for sequences
output.distribution=true | adds a column to the table `predictions`, which needs `rows = "all"`
checks.max_drift=0.1 | `checks.max_drift` is about the number of transitions
sequences.split=page | the column `page` cannot be both `sequences.symbol` and `sequences.split`
"#,
    );
    let without = CLICKS.swap("symbol = \"page\"\n", "");
    let message = "the table `sequences` needs the key `symbol` or `bins`";
    refused(&without, &[], message);
}

#[test]
fn ranks_need_rows_to_hold_out() {
    let single = CLICKS.swap("trajectory = \"session\"\n", "");
    let auto = |sets: &[&str]| {
        let sets = [&["fit.hmm.rank=auto"], sets].concat();
        parse(&single, &sets).map_err(|e| e.to_string())
    };
    let error = auto(&[]).expect_err("an error");
    let expected = "`fit.hmm.rank` = \"auto\" scores ranks by rows that are held out; mark rows with `sequences.split`, or name the column `sequences.trajectory` for folds of trajectories";
    assert!(error.contains(expected), "{error}");
    auto(&["sequences.split=split"]).expect("a pipeline");
    let error = auto(&["validation.folds=3"]).expect_err("an error");
    let expected = "`validation.folds` holds trajectories out in turn, but every partition is one";
    assert!(error.contains(expected), "{error}");
    refused_all(
        CLICKS,
        r#"
fit.hmm.rank=auto ; fit.hmm.rule=gap | must be "held-out" for the method "spectral_hmm", not "gap"
fit.hmm.ranks=[1, 2] | goes with `rank = "auto"` alone
"#,
    );
}

#[test]
fn fits_count_the_same_windows() {
    let two = format!("{CLICKS}\n[[fit]]\nname = \"b\"\nmethod = \"spectral_hmm\"\nrank = 2\n");
    let error = |sets: &[&str]| parse(&two, sets).expect_err("an error").to_string();
    let expected = "the fits `hmm` and `b` have different `block`, but the windows of a pipeline are counted once";
    let found = error(&["fit.b.block=2"]);
    assert!(found.contains(expected), "{found}");
    let found = error(&["fit.hmm.windows=first"]);
    assert!(found.contains("have different `windows`"), "{found}");
    let both = parse(&two, &["fit.b.windows=first", "fit.hmm.windows=first"]);
    let fits = both.expect("a pipeline").sequence_fits;
    let SymbolMethod::SpectralHmm(own) = &fits[1].method else {
        panic!("a spectral model");
    };
    assert_eq!((own.windows, own.block), (WindowKind::First, 1));
    refused_all(
        CLICKS,
        r#"
fit.hmm.block=0 | `fit.hmm.block` must be at least 1, not 0
fit.hmm.n_components=3 | `fit.hmm.n_components` is no key of method "spectral_hmm": write `rank`
"#,
    );
}

#[test]
fn the_schema_describes_sequences() {
    let schema = json_schema();
    let table = &schema["$defs"]["Sequences"];
    assert_eq!(table["additionalProperties"], false);
    for (key, value) in table["properties"].as_object().expect("keys") {
        assert!(value["description"].is_string(), "{key} has no description");
    }
    let methods = schema["$defs"]["Fit"]["oneOf"].as_array().expect("methods");
    let hmm = methods.iter().find(|m| m["title"] == "spectral_hmm");
    let keys = &hmm.expect("the method")["properties"];
    assert_eq!(keys["rule"]["const"], "held-out");
    assert_eq!(keys["ranks"]["default"], json!([1, 2, 3, 4, 6, 8, 12, 16]));
}

/// Six sessions of five clicks.
fn lake() -> Lake {
    let lake = Lake::new();
    let pages = (0..30).map(|k| ["home", "shop", "cart"][k * k % 7 % 3]);
    let pages = texts(pages);
    let split = (0..30).map(|k| if k < 20 { "train" } else { "test" });
    let split = texts(split);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("session", integers((0..30).map(|k| k / 5))),
        ("n", integers((0..30).map(|k| k % 5))),
        ("page", pages),
        ("part", split),
        ("spare", integers(0..30)),
    ];
    lake.table("clicks.parquet", columns);
    lake.file("p.toml", CLICKS);
    lake
}

#[test]
fn plans_say_what_is_counted_fitted_and_scored() {
    let lake = lake();
    let ran = lake.call("check", &[]).succeeds();
    assert_eq!(ran.out.trim(), "p.toml is valid: 1 table, 1 fit per model");
    let text = lake.call("plan", &[]).succeeds().out;
    for line in [
        "count  trajectories by session in the order of n: symbols page; each row follows the one before; windows of 3 rows",
        "fit    hmm: spectral HMM, rank 2, scaled operators, all windows of 3 symbols",
        "rows   a second pass over the input writes the log-likelihood of each trajectory",
        "memory count at most",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    assert!(!text.contains("predictions"), "{text}");
    let more = [
        "sequences.interval=1",
        "sequences.split=part",
        "fit.hmm.rank=auto",
        "fit.hmm.windows=first",
        "output.rows=all",
        "job.incremental=true",
    ];
    let text = lake.call("plan", &more).succeeds().out;
    for line in [
        "rows 1 apart follow each other; the first window of 3 rows of a trajectory; only rows with part = 'train'",
        "hmm: spectral HMM, rank one of 1 2 3 4 6 8 12 16 by held-out",
        "score  rows with part = 'test'",
        "increments: no, because the first window of a trajectory may begin in another file",
        "writes the predictions of each row and the log-likelihood of each trajectory",
        "trajectories, predictions",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    let folds = "plan p.toml --json --set fit.hmm.rank=auto";
    let shown = lake.line(folds).succeeds().json();
    assert_eq!(shown["held_out"], json!({ "folds": 5 }));
    assert_eq!(shown["count"]["kind"], "sequences");
    assert_eq!(shown["count"]["block"], 1);
    assert_eq!(shown["validation"]["groups"], 100);
    assert_eq!(shown["fit"][0]["parameters"]["rank"]["rule"], "held-out");
    assert!(shown["memory"]["resident_bytes"].as_u64() > Some(0));
    let explained = lake.call("explain", &[]).succeeds().out;
    assert!(
        explained.starts_with("SQL\nSELECT * FROM clicks\n"),
        "{explained}"
    );
}

#[test]
fn columns_must_fit_their_keys() {
    let lake = lake();
    let table = r#"
        sequences.symbol=pge | `sequences.symbol` names the column `pge`, which the SQL does not give; did you mean `page`?
        sequences.split=spare | column `spare` is Int64, but `sequences.split` wants text; cast it in the SQL
        sequences.interval=1h | interval 1h is a duration, but `n` is Int64; write the interval as an integer, or cast the column to a timestamp
        sequences.sql=SELECT session, n, page AS probability FROM clicks | `sequences.symbol` names the column `page`
        sequences.sql=SELECT session, n, page AS probability FROM clicks ; sequences.symbol=probability | the table `symbols` would have two columns `probability`; rename the column of the SQL with AS
    "#;
    for [sets, expected] in cases(table) {
        let sets: Vec<&str> = sets.split(" ; ").collect();
        lake.call("check", &sets).fails(2, &expected);
    }
}
