//! Which Job this is, and what it is called. The name follows from all that makes the Job what it is, so no
//! two are called the same, and a stranger's Job is known by its name.

use std::collections::BTreeMap;

use portolan_api::shim::IDENTITY;
use portolan_core::Digest;
use serde::{Deserialize, Serialize};

/// What a Job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Install,
    Uninstall,
    Verify,
}

impl Operation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Install => "install",
            Self::Uninstall => "uninstall",
            Self::Verify => "verify",
        }
    }
}

/// What makes a Job this one and no other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Identity {
    pub(crate) shim: String,
    pub(crate) shim_uid: String,
    pub(crate) node: String,
    pub(crate) node_uid: String,
    pub(crate) operation: Operation,
    /// What the node should have afterwards; empty for nothing.
    pub(crate) hash: String,
    /// When it was decided: keeps apart what is done again.
    pub(crate) nonce: i64,
    /// What else the same Job installs. A Job of one Shim is called and written as if there were no such thing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) also: Vec<Part>,
}

/// One of the Shims of a Job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Part {
    pub(crate) shim: String,
    pub(crate) shim_uid: String,
    pub(crate) hash: String,
}

/// A name of a Job is copied to a label of its pods.
const MAX_NAME: usize = 63;
const DIGITS: usize = 10;

impl Identity {
    /// `NODE-SHIM-install-0123456789`, or `NODE-SHIM-and-2-install-0123456789` with two others, the readable part cut
    /// where it is too long.
    pub(crate) fn job_name(&self) -> String {
        let text = serde_json::to_vec(self).expect("texts and numbers");
        let digest = Digest::sha256(&text).hex();
        let more = match self.also.len() {
            0 => String::new(),
            more => format!("-and-{more}"),
        };
        let mut name = format!("{}-{}{more}-{}", self.node, self.shim, self.operation.as_str());
        name.truncate(name.floor_char_boundary(MAX_NAME - DIGITS - 1));
        // A name has no dot beside a hyphen.
        let kept = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
        name.truncate(kept);
        format!("{name}-{}", &digest[..DIGITS])
    }

    /// Its Shims: name, UID, and what the node should have of it.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let others = self.also.iter().map(|one| (&*one.shim, &*one.shim_uid, &*one.hash));
        std::iter::once((&*self.shim, &*self.shim_uid, &*self.hash)).chain(others)
    }

    /// What it does for a Shim, by its UID.
    pub(crate) fn hash_of(&self, shim_uid: &str) -> Option<&str> {
        self.parts().find(|(_, uid, _)| *uid == shim_uid).map(|(_, _, hash)| hash)
    }

    /// Whether it is one Job for several Shims.
    pub(crate) fn is_shared(&self) -> bool {
        !self.also.is_empty()
    }

    /// Whether this is one of those who take the Job along when they go. An uninstall must outlive whoever deletes
    /// the Shim and what belongs to it, so it belongs to the node.
    pub(crate) fn is_owned_by(&self, uid: &str) -> bool {
        match self.operation {
            Operation::Uninstall => self.node_uid == uid,
            Operation::Install | Operation::Verify => self.hash_of(uid).is_some(),
        }
    }

    pub(crate) fn read(annotations: &BTreeMap<String, String>) -> Option<Self> {
        serde_json::from_str(annotations.get(IDENTITY)?).ok()
    }

    pub(crate) fn write(&self) -> (String, String) {
        (IDENTITY.to_owned(), serde_json::to_string(self).expect("texts and numbers"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn identity(node: &str, shim: &str, operation: Operation) -> Identity {
        Identity {
            shim: shim.into(),
            shim_uid: format!("uid-of-{shim}"),
            node: node.into(),
            node_uid: format!("uid-of-{node}"),
            operation,
            hash: "h".into(),
            nonce: 1,
            also: Vec::new(),
        }
    }

    #[test]
    fn short_names_stay_readable() {
        let name = identity("node-1", "spin-v2", Operation::Install).job_name();
        assert!(name.starts_with("node-1-spin-v2-install-"), "{name}");
    }

    fn part(shim: &str, hash: &str) -> Part {
        Part { shim: shim.into(), shim_uid: format!("uid-of-{shim}"), hash: hash.into() }
    }

    /// Scripts know the name, and Jobs of an older controller are found by it.
    #[test]
    fn a_job_of_one_shim_is_called_and_written_as_ever() {
        let one = identity("node-1", "spin-v2", Operation::Install);
        assert_eq!(one.job_name(), "node-1-spin-v2-install-8c48bf6eae");
        assert!(!one.write().1.contains("also"), "{}", one.write().1);
        let two = Identity { also: vec![part("slight", "g")], ..one };
        assert!(two.job_name().starts_with("node-1-spin-v2-and-1-install-"), "{}", two.job_name());
        assert_eq!(Identity::read(&BTreeMap::from([two.write()])), Some(two.clone()));
        assert_eq!((two.hash_of("uid-of-slight"), two.hash_of("uid-of-x")), (Some("g"), None));
        assert!(two.is_owned_by("uid-of-spin-v2") && two.is_owned_by("uid-of-slight"));
        assert!(!two.is_owned_by("uid-of-node-1"));
    }

    #[test]
    fn c6_names_that_are_cut_never_collide() {
        let long = "ip-10-0-0-1.eu-central-1.compute.internal.a-very-long-cluster-name.example";
        let mut names = BTreeSet::new();
        for node in [format!("{long}-1"), format!("{long}-2")] {
            for shim in ["a".repeat(63), format!("{}b", "a".repeat(62))] {
                for operation in [Operation::Install, Operation::Uninstall, Operation::Verify] {
                    let one = identity(&node, &shim, operation);
                    names.extend([
                        one.job_name(),
                        Identity { nonce: 2, ..one.clone() }.job_name(),
                        Identity { hash: "g".into(), ..one.clone() }.job_name(),
                        Identity { node_uid: "another machine".into(), ..one.clone() }.job_name(),
                        Identity { also: vec![part("b", "h")], ..one.clone() }.job_name(),
                        Identity { also: vec![part("b", "g")], ..one }.job_name(),
                    ]);
                }
            }
        }
        assert_eq!(names.len(), 2 * 2 * 3 * 6);
        for name in names {
            assert!(name.len() <= MAX_NAME, "{name}");
            let label = name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b));
            assert!(label && !name.contains(".-") && !name.contains("-."), "{name}");
        }
    }
}
