//! A real Gatekeeper with the shipped templates, and the API server with the shipped webhook, let in
//! what is signed where it would run, and refuse everything else.

mod fronts;

use std::sync::PoisonError;

use anyhow::{Context as _, Result};
use fronts::{Copy, Front, admitted, architectures, child, image, pod};
use portolan_e2e::{KEY_PASSWORD, Namespace, Testbed, Verifier, gatekeepers_secret, ok, peer, run};
use serde_json::{Value, json};

/// What a pod says of where it runs, and the architectures on which it then might.
struct Row {
    says: &'static str,
    spec: Value,
    might_run_on: Vec<&'static str>,
}

fn table() -> Vec<Row> {
    let [here, other, third] = architectures();
    let required = |expressions: Value| {
        json!({ "affinity": { "nodeAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{ "matchExpressions": expressions }] } } } })
    };
    vec![
        Row { says: "nothing", spec: json!({}), might_run_on: vec![here] },
        Row {
            says: "nodeSelector",
            spec: json!({ "nodeSelector": { "kubernetes.io/os": "linux", "kubernetes.io/arch": other } }),
            might_run_on: vec![other],
        },
        Row {
            says: "nodeSelector for one half",
            spec: json!({ "nodeSelector": { "kubernetes.io/arch": other } }),
            might_run_on: vec![other],
        },
        Row {
            says: "required affinity",
            spec: required(json!([
                { "key": "kubernetes.io/os", "operator": "In", "values": ["linux"] },
                { "key": "kubernetes.io/arch", "operator": "In", "values": [other, third] },
            ])),
            might_run_on: vec![other, third],
        },
        Row {
            says: "toleration",
            spec: json!({ "tolerations": [
                { "key": "kubernetes.io/arch", "operator": "Equal", "value": other, "effect": "NoSchedule" },
            ] }),
            might_run_on: vec![here, other],
        },
    ]
}

fn whole_table(front: Front) -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    let namespace = front.namespace()?;
    for Row { says, spec, might_run_on } in table() {
        let others: Vec<_> =
            architectures().into_iter().filter(|one| !might_run_on.contains(one)).collect();
        let last = might_run_on[might_run_on.len() - 1];
        let all_but_last = &might_run_on[..might_run_on.len() - 1];
        let ask = |image: &str| namespace.try_create(pod(image, spec.clone()));

        let index_alone = ask(&image(true, &[]))?;
        let why = front.refusal(&index_alone)?;
        for one in &might_run_on {
            assert!(why.contains(&format!("linux/{one}")), "{front:?}, {says}: {why}");
            assert!(why.contains(&child(one)), "{front:?}, {says}: {why}");
        }
        for one in &others {
            assert!(!why.contains(&child(one)), "{front:?}, {says}: {why}");
        }
        let others_signed = ask(&image(true, &[&others[..], all_but_last].concat()))?;
        let why = front.refusal(&others_signed)?;
        assert!(why.contains(&child(last)), "{front:?}, {says}: {why}");

        front.refusal(&ask(&image(false, &architectures()))?).context("an unsigned index")?;
        // What the pod cannot run on is not signed.
        admitted(&ask(&image(true, &might_run_on))?);
        admitted(&ask(&image(true, &architectures()))?);
    }
    Ok(())
}

#[test]
fn gatekeeper_admits_what_is_signed_where_the_pod_might_run() -> Result<()> {
    whole_table(Front::Gatekeeper)
}

#[test]
fn the_webhook_admits_what_is_signed_where_the_pod_might_run() -> Result<()> {
    whole_table(Front::Webhook)
}

/// Two wraps around a pod, and one without a spec above the template.
fn workloads(spec: &Value) -> Vec<Value> {
    let labels = json!({ "app": "web" });
    let template = json!({ "metadata": { "labels": labels }, "spec": spec });
    let mut once = spec.clone();
    once["restartPolicy"] = json!("Never");
    let job = json!({ "template": { "spec": once } });
    let object = |version: &str, kind: &str, spec: Value| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": "candidate" }, "spec": spec });
    let set = json!({ "selector": { "matchLabels": labels }, "template": template });
    let mut stateful = set.clone();
    stateful["serviceName"] = json!("web");
    vec![
        object("apps/v1", "Deployment", set.clone()),
        object("apps/v1", "ReplicaSet", set.clone()),
        object("apps/v1", "DaemonSet", set),
        object("apps/v1", "StatefulSet", stateful),
        object("batch/v1", "Job", job.clone()),
        object(
            "batch/v1",
            "CronJob",
            json!({ "schedule": "0 0 * * *", "jobTemplate": { "spec": job } }),
        ),
        object("v1", "ReplicationController", json!({ "selector": labels, "template": template })),
        json!({ "apiVersion": "v1", "kind": "PodTemplate", "metadata": { "name": "candidate" },
                "template": template }),
    ]
}

#[test]
fn what_makes_pods_is_refused_like_the_pod() -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    let [here, other, _] = architectures();
    let selector = json!({ "nodeSelector": { "kubernetes.io/arch": other } });
    for front in Front::ALL {
        let namespace = front.namespace()?;
        let good = workloads(&pod(&image(true, &[other]), selector.clone())["spec"]);
        let bad = workloads(&pod(&image(true, &[here]), selector.clone())["spec"]);
        for (good, bad) in good.into_iter().zip(bad) {
            let kind = bad["kind"].clone();
            let said = namespace.try_create(bad)?;
            let why = front.refusal(&said).with_context(|| kind.to_string())?;
            assert!(why.contains(&child(other)), "{front:?} {kind}: {why}");
            admitted(&namespace.try_create(good)?);
        }
    }
    Ok(())
}

#[test]
fn init_containers_image_volumes_and_ephemeral_containers_count() -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    let [here, ..] = architectures();
    let (signed, unsigned) = (image(true, &[here]), image(true, &[]));
    for front in Front::ALL {
        let namespace = front.namespace()?;
        let init = |image: &str| json!({ "initContainers": [{ "name": "first", "image": image }] });
        let volume = |image: &str| json!({ "volumes": [{ "name": "files", "image": { "reference": image, "pullPolicy": "Always" } }] });
        for with in [init, volume] {
            let said = namespace.try_create(pod(&signed, with(&unsigned)))?;
            assert!(front.refusal(&said)?.contains(&child(here)), "{said}");
            admitted(&namespace.try_create(pod(&signed, with(&signed)))?);
        }
        // A pod that is there: it need not run to be given another container.
        namespace.apply(pod(&signed, json!({})))?;
        let debug = |image: &str| -> Result<_> {
            let patch =
                json!({ "spec": { "ephemeralContainers": [{ "name": "debug", "image": image }] } });
            let mut command = Testbed::get().kubectl_command()?;
            command.args([
                "--namespace",
                namespace.name(),
                "patch",
                "pod",
                "candidate",
                "-o",
                "json",
            ]);
            command.args(["--subresource=ephemeralcontainers", "--dry-run=server", "-p"]);
            run(command.arg(patch.to_string()))
        };
        let said = debug(&unsigned)?;
        assert!(front.refusal(&said)?.contains(&child(here)), "{said}");
        let pod = admitted(&debug(&signed)?);
        assert_eq!(pod["spec"]["ephemeralContainers"][0]["image"], json!(signed));
    }
    Ok(())
}

