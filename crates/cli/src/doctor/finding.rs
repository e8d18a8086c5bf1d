//! What a check found, and what all of them mean together.

use serde::Serialize;

use crate::exit::Exit;

/// How something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// As it should be.
    Ok,
    /// Not there, which is right for who does not need it.
    Missing,
    /// Something will not work.
    Wrong,
    /// It cannot be told.
    Unknown,
}

impl State {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Wrong => "WRONG",
            Self::Unknown => "unknown",
        }
    }
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    /// `machine` or `cluster`.
    pub(super) half: &'static str,
    /// What was looked at.
    pub(super) check: &'static str,
    pub(super) state: State,
    /// What is there, or not.
    pub(super) found: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) advice: Option<String>,
}

/// A finding of one half; which one is known to who collects them.
pub(super) fn ok(check: &'static str, found: impl Into<String>) -> Finding {
    Finding { half: "", check, state: State::Ok, found: found.into(), advice: None }
}

fn with(check: &'static str, state: State, found: String, advice: String) -> Finding {
    Finding { half: "", check, state, found, advice: Some(advice) }
}

pub(super) fn missing(
    check: &'static str,
    found: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    with(check, State::Missing, found.into(), advice.into())
}

pub(super) fn wrong(
    check: &'static str,
    found: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    with(check, State::Wrong, found.into(), advice.into())
}

pub(super) fn unknown(
    check: &'static str,
    found: impl Into<String>,
    advice: impl Into<String>,
) -> Finding {
    with(check, State::Unknown, found.into(), advice.into())
}

/// What scripts are told: something is wrong; if not, something could not be told; if not, all is well.
pub(super) fn exit(findings: &[Finding]) -> Exit {
    let any = |state: State| findings.iter().any(|one| one.state == state);
    match (any(State::Wrong), any(State::Unknown)) {
        (true, _) => Exit::No,
        (false, true) => Exit::CannotTell,
        (false, false) => Exit::Ok,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_is_told_before_what_cannot_be_told_and_what_is_not_needed_is_no_fault() {
        let (good, none) = (ok("a", "x"), missing("b", "x", "y"));
        let (bad, dark) = (wrong("c", "x", "y"), unknown("d", "x", "y"));
        assert_eq!(exit(&[good.clone(), none.clone()]), Exit::Ok);
        assert_eq!(exit(&[good.clone(), dark.clone()]), Exit::CannotTell);
        assert_eq!(exit(&[dark, bad, none, good]), Exit::No);
        assert_eq!(exit(&[]), Exit::Ok);
    }
}
