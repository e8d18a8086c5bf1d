//! Whether a class can be used, and for what. The controller writes the answer to its status.

use std::collections::BTreeMap;

use portolan_api::ResourceExt as _;
use portolan_api::condition::{Condition, Status};
use portolan_api::platform::{
    AVAILABLE, FoundImagePlatform, ImagePlatform, ImagePlatformClass, ImagePlatformClassStatus,
    ImagePlatformSpec,
};

use super::check;
use super::effective::with_effect;
use super::refusal::Refusals;
use super::task::Pod;

/// The status of a class over the ImagePlatforms that there are. Times are for whoever stores it.
pub fn status(class: &ImagePlatformClass, platforms: &[ImagePlatform]) -> ImagePlatformClassStatus {
    let mut found = Vec::new();
    let (mut missing, mut invalid, mut duplicate) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen = BTreeMap::new();
    for reference in &class.spec.image_platforms {
        let name = &reference.name;
        let Some(platform) = platforms.iter().find(|p| p.name_any() == *name) else {
            missing.push(name.clone());
            continue;
        };
        if let Some(problem) = problem(&platform.spec) {
            invalid.push(format!("{name} ({problem})"));
            continue;
        }
        let key = platform.spec.platform.normalised();
        if let Some(first) = seen.insert(key.clone(), name.clone()) {
            duplicate.push(format!("{first} and {name} are both for {key}"));
        }
        let platform = platform.spec.platform.clone();
        found.push(FoundImagePlatform { name: name.clone(), platform });
    }
    let (status, reason, message) = if class.spec.image_platforms.is_empty() {
        (Status::False, "NoImagePlatforms", "The class names no ImagePlatform.".to_owned())
    } else if !missing.is_empty() {
        let names = missing.join(", ");
        (Status::False, "ImagePlatformNotFound", format!("There is no ImagePlatform {names}."))
    } else if !invalid.is_empty() {
        let names = invalid.join(", ");
        (Status::False, "InvalidImagePlatform", format!("These cannot be used: {names}."))
    } else if !duplicate.is_empty() {
        let pairs = duplicate.join("; ");
        (Status::False, "DuplicatePlatform", format!("{pairs}."))
    } else {
        let message = "All image platforms available.".to_owned();
        (Status::True, "AllImagePlatformsAvailable", message)
    };
    let condition = Condition {
        kind: AVAILABLE.to_owned(),
        status,
        reason: reason.to_owned(),
        message,
        last_transition_time: None,
        observed_generation: class.metadata.generation,
    };
    ImagePlatformClassStatus { conditions: vec![condition], image_platforms: found }
}

/// What an ImagePlatform says of pods.
pub(super) fn pod(spec: &ImagePlatformSpec) -> Pod {
    Pod {
        node_selector: spec.node_selector.clone(),
        tolerations: spec.tolerations.iter().cloned().map(with_effect).collect(),
        scheduler_name: None,
        runtime_class_name: spec.runtime_class.as_ref().map(|class| class.name.clone()),
    }
}

/// Why an ImagePlatform cannot be used. A cluster refuses to store most of these; files, and
/// clusters with older definitions, do not.
pub(super) fn problem(spec: &ImagePlatformSpec) -> Option<String> {
    if let Err(error) = syntax(&spec.platform) {
        return Some(error);
    }
    let says_nothing = spec.node_selector.is_empty()
        && spec.runtime_class.is_none()
        && spec.tolerations.is_empty()
        && spec.param_values.is_empty();
    if says_nothing {
        let fields = "nodeSelector, runtimeClass, tolerations and paramValues";
        return Some(format!("at least one of {fields} must be set"));
    }
    let mut refusals = Refusals::default();
    check::pod(&pod(spec), "", &mut refusals);
    if let Some(refusal) = refusals.0.into_iter().next() {
        return Some(refusal.message);
    }
    for param in &spec.param_values {
        if check::is_reserved(&param.name) {
            return Some(format!("paramValues must not set {}", param.name));
        }
        let all = param.values.iter().flatten().chain([&param.single]);
        if all.into_iter().any(|v| v.config_map_value.is_some() || v.secret_value.is_some()) {
            return Some(format!(
                "{} names a config map or secret, and an ImagePlatform belongs to no namespace",
                param.name
            ));
        }
    }
    None
}

/// Lower-case letters and digits, as image indexes and node labels have them.
pub(super) fn syntax(platform: &portolan_api::platform::Platform) -> Result<(), String> {
    let word = |text: &str, more: &[u8]| {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || more.contains(&b);
        (1..=64).contains(&text.len()) && text.bytes().all(fits)
    };
    if platform.os.is_empty() || platform.arch.is_empty() {
        return Err("must specify both os and arch".to_owned());
    }
    let fits = word(&platform.os, b"")
        && word(&platform.arch, b"")
        && platform.variant.as_deref().is_none_or(|variant| word(variant, b"."));
    match fits {
        true => Ok(()),
        false => Err(format!(
            "is {:?}, which is not 1 to 64 lower-case letters and digits for each part",
            platform.to_string()
        )),
    }
}
