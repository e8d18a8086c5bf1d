//! A runtime of a few lines on a tree of files: it answers over the CRI with the handlers of the
//! configuration that it was started with, and is started again by a script.

use std::convert::Infallible;
use std::fs;
use std::path::PathBuf;

use bytes::{BufMut as _, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;

use super::Tree;

#[derive(Clone, PartialEq, Message)]
struct StatusResponse {
    #[prost(message, repeated, tag = "3")]
    runtime_handlers: Vec<Handler>,
}

#[derive(Clone, PartialEq, Message)]
struct Handler {
    #[prost(string, tag = "1")]
    name: String,
}

/// Starts answering at the usual socket, as process 9. While there is a file `down`, nobody answers.
pub fn start(tree: &Tree) {
    tree.process(9, &["/usr/bin/containerd"], "host", 0);
    tree.write("proc/9/stat", &stat(1));
    tree.write("read", &tree.read(super::MAIN));
    let socket = tree.path("run/containerd/containerd.sock");
    fs::create_dir_all(socket.parent().unwrap()).unwrap();
    let listener = tokio::net::UnixListener::bind(&socket).unwrap();
    let dir = tree.dir.path().to_owned();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if dir.join("down").exists() {
                continue;
            }
            let dir = dir.clone();
            let answer = move |request| {
                let dir = dir.clone();
                async move { answer(&request, dir) }
            };
            tokio::spawn(async move {
                let service = hyper::service::service_fn(answer);
                let io = TokioIo::new(stream);
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let _ = builder.serve_connection(io, service).await;
            });
        }
    });
}

/// What the kernel says of a process that began then.
pub fn stat(ticks: u32) -> String {
    format!("9 (containerd) S {}{ticks} 0\n", "0 ".repeat(18))
}

/// The line that starts it again: it reads the configuration, and is another process.
pub fn restart(tree: &Tree) -> String {
    let dir = tree.dir.path().display();
    format!(
        "cd {dir} && echo once >> restarts && cp etc/containerd/config.toml read && \
         echo \"9 (containerd) S 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 $(date +%N) 0\" > proc/9/stat"
    )
}

fn answer(
    request: &Request<Incoming>,
    dir: PathBuf,
) -> Result<Response<http_body_util::combinators::BoxBody<Bytes, Infallible>>, Infallible> {
    let read = fs::read_to_string(dir.join("read")).unwrap_or_default();
    let named = |line: &str| line.split_once(".runtimes.")?.1.strip_suffix(']').map(str::to_owned);
    let names = read.lines().filter_map(named);
    let message = if request.uri().path().ends_with("/Status") {
        let runtime_handlers = names.map(|name| Handler { name }).collect();
        StatusResponse { runtime_handlers }.encode_to_vec()
    } else {
        Vec::new()
    };
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.len()).unwrap());
    bytes.put_slice(&message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(bytes.freeze()).with_trailers(async move { Some(Ok(trailers)) });
    Ok(Response::new(body.boxed()))
}
