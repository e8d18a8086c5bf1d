//! What is shipped for clusters: the files below `deploy/`, and which component each is for.
//!
//! A new file is a new line here; a test walks `deploy/` and says what is missing.

use super::Component::{self, Agent, Build, Releases, Shims, Verify};

/// One file, as it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    /// Below `deploy/`.
    pub(super) path: &'static str,
    pub(super) text: &'static str,
}

/// Files that go together.
#[derive(Debug)]
pub(super) struct Row {
    /// Installed where one of these is.
    pub(super) of: &'static [Component],
    /// And only then.
    pub(super) when: When,
    pub(super) files: &'static [Source],
}

/// What else decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Always,
    /// Gatekeeper asks the verifier.
    Gatekeeper,
    /// Gatekeeper makes digests of tags, too.
    Pin,
    /// The API server asks the verifier itself.
    Webhook,
    /// Agents change more of their nodes than conditions.
    Nodes,
}

macro_rules! file {
    ($path:literal) => {
        Source { path: $path, text: include_str!(concat!("../../../../deploy/", $path)) }
    };
}

/// The controller is one program for several components.
const CONTROLLED: &[Component] = &[Build, Shims, Releases];

pub(super) const ROWS: &[Row] = &[
    Row {
        of: CONTROLLED,
        when: When::Always,
        files: &[
            file!("controller/controller.yaml"),
            file!("controller/rbac.yaml"),
            file!("controller/network.yaml"),
        ],
    },
    Row {
        of: &[Build],
        when: When::Always,
        files: &[
            file!("rbac/shipwright-aggregate.yaml"),
            file!("strategies/buildah.yaml"),
            file!("strategies/buildkit.yaml"),
            file!("strategies/buildpacks.yaml"),
            file!("strategies/kaniko.yaml"),
            file!("strategies/ko.yaml"),
            file!("strategies/portolan.yaml"),
            file!("strategies/source-to-image.yaml"),
            file!("platforms/by-parameter.yaml"),
            file!("platforms/native.yaml"),
            file!("platforms/classes.yaml"),
        ],
    },
    Row {
        of: &[Shims],
        when: When::Always,
        files: &[file!("shims/rbac.yaml"), file!("shims/network.yaml")],
    },
    Row { of: &[Releases], when: When::Always, files: &[file!("releases/rbac.yaml")] },
    Row {
        of: &[Verify],
        when: When::Always,
        files: &[
            file!("verifier/verifier.yaml"),
            file!("verifier/rbac.yaml"),
            file!("verifier/network.yaml"),
            file!("verifier/policy.yaml"),
        ],
    },
    Row {
        of: &[Verify],
        when: When::Gatekeeper,
        files: &[
            file!("gatekeeper/template.yaml"),
            file!("gatekeeper/provider.yaml"),
            file!("gatekeeper/constraint.yaml"),
        ],
    },
    Row {
        of: &[Agent],
        when: When::Always,
        files: &[
            file!("agent/agent.yaml"),
            file!("agent/rbac.yaml"),
            file!("agent/policy.yaml"),
            file!("agent/network.yaml"),
        ],
    },
    Row { of: &[Agent], when: When::Nodes, files: &[file!("agent/nodes.yaml")] },
    Row { of: &[Verify], when: When::Pin, files: &[file!("gatekeeper/mutation.yaml")] },
    Row { of: &[Verify], when: When::Webhook, files: &[file!("verifier/webhook.yaml")] },
];

/// Stands in a Provider until the verifier has written its own authority there. It ended in 1970 and vouches for
/// nobody, so it opens no door to whoever had its key, and Gatekeeper takes no Provider without a certificate.
pub const NOBODY: &str = include_str!("../../../../deploy/gatekeeper/nobody.crt");

/// The component that a custom resource belongs to, by its group.
pub(super) fn component_of(group: &str) -> Option<Component> {
    match group {
        "shipwright.io" => Some(Build),
        "runtime.spinkube.dev" => Some(Shims),
        "portolan.dev" => Some(Releases),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Not applied as they are: generated, examples, what images are made of, or for who has a Prometheus.
    const APART: [&str; 5] = ["chart", "crds", "image", "monitoring", "samples"];

    fn walk(dir: &Path, below: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = format!("{below}{name}");
            match entry.file_type().unwrap().is_dir() {
                true if APART.contains(&name.as_str()) => {}
                true => walk(&entry.path(), &format!("{path}/"), found),
                false if name.ends_with(".yaml") => drop(found.insert(path)),
                false => {}
            }
        }
    }

    #[test]
    fn every_manifest_below_deploy_belongs_to_a_component() {
        let mut found = BTreeSet::new();
        walk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy"), "", &mut found);
        let known: BTreeSet<String> =
            ROWS.iter().flat_map(|row| row.files).map(|file| file.path.to_owned()).collect();
        assert_eq!(found, known, "a new file is a new line in ROWS");
    }

    #[test]
    fn every_definition_belongs_to_a_component() {
        for definition in crate::definitions::all() {
            assert!(component_of(definition.group()).is_some(), "{}", definition.file);
        }
    }
}
