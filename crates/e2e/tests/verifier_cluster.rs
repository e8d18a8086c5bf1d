//! `portolan-verifier` and a real API server: its certificate in a Secret that two of them share,
//! Gatekeeper's Provider told whom to trust, nodes that come, and logins for a registry that wants one. It
//! is allowed what `deploy/verifier` allows, and nothing else.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use portolan_e2e::{
    KEY_PASSWORD, Namespace, PrivateRegistry, Running, Testbed, deploy, free_port, hello_reference,
    ok, ours, portolan, portolan_verifier, wait_for,
};
use serde_json::{Value, json};

/// A namespace with an account for the verifier, the objects it may write, and a folder of files.
struct Bench {
    namespace: Namespace,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new(prefix: &str) -> Result<Self> {
        let bench = Self { namespace: Namespace::new(prefix)?, dir: tempfile::tempdir()? };
        provider_crd()?;
        let name = bench.name();
        Testbed::get().apply(&json!({
            "apiVersion": "externaldata.gatekeeper.sh/v1beta1", "kind": "Provider",
            "metadata": {"name": name},
            "spec": {"url": "https://127.0.0.1:1/", "timeout": 3, "caBundle": STANDARD.encode(anybody())},
        }))?;
        // For a group that nobody has: this webhook is never asked anything.
        Testbed::get().apply(&json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [{
                "name": "verify.portolan.dev", "admissionReviewVersions": ["v1"], "sideEffects": "None",
                "failurePolicy": "Ignore", "clientConfig": {"url": "https://127.0.0.1:1/"},
                "rules": [{"apiGroups": ["nobody.example"], "apiVersions": ["v1"], "operations": ["CREATE"],
                           "resources": ["nothings"]}],
            }],
        }))?;
        bench.allow()?;
        Ok(bench)
    }

    fn name(&self) -> &str {
        self.namespace.name()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> Result<()> {
        std::fs::write(self.path(name), text).with_context(|| format!("write {name}"))
    }

    /// What is shipped, with this test's names in the place of ours, and a kubeconfig of the account.
    fn allow(&self) -> Result<()> {
        let read = |name: &str| {
            let file = deploy(name);
            std::fs::read_to_string(&file).with_context(|| file.display().to_string())
        };
        // Of the manifest only the account, and what it may do.
        let manifest = read("verifier/verifier.yaml")?;
        let parts = manifest.split("---\n").filter(|part| {
            let kind = part.lines().find_map(|line| line.strip_prefix("kind: "));
            kind.is_some_and(|kind| {
                kind == "Secret" || kind == "ServiceAccount" || kind.contains("Role")
            })
        });
        let more = read("verifier/rbac.yaml")?;
        let name = self.name();
        let text = parts.chain([more.as_str()]).collect::<Vec<_>>().join("---\n");
        let text = text
            .replace("portolan-system", name)
            .replace("[portolan-verifier, portolan-mutator]", &format!("[{name}]"))
            .replace("[portolan-verifier]", &format!("[{name}]"))
            .replace("name: portolan-verifier-trust", &format!("name: {name}-trust"))
            .replace("name: portolan-verifier-nodes", &format!("name: {name}-nodes"))
            .replace("name: portolan-verifier-pull-secrets", &format!("name: {name}-pull"));
        self.write("rbac.yaml", &text)?;
        let testbed = Testbed::get();
        testbed.kubectl(&["apply", "-f", &self.path("rbac.yaml").display().to_string()])?;
        let token = self.namespace.kubectl(&["create", "token", "portolan-verifier"])?;
        let admin = testbed.kubectl_json(&["config", "view", "--raw"])?;
        let cluster = &admin["clusters"][0]["cluster"];
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "x",
            "clusters": [{"name": "x", "cluster": cluster}],
            "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": name}}],
            "users": [{"name": "x", "user": {"token": token.trim()}}],
        });
        self.write("kubeconfig", &kubeconfig.to_string())
    }

    /// A verifier on ports of its own, with `tables` at the end of its configuration.
    fn verifier(&self, file: &str, tables: &str) -> Result<Verifier> {
        let loopback = Ipv4Addr::LOCALHOST.into();
        let (port, health) = (free_port(loopback)?, free_port(loopback)?);
        let kubeconfig = self.path("kubeconfig");
        let text = format!(
            "listen = \"127.0.0.1:{port}\"\nhealth = \"127.0.0.1:{health}\"\npolicy = {:?}\n\
             credentials = {:?}\nhost_platform = \"linux/amd64\"\n[tls]\n{tables}\n",
            self.path("policy.yaml"),
            self.path("none.json"),
        );
        self.write(file, &text.replace("KUBECONFIG", &kubeconfig.display().to_string()))?;
        let mut command = Command::new(portolan_verifier());
        command.arg("--config").arg(self.path(file));
        Ok(Verifier { port, health, process: Running::start(&mut command)? })
    }

    fn policy(&self, platforms: &str) -> Result<()> {
        let prefix = self.path("our").display().to_string();
        ok(secret(portolan().args(["key", "generate", "--output", &prefix])));
        self.write(
            "policy.yaml",
            &format!(
                "version: 1\nsigners:\n  us: {{keys: {{files: [our.pub]}}}}\n\
                 default:\n  require: {{anyOf: [us]}}\n  platforms: {platforms}\n"
            ),
        )
    }

    fn bundle(&self) -> Result<String> {
        let provider = Testbed::get().kubectl_json(&["get", "provider", self.name()])?;
        decoded(&provider["spec"]["caBundle"])
    }

    fn held(&self, member: &str) -> Result<String> {
        let secret = self.namespace.kubectl_json(&["get", "secret", "portolan-verifier-tls"])?;
        decoded(&secret["data"][member])
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let name = self.name();
        let all = [
            ("provider", name.to_owned()),
            ("validatingwebhookconfiguration", name.to_owned()),
            ("clusterrole", format!("{name}-trust")),
            ("clusterrole", format!("{name}-nodes")),
            ("clusterrole", format!("{name}-pull")),
            ("clusterrolebinding", format!("{name}-trust")),
            ("clusterrolebinding", format!("{name}-nodes")),
            ("node", format!("{name}-node")),
        ];
        for (kind, name) in &all {
            let _ = Testbed::get().kubectl(&[
                "delete",
                kind,
                name,
                "--ignore-not-found",
                "--wait=false",
            ]);
        }
    }
}

