//! The Job that does something on one node. Pure.

use portolan_api::shim::{GROUP, JOB, NODE_NAME, OPERATION, SHIM_NAME, ShimSpec};
use portolan_shim::resolve::Admitted;
use serde_json::{Value, json};

use super::identity::{Identity, Operation};
use super::outcome::PERMANENT;
use super::settings::Settings;

/// Where the node's root is in a pod.
const HOST_ROOT: &str = "/mnt/node-root";
/// Where a download is handed on.
const ASSETS: &str = "/assets";
/// An install may end its own pod when it starts the runtime again; the next pod goes on where it was.
const RETRIES: i32 = 3;

/// The Job.
pub(crate) fn render(
    identity: &Identity,
    spec: &ShimSpec,
    artifact: Option<&Admitted>,
    settings: &Settings,
) -> Value {
    let operation = identity.operation.as_str();
    let labels = json!({JOB: "true", SHIM_NAME: identity.shim, OPERATION: operation});
    let (key, own) = identity.write();
    let (owner_group, owner_kind, owner_name, controller) = match identity.operation {
        Operation::Uninstall => ("v1".to_owned(), "Node", &identity.node, false),
        _ => (format!("{GROUP}/v1alpha1"), "Shim", &identity.shim, true),
    };
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": identity.job_name(), "namespace": settings.namespace(), "labels": labels,
            "annotations": {
                NODE_NAME: identity.node, SHIM_NAME: identity.shim, OPERATION: operation, key: own,
            },
            "ownerReferences": [{
                "apiVersion": owner_group, "kind": owner_kind, "name": owner_name,
                "uid": identity.owner(), "controller": controller,
            }],
        },
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": settings.deadline_seconds,
            "ttlSecondsAfterFinished": settings.ttl_seconds,
            // Never two pods of one Job on a node.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [
                {"action": "FailJob", "onExitCodes": {"operator": "In", "values": PERMANENT}},
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            ]},
            "template": {
                "metadata": {"labels": labels},
                "spec": pod(identity, spec, artifact, settings),
            },
        },
    })
}

fn pod(
    identity: &Identity,
    spec: &ShimSpec,
    artifact: Option<&Admitted>,
    settings: &Settings,
) -> Value {
    let fetches = artifact.map(|artifact| downloader(identity, artifact, settings));
    let mut pod = json!({
        "nodeName": identity.node,
        "restartPolicy": "Never",
        "hostPID": true,
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        // It is bound to its node already; a taint must not drive it away in the middle.
        "tolerations": [{"operator": "Exists"}],
        "volumes": [{"name": "root-mount", "hostPath": {"path": "/"}}],
        "containers": [provisioner(identity, spec, settings)],
    });
    if let Some(fetches) = fetches {
        pod["initContainers"] = json!([fetches]);
        let volume = json!({"name": "shim-download", "emptyDir": {"sizeLimit": "2Gi"}});
        pod["volumes"].as_array_mut().expect("a list").push(volume);
    }
    pod
}

/// It talks to strangers, so it may do nothing else.
fn downloader(identity: &Identity, artifact: &Admitted, settings: &Settings) -> Value {
    let mut env = vec![
        json!({"name": "SHIM_NAME", "value": identity.shim}),
        json!({"name": "SHIM_LOCATION", "value": literal(&artifact.location)}),
    ];
    env.extend(
        artifact.sha256.iter().map(|digest| json!({"name": "SHIM_SHA256", "value": digest})),
    );
    let mut container = json!({
        "name": "downloader",
        "image": settings.image,
        "args": ["node", "fetch", "--assets", ASSETS],
        "env": env,
        "volumeMounts": [{"name": "shim-download", "mountPath": ASSETS}],
        "resources": resources(),
        "terminationMessagePolicy": "File",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": true,
            "runAsNonRoot": true,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    });
    if let Some(name) = &settings.config_map {
        container["envFrom"] = json!([{"configMapRef": {"name": name, "optional": true}}]);
    }
    container
}

