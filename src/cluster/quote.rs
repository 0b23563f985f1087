//! What a run would take here and on a cluster, before it does anything.

use crate::cluster::address::Address;
use crate::cluster::ballista::client::Cluster;
use crate::cluster::rounds;
use crate::error::Result;
use crate::memory;
use crate::memory::machine;
use crate::output::number::grouped;
use crate::output::place::Output;
use crate::plan::Plan;
use crate::plan::cost::machines::{Job, Machines, Step};
use crate::plan::cost::memory::Needs;
use crate::read::lake::statistics::Bounds;
use datafusion::dataframe::DataFrame;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tokio::time::sleep;

/// Executors that were asked who they are have answered in that time, unless they are busy.
const SETTLED: Duration = Duration::from_millis(400);

/// An estimate, or why there is none.
#[derive(Debug, Serialize)]
pub struct Quote {
    address: String,
    #[serde(flatten)]
    machines: Machines,
    /// Of this machine.
    threads: u64,
    memory_bytes: Option<u64>,
    needs: Option<Needs>,
    /// Why one task counts all rows, if it does.
    alone: Option<String>,
    /// Models with more non-zeros are split,
    split: u64,
    /// unless something hinders that.
    hindered: Option<String>,
    #[serde(flatten)]
    estimate: Option<Estimate>,
}

#[derive(Debug, Serialize)]
struct Estimate {
    job: Job,
    here: Vec<Step>,
    there: Vec<Step>,
    here_seconds: f64,
    there_seconds: f64,
    /// There, if no model were split.
    whole_seconds: f64,
}

/// Asks a cluster who is there, and estimates the run of a plan on it and on this machine with so many threads. There, models with more
/// non-zeros than `split` are split.
///
/// # Errors
/// As [`Cluster::connect`], and if a cluster does not take such a plan.
pub async fn quote(
    address: &Address,
    plan: &Plan,
    frame: &DataFrame,
    bounds: Bounds,
    threads: usize,
    split: u64,
) -> Result<Quote> {
    rounds::check(plan)?;
    // Its executors look at the output in a place of its own: what a run has left there of its work stays.
    let own = format!("quote-{}", plan.hash);
    let cluster = Cluster::connect(address, &plan.output, &own, &plan.stores).await?;
    let executors = cluster.executors();
    let machines = Machines {
        executors: executors.len() as u64,
        slots: executors.iter().map(|one| one.threads as u64).sum(),
        store: None,
    };
    cluster.leave().await;
    let output = Output::open(&plan.output, &plan.stores)?;
    let answers = output.answers(&own);
    // An executor that was asked already answers a moment later; what comes later still, `gyre clean` finds.
    for _ in 0..10 {
        sleep(SETTLED).await;
        if answers.done().await?.is_empty() {
            break;
        }
        output.remove_checkpoints(&own).await;
    }
    let width = rounds::width(plan, frame);
    let width = (width.as_ref().ok().copied(), width.err());
    let job = plan.job(bounds, width.0, split);
    let whole = plan.job(bounds, width.0, u64::MAX);
    let threads_here = threads as u64;
    Ok(Quote {
        address: address.to_string(),
        machines,
        threads: threads_here,
        memory_bytes: machine::all(),
        needs: plan.needs(bounds, threads),
        alone: width.1,
        split,
        hindered: plan.by_passes().err(),
        estimate: job.zip(whole).map(|(job, whole)| {
            let (here, there) = (
                job.here(threads_here, None),
                job.there(&machines, threads_here),
            );
            Estimate {
                here_seconds: seconds(&here),
                there_seconds: seconds(&there),
                whole_seconds: seconds(&whole.there(&machines, threads_here)),
                here,
                there,
                job,
            }
        }),
    })
}

fn seconds(steps: &[Step]) -> f64 {
    steps.iter().map(|step| step.seconds).sum()
}

