//! Fits of shards: `reduce/<method>/<states>-states-<non-zeros>-nnz`, rank 8.

mod planted;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use gyre::evidence::counts::Counts;
use gyre::evidence::counts::csr::Values;
use gyre::evidence::counts::shards::Shards;
use gyre::evidence::pass::Passes;
use gyre::methods::Method;
use gyre::methods::dbmr::params;
use gyre::methods::fit;
use gyre::methods::spectral::svd;

fn methods(c: &mut Criterion) {
    let mut group = c.benchmark_group("reduce");
    group.sample_size(10);
    for states in [2_000, 50_000] {
        let (sources, targets, counts) = planted::counts(states, 50, 10);
        let nnz = sources.len();
        let shards = Shards::new(
            states,
            states,
            &sources,
            &targets,
            Values::Count(counts),
            1 << 18,
        );
        let paper = params::Dbmr {
            restarts: 10,
            ..params::Dbmr::plain(8)
        };
        for (name, method) in [
            ("dbmr", Method::Dbmr(params::Dbmr::new(8))),
            ("dbmr-paper", Method::Dbmr(paper)),
            ("svd", Method::Svd(svd::Svd::new(8))),
        ] {
            let id = BenchmarkId::new(name, format!("{states}-states-{nnz}-nnz"));
            group.bench_function(id, |b| {
                b.iter(|| fit(&Passes::local(), &method, &Counts::of(&shards), 1).expect("a fit"))
            });
        }
    }
    group.finish();
}

criterion_group!(benches, methods);
criterion_main!(benches);
