//! Tekton, installed from the manifests of its own module: only the image names are ours.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::command::wait;
use super::state::State;
use super::up::{kubectl, wait_for_deployments};

/// Left out: what scales the webhook (there is nothing to measure it by), the sender of cloud
/// events, and resolvers of remote pipelines.
fn wanted(file: &str) -> bool {
    file.ends_with(".yaml") && !matches!(file, "webhook-hpa.yaml" | "events.yaml")
}

/// Applied one after the other: what a webhook would judge comes before the webhook's
/// configuration, which comes last.
fn order(file: &str) -> u8 {
    match file {
        "500-webhooks.yaml" => 2,
        "controller.yaml" | "webhook.yaml" => 1,
        _ => 0,
    }
}

pub(super) fn install(state: &State) -> Result<()> {
    let to = state.run_dir.join("tekton");
    for (rank, name) in ["0-config", "1-deployments", "2-webhooks"].iter().enumerate() {
        let stage = to.join(name);
        fs::create_dir_all(&stage)?;
        stage_manifests(state, state.tool("tekton-config")?, &stage, rank)?;
    }
    let apply = |what: &str| {
        let from = to.join(what).display().to_string();
        // On the server's side, as the CRDs are too large for kubectl's annotation.
        kubectl(state, &["apply", "--server-side", "--force-conflicts", "-f", &from])
            .with_context(|| format!("apply {from}"))
    };
    // The namespace is among the files, and folders are read in the order of names. What has no namespace passes
    // Gatekeeper's webhooks too, which fail closed until its pod is ready: on a busy machine that takes a minute.
    wait("Tekton's configuration to be accepted", Duration::from_secs(120), || apply("0-config"))?;
    apply("1-deployments")?;
    apply("2-webhooks")?;
    wait_for_deployments(state, "tekton-pipelines")?;
    // Available is not yet reachable: the webhook still has to write its certificate into its
    // own configuration.
    let probe = to.join("probe.json");
    fs::write(&probe, PROBE)?;
    let probe = probe.display().to_string();
    wait("Tekton's webhook to answer", Duration::from_secs(60), || {
        kubectl(state, &["create", "--dry-run=server", "-f", &probe])
    })
}

const PROBE: &str = r#"{"apiVersion": "tekton.dev/v1", "kind": "Task",
  "metadata": {"name": "probe", "namespace": "default"},
  "spec": {"steps": [{"name": "probe", "image": "probe", "script": "true"}]}}
"#;

fn stage_manifests(state: &State, from: &Path, to: &Path, rank: usize) -> Result<()> {
    for dir in ["100-namespace", "300-crds", "."] {
        let folder = from.join(dir);
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if wanted(&name) && usize::from(order(&name)) == rank {
                let text = fs::read_to_string(&path)?;
                let images = |name: &str| state.images.get(&format!("tekton-{name}-image"));
                let shell = state.images.get("busybox-image").map_or("", String::as_str);
                fs::write(to.join(&name), with_images(&text, images, shell))?;
            }
        }
    }
    Ok(())
}

/// `ko://…/cmd/NAME` becomes the image of that command, and the shell image ours.
fn with_images<'a>(text: &str, image: impl Fn(&str) -> Option<&'a String>, shell: &str) -> String {
    const COMMAND: &str = "ko://github.com/tektoncd/pipeline/cmd/";
    const SHELL: &str = r#""-shell-image", ""#;
    let mut result = String::new();
    for line in text.split_inclusive('\n') {
        if let Some((before, rest)) = line.split_once(COMMAND) {
            let end = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            match image(name) {
                Some(reference) => result.extend([before, reference, after]),
                None => result.push_str(line),
            }
        } else if let Some((before, rest)) = line.split_once(SHELL) {
            let after = rest.find('"').map_or("", |end| &rest[end..]);
            result.extend([before, SHELL, shell, after]);
        } else {
            result.push_str(line);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_names_are_replaced_and_nothing_else() {
        let text = "image: ko://github.com/tektoncd/pipeline/cmd/controller\n\
                    \"-nop-image\", \"ko://github.com/tektoncd/pipeline/cmd/nop\",\n\
                    \"-shell-image\", \"example.com/busybox@sha256:00\",\n\
                    \"-shell-image-win\", \"example.com/pwsh\",\nlast";
        let (controller, nop) = ("r/controller:1".to_owned(), "r/nop:1".to_owned());
        let images = |name: &str| match name {
            "controller" => Some(&controller),
            "nop" => Some(&nop),
            _ => None,
        };
        assert_eq!(
            with_images(text, images, "r/busybox:1"),
            "image: r/controller:1\n\"-nop-image\", \"r/nop:1\",\n\"-shell-image\", \"r/busybox:1\",\n\
             \"-shell-image-win\", \"example.com/pwsh\",\nlast"
        );
    }

    #[test]
    fn webhook_configurations_come_last() {
        assert!(order("500-webhooks.yaml") > order("webhook.yaml"));
        assert!(order("webhook.yaml") > order("config-defaults.yaml"));
        assert!(!wanted("dummy.go") && !wanted("events.yaml"));
    }
}
