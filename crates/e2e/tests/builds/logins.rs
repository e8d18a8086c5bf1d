//! Registries that ask who is there.

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{PrivateRegistry, Repository, Testbed, hello_source, json as parsed, ok, run};
use serde_json::json;

use crate::works::{PATIENCE, Works};

/// Source, images of platforms and index are pushed and read with one login, and with no other.
#[test]
fn a_private_registry_is_opened_with_the_runs_secret_before_the_builds() -> Result<()> {
    let works = Works::new("login")?;
    let namespace = &works.site.namespace;
    let registry = PrivateRegistry::start_on(Testbed::get().bridge_address)?;
    let repository = Repository::serve(&hello_source(), works.dir.path())?;
    let image = format!("{}/team/app:1", registry.address);
    registry.pull_secret(namespace, "login")?;
    registry.wrong_secret(namespace, "wrong")?;
    let source = ["--source-git-url", &repository.url];
    works.make("app", &image, &[&source[..], &["--output-image-push-secret", "wrong"]].concat())?;
    let own = json!({"build": {"name": "app"}, "output": {"pushSecret": "login"}});
    for (name, spec) in [("builds", json!({"build": {"name": "app"}})), ("own", own)] {
        works.site.apply(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": {"name": name},
            "spec": spec,
        }))?;
    }
    let failed = works.site.reaches("builds", "False", "Failed", PATIENCE);
    let failed = failed.with_context(|| works.told())?;
    let details = &failed["status"]["failureDetails"];
    assert_eq!(details["reason"], "SourcePushFailed", "{details}");
    assert_eq!(details["location"]["container"], "step-source-bundle-push", "{details}");

    let done = works.site.reaches("own", "True", "Succeeded", PATIENCE);
    let done = done.with_context(|| works.told())?;
    let inspect = |image: &str| {
        parsed(&ok(registry.portolan().args(["image", "inspect", image, "-o", "json"])))
    };
    let output = &done["status"]["output"];
    assert_eq!(inspect(&image)["digest"], output["digest"], "{output}");
    let rows = output["platforms"].as_array().context("rows")?;
    assert_eq!(rows.len(), 2, "{output}");
    for (row, suffix) in rows.iter().zip(["linux-amd64", "linux-arm64"]) {
        assert_eq!(inspect(&format!("{image}-{suffix}"))["digest"], row["digest"], "{row}");
    }
    let source = &done["status"]["source"]["ociArtifact"];
    assert_eq!(inspect(&format!("{image}-src"))["digest"], source["digest"], "{source}");
    // Nobody else may, and nobody else is told the password.
    let stranger = run(registry
        .portolan()
        .env("DOCKER_CONFIG", works.dir.path())
        .args(["image", "inspect", &image]))?;
    ensure!(stranger.code == Some(5), "{stranger}");
    let told = works.told() + &works.ok(&["buildrun", "logs", "own"])?;
    ensure!(!told.contains(PrivateRegistry::PASSWORD), "a password is told: {told}");
    Ok(())
}
