//! Values that do not go together.

use super::{Config, Limits, PullSecretsFor, Timeouts};
use crate::contract::MAX_KEY;

/// What counts places takes no more than that.
const MAX_LIMIT: usize = 1_000_000_000;
/// As many processors no machine has for a verifier.
const MAX_THREADS: usize = 1024;

impl Config {
    /// What does not go together, if something does not.
    pub(super) fn contradictory(&self) -> Option<&'static str> {
        let Timeouts { verify, mutate, admission, margin, .. } = &self.timeouts;
        if margin >= verify || margin >= mutate || margin >= admission {
            return Some("timeouts.margin must be less than each of verify, mutate and admission");
        }
        let Limits { body_bytes, bodies_bytes, key_bytes, threads, .. } = &self.limits;
        if self.limits.all().contains(&0) {
            return Some("every number of limits must be 1 or more");
        }
        if self.limits.all().iter().any(|limit| *limit > MAX_LIMIT) {
            return Some("every number of limits is at most 1000000000");
        }
        if *key_bytes > MAX_KEY {
            return Some("limits.key_bytes is at most 4096");
        }
        if *threads > MAX_THREADS {
            return Some("limits.threads is at most 1024");
        }
        if *body_bytes > 64 * 1024 * 1024 {
            return Some("limits.body_bytes is at most 64 MiB");
        }
        if bodies_bytes < body_bytes {
            return Some("limits.bodies_bytes must not be below limits.body_bytes");
        }
        let addresses = [Some(self.listen), self.admission.listen];
        if self.tls.is_none() && addresses.iter().flatten().any(|one| !one.ip().is_loopback()) {
            return Some("without [tls], listen and admission.listen must be loopback addresses");
        }
        if self.cache.refused_ttl > self.cache.verified_ttl {
            return Some("cache.refused_ttl must not be above cache.verified_ttl");
        }
        if self.admission.client_ca.is_some() && self.admission.listen.is_none() {
            return Some(
                "admission.client_ca needs admission.listen; without it tls.client_ca counts",
            );
        }
        self.cluster_contradiction()
    }

    fn cluster_contradiction(&self) -> Option<&'static str> {
        if self.tls.as_ref().is_some_and(|tls| tls.certificate().is_none()) {
            return Some("tls has either certificate and key or generate");
        }
        if let Some(generate) = self.tls.as_ref().and_then(|tls| tls.generate.as_ref()) {
            if self.cluster.is_none() {
                return Some("tls.generate needs [cluster], where its certificate is kept");
            }
            if generate.names.is_empty() {
                return Some("tls.generate.names is empty; name the Service: NAME.NAMESPACE");
            }
        }
        let cluster = self.cluster.as_ref()?;
        if cluster.nodes && self.pods.nodes.is_some() {
            return Some("nodes come from cluster.nodes or from pods.nodes, not from both");
        }
        if cluster.pull_secrets == PullSecretsFor::Nobody && !cluster.secrets.is_empty() {
            return Some("cluster.secrets needs cluster.pull_secrets");
        }
        if cluster.pull_secrets == PullSecretsFor::Certified
            && self.tls.as_ref().is_none_or(|tls| tls.client_ca.is_none())
            && self.admission.client_ca.is_none()
        {
            return Some(
                "cluster.pull_secrets = \"certified\" needs tls.client_ca or admission.client_ca",
            );
        }
        None
    }
}
