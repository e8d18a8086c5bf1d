//! A registry that speaks the real distribution protocol and breaks it on command.
//!
//! It writes HTTP/1.1 by hand on blocking sockets, one thread per connection, so that it can say
//! what no HTTP library would let it say: lengths that lie, bodies that end early, silence.
//! Every request is logged; tests count them.

mod protocol;
mod wire;

use std::io::BufReader;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use portolan_core::Reference;

pub use protocol::Registry;
pub use wire::{Answer, Connection, Request};

use super::image::Image;

/// The repository that tests use unless they need two.
pub const REPOSITORY: &str = "team/app";

/// How an answer is bent.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The truth.
    None,
    /// Something else altogether: a status, a redirect, other bytes.
    Answer(Answer),
    /// One bit of the byte at this place is wrong.
    FlipByte(usize),
    /// This many bytes are missing, and `Content-Length` agrees with what is sent.
    Short(usize),
    /// This many bytes too many, and `Content-Length` agrees.
    Long(usize),
    /// The true body under a `Content-Length` that is off by this; then the connection ends.
    ContentLength(isize),
    /// The truth without a `Content-Length`.
    Chunked,
    /// The connection ends after this many bytes of the body.
    Cut(usize),
    /// To a request with `Range`: 200 and the whole body.
    IgnoreRange,
    /// To a request with `Range`: 206 from one byte later than was asked.
    WrongContentRange,
    /// Takes the request and never says anything.
    Hang,
    /// Sends the head and this much of the body, then nothing more.
    HangAfter(usize),
    /// Sends the body in small pieces.
    Trickle {
        /// Bytes in a piece.
        bytes: usize,
        /// Silence after each.
        pause: Duration,
    },
    /// Writes this instead of HTTP, then ends the connection.
    Raw(Vec<u8>),
    /// A chunked body that never ends.
    Endless,
}

impl Fault {
    /// A bare error status.
    pub fn status(status: u16) -> Self {
        Self::Answer(Answer::error(status, "SCRIPTED", "scripted failure"))
    }

    /// A redirect to another address.
    pub fn redirect(to: &str) -> Self {
        Self::Answer(Answer::new(307, "").header("location", to))
    }
}

/// Which requests a rule bends, and how: the first takes the first fault, and so on. Requests
/// after the last fault get the truth, unless the rule goes on forever with its last fault.
#[derive(Debug)]
struct Rule {
    method: &'static str,
    path: String,
    faults: Vec<Fault>,
    forever: bool,
    used: usize,
}

/// A request that was seen.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub range: Option<String>,
    pub authorization: Option<String>,
}

/// The server; it ends when dropped.
pub struct FaultServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    registry: Mutex<Registry>,
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<Seen>>,
    /// What a request must carry, if anything: the exact `Authorization` value.
    authorization: Mutex<Option<String>>,
    tls: Option<Arc<rustls::ServerConfig>>,
    stop: Stop,
}

