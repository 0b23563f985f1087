//! The section `[sequences]` with states and observations: its keys, their errors, and plans.

use crate::cli::integers;
use crate::lake::{Lake, Swap, cases, floats, texts};
use crate::pipeline_file::{parse, refused, refused_all};
use arrow::array::ArrayRef;
use gyre::evidence::lag::Lag;
use gyre::methods::FilterMethod;
use gyre::methods::filter::params::{KernelBayes, Regularisation, Rule};
use gyre::plan::pipeline::content::RowKey;
use gyre::plan::pipeline::keys::FilteredRows;
use gyre::plan::pipeline::{Input, json_schema};
use serde_json::Value;

const WORLD: &str = r#"job = { name = "world", output = "out" }
tables.world.path = "world.parquet"
[sequences]
sql = "SELECT * FROM world"
trajectory = "id"
time = "t"
state = ["y1", "y2"]
observation = ["x1", "x2"]

[[fit]]
name = "kb"
method = "kernel_bayes"
"#;

const CURVE: &str = r#"
[[fit]]
name = "ukf"
method = "ukf"
f = ["theta + 0.4"]
h = ["cos(theta)", "sin(theta)"]
state = ["theta"]
estimate = ["cos(theta)", "sin(theta)"]
Q = [[0.04]]
R = [[0.04, 0], [0, 0.04]]
x0 = [0.0]
P0 = [[1.0]]
"#;

/// Rows without time.
fn still() -> String {
    WORLD.swap("trajectory = \"id\"\ntime = \"t\"\n", "id = \"id\"\n")
}

#[test]
fn a_file_with_states_and_observations_is_read() {
    let text = format!("{WORLD}rule = \"kbr\"\nlambda = 1e-2\n{CURVE}\n[output]\nrows = \"all\"\n");
    let sets = ["sequences.interval=1h", "sequences.split=split"];
    let pipeline = parse(&text, &sets).expect("a pipeline");
    let Input::Observations {
        key,
        state,
        observation,
        split,
    } = &pipeline.transitions.input
    else {
        panic!("no states");
    };
    let hour = Lag::Duration {
        nanoseconds: 3_600_000_000_000,
    };
    let expected = RowKey::Trajectories {
        trajectory: vec!["id".into()],
        time: "t".into(),
        times: Default::default(),
        interval: Some(hour),
    };
    assert_eq!((key, split.as_deref()), (&expected, Some("split")));
    assert_eq!(
        (&state[..], observation.len()),
        (&["y1".to_string(), "y2".into()][..], 2)
    );
    let [kb, ukf] = &pipeline.filter_fits[..] else {
        panic!("two fits");
    };
    let own = KernelBayes {
        lambda: Regularisation::Value(1e-2),
        ..KernelBayes::new(Rule::Kbr)
    };
    assert_eq!(kb.method, FilterMethod::KernelBayes(own));
    assert!(matches!(ukf.method, FilterMethod::Ukf(_)));
    assert_eq!(pipeline.output.rows.filtered(true), Some(FilteredRows::All));
    assert!(pipeline.fits.is_empty() && pipeline.sequence_fits.is_empty());

    let pipeline = parse(&still(), &[]).expect("a pipeline");
    let Input::Observations { key, .. } = &pipeline.transitions.input else {
        panic!("no states");
    };
    assert_eq!(
        key,
        &RowKey::Rows {
            id: vec!["id".into()]
        }
    );
}

