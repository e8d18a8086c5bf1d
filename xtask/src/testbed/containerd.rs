//! The node's containerd: which one, how it is configured, and who starts it again.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use super::build::Toolbox;
use super::daemons::{PATH, daemon};
use super::process::Daemon;
use super::state::State;

/// The row of containerd 2, and that of its shim.
const NEXT: [&str; 2] = ["containerd2", "containerd2-shim"];
const SHIM: &str = "containerd-shim-runc-v2";

/// Which one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Runtime {
    /// That of the distribution, configured in version 2
    #[default]
    #[value(name = "1")]
    One,
    /// The next one, configured in version 3, with a directory of drop-ins
    #[value(name = "2")]
    Two,
}

impl Runtime {
    /// Makes it what the part `containerd` stands for.
    pub(crate) fn choose(self, tools: &mut Toolbox) -> Result<()> {
        if self == Self::Two {
            let next = tools.get(NEXT[0]).cloned();
            tools.insert("containerd", next.with_context(|| format!("no part {}", NEXT[0]))?);
        }
        Ok(())
    }

    fn of(state: &State) -> Self {
        let [chosen, next] = ["containerd", NEXT[0]].map(|name| state.tools.get(name));
        if chosen.is_some() && chosen == next { Self::Two } else { Self::One }
    }
}

/// Both programs under the names that they are known by, in a folder of their own: containerd looks for its shim in
/// PATH first, and another version's may be there.
pub(crate) fn links(state: &State) -> Result<[(PathBuf, PathBuf); 2]> {
    let program = state.tool("containerd")?.to_owned();
    let shim = match Runtime::of(state) {
        Runtime::One => program.with_file_name(SHIM),
        Runtime::Two => state.tool(NEXT[1])?.to_owned(),
    };
    Ok([(state.containerd.clone(), program), (state.containerd.with_file_name(SHIM), shim)])
}

/// It ends when a shim's installer wants it to read its configuration, and whoever runs a node without a service
/// manager has something like this to start it again. One that ends at once and again is not helped by it.
const SUPERVISOR: &str = r#"
child=
trap '[ -z "$child" ] || kill "$child"; wait; exit 0' TERM
quick=0
while [ "$quick" -lt 5 ]; do
  began=$(date +%s)
  "$@" &
  child=$!
  wait "$child"
  echo "supervisor: $1 ended with $?" >&2
  child=
  if [ $(($(date +%s) - began)) -lt 2 ]; then quick=$((quick + 1)); else quick=0; fi
  sleep 0.2
done
exit 1
"#;

pub(crate) fn supervised(state: &State) -> Result<Daemon> {
    let mut daemon = daemon(state, "containerd", "containerd", Vec::new())?;
    let config = state.run_dir.join("containerd.toml");
    let words = [&state.containerd, &PathBuf::from("--config"), &config];
    let words = words.map(|word| word.display().to_string());
    daemon.program = "/bin/sh".into();
    daemon.args = vec!["-c".into(), SUPERVISOR.into(), "supervisor".into()];
    daemon.args.extend(words);
    let bin = state.containerd.parent().context("it is in a folder")?;
    daemon.env.insert("PATH", format!("{}:{PATH}", bin.display()));
    Ok(daemon)
}

