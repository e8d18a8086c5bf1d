//! Releases on the real API server and a real registry, with the roles that are shipped.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Agent, Output, PrivateRegistry, Registry, RegistryKind, ReleaseSite, SigningKey, Testbed,
    architecture, condition, deploy, digest, hello_reference, json as parsed, ok, ours, portolan,
    resolved, run, run_with_input, wait_for,
};
use serde_json::{Value, json};

/// A cluster with Releases, a registry with an image of five platforms, a key, and a policy that asks for it.
struct Bench {
    site: ReleaseSite,
    registry: Registry,
    key: SigningKey,
    home: tempfile::TempDir,
}

impl Bench {
    fn new(prefix: &str) -> Result<Self> {
        let home = tempfile::tempdir()?;
        Ok(Self {
            site: ReleaseSite::new(prefix)?,
            registry: RegistryKind::Embedded.start()?,
            key: SigningKey::generate(&home.path().join("keys")),
            home,
        })
    }

    fn image(&self, name: &str) -> String {
        let image = format!("{}/team/{name}", self.registry.address);
        ours(&["image", "copy", &hello_reference(), &image]);
        image
    }

    fn sign(&self, image: &str) {
        self.key.sign(image, &["--recursive"]);
    }

    /// Another image under the same tag: one of the platforms alone.
    fn move_tag(&self, image: &str) -> String {
        let repository = image.rsplit_once(':').map_or(image, |(name, _)| name);
        let one = format!("{repository}@{}", resolved(image, "linux/arm64"));
        let other = format!("{repository}:other");
        ours(&["image", "copy", &one, &other]);
        ours(&["image", "index", "create", image, &other]);
        digest(image)
    }

    fn policy(&self, name: &str) -> Result<()> {
        self.site.namespace.apply(json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {
                "policy.yaml": std::fs::read_to_string(self.key.policy())?,
                "release.pub": std::fs::read_to_string(self.key.public())?,
            },
        }))
    }

    fn create(&self, name: &str, spec: Value) -> Result<()> {
        self.site.namespace.apply(release(name, spec))
    }

    fn events(&self, name: &str) -> Result<Vec<String>> {
        let all = self.site.namespace.kubectl_json(&["get", "events"])?;
        let own = all["items"].as_array().into_iter().flatten();
        let own = own.filter(|one| one["involvedObject"]["name"] == name);
        Ok(own.filter_map(|one| one["reason"].as_str()).map(str::to_owned).collect())
    }

    /// Events are written after the status that they tell of.
    fn told(&self, name: &str, reasons: &[&str]) -> Result<()> {
        wait_for("the events", Duration::from_secs(30), || {
            let told = self.events(name)?;
            for reason in reasons {
                ensure!(told.iter().any(|one| one == reason), "{reason}: {told:?}");
            }
            Ok(())
        })
    }
}

fn release(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "portolan.dev/v1alpha1", "kind": "Release",
        "metadata": {"name": name}, "spec": spec,
    })
}

fn version(release: &Value) -> Option<&str> {
    release["metadata"]["resourceVersion"].as_str()
}

