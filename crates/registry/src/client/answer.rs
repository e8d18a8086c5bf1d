//! The JSON body of an error answer, made safe to show.

use std::fmt;

use portolan_core::terminal::plays;
use serde::Deserialize;

/// More of a message than fits a terminal line or two helps no one.
const MAX_SHOWN: usize = 300;
/// How much of an error answer is read at all.
pub(super) const MAX_ERROR_BODY: usize = 64 * 1024;

/// What a registry said about its refusal: the first code and message of a distribution error
/// body, without control characters and cut to a length for people. Empty when it said nothing readable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ErrorBody {
    /// `MANIFEST_UNKNOWN`, `DENIED`, `TOOMANYREQUESTS` and so on.
    pub code: Option<String>,
    /// The registry's own words.
    pub message: Option<String>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(default)]
    errors: Vec<WireError>,
    // What token servers send instead: OAuth2 errors and Docker Hub's `details`.
    #[serde(default)]
    error: Option<serde_json::Value>,
    #[serde(default)]
    error_description: Option<String>,
    #[serde(default)]
    details: Option<String>,
}

#[derive(Deserialize)]
struct WireError {
    #[serde(default)]
    code: Option<String>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    detail: Option<serde_json::Value>,
}

impl ErrorBody {
    /// Reads a body. Nonsense gives the empty body: the status alone must do then.
    pub fn parse(bytes: &[u8]) -> Self {
        let Some(wire) = bytes
            .get(..bytes.len().min(MAX_ERROR_BODY))
            .and_then(|bytes| serde_json::from_slice::<Wire>(bytes).ok())
        else {
            return Self::default();
        };
        if let Some(first) = wire.errors.into_iter().next() {
            // Some registries put the only useful words into `detail`.
            let detail = first.detail.as_ref().and_then(|d| d.as_str().map(str::to_owned));
            let message = first.message.filter(|m| !m.is_empty()).or(detail);
            return Self { code: first.code.and_then(clean), message: message.and_then(clean) };
        }
        let code = wire.error.as_ref().and_then(|e| e.as_str().map(str::to_owned));
        let message = wire.error_description.or(wire.details);
        Self { code: code.and_then(clean), message: message.and_then(clean) }
    }

    /// Whether the registry gave this code.
    pub fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

/// Strips what could move a terminal's cursor, what nobody sees, and what nobody reads to the end.
fn clean(text: impl AsRef<str>) -> Option<String> {
    let safe = |c: &char| !plays(*c) && !('\u{200b}'..='\u{200d}').contains(c);
    let text: String = text.as_ref().chars().filter(safe).take(MAX_SHOWN).collect();
    let text = text.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

impl fmt::Display for ErrorBody {
    /// Begins with a space, so that it can follow a status.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.code, &self.message) {
            (Some(code), Some(message)) => write!(f, " ({code}: {message})"),
            (Some(text), None) | (None, Some(text)) => write!(f, " ({text})"),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (body, expected) in [
            (
                r#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown","detail":{"x":1}}]}"#,
                " (MANIFEST_UNKNOWN: manifest unknown)",
            ),
            (r#"{"errors":[{"code":"DENIED"}]}"#, " (DENIED)"),
            (
                r#"{"errors":[{"code":"DENIED","message":"","detail":"try later"}]}"#,
                " (DENIED: try later)",
            ),
            (r#"{"errors":[]}"#, ""),
            (r#"{"error":"invalid_grant","error_description":"bad"}"#, " (invalid_grant: bad)"),
            (
                r#"{"details":"incorrect username or password"}"#,
                " (incorrect username or password)",
            ),
            ("<html>", ""),
            ("", ""),
            ("{\"errors\":[{\"message\":\"a\\u001b[31mb\\nc\\u202ed\"}]}", " (a[31mbcd)"),
        ] {
            assert_eq!(ErrorBody::parse(body.as_bytes()).to_string(), expected, "{body}");
        }
    }

    #[test]
    fn long_messages_are_cut() {
        let body = format!(r#"{{"errors":[{{"message":"{}"}}]}}"#, "x".repeat(5000));
        assert_eq!(ErrorBody::parse(body.as_bytes()).message.unwrap().len(), MAX_SHOWN);
    }
}