/// What both versions are told alike, and in which tables: of runtimes, of images, of streams.
///
/// `restrict_oom_score_adj`: without CAP_SYS_RESOURCE no process may ask for a better score than its parent's,
/// and every sandbox would fail with "can't get final child's PID from pipe". `netns_mounts_under_state_dir` and
/// Root: so that all a pod leaves behind is in one folder.
pub(crate) fn config(state: &State) -> String {
    let dir = state.run_dir.display();
    let pause = state.images.get("pause-image").map_or("", String::as_str);
    let runc = state.tools.get("runc").map_or_else(String::new, |p| p.display().to_string());
    let bin = state.tools.get("cni-bridge").and_then(|p| p.parent());
    let bin = bin.map_or_else(String::new, |p| p.display().to_string());
    let (socket, hosts) = (state.containerd_socket.display(), state.registry_hosts.display());
    let stream = state.ports.containerd_stream;
    let streams =
        format!("stream_server_address = \"127.0.0.1\"\nstream_server_port = \"{stream}\"");
    let cri = "io.containerd.grpc.v1.cri";
    let (head, runtimes, bins, images) = match Runtime::of(state) {
        Runtime::One => (
            "version = 2".to_owned(),
            cri,
            format!("bin_dir = \"{bin}\""),
            format!("[plugins.\"{cri}\".registry]\nconfig_path = \"{hosts}\""),
        ),
        Runtime::Two => (
            format!("version = 3\nimports = [\"{dir}/containerd.d/*.toml\"]"),
            "io.containerd.cri.v1.runtime",
            format!("bin_dirs = [\"{bin}\"]"),
            format!(
                "[plugins.\"io.containerd.cri.v1.images\".pinned_images]\nsandbox = \"{pause}\"\n\n\
                 [plugins.\"io.containerd.cri.v1.images\".registry]\nconfig_path = \"{hosts}\"\n\n\
                 [plugins.\"{cri}\"]\n{streams}\n\n\
                 [plugins.\"io.containerd.nri.v1.nri\"]\ndisable = true"
            ),
        ),
    };
    let more = match Runtime::of(state) {
        Runtime::One => format!("\nsandbox_image = \"{pause}\"\n{streams}"),
        Runtime::Two => String::new(),
    };
    format!(
        r#"{head}
root = "{dir}/containerd/root"
state = "{dir}/containerd/state"
disabled_plugins = [
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]

[grpc]
address = "{socket}"

[plugins."io.containerd.internal.v1.opt"]
path = "{dir}/containerd/opt"

[plugins."{runtimes}"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true{more}

[plugins."{runtimes}".containerd]
default_runtime_name = "runc"

[plugins."{runtimes}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."{runtimes}".containerd.runtimes.runc.options]
BinaryName = "{runc}"
Root = "{dir}/runc"
SystemdCgroup = false

[plugins."{runtimes}".cni]
{bins}
conf_dir = "{dir}/cni/conf"

{images}
"#
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::testbed::process::{Identity, start, stop, tail};
    use crate::testbed::sample;

    fn two() -> State {
        let mut state = sample::state();
        for (name, path) in [("containerd2", "/c/2/containerd2"), ("containerd2-shim", "/c/3/s")] {
            state.tools.insert(name.into(), path.into());
        }
        state.tools.insert("containerd".into(), "/c/2/containerd2".into());
        state
    }

    #[test]
    fn containerd_keeps_everything_in_the_run_folder() {
        for (state, more) in [
            (
                sample::state(),
                ["version = 2", "sandbox_image = \"10.213.0.1:5000/testbed/pause:1\""],
            ),
            (two(), ["version = 3", "imports = [\"/run-dir/containerd.d/*.toml\"]"]),
        ] {
            let text = config(&state);
            let common = [
                "root = \"/run-dir/containerd/root\"",
                "Root = \"/run-dir/runc\"",
                "restrict_oom_score_adj = true",
            ];
            for line in common.into_iter().chain(more) {
                assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
            }
        }
        assert!(config(&sample::state()).contains("bin_dir = \"/usr/lib/cni\""));
    }

    #[test]
    fn each_containerd_has_its_own_shim() {
        let mut one = two();
        one.tools.insert("containerd".into(), "/usr/bin/containerd".into());
        for (state, shim) in [(one, "/usr/bin/containerd-shim-runc-v2"), (two(), "/c/3/s")] {
            let [_, (link, target)] = links(&state).unwrap();
            assert_eq!(link, PathBuf::from("/run-dir/bin/containerd-shim-runc-v2"));
            assert_eq!(target, PathBuf::from(shim));
        }
    }

    /// One that ends is started again; who ends the supervisor ends it too.
    #[test]
    fn who_ends_is_started_again_until_the_supervisor_ends() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let supervisor = Daemon {
            name: "supervisor",
            program: "/bin/sh".into(),
            args: ["-c", SUPERVISOR, "supervisor", "sh", "-c", "echo pid $$; exec sleep 300"]
                .map(str::to_owned)
                .to_vec(),
            env: [("PATH", PATH.to_owned())].into(),
        };
        let identity = start(&supervisor, dir.path(), &log).unwrap();
        let child = |but: Option<Identity>| {
            let end = std::time::Instant::now() + Duration::from_secs(20);
            loop {
                let text = tail(&log, 100);
                let last = text.lines().rev().find_map(|line| line.strip_prefix("pid "));
                let found = last.and_then(|pid| Identity::of(pid.parse().ok()?));
                match found.filter(|found| Some(*found) != but) {
                    Some(found) => return found,
                    None => assert!(std::time::Instant::now() < end, "{text}"),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let first = child(None);
        stop(&[first], Duration::from_secs(5));
        let second = child(Some(first));
        assert!(identity.is_alive());
        stop(&[identity], Duration::from_secs(5));
        assert!(!second.is_alive() && !identity.is_alive());
    }
}
