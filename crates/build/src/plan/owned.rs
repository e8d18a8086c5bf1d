//! The steps that are ours: subcommands of `portolan` in one image, locked up alike.

use std::collections::BTreeMap;

use portolan_api::build::{Git, OciArtifact, StrategySecurityContext};
use portolan_api::k8s_openapi::api::core::v1::{
    Capabilities, DownwardAPIVolumeFile, DownwardAPIVolumeSource, EmptyDirVolumeSource, EnvVar,
    ObjectFieldSelector, SecretVolumeSource, SecurityContext, Volume, VolumeMount,
};
use portolan_api::{Duration, keys};

use super::check::Timestamp;
use super::given::Given;
use super::literal::literal;
use super::task::Step;
use crate::names::{MAX_LABEL, short_hash, unique_name};

/// Where the source is, in every pod.
pub(crate) const SOURCE_ROOT: &str = "/workspace/source";
/// Where a strategy that does not push leaves its image.
pub(super) const OUTPUT_DIR: &str = "/workspace/output-image";
/// The volume that is mounted there.
pub(super) const OUTPUT_VOLUME: &str = "shp-output-directory";
const CLONE_SECRET: &str = "/workspace/shp-source-secret";
const PULL_SECRET: &str = "/workspace/shp-pull-secret";
const PUSH_SECRET: &str = "/workspace/shp-push-secret";
/// What the step that waits for a source waits by.
pub(crate) const LOCK_FILE: &str = "/shp-tmp/waiter.lock";
const IDENTITY_VOLUME: &str = "shp-security-context";
/// Who our steps are where a strategy says nothing.
const USER: i64 = 1000;

/// Makes steps of ours and remembers the volumes that they need.
#[derive(Debug)]
pub(super) struct Owned<'a> {
    image: &'a str,
    identity: Option<StrategySecurityContext>,
    pub(super) volumes: Vec<Volume>,
}

impl<'a> Owned<'a> {
    pub(super) fn new(image: &'a str, identity: Option<StrategySecurityContext>) -> Self {
        Self { image, identity, volumes: Vec::new() }
    }

    /// A step that runs `portolan step <command>`.
    fn step(&mut self, name: &str, command: &str, args: Vec<String>) -> Step {
        let hash = short_hash(name, 8);
        let mut mounts = Vec::new();
        let mut env = Vec::new();
        for (kind, path, variable) in
            [("tmp", "/shp-tmp", "TMPDIR"), ("home", "/shp-writable-home", "HOME")]
        {
            let volume = format!("shp-{kind}-{name}-{hash}");
            self.add(empty_dir(&volume));
            mounts.push(mount(&volume, path, None, false));
            env.push(EnvVar {
                name: variable.to_owned(),
                value: Some(path.to_owned()),
                value_from: None,
            });
        }
        let (user, group) = match self.identity {
            Some(identity) => (identity.run_as_user, identity.run_as_group),
            None => (USER, USER),
        };
        if self.identity.is_some() {
            self.add(identity_volume());
            for file in ["group", "passwd"] {
                mounts.push(mount(IDENTITY_VOLUME, &format!("/etc/{file}"), Some(file), true));
            }
        }
        Step {
            name: name.to_owned(),
            image: Some(self.image.to_owned()),
            command: ["portolan", "step", command].map(str::to_owned).to_vec(),
            args,
            env,
            volume_mounts: mounts,
            security_context: Some(SecurityContext {
                allow_privilege_escalation: Some(false),
                capabilities: Some(Capabilities { add: None, drop: Some(vec!["ALL".to_owned()]) }),
                read_only_root_filesystem: Some(true),
                run_as_user: Some(user),
                run_as_group: Some(group),
                ..SecurityContext::default()
            }),
            ..Step::default()
        }
    }

    fn add(&mut self, volume: Volume) {
        if self.volumes.iter().all(|known| known.name != volume.name) {
            self.volumes.push(volume);
        }
    }

    /// Mounts a secret, and tells the step where.
    fn with_secret(&mut self, step: &mut Step, secret: Option<&String>, path: &str) {
        let Some(secret) = secret else { return };
        let name = secret_volume_name(secret);
        self.add(Volume {
            name: name.clone(),
            secret: Some(SecretVolumeSource {
                default_mode: Some(0o444),
                secret_name: Some(secret.clone()),
                ..SecretVolumeSource::default()
            }),
            ..Volume::default()
        });
        step.volume_mounts.push(mount(&name, path, None, true));
        step.args.extend(flag("--secret-path", path));
    }

