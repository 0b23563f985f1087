//! Passes over evidence: parallel, the same for any number of shards, and resumable.
//!
//! A pass applies a [`Kernel`] to every shard with the output rows that the shard owns. No two
//! shards share an output row, so nothing is merged and no sum depends on the number of shards. A
//! piece of work is anything that runs alone and is worth a checkpoint: a fit, a restart, a
//! resample.

pub mod checkpoints;
pub mod executor;
pub mod kernel;
pub(crate) mod packed;
pub mod registry;
pub mod steps;

use crate::evidence::pass::checkpoints::Checkpoints;
use crate::evidence::pass::executor::{Executor, Local, TypedPass};
use crate::evidence::pass::kernel::{Kernel, Sharded};
use crate::evidence::pass::steps::Steps;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::convert::Infallible;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Runs passes and pieces of work: where, with which checkpoints, and by which clock.
pub struct Passes<'a> {
    executor: &'a dyn Executor,
    resuming: Option<Resuming<'a>>,
    steps: Option<&'a Steps>,
}

impl std::fmt::Debug for Passes<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passes").finish_non_exhaustive()
    }
}

/// The pieces of one piece of work.
struct Resuming<'a> {
    checkpoints: &'a dyn Checkpoints,
    /// The name of the piece that is worked on.
    whole: String,
    begun: Mutex<HashSet<String>>,
}

impl Passes<'static> {
    /// Passes on rayon's current pool, without checkpoints.
    pub fn local() -> Self {
        Passes::at(&Local)
    }
}

impl<'a> Passes<'a> {
    /// Passes of an executor, without checkpoints.
    pub(crate) fn at(executor: &'a dyn Executor) -> Self {
        Passes {
            executor,
            resuming: None,
            steps: None,
        }
    }

