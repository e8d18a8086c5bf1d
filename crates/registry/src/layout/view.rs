//! What `index.json` means: tags, manifests, referrers, ready to be asked.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use portolan_core::{Descriptor, Digest, Tag};

use super::facts::Facts;
use super::index::{IndexFile, Name};

/// Manifests below indexes are followed this deep.
const MAX_DEPTH: usize = 8;
/// More manifests than this below the listed ones are not looked for.
const MAX_REACHABLE: usize = 100_000;

/// One consistent reading of a layout.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// Every tag, with what it points to. Where two entries have one tag the later one counts:
    /// tools that append without removing write the newer image last.
    pub(crate) tags: BTreeMap<Tag, Descriptor>,
    /// Full names that share a tag and differ, so that the tag alone says too little.
    pub(crate) ambiguous: BTreeMap<Tag, Vec<String>>,
    /// Manifests listed in `index.json`, without the annotations that name them.
    pub(crate) listed: HashMap<Digest, Descriptor>,
    /// Manifests that only an index leads to.
    pub(crate) reachable: HashMap<Digest, Descriptor>,
    /// Referrers by subject, in the order they are listed.
    pub(crate) referrers: HashMap<Digest, Vec<Descriptor>>,
    /// What may be meant when no name is given, each with a name that would say it.
    pub(crate) candidates: Vec<(Digest, String)>,
}

impl View {
    /// Builds the view. `facts` reads one manifest; none means that its content is missing or
    /// unreadable, which hides its relations and nothing else.
    pub(crate) fn build(
        index: &IndexFile,
        facts: &mut dyn FnMut(&Digest) -> Option<Arc<Facts>>,
    ) -> Self {
        let mut view = Self::default();
        view.read_names(index);
        let mut queue = Vec::new();
        let mut seen = BTreeSet::new();
        let mut attached = BTreeSet::new();
        for descriptor in index.entries().iter().filter_map(|e| e.descriptor()) {
            if !seen.insert(descriptor.digest) {
                continue;
            }
            let mut plain = descriptor.clone();
            plain.annotations.clear();
            view.listed.insert(descriptor.digest, plain);
            let Some(facts) = facts(&descriptor.digest) else { continue };
            if let Some(subject) = facts.subject {
                attached.insert(descriptor.digest);
                view.referrers.entry(subject).or_default().push(facts.as_referrer(descriptor));
            }
            queue.push((facts, 1));
        }
        view.read_fallback_tags(facts);
        attached.extend(view.follow(queue, facts));
        view.find_candidates(index, &attached);
        view
    }

    /// The manifest with this digest, listed or below a listed index.
    pub(crate) fn manifest(&self, digest: &Digest) -> Option<&Descriptor> {
        self.listed.get(digest).or_else(|| self.reachable.get(digest))
    }

    fn read_names(&mut self, index: &IndexFile) {
        let mut full: BTreeMap<Tag, Vec<(String, Descriptor)>> = BTreeMap::new();
        for entry in index.entries() {
            let Some(descriptor) = entry.descriptor() else { continue };
            match entry.name() {
                Some(Name::Tag(tag)) => {
                    self.tags.insert(tag, descriptor.clone());
                }
                Some(Name::Full { text, tag }) => {
                    full.entry(tag).or_default().push((text, descriptor.clone()));
                }
                Some(Name::Other(_)) | None => {}
            }
        }
        for (tag, mut named) in full {
            if self.tags.contains_key(&tag) {
                continue;
            }
            let same = named.windows(2).all(|pair| pair[0].1.digest == pair[1].1.digest);
            match named.pop() {
                Some((_, descriptor)) if same => {
                    self.tags.insert(tag, descriptor);
                }
                Some(last) => {
                    let names = named.into_iter().chain([last]).map(|(text, _)| text).collect();
                    self.ambiguous.insert(tag, names);
                }
                None => {}
            }
        }
    }

    /// Registries that lacked the referrers API kept referrers in an index under a tag made of
    /// the subject's digest. The manifests it names count even where they are listed nowhere else.
    fn read_fallback_tags(&mut self, facts: &mut dyn FnMut(&Digest) -> Option<Arc<Facts>>) {
        let lists: Vec<Digest> = self
            .tags
            .iter()
            .filter(|(tag, _)| is_fallback_tag(tag.as_str()))
            .map(|(_, list)| list.digest)
            .collect();
        for list in lists {
            let Some(list) = facts(&list) else { continue };
            for child in &list.children {
                let Some(facts) = facts(&child.digest) else { continue };
                let Some(subject) = facts.subject else { continue };
                let known = self.referrers.entry(subject).or_default();
                if known.iter().all(|referrer| referrer.digest != child.digest) {
                    let child = Descriptor::new(&child.media_type, child.digest, child.size);
                    known.push(facts.as_referrer(&child));
                }
            }
        }
    }

