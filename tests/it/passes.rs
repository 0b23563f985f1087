//! Compares models whose passes are tasks, each over a unit of the matrix, with models that one
//! process fits. The tables are byte for byte the same.

use crate::cli::integers;
use crate::inside::{InProcess, RunResult, Schedule, assert_equal_results, run_in, run_split};
use crate::lake::Lake;
use crate::worlds::{World, example20, example21};
use arrow::array::Float64Array;
use futures::future::BoxFuture;
use gyre::error::{Kind, Result};
use gyre::run::workers::nodes::{Nodes, Task};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Every method that needs passes only.
const FITS: &str = r#"
[[fit]]
name = "plain"
method = "dbmr"
rank = 3
restarts = 4
init = "random"
polish = false
[[fit]]
name = "moves"
method = "dbmr"
rank = [2, 3]
[[fit]]
name = "nearly"
method = "dbmr"
rank = 3
restarts = 2
init = "svd"
[[fit]]
name = "begun"
method = "dbmr"
rank = [2, 3]
restarts = 1
init = "svd"
polish = false
[[fit]]
name = "svd"
method = "svd"
rank = 3
restarts = 3
[[fit]]
name = "soft"
method = "svd"
rank = 2
clusters = "seba"
"#;

const GPCCA: &str = "[[fit]]\nname = \"gpcca\"\nmethod = \"gpcca\"\nrank = 3\n";

const OWN: &str = "[[fit]]\nname = \"own\"\nmethod = \"given\"\naffiliation = \"own\"\n";

pub const PAIRS: &str = "sql = \"SELECT * FROM rows\"\nsource = \"j\"\ntarget = \"i\"\n";

pub fn pipeline(transitions: &str, fits: &str) -> String {
    format!(
        "[job]\nname = \"passes\"\noutput = \"FOLDER/out\"\n[names]\nfrom = \"none\"\n[tables.rows]\npath = \"FOLDER/rows/\"\n\
         [transitions]\n{transitions}\n{fits}"
    )
}

fn write(lake: &Lake, world: &World) {
    let rows = world.counts.iter().map(|&(j, i, n)| {
        let own = world.partition[j as usize];
        [j, i, n, own].map(i64::from)
    });
    lake.integers("rows/0.parquet", ["j", "i", "n", "own"], rows);
}

/// Runs a pipeline in one process, and with the passes of models of more than `split` non-zeros as
/// tasks. Returns the number of rounds per stage.
async fn check(
    lake: &Lake,
    text: &str,
    schedule: Schedule,
    split: u64,
) -> BTreeMap<&'static str, usize> {
    let expected = run_in(lake, text, None).await.map_err(|e| e.full());
    let expected = expected.expect("a run of one process");
    let nodes = InProcess::new(schedule);
    let result = run_with_passes(lake, text, nodes.clone(), split).await;
    assert_equal_results(&expected, &result, &schedule);
    let mut rounds = BTreeMap::new();
    for stage in nodes.rounds() {
        *rounds.entry(stage).or_default() += 1;
    }
    rounds
}

async fn run_with_passes(lake: &Lake, text: &str, nodes: Arc<dyn Nodes>, split: u64) -> RunResult {
    let result = run_split(lake, text, Some(nodes), split).await;
    result.map_err(|e| e.full()).expect("a run of tasks")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn examples_20_and_21_equal_those_of_one_process() {
    let worlds = [
        (example20(0, 1), Schedule::InOrder),
        (example20(2, 3), Schedule::Twice),
        (example21(0, 1), Schedule::Lost),
        (example21(4, 2), Schedule::Shuffled(7)),
    ];
    for (world, schedule) in worlds {
        let lake = Lake::new();
        write(&lake, &world);
        let counts = PAIRS.to_string() + "count = \"n\"";
        let text = pipeline(&counts, &(FITS.to_string() + OWN));
        let rounds = check(&lake, &text, schedule, 100).await;
        assert!(rounds["pass"] > 20 && rounds["cut"] == 1, "{rounds:?}");
        assert!(!rounds.contains_key("fit"));
    }
}

/// The double gyre, coarser than in the paper, with an additional cyclic method.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn example_23_equals_that_of_one_process() {
    let lake = Lake::new();
    let gyre = r#"
sql = "SELECT trajectory, time, x, y FROM double_gyre(32, 16, 40)"
trajectory = "trajectory"
time = "time"
lag = 40
bins = { x = { bounds = [0, 2], boxes = 32 }, y = { bounds = [0, 1], boxes = 16 } }
connected = true
"#;
    let text = pipeline(gyre, &(FITS.to_string() + GPCCA));
    let text = text.replace("[tables.rows]\npath = \"FOLDER/rows/\"\n", "");
    let rounds = check(&lake, &text, Schedule::Shuffled(3), 100).await;
    assert!(rounds["pass"] > 20, "{rounds:?}");
}