    pub(super) fn git(&mut self, git: &Git) -> Step {
        let mut args = flag("--url", &literal(&git.url));
        args.extend(flag("--target", SOURCE_ROOT));
        args.extend(
            git.revision.iter().flat_map(|revision| flag("--revision", &literal(revision))),
        );
        // Less than nothing means nothing was meant.
        let depth = git.depth.filter(|depth| *depth >= 0);
        args.extend(depth.iter().flat_map(|depth| flag("--depth", &depth.to_string())));
        for result in ["commit-sha", "commit-author", "branch-name", "source-timestamp"] {
            args.extend(result_file(result, &format!("shp-source-default-{result}")));
        }
        args.extend(errors());
        let mut step = self.step("source-default", "git", args);
        self.with_secret(&mut step, git.clone_secret.as_ref(), CLONE_SECRET);
        step
    }

    pub(super) fn upload(&mut self, timeout: Option<Duration>) -> Step {
        let mut args = flag("--lock-file", LOCK_FILE);
        let timeout = timeout.map(super::duration);
        args.extend(timeout.iter().flat_map(|timeout| flag("--timeout", timeout)));
        args.extend(errors());
        self.step("source-local", "wait-upload", args)
    }

    /// Pulls an artifact that was there before.
    pub(super) fn artifact(
        &mut self,
        artifact: &OciArtifact,
        prune: bool,
        access: Access<'_>,
    ) -> Step {
        let mut args = flag("--image", &literal(&artifact.image));
        args.extend(flag("--target", SOURCE_ROOT));
        args.extend(result_file("image-digest", "shp-source-default-image-digest"));
        args.extend(result_file("source-timestamp", "shp-source-default-source-timestamp"));
        args.extend(access.insecure());
        args.extend(prune.then(|| "--prune".to_owned()));
        args.extend(errors());
        let mut step = self.step("source-default", "source-pull", args);
        self.with_secret(&mut step, access.secret, PULL_SECRET);
        step
    }

    /// Stores what phase one got.
    pub(super) fn push_source(&mut self, image: &str, access: Access<'_>) -> Step {
        let mut args = flag("--image", image);
        args.extend(flag("--source", SOURCE_ROOT));
        args.extend(access.insecure());
        args.extend(result_file("image-digest", "shp-source-bundle-digest"));
        args.extend(errors());
        let mut step = self.step("source-bundle-push", "source-push", args);
        self.with_secret(&mut step, access.secret, PUSH_SECRET);
        step
    }

    /// Gets what phase one stored, by its digest.
    pub(super) fn pull_source(&mut self, access: Access<'_>) -> Step {
        let mut args = flag("--image", "$(params.shp-source-bundle-image)");
        args.extend(flag("--target", SOURCE_ROOT));
        args.extend(access.insecure());
        args.extend(errors());
        let mut step = self.step("source-bundle-pull", "source-pull", args);
        self.with_secret(&mut step, access.secret, PUSH_SECRET);
        step
    }

    /// Deletes the source artifact.
    pub(super) fn prune_source(&mut self, access: Access<'_>) -> Step {
        let mut args = flag("--image", "$(params.shp-source-bundle-image)");
        args.extend(access.insecure());
        let mut step = self.step("source-prune", "source-prune", args);
        self.with_secret(&mut step, access.secret, PUSH_SECRET);
        step
    }

    pub(super) fn process(&mut self, image: &Processing<'_>, access: Access<'_>) -> Step {
        let mut args = Vec::new();
        let mut to = "$(params.shp-output-image)".to_owned();
        match image.given {
            Given::InDirectory => args.extend(flag("--push", "$(params.shp-output-directory)")),
            Given::ByDigest => {
                args.extend(flag("--pushed-digest-file", "$(results.shp-image-digest.path)"));
            }
            Given::Under { image, .. } => {
                args.extend(flag("--pushed", &to));
                to = literal(image);
            }
            Given::Unknown => {}
        }
        args.extend(pairs("--annotation", image.annotations));
        args.extend(pairs("--label", image.labels));
        args.extend(match &image.timestamp {
            (Timestamp::Untouched, _) => Vec::new(),
            (Timestamp::At(seconds), _) => flag("--image-timestamp", &seconds.to_string()),
            (Timestamp::Source, TimestampFrom::Param) => {
                flag("--image-timestamp", "$(params.shp-source-timestamp)")
            }
            (Timestamp::Source, TimestampFrom::ThisTask) => flag(
                "--image-timestamp-file",
                "$(results.shp-source-default-source-timestamp.path)",
            ),
        });
        args.extend(flag("--image", &to));
        args.push("--insecure=$(params.shp-output-insecure)".to_owned());
        if image.check_platform {
            args.extend(flag("--platform", "$(params.shp-platform)"));
        }
        args.extend(result_file("image-digest", "shp-image-digest"));
        args.extend(result_file("image-size", "shp-image-size"));
        args.extend(result_file("image-vulnerabilities", "shp-image-vulnerabilities"));
        args.extend(errors());
        let mut step = self.step("image-processing", "image-push", args);
        if *image.given == Given::InDirectory {
            self.add(empty_dir(OUTPUT_VOLUME));
            step.volume_mounts.push(mount(OUTPUT_VOLUME, OUTPUT_DIR, None, true));
        }
        self.with_secret(&mut step, access.secret, PUSH_SECRET);
        step
    }