#[test]
fn a_release_is_ready_when_it_is_signed_and_never_changes_then() -> Result<()> {
    let bench = Bench::new("releases")?;
    let _controller = bench.site.lead(&[])?;
    let image = bench.image("app:1");
    let first = digest(&image);
    bench.policy("makers")?;
    bench.create("app", json!({"image": image, "policy": {"configMap": "makers"}}))?;
    let refused = bench.site.reaches("app", "Verified", "False", "NotVerified")?;
    ensure!(refused["status"]["indexDigest"] == first, "{}", refused["status"]);
    ensure!(condition(&refused, "Ready").is_some_and(|one| one["status"] == "False"));
    ensure!(condition(&refused, "Resolved").is_some_and(|one| one["observedGeneration"] == 1));
    // Nothing that was refused is written again and again.
    std::thread::sleep(Duration::from_secs(2));
    ensure!(version(&bench.site.release("app")?) == version(&refused));

    bench.sign(&image);
    let ready = bench.site.reaches("app", "Ready", "True", "Ready")?;
    let resolved = ready["status"]["resolved"].as_array().context("resolved")?;
    ensure!(
        resolved.len() == 5 && resolved.iter().all(|one| one["verifiedBy"][0]["name"] == "release")
    );
    ensure!(ready["status"]["policy"]["name"] == "makers");
    bench.told("app", &["Resolved", "NotVerified", "Verified", "Ready"])?;

    // The tag moves; the Release does not.
    let second = bench.move_tag(&image);
    ensure!(second != first);
    std::thread::sleep(Duration::from_secs(3));
    ensure!(version(&bench.site.release("app")?) == version(&ready));
    // And nobody changes it.
    let patch = |patch: &str| -> Result<Output> {
        let mut command = Testbed::get().kubectl_command()?;
        let place = ["--namespace", bench.site.namespace.name()];
        run(command.args(place).args([
            "patch",
            "release.portolan.dev",
            "app",
            "--type=merge",
            "-p",
            patch,
        ]))
    };
    for change in [
        json!({"spec": {"image": format!("{image}@{second}")}}),
        json!({"spec": {"track": true}}),
        json!({"spec": {"requireVerification": false}}),
        json!({"spec": {"policy": null}}),
    ] {
        let said = patch(&change.to_string())?;
        ensure!(
            said.code != Some(0) && said.stderr.contains("does not change"),
            "{change}: {said:?}"
        );
    }
    let labelled = patch(r#"{"metadata": {"labels": {"a": "b"}}}"#)?;
    ensure!(labelled.code == Some(0), "{labelled:?}");
    let columns = bench.site.namespace.kubectl(&["get", "releases.portolan.dev"])?;
    ensure!(columns.contains("READY") && columns.contains("True"), "{columns}");
    Ok(())
}

#[test]
fn a_tracked_release_follows_its_tag_to_what_is_signed_and_keeps_a_history() -> Result<()> {
    let bench = Bench::new("releases-track")?;
    let _controller = bench.site.lead(&["--release-poll", "1"])?;
    let image = bench.image("app:1");
    let first = digest(&image);
    bench.sign(&image);
    bench.policy("makers")?;
    bench
        .create("app", json!({"image": image, "track": true, "policy": {"configMap": "makers"}}))?;
    let ready = bench.site.reaches("app", "Ready", "True", "Ready")?;
    ensure!(ready["status"]["digest"] == first);
    let second = bench.move_tag(&image);
    let held = wait_for("the moved tag to be told", Duration::from_secs(30), || {
        let found = bench.site.release("app")?;
        ensure!(found["status"]["candidate"]["digest"] == second, "{}", found["status"]);
        Ok(found)
    })?;
    ensure!(held["status"]["digest"] == first, "what is not signed is not followed");
    ensure!(condition(&held, "Ready").is_some_and(|one| one["status"] == "True"));
    bench.sign(&image);
    let moved = wait_for("the tag to be followed", Duration::from_secs(30), || {
        let found = bench.site.release("app")?;
        ensure!(found["status"]["digest"] == second, "{}", found["status"]);
        Ok(found)
    })?;
    ensure!(moved["status"]["candidate"].is_null());
    ensure!(moved["status"]["history"][0]["digest"] == first, "{}", moved["status"]);
    bench.told("app", &["Moved"])?;
    Ok(())
}

#[test]
fn without_a_usable_policy_a_release_waits_for_one() -> Result<()> {
    let bench = Bench::new("releases-policy")?;
    let _controller = bench.site.lead(&[])?;
    let image = bench.image("app:1");
    bench.sign(&image);
    bench.create("none", json!({"image": image}))?;
    bench.create("free", json!({"image": image, "requireVerification": false}))?;
    bench.create("missing", json!({"image": image, "policy": {"configMap": "makers"}}))?;
    bench
        .create("absent", json!({"image": format!("{image}-no"), "requireVerification": false}))?;
    bench.create("odd", json!({"image": "UPPER/case", "requireVerification": false}))?;
    bench.site.reaches("none", "Verified", "Unknown", "NoPolicy")?;
    bench.site.reaches("none", "Ready", "False", "NoPolicy")?;
    bench.site.reaches("free", "Ready", "True", "VerificationNotRequired")?;
    bench.site.reaches("missing", "Ready", "False", "PolicyNotFound")?;
    bench.site.reaches("absent", "Resolved", "False", "ImageNotFound")?;
    bench.site.reaches("odd", "Ready", "False", "InvalidSpec")?;
    bench.site.namespace.apply(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "makers"},
        "data": {"policy.yaml": "version: 7\n"},
    }))?;
    bench.site.reaches("missing", "Ready", "False", "PolicyInvalid")?;
    bench.policy("makers")?;
    bench.site.reaches("missing", "Ready", "True", "Ready")?;
    Ok(())
}

