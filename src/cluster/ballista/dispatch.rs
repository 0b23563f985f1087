//! What a client and a scheduler say to each other.

use crate::cluster::address::Address;
use crate::cluster::ballista::operator::unwrapped;
use crate::cluster::ballista::{MESSAGE_BYTES, VERSION};
use crate::error::{Error, Kind, Result};
use ballista_core::config::{BALLISTA_JOB_NAME, BALLISTA_SCHEDULER_MAX_PARTITIONS_PER_TASK};
use ballista_core::ids::new_instance_id;
use ballista_core::serde::protobuf::execute_query_params::Query;
use ballista_core::serde::protobuf::execute_query_result::Result as Submitted;
use ballista_core::serde::protobuf::job_status::Status;
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::serde::protobuf::{
    CancelJobParams, ExecuteQueryParams, GetJobStatusParams, KeyValuePair, RemoveSessionParams,
};
use ballista_core::utils::{GrpcClientConfig, create_grpc_client_endpoint};
use ballista_core::version::insert_version_header;
use std::pin::Pin;
use std::time::Duration;
use tonic::body::Body;
use tonic::codegen::{Body as _, Service, http};
use tonic::transport::Channel;
use tonic::{Code, Request};

/// A scheduler that does not take a connection for so long is not there.
const CONNECT: Duration = Duration::from_secs(5);

/// A scheduler that does not answer for so long is asked again later.
const ANSWER: Duration = Duration::from_secs(20);

/// A scheduler, as a client or an executor talks to it. The connection is made again when it breaks.
#[derive(Clone)]
pub struct Dispatch {
    pub address: Address,
    channel: Channel,
    session: String,
}

/// How a job goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Queued,
    Running,
    Done,
    Failed(String),
    /// The scheduler does not know it, or not any more.
    Unknown,
}

impl Dispatch {
    /// Connects to a scheduler.
    ///
    /// # Errors
    /// [`Kind::Store`] if nobody is there.
    pub async fn connect(address: &Address) -> Result<Dispatch> {
        let config = GrpcClientConfig {
            connect_timeout_seconds: CONNECT.as_secs(),
            timeout_seconds: ANSWER.as_secs(),
            // A machine that vanished closes no connection.
            http2_keepalive_interval_seconds: CONNECT.as_secs(),
            ..GrpcClientConfig::default()
        };
        let url = format!("http://{}:{}", address.host, address.port);
        let missing = |e| {
            let message = format!("no scheduler answers at {address}");
            Error::with_source(Kind::Store, message, root(e))
        };
        let endpoint = create_grpc_client_endpoint(url, Some(&config)).map_err(missing)?;
        Ok(Dispatch {
            address: address.clone(),
            channel: endpoint.connect().await.map_err(missing)?,
            session: new_instance_id(),
        })
    }

    pub fn client(&self) -> SchedulerGrpcClient<Channel> {
        SchedulerGrpcClient::new(self.channel.clone())
            .max_encoding_message_size(MESSAGE_BYTES)
            .max_decoding_message_size(MESSAGE_BYTES)
    }

    fn failed(&self, status: tonic::Status) -> Error {
        let address = &self.address;
        match status.code() {
            Code::FailedPrecondition => {
                let message = format!("the scheduler at {address} has another version of Ballista");
                Error::with_source(Kind::Conflict, message, status.message().to_string())
            }
            Code::OutOfRange | Code::ResourceExhausted => {
                let message = "a task is longer than a message to the scheduler may be";
                Error::with_source(Kind::Bug, message, status.message().to_string())
            }
            _ => {
                let message = format!("the scheduler at {address} cannot be reached");
                Error::with_source(Kind::Store, message, root(status))
            }
        }
    }

