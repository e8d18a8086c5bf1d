//! The client of every row: so many connections, each asks again when it was answered.
//!
//! Whoever is measured shares the machine with it, so it does as little as a client can. Many
//! connections are spread over two threads: one of them alone cannot ask as fast as is answered.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::answer::{Progress, complete};

/// Whom to ask, and how.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
}

/// A request as it goes over the wire, and what its answer must say so many times.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    bytes: Vec<u8>,
    keys: usize,
}

const YES: &[u8] = b"\"isSuccess\":true";
const NO: &[u8] = b"\"isSuccess\":false";
/// Who does not answer for so long does not answer.
const PATIENCE: Duration = Duration::from_secs(30);

impl Asked {
    /// A question of Gatekeeper about these keys.
    pub(super) fn new(keys: &[String]) -> Self {
        let body = serde_json::json!({
            "apiVersion": "externaldata.gatekeeper.sh/v1beta1",
            "kind": "ProviderRequest",
            "request": {"keys": keys},
        });
        let body = body.to_string();
        let head = format!(
            "POST /ratify/gatekeeper/v1/verify HTTP/1.1\r\nHost: verifier\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        Self { bytes: (head + &body).into_bytes(), keys: keys.len() }
    }

    /// Whether every key was answered with a yes. A wrong answer that comes fast is none.
    fn check(&self, answer: &[u8]) -> Result<()> {
        let shown = || String::from_utf8_lossy(&answer[..answer.len().min(2000)]).into_owned();
        if !answer.starts_with(b"HTTP/1.1 200") || count(answer, NO) > 0 {
            bail!("not verified: {}", shown());
        }
        // One for each key, and one for each of its reports.
        if count(answer, YES) < self.keys {
            bail!("fewer answers than {} keys: {}", self.keys, shown());
        }
        Ok(())
    }
}

fn count(text: &[u8], word: &[u8]) -> usize {
    text.windows(word.len()).filter(|window| *window == word).count()
}

/// What came of asking.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Of each request.
    pub(super) times: Vec<Duration>,
    pub(super) wall: Duration,
}

impl Load {
    /// What two saw at the same time.
    fn with(mut self, other: Self) -> Self {
        self.times.extend(other.times);
        self.wall = self.wall.max(other.wall);
        self
    }

    #[allow(clippy::cast_precision_loss, reason = "requests of a few seconds")]
    pub(super) fn rate(&self) -> f64 {
        self.times.len() as f64 / self.wall.as_secs_f64()
    }

    /// The time that so much of a hundred did not pass.
    pub(super) fn percentile(&self, percent: usize) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(at).copied().unwrap_or_default()
    }
}

/// Asks each of these once, one after the other, on one connection.
pub(super) fn in_turn(target: &Target, asked: &[Asked]) -> Result<Load> {
    run(target, asked, 1, |asked_so_far, _| asked_so_far < asked.len())
}

/// Asks these in turn on so many connections for so long.
pub(super) fn for_long(
    target: &Target,
    asked: &[Asked],
    connections: usize,
    long: Duration,
) -> Result<Load> {
    let half = connections / 2;
    if half == 0 {
        return run(target, asked, connections, |_, elapsed| elapsed < long);
    }
    let run = |connections| run(target, asked, connections, |_, elapsed| elapsed < long);
    let [one, other] = std::thread::scope(|scope| {
        let one = scope.spawn(|| run(half));
        let other = run(connections - half);
        let one = one.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")));
        [one, other]
    });
    Ok(one?.with(other?))
}

fn run(
    target: &Target,
    asked: &[Asked],
    connections: usize,
    go_on: impl Fn(usize, Duration) -> bool,
) -> Result<Load> {
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut all = Vec::new();
    for number in 0..connections {
        let connection = Connection::open(target)?;
        let data = EventData::new_u64(number as u64);
        epoll::add(&poll, &connection.stream, data, EventFlags::IN)?;
        all.push(connection);
    }
    let mut load = Load::default();
    let mut sent = 0;
    let start = Instant::now();
    for connection in &mut all {
        connection.ask(asked, sent)?;
        sent += 1;
    }
    let mut waiting = connections;
    let mut events = Vec::with_capacity(connections);
    let patience = rustix::event::Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
    while waiting > 0 {
        events.clear();
        let ready =
            epoll::wait(&poll, rustix::buffer::spare_capacity(&mut events), Some(&patience))?;
        if ready == 0 {
            bail!("no answer within {PATIENCE:?}");
        }
        for event in &events {
            let connection = &mut all[usize::try_from(event.data.u64())?];
            let Some(time) = connection.answered(asked)? else { continue };
            load.times.push(time);
            if go_on(sent, start.elapsed()) {
                connection.ask(asked, sent)?;
                sent += 1;
            } else {
                waiting -= 1;
            }
        }
    }
    load.wall = start.elapsed();
    Ok(load)
}

