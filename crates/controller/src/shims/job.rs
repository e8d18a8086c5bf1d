//! The Job that does something on one node. Pure.

use portolan_api::shim::{GROUP, JOB, NODE_NAME, OPERATION, SHIM_NAME, ShimSpec, node_key};
use portolan_shim::node::request::Also;
use portolan_shim::resolve::Admitted;
use serde_json::{Value, json};

use super::identity::{Identity, Operation};
use super::outcome::{DOWNLOADER, PASSING, PERMANENT};
use super::plan::Piece;
use super::settings::Settings;

/// Where the node's root is in a pod.
const HOST_ROOT: &str = "/mnt/node-root";
/// Where a download is handed on.
const ASSETS: &str = "/assets";
/// What of a Job's time is not for downloads. A runtime that is started again has 90 s to answer, and where it does not, the
/// configuration from before comes back and it has them once more; a Job that is ended in the middle has not undone what it did.
const PROVISION_SECONDS: i64 = 200;
/// Who ends before it can report, as by an argument that cannot be read, says why in its log alone.
const LAST_WORDS: &str = "FallbackToLogsOnError";
/// An install may end its own pod when it starts the runtime again; the next pod goes on where it was.
const RETRIES: i32 = 3;

/// The Job. One of several Shims has a downloader for each, which can touch nothing of the others, and one provisioner.
pub(crate) fn render(identity: &Identity, pieces: &[Piece], settings: &Settings) -> Value {
    let operation = identity.operation.as_str();
    let mut labels = json!({JOB: "true", SHIM_NAME: identity.shim, OPERATION: operation});
    if identity.is_shared() {
        // One label can name one Shim alone.
        identity.parts().for_each(|(shim, ..)| labels[node_key(shim)] = json!(operation));
    }
    let (key, own) = identity.write();
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": identity.job_name(), "namespace": settings.namespace(), "labels": labels,
            "annotations": {
                NODE_NAME: identity.node, SHIM_NAME: identity.shim, OPERATION: operation, key: own,
            },
            "ownerReferences": owners(identity),
        },
        "spec": {
            "backoffLimit": RETRIES,
            "activeDeadlineSeconds": settings.deadline_seconds,
            "ttlSecondsAfterFinished": settings.ttl_seconds,
            // Never two pods of one Job on a node.
            "podReplacementPolicy": "Failed",
            // Who is driven away counts as well: its pod may be gone, and the number is all that tells that there was one.
            "podFailurePolicy": {"rules": rules(pieces)},
            "template": {
                "metadata": {"labels": labels},
                "spec": pod(identity, pieces, settings),
            },
        },
    })
}

/// What ends the Job at once. A download that may work later is tried again by the planner, which pauses as long as it takes:
/// pods that try it one after the other use up the time of the Job, and one that is over its time loses them, and with them all
/// that tells that nothing was done on the node.
fn rules(pieces: &[Piece]) -> Vec<Value> {
    let mut rules =
        vec![json!({"action": "FailJob", "onExitCodes": {"operator": "In", "values": PERMANENT}})];
    let downloads = pieces.iter().filter(|piece| piece.artifact.is_some()).count();
    rules.extend((0..downloads).map(|at| {
        let container = numbered(DOWNLOADER, at);
        let codes = json!({"containerName": container, "operator": "In", "values": [PASSING]});
        json!({"action": "FailJob", "onExitCodes": codes})
    }));
    rules
}

/// Who takes the Job along when all of them go: the first is its controller, of which there is one.
fn owners(identity: &Identity) -> Vec<Value> {
    if identity.operation == Operation::Uninstall {
        return vec![json!({
            "apiVersion": "v1", "kind": "Node", "name": identity.node,
            "uid": identity.node_uid, "controller": false,
        })];
    }
    let owner = |(at, (shim, uid, _)): (usize, (&str, &str, &str))| {
        json!({
            "apiVersion": format!("{GROUP}/v1alpha1"), "kind": "Shim", "name": shim,
            "uid": uid, "controller": at == 0,
        })
    };
    identity.parts().enumerate().map(owner).collect()
}

/// Of the first as it is, of others with their number.
fn numbered(name: &str, at: usize) -> String {
    match at {
        0 => name.to_owned(),
        at => format!("{name}-{}", at + 1),
    }
}

