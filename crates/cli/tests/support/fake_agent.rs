//! An agent's socket that speaks its protocol.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::{Said, portolan};

/// What is answered to `METHOD path`: status and body. To the status 0 nothing is, ever.
pub(crate) type Answers = BTreeMap<&'static str, (u16, Value)>;

/// An agent's socket that answers from a table and keeps what it was asked.
pub(crate) struct Fake {
    pub(crate) dir: tempfile::TempDir,
    asked: Arc<Mutex<Vec<(String, Value)>>>,
}

impl Fake {
    pub(crate) fn new(answers: Answers) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("agent.sock")).unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                silent.extend(answer(stream, &answers, &kept));
            }
        });
        Self { dir, asked }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("agent.sock")
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        run(&self.socket(), self.dir.path(), args)
    }

    pub(crate) fn asked(&self) -> Vec<(String, Value)> {
        self.asked.lock().unwrap().clone()
    }
}

fn answer(
    mut stream: UnixStream,
    answers: &Answers,
    asked: &Mutex<Vec<(String, Value)>>,
) -> Option<UnixStream> {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let call = line.trim_end().trim_end_matches(" HTTP/1.1").to_owned();
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).unwrap();
        if header.trim().is_empty() {
            break;
        }
        if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let key = call.split('?').next().unwrap_or_default();
    let unknown = (404, json!({ "reason": "not_found", "message": "nothing here" }));
    let (status, answer) = answers.get(key).unwrap_or(&unknown);
    // A console is a text and not JSON.
    let text = answer.as_str().map_or_else(|| answer.to_string(), str::to_owned);
    asked.lock().unwrap().push((call, serde_json::from_slice(&body).unwrap_or(Value::Null)));
    if *status == 0 {
        return Some(stream);
    }
    let _ = write!(
        stream,
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    None
}

pub(crate) fn run(socket: &Path, home: &Path, args: &[&str]) -> Said {
    let mut command = portolan(home);
    command.arg("agent").args(args).arg("--socket").arg(socket);
    command.output().unwrap().into()
}
