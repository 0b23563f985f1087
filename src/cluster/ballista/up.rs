//! A whole cluster on one machine: a scheduler and executors, each a process of this same program, that end with this one.

use crate::cluster::address::Address;
use crate::cluster::ballista::dispatch::Dispatch;
use crate::error::{Error, Kind, Result};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// All of it is there in this time, or it does not come.
pub(crate) const START: Duration = Duration::from_secs(20);

/// What is stopped ends in this time, or it is killed.
const STOP: Duration = Duration::from_secs(25);

/// What to start.
pub struct Plan {
    pub port: u16,
    pub executors: usize,
    pub vcores: usize,
    pub memory_bytes: Option<u64>,
    /// What the processes are to tell, as options of the program.
    pub logging: Option<&'static str>,
}

/// Starts a cluster and keeps it until `stopped`; `ready` hears its address.
///
/// # Errors
/// If a process cannot start, or the scheduler or all executors end.
pub async fn up(
    plan: &Plan,
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
    plan: &Plan,
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
    // It has said why.
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
    let dispatch = Dispatch::connect(&address).await?;
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
            && dispatch.executors().await? == plan.executors
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

/// Starts this program as another process, which ends when its standard input does: with this one, however that ends.
fn start(plan: &Plan, arguments: &[&str]) -> Result<Child> {
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

/// Ends the executors and then the scheduler, to which they say that they go.
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
