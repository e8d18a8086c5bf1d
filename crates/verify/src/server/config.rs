//! What the operator sets, from one TOML file. An unknown key is refused with its line, and what
//! cannot work is refused when the file is read.

mod cache;
mod check;
mod cluster;
mod limits;
mod tls;
mod values;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use portolan_core::platform::PartialPlatform;
pub use portolan_registry::serving::program::ConfigError;
use portolan_registry::serving::program::{self, Configuration};
use serde::Deserialize;

pub use cache::CacheConfig;
pub use cluster::{ClusterConfig, Generate, Lifetime, ObjectName, PullSecretsFor, SecretName};
pub use limits::{Limits, Timeouts};
pub use tls::{Certificate, TlsConfig};
pub use values::{ImagePattern, NodePlatform, Span};

/// The whole configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Where Gatekeeper asks.
    pub listen: SocketAddr,
    /// Health, readiness and metrics, without TLS; not set: nowhere.
    pub health: Option<SocketAddr>,
    /// Who must have signed what.
    pub policy: PathBuf,
    /// `registries.toml`; not set: where the command line looks.
    pub registries: Option<PathBuf>,
    /// A file of registry credentials in docker's form; not set: where the command line looks.
    pub credentials: Option<PathBuf>,
    /// What nodes are where nobody says; not set: what this machine is.
    pub host_platform: Option<NodePlatform>,
    /// Whether a no is a no.
    #[serde(default)]
    pub mode: Mode,
    /// How trouble that will pass is told to Gatekeeper.
    #[serde(default)]
    pub transient_errors: TransientErrors,
    /// Headers that carry a trace id; the first that is there counts.
    #[serde(default)]
    pub trace_headers: Vec<String>,
    /// `[tls]`; may be left out where only this machine can ask, such as a proxy beside it.
    pub tls: Option<TlsConfig>,
    /// `[admission]`
    #[serde(default)]
    pub admission: AdmissionConfig,
    /// `[timeouts]`
    #[serde(default)]
    pub timeouts: Timeouts,
    /// `[limits]`
    #[serde(default)]
    pub limits: Limits,
    /// `[cache]`
    #[serde(default)]
    pub cache: CacheConfig,
    /// `[exempt]`
    #[serde(default)]
    pub exempt: Exempt,
    /// `[pods]`
    #[serde(default)]
    pub pods: Pods,
    /// `[cluster]`; not set: no cluster is asked anything.
    pub cluster: Option<ClusterConfig>,
}

/// Whether a no is a no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// It is.
    #[default]
    Enforce,
    /// It is told, and everything is let in.
    Audit,
}

/// How trouble that will pass is told to Gatekeeper, which keeps items and forgets system errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TransientErrors {
    /// For the whole request: nobody keeps it.
    #[default]
    System,
    /// For the one key: Gatekeeper keeps it for its time to live.
    Item,
}

/// The webhook of Kubernetes itself.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AdmissionConfig {
    /// Where API servers ask; not set: where Gatekeeper does. Apart from it, because API servers
    /// show no certificate unless they are told to.
    pub listen: Option<SocketAddr>,
    /// Who vouches for API servers, with `listen`; not set: everybody is let in.
    pub client_ca: Option<PathBuf>,
    /// What to say to an image that is named by a tag.
    pub tags: Tags,
}

/// What to say to an image that is verified and named by a tag, which may move before it is pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Tags {
    /// No.
    Refuse,
    /// Yes, with a warning for whoever applied it.
    #[default]
    Warn,
    /// Yes.
    Allow,
}

/// What is let in without a look.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Exempt {
    /// Asked from these namespaces, as an admission says.
    pub namespaces: Vec<String>,
    /// Whether the namespace that a key names counts as well. Whoever asks may write any there.
    pub namespaces_in_keys: bool,
    /// `host`, `host/path/*` or `host/repository`.
    pub images: Vec<ImagePattern>,
}

/// What the labels of a cluster's nodes mean, for the webhook.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pods {
    /// More labels that name the operating system.
    pub os_labels: Vec<String>,
    /// More labels that name the architecture.
    pub arch_labels: Vec<String>,
    /// What the cluster calls things: `graviton = "arm64"`.
    pub values: BTreeMap<String, String>,
    /// Other labels that tell a platform: label → value → platform.
    pub labels: BTreeMap<String, BTreeMap<String, PartialPlatform>>,
    /// What `kubectl get nodes -o yaml` prints, for policies that say `nodes`; looked at like the
    /// policy.
    pub nodes: Option<PathBuf>,
}

impl Configuration for Config {
    const ADVICE: &'static str = "docs/verifier.md has one to begin with";

    fn contradiction(&self) -> Option<&'static str> {
        self.contradictory()
    }
}