/// Writes `pairs` pairs of two blocks of states, with weights.
pub fn blocks(lake: &Lake, pairs: usize, states: i64) {
    let mut random = Pcg64::seed_from_u64(5);
    let mut rows = Vec::with_capacity(pairs);
    for at in 0..pairs {
        let j = random.random_range(0..states);
        let is_other = random.random_range(0..10) == 0;
        let half = (2 * j / states + i64::from(is_other)) % 2;
        let i = half * states / 2 + random.random_range(0..states / 2);
        rows.push((j, i, at % 7));
    }
    let weights: Float64Array = rows.iter().map(|row| 1.0 / (row.2 as f64 + 3.0)).collect();
    let columns = vec![
        ("j", integers(rows.iter().map(|row| row.0))),
        ("i", integers(rows.iter().map(|row| row.1))),
        ("w", Arc::new(weights) as _),
        ("g", integers(rows.iter().map(|row| (row.2 == 0).into()))),
    ];
    lake.table("rows/0.parquet", columns);
}

const FEWER: &str = r#"
[[fit]]
name = "plain"
method = "dbmr"
rank = 4
restarts = 2
init = "random"
polish = false
max_iterations = 6
[[fit]]
name = "svd"
method = "svd"
rank = 2
restarts = 2
tolerance = 1e-4
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn units_of_a_matrix_give_the_result_of_the_whole_matrix() {
    let lake = Lake::new();
    blocks(&lake, 300_000, 3000);
    for weight in ["", "weight = \"w\"\n"] {
        let text = pipeline(&(PAIRS.to_string() + weight), FEWER);
        let expected = run_in(&lake, &text, None).await.expect("a run");
        let nodes = InProcess::new(Schedule::Shuffled(2));
        let result = run_with_passes(&lake, &text, nodes.clone(), 1000).await;
        assert_equal_results(&expected, &result, &weight);
        let most = nodes.largest_round("pass");
        // Both restarts are in one round, each over several units.
        assert!(most >= 8 && most.is_multiple_of(2), "{most} tasks");
    }
}