    /// Passes with checkpoints for the pieces of `whole`.
    pub(crate) fn resuming<'b>(&self, checkpoints: &'b dyn Checkpoints, whole: String) -> Passes<'b>
    where
        'a: 'b,
    {
        Passes {
            executor: self.executor,
            resuming: Some(Resuming {
                checkpoints,
                whole,
                begun: Mutex::default(),
            }),
            steps: self.steps,
        }
    }

    /// Passes that also record how long each step of the fit takes, in `steps`.
    pub(crate) fn timed(self, steps: &'a Steps) -> Self {
        Passes {
            steps: Some(steps),
            ..self
        }
    }

    /// Begins a step of a fit.
    pub(crate) fn step(&self, name: &'static str) {
        if let Some(steps) = self.steps {
            steps.begin(name);
        }
    }

    /// Applies a kernel to every shard with the shard's own rows of `out` (`n × width`, row-major).
    pub(crate) fn rows<K: Kernel>(
        &self,
        over: Sharded<'_, K::Shard>,
        kernel: &K,
        out: &mut [K::Cell],
    ) {
        self.executor.run(&mut TypedPass { kernel, over, out });
    }

    /// The number of pieces of work that are worth running at a time.
    pub(crate) fn concurrency(&self) -> usize {
        self.executor.concurrency()
    }

    /// The results of `times` calls of `work` at the same time. Each call may run passes.
    ///
    /// # Panics
    /// If the executor leaves a call out.
    pub(crate) fn times<T: Send + Sync>(
        &self,
        times: usize,
        work: impl Fn() -> T + Sync,
    ) -> Vec<T> {
        let done: Vec<OnceLock<T>> = (0..times).map(|_| OnceLock::new()).collect();
        self.executor.times(times, &|at| {
            let _ = done[at].set(work());
        });
        let result = |done: OnceLock<T>| done.into_inner().expect("every call has returned");
        done.into_iter().map(result).collect()
    }

    /// The result of `work`, or its checkpoint. The work must depend on nothing but what all runs
    /// of a plan have in common. Names of pieces are unique; `work` gets passes for pieces of its
    /// own.
    ///
    /// # Errors
    /// Those of `work`.
    pub(crate) fn try_piece<T: Serialize + DeserializeOwned, E>(
        &self,
        name: &str,
        work: impl FnOnce(&Passes<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let Some(resuming) = &self.resuming else {
            return work(self);
        };
        let mut begun = resuming
            .begun
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_new = begun.insert(name.to_string());
        drop(begun);
        // Or the checkpoint of one would be taken for the other.
        assert!(is_new, "{} has two pieces `{name}`", resuming.whole);
        let name = format!("{}/{name}", resuming.whole);
        if let Some(piece) = checkpoints::find(resuming.checkpoints, &name) {
            return Ok(piece);
        }
        let start = std::time::Instant::now();
        let piece = work(&self.resuming(resuming.checkpoints, name.clone()))?;
        checkpoints::keep(resuming.checkpoints, &name, start.elapsed(), &piece);
        Ok(piece)
    }

    /// [`Passes::try_piece`] for work that cannot fail.
    pub(crate) fn piece<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        work: impl FnOnce(&Passes<'_>) -> T,
    ) -> T {
        let Ok(done) = self.try_piece(name, |passes| Ok::<_, Infallible>(work(passes)));
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assess::bootstrap::{self, BootstrapParams};
    use crate::evidence::counts::groups::Groups;
    use crate::evidence::counts::{Counts, shards};
    use crate::evidence::pass::checkpoints::{find, keep};
    use crate::methods::Method;
    use crate::methods::cocluster::Cocluster;
    use crate::methods::dbmr::params::Dbmr;
    use crate::methods::fit;
    use crate::methods::fit::Fit;
    use bytes::Bytes;
    use std::collections::BTreeMap;
    use std::time::Duration;

    /// Remembers all pieces, those within others included.
    #[derive(Default)]
    struct Everything(Mutex<BTreeMap<String, Bytes>>);

    impl Checkpoints for Everything {
        fn has(&self, name: &str) -> bool {
            self.0.lock().unwrap().contains_key(name)
        }

        fn find(&self, name: &str) -> Option<Bytes> {
            self.0.lock().unwrap().get(name).cloned()
        }

        fn keep(&self, name: &str, _: Duration, piece: Vec<u8>) {
            self.0
                .lock()
                .unwrap()
                .insert(name.to_string(), piece.into());
        }
    }

    impl Everything {
        /// The checkpoints without some of their pieces.
        fn without(&self, forget: impl Fn(usize, &str) -> bool) -> Everything {
            let known = self.0.lock().unwrap().clone();
            let known = known.into_iter().enumerate();
            let known = known.filter(|(at, (name, _))| !forget(*at, name));
            Everything(Mutex::new(known.map(|(_, piece)| piece).collect()))
        }
    }

    #[test]
    fn a_piece_is_done_once() {
        let memory = Everything::default();
        let sum = |passes: &Passes| -> f64 {
            passes.piece("sum", |passes| {
                let part = |k: u32| passes.piece(&format!("part-{k}"), |_| 0.1 * f64::from(k));
                part(1) + part(2)
            })
        };
        assert_eq!(
            sum(&Passes::local().resuming(&memory, "it".into())),
            0.1 + 0.2
        );
        let names: Vec<String> = memory.0.lock().unwrap().keys().cloned().collect();
        assert_eq!(names, ["it/sum", "it/sum/part-1", "it/sum/part-2"]);
        // What is kept is taken, right or wrong; what cannot be read is done again.
        let minus = postcard::to_stdvec(&-1.0).expect("bytes");
        memory.keep("it/sum/part-1", Duration::ZERO, minus);
        memory.keep("it/sum", Duration::ZERO, vec![1, 2, 3]);
        assert_eq!(
            sum(&Passes::local().resuming(&memory, "it".into())),
            -1.0 + 0.2
        );
        let failed = Passes::local().resuming(&memory, "it".into());
        assert_eq!(
            failed.try_piece("failure", |_| Err::<(), _>("no")),
            Err("no")
        );
        assert_eq!(memory.find("it/failure"), None);
    }

    #[test]
    #[should_panic = "it has two pieces `a`"]
    fn two_pieces_of_one_name_are_refused() {
        let memory = Everything::default();
        let passes = Passes::local().resuming(&memory, "it".into());
        passes.piece("a", |_| ());
        passes.piece("a", |_| ());
    }

    #[test]
    fn a_fit_comes_back_bit_for_bit() {
        let columns = [
            vec![3.0, 1.0, 0.0],
            vec![2.0, 2.0, 1.0],
            vec![0.0, 1.0, 4.0],
        ];
        let shards = shards::dense(&columns, false, 2);
        let method = Method::Dbmr(Dbmr::new(2));
        let mut fit = fit(&Passes::local(), &method, &Counts::of(&shards), 1).expect("a fit");
        let odd = [
            0.0,
            -0.0,
            f64::MIN_POSITIVE / 8.0,
            f64::NEG_INFINITY,
            0.1 + 0.2,
        ];
        let odd = odd.map(f64::to_bits);
        let odd = [&odd[..], &[f64::NAN.to_bits() ^ 1, (-f64::NAN).to_bits()]].concat();
        fit.how.trace = odd.iter().copied().map(f64::from_bits).collect();
        let model = &mut fit.model;
        model.metrics.kappa_2 = f64::from_bits(odd[5]);
        model.sources.membership = Some(vec![f64::from_bits(odd[1])]);
        let memory = Everything::default();
        keep(&memory, "fit", Duration::ZERO, &fit);
        let back: Fit = find(&memory, "fit").expect("it was kept");
        let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back.how.trace), odd);
        let model = back.model;
        assert_eq!(model.metrics.kappa_2.to_bits(), odd[5]);
        assert_eq!(
            model.sources.membership.map(|m| bits(&m)),
            Some(vec![odd[1]])
        );
        // Equal in all else, and so written in the same bytes.
        assert_eq!(back.how.restarts, fit.how.restarts);
        let again: Fit = find(&memory, "fit").expect("it was kept");
        assert!(super::tests::bits(&again) == super::tests::bits(&fit));
    }

    fn bits(fit: &Fit) -> Vec<u8> {
        postcard::to_stdvec(fit).expect("bytes")
    }

    /// Whatever is known of a fit and of its bootstrap, they come out the same to the last bit.
    #[test]
    fn work_goes_on_from_any_of_its_pieces() {
        let n = 24;
        let columns: Vec<Vec<f64>> = (0..n)
            .map(|j| {
                (0..n)
                    .map(|i| {
                        ((i * j + i / 3 + j) % 7 / 4 * (i + 1)) as f64 + f64::from(u8::from(i == j))
                    })
                    .collect()
            })
            .collect();
        let shards = shards::dense(&columns, false, 40);
        let groups = Groups::scatter(n, &shards.by_source, 6);
        let searched = Dbmr {
            restarts: 6,
            ..Dbmr::new(3)
        };
        let plain = Dbmr {
            restarts: 6,
            ..Dbmr::plain(3)
        };
        let cocluster = Cocluster {
            restarts: 4,
            ..Cocluster::new(3)
        };
        for method in [
            Method::Dbmr(searched),
            Method::Dbmr(plain),
            Method::Cocluster(cocluster),
        ] {
            let all = |memory: &dyn Checkpoints| {
                let passes = Passes::local().resuming(memory, "m".into());
                let evidence = &Counts::of(&shards);
                let found = passes.piece("fit", |passes| {
                    fit(passes, &method, evidence, 5).expect("a fit")
                });
                let params = BootstrapParams {
                    resamples: 3,
                    confidence: 0.9,
                    chain: None,
                    shard_nnz: 40,
                };
                let fits = [(&method, &found)];
                let of = bootstrap::bootstrap(
                    &passes,
                    &groups,
                    &Counts::of(&shards),
                    &fits,
                    &params,
                    5,
                    &|| (),
                );
                (bits(&found), format!("{of:?}"))
            };
            let memory = Everything::default();
            let undisturbed = all(&memory);
            let n_pieces = memory.0.lock().unwrap().len();
            assert!(n_pieces > 10, "{n_pieces}");
            assert!(all(&memory) == undisturbed);
            type Forget = fn(usize, &str) -> bool;
            let forget: [Forget; 4] = [
                |_, name| name == "m/fit" || name.ends_with("-1"),
                |_, name| !name.contains("/restart"),
                |at, _| at % 2 == 0,
                |at, _| at % 3 != 0,
            ];
            for forget in forget {
                assert!(all(&memory.without(forget)) == undisturbed);
            }
        }
    }
}
