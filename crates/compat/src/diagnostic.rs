//! What is wrong with a document, where, and what was probably meant.

use std::fmt;

use serde::Serialize;

use crate::json::Place;
use portolan_core::suggest::nearest;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Severity {
    /// The document means what it says; others who said so did not mean it.
    Note,
    /// The document means something; perhaps not what its author thinks.
    Warning,
    /// The document means nothing.
    Error,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $severity:ident, $strict:ident;)*) => {
        /// What is wrong. The texts never change meaning: scripts filter by them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($(#[$doc])* $name,)* }

        impl Code {
            /// All codes.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As printed.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// How bad it is when documents are read leniently.
            pub fn severity(self) -> Severity {
                match self { $(Self::$name => Severity::$severity,)* }
            }

            /// How bad it is when they are read strictly.
            pub fn strict_severity(self) -> Severity {
                match self { $(Self::$name => Severity::$strict,)* }
            }
        }
    };
}

codes! {
    /// Not JSON.
    Json = "E_JSON", Error, Error;
    /// A key is written twice.
    DuplicateKey = "E_DUPLICATE_KEY", Error, Error;
    /// A value of the wrong kind.
    Type = "E_TYPE", Error, Error;
    /// A field that must be there is not.
    Missing = "E_MISSING", Error, Error;
    /// A version of the schema that is not known here.
    SchemaVersion = "E_SCHEMA_VERSION", Error, Error;
    /// A name that cannot be one.
    Name = "E_NAME", Error, Error;
    /// More than is read.
    Limit = "E_LIMIT", Error, Error;
    /// Namespaces that refer to each other in a circle.
    Cycle = "E_CYCLE", Error, Error;
    /// A reference to a namespace that is not there.
    Dangling = "E_DANGLING", Error, Error;
    /// Required and forbidden at once.
    Contradiction = "E_CONTRADICTION", Error, Error;
    /// `oneOf` without a choice.
    EmptyOneOf = "E_EMPTY_ONE_OF", Error, Error;
    /// A root that asks for nothing makes every host fit.
    EmptyRoot = "E_EMPTY_ROOT", Error, Error;
    /// No namespaces.
    NoNamespaces = "E_NO_NAMESPACES", Error, Error;
    /// `refs` in both places.
    RefsTwice = "E_REFS_TWICE", Error, Error;
    /// A plugin's data that it cannot read.
    Data = "E_DATA", Error, Error;
    /// A plugin source that cannot be used.
    Source = "E_SOURCE", Error, Error;
    /// `refs` among the plugins.
    MisplacedRefs = "W_MISPLACED_REFS", Warning, Error;
    /// `schema` for `schemaVersion`.
    SchemaAlias = "W_SCHEMA_ALIAS", Warning, Error;
    /// A field that means nothing here.
    UnknownField = "W_UNKNOWN_FIELD", Warning, Error;
    /// `source` of a plugin that is built in.
    SourceIgnored = "W_SOURCE_IGNORED", Warning, Error;
    /// A list that asks for nothing.
    EmptyList = "W_EMPTY_LIST", Warning, Warning;
    /// A name twice in one list.
    DuplicateRef = "W_DUPLICATE_REF", Warning, Warning;
    /// A namespace that asks for nothing.
    EmptyNamespace = "W_EMPTY_NAMESPACE", Warning, Warning;
    /// Data that a plugin reads and that can hardly be meant.
    Unlikely = "W_UNLIKELY", Warning, Warning;
    /// A known mistake.
    Hazard = "N_HAZARD", Note, Note;
    /// A plugin that is not built in: it runs only where a policy allows it.
    ExternalPlugin = "W_EXTERNAL_PLUGIN", Warning, Warning;
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// One remark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnostic {
    /// What kind.
    pub code: Code,
    /// How bad, in the mode the document was read in.
    pub severity: Severity,
    /// Where.
    #[serde(flatten)]
    pub place: Place,
    /// Which value, as a JSON pointer.
    pub path: String,
    /// In words.
    pub message: String,
    /// What was probably meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = match self.severity {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{}: {word} {}: {}", self.place, self.code.as_str(), self.message)?;
        match &self.suggestion {
            Some(suggestion) => write!(f, " (did you mean {suggestion}?)"),
            None => Ok(()),
        }
    }
}

