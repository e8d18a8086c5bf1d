//! Facts on the way to plugins and back, in NFD's shape.

use std::collections::BTreeMap;

use portolan_host::facts::Facts;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{AnswerError, MAX_ITEMS, MAX_TEXT, short};
use crate::external::object::Object;
use crate::external::order::PLUGIN_FACTS;
use crate::text::shown_up_to;

/// Of all elements that a plugin returns.
const MAX_ELEMENTS: usize = 1000;

type Elements<T> = BTreeMap<String, Object<OfFeature<T>>>;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct OfFeature<T> {
    elements: T,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Attributes {
    attributes: BTreeMap<String, String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct Nothing {}

/// Facts as a plugin returns them.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
pub(super) struct RawFacts {
    #[serde(default)]
    flags: Elements<BTreeMap<String, Object<Nothing>>>,
    #[serde(default)]
    attributes: Elements<BTreeMap<String, String>>,
    #[serde(default)]
    instances: Elements<Vec<Object<Attributes>>>,
}

/// Facts that a plugin returned, for others that come after it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Returned(RawFacts);

impl RawFacts {
    pub(super) fn checked(self) -> Result<Returned, AnswerError> {
        let names = self.flags.keys().chain(self.attributes.keys()).chain(self.instances.keys());
        let plain = |name: &&String| {
            let known = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
            !name.is_empty() && name.len() <= 128 && name.bytes().all(known)
        };
        if let Some(name) = names.clone().find(|name| !plain(name)) {
            return Err(AnswerError::FactName { name: short(name) });
        }
        let elements = self.flags.values().map(|one| one.0.elements.len()).sum::<usize>()
            + self.attributes.values().map(|one| one.0.elements.len()).sum::<usize>()
            + self
                .instances
                .values()
                .flat_map(|one| &one.0.elements)
                .map(|one| one.0.attributes.len().max(1))
                .sum::<usize>();
        if names.count() > MAX_ITEMS || elements > MAX_ELEMENTS {
            return Err(AnswerError::TooMany { what: "facts, or elements of them" });
        }
        Ok(Returned(self.cleaned()))
    }

    fn cleaned(self) -> Self {
        let text = |text: String| shown_up_to(&text, MAX_TEXT);
        let pairs = |map: BTreeMap<String, String>| -> BTreeMap<String, String> {
            map.into_iter().map(|(name, value)| (text(name), text(value))).collect()
        };
        let flags = self.flags.into_iter().map(|(name, Object(one))| {
            let each = one.elements.into_keys().map(|flag| (text(flag), Object(Nothing {})));
            (name, Object(OfFeature { elements: each.collect() }))
        });
        let attributes = self
            .attributes
            .into_iter()
            .map(|(name, Object(one))| (name, Object(OfFeature { elements: pairs(one.elements) })));
        let instances = self.instances.into_iter().map(|(name, Object(one))| {
            let each = one.elements.into_iter();
            let each =
                each.map(|Object(one)| Object(Attributes { attributes: pairs(one.attributes) }));
            (name, Object(OfFeature { elements: each.collect() }))
        });
        Self {
            flags: flags.collect(),
            attributes: attributes.collect(),
            instances: instances.collect(),
        }
    }
}

impl Returned {
    /// Adds them to what another plugin is given, under `plugin/<plugin>/<namespace>/<name>`: names
    /// of plugins and namespaces have no slash, so no two can meet.
    pub(in crate::external) fn add_to(&self, given: &mut Value, plugin: &str, namespace: &str) {
        let mut add = |kind: &str, name: &str, value: Result<Value, serde_json::Error>| {
            let (Some(kind), Ok(value)) =
                (given.get_mut(kind).and_then(Value::as_object_mut), value)
            else {
                return;
            };
            kind.insert(format!("{PLUGIN_FACTS}{plugin}/{namespace}/{name}"), value);
        };
        for (name, one) in &self.0.flags {
            add("flags", name, serde_json::to_value(one));
        }
        for (name, one) in &self.0.attributes {
            add("attributes", name, serde_json::to_value(one));
        }
        for (name, one) in &self.0.instances {
            add("instances", name, serde_json::to_value(one));
        }
    }
}

/// The features that a plugin declared, as `host facts -o json` prints them. Boot parameters are
/// never among them.
pub(in crate::external) fn selected(facts: &Facts, declared: &[String]) -> Value {
    // Facts always have a form in JSON; if ever not, the plugin is told of none.
    let all = serde_json::to_value(facts).unwrap_or_default();
    let mut chosen = serde_json::Map::new();
    for kind in ["flags", "attributes", "instances", "sources", "unknown"] {
        let members = all.get(kind).and_then(Value::as_object).into_iter().flatten();
        let wanted = members.filter(|(name, _)| {
            // `sources` and `unknown` name elements, too: `feature/element`.
            let feature = name.split('/').next().unwrap_or_default();
            declared.iter().any(|one| one == feature)
        });
        let members: serde_json::Map<String, Value> =
            wanted.map(|(name, value)| (name.clone(), value.clone())).collect();
        chosen.insert(kind.to_owned(), Value::Object(members));
    }
    Value::Object(chosen)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checked(value: Value) -> Result<Returned, AnswerError> {
        serde_json::from_value::<RawFacts>(value).unwrap().checked()
    }

    #[test]
    fn a_plugin_sees_only_what_it_declared_and_never_the_command_line() {
        let facts = Facts::builder()
            .flag("kernel.loadedmodule", "vfio")
            .attribute("kernel.version", "full", "6.1.0")
            .attribute("cpu.model", "vendor_id", "Intel")
            .cmdline("secret=hunter2 quiet")
            .build();
        let declared = ["kernel.loadedmodule", "kernel.version", "kernel.cmdline"];
        let given = selected(&facts, &declared.map(str::to_owned));
        assert_eq!(given["flags"]["kernel.loadedmodule"]["elements"], json!({"vfio": {}}));
        assert_eq!(given["attributes"]["kernel.version"]["elements"]["full"], "6.1.0");
        let text = given.to_string();
        assert!(!text.contains("cpu.model") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn returned_facts_get_a_name_that_cannot_be_a_hosts() {
        let returned = checked(json!({
            "flags": {"groups": {"elements": {"a": {}}}},
            "attributes": {"iommu": {"elements": {"mode": "on\u{1b}"}}},
            "instances": {"gpu": {"elements": [{"attributes": {"id": "1"}}]}},
        }))
        .unwrap();
        let mut given = selected(&Facts::builder().build(), &[]);
        returned.add_to(&mut given, "vfio", "ns");
        assert_eq!(given["attributes"]["plugin/vfio/ns/iommu"]["elements"]["mode"], r"on\u{1b}");
        assert_eq!(given["flags"]["plugin/vfio/ns/groups"]["elements"], json!({"a": {}}));
        assert_eq!(
            given["instances"]["plugin/vfio/ns/gpu"]["elements"][0]["attributes"]["id"],
            "1"
        );
    }

    #[test]
    fn returned_facts_are_bounded() {
        let many: serde_json::Map<String, Value> =
            (0..1001).map(|n| (n.to_string(), json!({}))).collect();
        let error = checked(json!({"flags": {"x": {"elements": many}}})).unwrap_err();
        assert!(matches!(error, AnswerError::TooMany { .. }));
        let error = checked(json!({"attributes": {"a/b": {"elements": {}}}})).unwrap_err();
        assert!(matches!(error, AnswerError::FactName { .. }));
    }
}
