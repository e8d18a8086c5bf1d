//! Firecracker, by way of the API on its socket.
//!
//! Every request is one of the published description, which the tests hold a fake server to
//! (`fixtures/firecracker-api.yaml`).

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use super::description::MachineDescription;

/// An answer is empty or an error of a line.
const MAX_ANSWER: usize = 1 << 20;

/// Why Firecracker did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum FirecrackerError {
    /// No socket, or nobody behind it.
    #[error("Firecracker's socket cannot be reached for {request}")]
    Connect {
        /// Method and path.
        request: String,
        /// The system's word for it.
        #[source]
        source: std::io::Error,
    },
    /// It broke off.
    #[error("Firecracker broke off at {request}")]
    Talk {
        /// Method and path.
        request: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// It did not answer in time.
    #[error("Firecracker did not answer {request} within {} s", patience.as_secs())]
    Timeout {
        /// Method and path.
        request: String,
        /// How long was waited.
        patience: Duration,
    },
    /// It refused, in its own words.
    #[error("Firecracker refused {request} ({status}): {fault}")]
    Refused {
        /// Method and path.
        request: String,
        /// Its status.
        status: StatusCode,
        /// Its words.
        fault: String,
    },
}

/// What its `GET /` says of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum State {
    /// Configured at most.
    #[serde(rename = "Not started")]
    NotStarted,
    /// Runs.
    Running,
    /// Stands still.
    Paused,
}

/// A client of one machine's socket.
#[derive(Debug)]
pub struct Firecracker<'a> {
    /// The socket.
    pub socket: &'a Path,
    /// How long one request may take.
    pub patience: Duration,
}

impl Firecracker<'_> {
    /// Waits until it answers: the socket appears a moment after its process.
    pub async fn ready(&self) -> Result<State, FirecrackerError> {
        let until = tokio::time::Instant::now() + self.patience;
        loop {
            match self.state().await {
                Err(FirecrackerError::Connect { .. }) if tokio::time::Instant::now() < until => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                other => return other,
            }
        }
    }

    /// What it does.
    pub async fn state(&self) -> Result<State, FirecrackerError> {
        #[derive(Deserialize)]
        struct Info {
            state: State,
        }
        let answer = self.send(Method::GET, "/", None::<&()>).await?;
        let info: Info = serde_json::from_slice(&answer).map_err(|source| {
            FirecrackerError::Talk { request: "GET /".to_owned(), source: source.into() }
        })?;
        Ok(info.state)
    }

    /// Configures the machine and starts it.
    pub async fn start(&self, machine: &MachineDescription) -> Result<(), FirecrackerError> {
        if let Some(logger) = &machine.logger {
            self.put("/logger", logger).await?;
        }
        self.put("/machine-config", &machine.machine_config).await?;
        self.put("/boot-source", &machine.boot_source).await?;
        for drive in &machine.drives {
            self.put(&format!("/drives/{}", drive.drive_id), drive).await?;
        }
        self.action("InstanceStart").await
    }

    /// Presses Ctrl-Alt-Del: the guest's init asks the workload to end. Only on x86.
    pub async fn ctrl_alt_del(&self) -> Result<(), FirecrackerError> {
        self.action("SendCtrlAltDel").await
    }

    async fn action(&self, action_type: &'static str) -> Result<(), FirecrackerError> {
        self.put("/actions", &serde_json::json!({"action_type": action_type})).await
    }

    async fn put(&self, path: &str, body: &impl Serialize) -> Result<(), FirecrackerError> {
        self.send(Method::PUT, path, Some(body)).await.map(drop)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Bytes, FirecrackerError> {
        let request = format!("{method} {path}");
        let patience = self.patience;
        let sent = self.exchange(&request, method, path, body);
        match tokio::time::timeout(patience, sent).await {
            Ok(answer) => answer,
            Err(_) => Err(FirecrackerError::Timeout { request, patience }),
        }
    }

    async fn exchange(
        &self,
        request: &str,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Bytes, FirecrackerError> {
        let talk = |source: Box<dyn std::error::Error + Send + Sync>| FirecrackerError::Talk {
            request: request.to_owned(),
            source,
        };
        let stream = UnixStream::connect(self.socket)
            .await
            .map_err(|source| FirecrackerError::Connect { request: request.to_owned(), source })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| talk(error.into()))?;
        let connection = tokio::spawn(connection);
        let bytes = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| talk(error.into()))?,
            None => vec![],
        };
        let call = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::HOST, "localhost")
            .header(http::header::ACCEPT, "application/json")
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(bytes)))
            .map_err(|error| talk(error.into()))?;
        let answer = sender.send_request(call).await.map_err(|error| talk(error.into()))?;
        let status = answer.status();
        let bytes = Limited::new(answer.into_body(), MAX_ANSWER).collect().await.map_err(talk)?;
        connection.abort();
        let bytes = bytes.to_bytes();
        if status.is_success() {
            return Ok(bytes);
        }
        Err(FirecrackerError::Refused { request: request.to_owned(), status, fault: fault(&bytes) })
    }
}

/// What an error says, for a message: its `fault_message`, or the bytes as they are.
fn fault(bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Fault {
        fault_message: String,
    }
    let text = match serde_json::from_slice(bytes) {
        Ok(Fault { fault_message }) => fault_message,
        Err(_) => String::from_utf8_lossy(bytes).into_owned(),
    };
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(500).collect()
}