#[test]
fn symbols_and_states_exclude_each_other() {
    for key in ["state", "observation"] {
        let expected = format!(
            "`sequences.{key}` cannot be used with `symbol`: the states of a hidden Markov model are not given; for filters, give `state` and `observation` in place of `symbol` and `bins`"
        );
        let other = [
            "state = [\"y1\", \"y2\"]\n",
            "observation = [\"x1\", \"x2\"]\n",
        ];
        let gone = other.iter().find(|line| !line.starts_with(key));
        let text = WORLD.replace(gone.expect("the other key"), "");
        refused(&text, &["sequences.symbol=page"], &expected);
    }
    let neither = WORLD.swap(
        "state = [\"y1\", \"y2\"]\nobservation = [\"x1\", \"x2\"]\n",
        "",
    );
    let message = "the table `sequences` needs the key `symbol` or `bins` (hidden Markov models), or the keys `state` and `observation` (filters)";
    refused(&neither, &[], message);
    let symbols = neither.replace("time = \"t\"", "time = \"t\"\nsymbol = \"page\"");
    refused_all(
        &symbols,
        r#"
 | the method "kernel_bayes" of fit `kb` estimates states from observations; name their columns as `sequences.state` and `sequences.observation` in place of `symbol` (this pipeline has sequences of symbols)
sequences.id=spare | `sequences.id` cannot be used with `symbol`: rows with symbols follow each other in time
"#,
    );
    refused_all(
        WORLD,
        r#"
fit.kb.method=spectral_hmm ; fit.kb.rank=2 | the method "spectral_hmm" of fit `kb` is fitted to sequences of symbols; name their columns as `sequences.symbol` in place of `state` and `observation` (this pipeline has states and observations)
fit.kb.method=dbmr ; fit.kb.rank=2 | the method "dbmr" of fit `kb` counts transitions between states; describe the rows in a section `[transitions]`
fit.kb.method=diffusion_map ; fit.kb.dimension=2 ; fit.kb.epsilon=1.0 | the method "diffusion_map" of fit `kb` is fitted to coordinates or states
"#,
    );
    let other = WORLD.swap("[sequences]", "[transitions]");
    let other = other.replace("observation = [\"x1\", \"x2\"]", "lag = 1");
    let message = "estimates states from observations; describe the rows in a section `[sequences]` with `state` and `observation` in place of `[transitions]` (this pipeline has transitions)";
    refused(&other, &[], message);
    let points = "[job]\nname = \"a\"\noutput = \"out\"\n[tables.a]\npath = \"a\"\n[points]\nsql = \"SELECT 1\"\nid = \"a\"\ncoordinates = \"b\"\n[[fit]]\nname = \"kf\"\nmethod = \"kalman\"\n";
    let message = "with `id`, `state` and `observation` in place of `[points]` (this pipeline has points without time)";
    refused(points, &[], message);
}

#[test]
fn keys_of_rows_that_do_not_apply_have_a_sentence_each() {
    let without = WORLD.swap("observation = [\"x1\", \"x2\"]\n", "");
    let message = "the table `sequences` needs the key `observation`: the columns that are measured in every row";
    refused(&without, &[], message);
    let without = WORLD.swap("time = \"t\"\n", "");
    refused(&without, &[], "the table `sequences` needs the key `time`");
    refused_all(
        &still(),
        r#"
sequences.time=t | `sequences.time` cannot be used with `sequences.id`
sequences.interval=1 | `sequences.interval` cannot be used with `sequences.id`
"#,
    );
    refused_all(
        WORLD,
        r#"
sequences.weight=w | `sequences.weight` is for symbols, which are counted
sequences.interval="1 step" | a whole number or a duration, not steps; leave it out
sequences.split=y1 | the column `y1` cannot be both `sequences.state` and `sequences.split`
sequences.observation=["x1", "x1"] | `sequences.observation` names the column `x1` twice
sequences.z=x1 | `sequences.z` cannot be used here: what is measured in a row is its `observation`
sequences.coordinates=x1 | or name them as `state` and `observation`
sequences.observatoin=x1 | unknown key `sequences.observatoin`; did you mean `observation`?
"#,
    );
}