struct Connection {
    stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    buffer: Vec<u8>,
    /// How much of it is there.
    filled: usize,
    /// Which question is under way, and since when.
    question: usize,
    since: Instant,
    answers: usize,
}

impl Connection {
    fn open(target: &Target) -> Result<Self> {
        let mut stream = TcpStream::connect(target.address).context("connect to the verifier")?;
        stream.set_nodelay(true)?;
        let mut tls = None;
        if let Some(config) = &target.tls {
            let name = ServerName::try_from("localhost").context("a name")?;
            let mut connection = ClientConnection::new(Arc::clone(config), name)?;
            while connection.is_handshaking() {
                connection.complete_io(&mut stream).context("TLS with the verifier")?;
            }
            tls = Some(Box::new(connection));
        }
        stream.set_nonblocking(true)?;
        let (buffer, since) = (vec![0; 64 * 1024], Instant::now());
        Ok(Self { stream, tls, buffer, filled: 0, question: 0, since, answers: 0 })
    }

    fn ask(&mut self, asked: &[Asked], number: usize) -> Result<()> {
        self.question = number % asked.len();
        self.filled = 0;
        self.since = Instant::now();
        let bytes = &asked[self.question].bytes;
        match &mut self.tls {
            None => self.write(|stream| write_whole(stream, bytes)),
            Some(tls) => {
                tls.writer().write_all(bytes)?;
                self.flush()
            }
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut TcpStream) -> std::io::Result<()>) -> Result<()> {
        write(&mut self.stream).context("ask the verifier")
    }

    fn flush(&mut self) -> Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(error) => return Err(error).context("ask the verifier"),
            }
        }
        Ok(())
    }

    /// How long it took, if the answer is whole.
    fn answered(&mut self, asked: &[Asked]) -> Result<Option<Duration>> {
        loop {
            if self.filled == self.buffer.len() {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
            let got = match self.read() {
                Ok(0) => bail!("the verifier hung up"),
                Ok(got) => got,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error).context("read the verifier's answer"),
            };
            self.filled += got;
            let answer = &self.buffer[..self.filled];
            if complete(answer)? == Progress::Whole {
                let time = self.since.elapsed();
                // Looking at all of them would be measuring the client.
                if self.answers.is_multiple_of(256) {
                    asked[self.question].check(answer)?;
                }
                self.answers += 1;
                return Ok(Some(time));
            }
        }
    }

    fn read(&mut self) -> std::io::Result<usize> {
        let room = &mut self.buffer[self.filled..];
        let Some(tls) = &mut self.tls else { return self.stream.read(room) };
        loop {
            match tls.reader().read(room) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if tls.read_tls(&mut self.stream)? == 0 {
                return Ok(0);
            }
            tls.process_new_packets().map_err(std::io::Error::other)?;
        }
    }
}

/// Requests are small: the socket takes them at once but for the rarest case.
fn write_whole(stream: &mut TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_is_no_yes_for_every_key_is_an_error() {
        let asked = Asked::new(&["a".to_owned(), "b".to_owned()]);
        let answer = |body: &str| format!("HTTP/1.1 200 OK\r\n\r\n{body}").into_bytes();
        let yes = "\"isSuccess\":true";
        asked.check(&answer(&format!("{yes} {yes}"))).unwrap();
        assert!(asked.check(&answer(yes)).is_err());
        assert!(asked.check(&answer(&format!("{yes} {yes} \"isSuccess\":false"))).is_err());
        assert!(asked.check(b"HTTP/1.1 500 no\r\n\r\n").is_err());
    }

    #[test]
    fn what_two_saw_is_put_together() {
        let load = |count: u64, seconds| Load {
            times: (1..=count).map(Duration::from_millis).collect(),
            wall: Duration::from_secs(seconds),
        };
        let both = load(100, 1).with(load(300, 2));
        assert_eq!((both.times.len(), both.wall), (400, Duration::from_secs(2)));
        assert!((both.rate() - 200.0).abs() < 1e-9);
    }

    #[test]
    fn percentiles_are_of_what_was_measured() {
        let times = (1..=100).map(Duration::from_millis).collect();
        let load = Load { times, wall: Duration::from_secs(1) };
        assert_eq!(load.percentile(50), Duration::from_millis(51));
        assert_eq!(load.percentile(99), Duration::from_millis(100));
        assert!((load.rate() - 100.0).abs() < 1e-9);
    }
}
