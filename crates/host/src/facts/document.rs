//! Facts as a document: NFD's own shape (`nfd export features`), with keys of ours beside it.
//!
//! `sources` and `unknown` are flat: `feature` for a whole feature, `feature/element` for one
//! element, `feature/*` for all elements that are not named.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::{Error as _, IgnoredAny};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::feature::{NOT_ASKED, OTHERS};
use super::names::CMDLINE;
use super::{Facts, Feature, Instance, RECORDED};

/// What our documents say they are.
pub const API_VERSION: &str = "portolan.dev/host-facts/v1";

/// The boot parameters that are built into a kernel.
const BUILT_IN_CMDLINE: (&str, &str) = ("kernel.config", "CMDLINE");

/// Whether the value of an element is of a kernel's command line, the one it was booted with or the
/// one that is built in, which nobody prints who was not asked for just that parameter.
pub fn is_of_command_line(feature: &str, element: &str) -> bool {
    let (built_in, option) = BUILT_IN_CMDLINE;
    feature.eq_ignore_ascii_case(CMDLINE)
        || (feature.eq_ignore_ascii_case(built_in) && element == option)
}

/// Why boot parameters are not in a document.
const WITHHELD: &str = "boot parameters may hold secrets and were left out of the recorded facts; \
                        `host facts --include-cmdline` keeps them";

/// How facts are written down.
#[derive(Debug, Clone, Copy)]
pub struct Recorded<'a> {
    /// The facts.
    pub facts: &'a Facts,
    /// With the boot parameters, in which people keep secrets.
    pub include_cmdline: bool,
}

impl Serialize for Facts {
    /// Without the boot parameters.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Recorded { facts: self, include_cmdline: false }.serialize(serializer)
    }
}

#[derive(Serialize, Deserialize)]
struct Elements<T> {
    elements: Option<T>,
}

impl<T> Elements<T> {
    fn new(elements: T) -> Self {
        Self { elements: Some(elements) }
    }
}

#[derive(Serialize)]
struct Nothing {}

#[derive(Serialize, Deserialize)]
struct OneInstance<T> {
    attributes: T,
}

impl Facts {
    /// Takes out the boot parameters, those that are built into the kernel too: they are unknown
    /// then, and the reason says how to keep them.
    pub fn withhold_cmdline(&mut self) {
        if self.features.remove(CMDLINE).is_some() {
            self.unknown.insert(CMDLINE.to_owned(), WITHHELD.to_owned());
        }
        let (feature, option) = BUILT_IN_CMDLINE;
        if let Some(config) = self.features.get_mut(feature)
            && config.attributes.as_mut().is_some_and(|options| options.remove(option).is_some())
        {
            config.unknown.insert(option.to_owned(), WITHHELD.to_owned());
        }
    }

    fn sources(&self) -> BTreeMap<String, &String> {
        let mut sources = BTreeMap::new();
        for (name, feature) in &self.features {
            sources.insert(name.clone(), &feature.source);
            for (element, source) in &feature.sources {
                sources.insert(format!("{name}/{element}"), source);
            }
        }
        sources
    }

    fn all_unknown(&self) -> BTreeMap<String, &str> {
        let whole = self.unknown.iter().map(|(name, why)| (name.clone(), why.as_str()));
        let mut unknown: BTreeMap<String, &str> = whole.collect();
        for (name, feature) in &self.features {
            for (element, why) in &feature.unknown {
                unknown.insert(format!("{name}/{element}"), why);
            }
            if feature.only.is_some() {
                unknown.entry(format!("{name}/{OTHERS}")).or_insert(NOT_ASKED);
            }
        }
        unknown
    }

    fn write<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut flags = BTreeMap::new();
        let mut attributes = BTreeMap::new();
        let mut instances = BTreeMap::new();
        for (name, feature) in &self.features {
            if let Some(set) = &feature.flags {
                let set: BTreeMap<_, _> = set.iter().map(|flag| (flag, Nothing {})).collect();
                flags.insert(name, Elements::new(set));
            }
            if let Some(map) = &feature.attributes {
                attributes.insert(name, Elements::new(map));
            }
            if let Some(list) = &feature.instances {
                let list: Vec<_> = list.iter().map(|i| OneInstance { attributes: i }).collect();
                instances.insert(name, Elements::new(list));
            }
        }
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("apiVersion", API_VERSION)?;
        if let Ok(host) = self.platform() {
            map.serialize_entry("platform", &host.platform.to_string())?;
        }
        map.serialize_entry("flags", &flags)?;
        map.serialize_entry("attributes", &attributes)?;
        map.serialize_entry("instances", &instances)?;
        map.serialize_entry("sources", &self.sources())?;
        map.serialize_entry("unknown", &self.all_unknown())?;
        map.serialize_entry("warnings", &self.warnings)?;
        map.end()
    }
}

