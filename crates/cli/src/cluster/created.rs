//! What is told of an object that was made, or would have been.

use portolan_api::document;
use portolan_api::{ObjectMeta, ResourceExt};
use serde::Serialize;

use crate::cluster::tidy;
use crate::exit::Failure;
use crate::format::{self, Format};

/// Holds an object to its definition, as the cluster would, before it is asked.
pub(crate) fn check<T: Serialize>(object: &T) -> Result<(), Failure> {
    let bytes = serde_json::to_vec(object).map_err(Failure::usage)?;
    document::read(&bytes).map(drop).map_err(Failure::usage)
}

/// Prints an object, or for people the sentence that says what became of it.
pub(crate) fn print<K>(object: &K, format: Format, told: &str) -> Result<(), Failure>
where
    K: kube::Resource + Serialize + Clone,
{
    match format {
        Format::Table => format::write(&format!("{told}\n")),
        Format::Json => format::write(&format::json(&tidy(object.clone()))?),
        Format::Yaml => format::write(&format::yaml(&tidy(object.clone()))?),
    }
}

/// What an object is called, or will be.
pub(crate) fn name<K: ResourceExt>(object: &K) -> String {
    let ObjectMeta { name, generate_name, .. } = object.meta();
    match (name, generate_name) {
        (Some(name), _) => name.clone(),
        (None, Some(prefix)) => format!("{prefix}…"),
        (None, None) => String::new(),
    }
}
