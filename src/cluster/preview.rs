//! What a run would be on a cluster, as counts: its executors, the tasks that read the files, and
//! whether models are split. How long it takes is not predicted.

use crate::cluster::address::Address;
use crate::cluster::ballista::client::Cluster;
use crate::error::{Result, counted};
use crate::memory;
use crate::output::number::grouped;
use crate::run::planned::AnyRun;
use crate::run::workers::slices::{Split, Spread, Width};
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use tokio::time::sleep;

/// Executors answer within this time, unless they are busy.
const SETTLED: Duration = Duration::from_millis(400);

#[derive(Debug, Serialize)]
pub(crate) struct Preview {
    address: String,
    executors: usize,
    /// Tasks that all executors run at once.
    slots: usize,
    file_bytes: u64,
    #[serde(flatten)]
    width: Option<Width>,
    /// Why one task counts all rows, if it does.
    alone: Option<String>,
    /// When models of states are split.
    #[serde(flatten)]
    split: Option<Split>,
}

/// Asks a cluster for its executors, and counts the tasks of a run there. Models of more than
/// `split` non-zeros are split into passes.
///
/// # Errors
/// As [`Cluster::connect`], and if a cluster does not take such a plan.
pub(crate) async fn preview(address: &Address, run: &dyn AnyRun, split: u64) -> Result<Preview> {
    let Spread { width, split } = run.spread(split).await?;
    let job = run.job();
    // Executors probe the output under a name of its own, so saved work of a run stays there.
    let own = format!("preview-{}", job.hash);
    let cluster = Cluster::connect(address, &job.output, &own, &job.stores).await?;
    let threads = cluster.executors().iter().map(|one| one.threads);
    let (executors, slots) = (threads.len(), threads.sum());
    cluster.leave().await;
    let output = run.output()?;
    let answers = output.answers(&own);
    // An executor may write its answer a moment after this. `gyre clean` removes answers that
    // come later.
    for _ in 0..10 {
        sleep(SETTLED).await;
        if answers.done().await?.is_empty() {
            break;
        }
        output.remove_checkpoints(&own).await;
    }
    // The record of the folder is left if no answer was.
    output.remove_checkpoints(&own).await;
    let files = job.tables.iter().flat_map(|table| &table.files);
    let (width, alone) = match width {
        Ok(width) => (Some(width), None),
        Err(why) => (None, Some(why)),
    };
    Ok(Preview {
        address: address.to_string(),
        executors,
        slots,
        file_bytes: files.map(|file| file.size_bytes).sum(),
        width,
        alone,
        split,
    })
}

impl fmt::Display for Preview {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = |n: u64, what: &str| counted(grouped(n as f64), what);
        let executors = number(self.executors as u64, "executor");
        let slots = number(self.slots as u64, "task");
        let bytes = memory::shown(self.file_bytes as usize);
        let address = &self.address;
        let mut lines = vec![format!("  cluster {address}: {executors}, {slots} at once")];
        let verb = self.split.as_ref().map_or("read", |_| "count");
        if let Some(why) = &self.alone {
            let what = format!("{verb}s all rows of {bytes} of files");
            lines.push(format!("    1 task {what}, because {why}"));
        }
        if let Some(width) = &self.width {
            let (readers, lots) = (number(width.slices, "task"), number(width.lots, "lot"));
            let rounds = width.rounds.join(", ");
            lines.push(format!("    files: {bytes}, read by {readers} into {lots}"));
            lines.push(format!("    rounds of tasks that {verb}: {rounds}"));
        }
        if let Some(Split { split, not_split }) = &self.split {
            let split = grouped(*split as f64);
            lines.push(match not_split {
                Some(why) => format!("    no model is split into passes, because {why}"),
                None => {
                    format!("    models of more than {split} non-zeros are split into passes")
                }
            });
        }
        write!(f, "{}", lines.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_clusters_shows_what_a_plan_says_of_one() {
        let preview = |not_split: Option<&str>| Preview {
            address: "df://10.0.0.5:50050".into(),
            executors: 2,
            slots: 4,
            file_bytes: 2_000_000_000,
            width: Some(Width {
                slices: 64,
                lots: 16,
                rounds: vec!["deal", "sum", "add", "count"],
            }),
            alone: None,
            split: Some(Split {
                split: 1 << 28,
                not_split: not_split.map(String::from),
            }),
        };
        let page = include_str!("../guide/cluster.md");
        let none = "none has more than 268,435,456 non-zeros";
        let text = preview(Some(none)).to_string();
        assert!(page.contains(&format!("```text\n{text}\n```")), "{text}");
        let text = preview(None).to_string();
        let last = "    models of more than 268,435,456 non-zeros are split into passes";
        assert_eq!(text.lines().last(), Some(last));
        let alone = Preview {
            width: None,
            alone: Some("weights are no integers".into()),
            ..preview(None)
        };
        let why =
            "\n    1 task counts all rows of 2000MB of files, because weights are no integers\n";
        assert!(alone.to_string().contains(why), "{alone}");
    }
}