#[test]
fn other_sections_are_about_counts() {
    refused_all(
        WORLD,
        r#"
names.from=none | `[names]` is about sets of states, which filters do not have; leave it out
validation.folds=5 | `[validation]` is not available for filters: rows with `sequences.split` = 'test' score them
job.incremental=true | `job.incremental` adds up counts, and filters are fitted to rows, not to counts
checks.max_drift=0.1 | `checks.max_drift` is about the number of transitions between sets of states
densities={ sql = "SELECT 1", from = "a", to = "b" } | `[densities]` needs pairs of points
output.distribution=true | `output.distribution` is about the next symbol of a sequence
output.rows=["y1"] | `output.rows` is "held-out", "all" or "none" for filters
output.rows=held-out | `output.rows` = "held-out" leaves training rows out, but without `sequences.split` every row is one
output.posteriors=true | `output.posteriors` is for rows without time, which have `sequences.id`
output.errors=true | `output.errors` is about rows with `split` = 'test', but without `sequences.split` every row is a training row
"#,
    );
    let message = "`output.errors` is about rows with time, and rows with `sequences.id` have none";
    refused(&still(), &["output.errors=true"], message);
    let message = "`output.posteriors` is about rows that are not training rows, but without `sequences.split` every row is one";
    refused(&still(), &["output.posteriors=true"], message);
    let sets = ["output.posteriors=true", "sequences.split=split"];
    let pipeline = parse(&still(), &sets).expect("a pipeline");
    assert!(pipeline.output.posteriors);
    let clicks = "[job]\nname = \"a\"\noutput = \"out\"\n[tables.a]\npath = \"a\"\n[sequences]\nsql = \"SELECT 1\"\ntime = \"t\"\nsymbol = \"b\"\n[[fit]]\nname = \"hmm\"\nmethod = \"spectral_hmm\"\nrank = 2\n[output]\nposteriors = true\n";
    let message =
        "`output.posteriors` is about the training rows of filters, which these rows do not have";
    refused(clicks, &[], message);
    let clicks = clicks.replace("posteriors", "errors");
    let message = "`output.errors` is about the estimates of filters, which these rows do not have";
    refused(&clicks, &[], message);
}

#[test]
fn keys_of_kernel_bayes_must_agree() {
    let rows = "fit.kb.supervision={ sql = \"SELECT * FROM world\" }";
    parse(WORLD, &[rows, "fit.kb.rule=kregbayes"]).expect("a pipeline");
    let prior = "fit.kb.prior={ sql = \"SELECT y1, y2 FROM world\" }";
    parse(&still(), &[prior]).expect("a pipeline");
    let nearest = "fit.kb.supervision={ sql = \"SELECT y1, y2 FROM world\", nearest = true }";
    parse(WORLD, &[nearest, "fit.kb.rule=kregbayes"]).expect("a pipeline");
    let message = "`fit.kb.supervision.nearest` is for rows with time";
    refused(&still(), &[nearest, "fit.kb.rule=kregbayes"], message);
    refused_all(
        WORLD,
        r#"
fit.kb.rule=kregbayes | `fit.kb.supervision` is missing: the rule "kregbayes" needs rows whose states are known
fit.kb.supervision={ sql = "SELECT * FROM world" } | `fit.kb.supervision` goes with `rule = "kregbayes"` alone
fit.kb.supervision={ sql = " " } ; fit.kb.rule=kregbayes | `fit.kb.supervision.sql` must not be empty
fit.kb.prior={ sql = "SELECT y1, y2 FROM world" } | `fit.kb.prior` is for rows without time, which have `sequences.id`
fit.kb.supervision={ sql = " ", nearest = true } ; fit.kb.rule=kregbayes | `fit.kb.supervision.sql` must not be empty
fit.kb.supervision={ sql = "SELECT 1", near = true } ; fit.kb.rule=kregbayes | `nearest`
fit.kb.supervision={ sql = "SELECT 1", f = ["y1", "y2"] } ; fit.kb.rule=kregbayes | `fit.kb.supervision` has `f`, which predicts the state whose nearest one is used; write `nearest = true` too
fit.kb.supervision={ sql = "SELECT 1", nearest = true, f = [] } ; fit.kb.rule=kregbayes | `fit.kb.supervision` has no expression in `f`
fit.kb.supervision={ sql = "SELECT 1", nearest = true, f = ["y1"] } ; fit.kb.rule=kregbayes | `fit.kb.supervision` has 1 expression in `f` for 2 columns of `sequences.state` (y1, y2); write one per column, in their order
fit.kb.delta=0.0 | `fit.kb.delta` must be finite and above 0, not 0
fit.kb.lambda=-1.0 | `fit.kb.lambda` must be finite and above 0, not -1
fit.kb.mu=0.0 | `fit.kb.mu` must be finite and above 0, not 0
fit.kb.exact=0 | `fit.kb.exact` must be at least 1, not 0
fit.kb.bandwidth={ state = 0.0, observation = 1.0 } | `fit.kb.bandwidth` must be finite and above 0, not 0
fit.kb.rank=3 | `fit.kb.rank` cannot be used here: method "kernel_bayes" takes no `rank`
"#,
    );
}