impl fmt::Display for Quote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |n: u64, what: &str| match n {
            1 => format!("1 {what}"),
            n => format!("{} {what}s", grouped(n as f64)),
        };
        let (executors, slots) = (self.machines.executors, self.machines.slots);
        let who = plural(executors, "executor");
        let tasks = plural(slots, "task");
        writeln!(f, "  cluster {}: {who}, {tasks} at once", self.address)?;
        if let Some(why) = &self.alone {
            writeln!(f, "    one task counts all rows, because {why}")?;
        }
        let Some(Estimate {
            job,
            here,
            there,
            here_seconds,
            there_seconds,
            whole_seconds,
        }) = &self.estimate
        else {
            return write!(
                f,
                "    no estimate: time grows with rows, and nothing says how many there are"
            );
        };
        let rows = plural(job.rows, "row");
        let nonzeros = plural(job.nonzeros, "non-zero");
        let bounds = self.needs.map(|needs| needs.bounds);
        let models = match bounds.and_then(|bounds| bounds.partitions) {
            Some(_) => plural(job.models, "model"),
            None => "one model a lag, as nothing says how many partitions there are".into(),
        };
        writeln!(f, "    at most {rows}, {nonzeros}, {models}")?;
        let list = |steps: &[Step]| {
            let shown = steps
                .iter()
                .map(|step| format!("{} {}", step.name, shown(step.seconds)));
            shown.collect::<Vec<_>>().join(", ")
        };
        let threads = plural(self.threads, "thread");
        let total = shown(*here_seconds);
        writeln!(f, "    here {total} with {threads}: {}", list(here))?;
        let bytes: u64 = there.iter().map(|step| step.bytes).sum();
        let bytes = memory::shown(bytes as usize);
        let total = shown(*there_seconds);
        writeln!(f, "    there {total}: {}", list(there))?;
        let is_large = job.nonzeros.div_ceil(job.models.max(1)) > self.split;
        let large = || {
            let split = grouped(self.split as f64);
            format!("{models} of more than {split} non-zeros")
        };
        let pass = there.iter().find(|step| step.name == "pass");
        if let Some(pass) = pass {
            let rounds: u64 = job.passes.iter().map(|passes| passes.rounds).sum();
            let rounds = plural(rounds, "round");
            let (seconds, whole) = (shown(pass.seconds), shown(*whole_seconds));
            writeln!(
                f,
                "    split: {}, about {rounds} of passes a model, {seconds} in all; {whole} there if one executor fits a model whole",
                large()
            )?;
        } else if let (true, Some(why)) = (is_large, &self.hindered) {
            writeln!(f, "    not split: {}, because {why}", large())?;
        }
        writeln!(
            f,
            "    to the store and from it {bytes}, which take longer where that is no folder"
        )?;
        if let (Some(needs), Some(has)) = (&self.needs, self.memory_bytes) {
            let bytes = |bytes: u64| memory::shown(bytes as usize);
            let wanted = needs.count_bytes.max(needs.fit_bytes);
            if needs.resident_bytes > has {
                writeln!(
                    f,
                    "    the fits do not fit this machine: they use {} all over at once, and it has {}",
                    bytes(needs.resident_bytes),
                    bytes(has)
                )?;
            } else if wanted > has {
                writeln!(
                    f,
                    "    may not fit this machine: {} of {}; --memory leaves the rest on disk and takes longer",
                    bytes(wanted),
                    bytes(has)
                )?;
            }
        }
        let by_passes = match pass {
            Some(_) => "passes on the cluster are",
            None => "the cluster is",
        };
        let mut ways = vec![
            (*here_seconds, "local is", "here"),
            (*there_seconds, by_passes, "on the cluster"),
        ];
        if pass.is_some() {
            ways[1].2 = "by passes on the cluster";
            ways.push((
                *whole_seconds,
                "one executor a model is",
                "by one executor a model",
            ));
        }
        ways.sort_by(|a, b| a.0.total_cmp(&b.0));
        let others: Vec<_> = ways[1..]
            .iter()
            .map(|(seconds, _, other)| format!("{} {other}", shown(*seconds)))
            .collect();
        write!(
            f,
            "    {} faster: {}, and {}",
            ways[0].1,
            shown(ways[0].0),
            others.join(", ")
        )
    }
}