    pub(super) fn assemble(
        &mut self,
        annotations: &BTreeMap<String, String>,
        compare_sources: bool,
        access: Access<'_>,
    ) -> Step {
        let mut args = flag("--image", "$(params.shp-output-image)");
        args.push("--insecure=$(params.shp-output-insecure)".to_owned());
        args.extend(pairs("--annotation", annotations));
        args.extend(result_file("image-digest", "shp-image-digest"));
        args.extend(errors());
        if compare_sources {
            args.push("--sources".to_owned());
            args.push("$(params.shp-source-digests[*])".to_owned());
        }
        args.push("--platforms".to_owned());
        args.push("$(params.shp-platform-digests[*])".to_owned());
        let mut step = self.step("assemble-index", "index-assemble", args);
        self.with_secret(&mut step, access.secret, PUSH_SECRET);
        step
    }
}

/// How a registry is opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access<'a> {
    pub(super) secret: Option<&'a String>,
    pub(super) insecure: bool,
}

impl Access<'_> {
    fn insecure(self) -> Option<String> {
        self.insecure.then(|| "--insecure".to_owned())
    }
}

/// Where a build's task hears when the source was changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimestampFrom {
    /// From the task that got the source.
    Param,
    /// From a step before it.
    ThisTask,
}

/// What is done to an image once a strategy has made it.
#[derive(Debug)]
pub(super) struct Processing<'a> {
    pub(super) given: &'a Given,
    pub(super) annotations: &'a BTreeMap<String, String>,
    pub(super) labels: &'a BTreeMap<String, String>,
    pub(super) timestamp: (Timestamp, TimestampFrom),
    pub(super) check_platform: bool,
}

impl Processing<'_> {
    /// Whether there is anything to do.
    pub(super) fn is_needed(&self) -> bool {
        *self.given == Given::InDirectory
            || self.check_platform
            || !self.annotations.is_empty()
            || !self.labels.is_empty()
            || self.timestamp.0 != Timestamp::Untouched
    }
}

/// The annotations that give our steps a name for the user of a strategy.
pub(super) fn identity_annotations(
    identity: StrategySecurityContext,
) -> [(&'static str, String); 2] {
    let StrategySecurityContext { run_as_user: user, run_as_group: group } = identity;
    [
        (keys::SECURITY_CONTEXT_GROUP, format!("shp:x:{group}")),
        (
            keys::SECURITY_CONTEXT_PASSWD,
            format!("shp:x:{user}:{group}:shp:/shared-home:/sbin/nologin"),
        ),
    ]
}

fn identity_volume() -> Volume {
    let item = |path: &str, key: &str| DownwardAPIVolumeFile {
        path: path.to_owned(),
        field_ref: Some(ObjectFieldSelector {
            api_version: None,
            field_path: format!("metadata.annotations['{key}']"),
        }),
        ..DownwardAPIVolumeFile::default()
    };
    Volume {
        name: IDENTITY_VOLUME.to_owned(),
        downward_api: Some(DownwardAPIVolumeSource {
            default_mode: Some(0o444),
            items: Some(vec![
                item("group", keys::SECURITY_CONTEXT_GROUP),
                item("passwd", keys::SECURITY_CONTEXT_PASSWD),
            ]),
        }),
        ..Volume::default()
    }
}

fn empty_dir(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

pub(super) fn mount(
    volume: &str,
    path: &str,
    sub_path: Option<&str>,
    read_only: bool,
) -> VolumeMount {
    VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        sub_path: sub_path.map(str::to_owned),
        read_only: read_only.then_some(true),
        ..VolumeMount::default()
    }
}

fn secret_volume_name(secret: &str) -> String {
    let mapped = secret.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' });
    let name: String = "shp-".chars().chain(mapped).collect();
    // Names that are told apart by what a volume's name may not have stay apart.
    match name.len() <= MAX_LABEL && name.strip_prefix("shp-") == Some(secret) {
        true => name,
        false => unique_name(&name, secret),
    }
}

fn flag(name: &str, value: &str) -> Vec<String> {
    vec![name.to_owned(), value.to_owned()]
}

fn pairs(name: &str, map: &BTreeMap<String, String>) -> Vec<String> {
    let pair = |(key, value)| flag(name, &literal(&format!("{key}={value}")));
    map.iter().flat_map(pair).collect()
}

fn result_file(name: &str, result: &str) -> Vec<String> {
    flag(&format!("--result-file-{name}"), &format!("$(results.{result}.path)"))
}

fn errors() -> Vec<String> {
    let mut args = result_file("error-message", "shp-error-message");
    args.extend(result_file("error-reason", "shp-error-reason"));
    args
}
