//! Resources from YAML and JSON files, read as a cluster would take them: what its schema refuses
//! is refused with its path, and what it would drop is an error too, not dropped.

mod schema;

use portolan_core::yaml::{self, MAX_FLOW_DEPTH};
use serde::Deserialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub use schema::Problem;

use crate::build::{Build, BuildRun, BuildStrategy, ClusterBuildStrategy};
use crate::definitions;
use crate::platform::{ImagePlatform, ImagePlatformClass};
use crate::release::Release;
use crate::shim::Shim;

/// The largest file that is read: several times what a cluster stores of one object.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// So many objects of one file.
pub const MAX_OBJECTS: usize = 1000;

/// One object of a file.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "few, and read once")]
pub enum Resource {
    /// A Build.
    Build(Build),
    /// One run of a Build.
    BuildRun(BuildRun),
    /// A strategy of a namespace.
    BuildStrategy(BuildStrategy),
    /// A strategy of the cluster.
    ClusterBuildStrategy(ClusterBuildStrategy),
    /// How one platform is built.
    ImagePlatform(ImagePlatform),
    /// A set of those.
    ImagePlatformClass(ImagePlatformClass),
    /// A runtime binary for nodes.
    Shim(Shim),
    /// An image that was resolved and verified.
    Release(Release),
    /// Something of somebody else.
    Other {
        /// Group and version.
        api_version: String,
        /// Kind.
        kind: String,
    },
}

/// Why a file holds no such resources. `number` counts its documents from 1.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// More than anybody writes.
    #[error("it has {found} bytes, at most {MAX_BYTES} are read")]
    TooLarge {
        /// How many.
        found: usize,
    },
    /// More than anybody writes.
    #[error("it has more than {MAX_OBJECTS} objects")]
    TooMany,
    /// No text.
    #[error("it is not UTF-8")]
    NotText(#[source] std::str::Utf8Error),
    /// Nested deeper than any resource.
    #[error("it nests deeper than {MAX_FLOW_DEPTH} levels")]
    TooDeep,
    /// No YAML.
    #[error("document {number} is not valid YAML")]
    Yaml {
        /// Which.
        number: usize,
        /// Why, and where.
        #[source]
        source: serde_yaml_ng::Error,
    },
    /// Without apiVersion or kind.
    #[error("document {number} has no {field}, so nobody can say what it is")]
    Nameless {
        /// Which.
        number: usize,
        /// What is missing.
        field: &'static str,
    },
    /// A version of ours that is not served.
    #[error("document {number} is {kind} of {found}; only {served} is served")]
    Version {
        /// Which.
        number: usize,
        /// What.
        kind: String,
        /// Its apiVersion.
        found: String,
        /// The one that is known.
        served: String,
    },
    /// Not as the definition has it.
    #[error(
        "document {number}, {kind} {name:?}, is not as its definition says:{}",
        problems.iter().map(|problem| format!("\n  {problem}")).collect::<String>()
    )]
    Schema {
        /// Which.
        number: usize,
        /// What.
        kind: String,
        /// Its name.
        name: String,
        /// All that is wrong with it.
        problems: Vec<Problem>,
    },
    /// The types refuse what the definition takes.
    #[error("document {number}, {kind} {name:?}, cannot be read")]
    Type {
        /// Which.
        number: usize,
        /// What.
        kind: String,
        /// Its name.
        name: String,
        /// Why.
        #[source]
        source: serde_path_to_error::Error<serde_json::Error>,
    },
}

/// Reads every document of `bytes`. A `status` is what a cluster reports and not what a file
/// says, so it is left out, as `kubectl apply` leaves it out.
pub fn read(bytes: &[u8]) -> Result<Vec<Resource>, ReadError> {
    read_with(bytes, Status::Dropped)
}

/// The same with what a cluster, or this program, reported: a record of it is what such a file is for.
pub fn read_recorded(bytes: &[u8]) -> Result<Vec<Resource>, ReadError> {
    read_with(bytes, Status::Kept)
}

/// What becomes of the `status` of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Dropped,
    Kept,
}

fn read_with(bytes: &[u8], status: Status) -> Result<Vec<Resource>, ReadError> {
    if bytes.len() > MAX_BYTES {
        return Err(ReadError::TooLarge { found: bytes.len() });
    }
    let text = std::str::from_utf8(bytes).map_err(ReadError::NotText)?;
    if yaml::is_too_deep(bytes) {
        return Err(ReadError::TooDeep);
    }
    let mut resources = Vec::new();
    for (at, document) in serde_yaml_ng::Deserializer::from_str(text).enumerate() {
        let number = at + 1;
        let value =
            Value::deserialize(document).map_err(|source| ReadError::Yaml { number, source })?;
        let values = items(value);
        if at >= MAX_OBJECTS || resources.len() + values.len() > MAX_OBJECTS {
            return Err(ReadError::TooMany);
        }
        for value in values.into_iter().filter(|value| !value.is_null()) {
            resources.push(resource(number, value, status)?);
        }
    }
    Ok(resources)
}

/// What `kubectl get` prints of many is one List; its items are what is meant.
fn items(mut value: Value) -> Vec<Value> {
    let list = value["apiVersion"] == "v1" && value["kind"] == "List";
    match value.get_mut("items").filter(|_| list).map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => vec![value],
    }
}

fn resource(number: usize, mut value: Value, status: Status) -> Result<Resource, ReadError> {
    let text = |field: &'static str| {
        let found = value[field].as_str().filter(|text| !text.is_empty());
        found.map(str::to_owned).ok_or(ReadError::Nameless { number, field })
    };
    let (api_version, kind) = (text("apiVersion")?, text("kind")?);
    let group = api_version.split_once('/').map(|(group, _)| group);
    let ours = |definition: &&definitions::Definition| group == Some(definition.group());
    let Some(definition) = definitions::of(&kind).filter(ours) else {
        return Ok(Resource::Other { api_version, kind });
    };
    let served = format!("{}/{}", definition.group(), definition.version());
    if api_version != served {
        return Err(ReadError::Version { number, kind, found: api_version, served });
    }
    let name = value["metadata"]["name"]
        .as_str()
        .or_else(|| value["metadata"]["generateName"].as_str())
        .unwrap_or_default()
        .to_owned();
    prune(&mut value);
    if let (Some(object), Status::Dropped) = (value.as_object_mut(), status) {
        object.remove("status");
    }
    let problems = schema::check(&value, definition.schema());
    if !problems.is_empty() {
        return Err(ReadError::Schema { number, kind, name, problems });
    }
    typed(&kind, value).map_err(|source| ReadError::Type { number, kind, name, source })
}

fn typed(
    kind: &str,
    value: Value,
) -> Result<Resource, serde_path_to_error::Error<serde_json::Error>> {
    fn read<T: DeserializeOwned>(
        value: Value,
    ) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
        serde_path_to_error::deserialize(value)
    }
    Ok(match kind {
        "Build" => Resource::Build(read(value)?),
        "BuildRun" => Resource::BuildRun(read(value)?),
        "BuildStrategy" => Resource::BuildStrategy(read(value)?),
        "ClusterBuildStrategy" => Resource::ClusterBuildStrategy(read(value)?),
        "ImagePlatform" => Resource::ImagePlatform(read(value)?),
        "ImagePlatformClass" => Resource::ImagePlatformClass(read(value)?),
        "Release" => Resource::Release(read(value)?),
        _ => Resource::Shim(read(value)?),
    })
}

/// A field that is null is absent: an API server takes it out before it looks closer.
fn prune(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(prune);
        }
        Value::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}
