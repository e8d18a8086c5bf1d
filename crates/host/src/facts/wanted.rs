//! Which facts are asked for: only those are read.

use std::collections::{BTreeMap, BTreeSet};

use super::names;

/// The elements of one feature that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Elements {
    /// Whatever there is.
    All,
    /// These.
    Only(BTreeSet<String>),
}

/// The facts that are asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    features: BTreeMap<String, Elements>,
}

impl Wanted {
    /// All there are.
    pub fn everything() -> Self {
        names::NAMES.iter().fold(Self::default(), |all, known| all.feature(known.name))
    }

    /// And the whole feature `name`.
    #[must_use]
    pub fn feature(mut self, name: &str) -> Self {
        self.features.insert(name.to_ascii_lowercase(), Elements::All);
        self
    }

    /// And `element` of the feature `name`. Others of the feature may be left unread; they are
    /// unknown then.
    #[must_use]
    pub fn element(mut self, name: &str, element: &str) -> Self {
        let entry = self.features.entry(name.to_ascii_lowercase());
        match entry.or_insert_with(|| Elements::Only(BTreeSet::new())) {
            Elements::All => {}
            Elements::Only(elements) => {
                elements.insert(element.to_owned());
            }
        }
        self
    }

    /// And the value of a parameter of a module.
    #[must_use]
    pub fn parameter(self, module: &str, parameter: &str) -> Self {
        self.element("kernel.moduleparameter", &format!("{module}.{parameter}"))
    }

    /// And all that `other` asks for.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        other.features.into_iter().fold(self, |all, (name, elements)| match elements {
            Elements::All => all.feature(&name),
            Elements::Only(elements) => {
                elements.iter().fold(all, |all, element| all.element(&name, element))
            }
        })
    }

    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        self.features.is_empty()
    }

    /// What is asked for of the feature `name`.
    pub fn elements(&self, name: &str) -> Option<&Elements> {
        self.features.get(name)
    }

    /// The features asked for.
    pub fn features(&self) -> impl Iterator<Item = &str> {
        self.features.keys().map(String::as_str)
    }
}
