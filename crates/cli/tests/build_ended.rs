//! `portolan build run` on this machine, ended in the middle: nothing stays.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use support::ending::{below, ended, signal, until};
use support::{Server, portolan};

/// Somebody who takes every connection and never says anything.
struct Silence(String);

impl Silence {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        std::thread::spawn(move || {
            let mut open = Vec::new();
            for connection in listener.incoming() {
                open.push(connection);
            }
        });
        Self(address)
    }
}

struct Site {
    home: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let site = Self { home: tempfile::tempdir().unwrap() };
        std::fs::create_dir(site.temp()).unwrap();
        let app = site.home.path().join("app");
        std::fs::create_dir(&app).unwrap();
        std::fs::write(app.join("Containerfile"), "FROM scratch\nCOPY app /app\n").unwrap();
        std::fs::write(app.join("app"), "x".repeat(100_000)).unwrap();
        site
    }

    fn temp(&self) -> PathBuf {
        self.home.path().join("tmp")
    }

    fn command(&self, address: &str) -> Command {
        let mut command = portolan(self.home.path());
        command
            .env("TMPDIR", self.temp())
            .args(["build", "run", "--engine", "local", "--platform", "linux/amd64", "--dir"])
            .arg(self.home.path().join("app"))
            .arg("--output")
            .arg(format!("{address}/team/app:1"))
            .stdout(Stdio::null());
        command
    }

    /// Everything below the directory for temporary files.
    fn left(&self) -> Vec<PathBuf> {
        below(&self.temp())
    }
}

/// A build at work: its image is there, and nobody takes it.
fn stuck(site: &Site, address: &str) -> Child {
    let before = layouts(site);
    let child = site.command(address).stderr(Stdio::null()).spawn().unwrap();
    until("the image", || layouts(site) > before);
    child
}

/// How many have images that are put together.
fn layouts(site: &Site) -> usize {
    let dirs = site.left().into_iter().filter(|path| is_blob(path));
    dirs.map(|path| path.parent().unwrap().to_owned()).collect::<BTreeSet<_>>().len()
}

fn is_blob(path: &Path) -> bool {
    path.parent().is_some_and(|dir| dir.ends_with("blobs/sha256"))
}

#[test]
fn what_a_killed_run_leaves_is_removed_by_the_next() {
    let (site, silence) = (Site::new(), Silence::new());
    let mut killed = stuck(&site, &silence.0);
    let mut living = stuck(&site, &silence.0);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert_eq!(layouts(&site), 2, "it was killed: {:?}", site.left());
    let server = Server::start(site.home.path(), &site.home.path().join("data"), &[]);
    assert!(site.command(&server.address).status().unwrap().success());
    assert_eq!(layouts(&site), 1, "the other still works in its own: {:?}", site.left());
    living.kill().unwrap();
    living.wait().unwrap();
    assert!(site.command(&server.address).status().unwrap().success());
    assert_eq!(site.left(), Vec::<PathBuf>::new());
}

#[test]
fn an_interrupted_run_leaves_nothing_behind() {
    let (site, silence) = (Site::new(), Silence::new());
    let mut child = stuck(&site, &silence.0);
    signal(&child, Signal::INT);
    assert_eq!(ended(&mut child), Some(130));
    assert_eq!(site.left(), Vec::<PathBuf>::new());
}

/// Far more zeros than anybody packs while somebody waits.
const ENDLESS: u64 = 1 << 40;

/// A build that has more to pack than it can.
fn packing(site: &Site, more: &[&str]) -> Child {
    let app = std::fs::File::create(site.home.path().join("app/app")).unwrap();
    app.set_len(ENDLESS).unwrap();
    let mut command = site.command("127.0.0.1:1");
    let stderr = std::fs::File::create(site.home.path().join("stderr")).unwrap();
    command.arg("--no-source").args(more).stderr(stderr).spawn().unwrap()
}

/// Whether a layer is being written: nothing else is as large.
fn has_begun(site: &Site) -> bool {
    site.left().iter().any(|path| path.metadata().is_ok_and(|m| m.is_file() && m.len() > 4096))
}

#[test]
fn a_run_that_is_out_of_time_does_not_pack_to_the_end() {
    let site = Site::new();
    let mut child = packing(&site, &["--timeout", "1s"]);
    assert_eq!(ended(&mut child), Some(1));
    let told = std::fs::read_to_string(site.home.path().join("stderr")).unwrap();
    assert!(told.contains("BuildRunTimeout"), "{told}");
    assert_eq!(site.left(), Vec::<PathBuf>::new());
}

#[test]
fn an_interrupted_run_does_not_pack_to_the_end() {
    let site = Site::new();
    let mut child = packing(&site, &[]);
    until("a layer", || has_begun(&site));
    signal(&child, Signal::INT);
    assert_eq!(ended(&mut child), Some(130));
    assert_eq!(site.left(), Vec::<PathBuf>::new());
}

/// Also while git waits for an answer: it ends, too.
#[test]
fn an_interrupted_clone_leaves_nothing_behind() {
    let (site, silence) = (Site::new(), Silence::new());
    let strategy = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/strategies/portolan.yaml");
    let build = site.home.path().join("build.yaml");
    let url = format!("git://{}/app.git", silence.0);
    std::fs::write(
        &build,
        format!(
            "apiVersion: shipwright.io/v1beta1\nkind: Build\nmetadata: {{name: app}}\nspec:\n  \
             source: {{type: Git, git: {{url: '{url}'}}}}\n  \
             strategy: {{name: portolan, kind: ClusterBuildStrategy}}\n  \
             output: {{image: '{}/app:1', platforms: [{{os: linux, arch: amd64}}]}}\n",
            silence.0
        ),
    )
    .unwrap();
    let mut child = portolan(site.home.path())
        .env("TMPDIR", site.temp())
        .args(["build", "run", "--engine", "local", "-f", strategy, "-f"])
        .arg(&build)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // git has the URL in its settings, and asks for what is there.
    until("git to ask", || {
        programs(&url).iter().any(|line| line.contains("ls-remote")) || asks(&site)
    });
    std::thread::sleep(Duration::from_millis(200));
    signal(&child, Signal::INT);
    assert_eq!(ended(&mut child), Some(130));
    assert_eq!(site.left(), Vec::<PathBuf>::new());
    until("git to end", || programs(&site.temp().display().to_string()).is_empty());
}

/// Whether a repository is there that knows where it comes from.
fn asks(site: &Site) -> bool {
    site.left().iter().any(|path| {
        path.ends_with(".git/config")
            && std::fs::read_to_string(path).is_ok_and(|text| text.contains("git://"))
    })
}

/// Command lines and directories of programs that name this.
fn programs(text: &str) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let dir = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        let whole = format!("{line} {}", dir.display());
        (line.starts_with("git") && whole.contains(text)).then_some(whole)
    });
    all.collect()
}
