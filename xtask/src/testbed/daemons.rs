//! The processes of the cluster, in the order they start, with their arguments.

use std::collections::BTreeMap;

use anyhow::Result;

use super::credentials::{Files, kubeconfig_path};
use super::process::Daemon;
use super::state::State;

/// Nothing of the caller's environment but this reaches a daemon: a proxy setting, say, would send
/// requests for the bridge's address elsewhere.
pub(super) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

pub(crate) fn etcd(state: &State) -> Result<Daemon> {
    let client = format!("http://127.0.0.1:{}", state.ports.etcd);
    let peer = format!("http://127.0.0.1:{}", state.ports.etcd_peer);
    daemon(
        state,
        "etcd",
        "etcd",
        vec![
            format!("--data-dir={}", state.run_dir.join("etcd").display()),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            // The data live as long as the test run; a power cut may have them.
            "--unsafe-no-fsync".into(),
            "--log-level=warn".into(),
        ],
    )
}

/// `which` is `loopback` or `cluster`.
pub(crate) fn registry(state: &State, which: &'static str) -> Result<Daemon> {
    let config = state.run_dir.join(format!("registry-{which}.yaml"));
    let name = if which == "cluster" { "registry-cluster" } else { "registry-loopback" };
    daemon(state, name, "docker-registry", vec!["serve".into(), config.display().to_string()])
}

pub(crate) fn apiserver(state: &State) -> Result<Daemon> {
    let pki = Files::of(state);
    let file = |flag: &str, name: &str| format!("--{flag}={}", pki.path(name));
    daemon(
        state,
        "kube-apiserver",
        "kube-apiserver",
        vec![
            format!("--etcd-servers=http://127.0.0.1:{}", state.ports.etcd),
            format!("--bind-address={}", state.api_address),
            format!("--advertise-address={}", state.api_address),
            "--secure-port=443".into(),
            format!("--cert-dir={}", pki.dir.display()),
            file("tls-cert-file", "apiserver.crt"),
            file("tls-private-key-file", "apiserver.key"),
            file("client-ca-file", "ca.crt"),
            file("token-auth-file", "tokens.csv"),
            "--authorization-mode=Node,RBAC".into(),
            "--enable-admission-plugins=NodeRestriction".into(),
            format!("--service-cluster-ip-range={}", state.service_subnet),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            file("service-account-key-file", "service-account.pub"),
            file("service-account-signing-key-file", "service-account.key"),
            file("kubelet-client-certificate", "kubelet-client.crt"),
            file("kubelet-client-key", "kubelet-client.key"),
            // The node's name is in no name service.
            "--kubelet-preferred-address-types=InternalIP".into(),
            "--allow-privileged=true".into(),
            "--endpoint-reconciler-type=none".into(),
            // Webhooks are called at the addresses of their pods, as there is no kube-proxy.
            "--enable-aggregator-routing=true".into(),
        ],
    )
}

pub(crate) fn controller_manager(state: &State) -> Result<Daemon> {
    let pki = Files::of(state);
    let config = kubeconfig_path(state, "controller-manager");
    daemon(
        state,
        "kube-controller-manager",
        "kube-controller-manager",
        vec![
            format!("--kubeconfig={}", config.display()),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", state.ports.controller_manager),
            format!("--cert-dir={}", state.run_dir.join("controller-manager").display()),
            "--leader-elect=false".into(),
            // Each controller with its own account, as in any cluster: the one above may do little.
            "--use-service-account-credentials=true".into(),
            format!("--service-account-private-key-file={}", pki.path("service-account.key")),
            format!("--root-ca-file={}", pki.path("ca.crt")),
        ],
    )
}

pub(crate) fn scheduler(state: &State) -> Result<Daemon> {
    let config = kubeconfig_path(state, "scheduler");
    daemon(
        state,
        "kube-scheduler",
        "kube-scheduler",
        vec![
            format!("--kubeconfig={}", config.display()),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", state.ports.scheduler),
            "--leader-elect=false".into(),
        ],
    )
}

pub(crate) fn kubelet(state: &State) -> Result<Daemon> {
    let at = |name: &str| state.run_dir.join(name).display().to_string();
    daemon(
        state,
        "kubelet",
        "kubelet",
        vec![
            format!("--config={}", at("kubelet.yaml")),
            format!("--kubeconfig={}", kubeconfig_path(state, "kubelet").display()),
            format!("--hostname-override={}", state.node),
            format!("--node-ip={}", state.bridge_address),
            format!("--root-dir={}", at("kubelet")),
            format!("--cert-dir={}", at("kubelet/pki")),
        ],
    )
}

pub(super) fn daemon(
    state: &State,
    name: &'static str,
    tool: &str,
    args: Vec<String>,
) -> Result<Daemon> {
    let env =
        BTreeMap::from([("PATH", PATH.to_owned()), ("HOME", state.run_dir.display().to_string())]);
    Ok(Daemon { name, program: state.tool(tool)?.to_owned(), args, env })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::sample;

    #[test]
    fn the_api_server_is_where_pods_look_for_it() {
        let args = apiserver(&sample::state()).unwrap().args;
        for wanted in [
            "--bind-address=10.213.1.1",
            "--secure-port=443",
            "--service-cluster-ip-range=10.213.1.0/24",
        ] {
            assert!(args.iter().any(|arg| arg == wanted), "{wanted} is not in {args:?}");
        }
    }

    #[test]
    fn a_missing_part_is_named_with_the_command_that_makes_it() {
        let mut state = sample::state();
        state.tools.remove("etcd");
        let error = etcd(&state).unwrap_err().to_string();
        assert!(error.contains("cargo xtask testbed build etcd"), "{error}");
    }
}
