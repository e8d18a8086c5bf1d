//! `index.json`, read and changed without losing what other tools wrote into it.

use portolan_core::{Descriptor, Digest, Tag, media_type};
use serde_json::{Map, Value, json};

/// The annotation that holds a tag; skopeo and others may put a whole reference there.
pub(crate) const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// Where containerd puts the full name of what it exports.
pub(crate) const CONTAINERD_NAME: &str = "io.containerd.image.name";

/// The file as JSON. Unknown members and entries survive every change.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct IndexFile {
    root: Map<String, Value>,
    entries: Vec<Entry>,
}

/// One member of `manifests`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    raw: Map<String, Value>,
    /// None when the entry is nothing we can address, such as an unknown digest algorithm.
    descriptor: Option<Descriptor>,
}

impl Entry {
    fn new(raw: Map<String, Value>) -> Self {
        let descriptor = descriptor(&raw);
        Self { raw, descriptor }
    }

    pub(crate) fn descriptor(&self) -> Option<&Descriptor> {
        self.descriptor.as_ref()
    }

    fn is(&self, digest: &Digest) -> bool {
        self.descriptor.as_ref().is_some_and(|d| d.digest == *digest)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.raw.get("annotations")?.get(key)?.as_str()
    }

    fn has_tag(&self, tag: &Tag) -> bool {
        self.name().is_some_and(|name| name.tag() == Some(tag))
    }

    /// What the entry is called, if it is called anything.
    pub(crate) fn name(&self) -> Option<Name> {
        let annotations = [REF_NAME, CONTAINERD_NAME];
        let names = annotations.into_iter().filter_map(|key| self.annotation(key));
        let mut fallback = None;
        for name in names {
            match Name::of(name) {
                named @ (Name::Tag(_) | Name::Full { .. }) => return Some(named),
                other => fallback = fallback.or(Some(other)),
            }
        }
        fallback
    }

    fn unname(&mut self) {
        if let Some(annotations) = self.raw.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(REF_NAME);
            annotations.remove(CONTAINERD_NAME);
            if annotations.is_empty() {
                self.raw.remove("annotations");
            }
        }
        self.descriptor = descriptor(&self.raw);
    }
}

/// How an entry of `index.json` names its image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// A tag, as the specification has it.
    Tag(Tag),
    /// A whole reference; its tag can be asked for too.
    Full { text: String, tag: Tag },
    /// Something else; only the digest leads there.
    Other(String),
}

impl Name {
    fn of(text: &str) -> Self {
        if let Ok(tag) = text.parse() {
            return Self::Tag(tag);
        }
        match text.rsplit_once(':').map(|(_, last)| last.parse()) {
            Some(Ok(tag)) => Self::Full { text: text.to_owned(), tag },
            _ => Self::Other(text.to_owned()),
        }
    }

    pub(crate) fn tag(&self) -> Option<&Tag> {
        match self {
            Self::Tag(tag) | Self::Full { tag, .. } => Some(tag),
            Self::Other(_) => None,
        }
    }
}

/// The whole descriptor, or, where an optional member is not as it should be, its essentials.
fn descriptor(raw: &Map<String, Value>) -> Option<Descriptor> {
    serde_json::from_value(Value::Object(raw.clone())).ok().or_else(|| {
        let media_type = raw.get("mediaType").and_then(Value::as_str).unwrap_or_default();
        let digest = raw.get("digest")?.as_str()?.parse().ok()?;
        Some(Descriptor::new(media_type, digest, raw.get("size")?.as_u64()?))
    })
}

