//! Values of the configuration that are more than a number or a text. Each is checked while it is
//! read, so that the parser's error names the line.

use std::time::Duration;

use portolan_core::Platform;
use portolan_core::platform::ParsePlatformError;
use portolan_registry::serving::program;
use serde::Deserialize;

use crate::policy::Pattern;

/// Some repositories, in the words of the policy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ImagePattern(pub Pattern);

impl TryFrom<String> for ImagePattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Pattern::parse(&text).map(Self)
    }
}

/// `os/arch[/variant]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct NodePlatform(pub Platform);

impl TryFrom<String> for NodePlatform {
    type Error = ParsePlatformError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse().map(Self)
    }
}

/// A time as every configuration says it: whole seconds, `"500ms"`, `"30s"`, `"2m"` or `"1h"`; not nothing, and at most a
/// day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "program::Span")]
pub struct Span(pub Duration);

impl Span {
    /// Of this many seconds.
    pub(super) const fn seconds(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

impl TryFrom<program::Span> for Span {
    type Error = &'static str;

    fn try_from(program::Span(span): program::Span) -> Result<Self, Self::Error> {
        let fits = !span.is_zero() && span <= Duration::from_secs(24 * 3600);
        fits.then_some(Self(span)).ok_or("a time is more than nothing here, and at most a day")
    }
}