#[test]
fn a_private_image_is_released_with_the_pull_secret_that_is_named() -> Result<()> {
    let bench = Bench::new("releases-pull")?;
    let controller = bench.site.lead(&[])?;
    let registry = PrivateRegistry::start()?;
    let image = format!("{}/team/app:1", registry.address);
    ok(registry.portolan().args(["image", "copy", &hello_reference(), &image]));
    let spec = json!({
        "image": image, "requireVerification": false, "pullSecrets": [{"name": "login"}],
    });
    bench.create("private", spec)?;
    let denied = bench.site.reaches("private", "Resolved", "False", "AccessDenied")?;
    let told =
        condition(&denied, "Resolved").map(|one| one["message"].to_string()).unwrap_or_default();
    ensure!(told.contains("there is no Secret login"), "{told}");
    registry.pull_secret(&bench.site.namespace, "login")?;
    bench.site.reaches("private", "Ready", "True", "VerificationNotRequired")?;
    ensure!(!controller.log().contains(PrivateRegistry::PASSWORD), "a password is in the log");
    Ok(())
}

#[test]
fn of_two_controllers_one_records_and_the_other_goes_on() -> Result<()> {
    let bench = Bench::new("releases-two")?;
    let first = bench.site.lead(&[])?;
    let mut second = bench.site.start(&[])?;
    second.ready()?;
    ensure!(!second.is_leading(), "one of them acts");
    let image = bench.image("app:1");
    bench.create("one", json!({"image": image, "requireVerification": false}))?;
    let one = bench.site.reaches("one", "Ready", "True", "VerificationNotRequired")?;
    first.kill();
    bench.move_tag(&image);
    bench.create("two", json!({"image": image, "requireVerification": false}))?;
    second.leads()?;
    let two = bench.site.reaches("two", "Ready", "True", "VerificationNotRequired")?;
    ensure!(two["status"]["digest"] != one["status"]["digest"]);
    ensure!(version(&bench.site.release("one")?) == version(&one), "what is recorded stays");
    Ok(())
}