struct Verifier {
    port: u16,
    health: u16,
    process: Running,
}

impl Verifier {
    fn ready(&mut self) -> Result<()> {
        let address = format!("127.0.0.1:{}", self.health);
        let process = &mut self.process;
        wait_for("the verifier to be ready", Duration::from_secs(30), || {
            process.check()?;
            let said = tokio().block_on(async {
                reqwest::Client::builder()
                    .no_proxy()
                    .build()?
                    .get(format!("http://{address}/readyz"))
                    .send()
                    .await
            })?;
            ensure!(said.status() == 200, "{}", said.status());
            Ok(())
        })
        .with_context(|| self.process.log())
    }

    /// What it says to a key, over TLS, to who trusts this bundle.
    fn ask(&self, bundle: &str, key: &str) -> Result<Value> {
        let body = json!({"request": {"keys": [key]}}).to_string();
        let url = format!("https://localhost:{}/ratify/gatekeeper/v1/verify", self.port);
        tokio().block_on(async {
            let roots = reqwest::Certificate::from_pem_bundle(bundle.as_bytes())?;
            let client = reqwest::Client::builder().no_proxy().tls_certs_only(roots).build()?;
            let text = client.post(url).body(body).send().await?.text().await?;
            serde_json::from_str(&text).with_context(|| text.clone())
        })
    }

    fn says_yes(&self, bundle: &str, key: &str) -> Result<bool> {
        let said = self.ask(bundle, key)?;
        Ok(said["response"]["items"][0]["value"]["isSuccess"] == true)
    }
}

fn tokio() -> tokio::runtime::Runtime {
    tokio::runtime::Runtime::new().expect("a runtime")
}

fn decoded(value: &Value) -> Result<String> {
    Ok(String::from_utf8(STANDARD.decode(value.as_str().unwrap_or_default())?)?)
}

fn secret(command: &mut Command) -> &mut Command {
    command.env("COSIGN_PASSWORD", KEY_PASSWORD)
}