#[test]
fn keys_of_kalman_filters_must_agree() {
    let curve = format!("{WORLD}{CURVE}");
    parse(&curve, &[]).expect("a pipeline");
    let still = format!("{}{CURVE}", still());
    let message = "`fit.ukf.method` \"ukf\" follows a state in time, and rows with `sequences.id` have no time; use \"kernel_bayes\"";
    refused(&still, &[], message);
    refused_all(
        &curve,
        r#"
fit.ukf.f=["theta", "1"] | `fit.ukf.f` must have one expression per coordinate: 1, not 2
fit.ukf.h=["theta"] | `fit.ukf.h` has 1 expression for 2 columns of `sequences.observation` (x1, x2); write one per column, in their order
fit.ukf.estimate=["theta"] | `fit.ukf.estimate` has 1 expression for 2 columns of `sequences.state` (y1, y2)
fit.ukf.alpha=0.0 | `fit.ukf.alpha` must be finite and above 0, not 0
"#,
    );
    let bare = format!(
        "{WORLD}{}",
        CURVE.swap("estimate = [\"cos(theta)\", \"sin(theta)\"]\n", "")
    );
    refused(&bare, &[], "`fit.ukf.estimate` is missing");
    let bare = format!("{WORLD}{}", CURVE.swap("Q = [[0.04]]\n", ""));
    refused(&bare, &[], "`fit.ukf.Q` is missing");
    let own = format!(
        "{WORLD}\n[[fit]]\nname = \"ekf\"\nmethod = \"ekf\"\nf = [\"y1\"]\nh = [\"y1\", \"y2\"]\n"
    );
    let message = "`fit.ekf.f` has 1 expression for 2 coordinates (y1, y2); write one per coordinate, in their order";
    refused(&own, &[], message);
}

#[test]
fn the_schema_describes_filters() {
    let schema = json_schema();
    let table = &schema["$defs"]["Sequences"];
    for (key, value) in table["properties"].as_object().expect("keys") {
        assert!(value["description"].is_string(), "{key} has no description");
    }
    let methods = schema["$defs"]["Fit"]["oneOf"].as_array().expect("methods");
    for name in ["kernel_bayes", "kalman", "ekf", "ukf"] {
        let method = methods.iter().find(|method| method["title"] == name);
        let method = method.expect("the method");
        for (key, value) in method["properties"].as_object().expect("keys") {
            let is_described = value["description"].is_string() || key == "method";
            assert!(is_described, "{name}.{key} has no description");
        }
        assert_eq!(method["additionalProperties"], false);
    }
}

