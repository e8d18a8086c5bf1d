//! The cluster's API, through `kubectl proxy`, which takes care of certificates and tokens: plain
//! requests, one connection each, so that no client's caches or limits are measured.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

/// A proxy of ours alone, ended when dropped.
#[derive(Debug)]
pub(super) struct Api {
    address: String,
    proxy: Child,
}

impl Api {
    pub(super) fn start(kubectl: &Path, kubeconfig: &Path) -> Result<Self> {
        let mut proxy = Command::new(kubectl)
            .args(["proxy", "--port=0", "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("start kubectl proxy")?;
        let mut line = String::new();
        let stdout = proxy.stdout.take().context("its output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        ensure!(address.contains(':'), "kubectl proxy said {line:?}");
        Ok(Self { address, proxy })
    }

    pub(super) fn get(&self, path: &str) -> Result<Value> {
        self.ask("GET", path, None)
    }

    pub(super) fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.ask("POST", path, Some(object))
    }

    fn ask(&self, method: &str, path: &str, object: Option<&Value>) -> Result<Value> {
        let mut text = String::new();
        self.open(method, path, object, "application/json")?
            .read_to_string(&mut text)
            .with_context(|| format!("read the answer to {method} {path}"))?;
        serde_json::from_str(&text).with_context(|| format!("{method} {path} answered {text:?}"))
    }

    /// The lines of a watch of metadata, as they come: who watches takes little from what is measured. It ends when the
    /// reader is dropped.
    pub(super) fn watch(&self, path: &str) -> Result<BufReader<TcpStream>> {
        self.open("GET", path, None, "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    }

    /// Sends a request and reads the head of its answer. HTTP/1.0 has no chunks, so what follows
    /// is the body and nothing else.
    fn open(
        &self,
        method: &str,
        path: &str,
        object: Option<&Value>,
        accept: &str,
    ) -> Result<BufReader<TcpStream>> {
        let body = object.map(Value::to_string).unwrap_or_default();
        let mut stream = TcpStream::connect(&self.address).context("connect to kubectl proxy")?;
        write!(
            stream,
            "{method} {path} HTTP/1.0\r\nHost: localhost\r\nAccept: {accept}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if !line.contains(" 200 ") && !line.contains(" 201 ") {
            let mut rest = String::new();
            reader.read_to_string(&mut rest)?;
            bail!("{method} {path}: {}\n{rest}", line.trim());
        }
        while !line.trim().is_empty() {
            line.clear();
            reader.read_line(&mut line)?;
        }
        Ok(reader)
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}
