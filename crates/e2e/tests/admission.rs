//! A real Gatekeeper with the shipped templates, and the API server with the shipped webhook, let in
//! what is signed where it would run, and refuse everything else.

mod fronts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use fronts::{Copy, Front, admitted, architectures, child, image, pod, rendered};
use portolan_e2e::{
    KEY_PASSWORD, Namespace, Testbed, Verifier, gatekeepers_secret, ok, peer, portolan, run,
    wait_for,
};
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
    ok(portolan()
        .args(["sign", &copy.tagged(), "--key", &verifier.key(), "--recursive"])
        .env("COSIGN_PASSWORD", KEY_PASSWORD));
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

/// Of the mutations, only for one namespace.
fn pinned_in(namespace: &Namespace) -> Result<()> {
    let mut all = rendered(&["--pin"]);
    let items = all["items"].as_array_mut().context("a list")?;
    items.retain(|one| one["kind"] == "Assign" || one["metadata"]["name"] == "portolan-mutator");
    for one in items.iter_mut().filter(|one| one["kind"] == "Assign") {
        one["spec"]["match"]["namespaces"] = json!([namespace.name()]);
    }
    ensure!(items.len() == 3, "a provider and two mutations: {items:?}");
    Testbed::get().apply(&all)
}

#[test]
fn gatekeeper_makes_the_digest_of_the_index_of_a_tag() -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    let namespace = Front::Gatekeeper.namespace()?;
    pinned_in(&namespace)?;
    let copy = Copy::new("pinned");
    ok(portolan()
        .args(["sign", &copy.tagged(), "--key", &Verifier::get().key(), "--recursive"])
        .env("COSIGN_PASSWORD", KEY_PASSWORD));
    let reference = copy.reference();
    let pinned = format!("{}@{}", reference.trim_end_matches(":1"), copy.digest());
    let init = json!({ "initContainers": [{ "name": "first", "image": reference }] });
    wait_for("Gatekeeper to take the mutations", Duration::from_secs(30), || {
        let pod = admitted(&namespace.try_create(pod(&reference, init.clone()))?);
        for list in ["containers", "initContainers"] {
            let image = &pod["spec"][list][0]["image"];
            ensure!(*image == json!(pinned), "{list} has {image} instead of {pinned}");
        }
        Ok(())
    })?;
    // A tag that is not there cannot become anything.
    let nowhere = reference.replace("pinned", "nowhere");
    let said = namespace.try_create(pod(&nowhere, json!({})))?;
    assert_ne!(said.code, Some(0), "{said}");
    assert!(said.stderr.contains("mutation.gatekeeper.sh"), "{said}");
    Ok(())
}

#[test]
fn gatekeepers_audit_finds_what_is_already_there() -> Result<()> {
    let _turn = Verifier::get().turn.read().unwrap_or_else(PoisonError::into_inner);
    // The template is taken; and this namespace has no label by which pods would be refused.
    drop(Front::Gatekeeper.namespace()?);
    let namespace = Namespace::new("audited")?;
    let [here, ..] = architectures();
    let (signed, unsigned) = (image(true, &[here]), image(true, &[]));
    for (name, image) in [("good", &signed), ("bad", &unsigned)] {
        let mut pod = pod(image, json!({}));
        pod["metadata"]["name"] = json!(name);
        namespace.apply(pod)?;
    }
    let all = rendered(&["--action", "dryrun"]);
    let items = all["items"].as_array().context("a list")?;
    let kind = "PortolanVerifiedImages";
    let mut constraint = items.iter().find(|one| one["kind"] == kind).context(kind)?.clone();
    constraint["metadata"]["name"] = json!(namespace.name());
    constraint["spec"]["match"]["namespaces"] = json!([namespace.name()]);
    Testbed::get().apply(&constraint)?;
    let found = wait_for("a round of the audit", Duration::from_secs(60), || {
        let constraint = Testbed::get().kubectl_json(&["get", kind, namespace.name()])?;
        let found = constraint["status"]["violations"].as_array().cloned();
        found.filter(|all| !all.is_empty()).with_context(|| constraint["status"].to_string())
    });
    Testbed::get().kubectl(&["delete", kind, namespace.name()])?;
    let found = found?;
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        (&found[0]["name"], &found[0]["enforcementAction"]),
        (&json!("bad"), &json!("dryrun"))
    );
    let why = found[0]["message"].as_str().unwrap_or_default();
    assert!(why.contains(&child(here)), "{why}");
    Ok(())
}

/// The template in OPA and in regorus, over the table of pods that the function over pods is held
/// to: every pod is refused for the same images and platforms, in the same words.
#[test]
fn gatekeeper_says_of_every_pod_what_template_test_says() -> Result<()> {
    let verifier = Verifier::get();
    let _turn = verifier.turn.read().unwrap_or_else(PoisonError::into_inner);
    let namespace = Front::Gatekeeper.namespace()?;
    let pods = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/pods.json");
    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(pods)?)?;
    // Nothing of it is signed, so everything that is asked is refused, and said.
    let unsigned = image(false, &[]);
    let mut items = Vec::new();
    for (n, row) in rows.iter().enumerate() {
        let mut pod = pod(&unsigned, row["spec"].clone());
        pod["metadata"] = json!({ "name": format!("pod-{n}"), "namespace": namespace.name() });
        items.push(pod);
    }
    let dir = tempfile::tempdir()?;
    let file = dir.path().join("pods.json");
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    std::fs::write(&file, list.to_string())?;
    let constraint = dir.path().join("rendered.json");
    std::fs::write(&constraint, rendered(&[]).to_string())?;
    let tried = run(portolan()
        .args(["verify", "template", "test", "--policy", &verifier.policy(), "-o", "json"])
        .args(["--registries", &verifier.registries()])
        .arg("-f")
        .arg(&file)
        .arg("--template")
        .arg(&constraint))?;
    let tried = portolan_e2e::json(&tried.stdout);
    let mut ours = BTreeMap::new();
    for found in tried["results"].as_array().context("results")? {
        let said = found["violations"].as_array().context("violations")?.iter();
        let said: BTreeSet<_> = said.filter_map(Value::as_str).map(str::to_owned).collect();
        ours.insert(found["object"].as_str().context("a name")?.to_owned(), said);
    }
    // All in one call; what is said comes in their order.
    let said = Testbed::get().try_create(&list)?;
    let said = one_by_one(&said.stderr);
    assert_eq!(said.len(), rows.len(), "{said:#?}");
    let mut compared = 0;
    for (n, why) in said.iter().enumerate() {
        // Some rows are no pods to an API server, which refuses them before it asks anybody.
        if why.contains("is invalid:") {
            continue;
        }
        let why = why.split("[verified-images] ").skip(1).map(|one| one.trim().to_owned());
        assert_eq!(why.collect::<BTreeSet<_>>(), ours[&format!("Pod/pod-{n}")], "{}", rows[n]);
        compared += 1;
    }
    assert!(compared * 10 > rows.len() * 8, "only {compared} of {} rows are pods", rows.len());
    Ok(())
}

/// Of a list, what kubectl says of each that is refused.
fn one_by_one(stderr: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for line in stderr.lines().filter(|line| !line.starts_with("Warning: ")) {
        match all.last_mut() {
            Some(last) if !line.starts_with("Error from server") => last.extend(["\n", line]),
            _ => all.push(line.to_owned()),
        }
    }
    all
}
