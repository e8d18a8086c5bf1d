//! `portolan install` on a real cluster: what it prints is taken, its programs run without privilege from the one
//! image, a build and a question to the verifier go through them, `doctor` finds nothing wrong, and `uninstall` leaves
//! nothing behind. And the Helm chart gives the same objects.

use std::path::Path;
use std::time::Duration;

mod chart;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Installation, Namespace, Output, SigningKey, Testbed, hello_reference, hello_source,
    json as parsed, ours, portolan, run, step_image, wait_for,
};
use serde_json::{Value, json};

fn doctor() -> Result<(Output, Value)> {
    let mut command = portolan();
    command.env("KUBECONFIG", &Testbed::get().kubeconfig);
    let said = run(command.args(["doctor", "--only", "cluster", "-o", "json"]))?;
    let findings = parsed(&said.stdout);
    Ok((said, findings))
}

/// Not root, and nowhere to write: what the manifests say is what the kernel was told.
fn runs_without_privilege(name: &str) -> Result<()> {
    let selector = format!("app.kubernetes.io/name={name}");
    let pods = Testbed::get().kubectl_json(&[
        "-n",
        Installation::NAMESPACE,
        "get",
        "pods",
        "-l",
        &selector,
    ])?;
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
    let dir = tempfile::tempdir()?;
    let key = SigningKey::generate(dir.path());
    let image = step_image();
    let flags = ["--image", &image, "--key", &key.public(), "--action", "deny"];
    let installation = Installation::new(&flags)?;
    installation.open_to_gatekeeper()?;
    for name in ["portolan-controller", "portolan-verifier"] {
        installation.ready(name)?;
        runs_without_privilege(name)?;
    }
    // Two copies of the controller are ready: one acts and one stands by. The verifier has told whom to trust.
    wait_for("doctor to find nothing wrong", Duration::from_secs(60), || {
        let (said, findings) = doctor()?;
        ensure!(said.code == Some(0), "{findings:#}");
        Ok(())
    })?;
    let (_, findings) = doctor()?;
    for check in [
        "kubernetes",
        "definitions",
        "tekton",
        "gatekeeper",
        "programs",
        "trust",
        "agents",
        "rights",
    ] {
        let states =
            findings.as_array().context("a list")?.iter().filter(|one| one["check"] == check);
        let states: Vec<_> = states.map(|one| &one["state"]).collect();
        assert!(
            !states.is_empty() && states.iter().all(|state| **state == "ok"),
            "{check}: {findings:#}"
        );
    }

    images_are_verified(&key)?;
    something_is_built()?;

    // An upgrade to the same changes nothing that was filled in since, whatever flags are repeated.
    let bundle = ["get", "provider", "portolan-verifier", "-o", "jsonpath={.spec.caBundle}"];
    let before = testbed.kubectl(&bundle)?;
    let edited = edit_settings()?;
    installation.apply(&["--image", &image, "--upgrade", "--agent-taint", "--agent-labels"])?;
    assert_eq!(testbed.kubectl(&bundle)?, before);
    for (index, [namespace, name, file]) in EDITED.into_iter().enumerate() {
        assert_eq!(setting(namespace, name, file)?, edited[index], "{file}");
    }
    the_chart_keeps_what_is_there(&edited, dir.path())?;
    let constraint = testbed.kubectl_json(&["get", "portolanverifiedimages", "verified-images"])?;
    assert_eq!(constraint["spec"]["enforcementAction"], "deny");

    let said = installation.remove()?;
    ensure!(said.code == Some(0), "{said}");
    nothing_is_left()
}

/// Settings that somebody changes in the cluster: namespace, ConfigMap, file.
const EDITED: [[&str; 3]; 2] = [
    ["portolan-nodes", "portolan-agent", "agent.toml"],
    [Installation::NAMESPACE, "portolan-verifier", "verifier.toml"],
];

fn setting(namespace: &str, name: &str, file: &str) -> Result<String> {
    let map = Testbed::get().kubectl_json(&["-n", namespace, "get", "configmap", name])?;
    Ok(map["data"][file].as_str().context("a text")?.to_owned())
}

/// What these files are from then on: brackets where there is no table, and a header that is not alone in its line.
fn edit_settings() -> Result<Vec<String>> {
    let edit = |[namespace, name, file]: [&str; 3]| {
        let text = setting(namespace, name, file)?;
        let text = text.replace("[tls]\n", "[tls] # of [Gatekeeper]\n# [see]\n");
        let text = format!("# ours\n{text}");
        let patch = json!({"data": {file: text}}).to_string();
        Testbed::get().kubectl(&["-n", namespace, "patch", "configmap", name, "-p", &patch])?;
        Ok(text)
    };
    EDITED.into_iter().map(edit).collect()
}

/// With a cluster to look at, Helm changes what values say in the files that are there, and nothing else of them.
fn the_chart_keeps_what_is_there(edited: &[String], dir: &Path) -> Result<()> {
    let kubeconfig = Testbed::get().kubeconfig.display().to_string();
    let authority = chart::authority(dir)?;
    let server = ["--dry-run=server", "--kubeconfig", &kubeconfig];
    let values = ["--set", "agent.taint=true", "--set-file", &authority];
    let rendered = chart::chart(&[&server[..], &values].concat());
    let text = |[_, name, file]: [&str; 3]| {
        let is = |one: &&Value| one["kind"] == "ConfigMap" && one["metadata"]["name"] == name;
        let map = rendered.values().find(is).context("a ConfigMap")?;
        map["data"][file].as_str().map(str::to_owned).context("a text")
    };
    let [agent, verifier] = [&edited[0], &edited[1]];
    assert!(agent.contains("\ntaint = false\n"), "{agent}");
    assert_eq!(text(EDITED[0])?, agent.replace("\ntaint = false\n", "\ntaint = true\n"));
    assert!(!verifier.contains("client_ca"), "{verifier}");
    let header = "[tls] # of [Gatekeeper]\n";
    assert_eq!(
        text(EDITED[1])?,
        verifier.replace(header, &format!("{header}{}\n", chart::CLIENT_CA))
    );
    Ok(())
}

/// Gatekeeper asks the installed verifier, by the certificate that it made itself.
fn images_are_verified(key: &SigningKey) -> Result<()> {
    let testbed = Testbed::get();
    let copy = |name: &str| {
        let path = format!("install-{}/{name}:1", std::process::id());
        let here = format!("{}/{path}", testbed.registry.loopback);
        ours(&["image", "copy", &hello_reference(), &here]);
        (here, format!("{}/{path}", testbed.registry.cluster))
    };
    let (signed_here, signed) = copy("signed");
    let (_, unsigned) = copy("unsigned");
    key.sign(&signed_here, &["--recursive"]);
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
    let hello = hello_source().display().to_string();
    let said = command(&["build", "upload", "hello", &hello, "--follow"])?;
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
    let kinds = "daemonsets,priorityclasses,validatingadmissionpolicies,validatingadmissionpolicybindings,\
                 namespaces,clusterroles,clusterrolebindings,customresourcedefinitions,validatingwebhookconfigurations,\
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
