//! `portolan install` on a real cluster: what it prints is taken, its programs run without privilege from the one
//! image, a build and a question to the verifier go through them, `doctor` finds nothing wrong, and `uninstall` leaves
//! nothing behind. And the Helm chart gives the same objects.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Forward, Namespace, Output, Testbed, hello_reference, json as parsed, ok, ours, portolan, run,
    run_with_input, step_image, tool, wait_for,
};
use serde_json::{Value, json};

const NAMESPACE: &str = "portolan-system";
const PASSWORD: &str = "a password of the test";
/// Where Gatekeeper asks.
const PORT: u16 = 6001;

/// The cluster after this, whatever became of the test: other tests find none of it.
struct Installed {
    flags: Vec<String>,
}

impl Installed {
    fn flags(&self) -> Vec<&str> {
        self.flags.iter().map(String::as_str).collect()
    }

    /// Applies what is printed until the cluster has taken all of it: kinds come with what defines them.
    fn apply(&self, more: &[&str]) -> Result<()> {
        let printed = ours(&[&["install"][..], &self.flags(), more].concat());
        wait_for("the cluster to take everything", Duration::from_secs(120), || {
            let mut command = Testbed::get().kubectl_command()?;
            // Other tests of this cluster have applied some of it by other means.
            command.args(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
            let said = run_with_input(&mut command, printed.as_bytes())?;
            ensure!(said.code == Some(0), "{said}");
            Ok(())
        })
    }

    fn remove(&self) -> Result<Output> {
        let printed = ours(&["uninstall", "--crds"]);
        let mut command = Testbed::get().kubectl_command()?;
        command.args(["delete", "--ignore-not-found", "--timeout=120s", "-f", "-"]);
        run_with_input(&mut command, printed.as_bytes())
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}

fn doctor() -> Result<(Output, Value)> {
    let mut command = portolan();
    command.env("KUBECONFIG", &Testbed::get().kubeconfig);
    let said = run(command.args(["doctor", "--only", "cluster", "-o", "json"]))?;
    let findings = parsed(&said.stdout);
    Ok((said, findings))
}

fn ready(name: &str) -> Result<()> {
    let deployment = format!("deployment/{name}");
    let wait = ["-n", NAMESPACE, "rollout", "status", &deployment, "--timeout=120s"];
    Testbed::get().kubectl(&wait).map(drop).with_context(|| {
        let pods = ["-n", NAMESPACE, "describe", "pods"];
        Testbed::get().kubectl(&pods).unwrap_or_default()
    })
}

/// Not root, and nowhere to write: what the manifests say is what the kernel was told.
fn runs_without_privilege(name: &str) -> Result<()> {
    let selector = format!("app.kubernetes.io/name={name}");
    let pods = Testbed::get().kubectl_json(&["-n", NAMESPACE, "get", "pods", "-l", &selector])?;
    let pods = pods["items"].as_array().context("a list")?;
    ensure!(!pods.is_empty(), "no pod of {name}");
    for pod in pods {
        let container = &pod["spec"]["containers"][0];
        assert_eq!(container["image"], step_image(), "{name}");
        assert_eq!(container["securityContext"]["readOnlyRootFilesystem"], true);
        assert_eq!(container["securityContext"]["runAsNonRoot"], true);
    }
    Ok(())
}

#[test]
fn an_installation_works_is_well_and_leaves_nothing_behind() -> Result<()> {
    let testbed = Testbed::get();
    // What tests before this one left under the same names.
    testbed.kubectl(&[
        "delete",
        "namespace",
        NAMESPACE,
        "portolan-shims",
        "--ignore-not-found",
        "--timeout=120s",
    ])?;
    let dir = tempfile::tempdir()?;
    let key = dir.path().join("release").display().to_string();
    ok(portolan().args(["key", "generate", "--output", &key]).env("COSIGN_PASSWORD", PASSWORD));
    let public = format!("{key}.pub");
    let image = step_image();
    let flags = ["--image", &image, "--key", &public, "--action", "deny"];
    let installed = Installed { flags: flags.map(str::to_owned).to_vec() };
    installed.apply(&[])?;

    // The testbed's registry speaks plain HTTP, as its owner would say.
    let plain = format!("[host.\"{}\"]\nplain_http = true\n", testbed.registry.cluster);
    let patch = json!({"data": {"registries.toml": plain}}).to_string();
    testbed.kubectl(&[
        "-n",
        NAMESPACE,
        "patch",
        "configmap",
        "portolan-verifier",
        "--type=merge",
        "-p",
        &patch,
    ])?;
    testbed.kubectl(&["-n", NAMESPACE, "rollout", "restart", "deployment/portolan-verifier"])?;
    for name in ["portolan-controller", "portolan-verifier"] {
        ready(name)?;
        runs_without_privilege(name)?;
    }
    // Two copies of the controller are ready: one acts and one stands by. The verifier has told whom to trust.
    wait_for("doctor to find nothing wrong", Duration::from_secs(60), || {
        let (said, findings) = doctor()?;
        ensure!(said.code == Some(0), "{findings:#}");
        Ok(())
    })?;
    let (_, findings) = doctor()?;
    for check in
        ["kubernetes", "definitions", "tekton", "gatekeeper", "programs", "trust", "rights"]
    {
        let states =
            findings.as_array().context("a list")?.iter().filter(|one| one["check"] == check);
        let states: Vec<_> = states.map(|one| &one["state"]).collect();
        assert!(
            !states.is_empty() && states.iter().all(|state| **state == "ok"),
            "{check}: {findings:#}"
        );
    }

    Forward::start(testbed.bridge_address, NAMESPACE, "portolan-verifier", PORT)?;
    images_are_verified(&format!("{key}.key"))?;
    something_is_built()?;

    // An upgrade to the same changes nothing that was filled in since.
    let bundle = ["get", "provider", "portolan-verifier", "-o", "jsonpath={.spec.caBundle}"];
    let before = testbed.kubectl(&bundle)?;
    let upgrade =
        Installed { flags: vec!["--image".to_owned(), image.clone(), "--upgrade".to_owned()] };
    upgrade.apply(&[])?;
    assert_eq!(testbed.kubectl(&bundle)?, before);
    let constraint = testbed.kubectl_json(&["get", "portolanverifiedimages", "verified-images"])?;
    assert_eq!(constraint["spec"]["enforcementAction"], "deny");
    std::mem::forget(upgrade);

    let said = installed.remove()?;
    ensure!(said.code == Some(0), "{said}");
    nothing_is_left()
}

/// Gatekeeper asks the installed verifier, by the certificate that it made itself.
fn images_are_verified(key: &str) -> Result<()> {
    let testbed = Testbed::get();
    let copy = |name: &str| {
        let path = format!("install-{}/{name}:1", std::process::id());
        let here = format!("{}/{path}", testbed.registry.loopback);
        ours(&["image", "copy", &hello_reference(), &here]);
        (here, format!("{}/{path}", testbed.registry.cluster))
    };
    let (signed_here, signed) = copy("signed");
    let (_, unsigned) = copy("unsigned");
    ok(portolan()
        .args(["sign", &signed_here, "--key", key, "--recursive"])
        .env("COSIGN_PASSWORD", PASSWORD));
    let namespace = Namespace::new("install")?;
    testbed.kubectl(&[
        "label",
        "namespace",
        namespace.name(),
        "portolan.dev/gatekeeper=enforced",
    ])?;
    let pod = |image: &str| {
        namespace.try_create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "candidate"},
            "spec": {"containers": [{"name": "main", "image": image}]},
        }))
    };
    wait_for("Gatekeeper to refuse what is not signed", Duration::from_secs(60), || {
        let said = pod(&unsigned)?;
        ensure!(said.code == Some(1) && said.stderr.contains("[verified-images]"), "{said}");
        ensure!(said.stderr.contains("does not pass"), "by the verifier: {said}");
        Ok(())
    })?;
    let said = pod(&signed)?;
    ensure!(said.code == Some(0), "{said}");
    Ok(())
}

