//! An HTTP server of a few lines that does what a test wants: cuts, lies, redirects, waits.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One request: its number from 0, its path, its `Range`.
#[derive(Debug, Clone)]
pub struct Asked {
    pub number: usize,
    pub path: String,
    pub range: Option<String>,
}

/// What is answered.
pub enum Answer {
    /// These bytes, with ranges.
    File(Vec<u8>),
    /// So many of them, then the connection breaks.
    Cut(Vec<u8>, usize),
    /// So many of them, then nothing.
    Stall(Vec<u8>, usize),
    /// A status with headers.
    Status(u16, Vec<(&'static str, String)>),
    /// Bytes without end.
    Endless,
    /// The connection breaks at once.
    Nothing,
}

pub struct Server {
    pub url: String,
    pub asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    /// Answers each request with what `answer` says; ends with the test's process.
    pub fn new(answer: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&asked), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (log, answer) = (Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, &log, &*answer));
            }
        });
        Self { url, asked }
    }

    pub fn file(bytes: Vec<u8>) -> Self {
        Self::new(move |_| Answer::File(bytes.clone()))
    }

    pub fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn serve(mut stream: TcpStream, log: &Mutex<Vec<Asked>>, answer: &dyn Fn(&Asked) -> Answer) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    if reader.read_line(&mut line).unwrap_or(0) == 0 {
        return;
    }
    let path = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let mut range = None;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header).unwrap_or(0) <= 2 {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("range: ") {
            range = Some(value.trim().to_owned());
        }
    }
    let asked = {
        let mut log = log.lock().unwrap();
        let asked = Asked { number: log.len(), path, range };
        log.push(asked.clone());
        asked
    };
    let _ = reply(&mut stream, answer(&asked), &asked);
}

fn reply(stream: &mut TcpStream, answer: Answer, asked: &Asked) -> std::io::Result<()> {
    match answer {
        Answer::File(bytes) => body(stream, &bytes, asked, bytes.len(), false),
        Answer::Cut(bytes, after) => body(stream, &bytes, asked, after, false),
        Answer::Stall(bytes, after) => body(stream, &bytes, asked, after, true),
        Answer::Status(status, headers) => {
            write!(stream, "HTTP/1.1 {status} x\r\ncontent-length: 0\r\nconnection: close\r\n")?;
            for (name, value) in headers {
                write!(stream, "{name}: {value}\r\n")?;
            }
            write!(stream, "\r\n")
        }
        Answer::Endless => {
            write!(stream, "HTTP/1.1 200 x\r\nconnection: close\r\n\r\n")?;
            loop {
                stream.write_all(&[7; 4096])?;
            }
        }
        Answer::Nothing => Ok(()),
    }
}

fn body(
    stream: &mut TcpStream,
    bytes: &[u8],
    asked: &Asked,
    until: usize,
    wait: bool,
) -> std::io::Result<()> {
    let start = asked
        .range
        .as_deref()
        .and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let start: usize = start.unwrap_or(0);
    let (total, length) = (bytes.len(), bytes.len() - start);
    if asked.range.is_some() {
        write!(stream, "HTTP/1.1 206 x\r\ncontent-range: bytes {start}-{}/{total}\r\n", total - 1)?;
    } else {
        write!(stream, "HTTP/1.1 200 x\r\n")?;
    }
    write!(stream, "content-length: {length}\r\netag: \"{total}\"\r\nconnection: close\r\n\r\n")?;
    let end = until.max(start).min(total);
    stream.write_all(&bytes[start..end])?;
    stream.flush()?;
    if wait {
        std::thread::sleep(Duration::from_secs(5));
    }
    Ok(())
}