/// What was there before anybody looked: in a namespace that gets its label only then.
#[test]
fn an_update_is_refused_for_what_is_new_and_no_more() -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    let [here, other, _] = architectures();
    let (signed_here, old) = (image(true, &[here]), image(true, &[]));
    for front in Front::ALL {
        let namespace = Namespace::new("admission")?;
        namespace.apply(pod(&old, json!({})))?;
        let deployment = workloads(&pod(&old, json!({}))["spec"]).remove(0);
        namespace.apply(deployment)?;
        front.look_at(&namespace)?;
        let patch = |what: &str, patch: Value| -> Result<_> {
            let mut command = Testbed::get().kubectl_command()?;
            command.args([
                "--namespace",
                namespace.name(),
                "patch",
                what,
                "candidate",
                "-o",
                "json",
            ]);
            run(command.args(["--dry-run=server", "-p"]).arg(patch.to_string()))
        };
        let container = |image: &str| json!({ "name": "main", "image": image });
        let template = |spec: Value| json!({ "spec": { "template": { "spec": spec } } });
        for what in ["pod", "deployment"] {
            let label = json!({ "metadata": { "labels": { "colour": "blue" } } });
            admitted(&patch(what, label)?);
        }
        let to = |image: &str| json!({ "spec": { "containers": [container(image)] } });
        admitted(&patch("pod", to(&signed_here))?);
        let said = patch("pod", to(&image(false, &[])))?;
        assert!(front.refusal(&said)?.contains(&child(here)), "{said}");
        // The same image, and other machines.
        let elsewhere = template(json!({ "nodeSelector": { "kubernetes.io/arch": other } }));
        let said = patch("deployment", elsewhere)?;
        assert!(front.refusal(&said)?.contains(&child(other)), "{said}");
    }
    Ok(())
}

