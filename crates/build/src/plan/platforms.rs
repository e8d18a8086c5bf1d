//! From the platforms that were asked for to the way each is built.

use std::collections::BTreeMap;

use portolan_api::ResourceExt as _;
use portolan_api::build::{MultiArch, ParamValue, Parameter};
use portolan_api::condition::{self, Status};
use portolan_api::platform::{
    AVAILABLE, ImagePlatform, ImagePlatformClassStatus, Platform as ApiPlatform,
};
use portolan_api::reason::Reason;
use portolan_core::Platform;

use super::effective::{Effective, Platforms};
use super::refusal::Refusals;
use super::task::Pod;
use super::{Objects, check, class};

/// The labels by which every node says what it is.
const NODE_OS: &str = "kubernetes.io/os";
const NODE_ARCH: &str = "kubernetes.io/arch";

/// Parameters whose value is a platform, by the two names that the proposal uses.
pub(crate) const PLATFORM_PARAMS: [&str; 2] = ["SHP_BUILD_PLATFORM", "SHP_IMAGE_PLATFORM"];

/// One platform, and how it is built.
#[derive(Debug, Clone)]
pub(super) struct Way {
    pub(super) platform: Platform,
    /// The ImagePlatform and its generation.
    pub(super) image_platform: Option<(String, Option<i64>)>,
    /// All that is said of its pod.
    pub(super) pod: Pod,
    /// Values for parameters, on top of those of the Build.
    pub(super) params: Vec<ParamValue>,
}

/// The ways, in the order in which platforms were asked for; none where nothing was asked for.
pub(super) fn ways(
    effective: &Effective,
    base: &Pod,
    declared: &[Parameter],
    objects: &Objects,
    refusals: &mut Refusals,
) -> Option<Vec<Way>> {
    match &effective.platforms {
        Platforms::Unsaid => None,
        Platforms::Native(_) => {
            let wanted = syntax(effective, base, refusals);
            Some(wanted.into_iter().map(|platform| native(platform, base)).collect())
        }
        Platforms::Class(multi_arch) => {
            let wanted = syntax(effective, base, refusals);
            let found = resolve(multi_arch, &wanted, objects, refusals);
            collisions(&found, effective, base, refusals);
            Some(
                found
                    .into_iter()
                    .map(|(platform, image)| by_class(platform, image, base, declared, refusals))
                    .collect(),
            )
        }
    }
}

/// The platforms that were asked for, as far as they can be judged without any other resource.
pub(super) fn syntax(effective: &Effective, base: &Pod, refusals: &mut Refusals) -> Vec<Platform> {
    match &effective.platforms {
        Platforms::Unsaid => Vec::new(),
        Platforms::Native(wanted) => {
            for key in
                [NODE_OS, NODE_ARCH].into_iter().filter(|k| base.node_selector.contains_key(*k))
            {
                refusals.add(
                    Reason::NodeSelectorPlatformConflict,
                    format!(
                        "nodeSelector has {key}, which output.platforms sets for each platform"
                    ),
                );
            }
            requested(wanted, "spec.output.platforms", refusals)
        }
        Platforms::Class(multi_arch) => {
            requested(&multi_arch.platforms, "spec.output.multiArch.platforms", refusals)
        }
    }
}

/// What was asked for, each once and each in its usual spelling.
fn requested(wanted: &[ApiPlatform], path: &str, refusals: &mut Refusals) -> Vec<Platform> {
    if wanted.is_empty() {
        refusals
            .add(Reason::InvalidPlatform, format!("{path} is empty; name at least one platform"));
    }
    let mut all: Vec<Platform> = Vec::new();
    for (at, platform) in wanted.iter().enumerate() {
        if let Err(problem) = class::syntax(platform) {
            refusals.add(Reason::InvalidPlatform, format!("{path}[{at}] {problem}"));
            continue;
        }
        let normalised = platform.normalised();
        match all.contains(&normalised) {
            true => refusals.add(
                Reason::InvalidPlatform,
                format!("{path}[{at}] is a duplicate of {normalised}"),
            ),
            false => all.push(normalised),
        }
    }
    all
}

fn native(platform: Platform, base: &Pod) -> Way {
    let mut pod = base.clone();
    pod.node_selector.insert(NODE_OS.to_owned(), platform.os.clone());
    pod.node_selector.insert(NODE_ARCH.to_owned(), platform.architecture.clone());
    Way { platform, image_platform: None, pod, params: Vec::new() }
}

/// What a class has, where it is there and can be used.
fn available(
    name: &str,
    objects: &Objects,
    refusals: &mut Refusals,
) -> Option<ImagePlatformClassStatus> {
    let Some(class) = objects.classes.iter().find(|class| class.name_any() == name) else {
        refusals.add(
            Reason::ImagePlatformClassNotFound,
            format!("imagePlatformClass {name:?} does not exist"),
        );
        return None;
    };
    let status = class.status.clone().unwrap_or_default();
    let why = match condition::find(&status.conditions, AVAILABLE) {
        Some(condition) if condition.status == Status::True => return Some(status),
        Some(condition) => format!("is not available: {}: {}", condition.reason, condition.message),
        None => "has not been looked at by its controller yet".to_owned(),
    };
    let message = format!("imagePlatformClass {name:?} {why}");
    refusals.add(Reason::ImagePlatformClassNotAvailable, message);
    None
}

