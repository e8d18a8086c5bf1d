//! All that is known of a host, under the names that Node Feature Discovery (NFD) gave it, each
//! fact with the file it came from.
//!
//! A fact that cannot be found out is *unknown*, with the reason, and never "no". What is known
//! to be absent names what would have told it.
//!
//! | file | what it holds |
//! |---|---|
//! | `feature` | one feature, and the answer to a question about it |
//! | `names` | every feature there is |
//! | `wanted` | which facts are asked for |
//! | `document` | facts as JSON or YAML, NFD's own export too |
//! | `builder` | facts put together by hand |
//! | `labels` | the labels that NFD would give a node |
//! | `collect`, `machine`, `things` | who reads what from a root, and what they share |
//! | `cpu`, `kernel`, `memory`, `network`, `pci`, `usb`, `storage`, `system`, `local` | the collectors |

mod builder;
pub mod cmdline;
mod collect;
mod cpu;
mod document;
mod feature;
mod kernel;
pub mod labels;
mod local;
mod machine;
mod memory;
mod names;
mod network;
mod pci;
mod storage;
mod system;
mod things;
mod usb;
mod wanted;

use std::collections::BTreeMap;
use std::fmt;

use portolan_core::platform::{HostPlatform, Level, Platform, Support};

pub use builder::Builder;
pub use cpu::flags;
pub use cpu::model::{is_vendor, vendor, vendors};
pub use document::{API_VERSION, Recorded, is_of_command_line};
pub use feature::{Feature, Found, Instance, Unknown, same_but_for_dashes};
pub use names::{Kind, NAMES, Name, name};
pub use wanted::{Elements, Wanted};

/// What facts came from that do not say it themselves.
pub(crate) const RECORDED: &str = "recorded facts";

/// Why a feature is unknown that nobody looked for.
const NOT_COLLECTED: &str = "it is not among the facts that were collected";

/// Facts of one host.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Facts {
    pub(crate) features: BTreeMap<String, Feature>,
    /// Features of which nothing is known, and why.
    pub(crate) unknown: BTreeMap<String, String>,
    pub(crate) warnings: Vec<String>,
}

/// Facts that do not say what images run on their host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot tell what images run there: {why}; name the platform")]
pub struct UnknownPlatform {
    /// What is missing.
    pub why: String,
}

impl Facts {
    /// Puts facts together by hand.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// What is known of the feature `name`, in any case.
    pub fn feature(&self, name: &str) -> Result<&Feature, Unknown<'_>> {
        let name = name.to_ascii_lowercase();
        self.features.get(&name).ok_or_else(|| Unknown {
            why: self.unknown.get(&name).map_or(NOT_COLLECTED, String::as_str),
        })
    }

    /// The value of an attribute of a feature. In the names of modules and boot parameters `-`
    /// and `_` are the same.
    pub fn attribute(&self, feature: &str, element: &str) -> Found<'_> {
        let (found, blind) = match self.find(feature) {
            Ok(found) => found,
            Err(unknown) => return Found::Unknown { why: unknown.why },
        };
        match found.value(element, blind) {
            Some((name, value)) => Found::Value { value, source: found.source_of(name) },
            None => found.missing(element, blind),
        }
    }

    /// Whether a feature has a flag. In the names of modules `-` and `_` are the same.
    pub fn flag(&self, feature: &str, element: &str) -> Found<'_> {
        let (found, blind) = match self.find(feature) {
            Ok(found) => found,
            Err(unknown) => return Found::Unknown { why: unknown.why },
        };
        match found.set(element, blind) {
            Some(name) => Found::Present { source: found.source_of(name) },
            None => found.missing(element, blind),
        }
    }

    fn find(&self, feature: &str) -> Result<(&Feature, bool), Unknown<'_>> {
        let blind = names::is_blind_to_dashes(&feature.to_ascii_lowercase());
        Ok((self.feature(feature)?, blind))
    }

    /// Every occurrence of a boot parameter, in order: its value, or none where it has none.
    pub fn boot_parameter(&self, name: &str) -> Result<Vec<Option<&str>>, Unknown<'_>> {
        let occurrences = self.feature(names::CMDLINE)?.instances.iter().flatten();
        let named =
            occurrences.filter(|one| one.get("name").is_some_and(|n| same_but_for_dashes(n, name)));
        Ok(named.map(|one| one.get("value").map(String::as_str)).collect())
    }

    /// The features that are known, by name.
    pub fn features(&self) -> impl Iterator<Item = (&str, &Feature)> {
        self.features.iter().map(|(name, feature)| (name.as_str(), feature))
    }

    /// The features of which nothing is known, and why.
    pub fn unknown(&self) -> impl Iterator<Item = (&str, &str)> {
        self.unknown.iter().map(|(name, why)| (name.as_str(), why.as_str()))
    }

    /// What a reader of these facts should know about how they were found.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// What runs on this host, from `system.platform`; from the processor's flags where NFD
    /// recorded the facts, which only runs on Linux.
    pub fn platform(&self) -> Result<HostPlatform, UnknownPlatform> {
        let feature = match self.feature("system.platform") {
            Ok(feature) => feature,
            Err(unknown) => {
                return self
                    .platform_by_flags()
                    .ok_or_else(|| UnknownPlatform { why: unknown.why.to_owned() });
            }
        };
        let get = |name: &str| feature.attributes.as_ref()?.get(name);
        let need = |name: &str| {
            get(name).ok_or_else(|| UnknownPlatform {
                why: feature
                    .unknown
                    .get(name)
                    .cloned()
                    .unwrap_or_else(|| format!("system.platform has no {name}")),
            })
        };
        let platform = Platform::new(need("os")?, need("arch")?);
        let platform = match get("variant") {
            Some(variant) => platform.with_variant(variant),
            None if platform.architecture == "arm" => need("variant").map(|_| platform)?,
            None => platform,
        };
        let compat32 = match get("compat32").map(String::as_str) {
            Some("true") => Support::Yes,
            Some("false") => Support::No,
            _ => Support::Unknown,
        };
        Ok(HostPlatform { platform: platform.normalised(), compat32 })
    }

    fn platform_by_flags(&self) -> Option<HostPlatform> {
        let has = |flag: &str| matches!(self.flag("cpu.cpuid", flag), Found::Present { .. });
        let level = (1..=4).rev().find(|n| has(&format!("X86_64_V{n}"))).map(Level::Amd64);
        let level = level.or_else(|| {
            portolan_core::platform::level::arm64(|name| has(&name.to_ascii_uppercase())).level
        })?;
        let platform = Platform::new("linux", level.architecture()).with_level(level);
        Some(HostPlatform { platform: platform.normalised(), compat32: Support::Unknown })
    }
}

/// The names and no values: boot parameters may hold secrets, and a log is no place for the rest.
impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Facts")
            .field("features", &self.features.keys())
            .field("unknown", &self.unknown)
            .field("warnings", &self.warnings)
            .finish()
    }
}

#[cfg(test)]
mod tests;
