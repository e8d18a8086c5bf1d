//! Nodes and Shims, as a cluster of several kinds of machine has them.

use anyhow::Result;
use serde_json::{Value, json};

use super::client::Connection;
use super::plane::Plane;

pub(super) const NAMESPACE: &str = "shims";
/// Where the bare client makes the same Jobs.
pub(super) const BARE: &str = "bare";
pub(super) const SHIMS: [&str; 3] = ["spin-v2", "slight-v1", "wasmtime-v1"];
const NODES: &str = "/api/v1/nodes";
/// How many make nodes at once.
const MAKERS: usize = 8;
/// A time is needed where nobody looks at it.
pub(super) const TIME: &str = "2026-01-01T00:00:00Z";

pub(super) fn jobs(namespace: &str) -> String {
    format!("/apis/batch/v1/namespaces/{namespace}/jobs")
}

/// Of a hundred nodes one is of a kind that no Shim is for.
pub(super) fn is_supported(number: usize) -> bool {
    number % 100 != 99
}

fn arch(number: usize) -> &'static str {
    match number {
        _ if !is_supported(number) => "riscv64",
        _ if number.is_multiple_of(2) => "amd64",
        _ => "arm64",
    }
}

pub(super) fn node_name(number: usize) -> String {
    format!("ip-10-{}-{}.eu-central-1.compute.internal", number / 250, number % 250)
}

/// A node as its kubelet registers it.
fn node(number: usize) -> Value {
    let (name, arch) = (node_name(number), arch(number));
    let condition = |kind: &str, status: &str, reason: &str| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": "as the kubelet says it",
            "lastHeartbeatTime": TIME, "lastTransitionTime": TIME,
        })
    };
    let resources =
        json!({"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "200Gi"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {
                "shims": "yes", "kubernetes.io/arch": arch, "kubernetes.io/os": "linux",
                "kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": "m6.4xlarge",
                "topology.kubernetes.io/region": "eu-central-1",
                "topology.kubernetes.io/zone": format!("eu-central-1{}", ["a", "b", "c"][number % 3]),
            },
            "annotations": {"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
        },
        "spec": {"providerID": format!("cloud:///{number}")},
        "status": {
            "nodeInfo": {
                "operatingSystem": "linux", "architecture": arch, "bootID": format!("boot-{number}"),
                "containerRuntimeVersion": "containerd://1.7.27", "kernelVersion": "6.1.0",
                "kubeProxyVersion": "", "kubeletVersion": "v1.36.3", "machineID": format!("{number:032x}"),
                "osImage": "Debian GNU/Linux 12", "systemUUID": format!("{number:032x}"),
            },
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
                condition("Ready", "True", "KubeletReady"),
            ],
            "addresses": [{"type": "Hostname", "address": name}],
            "capacity": resources, "allocatable": resources,
        },
    })
}

pub(super) fn shim(name: &str) -> Value {
    let artifact = |arch: &str| {
        json!({
            "os": "linux", "arch": arch, "sha256": "a1".repeat(32),
            "location": format!("https://github.com/spinframework/{name}/releases/download/v0.22.0/{name}-linux-{arch}.tar.gz"),
        })
    };
    json!({
        "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"shims": "yes"},
            "fetchStrategy": {"platforms": [artifact("x86_64"), artifact("aarch64")]},
            "runtimeClass": {"name": format!("wasmtime-{name}"), "handler": name},
            "rolloutStrategy": {"type": "recreate"},
        },
    })
}

/// Namespaces and nodes.
pub(super) fn populate(plane: &Plane, nodes: usize) -> Result<()> {
    let mut connection = plane.connect()?;
    for name in [NAMESPACE, BARE] {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        connection.post("/api/v1/namespaces", &object)?;
    }
    in_parallel(plane, MAKERS, nodes, |connection, number| {
        connection.post(NODES, &node(number)).map(drop)
    })
}

pub(super) fn create_shims(plane: &Plane) -> Result<()> {
    let mut connection = plane.connect()?;
    SHIMS.iter().try_for_each(|name| {
        connection.post("/apis/runtime.spinkube.dev/v1alpha1/shims", &shim(name)).map(drop)
    })
}

/// Does something for each number below `count`, in order, on so many connections.
pub(super) fn in_parallel(
    plane: &Plane,
    connections: usize,
    count: usize,
    act: impl Fn(&mut Connection, usize) -> Result<()> + Sync,
) -> Result<()> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let one = || -> Result<()> {
        let mut connection = plane.connect()?;
        loop {
            let number = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            act(&mut connection, number)?;
        }
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = (0..connections).map(|_| scope.spawn(one)).collect();
        all.into_iter().try_for_each(|one| one.join().expect("it does not panic"))
    })
}
