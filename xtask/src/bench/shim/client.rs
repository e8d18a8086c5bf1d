//! A client of the API server that costs little: HTTP/1.1 on one connection, kept open.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde_json::Value;

/// Where the API server is, and who asks.
#[derive(Debug, Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) tls: Arc<rustls::ClientConfig>,
    pub(super) token: String,
}

/// What a body is.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body<'a> {
    None,
    Json(&'a [u8]),
    Merge(&'a [u8]),
    Strategic(&'a [u8]),
    Apply(&'a [u8]),
}

impl<'a> Body<'a> {
    fn parts(self) -> (&'static str, &'a [u8]) {
        match self {
            Self::None => ("application/json", b""),
            Self::Json(bytes) => ("application/json", bytes),
            Self::Merge(bytes) => ("application/merge-patch+json", bytes),
            Self::Strategic(bytes) => ("application/strategic-merge-patch+json", bytes),
            Self::Apply(bytes) => ("application/apply-patch+yaml", bytes),
        }
    }
}

/// Who does not answer for so long does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(super) struct Connection {
    stream: BufReader<StreamOwned<ClientConnection, TcpStream>>,
    token: String,
}

impl Connection {
    pub(super) fn open(server: &Server) -> Result<Self> {
        let stream = TcpStream::connect(server.address).context("connect to the API server")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let name = ServerName::try_from("localhost").context("a name")?;
        let tls = ClientConnection::new(Arc::clone(&server.tls), name)?;
        let stream = BufReader::with_capacity(64 * 1024, StreamOwned::new(tls, stream));
        Ok(Self { stream, token: server.token.clone() })
    }

    pub(super) fn get(&mut self, path: &str) -> Result<Value> {
        self.ask("GET", path, Body::None)
    }

    pub(super) fn post(&mut self, path: &str, object: &Value) -> Result<Value> {
        self.ask("POST", path, Body::Json(object.to_string().as_bytes()))
    }

    pub(super) fn ask(&mut self, method: &str, path: &str, body: Body<'_>) -> Result<Value> {
        let text = self.bytes(method, path, body)?;
        serde_json::from_slice(&text).with_context(|| format!("the answer to {method} {path}"))
    }

    /// The answer as it came: whoever does not look at it need not read it.
    pub(super) fn bytes(&mut self, method: &str, path: &str, body: Body<'_>) -> Result<Vec<u8>> {
        let head = self.send(method, path, body)?;
        let mut text = Vec::new();
        match head.length {
            Some(length) => {
                text.resize(length, 0);
                self.stream.read_exact(&mut text)?;
            }
            None => drop(Chunks::of(&mut self.stream).read_to_end(&mut text)?),
        }
        let said = || String::from_utf8_lossy(&text[..text.len().min(2000)]).into_owned();
        ensure!((200..300).contains(&head.status), "{method} {path}: {} {}", head.status, said());
        Ok(text)
    }

    /// The lines of a watch, as they come.
    pub(super) fn watch(mut self, path: &str) -> Result<impl BufRead + use<>> {
        let head = self.send("GET", path, Body::None)?;
        ensure!(head.status == 200 && head.length.is_none(), "GET {path}: {}", head.status);
        Ok(BufReader::with_capacity(64 * 1024, Chunks::of(self.stream)))
    }

    fn send(&mut self, method: &str, path: &str, body: Body<'_>) -> Result<Head> {
        let (kind, bytes) = body.parts();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\nAccept: application/json\r\n\
             Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.token,
            bytes.len()
        );
        let stream = self.stream.get_mut();
        stream.write_all(&[head.as_bytes(), bytes].concat())?;
        stream.flush()?;
        Head::read(&mut self.stream).with_context(|| format!("{method} {path}"))
    }
}

struct Head {
    status: u16,
    /// None of what comes in chunks.
    length: Option<usize>,
}

impl Head {
    fn read(reader: &mut impl BufRead) -> Result<Self> {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.with_context(|| format!("no status in {line:?}"))?;
        let mut length = None;
        loop {
            line.clear();
            ensure!(reader.read_line(&mut line)? > 0, "it hung up");
            let Some((name, value)) = line.trim().split_once(':') else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.trim().parse().context("a length")?);
            }
        }
        Ok(Self { status, length })
    }
}

/// A body that comes in chunks.
struct Chunks<R> {
    reader: R,
    left: usize,
    ended: bool,
}

impl<R: BufRead> Chunks<R> {
    fn of(reader: R) -> Self {
        Self { reader, left: 0, ended: false }
    }

    fn next(&mut self) -> Result<()> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        self.left = match usize::from_str_radix(line.trim(), 16) {
            Ok(left) => left,
            Err(_) => bail!("{line:?} is no length of a chunk"),
        };
        if self.left == 0 {
            self.ended = true;
            self.reader.read_line(&mut line)?;
        }
        Ok(())
    }
}

impl<R: BufRead> Read for Chunks<R> {
    fn read(&mut self, room: &mut [u8]) -> std::io::Result<usize> {
        if self.left == 0 && !self.ended {
            self.next().map_err(std::io::Error::other)?;
        }
        if self.ended || room.is_empty() {
            return Ok(0);
        }
        let most = room.len().min(self.left);
        let got = self.reader.read(&mut room[..most])?;
        self.left -= got;
        if self.left == 0 {
            self.reader.read_exact(&mut [0; 2])?;
        }
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_put_together_and_end() {
        let mut reader: &[u8] = b"3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nnext";
        let mut text = String::new();
        Chunks::of(&mut reader).read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), reader), ("abc0123456789", &b"next"[..]));
    }

    #[test]
    fn a_head_says_how_long_the_rest_is() {
        let mut reader: &[u8] = b"HTTP/1.1 201 Created\r\nContent-Length: 7\r\n\r\nbody";
        let head = Head::read(&mut reader).unwrap();
        assert_eq!((head.status, head.length, reader), (201, Some(7), &b"body"[..]));
        assert!(Head::read(&mut &b"what\r\n\r\n"[..]).is_err());
    }
}
