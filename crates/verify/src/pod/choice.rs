//! What is said of the operating system and the architecture of a node.

use std::collections::BTreeSet;

use portolan_core::platform::PartialPlatform;

use super::MAX_PLATFORMS;

/// What one half of a platform may be.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Choice {
    #[default]
    Any,
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
}

impl Choice {
    pub(super) fn one(value: &str) -> Self {
        Self::In(BTreeSet::from([value.to_owned()]))
    }

    /// Something is said that is not understood: no value is ruled out, and none is the default.
    pub(super) fn unclear() -> Self {
        Self::NotIn(BTreeSet::new())
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Any, other) | (other, Self::Any) => other.clone(),
            (Self::In(a), Self::In(b)) => Self::In(a & b),
            (Self::In(a), Self::NotIn(b)) | (Self::NotIn(b), Self::In(a)) => Self::In(a - b),
            (Self::NotIn(a), Self::NotIn(b)) => Self::NotIn(a | b),
        }
    }

    pub(super) fn allows(&self, value: &str) -> bool {
        match self {
            Self::Any => true,
            Self::In(values) => values.contains(value),
            Self::NotIn(values) => !values.contains(value),
        }
    }

    pub(super) fn is_pinned(&self) -> bool {
        matches!(self, Self::In(_))
    }

    fn is_impossible(&self) -> bool {
        matches!(self, Self::In(values) if values.is_empty())
    }

    /// Whether it says something that cannot be listed: without knowing which nodes there are, all
    /// but one is as many as all, and so are very many.
    fn is_vague(&self) -> bool {
        match self {
            Self::Any => false,
            Self::In(values) => values.len() > MAX_PLATFORMS,
            Self::NotIn(_) => true,
        }
    }

    /// The values by name, or none for whatever cannot be listed.
    fn listed(&self) -> Vec<Option<&str>> {
        match self {
            Self::In(values) if !self.is_vague() => {
                values.iter().map(|value| Some(value.as_str())).collect()
            }
            Self::Any | Self::In(_) | Self::NotIn(_) => vec![None],
        }
    }
}

/// One way in which everything that a pod says can hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    pub(super) os: Choice,
    pub(super) arch: Choice,
    /// Only nodes of these names.
    pub(super) names: Option<BTreeSet<String>>,
}

impl Way {
    pub(super) fn of(platform: &PartialPlatform) -> Self {
        let choice = |half: Option<&str>| half.map(Choice::one).unwrap_or_default();
        Self { os: choice(platform.os()), arch: choice(platform.architecture()), names: None }
    }

    /// Something is said of the platform that is not understood.
    pub(super) fn unclear() -> Self {
        Self { os: Choice::unclear(), arch: Choice::unclear(), names: None }
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        let names = match (&self.names, &other.names) {
            (Some(a), Some(b)) => Some(a & b),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        Self { os: self.os.and(&other.os), arch: self.arch.and(&other.arch), names }
    }

    pub(super) fn is_impossible(&self) -> bool {
        self.os.is_impossible()
            || self.arch.is_impossible()
            || self.names.as_ref().is_some_and(BTreeSet::is_empty)
    }

    /// Whether nothing is said of the platform.
    pub(super) fn is_silent(&self) -> bool {
        self.os == Choice::Any && self.arch == Choice::Any
    }

    /// Whether it says something that cannot be listed.
    pub(super) fn is_vague(&self) -> bool {
        self.os.is_vague() || self.arch.is_vague() || self.is_wide()
    }

    /// Whether its halves go together in too many ways.
    fn is_wide(&self) -> bool {
        self.os.listed().len() * self.arch.listed().len() > MAX_PLATFORMS
    }

    /// The platforms it means where nobody knows which nodes there are.
    pub(super) fn product(&self) -> Vec<PartialPlatform> {
        let arches = if self.is_wide() { vec![None] } else { self.arch.listed() };
        let with = |os: Option<&str>| {
            arches.iter().map(move |arch| PartialPlatform::new(os, *arch)).collect::<Vec<_>>()
        };
        self.os.listed().into_iter().flat_map(with).collect()
    }

    /// The part of `known` that it means.
    pub(super) fn within(&self, known: &PartialPlatform) -> Vec<PartialPlatform> {
        let half = |choice: &Choice, known: Option<&str>| -> Vec<Option<String>> {
            match known {
                Some(value) if choice.allows(value) => vec![Some(value.to_owned())],
                Some(_) => Vec::new(),
                None => choice.listed().into_iter().map(|v| v.map(str::to_owned)).collect(),
            }
        };
        let (all_os, all_arch) =
            (half(&self.os, known.os()), half(&self.arch, known.architecture()));
        let mut found = Vec::new();
        for os in &all_os {
            for arch in &all_arch {
                let one = PartialPlatform::new(os.as_deref(), arch.as_deref());
                // What is known may say a variant too.
                found.push(if one.covers(known) { known.clone() } else { one });
            }
        }
        found
    }
}