    /// Finds what only indexes lead to; returns every manifest that is part of an index.
    fn follow(
        &mut self,
        mut queue: Vec<(Arc<Facts>, usize)>,
        facts: &mut dyn FnMut(&Digest) -> Option<Arc<Facts>>,
    ) -> BTreeSet<Digest> {
        let mut parts = BTreeSet::new();
        while let Some((parent, depth)) = queue.pop() {
            for child in &parent.children {
                parts.insert(child.digest);
                let known = self.listed.contains_key(&child.digest)
                    || self.reachable.contains_key(&child.digest);
                if known || self.reachable.len() >= MAX_REACHABLE {
                    continue;
                }
                let descriptor = Descriptor::new(&child.media_type, child.digest, child.size);
                self.reachable.insert(child.digest, descriptor);
                // Only an index leads further, so plain manifests below one are not read.
                let leads_on = portolan_core::media_type::is_index(&child.media_type);
                if leads_on && depth < MAX_DEPTH {
                    queue.extend(facts(&child.digest).map(|facts| (facts, depth + 1)));
                }
            }
        }
        parts
    }

    /// Named images count; without any, everything that is neither part of an index nor a
    /// referrer (both are `attached` to something else).
    fn find_candidates(&mut self, index: &IndexFile, attached: &BTreeSet<Digest>) {
        let mut named: Vec<(Digest, String)> = Vec::new();
        let mut nameless: Vec<(Digest, String)> = Vec::new();
        for entry in index.entries() {
            let Some(descriptor) = entry.descriptor() else { continue };
            let digest = descriptor.digest;
            match entry.name() {
                Some(Name::Tag(tag)) => named.push((digest, tag.to_string())),
                Some(Name::Full { text, .. } | Name::Other(text)) => named.push((digest, text)),
                None if attached.contains(&digest) => {}
                None => nameless.push((digest, format!("@{digest}"))),
            }
        }
        self.candidates = if named.is_empty() { nameless } else { named };
    }
}

/// `sha256-<64 hex>` or `sha512-<64 hex>`.
fn is_fallback_tag(tag: &str) -> bool {
    let hex = tag.strip_prefix("sha256-").or_else(|| tag.strip_prefix("sha512-"));
    hex.is_some_and(|hex| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::facts::Child;
    use portolan_core::media_type;

    fn manifest(n: u8) -> Descriptor {
        Descriptor::of(media_type::OCI_MANIFEST, &[n])
    }

    fn build(index: &IndexFile, facts: &[(Digest, Facts)]) -> View {
        let facts: HashMap<_, _> = facts.iter().cloned().collect();
        View::build(index, &mut |digest| facts.get(digest).cloned().map(Arc::new))
    }

    #[test]
    fn full_names_answer_to_their_tag_unless_two_differ() {
        let entry = |n: u8, name: &str| {
            serde_json::json!({"mediaType": "m", "size": 1, "digest": manifest(n).digest,
                "annotations": {crate::layout::index::REF_NAME: name}})
        };
        let file = serde_json::json!({"manifests": [
            entry(1, "a/b:one"), entry(2, "c/d:two"), entry(3, "e/f:two"), entry(4, "x"), entry(5, "x")
        ]});
        let index = IndexFile::parse(&serde_json::to_vec(&file).unwrap()).unwrap();
        let view = build(&index, &[]);
        assert_eq!(view.tags[&"one".parse().unwrap()].digest, manifest(1).digest);
        assert_eq!(view.tags[&"x".parse().unwrap()].digest, manifest(5).digest);
        assert_eq!(view.ambiguous[&"two".parse().unwrap()], ["c/d:two", "e/f:two"]);
    }

    #[test]
    fn children_are_reached_and_a_cycle_ends() {
        let child = |n: u8, media_type: &str| Child {
            media_type: media_type.into(),
            digest: manifest(n).digest,
            size: 1,
        };
        let nested = Facts {
            children: vec![child(3, media_type::OCI_MANIFEST), child(1, media_type::OCI_INDEX)],
            ..Facts::default()
        };
        let top = Facts { children: vec![child(2, media_type::OCI_INDEX)], ..Facts::default() };
        let mut index = IndexFile::empty();
        index.put(&manifest(1), &[]);
        let view = build(&index, &[(manifest(1).digest, top), (manifest(2).digest, nested)]);
        assert!(view.manifest(&manifest(2).digest).is_some());
        assert!(view.manifest(&manifest(3).digest).is_some());
        assert!(view.manifest(&manifest(4).digest).is_none());
    }

    #[test]
    fn parts_and_referrers_are_not_what_a_nameless_reference_means() {
        let child = Child { media_type: "m".into(), digest: manifest(2).digest, size: 1 };
        let top = Facts { children: vec![child], ..Facts::default() };
        let referrer = Facts { subject: Some(manifest(1).digest), ..Facts::default() };
        let mut index = IndexFile::empty();
        for n in 1..=3 {
            index.put(&manifest(n), &[]);
        }
        let facts = [(manifest(1).digest, top), (manifest(3).digest, referrer)];
        let view = build(&index, &facts);
        let candidates: Vec<Digest> = view.candidates.iter().map(|(digest, _)| *digest).collect();
        assert_eq!(candidates, [manifest(1).digest]);
        assert_eq!(view.referrers[&manifest(1).digest][0].digest, manifest(3).digest);
    }
}
