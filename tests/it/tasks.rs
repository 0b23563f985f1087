//! Compares runs whose counts and fits are tasks with runs of one process. The tasks run in every
//! order and more than once.

use crate::cli::integers;
use crate::inside::{InProcess, RESOURCES, RunResult, Schedule, assert_equal_results, run_in};
use crate::lake::{Lake, Swap, floats, integers_or_null, texts_or_null};
use arrow::array::ArrayRef;
use gyre::error::Kind;
use gyre::run::planned::{kinds, perform_task};
use gyre::run::workers::nodes::Task;
use gyre::store::Stores;
use object_store::ObjectStoreExt;
use proptest::prelude::*;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::fs;
use std::path::PathBuf;

/// A row of trajectory `id` in group `g`. A row without a time is dropped. A row without a state is
/// in no pair.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    pub g: i64,
    pub id: i64,
    pub t: Option<i64>,
    pub state: Option<i64>,
}

/// Walks on two halves of `states`, with gaps: `groups` groups of `each` trajectories.
fn walks(seed: u64, groups: i64, each: i64, steps: i64, states: i64) -> Vec<Row> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut rows = Vec::new();
    for id in 0..groups * each {
        let mut state = random.random_range(0..states);
        for t in 0..steps {
            let half = 2 * state / states;
            let half = (half + i64::from(random.random_range(0..8) == 0)) % 2;
            state = half * states / 2 + random.random_range(0..states / 2);
            if random.random_range(0..12) > 0 {
                rows.push(Row {
                    g: id % groups,
                    id,
                    t: (random.random_range(0..40) > 0).then_some(t),
                    state: (random.random_range(0..30) > 0).then_some(state),
                });
            }
        }
    }
    rows
}

pub fn columns(rows: &[Row]) -> Vec<(&'static str, ArrayRef)> {
    let text = |of: &dyn Fn(&Row) -> Option<String>| texts_or_null(rows.iter().map(of));
    let optional = |of: &dyn Fn(&Row) -> Option<i64>| integers_or_null(rows.iter().map(of));
    let float = |of: &dyn Fn(&Row) -> Option<f64>| floats(rows.iter().map(of));
    vec![
        ("g", integers(rows.iter().map(|r| r.g))),
        ("sea", text(&|r| Some(format!("sea {}", r.g)))),
        ("id", integers(rows.iter().map(|r| r.id))),
        ("t", optional(&|r| r.t)),
        ("state", optional(&|r| r.state)),
        ("name", text(&|r| r.state.map(|s| format!("s{s}")))),
        ("x", float(&|r| r.state.map(|s| s as f64 + 0.25))),
        ("half", optional(&|r| r.state.map(|s| i64::from(s > 3)))),
        ("to", optional(&|r| Some(r.id % 3 + r.t.unwrap_or(0) % 4))),
        ("n", optional(&|r| Some(r.t.unwrap_or(0).rem_euclid(4)))),
        ("w", float(&|r| r.t.map(|t| 1.0 / (t as f64 + 3.0)))),
    ]
}

/// Writes rows to `n` files, in their order.
fn files(lake: &Lake, rows: &[Row], n: usize) {
    for (at, rows) in rows.chunks(rows.len().div_ceil(n)).enumerate() {
        lake.table(&format!("rows/{at:03}.parquet"), columns(rows));
    }
}

/// Distributes rows randomly over `n` files.
fn scatter(lake: &Lake, rows: &[Row], n: usize, random: &mut Pcg64) {
    let mut of_files = vec![Vec::new(); n];
    for row in rows {
        of_files[random.random_range(0..n)].push(row.clone());
    }
    for (at, mut rows) in of_files.into_iter().enumerate() {
        rows.shuffle(random);
        lake.table(&format!("rows/{at:03}.parquet"), columns(&rows));
    }
}

