//! What the exit code says. Scripts rely on these numbers; they never change meaning.

use std::process::ExitCode;

use portolan_registry::ErrorClass;

/// The answer as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done, or yes.
    Ok,
    /// The question was understood and the answer is no: unsigned, incompatible, no match.
    No,
    /// The command line or some input is wrong.
    Usage,
    /// Not enough is known to say yes or no.
    CannotTell,
    /// The image, tag, file or object is not there.
    NotFound,
    /// Network, server or disk trouble.
    Transport,
    /// Nothing says what the image needs, or no policy speaks of it.
    NoArtifact,
    /// Somebody asked it to stop, by Ctrl-C or SIGTERM, and it cleaned up. One number for both, which a shell says of
    /// Ctrl-C; who asks twice gets what it says of the second signal.
    Interrupted,
    /// What a step of a build ends with: see `docs/steps.md`.
    Step(u8),
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Ok => 0,
            Exit::No => 1,
            Exit::Usage => 2,
            Exit::CannotTell => 3,
            Exit::NotFound => 4,
            Exit::Transport => 5,
            Exit::NoArtifact => 6,
            Exit::Interrupted => 130,
            Exit::Step(code) => code,
        })
    }
}

/// An error and the exit code it deserves.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) error: anyhow::Error,
}

impl Failure {
    pub(crate) fn new(exit: Exit, error: impl Into<anyhow::Error>) -> Self {
        Self { exit, error: error.into() }
    }

    /// Something the person typed, or a file they gave.
    pub(crate) fn usage(error: impl Into<anyhow::Error>) -> Self {
        Self::new(Exit::Usage, error)
    }
}

impl From<ErrorClass> for Exit {
    fn from(class: ErrorClass) -> Self {
        match class {
            ErrorClass::NotFound => Self::NotFound,
            // What came from outside breaks a rule: the same class as a bad file on disk.
            ErrorClass::BadInput => Self::Usage,
            ErrorClass::Denied | ErrorClass::Transport | ErrorClass::Local => Self::Transport,
        }
    }
}