/// Seconds with a digit that means something.
fn shown(seconds: f64) -> String {
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s => format!("{} s", grouped(s.round())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::cost::machines::Passes;

    const GB: u64 = 1_000_000_000;

    /// What is said of 10⁹ rows, where the run takes so many seconds here and there.
    fn told(here: f64, there: f64, partitions: Option<u64>, resident_bytes: u64) -> String {
        said("count", [here, there, there], partitions, resident_bytes)
    }

    /// The same with a step there, and if one executor fits a model whole.
    fn said(
        name: &'static str,
        [here, there, whole]: [f64; 3],
        partitions: Option<u64>,
        resident_bytes: u64,
    ) -> String {
        let step = |name, seconds| Step {
            name,
            tasks: 1,
            seconds,
            bytes: 3 * GB,
        };
        let bounds = Bounds {
            rows: Some(GB),
            states: Some(1000),
            partitions,
        };
        let quote = Quote {
            address: "df://host:1".into(),
            machines: Machines {
                executors: 1,
                slots: 4,
                store: None,
            },
            threads: 2,
            memory_bytes: Some(24 * GB),
            needs: Some(Needs {
                bounds,
                count_bytes: 17 * GB,
                fit_bytes: 24 * GB + resident_bytes,
                resident_bytes,
            }),
            alone: None,
            split: GB,
            hindered: None,
            estimate: Some(Estimate {
                job: Job {
                    bytes: GB,
                    rows: GB,
                    pairs: GB,
                    nonzeros: 1_000_000,
                    states: 1000,
                    models: 1,
                    is_dealt: true,
                    is_whole: partitions.is_some(),
                    width: None,
                    fits: 1,
                    fit_seconds: 1e-9,
                    state_bytes: 50,
                    passes: vec![Passes {
                        rounds: 1234,
                        at_once: 1,
                        columns: 4,
                    }],
                },
                here: vec![step("count", here)],
                there: vec![step(name, there)],
                here_seconds: here,
                there_seconds: there,
                whole_seconds: whole,
            }),
        };
        quote.to_string()
    }

    #[test]
    fn both_numbers_are_said_and_what_does_not_fit() {
        assert_eq!(
            told(2.04, 1234.4, Some(1), 0),
            "  cluster df://host:1: 1 executor, 4 tasks at once
    at most 1,000,000,000 rows, 1,000,000 non-zeros, 1 model
    here 2.0 s with 2 threads: count 2.0 s
    there 1,234 s: count 1,234 s
    to the store and from it 3000MB, which take longer where that is no folder
    local is faster: 2.0 s, and 1,234 s on the cluster"
        );
        let lines = |text: String| -> Vec<String> {
            let lines = text.lines().skip(1).map(|line| line.trim().to_string());
            lines.collect()
        };
        let some = lines(told(99.0, 9.95, None, GB));
        let unknown = "one model a lag, as nothing says how many partitions there are";
        assert!(some[0].ends_with(unknown), "{some:?}");
        let beyond = "may not fit this machine: 25000MB of 24000MB; --memory leaves the rest on disk and takes longer";
        assert_eq!(some[4], beyond);
        assert_eq!(some[5], "the cluster is faster: 10 s, and 99 s here");
        let factors = lines(told(1.0, 1.0, Some(1), 25 * GB));
        let never = "the fits do not fit this machine: they use 25000MB all over at once, and it has 24000MB";
        assert_eq!(factors[4], never);
        assert_eq!(
            factors[5],
            "local is faster: 1.0 s, and 1.0 s on the cluster"
        );
    }

    #[test]
    fn passes_are_weighed_against_one_executor_a_model() {
        let text = said("pass", [99.0, 50.0, 20.0], Some(1), 0);
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        assert_eq!(
            lines[4],
            "split: 1 model of more than 1,000,000,000 non-zeros, about 1,234 rounds of passes a model, 50 s in all; 20 s there if one executor fits a model whole"
        );
        assert_eq!(
            lines.last(),
            Some(
                &"one executor a model is faster: 20 s, and 50 s by passes on the cluster, 99 s here"
            )
        );
        let text = said("pass", [99.0, 20.0, 50.0], Some(1), 0);
        assert!(text.ends_with(
            "passes on the cluster are faster: 20 s, and 50 s by one executor a model, 99 s here"
        ));
    }
}
