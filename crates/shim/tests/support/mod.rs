//! A node made of files, archives to install on it, and a server that can misbehave.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "every file uses a part of it")]

pub mod runtime;
pub mod server;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use portolan_core::Digest;
use portolan_shim::node::fetch::{Location, Transport};
use portolan_shim::node::install::{Node, Outcome, Restart, Source};
use portolan_shim::node::preset::Overrides;
use portolan_shim::node::request::{Options, Wanted};
use portolan_shim::resolve::Policy;

pub const MAIN: &str = "etc/containerd/config.toml";

/// A program for this machine, as far as its header says: what follows differs by `seed`.
pub fn program(seed: u8, bytes: usize) -> Vec<u8> {
    let own = fs::read("/proc/self/exe").unwrap();
    let mut program = own[..64].to_vec();
    let mut state = u64::from(seed) + 1;
    program.extend((0..bytes).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u8
    }));
    program
}

/// A tar.gz with one file.
pub fn archive(name: &str, content: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o755);
    header.set_cksum();
    builder.append_data(&mut header, name, content).unwrap();
    let tar = builder.into_inner().unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(&tar).unwrap();
    gzip.finish().unwrap()
}

/// Everything below a directory: modes, contents, links.
pub fn snapshot(root: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    fn walk(root: &Path, dir: &Path, seen: &mut BTreeMap<String, (u32, Vec<u8>)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap().display().to_string();
            if name == "proc" {
                continue;
            }
            let content = match () {
                () if metadata.is_symlink() => {
                    fs::read_link(&path).unwrap().into_os_string().into_encoded_bytes()
                }
                // A directory, or a socket.
                () if !metadata.is_file() => Vec::new(),
                () => fs::read(&path).unwrap(),
            };
            seen.insert(name, (metadata.permissions().mode(), content));
            if metadata.is_dir() {
                walk(root, &path, seen);
            }
        }
    }
    let mut seen = BTreeMap::new();
    walk(root, root, &mut seen);
    seen
}

/// A tree of files that is a node.
pub struct Tree {
    pub dir: tempfile::TempDir,
}

impl Tree {
    pub fn with(config: &str) -> Self {
        let tree = Self { dir: tempfile::tempdir().unwrap() };
        tree.write(MAIN, config);
        tree
    }

    pub fn empty() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        let here = self.path(path);
        fs::create_dir_all(here.parent().unwrap()).unwrap();
        fs::write(here, text).unwrap();
    }

    /// A process of the host, in this mount namespace and of this user; the host's first one is in `host`.
    pub fn process(&self, pid: u32, words: &[&str], namespace: &str, user: u32) {
        let dir = format!("proc/{pid}");
        self.write(&format!("{dir}/cmdline"), &(words.join("\0") + "\0"));
        self.write(&format!("{dir}/status"), &format!("Name:\tx\nUid:\t{user}\t0\t0\t0\n"));
        // The host's is our own: this is a tree of files, and none to go into.
        let own = fs::read_link("/proc/self/ns/mnt").unwrap();
        for (pid, namespace) in [(1, "host"), (pid, namespace)] {
            let namespace = if namespace == "host" { own.as_path() } else { Path::new(namespace) };
            let link = self.path(&format!("proc/{pid}/ns/mnt"));
            fs::create_dir_all(link.parent().unwrap()).unwrap();
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(namespace, link).unwrap();
        }
    }

    /// What that process runs.
    pub fn runs(&self, pid: u32, program: &str) {
        let link = self.path(&format!("proc/{pid}/exe"));
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(self.path(program), link).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    pub fn snapshot(&self) -> BTreeMap<String, (u32, Vec<u8>)> {
        snapshot(self.dir.path())
    }

    pub fn node(&self) -> Node {
        node(self.dir.path())
    }

    /// What the fetching stage would leave.
    pub fn assets(name: &str, program: &[u8]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        Self::leave(dir.path(), &format!("containerd-shim-{name}"), program);
        dir
    }

    pub async fn install(&self, name: &str, program: &[u8]) -> Outcome {
        self.install_by(&self.node(), name, program).await
    }

    pub async fn install_by(&self, node: &Node, name: &str, program: &[u8]) -> Outcome {
        let assets = Self::assets(name, program);
        let source = Source::Assets(assets.path().to_owned());
        portolan_shim::node::install::install(
            node,
            &wanted(name),
            &source,
            &portolan_shim::node::Quiet,
        )
        .await
    }

    /// Leaves a program as the fetching stage does.
    pub fn leave(dir: &Path, binary: &str, program: &[u8]) {
        let sha256 = Digest::sha256(program).hex();
        let note = format!(
            r#"{{"archiveSha256":"{sha256}","binarySha256":"{sha256}","binary":"{binary}"}}"#
        );
        fs::write(dir.join(binary), program).unwrap();
        fs::write(dir.join(".portolan-fetched.json"), note).unwrap();
    }

    pub async fn uninstall(&self, name: &str) -> Outcome {
        uninstall(&self.node(), name).await
    }

    pub async fn verify(&self, name: &str) -> Outcome {
        let name = portolan_shim::node::request::Name::parse("x", name).unwrap();
        portolan_shim::node::verify::verify(&self.node(), &name, None).await
    }
}

pub async fn uninstall(node: &Node, name: &str) -> Outcome {
    let name = portolan_shim::node::request::Name::parse("x", name).unwrap();
    portolan_shim::node::uninstall::uninstall(node, &name, &portolan_shim::node::Quiet).await
}

pub fn node(root: &Path) -> Node {
    Node {
        root: root.to_owned(),
        install_dir: "/opt/rcm".to_owned(),
        overrides: Overrides::default(),
        restart: Restart { off: true, ..Restart::default() },
        lock: Duration::from_secs(20),
    }
}

/// The same with a runtime that is started again by this line, and has little time to come back.
pub fn restarting(root: &Path, command: &str) -> Node {
    let (off, command) = (false, Some(command.to_owned()));
    let patience = Duration::from_millis(1500);
    Node { restart: Restart { off, command, patience }, ..node(root) }
}

pub fn wanted(name: &str) -> Wanted {
    Wanted::new(name, None, None, Options::default()).unwrap()
}

pub fn from(url: &str, digest: Option<Digest>) -> Source {
    let location = Location::new(url, digest, Policy::default()).unwrap();
    Source::Location(Box::new(location), transport())
}

pub fn transport() -> Transport {
    Transport {
        stall: Duration::from_millis(400),
        first_wait: Duration::from_millis(20),
        timeout: Duration::from_secs(20),
        ..Transport::default()
    }
}

/// The outcome, provided it went well.
#[track_caller]
pub fn ok(outcome: Outcome) -> portolan_shim::report::Report {
    assert!(outcome.error.is_none(), "{}", outcome.report.message);
    outcome.report
}
