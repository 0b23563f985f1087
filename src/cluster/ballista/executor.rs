//! An executor: polls a scheduler for tasks and does them. It listens on no port.

use crate::cluster::address::Address;
use crate::cluster::ballista::operator::TasksCodec;
use crate::cluster::ballista::scheduler_client::SchedulerClient;
use crate::cluster::ballista::worker::Node;
use crate::error::{Error, Kind, Result};
use crate::memory;
use crate::read::lake::Resources;
use ballista_core::BALLISTA_PROTOCOL_VERSION;
use ballista_core::ids::new_instance_id;
use ballista_core::registry::BallistaFunctionRegistry;
use ballista_core::serde::protobuf::{ExecutorRegistration, ExecutorStoppedParams};
use ballista_core::serde::scheduler::{
    ExecutorOperatingSystemSpecification, ExecutorSpecification,
};
use ballista_core::serde::{BallistaCodec, BallistaLogicalExtensionCodec};
use ballista_core::utils::default_config_producer;
use ballista_executor::execution_engine::DefaultExecutionEngine;
use ballista_executor::execution_loop::poll_loop;
use ballista_executor::executor::Executor;
use ballista_executor::health::ExecutorHealth;
use ballista_executor::metrics::LoggingMetricsCollector;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};

/// A stopped executor finishes its tasks within this time, or leaves them undone.
const END: Duration = Duration::from_secs(20);

/// How long to try to report the stop to the scheduler.
const LEAVE: Duration = Duration::from_secs(2);

/// Does tasks until `stopped`, `vcores` at once, each with these resources. `folder` holds
/// temporary files. Calls `ready` with the name of the executor.
///
/// # Errors
/// If the scheduler does not answer, or a task exceeds the memory.
pub(crate) async fn run(
    scheduler: &Address,
    vcores: usize,
    resources: Resources,
    folder: &Path,
    ready: impl FnOnce(&str) -> Result<()>,
    stopped: impl Future<Output = ()>,
) -> Result<()> {
    let client = SchedulerClient::connect(scheduler).await?;
    let unusable = |e| {
        let message = format!("{}: cannot hold temporary files", folder.display());
        Error::store(message, e)
    };
    let work = tempfile::Builder::new()
        .prefix("gyre-executor-")
        .tempdir_in(folder);
    let work = work.map_err(unusable)?;
    let host = host();
    let name = format!("executor on {host} (process {})", std::process::id());
    let node = Arc::new(Node::new(name, resources));
    let executor = executor(&host, vcores, work.path());
    let id = executor.metadata.id.clone();
    let codec = BallistaCodec::<LogicalPlanNode, PhysicalPlanNode>::new(
        Arc::new(BallistaLogicalExtensionCodec::default()),
        Arc::new(TasksCodec::of(Arc::clone(&node))),
    );
    let health = ExecutorHealth::new();
    let polling = poll_loop(
        client.grpc(),
        executor,
        codec,
        None,
        Some(Arc::clone(node.slots())),
        health.clone(),
    );
    tracing::info!(id, vcores, "polls {scheduler} for tasks");
    let ending = async {
        stopped.await;
        tracing::info!("finishes its tasks");
        if timeout(END, node.end()).await.is_err() {
            tracing::warn!("leaves tasks undone after {} seconds", END.as_secs());
        }
    };
    let ended = tokio::select! {
        () = ending => Ok(()),
        e = memory::exceeded() => Err(e),
        watched = watch(scheduler, &health, || ready(node.name())) => watched,
        Err(e) = polling => Err(Error::with_source(Kind::Bug, "an executor polls no more", e)),
    };
    let mut grpc = client.grpc();
    let stop = ExecutorStoppedParams {
        executor_id: id,
        reason: "stopped".into(),
    };
    // Without this report the scheduler would notice the loss later.
    if let Ok(Err(e)) = timeout(LEAVE, grpc.executor_stopped(stop)).await {
        tracing::debug!("{e}");
    }
    if let Err(e) = work.close() {
        tracing::warn!("temporary files are left: {e}");
    }
    ended
}

fn executor(host: &str, vcores: usize, work: &Path) -> Arc<Executor> {
    let specification = ExecutorSpecification::default().with_vcores(vcores as u32);
    let registration = ExecutorRegistration {
        id: format!("{host}-{}-{}", std::process::id(), new_instance_id()),
        host: Some(host.to_string()),
        port: 0,
        grpc_port: 0,
        specification: Some(specification.into()),
        os_info: Some(ExecutorOperatingSystemSpecification::default().into()),
        ballista_protocol_version: BALLISTA_PROTOCOL_VERSION,
    };
    Arc::new(Executor::new(
        registration,
        &work.display().to_string(),
        Arc::new(|_| RuntimeEnvBuilder::new().build_arc()),
        Arc::new(default_config_producer),
        Arc::new(BallistaFunctionRegistry::default()),
        Arc::new(LoggingMetricsCollector::default()),
        vcores,
        Arc::new(DefaultExecutionEngine::new()),
    ))
}

/// Calls `ready` when the scheduler answers first, and logs when it is lost and when it answers
/// again. Never ends without an error, because a lost scheduler may come back.
async fn watch(
    scheduler: &Address,
    health: &ExecutorHealth,
    ready: impl FnOnce() -> Result<()>,
) -> Result<()> {
    while !health.is_ready() {
        sleep(Duration::from_millis(20)).await;
    }
    ready()?;
    let mut was_ready = true;
    loop {
        sleep(Duration::from_secs(1)).await;
        match (was_ready, health.is_ready()) {
            (true, false) => tracing::warn!("{scheduler} does not answer; polling on"),
            (false, true) => tracing::warn!("{scheduler} answers again"),
            _ => (),
        }
        was_ready = health.is_ready();
    }
}

/// The name of the machine.
fn host() -> String {
    let named = std::fs::read_to_string("/proc/sys/kernel/hostname");
    let named = named.ok().or_else(|| std::env::var("HOSTNAME").ok());
    named.map_or_else(|| "localhost".into(), |name| name.trim().to_string())
}
