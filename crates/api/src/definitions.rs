//! The custom resource definitions, as they are installed: `deploy/crds` and `portolan crds`.

use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_core::CustomResourceExt as _;
use serde_json::Value;

use crate::build::{Build, BuildRun, BuildStrategy, ClusterBuildStrategy};
use crate::platform::{ImagePlatform, ImagePlatformClass};
use crate::release::{self, Release};
use crate::shim::{self, Shim};

/// Who may do what with the resources, on top of the roles that every cluster has.
pub const ROLES: &str = include_str!("../../../deploy/rbac/shipwright-aggregate.yaml");

/// One definition.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Its file below `deploy/crds`.
    pub file: String,
    /// The definition itself.
    pub value: Value,
}

impl Definition {
    fn new(definition: &CustomResourceDefinition) -> Self {
        let name = definition.metadata.name.as_deref().unwrap_or_default();
        let mut value = serde_json::to_value(definition).expect("a definition is JSON");
        for version in array_mut(&mut value["spec"]["versions"]) {
            shorten(&mut version["schema"]["openAPIV3Schema"]);
        }
        Self { file: format!("{name}.yaml"), value }
    }

    /// The kind that it defines.
    pub fn kind(&self) -> &str {
        self.value["spec"]["names"]["kind"].as_str().unwrap_or_default()
    }

    /// The group that it belongs to.
    pub fn group(&self) -> &str {
        self.value["spec"]["group"].as_str().unwrap_or_default()
    }

    /// The version that it defines.
    pub fn version(&self) -> &str {
        self.value["spec"]["versions"][0]["name"].as_str().unwrap_or_default()
    }

    /// What objects must look like.
    pub fn schema(&self) -> &Value {
        &self.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    }

    /// As it is written to a file.
    pub fn to_yaml(&self) -> String {
        serde_yaml_ng::to_string(&self.value).expect("JSON is YAML")
    }
}

fn array_mut(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}

/// Each is made when it is first needed: most programs need few of them, and schemas are large.
static ALL: [(&str, LazyLock<Definition>); 8] = [
    ("Build", LazyLock::new(|| Definition::new(&Build::crd()))),
    ("BuildRun", LazyLock::new(|| Definition::new(&BuildRun::crd()))),
    ("BuildStrategy", LazyLock::new(|| Definition::new(&BuildStrategy::crd()))),
    ("ClusterBuildStrategy", LazyLock::new(|| Definition::new(&ClusterBuildStrategy::crd()))),
    ("ImagePlatform", LazyLock::new(|| Definition::new(&ImagePlatform::crd()))),
    ("ImagePlatformClass", LazyLock::new(|| Definition::new(&ImagePlatformClass::crd()))),
    ("Shim", LazyLock::new(shim_definition)),
    ("Release", LazyLock::new(release_definition)),
];

/// A rule for the name belongs to the root, which the types of specs cannot speak of.
fn shim_definition() -> Definition {
    let rule = format!("size(self.metadata.name) <= {}", shim::MAX_NAME);
    let message = "the name becomes a label of nodes, so it has at most 63 characters";
    with_rule(&Shim::crd(), &rule, message)
}

/// And so does one that is about the status, too.
fn release_definition() -> Definition {
    with_rule(&Release::crd(), release::UNCHANGING, release::UNCHANGING_MESSAGE)
}

fn with_rule(definition: &CustomResourceDefinition, rule: &str, message: &str) -> Definition {
    let mut definition = Definition::new(definition);
    let root = &mut definition.value["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    root["x-kubernetes-validations"] = serde_json::json!([{ "rule": rule, "message": message }]);
    definition
}

/// All of them, in the order in which they are best installed.
pub fn all() -> Vec<&'static Definition> {
    ALL.iter().map(|(_, definition)| &**definition).collect()
}

/// The one of a kind.
pub fn of(kind: &str) -> Option<&'static Definition> {
    ALL.iter().find(|(name, _)| *name == kind).map(|(_, definition)| &**definition)
}

/// Takes the descriptions out of what Kubernetes itself describes. With them a Build is larger
/// than what `kubectl apply` can keep in an annotation, and `kubectl explain pod.spec` has them.
fn shorten(schema: &mut Value) {
    // By `get_mut`: to index what is not there would write a null into the definition.
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (name, property) in properties {
            match FOREIGN.contains(&name.as_str()) {
                true => strip(property),
                false => shorten(property),
            }
        }
    }
    if let Some(items) = schema.get_mut("items") {
        shorten(items);
    }
}

/// Fields that hold types of Kubernetes.
const FOREIGN: [&str; 8] = [
    "env",
    "ephemeral",
    "resources",
    "securityContext",
    "tolerations",
    "volumeMounts",
    "volumes",
    "metadata",
];

/// Keeps what the field itself is for, and drops what is said below it.
fn strip(property: &mut Value) {
    let own = property.as_object_mut().and_then(|schema| schema.remove("description"));
    strip_all(property);
    if let (Some(own), Some(schema)) = (own, property.as_object_mut()) {
        schema.insert("description".to_owned(), own);
    }
}

