//! `kernel.moduleparameter`: `module.parameter` and its value.

use std::collections::{BTreeMap, BTreeSet};

use super::super::feature::OTHERS;
use super::super::machine::{Machine, Outcome};
use super::super::{Elements, Feature};
use crate::root::{Dir, NotRead};

const MODULES: &str = "/sys/module";

/// A machine's modules show a few thousand parameters together. A hostile tree may show as many
/// again for each module, all through links to one directory.
const MAX_PARAMETERS: usize = 20_000;

/// A page, which is all that drivers may print on most architectures, in bytes.
const VALUE: u64 = 4 << 10;

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let modules = machine.root.dir(MODULES).map_err(|why| why.about(MODULES))?;
    match machine.wanted.elements("kernel.moduleparameter") {
        Some(Elements::Only(wanted)) => Ok(some(&modules, wanted)),
        Some(Elements::All) | None => all(&modules),
    }
}

/// The parameters that are asked for. Where one is missing, the modules that have one of its name
/// are looked for: who asked for it meant one of them.
fn some(modules: &Dir<'_>, wanted: &BTreeSet<String>) -> Feature {
    let mut feature = Feature::attributes(MODULES, BTreeMap::new());
    // The kernel's own spelling, under which the answer is found.
    let wanted: BTreeSet<String> = wanted.iter().map(|element| element.replace('-', "_")).collect();
    let mut missing = BTreeSet::new();
    for (module, parameters) in by_module(&wanted) {
        match shown(modules, module, MAX_PARAMETERS) {
            Ok(shown) => {
                for parameter in parameters {
                    match shown.iter().find(|(_, names)| names.contains(parameter)) {
                        Some((dir, _)) => read(dir, module, parameter, &mut feature),
                        None => drop(missing.insert(parameter)),
                    }
                }
            }
            Err(why) => {
                let unknown = parameters.into_iter().map(|one| format!("{module}.{one}"));
                feature.unknown.extend(unknown.map(|element| (element, why.clone())));
            }
        }
    }
    if !missing.is_empty() {
        elsewhere(modules, &missing, &mut feature);
    }
    let found = feature.attributes.iter().flat_map(BTreeMap::keys).chain(feature.unknown.keys());
    let found: Vec<String> = found.cloned().collect();
    feature.only = Some(wanted.into_iter().chain(found).collect());
    feature
}

/// What is asked for of each module. Names that would lead elsewhere are nobody's.
fn by_module(wanted: &BTreeSet<String>) -> BTreeMap<&str, Vec<&str>> {
    let plain = |name: &str| !name.is_empty() && !name.contains('/') && !name.starts_with('.');
    let mut modules: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for element in wanted {
        if let Some((module, parameter)) = element.split_once('.')
            && plain(module)
            && plain(parameter)
        {
            modules.entry(module).or_default().push(parameter);
        }
    }
    modules
}

/// The parameters that a module shows: none where there is no such module, or one without.
fn shown<'r>(
    modules: &Dir<'r>,
    module: &str,
    limit: usize,
) -> Result<Option<(Dir<'r>, BTreeSet<String>)>, String> {
    let below = format!("{module}/parameters");
    let listed = modules.dir(&below).and_then(|dir| {
        let names = dir.names_within(limit)?;
        Ok((dir, names.into_iter().collect()))
    });
    match listed {
        Ok(shown) => Ok(Some(shown)),
        Err(NotRead::Missing) => Ok(None),
        Err(why) => Err(why.about(&modules.inside(&below))),
    }
}

/// Adds the parameters of these names on whatever modules have them. It is a hint: what cannot be
/// read, or would take too long, is left.
fn elsewhere(modules: &Dir<'_>, missing: &BTreeSet<&str>, feature: &mut Feature) {
    let mut left = MAX_PARAMETERS;
    for module in modules.names().unwrap_or_default() {
        let Ok(Some((dir, names))) = shown(modules, &module, left) else { continue };
        left -= names.len();
        for parameter in names.iter().filter(|name| missing.contains(name.as_str())) {
            read(&dir, &module, parameter, feature);
        }
    }
}

fn all(modules: &Dir<'_>) -> Outcome {
    let mut feature = Feature::attributes(MODULES, BTreeMap::new());
    let mut left = MAX_PARAMETERS;
    let mut unread = None;
    for module in modules.names().map_err(|why| why.about(MODULES))? {
        match shown(modules, &module, left) {
            Ok(Some((dir, names))) => {
                left -= names.len();
                for parameter in &names {
                    read(&dir, &module, parameter, &mut feature);
                }
            }
            // Unloaded meanwhile, or without parameters: most have none.
            Ok(None) => {}
            Err(why) => unread = unread.or(Some(why)),
        }
    }
    if let Some(why) = unread {
        let found = feature.attributes.iter().flat_map(BTreeMap::keys).cloned();
        feature.only = Some(found.collect());
        feature.unknown.insert(OTHERS.to_owned(), why);
    }
    Ok(feature)
}

fn read(dir: &Dir<'_>, module: &str, parameter: &str, feature: &mut Feature) {
    let element = format!("{module}.{parameter}");
    match dir.text_within(parameter, VALUE) {
        Ok(value) => {
            let value = value.trim_matches('\0').to_owned();
            feature.attributes.get_or_insert_default().insert(element, value);
        }
        Err(NotRead::Missing) => {}
        // Many may only be read by root, and some only be written.
        Err(why) => {
            feature.unknown.insert(element, why.about(&dir.inside(parameter)));
        }
    }
}
