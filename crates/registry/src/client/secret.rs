//! Passwords and tokens.

use std::fmt;

use zeroize::Zeroizing;

/// A password or token: wiped from memory when dropped, and without any printed form, so that no
/// log line or error can carry it.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// The text itself, for the one place that sends or stores it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::Secret;

    #[test]
    fn debug_hides_the_text() {
        let shown = format!("{:?}", Secret::new("hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
