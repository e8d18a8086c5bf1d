//! One install on one node, from an archive on loopback to files that are synced; the runtime is not started again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use portolan_core::Digest;

use super::{at_most, row};
use crate::bench::measure::{self, median};
use crate::bench::report::{Report, millis};
use crate::testbed::command;

/// As large as those that people install.
const BYTES: usize = 30 << 20;
const NAME: &str = "bench-v1";

pub(super) fn run(report: &mut Report, runs: usize, portolan: &Path) -> Result<()> {
    println!("bench: an archive of 30 MB installed on a node, {runs} times");
    let dir = tempfile::tempdir()?;
    let archive = archive(dir.path(), portolan)?;
    ensure!(archive.len() > BYTES, "an archive of {} bytes", archive.len());
    let digest = Digest::sha256(&archive).hex();
    let url = serve(archive)?;
    let (mut times, mut peak) = (Vec::new(), 0);
    for number in 0..runs {
        let root = dir.path().join(format!("node-{number}"));
        fs::create_dir_all(root.join("etc/containerd"))?;
        fs::write(root.join("etc/containerd/config.toml"), "version = 2\n")?;
        let mut install = Command::new(portolan);
        install.args(["node", "install", "--no-restart", "--name", NAME, "--location", &url]);
        install.args(["--sha256", &digest, "--host-root"]).arg(&root);
        let run = measure::run(&mut install)?;
        let config = fs::read_to_string(root.join("etc/containerd/config.toml"))?;
        ensure!(config.contains(NAME), "it is not installed: {config}");
        fs::remove_dir_all(&root)?;
        times.push(run.wall);
        peak = peak.max(run.peak_kib);
    }
    let middle = median(times.clone());
    #[allow(clippy::cast_precision_loss, reason = "kibibytes of a process fit")]
    let peak = peak as f64 / 1024.0;
    report.rows.push(row("node install of 30 MB", middle, &times, Some(peak)));
    at_most(
        report,
        "node install of 30 MB from loopback, without the restart, ms",
        millis(middle),
        1000.0,
    );
    Ok(())
}

/// A program for this machine, as far as its head says; the rest cannot be packed smaller.
fn archive(dir: &Path, portolan: &Path) -> Result<Vec<u8>> {
    let program = format!("containerd-shim-{NAME}");
    let mut bytes = vec![0; 64];
    fs::File::open(portolan)?.read_exact(&mut bytes)?;
    let mut state = 1_u64;
    bytes.extend((0..BYTES).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[5]
    }));
    let folder = dir.join("archive");
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(&program), bytes)?;
    let file = dir.join("shim.tar.gz").display().to_string();
    command::run("chmod", &["755", &folder.join(&program).display().to_string()])?;
    command::run("tar", &["-czf", &file, "-C", &folder.display().to_string(), &program])?;
    fs::remove_dir_all(&folder)?;
    fs::read(&file).context("read the archive")
}

fn serve(bytes: Vec<u8>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/shim.tar.gz", listener.local_addr()?);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                bytes.len()
            );
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&bytes));
        }
    });
    Ok(url)
}
