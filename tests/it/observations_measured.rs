//! Filters of measurements without known states, and observations of which some numbers are
//! missing.

use crate::cli::integers;
use crate::lake::{Lake, Rows, Swap, cases, floats, words};
use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use serde_json::json;

/// A random walk that two sensors show, as one number and as a place with a speed.
const PIPELINE: &str = r#"
job = { name = "sensors", output = "out" }
tables.world.path = "world.parquet"
[sequences]
sql = "SELECT * FROM world"
trajectory = "id"
time = "t"
observation = ["a", "b"]

[[fit]]
name = "walk"
method = "kalman"
state = ["level"]
F = [[1]]
H = [[1], [1]]
Q = [[0.5]]
R = [[1, 0], [0, 1]]
x0 = [0]
P0 = [[1]]

[[fit]]
name = "moving"
method = "ekf"
f = ["x0 + x1", "x1"]
h = ["x0", "x0"]
Q = [[0.1, 0], [0, 0.1]]
R = [[1, 0], [0, 1]]
x0 = [0, 1]
P0 = [[1, 0], [0, 1]]
"#;

type Observation = [Option<f64>; 2];

/// Two trajectories. The means of the first one are worked out in the unit tests of the filter.
fn world() -> Vec<(i64, i64, Observation)> {
    let first: [Observation; 6] = [
        [Some(1.0), Some(1.2)],
        [Some(2.0), None],
        [None, Some(3.1)],
        [Some(4.0), Some(4.2)],
        [None, None],
        [Some(6.0), Some(f64::NAN)],
    ];
    let of_second = |t: i64| [Some(t as f64 * 0.5), Some(1.0 + t as f64)];
    let rows = first.into_iter().enumerate();
    let rows = rows.map(|(t, x)| (7, t as i64, x));
    rows.chain((0..4).map(|t| (9, t, of_second(t)))).collect()
}

fn table(lake: &Lake, name: &str) {
    let rows = world();
    let column = |at: usize| floats(rows.iter().map(|(.., x)| x[at]));
    let columns = vec![
        ("id", integers(rows.iter().map(|row| row.0))),
        ("t", integers(rows.iter().map(|row| row.1))),
        ("a", column(0)),
        ("b", column(1)),
        // A state that only some pipelines name.
        ("y", floats(rows.iter().map(|row| row.1 as f64))),
    ];
    lake.table(name, columns);
}

fn lake() -> Lake {
    let lake = Lake::new();
    table(&lake, "world.parquet");
    lake.file("p.toml", PIPELINE);
    lake
}

fn maybe(rows: &Rows, name: &str) -> Vec<Option<f64>> {
    let column = rows.column(name).as_primitive::<Float64Type>();
    column.iter().collect()
}

/// The first six rows are those of `a_missing_sensor_leaves_the_other_one`.
#[test]
fn given_systems_filter_measurements_alone() {
    let lake = lake();
    let ran = lake.runs(&[]);
    ran.says("sensors: 9 measured rows in 10 rows\n");
    ran.says("\nfiltered 10 rows, 4 rows without a whole observation (2 without b, 1 without a, 1 without any number)\n");
    assert!(!ran.out.contains("dropped"), "{}", ran.out);
    let found = lake.read("estimates");
    let names = found.0.schema();
    let names: Vec<&str> = names.fields().iter().map(|f| f.name().as_str()).collect();
    let expected = "id t walk_mean walk_variance walk_decoded walk_log_score walk_was_updated \
                    moving_mean moving_variance moving_decoded moving_log_score moving_was_updated";
    assert_eq!(names, words(expected));
    let means = found.lists("walk_mean");
    let expected = [0.733, 1.309, 2.184, 3.456, 3.456, 4.909];
    for (mean, expected) in means.iter().zip(expected) {
        assert!((mean[0] - expected).abs() < 5e-4, "{means:?}");
    }
    assert!(
        found
            .lists("moving_mean")
            .iter()
            .all(|mean| mean.len() == 2)
    );
    let scores = maybe(&found, "walk_log_score");
    let missing: Vec<bool> = scores.iter().map(Option::is_none).collect();
    let expected: Vec<bool> = (0..10).map(|at| at == 4).collect();
    assert_eq!(missing, expected);

    let fits = lake.read("fits");
    assert_eq!(fits.texts("fit"), ["moving", "walk"]);
    let states = fits.column("state").as_list::<i32>();
    let names = |at: usize| -> Vec<String> {
        let names = states.value(at);
        let names = names.as_string::<i32>().iter().flatten();
        names.map(str::to_string).collect()
    };
    assert_eq!([names(0), names(1)], [vec!["x0", "x1"], vec!["level"]]);
    for column in words("train_mse train_mse_decoded test_mse test_mse_decoded") {
        assert_eq!(fits.column(column).null_count(), 2, "{column}");
    }
    let known: Vec<f64> = scores.into_iter().flatten().collect();
    let mean = known.iter().sum::<f64>() / known.len() as f64;
    assert!((fits.floats("mean_log_score")[1] - mean).abs() < 1e-12);
    let sums = lake.read("trajectories");
    assert_eq!(sums.integers("missing"), [4, 0]);
    assert_eq!(sums.column("walk_mse").null_count(), 2);

    let record = lake.record();
    assert_eq!(record["measured"], 9);
    let model = &record["models"][0];
    assert_eq!(model["missing"], 4);
    assert_eq!(model["missing_numbers"], json!({"a": 1, "b": 2}));
    assert_eq!(model["fits"][0]["state"], json!(["level"]));
    assert_eq!(model["fits"][0]["not_updated"], 0);
}

