//! One feature of a host, and what a question about it can be answered.

use std::collections::{BTreeMap, BTreeSet};

/// One of several things of a kind, such as a device: its attributes by name.
pub type Instance = BTreeMap<String, String>;

/// What is known of one feature. A feature may be of several kinds at once, as in NFD.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Feature {
    /// Names that are there or not.
    pub flags: Option<BTreeSet<String>>,
    /// Names with a value.
    pub attributes: Option<BTreeMap<String, String>>,
    /// Things of which there may be many.
    pub instances: Option<Vec<Instance>>,
    /// The file or directory it came from.
    pub source: String,
    /// The elements that came from elsewhere, and from where.
    pub sources: BTreeMap<String, String>,
    /// The elements that could not be found out, and why. `*` is why those outside
    /// [`Feature::only`] are not known. Of things of which there may be many: those that could
    /// not be read, by their own names, and `name/attribute` for what one of them does not tell.
    pub unknown: BTreeMap<String, String>,
    /// The elements that were looked for, where that was not all of them. Nothing is known of
    /// the others, not even that they are absent.
    pub only: Option<BTreeSet<String>>,
}

/// The answer to a question about one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<'a> {
    /// It has this value.
    Value {
        /// The value.
        value: &'a str,
        /// What says so.
        source: &'a str,
    },
    /// It is there, and a value is not what it has.
    Present {
        /// What says so.
        source: &'a str,
    },
    /// It is known not to be there.
    Absent {
        /// What would have told it.
        source: &'a str,
    },
    /// Nobody knows.
    Unknown {
        /// Why not.
        why: &'a str,
    },
}

/// A feature of which nothing is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown<'a> {
    /// Why not.
    pub why: &'a str,
}

/// The attribute that tells things apart, of those that have one.
const NAME: &str = "name";

/// What stands for all elements that are not named.
pub(crate) const OTHERS: &str = "*";

/// Why an element outside [`Feature::only`] is unknown.
pub(crate) const NOT_ASKED: &str = "it was not asked for when the facts were collected";

impl Feature {
    /// Flags read from `source`.
    pub fn flags(source: impl Into<String>, flags: BTreeSet<String>) -> Self {
        Self { flags: Some(flags), source: source.into(), ..Self::default() }
    }

    /// Attributes read from `source`.
    pub fn attributes(source: impl Into<String>, attributes: BTreeMap<String, String>) -> Self {
        Self { attributes: Some(attributes), source: source.into(), ..Self::default() }
    }

    /// Instances read from `source`.
    pub fn instances(source: impl Into<String>, instances: Vec<Instance>) -> Self {
        Self { instances: Some(instances), source: source.into(), ..Self::default() }
    }

    /// What one of several things has under this name. Things that have a name are told apart by
    /// it; of the others it is not known whose attribute could not be read
    /// ([`Feature::unread_things`]).
    pub fn of_instance<'a>(&'a self, instance: &'a Instance, attribute: &str) -> Found<'a> {
        if let Some(value) = instance.get(attribute) {
            return Found::Value { value, source: &self.source };
        }
        // Nearly always everything could be read.
        let name = instance.get(NAME).filter(|_| !self.unknown.is_empty());
        match name.and_then(|name| self.unknown.get(&format!("{name}/{attribute}"))) {
            Some(why) => Found::Unknown { why },
            None => Found::Absent { source: &self.source },
        }
    }

    /// Why things, or what nobody can tell whose it is, could not be read: each may be just the
    /// thing that is looked for. Attributes of things that are known are left to
    /// [`Feature::of_instance`].
    pub fn unread_things(&self) -> Vec<&str> {
        if self.unknown.is_empty() {
            return Vec::new();
        }
        let instances = self.instances.iter().flatten();
        let known: BTreeSet<&str> =
            instances.filter_map(|one| one.get(NAME)).map(String::as_str).collect();
        let of_one =
            |element: &str| element.split_once('/').is_some_and(|(name, _)| known.contains(name));
        let unread = self.unknown.iter().filter(|(element, _)| !of_one(element));
        unread.map(|(_, why)| why.as_str()).collect()
    }

    /// What `element` came from.
    pub fn source_of(&self, element: &str) -> &str {
        self.sources.get(element).unwrap_or(&self.source)
    }

    /// The value of an attribute and the name that it has here; with `blind` a name that
    /// differs only in dashes is the same.
    pub(crate) fn value(&self, element: &str, blind: bool) -> Option<(&String, &String)> {
        let attributes = self.attributes.as_ref()?;
        called(|name| attributes.get_key_value(name), attributes.keys(), element, blind)
    }

    /// The name that a flag has here, if it is set.
    pub(crate) fn set(&self, element: &str, blind: bool) -> Option<&String> {
        let flags = self.flags.as_ref()?;
        called(|name| flags.get(name), flags.iter(), element, blind)
    }

    /// The answer where neither a flag nor a value was found.
    pub(crate) fn missing(&self, element: &str, blind: bool) -> Found<'_> {
        let unknown = &self.unknown;
        if let Some(why) = called(|name| unknown.get(name), unknown.keys(), element, blind) {
            return Found::Unknown { why };
        }
        match &self.only {
            Some(only) if called(|name| only.get(name), only.iter(), element, blind).is_none() => {
                Found::Unknown { why: self.unknown.get(OTHERS).map_or(NOT_ASKED, String::as_str) }
            }
            _ => Found::Absent { source: self.source_of(element) },
        }
    }
}

/// What `get` has under this name: exactly so, or with `-` for `_` or the other way round where
/// `blind` says that the kernel takes both for the same. Thousands of questions are asked of
/// thousands of elements, so they are compared one by one only where there is no other way.
fn called<'a, T>(
    get: impl Fn(&str) -> Option<T>,
    mut names: impl Iterator<Item = &'a String>,
    element: &str,
    blind: bool,
) -> Option<T> {
    match get(element) {
        None if blind => match spellings(element) {
            Some(few) => few.iter().find_map(|spelling| get(spelling)),
            None => get(names.find(|name| same_but_for_dashes(name, element))?),
        },
        found => found,
    }
}

/// With more places for `-` or `_` than this there are too many ways to write a name.
const MAX_PLACES: usize = 6;

/// The ways to write a name that the kernel takes for the same; none where there are too many.
fn spellings(name: &str) -> Option<Vec<String>> {
    let places: Vec<usize> = name.match_indices(['-', '_']).map(|(place, _)| place).collect();
    match places.len() {
        0 => Some(Vec::new()),
        few @ 1..=MAX_PLACES => {
            let spelling = |choice: u32| {
                let mut spelling = name.to_owned();
                for (n, place) in places.iter().enumerate() {
                    let separator = if choice >> n & 1 == 0 { "_" } else { "-" };
                    spelling.replace_range(*place..=*place, separator);
                }
                spelling
            };
            Some((0..1u32 << few).map(spelling).collect())
        }
        _ => None,
    }
}

/// Whether two names are the same to the kernel, which takes `-` for `_` in the names of modules
/// and parameters.
pub fn same_but_for_dashes(a: &str, b: &str) -> bool {
    let plain = |byte: u8| if byte == b'-' { b'_' } else { byte };
    a.len() == b.len() && a.bytes().map(plain).eq(b.bytes().map(plain))
}
