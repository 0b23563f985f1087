//! From a sorted coordinate list to shards by source and by target:
//! `shard/<states>-states-<non-zeros>-nnz`.

mod planted;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gyre::evidence::counts::csr::Values;
use gyre::evidence::counts::shards::Shards;

fn build(c: &mut Criterion) {
    let mut group = c.benchmark_group("shard");
    group.sample_size(10);
    for (states, per_source) in [(10_000, 50), (100_000, 50)] {
        let (sources, targets, counts) = planted::counts(states, per_source, 10);
        let id = BenchmarkId::from_parameter(format!("{states}-states-{}-nnz", sources.len()));
        group.bench_function(id, |b| {
            b.iter(|| {
                Shards::new(
                    states,
                    states,
                    &sources,
                    &targets,
                    Values::Count(counts.clone()),
                    1 << 18,
                )
            });
        });
    }
    group.finish();
}

criterion_group!(benches, build);
criterion_main!(benches);
