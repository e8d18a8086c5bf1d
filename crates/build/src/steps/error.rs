//! Why a step failed: a word for the BuildRun, a sentence for people, a number for the container.

use std::error::Error;
use std::fmt;

use portolan_registry::ErrorClass;
use portolan_registry::copy::CopyError;
use portolan_registry::images::{ImageError, ResolveError};

/// Why a step failed.
#[derive(Debug)]
pub struct StepError {
    /// What the result `shp-error-reason` says.
    pub reason: &'static str,
    /// What the container exits with.
    pub exit: u8,
    what: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for StepError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

/// The answer is no.
const NO: u8 = 1;
const BAD_INPUT: u8 = 2;
const NOT_FOUND: u8 = 4;
const TROUBLE: u8 = 5;

impl StepError {
    /// A step that failed by itself.
    pub fn new(reason: &'static str, exit: u8, what: impl Into<String>) -> Self {
        Self { reason, exit, what: what.into(), source: None }
    }

    /// Input that cannot be used.
    pub(crate) fn bad(reason: &'static str, what: impl Into<String>) -> Self {
        Self::new(reason, BAD_INPUT, what)
    }

    /// The question was understood, and the answer is no.
    pub(crate) fn no(reason: &'static str, what: impl Into<String>) -> Self {
        Self::new(reason, NO, what)
    }

    /// A step that failed because of something below it.
    pub(crate) fn of(
        reason: &'static str,
        class: Option<ErrorClass>,
        what: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        let exit = match class {
            None => NO,
            Some(ErrorClass::BadInput) => BAD_INPUT,
            Some(ErrorClass::NotFound) => NOT_FOUND,
            Some(ErrorClass::Denied | ErrorClass::Transport | ErrorClass::Local) => TROUBLE,
        };
        Self { reason, exit, what: what.into(), source: Some(Box::new(source)) }
    }

    pub(crate) fn image(reason: &'static str, what: impl Into<String>, source: ImageError) -> Self {
        Self::of(reason, Some(source.class()), what, source)
    }

    pub(crate) fn resolve(
        reason: &'static str,
        what: impl Into<String>,
        source: ResolveError,
    ) -> Self {
        Self::of(reason, source.class(), what, source)
    }

    pub(crate) fn copy(reason: &'static str, what: impl Into<String>, source: CopyError) -> Self {
        Self::of(reason, source.class(), what, source)
    }

    /// Something on this machine.
    pub(crate) fn local(
        reason: &'static str,
        what: impl Into<String>,
        source: impl Error + Send + Sync + 'static,
    ) -> Self {
        Self::of(reason, Some(ErrorClass::Local), what, source)
    }
}
