//! From Parquet rows to transition counts:
//! `count/trajectories/<rows>-rows-<states>-states-lag-<lag>`.
//!
//! The rows are a metastable chain in trajectories of 5 000 rows.

use arrow::array::{Int32Array, Int64Array, RecordBatch};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use gyre::plan::counts::CountsPlan;
use gyre::plan::kind::plan;
use gyre::plan::pipeline::Pipeline;
use gyre::read::lake;
use gyre::read::lake::Resources;
use gyre::read::lake::files::TableSource;
use parquet::arrow::ArrowWriter;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

const ROWS: usize = 4_000_000;

fn chain(path: &std::path::Path, states: i64) {
    let mut random = Pcg64::seed_from_u64(1);
    let (mut state, width) = (0i64, states / 10);
    let states: Vec<i32> = (0..ROWS)
        .map(|_| {
            // Skewed successors inside one of ten blocks, and rarely in another block.
            let block = if random.random_range(0..100) == 0 {
                random.random_range(0..10)
            } else {
                state / width
            };
            let step = (64.0 * random.random::<f64>().powi(2)) as i64;
            state = block * width + (state * 31 + step * step * 17) % width;
            state as i32
        })
        .collect();
    let batch = RecordBatch::try_from_iter([
        (
            "id",
            Arc::new(Int64Array::from_iter_values(
                (0..ROWS).map(|k| (k / 5000) as i64),
            )) as _,
        ),
        (
            "t",
            Arc::new(Int64Array::from_iter_values(
                (0..ROWS).map(|k| (k % 5000) as i64),
            )) as _,
        ),
        ("state", Arc::new(Int32Array::from(states)) as _),
    ])
    .expect("columns of one length");
    let file = std::fs::File::create(path).expect("a file");
    let mut writer = ArrowWriter::try_new(file, batch.schema(), None).expect("a writer");
    writer.write(&batch).expect("rows are written");
    writer.close().expect("the file is closed");
}

fn count(pipeline: &str, path: &str) -> u64 {
    let pipeline = Pipeline::parse(pipeline, "bench", &[], &|_| None).expect("a pipeline");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let paths = [path.to_string()];
        let sources = [TableSource::of_parquet("rows", &paths)];
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
        let lake = lake::open(
            &sources,
            &Resources {
                threads,
                memory_bytes: None,
            },
            &Default::default(),
        )
        .await
        .expect("a lake");
        let sql = lake::query_text(&pipeline.transitions.query).expect("a query");
        let (plan, frame): (CountsPlan, _) =
            plan(&pipeline, &sql, None, &lake).await.expect("a plan");
        gyre::read::counts::count(&lake, frame, &plan.layout, Arc::new(|_| ()))
            .await
            .expect("counts")
            .counts
            .iter()
            .map(|c| c.nnz() as u64)
            .sum()
    })
}

const CHAIN: &str = "[job]\nname = \"bench\"\noutput = \"out\"\n[transitions]\nsql = \"SELECT * FROM rows\"\ntrajectory = \"id\"\n\
    time = \"t\"\nstate = \"state\"\nlag = LAG\n[[fit]]\nname = \"one\"\nmethod = \"dbmr\"\nrank = 1\n";

fn trajectories(c: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut group = c.benchmark_group("count/trajectories");
    group
        .sample_size(10)
        .throughput(Throughput::Elements(ROWS as u64));
    for states in [200, 100_000] {
        let path = folder.path().join(format!("{states}.parquet"));
        chain(&path, states);
        let path = path.display().to_string();
        for lag in [1, 10] {
            let pipeline = CHAIN.replace("LAG", &lag.to_string());
            let id = format!("{ROWS}-rows-{states}-states-lag-{lag}");
            let id = BenchmarkId::from_parameter(id);
            group.bench_function(id, |b| b.iter(|| count(&pipeline, &path)));
        }
    }
    group.finish();
}

criterion_group!(benches, trajectories);
criterion_main!(benches);