/// A directory of this machine, by the installed controller and the strategy that came with it.
fn something_is_built() -> Result<()> {
    let testbed = Testbed::get();
    let namespace = Namespace::new("built")?;
    let path = format!("install-{}/built:1", std::process::id());
    let to = format!("{}/{path}", testbed.registry.cluster);
    let command = |args: &[&str]| -> Result<Output> {
        let mut command = portolan();
        command.env("KUBECONFIG", &testbed.kubeconfig).args(args);
        run(command.args(["--namespace", namespace.name()]))
    };
    let create = [
        "build",
        "create",
        "hello",
        "--strategy",
        "portolan",
        "--output",
        &to,
        "--output-insecure",
    ];
    let platforms = ["--platform", "linux/amd64", "--platform", "linux/arm64"];
    let said = command(&[&create[..], &platforms].concat())?;
    ensure!(said.code == Some(0), "{said}");
    let hello = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello");
    let said = command(&["build", "upload", "hello", hello, "--follow"])?;
    let told =
        || namespace.kubectl(&["get", "buildruns,taskruns,pods", "-o", "wide"]).unwrap_or_default();
    ensure!(said.code == Some(0), "{said}\n{}", told());
    let here = format!("{}/{path}", testbed.registry.loopback);
    let inspected = parsed(&ours(&["image", "inspect", &here, "-o", "json"]));
    ensure!(inspected.to_string().contains("arm64"), "{inspected}");
    Ok(())
}