fn provisioner(identity: &Identity, spec: &ShimSpec, settings: &Settings) -> Value {
    let operation = identity.operation;
    let mut args = vec!["node", operation.as_str(), "--host-root", HOST_ROOT];
    args.extend(["--name", &identity.shim]);
    let install_dir = settings.install_dir.as_deref();
    args.extend(install_dir.into_iter().flat_map(|dir| ["--install-dir", dir]));
    let restart = settings.restart_command.as_deref().filter(|_| operation != Operation::Verify);
    args.extend(restart.into_iter().flat_map(|line| ["--restart-command", line]));
    let mut mounts = vec![json!({"name": "root-mount", "mountPath": HOST_ROOT})];
    if operation == Operation::Install {
        args.extend(["--handler", &spec.runtime_class.handler, "--assets", ASSETS]);
        mounts.push(json!({"name": "shim-download", "mountPath": ASSETS}));
    }
    let mut env = vec![json!({"name": "HOST_ROOT", "value": HOST_ROOT})];
    if let Some(options) = &spec.containerd_runtime_options {
        let text = serde_json::to_string(options).expect("texts only");
        env.push(json!({"name": "RUNTIME_OPTIONS", "value": literal(&text)}));
    }
    let args: Vec<_> = args.into_iter().map(literal).collect();
    json!({
        "name": "provisioner",
        "image": settings.image,
        "args": args,
        "env": env,
        "volumeMounts": mounts,
        "resources": resources(),
        "terminationMessagePolicy": "File",
        "securityContext": {"privileged": true, "runAsUser": 0, "runAsGroup": 0},
    })
}

/// A text that arrives as it was written: to a kubelet, `$(NAME)` is a variable of the container, and `$$` is `$`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// Little: a node that is full must still be able to run it.
fn resources() -> Value {
    json!({"requests": {"cpu": "10m", "memory": "32Mi"}})
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::world::{settings, shim};
    use super::*;

    fn provisioner_of(operation: Operation, settings: &Settings) -> Value {
        let mut spec = shim("s", "x", json!({"type": "recreate"})).spec;
        spec.containerd_runtime_options = Some(BTreeMap::from([("a".into(), "\"$$(b)\"".into())]));
        let identity = Identity {
            shim: "s".into(),
            shim_uid: "1".into(),
            node: "n".into(),
            node_uid: "2".into(),
            operation,
            hash: String::new(),
            nonce: 0,
        };
        let location = "https://x.example/$(SHIM_NAME)/$$".to_owned();
        let artifact = Admitted { location, sha256: None, warnings: Vec::new() };
        let artifact = (operation == Operation::Install).then_some(&artifact);
        render(&identity, &spec, artifact, settings)["spec"]["template"]["spec"].take()
    }

    /// A kubelet made another URL of `$(SHIM_NAME)` or `$$` in it, and other options.
    #[test]
    fn what_people_write_arrives_as_it_is() {
        let pod = provisioner_of(Operation::Install, &settings());
        let location = &pod["initContainers"][0]["env"][1];
        assert_eq!(location["value"], "https://x.example/$$(SHIM_NAME)/$$$$");
        let options = &pod["containers"][0]["env"][1];
        assert_eq!(options["value"], "{\"a\":\"\\\"$$$$(b)\\\"\"}");
    }

    #[test]
    fn an_operators_ways_are_told_to_every_job_that_goes_by_them() {
        let ours = Settings {
            install_dir: Some("/home/kubernetes/bin".into()),
            restart_command: Some("kill $(cat /run/c.pid)".into()),
            ..settings()
        };
        let args = |operation| {
            let pod = provisioner_of(operation, &ours);
            let args = pod["containers"][0]["args"].as_array().unwrap().clone();
            args.iter().map(|arg| arg.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let (dir, restart) =
            ("--install-dir /home/kubernetes/bin", "--restart-command kill $$(cat /run/c.pid)");
        for operation in [Operation::Install, Operation::Uninstall] {
            let args = args(operation);
            assert!(args.contains(dir) && args.contains(restart), "{args}");
        }
        let look = args(Operation::Verify);
        assert!(look.contains(dir) && !look.contains("restart"), "a look starts nothing: {look}");
    }
}
