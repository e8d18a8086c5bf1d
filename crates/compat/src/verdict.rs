//! Yes, no, and nobody knows: Kleene's logic.
//!
//! With only two values a plugin that broke would count as "no", and forbidding what it looks for
//! would then make the host fit.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whether a requirement is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// It is not.
    Fail,
    /// It could not be found out.
    Unknown,
    /// It is.
    Pass,
}

impl Verdict {
    /// Pass only if both are.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.min(other)
    }

    /// Pass if one is.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        self.max(other)
    }

    /// The contrary; what is unknown stays so.
    #[must_use]
    #[allow(clippy::should_implement_trait, reason = "`!` would read as two-valued")]
    pub fn not(self) -> Self {
        match self {
            Self::Fail => Self::Pass,
            Self::Unknown => Self::Unknown,
            Self::Pass => Self::Fail,
        }
    }

    /// All of them; pass where there are none.
    pub fn all(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().fold(Self::Pass, Self::and)
    }

    /// At least one of them; fail where there are none.
    pub fn any(verdicts: impl IntoIterator<Item = Self>) -> Self {
        verdicts.into_iter().fold(Self::Fail, Self::or)
    }

    /// As in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Unknown => "unknown",
            Self::Pass => "pass",
        }
    }
}

impl From<bool> for Verdict {
    fn from(met: bool) -> Self {
        if met { Self::Pass } else { Self::Fail }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Fail, Pass, Unknown};
    use super::*;

    #[test]
    fn kleenes_tables() {
        let rows = [
            (Pass, Pass, Pass, Pass),
            (Pass, Unknown, Unknown, Pass),
            (Pass, Fail, Fail, Pass),
            (Unknown, Unknown, Unknown, Unknown),
            (Unknown, Fail, Fail, Unknown),
            (Fail, Fail, Fail, Fail),
        ];
        for (a, b, and, or) in rows {
            assert_eq!((a.and(b), b.and(a), a.or(b), b.or(a)), (and, and, or, or), "{a} {b}");
            assert_eq!(a.and(b).not(), a.not().or(b.not()), "De Morgan");
        }
        assert_eq!((Verdict::all([]), Verdict::any([])), (Pass, Fail));
        assert_eq!((Pass.not(), Unknown.not(), Fail.not()), (Fail, Unknown, Pass));
    }
}
