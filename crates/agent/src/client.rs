//! A client of the host API on this machine.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, stream};
use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use crate::api::{
    CacheReport, ErrorBody, GcReport, GcRequest, InstanceList, InstanceStatus, InstanceSummary,
    PrefetchReport, PrefetchRequest, Status, VerifyReport,
};
use crate::id::InstanceId;
use crate::spec::WorkloadSpec;

/// The longest answer: a cache of thousands of root disks is far below it.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// How long a deletion may take: an agent answers every call within a minute, and this is what somebody waits for
/// who asked for an end.
const DELETE_PATIENCE: Duration = Duration::from_secs(70);

/// Why a call has no answer, or another than hoped for.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nobody listens there.
    #[error(
        "no agent listens on {}; start it with `portolan-agent --socket {}`, or name its socket with --socket",
        socket.display(), socket.display()
    )]
    NotRunning {
        /// The socket.
        socket: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// We may not speak to it.
    #[error(
        "the agent's socket {} is not open to this user; become root, or set api.socket_mode and its group",
        socket.display()
    )]
    Denied {
        /// The socket.
        socket: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// The connection broke.
    #[error("the connection to the agent broke")]
    Transport(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The agent says nothing.
    #[error(
        "the agent did not answer within {} s; see what it does with `portolan agent status`, or in its log",
        .0.as_secs()
    )]
    Silent(Duration),
    /// The agent said no.
    #[error("{}", refusal(body))]
    Refused {
        /// The status code.
        status: StatusCode,
        /// Why.
        body: ErrorBody,
    },
    /// The answer is none of ours.
    #[error("what listens on the socket does not answer like an agent")]
    Malformed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

fn refusal(body: &ErrorBody) -> String {
    let hint = body.hint.as_ref().map(|hint| format!("; {hint}")).unwrap_or_default();
    format!("{} ({}){hint}", body.message, body.reason)
}

/// An agent's socket.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// Of the agent that listens there.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Where it is.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Makes or changes an instance.
    pub async fn put(
        &self,
        id: &InstanceId,
        spec: &WorkloadSpec,
    ) -> Result<InstanceStatus, CallError> {
        self.json(Method::PUT, &format!("/v1/instances/{id}"), Some(spec)).await
    }

    /// One instance.
    pub async fn get(&self, id: &InstanceId) -> Result<InstanceStatus, CallError> {
        self.json(Method::GET, &format!("/v1/instances/{id}"), NOTHING).await
    }

    /// Every instance, page by page.
    pub async fn instances(&self) -> Result<Vec<InstanceSummary>, CallError> {
        let mut all = Vec::new();
        let mut path = "/v1/instances?limit=1000".to_owned();
        loop {
            let page: InstanceList = self.json(Method::GET, &path, NOTHING).await?;
            all.extend(page.instances);
            match page.next {
                Some(next) => path = format!("/v1/instances?limit=1000&after={next}"),
                None => return Ok(all),
            }
        }
    }

    /// Stops and forgets an instance.
    pub async fn delete(&self, id: &InstanceId) -> Result<(), CallError> {
        let path = format!("/v1/instances/{id}");
        let deleted = self.send(Method::DELETE, &path, Bytes::new());
        let answer = tokio::time::timeout(DELETE_PATIENCE, deleted).await;
        answer.map_err(|_| CallError::Silent(DELETE_PATIENCE))?.map(drop)
    }

    /// What its guest wrote.
    pub async fn console(
        &self,
        id: &InstanceId,
        tail: Option<u64>,
        follow: bool,
    ) -> Result<impl Stream<Item = Result<Bytes, CallError>> + Unpin + use<>, CallError> {
        let mut path = format!("/v1/instances/{id}/console?follow={follow}");
        if let Some(lines) = tail {
            path.push_str(&format!("&tail={lines}"));
        }
        let body = self.send(Method::GET, &path, Bytes::new()).await?;
        Ok(Box::pin(stream::unfold(body, |mut body| async move {
            loop {
                match body.frame().await? {
                    Ok(frame) => {
                        if let Ok(data) = frame.into_data() {
                            return Some((Ok(data), body));
                        }
                    }
                    Err(error) => return Some((Err(transport(error)), body)),
                }
            }
        })))
    }

    /// Fetches images before anybody needs them.
    pub async fn prefetch(&self, request: &PrefetchRequest) -> Result<PrefetchReport, CallError> {
        self.json(Method::POST, "/v1/prefetch", Some(request)).await
    }

    /// What the cache holds.
    pub async fn cache(&self) -> Result<CacheReport, CallError> {
        self.json(Method::GET, "/v1/cache", NOTHING).await
    }

    /// Evicts.
    pub async fn gc(&self, request: &GcRequest) -> Result<GcReport, CallError> {
        self.json(Method::POST, "/v1/gc", Some(request)).await
    }

    /// Compares a root disk with its checksum.
    pub async fn verify(&self, key: &str) -> Result<VerifyReport, CallError> {
        self.json(Method::POST, &format!("/v1/cache/{key}/verify"), NOTHING).await
    }

    /// How the agent is.
    pub async fn status(&self) -> Result<Status, CallError> {
        self.json(Method::GET, "/v1/status", NOTHING).await
    }

    async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, CallError> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| CallError::Malformed(error.into()))?.unwrap_or_default();
        let body = self.send(method, path, body.into()).await?;
        let bytes = collect(body).await?;
        serde_json::from_slice(&bytes).map_err(|error| CallError::Malformed(error.into()))
    }

    /// One call on a connection of its own: they cost nothing on one machine.
    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Incoming, CallError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|e| self.unreachable(e))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(transport)?;
        tokio::spawn(connection);
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "agent")
            .header(header::USER_AGENT, concat!("portolan/", env!("CARGO_PKG_VERSION")));
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(Full::new(body)).map_err(|e| CallError::Malformed(e.into()))?;
        let response = sender.send_request(request).await.map_err(transport)?;
        let status = response.status();
        if status.is_success() {
            return Ok(response.into_body());
        }
        let bytes = collect(response.into_body()).await?;
        match serde_json::from_slice(&bytes) {
            Ok(body) => Err(CallError::Refused { status, body }),
            Err(error) => Err(CallError::Malformed(error.into())),
        }
    }

    fn unreachable(&self, source: io::Error) -> CallError {
        let socket = self.socket.clone();
        match source.kind() {
            io::ErrorKind::PermissionDenied => CallError::Denied { socket, source },
            _ => CallError::NotRunning { socket, source },
        }
    }
}

/// No body.
const NOTHING: Option<&()> = None;

fn transport(error: hyper::Error) -> CallError {
    CallError::Transport(error.into())
}

async fn collect(body: Incoming) -> Result<Bytes, CallError> {
    let collected = Limited::new(body, MAX_ANSWER).collect().await;
    collected.map(|body| body.to_bytes()).map_err(CallError::Transport)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_is_never_answered_is_not_waited_for_forever() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("agent.sock");
        let _silent = tokio::net::UnixListener::bind(&socket).unwrap();
        let error = Client::new(&socket).delete(&"a".parse().unwrap()).await.unwrap_err();
        assert!(matches!(error, CallError::Silent(_)), "{error}");
        assert!(error.to_string().contains("70 s"), "{error}");
    }
}
