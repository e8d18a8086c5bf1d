//! What we say to a plugin and how its answer is read: protocol v1, `docs/compat-plugins.md`.
//!
//! Everything that comes back is a stranger's: bounded, parsed strictly, and cleaned before anybody
//! sees it. [`describe`] and [`answer`] are for authors of plugins, too, who want to know whether
//! theirs is understood.

mod answer;
mod description;
mod facts;

use serde_json::{Value, json};

pub use answer::{Said, answer};
pub use description::{Description, describe};
pub use facts::Returned;
pub(super) use facts::selected;

use crate::evaluate::Answer;
use crate::json::{ParseJsonError, Spanned};
use crate::text::shown_up_to;

/// What both sides say that they speak.
pub const API: &str = "imagecompat/v1";

/// A sentence, not a page.
const MAX_TEXT: usize = 1024;
/// Of reasons, facts asked for, and questions to built-in plugins.
const MAX_ITEMS: usize = 64;

/// Why what a plugin printed is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AnswerError {
    /// It printed nothing.
    #[error("it printed nothing on stdout")]
    Empty,
    /// Not JSON that everybody reads alike.
    #[error("it is no JSON: {0}")]
    Json(ParseJsonError),
    /// Not the fields of an answer.
    #[error("it has not the fields of one: {0}")]
    Fields(String),
    /// Another protocol.
    #[error("it speaks {found:?}, not {API:?}")]
    Api {
        /// What it says.
        found: String,
    },
    /// It says one thing and ends with another.
    #[error("it says {result:?} and ends with exit code {code}")]
    Disagrees {
        /// In its answer.
        result: &'static str,
        /// Its exit code.
        code: i32,
    },
    /// Too many of something.
    #[error("it has more than {MAX_ITEMS} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
    },
    /// A fact that there is not, or that is given to nobody.
    #[error("it asks for {name:?}, which {why}")]
    Fact {
        /// As written.
        name: String,
        /// Why not.
        why: &'static str,
    },
    /// A question to something that is not built in.
    #[error("it asks the plugin {name:?}, which is not built in")]
    Ask {
        /// As written.
        name: String,
    },
    /// A fact of its own that cannot be named.
    #[error("its fact {name:?} has no name of letters, digits, `.`, `_` and `-`")]
    FactName {
        /// As written.
        name: String,
    },
}

/// Where a plugin is asked, and about what.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) plugin: &'a str,
    pub(super) namespace: &'a str,
    pub(super) data: Option<&'a Spanned>,
}

impl Question<'_> {
    fn head(&self) -> serde_json::Map<String, Value> {
        let mut head = serde_json::Map::new();
        head.insert("apiVersion".to_owned(), API.into());
        head.insert("plugin".to_owned(), self.plugin.into());
        head.insert("namespace".to_owned(), self.namespace.into());
        let data = self.data.map_or_else(|| json!({}), Spanned::to_json);
        head.insert("data".to_owned(), data);
        head
    }

    /// The input of `describe`.
    pub(super) fn describe(&self) -> Vec<u8> {
        Value::Object(self.head()).to_string().into_bytes()
    }

    /// The input of `check`.
    pub(super) fn check(&self, host: &Host<'_>, answers: &[Value]) -> Vec<u8> {
        let mut request = self.head();
        request.insert(
            "host".to_owned(),
            json!({"root": host.root, "platform": host.platform, "facts": host.facts}),
        );
        request.insert("answers".to_owned(), answers.into());
        Value::Object(request).to_string().into_bytes()
    }
}

/// The host as a plugin is told of it.
#[derive(Debug, Clone)]
pub(super) struct Host<'a> {
    /// Where its files are, if the plugin may read them.
    pub(super) root: Option<&'a str>,
    pub(super) platform: Option<&'a str>,
    pub(super) facts: Value,
}

/// A built-in plugin's answer, as it is handed to a plugin that asked.
pub(super) fn handed(plugin: &str, data: &Value, answer: &Answer) -> Value {
    let reasons: Vec<Value> = answer
        .reasons
        .iter()
        .map(|reason| {
            json!({
                "code": reason.code, "result": reason.verdict, "message": reason.message,
                "expected": reason.expected, "actual": reason.found, "source": reason.source,
            })
        })
        .collect();
    json!({"plugin": plugin, "data": data, "result": answer.verdict, "reasons": reasons})
}

/// The document, and its fields without places.
fn document(stdout: &[u8]) -> Result<(Spanned, Value), AnswerError> {
    if stdout.iter().all(u8::is_ascii_whitespace) {
        return Err(AnswerError::Empty);
    }
    let spanned = crate::json::parse(stdout).map_err(AnswerError::Json)?;
    let value = spanned.to_json();
    match value.get("apiVersion").and_then(Value::as_str) {
        Some(API) => Ok((spanned, value)),
        Some(other) => Err(AnswerError::Api { found: short(other) }),
        None => Err(AnswerError::Fields("`apiVersion` is missing".to_owned())),
    }
}

fn fields<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, AnswerError> {
    // The message may quote what the plugin wrote.
    serde_json::from_value(value)
        .map_err(|error| AnswerError::Fields(shown_up_to(&error.to_string(), MAX_TEXT)))
}

fn short(text: &str) -> String {
    shown_up_to(text, 80)
}

#[cfg(test)]
mod schemas;
