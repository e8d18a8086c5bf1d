//! `[prefetch]`: what is fetched before anybody asks for it.

use std::num::NonZeroUsize;

use portolan_api::names::is_dns_label;
use serde::{Deserialize, Serialize};

/// What is fetched before anybody asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PrefetchConfig {
    /// Follow the Releases of the cluster that have the label `portolan.dev/prefetch=true`: false. The API server is the one
    /// of `[report.node]`, else the one that a pod finds.
    pub releases: bool,
    /// Only those of this namespace; not set: of all.
    pub namespace: Option<String>,
    /// So many of them, the newest first: 64. As many that failed the last time are tried besides.
    pub limit: NonZeroUsize,
    /// Images fetched at a time: 1. What is started meanwhile shares `pull.concurrency` with them.
    pub concurrency: NonZeroUsize,
}

impl Default for PrefetchConfig {
    fn default() -> Self {
        Self {
            releases: false,
            namespace: None,
            limit: NonZeroUsize::new(64).expect("it is not 0"),
            concurrency: NonZeroUsize::MIN,
        }
    }
}

impl PrefetchConfig {
    pub(super) fn contradiction(&self) -> Option<&'static str> {
        if self.namespace.as_ref().is_some_and(|name| !is_dns_label(name)) {
            return Some("prefetch.namespace is no name of a namespace");
        }
        if self.limit.get() > 1024 || self.concurrency.get() > 16 {
            return Some("prefetch.limit is at most 1024, prefetch.concurrency at most 16");
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::config::{Config, ConfigError};

    #[test]
    fn what_is_prefetched_is_bounded() {
        let parse = |text: &str| Config::parse(text, Path::new("agent.toml"));
        let all = "[prefetch]\nreleases = true\nnamespace = \"shop\"\nlimit = 8\nconcurrency = 2";
        assert_eq!(parse(all).unwrap().prefetch.limit.get(), 8);
        assert!(!parse("").unwrap().prefetch.releases);
        for bad in ["limit = 5000", "concurrency = 99", "namespace = \"a/b\"", "namespace = \"\""] {
            let parsed = parse(&format!("[prefetch]\n{bad}"));
            assert!(matches!(parsed, Err(ConfigError::Contradiction { .. })), "{bad}");
        }
        assert!(parse("[prefetch]\nlimit = 0").is_err());
    }
}
