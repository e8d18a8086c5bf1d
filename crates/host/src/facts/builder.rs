//! Facts put together by hand: for tests, and for those who know a host from elsewhere.

use std::collections::BTreeSet;

use super::names::Kind;
use super::{Facts, Feature};

/// See [`Facts::builder`].
#[derive(Debug, Clone, Default)]
pub struct Builder {
    facts: Facts,
}

impl Builder {
    fn of(&mut self, feature: &str) -> &mut Feature {
        let name = feature.to_ascii_lowercase();
        self.facts.unknown.remove(&name);
        self.facts
            .features
            .entry(name)
            .or_insert_with(|| Feature { source: super::RECORDED.to_owned(), ..Feature::default() })
    }

    /// The feature was looked at, even if nothing else is said of it: what is not named is absent.
    #[must_use]
    pub fn known(mut self, feature: &str, kind: Kind) -> Self {
        let feature = self.of(feature);
        match kind {
            Kind::Flags => drop(feature.flags.get_or_insert_default()),
            Kind::Attributes => drop(feature.attributes.get_or_insert_default()),
            Kind::Instances => drop(feature.instances.get_or_insert_default()),
        }
        self
    }

    /// The feature has this flag.
    #[must_use]
    pub fn flag(mut self, feature: &str, flag: &str) -> Self {
        self.of(feature).flags.get_or_insert_default().insert(flag.to_owned());
        self
    }

    /// The feature has these flags.
    #[must_use]
    pub fn flags<'a>(self, feature: &str, flags: impl IntoIterator<Item = &'a str>) -> Self {
        let known = self.known(feature, Kind::Flags);
        flags.into_iter().fold(known, |builder, flag| builder.flag(feature, flag))
    }

    /// The feature's element has this value.
    #[must_use]
    pub fn attribute(mut self, feature: &str, element: &str, value: &str) -> Self {
        let attributes = self.of(feature).attributes.get_or_insert_default();
        attributes.insert(element.to_owned(), value.to_owned());
        self
    }

    /// There is one more of these, with such attributes.
    #[must_use]
    pub fn instance<'a>(
        mut self,
        feature: &str,
        attributes: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Self {
        let pairs = attributes.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.of(feature).instances.get_or_insert_default().push(pairs.collect());
        self
    }

    /// The boot parameters, as `/proc/cmdline` has them.
    #[must_use]
    pub fn cmdline(mut self, line: &str) -> Self {
        let feature = super::cmdline::feature(line, super::RECORDED);
        self.facts.features.insert(super::names::CMDLINE.to_owned(), feature);
        self
    }

    /// What the feature was read from.
    #[must_use]
    pub fn source(mut self, feature: &str, source: &str) -> Self {
        source.clone_into(&mut self.of(feature).source);
        self
    }

    /// Nothing is known of the feature.
    #[must_use]
    pub fn unknown(mut self, feature: &str, why: &str) -> Self {
        let name = feature.to_ascii_lowercase();
        self.facts.features.remove(&name);
        self.facts.unknown.insert(name, why.to_owned());
        self
    }

    /// This element could not be found out.
    #[must_use]
    pub fn unknown_element(mut self, feature: &str, element: &str, why: &str) -> Self {
        self.of(feature).unknown.insert(element.to_owned(), why.to_owned());
        self
    }

    /// Only these elements of the feature were looked for.
    #[must_use]
    pub fn only<'a>(mut self, feature: &str, elements: impl IntoIterator<Item = &'a str>) -> Self {
        let elements: BTreeSet<String> = elements.into_iter().map(str::to_owned).collect();
        self.of(feature).only = Some(elements);
        self
    }

    /// The facts.
    pub fn build(self) -> Facts {
        self.facts
    }
}