/// The ImagePlatform of each platform, as the class has them.
fn resolve<'a>(
    multi_arch: &MultiArch,
    wanted: &[Platform],
    objects: &'a Objects,
    refusals: &mut Refusals,
) -> Vec<(Platform, &'a ImagePlatform)> {
    let name = &multi_arch.image_platform_class;
    let Some(status) = available(name, objects, refusals) else { return Vec::new() };
    let (mut found, mut unsupported) = (Vec::new(), Vec::new());
    for platform in wanted {
        let listed =
            status.image_platforms.iter().find(|entry| entry.platform.normalised() == *platform);
        let Some(listed) = listed else {
            unsupported.push(platform.to_string());
            continue;
        };
        let image = objects.image_platforms.iter().find(|image| image.name_any() == listed.name);
        // Between the class's status and now it may have gone, or come to mean something else.
        match image.filter(|image| image.spec.platform.normalised() == *platform) {
            None => refusals.add(
                Reason::ImagePlatformNotFound,
                format!(
                    "imagePlatform {:?} of class {name:?} for {platform} does not exist any more",
                    listed.name
                ),
            ),
            Some(image) => match class::problem(&image.spec) {
                Some(problem) => refusals.add(
                    Reason::InvalidImagePlatform,
                    format!("imagePlatform {:?} cannot be used: {problem}", listed.name),
                ),
                None => found.push((platform.clone(), image)),
            },
        }
    }
    if !unsupported.is_empty() {
        let known: Vec<String> = status
            .image_platforms
            .iter()
            .map(|entry| entry.platform.normalised().to_string())
            .collect();
        refusals.add(
            Reason::PlatformNotSupported,
            format!(
                "imagePlatformClass {name:?} has nothing for {}; it has {}",
                unsupported.join(", "),
                known.join(", ")
            ),
        );
    }
    found
}

/// What a Build and an ImagePlatform both say. Whose word counts is not to be guessed, so
/// everything that meets is named at once.
fn collisions(
    found: &[(Platform, &ImagePlatform)],
    effective: &Effective,
    base: &Pod,
    refusals: &mut Refusals,
) {
    let mut all: BTreeMap<Reason, Vec<String>> = BTreeMap::new();
    for (platform, image) in found {
        let whose = format!("ImagePlatform {:?} for {platform}", image.name_any());
        let spec = &image.spec;
        let mut add = |reason, what: String| all.entry(reason).or_default().push(what);
        for key in spec.node_selector.keys().filter(|key| base.node_selector.contains_key(*key)) {
            add(Reason::NodeSelectorCollision, format!("nodeSelector {key} of {whose}"));
        }
        for toleration in &spec.tolerations {
            if base.tolerations.iter().any(|own| own.key == toleration.key) {
                let key = toleration.key.as_deref().unwrap_or_default();
                add(Reason::TolerationCollision, format!("toleration {key} of {whose}"));
            }
        }
        if let (Some(own), Some(class)) = (&base.runtime_class_name, &spec.runtime_class)
            && *own != class.name
        {
            let name = &class.name;
            add(
                Reason::RuntimeClassCollision,
                format!("runtimeClass {name} of {whose} against {own}"),
            );
        }
        for param in &spec.param_values {
            if effective.params.iter().any(|own| own.name == param.name) {
                add(Reason::ParamValueCollision, format!("paramValue {} of {whose}", param.name));
            }
        }
    }
    for (reason, mut what) in all {
        what.sort();
        refusals
            .add(reason, format!("set by the build and by the platform too: {}", what.join("; ")));
    }
}

fn by_class(
    platform: Platform,
    image: &ImagePlatform,
    base: &Pod,
    declared: &[Parameter],
    refusals: &mut Refusals,
) -> Way {
    let own = class::pod(&image.spec);
    let mut pod = base.clone();
    pod.node_selector.extend(own.node_selector);
    pod.tolerations.extend(own.tolerations);
    pod.runtime_class_name = pod.runtime_class_name.or(own.runtime_class_name);
    let whose = format!("ImagePlatform {:?}: ", image.name_any());
    check::params(&image.spec.param_values, declared, &whose, refusals);
    Way {
        platform,
        image_platform: Some((image.name_any(), image.metadata.generation)),
        pod,
        params: image.spec.param_values.iter().map(normalised).collect(),
    }
}

/// Tools know platforms by their usual names only.
fn normalised(param: &ParamValue) -> ParamValue {
    let mut param = param.clone();
    if PLATFORM_PARAMS.contains(&param.name.as_str())
        && let Some(value) = &mut param.single.value
        && let Ok(platform) = value.parse::<Platform>()
    {
        *value = platform.normalised().to_string();
    }
    param
}
