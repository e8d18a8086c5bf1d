//! A shim on a real containerd: installed, seen by the runtime itself, run by it, rolled back, taken off without a
//! trace.
//!
//! The containerd is the test's own, with directories and a socket of its own: the cluster's is left alone.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Cri, FileServer, Output, Testbed, portolan, programs_below, run, shim_archive, wait_for,
};
use serde_json::Value;

/// Which containerd, and the version that its configuration is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// What the distribution has: 1.6 or 1.7.
    One,
    /// 2.x, with a directory of drop-ins in which somebody else has a file.
    Two { version: u8 },
}

/// A containerd of the test's own, ended when dropped. Its folder goes with the cluster, and so does what a test
/// that was killed left running.
struct Containerd {
    dir: PathBuf,
}

impl Containerd {
    fn start(kind: Kind, test: &str) -> Result<Self> {
        let testbed = Testbed::get();
        let own = Self { dir: testbed.scratch(test)? };
        let dir = own.dir.display();
        let (program, shim) = match kind {
            Kind::One => {
                let program = testbed.tool("containerd")?;
                (program.to_owned(), program.with_file_name("containerd-shim-runc-v2"))
            }
            Kind::Two { .. } => {
                (testbed.tool("containerd2")?.into(), testbed.tool("containerd2-shim")?.into())
            }
        };
        std::fs::create_dir(own.dir.join("bin"))?;
        std::os::unix::fs::symlink(program, own.dir.join("bin/containerd"))?;
        std::os::unix::fs::symlink(shim, own.shim())?;
        std::fs::write(own.config(), own.text(kind)?)?;
        if let Kind::Two { version } = kind {
            std::fs::create_dir(own.dir.join("conf.d"))?;
            let foreign = format!("# of somebody else\nversion = {version}\noom_score = 0\n");
            std::fs::write(own.dir.join("conf.d/10-foreign.toml"), foreign)?;
        }
        // What supervises it: ends the old one, and starts a new one unless the configuration names a shim
        // that stands for everything a daemon may not survive.
        std::fs::write(
            own.restart(),
            format!(
                "[ -f {dir}/pid ] && kill $(cat {dir}/pid) && while kill -0 $(cat {dir}/pid) 2>/dev/null; do sleep 0.05; done\n\
                 rm -f {dir}/pid\n\
                 cat {dir}/config.toml {dir}/conf.d/* 2>/dev/null | grep -q deadly && exit $(cat {dir}/deadly-exit)\n\
                 PATH={dir}/bin:$PATH setsid {dir}/bin/containerd --config {dir}/config.toml > {dir}/log 2>&1 &\n\
                 echo $! > {dir}/pid\n"
            ),
        )?;
        let started = run(Command::new("sh").arg(own.restart()))?;
        ensure!(started.code == Some(0), "{started}");
        wait_for("containerd's answer", Duration::from_secs(30), || own.cri()?.handlers())?;
        Ok(own)
    }

