//! What went wrong, said so that the line on the console tells what to look at.

use std::fmt;

/// A step that did not work: there is no caller to recover, only a reader of the console.
#[derive(Debug)]
pub(crate) struct Failed {
    step: String,
    cause: String,
}

impl Failed {
    pub(crate) fn new(step: impl Into<String>, cause: impl fmt::Display) -> Self {
        Self { step: step.into(), cause: cause.to_string() }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "could not {}: {}", self.step, self.cause)
    }
}

/// Names the step that an error ended.
pub(crate) trait Step<T> {
    /// `verb` and what it was done to.
    fn step(self, verb: &str, what: impl fmt::Display) -> Result<T, Failed>;
}

impl<T, E: fmt::Display> Step<T> for Result<T, E> {
    fn step(self, verb: &str, what: impl fmt::Display) -> Result<T, Failed> {
        self.map_err(|cause| Failed::new(format!("{verb} {what}"), cause))
    }
}