/// Collects remarks while a document is read.
#[derive(Debug)]
pub struct Diagnostics {
    strict: bool,
    found: Vec<Diagnostic>,
    left_out: usize,
    failed: bool,
    patterns: usize,
}

/// More remarks than a person reads; a hostile document could cause millions.
const MAX_DIAGNOSTICS: usize = 1000;
/// Guesses at what was meant take time; a document that needs more is not one with a typing error.
const MAX_GUESSES: usize = 50;
/// Patterns of one document. Each takes up to a millisecond to be built.
pub const MAX_PATTERNS: usize = 1000;

impl Diagnostics {
    /// None yet.
    pub fn new(strict: bool) -> Self {
        Self { strict, found: Vec::new(), left_out: 0, failed: false, patterns: 0 }
    }

    /// Adds a remark.
    pub fn add(&mut self, code: Code, place: Place, path: &str, message: String) {
        self.add_with(code, place, path, message, None);
    }

    /// Adds a remark with a guess at what was meant.
    pub fn add_with(
        &mut self,
        code: Code,
        place: Place,
        path: &str,
        message: String,
        suggestion: Option<String>,
    ) {
        let severity = if self.strict { code.strict_severity() } else { code.severity() };
        if self.found.len() >= MAX_DIAGNOSTICS {
            // The first error is never lost: it decides.
            if severity < Severity::Error || self.failed {
                self.left_out += 1;
                return;
            }
        }
        self.failed |= severity == Severity::Error;
        self.found.push(Diagnostic {
            code,
            severity,
            place,
            path: shortened(path),
            message,
            suggestion,
        });
    }

    /// Whether one of them is an error.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Whether so many more patterns may be built.
    pub fn may_build(&mut self, patterns: usize) -> bool {
        self.patterns = self.patterns.saturating_add(patterns);
        self.patterns <= MAX_PATTERNS
    }

    /// The candidate that was probably meant, as long as guessing is worth the time.
    pub fn guess<'a>(
        &self,
        wrong: &str,
        candidates: impl IntoIterator<Item = &'a str>,
    ) -> Option<&'a str> {
        if self.may_guess() { nearest(wrong, candidates) } else { None }
    }

    /// Whether guessing is still worth the time.
    pub(crate) fn may_guess(&self) -> bool {
        self.found.len() < MAX_GUESSES
    }

    /// In the order of the document, and how many were left out.
    pub fn finish(mut self) -> (Vec<Diagnostic>, usize) {
        self.found.sort_by_key(|one| (one.place, one.code));
        (self.found, self.left_out)
    }
}

/// Characters of a JSON pointer that are kept. The names in it are the author's, and a thousand
/// remarks may have the same long one.
const MAX_POINTER: usize = 1000;

fn shortened(path: &str) -> String {
    match path.char_indices().nth(MAX_POINTER) {
        Some((end, _)) => format!("{}…", &path[..end]),
        None => path.to_owned(),
    }
}

/// A JSON pointer one step further.
pub fn pointer(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_say_how_bad_they_are() {
        for code in Code::ALL {
            let letter = match code.severity() {
                Severity::Note => "N_",
                Severity::Warning => "W_",
                Severity::Error => "E_",
            };
            assert!(code.as_str().starts_with(letter), "{code:?}");
            assert!(code.strict_severity() >= code.severity(), "{code:?}");
        }
        let texts: std::collections::BTreeSet<_> = Code::ALL.iter().map(|c| c.as_str()).collect();
        assert_eq!(texts.len(), Code::ALL.len());
    }

    #[test]
    fn an_error_is_never_lost_among_warnings() {
        let mut all = Diagnostics::new(false);
        let place = Place { line: 1, column: 1 };
        for _ in 0..2 * MAX_DIAGNOSTICS {
            all.add(Code::EmptyList, place, "", String::new());
        }
        assert!(!all.failed());
        all.add(Code::Cycle, place, "", String::new());
        assert!(all.failed());
        let (found, left_out) = all.finish();
        assert_eq!((found.len(), left_out), (MAX_DIAGNOSTICS + 1, MAX_DIAGNOSTICS));
    }
}
