//! How an answer is put into words, the same way by all plugins.

use portolan_host::facts::Found;

use crate::evaluate::Reason;
use crate::expression::{Input, UndecidedError};
use crate::text::shown;
use crate::verdict::Verdict;

/// The provider of all that is answered here.
pub const BUILT_IN: &str = "built-in";

/// The codes of reasons. They never change meaning: scripts filter by them.
pub mod code {
    /// As asked for.
    pub const MET: &str = "MET";
    /// It is not there.
    pub const ABSENT: &str = "ABSENT";
    /// It is there, and is something else.
    pub const DIFFERENT: &str = "DIFFERENT";
    /// It could not be read.
    pub const UNREAD: &str = "UNREAD";
    /// It was read, and cannot be compared.
    pub const UNDECIDED: &str = "UNDECIDED";
    /// The document asks for something that is not understood here.
    pub const DATA: &str = "E_DATA";
    /// Nobody provides the plugin.
    pub const PLUGIN_NOT_FOUND: &str = "E_PLUGIN_NOT_FOUND";
}

/// What a fact is, as far as a test looks at it.
pub(crate) fn input<'a>(found: &Found<'a>) -> Input<'a> {
    match *found {
        Found::Value { value, .. } => Input::Value(value),
        Found::Present { .. } => Input::Flag,
        Found::Absent { .. } => Input::Absent,
        Found::Unknown { why } => Input::Unknown(why),
    }
}

/// What is said in place of a value that is nobody's business.
pub(crate) const NOT_SHOWN: &str = "(not shown)";

/// Why a value cannot be compared, without the value.
pub(crate) fn without_value(error: UndecidedError) -> UndecidedError {
    let value = NOT_SHOWN.to_owned();
    match error {
        UndecidedError::Integer { .. } => UndecidedError::Integer { value },
        UndecidedError::Version { .. } => UndecidedError::Version { value },
        unread @ UndecidedError::Unread { .. } => unread,
    }
}

/// A reason under construction.
#[derive(Debug)]
pub(super) struct Finding<'a> {
    /// What was looked at: `CONFIG_VFIO`, `module vfio_pci`.
    pub what: &'a str,
    /// What was asked for.
    pub expected: String,
}

impl Finding<'_> {
    /// From what the host has and whether that will do.
    pub(super) fn judge(self, found: &Found<'_>, holds: Result<bool, UndecidedError>) -> Reason {
        let what = self.what;
        match (holds, found) {
            (Err(error), Found::Unknown { .. }) => self.unread(&error.to_string()),
            (Err(error), found) => {
                let mut reason = self.reason(Verdict::Unknown, code::UNDECIDED, found);
                reason.message =
                    format!("{what} cannot be compared: {}", shown(&error.to_string()));
                reason
            }
            (Ok(true), found) => {
                let message = match found {
                    Found::Value { value, .. } => format!("{what} is {}", quoted(value)),
                    Found::Absent { .. } => format!("{what} is not there"),
                    _ => format!("{what} is there"),
                };
                Reason { message, ..self.reason(Verdict::Pass, code::MET, found) }
            }
            (Ok(false), Found::Value { value, .. }) => {
                let message = format!("{what} is {}", quoted(value));
                Reason { message, ..self.reason(Verdict::Fail, code::DIFFERENT, found) }
            }
            (Ok(false), Found::Absent { .. }) => {
                let message = format!("{what} is not there");
                Reason { message, ..self.reason(Verdict::Fail, code::ABSENT, found) }
            }
            (Ok(false), found) => {
                let message = format!("{what} is there");
                Reason { message, ..self.reason(Verdict::Fail, code::DIFFERENT, found) }
            }
        }
    }

    /// It could not be found out.
    pub(super) fn unread(self, why: &str) -> Reason {
        let why = shown(why);
        let message = format!("{} could not be found out: {why}", self.what);
        let found = Found::Unknown { why: &why };
        Reason { message, ..self.reason(Verdict::Unknown, code::UNREAD, &found) }
    }

    /// With everything but the message.
    pub(super) fn reason(self, verdict: Verdict, code: &'static str, found: &Found<'_>) -> Reason {
        let (value, source) = match *found {
            Found::Value { value, source } => (Some(shown(value)), Some(source)),
            Found::Present { source } => (Some("there".to_owned()), Some(source)),
            Found::Absent { source } => (Some("not there".to_owned()), Some(source)),
            Found::Unknown { .. } => (None, None),
        };
        Reason {
            verdict,
            code: code.into(),
            message: String::new(),
            expected: Some(self.expected),
            found: value,
            source: source.map(shown),
            remedy: None,
        }
    }
}

/// A value in a sentence.
fn quoted(value: &str) -> String {
    if value.is_empty() { "empty".to_owned() } else { shown(value) }
}

/// The document asks for something that is not understood.
pub(super) fn not_understood(message: String) -> Reason {
    Reason {
        verdict: Verdict::Unknown,
        code: code::DATA.into(),
        message,
        expected: None,
        found: None,
        source: None,
        remedy: Some("see `compat lint`".to_owned()),
    }
}
