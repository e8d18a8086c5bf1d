//! Two calls of the Container Runtime Interface: what the runtime is, and how it is.
//!
//! gRPC is one HTTP/2 request with a length before its message; for two calls without streams, what hyper
//! has is enough.

use std::collections::{BTreeSet, HashMap};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixStream;

/// For one question.
const LIMIT: Duration = Duration::from_secs(10);
/// The runtime tells its whole configuration, and no more.
const MAX_ANSWER: usize = 16 << 20;
/// Of its name and version, in characters: they go into a report.
const MAX_VERSION: usize = 128;
/// The longest path that a socket may have.
const MAX_PATH: usize = 100;
/// gRPC's word for: there is no such call.
const UNIMPLEMENTED: &str = "12";

/// Why a question was not answered.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// Nobody there.
    #[error("it cannot be connected to")]
    Connect(#[source] std::io::Error),
    /// The connection broke.
    #[error("the connection broke")]
    Http(#[source] hyper::Error),
    /// Too long, or broken.
    #[error("the answer cannot be read")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An error of the runtime's own.
    #[error("it answers with error {code}: {message}")]
    Status {
        /// gRPC's number.
        code: String,
        /// Its words.
        message: String,
    },
    /// Not the message that was asked for.
    #[error("what it answers is no message of the interface")]
    Message(#[source] prost::DecodeError),
    /// Nothing came.
    #[error("it does not answer within {} s", LIMIT.as_secs())]
    Late,
}

/// How a runtime is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What pods may ask for.
    pub handlers: BTreeSet<String>,
    /// Why it runs no pods, where it says so.
    pub not_ready: Option<String>,
    /// Its name and version.
    pub version: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct VersionRequest {
    #[prost(string, tag = "1")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct VersionResponse {
    #[prost(string, tag = "2")]
    runtime_name: String,
    #[prost(string, tag = "3")]
    runtime_version: String,
}

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {
    #[prost(bool, tag = "1")]
    verbose: bool,
}

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, optional, tag = "1")]
    status: Option<RuntimeStatus>,
    #[prost(map = "string, string", tag = "2")]
    info: HashMap<String, String>,
    #[prost(message, repeated, tag = "3")]
    runtime_handlers: Vec<RuntimeHandler>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeStatus {
    #[prost(message, repeated, tag = "1")]
    conditions: Vec<RuntimeCondition>,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeCondition {
    #[prost(string, tag = "1")]
    kind: String,
    #[prost(bool, tag = "2")]
    status: bool,
    #[prost(string, tag = "3")]
    reason: String,
    #[prost(string, tag = "4")]
    message: String,
}

#[derive(Clone, PartialEq, Message)]
struct RuntimeHandler {
    #[prost(string, tag = "1")]
    name: String,
}

/// Asks the runtime at `socket` how it is.
///
/// # Errors
/// It does not answer, or not so.
pub async fn status(socket: &Path) -> Result<Status, CriError> {
    tokio::time::timeout(LIMIT, ask(socket)).await.map_err(|_| CriError::Late)?
}

async fn ask(socket: &Path) -> Result<Status, CriError> {
    let verbose = StatusRequest { verbose: true };
    // containerd before 1.6 knows the older name alone.
    let (service, answer) = match call(socket, "runtime.v1", "Status", &verbose).await {
        Err(CriError::Status { code, .. }) if code == UNIMPLEMENTED => {
            ("runtime.v1alpha2", call(socket, "runtime.v1alpha2", "Status", &verbose).await?)
        }
        answer => ("runtime.v1", answer?),
    };
    let version = VersionRequest { version: "v1".to_owned() };
    let version: Option<VersionResponse> = call(socket, service, "Version", &version).await.ok();
    Ok(understand(answer, version.map(|version| said(&version))))
}

/// An answer may be as long as all of its configuration.
fn said(version: &VersionResponse) -> String {
    let text = format!("{} {}", version.runtime_name, version.runtime_version);
    text.chars().take(MAX_VERSION).collect()
}

/// Handlers are told as such since containerd 2; before, the configuration that it runs with tells them.
fn understand(answer: StatusResponse, version: Option<String>) -> Status {
    let mut handlers: BTreeSet<String> =
        answer.runtime_handlers.into_iter().map(|handler| handler.name).collect();
    handlers.remove("");
    let config = answer.info.get("config").and_then(|text| serde_json::from_str(text).ok());
    let config: serde_json::Value = config.unwrap_or_default();
    let configured =
        config.pointer("/containerd/runtimes").and_then(|runtimes| runtimes.as_object());
    handlers.extend(configured.into_iter().flat_map(|runtimes| runtimes.keys().cloned()));
    let conditions = answer.status.map(|status| status.conditions).unwrap_or_default();
    // A node without its network yet is none of our business.
    let ill = conditions.into_iter().find(|c| c.kind == "RuntimeReady" && !c.status);
    let not_ready = ill.map(|c| format!("{} {}", c.reason, c.message));
    Status { handlers, not_ready, version }
}

async fn call<A: Message, B: Message + Default>(
    socket: &Path,
    service: &str,
    method: &str,
    message: &A,
) -> Result<B, CriError> {
    let stream = connect(socket).await.map_err(CriError::Connect)?;
    let io = TokioIo::new(stream);
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), io)
        .await
        .map_err(CriError::Http)?;
    let driver = tokio::spawn(connection);
    let request = Request::post(format!("http://localhost/{service}.RuntimeService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Full::new(framed(message)))
        .expect("the parts are ours");
    let response = sender.send_request(request).await.map_err(CriError::Http)?;
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_ANSWER).collect().await.map_err(CriError::Body)?;
    driver.abort();
    refuse_error(body.trailers().unwrap_or(&head.headers))?;
    refuse_error(&head.headers)?;
    let bytes = body.to_bytes();
    // One byte for packing, four for the length; an answer without a message says nothing.
    let message = bytes.get(5..).unwrap_or_default();
    B::decode(message).map_err(CriError::Message)
}