#[test]
fn a_result_without_known_states_is_used_like_others() {
    let lake = lake();
    let text = lake.call("plan", &[]).succeeds().out;
    for line in [
        "filter trajectories by id in the order of t; each row follows the one before; observations a, b, no known states",
        "walk: Kalman filter, all matrices given; state level",
        "moving: extended Kalman filter, all matrices given; state x0, x1",
        "memory at most",
    ] {
        assert!(text.contains(line), "{line:?} is not in:\n{text}");
    }
    lake.runs(&[]);
    // New rows have the same estimates.
    table(&lake, "new.parquet");
    let ran = lake.assign(&["tables.world.path=new.parquet"]).succeeds();
    ran.says(
        "10 rows, 4 rows without a whole observation (2 without b, 1 without a, 1 without any number)",
    );
    let (old, new) = (lake.tables_of("out"), lake.tables_of("new"));
    for table in ["estimates", "trajectories"] {
        assert!(old[table] == new[table], "{table}");
    }
    // Lists are as good as columns.
    let by = "SELECT id, t, [a, b] AS z FROM world";
    let lists = [
        &format!("sequences.sql={by}") as &str,
        "sequences.observation=z",
        "job.output=lists",
    ];
    lake.run(&lists)
        .succeeds()
        .says("(2 without z[2], 1 without z[1], 1 without any number)");
    assert!(lake.tables_of("lists")["estimates"] == old["estimates"]);
    let same = lake.compare(&["out", "lists"]);
    assert_eq!(same["models"][0]["fits"][0]["means"]["largest"], 0.0);
    // Parts are filtered as the whole.
    let by = "SELECT *, id % 4 AS part FROM world";
    let parts = [
        &format!("sequences.sql={by}") as &str,
        "sequences.partition_by=part",
        "job.output=parts",
    ];
    lake.run(&parts)
        .succeeds()
        .says("part 1: filtered 4 rows\n")
        .says("part 3: filtered 6 rows, 4 rows without");
    let of_parts = lake.read_at("parts/estimates");
    let whole = lake.read("estimates");
    let (parts, mut all) = (of_parts.lists("moving_mean"), whole.lists("moving_mean"));
    all.rotate_left(6);
    assert_eq!(parts, all);
    // With the split of test rows, the score is theirs.
    let by = "SELECT *, CASE WHEN id = 9 THEN 'test' ELSE 'train' END AS split FROM world";
    let split = [
        &format!("sequences.sql={by}") as &str,
        "sequences.split=split",
        "job.output=split",
    ];
    lake.run(&split).succeeds();
    let scores = lake.read_at("split/fits").floats("mean_log_score");
    let expected = lake.read("trajectories").floats("walk_mean_log_score");
    assert_eq!(scores[1], expected[1]);
}