impl Config {
    /// Reads a file.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        program::load(path)
    }

    /// Reads a text; `path` is where it came from, for messages.
    pub fn parse(text: &str, path: &Path) -> Result<Self, ConfigError> {
        program::parse(text, path)
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::time::Duration;

    use super::*;

    const LEAST: &str = "listen = \"127.0.0.1:6001\"\npolicy = \"policy.yaml\"\n[tls]\n\
        certificate = \"tls.crt\"\nkey = \"tls.key\"\n";

    fn parse(text: &str) -> Result<Config, ConfigError> {
        Config::parse(text, Path::new("verifier.toml"))
    }

    #[test]
    fn the_least_configuration_has_defaults_for_everything_else() {
        let config = parse(LEAST).unwrap();
        assert_eq!(
            (config.mode, config.transient_errors),
            (Mode::Enforce, TransientErrors::System)
        );
        assert_eq!(config.timeouts, Timeouts::default());
        assert_eq!(
            config.timeouts.verify.0 - config.timeouts.margin.0,
            Duration::from_millis(4900)
        );
    }

    #[test]
    fn a_configuration_that_is_wrong_is_refused_with_its_line() {
        for (more, line, words) in [
            ("client_cas = \"x\"", "line 6", "client_cas"),
            ("[timeouts]\nverify = \"soon\"", "line 7", "a time is"),
            ("[timeouts]\nverify = \"0s\"", "line 7", "a time is"),
            ("[exempt]\nimages = [\"nginx\"]", "line 7", "host/path/*"),
            ("[pods.labels.pool]\narm = \"\"", "line 7", "platform"),
        ] {
            let error = parse(&format!("{LEAST}{more}\n")).unwrap_err();
            assert!(error.to_string().contains("verifier.toml"), "{error}");
            let cause = error.source().unwrap().to_string();
            assert!(cause.contains(line) && cause.contains(words), "{more}: {cause}");
        }
        for (text, words) in [
            ("mode = \"warn\"\n", "audit"),
            ("transient_errors = \"both\"\n", "item"),
            ("host_platform = \"linux\"\n", "platform"),
            ("admission.tags = \"deny\"\n", "refuse"),
        ] {
            let error = parse(&format!("{text}{LEAST}")).unwrap_err();
            let cause = error.source().unwrap().to_string();
            assert!(cause.contains("line 1") && cause.contains(words), "{text}: {cause}");
        }
    }

    #[test]
    fn values_that_do_not_go_together_are_refused_when_the_file_is_read() {
        for more in [
            "[timeouts]\nmutate = \"100ms\"",
            "[limits]\nwork = 0",
            "[limits]\nwaiting = 0",
            "[limits]\nthreads = 0",
            "[limits]\nthreads = 2000",
            "[limits]\nconnections = 9000000000000000000",
            "[limits]\nkey_bytes = 5000",
            "[limits]\nbody_bytes = 100000000",
            "[cache]\nrefused_ttl = \"2m\"",
            "[admission]\nclient_ca = \"ca.crt\"",
            "[tls.generate]\nnames = [\"a.b\"]\n[cluster]",
            "[cluster]\nnodes = true\n[pods]\nnodes = \"nodes.yaml\"",
            "[cluster]\nsecrets = [\"a\"]",
            "[cluster]\npull_secrets = \"certified\"",
        ] {
            let error = parse(&format!("{LEAST}{more}")).unwrap_err();
            assert!(matches!(error, ConfigError::Contradiction { .. }), "{more}: {error}");
        }
        let without = |listen: &str| parse(&format!("listen = \"{listen}\"\npolicy = \"p\"\n"));
        assert!(without("127.0.0.1:6001").unwrap().tls.is_none());
        assert!(without("[::1]:6001").unwrap().tls.is_none());
        assert!(matches!(without("0.0.0.0:6001"), Err(ConfigError::Contradiction { .. })));
    }

    #[test]
    fn a_certificate_is_in_files_or_made_and_for_that_there_is_a_cluster() {
        let tls =
            |tls: &str| parse(&format!("listen = \"127.0.0.1:1\"\npolicy = \"p\"\n[tls]\n{tls}"));
        let made = tls("[tls.generate]\nnames = [\"v.ns\"]\n[cluster]\n").unwrap();
        assert!(matches!(made.tls.unwrap().certificate(), Some(Certificate::Generated(_))));
        for wrong in [
            "",
            "key = \"k\"\n",
            "[tls.generate]\nnames = [\"v.ns\"]\n",
            "[tls.generate]\nnames = []\n[cluster]\n",
        ] {
            let error = tls(wrong).unwrap_err();
            assert!(matches!(error, ConfigError::Contradiction { .. }), "{wrong}: {error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_said_to_be_missing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verifier.toml");
        assert!(matches!(Config::load(&path), Err(ConfigError::Missing { .. })));
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert!(matches!(Config::load(&path), Err(ConfigError::NotText { .. })));
    }
}
