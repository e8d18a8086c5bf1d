//! Reading a policy, and refusing one that others could have written.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use portolan_core::{Algorithm, Digest};
use rustix::fs::{Mode, OFlags};

use super::Policy;
use crate::external::object::Object;
use crate::external::trust::{self, Distrust, Kind};
use crate::json;

/// Where administrators write it.
pub const DEFAULT_POLICY: &str = "/etc/oci/image-compatibility/policy.json";

/// A policy is a page, not a book.
const MAX_POLICY: u64 = 1024 * 1024;
/// Nothing waits longer for a plugin.
const MAX_TIMEOUT: u64 = 60;

/// Why a policy is not used. Plugins stay off.
#[derive(Debug, thiserror::Error)]
pub enum LoadPolicyError {
    /// It cannot be read.
    #[error("cannot read the plugin policy {}", path.display())]
    Read {
        /// Where.
        path: PathBuf,
        /// The system's word.
        #[source]
        source: io::Error,
    },
    /// Others could have written it.
    #[error("the plugin policy {} is not used", path.display())]
    Untrusted {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: Distrust,
    },
    /// It says nothing that can be understood.
    #[error("the plugin policy {} is wrong", path.display())]
    Content {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        #[source]
        source: PolicyContentError,
    },
}

/// What is wrong with a policy.
#[derive(Debug, thiserror::Error)]
pub enum PolicyContentError {
    /// Too long.
    #[error("it has more than {MAX_POLICY} bytes")]
    TooLarge,
    /// Not JSON that everybody reads alike.
    #[error(transparent)]
    Json(json::ParseJsonError),
    /// Not the fields of a policy.
    #[error(transparent)]
    Fields(serde_json::Error),
    /// Of another time.
    #[error("its version is {0}, only 1 is known")]
    Version(u32),
    /// A pattern that nobody can read.
    #[error("`http.registries`: `*` stands alone or after the last `/` of a repository")]
    Registries,
    /// A rule that says nothing.
    #[error("rule {number}: {what}")]
    Rule {
        /// From 1.
        number: usize,
        /// What is wrong with it.
        what: &'static str,
    },
}

/// Reads the policy at `path`; none if there is none.
///
/// It must belong to root, or to whoever calls us where that is not root: who runs this could
/// start any program without asking, and a plugin gets less than that. Others must not be able to
/// write to it. The file is opened once; what was checked is what is read.
pub fn load(path: &Path) -> Result<Option<Policy>, LoadPolicyError> {
    let unreadable = |source| LoadPolicyError::Read { path: path.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(file) => file,
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            let source = Distrust::Kind("a regular file but a link");
            return Err(LoadPolicyError::Untrusted { path: path.to_owned(), source });
        }
        Err(errno) => return Err(unreadable(errno.into())),
    };
    trust::check(&file, Kind::File)
        .map_err(|errno| unreadable(errno.into()))?
        .map_err(|source| LoadPolicyError::Untrusted { path: path.to_owned(), source })?;
    let mut bytes = Vec::new();
    File::from(file).take(MAX_POLICY + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    parse(&bytes)
        .map(Some)
        .map_err(|source| LoadPolicyError::Content { path: path.to_owned(), source })
}

/// Reads the text of a policy.
pub fn parse(bytes: &[u8]) -> Result<Policy, PolicyContentError> {
    if bytes.len() as u64 > MAX_POLICY {
        return Err(PolicyContentError::TooLarge);
    }
    let document = json::parse(bytes).map_err(PolicyContentError::Json)?;
    let Object(policy): Object<Policy> =
        serde_json::from_value(document.to_json()).map_err(PolicyContentError::Fields)?;
    if policy.version != 1 {
        return Err(PolicyContentError::Version(policy.version));
    }
    if policy.http().registries.iter().any(|pattern| is_bad_pattern(pattern)) {
        return Err(PolicyContentError::Registries);
    }
    for (n, Object(rule)) in policy.rules.iter().enumerate() {
        let other_digest = |digest: &Digest| digest.algorithm() != Algorithm::Sha256;
        let what = if rule.providers.is_empty() {
            "`providers` is empty, so it allows nothing"
        } else if rule.plugins.is_none() && rule.digests.is_none() && rule.repositories.is_none() {
            "it names neither plugins, digests nor repositories; `\"plugins\": [\"*\"]` means all"
        } else if rule.repositories.iter().flatten().any(|pattern| is_bad_pattern(pattern)) {
            "`*` stands alone or after the last `/` of a repository"
        } else if rule.digests.iter().flatten().any(other_digest) {
            "`digests` are of SHA-256, which programs are hashed with"
        } else if rule.timeout_seconds == 0 || rule.timeout_seconds > MAX_TIMEOUT {
            "`timeoutSeconds` is from 1 to 60"
        } else {
            continue;
        };
        return Err(PolicyContentError::Rule { number: n + 1, what });
    }
    Ok(policy)
}

