//! A namespace of one test's own, so that tests can run side by side.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{Output, Testbed, condition, wait_for};

/// Deleted, with all that is in it, when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    /// Makes `<prefix>-<something unique>`, ready for pods.
    pub fn new(prefix: &str) -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{count}", std::process::id());
        let testbed = Testbed::get();
        testbed.kubectl(&["create", "namespace", &name])?;
        let namespace = Self { name };
        // Pods are refused until the controller has made their account.
        wait_for("the namespace's default account", Duration::from_secs(30), || {
            namespace.kubectl(&["get", "serviceaccount", "default"])
        })?;
        Ok(namespace)
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// [`Testbed::kubectl`] in this namespace.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let mut all = vec!["--namespace", self.name.as_str()];
        all.extend(args);
        Testbed::get().kubectl(&all)
    }

    /// [`Testbed::kubectl_json`] in this namespace.
    pub fn kubectl_json(&self, args: &[&str]) -> Result<Value> {
        let mut all = vec!["--namespace", self.name.as_str()];
        all.extend(args);
        Testbed::get().kubectl_json(&all)
    }

    /// The object, once its condition has this type, status and reason.
    pub fn reaches(
        &self,
        (resource, name): (&str, &str),
        [kind, status, reason]: [&str; 3],
        limit: Duration,
    ) -> Result<Value> {
        let what = format!("{resource} {name} to be {kind}={status} for {reason}");
        wait_for(&what, limit, || {
            let found = self.kubectl_json(&["get", resource, name])?;
            let condition = condition(&found, kind).context("no condition yet")?;
            let fits = condition["status"] == status && condition["reason"] == reason;
            ensure!(fits, "{}", found["status"]);
            Ok(found)
        })
    }

    /// [`Testbed::try_create`] in this namespace.
    pub fn try_create(&self, mut object: Value) -> Result<Output> {
        object["metadata"]["namespace"] = json!(self.name);
        Testbed::get().try_create(&object)
    }

    /// Creates or updates an object in this namespace.
    pub fn apply(&self, mut object: Value) -> Result<()> {
        object["metadata"]["namespace"] = json!(self.name);
        Testbed::get().apply(&object)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Not waited for: the cluster goes on with it while the next test runs.
        let _ = Testbed::get().kubectl(&["delete", "namespace", &self.name, "--wait=false"]);
    }
}
