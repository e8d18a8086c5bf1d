//! HTTP/1.1 by hand: reading requests, and writing answers that keep or break the rules.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use super::{Fault, Stop};

/// A request as it came.
#[derive(Debug)]
pub struct Request {
    pub method: String,
    /// Without the query.
    pub path: String,
    pub query: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The value of `name` in the query, percent-decoded.
    pub fn query(&self, name: &str) -> Option<String> {
        let pair = self.query.split('&').find_map(|p| p.strip_prefix(name)?.strip_prefix('='))?;
        Some(percent_encoding::percent_decode_str(pair).decode_utf8_lossy().into_owned())
    }
}

/// What the registry would truthfully answer.
#[derive(Debug, Clone)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Arc<Vec<u8>>,
    /// For HEAD: the length of the body a GET would have.
    pub head: bool,
}

impl Answer {
    pub fn new(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self { status, headers: Vec::new(), body: Arc::new(body.into()), head: false }
    }

    #[must_use]
    pub fn header(mut self, name: &str, value: impl ToString) -> Self {
        self.headers.push((name.to_owned(), value.to_string()));
        self
    }

    /// An error in the form the distribution specification gives it.
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        let body = serde_json::json!({"errors": [{"code": code, "message": message}]});
        Self::new(status, body.to_string()).header("content-type", "application/json")
    }
}

/// A connection: plain or TLS, with the socket below it for cuts.
pub struct Connection {
    pub stream: BufReader<Box<dyn Duplex>>,
    pub socket: TcpStream,
}

pub trait Duplex: Read + Write + Send {}
impl<T: Read + Write + Send> Duplex for T {}

/// Reads one request; none at the end of the connection.
pub fn read_request(connection: &mut Connection) -> io::Result<Option<Request>> {
    let reader = &mut connection.stream;
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else { return Ok(None) };
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    };
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        request.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    if request.header("expect").is_some() {
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    request.body = read_body(reader, &request)?;
    Ok(Some(request))
}

fn read_body(reader: &mut impl BufRead, request: &Request) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    if request.header("transfer-encoding").is_some_and(|v| v.contains("chunked")) {
        loop {
            let mut line = String::new();
            reader.read_line(&mut line)?;
            let size = u64::from_str_radix(line.trim(), 16).map_err(io::Error::other)?;
            reader.take(size).read_to_end(&mut body)?;
            reader.read_line(&mut String::new())?;
            if size == 0 {
                return Ok(body);
            }
        }
    }
    let length = request.header("content-length").and_then(|v| v.parse().ok()).unwrap_or(0);
    reader.take(length).read_to_end(&mut body)?;
    Ok(body)
}

/// Writes the answer as the fault bends it. False when the connection is over.
pub fn send(
    connection: &mut Connection,
    answer: &Answer,
    fault: &Fault,
    stop: &Stop,
) -> io::Result<bool> {
    let mut answer = answer.clone();
    let body = Arc::clone(&answer.body);
    let length = body.len();
    match fault {
        Fault::None | Fault::WrongContentRange | Fault::IgnoreRange => {
            write_head(connection, &answer, Some(length))?;
            write_body(connection, &answer, &body)?;
            Ok(true)
        }
        Fault::Answer(other) => {
            answer = Answer { head: answer.head, ..other.clone() };
            write_head(connection, &answer, Some(answer.body.len()))?;
            let body = Arc::clone(&answer.body);
            write_body(connection, &answer, &body)?;
            Ok(true)
        }
        Fault::FlipByte(at) => {
            let mut bent = body.to_vec();
            if let Some(byte) = bent.get_mut(*at) {
                *byte ^= 1;
            }
            write_head(connection, &answer, Some(length))?;
            write_body(connection, &answer, &bent)?;
            Ok(true)
        }
        Fault::Short(missing) => {
            let bent = &body[..length.saturating_sub(*missing)];
            write_head(connection, &answer, Some(bent.len()))?;
            write_body(connection, &answer, bent)?;
            Ok(true)
        }
        Fault::Long(extra) => {
            let mut bent = body.to_vec();
            bent.resize(length + extra, b'x');
            write_head(connection, &answer, Some(bent.len()))?;
            write_body(connection, &answer, &bent)?;
            Ok(true)
        }
        Fault::ContentLength(difference) => {
            write_head(connection, &answer, Some(length.saturating_add_signed(*difference)))?;
            write_body(connection, &answer, &body)?;
            hang_up(connection)
        }
        Fault::Chunked => {
            write_head(connection, &answer, None)?;
            write_chunked(connection, &answer, &body)?;
            Ok(true)
        }
        Fault::Cut(after) => {
            write_head(connection, &answer, Some(length))?;
            write_body(connection, &answer, &body[..length.min(*after)])?;
            hang_up(connection)
        }
        Fault::Hang => {
            stop.wait_until_gone(connection);
            Ok(false)
        }
        Fault::HangAfter(after) => {
            write_head(connection, &answer, Some(length))?;
            write_body(connection, &answer, &body[..length.min(*after)])?;
            stop.wait_until_gone(connection);
            Ok(false)
        }
        Fault::Trickle { bytes, pause } => {
            write_head(connection, &answer, Some(length))?;
            trickle(connection, &body, *bytes, *pause, stop)?;
            Ok(true)
        }
        Fault::Raw(garbage) => {
            connection.stream.get_mut().write_all(garbage)?;
            hang_up(connection)
        }
        Fault::Endless => {
            write_head(connection, &answer, None)?;
            let block = [b' '; 65_536];
            while !stop.is_set() {
                write_chunk(connection, &block)?;
            }
            Ok(false)
        }
    }
}

fn write_head(
    connection: &mut Connection,
    answer: &Answer,
    length: Option<usize>,
) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", answer.status);
    for (name, value) in &answer.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    match length {
        // A 204 or 304 must not carry a length.
        Some(_) if answer.status == 204 => {}
        Some(length) => head.push_str(&format!("content-length: {length}\r\n")),
        None => head.push_str("transfer-encoding: chunked\r\n"),
    }
    head.push_str("\r\n");
    connection.stream.get_mut().write_all(head.as_bytes())
}

fn write_body(connection: &mut Connection, answer: &Answer, body: &[u8]) -> io::Result<()> {
    let out = connection.stream.get_mut();
    if !answer.head {
        out.write_all(body)?;
    }
    out.flush()
}

fn write_chunked(connection: &mut Connection, answer: &Answer, body: &[u8]) -> io::Result<()> {
    if !answer.head {
        for part in body.chunks(16_384) {
            write_chunk(connection, part)?;
        }
        connection.stream.get_mut().write_all(b"0\r\n\r\n")?;
    }
    connection.stream.get_mut().flush()
}

fn write_chunk(connection: &mut Connection, part: &[u8]) -> io::Result<()> {
    let out = connection.stream.get_mut();
    write!(out, "{:x}\r\n", part.len())?;
    out.write_all(part)?;
    out.write_all(b"\r\n")
}

fn trickle(
    connection: &mut Connection,
    body: &[u8],
    bytes: usize,
    pause: Duration,
    stop: &Stop,
) -> io::Result<()> {
    for part in body.chunks(bytes) {
        if stop.is_set() {
            break;
        }
        let out = connection.stream.get_mut();
        out.write_all(part)?;
        out.flush()?;
        std::thread::sleep(pause);
    }
    Ok(())
}

/// Ends the connection below TLS too: no goodbye, as when a cable is pulled.
fn hang_up(connection: &mut Connection) -> io::Result<bool> {
    connection.stream.get_mut().flush()?;
    connection.socket.shutdown(Shutdown::Both)?;
    Ok(false)
}
