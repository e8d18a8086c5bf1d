//! The container runtime of a node, where this is one.

use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;

use portolan_shim::node::preset::PRESETS;

use super::super::finding::{Finding, missing, ok, wrong};

/// A kind of node that this machine looks like.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct Facts {
    /// Its name and the socket that it should have.
    pub(super) kind: Option<(&'static str, &'static str)>,
    pub(super) program: bool,
    pub(super) socket: bool,
}

pub(in super::super) fn gather(root: &Path) -> Facts {
    let there = |path: &str| root.join(path.trim_start_matches('/')).exists();
    // What is special says so by its marker; programs are shared, so of these the usual kind counts.
    let marked = PRESETS.iter().find(|preset| there(preset.marker));
    let installed = || {
        let mut usual_first = PRESETS.iter().rev();
        usual_first.find(|preset| preset.programs.iter().any(|program| there(program)))
    };
    let found = marked.or_else(installed);
    let socket = found.is_some_and(|preset| {
        let path = root.join(preset.socket.trim_start_matches('/'));
        std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
    });
    Facts {
        kind: found.map(|preset| (preset.name, preset.socket)),
        program: found.is_some_and(|preset| preset.programs.iter().any(|program| there(program))),
        socket,
    }
}

pub(in super::super) fn check(facts: &Facts) -> Finding {
    const CHECK: &str = "containerd";
    match (facts.kind, facts.program, facts.socket) {
        (None, ..) => missing(CHECK, "there is none", "only nodes of a cluster need it"),
        (Some((kind, socket)), _, true) => ok(CHECK, format!("{kind}: {socket}")),
        (Some((kind, socket)), true, false) => missing(
            CHECK,
            format!("{kind}: it is installed, and nobody listens on {socket}"),
            "start it, if this is a node",
        ),
        (Some((kind, _)), false, false) => wrong(
            CHECK,
            format!("{kind}: there is a configuration, and neither a program nor a socket"),
            "portolan node install names the files that it looks for (docs/node-install.md)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn a_runtime_that_is_installed_and_does_not_run_is_told() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str| {
            let file = root.path().join(path);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            file
        };
        assert_eq!(check(&gather(root.path())).state, State::Missing);
        std::fs::write(put("etc/containerd/config.toml"), "").unwrap();
        assert_eq!(check(&gather(root.path())).state, State::Wrong);
        std::fs::write(put("usr/bin/containerd"), "").unwrap();
        assert_eq!(check(&gather(root.path())).state, State::Missing);
        let _listener =
            std::os::unix::net::UnixListener::bind(put("run/containerd/containerd.sock")).unwrap();
        assert_eq!(check(&gather(root.path())).state, State::Ok);
    }
}
