//! `portolan ship`, ended in the middle and while somebody saves a file: it ends at once, nothing stays, and the next run
//! goes on.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use support::ending::{below, ended, signal, while_it_runs};
use support::fake_agent::{Answers, Fake};
use support::{Said, Server, portolan};

const APP: &str = "FROM scratch\nCOPY app /app\nENTRYPOINT [\"/app\"]\n";
/// What every Linux meets.
const NEEDS: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"app": {"plugins": {
    "kernelVersion": {"data": {"range": "[3.2,)"}}}}}}"#;

struct Site {
    home: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { home: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(site.dir()).unwrap();
        std::fs::create_dir(site.temp()).unwrap();
        for (name, text) in [("Containerfile", APP), ("compatibility.json", NEEDS), ("app", "one")]
        {
            std::fs::write(site.dir().join(name), text).unwrap();
        }
        site
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("app")
    }

    fn temp(&self) -> PathBuf {
        self.home.path().join("tmp")
    }

    fn root(&self, name: &str) -> PathBuf {
        self.home.path().join(format!("root-{}", name.replace('/', "-")))
    }

    fn command(&self, root: &Path, more: &[&str]) -> Command {
        let mut command = portolan(self.home.path());
        command.env("TMPDIR", self.temp()).arg("ship").arg(self.dir());
        command.arg("--root").arg(root).args(more).stdout(Stdio::null());
        command
    }

    /// A run of which a file has every word.
    fn begin(&self, root: &Path, told: &Path, more: &[&str]) -> Child {
        let mut command = self.command(root, &[&["--progress", "plain"], more].concat());
        command.stderr(std::fs::File::create(told).unwrap()).spawn().unwrap()
    }

    fn shipped(&self, root: &Path, more: &[&str]) -> Value {
        let mut command = self.command(root, &[&["-o", "json"], more].concat());
        Said::from(command.stdout(Stdio::piped()).output().unwrap()).json()
    }

    /// What is half made: all in the directory for temporary files, and in a root what has no name of its own yet.
    fn left(&self, root: &Path) -> Vec<PathBuf> {
        let half = |path: &PathBuf| {
            let inside = path.parent().unwrap().file_name().unwrap().to_string_lossy();
            let extension = path.extension().unwrap_or_default().to_string_lossy();
            match &*inside {
                "tmp" | "uploads" => true,
                "ship" => !path.ends_with("lock") && extension != "json",
                "keys" => !["key", "pub"].contains(&&*extension),
                "sha256" if extension.is_empty() => path.file_name().unwrap().len() != 64,
                _ => false,
            }
        };
        let mut left = below(&self.temp());
        left.extend(below(root).into_iter().filter(half));
        left
    }
}

/// A way to a registry that can be shut: what comes then waits, and is not lost.
struct Gate {
    address: String,
    open: Arc<AtomicBool>,
    waits: Arc<AtomicBool>,
}

impl Gate {
    /// It is asked before each part of a request whether it is shut, until somebody opens it for good.
    fn new(server: &str, shut: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let gate = Self { address, open: Arc::default(), waits: Arc::default() };
        let (open, waits) = (Arc::clone(&gate.open), Arc::clone(&gate.waits));
        let (server, shut) = (server.to_owned(), Arc::new(shut));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (open, waits) = (Arc::clone(&open), Arc::clone(&waits));
                let shut = Arc::clone(&shut);
                let to = TcpStream::connect(&server).unwrap();
                let (mut back, mut answers) =
                    (stream.try_clone().unwrap(), to.try_clone().unwrap());
                std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
                std::thread::spawn(move || {
                    forward(stream, to, || {
                        while !open.load(Ordering::SeqCst) && shut() {
                            waits.store(true, Ordering::SeqCst);
                            std::thread::sleep(Duration::from_millis(5));
                        }
                    });
                });
            }
        });
        gate
    }

    fn image(&self) -> String {
        format!("{}/app:1", self.address)
    }

    fn waits(&self) -> bool {
        self.waits.load(Ordering::SeqCst)
    }

    fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, pass: impl Fn()) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        pass();
        if to.write_all(&buffer[..read]).is_err() {
            return;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Write);
}