impl Serialize for Recorded<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.include_cmdline {
            return self.facts.write(serializer);
        }
        let mut facts = self.facts.clone();
        facts.withhold_cmdline();
        facts.write(serializer)
    }
}

/// By feature; Go writes `null` for what is empty.
type ByFeature<T> = Option<BTreeMap<String, Option<Elements<T>>>>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    api_version: Option<String>,
    #[serde(default)]
    flags: ByFeature<BTreeMap<String, IgnoredAny>>,
    #[serde(default)]
    attributes: ByFeature<BTreeMap<String, String>>,
    #[serde(default)]
    instances: ByFeature<Vec<OneInstance<Option<Instance>>>>,
    #[serde(default)]
    sources: BTreeMap<String, String>,
    #[serde(default)]
    unknown: BTreeMap<String, String>,
    #[serde(default)]
    warnings: Vec<String>,
}

impl<'de> Deserialize<'de> for Facts {
    /// From our document or from what `nfd export features` prints.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let document = Document::deserialize(deserializer)?;
        match &document.api_version {
            Some(version) if version != API_VERSION => {
                let version: String = version.chars().take(100).collect();
                Err(D::Error::custom(format!(
                    "these are facts of apiVersion {version:?}; this program reads {API_VERSION:?} \
                     and what `nfd export features` prints"
                )))
            }
            None if document.is_empty() => Err(D::Error::custom(
                "neither flags nor attributes nor instances: these are no facts of a host",
            )),
            _ => Ok(document.into_facts()),
        }
    }
}

impl Document {
    fn is_empty(&self) -> bool {
        self.flags.is_none() && self.attributes.is_none() && self.instances.is_none()
    }

    fn into_facts(self) -> Facts {
        let mut facts = Facts { warnings: self.warnings, ..Facts::default() };
        for (name, elements) in entries(self.flags) {
            of(&mut facts, &name).flags = Some(elements.into_keys().collect());
        }
        for (name, elements) in entries(self.attributes) {
            of(&mut facts, &name).attributes = Some(elements);
        }
        for (name, elements) in entries(self.instances) {
            let list = elements.into_iter().map(|one| one.attributes.unwrap_or_default());
            of(&mut facts, &name).instances = Some(list.collect());
        }
        for (name, source) in self.sources {
            let (name, element) = split(&name);
            if let Some(feature) = facts.features.get_mut(&name) {
                match element {
                    Some(element) => drop(feature.sources.insert(element, source)),
                    None => feature.source = source,
                }
            }
        }
        for (name, why) in self.unknown {
            let (name, element) = split(&name);
            match (facts.features.get_mut(&name), element) {
                (Some(feature), Some(element)) if element == OTHERS => {
                    feature.only_what_is_here();
                    if why != NOT_ASKED {
                        feature.unknown.insert(element, why);
                    }
                }
                (Some(feature), Some(element)) => drop(feature.unknown.insert(element, why)),
                (None, None) => drop(facts.unknown.insert(name, why)),
                // A whole feature that is both known and not, or an element of none.
                (Some(_), None) | (None, Some(_)) => {}
            }
        }
        facts
    }
}

impl Feature {
    /// Which of the elements that are not here were looked for was not written down.
    fn only_what_is_here(&mut self) {
        let flags = self.flags.iter().flatten();
        let names = self.attributes.iter().flat_map(BTreeMap::keys);
        self.only = Some(flags.chain(names).cloned().collect::<BTreeSet<_>>());
    }
}

fn entries<T: Default>(by_feature: ByFeature<T>) -> impl Iterator<Item = (String, T)> {
    by_feature.into_iter().flatten().map(|(name, elements)| {
        (name, elements.and_then(|elements| elements.elements).unwrap_or_default())
    })
}

/// The feature `name`, made if it is not there yet.
fn of<'a>(facts: &'a mut Facts, name: &str) -> &'a mut Feature {
    facts
        .features
        .entry(name.to_ascii_lowercase())
        .or_insert_with(|| Feature { source: RECORDED.to_owned(), ..Feature::default() })
}

/// `feature/element`: no feature has a slash, an element may.
fn split(name: &str) -> (String, Option<String>) {
    match name.split_once('/') {
        Some((feature, element)) => (feature.to_ascii_lowercase(), Some(element.to_owned())),
        None => (name.to_ascii_lowercase(), None),
    }
}