#[test]
fn a_run_that_succeeded_becomes_a_release_of_its_digest() -> Result<()> {
    let bench = Bench::new("releases-run")?;
    let controller = bench.site.lead(&[])?;
    let image = bench.image("app:1");
    let pinned = digest(&image);
    let run = |name: &str, release: &str| {
        bench.site.namespace.apply(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
            "metadata": {
                "name": name, "labels": {"portolan.dev/release": release},
                "annotations": {"portolan.dev/release-require-verification": "false"},
            },
            "spec": {"build": {"name": "app"}, "output": {"image": image}},
        }))
    };
    run("run-1", "app-1")?;
    std::thread::sleep(Duration::from_secs(1));
    ensure!(bench.site.release("app-1").is_err(), "it has not succeeded yet");
    let status = json!({"status": {
        "conditions": [{"type": "Succeeded", "status": "True", "reason": "Succeeded", "message": ""}],
        "completionTime": "2026-01-01T00:00:00Z", "output": {"digest": pinned},
    }});
    let succeeds = |name: &str| {
        let patch = ["patch", "buildrun", name, "--subresource=status", "--type=merge", "-p"];
        bench.site.namespace.kubectl(&[&patch[..], &[&status.to_string()]].concat())
    };
    succeeds("run-1")?;
    let made = wait_for("the Release of the run", Duration::from_secs(30), || {
        bench.site.release("app-1")
    })?;
    ensure!(made["spec"]["image"] == format!("{image}@{pinned}"), "{}", made["spec"]);
    let ready = bench.site.reaches("app-1", "Ready", "True", "VerificationNotRequired")?;
    ensure!(ready["status"]["digest"] == pinned);
    bench.told("run-1", &["Released"])?;

    // Somebody deletes it, and another copy hears of all runs again: of the old one before the new one.
    wait_for("the note on the run", Duration::from_secs(30), || {
        let run = bench.site.namespace.kubectl(&["get", "buildrun", "run-1", "-o", "json"])?;
        ensure!(run.contains(&format!("app-1@{pinned}")), "{run}");
        Ok(())
    })?;
    drop(controller);
    bench.site.namespace.kubectl(&["delete", "release", "app-1"])?;
    let _controller = bench.site.lead(&[])?;
    run("run-2", "app-2")?;
    succeeds("run-2")?;
    wait_for("the Release of the next run", Duration::from_secs(60), || {
        bench.site.release("app-2")
    })?;
    ensure!(bench.site.release("app-1").is_err(), "what was deleted stays deleted");
    Ok(())
}

#[test]
fn an_agent_takes_the_workload_of_a_release() -> Result<()> {
    let bench = Bench::new("releases-agent")?;
    let _controller = bench.site.lead(&[])?;
    let image = bench.image("app:1");
    bench.sign(&image);
    bench.policy("makers")?;
    let namespace = bench.site.namespace.name();
    let create = ["release", "create", &image, "--name", "app", "--policy-map", "makers", "--wait"];
    let place = ["--namespace", namespace, "--kubeconfig"];
    let kubeconfig = &Testbed::get().kubeconfig;
    ok(portolan().args(create).args(place).arg(kubeconfig));
    let platform = format!("linux/{}", architecture());
    let workload = ["release", "workload", "app", "--platform", &platform];
    let spec = ok(portolan().args(workload).args(place).arg(kubeconfig));
    let resolved = parsed(&spec)["image"]["resolved_digest"].clone();
    ensure!(resolved.is_string(), "{spec}");

    let agent = Agent::start(&bench.home.path().join("agent"), "")?;
    let mut command = portolan();
    command.args(["agent", "run", "--id", "web", "-o", "json", "-f", "-", "--socket"]);
    let said = run_with_input(command.arg(agent.socket()), spec.as_bytes())?;
    ensure!(said.code == Some(0), "{said:?}");
    let kept = agent.get("/v1/instances/web")?;
    ensure!(kept.to_string().contains(resolved.as_str().unwrap_or_default()), "{kept}");
    // The same without the digest is refused, as the agent's document says.
    let mut without = parsed(&spec);
    without["image"]["resolved_digest"] = Value::Null;
    let answer = agent.request("PUT", "/v1/instances/other", Some(&without))?;
    ensure!(answer.status >= 400 && answer.body.contains("resolved_digest"), "{answer:?}");
    Ok(())
}

#[test]
fn the_shipped_sample_is_taken_by_the_server() -> Result<()> {
    let _site = ReleaseSite::new("releases-sample")?;
    let sample = deploy("releases/samples/release.yaml").display().to_string();
    Testbed::get().kubectl(&["create", "--dry-run=server", "-f", &sample])?;
    Ok(())
}