/// Whether a run has told that a stage begins, which it does before it asks anybody for anything of it.
fn has_begun(told: &Path, stage: &str) -> bool {
    let began = format!("{stage:14} running");
    std::fs::read_to_string(told)
        .is_ok_and(|text| text.lines().any(|line| line.starts_with(&began)))
}

/// Only `resolve` is not here: it asks nobody, and there is no moment at which it waits.
#[test]
fn interrupted_in_any_stage_it_ends_in_order_and_the_next_run_goes_on() {
    let site = Site::new();
    let stages =
        ["build", "linux/amd64", "linux/arm64", "sign", "attach", "verify", "check", "disk"];
    for (at, stage) in stages.into_iter().enumerate() {
        let root = site.root(stage);
        let server = Server::start(site.home.path(), &site.root(&format!("data-{stage}")), &[]);
        let told = site.home.path().join("told");
        let seen = told.clone();
        let gate = Gate::new(&server.address, move || has_begun(&seen, stage));
        let to = gate.image();
        let mut child = site.begin(&root, &told, &["--to", &to]);
        while_it_runs(stage, &mut child, || gate.waits());
        signal(&child, if at % 2 == 0 { Signal::INT } else { Signal::TERM });
        let code = ended(&mut child);
        let text = std::fs::read_to_string(&told).unwrap();
        assert_eq!(code, Some(130), "{stage}: {text}");
        assert!(text.contains("run the same again"), "{stage}: {text}");
        assert_eq!(site.left(&root), Vec::<PathBuf>::new(), "{stage}: {text}");
        gate.open();
        let report = site.shipped(&root, &["--to", &to]);
        assert_eq!(report["stages"].as_array().unwrap().len(), 7, "{stage}: {report:#}");
        assert!(Path::new(report["rootdisk"].as_str().unwrap()).is_file(), "{stage}: {report:#}");
    }
}

/// As many zeros as a source may have, and so often: more than anybody packs while somebody waits.
const LARGE: u64 = 1 << 33;
const LAYERS: usize = 40;

#[test]
fn an_interrupted_ship_does_not_pack_to_the_end() {
    let site = Site::new();
    let (root, told) = (site.root("long"), site.home.path().join("told"));
    std::fs::File::create(site.dir().join("app")).unwrap().set_len(LARGE).unwrap();
    let copies: String = (0..LAYERS).map(|n| format!("COPY app /app{n}\n")).collect();
    let recipe = format!("FROM scratch\n{copies}ENTRYPOINT [\"/app0\"]\n");
    std::fs::write(site.dir().join("Containerfile"), recipe).unwrap();
    let mut child = site.begin(&root, &told, &[]);
    // Nothing else is as large as the layer that is being written.
    let packs = |path: &PathBuf| path.metadata().is_ok_and(|m| m.is_file() && m.len() > 4096);
    while_it_runs("a layer", &mut child, || below(&site.temp()).iter().any(packs));
    signal(&child, Signal::INT);
    assert_eq!(ended(&mut child), Some(130));
    assert_eq!(site.left(&root), Vec::<PathBuf>::new());
}

