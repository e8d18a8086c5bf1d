//! Parameters, results and paths that tasks have in common.

use portolan_api::build::SourceKind;
use portolan_api::k8s_openapi::api::core::v1::Volume;
use portolan_core::Reference;

use super::owned::SOURCE_ROOT;
use super::task::{Param, TaskResult, Value};
use crate::names::Outputs;

/// The task that gets the source.
pub(super) const SOURCE_TASK: &str = "source";
// Results, by the names that steps write them under.
pub(super) const BUNDLE_DIGEST: &str = "shp-source-bundle-digest";
pub(super) const SOURCE_TIMESTAMP: &str = "shp-source-default-source-timestamp";
pub(super) const SOURCE_DIGEST: &str = "shp-source-default-image-digest";
pub(super) const IMAGE_DIGEST: &str = "shp-image-digest";

/// What is projected into a pod cannot be written.
pub(super) fn is_read_only(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some()
}

/// `/workspace/source/<context>` without needless dots and slashes.
pub(super) fn context_path(context: Option<&str>) -> String {
    let parts = context.unwrap_or_default().split('/').filter(|part| !["", "."].contains(part));
    let mut path = SOURCE_ROOT.to_owned();
    for part in parts {
        path.push('/');
        path.push_str(part);
    }
    path
}

pub(super) fn image_param(image: &str) -> Param {
    Param::ours("shp-output-image", "What is pushed", Value::text(image))
}

/// The source artifact by the digest that phase one told.
pub(super) fn bundle_param(outputs: &Outputs) -> Param {
    let place = match outputs.source() {
        Reference::Registry(source) => format!("{}/{}", source.registry, source.repository),
        Reference::Layout(source) => format!("oci:{}", source.dir.display()),
    };
    let value = said(SOURCE_TASK, BUNDLE_DIGEST, &format!("{place}@"));
    Param::ours("shp-source-bundle-image", "The source artifact, by its digest", value)
}

pub(super) fn said(task: &str, result: &str, prefix: &str) -> Value {
    let (task, result, prefix) = (task.to_owned(), result.to_owned(), prefix.to_owned());
    Value::Result { task, result, prefix }
}

pub(super) fn result(name: &str, description: &str) -> TaskResult {
    TaskResult { name: name.to_owned(), description: description.to_owned(), optional: false }
}

fn optional(result: TaskResult) -> TaskResult {
    TaskResult { optional: true, ..result }
}

pub(super) fn error_results() -> [TaskResult; 2] {
    [
        optional(result("shp-error-message", "What went wrong, in a sentence")),
        optional(result("shp-error-reason", "What went wrong, in a word")),
    ]
}

pub(super) fn image_results() -> Vec<TaskResult> {
    let mut results = vec![
        result(IMAGE_DIGEST, "Digest of the image"),
        result("shp-image-size", "Compressed size of the image in bytes"),
        result("shp-image-vulnerabilities", "Known weaknesses in the image"),
    ];
    results.extend(error_results());
    results
}

pub(super) fn source_results(kind: SourceKind) -> Vec<TaskResult> {
    let time = result(SOURCE_TIMESTAMP, "When the source was last changed");
    match kind {
        SourceKind::Git => vec![
            time,
            result("shp-source-default-commit-sha", "The commit"),
            result("shp-source-default-commit-author", "Who made the commit"),
            optional(result(
                "shp-source-default-branch-name",
                "The branch, where none was asked for",
            )),
        ],
        SourceKind::Oci => vec![time, result(SOURCE_DIGEST, "Digest of the artifact")],
        SourceKind::Local => Vec::new(),
    }
}
