//! A state for tests of pure functions; nothing in it exists.

use std::path::{Path, PathBuf};

use super::build::Toolbox;
use super::net::choose_block;
use super::state::{Ports, State};

pub(crate) fn state() -> State {
    let tools = Toolbox::from([
        ("cni-bridge", PathBuf::from("/usr/lib/cni/bridge")),
        ("etcd", PathBuf::from("/usr/bin/etcd")),
        ("kube-apiserver", PathBuf::from("/cache/kube-apiserver")),
        ("pause-image", PathBuf::from("/cache/pause-image")),
        ("runc", PathBuf::from("/usr/sbin/runc")),
    ]);
    let ports = Ports {
        etcd: 2379,
        etcd_peer: 2380,
        registry: 5000,
        controller_manager: 10257,
        scheduler: 10259,
        kubelet: 10250,
        kubelet_health: 10248,
        containerd_stream: 10010,
    };
    let block = choose_block(&[]).expect("with no routes every block is free");
    State::new(Path::new("/run-dir"), block, ports, &tools)
}