/// An agent that does not answer is what an end in order waits for.
#[test]
fn who_asks_a_second_time_does_not_wait() {
    let site = Site::new();
    let time = "2026-01-01T00:00:00Z";
    let status = json!({
        "version": "0", "node": "n", "platform": "linux/amd64", "rootdisk_format_version": "1",
        "started_at": time, "time": time, "ready": true, "degraded": [], "pools": {}, "instances": {},
    });
    let fetched = json!({ "images": [{ "rootdisk_key": "ab".repeat(32), "cached": false }] });
    let fake = Fake::new(Answers::from([
        ("GET /v1/status", (200, status)),
        ("POST /v1/prefetch", (200, fetched)),
        ("DELETE /v1/instances/ship-app", (0, Value::Null)),
    ]));
    let (root, told) = (site.root("agent"), site.home.path().join("told"));
    let socket = fake.socket().display().to_string();
    let mut child = site.begin(&root, &told, &["--socket", &socket, "--boot"]);
    let deletions = || fake.asked().iter().filter(|(call, _)| call.starts_with("DELETE")).count();
    while_it_runs("the machine", &mut child, || deletions() == 1);
    signal(&child, Signal::INT);
    while_it_runs("its end", &mut child, || deletions() == 2);
    assert_eq!(child.try_wait().unwrap(), None, "the machine is ended in order");
    signal(&child, Signal::INT);
    assert_eq!(ended(&mut child), Some(130));
}

/// A file that is saved while a run reads its directory: what comes of it is of neither state, and must not be taken for what
/// the state before gives.
#[test]
fn what_was_built_while_a_file_was_saved_is_not_remembered() {
    let site = Site::new();
    let server = Server::start(site.home.path(), &site.root("data"), &[]);
    // The source is packed when somebody is asked for the first time, and no image is made yet.
    let gate = Gate::new(&server.address, || true);
    let (root, told, to) = (site.root("saved"), site.home.path().join("told"), gate.image());
    let mut child = site.begin(&root, &told, &["--to", &to]);
    while_it_runs("a request", &mut child, || gate.waits());
    let app = site.dir().join("app");
    let before = app.metadata().unwrap().modified().unwrap();
    std::fs::write(&app, "two").unwrap();
    gate.open();
    assert_eq!(ended(&mut child), Some(0), "{}", std::fs::read_to_string(&told).unwrap());
    // Everything as it was when the run began, its time included.
    std::fs::write(&app, "one").unwrap();
    std::fs::File::options().write(true).open(&app).unwrap().set_modified(before).unwrap();
    let again = site.shipped(&root, &["--to", &to]);
    assert_eq!(again["stages"][0]["state"], "done", "{again:#}");
    let fresh = site.shipped(&site.root("fresh"), &[]);
    assert_eq!(again["indexDigest"], fresh["indexDigest"], "it is of the file that is there");
    let third = site.shipped(&root, &["--to", &to]);
    assert_eq!(third["stages"][0]["state"], "unchanged", "{third:#}");
}

/// A run at the beginning of a stage.
fn at(site: &Site, root: &Path, stage: &str) -> Child {
    let mut command = site.command(root, &["--progress", "plain"]);
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap());
    let began = format!("{stage:14} running");
    let mut seen = Vec::new();
    for line in lines.lines() {
        let line = line.unwrap();
        if line.starts_with(&began) {
            return child;
        }
        seen.push(line);
    }
    let ended = child.wait();
    panic!("no stage {stage} in {seen:?}: {ended:?}");
}

#[test]
fn killed_at_any_stage_nothing_is_lost() {
    let site = Site::new();
    let mut digests = std::collections::BTreeSet::new();
    for stage in ["build", "linux/arm64", "sign", "attach", "verify", "check", "resolve", "disk"] {
        let root = site.root(stage);
        for _ in 0..2 {
            let mut child = at(&site, &root, stage);
            child.kill().unwrap();
            child.wait().unwrap();
        }
        let report = site.shipped(&root, &[]);
        let disk = report["rootdisk"].as_str().unwrap();
        assert!(Path::new(disk).is_file(), "{stage}: {report:#}");
        digests.insert(report["indexDigest"].as_str().unwrap().to_owned());
    }
    assert_eq!(digests.len(), 1, "{digests:?}");
    assert_eq!(
        below(&site.temp()),
        Vec::<PathBuf>::new(),
        "what was killed is swept by who comes next"
    );
}
