//! The requests of clients and executors to a scheduler.

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

/// A scheduler that accepts no connection within this time does not exist.
const CONNECT: Duration = Duration::from_secs(5);

/// A request that gets no answer within this time is made again later.
const ANSWER: Duration = Duration::from_secs(20);

/// A connection to a scheduler, which is made again when it breaks.
#[derive(Clone)]
pub(crate) struct SchedulerClient {
    /// The address of the scheduler.
    pub address: Address,
    channel: Channel,
    session: String,
}

/// The state of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum JobState {
    /// No task has begun.
    Queued,
    /// Some task has begun.
    Running,
    /// All tasks are done.
    Done,
    /// A task has failed, with this message.
    Failed(String),
    /// The scheduler does not know the job, or not any more.
    Unknown,
}

impl SchedulerClient {
    /// Connects to a scheduler.
    ///
    /// # Errors
    /// [`Kind::Store`] if no scheduler answers.
    pub(crate) async fn connect(address: &Address) -> Result<SchedulerClient> {
        let config = GrpcClientConfig {
            connect_timeout_seconds: CONNECT.as_secs(),
            timeout_seconds: ANSWER.as_secs(),
            // A machine that is gone closes no connection.
            http2_keepalive_interval_seconds: CONNECT.as_secs(),
            ..GrpcClientConfig::default()
        };
        let url = format!("http://{}:{}", address.host, address.port);
        let missing = |e| {
            let message = format!("no scheduler answers at {address}");
            Error::with_source(Kind::Store, message, root(e))
        };
        let endpoint = create_grpc_client_endpoint(url, Some(&config)).map_err(missing)?;
        Ok(SchedulerClient {
            address: address.clone(),
            channel: endpoint.connect().await.map_err(missing)?,
            session: new_instance_id(),
        })
    }

    /// A client for requests that this type does not have.
    pub(crate) fn grpc(&self) -> SchedulerGrpcClient<Channel> {
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

    /// The number of live executors, which the answer to a readiness check contains.
    ///
    /// # Errors
    /// If the scheduler does not answer, or is not of gyre.
    pub(crate) async fn executors(&self) -> Result<usize> {
        let not_gyre = || {
            let message = format!("{} is not a scheduler of gyre", self.address);
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
        number.ok_or_else(not_gyre)
    }

    /// Submits a job and returns its ID.
    ///
    /// # Errors
    /// If the scheduler does not answer or refuses the job.
    pub(crate) async fn submit(&self, name: &str, plan: Vec<u8>) -> Result<String> {
        let setting = |key: &str, value: &str| KeyValuePair {
            key: key.into(),
            value: Some(value.into()),
        };
        let mut request = Request::new(ExecuteQueryParams {
            session_id: self.session.clone(),
            settings: vec![
                setting(BALLISTA_JOB_NAME, name),
                // One task of Ballista per task of gyre: a lost task takes no others with it.
                setting(BALLISTA_SCHEDULER_MAX_PARTITIONS_PER_TASK, "1"),
            ],
            operation_id: new_instance_id(),
            query: Some(Query::PhysicalPlan(plan)),
        });
        insert_version_header(request.metadata_mut());
        let answer = self.grpc().execute_query(request).await;
        match answer.map_err(|e| self.failed(e))?.into_inner().result {
            Some(Submitted::Success(job)) => Ok(job.job_id),
            other => {
                let text = format!("{other:?}");
                Err(unwrapped(&text).unwrap_or_else(|| {
                    let place = format!("the scheduler at {}", self.address);
                    let message = format!("{place} does not understand gyre {VERSION}");
                    Error::with_source(Kind::Conflict, message, text)
                }))
            }
        }
    }

    /// The state of a job.
    ///
    /// # Errors
    /// If the scheduler does not answer.
    pub(crate) async fn state(&self, job: &str) -> Result<JobState> {
        let request = GetJobStatusParams { job_id: job.into() };
        let answer = self.grpc().get_job_status(request).await;
        let status = answer.map_err(|e| self.failed(e))?.into_inner().status;
        Ok(match status.and_then(|status| status.status) {
            None => JobState::Unknown,
            Some(Status::Queued(_)) => JobState::Queued,
            Some(Status::Running(_)) => JobState::Running,
            Some(Status::Successful(_)) => JobState::Done,
            Some(Status::Failed(failed)) => JobState::Failed(failed.error),
        })
    }

    /// Cancels a job: no more of its tasks begin.
    ///
    /// # Errors
    /// If the scheduler does not answer.
    pub(crate) async fn cancel(&self, job: &str) -> Result<()> {
        let request = CancelJobParams { job_id: job.into() };
        let answer = self.grpc().cancel_job(request).await;
        answer.map(drop).map_err(|e| self.failed(e))
    }

    /// Ends the session of this client.
    ///
    /// # Errors
    /// If the scheduler does not answer.
    pub(crate) async fn close(&self) -> Result<()> {
        let request = RemoveSessionParams {
            session_id: self.session.clone(),
        };
        let answer = self.grpc().remove_session(request).await;
        answer.map(drop).map_err(|e| self.failed(e))
    }
}

/// The root cause of an error. The layers around it add nothing.
fn root(e: impl std::error::Error) -> String {
    let causes = std::iter::successors(e.source(), |&cause| cause.source());
    causes
        .last()
        .map_or_else(|| e.to_string(), ToString::to_string)
}