#[test]
fn what_cosign_signed_is_admitted_and_what_is_not_there_is_not() -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    let home = tempfile::tempdir()?;
    let copy = Copy::new("by-cosign");
    let key = Verifier::get().key();
    let flags = ["--tlog-upload=false", "--use-signing-config=false", "--yes", "--recursive"];
    ok(peer("cosign", home.path())
        .args(["sign", "--key", &key])
        .args(flags)
        .arg(copy.tagged())
        .env("COSIGN_PASSWORD", KEY_PASSWORD));
    for front in Front::ALL {
        let namespace = front.namespace()?;
        admitted(&namespace.try_create(pod(&copy.reference(), json!({})))?);
        let nowhere = copy.reference().replace("by-cosign", "nowhere");
        let said = namespace.try_create(pod(&nowhere, json!({})))?;
        assert!(front.refusal(&said)?.contains(&nowhere), "{said}");
    }
    Ok(())
}

#[test]
fn only_gatekeeper_may_ask_the_verifier_that_is_deployed() -> Result<()> {
    let verifier = Verifier::get();
    let _turn = verifier.turn.read().unwrap_or_else(PoisonError::into_inner);
    let stranger = verifier.ask(&[])?;
    assert!(!stranger.stdout.contains("HTTP/1.1"), "{stranger}");
    assert!(stranger.stderr.contains("certificate required"), "{stranger}");
    let dir = tempfile::tempdir()?;
    let file = |name: &str| -> Result<String> {
        let path = dir.path().join(name);
        std::fs::write(&path, gatekeepers_secret(name)?)?;
        Ok(path.display().to_string())
    };
    let gatekeeper = verifier.ask(&["-cert", &file("tls.crt")?, "-key", &file("tls.key")?])?;
    assert!(gatekeeper.stdout.starts_with("HTTP/1.1 404"), "{gatekeeper}");
    Ok(())
}

