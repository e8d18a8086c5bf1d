//! What is built in tests: `examples/hello`, and a git repository that pods clone.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::{Running, Testbed, free_port, ok, run, wait_for};

/// `examples/hello`, as somebody has it.
pub fn hello_source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello")
}

/// A repository that pods clone, served on the bridge.
#[derive(Debug)]
pub struct Repository {
    pub url: String,
    _server: Running,
}

impl Repository {
    /// Commits a copy of these files as `app.git` in `parent`, and serves all that is there.
    pub fn serve(files: &Path, parent: &Path) -> Result<Self> {
        let work = parent.join("app.git");
        ok(Command::new("cp").arg("-r").arg(files).arg(&work));
        git(&work, &["init", "--quiet", "--initial-branch=main"]);
        git(&work, &["add", "."]);
        git(&work, &["commit", "--quiet", "-m", "An application"]);
        let address = Testbed::get().bridge_address;
        let port = free_port(address)?;
        let mut daemon = Command::new("git");
        daemon.args(["daemon", "--export-all", "--reuseaddr"]);
        daemon.arg(format!("--base-path={}", parent.display()));
        daemon.arg(format!("--listen={address}")).arg(format!("--port={port}")).arg(parent);
        let server = Running::start(&mut daemon)?;
        let url = format!("git://{address}:{port}/app.git");
        wait_for("git daemon", Duration::from_secs(10), || {
            let found = run(Command::new("git").args(["ls-remote", &url]))?;
            ensure!(found.code == Some(0), "{found}");
            Ok(())
        })?;
        Ok(Self { url, _server: server })
    }
}

fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args([
        "-c",
        "user.name=A Developer",
        "-c",
        "user.email=a@b.example",
    ]);
    ok(command.args(args));
}