/// `*` would let in more than its writer sees anywhere but alone and after a slash.
fn is_bad_pattern(pattern: &str) -> bool {
    let star = pattern.find('*');
    star.is_some_and(|at| at + 1 != pattern.len() || (at > 0 && !pattern.ends_with("/*")))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_with_a_policy_is_told() {
        for (text, expected) in [
            (r#"{"version": 1}"#, "missing field `rules`"),
            (r#"{"version": 2, "rules": []}"#, "only 1 is known"),
            (r#"{"version": 1, "rules": [], "rulez": []}"#, "unknown field `rulez`"),
            (r#"{"version": 1, "version": 1, "rules": []}"#, "twice"),
            (r#"{"version": 1, "rules": [{"providers": []}]}"#, "allows nothing"),
            (r#"{"version": 1, "rules": [{"providers": ["layer"]}]}"#, "means all"),
            (
                r#"{"version": 1, "rules": [{"providers": ["layer"], "repositories": ["r.example/te*"]}]}"#,
                "rule 1: `*` stands alone",
            ),
            (
                r#"{"version": 1, "rules": [{"providers": ["layer"], "repositories": ["*/x"]}]}"#,
                "stands alone",
            ),
            (
                r#"{"version": 1, "rules": [{"providers": ["ftp"], "plugins": ["*"]}]}"#,
                "unknown variant `ftp`",
            ),
            (
                r#"{"version": 1, "rules": [{"providers": ["layer"], "digests": ["sha256:12"]}]}"#,
                "sha256",
            ),
            (r#"[1, []]"#, "expected an object"),
            (r#"{"version": 1, "rules": [[["layer"], null, ["x"]]]}"#, "expected an object"),
            (r#"{"version": 1, "rules": [{"providers": ["layer"], "plugins": null}]}"#, "null"),
            (
                r#"{"version": 1, "rules": [{"providers": ["layer"], "plugins": ["x"], "timeoutSeconds": 61}]}"#,
                "from 1 to 60",
            ),
            (
                r#"{"version": 1, "rules": [], "http": {"privateNetworks": ["10.0.0.0/33"]}}"#,
                "10.0.0.0/33",
            ),
        ] {
            let message = error(text);
            assert!(message.contains(expected), "{text}: {message}");
        }
    }

    #[test]
    fn a_policy_that_others_could_have_written_is_not_used() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.json");
        assert!(load(&path).unwrap().is_none(), "no policy is no error");
        std::fs::write(&path, r#"{"version": 1, "rules": []}"#).unwrap();
        let set = |mode| {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        set(0o600);
        assert!(load(&path).unwrap().is_some());
        for mode in [0o620, 0o602, 0o666] {
            set(mode);
            assert!(matches!(load(&path), Err(LoadPolicyError::Untrusted { .. })), "{mode:o}");
        }
        set(0o600);
        let link = dir.path().join("link.json");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(matches!(load(&link), Err(LoadPolicyError::Untrusted { .. })));
        assert!(matches!(load(dir.path()), Err(LoadPolicyError::Untrusted { .. })));
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(12_345), None).unwrap();
            let refused = load(&path).unwrap_err();
            assert!(matches!(refused, LoadPolicyError::Untrusted { .. }), "{refused}");
        }
    }
}
