//! Kinds of nodes, as data.

mod daemon;
mod detect;

pub use daemon::{Daemon, daemons};
pub use detect::{DetectError, Overrides, Site, detect};
pub(crate) use detect::{running_all, running_for};

use super::config::Layout;

/// A kind of node.
#[derive(Debug)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What is there on such a node and on no other.
    pub marker: &'static str,
    /// The configuration that is edited, or rendered.
    pub config: &'static str,
    /// How it is kept.
    pub layout: Layout,
    /// Configurations that a running daemon of this kind was started with: the beginning of their path.
    pub daemon_config: &'static str,
    /// Where the runtime answers.
    pub socket: &'static str,
    /// Services that start the runtime, the whole of their names; `*` stands for anything but a dot.
    pub units: &'static [&'static str],
    /// Where the runtime's program is.
    pub programs: &'static [&'static str],
}

const USUAL: Preset = Preset {
    name: "default",
    marker: "/etc/containerd/config.toml",
    config: "/etc/containerd/config.toml",
    layout: Layout::File,
    daemon_config: "/etc/containerd/",
    socket: "/run/containerd/containerd.sock",
    units: &["containerd.service"],
    programs: &["/usr/bin/containerd", "/usr/local/bin/containerd", "/opt/bin/containerd"],
};

/// All of them, in the order in which their markers are looked for: what is special comes first.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "microk8s",
        marker: "/var/snap/microk8s/current/args/containerd-template.toml",
        config: "/var/snap/microk8s/current/args/containerd-template.toml",
        daemon_config: "/var/snap/microk8s/",
        socket: "/var/snap/microk8s/common/run/containerd.sock",
        units: &["snap.microk8s.daemon-containerd.service"],
        programs: &["/snap/microk8s/current/bin/containerd"],
        ..USUAL
    },
    Preset {
        name: "rke2",
        marker: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        config: "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
        layout: Layout::Rendered,
        daemon_config: "/var/lib/rancher/rke2/",
        socket: "/run/k3s/containerd/containerd.sock",
        units: &["rke2-server.service", "rke2-agent.service"],
        programs: &["/var/lib/rancher/rke2/bin/containerd"],
    },
    Preset {
        name: "k3s",
        marker: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        config: "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
        layout: Layout::Rendered,
        daemon_config: "/var/lib/rancher/k3s/",
        socket: "/run/k3s/containerd/containerd.sock",
        units: &["k3s.service", "k3s-agent.service", "k3s-*.service"],
        programs: &["/var/lib/rancher/k3s/data/current/bin/containerd"],
    },
    Preset {
        name: "k0s",
        marker: "/etc/k0s/containerd.toml",
        config: "/etc/k0s/containerd.toml",
        layout: Layout::Merged("/etc/k0s/containerd.d"),
        daemon_config: "/etc/k0s/",
        socket: "/run/k0s/containerd.sock",
        units: &["k0sworker.service", "k0scontroller.service"],
        programs: &["/var/lib/k0s/bin/containerd"],
    },
    Preset { name: "kind", marker: "/kind/version", ..USUAL },
    Preset { name: "minikube", marker: "/var/lib/minikube/kubeconfig", ..USUAL },
    USUAL,
];

/// The preset of that name; `kubeadm` and `custom` are the usual one.
#[must_use]
pub fn named(name: &str) -> Option<&'static Preset> {
    let name = if matches!(name, "kubeadm" | "custom") { "default" } else { name };
    PRESETS.iter().find(|preset| preset.name == name)
}