#[test]
fn what_a_filter_without_known_states_lacks_is_named() {
    let lake = lake();
    let kernel = PIPELINE.split("[[fit]]").next().expect("a part");
    let kernel = format!("{kernel}[[fit]]\nname = \"kb\"\nmethod = \"kernel_bayes\"\n");
    lake.file("kernel.toml", &kernel);
    lake.file("noise.toml", &PIPELINE.swap("Q = [[0.5]]\n", ""));
    let first = PIPELINE.swap("P0 = [[1, 0], [0, 1]]\n", "");
    lake.file("first.toml", &first);
    let table = r#"
        kernel.toml |  | the table `sequences` needs the key `state`: filters are fitted to rows whose states are known, and `kb` has no other form
        noise.toml |  | `fit.walk.Q` is missing: without `sequences.state` no row has a state that it could be fitted to
        first.toml |  | `fit.moving.P0` is missing: without `sequences.state`
        p.toml | output.errors=true ; sequences.sql=SELECT *, 'test' AS split FROM world ; sequences.split=split | `output.errors` is about the errors of estimates
        p.toml | fit.walk.state=[] | `fit.walk.state` must have at least one name
        p.toml | fit.walk.state=["a", "b"] | `fit.walk.state` has 2 names for 1 row of `F`; write one per number of the state
        p.toml | fit.walk.F=[[1, 0], [0, 1]] ; fit.walk.state=["a", "a"] | `fit.walk.state` names `a` twice
        p.toml | sequences.state=y | `fit.walk.state` names the numbers of a state that no row has
        p.toml | fit.moving.state=["x0"] | `fit.moving.f` must have one expression per coordinate: 1, not 2
        p.toml | fit.moving.f=["x0 + x2", "x1"] | `fit.moving.f.0`: the expression `x0 + x2` cannot be used
        p.toml | fit.moving.state=["x0", "x1"] ; fit.moving.estimate=["x0"] | `fit.moving.estimate` gives the columns of `sequences.state`, which this pipeline does not have
    "#;
    for [file, sets, expected] in cases(table) {
        let sets = sets.split(" ; ").filter(|set| !set.is_empty());
        let ran = lake.call_on(&file, "check", &sets.collect::<Vec<_>>());
        ran.fails(2, &expected);
    }
    // A matrix of another shape is found when it is fitted.
    lake.run(&["fit.walk.H=[[1]]"])
        .fails(2, "`H` must have 2 rows of 1 number, but it has 1 row");
}

/// The pipeline with the state `y` and a filter of kernels.
fn of_kernels() -> String {
    let fit = "[[fit]]\nname = \"kb\"\nmethod = \"kernel_bayes\"\nlambda = 0.01\nbandwidth = { state = 1.0, observation = 1.0 }\n";
    let sections = PIPELINE.split("[[fit]]").next().expect("a part");
    format!("{sections}state = [\"y\"]\n{fit}")
}

/// Kernels compare whole observations, and the summary says so.
#[test]
fn kernels_predict_rows_with_a_part_of_an_observation() {
    let lake = lake();
    let ran = lake.runs_text(&of_kernels());
    ran.says("4 rows without a whole observation (2 without b, 1 without a, 1 without any number)");
    ran.says("predicted through 3 rows with a part of an observation: kernels compare whole ones");
    let rows = lake.read("estimates");
    let updated = rows.column("kb_was_updated").as_boolean();
    let scores = maybe(&rows, "kb_log_score");
    assert_eq!(scores.len(), 10);
    for (at, score) in scores.iter().enumerate() {
        let is_whole = ![1, 2, 4, 5].contains(&at);
        assert!(is_whole || !updated.value(at), "{at}");
        assert_eq!(score.is_some(), is_whole, "{at}");
    }
    assert!(updated.value(0) && updated.value(6));
}

/// Pictures have the names of the numbers, and say which rows of kernels have no variance: the
/// first and the fourth row of the first trajectory, in which a weight is negative.
#[cfg(feature = "report")]
#[test]
fn pictures_say_what_estimates_are() {
    let lake = lake();
    lake.runs(&[]);
    let picture = |name: &str| {
        lake.line("report out --format svg -o pictures").succeeds();
        let file = lake.path(&format!("pictures/{name}.svg"));
        std::fs::read_to_string(file).expect("a picture")
    };
    let found = picture("estimates-walk-0");
    let alt = "Estimates of level by walk from a, b, with two standard deviations, over 6 rows, \
               trajectory 7.<";
    assert!(found.contains(alt), "{found}");
    assert!(!found.contains("known state"), "{found}");
    let draw = "report out --format svg -o pictures --trajectory";
    lake.line(&format!("{draw} 9")).succeeds();
    let file = lake.path("pictures/estimates-walk-0.svg");
    let second = std::fs::read_to_string(file).expect("a picture");
    assert!(second.contains("over 4 rows, trajectory 9.<"), "{second}");
    lake.line(&format!("{draw} 8"))
        .fails(2, "no estimates of a trajectory 8");

    lake.runs_text(&of_kernels());
    let variances = lake.read("estimates").lists("kb_variance");
    let none = variances.iter().take(6).filter(|v| v[0] == 0.0);
    assert_eq!(none.count(), 2);
    let found = picture("estimates-kb-0");
    assert!(
        found.contains("The weights of 2 rows give no variance."),
        "{found}"
    );
    assert!(found.contains(">no variance<"), "{found}");
}