/// Gatekeeper's, where the cluster has it; else one of the same group that takes the same.
fn provider_crd() -> Result<()> {
    let testbed = Testbed::get();
    let name = "providers.externaldata.gatekeeper.sh";
    if testbed.kubectl(&["get", "crd", name]).is_err() {
        let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        testbed.apply(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
            "spec": {
                "group": "externaldata.gatekeeper.sh", "scope": "Cluster",
                "names": {"kind": "Provider", "plural": "providers", "singular": "provider"},
                "versions": [{"name": "v1beta1", "served": true, "storage": true,
                              "schema": {"openAPIV3Schema": any}}],
            },
        }))?;
    }
    wait_for("Providers to be known", Duration::from_secs(30), || {
        testbed.kubectl(&["get", "providers.externaldata.gatekeeper.sh"]).map(drop)
    })
}

/// Gatekeeper takes no Provider without somebody to trust. Nobody has this one's key.
fn anybody() -> String {
    let mut command = Command::new("openssl");
    command.args([
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]);
    ok(command.args(["-keyout", "/dev/null", "-subj", "/CN=nobody", "-days", "2"]))
}

fn made(bench: &Bench, more: &str) -> String {
    let name = bench.name();
    format!(
        "[tls.generate]\nnames = [\"localhost\"]\nproviders = [\"{name}\"]\nwebhooks = [\"{name}\"]\n\
         check = \"1s\"\n{more}\n[cluster]\nkubeconfig = \"KUBECONFIG\"\n"
    )
}

#[test]
fn two_verifiers_share_one_certificate_and_a_real_provider_trusts_it() -> Result<()> {
    let bench = Bench::new("certificate")?;
    bench.policy("all")?;
    let tables = made(&bench, "lifetime = \"20s\"\nca_lifetime = \"60s\"");
    let mut both = [bench.verifier("one.toml", &tables)?, bench.verifier("two.toml", &tables)?];
    for verifier in &mut both {
        verifier.ready()?;
    }
    let bundle = wait_for("the Provider to be told", Duration::from_secs(20), || {
        let bundle = bench.bundle()?;
        ensure!(!bundle.is_empty() && bundle == bench.held("ca.crt")?, "{bundle}");
        Ok(bundle)
    })?;
    let hooks =
        Testbed::get().kubectl_json(&["get", "validatingwebhookconfiguration", bench.name()])?;
    assert_eq!(decoded(&hooks["webhooks"][0]["clientConfig"]["caBundle"])?, bundle);
    let provider = Testbed::get().kubectl_json(&["get", "provider", bench.name()])?;
    assert_eq!(provider["spec"]["timeout"], 3, "only the bundle was touched");
    let (first, first_ca) = (bench.held("tls.crt")?, bundle);
    // A certificate lives 20 s and an authority a minute: both are followed by others, and whoever
    // trusts what the Provider says is answered by both, all the time.
    let (mut leaves, mut seen_both) = (vec![first], false);
    wait_for("another authority to sign", Duration::from_secs(120), || {
        let bundle = bench.bundle()?;
        for verifier in &both {
            if let Err(error) = verifier.ask(&bundle, "nothing") {
                panic!("{error:#}\n{bundle}\n{}", verifier.process.log());
            }
        }
        seen_both |= bundle.matches("BEGIN").count() == 2;
        let leaf = bench.held("tls.crt")?;
        if leaves.last() != Some(&leaf) {
            leaves.push(leaf);
        }
        ensure!(leaves.len() > 3 && seen_both, "{} certificates", leaves.len());
        ensure!(!bundle.contains(first_ca.trim()), "the first authority is still trusted");
        Ok(())
    })
}

