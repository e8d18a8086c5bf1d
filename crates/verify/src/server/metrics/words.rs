//! What is told apart, and the words of its labels.

/// Which cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum CacheName {
    Tag,
    Image,
    Content,
    Verdict,
    Answer,
    Request,
}

impl CacheName {
    pub(super) const ALL: [Self; 6] =
        [Self::Tag, Self::Image, Self::Content, Self::Verdict, Self::Answer, Self::Request];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Tag => "tag",
            Self::Image => "image",
            Self::Content => "content",
            Self::Answer => "answer",
            Self::Request => "request",
            Self::Verdict => "verdict",
        }
    }
}

/// What was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Call {
    Verify,
    Mutate,
    Admission,
}

/// What came of looking for the images of some machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Selected {
    /// Images of an index.
    OfIndex,
    /// The one image that there is.
    Single,
    /// The index has nothing for one of them.
    Nothing,
}

impl Selected {
    pub(super) const ALL: [Self; 3] = [Self::OfIndex, Self::Single, Self::Nothing];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::OfIndex => "selected",
            Self::Single => "single",
            Self::Nothing => "not_found",
        }
    }
}

/// What came of one image in a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Outcome {
    Verified,
    Refused,
    NoPolicy,
    Exempt,
    Pinned,
    Trouble,
}

impl Outcome {
    pub(super) const ALL: [Self; 6] =
        [Self::Verified, Self::Refused, Self::NoPolicy, Self::Exempt, Self::Pinned, Self::Trouble];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Refused => "refused",
            Self::NoPolicy => "no_policy",
            Self::Exempt => "exempt",
            Self::Pinned => "pinned",
            Self::Trouble => "trouble",
        }
    }
}

/// What is read again when it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Input {
    Policy,
    Nodes,
}

impl Input {
    pub(in crate::server) fn word(self) -> &'static str {
        match self {
            Self::Policy => "policy",
            Self::Nodes => "nodes",
        }
    }
}
