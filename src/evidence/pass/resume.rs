//! A runner that keeps what pieces of work came to, so that a run can go on where one before it died.

use crate::evidence::counts::csr::Csr;
use crate::evidence::pass::Runner;
use crate::evidence::pass::kernel::Kernel;
use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What remembers pieces from one run to the next. Names are paths: `a/b` is a piece of `a`.
pub trait Memory: Sync {
    /// Whether a run before this one has kept it.
    fn has(&self, name: &str) -> bool;
    /// What a run before this one has kept.
    fn find(&self, name: &str) -> Option<Bytes>;
    /// Hears what a piece came to and how long it took; whether it is kept is not for the piece to know. With a piece those that it was
    /// made of are done with.
    fn keep(&self, name: &str, took: Duration, piece: Vec<u8>);
}

/// Remembers nothing.
pub struct Forgetful;

impl Memory for Forgetful {
    fn has(&self, _: &str) -> bool {
        false
    }

    fn find(&self, _: &str) -> Option<Bytes> {
        None
    }

    fn keep(&self, _: &str, _: Duration, _: Vec<u8>) {}
}

/// Runs passes as `inner` does.
pub struct Kept<'a, R> {
    inner: &'a R,
    memory: &'a dyn Memory,
    /// The piece that this runner works on.
    whole: String,
    begun: Mutex<HashSet<String>>,
}

impl<'a, R: Runner> Kept<'a, R> {
    /// A runner for the pieces of `whole`.
    pub fn new(inner: &'a R, memory: &'a dyn Memory, whole: String) -> Self {
        Kept {
            inner,
            memory,
            whole,
            begun: Mutex::default(),
        }
    }
}

/// Finds a piece. One that cannot be understood counts as not there.
pub fn find<T: DeserializeOwned>(memory: &dyn Memory, name: &str) -> Option<T> {
    let bytes = memory.find(name)?;
    let piece = postcard::from_bytes(&bytes);
    let ignored = |e: &_| tracing::info!(name, "what was kept cannot be understood: {e}");
    piece.inspect_err(ignored).ok()
}

/// Keeps a piece, if that can be done.
pub fn keep<T: Serialize>(memory: &dyn Memory, name: &str, took: Duration, piece: &T) {
    match postcard::to_stdvec(piece) {
        Ok(bytes) => memory.keep(name, took, bytes),
        Err(e) => tracing::warn!(name, "cannot be kept: {e}"),
    }
}