/// The matrix has too many non-zeros for a search by columns, so the default search uses passes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_states_are_moved_by_passes() {
    let lake = Lake::new();
    let rows = "sql = \"SELECT value % 30011 AS j, value * 7919 % 40009 % 20011 + value % 30011 % 2 * 19998 AS i FROM range(0, 5000000)\"\n\
                source = \"j\"\ntarget = \"i\"\n";
    let fits =
        "[[fit]]\nname = \"moves\"\nmethod = \"dbmr\"\nrank = 3\nrestarts = 3\ntolerance = 1e-5\n";
    blocks(&lake, 10, 10);
    let text = pipeline(rows, fits);
    let rounds = check(&lake, &text, Schedule::Shuffled(4), 1_000_000).await;
    assert!(rounds["pass"] > 20 && rounds["cut"] == 1, "{rounds:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_partitions_are_split_and_small_ones_are_not() {
    let lake = Lake::new();
    blocks(&lake, 20_000, 400);
    let keys = PAIRS.to_string() + "partition_by = \"g\"";
    let rounds = check(&lake, &pipeline(&keys, FEWER), Schedule::InOrder, 10_000).await;
    assert!(rounds["pass"] > 10 && rounds["fit"] == 1, "{rounds:?}");
    // The model spans several tasks with separate numberings.
    let rounds = check(&lake, &pipeline(&keys, FEWER), Schedule::InOrder, 100).await;
    assert!(rounds["pass"] > 20 && !rounds.contains_key("fit"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn methods_that_need_the_whole_matrix_are_fitted_in_one_task() {
    let lake = Lake::new();
    write(&lake, &example20(0, 1));
    let counts = PAIRS.to_string() + "count = \"n\"";
    for fits in [
        "[[fit]]\nname = \"dbmr\"\nmethod = \"dbmr\"\nrank = 2\npolish = false\n",
        "[[fit]]\nname = \"both\"\nmethod = \"cocluster\"\nrank = 2\nrestarts = 2\n",
        "[validation]\nbootstrap = 2\n[[fit]]\nname = \"svd\"\nmethod = \"svd\"\nrank = 2\n",
    ] {
        let rounds = check(&lake, &pipeline(&counts, fits), Schedule::InOrder, 100).await;
        assert_eq!(rounds.get("pass"), None);
        assert_eq!(rounds["fit"], 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_fit_gives_the_error_of_one_process() {
    let lake = Lake::new();
    write(&lake, &example20(0, 1));
    let counts = PAIRS.to_string() + "count = \"n\"";
    let fits = "[[fit]]\nname = \"svd\"\nmethod = \"svd\"\nrank = 101\n";
    let text = pipeline(&counts, fits);
    let expected = run_in(&lake, &text, None).await.expect_err("no model");
    let nodes = InProcess::new(Schedule::InOrder);
    let actual = run_split(&lake, &text, Some(nodes), 100).await;
    let actual = actual.expect_err("no model");
    assert_eq!(
        (expected.kind(), expected.full()),
        (actual.kind(), actual.full())
    );
}

/// Executes tasks, but flips a bit in the answers of some passes.
struct Wrong {
    in_process: Arc<InProcess>,
    /// How many answers remain to be damaged.
    left: AtomicUsize,
}

impl Nodes for Wrong {
    fn slots(&self) -> usize {
        self.in_process.slots()
    }

    fn run<'a>(
        &'a self,
        stage: &'static str,
        tasks: Vec<Task>,
        on_answers: &'a (dyn Fn(usize) + Sync),
    ) -> BoxFuture<'a, Result<Vec<Result<Vec<u8>>>>> {
        Box::pin(async move {
            let mut answers = self.in_process.run(stage, tasks, on_answers).await?;
            let less = |left: usize| left.checked_sub(1);
            let relaxed = Ordering::Relaxed;
            if stage == "pass" && self.left.fetch_update(relaxed, relaxed, less).is_ok() {
                let answer = answers[0].as_mut().expect("an answer");
                // The exponent of the last number.
                *answer.last_mut().expect("a byte") ^= 0x40;
            }
            Ok(answers)
        })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_with_wrong_sums_is_repeated_and_then_an_error() {
    let lake = Lake::new();
    write(&lake, &example20(0, 1));
    let counts = PAIRS.to_string() + "count = \"n\"";
    let text = pipeline(&counts, FEWER);
    let wrong = |times: usize| {
        Arc::new(Wrong {
            in_process: InProcess::new(Schedule::InOrder),
            left: AtomicUsize::new(times),
        })
    };
    let expected = run_in(&lake, &text, None).await.expect("a run");
    let result = run_with_passes(&lake, &text, wrong(1), 100).await;
    assert_equal_results(&expected, &result, &"wrong once");
    let failed = run_split(&lake, &text, Some(wrong(1000)), 100).await;
    let failed = failed.expect_err("wrong sums");
    assert_eq!(failed.kind(), Kind::Check, "{}", failed.full());
    let message = failed.to_string();
    // Either a cell or a sum is wrong, depending on which of the two restarts is first.
    let reports = |what| message.contains(&format!("came back wrong 2 times ({what} "));
    assert!(reports("cell") || reports("the sum of"), "{message}");
    assert!(!lake.path("out/current").exists());
}
