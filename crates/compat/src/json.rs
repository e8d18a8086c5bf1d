//! JSON with places: every value knows the line and column it was written at, and a key that is
//! written twice is seen.
//!
//! serde_json tells neither, and a linter needs both. The reader keeps its own stack, so no
//! document is deep enough to overflow ours.

use std::fmt;

use crate::text::short;

/// No compatibility spec is larger; registries take no larger manifest either.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Levels of nesting. The graph itself needs six; `data` is the author's.
pub const MAX_DEPTH: usize = 100;

/// Line and column, both from 1; columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
pub struct Place {
    /// From 1.
    pub line: u32,
    /// From 1.
    pub column: u32,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Spanned {
    /// Of its first character.
    pub place: Place,
    /// What it is.
    pub value: Value,
}

/// A JSON value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number as serde_json reads it.
    Number(serde_json::Number),
    /// A text.
    String(String),
    /// A list.
    Array(Vec<Spanned>),
    /// Members in the order of the document, each key once.
    Object(Vec<Member>),
}

/// A member of an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Member {
    /// Where the key begins.
    pub place: Place,
    /// Its name.
    pub key: String,
    /// What it holds.
    pub value: Spanned,
}

/// Why a text is not JSON that everybody reads alike.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseJsonError {
    /// Too long to look at.
    #[error("the document has {size} bytes, more than the {MAX_BYTES} that are read")]
    TooLarge {
        /// How many.
        size: usize,
    },
    /// Not JSON.
    #[error("{place}: {what}")]
    Syntax {
        /// Where.
        place: Place,
        /// What is wrong there.
        what: String,
    },
    /// Nested too deeply.
    #[error("{place}: nested deeper than {MAX_DEPTH} levels")]
    TooDeep {
        /// Where.
        place: Place,
    },
    /// One reader would take the first, another the last.
    #[error("{place}: the key {key:?} is written twice, first at {first}")]
    DuplicateKey {
        /// Of the second.
        place: Place,
        /// Of the first.
        first: Place,
        /// Its name.
        key: String,
    },
}

impl ParseJsonError {
    /// Where, as far as there is a place.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::TooLarge { .. } => None,
            Self::Syntax { place, .. }
            | Self::TooDeep { place }
            | Self::DuplicateKey { place, .. } => Some(*place),
        }
    }
}

impl Value {
    /// What it is called in a message.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::String(_) => "a string",
            Self::Array(_) => "an array",
            Self::Object(_) => "an object",
        }
    }
}

impl Spanned {
    /// The member called `key`, if this is an object that has it.
    pub fn get(&self, key: &str) -> Option<&Member> {
        match &self.value {
            Value::Object(members) => members.iter().find(|member| member.key == key),
            _ => None,
        }
    }

    /// Without places. Recursion is bounded by [`MAX_DEPTH`].
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::String(text) => text.clone().into(),
            Value::Array(items) => items.iter().map(Self::to_json).collect(),
            Value::Object(members) => {
                members.iter().map(|m| (m.key.clone(), m.value.to_json())).collect()
            }
        }
    }
}

/// Reads one document.
pub fn parse(bytes: &[u8]) -> Result<Spanned, ParseJsonError> {
    if bytes.len() > MAX_BYTES {
        return Err(ParseJsonError::TooLarge { size: bytes.len() });
    }
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let good = std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default();
            let mut reader = Reader { rest: good, place: Place { line: 1, column: 1 } };
            while reader.next().is_some() {}
            return Err(reader.error("bytes that are not UTF-8"));
        }
    };
    Reader { rest: text, place: Place { line: 1, column: 1 } }.document()
}

struct Reader<'a> {
    rest: &'a str,
    place: Place,
}

/// A container that is not closed yet.
enum Open {
    Array(Place, Vec<Spanned>),
    Object {
        place: Place,
        members: Vec<Member>,
        /// Where each key was first seen.
        seen: std::collections::HashMap<String, Place>,
        /// The key whose value is being read.
        key: (Place, String),
    },
}

