//! What the administrator allows. Nothing, until a file says so; and nothing that a spec says can
//! make it more.

mod load;

use std::fmt;
use std::path::PathBuf;

use portolan_core::Digest;
use serde::Deserialize;

pub use load::{DEFAULT_POLICY, LoadPolicyError, load, parse};

use super::net::Network;
use super::object::{Object, given};

/// Where a plugin comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Provider {
    /// A layer of the artifact that holds the spec.
    Layer,
    /// A directory of this machine.
    Directory,
    /// The `source` that the spec names.
    Http,
}

impl Provider {
    /// As in policies and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Layer => "layer",
            Self::Directory => "directory",
            Self::Http => "http",
        }
    }
}

impl fmt::Display for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A policy file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Policy {
    /// Of the format: 1.
    version: u32,
    /// The first that fits decides what a plugin gets.
    rules: Vec<Object<Rule>>,
    /// How `source` is fetched.
    #[serde(default)]
    http: Object<Http>,
}

/// Who may run.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Rule {
    /// From where.
    providers: Vec<Provider>,
    /// For specs of these repositories: `registry/name`, `registry/team/*`, or `*`. Not said, for
    /// all, also for specs from files.
    #[serde(default, deserialize_with = "given")]
    repositories: Option<Vec<String>>,
    /// Plugins of these names, or `*`.
    #[serde(default, deserialize_with = "given")]
    plugins: Option<Vec<String>>,
    /// Exactly these programs.
    #[serde(default, deserialize_with = "given")]
    digests: Option<Vec<Digest>>,
    /// Whether it may read a list of the host's own files, besides the facts it is given.
    #[serde(default)]
    files: bool,
    /// Whether it may load the host's libraries.
    #[serde(default)]
    libraries: bool,
    /// Whether it may take the place of a built-in plugin of its name, where a spec names a source
    /// for that.
    #[serde(default)]
    overrides: bool,
    /// How long it has.
    #[serde(default = "ten_seconds")]
    timeout_seconds: u64,
}

fn ten_seconds() -> u64 {
    10
}

/// How `source` is fetched.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Http {
    /// Hosts (`name` or `name:port`) that another may redirect to.
    #[serde(default)]
    pub(super) redirect_hosts: Vec<String>,
    /// Addresses that are connected to although they are not public.
    #[serde(default)]
    pub(super) private_networks: Vec<Network>,
    /// Certificates that are trusted besides the system's.
    #[serde(default)]
    pub(super) certificates: Vec<PathBuf>,
    /// Repositories that `oci://` may name. All that are not listed are refused: a registry sends
    /// its client on to other hosts, so the networks above cannot bound it.
    #[serde(default)]
    pub(super) registries: Vec<String>,
}

/// A program that wants to run.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Where it comes from.
    pub provider: Provider,
    /// Of the artifact with the spec; none for a spec from a file or a layout.
    pub repository: Option<&'a str>,
    /// The plugin's name in the spec.
    pub plugin: &'a str,
    /// What it is.
    pub digest: &'a Digest,
    /// Whether a plugin of this name is built in, so that it would take that one's place.
    pub built_in: bool,
}

/// What a program gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// It may read a list of the host's own files.
    pub files: bool,
    /// It may load the host's libraries.
    pub libraries: bool,
    /// How long it has, in seconds.
    pub timeout_seconds: u64,
}

/// Why a program may not run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no policy, so nothing may.
    #[error("there is no policy at {}; external plugins are off until the administrator writes one", path.display())]
    NoPolicy {
        /// Where it would be.
        path: PathBuf,
    },
    /// There is one, and no rule of it fits.
    #[error("no rule of the policy allows it ({why})")]
    NoRule {
        /// What came nearest.
        why: String,
    },
}

impl Policy {
    /// What `candidate` gets.
    pub fn allows(&self, candidate: &Candidate<'_>) -> Result<Grant, Refusal> {
        let mut nearest: Option<(usize, &'static str)> = None;
        for Object(rule) in &self.rules {
            match rule.fits(candidate) {
                Ok(()) => {
                    return Ok(Grant {
                        files: rule.files,
                        libraries: rule.libraries,
                        timeout_seconds: rule.timeout_seconds,
                    });
                }
                Err(miss) if nearest.is_none_or(|best| miss.0 > best.0) => nearest = Some(miss),
                Err(_) => {}
            }
        }
        let why = match nearest {
            None => "it has no rules".to_owned(),
            Some((_, what)) => format!("the nearest one is for other {what}"),
        };
        Err(Refusal::NoRule { why })
    }

    /// How `source` is fetched.
    pub(super) fn http(&self) -> &Http {
        &self.http.0
    }

    /// Whether `oci://` may name a repository.
    pub(super) fn may_ask(&self, repository: &str) -> bool {
        self.http().registries.iter().any(|pattern| is_in(Some(repository), pattern))
    }

    /// Whether any rule lets a program take the place of the built-in plugin `name`; else nothing
    /// needs to be looked for.
    pub(super) fn may_override(&self, name: &str) -> bool {
        self.rules.iter().any(|Object(rule)| rule.overrides && rule.names(name))
    }

    /// Whether any rule lets plugins come from there; else nothing needs to be looked for.
    pub fn uses(&self, provider: Provider) -> bool {
        self.rules.iter().any(|Object(rule)| rule.providers.contains(&provider))
    }
}

impl Rule {
    fn names(&self, plugin: &str) -> bool {
        let mut names = self.plugins.iter().flatten();
        self.plugins.is_none() || names.any(|name| name == "*" || name == plugin)
    }

