//! Distinguished names: those of certificates, and those that a policy trusts.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use const_oid::ObjectIdentifier;
use const_oid::db::{rfc3280, rfc4519};
use der::asn1::{BmpString, Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use der::{Tag, Tagged};
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::name::Name;

/// The attributes that have a short name, as RFC 4514 and Go's printer know them.
const ATTRIBUTES: [(&str, ObjectIdentifier); 12] = [
    ("C", rfc4519::C),
    ("ST", rfc4519::ST),
    ("L", rfc4519::L),
    ("O", rfc4519::O),
    ("OU", rfc4519::OU),
    ("CN", rfc4519::CN),
    ("STREET", rfc4519::STREET),
    ("SERIALNUMBER", rfc4519::SERIAL_NUMBER),
    ("POSTALCODE", rfc4519::POSTAL_CODE),
    ("DC", rfc4519::DC),
    ("UID", rfc4519::UID),
    ("EMAILADDRESS", rfc3280::EMAIL_ADDRESS),
];

/// What an identity must at least say, so that it cannot mean half of the world.
const MANDATORY: [(&str, ObjectIdentifier); 3] =
    [("C", rfc4519::C), ("ST", rfc4519::ST), ("O", rfc4519::O)];

/// Attributes that a certificate's subject must have, each with exactly this value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectPattern {
    written: String,
    attributes: BTreeMap<ObjectIdentifier, String>,
}

/// Why a text is no pattern for subjects.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not of the form of RFC 4514.
    #[error("{0} is no distinguished name: {1}")]
    Syntax(String, &'static str),
    /// An attribute that has no name here.
    #[error("{0} names the attribute {1}, which is not known")]
    Unknown(String, String),
    /// Two values for one attribute.
    #[error("{0} names the attribute {1} twice")]
    Twice(String, &'static str),
    /// Too little to mean somebody.
    #[error("{0} lacks {1}; an identity needs C, ST and O")]
    Missing(String, &'static str),
}

impl SubjectPattern {
    /// Reads `C=US, ST=WA, O=Acme\, Inc.`: attributes in any order, values escaped as in RFC 4514.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        // Not the end: a space there may be escaped, and counts then.
        let written = text.trim_start().to_owned();
        let syntax = |why| PatternError::Syntax(written.clone(), why);
        let mut attributes = BTreeMap::new();
        for part in split(&written).map_err(syntax)? {
            let (key, raw) = part.split_once('=').ok_or_else(|| syntax("an attribute has no ="))?;
            let key = key.trim().to_ascii_uppercase();
            // What Windows and OpenSSL print for the state.
            let wanted = if key == "S" { "ST" } else { key.as_str() };
            let (name, oid) = ATTRIBUTES
                .into_iter()
                .find(|(name, _)| *name == wanted)
                .ok_or_else(|| PatternError::Unknown(written.clone(), key.clone()))?;
            let value = unescape(raw).map_err(syntax)?;
            if attributes.insert(oid, value).is_some() {
                return Err(PatternError::Twice(written, name));
            }
        }
        for (name, oid) in MANDATORY {
            if !attributes.contains_key(&oid) {
                return Err(PatternError::Missing(written, name));
            }
        }
        Ok(Self { written, attributes })
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.written
    }

    /// Whether whoever fits `self` fits `other`, too.
    pub(super) fn implies(&self, other: &Self) -> bool {
        other.attributes.iter().all(|(oid, value)| self.attributes.get(oid) == Some(value))
    }

    /// Whether `subject` has every attribute of this, each once and alone in its place.
    ///
    /// A subject that says two things of one attribute is nobody's: which of both an authority
    /// checked cannot be told.
    pub(super) fn fits(&self, subject: &Name) -> bool {
        let mut found = BTreeMap::new();
        for place in &subject.0 {
            if place.0.len() != 1 {
                return false;
            }
            for attribute in place.0.iter() {
                let value = text(attribute);
                if found.insert(attribute.oid, value).is_some() {
                    return false;
                }
            }
        }
        self.attributes
            .iter()
            .all(|(oid, value)| found.get(oid).is_some_and(|found| found.as_ref() == Some(value)))
    }
}

/// A name as people read it, the most special attribute first; nothing in it moves a cursor.
pub(super) fn shown(name: &Name) -> String {
    let mut line = String::new();
    for place in name.0.iter().rev() {
        if !line.is_empty() {
            line.push(',');
        }
        for (at, attribute) in place.0.iter().enumerate() {
            if at > 0 {
                line.push('+');
            }
            show(&mut line, attribute);
        }
    }
    line
}

fn show(line: &mut String, attribute: &AttributeTypeAndValue) {
    let known = ATTRIBUTES.into_iter().find(|(_, oid)| *oid == attribute.oid);
    match (known, text(attribute)) {
        (Some((name, _)), Some(value)) => {
            line.push_str(name);
            line.push('=');
            for character in value.chars() {
                match character {
                    '"' | '+' | ',' | ';' | '<' | '>' | '\\' => {
                        line.push('\\');
                        line.push(character);
                    }
                    other => line.extend(other.escape_debug()),
                }
            }
        }
        _ => {
            let value = portolan_core::hex(attribute.value.value());
            write!(line, "{}=#{value}", attribute.oid).expect("a String takes all that is written");
        }
    }
}

/// The value as text; none when it is of a kind that holds none.
fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    match value.tag() {
        Tag::Utf8String => Some(Utf8StringRef::try_from(value).ok()?.as_str().to_owned()),
        Tag::PrintableString => Some(PrintableStringRef::try_from(value).ok()?.as_str().to_owned()),
        Tag::Ia5String => Some(Ia5StringRef::try_from(value).ok()?.as_str().to_owned()),
        Tag::TeletexString => Some(TeletexStringRef::try_from(value).ok()?.as_str().to_owned()),
        Tag::BmpString => Some(value.decode_as::<BmpString>().ok()?.to_string()),
        _ => None,
    }
}

