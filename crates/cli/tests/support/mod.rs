//! Runs the real program, and the real embedded server beside it.
#![allow(dead_code, reason = "every file uses a part of it")]

use std::io::BufRead as _;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

pub(crate) mod ending;
pub(crate) mod fake_agent;

/// The checked-in image: five platforms, one index, tag `1`.
pub(crate) const HELLO: &str =
    concat!("oci:", env!("CARGO_MANIFEST_DIR"), "/../../fixtures/images/hello:1");

/// The program with an environment of its own: no credentials or settings of this machine.
pub(crate) fn portolan(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PORTOLAN_") {
            command.env_remove(name);
        }
    }
    command
        .env("HOME", home)
        .env("DOCKER_CONFIG", home.join(".docker"))
        .env("XDG_CONFIG_HOME", home.join(".config"))
        .env_remove("KUBECONFIG")
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("REGISTRY_AUTH_FILE")
        .stdin(Stdio::null());
    command
}

/// What one run said and how it ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("it was not killed"),
            out: String::from_utf8(output.stdout).expect("stdout is text"),
            err: String::from_utf8(output.stderr).expect("stderr is text"),
        }
    }
}

impl Said {
    /// Stdout, provided it went well.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, 0, "{}", self.err);
        self.out
    }

    #[track_caller]
    pub(crate) fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.ok()).expect("JSON")
    }

    /// What stdout says, however it went.
    #[track_caller]
    pub(crate) fn answer(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {} {}", self.out, self.err))
    }
}

pub(crate) fn run(home: &Path, args: &[&str]) -> Said {
    portolan(home).args(args).output().expect("portolan runs").into()
}

/// The same with the password of keys.
pub(crate) fn with_password(home: &Path, args: &[&str], password: &str) -> Said {
    let mut command = portolan(home);
    command.args(args).env("COSIGN_PASSWORD", password).output().expect("portolan runs").into()
}

/// Makes a pair of keys of this name in the home; their password is `secret`.
pub(crate) fn generate(home: &Path, name: &str) -> Said {
    let prefix = home.join(name).display().to_string();
    with_password(home, &["key", "generate", "--output", &prefix], "secret")
}

/// A home, and a registry with the checked-in image in it.
pub(crate) fn stocked() -> (tempfile::TempDir, Server, String) {
    let home = tempfile::tempdir().expect("a folder");
    let server = Server::start(home.path(), &home.path().join("data"), &[]);
    let image = format!("{}/team/hello:1", server.address);
    run(home.path(), &["image", "copy", HELLO, &image]).ok();
    (home, server, image)
}

/// `portolan registry serve`, ended when dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
}

impl Server {
    pub(crate) fn start(home: &Path, root: &Path, more: &[&str]) -> Self {
        let mut child = portolan(home)
            .args(["registry", "serve", "--listen", "127.0.0.1:0", "--root"])
            .arg(root)
            .args(more)
            .stdout(Stdio::piped())
            .spawn()
            .expect("portolan starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("a pipe");
        std::io::BufReader::new(stdout).read_line(&mut line).expect("a first line");
        let address = line.trim().to_owned();
        assert!(address.parse::<std::net::SocketAddr>().is_ok(), "first line: {line:?}");
        Self { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