    /// Or how far it fits, and what then differs.
    fn fits(&self, candidate: &Candidate<'_>) -> Result<(), (usize, &'static str)> {
        let named = |names: &Option<Vec<String>>, fits: &dyn Fn(&str) -> bool| {
            names.as_ref().is_none_or(|names| names.iter().any(|name| fits(name)))
        };
        if !self.names(candidate.plugin) || (candidate.built_in && !self.overrides) {
            return Err((0, "plugins"));
        }
        if !self.providers.contains(&candidate.provider) {
            return Err((1, "providers"));
        }
        if !named(&self.repositories, &|pattern| is_in(candidate.repository, pattern)) {
            return Err((2, "repositories"));
        }
        if !self.digests.as_ref().is_none_or(|digests| digests.contains(candidate.digest)) {
            return Err((3, "digests"));
        }
        Ok(())
    }
}

/// Whether a repository is the one, or below the one, that a pattern names.
fn is_in(repository: Option<&str>, pattern: &str) -> bool {
    let Some(repository) = repository else { return pattern == "*" };
    match pattern.strip_suffix('*') {
        // Only after a slash: `registry.example/team*` would let `team-of-others` in.
        Some(above) => repository.starts_with(above),
        None => repository == pattern,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn policy(rules: &Value) -> Policy {
        let text = json!({"version": 1, "rules": rules}).to_string();
        parse(text.as_bytes()).unwrap()
    }

    fn digest(text: &str) -> Digest {
        Digest::sha256(text.as_bytes())
    }

    #[test]
    fn a_program_runs_only_if_provider_name_repository_and_digest_are_allowed() {
        let policy = policy(&json!([
            {"providers": ["layer"], "repositories": ["r.example/team/*"], "plugins": ["vfio"]},
            {"providers": ["directory", "http"], "plugins": ["gpu"],
             "digests": [digest("good").to_string()], "files": true, "timeoutSeconds": 60},
            {"providers": ["directory"], "repositories": ["r.example/one"], "plugins": ["*"]},
        ]));
        let (good, bad) = (digest("good"), digest("bad"));
        for (provider, repository, plugin, digest, expected) in [
            (Provider::Layer, Some("r.example/team/app"), "vfio", &bad, Ok(false)),
            (Provider::Layer, Some("r.example/team/a/b"), "vfio", &bad, Ok(false)),
            (Provider::Layer, Some("r.example/teams/app"), "vfio", &bad, Err("repositories")),
            (Provider::Layer, Some("r.example/team"), "vfio", &bad, Err("repositories")),
            (Provider::Layer, None, "vfio", &bad, Err("repositories")),
            (Provider::Http, Some("r.example/team/app"), "vfio", &bad, Err("providers")),
            (Provider::Http, None, "gpu", &good, Ok(true)),
            (Provider::Directory, Some("anywhere/x"), "gpu", &good, Ok(true)),
            (Provider::Directory, None, "gpu", &bad, Err("digests")),
            (Provider::Layer, None, "gpu", &good, Err("providers")),
            (Provider::Directory, Some("r.example/one"), "anything", &bad, Ok(false)),
            (
                Provider::Directory,
                Some("r.example/one/below"),
                "anything",
                &bad,
                Err("repositories"),
            ),
        ] {
            let candidate = Candidate { provider, repository, plugin, digest, built_in: false };
            match (policy.allows(&candidate), expected) {
                (Ok(grant), Ok(files)) => assert_eq!(grant.files, files, "{candidate:?}"),
                (Err(refusal), Err(word)) => {
                    assert!(refusal.to_string().contains(word), "{candidate:?}: {refusal}");
                }
                (got, _) => panic!("{candidate:?}: {got:?}"),
            }
        }
    }

    #[test]
    fn a_built_in_plugin_is_overridden_only_where_a_rule_says_so() {
        let policy = policy(&json!([
            {"providers": ["http"], "plugins": ["*"]},
            {"providers": ["http"], "plugins": ["cpu"], "overrides": true, "files": true},
        ]));
        let digest = digest("x");
        let asked = |plugin, built_in| {
            let provider = Provider::Http;
            policy.allows(&Candidate {
                provider,
                repository: None,
                plugin,
                digest: &digest,
                built_in,
            })
        };
        assert!(asked("gpu", false).is_ok() && asked("kernel", true).is_err());
        // Not the first rule, which lets every name in.
        assert!(asked("cpu", true).unwrap().files);
        assert!(policy.may_override("cpu") && !policy.may_override("kernel"));
    }

    #[test]
    fn an_empty_policy_allows_nothing() {
        let digest = digest("x");
        let candidate = Candidate {
            provider: Provider::Directory,
            repository: None,
            plugin: "x",
            digest: &digest,
            built_in: false,
        };
        assert!(policy(&json!([])).allows(&candidate).is_err());
        assert!(Policy::default().allows(&candidate).is_err());
    }
}
