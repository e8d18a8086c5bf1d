//! The configuration files of the node, as text: nothing here touches the machine.

use std::path::PathBuf;

use serde_json::json;

use super::containerd;
use super::credentials::Files;
use super::state::{BRIDGE, State};

/// Name of the CNI network; libcni keeps files by it in `/var/lib/cni`.
pub(crate) const CNI_NETWORK: &str = "portolan-testbed";

/// Every file, with its path.
pub(crate) fn render(state: &State) -> Vec<(PathBuf, String)> {
    let at = |name: &str| state.run_dir.join(name);
    let cluster = &state.registry.cluster;
    vec![
        (at("registry-loopback.yaml"), registry(state, &state.registry.loopback)),
        (at("registry-cluster.yaml"), registry(state, cluster)),
        (at("containerd.toml"), containerd::config(state)),
        (state.registry_hosts.join(cluster).join("hosts.toml"), hosts(cluster)),
        (at("cni/conf/10-portolan.conflist"), cni(state)),
        (at("kubelet.yaml"), kubelet(state)),
        (at("resolv.conf"), "# Pods of the testbed resolve no names.\n".to_owned()),
    ]
}

fn registry(state: &State, address: &str) -> String {
    format!(
        r#"version: 0.1
log:
  level: warn
storage:
  filesystem:
    rootdirectory: "{}"
  delete:
    enabled: true
http:
  addr: "{address}"
"#,
        state.run_dir.join("registry").display()
    )
}

/// How containerd reaches a registry that speaks plain HTTP.
fn hosts(address: &str) -> String {
    format!(
        "server = \"http://{address}\"\n\n[host.\"http://{address}\"]\n\
         capabilities = [\"pull\", \"resolve\"]\n"
    )
}

/// A bridge that `up` has made. The plugin is not asked to be the gateway: it would turn on IP
/// forwarding for the whole machine, and pods need to reach only the host.
fn cni(state: &State) -> String {
    let gateway = state.bridge_address;
    let conf = json!({
        "cniVersion": "0.4.0",
        "name": CNI_NETWORK,
        "plugins": [{
            "type": "bridge",
            "bridge": BRIDGE,
            "isGateway": false,
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": state.run_dir.join("cni/addresses"),
                "ranges": [[{ "subnet": state.pod_subnet, "gateway": gateway }]],
                "routes": [{ "dst": "0.0.0.0/0", "gw": gateway }],
            },
        }],
    });
    format!("{conf:#}\n")
}

fn kubelet(state: &State) -> String {
    let dir = &state.run_dir;
    let conf = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": state.bridge_address,
        "port": state.ports.kubelet,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": state.ports.kubelet_health,
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": Files::of(state).path("ca.crt") },
        },
        "authorization": { "mode": "Webhook" },
        "containerRuntimeEndpoint": format!("unix://{}", state.containerd_socket.display()),
        // A machine inside another has no cgroup tree of its own to divide, and may have v1.
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "cgroupsPerQOS": false,
        "enforceNodeAllocatable": [],
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "makeIPTablesUtilChains": false,
        // A developer's disk may be nearly full; the cluster's few megabytes are not the cause.
        "evictionHard": { "memory.available": "64Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": false,
        // How soon a pod sees that a Secret it has mounted was changed, which Gatekeeper waits for.
        "syncFrequency": "5s",
        "resolvConf": dir.join("resolv.conf"),
        "podLogsDir": dir.join("pod-logs"),
        "volumePluginDir": dir.join("kubelet/plugins"),
    });
    format!("{conf:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testbed::sample;

    fn file(name: &str) -> String {
        let files = render(&sample::state());
        let found = files.into_iter().find(|(path, _)| path.ends_with(name));
        found.unwrap_or_else(|| panic!("no {name}")).1
    }

    #[test]
    fn the_bridge_plugin_changes_no_setting_of_the_machine() {
        let conf: serde_json::Value = serde_json::from_str(&file("10-portolan.conflist")).unwrap();
        let plugin = &conf["plugins"][0];
        assert_eq!((&plugin["isGateway"], &plugin["ipMasq"]), (&json!(false), &json!(false)));
        assert_eq!(plugin["ipam"]["routes"][0]["gw"], "10.213.0.1");
    }

    #[test]
    fn the_kubelet_answers_nobody_it_does_not_know() {
        let conf: serde_json::Value = serde_json::from_str(&file("kubelet.yaml")).unwrap();
        assert_eq!(conf["authentication"]["anonymous"]["enabled"], false);
        assert_eq!(conf["authorization"]["mode"], "Webhook");
    }

    #[test]
    fn plain_http_is_said_for_the_cluster_registry() {
        assert!(
            file("10.213.0.1:5000/hosts.toml").starts_with("server = \"http://10.213.0.1:5000\"")
        );
    }
}
