//! A whole cluster on one machine: a scheduler and executors. Each is a process of this program,
//! and they end with this process.

use crate::cluster::address::Address;
use crate::cluster::ballista::scheduler_client::SchedulerClient;
use crate::error::{Error, Kind, Result};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// A cluster that takes longer than this to start has failed.
pub(crate) const START: Duration = Duration::from_secs(20);

/// A process that takes longer than this to stop is killed.
const STOP: Duration = Duration::from_secs(25);

/// The cluster to start.
pub(crate) struct ClusterPlan {
    /// The port of the scheduler, or 0 for any free port.
    pub port: u16,
    /// Number of executors.
    pub executors: usize,
    /// Tasks that each executor does at once.
    pub vcores: usize,
    /// Memory limit of each executor.
    pub memory_bytes: Option<u64>,
    /// The logging option of the processes.
    pub logging: Option<&'static str>,
}

/// Starts a cluster, calls `ready` with its address, and keeps the cluster until `stopped`.
///
/// # Errors
/// If a process cannot start, or the scheduler or all executors end.
pub(crate) async fn up(
    plan: &ClusterPlan,
    ready: impl FnOnce(&Address) -> Result<()>,
    stopped: impl Future<Output = ()>,
) -> Result<()> {
    let mut children = Vec::new();
    let kept = tokio::select! {
        kept = keep(plan, &mut children, ready) => kept,
        () = stopped => Ok(()),
    };
    stop(children).await;
    kept
}

async fn keep(
    plan: &ClusterPlan,
    children: &mut Vec<Child>,
    ready: impl FnOnce(&Address) -> Result<()>,
) -> Result<()> {
    let listen = format!("127.0.0.1:{}", plan.port);
    let mut scheduler = start(plan, &["scheduler", "--listen", &listen])?;
    let out = scheduler.stdout.take();
    children.push(scheduler);
    let mut line = String::new();
    if let Some(out) = out {
        let read = timeout(START, BufReader::new(out).read_line(&mut line)).await;
        read.ok()
            .transpose()
            .map_err(|e| Error::with_source(Kind::Resources, "no output", e))?;
    }
    let ended = |what: &str| Error::new(Kind::Resources, format!("{what} has ended; see above"));
    // The scheduler has printed the reason.
    let address: Address = line.trim().parse().map_err(|_| ended("the scheduler"))?;
    let (to, vcores) = (address.to_string(), plan.vcores.to_string());
    let memory = plan.memory_bytes.map(|bytes| bytes.to_string());
    for _ in 0..plan.executors {
        let mut arguments = vec!["executor", "--scheduler", &to, "--vcores", &vcores];
        if let Some(memory) = &memory {
            arguments.extend(["--memory", memory]);
        }
        children.push(start(plan, &arguments)?);
    }
    let client = SchedulerClient::connect(&address).await?;
    let began = Instant::now();
    let mut ready = Some(ready);
    loop {
        let mut alive = 0;
        for (at, child) in children.iter_mut().enumerate() {
            let status = child.try_wait();
            let status = status.map_err(|e| Error::with_source(Kind::Bug, "a child is lost", e))?;
            match status {
                None => alive += 1,
                Some(_) if at == 0 => return Err(ended("the scheduler")),
                Some(_) if ready.is_some() => return Err(ended("an executor")),
                Some(_) => (),
            }
        }
        if alive == 1 {
            return Err(ended("every executor"));
        }
        if ready.is_some()
            && client.executors().await? == plan.executors
            && let Some(ready) = ready.take()
        {
            ready(&address)?;
        }
        if ready.is_some() && began.elapsed() > START {
            let message = format!("the executors did not start in {} seconds", START.as_secs());
            return Err(Error::new(Kind::Resources, message));
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Starts this program as another process. It ends when its standard input is closed, so it ends
/// with this process, however this process ends.
fn start(plan: &ClusterPlan, arguments: &[&str]) -> Result<Child> {
    let failed = |e| Error::with_source(Kind::Resources, "cannot start a process", e);
    let program: PathBuf = std::env::current_exe().map_err(failed)?;
    let child = Command::new(program)
        .args(arguments)
        .arg("--with-parent")
        .args(plan.logging)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn();
    child.map_err(failed)
}

/// Stops the executors and then the scheduler, because executors report their stop to it.
async fn stop(mut children: Vec<Child>) {
    let until = Instant::now() + STOP;
    let mut scheduler = children.drain(..children.len().min(1)).collect::<Vec<_>>();
    for group in [&mut children, &mut scheduler] {
        group.iter_mut().for_each(|child| drop(child.stdin.take()));
        for child in group {
            if timeout_at(until, child.wait()).await.is_err()
                && let Err(e) = child.kill().await
            {
                tracing::warn!("a process does not end: {e}");
            }
        }
    }
}
