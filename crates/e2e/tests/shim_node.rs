//! A shim on a real containerd: installed, seen by the runtime itself, rolled back, taken off without a trace.
//!
//! The containerd is the test's own, with directories and a socket of its own: the cluster's is left alone.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{Output, Testbed, portolan, run, wait_for};
use serde_json::Value;

/// A containerd of the test's own, ended when dropped.
struct Containerd {
    dir: tempfile::TempDir,
}

impl Containerd {
    fn start() -> Result<Self> {
        let own = Self { dir: tempfile::tempdir()? };
        let program = Testbed::get().tool("containerd")?.display().to_string();
        let dir = own.dir.path().display().to_string();
        std::fs::write(
            own.config(),
            format!(
                "version = 2\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\n\n[grpc]\naddress = \"{dir}/c.sock\"\n\n\
                 [plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{dir}/optpath\"\n\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"{dir}/cni\""
            ),
        )?;
        // What supervises it: ends the old one, and starts a new one unless the configuration names a shim
        // that stands for everything a daemon may not survive.
        std::fs::write(
            own.restart(),
            format!(
                "[ -f {dir}/pid ] && kill $(cat {dir}/pid) && while kill -0 $(cat {dir}/pid) 2>/dev/null; do sleep 0.05; done\n\
                 rm -f {dir}/pid\n\
                 grep -q deadly {dir}/config.toml && exit $(cat {dir}/deadly-exit)\n\
                 setsid {program} --config {dir}/config.toml > {dir}/log 2>&1 &\n\
                 echo $! > {dir}/pid\n"
            ),
        )?;
        let started = run(Command::new("sh").arg(own.restart()))?;
        ensure!(started.code == Some(0), "{started}");
        wait_for("containerd's socket", Duration::from_secs(30), || {
            ensure!(own.dir.path().join("c.sock").exists(), "it is not there yet");
            Ok(())
        })?;
        Ok(own)
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    fn restart(&self) -> PathBuf {
        self.dir.path().join("restart.sh")
    }

    fn node(&self, command: &str, name: &str, more: &[&str]) -> Result<Output> {
        let mut portolan = portolan();
        portolan.args(["node", command, "--host-root", "/", "--name", name, "-o", "json"]);
        portolan.arg("--install-dir").arg(self.dir.path().join("shims"));
        portolan.arg("--config").arg(self.config()).args(more);
        if command != "verify" {
            portolan.arg("--restart-command").arg(format!("sh {}", self.restart().display()));
            if !more.contains(&"--ready-timeout") {
                portolan.args(["--ready-timeout", "20"]);
            }
        }
        run(&mut portolan)
    }

    fn install(&self, name: &str, url: &str, more: &[&str]) -> Result<Output> {
        self.node("install", name, &[&["--location", url], more].concat())
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(self.dir.path().join("pid")) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

/// A tar.gz that holds the real shim of runc under another name.
fn archive(name: &str) -> Result<Vec<u8>> {
    let shim = Testbed::get().tool("containerd")?.with_file_name("containerd-shim-runc-v2");
    let dir = tempfile::tempdir()?;
    std::fs::copy(&shim, dir.path().join(name)).with_context(|| shim.display().to_string())?;
    let packed = dir.path().join("x.tar.gz");
    let done =
        run(Command::new("tar").arg("-czf").arg(&packed).arg("-C").arg(dir.path()).arg(name))?;
    ensure!(done.code == Some(0), "{done}");
    Ok(std::fs::read(packed)?)
}

/// Serves one file to whoever asks, as long as the test runs.
fn serve(bytes: Vec<u8>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/shim.tar.gz", listener.local_addr()?);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let length = bytes.len();
            let _ = write!(
                stream,
                "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n"
            );
            let _ = stream.write_all(&bytes);
        }
    });
    Ok(url)
}

fn report(output: &Output) -> Result<Value> {
    serde_json::from_str(&output.stdout).with_context(|| output.to_string())
}

/// What is in a directory, but for what containerd itself writes.
fn files(dir: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_file() && !["log", "pid"].iter().any(|own| path.ends_with(own)) {
            files.insert(path.clone(), std::fs::read(&path)?);
        }
    }
    Ok(files)
}

#[test]
fn a_real_containerd_is_given_a_shim_and_loses_it_again() -> Result<()> {
    let containerd = Containerd::start()?;
    let before = files(containerd.dir.path())?;
    let bytes = archive("containerd-shim-renamed-v2")?;
    let url = serve(bytes.clone())?;

    let installed = containerd.install("renamed-v2", &url, &["--option", "SystemdCgroup=false"])?;
    assert_eq!(installed.code, Some(0), "{installed}");
    let told = report(&installed)?;
    assert_eq!((&told["changed"], &told["restarted"]), (&true.into(), &true.into()), "{told}");
    assert!(
        told["runtimeVersion"].as_str().unwrap_or_default().starts_with("containerd"),
        "{told}"
    );
    let verified = containerd.node("verify", "renamed-v2", &[])?;
    assert_eq!(verified.code, Some(0), "{verified}");

    // The same again: no restart, and the runtime is asked all the same.
    let again =
        report(&containerd.install("renamed-v2", &url, &["--option", "SystemdCgroup=false"])?)?;
    assert_eq!((&again["changed"], &again["restarted"]), (&false.into(), &false.into()), "{again}");

    let removed = containerd.node("uninstall", "renamed-v2", &[])?;
    assert_eq!(removed.code, Some(0), "{removed}");
    assert_eq!(files(containerd.dir.path())?, before);
    assert!(!containerd.dir.path().join("shims").exists());
    let verified = containerd.node("verify", "renamed-v2", &[])?;
    assert_eq!(verified.code, Some(1), "{verified}");
    Ok(())
}

#[test]
fn a_containerd_that_does_not_come_back_is_rolled_back() -> Result<()> {
    let containerd = Containerd::start()?;
    let before = files(containerd.dir.path())?;
    let url = serve(archive("containerd-shim-deadly")?)?;
    // A supervisor that says nothing of it, and one that says so.
    for code in ["0", "1"] {
        std::fs::write(containerd.dir.path().join("deadly-exit"), code)?;
        let outcome = containerd.install("deadly", &url, &["--ready-timeout", "3"])?;
        assert_eq!(outcome.code, Some(1), "{outcome}");
        let told = report(&outcome)?;
        assert_eq!(told["reason"], "RolledBack", "{told}");
        std::fs::remove_file(containerd.dir.path().join("deadly-exit"))?;
        assert_eq!(files(containerd.dir.path())?, before, "all is as before");
        assert!(!containerd.dir.path().join("shims").exists());
    }
    // And it runs.
    let url = serve(archive("containerd-shim-fine")?)?;
    let fine = containerd.install("fine", &url, &[])?;
    assert_eq!(fine.code, Some(0), "{fine}");
    Ok(())
}
