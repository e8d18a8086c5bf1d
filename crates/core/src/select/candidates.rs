//! The entries of an index and of the indexes inside it, in the author's order.

use crate::digest::Digest;
use crate::manifest::{Descriptor, Index, media_type};
use crate::platform::Platform;

/// How many indexes may lie inside each other, the outermost counted. Two are in use in the
/// wild; more is a mistake or an attack.
pub const MAX_DEPTH: usize = 4;

/// How many questions one index may cause. Each may be a request to a registry.
pub const MAX_QUESTIONS: usize = 64;

/// How many entries an index and those inside it may have together. One index of 4 MiB has about
/// 28,000 at most.
pub const MAX_ENTRIES: usize = 100_000;

/// Something about an entry that only its content tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// What is in this nested index? Answer with [`Candidates::answer_index`].
    Index(Descriptor),
    /// The index does not say what this manifest runs on; what does its config say? Answer with
    /// [`Candidates::answer_platform`].
    Platform(Descriptor),
}

/// One entry and what is known about it.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) descriptor: Descriptor,
    pub(super) state: State,
    /// The digests of the indexes it lies in, outermost first. Few, so copied.
    ancestors: Vec<Digest>,
}

/// What is known about an entry.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum State {
    /// A manifest for this platform.
    For(Platform),
    /// A manifest, and neither the index nor its config names a platform.
    ForNone,
    /// A manifest whose config nobody has looked at.
    PlatformOpen,
    /// A nested index that nobody has looked into.
    IndexOpen,
    /// A nested index that contains itself.
    Cycle,
    /// A nested index below [`MAX_DEPTH`].
    TooDeep,
    /// A nested index that would make more than [`MAX_ENTRIES`].
    TooMany,
    /// A nested index that was listed before: nothing in it could win over its first listing.
    Repeated,
    /// Neither a manifest nor an index.
    NotAnImage,
}

impl Entry {
    /// What it runs on, as far as that is known.
    pub(super) fn platform(&self) -> Option<&Platform> {
        match &self.state {
            State::For(platform) => Some(platform),
            _ => self.descriptor.platform.as_ref(),
        }
    }
}

/// All entries to choose from.
#[derive(Debug, Clone)]
pub struct Candidates {
    pub(super) entries: Vec<Entry>,
    asked: usize,
}

impl Candidates {
    /// The entries of `index`, whose own digest is `digest`.
    pub fn new(digest: Digest, index: &Index) -> Self {
        Self { entries: entries(index, &[digest]), asked: 0 }
    }

    /// The one manifest that a reference named without any index, for `platform` if its config
    /// says one. It is judged like an entry, so that a pinned manifest gets the same reasons.
    pub fn single(manifest: Descriptor, platform: Option<Platform>) -> Self {
        let state = platform.map_or(State::ForNone, State::For);
        Self {
            entries: vec![Entry { descriptor: manifest, state, ancestors: Vec::new() }],
            asked: 0,
        }
    }

    /// The next thing to find out, or none when all is known or [`MAX_QUESTIONS`] were asked.
    /// The same question comes again until it is answered; an entry with an open question has
    /// no chance in [`super::select`].
    pub fn question(&self) -> Option<Question> {
        if self.asked >= MAX_QUESTIONS {
            return None;
        }
        self.entries.iter().find_map(|entry| match entry.state {
            State::IndexOpen => Some(Question::Index(entry.descriptor.clone())),
            State::PlatformOpen => Some(Question::Platform(entry.descriptor.clone())),
            _ => None,
        })
    }

    /// What is in the nested index `digest`. Its entries take its place.
    pub fn answer_index(&mut self, digest: &Digest, index: &Index) {
        self.asked += 1;
        let is_open =
            |entry: &Entry| entry.state == State::IndexOpen && entry.descriptor.digest == *digest;
        let Some(first) = self.entries.iter().position(is_open) else { return };
        for entry in self.entries[first + 1..].iter_mut().filter(|entry| is_open(entry)) {
            entry.state = State::Repeated;
        }
        if self.entries.len() + index.manifests.len() > MAX_ENTRIES {
            self.entries[first].state = State::TooMany;
            return;
        }
        let mut ancestors = self.entries[first].ancestors.clone();
        ancestors.push(*digest);
        self.entries.splice(first..=first, entries(index, &ancestors));
    }

    /// What the config of the manifest `digest` says it runs on; none where it says nothing.
    pub fn answer_platform(&mut self, digest: &Digest, platform: Option<Platform>) {
        self.asked += 1;
        let state = platform.map_or(State::ForNone, State::For);
        for entry in &mut self.entries {
            if entry.state == State::PlatformOpen && entry.descriptor.digest == *digest {
                entry.state = state.clone();
            }
        }
    }

    /// The first entry that could not be looked into, so that what it holds is not known: a nested
    /// index beyond a bound or inside itself, or one whose question nobody answered.
    pub fn unopened(&self) -> Option<&Descriptor> {
        let closed = |entry: &&Entry| {
            matches!(entry.state, State::IndexOpen | State::TooDeep | State::TooMany | State::Cycle)
        };
        self.entries.iter().find(closed).map(|entry| &entry.descriptor)
    }

    /// The same without the manifest `digest`, wherever it is listed: what remains to choose from
    /// when it was found wanting.
    #[must_use]
    pub fn without(&self, digest: &Digest) -> Self {
        let kept = self.entries.iter().filter(|entry| entry.descriptor.digest != *digest);
        Self { entries: kept.cloned().collect(), asked: self.asked }
    }

    /// How many entries there are in all, of whatever kind.
    pub fn listed(&self) -> usize {
        self.entries.len()
    }

    /// Every entry as it is listed, of whatever kind.
    pub fn descriptors(&self) -> impl Iterator<Item = &Descriptor> {
        self.entries.iter().map(|entry| &entry.descriptor)
    }

    /// Every platform that an entry or its config names.
    pub fn platforms(&self) -> impl Iterator<Item = (&Descriptor, &Platform)> {
        self.entries.iter().flat_map(|entry| {
            let listed = entry.descriptor.platform.as_ref();
            let both = [listed, entry.platform()];
            both.into_iter().flatten().map(|platform| (&entry.descriptor, platform))
        })
    }

    /// Every manifest found, with the platform that is known of it.
    pub fn manifests(&self) -> impl Iterator<Item = (&Descriptor, Option<&Platform>)> {
        self.entries.iter().filter_map(|entry| match &entry.state {
            State::For(platform) => Some((&entry.descriptor, Some(platform))),
            State::ForNone | State::PlatformOpen => Some((&entry.descriptor, None)),
            _ => None,
        })
    }
}

fn entries(index: &Index, ancestors: &[Digest]) -> Vec<Entry> {
    let entry = |descriptor: &Descriptor| Entry {
        state: state(descriptor, ancestors),
        descriptor: descriptor.clone(),
        ancestors: ancestors.to_vec(),
    };
    index.manifests.iter().map(entry).collect()
}

fn state(descriptor: &Descriptor, ancestors: &[Digest]) -> State {
    if media_type::is_index(&descriptor.media_type) {
        return match () {
            () if ancestors.contains(&descriptor.digest) => State::Cycle,
            () if ancestors.len() >= MAX_DEPTH => State::TooDeep,
            () => State::IndexOpen,
        };
    }
    if !media_type::is_manifest(&descriptor.media_type) {
        return State::NotAnImage;
    }
    match &descriptor.platform {
        Some(platform) if !platform.os.is_empty() && !platform.architecture.is_empty() => {
            State::For(platform.clone())
        }
        _ => State::PlatformOpen,
    }
}