    fn text(&self, kind: Kind) -> Result<String> {
        let testbed = Testbed::get();
        let (dir, pause) = (self.dir.display(), testbed.image("pause")?);
        let hosts = testbed.registry_hosts.display();
        let opt = format!("[plugins.\"io.containerd.internal.v1.opt\"]\npath = \"{dir}/optpath\"");
        Ok(match kind {
            // No newline at its end: that, too, has to be as it was.
            Kind::One => format!(
                "version = 2\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\n\n[grpc]\naddress = \"{dir}/c.sock\"\n\n{opt}\n\n\
                 [plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"{pause}\"\nrestrict_oom_score_adj = true\n\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".registry]\nconfig_path = \"{hosts}\"\n\n\
                 [plugins.\"io.containerd.grpc.v1.cri\".cni]\nconf_dir = \"{dir}/cni\""
            ),
            Kind::Two { version } => {
                let server = "[plugins.\"io.containerd.server.v1";
                let (grpc, ttrpc) = match version {
                    3 => ("[grpc]".to_owned(), "[ttrpc]".to_owned()),
                    _ => (format!("{server}.grpc\"]"), format!("{server}.ttrpc\"]")),
                };
                format!(
                    "version = {version}\nroot = \"{dir}/root\"\nstate = \"{dir}/state\"\nimports = [\"{dir}/conf.d/*.toml\"]\n\n\
                     {grpc}\naddress = \"{dir}/c.sock\"\n\n{ttrpc}\naddress = \"{dir}/t.sock\"\n\n{opt}\n\n\
                     [plugins.\"io.containerd.cri.v1.runtime\"]\nrestrict_oom_score_adj = true\n\n\
                     [plugins.\"io.containerd.cri.v1.runtime\".cni]\nconf_dir = \"{dir}/cni\"\n\n\
                     [plugins.\"io.containerd.cri.v1.images\".pinned_images]\nsandbox = \"{pause}\"\n\n\
                     [plugins.\"io.containerd.cri.v1.images\".registry]\nconfig_path = \"{hosts}\"\n\n\
                     [plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true"
                )
            }
        })
    }

    fn config(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    fn restart(&self) -> PathBuf {
        self.dir.join("restart.sh")
    }

    /// The real shim of runc.
    fn shim(&self) -> PathBuf {
        self.dir.join("bin/containerd-shim-runc-v2")
    }

    fn cri(&self) -> Result<Cri> {
        Cri::at(&self.dir.join("c.sock"))
    }

    /// An archive with the real shim of runc under another name.
    fn archive(&self, name: &str) -> Result<Vec<u8>> {
        shim_archive(name, &std::fs::read(self.shim())?)
    }

    fn node(&self, command: &str, name: &str, more: &[&str]) -> Result<Output> {
        let mut portolan = portolan();
        portolan.args(["node", command, "--host-root", "/", "--name", name, "-o", "json"]);
        portolan.arg("--install-dir").arg(self.dir.join("shims"));
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

    /// The configuration, and what else is beside it, but for what containerd itself writes.
    fn files(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let mut files = BTreeMap::new();
        for dir in [self.dir.clone(), self.dir.join("conf.d")] {
            for entry in std::fs::read_dir(dir).into_iter().flatten() {
                let path = entry?.path();
                let own = ["log", "pid"].iter().any(|own| path.ends_with(own));
                let bytes = if path.is_file() && !own { std::fs::read(&path)? } else { Vec::new() };
                files.insert(path, bytes);
            }
        }
        Ok(files)
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Ok(pid) = std::fs::read_to_string(self.dir.join("pid")) {
            let _ = Command::new("kill").arg(pid.trim()).status();
        }
    }
}

fn serve(bytes: Vec<u8>) -> Result<String> {
    Ok(FileServer::start(Ipv4Addr::LOCALHOST.into())?.put("shim.tar.gz", bytes))
}

fn report(output: &Output) -> Result<Value> {
    serde_json::from_str(&output.stdout).with_context(|| output.to_string())
}

/// Installed, asked, run by, looked at, and taken off again.
fn comes_and_goes(kind: Kind, test: &str) -> Result<()> {
    let containerd = Containerd::start(kind, test)?;
    let (before, shims) = (containerd.files()?, containerd.dir.join("shims"));
    let url = serve(containerd.archive("containerd-shim-renamed-v2")?)?;

    let installed = containerd.install("renamed-v2", &url, &[])?;
    assert_eq!(installed.code, Some(0), "{installed}");
    let told = report(&installed)?;
    assert_eq!((&told["changed"], &told["restarted"]), (&true.into(), &true.into()), "{told}");
    assert!(
        told["runtimeVersion"].as_str().unwrap_or_default().starts_with("containerd"),
        "{told}"
    );
    let changed: Vec<PathBuf> = {
        let after = containerd.files()?;
        after.into_iter().filter(|(path, b)| before.get(path) != Some(b)).map(|(p, _)| p).collect()
    };
    let expected = match kind {
        Kind::One => containerd.config(),
        Kind::Two { .. } => containerd.dir.join("conf.d/portolan-renamed-v2.toml"),
    };
    assert_eq!(changed, [expected, shims.clone()], "what is changed, and nothing else");
    let verified = containerd.node("verify", "renamed-v2", &[])?;
    assert_eq!(verified.code, Some(0), "{verified}");

    // The runtime itself says it, and does it.
    let cri = containerd.cri()?;
    ensure!(cri.handlers()?.contains("renamed-v2"), "{:?}", cri.handlers()?);
    let pod = cri.run("renamed-v2", "echo runs here; exec sleep 600")?;
    pod.says("runs here")?;
    let running = programs_below(&shims);
    ensure!(running.len() == 1, "the container is of another shim: {running:?}");
    pod.remove()?;

    // The same again: no restart, and the runtime is asked all the same.
    let again = report(&containerd.install("renamed-v2", &url, &[])?)?;
    assert_eq!((&again["changed"], &again["restarted"]), (&false.into(), &false.into()), "{again}");
    // Options that are others are read at once.
    let options = containerd.install("renamed-v2", &url, &["--option", "SystemdCgroup=false"])?;
    assert_eq!(report(&options)?["restarted"], true, "{options}");

    let removed = containerd.node("uninstall", "renamed-v2", &[])?;
    assert_eq!(removed.code, Some(0), "{removed}");
    assert_eq!(containerd.files()?, before);
    ensure!(!containerd.cri()?.handlers()?.contains("renamed-v2"), "it is still known");
    let verified = containerd.node("verify", "renamed-v2", &[])?;
    assert_eq!(verified.code, Some(1), "{verified}");
    Ok(())
}

/// It does not come back with the new configuration, so it has the old one.
fn is_rolled_back(kind: Kind, test: &str) -> Result<()> {
    let containerd = Containerd::start(kind, test)?;
    let before = containerd.files()?;
    let url = serve(containerd.archive("containerd-shim-deadly")?)?;
    // A supervisor that says nothing of it, and one that says so.
    for code in ["0", "1"] {
        std::fs::write(containerd.dir.join("deadly-exit"), code)?;
        let outcome = containerd.install("deadly", &url, &["--ready-timeout", "3"])?;
        assert_eq!(outcome.code, Some(1), "{outcome}");
        let told = report(&outcome)?;
        assert_eq!(told["reason"], "RolledBack", "{told}");
        std::fs::remove_file(containerd.dir.join("deadly-exit"))?;
        assert_eq!(containerd.files()?, before, "all is as before");
    }
    // And it runs.
    let url = serve(containerd.archive("containerd-shim-fine")?)?;
    let fine = containerd.install("fine", &url, &[])?;
    assert_eq!(fine.code, Some(0), "{fine}");
    Ok(())
}

#[test]
fn a_real_containerd_is_given_a_shim_and_loses_it_again() -> Result<()> {
    comes_and_goes(Kind::One, "shim-node-1")
}

#[test]
fn a_containerd_that_does_not_come_back_is_rolled_back() -> Result<()> {
    is_rolled_back(Kind::One, "shim-node-1-back")
}

#[test]
fn containerd_2_is_given_a_shim_by_a_dropin_and_loses_it_again() -> Result<()> {
    comes_and_goes(Kind::Two { version: 3 }, "shim-node-3")?;
    comes_and_goes(Kind::Two { version: 4 }, "shim-node-4")
}

#[test]
fn a_containerd_2_that_does_not_come_back_is_rolled_back() -> Result<()> {
    is_rolled_back(Kind::Two { version: 3 }, "shim-node-3-back")
}