const TWO_FITS: &str = r#"
[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
restarts = 3
[[fit]]
name = "svd"
method = "svd"
rank = [1, 2]
restarts = 3
"#;

const TRAJECTORIES: &str = r#"
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
"#;

/// A pipeline over the files in `rows/` with keys of its transitions and further tables.
fn pipeline(keys: &str, rest: &str) -> String {
    format!(
        "[job]\nname = \"tasks\"\noutput = \"FOLDER/out\"\n[names]\nfrom = \"none\"\n[tables.rows]\npath = \"FOLDER/rows/\"\n\
         [transitions]\n{keys}\n{rest}"
    )
}

const SCHEDULES: [Schedule; 4] = [
    Schedule::InOrder,
    Schedule::Shuffled(5),
    Schedule::Twice,
    Schedule::Lost,
];

/// Runs a pipeline in one process, and as tasks with each of the given schedules. Returns the
/// result of the first run and the rounds of the last.
async fn check_schedules(
    lake: &Lake,
    text: &str,
    schedules: &[Schedule],
) -> (RunResult, Vec<&'static str>) {
    let expected = run_in(lake, text, None).await.map_err(|e| e.full());
    let expected = expected.expect("a run of one process");
    assert!(expected.tables.len() > 10);
    let (mut rounds, mut single_task_reason) = (Vec::new(), None);
    for schedule in schedules {
        let nodes = InProcess::new(*schedule);
        let result = run_in(lake, text, Some(nodes.clone())).await;
        let result = result.map_err(|e| e.full()).expect("a run of tasks");
        assert_equal_results(&expected, &result, schedule);
        (rounds, single_task_reason) = (nodes.rounds(), result.single_task_reason);
    }
    let result = RunResult {
        single_task_reason,
        ..expected
    };
    (result, rounds)
}

/// As `check_schedules`, for rows that several tasks count. Asserts the rounds.
async fn check(lake: &Lake, text: &str, rounds: &[&str]) {
    let (result, found) = check_schedules(lake, text, &[Schedule::Shuffled(3)]).await;
    assert_eq!(found, rounds);
    assert_eq!(result.single_task_reason, None);
}

/// As `check_schedules`, for rows that one task counts. Asserts the reason.
async fn check_single_task(lake: &Lake, text: &str, because: &str) {
    let (result, found) = check_schedules(lake, text, &[Schedule::Shuffled(3)]).await;
    assert_eq!(found, ["count", "fit"]);
    let single_task_reason = result.single_task_reason.expect("a reason");
    let what = "all files counted by one task, because ";
    assert_eq!(single_task_reason.strip_prefix(what), Some(because));
}

const ROUNDS_OF_ROWS: [&str; 4] = ["deal", "sum", "count", "fit"];
const ROUNDS_OF_ONE_MATRIX: [&str; 5] = ["deal", "sum", "add", "count", "fit"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_and_lags_do_not_depend_on_the_order_of_tasks() {
    let lake = Lake::new();
    files(&lake, &walks(1, 3, 8, 40, 8), 5);
    let keys = "state = \"state\"\npartition_by = [\"sea\"]\nlag = [1, 3, \"2 steps\"]";
    let text = pipeline(&(TRAJECTORIES.to_string() + keys), TWO_FITS);
    let (_, rounds) = check_schedules(&lake, &text, &SCHEDULES).await;
    assert_eq!(rounds, ROUNDS_OF_ROWS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_matrix_is_summed_by_sources() {
    let lake = Lake::new();
    let mut random = Pcg64::seed_from_u64(1);
    scatter(&lake, &walks(2, 1, 20, 40, 10), 7, &mut random);
    for state in [
        "state = \"state\"\nlag = 2",
        "state = [\"name\", \"half\"]\nlag = [1, \"1 step\"]",
        "bins = { x = { step = 2.0 } }\nlag = 1",
        "bins = { x = { bounds = [1, 7], boxes = 5 } }\nlag = 1\nwindow = \"strided\"",
        "state = \"name\"\nlag = [1, 2, 4]\nwindow = \"effective\"\ninterval = 1",
    ] {
        let text = pipeline(&(TRAJECTORIES.to_string() + state), TWO_FITS);
        check(&lake, &text, &ROUNDS_OF_ONE_MATRIX).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gaps_and_ties_equal_those_of_one_process() {
    let lake = Lake::new();
    let mut random = Pcg64::seed_from_u64(7);
    scatter(&lake, &walks(7, 2, 12, 50, 8), 5, &mut random);
    let rows = TRAJECTORIES
        .swap("*", "g, id, t / 2 AS t, t AS n, state")
        .swap("time = \"t\"", "time = [\"t\", \"n\"]");
    for keys in [
        "lag = [1, 2]\nduplicates = \"first\"\nmax_gap = 2",
        "lag = [1, 2]\nduplicates = \"last\"",
        "lag = \"3 steps\"\nmax_gap = 1",
        "lag = 5\ntolerance = 2\nduplicates = \"first\"",
    ] {
        let keys = format!("{rows}state = \"state\"\npartition_by = \"g\"\n{keys}");
        check(&lake, &pipeline(&keys, TWO_FITS), &ROUNDS_OF_ROWS).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pairs_and_counts_need_no_shuffle() {
    let lake = Lake::new();
    files(&lake, &walks(3, 2, 10, 30, 8), 4);
    let keys = [
        (
            "sql = \"SELECT * FROM rows\"\nsource = \"name\"\ntarget = \"to\"",
            &["sum", "add", "count", "fit"][..],
        ),
        (
            "sql = \"SELECT * FROM rows WHERE id <> 3\"\nsource = [\"name\", \"half\"]\ntarget = \"to\"\ncount = \"n\"\npartition_by = \"g\"",
            &["sum", "count", "fit"],
        ),
    ];
    for (keys, rounds) in keys {
        check(&lake, &pipeline(keys, TWO_FITS), rounds).await;
    }
    let validation = "[validation]\nbootstrap = 3\nfolds = 2\ngroups = 6\n";
    let text = pipeline(keys[0].0, &(validation.to_string() + TWO_FITS));
    check(&lake, &text, keys[0].1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_without_fits_equal_those_of_one_process() {
    let lake = Lake::new();
    files(&lake, &walks(5, 2, 10, 30, 8), 4);
    let trajectories =
        TRAJECTORIES.to_string() + "state = \"state\"\npartition_by = [\"sea\"]\nlag = [1, 3]";
    let pairs = "sql = \"SELECT * FROM rows\"\nsource = \"name\"\ntarget = \"to\"";
    for keys in [&trajectories, pairs] {
        let text = pipeline(keys, "");
        let expected = run_in(&lake, &text, None).await.map_err(|e| e.full());
        let expected = expected.expect("a run of one process");
        let nodes = InProcess::new(Schedule::Shuffled(3));
        let result = run_in(&lake, &text, Some(nodes)).await;
        let result = result.map_err(|e| e.full()).expect("a run of tasks");
        assert_equal_results(&expected, &result, &keys);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resamples_ranks_tests_and_given_sets_equal_those_of_one_process() {
    let lake = Lake::new();
    files(&lake, &walks(4, 2, 12, 50, 8), 6);
    let keys = "state = \"name\"\npartition_by = \"g\"\nlag = [1, 2]\nconnected = true";
    let rest = r#"
[validation]
bootstrap = 3
folds = 2
groups = 5
markov = true
[[fit]]
name = "auto"
method = "dbmr"
rank = "auto"
rule = "bic"
ranks = [1, 2, 3]
restarts = 2
[[fit]]
name = "own"
method = "given"
affiliation = "half"
[[fit]]
name = "soft"
method = "svd"
clusters = "pcca"
rank = 2
"#;
    let text = pipeline(&(TRAJECTORIES.to_string() + keys), rest);
    check(&lake, &text, &ROUNDS_OF_ROWS).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_cannot_be_split_are_counted_by_one_task() {
    let lake = Lake::new();
    files(&lake, &walks(5, 2, 8, 30, 8), 3);
    let keys = "state = \"state\"\nlag = 1\npartition_by = \"g\"\n";
    let rows = TRAJECTORIES.to_string() + keys;
    let text = pipeline(&(rows.clone() + "weight = \"w\""), TWO_FITS);
    check_single_task(&lake, &text, "weights are no integers").await;
    let rows = rows.replace("* FROM rows", "DISTINCT g, id, t, state FROM rows");
    let text = pipeline(&rows, TWO_FITS);
    check_single_task(&lake, &text, "the SQL has DISTINCT").await;
    let gyre = r#"
sql = "SELECT trajectory, time, x, y FROM double_gyre(12, 6, 40)"
trajectory = "trajectory"
time = "time"
lag = 40
bins = { x = { bounds = [0, 2], boxes = 12 }, y = { bounds = [0, 1], boxes = 6 } }
"#;
    let text = pipeline(gyre, TWO_FITS).replace("[tables.rows]\npath = \"FOLDER/rows/\"\n", "");
    check_single_task(&lake, &text, "`double_gyre()` is not a table of files").await;
}

/// Hive folders, a glob, a single file, several tables, and parameters of the SQL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_read_the_tables_of_the_plan() {
    let lake = Lake::new();
    for (at, rows) in walks(6, 2, 8, 40, 8).chunks(100).enumerate() {
        let file = format!("rows/day={}/of a%20 b/{at}.parquet", at % 3);
        lake.table(&file, columns(rows));
        lake.table(&format!("more/{at}.parquet"), columns(rows));
    }
    let one = "state = \"name\"\nlag = 1\npartition_by = [\"day\"]\n";
    let sql = "sql = \"SELECT *, day + $shift AS other FROM rows WHERE id < $most\"";
    let keys = TRAJECTORIES.swap("sql = \"SELECT * FROM rows\"", sql) + one;
    let rest = "[transitions.parameters]\nshift = 3\nmost = 14.5\n".to_string() + TWO_FITS;
    let tables =
        "[tables.other]\npath = [\"FOLDER/more/2.parquet\", \"FOLDER/more/[13].parquet\"]\n";
    let text = pipeline(&keys, &(rest.clone() + tables));
    check(&lake, &text, &ROUNDS_OF_ROWS).await;
    let text = text
        .replace("FROM rows", "FROM other")
        .replace("day + $shift AS other", "g + $shift AS day");
    check(&lake, &text, &ROUNDS_OF_ROWS).await;
    // A file that is not in the plan.
    let text = pipeline(&keys, &rest);
    let expected = run_in(&lake, &text, None).await.expect("a run");
    let path: PathBuf = lake.path("rows/day=0/of a%20 b/late.parquet");
    let (from, to) = (lake.path("rows/day=0/of a%20 b/0.parquet"), path.clone());
    let nodes = InProcess::before(Schedule::InOrder, move |_| {
        fs::copy(&from, &to).expect("a file");
    });
    let result = run_in(&lake, &text, Some(nodes)).await;
    assert_equal_results(&expected, &result.expect("a run of tasks"), &"late");
    fs::remove_file(path).expect("the file exists");
    // A file that was replaced after the plan was made.
    let to = lake.path("rows/day=1/of a%20 b/1.parquet");
    let from = lake.path("rows/day=0/of a%20 b/0.parquet");
    let nodes = InProcess::before(Schedule::InOrder, move |stage| {
        if stage == "deal" {
            fs::copy(&from, &to).expect("a file");
        }
    });
    let failed = run_in(&lake, &text, Some(nodes)).await;
    let failed = failed.expect_err("another file");
    assert_eq!(failed.kind(), Kind::Conflict, "{}", failed.full());
    assert!(failed.full().contains("was replaced"), "{}", failed.full());
}

/// Inputs and output are in a store without a local folder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_find_stores_by_url() {
    let lake = Lake::new();
    let place = Stores::default().open("memory:///tasks").expect("memory");
    for (at, rows) in walks(11, 2, 8, 30, 8).chunks(150).enumerate() {
        lake.table("file.parquet", columns(rows));
        let bytes = lake.bytes("file.parquet");
        let folder = place.path.clone().join("rows");
        let path = folder.join(format!("{at}.parquet"));
        place.store.put(&path, bytes.into()).await.expect("a store");
    }
    let keys = format!("{TRAJECTORIES}state = \"name\"\nlag = 1\npartition_by = \"g\"");
    let rest = TWO_FITS.to_string() + "[store.options]\ntimeout = \"5s\"\n";
    let text = pipeline(&keys, &rest).replace("FOLDER", "memory:///tasks");
    check(&lake, &text, &ROUNDS_OF_ROWS).await;
}

/// Small integers represent themselves. One large state changes the representation in all tasks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_states_in_some_files_are_equal_in_all_files() {
    let lake = Lake::new();
    let mut rows = walks(7, 2, 8, 30, 8);
    let last = rows.iter_mut().rfind(|row| row.state.is_some());
    last.expect("a state").state = Some(-5);
    files(&lake, &rows, 4);
    for partition in ["", "partition_by = \"g\""] {
        let keys = format!("{TRAJECTORIES}state = \"state\"\nlag = 1\n{partition}");
        let rounds = if partition.is_empty() {
            &ROUNDS_OF_ONE_MATRIX[..]
        } else {
            &ROUNDS_OF_ROWS
        };
        check(&lake, &pipeline(&keys, TWO_FITS), rounds).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_count_gives_the_error_of_one_process() {
    let lake = Lake::new();
    files(&lake, &walks(9, 2, 6, 20, 8), 3);
    let keys = format!("{TRAJECTORIES}state = \"state\"\nlag = 1\npartition_by = \"g\"");
    let text = pipeline(&keys, TWO_FITS);
    for (from, to) in [
        ("FROM rows", "FROM rows WHERE id > 100"),
        ("lag = 1", "lag = 100"),
        ("time = \"t\"", "time = \"n\""),
    ] {
        let text = text.replace(from, to);
        let expected = run_in(&lake, &text, None).await.expect_err(to);
        let actual = run_in(&lake, &text, Some(InProcess::new(Schedule::InOrder))).await;
        let actual = actual.expect_err(to);
        assert_eq!(expected.kind(), actual.kind(), "{}", actual.full());
        let (expected, actual) = (expected.to_string(), actual.to_string());
        // The first duplicate trajectory depends on the order of tasks.
        let begin = |text: &str| text.split(" has two rows").next().map(str::len);
        if expected.contains("has two rows") {
            assert!(actual.contains("has two rows") && begin(&expected).is_some())
        } else {
            assert_eq!(expected, actual)
        }
    }
    let text = text.replace("[names]", "incremental = true\n[names]");
    let refused = run_in(&lake, &text, Some(InProcess::new(Schedule::InOrder))).await;
    let refused = refused.expect_err("increments");
    assert_eq!(refused.kind(), Kind::Spec);
    let shown = refused.to_string();
    assert!(shown.contains("`job.incremental`"), "{shown}");
}

/// A repeated run has the same tasks. A damaged part is not used as an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_depend_only_on_plan_and_input() {
    let lake = Lake::new();
    files(&lake, &walks(10, 2, 8, 30, 8), 4);
    let keys = format!("{TRAJECTORIES}state = \"name\"\nlag = 1\npartition_by = \"g\"");
    let text = pipeline(&keys, TWO_FITS);
    let schedules = [Schedule::InOrder, Schedule::Shuffled(2)];
    let [one, other] = schedules.map(InProcess::new);
    for nodes in [&one, &other] {
        let ran = run_in(&lake, &text, Some(nodes.clone())).await;
        ran.expect("a run");
    }
    let submitted = |nodes: &InProcess| nodes.submitted.lock().expect("a list").clone();
    assert_eq!(submitted(&one), submitted(&other));

    let work = lake.path("out/work");
    let nodes = InProcess::before(Schedule::InOrder, move |stage| {
        if stage == "count" {
            damage(&work);
        }
    });
    let failed = run_in(&lake, &text, Some(nodes)).await.expect_err("damage");
    assert_eq!(failed.kind(), Kind::Store, "{}", failed.full());
    assert!(!lake.path("out/current").exists());

    let strange = perform_task(&kinds(), b"gyre task 0.0.0\n", &RESOURCES).await;
    let strange = strange.expect_err("another version");
    assert_eq!(strange.kind(), Kind::Spec);
    assert!(strange.to_string().contains("run one version"), "{strange}");
    let bytes = b"gyre task 0.1.0 3\n\xff\xff".to_vec();
    let task = Task { bytes };
    let none = perform_task(&kinds(), &task.bytes, &RESOURCES).await;
    none.expect_err("no task");
}

/// Flips a bit in every file of rows.
fn damage(work: &std::path::Path) {
    let plans = fs::read_dir(work).expect("work");
    let plans = plans.map(|plan| plan.expect("a plan").path());
    // Beside the folder of a plan is the record that gyre made it.
    for plan in plans.filter(|plan| plan.is_dir()) {
        let parts = plan.join("parts");
        for part in fs::read_dir(parts).expect("parts") {
            let path = part.expect("a part").path();
            let mut bytes = fs::read(&path).expect("bytes");
            // The first message of a part is the plan, which stays intact.
            if bytes.starts_with(&[0xff, 0xff, 0xff, 0xff]) {
                *bytes.last_mut().expect("a byte") ^= 1;
                fs::write(&path, bytes).expect("a file");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn the_layout_of_rows_in_files_does_not_change_the_tables(seed in any::<u64>(), schedule in 0usize..4, world in 0usize..4) {
        let mut random = Pcg64::seed_from_u64(seed);
        let rows = walks(seed, random.random_range(1..4), random.random_range(2..9), 25, 6);
        let lake = Lake::new();
        let n = random.random_range(1..9);
        if random.random() {
            scatter(&lake, &rows, n, &mut random)
        } else {
            files(&lake, &rows, n)
        }
        let keys = match world {
            0 => "state = \"state\"\nlag = [1, 2]\npartition_by = \"sea\"",
            1 => "state = [\"name\", \"half\"]\nlag = \"1 step\"",
            2 => "bins = { x = { step = 1.0 } }\nlag = 1\npartition_by = [\"g\", \"half\"]",
            _ => "state = \"name\"\nlag = 3\nwindow = \"strided\"\npartition_by = \"g\"",
        };
        let one = "[[fit]]\nname = \"one\"\nmethod = \"dbmr\"\nrank = 1\nrestarts = 1\n";
        let text = pipeline(&(TRAJECTORIES.to_string() + keys), one);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(check_schedules(&lake, &text, &[SCHEDULES[schedule]]));
    }
}
