//! `cpu.cstate`, `cpu.pstate` and `cpu.sst`: how Intel's drivers treat clock and sleep.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Feature;
use super::super::machine::{Attributes, Machine, Outcome, no};
use crate::root::NotRead;

/// Every kernel has it, and the drivers put themselves below it.
const SYSTEM: &str = "/sys/devices/system/cpu";

pub(crate) fn cstate(machine: &Machine<'_>) -> Outcome {
    const IDLE: &str = "/sys/devices/system/cpu/cpuidle";
    const DEEPEST: &str = "/sys/module/intel_idle/parameters/max_cstate";
    let nothing = |source: String| Ok(Feature::attributes(source, BTreeMap::new()));
    let Some(idle) = machine.dir(SYSTEM, IDLE)? else { return nothing(no(IDLE)) };
    let driver = idle.inside("current_driver");
    match idle.text("current_driver") {
        Ok(name) if name == "intel_idle" => {}
        Ok(_) => return nothing(driver),
        Err(why) => return Err(why.about(&driver)),
    }
    let deepest = machine.root.text(DEEPEST, 64).map_err(|why| why.about(DEEPEST))?;
    let deepest: u32 = deepest.parse().map_err(|_| format!("{DEEPEST} is no number"))?;
    let enabled = BTreeMap::from([("enabled".to_owned(), (deepest > 0).to_string())]);
    Ok(Feature::attributes(DEEPEST, enabled))
}

pub(crate) fn pstate(machine: &Machine<'_>) -> Outcome {
    const DRIVER: &str = "/sys/devices/system/cpu/intel_pstate";
    let Some(driver) = machine.dir(SYSTEM, DRIVER)? else {
        return Ok(Feature::attributes(no(DRIVER), BTreeMap::new()));
    };
    let read = |name: &str| driver.text(name).map_err(|why| why.about(&driver.inside(name)));
    let status = read("status")?;
    let mut found = Attributes::default();
    if status == "off" {
        return Ok(found.feature(DRIVER));
    }
    found.set("status", status.clone(), DRIVER);
    match read("no_turbo") {
        Ok(off) => found.set("turbo", (off == "0").to_string(), DRIVER),
        Err(why) => found.unknown("turbo", why),
    }
    if status == "active" {
        governor(machine, &mut found);
    }
    Ok(found.feature(DRIVER))
}

/// The governor, which only counts where all processors have the same.
fn governor(machine: &Machine<'_>, found: &mut Attributes) {
    const NAME: &str = "scaling_governor";
    const POLICIES: &str = "/sys/devices/system/cpu/cpufreq";
    let governors = || -> Result<BTreeSet<String>, String> {
        let policies = machine.root.dir(POLICIES).map_err(|why| why.about(POLICIES))?;
        let names = policies.names().map_err(|why| why.about(POLICIES))?;
        let mut governors = BTreeSet::new();
        for name in names.iter().filter(|name| name.starts_with("policy")) {
            let dir = policies.dir(name).map_err(|why| why.about(&policies.inside(name)))?;
            let read = |file: &str| dir.text(file).map_err(|why| why.about(&dir.inside(file)));
            // A policy whose processors are all off counts for nobody.
            if !read("affected_cpus")?.is_empty() {
                governors.insert(read(NAME)?);
            }
        }
        Ok(governors)
    };
    match governors() {
        Ok(governors) if governors.len() == 1 => {
            governors.into_iter().for_each(|one| found.set(NAME, one, POLICIES));
        }
        Ok(_) => found.absent(NAME, POLICIES),
        Err(why) => found.unknown(NAME, why),
    }
}

/// Speed Select gives some cores a higher base frequency than the processor is sold with, and
/// that one only the processor itself tells. Where all cores have the same, it is off; where
/// they differ, it may be on, or the cores are of two kinds.
pub(crate) fn sst(machine: &Machine<'_>) -> Outcome {
    let (dir, names) =
        machine.listing("/sys/devices", SYSTEM)?.ok_or_else(|| NotRead::Missing.about(SYSTEM))?;
    let is_cpu = |name: &&String| {
        let number = name.strip_prefix("cpu").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())
    };
    let mut bases = BTreeSet::new();
    for name in names.iter().filter(is_cpu) {
        let frequencies = match dir.dir(&format!("{name}/cpufreq")) {
            Ok(frequencies) => frequencies,
            Err(NotRead::Missing) => continue,
            Err(why) => return Err(why.about(&dir.inside(name))),
        };
        match frequencies.text("base_frequency") {
            Ok(base) => drop(bases.insert(base)),
            Err(NotRead::Missing) => {}
            Err(why) => return Err(why.about(&frequencies.inside("base_frequency"))),
        }
    }
    let mut found = Attributes::default();
    if bases.len() > 1 {
        let why = "the cores' base frequencies differ, and only the processor itself tells whether \
                   one is above the nominal one";
        found.unknown("bf.enabled", why);
    }
    Ok(found.feature(SYSTEM))
}