#[test]
fn while_the_verifier_is_down_nothing_is_admitted() -> Result<()> {
    let verifier = Verifier::get();
    // Before it is taken away; and a namespace each.
    let mut fronts = Vec::new();
    for front in Front::ALL {
        fronts.push((front, front.namespace()?));
    }
    // Of an image that nobody has asked about: Gatekeeper keeps answers for minutes.
    let copy = Copy::new("asked-too-late");
    copy.sign_all();
    let candidate = pod(&copy.reference(), json!({}));
    let _turn = verifier.turn.write().unwrap_or_else(PoisonError::into_inner);
    verifier.scale(0)?;
    let mut said = Vec::new();
    for (front, namespace) in &fronts {
        said.push((*front, namespace.try_create(candidate.clone())?));
    }
    // Before anything is said of it: the others need it.
    verifier.scale(1)?;
    for (front, said) in said {
        assert_ne!(said.code, Some(0), "{front:?} admitted: {said}");
        match front {
            Front::Gatekeeper => {
                let why = front.refusal(&said)?;
                assert!(why.contains("portolan-verifier cannot answer"), "{why}");
            }
            // Nobody is there to refuse: the API server does, because of `failurePolicy`.
            Front::Webhook => {
                assert!(
                    said.stderr.contains("failed calling webhook \"verify.portolan.dev\""),
                    "{said}"
                );
            }
        }
    }
    for (_, namespace) in &fronts {
        admitted(&namespace.try_create(candidate.clone())?);
    }
    Ok(())
}

/// A machine of another kind that nobody started: the API server knows it, and so does the verifier.
struct OtherNode(&'static str);

impl OtherNode {
    const NAME: &'static str = "admission-other-node";

    fn join(architecture: &'static str) -> Result<Self> {
        Testbed::get().apply(&json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": Self::NAME, "labels": {
                "kubernetes.io/os": "linux", "kubernetes.io/arch": architecture } },
            "spec": { "unschedulable": true,
                      "taints": [{ "key": "portolan.dev/test", "effect": "NoSchedule" }] },
        }))?;
        Ok(Self(architecture))
    }
}

impl Drop for OtherNode {
    fn drop(&mut self) {
        let _ = Testbed::get().kubectl(&["delete", "node", Self::NAME, "--ignore-not-found"]);
    }
}

/// With `platforms: nodes`, a pod that says nothing of where it runs is looked at for every kind of
/// node that there is.
#[test]
fn where_a_pod_says_nothing_it_is_looked_at_for_every_node() -> Result<()> {
    let verifier = Verifier::get();
    // Before it changes its mind; and a namespace each.
    let mut fronts = Vec::new();
    for front in Front::ALL {
        fronts.push((front, front.namespace()?));
    }
    let [here, other, _] = architectures();
    // Gatekeeper keeps answers for minutes, so each question is about an image of its own.
    let fresh = |name: &str, signed: &[&str]| {
        let copy = Copy::new(name);
        copy.sign(&copy.tagged());
        for one in signed {
            copy.sign(&format!("{}@{}", copy.repository(), child(one)));
        }
        copy.reference()
    };
    let _turn = verifier.turn.write().unwrap_or_else(PoisonError::into_inner);
    verifier.follow(&portolan_e2e::POLICY.replace("platforms: host", "platforms: nodes"))?;
    let checked = (|| -> Result<()> {
        for (n, (front, namespace)) in fronts.iter().enumerate() {
            let ask = |image: &str| namespace.try_create(pod(image, json!({})));
            admitted(&ask(&fresh(&format!("nodes-{n}-alone"), &[here]))?);
            let node = OtherNode::join(other)?;
            // It is watched: known within a moment.
            std::thread::sleep(std::time::Duration::from_secs(3));
            let said = ask(&fresh(&format!("nodes-{n}-one"), &[here]))?;
            let why = front.refusal(&said)?;
            assert!(
                why.contains(&child(node.0)) && !why.contains(&child(here)),
                "{front:?}: {why}"
            );
            admitted(&ask(&fresh(&format!("nodes-{n}-both"), &[here, other]))?);
            // Who says where it runs is looked at for that alone.
            let selector = json!({ "nodeSelector": { "kubernetes.io/arch": here } });
            let image = fresh(&format!("nodes-{n}-said"), &[here]);
            admitted(&namespace.try_create(pod(&image, selector))?);
        }
        Ok(())
    })();
    // Before anything is said of it: the others need it as it was.
    verifier.follow(portolan_e2e::POLICY)?;
    checked
}