/// Six trajectories of five rows.
fn lake() -> Lake {
    let lake = Lake::new();
    let numbers = |by: usize| -> ArrayRef {
        let numbers = (0..30).map(|k| (k * by % 11) as f64 / 7.0);
        floats(numbers)
    };
    let split = (0..30).map(|k| if k < 20 { "train" } else { "test" });
    let split = texts(split);
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("id", integers((0..30).map(|k| k / 5))),
        ("t", integers((0..30).map(|k| k % 5))),
        ("y1", numbers(3)),
        ("y2", numbers(5)),
        ("x1", numbers(7)),
        ("x2", numbers(8)),
        ("split", split),
    ];
    lake.table("world.parquet", columns);
    lake.file("p.toml", WORLD);
    lake.file("curve.toml", &format!("{WORLD}{CURVE}"));
    lake.file("still.toml", &still());
    lake
}

// Two times a number of rows and two sums, for each row and fit.
#[test]
fn errors_of_steps_are_part_of_the_memory() {
    let lake = lake();
    let bytes = |keys: &str| {
        let shown = lake.line(&format!(
            "plan curve.toml --json --set sequences.split=split{keys}"
        ));
        let memory = shown.succeeds().json()["memory"].clone();
        let of = |key: &str| memory[key].as_u64().expect("a number");
        (of("bytes"), of("rows"))
    };
    let ((plain, rows), with_errors) = (bytes(""), bytes(" --set output.errors=true"));
    assert_eq!(with_errors, (plain + 2 * 24 * 2 * rows, rows));
}