fn strip_all(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    object.remove("description");
    for key in ["items", "additionalProperties"] {
        object.get_mut(key).into_iter().for_each(strip_all);
    }
    for key in ["properties", "anyOf", "oneOf", "allOf"] {
        match object.get_mut(key) {
            Some(Value::Object(all)) => all.values_mut().for_each(strip_all),
            Some(Value::Array(all)) => all.iter_mut().for_each(strip_all),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// What `kubectl apply` can keep in an annotation.
    const MAX_ANNOTATION: usize = 256 * 1024;

    #[test]
    fn the_checked_in_definitions_are_what_the_types_say() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
        let update = std::env::var_os("PORTOLAN_UPDATE_SCHEMAS").is_some();
        let mut files = BTreeSet::new();
        for definition in all() {
            let path = dir.join(&definition.file);
            if update {
                std::fs::write(&path, definition.to_yaml()).unwrap();
            }
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            let same = found == definition.to_yaml();
            assert!(same, "deploy/crds/{} is old; run cargo xtask crds", definition.file);
            files.insert(definition.file.clone());
        }
        let there: BTreeSet<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(there, files, "one file for each definition");
    }

    #[test]
    fn definitions_are_small_enough_to_be_applied() {
        for definition in all() {
            let size = definition.value.to_string().len();
            assert!(size < MAX_ANNOTATION, "{} has {size} bytes", definition.file);
        }
    }

    #[test]
    fn names_scopes_and_columns_are_those_of_upstream() {
        for (kind, plural, scope, short, columns) in [
            (
                "Build",
                "builds",
                "Namespaced",
                "",
                "Registered Reason BuildStrategyKind BuildStrategyName CreationTime",
            ),
            (
                "BuildRun",
                "buildruns",
                "Namespaced",
                "br brs",
                "Succeeded Reason StartTime CompletionTime",
            ),
            ("BuildStrategy", "buildstrategies", "Namespaced", "bs bss", ""),
            ("ClusterBuildStrategy", "clusterbuildstrategies", "Cluster", "cbs cbss", ""),
            ("ImagePlatform", "imageplatforms", "Cluster", "", "OS Arch Variant Age"),
            ("ImagePlatformClass", "imageplatformclasses", "Cluster", "", "Available Reason Age"),
            ("Shim", "shims", "Cluster", "", "RuntimeClass Ready Nodes Age"),
            ("Release", "releases", "Namespaced", "", "Image Verified Ready Reason Digest Age"),
        ] {
            let definition = of(kind).expect("it is there");
            assert_eq!(definition.kind(), kind);
            let spec = &definition.value["spec"];
            let texts = |value: &Value, key: &str| -> String {
                let items = value.as_array().into_iter().flatten();
                let texts = items.map(|item| if key.is_empty() { item } else { &item[key] });
                texts.filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
            };
            assert_eq!(spec["names"]["plural"], plural);
            assert_eq!(spec["scope"], scope);
            assert_eq!(texts(&spec["names"]["shortNames"], ""), short, "{kind}");
            let version = &spec["versions"][0];
            assert_eq!(texts(&version["additionalPrinterColumns"], "name"), columns, "{kind}");
            assert_eq!(version["subresources"]["status"].is_object(), kind != "ImagePlatform");
        }
    }

    /// What a structural schema must not have anywhere.
    fn structural(schema: &Value, path: &str) {
        let Value::Object(fields) = schema else { panic!("{path}: {schema}") };
        assert!(!fields.contains_key("$ref"), "{path} refers elsewhere");
        let free = ["x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields"];
        let typed = fields.contains_key("type") || free.iter().any(|key| fields.contains_key(*key));
        assert!(typed, "{path} has no type: {schema}");
        assert!(fields.values().all(|value| !value.is_null()), "{path} says null: {schema}");
        for key in ["oneOf", "anyOf", "allOf"] {
            assert!(!fields.contains_key(key), "{path} has {key}: {schema}");
        }
        for (name, inner) in
            fields.get("properties").and_then(Value::as_object).into_iter().flatten()
        {
            structural(inner, &format!("{path}.{name}"));
        }
        for key in ["items", "additionalProperties"] {
            if let Some(inner) = fields.get(key) {
                structural(inner, &format!("{path}[]"));
            }
        }
    }

    #[test]
    fn schemas_are_structural() {
        for definition in all() {
            structural(definition.schema(), definition.kind());
        }
    }

    #[test]
    fn roles_let_editors_read_platforms_and_write_none() {
        let mut roles = 0;
        for document in serde_yaml_ng::Deserializer::from_str(ROLES) {
            let role: Value = serde::Deserialize::deserialize(document).unwrap();
            roles += 1;
            for rule in role["rules"].as_array().unwrap() {
                let has = |list: &str, word: &str| {
                    rule[list].as_array().unwrap().iter().any(|item| item == word)
                };
                if has("resources", "imageplatforms") || has("resources", "imageplatformclasses") {
                    assert_eq!(rule["verbs"], serde_json::json!(["get", "list", "watch"]));
                }
            }
        }
        assert_eq!(roles, 2);
    }
}
