//! What the ImagePlatforms of a Build mean on one machine: their parameters count for their platform, as in a cluster;
//! where pods run means nothing here, and is told.

use std::collections::BTreeMap;
use std::path::PathBuf;

use portolan_api::ResourceExt as _;
use portolan_api::build::{Build, ParamValue, Parameter};
use portolan_api::platform::{ImagePlatform, ImagePlatformSpec};
use portolan_core::Platform;

use super::local::{LocalError, PARAMETERS, Said, below, said};
use crate::assemble::FILE_NAMES;
use crate::plan::{Objects, PLATFORM_PARAMS, Plan, Work};

/// One platform of a Build, and how it is built.
#[derive(Debug, Clone, PartialEq)]
pub struct LocalWay {
    /// Which.
    pub platform: Platform,
    /// The ImagePlatform that says how, where a class has one.
    pub image_platform: Option<String>,
    /// The Containerfile, below the directory that is built.
    pub file: Option<PathBuf>,
    /// The rest of what parameters and variables say for it.
    pub said: Said,
}

/// The ways of a plan, in the order in which platforms were asked for; none for a plan of one image.
pub(super) fn ways(
    plan: &Plan,
    build: &Build,
    objects: &Objects,
    declared: &[Parameter],
) -> Result<Vec<LocalWay>, LocalError> {
    let Work::Multi(phases) = &plan.work else { return Ok(Vec::new()) };
    let way = |task: &crate::plan::PlatformTask| {
        let own = named(objects, task.image_platform.as_deref());
        let own = own.map(|found| found.spec.param_values.clone()).unwrap_or_default();
        let params: Vec<ParamValue> = build.spec.param_values.iter().cloned().chain(own).collect();
        // By their usual names Containerfiles are found in either spelling, unless somebody insists.
        let insists = params.iter().any(|param| param.name == "dockerfile");
        let usual = |file: &String| file.is_empty() || FILE_NAMES.contains(&file.as_str());
        let mut said = said(&params, &build.spec.env, declared)?;
        let file = said.file.take().filter(|file| insists || !usual(file));
        Ok(LocalWay {
            platform: task.platform.clone(),
            image_platform: task.image_platform.clone(),
            file: file.map(|file| below("the parameter dockerfile", &file)).transpose()?,
            said,
        })
    };
    phases.platforms.iter().map(way).collect()
}

/// What the ImagePlatforms of these ways say to no effect, each thing once with all who say it.
pub(super) fn unused(ways: &[LocalWay], objects: &Objects) -> Vec<String> {
    let mut all: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for way in ways {
        let Some(found) = named(objects, way.image_platform.as_deref()) else { continue };
        for what in of_platform(found, &way.platform) {
            all.entry(what).or_default().extend(way.image_platform.as_deref());
        }
    }
    all.into_iter()
        .map(|(what, who)| format!("{what} of ImagePlatform {}", who.join(", ")))
        .collect()
}

/// Taken apart without `..`, so that whoever adds a field has to say here what becomes of it.
fn of_platform(found: &ImagePlatform, wanted: &Platform) -> Vec<String> {
    let ImagePlatformSpec { platform: _, node_selector, runtime_class, tolerations, param_values } =
        &found.spec;
    let fields = [
        ("nodeSelector", !node_selector.is_empty()),
        ("runtimeClass", runtime_class.is_some()),
        ("tolerations", !tolerations.is_empty()),
    ];
    let fields = fields.into_iter().filter(|(_, said)| *said).map(|(field, _)| field.to_owned());
    let params = param_values.iter().filter(|param| !means_something(param, wanted));
    fields.chain(params.map(|param| format!("the parameter {}", param.name))).collect()
}

/// The platform by its own name is what the engine builds for anyway.
fn means_something(param: &ParamValue, wanted: &Platform) -> bool {
    let name = param.name.as_str();
    let value = param.single.value.as_deref().and_then(|value| value.parse::<Platform>().ok());
    let is_platform = value.is_some_and(|value| value.normalised() == *wanted);
    PARAMETERS.contains(&name) || (PLATFORM_PARAMS.contains(&name) && is_platform)
}

fn named<'a>(objects: &'a Objects, name: Option<&str>) -> Option<&'a ImagePlatform> {
    let name = name?;
    objects.image_platforms.iter().find(|found| found.name_any() == name)
}