/// The parts between commas that are not escaped.
fn split(text: &str) -> Result<Vec<&str>, &'static str> {
    let mut parts = Vec::new();
    let (mut start, mut escaped) = (0, false);
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            '+' => return Err("several attributes in one place are not taken"),
            ';' | '"' | '<' | '>' => return Err("a character that must be escaped is not"),
            _ => {}
        }
    }
    if escaped {
        return Err("it ends in an escape");
    }
    parts.push(&text[start..]);
    Ok(parts)
}

/// The value that `raw` stands for: spaces around it do not count unless they are escaped.
fn unescape(raw: &str) -> Result<String, &'static str> {
    let trimmed = raw.trim_start();
    if trimmed.starts_with('#') {
        return Err("values in hex are not taken");
    }
    let mut bytes = Vec::new();
    // Where the value ends if only plain spaces follow.
    let mut kept = 0;
    let mut rest = trimmed.chars();
    while let Some(character) = rest.next() {
        if character != '\\' {
            bytes.extend(character.encode_utf8(&mut [0; 4]).as_bytes());
            if character != ' ' {
                kept = bytes.len();
            }
            continue;
        }
        match rest.next() {
            Some(special @ (' ' | '"' | '#' | '+' | ',' | ';' | '<' | '=' | '>' | '\\')) => {
                bytes.push(u8::try_from(special).expect("one of the ASCII characters above"));
            }
            Some(high) => {
                let low = rest.next().and_then(|low| low.to_digit(16));
                let (Some(high), Some(low)) = (high.to_digit(16), low) else {
                    return Err("an escape is neither a special character nor two hex digits");
                };
                bytes.push(u8::try_from(high * 16 + low).expect("two hex digits are a byte"));
            }
            None => return Err("it ends in an escape"),
        }
        kept = bytes.len();
    }
    bytes.truncate(kept);
    if bytes.is_empty() {
        return Err("a value is empty");
    }
    String::from_utf8(bytes).map_err(|_| "a value is not UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::str::FromStr as _;

    fn fits(pattern: &str, subject: &str) -> bool {
        let subject = Name::from_str(subject).unwrap();
        SubjectPattern::parse(pattern).unwrap().fits(&subject)
    }

    #[test]
    fn a_subject_may_say_more_but_not_less_or_other() {
        let subject = "CN=build,OU=ci,O=Acme,L=Seattle,ST=WA,C=US";
        assert!(fits("C=US,ST=WA,O=Acme", subject));
        assert!(fits(" O = Acme , ST=WA,C=US,CN=build", subject));
        assert!(fits("C=US,S=WA,O=Acme", subject));
        assert!(!fits("C=US,ST=WA,O=Acme,CN=other", subject));
        assert!(!fits("C=US,ST=WA,O=acme", subject));
        assert!(!fits("C=US,ST=WA,O=Acme,DC=x", subject));
        assert!(!fits("C=US,ST=WA,O=Acme", "O=Acme,O=Evil,ST=WA,C=US"));
        assert!(!fits("C=US,ST=WA,O=Acme", "O=Acme+CN=x,ST=WA,C=US"));
    }

    #[test]
    fn escapes_are_rfc_4514s() {
        assert!(fits(r"C=US,ST=WA,O=Acme\, Inc.", r"O=Acme\, Inc.,ST=WA,C=US"));
        assert!(fits(r"C=US,ST=WA,O=Acme\2C Inc.", r"O=Acme\, Inc.,ST=WA,C=US"));
        assert!(fits(r"C=US,ST=WA,O=M\C3\BCller", "O=Müller,ST=WA,C=US"));
        assert!(!fits(r"C=US,ST=WA,O=Acme\ ", "O=Acme,ST=WA,C=US"));
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_the_reason() {
        for (text, why) in [
            ("C=US,ST=WA", "lacks O"),
            ("", "has no ="),
            ("C=US,ST=WA,O=A,O=B", "O twice"),
            ("C=US,ST=WA,O=A,XX=B", "XX, which is not known"),
            ("C=US,ST=WA,O=A+CN=x", "several attributes"),
            ("C=US,ST=WA,O=#0c", "hex"),
            ("C=US,ST=WA,O=", "empty"),
            (r"C=US,ST=WA,O=A\", "ends in an escape"),
            (r"C=US,ST=WA,O=A\zz", "neither"),
            (r#"C=US,ST=WA,O="A""#, "must be escaped"),
            (r"C=US,ST=WA,O=\ff", "UTF-8"),
        ] {
            let error = SubjectPattern::parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_name_moves_no_cursor() {
        let name = Name::from_str("CN=a\u{1b}[2J\u{202e}b,C=US").unwrap();
        assert_eq!(shown(&name), r"CN=a\u{1b}[2J\u{202e}b,C=US");
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_or_refused(text in ".{0,60}") {
            let _ = SubjectPattern::parse(&text);
            let _ = SubjectPattern::parse(&format!("C=US,ST=WA,O={text}"));
        }

        #[test]
        fn an_escaped_value_means_itself(value in "[a-zA-Z0-9,+\"\\\\<>;= #é]{1,20}") {
            let escaped: String = value.bytes().map(|byte| format!("\\{byte:02x}")).collect();
            let pattern = SubjectPattern::parse(&format!("C=US,ST=WA,O={escaped}")).unwrap();
            prop_assert_eq!(&pattern.attributes[&rfc4519::O], &value);
        }
    }
}