impl<R: Runner> Runner for Kept<'_, R> {
    fn step(&self, name: &'static str) {
        self.inner.step(name);
    }

    fn rows<K: Kernel>(&self, shards: &[Csr], kernel: &K, out: &mut [K::Cell]) {
        self.inner.rows(shards, kernel, out);
    }

    fn side_by_side(&self) -> usize {
        self.inner.side_by_side()
    }

    fn times<T: Send>(&self, times: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        self.inner.times(times, work)
    }

    fn try_piece<T: Serialize + DeserializeOwned, E>(
        &self,
        name: &str,
        work: impl FnOnce(&Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = begun.insert(name.to_string());
        drop(begun);
        // Or one would be taken for the other.
        assert!(is_new, "{} has two pieces `{name}`", self.whole);
        let name = format!("{}/{name}", self.whole);
        if let Some(piece) = find(self.memory, &name) {
            return Ok(piece);
        }
        let start = Instant::now();
        let piece = work(&Kept::new(self.inner, self.memory, name.clone()))?;
        keep(self.memory, &name, start.elapsed(), &piece);
        Ok(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Evidence;
    use crate::evidence::counts::groups::Groups;
    use crate::evidence::pass::local::Local;
    use crate::methods::Method;
    use crate::methods::fit;
    use std::collections::BTreeMap;

    /// Remembers all pieces, those within others included.
    #[derive(Default)]
    struct Everything(Mutex<BTreeMap<String, Bytes>>);

    impl Memory for Everything {
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
        /// The same without some of what it knows.
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
        let sum = |runner: &Kept<'_, Local>| -> f64 {
            runner.piece("sum", |runner| {
                let part = |k: u32| runner.piece(&format!("part-{k}"), |_| 0.1 * f64::from(k));
                part(1) + part(2)
            })
        };
        assert_eq!(sum(&Kept::new(&Local, &memory, "it".into())), 0.1 + 0.2);
        let names: Vec<String> = memory.0.lock().unwrap().keys().cloned().collect();
        assert_eq!(names, ["it/sum", "it/sum/part-1", "it/sum/part-2"]);
        // What is kept is taken, right or wrong; what cannot be read is done again.
        let minus = postcard::to_stdvec(&-1.0).expect("bytes");
        memory.keep("it/sum/part-1", Duration::ZERO, minus);
        memory.keep("it/sum", Duration::ZERO, vec![1, 2, 3]);
        assert_eq!(sum(&Kept::new(&Local, &memory, "it".into())), -1.0 + 0.2);
        let failed = Kept::new(&Local, &memory, "it".into());
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
        let runner = Kept::new(&Local, &memory, "it".into());
        runner.piece("a", |_| ());
        runner.piece("a", |_| ());
    }

    #[test]
    fn a_fit_comes_back_bit_for_bit() {
        let columns = [
            vec![3.0, 1.0, 0.0],
            vec![2.0, 2.0, 1.0],
            vec![0.0, 1.0, 4.0],
        ];
        let shards = crate::evidence::counts::shards::dense(&columns, false, 2);
        let method = Method::Dbmr(crate::methods::dbmr::params::Params::new(2));
        let mut fit = fit(&Local, &method, Evidence::Counts(&shards), 1).expect("a fit");
        let odd = [
            0.0,
            -0.0,
            f64::MIN_POSITIVE / 8.0,
            f64::NEG_INFINITY,
            0.1 + 0.2,
        ];
        let odd = odd.map(f64::to_bits);
        let odd = [&odd[..], &[f64::NAN.to_bits() ^ 1, (-f64::NAN).to_bits()]].concat();
        fit.trace = odd.iter().copied().map(f64::from_bits).collect();
        fit.metrics.kappa_2 = f64::from_bits(odd[5]);
        fit.sources.membership = Some(vec![f64::from_bits(odd[1])]);
        let memory = Everything::default();
        keep(&memory, "fit", Duration::ZERO, &fit);
        let back: crate::methods::fit::Fit = find(&memory, "fit").expect("it was kept");
        let bits = |values: &[f64]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&back.trace), odd);
        assert_eq!(back.metrics.kappa_2.to_bits(), odd[5]);
        assert_eq!(
            back.sources.membership.map(|m| bits(&m)),
            Some(vec![odd[1]])
        );
        // Equal in all else, and so written in the same bytes.
        assert_eq!(back.restarts, fit.restarts);
        let again: crate::methods::fit::Fit = find(&memory, "fit").expect("it was kept");
        assert!(
            crate::evidence::pass::resume::tests::bits(&again)
                == crate::evidence::pass::resume::tests::bits(&fit)
        );
    }

    fn bits(fit: &crate::methods::fit::Fit) -> Vec<u8> {
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
        let shards = crate::evidence::counts::shards::dense(&columns, false, 40);
        let groups = Groups::scatter(n, &shards.by_source, 6);
        let searched = crate::methods::dbmr::params::Params {
            restarts: 6,
            ..crate::methods::dbmr::params::Params::new(3)
        };
        let plain = crate::methods::dbmr::params::Params {
            restarts: 6,
            ..crate::methods::dbmr::params::Params::plain(3)
        };
        let cocluster = crate::methods::cocluster::Params {
            restarts: 4,
            ..crate::methods::cocluster::Params::new(3)
        };
        for method in [
            Method::Dbmr(searched),
            Method::Dbmr(plain),
            Method::Cocluster(cocluster),
        ] {
            let all = |memory: &dyn Memory| {
                let runner = Kept::new(&Local, memory, "m".into());
                let evidence = Evidence::Counts(&shards);
                let found = runner.piece("fit", |r| fit(r, &method, evidence, 5).expect("a fit"));
                let params = crate::assess::bootstrap::Params {
                    resamples: 3,
                    confidence: 0.9,
                    metrics: &[("objective", |fit| fit.metrics.objective)],
                    chain: None,
                    shard_nnz: 40,
                };
                let fits = [(&method, &found)];
                let of = crate::assess::bootstrap::bootstrap(
                    &runner,
                    &groups,
                    &shards,
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
