//! A template and constraints from a file, ours or a stranger's.

use portolan_core::yaml::{self, MAX_FLOW_DEPTH};
use serde::Deserialize as _;
use serde_json::Value;

/// Gatekeeper keeps templates in etcd, which takes no more than this.
pub const MAX_TEMPLATE: usize = 1536 * 1024;

const TARGET: &str = "admission.k8s.gatekeeper.sh";

/// Why a file is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum ReadTemplateError {
    /// Too long.
    #[error("it has {0} bytes, at most {MAX_TEMPLATE} are read")]
    TooLarge(usize),
    /// Nested deeper than any template.
    #[error("it nests deeper than {MAX_FLOW_DEPTH} levels")]
    TooDeep,
    /// Not YAML or JSON.
    #[error("document {number} is neither YAML nor JSON")]
    Yaml {
        /// Which, from 1.
        number: usize,
        /// What is wrong.
        #[source]
        source: serde_yaml_ng::Error,
    },
    /// Not one template.
    #[error("it has {0} ConstraintTemplates of templates.gatekeeper.sh; one is tried at a time")]
    Templates(usize),
    /// A member that must be there.
    #[error("the template has no {0}")]
    Missing(&'static str),
    /// Something other than Rego for admission.
    #[error("the template has no Rego for {TARGET}; other targets and CEL are not tried here")]
    NoRego,
    /// A version of tomorrow.
    #[error("the template is in Rego {0:?}; v0 and v1 are known")]
    Version(String),
    /// Not a constraint of this template.
    #[error("there is no constraint of kind {0:?} in it")]
    NoConstraint(String),
}

/// What is evaluated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Of its constraints.
    pub kind: String,
    /// The module with `violation`.
    pub rego: String,
    /// What that imports.
    pub libs: Vec<String>,
    /// Whether it is Rego as it was before version 1.
    pub is_v0: bool,
}

/// Parameters for a template, and what they are called.
#[derive(Debug, Clone, PartialEq)]
pub struct Constraint {
    /// In the cluster.
    pub name: String,
    /// For the Rego.
    pub parameters: Value,
}

/// The documents of a file.
pub fn documents(bytes: &[u8]) -> Result<Vec<Value>, ReadTemplateError> {
    if bytes.len() > MAX_TEMPLATE {
        return Err(ReadTemplateError::TooLarge(bytes.len()));
    }
    if yaml::is_too_deep(bytes) {
        return Err(ReadTemplateError::TooDeep);
    }
    let mut found = Vec::new();
    for (n, document) in serde_yaml_ng::Deserializer::from_slice(bytes).enumerate() {
        let wrong = |source| ReadTemplateError::Yaml { number: n + 1, source };
        let value = Value::deserialize(document).map_err(wrong)?;
        match value.get("items").and_then(Value::as_array) {
            Some(items) => found.extend(items.iter().cloned()),
            None if value.is_null() => {}
            None => found.push(value),
        }
    }
    Ok(found)
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

fn is_of(value: &Value, group: &str) -> bool {
    let version = text(value, "/apiVersion").unwrap_or_default();
    version.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'))
}

impl Template {
    /// The one template among documents.
    pub fn among(documents: &[Value]) -> Result<Self, ReadTemplateError> {
        let mut templates = documents.iter().filter(|one| {
            is_of(one, "templates.gatekeeper.sh")
                && text(one, "/kind") == Some("ConstraintTemplate")
        });
        match (templates.next(), templates.count()) {
            (Some(one), 0) => Self::from_object(one),
            (first, more) => Err(ReadTemplateError::Templates(usize::from(first.is_some()) + more)),
        }
    }

    fn from_object(object: &Value) -> Result<Self, ReadTemplateError> {
        let kind = "/spec/crd/spec/names/kind";
        let kind =
            text(object, kind).ok_or(ReadTemplateError::Missing("spec.crd.spec.names.kind"))?;
        let targets = object.pointer("/spec/targets").and_then(Value::as_array);
        let targets = targets.ok_or(ReadTemplateError::Missing("spec.targets"))?;
        let target = targets.iter().find(|one| text(one, "/target") == Some(TARGET));
        let target = target.ok_or(ReadTemplateError::NoRego)?;
        // What is under `code` counts before what is beside it, as Gatekeeper has it.
        let code = target.get("code").and_then(Value::as_array).into_iter().flatten();
        let code = code.filter(|one| text(one, "/engine") == Some("Rego"));
        let source = code.filter_map(|one| one.get("source")).next().unwrap_or(target);
        let rego = text(source, "/rego").ok_or(ReadTemplateError::NoRego)?;
        let libs = source.get("libs").and_then(Value::as_array).into_iter().flatten();
        let libs = libs.map(|one| one.as_str().map(str::to_owned));
        let libs: Option<Vec<_>> = libs.collect();
        let is_v0 = match text(source, "/version").unwrap_or("v0") {
            "" | "v0" => true,
            "v1" => false,
            other => return Err(ReadTemplateError::Version(other.to_owned())),
        };
        Ok(Self {
            kind: kind.to_owned(),
            rego: rego.to_owned(),
            libs: libs.ok_or(ReadTemplateError::Missing("text in one of its libs"))?,
            is_v0,
        })
    }

    /// The constraints of this template among documents.
    pub fn constraints(&self, documents: &[Value]) -> Vec<Constraint> {
        let own = documents.iter().filter(|one| {
            is_of(one, "constraints.gatekeeper.sh") && text(one, "/kind") == Some(&self.kind)
        });
        let constraint = |one: &Value| Constraint {
            name: text(one, "/metadata/name").unwrap_or_default().to_owned(),
            parameters: one.pointer("/spec/parameters").cloned().unwrap_or(Value::Null),
        };
        own.map(constraint).collect()
    }
}