impl Reader<'_> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        if c == '\n' {
            self.place = Place { line: self.place.line.saturating_add(1), column: 1 };
        } else {
            self.place.column = self.place.column.saturating_add(1);
        }
        Some(c)
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(' ' | '\t' | '\n' | '\r')) {
            self.next();
        }
    }

    fn error(&self, what: impl Into<String>) -> ParseJsonError {
        ParseJsonError::Syntax { place: self.place, what: what.into() }
    }

    fn found(&self) -> String {
        self.peek().map_or_else(|| "the end".to_owned(), |c| format!("{c:?}"))
    }

    fn expect(&mut self, wanted: char) -> Result<(), ParseJsonError> {
        if self.peek() == Some(wanted) {
            self.next();
            Ok(())
        } else {
            Err(self.error(format!("expected {wanted:?}, found {}", self.found())))
        }
    }

    fn document(mut self) -> Result<Spanned, ParseJsonError> {
        let mut open: Vec<Open> = Vec::new();
        loop {
            self.skip_space();
            let place = self.place;
            let mut done = match self.peek() {
                Some('[') => {
                    self.next();
                    self.skip_space();
                    if self.peek() == Some(']') {
                        self.next();
                        Spanned { place, value: Value::Array(Vec::new()) }
                    } else {
                        open.push(Open::Array(place, Vec::new()));
                        self.bound(&open, place)?;
                        continue;
                    }
                }
                Some('{') => {
                    self.next();
                    self.skip_space();
                    if self.peek() == Some('}') {
                        self.next();
                        Spanned { place, value: Value::Object(Vec::new()) }
                    } else {
                        let mut seen = std::collections::HashMap::new();
                        let key = self.key(&mut seen)?;
                        open.push(Open::Object { place, members: Vec::new(), seen, key });
                        self.bound(&open, place)?;
                        continue;
                    }
                }
                _ => Spanned { place, value: self.scalar()? },
            };
            // A value is complete: hand it to what it is in, as often as that completes, too.
            loop {
                self.skip_space();
                let Some(container) = open.last_mut() else {
                    return match self.peek() {
                        None => Ok(done),
                        Some(_) => {
                            Err(self.error(format!("expected the end, found {}", self.found())))
                        }
                    };
                };
                let more = match container {
                    Open::Array(_, items) => {
                        items.push(done);
                        self.comma_or(']')?
                    }
                    Open::Object { members, key, .. } => {
                        let (place, key) = std::mem::replace(key, (self.place, String::new()));
                        members.push(Member { place, key, value: done });
                        self.comma_or('}')?
                    }
                };
                if more {
                    if let Some(Open::Object { seen, key, .. }) = open.last_mut() {
                        self.skip_space();
                        *key = self.key(seen)?;
                    }
                    break;
                }
                done = match open.pop() {
                    Some(Open::Array(place, items)) => {
                        Spanned { place, value: Value::Array(items) }
                    }
                    Some(Open::Object { place, members, .. }) => {
                        Spanned { place, value: Value::Object(members) }
                    }
                    None => return Err(self.error("a container that was never opened")),
                };
            }
        }
    }

    fn bound(&self, open: &[Open], place: Place) -> Result<(), ParseJsonError> {
        if open.len() > MAX_DEPTH { Err(ParseJsonError::TooDeep { place }) } else { Ok(()) }
    }

    /// Whether another item follows; else the container is closed.
    fn comma_or(&mut self, close: char) -> Result<bool, ParseJsonError> {
        match self.peek() {
            Some(',') => {
                self.next();
                Ok(true)
            }
            Some(c) if c == close => {
                self.next();
                Ok(false)
            }
            _ => Err(self.error(format!("expected ',' or {close:?}, found {}", self.found()))),
        }
    }

    /// A key and its colon.
    fn key(
        &mut self,
        seen: &mut std::collections::HashMap<String, Place>,
    ) -> Result<(Place, String), ParseJsonError> {
        let place = self.place;
        if self.peek() != Some('"') {
            return Err(self.error(format!("expected a key in quotes, found {}", self.found())));
        }
        let key = self.string()?;
        if let Some(first) = seen.insert(key.clone(), place) {
            return Err(ParseJsonError::DuplicateKey { place, first, key: short(&key) });
        }
        self.skip_space();
        self.expect(':')?;
        Ok((place, key))
    }

    fn scalar(&mut self) -> Result<Value, ParseJsonError> {
        match self.peek() {
            Some('"') => Ok(Value::String(self.string()?)),
            Some('-' | '0'..='9') => self.number(),
            Some('a'..='z' | 'A'..='Z') => {
                let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric());
                let word = &self.rest[..end.unwrap_or(self.rest.len())];
                let value = match word {
                    "null" => Value::Null,
                    "true" => Value::Bool(true),
                    "false" => Value::Bool(false),
                    _ => return Err(self.error(format!("{:?} is no JSON value", short(word)))),
                };
                for _ in 0..word.len() {
                    self.next();
                }
                Ok(value)
            }
            _ => Err(self.error(format!("expected a value, found {}", self.found()))),
        }
    }

    /// Grammar and range of numbers are serde_json's.
    fn number(&mut self) -> Result<Value, ParseJsonError> {
        let wordlike = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.');
        let end = self.rest.find(|c| !wordlike(c)).unwrap_or(self.rest.len());
        let text = &self.rest[..end];
        let number = serde_json::from_str(text)
            .map_err(|_| self.error(format!("{:?} is no number that can be kept", short(text))))?;
        for _ in 0..end {
            self.next();
        }
        Ok(Value::Number(number))
    }

    /// Escapes are serde_json's; here only the end is found.
    fn string(&mut self) -> Result<String, ParseJsonError> {
        let (start, whole) = (self.place, self.rest);
        self.next();
        loop {
            match self.next() {
                Some('"') => break,
                Some('\\') => {
                    self.next();
                }
                Some(c) if c < ' ' => {
                    return Err(self.error("a control character in a string; write it as \\u00…"));
                }
                Some(_) => {}
                None => {
                    return Err(ParseJsonError::Syntax {
                        place: start,
                        what: "a string that does not end".to_owned(),
                    });
                }
            }
        }
        let text = &whole[..whole.len() - self.rest.len()];
        serde_json::from_str(text).map_err(|_| ParseJsonError::Syntax {
            place: start,
            what: "a string with an escape that JSON does not have".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn places_are_where_an_editor_would_put_the_cursor() {
        let document = parse("{\n  \"é\": [1,\n   {\"b\": null}]\n}".as_bytes()).unwrap();
        let list = document.get("é").unwrap();
        assert_eq!(
            (list.place.to_string(), list.value.place.to_string()),
            ("2:3".into(), "2:8".into())
        );
        let Value::Array(items) = &list.value.value else { panic!("a list") };
        assert_eq!(items[1].place, Place { line: 3, column: 4 });
        assert_eq!(items[1].get("b").unwrap().place.column, 5);
    }

    #[test]
    fn what_two_readers_would_read_differently_is_refused() {
        assert_eq!(
            error("{\"a\": 1,\n \"a\": 2}"),
            "2:2: the key \"a\" is written twice, first at 1:2"
        );
        // The same key in other letters of JSON.
        assert!(error(r#"{"a": 1, "\u0061": 2}"#).contains("twice"));
    }

    #[test]
    fn what_is_not_json_is_told_with_its_place() {
        for (text, expected) in [
            ("", "1:1: expected a value, found the end"),
            ("{\"a\" 1}", "1:6: expected ':', found '1'"),
            ("{a: 1}", "1:2: expected a key in quotes, found 'a'"),
            ("[1 2]", "1:4: expected ',' or ']', found '2'"),
            ("[1,]", "1:4: expected a value, found ']'"),
            ("{} x", "1:4: expected the end, found 'x'"),
            ("NaN", "1:1: \"NaN\" is no JSON value"),
            ("[1e999]", "1:2: \"1e999\" is no number that can be kept"),
            ("[01]", "1:2: \"01\" is no number that can be kept"),
            ("\"a\nb\"", "2:1: a control character"),
            ("\n \"a", "2:2: a string that does not end"),
            (r#""\x""#, "1:1: a string with an escape"),
        ] {
            let message = error(text);
            assert!(message.starts_with(expected), "{text:?}: {message}");
        }
        assert!(parse(b"[\xff]").unwrap_err().to_string().starts_with("1:2: bytes"));
    }

    #[test]
    fn depth_and_size_are_bounded_without_recursion() {
        let deep = "[".repeat(1_000_000);
        assert!(matches!(parse(deep.as_bytes()), Err(ParseJsonError::TooDeep { .. })));
        let fine = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(parse(fine.as_bytes()).is_ok());
        let huge = vec![b' '; MAX_BYTES + 1];
        assert!(matches!(parse(&huge), Err(ParseJsonError::TooLarge { .. })));
    }

    fn any_json() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            any::<f64>().prop_map(|n| serde_json::json!(n)),
            any::<String>().prop_map(Into::into),
        ];
        leaf.prop_recursive(4, 64, 6, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
                proptest::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|map| serde_json::Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_reads_what_serde_json_reads(value in any_json(), pretty in any::<bool>()) {
            let text = if pretty {
                serde_json::to_string_pretty(&value).unwrap()
            } else {
                value.to_string()
            };
            let expected: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(parse(text.as_bytes()).unwrap().to_json(), expected);
        }

        #[test]
        fn it_accepts_no_more_than_serde_json(text in r#"[\[\]{}:,"\\0-9eE.+\-a-z \n]{0,40}"#) {
            let ours = parse(text.as_bytes());
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            if theirs.is_err() {
                prop_assert!(ours.is_err(), "{text:?}");
            } else if let Err(refused) = ours {
                let duplicate = matches!(refused, ParseJsonError::DuplicateKey { .. });
                prop_assert!(duplicate, "{text:?}: {refused}");
            }
        }
    }
}
