//! Strangers' text in our messages.

/// The beginning of `text`: an error says what was written, but a megabyte of it helps nobody.
pub(crate) fn quote(text: &str) -> String {
    text.chars().take(80).collect()
}
