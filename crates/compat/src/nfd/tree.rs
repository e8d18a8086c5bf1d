//! YAML or JSON as a tree of bounded size.
//!
//! An alias in YAML stands for what it names, so a page of text can stand for more than any memory
//! holds. Every value that comes out of the reader is counted with its bytes, however it came
//! about.

use std::cell::Cell;
use std::fmt;

use portolan_core::yaml;
use serde::Deserializer;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::ReadNfdError;
use crate::json;

/// Rules in use have a few hundred values.
const MAX_VALUES: usize = 100_000;
/// All texts and keys together: a long one may be named by thousands of aliases.
const MAX_TEXT: usize = 4 * json::MAX_BYTES;
/// As deep as JSON may be.
const MAX_DEPTH: usize = json::MAX_DEPTH;

/// Reads a document. What begins with `{` is JSON, anything else YAML.
pub(super) fn parse(bytes: &[u8]) -> Result<Value, ReadNfdError> {
    if bytes.len() > json::MAX_BYTES {
        return Err(ReadNfdError::TooLarge { size: bytes.len() });
    }
    if bytes.trim_ascii_start().starts_with(b"{") {
        return json::parse(bytes).map(|tree| tree.to_json()).map_err(ReadNfdError::Json);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| ReadNfdError::NotText)?;
    if yaml::is_too_deep(bytes) {
        return Err(ReadNfdError::TooDeep);
    }
    let room = Room { values: Cell::new(MAX_VALUES), bytes: Cell::new(MAX_TEXT) };
    let seed = Bounded { room: &room, depth: 0 };
    seed.deserialize(serde_yaml_ng::Deserializer::from_str(text)).map_err(ReadNfdError::Yaml)
}

/// What may still come.
struct Room {
    values: Cell<usize>,
    bytes: Cell<usize>,
}

impl Room {
    fn value<E: serde::de::Error>(&self) -> Result<(), E> {
        let left = self.values.get().checked_sub(1);
        let left = left.ok_or_else(|| E::custom(format_args!("more than {MAX_VALUES} values")))?;
        self.values.set(left);
        Ok(())
    }

    fn text<E: serde::de::Error>(&self, text: &str) -> Result<(), E> {
        let left = self.bytes.get().checked_sub(text.len());
        let much = || E::custom(format_args!("more than {MAX_TEXT} bytes of text"));
        self.bytes.set(left.ok_or_else(much)?);
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct Bounded<'a> {
    room: &'a Room,
    depth: usize,
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        self.room.value()?;
        if self.depth > MAX_DEPTH {
            return Err(D::Error::custom(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value that JSON has too")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Value, E> {
        self.room.text(value)?;
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let inner = Self { depth: self.depth + 1, ..self };
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(inner)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let inner = Self { depth: self.depth + 1, ..self };
        let mut members = Map::new();
        while let Some(key) = map.next_key::<String>()? {
            self.room.text(&key)?;
            if members.contains_key(&key) {
                let key: String = key.chars().take(80).collect();
                return Err(A::Error::custom(format!("{key:?} is there twice")));
            }
            let value = map.next_value_seed(inner)?;
            members.insert(key, value);
        }
        Ok(Value::Object(members))
    }
}
