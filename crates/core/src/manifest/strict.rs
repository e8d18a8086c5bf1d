//! One walk over untrusted JSON that finds what different readers would read differently, before
//! any of it is believed.

use std::collections::HashSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Levels of nesting a document may have. An index needs five; a reader that recurses needs a
/// bound well below its stack.
pub(super) const MAX_DEPTH: usize = 32;

/// The fields that decide what a document means.
///
/// Readers written in Go take `Layers` for `layers`; others do not. A document that uses such a
/// spelling says two things to two readers, so it is refused.
const FIELDS: [&str; 19] = [
    "schemaVersion",
    "mediaType",
    "artifactType",
    "config",
    "layers",
    "manifests",
    "subject",
    "annotations",
    "digest",
    "size",
    "urls",
    "data",
    "platform",
    "architecture",
    "os",
    "os.version",
    "os.features",
    "variant",
    "fsLayers",
];

/// What the top level of the document says, enough to decide which kind it is.
#[derive(Debug, Default)]
pub(super) struct Outline {
    /// The names of the top-level fields.
    pub(super) fields: HashSet<String>,
    /// The value of `mediaType` where it is a string that is not empty.
    pub(super) media_type: Option<String>,
    /// The value of `schemaVersion` where it is a whole number.
    pub(super) schema_version: Option<u64>,
}

/// A rule that well-formed JSON still broke.
#[derive(Debug)]
pub(super) enum Violation {
    /// An object has this key twice.
    DuplicateKey(String),
    /// A key that is a field's name in other letters.
    Misspelt { found: String, field: &'static str },
    /// Nested deeper than [`MAX_DEPTH`].
    Depth,
}

/// Why [`outline`] gave up.
#[derive(Debug)]
pub(super) struct Fault {
    /// The rule broken; none where the bytes are not JSON at all.
    pub(super) violation: Option<Violation>,
    /// Where.
    pub(super) source: serde_json::Error,
}

/// Reads all of `bytes` once.
pub(super) fn outline(bytes: &[u8]) -> Result<Outline, Fault> {
    let mut state = State::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let walk = Walk { state: &mut state, depth: 0, place: Place::Top };
    match walk.deserialize(&mut deserializer).and_then(|_| deserializer.end()) {
        Ok(()) => Ok(state.outline),
        Err(source) => Err(Fault { violation: state.violation, source }),
    }
}

/// The fields of an image's config that say what it runs on.
const PLATFORM_FIELDS: [&str; 5] = ["os", "architecture", "variant", "os.version", "os.features"];

/// The first key of an image's config that names a field of its platform a second time or in other
/// letters, and that field. Only the top level: labels and the like are free.
pub(super) fn ambiguous_platform(
    bytes: &[u8],
) -> serde_json::Result<Option<(String, &'static str)>> {
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let found = deserializer.deserialize_map(PlatformKeys)?;
    deserializer.end()?;
    Ok(found)
}

struct PlatformKeys;

impl<'de> Visitor<'de> for PlatformKeys {
    type Value = Option<(String, &'static str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an image config")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut seen, mut ambiguous) = (HashSet::new(), None);
        while let Some(key) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            let field = PLATFORM_FIELDS.into_iter().find(|field| same_letters(&key, field));
            if let Some(field) = field
                && (key != field || !seen.insert(field))
            {
                ambiguous.get_or_insert((key, field));
            }
        }
        Ok(ambiguous)
    }
}

#[derive(Default)]
struct State {
    outline: Outline,
    violation: Option<Violation>,
}

/// Where the walk is, as far as the rules differ.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Top,
    /// Free keys: their letters are the author's.
    Annotations,
    Elsewhere,
}

struct Walk<'a> {
    state: &'a mut State,
    depth: usize,
    place: Place,
}

/// A value the outline may need; everything else is only looked at.
enum Scalar {
    Text(String),
    Number(u64),
    Other,
}

impl Walk<'_> {
    fn refuse<E: serde::de::Error>(&mut self, violation: Violation) -> E {
        self.state.violation = Some(violation);
        E::custom("refused")
    }

    /// Going one level down, unless that is too deep.
    fn descend<E: serde::de::Error>(&mut self) -> Result<usize, E> {
        if self.depth == MAX_DEPTH {
            Err(self.refuse(Violation::Depth))
        } else {
            Ok(self.depth + 1)
        }
    }
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Scalar;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Scalar, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Scalar;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Scalar, E> {
        Ok(Scalar::Other)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Scalar, E> {
        Ok(Scalar::Number(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Scalar, E> {
        Ok(Scalar::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Scalar, A::Error> {
        let depth = self.descend()?;
        while seq
            .next_element_seed(Walk { state: &mut *self.state, depth, place: Place::Elsewhere })?
            .is_some()
        {}
        Ok(Scalar::Other)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Scalar, A::Error> {
        let depth = self.descend()?;
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if self.place != Place::Annotations
                && let Some(field) = misspelt(&key)
            {
                return Err(self.refuse(Violation::Misspelt { found: key, field }));
            }
            let place = match key.as_str() {
                "annotations" if self.place != Place::Annotations => Place::Annotations,
                _ => Place::Elsewhere,
            };
            let value = map.next_value_seed(Walk { state: &mut *self.state, depth, place })?;
            if self.place == Place::Top {
                match (key.as_str(), value) {
                    ("mediaType", Scalar::Text(text)) if !text.is_empty() => {
                        self.state.outline.media_type = Some(text);
                    }
                    ("schemaVersion", Scalar::Number(number)) => {
                        self.state.outline.schema_version = Some(number);
                    }
                    _ => {}
                }
            }
            if let Some(duplicate) = seen.replace(key) {
                return Err(self.refuse(Violation::DuplicateKey(duplicate)));
            }
        }
        if self.place == Place::Top {
            self.state.outline.fields = seen;
        }
        Ok(Scalar::Other)
    }
}

/// The field that `key` would be to a reader that ignores case, if it is not spelt like it.
fn misspelt(key: &str) -> Option<&'static str> {
    FIELDS.into_iter().find(|field| *field != key && same_letters(key, field))
}

/// Case folding as Go's JSON reader does it: besides ASCII, the long s and the Kelvin sign.
fn same_letters(key: &str, field: &str) -> bool {
    let fold = |c: char| match c {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        _ => c.to_ascii_lowercase(),
    };
    key.chars().map(fold).eq(field.chars().map(fold))
}