fn nothing_is_left() -> Result<()> {
    let testbed = Testbed::get();
    let kinds = "namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,validatingwebhookconfigurations,\
                 constrainttemplates,providers,deployments,services,configmaps,secrets,serviceaccounts,\
                 poddisruptionbudgets,networkpolicies,roles,rolebindings";
    wait_for("nothing to be left", Duration::from_secs(60), || {
        let left = testbed.kubectl_json(&[
            "get",
            kinds,
            "-A",
            "-l",
            "app.kubernetes.io/part-of=portolan",
        ])?;
        let left = left["items"].as_array().context("a list")?;
        let names: Vec<_> =
            left.iter().map(|one| format!("{} {}", one["kind"], one["metadata"]["name"])).collect();
        ensure!(names.is_empty(), "{names:?}");
        Ok(())
    })
}

/// Everything by what it is called.
fn by_name(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let named = |object: Value| {
        let metadata = &object["metadata"];
        let name =
            [&object["apiVersion"], &object["kind"], &metadata["namespace"], &metadata["name"]];
        (name.map(ToString::to_string).join(" "), object)
    };
    objects.into_iter().map(named).collect()
}

fn chart(values: &[&str]) -> BTreeMap<String, Value> {
    let dir = portolan_e2e::deploy("chart/portolan").display().to_string();
    let mut helm = Command::new(tool("helm"));
    helm.args(["template", "portolan", &dir, "--include-crds", "--kube-version", "1.36.0"]);
    // What a cluster knows once Gatekeeper has read the template.
    helm.args(["--api-versions", "constraints.gatekeeper.sh/v1beta1/PortolanVerifiedImages"]);
    let text = ok(helm.args(values));
    let documents = serde_yaml_ng::Deserializer::from_str(&text);
    let documents = documents.map(|one| serde::Deserialize::deserialize(one).expect("YAML"));
    by_name(documents.filter(|one: &Value| !one.is_null()).collect())
}

fn installs(flags: &[&str]) -> BTreeMap<String, Value> {
    let list = parsed(&ours(&[&["install", "-o", "json"][..], flags].concat()));
    by_name(list["items"].as_array().expect("a list").clone())
}

#[test]
fn the_chart_gives_what_install_prints() {
    for (values, flags) in [
        (vec![], vec![]),
        (
            vec!["--set", "image=registry.example/p:2,namespace=images,shimNamespace=nodes"],
            vec![
                "--image",
                "registry.example/p:2",
                "--namespace",
                "images",
                "--shim-namespace",
                "nodes",
            ],
        ),
        (
            vec!["--set", "verify.gate=webhook,controller.replicas=1,verifier.replicas=1"],
            vec!["--gate", "webhook", "--replicas", "1"],
        ),
        (vec!["--set", "verify.pin=true,verify.action=deny"], vec!["--pin", "--action", "deny"]),
    ] {
        let (chart, printed) = (chart(&values), installs(&flags));
        let names = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&chart), names(&printed), "{values:?}");
        for (name, object) in &printed {
            assert_eq!(chart[name], *object, "{values:?}: {name}");
        }
    }
    // Helm makes all definitions, whichever components are chosen.
    let is_definition = |name: &String| name.contains("CustomResourceDefinition");
    for component in ["build", "shims", "verify"] {
        let value = format!("components={{{component}}}");
        let mut chart = chart(&["--set", &value]);
        let mut printed = installs(&["--components", component]);
        chart.retain(|name, _| !is_definition(name));
        printed.retain(|name, _| !is_definition(name));
        assert_eq!(chart, printed, "{component}");
    }
}
