//! Why something is not built.

use std::fmt;

use portolan_api::reason::Reason;
use serde::Serialize;

/// One reason why a run is refused before anything is made for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Refusal {
    /// In one word, as it is written to a status.
    pub reason: Reason,
    /// In a sentence.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message)
    }
}

/// All that speaks against a run, in the order in which it is looked at. A status has room for
/// one: the first.
#[derive(Debug, Default)]
pub(super) struct Refusals(pub(super) Vec<Refusal>);

impl Refusals {
    pub(super) fn add(&mut self, reason: Reason, message: impl Into<String>) {
        self.0.push(Refusal { reason, message: message.into() });
    }

    /// `value`, unless something speaks against it.
    pub(super) fn or<T>(self, value: T) -> Result<T, Vec<Refusal>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }
}
