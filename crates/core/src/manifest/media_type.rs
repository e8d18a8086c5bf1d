//! Media types that decide how bytes are read.

/// OCI image index.
pub const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// OCI image manifest.
pub const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
/// OCI image configuration.
pub const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
/// The two bytes `{}`.
pub const OCI_EMPTY: &str = "application/vnd.oci.empty.v1+json";
/// Docker manifest list, the index of schema 2.
pub const DOCKER_LIST: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
/// Docker image manifest, schema 2.
pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
/// Docker image configuration.
pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";

/// Every manifest type a client says it accepts, best first.
pub const ACCEPTED: [&str; 4] = [OCI_INDEX, OCI_MANIFEST, DOCKER_LIST, DOCKER_MANIFEST];

/// Whether this names an index or a manifest list.
pub fn is_index(media_type: &str) -> bool {
    media_type == OCI_INDEX || media_type == DOCKER_LIST
}

/// Whether this names an image manifest.
pub fn is_manifest(media_type: &str) -> bool {
    media_type == OCI_MANIFEST || media_type == DOCKER_MANIFEST
}

/// Whether this names the configuration of something that runs, as opposed to an artifact's.
pub fn is_image_config(media_type: &str) -> bool {
    media_type == OCI_CONFIG || media_type == DOCKER_CONFIG
}

/// Whether this names a Docker schema 1 manifest, plain or signed.
pub(super) fn is_schema_1(media_type: &str) -> bool {
    media_type == "application/vnd.docker.distribution.manifest.v1+json"
        || media_type == "application/vnd.docker.distribution.manifest.v1+prettyjws"
}

/// What a `Content-Type` says, without its parameters and in lower case; `None` for the types
/// that web servers give to any file and that therefore say nothing about a manifest.
pub(super) fn declared(content_type: &str) -> Option<String> {
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "" | "application/json" | "application/octet-stream" | "text/plain" => None,
        _ => Some(essence),
    }
}