impl IndexFile {
    /// The index of a new layout.
    pub(crate) fn empty() -> Self {
        let mut root = Map::new();
        root.insert("schemaVersion".to_owned(), json!(2));
        root.insert("mediaType".to_owned(), json!(media_type::OCI_INDEX));
        Self { root, entries: Vec::new() }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        let mut root: Map<String, Value> = serde_json::from_slice(bytes)?;
        let entries: Vec<Map<String, Value>> = match root.remove("manifests") {
            None | Some(Value::Null) => Vec::new(),
            Some(manifests) => serde_json::from_value(manifests)?,
        };
        Ok(Self { root, entries: entries.into_iter().map(Entry::new).collect() })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let manifests = self.entries.iter().map(|e| Value::Object(e.raw.clone())).collect();
        let mut root = self.root.clone();
        root.insert("manifests".to_owned(), Value::Array(manifests));
        serde_json::to_vec(&root).expect("JSON values with text keys always serialise")
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Lists a manifest under each of `tags`, or without a name when there is none.
    ///
    /// A tag that pointed elsewhere moves; what it pointed to stays listed without it, because
    /// somebody may still ask for that digest.
    pub(crate) fn put(&mut self, manifest: &Descriptor, tags: &[Tag]) {
        for tag in tags {
            self.untag(tag);
        }
        // The latest push decides the media type, also of entries that have other tags.
        for entry in self.entries.iter_mut().filter(|e| e.is(&manifest.digest)) {
            entry.raw.insert("mediaType".to_owned(), json!(manifest.media_type));
            entry.descriptor = descriptor(&entry.raw);
        }
        if !tags.is_empty() {
            // A named entry lists the digest already; a nameless one beside it says nothing.
            self.entries.retain(|e| !(e.is(&manifest.digest) && e.name().is_none()));
        } else if self.entries.iter().any(|e| e.is(&manifest.digest)) {
            return;
        }
        let named = tags.iter().map(|tag| {
            let mut named = manifest.clone();
            named.annotations.insert(REF_NAME.to_owned(), tag.as_str().to_owned());
            named
        });
        let nameless = tags.is_empty().then(|| manifest.clone());
        for descriptor in named.chain(nameless) {
            match serde_json::to_value(&descriptor) {
                Ok(Value::Object(raw)) => self.entries.push(Entry::new(raw)),
                _ => unreachable!("a descriptor serialises to an object"),
            }
        }
    }

    /// Takes a tag away; the manifest stays listed. False when nothing had that tag.
    pub(crate) fn untag(&mut self, tag: &Tag) -> bool {
        let mut found = false;
        while let Some(at) = self.entries.iter().position(|e| e.has_tag(tag)) {
            found = true;
            let digest = self.entries[at].descriptor.as_ref().map(|d| d.digest);
            let listed_twice = digest
                .is_some_and(|digest| self.entries.iter().filter(|e| e.is(&digest)).count() > 1);
            if listed_twice {
                self.entries.remove(at);
            } else {
                self.entries[at].unname();
            }
        }
        found
    }

    /// Takes every entry of a manifest away, tags included. False when there was none.
    pub(crate) fn remove(&mut self, digest: &Digest) -> bool {
        let before = self.entries.len();
        self.entries.retain(|entry| !entry.is(digest));
        self.entries.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(n: u8) -> Descriptor {
        Descriptor::of(media_type::OCI_MANIFEST, &[n])
    }

    fn tag(text: &str) -> Tag {
        text.parse().unwrap()
    }

    fn listing(index: &IndexFile) -> Vec<(Digest, Option<String>)> {
        let name = |e: &Entry| e.name().and_then(|n| n.tag().map(ToString::to_string));
        index.entries().iter().map(|e| (e.descriptor().unwrap().digest, name(e))).collect()
    }

    #[test]
    fn a_moved_tag_leaves_the_old_manifest_listed() {
        let mut index = IndexFile::empty();
        index.put(&manifest(1), &[tag("a")]);
        index.put(&manifest(2), &[tag("a")]);
        let (one, two) = (manifest(1).digest, manifest(2).digest);
        assert_eq!(listing(&index), [(one, None), (two, Some("a".into()))]);
        assert!(index.untag(&tag("a")));
        assert!(!index.untag(&tag("a")));
        assert_eq!(listing(&index), [(one, None), (two, None)]);
        assert!(index.remove(&one));
        assert!(!index.remove(&one));
    }

    #[test]
    fn pushing_twice_lists_once() {
        let mut index = IndexFile::empty();
        index.put(&manifest(1), &[]);
        index.put(&manifest(1), &[]);
        assert_eq!(listing(&index).len(), 1);
        index.put(&manifest(1), &[tag("a"), tag("b")]);
        index.put(&manifest(1), &[tag("a")]);
        assert_eq!(listing(&index).len(), 2);
        index.untag(&tag("a"));
        assert_eq!(listing(&index), [(manifest(1).digest, Some("b".into()))]);
    }

    #[test]
    fn what_others_wrote_survives_a_change() {
        let foreign = json!({
            "schemaVersion": 2, "vendor": {"x": 1},
            "manifests": [
                {"mediaType": "m", "digest": "blake3:00", "size": 1, "odd": true},
                {"mediaType": media_type::OCI_MANIFEST, "digest": manifest(1).digest, "size": 1,
                 "platform": {"architecture": "amd64"}, "odd": 2},
            ]
        });
        let mut index = IndexFile::parse(&serde_json::to_vec(&foreign).unwrap()).unwrap();
        assert_eq!(index.entries()[1].descriptor().unwrap().digest, manifest(1).digest);
        index.put(&manifest(2), &[tag("a")]);
        let after: Value = serde_json::from_slice(&index.to_bytes()).unwrap();
        assert_eq!(after["vendor"], foreign["vendor"]);
        assert_eq!(after["manifests"][0], foreign["manifests"][0]);
        assert_eq!(after["manifests"][1], foreign["manifests"][1]);
    }

    #[test]
    fn names_of_other_tools_give_a_tag() {
        assert_eq!(Name::of("v1"), Name::Tag(tag("v1")));
        assert_eq!(Name::of("docker.io/library/busybox:1.37").tag(), Some(&tag("1.37")));
        assert_eq!(Name::of("host:5000/repo").tag(), None);
        let containerd = json!({"annotations": {CONTAINERD_NAME: "docker.io/x/y:z", REF_NAME: "z"},
            "digest": manifest(1).digest, "mediaType": "m", "size": 1});
        let entry = Entry::new(containerd.as_object().unwrap().clone());
        assert_eq!(entry.name(), Some(Name::Tag(tag("z"))));
    }
}
