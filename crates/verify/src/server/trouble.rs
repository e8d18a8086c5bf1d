//! Whether what went wrong will pass. What does not pass may be kept by whoever asked; what does
//! must not be, or one hiccup of a registry refuses an image for minutes.

use std::error::Error;

use portolan_core::causes::chain;
use portolan_registry::ErrorClass;
use portolan_registry::client::Failure;
use portolan_registry::images::{ImageError, ResolveError};

use crate::collect::CollectError;
use crate::decision::Undecided;
use crate::subjects::FindSubjectsError;

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Trouble {
    /// For programs.
    pub(super) code: Code,
    /// For people.
    pub(super) message: String,
}

/// The kinds of trouble. The words are stable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Code {
    /// The text is no question.
    BadKey,
    /// There is no such image.
    NotFound,
    /// There is, and nothing of the kind can be verified.
    Unusable,
    /// The registry did not answer, answered with an error, or lied.
    Registry,
    /// The registry does not let us in.
    Denied,
    /// There was not enough time.
    Deadline,
    /// This machine failed.
    Internal,
}

impl Code {
    pub(super) const ALL: [Self; 7] = [
        Self::BadKey,
        Self::NotFound,
        Self::Unusable,
        Self::Registry,
        Self::Denied,
        Self::Deadline,
        Self::Internal,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::BadKey => crate::contract::BadKey::CODE,
            Self::NotFound => "NOT_FOUND",
            Self::Unusable => "UNUSABLE",
            Self::Registry => "REGISTRY",
            Self::Denied => "DENIED",
            Self::Deadline => "DEADLINE",
            Self::Internal => "INTERNAL",
        }
    }
}

impl Trouble {
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(super) fn deadline() -> Self {
        let message = "there was not enough time to look at the image; ask again, the work goes on";
        Self::new(Code::Deadline, message)
    }

    /// Whether asking again may help.
    pub(super) fn will_pass(&self) -> bool {
        match self.code {
            Code::BadKey | Code::NotFound | Code::Unusable => false,
            Code::Registry | Code::Denied | Code::Deadline | Code::Internal => true,
        }
    }

    /// As it is told.
    pub(super) fn text(&self) -> String {
        format!("{}: {}", self.code.word(), self.message)
    }

    /// Asking what a tag is, or for a manifest.
    pub(super) fn of_image(error: &ImageError) -> Self {
        Self::told(image(error), error)
    }

    /// Finding what has to be signed.
    pub(super) fn of_subjects(error: &FindSubjectsError) -> Self {
        let code = match error {
            FindSubjectsError::Read(ResolveError::Read(error)) => image(error),
            // These bytes are what their digest says, and will not change.
            FindSubjectsError::Read(_)
            | FindSubjectsError::Unopened { .. }
            | FindSubjectsError::TooMany { .. }
            | FindSubjectsError::TooManyEntries { .. }
            | FindSubjectsError::LongPlatform { .. } => Code::Unusable,
        };
        Self::told(code, error)
    }

    /// Collecting what is attached to it.
    pub(super) fn of_collecting(error: &CollectError) -> Self {
        let code = match error {
            CollectError::TooMuch { .. } | CollectError::TooLarge { .. } => Code::Unusable,
            CollectError::List { source, .. } | CollectError::Read { source, .. } => {
                match image(source) {
                    // The image is there; that a list of it is not, or cannot be read, is no answer.
                    Code::NotFound | Code::Unusable => Code::Registry,
                    code => code,
                }
            }
        };
        Self::told(code, error)
    }

    /// Deciding by a policy in Rego: a busy machine is no reason to refuse an image for long.
    pub(super) fn of_deciding(why: &Undecided) -> Self {
        let code = match why {
            Undecided::Late(_) => Code::Deadline,
            Undecided::Failed(_) => Code::Internal,
        };
        Self::told(code, why)
    }

    fn told(code: Code, error: &dyn Error) -> Self {
        Self { code, message: chain(error) }
    }
}

fn image(error: &ImageError) -> Code {
    match error {
        ImageError::Client(error) if matches!(error.failure(), Failure::Document(_)) => {
            Code::Unusable
        }
        ImageError::TooLarge { .. } | ImageError::Document { .. } => Code::Unusable,
        ImageError::Client(_) | ImageError::Layout(_) => match error.class() {
            ErrorClass::NotFound => Code::NotFound,
            ErrorClass::Denied => Code::Denied,
            // Not what its digest or the protocol says: the registry lies, or somebody on the way.
            ErrorClass::BadInput | ErrorClass::Transport => Code::Registry,
            ErrorClass::Local => Code::Internal,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_core::Digest;

    #[test]
    fn codes_have_words_of_their_own_and_those_that_pass_are_not_for_keeping() {
        let words: std::collections::BTreeSet<_> = Code::ALL.map(Code::word).into_iter().collect();
        assert_eq!(words.len(), Code::ALL.len());
        let passing: Vec<_> =
            Code::ALL.into_iter().filter(|code| Trouble::new(*code, "").will_pass()).collect();
        assert_eq!(passing, [Code::Registry, Code::Denied, Code::Deadline, Code::Internal]);
    }

    #[test]
    fn what_is_in_the_image_itself_does_not_pass() {
        let digest = Digest::sha256(b"x");
        let many = FindSubjectsError::TooMany { top: digest, found: 9 };
        assert_eq!(Trouble::of_subjects(&many).code, Code::Unusable);
        let much = CollectError::TooMuch { subject: digest, what: "artifacts", found: 9, limit: 1 };
        assert_eq!(Trouble::of_collecting(&much).code, Code::Unusable);
        let large = ImageError::TooLarge { digest, size: 9, limit: 1 };
        assert_eq!(Trouble::of_image(&large).code, Code::Unusable);
        // Of something attached to it, that is no answer about the image.
        let attached = CollectError::List { subject: digest, source: Box::new(large) };
        assert_eq!(Trouble::of_collecting(&attached).code, Code::Registry);
    }
}