    /// How many executors the scheduler has heard of lately. It tells so where it is asked whether it is ready.
    pub async fn executors(&self) -> Result<usize> {
        let strange = || {
            let message = format!("{} is no scheduler of gyre", self.address);
            Error::new(Kind::Conflict, message)
        };
        let request = http::Request::get("/readyz").body(Body::empty());
        let request = request.map_err(|e| Error::with_source(Kind::Bug, "no request", e))?;
        let lost =
            |e: Box<dyn std::error::Error + Send + Sync>| self.failed(tonic::Status::from_error(e));
        let mut channel = self.channel.clone();
        let ready = std::future::poll_fn(|context| channel.poll_ready(context)).await;
        ready.map_err(|e| lost(e.into()))?;
        let answer = channel.call(request).await.map_err(|e| lost(e.into()))?;
        let mut body = answer.into_body();
        let mut text = Vec::new();
        while let Some(frame) =
            std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
        {
            let data = frame.map_err(|e| lost(e.into()))?.into_data();
            text.extend(data.unwrap_or_default());
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        let digits = |c: char| !c.is_ascii_digit();
        let number = text.split(digits).find(|part| !part.is_empty());
        let is_ready = text.contains("executors registered");
        let number = number.filter(|_| is_ready).and_then(|n| n.parse().ok());
        number.ok_or_else(strange)
    }

    /// Hands in a job; says how it is called.
    pub async fn submit(&self, name: &str, plan: Vec<u8>) -> Result<String> {
        let setting = |key: &str, value: &str| KeyValuePair {
            key: key.into(),
            value: Some(value.into()),
        };
        let mut request = Request::new(ExecuteQueryParams {
            session_id: self.session.clone(),
            settings: vec![
                setting(BALLISTA_JOB_NAME, name),
                // A task of its own for each of ours: one that is lost takes no others with it.
                setting(BALLISTA_SCHEDULER_MAX_PARTITIONS_PER_TASK, "1"),
            ],
            operation_id: new_instance_id(),
            query: Some(Query::PhysicalPlan(plan)),
        });
        insert_version_header(request.metadata_mut());
        let answer = self.client().execute_query(request).await;
        match answer.map_err(|e| self.failed(e))?.into_inner().result {
            Some(Submitted::Success(job)) => Ok(job.job_id),
            other => {
                let text = format!("{other:?}");
                Err(unwrapped(&text).unwrap_or_else(|| {
                    let message = format!(
                        "the scheduler at {} does not understand gyre {VERSION}",
                        self.address
                    );
                    Error::with_source(Kind::Conflict, message, text)
                }))
            }
        }
    }

    pub async fn state(&self, job: &str) -> Result<State> {
        let request = GetJobStatusParams { job_id: job.into() };
        let answer = self.client().get_job_status(request).await;
        let status = answer.map_err(|e| self.failed(e))?.into_inner().status;
        Ok(match status.and_then(|status| status.status) {
            None => State::Unknown,
            Some(Status::Queued(_)) => State::Queued,
            Some(Status::Running(_)) => State::Running,
            Some(Status::Successful(_)) => State::Done,
            Some(Status::Failed(failed)) => State::Failed(failed.error),
        })
    }

    /// Lets no more tasks of a job begin.
    pub async fn cancel(&self, job: &str) -> Result<()> {
        let request = CancelJobParams { job_id: job.into() };
        let answer = self.client().cancel_job(request).await;
        answer.map(drop).map_err(|e| self.failed(e))
    }

    /// Lets the scheduler forget this client.
    pub async fn close(&self) -> Result<()> {
        let request = RemoveSessionParams {
            session_id: self.session.clone(),
        };
        let answer = self.client().remove_session(request).await;
        answer.map(drop).map_err(|e| self.failed(e))
    }
}

/// The first cause of an error: what lies around it says nothing more.
fn root(e: impl std::error::Error) -> String {
    let mut text = e.to_string();
    let mut cause = e.source();
    while let Some(e) = cause {
        text = e.to_string();
        cause = e.source();
    }
    text
}
