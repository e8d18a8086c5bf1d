//! What of a Release is fetched on this host. Pure.

use portolan_api::ResourceExt as _;
use portolan_api::release::{PREFETCH, Release};
use portolan_core::HostPlatform;
use portolan_core::causes::chain;
use portolan_release::choose::choose;
use serde_json::Value;

use crate::image::ResolvedImage;
use crate::spec::ImageSpec;

/// A Release by its names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// All that is kept of a Release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Seconds since 1970; the newest come first.
    pub(super) created: i64,
    /// The one image of it that this host runs; or why there is none.
    pub(super) verdict: Result<ResolvedImage, String>,
}

/// Characters that are kept of why there is no image.
const MAX_WHY: usize = 1024;

/// Reads what the API server has, whatever it is. None where it has no name, by which it could be spoken of.
pub(super) fn read(object: Value, host: &HostPlatform) -> Option<(Key, Entry)> {
    let metadata = &object["metadata"];
    let name = |field: &str| {
        let text = metadata[field].as_str().filter(|text| !text.is_empty() && text.len() <= 253);
        text.map(str::to_owned)
    };
    let key = Key { namespace: name("namespace")?, name: name("name")? };
    let (created, verdict) = match serde_json::from_value::<Release>(object) {
        Ok(release) => {
            let created = release.creation_timestamp().map_or(0, |time| time.0.as_second());
            (created, judge(&release, host))
        }
        Err(error) => (0, Err(format!("it cannot be read: {error}"))),
    };
    // Whoever writes a status chooses how long its texts are, and they are kept for thousands of Releases.
    let verdict = verdict.map_err(|why| why.chars().take(MAX_WHY).collect());
    Some((key, Entry { created, verdict }))
}

/// The image to fetch. What `portolan release workload` would print for this host, of a Release that is Ready as it is
/// now; whether signatures and facts of the host let it in is asked where it is fetched, as for every start.
fn judge(release: &Release, host: &HostPlatform) -> Result<ResolvedImage, String> {
    if release.labels().get(PREFETCH).map(String::as_str) != Some("true") {
        return Err(format!("it has not the label {PREFETCH}=true"));
    }
    if release.metadata.deletion_timestamp.is_some() {
        return Err("it is being deleted".to_owned());
    }
    let chosen = choose(release, host).map_err(|error| chain(&error))?;
    ResolvedImage::from_spec(&ImageSpec::from(&chosen)).map_err(|error| chain(&error))
}

#[cfg(test)]
pub(super) mod tests {
    use portolan_core::Digest;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    pub(in super::super) fn digest(of: &str) -> String {
        Digest::sha256(of.as_bytes()).to_string()
    }

    /// A Release that is Ready, for two platforms.
    pub(in super::super) fn release(name: &str) -> Value {
        let image = |platform: &str| json!({ "platform": platform, "digest": digest(&format!("{name} {platform}")), "size": 1 });
        json!({
            "apiVersion": "portolan.dev/v1alpha1", "kind": "Release",
            "metadata": {
                "name": name, "namespace": "shop", "generation": 2, "resourceVersion": "7",
                "creationTimestamp": "2026-01-01T00:00:00Z", "labels": { PREFETCH: "true" },
            },
            "spec": { "image": "r.example/app:1" },
            "status": {
                "observedGeneration": 2,
                "conditions": [{
                    "type": "Ready", "status": "True", "reason": "Ready", "message": "",
                    "observedGeneration": 2,
                }],
                "repository": "r.example/app", "digest": digest("i"), "indexDigest": digest("i"),
                "resolved": [image("linux/amd64"), image("linux/amd64/v3")],
            },
        })
    }

    pub(in super::super) fn host(platform: &str) -> HostPlatform {
        HostPlatform::named(&platform.parse().unwrap())
    }

    fn verdict(change: impl FnOnce(&mut Value), on: &str) -> Result<ResolvedImage, String> {
        let mut object = release("app");
        change(&mut object);
        read(object, &host(on)).unwrap().1.verdict
    }

    #[test]
    fn a_labelled_release_that_is_ready_is_fetched_as_the_host_would_run_it() {
        for (on, expected) in
            [("linux/amd64", "app linux/amd64"), ("linux/amd64/v4", "app linux/amd64/v3")]
        {
            let image = verdict(|_| {}, on).unwrap();
            assert_eq!(image.resolved_digest.to_string(), digest(expected), "{on}");
            assert_eq!(image.index_digest.unwrap().to_string(), digest("i"));
            assert_eq!(image.reference().registry.to_string(), "r.example");
        }
        let (key, entry) = read(release("app"), &host("linux/amd64")).unwrap();
        assert_eq!(key.to_string(), "shop/app");
        assert_eq!(entry.created, 1_767_225_600);
    }

    #[test]
    fn what_is_not_labelled_not_ready_not_current_or_not_for_this_host_is_not_fetched() {
        type Change = fn(&mut Value);
        let cases: [(Change, &str); 10] = [
            (|one| one["metadata"]["labels"] = json!({}), "label"),
            (|one| one["metadata"]["labels"][PREFETCH] = json!("yes"), "label"),
            (|one| one["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"), "deleted"),
            (|one| one["metadata"]["generation"] = json!(3), "of before"),
            (|one| one["status"]["observedGeneration"] = json!(1), "of before"),
            (|one| one["status"]["conditions"][0]["status"] = json!("False"), "not Ready"),
            (|one| one["status"]["conditions"][0]["status"] = json!("Unknown"), "not Ready"),
            (|one| one["status"] = json!({}), "no status"),
            (|one| one["status"]["resolved"][0]["digest"] = json!("sha256:0"), "digest"),
            (|one| one["status"] = json!("nonsense"), "cannot be read"),
        ];
        for (change, word) in cases {
            let why = verdict(change, "linux/amd64").unwrap_err();
            assert!(why.contains(word), "{word}: {why}");
        }
        let why = verdict(|_| {}, "linux/s390x").unwrap_err();
        assert!(why.contains("runs there"), "{why}");
        // A registry's tag never becomes something to fetch.
        let tagged = |one: &mut Value| one["status"]["repository"] = json!("r.example/app:1");
        assert!(verdict(tagged, "linux/amd64").is_err());
    }

    #[test]
    fn what_has_no_name_is_nothing() {
        for metadata in
            [json!(null), json!({}), json!({ "name": "a" }), json!({ "name": 1, "namespace": "b" })]
        {
            let mut object = release("app");
            object["metadata"] = metadata;
            assert_eq!(read(object, &host("linux/amd64")), None);
        }
    }

    fn rubbish() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 16, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z]{1,8}", inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        /// Only a Ready Release names an image, whatever stands in the place of any part of it.
        #[test]
        fn rubbish_in_a_release_fetches_nothing_else(
            pointer in prop::sample::select(vec![
                "/metadata/labels", "/metadata/generation", "/spec", "/status", "/status/conditions",
                "/status/conditions/0/status", "/status/repository", "/status/resolved",
                "/status/resolved/0", "/status/resolved/0/digest", "/status/resolved/0/platform",
            ]),
            put in rubbish(),
        ) {
            let mut object = release("app");
            *object.pointer_mut(pointer).unwrap() = put;
            if let Some((_, Entry { verdict: Ok(image), .. })) = read(object, &host("linux/amd64/v3")) {
                let known = [digest("app linux/amd64"), digest("app linux/amd64/v3")];
                prop_assert!(known.contains(&image.resolved_digest.to_string()));
            }
        }
    }
}
