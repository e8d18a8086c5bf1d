//! Images, replicas, what the controller serves, and which objects are the operator's own.

use serde_json::{Value, json};

use super::agent::AGENT;
use super::place::each;
use super::trust::VERIFIER;
use super::{Component, Options};

/// ConfigMaps with settings of programs: shipped once, the operator's from then on.
pub(super) const MAPS: [&str; 3] = ["portolan-controller", VERIFIER, AGENT];

/// The beginning of every image that an installation has to name.
const PLACEHOLDER: &str = "registry.invalid/";

/// Of a workload or a strategy.
pub(super) fn set(object: &mut Value, options: &Options) {
    match object["kind"].as_str() {
        Some("Deployment") => {
            if let Some(replicas) = options.replicas {
                object["spec"]["replicas"] = json!(replicas);
            }
            pod(&mut object["spec"]["template"]["spec"], options);
        }
        Some("DaemonSet") => pod(&mut object["spec"]["template"]["spec"], options),
        Some("ClusterBuildStrategy") => strategy(object, options),
        _ => {}
    }
}

fn pod(spec: &mut Value, options: &Options) {
    for list in ["/initContainers", "/containers"] {
        for container in each(spec, list) {
            named(&mut container["image"], options);
            each(container, "/env").for_each(|one| variable(one, options));
            let is_controller = container["command"] == json!(["portolan-controller"]);
            if is_controller && let Some(env) = container["env"].as_array_mut() {
                // Said, so that a controller ends with the reason where a part of it is not possible.
                let served = options.components.iter().filter_map(|one| Component::served(*one));
                let served: Vec<_> = served.collect();
                env.push(json!({"name": "PORTOLAN_SERVE", "value": served.join(",")}));
            }
        }
    }
}

fn variable(one: &mut Value, options: &Options) {
    match one["name"].as_str() {
        Some("PORTOLAN_SHIM_NAMESPACE") => one["value"] = json!(options.shim_namespace.0),
        _ if one["value"].is_string() => named(&mut one["value"], options),
        _ => {}
    }
}

fn named(image: &mut Value, options: &Options) {
    if image.as_str().is_some_and(|image| image.starts_with(PLACEHOLDER)) {
        *image = json!(options.image);
    }
}

/// The strategy that runs Portolan itself runs the image that is installed.
fn strategy(object: &mut Value, options: &Options) {
    for parameter in each(object, "/spec/parameters") {
        if parameter["name"] == "portolan-image" {
            parameter["default"] = json!(options.image);
        }
    }
}