/// Set when the server ends; hanging connections look at it.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits until the client gave up or the server ends.
    fn wait_until_gone(&self, connection: &Connection) {
        let _ = connection.socket.set_read_timeout(Some(Duration::from_millis(20)));
        let mut byte = [0_u8];
        while !self.is_set() {
            match connection.socket.peek(&mut byte) {
                Ok(0) => return,
                // More of the request, or nothing: the client still waits.
                Ok(_) => thread::sleep(Duration::from_millis(20)),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

impl FaultServer {
    /// A server that holds `image` in [`REPOSITORY`] under the tag `v1`.
    pub fn holding(image: &Image) -> Self {
        let server = Self::start("127.0.0.1", None);
        server.registry().repositories.entry(REPOSITORY.to_owned()).or_default().hold(image, "v1");
        server
    }

    /// An empty server on this address, with TLS when a configuration is given.
    pub fn start(ip: &str, tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let listener = TcpListener::bind((ip, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared {
            registry: Mutex::default(),
            rules: Mutex::default(),
            seen: Mutex::default(),
            authorization: Mutex::default(),
            tls,
            stop: Stop::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if accepting.stop.is_set() {
                    break;
                }
                let shared = Arc::clone(&accepting);
                thread::spawn(move || serve(&shared, socket));
            }
        });
        Self { address, shared }
    }

    /// `ip:port`.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// A reference into [`REPOSITORY`]: `suffix` is `:tag` or `@digest`.
    pub fn reference(&self, suffix: &str) -> Reference {
        self.in_repository(REPOSITORY, suffix)
    }

    /// A reference into any repository.
    pub fn in_repository(&self, repository: &str, suffix: &str) -> Reference {
        format!("{}/{repository}{suffix}", self.host()).parse().unwrap()
    }

    /// The content, to look at or to change.
    pub fn registry(&self) -> MutexGuard<'_, Registry> {
        self.shared.registry.lock().unwrap()
    }

    /// Bends the next requests with this method whose path ends so, one fault each, then none.
    pub fn script(&self, method: &'static str, path: impl Into<String>, faults: Vec<Fault>) {
        self.rule(method, path.into(), faults, false);
    }

    /// Bends every request with this method whose path ends so.
    pub fn always(&self, method: &'static str, path: impl Into<String>, fault: Fault) {
        self.rule(method, path.into(), vec![fault], true);
    }

    fn rule(&self, method: &'static str, path: String, faults: Vec<Fault>, forever: bool) {
        let rule = Rule { method, path, faults, forever, used: 0 };
        self.shared.rules.lock().unwrap().push(rule);
    }

    /// From now on requests without exactly this `Authorization` get 401.
    pub fn demand(&self, authorization: &str) {
        *self.shared.authorization.lock().unwrap() = Some(authorization.to_owned());
    }

    /// Everything that was asked so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap().clone()
    }

    /// How many requests with this method had a path that ends so.
    pub fn count(&self, method: &str, path: &str) -> usize {
        self.seen().iter().filter(|s| s.method == method && s.path.ends_with(path)).count()
    }
}

impl Drop for FaultServer {
    fn drop(&mut self) {
        self.shared.stop.0.store(true, Ordering::SeqCst);
        // Wakes the accepting thread so that it sees the flag and closes the port.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(200));
    }
}

fn serve(shared: &Shared, socket: TcpStream) {
    let _ = socket.set_nodelay(true);
    // A client that stalls a test's server for a minute has found a fault of its own.
    let _ = socket.set_read_timeout(Some(Duration::from_secs(60)));
    let Ok(below) = socket.try_clone() else { return };
    let stream: Box<dyn wire::Duplex> = match &shared.tls {
        Some(config) => match rustls::ServerConnection::new(Arc::clone(config)) {
            Ok(session) => Box::new(rustls::StreamOwned::new(session, socket)),
            Err(_) => return,
        },
        None => Box::new(socket),
    };
    let mut connection = Connection { stream: BufReader::new(stream), socket: below };
    while let Ok(Some(request)) = wire::read_request(&mut connection) {
        let fault = shared.next_fault(&request);
        let answer = shared.answer(&request, &fault);
        match wire::send(&mut connection, &answer, &fault, &shared.stop) {
            Ok(true) if !shared.stop.is_set() => {}
            _ => break,
        }
    }
}

impl Shared {
    fn next_fault(&self, request: &Request) -> Fault {
        self.seen.lock().unwrap().push(Seen {
            method: request.method.clone(),
            path: request.path.clone(),
            range: request.header("range").map(str::to_owned),
            authorization: request.header("authorization").map(str::to_owned),
        });
        let mut rules = self.rules.lock().unwrap();
        let fits = |r: &&mut Rule| {
            r.method == request.method
                && request.path.ends_with(&r.path)
                && (r.forever || r.used < r.faults.len())
        };
        let Some(rule) = rules.iter_mut().find(fits) else { return Fault::None };
        let fault = rule.faults[rule.used.min(rule.faults.len() - 1)].clone();
        rule.used += 1;
        fault
    }

    fn answer(&self, request: &Request, fault: &Fault) -> Answer {
        let demanded = self.authorization.lock().unwrap().clone();
        let answer = match demanded {
            Some(demanded) if request.header("authorization") != Some(demanded.as_str()) => {
                Answer::error(401, "UNAUTHORIZED", "authentication required")
                    .header("www-authenticate", "Basic realm=\"test\"")
            }
            // A registry that answers something else has not done what was asked.
            _ if matches!(fault, Fault::Answer(_) | Fault::Hang | Fault::Raw(_)) => {
                Answer::new(200, "")
            }
            _ => self.registry.lock().unwrap().answer(request, fault),
        };
        Answer { head: request.method == "HEAD", ..answer }
    }
}

/// Runs a future that must end within this many seconds: a hang is a failure, not a wait.
pub async fn within<T>(seconds: u64, future: impl Future<Output = T>) -> T {
    let start = Instant::now();
    match tokio::time::timeout(Duration::from_secs(seconds), future).await {
        Ok(value) => value,
        Err(_) => panic!("not done after {:?}", start.elapsed()),
    }
}