fn pod(identity: &Identity, pieces: &[Piece], settings: &Settings) -> Value {
    let fetched = pieces.iter().enumerate();
    let fetched = fetched.filter_map(|(at, piece)| Some((at, piece.artifact.as_ref()?)));
    let fetches: Vec<_> =
        fetched.map(|(at, artifact)| downloader(identity, at, artifact, settings)).collect();
    let mut volumes = vec![json!({"name": "root-mount", "hostPath": {"path": "/"}})];
    volumes.extend((0..fetches.len()).map(
        |at| json!({"name": numbered("shim-download", at), "emptyDir": {"sizeLimit": "2Gi"}}),
    ));
    let mut pod = json!({
        "nodeName": identity.node,
        "restartPolicy": "Never",
        "hostPID": true,
        "serviceAccountName": settings.service_account,
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        // It is bound to its node already; a taint must not drive it away in the middle.
        "tolerations": [{"operator": "Exists"}],
        "volumes": volumes,
        "containers": [provisioner(identity, pieces, settings)],
    });
    if !fetches.is_empty() {
        pod["initContainers"] = json!(fetches);
    }
    pod
}

/// It talks to strangers, so it may do nothing else, and has no more than its share of the Job's time: what follows needs some of
/// it, and a Job that is over its time says nothing of the node. Of several, one that fails must not keep the others from being
/// fetched: it leaves word of it and ends well.
fn downloader(identity: &Identity, at: usize, artifact: &Admitted, settings: &Settings) -> Value {
    let (shim, ..) = identity.parts().nth(at).expect("a piece for each part");
    let mut env = vec![
        json!({"name": "SHIM_NAME", "value": shim}),
        json!({"name": "SHIM_LOCATION", "value": literal(&artifact.location)}),
    ];
    env.extend(
        artifact.sha256.iter().map(|digest| json!({"name": "SHIM_SHA256", "value": digest})),
    );
    let downloads = settings.deadline_seconds - PROVISION_SECONDS;
    let share = (downloads / identity.parts().count() as i64).max(1).to_string();
    let mut args = vec!["node", "fetch", "--assets", ASSETS, "--timeout", &share];
    args.extend(identity.is_shared().then_some("--leave-refusal"));
    let mut container = json!({
        "name": numbered(DOWNLOADER, at),
        "image": settings.image,
        "args": args,
        "env": env,
        "volumeMounts": [{"name": numbered("shim-download", at), "mountPath": ASSETS}],
        "resources": resources(),
        "terminationMessagePolicy": LAST_WORDS,
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

fn provisioner(identity: &Identity, pieces: &[Piece], settings: &Settings) -> Value {
    let operation = identity.operation;
    let spec = |at: usize| &pieces[at].shim.spec;
    let mut args = vec!["node", operation.as_str(), "--host-root", HOST_ROOT];
    args.extend(["--name", &identity.shim]);
    let look = operation == Operation::Verify;
    let restart = settings.restart_command.as_ref().filter(|_| !look);
    for (flag, said) in [
        ("--install-dir", settings.install_dir.as_ref()),
        ("--config", settings.config.as_ref()),
        ("--distro", settings.distro.as_ref()),
        ("--restart-command", restart),
    ] {
        args.extend(said.into_iter().flat_map(|said| [flag, said]));
    }
    let mut mounts = vec![json!({"name": "root-mount", "mountPath": HOST_ROOT})];
    if look {
        // It is to change nothing.
        mounts[0]["readOnly"] = json!(true);
    }
    let others: Vec<String> =
        (1..pieces.len()).map(|at| also(&identity.also[at - 1].shim, at, spec(at))).collect();
    if operation == Operation::Install {
        args.extend(["--handler", &spec(0).runtime_class.handler, "--assets", ASSETS]);
        args.extend(others.iter().flat_map(|one| ["--also", one]));
        mounts.extend((0..pieces.len()).map(
            |at| json!({"name": numbered("shim-download", at), "mountPath": numbered(ASSETS, at)}),
        ));
    }
    let mut env = vec![json!({"name": "HOST_ROOT", "value": HOST_ROOT})];
    if let Some(options) = &spec(0).containerd_runtime_options {
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
        "terminationMessagePolicy": LAST_WORDS,
        "securityContext": {"privileged": true, "runAsUser": 0, "runAsGroup": 0},
    })
}

/// Another shim, as `node install --also` is told of it.
fn also(shim: &str, at: usize, spec: &ShimSpec) -> String {
    let also = Also {
        name: shim.to_owned(),
        handler: Some(spec.runtime_class.handler.clone()),
        assets: Some(numbered(ASSETS, at).into()),
        options: spec.containerd_runtime_options.clone().unwrap_or_default(),
        ..Also::default()
    };
    serde_json::to_string(&also).expect("texts only")
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

    use std::sync::Arc;

    use super::super::identity::Part;
    use super::super::world::{settings, shim};
    use super::*;

    /// A Job for so many Shims.
    fn job(operation: Operation, parts: usize, settings: &Settings) -> Value {
        let mut one = shim("s", "x", json!({"type": "recreate"}));
        one.spec.containerd_runtime_options =
            Some(BTreeMap::from([("a".into(), "\"$$(b)\"".into())]));
        let one = Arc::new(one);
        let part = |at: usize| Part {
            shim: format!("s{at}"),
            shim_uid: format!("1{at}"),
            hash: String::new(),
        };
        let identity = Identity {
            shim: "s".into(),
            shim_uid: "1".into(),
            node: "n".into(),
            node_uid: "2".into(),
            operation,
            hash: String::new(),
            nonce: 0,
            also: (1..parts).map(part).collect(),
        };
        let location = "https://x.example/$(SHIM_NAME)/$$".to_owned();
        let artifact = Admitted { location, sha256: None, warnings: Vec::new() };
        let artifact = (operation == Operation::Install).then_some(artifact);
        let piece = |_| Piece { shim: Arc::clone(&one), artifact: artifact.clone() };
        render(&identity, &(0..parts).map(piece).collect::<Vec<_>>(), settings)
    }

    fn pod_of(operation: Operation, settings: &Settings) -> Value {
        job(operation, 1, settings)["spec"]["template"]["spec"].take()
    }

    #[test]
    fn several_shims_have_a_downloader_each_that_touches_nothing_of_the_others() {
        let mut job = job(Operation::Install, 3, &settings());
        let owners = job["metadata"]["ownerReferences"].as_array().unwrap();
        let owners: Vec<_> = owners.iter().map(|one| (&one["uid"], &one["controller"])).collect();
        let (yes, no) = (json!(true), json!(false));
        assert_eq!(
            owners,
            [(&json!("1"), &yes), (&json!("11"), &no), (&json!("12"), &no)],
            "one controller"
        );
        let labels = &job["metadata"]["labels"];
        assert_eq!(labels["spinkube.dev/shimName"], "s");
        for shim in ["s", "s1", "s2"] {
            assert_eq!(labels[format!("runtime.spinkube.dev/{shim}")], "install");
        }
        let pod = job["spec"]["template"]["spec"].take();
        let fetches = pod["initContainers"].as_array().unwrap();
        for (at, (fetch, suffix)) in fetches.iter().zip(["", "-2", "-3"]).enumerate() {
            assert_eq!(fetch["name"], format!("downloader{suffix}"));
            let shim = if at == 0 { "s".to_owned() } else { format!("s{at}") };
            assert_eq!(fetch["env"][0], json!({"name": "SHIM_NAME", "value": shim}));
            let args = json!([
                "node",
                "fetch",
                "--assets",
                "/assets",
                "--timeout",
                "133",
                "--leave-refusal"
            ]);
            assert_eq!(fetch["args"], args, "a third of what is left of ten minutes");
            let mount = json!({"name": format!("shim-download{suffix}"), "mountPath": "/assets"});
            assert_eq!(fetch["volumeMounts"], json!([mount]));
            assert_eq!(fetch["securityContext"]["runAsNonRoot"], true);
        }
        let install = &pod["containers"][0];
        let args: Vec<_> =
            install["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
        let first = ["--name", "s", "--handler", "s", "--assets", "/assets"];
        assert_eq!(args[4..10], first);
        let also = "{\"name\":\"s1\",\"handler\":\"s\",\"assets\":\"/assets-2\",\"options\":{\"a\":\"\\\"$$$$(b)\\\"\"}}";
        assert_eq!(args[10..12], ["--also", also]);
        assert_eq!((args.len(), args[12]), (14, "--also"));
        let mounts = install["volumeMounts"].as_array().unwrap();
        let mounts: Vec<_> = mounts.iter().map(|one| one["mountPath"].as_str().unwrap()).collect();
        assert_eq!(mounts, [HOST_ROOT, "/assets", "/assets-2", "/assets-3"]);
        assert_eq!(pod["volumes"].as_array().unwrap().len(), 4);
    }

    /// An origin that hangs used up the time of its Job: the pods were deleted, and with them all that said that no provisioner
    /// had run, and pods were no longer sent to a node that nobody had touched.
    #[test]
    fn a_download_ends_well_before_its_job_and_ends_it() {
        let short = Settings { deadline_seconds: 300, ..settings() };
        for (settings, timeout) in [(settings(), "400"), (short, "100")] {
            let job = job(Operation::Install, 1, &settings);
            let fetch = &job["spec"]["template"]["spec"]["initContainers"][0];
            let args = json!(["node", "fetch", "--assets", "/assets", "--timeout", timeout]);
            assert_eq!(fetch["args"], args);
        }
        let ends = |operation, parts| {
            let mut job = job(operation, parts, &settings());
            job["spec"]["podFailurePolicy"]["rules"].take()
        };
        let codes = |at: Value| json!({"action": "FailJob", "onExitCodes": at});
        let always = codes(json!({"operator": "In", "values": [1, 2, 4]}));
        let of =
            |name: &str| codes(json!({"containerName": name, "operator": "In", "values": [5]}));
        assert_eq!(ends(Operation::Install, 1), json!([always, of("downloader")]));
        // A server refuses a rule for a container that is not there.
        assert_eq!(ends(Operation::Uninstall, 1), json!([always]));
        assert_eq!(ends(Operation::Verify, 1), json!([always]));
        let both = json!([always, of("downloader"), of("downloader-2")]);
        assert_eq!(ends(Operation::Install, 2), both);
    }

    /// A kubelet made another URL of `$(SHIM_NAME)` or `$$` in it, and other options.
    #[test]
    fn what_people_write_arrives_as_it_is() {
        let pod = pod_of(Operation::Install, &settings());
        let location = &pod["initContainers"][0]["env"][1];
        assert_eq!(location["value"], "https://x.example/$$(SHIM_NAME)/$$$$");
        let options = &pod["containers"][0]["env"][1];
        assert_eq!(options["value"], "{\"a\":\"\\\"$$$$(b)\\\"\"}");
    }

    #[test]
    fn an_operators_ways_are_told_to_every_job_that_goes_by_them() {
        let ours = Settings {
            install_dir: Some("/home/kubernetes/bin".into()),
            config: Some("/etc/$(x)/config.toml".into()),
            distro: Some("k3s".into()),
            restart_command: Some("kill $(cat /run/c.pid)".into()),
            ..settings()
        };
        let args = |operation| {
            let pod = pod_of(operation, &ours);
            let args = pod["containers"][0]["args"].as_array().unwrap().clone();
            args.iter().map(|arg| arg.as_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        let place =
            "--install-dir /home/kubernetes/bin --config /etc/$$(x)/config.toml --distro k3s";
        let restart = "--restart-command kill $$(cat /run/c.pid)";
        for operation in [Operation::Install, Operation::Uninstall] {
            let args = args(operation);
            assert!(args.contains(place) && args.contains(restart), "{args}");
        }
        let look = args(Operation::Verify);
        assert!(look.contains(place) && !look.contains("restart"), "a look starts nothing: {look}");
        for (operation, read_only) in [
            (Operation::Install, Value::Null),
            (Operation::Uninstall, Value::Null),
            (Operation::Verify, json!(true)),
        ] {
            let pod = pod_of(operation, &ours);
            let host = &pod["containers"][0]["volumeMounts"][0];
            assert_eq!((&host["name"], &host["readOnly"]), (&json!("root-mount"), &read_only));
        }
    }
}
