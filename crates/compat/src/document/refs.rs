//! References between namespaces: names as they are written, then what they mean.

use std::collections::BTreeSet;

use super::{NamespaceId, Refs};
use crate::diagnostic::{Code, Diagnostics, pointer};
use crate::json::{Place, Spanned, Value};
use crate::text::short;

use super::read::{object, unknown_field, wrong_type};

const FIELDS: [&str; 3] = ["all", "oneOf", "noneOf"];

/// A name in a list, before it is looked up. Where it is written is put together for a remark
/// only: a document may hold a million names.
struct Named<'a> {
    name: &'a str,
    place: Place,
    /// Which of its list.
    n: usize,
}

/// The references of a namespace as they are written.
#[derive(Default)]
pub(super) struct NamedRefs<'a> {
    /// The JSON pointer to them.
    path: String,
    all: Vec<Named<'a>>,
    one_of: Option<Vec<Named<'a>>>,
    none_of: Vec<Named<'a>>,
}

/// Whether this is what `refs` looks like: what stands among the plugins may be a plugin.
pub(super) fn looks_like_refs(value: &Spanned) -> bool {
    let strings = |list: &Spanned| match &list.value {
        Value::Array(items) => items.iter().all(|item| matches!(item.value, Value::String(_))),
        _ => false,
    };
    match &value.value {
        Value::Object(members) => members
            .iter()
            .all(|member| FIELDS.contains(&member.key.as_str()) && strings(&member.value)),
        _ => false,
    }
}

impl<'a> NamedRefs<'a> {
    pub(super) fn read(value: &'a Spanned, path: &str, found: &mut Diagnostics) -> Self {
        let mut refs = Self { path: path.to_owned(), ..Self::default() };
        let Some(fields) = object(value, path, "`refs`", found) else { return refs };
        for field in fields {
            let key = field.key.as_str();
            if !FIELDS.contains(&key) {
                unknown_field(field, path, &FIELDS, found);
                continue;
            }
            let at = pointer(path, key);
            let Value::Array(items) = &field.value.value else {
                wrong_type(&field.value, &at, "an array of namespace names", found);
                continue;
            };
            let mut named = Vec::with_capacity(items.len());
            for (n, item) in items.iter().enumerate() {
                match &item.value {
                    Value::String(name) => named.push(Named { name, place: item.place, n }),
                    _ => wrong_type(item, &format!("{at}/{n}"), "a namespace name", found),
                }
            }
            if items.is_empty() {
                let (code, message) = match key {
                    "oneOf" => (Code::EmptyOneOf, "`oneOf` offers nothing, so it can never hold"),
                    _ => (Code::EmptyList, "an empty list asks for nothing"),
                };
                found.add(code, field.place, &at, message.to_owned());
            }
            match key {
                "all" => refs.all = named,
                "oneOf" => refs.one_of = Some(named),
                _ => refs.none_of = named,
            }
        }
        refs
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.all.len() + self.one_of.as_ref().map_or(0, Vec::len) + self.none_of.len()
    }

    /// Looks them up among `names`, which are in order. What cannot be found is a remark; the rest
    /// goes on, so that one reading tells everything.
    pub(super) fn resolve(&self, own: &str, names: &[&str], found: &mut Diagnostics) -> Refs {
        let mut list = |what: &str, named: &[Named<'_>]| self.list(own, what, named, names, found);
        Refs {
            all: list("all", &self.all),
            one_of: self.one_of.as_ref().map(|named| list("oneOf", named)),
            none_of: list("noneOf", &self.none_of),
        }
    }

    fn list(
        &self,
        own: &str,
        what: &str,
        named: &[Named<'_>],
        names: &[&str],
        found: &mut Diagnostics,
    ) -> Vec<NamespaceId> {
        let mut ids = Vec::with_capacity(named.len());
        let mut seen = BTreeSet::new();
        for one in named {
            let path = || format!("{}/{what}/{}", self.path, one.n);
            let Ok(id) = names.binary_search(&one.name) else {
                let message = format!(
                    "{own:?} refers to {:?} in `{what}`, and there is no such namespace",
                    short(one.name)
                );
                let near = found.guess(one.name, names.iter().copied()).map(str::to_owned);
                found.add_with(Code::Dangling, one.place, &path(), message, near);
                continue;
            };
            if seen.insert(id) {
                ids.push(NamespaceId(id));
            } else {
                let message = format!("{:?} is in `{what}` twice", short(one.name));
                found.add(Code::DuplicateRef, one.place, &path(), message);
            }
        }
        ids
    }
}
