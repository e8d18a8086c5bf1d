//! From the files of a ConfigMap, or of a directory, to a policy.

use std::collections::BTreeMap;
use std::path::Path;

use portolan_api::release::POLICY_KEY;
use portolan_core::Digest;
use portolan_verify::policy::{self, Policy, PolicyContentError};

/// A policy, and what it is known by.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The ConfigMap, or the file.
    pub name: String,
    /// Of everything that was read for it.
    pub digest: Digest,
    /// What is asked of images.
    pub policy: Policy,
}

/// Why there is no policy.
#[derive(Debug, thiserror::Error)]
pub enum ReadPolicyError {
    /// Not under the name that it has to have.
    #[error("the ConfigMap {name} has no key {POLICY_KEY}")]
    NoKey {
        /// The ConfigMap.
        name: String,
    },
    /// What it says cannot be used.
    #[error("the policy of the ConfigMap {name} is wrong")]
    Content {
        /// The ConfigMap.
        name: String,
        /// What is wrong.
        #[source]
        source: PolicyContentError,
    },
}

/// Reads the policy of a ConfigMap. Keys and roots that it names are other keys of the same one: nothing else is read.
pub fn read(name: &str, files: &BTreeMap<String, Vec<u8>>) -> Result<Loaded, ReadPolicyError> {
    let own = files.get(POLICY_KEY).ok_or_else(|| ReadPolicyError::NoKey { name: name.into() })?;
    let beside = |path: &Path| {
        let found = path.to_str().and_then(|key| files.get(key.trim_start_matches("./")));
        found.cloned().ok_or_else(|| "it is no key of the same ConfigMap".to_owned())
    };
    let (digest, policy) = policy::parse_with_fingerprint(own, &beside);
    let policy = policy.map_err(|source| ReadPolicyError::Content { name: name.into(), source })?;
    Ok(Loaded { name: name.to_owned(), digest, policy })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = include_str!("../../verify/tests/data/cosign.pub");

    fn files(policy: &str, more: &[(&str, &str)]) -> BTreeMap<String, Vec<u8>> {
        let own = [(POLICY_KEY, policy)];
        let all = own.iter().chain(more);
        all.map(|(key, text)| ((*key).to_owned(), text.as_bytes().to_vec())).collect()
    }

    const POLICY: &str = "version: 1\nsigners:\n  makers: { keys: { files: [maker.pub] } }\ndefault:\n  require: { allOf: [makers] }\n";

    #[test]
    fn what_a_policy_names_is_another_key_of_the_same_config_map() {
        let error = read("p", &BTreeMap::new()).unwrap_err();
        assert!(matches!(error, ReadPolicyError::NoKey { .. }), "{error}");
        let error = read("p", &files(POLICY, &[])).unwrap_err();
        let told = portolan_core::causes::chain(&error);
        assert!(told.contains("no key of the same ConfigMap"), "{told}");
        let outside = POLICY.replace("maker.pub", "/etc/passwd");
        read("p", &files(&outside, &[("maker.pub", KEY)])).expect_err("nothing else is read");
        let one = read("p", &files(POLICY, &[("maker.pub", KEY)])).unwrap();
        assert_eq!(one.policy.rules().count(), 1);
        // Another key under the same name is another policy.
        let other = read("p", &files(POLICY, &[("maker.pub", &format!("{KEY}\n"))])).unwrap();
        assert_ne!(one.digest, other.digest);
    }
}