fn framed(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(5 + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).expect("questions are short"));
    message.encode(&mut bytes).expect("there is room");
    bytes.freeze()
}

fn refuse_error(headers: &HeaderMap) -> Result<(), CriError> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    match text("grpc-status") {
        None | Some("0") => Ok(()),
        Some(code) => Err(CriError::Status {
            code: code.to_owned(),
            message: text("grpc-message").unwrap_or_default().chars().take(200).collect(),
        }),
    }
}

/// A socket's path may be longer than the kernel takes: then it is named by way of its open directory.
pub(super) async fn connect(socket: &Path) -> std::io::Result<UnixStream> {
    if socket.as_os_str().len() <= MAX_PATH {
        return UnixStream::connect(socket).await;
    }
    let dir = std::fs::File::open(socket.parent().unwrap_or(socket))?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    UnixStream::connect(short.join(socket.file_name().unwrap_or_default())).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handlers_come_from_either_place() {
        let config = r#"{"containerd":{"runtimes":{"runc":{},"spin":{}}}}"#;
        let answer = StatusResponse {
            status: Some(RuntimeStatus {
                conditions: vec![
                    RuntimeCondition {
                        kind: "RuntimeReady".into(),
                        status: true,
                        ..Default::default()
                    },
                    RuntimeCondition { kind: "NetworkReady".into(), ..Default::default() },
                ],
            }),
            info: HashMap::from([("config".to_owned(), config.to_owned())]),
            runtime_handlers: vec![
                RuntimeHandler { name: "wasm".into() },
                RuntimeHandler { name: String::new() },
            ],
        };
        let status = understand(answer, None);
        assert_eq!(status.handlers.into_iter().collect::<Vec<_>>(), ["runc", "spin", "wasm"]);
        assert_eq!(status.not_ready, None);
        let ill = RuntimeCondition { kind: "RuntimeReady".into(), ..Default::default() };
        let status = Some(RuntimeStatus { conditions: vec![ill] });
        let answer = StatusResponse { status, ..Default::default() };
        assert!(understand(answer, None).not_ready.is_some());
    }

    #[test]
    fn a_version_has_a_bound() {
        let of = |name: &str, version: String| {
            said(&VersionResponse { runtime_name: name.into(), runtime_version: version })
        };
        assert_eq!(of("containerd", "v2.0.1".into()), "containerd v2.0.1");
        assert_eq!(of("containerd", "\u{e4}".repeat(9999)).chars().count(), MAX_VERSION);
    }
}
