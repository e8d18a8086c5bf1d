//! What a node should have, as one hash. A node that was brought there remembers it, so whatever
//! changes is seen by comparing two words.

use std::collections::BTreeMap;

use portolan_api::shim::ShimSpec;
use portolan_core::Digest;
use serde::Serialize;

use crate::resolve::Admitted;

/// What installs: a version that does it otherwise installs again.
pub const INSTALLER: &str = env!("CARGO_PKG_VERSION");

/// As many digits as keep apart what ever meets on one node.
const DIGITS: usize = 32;

#[derive(Serialize)]
struct Desired<'a> {
    location: &'a str,
    sha256: Option<&'a str>,
    options: Option<&'a BTreeMap<String, String>>,
    handler: &'a str,
    installer: &'a str,
}

/// The hash of artifact, digest, options, handler and installer.
pub fn hash(spec: &ShimSpec, artifact: &Admitted) -> String {
    hash_by(spec, artifact, INSTALLER)
}

fn hash_by(spec: &ShimSpec, artifact: &Admitted, installer: &str) -> String {
    let options = spec.containerd_runtime_options.as_ref().filter(|options| !options.is_empty());
    let desired = Desired {
        location: &artifact.location,
        sha256: artifact.sha256.as_deref(),
        options,
        handler: &spec.runtime_class.handler,
        installer,
    };
    let text = serde_json::to_vec(&desired).expect("texts only");
    let mut hex = Digest::sha256(&text).hex();
    hex.truncate(DIGITS);
    hex
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn c2_every_part_of_what_is_installed_changes_the_hash_and_nothing_else_does() {
        let spec = |handler: &str, options: serde_json::Value, class: &str| -> ShimSpec {
            serde_json::from_value(json!({
                "fetchStrategy": {}, "runtimeClass": {"name": class, "handler": handler},
                "rolloutStrategy": {"type": "recreate"}, "containerdRuntimeOptions": options,
            }))
            .unwrap()
        };
        let artifact = |location: &str, sha256: Option<&str>| Admitted {
            location: location.into(),
            sha256: sha256.map(str::to_owned),
            warnings: Vec::new(),
        };
        let plain = spec("h", json!(null), "c");
        let base = hash(&plain, &artifact("https://a", None));
        assert_eq!(base.len(), DIGITS);
        let others = [
            hash(&plain, &artifact("https://b", None)),
            hash(&plain, &artifact("https://a", Some("1"))),
            hash(&spec("g", json!(null), "c"), &artifact("https://a", None)),
            hash(&spec("h", json!({"SystemdCgroup": "true"}), "c"), &artifact("https://a", None)),
            hash_by(&plain, &artifact("https://a", None), "another"),
        ];
        let all: BTreeSet<_> = others.iter().chain([&base]).collect();
        assert_eq!(all.len(), 6, "each differs from all others");
        assert_eq!(hash(&spec("h", json!({}), "d"), &artifact("https://a", None)), base);
    }
}
