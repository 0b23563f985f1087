//! A fifth kind of evidence: the drive, the registry, assignment and comparison take it as it is.

mod toy;

use crate::error::{Kind, Result};
use crate::output::place::Output;
use crate::plan::assignment::Assignment;
use crate::plan::job::PlannedJob;
use crate::plan::pipeline::keys::Empty;
use crate::read::formats::dialect::Dialect;
use crate::read::formats::format::Format;
use crate::read::lake::files::TableSource;
use crate::read::lake::{Lake, Resources, open};
use crate::run::assign::kind::{AssignOptions, PlannedAssignment};
use crate::run::compare::kind_of_both;
use crate::run::options::Options;
use crate::run::planned::{AnyAssignment, AnyKind, AnyRun, kind_named, kinds, perform_task};
use crate::run::progress::Silent;
use crate::run::tests::toy::{Plan, Toy};
use crate::run::workers::Workers;
use crate::run::workers::nodes::{Nodes, Task};
use crate::run::{Outcome, Planned};
use crate::store::Stores;
use datafusion::dataframe::DataFrame;
use futures::future::{BoxFuture, join_all};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The registry with the fifth kind.
fn five() -> Vec<&'static dyn AnyKind> {
    let mut kinds = kinds().to_vec();
    kinds.push(&Toy);
    kinds
}

/// Does tasks in this process, by their bytes alone.
struct Loopback;

impl Nodes for Loopback {
    fn slots(&self) -> usize {
        1
    }

    fn run<'a>(
        &'a self,
        _: &'static str,
        tasks: Vec<Task>,
        _: &'a (dyn Fn(usize) + Sync),
    ) -> BoxFuture<'a, Result<Vec<Result<Vec<u8>>>>> {
        let resources = Resources::default();
        let tasks = tasks.into_iter();
        let tasks = tasks.map(move |task| perform_task(&five(), &task.bytes, &resources));
        Box::pin(async { Ok(join_all(tasks).await) })
    }
}

/// The numbers of a CSV file.
async fn rows(folder: &Path, numbers: &str) -> (Lake, DataFrame) {
    let file = folder.join(format!("{numbers}.csv"));
    let text = format!("x\n{}\n", numbers.replace(' ', "\n"));
    std::fs::write(&file, text).expect("a file");
    let paths = [file.to_str().expect("a path").to_string()];
    let source = TableSource {
        name: "t",
        paths: &paths,
        format: Format::Csv,
        dialect: Dialect::default(),
        filename: None,
    };
    let (resources, stores) = (Resources::default(), Stores::default());
    let lake = open(&[source], &resources, &stores).await.expect("a table");
    let sql = "SELECT CAST(x AS DOUBLE) AS x FROM t";
    let frame = lake.query(sql, &BTreeMap::new()).await.expect("a query");
    (lake, frame)
}

async fn planned(folder: &Path, numbers: &str, holds: bool) -> Planned<Toy> {
    let (lake, frame) = rows(folder, numbers).await;
    let job = PlannedJob {
        name: "numbers".to_string(),
        output: folder.join(numbers.len().to_string()).display().to_string(),
        keep: 1,
        stores: Stores::default(),
        seed: 1,
        tables: lake.tables.clone(),
        sql: "SELECT x FROM t".to_string(),
        parameters: BTreeMap::new(),
        partition: Vec::new(),
        empty: Empty::default(),
        checks: Vec::new(),
        left_out: Vec::new(),
        hashes: BTreeMap::new(),
        hash: format!("{:032x}", numbers.len()),
    };
    Planned {
        plan: Arc::new(Plan { job, holds }),
        lake,
        frame,
    }
}

/// Runs the numbers on other machines or in this process. Returns the summary and the location.
async fn run(planned: &Planned<Toy>, is_remote: bool) -> (Option<String>, Output) {
    let nodes: Arc<dyn Nodes> = Arc::new(Loopback);
    let options = Options {
        keep_every: Duration::ZERO,
        workers: if is_remote {
            Workers::Remote { nodes, split: 1 }
        } else {
            Workers::Local
        },
        ..Options::default()
    };
    let output = Planned::output(planned).expect("an output");
    let done = AnyRun::run(planned, &output, &options, Arc::new(Silent)).await;
    (done.expect("a run").map(|done| done.summary), output)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fifth_kind_is_run_resumed_assigned_and_compared_as_the_others_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();

    // A run whose certificate does not hold leaves its work to the next one.
    let wrong = planned(folder, "1 2 3", false).await;
    let output = Planned::output(&wrong).expect("an output");
    let options = Options {
        keep_every: Duration::ZERO,
        ..Options::default()
    };
    let ended = wrong.run_with(&output, &options, Arc::new(Silent)).await;
    let e = ended.err().expect("an error");
    assert_eq!(
        (e.kind(), e.full().as_str()),
        (Kind::Check, "the sum is wrong")
    );
    drop(output);
    let right = planned(folder, "1 2 3", true).await;
    let output = Planned::output(&right).expect("an output");
    let Ok(Outcome::Done(record)) = right.run_with(&output, &options, Arc::new(Silent)).await
    else {
        panic!("the run is not done");
    };
    assert_eq!(
        record.resumed.as_ref().map(|resumed| resumed.pieces),
        Some(1)
    );
    assert_eq!((record.kind, record.models[0].model.sum), ("numbers", 6.0));
    drop(output);
    let (again, a) = run(&right, false).await;
    assert_eq!(again, None, "there is nothing to do");

    // Tasks name the kind, and the registry finds it.
    let (summary, b) = run(&planned(folder, "1 2 3 4", true).await, true).await;
    let summary = summary.expect("a result");
    assert!(summary.contains("numbers of the sum 10"), "{summary}");

    let (of_a, of_b) = (a.shown(), b.shown());
    let kind = kind_of_both(of_a, of_b).await.expect("one kind");
    let kind = kind_named(&five(), &kind).expect("the fifth");
    let report = kind.compare(of_a, of_b, &[], None).await.expect("a report");
    assert!(report.text.contains("sum 4"), "{}", report.text);
    assert!(kind_named(&kinds(), kind.name()).is_err());

    let (lake, frame) = rows(folder, "5 6").await;
    let assigned = Output::open(&folder.join("c").display().to_string(), &Stores::default());
    let assigned = assigned.expect("an output");
    let assignment = PlannedAssignment::<Toy> {
        assignment: Arc::new(Assignment {
            name: "numbers".to_string(),
            section: "numbers",
            output: assigned.shown().to_string(),
            keep: 1,
            tables: lake.tables.clone(),
            hash: "a5".repeat(16),
            rows: (),
        }),
        lake,
        frame,
    };
    let options = AssignOptions {
        force: false,
        smoothing: 0.0,
    };
    let mut summaries = Vec::new();
    for _ in 0..2 {
        let assignment: &dyn AnyAssignment = &assignment;
        let done = assignment.assign(&a, &assigned, &options, Arc::new(Silent));
        summaries.push(done.await.expect("an assignment").map(|done| done.summary));
    }
    let [Some(first), None] = &summaries[..] else {
        panic!("{summaries:?}");
    };
    assert!(first.contains("sum 5"), "{first}");
}