#[test]
fn nodes_of_a_real_cluster_are_watched() -> Result<()> {
    let bench = Bench::new("nodes")?;
    bench.policy("nodes")?;
    let image = format!("{}/verifier/{}:1", Testbed::get().registry.loopback, bench.name());
    ok(portolan().args(["image", "copy", &hello_reference(), &image]));
    let (key, arch) = (bench.path("our.key").display().to_string(), node_architecture()?);
    let said = portolan_e2e::json(&ours(&["image", "inspect", &image, "-o", "json"]));
    // The index, and every image that a machine like the node might take.
    let fits = |one: &&Value| one["platform"]["architecture"] == *arch;
    let images = said["manifests"].as_array().context("an index")?.iter().filter(fits);
    for subject in images.chain([&said]) {
        let digest = subject["digest"].as_str().context("a digest")?;
        let subject = format!("{}@{digest}", image.trim_end_matches(":1"));
        ok(secret(portolan().args(["sign", &subject, "--key", &key])));
    }
    let mut verifier = bench.verifier(
        "nodes.toml",
        &made(&bench, "").replace("[cluster]\n", "[cluster]\nnodes = true\n"),
    )?;
    verifier.ready()?;
    let bundle = bench.held("ca.crt")?;
    assert!(verifier.says_yes(&bundle, &image)?, "{}", verifier.ask(&bundle, &image)?);
    // Another kind of machine joins. No pod goes there: nothing runs on it, and it says so.
    Testbed::get().apply(&json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": format!("{}-node", bench.name()),
                     "labels": {"kubernetes.io/os": "linux", "kubernetes.io/arch": "s390x"}},
        "spec": {"unschedulable": true, "taints": [{"key": "portolan.dev/test", "effect": "NoSchedule"}]},
    }))?;
    wait_for("the image for s390x to be missed", Duration::from_secs(30), || {
        ensure!(!verifier.says_yes(&bundle, &image)?, "it is let in");
        Ok(())
    })?;
    Testbed::get().kubectl(&["delete", "node", &format!("{}-node", bench.name())])?;
    wait_for("the node to be forgotten", Duration::from_secs(30), || {
        ensure!(verifier.says_yes(&bundle, &image)?, "it is refused");
        Ok(())
    })
}

fn node_architecture() -> Result<String> {
    let node = Testbed::get().kubectl_json(&["get", "node", &Testbed::get().node])?;
    let arch = node["status"]["nodeInfo"]["architecture"].as_str();
    arch.map(str::to_owned).context("the node says what it is")
}

#[test]
fn a_private_image_is_read_with_the_pull_secrets_of_its_namespace() -> Result<()> {
    let bench = Bench::new("pull")?;
    let other = Namespace::new("pull-other")?;
    bench.policy("all")?;
    let registry = PrivateRegistry::start()?;
    let image = format!("{}/team/app:1", registry.address);
    let key = bench.path("our.key").display().to_string();
    ok(registry.portolan().args(["image", "copy", &hello_reference(), &image]));
    let sign = ["sign", &image, "--key", &key, "--recursive"];
    ok(secret(registry.portolan().args(sign)));
    // The tenant's login, as people make it, and in the account that pods have by default.
    registry.pull_secret(&bench.namespace, "regcred")?;
    let named = r#"{"imagePullSecrets": [{"name": "regcred"}]}"#;
    for namespace in [&bench.namespace, &other] {
        namespace.kubectl(&["patch", "serviceaccount", "default", "-p", named])?;
    }
    let role = format!("--clusterrole={}-pull", bench.name());
    let account = format!("--serviceaccount={}:portolan-verifier", bench.name());
    bench.namespace.kubectl(&["create", "rolebinding", "pull", &role, &account])?;
    let everybody = "[cluster]\npull_secrets = \"everybody\"\nsecrets_ttl = \"1s\"\n";
    let mut verifier =
        bench.verifier("pull.toml", &made(&bench, "").replace("[cluster]\n", everybody))?;
    verifier.ready()?;
    let bundle = bench.held("ca.crt")?;
    let (own, foreign) =
        (format!("[{}]{image}", bench.name()), format!("[{}]{image}", other.name()));
    assert!(verifier.says_yes(&bundle, &own)?, "{}", verifier.ask(&bundle, &own)?);
    for key in [&foreign, &image, &format!("[nobody]{image}")] {
        let said = verifier.ask(&bundle, key)?;
        let error = said["response"]["systemError"].as_str().unwrap_or_default();
        assert!(error.contains(": DENIED: "), "{key}: {said}");
        assert!(!said.to_string().contains("sha256:"), "{key}: {said}");
    }
    assert!(
        !verifier.process.log().contains(PrivateRegistry::PASSWORD),
        "{}",
        verifier.process.log()
    );
    let known = ok(registry.portolan().args(["image", "inspect", &image, "-o", "json"]));
    let known = &portolan_e2e::json(&known)["digest"];
    assert!(known.is_string(), "{known}");
    let said = verifier.ask(&bundle, &own)?;
    assert_eq!(said["response"]["items"][0]["value"]["resolvedDigest"], *known, "{said}");
    Ok(())
}