#[test]
fn plans_say_what_is_fitted_and_filtered() {
    let lake = lake();
    let ran = lake.call("check", &[]).succeeds();
    assert_eq!(ran.out.trim(), "p.toml is valid: 1 table, 1 fit per model");
    let text = lake.call("plan", &[]).succeeds().out;
    for line in [
        "train  trajectories by id in the order of t; each row follows the one before; states y1, y2, observations x1, x2",
        "fit    kb: ",
        "rows   a second pass over the input filters all rows and writes the estimates of each row and the scores of each trajectory",
        "write  out: fits, tuning, factors, certificates, trajectories, estimates",
        "memory at most",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    let more = [
        "sequences.interval=1",
        "sequences.split=split",
        "output.rows=none",
        "fit.kb.rule=kregbayes",
        "fit.kb.supervision={ sql = \"SELECT * FROM world\" }",
    ];
    let text = lake.call_on("curve.toml", "plan", &more).succeeds().out;
    for line in [
        "rows 1 apart follow each other; states y1, y2, observations x1, x2; training rows have split = 'train'",
        "score  rows with split = 'test'",
        "supervision by id, t, y1, y2, x1, x2",
        "fit    ukf: unscented Kalman filter, all matrices given",
        "filters the rows that are not training rows and writes the scores of each trajectory",
        "write  out: fits, tuning, factors, certificates, trajectories\n",
    ] {
        assert!(
            format!("{text}\n").contains(line),
            "{line:?} is not in:\n{text}"
        );
    }
    let errors = ["sequences.split=split", "output.errors=true"];
    let text = lake.call("plan", &errors).succeeds().out;
    for line in [
        "writes the estimates of each row and the scores of each trajectory and the errors of each step",
        "write  out: fits, tuning, factors, certificates, errors, trajectories, estimates",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    let nearest = [
        "fit.kb.rule=kregbayes",
        "fit.kb.supervision={ sql = \"SELECT y1, y2 FROM world\", nearest = true }",
    ];
    let text = lake.call("plan", &nearest).succeeds().out;
    for line in [
        "fit    kb: kernel Bayes' rule with the nearest state of supervision, ",
        "supervision by y1, y2, the state nearest to each prediction\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    let posteriors = "--set sequences.split=split --set output.posteriors=true";
    let shown = lake.line(&format!("plan still.toml --json {posteriors}"));
    let shown = shown.succeeds().json();
    assert_eq!(shown["rows"]["key"]["id"][0]["name"], "id");
    assert_eq!(shown["estimates"], "held-out");
    let tables = shown["write"]["tables"].as_array().expect("tables");
    let tables: Vec<&str> = tables.iter().filter_map(Value::as_str).collect();
    let expected = "fits tuning factors certificates estimates posteriors";
    assert_eq!(tables.join(" "), expected);
    assert!(shown["memory"]["bytes"].as_u64() > Some(0), "{shown}");
    let explained = lake.call("explain", &[]).succeeds().out;
    assert!(
        explained.starts_with("SQL\nSELECT * FROM world\n"),
        "{explained}"
    );
}

#[test]
fn columns_must_fit_their_keys() {
    let lake = lake();
    let stateless = WORLD.swap("state = [\"y1\", \"y2\"]\n", "");
    lake.file("stateless.toml", &stateless);
    let table = r#"
        p.toml | sequences.state=y3 | `sequences.state` names the column `y3`, which the SQL does not give; did you mean `y1`?
        p.toml | sequences.observation=["x1", "split"] | column `split` is Utf8, but `sequences.observation` wants numbers; cast it in the SQL
        p.toml | sequences.sql=SELECT *, id AS n FROM world ; sequences.split=n | column `n` is Int64, but `sequences.split` wants text; cast it in the SQL
        p.toml | sequences.sql=SELECT *, [y1, y2] AS y, [x1, x2] AS x FROM world ; sequences.state=["y", "y1"] | column `y` is a list of coordinates and must be the only one in `sequences.state`
        curve.toml | fit.ukf.f=["alpha + 0.4"] | `fit.ukf.f.0`: the expression `alpha + 0.4` cannot be used
        stateless.toml |  | the table `sequences` needs the key `state`: filters are fitted to rows whose states are known
        still.toml | fit.kb.prior={ sql = "SELECT y1, y2, 'a' AS weight FROM world" } | column `weight` is Utf8, but `prior.weight` wants numbers
        p.toml | sequences.sql=SELECT *, id AS rows FROM world ; sequences.trajectory=rows | the table `trajectories` would have two columns `rows`; rename the column of the SQL with AS
    "#;
    for [file, sets, expected] in cases(table) {
        let sets = sets.split(" ; ").filter(|set| !set.is_empty());
        let ran = lake.call_on(&file, "check", &sets.collect::<Vec<_>>());
        ran.fails(2, &expected);
    }
    let table = r#"
        SELECT x1, x2, y1 FROM world | `fit.kb.supervision`: `supervision.state` names the column `y2`, which the SQL does not give
        SELECT x1, x2, y1, y2, t FROM world | the SQL of [supervision] gives the column `t` but not `id`; give all columns of trajectory and time, or none of them
        SELECT x1, x2, y1, y2, id, CAST(t AS INT) AS t FROM world | column `t` is Int32 in the SQL of [supervision], but Int64 in the SQL of [sequences]; cast it in the SQL
        SELECT x1 FROM nowhere | the SQL of [supervision] cannot be planned
    "#;
    let of_nearest = r#"
        SELECT y1 FROM world | `supervision.state` names the column `y2`, which the SQL does not give
        SELECT y1, y2, t FROM world | the SQL of [supervision] gives the column `t`, but with `nearest = true` every state is for all rows
    "#;
    let of_function = r#"
        SELECT y1, y2 FROM world | `fit.kb.supervision.f.1`: the expression `y3 + 1` cannot be used
    "#;
    let by_function = ", nearest = true, f = [\"y1\", \"y3 + 1\"]";
    for (table, key) in [
        (table, ""),
        (of_nearest, ", nearest = true"),
        (of_function, by_function),
    ] {
        for [sql, expected] in cases(table) {
            let supervision = format!("fit.kb.supervision={{ sql = \"{sql}\"{key} }}");
            let sets = ["fit.kb.rule=kregbayes", &supervision];
            lake.call("check", &sets).fails(2, &expected);
        }
    }
    let lists = "sequences.sql=SELECT *, [y1, y2] AS y, [x1, x2] AS x FROM world";
    lake.call("check", &[lists, "sequences.state=y"]).succeeds();
}
