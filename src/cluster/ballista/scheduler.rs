//! The scheduler of Ballista, with the operator of gyre. It keeps everything in memory.

use crate::cluster::address::Address;
use crate::cluster::ballista::operator::TasksCodec;
use crate::cluster::ballista::{LOST_AFTER, MESSAGE_BYTES};
use crate::error::{Error, Kind, Result};
use ballista_core::config::TaskSchedulingPolicy;
use ballista_scheduler::cluster::{BallistaCluster, ClusterStateEvent};
use ballista_scheduler::config::{SchedulerConfig, TaskDistributionPolicy};
use ballista_scheduler::scheduler_process::{create_scheduler, start_grpc_service_with_listener};
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionConfig;
use datafusion_proto::protobuf::{LogicalPlanNode, PhysicalPlanNode};
use futures::StreamExt;
use std::sync::Arc;
use tokio::net::{TcpListener, TcpSocket, lookup_host};

/// Calls `ready` with the address of the scheduler, and distributes tasks until `stopped`.
///
/// # Errors
/// If the address cannot be used.
pub(crate) async fn serve(
    listen: &str,
    ready: impl FnOnce(&Address) -> Result<()>,
    stopped: impl Future<Output = ()>,
) -> Result<()> {
    let (listener, address) = bind(listen).await?;
    let config = Arc::new(config(&address));
    let failed = |e| Error::with_source(Kind::Bug, "the scheduler cannot start", e);
    let cluster = BallistaCluster::new_from_config(&config).await;
    let cluster = cluster.map_err(failed)?;
    let scheduler = create_scheduler::<LogicalPlanNode, PhysicalPlanNode>(cluster, config);
    let scheduler = scheduler.await.map_err(failed)?;
    let events = scheduler.cluster_state_events().await.map_err(failed)?;
    ready(&address)?;
    tokio::select! {
        () = events.for_each(log) => Err(Error::bug("the events of executors have ended")),
        served = start_grpc_service_with_listener(listener, scheduler) => {
            let ended = |e| Error::with_source(Kind::Resources, "the scheduler cannot listen any more", e);
            served.map_err(ended)
        }
        () = stopped => Ok(()),
    }
}

/// Logs which executors come and go.
async fn log(event: ClusterStateEvent) {
    match event {
        ClusterStateEvent::RegisteredExecutor { executor_id } => {
            tracing::info!(executor_id, "an executor has come")
        }
        ClusterStateEvent::RemovedExecutor { executor_id } => {
            tracing::info!(executor_id, "an executor has gone")
        }
    }
}

async fn bind(listen: &str) -> Result<(TcpListener, Address)> {
    let unusable = |e: std::io::Error| {
        let message = format!("cannot listen at {listen}; choose another address with --listen");
        Error::with_source(Kind::Resources, message, e)
    };
    let Some((host, _)) = listen.rsplit_once(':') else {
        let what = "write a host and a port, such as 127.0.0.1:50050";
        return Err(Error::spec(format!("--listen {listen}: {what}")));
    };
    let mut found = lookup_host(listen).await.map_err(unusable)?;
    let Some(place) = found.next() else {
        let message = format!("--listen {listen}: there is no such host");
        return Err(Error::spec(message));
    };
    let bind = || {
        let socket = if place.is_ipv4() {
            TcpSocket::new_v4()?
        } else {
            TcpSocket::new_v6()?
        };
        // A restarted scheduler can use the address at once.
        socket.set_reuseaddr(true)?;
        // All connections inherit it. An answer then does not wait for more data to send.
        socket.set_nodelay(true)?;
        socket.bind(place)?;
        let listener = socket.listen(1024)?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    };
    let (listener, port) = bind().map_err(unusable)?;
    let host = host.to_string();
    Ok((listener, Address { host, port }))
}

fn config(address: &Address) -> SchedulerConfig {
    let lost = LOST_AFTER.as_secs();
    SchedulerConfig {
        bind_host: address.host.clone(),
        bind_port: address.port,
        external_host: address.host.clone(),
        // Executors poll, so they need no address, and a lost executor gets no more tasks.
        scheduling_policy: TaskSchedulingPolicy::PullStaged,
        task_distribution: TaskDistributionPolicy::Bias,
        grpc_server_max_decoding_message_size: MESSAGE_BYTES as u32,
        grpc_server_max_encoding_message_size: MESSAGE_BYTES as u32,
        grpc_client_max_message_size: MESSAGE_BYTES as u32,
        executor_timeout_seconds: lost,
        expire_dead_executor_interval_seconds: lost / 4,
        no_executors_grace_period_seconds: lost,
        // A scheduler is ready before its executors: load balancers send them to ready ones only.
        min_ready_executors: 0,
        // A job leaves one empty file per task and its record, which no client reads again.
        finished_job_data_clean_up_interval_seconds: lost,
        finished_job_state_clean_up_interval_seconds: 10 * lost,
        override_physical_codec: Some(Arc::new(TasksCodec::default())),
        // Plans are ready to run and need no functions or rules.
        override_session_builder: Some(Arc::new(|config: SessionConfig| {
            Ok(SessionStateBuilder::new().with_config(config).build())
        })),
        ..SchedulerConfig::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_address_in_use_is_named() {
        let (_listener, address) = bind("127.0.0.1:0").await.expect("a free port");
        let taken = format!("127.0.0.1:{}", address.port);
        // Two sockets may bind the port, but only one may listen.
        let e = bind(&taken).await.expect_err("it is in use");
        assert_eq!(e.kind(), Kind::Resources);
        let expected = format!("cannot listen at {taken}");
        assert!(e.full().starts_with(&expected), "{}", e.full());
        let e = bind("127.0.0.1").await.expect_err("no port");
        assert_eq!(e.kind(), Kind::Spec);
    }
}
