//! `kernel.config` and `kernel.configunset`.

use std::collections::{BTreeMap, BTreeSet};

use super::super::machine::{Machine, Outcome};
use super::super::{Elements, Feature};
use crate::kernel::{Config, Setting, unquoted};

/// Which options are asked for; all where that is not said.
fn only<'a>(machine: &'a Machine<'_>, feature: &str) -> Option<&'a BTreeSet<String>> {
    match machine.wanted.elements(feature) {
        Some(Elements::Only(options)) => Some(options),
        Some(Elements::All) | None => None,
    }
}

/// So many options are looked for one by one, each through the whole text; more are picked out
/// while the text is read once, which takes as long as looking for this many.
const FEW: usize = 8;

/// What is said of the options that are asked for. The last word counts, as where the kernel is
/// built: an option is set or not set, and never both.
fn said<'a>(
    config: &'a Config,
    only: Option<&'a BTreeSet<String>>,
) -> BTreeMap<&'a str, Setting<'a>> {
    match only {
        Some(few) if few.len() <= FEW => {
            few.iter().map(|name| (name.as_str(), config.get(name))).collect()
        }
        Some(many) => config.options().filter(|(name, _)| many.contains(*name)).collect(),
        None => config.options().collect(),
    }
}

/// The options that have a value.
pub(crate) fn set(machine: &Machine<'_>) -> Outcome {
    let config = machine.kernel.config()?;
    let only = only(machine, "kernel.config");
    let values =
        said(&config.value, only).into_iter().filter_map(|(name, setting)| match setting {
            Setting::Value(value) => Some((name.to_owned(), unquoted(value).into_owned())),
            Setting::NotSet | Setting::Absent => None,
        });
    let mut feature = Feature::attributes(config.source.to_string(), values.collect());
    feature.only = only.cloned();
    Ok(feature)
}

/// The options that are off and could be on: what is in neither is unknown to this kernel.
pub(crate) fn unset(machine: &Machine<'_>) -> Outcome {
    let config = machine.kernel.config()?;
    let only = only(machine, "kernel.configunset");
    let names = said(&config.value, only).into_iter();
    let names = names.filter(|(_, setting)| *setting == Setting::NotSet);
    let names = names.map(|(name, _)| name.to_owned()).collect();
    let mut feature = Feature::flags(config.source.to_string(), names);
    feature.only = only.cloned();
    Ok(feature)
}
