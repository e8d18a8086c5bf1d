//! The whole journey on the real cluster, as one test: everything is installed from the one image, a git repository is
//! built for two platforms, signed, released, fetched by an agent that verifies it itself, and boots; the same image
//! runs in a pod by a shim that came with a Shim. What was tampered with on the way gets nowhere.
//!
//! A program of its own: containerd ends when a shim is installed, and streams of other tests would break.

mod agents;
mod pods;
mod site;
mod tampered;

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{architecture, ours_output, resolved};
use serde_json::Value;

use crate::agents::Host;
use crate::pods::Pods;
use crate::site::Site;
use crate::tampered::Tampered;

/// What the program of `examples/hello` writes on this machine.
fn greeting() -> String {
    format!("hello from linux/{}", architecture())
}

/// Names what is being done where it fails, and tells how long it took.
#[allow(clippy::print_stdout, reason = "a failed test shows how far it came, and when")]
fn stage<T>(what: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let began = Instant::now();
    let done = work().with_context(|| format!("journey: {what}"));
    println!("{:6.1} s  {what}", began.elapsed().as_secs_f32());
    done
}

#[test]
fn the_whole_journey_from_a_repository_to_a_machine_and_a_pod() -> Result<()> {
    let site = stage("install everything", Site::new)?;
    let image = stage("build for two platforms from git", || site.build())?;
    stage("hold back what is not signed", || {
        site.releases.reaches("app-1", "Verified", "False", "NotVerified")?;
        workload_is_refused(&site)
    })?;
    let release = stage("sign it, and see it released", || {
        site.key.sign(&image.here, &["--recursive"]);
        site.releases.reaches("app-1", "Ready", "True", "Ready")
    })?;
    is_recorded(&release, &image)?;
    let spec = site.releases.workload("app-1")?;
    ensure!(spec["image"]["resolved_digest"] == image.resolved.as_str(), "{spec}");
    ensure!(spec["image"]["index_digest"] == image.index.as_str(), "{spec}");

    let tampered = stage("tamper with one child", || Tampered::new(&site, &image))?;
    // While its Job works on the node, the machine boots.
    let pods = Pods::new(&site)?;
    let host = Host::new(&site)?;
    stage("fetch by digest, and boot", || host.boots(&spec, &greeting()))?;
    stage("refuse what was tampered with, on the host", || host.refuses(&spec, &tampered))?;
    stage("install the shim", || pods.shim_is_installed())?;
    stage("admit the pod, and run it by the shim", || pods.runs(&image, &greeting()))?;
    stage("refuse what was tampered with, in the cluster", || {
        pods.refuses(&tampered)?;
        site.releases.create("tampered", &tampered.index_reference())?;
        let refused = site.releases.reaches("tampered", "Verified", "False", "NotVerified")?;
        ensure!(refused["status"].to_string().contains(&tampered.child), "{}", refused["status"]);
        Ok(())
    })?;
    stage("take the shim away", || pods.shim_goes())
}

/// Nobody gets a WorkloadSpec of what is not Ready.
fn workload_is_refused(site: &Site) -> Result<()> {
    let said = ours_output(&site.releases.workload_words("app-1"));
    ensure!(said.code == Some(1) && said.stdout.is_empty(), "{said}");
    Ok(())
}

/// The Release is of the very bytes that were built, and both images are in it with who signed them.
fn is_recorded(release: &Value, image: &site::Image) -> Result<()> {
    let status = &release["status"];
    ensure!(status["indexDigest"] == image.index.as_str(), "{status}");
    let rows = status["resolved"].as_array().context("resolved")?;
    for platform in site::PLATFORMS {
        let found = rows.iter().find(|row| row["platform"] == platform);
        let found = found.with_context(|| format!("no {platform} in {status}"))?;
        ensure!(found["digest"] == resolved(&image.here, platform), "{found}");
        ensure!(found["verifiedBy"][0]["name"] == "release", "{found}");
    }
    ensure!(rows.len() == site::PLATFORMS.len(), "{status}");
    Ok(())
}
